//! What users write: custom resources in the files of a snapshot, checked before anything is applied.
//!
//! [`read`] finds the files, parses them, checks each definition by itself (schema, CEL, names) and all of them
//! together (references, collisions), and reads the objects of modules that live in git. Every problem is a diagnostic
//! with file, line and column; one bad definition never hides the good ones.
//!
//! # What is withheld
//!
//! A broken definition is withheld: the cluster keeps its last good version. So is what would reach for it:
//!
//! * A ModuleTemplate whose module objects are broken is broken.
//! * A ModuleReleaseMeta is withheld as a whole if one of its channels (or its mandatory version) names a ModuleTemplate
//!   that is broken or absent. Channels are not dropped one by one: that would uninstall a module from every runtime of
//!   the channel, where keeping the old text keeps the version that works.
//! * A Kyma is withheld if it is broken itself, or names a module or a channel that no ModuleReleaseMeta has. It is not
//!   withheld because a ModuleReleaseMeta is: what it refers to stays in the cluster as it was.
//! * A template that only sits beside a withheld release is applied: nothing installs it before a release names it.
//!
//! Nothing here reads a cluster: a reference that leaves the repository resolves if it leads to what the caller says
//! stands [`Elsewhere`], or to a kind that this source must not declare ([`Options::allow`]).
//!
//! Refuses to be clever about broken text: a definition that cannot be parsed is only a diagnostic, since nobody knows
//! what it would have been. While a diagnostic of error level stands, nothing is pruned; so it is not lost either.

mod check;
pub mod code;
mod file;
mod kinds;
mod module;
pub mod near;
mod paths;
mod refer;
mod secret;
mod stored;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    str::FromStr,
    sync::Arc,
};

pub use self::{
    file::{Cache, Done, Piece},
    module::{ModuleObjects, ModuleSource, SourceObject, module_objects},
    secret::mentions_secret,
};
use crate::{
    diagnostic::{Diagnostic, Diagnostics, Place},
    name::Key,
    object::{Digest, Object, ObjectId, PathPart},
    revision::Oid,
    snapshot::{File, Snapshot, is_definition_name},
    yaml,
};

/// The kinds that users write, in the order of apply; pruning goes the other way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// A version of a module.
    ModuleTemplate,
    /// The channels of a module.
    ModuleReleaseMeta,
    /// What is watched in runtimes.
    Watcher,
    /// A runtime.
    Kyma,
}

/// What a source may declare. An empty list allows everything that we know.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Allow {
    /// Kinds.
    pub kinds: Vec<String>,
    /// Namespaces.
    pub namespaces: Vec<String>,
    /// Names, with `*` for any run of characters.
    pub names: Vec<String>,
}

/// Which files are read and what they may say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Folders and files that are read; empty for all.
    pub paths: Vec<String>,
    /// What is not read, in gitignore's syntax.
    pub ignore: Vec<String>,
    /// Folder of template overrides, which are not definitions.
    pub templates: Option<String>,
    /// Whether objects of kinds that are not ours are errors.
    pub strict: bool,
    /// What may be declared.
    pub allow: Allow,
    /// The namespaces whose definitions count. The first is that of definitions without one; empty allows all, with
    /// `kcp-system` as the default.
    pub namespaces: Vec<String>,
    /// What a file may hold.
    pub limits: yaml::Limits,
    /// What stands elsewhere, so that references to it resolve.
    pub elsewhere: Arc<Elsewhere>,
}

/// Definitions that another source or a user brings to the control plane.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Elsewhere {
    /// ModuleTemplates.
    pub templates: BTreeSet<Key>,
    /// ModuleReleaseMetas.
    pub releases: BTreeMap<Key, Channels>,
}

/// What a ModuleReleaseMeta offers to Kymas.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Channels {
    /// These channels.
    Known(BTreeSet<String>),
    /// The module is mandatory: no Kyma asks for it.
    Mandatory,
}

