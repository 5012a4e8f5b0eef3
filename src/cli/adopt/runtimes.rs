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

use crate::cli::progress::Progress;

/// Runtimes at a time: those that do not answer hold the others up until their requests time out.
pub(super) const AT_ONCE: usize = 64;

/// A Kyma without an access Secret.
#[derive(Debug, thiserror::Error)]
#[error("it has no access Secret")]
pub(super) struct NoSecret;

/// What these runtimes have of these kinds with the ownership label: one list of metadata a kind. `limits` are those of
/// the requests to each.
pub(super) async fn labelled(
    kcp: &Cluster,
    limits: Limits,
    kymas: &BTreeSet<Key>,
    kinds: &[Gvk],
) -> BTreeMap<Key, Answer> {
    let progress = progress(kymas.len());
    let ask = async |kyma: &Key| {
        let answer = of_runtime(kcp, limits, kyma, kinds).await.map_err(|error| format!("{error:#}"));
        progress.advance();
        (kyma.clone(), answer)
    };
    stream::iter(kymas).map(ask).buffer_unordered(AT_ONCE).collect().await
}

/// The progress of a command that asks so many runtimes, for a user at a terminal.
pub(super) fn progress(runtimes: usize) -> Progress {
    let progress = Progress::start("");
    progress.start_step("asking the runtimes", runtimes);
    progress
}

async fn of_runtime(kcp: &Cluster, limits: Limits, kyma: &Key, kinds: &[Gvk]) -> anyhow::Result<Vec<Labelled>> {
    let cluster = connect(kcp, limits, kyma).await?;
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
pub(super) async fn connect(kcp: &Cluster, limits: Limits, kyma: &Key) -> anyhow::Result<Cluster> {
    let selector = format!("{}={}", label::KYMA_NAME, kyma.name());
    let secrets: Vec<Secret> =
        kcp.list_as(&Kind::namespaced::<Secret>(), Some(kyma.namespace()), Some(&selector)).await?;
    let secret =
        secrets.iter().find(|secret| landscape::label(&secret.metadata, label::KYMA_NAME) == Some(kyma.name()));
    let data = secret.ok_or(NoSecret)?.data.as_ref();
    let config = data.and_then(|data| data.get("config")).context("its access Secret has no key `config`")?;
    let access = access::parse(&config.0).context("its access Secret is refused")?;
    Ok(kcp.beside(ClusterName::Runtime(kyma.clone()), &access.config()?, limits)?)
}
