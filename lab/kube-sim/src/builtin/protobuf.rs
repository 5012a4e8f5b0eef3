// SPDX-License-Identifier: Apache-2.0

//! Decodes protobuf bodies, which Go's typed clients send for built-in kinds, to JSON values.
//!
//! The recorded schemas contain the type of each field. `fields.txt` contains its number, and its name after `=`, or
//! after `!` if its zero value is also printed, because it is a pointer in Go or not omitted. A `>` names a message
//! whose fields belong to the outer one. Answers are always JSON, which every client accepts.

use std::{collections::HashMap, sync::LazyLock};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use jiff::Timestamp;
use serde_json::{Map, Number, Value, json};

use super::COMPONENTS;
use tidegate_core::object::Gvk;

/// The prefix of every protobuf body.
pub(crate) const MAGIC: &[u8] = b"k8s\0";
/// Its content type.
pub(crate) const CONTENT_TYPE: &str = "application/vnd.kubernetes.protobuf";

/// Limit of nested messages. Built-in kinds are less deep.
const DEPTH_MAX: usize = 32;
const QUANTITY: &str = "io.k8s.apimachinery.pkg.api.resource.Quantity";
const INT_OR_STRING: &str = "io.k8s.apimachinery.pkg.util.intstr.IntOrString";
const DELETE_OPTIONS: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions";

/// Fields of messages, by the message's name.
static MESSAGES: LazyLock<HashMap<&'static str, Vec<Field>>> = LazyLock::new(|| {
    let lines = include_str!("fields.txt").lines().filter_map(|line| line.split_once(' '));
    lines.map(|(name, fields)| (name, fields.split(' ').filter_map(Field::parse).collect())).collect()
});
/// Schemas of objects that are sent but never stored.
static OTHERS: LazyLock<Value> = LazyLock::new(|| {
    json!({
        DELETE_OPTIONS: {"properties": {
            "gracePeriodSeconds": {"type": "integer"}, "orphanDependents": {"type": "boolean"},
            "propagationPolicy": {"type": "string"}, "dryRun": {"type": "array", "items": {"type": "string"}},
            "preconditions": {"$ref": "io.k8s.apimachinery.pkg.apis.meta.v1.Preconditions"},
        }},
        "io.k8s.apimachinery.pkg.apis.meta.v1.Preconditions": {
            "properties": {"uid": {"type": "string"}, "resourceVersion": {"type": "string"}},
        },
    })
});

struct Field {
    number: u64,
    /// The JSON name of the field; for an inner message, the name of the message.
    name: &'static str,
    role: Role,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Role {
    /// A zero value counts as absent.
    Plain,
    /// A zero value is printed.
    Told,
    /// Its fields belong to the outer message.
    Inline,
}

/// A field on the wire.
enum Wire<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

/// The object of a body, which contains its own type. `None` if its kind is not built in. Fails with the server's words
/// if the body is not protobuf, or not of that type.
pub(crate) fn decode(body: &[u8]) -> Result<Option<Value>, String> {
    let Some(body) = body.strip_prefix(MAGIC) else {
        return Err("provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]".to_owned());
    };
    let (mut api_version, mut kind, mut raw) = (String::new(), String::new(), &[] as &[u8]);
    for (number, wire) in Fields(body).collect::<Result<Vec<_>, _>>()? {
        match (number, wire) {
            (1, Wire::Bytes(meta)) => {
                for (number, wire) in Fields(meta).collect::<Result<Vec<_>, _>>()? {
                    match (number, wire) {
                        (1, Wire::Bytes(text)) => api_version = utf8(text)?,
                        (2, Wire::Bytes(text)) => kind = utf8(text)?,
                        _ => {}
                    }
                }
            }
            (2, Wire::Bytes(bytes)) => raw = bytes,
            _ => {}
        }
    }
    let component = match &*kind {
        "DeleteOptions" => Some(DELETE_OPTIONS),
        _ => super::component(&Gvk::from_api_version(&api_version, &kind)),
    };
    let Some(component) = component.filter(|name| MESSAGES.contains_key(name)) else { return Ok(None) };
    let mut object = json!({"kind": kind, "apiVersion": api_version});
    if let (Some(object), Value::Object(fields)) = (object.as_object_mut(), message(component, raw, 0)?) {
        object.extend(fields);
    }
    Ok(Some(object))
}

fn schema_of(component: &str) -> &'static Value {
    COMPONENTS.get(component).unwrap_or_else(|| &OTHERS[component])
}

