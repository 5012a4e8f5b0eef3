//! What users see: `/observed` as a table, `/observed.json` as JSON, and the counts of the metrics. Pure.

use std::{collections::BTreeMap, fmt::Write as _};

use serde::Serialize;
use tidegate_core::name::Key;
use tokio::time::Instant;

use super::{
    difference::Difference,
    state::{Seen, SeenRuntime, Standing},
};

/// Everything that is known now.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Report {
    pub(crate) summary: Summary,
    /// What this process lacks of the control plane: it does not answer, or a part of it was not read yet.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) missing: Vec<String>,
    /// The sources, and why nothing would be written for one.
    pub(crate) sources: Vec<SourceLine>,
    /// What differs in the control plane, without Manifests.
    pub(crate) control_plane: Vec<Difference>,
    pub(crate) runtimes: Vec<RuntimeLine>,
}

/// The numbers of everything.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Summary {
    /// Runtimes by standing.
    pub(crate) runtimes: BTreeMap<&'static str, usize>,
    /// Differences that no decision explains.
    pub(crate) differences: usize,
    /// Differences that are decided improvements.
    pub(crate) improvements: usize,
    /// The improvements by row of the documentation.
    pub(crate) decided: BTreeMap<&'static str, Decided>,
    /// What could not be compared, or not completely: one for each line below `Not compared`.
    pub(crate) incomplete: usize,
}

/// One decision.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Decided {
    pub(crate) what: &'static str,
    pub(crate) differences: usize,
}

/// One source.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct SourceLine {
    pub(crate) name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) revision: Option<String>,
    /// Why nothing would be written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) idle: Option<String>,
    /// Why the revision that was fetched last is not the one that was compared.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) unused: Option<String>,
}

/// One runtime.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RuntimeLine {
    pub(crate) name: String,
    pub(crate) standing: &'static str,
    /// Why it is not compared.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) why: Option<String>,
    /// How long ago it was compared.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) seconds_ago: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) objects: Option<usize>,
    /// The differences by module. What every runtime has is under `-`.
    pub(crate) modules: BTreeMap<String, ModuleLine>,
    /// What could not be compared.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) unknown: Vec<String>,
}

/// One module of a runtime.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct ModuleLine {
    pub(crate) differences: usize,
    pub(crate) improvements: usize,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) objects: Vec<Difference>,
}

/// Objects that the table names. The JSON has all of them.
const LISTED_MAX: usize = 200;
/// Runtimes that the table has a line of. The JSON has all of them.
const RUNTIMES_MAX: usize = 500;
/// What belongs to no module.
const NO_MODULE: &str = "-";

// === impl Report ===

impl Report {
    /// Everything that is known at `now`. `missing` is what this process lacks of the control plane, one line each.
    pub(crate) fn of(seen: &Seen, missing: Vec<String>, now: Instant) -> Report {
        let of_sources = seen.sources.values().flat_map(|source| &source.differences);
        let mut report = Report {
            summary: Summary::of(seen, missing.len()),
            missing: missing.into_iter().chain(seen.gateway.unknown.clone()).collect(),
            sources: seen
                .sources
                .iter()
                .map(|(key, source)| SourceLine {
                    name: key.to_string(),
                    revision: source.revision.clone(),
                    idle: source.idle.clone(),
                    unused: source.unused.clone(),
                })
                .collect(),
            control_plane: of_sources
                .chain(seen.routes.values().flatten())
                .chain(&seen.gateway.differences)
                .cloned()
                .collect(),
            runtimes: seen.runtimes.iter().map(|(key, runtime)| RuntimeLine::of(key, runtime, now)).collect(),
        };
        report.control_plane.sort();
        report
    }

