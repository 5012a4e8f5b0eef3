//! `tidegate adopt kcp`: takes kcp landscapes over from kcp-operator, see [`crate::setup::adopt`].

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
};

use anyhow::{Context as _, bail};
use clap::{ArgMatches, Args, Command, FromArgMatches, parser::ValueSource};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::jiff::Timestamp;
use tidegate_cluster::{Cause, Cluster, Network};
use tidegate_core::{
    adopt::{Finding, Holder, Level, kcp},
    definition,
    diagnostic::Diagnostics,
    plan::setup::DefaultImage,
    template::{Library, Templates},
};
use tidegate_process::{Exit, say, tell};

use super::{Output, Report, read, write::SILENCE_MIN};
use crate::{
    cli::{control_plane::Access, repository::Repository},
    daemon,
    renderer::Renderer,
    setup::{
        adopt::{self, Act, DaemonTemplates, Facts, Written},
        operator::{self, Held},
    },
};

/// Takes kcp landscapes over from kcp-operator, in place. Exit code 0: nothing is left to do; 1: something is.
///
/// Says what differs from what Tidegate renders: owners, field managers, labels and fields. With `--yes`, removes the
/// owner references of kcp-operator, sets the ownership label of their resource, makes the fields of kcp-operator
/// Tidegate's, and applies what restarts no pod. Deployments and Certificates stay as they are until their resource
/// changes; so no pod restarts, and no certificate is issued. Reads the resources, their objects and Secrets, and all
/// Leases. While kcp-operator holds its Lease, it writes nothing. You can interrupt it and run it again. Images and
/// templates must be those of the daemon: use the same release, `--kcp-image`, `--templates` and repository.
#[derive(clap::Args)]
pub struct KcpArguments {
    #[command(flatten)]
    repository: OptionalRepository,
    #[command(flatten)]
    access: Access,
    /// Expect a daemon with this `--kcp-image` [default: ghcr.io/kcp-dev/kcp:v0.32.3, the image of this release]
    #[arg(long, value_name = "REPOSITORY:TAG")]
    kcp_image: Option<DefaultImage>,
    /// Expect a daemon with this folder as its `--templates` [default: none]
    #[arg(long, value_name = "DIR")]
    templates: Option<PathBuf>,
    /// Let the daemon apply pending changes at once, also if pods restart or certificates are reissued [default: off;
    /// they wait for the next change of their resource]
    #[arg(long)]
    now: bool,
    /// Apply the changes [default: off; only print them]
    #[arg(long)]
    yes: bool,
    /// Print in this format
    #[arg(short, long, value_enum, default_value_t = Output::Text)]
    output: Output,
}

/// The repository that declares the landscapes, if there is one.
struct OptionalRepository {
    repository: Repository,
    is_named: bool,
}

/// Concurrent writes.
const CONCURRENCY: usize = 16;

/// How often the control plane is read. There are five steps; more reads are necessary only if other clients write.
const ROUNDS_MAX: usize = 50;

// === impl OptionalRepository ===

impl FromArgMatches for OptionalRepository {
    fn from_arg_matches(matches: &ArgMatches) -> Result<OptionalRepository, clap::Error> {
        let is_named = matches.value_source("path") == Some(ValueSource::CommandLine);
        Ok(OptionalRepository { repository: Repository::from_arg_matches(matches)?, is_named })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = OptionalRepository::from_arg_matches(matches)?;
        Ok(())
    }
}

impl Args for OptionalRepository {
    fn augment_args(command: Command) -> Command {
        let path = "Use the templates of this repository for the resources that it declares, as the daemon does \
                    [default: none; necessary if a GitSource with templates declares them]";
        Repository::augment_args(command)
            .mut_arg("path", |arg| arg.help(path).long_help(path).hide_default_value(true))
            .mut_arg("namespaces", |arg| {
                arg.help("Look for kcp landscapes in this namespace; repeat the option for more")
            })
    }

    fn augment_args_for_update(command: Command) -> Command {
        OptionalRepository::augment_args(command)
    }
}

