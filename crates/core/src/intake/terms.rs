//! The settings of a GitSource, parsed and with defaults.

use std::time::Duration;

use serde_json::{Value, json};

use super::Policy;
use crate::{
    api::{
        GitSource,
        git_source::{Allow, DeletionPolicy, GitRef, GitSourceSpec, OnError, VerifyMode, VerifyPath},
        names::annotation,
    },
    evidence::Guards,
    object::{Digest, DisplayPath, PathPart},
    revision::Oid,
    schema::{Violation, ViolationKind, cut, duration_nanoseconds},
    version_range::VersionRange,
};

/// The reference to follow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Follow {
    /// The default branch of the repository.
    Default,
    /// A branch.
    Branch(String),
    /// A tag.
    Tag(String),
    /// The tag with the highest version in a range.
    Versions(VersionRange),
    /// A reference by its full name.
    Name(String),
    /// A commit.
    Commit(Oid),
}

/// Which signatures a revision needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verify {
    /// What must be signed.
    pub mode: VerifyMode,
    /// Name of the Secret with the keys, in the GitSource's namespace.
    pub secret: String,
    /// Who may sign changes of which files.
    pub rules: Vec<SignerRule>,
}

/// Who may sign changes of some files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SignerRule {
    /// The files, as a gitignore pattern.
    pub path: String,
    /// Names or fingerprints of keys.
    pub signers: Vec<String>,
}

/// The settings of a GitSource.
#[derive(Clone, Debug)]
pub struct Terms {
    /// The URL. The `git` adapter parses it.
    pub url: String,
    /// The reference to follow.
    pub follow: Follow,
    /// Folders and files with definitions; empty for the whole repository.
    pub paths: Vec<String>,
    /// How often to fetch.
    pub interval: Duration,
    /// Timeout of a fetch together with the check of its revision.
    pub timeout: Duration,
    /// Name of the Secret with credentials, in the GitSource's namespace.
    pub secret: Option<String>,
    /// Name of the Secret with the tokens of the receiver, in the GitSource's namespace; `None` without a receiver.
    pub receiver: Option<String>,
    /// File with a bearer token.
    pub bearer_token_file: Option<String>,
    /// Name of the Secret with the proxy, in the GitSource's namespace.
    pub proxy_secret: Option<String>,
    /// Which signatures a revision needs.
    pub verify: Option<Verify>,
    /// Folder of template overrides.
    pub templates: Option<String>,
    /// Ignored files, as gitignore patterns.
    pub ignore: Vec<String>,
    /// What may be declared.
    pub allow: Allow,
    /// What happens if a definition is invalid.
    pub on_error: OnError,
    /// Whether the branch may be rewritten.
    pub allow_rewrite: bool,
    /// Whether foreign kinds are errors.
    pub strict: bool,
    /// What may be deleted.
    pub policy: Policy,
    /// What happens to the objects if the GitSource is deleted.
    pub deletion: DeletionPolicy,
    /// Whether the source is suspended.
    pub suspend: bool,
    /// The settings as written, for a comparison with the repository's own file.
    pub spec: GitSourceSpec,
}

/// What is wrong with a field of a GitSource, in a message. `source` is the whole object. Repeats no value: a URL may
/// be in the wrong field, and contain a password.
pub fn field_problem(violation: &Violation, source: &Value) -> String {
    let Violation { path, kind, message, .. } = violation;
    // A missing value can make a key of the URL.
    let is_plain = |part: &PathPart| !matches!(part, PathPart::Key(key) if !key.chars().all(is_of_field_name));
    let (path, last) = match path.split_last() {
        Some((last, rest)) if !is_plain(last) => (rest, "a field has an invalid name".to_owned()),
        _ => (&path[..], without_values(message, value_at(source, path))),
    };
    let field = DisplayPath(path);
    let is_url = matches!(path, [PathPart::Key(spec), PathPart::Key(url)] if spec == "spec" && url == "url");
    match kind {
        ViolationKind::Pattern if is_url => format!(
            "{field} must be an https:// URL without user name, password, `?` and `#`, or an absolute path; put \
             credentials into the Secret that spec.secretRef names"
        ),
        ViolationKind::Duplicate => format!("{field}: the list already contains this item"),
        ViolationKind::UnknownField { .. }
        | ViolationKind::Required
        | ViolationKind::Type
        | ViolationKind::Null
        | ViolationKind::Format
        | ViolationKind::Pattern
        | ViolationKind::Enum
        | ViolationKind::TooShort
        | ViolationKind::TooLong
        | ViolationKind::Range
        | ViolationKind::Combination
        | ViolationKind::Rule
        | ViolationKind::Tolerated
        | ViolationKind::Metadata => format!("{field}: {last}"),
    }
}

