use std::collections::BTreeSet;

use serde_json::json;
use tidegate_core::{
    api::setup::Kind,
    diagnostic::Diagnostics,
    landscape::SourceName,
    plan::setup::{DefaultImage, Gate, Known as KnownOfCluster, Mounted, setup_mark},
    template::{Engine, Library, TemplateFile, Templates},
    yaml,
};

use super::{decide::named, *};
use crate::setup::{
    content,
    decide::{self as pass, Next, Outcome},
    desired, hold, names,
    object::{LiveObject, ObjectKind},
    state::{Issuance, LiveObjects},
};

const EXAMPLE: &str = include_str!("../../../examples/kcp/landscape.yaml");
const NAMESPACE: &str = "kcp-system";

fn place(kind: ObjectKind, name: &str) -> Place {
    (NAMESPACE.to_owned(), (kind, name.to_owned()))
}

fn resources(change: &dyn Fn(&mut Value)) -> Resources {
    let mut resources = Resources::default();
    for node in yaml::parse(EXAMPLE, &yaml::Limits::default()).expect("YAML") {
        let mut value = node.to_json();
        change(&mut value);
        let key = Key::new(NAMESPACE, value["metadata"]["name"].as_str().expect("a name"));
        let kind = Kind::ALL.into_iter().find(|kind| value["kind"] == kind.as_str()).expect("a kind");
        resources.insert(kind, &key, value).expect("a resource");
    }
    resources
}

/// A rendered object as kcp-operator makes it: without Tidegate's marks, with an owner, by an update.
fn of_operator(mut value: Value) -> Value {
    let metadata = value["metadata"].as_object_mut().expect("metadata");
    metadata.remove("annotations");
    metadata["labels"].as_object_mut().expect("labels").remove("tidegate.dev/setup");
    let owner = json!({"apiVersion": "operator.kcp.io/v1alpha1", "kind": "RootShard", "name": "any", "uid": "1"});
    metadata.insert("ownerReferences".to_owned(), json!([owner]));
    let (uid, version) = (json!("uid"), json!("1"));
    metadata.insert("uid".to_owned(), uid);
    metadata.insert("resourceVersion".to_owned(), version);
    let fields = json!({"f:spec": {}});
    let entry = json!({"manager": "manager", "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1"});
    let mut entry = entry;
    entry["fieldsV1"] = fields;
    metadata.insert("managedFields".to_owned(), json!([entry]));
    match value["kind"].as_str() {
        Some("Certificate") => {
            value["spec"]["privateKey"].as_object_mut().expect("a key").remove("rotationPolicy");
            let labels = value["spec"]["secretTemplate"]["labels"].as_object_mut().expect("labels");
            labels.remove("tidegate.dev/setup");
        }
        Some("Deployment") => {
            let pod = &mut value["spec"]["template"];
            pod["metadata"].as_object_mut().expect("metadata").remove("annotations");
            let labels = pod["metadata"]["labels"].as_object_mut().expect("labels");
            labels.remove("tidegate.dev/setup");
            labels.insert("operator.kcp.io/secret-0-rev".to_owned(), json!("17"));
            for volume in pod["spec"]["volumes"].as_array_mut().expect("volumes") {
                if let Some(secret) = volume["secret"].as_object_mut() {
                    secret.remove("items");
                }
            }
            let claimed = json!({"f:metadata": {"f:labels": {"f:operator.kcp.io/secret-0-rev": {}}}});
            value["metadata"]["managedFields"][0]["fieldsV1"] = json!({"f:spec": {"f:template": claimed}});
        }
        _ => {}
    }
    value
}

/// The templates of a daemon without overrides.
fn embedded() -> DaemonTemplates {
    DaemonTemplates::new(Library::new(Templates::embedded()))
}

/// The landscape of the example as kcp-operator made it, with the Secrets of cert-manager. Of kubeconfigs with
/// certificates, and of bundles, the values are missing.
fn made() -> Facts {
    made_of(resources(&|_| {}))
}

