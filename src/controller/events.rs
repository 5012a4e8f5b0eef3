//! Kubernetes Events: what a user sees with `kubectl describe`.
//!
//! Tidegate repeats the same note about the same object only after an hour, and limits the Events of each object.
//! Events are writes, and an object that fails ten thousand times needs one Event. Nothing waits for an Event. If there
//! are too many, Tidegate drops and counts them. One task writes them, while this process leads.

mod limit;

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::Resource;
use serde_json::json;
use tokio::{sync::mpsc, time::Instant};

use self::limit::Limiter;
use tidegate_cluster::{Cause, Cluster, Error, Kind};
use tidegate_core::{
    name::Key,
    object::{Digest, Gvk},
};
use tidegate_process::{ambient, lock::Mutex};

/// Reasons of Events: Lifecycle Manager's, where it has one for the same case.
pub mod reason {
    /// A runtime got its Kyma.
    pub(crate) const REMOTE_INSTALLATION: &str = "RemoteInstallation";
    /// Tidegate reverted edits in a runtime's Kyma.
    pub(crate) const METADATA_SYNCHRONIZATION: &str = "MetadataSynchronization";
    /// A runtime cannot be reached.
    pub(crate) const UNREACHABLE: &str = "Unreachable";
    /// Tidegate applied the whole revision.
    pub(crate) const APPLIED: &str = "Applied";
    /// Tidegate holds back definitions of a revision.
    pub(crate) const WITHHELD: &str = "Withheld";
    /// The tag of a component in a registry was moved.
    pub(crate) const TAG_MOVED: &str = "TagMoved";
    /// The policy of maintenance windows cannot be used.
    pub(crate) const MAINTENANCE_POLICY: &str = "MaintenancePolicy";
    /// A prune waits for a confirmation.
    pub(crate) const PRUNE_WAITS: &str = "PruneWaits";
    /// What a commit takes from runtimes waits for a confirmation.
    pub(crate) const REMOVAL_WAITS: &str = "RemovalWaits";
    /// A source cannot be fetched.
    pub(crate) const FETCH_FAILED: &str = "FetchFailed";
    /// Another client changed an object, and Tidegate restored it.
    pub(crate) const DRIFT_REPAIRED: &str = "DriftRepaired";
    /// Another client undoes an object in a runtime again and again, so Tidegate repairs it less often.
    pub(crate) const REPEATED_DRIFT: &str = "RepeatedDrift";
    /// Tidegate deleted an object and creates it again, because an immutable field differs and its annotation allows
    /// that.
    pub(crate) const RECREATED: &str = "Recreated";
    /// Another client changed or deleted the webhook configuration in a runtime, so Tidegate may have missed changes
    /// there.
    pub(crate) const REPORTING_CHANGED: &str = "ReportingChanged";
    /// Changes in a runtime are no longer reported.
    pub(crate) const WATCH_BROKEN: &str = "WatchBroken";
    /// Changes in a runtime are reported again.
    pub(crate) const WATCH_RESTORED: &str = "WatchRestored";
    /// What Lifecycle Manager left in a runtime can stay no longer, so it becomes Tidegate's.
    pub(crate) const ADOPTION_ENDED: &str = "AdoptionEnded";
    /// A module was installed in a runtime.
    pub(crate) const MODULE_INSTALLED: &str = "ModuleInstalled";
    /// A module got a lower version in a runtime.
    pub(crate) const MODULE_DOWNGRADED: &str = "ModuleDowngraded";
    /// A module got another version in a runtime, which is not lower.
    pub(crate) const MODULE_UPGRADED: &str = "ModuleUpgraded";
    /// A module was removed from a runtime.
    pub(crate) const MODULE_REMOVED: &str = "ModuleRemoved";
    /// A Kyma no longer lets Tidegate manage a module: its objects stay.
    pub(crate) const MODULE_UNMANAGED: &str = "ModuleUnmanaged";
    /// A new version of a module waits for a maintenance window or for its turn in a rollout. Or the removal of a
    /// module waits until users delete their custom resources.
    pub(crate) const MODULE_HELD: &str = "ModuleHeld";
    /// A module is not installed as its Kyma asks for, and only a user can change that.
    pub(crate) const MODULE_REFUSED: &str = "ModuleRefused";
    /// A user suspended the object.
    pub(crate) const SUSPENDED: &str = "Suspended";
    /// A user resumed the object.
    pub(crate) const RESUMED: &str = "Resumed";
    /// A module is not in its desired state.
    pub(crate) const MODULE_FAILED: &str = "ModuleFailed";
    /// The deletion of a ModuleReleaseMeta waits until its mandatory module is removed from runtimes.
    pub(crate) const MANDATORY_REMOVAL: &str = "DeletingMandatoryModule";
    /// A Manifest of a mandatory module whose ModuleReleaseMeta is being deleted cannot be deleted.
    pub(crate) const MANDATORY_MANIFEST: &str = "DeletingMandatoryModuleManifestError";
    /// The removal of a Kyma makes no progress.
    pub(crate) const DELETION_STUCK: &str = "KymaDeletionStuck";
    /// A new version failed in too many runtimes, so that it does not reach others.
    pub(crate) const ROLLOUT_HALTED: &str = "RolloutHalted";
    /// A user paused a rollout, so that a new version reaches no more runtimes.
    pub(crate) const ROLLOUT_PAUSED: &str = "RolloutPaused";
    /// The finalizer of a ModuleReleaseMeta with a mandatory module cannot be added.
    pub(crate) const MANDATORY_FINALIZER: &str = "SettingMandatoryModuleTemplateFinalizerError";
    /// A runtime is not in its desired state.
    pub(crate) const RUNTIME_FAILED: &str = "RuntimeFailed";
    /// An object exists that Tidegate does not own.
    pub const CONFLICT: &str = "Conflict";
    /// Several Kymas claim one runtime.
    pub(crate) const RUNTIME_ID_AMBIGUOUS: &str = "RuntimeIdAmbiguous";
    /// An event came with a certificate of another runtime.
    pub(crate) const CERTIFICATE_NAME: &str = "CertificateName";
    /// A pass over the object panicked, which is a bug in Tidegate. Tidegate tries it again.
    pub(crate) const PASS_PANICKED: &str = "PassPanicked";
    /// An object does not match its type, so Tidegate keeps what it has read of it before.
    pub(crate) const UNREADABLE: &str = "Unreadable";
    /// Neither a Kyma nor Tidegate knows a Manifest.
    pub(crate) const ORPHANED: &str = "OrphanedManifest";
    /// Objects of a resource of a kcp landscape cannot be applied.
    pub(crate) const NOT_APPLIED: &str = "NotApplied";
    /// A CA or a key of service accounts of a kcp landscape is being replaced.
    pub(crate) const REPLACING: &str = "Replacing";
    /// Tidegate keeps objects that left a module, because a delete would remove users' data, or because a setting says
    /// so.
    pub const KEPT: &str = "Kept";
}

