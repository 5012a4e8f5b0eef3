#![expect(clippy::needless_pass_by_value, reason = "tables read better with their values written in place")]

use std::sync::LazyLock;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::{
    Schema, ViolationKind,
    format::{Format, duration_nanoseconds},
    pattern, suggest,
};
use crate::{budget::Budget, object::DisplayPath};

/// An object schema with this schema for `spec`.
fn schema(spec: Value) -> Schema {
    let props = json!({"type": "object", "properties": {"spec": spec}});
    Schema::compile(&serde_json::from_value(props).unwrap()).unwrap()
}

fn object(spec: Value) -> Value {
    json!({"apiVersion": "a.b/v1", "kind": "C", "metadata": {"name": "d"}, "spec": spec})
}

/// The violations of a spec, one line each: the path without `spec`, and the message.
#[track_caller]
fn check(schema_of_spec: Value, spec: Value, expected: &[&str]) {
    let found: Vec<String> = schema(schema_of_spec)
        .check(&object(spec))
        .iter()
        .map(|violation| {
            let hint = violation.hint.as_ref().map(|hint| format!(" ({hint})")).unwrap_or_default();
            format!("{}: {}{hint}", DisplayPath(&violation.path), violation.message)
        })
        .collect();
    assert_eq!(found, expected);
}

#[test]
fn types_are_checked_with_a_word_of_help() {
    let typed = |name: &str| json!({"type": "object", "properties": {"a": {"type": name}}});
    check(
        typed("string"),
        json!({"a": 1.5}),
        &["spec.a: must be a string, not a number with a fraction (write it in quotes: \"1.5\")"],
    );
    check(
        typed("string"),
        json!({"a": true}),
        &["spec.a: must be a string, not `true` or `false` (write it in quotes: \"true\")"],
    );
    check(typed("boolean"), json!({"a": "true"}), &["spec.a: must be `true` or `false`, not a string"]);
    check(typed("array"), json!({"a": {}}), &["spec.a: must be a list, not a mapping"]);
    check(typed("object"), json!({"a": []}), &["spec.a: must be a mapping, not a list"]);
    check(typed("integer"), json!({"a": 1.5}), &["spec.a: must be a whole number, not a number with a fraction"]);
    check(typed("integer"), json!({"a": 8080.0}), &[]);
    check(typed("number"), json!({"a": 3}), &[]);
}

#[test]
fn int_or_string_takes_both_and_nothing_else() {
    let schema = json!({"x-kubernetes-int-or-string": true, "anyOf": [{"type": "integer"}, {"type": "string"}]});
    check(schema.clone(), json!(1), &[]);
    check(schema.clone(), json!("50%"), &[]);
    check(schema, json!(true), &["spec: must be a whole number or a string, not `true` or `false`"]);
}

#[test]
fn unknown_fields_are_reported_with_the_field_that_was_meant() {
    let schema = json!({"type": "object", "properties": {"channel": {"type": "string"}, "modules": {"type": "array", "items": {
        "type": "object", "properties": {"name": {"type": "string"}}}}}});
    check(
        schema.clone(),
        json!({"chanel": "fast"}),
        &["spec.chanel: unknown field `chanel` (did you mean `channel`?)"],
    );
    check(schema.clone(), json!({"replicas": 1}), &["spec.replicas: unknown field `replicas`"]);
    check(
        schema,
        json!({"modules": [{"name": "a"}, {"nmae": "b"}]}),
        &["spec.modules[1].nmae: unknown field `nmae` (did you mean `name`?)"],
    );
}

#[test]
fn preserved_and_additional_fields_are_no_unknown_fields() {
    check(json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true}), json!({"a": {"b": null}}), &[]);
    let texts = json!({"type": "object", "additionalProperties": {"type": "string"}});
    check(texts.clone(), json!({"a.b/c": "d", "e": null}), &[]);
    check(texts, json!({"a.b/c": []}), &["spec[a.b/c]: must be a string, not a list"]);
    check(json!({"type": "object"}), json!({"a": 1}), &["spec.a: unknown field `a`"]);
}

