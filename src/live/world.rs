//! The objects of the control plane, read once: the same objects that the daemon gets from its watches.
//!
//! Only the metadata of access Secrets is listed. The Secret with the CA that runtimes trust is read as in the daemon.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use base64::{Engine, engine::general_purpose::STANDARD};
use futures::{StreamExt, TryStreamExt, stream};
use kube::core::SelectorExt as _;
use serde::Deserialize;
use serde_json::Value;
use tidegate_cluster::{Cluster, Error, Kind};
use tidegate_core::{
    api::{GitSource, Kyma, Manifest, ModuleReleaseMeta, ModuleTemplate, Watcher, names},
    definition::{self, KcpLandscapes},
    intake::Id,
    landscape::{self, Landscape},
    name::Key,
    object::{Gvk, Object},
    plan::{reporting, selector},
    render::{self, RuntimeCrds},
};

/// The objects of the control plane.
pub(crate) struct World {
    pub(crate) kcp: Arc<Cluster>,
    /// The objects of the kinds that git declares.
    pub(crate) objects: BTreeMap<Id, Object>,
    /// Whether definitions of kcp landscapes are applied.
    pub(crate) kcp_landscapes: KcpLandscapes,
    /// Manifests.
    pub(crate) manifests: BTreeMap<Key, Object>,
    pub(crate) sources: Vec<GitSource>,
    /// Access Secrets by their Kyma, each with its resource version.
    pub(crate) access: BTreeMap<Key, Vec<(Key, String)>>,
    gateways: Vec<(reporting::Gateway, BTreeMap<String, String>)>,
    /// The CA that runtimes trust.
    pub(crate) trusted: Trusted,
    /// The CRDs that runtimes get.
    pub(crate) crds: RuntimeCrds,
}

/// The CA that the API servers of runtimes trust when they call the webhook.
#[derive(Clone)]
pub(crate) enum Trusted {
    /// There is no CA.
    Nothing,
    /// Base64 of PEM.
    Bundle(String),
    /// The caller may not read the Secret.
    NotKnown,
}

/// Key of the CA in a Secret of kind TLS.
const CA: &str = "ca.crt";
/// Concurrent lists.
const LISTS_AT_ONCE: usize = 8;

/// The kind of a definition, as the API server serves it.
pub(crate) fn served(kind: definition::Kind) -> Kind {
    match kind {
        definition::Kind::ModuleTemplate => Kind::namespaced::<ModuleTemplate>(),
        definition::Kind::ModuleReleaseMeta => Kind::namespaced::<ModuleReleaseMeta>(),
        definition::Kind::Watcher => Kind::namespaced::<Watcher>(),
        definition::Kind::Kyma => Kind::namespaced::<Kyma>(),
        definition::Kind::Setup(setup) => {
            let (group, version) = kind.api();
            Kind::new(Gvk::new(group, version, kind.as_str()), setup.plural(), true)
        }
    }
}

fn secrets() -> Kind {
    Kind::new(Gvk::new("", "v1", "Secret"), "secrets", true)
}

// === impl World ===

