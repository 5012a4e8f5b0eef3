//! The result of a comparison, as every output shows it.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::Arc,
};

use serde_json::Value;
use tidegate_core::{
    api::names::label,
    diagnostic::{Diagnostic, Place, Severity},
    landscape::SourceName,
    name::Key,
    object::{Gvk, ObjectId},
    render::live::Unknown,
};

/// All that a comparison found.
///
/// No value of a Secret is anywhere in it, once [`Draft::finish`](super::clean::Draft::finish) made it.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// What was compared.
    pub subject: Subject,
    /// Each distinct difference once: the control plane first, then by [`Action::weight`], then in the order of apply.
    pub differences: Vec<Difference>,
    /// The runtimes.
    pub runtimes: Runtimes,
    /// Module versions that move, by module, channel and namespace.
    pub moves: Vec<Move>,
    /// Wishes that change nothing in a runtime, by runtime and module.
    pub held: Vec<Held>,
    /// What could not be known, each value once.
    pub unknown: Vec<NotKnown>,
    /// What is wrong with the definitions and templates of the new side, sorted.
    pub diagnostics: Vec<Diagnostic>,
    /// Clusters and objects that could not be looked at, by target.
    pub unreached: Vec<Unreached>,
    /// Names of the rules that the differences were held against, sorted: of policies, and `fail-on: …`.
    pub checked: Vec<String>,
    /// Rules that the differences violate, sorted.
    pub findings: Vec<Finding>,
}

/// How a comparison ends. The first that holds counts, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Definitions or templates of the new side are invalid, so that the rest says too little.
    Invalid,
    /// Something could not be looked at.
    Incomplete,
    /// A rule of severity error is violated.
    Violated,
    /// Something changes, or a value that is not known may.
    Changes,
    /// Nothing does.
    Same,
}

/// The old side where it is what clusters hold.
pub const LIVE: &str = "live";

/// What was compared.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Subject {
    /// The old side, as [`Revision`](tidegate_core::revision::Revision) prints it, or `live`.
    pub from: String,
    /// The new side.
    pub to: String,
    /// The source that the definitions stand for.
    pub source: String,
    /// When the landscape file was written (RFC 3339), if one was given.
    pub landscape_written: Option<String>,
    /// How many files of definitions the new side has.
    pub files: usize,
}

/// The runtimes of a landscape, and how many of them a comparison touches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Runtimes {
    /// All that are known on either side.
    pub total: usize,
    /// Those in which an object differs, or whose Manifests differ.
    pub touched: usize,
    /// Distinct sets of differences among those that are touched.
    pub variants: usize,
    /// Those that were looked at. Not among them are those that a sample leaves out or that nobody reaches, and those that
    /// are suspended.
    pub compared: usize,
}

/// One distinct difference, and everything that it hits.
#[derive(Clone, Debug)]
pub struct Difference {
    /// Which cluster, or kind of cluster.
    pub target: Side,
    /// The object; the first one by [`Difference::runtimes`] where objects of several runtimes differ alike under names
    /// of their own, as Manifests in the control plane do.
    pub id: ObjectId,
    /// Its group, version and kind, on the new side if it is there.
    pub gvk: Gvk,
    /// What happens to it.
    pub action: Action,
    /// Whether that happens when the change is merged.
    pub effect: Effect,
    /// The runtimes that it concerns, sorted; empty for what concerns the control plane alone.
    pub runtimes: Arc<[Key]>,
    /// How many objects differ in this very way, at least 1.
    pub objects: usize,
    /// The object before, masked; `None` if it is created.
    pub old: Option<Arc<Value>>,
    /// The object after, masked; `None` if it is deleted.
    pub new: Option<Arc<Value>>,
    /// The lines that differ; all of the body where it is created or deleted.
    pub hunks: Vec<Hunk>,
    /// The lines of definitions or templates that cause it; of the new side, or of the old one where only that has them.
    pub places: Vec<Place>,
    /// What made the object: a template's name, `built in`, or `None` for what stands in git as it is.
    pub maker: Option<&'static str>,
    /// Fields that other managers own, for [`Action::Conflict`] and for changes that would take fields over.
    pub conflicts: Vec<Conflict>,
}

/// Where an object is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Side {
    /// In the control plane.
    ControlPlane,
    /// In runtimes.
    Runtime,
}

/// What happens to an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Action {
    /// It exists and is not ours, or others own fields that would be written: nothing is sent, or it is said whose they are.
    Conflict,
    /// It goes.
    Delete,
    /// It goes and comes again: a field differs that cannot be changed in place.
    Recreate,
    /// It differs.
    Change,
    /// It comes.
    Create,
}

