//! A simulated control plane, its runtimes, a repository and the daemon, all in this thread and from one seed.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
    time::Duration,
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use jiff::{SignedDuration, Timestamp};
use kube::Client;
use kube_sim::{
    Options, Readiness, Server, User,
    fault::{Faults, Rates, Schedule},
};
use serde_json::{Value, json};
use tidegate::internals::{
    Renderer,
    config::{Config, Options as ConfigOptions},
    daemon::{Daemon, Ended, Mode},
};
use tidegate_cluster::Network;
use tidegate_process::{
    ambient::{self, Simulated},
    period::Period,
};
use tidegate_testbed::Folder;
use tokio::task::{JoinHandle, JoinSet};
use tower::Layer as _;

use super::{
    agents::Agents,
    dice::Dice,
    hosts::{self, GitHost},
    land::{DEPLOYMENTS, IN_KCP, KYMAS, Land, MODULES, USERS},
    repository::{Condition, Served},
    script::POISONS,
    signers::{self, Rotation, Signers},
    truth::{self, Truth},
    wire::{Wires, polled},
};
use crate::harness;

/// The clusters. A runtime has the name of its Kyma.
pub(super) const RUNTIMES: [&str; 3] = [KYMAS[0], KYMAS[1], USERS];
pub(super) const KCP: &str = "kcp";
/// Prefix for the second host name of a cluster.
const OTHER: &str = "other-";
/// Sets the dice of the git host apart from those of the world.
const HOST_SEED: u64 = 0x6769_745f_686f_7374;
/// The same for the signers.
const SIGNERS_SEED: u64 = 0x7369_676e_6572_7331;
/// The Secrets in the namespace of definitions.
const SECRETS: &str = "/api/v1/namespaces/kcp-system/secrets";
/// Longest time from a delivery to the status, without faults.
const DELIVERED_MAX: Duration = Duration::from_secs(20);
/// When Deployments become ready.
const READINESS: Readiness = Readiness::After(Duration::from_secs(3));
/// The time at which every world begins.
const BEGAN: &str = "2026-01-01T00:00:00Z";

/// A world.
pub(super) struct World {
    pub(super) land: Land,
    pub(super) kcp: Server,
    pub(super) runtimes: BTreeMap<&'static str, Server>,
    pub(super) wires: Wires,
    /// Clocks and randomness of this thread.
    pub(super) ambience: Simulated,
    /// The steps so far, one line each.
    pub(super) script: Vec<String>,
    pub(super) dice: Dice,
    pub(super) agents: Agents,
    /// The resync interval of the daemon.
    pub(super) resync: Duration,
    /// The state of each access Secret that was changed.
    pub(super) secrets: BTreeMap<&'static str, Credentials>,
    /// Runtimes in which a Deployment does not become ready.
    pub(super) stuck: BTreeSet<&'static str>,
    /// Kymas that an administrator has freed of their finalizers: the base of the runtime stays.
    pub(super) released: BTreeSet<&'static str>,
    /// Number of events, by name.
    counts: BTreeMap<String, u64>,
    /// When to kill the daemon, and after how many polls.
    doom: Option<(tokio::time::Instant, u64)>,
    faults: Vec<(&'static str, Faults)>,
    served: Served,
    host: GitHost,
    signers: Signers,
    files: BTreeMap<String, String>,
    head: String,
    folder: Folder,
    daemon: Option<JoinHandle<anyhow::Result<Ended>>>,
    /// Daemons that lost the control plane and have not noticed yet.
    former: JoinSet<anyhow::Result<Ended>>,
    /// Number of daemons so far.
    lives: u32,
    /// Number of the current disk.
    disk: u32,
    began: tokio::time::Instant,
}

/// The content of an access Secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Credentials {
    /// A kubeconfig for the runtime, with its first or its second host name.
    Good { other: bool },
    /// An invalid kubeconfig.
    Broken,
    /// The Secret does not exist.
    Absent,
}

