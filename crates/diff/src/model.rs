//! The result of a comparison, for all outputs.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::Arc,
};

use serde_json::Value;
use tidegate_core::{
    api::{
        KYMA_GROUP, ModuleReleaseMeta,
        names::{annotation, label},
    },
    definition::{Definition, Kind, Withheld},
    diagnostic::{Diagnostic, FilePosition, Severity},
    intake::{self, ConfirmBy, Id, WaitingRemoval},
    landscape::{self, Idle, ResumeBy, SourceName},
    name::Key,
    object::{Gvk, ObjectId, PathPart},
    plan::{
        Wait, WaitFor,
        rollout::{self, Hold},
        window::WAITING,
    },
    render::live::Unknown,
};

use super::compare::leaves;
pub use super::groups::Groups;

/// Everything that a comparison found.
///
/// After [`Draft::finish`](super::clean::Draft::finish) it contains no value of a Secret.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// What was compared.
    pub subject: Subject,
    /// Each distinct difference once: the control plane first, then by [`Action::weight`], then in the order of apply.
    pub differences: Vec<Difference>,
    /// The runtimes.
    pub runtimes: Runtimes,
    /// Version changes of modules, by module, channel and namespace.
    pub moves: Vec<Move>,
    /// Changes that have no effect in a runtime, by runtime and module.
    pub held: Vec<Held>,
    /// Unknown values, without duplicates.
    pub unknown: Vec<NotKnown>,
    /// Problems of the definitions and templates of the new side, sorted.
    pub diagnostics: Vec<Diagnostic>,
    /// Clusters and objects that could not be read, by target.
    pub unreached: Vec<Unreached>,
    /// Names of the checked rules, sorted: of policies, and `fail-on: …`.
    pub checked: Vec<String>,
    /// Violated rules, sorted.
    pub findings: Vec<Finding>,
    /// The labels by which outputs group runtimes.
    pub groups: Groups,
}

/// The result of a comparison. The first one that applies wins, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Definitions or templates of the new side are invalid, so the rest is incomplete.
    Invalid,
    /// A cluster or an object could not be read.
    Incomplete,
    /// A rule of severity error is violated.
    Violated,
    /// There is a change, or an unknown value may hide one.
    Changes,
    /// There is no change.
    Same,
}

/// The name of the old side if it is the live state of clusters.
pub const LIVE: &str = "live";

/// What was compared.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Subject {
    /// The old side, as [`Revision`](tidegate_core::revision::Revision) prints it, or `live`.
    pub from: String,
    /// The new side.
    pub to: String,
    /// The source of the definitions.
    pub source: String,
    /// When the landscape file was written (RFC 3339), if one was given.
    pub landscape_written: Option<String>,
    /// The number of definition files of the new side.
    pub files: usize,
}

/// The runtimes of a landscape, and the number that a comparison affects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Runtimes {
    /// All runtimes on either side.
    pub total: usize,
    /// Runtimes with a difference that is not [bookkeeping](Report::bookkeeping).
    pub touched: usize,
    /// Distinct sets of differences among the affected runtimes.
    pub variants: usize,
    /// Compared runtimes. Excludes those that a sample leaves out, that are unreachable, or that
    /// are suspended.
    pub compared: usize,
}

/// One distinct difference, and everything that it affects.
#[derive(Clone, Debug)]
pub struct Difference {
    /// The cluster, or the kind of cluster.
    pub target: Side,
    /// The object. If objects of several runtimes differ alike under different names, as Manifests
    /// in the control plane do, the object of the first of [`Difference::runtimes`].
    pub id: ObjectId,
    /// Its group, version and kind, on the new side if it exists there.
    pub gvk: Gvk,
    /// The action.
    pub action: Action,
    /// Whether the difference takes effect when the change is merged.
    pub effect: Effect,
    /// The affected runtimes, sorted; empty if only the control plane is affected.
    pub runtimes: Arc<[Key]>,
    /// The number of objects with exactly this difference, at least 1.
    pub objects: usize,
    /// The object before, masked; `None` if it is created.
    pub old: Option<Arc<Value>>,
    /// The object after, masked; `None` if it is deleted.
    pub new: Option<Arc<Value>>,
    /// The changed lines. The whole body if the object is created or deleted.
    pub hunks: Vec<Hunk>,
    /// The lines of definitions or templates that cause it, on the new side if possible, otherwise
    /// on the old one.
    pub places: Vec<FilePosition>,
    /// The origin of the object: a template's name, `built in`, or `None` for an object that is in
    /// git as it is.
    pub maker: Option<&'static str>,
    /// Fields of other managers, for [`Action::Conflict`] and for changes that would take fields
    /// over.
    pub conflicts: Vec<Conflict>,
    /// Why an API server refuses the change and what to do, as a clause; only for [`Action::Refuse`].
    pub refusal: Option<String>,
    /// What may happen instead, in runtimes where an earlier change was refused; only for [`Action::Change`].
    pub overdue: Option<OverdueAction>,
    /// Whether it is there whatever the revision says: its runtimes have errors already, and nothing of the revision
    /// concerns them.
    pub is_former: bool,
}

