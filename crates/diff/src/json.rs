//! A report for programs: everything that is in it, in a form with a version and a published schema.
//!
//! `docs/diff.schema.json` is what [`schema`] says; a test holds the two together. Within a version, fields may be added;
//! none is removed or given another meaning.

mod validation;

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

pub use self::validation::{validation, validation_schema};
use super::{
    escape, model,
    model::{Report, Side},
};
use tidegate_core::diagnostic;

/// Version of the schema.
const VERSION: u32 = 1;

/// What a revision changes.
#[derive(JsonSchema, Serialize)]
#[schemars(title = "tidegate diff")]
#[serde(rename_all = "camelCase")]
struct Root<'a> {
    /// Version of this schema: 1.
    #[schemars(range(min = 1, max = 1))]
    version: u32,
    /// How it ends; the exit code follows from it.
    verdict: Verdict,
    /// What was compared.
    subject: Subject<'a>,
    /// What a reader must know before any detail.
    summary: Summary,
    /// Each distinct difference once: the control plane first, then by severity of the action.
    differences: Vec<Difference<'a>>,
    /// Module versions that move.
    moves: Vec<Move<'a>>,
    /// Wishes that do not come about, or not by this change alone.
    held: Vec<Held<'a>>,
    /// Values that only a live cluster knows.
    unknown: Vec<Unknown<'a>>,
    /// What is wrong with definitions and templates of the new side.
    diagnostics: Vec<Diagnostic<'a>>,
    /// Clusters and objects that could not be looked at.
    unreached: Vec<Unreached<'a>>,
    /// Names of the rules that the differences were held against.
    checked: &'a [String],
    /// Rules that are violated.
    findings: Vec<Finding<'a>>,
}

/// How a comparison ends.
#[derive(JsonSchema, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Verdict {
    /// Nothing changes: exit code 0.
    Same,
    /// Something changes, or a value that is not known may: exit code 1.
    Changes,
    /// Definitions or templates of the new side are invalid: exit code 3.
    Invalid,
    /// A rule of severity error is violated: exit code 4.
    Violated,
    /// Something could not be looked at: exit code 5.
    Incomplete,
}

/// What was compared.
#[derive(JsonSchema, Serialize)]
#[serde(rename_all = "camelCase")]
struct Subject<'a> {
    /// The old side: a revision, or `live`.
    from: &'a str,
    /// The new side.
    to: &'a str,
    /// The source that the definitions stand for, as `namespace/name`.
    source: &'a str,
    /// When the landscape file was written (RFC 3339), if one was given.
    landscape_written: Option<&'a str>,
    /// How many files of definitions the new side has.
    files: usize,
}

/// What a reader must know before any detail.
#[derive(JsonSchema, Serialize)]
#[serde(rename_all = "camelCase")]
struct Summary {
    /// Objects in the control plane.
    control_plane: Count,
    /// Objects in runtimes.
    runtimes: Count,
    /// Runtimes that are known on either side.
    runtimes_total: usize,
    /// Runtimes in which something differs.
    runtimes_touched: usize,
    /// Runtimes that were looked at.
    runtimes_compared: usize,
    /// Distinct sets of differences among the runtimes that are touched.
    variants: usize,
}

/// How many objects have what happen to them.
#[derive(JsonSchema, Serialize)]
#[serde(rename_all = "camelCase")]
struct Count {
    /// Objects that are created.
    create: usize,
    /// Objects that change.
    change: usize,
    /// Objects that are deleted.
    delete: usize,
    /// Objects that are deleted and created again.
    recreate: usize,
    /// Objects that are in conflict.
    conflict: usize,
}

/// One distinct difference, and everything that it hits.
#[derive(JsonSchema, Serialize)]
#[serde(rename_all = "camelCase")]
struct Difference<'a> {
    /// Which cluster, or kind of cluster.
    target: Target,
    /// The object; the first one where several differ alike.
    object: Object<'a>,
    /// What happens to it.
    action: Action,
    /// Whether that happens when the change is merged.
    effect: Effect,
    /// How many objects differ in this very way.
    objects: usize,
    /// All runtimes that it concerns, as `namespace/name`; none for what concerns the control plane alone.
    runtimes: Vec<String>,
    /// The object before; null if it is created. Values of Secrets are digests.
    old: Option<&'a Value>,
    /// The object after; null if it is deleted. Values of Secrets are digests.
    new: Option<&'a Value>,
    /// The lines that differ.
    hunks: Vec<Hunk<'a>>,
    /// The lines of definitions or templates that cause it.
    places: Vec<Place<'a>>,
    /// What made the object: a template's name, `built in`, or null for what stands in git as it is.
    maker: Option<&'a str>,
    /// Fields that other managers own.
    conflicts: Vec<Conflict<'a>>,
}

