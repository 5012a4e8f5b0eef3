//! The parts of structured values: what a kubeconfig, a Docker configuration or any other JSON or YAML in a Secret
//! contains is secret as well, even if it cannot be read as a definition.

use serde_json::Value;
use tidegate_core::yaml::{self, Scalar};

use super::find;

/// Maximum nesting of texts within texts, such as JSON in base64 in YAML.
const DEPTH_MAX: usize = 4;
/// Parts of one value that are found. With more of them, only the whole value is searched for in other texts.
const LEAVES_MAX: usize = 10_000;
/// A shorter number occurs in other texts by chance.
const NUMBER_BYTES_MIN: usize = 8;
/// Fields that say what a value is.
const HEADERS: [&str; 2] = ["apiVersion", "kind"];

/// Every text and long number in a value that is JSON or YAML, without keys of mappings. A text in base64 comes decoded
/// as well, and the password of `auth: base64(user:password)` by itself. Empty for a plain text.
pub(super) fn find(value: &[u8]) -> Vec<String> {
    let mut leaves = Vec::new();
    // A mask reads as YAML, and hides nothing.
    if let Ok(text) = std::str::from_utf8(value)
        && !super::is_mask(text)
    {
        within(text, DEPTH_MAX, &mut leaves);
    }
    leaves
}

/// Adds the parts of a text; none for a plain one.
fn within(text: &str, depth: usize, leaves: &mut Vec<String>) {
    let Some(depth) = depth.checked_sub(1) else { return };
    // Cheaper than parsing every certificate and password.
    if !text.contains([':', '[', '{', '"']) && !text.trim_start().starts_with('-') {
        return;
    }
    let Some((values, _)) = find::parsed(text) else { return loose(text, depth, leaves) };
    for value in values {
        match value {
            Value::Object(_) | Value::Array(_) => walk("", &value, depth, leaves),
            // JSON in a JSON text.
            Value::String(inner) if inner.len() < text.trim().len() => leaf("", &inner, depth, leaves),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
}

/// Adds the parts of a text with tags, keys that occur twice, deep nesting, or errors.
fn loose(text: &str, depth: usize, leaves: &mut Vec<String>) {
    let whole = text.trim().len();
    for Scalar { key, text, is_number } in yaml::scalars(text, LEAVES_MAX) {
        match is_number {
            _ if leaves.len() >= LEAVES_MAX => return,
            true if text.len() >= NUMBER_BYTES_MIN => leaves.push(text),
            false if text.len() < whole && !HEADERS.contains(&&*key) => leaf(&key, &text, depth, leaves),
            true | false => {}
        }
    }
}

fn walk(field: &str, value: &Value, depth: usize, leaves: &mut Vec<String>) {
    match value {
        _ if leaves.len() >= LEAVES_MAX => {}
        Value::Object(map) => {
            let parts = map.iter().filter(|(field, value)| !(HEADERS.contains(&field.as_str()) && value.is_string()));
            parts.for_each(|(field, value)| walk(field, value, depth, leaves));
        }
        Value::Array(items) => items.iter().for_each(|item| walk(field, item, depth, leaves)),
        Value::String(text) => leaf(field, text, depth, leaves),
        Value::Number(number) => leaves.extend(Some(number.to_string()).filter(|text| text.len() >= NUMBER_BYTES_MIN)),
        Value::Null | Value::Bool(_) => {}
    }
}

fn leaf(field: &str, text: &str, depth: usize, leaves: &mut Vec<String>) {
    leaves.push(text.to_owned());
    within(text, depth, leaves);
    let is_auth = field.eq_ignore_ascii_case("auth");
    let decoded = match is_auth {
        true => find::decoded(text).and_then(|bytes| String::from_utf8(bytes).ok()),
        false => find::base64_text(text),
    };
    let Some(decoded) = decoded.filter(|decoded| !decoded.is_empty()) else { return };
    if let Some((_, password)) = decoded.split_once(':').filter(|_| is_auth) {
        leaves.push(password.to_owned());
    }
    within(&decoded, depth, leaves);
    leaves.push(decoded);
}
