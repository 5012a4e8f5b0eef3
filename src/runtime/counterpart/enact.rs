//! Enacts what was decided about the Kyma in a runtime: one act, one request. Decides nothing.

use std::sync::Arc;

use bytes::Bytes;
use serde_json::Value;
use tidegate_cluster::{Cause, Cluster, Error, Kind};
use tidegate_core::{
    api::{
        Kyma,
        kyma::KymaStatus,
        names::{SKR_KYMA, SKR_NAMESPACE},
    },
    name::Key,
    object::Object,
};

use crate::controller::status_body;

/// Reads the Kyma; none if it does not exist. Fails if the runtime does not return it.
pub(super) async fn read(cluster: &Cluster) -> Result<Option<Arc<Kyma>>, Error> {
    let kyma: Option<Kyma> = cluster.get_as(&Kind::namespaced::<Kyma>(), &key()).await?;
    Ok(kyma.map(|mut kyma| {
        kyma.metadata.managed_fields = None;
        Arc::new(kyma)
    }))
}

/// Creates the Kyma, unless another client has created it meanwhile. Fails if the request fails.
pub(super) async fn create(cluster: &Cluster, cause: &Cause, object: &Object) -> Result<(), Error> {
    let kind = Kind::namespaced::<Kyma>();
    match cluster.create(cause, &kind, &kind.id(&key()), Bytes::from(object.value().to_string())).await {
        Ok(_) | Err(Error::Exists { .. }) => Ok(()),
        Err(error) => Err(error),
    }
}

/// Writes the fields of the Kyma that differ. Fails if the request fails.
pub(super) async fn merge(cluster: &Cluster, cause: &Cause, patch: &Value) -> Result<(), Error> {
    let kind = Kind::namespaced::<Kyma>();
    cluster.merge_patch(cause, &kind, &kind.id(&key()), None, Bytes::from(patch.to_string())).await.map(drop)
}

/// Writes the status of the Kyma, and returns it; none if the Kyma does not exist. Fails if the request fails.
pub(super) async fn show(cluster: &Cluster, cause: &Cause, status: KymaStatus) -> Result<Option<KymaStatus>, Error> {
    let kind = Kind::namespaced::<Kyma>();
    match cluster.apply_status(cause, &kind, &kind.id(&key()), status_body("Kyma", &key(), &status)).await {
        Ok(_) => Ok(Some(status)),
        // It has been deleted in the meantime, or its CRD has, which Tidegate deletes when it removes a runtime.
        Err(Error::NotFound { .. } | Error::NotServed { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

fn key() -> Key {
    Key::new(SKR_NAMESPACE, SKR_KYMA)
}
