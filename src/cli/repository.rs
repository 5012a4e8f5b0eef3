//! The repository that a command reads. Several commands share these arguments.

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
    sync::{Arc, OnceLock},
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail};
use tempfile::TempDir;
use tidegate_core::{
    adopt::Uncommitted,
    api::{self, GitSource, git_source::GitSourceSpec, names},
    budget::Budget,
    definition::{self, Allow, Cache, Definitions, Options},
    diagnostic::{Diagnostic, Diagnostics},
    intake::{self, SourceFile, Terms},
    landscape::{
        Landscape, SourceName,
        file::{KnownSource, LandscapeFile},
    },
    name::{self, Key},
    render::{Trial, sample_agents},
    revision::Oid,
    schema::Schema,
    snapshot::{File, Filter, Limits, OWN_FOLDER, Snapshot},
    template::{self, Library, Templates},
    yaml::{self, Node},
};
use tidegate_git as git;

use crate::renderer::Renderer;

/// A repository, its revision, and the filters of its definitions.
#[derive(clap::Args)]
pub(super) struct Repository {
    /// Read this repository, a folder or file in it, or any other folder; `-` is standard input, as the only file.
    ///
    /// Standard input may be what `kubectl get` prints, also a `List`. It is judged alone: what its definitions refer
    /// to must be in it.
    ///
    /// Paths in definitions and diagnostics are relative to the root of the repository. A folder that contains a folder
    /// `.tidegate` is a repository of its own.
    #[arg(value_name = "PATH", default_value = ".")]
    path: PathBuf,
    /// Read this branch, tag or commit, for example `main` [default: the work tree, with the files that `git add -A`
    /// would add]
    #[arg(long, value_name = "REV")]
    rev: Option<String>,
    #[command(flatten)]
    counting: Counting,
}

/// The filters of the definitions in a repository.
#[derive(clap::Args)]
pub(super) struct Counting {
    /// Read the definitions in this namespace; repeat the option for more
    #[arg(short, long = "namespace", value_name = "NAMESPACE", default_value = names::KCP_NAMESPACE)]
    namespaces: Vec<String>,
    /// Use the settings of the GitSource in this YAML file, for example `paths`, `ignore`, `templates` and `allow`
    /// [default: the repository's own `.tidegate/source.yaml`; without it, the only GitSource in `.tidegate`]
    #[arg(long, value_name = "FILE")]
    source_file: Option<PathBuf>,
}

impl Repository {
    /// The namespaces of its definitions.
    pub(super) fn namespaces(&self) -> &[String] {
        &self.counting.namespaces
    }

    /// What the user typed to select a repository; none if it is the default.
    pub(super) fn selected_by(&self) -> Option<&'static str> {
        match self {
            Repository { path, .. } if path != Path::new(".") => Some("PATH"),
            Repository { rev: Some(_), .. } => Some("--rev"),
            Repository { counting: Counting { source_file: Some(_), .. }, .. } => Some("--source-file"),
            Repository { .. } => None,
        }
    }
}

/// A repository that was read.
pub(super) struct Loaded {
    /// The files.
    pub(super) snapshot: Snapshot,
    /// Which of the files are definitions, and which definitions are allowed.
    pub(super) options: Options,
    /// The source of the files.
    pub(super) source: SourceName,
    /// Whether no file says the name of the source.
    pub(super) is_source_assumed: bool,
    /// The files of `.tidegate` with a GitSource, if there are several, so that none of them names the source.
    several: Vec<Arc<str>>,
    /// The deletion policy of the GitSource.
    pub(super) policy: intake::Policy,
    /// The fields of the GitSource that determine it, as far as its file sets them.
    pub(super) brakes: KnownSource,
    /// Whether the file of `--source-file` suspends the GitSource.
    pub(super) suspended: bool,
    /// The folder or file that the user named, if it is only a part of the repository.
    pub(super) part: Option<String>,
    /// The `paths` of the repository's own GitSource, which the part stands for.
    whole: Vec<String>,
    /// Problems of the repository's own GitSource.
    problems: Vec<Diagnostic>,
    /// The folder of the checkout that paths are relative to; empty for its root.
    pub(super) below: String,
    /// The folder on disk that paths are relative to.
    pub(super) root: PathBuf,
    /// The time for a check.
    timeout: Duration,
}

