//! The kinds of objects whose changes a runtime reports, so that Tidegate repairs drift at once.
//!
//! The webhook configuration has a rule for them, besides those of the Watchers. The rule names built-in kinds by their
//! resource. Only the API server knows the resource of a custom kind, so the rule names all resources of a custom
//! group. The label selector excludes objects without Tidegate's ownership label.

use std::collections::{BTreeMap, BTreeSet};

/// Kinds of objects by API group. Runtimes with equal kinds share everything that is derived from
/// them.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Drift(BTreeMap<String, BTreeSet<String>>);

/// All resources of a group.
const ALL: &str = "*";

/// Kinds that users scale by a subresource, which has no labels to select by.
const SCALED: [&str; 2] = ["deployments", "statefulsets"];

// === impl Drift ===

impl Drift {
    /// Adds a kind: its group, and its resource if known.
    ///
    /// Webhook configurations are skipped, because API servers never call webhooks for them.
    pub fn insert(&mut self, group: &str, resource: Option<&str>) {
        if group == "admissionregistration.k8s.io" {
            return;
        }
        self.0.entry(group.to_owned()).or_default().insert(resource.unwrap_or(ALL).to_owned());
    }

    /// The groups and their resources, both sorted.
    pub fn rules(&self) -> impl Iterator<Item = (&str, Vec<&str>)> {
        self.0.iter().map(|(group, resources)| {
            let resources =
                if resources.contains(ALL) { vec![ALL] } else { resources.iter().map(String::as_str).collect() };
            (group.as_str(), resources)
        })
    }

    /// The status subresources of scalable kinds: a change of scale is visible there, with labels.
    pub fn scaled(&self) -> Vec<String> {
        let apps = self.0.get("apps");
        let is_there = |resource: &&str| apps.is_some_and(|apps| apps.contains(*resource));
        SCALED.iter().filter(|resource| is_there(resource)).map(|resource| format!("{resource}/status")).collect()
    }
}