/// Whether a difference comes about when the change is merged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Effect {
    /// At once.
    Applies,
    /// Only after somebody confirms it: pruning what would uninstall things, see `tidegate.dev/confirm-prune`.
    NeedsConfirmation,
    /// Not while something else is in the way, which [`Report::held`] names.
    Held,
}

/// A run of lines that differ, with lines around them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hunk {
    /// The field around the first line that differs, such as `spec.template.spec.containers[0]`; empty at the root.
    pub path: String,
    /// First line of the old text, from 1; 0 where there is none.
    pub old_start: usize,
    /// First line of the new text, from 1; 0 where there is none.
    pub new_start: usize,
    /// The lines, without their ends.
    pub lines: Vec<Line>,
}

/// One line of a hunk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Line {
    /// On both sides.
    Same(String),
    /// Only in the old text.
    Old(String),
    /// Only in the new text.
    New(String),
}

/// A field that another manager owns.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Conflict {
    /// The field: `.spec.replicas`; empty for the object as a whole.
    pub field: String,
    /// Its manager.
    pub manager: String,
}

/// A module whose version on a channel is another one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Move {
    /// Module, as `<namespace>/<module>`.
    pub module: Key,
    /// Channel.
    pub channel: String,
    /// The version before; `None` for a channel that is new.
    pub from: Option<String>,
    /// The version after; `None` for a channel that goes.
    pub to: Option<String>,
    /// In how many runtimes the module is installed from this channel afterwards, as far as the module lists are known; for a
    /// channel that goes, before.
    pub runtimes: usize,
    /// Where the new version is named; where the old one was, if there is no new one.
    pub place: Option<Place>,
}

/// A wish that does not come about, or not by this change alone.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Held {
    /// Why.
    pub why: Why,
    /// The module; empty where the whole module list is meant.
    pub module: String,
    /// The runtimes, sorted.
    pub runtimes: Arc<[Key]>,
    /// One sentence: the plan's, or ours.
    pub message: String,
    /// What to do next.
    pub hint: Option<String>,
    /// The line that asks for it.
    pub place: Option<Place>,
}

/// Why a wish does not come about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Why {
    /// A higher version is installed and nothing allows to go back.
    Downgrade,
    /// The Kyma in the runtime decides (`modules-from: runtime`), so the list in git has no effect after creation.
    DecidedByRuntime,
    /// The plan refuses the module for another reason, such as a restriction.
    Refused,
    /// The definition is broken, or refers to one that is: the cluster keeps its last good version.
    Withheld,
    /// It is declared no more and stays all the same: errors stand, or the data of users would go with it.
    Kept,
    /// An object of the module is somebody else's: it is not sent, and nothing of the module is pruned.
    Conflict,
    /// Somebody stopped it: the runtime by a label of its Kyma, or the GitSource.
    Suspended,
}

/// A value that could not be known.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct NotKnown {
    /// What it is, as the placeholder says.
    pub value: String,
    /// One place where it stands: target, object and path.
    pub first: Unknown,
    /// In how many places it stands.
    pub occurrences: usize,
    /// Whether it may hide a change: it differs, or might, between the sides.
    pub may_hide: bool,
}

/// Something that could not be looked at.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Unreached {
    /// `kcp` or `skr/<namespace>/<kyma>`.
    pub target: String,
    /// One sentence, without anything that the other side sent verbatim from a Secret.
    pub message: String,
}

/// A rule that is violated.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Finding {
    /// How bad.
    pub severity: Severity,
    /// Name of the rule: that of a policy, or `fail-on: delete`.
    pub rule: String,
    /// One sentence.
    pub message: String,
    /// Which difference, as an index into [`Report::differences`]; `None` for the whole.
    pub difference: Option<usize>,
    /// The line that causes it.
    pub place: Option<Place>,
}

/// How many objects have what happen to them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// Objects that are created.
    pub create: usize,
    /// Objects that change.
    pub change: usize,
    /// Objects that are deleted.
    pub delete: usize,
    /// Objects that are deleted and created.
    pub recreate: usize,
    /// Objects that are in conflict.
    pub conflict: usize,
}

// === impl Report ===

impl Report {
    /// Counts objects, in the control plane or in runtimes.
    pub fn count(&self, target: Side) -> Count {
        let mut count = Count::default();
        for difference in self.differences.iter().filter(|difference| difference.target == target) {
            *match difference.action {
                Action::Create => &mut count.create,
                Action::Change => &mut count.change,
                Action::Delete => &mut count.delete,
                Action::Recreate => &mut count.recreate,
                Action::Conflict => &mut count.conflict,
            } += difference.objects;
        }
        count
    }

