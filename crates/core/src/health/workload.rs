//! Health rules for the built-in kinds with a meaningful status.

use serde_json::Value;

use super::{Health, condition, has_condition, is_stale, match_labels, message_of};

/// Health of a built-in kind with specific rules; `None` for every other kind.
pub(super) fn of_workload(group: &str, kind: &str, object: &Value) -> Option<Health> {
    match (group, kind) {
        ("apps", "Deployment") => Some(deployment(object)),
        ("apps", "StatefulSet") => Some(stateful_set(object)),
        ("apps", "DaemonSet") => Some(daemon_set(object)),
        ("apps", "ReplicaSet") | ("", "ReplicationController") => Some(replicas(object)),
        ("batch", "Job") => Some(job(object)),
        ("", "Pod") => Some(pod(object)),
        ("", "PersistentVolumeClaim") => Some(phase(object, "Bound", "the claim is not yet bound")),
        ("", "Namespace") => Some(Health::ready()),
        ("", "Service") => Some(service(object)),
        ("apiextensions.k8s.io", "CustomResourceDefinition") => Some(definition(object)),
        ("apiregistration.k8s.io", "APIService") => Some(api_service(object)),
        _ => None,
    }
}

/// Reasons of condition `Progressing` that Lifecycle Manager reads as progress.
const PROGRESS: [&str; 3] = ["FoundNewReplicaSet", "NewReplicaSetCreated", "ReplicaSetUpdated"];

fn deployment(object: &Value) -> Health {
    if is_stale(object) {
        return Health::processing("its controller has not observed the latest change yet");
    }
    let Some(progressing) = condition(object, "Progressing") else {
        // It was just created, or its controller reports no progress (`progressDeadlineSeconds` at its maximum).
        return if has_condition(object, "Available") {
            Health::ready()
        } else {
            Health::processing("it was just created")
        };
    };
    match (progressing["status"].as_str(), progressing["reason"].as_str().unwrap_or_default()) {
        (Some("True"), "NewReplicaSetAvailable") if has_condition(object, "Available") => Health::ready(),
        (Some("True"), "NewReplicaSetAvailable") => Health::processing(availability(object)),
        (Some("True"), reason) if PROGRESS.contains(&reason) => Health::processing(availability(object)),
        // A pause is intentional; neither waiting nor a change of ours can end it.
        (_, "DeploymentPaused") => Health::error("the rollout is paused"),
        _ => Health::error(message_of(progressing)),
    }
}

fn availability(object: &Value) -> String {
    match condition(object, "Available").map(message_of) {
        Some(message) if !message.is_empty() => message,
        _ => "the rollout is in progress".to_owned(),
    }
}

fn stateful_set(object: &Value) -> Health {
    if is_stale(object) {
        return Health::processing("its controller has not observed the latest change yet");
    }
    let desired = object.pointer("/spec/replicas").and_then(Value::as_i64).unwrap_or(1);
    if number(object, "readyReplicas") < desired {
        return Health::processing("not all replicas are ready yet");
    }
    let revision = |field: &str| object["status"][field].as_str();
    let on_delete = object.pointer("/spec/updateStrategy/type").and_then(Value::as_str) == Some("OnDelete");
    let partitioned = object
        .pointer("/spec/updateStrategy/rollingUpdate/partition")
        .and_then(Value::as_i64)
        .is_some_and(|partition| partition > 0);
    let rolling = !on_delete && !partitioned && revision("updateRevision").is_some();
    if rolling && revision("updateRevision") != revision("currentRevision") {
        return Health::processing("the rollout is in progress");
    }
    Health::ready()
}

/// The selector of the pods of a StatefulSet that is observed and lacks ready replicas.
pub(super) fn pods_of_stateful_set(object: &Value) -> Option<String> {
    let is_observed = object.pointer("/status/observedGeneration").is_some() && !is_stale(object);
    let desired = object.pointer("/spec/replicas").and_then(Value::as_i64).unwrap_or(1);
    if !is_observed || number(object, "readyReplicas") >= desired {
        return None;
    }
    match_labels(object)
}

/// The health of a StatefulSet that lacks ready replicas, by the first container of its pods that is not ready. As
/// Lifecycle Manager reads it: a container that has started is waited for, one that does not start is an error.
///
/// Unlike there, one ready pod does not make its workload ready, and a pod that is only being created is no error.
pub(super) fn of_pods(pods: &[Value]) -> Health {
    let mut pods: Vec<&Value> = pods.iter().collect();
    pods.sort_by_key(|pod| pod.pointer("/metadata/name").and_then(Value::as_str));
    let first_container = |pod: &&Value| pod.pointer("/status/containerStatuses/0").cloned();
    let is = |container: &Value, field: &str| container[field] == Value::Bool(true);
    let statuses: Vec<Value> = pods.iter().filter_map(first_container).collect();
    let Some(container) = statuses.iter().find(|container| !(is(container, "started") && is(container, "ready")))
    else {
        return match (pods.first(), statuses.is_empty()) {
            (None, _) => Health::error("it has no pods"),
            (Some(_), false) => Health::processing("not all replicas are ready yet"),
            (Some(pod), true) => match condition(pod, "PodScheduled") {
                Some(scheduled) if scheduled["status"] == "False" => Health::error(message_of(scheduled)),
                _ => Health::processing("its pod is being created"),
            },
        };
    };
    match waiting_reason(container) {
        _ if is(container, "started") => Health::processing("not all replicas are ready yet"),
        "ContainerCreating" | "PodInitializing" => Health::processing("its pod is being created"),
        "" => Health::error("its container has not started"),
        reason => Health::error(format!("its container is waiting: {reason}")),
    }
}

