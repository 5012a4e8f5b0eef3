//! One file: its documents, each checked by itself. Results are cached by path and blob id, so an
//! unchanged file is not parsed again.

use std::{collections::HashMap, mem, sync::Arc};

use serde_json::Value;

use super::{Allow, Definition, Kind, ModuleObjects, ModuleSource, Options, check, code, module};
use crate::{
    budget::Budget,
    diagnostic::{Diagnostic, Diagnostics, FilePosition, LISTED_MAX, Severity},
    kubernetes,
    name::Key,
    revision::Oid,
    snapshot::{Content, File, Snapshot},
    yaml::{self, ParseError, ParseErrorKind},
};

/// Parse results of the files of the last snapshot. Older results are dropped.
#[derive(Clone, Debug, Default)]
pub struct Cache {
    /// What the results depend on besides the files.
    pub(super) basis: Option<Basis>,
    pub(super) files: HashMap<(Arc<str>, Oid), Arc<FileRead>>,
    files_before: HashMap<(Arc<str>, Oid), Arc<FileRead>>,
    pub(super) modules: HashMap<(String, Oid), Arc<ModuleRead>>,
    modules_before: HashMap<(String, Oid), Arc<ModuleRead>>,
    parsed: usize,
    /// How many errors and warnings of files this pass has listed.
    listed: [usize; 2],
    /// How many of them, and of those of modules, the cache keeps.
    kept: usize,
    /// How many values the definitions of this pass have.
    values: u64,
}

/// Maximum number of problems that a cache keeps with its results. The next pass reads files with more of them again:
/// there is one cache for each source, and together they would take the memory of the daemon.
const KEPT_MAX: usize = 100;

/// The options that affect the result of a single file.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Basis {
    strict: bool,
    allow: Allow,
    namespaces: Vec<String>,
    limits: yaml::Limits,
    kubernetes: Option<kubernetes::Version>,
    with_lists: bool,
}

/// The result of one file.
#[derive(Debug, Default)]
pub(super) struct FileRead {
    pub(super) diagnostics: Diagnostics,
    pub(super) candidates: Vec<Candidate>,
    /// How many values its definitions have: mappings, lists, and what is in them.
    pub(super) values: u64,
}

/// The result of one module's files.
#[derive(Debug)]
pub(super) struct ModuleRead {
    pub(super) diagnostics: Vec<Diagnostic>,
    /// `None` if there is an error among the diagnostics.
    pub(super) objects: Option<Arc<ModuleObjects>>,
    /// What it defines and uses of kinds. Empty unless objects are checked for a version of Kubernetes.
    pub(super) kinds: module::object::Kinds,
}

/// A document of one of our kinds.
#[derive(Clone, Debug)]
pub(super) struct Candidate {
    pub(super) kind: Kind,
    pub(super) key: Key,
    /// The key that its module fields require, if it differs from `key`.
    pub(super) meant: Option<Key>,
    pub(super) place: FilePosition,
    /// The first error and its place, if the document is invalid.
    pub(super) problem: Option<(FilePosition, String)>,
    /// The definition, if the document is valid.
    pub(super) definition: Option<Arc<Definition>>,
    /// Annotation `tidegate.dev/module-path` of a ModuleTemplate, and its place.
    pub(super) module_path: Option<(String, FilePosition)>,
    /// Whether a descriptor must be filled in.
    pub(super) needs_descriptor: bool,
    /// `spec.ocmComponentName` of a ModuleReleaseMeta, whether or not the document is valid.
    pub(super) component: Option<String>,
}

impl Candidate {
    /// What a document says of [`Candidate::component`].
    pub(super) fn component_of(kind: Kind, value: &Value) -> Option<String> {
        let name = value.pointer("/spec/ocmComponentName").and_then(Value::as_str);
        name.filter(|_| kind == Kind::ModuleReleaseMeta).map(str::to_owned)
    }
}

impl Cache {
    /// How many files were parsed since the cache was created.
    pub fn parsed(&self) -> usize {
        self.parsed
    }

