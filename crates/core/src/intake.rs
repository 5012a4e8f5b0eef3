//! Decides what a git source means for the objects in KCP: which definitions are applied, which are
//! rejected and why, what is pruned and what must wait.
//!
//! The inputs are values: the declarations of the loaded sources, the objects in KCP, and the
//! settings of the GitSource. This module reads nothing and sends nothing. Each rule is in one
//! place:
//!
//! * The ownership label of an object names its source. The first owner keeps it. If the owner no
//!   longer declares it and another loaded source does, that source takes it over without a delete,
//!   if both say the same or its definition allows it by annotation (`ownership`).
//! * An existing object without Tidegate's ownership label is never overwritten, unless its definition allows it by
//!   annotation. An object that Flux or Argo CD manages is never overwritten (`ownership`).
//! * Nothing is pruned while there is an error, while a source has not been read that might declare the
//!   object, or while a user must confirm it (`prune`).
//! * What a commit takes from more runtimes than a limit is not applied before a user confirms it ([`removal`]).
//! * The status of a GitSource is computed once per pass (`status`).

pub mod code;
mod ownership;
mod prune;
pub mod removal;
mod source_file;
pub mod status;
mod terms;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

pub(crate) use self::ownership::{
    ARGO_INSTANCE, ARGO_TRACKING, FLUX_HELM_RELEASE, FLUX_KUSTOMIZATION, INSTANCE, is_by_argo, resource,
};
pub use self::{
    ownership::OtherTool,
    prune::{
        Confirmation, Installed, Loss, Standing, UnconfirmedEnd, Wait, confirmation, is_leaving, stays, unconfirmed_end,
    },
    removal::{Removals, WaitingRemoval},
    source_file::{SOME_URL, SourceFile, settings, several_sources, with_url},
    terms::{Follow, SignerRule, Terms, TermsError, Verify, field_problem, policy, timeout, verify},
};
use crate::{
    api::names,
    definition::{Allow, Definition, Kind},
    diagnostic::{Diagnostic, Diagnostics, FilePosition},
    landscape::Idle,
    name::Key,
    revision::Oid,
    yaml,
};

/// The id of a definition and of its object in KCP. Ordered by kind in the order of apply, then by
/// key.
pub type Id = (Kind, Key);

/// The facts about a valid definition.
#[derive(Clone, Debug)]
pub struct Declared {
    /// Digest of the object to apply, as in the annotation.
    pub digest: Arc<str>,
    /// Its place.
    pub place: FilePosition,
    /// Whether Tidegate may take over an existing object without Tidegate's ownership label, or one of another source
    /// with other content.
    pub adopt: bool,
    /// Definitions of the same source that it depends on, see [`needs`].
    pub needs: Vec<Id>,
}

/// The facts about an object in KCP.
#[derive(Clone, Debug, Default)]
pub struct Live {
    /// Its uid, so that a delete affects this object and no later one with the same name.
    pub uid: Arc<str>,
    /// Value of the label with its source.
    pub source: Option<Arc<str>>,
    /// Digest of the definition in the last apply.
    pub digest: Option<Arc<str>>,
    /// Whether another source has applied a definition that says the same, see [`crate::landscape::has_content`]; or,
    /// of an object that the source has left, whether it is as the definition says.
    pub same_content: bool,
    /// Whether this very source has left it without its label, because it was deleted: see
    /// [`crate::landscape::is_left_by`].
    pub left: bool,
    /// Whether a field from git has another value.
    pub drifted: bool,
    /// Whether its annotation names another file than git, and a user asked to correct that.
    pub displaced: bool,
    /// It is being deleted.
    pub deleting: bool,
    /// Whether its annotation disables its prune.
    pub keep: bool,
    /// Whether it does not match its type. Then it is not pruned.
    pub unreadable: bool,
    /// The other GitOps tool that manages it.
    pub tool: Option<OtherTool>,
    /// Names of its field managers; `None` if they have not been read yet.
    pub managers: Option<Arc<[String]>>,
}

