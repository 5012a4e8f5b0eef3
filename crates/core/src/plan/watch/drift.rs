//! Which kinds of objects a runtime reports changes of, so that an edit or a deletion by others is repaired at once.
//!
//! The webhook configuration carries a rule for them, beside those of the Watchers. It names built-in kinds by their
//! resource. How a custom resource is called in URLs only its API server knows; of a group of such, everything is named,
//! and the label selector keeps out what is not ours.

use std::collections::{BTreeMap, BTreeSet};

/// Kinds of objects by API group. Runtimes with equal kinds share everything that is made of them.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Drift(BTreeMap<String, BTreeSet<String>>);

/// All resources of a group.
const ALL: &str = "*";

/// Kinds that a user scales by a subresource, which has no labels to select by.
const SCALED: [&str; 2] = ["deployments", "statefulsets"];

// === impl Drift ===

impl Drift {
    /// Adds a kind: its group, and its resource where that is known.
    ///
    /// Webhook configurations are left out, since an API server asks no webhook about them.
    pub fn insert(&mut self, group: &str, resource: Option<&str>) {
        if group == "admissionregistration.k8s.io" {
            return;
        }
        self.0.entry(group.to_owned()).or_default().insert(resource.unwrap_or(ALL).to_owned());
    }

    /// The groups with their resources, both sorted.
    pub fn rules(&self) -> impl Iterator<Item = (&str, Vec<&str>)> {
        self.0.iter().map(|(group, resources)| {
            let resources =
                if resources.contains(ALL) { vec![ALL] } else { resources.iter().map(String::as_str).collect() };
            (group.as_str(), resources)
        })
    }

    /// The status subresources of the kinds that can be scaled: a change of scale shows there, with labels.
    pub fn scaled(&self) -> Vec<String> {
        let apps = self.0.get("apps");
        let is_there = |resource: &&str| apps.is_some_and(|apps| apps.contains(*resource));
        SCALED.iter().filter(|resource| is_there(resource)).map(|resource| format!("{resource}/status")).collect()
    }
}
