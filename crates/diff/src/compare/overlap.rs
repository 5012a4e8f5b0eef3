//! Objects that more than one module contains. Of the modules of a runtime one owns the object: its
//! previous owner, otherwise the first by name. For the others it is in conflict, as with any other
//! owner. If an object moves between modules, the first deletes it and the second creates it again. If the first module
//! leaves the runtime without the object, the second takes it over as it is.
//! A module that becomes unmanaged leaves its objects to the user: another module that contains one
//! is in conflict with it, unless its definition allows it to take the object over.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use tidegate_core::{
    changes::{self, Purpose, Verdict},
    content::ContentId,
    definition::{Definitions, Kind},
    landscape::Landscape,
    name::Key,
    object::{Object, ObjectId},
    plan::{self, Answer, Components, ModuleOutcome},
};

/// The objects that several modules of either side contain.
#[derive(Debug, Default)]
pub(super) struct Overlaps {
    /// By the content of a module.
    objects: BTreeMap<ContentId, BTreeSet<ObjectId>>,
    modules: BTreeSet<Key>,
    /// Modules in registries of which some objects are not known.
    unknown: BTreeSet<Key>,
}

/// What a module does with an object that it no longer contains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Parting {
    /// It deletes the object.
    Deletes,
    /// It stays in the runtime, and the object is still its own.
    Keeps,
    /// It leaves the runtime, and the object stays there without it.
    Leaves,
}

/// A module, and its content with the object.
type Holder = (String, ContentId);
/// The modules that have a content.
type Contents = BTreeMap<ContentId, BTreeSet<Key>>;

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
    /// This module becomes unmanaged, or leaves the runtime without the object, and the other one takes it over.
    Adopts(Other),
    /// It moves to another module, or was never owned by this one; the other module reports it.
    Goes,
}

/// Another module with the object, and the content that contains it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Other {
    pub(super) module: String,
    pub(super) content: ContentId,
    /// Whether the content is from the new side.
    pub(super) is_new: bool,
    /// Whether it becomes unmanaged, so that the object stays with the user.
    pub(super) is_released: bool,
    /// What it contains on the new side; `None` if it leaves the runtime.
    pub(super) next: Option<ContentId>,
}

/// The results for the objects of each module, by module.
pub(super) type Clashes = BTreeMap<String, Vec<Clash>>;
/// The plan for each module.
pub(super) type Outcomes = BTreeMap<String, ModuleOutcome>;

// === impl Overlaps ===

impl Overlaps {
    /// `landscapes` are those of `sides`.
    pub(super) fn between(sides: [&Definitions; 2], landscapes: [&Landscape; 2], components: &Components) -> Overlaps {
        let (mut contents, mut overlaps) = (Contents::new(), Overlaps::default());
        sides.iter().for_each(|side| in_git(&mut contents, side));
        for landscape in landscapes {
            overlaps.unknown.extend(in_registries(&mut contents, landscape, components));
        }
        let read = |content: &ContentId| sides.iter().find_map(|side| side.modules.get(content));
        let mut brought: HashMap<ObjectId, Vec<ContentId>> = HashMap::new();
        for content in contents.keys() {
            for source in read(content).into_iter().flat_map(|module| module.objects()) {
                brought.entry(source.id().clone()).or_default().push(*content);
            }
        }
        for (id, holders) in brought.into_iter().filter(|(_, holders)| holders.len() > 1) {
            let modules: BTreeSet<&Key> =
                holders.iter().filter_map(|content| contents.get(content)).flatten().collect();
            if modules.len() > 1 {
                overlaps.modules.extend(modules.into_iter().cloned());
                for content in holders {
                    overlaps.objects.entry(content).or_default().insert(id.clone());
                }
            }
        }
        overlaps
    }

    /// Whether a module shares an object with another one.
    pub(super) fn concern(&self, module: &Key) -> bool {
        self.modules.contains(module)
    }

    /// Whether a module may share objects that are not known here.
    pub(super) fn is_unknown(&self, module: &Key) -> bool {
        self.unknown.contains(module)
    }

