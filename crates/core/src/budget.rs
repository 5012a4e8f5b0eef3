//! The time that a check may take, and the memory that definitions may take.
//!
//! What a check costs depends on patterns, CEL rules and the number of combinations of objects and definitions, so no
//! count of files or bytes bounds it. The core reads no clock: its caller says whether there is time left. Work asks
//! again and again, and ends early once there is none. Its result is then incomplete, and the caller must discard it:
//! [`Budget::was_exceeded`].

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

/// Whether there is room for the values of definitions: each takes a multiple of its text in memory. Cheap to clone;
/// clones share the answer. The default has no end. As with a [`Budget`], a result beyond it is incomplete.
#[derive(Clone, Default)]
pub struct Room(Option<Arc<LimitedRoom>>);

struct LimitedRoom {
    fits: Box<dyn Fn(u64) -> bool + Send + Sync>,
    was_exceeded: AtomicBool,
}

/// Whether there is time left. Cheap to clone; clones share the answer. The default has no end.
#[derive(Clone, Default)]
pub struct Budget(Option<Arc<Limited>>);

struct Limited {
    has_time: Box<dyn Fn() -> bool + Send + Sync>,
    was_exceeded: AtomicBool,
}

// === impl Budget ===

impl Budget {
    /// A budget that ends when `has_time` returns false for the first time.
    pub fn new(has_time: impl Fn() -> bool + Send + Sync + 'static) -> Budget {
        Budget(Some(Arc::new(Limited { has_time: Box::new(has_time), was_exceeded: AtomicBool::new(false) })))
    }

    /// Whether there is no time left. The caller then stops, and returns its incomplete result.
    pub fn is_over(&self) -> bool {
        let Some(limited) = &self.0 else { return false };
        if !limited.was_exceeded.load(Ordering::Relaxed) && !(limited.has_time)() {
            limited.was_exceeded.store(true, Ordering::Relaxed);
        }
        limited.was_exceeded.load(Ordering::Relaxed)
    }

    /// Whether any work ended early. Does not ask again: work that has ended in time is complete.
    pub fn was_exceeded(&self) -> bool {
        self.0.as_ref().is_some_and(|limited| limited.was_exceeded.load(Ordering::Relaxed))
    }
}

impl fmt::Debug for Budget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "Budget(limited)" } else { "Budget(unlimited)" })
    }
}

/// All budgets are equal: the result of a check that ends in time does not depend on it.
impl PartialEq for Budget {
    fn eq(&self, _: &Budget) -> bool {
        true
    }
}

impl Eq for Budget {}

// === impl Room ===

impl Room {
    /// Room that ends when `fits` returns false for the first time, for a number of values.
    pub fn new(fits: impl Fn(u64) -> bool + Send + Sync + 'static) -> Room {
        Room(Some(Arc::new(LimitedRoom { fits: Box::new(fits), was_exceeded: AtomicBool::new(false) })))
    }

    /// Whether there is room for so many values, together with all that were asked for before.
    pub fn has(&self, values: u64) -> bool {
        let Some(limited) = &self.0 else { return true };
        if !limited.was_exceeded.load(Ordering::Relaxed) && !(limited.fits)(values) {
            limited.was_exceeded.store(true, Ordering::Relaxed);
        }
        !limited.was_exceeded.load(Ordering::Relaxed)
    }

    /// Whether there was no room for some values.
    pub fn was_exceeded(&self) -> bool {
        self.0.as_ref().is_some_and(|limited| limited.was_exceeded.load(Ordering::Relaxed))
    }
}

impl fmt::Debug for Room {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "Room(limited)" } else { "Room(unlimited)" })
    }
}

/// All are equal: the result of a check that finds room does not depend on it.
impl PartialEq for Room {
    fn eq(&self, _: &Room) -> bool {
        true
    }
}

impl Eq for Room {}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use super::*;

    #[test]
    fn a_budget_that_is_over_stays_over_and_is_not_asked_again() {
        let asked = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&asked);
        let budget = Budget::new(move || counter.fetch_add(1, Ordering::Relaxed) != 2);
        assert!(!budget.is_over() && !budget.clone().is_over() && !budget.was_exceeded());
        assert!(budget.is_over() && budget.was_exceeded() && budget.clone().is_over());
        assert_eq!(asked.load(Ordering::Relaxed), 3);
        assert!(!Budget::default().is_over() && !Budget::default().was_exceeded());
    }
}
