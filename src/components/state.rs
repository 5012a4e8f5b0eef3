//! What is known of components and layers, who waits for them, and when to read them next. Pure.
//!
//! A registry is one host. A few reads at a time ask it; while it does not answer, only one asks it again. What was
//! never tried is tried once all the same, because its modules must say why they wait.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use tidegate_core::{
    component::{BlobDigest, Component, ComponentName, Source},
    content::ContentId,
    name::Key,
    plan::{Answer, Published, components::NO_REGISTRY},
};
use tidegate_process::retry;
use tokio::time::Instant;

use super::{
    decide::{self, Failure},
    route::{RegistryIndex, Routes},
};
use crate::queue::Trigger;

/// What is read from a registry.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Wanted {
    /// The descriptor of a component.
    Component(Component),
    /// The objects in a layer.
    Layer(LayerOf),
}

/// A layer, and the images that replace those in its objects.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct LayerOf {
    /// The blob.
    pub(super) source: Source,
    /// The images.
    pub(super) images: Vec<String>,
}

/// One read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Job {
    /// Looks up a component: on disk, otherwise in the registry.
    Find(Component),
    /// Looks up a component in the registry, whatever is on disk.
    Renew(Component),
    /// Resolves the tag of a component, and nothing else.
    Check(Component),
    /// Reads a layer: from disk, otherwise from the registry.
    Read(LayerOf),
}

/// The result of a read.
#[derive(Clone, Debug)]
pub(super) enum Outcome {
    /// A component was found.
    Found(Arc<Published>),
    /// The tag of a component names this digest.
    Resolved(BlobDigest),
    /// The objects of a layer are in memory.
    Read,
    /// The read failed.
    Failed(Failure),
}

/// What follows from a result.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Effects {
    /// The runtimes that wait for it.
    pub(super) wake: BTreeMap<Key, Trigger>,
    /// The tag of a component was moved.
    pub(super) moved: Option<Moved>,
    /// A failure that was not said before, for the log.
    pub(super) failed: Option<String>,
}

/// The tag of a component names something else than what is installed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Moved {
    /// The component.
    pub(super) component: Component,
    /// What is installed.
    pub(super) installed: BlobDigest,
    /// What the tag names now.
    pub(super) found: BlobDigest,
    /// The ModuleTemplates of the component.
    pub(super) templates: BTreeSet<Key>,
}

/// What a pass gets to hear about a layer that is not in memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Unavailable {
    /// It is being read. The runtime is woken when that ends.
    Pending,
    /// It cannot be read. The runtime is woken when it can, or when there is another reason.
    Failed {
        /// Why.
        message: String,
        /// Whether only the registry is away. It may have the layer as it was.
        is_away: bool,
    },
}

/// What to do next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// Start this read.
    Start(Job),
    /// Nothing before this moment.
    Wait(Instant),
    /// Nothing before something changes.
    Idle,
}

/// All of it.
#[derive(Debug, Default)]
pub(super) struct State {
    entries: BTreeMap<Wanted, Entry>,
    /// What each runtime waits for.
    waits: BTreeMap<Key, BTreeSet<Wanted>>,
    /// The components that channels offer, with their ModuleTemplates.
    named: BTreeMap<Component, BTreeSet<Key>>,
    answers: Arc<BTreeMap<Component, Answer>>,
    routes: Routes,
    /// The registries that have failed.
    hosts: BTreeMap<RegistryIndex, Host>,
}

/// A registry that did not answer the last time.
#[derive(Debug)]
struct Host {
    /// No retry before this moment.
    until: Instant,
}

/// The reads of a registry that run.
#[derive(Clone, Copy, Debug, Default)]
struct Load {
    running: usize,
    /// Whether one of them tries again what failed.
    is_probing: bool,
}

