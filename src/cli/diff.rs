//! `tidegate diff`: what a revision changes, in the control plane and in runtimes.

mod cache;
mod live;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    ops::Range,
    panic::resume_unwind,
    path::{Path, PathBuf},
    thread,
};

use anyhow::{Context as _, bail};
use k8s_openapi::jiff::{SignedDuration, Timestamp};

use super::{
    Exit, judge,
    modules::Modules,
    output,
    progress::Progress,
    render,
    report::Excerpts,
    repository::{Counting, Loaded, check_templates},
    trust,
};
use tidegate_core::{
    definition::{self, Definitions, Kind},
    diagnostic::{Diagnostic, Diagnostics},
    landscape::{
        Idle, ResumeBy, SourceName,
        file::{KnownKyma, LandscapeFile, Owner},
    },
    maintenance::Policy,
    name::Key,
    plan::{self, PolicyAt, Settings},
    render::offline::TargetName,
    snapshot::Snapshot,
    template::Library,
    words::counted,
    yaml,
};
use tidegate_diff::{
    clean::Draft,
    compare::{Comparison, Given, Prepared, Request, Seen},
    mask::{MaskKey, Masker},
    model::Subject,
    policy::Kinds,
};
use tidegate_git as git;
use tidegate_process::tell;
use tidegate_process::{period::Period, tls};

/// Shows what a revision changes, in the control plane and in each runtime, without touching anything.
///
/// Without `--from` and `--to`, it compares the work tree with the merge base of HEAD and the default branch. The
/// default branch is that of `origin/HEAD`, else `origin/main`, `origin/master`, `main` or `master`. If HEAD is on the
/// default branch, it compares the work tree with HEAD.
///
/// Exit code 0: no changes; 1: changes; 2: the command cannot run; 3: definitions or templates of the new side are
/// invalid; 4: a policy is violated; 5: the comparison is incomplete. If several apply, 3 takes precedence, then 5, 4
/// and 1.
#[derive(clap::Args)]
pub(super) struct Arguments {
    /// Compare the repository at or around this path; a folder or file in it selects the whole repository
    #[arg(value_name = "PATH", default_value = ".")]
    path: PathBuf,
    /// Compare this old side: a branch, tag or commit, for example `main` or `v1.2.0` [default: the merge base, see
    /// above]
    #[arg(long, value_name = "REV")]
    from: Option<String>,
    /// Compare this new side: a branch, tag or commit, for example `HEAD` [default: the work tree, with the files that
    /// `git add -A` would add]
    #[arg(long, value_name = "REV")]
    to: Option<String>,
    #[command(flatten)]
    counting: Counting,
    #[command(flatten)]
    trust: trust::Arguments,
    /// Use the templates in this folder instead of the embedded ones, on both sides; those of the repository take
    /// precedence [default: none]
    #[arg(long, value_name = "DIR")]
    templates: Option<PathBuf>,
    /// Read values that only a cluster knows from this YAML file, which maps the text of a placeholder `((live: …))` to
    /// its value [default: none]
    #[arg(long, value_name = "FILE")]
    assume: Option<PathBuf>,
    /// Read Kymas that git does not declare, installed modules, and modules of other sources from this file of
    /// `tidegate export --landscape` [default: none]
    #[arg(long, value_name = "FILE")]
    landscape: Option<PathBuf>,
    /// Warn if the landscape file is older than this
    #[arg(long, value_name = "DURATION", default_value = "24h", requires = "landscape")]
    max_age: Period,
    /// Cache parsed definitions in this folder, so that later comparisons are faster. The cache holds no file that may
    /// contain a Secret, and a damaged cache is ignored [default: no cache]
    #[arg(long, value_name = "DIR")]
    cache_dir: Option<PathBuf>,
    /// Compare only this target: `kcp`, or a Kyma as NAME or NAMESPACE/NAME, for example `kcp-system/dev` [default:
    /// all]
    #[arg(long, value_name = "TARGET")]
    target: Option<String>,
    /// Mask values of Secrets with the key in this file, at least 16 characters, so that digests of two runs can be
    /// compared [default: a random key]
    #[arg(long, value_name = "FILE")]
    mask_key_file: Option<PathBuf>,
    #[command(flatten)]
    modules: Modules,
    #[command(flatten)]
    maintenance: Maintenance,
    #[command(flatten)]
    clusters: live::Clusters,
    #[command(flatten)]
    rules: judge::Arguments,
    #[command(flatten)]
    outputs: output::Outputs,
}

