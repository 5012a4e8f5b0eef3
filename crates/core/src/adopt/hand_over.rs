//! Hands definitions over from Flux or Argo CD, one kind at a time: the steps that these tools need, and how far they
//! are. Pure.
//!
//! The order of the steps keeps every object. First the tool stops, then each object is protected from its prune, then
//! the tool's repository no longer names it, and only then its marks go, the protection last. A step is done if the
//! control plane shows it. Where it cannot show that, a user has to look and to say so, and no later step is next
//! before. The commands are for a user, and Tidegate runs none of them.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    str::FromStr,
};

use serde::Serialize;
use serde_json::Value;

use super::{managers, texts};
use crate::{
    definition::Kind,
    intake::{
        ARGO_INSTANCE, ARGO_TRACKING, FLUX_HELM_RELEASE, FLUX_KUSTOMIZATION, INSTANCE, Id, OtherTool, is_by_argo,
        resource,
    },
    name::Key,
    words::{agreeing, counted, few},
};

/// A tool that manages definitions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Program {
    /// Flux.
    Flux,
    /// Argo CD.
    ArgoCd,
}

/// How far a step is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Progress {
    /// The control plane shows that it is done.
    Done,
    /// The control plane does not show it, and a user says that it is done.
    Checked,
    /// The control plane does not show whether it is done: a user has to look.
    Check,
    /// To be done now.
    Next,
    /// To be done after the steps before it.
    Then,
}

/// What a step is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Aim {
    /// The tool applies nothing meanwhile.
    Stop,
    /// The tool does not delete the objects.
    Protect,
    /// The repository of the tool no longer has the objects.
    Remove,
    /// The objects bear no marks of the tool.
    Marks,
}

/// A step that a user has checked, for all definitions of a kind: `Kyma/remove`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Checked {
    /// The kind.
    pub kind: Kind,
    /// The step.
    pub aim: Aim,
}

/// The text does not name a step.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("use a kind and one of `stop`, `protect` and `remove`, for example `Kyma/remove`")]
pub struct UnknownStep;

/// One step of a hand-over.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Step {
    /// What it is for.
    pub aim: Aim,
    /// How far it is.
    pub progress: Progress,
    /// What to do, as one sentence.
    pub what: String,
    /// The commands for it; none if it is a change of a repository.
    pub commands: Vec<String>,
}

/// The definitions of one kind that one owner has in one namespace, and the steps that hand them over.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct HandOver {
    /// The kind.
    pub kind: String,
    /// Their namespace.
    pub namespace: String,
    /// Their owner, for example `the Flux Kustomization flux-system/landscape`.
    pub owner: String,
    /// Their names, sorted.
    pub names: Vec<String>,
    /// The steps, in their order.
    pub steps: Vec<Step>,
}

/// What is left on objects that bear no marks of the tool: a run of the last steps was cut off, or came too early.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Left {
    /// What it is, as one sentence.
    pub what: String,
    /// The commands for it; none if it is a change of a repository.
    pub commands: Vec<String>,
}

/// A step before its progress is known.
struct Draft {
    aim: Aim,
    /// Whether it is done; `None` if the control plane does not show that.
    is_done: Option<bool>,
    what: String,
    commands: Vec<String>,
}

/// The objects of one kind and owner in one namespace, in the order of kinds.
type Group = (usize, Kind, String, String);
/// The tool that manages objects, and the objects.
type Marked<'a> = (OtherTool, Vec<(&'a Id, &'a Value)>);

/// Names in one command.
const NAMES_IN_COMMAND_MAX: usize = 50;

const FLUX_PRUNE: &str = "kustomize.toolkit.fluxcd.io/prune";
const HELM_POLICY: &str = "helm.sh/resource-policy";
const ARGO_OPTIONS: &str = "argocd.argoproj.io/sync-options";
const ARGO_NO_PRUNE: &str = "Prune=false";
const ARGO_PRUNE: &str = "Prune=";
/// The last step. As long as an object has a mark, it has the protection as well.
const REMOVE_MARKS: &str = "remove its marks, in this order";

// === impl Program ===

