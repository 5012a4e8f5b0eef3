//! `tidegate adopt`: takes a landscape of Lifecycle Manager over, and gives it back. `adopt kcp` takes kcp landscapes
//! over from kcp-operator.
//!
//! `plan` says what stands in the way, and changes nothing. `take` does what the daemon does not do by itself: it lets
//! the API server store no outdated version, it marks definitions that git and the control plane have alike, it becomes
//! the field manager of Manifests, and it has runtimes stay as Lifecycle Manager left them until `take --finish`.
//! `release` undoes what Tidegate left, so that Lifecycle Manager goes on without conflicts. Each step looks before it
//! writes, so each command can be cut off anywhere and started again: tests cut each off at 50 points.
//!
//! `from-flux` and `from-argocd` say how another tool hands its definitions over first.
//!
//! `read` asks the control plane, `runtimes` the runtimes and `registries` the registries of modules,
//! [`tidegate_core::adopt`] decides, `write` and `release` send the requests.

mod certificates;
mod events;
mod finish;
mod hand_over;
mod kcp;
mod read;
mod registries;
mod release;
mod runtimes;
mod write;

use std::{
    collections::{BTreeMap, BTreeSet},
    num::NonZeroUsize,
};

use anyhow::bail;
use k8s_openapi::jiff::Timestamp;
use serde::Serialize;
use tidegate_cluster::{Cause, Cluster, ClusterName, Limits, Network};
use tidegate_core::{
    adopt::{
        self, Answer, Finding, Level, Uncommitted,
        hand_over::{Checked, Program},
    },
    api::Kyma,
    definition::{self, Definitions},
    diagnostic::{Diagnostics, Severity},
    landscape::SourceName,
    name::Key,
    plan::Settings,
    words::{agreeing, counted, few},
};
use tidegate_process::{Exit, say, tell};

pub use self::kcp::KcpArguments;
pub(super) use self::read::{check_namespaces, missing};
use self::{
    certificates::Certificates,
    finish::Finished,
    read::Facts,
    registries::{Asked, Registries},
    release::Outcome,
};
use super::{
    control_plane::{self, Access},
    repository::{Loaded, Repository},
    version,
};

/// Takes a landscape of Lifecycle Manager over, and gives it back; takes kcp landscapes over from kcp-operator.
#[derive(clap::Args)]
pub(super) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    Plan(PlanArguments),
    Take(TakeArguments),
    Release(ReleaseArguments),
    Kcp(KcpArguments),
    /// Says how Flux hands its definitions over, one kind at a time. Changes nothing. Exit code 0: it has none; 1: a
    /// step is left, or there are no definitions; 5: the control plane lacks kinds.
    ///
    /// Finds the definitions that Flux manages by their labels, and says which steps are done: suspend, protect from
    /// the prune, remove from the repository of Flux, remove its labels. Reads Kymas, ModuleTemplates,
    /// ModuleReleaseMetas and Watchers, the kinds of kcp landscapes, and the Kustomizations and HelmReleases of the
    /// control plane.
    FromFlux(HandOverArguments),
    /// Says how Argo CD hands its definitions over, one kind at a time. Changes nothing. Exit code 0: it has none; 1: a
    /// step is left, or there are no definitions; 5: the control plane lacks kinds.
    ///
    /// Finds the definitions that Argo CD manages by their labels and annotations, and says which steps are done: turn
    /// automatic syncs off, protect from the prune, remove from the repository of the Application, remove its marks.
    /// Reads Kymas, ModuleTemplates, ModuleReleaseMetas and Watchers, the kinds of kcp landscapes, and the Applications
    /// of the control plane.
    FromArgocd(HandOverArguments),
}

