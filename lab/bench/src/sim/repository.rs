//! `tidegate sim repository`: what large and hostile repositories cost `validate` and the daemon.
//!
//! Each repository is new, with a daemon and a control plane of its own, so that no memory is that of another one.
//! After its revision is active, the GitSource is deleted, and the memory of the daemon is read again.

use std::{
    fs::File,
    path::Path,
    process::{Command, Stdio},
    time::Duration,
};

use anyhow::Context as _;
use kube::api::DeleteParams;
use serde_json::{Value, json};

use super::{
    fleet,
    offline::{self, Usage},
    report::Output,
    stage::{Servers, Size, Stage},
};
use crate::servers::Make;
use tidegate_core::api::names;
use tidegate_process::{Exit, say, tell};
use tidegate_testbed::{self as testbed, Repository};

/// Measures the time and the memory that large and hostile repositories cost `validate` and the daemon.
#[derive(clap::Args)]
pub(super) struct Arguments {
    /// Generate this much YAML of modules, in MiB
    #[arg(long, value_name = "MIB", default_value_t = 39)]
    modules: usize,
    /// Print the numbers in this format
    #[arg(short, long, value_enum, default_value_t = Output::Text)]
    output: Output,
}

/// The files of a repository, by path.
type Files = Vec<(String, String)>;

/// What one repository costs.
struct Row {
    name: &'static str,
    /// Size of its files, in bytes.
    text: usize,
    validate: Usage,
    /// Resident memory of the daemon, in bytes: before, at most, with the revision, and after the source is gone.
    idle: u64,
    peak: u64,
    active: u64,
    after: u64,
}

/// How long the daemon has to give memory back before it is read.
const SETTLE: Duration = Duration::from_secs(5);