/// Where an object is.
#[derive(JsonSchema, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Target {
    /// In the control plane.
    Kcp,
    /// In runtimes.
    Runtime,
}

/// An object's identity.
#[derive(JsonSchema, Serialize)]
#[serde(rename_all = "camelCase")]
struct Object<'a> {
    /// `group/version`.
    api_version: String,
    /// Kind.
    kind: &'a str,
    /// Namespace; empty for what is cluster-scoped.
    namespace: &'a str,
    /// Name.
    name: &'a str,
}

/// What happens to an object.
#[derive(JsonSchema, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Action {
    /// It exists and is not ours, or others own fields that would be written.
    Conflict,
    /// It goes.
    Delete,
    /// It goes and comes again.
    Recreate,
    /// It differs.
    Change,
    /// It comes.
    Create,
}

/// Whether a difference comes about when the change is merged.
#[derive(JsonSchema, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Effect {
    /// At once.
    Applies,
    /// Only after somebody confirms it.
    NeedsConfirmation,
    /// Not while something else is in the way, which `held` names.
    Held,
}

/// A run of lines that differ, with lines around them.
#[derive(JsonSchema, Serialize)]
#[serde(rename_all = "camelCase")]
struct Hunk<'a> {
    /// The field around the first line that differs; empty at the root.
    path: &'a str,
    /// First line of the old text, from 1; 0 where there is none.
    old_start: usize,
    /// First line of the new text, from 1; 0 where there is none.
    new_start: usize,
    /// The lines, each begun by a blank, `-` or `+`.
    lines: Vec<String>,
}

/// A position in a file.
#[derive(JsonSchema, Serialize)]
#[serde(rename_all = "camelCase")]
struct Place<'a> {
    /// Path relative to the root of the definitions.
    path: &'a str,
    /// Line, from 1; 0 for the file as a whole.
    line: u32,
    /// Column in characters, from 1; 0 where only the line is known.
    column: u32,
}

/// A field that another manager owns.
#[derive(JsonSchema, Serialize)]
#[serde(rename_all = "camelCase")]
struct Conflict<'a> {
    /// The field; empty for the object as a whole.
    field: &'a str,
    /// Its manager.
    manager: &'a str,
}

/// A module whose version on a channel is another one.
#[derive(JsonSchema, Serialize)]
#[serde(rename_all = "camelCase")]
struct Move<'a> {
    /// Module, as `namespace/module`.
    module: String,
    /// Channel.
    channel: &'a str,
    /// The version before; null for a channel that is new.
    from: Option<&'a str>,
    /// The version after; null for a channel that goes.
    to: Option<&'a str>,
    /// In how many runtimes the module is installed from this channel afterwards; for a channel that goes, before.
    runtimes: usize,
    /// Where the version is named.
    place: Option<Place<'a>>,
}

/// A wish that does not come about, or not by this change alone.
#[derive(JsonSchema, Serialize)]
#[serde(rename_all = "camelCase")]
struct Held<'a> {
    /// Why.
    why: Why,
    /// The module; empty where the whole module list is meant.
    module: &'a str,
    /// All runtimes, as `namespace/name`.
    runtimes: Vec<String>,
    /// One sentence.
    message: &'a str,
    /// What to do next.
    hint: Option<&'a str>,
    /// The line that asks for it.
    place: Option<Place<'a>>,
}

/// Why a wish does not come about.
#[derive(JsonSchema, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Why {
    /// A higher version is installed and nothing allows to go back.
    Downgrade,
    /// The Kyma in the runtime decides.
    DecidedByRuntime,
    /// The plan refuses the module for another reason.
    Refused,
    /// The definition is broken, or refers to one that is.
    Withheld,
    /// It is declared no more and stays all the same.
    Kept,
    /// An object of the module is somebody else's.
    Conflict,
    /// Somebody stopped the runtime or the GitSource.
    Suspended,
}

