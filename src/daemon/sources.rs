//! The git sources of the command line: repositories by path or URL, and GitSources in files.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use tidegate_core::{
    api::{
        self, GitSource,
        git_source::{GitRef, GitSourceSpec},
        names::annotation,
    },
    intake, name,
    schema::Schema,
    yaml,
};
use tidegate_git as git;

use crate::config::Config;

/// Reads and checks all of them. A source without a namespace gets the daemon's first one. Fails if a source is
/// invalid, or if two sources have the same name.
pub(super) fn load(config: &Config) -> anyhow::Result<Vec<GitSource>> {
    let namespace = config.namespaces.first().map_or(api::names::KCP_NAMESPACE, String::as_str);
    let mut sources = Vec::new();
    for text in &config.sources {
        sources.push(named(text, namespace).with_context(|| "cannot use a --source".to_owned())?);
    }
    for path in &config.source_files {
        sources.extend(in_file(path, namespace)?);
    }
    if let Some(commit) = &config.confirm_prune {
        let confirmation = (annotation::CONFIRM_PRUNE.to_owned(), commit.clone());
        sources
            .iter_mut()
            .for_each(|source| source.metadata.annotations.get_or_insert_default().extend([confirmation.clone()]));
    }
    for (position, source) in sources.iter().enumerate() {
        let same = |other: &&GitSource| other.metadata.name == source.metadata.name;
        anyhow::ensure!(
            !sources[..position].iter().any(|other| same(&other)),
            "two sources on the command line have the name `{}`",
            source.metadata.name.as_deref().unwrap_or_default()
        );
    }
    Ok(sources)
}

/// Creates a source from `PATH`, `URL`, `PATH#BRANCH` or `URL#BRANCH`. Without a branch, it follows the one that is
/// checked out for a path, and the default branch of the repository for a URL.
fn named(text: &str, namespace: &str) -> anyhow::Result<GitSource> {
    let (place, branch) = match text.split_once('#') {
        Some((place, branch)) => (place, Some(branch.to_owned())),
        None => (text, None),
    };
    // The error does not repeat the URL, which may contain a password.
    let url: git::Url = place.parse().context("invalid repository URL")?;
    anyhow::ensure!(url.is_encrypted(), "http:// is not encrypted; use https:// or ssh://");
    let (url, paths, branch, base) = match url.path() {
        None => (place.to_owned(), Vec::new(), branch, place.to_owned()),
        Some(path) => {
            let place = git::locate(path).context("cannot find the repository")?;
            anyhow::ensure!(place.is_repository, "{} is not in a git repository", path.display());
            let branch = branch.or_else(|| checked_out(&place.root));
            let paths: Vec<String> = Some(place.below.clone()).filter(|below| !below.is_empty()).into_iter().collect();
            let base = if place.below.is_empty() { place.root.display().to_string() } else { place.below };
            (place.root.display().to_string(), paths, branch, base)
        }
    };
    let spec = GitSourceSpec {
        url,
        reference: branch.map(|branch| GitRef { branch: Some(branch), ..GitRef::default() }),
        paths,
        ..GitSourceSpec::default()
    };
    let mut source = GitSource::new(&name_of(&base), spec);
    source.metadata.namespace = Some(namespace.to_owned());
    Ok(source)
}

/// The branch of a repository's `HEAD`.
fn checked_out(root: &Path) -> Option<String> {
    let head = |path: PathBuf| std::fs::read_to_string(path).ok();
    let head = head(root.join(".git/HEAD")).or_else(|| head(root.join("HEAD")))?;
    head.trim().strip_prefix("ref: refs/heads/").map(str::to_owned)
}

/// The name of the source: the last part of its path or URL, as a valid object name.
fn name_of(place: &str) -> String {
    let last = place.trim_end_matches('/').rsplit('/').next().unwrap_or_default();
    let last = last.strip_suffix(".git").unwrap_or(last);
    let lower = last.to_ascii_lowercase();
    let name: String = lower.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).take(63).collect();
    let name = name.trim_matches('-');
    if name.is_empty() { "source".to_owned() } else { name.to_owned() }
}

/// Reads the GitSources of a file, which have the same fields as in KCP.
fn in_file(path: &Path, namespace: &str) -> anyhow::Result<Vec<GitSource>> {
    let file = path.display();
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {file}"))?;
    let documents = yaml::parse(&text, &yaml::Limits::default())
        .map_err(|error| anyhow::anyhow!("{file}:{}:{}: {}", error.line, error.column, error.message))?;
    let schema = schema()?;
    let mut sources = Vec::new();
    for document in documents {
        let value = document.to_json();
        if value.is_null() {
            continue;
        }
        anyhow::ensure!(
            value["apiVersion"] == "tidegate.dev/v1alpha1" && value["kind"] == "GitSource",
            "{file}:{}: only GitSources of tidegate.dev/v1alpha1 are allowed in this file",
            document.line
        );
        if let Some(violation) = schema.check(&value).into_iter().next() {
            let (line, column) = document.key_position(&violation.path);
            anyhow::bail!("{file}:{line}:{column}: {}", intake::field_problem(&violation, &value));
        }
        // The error would repeat a value.
        let source = serde_json::from_value(value).ok();
        let mut source: GitSource =
            source.with_context(|| format!("{file}:{}: the GitSource does not match its type", document.line))?;
        name::check_subdomain(source.metadata.name.as_deref().unwrap_or_default())
            .with_context(|| format!("{file}:{}: metadata.name", document.line))?;
        source.metadata.namespace.get_or_insert_with(|| namespace.to_owned());
        sources.push(source);
    }
    anyhow::ensure!(!sources.is_empty(), "{file} contains no GitSource");
    Ok(sources)
}

fn schema() -> anyhow::Result<Schema> {
    let crd = api::crd("GitSource").context("GitSource has a definition")?;
    let version = crd.spec.versions.first().context("GitSource has a version")?;
    let props = version
        .schema
        .as_ref()
        .and_then(|schema| schema.open_api_v3_schema.as_ref())
        .context("GitSource has a schema")?;
    Schema::compile(props).context("the schema of GitSource can be used")
}

#[cfg(test)]
mod tests;
