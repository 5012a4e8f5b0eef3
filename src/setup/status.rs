//! The status of a resource of a kcp landscape. Pure.
//!
//! Phases, types and reasons are those of kcp-operator, because tools depend on them. Conditions of Tidegate's own
//! begin with `tidegate.dev/`; one that is `False` names what is missing.

use std::collections::BTreeSet;

use k8s_openapi::jiff::Timestamp;
use serde_json::{Map, Value, json};
use tidegate_core::{
    api::{
        names::annotation,
        setup::{Kind, LocalRef},
        shared::{Condition, ObjectMeta, Time},
    },
    conditions::{
        self, Status,
        setup::{
            CERTIFICATES, CLUSTER, DELETION, KCP, KEY, MISSING_IN_KCP, MOUNTS, OBJECTS, PLACES, TRUST, UNUSABLE, VALID,
        },
    },
    diagnostic::Severity,
    landscape::{annotation as annotation_of, setup::Resources},
    name::Key,
    plan::{
        certificate::Authority,
        setup::{Plan, Problem},
    },
    status::seconds,
};

use super::{
    decide::{self, Outcome},
    inside::{Report, State},
    object::{ObjectKind, ObjectState},
    place::{Place, Placement, write_places},
    state::{Issuance, LiveObjects, ObjectName},
};
use crate::gateway::pki;

/// Upstream's condition about pods, and about the Secret of a Kubeconfig.
const AVAILABLE: &str = "Available";
/// Length of a message that the API server accepts, in bytes.
const MESSAGE_BYTES_MAX: usize = 32_768;

/// What the status of a resource says.
pub(super) struct Facts<'a> {
    pub(super) kind: Kind,
    pub(super) key: &'a Key,
    pub(super) resources: &'a Resources,
    pub(super) metadata: &'a ObjectMeta,
    /// The plan, or why there is none.
    pub(super) plan: Result<&'a Plan, &'a Problem>,
    /// All rules that the resource violates.
    pub(super) problems: &'a [Problem],
    /// What became of each object.
    pub(super) outcomes: &'a [(ObjectName, Outcome)],
    /// Templates that failed: one sentence each.
    pub(super) failures: &'a [String],
    pub(super) live: &'a LiveObjects,
    /// Who issues certificates.
    pub(super) issuance: Issuance,
    /// What became of what it asks for inside kcp.
    pub(super) inside: &'a Report,
    /// Its CAs and keys that are being replaced: one sentence each.
    pub(super) replaced: &'a [String],
    /// The certificate of its key of service accounts, if that is known and no former one is to be remembered.
    pub(super) last_key: Option<&'a Authority>,
    /// What became of its objects in other clusters.
    pub(super) placement: &'a Placement,
    /// What its deletion waits for, if it is being deleted.
    pub(super) leaving: Option<&'a str>,
}

/// The status, after the one before. That of a CacheServer goes into an annotation.
pub(super) fn status(facts: &Facts<'_>, before: &Value, now: Timestamp) -> Value {
    let all: Vec<Condition> = serde_json::from_value(before["conditions"].clone()).unwrap_or_default();
    let mut conditions = Conditions { all, generation: facts.metadata.generation, now: Time(seconds(now)) };
    facts.own_conditions(&mut conditions);
    facts.reference(&mut conditions);
    let is_up = facts.available(&mut conditions);
    let mut status = Map::new();
    status.insert("conditions".to_owned(), json!(conditions.all));
    let is_leaving = facts.metadata.deletion_timestamp.is_some();
    let phase = match (is_leaving, is_up) {
        (true, _) => "Deleting",
        (false, true) => "Running",
        (false, false) => "Provisioning",
    };
    match facts.kind {
        Kind::CacheServer | Kind::VirtualWorkspace => {}
        Kind::FrontProxy | Kind::Shard => {
            status.insert("phase".to_owned(), phase.into());
        }
        Kind::RootShard => {
            status.insert("phase".to_owned(), phase.into());
            let shards = facts.resources.shards_of(facts.key).map(|(key, _)| json!({"name": key.name()}));
            let shards: Vec<Value> = shards.collect();
            if !shards.is_empty() {
                status.insert("shards".to_owned(), shards.into());
            }
        }
        Kind::Kubeconfig => {
            let phase = match (&facts.plan, is_up) {
                (Err(_), _) => "Failed",
                (Ok(_), true) => "Ready",
                (Ok(_), false) => "Provisioning",
            };
            status.insert("phase".to_owned(), phase.into());
            if let Some(provisioned) = &facts.inside.provisioned {
                status.insert("authorization".to_owned(), json!({ "provisionedCluster": provisioned }));
            }
            if let Some(target) = facts.target() {
                status.insert("targetName".to_owned(), target.into());
            }
        }
    }
    Value::Object(status)
}

