//! Which runtimes are in the journal, and why: a value that gets the time as an argument.

use std::collections::{BTreeMap, BTreeSet};

use tidegate_core::name::Key;
use tokio::{sync::oneshot, time::Instant};

/// The journal as this process knows it.
#[derive(Debug, Default)]
pub(super) struct State {
    entries: BTreeMap<Key, Entry>,
    /// Keys that are in the journal and no longer needed.
    leaving: BTreeSet<String>,
    /// Whether the key for all runtimes is in the journal.
    all_stored: bool,
    /// Whether this process has read the journal of the former process.
    open: bool,
}

#[derive(Debug)]
struct Entry {
    place: Recorded,
    /// A comparison that began before this does not cover the event.
    told: Instant,
    /// Whether a comparison that began later has succeeded.
    looked: bool,
    waiting: Vec<oneshot::Sender<bool>>,
}

/// Where the journal records that a runtime must be compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Recorded {
    Nowhere,
    /// The write is under way.
    Under,
    /// In a key of its own.
    Own,
    /// In the key for all runtimes.
    All,
}

/// The next write.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Batch {
    pub(super) add: BTreeSet<Key>,
    pub(super) add_all: bool,
    pub(super) remove: BTreeSet<String>,
}

/// Runtimes with a key of their own; for more runtimes, one key represents all. A ConfigMap has room for twenty times
/// as many.
pub(super) const OWN_MAX: usize = 1000;
/// The key for all runtimes. It cannot be a runtime's key, because those have an underscore.
pub(super) const ALL: &str = "all";
/// Longest key of a ConfigMap.
const KEY_LEN_MAX: usize = 253;

/// The key of a runtime; neither namespace nor name can hold an underscore.
pub(super) fn key_of(runtime: &Key) -> String {
    format!("{}_{}", runtime.namespace(), runtime.name())
}

/// The runtime of a key.
pub(super) fn runtime_of(key: &str) -> Option<Key> {
    key.split_once('_').map(|(namespace, name)| Key::new(namespace, name))
}

// === impl State ===

impl State {
    pub(super) fn is_open(&self) -> bool {
        self.open
    }

    /// Takes over the journal of the former process. `all` are the existing runtimes, which the key for all runtimes
    /// represents.
    pub(super) fn open(&mut self, keys: &[String], all: &[Key], now: Instant) -> Vec<Key> {
        self.open = true;
        self.all_stored = keys.iter().any(|key| key == ALL);
        let mut left = BTreeSet::new();
        for key in keys.iter().filter(|key| *key != ALL) {
            match runtime_of(key) {
                Some(runtime) => {
                    self.entries.insert(runtime.clone(), Entry::stored(Recorded::Own, now));
                    left.insert(runtime);
                }
                None => {
                    self.leaving.insert(key.clone());
                }
            }
        }
        for runtime in all.iter().filter(|_| self.all_stored) {
            if left.insert(runtime.clone()) {
                self.entries.insert(runtime.clone(), Entry::stored(Recorded::All, now));
            }
        }
        left.into_iter().collect()
    }

    /// Records that a pass that begins at `told` or later must compare the runtime. Returns a receiver to wait for, if
    /// this is not written yet.
    pub(super) fn tell(&mut self, runtime: &Key, told: Instant) -> Option<oneshot::Receiver<bool>> {
        let entry = self.entries.entry(runtime.clone()).or_insert_with(|| Entry {
            place: Recorded::Nowhere,
            told,
            looked: false,
            waiting: Vec::new(),
        });
        entry.told = entry.told.max(told);
        entry.looked = false;
        match entry.place {
            Recorded::Own | Recorded::All => None,
            Recorded::Nowhere | Recorded::Under => {
                let (sender, receiver) = oneshot::channel();
                entry.waiting.push(sender);
                Some(receiver)
            }
        }
    }

    /// Records a successful pass over a runtime. `looks` says whether it compared all objects, `ends` whether nothing
    /// was left to do. Returns whether there is something to write now.
    pub(super) fn passed(&mut self, runtime: &Key, began: Instant, looks: bool, ends: bool) -> bool {
        let Some(entry) = self.entries.get_mut(runtime) else { return false };
        entry.looked = entry.looked || (looks && entry.told <= began);
        if !(entry.looked && ends) {
            return false;
        }
        match entry.place {
            Recorded::Own => {
                self.entries.remove(runtime);
                self.leaving.insert(key_of(runtime));
                true
            }
            Recorded::All => {
                self.entries.remove(runtime);
                let last = !self.entries.values().any(|entry| entry.place == Recorded::All);
                if last && self.all_stored {
                    self.all_stored = false;
                    self.leaving.insert(ALL.to_owned());
                }
                last
            }
            // First the senders that wait for the write get their answer.
            Recorded::Nowhere | Recorded::Under => false,
        }
    }

