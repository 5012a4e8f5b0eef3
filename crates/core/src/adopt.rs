//! Whether a landscape of Lifecycle Manager can be taken over, and what the take-over has to do first. Pure.
//!
//! The daemon takes over by itself what Lifecycle Manager applied: the objects of modules, the catalog, Manifests and
//! certificates. A user decides the rest before, and this module says what that is: versions that the API server must
//! not store any more, another leader, webhooks that end with Lifecycle Manager, definitions in git that differ from
//! those in the control plane, modules that Tidegate would not render, and runtimes that it would refuse to reach. It
//! changes nothing.

mod certificates;
mod events;
mod leftovers;
mod manifests;
mod undeclared;

pub mod hand_over;
pub mod kcp;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::LazyLock,
};

use serde::Serialize;
use serde_json::Value;

use crate::{
    api::{KYMA_VERSION, Kyma, names, shared::ObjectMeta},
    changes::covers,
    conditions,
    definition::{Definition, Kind},
    intake::{self, Id, OtherTool},
    landscape::{self, SourceName},
    name::Key,
    object::Object,
    plan::{self, ModulesFrom},
    revision::Oid,
    words::{agreeing, counted, few},
    yaml,
};

pub use certificates::{Certificate, certificates, identities};
pub use events::{Behind, Purpose, Webhook, watchers, webhooks};
pub use leftovers::{Answer, Labelled, kinds_left, leftovers, usual_kinds};
pub use manifests::{
    Answers, Lookup, NamedRegistries, claims, elsewhere, from_git, is_referenced, orphans, rendering, samples, silent,
    trees_installed, unrecorded,
};
pub use undeclared::{Keeper, Owners, Undeclared};

/// What a finding means for the take-over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// The take-over must not begin: a user has to do something first.
    Blocks,
    /// `tidegate adopt take` does it.
    Todo,
    /// Worth knowing.
    Note,
    /// Nothing to do.
    Ready,
}

/// What a finding is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Topic {
    /// Who holds the Lease.
    Leader,
    /// The versions in which the API server stores custom resources.
    Storage,
    /// Definitions in git and in the control plane.
    Definitions,
    /// Who decides which modules a runtime has.
    Modules,
    /// Whether Tidegate can render the modules that runtimes have.
    Rendering,
    /// Manifests without a Kyma.
    Manifests,
    /// Objects in runtimes that nothing names any more.
    Leftovers,
    /// How runtimes are reached.
    Access,
    /// Which runtimes stay as Lifecycle Manager left them.
    Runtimes,
    /// Webhooks in the control plane.
    Webhooks,
    /// Where events of runtimes lead.
    Watchers,
    /// The certificates of runtimes.
    Certificates,
    /// Who applied the objects in the control plane.
    Managers,
    /// Owners of the objects of kcp landscapes.
    Owners,
    /// The objects of kcp landscapes.
    Objects,
}

/// One fact about the landscape.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Finding {
    /// What it means.
    pub level: Level,
    /// What it is about.
    pub topic: Topic,
    /// One sentence.
    pub message: String,
    /// What to do; `None` if there is nothing to do.
    pub next: Option<String>,
}

/// How a definition in git compares with the object in the control plane.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    /// There is no such object.
    Absent,
    /// A GitSource of this name owns it already.
    Owned,
    /// It has no ownership label, and says what git says.
    Equal,
    /// It has no ownership label, and differs in this field first.
    Differs(String),
    /// The same, and an annotation of the definition says that git is right.
    Replaced(String),
    /// It lacks only these annotations of Tidegate, which `adopt release` removes, so git is right.
    Returned(Vec<String>),
    /// Another GitSource owns it: the value of the ownership label.
    OfSource(String),
    /// Another tool manages it.
    OfTool(OtherTool),
    /// It is being deleted.
    Terminating,
}

/// A CustomResourceDefinition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredVersions {
    /// Its name.
    pub name: String,
    /// The version in which new objects are stored.
    pub storage: String,
    /// All versions in which objects may be stored.
    pub stored: Vec<String>,
    /// How many objects there are.
    pub objects: usize,
}

/// The holder of the Lease of Lifecycle Manager and Tidegate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// Its identity.
    pub name: String,
    /// Seconds since it renewed the Lease.
    pub renewed: i64,
}

