//! Decides what happens to the objects of one resource of a kcp landscape: a decision over values, made again after
//! every request.
//!
//! * A Certificate waits for the Secret of the CA that signs it, a Secret for the certificates that it contains. A
//!   Deployment waits for every Certificate of its resource, then for every key that it mounts. Other objects wait for
//!   nothing.
//! * What was applied and has not changed since is not read and not written, but for a certificate of the built-in CA
//!   that is due for renewal.
//! * An object that Tidegate meets for the first time is read before it is written. One that others made stays.
//! * A certificate of the built-in CA whose CA is being replaced waits until pods trust the new one, see
//!   [`super::overlap`].
//! * An object that was taken over from kcp-operator stays as it is until its resource changes, see [`hold`].
//! * Nothing is pruned unless every object of the resource is known. The keys of CAs and of service accounts stay.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};
use tidegate_cluster::OnConflict;
use tidegate_core::{
    api::names::{annotation, label},
    changes::covers,
    object::{Digest, Object},
    plan::setup::{Gate, Issuer, Mounted, Replicas},
};

use super::{
    content, hold,
    object::{LiveObject, ObjectKind, ObjectState},
    state::{Desired, Issuance, Keys, Known, LiveObjects, ObjectName, Observed, Origin, Verified},
};

/// The next step of a pass.
#[derive(Clone, Debug)]
pub(super) enum Next {
    /// Enact this act, then decide again.
    Do(Act),
    /// Everything that can be done is done.
    End(Vec<(ObjectName, Outcome)>),
}

/// One act: one request.
#[derive(Clone, Debug)]
pub(super) enum Act {
    /// Reads the values of a Secret or ConfigMap.
    Learn(ObjectName),
    /// Reads an object.
    Read(ObjectName),
    /// Applies an object, whose digest then is this.
    Apply(ObjectName, Box<Object>, Digest, OnConflict),
    /// Deletes an object, unless it has changed since.
    Delete(ObjectName, Arc<LiveObject>),
}

/// What became of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// It is as desired.
    Well,
    /// It waits for others.
    Waits(Waits),
    /// It cannot be made of what others contain: one sentence.
    Unusable(String),
    /// Others own it, or the API server rejects it: one sentence.
    Refused(String),
    /// It is being deleted, and is created again or gone afterwards.
    Leaves,
    /// It is no longer desired, and stays because its key is precious.
    Stays,
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

/// What an object waits for: one sentence each, first of certificates, then of keys, then of Deployments.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Waits {
    /// Certificates that are not ready.
    pub(super) certificates: Vec<String>,
    /// Keys that do not exist. Empty while a certificate is not ready: most of them follow from it.
    pub(super) keys: Vec<String>,
    /// Deployments that do not exist, or whose pods are not ready.
    pub(super) deployments: Vec<String>,
}

/// The Secrets and ConfigMaps whose values have to be read first, because the objects of a plan depend on them.
pub(super) fn unread<'a>(
    mut needed: impl Iterator<Item = &'a ObjectName>,
    live: &LiveObjects,
    known: impl Fn(&ObjectName) -> Option<Arc<str>>,
) -> Option<ObjectName> {
    let is_unread = |name: &&ObjectName| {
        live.get(*name).is_some_and(|found| known(name).as_deref() != Some(&*found.resource_version))
    };
    needed.find(is_unread).cloned()
}

/// Decides the next step.
pub(super) fn next(known: &Known, observed: &Observed) -> Next {
    let mut outcomes = Vec::new();
    for desired in &known.desired {
        match decide(known, observed, desired) {
            Ok(outcome) => outcomes.push((desired.name.clone(), outcome)),
            Err(act) => return Next::Do(act),
        }
    }
    if !known.is_complete {
        return Next::End(outcomes);
    }
    for (name, live) in doomed(known) {
        match leave(known, observed, &name, &live) {
            Ok(outcome) => outcomes.push((name, outcome)),
            Err(act) => return Next::Do(act),
        }
    }
    Next::End(outcomes)
}