/// The policy of maintenance windows.
#[derive(clap::Args)]
struct Maintenance {
    /// Read the policy of maintenance windows from this file, and report upgrades that wait for a window now [default:
    /// none, and upgrades are shown as if a window were open]
    #[arg(long = "maintenance-policy", value_name = "FILE")]
    policy: Option<PathBuf>,
    /// Treat a window as open only if it lasts longer than this from now
    #[arg(long = "min-maintenance-window-size", value_name = "DURATION", default_value = "20m", requires = "policy")]
    size_min: Period,
}

/// Code of the warning about a landscape file that is older than `--max-age`.
const CODE_LANDSCAPE_OLD: &str = "landscape-old";

/// Code of the warning about a GitSource that no file names.
const CODE_SOURCE_ASSUMED: &str = "source-assumed";
const CODE_MODULE_FAILED: &str = "module-failed";
const CODE_UNCONFIRMED_BEFORE: &str = "unconfirmed-before";
const CODE_HELD_BACK_UNNAMED: &str = "held-back-unnamed";

/// Code of the warning about a landscape file from the future.
const CODE_LANDSCAPE_FUTURE: &str = "landscape-future";
/// Code of the warning about installed versions that are invalid.
const CODE_LANDSCAPE_VERSION: &str = "landscape-version";
/// The clocks of two synchronized machines differ by less than this.
const CLOCKS_DIFFER_MAX: SignedDuration = SignedDuration::from_mins(5);

/// A thread takes longer to start than to compare fewer runtimes than this.
const RUNTIMES_A_THREAD_MIN: usize = 500;
/// A thread takes longer to start than to parse fewer files than this.
const PIECES_A_THREAD_MIN: usize = 64;
/// More threads than this make no comparison faster.
const THREADS_MAX: usize = 8;

/// One side, read.
struct Half {
    loaded: Loaded,
    definitions: Definitions,
    library: Library,
    diagnostics: Diagnostics,
}

