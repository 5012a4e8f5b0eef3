//! `--once`: one pass over everything, and a report of what is left to do.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use tidegate_cluster::{Denial, Kind};
use tidegate_core::{
    name::Key,
    object::Gvk,
    overview::{Overview, SetupLine, UnreadableLine},
};
use tokio::time::Instant;

use super::{Context, Mode, Readiness, outage};

use crate::{
    controller::Subject,
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
    /// What users should know although it leaves nothing undone, one line each.
    pub notes: Vec<String>,
    /// Why the control plane cannot be used: it was not reached, rejects the credentials, or lacks kinds. Then nothing
    /// is known.
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

/// How a single pass ended.
enum Ending {
    /// Nothing is left to do but what fails again and again. Contains that.
    Done(Vec<Subject>),
    /// Everything else is done but what needs missing rights. Contains each of them, as a sentence, and what fails
    /// again and again.
    Denied(Vec<String>, Vec<Subject>),
    /// The control plane rejects the credentials since a while, for example because they have expired.
    Rejected,
    /// No work has begun, because rights are missing for that. Contains one line for each.
    NotBegun(Vec<String>),
    /// The control plane cannot be used. Contains the reason.
    Unusable(String),
    /// The time is over, or the process was told to stop. Contains which of the two.
    CutOff(String),
}

/// Pause between two looks at whether the control plane has answered.
const ANSWER_PAUSE: Duration = Duration::from_millis(100);
/// How long the queue must be idle until all work is done. The watches report a pass's own writes within milliseconds.
const QUIET: Duration = Duration::from_millis(750);
/// How long a right must be missing before the pass ends without it: an API server learns of new roles and bindings a
/// moment after they are stored, and a pipeline may have applied them just before.
const DENIED_MIN: Duration = Duration::from_secs(3);

/// How often to look whether all that is left fails again and again.
const FAILING_PAUSE: Duration = Duration::from_secs(1);
/// How long everything that is left must fail before the pass ends without it: a server that starts again needs some
/// seconds, and so does what a pipeline has applied just before.
const FAILING_MIN: Duration = Duration::from_secs(15);
/// How often each of them must fail in that time.
const FAILURES_MIN: u32 = 2;
/// The line about a subject that fails, if nothing else names the reason.
const FAILS: &str = "its passes fail, and the log says why";

/// What is left when everything in the queue only fails.
#[derive(Default)]
struct Failing {
    /// Since when it is the same, and how often each subject had failed in a row by then.
    since: Option<(Instant, BTreeMap<Subject, u32>)>,
    /// What users read about it.
    causes: Vec<String>,
}

/// Returns when nothing is left to do or the time is over; never for [`Mode::Forever`].
pub(super) async fn run(context: &Context, readiness: &Readiness, mode: Mode) -> Report {
    let Mode::Once(timeout) = mode else { return std::future::pending().await };
    context.observation.iter().for_each(Observation::be_brief);
    let timed_out = || Ending::CutOff(format!("timed out after {} s", timeout.as_secs()));
    let ending = tokio::select! {
        ending = tokio::time::timeout(timeout, done(context, readiness)) => ending.unwrap_or_else(|_| timed_out()),
        why = unusable(readiness) => Ending::Unusable(why),
        // They may be granted later, but a pipeline should know now.
        lines = lasting(|| readiness.denied()) => Ending::NotBegun(lines),
        _ = lasting(|| readiness.rejected()) => match readiness.may_work() {
            true => Ending::Rejected,
            false => Ending::NotBegun(readiness.lines()),
        },
    };
    let absent = match &ending {
        Ending::Done(_) | Ending::Denied(..) => absent_namespaces(context).await,
        Ending::Rejected | Ending::NotBegun(_) | Ending::Unusable(_) | Ending::CutOff(_) => Vec::new(),
    };
    report(context, readiness, ending, absent)
}

/// The report of a pass that was told to stop.
pub(super) fn interrupted(context: &Context, readiness: &Readiness) -> Report {
    report(context, readiness, Ending::CutOff("interrupted".to_owned()), Vec::new())
}

/// The namespaces that do not exist, one line each. A daemon waits for them, but a single pass has nothing to do there,
/// so its name may be wrong. Says nothing if this process may not read namespaces.
async fn absent_namespaces(context: &Context) -> Vec<String> {
    let kind = Kind::built_in(&Gvk::new("", "v1", "Namespace")).expect("it is a built-in kind");
    let mut lines = Vec::new();
    for namespace in &context.namespaces {
        if let Ok(None) = context.kcp.get_object_meta(&kind, &Key::new("", namespace)).await {
            lines.push(format!("the control plane has no namespace {namespace}"));
        }
    }
    lines
}

/// What is known when a pass ends. `absent` are lines about namespaces.
fn report(context: &Context, readiness: &Readiness, ending: Ending, absent: Vec<String>) -> Report {
    let overview = overview(&context.stores);
    // Until work begins, the statuses are those of an earlier process, or of the one that leads.
    let has_begun = match ending {
        Ending::NotBegun(_) => false,
        Ending::CutOff(_) => readiness.may_work(),
        Ending::Done(_) | Ending::Denied(..) | Ending::Rejected | Ending::Unusable(_) => true,
    };
    let known = if has_begun || context.observation.is_some() { problems(context, &overview) } else { Vec::new() };
    // One line for each subject.
    let with_others = |mut lines: Vec<String>, subjects: Vec<Subject>, what: &str| {
        let others = unlisted(subjects, &known.iter().chain(&lines));
        lines.extend(others.into_iter().map(|subject| format!("{subject}: {what}")));
        lines
    };
    let is_observing = context.observation.is_some();
    let mut unusable = None;
    let of_ending = match ending {
        Ending::Done(failing) => {
            let lines = if is_observing { readiness.lines() } else { Vec::new() };
            with_others(lines, failing, FAILS)
        }
        Ending::Denied(rights, failing) => {
            let lines = readiness.lines().into_iter().chain(rights).collect();
            with_others(lines, failing, FAILS)
        }
        Ending::NotBegun(lines) if !is_observing => lines,
        Ending::NotBegun(_) | Ending::Rejected => readiness.lines(),
        Ending::Unusable(why) => {
            unusable = Some(why);
            readiness.lines()
        }
        Ending::CutOff(why) => {
            let mut lines = readiness.lines();
            if has_begun {
                lines.extend(missing_rights(context).iter().map(Denial::sentence));
                lines = with_others(lines, context.queue.busy(), "still in progress");
            }
            lines.push(why);
            lines
        }
    };
    let more: Vec<String> = absent.into_iter().chain(of_ending).collect();
    let (not_done, observed) = match &context.observation {
        Some(observation) => {
            let report = observation.report(more);
            let observed = Observed { text: report.to_text(), differs: 0 < report.summary.differences };
            (report.not_compared(), Some(observed))
        }
        None => (known.into_iter().chain(more).collect(), None),
    };
    let invalid = has_begun && overview.has_invalid_definitions();
    Report { invalid, not_done, notes: notes(context, readiness), observed, unusable }
}

/// What is not done as far as this process knows, one line each.
fn problems(context: &Context, overview: &Overview) -> Vec<String> {
    match &context.observation {
        Some(observation) => observation.report(Vec::new()).not_compared(),
        None => overview.not_done(),
    }
}

/// The subjects that no line is about yet.
fn unlisted<'a>(mut subjects: Vec<Subject>, lines: &(impl Iterator<Item = &'a String> + Clone)) -> Vec<Subject> {
    subjects.retain(|subject| {
        let begin = format!("{subject}: ");
        !lines.clone().any(|line| line.starts_with(&begin))
    });
    subjects
}