#[test]
fn required_fields_may_come_from_defaults() {
    let schema = json!({"type": "object", "required": ["a", "b"], "properties": {
        "a": {"type": "string"}, "b": {"type": "boolean", "default": true}}});
    check(schema.clone(), json!({}), &["spec.a: the required field `a` is missing"]);
    check(schema.clone(), json!({"a": null}), &["spec.a: the required field `a` is missing"]);
    check(schema, json!({"a": "", "b": null}), &[]);
}

#[test]
fn nulls_are_dropped_from_fields_but_not_from_lists() {
    let items = |nullable: bool| {
        json!({"type": "object", "properties": {
        "a": {"type": "array", "items": {"type": "string", "nullable": nullable}}}})
    };
    check(items(false), json!({"a": null}), &[]);
    check(items(false), json!({"a": ["b", null]}), &["spec.a[1]: must be a string, not null"]);
    check(items(true), json!({"a": ["b", null]}), &[]);
}

#[test]
fn patterns_are_searched_not_matched_whole() {
    let text = |pattern: &str| json!({"type": "object", "properties": {"a": {"type": "string", "pattern": pattern}}});
    check(text("b"), json!({"a": "abc"}), &[]);
    check(text("^[a-z]+$"), json!({"a": "Fast"}), &["spec.a: `Fast` does not match the pattern `^[a-z]+$`"]);
    check(text("^a$"), json!({"a": "a\n"}), &["spec.a: `a…` does not match the pattern `^a$`"]);
}

#[test]
fn lengths_count_characters() {
    let text = json!({"type": "object", "properties": {"a": {"type": "string", "minLength": 2, "maxLength": 3}}});
    check(text.clone(), json!({"a": "äöü"}), &[]);
    check(text.clone(), json!({"a": "ä"}), &["spec.a: has 1 character; at least 2 are required"]);
    check(text, json!({"a": "abcd"}), &["spec.a: has 4 characters; at most 3 are allowed"]);
}

#[test]
fn numbers_have_bounds() {
    let number = json!({"type": "object", "properties": {
        "a": {"type": "integer", "minimum": 0, "maximum": 100},
        "b": {"type": "number", "minimum": 0, "exclusiveMinimum": true, "multipleOf": 0.5}}});
    check(number.clone(), json!({"a": 0, "b": 1.5}), &[]);
    check(
        number.clone(),
        json!({"a": -1, "b": 0}),
        &["spec.a: -1 must be at least 0", "spec.b: 0 must be greater than 0"],
    );
    check(
        number,
        json!({"a": 101, "b": 0.7}),
        &["spec.a: 101 must be at most 100", "spec.b: 0.7 must be a multiple of 0.5"],
    );
}

#[test]
fn whole_numbers_fit_their_format() {
    let number = |format: &str| json!({"type": "object", "properties": {"a": {"type": "integer", "format": format}}});
    check(number("int32"), json!({"a": 2_147_483_647}), &[]);
    check(
        number("int32"),
        json!({"a": 3_000_000_000_u64}),
        &["spec.a: 3000000000 must be between -2147483648 and 2147483647"],
    );
    check(number("int64"), json!({"a": -1.0}), &[]);
    check(
        number("int64"),
        json!({"a": u64::MAX}),
        &["spec.a: 18446744073709551615 must be between -9223372036854775808 and 9223372036854775807"],
    );
    check(number("double"), json!({"a": u64::MAX}), &[]);
}

#[test]
fn enums_name_what_was_meant() {
    let schema =
        json!({"type": "object", "properties": {"a": {"type": "string", "enum": ["Ignore", "CreateAndDelete", ""]}}});
    check(schema.clone(), json!({"a": ""}), &[]);
    check(
        schema.clone(),
        json!({"a": "ignore"}),
        &["spec.a: `ignore` is not one of `Ignore`, `CreateAndDelete`, `` (did you mean `Ignore`?)"],
    );
    check(schema, json!({"a": "Delete"}), &["spec.a: `Delete` is not one of `Ignore`, `CreateAndDelete`, ``"]);
}

