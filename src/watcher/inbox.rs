//! Events of runtimes, on their way to the queue: whose they are, whether they count, and what must survive us.
//!
//! An event is acknowledged once its runtime is known and its certificate belongs to it, the journal says what a new
//! process would not look at by itself, and the runtime is due. What it becomes is a trigger and nothing more: an event
//! about a Kyma has it read again, one about anything else has all objects compared by their metadata.
//!
//! Refuses while another process leads, or before we know the landscape: the sender tries again, and finds who leads.

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

/// What is on its way. One for a process.
#[derive(Debug)]
pub struct Inbox {
    pinning: Pinning,
    leadership: Leadership,
    journal: Journal,
    pace: Mutex<Pace>,
    /// Something is due earlier than before.
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

    /// Reads the journal, once this process leads and knows the whole landscape. From then on events are taken, and what
    /// the former process acknowledged is due.
    async fn open(&self, context: &Context) {
        context.stores.complete().await;
        self.leadership.acquired().await;
        let all: Vec<Key> = context.stores.kymas().iter().map(|kyma| landscape::key(&kyma.metadata)).collect();
        let left = self.journal.open(&context.kcp, &all).await;
        if !left.is_empty() {
            tracing::info!(runtimes = left.len(), "events that an earlier process acknowledged are worked off");
        }
        for runtime in left {
            context.queue.push_all(Subject::Runtime(runtime), pace::triggers(false));
        }
    }

    /// Whether events are taken, as far as it depends on the journal.
    pub fn is_open(&self) -> bool {
        self.journal.is_open()
    }

    /// Reads the journal, then puts into the queue what is due, and writes the journal. Never ends; nothing else waits
    /// for it, so a journal that cannot be read stops events and no other work.
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
                    // Either end of the wait leads back to the look.
                    let _ = tokio::time::timeout_at(next, woken).await;
                }
                None => woken.await,
            }
        }
    }

    /// Takes an event, or says why not.
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
            // What is told before it is stored is only covered by the look that comes once more.
            let told = Instant::now() + if received.settled { Duration::ZERO } else { AGAIN };
            if let Err(NotWritten) = self.journal.tell(&key, told).await {
                return unavailable("journal", "the event could not be written down");
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

    /// Takes note that an agent looked whether its way to us is open. One whose events are not taken is not heard of.
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

    /// A pass over a runtime that began at some moment has ended.
    pub fn passed(&self, runtime: &Key, began: Instant, triggers: Triggers, finish: Finish) {
        let looks = triggers.iter().any(|trigger| matches!(trigger, Trigger::Drift | Trigger::Resync));
        match finish {
            Finish::Gone => self.journal.passed(runtime, began, true, true),
            Finish::Done => self.journal.passed(runtime, began, looks, true),
            Finish::After(..) => self.journal.passed(runtime, began, looks, false),
            // Nobody has looked.
            Finish::Deferred | Finish::Failed(_) => {}
        }
    }

    /// Why nothing can be taken now.
    fn unavailable(&self, context: &Context) -> Option<Answer> {
        if !self.leadership.is_leading() {
            return Some(Answer::Elsewhere(Refusal { reason: "not-leading", message: "another process takes events" }));
        }
        if !self.journal.is_open() || !context.stores.missing().is_empty() {
            return Some(unavailable("not-ready", "the landscape is not known yet"));
        }
        None
    }

    /// Whose the certificate is.
    fn kyma(&self, context: &Context, identity: &Identity) -> Result<Arc<Kyma>, Refusal> {
        match context.stores.runtime(identity.common_name()) {
            Runtime::One(kyma) => Ok(kyma),
            Runtime::Unknown => {
                Err(Refusal { reason: "runtime-unknown", message: "no runtime has the id that the certificate names" })
            }
            Runtime::Ambiguous(kymas) => {
                let note = "its runtime id is that of another Kyma, too: events of neither are taken until one of the two \
                            has another label kyma-project.io/runtime-id";
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

    /// Fails if the certificate does not name the domain of its runtime, and if that matters.
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
            None => "an event came, but the Kyma has no annotation skr-domain to hold its certificate against",
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
    /// For a process that does not listen: nothing is taken before the journal is read.
    fn default() -> Inbox {
        Inbox::new(names::KCP_NAMESPACE, Leadership::unconditional(), Pinning::Enforce, Duration::ZERO)
    }
}

/// Takes note that an agent of ours is heard of. Its Kyma says so, if it did not.
fn heard(context: &Context, kyma: &Key) {
    if context.contacts.probe(kyma, Instant::now()) {
        context.queue.push(Subject::Runtime(kyma.clone()), Trigger::Changed);
    }
}

/// Says that an event came, as Lifecycle Manager does: the text is looked for by those who test it. Of many that become
/// one piece of work only the first is told.
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
