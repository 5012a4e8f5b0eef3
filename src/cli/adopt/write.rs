//! The writes of `tidegate adopt take`. Each is conditional on what was read, and safe to repeat.

use std::{collections::BTreeSet, time::Duration};

use anyhow::{Context as _, bail};
use bytes::Bytes;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::api::coordination::v1::Lease;
use serde_json::json;
use tidegate_cluster::{Cause, Cluster, Error, Kind, OnConflict};
use tidegate_core::{
    api::{
        KYMA_GROUP, KYMA_VERSION, Kyma, Manifest,
        names::{KCP_NAMESPACE, LEASE, annotation},
    },
    definition::Definitions,
    intake,
    landscape::{self, SourceName},
    name::Key,
    object::{Gvk, Object},
};
use tidegate_process::tell;

use super::read::{Crd, Ended, Facts};

/// Concurrent writes.
const CONCURRENCY: usize = 16;
/// A holder that has not renewed its Lease for this long has ended, whatever the clocks of the machines say: Lifecycle
/// Manager renews it each three seconds, and kcp-operator each two.
pub(super) const SILENCE_MIN: Duration = Duration::from_secs(15);

/// Waits until it is certain that the holder of the Lease has ended. Fails if it renews the Lease meanwhile: then it
/// runs, whatever the clocks say, and nothing may be written.
pub(super) async fn wait_for_silence(cluster: &Cluster, ended: &Ended) -> anyhow::Result<()> {
    tell!("waiting for {} s, because {} runs if it renews the Lease", SILENCE_MIN.as_secs(), ended.holder.name);
    tokio::time::sleep_until(ended.read + SILENCE_MIN).await;
    let kind = Kind::namespaced::<Lease>();
    let found = cluster.get_metadata(&kind, &Key::new(KCP_NAMESPACE, LEASE)).await.context("cannot read the Lease")?;
    match found {
        Some(lease) if lease.resource_version != ended.resource_version => bail!(runs(ended)),
        // Without a Lease, no process leads.
        Some(_) | None => Ok(()),
    }
}

/// Why a take-over ends: the holder of the Lease is alive.
fn runs(ended: &Ended) -> String {
    format!("{} runs, because it has renewed the Lease: stop it, and run the command again", ended.holder.name)
}

/// Releases the Lease of a process that has ended, so that the daemon need not wait until it ends. Fails if the process
/// renews it: then it runs.
pub(super) async fn free(cluster: &Cluster, cause: &Cause, ended: &Ended) -> anyhow::Result<()> {
    let kind = Kind::namespaced::<Lease>();
    let id = kind.id(&Key::new(KCP_NAMESPACE, LEASE));
    let patch = json!({
        "metadata": {"resourceVersion": ended.resource_version},
        // As client-go does: a process that does not know empty holders waits a second.
        "spec": {"holderIdentity": "", "leaseDurationSeconds": 1},
    });
    match cluster.merge_patch(cause, &kind, &id, None, patch.to_string().into()).await {
        // Without a Lease, no process waits.
        Ok(_) | Err(Error::NotFound { .. }) => Ok(()),
        Err(Error::Changed { .. }) => bail!(runs(ended)),
        Err(error) => Err(error).context("cannot release the Lease"),
    }
}

/// Stores the objects of outdated kinds again, then removes the outdated versions from the CustomResourceDefinitions.
/// Returns how many objects were stored. Fails at the first write that is refused.
pub(super) async fn store_again(cluster: &Cluster, cause: &Cause, facts: &Facts) -> anyhow::Result<usize> {
    let mut written = 0;
    for crd in facts.crds.iter().filter(|crd| crd.versions.is_outdated()) {
        let objects = stream::iter(&crd.objects).map(async |key| touch(cluster, cause, &crd.kind, key).await);
        let all: Vec<()> = objects.buffer_unordered(CONCURRENCY).try_collect().await?;
        written += all.len();
        // Only now is no object stored in another version. One that was created since is stored as the storage version.
        forget(cluster, cause, crd).await?;
    }
    Ok(written)
}

/// Has the runtimes of these Kymas stay as Lifecycle Manager left them. Fails at the first write that is refused.
pub(super) async fn hold(cluster: &Cluster, cause: &Cause, kymas: &[Key]) -> anyhow::Result<()> {
    annotate(cluster, cause, kymas, Some("true")).await
}

