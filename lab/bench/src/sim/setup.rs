//! `tidegate sim setup`: what a kcp landscape costs the daemon, with certificates of the built-in CA.
//!
//! The daemon is a process of its own, and the control plane is simulated in this process. It counts the requests of
//! the daemon and records when it answered them. Its Deployments are ready at once, so the time of a rollout is that of
//! the daemon and of the API server. The *limit* is a bare client that applies the same final objects once, over
//! sixteen connections, to a fresh server.

use std::{
    fmt::Write as _,
    fs::File,
    process::{Command, Stdio},
    time::Duration,
};

use anyhow::Context as _;
use clap::Args;
use jiff::Timestamp;
use kube::api::{DeleteParams, ListParams};
use serde_json::{Value, json};

use super::{
    limit::{self, Clients, Limit, Objects},
    offline,
    process::{Daemon, Usage},
    report::Output,
    stage::{Requests, Servers, Size, Stage},
};
use crate::servers::{Make, Mark, Server};
use tidegate_core::api::{names::KCP_NAMESPACE, setup};
use tidegate_process::{Exit, say, tell};
use tidegate_testbed as testbed;

/// Measures the daemon with a kcp landscape on a simulated control plane, from the rollout to a restart.
#[derive(Args)]
pub(super) struct Arguments {
    /// Give the landscape this many shards beside its root shard
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u16).range(1..=1_000))]
    shards: u16,
    /// Give it this many front proxies
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=100))]
    proxies: u16,
    /// Give it this many kubeconfigs of users
    #[arg(long, default_value_t = 40, value_parser = clap::value_parser!(u16).range(1..=10_000))]
    kubeconfigs: u16,
    /// Create this many Secrets of others in the same namespace
    #[arg(long, default_value_t = 2_000, value_parser = clap::value_parser!(u16).range(1..=20_000))]
    secrets: u16,
    /// Measure the idle phase for this many seconds
    #[arg(long, default_value_t = 30)]
    idle: u64,
    /// Run the bare client this many times and print the median
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..=100))]
    limits: u16,
    /// Print the numbers in this format
    #[arg(short, long, value_enum, default_value_t = Output::Text)]
    output: Output,
}

/// One phase.
struct Phase {
    name: &'static str,
    /// From the start of the phase to the last write, or to its end if nothing is written.
    wall: Duration,
    writes: usize,
    reads: usize,
    cpu: Duration,
    /// Resident memory at the end of the phase, in bytes.
    resident: u64,
}

/// All numbers.
struct Numbers {
    objects: usize,
    phases: Vec<Phase>,
    /// Resident memory before the landscape, in bytes.
    before: u64,
    limit: Limit,
    render: Duration,
}

/// A budget, and the measured value.
struct Budget {
    what: &'static str,
    measured: f64,
    /// Whether the measured value must be at least, rather than at most, the budget.
    is_least: bool,
    budget: f64,
}

/// The file of the landscape in the repository.
const FILE: &str = "kcp/landscape.yaml";
/// The names of the phases that budgets are about.
const ROLLOUT: &str = "rollout";
const IDLE: &str = "idle";
const FOREIGN: &str = "a Secret of others changes";
const RENEWAL: &str = "a certificate is renewed";
const RESTART: &str = "daemon restart";
/// How long a change that must cause nothing has time to cause something.
const NOTHING_FOR: Duration = Duration::from_secs(5);
/// How often a change that must cause nothing is made.
const CHANGES: usize = 10;
/// The Secret that every server of kcp mounts.
const ETCD: &str = "etcd-client";

/// Runs the command.
pub(super) async fn measure(arguments: &Arguments) -> anyhow::Result<Exit> {
    let servers = Servers::prepare(Make::Simulated, Make::Simulated).await?;
    let stage = Stage::start(Size { runtimes: 0, modules: 0, objects: 0 }, &servers, "setup").await?;
    prepare(&stage.clusters[0]).await?;
    tell!("creating {} Secrets of others", arguments.secrets);
    for index in 0..arguments.secrets {
        testbed::apply(&stage.clusters[0].client()?, &foreign(usize::from(index), "one")).await?;
    }
    let mut run = Run::start(&stage).await?;
    run.rollout(arguments).await?;
    run.idle(Duration::from_secs(arguments.idle)).await?;
    run.foreign().await?;
    run.renewal().await?;
    run.restart().await?;
    let Run { phases, before, objects, mut daemon, .. } = run;
    daemon.end();
    let render = render(&stage)?;
    drop(stage);
    let mut limits = Vec::new();
    for time in 1..=arguments.limits {
        tell!("the bare client applies the same {} objects, {time} of {}", objects.count(), arguments.limits);
        let fresh = servers.start(0, "limit").await?;
        limit::prepare(&fresh[0]).await?;
        prepare(&fresh[0]).await?;
        limits.push(limit::apply(&Clients::connect(&fresh)?, &objects).await?);
    }
    let limit = Limit::median(limits).context("the bare client has run")?;
    let numbers = Numbers { objects: objects.count(), phases, before, limit, render };
    match arguments.output {
        Output::Text => say!("{}", numbers.to_text(arguments)),
        Output::Json => say!("{:#}", numbers.to_json(arguments)),
    }
    Ok(Exit::Ok)
}

