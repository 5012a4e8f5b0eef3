//! `tidegate status`: shows all problems and their causes on one screen.
//!
//! Problems come first, each with its cause; then what is in progress or suspended. Healthy objects are counted. The
//! command reads custom resources only.

use std::{
    collections::BTreeSet,
    io::{self, Write},
};

use anyhow::Context as _;
use owo_colors::OwoColorize as _;

use super::{
    Exit,
    control_plane::{self, Access, Lacks},
};
use crate::stores::{self, definitions};
use tidegate_core::{
    api::{GitSource, Kyma, Manifest, ModuleReleaseMeta, ModuleTemplate, Watcher},
    intake,
    overview::{ModuleLine, Overview, RuntimeLine, SourceLine, SubjectState, UnreadableLine},
    plan,
};

/// Shows the problems of sources, runtimes, modules and Watchers, with their causes.
///
/// Exit code 0: shown; 2: the command cannot run; 5: the control plane does not serve a kind of Tidegate's.
#[derive(clap::Args)]
pub(super) struct Arguments {
    /// Show the objects in this namespace; repeat the option for more [default: kcp-system]
    #[arg(short, long = "namespace", value_name = "NAME")]
    namespaces: Vec<String>,
    /// Print in this format
    #[arg(short, long, value_enum, default_value_t = Output::Text)]
    output: Output,
    #[command(flatten)]
    access: Access,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum Output {
    /// Text for people
    Text,
    /// JSON with all objects, for programs
    Json,
}

/// Most diagnostics shown per source, so that the output fits on a screen.
const DIAGNOSTICS_MAX: usize = 5;
/// Most lines shown per section.
const LINES_MAX: usize = 20;

/// Runs the command. Fails if the kubeconfig cannot be used, or if the output cannot be written.
pub(super) async fn run(arguments: Arguments) -> anyhow::Result<Exit> {
    let client = arguments.access.client().await?;
    let (mut sources, mut kymas, mut watchers, mut manifests) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let mut lacks = Lacks::default();
    for namespace in control_plane::namespaces(&arguments.namespaces) {
        sources.extend(control_plane::list::<GitSource>(&client, &namespace, &mut lacks).await?);
        kymas.extend(control_plane::list::<Kyma>(&client, &namespace, &mut lacks).await?);
        watchers.extend(control_plane::list::<Watcher>(&client, &namespace, &mut lacks).await?);
        // Others are read only to find those that cannot be, and kinds that are not served.
        control_plane::each::<ModuleTemplate>(&client, &namespace, &mut lacks, drop).await?;
        control_plane::each::<ModuleReleaseMeta>(&client, &namespace, &mut lacks, drop).await?;
        let take = |manifest: Manifest| manifests.extend(plan::is_mandatory(&manifest.metadata).then_some(manifest));
        control_plane::each(&client, &namespace, &mut lacks, take).await?;
    }
    let Lacks { unreadable, not_served } = lacks;
    let exit = exit(&not_served);
    let overview = Overview::from_objects(&sources, &kymas, &watchers).with_mandatory(&manifests);
    let overview = overview.with_unreadable(unreadable).with_not_served(not_served);
    let mut out = anstream::stdout().lock();
    let written = match arguments.output {
        Output::Text => write_text(&mut out, &overview),
        Output::Json => {
            let text = serde_json::to_string_pretty(&overview).context("cannot write JSON")?;
            writeln!(out, "{text}")
        }
    };
    match written {
        // The reader closed the pipe.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(exit),
        result => result.map(|()| exit).context("cannot write to standard output"),
    }
}

/// The exit code: what a kind that is not served holds back is left to be done.
fn exit(not_served: &BTreeSet<String>) -> Exit {
    if not_served.is_empty() { Exit::Ok } else { Exit::Incomplete }
}

/// One entry of a section: a line, and the lines below it.
struct Entry {
    standing: SubjectState,
    line: String,
    below: Vec<String>,
}

fn write_text(out: &mut dyn Write, overview: &Overview) -> io::Result<()> {
    let not_served = overview.not_served.iter().map(|kind| Entry {
        standing: SubjectState::Wrong,
        line: definitions::not_served(kind),
        below: Vec::new(),
    });
    let entries: Vec<Entry> = not_served
        .chain(overview.sources.iter().map(source))
        .chain(overview.runtimes.iter().map(runtime))
        .chain(overview.watchers.iter().map(|watcher| Entry {
            standing: watcher.standing,
            line: format!("watcher {}  {}", watcher.name, watcher.message),
            below: Vec::new(),
        }))
        .chain(overview.unreadable.iter().map(unreadable))
        .collect();
    let sections = [
        (SubjectState::Wrong, "Problems"),
        (SubjectState::Waiting, "In progress"),
        (SubjectState::Stopped, "Suspended"),
    ];
    for (standing, title) in sections {
        let members: Vec<&Entry> = entries.iter().filter(|entry| entry.standing == standing).collect();
        if members.is_empty() {
            continue;
        }
        let heading = format!("{title} ({})", members.len());
        match standing {
            SubjectState::Wrong => writeln!(out, "{}", heading.red().bold())?,
            SubjectState::Waiting => writeln!(out, "{}", heading.yellow().bold())?,
            SubjectState::Stopped | SubjectState::Well => writeln!(out, "{}", heading.bold())?,
        }
        for entry in members.iter().take(LINES_MAX) {
            writeln!(out, "  {}", entry.line)?;
            for line in &entry.below {
                writeln!(out, "      {line}")?;
            }
        }
        if LINES_MAX < members.len() {
            writeln!(out, "  and {} more: `tidegate status -o json` lists all", members.len() - LINES_MAX)?;
        }
        writeln!(out)?;
    }
    write_waiting(out, overview, "Waiting for a maintenance window", |runtime| runtime.maintenance.as_deref())?;
    write_waiting(out, overview, "Waiting for their turn in a rollout", |runtime| runtime.rollout.as_deref())?;
    writeln!(out, "{}", well(overview))
}

/// The runtimes with upgrades that wait. They may be healthy otherwise.
fn write_waiting(
    out: &mut dyn Write,
    overview: &Overview,
    title: &str,
    message: impl Fn(&RuntimeLine) -> Option<&str>,
) -> io::Result<()> {
    let waiting = |runtime: &RuntimeLine| {
        let message = message(runtime).filter(|_| runtime.standing != SubjectState::Stopped)?;
        Some(format!("runtime {}  {message}", runtime.name))
    };
    let lines: Vec<String> = overview.runtimes.iter().filter_map(waiting).collect();
    if lines.is_empty() {
        return Ok(());
    }
    writeln!(out, "{}", format!("{title} ({})", lines.len()).bold())?;
    for line in lines.iter().take(LINES_MAX) {
        writeln!(out, "  {line}")?;
    }
    if LINES_MAX < lines.len() {
        writeln!(out, "  and {} more: `tidegate status -o json` lists all", lines.len() - LINES_MAX)?;
    }
    writeln!(out)
}

fn unreadable(found: &UnreadableLine) -> Entry {
    let mut below = vec![format!("{}; upgrade Tidegate, or correct the field", stores::unreadable::MAY_STAY)];
    if found.has_templates {
        below.push(format!(
            "if Tidegate has read nothing of it since its start, {}",
            intake::status::WAIT_FOR_TEMPLATES
        ));
    }
    Entry { standing: SubjectState::Wrong, line: found.sentence(), below }
}

fn source(source: &SourceLine) -> Entry {
    let mut below: Vec<String> = source
        .diagnostics
        .iter()
        .take(DIAGNOSTICS_MAX)
        .map(|diagnostic| {
            let place = match (&diagnostic.path, diagnostic.line) {
                (Some(path), Some(line)) => format!("{path}:{line}: "),
                (Some(path), None) => format!("{path}: "),
                (None, _) => String::new(),
            };
            format!("{place}{}: {}", diagnostic.severity, diagnostic.message)
        })
        .collect();
    if DIAGNOSTICS_MAX < source.diagnostics.len() {
        below.push(format!("and {} more", source.diagnostics.len() - DIAGNOSTICS_MAX));
    }
    if source.standing != SubjectState::Well {
        let counts = &source.counts;
        below.push(format!(
            "active revision: {}; {} applied, {} skipped, {} to prune",
            source.applied_revision.as_deref().unwrap_or("none completely"),
            counts.applied,
            counts.withheld,
            counts.to_prune
        ));
    }
    Entry { standing: source.standing, line: format!("source {}  {}", source.name, source.message), below }
}

fn runtime(runtime: &RuntimeLine) -> Entry {
    let below: Vec<String> = runtime
        .modules
        .iter()
        .map(|module| (module, "module"))
        .chain(runtime.mandatory.iter().map(|module| (module, "mandatory module")))
        .filter(|(module, _)| matches!(module.standing, SubjectState::Wrong | SubjectState::Waiting))
        .map(|(line, what)| module(line, what))
        .chain(runtime.hint.iter().map(|hint| format!("next: {hint}")))
        .collect();
    let state = if runtime.state.to_string().is_empty() { String::new() } else { format!("{}: ", runtime.state) };
    Entry { standing: runtime.standing, line: format!("runtime {}  {state}{}", runtime.name, runtime.message), below }
}

fn module(module: &ModuleLine, what: &str) -> String {
    let version = module.version.as_deref().unwrap_or("no version");
    let channel = module.channel.as_deref().map(|channel| format!(" ({channel})")).unwrap_or_default();
    let message = module.message.as_deref().map(|message| format!(": {message}")).unwrap_or_default();
    format!("{what} {} {version}{channel}  {}{message}", module.name, module.state)
}

/// The healthy objects, counted.
fn well(overview: &Overview) -> String {
    let is_well = |standing: SubjectState| standing == SubjectState::Well;
    let sources: Vec<&SourceLine> = overview.sources.iter().filter(|source| is_well(source.standing)).collect();
    let runtimes = overview.runtimes.iter().filter(|runtime| is_well(runtime.standing)).count();
    let modules = overview.runtimes.iter().flat_map(|runtime| runtime.modules.iter().chain(&runtime.mandatory));
    let modules = modules.filter(|module| is_well(module.standing)).count();
    let watchers = overview.watchers.iter().filter(|watcher| is_well(watcher.standing)).count();
    let mut text = format!(
        "Healthy: {}, {}, {}, {}",
        counted(sources.len(), "source"),
        counted(runtimes, "runtime"),
        counted(modules, "module"),
        counted(watchers, "watcher")
    );
    for source in sources {
        let revision = source.applied_revision.as_deref().unwrap_or("no revision");
        text.push_str(&format!("\n  source {} at {revision}, {} applied", source.name, source.counts.applied));
    }
    text
}

fn counted(count: usize, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests;
