//! Events from runtimes, on their way to the queue: which runtime sent them, whether they are valid, and what must
//! outlive this process.
//!
//! The inbox acknowledges an event after three steps. Its runtime is known and the certificate belongs to that runtime.
//! The journal records what a new process would not check by itself. The runtime is due in the queue. An event becomes
//! a trigger and nothing more. An event about a Kyma makes Tidegate read that Kyma again. Any other event makes
//! Tidegate compare the metadata of all objects.
//!
//! The inbox refuses events while another process leads, or before this process knows the landscape. The sender then
//! retries and finds the leader.

mod journal;
mod pace;

use std::{
    sync::{Arc, MutexGuard},
    time::Duration,
};

use tokio::{sync::Notify, time::Instant};

use self::{
    journal::{Journal, NotWritten},
    pace::{AGAIN, Noted, Pace},
};
use crate::{
    controller::{
        Context, Subject,
        events::{Severity, reason},
    },
    stores::Runtime,
};
use tidegate_cluster::Leadership;
use tidegate_core::{
    api::{
        KYMA_GROUP, Kyma,
        names::{self, annotation},
    },
    landscape,
    name::Key,
};
use tidegate_events::{
    event::Event,
    identity::Identity,
    listener::{Answer, Received, Refusal},
};
use tidegate_process::lock::Mutex;

use crate::{
    config::Pinning,
    queue::{Finish, Trigger, Triggers},
};

/// Events on their way to the queue. One inbox for each process.
#[derive(Debug)]
pub struct Inbox {
    pinning: Pinning,
    leadership: Leadership,
    journal: Journal,
    pace: Mutex<Pace>,
    /// Notified when something is due earlier than before.
    wake: Notify,
}

// === impl Inbox ===

impl Inbox {
    /// An inbox whose journal is in a namespace of the control plane.
    pub fn new(namespace: &str, leadership: Leadership, pinning: Pinning, settle: Duration) -> Inbox {
        Inbox {
            pinning,
            leadership,
            journal: Journal::new(namespace),
            pace: Mutex::new(Pace::new(settle)),
            wake: Notify::new(),
        }
    }

    /// Reads the journal, once this process leads and knows the whole landscape. From then on the inbox accepts events,
    /// and the events that the former process acknowledged are due.
    async fn open(&self, context: &Context) {
        context.stores.complete().await;
        self.leadership.acquired().await;
        let all: Vec<Key> = context.stores.kymas().iter().map(|kyma| landscape::key(&kyma.metadata)).collect();
        let left = self.journal.open(&context.kcp, &all).await;
        if !left.is_empty() {
            tracing::info!(runtimes = left.len(), "processing events that an earlier process acknowledged");
        }
        for runtime in left {
            context.queue.push_all(Subject::Runtime(runtime), pace::triggers(false));
        }
    }

    /// Whether the journal is open, so that the inbox accepts events.
    pub fn is_open(&self) -> bool {
        self.journal.is_open()
    }

    /// Reads the journal, then moves due work to the queue and writes the journal. Never ends. Nothing else waits for
    /// this task, so an unreadable journal stops only events.
    pub async fn run(&self, context: &Context) {
        self.open(context).await;
        tokio::join!(self.journal.write(&context.kcp), self.deliver(context));
    }

    async fn deliver(&self, context: &Context) {
        loop {
            let woken = self.wake.notified();
            let (due, next) = {
                let mut pace = self.pace();
                (pace.take(Instant::now()), pace.next())
            };
            for (runtime, triggers) in due {
                context.queue.push_all(Subject::Runtime(runtime), triggers);
            }
            match next {
                Some(next) => {
                    // After a timeout and after a notification alike, the loop checks what is due.
                    let _ = tokio::time::timeout_at(next, woken).await;
                }
                None => woken.await,
            }
        }
    }

    /// Accepts an event, or returns why not.
    pub async fn receive(&self, context: &Context, received: &Received) -> Answer {
        if let Some(answer) = self.unavailable(context) {
            return answer;
        }
        let kyma = match self.kyma(context, &received.identity) {
            Ok(kyma) => kyma,
            Err(refusal) => return Answer::Refused(refusal),
        };
        if let Err(refusal) = self.check_name(context, &kyma, &received.identity) {
            return Answer::Refused(refusal);
        }
        let key = landscape::key(&kyma.metadata);
        let about_kyma = is_about_kyma(&received.event);
        if !about_kyma {
            // For an event before its write is persisted, only the second pass is sure to see the change.
            let told = Instant::now() + if received.settled { Duration::ZERO } else { AGAIN };
            if let Err(NotWritten) = self.journal.tell(&key, told).await {
                return unavailable("journal", "the event could not be recorded in the journal");
            }
        }
        let noted = self.pace().note(&key, pace::triggers(about_kyma), received.settled, Instant::now());
        self.wake.notify_one();
        if received.settled {
            heard(context, &key);
        } else {
            context.contacts.event(&key, Instant::now());
        }
        log(&key, noted, received);
        Answer::Taken
    }