/// What a user provides before the landscape: the definitions of the six kinds, and the client certificate of etcd.
async fn prepare(kcp: &Server) -> anyhow::Result<()> {
    let client = kcp.client()?;
    let crds = setup::Kind::ALL.map(|kind| serde_json::to_value(kind.crd()));
    let crds = crds.into_iter().collect::<Result<Vec<Value>, _>>()?;
    testbed::install_crds(&client, &crds).await?;
    let mut etcd = secret(ETCD);
    etcd["stringData"] = json!({"tls.crt": "certificate", "tls.key": "key", "ca.crt": "ca"});
    testbed::apply(&client, &etcd).await?;
    Ok(())
}

fn secret(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "namespace": KCP_NAMESPACE}})
}

/// A Secret that nothing names.
fn foreign(index: usize, value: &str) -> Value {
    let mut secret = secret(&format!("foreign-{index}"));
    secret["stringData"] = json!({"value": value});
    secret
}

/// The landscape, as one file.
fn landscape(arguments: &Arguments) -> anyhow::Result<String> {
    let Arguments { shards, proxies, kubeconfigs, .. } = *arguments;
    let mut text = String::new();
    let mut add = |kind: &str, name: &str, spec: Value| {
        let metadata = json!({"name": name, "namespace": KCP_NAMESPACE});
        let resource = json!({
            "apiVersion": "operator.kcp.io/v1alpha1", "kind": kind, "metadata": metadata, "spec": spec,
        });
        writeln!(text, "---\n{resource}")
    };
    let issuer = json!({"issuerRef": {"kind": "ClusterIssuer", "name": "selfsigned"}});
    let etcd = json!({"endpoints": ["https://etcd:2379"], "tlsConfig": {"secretRef": {"name": ETCD}}});
    let root = json!({
        "external": {"hostname": "kcp.example.com", "port": 443}, "cache": {}, "certificates": issuer, "etcd": etcd,
    });
    add("RootShard", "main", root)?;
    for index in 0..shards {
        let spec = json!({"rootShard": {"ref": {"name": "main"}}, "etcd": etcd});
        add("Shard", &format!("shard-{index}"), spec)?;
    }
    for index in 0..proxies {
        let hostname = if index == 0 { "kcp.example.com".to_owned() } else { format!("kcp-{index}.example.com") };
        let spec = json!({"rootShard": {"ref": {"name": "main"}}, "external": {"hostname": hostname, "port": 443}});
        add("FrontProxy", &format!("proxy-{index}"), spec)?;
    }
    for index in 0..kubeconfigs {
        let target = json!({"frontProxyRef": {"name": format!("proxy-{}", index % proxies)}});
        let spec = json!({
            "target": target, "username": format!("user-{index}"), "groups": ["team"], "validity": "8766h",
            "secretRef": {"name": format!("user-{index}-kubeconfig")},
        });
        add("Kubeconfig", &format!("user-{index}"), spec)?;
    }
    Ok(text)
}

/// How long `tidegate render` of the landscape takes.
fn render(stage: &Stage) -> anyhow::Result<Duration> {
    tell!("render");
    let out = File::create(stage.folder.path().join("render.yaml")).context("cannot write to the temporary folder")?;
    let mut command = Command::new(std::env::current_exe().context("cannot tell which program this is")?);
    command.arg("render").arg(stage.repository.path()).stdout(out).stderr(Stdio::null());
    Ok(offline::measure(command.spawn().context("cannot start `render`")?)?.wall)
}

/// A daemon with its server, and the numbers so far.
struct Run<'a> {
    stage: &'a Stage,
    daemon: Daemon,
    phases: Vec<Phase>,
    before: u64,
    objects: Objects,
}

/// A running phase.
struct Watch {
    name: &'static str,
    marks: Vec<Mark>,
    began: Timestamp,
    before: Usage,
}

// === impl Run ===

