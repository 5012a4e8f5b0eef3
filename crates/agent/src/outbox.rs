//! The state that admission and delivery share: waiting events, known managers, and the state of the connection.
//!
//! A lock around values. It is held for microseconds and never across an `await`.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    sync::{Arc, MutexGuard},
    time::{Duration, Instant},
};

use tokio::{sync::Notify, time};

use super::{
    manager::Manager,
    metrics::Metrics,
    pending::{Depth, Key, Limits, Next, Pending, Sent},
    seldom::Seldom,
};
use tidegate_events::event::Event;
use tidegate_process::lock::Mutex;

/// The shared outbox.
#[derive(Debug)]
pub struct Outbox {
    inner: Mutex<Inner>,
    changed: Notify,
    metrics: Metrics,
}

#[derive(Debug)]
struct Inner {
    pending: Pending,
    /// The managers that had events, with the last event of each.
    managers: BTreeMap<Manager, Event>,
    /// Managers that lost events.
    lost: Vec<Manager>,
    /// Limits the log of dropped events: a storm drops thousands in a second.
    overflow: Seldom,
    path: Path,
    is_draining: bool,
    /// Set when everything is to be tried again at once, the connection too.
    is_to_retry: bool,
}

/// The state of the connection to the control plane.
#[derive(Clone, Debug)]
enum Path {
    /// Not used yet.
    Unknown,
    /// It worked at this moment.
    Up(Instant),
    /// It has failed since this moment.
    Down { since: Instant, why: String },
}

/// Limit of remembered managers: more than any runtime has Watchers.
const MANAGERS_MAX: usize = 64;

/// The current time of tokio's clock, which tests can pause.
pub fn now() -> Instant {
    time::Instant::now().into_std()
}

// === impl Outbox ===

impl Outbox {
    /// Creates an empty outbox.
    pub fn new(limits: Limits, metrics: Metrics) -> Outbox {
        let inner = Inner {
            pending: Pending::new(limits),
            managers: BTreeMap::new(),
            lost: Vec::new(),
            overflow: Seldom::default(),
            path: Path::Unknown,
            is_draining: false,
            is_to_retry: false,
        };
        Outbox { inner: Mutex::new(inner), changed: Notify::new(), metrics }
    }

    /// Adds a change of an object.
    pub fn changed(&self, key: Key) {
        let mut inner = self.lock();
        if let Some(last) = inner.managers.get_mut(&key.manager) {
            last.clone_from(&key.event);
        } else if inner.managers.len() < MANAGERS_MAX {
            inner.managers.insert(key.manager.clone(), key.event.clone());
        }
        let dropped = inner.pending.changed(key, now());
        self.dropped(inner, dropped);
    }

    /// Adds an event without a change.
    pub fn remind(&self, key: Key) {
        let mut inner = self.lock();
        let dropped = inner.pending.remind(key, now());
        self.dropped(inner, dropped);
    }

    fn dropped(&self, mut inner: MutexGuard<'_, Inner>, dropped: Option<Arc<Key>>) {
        if let Some(key) = dropped {
            inner.lose(key.manager.clone());
            let dropped = inner.overflow.happened(now());
            drop(inner);
            self.metrics.overflowed();
            if let Some(dropped) = dropped {
                tracing::warn!(manager = %key.manager, dropped, "the outbox is full; dropping the oldest events");
            }
        } else {
            drop(inner);
        }
        self.changed.notify_one();
    }

    /// What the sender should do now.
    pub fn next(&self) -> Next {
        self.lock().pending.next(now())
    }

    /// Records the result of sending. If the change is delivered now, returns how long it waited.
    pub fn sent(&self, key: &Arc<Key>, sent: Sent, started: Instant, fraction: f64) -> Option<Duration> {
        let mut inner = self.lock();
        if sent == Sent::Refused {
            inner.lose(key.manager.clone());
        }
        inner.pending.sent(key, sent, started, now(), fraction)
    }

    /// Whether `manager`, which just accepted an event, has lost events since the last call.
    pub fn take_lost(&self, manager: &Manager) -> bool {
        let mut inner = self.lock();
        let before = inner.lost.len();
        inner.lost.retain(|lost| lost != manager);
        inner.lost.len() < before
    }

