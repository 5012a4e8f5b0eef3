//! The keyed queue: which subject is worked on next, and when.
//!
//! * A subject is in it once; what asks for it again is merged into the set of its triggers.
//! * Urgency is a deadline, the moment of asking plus the slack of the trigger: an event goes before a commit, a commit
//!   before a resync, and yet a resync that has waited for its minute goes before an event of now. Nothing starves.
//! * Subjects of one lane (a runtime and its Manifests) are worked on by one task at a time.
//! * A subject that fails waits, longer each time and never in step with others; those that fail hold at most half of
//!   the places, so that dead runtimes leave room for living ones. The next try has the triggers of the one that failed.
//! * What is asked for while its subject is being worked on runs afterwards. Work that is dropped counts as failed.
//!
//! Deciding is `state`, a value that is told the time; this file adds the lock, the clock and the waiting.
//! The queue knows nothing of its subjects, starts no task, and remembers nothing across a restart: a trigger says why,
//! never what, and a new process looks at everything anyway.

mod state;

use std::{
    fmt,
    hash::Hash,
    sync::{Arc, MutexGuard},
    time::Duration,
};

use tokio::{sync::Notify, time::Instant};

use self::state::State;
use tidegate_core::name::Key;
use tidegate_process::{ambient, lock::Mutex, retry::Class};

/// Why a subject is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Trigger {
    /// Its runtime said that something changed there.
    Watch,
    /// Something that it depends on changed.
    Event,
    /// Somebody asked for it by annotation.
    Requested,
    /// A commit changed it.
    Git,
    /// It may have been changed by others.
    Drift,
    /// It failed, or waits for something, and is tried again.
    Retry,
    /// It has not been looked at for long.
    Resync,
}

/// A set of triggers.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Triggers(u8);

/// What becomes of a subject after work on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finish {
    /// All is as it should be.
    Done,
    /// All is as it should be for now; look again then.
    After(Duration, Trigger),
    /// Nobody may do anything about it now, and whoever changes that asks for it again: then all of this is asked for, too.
    Deferred,
    /// It failed or waits; [`tidegate_process::retry`] says for how long.
    Failed(Class),
    /// The subject does not exist any more: everything that was asked for later is forgotten.
    Gone,
}

/// What became of a push.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pushed {
    /// The subject was not waiting.
    New,
    /// The subject was waiting already; the trigger is added.
    Merged,
    /// The queue is full or closed.
    Refused,
}

/// Limits of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Subjects worked on at once.
    pub running_max: usize,
    /// Subjects known at once, whatever they wait for. A push beyond it is refused: memory stays bounded, and whoever
    /// listens to the outside can say so.
    pub subjects_max: usize,
    /// How often to look at what only a change can help.
    pub interval: Duration,
}

/// How full a queue is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Depths {
    /// Subjects that could be worked on now.
    pub ready: usize,
    /// Subjects being worked on.
    pub running: usize,
    /// Subjects with nothing to do before some later moment.
    pub delayed: usize,
    /// Subjects whose last work failed.
    pub failing: usize,
    /// How long the oldest ready subject has waited.
    pub oldest: Duration,
}

/// A subject that somebody works on. Dropped without [`Queue::finish`], it counts as failed.
pub struct Work<S: Clone + Eq + Hash + Ord> {
    subject: S,
    triggers: Triggers,
    attempt: u32,
    waited: Duration,
    queue: Option<Queue<S>>,
}

/// The queue. A handle; clones share it.
pub struct Queue<S>(Arc<Shared<S>>);

struct Shared<S> {
    state: Mutex<State<S>>,
    /// There is something to take, or an earlier moment to wait for.
    wake: Notify,
    /// Some work ended.
    finished: Notify,
}

// === impl Trigger ===

impl Trigger {
    /// All of them, the most urgent first.
    pub const ALL: [Trigger; 7] = [
        Trigger::Watch,
        Trigger::Event,
        Trigger::Requested,
        Trigger::Git,
        Trigger::Drift,
        Trigger::Retry,
        Trigger::Resync,
    ];

    /// How long it may wait while more urgent things are done. Differences are what counts: an event of now goes before
    /// a commit of less than five seconds ago.
    pub const fn slack(self) -> Duration {
        match self {
            Trigger::Watch => Duration::ZERO,
            // Events come in crowds, when a process starts or a Secret is rotated; whoever edits in a runtime looks on.
            Trigger::Event => Duration::from_millis(250),
            Trigger::Requested => Duration::from_secs(1),
            Trigger::Git => Duration::from_secs(5),
            Trigger::Drift => Duration::from_secs(15),
            Trigger::Retry => Duration::from_secs(20),
            Trigger::Resync => Duration::from_secs(60),
        }
    }

