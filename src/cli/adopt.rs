//! `tidegate adopt`: takes a landscape of Lifecycle Manager over, and gives it back.
//!
//! `plan` says what stands in the way, and changes nothing. `take` does what the daemon does not do by itself: it lets
//! the API server store no outdated version, and it marks definitions that git and the control plane have alike.
//! `release` undoes what Tidegate left, so that Lifecycle Manager goes on without conflicts. Each step looks before it
//! writes, so each command can be cut off anywhere and started again.
//!
//! `from-flux` and `from-argocd` say how another tool hands its definitions over first.
//!
//! `read` asks the control plane, [`tidegate_core::adopt`] decides, `write` and `release` send the requests.

mod hand_over;
mod read;
mod release;
mod write;

use anyhow::bail;
use serde::Serialize;
use tidegate_cluster::{Cause, Cluster, ClusterName, Limits};
use tidegate_core::{
    adopt::{self, Finding, Level, hand_over::Program},
    definition::{self, Definitions},
    diagnostic::Diagnostics,
    landscape::SourceName,
};
use tidegate_process::{Exit, say, tell};

use self::read::Facts;
use super::{
    control_plane::{self, Access},
    repository::Repository,
};

/// Takes a landscape of Lifecycle Manager over, and gives it back.
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
    /// Says how Flux hands its definitions over, one kind at a time. Changes nothing. Exit code 0: it has none; 1: a
    /// step is left.
    ///
    /// Finds the definitions that Flux manages by their labels, and says which steps are done: suspend, protect from
    /// the prune, remove from the repository of Flux, remove its labels. Reads Kymas, ModuleTemplates,
    /// ModuleReleaseMetas and Watchers, and the Kustomizations and HelmReleases of the control plane.
    FromFlux(HandOverArguments),
    /// Says how Argo CD hands its definitions over, one kind at a time. Changes nothing. Exit code 0: it has none; 1: a
    /// step is left.
    ///
    /// Finds the definitions that Argo CD manages by their labels and annotations, and says which steps are done: turn
    /// automatic syncs off, protect from the prune, remove from the repository of the Application, remove its marks.
    /// Reads Kymas, ModuleTemplates, ModuleReleaseMetas and Watchers, and the Applications of the control plane.
    FromArgocd(HandOverArguments),
}

/// Says whether a landscape of Lifecycle Manager can be taken over. Changes nothing. Exit code 0: ready; 1: something
/// must be done first.
///
/// Reads the definitions of a repository, and the control plane: CustomResourceDefinitions, the Lease, Kymas,
/// Manifests, ModuleTemplates, ModuleReleaseMetas, Watchers and access Secrets. Contacts no runtime: `tidegate diff
/// --live` says what a take-over changes there.
#[derive(clap::Args)]
struct PlanArguments {
    #[command(flatten)]
    repository: Repository,
    #[command(flatten)]
    access: Access,
    /// Print in this format
    #[arg(short, long, value_enum, default_value_t = Output::Text)]
    output: Output,
}

/// Takes over what the daemon does not take over by itself. Exit code 0: done; 1: something must be done first.
///
/// Writes objects again that the API server may store in an outdated version, and gives the ownership label to
/// definitions that are alike in git and in the control plane. Writes nothing to runtimes. Without `--yes`, it says
/// what it would do. It can be cut off anywhere and started again.
#[derive(clap::Args)]
struct TakeArguments {
    #[command(flatten)]
    repository: Repository,
    #[command(flatten)]
    access: Access,
    /// Write what is to be written [default: off; only say what it is]
    #[arg(long)]
    yes: bool,
}

/// Gives a landscape back to Lifecycle Manager. Exit code 0: done; 1: something must be done first.
///
/// Gives the fields of objects in the control plane and in runtimes back to the field managers of Lifecycle Manager,
/// and removes labels, annotations and conditions that only Tidegate understands. Changes nothing else, and deletes
/// nothing. Stop the daemon and delete its GitSources before. Without `--yes`, it says what it would do. It can be cut
/// off anywhere and started again.
#[derive(clap::Args)]
struct ReleaseArguments {
    #[command(flatten)]
    access: Access,
    /// Give the landscape in this namespace back; repeat the option for more [default: kcp-system]
    #[arg(short, long = "namespace", value_name = "NAMESPACE")]
    namespaces: Vec<String>,
    /// Skip the runtimes, for example because they cannot be reached [default: off]
    #[arg(long)]
    no_runtimes: bool,
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
    /// Print in this format
    #[arg(short, long, value_enum, default_value_t = Output::Text)]
    output: Output,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum Output {
    /// A table for people
    Text,
    /// JSON for programs
    Json,
}

/// What `plan -o json` prints.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Report<'a> {
    ready: bool,
    findings: &'a [Finding],
}

/// A landscape as git declares it.
struct Declared {
    definitions: Definitions,
    source: SourceName,
    namespaces: Vec<String>,
}