/// How a runtime is reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Access {
    /// By a Secret that Tidegate accepts.
    Accepted,
    /// There is no Secret.
    Absent,
    /// There are several, by name.
    Several(Vec<String>),
    /// Tidegate refuses the Secret, with the reason.
    Refused(String),
}

/// The prefix of the annotations that only Tidegate understands.
const OWN: &str = "tidegate.dev/";
/// How many objects of a kind a finding names that git does not declare. A user must know them: no file shows them.
const UNDECLARED_MAX: usize = 10;

// === impl Finding ===

impl Finding {
    fn new(level: Level, topic: Topic, message: impl Into<String>) -> Finding {
        Finding { level, topic, message: message.into(), next: None }
    }

    fn next(self, next: impl Into<String>) -> Finding {
        Finding { next: Some(next.into()), ..self }
    }
}

// === impl Standing ===

impl Standing {
    /// How the object in the control plane compares with a definition of this source. What clients other than git add
    /// to the object, such as finalizers and labels, is no difference.
    pub fn of(definition: &Definition, live: Option<&Value>, source: &SourceName) -> Standing {
        let Some(live) = live else { return Standing::Absent };
        let metadata = &live["metadata"];
        if !metadata["deletionTimestamp"].is_null() {
            return Standing::Terminating;
        }
        match metadata["labels"][names::label::SOURCE].as_str() {
            Some(label) if label == source.label_value() => return Standing::Owned,
            Some(label) => return Standing::OfSource(label.to_owned()),
            None => {}
        }
        if let Some(tool) =
            OtherTool::recognize(&texts(&metadata["labels"]), &texts(&metadata["annotations"]), &managers(live))
        {
            return Standing::OfTool(tool);
        }
        match difference(&compared(definition, live), live) {
            None => Standing::Equal,
            Some(path) if definition.object.annotation(names::annotation::ADOPT) == Some("true") => {
                Standing::Replaced(path)
            }
            Some(path) => Standing::Differs(path),
        }
    }

    /// The same, if it may be that `adopt release` took annotations from the object. `trees` is what runtimes have of
    /// the ModuleTemplate, see [`trees_installed`].
    #[must_use]
    pub fn after_release(self, definition: &Definition, live: &Value, trees: &BTreeSet<Option<Oid>>) -> Standing {
        match (self, lost(definition, live, trees)) {
            (Standing::Differs(_), Some(lost)) => Standing::Returned(lost),
            (standing, _) => standing,
        }
    }

    /// Whether `adopt take` gives the object the ownership label.
    pub fn is_marked_by_take(&self) -> bool {
        match self {
            Standing::Equal | Standing::Returned(_) => true,
            Standing::Absent
            | Standing::Owned
            | Standing::Differs(_)
            | Standing::Replaced(_)
            | Standing::OfSource(_)
            | Standing::OfTool(_)
            | Standing::Terminating => false,
        }
    }
}

/// The annotations of Tidegate that a live object lacks, if it differs in nothing else, and if no runtime changes when
/// it gets them. Runtimes would change if another place had the objects of a module, or if git decided on modules.
fn lost(definition: &Definition, live: &Value, trees: &BTreeSet<Option<Oid>>) -> Option<Vec<String>> {
    let mut desired = compared(definition, live);
    let has = |name: &str| !live["metadata"]["annotations"][name].is_null();
    let annotations = desired.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut)?;
    let is_lost = |name: &&String| name.starts_with(OWN) && !has(name);
    let lost: Vec<String> = annotations.keys().filter(is_lost).cloned().collect();
    annotations.retain(|name, _| !lost.contains(name));
    if annotations.is_empty() {
        desired["metadata"].as_object_mut()?.shift_remove("annotations");
    }
    let tree = definition.module.as_ref().map(|module| module.tree);
    let changes_runtimes = |name: &String| match name.as_str() {
        names::annotation::MODULES_FROM => true,
        names::annotation::MODULE_PATH => trees.iter().any(|installed| *installed != tree),
        _ => false,
    };
    (!lost.is_empty() && !lost.iter().any(changes_runtimes) && covers(&desired, live)).then_some(lost)
}

