//! The GitSource that a repository contains about itself: `.tidegate/source.yaml`.
//!
//! It says which files are definitions, where template overrides are, and what the source may declare, for every
//! command and without a flag. It contains no URL, Secret or `verify`: these belong to the control plane, because a
//! commit must not change the rules by which it is trusted. What it says is
//! reviewed with the definitions, so a GitSource in the control plane must not say otherwise: each field that differs
//! is an error at its line. Fields that the file leaves out are free, so that several control planes can read one
//! repository.

use std::sync::Arc;

use serde_json::{Map, Value};

use super::{
    code,
    terms::{TermsError, field_problem},
};
use crate::{
    api::{self, git_source::GitSourceSpec},
    diagnostic::{Diagnostic, FilePosition},
    object::{DisplayPath, PathPart},
    schema::{Schema, duration_nanoseconds},
    snapshot::{Content, File, OWN_FOLDER, Snapshot},
    version_range::VersionRange,
    yaml::{self, Node},
};

/// A GitSource in the repository that it is about.
#[derive(Clone, Debug, PartialEq)]
pub struct SourceFile {
    /// Its settings. The URL is empty.
    pub spec: GitSourceSpec,
    /// Name of the GitSource, if the file names it.
    pub name: Option<String>,
    /// Namespace of the GitSource, if the file names it.
    pub namespace: Option<String>,
    path: Arc<str>,
    /// The spec as written.
    written: Map<String, Value>,
    positions: Arc<yaml::Positions>,
}

/// The name of the file in [`OWN_FOLDER`]. Only it must agree with the GitSource in the control plane.
const NAME: &str = "source.yaml";
/// Fields that belong to the control plane.
const NOT_HERE: [&str; 4] = ["url", "suspend", "bearerTokenFile", "verify"];
/// The fields that have nothing to do with where the repository is and who may read it: what a landscape file has.
const SETTINGS: [&str; 14] = [
    "ref",
    "paths",
    "ignore",
    "templates",
    "allow",
    "onError",
    "allowRewrite",
    "strict",
    "prune",
    "pruneLimit",
    "removalLimit",
    "deletionPolicy",
    "interval",
    "timeout",
];
/// Stands for the URL, which the schema requires.
pub const SOME_URL: &str = "https://repository.invalid/";
/// Maximum length of a value in a message.
const VALUE_LEN_MAX: usize = 200;

// === impl SourceFile ===

impl SourceFile {
    /// Reads the file; `None` if there is none.
    ///
    /// # Errors
    ///
    /// Fails with the first problem of the file.
    pub fn read(snapshot: &Snapshot) -> Result<Option<SourceFile>, Diagnostic> {
        let found = snapshot.files.get_key_value(&*format!("{OWN_FOLDER}/{NAME}"));
        found.map(|(path, file)| parse(path, file, false)).transpose()
    }

    /// As [`SourceFile::read`]. Without that file, takes the only GitSource in the folder: it is the one that a user
    /// applies to the control plane, and may contain a URL and the name of a Secret.
    ///
    /// # Errors
    ///
    /// As [`SourceFile::read`].
    pub fn find(snapshot: &Snapshot) -> Result<Option<SourceFile>, Diagnostic> {
        if let Some(own) = SourceFile::read(snapshot)? {
            return Ok(Some(own));
        }
        let mut sources = snapshot.below(OWN_FOLDER).filter(|(_, file)| is_source(file));
        match (sources.next(), sources.next()) {
            (Some((path, file)), None) => parse(path, file, true).map(Some),
            _ => Ok(None),
        }
    }

    /// The files in the folder with a GitSource, if there are several and none of them is the repository's own one.
    pub fn several(snapshot: &Snapshot) -> Vec<Arc<str>> {
        if snapshot.files.contains_key(&*format!("{OWN_FOLDER}/{NAME}")) {
            return Vec::new();
        }
        let sources = snapshot.below(OWN_FOLDER).filter(|(_, file)| is_source(file));
        let paths: Vec<Arc<str>> = sources.map(|(path, _)| Arc::clone(path)).collect();
        if paths.len() < 2 { Vec::new() } else { paths }
    }

