//! The objects in KCP that a source declares or owns, as the watches show them; and the field managers of objects
//! without its ownership label, which the watches do not show.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use futures::{StreamExt, stream};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

use super::{
    SourceContext, SourcePass,
    known_objects::{KnownObjects, Seen},
};
use tidegate_cluster::{self as cluster, Cluster};
use tidegate_core::{
    api::{
        Kyma, ModuleReleaseMeta, ModuleTemplate, Watcher,
        names::{annotation, label},
        setup,
    },
    changes,
    definition::{Definition, KcpLandscapes, Kind},
    intake::{Id, Live},
    landscape::{self, SourceName, setup::Resources},
    name::Key,
    object::Gvk,
};

use crate::{source::registry::Loaded, stores::Table};

/// Maximum number of single reads. More objects are read by one list of their kind and namespace.
const LOOK_UPS_MAX: usize = 8;

/// The objects in KCP as the watches show them.
#[derive(Default)]
pub(super) struct Surveyed {
    /// Every object that the source declares, also with an invalid definition, or that has its ownership label.
    pub(super) live: BTreeMap<Id, Live>,
    /// Whether a watch is behind: then some objects are as the API server answered our own writes.
    pub(super) behind: bool,
    /// Objects of the source that cannot be read: whether they are as declared is not known.
    uncompared: BTreeMap<Id, ObjectMeta>,
}

/// Every object in KCP that the source declares, or that has its ownership label. `is_asked` says whether a user has
/// requested this pass: then the annotations with the paths of definitions are compared as well.
pub(super) fn live(
    pass: &SourcePass<'_>,
    name: &SourceName,
    loaded: &Loaded,
    known: &mut KnownObjects,
    is_asked: bool,
) -> Surveyed {
    let label = name.label_value();
    let mut survey = Survey { pass, name, label, loaded, known, is_asked, found: Surveyed::default() };
    let landscape = pass.ctx.stores.landscape();
    landscape.templates.values().for_each(|object| survey.take(Kind::ModuleTemplate, &object.metadata, &**object));
    landscape.releases.values().for_each(|object| survey.take(Kind::ModuleReleaseMeta, &object.metadata, &**object));
    landscape.watchers.values().for_each(|object| survey.take(Kind::Watcher, &object.metadata, &**object));
    pass.ctx.stores.kymas().iter().for_each(|object| survey.take(Kind::Kyma, &object.metadata, &**object));
    // If their definitions are not applied, what is there is neither compared nor pruned.
    if loaded.kcp_landscapes == KcpLandscapes::Applied {
        survey.take_setup(&pass.ctx.stores.setup());
    }
    for found in pass.ctx.stores.unreadable() {
        if let Some(kind) = kind_of(found.table).filter(|kind| loaded.kcp_landscapes.applies(*kind)) {
            survey.take_unreadable(kind, &found.object.metadata);
        }
    }
    survey.add_unseen();
    survey.found
}

/// Compares the objects that cannot be read with their definitions, as the API server has them: a field of git that
/// another client has changed may be why. Other fields stay. Fails if a request fails.
pub(super) async fn compare_unreadable(
    pass: &SourcePass<'_>,
    name: &SourceName,
    loaded: &Loaded,
    found: &mut Surveyed,
    known: &mut KnownObjects,
) -> Result<(), cluster::Error> {
    let uncompared = std::mem::take(&mut found.uncompared);
    let kcp = pass.ctx.kcp;
    let ids: Vec<Id> = uncompared.keys().cloned().collect();
    let results: Vec<_> = stream::iter(ids)
        .map(|id| async move {
            match kcp.get(&served(id.0), &id.1).await {
                // An object without valid metadata cannot be compared.
                Ok(None) | Err(cluster::Error::Answer { .. }) => Ok(None),
                Ok(Some(object)) => Ok(Some((id, object))),
                Err(error) => Err(error),
            }
        })
        .buffer_unordered(LOOK_UPS_MAX)
        .collect()
        .await;
    for (id, object) in results.into_iter().filter_map(Result::transpose).collect::<Result<Vec<_>, _>>()? {
        let (Some(declared), Some(definition)) = (loaded.declared.get(&id), loaded.definitions.good.get(&id)) else {
            continue;
        };
        let is_as_declared = changes::covers(landscape::expected(definition, name).value(), object.value());
        if let Some(live) = found.live.get_mut(&id) {
            live.drifted = !is_as_declared;
        }
        if is_as_declared {
            known.verified(&id, &declared.digest, &uncompared[&id]);
        }
    }
    Ok(())
}

