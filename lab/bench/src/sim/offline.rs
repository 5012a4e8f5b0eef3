//! `tidegate sim diff-offline`: the cost of comparing two revisions, and of rendering both and comparing the files.
//!
//! In a generated repository, one commit bumps one channel of the module that every runtime has. Each run is a process
//! of its own, so that memory is that of one run. The yardstick, in the same run and on the same machine, is what a
//! user would do without the command: render all objects of both revisions to files, and run `diff -r`. For thousands
//! of runtimes that takes many minutes and gigabytes. So it is measured for fewer runtimes, together with a comparison
//! of the same size.

use std::{
    fs::{self, File},
    io::{BufReader, BufWriter, Write as _},
    path::Path,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail};
use serde_json::json;

use super::report::Output;
use tidegate_process::Exit;
use tidegate_process::{say, tell};
use tidegate_testbed::{
    Folder, Repository,
    landscape::{self, Size},
};

/// Measures `diff` on a generated repository, compared with `diff -r` of all rendered objects.
#[derive(clap::Args)]
pub(super) struct Arguments {
    /// Generate this many runtimes
    #[arg(long, default_value_t = 5000)]
    runtimes: usize,
    /// Install this many modules in each runtime
    #[arg(long, default_value_t = 5)]
    modules: usize,
    /// Generate this many ModuleTemplates in total
    #[arg(long, default_value_t = 1000)]
    templates: usize,
    /// Give each ModuleTemplate this many objects
    #[arg(long, default_value_t = 25)]
    objects: usize,
    /// Run each comparison this many times and print the median
    #[arg(long, default_value_t = 3)]
    runs: usize,
    /// Render this many runtimes to files for `diff -r`
    #[arg(long, value_name = "N", default_value_t = 100)]
    yardstick_runtimes: usize,
    /// Skip `diff -r` of rendered objects [default: off]
    #[arg(long)]
    no_yardstick: bool,
    /// Print the numbers in this format
    #[arg(short, long, value_enum, default_value_t = Output::Text)]
    output: Output,
}

/// The resources that a process used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Usage {
    pub(super) wall: Duration,
    pub(super) cpu: Duration,
    /// Peak of resident memory, in bytes.
    pub(super) peak: u64,
}

/// Pause between two reads of the usage of a process. The peak of memory is known up to the last read.
const LOOK: Duration = Duration::from_millis(2);
/// Ticks of processor time per second, which Linux fixes for /proc.
const TICKS_PER_SECOND: u64 = 100;

/// Runs the command.
pub(super) fn run(arguments: &Arguments) -> anyhow::Result<Exit> {
    let size = Size {
        runtimes: arguments.runtimes,
        modules: arguments.modules,
        templates: arguments.templates,
        objects: arguments.objects,
    };
    let folder = Folder::temporary("tidegate-diff-offline")?;
    let repository = generate(&size, &folder.path().join("repo"))?;
    let path = repository.path().to_str().context("the path of the temporary folder is not UTF-8")?;
    let cache = folder.path().join("cache");
    let cached = cache.to_str().context("the path of the temporary folder is not UTF-8")?;
    let plain = ["diff", path, "--from", "HEAD~1", "--to", "HEAD", "--exit-zero"];
    let with_cache: Vec<&str> = plain.iter().copied().chain(["--cache-dir", cached]).collect();
    let mut rows = vec![
        ("diff, cold", middle(arguments.runs, || diff(&plain, &folder))?),
        ("diff, cold, filling a cache", {
            middle(arguments.runs, || {
                remove(&cache)?;
                diff(&with_cache, &folder)
            })?
        }),
        ("diff, warm", middle(arguments.runs, || diff(&with_cache, &folder))?),
    ];
    if !arguments.no_yardstick {
        let size = Size { runtimes: arguments.yardstick_runtimes.min(size.runtimes), ..size };
        let repository = generate(&size, &folder.path().join("part"))?;
        let path = repository.path().to_str().context("the path of the temporary folder is not UTF-8")?;
        let plain = ["diff", path, "--from", "HEAD~1", "--to", "HEAD", "--exit-zero"];
        rows.push(("a part: diff, cold", middle(arguments.runs, || diff(&plain, &folder))?));
        rows.extend(yardstick(path, &folder)?);
    }
    print(arguments, &rows);
    Ok(Exit::Ok)
}

/// Creates the repository: everything, then one bump.
fn generate(size: &Size, path: &Path) -> anyhow::Result<Repository> {
    anyhow::ensure!(size.modules > 0, "a runtime needs a module");
    let repository = Repository::init(path)?;
    let files = size.files();
    tell!("writing {} files", files.len());
    for (path, text) in files {
        repository.write(&path, &text)?;
    }
    repository.commit("a landscape")?;
    repository.write(&landscape::release_path(0), &landscape::release(0, landscape::REGULAR + 1))?;
    repository.commit("one channel bumped")?;
    Ok(repository)
}

/// The median run, by time.
fn middle(runs: usize, mut run: impl FnMut() -> anyhow::Result<Usage>) -> anyhow::Result<Usage> {
    let mut all = (0..runs.max(1)).map(|_| run()).collect::<anyhow::Result<Vec<Usage>>>()?;
    all.sort();
    Ok(all[all.len() / 2])
}

fn diff(arguments: &[&str], folder: &Folder) -> anyhow::Result<Usage> {
    let out = folder.path().join("diff.txt");
    let mut command = Command::new(std::env::current_exe().context("cannot tell which program this is")?);
    command.args(arguments).stdout(File::create(&out).context("cannot write to the temporary folder")?);
    let usage = measure(command.spawn().context("cannot start the comparison")?)?;
    let text = fs::read_to_string(&out).context("cannot read the comparison")?;
    anyhow::ensure!(text.contains("Module versions (1)"), "the comparison did not find the bump:\n{text}");
    Ok(usage)
}