    /// The managers that lost events since the last call.
    pub fn take_all_lost(&self) -> Vec<Manager> {
        std::mem::take(&mut self.lock().lost)
    }

    /// The managers that had events, with the last event of each.
    pub fn managers(&self) -> BTreeMap<Manager, Event> {
        self.lock().managers.clone()
    }

    /// Records that changes may have been missed: of this manager, or of any. If the manager is not one of those that
    /// had events, it may be made up, and the agent's own control plane checks the runtime.
    pub fn missed(&self, manager: Option<&Manager>) {
        let mut inner = self.lock();
        let managers: Vec<Manager> = match manager {
            Some(manager) if inner.managers.contains_key(manager) => vec![manager.clone()],
            Some(_) => vec![Manager::ours()],
            None => inner.managers.keys().cloned().chain([Manager::ours()]).collect(),
        };
        for manager in managers {
            inner.lose(manager);
        }
    }

    /// Ends all pauses after failures.
    pub fn retry(&self) {
        let mut inner = self.lock();
        inner.pending.retry(now());
        inner.is_to_retry = true;
        drop(inner);
        self.changed.notify_one();
    }

    /// Whether [`Outbox::retry`] was called since the last call.
    pub fn take_retry(&self) -> bool {
        std::mem::take(&mut self.lock().is_to_retry)
    }

    /// Waits until something changes.
    pub async fn wait(&self) {
        self.changed.notified().await;
    }

    /// Starts the shutdown: the sender flushes the outbox.
    pub fn drain(&self) {
        let mut inner = self.lock();
        inner.is_draining = true;
        inner.pending.drain(now());
        drop(inner);
        self.changed.notify_one();
    }

    /// Whether the shutdown has started and every event is sent.
    pub fn is_drained(&self) -> bool {
        let inner = self.lock();
        inner.is_draining && inner.pending.is_empty()
    }

    /// The number of waiting objects.
    pub fn depth(&self) -> Depth {
        self.lock().pending.depth(now())
    }

    /// Records that the connection works. If it did not before, returns the length of the outage.
    pub fn path_up(&self) -> Option<Duration> {
        let now = now();
        let former = std::mem::replace(&mut self.lock().path, Path::Up(now));
        self.metrics.path(true);
        match former {
            Path::Down { since, .. } => Some(now.saturating_duration_since(since)),
            Path::Unknown | Path::Up(_) => None,
        }
    }

    /// Records that the connection fails. Returns whether it worked before.
    pub fn path_down(&self, why: String) -> bool {
        let mut inner = self.lock();
        self.metrics.path(false);
        match &mut inner.path {
            Path::Down { why: known, .. } => {
                *known = why;
                false
            }
            path @ (Path::Unknown | Path::Up(_)) => {
                *path = Path::Down { since: now(), why };
                true
            }
        }
    }

    /// When the connection last worked; `None` if it fails now.
    pub fn path_proven(&self) -> Option<Instant> {
        match self.lock().path {
            Path::Up(moment) => Some(moment),
            Path::Unknown | Path::Down { .. } => None,
        }
    }

    /// A description for people, one line each.
    pub fn describe(&self) -> String {
        let (depth, path) = {
            let inner = self.lock();
            (inner.pending.depth(now()), inner.path.clone())
        };
        let ago = |moment: Instant| now().saturating_duration_since(moment).as_secs();
        let mut text = match path {
            Path::Unknown => "connection to the control plane: not used yet\n".to_owned(),
            Path::Up(moment) => format!("connection to the control plane: up, used {} s ago\n", ago(moment)),
            Path::Down { since, why } => format!("connection to the control plane: down for {} s: {why}\n", ago(since)),
        };
        let _ = writeln!(text, "undelivered changes: {}", depth.undelivered);
        text
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock()
    }
}

impl Inner {
    fn lose(&mut self, manager: Manager) {
        if self.lost.len() < MANAGERS_MAX && !self.lost.contains(&manager) {
            self.lost.push(manager);
        }
    }
}