impl Program {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Program::Flux => "Flux",
            Program::ArgoCd => "Argo CD",
        }
    }

    /// What manages definitions, in words.
    fn owner(self) -> &'static str {
        match self {
            Program::Flux => "the Flux Kustomization",
            Program::ArgoCd => "the Argo CD Application",
        }
    }

    /// Whether a Kustomization or an Application has an object.
    fn lists(self, owner: &Value, id: &Id) -> bool {
        match self {
            Program::Flux => is_in_inventory(owner, id),
            Program::ArgoCd => is_declared(owner, id),
        }
    }

    /// What protects an object from the prune, each as the end of a command that removes it: verb and change.
    fn protections(self, object: &Value) -> Vec<&'static str> {
        let metadata = &object["metadata"];
        let found = match self {
            Program::Flux => [
                (metadata["annotations"][FLUX_PRUNE] == "disabled")
                    .then_some("annotate kustomize.toolkit.fluxcd.io/prune-"),
                (metadata["labels"][FLUX_PRUNE] == "disabled").then_some("label kustomize.toolkit.fluxcd.io/prune-"),
            ],
            Program::ArgoCd => {
                [options(object).contains(&ARGO_NO_PRUNE).then_some("annotate argocd.argoproj.io/sync-options-"), None]
            }
        };
        found.into_iter().flatten().collect()
    }

    fn is_of(self, tool: &OtherTool) -> bool {
        match tool {
            OtherTool::Kustomization(_) | OtherTool::HelmRelease(_) => self == Program::Flux,
            OtherTool::Application(_) => self == Program::ArgoCd,
        }
    }
}

/// What is to be handed over, in the order in which definitions are applied. `live` are objects of the control plane,
/// and `owner` finds the object of the tool that manages them; `None` if it is not in this control plane. `checked` are
/// the steps of which a user says that they are done: it matters only where the control plane does not show it.
pub fn hand_overs<'a>(
    program: Program,
    live: impl IntoIterator<Item = (&'a Id, &'a Value)>,
    owner: impl Fn(&OtherTool) -> Option<&'a Value>,
    checked: &BTreeSet<Checked>,
) -> Vec<HandOver> {
    let mut groups: BTreeMap<Group, Marked<'_>> = BTreeMap::new();
    for (id, object) in live {
        let metadata = &object["metadata"];
        let tool =
            OtherTool::recognize(&texts(&metadata["labels"]), &texts(&metadata["annotations"]), &managers(object));
        let Some(tool) = tool.filter(|tool| program.is_of(tool)) else { continue };
        let group = (id.0.index(), id.0, id.1.namespace().to_owned(), tool.text());
        groups.entry(group).or_insert_with(|| (tool, Vec::new())).1.push((id, object));
    }
    let hand_over = |(group, (tool, mut objects)): (Group, Marked<'_>)| {
        let (_, kind, namespace, owner_name) = group;
        objects.sort_by_key(|(id, _)| *id);
        let is_checked = |aim: Aim| checked.contains(&Checked { kind, aim });
        let steps = ordered(drafts(kind, &namespace, &tool, owner(&tool), &objects), is_checked);
        let names = objects.iter().map(|(id, _)| id.1.name().to_owned()).collect();
        HandOver { kind: kind.to_string(), namespace, owner: owner_name, names, steps }
    };
    groups.into_iter().map(hand_over).collect()
}

/// What is left on objects without marks. `owners` are all objects of the tool by which it manages others: one that
/// still lists an object applies its marks again, or deletes it.
pub fn left<'a>(
    program: Program,
    live: impl IntoIterator<Item = (&'a Id, &'a Value)>,
    owners: &[(&Key, &Value)],
) -> Vec<Left> {
    let mut listed: BTreeMap<Group, Vec<String>> = BTreeMap::new();
    let mut protected: BTreeMap<(usize, Kind, String, &str), Vec<&str>> = BTreeMap::new();
    for (id, object) in live {
        let metadata = &object["metadata"];
        let tool =
            OtherTool::recognize(&texts(&metadata["labels"]), &texts(&metadata["annotations"]), &managers(object));
        // The others have their steps, or are of another tool.
        if tool.is_some() {
            continue;
        }
        let (index, kind, namespace) = (id.0.index(), id.0, id.1.namespace().to_owned());
        match owners.iter().find(|(_, owner)| program.lists(owner, id)) {
            Some((owner, _)) => {
                let owner = format!("{} {owner}", program.owner());
                listed.entry((index, kind, namespace, owner)).or_default().push(id.1.name().to_owned());
            }
            None => {
                for removal in program.protections(object) {
                    protected.entry((index, kind, namespace.clone(), removal)).or_default().push(id.1.name());
                }
            }
        }
    }
    let of_listed = |((_, kind, namespace, owner), names): (Group, Vec<String>)| Left {
        what: format!(
            "{owner} still lists {} in {namespace} without its marks: {}; remove {} from its repository, or it applies the \
             marks again",
            counted(names.len(), kind.as_str()),
            few(&names),
            agreeing(names.len(), "it", "them")
        ),
        commands: Vec::new(),
    };
    let of_protected = |((_, kind, namespace, removal), names): ((usize, Kind, String, &str), Vec<&str>)| {
        let (verb, change) = removal.split_once(' ').unwrap_or(("annotate", removal));
        Left {
            what: format!(
                "the protection from the prune of {} is left on {} in {namespace}",
                program.name(),
                counted(names.len(), kind.as_str())
            ),
            commands: for_names(verb, kind, &namespace, &names, change),
        }
    };
    listed.into_iter().map(of_listed).chain(protected.into_iter().map(of_protected)).collect()
}

