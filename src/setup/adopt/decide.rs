//! Decides what a take-over of kcp landscapes writes next, and says what is left: decisions over values.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use serde_json::{Value, json};
use tidegate_cluster::{claimed_from_kcp_operator, is_of_kcp_operator};
use tidegate_core::{
    api::{
        names::{FIELD_MANAGER, annotation, label},
        setup::Kind,
        shared::ObjectMeta,
    },
    changes::overlay,
    landscape,
    name::Key,
    object::Object,
    plan::setup::{Known as KnownOfCluster, Plan, is_reserved_user, setup_mark},
    template::Templates,
};
use tidegate_diff::live::{applied_by, stripped};
use tidegate_process::ambient;

use super::{Act, DaemonTemplates, Facts, Place, Subject, words};
use crate::setup::{
    content, decide, desired, hold, names,
    object::{LiveObject, ObjectKind},
    state::{Desired, Issuance, Known, LiveObjects, ObjectName, Observed},
};

/// The groups of kcp-operator's resources.
const GROUPS: [&str; 2] = ["operator.kcp.io/", "deploy.operator.kcp.io/"];
/// The prefix of its labels.
const LABELS: &str = "operator.kcp.io/";
/// The label of the program that manages an object, and its name there.
const MANAGED_BY: (&str, &str) = ("app.kubernetes.io/managed-by", "kcp-operator");
/// The steps of a take-over.
const STEPS: usize = 5;

/// What is left to do, by object.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Left {
    /// Those with owners that are resources of kcp-operator.
    pub(crate) owned: BTreeSet<String>,
    /// Those without the label of their resource.
    pub(crate) unmarked: BTreeSet<String>,
    /// Those with fields of kcp-operator's field manager.
    pub(crate) claimed: BTreeSet<String>,
    /// Those that become as Tidegate renders them, with what differs.
    pub(crate) changing: BTreeMap<String, Vec<String>>,
    /// Those that no longer wait, because `--now` says so.
    pub(crate) released: BTreeSet<String>,
    /// Deployments and Certificates that differ from what Tidegate renders.
    pub(crate) differing: Vec<Waiting>,
    /// Those that are not handed over, and why: one sentence each.
    pub(crate) refused: Vec<String>,
    /// Resources of which nothing is handed over, or of which a template fails: one sentence each.
    pub(crate) skipped: BTreeSet<String>,
}

/// A Deployment or Certificate that differs from what Tidegate renders.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Waiting {
    /// The object.
    pub(crate) object: String,
    /// Its resource.
    pub(crate) resource: String,
    /// What differs.
    pub(crate) what: Vec<String>,
    /// Whether it waits for a change of its resource. Otherwise, the daemon applies it at once.
    pub(crate) waits: bool,
}

/// The writes of the first step that is not done; none if the take-over is complete. With `now`, no object waits for a
/// change of its resource.
pub(crate) fn next(facts: &Facts, templates: &DaemonTemplates, now: bool) -> Vec<Act> {
    let mut steps: [Vec<Act>; STEPS] = Default::default();
    for subject in subjects(facts, templates).0 {
        collect(&mut steps, facts, &subject, now);
    }
    steps.into_iter().find(|step| !step.is_empty()).unwrap_or_default()
}

/// What is left to do, from all steps.
pub(crate) fn left(facts: &Facts, templates: &DaemonTemplates, now: bool) -> Left {
    let mut left = Left::default();
    let mut after = facts.clone();
    // Each step is done at once.
    for _ in 0..STEPS {
        let acts = next(&after, templates, now);
        if acts.is_empty() {
            break;
        }
        for act in acts {
            let name = named(act.place());
            match &act {
                Act::Patch { frees, marks, .. } => {
                    let released = !*frees && !*marks;
                    let all = [(*frees, &mut left.owned), (*marks, &mut left.unmarked), (released, &mut left.released)];
                    for (_, names) in all.into_iter().filter(|(is, _)| *is) {
                        names.insert(name.clone());
                    }
                }
                // Or what Tidegate patched just now.
                Act::Claim(..) => left.claimed.extend([name]),
                Act::Apply(place, object, _) => {
                    let what = match after.objects.get(place) {
                        Some(live) => words::changes(live, object),
                        None => vec!["it is created".to_owned()],
                    };
                    left.changing.insert(name, what);
                }
            }
            imagine(&mut after, &act);
        }
    }
    let (subjects, skipped) = subjects(&after, templates);
    left.skipped = skipped;
    for subject in subjects {
        left.differing.extend(differing(&after, &subject));
        left.refused.extend(refusals(facts, &subject));
    }
    left
}