/// A value that only a live cluster knows.
#[derive(JsonSchema, Serialize)]
#[serde(rename_all = "camelCase")]
struct Unknown<'a> {
    /// What it is.
    value: &'a str,
    /// The target of the first object that holds it.
    target: &'a str,
    /// The first object that holds it.
    object: &'a str,
    /// Where in that object.
    path: &'a str,
    /// In how many places it stands.
    occurrences: usize,
    /// Whether it may hide a change.
    may_hide: bool,
}

/// What is wrong with a definition or template.
#[derive(JsonSchema, Serialize)]
#[serde(rename_all = "camelCase")]
struct Diagnostic<'a> {
    /// How bad.
    severity: Severity,
    /// Stable; see `docs/diagnostics.md`.
    code: &'a str,
    /// One sentence.
    message: &'a str,
    /// What to do next.
    hint: Option<&'a str>,
    /// Where.
    place: Option<Place<'a>>,
}

/// How bad it is.
#[derive(JsonSchema, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Severity {
    /// It must be mended.
    Error,
    /// Worth knowing.
    Warning,
}

/// Something that could not be looked at.
#[derive(JsonSchema, Serialize)]
#[serde(rename_all = "camelCase")]
struct Unreached<'a> {
    /// `kcp` or `skr/<namespace>/<kyma>`.
    target: &'a str,
    /// One sentence.
    message: &'a str,
}

/// A rule that is violated.
#[derive(JsonSchema, Serialize)]
#[serde(rename_all = "camelCase")]
struct Finding<'a> {
    /// How bad.
    severity: Severity,
    /// Name of the rule.
    rule: &'a str,
    /// One sentence.
    message: &'a str,
    /// Which difference, as an index into `differences`; null for the whole.
    difference: Option<usize>,
    /// The line that causes it.
    place: Option<Place<'a>>,
}

/// The report as text.
pub fn json(report: &Report) -> String {
    let root = serde_json::to_value(Root::of(report)).expect("texts, numbers and JSON values are JSON");
    escape::json(&root)
}

/// The schema of what [`json`] gives, as it is published.
pub fn schema() -> Value {
    schema_of::<Root<'_>>()
}

fn schema_of<T: JsonSchema>() -> Value {
    let schema = schemars::generate::SchemaSettings::draft2020_12().for_serialize().into_generator();
    schema.into_root_schema_for::<T>().to_value()
}

// === from the model ===