/// What of a definition is compared with a live object that has no ownership label.
pub fn compared(definition: &Definition, live: &Value) -> Value {
    let mut desired = definition.object.clone();
    desired.map_mut().shift_remove("status");
    // Lifecycle Manager knows no annotation for it, and lets the runtime decide as well.
    let is_as_before = definition.kind == Kind::Kyma
        && desired.annotation(names::annotation::MODULES_FROM) == Some("runtime")
        && live["metadata"]["annotations"][names::annotation::MODULES_FROM].is_null();
    // What says that git is right is no difference itself.
    let ignored = [Some(names::annotation::ADOPT), is_as_before.then_some(names::annotation::MODULES_FROM)];
    if let Some(annotations) = desired.metadata_mut().get_mut("annotations").and_then(Value::as_object_mut) {
        ignored.iter().flatten().for_each(|name| {
            annotations.shift_remove(*name);
        });
        if annotations.is_empty() {
            desired.metadata_mut().shift_remove("annotations");
        }
    }
    desired.into_value()
}

/// A mapping without fields.
static NO_FIELDS: LazyLock<Value> = LazyLock::new(|| Value::Object(serde_json::Map::new()));

/// The first field of `desired` that `live` does not cover.
fn difference(desired: &Value, live: &Value) -> Option<String> {
    if covers(desired, live) {
        return None;
    }
    let mut path = String::new();
    let (mut desired, mut live) = (desired, live);
    while let (Value::Object(wanted), Value::Object(found)) = (desired, live) {
        let differing = wanted.iter().find(|(field, value)| {
            !found.get(*field).is_some_and(|found| covers(&wrapped(field, value), &wrapped(field, found)))
        });
        let Some((field, value)) = differing else { break };
        let dot = if path.is_empty() { "" } else { "." };
        path.push_str(&format!("{dot}{}", yaml::short(field)));
        let next = match found.get(field) {
            Some(next) => next,
            // A user must know which one.
            None if ["annotations", "labels"].contains(&field.as_str()) => &*NO_FIELDS,
            None => break,
        };
        (desired, live) = (value, next);
    }
    Some(path)
}

/// A field alone: the comparison of a list depends on the name of its field.
fn wrapped(field: &str, value: &Value) -> Value {
    Value::Object([(field.to_owned(), value.clone())].into_iter().collect())
}

fn texts(value: &Value) -> BTreeMap<String, String> {
    let all = value.as_object().into_iter().flatten();
    all.filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned()))).collect()
}

/// The field managers of an object, sorted and unique.
pub fn managers(object: &Value) -> Vec<String> {
    let entries = object.pointer("/metadata/managedFields").and_then(Value::as_array).into_iter().flatten();
    let mut managers: Vec<String> = entries.filter_map(|entry| entry["manager"].as_str().map(str::to_owned)).collect();
    managers.sort_unstable();
    managers.dedup();
    managers
}

/// Who leads. `None` if no client holds the Lease, or its holder has stopped.
pub fn leader(holder: Option<&Holder>) -> Finding {
    match holder {
        None => Finding::new(Level::Ready, Topic::Leader, "no controller holds the Lease"),
        Some(holder @ Holder { name, renewed }) if is_tidegate(holder) => {
            let message = format!("{name} holds the Lease and renewed it {renewed} s ago");
            let next = "stop the daemon of Tidegate first; one that was killed does not give the Lease up, which then \
                        ends after its duration";
            Finding::new(Level::Blocks, Topic::Leader, message).next(next)
        }
        Some(Holder { name, renewed }) => {
            let message = format!("{name} holds the Lease and renewed it {renewed} s ago");
            let next = "scale the Deployment of Lifecycle Manager to 0; it does not give the Lease up, which then ends \
                        after its duration";
            Finding::new(Level::Blocks, Topic::Leader, message).next(next)
        }
    }
}

/// The Lease of a process that has ended without releasing it. A daemon cannot know that: it would wait once more for
/// the duration of the Lease.
pub fn ended(Holder { name, renewed }: &Holder) -> Finding {
    let message = format!(
        "{name} has not renewed the Lease for {renewed} s, which is longer than it lasts: the Lease is released, so that \
         the daemon need not wait for its end"
    );
    Finding::new(Level::Todo, Topic::Leader, message).next("make sure that Lifecycle Manager does not run")
}

/// Whether the holder of the Lease is a daemon of Tidegate.
pub fn is_tidegate(holder: &Holder) -> bool {
    holder.name.starts_with("tidegate_")
}

/// The GitSources that exist, before a landscape is given back.
pub fn sources(names: &[String]) -> Finding {
    match names.len() {
        0 => Finding::new(Level::Ready, Topic::Definitions, "there are no GitSources"),
        count => {
            let message =
                format!("there {} still {}: {}", agreeing(count, "is", "are"), counted(count, "GitSource"), few(names));
            Finding::new(Level::Blocks, Topic::Definitions, message)
                .next("delete them while the daemon runs, as docs/uninstall.md says, then stop the daemon")
        }
    }
}

