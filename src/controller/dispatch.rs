//! One pass between queue and controllers, with its log lines and metrics.

use std::{
    any::Any,
    collections::BTreeSet,
    panic::AssertUnwindSafe,
    time::{Duration, Instant},
};

use futures::FutureExt as _;
use tracing::Instrument as _;

use super::{
    Context, Failure, Subject, chain,
    events::{Event, Severity, reason},
};
use tidegate_cluster as cluster;
use tidegate_process::{
    lock::Mutex,
    retry::{self, Class},
};

use crate::{
    gateway,
    metrics::Ended,
    observe,
    queue::{Finish, Trigger, Triggers, Work},
    release, runtime, setup, source, watcher,
};

/// Reason of a pass that panicked, in metrics, logs and statuses.
const PANICKED: &str = "Panicked";
/// Reason of a pass that waits for something, in metrics.
const NOT_FINISHED: &str = "NotFinished";
/// What users read about a panic. Its own message is only in the log, because it may quote anything.
const NOTE: &str =
    "the pass panicked, which is a bug in Tidegate; Tidegate retries it. Please report the panic in the log";

/// The subjects whose last pass panicked. Their next pass writes it into the status first.
///
/// The pass that panicked cannot write it: it may have left behind a status that the watch does not show yet.
#[derive(Debug, Default)]
pub struct Panicked(Mutex<BTreeSet<Subject>>);

// === impl Panicked ===

impl Panicked {
    fn insert(&self, subject: &Subject) {
        self.0.lock().insert(subject.clone());
    }

    /// Whether the last pass over the subject panicked. Says so once.
    fn take(&self, subject: &Subject) -> bool {
        self.0.lock().remove(subject)
    }
}

/// Runs the pass for some work, and returns when to reconcile the subject next.
///
/// A pass that panics has failed. Tidegate counts, logs and reports it, and tries it again with the usual delays. Other
/// passes continue; the state that they share with it is locked by [`tidegate_process::lock`].
///
/// May be dropped at any `await`; the work then has failed.
pub async fn pass(context: &Context, work: &Work<Subject>) -> Finish {
    guarded(context, work, reconcile(context, work)).await
}

/// Runs `reconcile` as the pass for some work: see [`pass`].
pub async fn guarded(context: &Context, work: &Work<Subject>, reconcile: impl Future<Output = super::Pass>) -> Finish {
    let subject = work.subject();
    let span = tracing::info_span!("pass", %subject, trigger = %work.triggers(), attempt = work.attempt());
    context.metrics.waited(subject.kind(), work.waited());
    let started = Instant::now();
    let began = tokio::time::Instant::now();
    let unwound = AssertUnwindSafe(reconcile).catch_unwind().instrument(span.clone()).await;
    let result = unwound.unwrap_or_else(|panic| Err(panicked(panic.as_ref())));
    let duration = started.elapsed();
    let ended = ended(&result);
    context.metrics.pass(subject.kind(), ended, duration);
    arrival(context, work, &result);
    if let (Subject::Runtime(key), Ok(finish)) = (subject, &result) {
        context.inbox.passed(key, began, work.triggers(), *finish);
    }
    if let (Subject::Source(key), Ok(Finish::Done | Finish::Deferred | Finish::After(..) | Finish::Gone)) =
        (subject, &result)
    {
        context.stores.definitions().applied(key, began);
    }
    span.in_scope(|| match result {
        Ok(finish) => {
            if ended == Ended::Waiting {
                context.metrics.repeat(subject.kind(), NOT_FINISHED, ended);
            }
            tracing::debug!(?finish, milliseconds = duration.as_millis(), "pass ended");
            resync(context, subject, finish);
            finish
        }
        Err(failure) => {
            context.metrics.repeat(subject.kind(), failure.reason, ended);
            log(&failure, work.attempt(), context.kcp.outage().is_some());
            if ended == Ended::Panicked {
                context.panicked.insert(subject);
                tell(context, subject);
            }
            after_failure(&failure, work.attempt(), context.resync)
        }
    })
}

