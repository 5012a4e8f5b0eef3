//! What a change must not do: a few rules by name (`--fail-on`), and rules in CEL from a file.
//!
//! A rule in CEL says what must hold of each difference, as the API server's rules do. It sees objects as they are, save
//! for Secrets: of these nothing but whether two values are equal. What is said of a violation is made from what is
//! shown, in which copies of Secrets' values are masked as well. A rule that cannot be evaluated is violated, with a sentence that
//! says why; none is ever passed over in silence.

mod file;
mod judge;
mod kinds;

use std::{collections::BTreeMap, fmt, str::FromStr};

pub use self::{
    file::{FileError, parse},
    judge::judge,
    kinds::Kinds,
};
use super::model::{Action, Side};
use tidegate_core::{diagnostic::Severity, name::Key, schema::expression::Expression};

/// The labels of runtimes, as far as they are known.
pub type Labels = BTreeMap<Key, BTreeMap<String, String>>;

/// A rule by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FailOn {
    /// An object is deleted.
    Delete,
    /// An object is deleted and created again.
    Recreate,
    /// A CustomResourceDefinition changes or goes.
    Crd,
    /// An object or field belongs to another manager.
    Conflict,
    /// More than this share of the runtimes is touched, in percent.
    MassChange(u8),
}

/// A text is no rule by name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseFailOnError {
    /// There is no such rule.
    #[error("there is no rule `{0}`; use delete, recreate, crd, conflict or mass-change=N%")]
    Unknown(String),
    /// A share that is none.
    #[error("`{0}` is not a share of the runtimes; use mass-change=10% or any other whole number up to 100")]
    Share(String),
}

/// Rules in CEL, by name.
#[derive(Debug, Default)]
pub struct Policies {
    rules: Vec<Policy>,
}

/// A rule in CEL.
#[derive(Debug)]
struct Policy {
    name: String,
    severity: Severity,
    message: Option<String>,
    message_expression: Option<Expression>,
    matches: Match,
    rule: Expression,
}

/// Which differences a rule is about; what is empty matches all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Match {
    /// `Deployment`, or `Deployment.apps` where the kind alone says too little.
    kinds: Vec<String>,
    targets: Vec<Side>,
    actions: Vec<Action>,
}

// === impl Policies ===

impl Policies {
    /// Takes all rules of another file, or none if one of them has a name that is taken; gives that name.
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

// === impl FailOn ===

impl FromStr for FailOn {
    type Err = ParseFailOnError;

    fn from_str(text: &str) -> Result<FailOn, ParseFailOnError> {
        match (text, text.strip_prefix("mass-change=")) {
            ("delete", _) => Ok(FailOn::Delete),
            ("recreate", _) => Ok(FailOn::Recreate),
            ("crd", _) => Ok(FailOn::Crd),
            ("conflict", _) => Ok(FailOn::Conflict),
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
            FailOn::Delete => f.write_str("delete"),
            FailOn::Recreate => f.write_str("recreate"),
            FailOn::Crd => f.write_str("crd"),
            FailOn::Conflict => f.write_str("conflict"),
            FailOn::MassChange(percent) => write!(f, "mass-change={percent}%"),
        }
    }
}

#[cfg(test)]
mod tests;