/// Compared one by one, these would take minutes.
#[test]
fn an_enum_of_many_values_is_looked_up() {
    let values = |letter: char| (0..100_000).map(|number| format!("{letter}{number}")).collect::<Vec<_>>();
    let items = json!({"type": "string", "enum": values('a')});
    let schema = schema(json!({"type": "array", "items": items}));
    let wrong = object(json!(values('b')));
    let (listed, more) = schema.check_some(&wrong, 1, &Budget::default());
    assert_eq!((listed.len(), more), (1, 99_999));
    assert!(listed[0].message.ends_with(", `a49` and 99950 more"), "{}", listed[0].message);
    assert!(schema.check(&object(json!(values('a')))).is_empty());
}

#[test]
fn list_items_must_differ_by_their_keys() {
    let map = json!({"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name", "kind"], "items": {
        "type": "object", "properties": {"name": {"type": "string"}, "kind": {"type": "string", "default": "A"}}}});
    check(map.clone(), json!([{"name": "a"}, {"name": "b"}, {"name": "a", "kind": "B"}]), &[]);
    check(
        map,
        json!([{"name": "a"}, {"name": "b"}, {"name": "a", "kind": "A"}]),
        &["spec[2]: another item of this list has the same `name: a, kind: A`"],
    );
    let set = json!({"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}});
    check(set, json!(["a", "b", "a"]), &["spec[2]: `a` is already in this list"]);
}

#[test]
fn combinations_hold_as_the_server_has_them() {
    let schema = json!({"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "string"}},
        "oneOf": [{"required": ["a"]}, {"required": ["b"]}], "not": {"properties": {"a": {"enum": ["no"]}}, "required": ["a"]}});
    check(schema.clone(), json!({"a": "yes"}), &[]);
    check(schema.clone(), json!({}), &["spec: must match exactly one of 2 forms, but matches 0"]);
    check(schema.clone(), json!({"a": "", "b": ""}), &["spec: must match exactly one of 2 forms, but matches 2"]);
    check(schema, json!({"a": "no"}), &["spec: matches a form that is not allowed"]);
    let any = json!({"type": "string", "anyOf": [{"minLength": 3}, {"pattern": "^x"}]});
    check(any.clone(), json!("x"), &[]);
    check(any, json!("y"), &["spec: matches none of the 2 allowed forms"]);
}

#[test]
fn rules_see_defaults_and_only_known_fields() {
    let rule = |rule: &str| {
        json!({"type": "object", "properties": {
        "a": {"type": "string"}, "b": {"type": "integer", "default": 3}, "namespace": {"type": "string"},
        "c": {"type": "array", "items": {"type": "string"}}},
        "x-kubernetes-validations": [{"rule": rule, "message": "no"}]})
    };
    check(rule("has(self.a) != has(self.c)"), json!({"a": ""}), &[]);
    check(rule("has(self.a) != has(self.c)"), json!({"a": "", "c": []}), &["spec: no"]);
    check(rule("has(self.a) != has(self.c)"), json!({}), &["spec: no"]);
    check(rule("has(self.a) && !has(self.c)"), json!({"a": "", "c": null}), &[]);
    check(rule("self.b == 3"), json!({}), &[]);
    check(rule("self.b < 3"), json!({"b": 2}), &[]);
    check(rule("size(self.c) == 2 && self.c.all(x, x.matches('^[a-z]$'))"), json!({"c": ["a", "b"]}), &[]);
    check(rule("self.c.exists(x, x.startsWith('b'))"), json!({"c": ["a"]}), &["spec: no"]);
    check(rule("self.__namespace__ == 'x'"), json!({"namespace": "x"}), &[]);
    check(rule("duration(self.a) >= duration('10s')"), json!({"a": "1m"}), &[]);
    check(rule("duration(self.a) >= duration('10s')"), json!({"a": "9s"}), &["spec: no"]);
    check(rule("self.a == oldSelf.a"), json!({"a": "anything"}), &[]);
}

#[test]
fn rules_that_compare_are_asked_of_updates_and_what_was_there_is_tolerated() {
    let schema = schema(json!({"type": "object", "properties": {
        "fixed": {"type": "string", "maxLength": 3, "x-kubernetes-validations": [
            {"rule": "self == oldSelf", "message": "is fixed"}, {"rule": "self.size() < 3", "message": "is long"}]},
        "first": {"type": "string", "x-kubernetes-validations": [
            {"rule": "oldSelf.orValue('first') == self", "optionalOldSelf": true, "message": "is not the first"}]},
        "list": {
            "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"],
            "items": {"type": "object", "required": ["name"],
                "properties": {"name": {"type": "string"}, "count": {"type": "integer", "default": 1}},
                "x-kubernetes-validations": [{"rule": "self.count >= oldSelf.count", "message": "falls"}]},
        },
    }}));
    let check = |old: Value, new: Value, expected: &[(&str, ViolationKind)]| {
        let found = schema.check_update(&object(new), &object(old));
        let found: Vec<_> = found
            .into_iter()
            .map(|violation| (format!("{}: {}", DisplayPath(&violation.path), violation.message), violation.kind))
            .collect();
        let expected: Vec<_> = expected.iter().map(|(text, kind)| ((*text).to_owned(), kind.clone())).collect();
        assert_eq!(found, expected);
    };
    check(json!({}), json!({"fixed": "a"}), &[]);
    check(json!({"fixed": "a"}), json!({"fixed": "b"}), &[("spec.fixed: is fixed", ViolationKind::Rule)]);
    // An unchanged value may violate a stricter schema. Violated rules are reported as warnings.
    check(json!({"fixed": "abcd"}), json!({"fixed": "abcd"}), &[("spec.fixed: is long", ViolationKind::Tolerated)]);
    check(json!({}), json!({"first": "b"}), &[("spec.first: is not the first", ViolationKind::Rule)]);
    check(json!({"first": "b"}), json!({"first": "b", "fixed": "a"}), &[]);
    let list = |items: &[(&str, i64)]| -> Value {
        json!({"list": items.iter().map(|(name, count)| json!({"name": name, "count": count})).collect::<Vec<_>>()})
    };
    check(list(&[("a", 2)]), list(&[("b", 1), ("a", 3)]), &[]);
    check(list(&[("a", 2)]), list(&[("b", 1), ("a", 1)]), &[("spec.list[1]: falls", ViolationKind::Rule)]);
}

