//! Whether the agent runs: asked when it was written, until it does, and on every look at the runtime.

use std::time::Duration;

use serde_json::Value;

use super::{delay, deployment_key, deployment_kind};
use tidegate_cluster::{Cluster, Error, Kind};
use tidegate_core::{
    api::names::{SKR_NAMESPACE, SKR_WEBHOOK},
    object::Gvk,
};
use tidegate_process::retry::Class;

/// What is known of it.
#[derive(Debug, Default)]
pub(super) struct Readiness {
    is_ready: Option<bool>,
    /// Looks in a row at one that does not.
    looks: u32,
}

/// What a look found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// It runs.
    Ready,
    /// Not yet.
    Starting(String),
    /// It will not before somebody changes something.
    Broken(String),
}

/// Reasons for which a container waits that do not go away by waiting.
const BROKEN: [&str; 3] = ["CrashLoopBackOff", "ImagePullBackOff", "ErrImagePull"];

// === impl Readiness ===

impl Readiness {
    /// It was written: what was known of it is no longer so.
    pub(super) fn doubt(&mut self) {
        *self = Readiness { is_ready: Some(false), looks: 0 };
    }

    /// Looks if there is reason to. `said` is what the status says of it; a new process takes its word.
    pub(super) async fn look(&mut self, cluster: &Cluster, wanted: bool, said: bool) -> Result<Found, Error> {
        if self.is_ready.unwrap_or(said) && !wanted {
            self.is_ready = Some(true);
            return Ok(Found::Ready);
        }
        let deployment = cluster.get(&deployment_kind(), &deployment_key()).await?;
        let ready = deployment.as_ref().and_then(|object| object.value().pointer("/status/readyReplicas")?.as_i64());
        let found = if ready.is_some_and(|ready| 0 < ready) {
            Found::Ready
        } else {
            let kind = Kind::new(Gvk::new("", "v1", "Pod"), "pods", true);
            let selector = format!("app={SKR_WEBHOOK}");
            let pods = cluster.list(&kind, Some(SKR_NAMESPACE), Some(&selector)).await?;
            pods.iter().find_map(|pod| broken(pod.name(), pod.value())).map_or_else(
                || Found::Starting("the agent is installed and does not run yet".to_owned()),
                Found::Broken,
            )
        };
        self.is_ready = Some(found == Found::Ready);
        self.looks = if found == Found::Ready { 0 } else { self.looks.saturating_add(1) };
        Ok(found)
    }

    /// When to look again.
    pub(super) fn again(&self) -> Duration {
        delay(Class::Waiting, self.looks)
    }
}

/// Why a pod of the agent does not start, if that is for a reason that stays. The message of the kubelet is not repeated:
/// it may quote what it was given.
fn broken(name: &str, pod: &Value) -> Option<String> {
    let statuses = pod.pointer("/status/containerStatuses").and_then(Value::as_array)?;
    let reasons = statuses.iter().filter_map(|status| status.pointer("/state/waiting/reason")?.as_str());
    let reason = reasons.into_iter().find(|reason| BROKEN.contains(reason))?;
    Some(format!("the agent does not run: pod {SKR_NAMESPACE}/{name} is in {reason}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_pod_that_cannot_start_is_named_with_its_reason() {
        let pod = |reason: &str| json!({"status": {"containerStatuses": [{"state": {"waiting": {"reason": reason}}}]}});
        for reason in BROKEN {
            let expected = format!("the agent does not run: pod kyma-system/skr-webhook-1 is in {reason}");
            assert_eq!(broken("skr-webhook-1", &pod(reason)), Some(expected));
        }
        assert_eq!(broken("skr-webhook-1", &pod("ContainerCreating")), None);
        assert_eq!(
            broken("skr-webhook-1", &json!({"status": {"containerStatuses": [{"state": {"running": {}}}]}})),
            None
        );
        assert_eq!(broken("skr-webhook-1", &json!({})), None);
    }
}
