//! What a repository says of a revision's signatures: the objects that may be signed, and which paths changed since.
//!
//! The `git` adapter collects it without judging; `tidegate-signature` judges it.

use std::collections::BTreeMap;

use ignore::gitignore::{Gitignore, GitignoreBuilder};
use serde::{Deserialize, Serialize};

use crate::revision::Oid;

/// What a repository says of a revision's signatures.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Evidence {
    /// The annotated tags from the reference to the commit, the outermost first; none for a branch.
    pub tags: Vec<StoredObject>,
    /// The commit.
    pub head: StoredObject,
    /// The commits since the base that change a guarded path.
    pub touched: Vec<Touched>,
    /// Guarded paths that the revision as a whole changes, by the number of the rule: one path each. Every guarded path
    /// of a revision without a base, and those that differ after the branch was rewritten.
    pub vouched: BTreeMap<usize, String>,
    /// Why the changes are not known completely.
    pub gap: Option<Gap>,
}

/// One part of it, as it is found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Part {
    /// See [`Evidence::tags`].
    Tag(StoredObject),
    /// See [`Evidence::head`].
    Head(StoredObject),
    /// See [`Evidence::touched`].
    Touched(Touched),
}

/// A commit or tag as git stores it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredObject {
    /// Its id.
    pub id: Oid,
    /// Its content; none if it is larger than [`OBJECT_BYTES_MAX`].
    #[serde(with = "base64_bytes")]
    pub bytes: Option<Vec<u8>>,
}

/// The paths whose changes must be signed by certain signers: gitignore patterns, by number.
#[derive(Debug)]
pub struct Guards(Vec<Gitignore>);

/// Size of a commit or tag whose signature is verified. Those with the longest messages have a few KiB.
pub const OBJECT_BYTES_MAX: usize = 256 << 10;

/// A commit that changes guarded paths.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Touched {
    /// The commit.
    pub commit: StoredObject,
    /// One of the paths, by the number of the rule.
    pub paths: BTreeMap<usize, String>,
}

/// Why the changes of a revision are not known completely.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Gap {
    /// More commits than this since the base.
    Commits(usize),
    /// More commits than this change guarded paths.
    Touched(usize),
    /// A commit has more parents than this.
    Parents(usize),
    /// Tags name tags, more than this.
    Tags(usize),
    /// This commit has a folder that git does not write: a name in it is ambiguous.
    Folder(Oid),
}

// === impl Guards ===

impl Guards {
    /// The patterns in this order. One that is invalid guards everything; [`Guards::check`] finds it before.
    pub fn new(patterns: &[String]) -> Guards {
        let everything = || compile("*").expect("the pattern for everything is valid");
        Guards(patterns.iter().map(|pattern| compile(pattern).unwrap_or_else(everything)).collect())
    }

    /// Whether a pattern is valid and can match a file of a repository.
    pub fn check(pattern: &str) -> bool {
        compile(pattern).is_some()
    }

    /// Whether there is no pattern.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The patterns that match a file, or a folder around it.
    pub fn of(&self, path: &str) -> impl Iterator<Item = usize> + '_ {
        let path = path.to_owned();
        let is_guarded = move |guard: &Gitignore| guard.matched_path_or_any_parents(&path, false).is_ignore();
        self.0.iter().enumerate().filter(move |(_, guard)| is_guarded(guard)).map(|(rule, _)| rule)
    }

    /// Whether any pattern matches.
    pub fn covers(&self, path: &str) -> bool {
        self.of(path).next().is_some()
    }
}

/// A pattern for everything in a folder also matches what replaces the folder: a file, a link or a submodule.
fn compile(pattern: &str) -> Option<Gitignore> {
    if !can_match(pattern) {
        return None;
    }
    let mut builder = GitignoreBuilder::new("");
    builder.add_line(None, pattern).ok()?;
    if let Some(folder) = pattern.strip_suffix("/**") {
        // `a/**` begins at the root, and so must `a`.
        let anchor = if folder.starts_with('/') || folder.contains("**") { "" } else { "/" };
        builder.add_line(None, &format!("{anchor}{folder}")).ok()?;
    }
    builder.build().ok().filter(|guard| 0 < guard.num_ignores())
}