/// Runs the command. Fails if an argument is invalid, or if a side cannot be read.
pub(super) fn run(arguments: &Arguments) -> anyhow::Result<Exit> {
    arguments.outputs.check()?;
    let mut rules = arguments.rules.load()?;
    let trailers = rules.take_trailers(&arguments.path, arguments.from.as_deref(), arguments.to.as_deref());
    match trailers {
        // Without an old revision, the commits may not be known: a comparison with clusters does not need them.
        Err(error) if arguments.clusters.live => tell!("warning: {error:#}"),
        result => result?,
    }
    let mask = arguments.mask_key()?;
    let maintenance = arguments.maintenance.load()?;
    if arguments.clusters.live {
        return super::block_on(run_live(arguments, &rules, mask, maintenance));
    }
    let assumptions = arguments.assume.as_deref().map(render::read_assumptions).transpose()?.unwrap_or_default();
    let (landscape, mut warnings) = match &arguments.landscape {
        Some(path) => {
            let file = read_landscape(path)?;
            let mut warnings: Vec<Diagnostic> = written(path, &file, arguments.max_age).into_iter().collect();
            warnings.extend(no_versions(path, &file));
            (Some(file), warnings)
        }
        None => (None, Vec::new()),
    };
    for warning in &warnings {
        tell!("warning: {}", warning.message);
    }
    let progress = Progress::start("reading the repository");
    let mut cache = cache::Cache::new(arguments.cache_dir.as_deref());
    let mut from = arguments.read_old(landscape.as_ref(), &mut cache)?;
    let mut after = arguments.counting.load(&arguments.path, arguments.to.as_deref(), Some(&from.loaded.snapshot))?;
    after.is_of_source(&from.loaded);
    let mut to = arguments.read(after, landscape.as_ref(), &mut cache)?;
    cache.store();
    if let Some(known) = landscape.as_ref().and_then(|file| file.source(to.loaded.source.key())) {
        to.loaded.policy = to.loaded.brakes.policy(known).context("cannot use the limits in the landscape file")?;
        if let Some(revision) = &known.unconfirmed {
            let warning = unconfirmed_before(&to.loaded.source, revision);
            tell!("warning: {}", warning.message);
            warnings.push(warning);
        }
    }
    progress.step("comparing");
    let revisions = (arguments.to.as_deref(), from.loaded.snapshot.revision.commit());
    arguments.trust.verify(&mut to.diagnostics, &arguments.counting, &arguments.path, revisions)?;
    let mut diagnostics = to.diagnostics.clone();
    diagnostics.extend(warnings.drain(..));
    let (settings, source) = (Settings::default(), to.loaded.source.clone());
    let sides = &mut [&mut from.definitions, &mut to.definitions];
    let components = arguments.modules.read(&source, landscape.as_ref(), sides);
    let target = arguments.target(&from.definitions, &to.definitions, landscape.as_ref())?;
    if let Some(file) = &landscape {
        let (old, new) = (&mut from.definitions.good, &to.definitions.good);
        // What others have in the control plane was held before, too. What stays held is no news.
        old.retain(|id, before| {
            let is_same =
                new.get(id).is_some_and(|after| after.digest == before.digest && after.module == before.module);
            // A pipeline may leave out labels, so a Kyma without one that was in git before is taken for git's, unless
            // the source has left it when it was deleted.
            let is_of_git = |owner| id.0 == Kind::Kyma && owner == Owner::User && !file.is_left(id, &source);
            is_same || file.owner(id.0, &id.1, &source).is_none_or(is_of_git)
        });
    }
    let request = Request {
        from: from.given(),
        to: to.given(),
        errors: to.diagnostics.has_errors(),
        source: &source,
        policy: &to.loaded.policy,
        known: landscape.as_ref(),
        target: target.as_ref(),
        assumptions: &assumptions,
        settings: &settings,
        components: &components,
        maintenance: maintenance.as_ref(),
        mask: &mask,
        numbers: arguments.mask_key_file.is_none(),
        idle: to
            .loaded
            .suspended
            .then_some(Idle::Suspended)
            .or_else(|| landscape.as_ref().and_then(|file| file.idle(source.key()))),
        resume_by: if to.loaded.suspended { ResumeBy::File } else { ResumeBy::Command },
    };
    let subject = Subject {
        from: from.loaded.snapshot.revision.to_string(),
        to: to.loaded.snapshot.revision.to_string(),
        source: source.to_string(),
        landscape_written: landscape.as_ref().map(|file| file.written.0.to_string()),
        files: to.definitions.files,
    };
    let prepared = Prepared::new(&request);
    // An assumed name is most likely not that of a source in the file. Then no object of the file is compared as this
    // source's.
    if prepared.waits() || landscape.as_ref().is_some_and(LandscapeFile::has_sources) {
        diagnostics.extend(source_assumed(&to.loaded, Some("--landscape")));
    }
    let of_others = landscape.iter().flat_map(|file| file.unnamed(&source));
    diagnostics.extend(of_others.map(|(source, count)| unnamed(&source, count)));
    diagnostics.extend(prepared.failed_modules().iter().map(|(module, runtimes)| failed_module(module, runtimes)));
    let mut draft = compare(request, &prepared, diagnostics, subject);
    rules.judge(&mut draft, &prepared.labels(), Some(&Kinds::from_definitions(&[&from.definitions, &to.definitions])));
    let report = draft.finish();
    drop(progress);
    let mut excerpts = Excerpts::new(&to.loaded.snapshot);
    arguments.outputs.write(&report, &to.loaded.below, &rules.approval(), &mut excerpts)?;
    let exit = rules.exit(&report);
    // The process ends: freeing millions of small allocations would take a tenth of the time.
    std::mem::forget((prepared, report, from, to, cache));
    Ok(exit)
}

