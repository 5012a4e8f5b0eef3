//! Custom resources and their definitions.

use serde_json::{Value, json};
use tidegate_testbed::Options;

use super::both::{Ask, Both};
use crate::harness;

const THINGS: &str = "/apis/sim.example.com/v1/namespaces/{ns}/things";
const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

fn one(name: &str) -> String {
    format!("{THINGS}/{name}")
}

fn thing(name: &str, spec: Value) -> Value {
    json!({"apiVersion": "sim.example.com/v1", "kind": "Thing", "metadata": {"name": name}, "spec": spec})
}

/// A definition with one of everything that a schema can say.
pub(super) fn definition() -> Value {
    let spec = json!({
        "type": "object", "required": ["color"],
        "x-kubernetes-validations": [
            {"rule": "!has(self.size) || self.size < 100", "message": "size must be small"},
            {"rule": "!has(self.size) || self.size != 50", "fieldPath": ".size", "reason": "FieldValueForbidden"},
        ],
        "properties": {
            "color": {"type": "string", "enum": ["red", "green", "blue"]},
            "size": {"type": "integer", "minimum": 1, "maximum": 200},
            "ratio": {"type": "number", "multipleOf": 0.5, "exclusiveMinimum": true, "minimum": 0},
            "label": {"type": "string", "pattern": "^[a-z]+$", "maxLength": 5, "minLength": 2, "default": "abc"},
            "when": {"type": "string", "format": "date-time"},
            "items": {
                "type": "array", "maxItems": 2, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"],
                "items": {
                    "type": "object", "required": ["name"],
                    "properties": {"name": {"type": "string"}, "count": {"type": "integer", "default": 3}},
                },
            },
            "set": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
            "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
            "map": {"type": "object", "additionalProperties": {"type": "string"}, "maxProperties": 2},
            "flag": {"type": "boolean"},
            "port": {"x-kubernetes-int-or-string": true},
            "perhaps": {"type": "string", "nullable": true},
        },
    });
    let schema = json!({
        "type": "object",
        "properties": {"spec": spec, "status": {"type": "object", "properties": {"state": {"type": "string"}}}},
    });
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "things.sim.example.com"},
        "spec": {
            "group": "sim.example.com", "scope": "Namespaced",
            "names": {"kind": "Thing", "plural": "things", "shortNames": ["th"], "categories": ["all"]},
            "versions": [{
                "name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
                "selectableFields": [{"jsonPath": ".spec.color"}],
                "additionalPrinterColumns": [
                    {"name": "State", "type": "string", "jsonPath": ".status.state"},
                    {"name": "Size", "type": "integer", "jsonPath": ".spec.size", "priority": 1, "description": "how big"},
                ],
                "schema": {"openAPIV3Schema": schema},
            }],
        },
    })
}

