//! The agents that report changes in runtimes, one each, without sockets between them and the daemon.
//!
//! An agent sends an event until the daemon accepts or finally rejects it. The seed decides whether the event is late
//! or sent twice. Undelivered events are lost when the agent restarts. Our agent then requests a check of all objects.
//! The Runtime Watcher's agent does not, and it sends events before the API server has stored the change.

use std::{
    collections::BTreeMap,
    sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use rcgen::{CertificateParams, DnType, KeyPair};
use tidegate::internals::daemon::EventReceiver;
use tidegate_events::{
    event::{Event, Gvk, Watched},
    identity::Identity,
    listener::{Answer, Received},
};
use tokio::{task::JoinSet, time::Instant};
use tokio_util::sync::CancellationToken;

use super::{
    dice::Dice,
    wire::{Death, Wires},
    world::{RUNTIMES, domain},
};

/// The agents of a world.
pub(super) struct Agents {
    state: Arc<Mutex<State>>,
    /// The undelivered events of each agent.
    outboxes: BTreeMap<&'static str, JoinSet<()>>,
    /// Whether a runtime has our agent, or that of the Runtime Watcher.
    own: BTreeMap<&'static str, bool>,
    wires: Wires,
}

#[derive(Default)]
struct State {
    way: Option<Way>,
    taken: Vec<Promise>,
    /// Number of events, by result.
    counts: BTreeMap<&'static str, u64>,
}

/// The daemon that receives events, until it ends.
#[derive(Clone)]
struct Way {
    door: EventReceiver,
    life: u32,
    ended: CancellationToken,
}

/// The subject of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum About {
    /// The Kyma in the runtime.
    Kyma,
    /// Any other object.
    Objects,
}

/// The daemon accepted an event, so it must read the object later than `since`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Promise {
    pub(super) kyma: &'static str,
    pub(super) about: About,
    pub(super) since: Instant,
    /// The daemon that accepted the event.
    pub(super) life: u32,
}

/// How long an agent waits for an answer.
const ANSWER_MAX: Duration = Duration::from_secs(10);
/// How long an agent waits before it tries again.
const RETRY: Duration = Duration::from_secs(7);
/// How long after the report the API server may store a change, if the agent reports before that.
const ADMISSION_MAX: Duration = Duration::from_secs(5);

/// The certificates of the runtimes.
static IDENTITIES: LazyLock<BTreeMap<&'static str, Arc<Identity>>> = LazyLock::new(|| {
    let identity = |name: &'static str| {
        let mut params = CertificateParams::new([domain(name)]).expect("a domain");
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().expect("a key");
        let certificate = params.self_signed(&key).expect("a certificate");
        (name, Arc::new(Identity::parse(certificate.der()).expect("an identity")))
    };
    RUNTIMES.into_iter().map(identity).collect()
});

// === impl Agents ===

impl Agents {
    pub(super) fn new(dice: &mut Dice, wires: Wires) -> Agents {
        let own = RUNTIMES.into_iter().map(|name| (name, dice.below(3) > 0)).collect();
        Agents { state: Arc::default(), outboxes: BTreeMap::new(), own, wires }
    }

    /// Sends events to this daemon from now on.
    pub(super) fn lead_to(&self, door: EventReceiver, life: u32) {
        let former = lock(&self.state).way.replace(Way { door, life, ended: CancellationToken::new() });
        former.inspect(|way| way.ended.cancel());
    }

    /// The daemon is gone. Agents that wait for its answer notice at once.
    pub(super) fn lead_nowhere(&self) {
        let former = lock(&self.state).way.take();
        former.inspect(|way| way.ended.cancel());
    }

    /// Reports a change that has happened or is about to. If `deadly` is set, the daemon is killed that many polls
    /// after it accepts the event.
    pub(super) fn report(
        &mut self,
        dice: &mut Dice,
        (kyma, about, name): (&'static str, About, &str),
        deadly: Option<u64>,
    ) {
        let longest = dice.one_of(&[10, 1_000, 30_000]);
        let delay = Duration::from_millis(dice.below(longest));
        let (version, kind) = match about {
            About::Kyma => ("operator.kyma-project.io/v1beta2", "Kyma"),
            About::Objects => ("v1", "ConfigMap"),
        };
        for _ in 0..1 + dice.below(8) / 7 {
            self.send((kyma, about), event(version, kind, name), delay, deadly);
        }
    }

    /// Whether the agent of a runtime reports a change only after it is stored.
    pub(super) fn waits(&self, kyma: &str) -> bool {
        self.own[kyma]
    }

    /// Restarts an agent.
    pub(super) fn restart(&mut self, dice: &mut Dice, kyma: &'static str) {
        let lost = self.outboxes.remove(kyma).map_or(0, |mut outbox| {
            while outbox.try_join_next().is_some() {}
            outbox.len() as u64
        });
        *lock(&self.state).counts.entry("event lost").or_default() += lost;
        if self.own[kyma] {
            let delay = Duration::from_millis(dice.below(60_000));
            self.send((kyma, About::Objects), event("apps/v1", "Deployment", "skr-webhook"), delay, None);
        }
    }

    fn send(&mut self, (kyma, about): (&'static str, About), event: Event, delay: Duration, deadly: Option<u64>) {
        let received = Received { event, identity: Arc::clone(&IDENTITIES[kyma]), settled: self.own[kyma] };
        let (state, wires) = (Arc::clone(&self.state), self.wires.clone());
        self.outboxes.entry(kyma).or_default().spawn(async move {
            tokio::time::sleep(delay).await;
            let taken = loop {
                match deliver(&state, kyma, about, &received).await {
                    Some(taken) => break taken,
                    None => tokio::time::sleep(RETRY).await,
                }
            };
            if let Some(polls) = deadly.filter(|_| taken) {
                wires.kill(Death::Polls(polls));
            }
        });
    }

    /// The promises since the last call.
    pub(super) fn promises(&self) -> Vec<Promise> {
        std::mem::take(&mut lock(&self.state).taken)
    }

    /// Whether all events are delivered.
    pub(super) fn are_done(&mut self) -> bool {
        self.outboxes.values_mut().all(|outbox| {
            while outbox.try_join_next().is_some() {}
            outbox.is_empty()
        })
    }

    /// Number of events, by result.
    pub(super) fn counts(&self) -> BTreeMap<&'static str, u64> {
        lock(&self.state).counts.clone()
    }
}

/// Sends an event once. Returns whether the daemon accepted it, or `None` if the agent must try again.
async fn deliver(state: &Mutex<State>, kyma: &'static str, about: About, received: &Received) -> Option<bool> {
    let way = lock(state).way.clone()?;
    let sent = Instant::now();
    let answer = tokio::select! {
        biased;
        () = way.ended.cancelled() => None,
        answer = tokio::time::timeout(ANSWER_MAX, way.door.receive(received)) => answer.ok(),
    };
    let mut state = lock(state);
    let (what, end) = match answer {
        Some(Answer::Taken) => {
            let since = if received.settled { sent } else { sent + ADMISSION_MAX };
            state.taken.push(Promise { kyma, about, since, life: way.life });
            ("event taken", Some(true))
        }
        Some(Answer::Refused(_)) => ("event refused", Some(false)),
        Some(Answer::Unavailable(_) | Answer::Elsewhere(_)) => ("event put off", None),
        None => ("event without answer", None),
    };
    *state.counts.entry(what).or_default() += 1;
    end
}

fn event(version: &str, kind: &str, name: &str) -> Event {
    Event {
        watched: Watched { namespace: "kyma-system".to_owned(), name: name.to_owned() },
        gvk: Gvk::new(version, kind),
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}