/// The GitSource with whose settings a repository is read.
#[derive(Default)]
struct Named {
    spec: GitSourceSpec,
    name: Option<String>,
    namespace: Option<String>,
}

/// The GitSource of a repository.
struct Own {
    named: Option<Named>,
    /// Whether the user named its file.
    is_given: bool,
    problems: Vec<Diagnostic>,
    /// Files that each could be it.
    several: Vec<Arc<str>>,
}

/// What the folder `.tidegate` of a revision says.
pub(super) struct Committed {
    /// The commit.
    pub(super) commit: Option<Oid>,
    /// Its own GitSource, or what is wrong with it; none as well if there are several.
    pub(super) own: Result<Option<GitSourceSpec>, Diagnostic>,
    /// The files that say what must be signed.
    pub(super) with_verify: Vec<Arc<str>>,
}

/// The path that stands for standard input.
const INPUT: &str = "-";
/// The file that diagnostics name for it.
const INPUT_NAME: &str = "stdin.yaml";
/// Name of the source if no file names one.
const SOURCE_NAME: &str = "landscape";
/// Code of the warning about a repository inside the one that is read.
const CODE_OWN_ROOT: &str = "own-repository";
/// A folder with this name makes its parent a repository of its own.
const OWN_ROOT: &str = OWN_FOLDER;

// === impl Repository ===

impl Repository {
    /// The path, the revision and the filters, for the verification of signatures.
    pub(super) fn signed(&self) -> (&Path, Option<&str>, &Counting) {
        (&self.path, self.rev.as_deref(), &self.counting)
    }

    /// Reads the files; [`tidegate_core::definition::read`] reports their problems. Fails if they cannot be read.
    pub(super) fn load(&self) -> anyhow::Result<Loaded> {
        self.load_selected(None)
    }

    /// As [`Repository::load`], but with these `paths` instead of those of the GitSource. `None` for those of the
    /// GitSource.
    pub(super) fn load_selected(&self, selected: Option<&[String]>) -> anyhow::Result<Loaded> {
        if !self.is_input() {
            return self.counting.load_selected(&self.path, self.rev.as_deref(), None, selected, None);
        }
        if self.rev.is_some() {
            bail!("standard input has no revisions: leave out --rev");
        }
        let folder = stored_input().context("cannot store standard input in a temporary folder")?;
        let mut loaded = self.counting.load_selected(folder.path(), None, None, selected, None)?;
        // As `kubectl get` prints several objects.
        loaded.options.with_lists = true;
        Ok(loaded)
    }

    /// The revision that was read, for a person: without `--rev`, the last commit, if the work tree has the same files,
    /// or else what the files are. And why no daemon can read exactly these files, if none can.
    pub(super) fn described(&self, loaded: &Loaded) -> (String, Option<Uncommitted>) {
        let revision = &loaded.snapshot.revision;
        if revision.commit().is_some() {
            return (revision.to_string(), None);
        }
        if !git::locate(&self.path).is_ok_and(|place| place.is_repository) {
            return ("none (a folder without git)".to_owned(), Some(Uncommitted::Folder));
        }
        let unreadable = |why: String| ("none (HEAD cannot be read)".to_owned(), Some(Uncommitted::Unreadable(why)));
        match git::head(&self.path) {
            Ok(git::Head::Commit) => {}
            Ok(git::Head::Unborn(branch)) => {
                let revision = format!("none (branch {} has no commit)", yaml::short(&branch));
                return (revision, Some(Uncommitted::All(branch)));
            }
            Err(error) => return unreadable(error.to_string()),
        }
        let head = match self.counting.load(&self.path, Some("HEAD"), None) {
            Ok(head) => head,
            Err(error) => return unreadable(format!("{error:#}")),
        };
        let ids = |snapshot: &Snapshot| -> Vec<(Arc<str>, Oid)> {
            snapshot.files.iter().map(|(path, file)| (Arc::clone(path), file.id)).collect()
        };
        let commit = &head.snapshot.revision;
        match ids(&head.snapshot) == ids(&loaded.snapshot) {
            true => (commit.to_string(), None),
            false => (format!("{commit} with uncommitted changes"), Some(Uncommitted::Some)),
        }
    }