#[derive(Debug)]
struct Entry {
    waiting: BTreeMap<Key, Trigger>,
    /// What was found; always `None` for a layer.
    found: Option<Arc<Published>>,
    /// Why it could not be read, if it was never found.
    failure: Option<String>,
    /// Whether the last failure was one of the registry as a whole.
    is_of_host: bool,
    /// Whether the last failure was that the registry is away.
    is_away: bool,
    /// Failures in a row.
    attempt: u32,
    running: Option<Instant>,
    /// Whether access to its registry has changed since that read began.
    is_outdated: bool,
    /// When to read it next; `None` if nothing asks for it.
    due: Option<Instant>,
    /// Whether the next read must not be answered from disk.
    renew: bool,
    /// When the last read from the registry began that has ended, well or not.
    asked: Option<Instant>,
    /// What a Manifest recorded before it was found.
    recorded: Option<BlobDigest>,
    /// The last digest of a moved tag that was reported.
    told: Option<BlobDigest>,
}

/// How many reads of one registry run at a time.
const READS_MAX: usize = 4;
/// How often the tag of a component is resolved again. A tag that is moved is a mistake, and reporting it has time.
const CHECK_INTERVAL: Duration = Duration::from_secs(3600);

// === impl State ===

impl State {
    /// Nothing is known yet.
    pub(super) fn new(routes: Routes) -> State {
        State { routes, ..State::default() }
    }

    /// What is known of components.
    pub(super) fn answers(&self) -> Arc<BTreeMap<Component, Answer>> {
        Arc::clone(&self.answers)
    }

    /// Follows what channels offer. What nothing needs any more is forgotten.
    pub(super) fn follow(&mut self, named: BTreeMap<Component, BTreeSet<Key>>, now: Instant) {
        self.named = named;
        for component in self.named.keys().cloned().collect::<Vec<_>>() {
            let wanted = Wanted::Component(component);
            self.entry(wanted.clone(), now);
            self.publish(&wanted);
        }
        self.sweep();
    }

    /// A runtime begins a new pass: it waits for nothing until it says so.
    pub(super) fn release(&mut self, kyma: &Key) {
        for wanted in self.waits.remove(kyma).unwrap_or_default() {
            if let Some(entry) = self.entries.get_mut(&wanted) {
                entry.waiting.remove(kyma);
            }
        }
    }

    /// A runtime waits for a component of which it has this answer. Returns whether there is another one by now: then
    /// it does not wait.
    pub(super) fn want(&mut self, kyma: &Key, component: &Component, answer: &Answer, now: Instant) -> bool {
        if self.answers.get(component).unwrap_or(&Answer::Pending) != answer {
            return true;
        }
        let wanted = Wanted::Component(component.clone());
        self.wait(kyma, Trigger::Changed, wanted.clone(), now);
        self.publish(&wanted);
        self.answers.get(component).unwrap_or(&Answer::Pending) != answer
    }

    /// Whether its registry was asked for a component since this moment. If not, it is asked, and the runtime woken.
    pub(super) fn renew(&mut self, kyma: &Key, component: &Component, since: Instant, now: Instant) -> bool {
        let wanted = Wanted::Component(component.clone());
        let has_registry = wanted.registry(&self.routes).is_some();
        let entry = self.entry(wanted.clone(), now);
        if entry.asked.is_some_and(|asked| since <= asked) || !has_registry {
            return true;
        }
        // The answer of a read that began before the request may be older than the request.
        entry.renew = true;
        entry.due = Some(now);
        self.wait(kyma, Trigger::Changed, wanted, now);
        false
    }

    /// A runtime needs a layer that is not in memory.
    pub(super) fn layer(&mut self, kyma: &Key, trigger: Trigger, layer: &LayerOf, now: Instant) -> Unavailable {
        let wanted = Wanted::Layer(layer.clone());
        self.wait(kyma, trigger, wanted.clone(), now);
        let entry = self.entry(wanted, now);
        match &entry.failure {
            Some(failure) => Unavailable::Failed { message: failure.clone(), is_away: entry.is_away },
            None => {
                if entry.running.is_none() {
                    entry.due.get_or_insert(now);
                }
                Unavailable::Pending
            }
        }
    }

    /// A Manifest records this digest of its component. Returns what to report.
    pub(super) fn compare(&mut self, component: &Component, installed: BlobDigest) -> Option<Moved> {
        let entry = self.entries.get_mut(&Wanted::Component(component.clone()))?;
        entry.recorded = Some(installed);
        let found = entry.found.as_ref()?.record.manifest?;
        let moved = entry.moved(found, installed)?;
        Some(self.moved(component, moved))
    }

