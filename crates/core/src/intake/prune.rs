//! What git no longer declares: whether it is deleted now, and if not, what it waits for.
//!
//! Deleting is rare and confirmed. Whoever confirms must be able to read what is lost, so each waiting object names
//! the runtimes and what they lose, and the command to copy.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use super::{Decision, Id, OtherTool, Situation, code, text};
use crate::{api::names::annotation, definition::Kind, diagnostic::Diagnostic, name::Key};

/// A module in a runtime, as its Manifest says.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Installed {
    /// The runtime's Kyma.
    pub runtime: Key,
    /// The module.
    pub module: String,
    /// Its version.
    pub version: String,
}

/// What a runtime loses by a prune.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Loss {
    /// The runtime's Kyma.
    pub runtime: Key,
    /// `module version`.
    pub module: String,
}

/// Why something that git no longer declares is not pruned now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wait {
    /// An error stands, so that what is declared is not known for sure.
    Errors,
    /// These sources have not been read: one of them might declare it.
    Unread(Arc<[Key]>),
    /// The GitSource says `prune: false`.
    Off,
    /// The object's annotation says that it stays.
    Kept,
    /// Another tool applies the object by now.
    Tool(OtherTool),
    /// Someone must confirm it.
    Unconfirmed(Vec<Loss>),
    /// Too many at once.
    Limit {
        /// How many would be pruned.
        found: usize,
        /// How many may be.
        limit: usize,
    },
    /// It is being deleted.
    Terminating,
}

/// Fewer than this many are never too many: a small source must be able to lose a file.
const LIMIT_MIN: usize = 5;
/// A diagnostic names at most this many runtimes or objects; the rest is a number.
const NAMED_MAX: usize = 10;

/// Sorts what the source no longer declares into `prune` and `waiting`.
pub(super) fn decide(situation: &Situation<'_>, errors: bool, decision: &mut Decision) {
    let gone = gone(situation, decision);
    let declared = situation.declared.len() + situation.withheld.len();
    let everything = declared == 0 || situation.moved;
    let unread: Arc<[Key]> = situation
        .others
        .values()
        .filter(|other| !other.idle && other.declares.is_none())
        .map(|other| other.key.clone())
        .collect();
    let confirmed = is_confirmed(situation);

    let mut losses = if gone.is_empty() { BTreeMap::new() } else { losses(situation.installed) };
    let mut unasked = Vec::new();
    for id in gone {
        let losses: Vec<Loss> = losses.remove(&id).unwrap_or_default().into_iter().collect();
        let wait = if errors {
            Wait::Errors
        } else if !unread.is_empty() {
            Wait::Unread(Arc::clone(&unread))
        } else if !situation.policy.prune {
            Wait::Off
        } else if (everything || needs_confirmation(id.0, &losses)) && !confirmed {
            Wait::Unconfirmed(losses)
        } else {
            unasked.push(id);
            continue;
        };
        decision.waiting.insert(id, wait);
    }
    let limit = limit(situation, declared);
    if limit < unasked.len() && !confirmed {
        let found = unasked.len();
        decision.waiting.extend(unasked.into_iter().map(|id| (id, Wait::Limit { found, limit })));
    } else {
        let uid = |id: &Id| situation.live.get(id).map(|live| Arc::clone(&live.uid)).unwrap_or_default();
        decision.prune = unasked.into_iter().map(|id| (id.clone(), uid(&id))).collect();
    }
    report(situation, decision);
}

/// What bears the source's mark and is not declared by it, in the order of prune. What settles itself goes straight
/// into the decision.
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
        } else if live.deleting {
            decision.waiting.insert(id.clone(), Wait::Terminating);
        } else if live.keep {
            decision.waiting.insert(id.clone(), Wait::Kept);
        } else if let Some(tool) = &live.tool {
            decision.waiting.insert(id.clone(), Wait::Tool(tool.clone()));
        } else {
            gone.push(id.clone());
        }
    }
    gone
}

/// Whether deleting this would uninstall something in a runtime, or might.
fn needs_confirmation(kind: Kind, losses: &[Loss]) -> bool {
    match kind {
        // Without its ModuleReleaseMeta a module leaves every runtime, also those that are about to install it.
        Kind::Kyma | Kind::ModuleReleaseMeta => true,
        Kind::ModuleTemplate => !losses.is_empty(),
        Kind::Watcher => false,
    }
}