    fn of_content(&self, content: &ContentId) -> impl Iterator<Item = &ObjectId> {
        self.objects.get(content).into_iter().flatten()
    }

    /// The results for the common objects of the modules of one runtime. `read` finds an object of
    /// the old side, and `adopts` says whether a content of the new side allows to take one over.
    pub(super) fn clashes(
        &self,
        before: &Outcomes,
        after: &Outcomes,
        read: &dyn Fn(&ContentId, &ObjectId) -> Option<Object>,
        adopts: &dyn Fn(&ContentId, &ObjectId) -> bool,
    ) -> Clashes {
        if self.objects.is_empty() {
            return Clashes::new();
        }
        let old: BTreeMap<&str, ContentId> =
            before.iter().filter_map(|(name, outcome)| Some((&**name, content(outcome)?))).collect();
        let mut new: BTreeMap<&str, ContentId> =
            after.iter().filter_map(|(name, outcome)| Some((&**name, content(outcome)?))).collect();
        for (name, outcome) in after {
            // A rejected module that stays is unchanged.
            if let (ModuleOutcome::Refuse(refusal), Some(content)) = (outcome, old.get(&**name)) {
                new.extend(refusal.keep.then_some((&**name, *content)));
            }
        }
        let is_released = |name: &str| matches!(after.get(name), Some(ModuleOutcome::Unmanage));
        let ids: BTreeSet<&ObjectId> =
            old.values().chain(new.values()).flat_map(|content| self.of_content(content)).collect();
        let mut clashes = Clashes::new();
        for id in ids {
            let holders = |contents: &BTreeMap<&str, ContentId>| -> Vec<(String, ContentId)> {
                let has = |content: &ContentId| self.objects.get(content).is_some_and(|ids| ids.contains(id));
                contents
                    .iter()
                    .filter(|(_, content)| has(content))
                    .map(|(name, content)| ((*name).to_owned(), *content))
                    .collect()
            };
            let (had, wants) = (holders(&old), holders(&new));
            if let Some(owner) = had.first().filter(|owner| is_released(&owner.0)) {
                left_to_the_user(&mut clashes, id, (owner, &had, &wants), &|content| adopts(content, id));
                continue;
            }
            one(&mut clashes, id, (&had, &wants), &new, &|owner| {
                parting(id, read(&owner.1, id).as_ref(), new.contains_key(&*owner.0))
            });
        }
        clashes
    }
}

/// Adds the modules whose objects are in git.
fn in_git(contents: &mut Contents, side: &Definitions) {
    for ((kind, key), definition) in &side.good {
        let (Kind::ModuleTemplate, Some(source)) = (kind, &definition.module) else { continue };
        let name = definition.object.value().pointer("/spec/moduleName").and_then(serde_json::Value::as_str);
        if let Some(name) = name {
            contents.entry(source.tree.into()).or_default().insert(Key::new(key.namespace(), name));
        }
    }
}

/// Adds the modules whose objects are in registries. Returns those of which some objects are not known.
fn in_registries(contents: &mut Contents, landscape: &Landscape, components: &Components) -> BTreeSet<Key> {
    let mut unknown = BTreeSet::new();
    for (component, templates) in plan::components_named(landscape) {
        let modules = templates.iter().filter_map(|key| {
            let name = landscape.templates.get(key)?.spec.module_name.as_deref()?;
            Some(Key::new(key.namespace(), name))
        });
        match components.get(&component) {
            Answer::Found(found) => contents.entry(found.content()).or_default().extend(modules),
            Answer::Pending | Answer::Failed(_) | Answer::Unknown(_) => unknown.extend(modules),
        }
    }
    unknown
}