/// Says whether a landscape of Lifecycle Manager can be taken over. Changes nothing. Exit code 0: ready; 1: something
/// must be done first.
///
/// Reads the definitions of a repository, and the control plane: CustomResourceDefinitions, webhooks, the Lease, Kymas,
/// Manifests, ModuleTemplates, ModuleReleaseMetas, Watchers and their Services, GitSources, Certificates and access
/// Secrets.
/// Lists in each runtime what Lifecycle Manager applied, and reports what no Manifest names. Asks the registries for
/// components that no Manifest records, and each for one that is installed. `tidegate diff --live` says what a
/// take-over changes in runtimes.
#[derive(clap::Args)]
struct PlanArguments {
    #[command(flatten)]
    repository: Repository,
    #[command(flatten)]
    landscape: Landscape,
    /// Skip the runtimes, for example because they cannot be reached [default: off]
    #[arg(long)]
    no_runtimes: bool,
    /// Print in this format
    #[arg(short, long, value_enum, default_value_t = Output::Text)]
    output: Output,
}

/// Takes over what the daemon does not take over by itself. Exit code 0: done; 1: something must be done first.
///
/// Writes objects again that the API server may store in an outdated version, and gives the ownership label to
/// definitions that are alike in git and in the control plane. Becomes the field manager of the Manifests that
/// Lifecycle Manager applied. Annotates each Kyma that Lifecycle Manager has reconciled: the agent in its runtime
/// stays as it is until `--finish`. Releases the Lease of a Lifecycle Manager that has ended. Writes nothing to
/// runtimes. Without `--yes`, it says what it would do. It can be cut off anywhere and started again.
#[derive(clap::Args)]
pub struct TakeArguments {
    #[command(flatten)]
    repository: Repository,
    #[command(flatten)]
    landscape: Landscape,
    /// Let the agents of Lifecycle Manager become Tidegate's, while the daemon runs [default: off; they stay]
    #[arg(long)]
    finish: bool,
    /// Limit `--finish` to this number of runtimes, in the order of their names [default: all]
    #[arg(long, value_name = "NUMBER", value_parser = number_of_runtimes)]
    limit: Option<NonZeroUsize>,
    /// Write what is to be written [default: off; only say what it is]
    #[arg(long)]
    yes: bool,
}

/// Gives a landscape back to Lifecycle Manager. Exit code 0: done; 1: something must be done first; 5: runtimes are
/// left or skipped.
///
/// Gives the fields of objects in the control plane and in runtimes back to the field managers of Lifecycle Manager,
/// and removes labels, annotations and conditions that only Tidegate understands: it lists them. Changes nothing else,
/// and deletes nothing. Stop the daemon and delete its GitSources before. Without `--yes`, it says what it would do. It
/// can be cut off anywhere and started again.
#[derive(clap::Args)]
pub struct ReleaseArguments {
    #[command(flatten)]
    access: Access,
    /// Give the landscape in this namespace back; repeat the option for more [default: kcp-system]
    #[arg(short, long = "namespace", value_name = "NAMESPACE")]
    namespaces: Vec<String>,
    /// Skip the runtimes, for example until they can be reached; Lifecycle Manager must wait for them [default: off]
    #[arg(long)]
    no_runtimes: bool,
    /// Give the certificates of runtimes and the Secret of the gateway in this namespace back
    #[arg(long, value_name = "NAME", default_value = "istio-system")]
    istio_namespace: String,
    /// Write what is to be written [default: off; only say what it is]
    #[arg(long)]
    yes: bool,
}

/// What another tool hands over.
#[derive(clap::Args)]
struct HandOverArguments {
    #[command(flatten)]
    access: Access,
    /// Look for definitions in this namespace; repeat the option for more [default: kcp-system]
    #[arg(short, long = "namespace", value_name = "NAMESPACE")]
    namespaces: Vec<String>,
    /// Treat a step as done that the control plane does not show, for example `Kyma/remove`; repeat the option for more
    /// [default: none]
    ///
    /// The kind, and `stop`, `protect` or `remove`, as the command prints them beside `check`. It has no effect where
    /// the control plane shows that the step is not done.
    #[arg(long, value_name = "KIND/STEP")]
    checked: Vec<Checked>,
    /// Print in this format
    #[arg(short, long, value_enum, default_value_t = Output::Text)]
    output: Output,
}