/// The missing rights that hold up nothing.
fn notes(context: &Context, readiness: &Readiness) -> Vec<String> {
    let mut of_events = context.kcp.denials();
    of_events.retain(Denial::is_of_events);
    of_events.sort();
    let of_events = of_events.iter().map(|denial| format!("some Events are not written: {}", denial.sentence()));
    of_events.chain(readiness.unrenewed()).collect()
}

/// Returns once the control plane was asked and cannot be used: it cannot be reached, rejects the credentials,
/// does not list its kinds or lacks some. As every command, a single pass does not wait for it.
async fn unusable(readiness: &Readiness) -> String {
    loop {
        if let Some(why) = readiness.unusable() {
            return why;
        }
        tokio::time::sleep(ANSWER_PAUSE).await;
    }
}

/// Returns what `found` returns, once that is not `None` for long enough.
async fn lasting<T>(found: impl Fn() -> Option<T>) -> T {
    let mut since: Option<Instant> = None;
    loop {
        match found() {
            Some(found) if DENIED_MIN <= since.get_or_insert_with(Instant::now).elapsed() => return found,
            Some(_) => {}
            None => since = None,
        }
        tokio::time::sleep(ANSWER_PAUSE).await;
    }
}

async fn done(context: &Context, readiness: &Readiness) -> Ending {
    loop {
        tokio::time::sleep(QUIET).await;
        let failing = settled(context).await;
        // Before readiness, an empty queue does not mean that everything is done.
        if !readiness.lines().is_empty() {
            match lacking(context, readiness, &failing).await {
                Some(rights) if !readiness.lines().is_empty() => return Ending::Denied(rights, failing),
                Some(_) | None => continue,
            }
        }
        tokio::time::sleep(QUIET).await;
        if !rests(context, &failing) {
            continue;
        }
        if !is_under_way(context, &failing) && (failing.is_empty() || missing_rights(context).is_empty()) {
            return Ending::Done(failing);
        }
        if let Some(rights) = lacking(context, readiness, &failing).await
            && (!failing.is_empty() || is_under_way(context, &failing))
        {
            return Ending::Denied(rights, failing);
        }
    }
}