/// The location of an object.
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
    /// It exists and Tidegate does not own it, or a write would affect fields of other managers. Nothing is sent, or
    /// the managers are reported.
    Conflict,
    /// It is deleted.
    Delete,
    /// The API server refuses the change: an immutable field differs.
    Refuse,
    /// It is deleted and created again: it moves to another module, or an immutable field differs and
    /// `tidegate.dev/recreate` allows it.
    Recreate,
    /// It changes.
    Change,
    /// It is created.
    Create,
}

/// What may happen instead of a change.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct OverdueAction {
    /// [`Action::Recreate`] or [`Action::Refuse`].
    pub action: Action,
    /// Where it happens and why, as a clause.
    pub sentence: String,
}

/// Whether a difference takes effect when the change is merged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Effect {
    /// Immediately.
    Applies,
    /// After a user confirms it: pruning that would uninstall something, see
    /// `tidegate.dev/confirm-prune`.
    NeedsConfirmation,
    /// Not before an obstacle is removed, which [`Report::held`] names.
    Held,
}

/// A run of changed lines, with context.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hunk {
    /// The field of the first changed line, such as `spec.template.spec.containers[0]`; empty at
    /// the root.
    pub path: String,
    /// First line of the old text, from 1; 0 if there is none.
    pub old_start: usize,
    /// First line of the new text, from 1; 0 if there is none.
    pub new_start: usize,
    /// The lines, without line breaks.
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
    /// The field: `.spec.replicas`; empty for the whole object.
    pub field: String,
    /// Its manager.
    pub manager: String,
}

/// A module whose version on a channel changes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Move {
    /// Module, as `<namespace>/<module>`.
    pub module: Key,
    /// Channel, or `mandatory`.
    pub channel: String,
    /// The old version; `None` for a new channel.
    pub from: Option<String>,
    /// The new version; `None` for a removed channel.
    pub to: Option<String>,
    /// The number of runtimes that afterwards have the module from this channel, as far as their
    /// module lists are known. For a removed channel, the number before.
    pub runtimes: usize,
    /// The place of the new version, or of the old one if there is no new one.
    pub place: Option<FilePosition>,
}

/// A change that does not take effect, or not by this revision alone.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Held {
    /// The reason.
    pub why: Why,
    /// The module; empty for a whole Kyma, GitSource or module list.
    pub module: String,
    /// The runtimes, sorted.
    pub runtimes: Arc<[Key]>,
    /// One sentence, from the plan or from the comparison.
    pub message: String,
    /// What to do next.
    pub hint: Option<String>,
    /// The line that requests it.
    pub place: Option<FilePosition>,
}

/// Why a change does not take effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Why {
    /// A higher version is installed, and nothing allows a downgrade.
    Downgrade,
    /// The Kyma in the runtime selects the modules (`modules-from: runtime`), so the list in git
    /// has no effect after creation.
    DecidedByRuntime,
    /// The plan rejects the module for another reason, such as a restriction.
    Refused,
    /// The upgrade requires downtime and waits for a maintenance window of the runtime.
    Window,
    /// The version spreads over the runtimes step by step, by the policy of its ModuleReleaseMeta.
    Rollout,
    /// The definition is invalid, or refers to an invalid one: the cluster keeps its last good
    /// version.
    Withheld,
    /// It takes something from more runtimes than the removal limit, and waits for a confirmation.
    Unconfirmed,
    /// It is no longer declared but is not deleted, because of errors or to protect user data.
    Kept,
    /// The same since an earlier revision: this one changes nothing about it.
    KeptBefore,
    /// An object of the module has another owner: it is not applied, and nothing of the module is
    /// pruned.
    Conflict,
    /// The definition waits for another one that is not applied.
    Waiting,
    /// A user suspended it: the runtime by a label of its Kyma, or the GitSource.
    Suspended,
    /// The runtime was taken over from Lifecycle Manager, and what that left there stays for now.
    Adopted,
}

