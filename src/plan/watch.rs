//! What a Watcher means: which path in KCP takes its events, and which rule in a runtime sends them.

use std::collections::BTreeMap;

use crate::{
    api::{
        Watcher, names,
        watcher::{ServiceInfo, WatchField},
    },
    landscape,
    name::Key,
};

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
    /// The hosts of all its servers.
    pub hosts: Vec<String>,
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

// === impl Gateways ===

impl Gateways {
    /// The Gateways that a Watcher's selector matched: at least one, each with a host.
    pub fn of(watcher: &Key, mut gateways: Vec<Gateway>) -> Result<Gateways, Error> {
        if gateways.is_empty() {
            return Err(Error::NoGateway(watcher.clone()));
        }
        if let Some(without) = gateways.iter().find(|gateway| gateway.hosts.is_empty()) {
            return Err(Error::NoHosts(without.key.clone()));
        }
        gateways.sort();
        Ok(Gateways {
            names: gateways.iter().map(|gateway| gateway.key.to_string()).collect(),
            hosts: gateways.into_iter().flat_map(|gateway| gateway.hosts).collect(),
        })
    }
}
