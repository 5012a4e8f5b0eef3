//! Conditions of the custom resources: how to set them, and the texts of Lifecycle Manager's conditions.
//!
//! External tools match on types, reasons and texts, so upstream's are kept to the letter. Reads no
//! clock: the caller passes `now`.

use crate::{
    api::shared::{Condition, Time},
    object::Digest,
};

/// The status of a condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// The condition is true.
    True,
    /// The condition is false.
    False,
    /// The condition is unknown.
    Unknown,
}

/// Sets a condition. Its transition time only changes with its status; the list stays sorted by
/// type.
///
/// Returns whether anything except the time changed.
pub fn set(
    conditions: &mut Vec<Condition>,
    type_: &str,
    status: Status,
    reason: &str,
    message: &str,
    observed_generation: Option<i64>,
    now: &Time,
) -> bool {
    let former = conditions.iter().position(|condition| condition.type_ == type_);
    let since = former
        .map(|index| &conditions[index])
        .filter(|condition| condition.status == status.as_str())
        .map_or_else(|| now.clone(), |condition| condition.last_transition_time.clone());
    let condition = Condition {
        last_transition_time: since,
        message: message.to_owned(),
        observed_generation,
        reason: reason.to_owned(),
        status: status.as_str().to_owned(),
        type_: type_.to_owned(),
    };
    let changed = match former {
        Some(index) if conditions[index] == condition => false,
        Some(index) => {
            conditions[index] = condition;
            true
        }
        None => {
            conditions.push(condition);
            true
        }
    };
    conditions.sort_by(|one, other| one.type_.cmp(&other.type_));
    changed
}

/// Removes a condition. Returns whether it existed.
pub fn remove(conditions: &mut Vec<Condition>, type_: &str) -> bool {
    let before = conditions.len();
    conditions.retain(|condition| condition.type_ != type_);
    conditions.len() != before
}

/// The condition with a type.
pub fn find<'a>(conditions: &'a [Condition], type_: &str) -> Option<&'a Condition> {
    conditions.iter().find(|condition| condition.type_ == type_)
}

/// Whether a condition exists and is true.
pub fn is_true(conditions: &[Condition], type_: &str) -> bool {
    find(conditions, type_).is_some_and(|condition| condition.status == Status::True.as_str())
}

/// The message of a condition that exists and is true.
pub fn message<'a>(conditions: &'a [Condition], type_: &str) -> Option<&'a str> {
    find(conditions, type_)
        .filter(|condition| condition.status == Status::True.as_str())
        .map(|condition| condition.message.as_str())
}

/// Records the digest that `type_` is true for, in its reason: [`APPLIED_REASON`], a colon and the digest. `message`
/// says it to people. Returns whether anything except the time changed.
///
/// Earlier versions wrote the digest into the message. Such a condition stays as it is until the digest changes, so
/// that a landscape that they left is not written anew.
pub fn record(
    conditions: &mut Vec<Condition>,
    type_: &str,
    digest: &Digest,
    message: &str,
    observed_generation: Option<i64>,
    now: &Time,
) -> bool {
    let digest = digest.to_string();
    let reason = format!("{APPLIED_REASON}:{digest}");
    // What follows the digest in the message of an earlier version: nothing, or the user.
    let says_this = |former: &&Condition| {
        let rest = former.message.strip_prefix(&digest);
        (former.reason == APPLIED_REASON && rest.is_some_and(|rest| message.ends_with(rest)))
            // Its sentence was another one, and nothing follows it.
            || (type_ == APPLIED && former.reason == reason)
    };
    let (reason, message) = match find(conditions, type_).filter(says_this) {
        Some(former) => (former.reason.clone(), former.message.clone()),
        None => (reason, message.to_owned()),
    };
    set(conditions, type_, Status::True, &reason, &message, observed_generation, now)
}

/// The digest that a condition records, if it exists and is true.
pub fn recorded<'a>(conditions: &'a [Condition], type_: &str) -> Option<&'a str> {
    let condition = find(conditions, type_).filter(|condition| condition.status == Status::True.as_str())?;
    match condition.reason.split_once(':') {
        Some((_, digest)) => Some(digest),
        // The user that applied it follows in the condition of an earlier version.
        None => condition.message.split(' ').next(),
    }
}