/// A value that is unknown.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct NotKnown {
    /// Its name in the placeholder.
    pub value: String,
    /// One place with the value: target, object and path.
    pub first: Unknown,
    /// The number of places with the value.
    pub occurrences: usize,
    /// Whether it may hide a change: it differs, or may differ, between the sides.
    pub may_hide: bool,
}

/// A cluster or an object that could not be read.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Unreached {
    /// `kcp` or `skr/<namespace>/<kyma>`.
    pub target: String,
    /// One sentence, without literal text from a Secret.
    pub message: String,
}

/// A violated rule.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Finding {
    /// The severity.
    pub severity: Severity,
    /// Name of the rule: that of a policy, or `fail-on: delete`.
    pub rule: String,
    /// One sentence.
    pub message: String,
    /// The difference, as an index into [`Report::differences`]; `None` for the whole report.
    pub difference: Option<usize>,
    /// The line that causes it.
    pub place: Option<FilePosition>,
}

/// The number of objects by action.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// Objects that are created.
    pub create: usize,
    /// Objects that change.
    pub change: usize,
    /// Objects that are deleted.
    pub delete: usize,
    /// Objects whose change is refused.
    pub refuse: usize,
    /// Objects that are deleted and created.
    pub recreate: usize,
    /// Objects in conflict.
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
                Action::Refuse => &mut count.refuse,
                Action::Recreate => &mut count.recreate,
                Action::Conflict => &mut count.conflict,
            } += difference.objects;
        }
        count
    }

    /// Whether there is no known difference.
    pub fn is_empty(&self) -> bool {
        self.differences.is_empty()
    }

    /// The result.
    ///
    /// Invalid definitions come first, because everything else was computed without them. A
    /// violation in an incomplete report may not be the only one.
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

    /// Which of the differences only repeat what others say, by their indices: the copies of the catalog in runtimes,
    /// the Manifests of runtimes in which other objects differ, those that change no object of their runtime, and
    /// digests and paths that Tidegate notes. If the revision changes anything, also what differs whatever it says.
    pub fn bookkeeping(&self) -> BTreeSet<usize> {
        let explained: BTreeSet<&Key> = self.in_runtimes().flat_map(|one| one.runtimes.iter()).collect();
        let repeats = |one: &Difference| {
            let is_explained = || one.runtimes.iter().all(|key| explained.contains(key));
            let is_manifest = one.is_manifest() && !one.runtimes.is_empty();
            one.is_catalog_copy() || one.is_note() || is_manifest && (is_explained() || one.changes_no_object())
        };
        let has_news = self.differences.iter().any(|one| !one.is_former);
        let is_bookkeeping = |one: &Difference| {
            one.is_former && has_news || !matches!(one.action, Action::Conflict | Action::Refuse) && repeats(one)
        };
        self.differences.iter().enumerate().filter(|(_, one)| is_bookkeeping(one)).map(|(index, _)| index).collect()
    }

    /// The differences in runtimes, without the copies of the catalog.
    pub fn in_runtimes(&self) -> impl Iterator<Item = &Difference> {
        self.differences.iter().filter(|one| one.target == Side::Runtime && !one.is_catalog_copy())
    }

    /// The runtimes that differences affect.
    pub fn touched(&self) -> BTreeSet<&Key> {
        self.differences.iter().flat_map(|difference| difference.runtimes.iter()).collect()
    }

    /// Counts the affected runtimes and the distinct sets of differences among them.
    pub fn count_runtimes(&mut self) {
        let mut sets: BTreeMap<&Key, Vec<usize>> = BTreeMap::new();
        let bookkeeping = self.bookkeeping();
        let counting = self.differences.iter().enumerate().filter(|(index, _)| !bookkeeping.contains(index));
        for (index, difference) in counting {
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
    /// Whether it is the copy of a definition in a runtime: the catalog, from which its users select modules. Every
    /// release of a module changes it in every runtime.
    pub fn is_catalog_copy(&self) -> bool {
        self.target == Side::Runtime
            && &*self.id.group == KYMA_GROUP
            && matches!(&*self.id.kind, "ModuleTemplate" | "ModuleReleaseMeta")
            && !matches!(self.action, Action::Conflict | Action::Refuse)
    }

    /// Whether this happens, or may happen because an earlier change was refused.
    pub fn may_be(&self, action: Action) -> bool {
        self.action == action || self.overdue.as_ref().is_some_and(|overdue| overdue.action == action)
    }

    /// The module and version of a Manifest that gets other content under the same version.
    pub(crate) fn same_version(&self) -> Option<(&str, &str)> {
        let content = |manifest: &Value| {
            let source = &manifest["spec"]["install"]["source"];
            ["tree", "ref"].map(|field| source[field].clone())
        };
        let (old, new, module) = self.of_one_version()?;
        (content(old) != content(new)).then_some(module)
    }

    /// The module and version of a Manifest that gets another default resource under the same version, and not only
    /// another policy for it.
    pub(crate) fn same_version_default(&self) -> Option<(&str, &str)> {
        let (old, new, module) = self.of_one_version()?;
        let differs = |field: &str| old["spec"][field] != new["spec"][field];
        let is_created = new["spec"]["customResourcePolicy"] != "Ignore";
        (is_created && differs("resource") && !differs("customResourcePolicy")).then_some(module)
    }

    /// The sides of a Manifest that keeps its version, and its module and version.
    fn of_one_version(&self) -> Option<(&Value, &Value, (&str, &str))> {
        let (old, new) = (self.old.as_deref()?, self.new.as_deref()?);
        let version = new["spec"]["version"].as_str().filter(|version| old["spec"]["version"] == **version)?;
        let module = new["metadata"]["labels"][label::MODULE_NAME].as_str().unwrap_or("a module");
        self.is_manifest().then_some((old, new, (module, version)))
    }

    /// Whether a Manifest changes no object of a runtime that has it: Tidegate creates the default resource once, and
    /// the manager only says which object decides whether the module is ready.
    pub(crate) fn changes_no_object(&self) -> bool {
        let (Some(old), Some(new)) = (&self.old, &self.new) else { return false };
        let leaves = leaves(old, new);
        self.is_manifest()
            && leaves.iter().any(|leaf| is_unapplied(&leaf.path))
            && leaves.iter().all(|leaf| is_unapplied(&leaf.path) || is_noted(&leaf.path))
    }

    /// Whether it is a Manifest in the control plane.
    pub fn is_manifest(&self) -> bool {
        (self.target, &*self.id.group, &*self.id.kind) == (Side::ControlPlane, KYMA_GROUP, "Manifest")
    }

    /// Whether only digests and paths differ that Tidegate notes on its custom resources in the control plane.
    fn is_note(&self) -> bool {
        let (Some(old), Some(new)) = (&self.old, &self.new) else { return false };
        self.target == Side::ControlPlane
            && &*self.id.group == KYMA_GROUP
            && leaves(old, new).iter().all(|leaf| is_noted(&leaf.path))
    }

    /// The order of [`Report::differences`].
    pub fn order(&self) -> impl Ord + '_ {
        (self.target, self.action.weight(), self.id.apply_order(), &*self.runtimes)
    }
}