/// The kinds of Lifecycle Manager that the control plane does not serve: the daemon needs each of them.
pub fn kinds(missing: &[&str]) -> Option<Finding> {
    let message = format!(
        "the control plane does not serve {}: without {}, nothing says what the landscape has",
        missing.join(", "),
        agreeing(missing.len(), "this kind", "these kinds")
    );
    let next = "check the kubeconfig; if it is the right one, apply what `tidegate crds` prints";
    (!missing.is_empty()).then(|| Finding::new(Level::Blocks, Topic::Storage, message).next(next))
}

/// The kind of Tidegate's own without which the daemon has no definitions to read.
pub fn unserved_sources() -> Finding {
    let message = "the control plane does not serve GitSource: without this kind, the daemon does nothing";
    let next = "apply deploy/setup/crds/tidegate.dev_gitsources.yaml, or what `tidegate crds` prints";
    Finding::new(Level::Blocks, Topic::Storage, message).next(next)
}

/// Namespaces without any object of Lifecycle Manager. `has_others` says whether other namespaces of the landscape have
/// some.
pub fn empty(namespaces: &[String], has_others: bool) -> Option<Finding> {
    let names = namespaces.join(", ");
    let finding = match has_others {
        false => {
            let message = format!("there is no object of Lifecycle Manager in {names}, so there is nothing to do");
            let next = "check the kubeconfig, or select the namespaces of the landscape with -n";
            Finding::new(Level::Blocks, Topic::Definitions, message).next(next)
        }
        true => {
            let message = format!("there is no object of Lifecycle Manager in {names}");
            Finding::new(Level::Note, Topic::Definitions, message).next("check the spelling, or omit this -n")
        }
    };
    (!namespaces.is_empty()).then_some(finding)
}

/// Versions that the API server may still store.
pub fn storage(crds: &[StoredVersions]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for crd in crds.iter().filter(|crd| crd.is_outdated()) {
        let old: Vec<&str> = crd.stored.iter().filter(|stored| **stored != crd.storage).map(String::as_str).collect();
        let message = format!(
            "{}: the API server may store objects as {}; {} must be written again as {}",
            crd.name,
            old.join(", "),
            counted(crd.objects, "object"),
            crd.storage
        );
        findings.push(Finding::new(Level::Todo, Topic::Storage, message));
    }
    if crds.is_empty() {
        let message = "the control plane has no CustomResourceDefinition of Lifecycle Manager";
        let next = "check the kubeconfig, or install Tidegate without a take-over";
        findings.push(Finding::new(Level::Blocks, Topic::Storage, message).next(next));
    } else if findings.is_empty() {
        findings.push(Finding::new(Level::Ready, Topic::Storage, format!("all objects are stored as {KYMA_VERSION}")));
    }
    findings
}

/// Why no daemon can read the definitions that a command reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Uncommitted {
    /// They are in a folder without git.
    Folder,
    /// They are in a repository whose `HEAD` names this branch, which has no commit.
    All(String),
    /// They are not all in its last commit.
    Some,
    /// Its last commit cannot be read, for this reason.
    Unreadable(String),
}

/// What to do before the daemon can read what the command has read.
pub fn uncommitted(why: &Uncommitted) -> Finding {
    let (what, next) = match why {
        Uncommitted::Folder => {
            ("are in a folder without git".to_owned(), "make it a repository, and commit them".to_owned())
        }
        Uncommitted::All(branch) => (
            format!("are in a repository whose branch {} has no commit", yaml::short(branch)),
            "commit them, or name a revision with --rev".to_owned(),
        ),
        Uncommitted::Some => {
            ("have changes that are not committed".to_owned(), "commit them, or name a revision with --rev".to_owned())
        }
        Uncommitted::Unreadable(why) => {
            ("are in a repository whose HEAD cannot be read".to_owned(), format!("mend the repository: {why}"))
        }
    };
    let message = format!("the definitions {what}, and the daemon reads commits only");
    Finding::new(Level::Note, Topic::Definitions, message).next(next)
}

