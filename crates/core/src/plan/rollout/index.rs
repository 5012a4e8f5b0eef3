//! How many runtimes have which version of each module.
//!
//! Every change of a Manifest or a Kyma updates the counts of its own runtime, so a question about one runtime costs no
//! more in a landscape of thousands. Only a new list of waves makes the index sort the runtimes of a module again.
//!
//! The watch lags behind the writes of this process. So a runtime that may begin is counted as being upgraded from then
//! on, until its Manifest shows the version.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use super::{Hold, Policy, Verdict, WaveCounts};
use crate::{
    api::{
        Kyma, Manifest,
        names::{annotation, label},
        shared::State,
    },
    landscape,
    name::Key,
    plan::{Offer, is_mandatory},
    status,
};

/// A module in one channel, or as a mandatory one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Line {
    /// The ModuleReleaseMeta.
    pub release: Key,
    /// Where the version is from.
    pub offer: Offer,
}

/// What decides about a Kyma, whatever its modules.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KymaFacts {
    /// Its labels, which waves select.
    pub labels: BTreeMap<String, String>,
    /// Whether nothing is upgraded, because a label suspends the Kyma or because it is being deleted.
    pub is_stopped: bool,
}

/// A runtime that wants a version.
#[derive(Clone, Debug)]
pub struct Ask<'a> {
    /// Its Kyma.
    pub kyma: &'a Key,
    /// The module.
    pub line: &'a Line,
    /// The version.
    pub to: &'a str,
    /// How the version spreads.
    pub policy: &'a Policy,
}

/// The runtimes of a module whose version spreads, for metrics.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LineCounts {
    /// The module.
    pub line: Line,
    /// The version.
    pub version: String,
    /// All waves together.
    pub counts: WaveCounts,
    /// Whether it is halted.
    pub is_halted: bool,
}

/// The counts. See the module.
#[derive(Debug, Default)]
pub struct Index {
    lines: BTreeMap<Line, Runtimes>,
    /// The module and the Kyma of each Manifest.
    manifests: BTreeMap<Key, (Line, Key)>,
    /// The modules of each Kyma.
    kymas: BTreeMap<Key, KymaEntry>,
    /// The Kymas that may go on.
    woken: BTreeSet<Key>,
}

#[derive(Debug, Default)]
struct KymaEntry {
    facts: KymaFacts,
    is_unreachable: bool,
    lines: BTreeSet<Line>,
}

/// The runtimes that have one module.
#[derive(Debug, Default)]
struct Runtimes {
    members: BTreeMap<Key, Member>,
    counts: BTreeMap<Group, usize>,
    /// The last version that a runtime asked for, and its policy.
    asked: Option<(Arc<str>, Policy)>,
    /// The runtimes that were told to wait, by wave.
    held: BTreeSet<(usize, Key)>,
    /// Whether one of them was woken to report that the rollout is halted.
    is_halt_reported: bool,
}

/// A runtime that has the module.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Member {
    version: Arc<str>,
    progress: Progress,
    wave: usize,
    /// The version that it may get now.
    reserved: Option<Arc<str>>,
    /// The version that it cannot get for a reason of its own.
    aside: Option<Arc<str>>,
    /// Whether it is unreachable or suspended.
    is_out: bool,
}

/// How a Manifest fares.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Progress {
    Ready,
    Busy,
    Failed,
    /// Nothing can be said or done.
    Out,
}

/// Runtimes that count alike.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Group {
    wave: usize,
    version: Arc<str>,
    progress: Progress,
    aside: Option<Arc<str>>,
}

/// Most runtimes that one change wakes. Each of them wakes others once it is ready.
const WOKEN_MAX: usize = 256;

// === impl KymaFacts ===

impl KymaFacts {
    /// The facts of a Kyma.
    pub fn of(kyma: &Kyma) -> KymaFacts {
        let is_skipped = landscape::label(&kyma.metadata, label::SKIP_RECONCILIATION) == Some("true");
        KymaFacts {
            labels: kyma.metadata.labels.clone().unwrap_or_default(),
            is_stopped: is_skipped || kyma.metadata.deletion_timestamp.is_some(),
        }
    }
}

// === impl Index ===

