//! Values of Secrets, replaced by keyed digests before anything is compared or shown.
//!
//! Equal values get equal digests, also where one is `data` and the other `stringData`, so that a comparison of masked
//! objects finds what a comparison of clear ones would; and a digest tells nothing of its value, not even its length,
//! to whoever lacks the key. A key is made anew for each run unless runs shall compare.
//!
//! Secrets are found wherever they are: as objects, in lists, within other objects (`spec.data` of a ModuleTemplate,
//! `spec.resource` of a Manifest), and in texts that hold objects as JSON or YAML, as the annotation of `kubectl apply`
//! does. What cannot be read and may hold one is masked as a whole. Field names and keys of `data` are not secret.
//!
//! A [`Masker`] remembers the clear values that it has met, to scrub them from texts that others wrote: messages of
//! API servers and of templates. It refuses to print them: nothing of it is shown by `Debug`.

use std::{cmp::Reverse, collections::BTreeMap, fmt};

use base64::{
    Engine,
    engine::general_purpose::{STANDARD, STANDARD_NO_PAD, URL_SAFE_NO_PAD},
};
use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};

use crate::yaml;

/// What digests of secret values are made with.
#[derive(Clone)]
pub struct MaskKey([u8; KEY_BYTES]);

/// Masks values, and remembers the clear ones so that texts can be scrubbed of them.
#[derive(Clone)]
pub struct Masker {
    key: MaskKey,
    /// What a clear value may look like in a text, and what stands for it; the longest first, since one form may be
    /// part of another.
    forms: BTreeMap<(Reverse<usize>, String), String>,
}

/// Numbers in place of digests, in the order in which these are met: equal values still look equal, and runs with
/// different keys print the same.
#[derive(Clone, Debug, Default)]
pub struct Numbers(BTreeMap<String, usize>);

/// How what stands for a value begins and ends.
const MASK_OPEN: &str = "(masked: Secret ";
const MASK_CLOSE: char = ')';

const KEY_BYTES: usize = 32;
/// The block of SHA-256, which HMAC pads its key to.
const BLOCK_BYTES: usize = 64;
/// Bytes of a digest that are shown: two of a million values share one with a chance of one in five hundred.
const DIGEST_BYTES: usize = 6;
/// A shorter text gives no key that cannot be guessed.
const KEY_TEXT_BYTES_MIN: usize = 16;

/// Values shorter than this are not looked for in texts: they stand in every text.
const SCRUBBED_BYTES_MIN: usize = 4;
/// Values shorter than this are only replaced where they are a word of their own: `test` must not break `latest`.
const WORD_BYTES_MAX: usize = 8;
/// A line of a value of several lines is looked for by itself from this length on: parsers quote single lines.
const LINE_BYTES_MIN: usize = 8;

/// The fields of a Secret that hold its values.
const VALUES: [&str; 2] = ["data", "stringData"];

/// `value`, with every value of every Secret in it masked.
pub fn masked(value: &Value, key: &MaskKey) -> Value {
    let mut masked = value.clone();
    mask(&mut masked, &mut |bytes| key.mask(bytes));
    masked
}

// === impl MaskKey ===

impl MaskKey {
    /// From random bytes, for one run.
    pub fn new(bytes: [u8; KEY_BYTES]) -> MaskKey {
        MaskKey(bytes)
    }

    /// From a text that several runs share; `None` if it is too short to be secret. White space around it does not count.
    pub fn of_text(text: &[u8]) -> Option<MaskKey> {
        let text = text.trim_ascii();
        (text.len() >= KEY_TEXT_BYTES_MIN).then(|| MaskKey(Sha256::digest(text).into()))
    }

    /// What stands for a value: `(masked: Secret 1f0c42a9b7d3)`.
    pub fn mask(&self, value: &[u8]) -> String {
        // What is masked already stays as it is, so that equal values look equal however often they are masked.
        if let Some(masked) = std::str::from_utf8(value).ok().filter(|text| is_mask(text)) {
            return masked.to_owned();
        }
        let digest = self.hmac(value);
        let hex: String = digest[..DIGEST_BYTES].iter().map(|byte| format!("{byte:02x}")).collect();
        format!("{MASK_OPEN}{hex}{MASK_CLOSE}")
    }

    /// HMAC-SHA-256 (RFC 2104).
    fn hmac(&self, message: &[u8]) -> [u8; 32] {
        let padded = |pad: u8| -> [u8; BLOCK_BYTES] {
            std::array::from_fn(|index| self.0.get(index).copied().unwrap_or_default() ^ pad)
        };
        let inner = Sha256::new().chain_update(padded(0x36)).chain_update(message).finalize();
        Sha256::new().chain_update(padded(0x5c)).chain_update(inner).finalize().into()
    }
}

