//! Recognises Secrets whose kind is missing or misspelt. They still contain the values that their author meant for a
//! Secret, so no output may show them. And writes the texts of a Secret as data, as they are stored.

use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::{Map, Value};

use crate::{kubernetes, schema::distance};

/// The kind.
const KIND: &str = "Secret";
/// The most letters by which a misspelt kind differs from the right one: more make another word.
const LETTERS_MAX: usize = 2;
/// A shorter text is not taken for base64.
const BASE64_BYTES_MIN: usize = 4;

/// Whether an object is a Secret by its content although its kind does not say so: it has `stringData`, or `data` with
/// base64 in it, and its kind is missing, misspelt, or unknown in the core group. `is_root` says whether the mapping is
/// a whole document; within another one, only a mapping with an `apiVersion` or a `kind` is an object.
pub fn is_disguised(map: &Map<String, Value>, is_root: bool) -> bool {
    if !is_root && !map.contains_key("apiVersion") && !map.contains_key("kind") {
        return false;
    }
    let text = |field: &str| map.get(field).and_then(Value::as_str);
    let kind = text("kind");
    if !may_be_kind(text("apiVersion"), kind) {
        return false;
    }
    let is_misspelt = kind.is_some_and(is_near);
    has_string_data(map)
        || map.iter().any(|(field, value)| {
            field.eq_ignore_ascii_case("data")
                && value.as_object().is_some_and(|values| {
                    values.values().any(|value| is_misspelt || value.as_str().is_some_and(is_base64))
                })
        })
}

/// Whether a mapping has a field `stringData` with content. Only Secrets have it, and kinds that Secrets are made from.
pub fn has_string_data(map: &Map<String, Value>) -> bool {
    let is_filled = |value: &Value| match value {
        Value::Null => false,
        Value::Object(values) => !values.is_empty(),
        Value::Array(_) | Value::Bool(_) | Value::Number(_) | Value::String(_) => true,
    };
    map.iter().any(|(field, value)| field.eq_ignore_ascii_case("stringData") && is_filled(value))
}

/// Whether an object is a Secret.
pub fn is_secret(object: &Value) -> bool {
    object["apiVersion"] == "v1" && object["kind"] == KIND
}

/// Moves the texts of a Secret, its `stringData`, into its `data`, where they win, as an API server does. Leaves
/// everything as it is if the API server would refuse it.
///
/// An API server keeps the claim of an apply under `stringData`, a field that it never stores. So a text that the next
/// apply lacks would stay for ever.
pub fn fold_texts(secret: &mut Map<String, Value>) {
    let data_is_valid = secret.get("data").is_none_or(|data| data.is_null() || data.is_object());
    let texts = match secret.get("stringData") {
        Some(Value::Object(texts)) if data_is_valid && texts.values().all(Value::is_string) => texts.clone(),
        Some(Value::Null) => Map::new(),
        Some(_) | None => return,
    };
    secret.shift_remove("stringData");
    if texts.is_empty() {
        return;
    }
    let data = secret.entry("data").or_insert(Value::Null);
    if data.is_null() {
        *data = Value::Object(Map::new());
    }
    let Some(data) = data.as_object_mut() else { return };
    for (key, text) in texts {
        data.insert(key, STANDARD.encode(text.as_str().unwrap_or_default()).into());
    }
}

/// Moves the claims on texts of a Secret, in a set of fields (`fieldsV1`), to its data, where the API server has moved
/// the texts. Returns whether there were any.
pub fn fold_claims(fields: &mut Map<String, Value>) -> bool {
    let Some(texts) = fields.shift_remove("f:stringData") else { return false };
    let data = fields.entry("f:data").or_insert_with(|| Value::Object(Map::new()));
    if let (Value::Object(texts), Some(data)) = (texts, data.as_object_mut()) {
        for (key, claim) in texts {
            data.entry(key).or_insert(claim);
        }
    }
    true
}

/// Whether an object of this kind may have been meant as a Secret: the kind is missing, misspelt, or unknown in the
/// core group, which no CustomResourceDefinition can extend.
pub fn may_be_kind(api_version: Option<&str>, kind: Option<&str>) -> bool {
    let Some(kind) = kind.map(str::trim).filter(|kind| !kind.is_empty()) else { return true };
    let is_core = api_version.is_none_or(|version| !version.contains('/'));
    is_near(kind) || (is_core && !kubernetes::is_known_kind(kind))
}

/// Whether a word is `Secret`, in any case, with at most two wrong letters.
pub fn is_near(word: &str) -> bool {
    let word = word.trim();
    word.eq_ignore_ascii_case(KIND)
        || (word.len().abs_diff(KIND.len()) <= LETTERS_MAX
            && distance(&word.to_ascii_lowercase(), &KIND.to_ascii_lowercase()) <= LETTERS_MAX
            && !kubernetes::is_known_kind(word))
}

fn is_base64(text: &str) -> bool {
    let digits = text.bytes().filter(|byte| !byte.is_ascii_whitespace());
    let is_digit = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/');
    let plain = text.trim_end().trim_end_matches('=');
    let count = digits.count();
    count >= BASE64_BYTES_MIN
        && count.is_multiple_of(4)
        && plain.bytes().filter(|byte| !byte.is_ascii_whitespace()).all(|byte| is_digit(&byte))
}

#[cfg(test)]
mod tests;
