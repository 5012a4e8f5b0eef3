//! Decides whether changes in a runtime reach this process, and where they stop. Pure.

use std::time::Duration;

use tidegate_core::conditions::watch as reason;
use tokio::time::Instant;

/// Whether changes in a runtime reach this process, and where they stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WatchState {
    /// The agent runs and has not connected yet.
    Awaited,
    /// The agent connects, and no probe has come back yet.
    Unproven,
    /// Probes come back.
    Heard,
    /// The agent does not connect.
    Silent,
    /// The agent connects, and the API server of the runtime does not reach it.
    Deaf,
    /// The agent connects, and the listener refuses its certificate.
    Refused,
}

/// What is known of one agent.
#[derive(Debug, Default)]
pub(super) struct Contact {
    /// When it last connected, for an event or a probe of its own.
    pub(super) any: Option<Instant>,
    /// Whether it has ever connected as our agent does.
    is_ours: bool,
    /// When the listener last refused it.
    pub(super) refused: Option<Instant>,
    /// When a mark last came back.
    echoed: Option<Instant>,
    /// The mark that has not come back yet.
    sent: Option<Sent>,
    /// When a probe last could not be sent.
    unsent: Option<Instant>,
    /// Since when an agent runs that can be probed, and the state that the status reports.
    reported: Option<(Instant, WatchState)>,
    /// The state that a pass is to report next, once the queue has it.
    queued: Option<WatchState>,
    /// The last broken state that was reported to users, until probes come back again.
    alarm: Option<WatchState>,
}

/// A change of the state that the log and an Event report to users.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum News {
    /// It is broken, or broken in another place.
    Broken,
    /// Probes come back again.
    Restored,
}

/// Which probes are sent first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum ProbePriority {
    /// A mark was lost, and whether the agent is deaf is not decided yet.
    Doubt,
    /// It is the usual time of its runtime: no mark was lost.
    Usual,
    /// The agent is deaf, and may be so no more.
    Deaf,
}

/// A mark that has not come back.
#[derive(Clone, Copy, Debug)]
struct Sent {
    mark: u64,
    first: Instant,
    last: Instant,
    /// How often it was sent.
    times: u32,
}

/// When something counts as lost. All of it follows from the interval of probes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Times {
    /// Between two probes of a runtime.
    pub(super) interval: Duration,
    /// An agent that does not connect for this long is silent.
    silent_after: Duration,
    /// A mark that does not come back for this long is sent again.
    answer: Duration,
    /// A mark that was lost too often is sent again after this time.
    deaf_retry: Duration,
}

/// After a mark was sent this often without an answer, the API server does not reach the agent.
pub(super) const TRIES: u32 = 3;
/// A mark usually comes back within a second.
const ANSWER_MIN: Duration = Duration::from_secs(2);
/// How often a runtime is probed whose API server does not reach its agent, unless probes are more frequent anyway.
const DEAF_RETRY: Duration = Duration::from_secs(30);

// === impl Times ===

impl Times {
    /// At the default interval of 130 s, an agent is silent after 162 s, and deaf 24 s after a probe. Our agent
    /// connects every two minutes, and every 20 seconds after a failure.
    pub(super) fn at(interval: Duration) -> Times {
        Times {
            interval,
            silent_after: interval + interval / 4,
            answer: (interval / 16).max(ANSWER_MIN),
            deaf_retry: DEAF_RETRY.min(interval),
        }
    }
}

// === impl WatchState ===

impl WatchState {
    /// The reason of the condition.
    pub(crate) fn reason(self) -> &'static str {
        match self {
            WatchState::Awaited | WatchState::Unproven => reason::AWAITED,
            WatchState::Heard => reason::HEARD,
            WatchState::Silent => reason::SILENT,
            WatchState::Deaf => reason::DEAF,
            WatchState::Refused => reason::REFUSED,
        }
    }

    /// The state that a condition with this reason reports, if it is about one that has been decided.
    pub(crate) fn of_reason(reason: &str) -> Option<WatchState> {
        [WatchState::Heard, WatchState::Silent, WatchState::Deaf, WatchState::Refused]
            .into_iter()
            .find(|state| state.reason() == reason)
    }

    /// Whether a user should act.
    pub(crate) fn is_broken(self) -> bool {
        match self {
            WatchState::Silent | WatchState::Deaf | WatchState::Refused => true,
            WatchState::Awaited | WatchState::Unproven | WatchState::Heard => false,
        }
    }

    /// The message of the condition.
    pub(crate) fn message(self) -> &'static str {
        match self {
            WatchState::Awaited => "the agent runs but has not connected yet",
            WatchState::Unproven => {
                "the agent runs and connects, but no probe through the runtime's API server has come back yet; until \
                 then, each resync checks the runtime"
            }
            WatchState::Heard => "the agent runs and reports changes in the runtime",
            WatchState::Silent => {
                "the agent runs but does not connect: check its connection to the control plane (address, \
                 certificates, network policies); until it connects, each resync checks the runtime"
            }
            WatchState::Deaf => {
                "the agent connects, but the runtime's API server does not reach it: check the Service \
                 kyma-system/skr-webhook, its port, network policies and the CA in the webhook configuration; until a \
                 probe comes back, each resync checks the runtime"
            }
            WatchState::Refused => {
                "the agent connects, but the listener refuses its certificate: check that it names the Kyma's runtime \
                 id and domain, and that no other Kyma has this id; until it is accepted, each resync checks the \
                 runtime"
            }
        }
    }
}

// === impl Contact ===

impl Contact {
    /// Our agent has connected. After a silence, a former mark proves nothing.
    pub(super) fn connected(&mut self, times: Times, now: Instant) {
        if !self.is_alive(times, now) {
            (self.echoed, self.sent) = (None, None);
        }
        (self.any, self.is_ours) = (Some(now), true);
    }