/// How definitions in git stand, by kind and key, and which objects in the control plane git does not declare.
pub fn definitions(standings: &[(Id, Standing)], undeclared: &BTreeMap<(Kind, Undeclared), Vec<Key>>) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut add = |level: Level, of: fn(&Standing) -> bool, (one, several): (&str, &str), next: Option<&str>| {
        let names: Vec<String> =
            standings.iter().filter(|(_, standing)| of(standing)).map(|(id, _)| intake::text(id)).collect();
        if !names.is_empty() {
            let count = names.len();
            let text = agreeing(count, one, several);
            let message = format!("{} in git {text}: {}", counted(count, "definition"), few(&names));
            let finding = Finding::new(level, Topic::Definitions, message);
            findings.push(Finding { next: next.map(str::to_owned), ..finding });
        }
    };
    let owned = ("belongs to this GitSource already", "belong to this GitSource already");
    add(Level::Ready, |one| *one == Standing::Owned, owned, None);
    let equal = (
        "says what the control plane has, and gets the ownership label",
        "say what the control plane has, and get the ownership label",
    );
    add(Level::Todo, |one| *one == Standing::Equal, equal, None);
    let absent = ("is not in the control plane, and is created", "are not in the control plane, and are created");
    add(Level::Note, |one| *one == Standing::Absent, absent, None);
    let terminating = ("is being deleted in the control plane", "are being deleted in the control plane");
    let next = Some("wait until the object is gone, or remove the definition from git");
    add(Level::Blocks, |one| *one == Standing::Terminating, terminating, next);
    for (id, standing) in standings {
        let name = intake::text(id);
        let finding = |message: String| Finding::new(Level::Blocks, Topic::Definitions, message);
        findings.push(match standing {
            Standing::Differs(path) => finding(format!("{name} differs from git in `{path}`")).next(format!(
                "{}; if git is right, annotate the definition with `{}: \"true\"`",
                what_differs(path),
                names::annotation::ADOPT
            )),
            Standing::Replaced(path) => Finding {
                level: Level::Note,
                ..finding(format!("{name} differs from git in `{path}`, and becomes what git says"))
            },
            Standing::OfSource(label) => finding(format!("{name} is owned by GitSource {label}"))
                .next("declare it in only one of the two sources"),
            Standing::OfTool(tool) => finding(format!("{name} is managed by {}", tool.text())).next(tool.steps(id)),
            Standing::Absent | Standing::Owned | Standing::Equal | Standing::Returned(_) | Standing::Terminating => {
                continue;
            }
        });
    }
    findings.extend(returned(standings));
    findings.extend(undeclared::findings(undeclared));
    findings
}

/// The definitions whose objects lack only what `adopt release` has removed.
fn returned(standings: &[(Id, Standing)]) -> Option<Finding> {
    let (mut names, mut annotations) = (Vec::new(), BTreeSet::new());
    for (id, standing) in standings {
        if let Standing::Returned(lost) = standing {
            names.push(intake::text(id));
            annotations.extend(lost.iter().map(String::as_str));
        }
    }
    let annotations: Vec<&str> = annotations.into_iter().collect();
    let message = format!(
        "{} in git {} more than the control plane only in annotations that `adopt release` removes ({}); git is right, \
         and the control plane gets them with the ownership label: {}",
        counted(names.len(), "definition"),
        agreeing(names.len(), "says", "say"),
        annotations.join(", "),
        few(&names)
    );
    (!names.is_empty()).then(|| Finding::new(Level::Todo, Topic::Definitions, message))
}

/// What to do about a field in which a definition in git differs from the control plane.
fn what_differs(path: &str) -> &'static str {
    match path.strip_prefix("metadata.annotations.").filter(|name| name.starts_with(OWN)) {
        Some(_) => "check which is right, because `adopt release` removes this annotation as well",
        None => "commit what the control plane has",
    }
}

/// Runtimes that would lose a module because git decides which modules they have: Kymas as they are after the
/// take-over, each with the modules that its runtime has.
pub fn modules(kymas: impl IntoIterator<Item = (Key, Kyma, Vec<String>)>) -> Vec<Finding> {
    let mut losing = Vec::new();
    for (key, kyma, installed) in kymas {
        let is_named = |module: &String| kyma.spec.modules.iter().any(|named| named.name == *module);
        let lost: Vec<&str> = installed.iter().filter(|module| !is_named(module)).map(String::as_str).collect();
        if plan::modules_from(&kyma) == ModulesFrom::Git && !lost.is_empty() {
            losing.push(format!("{key} ({})", lost.join(", ")));
        }
    }
    match losing.len() {
        0 => vec![Finding::new(Level::Ready, Topic::Modules, "git takes no module from a runtime")],
        count => {
            let message =
                format!("{} would lose modules that git does not name: {}", counted(count, "runtime"), few(&losing));
            let next = format!(
                "add the modules to the Kymas in git, or annotate these Kymas with `{}: runtime`",
                names::annotation::MODULES_FROM
            );
            vec![Finding::new(Level::Blocks, Topic::Modules, message).next(next)]
        }
    }
}