    /// Whether standard input is read, which has no revisions.
    pub(super) fn is_input(&self) -> bool {
        self.path.as_os_str() == INPUT
    }
}

/// Standard input as the only file of a repository of its own.
fn stored_input() -> io::Result<TempDir> {
    let folder = tempfile::tempdir()?;
    // The folder for temporary files may be inside a repository.
    fs::create_dir(folder.path().join(OWN_ROOT))?;
    io::copy(&mut io::stdin().lock(), &mut fs::File::create_new(folder.path().join(INPUT_NAME))?)?;
    Ok(folder)
}

// === impl Counting ===

impl Counting {
    /// The settings of the GitSource of `--source-file`. Fails if they are invalid.
    pub(super) fn gitsource(&self) -> anyhow::Result<Option<GitSourceSpec>> {
        Ok(self.source_file.as_deref().map(read_source).transpose()?.map(|named| named.spec))
    }

    /// What the folder `.tidegate` of a revision says. Fails if the revision cannot be read.
    pub(super) fn committed(path: &Path, rev: &str) -> anyhow::Result<Committed> {
        let place = git::locate(path)?;
        let is_own_root = !place.below.is_empty() && path.join(OWN_ROOT).is_dir();
        let root = if is_own_root { &*place.below } else { "" };
        let nothing_else = Filter::default().within_folder(root, &[], &["*".to_owned()]);
        let snapshot = git::resolve_after(path, rev, None, &nothing_else, Limits::default())
            .with_context(|| format!("cannot read {}", path.display()))?;
        let commit = snapshot.revision.commit();
        let snapshot = rooted_at(snapshot, root);
        let own = SourceFile::find(&snapshot).map(|own| own.map(|own| own.spec));
        Ok(Committed { commit, own, with_verify: SourceFile::with_verify(&snapshot) })
    }

    /// Reads the files of a revision, or those of the work tree. Files that `previous` holds are not read again. Fails
    /// if a namespace, the GitSource, the path or the revision is invalid.
    pub(super) fn load(&self, path: &Path, rev: Option<&str>, previous: Option<&Snapshot>) -> anyhow::Result<Loaded> {
        self.load_selected(path, rev, previous, None, None)
    }

    /// As [`Counting::load`]. If the revision has no GitSource of its own, that of a later one is used, `None` for the
    /// work tree: before the commit that adds the file, the control plane had the same settings.
    pub(super) fn load_before(&self, path: &Path, rev: Option<&str>, later: Option<&str>) -> anyhow::Result<Loaded> {
        self.load_selected(path, rev, None, None, Some(later))
    }

