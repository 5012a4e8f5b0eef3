//! What a Watcher means: which path in KCP takes its events, and which rule in a runtime sends them.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::{
    api::{
        Watcher, names,
        watcher::{ServiceInfo, WatchField},
    },
    landscape,
    name::Key,
};

mod agent;
mod drift;

pub use agent::{Address, AddressError, Agent, ListenerSettings, PRIORITY_CLASS, ParseAddressError, Program};
pub use drift::Drift;

/// One Watcher, understood.
#[derive(Clone, Debug, PartialEq)]
pub struct Watch {
    /// The Watcher.
    pub watcher: Key,
    /// Path element of the events.
    pub manager: String,
    /// API group of what is watched; empty for the core group.
    pub group: String,
    /// API version or `*`.
    pub version: String,
    /// Resource with its subresource: `kymas` or `kymas/status`.
    pub resource: String,
    /// Labels of what is watched; none match everything.
    pub labels: BTreeMap<String, String>,
    /// The service in KCP that gets the events.
    pub service: ServiceInfo,
}

/// Istio Gateways that a Watcher's selector matched, and their hosts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Gateways {
    /// `<namespace>/<name>`, sorted.
    pub names: Vec<String>,
    /// All hosts of all servers of these Gateways, in their order.
    pub hosts: Vec<String>,
}

/// One Istio Gateway.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Gateway {
    /// Namespace and name.
    pub key: Key,
    /// Its servers.
    pub servers: Vec<GatewayServer>,
}

/// One server of an Istio Gateway.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct GatewayServer {
    /// Its hosts.
    pub hosts: Vec<String>,
    /// Its port, if that is one.
    pub port: Option<u16>,
}

/// Why a Watcher cannot be acted upon.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Nothing says which path its events take.
    #[error("Watcher {0} has neither `spec.manager` nor the label `operator.kyma-project.io/managed-by`")]
    NoManager(Key),
    /// The service's port is none.
    #[error("port {port} of Watcher {watcher} is not between 1 and 65535")]
    Port {
        /// The Watcher.
        watcher: Key,
        /// The port.
        port: i64,
    },
    /// The selector matched nothing.
    #[error("no Gateway matches the selector of Watcher {0}")]
    NoGateway(Key),
    /// A Gateway has no host.
    #[error("Gateway {0} has no hosts")]
    NoHosts(Key),
}

/// Reads a Watcher.
pub fn watch(watcher: &Watcher) -> Result<Watch, Error> {
    let key = landscape::key(&watcher.metadata);
    let spec = &watcher.spec;
    let label = || landscape::label(&watcher.metadata, names::label::MANAGED_BY);
    let manager = spec.manager.as_deref().filter(|manager| !manager.is_empty()).or_else(label).unwrap_or_default();
    if manager.is_empty() {
        return Err(Error::NoManager(key));
    }
    let resource = match spec.field {
        WatchField::Spec => spec.resource_to_watch.resource.clone(),
        WatchField::Status => format!("{}/status", spec.resource_to_watch.resource),
    };
    Ok(Watch {
        watcher: key,
        manager: manager.to_owned(),
        group: spec.resource_to_watch.group.clone(),
        version: spec.resource_to_watch.version.clone(),
        resource,
        labels: spec.labels_to_watch.clone(),
        service: spec.service_info.clone(),
    })
}

/// The Watcher that has a Watcher's path in KCP and leads it to another service: both cannot be had.
///
/// Of those with one manager the oldest has it; of those that are equally old, the one whose name comes first. Whoever
/// leads to the same service does not stand in its way.
pub fn rival<'a>(watcher: &Watcher, all: impl IntoIterator<Item = &'a Watcher>) -> Option<Key> {
    let manager = watch(watcher).ok()?.manager;
    let age = |watcher: &Watcher| {
        let created = watcher.metadata.creation_timestamp.as_ref().map(|time| time.0);
        (created.is_none(), created, landscape::key(&watcher.metadata))
    };
    let wants = |other: &&Watcher| {
        other.metadata.deletion_timestamp.is_none() && watch(other).is_ok_and(|other| other.manager == manager)
    };
    let holder = all.into_iter().filter(wants).min_by_key(|other| age(other))?;
    let is_rival = age(holder) < age(watcher) && holder.spec.service_info != watcher.spec.service_info;
    is_rival.then(|| landscape::key(&holder.metadata))
}

