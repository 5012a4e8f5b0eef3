//! A report for programs: its whole content as versioned JSON with a published schema.
//!
//! `docs/diff.schema.json` is the output of [`schema`]; a test compares them. Within a version,
//! fields may be added. No field is removed or changes its meaning.

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

/// The changes by a revision.
#[derive(JsonSchema, Serialize)]
#[schemars(title = "tidegate diff")]
#[serde(rename_all = "camelCase")]
struct Root<'a> {
    /// Version of this schema: 1.
    #[schemars(range(min = 1, max = 1))]
    version: u32,
    /// The result, which determines the exit code.
    verdict: Verdict,
    /// What was compared.
    subject: Subject<'a>,
    /// The summary.
    summary: Summary,
    /// Each distinct difference once: the control plane first, then by severity of the action.
    differences: Vec<Difference<'a>>,
    /// Version changes of modules.
    moves: Vec<Move<'a>>,
    /// Changes that do not take effect, or not by this revision alone.
    held: Vec<Held<'a>>,
    /// Values that only a live cluster knows.
    unknown: Vec<Unknown<'a>>,
    /// Problems of the definitions and templates of the new side.
    diagnostics: Vec<Diagnostic<'a>>,
    /// Clusters and objects that could not be read.
    unreached: Vec<Unreached<'a>>,
    /// Names of the checked rules.
    checked: &'a [String],
    /// Violated rules.
    findings: Vec<Finding<'a>>,
}

/// The result of a comparison.
#[derive(JsonSchema, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Verdict {
    /// No change: exit code 0.
    Same,
    /// A change, or an unknown value that may hide one: exit code 1.
    Changes,
    /// Definitions or templates of the new side are invalid: exit code 3.
    Invalid,
    /// A rule of severity error is violated: exit code 4.
    Violated,
    /// A cluster or an object could not be read: exit code 5.
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
    /// The source of the definitions, as `namespace/name`.
    source: &'a str,
    /// When the landscape file was written (RFC 3339), if one was given.
    landscape_written: Option<&'a str>,
    /// The number of definition files of the new side.
    files: usize,
}

/// The summary.
#[derive(JsonSchema, Serialize)]
#[serde(rename_all = "camelCase")]
struct Summary {
    /// Objects in the control plane.
    control_plane: Count,
    /// Objects in runtimes.
    runtimes: Count,
    /// Runtimes on either side.
    runtimes_total: usize,
    /// Runtimes with a difference.
    runtimes_touched: usize,
    /// Compared runtimes.
    runtimes_compared: usize,
    /// Distinct sets of differences among the affected runtimes.
    variants: usize,
}

/// The number of objects by action.
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
    /// Objects whose change the API server refuses.
    refuse: usize,
    /// Objects in conflict.
    conflict: usize,
}

/// One distinct difference, and everything that it affects.
#[derive(JsonSchema, Serialize)]
#[serde(rename_all = "camelCase")]
struct Difference<'a> {
    /// The cluster, or the kind of cluster.
    target: Target,
    /// The object; the first one if several differ alike.
    object: Object<'a>,
    /// The action.
    action: Action,
    /// Whether the difference takes effect when the change is merged.
    effect: Effect,
    /// The number of objects with exactly this difference.
    objects: usize,
    /// All affected runtimes, as `namespace/name`; none if only the control plane is affected.
    runtimes: Vec<String>,
    /// The object before; null if it is created. Values of Secrets are digests.
    old: Option<&'a Value>,
    /// The object after; null if it is deleted. Values of Secrets are digests.
    new: Option<&'a Value>,
    /// The changed lines.
    hunks: Vec<Hunk<'a>>,
    /// The lines of definitions or templates that cause it.
    places: Vec<Location<'a>>,
    /// The origin of the object: a template's name, `built in`, or null for an object that is in git as it is.
    maker: Option<&'a str>,
    /// Fields that other managers own.
    conflicts: Vec<Conflict<'a>>,
    /// Why the API server refuses the change and what to do; null if it does not.
    refusal: Option<&'a str>,
    /// What may happen instead of a change, where the API server refused an earlier change of the object; null if
    /// nothing may, or if what runtimes have is known.
    overdue: Option<Overdue<'a>>,
}