/// The objects of the resource that are no longer desired, in the order of deletion.
fn doomed(known: &Known) -> Vec<(ObjectName, Arc<LiveObject>)> {
    let all = known.live.iter().filter(|(name, live)| is_owned(live, &known.mark) && !known.wanted.contains(*name));
    all.rev().map(|(name, live)| (name.clone(), Arc::clone(live))).collect()
}

fn is_owned(live: &LiveObject, mark: &str) -> bool {
    live.mark.as_deref() == Some(mark)
}

/// The objects with the label of a resource.
pub(super) fn owned<'a>(live: &'a LiveObjects, mark: &'a str) -> impl Iterator<Item = &'a LiveObject> {
    live.values().map(|live| &**live).filter(move |live| is_owned(live, mark))
}

/// What an object is compared with: the digest of the desired object, unless it may stay as kcp-operator left it.
/// `None` if it is not known whether its resource has changed.
pub(super) fn target(known: &Known, desired: &Desired, is_adopted: bool) -> Option<Digest> {
    if is_adopted {
        known.definition.as_ref().map(|definition| hold::hold(definition, desired))
    } else {
        Some(desired.digest)
    }
}

/// What happens to an object that shall not exist any more.
fn leave(known: &Known, observed: &Observed, name: &ObjectName, object: &Arc<LiveObject>) -> Result<Outcome, Act> {
    // While its Certificate exists, cert-manager would make it again.
    let has_certificate =
        name.0 == ObjectKind::Secret && known.live.contains_key(&(ObjectKind::Certificate, name.1.clone()));
    if object.is_terminating || has_certificate || observed.deleted.contains(name) {
        return Ok(Outcome::Leaves);
    }
    // A copy has a key that exists elsewhere.
    let is_copy = known.place.is_some() && object.prune.is_none();
    if is_copy || is_pruned(name, object) {
        Err(Act::Delete(name.clone(), Arc::clone(object)))
    } else {
        Ok(Outcome::Stays)
    }
}

/// What became of a desired object, or what to do next with it.
fn decide(known: &Known, observed: &Observed, desired: &Desired) -> Result<Outcome, Act> {
    let live = known.live.get(&desired.name);
    let waits = waits(known.issuance, &desired.gates, live.is_some(), known.around(), &observed.keys);
    if !waits.is_empty() {
        return Ok(Outcome::Waits(waits));
    }
    if let Some(sentence) = known.held.get(&desired.name) {
        return Ok(Outcome::Waits(Waits { keys: vec![sentence.clone()], ..Waits::default() }));
    }
    if let Some(applied) = observed.applied.get(&desired.name) {
        return Ok(applied.clone().map_or_else(Outcome::Refused, |()| Outcome::Well));
    }
    let is_adopted = live.is_some_and(|live| live.is_adopted && is_owned(live, &known.mark));
    // A template may fail.
    let Some(target) = target(known, desired, is_adopted) else { return Ok(Outcome::Well) };
    let step = step(&target, live.map(|live| &**live), known.verified.get(&desired.name), &known.mark, known.now);
    match step {
        Step::Await => return Ok(Outcome::Leaves),
        Step::Keep if !is_due(known, desired, live) && !is_too_large(desired, live.map(|live| &**live)) => {
            return Ok(Outcome::Well);
        }
        Step::Keep | Step::Read | Step::Apply => {}
    }
    // The key and the certificate that exist may stay, or what kcp-operator left, or the type and keys of a copy.
    let step = if depends_on_itself(desired) || is_adopted { Step::Read } else { step };
    let found = match (step, observed.found.get(&desired.name)) {
        (Step::Read, None) => return Err(Act::Read(desired.name.clone())),
        (_, found) => found,
    };
    if let Some(Some(found)) = found
        && let Some(refusal) = refusal(known, found)
    {
        return Ok(Outcome::Refused(refusal));
    }
    if let Some(Some(found)) = found
        && hold::is_held(known.definition.as_ref(), desired, found)
        && !is_too_large(desired, live.map(|live| &**live))
    {
        return Ok(Outcome::Well);
    }
    if let Some(rival) = rival(known, desired) {
        return Ok(Outcome::Refused(rival));
    }
    let object = match complete(known, desired, live.map(|live| &**live), found, observed) {
        Ok(Ok(object)) => object,
        Ok(Err(sentence)) => return Ok(Outcome::Unusable(sentence)),
        Err(missing) => return Err(Act::Learn(missing)),
    };
    if let Some(Some(found)) = found
        && covers(object.value(), found.value())
    {
        return Ok(Outcome::Well);
    }
    let is_deleted = observed.deleted.contains(&desired.name);
    if let Some(Some(found)) = found
        && !is_deleted
        && has_other_type(desired, &object, found)
    {
        return make_room(known, desired, found);
    }
    let is_new = is_deleted || matches!(found, Some(None));
    let on_conflict = if is_new { OnConflict::Report } else { OnConflict::Force };
    Err(Act::Apply(desired.name.clone(), Box::new(object), desired.digest, on_conflict))
}