fn is_of_field_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '/')
}

fn value_at<'a>(source: &'a Value, path: &[PathPart]) -> Option<&'a Value> {
    path.iter().try_fold(source, |value, part| match part {
        PathPart::Key(key) => value.get(key.as_str()),
        PathPart::Index(index) => value.get(*index),
    })
}

/// The message about a value, which it does not repeat.
fn without_values(message: &str, value: Option<&Value>) -> String {
    let Some(Value::String(text)) = value else { return message.to_owned() };
    message.replacen(&format!("`{}`", cut(text)), "the value", 1)
}

/// Why the settings of a GitSource are invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TermsError {
    /// There are several references.
    #[error("spec.ref contains more than one of branch, tag, semver, name and commit")]
    Reference,
    /// The range of versions is invalid.
    #[error("spec.ref.semver is not a range of versions: use a range such as ^1.2 or >=1.0.0 <2.0.0")]
    Versions,
    /// The commit is invalid.
    #[error("spec.ref.commit is not a full commit id of 40 hexadecimal digits")]
    Commit,
    /// A duration is invalid.
    #[error("spec.{field} is not a valid duration: use a value such as 30s, 5m or 1h30m")]
    Duration {
        /// The field.
        field: &'static str,
    },
    /// The interval is too short.
    #[error("spec.interval is below {} s", Terms::INTERVAL_MIN.as_secs())]
    Interval,
    /// A path leaves the repository.
    #[error("spec.{field} contains a path that leaves the repository: use relative paths without `..`")]
    Path {
        /// The field.
        field: &'static str,
    },
    /// A tag is required, and none is followed.
    #[error(
        "spec.verify.mode is {mode:?}, which needs a tag: set spec.ref.tag, spec.ref.semver, or spec.ref.name with \
         refs/tags/…, or use Head"
    )]
    VerifyTag {
        /// The mode.
        mode: VerifyMode,
    },
    /// A pattern is invalid, or cannot match a file.
    #[error(
        "spec.verify.paths: {pattern:?} is not a gitignore pattern that can match a file; write the path from the root of \
         the repository, for example \"landscapes/prod/**\""
    )]
    VerifyPattern {
        /// The pattern.
        pattern: String,
    },
    /// A limit is negative.
    #[error("spec.{field} must not be negative")]
    Limit {
        /// The field.
        field: &'static str,
    },
}

// === impl Terms ===

impl Terms {
    /// Shortest interval, to protect git servers.
    pub const INTERVAL_MIN: Duration = Duration::from_secs(10);
    const INTERVAL: Duration = Duration::from_secs(60);
    const TIMEOUT: Duration = Duration::from_secs(60);