/// What may happen instead of a change.
#[derive(JsonSchema, Serialize)]
#[serde(rename_all = "camelCase")]
struct Overdue<'a> {
    /// `recreate` or `refuse`. `--fail-on` counts it.
    action: Action,
    /// Where it happens and why.
    message: &'a str,
}

/// The location of an object.
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
    /// Namespace; empty for a cluster-scoped object.
    namespace: &'a str,
    /// Name.
    name: &'a str,
}

/// What happens to an object.
#[derive(JsonSchema, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Action {
    /// It exists and Tidegate does not own it, or a write would affect fields of other managers.
    Conflict,
    /// It is deleted.
    Delete,
    /// The API server refuses the change: an immutable field differs.
    Refuse,
    /// It is deleted and created again.
    Recreate,
    /// It changes.
    Change,
    /// It is created.
    Create,
}

/// Whether a difference takes effect when the change is merged.
#[derive(JsonSchema, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Effect {
    /// Immediately.
    Applies,
    /// After a user confirms it.
    NeedsConfirmation,
    /// Not before an obstacle is removed, which `held` names.
    Held,
    /// Never: the API server refuses the change.
    Refused,
}

/// A run of changed lines, with context.
#[derive(JsonSchema, Serialize)]
#[serde(rename_all = "camelCase")]
struct Hunk<'a> {
    /// The field of the first changed line; empty at the root.
    path: &'a str,
    /// First line of the old text, from 1; 0 if there is none.
    old_start: usize,
    /// First line of the new text, from 1; 0 if there is none.
    new_start: usize,
    /// The lines, each with a prefix: a space, `-` or `+`.
    lines: Vec<String>,
}

/// A position in a file.
#[derive(JsonSchema, Serialize)]
#[serde(rename_all = "camelCase")]
struct Location<'a> {
    /// Path relative to the root of the definitions.
    path: &'a str,
    /// Line, from 1; 0 for the whole file.
    line: u32,
    /// Column in characters, from 1; 0 if only the line is known.
    column: u32,
}

/// A field that another manager owns.
#[derive(JsonSchema, Serialize)]
#[serde(rename_all = "camelCase")]
struct Conflict<'a> {
    /// The field; empty for the whole object.
    field: &'a str,
    /// Its manager.
    manager: &'a str,
}

/// A module whose version on a channel changes.
#[derive(JsonSchema, Serialize)]
#[serde(rename_all = "camelCase")]
struct Move<'a> {
    /// Module, as `namespace/module`.
    module: String,
    /// Channel.
    channel: &'a str,
    /// The old version; null for a new channel.
    from: Option<&'a str>,
    /// The new version; null for a removed channel.
    to: Option<&'a str>,
    /// How many runtimes then have the module from this channel; for a removed channel, how many had it.
    runtimes: usize,
    /// The place of the version.
    place: Option<Location<'a>>,
}

/// A change that does not take effect, or not by this revision alone.
#[derive(JsonSchema, Serialize)]
#[serde(rename_all = "camelCase")]
struct Held<'a> {
    /// The reason.
    why: Why,
    /// The module; empty for a whole Kyma, GitSource or module list.
    module: &'a str,
    /// All runtimes, as `namespace/name`.
    runtimes: Vec<String>,
    /// One sentence.
    message: &'a str,
    /// What to do next.
    hint: Option<&'a str>,
    /// The line that requests it.
    place: Option<Location<'a>>,
}

/// Why a change does not take effect.
#[derive(JsonSchema, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Why {
    /// A higher version is installed, and nothing allows a downgrade.
    Downgrade,
    /// The Kyma in the runtime selects the modules.
    DecidedByRuntime,
    /// The plan rejects the module for another reason.
    Refused,
    /// The upgrade requires downtime and waits for a maintenance window of the runtime.
    MaintenanceWindow,
    /// The version spreads over the runtimes step by step.
    Rollout,
    /// The definition is invalid, or refers to an invalid one.
    Withheld,
    /// It takes something from more runtimes than the removal limit, and waits for a confirmation.
    Unconfirmed,
    /// It is no longer declared but is not deleted.
    Kept,
    /// The same since an earlier revision: this one changes nothing about it.
    KeptBefore,
    /// An object of the module has another owner.
    Conflict,
    /// The definition waits for another one that is not applied.
    Waiting,
    /// A user suspended the runtime, the GitSource or the rollout of the module.
    Suspended,
    /// The runtime was taken over from Lifecycle Manager, and what that left there stays for now.
    Adopted,
}