/// Condition that records the digest of the last apply, on Manifest, Kyma and Watcher.
pub const APPLIED: &str = "tidegate.dev/Applied";
/// Reason of [`APPLIED`] and [`WATCH_APPLIED`] before their digest.
pub const APPLIED_REASON: &str = "Applied";
/// Condition of a Kyma that counts its modules, for `kubectl get`.
pub const MODULE_COUNT: &str = "tidegate.dev/ModuleCount";
/// Reason of [`MODULE_COUNT`].
pub const MODULE_COUNT_REASON: &str = "Counted";
/// Condition of a Manifest with the object that it waits for, and what that lacks. Lifecycle Manager's message, which
/// its status has, does not say it. Absent if it waits for nothing, or only since a moment.
pub const WAITS_FOR: &str = "tidegate.dev/WaitsFor";
/// Reason of [`WAITS_FOR`].
pub const WAITS_FOR_REASON: &str = "Waiting";
/// Condition of a Manifest with the objects of its inventory that have never existed, because the API server refuses
/// them: nothing leaves the runtime with them. Absent if there are none.
pub const NOT_CREATED: &str = "tidegate.dev/NotCreated";
/// Reason of [`NOT_CREATED`].
pub const NOT_CREATED_REASON: &str = "Refused";
/// Condition with the last handled value of the annotation that requests a reconcile.
pub const RECONCILE_REQUESTED: &str = "tidegate.dev/ReconcileRequested";
/// Reason of [`RECONCILE_REQUESTED`] if the requested pass failed. It is repeated until it succeeds.
pub const RECONCILE_FAILED_REASON: &str = "Failed";
/// Reason of [`RECONCILE_REQUESTED`].
pub const RECONCILE_REQUESTED_REASON: &str = "Handled";
/// Condition with the owner of the module list, and the reverted changes.
pub const MODULES_FROM: &str = "tidegate.dev/ModulesFrom";
/// Condition of a Kyma with what a user can do about modules that are not installed as requested. Lifecycle Manager's
/// messages, which their status has, do not say it. Absent if there is nothing to do.
pub const HINTS: &str = "tidegate.dev/Hints";
/// Reason of [`HINTS`].
pub const HINTS_REASON: &str = "UserAction";
/// Condition of a Kyma: whether its mandatory modules are ready. They take no part in its state.
pub const MANDATORY_MODULES: &str = "tidegate.dev/MandatoryModules";
/// Reason of [`MANDATORY_MODULES`] if all of them are ready.
pub const MANDATORY_READY: &str = "Ready";
/// Reason of [`MANDATORY_MODULES`] while some are installed or removed.
pub const MANDATORY_PROCESSING: &str = "Processing";
/// Reason of [`MANDATORY_MODULES`] if some are in error, or are not installed as their definition says.
pub const MANDATORY_FAILED: &str = "Failed";
/// Condition of a Kyma: whether Tidegate receives changes in its runtime, and which part is
/// missing.
pub const WATCH: &str = "tidegate.dev/Watch";
/// Condition of a Kyma that records the digest of the applied watch objects. Its message names the user that applied
/// them.
pub const WATCH_APPLIED: &str = "tidegate.dev/WatchApplied";
/// Condition of a Watcher with the reason why its VirtualService cannot be created. The text of
/// Lifecycle Manager's condition is constant.
pub const ROUTE: &str = "tidegate.dev/Route";
/// Reason of [`ROUTE`].
pub const ROUTE_REASON: &str = "NotConfigured";
/// Condition of a Watcher whose manager has other Watchers: their events use the same path.
pub const SHARED_MANAGER: &str = "tidegate.dev/SharedManager";
/// Reason of [`SHARED_MANAGER`].
pub const SHARED_MANAGER_REASON: &str = "SameManager";
/// Condition of a Kyma with upgrades that wait for a maintenance window: when the next one begins, and what waits.
pub const MAINTENANCE_WINDOW: &str = "tidegate.dev/MaintenanceWindow";
/// Condition of a Kyma with new versions that it does not get yet, because they spread over the runtimes step by step.
pub const ROLLOUT: &str = "tidegate.dev/Rollout";
/// Condition of a Kyma with installed modules that stay as they are, because no OCI registry is configured for them.
/// Not in the runtime, whose users cannot configure one. Absent if there are none.
pub const REGISTRY: &str = "tidegate.dev/Registry";
/// Reason of [`REGISTRY`].
pub const REGISTRY_REASON: &str = "NotConfigured";
/// Condition of a Kyma from whose runtime a commit would remove a module or objects: what, and the command that allows
/// it. Absent if nothing waits.
pub const REMOVAL: &str = "tidegate.dev/Removal";
/// Reason of [`REMOVAL`].
pub const REMOVAL_REASON: &str = "Unconfirmed";
/// Condition that shows whether the runtime is reachable, and why not.
pub const REACHABLE: &str = "tidegate.dev/Reachable";

