//! Clusters that the user gives: what the demo makes there, whether it may, and that nothing of it is left.
//!
//! The demo writes only to clusters in which nothing of Kyma exists, and only after the user has agreed. Before all
//! else, it makes a ConfigMap in each cluster, which says that what follows is its own. It removes that last. So a demo
//! that was killed is cleaned up by the next one.
//!
//! `kubeconfig` reads the files of the user, `decide` says what a cluster means, and `remove` deletes. This file joins
//! them.

mod decide;
mod kubeconfig;
mod remove;

use std::{
    cell::Cell,
    io::{self, IsTerminal as _},
    path::{Path, PathBuf},
};

use anyhow::{Context as _, bail};
use futures::future::try_join_all;
use kube::Client;
use serde_json::json;
use tidegate_process::say;
use tidegate_testbed as testbed;

use self::{
    decide::{Role, State},
    kubeconfig::Given as Access,
};
use super::report;

/// The clusters of the user.
pub(super) struct Given {
    kcp: Cluster,
    runtimes: Vec<Cluster>,
    /// Whether there may be something of the demo in them.
    is_marked: Cell<bool>,
}

/// One cluster of the user.
pub(super) struct Cluster {
    /// `kcp`, or `skr-1`, `skr-2`, …
    pub(super) name: String,
    /// The file with its kubeconfig.
    path: PathBuf,
    role: Role,
    access: Access,
    pub(super) client: Client,
}

/// How the user agrees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Consent {
    /// By `--yes`.
    Given,
    /// By an answer.
    Asked,
}

/// The namespace of the ConfigMap that says what is the demo's. Every cluster has it, and no other tool owns it.
const MARK_NAMESPACE: &str = "default";
/// The name of that ConfigMap.
const MARK: &str = "tidegate-demo";

// === impl Given ===

impl Given {
    /// The clusters of these kubeconfigs. Sends no request. Fails if a kubeconfig cannot be used.
    pub(super) async fn open(kcp: &Path, runtimes: &[PathBuf]) -> anyhow::Result<Given> {
        let kcp = Cluster::open("kcp".to_owned(), Role::ControlPlane, kcp).await?;
        let runtimes = runtimes
            .iter()
            .enumerate()
            .map(async |(index, path)| Cluster::open(format!("skr-{}", index + 1), Role::Runtime, path).await);
        Ok(Given { kcp, runtimes: try_join_all(runtimes).await?, is_marked: Cell::new(false) })
    }

    /// The KCP.
    pub(super) fn kcp(&self) -> &Cluster {
        &self.kcp
    }

    /// The runtimes.
    pub(super) fn runtimes(&self) -> &[Cluster] {
        &self.runtimes
    }

    /// Whether there may be something of the demo in the clusters.
    pub(super) fn is_marked(&self) -> bool {
        self.is_marked.get()
    }

    /// Looks at the clusters, says what the demo makes there, and asks for consent. Then removes what an earlier demo
    /// left, and marks the clusters. Fails if the demo may not use a cluster, or if the user does not agree: then
    /// nothing was written.
    pub(super) async fn prepare(&self, consent: Consent) -> anyhow::Result<()> {
        let seen = try_join_all(self.all().map(async |cluster| cluster.look().await)).await?;
        let titles: Vec<String> = self.all().map(Cluster::title).collect();
        decide::distinct(titles.iter().map(String::as_str).zip(seen.iter().map(|seen| seen.uid.as_str())))
            .map_err(|why| anyhow::anyhow!("{why}"))?;
        let mut has_left = false;
        for (cluster, seen) in self.all().zip(&seen) {
            match seen.state(cluster.role) {
                State::Clean => {}
                State::Left => has_left = true,
                State::LeftAs(role) => bail!(
                    "an earlier demo was cut off that used {} with {}: start the demo so once more, and it removes \
                     what it left",
                    cluster.title(),
                    role.option()
                ),
                State::Foreign(what) => bail!(
                    "{} has {what}, which the demo has not made: use an empty cluster, for example of kind or k3d",
                    cluster.title()
                ),
            }
        }
        self.announce(has_left);
        agree(consent).await?;
        self.is_marked.set(true);
        if has_left {
            self.clean_up().await?;
        }
        try_join_all(self.all().map(async |cluster| cluster.mark().await)).await?;
        Ok(())
    }