fn message(component: &str, bytes: &[u8], depth: usize) -> Result<Value, String> {
    let mut fields = Map::new();
    fill(&schema_of(component)["properties"], component, bytes, depth, &mut fields)?;
    Ok(Value::Object(fields))
}

/// Sets the fields of a message. Their schemas may be those of the outer message.
fn fill(
    schemas: &'static Value,
    name: &str,
    bytes: &[u8],
    depth: usize,
    fields: &mut Map<String, Value>,
) -> Result<(), String> {
    if DEPTH_MAX < depth {
        return Err("messages are nested too deeply".to_owned());
    }
    let known = MESSAGES.get(name).map(Vec::as_slice).unwrap_or_default();
    for found in Fields(bytes) {
        let (number, wire) = found?;
        // As in the server, an unknown field of a newer client is dropped.
        let Some(field) = known.iter().find(|field| field.number == number) else { continue };
        if field.role == Role::Inline {
            fill(schemas, field.name, wire.bytes()?, depth + 1, fields)?;
            continue;
        }
        let schema = &schemas[field.name];
        match schema["type"].as_str() {
            Some("array") => {
                let item = value(&schema["items"], &wire, depth)?;
                let items = fields.entry(field.name).or_insert_with(|| json!([]));
                items.as_array_mut().into_iter().for_each(|items| items.push(item.clone()));
            }
            Some("object") if schema["additionalProperties"].is_object() => {
                let (key, value) = entry(&schema["additionalProperties"], wire.bytes()?, depth)?;
                let entries = fields.entry(field.name).or_insert_with(|| json!({}));
                entries.as_object_mut().into_iter().for_each(|entries| {
                    entries.insert(key.clone(), value.clone());
                });
            }
            _ => {
                let value = value(schema, &wire, depth)?;
                let is_zero = value.is_null() || value == "" || value == 0 || value == false;
                if !is_zero || (field.role == Role::Told && !value.is_null()) {
                    fields.insert(field.name.to_owned(), value);
                }
            }
        }
    }
    Ok(())
}

/// An entry of a mapping.
fn entry(schema: &'static Value, bytes: &[u8], depth: usize) -> Result<(String, Value), String> {
    let (mut key, mut found) = (String::new(), Value::Null);
    for field in Fields(bytes) {
        match field? {
            (1, wire) => key = utf8(wire.bytes()?)?,
            (2, wire) => found = value(schema, &wire, depth)?,
            _ => {}
        }
    }
    // An absent value is the zero of its type, which is an empty text for all of ours.
    Ok((key, if found.is_null() { json!("") } else { found }))
}

fn value(schema: &'static Value, wire: &Wire<'_>, depth: usize) -> Result<Value, String> {
    if let Some(component) = schema["$ref"].as_str() {
        return structure(component, wire, depth);
    }
    Ok(match (schema["type"].as_str(), schema["format"].as_str()) {
        (Some("boolean"), _) => json!(wire.number()? != 0),
        (Some("integer"), _) => json!(wire.number()?.cast_signed()),
        (Some("number"), _) => Number::from_f64(f64::from_bits(wire.number()?)).map_or(Value::Null, Value::Number),
        (Some("string"), Some("byte")) => STANDARD.encode(wire.bytes()?).into(),
        (Some("string"), Some("date-time")) => time(wire.bytes()?, false)?,
        (Some("string"), _) => utf8(wire.bytes()?)?.into(),
        // The values of an `ExtraValue` are one message deeper.
        (Some("array"), _) => {
            let items = Fields(wire.bytes()?).map(|field| value(&schema["items"], &field?.1, depth + 1));
            Value::Array(items.collect::<Result<_, String>>()?)
        }
        // Any type: raw JSON.
        _ => raw(wire.bytes()?)?,
    })
}

/// A value of a component; some are not mappings in JSON.
fn structure(component: &str, wire: &Wire<'_>, depth: usize) -> Result<Value, String> {
    let bytes = wire.bytes()?;
    match component {
        QUANTITY => first_text(bytes),
        INT_OR_STRING => {
            let (mut is_text, mut number, mut text) = (false, 0, String::new());
            for field in Fields(bytes) {
                match field? {
                    (1, wire) => is_text = wire.number()? == 1,
                    (2, wire) => number = wire.number()?.cast_signed(),
                    (3, wire) => text = utf8(wire.bytes()?)?,
                    _ => {}
                }
            }
            Ok(if is_text { text.into() } else { number.into() })
        }
        _ if MESSAGES.contains_key(component) => message(component, bytes, depth + 1),
        _ => match schema_of(component)["format"].as_str() {
            Some("date-time") => time(bytes, component.ends_with("MicroTime")),
            _ => raw(bytes),
        },
    }
}