/// Waits until nothing is left in the queue but what fails again and again, and returns that.
async fn settled(context: &Context) -> Vec<Subject> {
    let mut failing = Failing::default();
    loop {
        tokio::select! {
            () = context.queue.settled() => return Vec::new(),
            () = tokio::time::sleep(FAILING_PAUSE) => {}
        }
        let busy = context.queue.busy_failures();
        // Then the cause is elsewhere, and what fails is retried once it is over.
        let may_be_over = context.kcp.outage().is_some() || context.components.is_awaited();
        if may_be_over || busy.is_empty() || busy.values().any(|failures| *failures == 0) {
            failing = Failing::default();
        } else if failing.is_certain(&busy, problems(context, &overview(&context.stores)), Instant::now()) {
            return busy.into_keys().collect();
        }
    }
}

/// Whether nothing is in the queue but what fails again and again.
fn rests(context: &Context, failing: &[Subject]) -> bool {
    context.queue.busy().iter().all(|subject| failing.contains(subject))
}

/// Whether anything else is in progress than what fails again and again.
fn is_under_way(context: &Context, failing: &[Subject]) -> bool {
    match &context.observation {
        Some(observation) => observation.has_pending(context.stores.kymas().len()),
        None => without(overview(&context.stores), failing).is_under_way(),
    }
}

/// The overview without some subjects.
fn without(mut overview: Overview, subjects: &[Subject]) -> Overview {
    let names: BTreeSet<String> = subjects.iter().map(Subject::to_string).collect();
    let is_other = |kind: &str, name: &str| !names.contains(&format!("{kind} {name}"));
    overview.sources.retain(|line| is_other("source", &line.name));
    overview.runtimes.retain(|line| is_other("runtime", &line.name));
    overview.watchers.retain(|line| is_other("watcher", &line.name));
    overview.setup.retain(|line| is_other(line.kind, &line.name));
    overview
}

/// The rights that the control plane denies since work has begun, each as a sentence, if nothing happens until that is
/// certain. What was granted meanwhile is tried again.
async fn lacking(context: &Context, readiness: &Readiness, failing: &[Subject]) -> Option<Vec<String>> {
    // A registry that is being read wakes the runtimes that wait for it, and they are not in the queue until then.
    let rests = || rests(context, failing) && !context.components.is_awaited();
    let before = missing_rights(context);
    if before.is_empty() || !readiness.may_work() || !rests() {
        return None;
    }
    tokio::time::sleep(DENIED_MIN).await;
    if outage::is_any_granted(context).await || context.kcp.outage().is_some() || !rests() {
        return None;
    }
    let mut left = missing_rights(context);
    left.retain(|denial| before.contains(denial));
    (!left.is_empty()).then(|| left.iter().map(Denial::sentence).collect())
}