    /// Parses the spec of a GitSource.
    ///
    /// # Errors
    ///
    /// Fails with the first invalid field.
    pub fn from_source(source: &GitSource) -> Result<Terms, TermsError> {
        let spec = &source.spec;
        let interval = duration(spec.interval.as_deref(), "interval", Terms::INTERVAL)?;
        if interval < Terms::INTERVAL_MIN {
            return Err(TermsError::Interval);
        }
        let annotations = source.metadata.annotations.as_ref();
        let confirmed =
            annotations.and_then(|map| map.get(annotation::CONFIRM_PRUNE)).map(|text| text.trim().to_owned());
        Ok(Terms {
            url: spec.url.clone(),
            follow: follow(spec)?,
            paths: spec.paths.iter().map(|path| relative(path, "paths")).collect::<Result<_, _>>()?,
            interval,
            timeout: timeout(spec)?,
            secret: spec.secret_ref.as_ref().map(|secret| secret.name.clone()),
            receiver: spec.receiver.as_ref().map(|receiver| receiver.secret_ref.name.clone()),
            bearer_token_file: spec.bearer_token_file.clone(),
            proxy_secret: spec.proxy_secret_ref.as_ref().map(|secret| secret.name.clone()),
            verify: verify(spec)?,
            templates: spec.templates.as_deref().map(|path| relative(path, "templates")).transpose()?,
            ignore: spec.ignore.clone(),
            allow: spec.allow.clone().unwrap_or_default(),
            on_error: spec.on_error.unwrap_or_default(),
            allow_rewrite: spec.allow_rewrite,
            strict: spec.strict,
            policy: policy(spec, confirmed)?,
            deletion: spec.deletion_policy.unwrap_or_default(),
            suspend: spec.suspend,
            spec: spec.clone(),
        })
    }

    /// Digest of the scope of the source. A change makes the removal of objects from git a mass
    /// deletion.
    pub fn scope(&self) -> String {
        let scope = if self.ignore.is_empty() {
            // As before `ignore` was part of it, so that no status of a landscape is written anew.
            json!([self.url, format!("{:?}", self.follow), self.paths])
        } else {
            json!([self.url, format!("{:?}", self.follow), self.paths, self.ignore])
        };
        Digest::from_value(&scope).short()
    }

    /// Digest of all settings that affect how a commit is read. The repository's own file is compared with all of
    /// them, except those that only the control plane has.
    pub fn reading(&self) -> Digest {
        let compared = GitSourceSpec { url: String::new(), suspend: false, ..self.spec.clone() };
        Digest::from_value(&json!(compared))
    }

    /// Digest of all settings that affect what is fetched.
    pub fn fetching(&self) -> Digest {
        let follow = format!("{:?}", self.follow);
        let verify = self.verify.as_ref().map(Verify::digest);
        let (secrets, token) = ([&self.secret, &self.proxy_secret], &self.bearer_token_file);
        Digest::from_value(&json!([self.url, follow, secrets, token, self.allow_rewrite, verify]))
    }
}

// === impl Verify ===

impl Verify {
    /// Digest of the settings. The keys are not part of it.
    pub fn digest(&self) -> String {
        Digest::from_value(&json!([format!("{self:?}")])).short()
    }
}

/// The signatures that a GitSource asks for.
///
/// # Errors
///
/// Fails if it asks for a tag, and follows none.
pub fn verify(spec: &GitSourceSpec) -> Result<Option<Verify>, TermsError> {
    let Some(asked) = &spec.verify else { return Ok(None) };
    let mode = asked.mode;
    let names_tag = |reference: &GitRef| {
        let name = reference.name.as_deref().unwrap_or_default();
        reference.tag.is_some() || reference.semver.is_some() || name.starts_with("refs/tags/")
    };
    let is_tag = spec.reference.as_ref().is_some_and(names_tag);
    match mode {
        VerifyMode::Tag | VerifyMode::TagAndHead if !is_tag => return Err(TermsError::VerifyTag { mode }),
        VerifyMode::Head | VerifyMode::Tag | VerifyMode::TagAndHead => {}
    }
    if let Some(rule) = asked.paths.iter().find(|rule| !Guards::check(&rule.path)) {
        return Err(TermsError::VerifyPattern { pattern: rule.path.clone() });
    }
    let rule = |rule: &VerifyPath| SignerRule { path: rule.path.clone(), signers: rule.signers.clone() };
    Ok(Some(Verify { mode, secret: asked.secret_ref.name.clone(), rules: asked.paths.iter().map(rule).collect() }))
}

fn follow(spec: &GitSourceSpec) -> Result<Follow, TermsError> {
    let GitRef { branch, tag, semver, name, commit } = spec.reference.clone().unwrap_or_default();
    let versions = semver.map(|text| text.parse().map(Follow::Versions).map_err(|_| TermsError::Versions));
    let commit = commit.map(|text| text.parse().map(Follow::Commit).map_err(|_| TermsError::Commit));
    let (branch, tag, name) =
        (branch.map(Follow::Branch).map(Ok), tag.map(Follow::Tag).map(Ok), name.map(Follow::Name).map(Ok));
    let mut given = [branch, tag, versions, name, commit].into_iter().flatten();
    match (given.next(), given.next()) {
        (None, _) => Ok(Follow::Default),
        (Some(one), None) => one,
        (Some(_), Some(_)) => Err(TermsError::Reference),
    }
}

