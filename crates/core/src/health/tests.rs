use serde_json::json;

use super::*;

fn deployment(progressing: Option<(&str, &str)>, available: Option<&str>, observed: i64) -> Value {
    let mut conditions = Vec::new();
    if let Some((status, reason)) = progressing {
        conditions.push(json!({"type": "Progressing", "status": status, "reason": reason, "message": "progress"}));
    }
    if let Some(status) = available {
        conditions.push(json!({"type": "Available", "status": status, "message": "availability"}));
    }
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "a", "generation": 2},
        "status": {"observedGeneration": observed, "conditions": conditions},
    })
}

#[test]
fn deployments_are_read_as_lifecycle_manager_reads_them() {
    for (progressing, available, expected) in [
        (Some(("True", "NewReplicaSetAvailable")), Some("True"), State::Ready),
        (Some(("True", "NewReplicaSetAvailable")), Some("False"), State::Processing),
        (Some(("True", "NewReplicaSetAvailable")), None, State::Processing),
        (Some(("True", "FoundNewReplicaSet")), Some("True"), State::Processing),
        (Some(("True", "NewReplicaSetCreated")), Some("False"), State::Processing),
        (Some(("True", "ReplicaSetUpdated")), Some("True"), State::Processing),
        (Some(("True", "SomethingElse")), Some("True"), State::Error),
        (Some(("False", "ProgressDeadlineExceeded")), Some("True"), State::Error),
        (Some(("Unknown", "DeploymentPaused")), Some("True"), State::Error),
        // Lifecycle Manager briefly reports Error; nothing has been observed yet.
        (None, None, State::Processing),
        (None, Some("True"), State::Ready),
    ] {
        let health = of_object(&deployment(progressing, available, 2));
        assert_eq!(health.state, expected, "{progressing:?} {available:?}");
    }
    let stale = deployment(Some(("False", "ProgressDeadlineExceeded")), None, 1);
    assert_eq!(of_object(&stale).state, State::Processing, "that was said of an older generation");
    assert_eq!(
        of_object(&json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {}})).state,
        State::Processing
    );
}

#[track_caller]
fn check(api_version: &str, kind: &str, body: &Value, expected: State) {
    let mut object = json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": "a", "generation": 1}});
    for (key, value) in body.as_object().unwrap() {
        object[key] = value.clone();
    }
    assert_eq!(of_object(&object).state, expected, "{object}");
}