/// Runs the command. Fails if the repository or the control plane cannot be read, or if a write is refused.
pub(super) async fn run(arguments: Arguments) -> anyhow::Result<Exit> {
    match arguments.command {
        Command::Plan(arguments) => plan(&arguments).await,
        Command::Take(arguments) => take(&arguments).await,
        Command::Release(arguments) => release(&arguments).await,
        Command::FromFlux(arguments) => hand_over::run(Program::Flux, &arguments).await,
        Command::FromArgocd(arguments) => hand_over::run(Program::ArgoCd, &arguments).await,
    }
}

async fn plan(arguments: &PlanArguments) -> anyhow::Result<Exit> {
    let declared = declared(&arguments.repository)?;
    let cluster = connect(&arguments.access).await?;
    let facts = Facts::read(&cluster, &declared.namespaces, &declared.definitions).await?;
    let findings = findings(&facts, &declared);
    let is_ready = adopt::may_begin(&findings);
    match arguments.output {
        Output::Text => print(&findings),
        Output::Json => say!("{}", serde_json::to_string_pretty(&Report { ready: is_ready, findings: &findings })?),
    }
    Ok(if is_ready { Exit::Ok } else { Exit::Changes })
}

async fn take(arguments: &TakeArguments) -> anyhow::Result<Exit> {
    let declared = declared(&arguments.repository)?;
    let cluster = connect(&arguments.access).await?;
    let facts = Facts::read(&cluster, &declared.namespaces, &declared.definitions).await?;
    let findings = findings(&facts, &declared);
    if !adopt::may_begin(&findings) {
        print(&findings);
        return Ok(Exit::Changes);
    }
    let cause = Cause::trigger("adopt take");
    let (rewritten, marked) = if arguments.yes {
        let rewritten = write::store_again(&cluster, &cause, &facts).await?;
        (rewritten, write::mark(&cluster, &cause, &facts, &declared.definitions, &declared.source).await?)
    } else {
        (facts.outdated(), facts.equal(&declared.definitions, &declared.source).len())
    };
    let (verb, next) = match arguments.yes {
        true => ("", "; start the daemon with this source: it takes the rest over, each object with one write"),
        false => ("would be ", "; add --yes to do it"),
    };
    say!("{rewritten} objects {verb}stored again, {marked} definitions {verb}marked for {}{next}", declared.source);
    Ok(Exit::Ok)
}

async fn release(arguments: &ReleaseArguments) -> anyhow::Result<Exit> {
    let cluster = connect(&arguments.access).await?;
    let namespaces = control_plane::namespaces(&arguments.namespaces);
    let blocking = release::blocking(&cluster, &namespaces).await?;
    if !blocking.is_empty() {
        print(&blocking);
        return Ok(Exit::Changes);
    }
    let cause = Cause::trigger("adopt release");
    let outcome = release::run(&cluster, &cause, &namespaces, arguments.no_runtimes, arguments.yes).await?;
    let (verb, next) = match arguments.yes {
        true => ("", "; start Lifecycle Manager"),
        false => ("would be ", "; add --yes to do it"),
    };
    say!("{} objects {verb}given back, {} were so already{next}", outcome.changed, outcome.unchanged);
    outcome.remarks.iter().for_each(|remark| tell!("warning: {remark}"));
    Ok(if outcome.is_complete { Exit::Ok } else { Exit::Incomplete })
}

/// The definitions of the repository. Fails if it cannot be read, or if nothing names its GitSource.
fn declared(repository: &Repository) -> anyhow::Result<Declared> {
    let mut loaded = repository.load()?;
    loaded.widen();
    if loaded.is_source_assumed {
        bail!(
            "no file names the GitSource of the repository: name it in `.tidegate/source.yaml`, or use --source-file"
        );
    }
    let mut diagnostics = Diagnostics::default();
    let mut cache = definition::Cache::default();
    let definitions = definition::read(&mut diagnostics, &loaded.snapshot, &loaded.options, &mut cache);
    if diagnostics.has_errors() {
        bail!("the repository has errors: see `tidegate validate`");
    }
    let namespaces = loaded.options.namespaces.clone();
    Ok(Declared { definitions, source: loaded.source, namespaces })
}

/// All findings, the most urgent first.
fn findings(facts: &Facts, declared: &Declared) -> Vec<Finding> {
    let mut findings = vec![adopt::leader(facts.holder.as_ref())];
    findings.extend(adopt::storage(&facts.stored()));
    findings.extend(adopt::definitions(&facts.standings(&declared.definitions, &declared.source), &facts.undeclared));
    findings.extend(adopt::modules(facts.kymas_after(&declared.definitions, &declared.source)));
    findings.extend(adopt::access(&facts.access));
    findings.extend(adopt::field_managers(&facts.managers));
    findings.sort_by_key(|finding| (finding.level, finding.topic));
    findings
}

/// The table of `plan`.
fn print(findings: &[Finding]) {
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
    let count = |level: Level| findings.iter().filter(|finding| finding.level == level).count();
    say!(
        "\n{} ready, {} to do by `tidegate adopt take`, {} to do before",
        count(Level::Ready),
        count(Level::Todo),
        count(Level::Blocks)
    );
}

/// The control plane. Fails if the kubeconfig cannot be used.
async fn connect(access: &Access) -> anyhow::Result<Cluster> {
    Ok(Cluster::new(ClusterName::Kcp, &access.config().await?, Limits::default())?)
}
