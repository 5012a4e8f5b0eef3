//! Decides what happens to the objects of one resource of a kcp landscape: a decision over values.
//!
//! * A Certificate waits for the Secret of the CA that signs it. A Deployment waits for every Certificate of its
//!   resource, then for every key that it mounts. Other objects wait for nothing.
//! * What was applied and has not changed since is not read and not written.
//! * An object that Tidegate meets for the first time is read before it is written. One that others made stays.
//! * Nothing is pruned unless every object of the resource is known. The keys of CAs and of service accounts stay.

use std::collections::BTreeMap;

use tidegate_core::{
    object::Digest,
    plan::setup::{Gate, Mounted},
};

use super::object::{LiveObject, ObjectKind, ObjectState};

/// An object of a namespace.
pub(super) type ObjectName = (ObjectKind, String);

/// The digests of the values of a Secret or ConfigMap, by key.
pub(super) type Keys = BTreeMap<String, Digest>;

/// What this process knows of an object that it has applied or compared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Verified {
    /// The digest of what was applied.
    pub(super) digest: Digest,
    /// The version of the object then, see [`LiveObject::version`].
    pub(super) version: std::sync::Arc<str>,
    /// Whether the watch has shown the object since.
    pub(super) is_shown: bool,
}

/// What happens to a desired object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// It is as desired.
    Keep,
    /// It may differ, or belong to others: read it.
    Read,
    /// It differs.
    Apply,
    /// It is being deleted, and is created again afterwards.
    Await,
}

/// What a Deployment waits for: one sentence each, first of certificates, then of mounted keys.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Waits {
    /// Certificates that are not ready.
    pub(super) certificates: Vec<String>,
    /// Keys that do not exist. Empty while a certificate is not ready: most of them follow from it.
    pub(super) mounts: Vec<String>,
}

/// What a Deployment waits for. `live` has the objects of its namespace, `keys` those whose content is known.
pub(super) fn waits(
    gates: &[Gate],
    live: &BTreeMap<ObjectName, LiveObject>,
    keys: &BTreeMap<ObjectName, Keys>,
) -> Waits {
    let certificates: Vec<String> = gates.iter().filter_map(|gate| certificate(gate, live)).collect();
    if !certificates.is_empty() {
        return Waits { certificates, mounts: Vec::new() };
    }
    Waits { certificates, mounts: gates.iter().flat_map(|gate| missing_keys(gate, keys)).collect() }
}

fn certificate(gate: &Gate, live: &BTreeMap<ObjectName, LiveObject>) -> Option<String> {
    let Gate::Certificate(name) = gate else { return None };
    match live.get(&(ObjectKind::Certificate, name.clone())).map(|found| &found.state) {
        Some(ObjectState::Certificate(Ok(()))) => None,
        Some(ObjectState::Certificate(Err(why))) => Some(format!("Certificate {name} is not ready: {why}")),
        Some(ObjectState::Plain | ObjectState::Deployment(_)) | None => {
            Some(format!("Certificate {name} does not exist yet"))
        }
    }
}

fn missing_keys(gate: &Gate, keys: &BTreeMap<ObjectName, Keys>) -> Vec<String> {
    let Gate::Key(Mounted { kind, name, keys: wanted }) = gate else { return Vec::new() };
    let found = input(kind).and_then(|of| keys.get(&(of, name.clone())));
    match found {
        None => vec![format!("{kind} {name} does not exist")],
        Some(found) => {
            let missing = wanted.iter().filter(|key| !found.contains_key(*key));
            missing.map(|key| format!("{kind} {name} has no key `{key}`")).collect()
        }
    }
}

/// The digest of everything that a Deployment mounts: it changes if, and only if, a mounted value does. `None` while
/// something is missing.
pub(super) fn digest_of_mounts(gates: &[Gate], keys: &BTreeMap<ObjectName, Keys>) -> Option<Digest> {
    let mut parts = Vec::new();
    for gate in gates {
        let Gate::Key(Mounted { kind, name, keys: wanted }) = gate else { continue };
        let found = keys.get(&(input(kind)?, name.clone()))?;
        let is_mounted = |key: &&String| wanted.is_empty() || wanted.contains(key);
        let wanted = if wanted.is_empty() { found.len() } else { wanted.len() };
        let mounted: Vec<&String> = found.keys().filter(is_mounted).collect();
        if mounted.len() != wanted {
            return None;
        }
        parts.extend(mounted.into_iter().map(|key| format!("{kind}/{name}/{key}={}", found[key])));
    }
    parts.sort();
    parts.dedup();
    Some(Digest::of_bytes(parts.join("\n").as_bytes()))
}

fn input(kind: &str) -> Option<ObjectKind> {
    ObjectKind::named(kind).filter(|kind| kind.is_input())
}

/// What happens to a desired object. `mark` is the label of its resource.
pub(super) fn step(desired: &Digest, live: Option<&LiveObject>, verified: Option<&Verified>, mark: &str) -> Step {
    match (live, verified) {
        (Some(live), _) if live.is_terminating => Step::Await,
        // The watch does not show it yet.
        (None, Some(verified)) if !verified.is_shown => {
            if verified.digest == *desired {
                Step::Keep
            } else {
                Step::Apply
            }
        }
        // It may belong to others, or be gone: only a read says it.
        (None, _) => Step::Read,
        (Some(live), _) if live.mark.as_deref() != Some(mark) => Step::Read,
        (Some(live), Some(verified)) if verified.version == live.version => {
            if verified.digest == *desired {
                Step::Keep
            } else {
                Step::Apply
            }
        }
        // Another process applied something else.
        (Some(live), None) if live.digest.as_deref() != Some(desired.to_string().as_str()) => Step::Apply,
        // Others changed it, or this process has not compared it yet.
        (Some(_), Some(_) | None) => Step::Read,
    }
}

/// Whether an object that is no longer desired is deleted. The private keys of CAs and of service accounts stay unless
/// an annotation allows their loss: without them, nothing that they signed can be renewed.
pub(super) fn is_pruned(name: &ObjectName, live: &LiveObject) -> bool {
    if live.is_terminating {
        return false;
    }
    live.prune.unwrap_or_else(|| !has_precious_key(name))
}

fn has_precious_key((kind, name): &ObjectName) -> bool {
    let is_bundle = name.ends_with("-merged-client-ca");
    *kind == ObjectKind::Secret && !is_bundle && (name.ends_with("-ca") || name.ends_with("-service-account"))
}

#[cfg(test)]
mod tests;