/// An object of a namespace as sentences name it.
pub(super) fn named((namespace, (kind, name)): &Place) -> String {
    format!("{} {namespace}/{name}", kind.as_str())
}

/// The effect of a write, as far as the decisions depend on it.
pub(super) fn imagine(facts: &mut Facts, act: &Act) {
    match act {
        Act::Patch { place, patch, .. } => {
            let Some(object) = facts.objects.get_mut(place) else { return };
            let mut value = object.value().clone();
            overlay(&mut value, patch);
            for map in ["labels", "annotations"] {
                if let Some(map) = value["metadata"].get_mut(map).and_then(Value::as_object_mut) {
                    map.retain(|_, value| !value.is_null());
                }
            }
            *object = Object::new(value).expect("it keeps its kind and name");
        }
        Act::Claim(place, object) => {
            let Some(value) = claimed_from_kcp_operator(object) else { return };
            facts.objects.insert(place.clone(), Object::new(value).expect("it keeps its kind and name"));
        }
        Act::Apply(place, object, _) => {
            let mut value = facts.objects.get(place).map(|live| live.value().clone()).unwrap_or_default();
            overlay(&mut value, object.value());
            facts.objects.insert(place.clone(), Object::new(value).expect("it keeps its kind and name"));
        }
    }
}

/// The resources with a plan, in the order of apply, and what is wrong with others: one sentence each. Those that are
/// being deleted keep what they have.
fn subjects<'a>(facts: &'a Facts, templates: &DaemonTemplates) -> (Vec<Subject<'a>>, BTreeSet<String>) {
    let mut live: BTreeMap<&str, LiveObjects> = BTreeMap::new();
    for ((namespace, name), object) in &facts.objects {
        let Ok(found) = serde_json::from_value(object.value().clone()) else { continue };
        let object = Arc::new(LiveObject::from_object(name.0, found));
        live.entry(namespace).or_default().insert(name.clone(), object);
    }
    let chained = chained(facts);
    let (mut subjects, mut skipped) = (Vec::new(), BTreeSet::new());
    for (kind, key) in facts.resources.ids() {
        let (Some(metadata), Some(plan)) =
            (facts.resources.metadata(kind, key), facts.resources.plan(kind, key, &chained))
        else {
            continue;
        };
        let plan = match obstacle(facts, kind, key, metadata) {
            Some(sentence) => Err(sentence),
            None => plan.map_err(|problem| {
                format!("{} {}: {}: {}; {}", problem.kind, problem.key, problem.field, problem.message, problem.hint)
            }),
        };
        let found = plan.and_then(|plan| Ok((plan, templates.of(kind, key, metadata)?)));
        let (plan, templates) = match found {
            Ok(found) => found,
            Err(sentence) => {
                skipped.insert(sentence);
                continue;
            }
        };
        let live = live.get(key.namespace()).cloned().unwrap_or_default();
        let (subject, failures) = subject(facts, templates, &plan, kind, key, live);
        skipped.extend(failures.into_iter().map(|failure| format!("{kind} {key}: {failure}")));
        subjects.push(subject);
    }
    (subjects, skipped)
}

/// Why the daemon makes nothing of a resource: one sentence; `None` if it does.
fn obstacle(facts: &Facts, kind: Kind, key: &Key, metadata: &ObjectMeta) -> Option<String> {
    if metadata.deletion_timestamp.is_some() {
        return Some(format!("{kind} {key} is being deleted: wait until it is gone, then run the command again"));
    }
    if landscape::annotation(metadata, annotation::CLUSTER).is_some() {
        return Some(format!(
            "{kind} {key} has the annotation `{}`, and only what is in the control plane can be taken over: remove the \
             annotation, and set it afterwards",
            annotation::CLUSTER
        ));
    }
    let kubeconfig = facts.resources.kubeconfigs.get(key).filter(|_| kind == Kind::Kubeconfig)?;
    let user = &kubeconfig.spec.username;
    is_reserved_user(user).then(|| {
        format!("{kind} {key}: spec.username: the user `{user}` is reserved for parts of kcp; use another name")
    })
}