/// Whether the copy of a Secret has another type than it needs. No apply changes that.
fn has_other_type(desired: &Desired, object: &Object, found: &Object) -> bool {
    let is_copy = matches!(desired.origin, Origin::Copied { .. });
    is_copy && object.field("type").zip(found.field("type")).is_some_and(|(wanted, found)| wanted != found)
}

/// What happens to a copy with another type than it needs: it is deleted, and created again by the next act. One that
/// others made stays.
fn make_room(known: &Known, desired: &Desired, found: &Object) -> Result<Outcome, Act> {
    let (kind, name) = &desired.name;
    let control_plane = known.place.as_ref().map(|place| &*place.control_plane);
    let is_own =
        found.label(label::SETUP) == Some(known.mark.as_str()) && found.label(label::CONTROL_PLANE) == control_plane;
    let metadata = serde_json::from_value(json!({ "metadata": found.value()["metadata"] }));
    match metadata.ok().filter(|_| is_own).map(|metadata| LiveObject::from_metadata(*kind, metadata)) {
        Some(live) if live.is_terminating => Ok(Outcome::Leaves),
        Some(live) => Err(Act::Delete(desired.name.clone(), Arc::new(live))),
        None => Ok(Outcome::Refused(format!(
            "Secret {name} has another type than its users need, and the type of a Secret cannot be changed: delete \
             it, and Tidegate creates it again"
        ))),
    }
}

/// Why an object that was read is not written: one sentence. `None` if it may be.
fn refusal(known: &Known, found: &Object) -> Option<String> {
    let (kind, name) = (found.gvk().kind, found.name());
    let control_plane = known.place.as_ref().map(|place| &*place.control_plane);
    let may_adopt = known.may_adopt || found.annotation(annotation::ADOPT) == Some("true");
    let whose = match found.label(label::SETUP) {
        Some(mark) if found.label(label::CONTROL_PLANE) != control_plane => {
            return (!may_adopt).then(|| {
                format!(
                    "{kind} {name} belongs to {mark} of another control plane: use another namespace or cluster, or \
                     let Tidegate take it over with `kubectl annotate {} -n {} {name} {}=true`",
                    kind.to_lowercase(),
                    known.namespace,
                    annotation::ADOPT
                )
            });
        }
        Some(mark) if mark == known.mark => return None,
        Some(mark) => {
            return Some(format!(
                "{kind} {name} belongs to {mark}, whose label it bears: rename one of the two resources"
            ));
        }
        None => managers(found),
    };
    let owners = found.value()["metadata"]["ownerReferences"].as_array().map_or(0, Vec::len);
    if 0 < owners {
        return Some(format!(
            "{kind} {name} exists and has owners, with which it would be deleted: delete it, or remove its \
             `ownerReferences`"
        ));
    }
    if may_adopt {
        return None;
    }
    let (plural, namespace) = (kind.to_lowercase(), &known.namespace);
    Some(format!(
        "{kind} {name} exists and is not managed by Tidegate: {whose}; delete it, or let Tidegate take it over with \
         `kubectl annotate {plural} -n {namespace} {name} {}=true`",
        annotation::ADOPT
    ))
}