/// The rights whose lack holds up work, in a total order. None of a process that observes: it reports what it cannot
/// read by itself.
fn missing_rights(context: &Context) -> Vec<Denial> {
    if context.observation.is_some() {
        return Vec::new();
    }
    let mut missing = context.kcp.denials();
    missing.retain(|denial| !denial.is_of_events());
    missing.sort();
    missing
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

// === impl Failing ===

impl Failing {
    /// Notes what is left at `now`: how often each subject has failed in a row, and what users read about it. Returns
    /// whether it only fails again and again.
    fn is_certain(&mut self, failures: &BTreeMap<Subject, u32>, causes: Vec<String>, now: Instant) -> bool {
        let is_same = |before: &BTreeMap<Subject, u32>| {
            let has_failed_since = |(subject, number): (&Subject, &u32)| failures.get(subject) >= Some(number);
            before.len() == failures.len() && before.iter().all(has_failed_since)
        };
        match &self.since {
            Some((since, before)) if is_same(before) && self.causes == causes => {
                let has_failed_enough =
                    |(subject, number): (&Subject, &u32)| failures.get(subject) >= Some(&(number + FAILURES_MIN));
                FAILING_MIN <= now.saturating_duration_since(*since) && before.iter().all(has_failed_enough)
            }
            Some(_) | None => {
                *self = Failing { since: Some((now, failures.clone())), causes };
                false
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_fails_for_a_while_from_an_unchanged_cause_ends_a_pass() {
        let start = Instant::now();
        let watcher = || Subject::Watcher(Key::new("kcp-system", "one"));
        let runtime = || Subject::Runtime(Key::new("kcp-system", "two"));
        let mut failing = Failing::default();
        // Second, failures of both subjects, cause, and whether it ends the pass.
        let rows = [
            (0, (1, 1), "a", false),
            (14, (8, 4), "a", false),
            (15, (8, 4), "a", true),
            // The cause is another one.
            (16, (9, 5), "b", false),
            (40, (20, 6), "b", false),
            (41, (20, 7), "b", true),
            // One of them succeeded in between.
            (42, (21, 1), "b", false),
            (57, (29, 2), "b", false),
            (58, (29, 3), "b", true),
        ];
        for (second, (of_watcher, of_runtime), cause, expected) in rows {
            let failures = BTreeMap::from([(watcher(), of_watcher), (runtime(), of_runtime)]);
            let now = start + Duration::from_secs(second);
            assert_eq!(failing.is_certain(&failures, vec![cause.to_owned()], now), expected, "{second}");
        }
        let alone = BTreeMap::from([(watcher(), 40)]);
        let later = start + Duration::from_secs(90);
        assert!(!failing.is_certain(&alone, vec!["b".to_owned()], later), "other subjects");
    }

    #[test]
    fn a_subject_that_a_line_is_about_gets_no_second_line() {
        let key = |name| Key::new("kcp-system", name);
        let subjects = vec![
            Subject::Runtime(key("one")),
            Subject::Runtime(key("one-more")),
            Subject::Watcher(key("kyma-dev")),
            Subject::Watcher(key("other")),
        ];
        let lines =
            ["runtime kcp-system/one: not ready", "watcher kcp-system/kyma-dev: the control plane serves no Gateways"];
        let lines = lines.map(str::to_owned);
        let left = unlisted(subjects, &lines.iter());
        assert_eq!(left, [Subject::Runtime(key("one-more")), Subject::Watcher(key("other"))]);
    }

    /// For example, a right that an API server learns of a moment after its role was stored.
    #[tokio::test(start_paused = true)]
    async fn what_is_missing_for_less_than_three_seconds_ends_no_pass() {
        let begin = Instant::now();
        let is_missing = |seconds: f32| !(2.85..2.95).contains(&seconds);
        let found = lasting(|| is_missing(begin.elapsed().as_secs_f32()).then_some("a right")).await;
        assert_eq!(found, "a right");
        let took = begin.elapsed();
        assert!((Duration::from_secs(6)..Duration::from_millis(6_200)).contains(&took), "{took:?}");
    }
}