/// The steps with their progress: the first one that is not done is next, or to be checked.
fn ordered(drafts: Vec<Draft>, is_checked: impl Fn(Aim) -> bool) -> Vec<Step> {
    let mut found = false;
    let step = |Draft { aim, is_done, what, commands }: Draft| {
        let progress = match is_done {
            Some(true) => Progress::Done,
            None if is_checked(aim) => Progress::Checked,
            Some(false) | None if found => Progress::Then,
            Some(false) => Progress::Next,
            None => Progress::Check,
        };
        found |= !matches!(progress, Progress::Done | Progress::Checked);
        Step { aim, progress, what, commands }
    };
    drafts.into_iter().map(step).collect()
}

fn drafts(
    kind: Kind,
    namespace: &str,
    tool: &OtherTool,
    owner: Option<&Value>,
    objects: &[(&Id, &Value)],
) -> Vec<Draft> {
    let kinds = format!("{kind}s");
    match tool {
        OtherTool::Kustomization(key) => of_kustomization((kind, namespace, &kinds), key, owner, objects),
        OtherTool::HelmRelease(key) => of_helm_release((kind, namespace, &kinds), key, objects),
        OtherTool::Application(name) => of_application((kind, namespace, &kinds), name, owner, objects),
    }
}

fn of_kustomization(
    (kind, namespace, kinds): (Kind, &str, &str),
    key: &Key,
    owner: Option<&Value>,
    objects: &[(&Id, &Value)],
) -> Vec<Draft> {
    let (name, of) = (key.name(), key.namespace());
    let has_left = owner.map(|owner| !objects.iter().any(|(id, _)| is_in_inventory(owner, id)));
    let is_suspended = owner.map(|owner| owner.pointer("/spec/suspend") == Some(&Value::Bool(true)));
    let is_protected = objects.iter().all(|(_, object)| {
        ["labels", "annotations"].iter().any(|field| object["metadata"][field][FLUX_PRUNE] == "disabled")
    });
    let selector = format!("-n {namespace} -l {}={name},{}={of}", FLUX_KUSTOMIZATION.0, FLUX_KUSTOMIZATION.1);
    let resource = resource(kind);
    // While it has the labels, it needs the protection. Without them, only its name selects it.
    let labels = format!("kubectl label {resource} {selector} {}- {}-", FLUX_KUSTOMIZATION.0, FLUX_KUSTOMIZATION.1);
    let mut marks = vec![labels];
    marks.extend(for_names("annotate", kind, namespace, &names_of(objects), &format!("{FLUX_PRUNE}-")));
    vec![
        Draft {
            aim: Aim::Stop,
            is_done: has_left.zip(is_suspended).map(|(has_left, is_suspended)| has_left || is_suspended),
            what: "suspend the Kustomization, so that it applies nothing meanwhile".to_owned(),
            commands: vec![format!("flux suspend kustomization {name} -n {of}")],
        },
        Draft {
            aim: Aim::Protect,
            is_done: Some(is_protected),
            what: format!("protect the {kinds} from its prune"),
            commands: vec![format!("kubectl annotate {resource} {selector} {FLUX_PRUNE}=disabled --overwrite")],
        },
        Draft {
            aim: Aim::Remove,
            is_done: has_left,
            what: format!("remove the {kinds} from the path of the Kustomization in its repository, then let it go on"),
            commands: vec![format!("flux resume kustomization {name} -n {of}")],
        },
        Draft { aim: Aim::Marks, is_done: Some(false), what: REMOVE_MARKS.to_owned(), commands: marks },
    ]
}