impl World {
    /// Reads the control plane: a list for each kind and namespace. Of kcp landscapes, only if the daemon reconciles
    /// them. Fails if a list fails.
    pub(crate) async fn read(
        kcp: Arc<Cluster>,
        namespaces: &[String],
        istio: &str,
        reconciles_kcp: bool,
    ) -> Result<World, Error> {
        let lists = |kind: Kind| {
            let kcp = &kcp;
            async move {
                let pages = stream::iter(namespaces.iter().map(String::as_str).map(Some))
                    .map(|namespace| kcp.list(&kind, namespace, None));
                pages.buffered(LISTS_AT_ONCE).try_concat().await
            }
        };
        let definitions = async {
            let mut objects = BTreeMap::new();
            let mut kcp_landscapes = if reconciles_kcp { KcpLandscapes::Applied } else { KcpLandscapes::Off };
            for kind in kcp_landscapes.kinds() {
                let listed: Vec<Object> = match (lists(served(kind)).await, kind) {
                    (Err(Error::NotServed { .. }), definition::Kind::Setup(kind)) => {
                        kcp_landscapes = KcpLandscapes::NotServed(kind);
                        break;
                    }
                    (listed, _) => listed?,
                };
                objects.extend(listed.into_iter().map(|object| ((kind, key(&object)), object)));
            }
            objects.retain(|(kind, _), _| kcp_landscapes.applies(*kind));
            Ok::<_, Error>((objects, kcp_landscapes))
        };
        let gateway = Kind::new(Gvk::new("networking.istio.io", "v1beta1", "Gateway"), "gateways", true);
        let ((objects, kcp_landscapes), manifests, sources, gateways, access, trusted, crds) = futures::try_join!(
            definitions,
            lists(Kind::namespaced::<Manifest>()),
            lists(Kind::namespaced::<GitSource>()),
            lists(gateway),
            access(&kcp, namespaces),
            trusted(&kcp, istio),
            crds(&kcp),
        )?;
        Ok(World {
            objects,
            kcp_landscapes,
            manifests: manifests.into_iter().map(|object| (key(&object), object)).collect(),
            sources: sources
                .into_iter()
                .filter_map(|source| serde_json::from_value(source.into_value()).ok())
                .collect(),
            access,
            gateways: gateways.iter().map(gateway_of).collect(),
            trusted,
            crds,
            kcp,
        })
    }

    /// The part of the control plane that the comparison of one runtime uses.
    pub(crate) fn of_runtime(kcp: Arc<Cluster>, manifests: Vec<Object>, trusted: Trusted, crds: RuntimeCrds) -> World {
        World {
            kcp,
            objects: BTreeMap::new(),
            kcp_landscapes: KcpLandscapes::Off,
            manifests: manifests.into_iter().map(|object| (key(&object), object)).collect(),
            sources: Vec::new(),
            access: BTreeMap::new(),
            gateways: Vec::new(),
            trusted,
            crds,
        }
    }

    /// Why a GitSource applies nothing; none if it does.
    pub(crate) fn idle(&self, source: &landscape::SourceName) -> Option<landscape::Idle> {
        let own = self.sources.iter().find(|other| landscape::key(&other.metadata) == *source.key());
        own.and_then(landscape::idle)
    }

    /// The Gateways that a Watcher selects, by their labels.
    pub(crate) fn gateways(&self, watcher: &Watcher) -> Vec<reporting::Gateway> {
        let selector = selector::parse(&watcher.spec.gateway.selector);
        let is_selected = |labels| selector.as_ref().is_some_and(|selector| selector.matches(labels));
        let matched = self.gateways.iter().filter(|(_, labels)| is_selected(labels));
        matched.map(|(gateway, _)| gateway.clone()).collect()
    }

    /// The catalog and the Watchers.
    pub(crate) fn catalog(&self) -> Landscape {
        let mut landscape = Landscape::default();
        for ((kind, key), object) in &self.objects {
            let (key, value) = (key.clone(), object.value());
            match kind {
                definition::Kind::ModuleTemplate => {
                    landscape.templates.extend(typed(value).map(|template| (key, Arc::new(template))));
                }
                definition::Kind::ModuleReleaseMeta => {
                    landscape.releases.extend(typed(value).map(|release| (key, Arc::new(release))));
                }
                definition::Kind::Watcher => {
                    landscape.watchers.extend(typed(value).map(|watcher| (key, Arc::new(watcher))));
                }
                definition::Kind::Kyma | definition::Kind::Setup(_) => {}
            }
        }
        landscape
    }

