//! Computes which fields differ, and whether two differences are alike except for the names of the
//! affected objects.

use serde_json::Value;
use tidegate_core::object::{Digest, PathPart};

use crate::names::Names;

/// A differing field. A mapping that exists on one side only is one difference.
pub(crate) struct Leaf<'a> {
    pub(crate) path: Vec<PathPart>,
    pub(crate) old: Option<&'a Value>,
    pub(crate) new: Option<&'a Value>,
}

/// The fields that differ, in the order of the new side.
pub(crate) fn leaves<'a>(old: &'a Value, new: &'a Value) -> Vec<Leaf<'a>> {
    let mut found = Vec::new();
    collect(Some(old), Some(new), &mut Vec::new(), &mut found);
    found
}

fn collect<'a>(old: Option<&'a Value>, new: Option<&'a Value>, path: &mut Vec<PathPart>, found: &mut Vec<Leaf<'a>>) {
    match (old, new) {
        (Some(Value::Object(old)), Some(Value::Object(new))) => {
            let gone = old.keys().filter(|key| !new.contains_key(*key));
            for key in new.keys().chain(gone) {
                path.push(PathPart::Key(key.clone()));
                collect(old.get(key), new.get(key), path, found);
                path.pop();
            }
        }
        (Some(Value::Array(old)), Some(Value::Array(new))) => {
            for index in 0..old.len().max(new.len()) {
                path.push(PathPart::Index(index));
                collect(old.get(index), new.get(index), path, found);
                path.pop();
            }
        }
        (old, new) if old == new => {}
        (old, new) => found.push(Leaf { path: path.clone(), old, new }),
    }
}

/// A key that is equal for like differences.
pub(super) fn alike(old: Option<&Value>, new: Option<&Value>, own: &Names) -> Digest {
    let digest = |value: Option<&Value>| match value {
        Some(value) => Digest::from_value(&own.neutral(value)),
        None => Digest::of_bytes(b"absent"),
    };
    match (old, new) {
        (Some(old), Some(new)) => {
            let mut digests = Vec::new();
            for leaf in leaves(old, new) {
                let path = tidegate_core::object::DisplayPath(&leaf.path).to_string();
                digests.extend([Digest::of_bytes(path.as_bytes()), digest(leaf.old), digest(leaf.new)]);
            }
            Digest::all(&digests)
        }
        (old, new) => Digest::all(&[digest(old), digest(new)]),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use tidegate_core::object::DisplayPath;

    #[test]
    fn leaves_are_what_differs_and_no_more() {
        let old = json!({"a": {"b": 1, "c": [1, 2], "gone": {"x": 1}}, "same": true});
        let new = json!({"a": {"b": 2, "c": [1, 3, 4]}, "same": true});
        let paths: Vec<String> = leaves(&old, &new).iter().map(|leaf| DisplayPath(&leaf.path).to_string()).collect();
        assert_eq!(paths, ["a.b", "a.c[1]", "a.c[2]", "a.gone"]);
    }

    #[track_caller]
    fn check_alike(one: (&str, Value, Value), other: (&str, Value, Value), expected: bool) {
        let digest = |(name, old, new): (&str, Value, Value)| {
            alike(Some(&old), Some(&new), &Names::new([(name.to_owned(), "name")]))
        };
        assert_eq!(digest(one) == digest(other), expected);
    }

    #[test]
    fn differences_are_alike_but_for_own_names() {
        let one = (
            "dev",
            json!({"channel": "fast", "owner": "dev", "id": 1}),
            json!({"channel": "regular", "owner": "dev", "id": 1}),
        );
        let two = (
            "prod",
            json!({"channel": "fast", "owner": "prod", "id": 2}),
            json!({"channel": "regular", "owner": "prod", "id": 2}),
        );
        check_alike(one, two, true);
        let one = ("dev", json!({"host": "x"}), json!({"host": "r.dev/x"}));
        let two = ("prod", json!({"host": "x"}), json!({"host": "r.prod/x"}));
        check_alike(one.clone(), two, false);
        let two = ("prod", json!({"host": "x"}), json!({"host": "prod/x"}));
        check_alike(("dev", json!({"host": "x"}), json!({"host": "dev/x"})), two, true);
    }
}