// === impl Status ===

impl Status {
    /// The value in a condition.
    pub fn as_str(self) -> &'static str {
        match self {
            Status::True => "True",
            Status::False => "False",
            Status::Unknown => "Unknown",
        }
    }
}

impl From<bool> for Status {
    fn from(holds: bool) -> Status {
        if holds { Status::True } else { Status::False }
    }
}

/// Reasons of [`MAINTENANCE_WINDOW`].
pub mod maintenance {
    /// An upgrade waits for the next window.
    pub const WAITING: &str = "Waiting";
    /// The policy has no window left for the runtime.
    pub const NO_WINDOW: &str = "NoWindow";
    /// No policy is configured.
    pub const NO_POLICY: &str = "NoPolicy";
}

/// Reasons of [`ROLLOUT`].
pub mod rollout {
    /// A user has paused the rollout.
    pub const PAUSED: &str = "Paused";
    /// It failed in too many runtimes.
    pub const HALTED: &str = "Halted";
    /// An earlier wave is not complete.
    pub const WAVE: &str = "EarlierWave";
    /// As many runtimes as allowed are being upgraded.
    pub const MAX_UNAVAILABLE: &str = "MaxUnavailable";
    /// Runtimes are upgraded at different times.
    pub const DELAYED: &str = "Delayed";
    /// The policy cannot be read.
    pub const INVALID: &str = "InvalidPolicy";
}

/// Reasons of [`WATCH`].
pub mod watch {
    /// No agent is configured.
    pub const NOT_CONFIGURED: &str = "NotConfigured";
    /// The address of the listener is unknown.
    pub const NO_ADDRESS: &str = "NoListenerAddress";
    /// The runtime has no certificate.
    pub const NO_CERTIFICATE: &str = "NoCertificate";
    /// The CA bundle is missing.
    pub const NO_AUTHORITY: &str = "NoCertificateAuthority";
    /// The image pull Secret of the agent is missing.
    pub const NO_PULL_SECRET: &str = "NoImagePullSecret";
    /// An object could not be applied.
    pub const NOT_APPLIED: &str = "NotApplied";
    /// The agent is not running.
    pub const NOT_READY: &str = "AgentNotReady";
    /// The agent is running, and no probe has come back yet.
    pub const AWAITED: &str = "Awaited";
    /// The agent is running and connected, and probes through the API server of the runtime come back.
    pub const HEARD: &str = "Heard";
    /// The agent is running, and only connects when an object changes.
    pub const INSTALLED: &str = "Installed";
    /// The agent is running but not connected.
    pub const SILENT: &str = "Silent";
    /// The agent is connected, and the API server of the runtime does not reach it.
    pub const DEAF: &str = "Deaf";
    /// The agent is running, and the listener refuses its certificate.
    pub const REFUSED: &str = "Refused";

    /// The reasons for which changes of a runtime are not reported although an agent runs. A user must act.
    pub const BROKEN: [&str; 3] = [SILENT, DEAF, REFUSED];
    /// All reasons.
    pub const ALL: [&str; 13] = [
        NOT_CONFIGURED,
        NO_ADDRESS,
        NO_CERTIFICATE,
        NO_AUTHORITY,
        NO_PULL_SECRET,
        NOT_APPLIED,
        NOT_READY,
        AWAITED,
        HEARD,
        INSTALLED,
        SILENT,
        DEAF,
        REFUSED,
    ];
}

/// Conditions of a Kyma.
pub mod kyma {
    use super::{Condition, Status, Time};

    /// The reason of every condition of a Kyma, for every status.
    pub const REASON: &str = "Ready";
    /// Removed if present: an older Lifecycle Manager set it.
    pub const DEPRECATED: &str = "Ready";