// === impl Live ===

impl Live {
    /// Reads the metadata of an object. `managers` are the names of its field managers, if known.
    pub fn from_metadata(metadata: &ObjectMeta, managers: Option<Arc<[String]>>) -> Live {
        let empty = BTreeMap::new();
        let labels = metadata.labels.as_ref().unwrap_or(&empty);
        let annotations = metadata.annotations.as_ref().unwrap_or(&empty);
        Live {
            uid: metadata.uid.as_deref().unwrap_or_default().into(),
            source: labels.get(names::label::SOURCE).map(|label| label.as_str().into()),
            digest: annotations.get(names::annotation::DIGEST).map(|digest| digest.as_str().into()),
            same_content: false,
            left: false,
            drifted: false,
            displaced: false,
            deleting: metadata.deletion_timestamp.is_some(),
            keep: annotations.get(names::annotation::PRUNE).is_some_and(|value| value == "disabled"),
            unreadable: false,
            tool: OtherTool::recognize(labels, annotations, managers.as_deref().unwrap_or_default()),
            managers,
        }
    }
}

/// Another GitSource.
#[derive(Clone, Debug)]
pub struct Other {
    /// Namespace and name.
    pub key: Key,
    /// Whether it is suspended or being deleted. Then no other source waits until it is read.
    pub idle: bool,
    /// Everything that its last revision declares, including invalid definitions. `None` until it
    /// has been read.
    pub declares: Option<Arc<BTreeSet<Id>>>,
    /// What it may declare.
    pub allow: Allow,
}

// === impl Other ===

impl Other {
    /// Whether it has not been read and might declare an object. An object that it does declare must not be deleted:
    /// it would take the object over.
    pub fn might_declare(&self, id: &Id) -> bool {
        !self.idle && self.declares.is_none() && self.allow.admits(id.0, &id.1)
    }
}

/// How a user confirms what a commit removes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ConfirmBy {
    /// With an annotation of the GitSource.
    #[default]
    Annotation,
    /// With an option of `tidegate run`, whose command line has the source: no object has it.
    Option,
}

/// The prune settings of a GitSource.
#[derive(Clone, Debug)]
pub struct Policy {
    /// Whether pruning is enabled.
    pub prune: bool,
    /// Maximum number of objects that are pruned without a confirmation.
    pub limit_objects: usize,
    /// Maximum percentage of the declared objects that is pruned without a confirmation.
    pub limit_percent: usize,
    /// From how many runtimes a commit removes something of a module without a confirmation. By default, a share of
    /// the runtimes that have it, see [`removal`].
    pub removal_limit: Option<usize>,
    /// The commit whose prunes the user confirmed, as written in the annotation.
    pub confirmed: Option<String>,
    /// How a user confirms prunes.
    pub confirm_by: ConfirmBy,
}

impl Default for Policy {
    fn default() -> Policy {
        Policy {
            prune: true,
            limit_objects: 50,
            limit_percent: 10,
            removal_limit: None,
            confirmed: None,
            confirm_by: ConfirmBy::default(),
        }
    }
}

/// The inputs of a decision.
#[derive(Clone, Copy, Debug)]
pub struct Situation<'a> {
    /// The source.
    pub source: &'a Key,
    /// The value of its ownership label on objects.
    pub label: &'a str,
    /// The current commit. A folder without git has none.
    pub commit: Option<Oid>,
    /// The valid definitions.
    pub declared: &'a BTreeMap<Id, Declared>,
    /// The definitions that are invalid or refer to an invalid one. Their objects stay as they are.
    pub withheld: &'a BTreeSet<Id>,
    /// The place of the problem of each of them, also under the name that it is most likely meant to have.
    pub broken: &'a BTreeMap<Id, FilePosition>,
    /// The objects in KCP: every object that is declared or of `broken`, and every object with the ownership label of a
    /// source.
    pub live: &'a BTreeMap<Id, Live>,
    /// The other sources, by the value of their ownership label.
    pub others: &'a BTreeMap<String, Other>,
    /// The installed modules of runtimes.
    pub installed: &'a [Installed],
    /// Those that leave their runtimes anyway, because no Kyma has them any more.
    pub leaving: &'a BTreeSet<Loss>,
    /// The prune settings of the GitSource.
    pub policy: &'a Policy,
    /// Whether there is a diagnostic of error level for this revision.
    pub errors: bool,
    /// Whether something else than a commit may have removed objects since the last settled pass.
    pub moved: Moved,
}