/// Runs the command with `--live`.
async fn run_live(
    arguments: &Arguments,
    rules: &judge::Rules,
    mask: MaskKey,
    maintenance: Option<PolicyAt>,
) -> anyhow::Result<Exit> {
    let progress = Progress::start("reading the repository");
    let mut loaded = arguments.counting.load(&arguments.path, arguments.to.as_deref(), None)?;
    loaded.widen();
    let mut diagnostics = Diagnostics::default();
    let library = loaded.library(&mut diagnostics, arguments.templates.as_deref())?;
    let revisions = (arguments.to.as_deref(), None);
    arguments.trust.verify(&mut diagnostics, &arguments.counting, &arguments.path, revisions)?;
    let (snapshot, below) = (loaded.snapshot.clone(), loaded.below.clone());
    let given = live::Given {
        loaded,
        library,
        diagnostics,
        masker: Masker::new(mask),
        numbers: arguments.mask_key_file.is_none(),
        modules: arguments.modules.clone(),
        maintenance,
        is_text: arguments.outputs.is_text(),
    };
    let live::Compared { mut draft, labels, kinds } = live::compare(&arguments.clusters, given, &progress).await?;
    rules.judge(&mut draft, &labels, kinds.as_ref());
    let report = draft.finish();
    drop(progress);
    arguments.outputs.write(&report, &below, &rules.approval(), &mut Excerpts::new(&snapshot))?;
    Ok(rules.exit(&report))
}

/// Parses the files that are not in the cache, on as many threads as the machine has.
fn parse(cache: &mut definition::Cache, snapshot: &Snapshot, options: &definition::Options) {
    loop {
        let pieces = definition::ahead(cache, snapshot, options);
        // The cache keeps nothing of a check that ended early, so the same pieces would come again.
        if pieces.is_empty() || options.budget.is_over() {
            return;
        }
        let done = on_threads(pieces.len(), PIECES_A_THREAD_MIN, |share| {
            pieces[share].iter().map(definition::Piece::run).collect::<Vec<_>>()
        });
        done.into_iter().flatten().for_each(|done| cache.take(done));
    }
}

/// Compares on as many threads as the machine has.
fn compare(request: Request<'_>, prepared: &Prepared, diagnostics: Diagnostics, subject: Subject) -> Draft {
    let comparison = Comparison::new(request, prepared);
    let looked = on_threads(comparison.runtimes(), RUNTIMES_A_THREAD_MIN, |share| comparison.look(share));
    let mut seen = Seen::default();
    looked.into_iter().for_each(|part| seen.append(part));
    comparison.finish(seen, diagnostics, subject)
}

/// Divides `count` items among threads, each of which gets at least `share_min` of them. The results are in order.
fn on_threads<T: Send>(count: usize, share_min: usize, work: impl Fn(Range<usize>) -> T + Sync) -> Vec<T> {
    let cores = thread::available_parallelism().map_or(1, usize::from).min(THREADS_MAX);
    let threads = cores.min(count.div_ceil(share_min)).max(1);
    let share = count.div_ceil(threads);
    let shares = (0..threads).map(|thread| (thread * share).min(count)..((thread + 1) * share).min(count));
    if threads == 1 {
        return shares.map(work).collect();
    }
    thread::scope(|scope| {
        let work = &work;
        let running: Vec<_> = shares.map(|share| scope.spawn(move || work(share))).collect();
        // A panic on a thread is a panic of the command.
        running.into_iter().map(|one| one.join().unwrap_or_else(|panic| resume_unwind(panic))).collect()
    })
}

// === impl Arguments ===

impl Arguments {
    /// The key that masks values of Secrets. Fails if its file cannot be read or is too short.
    fn mask_key(&self) -> anyhow::Result<MaskKey> {
        let Some(path) = &self.mask_key_file else {
            return Ok(MaskKey::new(tls::random().context("the system has no random bytes")?));
        };
        let text = fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
        let too_short = || format!("the key in {} is too short: use at least 16 characters", path.display());
        MaskKey::of_text(&text).with_context(too_short)
    }

