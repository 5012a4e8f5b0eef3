//! The watches that fill the [`Stores`].
//!
//! Each is a future that never ends; the daemon runs it as a task. Only metadata of Secrets is read, except for the
//! gateway's Secret, which contains the CA bundle of the runtimes.

use std::{collections::BTreeSet, sync::Arc};

use futures::future::BoxFuture;
use k8s_openapi::{
    api::{coordination::v1::Lease, core::v1::Secret},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::{
    Resource,
    core::{DynamicObject, NamespaceResourceScope, PartialObjectMeta},
};
use serde::de::DeserializeOwned;

use super::{
    AccessSecret, GatewayEntry, Stored, Stores, Table, kyma_of,
    secret::{GatewaySecret, LeafSecret, PullSecret, SourceSecret},
    unreadable::UnreadableObject,
};
use tidegate_cluster::{
    Cluster, Kind,
    follower::{self, Change, Options},
};
use tidegate_core::{
    api::{
        GitSource, Kyma, Manifest, ModuleReleaseMeta, ModuleTemplate, Watcher, names,
        setup::{self, CacheServer, FrontProxy, Kubeconfig, RootShard, Shard, VirtualWorkspace},
    },
    landscape,
    name::Key,
    object::Gvk,
    plan::{
        certificate,
        reporting::Gateway,
        setup::{Containers, DefaultImage},
    },
    render::{self, RuntimeCrds},
};
use tokio::time::Instant;

use crate::{
    components::docker_config,
    controller::{Context, events::Recorder},
    gateway::{certificates::Certificates, pki},
    setup::{
        object::{LiveObject, ObjectKind},
        operator,
    },
};

/// A watch that never ends. Nothing is requested before it is polled.
type Watch = BoxFuture<'static, ()>;

/// The cluster that is watched, and the stores that are filled.
struct Feed<'a> {
    kcp: &'a Arc<Cluster>,
    stores: &'a Stores,
    /// Where unreadable objects are named.
    events: &'a Recorder,
}

/// All watches: the CRDs that runtimes get; custom resources, access Secrets, Gateways and VirtualServices in each of
/// `namespaces`; Gateways in the namespace of the agents' gateway; and certificates. Nothing is requested before they
/// are polled.
pub fn feed(
    kcp: &Arc<Cluster>,
    stores: &Stores,
    events: &Recorder,
    namespaces: &BTreeSet<String>,
    gateway_namespace: &str,
    issuing: &Arc<Certificates>,
) -> Vec<Watch> {
    let feed = Feed { kcp, stores, events };
    let mut watches = Vec::new();
    for namespace in namespaces {
        watches.extend([
            feed.custom::<GitSource>(namespace),
            feed.custom::<Kyma>(namespace),
            feed.custom::<Manifest>(namespace),
            feed.custom::<ModuleTemplate>(namespace),
            feed.custom::<ModuleReleaseMeta>(namespace),
            feed.custom::<Watcher>(namespace),
            feed.access(namespace),
            feed.gateways(namespace),
            feed.virtual_services(namespace),
        ]);
    }
    watches.extend(RuntimeCrds::names().map(|name| feed.runtime_crd(name)));
    if !namespaces.contains(gateway_namespace) {
        watches.push(feed.gateways(gateway_namespace));
    }
    let secrets = issuing.rules.namespace.as_str();
    watches.push(feed.gateway_secret(secrets));
    // Without agents, certificates are not needed, and neither is permission to read them.
    if issuing.is_wanted {
        stores.look_after(Key::new(secrets, names::GATEWAY_SECRET));
        watches.extend([feed.authority(secrets), feed.certificate_secrets(secrets), feed.certificates(issuing)]);
    }
    watches
}

/// Watches the image pull Secret of runtimes. Its data are read again when they are written to a runtime.
pub fn pull_secret(kcp: &Arc<Cluster>, stores: &Stores, events: &Recorder, key: &Key) -> Watch {
    Feed { kcp, stores, events }.watch(
        Table::PullSecret,
        named_secret(key.namespace(), key.name()),
        PullSecret::from_secret,
        |stores, _, secret| stores.set_pull_secret(secret),
    )
}

