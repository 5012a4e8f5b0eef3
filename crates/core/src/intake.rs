//! What a git source means for what stands in KCP: which definitions are applied, which are refused and why, what is
//! pruned and what must wait.
//!
//! A decision over values: what the loaded sources declare, what stands in KCP, what the GitSource allows. Nothing is
//! read and nothing is sent from here. The rules, in one place each:
//!
//! * An object belongs to the source whose mark it bears. Its first owner keeps it; when the owner no longer declares
//!   it and another loaded source does, it moves without a delete (`ownership`).
//! * What exists without our mark is never applied over, unless the definition says so by annotation; what bears the
//!   marks of Flux or Argo CD is not applied over at all (`ownership`).
//! * Nothing is pruned while an error stands, while a source has not been read, or while someone must confirm it
//!   (`prune`).
//! * The status of a GitSource is computed once per pass (`status`).

pub mod code;
mod ownership;
mod prune;
pub mod status;
mod terms;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

pub use self::{
    ownership::OtherTool,
    prune::{Installed, Loss, Wait, confirm_command},
    terms::{Follow, Terms, TermsError, policy},
};
use crate::{
    api::names,
    definition::{Definition, Kind},
    diagnostic::{Diagnostic, Diagnostics, Place},
    name::Key,
    revision::Oid,
};

/// What a definition and its object in KCP are called. Ordered by kind in the order of apply, then by key.
pub type Id = (Kind, Key);

/// What this decision needs to know of a definition that may be applied.
#[derive(Clone, Debug)]
pub struct Declared {
    /// Digest of what is applied, as it stands in the annotation.
    pub digest: Arc<str>,
    /// Where it is written.
    pub place: Place,
    /// It says that an existing object without our mark may be taken over.
    pub adopt: bool,
    /// Definitions of the same source without which it must not be applied.
    pub needs: Vec<Id>,
}

/// What this decision needs to know of an object in KCP.
#[derive(Clone, Debug, Default)]
pub struct Live {
    /// Uid: a delete must hit this object and no later one of the same name.
    pub uid: Arc<str>,
    /// Value of the label that marks objects of git sources.
    pub source: Option<Arc<str>>,
    /// Digest of the definition that was last applied to it.
    pub digest: Option<Arc<str>>,
    /// A field that git sets has another value.
    pub drifted: bool,
    /// It is being deleted.
    pub deleting: bool,
    /// Its annotation says that it must not be pruned.
    pub keep: bool,
    /// Another GitOps tool takes care of it.
    pub tool: Option<OtherTool>,
    /// Names of its field managers; `None` where nobody asked the API server yet.
    pub managers: Option<Arc<[String]>>,
}

// === impl Live ===

impl Live {
    /// From an object's metadata. `managers` are the names of its field managers where they are known.
    pub fn of(metadata: &ObjectMeta, managers: Option<Arc<[String]>>) -> Live {
        let empty = BTreeMap::new();
        let labels = metadata.labels.as_ref().unwrap_or(&empty);
        let annotations = metadata.annotations.as_ref().unwrap_or(&empty);
        Live {
            uid: metadata.uid.as_deref().unwrap_or_default().into(),
            source: labels.get(names::label::SOURCE).map(|label| label.as_str().into()),
            digest: annotations.get(names::annotation::DIGEST).map(|digest| digest.as_str().into()),
            drifted: false,
            deleting: metadata.deletion_timestamp.is_some(),
            keep: annotations.get(names::annotation::PRUNE).is_some_and(|value| value == "disabled"),
            tool: OtherTool::of(labels, annotations, managers.as_deref().unwrap_or_default()),
            managers,
        }
    }
}

/// Another GitSource.
#[derive(Clone, Debug)]
pub struct Other {
    /// Namespace and name.
    pub key: Key,
    /// It is suspended or being deleted: nobody waits for it to be read.
    pub idle: bool,
    /// Everything that its last revision declares, broken definitions included; `None` until it has been read.
    pub declares: Option<Arc<BTreeSet<Id>>>,
}

/// What the GitSource says about deleting.
#[derive(Clone, Debug)]
pub struct Policy {
    /// Whether anything is pruned at all.
    pub prune: bool,
    /// Most objects that are pruned without a confirmation.
    pub limit_objects: usize,
    /// Largest share of what the source declares that is pruned without a confirmation.
    pub limit_percent: usize,
    /// The commit whose prunes the user confirmed, as written in the annotation.
    pub confirmed: Option<String>,
}

impl Default for Policy {
    fn default() -> Policy {
        Policy { prune: true, limit_objects: 50, limit_percent: 10, confirmed: None }
    }
}

/// All that a decision is made from.
#[derive(Clone, Copy, Debug)]
pub struct Situation<'a> {
    /// The source.
    pub source: &'a Key,
    /// The value of the label with which it marks objects.
    pub label: &'a str,
    /// The commit that is looked at; a folder without git has none.
    pub commit: Option<Oid>,
    /// The definitions that may be applied.
    pub declared: &'a BTreeMap<Id, Declared>,
    /// The definitions that are broken, or refer to a broken one: their objects stay as they are.
    pub withheld: &'a BTreeSet<Id>,
    /// What stands in KCP: every object that is declared, and every object that bears a source's mark.
    pub live: &'a BTreeMap<Id, Live>,
    /// The other sources by the value of their label.
    pub others: &'a BTreeMap<String, Other>,
    /// What runtimes have installed.
    pub installed: &'a [Installed],
    /// What the GitSource says about deleting.
    pub policy: &'a Policy,
    /// Whether a diagnostic of error level stands for this revision.
    pub errors: bool,
    /// The source's URL, ref or paths are not those of the last settled pass, or its branch was rewritten.
    pub moved: bool,
}