    /// What was not compared, or not completely, one line each.
    pub(crate) fn not_compared(&self) -> Vec<String> {
        let sources = self.sources.iter().filter_map(|source| {
            let why = source.idle.as_ref().or(source.unused.as_ref())?;
            Some(format!("source {}: {why}", source.name))
        });
        let runtimes = self.runtimes.iter().flat_map(|runtime| {
            let unreachable = (runtime.standing == Standing::UNREACHABLE).then(|| runtime.why.clone()).flatten();
            let pending = (runtime.standing == Standing::PENDING).then(|| "not compared yet".to_owned());
            let whats = unreachable.into_iter().chain(pending).chain(runtime.unknown.iter().cloned());
            whats.map(|what| format!("runtime {}: {what}", runtime.name)).collect::<Vec<_>>()
        });
        self.missing.iter().cloned().chain(sources).chain(runtimes).collect()
    }

    /// The table.
    pub(crate) fn to_text(&self) -> String {
        let mut text = self.summary.to_text();
        for source in &self.sources {
            let revision = source.revision.as_deref().unwrap_or("-");
            let idle = source.idle.as_ref().map(|why| format!(": {why}")).unwrap_or_default();
            line(&mut text, &format!("source {}  {revision}{idle}", source.name));
        }
        text.push('\n');
        let mut rows = vec![["TARGET", "MODULE", "DIFFERENCES", "IMPROVEMENTS", "COMPARED"].map(str::to_owned)];
        let improved = self.control_plane.iter().filter(|one| one.improvement.is_some()).count();
        let differing = self.control_plane.len() - improved;
        rows.push(["control plane".into(), NO_MODULE.into(), differing.to_string(), improved.to_string(), "-".into()]);
        rows.extend(self.runtimes.iter().take(RUNTIMES_MAX).flat_map(RuntimeLine::rows));
        table(&mut text, &rows);
        if RUNTIMES_MAX < self.runtimes.len() {
            let more = self.runtimes.len() - RUNTIMES_MAX;
            line(&mut text, &format!("and {more} more runtimes: /observed.json has all"));
        }
        self.write_objects(&mut text);
        text
    }

    /// The differences that no decision explains, one line each, and what could not be compared.
    fn write_objects(&self, text: &mut String) {
        let of_runtimes = self.runtimes.iter().flat_map(|runtime| {
            let modules = runtime.modules.values().flat_map(|module| &module.objects);
            modules.map(|one| (runtime.name.as_str(), one))
        });
        let all = self.control_plane.iter().map(|one| ("control plane", one)).chain(of_runtimes);
        let all: Vec<_> = all.filter(|(_, one)| one.improvement.is_none()).collect();
        let mut rows = vec![["TARGET", "MODULE", "REASON", "OBJECT", "FIELDS"].map(str::to_owned)];
        rows.extend(all.iter().take(LISTED_MAX).map(|(target, one)| {
            let module = one.module.as_deref().unwrap_or(NO_MODULE);
            let (reason, object) = (one.reason.to_string(), one.object.to_string());
            [(*target).to_owned(), module.to_owned(), reason, object, one.said()]
        }));
        if 1 < rows.len() {
            text.push('\n');
            table(text, &rows);
        }
        if LISTED_MAX < all.len() {
            let more = all.len() - LISTED_MAX;
            line(text, &format!("and {more} more: /observed.json has all"));
        }
        let unknown = self.not_compared();
        if !unknown.is_empty() {
            text.push_str("\nNot compared:\n");
            unknown.iter().take(LISTED_MAX).for_each(|what| line(text, what));
        }
    }
}

// === impl Summary ===

impl Summary {
    fn of(seen: &Seen, missing: usize) -> Summary {
        let mut summary = Summary::default();
        for one in seen.differences() {
            match one.improvement {
                Some(improvement) => {
                    summary.improvements += 1;
                    let decided = Decided { what: improvement.what, differences: 0 };
                    summary.decided.entry(improvement.row).or_insert(decided).differences += 1;
                }
                None => summary.differences += 1,
            }
        }
        for runtime in seen.runtimes.values() {
            *summary.runtimes.entry(runtime.standing.as_str()).or_default() += 1;
        }
        summary.incomplete = seen.not_compared(missing).iter().map(|(_, number)| number).sum();
        summary
    }