impl Index {
    /// Notes a Manifest as it is now; `None` if it is gone.
    pub fn set_manifest(&mut self, key: &Key, manifest: Option<&Manifest>) {
        let found = manifest.and_then(|manifest| Some((place(manifest)?, manifest)));
        let now = found.as_ref().map(|(place, _)| place);
        if let Some(former) = self.manifests.get(key).filter(|former| Some(*former) != now).cloned() {
            self.manifests.remove(key);
            self.remove(&former.0, &former.1);
        }
        let Some(((line, kyma), manifest)) = found else { return };
        self.manifests.insert(key.clone(), (line.clone(), kyma.clone()));
        let entry = self.kymas.entry(kyma.clone()).or_default();
        entry.lines.insert(line.clone());
        let is_out = entry.facts.is_stopped || entry.is_unreachable;
        let runtimes = self.lines.entry(line.clone()).or_default();
        let wave = runtimes.wave_of(&entry.facts.labels);
        let version: Arc<str> = manifest.spec.version.as_deref().unwrap_or_default().into();
        let former = runtimes.members.get(&kyma);
        let (reserved, aside) =
            former.map(|former| (former.reserved.clone(), former.aside.clone())).unwrap_or_default();
        let reserved = reserved.filter(|reserved| *reserved != version);
        runtimes.put(&kyma, Some(Member { version, progress: progress(manifest), wave, reserved, aside, is_out }));
        self.wake(&line);
    }

    /// Notes a Kyma as it is now; `None` if it is gone.
    pub fn set_kyma(&mut self, key: &Key, facts: Option<KymaFacts>) {
        let Some(facts) = facts else {
            // Its Manifests go on their own.
            if self.kymas.get(key).is_some_and(|entry| entry.lines.is_empty()) {
                self.kymas.remove(key);
            }
            return;
        };
        let entry = self.kymas.entry(key.clone()).or_default();
        if entry.facts != facts {
            entry.facts = facts;
            self.refresh(key);
        }
    }

    /// Notes whether a runtime can be reached. What it was about to get counts no longer if it cannot.
    pub fn set_reachable(&mut self, kyma: &Key, is_reachable: bool) {
        let Some(entry) = self.kymas.get_mut(kyma) else { return };
        if entry.is_unreachable == is_reachable {
            entry.is_unreachable = !is_reachable;
            self.refresh(kyma);
        }
    }

    /// Notes which versions a runtime cannot get for a reason of its own.
    pub fn set_aside(&mut self, kyma: &Key, aside: &BTreeMap<Line, String>) {
        let lines = self.kymas.get(kyma).map(|entry| entry.lines.clone()).unwrap_or_default();
        for line in lines {
            let Some(runtimes) = self.lines.get_mut(&line) else { continue };
            let Some(former) = runtimes.members.get(kyma) else { continue };
            let version = aside.get(&line).map(|version| Arc::from(version.as_str()));
            if former.aside != version {
                let member = Member { aside: version, ..former.clone() };
                runtimes.put(kyma, Some(member));
                self.wake(&line);
            }
        }
    }

    /// Whether a runtime may get a version now. If so, it counts as being upgraded from now on.
    pub fn ask(&mut self, ask: &Ask<'_>) -> Verdict {
        let Ask { kyma, line, to, policy } = *ask;
        let labels = self.kymas.get(kyma).map(|entry| entry.facts.labels.clone()).unwrap_or_default();
        let runtimes = self.lines.entry(line.clone()).or_default();
        runtimes.follow(to, policy, &self.kymas);
        let wave = policy.wave(&labels);
        let member = runtimes.members.get(kyma);
        let verdict = match member {
            Some(member) if &*member.version == to || member.reserved.as_deref() == Some(to) => Verdict::Begin,
            _ => policy.verdict(to, &runtimes.waves(to), wave),
        };
        match (&verdict, member.cloned()) {
            (Verdict::Begin, Some(member)) => {
                runtimes.held.remove(&(wave, kyma.clone()));
                let reserved = Some(Arc::from(to)).filter(|to| *to != member.version);
                runtimes.put(kyma, Some(Member { reserved, ..member }));
            }
            (Verdict::Begin, None) => {}
            (Verdict::Hold(_), _) => _ = runtimes.held.insert((wave, kyma.clone())),
        }
        verdict
    }

    /// The Kymas that may go on since the last call.
    pub fn take_woken(&mut self) -> BTreeSet<Key> {
        std::mem::take(&mut self.woken)
    }