fn managers(found: &Object) -> String {
    let managers = found.value()["metadata"]["managedFields"].as_array().into_iter().flatten();
    let names: std::collections::BTreeSet<&str> = managers.filter_map(|entry| entry["manager"].as_str()).collect();
    match names.len() {
        0 => "its manager is unknown".to_owned(),
        1 => format!("{} manages it", names.into_iter().collect::<String>()),
        _ => format!("{} manage it", names.into_iter().collect::<Vec<_>>().join(", ")),
    }
}

/// The object as it is sent: with the value of a Secret that is made of others, and with the number of pods. Fails
/// with the name of a Secret that has to be read first.
fn complete(
    known: &Known,
    desired: &Desired,
    live: Option<&LiveObject>,
    found: Option<&Option<Object>>,
    observed: &Observed,
) -> Result<Result<Object, String>, ObjectName> {
    let mut object = desired.object.clone();
    let secret = |name: &str| (ObjectKind::Secret, name.to_owned());
    match &desired.origin {
        Origin::Rendered => {}
        Origin::Composed(content) => {
            let mut sources = content::sources(content).into_iter().map(secret);
            if let Some(unread) = sources.find(|name| !observed.values.contains_key(name)) {
                return Err(unread);
            }
            match content::value(content, &|name| observed.values.get(&secret(name))) {
                Ok(value) => content::set(&mut object, value),
                Err(sentence) => return Ok(Err(sentence)),
            }
        }
        Origin::Copied { keys, kept } => {
            let Some(values) = observed.values.get(&desired.name) else { return Err(desired.name.clone()) };
            let there = found.and_then(Option::as_ref).map(content::values).unwrap_or_default();
            content::copy(&mut object, values, keys, there.into_iter().filter(|(key, _)| kept.contains(key)));
            let type_ = found.and_then(Option::as_ref).and_then(|found| found.field("type"));
            // Not all users are known if keys are kept.
            if let Some(type_) = type_.filter(|type_| content::may_keep_type(&object, type_, !kept.is_empty())).cloned()
            {
                object.map_mut().insert("type".to_owned(), type_);
            }
        }
        Origin::Issued(request) => {
            let ca = request.ca.as_deref().map(secret);
            if let Some(unread) = ca.as_ref().filter(|name| !observed.values.contains_key(*name)) {
                return Err(unread.clone());
            }
            let ca = ca.and_then(|name| observed.values.get(&name));
            let own = found.and_then(Option::as_ref).map(content::values);
            match request.issue(ca, own.as_ref(), known.now) {
                Ok(issued) => issued.write(&mut object),
                Err(sentence) => return Ok(Err(format!("Secret {}: {sentence}", desired.name.1))),
            }
        }
    }
    if let Some(replicas) = desired.replicas {
        let found = found.and_then(Option::as_ref).map(|found| &found.value()["spec"]["replicas"]);
        let shown = live.and_then(LiveObject::replicas);
        let live = found.and_then(Value::as_i64).and_then(|number| i32::try_from(number).ok()).or(shown);
        object.map_mut()["spec"]["replicas"] = number_of_pods(replicas, live).into();
    }
    Ok(Ok(object))
}

