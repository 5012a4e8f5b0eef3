//! What users write: custom resources in the files of a snapshot, checked before anything is applied.
//!
//! [`read`] finds the files and parses them. It checks each definition by itself (schema, CEL,
//! names) and all of them together (references, collisions). It also reads the objects of modules
//! that live in git. Every problem is a diagnostic with file, line and column. One invalid
//! definition never hides the valid ones.
//!
//! # What is held back
//!
//! An invalid definition is held back: the cluster keeps its last good version. So are definitions
//! that refer to it:
//!
//! * A ModuleTemplate is invalid if its module objects are.
//! * A ModuleReleaseMeta is held back as a whole if one of its channels (or its mandatory version)
//!   names a ModuleTemplate that is invalid or missing. To drop only the channel would uninstall
//!   the module from every runtime of the channel.
//! * A Kyma is held back if it is invalid, or names a module or a channel that no ModuleReleaseMeta
//!   has. It is not held back because a ModuleReleaseMeta is: the old ModuleReleaseMeta stays in
//!   the cluster.
//! * A ModuleTemplate is applied even if its ModuleReleaseMeta is held back: nothing installs it
//!   before a release names it.
//!
//! This module never reads a cluster. A reference that leaves the repository resolves if its target
//! exists [`Elsewhere`], or if this source must not declare the kind ([`Options::allow`]).
//!
//! It does not guess: a definition that cannot be parsed is only a diagnostic. While there is a
//! diagnostic of error level, nothing is pruned, so the definition is not lost either.

mod check;
pub mod code;
mod file;
mod kinds;
mod layout;
mod module;
mod namespaces;
pub mod near;
mod paths;
mod refer;
mod secret;
mod stored;

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
    fmt,
    str::FromStr,
    sync::Arc,
};

pub(crate) use self::paths::normalise;
pub use self::{
    file::{Cache, Done, Piece},
    module::{ModuleNames, ModuleObjects, ModuleSource, SourceObject, layer_objects, module_objects},
    secret::mentions_secret,
};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;

use crate::{
    api::{self, KYMA_GROUP, KYMA_VERSION, git_source, setup},
    budget::{Budget, Room},
    content::ContentId,
    diagnostic::{Diagnostic, Diagnostics, FilePosition, LISTED_MAX},
    kubernetes,
    name::Key,
    object::{Digest, Object, ObjectId, PathPart},
    snapshot::{self, File, Snapshot, is_below_any, is_definition_name},
    yaml,
};

/// The kinds that users write, in the order of apply. Pruning uses the reverse order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// A version of a module.
    ModuleTemplate,
    /// The channels of a module.
    ModuleReleaseMeta,
    /// The objects to watch in runtimes.
    Watcher,
    /// A runtime.
    Kyma,
    /// A part of a kcp landscape.
    Setup(setup::Kind),
}

/// What a source may declare. An empty list allows everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Allow {
    /// Kinds.
    pub kinds: Vec<String>,
    /// Namespaces.
    pub namespaces: Vec<String>,
    /// Names; `*` matches any run of characters.
    pub names: Vec<String>,
}

impl From<&git_source::Allow> for Allow {
    fn from(allow: &git_source::Allow) -> Allow {
        Allow { kinds: allow.kinds.clone(), namespaces: allow.namespaces.clone(), names: allow.names.clone() }
    }
}

impl Allow {
    /// Whether a source may declare this object.
    pub fn admits(&self, kind: Kind, key: &Key) -> bool {
        self.admits_kind(kind) && self.admits_namespace(key.namespace()) && self.admits_name(key.name())
    }

    fn admits_kind(&self, kind: Kind) -> bool {
        self.kinds.is_empty() || self.kinds.iter().any(|allowed| allowed == kind.as_str())
    }

    fn admits_namespace(&self, namespace: &str) -> bool {
        self.namespaces.is_empty() || self.namespaces.iter().any(|pattern| check::matches(pattern, namespace))
    }

