//! What annotations of a resource switch on or off. Without them, everything is as kcp-operator makes it.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::{Kind, Problem};
use crate::{
    api::{names::annotation, shared::ObjectMeta},
    definition::near,
    diagnostic::Severity,
    name::Key,
    yaml::short,
};

/// An annotation that changes what a resource consists of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OptIn {
    /// The annotation.
    pub annotation: &'static str,
    /// The kinds that may have it.
    pub kinds: &'static [Kind],
    /// Its values.
    pub takes: Takes,
}

/// The values of an annotation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Takes {
    /// `enabled` or `disabled`.
    Switch,
    /// A port.
    Port,
    /// A number of pods, or a percentage of them.
    Pods,
    /// Host and port of a server.
    Address,
    /// The name of a host.
    Host,
    /// The name of another cluster.
    Cluster,
}

/// All kinds with Deployments.
const WORKLOADS: &[Kind] = &[Kind::CacheServer, Kind::RootShard, Kind::FrontProxy, Kind::Shard, Kind::VirtualWorkspace];

/// What Kubeconfigs lead to.
const TARGETS: &[Kind] = &[Kind::RootShard, Kind::FrontProxy, Kind::Shard];

/// The opt-ins, by annotation.
pub const OPT_INS: [OptIn; 12] = [
    OptIn { annotation: annotation::CLUSTER, kinds: WORKLOADS, takes: Takes::Cluster },
    OptIn { annotation: annotation::HARDENING, kinds: WORKLOADS, takes: Takes::Switch },
    OptIn { annotation: annotation::INTERNAL_PROXY, kinds: &[Kind::RootShard], takes: Takes::Switch },
    OptIn { annotation: annotation::KCP_ADDRESS, kinds: TARGETS, takes: Takes::Address },
    OptIn { annotation: annotation::KCP_TLS_NAME, kinds: TARGETS, takes: Takes::Host },
    OptIn { annotation: annotation::MOUNTS_PROXY, kinds: &[Kind::RootShard], takes: Takes::Switch },
    OptIn { annotation: annotation::POD_DISRUPTION_BUDGET, kinds: WORKLOADS, takes: Takes::Pods },
    OptIn { annotation: annotation::PROBES, kinds: &[Kind::VirtualWorkspace], takes: Takes::Switch },
    OptIn { annotation: annotation::SERVICE_PORT, kinds: &[Kind::FrontProxy], takes: Takes::Port },
    OptIn { annotation: annotation::SERVICES_PATH, kinds: &[Kind::FrontProxy], takes: Takes::Switch },
    OptIn { annotation: annotation::SHARD_FLAGS, kinds: &[Kind::VirtualWorkspace], takes: Takes::Switch },
    OptIn {
        annotation: annotation::VIRTUAL_WORKSPACES_CERTIFICATE,
        kinds: &[Kind::RootShard, Kind::Shard],
        takes: Takes::Switch,
    },
];

/// The prefix of all our annotations.
const PREFIX: &str = "tidegate.dev/";
/// Our annotations other than opt-ins that a resource may have.
const ANNOTATIONS: [&str; 12] = [
    annotation::ADOPT,
    annotation::CONFIRM_DELETION,
    annotation::CONFIRM_PRUNE,
    annotation::DIGEST,
    annotation::FORCE_REMOVAL,
    annotation::FORGET_CLUSTER,
    annotation::PATH,
    annotation::PRUNE,
    annotation::RECONCILE_REQUESTED_AT,
    annotation::SOURCE,
    annotation::STATUS,
    annotation::SUSPENDED,
];

/// The first annotation of ours that a resource must not have, or that has a wrong value. A word of a later version
/// says what is to be done otherwise, so it must not be passed over.
pub(super) fn problem(kind: Kind, key: &Key, metadata: &ObjectMeta) -> Option<Problem> {
    let ours = metadata.annotations.iter().flatten().filter(|(name, _)| name.starts_with(PREFIX));
    let (message, hint) = ours.filter_map(|(name, value)| wrong(kind, name, value)).next()?;
    let (severity, key, field) = (Severity::Error, key.clone(), "metadata.annotations");
    Some(Problem { severity, kind, key, field, message, hint, missing: None })
}

fn wrong(kind: Kind, name: &str, value: &str) -> Option<(String, String)> {
    match OptIn::of_kind(kind).find(|one| one.annotation == name) {
        Some(opt_in) if opt_in.takes.accepts(value) => None,
        Some(opt_in) => {
            let message =
                format!("the annotation `{name}` must be {}, not `{}`", opt_in.takes.expected(), short(value));
            Some((message, "correct it, or remove the annotation".to_owned()))
        }
        None if ANNOTATIONS.contains(&name) => None,
        None => {
            let known = OptIn::of_kind(kind).map(|one| one.annotation);
            let hint = near::did_you_mean(name, known).unwrap_or_else(|| "remove it".to_owned());
            Some((format!("Tidegate has no annotation `{}` for a {kind}", short(name)), hint))
        }
    }
}