/// The same, of these resources.
fn made_of(resources: Resources) -> Facts {
    let (plans, problems) = resources.plans(&KnownOfCluster::default());
    assert_eq!(problems, []);
    let mut facts = Facts { resources, ..Facts::default() };
    for plan in &plans {
        let (desired, failures) =
            crate::setup::desired(&Templates::embedded(), plan, &BTreeMap::new(), Issuance::CertManager);
        assert_eq!(failures, [""; 0]);
        for found in desired {
            let object = Object::new(of_operator(found.object.into_value())).expect("an object");
            facts.objects.insert((NAMESPACE.to_owned(), found.name), object);
        }
        for certificate in &plan.certificates {
            let labels = json!({"operator.kcp.io/rootshard": "main"});
            let metadata = json!({"name": certificate.name, "namespace": NAMESPACE, "labels": labels,
                "uid": "uid", "resourceVersion": "1"});
            let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata,
                "data": {"tls.crt": "", "tls.key": "", "ca.crt": ""}});
            let at = place(ObjectKind::Secret, &certificate.name);
            facts.objects.insert(at, Object::new(secret).expect("an object"));
        }
    }
    facts
}

/// Plays the control plane until nothing is left to do. Returns the steps.
fn play(facts: &mut Facts, now: bool) -> Vec<Vec<Act>> {
    play_with(facts, &embedded(), now)
}

fn play_with(facts: &mut Facts, templates: &DaemonTemplates, now: bool) -> Vec<Vec<Act>> {
    let mut steps = Vec::new();
    loop {
        let acts = next(facts, templates, now);
        if acts.is_empty() {
            return steps;
        }
        acts.iter().for_each(|act| decide::imagine(facts, act));
        steps.push(acts);
        assert!(steps.len() <= 5, "{:?}", steps.last());
    }
}

fn said(act: &Act) -> String {
    let verb = match act {
        Act::Patch { .. } => "patch",
        Act::Claim(..) => "claim",
        Act::Apply(..) => "apply",
    };
    format!("{verb} {}", named(act.place()))
}

fn is_of(kind: ObjectKind) -> impl Fn(&&Act) -> bool {
    move |act| act.place().1.0 == kind
}

#[test]
fn owners_go_first_and_deployments_are_marked_last() {
    let mut facts = made();
    let all = facts.objects.clone();
    let steps = play(&mut facts, false);
    assert_eq!(steps.len(), 5);
    let owned = |value: &Value| !value["metadata"]["ownerReferences"].is_null();
    let with_owners = all.values().filter(|object| owned(object.value())).count();
    let patched = |act: &Act, field: &str| match act {
        Act::Patch { patch, .. } => patch["metadata"][field].is_array() || patch["metadata"][field].is_object(),
        Act::Claim(..) | Act::Apply(..) => false,
    };
    assert_eq!(steps[0].iter().filter(|act| patched(act, "ownerReferences")).count(), with_owners);
    assert_eq!(steps[0].len(), all.len(), "each object is written once in the first step");
    assert!(!steps[0].iter().filter(is_of(ObjectKind::Deployment)).any(|act| patched(act, "labels")));
    for act in steps.iter().flatten() {
        if let Act::Patch { patch, .. } = act {
            assert_eq!(patch["metadata"]["resourceVersion"], "1", "{}", said(act));
        }
    }
    assert!(steps[1].iter().all(|act| matches!(act, Act::Claim(..))));
    assert!(steps[2].iter().all(|act| matches!(act, Act::Apply(..))));
    assert!(!steps[2].iter().any(|act| is_of(ObjectKind::Deployment)(&act) || is_of(ObjectKind::Certificate)(&act)));
    let names = |acts: &[Act]| acts.iter().map(said).collect::<Vec<_>>();
    let deployments = [
        "cache-cache-server",
        "main-kcp",
        "main-proxy",
        "public-front-proxy",
        "eu-shard-kcp",
        "eu-workspaces-virtual-workspace",
    ];
    let of = |verb: &str| deployments.map(|name| format!("{verb} Deployment kcp-system/{name}"));
    assert_eq!(names(&steps[3]), of("patch"));
    assert_eq!(names(&steps[4]), of("claim"));
    for (place, object) in &facts.objects {
        assert!(object.label("tidegate.dev/setup").is_some(), "{}", named(place));
        assert_eq!(object.value()["metadata"]["ownerReferences"].as_array().map_or(0, Vec::len), 0, "{}", named(place));
    }
}