impl OptionalRepository {
    /// The templates of a daemon with this folder of templates. Fails if a template, the folder or the repository
    /// cannot be used.
    fn templates(&self, folder: Option<&Path>) -> anyhow::Result<DaemonTemplates> {
        if !self.is_named {
            let Some(folder) = folder else { return Ok(DaemonTemplates::new(Library::new(Templates::embedded()))) };
            let renderer = Renderer::confined().context("cannot start the renderer of templates")?;
            return Ok(DaemonTemplates::new(Library::new(daemon::templates(renderer.engine(), Some(folder))?)));
        }
        let mut loaded = self.repository.load()?;
        loaded.widen();
        let mut diagnostics = Diagnostics::default();
        let library = loaded.library(&mut diagnostics, folder)?;
        let mut cache = definition::Cache::default();
        let definitions = definition::read(&mut diagnostics, &loaded.snapshot, &loaded.options, &mut cache);
        loaded.complete()?;
        if let Some(why) = super::refusal(&loaded, self.repository.is_input(), diagnostics) {
            bail!(why);
        }
        let kinds = definitions.good.keys().filter_map(|(kind, key)| match kind {
            definition::Kind::Setup(kind) => Some((*kind, key.clone())),
            definition::Kind::ModuleTemplate
            | definition::Kind::ModuleReleaseMeta
            | definition::Kind::Watcher
            | definition::Kind::Kyma => None,
        });
        let declared = Some((loaded.source.clone(), kinds.collect()));
        Ok(DaemonTemplates { library, declared, plain: BTreeSet::new() })
    }
}

/// Takes the landscapes over if the arguments say so. Returns what is left to do. Fails if the repository or the
/// control plane cannot be read, or if it does not answer a write.
pub(super) async fn run(arguments: &KcpArguments, network: &Network) -> anyhow::Result<Vec<Finding>> {
    let KcpArguments { repository, access, kcp_image, templates, now, yes, .. } = arguments;
    let cluster = super::connect(access, network).await?;
    let namespaces = repository.repository.namespaces();
    read::check_namespaces(&cluster, namespaces).await?;
    let image = kcp_image.clone().unwrap_or_default();
    let mut templates = repository.templates(templates.as_deref())?;
    let (cause, mut rejected) = (Cause::trigger("adopt kcp"), BTreeMap::new());
    let mut is_silent = false;
    for _ in 0..ROUNDS_MAX {
        let facts = Facts { rejected: rejected.clone(), ..adopt::read(&cluster, namespaces, &image).await? };
        templates.plain = adopt::plain(&cluster, &templates.unread(&facts.resources)).await?;
        // Last, so that it did not start meanwhile.
        let operator = operator(&cluster).await?;
        let is_running = operator.iter().any(|finding| finding.level == Level::Blocks);
        let acts = if *yes && !is_running { adopt::next(&facts, &templates, *now) } else { Vec::new() };
        if acts.is_empty() {
            return Ok(findings(operator, &facts, &templates, *now, namespaces));
        }
        if !std::mem::replace(&mut is_silent, true)
            && let Some(holders) = wait_for_silence(&cluster).await?
        {
            if !holders.is_empty() {
                return Ok(findings(kcp::operator(&holders), &facts, &templates, *now, namespaces));
            }
            // What was read is old.
            continue;
        }
        rejected.extend(write(&cluster, &cause, &acts).await?);
    }
    bail!("other clients keep changing the objects: stop them, and run the command again")
}

/// What the Leases say of kcp-operator; it blocks if it runs. Fails if that cannot be found out.
async fn operator(cluster: &Cluster) -> anyhow::Result<Vec<Finding>> {
    let leases = adopt::leases(cluster).await?;
    if leases.is_empty() {
        return Ok(vec![kcp::unleased()]);
    }
    let now = Timestamp::now();
    let holders = leases.iter().filter_map(|(namespace, lease)| Some((namespace.clone(), read::holds(lease, now)?)));
    Ok(kcp::operator(&holders.collect()))
}