    /// Removes everything that the demo has made, the marks last. Fails if something stays.
    pub(super) async fn clean_up(&self) -> anyhow::Result<()> {
        report::doing("removing what the demo has made from the clusters");
        try_join_all(self.all().map(async |cluster| {
            let removed = remove::all(&cluster.client, cluster.role).await;
            removed.with_context(|| format!("{} is not as before", cluster.title()))
        }))
        .await?;
        try_join_all(self.all().map(async |cluster| cluster.unmark().await)).await?;
        report::seen("the clusters are as before");
        Ok(())
    }

    fn all(&self) -> impl Iterator<Item = &Cluster> {
        std::iter::once(&self.kcp).chain(&self.runtimes)
    }

    /// Says what the demo will do.
    fn announce(&self, has_left: bool) {
        say!("The demo uses these clusters:\n");
        for cluster in self.all() {
            say!("  {:<6} {} ({})", cluster.name, cluster.access.server, cluster.path.display());
        }
        say!("\nIt makes, and removes at its end:\n");
        say!("  in the KCP: {}", decide::MADE_IN_KCP);
        say!("  in each runtime: {}", decide::MADE_IN_RUNTIMES);
        say!("\nThe daemon and the OCI registry run on this machine. So:\n");
        say!("  no agent runs in the runtimes, because their API servers cannot reach this machine: Tidegate finds");
        say!("    changes there by looking every {} seconds", super::RESYNC.as_secs());
        say!("  the Deployments of the example have no replicas, because their images do not exist");
        say!("  no request is counted");
        if has_left {
            say!("\nAn earlier demo was cut off. What it left is removed first.");
        }
        say!("");
    }
}

/// Waits for the user's consent. Fails without it.
async fn agree(consent: Consent) -> anyhow::Result<()> {
    match consent {
        Consent::Given => return Ok(()),
        Consent::Asked if !io::stdin().is_terminal() => {
            bail!(
                "the demo cannot ask whether to write to these clusters, because its input is not a terminal: add --yes"
            )
        }
        Consent::Asked => {}
    }
    say!("Write to these clusters? Type `yes`:");
    let (sender, answer) = tokio::sync::oneshot::channel();
    // A thread of its own, because a read of the terminal cannot be cancelled: it ends with the process.
    std::thread::spawn(move || {
        let mut line = String::new();
        let read = io::stdin().read_line(&mut line).map(|_| line);
        let _ = sender.send(read);
    });
    let line = answer.await.context("cannot read the answer")?.context("cannot read the answer")?;
    if !decide::agrees(&line) {
        bail!("nothing was written");
    }
    Ok(())
}

// === impl Cluster ===

impl Cluster {
    async fn open(name: String, role: Role, path: &Path) -> anyhow::Result<Cluster> {
        let access = Access::read(path)?;
        let client = access.client().await.with_context(|| format!("cannot use {}", path.display()))?;
        Ok(Cluster { name, path: path.to_owned(), role, access, client })
    }

    /// Its name, its address and its file, for messages.
    fn title(&self) -> String {
        format!("{} at {} ({})", self.name, self.access.server, self.path.display())
    }

    /// Its kubeconfig, without references to files.
    pub(super) fn kubeconfig(&self) -> &str {
        &self.access.text
    }

    /// What exists in it. Fails if it does not answer.
    async fn look(&self) -> anyhow::Result<decide::Seen> {
        let looked = remove::look(&self.client, self.role, (MARK_NAMESPACE, MARK)).await;
        looked.with_context(|| format!("cannot read {}", self.title()))
    }

    /// Says in the cluster that what follows is the demo's.
    async fn mark(&self) -> anyhow::Result<()> {
        let mark = json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": MARK, "namespace": MARK_NAMESPACE},
            "data": {
                "note": "`tidegate demo` uses this cluster; start it again to remove what it left",
                "role": self.role.option(),
            },
        });
        let marked = testbed::apply(&self.client, &mark).await;
        marked.map(drop).with_context(|| format!("cannot write to {}", self.title()))
    }

    async fn unmark(&self) -> anyhow::Result<()> {
        remove::mark(&self.client, (MARK_NAMESPACE, MARK)).await
    }
}
