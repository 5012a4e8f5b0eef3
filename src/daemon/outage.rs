//! Outages of the control plane: while it cannot be reached, answers only with errors of its own, or denies a request
//! that it allowed before.
//!
//! All passes and watches fail for the same reason then. So this task says it for all of them, once and then once a
//! minute; asks often whether it is over, with one request; and then retries everything that waits, instead of leaving
//! each to its own back-off, which may have become minutes.

use std::{sync::Arc, time::Duration};

use tidegate_cluster::{Kind, Leadership};
use tidegate_core::{
    api::{GitSource, names::KCP_NAMESPACE},
    name::Key,
};
use tidegate_process::retry::Class;
use tokio::time::Instant;

use crate::controller::Context;

/// How often to look. What waits is retried within two of them after the control plane is back.
const TICK: Duration = Duration::from_secs(1);
/// How often to ask a control plane that cannot be reached.
const PROBE: Duration = Duration::from_secs(2);
/// A leader whose Lease was not renewed for so long asks whether the control plane answers at all. Several renewals are
/// due in this time.
const SILENCE: Duration = Duration::from_secs(12);
/// How long that question may take. A control plane that is slow answers such a read sooner.
const ANSWER_MAX: Duration = Duration::from_secs(5);
/// How often the log repeats that something still is so.
const REPEAT: Duration = Duration::from_secs(60);

/// Something that the log says once, and then once a minute.
#[derive(Debug, Default)]
pub(super) struct Repeated {
    said: Option<(String, Instant)>,
}

// === impl Repeated ===

impl Repeated {
    /// Whether to say this now.
    pub(super) fn admits(&mut self, what: &str, now: Instant) -> bool {
        let is_said =
            self.said.as_ref().is_some_and(|(said, at)| said == what && now.saturating_duration_since(*at) < REPEAT);
        if !is_said {
            self.said = Some((what.to_owned(), now));
        }
        !is_said
    }

    /// It is no longer so. Returns whether it was said.
    pub(super) fn ends(&mut self) -> bool {
        self.said.take().is_some()
    }
}

/// Follows the connection to the control plane. Never ends.
pub(super) async fn follow(context: Arc<Context>, leadership: Leadership) {
    let (mut unreachable, mut denied) = (Follower::default(), Follower::default());
    loop {
        tokio::time::sleep(TICK).await;
        if let Some(since) = silence(&leadership, Instant::now())
            && context.kcp.outage().is_none()
            && tokio::time::timeout(ANSWER_MAX, ask(&context)).await.is_err()
        {
            context.kcp.silent_since(since);
        }
        let now = Instant::now();
        match context.kcp.outage() {
            Some(outage) => {
                let (cause, server) = (outage.cause.to_string(), context.kcp.server());
                let seconds = now.saturating_duration_since(outage.since).as_secs();
                // Causes and permissions alternate, and another one is no other outage.
                if unreachable.said.admits("", now) {
                    tracing::warn!(%server, cause, seconds, "the control plane cannot be reached; nothing is reconciled");
                }
                if unreachable.asks(now) {
                    let _ = tokio::time::timeout(ANSWER_MAX, ask(&context)).await;
                }
                continue;
            }
            None if unreachable.said.ends() => {
                tracing::info!("the control plane answers again");
                context.queue.hurry(&[Class::Transient]);
            }
            None => {}
        }
        match context.kcp.denial() {
            Some(denial) => {
                if denied.said.admits("", now) {
                    let permission = denial.to_string();
                    tracing::warn!(permission, "the control plane denies a permission; what needs it waits");
                }
                if denied.asks(now) && is_any_granted(&context).await {
                    denied.answered();
                }
            }
            None => denied.ends(now),
        }
    }
}

/// Asks whether the control plane grants the permissions now that were missing, and retries what waits for one that it
/// grants. Returns whether there is such a permission.
pub(super) async fn is_any_granted(context: &Context) -> bool {
    let mut is_any = false;
    for denial in context.kcp.denials() {
        if context.kcp.is_granted(&denial).await.is_ok_and(|granted| granted) {
            tracing::info!(permission = %denial, "the control plane grants the permission");
            is_any = true;
        }
    }
    if is_any {
        context.queue.hurry(&[Class::Stalled, Class::Transient]);
    }
    is_any
}

/// Since when the control plane has not renewed the Lease of this leader, if that is longer than usual.
fn silence(leadership: &Leadership, now: Instant) -> Option<Instant> {
    let renewed = leadership.renewed().filter(|_| leadership.is_leading())?;
    (SILENCE <= now.saturating_duration_since(renewed)).then_some(renewed)
}

/// Reads an object that need not exist, in a namespace whose GitSources this process watches. Whether they can be read
/// shows that the control plane has its storage. An answer ends the outage; what it says does not matter.
async fn ask(context: &Context) {
    let namespace = context.namespaces.first().map_or(KCP_NAMESPACE, String::as_str);
    context.kcp.probe_now();
    let _ = context.kcp.get_metadata(&Kind::namespaced::<GitSource>(), &Key::new(namespace, "any")).await;
}

/// What this task knows of one kind of outage.
struct Follower {
    said: Repeated,
    asked: Option<Instant>,
    /// Until it asks again.
    pause: Duration,
}

impl Default for Follower {
    fn default() -> Follower {
        Follower { said: Repeated::default(), asked: None, pause: PROBE }
    }
}

impl Follower {
    /// Whether to ask now if it is over.
    fn asks(&mut self, now: Instant) -> bool {
        let is_due = self.asked.is_none_or(|asked| self.pause <= now.saturating_duration_since(asked));
        if is_due {
            self.asked = Some(now);
        }
        is_due
    }

    /// It was over when this task asked last. If it is not, the next question waits longer.
    fn answered(&mut self) {
        self.pause = (self.pause * 2).min(REPEAT);
    }

    /// It is over.
    fn ends(&mut self, now: Instant) {
        self.said.ends();
        if self.asked.is_some_and(|asked| REPEAT <= now.saturating_duration_since(asked)) {
            *self = Follower::default();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stays_so_is_said_once_and_then_once_a_minute() {
        let (mut said, start) = (Repeated::default(), Instant::now());
        let mut admits = |what: &str, seconds| said.admits(what, start + Duration::from_secs(seconds));
        let expected = [(0, true), (1, false), (59, false), (60, true), (61, false), (119, false), (120, true)];
        for (seconds, is_said) in expected {
            assert_eq!(admits("refused", seconds), is_said, "{seconds}");
        }
        assert!(admits("timeout", 121), "another cause is news");
        assert!(said.ends() && !said.ends());
    }

    #[test]
    fn whether_an_outage_is_over_is_asked_every_two_seconds() {
        let (mut follower, start) = (Follower::default(), Instant::now());
        let asked = (0..6).filter(|second| follower.asks(start + Duration::from_secs(*second)));
        assert_eq!(asked.collect::<Vec<u64>>(), [0, 2, 4]);
        follower.answered();
        let asked = (6..14).filter(|second| follower.asks(start + Duration::from_secs(*second)));
        assert_eq!(asked.collect::<Vec<u64>>(), [8, 12], "it was not over");
        follower.ends(start + Duration::from_secs(90));
        assert!(follower.asks(start + Duration::from_secs(90)) && follower.asks(start + Duration::from_secs(92)));
    }
}