/// The landscape to take over.
#[derive(clap::Args)]
struct Landscape {
    #[command(flatten)]
    access: Access,
    /// Read the certificates of runtimes in this namespace
    #[arg(long, value_name = "NAME", default_value = "istio-system")]
    istio_namespace: String,
    /// Expect a daemon with these `--restricted-default-modules`, separated by commas [default: none]
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    restricted_default_modules: Vec<String>,
    #[command(flatten)]
    registries: Registries,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum Output {
    /// A table for people
    Text,
    /// JSON for programs
    Json,
}

/// How many errors of a repository end a command by name.
const ERRORS_MAX: usize = 10;

/// What `plan -o json` prints.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Report<'a> {
    #[serde(flatten)]
    head: Option<&'a Head>,
    ready: bool,
    findings: &'a [Finding],
}

/// What a plan is about: who signs it must know.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Head {
    /// Host and port of the control plane.
    server: String,
    /// The namespaces of the landscape.
    namespaces: Vec<String>,
    /// The GitSource.
    source: String,
    /// The revision of its repository, or what is read in place of one.
    revision: String,
    /// When the control plane was read.
    date: String,
    /// The version of this program.
    version: String,
}

/// What `take` wrote, or would write.
pub struct Taken {
    /// How many objects were stored again.
    pub stored: usize,
    /// How many definitions got the ownership label.
    pub marked: usize,
    /// How many Manifests got Tidegate's field manager.
    pub claimed: usize,
    /// How many runtimes stay as Lifecycle Manager left them.
    pub held: usize,
    /// The process whose Lease was released: it has ended, and did not do so itself.
    pub freed: Option<String>,
    /// The GitSource.
    pub source: SourceName,
}

/// A landscape as git declares it.
struct Declared {
    definitions: Definitions,
    source: SourceName,
    namespaces: Vec<String>,
    /// Whether the file of the GitSource lets the daemon delete what git no longer declares.
    prune: bool,
    /// Whether it suspends the GitSource.
    suspended: bool,
    /// The revision, or what is read in place of one.
    revision: String,
    /// Why no daemon can read exactly this, if none can.
    uncommitted: Option<Uncommitted>,
}

// === impl Head ===

impl Head {
    fn of(cluster: &Cluster, declared: &Declared, now: Timestamp) -> Head {
        Head {
            server: cluster.server().to_owned(),
            namespaces: declared.namespaces.clone(),
            source: declared.source.to_string(),
            revision: declared.revision.clone(),
            date: Timestamp::from_second(now.as_second()).unwrap_or(now).to_string(),
            version: version::line(),
        }
    }

    /// The lines above the findings, the last of which is empty.
    fn lines(&self) -> [String; 5] {
        let Head { server, namespaces, source, revision, date, version } = self;
        [
            format!("Take-over of the landscape in {}, control plane {server}", namespaces.join(", ")),
            format!("by GitSource {source}, revision {revision}"),
            format!("as of {date}"),
            format!("by tidegate {version}"),
            String::new(),
        ]
    }
}

// === impl Taken ===

impl Taken {
    /// Says what was written, or would be.
    fn say(&self, is_written: bool) -> Exit {
        let (verb, next) = match is_written {
            true => {
                let next = "start the daemon with this source: it takes the rest over, each object with one write";
                ("", next.to_owned())
            }
            false => ("would be ", confirmed()),
        };
        let (stored, marked) = (counted(self.stored, "object"), counted(self.marked, "definition"));
        let (claimed, held) = (counted(self.claimed, "Manifest"), counted(self.held, "runtime"));
        if let Some(name) = &self.freed {
            say!(
                "the Lease of {name}, which has ended, {}",
                if is_written { "is released" } else { "would be released" }
            );
        }
        say!(
            "{stored} {verb}stored again, {marked} {verb}marked for {}, {claimed} {verb}taken over, {held} \
             {verb}held; {next}",
            self.source
        );
        Exit::Ok
    }
}

// === impl Outcome ===