/// The prune settings of a GitSource. `confirmed` is the commit whose prunes a user confirmed.
///
/// # Errors
///
/// Fails if a limit is negative.
pub fn policy(spec: &GitSourceSpec, confirmed: Option<String>) -> Result<Policy, TermsError> {
    let default = Policy::default();
    let limit = spec.prune_limit.clone().unwrap_or_default();
    let number = |value: i32, field| usize::try_from(value).map_err(|_| TermsError::Limit { field });
    let of_prune = |value: Option<i32>, default| value.map_or(Ok(default), |value| number(value, "pruneLimit"));
    Ok(Policy {
        prune: spec.prune.unwrap_or(default.prune),
        limit_objects: of_prune(limit.objects, default.limit_objects)?,
        limit_percent: of_prune(limit.percent, default.limit_percent)?,
        removal_limit: spec.removal_limit.map(|value| number(value, "removalLimit")).transpose()?,
        confirmed,
        confirm_by: default.confirm_by,
    })
}

/// The timeout of a GitSource.
///
/// # Errors
///
/// Fails if the field is not a duration.
pub fn timeout(spec: &GitSourceSpec) -> Result<Duration, TermsError> {
    duration(spec.timeout.as_deref(), "timeout", Terms::TIMEOUT)
}

/// A path in the repository, without `./` and surrounding slashes. The empty path is the root.
/// Fails if the path leaves the repository.
fn relative(path: &str, field: &'static str) -> Result<String, TermsError> {
    if path.starts_with('/') {
        return Err(TermsError::Path { field });
    }
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty() && *part != ".").collect();
    if parts.contains(&"..") {
        return Err(TermsError::Path { field });
    }
    Ok(parts.join("/"))
}

