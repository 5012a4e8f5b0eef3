//! The objects with waiting events: a bounded map of objects, not a list of events.
//!
//! An event only says that an object changed, so further changes of a waiting object add nothing: the newest event
//! replaces the older one. An object is in one of four states:
//!
//! ```text
//!  change ─▶ Fresh ── settle ─▶ Sending ── delivered ─▶ gone, or Trailing if it may have been sent before its commit
//!              ▲                   │                        │ resend
//!              └──── failed ───────┘                        └──▶ Sending ─▶ gone
//! ```
//!
//! *Settle* is the delay of the first attempt, because admission comes before the write is persisted. If persisting
//! takes longer, the control plane still reads the old object. So an event that was sent soon after its admission is
//! sent again after *resend*.
//!
//! Undelivered events wait. If the control plane is unreachable, all of them share one pause, so that an outage causes
//! one attempt at a time. If only one manager fails, the events for this manager wait, and the failed object goes to
//! the end of their queue. Beyond [`Limits::objects`], the oldest is dropped.
//!
//! The clock and randomness are arguments.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
    time::{Duration, Instant},
};

use super::manager::Manager;
use tidegate_events::event::Event;
use tidegate_process::retry;

/// An object and the manager that gets its events.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    /// The manager.
    pub manager: Manager,
    /// The event to send.
    pub event: Event,
}

/// Delays and limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// From a change to its first attempt.
    pub settle: Duration,
    /// From a change until its event is sent again; zero disables it.
    pub resend: Duration,
    /// Limit of waiting objects.
    pub objects: usize,
}

/// Why an event is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Occasion {
    /// The object changed.
    Change,
    /// The object changed, and an earlier attempt failed.
    Retry,
    /// The object changed some seconds ago, and its event is repeated.
    Again,
}

/// The result of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sent {
    /// The manager accepted it.
    Delivered,
    /// The manager refused it permanently.
    Refused,
    /// The manager cannot accept it now and may have said for how long, or it does not answer.
    Busy(Option<Duration>),
    /// The control plane accepts no connection.
    Unreachable,
}

/// What to do next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// Send this event and report the result.
    Send(Arc<Key>, Occasion),
    /// Wait until this moment, unless something changes.
    Wait(Instant),
    /// Wait until something changes.
    Idle,
}

/// The number of waiting objects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Depth {
    /// Objects with an undelivered change.
    pub undelivered: usize,
    /// Objects whose event will be sent again.
    pub trailing: usize,
    /// How long the oldest undelivered change has waited.
    pub oldest: Duration,
}

/// The objects with waiting events.
#[derive(Debug)]
pub struct Pending {
    limits: Limits,
    objects: HashMap<Arc<Key>, Object>,
    /// Objects that are not being sent, by manager and due time.
    order: BTreeMap<Manager, BTreeSet<(Instant, u64, Arc<Key>)>>,
    /// Managers that cannot accept events now.
    busy: BTreeMap<Manager, Pause>,
    /// Set while the control plane is unreachable.
    unreachable: Option<Pause>,
    /// Orders objects that are due at the same moment.
    sequence: u64,
    draining: bool,
}

#[derive(Debug)]
struct Object {
    state: State,
    due: Instant,
    sequence: u64,
    /// The last change.
    changed: Instant,
    /// The first undelivered change.
    since: Instant,
    /// The first change since the current attempt began.
    later: Instant,
    /// Consecutive failures.
    attempt: u32,
    /// Whether the write may have been persisted after the event was sent.
    may_be_early: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Fresh,
    Trailing,
    /// `changed`: whether the object changed during the attempt.
    Sending {
        occasion: Occasion,
        changed: bool,
    },
}

#[derive(Clone, Copy, Debug)]
struct Pause {
    until: Instant,
    /// Until when the manager asked us to wait.
    asked: Instant,
    attempt: u32,
}

/// First pause after a failure.
const BACKOFF_MIN: Duration = Duration::from_secs(2);
/// Longest pause after failures: the agent notices a recovered control plane within a minute.
pub const BACKOFF_MAX: Duration = Duration::from_secs(60);
/// Shortest pause, regardless of jitter.
const PAUSE_MIN: Duration = Duration::from_millis(100);
/// The longest `Retry-After` that the agent honours.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(300);
/// Longest pause during shutdown.
const DRAIN_PAUSE_MAX: Duration = Duration::from_millis(500);

// === impl Pending ===

impl Pending {
    /// Creates an empty set.
    pub fn new(limits: Limits) -> Pending {
        Pending {
            limits,
            objects: HashMap::new(),
            order: BTreeMap::new(),
            busy: BTreeMap::new(),
            unreachable: None,
            sequence: 0,
            draining: false,
        }
    }

    /// Adds a change of an object that a review reported. Returns the event that was dropped to make room.
    pub fn changed(&mut self, key: Key, now: Instant) -> Option<Arc<Key>> {
        self.insert(key, now, true)
    }

    /// Adds an event without a write in progress. Returns the event that was dropped to make room.
    pub fn remind(&mut self, key: Key, now: Instant) -> Option<Arc<Key>> {
        self.insert(key, now, false)
    }