    /// Whether nothing differs, as far as is known.
    pub fn is_empty(&self) -> bool {
        self.differences.is_empty()
    }

    /// How it ends.
    ///
    /// What is invalid comes first, since everything else was judged without it; a violation that was found in an
    /// incomplete view may not be the only one.
    pub fn verdict(&self) -> Verdict {
        let is_error = |severity: Severity| severity == Severity::Error;
        if self.diagnostics.iter().any(|diagnostic| is_error(diagnostic.severity)) {
            Verdict::Invalid
        } else if !self.unreached.is_empty() {
            Verdict::Incomplete
        } else if self.findings.iter().any(|finding| is_error(finding.severity)) {
            Verdict::Violated
        } else if !self.is_empty() || self.unknown.iter().any(|unknown| unknown.may_hide) {
            Verdict::Changes
        } else {
            Verdict::Same
        }
    }

    /// The runtimes that differences concern.
    pub fn touched(&self) -> BTreeSet<&Key> {
        self.differences.iter().flat_map(|difference| difference.runtimes.iter()).collect()
    }

    /// Counts the runtimes that are touched and the distinct sets of differences among them.
    pub fn count_runtimes(&mut self) {
        let mut sets: BTreeMap<&Key, Vec<usize>> = BTreeMap::new();
        for (index, difference) in self.differences.iter().enumerate() {
            for runtime in &*difference.runtimes {
                sets.entry(runtime).or_default().push(index);
            }
        }
        let touched = sets.len();
        let variants = sets.into_values().collect::<BTreeSet<_>>().len();
        self.runtimes.touched = touched;
        self.runtimes.variants = variants;
    }
}

// === impl Difference ===

impl Difference {
    /// The order of [`Report::differences`].
    pub fn order(&self) -> impl Ord + '_ {
        (self.target, self.action.weight(), self.id.apply_order(), &*self.runtimes)
    }
}

// === impl Action ===

impl Action {
    /// What a reader must see first has the smallest.
    pub fn weight(self) -> u8 {
        match self {
            Action::Conflict => 0,
            Action::Delete => 1,
            Action::Recreate => 2,
            Action::Change => 3,
            Action::Create => 4,
        }
    }

    /// As programs read it.
    pub fn as_str(self) -> &'static str {
        match self {
            Action::Conflict => "conflict",
            Action::Delete => "delete",
            Action::Recreate => "recreate",
            Action::Change => "change",
            Action::Create => "create",
        }
    }

    /// Whether outputs with a limit show it whatever the limit is.
    pub fn is_never_truncated(self) -> bool {
        matches!(self, Action::Conflict | Action::Delete | Action::Recreate)
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

// === impl Effect ===

impl Effect {
    /// As programs read it.
    pub fn as_str(self) -> &'static str {
        match self {
            Effect::Applies => "applies",
            Effect::NeedsConfirmation => "needs-confirmation",
            Effect::Held => "held",
        }
    }
}

// === impl Held ===

impl Held {
    /// A runtime that a label of its Kyma stops; without the runtime.
    pub fn runtime_suspended() -> Held {
        Held {
            why: Why::Suspended,
            module: String::new(),
            runtimes: Arc::default(),
            message: format!(
                "the Kyma is left alone by its label {}: nothing changes in its runtime, and it is not compared",
                label::SKIP_RECONCILIATION
            ),
            hint: Some("`tidegate resume` lets it go on".to_owned()),
            place: None,
        }
    }

    /// A source that is suspended.
    pub fn source_suspended(source: &SourceName) -> Held {
        Held {
            why: Why::Suspended,
            module: String::new(),
            runtimes: Arc::default(),
            message: format!(
                "the GitSource {source} is suspended: nothing of this revision is applied; what is edited in runtimes is \
                 undone all the same"
            ),
            hint: Some("`tidegate resume` lets it go on".to_owned()),
            place: None,
        }
    }
}

// === impl Why ===

impl Why {
    /// All of them, in the order in which they are told.
    pub const ALL: [Why; 7] =
        [Why::Downgrade, Why::Conflict, Why::DecidedByRuntime, Why::Refused, Why::Suspended, Why::Withheld, Why::Kept];

    /// As programs read it.
    pub fn as_str(self) -> &'static str {
        match self {
            Why::Downgrade => "downgrade",
            Why::DecidedByRuntime => "decided-by-runtime",
            Why::Refused => "refused",
            Why::Withheld => "withheld",
            Why::Kept => "kept",
            Why::Conflict => "conflict",
            Why::Suspended => "suspended",
        }
    }
}

// === impl Count ===

impl Count {
    /// All of them.
    pub fn total(&self) -> usize {
        self.create + self.change + self.delete + self.recreate + self.conflict
    }
}