    /// Access to a registry has changed, so what failed there is tried at once. A read that runs may fail for the
    /// former access, which then says nothing.
    pub(super) fn access_changed(&mut self, registry: RegistryIndex, now: Instant) {
        self.hosts.remove(&registry);
        let routes = &self.routes;
        let of_registry = self.entries.iter_mut().filter(|(wanted, _)| wanted.registry(routes) == Some(registry));
        for (_, entry) in of_registry {
            entry.is_outdated = entry.running.is_some();
            if 0 < entry.attempt {
                (entry.due, entry.attempt) = (Some(now), 0);
            }
        }
    }

    /// Whether a registry has answered the last time.
    pub(super) fn is_answering(&self, registry: RegistryIndex) -> bool {
        !self.hosts.contains_key(&registry)
    }

    /// The number of components and layers whose last read from a registry failed.
    pub(super) fn failing(&self, registry: RegistryIndex) -> usize {
        let is_failing =
            |(wanted, entry): &(&Wanted, &Entry)| 0 < entry.attempt && wanted.registry(&self.routes) == Some(registry);
        self.entries.iter().filter(is_failing).count()
    }

    /// Whether a runtime waits for a read that has not ended once.
    pub(super) fn is_awaited(&self) -> bool {
        let is_open = |entry: &Entry| entry.found.is_none() && entry.failure.is_none();
        self.entries.values().any(|entry| is_open(entry) && !entry.waiting.is_empty())
    }

    /// What to do next. What is started is running from now on.
    pub(super) fn next(&mut self, now: Instant) -> Next {
        let mut load: BTreeMap<RegistryIndex, Load> = BTreeMap::new();
        for (wanted, entry) in self.entries.iter().filter(|(_, entry)| entry.running.is_some()) {
            let Some(registry) = wanted.registry(&self.routes) else { continue };
            let load = load.entry(registry).or_default();
            load.running += 1;
            load.is_probing |= 0 < entry.attempt;
        }
        let ready = |wanted: &Wanted, entry: &Entry| {
            let due = entry.due.filter(|_| entry.running.is_none())?;
            let registry = wanted.registry(&self.routes)?;
            let load = load.get(&registry).copied().unwrap_or_default();
            // The end of a read asks again.
            if READS_MAX <= load.running {
                return None;
            }
            match self.hosts.get(&registry).filter(|_| 0 < entry.attempt) {
                None => Some(due),
                // The end of the probe wakes the others.
                Some(host) => (!load.is_probing).then(|| host.until.max(due)),
            }
        };
        let first = self.entries.iter().filter_map(|(wanted, entry)| Some((ready(wanted, entry)?, wanted))).min();
        match first {
            None => Next::Idle,
            Some((due, _)) if now < due => Next::Wait(due),
            Some((_, wanted)) => {
                let wanted = wanted.clone();
                Next::Start(self.start(wanted, now))
            }
        }
    }

    fn start(&mut self, wanted: Wanted, now: Instant) -> Job {
        let entry = self.entry(wanted.clone(), now);
        (entry.running, entry.due) = (Some(now), None);
        match wanted {
            Wanted::Layer(layer) => Job::Read(layer),
            Wanted::Component(component) if entry.renew => {
                entry.renew = false;
                Job::Renew(component)
            }
            Wanted::Component(component) if entry.found.is_some() => Job::Check(component),
            Wanted::Component(component) => Job::Find(component),
        }
    }

