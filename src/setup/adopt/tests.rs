use std::collections::BTreeSet;

use serde_json::json;
use tidegate_core::{api::setup::Kind, plan::setup::Known as KnownOfCluster, template::Templates, yaml};

use super::{decide::named, *};
use crate::setup::{object::ObjectKind, state::Issuance};

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
        }
        _ => {}
    }
    value
}

/// The landscape of the example as kcp-operator made it, with the Secrets of cert-manager. Of kubeconfigs with
/// certificates, and of bundles, the values are missing.
fn made() -> Facts {
    let resources = resources(&|_| {});
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
    let mut steps = Vec::new();
    loop {
        let acts = next(facts, &Templates::embedded(), now);
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
    // And the daemon agrees.
    let left = left(&facts, &Templates::embedded(), false);
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
    let expected: Vec<&str> = expected.into_iter().filter(|words| *words != "revision labels").collect();
    assert_eq!(main.what.iter().filter(|words| *words != "revision labels").collect::<Vec<_>>(), expected);
}

#[test]
fn with_now_nothing_waits_any_more() {
    let mut facts = made();
    play(&mut facts, true);
    assert!(facts.objects.values().all(|object| object.annotation("tidegate.dev/adopted-as").is_none()));
    assert!(facts.objects.values().all(|object| object.label("tidegate.dev/setup").is_some()));
    let left = left(&facts, &Templates::embedded(), true);
    assert!(left.differing.iter().all(|found| !found.waits), "{:#?}", left.differing);
    let deployments = left.differing.iter().filter(|found| found.object.starts_with("Deployment "));
    assert_eq!(deployments.count(), 6, "{:#?}", left.differing);

    // Also of what waits already.
    let mut facts = made();
    play(&mut facts, false);
    let found = super::left(&facts, &Templates::embedded(), true);
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
    let found = left(&facts, &Templates::embedded(), false);
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

    let found = left(&facts, &Templates::embedded(), false);
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
