//! Decides whether an object that git no longer declares is deleted now, or what the deletion waits
//! for.
//!
//! Deletions are rare and confirmed. A user who confirms must see what is lost. So the diagnostic
//! of each waiting object names the runtimes, their losses, and the command to copy.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use super::{ConfirmBy, Decision, Id, Live, Moved, OtherTool, Policy, Situation, code, text};
use crate::{
    api::{
        Kyma,
        names::{annotation, label},
        setup,
        shared::ObjectMeta,
    },
    definition::Kind,
    diagnostic::Diagnostic,
    landscape,
    name::Key,
    plan::{self, ModulesFrom},
    revision::Oid,
    words::{agreeing, counted, few},
};

/// A module in a runtime, according to its Manifest.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Installed {
    /// The runtime's Kyma.
    pub runtime: Key,
    /// The module.
    pub module: String,
    /// Its version.
    pub version: String,
    /// What it is to its runtime.
    pub standing: Standing,
}

/// What an installed module is to its runtime.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Standing {
    /// The Kyma selects it.
    Selected,
    /// Every runtime has it.
    Mandatory,
    /// It is being removed.
    Leaving,
}

impl Standing {
    /// What the module of a Manifest is to its runtime.
    pub fn from_manifest(manifest: &ObjectMeta) -> Standing {
        if manifest.deletion_timestamp.is_some() {
            Standing::Leaving
        } else if plan::is_mandatory(manifest) {
            Standing::Mandatory
        } else {
            Standing::Selected
        }
    }
}

/// What a runtime loses by a prune, or keeps without the definitions that it is from.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Loss {
    /// The runtime's Kyma.
    pub runtime: Key,
    /// `module version`.
    pub module: String,
    /// What the module is to the runtime.
    pub standing: Standing,
}

impl From<&Installed> for Loss {
    fn from(one: &Installed) -> Loss {
        let module = format!("{} {}", one.module, one.version);
        Loss { runtime: one.runtime.clone(), module, standing: one.standing }
    }
}

/// Why an object that git no longer declares is not pruned now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wait {
    /// There is an error, so the set of declared objects may be incomplete.
    Errors,
    /// These sources have not been read, and one of them might declare it.
    Unread(Arc<[Key]>),
    /// The GitSource has `prune: false`.
    Off,
    /// The object has the annotation that disables its prune.
    Kept,
    /// The object cannot be read.
    Unreadable,
    /// Another tool manages the object.
    Tool(OtherTool),
    /// A user must confirm the prune.
    Unconfirmed(Vec<Loss>),
    /// Runtimes still have a version that the module no longer offers, or that leaves them with the module: it goes
    /// once none has it.
    InUse(Vec<Loss>),
    /// The prune exceeds the limit.
    Limit {
        /// The number of objects to prune.
        found: usize,
        /// The limit.
        limit: usize,
    },
    /// It is being deleted.
    Terminating,
}

/// A prune of fewer objects never exceeds the limit: a small source must be able to lose a file.
const LIMIT_MIN: usize = 5;
/// Maximum number of runtimes or objects that a diagnostic names. It only counts the rest.
pub(super) const NAMED_MAX: usize = 10;