/// The path of all GitSources, and that of this landscape.
pub(super) const SOURCES: &str = "/apis/tidegate.dev/v1alpha1/namespaces/kcp-system/gitsources";
pub(super) const SOURCE: &str = "/apis/tidegate.dev/v1alpha1/namespaces/kcp-system/gitsources/landscape";

// === impl World ===

impl World {
    /// The initial landscape: nothing is installed, and no daemon runs. The control plane starts as a copy of
    /// `furnished`.
    pub(super) async fn new(seed: u64, furnished: &Server) -> World {
        let began: Timestamp = BEGAN.parse().expect("a time");
        let ambience = ambient::simulate(began, seed);
        let mut dice = Dice::new(seed);
        let kcp = furnished.restored(&Options { began, seed: dice.roll(), ..Options::default() });
        let mut runtime =
            || Server::new(&Options { began, seed: dice.roll(), readiness: READINESS, ..Options::default() });
        let runtimes: BTreeMap<&str, Server> = RUNTIMES.iter().map(|name| (*name, runtime())).collect();
        let truth = Truth::new(std::iter::once((KCP, &kcp)).chain(runtimes.iter().map(|(name, of)| (*name, of))));
        let wires = Wires::new(truth, dice.one_of(&[1, 2, 3, 500]));
        let mut faults = Vec::new();
        for name in std::iter::once(KCP).chain(RUNTIMES) {
            faults.push((name, Faults::new(Schedule { seed: dice.roll(), rates: rates(&mut dice) })));
        }
        let folder = harness::folder();
        let served = Served::new(folder.path(), dice.roll());
        std::fs::write(folder.path().join("kubeconfig"), kubeconfig(KCP)).expect("a file");
        let mut world = World {
            land: Land::new(&mut dice),
            agents: Agents::new(&mut dice, wires.clone()),
            resync: Duration::from_secs(dice.one_of(&[300, 900])),
            secrets: BTreeMap::new(),
            stuck: BTreeSet::new(),
            counts: BTreeMap::new(),
            doom: None,
            kcp,
            runtimes,
            wires,
            ambience,
            script: Vec::new(),
            dice,
            faults,
            served,
            host: GitHost::new(seed ^ HOST_SEED),
            signers: Signers::new(seed ^ SIGNERS_SEED),
            files: BTreeMap::new(),
            head: String::new(),
            folder,
            daemon: None,
            former: JoinSet::new(),
            released: BTreeSet::new(),
            lives: 0,
            disk: 0,
            began: tokio::time::Instant::now(),
        };
        world.commit();
        world.furnish().await;
        world
    }

    /// Creates what users have in this control plane, if it is missing.
    pub(super) async fn furnish(&self) {
        let source = json!({
            "apiVersion": "tidegate.dev/v1alpha1", "kind": "GitSource",
            "metadata": {"name": "landscape", "namespace": "kcp-system"},
            "spec": {
                "url": self.served.url(), "ref": {"branch": "main"}, "interval": "60s",
                "receiver": {"secretRef": {"name": hosts::SECRET}},
                "verify": {"secretRef": {"name": signers::SECRET}},
            },
        });
        self.create(&self.kcp, SOURCES, &source).await;
        let token = json!({"token": self.host.data()["token"]});
        for (name, data) in [(hosts::SECRET, token), (signers::SECRET, self.signers.data())] {
            let metadata = json!({"name": name, "namespace": "kcp-system"});
            let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": data});
            self.create(&self.kcp, SECRETS, &secret).await;
        }
        let Some(declared) = self.land.kymas.get(USERS) else { return };
        let modules: Vec<_> = declared.modules.iter().map(|module| json!({"name": module, "managed": true})).collect();
        let users = json!({
            "apiVersion": "operator.kyma-project.io/v1beta2", "kind": "Kyma",
            "metadata": {
                "name": USERS, "namespace": "kcp-system", "labels": {"kyma-project.io/runtime-id": USERS},
                "annotations": {"skr-domain": domain(USERS)},
            },
            "spec": {"channel": declared.channel, "modules": modules},
        });
        self.create(&self.kcp, &format!("{IN_KCP}/kymas"), &users).await;
    }

