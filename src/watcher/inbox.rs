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
//!
//! `decide` says which events are accepted and what they trigger, `pace` when, and `journal` records them.

mod decide;
mod journal;
mod pace;

use std::{
    sync::{Arc, MutexGuard},
    time::Duration,
};

use tokio::{sync::Notify, time::Instant};

use self::{
    decide::{About, NameCheck, Readiness},
    journal::{Journal, NotWritten},
    pace::{Noted, Pace},
};
use crate::controller::{
    Context, Subject,
    events::{Severity, reason},
};
use tidegate_cluster::Leadership;
use tidegate_core::{
    api::{
        Kyma,
        names::{self, annotation},
    },
    landscape,
    name::Key,
};
use tidegate_events::{
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
            context.queue.push_all(Subject::Runtime(runtime), decide::triggers(About::Object));
        }
    }

    /// Whether the journal is open, so that the inbox accepts events.
    pub(crate) fn is_open(&self) -> bool {
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
        match self.accept(context, received).await {
            Ok(()) => Answer::Taken,
            Err(answer) => answer,
        }
    }

    async fn accept(&self, context: &Context, received: &Received) -> Result<(), Answer> {
        self.check_available(context)?;
        let kyma = self.identify(context, &received.identity)?;
        let key = landscape::key(&kyma.metadata);
        self.check_name(context, &kyma, &received.identity).map_err(|refusal| {
            context.contacts.refused(&key, Instant::now());
            Answer::Refused(refusal)
        })?;
        if let Some(mark) = received.event.probe() {
            returned(context, &key, mark);
            return Ok(());
        }
        let about = decide::about(&received.event);
        if about == About::Object {
            let visible = decide::visible_from(received.settled, Instant::now());
            self.journal.tell(&key, visible).await.map_err(|NotWritten| decide::not_recorded())?;
        }
        let noted = self.pace().note(&key, decide::triggers(about), received.settled, Instant::now());
        self.wake.notify_one();
        if received.settled {
            context.contacts.probe(&key, Instant::now());
        } else {
            context.contacts.event(&key, Instant::now());
        }
        log(&key, noted, received);
        Ok(())
    }

    /// Records a probe of an agent. A probe does not count as contact if the agent's events would be refused.
    pub fn probed(&self, context: &Context, identity: &Identity) {
        if self.check_available(context).is_err() {
            return;
        }
        let Ok(kyma) = self.identify(context, identity) else { return };
        let key = landscape::key(&kyma.metadata);
        match self.check_name(context, &kyma, identity) {
            Ok(()) => context.contacts.probe(&key, Instant::now()),
            Err(_) => context.contacts.refused(&key, Instant::now()),
        }
    }

    /// Records the end of a pass over a runtime that began at `began`.
    pub(crate) fn passed(&self, runtime: &Key, began: Instant, triggers: Triggers, finish: Finish) {
        let looks = triggers.iter().any(|trigger| matches!(trigger, Trigger::Drift | Trigger::Resync));
        match finish {
            Finish::Gone => self.journal.passed(runtime, began, true, true),
            Finish::Done => self.journal.passed(runtime, began, looks, true),
            Finish::After(..) => self.journal.passed(runtime, began, looks, false),
            // The pass has not compared the objects.
            Finish::Deferred | Finish::Awaiting(_) | Finish::Failed(_) | Finish::FailedFor(..) => {}
        }
    }

    /// Fails with the answer to all events, if the inbox can accept none now.
    fn check_available(&self, context: &Context) -> Result<(), Answer> {
        let readiness = if !self.leadership.is_leading() {
            Readiness::NotLeading
        } else if !self.journal.is_open() || !context.stores.missing().is_empty() {
            Readiness::NotReady
        } else {
            Readiness::Ready
        };
        decide::unavailable(readiness).map_or(Ok(()), Err)
    }

    /// The Kyma that the certificate names. Fails with the answer if it names none, and tells users of Kymas with the
    /// same runtime id.
    fn identify(&self, context: &Context, identity: &Identity) -> Result<Arc<Kyma>, Answer> {
        decide::identify(context.stores.runtime(identity.common_name())).map_err(|unidentified| {
            for kyma in &unidentified.rivals {
                context.contacts.refused(&landscape::key(&kyma.metadata), Instant::now());
                warn(context, kyma, reason::RUNTIME_ID_AMBIGUOUS, decide::AMBIGUOUS);
            }
            Answer::Refused(unidentified.refusal)
        })
    }

    /// Fails if the certificate does not name the domain of its runtime, and the settings require it.
    fn check_name(&self, context: &Context, kyma: &Kyma, identity: &Identity) -> Result<(), Refusal> {
        let domain = landscape::annotation(&kyma.metadata, annotation::SKR_DOMAIN);
        match decide::check_name(self.pinning, domain, |name| identity.is_named(name)) {
            NameCheck::Passed => Ok(()),
            NameCheck::Unverified(note) => {
                warn(context, kyma, reason::CERTIFICATE_NAME, note);
                context.metrics.listener().unverified();
                Ok(())
            }
            NameCheck::Refused(note, refusal) => {
                warn(context, kyma, reason::CERTIFICATE_NAME, note);
                Err(refusal)
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

/// Records that a probe came back. If earlier ones were lost, changes may have been lost as well, so a pass compares
/// all objects.
fn returned(context: &Context, kyma: &Key, mark: &str) {
    let Ok(mark) = u64::from_str_radix(mark, 16) else { return };
    if context.contacts.echo(kyma, mark, Instant::now()) {
        context.queue.push_all(Subject::Runtime(kyma.clone()), decide::triggers(About::Object));
    }
}

/// Tells users of a Kyma that its events are refused, or not verified.
fn warn(context: &Context, kyma: &Kyma, reason: &'static str, note: &'static str) {
    context.events.publish(kyma, Severity::Warning, reason, "Watch", note);
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
