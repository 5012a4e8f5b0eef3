//! Collects differences, without duplicates, with everything that they affect.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
};

use serde_json::Value;

use super::{Request, leaves::alike, places::PLACES_MAX};
use tidegate_core::{
    changes::have_same_effect,
    diagnostic::FilePosition,
    immutable::{self, Context, Overdue},
    name::Key,
    object::{Digest, Gvk, Object, ObjectId},
};

use crate::{
    mask::Masker,
    model::{Action, Conflict, Difference, Effect, OverdueAction, Side},
    names::Names,
};

/// A runtime, as its position in the order of keys.
pub(super) type Runtime = u32;

/// One object that differs in the same way in some runtimes.
#[derive(Clone)]
pub(super) struct Hit {
    pub(super) side: Side,
    pub(super) effect: Effect,
    pub(super) old: Option<Object>,
    pub(super) new: Option<Object>,
    pub(super) places: Vec<FilePosition>,
    pub(super) maker: Option<&'static str>,
    pub(super) own: Names,
    /// Its owner, if it is in conflict.
    pub(super) owner: Option<String>,
    /// Whether it moves from another module, so that it is deleted and created again.
    pub(super) moves: bool,
    /// What the API server decides by besides the object.
    pub(super) context: Context,
}

/// All differences.
#[derive(Default)]
pub(super) struct FoundDifferences(BTreeMap<Alike, Entry>);

/// The key of a difference.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Alike {
    side: Side,
    weight: u8,
    effect: Effect,
    group: Arc<str>,
    kind: Arc<str>,
    /// Not of objects of the control plane that each runtime has its own of: these have different names.
    id: Option<ObjectId>,
    digest: Digest,
}

struct Entry {
    action: Action,
    old: Option<Object>,
    new: Option<Object>,
    places: Vec<FilePosition>,
    maker: Option<&'static str>,
    runtimes: Vec<Runtime>,
    objects: usize,
    owner: Option<String>,
    refusal: Option<String>,
    overdue: Option<OverdueAction>,
}

/// Whether each runtime has an object of this kind in the control plane.
fn is_of_runtime(id: &ObjectId) -> bool {
    matches!(&*id.kind, "Kyma" | "Manifest")
}

// === impl Hit ===

impl Hit {
    /// Whether the API server refuses the change.
    pub(super) fn is_refused(&self) -> bool {
        matches!(self.action(), Some((Action::Refuse, _)))
    }

    /// Whether an API server stores the same for both sides: the version of a custom resource only says how it is sent.
    fn has_no_effect(&self, old: &Object, new: &Object) -> bool {
        let (was, is) = (old.gvk(), new.gvk());
        if self.side != Side::Runtime {
            return false;
        }
        if !immutable::is_other_version(&was, &is) {
            return have_same_effect(&is, old.value(), new.value());
        }
        let mut before = old.value().clone();
        before["apiVersion"] = new.value()["apiVersion"].clone();
        have_same_effect(&is, &before, new.value())
    }

    /// What may happen instead of a change in a runtime, because the live object may not be as the old side declares.
    pub(super) fn overdue(&self) -> Option<OverdueAction> {
        let (old, new) = (self.old.as_ref()?, self.new.as_ref()?);
        let gvk = new.gvk();
        let is_change = self.side == Side::Runtime && matches!(self.action(), Some((Action::Change, _)));
        let overdue = immutable::overdue(&gvk, old.value(), new.value(), &self.context).filter(|_| is_change)?;
        let action = match overdue {
            Overdue::Recreate => Action::Recreate,
            Overdue::Refuse => Action::Refuse,
        };
        Some(OverdueAction { action, sentence: overdue.sentence(&gvk) })
    }