/// Whether a field of a custom resource contains a digest or a path of what is in git.
fn is_noted(path: &[PathPart]) -> bool {
    match keys(path).as_slice() {
        ["metadata", "annotations", name] => {
            [annotation::PATH, annotation::DIGEST, annotation::MODULE_TREE].contains(name)
        }
        ["spec", "install", "source", field] => ["path", "tree"].contains(field),
        _ => false,
    }
}

/// Whether a field of a Manifest is not applied to a runtime that has the module: the manager, or a field of the
/// default resource but those that name it.
fn is_unapplied(path: &[PathPart]) -> bool {
    match keys(path).as_slice() {
        ["spec", "manager", ..] => true,
        ["spec", "resource", "apiVersion" | "kind"] | ["spec", "resource", "metadata", "name" | "namespace"] => false,
        ["spec", "resource", _, ..] => true,
        _ => false,
    }
}

fn keys(path: &[PathPart]) -> Vec<&str> {
    let keys = path.iter().filter_map(|part| match part {
        PathPart::Key(key) => Some(key.as_str()),
        PathPart::Index(_) => None,
    });
    keys.collect()
}

// === impl Action ===

impl Action {
    /// Severity for readers: the smallest comes first.
    pub fn weight(self) -> u8 {
        match self {
            Action::Conflict => 0,
            Action::Refuse => 1,
            Action::Delete => 2,
            Action::Recreate => 3,
            Action::Change => 4,
            Action::Create => 5,
        }
    }

