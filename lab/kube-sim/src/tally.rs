// SPDX-License-Identifier: Apache-2.0

//! Counts requests by user, verb, resource and code.

use std::{collections::BTreeMap, fmt};

/// The number of requests by user, verb, resource and code.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally(pub BTreeMap<(String, String, String, u16), usize>);

/// The verb of a dry run.
const DRY_RUN: &str = "dry-run";

/// Whether a verb changes something. Creating a review stores nothing, so it does not.
pub fn is_write(verb: &str, resource: &str) -> bool {
    matches!(verb, "create" | "update" | "patch" | "delete" | "deletecollection")
        && !resource.starts_with("selfsubject")
}

// === impl Tally ===

impl Tally {
    /// Adds equal requests. A dry run has its own verb.
    pub fn add(&mut self, user: &str, verb: &str, resource: &str, code: u16, dry_run: bool, count: usize) {
        let verb = if dry_run { DRY_RUN } else { verb };
        *self.0.entry((user.to_owned(), verb.to_owned(), resource.to_owned(), code)).or_default() += count;
    }

    /// Adds all counts of another tally.
    pub fn merge(&mut self, other: &Tally) {
        for (key, count) in &other.0 {
            *self.0.entry(key.clone()).or_default() += count;
        }
    }

    /// The number of requests that change something.
    pub fn writes(&self) -> usize {
        self.0.iter().filter(|((_, verb, resource, _), _)| is_write(verb, resource)).map(|(_, count)| count).sum()
    }

    /// The number of dry runs.
    pub fn dry_runs(&self) -> usize {
        self.0.iter().filter(|((_, verb, _, _), _)| verb == DRY_RUN).map(|(_, count)| count).sum()
    }

    /// The number of all requests.
    pub fn requests(&self) -> usize {
        self.0.values().sum()
    }
}

/// One line for each row, for the message of a failed assertion.
impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for ((user, verb, resource, code), count) in &self.0 {
            writeln!(f, "{count:>6}  {code}  {verb:<16} {resource:<60} {user}")?;
        }
        Ok(())
    }
}
