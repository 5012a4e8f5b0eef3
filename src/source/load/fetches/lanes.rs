//! Which fetch starts next. Pure: the caller says what began and what ended.
//!
//! A git server that never answers holds each of its fetches until the time-out. So a fetch that is likely to end like
//! that, because its host or its source has not answered last time, gets one of a few places, and comes after all
//! others. A host that answers gets more, and never all.
//!
//! After a restart all hosts are new. A fetch from a new host that takes longer than [`SILENT_AFTER`] continues without
//! its place, which goes to the next new host.

use std::collections::{BTreeMap, BTreeSet};

use tidegate_core::name::Key;
use tokio::time::{Duration, Instant};

/// Where a repository is: a host of a URL, or a path on this machine.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Host(pub(super) String);

/// The fetches that wait and that run.
#[derive(Debug, Default)]
pub(super) struct Lanes {
    /// In the order in which they were requested.
    waiting: Vec<(Key, Host)>,
    running: BTreeMap<Key, Running>,
    /// How the last fetch from each host ended; none if no fetch has ended.
    hosts: BTreeMap<Host, Ended>,
    /// Sources whose last fetch was not answered.
    silent: BTreeSet<Key>,
}

/// A fetch that runs.
#[derive(Debug)]
struct Running {
    host: Host,
    /// As of its start.
    rank: Rank,
    since: Instant,
}

/// How a fetch ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    /// The server answered, even if it refused.
    Answered,
    /// The server took very long.
    Silent,
}

/// How likely the server answers, best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    /// The host answered last time.
    Proven,
    /// No fetch from this host has ended yet.
    New,
    /// The host, or this source's own repository, did not answer last time.
    Silent,
}

/// A fetch that takes this long had no answer for long. Refused connections and error answers take far less time and do
/// not delay other sources.
pub(super) const SILENT_AFTER: Duration = Duration::from_secs(5);
/// Fetches at the same time, without late ones. Each is a thread with a connection, and waits most of the time.
const PLACES_MAX: usize = 32;
/// Fetches from one host that answers: three such hosts that stop answering at the same moment leave places for others.
const HOST_PLACES_MAX: usize = 8;
/// Fetches from one host that has not answered yet: two, so that one large repository does not delay the next source.
const UNPROVEN_HOST_PLACES_MAX: usize = 2;
/// Fetches of rank [`Rank::New`] together, without late ones.
const NEW_PLACES_MAX: usize = 16;
/// Fetches of rank [`Rank::Silent`] together.
const SILENT_PLACES_MAX: usize = 8;
/// Fetches of rank [`Rank::New`] that continue without a place after [`SILENT_AFTER`]. Each is a thread, so
/// further ones keep theirs.
const LATE_MAX: usize = 128;
/// Hosts to remember. No landscape uses this many; beyond it, hosts without fetches are forgotten.
const HOSTS_MAX: usize = 1000;

// === impl Lanes ===

impl Lanes {
    /// Requests a fetch. A source has one at a time.
    pub(super) fn request(&mut self, source: Key, host: Host) {
        debug_assert!(!self.running.contains_key(&source), "a source has one fetch at a time");
        self.waiting.retain(|(waiting, _)| *waiting != source);
        self.waiting.push((source, host));
    }

    /// The fetch to start now, which then runs.
    pub(super) fn start(&mut self, now: Instant) -> Option<Key> {
        let candidates = self.waiting.iter().enumerate().filter_map(|(position, (source, host))| {
            let rank = self.rank(source, host);
            self.has_place(rank, host, now).then(|| (rank, self.silent.contains(source), position))
        });
        // A repository that answered goes before one that did not, in the order of the requests.
        let (rank, _, position) = candidates.min()?;
        let (source, host) = self.waiting.remove(position);
        self.running.insert(source.clone(), Running { host, rank, since: now });
        Some(source)
    }

    /// When a fetch that waits may get a place although no other fetch ends; `None` if none can.
    pub(super) fn next_start(&self, now: Instant) -> Option<Instant> {
        let is_waiting_for_new = |(source, host): &(Key, Host)| self.rank(source, host) == Rank::New;
        if !self.waiting.iter().any(is_waiting_for_new) {
            return None;
        }
        let late = self.running.values().filter_map(Running::late_at);
        late.filter(|at| now < *at).min()
    }

    /// A running fetch ended.
    pub(super) fn end(&mut self, source: &Key, ended: Ended) {
        let Some(Running { host, .. }) = self.running.remove(source) else { return };
        match ended {
            Ended::Answered => self.silent.remove(source),
            Ended::Silent => self.silent.insert(source.clone()),
        };
        self.hosts.insert(host, ended);
        self.forget_hosts();
    }

    /// Gives up a fetch, whether it waits or runs.
    pub(super) fn abandon(&mut self, source: &Key) {
        self.waiting.retain(|(waiting, _)| waiting != source);
        self.running.remove(source);
    }

    /// Forgets a source that was deleted.
    pub(super) fn forget(&mut self, source: &Key) {
        self.abandon(source);
        self.silent.remove(source);
    }

    /// Whether the fetch of a source waits for a place.
    pub(super) fn is_waiting(&self, source: &Key) -> bool {
        self.waiting.iter().any(|(waiting, _)| waiting == source)
    }

    fn rank(&self, source: &Key, host: &Host) -> Rank {
        match self.hosts.get(host) {
            _ if self.silent.contains(source) => Rank::Silent,
            // A path on this machine needs no answer.
            None if host.0.starts_with('/') => Rank::Proven,
            Some(Ended::Answered) => Rank::Proven,
            None => Rank::New,
            Some(Ended::Silent) => Rank::Silent,
        }
    }

    fn has_place(&self, rank: Rank, host: &Host, now: Instant) -> bool {
        let count = |matches: &dyn Fn(&Running) -> bool| self.running.values().filter(|one| matches(one)).count();
        let of_rank = count(&|running| running.rank == rank);
        let of_host = count(&|running| running.host == *host);
        let doubtful_of_host = count(&|running| running.host == *host && running.rank != Rank::Proven);
        let late = count(&|running| running.late_at().is_some_and(|at| at <= now)).min(LATE_MAX);
        self.running.len() - late < PLACES_MAX
            && match rank {
                Rank::Proven => of_host < HOST_PLACES_MAX,
                Rank::New => doubtful_of_host < UNPROVEN_HOST_PLACES_MAX && of_rank - late < NEW_PLACES_MAX,
                Rank::Silent => doubtful_of_host < UNPROVEN_HOST_PLACES_MAX && of_rank < SILENT_PLACES_MAX,
            }
    }

    fn forget_hosts(&mut self) {
        if HOSTS_MAX < self.hosts.len() {
            let used: BTreeSet<&Host> = self
                .waiting
                .iter()
                .map(|(_, host)| host)
                .chain(self.running.values().map(|running| &running.host))
                .collect();
            self.hosts.retain(|host, _| used.contains(host));
        }
    }
}

// === impl Running ===

impl Running {
    /// When it gives up its place if it has not ended; `None` if it never does.
    fn late_at(&self) -> Option<Instant> {
        match self.rank {
            Rank::New => Some(self.since + SILENT_AFTER),
            Rank::Proven | Rank::Silent => None,
        }
    }
}

#[cfg(test)]
mod tests;