/// A definition that passed all checks.
#[derive(Clone, Debug)]
pub struct Definition {
    /// Its kind.
    pub kind: Kind,
    /// Its namespace and name.
    pub key: Key,
    /// Where it begins.
    pub place: Place,
    /// What is applied: as written, with its namespace, and its descriptor filled in where a module in git has none.
    /// Valid by the schema; defaults are left to the API server.
    pub object: Object,
    /// Digest of [`object`](Self::object).
    pub digest: Digest,
    /// Where the objects of a ModuleTemplate live, if in git.
    pub module: Option<ModuleSource>,
    /// Where its fields stand, for warnings that name one.
    pub fields: Arc<yaml::Positions>,
}

/// A definition that is not applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Withheld {
    /// Its kind.
    pub kind: Kind,
    /// Its namespace and name.
    pub key: Key,
    /// Where the first reason stands.
    pub place: Place,
    /// The first reason, in one sentence.
    pub message: String,
}

/// A custom resource of a module that is refused where another module is installed in a version whose definition of the
/// kind does not take it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unfit {
    /// The tree of the module that brings it.
    pub tree: Oid,
    /// The module that brings it.
    pub module: Key,
    /// The object.
    pub object: ObjectId,
    /// Where it stands.
    pub place: Place,
    /// The tree of the module that defines its kind.
    pub definer: Oid,
    /// The module that defines its kind.
    pub definer_module: Key,
    /// The ModuleTemplate of that version.
    pub definer_name: String,
    /// What is wrong, in one sentence.
    pub message: String,
}

/// Everything that a snapshot declares.
#[derive(Clone, Debug, Default)]
pub struct Definitions {
    /// What may be applied.
    pub good: BTreeMap<(Kind, Key), Arc<Definition>>,
    /// What may not, by kind and key.
    pub withheld: Vec<Withheld>,
    /// The objects of modules that live in git, by the id of their tree or file.
    pub modules: BTreeMap<Oid, Arc<ModuleObjects>>,
    /// Custom resources of modules that some runtimes will refuse.
    pub unfit: Vec<Unfit>,
    /// What is referred to and not declared here, whether it stands elsewhere or not.
    pub outside: BTreeSet<(Kind, Key)>,
    /// How many files were read for definitions.
    pub files: usize,
}

// === impl Kind ===

impl Kind {
    /// All of them, in the order of apply.
    pub const ALL: [Kind; 4] = [Kind::ModuleTemplate, Kind::ModuleReleaseMeta, Kind::Watcher, Kind::Kyma];

