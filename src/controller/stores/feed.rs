//! The watches that keep the [`Stores`].
//!
//! Each is a future that never ends and that the daemon runs as a task. Of Secrets only the metadata is read, save the
//! one with the CA bundle that runtimes trust.

use std::{collections::BTreeSet, sync::Arc};

use futures::future::BoxFuture;
use k8s_openapi::{api::core::v1::Secret, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use kube::{
    Resource,
    core::{DynamicObject, NamespaceResourceScope, PartialObjectMeta},
};
use serde::de::DeserializeOwned;

use super::{AccessSecret, GatewayEntry, Stored, Stores, Table, kyma_of};
use crate::{
    api::{GitSource, Kyma, Manifest, ModuleReleaseMeta, ModuleTemplate, Watcher, names},
    cluster::{
        Cluster, Kind,
        watch::{self, Change, Options},
    },
    landscape,
    name::Key,
    object::Gvk,
    plan::watch::Gateway,
};

/// All watches: custom resources, access Secrets and Gateways in each of `namespaces`, Gateways in that of the one that
/// agents send to, the CA bundle in `istio_namespace`. Nothing is requested before they are polled.
pub fn feed(
    kcp: &Arc<Cluster>,
    stores: &Stores,
    namespaces: &BTreeSet<String>,
    gateway_namespace: &str,
    istio_namespace: &str,
) -> Vec<BoxFuture<'static, ()>> {
    let mut watches = Vec::new();
    for namespace in namespaces {
        watches.push(custom::<GitSource>(kcp, stores, namespace));
        watches.push(custom::<Kyma>(kcp, stores, namespace));
        watches.push(custom::<Manifest>(kcp, stores, namespace));
        watches.push(custom::<ModuleTemplate>(kcp, stores, namespace));
        watches.push(custom::<ModuleReleaseMeta>(kcp, stores, namespace));
        watches.push(custom::<Watcher>(kcp, stores, namespace));
        watches.push(access(kcp, stores, namespace));
        watches.push(gateways(kcp, stores, namespace));
    }
    if !namespaces.contains(gateway_namespace) {
        watches.push(gateways(kcp, stores, gateway_namespace));
    }
    watches.push(ca_bundle(kcp, stores, istio_namespace));
    watches
}

fn custom<K>(kcp: &Arc<Cluster>, stores: &Stores, namespace: &str) -> BoxFuture<'static, ()>
where
    K: Stored + Resource<DynamicType = (), Scope = NamespaceResourceScope> + DeserializeOwned + PartialEq,
{
    stores.expect(K::TABLE, namespace);
    let (stores, place) = (stores.clone(), namespace.to_owned());
    let project = |mut object: K| {
        slim(object.meta_mut());
        Some(object)
    };
    let on_change = move |change: Change<K>| match change {
        Change::Set { key, new, .. } => stores.set(&key, Some(new)),
        Change::Gone { key, .. } => stores.set::<K>(&key, None),
        Change::Synced => stores.listed(K::TABLE, &place),
    };
    let options = Options::all(Kind::namespaced::<K>()).namespace(namespace);
    watch::follow(Arc::clone(kcp), options, project, on_change).1
}

fn access(kcp: &Arc<Cluster>, stores: &Stores, namespace: &str) -> BoxFuture<'static, ()> {
    stores.expect(Table::Access, namespace);
    let (stores, place) = (stores.clone(), namespace.to_owned());
    let project = |secret: PartialObjectMeta<Secret>| {
        let resource_version = secret.metadata.resource_version.clone()?;
        Some(AccessSecret { kyma: kyma_of(&secret.metadata)?, resource_version })
    };
    let on_change = move |change: Change<AccessSecret>| match change {
        Change::Set { key, new, .. } => stores.set_access(&key, Some(AccessSecret::clone(&new))),
        Change::Gone { key, .. } => stores.set_access(&key, None),
        Change::Synced => stores.listed(Table::Access, &place),
    };
    let options =
        Options::all(Kind::namespaced::<Secret>()).namespace(namespace).labels(names::label::KYMA_NAME).metadata_only();
    watch::follow(Arc::clone(kcp), options, project, on_change).1
}

fn gateways(kcp: &Arc<Cluster>, stores: &Stores, namespace: &str) -> BoxFuture<'static, ()> {
    stores.expect(Table::Gateways, namespace);
    let (stores, place) = (stores.clone(), namespace.to_owned());
    let on_change = move |change: Change<GatewayEntry>| match change {
        Change::Set { key, new, .. } => stores.set_gateway(&key, Some(new)),
        Change::Gone { key, .. } => stores.set_gateway(&key, None),
        Change::Synced => stores.listed(Table::Gateways, &place),
    };
    let kind = Kind::new(Gvk::new("networking.istio.io", "v1beta1", "Gateway"), "gateways", true);
    let options = Options::all(kind).namespace(namespace);
    watch::follow(Arc::clone(kcp), options, |gateway| Some(gateway_entry(gateway)), on_change).1
}

fn ca_bundle(kcp: &Arc<Cluster>, stores: &Stores, namespace: &str) -> BoxFuture<'static, ()> {
    stores.expect(Table::CaBundle, namespace);
    let (stores, place) = (stores.clone(), namespace.to_owned());
    // Key of the CA in a Secret of kind TLS.
    const CA: &str = "ca.crt";
    let project = |secret: Secret| secret.data?.remove(CA).map(|bytes| Arc::<[u8]>::from(bytes.0));
    let on_change = move |change: Change<Arc<[u8]>>| match change {
        Change::Set { new, .. } => stores.set_ca_bundle(Some(Arc::clone(&new))),
        Change::Gone { .. } => stores.set_ca_bundle(None),
        Change::Synced => stores.listed(Table::CaBundle, &place),
    };
    let selector = format!("metadata.name={}", names::GATEWAY_SECRET);
    let options = Options::all(Kind::namespaced::<Secret>()).namespace(namespace).fields(&selector);
    watch::follow(Arc::clone(kcp), options, project, on_change).1
}

/// What Watchers and agents need of a Gateway: its labels and its servers.
fn gateway_entry(gateway: DynamicObject) -> GatewayEntry {
    let key = landscape::key(&gateway.metadata);
    let spec = &gateway.data["spec"];
    GatewayEntry { gateway: Gateway::new(key, spec), labels: gateway.metadata.labels.unwrap_or_default() }
}

/// Drops what nobody reads, and returns the key.
pub(super) fn slim(metadata: &mut ObjectMeta) -> Key {
    // Written by `kubectl apply`; as large as the object itself.
    const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";
    metadata.managed_fields = None;
    if let Some(annotations) = &mut metadata.annotations {
        annotations.remove(LAST_APPLIED);
    }
    landscape::key(metadata)
}