    /// The modules that runtimes have, by Kyma.
    pub(crate) fn installed(&self) -> BTreeMap<Key, BTreeSet<String>> {
        let mut installed: BTreeMap<Key, BTreeSet<String>> = BTreeMap::new();
        for manifest in self.manifests.values() {
            let labels = [names::label::KYMA_NAME, names::label::MODULE_NAME].map(|label| manifest.label(label));
            if let [Some(kyma), Some(module)] = labels {
                installed.entry(Key::new(manifest.namespace(), kyma)).or_default().insert(module.to_owned());
            }
        }
        installed
    }

    /// The Manifests of a Kyma.
    pub(crate) fn manifests_of<'a>(&'a self, kyma: &'a Key) -> impl Iterator<Item = &'a Object> {
        self.manifests.values().filter(move |manifest| {
            manifest.namespace() == kyma.namespace() && manifest.label(names::label::KYMA_NAME) == Some(kyma.name())
        })
    }
}

/// An object as a type, without fields that no plan uses.
pub(crate) fn typed<K: serde::de::DeserializeOwned>(value: &Value) -> Option<K> {
    let mut value = value.clone();
    if let Some(metadata) = value.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.shift_remove("managedFields");
    }
    serde_json::from_value(value).ok()
}

pub(crate) fn key(object: &Object) -> Key {
    Key::new(object.namespace(), object.name())
}

async fn access(kcp: &Cluster, namespaces: &[String]) -> Result<BTreeMap<Key, Vec<(Key, String)>>, Error> {
    let mut access: BTreeMap<Key, Vec<(Key, String)>> = BTreeMap::new();
    for namespace in namespaces {
        for metadata in kcp.list_metadata(&secrets(), Some(namespace), Some(names::label::KYMA_NAME)).await? {
            let Some(kyma) = metadata.label(names::label::KYMA_NAME) else { continue };
            let secret = (metadata.key(), metadata.resource_version.clone());
            access.entry(Key::new(namespace, kyma)).or_default().push(secret);
        }
    }
    Ok(access)
}

async fn trusted(kcp: &Cluster, istio: &str) -> Result<Trusted, Error> {
    #[derive(Deserialize)]
    struct Secret {
        #[serde(default)]
        data: BTreeMap<String, String>,
    }
    let key = Key::new(istio, names::GATEWAY_SECRET);
    let secret: Option<Secret> = match kcp.get_as(&secrets(), &key).await {
        Ok(secret) => secret,
        Err(Error::Forbidden { .. }) => return Ok(Trusted::NotKnown),
        Err(error) => return Err(error),
    };
    // Decoded and encoded again, as in the daemon, because it is compared as text.
    let bundle = secret.and_then(|mut secret| secret.data.remove(CA)).and_then(|data| STANDARD.decode(data).ok());
    Ok(bundle.map_or(Trusted::Nothing, |bundle| Trusted::Bundle(STANDARD.encode(bundle))))
}

/// The CRDs that runtimes get. Those that the caller may not read are the ones that Tidegate is built with.
async fn crds(kcp: &Cluster) -> Result<RuntimeCrds, Error> {
    let gvk = Gvk::new("apiextensions.k8s.io", "v1", "CustomResourceDefinition");
    let kind = Kind::new(gvk, "customresourcedefinitions", false);
    let mut crds = RuntimeCrds::default();
    for name in RuntimeCrds::names() {
        match kcp.get(&kind, &Key::new("", name)).await {
            Ok(Some(live)) => {
                if let Some(crd) = render::runtime_crd(live.value()) {
                    crds = crds.with(&Arc::new(crd));
                }
            }
            Ok(None) | Err(Error::Forbidden { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(crds)
}

/// The parts of a Gateway that Watchers need.
fn gateway_of(gateway: &Object) -> (reporting::Gateway, BTreeMap<String, String>) {
    let labels = gateway.value().pointer("/metadata/labels").cloned().unwrap_or_default();
    (
        reporting::Gateway::new(key(gateway), &gateway.value()["spec"]),
        serde_json::from_value(labels).unwrap_or_default(),
    )
}
