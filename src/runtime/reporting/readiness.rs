//! Whether the agent runs. Pure.
//!
//! Tidegate asks after it has applied the agent, then until the agent runs, and with each check of all objects.

use std::time::Duration;

use serde_json::Value;
use tidegate_core::{api::names::SKR_NAMESPACE, object::Object};
use tidegate_process::retry::Class;

use super::decide::lacks_deployment;
use crate::runtime::{delay, objects::Applied};

/// What is known of the agent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Readiness {
    /// This process has not checked, so what the status says is used.
    #[default]
    Unknown,
    /// It runs.
    Ready,
    /// It does not run, or was applied again since.
    NotReady {
        /// Checks in a row that found it not ready.
        checks: u32,
    },
}

/// The answers of the runtime in one pass.
#[derive(Clone, Debug, Default)]
pub(super) struct Observed {
    /// The Deployment, if it exists, once it is read.
    pub(super) deployment: Option<Option<Object>>,
    /// The pods of the agent, once they are listed.
    pub(super) pods: Option<Vec<Object>>,
}

/// What a pass does next to find out whether the agent runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReadinessStep {
    /// It reads the Deployment.
    ReadDeployment,
    /// It lists the pods.
    ListPods,
}

/// The state of the agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum AgentState {
    /// It runs.
    Ready,
    /// It does not run yet. Contains the message.
    Starting(String),
    /// It cannot run until a user acts. Contains the message.
    Broken(String),
}

/// Reasons of waiting containers that do not resolve themselves.
const BROKEN: [&str; 3] = ["CrashLoopBackOff", "ImagePullBackOff", "ErrImagePull"];

// === impl Readiness ===

impl Readiness {
    /// Before objects are applied: if the agent's Deployment is among them, the agent must be checked.
    pub(super) fn before_apply(&mut self, applied: &Applied) {
        if lacks_deployment(applied) {
            *self = Readiness::NotReady { checks: 0 };
        }
    }

    /// The state of the agent, or what to ask for it. `checks` is whether this pass checks all objects of the runtime,
    /// `is_recorded` whether the status says that the agent runs: a new process relies on it.
    pub(super) fn find(
        self,
        observed: &Observed,
        checks: bool,
        is_recorded: bool,
    ) -> Result<AgentState, ReadinessStep> {
        let is_ready = match self {
            Readiness::Unknown => is_recorded,
            Readiness::Ready => true,
            Readiness::NotReady { .. } => false,
        };
        if is_ready && !checks {
            return Ok(AgentState::Ready);
        }
        let deployment = observed.deployment.as_ref().ok_or(ReadinessStep::ReadDeployment)?;
        let ready = deployment.as_ref().and_then(|object| object.value().pointer("/status/readyReplicas")?.as_i64());
        if ready.is_some_and(|ready| 0 < ready) {
            return Ok(AgentState::Ready);
        }
        let pods = observed.pods.as_ref().ok_or(ReadinessStep::ListPods)?;
        let broken = pods.iter().find_map(|pod| broken(pod.name(), pod.value()));
        let starting = || AgentState::Starting("the agent is installed and does not run yet".to_owned());
        Ok(broken.map_or_else(starting, AgentState::Broken))
    }

    /// What is known after a pass, and when to check again.
    pub(super) fn after(self, found: &AgentState) -> (Readiness, Option<Duration>) {
        let former = match self {
            Readiness::Unknown | Readiness::Ready => 0,
            Readiness::NotReady { checks } => checks,
        };
        match found {
            AgentState::Ready => (Readiness::Ready, None),
            AgentState::Starting(_) | AgentState::Broken(_) => {
                let checks = former.saturating_add(1);
                (Readiness::NotReady { checks }, Some(delay(Class::Waiting, checks)))
            }
        }
    }
}

/// Why a pod of the agent cannot start, if the reason does not resolve itself. The message of the kubelet is not
/// repeated, because it may quote a secret.
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

    fn deployment(ready: i64) -> Option<Object> {
        let metadata = json!({"name": "skr-webhook", "namespace": "kyma-system"});
        let status = json!({"readyReplicas": ready});
        Object::new(json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "status": status})).ok()
    }

    fn pod(reason: &str) -> Object {
        let metadata = json!({"name": "skr-webhook-1", "namespace": "kyma-system"});
        let status = json!({"containerStatuses": [{"state": {"waiting": {"reason": reason}}}]});
        Object::new(json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "status": status})).unwrap()
    }

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

    #[test]
    fn an_agent_that_is_known_to_run_is_asked_for_only_by_a_check() {
        let nothing = Observed::default();
        for (readiness, is_recorded, checks, is_asked) in [
            (Readiness::Unknown, true, false, false),
            (Readiness::Unknown, false, false, true),
            (Readiness::Unknown, true, true, true),
            (Readiness::Ready, false, false, false),
            (Readiness::Ready, true, true, true),
            (Readiness::NotReady { checks: 0 }, true, false, true),
        ] {
            let expected = if is_asked { Err(ReadinessStep::ReadDeployment) } else { Ok(AgentState::Ready) };
            assert_eq!(readiness.find(&nothing, checks, is_recorded), expected, "{readiness:?}");
        }
    }

    #[test]
    fn the_pods_are_listed_only_if_the_deployment_is_not_ready() {
        let readiness = Readiness::NotReady { checks: 0 };
        let find = |deployment: Option<Object>, pods: Option<Vec<Object>>| {
            readiness.find(&Observed { deployment: Some(deployment), pods }, false, false)
        };
        assert_eq!(find(deployment(1), None), Ok(AgentState::Ready));
        assert_eq!(find(deployment(0), None), Err(ReadinessStep::ListPods));
        assert_eq!(find(None, None), Err(ReadinessStep::ListPods));
        let starting = AgentState::Starting("the agent is installed and does not run yet".to_owned());
        assert_eq!(find(deployment(0), Some(vec![pod("ContainerCreating")])), Ok(starting));
        assert!(matches!(find(None, Some(vec![pod("ErrImagePull")])), Ok(AgentState::Broken(_))));
    }

    #[test]
    fn checks_slow_down_until_the_agent_runs() {
        let starting = AgentState::Starting(String::new());
        let (first, soon) = Readiness::default().after(&starting);
        let (second, later) = first.after(&starting);
        assert_eq!((soon, later), (Some(delay(Class::Waiting, 1)), Some(delay(Class::Waiting, 2))));
        let (ready, again) = second.after(&AgentState::Ready);
        assert_eq!((ready, again), (Readiness::Ready, None));
    }
}