/// What the metrics call the end of a pass.
fn ended(result: &super::Pass) -> Ended {
    match result {
        Ok(Finish::After(_, Trigger::Retry)) => Ended::Waiting,
        Ok(Finish::Done | Finish::Deferred | Finish::Gone | Finish::After(..) | Finish::Awaiting(_)) => Ended::Well,
        Err(Failure { reason: PANICKED, .. }) => Ended::Panicked,
        Ok(Finish::Failed(class) | Finish::FailedFor(class, _)) | Err(Failure { class, .. }) => match class {
            Class::Waiting => Ended::Waiting,
            Class::Stalled | Class::Transient => Ended::Failed,
        },
    }
}

async fn reconcile(context: &Context, work: &Work<Subject>) -> super::Pass {
    let triggers = work.triggers();
    if let Some(observation) = &context.observation {
        return observe::reconcile(context, observation, work.subject(), triggers).await;
    }
    if context.panicked.take(work.subject()) {
        report_panic(context, work.subject(), triggers).await;
    }
    match work.subject() {
        Subject::Source(key) => source::reconcile(context.source(), key, triggers).await,
        Subject::Runtime(key) => runtime::reconcile(context.runtime(), key, triggers).await,
        Subject::Watcher(key) => watcher::reconcile(context.watcher(), key, triggers).await,
        Subject::Gateway(key) => gateway::reconcile(context.gateway(), key, triggers).await,
        Subject::Release(key) => release::reconcile(context.release(), key, triggers).await,
        Subject::Setup(kind, key) => setup::reconcile(context.setup(), *kind, key, triggers).await,
    }
}

/// The failure that a panic becomes. The writes before it remain: passes may be dropped anywhere and run again.
fn panicked(panic: &(dyn Any + Send)) -> Failure {
    let text = panic.downcast_ref::<String>().map(String::as_str).or_else(|| panic.downcast_ref::<&str>().copied());
    let error = format!("the pass panicked: {}", text.unwrap_or("without a message"));
    Failure::new(Class::Transient, PANICKED, error)
}

/// Writes into the status that the last pass panicked. If this fails, the pass starts anyway: it may succeed.
async fn report_panic(context: &Context, subject: &Subject, triggers: Triggers) {
    let failure = || Failure::new(Class::Transient, PANICKED, NOTE);
    let report = async {
        match subject {
            Subject::Source(key) => source::report_failure(context.source(), key, triggers, &failure()).await,
            Subject::Runtime(key) => runtime::report_failure(context.runtime(), key, triggers, &failure()).await,
            Subject::Watcher(key) => watcher::report_failure(context.watcher(), key, triggers, &failure()).await,
            // Its problem is in `Certificates`: see `tell`.
            Subject::Gateway(_) => Ok(()),
            Subject::Setup(kind, key) => setup::report_failure(context.setup(), *kind, key, triggers, &failure()).await,
            // It has no status. The Event says it.
            Subject::Release(_) => Ok(()),
        }
    };
    // A second panic here must not keep the pass from being tried.
    let written = AssertUnwindSafe(report).catch_unwind().await;
    if let Err(failure) = written.unwrap_or_else(|panic| Err(panicked(panic.as_ref()))) {
        let error = chain(failure.error.as_ref());
        tracing::warn!(reason = failure.reason, error, "the status does not show that the last pass panicked");
    }
}

/// Reports a panic as an Event. The status follows with the next pass.
fn tell(context: &Context, subject: &Subject) {
    let note = NOTE;
    let (severity, reason, action) = (Severity::Warning, reason::PASS_PANICKED, "Reconcile");
    match subject {
        Subject::Source(key) => {
            if let Some(source) = context.stores.source(key) {
                context.events.publish(&*source.object, severity, reason, action, note);
            }
        }
        Subject::Runtime(key) => {
            if let Some(kyma) = context.stores.kyma(key) {
                context.events.publish(&*kyma, severity, reason, action, note);
            }
        }
        Subject::Watcher(key) => {
            if let Some(watcher) = context.stores.landscape().watchers.get(key) {
                context.events.publish(&**watcher, severity, reason, action, note);
            }
        }
        Subject::Release(key) => {
            if let Some(release) = context.stores.landscape().releases.get(key) {
                context.events.publish(&**release, severity, reason, action, note);
            }
        }
        Subject::Setup(kind, key) => {
            if let Some(metadata) = context.stores.setup().metadata(*kind, key) {
                let regarding = setup::regarding(*kind, key, metadata);
                context.events.publish_event(Event { regarding, severity, reason, action, note: note.to_owned() });
            }
        }
        // The gateway has no status. Runtimes that wait for a certificate report the problem.
        Subject::Gateway(_) => context.certificates.tell(Some(note.to_owned()), false),
    }
}

