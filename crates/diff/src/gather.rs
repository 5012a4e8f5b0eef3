//! Groups many differing objects in many clusters into distinct differences with everything that
//! they affect.
//!
//! Objects of several runtimes are equal except for a runtime's own names: those of its Kyma and of
//! its Manifests. So findings use [`Names`] in their place, and get the names of the first runtime
//! back when they are shown. Two changes are alike if the same fields change in the same way. Other
//! content does not matter, such as addresses that each API server assigns. The comparison is made
//! with and without the runtimes' own names, because a value may equal a name by chance. The result
//! does not depend on the order of findings.

use std::{
    collections::{BTreeSet, HashMap},
    fmt::Write as _,
    sync::Arc,
};

use serde_json::Value;

use super::{
    model::{Action, Conflict, Difference, Effect, Side},
    names::Names,
};
use tidegate_core::{
    diagnostic::FilePosition,
    name::Key,
    object::{Digest, Gvk, ObjectId},
};

/// One differing object. Its texts are neutral: see [`Names::neutral`].
#[derive(Clone, Debug)]
pub struct ObjectDifference {
    /// The cluster, or the kind of cluster.
    pub target: Side,
    /// The object, by its own name.
    pub id: ObjectId,
    /// Its group, version and kind.
    pub gvk: Gvk,
    /// The action.
    pub action: Action,
    /// Whether the difference takes effect when the change is merged.
    pub effect: Effect,
    /// The affected runtimes.
    pub runtimes: Vec<Key>,
    /// The object before, masked and neutral.
    pub old: Option<Arc<Value>>,
    /// The object after, masked and neutral.
    pub new: Option<Arc<Value>>,
    /// The lines that cause it.
    pub places: Vec<FilePosition>,
    /// The origin of the object.
    pub maker: Option<&'static str>,
    /// Fields of other managers.
    pub conflicts: Vec<Conflict>,
    /// Why an API server refuses the change; only for [`Action::Refuse`].
    pub refusal: Option<String>,
    /// Whether it is there whatever the revision says, see [`Difference::is_former`].
    pub is_former: bool,
    /// The names that replace the neutral ones in output.
    pub names: Arc<Names>,
}

/// The differences found so far.
#[derive(Debug, Default)]
pub struct Gatherer {
    /// Groups of like differences; `None` if a group was merged into another.
    groups: Vec<Option<Group>>,
    /// The group of a likeness.
    index: HashMap<Digest, usize>,
}

/// Objects that differ in the same way.
#[derive(Debug)]
struct Group {
    first: ObjectDifference,
    runtimes: BTreeSet<Key>,
    places: BTreeSet<FilePosition>,
    likenesses: Vec<Digest>,
    objects: usize,
}

// === impl ObjectDifference ===

impl ObjectDifference {
    /// Whether the same happens to the same object of the same runtime.
    pub fn is_alike(&self, other: &ObjectDifference) -> bool {
        let of = |found: &ObjectDifference| (found.target, found.action, found.runtimes.first().cloned());
        of(self) == of(other) && self.id == other.id && self.old == other.old && self.new == other.new
    }
}

// === impl Gatherer ===

impl Gatherer {
    /// Adds one differing object.
    pub fn add(&mut self, found: ObjectDifference) {
        let likenesses = found.likenesses();
        let known: BTreeSet<usize> =
            likenesses.iter().filter_map(|likeness| self.index.get(likeness).copied()).collect();
        let mut group = Group {
            runtimes: found.runtimes.iter().cloned().collect(),
            places: found.places.iter().cloned().collect(),
            likenesses: likenesses.to_vec(),
            objects: 1,
            first: found,
        };
        // Merges all groups that have a likeness in common with the new object.
        for position in known {
            if let Some(other) = self.groups.get_mut(position).and_then(Option::take) {
                group.absorb(other);
            }
        }
        let position = self.groups.len();
        self.index.extend(group.likenesses.iter().map(|likeness| (*likeness, position)));
        self.groups.push(Some(group));
    }

    /// The distinct differences in the order of a report. Hunks are added later.
    pub fn finish(self) -> Vec<Difference> {
        let mut differences: Vec<Difference> = self.groups.into_iter().flatten().map(Group::difference).collect();
        differences.sort_by(|one, other| one.order().cmp(&other.order()));
        differences
    }
}

// === impl Group ===