    /// Logs a step with its time.
    pub(super) fn note(&mut self, what: impl std::fmt::Display) {
        let line = format!("{:>6} s  {what}", self.began.elapsed().as_secs());
        tracing::info!(target: "script", "{line}");
        self.script.push(line);
    }

    /// Commits the current landscape to git.
    pub(super) fn commit(&mut self) {
        let files = self.land.files();
        for path in self.files.keys().filter(|path| !files.contains_key(*path)) {
            self.served.repository().remove(path).expect("a file");
        }
        for (path, text) in files.iter().filter(|(path, text)| self.files.get(*path) != Some(text)) {
            self.served.repository().write(path, text).expect("a file");
        }
        self.files = files;
        self.served.repository().commit("change").expect("a commit");
        self.head = self.signers.sign(self.served.repository().path());
        let repository = git2::Repository::open(self.served.repository().path()).expect("a repository");
        let trees = MODULES.into_iter().flat_map(|(module, versions)| versions.map(|version| (module, version)));
        let tree = |(module, version)| {
            let name = format!("{}:modules/{module}/{version}/objects", self.head);
            let tree = repository.revparse_single(&name).expect("a tree");
            ((module, version), tree.id().to_string())
        };
        self.wires.truth().committed(&self.head, &self.land, trees.map(tree).collect());
        self.served.committed();
        self.host.pushed(&self.served.url());
    }

    /// Sometimes rotates the token of the webhook, and the key of the signers.
    pub(super) async fn rotate(&mut self) {
        if let Some(rotation) = self.signers.rotates() {
            self.note(format!(
                "the rotation of the key of the signers {}",
                match rotation {
                    Rotation::Begins => "begins",
                    Rotation::Ends => "ends",
                }
            ));
            if rotation == Rotation::Ends {
                self.commit();
                self.count("signers rotated");
            }
            self.count("signers changed");
            let patch = json!({"data": self.signers.data()});
            self.patch(&self.kcp, &format!("{SECRETS}/{}", signers::SECRET), &patch).await;
        }
        if self.host.rotates() {
            self.note("the token of the webhook is rotated");
            let patch = json!({"data": self.host.data()});
            self.patch(&self.kcp, &format!("{SECRETS}/{}", hosts::SECRET), &patch).await;
        }
    }

    /// Sometimes an intruder pushes a commit without a signature, which is taken back after a while. Nothing of it may
    /// reach the control plane.
    pub(super) async fn meet_intruder(&mut self) {
        let Some(time) = self.signers.meet_intruder() else { return };
        self.note("git: a commit without a signature is pushed");
        self.count("unsigned push");
        signers::intrude(self.served.repository().path());
        self.served.committed();
        self.host.pushed(&self.served.url());
        self.pass(time).await;
        let source = self.read(&self.kcp, SOURCE).await.unwrap_or_default();
        let conditions = source["status"]["conditions"].as_array().cloned().unwrap_or_default();
        if conditions.iter().any(|condition| condition["type"] == "Verified" && condition["status"] == "False") {
            self.count("unsigned push refused");
        }
        let intruder = self.read(&self.kcp, &format!("{IN_KCP}/kymas/intruder")).await;
        assert!(intruder.is_none(), "what a commit without a signature declares is in the control plane: {intruder:?}");
        self.note("git: it is taken back");
        signers::take_back(self.served.repository().path(), &self.head);
        self.served.committed();
        self.host.pushed(&self.served.url());
    }

    /// Delivers a push in a world without faults. Its commit is read long before the next poll.
    pub(super) async fn deliver(&mut self) {
        let url = self.served.url();
        let status = self.host.delivers(&url).await;
        assert_eq!(status, Some(http::StatusCode::ACCEPTED), "a delivery with the present token");
        self.pass(DELIVERED_MAX).await;
        let source = self.read(&self.kcp, SOURCE).await.unwrap_or_default();
        let attempted = source["status"]["attemptedRevision"].as_str().unwrap_or_default();
        assert!(attempted.ends_with(self.head()), "{attempted} is not the commit that was pushed, {}", self.head());
    }