/// Watches the Secrets whose data Secrets of modules get. Their content is read when it is written to a runtime.
pub fn source_secrets(kcp: &Arc<Cluster>, stores: &Stores, events: &Recorder) -> Watch {
    let secrets = Options::all(Kind::namespaced::<Secret>()).namespace(names::KCP_NAMESPACE);
    Feed { kcp, stores, events }.watch(
        Table::SourceSecrets,
        secrets.labels(names::label::MODULE_NAME).metadata_only(),
        SourceSecret::from_metadata,
        |stores, key, secret| stores.set_source_secret(key.name(), secret),
    )
}

/// Watches a Secret with the credentials of an OCI registry. A rotation takes effect at once.
pub fn registry_secret(context: &Arc<Context>, key: &Key) -> Watch {
    let Context { kcp, stores, events, .. } = &**context;
    let (shared, secret) = (Arc::clone(context), key.clone());
    Feed { kcp, stores, events }.watch(
        Table::RegistrySecret,
        named_secret(key.namespace(), key.name()),
        |secret| Some(docker_config(secret)),
        move |_, _, found| shared.components.set_secret(&secret, found.as_deref()),
    )
}

/// Watches the resources of kcp landscapes and their objects, and all Secrets and ConfigMaps of the namespaces without
/// their content: a resource may name any of them.
///
/// `image` is the one of resources that name none.
pub fn setup(
    kcp: &Arc<Cluster>,
    stores: &Stores,
    events: &Recorder,
    namespaces: &BTreeSet<String>,
    image: &DefaultImage,
) -> Vec<Watch> {
    let feed = Feed { kcp, stores, events };
    stores.watch_setup();
    let mut watches = vec![feed.kcp_operator()];
    for namespace in namespaces {
        watches.extend([
            feed.resource::<CacheServer>(setup::Kind::CacheServer, namespace, image),
            feed.resource::<RootShard>(setup::Kind::RootShard, namespace, image),
            feed.resource::<FrontProxy>(setup::Kind::FrontProxy, namespace, image),
            feed.resource::<Shard>(setup::Kind::Shard, namespace, image),
            feed.resource::<VirtualWorkspace>(setup::Kind::VirtualWorkspace, namespace, image),
            feed.resource::<Kubeconfig>(setup::Kind::Kubeconfig, namespace, image),
        ]);
        watches.extend(ObjectKind::ALL.map(|kind| feed.setup_objects(kind, namespace)));
    }
    watches
}

// === impl Feed ===

