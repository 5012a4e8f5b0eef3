//! `tidegate adopt take --finish`: runtimes that stay as Lifecycle Manager left them become Tidegate's.
//!
//! The command removes what `take` noted on their Kymas. The daemon then applies what differs, with its own limits.

use anyhow::Context as _;
use tidegate_cluster::{Cause, Cluster};
use tidegate_core::{
    adopt::{self, Finding, Level},
    api::names::annotation,
    name::Key,
    words::{agreeing, counted, few},
};
use tidegate_process::{Exit, say};

use super::{read, write};

/// The runtimes that were finished, or would be.
pub struct Finished {
    /// Their Kymas.
    pub kymas: Vec<Key>,
    /// How many others are left.
    pub left: usize,
}

/// Why the daemon could not finish runtimes: Lifecycle Manager leads, or there are none. Fails if the control plane
/// cannot be read.
pub(super) async fn blocking(cluster: &Cluster, namespaces: &[String]) -> anyhow::Result<Vec<Finding>> {
    let missing = read::missing(cluster).await?;
    if !missing.is_empty() {
        return Ok(adopt::kinds(&missing).into_iter().collect());
    }
    let empty = read::empty(cluster, namespaces).await?;
    if empty.len() == namespaces.len() {
        return Ok(adopt::empty(&empty, false).into_iter().collect());
    }
    let holder = read::holder(cluster).await.context("cannot read the Lease")?;
    let other = holder.filter(|holder| !adopt::is_tidegate(holder));
    let finding = adopt::leader(other.as_ref());
    Ok(if finding.level == Level::Blocks { vec![finding] } else { Vec::new() })
}

/// Finishes the first runtimes, `limit` at most. Fails if the control plane cannot be read, or if it refuses a write.
pub(super) async fn run(
    cluster: &Cluster,
    cause: &Cause,
    namespaces: &[String],
    limit: usize,
    writes: bool,
) -> anyhow::Result<Finished> {
    let kymas = read::list(cluster, "Kyma", namespaces).await?;
    let adopted = kymas.iter().filter(|kyma| kyma.annotation(annotation::ADOPTED) == Some("true"));
    let mut adopted: Vec<Key> = adopted.map(read::key_of).collect();
    adopted.sort();
    let rest = adopted.split_off(limit.min(adopted.len()));
    if writes {
        write::annotate(cluster, cause, &adopted, None).await?;
    }
    Ok(Finished { kymas: adopted, left: rest.len() })
}

// === impl Finished ===

impl Finished {
    /// Says what was finished, or would be.
    pub(super) fn say(&self, is_written: bool) -> Exit {
        let names: Vec<String> = self.kymas.iter().map(Key::to_string).collect();
        let left = match self.left {
            0 => String::new(),
            left => format!("; {left} {} left", agreeing(left, "is", "are")),
        };
        if names.is_empty() {
            say!("no runtime is as Lifecycle Manager left it{left}");
            return Exit::Ok;
        }
        let (runtimes, which) = (counted(names.len(), "runtime"), few(&names));
        let (verb, next) = match is_written {
            true => ("", "the daemon replaces what Lifecycle Manager left: see `tidegate status`".to_owned()),
            false => ("would be ", super::confirmed()),
        };
        say!("{runtimes} {verb}finished: {which}{left}; {next}");
        say!(
            "where an agent runs, it becomes Tidegate's, and its pod restarts once: Deployment and Services, \
             NetworkPolicies, PriorityClass, and the webhook configuration, which is created if there is none; \
             `tidegate run --observe` shows the fields of the objects that exist"
        );
        Exit::Ok
    }
}