    fn load_selected(
        &self,
        path: &Path,
        rev: Option<&str>,
        previous: Option<&Snapshot>,
        selected: Option<&[String]>,
        later: Option<Option<&str>>,
    ) -> anyhow::Result<Loaded> {
        for namespace in &self.namespaces {
            name::check_subdomain(namespace).with_context(|| format!("--namespace `{}`", yaml::short(namespace)))?;
        }
        // The errors of this function name the path already.
        let place = git::locate(path)?;
        let own_root = !place.below.is_empty() && path.join(OWN_ROOT).is_dir();
        let below = place.below.clone();
        let read = |rev: Option<&str>, previous: Option<&Snapshot>, filter: &Filter| {
            match rev {
                Some(rev) => git::resolve_after(path, rev, previous, filter, Limits::default()),
                None => git::read_work_tree_after(path, previous, filter, Limits::default()),
            }
            .with_context(|| unreadable(path, place.is_repository))
        };
        let root = if own_root { &*below } else { "" };
        let later = later.map(|later| move |filter: &Filter| read(later, None, filter));
        let Own { named, is_given, problems, several } = self.own(root, &|filter| read(rev, None, filter), later)?;
        let Named { spec, name, namespace } = named.unwrap_or_default();
        let policy = intake::policy(&spec, None).context("cannot use the GitSource")?;
        let brakes = KnownSource::from_spec(&spec);
        let timeout = intake::timeout(&spec).context("cannot use the GitSource")?;
        let at = |path: &str| match (own_root, path) {
            (true, "") => below.clone(),
            (true, path) => format!("{below}/{path}"),
            (false, path) => path.to_owned(),
        };
        let mut filter = Filter::new(spec.templates.as_deref().map(at).as_deref());
        // Without any of them, the whole repository is read, because files refer to each other.
        if own_root || is_given || selected.is_some() || !(spec.paths.is_empty() && spec.ignore.is_empty()) {
            filter = filter.within_folder(root, selected.unwrap_or(&spec.paths), &spec.ignore);
        }
        let mut snapshot = read(rev, previous, &filter)?;
        snapshot = rooted_at(snapshot, root);
        let is_part = !is_given && !own_root && !place.below.is_empty();
        let part = is_part.then(|| place.below.clone());
        let whole = spec.paths.clone();
        let paths = match (selected, &part) {
            (Some(selected), _) => selected.to_vec(),
            (None, Some(part)) => vec![part.clone()],
            (None, None) => whole.clone(),
        };
        let suspended = spec.suspend;
        let options = self.options(GitSourceSpec { paths, ..spec }, timeout);
        let mut cache = Cache::default();
        let modules = definition::lacking_modules(&mut cache, &snapshot, &options, &Limits::default());
        if !modules.is_empty() {
            let modules = modules.iter().map(|path| at(path)).collect();
            snapshot = read(rev, Some(&snapshot), &filter.with_modules(modules))?;
            snapshot = rooted_at(snapshot, root);
        }
        let first = self.namespaces.first().map_or(names::KCP_NAMESPACE, String::as_str);
        let is_source_assumed = name.is_none();
        let name = Key::new(namespace.as_deref().unwrap_or(first), name.as_deref().unwrap_or(SOURCE_NAME));
        let below = if own_root { below } else { String::new() };
        let root = place.root.join(&below);
        let source = SourceName::new(name);
        Ok(Loaded {
            snapshot,
            options,
            source,
            is_source_assumed,
            several,
            policy,
            brakes,
            suspended,
            part,
            whole,
            problems,
            below,
            root,
            timeout,
        })
    }

    /// The GitSource of the option, or the one in the folder `root` of a revision; without one, that of `later`. Fails
    /// if the file or a revision cannot be read.
    fn own(
        &self,
        root: &str,
        read: &dyn Fn(&Filter) -> anyhow::Result<Snapshot>,
        later: Option<impl Fn(&Filter) -> anyhow::Result<Snapshot>>,
    ) -> anyhow::Result<Own> {
        let nothing_else = Filter::default().within_folder(root, &[], &["*".to_owned()]);
        if let Some(path) = &self.source_file {
            let named = read_source(path)?;
            // The daemon refuses a revision that says otherwise. What an old one said does not matter any more.
            let problems = match later {
                Some(_) => Vec::new(),
                None => named.differences(SourceFile::read(&rooted_at(read(&nothing_else)?, root))),
            };
            return Ok(Own { named: Some(named), is_given: true, problems, several: Vec::new() });
        }
        let mut several = Vec::new();
        let mut find = |snapshot: Snapshot| {
            let snapshot = rooted_at(snapshot, root);
            several = SourceFile::several(&snapshot);
            SourceFile::find(&snapshot)
        };
        let found = match (find(read(&nothing_else)?), later) {
            (Ok(None), Some(later)) => find(later(&nothing_else)?),
            (found, _) => found,
        };
        Ok(match found {
            Ok(own) => Own { named: own.map(Named::from), is_given: false, problems: Vec::new(), several },
            Err(problem) => Own { named: None, is_given: false, problems: vec![problem], several },
        })
    }

    fn options(&self, spec: GitSourceSpec, timeout: Duration) -> Options {
        let allow = spec.allow.unwrap_or_default();
        Options {
            paths: spec.paths,
            ignore: spec.ignore,
            templates: spec.templates,
            strict: spec.strict,
            allow: Allow { kinds: allow.kinds, namespaces: allow.namespaces, names: allow.names },
            namespaces: self.namespaces.clone(),
            budget: lasting(timeout),
            ..Options::default()
        }
    }
}

// === impl Named ===

