//! Labels that divide the runtimes into few groups. Reviewers think of runtimes as a region or a stage, not as one of
//! thousands of names.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    policy::Labels,
    words::{counted, thousands},
};
use tidegate_core::name::Key;

/// The runtimes by their most telling labels.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Groups(Vec<ByLabel>);

/// The runtimes by the value of one label.
#[derive(Clone, Debug, PartialEq, Eq)]
struct ByLabel {
    label: String,
    /// The values with their number of runtimes.
    values: Vec<(String, usize)>,
    /// The position of the value of each runtime that has one.
    of: BTreeMap<Key, usize>,
    /// The runtimes of which it is not known whether they have one.
    unknown: BTreeSet<Key>,
}

/// Maximum number of labels.
const LABELS_MAX: usize = 3;
/// A label with more values names runtimes rather than groups of them.
const VALUES_MAX: usize = 8;
/// Labels with these prefixes say who made a Kyma, or identify it.
const TECHNICAL: [&str; 2] = ["tidegate.dev/", "operator.kyma-project.io/managed-by"];

// === impl Groups ===

impl Groups {
    /// Selects the labels with the fewest values among those that divide the runtimes.
    pub(super) fn new(labels: &Labels) -> Groups {
        let mut values: BTreeMap<&str, BTreeMap<&str, usize>> = BTreeMap::new();
        for (name, value) in labels.values().flatten() {
            if !TECHNICAL.iter().any(|prefix| name.starts_with(prefix)) {
                *values.entry(name).or_default().entry(value).or_default() += 1;
            }
        }
        let divides = |name: &str, found: &BTreeMap<&str, usize>| {
            let with = found.values().sum::<usize>();
            let groups = found.len() + usize::from(with + labels.unknown(name).len() < labels.len());
            // Of a few runtimes, each value may be the name of one.
            (2..=VALUES_MAX).contains(&groups) && found.len() * 2 <= with
        };
        let mut chosen: Vec<_> = values.into_iter().filter(|(name, found)| divides(name, found)).collect();
        chosen.sort_by_key(|(name, found)| (found.len(), *name));
        chosen.truncate(LABELS_MAX);
        let by = |(name, found): (&str, BTreeMap<&str, usize>)| {
            let position = |value: &str| found.keys().position(|known| *known == value);
            let of = labels.iter().filter_map(|(key, labels)| Some((key.clone(), position(labels.get(name)?)?)));
            ByLabel {
                label: name.to_owned(),
                of: of.collect(),
                unknown: labels.unknown(name),
                values: found.iter().map(|(value, count)| ((*value).to_owned(), *count)).collect(),
            }
        };
        Groups(chosen.into_iter().map(by).collect())
    }

    /// Replaces texts, so that nothing of a Secret is shown.
    pub(super) fn clean(&mut self, mut clean: impl FnMut(&mut String)) {
        for by in &mut self.0 {
            clean(&mut by.label);
            by.values.iter_mut().for_each(|(value, _)| clean(value));
        }
    }

    /// Some runtimes by label: `region` and `eu 500 of 3,000, us 312 of 2,000`.
    pub(super) fn of(&self, runtimes: &[Key]) -> Vec<(String, String)> {
        let wanted: BTreeSet<&Key> = runtimes.iter().collect();
        let text = |by: &ByLabel| {
            let mut counts = vec![0; by.values.len()];
            for key in &wanted {
                if let Some(count) = by.of.get(*key).and_then(|position| counts.get_mut(*position)) {
                    *count += 1;
                }
            }
            let unknown = wanted.iter().filter(|key| by.unknown.contains(**key)).count();
            let without = wanted.len() - unknown - counts.iter().sum::<usize>();
            let of = by.values.iter().zip(&counts).filter(|(_, count)| **count > 0);
            let mut parts: Vec<String> = of
                .map(|((value, all), count)| format!("{value} {} of {}", thousands(*count), thousands(*all)))
                .collect();
            if without > 0 {
                parts.push(format!("{} without it", counted(without, "runtime")));
            }
            if unknown > 0 {
                parts.push(format!("{} whose labels are not in the landscape file", counted(unknown, "runtime")));
            }
            (by.label.clone(), parts.join(", "))
        };
        self.0.iter().map(text).collect()
    }
}

#[cfg(test)]
mod tests;