impl<'a> Run<'a> {
    async fn start(stage: &'a Stage) -> anyhow::Result<Run<'a>> {
        tell!("starting the daemon");
        let daemon = stage.daemon(&Run::options())?;
        stage.look(async || daemon.says(&["a revision is active"])).await?;
        stage.quiet(&stage.marks()).await?;
        let before = daemon.usage()?.resident;
        Ok(Run { stage, daemon, phases: Vec::new(), before, objects: Objects::default() })
    }

    fn options() -> Vec<String> {
        ["--kcp-landscapes", "--pki=builtin", "--resync=6h"].map(str::to_owned).into()
    }

    async fn rollout(&mut self, arguments: &Arguments) -> anyhow::Result<()> {
        self.stage.repository.write(FILE, &landscape(arguments)?)?;
        let watch = self.watch(ROLLOUT)?;
        self.stage.repository.commit("a kcp landscape")?;
        let watch = Watch { began: Timestamp::now(), ..watch };
        self.stage.look(async || self.is_ready(arguments).await).await?;
        self.stage.quiet(&watch.marks).await?;
        self.push(&watch)?;
        self.objects = Objects::of_setup(&Clients::connect(&self.stage.clusters)?).await?;
        Ok(())
    }

    async fn idle(&mut self, time: Duration) -> anyhow::Result<()> {
        let watch = self.watch(IDLE)?;
        tokio::time::sleep(time).await;
        self.push(&watch)
    }

    /// Secrets change that nothing names.
    async fn foreign(&mut self) -> anyhow::Result<()> {
        let watch = self.watch(FOREIGN)?;
        let client = self.stage.clusters[0].client()?;
        for change in 0..CHANGES {
            testbed::apply(&client, &foreign(0, &format!("change {change}"))).await?;
        }
        tokio::time::sleep(NOTHING_FOR).await;
        self.push(&watch)
    }

    /// A certificate is issued anew, because its Secret is gone: the kubeconfig that contains it follows.
    async fn renewal(&mut self) -> anyhow::Result<()> {
        let client = self.stage.clusters[0].client()?;
        let secrets = testbed::api_of(&client, &secret("any")).await?;
        let data = async || {
            let found = secrets.get_opt("user-0-kubeconfig").await.map_err(|error| error.to_string())?;
            found.map(|found| found.data["data"].clone()).ok_or_else(|| "there is no kubeconfig".to_owned())
        };
        let former = data().await.map_err(anyhow::Error::msg)?;
        let watch = self.watch(RENEWAL)?;
        secrets.delete("kubeconfig-cert-user-0", &DeleteParams::default()).await.context("cannot delete a Secret")?;
        let is_new = async || if data().await? == former { Err("it is the former one".to_owned()) } else { Ok(()) };
        self.stage.look(is_new).await?;
        self.stage.quiet(&watch.marks).await?;
        self.push(&watch)
    }

    /// A new process of the daemon starts, and compares every object.
    async fn restart(&mut self) -> anyhow::Result<()> {
        let watch = self.watch(RESTART)?;
        self.daemon.end();
        // A new process has used no resources yet.
        let watch = Watch { before: Usage::default(), began: Timestamp::now(), ..watch };
        self.daemon = self.stage.daemon(&Run::options())?;
        self.stage.look(async || self.daemon.says(&["a revision is active"])).await?;
        self.stage.quiet(&watch.marks).await?;
        self.push(&watch)
    }

    /// Whether every resource is as desired.
    async fn is_ready(&self, arguments: &Arguments) -> Result<(), String> {
        let client = self.stage.clusters[0].client().map_err(|error| error.to_string())?;
        let wanted = [
            ("RootShard", 1, "Running"),
            ("Shard", arguments.shards, "Running"),
            ("FrontProxy", arguments.proxies, "Running"),
            ("Kubeconfig", arguments.kubeconfigs, "Ready"),
        ];
        for (kind, count, phase) in wanted {
            let sample = json!({
                "apiVersion": "operator.kcp.io/v1alpha1", "kind": kind, "metadata": {"namespace": KCP_NAMESPACE},
            });
            let api = testbed::api_of(&client, &sample).await.map_err(|error| error.to_string())?;
            let found = api.list(&ListParams::default()).await.map_err(|error| error.to_string())?;
            let ready = found.items.iter().filter(|one| one.data["status"]["phase"] == phase).count();
            if ready != usize::from(count) {
                return Err(format!("{ready} of {count} {kind}s are {phase}"));
            }
        }
        Ok(())
    }

    fn watch(&self, name: &'static str) -> anyhow::Result<Watch> {
        tell!("{name}");
        Ok(Watch { name, marks: self.stage.marks(), began: Timestamp::now(), before: self.daemon.usage()? })
    }

    fn push(&mut self, watch: &Watch) -> anyhow::Result<()> {
        let seen: Requests = self.stage.requests(&watch.marks)?;
        let (usage, kcp) = (self.daemon.usage()?, seen.kcp());
        let ended = seen.last_write().unwrap_or_else(Timestamp::now);
        self.phases.push(Phase {
            name: watch.name,
            wall: Duration::try_from(ended.duration_since(watch.began)).unwrap_or_default(),
            writes: kcp.writes(),
            reads: kcp.requests() - kcp.writes(),
            cpu: usage.cpu.saturating_sub(watch.before.cpu),
            resident: usage.resident,
        });
        Ok(())
    }
}

// === impl Numbers ===

impl Numbers {
    fn phase(&self, name: &str) -> &Phase {
        self.phases.iter().find(|phase| phase.name == name).expect("every phase was measured")
    }