impl From<SourceFile> for Named {
    fn from(own: SourceFile) -> Named {
        let SourceFile { spec, name, namespace, .. } = own;
        // Whether the source is suspended is known to the control plane only.
        Named { spec: GitSourceSpec { suspend: false, ..spec }, name, namespace }
    }
}

impl Named {
    /// What it says otherwise than the repository's own file. Names that it does not have are those of the file.
    fn differences(&self, own: Result<Option<SourceFile>, Diagnostic>) -> Vec<Diagnostic> {
        match own {
            Ok(None) => Vec::new(),
            Ok(Some(own)) => {
                let or_own =
                    |name: &Option<String>, own: &Option<String>| name.clone().or(own.clone()).unwrap_or_default();
                let (name, namespace) = (or_own(&self.name, &own.name), or_own(&self.namespace, &own.namespace));
                own.differences(&name, &namespace, &self.spec)
            }
            Err(problem) => vec![problem],
        }
    }
}

// === impl Loaded ===

impl Loaded {
    /// Takes from a landscape file what other sources define, and which source this one is if no file of the repository
    /// names it.
    pub(super) fn know(&mut self, landscape: &LandscapeFile) {
        if self.is_source_assumed {
            let declares = |is_meant: &dyn Fn(definition::Kind, &Key) -> bool| {
                definition::declares(&self.snapshot, &self.options, is_meant)
            };
            if let Some(source) = landscape.only_source(declares) {
                (self.source, self.is_source_assumed) = (source, false);
            }
        }
        self.options.elsewhere = Arc::new(landscape.elsewhere(&self.source));
        let spec = landscape.source(self.source.key()).and_then(KnownSource::spec);
        let differences =
            spec.map(|spec| self.own_file(|own, key| own.differences_of_settings(key.name(), key.namespace(), &spec)));
        self.problems.extend(differences.unwrap_or_default());
    }

    /// Takes the name of the source from the old side, if no file of this side names it.
    pub(super) fn is_of_source(&mut self, before: &Loaded) {
        if self.is_source_assumed && !before.is_source_assumed {
            (self.source, self.is_source_assumed) = (before.source.clone(), false);
        }
    }

    /// What the GitSource in the control plane says otherwise than the repository's own file: then the daemon applies
    /// nothing of the revision.
    pub(super) fn differs_from(&self, spec: &GitSourceSpec) -> Vec<Diagnostic> {
        self.own_file(|own, key| own.differences(key.name(), key.namespace(), spec))
    }

    /// The problems that are found in the repository's own file, without those that are known.
    fn own_file(&self, find: impl Fn(&SourceFile, &Key) -> Vec<Diagnostic>) -> Vec<Diagnostic> {
        let own = SourceFile::read(&self.snapshot).ok().flatten();
        let found = own.map(|own| find(&own, self.source.key())).unwrap_or_default();
        found.into_iter().filter(|one| !self.problems.contains(one)).collect()
    }

    /// Why the name of the source is an assumption, and what to do about it; `None` if it is none. `other` is one more
    /// option that names it.
    pub(super) fn assumption(&self, other: Option<&str>) -> Option<(String, String)> {
        if !self.is_source_assumed {
            return None;
        }
        let options = other.map(|other| format!("`--source-file` or `{other}`"));
        let options = options.unwrap_or_else(|| "`--source-file`".to_owned());
        Some(match self.several.as_slice() {
            [] => (
                "no file names the GitSource".to_owned(),
                format!("name it in `.tidegate/source.yaml`, or pass {options}"),
            ),
            several => return intake::several_sources(&self.below, several),
        })
    }

    /// Whether all files are empty.
    pub(super) fn is_blank(&self) -> bool {
        self.snapshot.files.values().filter_map(File::text).all(|text| text.trim_ascii().is_empty())
    }

    /// Selects the whole repository if the user named a part of it, because files refer to each other.
    pub(super) fn widen(&mut self) {
        if self.part.take().is_some() {
            self.options.paths.clone_from(&self.whole);
        }
    }

    /// Gives the check all of its time again. Fails if it was over already.
    pub(super) fn restart(&mut self) -> anyhow::Result<()> {
        self.complete()?;
        self.options.budget = lasting(self.timeout);
        Ok(())
    }