    /// Whether it says that the world has changed: then a subject that failed is tried at once.
    pub const fn is_news(self) -> bool {
        match self {
            Trigger::Watch | Trigger::Event | Trigger::Requested | Trigger::Git => true,
            Trigger::Drift | Trigger::Retry | Trigger::Resync => false,
        }
    }

    /// Its name in logs, metrics and the audit.
    pub const fn name(self) -> &'static str {
        match self {
            Trigger::Watch => "watch",
            Trigger::Event => "event",
            Trigger::Requested => "requested",
            Trigger::Git => "git",
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
    /// Whether `trigger` is among them.
    pub const fn contains(self, trigger: Trigger) -> bool {
        self.0 & (1 << trigger as u8) != 0
    }

    /// With one more.
    #[must_use]
    pub const fn with(self, trigger: Trigger) -> Triggers {
        Triggers(self.0 | (1 << trigger as u8))
    }

    /// All of both.
    #[must_use]
    pub const fn union(self, other: Triggers) -> Triggers {
        Triggers(self.0 | other.0)
    }

    /// Whether there is none.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// All of them, the most urgent first.
    pub fn iter(self) -> impl Iterator<Item = Trigger> {
        Trigger::ALL.into_iter().filter(move |trigger| self.contains(*trigger))
    }

    /// The most urgent one.
    pub fn first(self) -> Option<Trigger> {
        self.iter().next()
    }

    /// Whether one of them is news.
    pub fn has_news(self) -> bool {
        self.iter().any(Trigger::is_news)
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
    /// What to work on.
    pub fn subject(&self) -> &S {
        &self.subject
    }

    /// Why.
    pub fn triggers(&self) -> Triggers {
        self.triggers
    }

    /// Which try this is since the last success, from 1.
    pub fn attempt(&self) -> u32 {
        self.attempt
    }

    /// How long it stood ready.
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
    /// An empty queue. `lane` names what a subject must not share with other running work.
    pub fn new(lane: fn(&S) -> Option<Key>, limits: Limits) -> Queue<S> {
        Queue(Arc::new(Shared {
            state: Mutex::new(State::new(lane, limits)),
            wake: Notify::new(),
            finished: Notify::new(),
        }))
    }

    /// Asks for work on a subject now.
    #[expect(
        clippy::needless_pass_by_value,
        reason = "a subject is handed over; that it is copied is the queue's affair"
    )]
    pub fn push(&self, subject: S, trigger: Trigger) -> Pushed {
        let pushed = self.state().push(&subject, trigger, Instant::now());
        self.0.wake.notify_one();
        pushed
    }

    /// Asks for work on a subject now, for several reasons at once: one piece of work serves all of them.
    #[expect(
        clippy::needless_pass_by_value,
        reason = "a subject is handed over; that it is copied is the queue's affair"
    )]
    pub fn push_all(&self, subject: S, triggers: Triggers) {
        {
            let (mut state, now) = (self.state(), Instant::now());
            for trigger in triggers.iter() {
                state.push(&subject, trigger, now);
            }
        }
        self.0.wake.notify_one();
    }

    /// Asks for work on a subject later. If the same was asked for already, the earlier moment holds.
    #[expect(
        clippy::needless_pass_by_value,
        reason = "a subject is handed over; that it is copied is the queue's affair"
    )]
    pub fn push_after(&self, subject: S, trigger: Trigger, delay: Duration) -> Pushed {
        let pushed = self.state().push_at(&subject, trigger, Instant::now() + delay);
        self.0.wake.notify_one();
        pushed
    }

    /// The next work, once there is some and a place for it; `None` once the queue is closed.
    pub async fn next(&self) -> Option<Work<S>> {
        loop {
            // Listening starts before looking, so that no push falls between the two.
            let wake = self.0.wake.notified();
            let due = {
                let mut state = self.state();
                if state.is_closed() {
                    self.0.wake.notify_one();
                    return None;
                }
                if let Some(taken) = state.take(Instant::now()) {
                    // Another taker may sleep although there is more.
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
                    // An end of the wait means that something is due; both ends lead back to the look.
                    let _ = tokio::time::timeout_at(due, wake).await;
                }
                None => wake.await,
            }
        }
    }

    /// Ends work.
    pub fn finish(&self, mut work: Work<S>, finish: Finish) {
        work.queue = None;
        self.put_back(&work.subject, finish);
    }

    /// Gives out no more work and takes no more.
    pub fn close(&self) {
        self.state().close();
        self.0.wake.notify_one();
        self.0.finished.notify_waiters();
    }

    /// How full it is.
    pub fn depths(&self) -> Depths {
        self.state().depths(Instant::now())
    }

    /// The subjects that are ready, being worked on, or to be tried again soon.
    pub fn busy(&self) -> Vec<S> {
        self.state().busy()
    }

    /// Returns once nothing is left but resyncs, and new tries of what only a change can help.
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
        // Every change of the state is whole before anything in it can panic.
        self.0.state.lock()
    }
}

#[cfg(test)]
mod tests;