impl Group {
    fn absorb(&mut self, other: Group) {
        let order = |found: &ObjectDifference| (found.runtimes.iter().min().cloned(), found.id.clone());
        self.runtimes.extend(other.runtimes);
        self.places.extend(other.places);
        self.likenesses.extend(other.likenesses);
        self.likenesses.sort_unstable();
        self.likenesses.dedup();
        self.objects += other.objects;
        if order(&other.first) < order(&self.first) {
            self.first = other.first;
        }
    }

    fn difference(self) -> Difference {
        let own = |value: Option<Arc<Value>>| value.map(|value| Arc::new(self.first.names.own(&value)));
        Difference {
            target: self.first.target,
            id: self.first.id,
            gvk: self.first.gvk,
            action: self.first.action,
            effect: self.first.effect,
            runtimes: self.runtimes.into_iter().collect(),
            objects: self.objects,
            old: own(self.first.old),
            new: own(self.first.new),
            hunks: Vec::new(),
            places: self.places.into_iter().collect(),
            maker: self.first.maker,
            conflicts: self.first.conflicts,
            refusal: self.first.refusal,
            // The live objects are known.
            overdue: None,
            is_former: self.first.is_former,
        }
    }
}

// === impl ObjectDifference ===

impl ObjectDifference {
    /// Two differences that share one of these are alike: one is without the runtime's own names,
    /// the other with them.
    fn likenesses(&self) -> [Digest; 2] {
        let own = |value: &Option<Arc<Value>>| value.as_ref().map(|value| self.names.own(value));
        let neutral_id = self.names.neutral_text(&self.id.to_string());
        [
            self.likeness(&neutral_id, self.old.as_deref(), self.new.as_deref()),
            self.likeness(&self.id.to_string(), own(&self.old).as_ref(), own(&self.new).as_ref()),
        ]
    }

    fn likeness(&self, id: &str, old: Option<&Value>, new: Option<&Value>) -> Digest {
        let (target, former) = (self.target, if self.is_former { " former" } else { "" });
        let mut text = format!("{target:?} {id} {} {} {:?}{former}\n", self.gvk, self.action, self.effect);
        for Conflict { field, manager } in &self.conflicts {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{field} {manager}");
        }
        match (old, new) {
            (Some(old), Some(new)) => delta(old, new, &mut String::new(), &mut text),
            (None, Some(new)) => text.push_str(&new.to_string()),
            // Deleted objects are alike, regardless of their content, but for the version of a module.
            (Some(old), None) if &*self.gvk.kind == "Manifest" => text.push_str(&old["spec"]["version"].to_string()),
            (Some(_) | None, None) => {}
        }
        Digest::of_bytes(text.as_bytes())
    }
}

