//! Enacts what was decided about a resource of a kcp landscape: one act, one request. Decides nothing.

use std::sync::Arc;

use bytes::Bytes;
use serde_json::{Value, json};
use tidegate_cluster::{Cause, Cluster, Deleted, Error, Kind, OnConflict, Propagation, Target};
use tidegate_core::{
    api::{
        names::{annotation, finalizer},
        setup::{self, SETUP_GROUP, SETUP_VERSION},
        shared::ObjectMeta,
    },
    landscape,
    name::Key,
    object::{Gvk, Object},
};

use super::{
    leave::{self, Definition},
    object::LiveObject,
    state::ObjectName,
};
use crate::controller::finalizers;

/// The kind of a resource at the API server.
pub(super) fn kind_of(kind: setup::Kind) -> Kind {
    Kind::new(Gvk::new(SETUP_GROUP, SETUP_VERSION, kind.as_str()), kind.plural(), true)
}

/// Adds Tidegate's finalizer to a resource. Fails if the resource has changed since, or if the request fails.
pub(super) async fn take_charge(
    kcp: &Cluster,
    cause: &Cause,
    kind: setup::Kind,
    key: &Key,
    metadata: &ObjectMeta,
) -> Result<(), Error> {
    let kind = kind_of(kind);
    let mut finalizers = metadata.finalizers.clone().unwrap_or_default();
    finalizers.push(finalizer::SETUP.to_owned());
    let metadata = json!({ "finalizers": finalizers, "resourceVersion": metadata.resource_version });
    let body = Bytes::from(json!({ "metadata": metadata }).to_string());
    match kcp.merge_patch(cause, &kind, &kind.id(key), None, body).await {
        Ok(_) | Err(Error::NotFound { .. }) => Ok(()),
        Err(error) => Err(error),
    }
}

/// Removes the finalizers of Tidegate and of kcp-operator. Fails if a request fails, or if the resource has changed
/// since.
pub(super) async fn release(
    kcp: &Cluster,
    cause: &Cause,
    kind: setup::Kind,
    metadata: &ObjectMeta,
) -> Result<(), Error> {
    finalizers::release_known(kcp, cause, &kind_of(kind), metadata, &leave::finalizers()).await
}

/// Reads whether the CustomResourceDefinition of a kind is being deleted. Fails if the request fails.
pub(super) async fn definition(kcp: &Cluster, kind: setup::Kind) -> Result<Definition, Error> {
    let crds = Kind::new(
        Gvk::new("apiextensions.k8s.io", "v1", "CustomResourceDefinition"),
        "customresourcedefinitions",
        false,
    );
    let found = kcp.get_object_meta(&crds, &Key::new("", &format!("{}.{SETUP_GROUP}", kind.plural()))).await?;
    let leaves = found.is_some_and(|found| {
        let confirmed = landscape::annotation(&found, annotation::CONFIRM_DELETION) == Some("true");
        found.deletion_timestamp.is_some() && !confirmed
    });
    Ok(if leaves { Definition::Leaves } else { Definition::Stands })
}

/// Reads an object; `None` if it does not exist. Fails if the request fails.
pub(super) async fn read(kcp: &Cluster, namespace: &str, (kind, name): &ObjectName) -> Result<Option<Object>, Error> {
    kcp.get(&kind.kind(), &Key::new(namespace, name)).await
}

/// Applies an object, and returns its version; a rejected object is an answer. Fails if the request fails.
pub(super) async fn apply(
    kcp: &Cluster,
    cause: &Cause,
    name: &ObjectName,
    object: &Object,
    on_conflict: OnConflict,
) -> Result<Result<Arc<str>, String>, Error> {
    let kind = name.0.kind();
    match kcp.apply(cause, &kind, &object.id(), Bytes::from(object.value().to_string()), on_conflict).await {
        Ok(metadata) => Ok(Ok(name.0.version_of(&metadata))),
        Err(Error::NotServed { gvk }) => Ok(Err(format!(
            "the control plane does not serve {}: install cert-manager, or run with --pki=builtin",
            gvk.kind
        ))),
        Err(
            error @ (Error::Invalid { .. }
            | Error::UndeclaredField { .. }
            | Error::Forbidden { .. }
            | Error::NamespaceTerminating { .. }),
        ) => Ok(Err(error.to_string())),
        Err(error) => Err(error),
    }
}

/// Deletes an object. Fails if it has changed since, or if the request fails.
pub(super) async fn delete(
    kcp: &Cluster,
    cause: &Cause,
    namespace: &str,
    (kind, name): &ObjectName,
    live: &LiveObject,
) -> Result<(), Error> {
    let kind = kind.kind();
    let id = kind.id(&Key::new(namespace, name));
    let version = Some(&*live.resource_version);
    match kcp.delete_if(cause, &kind, &id, &live.uid, version, Propagation::Background).await? {
        Deleted::Gone | Deleted::Terminating => Ok(()),
        Deleted::Changed => Err(Error::Changed { target: Target::Object(id) }),
    }
}

/// Writes the status of a resource, that of a CacheServer into an annotation. Fails if the request fails.
pub(super) async fn report(
    kcp: &Cluster,
    cause: &Cause,
    kind: setup::Kind,
    key: &Key,
    status: &Value,
) -> Result<(), Error> {
    if kind == setup::Kind::CacheServer {
        // The API server drops each field of its status.
        let kind = kind_of(kind);
        let body = json!({ "metadata": { "annotations": { annotation::STATUS: status.to_string() } } });
        let body = Bytes::from(body.to_string());
        return match kcp.merge_patch(cause, &kind, &kind.id(key), None, body).await {
            Ok(_) | Err(Error::NotFound { .. }) => Ok(()),
            Err(error) => Err(error),
        };
    }
    let body = json!({
        "apiVersion": format!("{SETUP_GROUP}/{SETUP_VERSION}"),
        "kind": kind.as_str(),
        "metadata": { "name": key.name(), "namespace": key.namespace() },
        "status": status,
    });
    let kind = kind_of(kind);
    kcp.apply_status(cause, &kind, &kind.id(key), Bytes::from(body.to_string())).await.map(drop)
}