/// Waiting reasons of containers that need intervention.
fn waiting_for_good(container: &Value) -> bool {
    const REASONS: [&str; 6] = [
        "CrashLoopBackOff",
        "CreateContainerConfigError",
        "CreateContainerError",
        "ErrImagePull",
        "ImagePullBackOff",
        "InvalidImageName",
    ];
    REASONS.contains(&waiting_reason(container))
}

fn waiting_reason(container: &Value) -> &str {
    container.pointer("/state/waiting/reason").and_then(Value::as_str).unwrap_or_default()
}

fn daemon_set(object: &Value) -> Health {
    if is_stale(object) || object.pointer("/status/observedGeneration").is_none() {
        return Health::processing("its controller has not observed the latest change yet");
    }
    let desired = number(object, "desiredNumberScheduled");
    let on_delete = object.pointer("/spec/updateStrategy/type").and_then(Value::as_str) == Some("OnDelete");
    if !on_delete && number(object, "updatedNumberScheduled") < desired {
        return Health::processing("the rollout is in progress");
    }
    if number(object, "numberAvailable") < desired {
        return Health::processing("not all nodes run it yet");
    }
    Health::ready()
}

fn replicas(object: &Value) -> Health {
    if is_stale(object) {
        return Health::processing("its controller has not observed the latest change yet");
    }
    let desired = object.pointer("/spec/replicas").and_then(Value::as_i64).unwrap_or(1);
    if number(object, "availableReplicas") < desired {
        return Health::processing("not all replicas are available yet");
    }
    Health::ready()
}

fn job(object: &Value) -> Health {
    if has_condition(object, "Complete") || has_condition(object, "SuccessCriteriaMet") {
        return Health::ready();
    }
    match condition(object, "Failed") {
        Some(failed) if failed["status"] == "True" => Health::error(message_of(failed)),
        // A running job is healthy; only a job that has not started is waited for.
        _ if object.pointer("/status/startTime").is_some() => Health::ready(),
        _ if object.pointer("/spec/suspend") == Some(&Value::Bool(true)) => Health::ready(),
        _ => Health::processing("the job has not started yet"),
    }
}

fn pod(object: &Value) -> Health {
    match object.pointer("/status/phase").and_then(Value::as_str) {
        Some("Succeeded") => Health::ready(),
        Some("Failed") => {
            Health::error(object.pointer("/status/message").and_then(Value::as_str).unwrap_or("the pod failed"))
        }
        Some("Running") if has_condition(object, "Ready") => Health::ready(),
        _ => {
            let statuses = object.pointer("/status/containerStatuses").and_then(Value::as_array);
            match statuses.into_iter().flatten().find(|container| waiting_for_good(container)) {
                Some(container) => Health::error(format!("its container is waiting: {}", waiting_reason(container))),
                None => Health::processing("the pod is not ready yet"),
            }
        }
    }
}

fn service(object: &Value) -> Health {
    let balanced = object.pointer("/spec/type").and_then(Value::as_str) == Some("LoadBalancer");
    let ingress = object.pointer("/status/loadBalancer/ingress").and_then(Value::as_array);
    if balanced && ingress.is_none_or(Vec::is_empty) {
        return Health::processing("the load balancer has no address yet");
    }
    Health::ready()
}

fn definition(object: &Value) -> Health {
    if let Some(names) = condition(object, "NamesAccepted").filter(|condition| condition["status"] == "False") {
        return Health::error(message_of(names));
    }
    if has_condition(object, "Established") {
        return Health::ready();
    }
    Health::processing("the definition is not established yet")
}

fn api_service(object: &Value) -> Health {
    match condition(object, "Available") {
        Some(available) if available["status"] == "True" => Health::ready(),
        Some(available) => Health::processing(message_of(available)),
        None => Health::processing("it was just created"),
    }
}

fn phase(object: &Value, ready: &str, message: &str) -> Health {
    if object.pointer("/status/phase").and_then(Value::as_str) == Some(ready) {
        Health::ready()
    } else {
        Health::processing(message)
    }
}

fn number(object: &Value, field: &str) -> i64 {
    object["status"][field].as_i64().unwrap_or_default()
}
