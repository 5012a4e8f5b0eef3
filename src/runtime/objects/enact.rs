//! Reading the content of shared objects in a runtime, and what they get from the control plane; taking over what
//! Lifecycle Manager claims of them. Decides nothing.

use k8s_openapi::api::core::v1::Secret;
use tidegate_cluster::{Cause, Cluster, Error, Kind, Metadata};
use tidegate_core::{name::Key, object::Object};

use super::decide::Read;

/// Sends one request. Returns nothing for a kind that the runtime does not serve.
pub(super) async fn read(cluster: &Cluster, read: &Read<'_>) -> Result<Vec<Object>, Error> {
    let Some(kind) = cluster.kind(read.gvk()).await? else { return Ok(Vec::new()) };
    match read {
        Read::One { id, .. } => {
            let object = cluster.get(&kind, &Key::new(&id.namespace, &id.name)).await?;
            Ok(object.into_iter().collect())
        }
        Read::All { namespace, .. } => cluster.list(&kind, Some(namespace), None).await,
    }
}

/// Takes over what Lifecycle Manager claims of an object as it was read. Returns its metadata.
pub(super) async fn take_over(cluster: &Cluster, cause: &Cause, live: &Object) -> Result<Metadata, Error> {
    let gvk = live.gvk();
    let kind = cluster.kind(&gvk).await?.ok_or(Error::NotServed { gvk })?;
    cluster.take_claims_of(cause, &kind, live).await
}

/// Reads a Secret in KCP.
pub(super) async fn read_secret(kcp: &Cluster, key: &Key) -> Result<Option<Secret>, Error> {
    kcp.get_as(&Kind::namespaced::<Secret>(), key).await
}