/// A value that only a live cluster knows.
#[derive(JsonSchema, Serialize)]
#[serde(rename_all = "camelCase")]
struct Unknown<'a> {
    /// The name of the value.
    value: &'a str,
    /// The target of the first object that contains it.
    target: &'a str,
    /// The first object that contains it.
    object: &'a str,
    /// The path in that object.
    path: &'a str,
    /// The number of places with the value.
    occurrences: usize,
    /// Whether it may hide a change.
    may_hide: bool,
}

/// A problem of a definition or template.
#[derive(JsonSchema, Serialize)]
#[serde(rename_all = "camelCase")]
struct Diagnostic<'a> {
    /// The severity.
    severity: Severity,
    /// Stable code; see `docs/diagnostics.md`.
    code: &'a str,
    /// One sentence.
    message: &'a str,
    /// What to do next.
    hint: Option<&'a str>,
    /// The place.
    place: Option<Location<'a>>,
}

/// The severity.
#[derive(JsonSchema, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Severity {
    /// It must be corrected.
    Error,
    /// Worth knowing.
    Warning,
}

/// A cluster or an object that could not be read.
#[derive(JsonSchema, Serialize)]
#[serde(rename_all = "camelCase")]
struct Unreached<'a> {
    /// `kcp` or `skr/<namespace>/<kyma>`.
    target: &'a str,
    /// One sentence.
    message: &'a str,
}

/// A violated rule.
#[derive(JsonSchema, Serialize)]
#[serde(rename_all = "camelCase")]
struct Finding<'a> {
    /// The severity.
    severity: Severity,
    /// Name of the rule.
    rule: &'a str,
    /// One sentence.
    message: &'a str,
    /// The difference, as an index into `differences`; null for the whole report.
    difference: Option<usize>,
    /// The line that causes it.
    place: Option<Location<'a>>,
}

/// Serializes the report.
pub fn json(report: &Report) -> String {
    let root =
        serde_json::to_value(Root::from_report(report)).expect("strings, numbers and JSON values are valid JSON");
    escape::json(&root)
}

/// The published schema of [`json`].
pub fn schema() -> Value {
    schema_of::<Root<'_>>()
}

fn schema_of<T: JsonSchema>() -> Value {
    let schema = schemars::generate::SchemaSettings::draft2020_12().for_serialize().into_generator();
    schema.into_root_schema_for::<T>().to_value()
}

// === from the model ===

