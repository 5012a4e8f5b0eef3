//! Ranges of versions, and the version that a tag names. Pure.
//!
//! A range is written as for Flux and npm: comparators with spaces or commas between them must all hold, and `||`
//! separates alternatives. A version with a pre-release counts only if a bound of the alternative has one: `>=1.0.0-0`.

use std::{cmp::Ordering, fmt, str::FromStr};

use semver::{BuildMetadata, Comparator, Op, Prerelease, Version, VersionReq};
use serde::{Deserialize, Serialize};

/// The text is not a range of versions.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a range of versions: use a range such as ^1.2 or >=1.0.0 <2.0.0")]
pub struct ParseRangeError;

/// A range of versions, as it was written.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct VersionRange {
    text: String,
    alternatives: Vec<Vec<Comparator>>,
}

/// A tag that names a version. The highest version is the greatest one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VersionTag {
    version: Version,
    /// The name of the tag.
    pub name: String,
}

/// Whether a version is lower than another one. Texts that are not versions have no order, so neither is lower.
pub fn is_lower(version: &str, than: &str) -> bool {
    let (version, than) = (Version::parse(version), Version::parse(than));
    version.is_ok_and(|version| than.is_ok_and(|than| version < than))
}

// === impl VersionRange ===

impl VersionRange {
    /// Maximum number of comparators in all alternatives: each tag is compared with all of them.
    const COMPARATORS_MAX: usize = 32;

    /// Whether a version is in the range.
    pub fn contains(&self, tag: &VersionTag) -> bool {
        self.alternatives.iter().any(|comparators| {
            let may_be_early = comparators.iter().any(|comparator| !comparator.pre.is_empty());
            (tag.version.pre.is_empty() || may_be_early)
                && comparators.iter().all(|comparator| holds(comparator, &tag.version))
        })
    }
}

impl FromStr for VersionRange {
    type Err = ParseRangeError;

    fn from_str(text: &str) -> Result<VersionRange, ParseRangeError> {
        let alternatives: Vec<Vec<Comparator>> = text.split("||").map(comparators).collect::<Result<_, _>>()?;
        if Self::COMPARATORS_MAX < alternatives.iter().map(|comparators| comparators.len().max(1)).sum() {
            return Err(ParseRangeError);
        }
        Ok(VersionRange { text: text.to_owned(), alternatives })
    }
}

impl fmt::Display for VersionRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl TryFrom<String> for VersionRange {
    type Error = ParseRangeError;

    fn try_from(text: String) -> Result<VersionRange, ParseRangeError> {
        text.parse()
    }
}

impl From<VersionRange> for String {
    fn from(range: VersionRange) -> String {
        range.text
    }
}

/// The comparators of one alternative: `>= 1.0.0 <2.0.0` or `>=1.0.0, <2.0.0`.
fn comparators(text: &str) -> Result<Vec<Comparator>, ParseRangeError> {
    let mut joined = String::new();
    for word in text.split([' ', '\t', ',']).filter(|word| !word.is_empty()) {
        // A space may follow an operator.
        let ends_with_operator = joined.ends_with(['<', '>', '=', '^', '~']);
        if !joined.is_empty() && !ends_with_operator {
            joined.push(',');
        }
        let version = word.trim_start_matches(['<', '>', '=', '^', '~']);
        joined.push_str(&word[..word.len() - version.len()].replace("==", "="));
        joined.push_str(version.strip_prefix('v').unwrap_or(version));
    }
    match joined.as_str() {
        "" => Err(ParseRangeError),
        // A version alone is that version only, and not all that are compatible with it.
        text => {
            let exact: Vec<String> = text
                .split(',')
                .map(|one| if one.starts_with(|c: char| c.is_ascii_digit()) { exact(one) } else { one.to_owned() })
                .collect();
            VersionReq::parse(&exact.join(",")).map(|range| range.comparators).map_err(|_| ParseRangeError)
        }
    }
}

fn exact(version: &str) -> String {
    let is_wild = version.split(['-', '+']).next().is_some_and(|numbers| numbers.contains(['x', 'X', '*']));
    if is_wild { version.to_owned() } else { format!("={version}") }
}

/// Whether a comparator holds for a version, pre-releases in their order.
fn holds(comparator: &Comparator, version: &Version) -> bool {
    let from = Version {
        major: comparator.major,
        minor: comparator.minor.unwrap_or(0),
        patch: comparator.patch.unwrap_or(0),
        pre: comparator.pre.clone(),
        build: BuildMetadata::EMPTY,
    };
    // The first version that is not part of a comparator such as `1.2`.
    let next = match (comparator.minor, comparator.patch) {
        (None, _) => before(from.major.saturating_add(1), 0, 0),
        (Some(minor), None) => before(from.major, minor.saturating_add(1), 0),
        (Some(_), Some(_)) => from.clone(),
    };
    let is_whole = comparator.patch.is_some();
    let at_least = |bound: &Version| version.cmp_precedence(bound) != Ordering::Less;
    match comparator.op {
        Op::Exact if is_whole => version.cmp_precedence(&from) == Ordering::Equal,
        Op::Exact | Op::Wildcard => at_least(&from) && !at_least(&next),
        Op::Greater if is_whole => version.cmp_precedence(&from) == Ordering::Greater,
        Op::Greater => at_least(&next),
        Op::GreaterEq => at_least(&from),
        // A pre-release of the bound is not below it.
        Op::Less if from.pre.is_empty() => !at_least(&before(from.major, from.minor, from.patch)),
        Op::Less => !at_least(&from),
        Op::LessEq if is_whole => version.cmp_precedence(&from) != Ordering::Greater,
        Op::LessEq => !at_least(&next),
        Op::Tilde if comparator.minor.is_none() => at_least(&from) && !at_least(&next),
        Op::Tilde => at_least(&from) && !at_least(&before(from.major, from.minor.saturating_add(1), 0)),
        Op::Caret => {
            let end = match (from.major, comparator.minor, comparator.patch) {
                (0, None, _) => before(1, 0, 0),
                (0, Some(0), None) => before(0, 1, 0),
                (0, Some(0), Some(patch)) => before(0, 0, patch.saturating_add(1)),
                (0, Some(minor), _) => before(0, minor.saturating_add(1), 0),
                (major, _, _) => before(major.saturating_add(1), 0, 0),
            };
            at_least(&from) && !at_least(&end)
        }
        _ => false,
    }
}

/// The least of all versions with these numbers, which is their first pre-release.
fn before(major: u64, minor: u64, patch: u64) -> Version {
    let pre = Prerelease::new("0").expect("it is an identifier");
    Version { major, minor, patch, pre, build: BuildMetadata::EMPTY }
}

// === impl VersionTag ===

impl VersionTag {
    /// The version that a tag names, with or without `v` before it.
    pub fn parse(name: &str) -> Option<VersionTag> {
        let version = Version::parse(name.strip_prefix('v').unwrap_or(name)).ok()?;
        Some(VersionTag { version, name: name.to_owned() })
    }
}

impl Ord for VersionTag {
    fn cmp(&self, other: &VersionTag) -> Ordering {
        self.version.cmp(&other.version).then_with(|| self.name.cmp(&other.name))
    }
}

impl PartialOrd for VersionTag {
    fn partial_cmp(&self, other: &VersionTag) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

#[cfg(test)]
mod tests;