#[test]
fn other_kinds_by_their_own_rules() {
    let condition = |type_: &str, status: &str| json!({"status": {"conditions": [{"type": type_, "status": status, "message": "m"}]}});
    let (ready, processing, error) = (State::Ready, State::Processing, State::Error);
    check("apps/v1", "StatefulSet", &json!({"spec": {"replicas": 2}, "status": {"readyReplicas": 2}}), ready);
    check("apps/v1", "StatefulSet", &json!({"spec": {"replicas": 2}, "status": {"readyReplicas": 1}}), processing);
    check("apps/v1", "StatefulSet", &json!({"spec": {"replicas": 0}, "status": {}}), ready);
    let rolling = json!({"status": {"readyReplicas": 1, "currentRevision": "a", "updateRevision": "b"}});
    check("apps/v1", "StatefulSet", &rolling, processing);
    let daemons = |updated: i64, available: i64| json!({"status": {"observedGeneration": 1, "desiredNumberScheduled": 2, "updatedNumberScheduled": updated, "numberAvailable": available}});
    check("apps/v1", "DaemonSet", &daemons(2, 2), ready);
    check("apps/v1", "DaemonSet", &daemons(1, 2), processing);
    check("apps/v1", "DaemonSet", &daemons(2, 1), processing);
    check("apps/v1", "DaemonSet", &json!({}), processing);
    check("batch/v1", "Job", &json!({}), processing);
    check("batch/v1", "Job", &json!({"status": {"startTime": "x"}}), ready);
    check("batch/v1", "Job", &condition("Complete", "True"), ready);
    check("batch/v1", "Job", &condition("Failed", "True"), error);
    check(
        "v1",
        "Pod",
        &json!({"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}}),
        ready,
    );
    check("v1", "Pod", &json!({"status": {"phase": "Succeeded"}}), ready);
    check("v1", "Pod", &json!({"status": {"phase": "Failed"}}), error);
    let looping = json!({"status": {"phase": "Running", "containerStatuses": [{"state": {"waiting": {"reason": "CrashLoopBackOff"}}}]}});
    check("v1", "Pod", &looping, error);
    check("v1", "PersistentVolumeClaim", &json!({"status": {"phase": "Pending"}}), processing);
    check("v1", "Service", &json!({"spec": {"type": "LoadBalancer"}}), processing);
    check("v1", "Service", &json!({"spec": {"type": "ClusterIP"}}), ready);
    check("v1", "ConfigMap", &json!({}), ready);
    let crd = ("apiextensions.k8s.io/v1", "CustomResourceDefinition");
    check(crd.0, crd.1, &json!({}), processing);
    check(crd.0, crd.1, &condition("Established", "True"), ready);
    check(crd.0, crd.1, &condition("NamesAccepted", "False"), error);
    check("example.org/v1", "Boat", &json!({}), ready);
    check("example.org/v1", "Boat", &condition("Ready", "False"), processing);
    check("example.org/v1", "Boat", &json!({"status": {"observedGeneration": 0}}), processing);
}

#[test]
fn stateful_sets_without_ready_replicas_are_as_their_pods() {
    let set = |ready: i64, observed: Option<i64>| {
        json!({
            "apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "a", "generation": 2},
            "spec": {"replicas": 2, "selector": {"matchLabels": {"app": "a", "tier": "b"}}},
            "status": {"readyReplicas": ready, "observedGeneration": observed},
        })
    };
    for (object, selector) in [
        (set(1, Some(2)), Some("app=a,tier=b")),
        (set(2, Some(2)), None),
        (set(0, Some(1)), None),
        (json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {}}), None),
        (json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {}}), None),
    ] {
        assert_eq!(pods_of(&object).as_deref(), selector, "{object}");
    }
    let pod = |name: &str, container: Value| json!({"metadata": {"name": name}, "status": {"containerStatuses": [container, {"started": false}]}});
    let running = |started: Value, ready: bool| json!({"started": started, "ready": ready, "state": {"running": {}}});
    let waiting = |reason: &str| json!({"started": false, "ready": false, "state": {"waiting": {"reason": reason}}});
    let good = pod("a-0", running(json!(true), true));
    let unscheduled = |status: &str| {
        let scheduled = json!({"type": "PodScheduled", "status": status, "message": "0/3 nodes are available"});
        json!({"metadata": {"name": "a-0"}, "status": {"conditions": [scheduled]}})
    };
    let (processing, error) = (State::Processing, State::Error);
    for (pods, expected, message) in [
        (vec![], error, "it has no pods"),
        (vec![good.clone()], processing, "not all replicas are ready yet"),
        (vec![pod("a-0", running(json!(true), false))], processing, "not all replicas are ready yet"),
        (vec![pod("a-0", running(json!(false), false))], error, "its container has not started"),
        (vec![pod("a-0", running(Value::Null, false))], error, "its container has not started"),
        (vec![pod("a-0", waiting("ErrImagePull"))], error, "its container is waiting: ErrImagePull"),
        (vec![pod("a-0", waiting("ContainerCreating"))], processing, "its pod is being created"),
        // The first pod by name speaks, whatever the order of the list, unless it is ready.
        (vec![pod("a-1", waiting("ErrImagePull")), good.clone()], error, "its container is waiting: ErrImagePull"),
        (
            vec![pod("a-1", waiting("ErrImagePull")), pod("a-0", waiting("PodInitializing"))],
            processing,
            "its pod is being created",
        ),
        (vec![unscheduled("True")], processing, "its pod is being created"),
        (vec![unscheduled("False")], error, "0/3 nodes are available"),
    ] {
        let health = of_object_with_pods(&set(1, Some(2)), &pods);
        assert_eq!((health.state, health.message.as_str()), (expected, message), "{pods:?}");
    }
    assert_eq!(of_object_with_pods(&set(2, Some(2)), &[]).state, State::Ready, "its pods do not matter");
    assert_eq!(of_object_with_pods(&set(0, Some(1)), &[]).state, processing, "its controller has not seen it");
}

#[test]
fn kyma_kinds_by_their_state() {
    for (state, expected) in [
        ("Ready", State::Ready),
        ("Processing", State::Processing),
        ("", State::Processing),
        ("Warning", State::Warning),
        ("Error", State::Error),
        ("Deleting", State::Deleting),
    ] {
        check("operator.kyma-project.io/v1alpha1", "Sample", &json!({"status": {"state": state}}), expected);
    }
    check("operator.kyma-project.io/v1alpha1", "Sample", &json!({}), State::Ready);
}

#[test]
fn what_is_being_deleted_is_not_ready() {
    let object =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}});
    assert_eq!(of_object(&object).state, State::Deleting);
}

#[test]
fn the_worst_of_several_counts() {
    let (ready, waiting, broken) = (Health::ready(), Health::processing("soon"), Health::error("no"));
    assert_eq!(worst([]), Health::ready());
    assert_eq!(worst([("a", &ready), ("b", &waiting)]).to_string(), "Processing: b: soon");
    assert_eq!(worst([("a", &waiting), ("b", &broken), ("c", &broken)]).to_string(), "Error: b: no");
}
