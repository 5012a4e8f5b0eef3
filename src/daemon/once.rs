//! `--once`: one pass over everything, and what is left to do.

use std::time::Duration;

use super::{Context, Mode, Readiness};
use tidegate_core::overview::Overview;

use crate::stores::{Origin, Stores};

/// What one pass over everything came to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Definitions of a source are invalid.
    pub invalid: bool,
    /// What is not done, one line each.
    pub not_done: Vec<String>,
}

/// Nothing may happen for this long before all is said to be done: the watches bring what a pass has just written within
/// milliseconds.
const QUIET: Duration = Duration::from_millis(750);

/// Returns once nothing is left to do, or no time; never for [`Mode::Forever`].
pub(super) async fn run(context: &Context, readiness: &Readiness, mode: Mode) -> Report {
    let Mode::Once(timeout) = mode else { return std::future::pending().await };
    let in_time = tokio::time::timeout(timeout, done(context, readiness)).await.is_ok();
    let overview = overview(&context.stores);
    let mut not_done = overview.not_done();
    if !in_time {
        not_done.extend(readiness.lines());
        let busy = context.queue.busy().into_iter().map(|subject| format!("{subject}: still being worked on"));
        // What is named already needs no second line.
        not_done.extend(busy.filter(|line| not_done.is_empty() || !line.starts_with("runtime")).collect::<Vec<_>>());
        not_done.push(format!("the time is over after {} s", timeout.as_secs()));
    }
    Report { invalid: overview.has_invalid_definitions(), not_done }
}

async fn done(context: &Context, readiness: &Readiness) {
    loop {
        tokio::time::sleep(QUIET).await;
        context.queue.settled().await;
        // Settled before anything began is not done.
        if !readiness.lines().is_empty() {
            continue;
        }
        tokio::time::sleep(QUIET).await;
        if context.queue.busy().is_empty() && !overview(&context.stores).is_under_way() {
            return;
        }
    }
}

/// Everything that this process knows. Sources that exist in this process only count as well.
fn overview(stores: &Stores) -> Overview {
    let sources: Vec<_> = stores.sources();
    let mut objects: Vec<_> = sources.iter().map(|source| (*source.object).clone()).collect();
    for (object, source) in objects.iter_mut().zip(&sources) {
        match source.origin {
            // It has no generation, since no API server has seen it; its status is always of what it says.
            Origin::CommandLine => {
                object.metadata.generation = object.status.as_ref().and_then(|status| status.observed_generation);
            }
            Origin::ControlPlane => {}
        }
    }
    let landscape = stores.landscape();
    let kymas = stores.kymas();
    Overview::of(&objects, kymas.iter().map(|kyma| &**kyma), landscape.watchers.values().map(|watcher| &**watcher))
}