    /// The files in the folder with a GitSource that says what must be signed.
    pub fn with_verify(snapshot: &Snapshot) -> Vec<Arc<str>> {
        let has = |file: &File| documents(file).iter().any(|node| is_git_source(node) && has_verify(node));
        snapshot.below(OWN_FOLDER).filter(|(_, file)| has(file)).map(|(path, _)| Arc::clone(path)).collect()
    }

    /// What a GitSource of the control plane says otherwise, field by field. `spec` is its spec.
    pub fn differences(&self, name: &str, namespace: &str, spec: &GitSourceSpec) -> Vec<Diagnostic> {
        let mut found = Vec::new();
        for (field, own, theirs) in [("name", &self.name, name), ("namespace", &self.namespace, namespace)] {
            if let Some(own) = own.as_deref().filter(|own| *own != theirs) {
                let path = ["metadata".into(), field.into()];
                found.push(self.differs(&path, &Value::from(theirs), &Value::from(own)));
            }
        }
        let theirs = with_defaults(spec);
        let own = with_defaults(&self.spec);
        let mut path = vec![PathPart::from("spec")];
        self.compare(&mut path, &self.written, (&own, &theirs), &mut found);
        found
    }

    /// As [`SourceFile::differences`], of a GitSource of which only the [`settings`] are known.
    pub fn differences_of_settings(&self, name: &str, namespace: &str, spec: &GitSourceSpec) -> Vec<Diagnostic> {
        let mut written = self.written.clone();
        written.retain(|field, _| SETTINGS.contains(&field.as_str()));
        SourceFile { written, ..self.clone() }.differences(name, namespace, spec)
    }

    /// Compares the fields of `written`, in their order.
    fn compare(
        &self,
        path: &mut Vec<PathPart>,
        written: &Map<String, Value>,
        (own, theirs): (&Value, &Value),
        found: &mut Vec<Diagnostic>,
    ) {
        for (field, value) in written {
            let (own, theirs) = (&own[field], &theirs[field]);
            path.push(field.as_str().into());
            match value {
                Value::Object(fields) if !fields.is_empty() => self.compare(path, fields, (own, theirs), found),
                _ if is_same(field, own, theirs) => {}
                _ => found.push(self.differs(path, theirs, own)),
            }
            path.pop();
        }
    }

    fn differs(&self, path: &[PathPart], theirs: &Value, own: &Value) -> Diagnostic {
        let shown = |value: &Value| match value {
            Value::Null => "nothing".to_owned(),
            // In the wrong field, it may contain a password.
            value if value.to_string().contains("://") => "a value with a URL".to_owned(),
            value => format!("`{}`", shortened(&value.to_string())),
        };
        let field = DisplayPath(path).to_string();
        let message = format!("the GitSource has {} as `{field}`, and this file {}", shown(theirs), shown(own));
        let (line, column) = self.positions.position(path);
        Diagnostic::error(code::SOURCE_DIFFERS, message)
            .hint("correct one of the two: `tidegate validate` and `tidegate diff` use this file")
            .at(FilePosition::at(&self.path, line, column))
            .of_field(&field)
    }
}

/// The settings of a GitSource that a repository's own file may say as well, without anything about its server.
pub fn settings(spec: &GitSourceSpec) -> Value {
    let mut spec = serde_json::to_value(spec).unwrap_or_default();
    if let Some(fields) = spec.as_object_mut() {
        fields.retain(|field, _| SETTINGS.contains(&field.as_str()));
    }
    spec
}

/// Maximum number of files that a message names.
const SEVERAL_MAX: usize = 5;

/// What a user reads if several files of a folder could be the GitSource of a repository, and what to do. `below` is
/// the repository's folder in its checkout, and `files` are those of [`SourceFile::several`].
pub fn several_sources(below: &str, files: &[Arc<str>]) -> Option<(String, String)> {
    let names = files.iter().take(SEVERAL_MAX).map(|path| format!("{below}/{path}"));
    let names: Vec<String> = names.map(|path| path.trim_start_matches('/').to_owned()).collect();
    let first = names.first()?;
    let problem = format!("`{OWN_FOLDER}` has several GitSources ({})", names.join(", "));
    Some((problem, format!("choose one of them with `--source-file {first}`")))
}