#[test]
fn deployments_and_certificates_stay_but_for_what_restarts_and_issues_nothing() {
    let mut facts = made();
    let all = facts.objects.clone();
    play(&mut facts, false);
    let mut kept = 0;
    for (place, object) in facts.objects.iter().filter(|(place, _)| place.1.0 == ObjectKind::Deployment) {
        assert_eq!(object.value()["spec"], all[place].value()["spec"], "{}", named(place));
        assert!(object.annotation("tidegate.dev/adopted-as").is_some());
        kept += 1;
    }
    assert_eq!(kept, 6);
    for (place, object) in facts.objects.iter().filter(|(place, _)| place.1.0 == ObjectKind::Certificate) {
        let mut spec = object.value()["spec"].clone();
        assert!(object.annotation("tidegate.dev/adopted-as").is_some());
        let labels = spec["secretTemplate"]["labels"].as_object_mut().expect("labels");
        assert_eq!(labels.remove("tidegate.dev/setup").as_ref(), Some(&json!(object.label("tidegate.dev/setup"))));
        let policy = spec["privateKey"].as_object_mut().expect("a key").remove("rotationPolicy");
        let is_kept = place.1.1.ends_with("-ca") || place.1.1.ends_with("-service-account");
        assert_eq!(policy, is_kept.then(|| json!("Never")), "{}", named(place));
        assert_eq!(spec, all[place].value()["spec"], "{}", named(place));
    }
    // Nothing else is left.
    let left = left(&facts, &embedded(), false);
    assert_eq!((left.owned.len(), left.unmarked.len(), left.claimed.len(), left.changing.len()), (0, 0, 0, 0));
    assert_eq!(left.differing.iter().filter(|found| found.waits).count(), 6, "{:#?}", left.differing);
    let main = left.differing.iter().find(|found| found.object == "Deployment kcp-system/main-kcp").expect("one");
    assert_eq!(main.resource, "RootShard main");
    let expected = [
        "digest of the mounted keys",
        "ownership label of the pods",
        "revision labels",
        "volumes of CAs without their keys",
    ];
    assert_eq!(main.what, expected);
}

/// What the daemon does with the objects of a landscape in its first pass over each resource: its acts, and what became
/// of Deployments and Certificates.
fn first_passes(facts: &Facts, library: &Library) -> (Vec<pass::Act>, Vec<(ObjectName, Outcome)>) {
    let (mut acts, mut outcomes) = (Vec::new(), Vec::new());
    for (kind, key) in facts.resources.ids() {
        let metadata = facts.resources.metadata(kind, key).expect("it exists");
        let templates = library.for_object(metadata);
        let plan = facts.resources.plan(kind, key, &KnownOfCluster::default()).expect("it exists").expect("a plan");
        let (wanted, inputs, needs) = names(&plan);
        let mark = setup_mark(kind, key.name());
        let mut live = LiveObjects::new();
        for ((_, name), object) in &facts.objects {
            let found = serde_json::from_value(object.value().clone()).expect("an object");
            let found = LiveObject::from_object(name.0, found);
            if needs.contains(name) || found.mark.as_deref() == Some(&mark) {
                live.insert(name.clone(), std::sync::Arc::new(found));
            }
        }
        let values = |name: &ObjectName| {
            facts.objects.get(&(NAMESPACE.to_owned(), name.clone())).map(content::values).unwrap_or_default()
        };
        let mut observed = Observed::default();
        for name in inputs.into_iter().filter(|name| live.contains_key(name)) {
            observed.keys.insert(name.clone(), content::known("", &values(&name)).keys);
        }
        let (desired, failures) = desired(templates, &plan, &observed.keys, Issuance::CertManager);
        assert_eq!(failures, [""; 0]);
        let known = Known {
            namespace: NAMESPACE.to_owned(),
            mark,
            place: None,
            around: None,
            verified: BTreeMap::new(),
            live,
            desired,
            definition: hold::definition(templates, &plan),
            wanted,
            is_complete: true,
            may_adopt: false,
            held: BTreeMap::new(),
            issuance: Issuance::CertManager,
            now: "2026-01-01T00:00:00Z".parse().expect("a time"),
        };
        loop {
            match pass::next(&known, &observed) {
                Next::End(found) => {
                    outcomes.extend(found.into_iter().filter(|(name, _)| hold::is_holdable(name.0)));
                    break;
                }
                Next::Do(pass::Act::Learn(name)) => drop(observed.values.insert(name.clone(), values(&name))),
                Next::Do(pass::Act::Read(name)) => {
                    let found = facts.objects.get(&(NAMESPACE.to_owned(), name.clone())).cloned();
                    observed.found.insert(name, found);
                }
                Next::Do(act @ pass::Act::Apply(..)) => {
                    if let pass::Act::Apply(name, ..) = &act {
                        observed.applied.insert(name.clone(), Ok(()));
                    }
                    acts.push(act);
                }
                Next::Do(act @ pass::Act::Delete(..)) => {
                    if let pass::Act::Delete(name, _) = &act {
                        observed.deleted.insert(name.clone());
                    }
                    acts.push(act);
                }
            }
        }
    }
    (acts, outcomes)
}

