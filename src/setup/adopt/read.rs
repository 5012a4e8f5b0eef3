//! Reads what the control plane has of kcp landscapes. Sends reads only.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context as _, bail};
use k8s_openapi::api::coordination::v1::Lease;
use kube::Resource as _;
use tidegate_cluster::{Cluster, Error, Kind};
use tidegate_core::{
    api::{
        GitSource, TIDEGATE_GROUP,
        names::KCP_OPERATOR_LEASE,
        setup::{self, SETUP_GROUP, SETUP_VERSION},
    },
    landscape::SourceName,
    name::Key,
    object::{Gvk, Object},
    plan::setup::DefaultImage,
};

use super::Facts;
use crate::setup::object::ObjectKind;

/// The kinds that kcp-operator makes for itself.
const COMPILED: [&str; 5] =
    ["CompiledRootShard", "CompiledShard", "CompiledFrontProxy", "CompiledCacheServer", "CompiledVirtualWorkspace"];

/// What the control plane has in these namespaces. `image` is that of resources that name none, as the daemon completes
/// them. Fails if a request fails, or if a resource is not one of its kind.
pub(crate) async fn read(cluster: &Cluster, namespaces: &[String], image: &DefaultImage) -> anyhow::Result<Facts> {
    let mut facts = Facts::default();
    for kind in setup::Kind::ALL {
        for object in list(cluster, SETUP_GROUP, SETUP_VERSION, kind.as_str(), namespaces).await? {
            let key = Key::new(object.namespace(), object.name());
            let what = || format!("{kind} {key} is invalid: correct it first");
            facts.resources.insert(kind, &key, object.into_value()).with_context(what)?;
        }
    }
    image.complete_all(&mut facts.resources);
    for kind in ObjectKind::ALL {
        let gvk = kind.kind().gvk;
        for object in list(cluster, &gvk.group, &gvk.version, &gvk.kind, namespaces).await? {
            let place = (object.namespace().to_owned(), (kind, object.name().to_owned()));
            facts.objects.insert(place, object);
        }
    }
    for kind in COMPILED {
        facts.compiled += list(cluster, "deploy.operator.kcp.io", "v1alpha1", kind, namespaces).await?.len();
    }
    Ok(facts)
}

/// Those of these GitSources that the control plane has, and that have no templates. Fails if a request fails.
pub(crate) async fn plain(cluster: &Cluster, sources: &BTreeSet<SourceName>) -> anyhow::Result<BTreeSet<SourceName>> {
    let namespaces: BTreeSet<String> = sources.iter().map(|source| source.key().namespace().to_owned()).collect();
    let namespaces: Vec<String> = namespaces.into_iter().collect();
    let (version, kind) = (GitSource::version(&()), GitSource::kind(&()));
    let found = list(cluster, TIDEGATE_GROUP, &version, &kind, &namespaces).await?;
    let plain = found.iter().filter(|source| source.value()["spec"]["templates"].is_null());
    let plain = plain.map(|source| SourceName::new(Key::new(source.namespace(), source.name())));
    Ok(plain.filter(|source| sources.contains(source)).collect())
}

/// All objects of a kind in these namespaces; none if the control plane does not serve it.
async fn list(
    cluster: &Cluster,
    group: &str,
    version: &str,
    kind: &str,
    namespaces: &[String],
) -> anyhow::Result<Vec<Object>> {
    let Some(served) = cluster.kind(&Gvk::new(group, version, kind)).await? else { return Ok(Vec::new()) };
    let mut all = Vec::new();
    for namespace in namespaces {
        let found = cluster.list(&served, Some(namespace), None).await;
        all.extend(found.with_context(|| format!("cannot list {kind}s in namespace {namespace}"))?);
    }
    Ok(all)
}

/// The Leases of kcp-operator, by namespace. Fails if a request fails, also if the user may not list Leases: then it is
/// not known whether kcp-operator runs.
pub(crate) async fn leases(cluster: &Cluster) -> anyhow::Result<BTreeMap<String, Lease>> {
    let found: Result<Vec<Lease>, Error> = cluster.list_as(&Kind::namespaced::<Lease>(), None, None).await;
    let found = match found {
        Err(error @ Error::Forbidden { .. }) => bail!(
            "cannot find out whether kcp-operator runs: {error}; use a user who may list Leases in all namespaces"
        ),
        found => found.context("cannot list the Leases")?,
    };
    let named = found.into_iter().filter(|lease| lease.metadata.name.as_deref() == Some(KCP_OPERATOR_LEASE));
    Ok(named.map(|lease| (lease.metadata.namespace.clone().unwrap_or_default(), lease)).collect())
}