/// Whether an object depends on what it has now: on its key, on further keys, or on the type of a Secret.
fn depends_on_itself(desired: &Desired) -> bool {
    match &desired.origin {
        Origin::Issued(_) => true,
        Origin::Copied { kept, .. } => !kept.is_empty() || desired.name.0 == ObjectKind::Secret,
        Origin::Rendered | Origin::Composed(_) => false,
    }
}

/// Whether a certificate of the built-in CA has to be renewed.
fn is_due(known: &Known, desired: &Desired, live: Option<&Arc<LiveObject>>) -> bool {
    let renew_at = live.and_then(|live| live.renew_at());
    matches!(desired.origin, Origin::Issued(_)) && renew_at.is_some_and(|renew_at| renew_at <= known.now)
}

/// Why a Secret is not issued although nothing is missing: cert-manager would write it as well.
fn rival(known: &Known, desired: &Desired) -> Option<String> {
    let name = &desired.name.1;
    let is_rival = matches!(desired.origin, Origin::Issued(_))
        && known.live.contains_key(&(ObjectKind::Certificate, name.clone()));
    is_rival.then(|| {
        format!(
            "Certificate {name} exists, so cert-manager writes Secret {name}: delete the Certificate and keep the \
             Secret, or run with --pki=cert-manager"
        )
    })
}

/// The number of pods to send. A number that Tidegate does not decide stays as it is: an apply without it would make it
/// one.
fn number_of_pods(replicas: Replicas, live: Option<i32>) -> i32 {
    match replicas {
        Replicas::Fixed(number) => number,
        Replicas::OnCreation(number) => live.unwrap_or(number),
        Replicas::AtMost(number) => live.unwrap_or(number).min(number),
    }
}

/// Whether a Deployment has more pods than it may have.
fn is_too_large(desired: &Desired, live: Option<&LiveObject>) -> bool {
    match (desired.replicas, live.and_then(LiveObject::replicas)) {
        (Some(Replicas::AtMost(most)), Some(live)) => most < live,
        (Some(Replicas::Fixed(_) | Replicas::OnCreation(_) | Replicas::AtMost(_)) | None, _) => false,
    }
}

/// What an object waits for. `live` has the objects of its namespace, `keys` those whose content is known. Once it
/// exists, it does not wait for other Deployments.
pub(super) fn waits(
    issuance: Issuance,
    gates: &[Gate],
    exists: bool,
    live: &LiveObjects,
    keys: &BTreeMap<ObjectName, Keys>,
) -> Waits {
    let certificates: Vec<String> = gates.iter().filter_map(|gate| certificate(issuance, gate, live)).collect();
    if !certificates.is_empty() {
        return Waits { certificates, ..Waits::default() };
    }
    let deployments = gates.iter().filter(|_| !exists).filter_map(|gate| deployment(gate, live)).collect();
    Waits { certificates, keys: gates.iter().flat_map(|gate| missing_keys(gate, keys)).collect(), deployments }
}

fn certificate(issuance: Issuance, gate: &Gate, live: &LiveObjects) -> Option<String> {
    let Gate::Certificate(name) = gate else { return None };
    not_ready(issuance, name, live)
}

/// Why a certificate is not ready: one sentence; `None` if it is.
pub(super) fn not_ready(issuance: Issuance, name: &str, live: &LiveObjects) -> Option<String> {
    if issuance == Issuance::Builtin {
        let is_issued =
            live.get(&(ObjectKind::Secret, name.to_owned())).is_some_and(|found| found.renew_at().is_some());
        return (!is_issued).then(|| format!("the certificate in Secret {name} is not issued yet"));
    }
    match live.get(&(ObjectKind::Certificate, name.to_owned())).map(|found| &found.state) {
        Some(ObjectState::Certificate(Ok(()))) => None,
        Some(ObjectState::Certificate(Err(why))) => Some(format!("Certificate {name} is not ready: {why}")),
        Some(ObjectState::Plain | ObjectState::Issuer(_) | ObjectState::Deployment(_) | ObjectState::Issued(_))
        | None => Some(format!("Certificate {name} does not exist yet")),
    }
}