    /// The last commit.
    pub(super) fn head(&self) -> &str {
        &self.head
    }

    /// Confirms a prune that waits for a user.
    pub(super) async fn confirm(&self) {
        let patch = json!({"metadata": {"annotations": {"tidegate.dev/confirm-prune": self.head}}});
        self.patch(&self.kcp, SOURCE, &patch).await;
        // What a Kyma left that vanished with its definition, and that does not come back.
        let patch = json!({"metadata": {"annotations": {"tidegate.dev/confirm-deletion": "true"}}});
        for manifest in self.list(&self.kcp, &format!("{IN_KCP}/manifests")).await {
            let metadata = &manifest["metadata"];
            let kyma = metadata["labels"]["operator.kyma-project.io/kyma-name"].as_str().unwrap_or_default();
            let is_confirmed = !metadata["annotations"]["tidegate.dev/confirm-deletion"].is_null();
            if metadata["deletionTimestamp"].is_string() && !self.land.kymas.contains_key(kyma) && !is_confirmed {
                let path = format!("{IN_KCP}/manifests/{}", metadata["name"].as_str().unwrap_or_default());
                self.patch(&self.kcp, &path, &patch).await;
            }
        }
    }

    // --- the daemon ---

    pub(super) async fn start(&mut self) {
        self.lives += 1;
        let options = ConfigOptions {
            kubeconfig: Some(self.folder.path().join("kubeconfig")),
            allow_local_sources: true,
            state: self.state(),
            metrics_address: "127.0.0.1:0".parse().expect("an address"),
            health_address: "127.0.0.1:0".parse().expect("an address"),
            events_address: "off".parse().expect("off"),
            events_tls_address: "off".parse().expect("off"),
            hooks_address: "off".parse().expect("off"),
            identity: Some(format!("pod-{}", self.lives)),
            resync: Period(self.resync),
            lease_duration: Period(Duration::from_secs(180)),
            lease_renew_deadline: Period(Duration::from_secs(120)),
            lease_retry_period: Period(Duration::from_secs(48)),
            ..ConfigOptions::default()
        };
        let config = Config::try_from(options).expect("a configuration");
        let deadline = std::time::Instant::now() + harness::SOON;
        let daemon = loop {
            match Daemon::load_on(config.clone(), &self.network(), Renderer::local(), self.served.engine()).await {
                Ok(daemon) => break daemon,
                // A child process of another test inherits open files, the disk's lock too, until it calls `exec`.
                Err(error)
                    if std::time::Instant::now() < deadline && format!("{error:#}").contains(" is in use by ") =>
                {
                    std::thread::yield_now();
                }
                Err(error) => panic!("it does not load: {error:#}"),
            }
        };
        self.agents.lead_to(daemon.door(), self.lives);
        self.host.lead_to(daemon.hooks());
        self.daemon = Some(tokio::spawn(daemon.run(Mode::Forever, std::future::pending())));
    }

    /// How the current daemon reaches the servers.
    fn network(&self) -> Network {
        let client = |(name, faults): &(&'static str, Faults)| {
            let server = if *name == KCP { &self.kcp } else { &self.runtimes[name] };
            let wire = faults.layer(self.wires.wire(self.lives, name, server));
            (format!("{name}.example.org"), Client::new(wire, "default"))
        };
        let clients: BTreeMap<String, Client> = self.faults.iter().map(client).collect();
        Network::in_process(move |config| {
            let host = config.cluster_url.host()?;
            clients.get(host.strip_prefix(OTHER).unwrap_or(host)).cloned()
        })
    }

    /// The daemon loses the control plane, and another one starts with its own disk.
    pub(super) async fn split(&mut self) {
        let Some(daemon) = self.daemon.take() else { return };
        self.former.spawn(async move { daemon.await.unwrap_or_else(|error| Err(error.into())) });
        self.wires.cut_off(self.lives);
        self.disk += 1;
        self.start().await;
    }

