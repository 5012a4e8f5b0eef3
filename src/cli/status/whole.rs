//! One source, runtime, module or Watcher with everything that its status says; and the table of all runtimes.

use std::{
    collections::BTreeMap,
    io::{self, Write},
};

use owo_colors::OwoColorize as _;
use tidegate_core::overview::{ModuleLine, Overview, RuntimeLine, SourceLine, SubjectState, WatcherLine};

use super::{Subject, SubjectKind, counted, resumable, unreadable};

/// Writes everything about one subject. `overview` has only what is about it.
pub(super) fn write(out: &mut dyn Write, subject: &Subject, overview: &Overview) -> io::Result<()> {
    if let Some(why) = &overview.no_leader {
        writeln!(out, "no daemon reconciles this landscape: {why}")?;
    }
    for found in &overview.unreadable {
        let entry = unreadable(found);
        writeln!(out, "{}", entry.text)?;
        entry.below.iter().try_for_each(|line| writeln!(out, "  {line}"))?;
    }
    match subject.kind {
        SubjectKind::Source => overview.sources.iter().try_for_each(|source| write_source(out, source)),
        SubjectKind::Kyma => overview.runtimes.iter().try_for_each(|runtime| write_runtime(out, runtime)),
        SubjectKind::Module => write_module(out, subject, overview),
        SubjectKind::Watcher => overview.watchers.iter().try_for_each(|watcher| write_watcher(out, watcher)),
    }
}

fn title(out: &mut dyn Write, what: &str, standing: SubjectState, message: &str) -> io::Result<()> {
    writeln!(out, "{}  {}", what.bold(), word(standing))?;
    if !message.is_empty() {
        writeln!(out, "  {message}")?;
    }
    Ok(())
}

fn word(standing: SubjectState) -> &'static str {
    match standing {
        SubjectState::Wrong => "wrong",
        SubjectState::Waiting => "in progress",
        SubjectState::Stopped => "suspended",
        SubjectState::Well => "healthy",
    }
}

fn write_source(out: &mut dyn Write, source: &SourceLine) -> io::Result<()> {
    title(out, &format!("source {}", source.name), source.standing, &source.message)?;
    let revision = |revision: &Option<String>| revision.clone().unwrap_or_else(|| "none".to_owned());
    writeln!(out, "  active revision: {}", revision(&source.applied_revision))?;
    writeln!(out, "  read revision:   {}", revision(&source.attempted_revision))?;
    let counts = &source.counts;
    writeln!(out, "  {} applied, {} skipped, {} to prune", counts.applied, counts.withheld, counts.to_prune)?;
    source.diagnostics.iter().try_for_each(|one| writeln!(out, "  {}", super::diagnostic(one)))?;
    super::not_all(source).iter().try_for_each(|line| writeln!(out, "  {line}"))
}

fn write_runtime(out: &mut dyn Write, runtime: &RuntimeLine) -> io::Result<()> {
    title(out, &format!("runtime {}", runtime.name), runtime.standing, &runtime.message)?;
    let more = [
        ("window", &runtime.maintenance),
        ("rollout", &runtime.rollout),
        ("removal", &runtime.removal),
        ("next", &runtime.hint),
    ];
    for (what, text) in more {
        // The message already has a removal that is a problem.
        if let Some(text) = text.as_ref().filter(|text| !runtime.message.contains(text.as_str())) {
            writeln!(out, "  {what}: {text}")?;
        }
    }
    let modules = runtime.modules.iter().map(|module| (module, ""));
    let modules: Vec<(&ModuleLine, &str)> =
        modules.chain(runtime.mandatory.iter().map(|module| (module, "mandatory"))).collect();
    if modules.is_empty() {
        return writeln!(out, "  no modules");
    }
    let rows = modules.iter().map(|(module, kind)| {
        let channel = module.channel.as_deref().unwrap_or(kind);
        let message = module.message.as_deref().unwrap_or_default();
        [&*module.name, module.version.as_deref().unwrap_or("-"), channel, &module.state.to_string(), message]
            .map(str::to_owned)
    });
    write_rows(out, ["MODULE", "VERSION", "CHANNEL", "STATE", "MESSAGE"], &rows.collect::<Vec<_>>())
}

fn write_watcher(out: &mut dyn Write, watcher: &WatcherLine) -> io::Result<()> {
    title(out, &format!("watcher {}", watcher.name), watcher.standing, &watcher.message)
}

