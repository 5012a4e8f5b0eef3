use serde_json::json;
use tidegate_core::render::Mark;

use super::*;

const NOW: Timestamp = Timestamp::UNIX_EPOCH;

fn manifest(edit: impl FnOnce(&mut Value)) -> Manifest {
    let mut manifest = json!({
        "apiVersion": "operator.kyma-project.io/v1beta2", "kind": "Manifest",
        "metadata": {"name": "eu-cache", "namespace": "kcp-system"},
        "spec": {"remote": true, "install": {"name": "raw-manifest", "source": {}}},
    });
    edit(&mut manifest);
    serde_json::from_value(manifest).unwrap()
}

/// A Manifest that waits for its objects since `NOW`.
fn waiting_manifest(operation: &str) -> Manifest {
    manifest(|manifest| {
        let last = json!({"operation": operation, "lastUpdateTime": "1970-01-01T00:00:00Z"});
        manifest["status"] = json!({"state": "Processing", "lastOperation": last});
    })
}

fn at(seconds: i64) -> Timestamp {
    NOW + SignedDuration::from_secs(seconds)
}

fn workload(kind: &str, spec: &Value, status: &Value) -> Workload {
    let metadata = json!({"name": "m", "namespace": "x", "generation": 1});
    let object = json!({"apiVersion": "apps/v1", "kind": kind, "metadata": metadata, "spec": spec, "status": status});
    Workload::Live(Object::new(object).unwrap())
}

fn waiting(name: &str) -> WaitingWorkload {
    WaitingWorkload {
        name: format!("Deployment kyma-system/{name}"),
        message: "0 of 1 replicas are ready".to_owned(),
        pods: None,
        lack: None,
    }
}

fn health(waiting: Vec<WaitingWorkload>) -> WorkloadsHealth {
    WorkloadsHealth { worst: Health::processing("0 of 1 replicas are ready"), waiting }
}

#[test]
fn a_wait_names_the_first_workload_what_it_lacks_and_how_many_there_are() {
    let of = |names: &[&str], lack: Option<&str>| {
        wait_fact(&health(names.iter().copied().map(waiting).collect()), lack.map(str::to_owned))
    };
    assert_eq!(of(&[], None), WaitFact::Nothing);
    for (names, lack, expected) in [
        (&["a"][..], None, "Deployment kyma-system/a: 0 of 1 replicas are ready"),
        (&["a"], Some("no node has room"), "Deployment kyma-system/a: no node has room"),
        (&["a", "b", "c"], None, "Deployment kyma-system/a (and 2 more): 0 of 1 replicas are ready"),
    ] {
        assert_eq!(of(names, lack), WaitFact::For(expected.to_owned()));
    }
}

#[test]
fn a_wait_is_explained_after_ten_seconds() {
    let waits = waiting_manifest(status::WAITING_FOR_RESOURCES);
    assert!(!explains_wait(&waits, at(9)) && explains_wait(&waits, at(10)));
    assert!(!explains_wait(&waiting_manifest("anything else"), at(60)));
    assert!(!explains_wait(&manifest(|_| {}), at(60)));
}

#[test]
fn pods_are_asked_only_for_a_workload_that_has_waited_and_does_not_say_what_it_lacks() {
    let waits = waiting_manifest(status::WAITING_FOR_RESOURCES);
    let pods = || Some(("kyma-system".to_owned(), "app=a".to_owned()));
    let lack = || Some("exceeded quota".to_owned());
    let of = |text: &str| WaitDetails::Known(WaitFact::For(format!("Deployment kyma-system/a: {text}")));
    let one = |pods, lack| vec![WaitingWorkload { pods, lack, ..waiting("a") }];
    for (waiting, seconds, expected) in [
        (vec![], 10, WaitDetails::Known(WaitFact::Nothing)),
        (one(pods(), None), 9, WaitDetails::Known(WaitFact::Unknown)),
        (one(pods(), None), 10, WaitDetails::OfPods { namespace: "kyma-system", selector: "app=a" }),
        (one(pods(), lack()), 10, of("exceeded quota")),
        (one(None, lack()), 10, of("exceeded quota")),
        (one(None, None), 10, of("0 of 1 replicas are ready")),
    ] {
        assert_eq!(wait_details(&waits, &health(waiting.clone()), at(seconds)), expected, "{waiting:?}");
    }
}

#[test]
fn the_pods_of_a_stateful_set_that_lacks_replicas_are_listed() {
    let labels = json!({"replicas": 1, "selector": {"matchLabels": {"app": "m"}}});
    let status = |ready: i64| json!({"observedGeneration": 1, "readyReplicas": ready});
    for (workload, expected) in [
        (Workload::NotServed, None),
        (Workload::Absent, None),
        (workload("StatefulSet", &labels, &status(0)), Some("app=m")),
        (workload("StatefulSet", &labels, &status(1)), None),
        (workload("Deployment", &labels, &status(0)), None),
    ] {
        assert_eq!(workload.pods_to_list().as_deref(), expected, "{workload:?}");
    }
}

#[test]
fn a_workload_that_is_not_there_is_under_way() {
    let (gvk, key) = (Gvk::new("apps", "v1", "Deployment"), Key::new("x", "m"));
    let live = Object::new(json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}})).unwrap();
    for (workload, state, message) in [
        (Workload::NotServed, State::Processing, format!("{gvk} is not served yet")),
        (Workload::Absent, State::Processing, "Deployment x/m does not exist yet".to_owned()),
        (Workload::Live(live), State::Ready, String::new()),
    ] {
        let checked = check(&gvk, &key, &workload, &[]);
        let of_module = WorkloadsHealth::of(vec![checked.clone()]);
        assert_eq!((checked.name.as_str(), checked.health), ("Deployment x/m", Health { state, message }));
        assert_eq!(of_module.waiting.len(), usize::from(state == State::Processing));
    }
}

#[test]
fn the_manager_tells_how_a_module_fares_or_else_every_workload() {
    let deployment = |name: &str, namespace: &str| {
        let metadata = json!({"name": name, "namespace": namespace});
        Object::new(json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata})).unwrap()
    };
    let objects = [deployment("b", "kyma-system"), deployment("c", "other")];
    let objects = SharedObjects::new(&objects, Mark::Module, &|_| None);
    let names = |manifest: &Manifest| -> Vec<String> {
        of_module(manifest, &objects).iter().map(|(gvk, key)| format!("{} {key}", gvk.kind)).collect()
    };
    let managed_by = |manager: Value| manifest(move |manifest| manifest["spec"]["manager"] = manager);
    assert_eq!(names(&manifest(|_| {})), ["Deployment kyma-system/b", "Deployment other/c"]);
    for (kind, name, namespace, expected) in [
        ("Deployment", "b", Some("kyma-system"), &["Deployment kyma-system/b"][..]),
        ("Deployment", "c", None, &["Deployment other/c"]),
        ("Deployment", "c", Some(""), &["Deployment other/c"]),
        // The module has no such object: as without a manager.
        ("Deployment", "c", Some("kyma-system"), &["Deployment kyma-system/b", "Deployment other/c"]),
        ("StatefulSet", "b", None, &["Deployment kyma-system/b", "Deployment other/c"]),
        ("Deployment", "m", None, &["Deployment kyma-system/b", "Deployment other/c"]),
    ] {
        let manager = json!({"group": "apps", "version": "v1", "kind": kind, "name": name, "namespace": namespace});
        assert_eq!(names(&managed_by(manager.clone())), expected, "{manager}");
    }
}