/// Sorts the objects that the source no longer declares into `prune` and `waiting`.
pub(super) fn decide(situation: &Situation<'_>, errors: bool, decision: &mut Decision) {
    let gone = gone(situation, decision);
    let declared = situation.declared.len() + situation.withheld.len();
    let everything = declared == 0 || situation.moved != Moved::No;
    let confirmed = is_confirmed(situation);

    let mut losses = if gone.is_empty() { BTreeMap::new() } else { losses(situation.installed) };
    let mut unasked = Vec::new();
    for id in gone {
        let losses: Vec<Loss> = losses.remove(&id).unwrap_or_default().into_iter().collect();
        let unread = unread(situation, &id);
        let wait = if errors {
            Wait::Errors
        } else if !unread.is_empty() {
            Wait::Unread(unread)
        } else if !situation.policy.prune {
            Wait::Off
        } else if !everything
            && needs_confirmation(id.0, &losses)
            && (is_replaced(situation, &id, &losses) || is_left(situation, &id, &losses))
        {
            // It goes by itself. A confirmation is for something else.
            Wait::InUse(losses)
        } else if (everything || needs_confirmation(id.0, &losses)) && !confirmed {
            Wait::Unconfirmed(losses)
        } else {
            unasked.push(id);
            continue;
        };
        decision.waiting.insert(id, wait);
    }
    let limit = limit(situation.policy, declared);
    if limit < unasked.len() && !confirmed {
        let found = unasked.len();
        decision.waiting.extend(unasked.into_iter().map(|id| (id, Wait::Limit { found, limit })));
    } else {
        let uid = |id: &Id| situation.live.get(id).map(|live| Arc::clone(&live.uid)).unwrap_or_default();
        decision.prune = unasked.into_iter().map(|id| (id.clone(), uid(&id))).collect();
    }
    report(situation, decision);
}

/// The objects with the source's ownership label that it no longer declares, in the order of prune.
/// Cases without a choice go straight into the decision.
fn gone(situation: &Situation<'_>, decision: &mut Decision) -> Vec<Id> {
    let mut gone = Vec::new();
    for (id, live) in situation.live.iter().rev() {
        let ours = live.source.as_deref() == Some(situation.label);
        if !ours || situation.declared.contains_key(id) || situation.withheld.contains(id) {
            continue;
        }
        let heir = situation.others.values().find(|other| other.declares.as_ref().is_some_and(|ids| ids.contains(id)));
        if let Some(heir) = heir {
            decision.awaken.insert(heir.key.clone());
            decision.heirs.insert(id.clone(), heir.key.clone());
        } else if let Some(wait) = stays(live) {
            decision.waiting.insert(id.clone(), wait);
        } else {
            gone.push(id.clone());
        }
    }
    gone
}

/// What of an object itself keeps it from a prune, if something does.
pub fn stays(live: &Live) -> Option<Wait> {
    if live.deleting {
        Some(Wait::Terminating)
    } else if live.keep {
        Some(Wait::Kept)
    } else if live.unreadable {
        Some(Wait::Unreadable)
    } else {
        live.tool.clone().map(Wait::Tool)
    }
}

/// The sources that have not been read and might declare the object.
fn unread(situation: &Situation<'_>, id: &Id) -> Arc<[Key]> {
    situation.others.values().filter(|other| other.might_declare(id)).map(|other| other.key.clone()).collect()
}

/// Whether the deletion would, or might, uninstall something in a runtime.
fn needs_confirmation(kind: Kind, losses: &[Loss]) -> bool {
    match kind {
        // Without its ModuleReleaseMeta, a mandatory module is removed from every runtime, and no runtime can install
        // or update another one.
        Kind::Kyma | Kind::ModuleReleaseMeta => true,
        Kind::ModuleTemplate => !losses.is_empty(),
        // Its etcd has users' workspaces, and without it nothing leads to them.
        Kind::Setup(setup::Kind::RootShard | setup::Kind::Shard | setup::Kind::CacheServer) => true,
        Kind::Watcher
        | Kind::Setup(setup::Kind::FrontProxy | setup::Kind::VirtualWorkspace | setup::Kind::Kubeconfig) => false,
    }
}

/// Whether a ModuleTemplate has a version that its ModuleReleaseMeta, which the source still declares, no longer
/// offers. Then the rollout of another version replaces it in the runtimes that have it, and no runtime loses the
/// module.
fn is_replaced(situation: &Situation<'_>, id: &Id, losses: &[Loss]) -> bool {
    let offers_another = |loss: &Loss| {
        let module = loss.module.split(' ').next().unwrap_or_default();
        let release = situation.declared.get(&(Kind::ModuleReleaseMeta, Key::new(id.1.namespace(), module)));
        release.is_some_and(|release| !release.needs.is_empty() && !release.needs.contains(id))
    };
    id.0 == Kind::ModuleTemplate && losses.iter().all(offers_another)
}