/// Writes the difference between two values.
fn delta(old: &Value, new: &Value, path: &mut String, to: &mut String) {
    if old == new {
        return;
    }
    let length = path.len();
    match (old, new) {
        (Value::Object(old), Value::Object(new)) => {
            let keys: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
            for key in keys {
                let _ = write!(path, ".{key:?}");
                delta(old.get(key).unwrap_or(&Value::Null), new.get(key).unwrap_or(&Value::Null), path, to);
                path.truncate(length);
            }
        }
        (Value::Array(old), Value::Array(new)) if old.len() == new.len() => {
            for (index, (old, new)) in old.iter().zip(new).enumerate() {
                let _ = write!(path, "[{index}]");
                delta(old, new, path, to);
                path.truncate(length);
            }
        }
        (old, new) => {
            let _ = writeln!(to, "{path}: {old} -> {new}");
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn names(kyma: &str) -> Arc<Names> {
        let manifest = format!("{kyma}-cache-1");
        Arc::new(Names::new([
            (kyma.to_owned(), "Kyma".to_owned()),
            (manifest, "Manifest of cache".to_owned()),
            (String::new(), "uid".to_owned()),
        ]))
    }

    fn found(kyma: &str, old: Option<Value>, new: Option<Value>) -> ObjectDifference {
        let names = names(kyma);
        let neutral = |value: Option<Value>| value.map(|value| Arc::new(names.neutral(&value)));
        let action = match (&old, &new) {
            (None, _) => Action::Create,
            (_, None) => Action::Delete,
            _ => Action::Change,
        };
        ObjectDifference {
            target: Side::Runtime,
            id: ObjectId::new("", "ConfigMap", "kyma-system", "a"),
            gvk: Gvk::new("", "v1", "ConfigMap"),
            action,
            effect: Effect::Applies,
            runtimes: vec![Key::new("kcp-system", kyma)],
            old: neutral(old),
            new: neutral(new),
            places: Vec::new(),
            maker: None,
            conflicts: Vec::new(),
            refusal: None,
            is_former: false,
            names,
        }
    }

    fn object(kyma: &str, text: &str, address: &str) -> Value {
        json!({"data": {"text": text, "kyma": kyma, "address": address},
            "metadata": {"annotations": {"owned-by": format!("kcp-system/{kyma}-cache-1")}}})
    }

    /// Runtimes of each difference, whatever the order in which they are found.
    #[track_caller]
    fn check(all: Vec<ObjectDifference>, expected: &[&[&str]]) -> Vec<Difference> {
        let gather = |all: &mut dyn Iterator<Item = ObjectDifference>| {
            let mut gatherer = Gatherer::default();
            all.for_each(|found| gatherer.add(found));
            gatherer.finish()
        };
        let differences = gather(&mut all.iter().cloned());
        let runtimes = |difference: &Difference| -> Vec<String> {
            difference.runtimes.iter().map(|key| key.name().to_owned()).collect()
        };
        assert_eq!(differences.iter().map(runtimes).collect::<Vec<_>>(), expected);
        let reversed = gather(&mut all.into_iter().rev());
        assert_eq!(format!("{differences:?}"), format!("{reversed:?}"), "the order does not show");
        differences
    }

    #[test]
    fn equal_changes_stand_once_under_the_names_of_the_first_runtime() {
        let change = |kyma: &str, text: &str, address: &str| {
            found(kyma, Some(object(kyma, "old", address)), Some(object(kyma, text, address)))
        };
        let all = vec![change("two", "new", "10.0.0.2"), change("one", "new", "10.0.0.1"), change("six", "other", "")];
        let differences = check(all, &[&["one", "two"], &["six"]]);
        assert_eq!(differences[0].objects, 2);
        let new = differences[0].new.as_ref().unwrap();
        assert_eq!(**new, object("one", "new", "10.0.0.1"), "own names are back");
    }

    #[test]
    fn what_is_created_alike_stands_once_and_what_goes_does_whatever_it_held() {
        let create = |kyma: &str| found(kyma, None, Some(object(kyma, "new", "")));
        let delete = |kyma: &str, text: &str| found(kyma, Some(object(kyma, text, "")), None);
        check(
            vec![create("one"), create("two"), delete("one", "a"), delete("two", "b")],
            &[&["one", "two"], &["one", "two"]],
        );
        // A name in the middle of another is not that name.
        assert_eq!(names("one").neutral_text("one-more, someone, one"), "one-more, someone, ((own: Kyma))");
    }

    #[test]
    fn manifests_of_other_versions_do_not_go_alike() {
        let delete = |kyma: &str, version: &str| {
            let manifest = json!({"spec": {"version": version, "remote": kyma}});
            ObjectDifference { gvk: Gvk::new("", "v1", "Manifest"), ..found(kyma, Some(manifest), None) }
        };
        check(
            vec![delete("one", "1.0.0"), delete("six", "1.0.0"), delete("two", "1.1.0")],
            &[&["one", "six"], &["two"]],
        );
    }

    #[test]
    fn a_value_that_is_called_like_a_runtime_splits_nothing() {
        let change = |kyma: &str| found(kyma, Some(json!({"text": "one"})), Some(json!({"text": "two"})));
        check(vec![change("one"), change("two"), change("six")], &[&["one", "six", "two"]]);
    }

    #[test]
    fn differences_of_conflicts_and_places_stand_for_all() {
        let mut one = found("one", Some(object("one", "a", "")), Some(object("one", "b", "")));
        let mut two = found("two", Some(object("two", "a", "")), Some(object("two", "b", "")));
        one.places = vec![FilePosition::file("b.yaml")];
        two.places = vec![FilePosition::file("a.yaml")];
        let differences = check(vec![one.clone(), two.clone()], &[&["one", "two"]]);
        assert_eq!(differences[0].places, [FilePosition::file("a.yaml"), FilePosition::file("b.yaml")]);
        two.conflicts = vec![Conflict { field: ".data.text".to_owned(), manager: "kubectl".to_owned() }];
        check(vec![one, two], &[&["one"], &["two"]]);
    }
}