    /// Fails if the time for the check was over before its end. The definitions are then incomplete: what is missing
    /// would look deleted.
    pub(super) fn complete(&self) -> anyhow::Result<()> {
        if self.options.budget.was_exceeded() {
            bail!(
                "the definitions at {} could not all be checked in time: use `--source-file` with a GitSource that has a \
                 longer `spec.timeout`, or split the repository",
                self.snapshot.revision
            );
        }
        Ok(())
    }

    /// Warns about a repository inside this one if there are errors: the user may have meant the inner one.
    pub(super) fn hint(&self, diagnostics: &mut Diagnostics) {
        if !diagnostics.has_errors() {
            return;
        }
        // The folder of a revision may not exist on disk; then there is nothing to name.
        let is_own = |folder: &&Arc<str>| {
            let marker = self.root.join(&***folder).join(OWN_ROOT);
            !folder.is_empty() && marker.symlink_metadata().is_ok_and(|metadata| metadata.is_dir())
        };
        let Some(own) = self.snapshot.trees.keys().find(is_own) else { return };
        let own = yaml::short(own);
        let message = format!("the folder {own} is a repository of its own because it contains a folder `{OWN_ROOT}`");
        let hint = format!("use the path of that folder instead, for example `tidegate validate {own}`");
        diagnostics.push(Diagnostic::warning(CODE_OWN_ROOT, message).hint(hint));
    }

    /// The templates: embedded, then those of `folder`, then those of the repository. Their problems are among the
    /// diagnostics. If `folder` is inside the repository, it contains no definitions. Overrides are rendered by
    /// processes that end with the library. Fails if `folder` cannot be read.
    pub(super) fn library(&mut self, diagnostics: &mut Diagnostics, folder: Option<&Path>) -> anyhow::Result<Library> {
        diagnostics.extend(self.problems.iter().cloned());
        let mut base = Templates::embedded();
        if folder.is_none() && self.options.templates.is_none() {
            return Ok(Library::new(base));
        }
        let renderer = Renderer::confined().context("cannot start the renderer of templates")?;
        if let Some(folder) = folder {
            let canonical = folder.canonicalize().with_context(|| format!("cannot read {}", folder.display()))?;
            let within = canonical.strip_prefix(&self.root).ok().and_then(Path::to_str);
            self.options.ignore.extend(within.filter(|path| !path.is_empty()).map(|path| format!("/{path}/")));
            let place = git::locate(folder).with_context(|| format!("cannot read {}", folder.display()))?;
            let snapshot = git::read_work_tree(folder, &Filter::default(), Limits::default())
                .with_context(|| format!("cannot read {}", folder.display()))?;
            let shown = match within {
                Some(path) if !path.is_empty() => Path::new(path),
                _ => folder,
            };
            let files = template::files(diagnostics, &snapshot, &place.below).into_iter().map(|file| {
                let path = shown.join(&file.name).to_string_lossy().into();
                template::TemplateFile { path, ..file }
            });
            base = base.with_overrides(renderer.engine(), diagnostics, files);
            base.check(diagnostics);
        }
        let mut library = Library::new(base.clone());
        if let Some(folder) = &self.options.templates {
            let files = template::files(diagnostics, &self.snapshot, folder.trim_matches('/'));
            let mut own = base.with_overrides(renderer.engine(), diagnostics, files);
            own.check(diagnostics);
            library.set(self.source.clone(), own);
        }
        Ok(library)
    }
}

/// Renders the template overrides of a source for samples of its definitions, as the daemon does before it uses them.
/// Adds to the errors in them how many objects use them.
pub(super) fn check_templates(
    diagnostics: Diagnostics,
    library: &Library,
    source: &SourceName,
    definitions: &Definitions,
) -> Diagnostics {
    let (catalog, installed) = (Landscape::default(), BTreeMap::new());
    let agents = &sample_agents();
    let trial = Trial { source, definitions, catalog: &catalog, installed: &installed, agents };
    try_templates(diagnostics, library, trial)
}

/// The same, with samples of a control plane as well.
pub(super) fn try_templates(mut diagnostics: Diagnostics, library: &Library, trial: Trial<'_>) -> Diagnostics {
    let templates = library.of_source(Some(trial.source));
    if templates.has_overrides() && !diagnostics.has_code(|code| code == template::CODE_TEMPLATE) {
        trial.run(&mut diagnostics, templates);
    }
    templates.with_uses(diagnostics, &template::Uses::from_definitions(trial.definitions))
}