    /// Records a probe of an agent. A probe does not count as contact if the agent's events would be refused.
    pub fn probed(&self, context: &Context, identity: &Identity) {
        if self.unavailable(context).is_some() {
            return;
        }
        if let Runtime::One(kyma) = context.stores.runtime(identity.common_name())
            && self.check_name(context, &kyma, identity).is_ok()
        {
            heard(context, &landscape::key(&kyma.metadata));
        }
    }

    /// Records the end of a pass over a runtime that began at `began`.
    pub fn passed(&self, runtime: &Key, began: Instant, triggers: Triggers, finish: Finish) {
        let looks = triggers.iter().any(|trigger| matches!(trigger, Trigger::Drift | Trigger::Resync));
        match finish {
            Finish::Gone => self.journal.passed(runtime, began, true, true),
            Finish::Done => self.journal.passed(runtime, began, looks, true),
            Finish::After(..) => self.journal.passed(runtime, began, looks, false),
            // The pass has not compared the objects.
            Finish::Deferred | Finish::Awaiting(_) | Finish::Failed(_) | Finish::FailedFor(..) => {}
        }
    }

    /// Why the inbox can accept nothing now.
    fn unavailable(&self, context: &Context) -> Option<Answer> {
        if !self.leadership.is_leading() {
            return Some(Answer::Elsewhere(Refusal { reason: "not-leading", message: "another process takes events" }));
        }
        if !self.journal.is_open() || !context.stores.missing().is_empty() {
            return Some(unavailable("not-ready", "the landscape is not known yet"));
        }
        None
    }

    /// The Kyma that the certificate names.
    fn kyma(&self, context: &Context, identity: &Identity) -> Result<Arc<Kyma>, Refusal> {
        match context.stores.runtime(identity.common_name()) {
            Runtime::One(kyma) => Ok(kyma),
            Runtime::Unknown => {
                Err(Refusal { reason: "runtime-unknown", message: "no runtime has the id that the certificate names" })
            }
            Runtime::Ambiguous(kymas) => {
                let note = "another Kyma has the same runtime id, so events of both are refused; change the label kyma-project.io/runtime-id of one of them";
                for kyma in kymas {
                    context.events.publish(&*kyma, Severity::Warning, reason::RUNTIME_ID_AMBIGUOUS, "Watch", note);
                }
                Err(Refusal {
                    reason: "runtime-ambiguous",
                    message: "several runtimes have the id that the certificate names",
                })
            }
        }
    }

    /// Fails if the certificate does not name the domain of its runtime, and the settings require it.
    fn check_name(&self, context: &Context, kyma: &Kyma, identity: &Identity) -> Result<(), Refusal> {
        if self.pinning == Pinning::Off {
            return Ok(());
        }
        let domain = landscape::annotation(&kyma.metadata, annotation::SKR_DOMAIN).filter(|domain| !domain.is_empty());
        if domain.is_some_and(|domain| identity.is_named(domain)) {
            return Ok(());
        }
        let note = match domain {
            Some(_) => {
                "an event came with a certificate that does not name the runtime's domain (annotation skr-domain)"
            }
            None => "an event came, but the Kyma has no annotation skr-domain to compare its certificate with",
        };
        context.events.publish(kyma, Severity::Warning, reason::CERTIFICATE_NAME, "Watch", note);
        match self.pinning {
            Pinning::Enforce => {
                Err(Refusal { reason: "domain", message: "the certificate does not name the domain of its runtime" })
            }
            Pinning::Warn | Pinning::Off => {
                context.metrics.listener().unverified();
                Ok(())
            }
        }
    }

    fn pace(&self) -> MutexGuard<'_, Pace> {
        self.pace.lock()
    }
}

impl Default for Inbox {
    /// An inbox for a process without a listener. It accepts nothing before the journal is open.
    fn default() -> Inbox {
        Inbox::new(names::KCP_NAMESPACE, Leadership::unconditional(), Pinning::Enforce, Duration::ZERO)
    }
}

/// Records contact with an agent of Tidegate. Triggers a pass over its Kyma if the status does not report contact yet.
fn heard(context: &Context, kyma: &Key) {
    if context.contacts.probe(kyma, Instant::now()) {
        context.queue.push(Subject::Runtime(kyma.clone()), Trigger::Changed);
    }
}

/// Logs an event with Lifecycle Manager's text, which tests search for. If several events become one piece of work,
/// only the first is logged at this level.
fn log(runtime: &Key, noted: Noted, received: &Received) {
    let (kind, name) = (&received.event.gvk.kind, &received.event.watched.name);
    match noted {
        Noted::New => tracing::info!(kind, name, "event received from SKR, adding {runtime} to queue"),
        Noted::Merged => tracing::debug!(%runtime, kind, name, "event of a runtime that is due anyway"),
    }
}

fn unavailable(reason: &'static str, message: &'static str) -> Answer {
    Answer::Unavailable(Refusal { reason, message })
}

/// Whether an event is about the Kyma in the runtime.
fn is_about_kyma(event: &Event) -> bool {
    event.gvk.group == KYMA_GROUP && event.gvk.kind == "Kyma"
}
