//! A custom resource with every kind of list and mapping that server-side apply tells apart.

use serde_json::{Value, json};

/// Its group and version.
pub(super) const API_VERSION: &str = "sim.tidegate.dev/v1";

/// The CustomResourceDefinition.
pub(super) fn crd() -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.sim.tidegate.dev"},
        "spec": {
            "group": "sim.tidegate.dev",
            "names": {"kind": "Widget", "plural": "widgets", "singular": "widget", "listKind": "WidgetList"},
            "scope": "Namespaced",
            "versions": [{
                "name": "v1",
                "served": true,
                "storage": true,
                "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": schema()},
            }],
        },
    })
}

/// The schema of its only version.
pub(super) fn schema() -> Value {
    let text = json!({"type": "string"});
    json!({"type": "object", "properties": {
        "spec": {"type": "object", "properties": {
            "text": text,
            "number": {"type": "integer"},
            "fraction": {"type": "number"},
            "flag": {"type": "boolean"},
            "either": {"x-kubernetes-int-or-string": true},
            "nullable": {"type": "string", "nullable": true},
            "when": {"type": "string", "format": "date-time"},
            "texts": {"type": "object", "additionalProperties": text},
            "whole": {"type": "object", "x-kubernetes-map-type": "atomic", "properties": {"a": text, "b": text}},
            "list": {"type": "array", "items": text},
            "set": {"type": "array", "items": text, "x-kubernetes-list-type": "set"},
            "numbers": {"type": "array", "items": {"type": "integer"}, "x-kubernetes-list-type": "set"},
            "parts": {
                "type": "array",
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["name", "protocol"],
                "items": {"type": "object", "required": ["name"], "properties": {
                    "name": text,
                    "protocol": {"type": "string", "default": "TCP"},
                    "size": {"type": "integer"},
                    "tags": {"type": "array", "items": text, "x-kubernetes-list-type": "set"},
                    "inner": {"type": "object", "properties": {"a": text, "b": text}},
                }},
            },
            "anything": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
            "untyped": {"x-kubernetes-preserve-unknown-fields": true},
            "template": {
                "type": "object",
                "x-kubernetes-embedded-resource": true,
                "x-kubernetes-preserve-unknown-fields": true,
            },
        }},
        "status": {"type": "object", "properties": {
            "state": text,
            "conditions": {
                "type": "array",
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["type"],
                "items": {"type": "object", "required": ["type"], "properties": {"type": text, "status": text}},
            },
        }},
    }})
}

/// A widget with this spec.
pub(super) fn with(name: &str, spec: Value) -> Value {
    json!({"apiVersion": API_VERSION, "kind": "Widget", "metadata": {"name": name}, "spec": spec})
}
