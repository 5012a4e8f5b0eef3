//! Those who report what changes in runtimes: an agent each, without sockets between it and the daemon.
//!
//! An agent sends an event until somebody takes it or refuses it for good, late or twice as the seed has it. What it has
//! not delivered is lost when it starts anew; ours then has everything looked at. That of the Runtime Watcher says nothing
//! then, and sends while a change is still being admitted.

use std::{
    collections::BTreeMap,
    sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use rcgen::{CertificateParams, DnType, KeyPair};
use tidegate::daemon::Door;
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
    /// What each has yet to deliver.
    outboxes: BTreeMap<&'static str, JoinSet<()>>,
    /// Whose agent is ours.
    own: BTreeMap<&'static str, bool>,
    wires: Wires,
}

#[derive(Default)]
struct State {
    way: Option<Way>,
    taken: Vec<Promise>,
    /// What became of events.
    counts: BTreeMap<&'static str, u64>,
}

/// Where events go, for as long as the daemon of one life is there.
#[derive(Clone)]
struct Way {
    door: Door,
    life: u32,
    ended: CancellationToken,
}

/// What an event is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum About {
    /// The Kyma in the runtime.
    Kyma,
    /// Anything else.
    Objects,
}

/// An event that was taken: a look is owed that begins later than this.
#[derive(Clone, Copy, Debug)]
pub(super) struct Promise {
    pub(super) kyma: &'static str,
    pub(super) about: About,
    pub(super) since: Instant,
    /// The daemon that gave it.
    pub(super) life: u32,
}

/// How long an agent waits for an answer.
const ANSWER_MAX: Duration = Duration::from_secs(10);
/// How long it waits before it tries again.
const RETRY: Duration = Duration::from_secs(7);
/// A change may be stored so long after it was told of by an agent that does not wait for it.
const ADMISSION_MAX: Duration = Duration::from_secs(5);

/// What certificates of runtimes say.
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

    /// From now on this daemon is asked.
    pub(super) fn lead_to(&self, door: Door, life: u32) {
        let former = lock(&self.state).way.replace(Way { door, life, ended: CancellationToken::new() });
        former.inspect(|way| way.ended.cancel());
    }

    /// The daemon is no more, and whoever waits for its answer knows at once.
    pub(super) fn lead_nowhere(&self) {
        let former = lock(&self.state).way.take();
        former.inspect(|way| way.ended.cancel());
    }

    /// An object changes, or is about to. Once the daemon has taken the event it dies, if that is `deadly`: after so many
    /// polls of its tasks.
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

    /// Whether the agent of a runtime tells of a change only once it is stored.
    pub(super) fn waits(&self, kyma: &str) -> bool {
        self.own[kyma]
    }

    /// An agent starts anew.
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

    /// The promises that were given since the last time.
    pub(super) fn promises(&self) -> Vec<Promise> {
        std::mem::take(&mut lock(&self.state).taken)
    }

    /// Whether anything is yet to be delivered.
    pub(super) fn are_done(&mut self) -> bool {
        self.outboxes.values_mut().all(|outbox| {
            while outbox.try_join_next().is_some() {}
            outbox.is_empty()
        })
    }

    /// What became of events.
    pub(super) fn counts(&self) -> BTreeMap<&'static str, u64> {
        lock(&self.state).counts.clone()
    }
}

/// Sends an event once. Returns whether it was taken, if that was the end of it.
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
