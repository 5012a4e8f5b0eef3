//! The queue as a value: makes every decision. Time and randomness are arguments.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    hash::Hash,
    time::Duration,
};

use tokio::time::Instant;

use super::{Depths, Finish, Limits, Pushed, Trigger, Triggers};
use tidegate_core::name::Key;
use tidegate_process::retry::{self, Class};

/// All requested subjects, and which of them are in progress.
pub(super) struct State<S> {
    lane: fn(&S) -> Option<Key>,
    limits: Limits,
    closed: bool,
    entries: HashMap<S, Entry>,
    /// Ready subjects, by deadline. A subject that needs an unavailable permit or lane is parked elsewhere until that
    /// is free.
    ready: BTreeSet<Ticket<S>>,
    /// The earliest moment of each waiting subject.
    due: BTreeSet<(Instant, S)>,
    /// Lanes in use, and the subjects that wait for them.
    lanes: HashMap<Key, Vec<S>>,
    /// Subjects that wait for a permit of failing subjects.
    held: Vec<S>,
    running: usize,
    retrying: usize,
    sequence: u64,
}

/// What is known about one subject.
#[derive(Default)]
struct Entry {
    /// Requested now.
    ready: Option<Ready>,
    /// Requested for later.
    pending: BTreeMap<Trigger, Instant>,
    running: Option<Running>,
    /// Triggers of work that failed or was deferred; the retry gets them.
    carried: Triggers,
    /// Consecutive failures.
    failures: u32,
    /// What resolves the failure, if the last work failed.
    class: Option<Class>,
    /// After a failure: the earliest moment of a retry, even for news.
    not_before: Option<Instant>,
}

#[derive(Clone, Copy)]
struct Ready {
    triggers: Triggers,
    since: Instant,
    deadline: Instant,
    sequence: u64,
}

#[derive(Clone, Copy)]
struct Running {
    /// Whether it uses a permit of failing subjects.
    retrying: bool,
    triggers: Triggers,
}

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Ticket<S> {
    deadline: Instant,
    sequence: u64,
    subject: S,
}

/// The result of [`State::take`].
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Taken<S> {
    pub(super) subject: S,
    pub(super) triggers: Triggers,
    pub(super) attempt: u32,
    pub(super) waited: Duration,
}

// === impl State ===

impl<S: Clone + Eq + Hash + Ord> State<S> {
    pub(super) fn new(lane: fn(&S) -> Option<Key>, limits: Limits) -> State<S> {
        State {
            lane,
            limits,
            closed: false,
            entries: HashMap::new(),
            ready: BTreeSet::new(),
            due: BTreeSet::new(),
            lanes: HashMap::new(),
            held: Vec::new(),
            running: 0,
            retrying: 0,
            sequence: 0,
        }
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closed
    }

    pub(super) fn close(&mut self) {
        self.closed = true;
    }

    /// Requests work now; after a failure, as early as the back-off allows for this trigger.
    pub(super) fn push(&mut self, subject: &S, trigger: Trigger, now: Instant) -> Pushed {
        if self.refuses(subject) {
            return Pushed::Refused;
        }
        let entry = self.entries.entry(subject.clone()).or_default();
        let merged = entry.ready.is_some() || !entry.pending.is_empty();
        let retry = entry.pending.get(&Trigger::Retry).copied();
        let later = match retry.filter(|_| entry.failures != 0 && entry.running.is_none() && entry.ready.is_none()) {
            Some(retry) if !trigger.is_news() => Some(retry),
            _ => entry.not_before.filter(|not_before| now < *not_before && entry.running.is_none()),
        };
        match later {
            Some(moment) => self.delay(subject, trigger, moment),
            None => self.make_ready(subject, trigger.into(), now),
        }
        if merged { Pushed::Merged } else { Pushed::New }
    }

    /// Requests work at a moment; of two for the same trigger, the earlier one wins.
    pub(super) fn push_at(&mut self, subject: &S, trigger: Trigger, moment: Instant) -> Pushed {
        if self.refuses(subject) {
            return Pushed::Refused;
        }
        let entry = self.entries.entry(subject.clone()).or_default();
        let merged = entry.ready.is_some() || !entry.pending.is_empty();
        self.delay(subject, trigger, moment);
        if merged { Pushed::Merged } else { Pushed::New }
    }

    /// The most urgent subject with a free permit.
    pub(super) fn take(&mut self, now: Instant) -> Option<Taken<S>> {
        self.promote(now);
        while self.running < self.limits.running_max && !self.closed {
            let subject = self.ready.pop_first()?.subject;
            let lane = (self.lane)(&subject);
            if let Some(parked) = lane.as_ref().and_then(|lane| self.lanes.get_mut(lane)) {
                parked.push(subject);
                continue;
            }
            let entry = self.entries.get_mut(&subject).expect("a ticket's subject has an entry");
            if entry.is_flaky() && self.limits.retrying_max() <= self.retrying {
                self.held.push(subject);
                continue;
            }
            let ready = entry.ready.take().expect("a ticket's subject is ready");
            let triggers = ready.triggers.union(std::mem::take(&mut entry.carried));
            entry.running = Some(Running { retrying: entry.is_flaky(), triggers });
            self.retrying += usize::from(entry.is_flaky());
            self.running += 1;
            let attempt = entry.failures + 1;
            if let Some(lane) = lane {
                self.lanes.insert(lane, Vec::new());
            }
            return Some(Taken { subject, triggers, attempt, waited: now.saturating_duration_since(ready.since) });
        }
        None
    }

