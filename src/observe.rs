//! Observing: `tidegate run --observe` computes what the daemon would write, and writes nothing.
//!
//! It runs beside Lifecycle Manager. It fetches git, watches the control plane, and compares what the daemon would
//! bring about with what lives: the definitions in the control plane, the routes of Watchers, and for each runtime
//! its Manifests and all objects. `/observed` of the metrics port shows the differences, and
//! `tidegate_observed_differences` counts them.
//!
//! The parts are those of the daemon: its stores, its queue, its sources and its decisions, and the comparison of
//! [`crate::live`]. Only the passes are others. A pass over a source decides as always and compares instead of
//! applying. A pass over a runtime plans as always, and compares if there is a reason to ([`decide`]).
//!
//! Guarantees:
//!
//! * Nothing but `GET` requests leaves the process, not even a dry run. The clusters are read-only
//!   ([`tidegate_cluster::Cluster::read_only`]), so this holds whatever a pass tries.
//! * There is no Lease, no Event, no status, no finalizer, no journal, no probe and no certificate, and no port for
//!   events of runtimes.
//! * An unchanged runtime is compared again only when its reads stay below [`decide::READS_PER_OBJECT_AND_HOUR`]. One
//!   that changes is compared at most once a minute.
//!
//! It does not compare what this process may not read or cannot know: the statuses of Kymas and Manifests, the data of
//! Secrets of modules that come from the control plane, and the answers of admission webhooks.
//!
//! `difference` is what differs, `improvement` names the differences that are decided, `state` is what is known,
//! `show` is what users see, and `expected` joins the landscape as it would be. `source`, `route` and `runtime` are
//! the passes, and `credentials` compares certificates and the Secrets that go with them.

use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use tidegate_diff::mask::MaskKey;
use tidegate_process::lock::Mutex;

use crate::{
    controller::{Context, Pass, Subject},
    metrics::ComparisonSeries,
    queue::{Finish, Triggers},
    runtime::Unreached,
};

mod credentials;
pub(crate) mod decide;
pub(crate) mod difference;
mod expected;
pub(crate) mod improvement;
mod route;
mod runtime;
pub(crate) mod show;
mod source;
pub(crate) mod state;

use expected::Expected;
use state::Seen;

/// What a process that observes knows.
pub struct Observation {
    /// The shortest time between two comparisons of an unchanged runtime.
    interval: Duration,
    /// Whether all comparisons follow each other at once, because the process ends after them.
    is_brief: AtomicBool,
    /// The key of the masks with which secret values are compared. They are never shown.
    mask: MaskKey,
    seen: Mutex<Seen>,
    expected: Mutex<Option<Arc<Expected>>>,
    /// What the log has of parts of runtimes that are not compared.
    said: Mutex<BTreeSet<String>>,
    /// What it has of runtimes that cannot be reached.
    unreached: Mutex<Unreached>,
}

/// Sentences that the log has of what is not compared. `/observed` has all.
const SAID_MAX: usize = 100;

// === impl Observation ===

impl Observation {
    /// Nothing is known yet.
    pub fn new(interval: Duration, mask: MaskKey) -> Observation {
        Observation {
            interval,
            is_brief: AtomicBool::new(false),
            mask,
            seen: Mutex::default(),
            expected: Mutex::default(),
            said: Mutex::default(),
            unreached: Mutex::default(),
        }
    }

    /// The process ends once everything was compared, so a comparison that is outdated is repeated at once.
    pub(crate) fn be_brief(&self) {
        self.is_brief.store(true, Ordering::Relaxed);
    }

    /// The shortest time between two comparisons of a runtime that changes.
    fn gap(&self) -> Duration {
        if self.is_brief() { Duration::ZERO } else { decide::CHANGE_GAP }
    }

    fn is_brief(&self) -> bool {
        self.is_brief.load(Ordering::Relaxed)
    }

    /// Whether a runtime or a source has not been compared yet. `kymas` is the number of all.
    pub(crate) fn has_pending(&self, kymas: usize) -> bool {
        let seen = self.seen.lock();
        let is_pending = |runtime: &state::SeenRuntime| match runtime.standing {
            state::Standing::Pending => true,
            state::Standing::Compared(_) => runtime.is_waiting,
            state::Standing::Unreachable(_) | state::Standing::Skipped(_) => false,
        };
        seen.runtimes.len() < kymas || seen.runtimes.values().any(is_pending)
    }

    /// Which of these sentences the log does not have yet. Many runtimes have the same ones.
    fn news(&self, lines: &[String]) -> Vec<String> {
        let mut said = self.said.lock();
        let mut news: Vec<String> = lines.iter().filter(|line| !said.contains(*line)).cloned().collect();
        news.truncate(SAID_MAX.saturating_sub(said.len()));
        said.extend(news.iter().cloned());
        news
    }

    /// The series of the metrics. Every standing of runtimes has one. `missing` is how much this process lacks of the
    /// control plane.
    pub(crate) fn series(&self, missing: usize) -> ComparisonSeries {
        let seen = self.seen.lock();
        let mut series = ComparisonSeries::default();
        for one in seen.differences() {
            let kind = one.object.kind.to_string();
            match one.improvement {
                Some(improvement) => *series.improvements.entry((kind, improvement.row)).or_default() += 1,
                None => *series.differences.entry((kind, one.reason.as_str())).or_default() += 1,
            }
        }
        series.not_compared = seen.not_compared(missing).map(|(what, number)| (what.as_str(), number)).into();
        series.runtimes = state::Standing::WORDS.map(|word| (word, 0)).into();
        for runtime in seen.runtimes.values() {
            *series.runtimes.entry(runtime.standing.as_str()).or_default() += 1;
        }
        series
    }

    /// What users see of it now. `missing` is what this process lacks of the control plane, one line each.
    pub(crate) fn report(&self, missing: Vec<String>) -> show::Report {
        show::Report::of(&self.seen.lock(), missing, tokio::time::Instant::now())
    }
}

/// Compares one subject instead of reconciling it.
///
/// # Errors
///
/// The error of the control plane or of the runtime.
pub(crate) async fn reconcile(
    context: &Context,
    observation: &Observation,
    subject: &Subject,
    triggers: Triggers,
) -> Pass {
    match subject {
        Subject::Source(key) => source::compare(context, observation, key, triggers).await,
        Subject::Runtime(key) => runtime::compare(context, observation, key).await,
        Subject::Watcher(key) => route::compare(context, observation, key).await,
        Subject::Gateway(key) => credentials::gateway(context, observation, key).await,
        // kcp landscapes are not compared. The ModuleReleaseMeta of a mandatory module only gets a finalizer.
        Subject::Release(_) | Subject::Setup(..) => Ok(Finish::Done),
    }
}
