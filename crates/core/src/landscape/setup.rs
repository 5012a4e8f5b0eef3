//! The resources of kcp landscapes, typed and indexed by key.

use std::{collections::BTreeMap, sync::Arc};

use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::annotation;
use crate::{
    api::{
        names,
        setup::{CacheServer, FrontProxy, Kind, Kubeconfig, RootShard, Shard, VirtualWorkspace},
        shared::ObjectMeta,
    },
    name::Key,
};

/// The resources of kcp landscapes by key.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Resources {
    /// RootShards.
    pub root_shards: BTreeMap<Key, Arc<RootShard>>,
    /// Shards.
    pub shards: BTreeMap<Key, Arc<Shard>>,
    /// FrontProxies.
    pub front_proxies: BTreeMap<Key, Arc<FrontProxy>>,
    /// CacheServers.
    pub cache_servers: BTreeMap<Key, Arc<CacheServer>>,
    /// VirtualWorkspaces.
    pub virtual_workspaces: BTreeMap<Key, Arc<VirtualWorkspace>>,
    /// Kubeconfigs.
    pub kubeconfigs: BTreeMap<Key, Arc<Kubeconfig>>,
}

// === impl Resources ===

impl Resources {
    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        let Resources { root_shards, shards, front_proxies, cache_servers, virtual_workspaces, kubeconfigs } = self;
        let shards = root_shards.is_empty() && shards.is_empty() && cache_servers.is_empty();
        shards && front_proxies.is_empty() && virtual_workspaces.is_empty() && kubeconfigs.is_empty()
    }

    /// The metadata of a resource.
    pub fn metadata(&self, kind: Kind, key: &Key) -> Option<&ObjectMeta> {
        match kind {
            Kind::CacheServer => self.cache_servers.get(key).map(|found| &found.metadata),
            Kind::RootShard => self.root_shards.get(key).map(|found| &found.metadata),
            Kind::FrontProxy => self.front_proxies.get(key).map(|found| &found.metadata),
            Kind::Shard => self.shards.get(key).map(|found| &found.metadata),
            Kind::VirtualWorkspace => self.virtual_workspaces.get(key).map(|found| &found.metadata),
            Kind::Kubeconfig => self.kubeconfigs.get(key).map(|found| &found.metadata),
        }
    }

    /// The status of a resource; an empty object if it has none. That of a CacheServer is in an annotation.
    pub fn status(&self, kind: Kind, key: &Key) -> Value {
        let status = match kind {
            Kind::CacheServer => self.cache_servers.get(key).map(|found| noted_status(&found.metadata)),
            Kind::RootShard => self.root_shards.get(key).map(|found| json!(found.status)),
            Kind::FrontProxy => self.front_proxies.get(key).map(|found| json!(found.status)),
            Kind::Shard => self.shards.get(key).map(|found| json!(found.status)),
            Kind::VirtualWorkspace => self.virtual_workspaces.get(key).map(|found| json!(found.status)),
            Kind::Kubeconfig => self.kubeconfigs.get(key).map(|found| json!(found.status)),
        };
        status.filter(Value::is_object).unwrap_or_else(|| json!({}))
    }

    /// All resources by kind and key, in the order of apply.
    pub fn ids(&self) -> impl Iterator<Item = (Kind, &Key)> {
        fn of<T>(kind: Kind, all: &BTreeMap<Key, T>) -> impl Iterator<Item = (Kind, &Key)> {
            all.keys().map(move |key| (kind, key))
        }
        of(Kind::CacheServer, &self.cache_servers)
            .chain(of(Kind::RootShard, &self.root_shards))
            .chain(of(Kind::FrontProxy, &self.front_proxies))
            .chain(of(Kind::Shard, &self.shards))
            .chain(of(Kind::VirtualWorkspace, &self.virtual_workspaces))
            .chain(of(Kind::Kubeconfig, &self.kubeconfigs))
    }

    /// Adds a resource.
    ///
    /// # Errors
    ///
    /// Fails if the value is not a resource of this kind.
    pub fn insert(&mut self, kind: Kind, key: &Key, value: Value) -> Result<(), serde_json::Error> {
        match kind {
            Kind::CacheServer => insert(&mut self.cache_servers, key, value),
            Kind::RootShard => insert(&mut self.root_shards, key, value),
            Kind::FrontProxy => insert(&mut self.front_proxies, key, value),
            Kind::Shard => insert(&mut self.shards, key, value),
            Kind::VirtualWorkspace => insert(&mut self.virtual_workspaces, key, value),
            Kind::Kubeconfig => insert(&mut self.kubeconfigs, key, value),
        }
    }

    /// Removes a resource.
    pub fn remove(&mut self, kind: Kind, key: &Key) {
        match kind {
            Kind::CacheServer => drop(self.cache_servers.remove(key)),
            Kind::RootShard => drop(self.root_shards.remove(key)),
            Kind::FrontProxy => drop(self.front_proxies.remove(key)),
            Kind::Shard => drop(self.shards.remove(key)),
            Kind::VirtualWorkspace => drop(self.virtual_workspaces.remove(key)),
            Kind::Kubeconfig => drop(self.kubeconfigs.remove(key)),
        }
    }
}

/// The status that an annotation of a resource notes; an empty object if there is none.
pub fn noted_status(metadata: &ObjectMeta) -> Value {
    let noted = annotation(metadata, names::annotation::STATUS).and_then(|text| serde_json::from_str(text).ok());
    noted.filter(Value::is_object).unwrap_or_else(|| json!({}))
}

fn insert<T: DeserializeOwned>(
    into: &mut BTreeMap<Key, Arc<T>>,
    key: &Key,
    value: Value,
) -> Result<(), serde_json::Error> {
    into.insert(key.clone(), Arc::new(serde_json::from_value(value)?));
    Ok(())
}