/// Runs the command.
pub(super) async fn measure(arguments: &Arguments) -> anyhow::Result<Exit> {
    let repositories: [(&'static str, Files); 3] = [
        ("YAML of modules", modules(arguments.modules)),
        ("60,000 unknown keys", unknown_keys()),
        ("100 files of 9,999 documents", tiny_documents()),
    ];
    let mut rows = Vec::new();
    for (name, files) in repositories {
        tell!("{name}");
        rows.push(run(name, &files).await?);
    }
    match arguments.output {
        Output::Text => table(&rows),
        Output::Json => say!("{:#}", Value::Array(rows.iter().map(Row::json).collect())),
    }
    Ok(Exit::Ok)
}

async fn run(name: &'static str, files: &Files) -> anyhow::Result<Row> {
    let servers = Servers::prepare(Make::Simulated, Make::Simulated).await?;
    let stage = Stage::start(Size { runtimes: 0, modules: 0, objects: 0 }, &servers, "repository").await?;
    let mut daemon = stage.daemon(&["--resync=6h".to_owned()])?;
    stage.look(async || daemon.says(&["a revision is active"])).await?;
    tokio::time::sleep(SETTLE).await;
    let idle = daemon.usage()?.resident;
    daemon.forget_peak();
    let commit = commit(&stage.repository, files)?;
    stage.look(async || daemon.says(&["a revision is active", &commit])).await?;
    tokio::time::sleep(SETTLE).await;
    let with = daemon.usage()?;
    let source = fleet::source(&stage.repository.url());
    let sources = testbed::api_of(&stage.clusters[0].client()?, &source).await?;
    let source = source["metadata"]["name"].as_str().context("the GitSource has a name")?;
    sources.delete(source, &DeleteParams::default()).await.context("cannot delete the GitSource")?;
    stage.look(async || daemon.says(&["removed the mirrors of a deleted source"])).await?;
    tokio::time::sleep(SETTLE).await;
    let after = daemon.usage()?.resident;
    daemon.end();
    let text = files.iter().map(|(_, text)| text.len()).sum();
    let validate = validate(stage.repository.path(), stage.folder.path())?;
    Ok(Row { name, text, validate, idle, peak: with.peak, active: with.resident, after })
}

fn commit(repository: &Repository, files: &Files) -> anyhow::Result<String> {
    for (path, text) in files {
        repository.write(path, text)?;
    }
    Ok(repository.commit("what is measured")?)
}

fn validate(repository: &Path, folder: &Path) -> anyhow::Result<Usage> {
    let out = File::create(folder.join("validate.txt")).context("cannot write to the temporary folder")?;
    let mut command = Command::new(std::env::current_exe().context("cannot tell which program this is")?);
    command.arg("validate").arg(repository).stdout(out).stderr(Stdio::null());
    offline::measure(command.spawn().context("cannot start `validate`")?)
}

/// A module whose objects have so many MiB, in files of 1 MiB.
fn modules(mib: usize) -> Files {
    let template = format!(
        "apiVersion: operator.kyma-project.io/v1beta2\nkind: ModuleTemplate\nmetadata:\n  name: large-1.0.0\n  \
         namespace: {}\n  annotations: {{tidegate.dev/module-path: objects}}\n\
         spec: {{moduleName: large, version: 1.0.0}}\n",
        names::KCP_NAMESPACE
    );
    let object = |file: usize, number: usize| {
        let lines: String = (0..24).map(|line| format!("  setting-{line}: value {line} of {number}\n")).collect();
        format!(
            "---\napiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: large-{file}-{number}\n  \
             namespace: kyma-system\n  labels:\n    app: large\n    part: \"{number}\"\ndata:\n{lines}"
        )
    };
    let objects = (0..mib).map(|file| {
        let (mut text, mut number) = (String::new(), 0);
        while text.len() + 1024 < 1 << 20 {
            text.push_str(&object(file, number));
            number += 1;
        }
        (format!("objects/{file:02}.yaml"), text)
    });
    objects.chain([("template.yaml".to_owned(), template)]).collect()
}

fn unknown_keys() -> Files {
    let keys: String = (0..60_000).map(|number| format!("  f{number}: 1\n")).collect();
    let release = format!(
        "apiVersion: operator.kyma-project.io/v1beta2\nkind: ModuleReleaseMeta\n\
         metadata: {{name: cache, namespace: {}}}\nspec:\n  moduleName: cache\n  \
         ocmComponentName: example.com/module/cache\n{keys}",
        names::KCP_NAMESPACE
    );
    vec![("release.yaml".to_owned(), release)]
}

fn tiny_documents() -> Files {
    let text = "kind: Kyma\n---\n".repeat(9_999);
    (0..100).map(|file| (format!("{file:02}.yaml"), text.clone())).collect()
}

fn table(rows: &[Row]) {
    let mib = |bytes: u64| format!("{:.0}", bytes as f64 / f64::from(1 << 20));
    say!("{:<30} {:>9} {:>21} {:>35}", "", "", "validate", "daemon, resident MiB");
    say!(
        "{:<30} {:>9} {:>12} {:>8} {:>8} {:>8} {:>8} {:>8}",
        "",
        "text MiB",
        "processor",
        "MiB",
        "idle",
        "peak",
        "active",
        "after"
    );
    for row in rows {
        let text = row.text as f64 / f64::from(1 << 20);
        say!(
            "{:<30} {text:>9.1} {:>9} ms {:>8} {:>8} {:>8} {:>8} {:>8}",
            row.name,
            row.validate.cpu.as_millis(),
            mib(row.validate.peak),
            mib(row.idle),
            mib(row.peak),
            mib(row.active),
            mib(row.after)
        );
    }
}

// === impl Row ===

impl Row {
    fn json(&self) -> Value {
        json!({
            "name": self.name,
            "textBytes": self.text,
            "validate": {"cpuSeconds": self.validate.cpu.as_secs_f64(), "peakBytes": self.validate.peak},
            "daemon": {
                "idleBytes": self.idle, "peakBytes": self.peak, "activeBytes": self.active, "afterBytes": self.after,
            },
        })
    }
}