/// Whether an Event is good or bad news.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Severity {
    /// An expected change.
    Normal,
    /// A user should check the object.
    Warning,
}

/// One Event.
#[derive(Clone, Debug)]
pub struct Event {
    /// The object that the Event is about.
    pub regarding: ObjectReference,
    /// Normal or Warning.
    pub severity: Severity,
    /// One word in PascalCase: one of [`reason`].
    pub reason: &'static str,
    /// The action that led to the Event, in one word in PascalCase.
    pub action: &'static str,
    /// One sentence, without secrets and excerpts.
    pub note: String,
}

/// Accepts Events. Cheap to clone.
#[derive(Clone)]
pub struct Recorder(Arc<Shared>);

/// Writes Events, in a task of its own.
pub struct Writer {
    events: mpsc::Receiver<Event>,
    /// The reporting process.
    instance: String,
}

struct Shared {
    events: mpsc::Sender<Event>,
    limiter: Mutex<Limiter>,
    dropped: AtomicU64,
}

/// Events that wait to be written. A rollout over thousands of runtimes publishes more than a user reads; the rest is
/// dropped.
const WAITING_MAX: usize = 512;
/// The trigger that the audit log names for the write of an Event.
const TRIGGER: &str = "event";
/// Longest note that the API server accepts.
const NOTE_BYTES_MAX: usize = 1024;