/// The time for a check. It begins with the first question.
fn lasting(timeout: Duration) -> Budget {
    let begin = OnceLock::new();
    Budget::new(move || begin.get_or_init(Instant::now).elapsed() < timeout)
}

/// Reads a GitSource and checks it against its schema, as the API server does.
fn read_source(path: &Path) -> anyhow::Result<Named> {
    let shown = path.display();
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {shown}"))?;
    let documents = match yaml::parse(&text, &yaml::Limits::default()) {
        Ok(documents) => documents,
        Err(error) => bail!("{shown}:{}: {}", error.line, error.message),
    };
    let is_source = |node: &&Node| node.get("kind").and_then(Node::as_str) == Some("GitSource");
    let mut sources = documents.iter().filter(is_source);
    let (Some(node), None) = (sources.next(), sources.next()) else {
        bail!("{shown} must contain exactly one GitSource");
    };
    let crd = api::crd("GitSource").context("there is no CustomResourceDefinition for GitSource")?;
    let version = crd.spec.versions.first().and_then(|version| version.schema.as_ref());
    let props = version.and_then(|schema| schema.open_api_v3_schema.as_ref());
    let schema = Schema::compile(props.context("GitSource has no schema")?).context("GitSource's schema")?;
    let mut value = node.to_json();
    // The file of a repository, `.tidegate/source.yaml`, names none, and a command has its own.
    intake::with_url(&mut value, intake::SOME_URL);
    if let Some(violation) = schema.check(&value).first() {
        let (line, column) = node.key_position(&violation.path);
        bail!("{shown}:{line}:{column}: {}", intake::field_problem(violation, &value));
    }
    // The error would repeat a value.
    let source: Option<GitSource> = serde_json::from_value(value).ok();
    let source = source.with_context(|| format!("the GitSource in {shown} does not match its type"))?;
    // The schema cannot tell everything: a port, for example, has no pattern.
    if let Err(error) = source.spec.url.parse::<tidegate_git::Url>() {
        let (line, column) = node.key_position(&["spec".into(), "url".into()]);
        bail!("{shown}:{line}:{column}: `spec.url`: {error}");
    }
    // Nor fields that do not go together.
    Terms::from_source(&source).with_context(|| format!("{shown}:{}", node.key_position(&["spec".into()]).0))?;
    Ok(Named { spec: source.spec, name: source.metadata.name, namespace: source.metadata.namespace })
}

/// What could not be read. Of a folder without git, all files are read, so a wrong folder shows here.
fn unreadable(path: &Path, is_repository: bool) -> String {
    let shown = path.display();
    match is_repository {
        true => format!("cannot read {shown}"),
        false => format!(
            "cannot read all files below {shown}, which is in no git repository; check that it is the folder with the \
             definitions, and name it, for example `tidegate validate FOLDER`"
        ),
    }
}

/// The part of a snapshot under a folder, as a repository of its own.
fn rooted_at(snapshot: Snapshot, folder: &str) -> Snapshot {
    if folder.is_empty() {
        return snapshot;
    }
    let below = |path: &Arc<str>| -> Option<Arc<str>> {
        let rest = path.strip_prefix(folder)?;
        if rest.is_empty() { Some("".into()) } else { rest.strip_prefix('/').map(Arc::from) }
    };
    let files: BTreeMap<_, _> =
        snapshot.files.into_iter().filter_map(|(path, file)| Some((below(&path)?, file))).collect();
    let trees: BTreeMap<_, _> =
        snapshot.trees.into_iter().filter_map(|(path, tree)| Some((below(&path)?, tree))).collect();
    let unopened = snapshot.unopened.iter().filter_map(below).collect();
    Snapshot { revision: snapshot.revision, files, trees, unopened }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_without_git_that_cannot_be_read_may_be_the_wrong_one() {
        assert_eq!(unreadable(Path::new("a"), true), "cannot read a");
        let said = unreadable(Path::new("/"), false);
        assert!(said.starts_with("cannot read all files below /, which is in no git repository; check"), "{said}");
    }
}
