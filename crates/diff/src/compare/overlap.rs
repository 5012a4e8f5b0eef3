//! Objects that more than one module contains. Of the modules of a runtime one owns the object: its
//! previous owner, otherwise the first by name. For the others it is in conflict, as with any other
//! owner. If an object moves between modules, the first deletes it and the second creates it again.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use tidegate_core::{
    changes::{self, Purpose, Verdict},
    definition::{Definitions, Kind},
    name::Key,
    object::{Object, ObjectId},
    plan::{InstallSource, ModuleOutcome},
    revision::Oid,
};

/// The objects that several modules of either side contain.
#[derive(Debug, Default)]
pub(super) struct Overlaps {
    /// By the tree of a module.
    objects: BTreeMap<Oid, BTreeSet<ObjectId>>,
    modules: BTreeSet<Key>,
}

/// The result for one object that several modules contain.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Clash {
    pub(super) id: ObjectId,
    pub(super) fate: Fate,
    /// Whether it differs from the old side.
    pub(super) is_news: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Fate {
    /// This module owns it, without conflict.
    Theirs(Other),
    /// It moves from this module, which deletes it first.
    Comes(Other),
    /// It moves to another module, or was never owned by this one; the other module reports it.
    Goes,
}

/// Another module with the object, and the tree that contains it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Other {
    pub(super) module: String,
    pub(super) tree: Oid,
    /// Whether the tree is from the new side.
    pub(super) is_new: bool,
}

/// The results for the objects of each module, by module.
pub(super) type Clashes = BTreeMap<String, Vec<Clash>>;
/// The plan for each module.
pub(super) type Outcomes = BTreeMap<String, ModuleOutcome>;

// === impl Overlaps ===

impl Overlaps {
    pub(super) fn between(sides: [&Definitions; 2]) -> Overlaps {
        let mut trees: BTreeMap<Oid, BTreeSet<Key>> = BTreeMap::new();
        for ((kind, key), definition) in sides.iter().flat_map(|side| &side.good) {
            let (Kind::ModuleTemplate, Some(source)) = (kind, &definition.module) else { continue };
            let name = definition.object.value().pointer("/spec/moduleName").and_then(serde_json::Value::as_str);
            if let Some(name) = name {
                trees.entry(source.tree).or_default().insert(Key::new(key.namespace(), name));
            }
        }
        let read = |tree: &Oid| sides.iter().find_map(|side| side.modules.get(tree));
        let mut brought: HashMap<ObjectId, Vec<Oid>> = HashMap::new();
        for tree in trees.keys() {
            for source in read(tree).into_iter().flat_map(|module| module.objects()) {
                brought.entry(source.id().clone()).or_default().push(*tree);
            }
        }
        let mut overlaps = Overlaps::default();
        for (id, holders) in brought.into_iter().filter(|(_, holders)| holders.len() > 1) {
            let modules: BTreeSet<&Key> = holders.iter().filter_map(|tree| trees.get(tree)).flatten().collect();
            if modules.len() > 1 {
                overlaps.modules.extend(modules.into_iter().cloned());
                for tree in holders {
                    overlaps.objects.entry(tree).or_default().insert(id.clone());
                }
            }
        }
        overlaps
    }

    /// Whether a module shares an object with another one.
    pub(super) fn concern(&self, module: &Key) -> bool {
        self.modules.contains(module)
    }

    fn of_tree(&self, tree: &Oid) -> impl Iterator<Item = &ObjectId> {
        self.objects.get(tree).into_iter().flatten()
    }