    /// The old side: the revision of `--from`, or the merge base. Fails if it cannot be read.
    fn read_old(&self, landscape: Option<&LandscapeFile>, cache: &mut cache::Cache) -> anyhow::Result<Half> {
        let load = |rev: &str| self.counting.load_before(&self.path, Some(rev), self.to.as_deref());
        if let Some(from) = &self.from {
            return self.read(load(from)?, landscape, cache);
        }
        let base = git::merge_base(&self.path).with_context(|| format!("cannot compare {}", self.path.display()))?;
        let mut half = self.read(load(&base.commit.to_string())?, landscape, cache)?;
        if let tidegate_core::revision::Revision::Commit { name, .. } = &mut half.loaded.snapshot.revision {
            *name = base.branch;
        }
        Ok(half)
    }

    fn read(
        &self,
        mut loaded: Loaded,
        landscape: Option<&LandscapeFile>,
        cache: &mut cache::Cache,
    ) -> anyhow::Result<Half> {
        loaded.widen();
        if let Some(landscape) = landscape {
            loaded.know(landscape);
        }
        let mut diagnostics = Diagnostics::default();
        let library = loaded.library(&mut diagnostics, self.templates.as_deref())?;
        let mut known = cache.begin(&loaded.options);
        parse(&mut known, &loaded.snapshot, &loaded.options);
        let definitions = definition::read(&mut diagnostics, &loaded.snapshot, &loaded.options, &mut known);
        loaded.complete()?;
        let mut diagnostics = check_templates(diagnostics, &library, &loaded.source, &definitions);
        loaded.hint(&mut diagnostics);
        cache.end(known);
        Ok(Half { loaded, definitions, library, diagnostics })
    }

    /// The target of `--target`, on either side. Fails if there is none, or more than one.
    fn target(
        &self,
        from: &Definitions,
        to: &Definitions,
        landscape: Option<&LandscapeFile>,
    ) -> anyhow::Result<Option<TargetName>> {
        let Some(text) = &self.target else { return Ok(None) };
        let known = landscape.into_iter().flat_map(|file| &file.kymas).map(KnownKyma::key);
        render::find_target(&[to, from], &known.collect::<Vec<_>>(), text).map(Some)
    }
}

// === impl Maintenance ===

impl Maintenance {
    /// The policy at this time. Fails if the file cannot be read or is invalid.
    fn load(&self) -> anyhow::Result<Option<PolicyAt>> {
        let Some(path) = &self.policy else { return Ok(None) };
        let shown = path.display();
        let text = fs::read_to_string(path).with_context(|| format!("cannot read {shown}"))?;
        let policy = match Policy::parse(&text) {
            Ok(policy) => policy,
            Err(problem) => bail!("{shown}:{}: {}", problem.line, problem.message),
        };
        for remark in policy.remarks() {
            tell!("warning: {shown}:{}: {}", remark.line, remark.message);
        }
        Ok(Some(PolicyAt { policy, now: Timestamp::now(), size_min: self.size_min.0 }))
    }
}

// === impl Half ===

impl Half {
    fn given(&self) -> Given<'_> {
        Given { snapshot: &self.loaded.snapshot, definitions: &self.definitions, library: &self.library }
    }
}

/// A warning that the report may be about the wrong GitSource.
fn source_assumed(loaded: &Loaded, other: Option<&str>) -> Option<Diagnostic> {
    let (why, hint) = loaded.assumption(other)?;
    let message = format!("{why}: this report and its commands assume {}", loaded.source);
    Some(Diagnostic::warning(CODE_SOURCE_ASSUMED, message).hint(hint))
}

/// Says that runtimes may not have what the old side says of a module.
fn failed_module(module: &Key, runtimes: &BTreeSet<Key>) -> Diagnostic {
    let (count, name) = (runtimes.len(), module.name());
    let of = if count == 1 { "1 runtime".to_owned() } else { format!("{count} runtimes") };
    let first = runtimes.first().map(|runtime| format!(", first {runtime}")).unwrap_or_default();
    let message = format!(
        "module {name} is in state Error in {of}{first}: an earlier change may have been refused there, so this report \
         may differ from what happens"
    );
    let hint = "use `--live`; approve a commit that only undoes a refused change with the trailer `Tidegate-Approve: \
                refused`";
    Diagnostic::warning(CODE_MODULE_FAILED, message).hint(hint)
}

