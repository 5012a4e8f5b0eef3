// SPDX-License-Identifier: Apache-2.0

//! Decoding: a value of the wrong type is refused in the words of Go's decoder, and unknown fields are dropped.

use serde_json::Value;

use super::{COMPONENTS, component};
use tidegate_core::object::Gvk;

const OBJECT_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";
const INT_OR_STRING: &str = "io.k8s.apimachinery.pkg.util.intstr.IntOrString";

/// Drops unknown fields and returns their paths, such as `spec.template.x`. Also drops nulls, without reporting them.
///
/// # Errors
///
/// Fails if a value has the wrong type.
pub fn prune(kind: &Gvk, object: &mut Value) -> Result<Vec<String>, String> {
    let Some(component) = component(kind) else { return Ok(Vec::new()) };
    decode(component, object, "", "")
}

/// The same for `metadata` alone, for custom resources.
///
/// # Errors
///
/// Fails if a value has the wrong type.
pub fn prune_metadata(object: &mut Value) -> Result<Vec<String>, String> {
    match object.get_mut("metadata") {
        Some(metadata) => decode(OBJECT_META, metadata, "metadata", ""),
        None => Ok(Vec::new()),
    }
}

fn decode(component: &str, value: &mut Value, path: &str, field: &str) -> Result<Vec<String>, String> {
    let mut decoder =
        Decoder { unknown: Vec::new(), structure: short(component), path: path.to_owned(), field: field.to_owned() };
    decoder.visit(&reference(component), value)?;
    Ok(decoder.unknown)
}

/// The name of a component's type in Go's messages.
fn short(component: &str) -> String {
    component.rsplit('.').next().unwrap_or(component).to_owned()
}

fn reference(component: &str) -> Value {
    serde_json::json!({"$ref": component})
}

struct Decoder {
    unknown: Vec<String>,
    /// The innermost structure, which messages name.
    structure: String,
    /// The path with keys and positions, for unknown fields.
    path: String,
    /// The path without them, for wrong types.
    field: String,
}

// === impl Decoder ===

impl Decoder {
    fn visit(&mut self, schema: &Value, value: &mut Value) -> Result<(), String> {
        if value.is_null() {
            return Ok(());
        }
        if let Some(name) = schema["$ref"].as_str() {
            return self.visit_component(name, value);
        }
        let fits = match schema["type"].as_str() {
            Some("string") => value.is_string(),
            Some("boolean") => value.is_boolean(),
            Some("integer") => value.is_i64() || value.is_u64(),
            Some("number") => value.is_number(),
            Some("array") => return self.visit_items(schema, value),
            Some("object") => return self.visit_entries(schema, value),
            _ => true,
        };
        if fits { Ok(()) } else { Err(self.mismatch(schema, value)) }
    }

    fn visit_component(&mut self, name: &str, value: &mut Value) -> Result<(), String> {
        let Some(schema) = COMPONENTS.get(name) else { return Ok(()) };
        if name == INT_OR_STRING && (value.is_string() || value.is_number()) {
            return Ok(());
        }
        let Some(properties) = schema["properties"].as_object() else {
            return self.visit(schema, value);
        };
        let Value::Object(fields) = value else {
            return Err(self.mismatch(&reference(name), value));
        };
        let outer = std::mem::replace(&mut self.structure, short(name));
        let (path, field) = (self.path.len(), self.field.len());
        let mut names: Vec<String> = fields.keys().cloned().collect();
        names.sort_unstable();
        for name in names {
            push(&mut self.path, &name);
            push(&mut self.field, &name);
            match (properties.get(&name), fields.get_mut(&name)) {
                (Some(property), Some(value)) => self.visit(property, value)?,
                _ => {
                    fields.shift_remove(&name);
                    self.unknown.push(self.path.clone());
                }
            }
            if fields.get(&name).is_some_and(Value::is_null) {
                fields.shift_remove(&name);
            }
            self.path.truncate(path);
            self.field.truncate(field);
        }
        self.structure = outer;
        Ok(())
    }

    fn visit_items(&mut self, schema: &Value, value: &mut Value) -> Result<(), String> {
        let Value::Array(items) = value else { return Err(self.mismatch(schema, value)) };
        let path = self.path.len();
        for (index, item) in items.iter_mut().enumerate() {
            self.path.push_str(&format!("[{index}]"));
            self.visit(&schema["items"], item)?;
            self.path.truncate(path);
        }
        Ok(())
    }

    fn visit_entries(&mut self, schema: &Value, value: &mut Value) -> Result<(), String> {
        let Value::Object(entries) = value else { return Err(self.mismatch(schema, value)) };
        let Some(of) = schema.get("additionalProperties") else { return Ok(()) };
        let path = self.path.len();
        for (name, value) in entries {
            push(&mut self.path, name);
            self.visit(of, value)?;
            self.path.truncate(path);
        }
        Ok(())
    }

    fn mismatch(&self, schema: &Value, value: &Value) -> String {
        let found = match value {
            Value::Null => "null".to_owned(),
            Value::Bool(_) => "bool".to_owned(),
            Value::Number(number) if schema["type"] == "integer" => format!("number {number}"),
            Value::Number(_) => "number".to_owned(),
            Value::String(_) => "string".to_owned(),
            Value::Array(_) => "array".to_owned(),
            Value::Object(_) => "object".to_owned(),
        };
        let wanted = go_type(schema);
        if self.field.is_empty() {
            return format!("json: cannot unmarshal {found} into Go value of type {wanted}");
        }
        format!(
            "json: cannot unmarshal {found} into Go struct field {}.{} of type {wanted}",
            self.structure, self.field
        )
    }
}

fn push(path: &mut String, name: &str) {
    if !path.is_empty() {
        path.push('.');
    }
    path.push_str(name);
}

/// The Go type of a schema.
fn go_type(schema: &Value) -> String {
    if let Some(name) = schema["$ref"].as_str() {
        let mut parts = name.rsplit('.');
        let (kind, version) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
        return format!("{version}.{kind}");
    }
    let format = schema["format"].as_str();
    match schema["type"].as_str() {
        Some("string") if format == Some("byte") => "[]uint8".to_owned(),
        Some("string") => "string".to_owned(),
        Some("boolean") => "bool".to_owned(),
        Some("integer") => format.unwrap_or("int64").to_owned(),
        Some("number") => "float64".to_owned(),
        Some("array") => format!("[]{}", go_type(&schema["items"])),
        Some("object") => format!("map[string]{}", go_type(&schema["additionalProperties"])),
        _ => "interface {}".to_owned(),
    }
}