    /// What happens, and why nothing does if the change is refused.
    fn action(&self) -> Option<(Action, Option<String>)> {
        let action = match (&self.old, &self.new) {
            (None, None) => return None,
            (None, Some(_)) => Action::Create,
            (Some(_), None) => Action::Delete,
            (Some(_), Some(_)) if self.owner.is_some() => Action::Conflict,
            (Some(_), Some(_)) if self.moves => Action::Recreate,
            (Some(old), Some(new)) if old == new || self.has_no_effect(old, new) => return None,
            (Some(old), Some(new)) => match immutable::between(&new.gvk(), old.value(), new.value(), &self.context) {
                Some(immutable) if immutable.is_recreated() => Action::Recreate,
                Some(immutable) => return Some((Action::Refuse, Some(immutable.sentence()))),
                None => Action::Change,
            },
        };
        Some((action, None))
    }
}

// === impl FoundDifferences ===

impl FoundDifferences {
    /// Adds a difference that affects `runtimes`. Equal objects are not a difference.
    pub(super) fn add(&mut self, hit: Hit, runtimes: &[Runtime]) {
        let Some((action, refusal)) = hit.action() else { return };
        let overdue = hit.overdue();
        let Some(id) = hit.new.as_ref().or(hit.old.as_ref()).map(Object::id) else { return };
        let digest = alike(hit.old.as_ref().map(Object::value), hit.new.as_ref().map(Object::value), &hit.own);
        let digest = match &hit.owner {
            Some(owner) => Digest::all(&[digest, Digest::of_bytes(owner.as_bytes())]),
            None => digest,
        };
        let digest = match &overdue {
            Some(overdue) => Digest::all([&digest, &Digest::of_bytes(overdue.sentence.as_bytes())]),
            None => digest,
        };
        let objects = runtimes.len().max(1);
        let key = Alike {
            side: hit.side,
            weight: action.weight(),
            effect: hit.effect,
            group: Arc::clone(&id.group),
            kind: Arc::clone(&id.kind),
            id: (hit.side == Side::Runtime || !is_of_runtime(&id)).then_some(id),
            digest,
        };
        let entry = Entry {
            action,
            old: hit.old,
            new: hit.new,
            places: named(hit.places),
            maker: hit.maker,
            runtimes: runtimes.to_vec(),
            objects,
            owner: hit.owner,
            refusal,
            overdue,
        };
        self.take(key, entry);
    }

    /// These differences, which are there once a user has confirmed what waits, beside those that are there `at_once`.
    pub(super) fn after_confirmation(self, at_once: FoundDifferences) -> FoundDifferences {
        let mut all = at_once;
        for (key, mut entry) in self.0 {
            let effect = match key.effect {
                Effect::Applies | Effect::NeedsConfirmation => Effect::Applies,
                Effect::Held => Effect::Held,
            };
            if let Some(known) = all.0.get(&Alike { effect, ..key.clone() }) {
                let known: BTreeSet<Runtime> = known.runtimes.iter().copied().collect();
                entry.runtimes.retain(|runtime| !known.contains(runtime));
                if entry.runtimes.is_empty() {
                    continue;
                }
                entry.objects = entry.runtimes.len();
            }
            if effect == Effect::Held {
                all.take(key, entry);
                continue;
            }
            // What keeps it until then is resolved by the confirmation.
            all.forget(&Alike { effect: Effect::Held, ..key.clone() }, &entry.runtimes);
            all.take(Alike { effect: Effect::NeedsConfirmation, ..key }, entry);
        }
        all
    }

    /// Removes a difference of some runtimes.
    fn forget(&mut self, key: &Alike, runtimes: &[Runtime]) {
        let Some(known) = self.0.get_mut(key) else { return };
        known.runtimes.retain(|runtime| !runtimes.contains(runtime));
        known.objects = known.runtimes.len();
        if known.runtimes.is_empty() {
            self.0.remove(key);
        }
    }

    /// Adds all differences of another collection.
    pub(super) fn append(&mut self, other: FoundDifferences) {
        for (key, entry) in other.0 {
            self.take(key, entry);
        }
    }

