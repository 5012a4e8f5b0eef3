//! Which Events are worth writing: a value that gets the time as an argument.

use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

use tokio::time::Instant;

use super::Event;

/// The recent Events of each object.
#[derive(Default)]
pub(super) struct Limiter {
    objects: BTreeMap<String, RecentEvents>,
    /// The objects in the order of their first Events.
    order: VecDeque<String>,
}

/// The recent Events of one object.
#[derive(Default)]
struct RecentEvents {
    reasons: BTreeMap<&'static str, RecentReason>,
}

/// The recent Events of one object with one reason. Each reason has an allowance of its own, so what comes often, for
/// example `Applied`, takes nothing from what is rare.
struct RecentReason {
    /// The last note, and its time.
    last: Option<(String, Instant)>,
    /// Events that are admitted before the next refill.
    allowance: f64,
    since: Instant,
}

/// Whether an Event is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Admission {
    Admitted,
    /// The same note was admitted recently.
    SaidBefore,
    /// This object has too many Events with this reason.
    TooMany,
}

/// The same note is repeated after this time.
const REPEAT: Duration = Duration::from_secs(3600);
/// Events about one object with one reason that may come at once; as many as client-go allows for one object.
const BURST: f64 = 25.0;
/// Time until one more Event is admitted; the same as in client-go.
const REFILL: Duration = Duration::from_secs(300);
/// Objects that are remembered. A forgotten object may repeat an Event too early, which does no harm.
const OBJECTS_MAX: usize = 20_000;

// === impl Limiter ===

impl Limiter {
    pub(super) fn admit(&mut self, event: &Event, now: Instant) -> Admission {
        let said = self.object(event).reasons.entry(event.reason).or_insert_with(|| RecentReason {
            last: None,
            allowance: BURST,
            since: now,
        });
        if let Some((note, since)) = &said.last
            && *note == event.note
            && now.saturating_duration_since(*since) < REPEAT
        {
            return Admission::SaidBefore;
        }
        let refilled = now.saturating_duration_since(said.since).as_secs_f64() / REFILL.as_secs_f64();
        said.allowance = (said.allowance + refilled).min(BURST);
        said.since = now;
        if said.allowance < 1.0 {
            return Admission::TooMany;
        }
        said.allowance -= 1.0;
        said.last = Some((event.note.clone(), now));
        Admission::Admitted
    }

    fn object(&mut self, event: &Event) -> &mut RecentEvents {
        let regarding = &event.regarding;
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        let name = format!("{}/{}/{}", text(&regarding.kind), text(&regarding.namespace), text(&regarding.name));
        if !self.objects.contains_key(&name) {
            self.order.push_back(name.clone());
            if OBJECTS_MAX < self.order.len()
                && let Some(oldest) = self.order.pop_front()
            {
                self.objects.remove(&oldest);
            }
        }
        self.objects.entry(name).or_default()
    }
}
