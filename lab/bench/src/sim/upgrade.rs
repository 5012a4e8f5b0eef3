//! `tidegate sim upgrade`: another version of the daemon takes a running landscape over, and gives it back.
//!
//! An older program rolls the landscape out. Then the newer one goes on with the same control plane, the same runtimes
//! and the same folder of state; then the older one again, and at last the newer one. After each change of versions,
//! nothing is to be done, so each write is one too many: the table names what was written. Between two changes, a
//! channel is bumped, which shows that the version at work reads and writes what the other one left. A Kyma may not
//! leave Ready meanwhile. Before the way back, objects get fields that neither version knows, as a newer CRD has them:
//! the older version must leave them when it writes these objects.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail};
use clap::Args;
use kube::api::{ListParams, Patch, PatchParams};
use kube_sim::{Tally, is_write};
use serde_json::{Value, json};

use super::{
    fleet, open_files,
    process::Daemon,
    report::Output,
    stage::{ServerMakes, Size, Stage},
};
use tidegate_core::api::names::{self, annotation};
use tidegate_process::{Exit, say, tell};
use tidegate_testbed as testbed;

/// Measures what another version of the daemon writes to a running landscape, in both directions.
///
/// Rolls a landscape out with the older program, then lets the newer one go on, the older one again, and the newer one.
/// Between, bumps a channel, and adds fields that neither version knows. Without `--old` and `--new`, both are this
/// program. Exit code 0: no upgrade wrote anything, every Kyma stayed Ready, and every field is there; 1: otherwise.
#[derive(Args)]
pub(super) struct Arguments {
    /// Start with this older program, for example `./tidegate-0.1.0` [default: this program]
    #[arg(long, value_name = "FILE")]
    old: Option<PathBuf>,
    /// Use this newer program for the upgrade [default: this program]
    #[arg(long, value_name = "FILE")]
    new: Option<PathBuf>,
    /// Start this many runtimes, each with an API server of its own
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=fleet::RUNTIMES_MAX))]
    runtimes: u16,
    /// Install this many modules in each runtime
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..=100))]
    modules: u16,
    /// Give each module this many objects
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u16).range(1..=1_000))]
    objects: u16,
    #[command(flatten)]
    servers: ServerMakes,
    /// Print the numbers in this format
    #[arg(short, long, value_enum, default_value_t = Output::Text)]
    output: Output,
}

/// What happened in one step.
struct Row {
    step: String,
    /// Seconds until the daemon sent no more requests.
    seconds: f64,
    /// Writes to the control plane, by verb and resource.
    kcp: BTreeMap<String, usize>,
    /// Writes to all runtimes.
    runtimes: BTreeMap<String, usize>,
    /// The Kymas that have left Ready.
    disturbed: Vec<String>,
}

/// Runs the command. Exit code 1: an upgrade wrote something, a step disturbed a Kyma, or a field is gone.
pub(super) async fn measure(arguments: &Arguments) -> anyhow::Result<Exit> {
    let size = Size {
        runtimes: usize::from(arguments.runtimes),
        modules: usize::from(arguments.modules),
        objects: usize::from(arguments.objects),
    };
    open_files(size.runtimes);
    let this = std::env::current_exe().context("cannot find this program")?;
    let old = Version::of(arguments.old.as_deref().unwrap_or(&this))?;
    let new = Version::of(arguments.new.as_deref().unwrap_or(&this))?;
    let servers = arguments.servers.prepare().await?;
    tell!("starting {} API servers", size.runtimes + 1);
    let stage = Stage::with_own_authority(size, &servers, "upgrade").await?;
    stage.commit_landscape()?;
    let mut run = Run { stage, size, rows: Vec::new(), newer: Newer::default() };
    let mut daemon = run.start("first rollout", &old).await?;
    for (step, version, bump) in
        [("upgrade", &new, Some(1)), ("back again", &old, Some(2)), ("upgrade again", &new, None)]
    {
        daemon.end();
        daemon = run.start(step, version).await?;
        if let Some(index) = bump {
            run.bump(version, index).await?;
        }
        match step {
            "upgrade" => run.add_newer().await?,
            "back again" => run.check_newer().await?,
            _ => {}
        }
    }
    daemon.end();
    match arguments.output {
        Output::Text => print(servers.describe(), [&old, &new], &run),
        Output::Json => {
            let steps: Vec<Value> = run.rows.iter().map(Row::json).collect();
            let newer = json!({"objects": run.newer.objects, "lost": run.newer.lost});
            let document = json!({"old": old.text, "new": new.text, "steps": steps, "newerFields": newer});
            say!("{document:#}");
        }
    }
    let is_whole = run.newer.lost.is_empty() && run.rows.iter().all(|row| row.disturbed.is_empty());
    let is_silent = run.rows.iter().filter(|row| row.is_upgrade()).all(Row::wrote_nothing);
    Ok(if is_whole && is_silent { Exit::Ok } else { Exit::Changes })
}