/// Why the CA of an issuer cannot sign: one sentence; `None` if it can, or if its Secret does not exist yet.
pub(super) fn unusable(issuer: &Issuer, live: &LiveObjects) -> Option<String> {
    let Issuer { name, secret, .. } = issuer;
    live.get(&(ObjectKind::Secret, secret.clone()))?;
    match &live.get(&(ObjectKind::Issuer, name.clone()))?.state {
        ObjectState::Issuer(Some(why)) => Some(format!("Issuer {name} cannot sign with Secret {secret}: {why}")),
        ObjectState::Issuer(None)
        | ObjectState::Plain
        | ObjectState::Certificate(_)
        | ObjectState::Deployment(_)
        | ObjectState::Issued(_) => None,
    }
}

/// What an object waits for because of a Deployment: one sentence; `None` if nothing.
pub(super) fn deployment(gate: &Gate, live: &LiveObjects) -> Option<String> {
    let Gate::Deployment { name, is_up } = gate else { return None };
    match live.get(&(ObjectKind::Deployment, name.clone())).map(|found| &found.state) {
        Some(ObjectState::Deployment(pods)) if *is_up && !pods.are_up() => {
            Some(format!("the pods of Deployment {name} are not ready"))
        }
        Some(
            ObjectState::Plain
            | ObjectState::Certificate(_)
            | ObjectState::Issuer(_)
            | ObjectState::Deployment(_)
            | ObjectState::Issued(_),
        ) => None,
        None => Some(format!("Deployment {name} does not exist yet")),
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

/// The Secrets and ConfigMaps that gates name.
pub(super) fn inputs(gates: &[Gate]) -> impl Iterator<Item = ObjectName> + '_ {
    gates.iter().filter_map(|gate| match gate {
        Gate::Key(Mounted { kind, name, .. }) => Some((input(kind)?, name.clone())),
        Gate::Certificate(_) | Gate::Deployment { .. } => None,
    })
}

/// The objects that gates name, whose changes wake the resource.
pub(super) fn named(gate: &Gate) -> Option<ObjectName> {
    match gate {
        Gate::Key(Mounted { kind, name, .. }) => Some((input(kind)?, name.clone())),
        Gate::Certificate(name) => Some((ObjectKind::Certificate, name.clone())),
        Gate::Deployment { name, .. } => Some((ObjectKind::Deployment, name.clone())),
    }
}

/// The digest of everything that an object mounts or contains: it changes if, and only if, one of these values does.
/// `None` while something is missing.
pub(super) fn digest_of_keys(gates: &[Gate], keys: &BTreeMap<ObjectName, Keys>) -> Option<Digest> {
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

/// How long an object that was applied may be missing in the watch. Afterwards only a read tells whether it exists: it
/// may have been deleted in the same moment.
pub(super) const UNSEEN: Duration = Duration::from_secs(5);

/// What happens to a desired object. `mark` is the label of its resource.
pub(super) fn step(
    desired: &Digest,
    live: Option<&LiveObject>,
    verified: Option<&Verified>,
    mark: &str,
    now: Timestamp,
) -> Step {
    match (live, verified) {
        (Some(live), _) if live.is_terminating => Step::Await,
        // The watch does not show it yet.
        (None, Some(verified)) if !verified.is_shown && now < verified.since + UNSEEN => {
            if verified.digest == *desired { Step::Keep } else { Step::Apply }
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
        (Some(live), None) if !live.is_adopted && live.digest.as_deref() != Some(desired.to_string().as_str()) => {
            Step::Apply
        }
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

// === impl Waits ===

impl Waits {
    /// Whether it waits for nothing.
    pub(super) fn is_empty(&self) -> bool {
        self.certificates.is_empty() && self.keys.is_empty() && self.deployments.is_empty()
    }
}

#[cfg(test)]
mod tests;
