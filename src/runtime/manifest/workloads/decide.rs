//! What a pass reads of the workloads of a module, and what follows for the module. Pure.

use k8s_openapi::jiff::{SignedDuration, Timestamp};
use serde_json::Value;
use tidegate_core::{
    api::{Manifest, shared::State},
    health::{self, Health},
    name::Key,
    object::{Gvk, Object, ObjectId},
    render::{self, SharedObjects},
    status::{self, WaitFact},
};

use crate::runtime::manifest::decide::more;

/// The answer of the API server about a workload.
#[derive(Debug)]
pub(in crate::runtime::manifest) enum Workload {
    /// It does not serve the kind.
    NotServed,
    /// The workload does not exist.
    Absent,
    /// The workload exists.
    Live(Object),
}

/// A workload after its check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct CheckedWorkload {
    /// Kind and name.
    name: String,
    health: Health,
    /// What is known of it if it is in progress.
    waiting: Option<WaitingWorkload>,
}

/// A workload that is in progress.
#[derive(Clone, Debug, PartialEq, Eq)]
struct WaitingWorkload {
    /// Kind and name.
    name: String,
    /// Why it is not ready, according to itself.
    message: String,
    /// Its namespace, and what selects its pods, if it has some.
    pods: Option<(String, String)>,
    /// What keeps it from making pods, if it says so.
    lack: Option<String>,
}

/// The health of the workloads of a module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::runtime::manifest) struct WorkloadsHealth {
    /// The worst of them.
    pub(in crate::runtime::manifest) worst: Health,
    /// Those that are in progress, in the order of apply.
    waiting: Vec<WaitingWorkload>,
}

/// What the status says of a wait.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum WaitDetails<'a> {
    /// This.
    Known(WaitFact),
    /// What these pods of the first workload say.
    OfPods {
        /// Their namespace.
        namespace: &'a str,
        /// Their labels.
        selector: &'a str,
    },
}

/// How long a module waits before its status says for what. Most wait a few seconds, and more writes and reads would
/// only delay them.
const WAIT_DETAILS_AFTER: SignedDuration = SignedDuration::from_secs(10);

/// The workloads that determine the health of a module: its manager if the module has what `spec.manager` names,
/// otherwise all workloads. Lifecycle Manager does not use `spec.manager` for the state, so a module with a wrong one
/// gets ready.
pub(in crate::runtime::manifest) fn of_module(manifest: &Manifest, objects: &SharedObjects) -> Vec<(Gvk, Key)> {
    let those = |is: &dyn Fn(&ObjectId) -> bool| -> Vec<(Gvk, Key)> {
        let found = objects.objects.iter().filter(|object| is(&object.id));
        found.map(|object| (object.gvk.clone(), Key::new(&object.id.namespace, &object.id.name))).collect()
    };
    let manager = manifest.spec.manager.as_ref();
    let named = manager.map(|manager| those(&|id| render::is_manager(manager, id))).unwrap_or_default();
    if named.is_empty() { those(&is_workload) } else { named }
}

/// The health of a workload. `pods` are its pods, if [`Workload::pods_to_list`] asks for them.
pub(super) fn check(gvk: &Gvk, key: &Key, workload: &Workload, pods: &[Value]) -> CheckedWorkload {
    let name = format!("{} {key}", gvk.kind);
    let (health, live) = match workload {
        Workload::NotServed => (Health::processing(format!("{gvk} is not served yet")), None),
        Workload::Absent => (Health::processing(format!("{name} does not exist yet")), None),
        Workload::Live(object) => (health::of_object_with_pods(object.value(), pods), Some(object.value())),
    };
    let waiting = (health.state == State::Processing).then(|| WaitingWorkload {
        name: name.clone(),
        message: health.message.clone(),
        pods: live.and_then(health::selector_of_pods).map(|selector| (key.namespace().to_owned(), selector)),
        lack: live.and_then(health::lack_of_workload),
    });
    CheckedWorkload { name, health, waiting }
}

/// What the status says of what a module waits for. Until it has waited for a while, nothing is known.
pub(super) fn wait_details<'a>(manifest: &Manifest, health: &'a WorkloadsHealth, now: Timestamp) -> WaitDetails<'a> {
    let Some(first) = health.waiting.first() else { return WaitDetails::Known(WaitFact::Nothing) };
    if !explains_wait(manifest, now) {
        return WaitDetails::Known(WaitFact::Unknown);
    }
    match (&first.lack, &first.pods) {
        (None, Some((namespace, selector))) => WaitDetails::OfPods { namespace, selector },
        (Some(_), _) | (None, None) => WaitDetails::Known(wait_fact(health, first.lack.clone())),
    }
}

/// What a module waits for: the first of its workloads that are not ready, what it lacks, and how many there are.
/// `lack` is what the workload or its pods say.
pub(super) fn wait_fact(health: &WorkloadsHealth, lack: Option<String>) -> WaitFact {
    let Some(first) = health.waiting.first() else { return WaitFact::Nothing };
    let lack = lack.unwrap_or_else(|| first.message.clone());
    WaitFact::For(format!("{}{}: {lack}", first.name, more(health.waiting.len())))
}

/// Whether a module has waited so long that its status says for what.
fn explains_wait(manifest: &Manifest, now: Timestamp) -> bool {
    let last = manifest.status.as_ref().and_then(|status| status.last_operation.as_ref());
    let since = last.filter(|last| last.operation == status::WAITING_FOR_RESOURCES);
    let since = since.and_then(|last| last.last_update_time.as_ref());
    since.is_some_and(|since| WAIT_DETAILS_AFTER <= now.duration_since(since.0))
}

fn is_workload(id: &ObjectId) -> bool {
    &*id.group == "apps" && matches!(&*id.kind, "Deployment" | "StatefulSet" | "DaemonSet")
}

// === impl Workload ===

impl Workload {
    /// The labels of the pods that its health depends on; none if it depends on no pods.
    pub(super) fn pods_to_list(&self) -> Option<String> {
        match self {
            Workload::NotServed | Workload::Absent => None,
            Workload::Live(object) => health::pods_of(object.value()),
        }
    }
}

// === impl WorkloadsHealth ===

impl WorkloadsHealth {
    /// The health of a module with these workloads, in the order of apply.
    pub(super) fn of(checked: Vec<CheckedWorkload>) -> WorkloadsHealth {
        let worst = health::worst(checked.iter().map(|one| (one.name.as_str(), &one.health)));
        let waiting = checked.into_iter().filter_map(|one| one.waiting).collect();
        WorkloadsHealth { worst, waiting }
    }
}

#[cfg(test)]
mod tests;