/// Kinds whose objects get fields that no version knows: CustomResourceDefinition, version and kind. Runtimes have no
/// copies of these definitions, so a new field causes no write there.
const NEWER: [(&str, &str, &str); 2] = [
    ("manifests.operator.kyma-project.io", "operator.kyma-project.io/v1beta2", "Manifest"),
    ("gitsources.tidegate.dev", "tidegate.dev/v1alpha1", "GitSource"),
];
/// The name of these fields, and their value.
const FIELD: (&str, &str) = ("future", "kept");
/// Where they are.
const PARTS: [&str; 2] = ["spec", "status"];

/// A program, and what it says of its version.
struct Version {
    program: PathBuf,
    text: String,
}

/// A landscape, and what happened so far.
struct Run {
    stage: Stage,
    size: Size,
    rows: Vec<Row>,
    newer: Newer,
}

/// The fields of a version that is newer than both.
#[derive(Default)]
struct Newer {
    /// How many objects have them, in their specification and in their status.
    objects: usize,
    /// Those that have lost one.
    lost: Vec<String>,
}

// === impl Version ===

impl Version {
    /// Fails if the file is no program of Tidegate.
    fn of(program: &Path) -> anyhow::Result<Version> {
        let program = program.canonicalize().with_context(|| format!("cannot find {}", program.display()))?;
        let output = std::process::Command::new(&program).arg("--version").output();
        let output = output.with_context(|| format!("cannot run {}", program.display()))?;
        let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        if !output.status.success() || !text.starts_with("tidegate ") {
            bail!("{} is not Tidegate: name one with --old or --new", program.display());
        }
        Ok(Version { program, text })
    }
}

// === impl Run ===

impl Run {
    /// Starts a version, and waits until it has looked at every runtime and has nothing more to do.
    async fn start(&mut self, step: &str, version: &Version) -> anyhow::Result<Daemon> {
        let before = self.ready_since().await?;
        let marks = self.stage.marks();
        let began = Instant::now();
        let daemon = self.stage.daemon_of(&version.program, &["--resync=6h".to_owned()])?;
        self.stage.look(async || daemon.leads()).await?;
        let all: Vec<usize> = (1..=self.size.runtimes).collect();
        self.stage.ready(&all, |_, _| true).await?;
        let requests = async || {
            let seen = self.stage.requests(&marks).map_err(|error| error.to_string())?;
            let unseen = seen.0.iter().skip(1).filter(|seen| seen.first.is_none()).count();
            if unseen == 0 { Ok(()) } else { Err(format!("{unseen} runtimes were not looked at")) }
        };
        self.stage.look(requests).await?;
        self.stage.quiet(&marks).await?;
        let after = self.ready_since().await?;
        let seen = self.stage.requests(&marks)?;
        let left = |(name, since): (&String, &String)| {
            let still = after.get(name).is_some_and(|after| after == since);
            (!still).then(|| name.clone())
        };
        self.rows.push(Row {
            step: format!("{step}: {}", version.text),
            seconds: began.elapsed().as_secs_f64(),
            kcp: writes(&seen.kcp()),
            runtimes: writes(&seen.skrs()),
            disturbed: before.iter().filter_map(left).collect(),
        });
        Ok(daemon)
    }