/// Helm reads the policy from the chart, not from the object. Which objects a release has stands in a Secret, which is
/// not read.
fn of_helm_release((kind, namespace, kinds): (Kind, &str, &str), key: &Key, objects: &[(&Id, &Value)]) -> Vec<Draft> {
    let (name, of) = (key.name(), key.namespace());
    let is_kept = objects.iter().all(|(_, object)| object["metadata"]["annotations"][HELM_POLICY] == "keep");
    let selector = format!("-n {namespace} -l {}={name},{}={of}", FLUX_HELM_RELEASE.0, FLUX_HELM_RELEASE.1);
    let resource = resource(kind);
    let labels = format!("kubectl label {resource} {selector} {}- {}-", FLUX_HELM_RELEASE.0, FLUX_HELM_RELEASE.1);
    let annotations = format!("meta.helm.sh/release-name- meta.helm.sh/release-namespace- {HELM_POLICY}-");
    let mut marks = vec![labels];
    marks.extend(for_names("annotate", kind, namespace, &names_of(objects), &annotations));
    vec![
        Draft {
            aim: Aim::Protect,
            is_done: Some(is_kept),
            what: format!(
                "annotate the {kinds} in the chart with `{HELM_POLICY}: keep`, and let Helm upgrade the release"
            ),
            commands: vec![format!("flux reconcile helmrelease {name} -n {of}")],
        },
        Draft {
            aim: Aim::Remove,
            is_done: None,
            what: format!(
                "remove the {kinds} from the chart, and let Helm upgrade the release: the manifest of the release must \
                 not have them any more"
            ),
            commands: vec![
                format!("flux reconcile helmrelease {name} -n {of}"),
                format!("helm get manifest {name} -n {of}"),
            ],
        },
        Draft { aim: Aim::Marks, is_done: Some(false), what: REMOVE_MARKS.to_owned(), commands: marks },
    ]
}

fn of_application(
    (kind, namespace, kinds): (Kind, &str, &str),
    name: &str,
    owner: Option<&Value>,
    objects: &[(&Id, &Value)],
) -> Vec<Draft> {
    let is_manual = owner.map(|owner| {
        let automated = owner.pointer("/spec/syncPolicy/automated");
        automated.is_none_or(|automated| automated.is_null() || automated["enabled"] == false)
    });
    let is_protected = objects.iter().all(|(_, object)| options(object).contains(&ARGO_NO_PRUNE));
    // What the repository no longer has stays in the list while it has its marks, and would be pruned.
    let has_left = owner.map(|owner| !objects.iter().any(|(id, _)| is_declared(owner, id)));
    let name = word(&of_command_line(name));
    let all = names_of(objects);
    // By this label, other tools recognize what is theirs as well.
    let by_label = objects
        .iter()
        .filter(|(_, object)| !object["metadata"]["labels"][INSTANCE].is_null() && is_by_argo(&managers(object)));
    let by_label: Vec<&str> = by_label.map(|(id, _)| id.1.name()).collect();
    let mut marks = for_names("annotate", kind, namespace, &all, &format!("{ARGO_TRACKING}- {ARGO_INSTANCE}-"));
    marks.extend(for_names("label", kind, namespace, &all, &format!("{ARGO_INSTANCE}-")));
    marks.extend(for_names("label", kind, namespace, &by_label, &format!("{INSTANCE}-")));
    marks.extend(for_names("annotate", kind, namespace, &all, &format!("{ARGO_OPTIONS}-")));
    vec![
        Draft {
            aim: Aim::Stop,
            is_done: is_manual,
            what: "turn automatic syncs of the Application off".to_owned(),
            commands: vec![format!("argocd app set {name} --sync-policy none")],
        },
        Draft {
            aim: Aim::Protect,
            is_done: Some(is_protected),
            what: format!("protect the {kinds} from its prune"),
            commands: protections(kind, namespace, objects),
        },
        Draft {
            aim: Aim::Remove,
            is_done: has_left,
            what: format!("remove the {kinds} from the repository of the Application, then refresh it"),
            commands: vec![format!("argocd app get {name} --refresh")],
        },
        Draft { aim: Aim::Marks, is_done: Some(false), what: REMOVE_MARKS.to_owned(), commands: marks },
    ]
}

/// Whether the inventory of a Kustomization has an object.
fn is_in_inventory(kustomization: &Value, (kind, key): &Id) -> bool {
    let (group, _) = kind.api();
    let id = format!("{}_{}_{group}_{kind}", key.namespace(), key.name());
    let mut entries =
        kustomization.pointer("/status/inventory/entries").and_then(Value::as_array).into_iter().flatten();
    entries.any(|entry| entry["id"] == id)
}

