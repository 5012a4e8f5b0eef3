//! The fetches of all sources. They run beside the passes: waiting for a git server holds no worker of the queue.
//!
//! A pass hands a [`Job`] over and ends. `lanes` decides when it starts. When it ends, its result is kept and the
//! source is woken, whose next pass takes the result. A fetch that is given up ends at once; its thread ends by itself,
//! at the time-out at the latest.

mod lanes;

use std::collections::BTreeMap;

use futures::{
    StreamExt,
    future::{AbortHandle, Abortable},
    stream::FuturesUnordered,
};
use k8s_openapi::api::core::v1::Secret;
use tidegate_cluster::Cluster;
use tidegate_core::{intake::Terms, name::Key};
use tidegate_git::{self as git, Mirror};
use tidegate_process::lock::Mutex;
use tokio::{
    sync::Notify,
    time::{Duration, Instant, sleep_until},
};

use self::lanes::{Ended, Host, Lanes, SILENT_AFTER};
use super::{
    access::SourceAccess,
    decide::{self, FetchEnd, FetchStep},
    problem::Problem,
    secrets,
    token_file::TokenFile,
};
use crate::{
    controller::{Queue, Subject},
    queue::Trigger,
};

/// The fetches of all sources.
#[derive(Default)]
pub(in crate::source) struct Fetches {
    state: Mutex<State>,
    /// Notified when a fetch is requested or given up.
    wake: Notify,
}

/// One fetch.
pub(super) struct Job {
    /// Where it goes to.
    pub(super) mirror: Mirror,
    /// Where it comes from.
    pub(super) url: git::Url,
    /// The settings of the source.
    pub(super) terms: Terms,
    /// The Secret that the source names.
    pub(super) secret: Option<Key>,
    /// The Secret with its proxy.
    pub(super) proxy: Option<Key>,
    /// The file with its token.
    pub(super) token_file: Option<TokenFile>,
    /// The Secret as of the last fetch.
    pub(super) cached: Option<SourceAccess>,
}

/// How a fetch ended, and how long it took.
pub(super) type FetchResult = (Result<FetchEnd, Problem>, Duration);

#[derive(Default)]
struct State {
    lanes: Lanes,
    waiting: BTreeMap<Key, Job>,
    running: BTreeMap<Key, AbortHandle>,
    results: BTreeMap<Key, FetchResult>,
}

// === impl Fetches ===

impl Fetches {
    /// Requests a fetch, which starts when it has a place. It replaces an earlier one of the same source.
    pub(super) fn begin(&self, source: &Key, job: Job) {
        {
            let mut state = self.state.lock();
            state.abandon(source);
            state.lanes.request(source.clone(), Host(job.url.server().to_owned()));
            state.waiting.insert(source.clone(), job);
        }
        self.wake.notify_one();
    }

    /// The result of the last requested fetch, once.
    pub(super) fn take(&self, source: &Key) -> Option<FetchResult> {
        self.state.lock().results.remove(source)
    }

    /// Whether there is a result to take.
    pub(super) fn has_ended(&self, source: &Key) -> bool {
        self.state.lock().results.contains_key(source)
    }

    /// Gives up the fetch of a source and its result.
    pub(super) fn abandon(&self, source: &Key) {
        self.state.lock().abandon(source);
        self.wake.notify_one();
    }

    /// Forgets a source that was deleted.
    pub(in crate::source) fn forget(&self, source: &Key) {
        {
            let mut state = self.state.lock();
            state.abandon(source);
            state.lanes.forget(source);
        }
        self.wake.notify_one();
    }

    /// Whether the fetch of a source waits for a place.
    pub(super) fn is_waiting(&self, source: &Key) -> bool {
        self.state.lock().lanes.is_waiting(source)
    }