/// Says that another source may take over more than is known here.
fn unnamed(source: &Key, count: usize) -> Diagnostic {
    let more = counted(count, "more definition");
    let message = format!(
        "GitSource {source} holds back {more} than its status names: if it declares an object that this revision \
         removes, the object stays, although this report may say that it goes"
    );
    let hint = "fix what that source holds back, or move at most 20 definitions with one commit";
    Diagnostic::warning(CODE_HELD_BACK_UNNAMED, message).hint(hint)
}

/// Says that the old side is not what the control plane has. `revision` is the one that waits.
fn unconfirmed_before(source: &SourceName, revision: &str) -> Diagnostic {
    let message = format!(
        "GitSource {source} waits for the confirmation of {revision}: this report compares with what it has afterwards"
    );
    let hint = "confirm the removals first, or use `--live` to compare with what the control plane has now";
    Diagnostic::warning(CODE_UNCONFIRMED_BEFORE, message).hint(hint)
}

/// Reads a file of `tidegate export --landscape`. Fails with file and line if it is invalid.
pub(super) fn read_landscape(path: &Path) -> anyhow::Result<LandscapeFile> {
    let shown = path.display();
    let text = fs::read_to_string(path).with_context(|| format!("cannot read {shown}"))?;
    match LandscapeFile::parse(&text) {
        Ok(file) => Ok(file),
        Err(error) => bail!("{shown}:{}: {}", error.line.max(1), error.message),
    }
}

/// A warning if the file is older than `max_age`, or from the future.
fn written(path: &Path, file: &LandscapeFile, max_age: Period) -> Option<Diagnostic> {
    let age = Timestamp::now().duration_since(file.written.0);
    if age < -CLOCKS_DIFFER_MAX {
        let message = format!(
            "landscape file {} was written at {}, which is in the future: its age is unknown",
            path.display(),
            file.written.0,
        );
        let hint = "correct the clocks, or write the file again with `tidegate export --landscape FILE`";
        return Some(Diagnostic::warning(CODE_LANDSCAPE_FUTURE, message).hint(hint));
    }
    let max = SignedDuration::try_from(max_age.0).ok()?;
    if age <= max {
        return None;
    }
    let message = format!(
        "landscape file {} was written at {}, more than {max_age} ago: its runtimes may have changed since",
        path.display(),
        file.written.0,
    );
    let hint = "write the file again with `tidegate export --landscape FILE`";
    Some(Diagnostic::warning(CODE_LANDSCAPE_OLD, message).hint(hint))
}

/// A warning about each distinct installed version that is invalid.
fn no_versions(path: &Path, file: &LandscapeFile) -> Vec<Diagnostic> {
    let mut bad: BTreeMap<(&str, &str), (Key, usize)> = BTreeMap::new();
    for kyma in &file.kymas {
        for module in &kyma.installed {
            let version = module.version.as_deref().unwrap_or_default();
            // A module whose installation has not begun has no version.
            if version.is_empty() || plan::is_version(version) {
                continue;
            }
            bad.entry((&module.name, version)).or_insert_with(|| (kyma.key(), 0)).1 += 1;
        }
    }
    let warning = |((module, version), (kyma, count)): ((&str, &str), (Key, usize))| {
        let more = if count > 1 { format!(" and {} more", count - 1) } else { String::new() };
        let message = format!(
            "landscape file {}: module {module} is installed in Kyma {kyma}{more} with the invalid version `{}`: the \
             downgrade guard cannot check it",
            path.display(),
            yaml::short(version),
        );
        Diagnostic::warning(CODE_LANDSCAPE_VERSION, message).hint("correct the version, or write the file again")
    };
    bad.into_iter().map(warning).collect()
}
