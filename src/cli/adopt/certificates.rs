//! The certificates of runtimes, as the objects of their issuer say. Reads no Secret, and sends reads only.

use std::collections::{BTreeMap, BTreeSet};

use tidegate_cluster::Cluster;
use tidegate_core::{
    adopt::Certificate,
    name::Key,
    object::Object,
    plan::certificate::{self, Backend},
};

use crate::gateway::pki::object;

/// The software that issues certificates, with what it has issued for each Kyma.
#[derive(Default)]
pub(super) struct Certificates {
    /// Its name; `None` if the control plane serves no kind of certificates.
    pub(super) issuer: Option<&'static str>,
    /// By Kyma.
    pub(super) runtimes: BTreeMap<Key, Certificate>,
}

/// The certificates of these Kymas, in the namespace of Istio. Fails if a request fails.
pub(super) async fn read(cluster: &Cluster, namespace: &str, kymas: &BTreeSet<Key>) -> anyhow::Result<Certificates> {
    let mut certificates = Certificates::default();
    for backend in [Backend::CertManager, Backend::Gardener] {
        let Some((gvk, _)) = object::kind(backend) else { continue };
        let Some(kind) = cluster.kind(&gvk).await? else { continue };
        let found = of_runtimes(backend, &cluster.list(&kind, Some(namespace), None).await?);
        // A control plane may serve both kinds. The issuer is the one that has certificates of runtimes.
        if certificates.issuer.is_none() || !found.is_empty() {
            certificates.issuer = Some(backend.name());
            certificates.runtimes = found;
        }
        if !certificates.runtimes.is_empty() {
            break;
        }
    }
    let mut found = std::mem::take(&mut certificates.runtimes);
    let of = |kyma: &Key| (kyma.clone(), found.remove(kyma).unwrap_or(Certificate::Absent));
    certificates.runtimes = kymas.iter().map(of).collect();
    Ok(certificates)
}

/// The certificates by Kyma.
fn of_runtimes(backend: Backend, objects: &[Object]) -> BTreeMap<Key, Certificate> {
    let of = |object: &Object| {
        let live = object::read(backend, object.value());
        let kyma = certificate::kyma_of(&object.id().name, live.kyma.as_deref())?;
        let mut names = object.value()["spec"]["dnsNames"].as_array().into_iter().flatten();
        let has_empty_name = names.any(|name| *name == "");
        let certificate = match live.validity {
            Some(validity) => Certificate::Until { not_after: validity.not_after, has_empty_name },
            None => Certificate::Pending(live.problem),
        };
        Some((kyma, certificate))
    };
    objects.iter().filter_map(of).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn certificates_of_runtimes_are_those_with_their_names() {
        let object = |name: &str, spec: Value, status: Value| {
            let metadata = json!({"name": name, "namespace": "istio-system"});
            let kind = json!({
                "apiVersion": "cert-manager.io/v1", "kind": "Certificate", "metadata": metadata, "spec": spec,
                "status": status,
            });
            Object::new(kind).unwrap()
        };
        let status = json!({"notBefore": "2026-01-01T00:00:00Z", "notAfter": "2026-03-02T00:00:00Z"});
        let waiting = json!({"conditions": [
            {"type": "Ready", "status": "False", "reason": "DoesNotExist", "message": "there is no issuer"},
        ]});
        let found = of_runtimes(
            Backend::CertManager,
            &[
                object("one-webhook-tls", json!({"dnsNames": ["a", ""]}), status.clone()),
                object("two-webhook-tls", json!({"dnsNames": ["a"]}), waiting),
                object("klm-watcher-serving", json!({}), status),
            ],
        );
        assert_eq!(found.len(), 2, "{found:?}");
        let not_after = "2026-03-02T00:00:00Z".parse().unwrap();
        let one = Certificate::Until { not_after, has_empty_name: true };
        assert_eq!(found[&Key::new("kcp-system", "one")], one);
        let Certificate::Pending(Some(why)) = &found[&Key::new("kcp-system", "two")] else { panic!("{found:?}") };
        assert!(why.contains("there is no issuer"), "{why}");
    }
}