    fn admits_name(&self, name: &str) -> bool {
        self.names.is_empty() || self.names.iter().any(|pattern| check::matches(pattern, name))
    }
}

/// Which files are read, and what they may contain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Folders and files that are read; empty for all.
    pub paths: Vec<String>,
    /// What is not read, in gitignore's syntax.
    pub ignore: Vec<String>,
    /// Folder of template overrides, which contains no definitions.
    pub templates: Option<String>,
    /// Whether objects of foreign kinds are errors.
    pub strict: bool,
    /// What may be declared.
    pub allow: Allow,
    /// The namespaces in which definitions are allowed. The first is the default of definitions
    /// without one. Empty allows all, with `kcp-system` as the default.
    pub namespaces: Vec<String>,
    /// Limits of a file.
    pub limits: yaml::Limits,
    /// Definitions that exist elsewhere, so that references to them resolve.
    pub elsewhere: Arc<Elsewhere>,
    /// The time for all checks together.
    pub budget: Budget,
    /// The memory for all definitions together.
    pub room: Room,
    /// The version of Kubernetes that objects of modules are checked for. `None` leaves that to the API servers.
    pub kubernetes: Option<kubernetes::Version>,
    /// Whether a list of objects stands for its items, as `kubectl get` prints it. The daemon refuses lists.
    pub with_lists: bool,
}

/// Definitions that another source or a user created in the control plane.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Elsewhere {
    /// ModuleTemplates.
    pub templates: BTreeSet<Key>,
    /// ModuleReleaseMetas.
    pub releases: BTreeMap<Key, Channels>,
    /// API groups for which a module of these ModuleTemplates brings CustomResourceDefinitions, as far as its objects
    /// are known. A CustomResourceDefinition's name has the group but not the kind.
    pub groups: BTreeSet<String>,
}

/// What a ModuleReleaseMeta offers to Kymas.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Channels {
    /// These channels.
    Known(BTreeSet<String>),
    /// The module is mandatory: every runtime has it, and no Kyma can select it.
    Mandatory,
}

/// A definition that passed all checks.
#[derive(Clone, Debug)]
pub struct Definition {
    /// Its kind.
    pub kind: Kind,
    /// Its namespace and name.
    pub key: Key,
    /// Where it starts.
    pub place: FilePosition,
    /// The object to apply: as written, plus its namespace and, for a module in git, a generated
    /// descriptor. Valid according to the schema. Defaults are left to the API server.
    pub object: Object,
    /// Digest of [`object`](Self::object).
    pub digest: Digest,
    /// The location of a ModuleTemplate's objects, if they are in git.
    pub module: Option<ModuleSource>,
    /// The positions of its fields, for warnings that name one.
    pub fields: Arc<yaml::Positions>,
}

/// A definition that is not applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Withheld {
    /// Its kind.
    pub kind: Kind,
    /// Its namespace and name.
    pub key: Key,
    /// The place of the first reason.
    pub place: FilePosition,
    /// The first reason, in one sentence.
    pub message: String,
}

/// A custom resource of a module that another module's CRD rejects, in one of that module's
/// versions.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Unfit {
    /// The objects of the module that contains it.
    pub content: ContentId,
    /// The module that contains it.
    pub module: Key,
    /// The object.
    pub object: ObjectId,
    /// The place of the object.
    pub place: FilePosition,
    /// The objects of the module that defines its kind.
    pub definer: ContentId,
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
    /// The valid definitions.
    pub good: BTreeMap<(Kind, Key), Arc<Definition>>,
    /// The definitions that are held back, by kind and key.
    pub withheld: Vec<Withheld>,
    /// What definitions with an invalid name are most likely called, with the place of the problem.
    pub meant: BTreeMap<(Kind, Key), FilePosition>,
    /// The objects of modules in git. Commands add those of modules in registries, as far as a cache has them.
    pub modules: BTreeMap<ContentId, Arc<ModuleObjects>>,
    /// Custom resources of modules that some runtimes will reject.
    pub unfit: Vec<Unfit>,
    /// Referenced objects that are not declared here, whether they exist elsewhere or not.
    pub outside: BTreeSet<(Kind, Key)>,
    /// How many files were read for definitions.
    pub files: usize,
}