#[test]
fn rules_are_silent_about_what_is_wrong_already() {
    let schema = json!({"type": "object", "properties": {"a": {"type": "string"}},
        "x-kubernetes-validations": [{"rule": "self.a == 'b'"}]});
    check(schema.clone(), json!({"a": 1}), &["spec.a: must be a string, not a number (write it in quotes: \"1\")"]);
    check(schema, json!({"a": "c"}), &["spec: the rule `self.a == 'b'` does not hold"]);
}

#[test]
fn rules_may_compute_their_message_and_name_a_field() {
    let schema = json!({"type": "object", "properties": {"a": {"type": "string"}}, "x-kubernetes-validations": [
        {"rule": "self.a != 'b'", "messageExpression": "'not ' + self.a", "fieldPath": ".a"}]});
    check(schema, json!({"a": "b"}), &["spec.a: not b"]);
}

#[test]
fn rules_with_functions_of_the_server_alone_hold_and_hide_no_others() {
    for foreign in ["isURL(self.a)", "self.b.all(i, one, one == i)", "sets.contains(self.b, [1])", "self.b.sum() == 3"]
    {
        let schema = json!({
            "type": "object", "properties": {
                "a": {"type": "string"}, "b": {"type": "array", "items": {"type": "integer"}},
            },
            "x-kubernetes-validations": [{"rule": foreign}, {"rule": "self.b.indexOf(2) == 1", "message": "later"}],
        });
        check(schema.clone(), json!({"a": "x", "b": [1, 2]}), &[]);
        check(schema, json!({"a": "x", "b": [2]}), &["spec: later"]);
    }
}