impl Outcome {
    /// Says what was written, or would be. Runtimes that still have something of Tidegate come first: Lifecycle Manager
    /// must wait for them.
    fn say(&self, is_written: bool) -> Exit {
        let verb = if is_written { "" } else { "would be " };
        self.left.iter().for_each(|sentence| tell!("warning: {sentence}"));
        if !self.skipped.is_empty() {
            let (skipped, is) = (counted(self.skipped.len(), "runtime"), agreeing(self.skipped.len(), "is", "are"));
            tell!("warning: {skipped} {is} skipped: {}", few(&self.skipped));
        }
        let (changed, unchanged) = (counted(self.changed, "object"), self.unchanged);
        say!("{changed} {verb}given back, {unchanged} had nothing of Tidegate");
        if !self.unreached.is_empty() {
            let (count, has) =
                (counted(self.unreached.len(), "runtime"), agreeing(self.unreached.len(), "has", "have"));
            let was = agreeing(self.unreached.len(), "was", "were");
            say!("{count} {has} no access Secret and {was} never reached: {}", few(&self.unreached));
        }
        let lines = self.understood();
        if !lines.is_empty() {
            say!("what only Tidegate understands {verb}removed:", verb = if is_written { "was " } else { verb });
            lines.iter().for_each(|line| say!("  {line}"));
        }
        self.remarks.iter().for_each(|remark| tell!("warning: {remark}"));
        match is_written {
            true => say!("{}", self.next()),
            false => say!("{}", confirmed()),
        }
        if self.left.is_empty() && self.skipped.is_empty() { Exit::Ok } else { Exit::Incomplete }
    }

    /// What comes after this command. A runtime that still has something of Tidegate comes before Lifecycle Manager.
    fn next(&self) -> &'static str {
        match (self.left.is_empty(), self.skipped.is_empty()) {
            (false, _) => "next: run the command again, until no runtime is left; then start Lifecycle Manager",
            (true, false) => "next: run the command without --no-runtimes; then start Lifecycle Manager",
            (true, true) => "next: start Lifecycle Manager",
        }
    }
}

// === impl Landscape ===

impl Landscape {
    /// What the control plane says. Fails if a request fails.
    async fn read(&self, cluster: &Cluster, declared: &Declared) -> anyhow::Result<Facts> {
        Facts::read(cluster, &declared.namespaces, &self.istio_namespace, declared).await
    }

    /// All findings, the most urgent first. `labelled` is what the runtimes that were asked have. Fails if an object is
    /// not as its definition says, or if the Secret of a registry cannot be used.
    async fn findings(
        &self,
        cluster: &Cluster,
        facts: &Facts,
        labelled: &BTreeMap<Key, Answer>,
        declared: &Declared,
    ) -> anyhow::Result<Vec<Finding>> {
        let Declared { definitions, source, .. } = declared;
        let restricted_modules = self.restricted_default_modules.iter().cloned().collect();
        let settings = Settings { restricted_modules, ..Settings::default() };
        let after = facts.landscape_after(definitions, source)?;
        let opened = self.registries.open(cluster).await?;
        let named = &opened.named;
        let mut wanted = adopt::unrecorded(&after, &facts.manifests, &settings);
        wanted.extend(adopt::elsewhere(&after, &facts.manifests, &settings, named));
        let samples = adopt::samples(&after, &facts.manifests, &settings, named);
        let Asked { found, silent, answers } = opened.ask(wanted, samples).await;
        let Certificates { issuer, runtimes } = &facts.certificates;
        let mut findings = vec![match &facts.ended {
            Some(ended) => adopt::ended(&ended.holder),
            None => adopt::leader(facts.holder.as_ref()),
        }];
        let crds = facts.stored();
        findings.extend(adopt::kinds(&facts.missing).filter(|_| !crds.is_empty()));
        findings.extend((!facts.serves_sources && !crds.is_empty()).then(adopt::unserved_sources));
        findings.extend(adopt::storage(&crds));
        findings.extend(adopt::empty(&facts.empty, facts.empty.len() < declared.namespaces.len()));
        findings.extend(adopt::definitions(&facts.standings(definitions, source), &facts.undeclared));
        let has_definitions = !definitions.good.is_empty();
        findings.extend(declared.uncommitted.as_ref().filter(|_| has_definitions).map(adopt::uncommitted));
        findings.extend(adopt::modules(facts.kymas_after(definitions, source)));
        findings.extend(adopt::rendering(&after, &facts.manifests, &settings, named, &found, &answers));
        findings.extend(adopt::silent(&silent));
        findings.extend(adopt::from_git(&after, &facts.manifests));
        findings.extend(adopt::held(&facts.held(), &facts.to_hold()));
        findings.extend(adopt::first_contact(&facts.contacts()));
        findings.extend(adopt::ending(&facts.ending()));
        findings.extend(adopt::claims(&facts.to_claim().into_iter().map(read::key_of).collect::<Vec<_>>()));
        findings.extend(adopt::orphans(&facts.manifests, &facts.kymas()));
        findings.extend(adopt::leftovers(labelled, &after, &facts.manifests, &settings));
        findings.extend(adopt::access(&facts.access));
        findings.extend(adopt::webhooks(&facts.webhooks));
        findings.extend(adopt::watchers(&facts.services));
        let kymas: Vec<Kyma> = facts.live_kymas().collect();
        findings.extend(adopt::identities(*issuer, &kymas));
        findings.extend(adopt::certificates(*issuer, runtimes, Timestamp::now()));
        findings.extend(adopt::field_managers(&facts.managers));
        findings.sort_by_key(|finding| (finding.level, finding.topic));
        Ok(findings)
    }
}