    /// The next moment at which [`State::take`] may return something new.
    pub(super) fn next_due(&self) -> Option<Instant> {
        self.due.first().map(|(moment, _)| *moment)
    }

    /// Finishes work on a subject. `fraction` is a random number from 0 to 1.
    pub(super) fn finish(&mut self, subject: &S, finish: Finish, now: Instant, fraction: f64) {
        let Some(entry) = self.entries.get_mut(subject) else { return };
        let Some(running) = entry.running.take() else { return };
        self.running -= 1;
        self.retrying -= usize::from(running.retrying);
        match finish {
            Finish::Done | Finish::Deferred | Finish::After(..) | Finish::Awaiting(_) | Finish::Gone => {
                if finish == Finish::Deferred {
                    let asked = running.triggers.iter().filter(|trigger| *trigger != Trigger::Retry);
                    entry.carried = entry.carried.union(asked.collect());
                }
                (entry.failures, entry.class, entry.not_before) = (0, None, None);
                self.forget(subject, |trigger| trigger == Trigger::Retry || finish == Finish::Gone);
                match finish {
                    Finish::After(delay, trigger) => self.delay(subject, trigger, now + delay),
                    Finish::Awaiting(delay) => self.delay(subject, Trigger::Retry, now + delay),
                    Finish::Done | Finish::Deferred | Finish::Gone | Finish::Failed(_) | Finish::FailedFor(..) => {}
                }
            }
            Finish::Failed(class) => {
                entry.carried = entry.carried.union(running.triggers);
                let delay = retry::delay(class, entry.failures.saturating_add(1), self.limits.interval);
                self.fail(subject, class, retry::jittered(delay, fraction), now, fraction);
            }
            Finish::FailedFor(class, delay) => {
                entry.carried = entry.carried.union(running.triggers);
                self.fail(subject, class, delay, now, fraction);
            }
        }
        self.free(subject, running);
        if self.entries.get(subject).is_some_and(Entry::is_idle) {
            self.entries.remove(subject);
        }
    }

    /// Makes everything due that waits for a retry after a failure of these classes. The number of attempts stays: what
    /// fails again waits as long as before.
    pub(super) fn hurry(&mut self, classes: &[Class], now: Instant) {
        let waits =
            |entry: &Entry| entry.running.is_none() && entry.class.is_some_and(|class| classes.contains(&class));
        let waiting =
            self.entries.iter().filter(|(_, entry)| waits(entry) && entry.pending.contains_key(&Trigger::Retry));
        let mut waiting: Vec<S> = waiting.map(|(subject, _)| subject.clone()).collect();
        waiting.sort();
        for subject in waiting {
            if let Some(entry) = self.entries.get_mut(&subject) {
                entry.not_before = None;
            }
            self.delay(&subject, Trigger::Retry, now);
        }
    }

    pub(super) fn depths(&self, now: Instant) -> Depths {
        let mut depths = Depths { running: self.running, ..Depths::default() };
        for entry in self.entries.values() {
            depths.failing += usize::from(entry.failures != 0);
            match entry.ready {
                Some(ready) if entry.running.is_none() => {
                    depths.ready += 1;
                    depths.oldest = depths.oldest.max(now.saturating_duration_since(ready.since));
                }
                None if entry.running.is_none() => depths.delayed += 1,
                Some(_) | None => {}
            }
        }
        depths
    }

    pub(super) fn busy(&self) -> Vec<S> {
        let mut subjects: Vec<S> =
            self.entries.iter().filter(|(_, entry)| entry.is_busy()).map(|(subject, _)| subject.clone()).collect();
        subjects.sort();
        subjects
    }

    /// The busy subjects, each with the number of its failures in a row.
    pub(super) fn busy_failures(&self) -> BTreeMap<S, u32> {
        let busy = self.entries.iter().filter(|(_, entry)| entry.is_busy());
        busy.map(|(subject, entry)| (subject.clone(), entry.failures)).collect()
    }

    pub(super) fn is_settled(&self) -> bool {
        !self.entries.values().any(Entry::is_busy)
    }

    fn refuses(&self, subject: &S) -> bool {
        self.closed || (self.limits.subjects_max <= self.entries.len() && !self.entries.contains_key(subject))
    }

    /// Keeps the earliest moment of each trigger.
    fn delay(&mut self, subject: &S, trigger: Trigger, moment: Instant) {
        let entry = self.entries.entry(subject.clone()).or_default();
        let before = entry.due();
        let earliest = entry.pending.get(&trigger).map_or(moment, |known| moment.min(*known));
        entry.pending.insert(trigger, earliest);
        let after = entry.due();
        self.reschedule(subject, before, after);
    }