/// Whether a pattern can match a file: no path has empty parts, `.` or `..`, and `**/` at the end is for folders only.
fn can_match(pattern: &str) -> bool {
    let inner = pattern.strip_prefix('/').unwrap_or(pattern);
    let inner = inner.strip_suffix('/').unwrap_or(inner);
    !pattern.ends_with("**/") && inner.split('/').all(|part| !matches!(part, "" | "." | ".."))
}

/// Bytes as text: JSON has no other short form.
mod base64_bytes {
    use base64::{Engine as _, engine::general_purpose::STANDARD};
    use serde::{Deserialize as _, Deserializer, Serialize as _, Serializer, de::Error as _};

    pub(super) fn serialize<S: Serializer>(bytes: &Option<Vec<u8>>, serializer: S) -> Result<S::Ok, S::Error> {
        bytes.as_ref().map(|bytes| STANDARD.encode(bytes)).serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Vec<u8>>, D::Error> {
        let text = Option::<String>::deserialize(deserializer)?;
        text.map(|text| STANDARD.decode(text).map_err(D::Error::custom)).transpose()
    }
}

// === impl Gap ===

impl std::fmt::Display for Gap {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Gap::Commits(max) => write!(f, "there are more than {max} commits"),
            Gap::Touched(max) => write!(f, "more than {max} commits change guarded paths"),
            Gap::Parents(max) => write!(f, "a commit has more than {max} parents"),
            Gap::Tags(max) => write!(f, "more than {max} tags name each other"),
            Gap::Folder(commit) => write!(f, "commit {commit} has a folder in which a name is ambiguous"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_guards_what_is_in_a_folder_and_what_replaces_the_folder() {
        for (pattern, path, expected) in [
            ("landscapes/prod/**", "landscapes/prod/kyma.yaml", true),
            ("landscapes/prod/**", "landscapes/prod/eu/kyma.yaml", true),
            ("landscapes/prod/**", "landscapes/prod", true),
            ("landscapes/prod/**", "landscapes/production/kyma.yaml", false),
            ("landscapes/prod/**", "other/landscapes/prod/kyma.yaml", false),
            ("landscapes/prod", "landscapes/prod/kyma.yaml", true),
            ("prod/**", "prod", true),
            ("prod/**", "landscapes/prod", false),
            ("**/prod/**", "landscapes/prod", true),
            ("*.yaml", "a/b.yaml", true),
            ("*.yaml", "a/b.yml", false),
            ("/a.yaml", "b/a.yaml", false),
            ("Landscapes/**", "landscapes/a", false),
        ] {
            assert!(Guards::check(pattern), "{pattern}");
            assert_eq!(Guards::new(&[pattern.to_owned()]).covers(path), expected, "{pattern} {path}");
        }
    }

    #[test]
    fn a_pattern_that_is_invalid_or_cannot_match_guards_everything() {
        let never = ["./a/**", "a//b", "a/./b", "../a", "a/../b", "a/**/", "/", "//a", "a//"];
        for pattern in ["a[z-a]", "", "#a", "!a"].into_iter().chain(never) {
            assert!(!Guards::check(pattern), "{pattern}");
            assert!(Guards::new(&[pattern.to_owned()]).covers("b"), "{pattern}");
        }
    }

    #[test]
    fn an_object_survives_the_pipe() {
        let object = |bytes| StoredObject { id: Oid::new([1; 20]), bytes };
        for object in [object(None), object(Some(vec![0, 255, 10]))] {
            let text = serde_json::to_string(&object).unwrap();
            assert_eq!(serde_json::from_str::<StoredObject>(&text).unwrap(), object);
        }
    }
}
