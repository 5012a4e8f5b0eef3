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