    /// Kills the daemon.
    pub(super) async fn kill(&mut self) {
        self.agents.lead_nowhere();
        self.host.lead_nowhere();
        self.former.shutdown().await;
        let Some(daemon) = self.daemon.take() else { return };
        daemon.abort();
        let _ = daemon.await;
        // Its tasks end at their next turn. The last of them releases the lock on the disk.
        polled(500).await;
    }

    /// Lets time pass. If the daemon is killed, or exits because it lost its Lease, a new one starts, as a kubelet
    /// would do.
    pub(super) async fn pass(&mut self, time: Duration) {
        let end = tokio::time::Instant::now() + time;
        loop {
            let Some(mut daemon) = self.daemon.take() else {
                tokio::time::sleep_until(end).await;
                return;
            };
            let ended = tokio::select! {
                () = tokio::time::sleep_until(end) => None,
                how = self.wires.killed() => {
                    *self.counts.entry(how.to_owned()).or_default() += 1;
                    Some(format!("it is {how}"))
                }
                () = doom(self.doom) => {
                    self.doom = None;
                    *self.counts.entry("killed at a moment".to_owned()).or_default() += 1;
                    Some("it is killed".to_owned())
                }
                ended = &mut daemon => Some(match ended {
                    Ok(Ok(ended)) => format!("{ended:?}"),
                    Ok(Err(error)) => format!("{error:#}"),
                    Err(error) => std::panic::resume_unwind(error.into_panic()),
                }),
            };
            if !daemon.is_finished() {
                self.daemon = Some(daemon);
            }
            let Some(why) = ended else { return };
            self.note(format!("the daemon ends: {why}"));
            self.kill().await;
            let pause = Duration::from_millis(500 + self.dice.below(20_000));
            tokio::time::sleep(pause).await;
            self.note("a daemon starts");
            self.start().await;
        }
    }

    // --- faults ---

    /// Kills the daemon after this time, and this many polls of its tasks.
    pub(super) fn doom(&mut self, after: Duration, polls: u64) {
        self.doom = Some((tokio::time::Instant::now() + after, polls));
    }

    /// The condition of the repository as the daemon sees it.
    pub(super) fn condition(&self) -> Condition {
        self.served.condition()
    }

    /// Sets the condition of the repository.
    pub(super) fn serve(&mut self, condition: Condition) {
        self.note(format!("the repository is {condition:?}"));
        self.count(&format!("repository {}", condition.name()));
        self.served.set(condition);
    }

    /// Stops all faults.
    pub(super) fn calm(&mut self) {
        self.note("faults stop");
        self.wires.spare();
        self.doom = None;
        self.served.set(Condition::Well);
        for (name, faults) in &self.faults {
            faults.stop();
            self.wires.darken(name, false);
        }
    }

    /// Counts an event.
    pub(super) fn count(&mut self, what: &str) {
        *self.counts.entry(what.to_owned()).or_default() += 1;
    }

    /// The number of events in this world, by name.
    pub(super) fn counts(&self) -> BTreeMap<String, u64> {
        let mut counts = self.counts.clone();
        let met = self.faults.iter().flat_map(|(_, faults)| faults.counts());
        for (kind, count) in met.map(|(kind, count)| (format!("fault {kind}"), count)) {
            *counts.entry(kind).or_default() += count;
        }
        let others = self.agents.counts().into_iter().chain(self.wires.truth().counts()).chain(self.served.counts());
        let others = others.chain(self.host.counts());
        counts.extend(others.map(|(what, count)| (what.to_owned(), count)));
        counts.insert("forgotten before a page".to_owned(), self.wires.forgot());
        counts
    }

    /// The last faults, for the message of a test that fails.
    pub(super) fn journal(&self) -> Vec<String> {
        let lines = |(name, faults): &(&str, Faults)| {
            let journal = faults.journal();
            let last = journal.len().saturating_sub(20);
            journal[last..].iter().map(|line| format!("{name} {line}")).collect::<Vec<_>>()
        };
        self.faults.iter().flat_map(lines).collect()
    }

    // --- other hands ---

    /// An object as the server has it, unaffected by faults of the network.
    pub(super) async fn read(&self, server: &Server, path: &str) -> Option<Value> {
        truth::read(server.service_as(User::admin()), path).await
    }