/// Both sides with the definition.
async fn both() -> Both {
    let both = Both::new().await;
    both.install(&definition()).await;
    both
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_schema_forbids_is_refused_in_the_servers_words() {
    let both = both().await;
    let specs = [
        json!({}),
        json!({"color": "pink"}),
        json!({"color": 1}),
        json!({"color": null}),
        json!({"color": "red", "size": "x"}),
        json!({"color": "red", "size": 0}),
        json!({"color": "red", "size": 150}),
        json!({"color": "red", "size": 50}),
        json!({"color": "red", "ratio": 0.3}),
        json!({"color": "red", "label": "a"}),
        json!({"color": "red", "label": "ABC"}),
        json!({"color": "red", "label": "abcdefg"}),
        json!({"color": "red", "when": "now"}),
        json!({"color": "red", "items": [{"name": "a"}, {"name": "a"}]}),
        json!({"color": "red", "items": [{}]}),
        json!({"color": "red", "items": [{"name": "a"}, {"name": "b"}, {"name": "c"}]}),
        json!({"color": "red", "items": {}}),
        json!({"color": "red", "set": ["a", "a"]}),
        json!({"color": "red", "map": {"a": 1}}),
        json!({"color": "red", "map": {"a": "1", "b": "2", "c": "3"}}),
        json!({"color": "red", "flag": "true"}),
        json!({"color": "red", "port": true}),
        json!("x"),
        json!([]),
    ];
    let asks: Vec<Ask> = specs.into_iter().map(|spec| Ask::post(THINGS, &thing("t", spec))).collect();
    both.check(&asks).await;
}

/// A definition whose rules compare with what was there.
fn ratchet(max: u32) -> Value {
    let list = |kind: &str, rule: &str| {
        let mut list = json!({
            "type": "array", "maxItems": 9, "x-kubernetes-list-type": kind,
            "items": {
                "type": "object", "required": ["name"],
                "x-kubernetes-validations": [{"rule": rule, "message": "a count never falls"}],
                "properties": {"name": {"type": "string"}, "count": {"type": "integer", "default": 0}},
            },
        });
        if kind == "map" {
            list["x-kubernetes-list-map-keys"] = json!(["name"]);
        }
        list
    };
    let spec = json!({
        "type": "object",
        "x-kubernetes-validations": [
            {"rule": "!has(oldSelf.fixed) || has(self.fixed)", "message": "fixed stays", "fieldPath": ".fixed"},
            {
                "rule": "self.size <= 10 || self.size == oldSelf.size", "reason": "FieldValueForbidden",
                "messageExpression": "oldSelf.size > self.size ? 'still large' : 'too large'",
            },
            {"rule": "self.size != 7"},
        ],
        "properties": {
            "fixed": {
                "type": "string", "maxLength": max,
                "x-kubernetes-validations": [{"rule": "self == oldSelf", "message": "fixed is immutable"}],
            },
            "first": {
                "type": "string",
                "x-kubernetes-validations": [{
                    "rule": "oldSelf.hasValue() ? oldSelf.value() == self : self == 'first'", "optionalOldSelf": true,
                }],
            },
            "size": {"type": "integer", "default": 1},
            "map": list("map", "self.count >= oldSelf.count"),
            "atomic": list("atomic", "self.count >= 5"),
            "texts": {
                "type": "object", "maxProperties": 9,
                "additionalProperties": {
                    "type": "string", "maxLength": 9,
                    "x-kubernetes-validations": [{"rule": "self.startsWith(oldSelf)"}, {"rule": format!("self.size() < {max}")}],
                },
            },
        },
    });
    let mut definition = definition();
    definition["metadata"]["name"] = json!("ratchets.sim.example.com");
    definition["spec"]["names"] = json!({"kind": "Ratchet", "plural": "ratchets"});
    let version = &mut definition["spec"]["versions"][0];
    version["additionalPrinterColumns"] = json!([]);
    version["selectableFields"] = json!([]);
    version["schema"]["openAPIV3Schema"]["properties"]["spec"] = spec;
    definition
}

#[tokio::test(flavor = "multi_thread")]
async fn rules_that_compare_are_asked_on_update_only() {
    let both = Both::new().await;
    both.install(&ratchet(9)).await;
    let ratchets = "/apis/sim.example.com/v1/namespaces/{ns}/ratchets";
    let one = format!("{ratchets}/r");
    let ratchet = |spec: Value| json!({"apiVersion": "sim.example.com/v1", "kind": "Ratchet", "metadata": {"name": "r"}, "spec": spec});
    let merge = |spec: Value| Ask::merge(&one, &json!({"spec": spec}));
    both.check(&[
        Ask::post(ratchets, &ratchet(json!({"first": "second"}))),
        Ask::post(
            ratchets,
            &ratchet(json!({
                "first": "first", "size": 20, "map": [{"name": "a", "count": 5}], "atomic": [{"name": "a", "count": 5}],
                "texts": {"a": "x"},
            })),
        ),
        merge(json!({"fixed": "abc"})),
        merge(json!({"fixed": "abd"})),
        merge(json!({"fixed": null})),
        merge(json!({"first": "other"})),
        merge(json!({"size": 21})),
        merge(json!({"size": 8})),
        merge(json!({"size": 7})),
        merge(json!({"map": [{"name": "a", "count": 4}]})),
        merge(json!({"map": [{"name": "b", "count": 1}, {"name": "a", "count": 6}]})),
        merge(json!({"atomic": [{"name": "a", "count": 4}]})),
        merge(json!({"texts": {"a": "y"}})),
        merge(json!({"texts": {"a": "xy", "b": "z"}})),
        Ask::merge(&one, &json!({"metadata": {"labels": {"a": "b"}}})),
        Ask::merge(&format!("{one}/status"), &json!({"status": {"state": "Ready"}})),
        Ask::apply(&format!("{one}?fieldManager=m&force=true"), &ratchet(json!({"fixed": "abx"}))),
        Ask::apply(&format!("{one}?fieldManager=m"), &ratchet(json!({"fixed": "abc", "size": 8}))),
    ])
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_there_before_is_not_wrong_once_the_schema_is_tightened() {
    let both = Both::new().await;
    let mut definition = ratchet(9);
    definition["metadata"]["name"] = json!("tights.sim.example.com");
    definition["spec"]["names"] = json!({"kind": "Tight", "plural": "tights"});
    both.install(&definition).await;
    let tights = "/apis/sim.example.com/v1/namespaces/{ns}/tights";
    let one = format!("{tights}/t");
    let tight = json!({
        "apiVersion": "sim.example.com/v1", "kind": "Tight", "metadata": {"name": "t"},
        "spec": {"fixed": "abcdef", "texts": {"a": "abcdef", "b": "a"}},
    });
    both.check(&[Ask::post(tights, &tight)]).await;
    let schema = ratchet(3)["spec"]["versions"][0]["schema"].clone();
    let tighten = json!([{"op": "replace", "path": "/spec/versions/0/schema", "value": schema}]);
    both.check(&[Ask::json(&format!("{DEFINITIONS}/tights.sim.example.com"), &tighten).loosely()]).await;
    // The real server learns of it in its own time.
    let new = Ask::post(&format!("{tights}?dryRun=All"), &tight);
    for client in [&both.real, &both.simulated] {
        crate::harness::eventually("the schema is the new one", crate::harness::SOON, async || {
            let answer = new.send(client, &both.namespace, &[]).await;
            if answer.code == 422 { Ok(()) } else { Err(format!("{answer:?}")) }
        })
        .await;
    }
    both.check(&[
        new,
        Ask::merge(&one, &json!({"metadata": {"labels": {"a": "b"}}})),
        Ask::merge(&one, &json!({"spec": {"size": 2}})),
        Ask::merge(&one, &json!({"spec": {"texts": {"b": "ab"}}})),
        Ask::merge(&one, &json!({"spec": {"texts": {"a": "abcdefg"}}})),
        Ask::merge(&one, &json!({"spec": {"texts": {"b": "abcd"}}})),
    ])
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn unknown_fields_are_dropped_and_defaults_filled_in() {
    let both = both().await;
    let spec = json!({
        "color": "red", "unknown": 1, "items": [{"name": "a", "other": 1}], "free": {"x": {"y": 1}}, "port": 8080,
        "map": {"a": "b"}, "perhaps": null, "size": null,
    });
    both.check(&[
        Ask::post(&format!("{THINGS}?dryRun=All"), &thing("t", spec.clone())),
        Ask::post(&format!("{THINGS}?dryRun=All&fieldValidation=Ignore"), &thing("t", spec.clone())),
        Ask::post(&format!("{THINGS}?fieldValidation=Strict"), &thing("t", spec.clone())),
        Ask::post(THINGS, &thing("t", spec)),
        Ask::get(&one("t")),
        Ask::merge(&one("t"), &json!({"spec": {"unknown": 1}})),
        Ask::merge(&one("t"), &json!({"metadata": {"unknown": 1}})),
    ])
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn status_is_written_by_its_subresource_only() {
    let both = both().await;
    let mut with_status = thing("t", json!({"color": "red"}));
    with_status["status"] = json!({"state": "New"});
    let status = json!({
        "apiVersion": "sim.example.com/v1", "kind": "Thing", "metadata": {"name": "t"}, "status": {"state": "Applied"},
    });
    let mut replaced = thing("t", json!({"color": "blue"}));
    replaced["metadata"]["resourceVersion"] = json!("{rv:4}");
    both.check(&[
        Ask::post(THINGS, &with_status),
        Ask::merge(&one("t"), &json!({"status": {"state": "No"}, "spec": {"size": 3}})),
        Ask::merge(&format!("{}/status", one("t")), &json!({"status": {"state": "Ready", "no": 1}, "spec": {"size": 4}})),
        Ask::merge(&format!("{}/status", one("t")), &json!({"metadata": {"labels": {"a": "b"}}})),
        Ask::get(&format!("{}/status", one("t"))),
        Ask::put(&one("t"), &thing("t", json!({"color": "blue"}))),
        Ask::put(&one("t"), &replaced),
        Ask::apply(&format!("{}/status?fieldManager=m&force=true", one("t")), &status),
        Ask::apply(&format!("{}/status?fieldManager=m", one("none")), &status),
        Ask::apply(&format!("{}/status?fieldManager=n", one("t")), &json!({
            "apiVersion": "sim.example.com/v1", "kind": "Thing", "metadata": {"name": "t"}, "status": {"state": "Other"},
        })),
        Ask::merge(&format!("{}/scale", one("t")), &json!({})),
        Ask::raw("PATCH", &one("t"), "application/strategic-merge-patch+json", "{}"),
        Ask::delete(&one("t")),
    ])
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn generation_counts_what_matters() {
    let both = both().await;
    let apply = |spec: Value| Ask::apply(&format!("{}?fieldManager=m", one("t")), &thing("t", spec));
    both.check(&[
        apply(json!({"color": "red"})),
        apply(json!({"color": "red"})),
        apply(json!({"color": "blue"})),
        Ask::merge(&one("t"), &json!({"metadata": {"labels": {"a": "b"}, "finalizers": ["x.io/a"]}})),
        Ask::merge(&format!("{}/status", one("t")), &json!({"status": {"state": "Ready"}})),
        Ask::delete(&one("t")),
        apply(json!({"color": "red"})),
        Ask::merge(&one("t"), &json!({"metadata": {"finalizers": []}})),
    ])
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn finalizers_without_a_domain_are_warned_of() {
    let both = both().await;
    let mut new = thing("t", json!({"color": "red"}));
    new["metadata"]["finalizers"] = json!(["label-removal", "x.io/a", "orphan"]);
    both.check(&[
        Ask::post(THINGS, &new),
        Ask::merge(&one("t"), &json!({"metadata": {"finalizers": ["label-removal", "other", "another", "x.io"]}})),
        Ask::merge(&one("t"), &json!({"metadata": {"finalizers": ["a b"]}})),
        Ask::merge(&one("t"), &json!({"metadata": {"finalizers": []}})),
    ])
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn objects_of_another_kind_or_version_are_refused() {
    let both = both().await;
    let of =
        |api_version: &str, kind: &str| json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": "a"}});
    both.check(&[
        Ask::post(THINGS, &of("sim.example.com/v2", "Thing")),
        Ask::post(THINGS, &of("sim.example.com/v1", "Other")),
        Ask::post(THINGS, &json!({"kind": "Thing", "metadata": {"name": "a"}})),
        Ask::raw("POST", THINGS, "application/json", "{\"a\":"),
        Ask::raw("POST", THINGS, "application/json", "x"),
        Ask::raw("POST", THINGS, "application/json", "[]"),
        Ask::raw("POST", THINGS, "text/plain", "{}"),
        Ask::post(THINGS, &thing("A", json!({"color": "red"}))),
        Ask::post(
            THINGS,
            &json!({
                "apiVersion": "sim.example.com/v1", "kind": "Thing", "metadata": {"name": "a", "labels": {"a": 1}},
            }),
        ),
        Ask::get(&one("none")),
        Ask::get("/apis/sim.example.com/v2/namespaces/{ns}/things"),
        Ask::get("/apis/sim.example.com/v1/namespaces/{ns}/others"),
        Ask::get(&format!("{THINGS}?fieldSelector=spec.size%3D4")),
        Ask::apply(&format!("{}?fieldManager=m", one("a")), &thing("a", json!({"color": "pink"}))),
        Ask::apply(&format!("{}?fieldManager=m", one("a")), &thing("a", json!({"color": "red", "no": 1}))),
    ])
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn lists_tables_and_watches_show_custom_resources() {
    let both = both().await;
    let table = "application/json;as=Table;g=meta.k8s.io;v=v1";
    let metadata = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
    both.check(&[
        Ask::post(THINGS, &thing("a", json!({"color": "red", "size": 3}))),
        Ask::post(THINGS, &thing("b", json!({"color": "blue"}))),
        Ask::merge(&format!("{}/status", one("a")), &json!({"status": {"state": "Ready"}})),
        Ask::get(THINGS),
        Ask::get(&format!("{THINGS}?limit=1")),
        Ask::get(&format!("{THINGS}?fieldSelector=spec.color%3Dblue")),
        Ask::get(THINGS).accept(table),
        Ask::get(&one("a")).accept(table),
        Ask::get(&format!("{THINGS}?watch=1&timeoutSeconds=1&resourceVersion={{rv:0}}")),
        Ask::get(&format!("{THINGS}?watch=1&timeoutSeconds=1&resourceVersion={{rv:0}}")).accept(metadata),
        Ask::get(&format!(
            "{THINGS}?watch=1&timeoutSeconds=1&resourceVersion={{rv:0}}&fieldSelector=spec.color%3Dblue"
        )),
        Ask::get(&format!("{THINGS}?watch=1&timeoutSeconds=1&resourceVersion={{rv:0}}")).accept(table),
        Ask::delete(THINGS),
    ])
    .await;
}

pub(super) fn bad(name: &str, schema: Value) -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": name},
        "spec": {
            "group": "bad.example.com", "scope": "Namespaced", "names": {"kind": "Bad", "plural": "bads"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}],
        },
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn definitions_that_are_not_structural_are_refused() {
    let both = Both::new().await;
    let with = |spec: Value| {
        Ask::post(DEFINITIONS, &bad("bads.bad.example.com", json!({"type": "object", "properties": {"spec": spec}})))
    };
    let root = |schema: Value| Ask::post(DEFINITIONS, &bad("bads.bad.example.com", schema));
    let mut without_schema = bad("bads.bad.example.com", json!({}));
    without_schema["spec"]["versions"][0] = json!({"name": "v1", "served": true, "storage": true});
    let mut nothing_stored = bad("bads.bad.example.com", json!({"type": "object"}));
    nothing_stored["spec"]["versions"][0]["storage"] = json!(false);
    nothing_stored["spec"]["scope"] = json!("Foo");
    both.check(&[
        Ask::post(DEFINITIONS, &bad("x.bad.example.com", json!({"type": "object"}))),
        Ask::post(DEFINITIONS, &bad("bads.bad.example.com", json!({}))),
        with(json!({})),
        with(json!({"type": "foo"})),
        with(json!({"type": "string", "pattern": "("})),
        with(json!({"type": "array"})),
        with(json!({"$ref": "#/x"})),
        with(json!({"type": "object", "anyOf": [{"type": "object"}]})),
        with(json!({"type": "array", "items": {"type": "object"}, "x-kubernetes-list-type": "map"})),
        with(json!({"type": "object", "x-kubernetes-validations": [{"rule": "self.x =="}]})),
        with(json!({"type": "object", "x-kubernetes-validations": [{"rule": "self.x == 1"}]})),
        with(json!({"type": "object", "x-kubernetes-validations": [{"rule": "other == 1"}]})),
        with(json!({"type": "object", "x-kubernetes-validations": [{"rule": " "}]})),
        with(json!({"type": "object", "x-kubernetes-validations": [{"rule": "1"}]})),
        with(json!({
            "type": "object", "x-kubernetes-validations": [{"rule": "true", "messageExpression": "self +"}],
        })),
        with(json!({"type": "object", "x-kubernetes-validations": [{"rule": "true", "reason": "Foo"}]})),
        with(json!({"type": "object", "x-kubernetes-validations": [{"rule": "true", "fieldPath": ".no"}]})),
        with(json!({"type": "string", "x-kubernetes-validations": [{"rule": "self.foo()"}]})),
        with(json!({"type": "object", "x-kubernetes-validations": [{"rule": "true", "message": "a\nb"}]})),
        with(json!({"type": "object", "x-kubernetes-validations": [{"rule": "true\n&& true"}]})),
        with(json!({"type": "object", "x-kubernetes-validations": [{"rule": "true", "messageExpression": "1"}]})),
        with(json!({"type": "object", "x-kubernetes-validations": [{"rule": "true", "messageExpression": " "}]})),
        with(json!({"type": "string", "x-kubernetes-validations": [{"rule": "self == 'a'", "optionalOldSelf": true}]})),
        with(json!({
            "type": "array", "maxItems": 3, "x-kubernetes-list-type": "set",
            "items": {"type": "string", "maxLength": 3, "x-kubernetes-validations": [{"rule": "self == oldSelf"}]},
        })),
        with(json!({"type": "object", "properties": {"a": {"type": "string"}}, "additionalProperties": {"type": "string"}})),
        with(json!({"type": "object", "x-kubernetes-preserve-unknown-fields": false})),
        with(json!({"type": "array", "items": [{"type": "string"}]})),
        with(json!({"type": "array", "items": {"type": "string"}, "uniqueItems": true})),
        with(json!({"type": "array", "items": {"type": "object"}, "x-kubernetes-list-type": "set"})),
        with(json!({
            "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["b", "c"],
            "items": {"type": "object", "required": ["a"], "properties": {"b": {"type": "string"}}},
        })),
        with(json!({"type": "string", "x-kubernetes-list-type": "foo"})),
        with(json!({"type": "object", "x-kubernetes-map-type": "foo"})),
        with(json!({"type": "object", "x-kubernetes-list-map-keys": ["a"]})),
        with(json!({
            "type": "object", "properties": {"x": {"type": "integer"}},
            "not": {"properties": {"x": {"minimum": 1, "default": 2}}},
        })),
        with(json!({"type": "object", "allOf": [{"properties": {"x": {"description": "a", "nullable": true}}}]})).loosely(),
        with(json!({"type": "object", "definitions": {"a": {"type": "string"}}})),
        with(json!({"type": "object", "patternProperties": {"a": {"type": "string"}}})),
        with(json!({"type": "object", "dependencies": {"a": ["b"]}})),
        with(json!({"type": "object", "id": "x"})),
        with(json!({"type": "object", "x-kubernetes-embedded-resource": true})),
        with(json!({"type": "string", "x-kubernetes-embedded-resource": true})),
        with(json!({"x-kubernetes-int-or-string": true, "x-kubernetes-preserve-unknown-fields": true})),
        root(json!({"type": "string"})),
        root(json!({"type": "object", "additionalProperties": {"type": "string"}})),
        root(json!({"type": "object", "properties": {"metadata": {"type": "object", "properties": {"labels": {"type": "object"}}}}})),
        root(json!({"type": "object", "properties": {"metadata": {"type": "object", "default": {}}}})),
        Ask::post(DEFINITIONS, &without_schema),
        Ask::post(DEFINITIONS, &nothing_stored),
    ])
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_definition_takes_its_objects_along() {
    let both = Both::new().await;
    let mut definition = definition();
    definition["metadata"]["name"] = json!("passings.sim.example.com");
    definition["spec"]["names"] = json!({"kind": "Passing", "plural": "passings"});
    both.install(&definition).await;
    let passings = "/apis/sim.example.com/v1/namespaces/{ns}/passings";
    both.check(&[
        Ask::post(passings, &json!({
            "apiVersion": "sim.example.com/v1", "kind": "Passing", "metadata": {"name": "a"}, "spec": {"color": "red"},
        })),
        Ask::get(&format!("{DEFINITIONS}/passings.sim.example.com")),
    ])
    .await;
    for client in [&both.real, &both.simulated] {
        Ask::delete(&format!("{DEFINITIONS}/passings.sim.example.com")).send(client, &both.namespace, &[]).await;
        let gone = async || {
            let answer = Ask::get(passings).send(client, &both.namespace, &[]).await;
            if answer.code == 404 { Ok(()) } else { Err(format!("{answer:?}")) }
        };
        crate::harness::eventually("the kind is no longer served", crate::harness::SOON, gone).await;
    }
    both.check(&[Ask::get(&format!("{DEFINITIONS}/passings.sim.example.com"))]).await;
}

const ODDS: &str = "/apis/odd.example.com/v1/namespaces/{ns}/odds";

/// A definition of a group of its own, of which objects are stored as `v1`.
fn odd(plural: &str, kind: &str) -> Value {
    let schema = json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.odd.example.com")},
        "spec": {
            "group": "odd.example.com", "scope": "Namespaced", "names": {"kind": kind, "plural": plural},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": schema}],
        },
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_definition_keeps_what_its_objects_are_stored_by() {
    let plane = harness::dedicated(Options { name: "odd".to_owned(), ..Options::default() }).await;
    let both = Both::create(plane.client().unwrap()).await;
    both.install(&odd("odds", "Odd")).await;
    let definition = format!("{DEFINITIONS}/odds.odd.example.com");
    let change = |spec: Value| Ask::merge(&definition, &json!({"spec": spec})).loosely();
    let mut renamed = odd("odds", "Odd")["spec"]["versions"].clone();
    renamed[0]["name"] = json!("v2");
    let object = |name: &str, finalizers: Value| {
        let metadata = json!({"name": name, "finalizers": finalizers});
        json!({"apiVersion": "odd.example.com/v1", "kind": "Odd", "metadata": metadata})
    };
    both.check(&[
        Ask::post(ODDS, &object("held", json!(["x.io/a"]))).loosely(),
        change(json!({"scope": "Cluster"})),
        change(json!({"names": {"kind": "Even"}})),
        change(json!({"names": {"plural": "evens"}})),
        change(json!({"group": "even.example.com"})),
        change(json!({"versions": renamed})),
        Ask::get(&format!("{ODDS}/held")).loosely(),
        Ask::post(DEFINITIONS, &odd("others", "Odd")).loosely(),
    ])
    .await;
    let conditions = |of: &Value| -> Vec<Value> {
        let conditions = of["status"]["conditions"].as_array().into_iter().flatten();
        conditions.map(|of| json!([of["type"], of["status"], of["reason"], of["message"]])).collect()
    };
    let refused = [
        json!(["NamesAccepted", "False", "ListKindConflict", "\"OddList\" is already in use"]),
        json!(["Established", "False", "NotAccepted", "not all names are accepted"]),
    ];
    let other = Ask::get(&format!("{DEFINITIONS}/others.odd.example.com"));
    both.settle_to(&other, |of| conditions(of) == refused).await;

    // No object comes to a definition that goes; when the last one is gone, it is, too.
    both.check(&[Ask::delete(&definition).loosely()]).await;
    let late = Ask::post(&format!("{ODDS}?dryRun=All"), &object("late", json!([])));
    both.settle_to(&late, |of| of["code"] == 403).await;
    both.check(&[
        late.clone(),
        Ask::merge(&format!("{ODDS}/held"), &json!({"metadata": {"finalizers": null}})).loosely(),
    ])
    .await;
    both.settle_to(&Ask::get(&definition), |of| of["code"] == 404).await;
    // The names are free now.
    let is_established = |of: &Value| conditions(of).iter().all(|of| of[1] == "True");
    both.settle_to(&other, is_established).await;
}