impl fmt::Debug for MaskKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MaskKey")
    }
}

fn is_mask(text: &str) -> bool {
    let digest = text.strip_prefix(MASK_OPEN).and_then(|rest| rest.strip_suffix(MASK_CLOSE));
    digest.is_some_and(|digest| digest.len() == 2 * DIGEST_BYTES && digest.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

// === impl Numbers ===

impl Numbers {
    /// Numbers the digests in a value.
    pub fn put(&mut self, value: &mut Value) {
        match value {
            Value::String(text) if text.contains(MASK_OPEN) => *text = self.text(text),
            Value::Array(items) => items.iter_mut().for_each(|item| self.put(item)),
            Value::Object(map) => map.values_mut().for_each(|value| self.put(value)),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }

    fn text(&mut self, text: &str) -> String {
        let mut numbered = String::with_capacity(text.len());
        let mut rest = text;
        while let Some((before, behind)) = rest.split_once(MASK_OPEN) {
            numbered.push_str(before);
            numbered.push_str(MASK_OPEN);
            rest = behind;
            let Some((digest, behind)) = behind.split_once(MASK_CLOSE) else { break };
            // What somebody wrote by hand stays as it is.
            if digest.len() == 2 * DIGEST_BYTES && digest.bytes().all(|byte| byte.is_ascii_hexdigit()) {
                let next = self.0.len() + 1;
                let number = self.0.entry(digest.to_owned()).or_insert(next);
                numbered.push_str(&format!("{number}{MASK_CLOSE}"));
                rest = behind;
            }
        }
        numbered.push_str(rest);
        numbered
    }
}

// === impl Masker ===

impl Masker {
    /// One that has met nothing yet.
    pub fn new(key: MaskKey) -> Masker {
        Masker { key, forms: BTreeMap::new() }
    }

    /// The key.
    pub fn key(&self) -> &MaskKey {
        &self.key
    }

    /// Masks every value of every Secret in `value`, and remembers them. Says whether there was any.
    pub fn mask(&mut self, value: &mut Value) -> bool {
        let mut met = Vec::new();
        let any = mask(value, &mut |bytes| {
            met.push(bytes.to_vec());
            self.key.mask(bytes)
        });
        met.iter().for_each(|bytes| self.remember(bytes));
        any
    }

    /// `value`, masked as [`Masker::mask`] does.
    #[must_use]
    pub fn masked(&mut self, value: &Value) -> Value {
        let mut masked = value.clone();
        self.mask(&mut masked);
        masked
    }

    /// Remembers a clear value that is no field of a Secret, such as a token.
    pub fn remember(&mut self, value: &[u8]) {
        let mask = self.key.mask(value);
        for form in forms(value) {
            self.forms.entry((Reverse(form.len()), form)).or_insert_with(|| mask.clone());
        }
    }

    /// `text` without any value that was met, in whatever form.
    #[must_use]
    pub fn scrub(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for ((_, form), mask) in &self.forms {
            if text.contains(form.as_str()) {
                text = replace(&text, form, mask);
            }
        }
        text
    }
}

impl fmt::Debug for Masker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Masker")
    }
}

/// Turns a clear value into what stands for it.
type Sink<'a> = dyn FnMut(&[u8]) -> String + 'a;

/// Masks in place. Says whether there was anything to mask.
fn mask(value: &mut Value, sink: &mut Sink<'_>) -> bool {
    match value {
        Value::Object(map) => mask_map(map, sink),
        Value::Array(items) => items.iter_mut().fold(false, |any, item| mask(item, sink) | any),
        Value::String(text) => match mask_text(text, sink) {
            Some(masked) => {
                *text = masked;
                true
            }
            None => false,
        },
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}

fn mask_map(map: &mut Map<String, Value>, sink: &mut Sink<'_>) -> bool {
    let kind = map.get("kind").and_then(Value::as_str);
    // Whatever the group: a kind of another group that is called so holds what its name says.
    let is_secret = kind == Some("Secret");
    if kind == Some("SecretList") {
        // The items of a list of one kind do not name it.
        let items = map.get_mut("items").and_then(Value::as_array_mut);
        for item in items.into_iter().flatten().filter_map(Value::as_object_mut) {
            item.entry("kind").or_insert_with(|| Value::from("Secret"));
        }
    }
    let mut any = false;
    for (field, value) in map {
        if is_secret && VALUES.contains(&field.as_str()) {
            any |= mask_values(value, field == "data", sink);
        } else {
            any |= mask(value, sink);
        }
    }
    any
}

/// Masks what a Secret holds in `data` or `stringData`.
fn mask_values(values: &mut Value, encoded: bool, sink: &mut Sink<'_>) -> bool {
    match values {
        Value::Null => false,
        Value::Object(values) => {
            for value in values.values_mut() {
                let bytes = clear(value, encoded);
                *value = Value::from(sink(&bytes));
            }
            !values.is_empty()
        }
        // No Secret has such a field; what somebody wrote there by mistake is secret all the same.
        other => {
            let bytes = clear(other, false);
            *other = Value::from(sink(&bytes));
            true
        }
    }
}

/// The bytes that a value stands for.
fn clear(value: &Value, encoded: bool) -> Vec<u8> {
    match value {
        Value::String(text) if encoded => {
            let compact: String = text.split_ascii_whitespace().collect();
            STANDARD.decode(compact).unwrap_or_else(|_| text.as_bytes().to_vec())
        }
        Value::String(text) => text.as_bytes().to_vec(),
        other => other.to_string().into_bytes(),
    }
}

/// A text with the Secrets that it holds as JSON or YAML masked; `None` if it holds none.
fn mask_text(text: &str, sink: &mut Sink<'_>) -> Option<String> {
    if !text.contains("Secret") || !text.contains("kind") {
        return None;
    }
    if text.trim_start().starts_with(['{', '[']) {
        if let Ok(mut value) = serde_json::from_str::<Value>(text) {
            return mask(&mut value, sink).then(|| value.to_string());
        }
    } else if !names_secret(text) {
        // Prose that mentions Secrets, as descriptions of CRDs do.
        return None;
    }
    match yaml::parse(text, &yaml::Limits::default()) {
        Ok(documents) => {
            let mut values: Vec<Value> = documents.iter().map(yaml::Node::to_json).collect();
            // It names a Secret in words that are no mapping, such as a line of a script: all of it is one value.
            if values.iter().any(|value| value.as_str().is_some_and(|inner| inner.len() >= text.trim().len())) {
                return Some(sink(text.as_bytes()));
            }
            let any = values.iter_mut().fold(false, |any, value| mask(value, sink) | any);
            any.then(|| values.iter().map(yaml::to_string).collect::<Vec<_>>().join("---\n"))
        }
        // It is cut off or broken, and may hold one.
        Err(_) => Some(sink(text.as_bytes())),
    }
}

/// Whether a line of a text says `kind: Secret`, in YAML's block or flow style.
fn names_secret(text: &str) -> bool {
    text.lines().any(|line| {
        let compact: String = line.chars().filter(|c| !c.is_whitespace() && !matches!(c, '"' | '\'')).collect();
        compact.contains("kind:Secret")
    })
}

/// What a clear value may look like in a text that somebody else wrote.
fn forms(value: &[u8]) -> Vec<String> {
    let mut forms = Vec::new();
    if value.len() < SCRUBBED_BYTES_MIN {
        return forms;
    }
    // Without padding, which is then left standing: it says nothing.
    forms.extend([STANDARD_NO_PAD.encode(value), URL_SAFE_NO_PAD.encode(value)]);
    if let Ok(text) = std::str::from_utf8(value) {
        let text = text.trim();
        let lines = text.lines().map(str::trim).filter(|line| line.len() >= LINE_BYTES_MIN);
        for form in lines.chain([text]).filter(|form| form.len() >= SCRUBBED_BYTES_MIN) {
            let quoted = Value::from(form).to_string();
            forms.extend([form.to_owned(), quoted[1..quoted.len() - 1].to_owned()]);
        }
    }
    forms
}

/// Replaces a form wherever it stands; a short one only where it is a word of its own.
fn replace(text: &str, form: &str, mask: &str) -> String {
    if form.len() >= WORD_BYTES_MAX {
        return text.replace(form, mask);
    }
    let is_word = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
    let mut replaced = String::with_capacity(text.len());
    let mut rest = 0;
    for (start, found) in text.match_indices(form) {
        let end = start + found.len();
        if !is_word(text[..start].chars().next_back()) && !is_word(text[end..].chars().next()) {
            replaced.push_str(&text[rest..start]);
            replaced.push_str(mask);
            rest = end;
        }
    }
    replaced.push_str(&text[rest..]);
    replaced
}

#[cfg(test)]
mod tests;