/// Runs the command. Fails if the repository or the control plane cannot be read, or if a write is refused.
pub(super) async fn run(arguments: Arguments) -> anyhow::Result<Exit> {
    let network = Network::real();
    match arguments.command {
        Command::FromFlux(arguments) => hand_over::run(Program::Flux, &arguments, &network).await,
        Command::FromArgocd(arguments) => hand_over::run(Program::ArgoCd, &arguments, &network).await,
        Command::Kcp(arguments) => kcp::say(&kcp(&arguments, &network).await?, &arguments),
        Command::Plan(arguments) => {
            let (head, findings) = plan(&arguments, &network).await?;
            report(Some(&head), &findings, arguments.output)
        }
        Command::Take(arguments) if arguments.finish => match finish(&arguments, &network).await? {
            Ok(finished) => Ok(finished.say(arguments.yes)),
            Err(blocking) => Ok(refused(&blocking)),
        },
        Command::Take(arguments) if arguments.limit.is_some() => bail!(
            "--limit counts the runtimes of --finish: add --finish, or omit --limit, because `adopt take` alone writes \
             to no runtime"
        ),
        Command::Take(arguments) => match take(&arguments, &network).await? {
            Ok(taken) => Ok(taken.say(arguments.yes)),
            Err(blocking) => Ok(refused(&blocking)),
        },
        Command::Release(arguments) => match release(&arguments, &network).await? {
            Ok(outcome) => Ok(outcome.say(arguments.yes)),
            Err(blocking) => Ok(refused(&blocking)),
        },
    }
}

/// Parses the value of `--limit`. Fails unless it is a number of at least 1.
fn number_of_runtimes(text: &str) -> Result<NonZeroUsize, String> {
    text.parse().map_err(|_| "use a number of runtimes, at least 1, or omit the option to finish all".to_owned())
}

/// All findings, and what they are about. Fails if the repository or the control plane cannot be read.
async fn plan(arguments: &PlanArguments, network: &Network) -> anyhow::Result<(Head, Vec<Finding>)> {
    let PlanArguments { repository, landscape, no_runtimes, .. } = arguments;
    let (cluster, declared) = begin(repository, landscape, network).await?;
    let head = Head::of(&cluster, &declared, Timestamp::now());
    let facts = landscape.read(&cluster, &declared).await?;
    let asked = if *no_runtimes { BTreeSet::new() } else { facts.reachable() };
    let kinds = adopt::kinds_left(&facts.manifests);
    let labelled = runtimes::labelled(&cluster, limits(&landscape.access), &asked, &kinds).await;
    Ok((head, landscape.findings(&cluster, &facts, &labelled, &declared).await?))
}

