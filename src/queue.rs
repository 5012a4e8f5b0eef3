//! The keyed queue: which subject to work on next, and when.
//!
//! * A subject is in the queue once; further triggers are added to its set.
//! * Each trigger has a slack, and the deadline is the time of the request plus the slack. So an event goes before a
//!   commit and a commit before a resync, but a resync that has waited for a minute goes before a new event. Nothing
//!   starves.
//! * Only one task at a time works on the subjects of one lane (a runtime and its Manifests).
//! * A failed subject waits, longer each time and with jitter. Failing subjects get at most half of the permits, so
//!   that dead runtimes leave room for healthy ones. A retry has the triggers of the failed work.
//! * A request during running work runs afterwards. Dropped work has failed.
//!
//! `state` makes the decisions, as a value whose time is an argument; this file adds the lock, the clock and the
//! waiting. The queue knows nothing about its subjects, starts no task and keeps nothing across a restart: a trigger
//! says why, never what, and a new process checks everything anyway.

mod state;

use std::{
    collections::BTreeMap,
    fmt,
    hash::Hash,
    sync::{Arc, MutexGuard},
    time::Duration,
};

use tokio::{sync::Notify, time::Instant};

use self::state::State;
use tidegate_core::name::Key;
use tidegate_process::{ambient, lock::Mutex, retry::Class};

/// Why a subject is reconciled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Trigger {
    /// Its runtime reported a change.
    Reported,
    /// Something that it depends on changed.
    Changed,
    /// A user requested it by annotation.
    Requested,
    /// A commit changed it.
    Git,
    /// A git host reported a push.
    Push,
    /// Another program may have changed it.
    Drift,
    /// It failed, or waits for something, and is retried.
    Retry,
    /// Its last check was long ago.
    Resync,
}

/// A set of triggers.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Triggers(u8);

/// The result of work on a subject.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finish {
    /// The subject is as desired.
    Done,
    /// The subject is as desired for now; check it again after this time.
    After(Duration, Trigger),
    /// Nothing can be done now. Whatever changes that requests the subject again, and these triggers are then added.
    Deferred,
    /// Something that was begun elsewhere requests the subject when it ends. If it does not, check after this time.
    Awaiting(Duration),
    /// It failed or waits; [`tidegate_process::retry`] determines for how long.
    Failed(Class),
    /// It failed; retry after this time.
    FailedFor(Class, Duration),
    /// The subject no longer exists: later requests are dropped.
    Gone,
}

/// The result of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pushed {
    /// The subject was not waiting.
    New,
    /// The subject was waiting already; the trigger is added.
    Merged,
    /// The queue is full or closed.
    Refused,
}

/// The limits of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Subjects in progress at the same time.
    pub running_max: usize,
    /// Known subjects, in any state. Beyond it, requests are refused, so memory stays bounded and the caller can report
    /// it.
    pub subjects_max: usize,
    /// How often to retry what only a change can resolve.
    pub interval: Duration,
}

/// How full a queue is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Depths {
    /// Subjects that are ready.
    pub ready: usize,
    /// Subjects in progress.
    pub running: usize,
    /// Subjects that wait for a later moment.
    pub delayed: usize,
    /// Subjects whose last work failed.
    pub failing: usize,
    /// How long the oldest ready subject has waited.
    pub oldest: Duration,
}

/// Work on a subject. Dropping it without [`Queue::finish`] is a failure.
pub struct Work<S: Clone + Eq + Hash + Ord> {
    subject: S,
    triggers: Triggers,
    attempt: u32,
    waited: Duration,
    queue: Option<Queue<S>>,
}

/// The queue. A handle: clones share it.
pub struct Queue<S>(Arc<Shared<S>>);

struct Shared<S> {
    state: Mutex<State<S>>,
    /// Notified when a subject is ready, or an earlier moment is due.
    wake: Notify,
    /// Notified when work ends.
    finished: Notify,
}

// === impl Trigger ===

impl Trigger {
    /// All triggers, most urgent first.
    pub const ALL: [Trigger; 8] = [
        Trigger::Reported,
        Trigger::Changed,
        Trigger::Requested,
        Trigger::Git,
        Trigger::Push,
        Trigger::Drift,
        Trigger::Retry,
        Trigger::Resync,
    ];

