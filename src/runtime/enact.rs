//! Requests and notes of a pass over a runtime: one act, one request. Decides nothing.

use tidegate_cluster::{Cause, Cluster, Error, Kind, Metadata};
use tidegate_core::{
    api::{
        Kyma,
        names::{MANAGED_BY_SKR, annotation, label},
        shared::ObjectMeta,
    },
    name::Key,
    object::Gvk,
};

use super::{RuntimeContext, opening::Act, outcome};
use crate::controller::annotations;

/// Notes something in this process.
pub(super) fn note(context: RuntimeContext<'_>, key: &Key, act: Act) {
    match act {
        Act::RestContact => context.contacts.rest(key),
        Act::TellReached => outcome::tell_reached(context, key),
    }
}

/// The UID of an object in KCP; `None` if it does not exist. Fails if it cannot be read.
pub(super) async fn uid(kcp: &Cluster, kind: &Kind, key: &Key) -> Result<Option<String>, Error> {
    Ok(kcp.get_metadata(kind, key).await?.map(|metadata| metadata.uid))
}

/// The metadata of a Kyma in KCP, with its managedFields; `None` if it does not exist, or cannot be read.
pub(super) async fn kyma_metadata(kcp: &Cluster, key: &Key) -> Option<ObjectMeta> {
    kcp.get_object_meta(&Kind::namespaced::<Kyma>(), key).await.unwrap_or_default()
}

/// Removes from a Kyma in KCP who suspended it. Fails if the control plane rejects that.
pub(super) async fn forget_suspension(kcp: &Cluster, cause: &Cause, kyma: &Kyma) -> Result<(), Error> {
    let kind = Kind::namespaced::<Kyma>();
    annotations::remove(kcp, cause, &kind, &kyma.metadata, annotation::SUSPENDED).await
}

/// The objects of a kind with our ownership label in a runtime; empty if it does not serve the kind. Fails if they
/// cannot be listed.
pub(super) async fn list_owned(cluster: &Cluster, gvk: &Gvk) -> Result<Vec<Metadata>, Error> {
    let selector = format!("{}={MANAGED_BY_SKR}", label::MANAGED_BY);
    match cluster.kind(gvk).await? {
        Some(kind) => cluster.list_metadata(&kind, None, Some(&selector)).await,
        None => Ok(Vec::new()),
    }
}