    /// The next write, if there is one. Pass its outcome to [`State::written`] before the next call.
    pub(super) fn batch(&mut self) -> Option<Batch> {
        let own = self.entries.values().filter(|entry| matches!(entry.place, Recorded::Own | Recorded::Under)).count();
        let mut batch = Batch { remove: std::mem::take(&mut self.leaving), ..Batch::default() };
        for (runtime, entry) in &mut self.entries {
            if entry.place != Recorded::Nowhere {
                continue;
            }
            entry.place = Recorded::Under;
            let key = key_of(runtime);
            if own + batch.add.len() < OWN_MAX && key.len() <= KEY_LEN_MAX {
                // A key that was to be removed stays.
                batch.remove.remove(&key);
                batch.add.insert(runtime.clone());
            } else if self.all_stored {
                entry.settle(Recorded::All);
            } else {
                batch.add_all = true;
            }
        }
        if batch.add_all {
            batch.remove.remove(ALL);
        }
        let is_empty = batch.add.is_empty() && !batch.add_all && batch.remove.is_empty();
        (!is_empty).then_some(batch)
    }

    /// Records the outcome of a write.
    pub(super) fn written(&mut self, batch: Batch, done: bool) {
        if done {
            self.all_stored |= batch.add_all;
        } else {
            // The write may have succeeded nevertheless, so a later write removes the keys.
            self.leaving.extend(batch.remove);
            self.leaving.extend(batch.add.iter().map(key_of));
            if batch.add_all {
                self.leaving.insert(ALL.to_owned());
            }
        }
        let mut failed = Vec::new();
        for (runtime, entry) in &mut self.entries {
            if entry.place != Recorded::Under {
                continue;
            }
            if done {
                entry.settle(if batch.add.contains(runtime) { Recorded::Own } else { Recorded::All });
            } else {
                entry.answer(false);
                failed.push(runtime.clone());
            }
        }
        for runtime in failed {
            self.entries.remove(&runtime);
        }
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }
}

// === impl Entry ===

impl Entry {
    fn stored(place: Recorded, told: Instant) -> Entry {
        Entry { place, told, looked: false, waiting: Vec::new() }
    }

    fn settle(&mut self, place: Recorded) {
        self.place = place;
        self.answer(true);
    }

