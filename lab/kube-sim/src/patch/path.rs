// SPDX-License-Identifier: Apache-2.0

//! One step of a path in managed fields, and its two notations: `f:name` in managed fields and `.name` in messages.

use std::{cmp::Ordering, fmt};

use serde_json::{Map, Number, Value};

/// One step: to a field, or to an item of a list by its keys, its value or its position.
///
/// Ordered as in managed fields.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Step {
    Field(Box<str>),
    /// The item of a keyed list with these values, sorted by name.
    Keys(Vec<(Box<str>, Datum)>),
    /// The item of a set with this value.
    Value(Datum),
    Index(i64),
}

/// A value with a total order: numbers, texts, booleans, lists, mappings, null. `1` equals `1.0`.
#[derive(Clone, Debug)]
pub(super) struct Datum(pub(super) Value);

/// Whether two values are equal; `1` equals `1.0`.
pub(super) fn equal(left: &Value, right: &Value) -> bool {
    match (left, right) {
        (Value::Number(left), Value::Number(right)) => compare_numbers(left, right) == Ordering::Equal,
        (Value::Array(left), Value::Array(right)) => {
            left.len() == right.len() && left.iter().zip(right).all(|(left, right)| equal(left, right))
        }
        (Value::Object(left), Value::Object(right)) => {
            left.len() == right.len()
                && left.iter().all(|(key, value)| right.get(key).is_some_and(|other| equal(value, other)))
        }
        (left, right) => left == right,
    }
}

fn compare_numbers(left: &Number, right: &Number) -> Ordering {
    match (whole(left), whole(right)) {
        (Some(left), Some(right)) => left.cmp(&right),
        _ => left.as_f64().partial_cmp(&right.as_f64()).unwrap_or(Ordering::Equal),
    }
}

fn whole(number: &Number) -> Option<i128> {
    number.as_i64().map(i128::from).or_else(|| number.as_u64().map(i128::from))
}

// === impl Datum ===

impl Ord for Datum {
    fn cmp(&self, other: &Datum) -> Ordering {
        fn rank(value: &Value) -> u8 {
            match value {
                Value::Number(_) => 0,
                Value::String(_) => 1,
                Value::Bool(_) => 2,
                Value::Array(_) => 3,
                Value::Object(_) => 4,
                Value::Null => 5,
            }
        }
        match (&self.0, &other.0) {
            (Value::Number(left), Value::Number(right)) => compare_numbers(left, right),
            (Value::String(left), Value::String(right)) => left.cmp(right),
            (Value::Bool(left), Value::Bool(right)) => left.cmp(right),
            (left, right) if rank(left) != rank(right) => rank(left).cmp(&rank(right)),
            // Lists and mappings are never keys; compare their texts.
            (left, right) if equal(left, right) => Ordering::Equal,
            (left, right) => left.to_string().cmp(&right.to_string()),
        }
    }
}

impl PartialOrd for Datum {
    fn partial_cmp(&self, other: &Datum) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Datum {
    fn eq(&self, other: &Datum) -> bool {
        equal(&self.0, &other.0)
    }
}

impl Eq for Datum {}

impl fmt::Display for Datum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Value::String(text) => write!(f, "{text:?}"),
            other => write!(f, "{other}"),
        }
    }
}

// === impl Step ===

impl Step {
    pub(super) fn field(name: &str) -> Step {
        Step::Field(name.into())
    }

    /// The notation in managed fields.
    pub(super) fn encode(&self) -> String {
        match self {
            Step::Field(name) => format!("f:{name}"),
            Step::Keys(keys) => {
                let keys: Map<String, Value> =
                    keys.iter().map(|(name, value)| (name.to_string(), value.0.clone())).collect();
                format!("k:{}", escaped(&Value::Object(keys)))
            }
            Step::Value(value) => format!("v:{}", escaped(&value.0)),
            Step::Index(index) => format!("i:{index}"),
        }
    }

    /// Parses the notation of managed fields. `Ok(None)` for an unknown kind of step, which the server drops.
    pub(super) fn decode(text: &str) -> Result<Option<Step>, String> {
        let broken = |error: &dyn fmt::Display| format!("parsing key as path element: {text}: {error}");
        let Some((kind, rest)) = text.split_once(':') else { return Err(broken(&"key must be 2 characters long")) };
        Ok(Some(match kind {
            "f" => Step::field(rest),
            "v" => Step::Value(Datum(serde_json::from_str(rest).map_err(|error| broken(&error))?)),
            "k" => {
                let keys: Map<String, Value> = serde_json::from_str(rest).map_err(|error| broken(&error))?;
                let mut keys: Vec<(Box<str>, Datum)> =
                    keys.into_iter().map(|(name, value)| (name.into(), Datum(value))).collect();
                keys.sort();
                Step::Keys(keys)
            }
            "i" => Step::Index(rest.parse().map_err(|error| broken(&error))?),
            _ => return Ok(None),
        }))
    }
}

/// JSON as Go writes it: HTML characters are escaped.
fn escaped(value: &Value) -> String {
    let text = value.to_string();
    if !text.contains(['<', '>', '&', '\u{2028}', '\u{2029}']) {
        return text;
    }
    text.replace('<', "\\u003c")
        .replace('>', "\\u003e")
        .replace('&', "\\u0026")
        .replace('\u{2028}', "\\u2028")
        .replace('\u{2029}', "\\u2029")
}

impl fmt::Display for Step {
    /// The notation in messages: `.name`, `[name="a"]`, `[="a"]`, `[0]`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Step::Field(name) => write!(f, ".{name}"),
            Step::Keys(keys) => {
                f.write_str("[")?;
                for (index, (name, value)) in keys.iter().enumerate() {
                    let comma = if index == 0 { "" } else { "," };
                    write!(f, "{comma}{name}={value}")?;
                }
                f.write_str("]")
            }
            Step::Value(value) => write!(f, "[={value}]"),
            Step::Index(index) => write!(f, "[{index}]"),
        }
    }
}