/// Renders both revisions to files and compares these.
fn yardstick(path: &str, folder: &Folder) -> anyhow::Result<Vec<(&'static str, Usage)>> {
    let mut rendering = Usage::default();
    let mut trees = Vec::new();
    for revision in ["HEAD~1", "HEAD"] {
        tell!("rendering {revision} to files");
        let tree = folder.path().join(format!("rendered-{}", trees.len()));
        let mut command = Command::new(std::env::current_exe().context("cannot tell which program this is")?);
        command.args(["render", path, "--rev", revision]).stdout(Stdio::piped());
        let mut child = command.spawn().context("cannot start the rendering")?;
        let out = child.stdout.take().context("the rendering has no output")?;
        let usage = thread::scope(|scope| {
            let writer = scope.spawn(|| split(BufReader::new(out), &tree));
            let usage = measure(child);
            match writer.join() {
                Ok(written) => written.and(usage),
                Err(_) => bail!("the files were not written"),
            }
        })?;
        rendering.wall += usage.wall;
        rendering.cpu += usage.cpu;
        rendering.peak = rendering.peak.max(usage.peak);
        trees.push(tree);
    }
    tell!("comparing files");
    let mut command = Command::new("diff");
    command.arg("-r").args(&trees).stdout(Stdio::null());
    let comparing = measure(command.spawn().context("cannot start `diff`")?)?;
    let all = Usage {
        wall: rendering.wall + comparing.wall,
        cpu: rendering.cpu + comparing.cpu,
        peak: rendering.peak.max(comparing.peak),
    };
    Ok(vec![("a part: rendering, and diff -r", all), ("a part: diff -r alone", comparing)])
}

/// Writes rendered objects to one file for each target.
fn split(rendered: impl std::io::BufRead, tree: &Path) -> anyhow::Result<()> {
    const TARGET: &str = "# target: ";
    let failed = || format!("cannot write to {}", tree.display());
    let mut file: Option<(String, BufWriter<File>)> = None;
    for line in rendered.lines() {
        let line = line.context("cannot read the rendering")?;
        if let Some(target) = line.strip_prefix(TARGET)
            && file.as_ref().is_none_or(|(of, _)| of != target)
        {
            let path = tree.join(target);
            fs::create_dir_all(path.parent().unwrap_or(tree)).with_context(failed)?;
            file = Some((target.to_owned(), BufWriter::new(File::create(path).with_context(failed)?)));
        }
        if let Some((_, file)) = &mut file {
            writeln!(file, "{line}").with_context(failed)?;
        }
    }
    Ok(())
}

fn remove(path: &Path) -> anyhow::Result<()> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error).context("cannot empty the cache"),
        _ => Ok(()),
    }
}

/// Waits for the end of a process, and returns what it has used. The system keeps its usage until `wait` is called.
pub(super) fn measure(mut child: Child) -> anyhow::Result<Usage> {
    let begun = Instant::now();
    let (mut usage, pid) = (Usage::default(), child.id());
    loop {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).context("cannot read what the process uses")?;
        // The second field is the name in parentheses, which may contain spaces; the 14th and 15th are ticks.
        let fields: Vec<&str> = stat.rsplit_once(')').map_or("", |(_, rest)| rest).split_whitespace().collect();
        let ticks = |index: usize| fields.get(index).and_then(|field| field.parse::<u64>().ok()).unwrap_or_default();
        usage.cpu = Duration::from_millis((ticks(11) + ticks(12)) * 1000 / TICKS_PER_SECOND);
        if fields.first() == Some(&"Z") {
            break;
        }
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let peak = peak.and_then(|peak| peak.trim().trim_end_matches(" kB").parse::<u64>().ok());
        usage.peak = usage.peak.max(peak.unwrap_or_default() * 1024);
        #[expect(clippy::disallowed_methods, reason = "no asynchronous worker runs here: it is a command of its own")]
        thread::sleep(LOOK);
    }
    usage.wall = begun.elapsed();
    child.wait().context("cannot wait for the process")?;
    Ok(usage)
}

fn print(arguments: &Arguments, rows: &[(&str, Usage)]) {
    let seconds = |duration: Duration| format!("{:.2} s", duration.as_secs_f64());
    match arguments.output {
        Output::Text => {
            let Arguments { runtimes, modules, objects, templates, .. } = arguments;
            say!(
                "{runtimes} runtimes × {modules} modules × {objects} objects, {templates} ModuleTemplates, one channel \
                 bumped\n"
            );
            say!("{:<30} {:>10} {:>10} {:>10}", "", "wall", "processor", "peak");
            for (name, usage) in rows {
                let peak = format!("{} MiB", usage.peak >> 20);
                say!("{name:<30} {:>10} {:>10} {peak:>10}", seconds(usage.wall), seconds(usage.cpu));
            }
            if !arguments.no_yardstick {
                say!("\na part: {} of the runtimes", arguments.yardstick_runtimes.min(*runtimes));
            }
        }
        Output::Json => {
            let row = |(name, usage): &(&str, Usage)| {
                json!({
                    "name": name,
                    "wallSeconds": usage.wall.as_secs_f64(),
                    "processorSeconds": usage.cpu.as_secs_f64(),
                    "peakBytes": usage.peak,
                })
            };
            let part = arguments.yardstick_runtimes.min(arguments.runtimes);
            let part = (!arguments.no_yardstick).then_some(part);
            let rows = rows.iter().map(row).collect::<Vec<_>>();
            say!("{:#}", json!({ "runtimes": arguments.runtimes, "partRuntimes": part, "rows": rows }));
        }
    }
}