/// Adds what Deployments wait for: the keys that they mount. And all Certificates are ready.
fn complete(facts: &mut Facts) {
    let (plans, _) = facts.resources.plans(&KnownOfCluster::default());
    let mut mounted: Vec<(ObjectKind, Mounted)> = Vec::new();
    for gate in plans.iter().flat_map(|plan| &plan.deployments).flat_map(|found| &found.gates) {
        if let Gate::Key(found) = gate {
            mounted.push((ObjectKind::named(found.kind).expect("an input"), found.clone()));
        }
    }
    for (kind, Mounted { name, keys, .. }) in mounted {
        let at = place(kind, &name);
        let empty = json!({"apiVersion": "v1", "kind": kind.as_str(), "metadata": {"name": name,
            "namespace": NAMESPACE, "resourceVersion": "1", "uid": "uid"}});
        let mut value = facts.objects.get(&at).map_or(empty, |found| found.value().clone());
        for key in keys {
            if value["data"][&key].is_null() {
                value["data"][&key] = json!("");
            }
        }
        facts.objects.insert(at, Object::new(value).expect("an object"));
    }
    for ((_, name), object) in &mut facts.objects {
        if name.0 == ObjectKind::Certificate {
            let mut value = object.value().clone();
            value["status"] = json!({"conditions": [{"type": "Ready", "status": "True"}]});
            *object = Object::new(value).expect("an object");
        }
    }
}

/// With the image and the templates of the daemon, its first pass changes nothing. With others, it would.
#[test]
fn the_first_pass_of_the_daemon_writes_nothing() {
    let source = SourceName::new(Key::new(NAMESPACE, "landscape"));
    let image: DefaultImage = "registry.example.com/kcp:v0.32.3".parse().expect("an image");
    let without_image = |value: &mut Value| {
        value["metadata"]["labels"]["tidegate.dev/source"] = json!(source.label_value());
        value["metadata"]["annotations"]["tidegate.dev/source"] = json!(source.to_string());
        value["spec"].as_object_mut().expect("a spec").remove("image");
    };
    let completed = |image: &DefaultImage| {
        let mut resources = resources(&without_image);
        image.complete_all(&mut resources);
        resources
    };
    let file = TemplateFile {
        name: "setup/issuer.yaml".to_owned(),
        path: "templates/setup/issuer.yaml".into(),
        text: Some(
            "apiVersion: cert-manager.io/v1\nkind: Issuer\nmetadata:\n  labels:\n    team: one\nspec:\n  ca:\n    \
             secretName: {{ secret|tojson }}\n"
                .to_owned(),
        ),
    };
    let mut diagnostics = Diagnostics::default();
    let own = Templates::embedded().with_overrides(&Engine::Local, &mut diagnostics, [file]);
    assert!(!diagnostics.has_errors());
    let mut library = Library::new(Templates::embedded());
    library.set(source.clone(), own);
    let templates =
        DaemonTemplates { library, declared: Some((source.clone(), BTreeSet::new())), plain: BTreeSet::new() };

    let mut facts = made_of(completed(&image));
    complete(&mut facts);
    play_with(&mut facts, &templates, false);
    let (acts, outcomes) = first_passes(&facts, &templates.library);
    assert!(acts.is_empty(), "{acts:#?}");
    assert!(outcomes.iter().all(|(_, outcome)| *outcome == Outcome::Well), "{outcomes:#?}");
    assert_eq!(outcomes.iter().filter(|(name, _)| name.0 == ObjectKind::Deployment).count(), 6);

    let applied = |acts: &[pass::Act]| {
        let is_deployment =
            |act: &&pass::Act| matches!(act, pass::Act::Apply(name, ..) if name.0 == ObjectKind::Deployment);
        acts.iter().filter(is_deployment).count()
    };
    let other_image = Facts { resources: completed(&DefaultImage::default()), ..facts.clone() };
    assert_eq!(applied(&first_passes(&other_image, &templates.library).0), 6, "with another image");
    let other_templates = first_passes(&facts, &Library::new(Templates::embedded())).0;
    assert_ne!(applied(&other_templates), 0, "with other templates");
}