    /// The first module's channel gets this version.
    async fn bump(&mut self, version: &Version, index: usize) -> anyhow::Result<()> {
        self.stage.repository.write(&fleet::release_path(0), &fleet::release(0, fleet::VERSIONS[index]))?;
        self.stage.repository.commit("bump")?;
        let marks = self.stage.marks();
        let began = Instant::now();
        self.ask().await?;
        let all: Vec<usize> = (1..=self.size.runtimes).collect();
        let (module, wanted) = (fleet::module_name(0), fleet::VERSIONS[index]);
        let has_it = |_: usize, kyma: &Value| {
            let modules = kyma["status"]["modules"].as_array().into_iter().flatten();
            modules.filter(|one| one["name"] == *module).all(|one| one["version"] == wanted && one["state"] == "Ready")
        };
        self.stage.ready(&all, has_it).await?;
        // Soon after the start of a process, deletions are held for some seconds. Only then all is done.
        let former = json!({
            "apiVersion": "operator.kyma-project.io/v1beta2", "kind": "ModuleTemplate",
            "metadata": {
                "name": format!("{}-{}", fleet::module_name(0), fleet::VERSIONS[index - 1]),
                "namespace": names::SKR_NAMESPACE,
            },
        });
        for skr in self.stage.clusters.iter().skip(1) {
            let copies = testbed::api_of(&skr.client()?, &former).await?;
            let name = former["metadata"]["name"].as_str().unwrap_or_default();
            let is_gone = async || match copies.get_opt(name).await.map_err(|error| error.to_string())? {
                None => Ok(()),
                Some(_) => Err(format!("{name} is still in a runtime")),
            };
            self.stage.look(is_gone).await?;
        }
        self.stage.quiet(&marks).await?;
        let seen = self.stage.requests(&marks)?;
        self.rows.push(Row {
            step: format!("a bump by {}", version.text),
            seconds: began.elapsed().as_secs_f64(),
            kcp: writes(&seen.kcp()),
            runtimes: writes(&seen.skrs()),
            disturbed: Vec::new(),
        });
        Ok(())
    }

    /// Adds fields to definitions and to all objects of these kinds, and waits until the daemon has seen them.
    async fn add_newer(&mut self) -> anyhow::Result<()> {
        let kcp = self.stage.clusters[0].client()?;
        let marks = self.stage.marks();
        let (field, value) = FIELD;
        for (crd, version, kind) in NEWER {
            let sample = json!({
                "apiVersion": version, "kind": kind,
                "metadata": {"name": "any", "namespace": names::KCP_NAMESPACE},
            });
            let objects = testbed::api_of(&kcp, &sample).await?;
            // While an API server changes a definition, it refuses to list.
            let all = objects.list(&ListParams::default()).await?;
            let sample = json!({
                "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
                "metadata": {"name": crd},
            });
            let definitions = testbed::api_of(&kcp, &sample).await?;
            let mut versions = definitions.get(crd).await?.data["spec"]["versions"].clone();
            for version in versions.as_array_mut().into_iter().flatten() {
                for part in PARTS {
                    // A version that is no longer served may have no fields.
                    if let Some(schema) = version.pointer_mut(&format!("/schema/openAPIV3Schema/properties/{part}")) {
                        schema["properties"][field] = json!({"type": "string"});
                    }
                }
            }
            let patch = Patch::Merge(json!({"spec": {"versions": versions}}));
            definitions.patch(crd, &PatchParams::default(), &patch).await?;
            for object in all {
                let name = object.metadata.name.unwrap_or_default();
                for part in PARTS {
                    // The API server drops the field until it serves the new definition.
                    let is_kept = async || {
                        let (params, patch) = (PatchParams::default(), Patch::Merge(json!({part: {field: value}})));
                        let patched = match part {
                            "status" => objects.patch_status(&name, &params, &patch).await,
                            _ => objects.patch(&name, &params, &patch).await,
                        };
                        let patched = patched.map_err(|error| error.to_string())?;
                        if patched.data[part][field] == value { Ok(()) } else { Err(format!("{name} has no {field}")) }
                    };
                    self.stage.look(is_kept).await?;
                }
                self.newer.objects += 1;
            }
        }
        self.stage.quiet(&marks).await
    }

    /// Finds the objects that have lost such a field.
    async fn check_newer(&mut self) -> anyhow::Result<()> {
        let kcp = self.stage.clusters[0].client()?;
        let (field, value) = FIELD;
        for (_, version, kind) in NEWER {
            let sample = json!({
                "apiVersion": version, "kind": kind,
                "metadata": {"name": "any", "namespace": names::KCP_NAMESPACE},
            });
            for object in testbed::api_of(&kcp, &sample).await?.list(&ListParams::default()).await? {
                let lost = PARTS.into_iter().filter(|part| object.data[*part][field] != value);
                let name = object.metadata.name.as_deref().unwrap_or_default();
                self.newer.lost.extend(lost.map(|part| format!("{kind} {name}: {part}.{field}")));
            }
        }
        Ok(())
    }