#[test]
fn rules_that_give_nothing_name_no_field() {
    let schema = json!({"type": "object", "properties": {"a": {"type": "string"}}, "x-kubernetes-validations": [
        {"rule": "self.a != 'b'", "fieldPath": ".a"}]});
    let expected =
        "spec: the rule `self.a != 'b'` cannot be applied: `a` does not exist; check it with `has(…)` or `in` first";
    check(schema, json!({}), &[expected]);
}

#[test]
fn a_rule_that_builds_too_much_is_refused_and_hides_no_other() {
    let rule = format!("[self]{}.size() == 1 || true", ".map(x, x + x)".repeat(40));
    let schema = json!({"type": "object", "properties": {"a": {
        "type": "string", "x-kubernetes-validations": [{"rule": rule}, {"rule": "self != 'b'", "message": "later"}]}}});
    let refused = format!(
        "spec.a: the rule `{rule}` cannot be applied: it builds more than 16 MiB of strings and lists; \
         let it loop over less, or build less in each loop"
    );
    check(schema, json!({"a": "b"}), &[&refused, "spec.a: later"]);
}

#[test]
fn what_cannot_be_compiled_is_named_with_its_field() {
    let broken = |spec: Value| {
        let props = json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {"a": spec}}}});
        Schema::compile(&serde_json::from_value(props).unwrap()).unwrap_err().to_string()
    };
    assert!(broken(json!({"type": "string", "pattern": "("})).starts_with("invalid schema of `spec.a`: regex"));
    assert_eq!(broken(json!({"type": "text"})), "invalid schema of `spec.a`: `text` is not a type");
    assert_eq!(
        broken(json!({"type": "string", "x-kubernetes-validations": [{"rule": "isUrl(self)"}]})),
        "invalid schema of `spec.a`: rule `isUrl(self)`: the function `isUrl` is not supported"
    );
}

#[test]
fn metadata_is_checked_for_every_kind() {
    let schema = schema(json!({"type": "object"}));
    let check = |metadata: Value, expected: &[&str]| {
        let object = json!({"apiVersion": "a/v1", "kind": "B", "metadata": metadata});
        let found: Vec<String> =
            schema.check(&object).iter().map(|v| format!("{}: {}", DisplayPath(&v.path), v.message)).collect();
        assert_eq!(found, expected);
    };
    check(
        json!({"name": "a.b-c", "namespace": "d", "labels": {"e.f/g": "H_1", "i": ""}, "annotations": {"J/k": "any thing"}}),
        &[],
    );
    check(json!({"generateName": "a-"}), &[]);
    check(json!({}), &["metadata.name: the object needs a name"]);
    check(
        json!({"name": "A"}),
        &[
            "metadata.name: `A` is not allowed in a name; use lower-case letters, digits, `-` and `.`, and begin and end with a letter or digit",
        ],
    );
    check(json!({"name": "a", "lables": {}}), &["metadata.lables: unknown field `lables`"]);
    check(json!({"name": "a", "labels": {"b": 1}}), &["metadata.labels.b: must be a string, not a number"]);
    check(
        json!({"name": "a", "labels": {"b": "c d"}}),
        &["metadata.labels.b: `c d` is not a label value: at most 63 letters, digits, `-`, `_` and `.`"],
    );
    check(
        json!({"name": "a", "annotations": {"b c": ""}}),
        &[
            "metadata.annotations.b c: `b c` is not a key of labels or annotations; use a key such as `app` or `example.com/app`",
        ],
    );
    check(json!([]), &["metadata: must be a mapping, not a list"]);
}

