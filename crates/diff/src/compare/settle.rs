//! Computes what the control plane contains after the new side is merged: its valid definitions,
//! the old version of definitions that are held back, and objects that are not deleted although
//! they are no longer declared. The rules are those of the daemon.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use tidegate_core::{
    api::shared::ObjectMeta,
    definition::{Definition, Definitions, Kind, Withheld},
    intake::{self, Declared, Id, Installed, Live, Policy, Situation, Wait},
    landscape::SourceName,
    name::Key,
};

use crate::model::{Held, Why};

/// The future active definitions, and what is held.
pub(super) struct Settled {
    /// The future active definitions.
    pub(super) definitions: Definitions,
    /// Definitions whose deletion a user must confirm.
    pub(super) unconfirmed: BTreeSet<Id>,
    /// Definitions that are held back or kept. Their runtimes are added later.
    pub(super) held: Vec<Held>,
}

/// Decides about everything that either side declares.
///
/// `installed` returns the modules of runtimes on the old side. It is only called if something is
/// deleted.
pub(super) fn settle(
    from: &Definitions,
    to: &Definitions,
    errors: bool,
    source: &SourceName,
    policy: &Policy,
    installed: &dyn Fn() -> Vec<Installed>,
) -> Settled {
    let mut good = to.good.clone();
    let mut modules = to.modules.clone();
    let mut held = Vec::new();
    for withheld in &to.withheld {
        held.push(held_back(withheld));
        if let Some(before) = from.good.get(&(withheld.kind, withheld.key.clone())) {
            good.insert((withheld.kind, withheld.key.clone()), Arc::clone(before));
        }
    }
    let declared = to.declared();
    let gone: BTreeMap<&Id, &Arc<Definition>> = from.good.iter().filter(|(id, _)| !declared.contains(*id)).collect();
    let mut unconfirmed = BTreeSet::new();
    if !gone.is_empty() {
        let decision = decide(&gone, to, errors, source, policy, &installed());
        for (id, wait) in &decision {
            let Some(definition) = gone.get(id) else { continue };
            match wait {
                Wait::Unconfirmed(_) | Wait::Limit { .. } => {
                    unconfirmed.insert(id.clone());
                }
                Wait::Errors
                | Wait::Unread(_)
                | Wait::Off
                | Wait::Kept
                | Wait::Unreadable
                | Wait::Tool(_)
                | Wait::Terminating => {
                    good.insert(id.clone(), Arc::clone(definition));
                    held.push(kept(id, definition, wait));
                }
            }
        }
    }
    // Kept objects may refer to objects that only the old side has.
    for (tree, objects) in &from.modules {
        modules.entry(*tree).or_insert_with(|| Arc::clone(objects));
    }
    let (withheld, outside, unfit) = (to.withheld.clone(), to.outside.clone(), to.unfit.clone());
    let definitions = Definitions { good, withheld, modules, unfit, outside, files: to.files };
    Settled { definitions, unconfirmed, held }
}

/// The waiting prunes, and their reasons. All other removed objects are pruned immediately.
fn decide(
    gone: &BTreeMap<&Id, &Arc<Definition>>,
    to: &Definitions,
    errors: bool,
    source: &SourceName,
    policy: &Policy,
    installed: &[Installed],
) -> BTreeMap<Id, Wait> {
    let label = source.label_value();
    let digest: Arc<str> = "".into();
    let declared: BTreeMap<Id, Declared> = to
        .good
        .iter()
        .map(|(id, definition)| {
            let place = definition.place.clone();
            (id.clone(), Declared { digest: Arc::clone(&digest), place, adopt: false, needs: Vec::new() })
        })
        .collect();
    let withheld: BTreeSet<Id> = to.withheld.iter().map(|one| (one.kind, one.key.clone())).collect();
    let live: BTreeMap<Id, Live> = gone
        .iter()
        .map(|(id, definition)| {
            let metadata: ObjectMeta = definition
                .object
                .field("metadata")
                .and_then(|value| serde_json::from_value(value.clone()).ok())
                .unwrap_or_default();
            ((*id).clone(), Live { source: Some(label.as_str().into()), ..Live::from_metadata(&metadata, None) })
        })
        .collect();
    let others = BTreeMap::new();
    let decision = intake::decide(&Situation {
        source: source.key(),
        label: &label,
        commit: None,
        declared: &declared,
        withheld: &withheld,
        live: &live,
        others: &others,
        installed,
        policy,
        errors,
        moved: false,
    });
    decision.waiting
}

fn held_back(withheld: &Withheld) -> Held {
    let (module, runtimes): (String, Arc<[Key]>) = match withheld.kind {
        Kind::Kyma => (String::new(), [withheld.key.clone()].into()),
        Kind::ModuleTemplate | Kind::ModuleReleaseMeta | Kind::Watcher => {
            (withheld.key.name().to_owned(), Arc::default())
        }
    };
    Held {
        why: Why::Withheld,
        module,
        runtimes,
        message: format!("{} {} is held back: {}", withheld.kind, withheld.key, withheld.message),
        hint: Some("correct it; until then the control plane keeps its last good version".to_owned()),
        place: Some(withheld.place.clone()),
    }
}

fn kept(id: &Id, definition: &Definition, wait: &Wait) -> Held {
    let (reason, hint) = match wait {
        Wait::Errors => ("Tidegate prunes nothing while there are errors", Some("correct the errors first")),
        Wait::Off => ("the GitSource has `prune: false`", None),
        Wait::Kept => ("its annotation `tidegate.dev/prune: disabled` protects it", None),
        Wait::Tool(_) => ("another tool manages it", None),
        Wait::Unread(_) => ("another source may declare it", None),
        Wait::Unreadable => ("it cannot be read", None),
        Wait::Terminating | Wait::Unconfirmed(_) | Wait::Limit { .. } => ("it waits", None),
    };
    let (kind, key) = id;
    let (module, runtimes): (String, Arc<[Key]>) = match kind {
        Kind::Kyma => (String::new(), [key.clone()].into()),
        Kind::ModuleTemplate | Kind::ModuleReleaseMeta | Kind::Watcher => (key.name().to_owned(), Arc::default()),
    };
    Held {
        why: Why::Kept,
        module,
        runtimes,
        message: format!("{} is no longer declared, but is not deleted: {reason}", intake::text(id)),
        hint: hint.map(str::to_owned),
        place: Some(definition.place.clone()),
    }
}
