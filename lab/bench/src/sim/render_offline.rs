//! `tidegate sim render-offline`: what it costs to render all objects of a fleet, and above all how much memory.
//!
//! Each run is a process of its own. Nothing is stored: the output is counted and dropped, as a pipe to another program
//! takes it.

use std::{
    io,
    process::{ChildStdout, Command, Stdio},
    thread,
};

use anyhow::{Context as _, bail, ensure};
use serde_json::json;

use super::{
    offline::{self, Usage},
    report::Output,
};
use tidegate_process::{Exit, say, tell};
use tidegate_testbed::{Folder, Repository, landscape::Size};

/// Measures `render` of all objects of a fleet.
#[derive(clap::Args)]
pub(super) struct Arguments {
    /// Generate this many runtimes
    #[arg(long, default_value_t = 5000)]
    runtimes: usize,
    /// Install this many modules in each runtime
    #[arg(long, default_value_t = 5)]
    modules: usize,
    /// Generate this many ModuleTemplates in total
    #[arg(long, default_value_t = 125)]
    templates: usize,
    /// Give each ModuleTemplate this many objects
    #[arg(long, default_value_t = 5)]
    objects: usize,
    /// Print the numbers in this format
    #[arg(short, long, value_enum, default_value_t = Output::Text)]
    output: Output,
}

/// What one run printed and used.
struct Run {
    format: &'static str,
    bytes: u64,
    usage: Usage,
}

/// The budget of a fleet of 5,000 runtimes with 5 modules each: the peak of resident memory, in bytes.
const PEAK_BYTES_MAX: u64 = 128 << 20;

/// The size of that fleet. A smaller one may be rendered by a program that is not optimised.
const BUDGET_RUNTIMES: usize = 5_000;

/// Runs the command.
pub(super) fn run(arguments: &Arguments) -> anyhow::Result<Exit> {
    let Arguments { runtimes, modules, templates, objects, output } = *arguments;
    ensure!(modules > 0, "a runtime needs a module");
    let folder = Folder::temporary("tidegate-render-offline")?;
    let repository = Repository::init(&folder.path().join("repo"))?;
    let files = Size { runtimes, modules, templates, objects }.files();
    tell!("writing {} files", files.len());
    for (path, text) in files {
        repository.write(&path, &text)?;
    }
    let path = repository.path().to_str().context("the path of the temporary folder is not UTF-8")?;
    let runs = ["yaml", "json"].map(|format| render(path, format));
    let runs = runs.into_iter().collect::<anyhow::Result<Vec<Run>>>()?;
    print(arguments, output, &runs);
    let is_below = runs.iter().all(|run| run.usage.peak < PEAK_BYTES_MAX);
    ensure!(is_below || runtimes < BUDGET_RUNTIMES, "the peak is not below the budget");
    Ok(Exit::Ok)
}

fn render(path: &str, format: &'static str) -> anyhow::Result<Run> {
    let mut command = Command::new(std::env::current_exe().context("cannot tell which program this is")?);
    command.args(["render", path, "--output", format]).stdout(Stdio::piped());
    let mut child = command.spawn().context("cannot start the rendering")?;
    let out = child.stdout.take().context("the rendering has no output")?;
    thread::scope(|scope| {
        let counter = scope.spawn(|| count(out));
        let usage = offline::measure(child)?;
        match counter.join() {
            Ok(bytes) => Ok(Run { format, bytes: bytes?, usage }),
            Err(_) => bail!("the output was not read"),
        }
    })
}

fn count(mut out: ChildStdout) -> anyhow::Result<u64> {
    io::copy(&mut out, &mut io::sink()).context("cannot read the rendering")
}

fn print(arguments: &Arguments, output: Output, runs: &[Run]) {
    let Arguments { runtimes, modules, objects, .. } = arguments;
    match output {
        Output::Text => {
            say!("{runtimes} runtimes × {modules} modules × {objects} objects, all objects rendered\n");
            say!("{:<8} {:>12} {:>10} {:>10} {:>10}", "", "output", "wall", "processor", "peak");
            for Run { format, bytes, usage } in runs {
                let (bytes, peak) = (format!("{} MiB", bytes >> 20), format!("{} MiB", usage.peak >> 20));
                let seconds = |duration: std::time::Duration| format!("{:.2} s", duration.as_secs_f64());
                say!("{format:<8} {bytes:>12} {:>10} {:>10} {peak:>10}", seconds(usage.wall), seconds(usage.cpu));
            }
            say!("\nbudget for 5,000 runtimes with 5 modules: peak below {} MiB", PEAK_BYTES_MAX >> 20);
        }
        Output::Json => {
            let row = |Run { format, bytes, usage }: &Run| {
                json!({
                    "format": format,
                    "outputBytes": bytes,
                    "wallSeconds": usage.wall.as_secs_f64(),
                    "processorSeconds": usage.cpu.as_secs_f64(),
                    "peakBytes": usage.peak,
                })
            };
            let rows: Vec<_> = runs.iter().map(row).collect();
            say!("{:#}", json!({ "runtimes": runtimes, "peakBytesMax": PEAK_BYTES_MAX, "rows": rows }));
        }
    }
}
