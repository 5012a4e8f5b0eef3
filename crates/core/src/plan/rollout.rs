//! How a new version of a module spreads over the runtimes that have another one.
//!
//! Annotations of the ModuleReleaseMeta are the policy: how many runtimes may be upgraded at once, in which waves, and
//! how many may fail before the rollout halts. Without any of them, a version reaches all runtimes at once, each after
//! a delay of its own if `--module-upgrade-rollout-max-delay` is not zero.
//!
//! A rollout concerns one version that a channel offers, or that is mandatory. A runtime has it behind itself once its
//! Manifest names the version and is ready. So the state of a rollout is what the Manifests say: nothing is stored, and
//! a new process goes on where the former one ended. [`Index`] counts the Manifests, so that no pass must read those of
//! other runtimes.
//!
//! The first installation of a module never waits, and neither does a Kyma that selects another channel: that is no
//! version that spreads, but the wish for one runtime.

use std::{collections::BTreeMap, fmt, time::Duration};

use jiff::Timestamp;
use kube::core::{Selector, SelectorExt as _};

use super::{
    InstalledVersion, InstalledVersions, ModuleOutcome, Offer, RuntimePlan, RuntimeWindows, WaitFor, Windows, offers,
    reason, selector,
};
use crate::{
    api::{
        Kyma, Manifest, ModuleReleaseMeta,
        names::annotation::{
            ROLLOUT_MAX_FAILURES, ROLLOUT_MAX_UNAVAILABLE, ROLLOUT_PAUSED, ROLLOUT_RESUMED, ROLLOUT_WAVES, SUSPENDED,
        },
        shared::ObjectMeta,
    },
    conditions,
    landscape::{self, Landscape},
    name::Key,
    object::Digest,
};

mod index;

pub use index::{Ask, Index, KymaFacts, Line, LineCounts};

/// How versions of a module spread.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Policy {
    /// How many runtimes may be upgraded at once; `None` for all of a wave.
    pub max_unavailable: Option<Share>,
    /// How many runtimes may fail before the rollout halts.
    pub max_failures: Share,
    /// The waves. Runtimes that no selector matches are in a last wave.
    pub waves: Vec<Wave>,
    /// Whether a user has paused it.
    pub is_paused: bool,
    /// Who paused it, since when and why, if a user has said so.
    pub suspension: Option<String>,
    /// How many failures of a version users have accepted, by version.
    pub resumed: BTreeMap<String, usize>,
}

/// A number of runtimes, or a part of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Share {
    /// So many.
    Number(usize),
    /// So many of a hundred.
    Percent(usize),
}

/// The runtimes of one wave.
#[derive(Clone, Debug, PartialEq)]
pub struct Wave {
    /// The selector as written.
    pub text: String,
    selector: Selector,
}

/// An annotation that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("annotation `{annotation}`: {message}")]
pub struct ParsePolicyError {
    /// The annotation.
    pub annotation: &'static str,
    /// What is wrong, and what to write instead.
    pub message: String,
}

/// The runtimes of one wave, by how far they are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WaveCounts {
    /// They have another version and can be upgraded.
    pub pending: usize,
    /// They have the version and are not ready.
    pub upgrading: usize,
    /// They have the version and failed.
    pub failed: usize,
    /// They have the version and are ready.
    pub done: usize,
    /// They cannot be upgraded now: they are unreachable or suspended, or wait for a maintenance window. They hold no
    /// wave.
    pub aside: usize,
}

/// Whether a runtime may get the version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Now.
    Begin,
    /// Later.
    Hold(Hold),
}

/// Why a runtime does not get a version yet.
///
/// The messages have no counts: otherwise each step of a rollout would change the status of all runtimes that wait.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Hold {
    /// A user has paused the rollout. With who did it, since when and why, if that is known.
    Paused(Option<String>),
    /// Too many runtimes failed.
    Halted,
    /// An earlier wave is not complete. Contains its number from 1, and how many there are.
    Wave {
        /// The wave that is not complete.
        wave: usize,
        /// All waves.
        of: usize,
    },
    /// As many runtimes as allowed are being upgraded.
    Unavailable,
    /// Runtimes are upgraded at different times.
    Delay(Timestamp),
    /// The policy cannot be read.
    Invalid(String),
}

/// A version that a runtime does not get yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldVersion {
    /// The version.
    pub version: String,
    /// Why.
    pub hold: Hold,
}

/// The versions that a runtime does not get yet, by module.
pub type HeldVersions = BTreeMap<String, HeldVersion>;

/// An installed module that gets another version in the same channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Upgrade<'a> {
    /// The module.
    pub module: &'a str,
    /// Where both versions are from.
    pub offer: &'a Offer,
    /// The new version.
    pub to: &'a str,
}