/// Gives a GitSource that names no repository this URL, as the file in a repository does not. Returns whether it lacked
/// one.
pub fn with_url(source: &mut Value, url: &str) -> bool {
    if source["spec"].is_null() && source.is_object() {
        source["spec"] = Value::Object(Map::new());
    }
    let lacks = source["spec"].is_object() && source["spec"]["url"].is_null();
    if lacks {
        source["spec"]["url"] = url.into();
    }
    lacks
}

fn shortened(text: &str) -> String {
    let mut shown: String = yaml::printable(text).chars().take(VALUE_LEN_MAX).collect();
    if text.chars().nth(VALUE_LEN_MAX).is_some() {
        shown.push('…');
    }
    shown
}

/// The spec with the defaults of its schema.
fn with_defaults(spec: &GitSourceSpec) -> Value {
    let mut source = serde_json::json!({"spec": spec});
    if let Some(schema) = schema() {
        schema.default(&mut source);
    }
    source["spec"].take()
}

fn schema() -> Option<Schema> {
    api::crd("GitSource").and_then(|crd| Schema::from_crd(crd).ok())
}

/// Whether two values mean the same. Only patterns of ignored files depend on their order.
fn is_same(field: &str, own: &Value, theirs: &Value) -> bool {
    let nothing = Vec::new();
    let items = |value: &Value| -> Option<Vec<String>> {
        match value {
            Value::Null => Some(Vec::new()),
            Value::Array(_) => {
                let items = value.as_array().unwrap_or(&nothing).iter();
                let mut items: Vec<String> = items.map(|item| trimmed(field, item)).collect();
                if field != "ignore" {
                    items.sort();
                }
                // The root of the repository is all of it, as no path is.
                if field == "paths" && items.iter().any(|item| item.is_empty() || item == ".") {
                    items.clear();
                }
                Some(items)
            }
            _ => None,
        }
    };
    let is_nothing = |value: &Value| value.is_null() || value.as_object().is_some_and(Map::is_empty);
    let duration = |value: &Value| value.as_str().and_then(duration_nanoseconds);
    own == theirs
        || (is_nothing(own) && is_nothing(theirs))
        || items(own).is_some_and(|own| items(theirs) == Some(own))
        || duration(own).is_some_and(|own| duration(theirs) == Some(own))
        || (own.is_string() && theirs.is_string() && trimmed(field, own) == trimmed(field, theirs))
}

/// The text of an item; of a path without what does not matter.
fn trimmed(field: &str, item: &Value) -> String {
    let text = item.as_str().map_or_else(|| item.to_string(), str::to_owned);
    match field {
        "paths" | "templates" => text.trim_start_matches("./").trim_matches('/').to_owned(),
        _ => text,
    }
}

/// Whether a file contains a GitSource.
fn is_source(file: &File) -> bool {
    documents(file).iter().any(is_git_source)
}

/// The documents of a file; none if it cannot be read.
fn documents(file: &File) -> Vec<Node> {
    let text = file.text().and_then(|bytes| std::str::from_utf8(bytes).ok());
    text.and_then(|text| yaml::parse(text, &yaml::Limits::default()).ok()).unwrap_or_default()
}

fn has_verify(node: &Node) -> bool {
    node.get("spec").is_some_and(|spec| spec.get("verify").is_some())
}

fn is_git_source(node: &Node) -> bool {
    node.get("kind").and_then(Node::as_str) == Some("GitSource")
}