    /// How long it may wait while more urgent work is done. Only differences matter: a new event goes before a commit
    /// of the last five seconds.
    pub(crate) const fn slack(self) -> Duration {
        match self {
            Trigger::Reported => Duration::ZERO,
            // Many events come at once, when a process starts or a Secret is rotated, while a user who edits in a
            // runtime is waiting.
            Trigger::Changed => Duration::from_millis(250),
            Trigger::Requested => Duration::from_secs(1),
            Trigger::Git | Trigger::Push => Duration::from_secs(5),
            Trigger::Drift => Duration::from_secs(15),
            Trigger::Retry => Duration::from_secs(20),
            Trigger::Resync => Duration::from_secs(60),
        }
    }

    /// Whether it reports a change. Then a failed subject is retried at once.
    pub(crate) const fn is_news(self) -> bool {
        match self {
            Trigger::Reported | Trigger::Changed | Trigger::Requested | Trigger::Git | Trigger::Push => true,
            Trigger::Drift | Trigger::Retry | Trigger::Resync => false,
        }
    }

    /// The name in logs, metrics and audit records.
    pub const fn name(self) -> &'static str {
        match self {
            Trigger::Reported => "reported",
            Trigger::Changed => "changed",
            Trigger::Requested => "requested",
            Trigger::Git => "git",
            Trigger::Push => "push",
            Trigger::Drift => "drift",
            Trigger::Retry => "retry",
            Trigger::Resync => "resync",
        }
    }
}

impl fmt::Display for Trigger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

// === impl Triggers ===

impl Triggers {
    /// Whether the set contains `trigger`.
    pub const fn contains(self, trigger: Trigger) -> bool {
        self.0 & (1 << trigger as u8) != 0
    }

    /// The set with one more trigger.
    #[must_use]
    pub const fn with(self, trigger: Trigger) -> Triggers {
        Triggers(self.0 | (1 << trigger as u8))
    }

    /// The union of both sets.
    #[must_use]
    pub const fn union(self, other: Triggers) -> Triggers {
        Triggers(self.0 | other.0)
    }

    /// Whether the set is empty.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// All triggers of the set, most urgent first.
    pub fn iter(self) -> impl Iterator<Item = Trigger> {
        Trigger::ALL.into_iter().filter(move |trigger| self.contains(*trigger))
    }

    /// The most urgent trigger.
    pub fn first(self) -> Option<Trigger> {
        self.iter().next()
    }
}

impl From<Trigger> for Triggers {
    fn from(trigger: Trigger) -> Triggers {
        Triggers::default().with(trigger)
    }
}

impl FromIterator<Trigger> for Triggers {
    fn from_iter<I: IntoIterator<Item = Trigger>>(triggers: I) -> Triggers {
        triggers.into_iter().fold(Triggers::default(), Triggers::with)
    }
}

impl fmt::Display for Triggers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, trigger) in self.iter().enumerate() {
            if position != 0 {
                f.write_str("+")?;
            }
            f.write_str(trigger.name())?;
        }
        Ok(())
    }
}

impl fmt::Debug for Triggers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{{{self}}}")
    }
}

// === impl Work ===

impl<S: Clone + Eq + Hash + Ord> Work<S> {
    /// The subject.
    pub fn subject(&self) -> &S {
        &self.subject
    }

    /// The triggers.
    pub fn triggers(&self) -> Triggers {
        self.triggers
    }

    /// The number of this attempt since the last success, from 1.
    pub fn attempt(&self) -> u32 {
        self.attempt
    }

    /// How long the subject was ready.
    pub fn waited(&self) -> Duration {
        self.waited
    }
}

impl<S: Clone + Eq + Hash + Ord> Drop for Work<S> {
    fn drop(&mut self) {
        if let Some(queue) = self.queue.take() {
            queue.put_back(&self.subject, Finish::Failed(Class::Transient));
        }
    }
}

// === impl Queue ===

impl<S> Clone for Queue<S> {
    fn clone(&self) -> Queue<S> {
        Queue(Arc::clone(&self.0))
    }
}