/// Whether no runtime loses anything by the prune of a ModuleTemplate, because all that have its version lose the
/// module anyway.
fn is_left(situation: &Situation<'_>, id: &Id, losses: &[Loss]) -> bool {
    id.0 == Kind::ModuleTemplate && losses.iter().all(|loss| situation.leaving.contains(loss))
}

/// Whether a module leaves a runtime whatever happens to its definitions: the Kyma in KCP no longer has it, or that of
/// the same commit does not. `declared` is the definition of the Kyma. A runtime that is suspended, or becomes so with
/// the commit, keeps what it has.
pub fn is_leaving(installed: &Installed, live: Option<&Kyma>, declared: Option<&serde_json::Value>) -> bool {
    let Some(live) = live.filter(|live| !landscape::is_skipped(&live.metadata)) else { return false };
    let label = declared.and_then(|kyma| kyma["metadata"]["labels"][label::SKIP_RECONCILIATION].as_str());
    if label.is_some_and(landscape::says_true) {
        return false;
    }
    match installed.standing {
        Standing::Leaving => true,
        Standing::Mandatory => false,
        Standing::Selected => {
            let has_it = |kyma: &Kyma| kyma.spec.modules.iter().any(|module| module.name == installed.module);
            let is_dropped = || plan::modules_from(live) == ModulesFrom::Git && !has_it(live);
            is_dropped() || declared.is_some_and(|declared| is_undeclared(declared, &installed.module))
        }
    }
}

/// Whether git has all modules of a Kyma, and not this one.
fn is_undeclared(declared: &serde_json::Value, module: &str) -> bool {
    let from = declared["metadata"]["annotations"][annotation::MODULES_FROM].as_str();
    let modules = declared["spec"]["modules"].as_array();
    from.is_none_or(|from| from == "git") && modules.is_some_and(|all| all.iter().all(|one| one["name"] != module))
}

/// The losses of runtimes for each pruned object. Each installed module depends on three objects.
fn losses(installed: &[Installed]) -> BTreeMap<Id, BTreeSet<Loss>> {
    let mut losses: BTreeMap<Id, BTreeSet<Loss>> = BTreeMap::new();
    for one in installed {
        let Installed { runtime, module, version, .. } = one;
        let template = format!("{module}-{version}");
        for id in [
            (Kind::Kyma, runtime.clone()),
            (Kind::ModuleReleaseMeta, Key::new(runtime.namespace(), module)),
            (Kind::ModuleTemplate, Key::new(runtime.namespace(), &template)),
        ] {
            losses.entry(id).or_default().insert(Loss::from(one));
        }
    }
    losses
}

/// Whether a runtime keeps a module without its ModuleReleaseMeta or ModuleTemplate: its Kyma still selects it.
/// `goes` says whether the Kyma goes as well.
fn is_kept(loss: &Loss, leaving: &BTreeSet<Loss>, goes: impl Fn(&Id) -> bool) -> bool {
    loss.standing == Standing::Selected && !leaving.contains(loss) && !goes(&(Kind::Kyma, loss.runtime.clone()))
}

/// Maximum number of objects that are pruned without a confirmation.
pub(super) fn limit(policy: &Policy, declared: usize) -> usize {
    let share = declared * policy.limit_percent / 100;
    policy.limit_objects.min(share).max(LIMIT_MIN)
}

/// What confirms the deletion of everything with its GitSource, before the commit. A commit alone confirms only what
/// git removes, so a confirmation of that never covers the end of the source. No ref has a colon in its name.
const DELETION: &str = "deletion:";

/// The deletion of objects together with their GitSource, which a user must confirm.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnconfirmedEnd {
    /// What a user runs to confirm it.
    pub command: String,
    /// How many objects are then deleted.
    pub objects: usize,
    /// What runtimes would lose, and what a user can do, in one sentence.
    pub sentence: String,
}