/// Parses a duration in Go's format, as the API server does: numbers with units, such as `1h30m`, `90s` or `1.5m`.
fn duration(text: Option<&str>, field: &'static str, default: Duration) -> Result<Duration, TermsError> {
    let Some(text) = text else { return Ok(default) };
    let nanoseconds = duration_nanoseconds(text.trim()).and_then(|nanoseconds| u64::try_from(nanoseconds).ok());
    nanoseconds.map(Duration::from_nanos).ok_or(TermsError::Duration { field })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_gos() {
        let parse = |text| duration(Some(text), "interval", Duration::ZERO);
        assert_eq!(parse("1m"), Ok(Duration::from_secs(60)));
        assert_eq!(parse("1h30m"), Ok(Duration::from_secs(5400)));
        assert_eq!(parse("1.5s"), Ok(Duration::from_millis(1500)));
        assert_eq!(parse("250ms"), Ok(Duration::from_millis(250)));
        for bad in ["", "1", "m", "1d", "-1s", "1s x", "1e9999s"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn paths_stay_within_the_repository() {
        assert_eq!(relative("./a//b/", "paths"), Ok("a/b".to_owned()));
        assert_eq!(relative(".", "paths"), Ok(String::new()));
        assert!(relative("/a", "paths").is_err() && relative("a/../b", "paths").is_err());
    }

    #[test]
    fn defaults_are_those_of_the_contract() {
        let terms = Terms::from_source(&GitSource::new("a", GitSourceSpec::default())).unwrap();
        assert_eq!(terms.follow, Follow::Default);
        assert_eq!((terms.interval, terms.timeout), (Duration::from_secs(60), Duration::from_secs(60)));
        assert!(terms.policy.prune && !terms.suspend && terms.deletion == DeletionPolicy::Orphan);
        assert_eq!((terms.policy.limit_objects, terms.policy.limit_percent), (50, 10));
    }

    #[test]
    fn signatures_of_tags_need_a_tag_and_patterns_must_be_valid() {
        let check = |reference: serde_json::Value, mode: &str, path: &str| {
            let rule = json!({"path": path, "signers": ["anna"]});
            let verify = json!({"mode": mode, "secretRef": {"name": "keys"}, "paths": [rule]});
            let spec = json!({"url": "https://git.example.com/a", "ref": reference, "verify": verify});
            super::verify(&serde_json::from_value(spec).unwrap()).map(|found| found.unwrap().mode)
        };
        let (branch, tag) = (|| json!({"branch": "main"}), || json!({"tag": "v1"}));
        assert_eq!(check(branch(), "Head", "a/**"), Ok(VerifyMode::Head));
        assert_eq!(check(tag(), "Tag", "a/**"), Ok(VerifyMode::Tag));
        assert_eq!(check(tag(), "Head", "a/**"), Ok(VerifyMode::Head));
        // A mode that this version does not know asks for everything.
        assert_eq!(check(tag(), "Other", "a/**"), Ok(VerifyMode::TagAndHead));
        assert_eq!(check(branch(), "Tag", "a"), Err(TermsError::VerifyTag { mode: VerifyMode::Tag }));
        let pattern = "a[z-a]".to_owned();
        assert_eq!(check(branch(), "Head", "a[z-a]"), Err(TermsError::VerifyPattern { pattern }));
        let error = check(branch(), "Head", "./landscapes/prod/**").unwrap_err().to_string();
        assert_eq!(
            error,
            "spec.verify.paths: \"./landscapes/prod/**\" is not a gitignore pattern that can match a file; write the path \
             from the root of the repository, for example \"landscapes/prod/**\""
        );
    }

    #[test]
    fn two_references_are_refused() {
        let reference = crate::api::git_source::GitRef {
            branch: Some("main".to_owned()),
            tag: Some("v1".to_owned()),
            ..GitRef::default()
        };
        let spec = GitSourceSpec { reference: Some(reference), ..GitSourceSpec::default() };
        assert_eq!(Terms::from_source(&GitSource::new("a", spec)).unwrap_err(), TermsError::Reference);
    }

    #[test]
    fn each_kind_of_reference_is_followed() {
        let follow = |reference: GitRef| {
            let spec = GitSourceSpec { reference: Some(reference), ..GitSourceSpec::default() };
            Terms::from_source(&GitSource::new("a", spec)).map(|terms| terms.follow)
        };
        let text = |text: &str| Some(text.to_owned());
        assert_eq!(follow(GitRef::default()), Ok(Follow::Default));
        assert_eq!(follow(GitRef { branch: text("main"), ..GitRef::default() }), Ok(Follow::Branch("main".to_owned())));
        assert_eq!(follow(GitRef { tag: text("v1"), ..GitRef::default() }), Ok(Follow::Tag("v1".to_owned())));
        let name = "refs/pull/42/head";
        assert_eq!(follow(GitRef { name: text(name), ..GitRef::default() }), Ok(Follow::Name(name.to_owned())));
        let range = Follow::Versions("^1.2".parse().unwrap());
        assert_eq!(follow(GitRef { semver: text("^1.2"), ..GitRef::default() }), Ok(range));
        assert_eq!(follow(GitRef { semver: text("newest"), ..GitRef::default() }), Err(TermsError::Versions));
        assert_eq!(follow(GitRef { commit: text("abc"), ..GitRef::default() }), Err(TermsError::Commit));
    }

    #[test]
    fn the_scope_is_url_ref_paths_and_ignore_and_nothing_else() {
        let scope = |change: fn(&mut GitSourceSpec)| {
            let mut spec = GitSourceSpec { url: "https://git.example.com/a".to_owned(), ..GitSourceSpec::default() };
            change(&mut spec);
            Terms::from_source(&GitSource::new("a", spec)).unwrap().scope()
        };
        let same = scope(|_| {});
        assert_eq!(same, scope(|spec| spec.interval = Some("5m".to_owned())));
        assert_ne!(same, scope(|spec| spec.paths = vec!["a".to_owned()]));
        assert_ne!(same, scope(|spec| spec.ignore = vec!["a".to_owned()]));
        assert_ne!(same, scope(|spec| spec.url.push('b')));
    }
}