/// How runtimes are reached, by Kyma.
pub fn access(runtimes: &BTreeMap<Key, Access>) -> Vec<Finding> {
    let mut findings = Vec::new();
    let accepted = runtimes.values().filter(|access| **access == Access::Accepted).count();
    if accepted > 0 || runtimes.is_empty() {
        let secrets = agreeing(accepted, "Secret", "Secrets");
        let message = format!("Tidegate accepts the access {secrets} of {}", counted(accepted, "runtime"));
        findings.push(Finding::new(Level::Ready, Topic::Access, message));
    }
    let absent: Vec<String> =
        runtimes.iter().filter(|(_, access)| **access == Access::Absent).map(|(key, _)| key.to_string()).collect();
    if !absent.is_empty() {
        let has = agreeing(absent.len(), "has", "have");
        let message = format!("{} {has} no access Secret: {}", counted(absent.len(), "Kyma"), few(&absent));
        findings.push(Finding::new(Level::Note, Topic::Access, message));
    }
    for (key, access) in runtimes {
        let (message, next) = match access {
            Access::Accepted | Access::Absent => continue,
            Access::Several(names) => {
                (format!("Kyma {key} has several access Secrets: {}", few(names)), "delete all but one")
            }
            Access::Refused(why) => {
                (format!("Tidegate refuses the access Secret of Kyma {key}: {why}"), "change the kubeconfig in it")
            }
        };
        findings.push(Finding::new(Level::Blocks, Topic::Access, message).next(next));
    }
    findings
}

/// Who applied the objects in the control plane: how many objects of a kind each manager wrote.
pub fn field_managers(counts: &BTreeMap<(String, String), usize>) -> Vec<Finding> {
    let mut kinds: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for ((kind, manager), count) in counts {
        kinds.entry(kind).or_default().push(format!("{manager} {count}"));
    }
    let message = |(kind, managers): (&str, Vec<String>)| {
        Finding::new(Level::Note, Topic::Managers, format!("{kind}: {}", managers.join(", ")))
    };
    kinds.into_iter().map(message).collect()
}

/// Whether a Kyma says that its runtime stays as Lifecycle Manager left it.
pub fn is_adopted(kyma: &ObjectMeta) -> bool {
    landscape::annotation(kyma, names::annotation::ADOPTED) == Some("true")
}

/// The Manifest of a runtime that stays as Lifecycle Manager left it, without what only Tidegate notes on
/// Manifests: the digest of the component (row M7b). It is noted with the next change. `None` if the runtime does
/// not stay, or if the live Manifest has a digest. `noted` is that one.
pub fn without_note(kyma: &ObjectMeta, desired: &Object, noted: Option<&str>) -> Option<Object> {
    if !is_adopted(kyma) || noted.is_some() {
        return None;
    }
    let mut desired = desired.clone();
    let annotations = desired.metadata_mut().get_mut("annotations").and_then(Value::as_object_mut)?;
    annotations.shift_remove(names::annotation::COMPONENT_DIGEST)?;
    Some(desired)
}

/// What the first contact of Tidegate with a runtime finds there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Contact {
    /// What Lifecycle Manager left, and it stays: its status is on the Kyma.
    Left,
    /// Perhaps nothing: Lifecycle Manager has not reconciled the Kyma.
    New,
}

/// What the first contact with the runtime of a Kyma will find; `None` if it has taken place, or if the runtime leaves.
pub fn contact(kyma: &Kyma) -> Option<Contact> {
    let conditions = kyma.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
    let is_ours =
        [conditions::APPLIED, conditions::MODULE_COUNT].iter().any(|own| conditions::find(conditions, own).is_some());
    if is_ours || kyma.metadata.deletion_timestamp.is_some() {
        return None;
    }
    Some(if conditions.is_empty() { Contact::New } else { Contact::Left })
}