    fn insert(&mut self, key: Key, now: Instant, may_be_early: bool) -> Option<Arc<Key>> {
        let settled = now + if may_be_early { self.limits.settle } else { Duration::ZERO };
        if let Some((key, object)) = self.objects.get_key_value(&key) {
            let (key, was, state) = (Arc::clone(key), (object.due, object.sequence), object.state);
            let object = self.objects.get_mut(&key).expect("it was found above");
            object.may_be_early |= may_be_early;
            object.changed = now;
            match state {
                // Keep the due time: an object that changes all the time would never be sent. But earlier failures no
                // longer count.
                State::Fresh => {
                    (object.attempt, object.due) = (0, object.due.min(settled));
                    let place = (object.due, object.sequence);
                    self.remove_place(&key, was);
                    self.place(&key, place);
                }
                State::Trailing => {
                    (object.state, object.since, object.due) = (State::Fresh, now, settled);
                    let place = (object.due, object.sequence);
                    self.remove_place(&key, was);
                    self.place(&key, place);
                }
                State::Sending { occasion, changed } => {
                    object.state = State::Sending { occasion, changed: true };
                    if !changed {
                        object.later = now;
                    }
                }
            }
            return None;
        }
        let dropped = if self.limits.objects <= self.objects.len() { self.drop_oldest() } else { None };
        self.sequence += 1;
        let key = Arc::new(key);
        let (due, sequence) = (settled, self.sequence);
        self.objects.insert(
            Arc::clone(&key),
            Object {
                state: State::Fresh,
                due,
                sequence,
                changed: now,
                since: now,
                later: now,
                attempt: 0,
                may_be_early,
            },
        );
        self.place(&key, (due, sequence));
        dropped
    }

    /// What to do now. A returned event is in flight until [`Pending::sent`].
    pub fn next(&mut self, now: Instant) -> Next {
        let Some((due, manager)) = self.soonest() else { return Next::Idle };
        if now < due {
            return Next::Wait(due);
        }
        let queue = self.order.get_mut(&manager).expect("the soonest is in a queue");
        let (_, _, key) = queue.pop_first().expect("no queue is empty");
        if queue.is_empty() {
            self.order.remove(&manager);
        }
        let object = self.objects.get_mut(&key).expect("what is in a queue is an object");
        let occasion = match object.state {
            State::Trailing => Occasion::Again,
            State::Fresh | State::Sending { .. } if 0 < object.attempt => Occasion::Retry,
            State::Fresh | State::Sending { .. } => Occasion::Change,
        };
        object.state = State::Sending { occasion, changed: false };
        Next::Send(key, occasion)
    }

    /// Records the result of an attempt. `started` is when it began; `fraction` is a random number from 0 to 1. If a
    /// change is delivered now, returns how long it waited.
    pub fn sent(
        &mut self,
        key: &Arc<Key>,
        sent: Sent,
        started: Instant,
        now: Instant,
        fraction: f64,
    ) -> Option<Duration> {
        self.pause(&key.manager, sent, now, fraction);
        let object = self.objects.get_mut(key)?;
        let State::Sending { occasion, changed } = object.state else { return None };
        let is_told = sent == Sent::Delivered && occasion != Occasion::Again;
        let waited = is_told.then(|| now.saturating_duration_since(object.since));
        let was_early = object.may_be_early && started < object.changed + self.limits.resend;
        match sent {
            Sent::Delivered | Sent::Refused if changed => {
                (object.state, object.attempt, object.since) = (State::Fresh, 0, object.later);
                object.due = object.changed + self.limits.settle;
            }
            Sent::Delivered if occasion != Occasion::Again && was_early => {
                (object.state, object.attempt) = (State::Trailing, 0);
                object.due = if self.draining { now } else { object.changed + self.limits.resend };
            }
            Sent::Delivered | Sent::Refused => {
                self.objects.remove(key);
                return waited;
            }
            Sent::Busy(_) | Sent::Unreachable => {
                object.attempt += 1;
                object.state = if occasion == Occasion::Again && !changed { State::Trailing } else { State::Fresh };
                if occasion == Occasion::Again && changed {
                    object.since = object.later;
                }
                // If the control plane was unreachable, the object keeps its position. Otherwise untried objects go
                // first.
                if matches!(sent, Sent::Busy(_)) {
                    object.due = now + delay(object.attempt, fraction, self.draining);
                }
            }
        }
        let place = (object.due, object.sequence);
        self.place(key, place);
        waited
    }

    /// Ends the pauses after failures, except where a manager asked for one. Its failures no longer count.
    pub fn retry(&mut self, now: Instant) {
        self.unreachable = None;
        for pause in self.busy.values_mut() {
            (pause.until, pause.attempt) = (pause.until.min(pause.asked.max(now)), 0);
        }
        let failed = |object: &Object| 0 < object.attempt && !matches!(object.state, State::Sending { .. });
        let failed: Vec<Arc<Key>> =
            self.objects.iter().filter(|(_, object)| failed(object)).map(|(key, _)| Arc::clone(key)).collect();
        for key in failed {
            let Some(object) = self.objects.get_mut(&key) else { continue };
            let was = (object.due, object.sequence);
            object.due = object.due.min(now);
            let place = (object.due, object.sequence);
            self.remove_place(&key, was);
            self.place(&key, place);
        }
    }