impl<S: Clone + Eq + Hash + Ord> Queue<S> {
    /// Creates an empty queue. `lane` returns the lane of a subject, which no two running subjects share.
    pub fn new(lane: fn(&S) -> Option<Key>, limits: Limits) -> Queue<S> {
        Queue(Arc::new(Shared {
            state: Mutex::new(State::new(lane, limits)),
            wake: Notify::new(),
            finished: Notify::new(),
        }))
    }

    /// Requests work on a subject now.
    #[expect(clippy::needless_pass_by_value, reason = "the queue takes ownership; copying is an implementation detail")]
    pub fn push(&self, subject: S, trigger: Trigger) -> Pushed {
        let pushed = self.state().push(&subject, trigger, Instant::now());
        self.0.wake.notify_one();
        pushed
    }

    /// Requests work on a subject now, for several triggers: one piece of work serves all of them.
    #[expect(clippy::needless_pass_by_value, reason = "the queue takes ownership; copying is an implementation detail")]
    pub(crate) fn push_all(&self, subject: S, triggers: Triggers) {
        {
            let (mut state, now) = (self.state(), Instant::now());
            for trigger in triggers.iter() {
                state.push(&subject, trigger, now);
            }
        }
        self.0.wake.notify_one();
    }

    /// Requests work on a subject later. Of two requests for the same trigger, the earlier moment wins.
    #[expect(clippy::needless_pass_by_value, reason = "the queue takes ownership; copying is an implementation detail")]
    pub(crate) fn push_after(&self, subject: S, trigger: Trigger, delay: Duration) -> Pushed {
        let pushed = self.state().push_at(&subject, trigger, Instant::now() + delay);
        self.0.wake.notify_one();
        pushed
    }

    /// The next work, when a subject is ready and a permit is free; `None` after the queue is closed.
    pub async fn next(&self) -> Option<Work<S>> {
        loop {
            // Register before checking, so that no request in between is missed.
            let wake = self.0.wake.notified();
            let due = {
                let mut state = self.state();
                if state.is_closed() {
                    self.0.wake.notify_one();
                    return None;
                }
                if let Some(taken) = state.take(Instant::now()) {
                    // Another caller of `next` may sleep although more is ready.
                    self.0.wake.notify_one();
                    return Some(Work {
                        subject: taken.subject,
                        triggers: taken.triggers,
                        attempt: taken.attempt,
                        waited: taken.waited,
                        queue: Some(self.clone()),
                    });
                }
                state.next_due()
            };
            match due {
                Some(due) => {
                    // A time-out means that something is due. In both cases, check again.
                    let _ = tokio::time::timeout_at(due, wake).await;
                }
                None => wake.await,
            }
        }
    }

    /// Retries now what failed for one of these classes, because what it failed for may be over.
    pub(crate) fn hurry(&self, classes: &[Class]) {
        self.state().hurry(classes, Instant::now());
        self.0.wake.notify_one();
    }

    /// Finishes work.
    pub fn finish(&self, mut work: Work<S>, finish: Finish) {
        work.queue = None;
        self.put_back(&work.subject, finish);
    }

    /// Returns no more work and accepts no more requests.
    pub fn close(&self) {
        self.state().close();
        self.0.wake.notify_one();
        self.0.finished.notify_waiters();
    }

    /// How full it is.
    pub(crate) fn depths(&self) -> Depths {
        self.state().depths(Instant::now())
    }

    /// The subjects that are ready, in progress, or due for a retry soon.
    pub fn busy(&self) -> Vec<S> {
        self.state().busy()
    }

    /// The same subjects, each with the number of its failures in a row.
    pub(crate) fn busy_failures(&self) -> BTreeMap<S, u32> {
        self.state().busy_failures()
    }

    /// Waits until only resyncs are left, and retries that only a change can resolve.
    pub async fn settled(&self) {
        loop {
            let finished = self.0.finished.notified();
            tokio::pin!(finished);
            finished.as_mut().enable();
            if self.state().is_settled() {
                return;
            }
            finished.await;
        }
    }

    fn put_back(&self, subject: &S, finish: Finish) {
        let fraction = ambient::fraction();
        self.state().finish(subject, finish, Instant::now(), fraction);
        self.0.wake.notify_one();
        self.0.finished.notify_waiters();
    }

    fn state(&self) -> MutexGuard<'_, State<S>> {
        // Every change of the state is complete before anything in it can panic.
        self.0.state.lock()
    }
}

#[cfg(test)]
mod tests;