/// A recorder, and the writer of its Events.
pub fn recorder(instance: &str) -> (Recorder, Writer) {
    let (sender, events) = mpsc::channel(WAITING_MAX);
    let shared = Shared { events: sender, limiter: Mutex::default(), dropped: AtomicU64::new(0) };
    (Recorder(Arc::new(shared)), Writer { events, instance: instance.to_owned() })
}

// === impl Recorder ===

impl Recorder {
    /// Publishes an Event about an object. Never waits.
    pub fn publish<K: Resource<DynamicType = ()>>(
        &self,
        object: &K,
        severity: Severity,
        reason: &'static str,
        action: &'static str,
        note: impl Into<String>,
    ) {
        self.publish_event(Event { regarding: object.object_ref(&()), severity, reason, action, note: note.into() });
    }

    /// Publishes an Event. Never waits.
    pub(crate) fn publish_event(&self, event: Event) {
        let admitted = {
            let mut limiter = self.0.limiter.lock();
            limiter.admit(&event, Instant::now())
        };
        match admitted {
            limit::Admission::Admitted => {
                if self.0.events.try_send(event).is_err() {
                    self.0.dropped.fetch_add(1, Ordering::Relaxed);
                }
            }
            limit::Admission::SaidBefore => {}
            limit::Admission::TooMany => {
                self.0.dropped.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// Kubernetes Events dropped because there were too many.
    pub fn dropped(&self) -> u64 {
        self.0.dropped.load(Ordering::Relaxed)
    }
}

// === impl Writer ===

impl Writer {
    /// Discards Events until every recorder is dropped, for a process that writes nothing.
    pub(crate) async fn discard(mut self) {
        while self.events.recv().await.is_some() {}
    }

    /// Writes Events until every recorder is dropped.
    pub async fn run(mut self, kcp: Arc<Cluster>) {
        let kind = Kind::new(Gvk::new("events.k8s.io", "v1", "Event"), "events", true);
        let cause = Cause::trigger(TRIGGER);
        while let Some(event) = self.events.recv().await {
            let now = ambient::now();
            let (key, body) = body(&event, &self.instance, now);
            match kcp.create(&cause, &kind, &kind.id(&key), body.to_string().into()).await {
                // Another process leads now, and it publishes its own Events.
                Ok(_) | Err(Error::NotLeading) => {}
                // One line a minute says so for all requests.
                Err(error) if error.may_be_outage() => {
                    tracing::debug!(reason = error.reason(), event = event.reason, "event not written");
                }
                Err(error) => tracing::warn!(reason = error.reason(), event = event.reason, "event not written"),
            }
        }
    }
}

/// The object of an Event.
fn body(event: &Event, instance: &str, now: Timestamp) -> (Key, serde_json::Value) {
    let regarding = &event.regarding;
    // Events about cluster-scoped objects are in `default`.
    let namespace = regarding.namespace.as_deref().unwrap_or("default");
    let about = regarding.name.as_deref().unwrap_or_default();
    let unique = Digest::of_bytes(format!("{:?}{}{now}", regarding.uid, event.note).as_bytes()).short();
    let name = format!("{}.{unique}", cut(about, 253 - 17).trim_end_matches(['.', '-']));
    let body = json!({
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"namespace": namespace, "name": name},
        // The API server requires exactly six decimals.
        "eventTime": format!("{now:.6}"),
        "reportingController": "tidegate.dev/tidegate",
        "reportingInstance": cut(instance, 128),
        "action": event.action,
        "reason": event.reason,
        "regarding": regarding,
        "note": cut(&event.note, NOTE_BYTES_MAX),
        "type": match event.severity {
            Severity::Normal => "Normal",
            Severity::Warning => "Warning",
        },
    });
    (Key::new(namespace, &name), body)
}

/// At most `bytes` of a text, cut between characters.
fn cut(text: &str, bytes: usize) -> &str {
    let mut end = text.len().min(bytes);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

#[cfg(test)]
mod tests;