    /// The machine-readable name.
    pub fn as_str(self) -> &'static str {
        match self {
            Action::Conflict => "conflict",
            Action::Delete => "delete",
            Action::Refuse => "refuse",
            Action::Recreate => "recreate",
            Action::Change => "change",
            Action::Create => "create",
        }
    }

    /// Whether outputs with a size limit always show it.
    pub fn is_never_truncated(self) -> bool {
        matches!(self, Action::Conflict | Action::Refuse | Action::Delete | Action::Recreate)
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

// === impl Effect ===

impl Effect {
    /// The machine-readable name.
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
    /// A removal from more runtimes than the limit, and the command that will confirm it.
    pub fn unconfirmed(source: &Key, removal: &WaitingRemoval) -> Held {
        let command = ConfirmBy::Annotation.command(source, "$(git rev-parse HEAD)");
        Held {
            why: Why::Unconfirmed,
            module: removal.module.name().to_owned(),
            runtimes: removal.runtimes.iter().cloned().collect(),
            message: removal.to_string(),
            hint: Some(format!("after the merge, run in the repository `{command}`")),
            place: Some(removal.place.clone()),
        }
    }

    /// The same, where another source takes an object over: a commit of that one confirms it.
    pub fn unconfirmed_elsewhere(heir: &Key, removal: &WaitingRemoval) -> Held {
        let command = ConfirmBy::Annotation.command(heir, "$(git rev-parse HEAD)");
        let hint = format!("after the merge, run in the repository of GitSource {heir} `{command}`");
        Held { hint: Some(hint), ..Held::unconfirmed(heir, removal) }
    }

    /// Those with one cause as one, which has all of their runtimes and the first place.
    pub fn together(all: Vec<Held>) -> Vec<Held> {
        let mut known = BTreeMap::new();
        for held in all {
            let runtimes = Arc::clone(&held.runtimes);
            let cause = (held.why, held.module.clone(), held.message.clone(), held.hint.clone());
            let (_, of_cause) = known.entry(cause).or_insert_with(|| (held, BTreeSet::new()));
            of_cause.extend(runtimes.iter().cloned());
        }
        let of_all =
            |(first, runtimes): (Held, BTreeSet<Key>)| Held { runtimes: runtimes.into_iter().collect(), ..first };
        known.into_values().map(of_all).collect()
    }

    /// Something about a definition as a whole: the module or the runtime that it is about. The caller adds the rest.
    pub fn of_definition(id: &Id, why: Why, message: String) -> Held {
        let (kind, key) = id;
        let is_kyma = *kind == Kind::Kyma;
        Held {
            why,
            module: if is_kyma { String::new() } else { key.name().to_owned() },
            runtimes: if is_kyma { [key.clone()].into() } else { Arc::default() },
            message,
            hint: None,
            place: None,
        }
    }

    /// A definition with errors.
    pub fn withheld(withheld: &Withheld) -> Held {
        let message = format!("{} {} is held back: {}", withheld.kind, withheld.key, withheld.message);
        let id = (withheld.kind, withheld.key.clone());
        Held {
            hint: Some("correct it; until then the control plane keeps its last good version".to_owned()),
            place: Some(withheld.place.clone()),
            ..Held::of_definition(&id, Why::Withheld, message)
        }
    }

    /// A version that git no longer has, and that these runtimes do not replace now.
    pub fn in_use<'k>(id: &Id, runtimes: impl IntoIterator<Item = &'k Key>, place: Option<FilePosition>) -> Held {
        Held {
            why: Why::Kept,
            module: id.1.name().to_owned(),
            runtimes: runtimes.into_iter().cloned().collect(),
            message: format!(
                "{} is no longer declared, but is not deleted: runtimes keep this version for now",
                intake::text(id)
            ),
            hint: Some("Tidegate prunes it as soon as no runtime has this version".to_owned()),
            place,
        }
    }

    /// What the API server keeps although a module no longer sets it. The caller adds the runtime and the place.
    pub fn assigned(module: &str, id: &ObjectId, field: &str) -> Held {
        Held {
            why: Why::Kept,
            module: module.to_owned(),
            runtimes: Arc::default(),
            message: format!("{id} no longer sets {field}: this has no effect, the API server keeps it"),
            hint: None,
            place: None,
        }
    }

    /// An object that would move to another module, and that the one that has it does not delete. The caller adds the
    /// runtime and the place.
    pub fn stays_with(module: &str, id: &ObjectId) -> Held {
        Held {
            why: Why::Conflict,
            module: module.to_owned(),
            runtimes: Arc::default(),
            message: format!(
                "{id} stays with module {module}, of which Tidegate prunes nothing now: the module that gets it waits"
            ),
            hint: None,
            place: None,
        }
    }

    /// A module whose Manifest a label pauses. `manifest` is its name, if it is known. The caller adds the runtime.
    pub fn manifest_paused(module: &str, manifest: Option<&str>) -> Held {
        let manifest = manifest.map_or_else(|| "the Manifest".to_owned(), |name| format!("Manifest {name}"));
        Held {
            why: Why::Suspended,
            module: String::new(),
            runtimes: Arc::default(),
            message: format!(
                "the label {} pauses {manifest} of module {module}: nothing of the module changes in the runtime",
                label::SKIP_RECONCILIATION
            ),
            hint: Some("remove the label to continue".to_owned()),
            place: None,
        }
    }

    /// A runtime that a label of its Kyma suspends: that of `definition`, or one in the control plane. The caller adds
    /// the runtime.
    pub fn runtime_suspended(definition: Option<&Definition>) -> Held {
        let label = definition.and_then(|definition| definition.object.label(label::SKIP_RECONCILIATION));
        let hint = match label.is_some_and(landscape::says_true) {
            // `tidegate resume` refuses it: the next pass would suspend it again.
            true => "remove the label from the Kyma in git to resume it",
            false => "run `tidegate resume` to resume it",
        };
        Held {
            why: Why::Suspended,
            module: String::new(),
            runtimes: Arc::default(),
            message: format!(
                "the label {} suspends the Kyma: nothing changes in its runtime, and it is not compared",
                label::SKIP_RECONCILIATION
            ),
            hint: Some(hint.to_owned()),
            place: None,
        }
    }

    /// A runtime that stays as Lifecycle Manager left it. The caller adds the runtime.
    pub fn runtime_adopted() -> Held {
        Held {
            why: Why::Adopted,
            module: String::new(),
            runtimes: Arc::default(),
            message: "what Lifecycle Manager left in the runtime stays: its agent, with Deployment, Services, \
                      NetworkPolicies, PriorityClass and ValidatingWebhookConfiguration, where Tidegate's are different; \
                      and copies of ModuleTemplates and ModuleReleaseMetas that the catalog lacks"
                .to_owned(),
            hint: Some("run `tidegate adopt take --finish` to let all of it become Tidegate's".to_owned()),
            place: None,
        }
    }

    /// An upgrade that reaches this runtime in its turn; `None` if the ModuleReleaseMeta has no valid policy. The
    /// caller adds the runtime and the place.
    pub fn rollout(module: &str, from: &str, to: &str, release: &ModuleReleaseMeta) -> Option<Held> {
        let policy = rollout::policy(&release.metadata).ok().flatten().filter(|policy| !policy.is_paused)?;
        Some(Held {
            why: Why::Rollout,
            module: module.to_owned(),
            runtimes: Arc::default(),
            message: format!("{from} to {to} spreads step by step: {}", policy.summary()),
            hint: None,
            place: None,
        })
    }

    /// An upgrade that waits for a maintenance window or for its turn in a rollout. The caller adds the runtime and the
    /// place.
    pub fn waiting(module: &str, wait: &Wait) -> Held {
        if let WaitFor::Rollout(hold) = &wait.why {
            return Held {
                why: if matches!(hold, Hold::Paused(_)) { Why::Suspended } else { Why::Rollout },
                module: module.to_owned(),
                runtimes: Arc::default(),
                message: format!("{} to {}: {hold}", wait.from, wait.to),
                hint: Some(format!("correct the annotation in git, or run `tidegate resume rollout/{module}`")),
                place: None,
            };
        }
        let next = match wait.next {
            Some(next) => format!("the next maintenance window begins at {next}"),
            None => "the policy has no maintenance window left for the runtime".to_owned(),
        };
        Held {
            why: Why::Window,
            module: module.to_owned(),
            runtimes: Arc::default(),
            message: format!("{WAITING}: {} to {}", wait.from, wait.to),
            hint: Some(next),
            place: None,
        }
    }

    /// A source that is suspended or being deleted. `resume_by` says what ends its suspension.
    pub fn source_idle(source: &SourceName, idle: Idle, resume_by: ResumeBy) -> Held {
        let hint = match resume_by {
            ResumeBy::Command => "run `tidegate resume` to resume it",
            // Whoever applies the file would suspend it again.
            ResumeBy::File => "remove `spec.suspend` from the GitSource in git to resume it",
        };
        let resume = || Some(hint.to_owned());
        let (then, hint) = match idle {
            Idle::Suspended => (
                "is suspended: Tidegate applies nothing of this revision, but still reverts edits in runtimes",
                resume(),
            ),
            Idle::Ending => ("is being deleted: Tidegate applies nothing of this revision", None),
            Idle::SuspendedEnding => (
                "is suspended while it is being deleted: Tidegate applies nothing of this revision, and deletes nothing \
                 until it resumes",
                resume(),
            ),
        };
        Held {
            why: Why::Suspended,
            module: String::new(),
            runtimes: Arc::default(),
            message: format!("the GitSource {source} {then}"),
            hint,
            place: None,
        }
    }
}