    /// The modules whose version spreads by a policy.
    pub fn counts(&self) -> Vec<LineCounts> {
        let of = |(line, runtimes): (&Line, &Runtimes)| {
            let (version, policy) = runtimes.asked.as_ref()?;
            let waves = runtimes.waves(version);
            let mut counts = WaveCounts::default();
            for wave in &waves {
                counts.pending += wave.pending;
                counts.upgrading += wave.upgrading;
                counts.failed += wave.failed;
                counts.done += wave.done;
                counts.aside += wave.aside;
            }
            let is_halted = policy.verdict(version, &waves, 0) == Verdict::Hold(Hold::Halted);
            Some(LineCounts { line: line.clone(), version: version.to_string(), counts, is_halted })
        };
        self.lines.iter().filter_map(of).collect()
    }

    /// The Kymas in which a version failed, by key.
    pub fn failed(&self, line: &Line, version: &str) -> Vec<&Key> {
        let is_failed = |member: &Member| {
            let (found, progress) = member.effective();
            &**found == version && progress == Progress::Failed
        };
        let members = self.lines.get(line).into_iter().flat_map(|runtimes| &runtimes.members);
        members.filter(|(_, member)| is_failed(member)).map(|(kyma, _)| kyma).collect()
    }

    fn remove(&mut self, line: &Line, kyma: &Key) {
        if let Some(entry) = self.kymas.get_mut(kyma) {
            entry.lines.remove(line);
        }
        if let Some(runtimes) = self.lines.get_mut(line) {
            runtimes.put(kyma, None);
            runtimes.held.retain(|(_, held)| held != kyma);
            if runtimes.members.is_empty() {
                self.lines.remove(line);
                return;
            }
        }
        self.wake(line);
    }

    /// Applies what is known of a Kyma to its modules.
    fn refresh(&mut self, kyma: &Key) {
        let Some(entry) = self.kymas.get(kyma) else { return };
        let is_out = entry.facts.is_stopped || entry.is_unreachable;
        let (lines, labels, is_unreachable) = (entry.lines.clone(), entry.facts.labels.clone(), entry.is_unreachable);
        for line in lines {
            let Some(runtimes) = self.lines.get_mut(&line) else { continue };
            let wave = runtimes.wave_of(&labels);
            let Some(member) = runtimes.members.get(kyma).cloned() else { continue };
            let reserved = member.reserved.clone().filter(|_| !is_unreachable);
            runtimes.put(kyma, Some(Member { wave, is_out, reserved, ..member }));
            self.wake(&line);
        }
    }

    /// Wakes as many of the runtimes that wait for a module as may begin. If the rollout is halted, wakes one of them,
    /// which reports it: a module that fails on and off must not cause a pass over all runtimes each time.
    fn wake(&mut self, line: &Line) {
        let Some(runtimes) = self.lines.get_mut(line) else { return };
        let Some((version, policy)) = runtimes.asked.as_ref().filter(|_| !runtimes.held.is_empty()) else { return };
        let waves = runtimes.waves(version);
        let Some(first) = runtimes.held.first().map(|(wave, _)| *wave) else { return };
        let verdict = policy.verdict(version, &waves, first);
        let was_reported = std::mem::replace(&mut runtimes.is_halt_reported, verdict == Verdict::Hold(Hold::Halted));
        match verdict {
            Verdict::Begin => {}
            Verdict::Hold(Hold::Halted) if !was_reported => {
                self.woken.extend(runtimes.held.first().map(|(_, kyma)| kyma.clone()));
                return;
            }
            Verdict::Hold(_) => return,
        }
        let room = policy.room(version, &waves).min(WOKEN_MAX);
        let next: Vec<(usize, Key)> =
            runtimes.held.iter().take_while(|(wave, _)| *wave == first).take(room).cloned().collect();
        for held in next {
            runtimes.held.remove(&held);
            self.woken.insert(held.1);
        }
    }
}

// === impl Runtimes ===

impl Runtimes {
    /// Notes a runtime, or that it has the module no longer.
    fn put(&mut self, kyma: &Key, member: Option<Member>) {
        let former = match &member {
            Some(member) => self.members.insert(kyma.clone(), member.clone()),
            None => self.members.remove(kyma),
        };
        if let Some(former) = former {
            let group = former.group();
            if let Some(count) = self.counts.get_mut(&group) {
                *count -= 1;
                if *count == 0 {
                    self.counts.remove(&group);
                }
            }
        }
        if let Some(member) = member {
            *self.counts.entry(member.group()).or_default() += 1;
        }
    }

