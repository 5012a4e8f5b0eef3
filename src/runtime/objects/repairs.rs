//! Objects that another client in the runtime changes or deletes again and again, and when each is repaired next. Pure.
//!
//! The first repairs of an object come at once: most drift is a user's edit. An object that is undone more often than
//! that rests before each further repair, longer each time, so that two controllers do not write against each other for
//! ever. What is undone no more is forgotten.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::{self, Display, Formatter},
    time::Duration,
};

use tidegate_core::object::ObjectId;
use tidegate_process::retry;
use tokio::time::Instant;

use super::state::{Applied, LiveObjects, Seen};

/// The objects of one owner that were undone lately.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Repairs(BTreeMap<ObjectId, Repair>);

/// An object that was undone.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Repair {
    /// How often in a row.
    count: u32,
    /// What was done to it the last time.
    undoing: Undoing,
    /// When that was found.
    since: Instant,
    /// When it may be repaired.
    until: Instant,
    /// The longest time that a repair waits.
    pause: Duration,
}

/// What another client did to an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Undoing {
    /// It deleted it. Nothing in the runtime says who did.
    Deleted,
    /// It changed it. Contains its field manager, if the object names one.
    Changed(Option<Box<str>>),
}

/// One object that was undone, for logs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Undone {
    /// The object.
    pub(crate) id: ObjectId,
    /// What was done to it.
    pub(crate) undoing: Undoing,
    /// How often in a row.
    pub(crate) count: u32,
    /// How long its repair waits; zero if it is repaired at once.
    pub(crate) rest: Duration,
}

/// How often in a row an object is repaired at once.
const AT_ONCE: u32 = 3;
/// How long the first repair waits that does not come at once. Each further one waits twice as long.
const REST_MIN: Duration = Duration::from_secs(5);
/// An object that is as desired for so long is no longer undone.
const CALM: Duration = Duration::from_secs(600);

// === impl Repairs ===

impl Repairs {
    /// Notes which objects were as desired before a check, `before`, and are not any more. Forgets what has been as
    /// desired for a while. Returns what was undone. A repair waits for `pause` at most.
    pub(crate) fn note(
        &mut self,
        before: &[Seen],
        applied: &Applied,
        live: &LiveObjects,
        pause: Duration,
        now: Instant,
    ) -> Vec<Undone> {
        self.forget(now);
        let mut undone = Vec::new();
        for ((object, before), seen) in applied.objects.objects.iter().zip(before).zip(&applied.seen) {
            if *before == Seen::Missing || *seen != Seen::Missing {
                continue;
            }
            let undoing = match live.get(&object.id).filter(|live| !live.deleting) {
                None => Undoing::Deleted,
                Some(live) => Undoing::Changed(live.last_other.clone()),
            };
            let count = self.0.get(&object.id).map_or(1, |repair| repair.count.saturating_add(1));
            let rest = rest(count, pause);
            let repair = Repair { count, undoing: undoing.clone(), since: now, until: now + rest, pause };
            self.0.insert(object.id.clone(), repair);
            undone.push(Undone { id: object.id.clone(), undoing, count, rest });
        }
        undone
    }

    /// Forgets what is no longer desired, and what has been as desired for a while.
    pub(crate) fn keep(&mut self, applied: &Applied, now: Instant) {
        if self.0.is_empty() {
            return;
        }
        let desired: BTreeSet<&ObjectId> = applied.objects.objects.iter().map(|object| &object.id).collect();
        self.0.retain(|id, _| desired.contains(id));
        self.forget(now);
    }

    fn forget(&mut self, now: Instant) {
        self.0.retain(|_, repair| now < repair.calm_at());
    }

    /// Whether the repair of an object waits.
    pub(crate) fn is_resting(&self, id: &ObjectId, now: Instant) -> bool {
        self.0.get(id).is_some_and(|repair| now < repair.until)
    }

    /// The objects whose repair waits, each with a sentence.
    pub(crate) fn resting(&self, now: Instant) -> impl Iterator<Item = (&ObjectId, String)> {
        self.0.iter().filter(move |(_, repair)| now < repair.until).map(|(id, repair)| (id, repair.sentence(id)))
    }

    /// One sentence about the objects that are undone again and again; none if there are none.
    pub(crate) fn sentence(&self) -> Option<String> {
        let mut contested = self.0.iter().filter(|(_, repair)| AT_ONCE < repair.count);
        let (id, repair) = contested.next()?;
        let more = contested.count();
        let more = if more > 0 { format!(" (and {more} more)") } else { String::new() };
        Some(format!("{}{more}", repair.sentence(id)))
    }

    /// When an object may be repaired, or is known to be undone no more; none if none is undone again and again.
    pub(crate) fn again(&self, now: Instant) -> Option<Duration> {
        let contested = self.0.values().filter(|repair| AT_ONCE < repair.count);
        let next = contested.map(|repair| if now < repair.until { repair.until } else { repair.calm_at() });
        next.map(|next| next.saturating_duration_since(now)).min()
    }
}

/// How long the repair of an object waits that was undone `count` times in a row: for `pause` at most.
fn rest(count: u32, pause: Duration) -> Duration {
    match count.checked_sub(AT_ONCE) {
        None | Some(0) => Duration::ZERO,
        Some(attempt) => retry::backoff(REST_MIN, pause, attempt),
    }
}

// === impl Repair ===

impl Repair {
    /// When the object counts as undone no more.
    fn calm_at(&self) -> Instant {
        self.until + CALM
    }

    /// The same text as long as the same client does the same, so that a status is not written for each repair.
    fn sentence(&self, id: &ObjectId) -> String {
        let often = match self.pause.as_secs() {
            0 => "Tidegate repairs it each time".to_owned(),
            pause => format!("Tidegate repairs it every {pause} seconds at most"),
        };
        let undoing = &self.undoing;
        format!(
            "{id} is {undoing} in the runtime again and again; {often}; stop what does it, or remove the object from its \
             module"
        )
    }
}

// === impl Undoing ===

impl Display for Undoing {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Undoing::Deleted => f.write_str("deleted"),
            Undoing::Changed(None) => f.write_str("changed"),
            Undoing::Changed(Some(manager)) => write!(f, "changed by field manager {manager}"),
        }
    }
}

#[cfg(test)]
mod tests;