/// The text of a message with one field.
fn first_text(bytes: &[u8]) -> Result<Value, String> {
    match Fields(bytes).next() {
        Some(field) => Ok(utf8(field?.1.bytes()?)?.into()),
        None => Ok(Value::Null),
    }
}

/// The JSON in a message with one field.
fn raw(bytes: &[u8]) -> Result<Value, String> {
    match Fields(bytes).next() {
        Some(field) => serde_json::from_slice(field?.1.bytes()?).map_err(|error| error.to_string()),
        None => Ok(json!({})),
    }
}

/// Seconds and nanoseconds since 1970, as whole seconds or with microseconds. An empty message is no time.
fn time(bytes: &[u8], with_micros: bool) -> Result<Value, String> {
    if bytes.is_empty() {
        return Ok(Value::Null);
    }
    let (mut seconds, mut nanoseconds) = (0, 0);
    for field in Fields(bytes) {
        match field? {
            (1, wire) => seconds = wire.number()?.cast_signed(),
            (2, wire) => nanoseconds = wire.number()?.cast_signed(),
            _ => {}
        }
    }
    let nanoseconds = i32::try_from(nanoseconds).map_err(|_| "a time has too many nanoseconds".to_owned())?;
    let time = Timestamp::new(seconds, nanoseconds).map_err(|error| error.to_string())?;
    Ok(if with_micros { format!("{time:.6}") } else { format!("{time:.0}") }.into())
}

fn utf8(bytes: &[u8]) -> Result<String, String> {
    String::from_utf8(bytes.to_vec()).map_err(|_| "a text is not UTF-8".to_owned())
}

// === impl Field ===

impl Field {
    fn parse(text: &'static str) -> Option<Field> {
        let at = text.find(['=', '!', '>'])?;
        let role = match text.as_bytes()[at] {
            b'!' => Role::Told,
            b'>' => Role::Inline,
            _ => Role::Plain,
        };
        Some(Field { number: text[..at].parse().ok()?, name: &text[at + 1..], role })
    }
}

// === impl Wire ===

impl<'a> Wire<'a> {
    fn bytes(&self) -> Result<&'a [u8], String> {
        match self {
            Wire::Bytes(bytes) => Ok(bytes),
            Wire::Number(_) => Err("found a number instead of a message".to_owned()),
        }
    }

    fn number(&self) -> Result<u64, String> {
        match self {
            Wire::Number(number) => Ok(*number),
            Wire::Bytes(_) => Err("found a message instead of a number".to_owned()),
        }
    }
}

/// The fields of a message, in order.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn varint(&mut self) -> Result<u64, String> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let (&byte, rest) = self.0.split_first().ok_or("unexpected EOF")?;
            self.0 = rest;
            number |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(number);
            }
        }
        Err("proto: integer overflow".to_owned())
    }

    fn take(&mut self, length: u64) -> Result<&'a [u8], String> {
        let length = usize::try_from(length).ok().filter(|length| *length <= self.0.len()).ok_or("unexpected EOF")?;
        let (taken, rest) = self.0.split_at(length);
        self.0 = rest;
        Ok(taken)
    }

    fn field(&mut self) -> Result<(u64, Wire<'a>), String> {
        let tag = self.varint()?;
        let little = |bytes: &[u8]| bytes.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte));
        let wire = match tag & 7 {
            0 => Wire::Number(self.varint()?),
            1 => Wire::Number(little(self.take(8)?)),
            2 => {
                let length = self.varint()?;
                Wire::Bytes(self.take(length)?)
            }
            5 => Wire::Number(little(self.take(4)?)),
            other => return Err(format!("proto: illegal wireType {other}")),
        };
        Ok((tag >> 3, wire))
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = Result<(u64, Wire<'a>), String>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let field = self.field();
        if field.is_err() {
            // Nothing can be read after an error.
            self.0 = &[];
        }
        Some(field)
    }
}