/// The status of a resource whose last pass failed before it had one: what was known, and why it failed. The next pass
/// that ends by itself judges the condition again.
pub(super) fn failed(before: &Value, generation: Option<i64>, reason: &str, message: &str, now: Timestamp) -> Value {
    let all: Vec<Condition> = serde_json::from_value(before["conditions"].clone()).unwrap_or_default();
    let mut conditions = Conditions { all, generation, now: Time(seconds(now)) };
    conditions.set(OBJECTS, false, reason, message);
    let mut status = before.as_object().cloned().unwrap_or_default();
    status.insert("conditions".to_owned(), json!(conditions.all));
    Value::Object(status)
}

/// The same status with other clusters that may have objects of the resource.
pub(super) fn with_places(before: &Value, places: &BTreeSet<Place>, generation: Option<i64>, now: Timestamp) -> Value {
    let all: Vec<Condition> = serde_json::from_value(before["conditions"].clone()).unwrap_or_default();
    let mut conditions = Conditions { all, generation, now: Time(seconds(now)) };
    conditions.set_places(places);
    let mut status = before.as_object().cloned().unwrap_or_default();
    status.insert("conditions".to_owned(), json!(conditions.all));
    Value::Object(status)
}

/// The certificate of the last key of service accounts that a pass has recorded. Others may have written it.
pub(super) fn recorded_key(status: &Value) -> Option<Authority> {
    let all: Vec<Condition> = serde_json::from_value(status["conditions"].clone()).unwrap_or_default();
    pki::read_first(conditions::message(&all, KEY)?.as_bytes()).ok()
}

/// What is wrong with a resource, for its Event and the log: one sentence; `None` if nothing is.
pub(super) fn problem(facts: &Facts<'_>) -> Option<String> {
    let broken = facts.problems.iter().filter(|problem| problem.severity == Severity::Error).map(sentence);
    let refused = facts.outcomes.iter().filter_map(|(_, outcome)| match outcome {
        Outcome::Refused(sentence) | Outcome::Unusable(sentence) => Some(sentence.clone()),
        Outcome::Well | Outcome::Waits(_) | Outcome::Leaves | Outcome::Stays => None,
    });
    let unplaced = facts.placement.state.iter().filter_map(|state| state.clone().err());
    broken.chain(facts.failures.iter().cloned()).chain(refused).chain(unplaced).next()
}

/// Whether a status only says that the work goes on: nothing is wrong, and the resource neither was nor is available.
/// Most of what it names is there a moment later.
pub(super) fn is_under_way(facts: &Facts<'_>, before: &Value, after: &Value) -> bool {
    let is_available = |status: &Value| {
        let mut conditions = status["conditions"].as_array().into_iter().flatten();
        conditions.any(|condition| condition["type"] == AVAILABLE && condition["status"] == "True")
    };
    let is_planned = facts.plan.is_ok() && facts.leaving.is_none() && facts.problems.is_empty();
    let is_well = is_planned && problem(facts).is_none() && !matches!(facts.inside.state, State::Missing(_));
    // What is to be removed inside kcp is noted before it is made.
    is_well && before["authorization"] == after["authorization"] && !is_available(before) && !is_available(after)
}

fn sentence(problem: &Problem) -> String {
    format!("{}: {}; {}", problem.field, problem.message, problem.hint)
}

/// The conditions while they are written.
struct Conditions {
    all: Vec<Condition>,
    generation: Option<i64>,
    now: Time,
}

// === impl Conditions ===

impl Conditions {
    fn set(&mut self, type_: &str, holds: bool, reason: &str, message: &str) {
        let mut end = message.len().min(MESSAGE_BYTES_MAX);
        while !message.is_char_boundary(end) {
            end -= 1;
        }
        let status = if holds { Status::True } else { Status::False };
        conditions::set(&mut self.all, type_, status, reason, &message[..end], self.generation, &self.now);
    }

    /// False with these sentences, or true if there is none.
    fn judge(&mut self, type_: &str, problems: &[String], reason: &str, well: (&str, &str)) {
        match problems {
            [] => self.set(type_, true, well.0, well.1),
            problems => self.set(type_, false, reason, &problems.join("; ")),
        }
    }

