//! The runtimes that cannot be reached, by cause, and which of them the log has. Pure.
//!
//! A network that is down concerns many runtimes at once, and each of them is tried again and again. So the log has one
//! line when a cause appears, another each time that the number of its runtimes has doubled, and one when it is over.
//! The status of each Kyma names its cause, and so does `/observed` of a process that observes.

use std::collections::{BTreeMap, BTreeSet};

use tidegate_core::name::Key;

/// The runtimes that cannot be reached.
#[derive(Debug, Default)]
pub(crate) struct Unreached(BTreeMap<&'static str, OfCause>);

/// Those of one cause.
#[derive(Debug, Default)]
struct OfCause {
    runtimes: BTreeSet<Key>,
    /// How many there were when the log last had a line.
    said: usize,
}

// === impl Unreached ===

impl Unreached {
    /// Notes that a runtime cannot be reached. Returns how many have this cause, if the log should say so. A runtime
    /// that has one cause and then another is no news each time.
    pub(crate) fn add(&mut self, runtime: &Key, cause: &'static str) -> Option<usize> {
        self.forget(runtime);
        let of_cause = self.0.entry(cause).or_default();
        of_cause.runtimes.insert(runtime.clone());
        let count = of_cause.runtimes.len();
        let is_news = of_cause.said == 0 || of_cause.said * 2 <= count;
        if is_news {
            of_cause.said = count;
        }
        is_news.then_some(count)
    }

    /// Notes that a runtime can be reached again, or need not be. Returns the causes that are over.
    pub(crate) fn remove(&mut self, runtime: &Key) -> Vec<&'static str> {
        if !self.forget(runtime) {
            return Vec::new();
        }
        let over =
            self.0.iter().filter(|(_, of_cause)| of_cause.runtimes.is_empty()).map(|(cause, _)| *cause).collect();
        self.0.retain(|_, of_cause| !of_cause.runtimes.is_empty());
        over
    }

    /// Takes a runtime from its cause. Returns whether it had one.
    fn forget(&mut self, runtime: &Key) -> bool {
        self.0.values_mut().any(|of_cause| of_cause.runtimes.remove(runtime))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_log_has_one_line_for_a_cause_and_not_one_for_each_pass() {
        let key = |number: usize| Key::new("kcp-system", &format!("r{number}"));
        let mut unreached = Unreached::default();
        assert_eq!(unreached.add(&key(0), "Timeout"), Some(1));
        assert_eq!(unreached.add(&key(0), "Timeout"), None, "the same runtime again");
        let said: Vec<usize> = (1..200).filter_map(|number| unreached.add(&key(number), "Timeout")).collect();
        assert_eq!(said, [2, 4, 8, 16, 32, 64, 128]);
        assert_eq!(unreached.add(&key(0), "NoAccess"), Some(1), "another cause");
        assert_eq!(unreached.remove(&key(0)), ["NoAccess"]);
        assert_eq!(unreached.remove(&key(0)), Vec::<&str>::new());
        let over: Vec<&str> = (1..200).flat_map(|number| unreached.remove(&key(number))).collect();
        assert_eq!(over, ["Timeout"]);
        assert_eq!(unreached.add(&key(3), "Timeout"), Some(1), "it is news again");
        assert_eq!(unreached.add(&key(3), "NoAccess"), Some(1));
        assert_eq!(unreached.add(&key(3), "Timeout"), None, "it alternates");
        assert_eq!(unreached.remove(&key(4)), Vec::<&str>::new(), "it was never there");
        assert_eq!(unreached.remove(&key(3)), ["NoAccess", "Timeout"]);
    }
}
