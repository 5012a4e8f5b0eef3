//! `--once`: one pass over everything, and a report of what is left to do.

use std::time::Duration;

use super::{Context, Mode, Readiness};
use tidegate_core::overview::{Overview, SetupLine, UnreadableLine};

use crate::{
    observe::Observation,
    stores::{Origin, Stores},
};

/// The result of one pass over everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Whether definitions of a source are invalid.
    pub invalid: bool,
    /// What is not done, one line each.
    pub not_done: Vec<String>,
    /// Why the control plane cannot be used: it was not reached, or lacks kinds. Then nothing is known.
    pub unusable: Option<String>,
    /// What a process has found that only observes; `None` if the daemon reconciles.
    pub observed: Option<Observed>,
}

/// What a process has found that only observes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Observed {
    /// The table.
    pub text: String,
    /// Whether anything differs that no decision explains.
    pub differs: bool,
}

/// Pause between two looks at whether the control plane has answered.
const ANSWER_PAUSE: Duration = Duration::from_millis(100);
/// How long the queue must be idle until all work is done. The watches report a pass's own writes within milliseconds.
const QUIET: Duration = Duration::from_millis(750);

/// Returns when nothing is left to do or the time is over; never for [`Mode::Forever`].
pub(super) async fn run(context: &Context, readiness: &Readiness, mode: Mode) -> Report {
    let Mode::Once(timeout) = mode else { return std::future::pending().await };
    context.observation.iter().for_each(Observation::be_brief);
    let (in_time, unusable) = tokio::select! {
        in_time = tokio::time::timeout(timeout, done(context, readiness)) => (in_time.is_ok(), None),
        why = unusable(readiness) => (true, Some(why)),
        () = denied(context) => (true, None),
    };
    let overview = overview(&context.stores);
    let report = context.observation.as_ref().map(|observation| observation.report(readiness.lines()));
    let mut not_done = match &report {
        Some(report) => report.not_compared(),
        None => overview.not_done(),
    };
    if !in_time {
        if report.is_none() {
            not_done.extend(readiness.lines());
        }
        let busy = context.queue.busy().into_iter().map(|subject| format!("{subject}: still in progress"));
        // A runtime that is already listed needs no second line.
        not_done.extend(busy.filter(|line| not_done.is_empty() || !line.starts_with("runtime")).collect::<Vec<_>>());
        not_done.push(format!("timed out after {} s", timeout.as_secs()));
    }
    let observed = report.map(|report| Observed { text: report.to_text(), differs: 0 < report.summary.differences });
    Report { invalid: overview.has_invalid_definitions(), not_done, observed, unusable }
}

/// Returns once the control plane was asked and cannot be used, because it cannot be reached or lacks kinds. As every
/// command, a single pass does not wait for it.
async fn unusable(readiness: &Readiness) -> String {
    loop {
        if let Some(why) = readiness.unusable() {
            return why;
        }
        tokio::time::sleep(ANSWER_PAUSE).await;
    }
}

/// Returns once a process that observes may not read a part of the control plane, and has read the rest. The report
/// names the missing rights.
async fn denied(context: &Context) {
    while context.observation.is_none() || !context.stores.is_denied() {
        tokio::time::sleep(ANSWER_PAUSE).await;
    }
}

async fn done(context: &Context, readiness: &Readiness) {
    loop {
        tokio::time::sleep(QUIET).await;
        context.queue.settled().await;
        // Before readiness, an empty queue does not mean that everything is done.
        if !readiness.lines().is_empty() {
            continue;
        }
        tokio::time::sleep(QUIET).await;
        let is_under_way = match &context.observation {
            Some(observation) => observation.has_pending(context.stores.kymas().len()),
            None => overview(&context.stores).is_under_way(),
        };
        if context.queue.busy().is_empty() && !is_under_way {
            return;
        }
    }
}

/// The overview of this process, including the sources of the command line.
fn overview(stores: &Stores) -> Overview {
    let sources: Vec<_> = stores.sources();
    let mut objects: Vec<_> = sources.iter().map(|source| (*source.object).clone()).collect();
    for (object, source) in objects.iter_mut().zip(&sources) {
        match source.origin {
            // It has no generation, because it is not in an API server. Its status always describes its current spec.
            Origin::CommandLine => {
                object.metadata.generation = object.status.as_ref().and_then(|status| status.observed_generation);
            }
            Origin::ControlPlane => {}
        }
    }
    let landscape = stores.landscape();
    let kymas = stores.kymas();
    // Not borrowed below: the code that changes this value holds the lock that the next calls take.
    let holder = stores.kcp_operator().borrow().as_ref().map(|running| running.holder.clone());
    Overview::from_objects(
        &objects,
        kymas.iter().map(|kyma| &**kyma),
        landscape.watchers.values().map(|watcher| &**watcher),
    )
    .with_mandatory(stores.manifests().iter().map(|manifest| &**manifest))
    .with_setup(setup_lines(stores))
    .with_kcp_operator(holder)
    .with_unreadable(stores.unreadable().iter().map(|found| UnreadableLine {
        kind: found.table.kind().to_owned(),
        name: found.object.key().to_string(),
        problem: found.object.problem.clone(),
        has_templates: found.object.names_templates,
    }))
}

fn setup_lines(stores: &Stores) -> Vec<SetupLine> {
    let resources = stores.setup();
    let line = |(kind, key)| SetupLine::new(kind, resources.metadata(kind, key)?, &resources.status(kind, key));
    resources.ids().filter_map(line).collect()
}