/// Whether the definitions of kcp landscapes are applied to the control plane and pruned, as those of other kinds.
/// Otherwise they are only checked, rendered and compared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KcpLandscapes {
    /// They are.
    Applied,
    /// The daemon reconciles no kcp landscapes.
    #[default]
    Off,
    /// The control plane does not serve this kind. Its definition may be the only one that is missing: the kinds refer
    /// to each other, so a part of a landscape is not applied.
    NotServed(setup::Kind),
    /// kcp-operator holds its Lease, so it writes the same objects.
    KcpOperatorRuns,
}

// === impl Kind ===

impl Kind {
    /// All of them, in the order of apply.
    pub const ALL: [Kind; 10] = [
        Kind::ModuleTemplate,
        Kind::ModuleReleaseMeta,
        Kind::Watcher,
        Kind::Kyma,
        Kind::Setup(setup::Kind::CacheServer),
        Kind::Setup(setup::Kind::RootShard),
        Kind::Setup(setup::Kind::FrontProxy),
        Kind::Setup(setup::Kind::Shard),
        Kind::Setup(setup::Kind::VirtualWorkspace),
        Kind::Setup(setup::Kind::Kubeconfig),
    ];

    /// Those of Kyma landscapes. The others are those of kcp landscapes.
    pub const OF_KYMA: [Kind; 4] = [Kind::ModuleTemplate, Kind::ModuleReleaseMeta, Kind::Watcher, Kind::Kyma];

    /// The value of `kind`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Kind::ModuleTemplate => "ModuleTemplate",
            Kind::ModuleReleaseMeta => "ModuleReleaseMeta",
            Kind::Watcher => "Watcher",
            Kind::Kyma => "Kyma",
            Kind::Setup(kind) => kind.as_str(),
        }
    }

    /// The API group and the version that definitions have.
    pub const fn api(self) -> (&'static str, &'static str) {
        match self {
            Kind::ModuleTemplate | Kind::ModuleReleaseMeta | Kind::Watcher | Kind::Kyma => (KYMA_GROUP, KYMA_VERSION),
            Kind::Setup(_) => (setup::SETUP_GROUP, setup::SETUP_VERSION),
        }
    }

    /// Its CustomResourceDefinition.
    pub fn crd(self) -> Cow<'static, CustomResourceDefinition> {
        match self {
            Kind::ModuleTemplate | Kind::ModuleReleaseMeta | Kind::Watcher | Kind::Kyma => {
                let crd = api::crd(self.as_str());
                Cow::Borrowed(crd.expect("every Kyma kind that git declares has a CustomResourceDefinition"))
            }
            Kind::Setup(kind) => Cow::Owned(kind.crd()),
        }
    }

    /// Its place in [`Kind::ALL`].
    pub(crate) fn index(self) -> usize {
        Kind::ALL.iter().position(|kind| *kind == self).expect("the list has all kinds")
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

/// The text is not one of our kinds.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a kind that git declares")]
pub struct UnknownKind(pub String);

/// What a user does while kcp-operator holds its Lease.
pub const KCP_OPERATOR_RUNS: &str = "kcp-operator runs: scale its Deployment to 0, and run `tidegate adopt kcp`; \
                                     Tidegate starts by itself when the Lease 239f9f9a.operator.kcp.io ends";

// === impl KcpLandscapes ===

impl KcpLandscapes {
    /// Whether definitions of a kind are applied.
    pub const fn applies(self, kind: Kind) -> bool {
        match kind {
            Kind::ModuleTemplate | Kind::ModuleReleaseMeta | Kind::Watcher | Kind::Kyma => true,
            Kind::Setup(_) => matches!(self, KcpLandscapes::Applied),
        }
    }

    /// The kinds of definitions that are applied, in the order of apply.
    pub fn kinds(self) -> impl DoubleEndedIterator<Item = Kind> {
        Kind::ALL.into_iter().filter(move |kind| self.applies(*kind))
    }

    /// What a user does so that definitions of kcp landscapes are applied.
    fn hint(self) -> String {
        match self {
            KcpLandscapes::Off => {
                "start the daemon with `--kcp-landscapes`, so that it applies and reconciles kcp landscapes".to_owned()
            }
            KcpLandscapes::NotServed(kind) => {
                format!("the control plane does not serve {}: apply what `tidegate crds --kcp` prints", kind.plural())
            }
            KcpLandscapes::KcpOperatorRuns => KCP_OPERATOR_RUNS.to_owned(),
            KcpLandscapes::Applied => String::new(),
        }
    }
}

// === impl Definition ===

impl Definition {
    /// The place of the annotation with the module path; `None` if the module is not in git.
    pub fn module_place(&self) -> Option<FilePosition> {
        self.module.as_ref()?;
        let path = ["metadata", "annotations", crate::api::names::annotation::MODULE_PATH].map(PathPart::from);
        let (line, column) = self.fields.position(&path);
        Some(FilePosition::at(&self.place.path, line, column))
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
            budget: Budget::default(),
            room: Room::default(),
            kubernetes: None,
            with_lists: false,
        }
    }
}

