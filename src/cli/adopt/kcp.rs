//! `tidegate adopt kcp`: takes kcp landscapes over from kcp-operator, see [`crate::setup::adopt`].

use std::collections::BTreeMap;

use anyhow::bail;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::jiff::Timestamp;
use tidegate_cluster::{Cause, Cluster, Network};
use tidegate_core::{
    adopt::{Finding, Level, kcp},
    template::Templates,
};
use tidegate_process::{Exit, say};

use super::{Output, Report, read};
use crate::{
    cli::control_plane::{self, Access},
    setup::adopt::{self, Act, Facts, Written},
};

/// Takes kcp landscapes over from kcp-operator, in place. Exit code 0: nothing is left to do; 1: something is.
///
/// Says what differs from what Tidegate renders: owners, field managers, labels and fields. With `--yes`, removes the
/// owner references of kcp-operator, marks the objects for their resources, makes the fields of kcp-operator
/// Tidegate's, and applies what restarts no pod. Deployments and Certificates stay as they are until their resource
/// changes; so no pod restarts, and no certificate is issued. Reads the resources, their objects and Secrets, and all
/// Leases. While kcp-operator holds its Lease, it writes nothing. It can be cut off anywhere and started again.
#[derive(clap::Args)]
pub struct KcpArguments {
    #[command(flatten)]
    access: Access,
    /// Look for kcp landscapes in this namespace; repeat the option for more [default: kcp-system]
    #[arg(short, long = "namespace", value_name = "NAMESPACE")]
    namespaces: Vec<String>,
    /// Let the daemon apply at once what restarts pods or has certificates issued again [default: off; it waits for the
    /// next change of its resource]
    #[arg(long)]
    now: bool,
    /// Write what is to be written [default: off; only say what it is]
    #[arg(long)]
    yes: bool,
    /// Print in this format
    #[arg(short, long, value_enum, default_value_t = Output::Text)]
    output: Output,
}

/// Concurrent writes.
const CONCURRENCY: usize = 16;

/// How often the control plane is read. There are five steps; more reads are necessary only if other clients write.
const ROUNDS_MAX: usize = 50;

/// Takes the landscapes over if the arguments say so. Returns what is left to do. Fails if the control plane cannot be
/// read, or if it does not answer a write.
pub(super) async fn run(arguments: &KcpArguments, network: &Network) -> anyhow::Result<Vec<Finding>> {
    let KcpArguments { access, namespaces, now, yes, .. } = arguments;
    let cluster = super::connect(access, network).await?;
    let namespaces = control_plane::namespaces(namespaces);
    read::check_namespaces(&cluster, &namespaces).await?;
    let (templates, cause) = (Templates::embedded(), Cause::trigger("adopt kcp"));
    let mut rejected = BTreeMap::new();
    for _ in 0..ROUNDS_MAX {
        let facts = Facts { rejected: rejected.clone(), ..adopt::read(&cluster, &namespaces).await? };
        // Last, so that it did not start meanwhile.
        let running = running(&cluster).await?;
        let acts = if *yes && running.is_empty() { adopt::next(&facts, &templates, *now) } else { Vec::new() };
        if acts.is_empty() {
            return Ok(findings(running, &facts, &templates, *now, &namespaces));
        }
        rejected.extend(write(&cluster, &cause, &acts).await?);
    }
    bail!("other clients keep changing the objects: stop them, and run the command again")
}

/// Whether kcp-operator runs. Fails if that cannot be found out.
async fn running(cluster: &Cluster) -> anyhow::Result<Vec<Finding>> {
    let leases = adopt::leases(cluster).await?;
    let now = Timestamp::now();
    let holders = leases.iter().filter_map(|(namespace, lease)| Some((namespace.clone(), read::holds(lease, now)?)));
    Ok(kcp::operator(&holders.collect()))
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
    running: Vec<Finding>,
    facts: &Facts,
    templates: &Templates,
    now: bool,
    namespaces: &[String],
) -> Vec<Finding> {
    let left = adopt::left(facts, templates, now);
    let mut findings = running;
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
    match arguments.output {
        Output::Text => {
            super::list(findings);
            if is_left && !arguments.yes {
                say!("\nadd --yes to do it");
            }
        }
        Output::Json => {
            say!("{}", serde_json::to_string_pretty(&Report { head: None, ready: !is_left, findings })?);
        }
    }
    Ok(if is_left { Exit::Changes } else { Exit::Ok })
}