    /// Asks the daemon to fetch now.
    async fn ask(&self) -> anyhow::Result<()> {
        let kcp = self.stage.clusters[0].client()?;
        let source = fleet::source(&self.stage.repository.url());
        let sources = testbed::api_of(&kcp, &source).await?;
        let name = source["metadata"]["name"].as_str().unwrap_or_default();
        let now = jiff::Timestamp::now().to_string();
        let request = json!({"metadata": {"annotations": {annotation::RECONCILE_REQUESTED_AT: now}}});
        sources.patch(name, &PatchParams::default(), &Patch::Merge(request)).await?;
        Ok(())
    }

    /// The Kymas that are Ready, and since when.
    async fn ready_since(&self) -> anyhow::Result<BTreeMap<String, String>> {
        let kcp = self.stage.clusters[0].client()?;
        let kymas = testbed::api_of(&kcp, &fleet::kyma_sample()).await?;
        let mut found = BTreeMap::new();
        for kyma in kymas.list(&ListParams::default()).await?.items {
            let conditions = kyma.data["status"]["conditions"].as_array().into_iter().flatten();
            let since: Vec<String> = conditions
                .filter(|condition| condition["status"] == "True")
                .map(|condition| format!("{} {}", condition["type"], condition["lastTransitionTime"]))
                .collect();
            if kyma.data["status"]["state"] == "Ready" {
                found.insert(kyma.metadata.name.unwrap_or_default(), since.join(", "));
            }
        }
        Ok(found)
    }
}

// === impl Row ===

impl Row {
    /// Whether a newer version took the place of an older one.
    fn is_upgrade(&self) -> bool {
        self.step.starts_with("upgrade")
    }

    fn wrote_nothing(&self) -> bool {
        self.kcp.is_empty() && self.runtimes.is_empty()
    }

    fn json(&self) -> Value {
        let Row { step, seconds, kcp, runtimes, disturbed } = self;
        json!({"step": step, "seconds": seconds, "kcp": kcp, "runtimes": runtimes, "disturbed": disturbed})
    }
}

/// The writes, by verb and resource.
fn writes(tally: &Tally) -> BTreeMap<String, usize> {
    let mut found = BTreeMap::new();
    for ((_, verb, resource, _), count) in tally.0.iter().filter(|((_, verb, resource, _), _)| is_write(verb, resource))
    {
        *found.entry(format!("{verb} {resource}")).or_default() += count;
    }
    found
}

fn print(servers: &str, versions: [&Version; 2], run: &Run) {
    let Run { size: Size { runtimes, modules, objects }, rows, newer, .. } = run;
    say!("{runtimes} runtimes with {modules} modules of {objects} objects; {servers}");
    say!("old: {} ({})", versions[0].text, versions[0].program.display());
    say!("new: {} ({})\n", versions[1].text, versions[1].program.display());
    let width = rows.iter().map(|row| row.step.chars().count()).max().unwrap_or_default();
    say!("{:<width$}  {:>7}  {:>10}  {:>15}  disturbed Kymas", "step", "time", "KCP writes", "runtime writes");
    for row in rows {
        let time = format!("{:.1} s", Duration::from_secs_f64(row.seconds).as_secs_f64());
        let (kcp, runtimes): (usize, usize) = (row.kcp.values().sum(), row.runtimes.values().sum());
        say!("{:<width$}  {time:>7}  {kcp:>10}  {runtimes:>15}  {}", row.step, row.disturbed.len());
    }
    say!("\n{} objects had fields of a newer version; the older one lost {}", newer.objects, newer.lost.len());
    newer.lost.iter().for_each(|lost| say!("  {lost}"));
    // The first rollout and the bumps have to write.
    for row in rows.iter().filter(|row| row.step.contains("upgrade") || row.step.contains("again")) {
        for (place, writes) in [("the control plane", &row.kcp), ("runtimes", &row.runtimes)] {
            for (what, count) in writes {
                say!("\n{}: {count} x {what} in {place}", row.step);
            }
        }
    }
}
