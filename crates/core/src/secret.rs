//! Recognises Secrets whose kind is missing or misspelt. They still contain the values that their author meant for a
//! Secret, so no output may show them.

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