    fn to_text(&self) -> String {
        let runtimes: Vec<String> =
            self.runtimes.iter().map(|(standing, number)| format!("{number} {}", standing.to_lowercase())).collect();
        let runtimes = if runtimes.is_empty() { "none".to_owned() } else { runtimes.join(", ") };
        let mut text = String::new();
        line(&mut text, &format!("runtimes: {runtimes}"));
        line(&mut text, &format!("differences: {}", self.differences));
        line(&mut text, &format!("not compared: {}", self.incomplete));
        line(&mut text, &format!("decided improvements: {}", self.improvements));
        for (row, decided) in &self.decided {
            line(&mut text, &format!("  {row}  {}  {}", decided.differences, decided.what));
        }
        text
    }
}

// === impl RuntimeLine ===

impl RuntimeLine {
    fn of(key: &Key, runtime: &SeenRuntime, now: Instant) -> RuntimeLine {
        let mut modules: BTreeMap<String, ModuleLine> =
            runtime.modules.iter().map(|module| (module.clone(), ModuleLine::default())).collect();
        for one in &runtime.differences {
            let module = one.module.as_deref().unwrap_or(NO_MODULE);
            let line = modules.entry(module.to_owned()).or_default();
            match one.improvement {
                Some(_) => line.improvements += 1,
                None => line.differences += 1,
            }
            line.objects.push(one.clone());
        }
        if let Standing::Compared(_) = runtime.standing {
            modules.entry(NO_MODULE.to_owned()).or_default();
        }
        RuntimeLine {
            name: key.to_string(),
            standing: runtime.standing.as_str(),
            why: match &runtime.standing {
                Standing::Unreachable(why) => Some(why.clone()),
                Standing::Skipped(why) => Some((*why).to_owned()),
                Standing::Pending | Standing::Compared(_) => None,
            },
            seconds_ago: runtime.last.map(|last| now.saturating_duration_since(last.at).as_secs()),
            objects: runtime.last.map(|last| last.objects),
            modules,
            unknown: runtime.unknown.clone(),
        }
    }

    /// A row for each module.
    fn rows(&self) -> Vec<[String; 5]> {
        let compared = match (&self.why, self.seconds_ago) {
            (Some(why), _) => why.clone(),
            (None, Some(seconds)) => format!("{} ago", age(seconds)),
            (None, None) => "not yet".to_owned(),
        };
        if self.modules.is_empty() {
            let dash = || NO_MODULE.to_owned();
            return vec![[self.name.clone(), dash(), dash(), dash(), compared]];
        }
        let row = |(name, module): (&String, &ModuleLine)| {
            let numbers = (module.differences.to_string(), module.improvements.to_string());
            [self.name.clone(), name.clone(), numbers.0, numbers.1, compared.clone()]
        };
        self.modules.iter().map(row).collect()
    }
}

// === impl Difference ===

impl Difference {
    /// The fields and the detail in one text.
    fn said(&self) -> String {
        let mut said = self.fields.join(", ");
        if 0 < self.more_fields {
            let _ = write!(said, " and {} more", self.more_fields);
        }
        match &self.detail {
            Some(detail) if said.is_empty() => detail.clone(),
            Some(detail) => format!("{said} ({detail})"),
            None => said,
        }
    }
}

fn age(seconds: u64) -> String {
    match seconds {
        0..120 => format!("{seconds}s"),
        120..7200 => format!("{}m", seconds / 60),
        _ => format!("{}h", seconds / 3600),
    }
}

fn line(text: &mut String, line: &str) {
    text.push_str(line);
    text.push('\n');
}

/// Writes rows in columns. The last one is as long as it is.
fn table(text: &mut String, rows: &[[String; 5]]) {
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or_default();
    let widths: [usize; 4] = [width(0), width(1), width(2), width(3)];
    for row in rows {
        let mut columns = String::new();
        for (cell, width) in row.iter().zip(widths) {
            let _ = write!(columns, "{cell:width$}  ");
        }
        columns.push_str(&row[4]);
        line(text, columns.trim_end());
    }
}

#[cfg(test)]
mod tests;