/// Whether a controller may have reached the runtime of a Kyma. Tidegate's condition says so until the Kyma is given
/// back, and Lifecycle Manager's afterwards: it is unknown until the first contact, and then keeps the last result.
pub fn was_reached(kyma: &Kyma) -> bool {
    let conditions = kyma.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
    let crds = conditions::find(conditions, conditions::kyma::Type::CrdsSync.as_str());
    conditions::find(conditions, conditions::APPLIED).is_some()
        || crds.is_some_and(|crds| crds.status != conditions::Status::Unknown.as_str())
}

/// Whether the runtime of a Kyma is to stay as Lifecycle Manager left it: its status is Lifecycle Manager's, and
/// Tidegate has not reconciled it yet.
pub fn may_be_held(kyma: &Kyma) -> bool {
    contact(kyma) == Some(Contact::Left)
}

/// The runtimes that are as Lifecycle Manager left them, by Kyma: those that were, and those that will be.
pub fn held(before: &[Key], next: &[Key]) -> Vec<Finding> {
    let finding = |level: Level, message: String| Finding::new(level, Topic::Runtimes, message);
    let names = |keys: &[Key]| few(&keys.iter().map(Key::to_string).collect::<Vec<_>>());
    let mut findings = Vec::new();
    if !next.is_empty() {
        let (runtimes, stays) = (counted(next.len(), "runtime"), agreeing(next.len(), "stays", "stay"));
        let message = format!(
            "{runtimes} {stays} as Lifecycle Manager has {}, until `tidegate adopt take --finish`: {}",
            agreeing(next.len(), "it", "them"),
            names(next)
        );
        findings.push(finding(Level::Todo, message));
    }
    if !before.is_empty() {
        let (runtimes, waits) = (counted(before.len(), "runtime"), agreeing(before.len(), "waits", "wait"));
        let message = format!("{runtimes} {waits} for `tidegate adopt take --finish`: {}", names(before));
        findings.push(finding(Level::Note, message));
    }
    findings
}

/// What Tidegate writes to runtimes when it first reaches them, by what it finds there. `runtimes` are those that it
/// can reach and has not reached yet.
pub fn first_contact(runtimes: &BTreeMap<Key, Contact>) -> Vec<Finding> {
    let classes = [
        (
            Contact::Left,
            "only the field managers of objects change, one write each, and the status of the Kyma",
            "`tidegate run --observe --once` names each object, and `tidegate diff --live` what waits for `take --finish`",
        ),
        (
            Contact::New,
            "Tidegate applies the CustomResourceDefinitions, the catalog, the modules and the agent, because Lifecycle \
             Manager has not reconciled the Kyma",
            "`tidegate run --observe --once` names each object and field",
        ),
    ];
    let finding = |(contact, what, next): (Contact, &str, &str)| {
        let of_class = runtimes.iter().filter(|(_, found)| **found == contact);
        let names: Vec<String> = of_class.map(|(key, _)| key.to_string()).collect();
        let message = format!("at the first contact with {}, {what}: {}", counted(names.len(), "runtime"), few(&names));
        (!names.is_empty()).then(|| Finding::new(Level::Note, Topic::Runtimes, message).next(next))
    };
    classes.into_iter().filter_map(finding).collect()
}

/// What the first contact takes from runtimes: those whose Kymas are being deleted, by Kyma. `runtimes` are those that
/// Tidegate can reach.
pub fn ending(runtimes: &[Key]) -> Option<Finding> {
    let names: Vec<String> = runtimes.iter().map(Key::to_string).collect();
    let message = format!(
        "at the first contact with {}, the daemon deletes all modules there, because {} being deleted: {}",
        counted(names.len(), "runtime"),
        agreeing(names.len(), "its Kyma is", "their Kymas are"),
        few(&names)
    );
    let next = "make sure that these modules may go: the deletion of a Kyma cannot be undone";
    (!names.is_empty()).then(|| Finding::new(Level::Note, Topic::Runtimes, message).next(next))
}

/// Whether nothing blocks the take-over.
pub fn may_begin(findings: &[Finding]) -> bool {
    findings.iter().all(|finding| finding.level != Level::Blocks)
}

// === impl StoredVersions ===

impl StoredVersions {
    /// Whether objects may be stored in another version than new ones.
    pub fn is_outdated(&self) -> bool {
        self.stored.iter().any(|stored| *stored != self.storage)
    }
}

#[cfg(test)]
mod tests;