/// Waits until it is certain that no kcp-operator runs whose Lease has ended by its own clock. Returns those that renew
/// their Lease meanwhile: their clocks are behind; `None` if no Lease is held. Fails if the Leases cannot be read.
async fn wait_for_silence(cluster: &Cluster) -> anyhow::Result<Option<BTreeMap<String, Holder>>> {
    let held = async || -> anyhow::Result<BTreeMap<String, Held>> {
        let leases = adopt::leases(cluster).await?.into_iter();
        Ok(leases.filter_map(|(namespace, lease)| Some((namespace, operator::held(&lease)?))).collect())
    };
    let before = held().await?;
    let Some(first) = before.values().next() else { return Ok(None) };
    tell!("waiting for {} s, because {} runs if it renews the Lease", SILENCE_MIN.as_secs(), first.holder);
    tokio::time::sleep(SILENCE_MIN).await;
    let renewed = held().await?.into_iter().filter(|(namespace, held)| before.get(namespace) != Some(held));
    Ok(Some(renewed.map(|(namespace, held)| (namespace, Holder { name: held.holder, renewed: 0 })).collect()))
}

/// Sends the writes of one step. Returns what the API server rejected. Fails if a request fails.
async fn write(cluster: &Cluster, cause: &Cause, acts: &[Act]) -> anyhow::Result<Vec<(adopt::Place, String)>> {
    let written = stream::iter(acts).map(async |act| {
        let written = adopt::enact(cluster, cause, act).await?;
        anyhow::Ok(match written {
            Written::Rejected(sentence) => Some((act.place().clone(), sentence)),
            Written::Done | Written::Outdated => None,
        })
    });
    let all: Vec<Option<_>> = written.buffered(CONCURRENCY).try_collect().await?;
    Ok(all.into_iter().flatten().collect())
}

/// What is left to do, and what a user must know.
fn findings(
    operator: Vec<Finding>,
    facts: &Facts,
    templates: &DaemonTemplates,
    now: bool,
    namespaces: &[String],
) -> Vec<Finding> {
    let mut findings = operator;
    if facts.resources.is_empty() {
        findings.push(kcp::nothing(namespaces));
        return findings;
    }
    let left = adopt::left(facts, templates, now);
    findings.extend(kcp::skipped(&left.skipped));
    findings.extend(kcp::rejected(facts.rejected.values()));
    findings.extend(kcp::owned(&left.owned));
    findings.extend(kcp::unmarked(&left.unmarked));
    findings.extend(kcp::claimed(&left.claimed));
    findings.extend(kcp::released(&left.released));
    findings.extend(kcp::changing(&left.changing));
    let differing = left.differing.iter();
    findings.extend(kcp::differing(
        differing.map(|found| (found.object.as_str(), found.resource.as_str(), found.what.as_slice(), found.waits)),
    ));
    findings.extend(kcp::refused(&left.refused));
    findings.extend(kcp::compiled(facts.compiled, namespaces));
    if !is_left(&findings) {
        findings.push(kcp::done());
    }
    findings
}

fn is_left(findings: &[Finding]) -> bool {
    findings.iter().any(|finding| matches!(finding.level, Level::Blocks | Level::Todo))
}

/// Prints the findings. The exit code says whether something is left to do. Fails if JSON cannot be written.
pub(super) fn say(findings: &[Finding], arguments: &KcpArguments) -> anyhow::Result<Exit> {
    let is_left = is_left(findings);
    let is_blocked = findings.iter().any(|finding| finding.level == Level::Blocks);
    match arguments.output {
        Output::Text => {
            super::list(findings);
            if is_left && !is_blocked && !arguments.yes {
                say!("\n{}", super::confirmed());
            }
        }
        Output::Json => {
            say!("{}", serde_json::to_string_pretty(&Report { head: None, ready: !is_left, findings })?);
        }
    }
    Ok(if is_left { Exit::Changes } else { Exit::Ok })
}