/// What removes objects from a source, beside a commit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Moved {
    /// Nothing.
    #[default]
    No,
    /// URL, ref, paths or ignore of the GitSource changed.
    Spec,
    /// The branch was rewritten.
    Rewrite,
}

// === impl Moved ===

impl Moved {
    /// Why a source no longer has objects: the end of a sentence about them.
    pub fn gone(self) -> &'static str {
        match self {
            Moved::No => "removed from git",
            Moved::Spec => "no longer selected, because url, ref, paths or ignore of the GitSource changed",
            Moved::Rewrite => "removed from git by a rewrite of the branch",
        }
    }
}

// === impl Situation ===

impl Situation<'_> {
    /// What a user confirms: the commit, or `worktree` for a folder without git.
    fn revision(&self) -> String {
        self.commit.map_or_else(|| "worktree".to_owned(), |commit| commit.to_string())
    }
}

/// Why an object is applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// It does not exist.
    Absent,
    /// Its definition changed.
    Changed,
    /// Another client changed a field that git sets.
    Drifted,
    /// Its file moved, and a user asked to write its place.
    Displaced,
    /// It existed without Tidegate's ownership label, and its definition allows Tidegate to take it over.
    Adopted,
    /// Its former owner no longer declares it.
    Moved,
    /// The same, and this definition has other content, which it may take over.
    Replaced,
}

/// The decision for a source.
#[derive(Clone, Debug, Default)]
pub struct Decision {
    /// Whether something else than a commit removes what waits.
    pub moved: Moved,
    /// The objects to apply, in this order.
    pub apply: Vec<(Id, Why)>,
    /// The number of definitions that match their objects in KCP.
    pub equal: usize,
    /// Namespaces without objects, which may be missing. They are created if an apply fails for
    /// that reason.
    pub namespaces: BTreeSet<Arc<str>>,
    /// Valid definitions that are not applied, and why.
    pub held: BTreeMap<Id, Held>,
    /// What these would take from runtimes, if a user must confirm it.
    pub removals: Vec<WaitingRemoval>,
    /// Objects without Tidegate's ownership label whose field managers must be read before the decision is final.
    pub look_up: BTreeSet<Id>,
    /// The objects to prune, in this order: the reverse order of apply.
    pub prune: Vec<(Id, Arc<str>)>,
    /// Objects that git no longer declares and that are not pruned, and why.
    pub waiting: BTreeMap<Id, Wait>,
    /// Sources that take over an object: their pass applies it.
    pub awaken: BTreeSet<Key>,
    /// Objects that the source no longer declares and that another one declares: they stay, and that source takes them
    /// over.
    pub heirs: BTreeMap<Id, Key>,
    /// Objects of other sources that this one takes over with other content, once their owners no longer declare them,
    /// and what they then are: see [`status::takeover`].
    pub takeovers: BTreeMap<Id, status::Takeover>,
    /// Definitions that are not applied because another source owns the object and has not been read, each with that
    /// source; and those that depend on them.
    pub unread: BTreeMap<Id, Key>,
    /// All rejections and all reasons to wait.
    pub diagnostics: Diagnostics,
}

/// A valid definition that is not applied.
#[derive(Clone, Debug)]
pub struct Held {
    /// Where it is written.
    pub place: FilePosition,
    /// The reason, in one sentence.
    pub message: String,
    /// What it waits for.
    pub why: HeldFor,
    /// The place of the problem, if an invalid definition has it.
    pub cause: Option<FilePosition>,
}

// === impl Decision ===

