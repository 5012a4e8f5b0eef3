//! Enacts the acts that were decided about the gateway's Secret: one act, one request. Decides nothing.

use k8s_openapi::{ByteString, api::core::v1::Secret, jiff::Timestamp};
use serde_json::{Map, Value, json};
use tidegate_cluster::{Cause, Cluster, Error, Kind};
use tidegate_core::{
    api::names::{self, annotation, label},
    name::Key,
    plan::certificate::{Backend, Validity},
};

use super::{
    decide::{Credentials, GatewayContent, Problem},
    pki::{self, Issue, Root},
};
use crate::{controller::chain, stores::secret::key};

/// Why an act failed.
pub(super) enum Stop {
    /// A user must resolve it.
    Problem(Problem),
    /// A request failed.
    Request(Error),
}

/// Reads a Secret; none if it does not exist. Fails if the control plane does not return it.
pub(super) async fn read<T>(kcp: &Cluster, key: &Key, of: impl FnOnce(Secret) -> T) -> Result<Option<T>, Stop> {
    let secret = kcp.get_as(&Kind::namespaced::<Secret>(), key).await.map_err(Stop::Request)?;
    Ok(secret.map(of))
}

/// Creates a CA, or replaces the CA at a resource version. Fails if it cannot be signed or written.
pub(super) async fn make_authority(
    kcp: &Cluster,
    cause: &Cause,
    key: &Key,
    replaces: Option<&str>,
    validity: Validity,
) -> Result<(), Stop> {
    let unmade = |error: pki::Error| Stop::Problem(Problem::new("NoAuthority", chain(&error)));
    let made = Root::generate("klm-watcher-selfsigned-ca", validity).map_err(unmade)?;
    let data = data([
        (key::CERTIFICATE, made.certificate.as_bytes()),
        (key::KEY, made.key.as_bytes()),
        (key::BUNDLE, made.certificate.as_bytes()),
    ]);
    let labels = json!({ label::MANAGED_BY: names::MANAGED_BY_KCP });
    let annotations = json!({ annotation::PKI: Backend::Builtin.name() });
    put(kcp, cause, key, replaces, "kubernetes.io/tls", (&labels, &annotations, &data)).await?;
    tracing::info!(secret = %key, until = %validity.not_after, "created a CA");
    Ok(())
}

/// Writes the gateway's Secret. Fails if a certificate cannot be signed, or if the write fails.
pub(super) async fn write(kcp: &Cluster, cause: &Cause, key: &Key, content: &GatewayContent) -> Result<(), Stop> {
    let bundle = pki::write_bundle(&content.bundle);
    let mut data = data([(key::BUNDLE, bundle.as_bytes())]);
    if let Some(credentials) = &content.credentials {
        data.extend(issue(credentials)?);
    }
    let bundled_at = Timestamp::from_second(content.bundled_at.as_second()).unwrap_or(content.bundled_at);
    let annotations = json!({ annotation::BUNDLED_AT: bundled_at.to_string() });
    put(kcp, cause, key, content.replaces.as_deref(), "Opaque", (&json!({}), &annotations, &data)).await?;
    tracing::info!(
        authorities = content.bundle.authorities().len(),
        served = content.credentials.is_some(),
        "wrote the gateway's Secret"
    );
    Ok(())
}

/// The data that the gateway serves with.
fn issue(credentials: &Credentials) -> Result<Map<String, Value>, Stop> {
    match credentials {
        Credentials::Authority(certificate, key) => Ok(data([(key::CERTIFICATE, certificate), (key::KEY, key)])),
        Credentials::Issued { root, names, validity } => {
            let common_name = names.first().map_or(names::GATEWAY_SECRET, String::as_str);
            let issue = Issue { common_name, names, validity: *validity, is_server: true };
            let unissued = |error: pki::Error| Stop::Problem(Problem::new("NoCertificate", chain(&error)));
            let leaf = root.issue(issue).map_err(unissued)?;
            Ok(data([(key::CERTIFICATE, leaf.certificate.as_bytes()), (key::KEY, leaf.key.as_bytes())]))
        }
    }
}

/// Creates a Secret, or changes the Secret at a resource version. `content` contains labels, annotations and data.
async fn put(
    kcp: &Cluster,
    cause: &Cause,
    key: &Key,
    replaces: Option<&str>,
    type_: &str,
    (labels, annotations, data): (&Value, &Value, &Map<String, Value>),
) -> Result<(), Stop> {
    let kind = Kind::namespaced::<Secret>();
    let mut metadata = json!({
        "name": key.name(), "namespace": key.namespace(), "labels": labels, "annotations": annotations,
    });
    let written = match replaces {
        Some(resource_version) => {
            metadata["resourceVersion"] = resource_version.into();
            let body = json!({ "metadata": metadata, "data": data });
            kcp.merge_patch(cause, &kind, &kind.id(key), None, body.to_string().into()).await
        }
        None => {
            let body = json!({
                "apiVersion": "v1", "kind": "Secret", "metadata": metadata, "type": type_, "data": data,
            });
            kcp.create(cause, &kind, &kind.id(key), body.to_string().into()).await
        }
    };
    match written {
        Ok(_) => Ok(()),
        Err(Error::NotFound { .. }) => Err(Stop::Problem(Problem::new(
            "NoNamespace",
            format!("namespace {} of Secret {} does not exist: create the namespace", key.namespace(), key.name()),
        ))),
        Err(error) => Err(Stop::Request(error)),
    }
}

fn data<const N: usize>(entries: [(&str, &[u8]); N]) -> Map<String, Value> {
    let encoded = |bytes: &[u8]| serde_json::to_value(ByteString(bytes.to_vec())).unwrap_or_default();
    entries.into_iter().map(|(key, bytes)| (key.to_owned(), encoded(bytes))).collect()
}
