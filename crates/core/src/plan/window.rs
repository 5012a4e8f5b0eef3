//! Whether an upgrade that requires downtime waits for a maintenance window.
//!
//! A plan asks for a window only if the ModuleTemplate of the wanted version has `requiresDowntime`, the runtime has
//! another version of the module, and its Kyma in KCP does not skip windows. So the first installation never waits.
//! The rule of [`crate::maintenance`] decides. Row M9g of `docs/compatibility.md`.

use std::{collections::BTreeMap, time::Duration};

use jiff::Timestamp;

use super::{HeldVersions, Installation, Refusal, reason, rollout::Hold};
use crate::{
    api::{Kyma, Manifest, ModuleTemplate, names::label},
    landscape,
    maintenance::{Policy, WindowState},
};

/// What a plan knows of maintenance windows.
#[derive(Clone, Copy, Debug)]
pub enum Windows<'a> {
    /// Nothing, as for a command without a policy: upgrades are planned as if a window were open.
    Unknown,
    /// As [`Windows::Unknown`], but some versions are held.
    Open {
        /// The installed versions.
        installed: &'a InstalledVersions,
        /// The versions that the runtime does not get yet.
        held: &'a HeldVersions,
    },
    /// The policy and the time.
    Known(RuntimeWindows<'a>),
}

/// The policy, the time, and what decides about windows of one runtime.
#[derive(Clone, Copy, Debug)]
pub struct RuntimeWindows<'a> {
    /// The policy; `None` if none is configured or readable.
    pub policy: Option<&'a Policy>,
    /// The present time.
    pub now: Timestamp,
    /// How long a window must last from now to be used.
    pub size_min: Duration,
    /// The labels of the Kyma in KCP, which rules match.
    pub labels: &'a BTreeMap<String, String>,
    /// The installed versions.
    pub installed: &'a InstalledVersions,
    /// The versions that the runtime does not get yet, because they spread step by step.
    pub held: &'a HeldVersions,
}

/// A policy at a time, for a command that compares many runtimes.
#[derive(Clone, Debug)]
pub struct PolicyAt {
    /// The policy.
    pub policy: Policy,
    /// The time.
    pub now: Timestamp,
    /// How long a window must last from then to be used.
    pub size_min: Duration,
}

/// The installed version of each module, by module.
pub type InstalledVersions = BTreeMap<String, InstalledVersion>;

/// The version of a module that a runtime has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InstalledVersion {
    /// Version.
    pub version: String,
    /// The channel that it is from, if known.
    pub channel: Option<String>,
}

/// What an upgrade waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WaitFor {
    /// A maintenance window of the runtime.
    Window,
    /// Other runtimes, or its time: see [`super::rollout`].
    Rollout(Hold),
}

/// An upgrade that waits for a maintenance window, or for its turn in a rollout.
#[derive(Clone, Debug, PartialEq)]
pub struct Wait {
    /// What it waits for.
    pub why: WaitFor,
    /// The installed version.
    pub from: String,
    /// The version that waits.
    pub to: String,
    /// When it ends, if that is known: when the next window begins, or the delay of the runtime ends.
    pub next: Option<Timestamp>,
    /// The installed version, which stays. `None` if its ModuleTemplate is gone: then its Manifest stays as it is.
    pub kept: Option<Installation>,
    /// What is installed afterwards, or why it cannot be.
    pub coming: Result<Installation, Refusal>,
}

/// Whether an upgrade may begin.
pub(super) enum Gate<'a> {
    /// It may, or there is nothing to upgrade.
    Open,
    /// It waits.
    Closed { installed: &'a InstalledVersion, next: Option<Timestamp> },
}

// === impl PolicyAt ===

impl PolicyAt {
    /// The windows of one runtime. `held` are the versions that it does not get yet for another reason.
    pub fn windows<'a>(
        &'a self,
        labels: &'a BTreeMap<String, String>,
        installed: &'a InstalledVersions,
        held: &'a HeldVersions,
    ) -> Windows<'a> {
        let PolicyAt { policy, now, size_min } = self;
        let policy = Some(policy);
        Windows::Known(RuntimeWindows { policy, now: *now, size_min: *size_min, labels, installed, held })
    }
}

/// Lifecycle Manager's message of a module that waits.
pub const WAITING: &str = "waiting for next maintenance window to update module version";

/// Asks whether `module` may get the version of `template` now. Fails if a window is required and no policy is known.
pub(super) fn gate<'a>(
    windows: Windows<'a>,
    kyma: &Kyma,
    module: &str,
    template: &ModuleTemplate,
    version: &str,
) -> Result<Gate<'a>, Refusal> {
    let Windows::Known(RuntimeWindows { policy, now, size_min, labels, installed, held: _ }) = windows else {
        return Ok(Gate::Open);
    };
    if !template.spec.requires_downtime || kyma.spec.skip_maintenance_windows {
        return Ok(Gate::Open);
    }
    let Some(installed) = installed.get(module).filter(|installed| installed.version != version) else {
        return Ok(Gate::Open);
    };
    let Some(policy) = policy else {
        let message = "failed to determine if maintenance window is active: no maintenance window policy configured";
        return Err(Refusal::error(reason::NO_MAINTENANCE_POLICY, message));
    };
    Ok(match policy.standing(labels, now, size_min) {
        WindowState::Open => Gate::Open,
        WindowState::Closed { next } => Gate::Closed { installed, next: Some(next) },
        WindowState::Never => Gate::Closed { installed, next: None },
    })
}

/// The versions that the Manifests of a runtime install. A module that is being removed has none any more.
pub fn installed_in_manifests<'a>(manifests: impl IntoIterator<Item = &'a Manifest>) -> InstalledVersions {
    let stays = manifests.into_iter().filter(|manifest| manifest.metadata.deletion_timestamp.is_none());
    let versions = stays.filter_map(|manifest| {
        let module = landscape::label(&manifest.metadata, label::MODULE_NAME)?;
        let channel = landscape::label(&manifest.metadata, label::CHANNEL).map(str::to_owned);
        let version = manifest.spec.version.clone()?;
        Some((module.to_owned(), InstalledVersion { version, channel }))
    });
    versions.collect()
}

/// The installed versions that the status of a Kyma names.
pub fn installed_in_status(kyma: &Kyma) -> InstalledVersions {
    let modules = kyma.status.iter().flat_map(|status| &status.modules);
    let versions = modules.filter_map(|module| {
        let version = module.version.clone()?;
        Some((module.name.clone(), InstalledVersion { version, channel: module.channel.clone() }))
    });
    versions.collect()
}

#[cfg(test)]
mod tests;