    fn answer(&mut self, done: bool) {
        for waiting in self.waiting.drain(..) {
            // Sending fails only if the receiver gave up.
            let _ = waiting.send(done);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn runtime(name: &str) -> Key {
        Key::new("kcp-system", name)
    }

    fn batch(add: &[&str], remove: &[&str]) -> Batch {
        Batch {
            add: add.iter().map(|name| runtime(name)).collect(),
            add_all: false,
            remove: remove.iter().map(|name| key_of(&runtime(name))).collect(),
        }
    }

    fn answer(receiver: Option<oneshot::Receiver<bool>>) -> Option<bool> {
        receiver.and_then(|mut receiver| receiver.try_recv().ok())
    }

    #[test]
    fn many_events_are_one_write_and_an_event_about_what_is_written_needs_none() {
        let (mut state, now) = (State::default(), Instant::now());
        let waiting: Vec<_> = ["one", "two", "one"].iter().map(|name| state.tell(&runtime(name), now)).collect();
        let first = state.batch().unwrap();
        assert_eq!(first, batch(&["one", "two"], &[]));
        state.written(first, true);
        assert!(waiting.into_iter().all(|waiting| answer(waiting) == Some(true)));
        assert!(state.tell(&runtime("one"), now).is_none());
        assert_eq!(state.batch(), None);
    }

    #[test]
    fn a_key_of_another_version_leaves_the_journal() {
        let (mut state, now) = (State::default(), Instant::now());
        let keys = ["newer.key".to_owned(), key_of(&runtime("one"))];
        assert_eq!(state.open(&keys, &[runtime("one"), runtime("two")], now), [runtime("one")]);
        let expected = Batch { remove: ["newer.key".to_owned()].into(), ..Batch::default() };
        assert_eq!(state.batch(), Some(expected));
    }

    #[test]
    fn only_a_look_that_began_after_the_event_lets_it_leave() {
        let (mut state, now) = (State::default(), Instant::now());
        let (later, latest) = (now + Duration::from_secs(1), now + Duration::from_secs(2));
        let one = runtime("one");
        state.tell(&one, later);
        let first = state.batch().unwrap();
        state.written(first, true);
        assert!(!state.passed(&one, now, true, true), "it began before");
        assert!(!state.passed(&one, latest, false, true), "it did not look");
        assert!(!state.passed(&one, latest, true, false), "something is left to do");
        assert!(state.passed(&one, latest, false, true), "and now nothing is");
        assert_eq!(state.batch(), Some(batch(&[], &["one"])));
    }

    #[test]
    fn an_event_during_a_pass_is_not_covered_by_it() {
        let (mut state, now) = (State::default(), Instant::now());
        let one = runtime("one");
        state.tell(&one, now);
        let first = state.batch().unwrap();
        state.written(first, true);
        state.tell(&one, now + Duration::from_millis(5));
        assert!(!state.passed(&one, now + Duration::from_millis(1), true, true));
        assert!(state.passed(&one, now + Duration::from_millis(6), true, true));
    }

    #[test]
    fn an_event_while_its_key_leaves_is_written_again() {
        let (mut state, now) = (State::default(), Instant::now());
        let one = runtime("one");
        state.tell(&one, now);
        let first = state.batch().unwrap();
        state.written(first, true);
        state.passed(&one, now, true, true);
        let waiting = state.tell(&one, now);
        let again = state.batch().unwrap();
        assert_eq!(again, batch(&["one"], &[]), "it stays, and is written to be sure");
        state.written(again, true);
        assert_eq!(answer(waiting), Some(true));

        state.passed(&one, now, true, true);
        let removal = state.batch().unwrap();
        let waiting = state.tell(&one, now);
        state.written(removal, true);
        assert_eq!(answer(waiting), None, "not before it is written");
        assert_eq!(state.batch(), Some(batch(&["one"], &[])));
    }

    #[test]
    fn what_could_not_be_written_is_not_acknowledged_and_leaves_no_trace() {
        let (mut state, now) = (State::default(), Instant::now());
        let waiting = state.tell(&runtime("one"), now);
        let first = state.batch().unwrap();
        state.written(first, false);
        assert_eq!(answer(waiting), Some(false));
        assert_eq!(state.len(), 0);
        assert_eq!(state.batch(), Some(batch(&[], &["one"])), "it may have been written all the same");
    }

    #[test]
    fn a_pass_does_not_take_away_what_is_only_being_written() {
        let (mut state, now) = (State::default(), Instant::now());
        let waiting = state.tell(&runtime("one"), now);
        let first = state.batch().unwrap();
        assert!(!state.passed(&runtime("one"), now, true, true));
        state.written(first, true);
        assert_eq!(answer(waiting), Some(true));
        assert!(state.passed(&runtime("one"), now, false, true), "the next pass does");
    }

    #[test]
    fn beyond_a_thousand_runtimes_one_key_stands_for_everything() {
        let (mut state, now) = (State::default(), Instant::now());
        let names: Vec<String> = (0..=OWN_MAX + 1).map(|index| format!("r{index:05}")).collect();
        let mut waiting: Vec<_> = names.iter().map(|name| state.tell(&runtime(name), now)).collect();
        let first = state.batch().unwrap();
        assert_eq!((first.add.len(), first.add_all), (OWN_MAX, true));
        state.written(first, true);
        assert_eq!(answer(waiting.pop().unwrap()), Some(true));
        let late = state.tell(&runtime("zz"), now);
        assert_eq!(state.batch(), None, "the key is there already");
        assert_eq!(answer(late), Some(true));
        for name in names.iter().skip(OWN_MAX).map(String::as_str).chain(["zz"]) {
            state.passed(&runtime(name), now, true, true);
        }
        let last = state.batch().unwrap();
        assert_eq!(last.remove, [ALL.to_owned()].into());
    }

    #[test]
    fn a_new_process_takes_over_what_stands_there() {
        let now = Instant::now();
        let (one, two) = (runtime("one"), runtime("two"));
        let all = [one.clone(), two.clone()];
        let mut state = State::default();
        assert_eq!(state.open(&[key_of(&one), "odd".to_owned()], &all, now), std::slice::from_ref(&one));
        assert_eq!(state.batch().unwrap().remove, ["odd".to_owned()].into());
        assert!(state.tell(&one, now).is_none(), "it is written already");

        let mut state = State::default();
        assert_eq!(state.open(&[ALL.to_owned(), key_of(&two)], &all, now), [one.clone(), two.clone()]);
        state.passed(&one, now, true, true);
        state.passed(&two, now, true, true);
        assert_eq!(state.batch().unwrap().remove, [ALL.to_owned(), key_of(&two)].into());
    }

    #[test]
    fn keys_are_those_of_a_config_map() {
        let key = key_of(&Key::new("kcp-system", "a.b-c"));
        assert_eq!(key, "kcp-system_a.b-c");
        assert_eq!(runtime_of(&key), Some(Key::new("kcp-system", "a.b-c")));
        assert_eq!(runtime_of(ALL), None);
    }
}