/// The kind of a definition at the API server.
pub(super) fn served(kind: Kind) -> cluster::Kind {
    match kind {
        Kind::ModuleTemplate => cluster::Kind::namespaced::<ModuleTemplate>(),
        Kind::ModuleReleaseMeta => cluster::Kind::namespaced::<ModuleReleaseMeta>(),
        Kind::Watcher => cluster::Kind::namespaced::<Watcher>(),
        Kind::Kyma => cluster::Kind::namespaced::<Kyma>(),
        Kind::Setup(setup) => {
            let (group, version) = kind.api();
            cluster::Kind::new(Gvk::new(group, version, kind.as_str()), setup.plural(), true)
        }
    }
}

/// The kind of definitions that a table has.
fn kind_of(table: Table) -> Option<Kind> {
    match table {
        Table::Kymas => Some(Kind::Kyma),
        Table::Templates => Some(Kind::ModuleTemplate),
        Table::Releases => Some(Kind::ModuleReleaseMeta),
        Table::Watchers => Some(Kind::Watcher),
        Table::Setup(kind) => Some(Kind::Setup(kind)),
        Table::Sources
        | Table::Manifests
        | Table::Access
        | Table::Gateways
        | Table::GatewaySecret
        | Table::Authority
        | Table::Certificates
        | Table::CertificateSecrets
        | Table::PullSecret
        | Table::SourceSecrets
        | Table::RuntimeCrds
        | Table::RegistrySecret
        | Table::SetupObjects(_)
        | Table::KcpOperator => None,
    }
}

/// Reads the field managers of objects without our ownership label. Fails if a request fails.
pub(super) async fn look_up(
    ctx: SourceContext<'_>,
    ids: &BTreeSet<Id>,
    known: &mut KnownObjects,
) -> Result<(), cluster::Error> {
    for kind in Kind::ALL {
        let wanted: Vec<&Id> = ids.iter().filter(|id| id.0 == kind).collect();
        let found = if wanted.len() <= LOOK_UPS_MAX {
            one_by_one(ctx.kcp, kind, &wanted).await?
        } else {
            // The daemon has permissions only in the namespaces of definitions.
            let namespaces: BTreeSet<&str> = wanted.iter().map(|id| id.1.namespace()).collect();
            let mut found = Vec::new();
            for namespace in namespaces {
                found.extend(ctx.kcp.list_metadata(&served(kind), Some(namespace), None).await?);
            }
            found
        };
        for metadata in found {
            let id = (kind, metadata.key());
            if ids.contains(&id) {
                known.set_managers(&id, &metadata);
            }
        }
    }
    Ok(())
}

async fn one_by_one(kcp: &Cluster, kind: Kind, ids: &[&Id]) -> Result<Vec<cluster::Metadata>, cluster::Error> {
    let served = &served(kind);
    // By value: a closure that borrows its argument makes a future that cannot be spawned.
    let keys: Vec<Key> = ids.iter().map(|id| id.1.clone()).collect();
    let results: Vec<_> = stream::iter(keys)
        .map(|key| async move { kcp.get_metadata(served, &key).await })
        .buffer_unordered(LOOK_UPS_MAX)
        .collect()
        .await;
    results.into_iter().filter_map(Result::transpose).collect()
}

struct Survey<'a> {
    pass: &'a SourcePass<'a>,
    name: &'a SourceName,
    label: String,
    loaded: &'a Loaded,
    known: &'a mut KnownObjects,
    is_asked: bool,
    found: Surveyed,
}

// === impl Survey ===