/// Whether objects must not be deleted together with their GitSource yet. `None` if nothing needs a confirmation, or a
/// user has confirmed the deletion at the last commit.
pub fn unconfirmed_end(
    source: &Key,
    commit: Option<Oid>,
    objects: &BTreeSet<Id>,
    installed: &[Installed],
    policy: &Policy,
) -> Option<UnconfirmedEnd> {
    let confirmation =
        format!("{DELETION}{}", commit.map_or_else(|| "worktree".to_owned(), |commit| commit.to_string()));
    if policy.confirmed.as_deref() == Some(&*confirmation) {
        return None;
    }
    let mut losses = losses(installed);
    let losses_of = |id: &Id| (id.clone(), losses.remove(id).unwrap_or_default().into_iter().collect::<Vec<Loss>>());
    let with_losses: Vec<(Id, Vec<Loss>)> = objects.iter().rev().map(losses_of).collect();
    let dangerous: Vec<&(Id, Vec<Loss>)> =
        with_losses.iter().filter(|(id, losses)| needs_confirmation(id.0, losses)).collect();
    let limit = limit(policy, objects.len());
    if dangerous.is_empty() && objects.len() <= limit {
        return None;
    }
    let keeps = |loss: &Loss| is_kept(loss, &BTreeSet::new(), |id| objects.contains(id));
    let named =
        dangerous.iter().take(NAMED_MAX).map(|(id, losses)| format!("{}: {}; ", text(id), lost(id.0, losses, keeps)));
    let named: String = named.collect();
    let more = match dangerous.len().saturating_sub(NAMED_MAX) {
        0 => String::new(),
        more => format!("and {more} more like them; "),
    };
    let others = match (dangerous.len(), objects.len() - dangerous.len()) {
        (_, 0) => String::new(),
        (0, _) => format!("they are more than the prune limit of {limit}; "),
        (_, others) => {
            format!(
                "{} {} no module from a runtime; ",
                counted(others, "other object"),
                agreeing(others, "takes", "take")
            )
        }
    };
    let whats = format!("{}{named}{more}{others}", lost_elsewhere(objects, &with_losses));
    let command = policy.confirm_by.command(source, &confirmation);
    let number = counted(objects.len(), "object");
    let sentence = format!(
        "spec.deletionPolicy is Delete, and the deletion of {number} needs a confirmation: {whats}to delete them, run \
         `{command}`; to keep them, set spec.deletionPolicy to Orphan"
    );
    Some(UnconfirmedEnd { command, objects: objects.len(), sentence })
}

/// What runtimes lose, or keep without updates, whose Kymas stay, because another GitSource or client has created them:
/// the owner of the source may not think of them. Ends in a semicolon, or is empty.
fn lost_elsewhere(objects: &BTreeSet<Id>, with_losses: &[(Id, Vec<Loss>)]) -> String {
    let mut elsewhere: BTreeMap<&Key, [BTreeSet<&str>; 2]> = BTreeMap::new();
    let goes = |id: &Id| objects.contains(id);
    for loss in with_losses.iter().flat_map(|(_, losses)| losses) {
        if !goes(&(Kind::Kyma, loss.runtime.clone())) {
            let of_runtime = elsewhere.entry(&loss.runtime).or_default();
            of_runtime[usize::from(is_kept(loss, &BTreeSet::new(), goes))].insert(&loss.module);
        }
    }
    let named = elsewhere.iter().take(NAMED_MAX).map(|(runtime, of_runtime)| {
        let [loses, keeps] = of_runtime.each_ref().map(|modules| few(&modules.iter().copied().collect::<Vec<&str>>()));
        match of_runtime.each_ref().map(BTreeSet::is_empty) {
            [false, false] => format!("{runtime} loses {loses}, and keeps {keeps} without updates"),
            [true, _] => format!("{runtime} keeps {keeps} without updates"),
            [false, true] => format!("{runtime} loses {loses}"),
        }
    });
    let named = named.collect::<Vec<String>>().join(", ");
    let more = match elsewhere.len().saturating_sub(NAMED_MAX) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    match elsewhere.len() {
        0 => String::new(),
        1 => format!("the Kyma of 1 runtime stays, but {named}; "),
        count => format!("the Kymas of {count} runtimes stay, but {named}{more}; "),
    }
}