/// Takes a landscape over, or says what that would write. Returns the findings if one of them blocks.
///
/// May be dropped at any `await` and run again.
///
/// # Errors
///
/// Fails if the repository or the control plane cannot be read, or if a write is refused.
pub async fn take(arguments: &TakeArguments, network: &Network) -> anyhow::Result<Result<Taken, Vec<Finding>>> {
    let TakeArguments { repository, landscape, yes, .. } = arguments;
    let (cluster, declared) = begin(repository, landscape, network).await?;
    let facts = landscape.read(&cluster, &declared).await?;
    let findings = landscape.findings(&cluster, &facts, &BTreeMap::new(), &declared).await?;
    if !adopt::may_begin(&findings) {
        return Ok(Err(findings));
    }
    let Declared { definitions, source, .. } = declared;
    let cause = Cause::trigger("adopt take");
    let (to_hold, to_claim) = (facts.to_hold(), facts.to_claim());
    let (stored, marked) = if *yes {
        // Before anything is written: its holder may run all the same.
        if let Some(ended) = &facts.ended {
            write::wait_for_silence(&cluster, ended).await?;
        }
        // First, so that no daemon meets a runtime that is marked later.
        write::hold(&cluster, &cause, &to_hold).await?;
        // Before they are stored again, which would change the version that was read. This stores them as well.
        write::claim(&cluster, &cause, &to_claim).await?;
        let stored = write::store_again(&cluster, &cause, &facts).await?;
        let marked = write::mark(&cluster, &cause, &facts, &definitions, &source).await?;
        // Last: a daemon that waits for it must find all of this.
        if let Some(ended) = &facts.ended {
            write::free(&cluster, &cause, ended).await?;
        }
        (stored, marked)
    } else {
        (facts.outdated(), facts.equal(&definitions, &source).len())
    };
    let freed = facts.ended.as_ref().map(|ended| ended.holder.name.clone());
    Ok(Ok(Taken { stored, marked, claimed: to_claim.len(), held: to_hold.len(), freed, source }))
}

/// Ends the adoption of runtimes, or says which. Returns the finding that blocks it. Reads no repository, and refuses
/// arguments that select one.
///
/// May be dropped at any `await` and run again.
///
/// # Errors
///
/// Fails if the control plane cannot be read, or if it refuses a write.
pub async fn finish(arguments: &TakeArguments, network: &Network) -> anyhow::Result<Result<Finished, Vec<Finding>>> {
    let TakeArguments { repository, landscape, limit, yes, .. } = arguments;
    // It would look as if only the runtimes of this repository were finished.
    if let Some(what) = repository.selected_by() {
        bail!(
            "--finish reads no repository and finishes the runtimes of a namespace: omit {what}, and use -n and --limit"
        );
    }
    let cluster = connect(&landscape.access, network).await?;
    read::check_namespaces(&cluster, repository.namespaces()).await?;
    let blocking = finish::blocking(&cluster, repository.namespaces()).await?;
    if !blocking.is_empty() {
        return Ok(Err(blocking));
    }
    let limit = limit.unwrap_or(NonZeroUsize::MAX).get();
    finish::run(&cluster, &Cause::trigger("adopt finish"), repository.namespaces(), limit, *yes).await.map(Ok)
}

/// Gives a landscape back, or says what that would write. Returns the findings that block it.
///
/// May be dropped at any `await` and run again.
///
/// # Errors
///
/// Fails if the control plane cannot be read, or if it refuses a write.
pub async fn release(arguments: &ReleaseArguments, network: &Network) -> anyhow::Result<Result<Outcome, Vec<Finding>>> {
    let cluster = connect(&arguments.access, network).await?;
    let namespaces = control_plane::namespaces(&arguments.namespaces);
    read::check_namespaces(&cluster, &namespaces).await?;
    let blocking = release::blocking(&cluster, &namespaces).await?;
    if !blocking.is_empty() {
        return Ok(Err(blocking));
    }
    let cause = Cause::trigger("adopt release");
    let ReleaseArguments { istio_namespace: istio, no_runtimes, .. } = arguments;
    let limits = limits(&arguments.access);
    let scope = release::ReleaseScope { namespaces: &namespaces, istio, no_runtimes: *no_runtimes, limits };
    release::run(&cluster, &cause, &scope, arguments.yes).await.map(Ok)
}