    /// All objects under a path.
    pub(super) async fn list(&self, server: &Server, path: &str) -> Vec<Value> {
        let list = self.read(server, path).await.unwrap_or_default();
        list["items"].as_array().cloned().unwrap_or_default()
    }

    /// Another client creates an object, unless one of that name exists. Returns the object as the server stored it.
    pub(super) async fn create(&self, server: &Server, path: &str, object: &Value) -> Option<Value> {
        let request = http::Request::post(format!("{path}?fieldManager=user"))
            .header("content-type", "application/json")
            .body(object.to_string().into_bytes())
            .expect("a request");
        server.client().request::<Value>(request).await.ok()
    }

    /// Another client patches an object, if it exists.
    pub(super) async fn patch(&self, server: &Server, path: &str, patch: &Value) {
        let request = http::Request::patch(format!("{path}?fieldManager=user"))
            .header("content-type", "application/merge-patch+json")
            .body(patch.to_string().into_bytes())
            .expect("a request");
        let _ = server.client().request::<Value>(request).await;
    }

    /// Another client deletes an object, if it exists.
    pub(super) async fn delete(&self, server: &Server, path: &str) {
        let request = http::Request::delete(path).body(Vec::new()).expect("a request");
        let _ = server.client().request::<Value>(request).await;
    }

    /// Replaces or deletes the access Secret of a Kyma.
    pub(super) async fn give(&mut self, kyma: &'static str, credentials: Credentials) {
        self.note(format!("the access Secret of {kyma}: {credentials:?}"));
        self.secrets.insert(kyma, credentials);
        self.wires.truth().secretless(kyma, credentials == Credentials::Absent);
        let config = match credentials {
            Credentials::Good { other: false } => kubeconfig(kyma),
            Credentials::Good { other: true } => kubeconfig(&format!("{OTHER}{kyma}")),
            Credentials::Broken => self.dice.one_of(&["", "no: kubeconfig", "{"]).to_owned(),
            Credentials::Absent => {
                let path = format!("/api/v1/namespaces/kcp-system/secrets/access-{kyma}");
                return self.delete(&self.kcp, &path).await;
            }
        };
        harness::apply(&self.kcp.client(), &access_secret(kyma, &config)).await;
    }

    /// Sets whether the Deployment of a runtime becomes ready, and restarts it.
    pub(super) async fn stick(&mut self, kyma: &'static str, stuck: bool) {
        self.note(format!("{kyma}: mailer {}", if stuck { "does not become ready any more" } else { "is mended" }));
        let readiness = if stuck { Readiness::Never } else { READINESS };
        self.runtimes[kyma].set_readiness(Some(("kyma-system", "mailer")), readiness);
        if stuck {
            self.stuck.insert(kyma)
        } else {
            self.stuck.remove(kyma)
        };
        let path = format!("{DEPLOYMENTS}/mailer");
        let live = self.read(&self.runtimes[kyma], &path).await.unwrap_or_default();
        if live["spec"]["selector"]["matchLabels"]["app"] != "mailer" {
            // It does not exist, or it belongs to a user.
            return;
        }
        self.wires.truth().restarted(kyma, &path);
        let at = self.began.elapsed().as_millis().to_string();
        let patch = json!({"spec": {"template": {"metadata": {"annotations": {"restarted": at}}}}});
        self.patch(&self.runtimes[kyma], &path, &patch).await;
    }

    /// Steps the wall clock of the daemon's machine.
    pub(super) fn step_clock(&self, by: SignedDuration) {
        self.ambience.step(by);
    }

    /// The folder that is the daemon's disk.
    pub(super) fn state(&self) -> PathBuf {
        self.folder.path().join(format!("state-{}", self.disk))
    }
}

/// Returns when it is time to kill the daemon.
async fn doom(when: Option<(tokio::time::Instant, u64)>) {
    let Some((moment, polls)) = when else { return std::future::pending().await };
    tokio::time::sleep_until(moment).await;
    polled(polls).await;
}