/// `next` are the contents of all modules on the new side. `parting` says what a module does with an object that it no
/// longer contains.
fn one(
    clashes: &mut Clashes,
    id: &ObjectId,
    (had, wants): (&[Holder], &[Holder]),
    next: &BTreeMap<&str, ContentId>,
    parting: &dyn Fn(&Holder) -> Parting,
) {
    let mut add = |module: &str, fate: Fate, is_news: bool| {
        clashes.entry(module.to_owned()).or_default().push(Clash { id: id.clone(), fate, is_news });
    };
    let among = |all: &[(String, ContentId)], name: &str| all.iter().find(|(other, _)| other == name).cloned();
    let other = |(module, content): &(String, ContentId), is_new: bool| Other {
        module: module.clone(),
        content: *content,
        is_new,
        is_released: false,
        next: next.get(&**module).copied(),
    };
    let owner_before = had.first();
    let parting = owner_before.map(parting);
    let owner = match owner_before {
        Some(before) => match (among(wants, &before.0), wants.first()) {
            (Some(same), _) => Some((same, true)),
            (None, Some(_)) if parting == Some(Parting::Keeps) => Some((before.clone(), false)),
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
            let before = other(before, false);
            add(name, if parting == Some(Parting::Leaves) { Fate::Adopts(before) } else { Fate::Comes(before) }, true);
        }
    }
    for (name, _) in had.iter().filter(|(name, _)| among(wants, name).is_none()) {
        // The owner that keeps the object reports it itself.
        if *name != owner.0 {
            add(name, Fate::Goes, false);
        }
    }
}

/// What becomes of an object whose owner becomes unmanaged. `had` and `wants` are the modules that contain it on either
/// side.
fn left_to_the_user(
    clashes: &mut Clashes,
    id: &ObjectId,
    (owner, had, wants): (&Holder, &[Holder], &[Holder]),
    adopts: &dyn Fn(&ContentId) -> bool,
) {
    let mut add = |module: &str, fate: Fate, is_news: bool| {
        clashes.entry(module.to_owned()).or_default().push(Clash { id: id.clone(), fate, is_news });
    };
    let other = |(module, content): &Holder, is_new: bool, is_released: bool| Other {
        module: module.clone(),
        content: *content,
        is_new,
        is_released,
        next: None,
    };
    // The first one holds the object, whatever the annotations of the others say.
    let adopter = wants.first().filter(|(_, content)| adopts(content));
    for holder in wants {
        let had_before = had.iter().any(|(name, _)| *name == holder.0);
        match adopter {
            Some(adopter) if adopter == holder => add(&holder.0, Fate::Adopts(other(owner, false, true)), true),
            Some(adopter) => add(&holder.0, Fate::Theirs(other(adopter, true, false)), !had_before),
            None => add(&holder.0, Fate::Theirs(other(owner, false, true)), !had_before),
        }
    }
    if adopter.is_some() {
        add(&owner.0, Fate::Goes, false);
    }
    // Others that contained it never owned it.
    for (name, _) in had.iter().filter(|(name, _)| *name != owner.0 && !wants.iter().any(|(other, _)| other == name)) {
        add(name, Fate::Goes, false);
    }
}

pub(super) fn content(outcome: &ModuleOutcome) -> Option<ContentId> {
    match outcome {
        ModuleOutcome::Install(installation) => Some(installation.content()),
        ModuleOutcome::Wait(_) | ModuleOutcome::Refuse(_) | ModuleOutcome::Unmanage => None,
    }
}

/// What a module does with an object that it no longer contains; `installed` says whether the module stays installed.
fn parting(id: &ObjectId, object: Option<&Object>, installed: bool) -> Parting {
    let purpose = if installed { Purpose::Install } else { Purpose::Remove };
    let prune = object.and_then(|object| changes::prune_annotation(object.value()));
    let live = changes::Live { marked: true, deleting: false, prune };
    match changes::forecast(id, purpose, &live) {
        Some(Verdict::Delete) => Parting::Deletes,
        Some(Verdict::Disabled) if !installed => Parting::Leaves,
        None | Some(Verdict::Disabled | Verdict::Guarded | Verdict::Gone | Verdict::Wait | Verdict::Foreign) => {
            Parting::Keeps
        }
    }
}