    /// Takes the result of a read. `fraction` is a random number from 0 to 1.
    pub(super) fn end(&mut self, job: &Job, outcome: Outcome, now: Instant, fraction: f64) -> Effects {
        let wanted = job.wanted();
        let Some(entry) = self.entries.get_mut(&wanted) else { return Effects::default() };
        let began = entry.running.take();
        let mut effects = Effects::default();
        let is_outdated = std::mem::take(&mut entry.is_outdated);
        match outcome {
            Outcome::Failed(_) if is_outdated => {
                entry.due = Some(now);
                entry.renew |= matches!(job, Job::Renew(_));
            }
            Outcome::Failed(failure) => {
                entry.attempt = entry.attempt.saturating_add(1);
                entry.is_of_host = failure.is_of_host;
                entry.is_away = decide::is_away(&failure);
                entry.asked = began;
                let delay = decide::delay(&failure, entry.attempt, fraction);
                // A renewal that was requested meanwhile does not wait.
                entry.due.get_or_insert(now + delay);
                effects.failed = (entry.attempt == 1).then(|| failure.message.clone());
                let is_news = entry.failure.as_ref() != Some(&failure.message);
                if entry.found.is_none() {
                    entry.failure = Some(failure.message);
                }
                if is_news || matches!(job, Job::Renew(_)) {
                    effects.wake = entry.waiting.clone();
                }
                if failure.is_of_host {
                    self.failed(&wanted, now + delay);
                } else {
                    self.answered(&wanted, now);
                }
            }
            Outcome::Found(published) => {
                let before = entry.found.replace(Arc::clone(&published));
                entry.succeed(now, fraction);
                if let Job::Renew(_) = job {
                    entry.asked = began;
                }
                effects.wake = std::mem::take(&mut entry.waiting);
                let before = before.map_or(entry.recorded, |before| before.record.manifest);
                let digests = before.zip(published.record.manifest);
                let moved = digests.and_then(|(installed, found)| entry.moved(found, installed));
                effects.moved = moved.zip(wanted.component()).map(|(moved, component)| self.moved(component, moved));
                self.answered(&wanted, now);
            }
            Outcome::Resolved(found) => {
                entry.succeed(now, fraction);
                let installed = entry.found.as_ref().and_then(|published| published.record.manifest);
                let moved = installed.and_then(|installed| entry.moved(found, installed));
                effects.moved = moved.zip(wanted.component()).map(|(moved, component)| self.moved(component, moved));
                self.answered(&wanted, now);
            }
            Outcome::Read => {
                entry.succeed(now, fraction);
                entry.due = None;
                effects.wake = std::mem::take(&mut entry.waiting);
                self.answered(&wanted, now);
            }
        }
        self.publish(&wanted);
        self.sweep();
        effects
    }

    /// The layer of a component that was just found was read, or not, together with it. A runtime whose Manifest names
    /// the layer may have waited for it meanwhile.
    pub(super) fn layer_ended(
        &mut self,
        layer: LayerOf,
        failure: Option<Failure>,
        now: Instant,
        fraction: f64,
    ) -> Effects {
        let outcome = match failure {
            Some(failure) => {
                self.entry(Wanted::Layer(layer.clone()), now);
                Outcome::Failed(failure)
            }
            None => Outcome::Read,
        };
        self.end(&Job::Read(layer), outcome, now, fraction)
    }

    /// A registry did not answer: what fails because of it is not tried again before `until`.
    fn failed(&mut self, wanted: &Wanted, until: Instant) {
        if let Some(registry) = wanted.registry(&self.routes) {
            self.hosts.insert(registry, Host { until });
        }
    }

    /// A registry has answered: what failed because of it is tried at once.
    fn answered(&mut self, wanted: &Wanted, now: Instant) {
        let Some(registry) = wanted.registry(&self.routes) else { return };
        if self.hosts.remove(&registry).is_none() {
            return;
        }
        let routes = &self.routes;
        let of_registry = self.entries.iter_mut().filter(|(wanted, _)| wanted.registry(routes) == Some(registry));
        for (_, entry) in of_registry.filter(|(_, entry)| entry.is_of_host && entry.due.is_some()) {
            (entry.is_of_host, entry.due) = (false, Some(now));
        }
    }

    fn wait(&mut self, kyma: &Key, trigger: Trigger, wanted: Wanted, now: Instant) {
        self.entry(wanted.clone(), now).waiting.insert(kyma.clone(), trigger);
        self.waits.entry(kyma.clone()).or_default().insert(wanted);
    }

    /// The entry of what is wanted, which is due at once if it is new. Without a registry it has failed.
    fn entry(&mut self, wanted: Wanted, now: Instant) -> &mut Entry {
        let has_registry = wanted.registry(&self.routes).is_some();
        self.entries.entry(wanted).or_insert_with(|| Entry {
            waiting: BTreeMap::new(),
            found: None,
            failure: (!has_registry).then(|| NO_REGISTRY.to_owned()),
            is_of_host: false,
            is_away: false,
            attempt: 0,
            running: None,
            is_outdated: false,
            due: has_registry.then_some(now),
            renew: false,
            asked: None,
            recorded: None,
            told: None,
        })
    }

