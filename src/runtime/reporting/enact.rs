//! Reading what reporting needs, and deleting its objects: one act, one request. Decides nothing.

use tidegate_cluster::{Cause, Cluster, Error, Kind, Metadata, Propagation};
use tidegate_core::{
    api::names::{MANAGED_BY_SKR, SKR_NAMESPACE, SKR_WEBHOOK, label},
    name::Key,
    object::{Gvk, Object},
};

use super::{
    decide::{deployment_key, deployment_kind, secret_key, secret_kind},
    rhythm,
};

/// Lists the metadata of all objects of a kind in the runtime that carry our ownership label.
pub(super) async fn list_ours(cluster: &Cluster, kind: &Kind) -> Result<Vec<Metadata>, Error> {
    let selector = format!("{}={MANAGED_BY_SKR}", label::MANAGED_BY);
    cluster.list_metadata(kind, None, Some(&selector)).await
}

/// Reads the webhook configuration.
pub(super) async fn read_webhooks(cluster: &Cluster) -> Result<Option<Object>, Error> {
    let [validating, _] = rhythm::webhook_kinds();
    cluster.get(&validating, &Key::new("", SKR_WEBHOOK)).await
}

/// Reads the Deployment of the agent.
pub(super) async fn read_deployment(cluster: &Cluster) -> Result<Option<Object>, Error> {
    cluster.get(&deployment_kind(), &deployment_key()).await
}

/// Reads the Secret with the certificate of the agent.
pub(super) async fn read_secret(cluster: &Cluster) -> Result<Option<Object>, Error> {
    cluster.get(&secret_kind(), &secret_key()).await
}

/// Lists the pods of the agent.
pub(super) async fn list_pods(cluster: &Cluster) -> Result<Vec<Object>, Error> {
    let kind = Kind::new(Gvk::new("", "v1", "Pod"), "pods", true);
    let selector = format!("app={SKR_WEBHOOK}");
    cluster.list(&kind, Some(SKR_NAMESPACE), Some(&selector)).await
}

/// Deletes an object in the runtime, unless it has changed since it was read. Returns how many objects that were: none
/// if the runtime no longer serves its kind.
pub(super) async fn delete(cluster: &Cluster, cause: &Cause, gvk: &Gvk, metadata: &Metadata) -> Result<usize, Error> {
    let Some(kind) = cluster.kind(gvk).await? else { return Ok(0) };
    cluster.delete(cause, &kind, metadata, Propagation::Background).await?;
    Ok(1)
}