/// What runtimes lose, by what is pruned. Each installed module hangs on three objects.
fn losses(installed: &[Installed]) -> BTreeMap<Id, BTreeSet<Loss>> {
    let mut losses: BTreeMap<Id, BTreeSet<Loss>> = BTreeMap::new();
    for Installed { runtime, module, version } in installed {
        let template = format!("{module}-{version}");
        for id in [
            (Kind::Kyma, runtime.clone()),
            (Kind::ModuleReleaseMeta, Key::new(runtime.namespace(), module)),
            (Kind::ModuleTemplate, Key::new(runtime.namespace(), &template)),
        ] {
            let loss = Loss { runtime: runtime.clone(), module: format!("{module} {version}") };
            losses.entry(id).or_default().insert(loss);
        }
    }
    losses
}

/// Most objects that are pruned without a confirmation.
pub(super) fn limit(situation: &Situation<'_>, declared: usize) -> usize {
    let share = declared * situation.policy.limit_percent / 100;
    situation.policy.limit_objects.min(share).max(LIMIT_MIN)
}

/// A confirmation holds for one commit: what a later one removes must be confirmed again.
fn is_confirmed(situation: &Situation<'_>) -> bool {
    match (&situation.policy.confirmed, situation.commit) {
        (Some(text), Some(commit)) => {
            let commit = commit.to_string();
            *text == commit || text.strip_suffix(&commit).is_some_and(|name| name.ends_with("@sha1:"))
        }
        (Some(text), None) => text == "worktree",
        (None, _) => false,
    }
}

/// The command that confirms what waits.
pub fn confirm_command(source: &Key, commit: &str) -> String {
    format!(
        "kubectl annotate gitsource -n {} {} {}={commit} --overwrite",
        source.namespace(),
        source.name(),
        annotation::CONFIRM_PRUNE
    )
}

/// One diagnostic for each object that someone must confirm, and one for everything else that waits for one reason.
fn report(situation: &Situation<'_>, decision: &mut Decision) {
    let commit = situation.commit.map_or_else(|| "worktree".to_owned(), |commit| commit.to_string());
    let command = confirm_command(situation.source, &commit);
    let mut limited = None;
    let mut diagnostics = Vec::new();
    for (id, wait) in decision.waiting.iter().rev() {
        match wait {
            Wait::Unconfirmed(losses) => diagnostics.push(
                Diagnostic::warning(
                    code::PRUNE_UNCONFIRMED,
                    format!("{} is gone from git and waits to be pruned; {}", text(id), lost(id.0, losses)),
                )
                .hint(format!("to let it go, run `{command}`")),
            ),
            Wait::Limit { found, limit } => limited = Some((*found, *limit)),
            Wait::Tool(tool) => diagnostics.push(Diagnostic::warning(
                code::PRUNE_OTHER_TOOL,
                format!("{} is gone from git and stays, since {} manages it", text(id), tool.text()),
            )),
            Wait::Errors | Wait::Unread(_) | Wait::Off | Wait::Kept | Wait::Terminating => {}
        }
    }
    if let Some((found, limit)) = limited {
        diagnostics.push(
            Diagnostic::warning(
                code::PRUNE_LIMIT,
                format!("{found} objects are gone from git, more than the {limit} that are pruned at once"),
            )
            .hint(format!("to let them go, run `{command}`")),
        );
    }
    decision.diagnostics.extend(diagnostics);
}

fn lost(kind: Kind, losses: &[Loss]) -> String {
    let named: Vec<String> = losses
        .iter()
        .take(NAMED_MAX)
        .map(|loss| match kind {
            Kind::Kyma => loss.module.clone(),
            Kind::ModuleTemplate | Kind::ModuleReleaseMeta | Kind::Watcher => {
                format!("{} in runtime {}", loss.module, loss.runtime)
            }
        })
        .collect();
    let more = losses.len().saturating_sub(NAMED_MAX);
    let more = if more == 0 { String::new() } else { format!(" and {more} more") };
    match (kind, named.is_empty()) {
        (_, true) => "no runtime has anything installed from it".to_owned(),
        (Kind::Kyma, false) => format!("the runtime loses {}{more}", named.join(", ")),
        (_, false) => format!("lost are {}{more}", named.join(", ")),
    }
}