/// A confirmation is valid for one commit, whole or shortened: removals by a later commit need a new one.
pub(super) fn is_confirmed(situation: &Situation<'_>) -> bool {
    match (&situation.policy.confirmed, situation.commit) {
        (Some(text), Some(commit)) => {
            let commit = commit.to_string();
            let is_short = SHORT_COMMIT_MIN <= text.len() && commit.starts_with(text.as_str());
            is_short || text.strip_suffix(&commit).is_some_and(|name| name.ends_with("@sha1:"))
        }
        (Some(text), None) => text == "worktree",
        (None, _) => false,
    }
}

/// Fewest digits of a commit that name it, as git shows it.
const SHORT_COMMIT_MIN: usize = 7;

/// How far the confirmation of a user has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Confirmation {
    /// No user has confirmed the active revision.
    Missing,
    /// Objects are applied, pruned or being deleted: it will be spent soon.
    Acting,
    /// Something else must happen first, for example an error must go.
    Blocked,
    /// Everything is as the commit says, and nothing waits that the confirmation covers. A confirmation that stays
    /// would also cover what the same commit removes later, for example after a rollback to it.
    Spent,
}

/// How far the confirmation of a user has come. `decision` is the one after [`super::removal::hold`].
pub fn confirmation(situation: &Situation<'_>, decision: &Decision) -> Confirmation {
    if !is_confirmed(situation) {
        return Confirmation::Missing;
    }
    let is_settled = |wait: &Wait| match wait {
        Wait::Off | Wait::Kept | Wait::Tool(_) | Wait::InUse(_) => true,
        Wait::Errors
        | Wait::Unread(_)
        | Wait::Unreadable
        | Wait::Unconfirmed(_)
        | Wait::Limit { .. }
        | Wait::Terminating => false,
    };
    let Decision { apply, held, look_up, prune, waiting, .. } = decision;
    if !apply.is_empty() || !prune.is_empty() || waiting.values().any(|wait| *wait == Wait::Terminating) {
        Confirmation::Acting
    } else if !held.is_empty() || !look_up.is_empty() || !waiting.values().all(is_settled) {
        Confirmation::Blocked
    } else {
        Confirmation::Spent
    }
}

// === impl ConfirmBy ===

impl ConfirmBy {
    /// The command, or the option of one, that confirms the prunes and removals that wait.
    pub fn command(self, source: &Key, commit: &str) -> String {
        match self {
            ConfirmBy::Annotation => format!(
                "kubectl annotate gitsource -n {} {} {}={commit} --overwrite",
                source.namespace(),
                source.name(),
                annotation::CONFIRM_PRUNE
            ),
            ConfirmBy::Option => format!("{CONFIRM_OPTION}={commit}"),
        }
    }

    /// What a user does to confirm them, as the end of a sentence.
    pub fn instruction(self, source: &Key, commit: &str) -> String {
        let command = self.command(source, commit);
        match self {
            ConfirmBy::Annotation => format!("run `{command}`"),
            ConfirmBy::Option => format!("restart `tidegate run` with `{command}`"),
        }
    }

    /// What names the confirmed commit.
    pub(super) fn place(self) -> String {
        match self {
            ConfirmBy::Annotation => format!("annotation {} of the GitSource", annotation::CONFIRM_PRUNE),
            ConfirmBy::Option => format!("option {CONFIRM_OPTION}"),
        }
    }
}

/// The option of `tidegate run` that confirms a commit of a source of its command line.
const CONFIRM_OPTION: &str = "--confirm-prune";