    /// Drops the pending triggers that `matches` selects.
    fn forget(&mut self, subject: &S, matches: impl Fn(Trigger) -> bool) {
        let Some(entry) = self.entries.get_mut(subject) else { return };
        let before = entry.due();
        entry.pending.retain(|trigger, _| !matches(*trigger));
        let after = entry.due();
        self.reschedule(subject, before, after);
    }

    fn reschedule(&mut self, subject: &S, before: Option<Instant>, after: Option<Instant>) {
        if before == after {
            return;
        }
        if let Some(before) = before {
            self.due.remove(&(before, subject.clone()));
        }
        if let Some(after) = after {
            self.due.insert((after, subject.clone()));
        }
    }

    /// Makes everything ready whose moment has come.
    fn promote(&mut self, now: Instant) {
        while let Some((moment, subject)) = self.due.first().cloned() {
            if now < moment {
                return;
            }
            let entry = self.entries.get_mut(&subject).expect("what is due has an entry");
            let triggers: Triggers =
                entry.pending.iter().filter(|(_, moment)| **moment <= now).map(|(trigger, _)| *trigger).collect();
            entry.pending.retain(|_, moment| now < *moment);
            let after = entry.due();
            self.reschedule(&subject, Some(moment), after);
            self.make_ready(&subject, triggers, now);
        }
    }

    fn make_ready(&mut self, subject: &S, triggers: Triggers, now: Instant) {
        let Some(first) = triggers.first() else { return };
        self.sequence += 1;
        let deadline = now + first.slack();
        let fresh = Ready { triggers, since: now, deadline, sequence: self.sequence };
        let entry = self.entries.entry(subject.clone()).or_default();
        match &mut entry.ready {
            Some(ready) => {
                ready.triggers = ready.triggers.union(triggers);
                if deadline < ready.deadline {
                    let old = Ticket { deadline: ready.deadline, sequence: ready.sequence, subject: subject.clone() };
                    (ready.deadline, ready.sequence) = (deadline, fresh.sequence);
                    // A subject without a ticket is parked or in progress, and gets its ticket when that ends.
                    if self.ready.remove(&old) {
                        self.issue(subject);
                    }
                }
            }
            None => {
                entry.ready = Some(fresh);
                if entry.running.is_none() {
                    self.issue(subject);
                }
            }
        }
    }

    fn issue(&mut self, subject: &S) {
        if let Some(ready) = self.entries.get(subject).and_then(|entry| entry.ready) {
            let ticket = Ticket { deadline: ready.deadline, sequence: ready.sequence, subject: subject.clone() };
            self.ready.insert(ticket);
        }
    }

    /// Starts the back-off of `delay`. Pending requests wait for it as well, news only for the shortest one.
    fn fail(&mut self, subject: &S, class: Class, delay: Duration, now: Instant, fraction: f64) {
        let entry = self.entries.entry(subject.clone()).or_default();
        entry.failures = entry.failures.saturating_add(1);
        entry.class = Some(class);
        let shortest = delay.min(retry::jittered(retry::BACKOFF_MIN, fraction));
        entry.not_before = Some(now + shortest);
        let meanwhile = entry.ready.take().map(|ready| ready.triggers).unwrap_or_default();
        self.forget(subject, |trigger| trigger == Trigger::Retry);
        self.delay(subject, Trigger::Retry, now + delay);
        for trigger in meanwhile.iter() {
            self.delay(subject, trigger, now + if trigger.is_news() { shortest } else { delay });
        }
    }

    /// Releases the permits of `subject`, and wakes the subjects that waited for them and `subject` itself.
    fn free(&mut self, subject: &S, running: Running) {
        let mut freed = (self.lane)(subject).and_then(|lane| self.lanes.remove(&lane)).unwrap_or_default();
        if running.retrying {
            freed.append(&mut self.held);
        }
        freed.push(subject.clone());
        freed.iter().for_each(|subject| self.issue(subject));
    }
}

// === impl Limits ===

impl Limits {
    /// Permits for failing subjects: half of all, and at least one.
    fn retrying_max(&self) -> usize {
        (self.running_max / 2).max(1)
    }
}

// === impl Entry ===

impl Entry {
    fn due(&self) -> Option<Instant> {
        self.pending.values().min().copied()
    }

    fn is_idle(&self) -> bool {
        self.ready.is_none()
            && self.pending.is_empty()
            && self.running.is_none()
            && self.failures == 0
            && self.carried == Triggers::default()
    }

    /// Whether a retry may resolve the failure.
    fn is_flaky(&self) -> bool {
        self.class == Some(Class::Transient)
    }

    /// Whether more is left than a resync, or a retry that only a change can resolve.
    fn is_busy(&self) -> bool {
        self.ready.is_some()
            || self.running.is_some()
            || self.pending.keys().any(|trigger| match trigger {
                Trigger::Retry => self.class != Some(Class::Stalled),
                Trigger::Reported
                | Trigger::Changed
                | Trigger::Requested
                | Trigger::Git
                | Trigger::Push
                | Trigger::Drift => true,
                Trigger::Resync => false,
            })
    }
}
