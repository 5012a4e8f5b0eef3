//! `tidegate diff`: what a revision changes, in the control plane and in runtimes.

mod cache;
mod live;

use std::{
    collections::BTreeMap,
    fs,
    ops::Range,
    panic::resume_unwind,
    path::{Path, PathBuf},
    thread,
};

use anyhow::{Context as _, bail};
use k8s_openapi::jiff::{SignedDuration, Timestamp};

use super::{
    Exit, judge, output,
    progress::Progress,
    render,
    report::Excerpts,
    repository::{Counting, Loaded},
};
use tidegate_core::{
    definition::{self, Definitions},
    diagnostic::{Diagnostic, Diagnostics},
    landscape::file::{KnownKyma, LandscapeFile},
    name::Key,
    plan::{self, Settings},
    render::offline::TargetName,
    snapshot::Snapshot,
    template::Library,
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
/// Without `--from` and `--to`, it compares the files as they lie there with the merge base of HEAD and the default
/// branch: that of `origin/HEAD`, else `origin/main`, `origin/master`, `main`, `master`. Where HEAD is on the default
/// branch, it compares them with HEAD.
///
/// Ends with 0 if nothing changes, 1 if something does, 2 if the command cannot be carried out, 3 if definitions or
/// templates of the new side are invalid, 4 if a policy is violated, 5 if something could not be looked at. Of several,
/// 3 comes first, then 5, 4 and 1.
#[derive(clap::Args)]
pub(super) struct Arguments {
    /// A repository, or a folder or file in it; all of the repository is compared, whatever is named in it.
    #[arg(value_name = "PATH", default_value = ".")]
    path: PathBuf,
    /// Branch, tag or commit of the old side.
    #[arg(long, value_name = "REV")]
    from: Option<String>,
    /// Branch, tag or commit of the new side; without it the files as they lie there, as `git add -A` would see them.
    #[arg(long, value_name = "REV")]
    to: Option<String>,
    #[command(flatten)]
    counting: Counting,
    /// Folder of templates that replace embedded ones, where the repository does not; on both sides.
    #[arg(long, value_name = "DIR")]
    templates: Option<PathBuf>,
    /// File with values that only a cluster knows: a mapping from what stands in a placeholder `((live: …))` to its value.
    #[arg(long, value_name = "FILE")]
    assume: Option<PathBuf>,
    /// Kymas that git does not declare and what is installed, as `tidegate export --landscape` writes them.
    #[arg(long, value_name = "FILE")]
    landscape: Option<PathBuf>,
    /// Warn of a landscape file that is older than this.
    #[arg(long, value_name = "DURATION", default_value = "24h", requires = "landscape")]
    max_age: Period,
    /// Folder for what a later comparison need not do again: definitions as they were checked, by their blobs. It holds no
    /// file in which a Secret may stand, and what is damaged in it does no harm.
    #[arg(long, value_name = "DIR")]
    cache_dir: Option<PathBuf>,
    /// Only this target: `kcp`, or a Kyma as NAME or NAMESPACE/NAME.
    #[arg(long, value_name = "TARGET")]
    target: Option<String>,
    /// File with a secret of at least 16 characters, for digests of Secrets' values that compare with those of another run.
    #[arg(long, value_name = "FILE")]
    mask_key_file: Option<PathBuf>,
    #[command(flatten)]
    clusters: live::Clusters,
    #[command(flatten)]
    rules: judge::Arguments,
    #[command(flatten)]
    outputs: output::Outputs,
}

/// Code of the warning about a landscape file that is older than `--max-age`.
const CODE_LANDSCAPE_OLD: &str = "landscape-old";

/// Code of the warning about a landscape file from the future.
const CODE_LANDSCAPE_FUTURE: &str = "landscape-future";
/// Code of the warning about installed versions that are none.
const CODE_LANDSCAPE_VERSION: &str = "landscape-version";
/// Clocks of two machines that are set right are no further apart.
const CLOCKS_DIFFER_MAX: SignedDuration = SignedDuration::from_mins(5);

/// Fewer runtimes than this are looked at faster than a thread is started.
const RUNTIMES_A_THREAD_MIN: usize = 500;
/// Fewer files than this are parsed faster than a thread is started.
const PIECES_A_THREAD_MIN: usize = 64;
/// More threads than this have nothing to do.
const THREADS_MAX: usize = 8;

/// One side, read.
struct Half {
    loaded: Loaded,
    definitions: Definitions,
    library: Library,
    diagnostics: Diagnostics,
}

/// Runs the command.
pub(super) fn run(arguments: &Arguments) -> anyhow::Result<Exit> {
    arguments.outputs.check()?;
    let rules = arguments.rules.load()?;
    let mask = arguments.mask_key()?;
    if arguments.clusters.live {
        return super::block_on(run_live(arguments, &rules, mask));
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
    let from = arguments.read_old(&mut cache)?;
    let to = arguments.read(arguments.to.as_deref(), Some(&from.loaded.snapshot), &mut cache)?;
    cache.store();
    progress.step("comparing");
    let mut diagnostics = to.diagnostics.clone();
    diagnostics.extend(warnings.drain(..));
    let (settings, source) = (Settings::default(), to.loaded.source.clone());
    let target = arguments.target(&from.definitions, &to.definitions, landscape.as_ref())?;
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
        mask: &mask,
        numbers: arguments.mask_key_file.is_none(),
        suspended: to.loaded.suspended || landscape.as_ref().is_some_and(|file| file.is_suspended(source.key())),
    };
    let subject = Subject {
        from: from.loaded.snapshot.revision.to_string(),
        to: to.loaded.snapshot.revision.to_string(),
        source: source.to_string(),
        landscape_written: landscape.as_ref().map(|file| file.written.0.to_string()),
        files: to.definitions.files,
    };
    let prepared = Prepared::new(&request);
    let mut draft = compare(request, &prepared, diagnostics, subject);
    rules.judge(&mut draft, &prepared.labels(), Some(&Kinds::of(&[&from.definitions, &to.definitions])));
    let report = draft.finish();
    drop(progress);
    let mut excerpts = Excerpts::new(&to.loaded.snapshot);
    arguments.outputs.write(&report, &to.loaded.below, &mut excerpts)?;
    let exit = rules.exit(&report);
    // The process ends: to give back millions of small pieces one by one would take a tenth of the time.
    std::mem::forget((prepared, report, from, to, cache));
    Ok(exit)
}

/// Runs the command with `--live`.
async fn run_live(arguments: &Arguments, rules: &judge::Rules, mask: MaskKey) -> anyhow::Result<Exit> {
    let progress = Progress::start("reading the repository");
    let mut loaded = arguments.counting.load(&arguments.path, arguments.to.as_deref(), None)?;
    loaded.widen();
    let mut diagnostics = Diagnostics::default();
    let library = loaded.library(&mut diagnostics, arguments.templates.as_deref())?;
    let (snapshot, below) = (loaded.snapshot.clone(), loaded.below.clone());
    let given = live::Given {
        loaded,
        library,
        diagnostics,
        masker: Masker::new(mask),
        numbers: arguments.mask_key_file.is_none(),
    };
    let live::Compared { mut draft, labels, kinds } = live::compare(&arguments.clusters, given, &progress).await?;
    rules.judge(&mut draft, &labels, kinds.as_ref());
    let report = draft.finish();
    drop(progress);
    arguments.outputs.write(&report, &below, &mut Excerpts::new(&snapshot))?;
    Ok(rules.exit(&report))
}

/// Parses what is not in the cache, on as many threads as the machine has.
fn parse(cache: &mut definition::Cache, snapshot: &Snapshot, options: &definition::Options) {
    loop {
        let pieces = definition::ahead(cache, snapshot, options);
        if pieces.is_empty() {
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

/// Divides `count` things among threads, each of which gets at least `share_min` of them. The results are in order.
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
        // A panic on a thread is ours as well.
        running.into_iter().map(|one| one.join().unwrap_or_else(|panic| resume_unwind(panic))).collect()
    })
}

// === impl Arguments ===

impl Arguments {
    /// What values of Secrets are masked with.
    fn mask_key(&self) -> anyhow::Result<MaskKey> {
        let Some(path) = &self.mask_key_file else {
            return Ok(MaskKey::new(tls::random().context("the system has no random bytes")?));
        };
        let text = fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
        MaskKey::of_text(&text).with_context(|| format!("{} holds less than 16 characters", path.display()))
    }

    /// The old side: what `--from` names, or where the work began.
    fn read_old(&self, cache: &mut cache::Cache) -> anyhow::Result<Half> {
        if let Some(from) = &self.from {
            return self.read(Some(from), None, cache);
        }
        let base = git::merge_base(&self.path).with_context(|| format!("cannot compare {}", self.path.display()))?;
        let mut half = self.read(Some(&base.commit.to_string()), None, cache)?;
        if let tidegate_core::revision::Revision::Commit { name, .. } = &mut half.loaded.snapshot.revision {
            *name = base.branch;
        }
        Ok(half)
    }

    fn read(&self, rev: Option<&str>, previous: Option<&Snapshot>, cache: &mut cache::Cache) -> anyhow::Result<Half> {
        let mut loaded = self.counting.load(&self.path, rev, previous)?;
        loaded.widen();
        let mut diagnostics = Diagnostics::default();
        let library = loaded.library(&mut diagnostics, self.templates.as_deref())?;
        let mut known = cache.begin(&loaded.options);
        parse(&mut known, &loaded.snapshot, &loaded.options);
        let definitions = definition::read(&mut diagnostics, &loaded.snapshot, &loaded.options, &mut known);
        loaded.hint(&mut diagnostics);
        cache.end(known);
        Ok(Half { loaded, definitions, library, diagnostics })
    }

    /// The target that the user means, on either side.
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

// === impl Half ===

impl Half {
    fn given(&self) -> Given<'_> {
        Given { snapshot: &self.loaded.snapshot, definitions: &self.definitions, library: &self.library }
    }
}

fn read_landscape(path: &Path) -> anyhow::Result<LandscapeFile> {
    let shown = path.display();
    let text = fs::read_to_string(path).with_context(|| format!("cannot read {shown}"))?;
    match LandscapeFile::parse(&text) {
        Ok(file) => Ok(file),
        Err(error) => bail!("{shown}:{}: {}", error.line.max(1), error.message),
    }
}

/// A warning, if the file was written longer ago than the user thinks right, or not yet.
fn written(path: &Path, file: &LandscapeFile, max_age: Period) -> Option<Diagnostic> {
    let age = Timestamp::now().duration_since(file.written.0);
    if age < -CLOCKS_DIFFER_MAX {
        let message = format!(
            "the landscape file {} says that it was written at {}, which is yet to come: nobody knows how old it is",
            path.display(),
            file.written.0,
        );
        let hint = "set the clocks right, or write it anew with `tidegate export --landscape FILE`";
        return Some(Diagnostic::warning(CODE_LANDSCAPE_FUTURE, message).hint(hint));
    }
    let max = SignedDuration::try_from(max_age.0).ok()?;
    if age <= max {
        return None;
    }
    let message = format!(
        "the landscape file {} was written at {}, more than {max_age} ago: what it says of runtimes may not hold any more",
        path.display(),
        file.written.0,
    );
    let hint = "write it anew with `tidegate export --landscape FILE`";
    Some(Diagnostic::warning(CODE_LANDSCAPE_OLD, message).hint(hint))
}

/// A warning about each distinct installed version that is none.
fn no_versions(path: &Path, file: &LandscapeFile) -> Vec<Diagnostic> {
    let mut bad: BTreeMap<(&str, &str), (Key, usize)> = BTreeMap::new();
    for kyma in &file.kymas {
        for module in &kyma.installed {
            let version = module.version.as_deref().unwrap_or_default();
            // None is said of a module whose installation has not begun.
            if version.is_empty() || plan::is_version(version) {
                continue;
            }
            bad.entry((&module.name, version)).or_insert_with(|| (kyma.key(), 0)).1 += 1;
        }
    }
    let warning = |((module, version), (kyma, count)): ((&str, &str), (Key, usize))| {
        let more = if count > 1 { format!(" and {} more", count - 1) } else { String::new() };
        let message = format!(
            "the landscape file {} says that module {module} is installed in Kyma {kyma}{more} as `{}`, which is no version: \
             the downgrade guard cannot judge it",
            path.display(),
            yaml::short(version),
        );
        Diagnostic::warning(CODE_LANDSCAPE_VERSION, message).hint("mend it, or write the file anew")
    };
    bad.into_iter().map(warning).collect()
}