// === impl Elsewhere ===

impl Elsewhere {
    /// The part of `self` that the definitions refer to. Nothing else can affect the result for a
    /// source.
    #[must_use]
    pub fn of_interest(&self, outside: &BTreeSet<(Kind, Key)>) -> Elsewhere {
        let keys = |kind| outside.iter().filter(move |(of, _)| *of == kind).map(|(_, key)| key);
        let releases = keys(Kind::ModuleReleaseMeta);
        Elsewhere {
            templates: keys(Kind::ModuleTemplate).filter(|key| self.templates.contains(*key)).cloned().collect(),
            releases: releases.filter_map(|key| Some((key.clone(), self.releases.get(key)?.clone()))).collect(),
            groups: self.groups.clone(),
        }
    }
}

// === impl Definitions ===

impl Definitions {
    /// Everything that is declared, valid or held back. None of it may be pruned.
    pub fn declared(&self) -> BTreeSet<(Kind, Key)> {
        let good = self.good.keys().cloned();
        good.chain(self.withheld.iter().map(|withheld| (withheld.kind, withheld.key.clone()))).collect()
    }

    /// The definitions that are held back, also under the name that they are most likely meant to have, with the place
    /// of the problem.
    pub fn broken(&self) -> BTreeMap<(Kind, Key), FilePosition> {
        let meant = self.meant.iter().filter(|(id, _)| !self.good.contains_key(*id));
        let meant = meant.map(|(id, place)| (id.clone(), place.clone()));
        let withheld =
            self.withheld.iter().map(|withheld| ((withheld.kind, withheld.key.clone()), withheld.place.clone()));
        meant.chain(withheld).collect()
    }

    /// Removes the definitions of kinds that the daemon does not apply, with one warning. Nothing of them is applied,
    /// held back or pruned.
    pub fn retain_applied(&mut self, diagnostics: &mut Diagnostics, kcp_landscapes: KcpLandscapes) {
        let is_applied = |kind: Kind| kcp_landscapes.applies(kind);
        let places = self.good.values().map(|definition| (definition.kind, &definition.place));
        let places = places.chain(self.withheld.iter().map(|withheld| (withheld.kind, &withheld.place)));
        let mut places: Vec<_> = places.filter(|(kind, _)| !is_applied(*kind)).map(|(_, place)| place).collect();
        places.sort();
        let Some(first) = places.first() else { return };
        let message = match places.len() {
            1 => "this definition of a kcp landscape is checked, but not applied".to_owned(),
            many => format!("{many} definitions of kcp landscapes are checked, but not applied; this is the first"),
        };
        let hint = kcp_landscapes.hint();
        diagnostics.push(Diagnostic::warning(code::NOT_RECONCILED, message).hint(hint).at((*first).clone()));
        self.good.retain(|(kind, _), _| is_applied(*kind));
        self.withheld.retain(|withheld| is_applied(withheld.kind));
    }
}

