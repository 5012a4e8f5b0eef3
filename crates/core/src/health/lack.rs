//! What a workload lacks that is not ready: from its own status and from its pods. Pure.
//!
//! Says nothing that changes by itself, such as the delay of the next restart: the status of a module has it, and each
//! change would be a write.

use serde_json::Value;

use super::{condition, match_labels};

/// The label selector of the pods of a workload; `None` if it has none, or if its selector has more than equal labels.
pub fn selector_of_pods(object: &Value) -> Option<String> {
    let group = object["apiVersion"].as_str().and_then(|version| version.split_once('/')).map(|(group, _)| group);
    let has_pods = group == Some("apps") && object["kind"] != "ControllerRevision";
    if !has_pods || object.pointer("/spec/selector/matchExpressions").is_some_and(|found| !found.is_null()) {
        return None;
    }
    match_labels(object)
}

/// What keeps a workload from creating its pods, such as a quota.
pub fn lack_of_workload(object: &Value) -> Option<String> {
    let failure = condition(object, "ReplicaFailure").filter(|failure| failure["status"] == "True")?;
    let message = failure["message"].as_str().unwrap_or_default();
    // What precedes names a pod that never existed, another one with each attempt.
    let cause = message.find("exceeded quota").map(|begin| &message[begin..]);
    let cause = cause.or_else(|| message.split_once("is forbidden: ").map(|(_, cause)| cause)).unwrap_or(message);
    Some(format!("its pods cannot be created: {cause}"))
}

/// What the first of these pods lacks that is not ready; `None` if they do not say it.
pub fn lack_of_pods(pods: &[Value]) -> Option<String> {
    let mut pods: Vec<&Value> = pods.iter().collect();
    pods.sort_by_key(|pod| pod.pointer("/metadata/name").and_then(Value::as_str));
    if pods.is_empty() {
        return Some("it has no pods".to_owned());
    }
    pods.into_iter().find_map(lack_of_pod)
}

fn lack_of_pod(pod: &Value) -> Option<String> {
    if let Some(scheduled) = condition(pod, "PodScheduled").filter(|scheduled| scheduled["status"] == "False") {
        let why = scheduled["message"].as_str().unwrap_or("no node accepts it");
        return Some(format!("a pod cannot be scheduled: {why}"));
    }
    let statuses = |list: &str| pod.pointer(list).and_then(Value::as_array).into_iter().flatten();
    let mut containers = statuses("/status/initContainerStatuses").chain(statuses("/status/containerStatuses"));
    containers.find_map(lack_of_container)
}

fn lack_of_container(container: &Value) -> Option<String> {
    let text = |pointer: &str| container.pointer(pointer).and_then(Value::as_str).filter(|text| !text.is_empty());
    let name = text("/name").unwrap_or("without a name");
    if let Some(reason) = text("/state/waiting/reason") {
        return match reason {
            "ContainerCreating" | "PodInitializing" => None,
            "ErrImagePull" | "ImagePullBackOff" | "InvalidImageName" | "ErrImageNeverPull" => {
                let image = text("/image").unwrap_or_default();
                // The reason alternates between these while the pull is retried.
                Some(format!("the image `{image}` of container {name} cannot be pulled"))
            }
            "CrashLoopBackOff" => {
                let code = container.pointer("/lastState/terminated/exitCode").and_then(Value::as_i64);
                let code = code.map(|code| format!(" with code {code}")).unwrap_or_default();
                Some(format!("container {name} exits{code} and is restarted"))
            }
            reason => Some(format!("container {name} does not start: {reason}")),
        };
    }
    let runs = container.pointer("/state/running").is_some();
    (runs && container["ready"] == Value::Bool(false))
        .then(|| format!("container {name} runs, but its readiness or startup probe does not succeed"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(status: &Value) -> Value {
        json!({"metadata": {"name": "a"}, "status": status})
    }

    #[test]
    fn a_pod_says_what_it_lacks() {
        let waiting = |reason: &str| {
            json!({"containerStatuses": [
                {"name": "main", "image": "registry.example/a:1", "ready": false, "state": {"waiting": {"reason": reason}},
                 "lastState": {"terminated": {"exitCode": 3}}},
            ]})
        };
        let image = "the image `registry.example/a:1` of container main cannot be pulled";
        for (status, expected) in [
            (
                json!({"conditions": [{"type": "PodScheduled", "status": "False",
                    "message": "0/3 nodes are available: 3 Insufficient cpu."}]}),
                Some("a pod cannot be scheduled: 0/3 nodes are available: 3 Insufficient cpu."),
            ),
            (waiting("ErrImagePull"), Some(image)),
            (waiting("ImagePullBackOff"), Some(image)),
            (waiting("CrashLoopBackOff"), Some("container main exits with code 3 and is restarted")),
            (waiting("CreateContainerConfigError"), Some("container main does not start: CreateContainerConfigError")),
            (waiting("ContainerCreating"), None),
            (
                json!({"containerStatuses": [{"name": "main", "ready": false, "state": {"running": {}}}]}),
                Some("container main runs, but its readiness or startup probe does not succeed"),
            ),
            (json!({"containerStatuses": [{"name": "main", "ready": true, "state": {"running": {}}}]}), None),
            (
                json!({"initContainerStatuses": [{"name": "init", "image": "b", "ready": false,
                    "state": {"waiting": {"reason": "ErrImagePull"}}}]}),
                Some("the image `b` of container init cannot be pulled"),
            ),
        ] {
            assert_eq!(lack_of_pods(&[pod(&status)]).as_deref(), expected, "{status}");
        }
        assert_eq!(lack_of_pods(&[]).as_deref(), Some("it has no pods"));
    }

    #[test]
    fn a_workload_says_that_a_quota_keeps_its_pods_away_without_the_name_of_a_pod() {
        let deployment = |message: &str| {
            json!({"status": {"conditions": [
                {"type": "ReplicaFailure", "status": "True", "message": message},
            ]}})
        };
        let message = "pods \"cache-5c9d-x7k2p\" is forbidden: exceeded quota: small, requested: pods=1, used: pods=3";
        for (message, cause) in [
            (message, "exceeded quota: small, requested: pods=1, used: pods=3"),
            ("pods \"a-x\" is forbidden: violates PodSecurity", "violates PodSecurity"),
            ("something else", "something else"),
        ] {
            let lack = lack_of_workload(&deployment(message)).unwrap();
            assert_eq!(lack, format!("its pods cannot be created: {cause}"));
        }
        assert_eq!(lack_of_workload(&json!({})), None);
    }

    #[test]
    fn only_workloads_with_plain_selectors_are_asked_for_their_pods() {
        let of = |kind: &str, selector: Value| {
            selector_of_pods(&json!({"apiVersion": "apps/v1", "kind": kind, "spec": {"selector": selector}}))
        };
        let labels = json!({"matchLabels": {"app": "a", "part": "b"}});
        assert_eq!(of("Deployment", labels.clone()).as_deref(), Some("app=a,part=b"));
        assert_eq!(of("DaemonSet", json!({"matchLabels": {"app": "a"}, "matchExpressions": []})), None);
        assert_eq!(of("Deployment", json!({})), None);
        let job = json!({"apiVersion": "batch/v1", "kind": "Job", "spec": {"selector": labels}});
        assert_eq!(selector_of_pods(&job), None);
    }
}