/// The control plane, and the definitions of the repository. Fails if either cannot be read, or if a namespace does not
/// exist: no definition would be valid there.
async fn begin(
    repository: &Repository,
    landscape: &Landscape,
    network: &Network,
) -> anyhow::Result<(Cluster, Declared)> {
    let cluster = connect(&landscape.access, network).await?;
    read::check_namespaces(&cluster, repository.namespaces()).await?;
    Ok((cluster, declared(repository)?))
}

/// The definitions of the repository. Fails if it cannot be read, or if nothing names its GitSource.
fn declared(repository: &Repository) -> anyhow::Result<Declared> {
    let mut loaded = repository.load()?;
    loaded.widen();
    let mut diagnostics = Diagnostics::default();
    let mut cache = definition::Cache::default();
    let definitions = definition::read(&mut diagnostics, &loaded.snapshot, &loaded.options, &mut cache);
    if let Some(why) = refusal(&loaded, repository.is_input(), diagnostics) {
        bail!(why);
    }
    let namespaces = loaded.options.namespaces.clone();
    let (revision, uncommitted) = repository.described(&loaded);
    let (prune, suspended) = (loaded.policy.prune, loaded.suspended);
    Ok(Declared { definitions, source: loaded.source, namespaces, prune, suspended, revision, uncommitted })
}

/// Why a repository does not say what a GitSource declares; `None` if it does. Errors in its files come first.
fn refusal(loaded: &Loaded, is_input: bool, diagnostics: Diagnostics) -> Option<String> {
    let assumption = loaded.assumption(None).map(|(problem, next)| format!("{problem}: {next}"));
    if diagnostics.has_errors() {
        let more = assumption.map(|text| format!("\n  {text}"));
        return Some(errors_of(diagnostics) + &more.unwrap_or_default());
    }
    if is_input && loaded.is_blank() {
        return Some("no definitions found: standard input is empty: check the command that writes it".to_owned());
    }
    assumption
}

/// What ends a command whose repository has errors: it names the first ones, each with file and line. A check with
/// other options might not find them.
fn errors_of(diagnostics: Diagnostics) -> String {
    let sorted = diagnostics.sorted();
    let errors: Vec<String> =
        sorted.iter().filter(|one| one.severity == Severity::Error).map(ToString::to_string).collect();
    let more = match errors.len().saturating_sub(ERRORS_MAX) {
        0 => String::new(),
        more => format!("\n  and {more} more"),
    };
    let named: String = errors.iter().take(ERRORS_MAX).map(|error| format!("\n  {error}")).collect();
    format!("the repository has {}:{named}{more}", counted(errors.len(), "error"))
}

/// Prints the findings. The exit code says whether one of them blocks.
fn report(head: Option<&Head>, findings: &[Finding], output: Output) -> anyhow::Result<Exit> {
    let is_ready = adopt::may_begin(findings);
    match output {
        Output::Text => {
            head.into_iter().flat_map(Head::lines).for_each(|line| say!("{line}"));
            print(findings);
        }
        Output::Json => say!("{}", serde_json::to_string_pretty(&Report { head, ready: is_ready, findings })?),
    }
    Ok(if is_ready { Exit::Ok } else { Exit::Changes })
}

/// Prints why a command wrote nothing.
fn refused(findings: &[Finding]) -> Exit {
    list(findings);
    let blocking = findings.iter().filter(|finding| finding.level == Level::Blocks).count();
    say!("\nnothing was written: {} {} to resolve first", blocking, agreeing(blocking, "finding is", "findings are"));
    Exit::Changes
}