    /// How many values the definitions of the last pass have.
    pub fn values(&self) -> u64 {
        self.values
    }

    /// Begins a pass. Results that the pass does not use are dropped when it ends.
    pub(super) fn begin(&mut self, options: &Options) {
        let basis = Basis::from_options(options);
        self.files_before = mem::take(&mut self.files);
        self.modules_before = mem::take(&mut self.modules);
        self.listed = [0; 2];
        self.kept = 0;
        self.values = 0;
        if self.basis.as_ref() != Some(&basis) {
            self.files_before.clear();
            self.modules_before.clear();
            self.basis = Some(basis);
        }
    }

    /// Clears the cache if it was filled with other options.
    pub(super) fn expect(&mut self, options: &Options) {
        let basis = Basis::from_options(options);
        if self.basis.as_ref().is_none_or(|known| *known != basis) {
            *self = Cache { basis: Some(basis), parsed: self.parsed, ..Cache::default() };
        }
    }

    /// The result of a file, if known. Call it between passes.
    pub(super) fn known_file(&self, path: &Arc<str>, file: &File) -> Option<Arc<FileRead>> {
        self.files.get(&(Arc::clone(path), file.id)).cloned()
    }

    /// Whether the result of a module is known. Call it between passes.
    pub(super) fn knows_module(&self, path: &str, tree: Oid) -> bool {
        self.modules.contains_key(&(path.to_owned(), tree))
    }

    /// Adds the results of another cache.
    ///
    /// Takes nothing from a cache that was filled with other options.
    pub fn merge(&mut self, other: Cache) {
        if self.basis.is_none() {
            self.basis.clone_from(&other.basis);
        }
        if self.basis != other.basis {
            return;
        }
        for (key, read) in other.files {
            self.files.entry(key).or_insert(read);
        }
        for (key, read) in other.modules {
            self.modules.entry(key).or_insert(read);
        }
    }

    /// Replaces the objects of each module by what `share` returns: equal objects that others have as well.
    pub fn share_modules(&mut self, share: impl Fn(&Arc<ModuleObjects>) -> Arc<ModuleObjects>) {
        for read in self.modules.values_mut() {
            let objects = read.objects.as_ref().map(&share);
            if let Some(read) = Arc::get_mut(read) {
                read.objects = objects;
            }
        }
    }

    /// Takes the result of a [`Piece`] that [`super::ahead`] returned.
    pub fn take(&mut self, done: Done) {
        match done.0 {
            Outcome::File(path, id, read) => {
                self.parsed += 1;
                self.files.insert((path, id), Arc::new(read));
            }
            Outcome::Module(path, tree, read) => {
                self.modules.insert((path, tree), Arc::new(read));
            }
        }
    }

    /// Ends a pass.
    pub(super) fn end(&mut self) {
        self.files_before = HashMap::new();
        self.modules_before = HashMap::new();
    }

    /// The result of a file; parses it if necessary.
    pub(super) fn file(&mut self, path: &Arc<str>, file: &File, options: &Options) -> Arc<FileRead> {
        let key = (Arc::clone(path), file.id);
        if let Some(read) = self.files.get(&key) {
            return Arc::clone(read);
        }
        if options.room.was_exceeded() {
            return Arc::default();
        }
        let known = self.files_before.remove(&key);
        let read = known.unwrap_or_else(|| {
            self.parsed += 1;
            Arc::new(read(path, &file.content, options))
        });
        self.values += read.values;
        if options.budget.was_exceeded() || !options.room.has(self.values) {
            // It may be incomplete, or the last one.
            return read;
        }
        match self.stripped(&read) {
            // Its list is read again by the next pass, if there is room in that.
            Some(stripped) => Arc::new(stripped),
            None => {
                let listed = read.diagnostics.listed(Severity::Error) + read.diagnostics.listed(Severity::Warning);
                if self.has_room(listed) {
                    self.files.insert(key, Arc::clone(&read));
                }
                read
            }
        }
    }

