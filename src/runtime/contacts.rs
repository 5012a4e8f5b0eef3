//! What this process knows of the path from each runtime to itself. Pure, except for the lock around all of it.
//!
//! Two directions can break. Our agent connects to the control plane at least every two minutes, so its silence means
//! that no change of its runtime reaches us. That it connects says nothing of the other direction: the API server of
//! the runtime may not reach the agent. So Tidegate probes the whole path: it sends a marked dry run to the API server,
//! which calls the agent as for any change, and the agent sends the mark back as an event. `watch_state` decides what
//! this says, and `rate` how many probes are sent in a second.
//!
//! Other agents connect only when an object changes, so nothing is known of them.

use std::{collections::HashMap, time::Duration};

use tidegate_core::name::Key;
use tidegate_process::lock::Mutex;
use tokio::time::Instant;

mod rate;
mod watch_state;

pub(crate) use watch_state::{News, WatchState};

use rate::Rate;
use watch_state::{Contact, ProbePriority, Times};

/// What is known of the agent of each runtime.
#[derive(Debug)]
pub struct Contacts {
    known: Mutex<HashMap<Key, Contact>>,
    times: Times,
}

/// A probe to send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Probe {
    /// The Kyma of the runtime.
    pub(crate) kyma: Key,
    /// Its mark, which comes back as an event.
    pub(crate) mark: u64,
}

/// What to do now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Due {
    /// The probes to send: those after a lost one, and then those that have waited longest, as far as their shares go.
    pub(crate) probes: Vec<Probe>,
    /// The Kymas whose status no longer says what is known.
    pub(crate) news: Vec<Key>,
}

// === impl Contacts ===

impl Contacts {
    /// Knows no agent. `interval` is the time between two probes of a runtime.
    pub fn new(interval: Duration) -> Contacts {
        Contacts { known: Mutex::default(), times: Times::at(interval) }
    }

    /// Notes an event of a runtime.
    pub fn event(&self, kyma: &Key, now: Instant) {
        self.with(kyma, |contact| contact.any = Some(now));
    }

    /// Notes a probe or an event of our agent.
    pub fn probe(&self, kyma: &Key, now: Instant) {
        self.with(kyma, |contact| contact.connected(self.times, now));
    }

    /// Notes that the listener refused an agent that is of this runtime, according to its certificate.
    pub fn refused(&self, kyma: &Key, now: Instant) {
        self.with(kyma, |contact| contact.refused = Some(now));
    }

    /// Notes that a mark came back. Returns whether it was lost before, so that changes may have been lost as well.
    pub(crate) fn echo(&self, kyma: &Key, mark: u64, now: Instant) -> bool {
        self.with(kyma, |contact| contact.echo(mark, self.times, now))
    }

    /// Notes that a probe could not be sent, so that it says nothing of the agent.
    pub(crate) fn unsent(&self, probe: &Probe, now: Instant) {
        self.with(&probe.kyma, |contact| contact.unsent(probe.mark, self.times, now));
    }

    /// Whether changes in a runtime reach this process, for an agent that runs since `ready` and can be probed; and
    /// what to tell users. `former` is what the status says of it. The status is about to report the state.
    pub(crate) fn report(
        &self,
        kyma: &Key,
        ready: Instant,
        former: Option<WatchState>,
        now: Instant,
    ) -> (WatchState, Option<News>) {
        self.with(kyma, |contact| {
            let state = contact.state(ready, former, self.times, now);
            (state, contact.report(Some((ready, state)), former))
        })
    }

    /// Notes that no agent runs in a runtime that can be probed.
    pub(crate) fn rest(&self, kyma: &Key) {
        if let Some(contact) = self.known.lock().get_mut(kyma) {
            contact.report(None, None);
        }
    }

    /// Whether the changes of a runtime reach this process: a mark has come back, and none has been lost since.
    pub(crate) fn is_proven(&self, kyma: &Key, now: Instant) -> bool {
        self.known.lock().get(kyma).is_some_and(|contact| contact.is_proven(self.times, now))
    }

    /// What to do in this second. `probes_max` is the greatest number of probes; without it, that depends on the number
    /// of runtimes. `number` makes marks.
    pub(crate) fn due(&self, now: Instant, probes_max: Option<usize>, number: impl Fn() -> u64) -> Due {
        let mut contacts = self.known.lock();
        let mut left = Rate::of(contacts.len(), self.times.interval, probes_max).begin();
        let mut due = Due::default();
        let mut waiting: Vec<((ProbePriority, Instant), &Key, &mut Contact)> = Vec::new();
        for (kyma, contact) in contacts.iter_mut() {
            if contact.take_news(self.times, now) {
                due.news.push(kyma.clone());
            }
            if let Some((priority, since)) = contact.probe_due(self.times, now) {
                waiting.push(((Rate::order(priority, probes_max), since), kyma, contact));
            }
        }
        waiting.sort_by(|(left, one, _), (right, other, _)| (left, one).cmp(&(right, other)));
        due.news.sort();
        for ((priority, _), kyma, contact) in waiting {
            if left.take(priority) {
                due.probes.push(Probe { kyma: kyma.clone(), mark: contact.send(now, &number) });
            }
        }
        due
    }

    /// Forgets a runtime that is gone.
    pub fn forget(&self, kyma: &Key) {
        self.known.lock().remove(kyma);
    }

    fn with<T>(&self, kyma: &Key, change: impl FnOnce(&mut Contact) -> T) -> T {
        let mut contacts = self.known.lock();
        if let Some(contact) = contacts.get_mut(kyma) {
            return change(contact);
        }
        change(contacts.entry(kyma.clone()).or_default())
    }
}

impl Default for Contacts {
    /// With the default interval of the daemon's option.
    fn default() -> Contacts {
        Contacts::new(Duration::from_secs(130))
    }
}

#[cfg(test)]
mod tests;