/// Why an object is applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// It does not exist.
    Absent,
    /// Its definition changed.
    Changed,
    /// Somebody else changed a field that git sets.
    Drifted,
    /// It existed without our mark, and its definition says that it may be taken over.
    Adopted,
    /// The source that owned it no longer declares it.
    Moved,
}

/// What is done about a source, and what is not.
#[derive(Debug, Default)]
pub struct Decision {
    /// What is applied, in this order.
    pub apply: Vec<(Id, Why)>,
    /// How many definitions stand in KCP as git has them.
    pub equal: usize,
    /// Namespaces in which nothing stands yet, so that they may be absent: they are created if an apply fails for it.
    pub namespaces: BTreeSet<Arc<str>>,
    /// Definitions that are good and still not applied, and why.
    pub held: BTreeMap<Id, Held>,
    /// Objects without our mark whose field managers must be known before the decision is final.
    pub look_up: BTreeSet<Id>,
    /// What is pruned, in this order: the reverse of apply.
    pub prune: Vec<(Id, Arc<str>)>,
    /// What git no longer declares and is still not pruned, and why.
    pub waiting: BTreeMap<Id, Wait>,
    /// Sources to which an object moves: their pass applies it.
    pub awaken: BTreeSet<Key>,
    /// Every refusal and every reason for waiting.
    pub diagnostics: Diagnostics,
}

/// A good definition that is not applied.
#[derive(Clone, Debug)]
pub struct Held {
    /// Where it is written.
    pub place: Place,
    /// Why, in one sentence.
    pub message: String,
    /// It only waits for an object to be gone; nobody has to do anything.
    pub terminating: bool,
}

/// Decides what is applied and pruned for one source.
pub fn decide(situation: &Situation<'_>) -> Decision {
    let mut decision = Decision::default();
    for (id, declared) in situation.declared {
        if let Some(held) = held_by_need(situation, id, declared, &decision) {
            decision
                .diagnostics
                .push(Diagnostic::warning(code::REFERS_TO_WITHHELD, held.message.clone()).at(held.place.clone()));
            decision.held.insert(id.clone(), held);
            continue;
        }
        match ownership::claim(situation, id, declared) {
            ownership::Claim::Equal => decision.equal += 1,
            ownership::Claim::Apply(why) => {
                decision.apply.push((id.clone(), why));
            }
            ownership::Claim::LookUp => {
                decision.look_up.insert(id.clone());
            }
            ownership::Claim::Terminating => {
                let message = format!("{} is being deleted in KCP; it is created again once it is gone", text(id));
                let held = Held { place: declared.place.clone(), message, terminating: true };
                let diagnostic = Diagnostic::warning(code::TERMINATING, held.message.clone());
                decision.diagnostics.push(diagnostic.at(held.place.clone()));
                decision.held.insert(id.clone(), held);
            }
            ownership::Claim::Refused(refusal) => {
                let diagnostic = refusal.diagnostic(id).at(declared.place.clone());
                let held =
                    Held { place: declared.place.clone(), message: diagnostic.message.clone(), terminating: false };
                decision.diagnostics.push(diagnostic);
                decision.held.insert(id.clone(), held);
            }
        }
    }
    decision.namespaces = namespaces(situation, &decision.apply);
    // A refusal is an error like any other: while it stands, the view of what should be there is not complete.
    let errors = situation.errors || decision.diagnostics.has_errors() || !decision.look_up.is_empty();
    prune::decide(situation, errors, &mut decision);
    decision
}

/// Holds a definition back that needs one which is held back: applied alone it would change runtimes to something that
/// git does not say. Kinds come in the order of apply, so what is needed has been decided before. A definition that
/// stands in KCP already changes nothing by staying.
fn held_by_need(situation: &Situation<'_>, id: &Id, declared: &Declared, decision: &Decision) -> Option<Held> {
    let (needed, cause) = declared.needs.iter().find_map(|needed| Some((needed, decision.held.get(needed)?)))?;
    if ownership::claim(situation, id, declared) == ownership::Claim::Equal {
        return None;
    }
    let message = format!("{} needs {}, which is withheld", text(id), text(needed));
    Some(Held { place: declared.place.clone(), message, terminating: cause.terminating })
}

/// Definitions without which one must not be applied: the ModuleTemplates that a ModuleReleaseMeta names.
pub fn needs(definition: &Definition) -> Vec<Id> {
    if definition.kind != Kind::ModuleReleaseMeta {
        return Vec::new();
    }
    let spec = &definition.object.value()["spec"];
    let channels = spec["channels"].as_array().into_iter().flatten().map(|channel| &channel["version"]);
    let versions = channels.chain([&spec["mandatory"]["version"]]).filter_map(serde_json::Value::as_str);
    let (namespace, module) = (definition.key.namespace(), definition.key.name());
    versions.map(|version| (Kind::ModuleTemplate, Key::new(namespace, &format!("{module}-{version}")))).collect()
}

/// How diagnostics call an object: `Kyma kcp-system/dev`.
pub fn text(id: &Id) -> String {
    format!("{} {}", id.0, id.1)
}

/// The namespaces of what is to be created, save those in which something stands already.
fn namespaces(situation: &Situation<'_>, apply: &[(Id, Why)]) -> BTreeSet<Arc<str>> {
    let absent: BTreeSet<&str> =
        apply.iter().filter(|(_, why)| *why == Why::Absent).map(|((_, key), _)| key.namespace()).collect();
    if absent.is_empty() {
        return BTreeSet::new();
    }
    let present: BTreeSet<&str> = situation.live.keys().map(|(_, key)| key.namespace()).collect();
    absent.difference(&present).map(|namespace| Arc::from(*namespace)).collect()
}

#[cfg(test)]
mod tests;