/// A resource of which nothing is handed over is named, and the others are.
#[test]
fn what_is_not_handed_over_is_said() {
    let skipped = |change: &dyn Fn(&mut Value), templates: &DaemonTemplates| {
        let mut facts = made();
        facts.resources = resources(change);
        let found = left(&facts, templates, false);
        assert!(!found.unmarked.is_empty(), "the others are handed over");
        found.skipped.into_iter().collect::<Vec<_>>()
    };
    let of = |kind: &'static str, change: &'static dyn Fn(&mut Value)| {
        move |value: &mut Value| {
            if value["kind"] == kind {
                change(value);
            }
        }
    };
    assert_eq!(skipped(&|_| {}, &embedded()), [""; 0]);
    let leaving = of("Shard", &|value| value["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z"));
    let expected = "Shard kcp-system/eu is being deleted: wait until it is gone, then run the command again";
    assert_eq!(skipped(&leaving, &embedded()), [expected]);
    let elsewhere = of("CacheServer", &|value| value["metadata"]["annotations"]["tidegate.dev/cluster"] = json!("a"));
    let expected = "CacheServer kcp-system/cache has the annotation `tidegate.dev/cluster`, and only what is in the control \
             plane can be taken over: remove the annotation, and set it afterwards";
    assert_eq!(skipped(&elsewhere, &embedded()), [expected]);
    let dangling = of("FrontProxy", &|value| value["spec"]["rootShard"]["ref"]["name"] = json!("gone"));
    let found = skipped(&dangling, &embedded());
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].starts_with("FrontProxy kcp-system/public: spec.rootShard"), "{found:?}");

    // Templates that are not known.
    let source = SourceName::new(Key::new(NAMESPACE, "landscape"));
    let (label, annotation) = (source.label_value(), source.to_string());
    let declared = |value: &mut Value| {
        if value["kind"] == "Shard" {
            value["metadata"]["labels"]["tidegate.dev/source"] = json!(label);
            value["metadata"]["annotations"]["tidegate.dev/source"] = json!(annotation);
        }
    };
    let expected = "Shard kcp-system/eu is declared by GitSource kcp-system/landscape, which may override templates: \
                    name the path of its repository, for example `tidegate adopt kcp .`";
    assert_eq!(skipped(&declared, &embedded()), [expected]);
    let plain = DaemonTemplates { plain: BTreeSet::from([source.clone()]), ..embedded() };
    assert_eq!(skipped(&declared, &plain), [""; 0]);
    assert_eq!(embedded().unread(&resources(&declared)), BTreeSet::from([source.clone()]));
    let named = BTreeSet::from([(Kind::Shard, Key::new(NAMESPACE, "eu"))]);
    let read = DaemonTemplates { declared: Some((source.clone(), named.clone())), ..embedded() };
    assert_eq!(read.unread(&resources(&declared)), BTreeSet::new());
    assert_eq!(skipped(&declared, &read), [""; 0]);
    // Without overrides, the label does not matter.
    assert_eq!(skipped(&|_| {}, &read), [""; 0]);
    let file = TemplateFile {
        name: "setup/issuer.yaml".to_owned(),
        path: "templates/setup/issuer.yaml".into(),
        text: Some("apiVersion: cert-manager.io/v1\nkind: Issuer\nspec: {}\n".to_owned()),
    };
    let own = Templates::embedded().with_overrides(&Engine::Local, &mut Diagnostics::default(), [file]);
    let mut library = Library::new(Templates::embedded());
    library.set(source.clone(), own);
    let overriding = DaemonTemplates { library, declared: Some((source, named)), plain: BTreeSet::new() };
    let expected = "the repository declares Shard kcp-system/eu and overrides templates, but the resource has no \
                    ownership label, so the daemon would begin with other templates: set it with `kubectl annotate \
                    shards.operator.kcp.io -n kcp-system eu tidegate.dev/source=kcp-system/landscape && kubectl label \
                    shards.operator.kcp.io -n kcp-system eu tidegate.dev/source=kcp-system.landscape`";
    assert_eq!(skipped(&|_| {}, &overriding), [expected]);
}