/// How to do what a command only says: this command with `--yes`, as a user can type it.
fn confirmed() -> String {
    let words = std::env::args_os().skip(1).map(|word| say::word(word.to_string_lossy()));
    with_yes(&words.collect::<Vec<String>>())
}

/// The same, from the words of the command. What follows `--` is no option.
fn with_yes(words: &[String]) -> String {
    let end = words.iter().position(|word| word == "--").unwrap_or(words.len());
    let (options, rest) = words.split_at(end);
    let (program, yes) = (["tidegate".to_owned()], ["--yes".to_owned()]);
    let all = [&program[..], options, &yes[..], rest].concat();
    format!("to do it: {}", all.join(" "))
}

/// The table of `plan`.
fn print(findings: &[Finding]) {
    list(findings);
    let count = |level: Level| findings.iter().filter(|finding| finding.level == level).count();
    say!(
        "\n{} ready, {} for `tidegate adopt take`, {} to resolve first",
        count(Level::Ready),
        count(Level::Todo),
        count(Level::Blocks)
    );
}

/// The rows of a table of findings.
fn list(findings: &[Finding]) {
    for finding in findings {
        let level = match finding.level {
            Level::Blocks => "blocks",
            Level::Todo => "to do",
            Level::Note => "note",
            Level::Ready => "ready",
        };
        say!("{level:<7} {}", finding.message);
        if let Some(next) = &finding.next {
            say!("        {next}");
        }
    }
}

/// Takes kcp landscapes over, or says what that would write: all findings.
///
/// May be dropped at any `await` and run again.
///
/// # Errors
///
/// Fails if the control plane cannot be read, or if it does not answer a write.
pub async fn kcp(arguments: &KcpArguments, network: &Network) -> anyhow::Result<Vec<Finding>> {
    kcp::run(arguments, network).await
}

/// The control plane. Fails if the kubeconfig cannot be used.
async fn connect(access: &Access, network: &Network) -> anyhow::Result<Cluster> {
    Ok(Cluster::on(network, ClusterName::Kcp, &access.config().await?, limits(access))?)
}

/// The limits of requests to the control plane, and to each runtime.
fn limits(access: &Access) -> Limits {
    access.limits(Limits::default().concurrency)
}

#[cfg(test)]
mod tests {
    use tidegate_core::diagnostic::{Diagnostic, FilePosition};

    use super::*;

    #[test]
    fn what_to_type_is_the_whole_command() {
        let of = |words: &[&str]| with_yes(&words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>());
        assert_eq!(of(&["adopt", "take", "."]), "to do it: tidegate adopt take . --yes");
        assert_eq!(of(&["adopt", "take", "--", "-x"]), "to do it: tidegate adopt take --yes -- -x");
    }

    #[test]
    fn lifecycle_manager_waits_for_runtimes_that_were_left_or_skipped() {
        let names = |count: usize| vec!["kcp-system/a".to_owned(); count];
        let next = |left, skipped| Outcome { left: names(left), skipped: names(skipped), ..Outcome::default() }.next();
        assert_eq!(next(0, 0), "next: start Lifecycle Manager");
        assert!(
            next(1, 0).starts_with("next: run the command again, ")
                && next(1, 0).ends_with("; then start Lifecycle Manager")
        );
        assert!(next(0, 1).starts_with("next: run the command without --no-runtimes; "));
    }

    #[test]
    fn errors_of_the_repository_are_named_with_file_and_line() {
        let mut diagnostics = Diagnostics::default();
        for line in 1..=12 {
            let place = FilePosition { path: "a.yaml".into(), line, column: 1 };
            diagnostics.push(Diagnostic::error("unknown-field", format!("wrong {line}")).at(place));
        }
        diagnostics.push(Diagnostic::warning("unknown-field", "odd"));
        let text = errors_of(diagnostics);
        assert!(text.starts_with("the repository has 12 errors:\n  a.yaml:1:1: wrong 1\n"), "{text}");
        assert!(text.ends_with("wrong 10\n  and 2 more"), "{text}");
    }
}