    /// The budgets of a landscape of the default size.
    fn budgets(&self) -> Vec<Budget> {
        #[expect(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
        let number = |count: usize| count as f64;
        let rollout = self.phase(ROLLOUT);
        let seconds = rollout.wall.as_secs_f64();
        let most = |what, measured, budget| Budget { what, measured, is_least: false, budget };
        let more = self.phase(IDLE).resident.saturating_sub(self.before) >> 20;
        let foreign = self.phase(FOREIGN);
        vec![
            most("times the time of the limit", seconds / self.limit.wall.as_secs_f64().max(1e-3), 1.25),
            Budget {
                what: "objects a second",
                measured: number(self.objects) / seconds.max(1e-3),
                is_least: true,
                budget: 250.0,
            },
            most("times the writes of the limit", number(rollout.writes) / number(self.limit.writes.max(1)), 1.05),
            most("writes while idle", number(self.phase(IDLE).writes), 0.0),
            most("requests for Secrets of others", number(foreign.writes + foreign.reads), 0.0),
            most("seconds until a renewed certificate is used", self.phase(RENEWAL).wall.as_secs_f64(), 1.0),
            most("writes at a restart", number(self.phase(RESTART).writes), 0.0),
            most("MiB more memory", number(usize::try_from(more).unwrap_or(usize::MAX)), 16.0),
            most("seconds of `render`", self.render.as_secs_f64(), 0.3),
        ]
    }

    fn to_text(&self, arguments: &Arguments) -> String {
        let Arguments { shards, proxies, kubeconfigs, secrets, .. } = arguments;
        let mut text = format!(
            "a root shard, {shards} shards, {proxies} front proxies, {kubeconfigs} Kubeconfigs: {} objects; {secrets} \
             Secrets of others\n\n| phase | wall s | writes | reads | CPU s | res MiB |\n| --- | --- | --- | --- | --- | \
             --- |\n",
            self.objects
        );
        for Phase { name, wall, writes, reads, cpu, resident } in &self.phases {
            let (wall, cpu, mib) = (wall.as_secs_f64(), cpu.as_secs_f64(), resident >> 20);
            // Writing to a String cannot fail.
            let _ = writeln!(text, "| {name} | {wall:.2} | {writes} | {reads} | {cpu:.2} | {mib} |");
        }
        let (wall, writes) = (self.limit.wall.as_secs_f64(), self.limit.writes);
        let _ = writeln!(text, "\nthe bare client: {wall:.2} s, {writes} writes\n");
        for budget in self.budgets() {
            let verdict = if budget.is_met() { "met" } else { "exceeded" };
            let word = if budget.is_least { "at least" } else { "at most" };
            let Budget { what, measured, budget, .. } = budget;
            let _ = writeln!(text, "{verdict:<8} {measured:>8.2} {what}, {word} {budget}");
        }
        text.truncate(text.trim_end().len());
        text
    }

    fn to_json(&self, arguments: &Arguments) -> Value {
        let phases: Vec<Value> = self
            .phases
            .iter()
            .map(|phase| {
                json!({
                    "name": phase.name, "wallSeconds": phase.wall.as_secs_f64(), "writes": phase.writes,
                    "reads": phase.reads, "cpuSeconds": phase.cpu.as_secs_f64(), "residentBytes": phase.resident,
                })
            })
            .collect();
        let budgets: Vec<Value> = self
            .budgets()
            .iter()
            .map(|budget| {
                json!({
                    "what": budget.what, "measured": budget.measured, "met": budget.is_met(),
                    "budget": budget.budget,
                })
            })
            .collect();
        json!({
            "shards": arguments.shards, "proxies": arguments.proxies, "kubeconfigs": arguments.kubeconfigs,
            "objects": self.objects, "phases": phases, "budgets": budgets,
            "limit": {"wallSeconds": self.limit.wall.as_secs_f64(), "writes": self.limit.writes},
            "renderSeconds": self.render.as_secs_f64(),
        })
    }
}

// === impl Budget ===

impl Budget {
    fn is_met(&self) -> bool {
        if self.is_least { self.budget <= self.measured } else { self.measured <= self.budget }
    }
}