/// The RootShards whose root CA is not self-signed.
fn chained(facts: &Facts) -> KnownOfCluster {
    let is_chained = |key: &&Key| {
        let ca = facts.resources.root_of(Kind::RootShard, key).map(|(_, ca)| (ObjectKind::Secret, ca));
        let secret = ca.and_then(|name| facts.objects.get(&(key.namespace().to_owned(), name)));
        secret.is_some_and(|secret| content::known("", &content::values(secret)).is_self_signed == Some(false))
    };
    let chained = facts.resources.root_shards.keys().filter(is_chained).cloned().collect();
    KnownOfCluster { chained, ..KnownOfCluster::default() }
}

fn subject<'a>(
    facts: &'a Facts,
    templates: &Templates,
    plan: &Plan,
    kind: Kind,
    key: &'a Key,
    live: LiveObjects,
) -> (Subject<'a>, Vec<String>) {
    let namespace = key.namespace();
    let (wanted, inputs, _) = names(plan);
    let mut observed = Observed::default();
    for name in inputs {
        let Some(object) = facts.objects.get(&(namespace.to_owned(), name.clone())) else { continue };
        let values = content::values(object);
        observed.keys.insert(name.clone(), content::known("", &values).keys);
        observed.values.insert(name, values);
    }
    let (desired, failures) = desired(templates, plan, &observed.keys, Issuance::CertManager);
    let known = Known {
        namespace: namespace.to_owned(),
        mark: setup_mark(kind, key.name()),
        place: None,
        around: None,
        verified: BTreeMap::new(),
        live,
        desired,
        definition: hold::definition(templates, plan).filter(|_| failures.is_empty()),
        wanted,
        // Nothing is pruned.
        is_complete: false,
        may_adopt: false,
        held: BTreeMap::new(),
        issuance: Issuance::CertManager,
        now: ambient::now(),
    };
    (Subject { kind, key, known, observed }, failures)
}

/// Adds the writes for the objects of a resource.
fn collect(steps: &mut [Vec<Act>; STEPS], facts: &Facts, subject: &Subject<'_>, now: bool) {
    let [free, claim, apply, mark, claim_last] = steps;
    for (place, object) in existing(facts, subject) {
        if facts.rejected.contains_key(&place) || !is_for(subject, object) {
            continue;
        }
        // Its mark names what it mounts, and that changes until then.
        let is_late = place.1.0 == ObjectKind::Deployment;
        let marking = marking(subject, &place.1, object, now);
        let owners = others_owners(object);
        match (owners, marking) {
            (Some(owners), marking) => {
                let marking = marking.filter(|_| !is_late);
                let marks = marking.is_some();
                let mut patch = marking.unwrap_or_else(|| json!({}));
                patch["metadata"]["ownerReferences"] = owners.into();
                free.push(write(&place, object, patch, true, marks));
            }
            (None, Some(marking)) => {
                let marks = marking["metadata"]["labels"].is_object();
                let step = if is_late { &mut *mark } else { &mut *free };
                step.push(write(&place, object, marking, false, marks));
            }
            (None, None) => {}
        }
        if claimed_from_kcp_operator(object).is_some() {
            let step = if is_late { &mut *claim_last } else { &mut *claim };
            step.push(Act::Claim(place, Box::new(object.clone())));
        }
    }
    apply.extend(applies(facts, subject));
}

fn write(place: &Place, object: &Object, mut patch: Value, frees: bool, marks: bool) -> Act {
    patch["metadata"]["resourceVersion"] = object.value()["metadata"]["resourceVersion"].clone();
    Act::Patch { place: place.clone(), patch, frees, marks }
}

