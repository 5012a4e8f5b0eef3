//! Limits the concurrent requests of one runtime while other runtimes have requests as well.
//!
//! A runtime alone gets its full limit: with a round trip of tens of milliseconds, its rollout needs that. Among many,
//! more concurrency speeds nothing up, but every connection costs a handshake of some tenths of a millisecond on both
//! sides, and memory for its buffers. In a rollout to 200 runtimes, sixteen connections each took an eighth of the
//! processor time and most of the memory.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

/// Concurrent requests of all runtimes together, while the runtimes are few.
const TOGETHER: usize = 32;
/// The minimum for each runtime.
const EACH_MIN: usize = 4;

/// Counts the clusters with requests in flight. Clones share the count.
#[derive(Clone, Debug, Default)]
pub(super) struct Crowd(Arc<AtomicUsize>);

/// One cluster of the crowd.
#[derive(Debug, Default)]
pub(super) struct Member {
    crowd: Crowd,
    requests: AtomicUsize,
}

/// A request of a member, from waiting for its permit until its answer is read.
pub(super) struct Request<'a>(&'a Member);

// === impl Member ===

impl Member {
    /// Creates a member without requests.
    pub(super) fn joining(crowd: Crowd) -> Member {
        Member { crowd, requests: AtomicUsize::new(0) }
    }

    /// Counts one more request.
    pub(super) fn begin(&self) -> Request<'_> {
        if self.requests.fetch_add(1, Ordering::Relaxed) == 0 {
            self.crowd.0.fetch_add(1, Ordering::Relaxed);
        }
        Request(self)
    }

    /// How many of `limit` permits a request takes now: one if the member is alone, more in a crowd.
    pub(super) fn weight(&self, limit: usize) -> usize {
        let members = self.crowd.0.load(Ordering::Relaxed).max(1);
        let share = (TOGETHER / members).max(EACH_MIN).min(limit);
        (limit / share.max(1)).max(1)
    }
}

impl Drop for Request<'_> {
    fn drop(&mut self) {
        if self.0.requests.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.0.crowd.0.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn alone_a_cluster_has_all_places_and_in_a_crowd_its_share() {
        let crowd = Crowd::default();
        let first = Member::joining(crowd.clone());
        let requests = [first.begin(), first.begin()];
        assert_eq!(first.weight(16), 1);

        let few: Vec<Member> = (0..3).map(|_| Member::joining(crowd.clone())).collect();
        let theirs: Vec<Request<'_>> = few.iter().map(Member::begin).collect();
        assert_eq!(first.weight(16), 2, "eight of sixteen at a time");
        assert_eq!(first.weight(4), 1, "a low limit is not divided");

        let many: Vec<Member> = (0..1000).map(|_| Member::joining(crowd.clone())).collect();
        let others: Vec<Request<'_>> = many.iter().map(Member::begin).collect();
        assert_eq!(first.weight(16), 4, "four at a time");
        assert_eq!(first.weight(1), 1);

        drop((others, theirs, requests));
        assert_eq!(first.weight(16), 1);
        assert_eq!(crowd.0.load(Ordering::Relaxed), 0, "a member without requests does not count");
    }
}
