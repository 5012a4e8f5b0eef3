//! The watches that fill the [`Stores`].
//!
//! Each is a future that never ends; the daemon runs it as a task. Only metadata of Secrets is read, except for the
//! gateway's Secret, which contains the CA bundle of the runtimes.

use std::{collections::BTreeSet, sync::Arc};

use futures::future::BoxFuture;
use k8s_openapi::{api::core::v1::Secret, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use kube::{
    Resource,
    core::{DynamicObject, NamespaceResourceScope, PartialObjectMeta},
};
use serde::de::DeserializeOwned;

use super::{
    AccessSecret, GatewayEntry, Stored, Stores, Table, kyma_of,
    secret::{GatewaySecret, LeafSecret},
};
use tidegate_cluster::{
    Cluster, Kind,
    follower::{self, Change, Options},
};
use tidegate_core::{
    api::{GitSource, Kyma, Manifest, ModuleReleaseMeta, ModuleTemplate, Watcher, names},
    landscape,
    name::Key,
    object::Gvk,
    plan::{certificate, reporting::Gateway},
};

use crate::gateway::{
    certificates::Certificates,
    pki::{self, object::Live},
};

/// All watches: custom resources, access Secrets, Gateways and VirtualServices in each of `namespaces`, Gateways in the
/// namespace of the agents' gateway, and certificates. Nothing is requested before they are polled.
pub fn feed(
    kcp: &Arc<Cluster>,
    stores: &Stores,
    namespaces: &BTreeSet<String>,
    gateway_namespace: &str,
    issuing: &Arc<Certificates>,
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
        watches.push(virtual_services(kcp, stores, namespace));
    }
    if !namespaces.contains(gateway_namespace) {
        watches.push(gateways(kcp, stores, gateway_namespace));
    }
    let secrets = issuing.rules.namespace.as_str();
    watches.push(gateway_secret(kcp, stores, secrets));
    // Without agents, certificates are not needed, and neither is permission to read them.
    if issuing.is_wanted {
        stores.look_after(Key::new(secrets, names::GATEWAY_SECRET));
        watches.push(authority(kcp, stores, secrets));
        watches.push(certificate_secrets(kcp, stores, secrets));
        watches.push(certificates(kcp, stores, issuing));
    }
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
    follower::follow(Arc::clone(kcp), options, project, on_change).1
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
    follower::follow(Arc::clone(kcp), options, project, on_change).1
}

/// Watches for edits of Watchers' VirtualServices by others. Start-up does not wait for the list, because only changes
/// matter.
fn virtual_services(kcp: &Arc<Cluster>, stores: &Stores, namespace: &str) -> BoxFuture<'static, ()> {
    let stores = stores.clone();
    let project = |found: PartialObjectMeta<DynamicObject>| {
        Some((found.metadata.uid, found.metadata.generation, found.metadata.deletion_timestamp.is_some()))
    };
    let on_change = move |change: Change<_>| match change {
        Change::Set { key, .. } | Change::Gone { key, .. } => stores.virtual_service_changed(&key),
        Change::Synced => {}
    };
    let kind = Kind::new(Gvk::new("networking.istio.io", "v1beta1", "VirtualService"), "virtualservices", true);
    let options = Options::all(kind).namespace(namespace).metadata_only();
    follower::follow(Arc::clone(kcp), options, project, on_change).1
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
    follower::follow(Arc::clone(kcp), options, |gateway| Some(gateway_entry(gateway)), on_change).1
}

fn gateway_secret(kcp: &Arc<Cluster>, stores: &Stores, namespace: &str) -> BoxFuture<'static, ()> {
    stores.expect(Table::GatewaySecret, namespace);
    let (stores, place) = (stores.clone(), namespace.to_owned());
    let on_change = move |change: Change<GatewaySecret>| match change {
        Change::Set { new, .. } => stores.set_gateway_secret(Some(new)),
        Change::Gone { .. } => stores.set_gateway_secret(None),
        Change::Synced => stores.listed(Table::GatewaySecret, &place),
    };
    let options = named_secret(namespace, names::GATEWAY_SECRET);
    follower::follow(Arc::clone(kcp), options, |secret| Some(GatewaySecret::from_secret(secret)), on_change).1
}

fn authority(kcp: &Arc<Cluster>, stores: &Stores, namespace: &str) -> BoxFuture<'static, ()> {
    stores.expect(Table::Authority, namespace);
    let (stores, place) = (stores.clone(), namespace.to_owned());
    let on_change = move |change: Change<String>| match change {
        Change::Set { new, .. } => stores.set_authority(Some(String::clone(&new))),
        Change::Gone { .. } => stores.set_authority(None),
        Change::Synced => stores.listed(Table::Authority, &place),
    };
    let options = named_secret(namespace, names::AUTHORITY_SECRET).metadata_only();
    let project = |secret: PartialObjectMeta<Secret>| secret.metadata.resource_version;
    follower::follow(Arc::clone(kcp), options, project, on_change).1
}