/// The objects of a resource that exist and stay.
fn existing<'f>(facts: &'f Facts, subject: &Subject<'_>) -> impl Iterator<Item = (Place, &'f Object)> {
    let places = subject.known.wanted.iter().map(|name| (subject.known.namespace.clone(), name.clone()));
    let found = places.filter_map(|place| facts.objects.get(&place).map(|object| (place, object)));
    found
        .filter(|(_, object)| object.value()["metadata"]["deletionTimestamp"].is_null())
        .collect::<Vec<_>>()
        .into_iter()
}

/// Whether an object is of the resource, or of kcp-operator, which had it for the resource.
fn is_for(subject: &Subject<'_>, object: &Object) -> bool {
    match object.label(label::SETUP) {
        Some(mark) => mark == subject.known.mark,
        None => is_recognized(object),
    }
}

/// Whether an object without the label is of kcp-operator: by owner, label or field manager. A take-over that was cut
/// off may have made the manager Tidegate.
fn is_recognized(object: &Object) -> bool {
    let labels = object.value()["metadata"]["labels"].as_object();
    let is_labelled = labels.is_some_and(|labels| labels.keys().any(|name| name.starts_with(LABELS)));
    let entries = object.value()["metadata"]["managedFields"].as_array().into_iter().flatten();
    let mut entries = entries.filter(|entry| entry["operation"] == "Apply");
    others_owners(object).is_some()
        || object.label(MANAGED_BY.0) == Some(MANAGED_BY.1)
        || is_labelled
        || is_of_kcp_operator(object)
        || entries.any(|entry| entry["manager"] == FIELD_MANAGER)
}

/// The owners of an object without those that are resources of kcp-operator; `None` if it has none of these.
fn others_owners(object: &Object) -> Option<Vec<Value>> {
    let owners = object.value()["metadata"]["ownerReferences"].as_array()?;
    let is_of_operator = |owner: &&Value| {
        owner["apiVersion"].as_str().is_some_and(|api| GROUPS.iter().any(|group| api.starts_with(group)))
    };
    owners
        .iter()
        .any(|owner| is_of_operator(&owner))
        .then(|| owners.iter().filter(|owner| !is_of_operator(owner)).cloned().collect())
}

/// The patch that marks an object, or that lets it no longer wait; `None` if nothing changes.
fn marking(subject: &Subject<'_>, name: &ObjectName, object: &Object, now: bool) -> Option<Value> {
    if object.label(label::SETUP).is_some() {
        let is_released = now && hold::is_adopted(|name| object.annotation(name));
        return is_released.then(|| json!({ "metadata": { "annotations": { annotation::ADOPTED_AS: null } } }));
    }
    let mut patch = json!({ "metadata": { "labels": { label::SETUP: subject.known.mark } } });
    if now || !hold::is_holdable(name.0) {
        return Some(patch);
    }
    // Where a template fails, it is not known what the daemon would change.
    let definition = subject.known.definition.as_ref()?;
    let desired = of(subject, name)?;
    if name.0 == ObjectKind::Certificate {
        keep_its_key(&mut patch, desired.object.value(), object.value());
    }
    let mut after = object.value().clone();
    overlay(&mut after, &patch);
    let noted = hold::adopted_as(definition, desired, &after).to_string();
    let mut annotations = json!({ annotation::ADOPTED_AS: noted });
    if object.annotation(annotation::DIGEST).is_some() {
        annotations[annotation::DIGEST] = Value::Null;
    }
    patch["metadata"]["annotations"] = annotations;
    Some(patch)
}

/// Adds to a patch of a Certificate what changes neither the certificate nor its key: whether a renewal replaces the
/// key, and the labels and annotations of the Secret.
fn keep_its_key(patch: &mut Value, desired: &Value, live: &Value) {
    let policy = &desired["spec"]["privateKey"]["rotationPolicy"];
    if policy.is_string() && *policy != live["spec"]["privateKey"]["rotationPolicy"] {
        patch["spec"]["privateKey"]["rotationPolicy"] = policy.clone();
    }
    let template = &desired["spec"]["secretTemplate"];
    if template.is_object() && !tidegate_core::changes::covers(template, &live["spec"]["secretTemplate"]) {
        patch["spec"]["secretTemplate"] = template.clone();
    }
}

