use std::collections::BTreeSet;

use serde_json::json;

use super::*;

/// All fields of a kind's `spec`, as rows name them.
fn fields(kind: Kind) -> BTreeSet<String> {
    fn walk(schema: &Value, path: &str, found: &mut BTreeSet<String>) {
        if let Some(items) = schema.get("items") {
            walk(items, &format!("{path}[]"), found);
        }
        for (name, schema) in schema["properties"].as_object().into_iter().flatten() {
            let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
            walk(schema, &path, found);
            found.insert(path);
        }
    }
    let crd = serde_json::to_value(&*kind.crd()).unwrap();
    let versions = crd["spec"]["versions"].as_array().unwrap();
    let served = versions.iter().find(|version| version["served"] == true).unwrap();
    let mut found = BTreeSet::new();
    walk(&served["schema"]["openAPIV3Schema"]["properties"]["spec"], "", &mut found);
    found
}

#[test]
fn every_field_of_every_kind_has_a_row() {
    for kind in Kind::ALL {
        let fields = fields(kind);
        for (row, _) in rows(kind) {
            assert!(fields.contains(*row), "{kind} has no field {row}");
        }
        // Of kcp landscapes, the rows are those without effect.
        for field in fields.iter().filter(|_| Kind::OF_KYMA.contains(&kind)) {
            let is_covered = |row: &str| {
                let rest = |short: &str, long: &str| long.strip_prefix(short).map(str::to_owned);
                let is_within = |rest: &str| rest.is_empty() || rest.starts_with(['.', '[']);
                rest(row, field).is_some_and(|rest| is_within(&rest))
                    || rest(field, row).is_some_and(|rest| is_within(&rest))
            };
            assert!(rows(kind).iter().any(|(row, _)| is_covered(row)), "say what {field} of {kind} does");
        }
    }
}

#[test]
fn a_value_asks_unless_it_is_false_or_empty() {
    for (spec, expected) in [
        (json!({}), vec![]),
        (json!({"a": null}), vec![]),
        (json!({"a": false}), vec![]),
        (json!({"a": ""}), vec![]),
        (json!({"a": []}), vec![]),
        (json!({"a": {}}), vec![]),
        (json!({"a": true}), vec!["spec.a"]),
        (json!({"a": 0}), vec!["spec.a"]),
        (json!({"a": "x"}), vec!["spec.a"]),
        (json!({"a": [null]}), vec!["spec.a"]),
    ] {
        let found = asked(&json!({"spec": spec}), "a");
        let found: Vec<String> = found.iter().map(|path| DisplayPath(path).to_string()).collect();
        assert_eq!(found, expected, "{spec}");
    }
    let list = json!({"spec": {"a": [{"b": ""}, {"b": "x"}, {}]}});
    let found: Vec<String> = asked(&list, "a[].b").iter().map(|path| DisplayPath(path).to_string()).collect();
    assert_eq!(found, ["spec.a[1].b"]);
}

#[test]
fn a_descriptor_beside_no_version_is_said_in_a_whole_sentence() {
    let (message, hint) = beside("1.0.9", "");
    assert_eq!(message, "`spec.descriptor` is about version 1.0.9, and has no effect: only `spec.version` decides");
    assert!(hint.ends_with("and set `spec.version`"));
    let (message, hint) = beside("1.0.9", "1.1.0");
    assert_eq!(message, "`spec.descriptor` is about version 1.0.9, and has no effect: `spec.version` is 1.1.0");
    assert!(hint.ends_with("or correct `spec.version`"));
}
