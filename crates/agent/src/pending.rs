//! What waits to be sent: a bounded map of objects, not a list of events.
//!
//! An event only says that something happened to an object, so what happens to the object while it waits changes nothing:
//! the newest takes the place of the older one. An object is in one of four states:
//!
//! ```text
//!  change ─▶ Fresh ── settle ─▶ Sending ── delivered ─▶ gone, or Trailing if it may have been sent before its commit
//!              ▲                   │                        │ resend
//!              └──── failed ───────┘                        └──▶ Sending ─▶ gone
//! ```
//!
//! *Settle* is how long a change waits before it is first sent, since admission comes before the write is stored. Where
//! the write took longer, whoever was told found nothing new; hence what was sent soon after its admission is sent once
//! more, *resend* after it.
//!
//! What cannot be delivered waits. When nobody takes a connection, all wait for one and the same pause, so that an outage
//! costs one attempt at a time whatever waits; when a manager answers that it cannot, or not at all, those of this manager wait, and the object that
//! was refused stands behind the others. Beyond [`Limits::objects`] the oldest is dropped.
//!
//! Reads no clock and throws no dice: both are arguments.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
    time::{Duration, Instant},
};

use super::manager::Manager;
use tidegate_events::event::Event;
use tidegate_process::retry;

/// An object and who is told of it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    /// Who is told.
    pub manager: Manager,
    /// What they are told.
    pub event: Event,
}

/// How long things wait, and how much may.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// From a change until it is sent.
    pub settle: Duration,
    /// From a change until it is sent once more; zero for never.
    pub resend: Duration,
    /// Objects that wait.
    pub objects: usize,
}

/// Why something is to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Occasion {
    /// It changed.
    Change,
    /// It changed, and could not be said so far.
    Retry,
    /// It changed some seconds ago, and this is the second time that it is said.
    Again,
}

/// How a sending ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sent {
    /// It was taken.
    Delivered,
    /// It was refused for good.
    Refused,
    /// The manager cannot take it now, and may have said how long; or it does not answer.
    Busy(Option<Duration>),
    /// Nobody took the connection.
    Unreachable,
}

/// What to do next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// Send this, and say how it went.
    Send(Arc<Key>, Occasion),
    /// Nothing before this moment, unless something changes.
    Wait(Instant),
    /// Nothing, until something changes.
    Idle,
}

/// What waits, in one number each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Depth {
    /// Objects whose change has not been delivered.
    pub undelivered: usize,
    /// Objects that are sent once more.
    pub trailing: usize,
    /// How long the oldest undelivered change has waited.
    pub oldest: Duration,
}

/// What waits to be sent.
#[derive(Debug)]
pub struct Pending {
    limits: Limits,
    objects: HashMap<Arc<Key>, Object>,
    /// Those that are not being sent, by manager and in the order in which they are due.
    order: BTreeMap<Manager, BTreeSet<(Instant, u64, Arc<Key>)>>,
    /// Managers that cannot take anything now.
    busy: BTreeMap<Manager, Pause>,
    /// Nobody answers.
    unreachable: Option<Pause>,
    /// Orders what is due at the same moment.
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
    /// The first change that has not been delivered.
    since: Instant,
    /// The first change since the sending that is under way began.
    later: Instant,
    /// Failures in a row.
    attempt: u32,
    /// Whether the write may be stored after it was sent.
    may_be_early: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Fresh,
    Trailing,
    /// `changed`: something happened to it meanwhile.
    Sending {
        occasion: Occasion,
        changed: bool,
    },
}

#[derive(Clone, Copy, Debug)]
struct Pause {
    until: Instant,
    attempt: u32,
}

/// First pause after a failure.
const BACKOFF_MIN: Duration = Duration::from_secs(2);
/// Longest pause after failures: a control plane that returns is noticed within a minute.
pub const BACKOFF_MAX: Duration = Duration::from_secs(60);
/// Shortest pause, whatever the dice say.
const PAUSE_MIN: Duration = Duration::from_millis(100);
/// The longest that a manager may ask us to wait.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(300);
/// Longest pause once the process is to end.
const DRAIN_PAUSE_MAX: Duration = Duration::from_millis(500);

// === impl Pending ===

impl Pending {
    /// Nothing waits.
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

    /// Takes in that an object changes, as a review says. Gives back what was dropped to make room.
    pub fn changed(&mut self, key: Key, now: Instant) -> Option<Arc<Key>> {
        self.insert(key, now, true)
    }

    /// Takes in that somebody is to be told, where no write is under way.
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
                // Not put off: what changes all the time would never be sent. But a failure before it counts no more.
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

    /// What to do now. What is to be sent counts as being sent until [`Pending::sent`].
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

    /// Takes in how a sending ended. `started` is when it began, `fraction` from 0 to 1 and from the caller's dice. Gives
    /// back how long a change waited that has now been told.
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
                // Nobody was there: it keeps its place. Somebody was: those that were not tried go first.
                if matches!(sent, Sent::Busy(_)) {
                    object.due = now + delay(object.attempt, fraction, self.draining);
                }
            }
        }
        let place = (object.due, object.sequence);
        self.place(key, place);
        waited
    }

    /// The process is to end: nothing waits longer than it must.
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

    /// Whether nothing waits and nothing is being sent.
    pub fn is_empty(&self) -> bool {
        self.objects.is_empty()
    }

    /// What waits.
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

    /// The soonest moment at which something may be sent, and to whom.
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
            Pause { until: now + delay(attempt, fraction, draining).max(asked), attempt }
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
        // Managers of which nothing waits are forgotten with their pause.
        if self.limits.objects < self.busy.len() {
            self.busy.retain(|_, pause| now < pause.until);
        }
    }

    /// Makes room: what has only to be said again goes first, then what has waited longest.
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

/// How long to wait after `attempt` failures in a row: from nothing to 2, 4, 8 … 60 s, as the dice say, so that agents
/// that failed together do not return together.
fn delay(attempt: u32, fraction: f64, draining: bool) -> Duration {
    let most = retry::backoff(BACKOFF_MIN, BACKOFF_MAX, attempt);
    let most = if draining { most.min(DRAIN_PAUSE_MAX) } else { most };
    most.mul_f64(fraction.clamp(0.0, 1.0)).max(PAUSE_MIN)
}

#[cfg(test)]
mod tests;