fn certificate_secrets(kcp: &Arc<Cluster>, stores: &Stores, namespace: &str) -> BoxFuture<'static, ()> {
    stores.expect(Table::CertificateSecrets, namespace);
    let (stores, place) = (stores.clone(), namespace.to_owned());
    let on_change = move |change: Change<LeafSecret>| match change {
        Change::Set { key, new, .. } => stores.set_certificate_secret(key.name(), Some(new)),
        Change::Gone { key, .. } => stores.set_certificate_secret(key.name(), None),
        Change::Synced => stores.listed(Table::CertificateSecrets, &place),
    };
    let labels = format!("{}={}", names::label::PURPOSE, names::CERTIFICATE_PURPOSE);
    let options = Options::all(Kind::namespaced::<Secret>()).namespace(namespace).labels(&labels).metadata_only();
    follower::follow(Arc::clone(kcp), options, |secret| Some(LeafSecret::from_metadata(secret)), on_change).1
}

/// Watches the agent's image pull Secret. Its content is read when it is written to a runtime.
pub fn pull_secret(kcp: &Arc<Cluster>, stores: &Stores, key: &Key) -> BoxFuture<'static, ()> {
    stores.expect(Table::PullSecret, key.namespace());
    let (stores, place) = (stores.clone(), key.namespace().to_owned());
    let on_change = move |change: Change<String>| match change {
        Change::Set { new, .. } => stores.set_pull_secret(Some(String::clone(&new))),
        Change::Gone { .. } => stores.set_pull_secret(None),
        Change::Synced => stores.listed(Table::PullSecret, &place),
    };
    let options = named_secret(key.namespace(), key.name()).metadata_only();
    let project = |secret: PartialObjectMeta<Secret>| {
        Some(format!("{}/{}", secret.metadata.uid.unwrap_or_default(), secret.metadata.resource_version?))
    };
    follower::follow(Arc::clone(kcp), options, project, on_change).1
}

/// Watches the certificates. Determines the issuer first, because it defines their kind.
fn certificates(kcp: &Arc<Cluster>, stores: &Stores, certificates: &Arc<Certificates>) -> BoxFuture<'static, ()> {
    let namespace = certificates.rules.namespace.clone();
    stores.expect(Table::Certificates, &namespace);
    let (kcp, stores, certificates) = (Arc::clone(kcp), stores.clone(), Arc::clone(certificates));
    Box::pin(async move {
        let backend = certificates.find_backend(&kcp).await;
        let Some((gvk, plural)) = pki::object::kind(backend) else {
            stores.listed(Table::Certificates, &namespace);
            return std::future::pending().await;
        };
        let options = Options::all(Kind::new(gvk, plural, true)).namespace(&namespace);
        let project = move |object: DynamicObject| {
            let name = object.metadata.name.clone()?;
            certificate::kyma_name(&name)?;
            Some(pki::object::read(backend, &serde_json::to_value(object).ok()?))
        };
        let on_change = move |change: Change<Live>| match change {
            Change::Set { key, new, .. } => stores.set_certificate(key.name(), Some(new)),
            Change::Gone { key, .. } => stores.set_certificate(key.name(), None),
            Change::Synced => stores.listed(Table::Certificates, &namespace),
        };
        follower::follow(kcp, options, project, on_change).1.await;
    })
}

/// Selects one Secret.
fn named_secret(namespace: &str, name: &str) -> Options {
    Options::all(Kind::namespaced::<Secret>()).namespace(namespace).fields(&format!("metadata.name={name}"))
}

/// The parts of a Gateway that Watchers and agents need: its labels and servers.
fn gateway_entry(gateway: DynamicObject) -> GatewayEntry {
    let key = landscape::key(&gateway.metadata);
    let spec = &gateway.data["spec"];
    GatewayEntry { gateway: Gateway::new(key, spec), labels: gateway.metadata.labels.unwrap_or_default() }
}

/// Drops unused metadata and returns the key.
pub(super) fn slim(metadata: &mut ObjectMeta) -> Key {
    // Written by `kubectl apply`; as large as the object itself.
    const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";
    metadata.managed_fields = None;
    if let Some(annotations) = &mut metadata.annotations {
        annotations.remove(LAST_APPLIED);
    }
    landscape::key(metadata)
}