/// Which versions of a module how many runtimes have, and the runtimes in which it is not ready.
fn write_module(out: &mut dyn Write, subject: &Subject, overview: &Overview) -> io::Result<()> {
    let runtimes = &overview.runtimes;
    let mut waits: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for runtime in runtimes {
        let all = runtime.rollout.iter().chain(&runtime.maintenance);
        all.for_each(|message| waits.entry(message).or_default().push(&runtime.name));
    }
    let worst = runtimes.iter().map(|runtime| runtime.standing).min().unwrap_or(SubjectState::Well);
    let standing = match worst {
        SubjectState::Well if !overview.rollouts.is_empty() => SubjectState::Stopped,
        SubjectState::Well if !waits.is_empty() => SubjectState::Waiting,
        standing => standing,
    };
    let said = format!("in {}", counted(runtimes.len(), "runtime"));
    title(out, &format!("module {}", subject.name), standing, &said)?;
    let modules = || {
        runtimes.iter().flat_map(|runtime| {
            runtime.modules.iter().chain(&runtime.mandatory).map(move |module| (&*runtime.name, module))
        })
    };
    let mut counts: BTreeMap<[String; 3], usize> = BTreeMap::new();
    for (_, module) in modules() {
        let text = |text: &Option<String>| text.clone().unwrap_or_else(|| "-".to_owned());
        let row = [text(&module.version), text(&module.channel), module.state.to_string()];
        *counts.entry(row).or_default() += 1;
    }
    let rows =
        counts.into_iter().map(|([version, channel, state], count)| [version, channel, state, count.to_string()]);
    write_rows(out, ["VERSION", "CHANNEL", "STATE", "RUNTIMES"], &rows.collect::<Vec<_>>())?;
    let is_told = |module: &ModuleLine| module.standing != SubjectState::Well || module.is_paused();
    for (runtime, module) in modules().filter(|(_, module)| is_told(module)) {
        let message = module.message.as_deref().unwrap_or("not ready yet");
        writeln!(out, "  runtime {runtime}  {}: {message}", module.state)?;
    }
    for rollout in &overview.rollouts {
        writeln!(out, "  rollout: {}", resumable(rollout))?;
    }
    for (message, names) in waits {
        let (count, first) = (counted(names.len(), "runtime"), names.first().copied().unwrap_or_default());
        let wait = if names.len() == 1 { "waits" } else { "wait" };
        writeln!(out, "  {count} {wait}: {message}; first {first}")?;
    }
    Ok(())
}

/// The runtimes with their state and how many of their modules are ready.
pub(super) fn write_table(out: &mut dyn Write, runtimes: &[RuntimeLine], lines_max: usize) -> io::Result<()> {
    if runtimes.is_empty() {
        return Ok(());
    }
    let row = |runtime: &RuntimeLine| {
        let (selected, mandatory) = (&runtime.modules, &runtime.mandatory);
        let ready = |modules: &[ModuleLine]| {
            let ready = modules.iter().filter(|module| module.standing == SubjectState::Well).count();
            format!("{ready}/{}", modules.len())
        };
        // As the Kyma counts: its own modules, and apart from them those that every runtime has.
        let of_mandatory = if mandatory.is_empty() { String::new() } else { format!(" + {}", ready(mandatory)) };
        let counts = format!("{}{of_mandatory}", ready(selected));
        let state = match runtime.standing {
            SubjectState::Stopped => "suspended".to_owned(),
            _ => runtime.state.to_string(),
        };
        let version = |module: &ModuleLine| format!("{} {}", module.name, module.version.as_deref().unwrap_or("-"));
        let of_mandatory = mandatory.iter().map(|module| format!("{} (mandatory)", version(module)));
        let versions: Vec<String> = selected.iter().map(version).chain(of_mandatory).collect();
        [runtime.name.clone(), state, counts, versions.join(", ")]
    };
    let rows: Vec<[String; 4]> = runtimes.iter().take(lines_max).map(row).collect();
    write_rows(out, ["RUNTIME", "STATE", "READY", "MODULES"], &rows)?;
    if lines_max < runtimes.len() {
        writeln!(out, "  and {} more: `tidegate status -o wide` lists all", runtimes.len() - lines_max)?;
    }
    writeln!(out)
}

/// Rows in columns of the same width; the last one is as wide as it is.
fn write_rows<const N: usize>(out: &mut dyn Write, titles: [&str; N], rows: &[[String; N]]) -> io::Result<()> {
    let width = |column: usize| {
        let cells = rows.iter().map(|row| row[column].chars().count());
        cells.max().unwrap_or_default().max(titles[column].len())
    };
    let widths: Vec<usize> = (0..N).map(width).collect();
    let line = |cells: [&str; N]| {
        let padded = cells.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
        format!("  {}", padded.collect::<Vec<_>>().join("  ")).trim_end().to_owned()
    };
    writeln!(out, "{}", line(titles))?;
    rows.iter().try_for_each(|row| writeln!(out, "{}", line(row.each_ref().map(String::as_str))))
}