impl Decision {
    /// The objects with the ownership label of the source that it no longer declares and that stay for now.
    pub fn undeclared(&self) -> impl Iterator<Item = &Id> {
        let all: BTreeSet<&Id> = self.waiting.keys().chain(self.heirs.keys()).collect();
        all.into_iter()
    }

    /// Leaves out the definitions that wait until one of these sources is read, and what is reported of them.
    pub fn set_aside(&mut self, sources: &BTreeSet<Key>) {
        let waits = self.unread.iter().filter(|(_, owner)| sources.contains(*owner));
        let held: Vec<Held> = waits.filter_map(|(id, _)| self.held.get(id)).cloned().collect();
        let places: BTreeSet<(&FilePosition, &str)> =
            held.iter().map(|held| (&held.place, held.message.as_str())).collect();
        let is_of_held = |found: &Diagnostic| {
            found.place.as_ref().is_some_and(|place| places.contains(&(place, found.message.as_str())))
        };
        let mut rest = Diagnostics::default();
        rest.extend(self.diagnostics.iter().filter(|found| !is_of_held(found)).cloned());
        self.diagnostics = rest;
        let unread = &self.unread;
        let waits = |id: &Id| unread.get(id).is_some_and(|owner| sources.contains(owner));
        self.held.retain(|id, _| !waits(id));
        self.takeovers.retain(|id, _| !waits(id));
        self.unread.retain(|_, owner| !sources.contains(owner));
    }
}

// === impl Held ===

impl Held {
    /// What a user does about it, if an invalid definition is the cause.
    pub fn hint(&self) -> Option<String> {
        let cause = self.cause.as_ref()?;
        Some(format!("correct it at {cause}; until then the control plane keeps its last good version"))
    }
}

/// What a valid definition waits for that is not applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeldFor {
    /// Until its problem is corrected: the object belongs to another owner.
    Problem,
    /// Until a definition that it depends on is no longer held back.
    Dependency,
    /// Until an object is deleted, so no user needs to act.
    Terminating,
    /// Until a user confirms what it takes from runtimes.
    Removal,
}

/// Decides what to apply and prune for one source.
pub fn decide(situation: &Situation<'_>) -> Decision {
    let mut decision = Decision { moved: situation.moved, ..Decision::default() };
    let mut without_release: BTreeMap<&Id, Vec<&Id>> = BTreeMap::new();
    for (id, declared) in situation.declared {
        if let Some((release, held)) = held_by_release(situation, id, declared) {
            without_release.entry(release).or_default().push(id);
            decision.held.insert(id.clone(), held);
            continue;
        }
        if let Some(held) = held_by_need(situation, id, declared, &decision) {
            decision
                .diagnostics
                .push(Diagnostic::warning(code::REFERS_TO_WITHHELD, held.message.clone()).at(held.place.clone()));
            let needed = declared.needs.iter().find(|needed| decision.held.contains_key(*needed));
            if let Some(owner) = needed.and_then(|needed| decision.unread.get(needed)).cloned() {
                decision.unread.insert(id.clone(), owner);
            }
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
                let message =
                    format!("{} is being deleted in KCP; Tidegate creates it again when it is gone", text(id));
                let held = Held { place: declared.place.clone(), message, why: HeldFor::Terminating, cause: None };
                let diagnostic = Diagnostic::warning(code::TERMINATING, held.message.clone());
                decision.diagnostics.push(diagnostic.at(held.place.clone()));
                decision.held.insert(id.clone(), held);
            }
            ownership::Claim::Refused(refusal) => {
                decision.unread.extend(refusal.unread().map(|owner| (id.clone(), owner.clone())));
                if refusal.adopts() {
                    decision.takeovers.insert(id.clone(), status::Takeover::default());
                }
                let diagnostic = refusal.diagnostic(id).at(declared.place.clone());
                let (place, message) = (declared.place.clone(), diagnostic.message.clone());
                let held = Held { place, message, why: HeldFor::Problem, cause: None };
                decision.diagnostics.push(diagnostic);
                decision.held.insert(id.clone(), held);
            }
        }
    }
    for (release, kymas) in without_release {
        decision.diagnostics.extend(report_without_release(situation, release, &kymas));
    }
    decision.namespaces = namespaces(situation, &decision.apply);
    // A rejection is an error like any other: with it, the desired set is incomplete.
    let errors = situation.errors || decision.diagnostics.has_errors() || !decision.look_up.is_empty();
    prune::decide(situation, errors, &mut decision);
    decision
}

