// SPDX-License-Identifier: Apache-2.0

//! `/openapi/v3`: the schemas of the served resources, as far as they are known, and the parameters of a PATCH.
//!
//! Built-in kinds have the recorded schemas, without descriptions; custom resources have those of their definitions.

use std::{collections::BTreeSet, sync::Arc};

use serde_json::{Map, Value, json};

use super::{builtin, resource::Resource};

const PREFIX: &str = "#/components/schemas/";
const OBJECT_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";

/// The document of a group and version. `root` is the prefix of its paths.
pub(super) fn document(root: &str, resources: &[Arc<Resource>], git_version: &str) -> Value {
    let mut paths = Map::new();
    let mut schemas = Map::new();
    let mut wanted: BTreeSet<String> = BTreeSet::new();
    for resource in resources {
        let scope = if resource.namespaced { "/namespaces/{namespace}" } else { "" };
        paths.insert(format!("{root}{scope}/{}/{{name}}", resource.plural), patch(resource));
        match &resource.custom {
            None => wanted.extend(builtin::component(&resource.kind).map(str::to_owned)),
            Some(custom) => {
                schemas.insert(name_of(resource), of_definition(resource, &custom.props));
                wanted.insert(OBJECT_META.to_owned());
            }
        }
    }
    while let Some(name) = wanted.pop_first() {
        if schemas.contains_key(&name) {
            continue;
        }
        let Some(recorded) = builtin::recorded(&name) else { continue };
        collect(recorded, &mut wanted);
        let mut schema = published(recorded);
        if let (Some(fields), Some([group, version, kind])) =
            (schema.as_object_mut(), recorded["kind"].as_array().map(Vec::as_slice))
        {
            fields.shift_remove("kind");
            let kind = json!([{"group": group, "version": version, "kind": kind}]);
            fields.insert("x-kubernetes-group-version-kind".to_owned(), kind);
        }
        schemas.insert(name, schema);
    }
    let info = json!({"title": "Kubernetes", "version": git_version});
    json!({"openapi": "3.0.0", "info": info, "paths": paths, "components": {"schemas": schemas}})
}

/// What `kubectl` checks before it requests strict validation.
fn patch(resource: &Resource) -> Value {
    let names = ["dryRun", "fieldManager", "fieldValidation", "force"];
    let parameters: Vec<Value> =
        names.iter().map(|name| json!({"name": name, "in": "query", "schema": {"type": "string"}})).collect();
    json!({
        "patch": {
            "parameters": parameters,
            "x-kubernetes-action": "patch",
            "x-kubernetes-group-version-kind": kind_of(resource),
            "responses": {"200": {"description": "OK"}},
        },
    })
}

fn kind_of(resource: &Resource) -> Value {
    json!({"group": resource.kind.group, "version": resource.kind.version, "kind": resource.kind.kind})
}

/// The name of a custom resource's schema: its reversed group, its version and its kind.
fn name_of(resource: &Resource) -> String {
    let group: Vec<&str> = resource.kind.group.rsplit('.').collect();
    format!("{}.{}.{}", group.join("."), resource.kind.version, resource.kind.kind)
}

fn of_definition(resource: &Resource, props: &Value) -> Value {
    let mut schema = props.clone();
    let metadata = json!({"allOf": [{"$ref": format!("{PREFIX}{OBJECT_META}")}]});
    for (name, of) in
        [("apiVersion", json!({"type": "string"})), ("kind", json!({"type": "string"})), ("metadata", metadata)]
    {
        schema["properties"][name] = of;
    }
    schema["x-kubernetes-group-version-kind"] = json!([kind_of(resource)]);
    schema
}

/// A recorded schema as the server publishes it: references are alone, or inside `allOf`.
fn published(recorded: &Value) -> Value {
    match recorded {
        Value::Object(fields) => {
            let reference =
                fields.get("$ref").and_then(Value::as_str).map(|name| json!({"$ref": format!("{PREFIX}{name}")}));
            let is_alone = fields.len() == 1;
            match reference {
                Some(reference) if is_alone => reference,
                reference => {
                    let others = fields.iter().filter(|(name, _)| reference.is_none() || *name != "$ref");
                    let mut published: Map<String, Value> =
                        others.map(|(name, value)| (name.clone(), published(value))).collect();
                    published.extend(reference.map(|reference| ("allOf".to_owned(), json!([reference]))));
                    Value::Object(published)
                }
            }
        }
        Value::Array(items) => items.iter().map(published).collect(),
        other => other.clone(),
    }
}

/// The components that a schema refers to.
fn collect(schema: &Value, wanted: &mut BTreeSet<String>) {
    match schema {
        Value::Object(fields) => {
            wanted.extend(fields.get("$ref").and_then(Value::as_str).map(str::to_owned));
            fields.values().for_each(|value| collect(value, wanted));
        }
        Value::Array(items) => items.iter().for_each(|item| collect(item, wanted)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}
