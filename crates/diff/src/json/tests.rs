use serde_json::Value;

use super::*;
use crate::fixture;

#[test]
fn the_published_schemas_are_what_the_code_says() {
    for (name, schema) in [("diff", schema()), ("validate", validation_schema())] {
        let path = format!("{}/../../docs/{name}.schema.json", env!("CARGO_MANIFEST_DIR"));
        let text = format!("{schema:#}\n");
        if std::env::var_os("UPDATE_GOLDEN").is_some() {
            std::fs::write(&path, &text).unwrap();
        }
        let published = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(published == text, "{path} is another one; UPDATE_GOLDEN=1 writes it anew");
    }
}

#[test]
fn what_validation_writes_is_what_its_schema_says() {
    let schema = validation_schema();
    for report in [fixture::report(), fixture::nasty(), Report::default()] {
        let value: Value = serde_json::from_str(&validation(&report.diagnostics)).unwrap();
        let mut problems = Vec::new();
        check(&schema, &schema, &value, "", &mut problems);
        assert!(problems.is_empty(), "{problems:#?}");
        assert_eq!(value["diagnostics"].as_array().unwrap().len(), report.diagnostics.len());
    }
    let mut problems = Vec::new();
    let wrong = serde_json::json!({"version": 2, "diagnostics": [{"severity": "bad"}]});
    check(&schema, &schema, &wrong, "", &mut problems);
    assert!(problems.len() >= 3, "{problems:#?}");
}

#[test]
fn one_of_everything() {
    let mut report = fixture::report();
    // The lists of all runtimes are long and contain nothing new.
    report.differences.retain(|one| one.runtimes.len() < 10);
    insta::assert_snapshot!(json(&report));
}

#[test]
fn what_is_written_is_what_the_schema_says() {
    let schema = schema();
    for report in [fixture::report(), fixture::nasty(), Report::default()] {
        let value: Value = serde_json::from_str(&json(&report)).unwrap();
        let mut problems = Vec::new();
        check(&schema, &schema, &value, "", &mut problems);
        assert!(problems.is_empty(), "{problems:#?}");
    }
}

#[test]
fn the_check_of_the_schema_finds_what_is_wrong() {
    let schema = schema();
    let good: Value = serde_json::from_str(&json(&fixture::report())).unwrap();
    let wrong = |change: fn(&mut Value)| {
        let mut value = good.clone();
        change(&mut value);
        let mut problems = Vec::new();
        check(&schema, &schema, &value, "", &mut problems);
        assert!(!problems.is_empty());
    };
    wrong(|value| value["version"] = 2.into());
    wrong(|value| value["verdict"] = "perhaps".into());
    wrong(|value| value["summary"]["variants"] = (-1).into());
    wrong(|value| value["differences"][0]["runtimes"][0] = 1.into());
    wrong(|value| value["differences"][0]["action"] = "drop".into());
    wrong(|value| {
        value["differences"][0]["object"].as_object_mut().unwrap().remove("name");
    });
}

#[test]
fn all_runtimes_are_listed() {
    let value: Value = serde_json::from_str(&json(&fixture::report())).unwrap();
    assert_eq!(value["differences"][0]["runtimes"].as_array().unwrap().len(), 812);
}

/// The part of JSON Schema that Tidegate's schemas use.
fn check(root: &Value, schema: &Value, value: &Value, path: &str, problems: &mut Vec<String>) {
    let wrong = |what: &str| format!("{path}: {what}: {value}");
    if schema == &Value::Bool(true) {
        return;
    }
    let fields = schema.as_object().expect("a schema is a mapping");
    for (keyword, wanted) in fields {
        match keyword.as_str() {
            "$schema" | "$defs" | "title" | "description" | "format" => {}
            "$ref" => {
                let target = root.pointer(wanted.as_str().unwrap().trim_start_matches('#')).unwrap();
                check(root, target, value, path, problems);
                return;
            }
            "type" => {
                let is = |name: &Value| match name.as_str().unwrap() {
                    "null" => value.is_null(),
                    "string" => value.is_string(),
                    "integer" => value.is_u64() || value.is_i64(),
                    "boolean" => value.is_boolean(),
                    "array" => value.is_array(),
                    "object" => value.is_object(),
                    other => panic!("type {other}"),
                };
                let fits = wanted.as_array().map_or_else(|| is(wanted), |names| names.iter().any(is));
                if !fits {
                    problems.push(wrong("type"));
                }
            }
            "const" if value != wanted => problems.push(wrong("const")),
            "enum" if !wanted.as_array().unwrap().contains(value) => problems.push(wrong("enum")),
            "const" | "enum" => {}
            "minimum" if value.is_number() && value.as_i64() < wanted.as_i64() => problems.push(wrong("minimum")),
            "maximum" if value.is_number() && value.as_i64() > wanted.as_i64() => problems.push(wrong("maximum")),
            "minimum" | "maximum" => {}
            "anyOf" | "oneOf" => {
                let fitting = wanted.as_array().unwrap().iter().filter(|schema| {
                    let mut found = Vec::new();
                    check(root, schema, value, path, &mut found);
                    found.is_empty()
                });
                let count = fitting.count();
                if count == 0 || (keyword == "oneOf" && count > 1) {
                    problems.push(wrong(keyword));
                }
            }
            "required" => {
                for name in wanted.as_array().unwrap() {
                    if value.as_object().is_some_and(|map| !map.contains_key(name.as_str().unwrap())) {
                        problems.push(wrong(&format!("required {name}")));
                    }
                }
            }
            "properties" => {
                for (name, value) in value.as_object().into_iter().flatten() {
                    match wanted.get(name) {
                        Some(schema) => check(root, schema, value, &format!("{path}.{name}"), problems),
                        None => problems.push(format!("{path}.{name}: not in the schema")),
                    }
                }
            }
            "items" => {
                for (index, item) in value.as_array().into_iter().flatten().enumerate() {
                    check(root, wanted, item, &format!("{path}[{index}]"), problems);
                }
            }
            other => panic!("the schema uses `{other}`, which this check does not know"),
        }
    }
}