    /// Makes the answer about a component known.
    fn publish(&mut self, wanted: &Wanted) {
        let (Some(component), Some(entry)) = (wanted.component(), self.entries.get(wanted)) else { return };
        let answer = match (&entry.found, &entry.failure) {
            (Some(found), _) => Answer::Found(Arc::clone(found)),
            (None, Some(failure)) => Answer::Failed(failure.clone()),
            (None, None) => Answer::Pending,
        };
        if self.answers.get(component) != Some(&answer) {
            Arc::make_mut(&mut self.answers).insert(component.clone(), answer);
        }
    }

    /// Forgets what no runtime waits for: layers, and components that no channel offers.
    fn sweep(&mut self) {
        let State { named, answers, .. } = self;
        self.entries.retain(|wanted, entry| {
            let is_named = wanted.component().is_some_and(|component| named.contains_key(component));
            let is_needed = is_named || entry.running.is_some() || !entry.waiting.is_empty();
            if let Some(component) =
                wanted.component().filter(|component| !is_needed && answers.contains_key(*component))
            {
                Arc::make_mut(answers).remove(component);
            }
            is_needed
        });
    }

    fn moved(&self, component: &Component, (installed, found): (BlobDigest, BlobDigest)) -> Moved {
        let templates = self.named.get(component).cloned().unwrap_or_default();
        Moved { component: component.clone(), installed, found, templates }
    }
}

// === impl Effects ===

impl Effects {
    /// Adds the effects of the layer that was read together with a component.
    pub(super) fn with_layer(mut self, layer: Effects) -> Effects {
        for (kyma, trigger) in layer.wake {
            self.wake.entry(kyma).or_insert(trigger);
        }
        self.failed = self.failed.or(layer.failed);
        self
    }
}

// === impl Entry ===

impl Entry {
    fn succeed(&mut self, now: Instant, fraction: f64) {
        (self.attempt, self.failure, self.is_of_host, self.is_away) = (0, None, false, false);
        self.due.get_or_insert(now + retry::jittered(CHECK_INTERVAL, fraction));
    }

    /// The digests, if they differ and that was not reported.
    fn moved(&mut self, found: BlobDigest, installed: BlobDigest) -> Option<(BlobDigest, BlobDigest)> {
        let is_news = found != installed && self.told != Some(found);
        is_news.then(|| {
            self.told = Some(found);
            (installed, found)
        })
    }
}

// === impl Wanted ===

impl Wanted {
    /// The registry that has it.
    fn registry(&self, routes: &Routes) -> Option<RegistryIndex> {
        routes.of(match self {
            Wanted::Component(component) => &component.name,
            Wanted::Layer(layer) => &layer.source.name,
        })
    }

    fn component(&self) -> Option<&Component> {
        match self {
            Wanted::Component(component) => Some(component),
            Wanted::Layer(_) => None,
        }
    }
}

// === impl Job ===

impl Job {
    /// The component that is read, or whose layer.
    pub(super) fn name(&self) -> &ComponentName {
        match self {
            Job::Find(component) | Job::Renew(component) | Job::Check(component) => &component.name,
            Job::Read(layer) => &layer.source.name,
        }
    }

    fn wanted(&self) -> Wanted {
        match self {
            Job::Find(component) | Job::Renew(component) | Job::Check(component) => {
                Wanted::Component(component.clone())
            }
            Job::Read(layer) => Wanted::Layer(layer.clone()),
        }
    }
}

// === impl LayerOf ===

impl LayerOf {
    /// The layer of a component.
    pub(super) fn of(component: &Component, published: &Published) -> LayerOf {
        let layer = published.module.layer;
        let (repo, name) = (published.repo.clone(), component.name.clone());
        LayerOf {
            source: Source { repo, name, digest: layer.digest, kind: layer.kind },
            images: published.module.localized_images.clone(),
        }
    }

    /// What identifies its objects.
    pub(super) fn content(&self) -> ContentId {
        ContentId::layer(self.source.digest, self.source.kind, &self.images)
    }
}

#[cfg(test)]
mod tests;