    fn take(&mut self, key: Alike, entry: Entry) {
        let Some(known) = self.0.get_mut(&key) else {
            self.0.insert(key, entry);
            return;
        };
        if entry.runtimes.iter().min() < known.runtimes.iter().min() {
            // The representative object is that of the first runtime, in any order of addition.
            known.old = entry.old;
            known.new = entry.new;
        }
        known.objects += entry.objects;
        known.runtimes.extend(entry.runtimes);
        // The first cause stays first.
        for place in entry.places {
            if known.places.len() < PLACES_MAX && !known.places.contains(&place) {
                known.places.push(place);
            }
        }
    }

    /// Masks and sorts the differences of one or all sides. `keys` are the runtimes. Hunks are
    /// added later.
    pub(super) fn into_differences(
        self,
        keys: &[Key],
        side: Option<Side>,
        masker: &mut Masker,
        Request { idle, .. }: Request<'_>,
    ) -> Vec<(Difference, Vec<Runtime>)> {
        let mut names: HashMap<Vec<Runtime>, Arc<[Key]>> = HashMap::new();
        let mut differences: Vec<(Digest, Difference, Vec<Runtime>)> = self
            .0
            .into_iter()
            .filter(|(alike, _)| side.is_none_or(|side| side == alike.side))
            .filter_map(|(alike, entry)| {
                let (digest, side) = (alike.digest, alike.side);
                let effect = if idle.is_some() { Effect::Held } else { alike.effect };
                let (difference, runtimes) = entry.difference(side, effect, masker, |runtimes| {
                    let known = names.entry(runtimes.to_vec());
                    let name = |index: &Runtime| keys.get(*index as usize).cloned();
                    Arc::clone(known.or_insert_with(|| runtimes.iter().filter_map(name).collect()))
                })?;
                Some((digest, difference, runtimes))
            })
            .collect();
        differences.sort_by(|(a_digest, a, _), (b_digest, b, _)| {
            let rest = |difference: &Difference| (difference.places.clone(), difference.effect);
            a.order().cmp(&b.order()).then_with(|| rest(a).cmp(&rest(b))).then_with(|| a_digest.cmp(b_digest))
        });
        differences.into_iter().map(|(_, difference, runtimes)| (difference, runtimes)).collect()
    }
}

/// The places with a file, without duplicates, up to the limit.
fn named(mut places: Vec<FilePosition>) -> Vec<FilePosition> {
    let mut known = BTreeSet::new();
    places.retain(|place| !place.path.is_empty() && known.insert(place.clone()));
    places.truncate(PLACES_MAX);
    places
}

// === impl Entry ===

impl Entry {
    /// `None` if only the notation of a secret value differs.
    fn difference(
        mut self,
        target: Side,
        effect: Effect,
        masker: &mut Masker,
        names: impl FnOnce(&[Runtime]) -> Arc<[Key]>,
    ) -> Option<(Difference, Vec<Runtime>)> {
        self.runtimes.sort_unstable();
        self.runtimes.dedup();
        let shown = self.new.as_ref().or(self.old.as_ref())?;
        let (id, gvk): (ObjectId, Gvk) = (shown.id(), shown.gvk());
        let mut value = |object: Option<Object>| -> Option<Arc<Value>> {
            let mut value = object?.into_value();
            masker.mask(&mut value);
            Some(Arc::new(value))
        };
        let (old, new) = (value(self.old), value(self.new));
        if old == new {
            return None;
        }
        let difference = Difference {
            target,
            id,
            gvk,
            action: self.action,
            effect,
            runtimes: names(&self.runtimes),
            objects: self.objects,
            old,
            new,
            hunks: Vec::new(),
            places: self.places,
            maker: self.maker,
            refusal: self.refusal,
            overdue: self.overdue,
            is_former: false,
            conflicts: self.owner.into_iter().map(|manager| Conflict { field: String::new(), manager }).collect(),
        };
        Some((difference, self.runtimes))
    }
}