impl<'a> Root<'a> {
    fn from_report(report: &'a Report) -> Root<'a> {
        Root {
            version: VERSION,
            verdict: Verdict::from_model(report.verdict()),
            subject: Subject {
                from: &report.subject.from,
                to: &report.subject.to,
                source: &report.subject.source,
                landscape_written: report.subject.landscape_written.as_deref(),
                files: report.subject.files,
            },
            summary: Summary {
                control_plane: Count::from_model(report.count(Side::ControlPlane)),
                runtimes: Count::from_model(report.count(Side::Runtime)),
                runtimes_total: report.runtimes.total,
                runtimes_touched: report.runtimes.touched,
                runtimes_compared: report.runtimes.compared,
                variants: report.runtimes.variants,
            },
            differences: report.differences.iter().map(Difference::from_model).collect(),
            moves: report.moves.iter().map(Move::from_model).collect(),
            held: report.held.iter().map(Held::from_model).collect(),
            unknown: report.unknown.iter().map(Unknown::from_model).collect(),
            diagnostics: report.diagnostics.iter().map(Diagnostic::from_model).collect(),
            unreached: report
                .unreached
                .iter()
                .map(|one| Unreached { target: &one.target, message: &one.message })
                .collect(),
            checked: &report.checked,
            findings: report.findings.iter().map(Finding::from_model).collect(),
        }
    }
}

impl Verdict {
    fn from_model(verdict: model::Verdict) -> Verdict {
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
    fn from_model(count: model::Count) -> Count {
        let model::Count { create, change, delete, refuse, recreate, conflict } = count;
        Count { create, change, delete, recreate, refuse, conflict }
    }
}

impl<'a> Difference<'a> {
    fn from_model(one: &'a model::Difference) -> Difference<'a> {
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
            action: Action::from_model(one.action),
            effect: match (one.effect, one.action) {
                (model::Effect::Held, _) => Effect::Held,
                (model::Effect::Applies | model::Effect::NeedsConfirmation, model::Action::Refuse) => Effect::Refused,
                (model::Effect::Applies, _) => Effect::Applies,
                (model::Effect::NeedsConfirmation, _) => Effect::NeedsConfirmation,
            },
            objects: one.objects,
            runtimes: one.runtimes.iter().map(ToString::to_string).collect(),
            old: one.old.as_deref(),
            new: one.new.as_deref(),
            hunks: one.hunks.iter().map(Hunk::from_model).collect(),
            places: one.places.iter().map(Location::from_model).collect(),
            maker: one.maker,
            conflicts: one
                .conflicts
                .iter()
                .map(|conflict| Conflict { field: &conflict.field, manager: &conflict.manager })
                .collect(),
            refusal: one.refusal.as_deref(),
            overdue: one
                .overdue
                .as_ref()
                .map(|overdue| Overdue { action: Action::from_model(overdue.action), message: &overdue.sentence }),
        }
    }
}

impl Action {
    fn from_model(action: model::Action) -> Action {
        match action {
            model::Action::Conflict => Action::Conflict,
            model::Action::Delete => Action::Delete,
            model::Action::Refuse => Action::Refuse,
            model::Action::Recreate => Action::Recreate,
            model::Action::Change => Action::Change,
            model::Action::Create => Action::Create,
        }
    }
}

impl<'a> Hunk<'a> {
    fn from_model(hunk: &'a model::Hunk) -> Hunk<'a> {
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

impl<'a> Location<'a> {
    fn from_model(place: &'a diagnostic::FilePosition) -> Location<'a> {
        Location { path: &place.path, line: place.line, column: place.column }
    }
}

impl<'a> Move<'a> {
    fn from_model(one: &'a model::Move) -> Move<'a> {
        Move {
            module: one.module.to_string(),
            channel: &one.channel,
            from: one.from.as_deref(),
            to: one.to.as_deref(),
            runtimes: one.runtimes,
            place: one.place.as_ref().map(Location::from_model),
        }
    }
}

impl<'a> Held<'a> {
    fn from_model(one: &'a model::Held) -> Held<'a> {
        Held {
            why: match one.why {
                model::Why::Downgrade => Why::Downgrade,
                model::Why::DecidedByRuntime => Why::DecidedByRuntime,
                model::Why::Refused => Why::Refused,
                model::Why::Window => Why::MaintenanceWindow,
                model::Why::Rollout => Why::Rollout,
                model::Why::Unconfirmed => Why::Unconfirmed,
                model::Why::Withheld => Why::Withheld,
                model::Why::Kept => Why::Kept,
                model::Why::KeptBefore => Why::KeptBefore,
                model::Why::Conflict => Why::Conflict,
                model::Why::Waiting => Why::Waiting,
                model::Why::Suspended => Why::Suspended,
                model::Why::Adopted => Why::Adopted,
            },
            module: &one.module,
            runtimes: one.runtimes.iter().map(ToString::to_string).collect(),
            message: &one.message,
            hint: one.hint.as_deref(),
            place: one.place.as_ref().map(Location::from_model),
        }
    }
}

impl<'a> Unknown<'a> {
    fn from_model(one: &'a model::NotKnown) -> Unknown<'a> {
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
    fn from_model(one: &'a diagnostic::Diagnostic) -> Diagnostic<'a> {
        Diagnostic {
            severity: Severity::from_model(one.severity),
            code: one.code,
            message: &one.message,
            hint: one.hint.as_deref(),
            place: one.place.as_ref().map(Location::from_model),
        }
    }
}

impl Severity {
    fn from_model(severity: diagnostic::Severity) -> Severity {
        match severity {
            diagnostic::Severity::Error => Severity::Error,
            diagnostic::Severity::Warning => Severity::Warning,
        }
    }
}

impl<'a> Finding<'a> {
    fn from_model(one: &'a model::Finding) -> Finding<'a> {
        Finding {
            severity: Severity::from_model(one.severity),
            rule: &one.rule,
            message: &one.message,
            difference: one.difference,
            place: one.place.as_ref().map(Location::from_model),
        }
    }
}

#[cfg(test)]
mod tests;