/// Most waves. A rollout with more could not be understood.
pub const WAVES_MAX: usize = 32;

/// The policy in the annotations of a ModuleReleaseMeta; `None` if it has none of them.
///
/// # Errors
///
/// Fails with the first annotation whose value is invalid.
pub fn policy(metadata: &ObjectMeta) -> Result<Option<Policy>, ParsePolicyError> {
    let text = |name: &'static str| landscape::annotation(metadata, name).map(str::trim);
    let share = |name: &'static str, min: usize| {
        let read =
            |text: &str| Share::read(text, min).map_err(|message| ParsePolicyError { annotation: name, message });
        text(name).map(read).transpose()
    };
    let all = [ROLLOUT_MAX_UNAVAILABLE, ROLLOUT_MAX_FAILURES, ROLLOUT_WAVES, ROLLOUT_PAUSED];
    let is_rollout = all.into_iter().any(|name| text(name).is_some());
    let max_unavailable = share(ROLLOUT_MAX_UNAVAILABLE, 1)?;
    let max_failures = share(ROLLOUT_MAX_FAILURES, 0)?.unwrap_or_default();
    let waves = text(ROLLOUT_WAVES).map(waves).transpose()?.unwrap_or_default();
    let is_paused = match text(ROLLOUT_PAUSED) {
        None | Some("false") => false,
        Some("true") => true,
        Some(_) => {
            let message = "must be `true` or `false`".to_owned();
            return Err(ParsePolicyError { annotation: ROLLOUT_PAUSED, message });
        }
    };
    let resumed = text(ROLLOUT_RESUMED).map(resumed).transpose()?.unwrap_or_default();
    let suspension = text(SUSPENDED).filter(|note| is_paused && !note.is_empty()).map(|note| {
        let note: String = note.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        format!("suspended {note}")
    });
    Ok(is_rollout.then_some(Policy { max_unavailable, max_failures, waves, is_paused, suspension, resumed }))
}

/// Why no runtime gets a new version of a module, whatever the others have: its rollout is paused, or its policy cannot
/// be read. `None` if it depends on the runtimes.
pub fn held_everywhere(metadata: &ObjectMeta) -> Option<Hold> {
    match policy(metadata) {
        Ok(Some(policy)) if policy.is_paused => Some(Hold::Paused(policy.suspension)),
        Ok(_) => None,
        Err(error) => Some(Hold::Invalid(error.to_string())),
    }
}

fn waves(text: &str) -> Result<Vec<Wave>, ParsePolicyError> {
    let error = |message| ParsePolicyError { annotation: ROLLOUT_WAVES, message };
    let parts: Vec<&str> = text.split(';').map(str::trim).filter(|part| !part.is_empty()).collect();
    if WAVES_MAX < parts.len() {
        return Err(error(format!("{} waves are too many: use at most {WAVES_MAX}", parts.len())));
    }
    let wave = |text: &str| Ok(Wave { text: text.to_owned(), selector: selector::read(text).map_err(error)? });
    parts.into_iter().map(wave).collect()
}

/// `1.1.0=2,2.0.0=1`
fn resumed(text: &str) -> Result<BTreeMap<String, usize>, ParsePolicyError> {
    let entry = |text: &str| {
        let (version, count) = text.split_once('=')?;
        Some((version.trim().to_owned(), count.trim().parse().ok()?))
    };
    let entries = text.split(',').map(str::trim).filter(|entry| !entry.is_empty());
    let read = |text: &str| {
        let message = || format!("invalid entry `{text}`: use a version and a number of failures, for example 1.1.0=2");
        entry(text).ok_or_else(|| ParsePolicyError { annotation: ROLLOUT_RESUMED, message: message() })
    };
    entries.map(read).collect()
}

/// The annotation that accepts the failures of these versions, as [`policy`] reads it.
pub fn resumed_text<'a>(failures: impl IntoIterator<Item = (&'a str, usize)>) -> String {
    let entries: Vec<String> = failures.into_iter().map(|(version, count)| format!("{version}={count}")).collect();
    entries.join(",")
}

/// How many runtimes failed with the versions that a ModuleReleaseMeta offers, by version. Versions without failures
/// are left out.
pub fn failures<'a>(
    release: &'a ModuleReleaseMeta,
    manifests: impl IntoIterator<Item = &'a Manifest>,
) -> BTreeMap<&'a str, usize> {
    let mut index = Index::default();
    for manifest in manifests {
        index.set_manifest(&landscape::key(&manifest.metadata), Some(manifest));
    }
    let release_key = landscape::key(&release.metadata);
    let mut failures = BTreeMap::new();
    for (offer, version) in offers(release) {
        let count = index.failed(&Line { release: release_key.clone(), offer }, version).len();
        if 0 < count {
            let known: &mut usize = failures.entry(version).or_default();
            *known = count.max(*known);
        }
    }
    failures
}

