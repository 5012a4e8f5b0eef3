//! Which Events are worth writing: a value, told the time.

use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

use tokio::time::Instant;

use super::Event;

/// What was said lately, and about what.
#[derive(Default)]
pub(super) struct Limiter {
    objects: BTreeMap<String, Said>,
    /// The objects in the order in which they were first heard of.
    order: VecDeque<String>,
}

/// What was said about one object.
struct Said {
    /// The last note for each reason, and when.
    notes: BTreeMap<&'static str, (String, Instant)>,
    /// Events that may follow at once.
    allowance: f64,
    since: Instant,
}

/// Whether an Event is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Admission {
    Admitted,
    /// The same was said not long ago.
    SaidBefore,
    /// This object says too much.
    TooMany,
}

/// The same sentence is repeated after this.
const REPEAT: Duration = Duration::from_secs(3600);
/// Events about one object that may come at once; as client-go.
const BURST: f64 = 25.0;
/// One more every so often; as client-go.
const REFILL: Duration = Duration::from_secs(300);
/// Objects that are remembered. What is forgotten may repeat itself early, and that is all.
const OBJECTS_MAX: usize = 20_000;

// === impl Limiter ===

impl Limiter {
    pub(super) fn admit(&mut self, event: &Event, now: Instant) -> Admission {
        let said = self.object(event, now);
        if let Some((note, since)) = said.notes.get(event.reason)
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
        said.notes.insert(event.reason, (event.note.clone(), now));
        Admission::Admitted
    }

    fn object(&mut self, event: &Event, now: Instant) -> &mut Said {
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
        self.objects.entry(name).or_insert_with(|| Said { notes: BTreeMap::new(), allowance: BURST, since: now })
    }
}