/// One diagnostic for each object that a user must confirm, and one for each other reason to wait.
fn report(situation: &Situation<'_>, decision: &mut Decision) {
    let to_prune = situation.policy.confirm_by.instruction(situation.source, &situation.revision());
    let mut limited = None;
    let mut unread: BTreeMap<&Key, usize> = BTreeMap::new();
    let mut diagnostics = Vec::new();
    let keeps = |loss: &Loss| is_kept(loss, situation.leaving, |id| decision.waiting.contains_key(id));
    for (id, wait) in decision.waiting.iter().rev() {
        match wait {
            Wait::Unconfirmed(losses) => diagnostics.push(
                Diagnostic::warning(
                    code::PRUNE_UNCONFIRMED,
                    format!(
                        "{} is {}, and its prune needs a confirmation; {}",
                        text(id),
                        situation.moved.gone(),
                        lost(id.0, losses, keeps)
                    ),
                )
                .hint(format!("to prune it, {to_prune}")),
            ),
            Wait::Limit { found, limit } => limited = Some((*found, *limit)),
            Wait::Tool(tool) => diagnostics.push(Diagnostic::warning(
                code::PRUNE_OTHER_TOOL,
                format!("{} is removed from git, but not pruned, because {} manages it", text(id), tool.text()),
            )),
            Wait::Unread(sources) => sources.iter().for_each(|source| *unread.entry(source).or_default() += 1),
            Wait::Errors | Wait::Off | Wait::Kept | Wait::Unreadable | Wait::InUse(_) | Wait::Terminating => {}
        }
    }
    for (source, count) in unread.into_iter().take(NAMED_MAX) {
        let message = match count {
            1 => format!("1 object is removed from git, but not pruned, because GitSource {source} might declare it"),
            _ => format!(
                "{count} objects are removed from git, but not pruned, because GitSource {source} might declare them"
            ),
        };
        diagnostics.push(Diagnostic::warning(code::PRUNE_WAITS, message).hint(
            "correct that GitSource so that it can be read, say in its spec.allow what it may declare, or suspend it",
        ));
    }
    if let Some((found, limit)) = limited {
        diagnostics.push(
            Diagnostic::warning(
                code::PRUNE_LIMIT,
                format!("{found} objects are removed from git, more than the prune limit of {limit}"),
            )
            .hint(format!("to prune them, {to_prune}")),
        );
    }
    decision.diagnostics.extend(diagnostics);
}

/// What runtimes lose by the prune of an object, or keep without updates.
fn lost(kind: Kind, losses: &[Loss], keeps: impl Fn(&Loss) -> bool) -> String {
    let named = |losses: &[&Loss]| {
        let named = losses.iter().take(NAMED_MAX).map(|loss| match kind {
            Kind::Kyma => loss.module.clone(),
            Kind::ModuleTemplate | Kind::ModuleReleaseMeta | Kind::Watcher | Kind::Setup(_) => {
                format!("{} in runtime {}", loss.module, loss.runtime)
            }
        });
        let more = losses.len().saturating_sub(NAMED_MAX);
        let more = if more == 0 { String::new() } else { format!(" and {more} more") };
        format!("{}{more}", named.collect::<Vec<String>>().join(", "))
    };
    let (kept, lost): (Vec<&Loss>, Vec<&Loss>) = losses.iter().partition(|loss| kind != Kind::Kyma && keeps(loss));
    let keep = || format!("runtimes keep {}, without updates", named(&kept));
    match (kind, lost.is_empty(), kept.is_empty()) {
        (Kind::Setup(kind), ..) => lost_of_setup(kind).to_owned(),
        (_, true, true) => "no runtime has installed anything from it".to_owned(),
        (Kind::Kyma, ..) => format!("the runtime loses {}", named(&lost)),
        (_, false, true) => format!("runtimes lose {}", named(&lost)),
        (_, true, false) => keep(),
        (_, false, false) => format!("runtimes lose {}; {}", named(&lost), keep()),
    }
}

/// What is lost with a resource of a kcp landscape.
fn lost_of_setup(kind: setup::Kind) -> &'static str {
    match kind {
        setup::Kind::RootShard | setup::Kind::Shard => "nothing leads to its workspaces any more",
        setup::Kind::CacheServer => "its shards lose their cache",
        setup::Kind::FrontProxy => "its users are cut off",
        setup::Kind::VirtualWorkspace => "its shard serves no virtual workspaces any more",
        setup::Kind::Kubeconfig => "its certificate and its Secret go",
    }
}