/// The installed modules that the plan gives another version, each in its channel.
pub fn upgrades<'a>(plan: &'a RuntimePlan, installed: &'a InstalledVersions) -> Vec<Upgrade<'a>> {
    let deciding = plan.deciding().into_iter();
    let upgrade = deciding.filter_map(|module| {
        let ModuleOutcome::Install(installation) = &module.outcome else { return None };
        let InstalledVersion { version, channel } = installed.get(&module.name)?;
        let is_upgrade = *version != installation.version && channel.as_deref() == module.offer.channel();
        is_upgrade.then_some(Upgrade { module: &module.name, offer: &module.offer, to: &installation.version })
    });
    upgrade.collect()
}

/// The versions among the upgrades of a plan that no runtime gets now, see [`held_everywhere`].
pub fn held_in(
    landscape: &Landscape,
    namespace: &str,
    plan: &RuntimePlan,
    installed: &InstalledVersions,
) -> HeldVersions {
    let held = upgrades(plan, installed).into_iter().filter_map(|upgrade| {
        let release = landscape.releases.get(&Key::new(namespace, upgrade.module))?;
        let hold = held_everywhere(&release.metadata)?;
        Some((upgrade.module.to_owned(), HeldVersion { version: upgrade.to.to_owned(), hold }))
    });
    held.collect()
}

/// The modules whose new version cannot be installed in this runtime for a reason of the runtime. They hold no wave.
pub fn aside(plan: &RuntimePlan) -> impl Iterator<Item = (&str, &Offer)> {
    let is_aside = |outcome: &ModuleOutcome| match outcome {
        ModuleOutcome::Wait(wait) => matches!(wait.why, WaitFor::Window),
        ModuleOutcome::Refuse(refusal) => {
            [reason::DOWNGRADE, reason::NOT_ALLOWED, reason::NO_MAINTENANCE_POLICY].contains(&refusal.reason)
        }
        ModuleOutcome::Install(_) | ModuleOutcome::Unmanage => false,
    };
    let all = plan.modules.iter().chain(&plan.mandatory);
    all.filter(move |module| is_aside(&module.outcome)).map(|module| (module.name.as_str(), &module.offer))
}

/// When a runtime gets a version that spreads over `max`; `None` if now.
///
/// The delay is that of this Kyma, module and version, counted from the time when the status of the Kyma first said
/// that it waits. So it survives a restart.
pub fn delayed(kyma: &Kyma, module: &str, version: &str, max: Duration, now: Timestamp) -> Option<Timestamp> {
    if max.is_zero() {
        return None;
    }
    let status = kyma.status.as_ref();
    let said = status.and_then(|status| conditions::find(&status.conditions, conditions::ROLLOUT));
    let since = said.map_or(now, |condition| condition.last_transition_time.0);
    let digest = Digest::of_bytes(format!("{} {module} {version}", landscape::key(&kyma.metadata)).as_bytes());
    let part =
        u32::from_str_radix(&digest.to_string()[..8], 16).map_or(0.5, |part| f64::from(part) / f64::from(u32::MAX));
    let begin = since.checked_add(max.mul_f64(part)).ok()?;
    (now < begin).then_some(begin)
}

/// Why a module does not get a version yet, and the version that it has.
pub(super) fn held<'a>(windows: Windows<'a>, module: &str, version: &str) -> Option<(&'a InstalledVersion, &'a Hold)> {
    let (installed, held) = match windows {
        Windows::Unknown => return None,
        Windows::Open { installed, held } | Windows::Known(RuntimeWindows { installed, held, .. }) => (installed, held),
    };
    let held = held.get(module).filter(|held| held.version == version)?;
    Some((installed.get(module)?, &held.hold))
}

// === impl Policy ===

impl Policy {
    /// The wave of a Kyma with these labels, from 0.
    pub fn wave(&self, labels: &BTreeMap<String, String>) -> usize {
        let found = self.waves.iter().position(|wave| wave.selector.matches(labels));
        found.unwrap_or(self.waves.len())
    }