    /// A pass reports this state, for an agent that runs since this moment. `former` is what the status said before.
    pub(super) fn report(
        &mut self,
        reported: Option<(Instant, WatchState)>,
        former: Option<WatchState>,
    ) -> Option<News> {
        (self.reported, self.queued) = (reported, None);
        let (_, state) = reported?;
        if state.is_broken() {
            let told = self.alarm.replace(state).or(former);
            return (told != Some(state)).then_some(News::Broken);
        }
        let was_broken = self.alarm.or(former).is_some_and(WatchState::is_broken);
        match state {
            WatchState::Heard => {
                self.alarm = None;
                was_broken.then_some(News::Restored)
            }
            // It connects again, but no probe has come back yet.
            _ => {
                self.alarm = self.alarm.or(former.filter(|_| was_broken));
                None
            }
        }
    }

    /// A mark has come back. Returns whether it was lost before, so that changes may have been lost as well.
    pub(super) fn echo(&mut self, mark: u64, times: Times, now: Instant) -> bool {
        self.connected(times, now);
        let Some(sent) = self.sent.filter(|sent| sent.mark == mark) else { return false };
        (self.sent, self.echoed, self.unsent) = (None, Some(now), None);
        1 < sent.times
    }

    /// A mark could not be sent. What marks that were lost before have proven stays.
    pub(super) fn unsent(&mut self, mark: u64, times: Times, now: Instant) {
        if self.sent.is_some_and(|sent| sent.mark == mark) && !self.has_lost(times, now) {
            (self.sent, self.unsent) = (None, Some(now));
        }
    }

    /// The priority of a probe, and when it became due, if it is now. Only an agent that runs and connects is probed.
    pub(super) fn probe_due(&self, times: Times, now: Instant) -> Option<(ProbePriority, Instant)> {
        let (ready, _) = self.reported?;
        if !self.is_alive(times, now) || self.is_refused(times, now) {
            return None;
        }
        let (priority, since) = match self.sent {
            Some(sent) if sent.times < TRIES => (ProbePriority::Doubt, sent.last + times.answer),
            Some(sent) => (ProbePriority::Deaf, sent.last + times.deaf_retry),
            None => (ProbePriority::Usual, self.echoed.max(self.unsent).map_or(ready, |last| last + times.interval)),
        };
        (since <= now).then_some((priority, since))
    }

    /// The mark to send now. A mark that has not come back is sent again.
    pub(super) fn send(&mut self, now: Instant, number: &impl Fn() -> u64) -> u64 {
        let sent = match self.sent {
            Some(sent) => Sent { last: now, times: sent.times.saturating_add(1), ..sent },
            None => Sent { mark: number(), first: now, last: now, times: 1 },
        };
        self.sent = Some(sent);
        sent.mark
    }

    /// The state, for an agent that runs since `ready`.
    pub(super) fn state(&self, ready: Instant, former: Option<WatchState>, times: Times, now: Instant) -> WatchState {
        if self.is_refused(times, now) {
            return WatchState::Refused;
        }
        if self.is_alive(times, now) {
            match (self.has_lost(times, now), self.is_late(times, now)) {
                (true, false) => return WatchState::Deaf,
                // It does not connect either, so it will be silent soon. Two reasons in a row would mislead a user.
                (true, true) => return former.unwrap_or(WatchState::Unproven),
                (false, _) => {}
            }
            return match (self.echoed, former) {
                (Some(_), _) | (None, Some(WatchState::Heard)) => WatchState::Heard,
                // A new process has sent no mark yet.
                (None, Some(WatchState::Deaf)) => WatchState::Deaf,
                (None, _) => WatchState::Unproven,
            };
        }
        if times.silent_after <= now.saturating_duration_since(ready) {
            return WatchState::Silent;
        }
        // A new process has no connections yet, so it relies on the last status.
        former.unwrap_or(WatchState::Awaited)
    }

    /// Whether the status no longer says what is known, and no pass has been asked for yet that corrects it.
    pub(super) fn take_news(&mut self, times: Times, now: Instant) -> bool {
        let Some((ready, reported)) = self.reported else { return false };
        let state = self.state(ready, Some(reported), times, now);
        let is_news = state != self.queued.unwrap_or(reported);
        if is_news {
            self.queued = Some(state);
        }
        is_news
    }

    /// Whether a mark has come back, and nothing has been lost since.
    pub(super) fn is_proven(&self, times: Times, now: Instant) -> bool {
        self.echoed.is_some() && self.is_alive(times, now) && !self.has_lost(times, now) && !self.is_refused(times, now)
    }

    fn is_alive(&self, times: Times, now: Instant) -> bool {
        self.is_ours && self.any.is_some_and(|any| now.saturating_duration_since(any) < times.silent_after)
    }

    /// Whether the listener has refused the agent since it was last accepted.
    fn is_refused(&self, times: Times, now: Instant) -> bool {
        self.refused.is_some_and(|refused| {
            now.saturating_duration_since(refused) < times.silent_after && self.any.is_none_or(|any| any <= refused)
        })
    }

    /// Whether the agent has not connected for as long as no healthy one does.
    fn is_late(&self, times: Times, now: Instant) -> bool {
        self.any.is_none_or(|any| times.interval <= now.saturating_duration_since(any))
    }

    /// Whether a mark was lost too often.
    fn has_lost(&self, times: Times, now: Instant) -> bool {
        self.sent.is_some_and(|sent| {
            TRIES <= sent.times && times.answer * TRIES <= now.saturating_duration_since(sent.first)
        })
    }
}