    /// The results for the common objects of the modules of one runtime. `read` finds an object of
    /// the old side.
    pub(super) fn clashes(
        &self,
        before: &Outcomes,
        after: &Outcomes,
        read: &dyn Fn(&Oid, &ObjectId) -> Option<Object>,
    ) -> Clashes {
        if self.objects.is_empty() {
            return Clashes::new();
        }
        let old: BTreeMap<&str, Oid> =
            before.iter().filter_map(|(name, outcome)| Some((&**name, tree(outcome)?))).collect();
        let mut new: BTreeMap<&str, Oid> =
            after.iter().filter_map(|(name, outcome)| Some((&**name, tree(outcome)?))).collect();
        for (name, outcome) in after {
            // A rejected module that stays is unchanged.
            if let (ModuleOutcome::Refuse(refusal), Some(tree)) = (outcome, old.get(&**name)) {
                new.extend(refusal.keep.then_some((&**name, *tree)));
            }
        }
        let ids: BTreeSet<&ObjectId> = old.values().chain(new.values()).flat_map(|tree| self.of_tree(tree)).collect();
        let mut clashes = Clashes::new();
        for id in ids {
            let holders = |trees: &BTreeMap<&str, Oid>| -> Vec<(String, Oid)> {
                let has = |tree: &Oid| self.objects.get(tree).is_some_and(|ids| ids.contains(id));
                trees.iter().filter(|(_, tree)| has(tree)).map(|(name, tree)| ((*name).to_owned(), *tree)).collect()
            };
            one(&mut clashes, id, &holders(&old), &holders(&new), &|owner| {
                !is_pruned(id, read(&owner.1, id).as_ref(), new.contains_key(&*owner.0))
            });
        }
        clashes
    }
}

/// `stays` says whether an object stays with a module that no longer contains it.
fn one(
    clashes: &mut Clashes,
    id: &ObjectId,
    had: &[(String, Oid)],
    wants: &[(String, Oid)],
    stays: &dyn Fn(&(String, Oid)) -> bool,
) {
    let mut add = |module: &str, fate: Fate, is_news: bool| {
        clashes.entry(module.to_owned()).or_default().push(Clash { id: id.clone(), fate, is_news });
    };
    let among = |all: &[(String, Oid)], name: &str| all.iter().find(|(other, _)| other == name).cloned();
    let other = |(module, tree): &(String, Oid), is_new: bool| Other { module: module.clone(), tree: *tree, is_new };
    let owner_before = had.first();
    let owner = match owner_before {
        Some(before) => match (among(wants, &before.0), wants.first()) {
            (Some(same), _) => Some((same, true)),
            (None, Some(_)) if stays(before) => Some((before.clone(), false)),
            (None, first) => first.map(|first| (first.clone(), true)),
        },
        None => wants.first().map(|first| (first.clone(), true)),
    };
    let Some((owner, is_new)) = owner else { return };
    for (name, _) in wants {
        if *name != owner.0 {
            let before = owner_before.is_some_and(|before| before.0 == owner.0) && among(had, name).is_some();
            add(name, Fate::Theirs(other(&owner, is_new)), !before);
        } else if let Some(before) = owner_before.filter(|before| before.0 != *name) {
            add(name, Fate::Comes(other(before, false)), true);
        }
    }
    for (name, _) in had.iter().filter(|(name, _)| among(wants, name).is_none()) {
        // The owner that keeps the object reports it itself.
        if *name != owner.0 {
            add(name, Fate::Goes, false);
        }
    }
}

pub(super) fn tree(outcome: &ModuleOutcome) -> Option<Oid> {
    match outcome {
        ModuleOutcome::Install(installation) => {
            let InstallSource::Git { tree, .. } = &installation.source;
            Some(*tree)
        }
        ModuleOutcome::Refuse(_) | ModuleOutcome::Unmanage => None,
    }
}

/// Whether an object that a module no longer contains is deleted; `installed` says whether the
/// module stays installed.
fn is_pruned(id: &ObjectId, object: Option<&Object>, installed: bool) -> bool {
    let purpose = if installed { Purpose::Install } else { Purpose::Remove };
    let prune = object.and_then(|object| changes::prune_annotation(object.value()));
    let live = changes::Live { marked: true, deleting: false, prune };
    changes::forecast(id, purpose, &live) == Some(Verdict::Delete)
}