/// Sets what Kymas say of the adoption of their runtimes, or removes it. Fails at the first write that is refused.
pub(super) async fn annotate(
    cluster: &Cluster,
    cause: &Cause,
    kymas: &[Key],
    value: Option<&str>,
) -> anyhow::Result<()> {
    let kind = Kind::namespaced::<Kyma>();
    let body = Bytes::from(json!({"metadata": {"annotations": {annotation::ADOPTED: value}}}).to_string());
    let written = stream::iter(kymas).map(async |key| {
        let id = kind.id(key);
        match cluster.merge_patch(cause, &kind, &id, None, body.clone()).await {
            // Without a Kyma, there is no runtime.
            Ok(_) | Err(Error::NotFound { .. }) => Ok(()),
            Err(error) => Err(error).with_context(|| format!("cannot annotate {id}")),
        }
    });
    written.buffered(CONCURRENCY).try_collect().await
}

/// Makes Manifests Tidegate's: only the field managers change. Then each is applied once when it changes, as one that
/// Tidegate created. Fails at the first write that is refused: another client has changed a Manifest since it was read.
pub(super) async fn claim(cluster: &Cluster, cause: &Cause, manifests: &[&Object]) -> anyhow::Result<()> {
    let kind = Kind::namespaced::<Manifest>();
    let written = stream::iter(manifests).map(async |live| match cluster.take_claims_of(cause, &kind, live).await {
        Ok(_) | Err(Error::NotFound { .. }) => Ok(()),
        Err(error) => Err(error).with_context(|| format!("cannot take over {}", live.id())),
    });
    written.buffered(CONCURRENCY).try_collect().await
}

/// Writes an object as it is: the API server stores it in the storage version.
async fn touch(cluster: &Cluster, cause: &Cause, kind: &Kind, key: &Key) -> anyhow::Result<()> {
    let id = kind.id(key);
    match cluster.merge_patch(cause, kind, &id, None, Bytes::from_static(b"{}")).await {
        // Without an object, nothing is stored.
        Ok(_) | Err(Error::NotFound { .. }) => Ok(()),
        Err(error) => Err(error).with_context(|| format!("cannot store {id} again")),
    }
}

/// Removes the outdated versions from the status of a CustomResourceDefinition, if that is still as it was read.
async fn forget(cluster: &Cluster, cause: &Cause, crd: &Crd) -> anyhow::Result<()> {
    let gvk = Gvk::new("apiextensions.k8s.io", "v1", "CustomResourceDefinition");
    let kind = Kind::built_in(&gvk).context("CustomResourceDefinition is no built-in kind")?;
    let id = kind.id(&Key::new("", &crd.versions.name));
    let patch = json!({
        "metadata": {"resourceVersion": crd.resource_version},
        "status": {"storedVersions": [crd.versions.storage]},
    });
    let written = cluster.merge_patch(cause, &kind, &id, Some("status"), patch.to_string().into()).await;
    written.map(drop).with_context(|| format!("cannot change the stored versions of {}", crd.versions.name))
}

/// Gives the ownership label to the definitions that are alike in git and in the control plane. Returns how many there
/// were. Fails at the first write that is refused: another client has changed an object since it was read.
pub(super) async fn mark(
    cluster: &Cluster,
    cause: &Cause,
    facts: &Facts,
    declared: &Definitions,
    source: &SourceName,
) -> anyhow::Result<usize> {
    let equal: BTreeSet<_> = facts.equal(declared, source).into_iter().collect();
    let definitions = declared.good.iter().filter(|(id, _)| equal.contains(*id));
    let marked = stream::iter(definitions).map(async |(id, definition)| {
        let kind = cluster.kind(&Gvk::new(KYMA_GROUP, KYMA_VERSION, &id.0.to_string())).await?;
        let kind = kind.with_context(|| format!("the control plane does not serve {}", id.0))?;
        let object = landscape::stamp(definition, source);
        let body = serde_json::to_vec(object.value()).context("cannot write JSON")?;
        // Without force: a field that has another value by now is a conflict.
        let written = cluster.apply(cause, &kind, &object.id(), body.into(), OnConflict::Report).await;
        written.map(drop).with_context(|| format!("cannot mark {}", intake::text(id)))
    });
    let all: Vec<()> = marked.buffer_unordered(CONCURRENCY).try_collect().await?;
    Ok(all.len())
}
