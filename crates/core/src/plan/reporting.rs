//! Interprets Watchers: the path in KCP that receives their events, and the rule in a runtime that
//! sends them.

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

/// A parsed Watcher.
#[derive(Clone, Debug, PartialEq)]
pub struct Watch {
    /// The Watcher.
    pub watcher: Key,
    /// The path element of its events.
    pub manager: String,
    /// API group of the watched objects; empty for the core group.
    pub group: String,
    /// API version or `*`.
    pub version: String,
    /// Resource with its subresource, such as `kymas` or `kymas/status`.
    pub resource: String,
    /// Labels of the watched objects; an empty map matches everything.
    pub labels: BTreeMap<String, String>,
    /// The service in KCP that receives the events.
    pub service: ServiceInfo,
}

/// Istio Gateways that the selector of a Watcher matches, and their hosts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Gateways {
    /// `<namespace>/<name>`, sorted.
    pub names: Vec<String>,
    /// All hosts of all servers of these Gateways, in order.
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
    /// Its port, if valid.
    pub port: Option<u16>,
}

/// Why a Watcher is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The Watcher does not specify the path of its events.
    #[error("Watcher {0} has neither `spec.manager` nor the label `operator.kyma-project.io/managed-by`")]
    NoManager(Key),
    /// The port of the service is invalid.
    #[error("invalid port {port} of Watcher {watcher}: use a port from 1 to 65535")]
    Port {
        /// The Watcher.
        watcher: Key,
        /// The port.
        port: i64,
    },
    /// The selector matches no Gateway.
    #[error("no Gateway matches the selector of Watcher {0}")]
    NoGateway(Key),
    /// A Gateway has no host.
    #[error("Gateway {0} has no hosts")]
    NoHosts(Key),
}

/// Parses a Watcher.
///
/// # Errors
///
/// Fails if it has no manager or an invalid port.
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

/// The Watcher that already uses the path of this Watcher in KCP for another service. Both cannot
/// work.
///
/// Among Watchers of one manager, the oldest gets the path; among equally old ones, the first by
/// name. Watchers with the same service do not conflict.
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

/// The other Watchers with the same manager, sorted. Agents send the events of all of them to one
/// path.
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

/// Field managers that created VirtualServices for Watchers. Those of Lifecycle Manager are owned
/// by their Watcher, whatever the name of its client.
const MAKERS: [&str; 2] = [names::FIELD_MANAGER, "lifecycle-manager"];

/// The managers of an existing VirtualService that Tidegate must not overwrite, because nothing shows that it was
/// created for a Watcher. `None` if Tidegate owns it.
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

/// The message about a VirtualService of another owner.
pub fn foreign(watcher: &Key, managers: &[String]) -> String {
    let whose = match managers {
        [] => "its owner is unknown".to_owned(),
        managers => format!("{} manages it", managers.join(", ")),
    };
    let (namespace, name) = (watcher.namespace(), watcher.name());
    format!(
        "VirtualService {namespace}/{name} exists and is not managed by Tidegate: {whose}; \
         delete it, rename the Watcher, or hand it over with `kubectl annotate virtualservice -n {namespace} {name} \
         {}=true`",
        names::annotation::ADOPT
    )
}

// === impl Error ===

impl Error {
    /// The object with the problem: the Watcher, or the Gateway that it selects.
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
    ///
    /// # Errors
    ///
    /// Fails if it is not from 1 to 65535.
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
    /// Reads the `spec` of the custom resource, without any assumption about its content.
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

    /// The hosts of all its servers, in order.
    pub fn hosts(&self) -> impl Iterator<Item = &str> {
        self.servers.iter().flat_map(|server| &server.hosts).map(String::as_str)
    }
}

// === impl Gateways ===

impl Gateways {
    /// The Gateways that the selector of a Watcher matches.
    ///
    /// # Errors
    ///
    /// Fails if there are none, or one of them has no host.
    pub fn from_matches(watcher: &Key, mut gateways: Vec<Gateway>) -> Result<Gateways, Error> {
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