    /// Whether a runtime of `wave` may get `version`. `counts` are the waves, the last one included.
    pub fn verdict(&self, version: &str, counts: &[WaveCounts], wave: usize) -> Verdict {
        if self.is_paused {
            return Verdict::Hold(Hold::Paused(self.suspension.clone()));
        }
        let failed: usize = counts.iter().map(|wave| wave.failed).sum();
        if self.max_failures.of(total(counts)).saturating_add(self.accepted(version)) < failed {
            return Verdict::Hold(Hold::Halted);
        }
        let is_open = |wave: &WaveCounts| 0 < wave.pending + wave.upgrading;
        if let Some(open) = counts.iter().take(wave).position(is_open) {
            return Verdict::Hold(Hold::Wave { wave: open + 1, of: self.waves.len() + 1 });
        }
        if self.room(version, counts) == 0 { Verdict::Hold(Hold::Unavailable) } else { Verdict::Begin }
    }

    /// How many more runtimes may be upgraded at once.
    fn room(&self, version: &str, counts: &[WaveCounts]) -> usize {
        let Some(max) = self.max_unavailable else { return usize::MAX };
        let upgrading: usize = counts.iter().map(|wave| wave.upgrading).sum();
        let failed: usize = counts.iter().map(|wave| wave.failed).sum();
        // Failures that a user has accepted are not repaired soon, and would hold the rollout for ever.
        let unavailable = upgrading + failed.saturating_sub(self.accepted(version));
        max.of(total(counts)).max(1).saturating_sub(unavailable)
    }

    /// How many failures of a version users have accepted.
    fn accepted(&self, version: &str) -> usize {
        self.resumed.get(version).copied().unwrap_or_default()
    }

    /// What it says, for reports: `2 waves, at most 10 % at once`.
    pub fn summary(&self) -> String {
        let waves = match self.waves.len() {
            0 => "one wave".to_owned(),
            more => format!("{} waves", more + 1),
        };
        let most =
            self.max_unavailable.map(|max| format!(", at most {max} of the runtimes at once")).unwrap_or_default();
        let paused = if self.is_paused { ", paused" } else { "" };
        format!("{waves}{most}{paused}")
    }
}

/// All runtimes.
fn total(counts: &[WaveCounts]) -> usize {
    counts.iter().map(|wave| wave.pending + wave.upgrading + wave.failed + wave.done + wave.aside).sum()
}

// === impl Share ===

impl Default for Share {
    fn default() -> Share {
        Share::Number(0)
    }
}

impl Share {
    fn read(text: &str, min: usize) -> Result<Share, String> {
        let number = |text: &str| text.parse::<usize>().ok().filter(|number| min <= *number);
        let share = match text.strip_suffix('%') {
            Some(percent) => number(percent.trim()).filter(|percent| *percent <= 100).map(Share::Percent),
            None => number(text).map(Share::Number),
        };
        share.ok_or_else(|| {
            format!("invalid value `{text}`: use a number or a percentage from {min}, for example 2 or 10%")
        })
    }

    /// So many of `total`, rounded down.
    pub fn of(self, total: usize) -> usize {
        match self {
            Share::Number(number) => number,
            Share::Percent(percent) => total.saturating_mul(percent) / 100,
        }
    }
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Share::Number(number) => number.fmt(f),
            Share::Percent(percent) => write!(f, "{percent} %"),
        }
    }
}

// === impl Hold ===

impl Hold {
    /// When it ends, if that is known.
    pub fn until(&self) -> Option<Timestamp> {
        match self {
            Hold::Delay(until) => Some(*until),
            Hold::Paused(_) | Hold::Halted | Hold::Wave { .. } | Hold::Unavailable | Hold::Invalid(_) => None,
        }
    }

    /// The reason in the condition of the Kyma.
    pub fn reason(&self) -> &'static str {
        use conditions::rollout;
        match self {
            Hold::Paused(_) => rollout::PAUSED,
            Hold::Halted => rollout::HALTED,
            Hold::Wave { .. } => rollout::WAVE,
            Hold::Unavailable => rollout::MAX_UNAVAILABLE,
            Hold::Delay(_) => rollout::DELAYED,
            Hold::Invalid(_) => rollout::INVALID,
        }
    }
}

impl fmt::Display for Hold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Hold::Paused(suspension) => {
                write!(f, "the rollout is paused by annotation {ROLLOUT_PAUSED}")?;
                suspension.iter().try_for_each(|suspension| write!(f, ", {suspension}"))
            }
            Hold::Halted => f.write_str("the rollout is halted, because it failed in other runtimes"),
            Hold::Wave { wave, of } => write!(f, "wave {wave} of {of} is not complete"),
            Hold::Unavailable => f.write_str("as many runtimes as allowed are being upgraded"),
            Hold::Delay(until) => write!(f, "it begins at {until}"),
            Hold::Invalid(message) => write!(f, "the policy of the rollout is invalid: {message}"),
        }
    }
}

#[cfg(test)]
mod tests;