/// Reads all definitions of a snapshot.
///
/// The cache makes a pass cheap: unchanged files are not parsed again. The result and the
/// diagnostics do not depend on it.
///
/// If [`Options::budget`] or [`Options::room`] ends before, the result is incomplete and has an error. The cache keeps
/// what was complete.
pub fn read(diagnostics: &mut Diagnostics, snapshot: &Snapshot, options: &Options, cache: &mut Cache) -> Definitions {
    let mut found = Diagnostics::default();
    let mut definitions = read_all(&mut found, snapshot, options, cache);
    let mut texts = BTreeMap::new();
    let mut text_of = |place: &FilePosition| -> Option<&str> {
        *texts.entry(Arc::clone(&place.path)).or_insert_with(|| secret::first_secret(snapshot, &place.path))
    };
    diagnostics.append(found.map(|diagnostic| {
        // What cannot be read may end anywhere.
        let is_broken = [code::SYNTAX, code::DUPLICATE_KEY, code::YAML_LIMIT, code::TAG].contains(&diagnostic.code);
        let line = diagnostic.place.as_ref().map_or(0, |place| place.line);
        match diagnostic.place.as_ref().and_then(&mut text_of) {
            Some(text) if is_broken || secret::is_in_secret(text, line) => secret::conceal(diagnostic, text),
            Some(text) => secret::conceal(diagnostic, &secret::documents(text)),
            None => diagnostic,
        }
    }));
    for (index, withheld) in definitions.withheld.iter_mut().enumerate() {
        if let Some(text) = text_of(&withheld.place) {
            // To search the whole file for each of thousands of messages takes too long. So only the listed ones are
            // searched; the others show nothing that is no field name.
            let message = withheld.message.clone();
            let text = if index < LISTED_MAX { text } else { &message };
            let is_in_secret = LISTED_MAX <= index || secret::is_in_secret(text, withheld.place.line);
            let own = if is_in_secret { Cow::Borrowed(text) } else { Cow::Owned(secret::documents(text)) };
            withheld.message = secret::sentence(&message, &own, is_in_secret);
        }
    }
    definitions
}