    /// Names the clusters that may have objects of the resource.
    fn set_places(&mut self, places: &BTreeSet<Place>) {
        match places.is_empty() {
            true => self.remove(PLACES),
            false => self.set(PLACES, true, "Recorded", &write_places(places)),
        }
    }

    fn remove(&mut self, type_: &str) {
        conditions::remove(&mut self.all, type_);
    }
}

// === impl Facts ===

impl Facts<'_> {
    fn own_conditions(&self, conditions: &mut Conditions) {
        let broken: Vec<String> =
            self.problems.iter().filter(|problem| problem.severity == Severity::Error).map(sentence).collect();
        conditions.judge(VALID, &broken, "InvalidDefinition", ("Valid", "the definition is valid"));
        let requested = annotation_of(self.metadata, annotation::RECONCILE_REQUESTED_AT);
        if let Some(requested) = requested {
            conditions.set(conditions::RECONCILE_REQUESTED, true, conditions::RECONCILE_REQUESTED_REASON, requested);
        }
        match self.leaving {
            Some(waits) => conditions.set(DELETION, false, "Waiting", waits),
            None => conditions.remove(DELETION),
        }
        match &self.placement.state {
            Some(Ok(sentence)) => conditions.set(CLUSTER, true, "Placed", sentence),
            Some(Err(sentence)) => conditions.set(CLUSTER, false, "NotReached", sentence),
            None => conditions.remove(CLUSTER),
        }
        conditions.set_places(&self.placement.places);
        match &self.inside.state {
            State::Nothing => conditions.remove(KCP),
            State::Well => conditions.set(KCP, true, "Granted", "its ClusterRoleBindings are inside kcp"),
            State::Missing(sentence) => conditions.set(KCP, false, MISSING_IN_KCP, sentence),
            State::Waits(sentence) => conditions.set(KCP, false, "Waiting", sentence),
        }
        match self.replaced {
            [] => conditions.remove(TRUST),
            all => conditions.set(TRUST, false, "Replacing", &all.join("; ")),
        }
        if let Some(key) = self.last_key {
            conditions.set(KEY, true, "Recorded", &pki::write_certificates([key]));
        }
        let Ok(plan) = self.plan else { return };
        if self.leaving.is_some() {
            return;
        }
        let not_ready =
            plan.certificates.iter().filter_map(|found| decide::not_ready(self.issuance, &found.name, self.live));
        let not_ready: Vec<String> = not_ready.collect();
        let well = ("Ready", "all certificates are ready");
        conditions.judge(CERTIFICATES, &not_ready, "CertificateNotReady", well);
        let (mut missing, mut refused) = (Vec::new(), self.failures.to_vec());
        let mut unusable: Vec<String> = match self.issuance {
            Issuance::CertManager => {
                plan.issuers.iter().filter_map(|issuer| decide::unusable(issuer, self.live)).collect()
            }
            Issuance::Builtin => Vec::new(),
        };
        for (_, outcome) in self.outcomes {
            match outcome {
                Outcome::Waits(waits) => missing.extend(waits.keys.iter().chain(&waits.deployments).cloned()),
                Outcome::Unusable(sentence) => unusable.push(sentence.clone()),
                Outcome::Refused(sentence) => refused.push(sentence.clone()),
                Outcome::Well | Outcome::Leaves | Outcome::Stays => {}
            }
        }
        missing.sort();
        missing.dedup();
        let reason = if unusable.is_empty() { "Missing" } else { UNUSABLE };
        // What is unusable first: the rest may follow from it.
        unusable.sort();
        unusable.dedup();
        unusable.extend(missing);
        let left_out = &self.placement.left_out;
        if unusable.is_empty() {
            let well = ["everything that its objects need exists".to_owned()];
            let message = well.iter().chain(left_out).map(String::as_str).collect::<Vec<_>>().join("; ");
            conditions.set(MOUNTS, true, "Complete", &message);
        } else {
            unusable.extend(left_out.iter().cloned());
            conditions.set(MOUNTS, false, reason, &unusable.join("; "));
        }
        conditions.judge(OBJECTS, &refused, "NotApplied", ("Applied", "its objects are applied, or wait for others"));
    }

    /// Upstream's condition about what a resource refers to.
    fn reference(&self, conditions: &mut Conditions) {
        let (type_, reasons) = match self.kind {
            Kind::CacheServer | Kind::RootShard => return,
            Kind::Shard | Kind::FrontProxy => ("RootShard", ("Valid", "InvalidReference")),
            Kind::VirtualWorkspace | Kind::Kubeconfig => ("ReferenceValid", ("ReferenceValid", "ReferenceNotFound")),
        };
        match self.plan {
            Ok(_) => conditions.set(type_, true, reasons.0, "all references are valid"),
            Err(problem) => conditions.set(type_, false, reasons.1, &sentence(problem)),
        }
    }

    /// Upstream's condition about pods, and about the Secret of a Kubeconfig. Returns whether it holds.
    fn available(&self, conditions: &mut Conditions) -> bool {
        let (holds, reason, message) = match self.kind {
            Kind::Kubeconfig => self.secret(),
            Kind::CacheServer | Kind::RootShard | Kind::FrontProxy | Kind::Shard | Kind::VirtualWorkspace => {
                if let Some(before) = self.unknown(conditions) {
                    return before;
                }
                self.pods()
            }
        };
        conditions.set(AVAILABLE, holds, reason, &message);
        holds
    }

    /// What was known of the pods before, while the cluster that has them has not answered since the start.
    fn unknown(&self, conditions: &Conditions) -> Option<bool> {
        let planned = (ObjectKind::Deployment, self.plan.ok()?.deployments.first()?.name.clone());
        let is_unknown = matches!(self.placement.state, Some(Err(_))) && !self.live.contains_key(&planned);
        let before = conditions::find(&conditions.all, AVAILABLE).filter(|_| is_unknown)?;
        Some(before.status == Status::True.as_str())
    }

    fn pods(&self) -> (bool, &'static str, String) {
        let planned = self.plan.ok().and_then(|plan| plan.deployments.first());
        let Some(planned) = planned else {
            return (false, "DeploymentUnavailable", "its Deployment has no plan".to_owned());
        };
        let name = format!("Deployment {}/{}", self.key.namespace(), planned.name);
        match self.live.get(&(ObjectKind::Deployment, planned.name.clone())).map(|found| &found.state) {
            Some(ObjectState::Deployment(pods)) if pods.are_up() => {
                (true, "ReplicasUp", format!("{name} is fully up and running."))
            }
            Some(
                ObjectState::Plain
                | ObjectState::Certificate(_)
                | ObjectState::Issuer(_)
                | ObjectState::Deployment(_)
                | ObjectState::Issued(_),
            ) => (false, "ReplicasUnavailable", format!("{name} is not fully up and running.")),
            None => (false, "DeploymentUnavailable", format!("{name} does not exist.")),
        }
    }

    fn secret(&self) -> (bool, &'static str, String) {
        let Ok(plan) = self.plan else {
            return (false, "ClientCertificateSecretNotReady", "its reference is invalid".to_owned());
        };
        // The built-in CA writes another one, with the client certificate.
        let planned: Option<ObjectName> = plan.secrets.first().map(|secret| (ObjectKind::Secret, secret.name.clone()));
        let secret = |(name, _): &&(ObjectName, Outcome)| planned.as_ref() == Some(name);
        match self.outcomes.iter().find(secret).map(|(_, outcome)| outcome) {
            Some(Outcome::Well) => (true, "SecretsReady", "the kubeconfig is in its Secret".to_owned()),
            Some(Outcome::Unusable(sentence) | Outcome::Refused(sentence)) => {
                (false, "ServerCASecretError", sentence.clone())
            }
            Some(Outcome::Waits(waits)) => {
                let own = plan.certificates.first().map_or("", |certificate| certificate.name.as_str());
                let is_own = !waits.certificates.is_empty() || waits.keys.iter().any(|missing| missing.contains(own));
                let reason = if is_own { "ClientCertificateSecretNotReady" } else { "ServerCASecretNotReady" };
                let all = waits.certificates.iter().chain(&waits.keys).cloned().collect::<Vec<_>>();
                (false, reason, all.join("; "))
            }
            Some(Outcome::Leaves | Outcome::Stays) | None => {
                (false, "ClientCertificateSecretNotReady", "its Secret is not written yet".to_owned())
            }
        }
    }

    /// What a Kubeconfig leads to.
    fn target(&self) -> Option<String> {
        let target = &self.resources.kubeconfigs.get(self.key)?.spec.target;
        let of = |kind: Kind, reference: Option<&LocalRef>| {
            reference.filter(|found| !found.name.is_empty()).map(|found| format!("{kind}/{}", found.name))
        };
        of(Kind::RootShard, target.root_shard_ref.as_ref())
            .or_else(|| of(Kind::Shard, target.shard_ref.as_ref()))
            .or_else(|| of(Kind::FrontProxy, target.front_proxy_ref.as_ref()))
    }
}

#[cfg(test)]
mod tests;
