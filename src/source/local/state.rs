//! Which repositories on this machine are watched, and which to watch next. Pure.

use std::{collections::BTreeMap, path::PathBuf, time::Duration};

use tidegate_core::name::Key;
use tokio::time::Instant;

/// The watches of repositories on this machine, at most one a source.
#[derive(Debug, Default)]
pub(super) struct LocalWatches {
    sources: BTreeMap<Key, Attempt>,
    started: u64,
}

/// The last attempt to watch the repository of a source.
#[derive(Debug)]
struct Attempt {
    path: PathBuf,
    outcome: Outcome,
}

#[derive(Clone, Copy, Debug)]
enum Outcome {
    /// The repository is watched.
    Watched(WatchId),
    /// It could not be watched at this time. The source is still fetched once per interval.
    Failed(Instant),
}

/// One watch. A later watch of the same source has another id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct WatchId(u64);

/// How often the daemon retries to watch a repository.
pub(super) const RETRY: Duration = Duration::from_secs(60);

// === impl LocalWatches ===

impl LocalWatches {
    /// The repositories to watch now, of those that sources name. Repositories that no source names any more are
    /// forgotten.
    pub(super) fn due(&mut self, paths: &BTreeMap<Key, PathBuf>, now: Instant) -> Vec<(Key, PathBuf)> {
        self.sources.retain(|source, attempt| paths.get(source) == Some(&attempt.path));
        let is_due = |(source, _): &(&Key, &PathBuf)| match self.sources.get(*source).map(|attempt| attempt.outcome) {
            None => true,
            Some(Outcome::Watched(_)) => false,
            Some(Outcome::Failed(at)) => RETRY <= now.saturating_duration_since(at),
        };
        paths.iter().filter(is_due).map(|(source, path)| (source.clone(), path.clone())).collect()
    }

    /// Notes a new watch.
    pub(super) fn started(&mut self, source: Key, path: PathBuf) -> WatchId {
        self.started += 1;
        let id = WatchId(self.started);
        self.sources.insert(source, Attempt { path, outcome: Outcome::Watched(id) });
        id
    }

    /// Notes that a repository could not be watched. Returns whether this was the first attempt, so that it is logged.
    pub(super) fn failed(&mut self, source: Key, path: PathBuf, now: Instant) -> bool {
        self.sources.insert(source, Attempt { path, outcome: Outcome::Failed(now) }).is_none()
    }

    /// Whether a repository could not be watched.
    pub(super) fn has_failed(&self) -> bool {
        self.sources.values().any(|attempt| matches!(attempt.outcome, Outcome::Failed(_)))
    }

    /// Whether a watch is of the repository that its source names now. Otherwise the watch ends.
    pub(super) fn is_current(&self, source: &Key, id: WatchId, paths: &BTreeMap<Key, PathBuf>) -> bool {
        self.sources.get(source).is_some_and(|attempt| match attempt.outcome {
            Outcome::Watched(current) => current == id && paths.get(source) == Some(&attempt.path),
            Outcome::Failed(_) => false,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source() -> Key {
        Key::new("kcp-system", "one")
    }

    fn paths(path: &str) -> BTreeMap<Key, PathBuf> {
        [(source(), PathBuf::from(path))].into()
    }

    fn due(watches: &mut LocalWatches, path: &str, now: Instant) -> bool {
        !watches.due(&paths(path), now).is_empty()
    }

    #[test]
    fn each_repository_is_watched_once() {
        let (mut watches, now) = (LocalWatches::default(), Instant::now());
        assert_eq!(watches.due(&paths("/a"), now), [(source(), PathBuf::from("/a"))]);
        let id = watches.started(source(), "/a".into());
        assert!(!due(&mut watches, "/a", now) && !watches.has_failed());
        assert!(watches.is_current(&source(), id, &paths("/a")));
    }

    #[test]
    fn a_watch_of_a_repository_that_the_source_no_longer_names_ends() {
        let (mut watches, now) = (LocalWatches::default(), Instant::now());
        let first = watches.started(source(), "/a".into());
        assert!(!watches.is_current(&source(), first, &paths("/b")), "not even before the next one starts");
        assert!(due(&mut watches, "/b", now));
        let second = watches.started(source(), "/b".into());
        assert!(due(&mut watches, "/a", now), "the source is back at its first repository");
        let third = watches.started(source(), "/a".into());
        assert!(watches.is_current(&source(), third, &paths("/a")));
        for former in [first, second] {
            assert!(!watches.is_current(&source(), former, &paths("/a")), "one watch wakes the source");
        }
        assert_eq!(watches.due(&BTreeMap::new(), now), []);
        assert!(!watches.is_current(&source(), third, &paths("/a")), "the source was deleted meanwhile");
    }

    #[test]
    fn a_repository_that_cannot_be_watched_is_tried_again_after_a_minute_and_reported_once() {
        let (mut watches, now) = (LocalWatches::default(), Instant::now());
        assert!(watches.failed(source(), "/a".into(), now));
        assert!(watches.has_failed());
        for (path, seconds, expected) in [("/a", 59, false), ("/a", 60, true)] {
            assert_eq!(due(&mut watches, path, now + Duration::from_secs(seconds)), expected, "{path} {seconds}");
        }
        assert!(!watches.failed(source(), "/a".into(), now + RETRY));
        assert!(due(&mut watches, "/b", now + RETRY), "another repository is tried at once");
        assert!(watches.failed(source(), "/b".into(), now + RETRY), "and reported");
        watches.started(source(), "/b".into());
        assert!(!watches.has_failed());
    }
}