/// Holds back a definition that depends on one that is held back: to apply it alone would change
/// runtimes to a state that git does not declare. Kinds come in the order of apply, so dependencies
/// are decided first. A definition that already matches its object in KCP is not affected.
fn held_by_need(situation: &Situation<'_>, id: &Id, declared: &Declared, decision: &Decision) -> Option<Held> {
    let (needed, cause) = declared.needs.iter().find_map(|needed| Some((needed, decision.held.get(needed)?)))?;
    let claim = ownership::claim(situation, id, declared);
    if claim == ownership::Claim::Equal {
        return None;
    }
    let waits = || format!("{} depends on {}, which is held back", text(id), text(needed));
    let (why, message) = match (cause.why, claim) {
        // It would be held back without the other one as well.
        (HeldFor::Problem | HeldFor::Dependency, ownership::Claim::Refused(refusal)) => {
            let own = refusal.diagnostic(id).message;
            (HeldFor::Problem, format!("{own}; it depends on {}, which is held back as well", text(needed)))
        }
        (HeldFor::Problem | HeldFor::Dependency, _) => (HeldFor::Dependency, waits()),
        (HeldFor::Terminating, _) => (HeldFor::Terminating, waits()),
        (HeldFor::Removal, _) => (HeldFor::Removal, waits()),
    };
    Some(Held { place: declared.place.clone(), message, why, cause: None })
}

/// Holds back a Kyma that names a module whose ModuleReleaseMeta is invalid and is not in KCP: there the module is
/// unknown, so the runtime would lose what the Kyma had instead, and get nothing. If KCP has the last valid one,
/// modules stay as they are. A Kyma that already matches its object in KCP is not affected. Returns the
/// ModuleReleaseMeta.
fn held_by_release<'a>(situation: &Situation<'a>, id: &Id, declared: &'a Declared) -> Option<(&'a Id, Held)> {
    if id.0 != Kind::Kyma {
        return None;
    }
    let broken = |needed: &&Id| situation.broken.contains_key(*needed) && !situation.live.contains_key(*needed);
    let release = declared.needs.iter().find(broken)?;
    if ownership::claim(situation, id, declared) == ownership::Claim::Equal {
        return None;
    }
    let message = format!(
        "{} names module {}, whose ModuleReleaseMeta is held back and is not in KCP",
        text(id),
        yaml::short(release.1.name())
    );
    let (place, cause) = (declared.place.clone(), situation.broken.get(release).cloned());
    Some((release, Held { place, message, why: HeldFor::Dependency, cause }))
}

/// One diagnostic for all Kymas that wait for a ModuleReleaseMeta.
fn report_without_release(situation: &Situation<'_>, release: &Id, kymas: &[&Id]) -> Option<Diagnostic> {
    let place = &situation.declared.get(*kymas.first()?)?.place;
    let named: Vec<String> = kymas.iter().take(prune::NAMED_MAX).map(|(_, key)| key.to_string()).collect();
    let (names, more) = match (kymas.len(), kymas.len().saturating_sub(prune::NAMED_MAX)) {
        (1, _) => ("1 Kyma names".to_owned(), String::new()),
        (all, 0) => (format!("{all} Kymas name"), String::new()),
        (all, more) => (format!("{all} Kymas name"), format!(" and {more} more")),
    };
    let message = format!(
        "{names} module {}, whose ModuleReleaseMeta is held back and is not in KCP: {}{more}",
        yaml::short(release.1.name()),
        named.join(", ")
    );
    let broken = situation.broken.get(release)?;
    let hint = format!("correct the ModuleReleaseMeta at {broken}; until then the Kymas in KCP stay as they are");
    Some(Diagnostic::warning(code::REFERS_TO_WITHHELD, message).hint(hint).at(place.clone()))
}

