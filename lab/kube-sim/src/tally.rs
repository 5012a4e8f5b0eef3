//! Requests, counted by who asked for what.

use std::{collections::BTreeMap, fmt};

/// How often what was asked, by user, verb, resource and code.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally(pub BTreeMap<(String, String, String, u16), usize>);

/// The verb of a write that was only tried out.
const DRY_RUN: &str = "dry-run";

/// Who asks who he is, or what he may, creates that question and nothing else.
pub fn is_write(verb: &str, resource: &str) -> bool {
    matches!(verb, "create" | "update" | "patch" | "delete" | "deletecollection")
        && !resource.starts_with("selfsubject")
}

// === impl Tally ===

impl Tally {
    /// Adds requests that are alike. A write that was only tried out is a verb of its own.
    pub fn add(&mut self, user: &str, verb: &str, resource: &str, code: u16, dry_run: bool, count: usize) {
        let verb = if dry_run { DRY_RUN } else { verb };
        *self.0.entry((user.to_owned(), verb.to_owned(), resource.to_owned(), code)).or_default() += count;
    }

    /// Adds all of another one.
    pub fn merge(&mut self, other: &Tally) {
        for (key, count) in &other.0 {
            *self.0.entry(key.clone()).or_default() += count;
        }
    }

    /// All requests that change something.
    pub fn writes(&self) -> usize {
        self.0.iter().filter(|((_, verb, resource, _), _)| is_write(verb, resource)).map(|(_, count)| count).sum()
    }

    /// All writes that were only tried out.
    pub fn dry_runs(&self) -> usize {
        self.0.iter().filter(|((_, verb, _, _), _)| verb == DRY_RUN).map(|(_, count)| count).sum()
    }

    /// All requests.
    pub fn requests(&self) -> usize {
        self.0.values().sum()
    }
}

/// One line for each row, fit for a failed assertion.
impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for ((user, verb, resource, code), count) in &self.0 {
            writeln!(f, "{count:>6}  {code}  {verb:<16} {resource:<60} {user}")?;
        }
        Ok(())
    }
}