/// Whether the repository of an Application has an object. What it no longer has is to be pruned.
fn is_declared(application: &Value, (kind, key): &Id) -> bool {
    let resources = application.pointer("/status/resources").and_then(Value::as_array).into_iter().flatten();
    let mut declared = resources.filter(|one| one["requiresPruning"] != true);
    declared
        .any(|one| one["kind"] == kind.to_string() && one["namespace"] == key.namespace() && one["name"] == key.name())
}

/// The name of an Application as the command line of Argo CD takes it. Outside of Argo CD's own namespace, an object is
/// tracked by `NAMESPACE_NAME`, and neither of them contains that character.
fn of_command_line(name: &str) -> String {
    match name.split_once('_') {
        Some((namespace, name)) if !namespace.is_empty() && !name.is_empty() => format!("{namespace}/{name}"),
        Some(_) | None => name.to_owned(),
    }
}

/// The options that an object has for syncs of Argo CD.
fn options(object: &Value) -> Vec<&str> {
    let options = object["metadata"]["annotations"][ARGO_OPTIONS].as_str().unwrap_or_default();
    options.split(',').map(str::trim).filter(|option| !option.is_empty()).collect()
}

/// The commands that protect objects from a prune of Argo CD. Their other options stay.
fn protections(kind: Kind, namespace: &str, objects: &[(&Id, &Value)]) -> Vec<String> {
    let mut by_options: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for (id, object) in objects {
        let options = options(object);
        if options.contains(&ARGO_NO_PRUNE) {
            continue;
        }
        let others = options.into_iter().filter(|option| !option.starts_with(ARGO_PRUNE));
        let all: Vec<&str> = others.chain([ARGO_NO_PRUNE]).collect();
        by_options.entry(all.join(",")).or_default().push(id.1.name());
    }
    let commands = |(options, names): (&String, &Vec<&str>)| {
        let change = format!("{} --overwrite", word(&format!("{ARGO_OPTIONS}={options}")));
        for_names("annotate", kind, namespace, names, &change)
    };
    by_options.iter().flat_map(commands).collect()
}

fn names_of<'a>(objects: &[(&'a Id, &Value)]) -> Vec<&'a str> {
    objects.iter().map(|(id, _)| id.1.name()).collect()
}

/// Commands that change these objects, each with so many names as fit.
fn for_names(verb: &str, kind: Kind, namespace: &str, names: &[&str], change: &str) -> Vec<String> {
    let resource = resource(kind);
    let command = |names: &[&str]| format!("kubectl {verb} {resource} -n {namespace} {} {change}", names.join(" "));
    names.chunks(NAMES_IN_COMMAND_MAX).map(command).collect()
}

/// A name as one word of a shell. The name of an Application comes from an annotation, which may have any text.
fn word(name: &str) -> String {
    let name: String = name.chars().filter(|c| !c.is_control()).collect();
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./=,".contains(c);
    match !name.is_empty() && name.chars().all(is_plain) {
        true => name,
        false => format!("'{}'", name.replace('\'', "'\\''")),
    }
}

// === impl Aim ===

impl Aim {
    /// The word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Aim::Stop => "stop",
            Aim::Protect => "protect",
            Aim::Remove => "remove",
            Aim::Marks => "marks",
        }
    }
}

// === impl Checked ===

impl FromStr for Checked {
    type Err = UnknownStep;

    fn from_str(text: &str) -> Result<Checked, UnknownStep> {
        let (kind, aim) = text.split_once('/').ok_or(UnknownStep)?;
        let kind = Kind::ALL.into_iter().find(|one| one.as_str().eq_ignore_ascii_case(kind)).ok_or(UnknownStep)?;
        // The control plane shows the marks.
        let aim = [Aim::Stop, Aim::Protect, Aim::Remove].into_iter().find(|one| one.as_str() == aim);
        Ok(Checked { kind, aim: aim.ok_or(UnknownStep)? })
    }
}

impl fmt::Display for Checked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.kind, self.aim.as_str())
    }
}

// === impl HandOver ===

impl HandOver {
    /// One line, for example `2 Kymas of the Flux Kustomization flux-system/landscape in kcp-system`.
    pub fn title(&self) -> String {
        format!("{} of {} in {}", counted(self.names.len(), &self.kind), self.owner, self.namespace)
    }
}

#[cfg(test)]
mod tests;
