//! Where admission and delivery meet: what waits, who was told before, and how the way to the control plane fares.
//!
//! A lock around values, held for microseconds; never across an `await`.

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

/// What waits to be sent, shared.
#[derive(Debug)]
pub struct Outbox {
    inner: Mutex<Inner>,
    changed: Notify,
    metrics: Metrics,
}

#[derive(Debug)]
struct Inner {
    pending: Pending,
    /// Managers that there were events for, and the last object of each.
    managers: BTreeMap<Manager, Event>,
    /// Managers of whom something was dropped.
    lost: Vec<Manager>,
    /// Drops for want of room: a storm causes thousands in a second.
    overflow: Seldom,
    path: Path,
    is_draining: bool,
}

/// How the way to the control plane fares.
#[derive(Clone, Debug)]
enum Path {
    /// Nobody has gone it.
    Unknown,
    /// It was there.
    Up(Instant),
    /// It is not there.
    Down { since: Instant, why: String },
}

/// Managers that are remembered: more than any runtime has Watchers for.
const MANAGERS_MAX: usize = 64;

/// The clock of the loop, which stands still where tests hold it.
pub fn now() -> Instant {
    time::Instant::now().into_std()
}

// === impl Outbox ===

impl Outbox {
    /// Nothing waits.
    pub fn new(limits: Limits, metrics: Metrics) -> Outbox {
        let inner = Inner {
            pending: Pending::new(limits),
            managers: BTreeMap::new(),
            lost: Vec::new(),
            overflow: Seldom::default(),
            path: Path::Unknown,
            is_draining: false,
        };
        Outbox { inner: Mutex::new(inner), changed: Notify::new(), metrics }
    }

    /// An object changes.
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

    /// Somebody is to be told without a change.
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
                tracing::warn!(manager = %key.manager, dropped, "too many events wait: the oldest are dropped");
            }
        } else {
            drop(inner);
        }
        self.changed.notify_one();
    }

    /// What to do now.
    pub fn next(&self) -> Next {
        self.lock().pending.next(now())
    }

    /// How a sending ended. Gives back how long the change waited, if it has been told now.
    pub fn sent(&self, key: &Arc<Key>, sent: Sent, started: Instant, fraction: f64) -> Option<Duration> {
        let mut inner = self.lock();
        if sent == Sent::Refused {
            inner.lose(key.manager.clone());
        }
        inner.pending.sent(key, sent, started, now(), fraction)
    }

    /// Managers of whom something was dropped since the last call, if `manager`, who was just told something, is one.
    pub fn take_lost(&self, manager: &Manager) -> bool {
        let mut inner = self.lock();
        let before = inner.lost.len();
        inner.lost.retain(|lost| lost != manager);
        inner.lost.len() < before
    }

    /// Managers of whom something was dropped since the last call.
    pub fn take_all_lost(&self) -> Vec<Manager> {
        std::mem::take(&mut self.lock().lost)
    }

    /// Managers that there were events for, and the last object of each.
    pub fn managers(&self) -> BTreeMap<Manager, Event> {
        self.lock().managers.clone()
    }

    /// Waits until something has changed.
    pub async fn wait(&self) {
        self.changed.notified().await;
    }

    /// The process is to end.
    pub fn drain(&self) {
        let mut inner = self.lock();
        inner.is_draining = true;
        inner.pending.drain(now());
        drop(inner);
        self.changed.notify_one();
    }

    /// Whether all is sent and nothing will come.
    pub fn is_drained(&self) -> bool {
        let inner = self.lock();
        inner.is_draining && inner.pending.is_empty()
    }

    /// What waits.
    pub fn depth(&self) -> Depth {
        self.lock().pending.depth(now())
    }

    /// The way to the control plane is there. Gives back how long it was not.
    pub fn path_up(&self) -> Option<Duration> {
        let now = now();
        let former = std::mem::replace(&mut self.lock().path, Path::Up(now));
        self.metrics.path(true);
        match former {
            Path::Down { since, .. } => Some(now.saturating_duration_since(since)),
            Path::Unknown | Path::Up(_) => None,
        }
    }

    /// The way to the control plane is not there. Says whether that is news.
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

    /// When the way to the control plane was last there, if it is.
    pub fn path_proven(&self) -> Option<Instant> {
        match self.lock().path {
            Path::Up(moment) => Some(moment),
            Path::Unknown | Path::Down { .. } => None,
        }
    }

    /// All this in words, a line each.
    pub fn describe(&self) -> String {
        let (depth, path) = {
            let inner = self.lock();
            (inner.pending.depth(now()), inner.path.clone())
        };
        let ago = |moment: Instant| now().saturating_duration_since(moment).as_secs();
        let mut text = match path {
            Path::Unknown => "path to the control plane: not used yet\n".to_owned(),
            Path::Up(moment) => format!("path to the control plane: up, used {} s ago\n", ago(moment)),
            Path::Down { since, why } => format!("path to the control plane: down for {} s: {why}\n", ago(since)),
        };
        let _ = writeln!(text, "changes that wait: {}", depth.undelivered);
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