fn of<'s>(subject: &'s Subject<'_>, name: &ObjectName) -> Option<&'s Desired> {
    subject.known.desired.iter().find(|desired| desired.name == *name)
}

/// What the daemon would apply that restarts no pod. Secrets and ConfigMaps that do not exist are created, because pods
/// may mount them.
fn applies(facts: &Facts, subject: &Subject<'_>) -> Vec<Act> {
    let namespace = &subject.known.namespace;
    let place = |name: &ObjectName| (namespace.clone(), name.clone());
    let is_applied = |desired: &&Desired| {
        let exists = facts.objects.contains_key(&place(&desired.name));
        !hold::is_holdable(desired.name.0)
            && (exists || desired.name.0.is_input())
            && !facts.rejected.contains_key(&place(&desired.name))
    };
    let desired = subject.known.desired.iter().filter(is_applied).cloned().collect();
    let known = Known { desired, ..subject.known.clone() };
    let mut observed = subject.observed.clone();
    let mut acts = Vec::new();
    loop {
        match decide::next(&known, &observed) {
            decide::Next::End(_) => return acts,
            decide::Next::Do(decide::Act::Learn(name)) => {
                let values = facts.objects.get(&place(&name)).map(content::values).unwrap_or_default();
                observed.values.insert(name, values);
            }
            decide::Next::Do(decide::Act::Read(name)) => {
                let found = facts.objects.get(&place(&name)).cloned();
                observed.found.insert(name, found);
            }
            decide::Next::Do(decide::Act::Apply(name, object, _, on_conflict)) => {
                acts.push(Act::Apply(place(&name), object, on_conflict));
                observed.applied.insert(name, Ok(()));
            }
            // The view is not complete.
            decide::Next::Do(decide::Act::Delete(name, _)) => observed.deleted.extend([name]),
        }
    }
}

/// The Deployments and Certificates of a resource that differ from what Tidegate renders.
fn differing(facts: &Facts, subject: &Subject<'_>) -> Vec<Waiting> {
    let of_object = |(place, object): (Place, &Object)| {
        let desired = of(subject, &place.1).filter(|_| hold::is_holdable(place.1.0) && is_for(subject, object))?;
        if object.annotation(annotation::DIGEST).is_some() {
            return None;
        }
        let before = stripped(object.value());
        let mut wanted = desired.object.value().clone();
        if desired.replicas.is_some() {
            // The number of pods stays.
            wanted["spec"]["replicas"] = before["spec"]["replicas"].clone();
        }
        let after = applied_by(object.value(), &wanted, &[FIELD_MANAGER]);
        let what = words::differences(&before["spec"], &after["spec"]);
        let waits = hold::is_held(subject.known.definition.as_ref(), desired, object);
        let resource = format!("{} {}", subject.kind, subject.key.name());
        (!what.is_empty()).then(|| Waiting { object: named(&place), resource, what, waits })
    };
    existing(facts, subject).filter_map(of_object).collect()
}

/// Why objects with the names of the resource's are not handed over.
fn refusals(facts: &Facts, subject: &Subject<'_>) -> Vec<String> {
    let metadata = facts.resources.metadata(subject.kind, subject.key);
    let is_let = metadata.is_some_and(|found| landscape::annotation(found, annotation::ADOPT) == Some("true"));
    // The daemon takes these over.
    let may_be_adopted = |object: &Object| {
        let has_owners = object.value()["metadata"]["ownerReferences"].as_array().is_some_and(|all| !all.is_empty());
        !has_owners && (is_let || object.annotation(annotation::ADOPT) == Some("true"))
    };
    let of_object = |(place, object): (Place, &Object)| {
        let name = named(&place);
        match object.label(label::SETUP) {
            Some(mark) if mark == subject.known.mark => None,
            Some(mark) => {
                Some(format!("{name} belongs to {mark}, whose label it bears: rename one of the two resources"))
            }
            None if is_recognized(object) || may_be_adopted(object) => None,
            None => Some(format!(
                "{name} is not of kcp-operator and stays as it is: delete or rename it, or annotate it with \
                 `{}: \"true\"`",
                annotation::ADOPT
            )),
        }
    };
    existing(facts, subject).filter_map(of_object).collect()
}