fn read_all(diagnostics: &mut Diagnostics, snapshot: &Snapshot, options: &Options, cache: &mut Cache) -> Definitions {
    cache.begin(options);
    let selection = paths::Selection::new(diagnostics, snapshot, options);
    let files = Files::selected(snapshot, &selection);
    let mut reads: Vec<(&Arc<str>, Arc<file::FileRead>)> =
        files.naming.iter().map(|(path, file)| (*path, cache.file(path, file, options))).collect();
    let (mut sources, mut module_paths) = module_sources(snapshot, &reads);
    // Files below a module path are read only as objects of that module.
    let rest = files.rest.iter().filter(|(path, _)| !is_below_any(path, &module_paths));
    reads.extend(rest.map(|(path, file)| (*path, cache.file(path, file, options))).collect::<Vec<_>>());
    reads.sort_by_key(|(path, _)| *path);
    let mut named = reads.iter().flat_map(|(_, read)| &read.candidates).filter_map(|one| one.module_path.as_ref());
    if named.any(|(_, place)| !files.is_naming(&place.path)) {
        // The annotation may be written so that a search for its text does not find it. Then all files are read first.
        let all = files.naming.iter().chain(&files.rest);
        reads = all.map(|(path, file)| (*path, cache.file(path, file, options))).collect();
        reads.sort_by_key(|(path, _)| *path);
        (sources, module_paths) = module_sources(snapshot, &reads);
    }
    let own: Vec<_> = reads.iter().filter(|(path, _)| !is_below_any(path, &module_paths)).collect();
    for (_, read) in &own {
        diagnostics.append(read.diagnostics.clone());
    }
    let candidates: Vec<_> = own.iter().flat_map(|(_, read)| &read.candidates).collect();
    let is_own_chart = |chart: &&str| !is_below_any(chart, &module_paths);
    diagnostics.extend(layout::of_charts(&files.charts.iter().copied().filter(is_own_chart).collect()));
    let definitions = refer::resolve(diagnostics, snapshot, options, cache, &candidates, &sources);
    diagnostics.extend(namespaces::misspelt(definitions.modules.values().map(|module| &**module)));
    let files = own.iter().filter(|(path, _)| is_definition_name(path)).count();
    cache.end();
    if options.budget.was_exceeded() {
        let message = "the definitions could not all be checked in time";
        let hint = "set a longer `spec.timeout` in the GitSource (a command reads it with `--source-file`), or split the \
                    repository";
        diagnostics.push(Diagnostic::error(code::UNFINISHED, message).hint(hint));
    }
    if options.room.was_exceeded() {
        let message = "the definitions take more memory than there is";
        diagnostics.push(Diagnostic::error(code::UNFINISHED, message).hint("split the repository"));
    }
    Definitions { files, ..definitions }
}

/// Whether a file has a definition that is meant, whether or not it is valid. Reads files only until it finds one.
pub fn declares(snapshot: &Snapshot, options: &Options, mut is_meant: impl FnMut(Kind, &Key) -> bool) -> bool {
    let mut cache = Cache::default();
    cache.begin(options);
    let selection = paths::Selection::new(&mut Diagnostics::default(), snapshot, options);
    let files = Files::selected(snapshot, &selection);
    let naming: Vec<(&Arc<str>, Arc<file::FileRead>)> =
        files.naming.iter().map(|(path, file)| (*path, cache.file(path, file, options))).collect();
    let (_, module_paths) = module_sources(snapshot, &naming);
    let mut has_one = |read: &file::FileRead| read.candidates.iter().any(|one| is_meant(one.kind, &one.key));
    if naming.iter().any(|(path, read)| !is_below_any(path, &module_paths) && has_one(read)) {
        return true;
    }
    let mut rest = files.rest.iter().filter(|(path, _)| !is_below_any(path, &module_paths));
    rest.any(|(path, file)| has_one(&cache.file(path, file, options)))
}

/// The next pieces of work that [`read`] would do, for callers with several threads. Run them in
/// any order, pass the results to [`Cache::take`], and repeat until there are none.
pub fn ahead<'a>(cache: &mut Cache, snapshot: &'a Snapshot, options: &'a Options) -> Vec<Piece<'a>> {
    cache.expect(options);
    let selection = paths::Selection::new(&mut Diagnostics::default(), snapshot, options);
    let files = Files::selected(snapshot, &selection);
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
    let rest: Vec<_> = files.rest.iter().filter(|(path, _)| !is_below_any(path, &module_paths)).copied().collect();
    let mut pieces = missing(&rest);
    let sources: BTreeMap<String, ModuleSource> =
        sources.into_values().filter_map(Result::ok).map(|source| (source.path.clone(), source)).collect();
    let unread = sources.into_values().filter(|source| !cache.knows_module(&source.path, source.tree));
    pieces.extend(unread.map(|source| Piece::module(snapshot, source, options)));
    pieces
}