/// The opt-ins of one resource. Values that [`Takes::accepts`] refuses count as absent.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct OptIns<'a>(Option<&'a BTreeMap<String, String>>);

// === impl OptIn ===

impl OptIn {
    /// Those that a kind may have.
    pub fn of_kind(kind: Kind) -> impl Iterator<Item = OptIn> {
        OPT_INS.into_iter().filter(move |one| one.kinds.contains(&kind))
    }
}

// === impl Takes ===

impl Takes {
    /// Whether a text is one of the values.
    pub fn accepts(self, text: &str) -> bool {
        match self {
            Takes::Switch => matches!(text, "enabled" | "disabled"),
            Takes::Port => port(text).is_some(),
            Takes::Pods => pods(text).is_some(),
            Takes::Address => address(text).is_some(),
            Takes::Host => is_host(text),
            Takes::Cluster => is_label_value(text),
        }
    }

    /// The values, in words.
    pub fn expected(self) -> &'static str {
        match self {
            Takes::Switch => "`enabled` or `disabled`",
            Takes::Port => "a port from 1 to 65535",
            Takes::Pods => "a number of pods or a percentage, for example `1` or `25%`",
            Takes::Address => "a host and a port, for example `kcp.example.com:6443`",
            Takes::Host => "the name of a host, for example `kcp.example.com`",
            Takes::Cluster => "the name of a cluster, for example `eu`",
        }
    }
}

// === impl OptIns ===

impl<'a> OptIns<'a> {
    /// Those of a resource.
    pub(super) fn from_metadata(metadata: &'a ObjectMeta) -> OptIns<'a> {
        OptIns(metadata.annotations.as_ref())
    }

    fn value(self, annotation: &str) -> Option<&'a str> {
        self.0?.get(annotation).map(String::as_str)
    }

    /// Whether something is on that is off by default.
    pub(super) fn is_enabled(self, annotation: &str) -> bool {
        self.value(annotation) == Some("enabled")
    }

    /// Whether something is off that is on by default.
    pub(super) fn is_disabled(self, annotation: &str) -> bool {
        self.value(annotation) == Some("disabled")
    }

    /// The port of the Service.
    pub(super) fn service_port(self) -> Option<i32> {
        port(self.value(annotation::SERVICE_PORT)?)
    }

    /// The URL under which the daemon reaches the server.
    pub(super) fn address(self) -> Option<String> {
        address(self.value(annotation::KCP_ADDRESS)?)
    }

    /// The name in the certificate of the server.
    pub(super) fn tls_name(self) -> Option<String> {
        self.value(annotation::KCP_TLS_NAME).filter(|name| is_host(name)).map(str::to_owned)
    }

    /// The cluster of its pods, if it is another one.
    pub(super) fn cluster(self) -> Option<&'a str> {
        self.value(annotation::CLUSTER).filter(|name| is_label_value(name))
    }

    /// How many pods may be missing at the same time.
    pub(super) fn max_unavailable(self) -> Option<Value> {
        pods(self.value(annotation::POD_DISRUPTION_BUDGET)?)
    }
}

fn port(text: &str) -> Option<i32> {
    text.parse::<u16>().ok().filter(|&port| port != 0).map(i32::from)
}

fn address(text: &str) -> Option<String> {
    let (host, number) = text.rsplit_once(':')?;
    let address = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    let is_valid = match address {
        Some(address) => address.parse::<core::net::Ipv6Addr>().is_ok(),
        None => is_host(host),
    };
    (is_valid && port(number).is_some()).then(|| format!("https://{text}"))
}

fn is_host(text: &str) -> bool {
    let is_label = |label: &str| {
        !label.is_empty() && label.chars().all(|c| c.is_ascii_alphanumeric() || c == '-') && !label.starts_with('-')
    };
    text.len() <= 253 && text.split('.').all(is_label)
}

/// Whether a label may have this value, which is not empty.
fn is_label_value(text: &str) -> bool {
    let is_inside = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let is_end = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
    text.len() <= 63 && text.chars().all(is_inside) && is_end(text.chars().next()) && is_end(text.chars().last())
}

fn pods(text: &str) -> Option<Value> {
    match text.strip_suffix('%') {
        Some(percent) => percent.parse::<u8>().ok().filter(|percent| (1..=100).contains(percent)).map(|_| json!(text)),
        None => text.parse::<i32>().ok().filter(|&count| 0 < count).map(|count| json!(count)),
    }
}