// === impl Why ===

impl Why {
    /// All reasons, in the order of reports.
    pub const ALL: [Why; 13] = [
        Why::Downgrade,
        Why::Conflict,
        Why::DecidedByRuntime,
        Why::Refused,
        Why::Window,
        Why::Rollout,
        Why::Suspended,
        Why::Adopted,
        Why::Unconfirmed,
        Why::Withheld,
        Why::Waiting,
        Why::Kept,
        Why::KeptBefore,
    ];

    /// The machine-readable name.
    pub fn as_str(self) -> &'static str {
        match self {
            Why::Downgrade => "downgrade",
            Why::DecidedByRuntime => "decided-by-runtime",
            Why::Refused => "refused",
            Why::Window => "maintenance-window",
            Why::Rollout => "rollout",
            Why::Unconfirmed => "unconfirmed",
            Why::Withheld => "withheld",
            Why::Kept => "kept",
            Why::KeptBefore => "kept-before",
            Why::Conflict => "conflict",
            Why::Waiting => "waiting",
            Why::Suspended => "suspended",
            Why::Adopted => "adopted",
        }
    }
}

// === impl Count ===

impl Count {
    /// All actions.
    pub fn total(&self) -> usize {
        self.create + self.change + self.delete + self.recreate + self.refuse + self.conflict
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_rollout_that_runtimes_wait_for_is_one_entry() {
        let of = |runtime: &str, message: &str| Held {
            why: Why::Rollout,
            module: "cache".to_owned(),
            runtimes: [Key::new("kcp-system", runtime)].into(),
            message: message.to_owned(),
            hint: None,
            place: Some(FilePosition::file(&format!("{runtime}.yaml"))),
        };
        let found = Held::together(vec![of("b", "it is paused"), of("a", "it is paused"), of("c", "it waits")]);
        let shown: Vec<(usize, &str)> = found.iter().map(|one| (one.runtimes.len(), one.message.as_str())).collect();
        assert_eq!(shown, [(2, "it is paused"), (1, "it waits")]);
        assert_eq!(found[0].runtimes[0].name(), "a");
        assert_eq!(found[0].place, Some(FilePosition::file("b.yaml")));
    }
}