    /// Whether a result with so many problems is kept.
    fn has_room(&mut self, problems: usize) -> bool {
        let is_kept = problems == 0 || self.kept + problems <= KEPT_MAX;
        self.kept += if is_kept { problems } else { 0 };
        is_kept
    }

    /// The result of a file with problems that the pass cannot list any more. A cache that kept the lists of all files
    /// would have no limit.
    fn stripped(&mut self, read: &FileRead) -> Option<FileRead> {
        let mut stripped = None;
        for (severity, listed) in [Severity::Error, Severity::Warning].into_iter().zip(&mut self.listed) {
            let more = read.diagnostics.listed(severity);
            if 0 < more && LISTED_MAX <= *listed {
                let diagnostics = stripped.unwrap_or_else(|| read.diagnostics.clone());
                stripped = Some(diagnostics.counted(severity));
            }
            *listed += more;
        }
        stripped.map(|diagnostics| FileRead { diagnostics, candidates: read.candidates.clone(), values: read.values })
    }

    /// The result of a module's files; parses them if necessary.
    pub(super) fn module(
        &mut self,
        path: &str,
        tree: Oid,
        budget: &Budget,
        read: impl FnOnce() -> ModuleRead,
    ) -> Arc<ModuleRead> {
        let key = (path.to_owned(), tree);
        if let Some(read) = self.modules.get(&key) {
            return Arc::clone(read);
        }
        let read = self.modules_before.remove(&key).unwrap_or_else(|| Arc::new(read()));
        if !budget.was_exceeded() && self.has_room(read.diagnostics.len()) {
            self.modules.insert(key, Arc::clone(&read));
        }
        read
    }
}

/// Work for a [`Cache`]. Pieces are independent, so several threads may run them.
pub struct Piece<'a>(Work<'a>);

enum Work<'a> {
    File(&'a Arc<str>, &'a File, &'a Options),
    Module(&'a Snapshot, ModuleSource, &'a Options),
}

/// The result of a [`Piece`].
pub struct Done(Outcome);

enum Outcome {
    File(Arc<str>, Oid, FileRead),
    Module(String, Oid, ModuleRead),
}

impl<'a> Piece<'a> {
    pub(super) fn file(path: &'a Arc<str>, file: &'a File, options: &'a Options) -> Piece<'a> {
        Piece(Work::File(path, file, options))
    }

    pub(super) fn module(snapshot: &'a Snapshot, source: ModuleSource, options: &'a Options) -> Piece<'a> {
        Piece(Work::Module(snapshot, source, options))
    }

    /// Runs the piece.
    pub fn run(&self) -> Done {
        Done(match &self.0 {
            Work::File(path, file, options) => {
                Outcome::File(Arc::clone(path), file.id, read(path, &file.content, options))
            }
            Work::Module(snapshot, source, options) => {
                Outcome::Module(source.path.clone(), source.tree, module::parse(snapshot, source, options))
            }
        })
    }
}

impl Basis {
    pub(super) fn from_options(options: &Options) -> Basis {
        Basis {
            strict: options.strict,
            allow: options.allow.clone(),
            namespaces: options.namespaces.clone(),
            limits: options.limits,
            kubernetes: options.kubernetes,
            with_lists: options.with_lists,
        }
    }
}

fn read(path: &Arc<str>, content: &Content, options: &Options) -> FileRead {
    let mut read = FileRead::default();
    let bytes = match content {
        Content::Text(bytes) => bytes,
        other => {
            read.diagnostics.extend(unreadable(path, other));
            return read;
        }
    };
    if options.budget.is_over() {
        return read;
    }
    for document in documents(path, bytes, options) {
        if options.budget.is_over() {
            return read;
        }
        match document {
            Ok(node) => {
                let candidate = check::document(&mut read.diagnostics, path, &node, options);
                if let Some(definition) = candidate.as_ref().and_then(|candidate| candidate.definition.as_ref()) {
                    read.values += values(definition.object.value());
                }
                read.candidates.extend(candidate);
            }
            Err(diagnostic) => read.diagnostics.push(diagnostic),
        }
    }
    read
}

