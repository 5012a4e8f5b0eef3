//! The git sources of the command line: repositories by path or URL, and GitSources in files.
//!
//! A repository on this machine names its source itself, in `.tidegate/source.yaml`; otherwise the source has the name
//! of its folder. A file in that folder may be given as a file with a GitSource as well: the repository is then the one
//! that contains it, if the GitSource names no other.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use tidegate_core::{
    api::{
        self, GitSource,
        git_source::{GitRef, GitSourceSpec},
        names::annotation,
    },
    intake::{self, SourceFile},
    landscape, name,
    schema::Schema,
    snapshot::{Filter, Limits, OWN_FOLDER},
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
    for source in &sources {
        let key = landscape::key(&source.metadata);
        tracing::info!(source = %key, "a source of the command line");
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
    let of_branch = |branch: String| GitRef { branch: Some(branch), ..GitRef::default() };
    let Some(path) = url.path() else {
        let reference = branch.map(of_branch);
        let spec = GitSourceSpec { url: place.to_owned(), reference, ..GitSourceSpec::default() };
        return Ok(source(&name_of(place), namespace, spec));
    };
    let place = git::locate(path).context("cannot find the repository")?;
    anyhow::ensure!(
        place.is_repository,
        "{} is not in a git repository, and the daemon reads commits only: make it a repository, and commit its files",
        path.display()
    );
    let own = own_file(&place.root, branch.as_deref())?;
    let (name, own_namespace, own) = own.map(|own| (own.name, own.namespace, own.spec)).unwrap_or_default();
    let base = if place.below.is_empty() { place.root.display().to_string() } else { place.below.clone() };
    let paths = Some(place.below).filter(|below| !below.is_empty()).map(|below| vec![below]);
    let reference = branch.map(of_branch).or(own.reference.clone());
    let spec = GitSourceSpec {
        url: place.root.display().to_string(),
        reference: reference.or_else(|| checked_out(&place.root).map(of_branch)),
        paths: paths.unwrap_or_else(|| own.paths.clone()),
        // A file that users apply to the control plane has what the repository's server needs. A folder needs none.
        secret_ref: None,
        bearer_token_file: None,
        proxy_secret_ref: None,
        receiver: None,
        suspend: false,
        ..own
    };
    Ok(source(&name.unwrap_or_else(|| name_of(&base)), own_namespace.as_deref().unwrap_or(namespace), spec))
}

fn source(name: &str, namespace: &str, spec: GitSourceSpec) -> GitSource {
    let mut source = GitSource::new(name, spec);
    source.metadata.namespace = Some(namespace.to_owned());
    source
}

/// What a repository says of its GitSource, as commands read it: the daemon refuses a revision that says otherwise.
/// `None` if it says nothing, or has no commit yet. Fails with the first problem of the file, or if several files could
/// be it.
fn own_file(root: &Path, branch: Option<&str>) -> anyhow::Result<Option<SourceFile>> {
    let nothing_else = Filter::default().within_folder("", &[], &["*".to_owned()]);
    let revision = branch.unwrap_or("HEAD");
    match git::resolve_after(root, revision, None, &nothing_else, Limits::default()) {
        Ok(snapshot) => {
            if let Some((problem, next)) = intake::several_sources("", &SourceFile::several(&snapshot)) {
                anyhow::bail!("{problem}: {next}");
            }
            SourceFile::find(&snapshot).map_err(|problem| anyhow::anyhow!("{problem}"))
        }
        // A fetch says it, and tries again.
        Err(_) => Ok(None),
    }
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
        let mut value = document.to_json();
        if value.is_null() {
            continue;
        }
        anyhow::ensure!(
            value["apiVersion"] == "tidegate.dev/v1alpha1" && value["kind"] == "GitSource",
            "{file}:{}: only GitSources of tidegate.dev/v1alpha1 are allowed in this file",
            document.line
        );
        let around = repository_around(path);
        if let Some(root) = &around
            && intake::with_url(&mut value, &root.display().to_string())
            && let Some(branch) = checked_out(root)
            && value["spec"]["ref"].is_null()
        {
            value["spec"]["ref"] = serde_json::json!({ "branch": branch });
        }
        anyhow::ensure!(
            !intake::with_url(&mut value, intake::SOME_URL),
            "{file}:{}: the GitSource names no repository: add `spec.url`, or use `--source` with the folder of the \
             repository, which reads its `.tidegate/source.yaml`",
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

/// The repository in whose folder `.tidegate` this file is; `None` for other files.
fn repository_around(file: &Path) -> Option<PathBuf> {
    let canonical = file.canonicalize().ok()?;
    let folder = canonical.parent().filter(|folder| folder.file_name().is_some_and(|name| name == OWN_FOLDER))?;
    let place = git::locate(folder).ok()?;
    (place.is_repository && place.below == OWN_FOLDER).then_some(place.root)
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