impl<'a> Root<'a> {
    fn of(report: &'a Report) -> Root<'a> {
        Root {
            version: VERSION,
            verdict: Verdict::of(report.verdict()),
            subject: Subject {
                from: &report.subject.from,
                to: &report.subject.to,
                source: &report.subject.source,
                landscape_written: report.subject.landscape_written.as_deref(),
                files: report.subject.files,
            },
            summary: Summary {
                control_plane: Count::of(report.count(Side::ControlPlane)),
                runtimes: Count::of(report.count(Side::Runtime)),
                runtimes_total: report.runtimes.total,
                runtimes_touched: report.runtimes.touched,
                runtimes_compared: report.runtimes.compared,
                variants: report.runtimes.variants,
            },
            differences: report.differences.iter().map(Difference::of).collect(),
            moves: report.moves.iter().map(Move::of).collect(),
            held: report.held.iter().map(Held::of).collect(),
            unknown: report.unknown.iter().map(Unknown::of).collect(),
            diagnostics: report.diagnostics.iter().map(Diagnostic::of).collect(),
            unreached: report
                .unreached
                .iter()
                .map(|one| Unreached { target: &one.target, message: &one.message })
                .collect(),
            checked: &report.checked,
            findings: report.findings.iter().map(Finding::of).collect(),
        }
    }
}

impl Verdict {
    fn of(verdict: model::Verdict) -> Verdict {
        match verdict {
            model::Verdict::Same => Verdict::Same,
            model::Verdict::Changes => Verdict::Changes,
            model::Verdict::Invalid => Verdict::Invalid,
            model::Verdict::Violated => Verdict::Violated,
            model::Verdict::Incomplete => Verdict::Incomplete,
        }
    }
}

impl Count {
    fn of(count: model::Count) -> Count {
        let model::Count { create, change, delete, recreate, conflict } = count;
        Count { create, change, delete, recreate, conflict }
    }
}

impl<'a> Difference<'a> {
    fn of(one: &'a model::Difference) -> Difference<'a> {
        Difference {
            target: match one.target {
                Side::ControlPlane => Target::Kcp,
                Side::Runtime => Target::Runtime,
            },
            object: Object {
                api_version: one.gvk.api_version(),
                kind: &one.id.kind,
                namespace: &one.id.namespace,
                name: &one.id.name,
            },
            action: match one.action {
                model::Action::Conflict => Action::Conflict,
                model::Action::Delete => Action::Delete,
                model::Action::Recreate => Action::Recreate,
                model::Action::Change => Action::Change,
                model::Action::Create => Action::Create,
            },
            effect: match one.effect {
                model::Effect::Applies => Effect::Applies,
                model::Effect::NeedsConfirmation => Effect::NeedsConfirmation,
                model::Effect::Held => Effect::Held,
            },
            objects: one.objects,
            runtimes: one.runtimes.iter().map(ToString::to_string).collect(),
            old: one.old.as_deref(),
            new: one.new.as_deref(),
            hunks: one.hunks.iter().map(Hunk::of).collect(),
            places: one.places.iter().map(Place::of).collect(),
            maker: one.maker,
            conflicts: one
                .conflicts
                .iter()
                .map(|conflict| Conflict { field: &conflict.field, manager: &conflict.manager })
                .collect(),
        }
    }
}

impl<'a> Hunk<'a> {
    fn of(hunk: &'a model::Hunk) -> Hunk<'a> {
        let line = |line: &model::Line| match line {
            model::Line::Same(text) => format!(" {text}"),
            model::Line::Old(text) => format!("-{text}"),
            model::Line::New(text) => format!("+{text}"),
        };
        Hunk {
            path: &hunk.path,
            old_start: hunk.old_start,
            new_start: hunk.new_start,
            lines: hunk.lines.iter().map(line).collect(),
        }
    }
}

impl<'a> Place<'a> {
    fn of(place: &'a diagnostic::Place) -> Place<'a> {
        Place { path: &place.path, line: place.line, column: place.column }
    }
}

impl<'a> Move<'a> {
    fn of(one: &'a model::Move) -> Move<'a> {
        Move {
            module: one.module.to_string(),
            channel: &one.channel,
            from: one.from.as_deref(),
            to: one.to.as_deref(),
            runtimes: one.runtimes,
            place: one.place.as_ref().map(Place::of),
        }
    }
}

impl<'a> Held<'a> {
    fn of(one: &'a model::Held) -> Held<'a> {
        Held {
            why: match one.why {
                model::Why::Downgrade => Why::Downgrade,
                model::Why::DecidedByRuntime => Why::DecidedByRuntime,
                model::Why::Refused => Why::Refused,
                model::Why::Withheld => Why::Withheld,
                model::Why::Kept => Why::Kept,
                model::Why::Conflict => Why::Conflict,
                model::Why::Suspended => Why::Suspended,
            },
            module: &one.module,
            runtimes: one.runtimes.iter().map(ToString::to_string).collect(),
            message: &one.message,
            hint: one.hint.as_deref(),
            place: one.place.as_ref().map(Place::of),
        }
    }
}

impl<'a> Unknown<'a> {
    fn of(one: &'a model::NotKnown) -> Unknown<'a> {
        Unknown {
            value: &one.value,
            target: &one.first.target,
            object: &one.first.object,
            path: &one.first.path,
            occurrences: one.occurrences,
            may_hide: one.may_hide,
        }
    }
}

impl<'a> Diagnostic<'a> {
    fn of(one: &'a diagnostic::Diagnostic) -> Diagnostic<'a> {
        Diagnostic {
            severity: Severity::of(one.severity),
            code: one.code,
            message: &one.message,
            hint: one.hint.as_deref(),
            place: one.place.as_ref().map(Place::of),
        }
    }
}

impl Severity {
    fn of(severity: diagnostic::Severity) -> Severity {
        match severity {
            diagnostic::Severity::Error => Severity::Error,
            diagnostic::Severity::Warning => Severity::Warning,
        }
    }
}

impl<'a> Finding<'a> {
    fn of(one: &'a model::Finding) -> Finding<'a> {
        Finding {
            severity: Severity::of(one.severity),
            rule: &one.rule,
            message: &one.message,
            difference: one.difference,
            place: one.place.as_ref().map(Place::of),
        }
    }
}

#[cfg(test)]
mod tests;