/// The module paths whose objects a snapshot lacks, because it was created before they were known:
/// they are in a folder that was not opened, have a file that is too large for a definition, or one that
/// `ignore` names. A module always has all files at its path: its content is the git tree there.
pub fn lacking_modules(
    cache: &mut Cache,
    snapshot: &Snapshot,
    options: &Options,
    limits: &snapshot::Limits,
) -> BTreeSet<String> {
    let is_large = |file: &File| match file.content {
        snapshot::Content::TooLarge { bytes } => bytes <= limits.module_file_bytes_max,
        _ => false,
    };
    if snapshot.unopened.is_empty() && options.ignore.is_empty() && !snapshot.files.values().any(is_large) {
        return BTreeSet::new();
    }
    cache.expect(options);
    let selection = paths::Selection::new(&mut Diagnostics::default(), snapshot, options);
    let files = Files::selected(snapshot, &selection);
    let (mut module_paths, mut values) = (BTreeSet::new(), 0);
    for (path, file) in &files.naming {
        if options.budget.is_over() || !options.room.has(values) {
            break;
        }
        let read = match cache.known_file(path, file) {
            Some(read) => read,
            None => {
                let done = Piece::file(path, file, options).run();
                if options.budget.was_exceeded() {
                    break;
                }
                cache.take(done);
                let Some(read) = cache.known_file(path, file) else { continue };
                read
            }
        };
        values += read.values;
        let written = read.candidates.iter().filter_map(|candidate| candidate.module_path.as_ref());
        module_paths.extend(written.filter_map(|(written, _)| normalise(written).ok()));
    }
    let lacks = |path: &String| {
        !options.ignore.is_empty() || snapshot.is_unopened(path) || snapshot.below(path).any(|(_, file)| is_large(file))
    };
    // All of them, if any: the files of a module may be in the folder of another one.
    if module_paths.iter().any(lacks) { module_paths } else { BTreeSet::new() }
}

/// The files that are read for definitions, in path order.
struct Files<'a> {
    /// Folders that are Helm charts. None of their files is read.
    charts: BTreeSet<&'a str>,
    /// Files that may contain a module path.
    naming: Vec<(&'a Arc<str>, &'a File)>,
    /// All others.
    rest: Vec<(&'a Arc<str>, &'a File)>,
}

impl<'a> Files<'a> {
    fn selected(snapshot: &'a Snapshot, selection: &paths::Selection) -> Files<'a> {
        let covered = snapshot.files.iter().filter(|(path, file)| {
            // A link or a submodule may stand for a folder of definitions, regardless of its name.
            if file.text().is_some() { selection.takes(path) } else { selection.covers(path) }
        });
        let covered: Vec<_> = covered.collect();
        let charts = layout::charts(snapshot, covered.iter().copied());
        let covered = covered.into_iter().filter(|(path, _)| !layout::is_of_chart(&charts, path));
        let (naming, rest) = covered.partition(|(_, file)| {
            let text = file.text().and_then(|bytes| std::str::from_utf8(bytes).ok());
            text.is_some_and(|text| text.contains(crate::api::names::annotation::MODULE_PATH))
        });
        Files { charts, naming, rest }
    }

    fn is_naming(&self, path: &str) -> bool {
        self.naming.binary_search_by(|(naming, _)| (***naming).cmp(path)).is_ok()
    }
}

/// By the place of its annotation: the location of each module in git, or why it is invalid.
type Sources = BTreeMap<FilePosition, Result<ModuleSource, Diagnostic>>;

/// Resolves the module paths of all ModuleTemplates. Returns the sources, and the folders and files
/// of their objects.
///
/// A ModuleTemplate below a module path is a document of that module and resolves nothing. The
/// first one in path order wins.
fn module_sources(snapshot: &Snapshot, reads: &[(&Arc<str>, Arc<file::FileRead>)]) -> (Sources, BTreeSet<String>) {
    let (mut sources, mut module_paths) = (BTreeMap::new(), BTreeSet::new());
    for candidate in reads.iter().flat_map(|(_, read)| &read.candidates) {
        let Some((written, place)) = &candidate.module_path else { continue };
        if is_below_any(&place.path, &module_paths) {
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