    /// Starts the shutdown: shortens all delays.
    pub fn drain(&mut self, now: Instant) {
        self.draining = true;
        for pause in self.busy.values_mut().chain(&mut self.unreachable) {
            pause.until = pause.until.min(now);
        }
        let hasten = |object: &mut Object| {
            let due = match object.state {
                State::Trailing => now,
                State::Fresh | State::Sending { .. } if 0 < object.attempt => now,
                State::Fresh | State::Sending { .. } => object.due,
            };
            object.due = object.due.min(due);
        };
        self.order.clear();
        let mut places = Vec::new();
        for (key, object) in &mut self.objects {
            hasten(object);
            if !matches!(object.state, State::Sending { .. }) {
                places.push((Arc::clone(key), (object.due, object.sequence)));
            }
        }
        for (key, place) in places {
            self.place(&key, place);
        }
    }

    /// Whether no event waits or is in flight.
    pub fn is_empty(&self) -> bool {
        self.objects.is_empty()
    }

    /// The number of waiting objects.
    pub fn depth(&self, now: Instant) -> Depth {
        let mut depth = Depth::default();
        for object in self.objects.values() {
            match object.state {
                State::Trailing | State::Sending { occasion: Occasion::Again, changed: false } => depth.trailing += 1,
                State::Fresh | State::Sending { .. } => {
                    depth.undelivered += 1;
                    depth.oldest = depth.oldest.max(now.saturating_duration_since(object.since));
                }
            }
        }
        depth
    }

    /// The earliest moment at which an event may be sent, and its manager.
    fn soonest(&self) -> Option<(Instant, Manager)> {
        let soonest = self.order.iter().filter_map(|(manager, queue)| {
            let (due, sequence, _) = queue.first()?;
            let due = self.busy.get(manager).map_or(*due, |pause| pause.until.max(*due));
            Some((self.unreachable.map_or(due, |pause| pause.until.max(due)), *sequence, manager))
        });
        soonest.min().map(|(due, _, manager)| (due, manager.clone()))
    }

    fn pause(&mut self, manager: &Manager, sent: Sent, now: Instant, fraction: f64) {
        let draining = self.draining;
        let paused = |pause: Option<&Pause>, asked: Duration| {
            let attempt = pause.map_or(0, |pause| pause.attempt) + 1;
            let asked = if draining { Duration::ZERO } else { asked.min(RETRY_AFTER_MAX) };
            Pause { until: now + delay(attempt, fraction, draining).max(asked), asked: now + asked, attempt }
        };
        if sent == Sent::Unreachable {
            self.unreachable = Some(paused(self.unreachable.as_ref(), Duration::ZERO));
            return;
        }
        self.unreachable = None;
        match sent {
            Sent::Busy(asked) => {
                let pause = paused(self.busy.get(manager), asked.unwrap_or_default());
                self.busy.insert(manager.clone(), pause);
            }
            Sent::Delivered | Sent::Refused | Sent::Unreachable => {
                self.busy.remove(manager);
            }
        }
        // Forget the pauses of managers without waiting objects.
        if self.limits.objects < self.busy.len() {
            self.busy.retain(|_, pause| now < pause.until);
        }
    }

    /// Makes room: drops a repeated event first, then the event that has waited longest.
    fn drop_oldest(&mut self) -> Option<Arc<Key>> {
        let waiting = self.objects.iter().filter(|(_, object)| !matches!(object.state, State::Sending { .. }));
        let (key, object) =
            waiting.min_by_key(|(_, object)| (object.state != State::Trailing, object.since, object.sequence))?;
        let (key, place, lost) = (Arc::clone(key), (object.due, object.sequence), object.state == State::Fresh);
        self.remove_place(&key, place);
        self.objects.remove(&key);
        lost.then_some(key)
    }

    fn place(&mut self, key: &Arc<Key>, (due, sequence): (Instant, u64)) {
        self.order.entry(key.manager.clone()).or_default().insert((due, sequence, Arc::clone(key)));
    }

    fn remove_place(&mut self, key: &Arc<Key>, (due, sequence): (Instant, u64)) {
        if let Some(queue) = self.order.get_mut(&key.manager) {
            queue.remove(&(due, sequence, Arc::clone(key)));
            if queue.is_empty() {
                self.order.remove(&key.manager);
            }
        }
    }
}

/// The pause after `attempt` consecutive failures: a random time up to 2, 4, 8 … 60 s, so that agents that failed
/// together do not retry together.
fn delay(attempt: u32, fraction: f64, draining: bool) -> Duration {
    let most = retry::backoff(BACKOFF_MIN, BACKOFF_MAX, attempt);
    let most = if draining { most.min(DRAIN_PAUSE_MAX) } else { most };
    most.mul_f64(fraction.clamp(0.0, 1.0)).max(PAUSE_MIN)
}

#[cfg(test)]
mod tests;