    /// Runs the requested fetches until it is dropped, and all of them with it.
    pub(in crate::source) async fn run(&self, kcp: &Cluster, queue: &Queue) {
        let mut running = FuturesUnordered::new();
        loop {
            while let Some((source, job, end)) = self.start() {
                running.push(Abortable::new(
                    async move {
                        let began = Instant::now();
                        let result = job.run(kcp).await;
                        (source, (result, began.elapsed()))
                    },
                    end,
                ));
            }
            let next_start = self.next_start();
            tokio::select! {
                // In this order, so that a simulation repeats itself.
                biased;
                () = self.wake.notified() => {}
                () = at(next_start) => {}
                Some(finished) = running.next() => {
                    // What was given up has no result.
                    let Ok((source, result)) = finished else { continue };
                    self.end(&source, result);
                    queue.push(Subject::Source(source), Trigger::Changed);
                }
            }
        }
    }

    fn start(&self) -> Option<(Key, Job, futures::future::AbortRegistration)> {
        let mut state = self.state.lock();
        let source = state.lanes.start(Instant::now())?;
        let job = state.waiting.remove(&source).expect("what has a lane has a job");
        let (handle, registration) = AbortHandle::new_pair();
        state.running.insert(source.clone(), handle);
        Some((source, job, registration))
    }

    /// When a fetch may start although no other fetch ends.
    fn next_start(&self) -> Option<Instant> {
        self.state.lock().lanes.next_start(Instant::now())
    }

    fn end(&self, source: &Key, result: FetchResult) {
        let mut state = self.state.lock();
        state.lanes.end(source, ended(result.0.is_ok(), result.1));
        state.running.remove(source);
        state.results.insert(source.clone(), result);
    }
}

/// Ends at this time; never without one.
async fn at(time: Option<Instant>) {
    match time {
        Some(time) => sleep_until(time).await,
        None => std::future::pending().await,
    }
}

/// What the end of a fetch says about its server.
fn ended(is_success: bool, took: Duration) -> Ended {
    if is_success || took < SILENT_AFTER { Ended::Answered } else { Ended::Silent }
}

// === impl State ===

impl State {
    fn abandon(&mut self, source: &Key) {
        self.lanes.abandon(source);
        self.waiting.remove(source);
        self.results.remove(source);
        if let Some(handle) = self.running.remove(source) {
            handle.abort();
        }
    }
}

// === impl Job ===

impl Job {
    /// Fetches with the Secret of the last fetch, or with the Secret as it is now.
    async fn run(self, kcp: &Cluster) -> Result<FetchEnd, Problem> {
        let proxy = match &self.proxy {
            None => None,
            Some(key) => Some(decide::proxy(key, kcp.get_as::<Secret>(&secrets(), key).await)?),
        };
        let mut step = decide::begin(self.secret, self.cached);
        loop {
            step = match step {
                FetchStep::ReadSecret(secret) => {
                    let answer = kcp.get_as::<Secret>(&secrets(), &secret).await;
                    decide::after_secret(&self.url, &secret, answer)
                }
                FetchStep::Fetch(access) => {
                    let mut remote = decide::remote(&self.terms, &self.url, &access);
                    remote.proxy = proxy.as_ref().map(|access| access.proxy.clone());
                    if let Some(file) = &self.token_file {
                        remote = file.login(remote).await.map_err(Problem::TokenFile)?;
                    }
                    let answer = self.mirror.fetch(&remote).await;
                    decide::after_fetch(access, proxy.as_ref(), answer)
                }
                FetchStep::End(result) => return result,
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_long_failure_says_that_a_server_does_not_answer() {
        for (is_success, took, expected) in [
            (true, SILENT_AFTER * 10, Ended::Answered),
            (true, Duration::ZERO, Ended::Answered),
            (false, Duration::ZERO, Ended::Answered),
            (false, SILENT_AFTER, Ended::Silent),
        ] {
            assert_eq!(ended(is_success, took), expected, "{is_success} {took:?}");
        }
    }
}