    /// The wave of a Kyma with these labels, by the policy that was last asked with.
    fn wave_of(&self, labels: &BTreeMap<String, String>) -> usize {
        self.asked.as_ref().map(|(_, policy)| policy.wave(labels)).unwrap_or_default()
    }

    /// Notes the version that spreads, and its policy. Sorts the runtimes into its waves if these are new.
    fn follow(&mut self, to: &str, policy: &Policy, kymas: &BTreeMap<Key, KymaEntry>) {
        let former = self.asked.as_ref();
        if former.is_some_and(|(version, former)| &**version == to && former == policy) {
            return;
        }
        let has_new_waves = former.is_none_or(|(_, former)| former.waves != policy.waves);
        self.asked = Some((to.into(), policy.clone()));
        if !has_new_waves {
            return;
        }
        let wave_of = |kyma: &Key| kymas.get(kyma).map(|entry| policy.wave(&entry.facts.labels)).unwrap_or_default();
        self.held = self.held.iter().map(|(_, kyma)| (wave_of(kyma), kyma.clone())).collect();
        let members: Vec<(Key, Member)> = self.members.iter().map(|(key, one)| (key.clone(), one.clone())).collect();
        for (kyma, member) in members {
            let wave = wave_of(&kyma);
            self.put(&kyma, Some(Member { wave, ..member }));
        }
    }

    /// The waves of a rollout to `version`. There are as many entries as groups, not as runtimes.
    fn waves(&self, version: &str) -> Vec<WaveCounts> {
        let last = self.asked.as_ref().map(|(_, policy)| policy.waves.len()).unwrap_or_default();
        let mut waves = vec![WaveCounts::default(); last + 1];
        for (group, count) in &self.counts {
            let Some(wave) = waves.get_mut(group.wave) else { continue };
            let has_it = &*group.version == version;
            let place = match (has_it, group.progress) {
                (true, Progress::Ready) => &mut wave.done,
                (true, Progress::Busy) => &mut wave.upgrading,
                (true, Progress::Failed) => &mut wave.failed,
                (_, Progress::Out) => &mut wave.aside,
                (false, _) if group.aside.as_deref() == Some(version) => &mut wave.aside,
                (false, Progress::Ready | Progress::Busy | Progress::Failed) => &mut wave.pending,
            };
            *place += count;
        }
        waves
    }
}

// === impl Member ===

impl Member {
    /// The version and how it fares, as far as rollouts are concerned.
    fn effective(&self) -> (&Arc<str>, Progress) {
        match &self.reserved {
            _ if self.is_out => (&self.version, Progress::Out),
            Some(reserved) => (reserved, Progress::Busy),
            None => (&self.version, self.progress),
        }
    }

    fn group(&self) -> Group {
        let (version, progress) = self.effective();
        Group { wave: self.wave, version: Arc::clone(version), progress, aside: self.aside.clone() }
    }
}

/// The module and the Kyma of a Manifest; none if it takes no part in rollouts.
fn place(manifest: &Manifest) -> Option<(Line, Key)> {
    let metadata = &manifest.metadata;
    let is_paused = landscape::label(metadata, label::SKIP_RECONCILIATION) == Some("true");
    let is_unmanaged = landscape::annotation(metadata, annotation::IS_UNMANAGED) == Some("true");
    if metadata.deletion_timestamp.is_some() || is_paused || is_unmanaged {
        return None;
    }
    let namespace = metadata.namespace.as_deref().unwrap_or_default();
    let offer = if is_mandatory(metadata) {
        Offer::Mandatory
    } else {
        Offer::Channel(landscape::label(metadata, label::CHANNEL)?.to_owned())
    };
    let release = Key::new(namespace, landscape::label(metadata, label::MODULE_NAME)?);
    let kyma = Key::new(namespace, landscape::label(metadata, label::KYMA_NAME)?);
    Some((Line { release, offer }, kyma))
}

/// How a Manifest fares. A status of an earlier specification says nothing.
fn progress(manifest: &Manifest) -> Progress {
    let state = manifest.status.as_ref().map(|status| status.state).unwrap_or_default();
    match state {
        _ if status::is_outdated(manifest) => Progress::Busy,
        State::Ready | State::Warning | State::Unmanaged => Progress::Ready,
        State::Error => Progress::Failed,
        State::Processing | State::Deleting | State::Unknown => Progress::Busy,
    }
}

#[cfg(test)]
mod tests;