    /// As it stands in `kind`.
    pub fn as_str(self) -> &'static str {
        match self {
            Kind::ModuleTemplate => "ModuleTemplate",
            Kind::ModuleReleaseMeta => "ModuleReleaseMeta",
            Kind::Watcher => "Watcher",
            Kind::Kyma => "Kyma",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Kind {
    type Err = UnknownKind;

    fn from_str(text: &str) -> Result<Kind, UnknownKind> {
        Kind::ALL.into_iter().find(|kind| kind.as_str() == text).ok_or_else(|| UnknownKind(text.to_owned()))
    }
}

/// A text names none of our kinds.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is none of the kinds that git declares")]
pub struct UnknownKind(pub String);

// === impl Definition ===

impl Definition {
    /// Where it says in which folder the objects of its module are; `None` if they are in none.
    pub fn module_place(&self) -> Option<Place> {
        self.module.as_ref()?;
        let path = ["metadata", "annotations", crate::api::names::annotation::MODULE_PATH].map(PathPart::from);
        let (line, column) = self.fields.position(&path);
        Some(Place::at(&self.place.path, line, column))
    }
}

// === impl Options ===

impl Default for Options {
    fn default() -> Options {
        Options {
            paths: Vec::new(),
            ignore: Vec::new(),
            templates: None,
            strict: false,
            allow: Allow::default(),
            namespaces: vec![crate::api::names::KCP_NAMESPACE.to_owned()],
            limits: yaml::Limits::default(),
            elsewhere: Arc::default(),
        }
    }
}

// === impl Elsewhere ===

impl Elsewhere {
    /// Of all this, what is referred to: nothing else can change what a source's definitions come to.
    #[must_use]
    pub fn of_interest(&self, outside: &BTreeSet<(Kind, Key)>) -> Elsewhere {
        let keys = |kind| outside.iter().filter(move |(of, _)| *of == kind).map(|(_, key)| key);
        let releases = keys(Kind::ModuleReleaseMeta);
        Elsewhere {
            templates: keys(Kind::ModuleTemplate).filter(|key| self.templates.contains(*key)).cloned().collect(),
            releases: releases.filter_map(|key| Some((key.clone(), self.releases.get(key)?.clone()))).collect(),
        }
    }
}

// === impl Definitions ===

impl Definitions {
    /// Everything that is declared, good or withheld: what must not be pruned.
    pub fn declared(&self) -> BTreeSet<(Kind, Key)> {
        let good = self.good.keys().cloned();
        good.chain(self.withheld.iter().map(|withheld| (withheld.kind, withheld.key.clone()))).collect()
    }
}

/// Reads all definitions of a snapshot.
///
/// The cache makes a pass cheap: what did not change since the last one is not parsed again. The result and the
/// diagnostics do not depend on it.
pub fn read(diagnostics: &mut Diagnostics, snapshot: &Snapshot, options: &Options, cache: &mut Cache) -> Definitions {
    let mut found = Diagnostics::default();
    let mut definitions = read_all(&mut found, snapshot, options, cache);
    let mut texts = BTreeMap::new();
    let mut text_of = |place: &Place| -> Option<&str> {
        *texts.entry(Arc::clone(&place.path)).or_insert_with(|| secret::of(snapshot, &place.path))
    };
    diagnostics.extend(found.into_iter().map(|diagnostic| match diagnostic.place.as_ref().and_then(&mut text_of) {
        Some(text) => secret::conceal(diagnostic, text),
        None => diagnostic,
    }));
    for withheld in &mut definitions.withheld {
        if let Some(text) = text_of(&withheld.place) {
            withheld.message = secret::sentence(&withheld.message, text, true);
        }
    }
    definitions
}

fn read_all(diagnostics: &mut Diagnostics, snapshot: &Snapshot, options: &Options, cache: &mut Cache) -> Definitions {
    cache.begin(options);
    let selection = paths::Selection::new(diagnostics, snapshot, options);
    let files = Files::of(snapshot, &selection);
    let mut reads: Vec<(&Arc<str>, Arc<file::FileRead>)> =
        files.naming.iter().map(|(path, file)| (*path, cache.file(path, file, options))).collect();
    let (mut sources, mut module_paths) = module_sources(snapshot, &reads);
    // What lies below a module path is read as objects of that module, and only so.
    let rest = files.rest.iter().filter(|(path, _)| !is_of_module(&module_paths, path));
    reads.extend(rest.map(|(path, file)| (*path, cache.file(path, file, options))).collect::<Vec<_>>());
    reads.sort_by_key(|(path, _)| *path);
    let mut named = reads.iter().flat_map(|(_, read)| &read.candidates).filter_map(|one| one.module_path.as_ref());
    if named.any(|(_, place)| !files.is_naming(&place.path)) {
        // The annotation may be written in a way that a search for its text does not find. Then everything is read first.
        let all = files.naming.iter().chain(&files.rest);
        reads = all.map(|(path, file)| (*path, cache.file(path, file, options))).collect();
        reads.sort_by_key(|(path, _)| *path);
        (sources, module_paths) = module_sources(snapshot, &reads);
    }
    let own: Vec<_> = reads.iter().filter(|(path, _)| !is_of_module(&module_paths, path)).collect();
    for (_, read) in &own {
        diagnostics.extend(read.diagnostics.iter().cloned());
    }
    let candidates: Vec<_> = own.iter().flat_map(|(_, read)| &read.candidates).collect();
    let definitions = refer::resolve(diagnostics, snapshot, options, cache, &candidates, &sources);
    let files = own.iter().filter(|(path, _)| is_definition_name(path)).count();
    cache.end();
    Definitions { files, ..definitions }
}

/// The next pieces of work that [`read`] would do, for whoever has several threads: do them in any order, give the results
/// to [`Cache::take`], and ask again until there are none.
pub fn ahead<'a>(cache: &mut Cache, snapshot: &'a Snapshot, options: &'a Options) -> Vec<Piece<'a>> {
    cache.expect(options);
    let selection = paths::Selection::new(&mut Diagnostics::default(), snapshot, options);
    let files = Files::of(snapshot, &selection);
    let missing = |files: &[(&'a Arc<str>, &'a File)]| -> Vec<Piece<'a>> {
        let missing = files.iter().filter(|(path, file)| cache.known_file(path, file).is_none());
        missing.map(|(path, file)| Piece::file(path, file, options)).collect()
    };
    let naming = missing(&files.naming);
    if !naming.is_empty() {
        return naming;
    }
    let reads: Vec<(&Arc<str>, Arc<file::FileRead>)> =
        files.naming.iter().filter_map(|(path, file)| Some((*path, cache.known_file(path, file)?))).collect();
    let (sources, module_paths) = module_sources(snapshot, &reads);
    let rest: Vec<_> = files.rest.iter().filter(|(path, _)| !is_of_module(&module_paths, path)).copied().collect();
    let mut pieces = missing(&rest);
    let sources: BTreeMap<String, ModuleSource> =
        sources.into_values().filter_map(Result::ok).map(|source| (source.path.clone(), source)).collect();
    let unread = sources.into_values().filter(|source| !cache.knows_module(&source.path, source.tree));
    pieces.extend(unread.map(|source| Piece::module(snapshot, source, &options.limits)));
    pieces
}

/// The files that are read for definitions, in the order of paths.
struct Files<'a> {
    /// Those that may name a module path.
    naming: Vec<(&'a Arc<str>, &'a File)>,
    /// All others.
    rest: Vec<(&'a Arc<str>, &'a File)>,
}