/// The definitions that a definition depends on: the ModuleTemplates of a ModuleReleaseMeta, and the ModuleReleaseMetas
/// of a Kyma that are in `broken`. The others need not be known: a Kyma is applied without them.
pub fn needs(definition: &Definition, broken: &BTreeMap<Id, FilePosition>) -> Vec<Id> {
    let spec = &definition.object.value()["spec"];
    match definition.kind {
        Kind::ModuleReleaseMeta => {}
        Kind::Kyma => {
            let modules = spec["modules"].as_array().into_iter().flatten();
            let names = modules.filter_map(|module| module["name"].as_str());
            let releases = names.map(|name| (Kind::ModuleReleaseMeta, Key::new(definition.key.namespace(), name)));
            return releases.filter(|release| broken.contains_key(release)).collect();
        }
        Kind::ModuleTemplate | Kind::Watcher | Kind::Setup(_) => return Vec::new(),
    }
    let channels = spec["channels"].as_array().into_iter().flatten().map(|channel| &channel["version"]);
    let versions = channels.chain([&spec["mandatory"]["version"]]).filter_map(serde_json::Value::as_str);
    let (namespace, module) = (definition.key.namespace(), definition.key.name());
    versions.map(|version| (Kind::ModuleTemplate, Key::new(namespace, &format!("{module}-{version}")))).collect()
}

/// What another source does with an object that this one no longer declares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HandOver<'r> {
    /// It takes the object over, unless its definition has other content and no leave to apply it.
    Same,
    /// It takes the object over with other content, which removes this from runtimes.
    Changes(&'r [removal::Removal]),
    /// Nothing, because it is suspended or being deleted.
    Idle(Idle),
}

/// What becomes of an object that a source no longer declares and `heir` declares: a sentence, and what a user may have
/// to do.
pub fn handed_over(id: &Id, heir: &Key, what_then: HandOver<'_>) -> (String, String) {
    let what = format!("{} is no longer declared, but is not deleted: GitSource {heir}", text(id));
    match what_then {
        HandOver::Same => {}
        HandOver::Changes(lost) => {
            let lost: String = removal::sentences(lost).iter().map(|sentence| format!("; {sentence}")).collect();
            let message = format!("{what} takes it over with other content{lost}");
            let hint = format!(
                "to keep the object as it is, make its definition in GitSource {heir} say the same before you remove \
                 this one"
            );
            return (message, hint);
        }
        HandOver::Idle(idle) => {
            let of_heir = format!("gitsource/{} -n {}", heir.name(), heir.namespace());
            let (then, hint) = match idle {
                Idle::Suspended => (
                    "is suspended, and takes it over once it resumes",
                    format!("to resume it, run `tidegate resume {of_heir}`"),
                ),
                Idle::Ending => (
                    "is being deleted: until it is gone, the object stays, and then it goes like others that git no \
                     longer declares",
                    format!("run `tidegate status {of_heir}` to see what its end waits for"),
                ),
                Idle::SuspendedEnding => (
                    "is suspended while it is being deleted: until it resumes and is gone, the object stays, and then it \
                     goes like others that git no longer declares",
                    format!("to let it end, run `tidegate resume {of_heir}`"),
                ),
            };
            return (format!("{what} declares it as well, but {then}"), hint);
        }
    }
    let message = format!("{what} declares it as well and takes it over");
    let hint = format!(
        "if its definition in GitSource {heir} has other content, the object stays as it is until that definition is \
         annotated with `{}: \"true\"`",
        names::annotation::ADOPT
    );
    (message, hint)
}

/// The name of an object in diagnostics: `Kyma kcp-system/dev`.
pub fn text(id: &Id) -> String {
    format!("{} {}", id.0, id.1)
}

/// The namespaces of objects that will be created, except those that already contain objects.
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