impl Survey<'_> {
    fn take_setup(&mut self, resources: &Resources) {
        use setup::Kind::{CacheServer, FrontProxy, Kubeconfig, RootShard, Shard, VirtualWorkspace};
        let Resources { root_shards, shards, front_proxies, cache_servers, virtual_workspaces, kubeconfigs } =
            resources;
        root_shards.values().for_each(|found| self.take(Kind::Setup(RootShard), &found.metadata, &**found));
        shards.values().for_each(|found| self.take(Kind::Setup(Shard), &found.metadata, &**found));
        front_proxies.values().for_each(|found| self.take(Kind::Setup(FrontProxy), &found.metadata, &**found));
        cache_servers.values().for_each(|found| self.take(Kind::Setup(CacheServer), &found.metadata, &**found));
        virtual_workspaces
            .values()
            .for_each(|found| self.take(Kind::Setup(VirtualWorkspace), &found.metadata, &**found));
        kubeconfigs.values().for_each(|found| self.take(Kind::Setup(Kubeconfig), &found.metadata, &**found));
    }

    fn take<K: Serialize + DeserializeOwned>(&mut self, kind: Kind, metadata: &ObjectMeta, object: &K) {
        let id = (kind, landscape::key(metadata));
        let declared = self.loaded.declared.get(&id);
        let ours = landscape::label(metadata, label::SOURCE) == Some(self.label.as_str());
        if declared.is_none() && !ours && !self.loaded.broken.contains_key(&id) {
            return;
        }
        let mut live = self.live(&id, metadata, ours);
        if let Some(definition) = self.loaded.definitions.good.get(&id).filter(|_| live.left) {
            live.same_content = is_as_left::<K>(definition, self.name, metadata, object);
        }
        if let Some(declared) = declared {
            let path = landscape::annotation(metadata, annotation::PATH);
            live.displaced = self.is_asked && path != Some(&*declared.place.path);
            match self.known.seen(&id, &declared.digest, Some(metadata), self.pass.now) {
                Seen::Ahead => live = self.as_applied(&id, live),
                Seen::Verified => {}
                Seen::Unknown => {
                    let equal = ours && live.digest.as_ref() == Some(&declared.digest);
                    if let Some(definition) = self.loaded.definitions.good.get(&id).filter(|_| equal) {
                        live.drifted = !is_as_declared::<K>(definition, self.name, object);
                        if !live.drifted {
                            self.known.verified(&id, &declared.digest, metadata);
                        }
                    }
                }
            }
        }
        self.found.live.insert(id, live);
    }

    /// What the metadata of an object says.
    fn live(&self, id: &Id, metadata: &ObjectMeta, ours: bool) -> Live {
        let live = Live::from_metadata(metadata, self.known.managers(id, metadata));
        let definition = self.loaded.definitions.good.get(id).filter(|_| !ours && live.source.is_some());
        let same_content = definition.is_some_and(|definition| landscape::has_content(definition, metadata));
        Live { same_content, left: landscape::is_left_by(self.name, metadata), ..live }
    }

    /// An object that cannot be read is present: it is not created a second time, and not pruned.
    fn take_unreadable(&mut self, kind: Kind, metadata: &ObjectMeta) {
        let id = (kind, landscape::key(metadata));
        let declared = self.loaded.declared.get(&id);
        let ours = landscape::label(metadata, label::SOURCE) == Some(self.label.as_str());
        if declared.is_none() && !ours && !self.loaded.broken.contains_key(&id) {
            return;
        }
        let live = Live { unreadable: true, ..self.live(&id, metadata, ours) };
        let is_applied = declared.is_some_and(|declared| live.digest.as_ref() == Some(&declared.digest));
        let seen = declared.map(|declared| self.known.seen(&id, &declared.digest, Some(metadata), self.pass.now));
        let live = match seen {
            Some(Seen::Ahead) => self.as_applied(&id, live),
            Some(Seen::Unknown) if ours && is_applied => {
                self.found.uncompared.insert(id.clone(), metadata.clone());
                live
            }
            Some(Seen::Unknown | Seen::Verified) | None => live,
        };
        self.found.live.insert(id, live);
    }

    /// Adds the objects that we created a moment ago and that the watch does not show yet.
    fn add_unseen(&mut self) {
        let loaded = self.loaded;
        for (id, declared) in &loaded.declared {
            if !self.found.live.contains_key(id)
                && self.known.seen(id, &declared.digest, None, self.pass.now) == Seen::Ahead
            {
                let live = self.as_applied(id, Live::default());
                self.found.live.insert(id.clone(), live);
            }
        }
    }

    fn as_applied(&mut self, id: &Id, live: Live) -> Live {
        self.found.behind = true;
        let digest = self.loaded.declared.get(id).map(|declared| Arc::clone(&declared.digest));
        Live { source: Some(self.label.as_str().into()), digest, drifted: false, displaced: false, ..live }
    }
}

/// Whether an object that the source has left is as the definition says.
fn is_as_left<K: Serialize + DeserializeOwned>(
    definition: &Definition,
    name: &SourceName,
    metadata: &ObjectMeta,
    live: &K,
) -> bool {
    let left = landscape::as_left(definition, name, metadata);
    left.is_some_and(|left| is_covered::<K>(left.into_value(), live))
}

/// Whether every field that git sets has the same value in the live object.
fn is_as_declared<K: Serialize + DeserializeOwned>(definition: &Definition, name: &SourceName, live: &K) -> bool {
    is_covered::<K>(landscape::expected(definition, name).into_value(), live)
}

/// Whether every field of `desired` has the same value in the live object, and the list of modules has no other entry.
fn is_covered<K: Serialize + DeserializeOwned>(desired: Value, live: &K) -> bool {
    // Both sides go through the type: then an explicit default equals a missing field.
    let normal = |value: Value| serde_json::from_value::<K>(value).and_then(|object| serde_json::to_value(&object));
    match (normal(desired), serde_json::to_value(live)) {
        (Ok(desired), Ok(live)) => {
            changes::covers(&desired, &live) && landscape::without_other_modules(&desired, &live).is_none()
        }
        // An object that does not match the type cannot be compared: the digest alone decides.
        (Err(_), _) | (_, Err(_)) => true,
    }
}