/// `is_applied`: users apply the file to a control plane.
fn parse(path: &Arc<str>, file: &File, is_applied: bool) -> Result<SourceFile, Diagnostic> {
    let problem = |(line, column): (u32, u32), message: String| {
        Diagnostic::error(code::SOURCE_FILE, message)
            .hint("`docs/diff.md` shows an example")
            .at(FilePosition::at(path, line, column))
    };
    let text = text_of(file).map_err(|message| problem((0, 0), message))?;
    let documents = yaml::parse(text, &yaml::Limits::default())
        .map_err(|error| problem((error.line, error.column), error.message))?;
    let mut sources = documents.iter().filter(|node| is_git_source(node));
    let (Some(node), None) = (sources.next(), sources.next()) else {
        return Err(problem((1, 1), "the file must contain exactly one GitSource".to_owned()));
    };
    let mut value = node.to_json();
    let spec = value["spec"].as_object().cloned().unwrap_or_default();
    let forbidden = (!is_applied).then(|| not_here(&spec)).flatten();
    if let Some(forbidden) = forbidden {
        let why = match forbidden.get(1) {
            Some(PathPart::Key(field)) if field == "verify" => {
                "a commit must not change the rules by which it is verified; only the GitSource in the control plane \
                 has it"
            }
            _ => "only the GitSource in the control plane has it",
        };
        let message = format!("`{}` does not belong here: {why}", DisplayPath(&forbidden));
        return Err(problem(node.key_position(&forbidden), message));
    }
    let named = |field: &str| value["metadata"][field].as_str().map(str::to_owned);
    let (name, namespace) = (named("name"), named("namespace"));
    with_url(&mut value, SOME_URL);
    // The API server checks metadata once the object has a name.
    if value["metadata"].is_null() {
        value["metadata"] = Value::Object(Map::new());
    }
    if value["metadata"].is_object() && value["metadata"]["name"].is_null() {
        value["metadata"]["name"] = "source".into();
    }
    if let Some(violation) = schema().and_then(|schema| schema.check(&value).into_iter().next()) {
        return Err(problem(node.key_position(&violation.path), field_problem(&violation, &value)));
    }
    // The error would repeat a value.
    let mut spec_of: GitSourceSpec = serde_json::from_value(value["spec"].take())
        .map_err(|_| problem((1, 1), "the GitSource does not match its type".to_owned()))?;
    spec_of.url = String::new();
    let semver = spec_of.reference.as_ref().and_then(|reference| reference.semver.as_deref());
    if semver.is_some_and(|range| range.parse::<VersionRange>().is_err()) {
        let path = ["spec".into(), "ref".into(), "semver".into()];
        return Err(problem(node.key_position(&path), TermsError::Versions.to_string()));
    }
    let positions = Arc::new(yaml::Positions::from_node(node));
    Ok(SourceFile { spec: spec_of, name, namespace, path: Arc::clone(path), written: spec, positions })
}

/// The bytes of the file as text. Fails with why there are none.
fn text_of(file: &File) -> Result<&str, String> {
    let why = match &file.content {
        Content::Text(bytes) => {
            return std::str::from_utf8(bytes).map_err(|_| "the file is not UTF-8".to_owned());
        }
        Content::TooLarge { bytes } => format!("the file has {bytes} bytes, which is too large"),
        Content::Symlink => "a symbolic link is not followed: commit the file itself".to_owned(),
        Content::Submodule => "a submodule cannot be here".to_owned(),
        Content::LfsPointer => "the file is a pointer of Git LFS: commit the file itself".to_owned(),
        Content::OverBudget => "the repository has too many bytes of definitions".to_owned(),
        Content::NameNotUtf8 | Content::Ambiguous => "its name is ambiguous".to_owned(),
    };
    Err(why)
}

/// The first field that belongs to the control plane: what says where the repository is, and every Secret.
fn not_here(spec: &Map<String, Value>) -> Option<Vec<PathPart>> {
    fn secret(value: &Value, path: &mut Vec<PathPart>) -> bool {
        let Some(fields) = value.as_object() else { return false };
        for (field, value) in fields {
            path.push(field.as_str().into());
            if field == "secretRef" || field.ends_with("SecretRef") || secret(value, path) {
                return true;
            }
            path.pop();
        }
        false
    }
    let mut path = vec![PathPart::from("spec")];
    if let Some(field) = NOT_HERE.into_iter().find(|field| spec.contains_key(*field)) {
        path.push(field.into());
        return Some(path);
    }
    secret(&Value::Object(spec.clone()), &mut path).then_some(path)
}

#[cfg(test)]
mod tests;
