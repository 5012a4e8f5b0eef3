//! Asks the runtimes of a landscape. Sends reads only; who connects may write.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Context as _;
use futures::{StreamExt as _, stream};
use k8s_openapi::api::core::v1::Secret;
use tidegate_cluster::{Cluster, ClusterName, Kind, Limits, Metadata, access};
use tidegate_core::{
    adopt::{Answer, Labelled},
    api::names::{MANAGED_BY_SKR, annotation, label},
    landscape,
    name::Key,
    object::Gvk,
};

/// Runtimes at a time.
pub(super) const AT_ONCE: usize = 16;

/// A Kyma without an access Secret.
#[derive(Debug, thiserror::Error)]
#[error("it has no access Secret")]
pub(super) struct NoSecret;

/// What these runtimes have of these kinds with the ownership label: one list of metadata a kind.
pub(super) async fn labelled(kcp: &Cluster, kymas: &BTreeSet<Key>, kinds: &[Gvk]) -> BTreeMap<Key, Answer> {
    let ask =
        async |kyma: &Key| (kyma.clone(), of_runtime(kcp, kyma, kinds).await.map_err(|error| format!("{error:#}")));
    stream::iter(kymas).map(ask).buffer_unordered(AT_ONCE).collect().await
}

async fn of_runtime(kcp: &Cluster, kyma: &Key, kinds: &[Gvk]) -> anyhow::Result<Vec<Labelled>> {
    let cluster = connect(kcp, kyma).await?;
    let selector = selector();
    let mut all = Vec::new();
    for gvk in kinds {
        let Some(kind) = cluster.kind_in_any_version(gvk).await? else { continue };
        all.extend(cluster.list_metadata(&kind, None, Some(&selector)).await?.into_iter().map(of_metadata));
    }
    Ok(all)
}

fn of_metadata(metadata: Metadata) -> Labelled {
    let owner = metadata.annotation(annotation::OWNED_BY).map(str::to_owned);
    Labelled { id: metadata.id, owner, managers: metadata.managers, deleting: metadata.deleting }
}

/// Selects objects with the ownership label.
pub(super) fn selector() -> String {
    format!("{}={MANAGED_BY_SKR}", label::MANAGED_BY)
}

/// The client for a runtime, from its access Secret. Fails with [`NoSecret`] if there is none.
pub(super) async fn connect(kcp: &Cluster, kyma: &Key) -> anyhow::Result<Cluster> {
    let selector = format!("{}={}", label::KYMA_NAME, kyma.name());
    let secrets: Vec<Secret> =
        kcp.list_as(&Kind::namespaced::<Secret>(), Some(kyma.namespace()), Some(&selector)).await?;
    let secret =
        secrets.iter().find(|secret| landscape::label(&secret.metadata, label::KYMA_NAME) == Some(kyma.name()));
    let data = secret.ok_or(NoSecret)?.data.as_ref();
    let config = data.and_then(|data| data.get("config")).context("its access Secret has no key `config`")?;
    let access = access::parse(&config.0).context("its access Secret is refused")?;
    Ok(kcp.beside(ClusterName::Runtime(kyma.clone()), &access.config()?, Limits::default())?)
}