/// Measures how long commits take to reach runtimes.
fn arrival(context: &Context, work: &Work<Subject>, result: &super::Pass) {
    let Subject::Runtime(key) = work.subject() else { return };
    let runtime = key.to_string();
    if work.triggers().contains(Trigger::Git) {
        context.metrics.runtime_concerned(&runtime);
    }
    match result {
        Ok(Finish::Done) => context.metrics.runtime_arrived(&runtime, Instant::now()),
        Ok(Finish::Gone) => context.metrics.runtime_gone(&runtime),
        Ok(Finish::Deferred | Finish::After(..) | Finish::Awaiting(_) | Finish::Failed(_) | Finish::FailedFor(..))
        | Err(_) => {}
    }
}

/// Schedules the next comparison of a runtime with its desired state. If one is scheduled already, its time does not
/// change, so events do not postpone it.
fn resync(context: &Context, subject: &Subject, finish: Finish) {
    match (subject, finish) {
        (
            Subject::Runtime(_),
            Finish::Done
            | Finish::Deferred
            | Finish::After(..)
            | Finish::Awaiting(_)
            | Finish::Failed(_)
            | Finish::FailedFor(..),
        ) => {
            context.queue.push_after(subject.clone(), Trigger::Resync, resync_delay(subject, context.resync));
        }
        (Subject::Runtime(_), Finish::Gone)
        | (
            Subject::Source(_) | Subject::Watcher(_) | Subject::Gateway(_) | Subject::Release(_) | Subject::Setup(..),
            _,
        ) => {}
    }
}

/// When a runtime in which nothing happens is reconciled again: at the latest after `resync`. Its name decides how much
/// earlier, so that runtimes stay apart even if the same event reconciled all of them.
fn resync_delay(subject: &Subject, resync: Duration) -> Duration {
    let digest = tidegate_core::object::Digest::of_bytes(subject.to_string().as_bytes()).to_string();
    let fraction = u8::from_str_radix(&digest[..2], 16).map_or(0.5, |byte| f64::from(byte) / 255.0);
    retry::spread(resync, fraction)
}

/// Ends a pass that failed. If an overloaded API server refused it, the next try waits as long as the server asked. It
/// counts as a failure: a server that asks for no wait would otherwise never get a longer pause than the first.
fn after_failure(failure: &Failure, attempt: u32, interval: Duration) -> Finish {
    let class = failure.class;
    let delay = |asked| retry::at_least(retry::delay(class, attempt, interval), asked);
    failure.retry_after().map_or(Finish::Failed(class), |asked| Finish::FailedFor(class, delay(asked)))
}

/// Failures of one pass after which an outage of the control plane, if there is one, is known.
const OUTAGE_AFTER: u32 = 3;

/// Logs the first failure, and then each time that the number of attempts doubles. A failure that lasts a day would
/// otherwise fill the log. While the control plane cannot be reached, one line a minute says so for all passes.
fn log(failure: &Failure, attempt: u32, is_outage: bool) {
    let (reason, error) = (failure.reason, chain(failure.error.as_ref()));
    let may_be_outage = failure.error.downcast_ref().is_some_and(cluster::Error::may_be_outage);
    // The first passes that fail may do so before the outage is known as one.
    let is_of_outage = may_be_outage && (is_outage || attempt <= OUTAGE_AFTER);
    match failure.class {
        _ if reason == PANICKED => tracing::error!(reason, error, "a pass panicked"),
        _ if failure.error.is::<runtime::NotReached>() => tracing::debug!(reason, error, "pass failed"),
        _ if is_of_outage => tracing::debug!(reason, error, "pass failed"),
        _ if !attempt.is_power_of_two() => tracing::debug!(reason, error, "pass failed"),
        Class::Stalled => tracing::error!(reason, error, "pass failed; waiting for a change"),
        Class::Waiting => tracing::info!(reason, error, "pass waits"),
        Class::Transient => tracing::warn!(reason, error, "pass failed"),
    }
}

#[cfg(test)]
mod tests;
