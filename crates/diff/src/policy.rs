//! Rules for changes: predefined rules (`--fail-on`), and CEL rules from a file.
//!
//! A CEL rule is a condition on each difference, like a validation rule of the API server. It sees
//! the real objects, except Secrets: of these, it only sees whether two values are equal. Messages
//! of violations are made from masked values, without copies of Secrets' values. A rule that cannot
//! be evaluated is violated, with a sentence that says why. No rule is skipped silently.

mod file;
mod judge;
mod kinds;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    ops::Deref,
    str::FromStr,
};

pub use self::{
    file::{FileError, parse},
    judge::judge,
    kinds::Kinds,
};
use super::model::{Action, Side};
use tidegate_core::{diagnostic::Severity, name::Key, schema::expression::Expression};

/// The labels of runtimes, as far as they are known.
#[derive(Clone, Debug, Default)]
pub struct Labels {
    of: BTreeMap<Key, BTreeMap<String, String>>,
    /// Runtimes that only the landscape file has: an export leaves labels out.
    partly: BTreeSet<Key>,
    /// Labels that the export has not left out.
    exported: BTreeSet<String>,
}

// === impl Labels ===

impl Labels {
    /// The labels of no runtime.
    pub fn new() -> Labels {
        Labels::default()
    }

    /// Notes of which runtimes only some labels are known, and which labels the landscape file has.
    #[must_use]
    pub fn with_partly(self, partly: BTreeSet<Key>, exported: BTreeSet<String>) -> Labels {
        Labels { partly, exported, ..self }
    }

    /// The runtimes of which it is not known whether they have a label.
    pub(super) fn unknown(&self, label: &str) -> BTreeSet<Key> {
        let is_unknown = |key: &&Key| self.of.get(*key).is_none_or(|labels| !labels.contains_key(label));
        match self.exported.contains(label) {
            true => BTreeSet::new(),
            false => self.partly.iter().filter(is_unknown).cloned().collect(),
        }
    }
}

impl Deref for Labels {
    type Target = BTreeMap<Key, BTreeMap<String, String>>;

    fn deref(&self) -> &Self::Target {
        &self.of
    }
}

impl FromIterator<(Key, BTreeMap<String, String>)> for Labels {
    fn from_iter<I: IntoIterator<Item = (Key, BTreeMap<String, String>)>>(all: I) -> Labels {
        Labels { of: all.into_iter().collect(), ..Labels::default() }
    }
}

impl<const N: usize> From<[(Key, BTreeMap<String, String>); N]> for Labels {
    fn from(all: [(Key, BTreeMap<String, String>); N]) -> Labels {
        all.into_iter().collect()
    }
}

/// A predefined rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FailOn {
    /// An object is deleted.
    Delete,
    /// An object is deleted and created again.
    Recreate,
    /// The API server refuses the change of an object.
    Refused,
    /// A CustomResourceDefinition changes or is deleted.
    Crd,
    /// An object or field belongs to another manager.
    Conflict,
    /// The content of a module changes without a new version.
    SameVersion,
    /// More than this share of the runtimes is affected, in percent.
    MassChange(u8),
}

/// The text is not a predefined rule.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseFailOnError {
    /// The rule does not exist.
    #[error("unknown rule `{0}`: use delete, recreate, refused, crd, conflict, same-version or mass-change=N%")]
    Unknown(String),
    /// The percentage is invalid.
    #[error("invalid percentage `{0}`: use mass-change=N% with a whole number up to 100")]
    Share(String),
}

/// Predefined rules that someone approved for this change, and who: their violations are warnings.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Approvals(BTreeMap<&'static str, String>);

/// The text is not the name of a predefined rule.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a rule that can be approved: use {names}", names = FailOn::NAMES.join(", "))]
pub struct ParseApprovalError(String);

/// Rules in CEL, by name.
#[derive(Debug, Default)]
pub struct Policies {
    rules: Vec<Policy>,
}

/// A CEL rule.
#[derive(Debug)]
struct Policy {
    name: String,
    severity: Severity,
    message: Option<String>,
    message_expression: Option<Expression>,
    matches: Match,
    rule: Expression,
}

/// The differences that a rule applies to; empty fields match all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Match {
    /// `Deployment`, or `Deployment.apps` if the kind alone is ambiguous.
    kinds: Vec<String>,
    targets: Vec<Side>,
    actions: Vec<Action>,
}

// === impl Policies ===

impl Policies {
    /// Adds all rules of another file.
    ///
    /// # Errors
    ///
    /// Fails with the name if a rule name is already used; then it adds none.
    pub fn add(&mut self, other: Policies) -> Result<(), String> {
        let taken = |policy: &&Policy| self.rules.iter().any(|own| own.name == policy.name);
        if let Some(policy) = other.rules.iter().find(taken) {
            return Err(policy.name.clone());
        }
        self.rules.extend(other.rules);
        self.rules.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(())
    }
}

// === impl Approvals ===

impl Approvals {
    /// Approves a rule by its name. `by` says who, for the message: `commit 1234567`. The first approval of a rule
    /// counts.
    ///
    /// # Errors
    ///
    /// Fails if there is no such rule.
    pub fn approve(&mut self, name: &str, by: &str) -> Result<(), ParseApprovalError> {
        let known = FailOn::NAMES.into_iter().find(|known| *known == name);
        let known = known.ok_or_else(|| ParseApprovalError(tidegate_core::yaml::short(name)))?;
        self.0.entry(known).or_insert_with(|| by.to_owned());
        Ok(())
    }

    /// Who approved a rule.
    fn by(&self, rule: FailOn) -> Option<&str> {
        self.0.get(rule.name()).map(String::as_str)
    }
}

// === impl FailOn ===

impl FailOn {
    /// The names of all rules, without their limits.
    pub const NAMES: [&str; 7] = ["delete", "recreate", "refused", "crd", "conflict", "same-version", "mass-change"];

    /// The name, without its limit.
    pub fn name(self) -> &'static str {
        match self {
            FailOn::Delete => "delete",
            FailOn::Recreate => "recreate",
            FailOn::Refused => "refused",
            FailOn::Crd => "crd",
            FailOn::Conflict => "conflict",
            FailOn::SameVersion => "same-version",
            FailOn::MassChange(_) => "mass-change",
        }
    }
}

impl FromStr for FailOn {
    type Err = ParseFailOnError;

    fn from_str(text: &str) -> Result<FailOn, ParseFailOnError> {
        match (text, text.strip_prefix("mass-change=")) {
            ("delete", _) => Ok(FailOn::Delete),
            ("recreate", _) => Ok(FailOn::Recreate),
            ("refused", _) => Ok(FailOn::Refused),
            ("crd", _) => Ok(FailOn::Crd),
            ("conflict", _) => Ok(FailOn::Conflict),
            ("same-version", _) => Ok(FailOn::SameVersion),
            ("mass-change", _) => Err(ParseFailOnError::Share(text.to_owned())),
            (_, Some(share)) => {
                let percent = share.strip_suffix('%').and_then(|number| number.parse().ok());
                percent
                    .filter(|percent| *percent <= 100)
                    .map(FailOn::MassChange)
                    .ok_or_else(|| ParseFailOnError::Share(text.to_owned()))
            }
            _ => Err(ParseFailOnError::Unknown(text.to_owned())),
        }
    }
}

impl fmt::Display for FailOn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FailOn::MassChange(percent) => write!(f, "{}={percent}%", self.name()),
            rule => f.write_str(rule.name()),
        }
    }
}

#[cfg(test)]
mod tests;