impl Feed<'_> {
    /// Keeps a table up to date. Start-up waits until it is listed.
    ///
    /// `project` selects what to keep of an object, `set` stores it; `None` if it is gone.
    fn watch<K, P>(
        &self,
        table: Table,
        options: Options,
        project: impl Fn(K) -> Option<P> + Send + 'static,
        set: impl Fn(&Stores, &Key, Option<Arc<P>>) + Send + 'static,
    ) -> Watch
    where
        K: Resource + DeserializeOwned + Send + 'static,
        P: PartialEq + Send + Sync + 'static,
    {
        self.stores.expect(table, options.namespace.as_deref().unwrap_or_default());
        self.watch_expected(table, options, project, set)
    }

    /// The same for a table that start-up already waits for.
    fn watch_expected<K, P>(
        &self,
        table: Table,
        options: Options,
        project: impl Fn(K) -> Option<P> + Send + 'static,
        set: impl Fn(&Stores, &Key, Option<Arc<P>>) + Send + 'static,
    ) -> Watch
    where
        K: Resource + DeserializeOwned + Send + 'static,
        P: PartialEq + Send + Sync + 'static,
    {
        let namespace = options.namespace.clone().unwrap_or_default();
        let (stores, events) = (self.stores.clone(), self.events.clone());
        let on_change = move |change: Change<P>| match change {
            Change::Set { key, new, .. } => set(&stores, &key, Some(new)),
            Change::Gone { key, .. } => set(&stores, &key, None),
            Change::Unreadable { key, found } => {
                let before = stores.unreadable_object(table, &key).map(|before| before.object.problem.clone());
                stores.set_unreadable(table, &key, Some(Arc::clone(&found)));
                // A change beside the field is not news.
                if before.as_ref() != Some(&found.problem) {
                    stores.report_unreadable(&events, &UnreadableObject { table, object: found });
                }
            }
            Change::Cleared { key } => stores.set_unreadable(table, &key, None),
            Change::NotServed => stores.set_served(table, &namespace, false),
            Change::Served => stores.set_served(table, &namespace, true),
            Change::Forbidden { why } => stores.set_denied(table, &namespace, &why),
            // What is listed stays listed.
            Change::Permitted => {}
            Change::Synced => stores.listed(table, &namespace),
        };
        follower::follow(Arc::clone(self.kcp), options, project, on_change)
    }

    fn custom<K>(&self, namespace: &str) -> Watch
    where
        K: Stored + Resource<DynamicType = (), Scope = NamespaceResourceScope> + DeserializeOwned + PartialEq,
    {
        let project = |mut object: K| {
            slim(object.meta_mut());
            Some(object)
        };
        self.watch(K::TABLE, Options::all(Kind::namespaced::<K>()).namespace(namespace), project, Stores::set)
    }

    fn resource<K>(&self, kind: setup::Kind, namespace: &str, image: &DefaultImage) -> Watch
    where
        K: Stored
            + Containers
            + Resource<DynamicType = (), Scope = NamespaceResourceScope>
            + DeserializeOwned
            + PartialEq,
    {
        let image = image.clone();
        let project = move |mut object: K| {
            slim(object.meta_mut());
            image.complete(&mut object);
            Some(object)
        };
        let options = Options::all(Kind::namespaced::<K>()).namespace(namespace);
        self.watch(Table::Setup(kind), options, project, Stores::set)
    }

    /// Watches the Lease of kcp-operator, which may be in any namespace.
    fn kcp_operator(&self) -> Watch {
        let leases = Options::all(Kind::namespaced::<Lease>());
        self.watch(
            Table::KcpOperator,
            leases.fields(&format!("metadata.name={}", names::KCP_OPERATOR_LEASE)),
            |lease| operator::held(&lease),
            |stores, key, held| stores.set_kcp_operator(key, held, Instant::now()),
        )
    }

    fn setup_objects(&self, kind: ObjectKind, namespace: &str) -> Watch {
        let all = Options::all(kind.kind()).namespace(namespace);
        let labelled = || all.clone().labels(names::label::SETUP);
        let set = move |stores: &Stores, key: &Key, found| stores.set_setup_object((kind, key), found);
        let from_metadata = move |found| Some(LiveObject::from_metadata(kind, found).at_home());
        let from_object = move |found| Some(LiveObject::from_object(kind, found).at_home());
        let table = Table::SetupObjects(kind);
        match kind {
            ObjectKind::Secret | ObjectKind::ConfigMap => self.watch(table, all.metadata_only(), from_metadata, set),
            ObjectKind::Service | ObjectKind::PodDisruptionBudget => {
                self.watch(table, labelled().metadata_only(), from_metadata, set)
            }
            // Others wait for what their status says.
            ObjectKind::Issuer | ObjectKind::Certificate | ObjectKind::Deployment => {
                self.watch(table, labelled(), from_object, set)
            }
        }
    }

    fn access(&self, namespace: &str) -> Watch {
        let secrets = Options::all(Kind::namespaced::<Secret>()).namespace(namespace);
        let project = |secret: PartialObjectMeta<Secret>| {
            let resource_version = secret.metadata.resource_version.clone()?;
            Some(AccessSecret { kyma: kyma_of(&secret.metadata)?, resource_version })
        };
        self.watch(Table::Access, secrets.labels(names::label::KYMA_NAME).metadata_only(), project, Stores::set_access)
    }

    fn gateways(&self, namespace: &str) -> Watch {
        let options = Options::all(istio("Gateway", "gateways")).namespace(namespace);
        self.watch(Table::Gateways, options, |gateway| Some(gateway_entry(gateway)), Stores::set_gateway)
    }

    /// Watches for edits of Watchers' VirtualServices by others. There is no table, because only changes matter.
    fn virtual_services(&self, namespace: &str) -> Watch {
        let stores = self.stores.clone();
        let project = |found: PartialObjectMeta<DynamicObject>| {
            Some((found.metadata.uid, found.metadata.generation, found.metadata.deletion_timestamp.is_some()))
        };
        let on_change = move |change: Change<_>| match change {
            Change::Set { key, .. } | Change::Gone { key, .. } | Change::Unreadable { key, .. } => {
                stores.virtual_service_changed(&key);
            }
            Change::Cleared { .. }
            | Change::NotServed
            | Change::Served
            | Change::Forbidden { .. }
            | Change::Permitted
            | Change::Synced => {}
        };
        let options = Options::all(istio("VirtualService", "virtualservices")).namespace(namespace).metadata_only();
        follower::follow(Arc::clone(self.kcp), options, project, on_change)
    }

    /// Watches a CRD that runtimes get. Each has a watch of its own, because the daemon may read no others.
    fn runtime_crd(&self, name: &str) -> Watch {
        let crds = Options::all(Kind::new(
            Gvk::new("apiextensions.k8s.io", "v1", "CustomResourceDefinition"),
            "customresourcedefinitions",
            false,
        ));
        self.watch(
            Table::RuntimeCrds,
            crds.fields(&format!("metadata.name={name}")),
            |crd: DynamicObject| render::runtime_crd(&serde_json::to_value(crd).ok()?),
            |stores, _, crd| {
                if let Some(crd) = crd {
                    stores.set_runtime_crd(&crd);
                }
            },
        )
    }

    fn gateway_secret(&self, namespace: &str) -> Watch {
        self.watch(
            Table::GatewaySecret,
            named_secret(namespace, names::GATEWAY_SECRET),
            |secret| Some(GatewaySecret::from_secret(secret)),
            |stores, _, secret| stores.set_gateway_secret(secret),
        )
    }

    fn authority(&self, namespace: &str) -> Watch {
        self.watch(
            Table::Authority,
            named_secret(namespace, names::AUTHORITY_SECRET).metadata_only(),
            |secret: PartialObjectMeta<Secret>| secret.metadata.resource_version,
            |stores, _, version| stores.set_authority(version.map(|version| String::clone(&version))),
        )
    }

    fn certificate_secrets(&self, namespace: &str) -> Watch {
        let labels = format!("{}={}", names::label::PURPOSE, names::CERTIFICATE_PURPOSE);
        self.watch(
            Table::CertificateSecrets,
            Options::all(Kind::namespaced::<Secret>()).namespace(namespace).labels(&labels).metadata_only(),
            |secret| Some(LeafSecret::from_metadata(secret)),
            |stores, key, secret| stores.set_certificate_secret(key.name(), secret),
        )
    }

    /// Watches the certificates. Determines the issuer first, because it defines their kind.
    fn certificates(&self, certificates: &Arc<Certificates>) -> Watch {
        let namespace = certificates.rules.namespace.clone();
        self.stores.expect(Table::Certificates, &namespace);
        let (kcp, stores, certificates) = (Arc::clone(self.kcp), self.stores.clone(), Arc::clone(certificates));
        let events = self.events.clone();
        Box::pin(async move {
            let denied = |why: &str| stores.set_denied(Table::Certificates, &namespace, why);
            let backend = certificates.find_backend(&kcp, denied).await;
            let Some((gvk, plural)) = pki::object::kind(backend) else {
                stores.listed(Table::Certificates, &namespace);
                return std::future::pending().await;
            };
            let project = move |object: DynamicObject| {
                let name = object.metadata.name.clone()?;
                certificate::kyma_name(&name)?;
                Some(pki::object::read(backend, &serde_json::to_value(object).ok()?))
            };
            let options = Options::all(Kind::new(gvk, plural, true)).namespace(&namespace);
            let set = |stores: &Stores, key: &Key, live| stores.set_certificate(key.name(), live);
            Feed { kcp: &kcp, stores: &stores, events: &events }
                .watch_expected(Table::Certificates, options, project, set)
                .await;
        })
    }
}

fn istio(kind: &str, plural: &str) -> Kind {
    Kind::new(Gvk::new("networking.istio.io", "v1beta1", kind), plural, true)
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