/// The other Watchers of a Watcher's manager, sorted: agents send the events of all of them to one path.
pub fn companions<'a>(watcher: &Watcher, all: impl IntoIterator<Item = &'a Watcher>) -> Vec<Key> {
    let Ok(own) = watch(watcher) else { return Vec::new() };
    let is_companion = |other: &&Watcher| {
        other.metadata.deletion_timestamp.is_none()
            && watch(other).is_ok_and(|other| other.manager == own.manager && other.watcher != own.watcher)
    };
    let mut keys: Vec<Key> =
        all.into_iter().filter(is_companion).map(|other| landscape::key(&other.metadata)).collect();
    keys.sort();
    keys
}

/// Field managers of VirtualServices that were made for Watchers. Those that Lifecycle Manager made are owned by their
/// Watcher, whatever its client called itself.
const MAKERS: [&str; 2] = [names::FIELD_MANAGER, "lifecycle-manager"];

/// The managers of a VirtualService that is there and cannot be applied over: nothing of it says that it was made for a
/// Watcher. `None` if it is ours.
pub fn strangers(watcher: &Watcher, live: &Value) -> Option<Vec<String>> {
    let list = |path: &str| live.pointer(path).and_then(Value::as_array).into_iter().flatten();
    let uid = watcher.metadata.uid.as_deref().unwrap_or_default();
    let managers: BTreeSet<&str> =
        list("/metadata/managedFields").filter_map(|entry| entry["manager"].as_str()).collect();
    let is_ours = list("/metadata/ownerReferences").any(|owner| owner["uid"] == uid)
        || managers.iter().any(|manager| MAKERS.contains(manager))
        || live["metadata"]["annotations"][names::annotation::ADOPT] == "true";
    (!is_ours).then(|| managers.into_iter().map(str::to_owned).collect())
}

/// What is said of a VirtualService that is somebody else's.
pub fn foreign(watcher: &Key, managers: &[String]) -> String {
    let whose = match managers {
        [] => "nobody says whose it is".to_owned(),
        managers => format!("{} manages it", managers.join(", ")),
    };
    let (namespace, name) = (watcher.namespace(), watcher.name());
    format!(
        "VirtualService {namespace}/{name} exists and is not ours: {whose}; delete it, rename the Watcher, or hand it over \
         with `kubectl annotate virtualservice -n {namespace} {name} {}=true`",
        names::annotation::ADOPT
    )
}

// === impl Error ===

impl Error {
    /// What is wrong: the Watcher, or the Gateway that it selects.
    pub fn key(&self) -> &Key {
        match self {
            Error::NoManager(key) | Error::Port { watcher: key, .. } | Error::NoGateway(key) | Error::NoHosts(key) => {
                key
            }
        }
    }
}

// === impl Watch ===

impl Watch {
    /// The port of the service in KCP, which only the VirtualService needs.
    pub fn port(&self) -> Result<u16, Error> {
        let port = self.service.port;
        match u16::try_from(port) {
            Ok(number) if number != 0 => Ok(number),
            _ => Err(Error::Port { watcher: self.watcher.clone(), port }),
        }
    }
}

// === impl Gateway ===

impl Gateway {
    /// From the `spec` of the custom resource, of which nothing is taken for granted.
    pub fn new(key: Key, spec: &Value) -> Gateway {
        let server = |server: &Value| GatewayServer {
            hosts: server["hosts"]
                .as_array()
                .into_iter()
                .flatten()
                .filter_map(Value::as_str)
                .map(str::to_owned)
                .collect(),
            port: server["port"]["number"].as_u64().and_then(|port| u16::try_from(port).ok()).filter(|port| *port != 0),
        };
        Gateway { key, servers: spec["servers"].as_array().into_iter().flatten().map(server).collect() }
    }

    /// The hosts of all its servers, in their order.
    pub fn hosts(&self) -> impl Iterator<Item = &str> {
        self.servers.iter().flat_map(|server| &server.hosts).map(String::as_str)
    }
}

// === impl Gateways ===

impl Gateways {
    /// The Gateways that a Watcher's selector matched: at least one, each with a host.
    pub fn of(watcher: &Key, mut gateways: Vec<Gateway>) -> Result<Gateways, Error> {
        if gateways.is_empty() {
            return Err(Error::NoGateway(watcher.clone()));
        }
        if let Some(without) = gateways.iter().find(|gateway| gateway.hosts().next().is_none()) {
            return Err(Error::NoHosts(without.key.clone()));
        }
        gateways.sort();
        Ok(Gateways {
            names: gateways.iter().map(|gateway| gateway.key.to_string()).collect(),
            hosts: gateways.iter().flat_map(Gateway::hosts).map(str::to_owned).collect(),
        })
    }
}

#[cfg(test)]
mod tests;
