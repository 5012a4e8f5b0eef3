//! Modules that a Kyma released before it dropped them.
//!
//! A user who makes a module unmanaged keeps its objects. If the module leaves the list before a pass has seen that,
//! the list alone would say that its objects go.

use std::collections::BTreeSet;

use super::ModulesFrom;
use crate::api::kyma::Module;

/// The modules that were unmanaged when they left a list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LeftUnmanaged(BTreeSet<String>);

// === impl LeftUnmanaged ===

impl LeftUnmanaged {
    /// Notes that a list of modules has changed.
    pub fn changed<'a>(
        &mut self,
        before: impl IntoIterator<Item = &'a Module>,
        after: impl IntoIterator<Item = &'a Module>,
    ) {
        self.0.extend(before.into_iter().filter(|module| !module.managed).map(|module| module.name.clone()));
        for module in after {
            self.0.remove(&module.name);
        }
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The names that count for a Kyma whose list is from `modules_from`: `self` is about the list in the control
    /// plane, `runtime` about that in the runtime.
    pub fn that_count(&self, runtime: &LeftUnmanaged, modules_from: ModulesFrom) -> BTreeSet<String> {
        match modules_from {
            ModulesFrom::Runtime => runtime.0.clone(),
            ModulesFrom::Git => self.0.clone(),
            ModulesFrom::Merge => self.0.union(&runtime.0).cloned().collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn modules(list: &Value) -> Vec<Module> {
        serde_json::from_value(list.clone()).unwrap()
    }

    #[test]
    fn a_module_that_was_unmanaged_when_it_left_is_known_until_it_is_back() {
        let with = |managed: bool| modules(&json!([{"name": "cache", "managed": managed}]));
        let mut left = LeftUnmanaged::default();
        for (before, after, expected) in [
            (with(true), with(false), false),
            (with(false), vec![], true),
            (vec![], modules(&json!([{"name": "other", "managed": true}])), true),
            (vec![], with(true), false),
            (with(true), vec![], false),
        ] {
            left.changed(&before, &after);
            assert_eq!(!left.is_empty(), expected, "{before:?} {after:?}");
        }
    }

    #[test]
    fn the_list_that_decides_counts() {
        let left = |name: &str| {
            let mut left = LeftUnmanaged::default();
            left.changed(&modules(&json!([{"name": name, "managed": false}])), []);
            left
        };
        for (from, expected) in
            [(ModulesFrom::Git, &["kcp"][..]), (ModulesFrom::Runtime, &["skr"]), (ModulesFrom::Merge, &["kcp", "skr"])]
        {
            let names = left("kcp").that_count(&left("skr"), from);
            assert!(names.iter().eq(expected), "{from:?}: {names:?}");
        }
    }
}