#[test]
fn embedded_objects_have_a_type_and_need_no_name() {
    let schema =
        json!({"type": "object", "x-kubernetes-embedded-resource": true, "x-kubernetes-preserve-unknown-fields": true});
    check(schema.clone(), json!({"apiVersion": "a/v1", "kind": "B", "spec": {"c": 1}}), &[]);
    check(
        schema.clone(),
        json!({"kind": "", "metadata": {"labels": []}}),
        &[
            "spec.apiVersion: `apiVersion` is missing",
            "spec.kind: `kind` must not be empty",
            "spec.metadata.labels: must be a mapping of strings, not a list",
        ],
    );
    check(schema, json!({"apiVersion": "a/v1", "kind": "B", "metadata": {"name": "X"}}), &[]);
}

#[test]
fn defaults_are_filled_in_deeply() {
    let schema = schema(json!({"type": "object", "properties": {
        "a": {"type": "object", "default": {}, "properties": {"b": {"type": "integer", "default": 1}}},
        "c": {"type": "array", "items": {"type": "object", "properties": {"d": {"type": "boolean", "default": true}, "e": {"type": "string"}}}},
        "f": {"type": "object", "additionalProperties": {"type": "string"}},
        "g": {"type": "string"}}}));
    let mut value = object(json!({"c": [{}, {"d": false, "e": null}, {"d": null}], "f": {"x": null}, "g": null}));
    schema.default(&mut value);
    assert_eq!(value["spec"], json!({"a": {"b": 1}, "c": [{"d": true}, {"d": false}, {"d": true}], "f": {}}));
}

#[test]
fn formats_are_as_lax_as_the_servers() {
    let cases: &[(&str, &[&str], &[&str])] = &[
        (
            "date-time",
            &["2026-01-31T12:00:00Z", "2026-01-31t12:00:00.123z", "2024-02-29T23:59:59+02:00"],
            &[
                "",
                "2026-01-31",
                "2026-02-30T12:00:00Z",
                "2026-01-31T24:00:00Z",
                "2026-01-31T12:00:00",
                "2026-01-31 12:00:00Z",
            ],
        ),
        (
            "uri",
            &["https://a.b/c?d=e f", "/a", "mailto:x", "http://[::1]:80/", "oci://a", "https://", "https://a b"],
            &["", "a", "a/b", ":a", "http://a:b/", "http://a/%zz", "a\u{7f}:b"],
        ),
        ("uuid", &["01234567-89ab-cdef-0123-456789ABCDEF", "0123456789abcdef0123456789abcdef"], &["", "0"]),
        ("byte", &["aGFsbG8="], &["", "a", "a=b="]),
        ("ipv4", &["10.0.0.1"], &["::1", "10.0.0"]),
        ("cidr", &["10.0.0.0/8", "::/0"], &["10.0.0.0", "10.0.0.0/33", "a/8"]),
    ];
    for (name, good, bad) in cases {
        let format = Format::from_name(name).unwrap();
        for text in *good {
            // A space is only rejected in the host.
            assert_eq!(format.accepts(text), *text != "https://a b", "{name} {text:?}");
        }
        for text in *bad {
            assert!(!format.accepts(text), "{name} {text:?}");
        }
    }
    assert!(Format::from_name("int32").is_none() && Format::from_name("helm").is_none());
}

#[test]
fn durations_are_gos() {
    let cases = [
        ("0", Some(0)),
        ("10s", Some(10_000_000_000)),
        ("1h30m", Some(5_400_000_000_000)),
        ("-1.5s", Some(-1_500_000_000)),
        (".5m", Some(30_000_000_000)),
        ("5.s", Some(5_000_000_000)),
        ("100ms", Some(100_000_000)),
        ("", None),
        ("10", None),
        ("s", None),
        ("1 s", None),
        ("1d", None),
        ("1.2.3s", None),
        ("99999999999h", None),
    ];
    for (text, expected) in cases {
        assert_eq!(duration_nanoseconds(text), expected, "{text}");
    }
}