/// The documents of a file of definitions.
fn documents(path: &Arc<str>, bytes: &[u8], options: &Options) -> Vec<Result<yaml::Node, Diagnostic>> {
    let parsed = parse(path, bytes, &options.limits);
    if !options.with_lists {
        return parsed;
    }
    let mut all = Vec::new();
    for document in parsed {
        match document {
            Ok(node) => module::flatten(node, &mut all),
            other => all.push(other),
        }
    }
    all
}

/// How many values there are in one, with itself.
fn values(value: &Value) -> u64 {
    1 + match value {
        Value::Array(items) => items.iter().map(values).sum(),
        Value::Object(fields) => fields.values().map(values).sum(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 0,
    }
}

/// The documents of a file. A document that cannot be parsed is its diagnostic.
pub(super) fn parse(path: &Arc<str>, bytes: &[u8], limits: &yaml::Limits) -> Vec<Result<yaml::Node, Diagnostic>> {
    let explain = |error| explain(path, error);
    match yaml::decode(bytes) {
        Ok(text) => yaml::parse_each(text, limits).into_iter().map(|document| document.map_err(explain)).collect(),
        Err(error) => vec![Err(explain(error))],
    }
}

fn explain(path: &Arc<str>, error: ParseError) -> Diagnostic {
    let code = match error.kind {
        ParseErrorKind::Syntax => code::SYNTAX,
        ParseErrorKind::DuplicateKey => code::DUPLICATE_KEY,
        ParseErrorKind::Limit => code::YAML_LIMIT,
        ParseErrorKind::NotUtf8 => code::NOT_UTF8,
        ParseErrorKind::Tag => code::TAG,
    };
    let place = FilePosition::at(path, error.line, error.column);
    Diagnostic { hint: error.hint, ..Diagnostic::error(code, error.message).at(place) }
}

/// Why a file has no content.
pub(super) fn unreadable(path: &str, content: &Content) -> Option<Diagnostic> {
    let error = |code, message: String, hint: &str| {
        Some(Diagnostic::error(code, message).hint(hint).at(FilePosition::file(path)))
    };
    match content {
        Content::Text(_) => None,
        Content::TooLarge { bytes } => error(
            code::FILE_TOO_LARGE,
            format!(
                "the file has {bytes} bytes, more than the limit of 1 MiB for a file, or of 8 MiB for one of a module"
            ),
            "split it, or name it in `ignore` if it contains no definitions",
        ),
        Content::OverBudget => error(
            code::OVER_BUDGET,
            "the file was not read, because the files before it reach the total limit of 64 MiB".to_owned(),
            "add files without definitions to `ignore`, or split the repository into several sources",
        ),
        Content::Symlink => error(
            code::SYMLINK,
            "this is a symbolic link, and Tidegate does not follow links".to_owned(),
            "put the file itself here, or name the link in `ignore`",
        ),
        Content::Submodule => error(
            code::SUBMODULE,
            "this is a submodule, and Tidegate does not fetch submodules".to_owned(),
            "create a GitSource for the other repository, or name the submodule in `ignore`",
        ),
        Content::LfsPointer => error(
            code::LFS_POINTER,
            "this is a Git LFS pointer, not the file itself".to_owned(),
            "store definitions in git itself: `git lfs untrack` the file and commit it again",
        ),
        Content::Ambiguous => error(
            code::AMBIGUOUS_NAME,
            "the folder has several entries of this name, so Tidegate reads none of them".to_owned(),
            "remove all but one: `git fsck` finds the damaged tree",
        ),
        Content::NameNotUtf8 => error(
            code::NAME_NOT_UTF8,
            "the name of this file is not UTF-8".to_owned(),
            "rename it; invalid bytes are shown as `\\xNN`",
        ),
    }
}