    /// A condition type of a Kyma.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
    pub enum Type {
        /// The CustomResourceDefinitions in the runtime.
        CrdsSync,
        /// The modules.
        Modules,
        /// The catalog in the runtime.
        ModuleCatalog,
        /// The webhook configuration in the runtime.
        SkrWebhook,
        /// The image pull Secret in the runtime, if one is configured.
        SkrImagePullSecretSync,
    }

    impl Type {
        /// The name of the condition type.
        pub fn as_str(self) -> &'static str {
            match self {
                Type::CrdsSync => "CRDsSync",
                Type::Modules => "Modules",
                Type::ModuleCatalog => "ModuleCatalog",
                Type::SkrWebhook => "SKRWebhook",
                Type::SkrImagePullSecretSync => "SKRImagePullSecretSync",
            }
        }

        /// The text for a status.
        pub fn message(self, status: Status) -> &'static str {
            match (self, status) {
                (Type::CrdsSync, Status::True) => "CRDs are synchronized to the SKR",
                (Type::CrdsSync, Status::False) => "CRDs are not synchronized to the SKR",
                (Type::CrdsSync, Status::Unknown) => "CRDs synchronization state is unknown",
                (Type::Modules, Status::True) => "all modules are in ready state",
                (Type::Modules, Status::False) => "not all modules are in ready state",
                (Type::Modules, Status::Unknown) => "modules state is unknown",
                (Type::ModuleCatalog, Status::True) => "module templates are synchronized",
                (Type::ModuleCatalog, Status::False) => {
                    "module templates are out of sync and need to be resynchronized"
                }
                (Type::ModuleCatalog, Status::Unknown) => "module templates synchronization state is unknown",
                (Type::SkrWebhook, Status::True) => "skrwebhook is synchronized",
                (Type::SkrWebhook, Status::False | Status::Unknown) => {
                    "skrwebhook is out of sync and needs to be resynchronized"
                }
                (Type::SkrImagePullSecretSync, Status::True) => "skr image pull secret is synchronized",
                (Type::SkrImagePullSecretSync, Status::False | Status::Unknown) => {
                    "skr image pull secret is out of sync and needs to be resynchronized"
                }
            }
        }
    }

    /// Sets a condition with its text. Returns whether anything changed.
    pub fn set(
        conditions: &mut Vec<Condition>,
        type_: Type,
        status: Status,
        generation: Option<i64>,
        now: &Time,
    ) -> bool {
        super::set(conditions, type_.as_str(), status, REASON, type_.message(status), generation, now)
    }
}

/// Conditions of a Manifest.
pub mod manifest {
    use super::{Condition, Time};

    /// A condition type of a Manifest.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
    pub enum Type {
        /// The objects were read and rendered.
        Resources,
        /// The objects are applied and the workload is ready.
        Installation,
        /// The default custom resource was created, if there is one.
        ModuleCr,
    }

    impl Type {
        /// The name of the condition type.
        pub fn as_str(self) -> &'static str {
            match self {
                Type::Resources => "Resources",
                Type::Installation => "Installation",
                Type::ModuleCr => "ModuleCR",
            }
        }

        /// Its usual reason, for every status.
        pub fn reason(self) -> &'static str {
            match self {
                Type::Resources => "ResourcesAvailable",
                Type::Installation => "Ready",
                Type::ModuleCr => "ModuleCRCreated",
            }
        }

        /// Its text, if it holds or not.
        pub fn message(self, holds: bool) -> &'static str {
            match (self, holds) {
                (Type::Resources, true) => "resources are parsed and ready for use",
                (Type::Resources, false) => "resources not parsed",
                (Type::Installation, true) => "installation is ready and resources can be used",
                (Type::Installation, false) => "installation is not ready",
                (Type::ModuleCr, true) => "module CR was created",
                (Type::ModuleCr, false) => "module CR has not been created to SKR",
            }
        }
    }

    /// Sets a condition with its text, for a reason that is its own unless another one is given. Returns whether
    /// anything changed.
    pub fn set(
        conditions: &mut Vec<Condition>,
        type_: Type,
        holds: bool,
        reason: Option<&str>,
        generation: Option<i64>,
        now: &Time,
    ) -> bool {
        let (name, reason) = (type_.as_str(), reason.unwrap_or(type_.reason()));
        super::set(conditions, name, holds.into(), reason, type_.message(holds), generation, now)
    }
}

pub mod setup;
#[cfg(test)]
mod tests;