#[test]
fn with_now_nothing_waits_any_more() {
    let mut facts = made();
    play(&mut facts, true);
    assert!(facts.objects.values().all(|object| object.annotation("tidegate.dev/adopted-as").is_none()));
    assert!(facts.objects.values().all(|object| object.label("tidegate.dev/setup").is_some()));
    let left = left(&facts, &embedded(), true);
    assert!(left.differing.iter().all(|found| !found.waits), "{:#?}", left.differing);
    let deployments = left.differing.iter().filter(|found| found.object.starts_with("Deployment "));
    assert_eq!(deployments.count(), 6, "{:#?}", left.differing);

    // Also of what waits already.
    let mut facts = made();
    play(&mut facts, false);
    let found = super::left(&facts, &embedded(), true);
    let held = facts.objects.keys().filter(|place| crate::setup::hold::is_holdable(place.1.0)).count();
    assert_eq!(found.released.len(), held);
    let steps = play(&mut facts, true);
    assert!(steps.iter().flatten().all(|act| matches!(act, Act::Patch { .. })), "{steps:?}");
    assert!(facts.objects.values().all(|object| object.annotation("tidegate.dev/adopted-as").is_none()));
}

/// A change after the take-over is no difference of the take-over: nothing marks an object again.
#[test]
fn what_changed_since_does_not_wait() {
    let mut facts = made();
    play(&mut facts, false);
    facts.resources = resources(&|value| {
        if value["kind"] == "Shard" {
            value["spec"]["logging"] = json!({"level": 3});
        }
    });
    assert_eq!(play(&mut facts, false).len(), 0);
    let found = left(&facts, &embedded(), false);
    let at_once = found.differing.iter().filter(|found| !found.waits).map(|found| found.object.as_str());
    assert_eq!(at_once.collect::<Vec<_>>(), ["Deployment kcp-system/eu-shard-kcp"]);
    assert_eq!(found.differing.iter().filter(|found| found.waits).count(), 5);
}

#[test]
fn objects_of_others_and_those_that_leave_are_not_touched() {
    let mut facts = made();
    let change = |facts: &mut Facts, at: &Place, change: &dyn Fn(&mut Value)| {
        let mut value = facts.objects[at].value().clone();
        change(&mut value);
        facts.objects.insert(at.clone(), Object::new(value).expect("an object"));
    };
    let of_user = place(ObjectKind::Service, "main-kcp");
    change(&mut facts, &of_user, &|value| {
        value["metadata"] = json!({"name": "main-kcp", "namespace": NAMESPACE, "resourceVersion": "1"});
    });
    let of_other = place(ObjectKind::Service, "eu-shard-kcp");
    change(&mut facts, &of_other, &|value| value["metadata"]["labels"]["tidegate.dev/setup"] = json!("shard.other"));
    let leaving = place(ObjectKind::Deployment, "main-proxy");
    change(&mut facts, &leaving, &|value| value["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z"));
    let rejected = place(ObjectKind::Service, "public-front-proxy");
    facts.rejected.insert(rejected.clone(), "why".to_owned());
    let former = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "former", "namespace": NAMESPACE,
        "labels": {"operator.kcp.io/rootshard": "gone"}}});
    let former_at = place(ObjectKind::Secret, "former");
    facts.objects.insert(former_at.clone(), Object::new(former).expect("an object"));

    let found = left(&facts, &embedded(), false);
    assert_eq!(found.refused.len(), 2, "{:?}", found.refused);
    assert!(found.refused[0].starts_with("Service kcp-system/main-kcp is not of kcp-operator"), "{:?}", found.refused);
    let of_mark = "Service kcp-system/eu-shard-kcp belongs to shard.other";
    assert!(found.refused[1].starts_with(of_mark), "{:?}", found.refused);
    let before = facts.objects.clone();
    let steps = play(&mut facts, false);
    let written: BTreeSet<&Place> = steps.iter().flatten().map(Act::place).collect();
    for at in [&of_user, &of_other, &leaving, &rejected, &former_at] {
        assert!(!written.contains(at), "{}", named(at));
        assert_eq!(facts.objects[at], before[at]);
    }
}

#[test]
fn owners_that_are_not_of_kcp_operator_stay() {
    let mut facts = made();
    let at = place(ObjectKind::Secret, "main-server");
    let mut value = facts.objects[&at].value().clone();
    let certificate =
        json!({"apiVersion": "cert-manager.io/v1", "kind": "Certificate", "name": "main-server", "uid": "2"});
    let shard =
        json!({"apiVersion": "deploy.operator.kcp.io/v1alpha1", "kind": "CompiledShard", "name": "a", "uid": "3"});
    value["metadata"]["ownerReferences"] = json!([certificate, shard]);
    facts.objects.insert(at.clone(), Object::new(value).expect("an object"));
    play(&mut facts, false);
    assert_eq!(facts.objects[&at].value()["metadata"]["ownerReferences"], json!([certificate]));
}