#[test]
fn patterns_mean_what_they_mean_in_go() {
    let cases = [
        (r"^\d$", "٣", false), // an Arabic digit
        (r"^\d$", "3", true),
        (r"^[\d]$", "٣", false),
        (r"^\w$", "ä", false),
        (r"^[^\w]$", "ä", true),
        (r"^[\W]$", "ä", true),
        (r"^[[]$", "[", true),
        (r"^[a&&b]+$", "a&b", true),
        (r"^[]a]+$", "]a", true),
        (r"^[^]a]+$", "b", true),
        (r"^[[:alpha:]-]+$", "a-b", true),
        (r"^\Qa.b\E$", "a.b", true),
        (r"^\Qa.b\E$", "axb", false),
        (r"^[.]$", ".", true),
        (r"^[\]\\]+$", r"]\", true),
        (r"^a\.b$", "a.b", true),
    ];
    for (pattern, text, expected) in cases {
        assert_eq!(pattern::compile(pattern).unwrap().is_match(text), expected, "{pattern} {text}");
    }
}

#[test]
fn only_slips_of_the_pen_are_suggestions() {
    let known = ["channel", "modules", "name", "customResourcePolicy"];
    for (word, expected) in [
        ("chanel", Some("channel")),
        ("chnanel", Some("channel")),
        ("Name", Some("name")),
        ("customresourcepolicy", Some("customResourcePolicy")),
        ("replicas", None),
        ("x", None),
    ] {
        assert_eq!(suggest::nearest(word, known), expected, "{word}");
    }
}

#[test]
fn twenty_thousand_definitions_take_no_time() {
    let schema = Schema::from_crd(crate::api::crd("ModuleReleaseMeta").unwrap()).unwrap();
    let value = json!({"apiVersion": "operator.kyma-project.io/v1beta2", "kind": "ModuleReleaseMeta",
        "metadata": {"name": "a", "labels": {"a": "b"}}, "spec": {"moduleName": "template-operator",
        "channels": [{"channel": "fast", "version": "1.0.0"}, {"channel": "regular", "version": "1.0.0"}]}});
    let begin = std::time::Instant::now();
    for _ in 0..20_000 {
        assert!(schema.check(&value).is_empty());
    }
    // Far above the normal time, even in a debug build on a busy machine. A quadratic algorithm would exceed it anyway.
    assert!(begin.elapsed().as_secs() < 30, "{:?}", begin.elapsed());
}

proptest! {
    #[test]
    fn checking_never_panics_and_defaults_never_make_it_worse(value in arbitrary_json()) {
        static KYMA: LazyLock<Schema> = LazyLock::new(|| Schema::from_crd(crate::api::crd("Kyma").unwrap()).unwrap());
        let schema = &*KYMA;
        let mut value = json!({"apiVersion": "operator.kyma-project.io/v1beta2", "kind": "Kyma", "metadata": {"name": "a"}, "spec": value});
        let before: Vec<ViolationKind> = schema.check(&value).into_iter().map(|violation| violation.kind).collect();
        schema.default(&mut value);
        let after: Vec<ViolationKind> = schema.check(&value).into_iter().map(|violation| violation.kind).collect();
        prop_assert_eq!(before, after);
    }

    #[test]
    fn any_pattern_is_compiled_or_refused(pattern in "[\\[\\]\\\\a-d^$&~:Qd-]{0,12}") {
        let _ = pattern::compile(&pattern);
    }
}

/// Values with the fields of a Kyma's spec, valid and invalid.
fn arbitrary_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        "[a-zA-Z0-9. ]{0,40}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 32, 4, |inner| {
        let key = prop_oneof![
            Just("channel".to_owned()),
            Just("modules".to_owned()),
            Just("name".to_owned()),
            Just("managed".to_owned()),
            "[a-z]{1,8}"
        ];
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec((key, inner), 0..4).prop_map(|entries| Value::Object(entries.into_iter().collect())),
        ]
    })
}