impl<'a> Files<'a> {
    fn of(snapshot: &'a Snapshot, selection: &paths::Selection) -> Files<'a> {
        let covered = snapshot.files.iter().filter(|(path, file)| {
            // A link or a submodule may stand for a folder of definitions, whatever its name.
            if file.text().is_some() { selection.takes(path) } else { selection.covers(path) }
        });
        let (naming, rest) = covered.partition(|(_, file)| {
            let text = file.text().and_then(|bytes| std::str::from_utf8(bytes).ok());
            text.is_some_and(|text| text.contains(crate::api::names::annotation::MODULE_PATH))
        });
        Files { naming, rest }
    }

    fn is_naming(&self, path: &str) -> bool {
        self.naming.binary_search_by(|(naming, _)| (***naming).cmp(path)).is_ok()
    }
}

/// Whether a file lies at or below one of the paths.
fn is_of_module(module_paths: &BTreeSet<String>, path: &str) -> bool {
    let ends = path.match_indices('/').map(|(end, _)| end).chain([path.len()]);
    !module_paths.is_empty()
        && (module_paths.contains("") || ends.into_iter().any(|end| module_paths.contains(&path[..end])))
}

/// By the place of its annotation, where each module in git lives, or why that cannot be used.
type Sources = BTreeMap<Place, Result<ModuleSource, Diagnostic>>;

/// Where the modules live that templates name, and the folders and files of their objects.
///
/// A template below a module path is one of that module's documents and names nothing; what comes first in the order
/// of paths decides.
fn module_sources(snapshot: &Snapshot, reads: &[(&Arc<str>, Arc<file::FileRead>)]) -> (Sources, BTreeSet<String>) {
    let (mut sources, mut module_paths) = (BTreeMap::new(), BTreeSet::new());
    for candidate in reads.iter().flat_map(|(_, read)| &read.candidates) {
        let Some((written, place)) = &candidate.module_path else { continue };
        if is_of_module(&module_paths, &place.path) {
            continue;
        }
        let located = module::locate(snapshot, place, written);
        if let Ok(source) = &located {
            module_paths.insert(source.path.clone());
        }
        sources.insert(place.clone(), located.map_err(|diagnostic| diagnostic.at(place.clone())));
    }
    (sources, module_paths)
}

#[cfg(test)]
mod tests;