/// The domain in the certificate of a runtime.
pub(super) fn domain(kyma: &str) -> String {
    format!("{kyma}.skr.example.org")
}

/// A control plane with the objects that all worlds have in the beginning. It is built once, because the CRDs are
/// large.
pub(super) fn furnished() -> Server {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().expect("a runtime");
    runtime.block_on(async {
        let began: Timestamp = BEGAN.parse().expect("a time");
        let server = Server::new(&Options { began, seed: 0, ..Options::default() });
        let client = server.client();
        harness::install_own_crds(&client).await;
        harness::apply(&client, &json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kcp-system"}}))
            .await;
        for (plural, field) in POISONS {
            loosen(&client, plural, field).await;
        }
        // Without these CRDs the daemon would look for them for ever, which is not the subject of these tests.
        for (kind, plural) in [("Gateway", "gateways"), ("VirtualService", "virtualservices")] {
            harness::apply(&client, &istio(kind, plural)).await;
        }
        for name in RUNTIMES {
            harness::apply(&client, &access_secret(name, &kubeconfig(name))).await;
        }
        server
    })
}

/// Lets a field of a CRD hold anything, as a newer version of the CRD might.
async fn loosen(client: &Client, plural: &str, field: &str) {
    let name = format!("{plural}.operator.kyma-project.io");
    let sample = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": name}});
    let api = harness::api_of(client, &sample).await.expect("a kind that is served");
    let mut versions = api.get(&name).await.expect("a definition").data["spec"]["versions"].clone();
    for version in versions.as_array_mut().expect("versions") {
        let fields = version.pointer_mut("/schema/openAPIV3Schema/properties/spec/properties");
        if let Some(fields) = fields {
            fields[field] = json!({"x-kubernetes-preserve-unknown-fields": true});
        }
    }
    let patch = kube::api::Patch::Merge(json!({"spec": {"versions": versions}}));
    api.patch(&name, &kube::api::PatchParams::default(), &patch).await.expect("a patch");
}

/// A CRD of Istio that accepts anything.
fn istio(kind: &str, plural: &str) -> Value {
    let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.networking.istio.io")},
        "spec": {
            "group": "networking.istio.io", "scope": "Namespaced", "names": {"kind": kind, "plural": plural},
            "versions": [{
                "name": "v1beta1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema},
            }],
        },
    })
}

/// Fault rates. Some worlds are calm, others are not.
fn rates(dice: &mut Dice) -> Rates {
    let scale = dice.one_of(&[0_u16, 1, 2, 4]);
    Rates {
        latency: 100 * scale,
        latency_max: Duration::from_millis(1_500),
        throttled: 10 * scale,
        failed: 10 * scale,
        reset: 10 * scale,
        lost: 10 * scale,
        lost_after: Duration::from_secs(dice.below(40)),
        unjudged: 5 * scale,
        unjudged_after: Duration::from_secs(10),
        dropped: 60 * scale,
        dropped_after_max: Duration::from_secs(60),
        late: 40 * scale,
        late_max: Duration::from_secs(5),
        gone: 20 * scale,
        // No read of the daemon accepts any version; `judge` checks that.
        stale: 0,
    }
}

/// A kubeconfig for a server in this process.
fn kubeconfig(name: &str) -> String {
    // The certificate is never used: connections within this process need no TLS.
    const AUTHORITY: &str = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: it\ncontexts: [{{name: it, context: {{cluster: it, user: it}}}}]\n\
         clusters: [{{name: it, cluster: {{server: 'https://{name}.example.org', certificate-authority-data: {}}}}}]\n\
         users: [{{name: it, user: {{token: it}}}}]\n",
        STANDARD.encode(AUTHORITY)
    )
}

/// The access Secret of a Kyma.
fn access_secret(kyma: &str, config: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Secret",
        "metadata": {
            "name": format!("access-{kyma}"), "namespace": "kcp-system",
            "labels": {"operator.kyma-project.io/kyma-name": kyma},
        },
        "data": {"config": STANDARD.encode(config)},
    })
}
