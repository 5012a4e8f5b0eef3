//! Replaces values of Secrets by keyed digests: in Secrets before the comparison, in copies before
//! the output.
//!
//! Equal values get equal digests, also if one is in `data` and the other in `stringData`. So a
//! comparison of masked objects finds the same differences. Without the key, a digest reveals
//! nothing about its value, not even its length. Each run uses a new key, unless runs must be
//! comparable.
//!
//! Secrets are found wherever they are, see `find`. A [`Masker`] remembers the clear values to
//! scrub them from everything else, see `scrub`: an annotation or an argument that repeats one,
//! messages of API servers and of templates. If a value is JSON or YAML, such as a kubeconfig, the
//! same applies to each of its parts, see `leaves`. A masker refuses to print them: `Debug` shows
//! nothing.

mod find;
mod leaves;
mod scrub;

use std::{collections::BTreeSet, fmt};

use serde_json::Value;
use sha2::{Digest as _, Sha256};
use tidegate_core::render::live;

use self::scrub::Forms;

/// The key of digests.
#[derive(Clone)]
pub struct MaskKey([u8; KEY_BYTES]);

/// Masks values, and remembers the clear ones to scrub texts.
#[derive(Clone)]
pub struct Masker {
    key: MaskKey,
    forms: Forms,
    /// Names of objects and namespaces, which occur everywhere and are no secrets.
    names: BTreeSet<String>,
}

/// Numbers instead of digests, in the order of occurrence: equal values still look equal, and runs
/// with different keys print the same.
#[derive(Clone, Debug, Default)]
pub struct Numbers(std::collections::BTreeMap<String, usize>);

/// Prefix and suffix of a mask.
const MASK_OPEN: &str = "(masked: Secret ";
const MASK_CLOSE: char = ')';
/// Separator before the notation of a copy, if it differs from that of the Secret.
const MASK_FORM: char = ',';

const KEY_BYTES: usize = 32;
/// The block size of SHA-256, to which HMAC pads its key.
const BLOCK_BYTES: usize = 64;
/// Shown bytes of a digest: among a million values, the chance of a collision is one in five
/// hundred.
const DIGEST_BYTES: usize = 6;
/// A shorter text is too easy to guess for a key.
const KEY_TEXT_BYTES_MIN: usize = 16;

/// `value`, with every value of every Secret in it masked.
pub fn masked(value: &Value, key: &MaskKey) -> Value {
    let mut masked = value.clone();
    find::mask(&mut masked, &mut |bytes, _| key.mask(bytes));
    masked
}

// === impl MaskKey ===

impl MaskKey {
    /// A key from random bytes, for one run.
    pub fn new(bytes: [u8; KEY_BYTES]) -> MaskKey {
        MaskKey(bytes)
    }

    /// A key from a text that several runs share; `None` if it is too short. Surrounding white
    /// space is ignored.
    pub fn of_text(text: &[u8]) -> Option<MaskKey> {
        let text = text.trim_ascii();
        (text.len() >= KEY_TEXT_BYTES_MIN).then(|| MaskKey(Sha256::digest(text).into()))
    }

    /// The mask of a value: `(masked: Secret 1f0c42a9b7d3)`.
    pub fn mask(&self, value: &[u8]) -> String {
        // A mask stays as it is, so that repeated masking keeps equal values equal. A placeholder has no value.
        if let Some(shown) = std::str::from_utf8(value).ok().filter(|text| is_mask(text) || is_placeholder(text)) {
            return shown.to_owned();
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

/// Whether a text is the placeholder of a Secret's data, which only a cluster knows.
fn is_placeholder(text: &str) -> bool {
    let name = text.strip_prefix("((live: data of Secret ").and_then(|rest| rest.strip_suffix("))"));
    let key = name.and_then(|name| name.parse().ok());
    key.is_some_and(|key| live::placeholder(&live::data(&key)) == text)
}

fn is_mask(text: &str) -> bool {
    let digest = text.strip_prefix(MASK_OPEN).and_then(|rest| rest.strip_suffix(MASK_CLOSE));
    digest.is_some_and(|digest| digest.len() == 2 * DIGEST_BYTES && digest.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

// === impl Numbers ===

impl Numbers {
    /// Replaces the digests in a value by numbers.
    pub fn put(&mut self, value: &mut Value) {
        match value {
            Value::String(text) if text.contains(MASK_OPEN) => *text = self.text(text),
            Value::Array(items) => items.iter_mut().for_each(|item| self.put(item)),
            Value::Object(map) => {
                map.values_mut().for_each(|value| self.put(value));
                scrub::keys(map, &mut |key| key.contains(MASK_OPEN).then(|| self.text(key)));
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }

    /// Replaces the digests in a text by numbers.
    pub fn text(&mut self, text: &str) -> String {
        let mut numbered = String::with_capacity(text.len());
        let mut rest = text;
        while let Some((before, behind)) = rest.split_once(MASK_OPEN) {
            numbered.push_str(before);
            numbered.push_str(MASK_OPEN);
            rest = behind;
            let Some((digest, behind)) = behind.split_at_checked(2 * DIGEST_BYTES) else { continue };
            // A similar text by a user stays as it is.
            if digest.bytes().all(|byte| byte.is_ascii_hexdigit()) && behind.starts_with([MASK_CLOSE, MASK_FORM]) {
                let next = self.0.len() + 1;
                let number = self.0.entry(digest.to_owned()).or_insert(next);
                numbered.push_str(&number.to_string());
                rest = behind;
            }
        }
        numbered.push_str(rest);
        numbered
    }
}

// === impl Masker ===

impl Masker {
    /// An empty masker.
    pub fn new(key: MaskKey) -> Masker {
        Masker { key, forms: Forms::default(), names: BTreeSet::new() }
    }

    /// Masks every value of every Secret in `value`, and remembers them. Returns whether there were
    /// any.
    pub fn mask(&mut self, value: &mut Value) -> bool {
        let mut met = Vec::new();
        let any = find::mask(value, &mut |bytes, what| {
            if what == find::Met::Value {
                met.push(bytes.to_vec());
            }
            self.key.mask(bytes)
        });
        for bytes in met {
            leaves::find(&bytes).iter().for_each(|leaf| self.remember(leaf.as_bytes()));
            self.remember(&bytes);
        }
        any
    }

    /// `value`, masked as [`Masker::mask`] does.
    #[must_use]
    pub fn masked(&mut self, value: &Value) -> Value {
        let mut masked = value.clone();
        self.mask(&mut masked);
        masked
    }

    /// `value` for output: every value of every Secret masked, and every copy of a remembered value scrubbed. Remembers
    /// nothing. `None` if there is neither a Secret in it nor a remembered value.
    pub fn shown(&self, value: &Value) -> Option<Value> {
        if self.is_empty() && !find::may_hold(value) {
            return None;
        }
        let mut shown = masked(value, &self.key);
        self.scrub_object(&mut shown);
        Some(shown)
    }

    /// Remembers every value of every Secret in `value`.
    pub fn meet(&mut self, value: &Value) {
        if find::may_hold(value) {
            self.mask(&mut value.clone());
        }
    }

    /// Remembers a clear value that is not in a Secret, such as a token.
    pub fn remember(&mut self, value: &[u8]) {
        // A mask is not a value.
        let is_other = |text: &str| is_mask(text) || self.names.contains(text.trim());
        if !std::str::from_utf8(value).is_ok_and(is_other) {
            self.forms.add(value, &self.key.mask(value));
        }
    }

    /// Whether it remembers no value.
    pub fn is_empty(&self) -> bool {
        self.forms.is_empty()
    }

    /// Registers the name of an object or namespace, which is not secret even if a Secret repeats it, before or later.
    pub fn is_name(&mut self, text: &str) {
        if !text.is_empty() && self.names.insert(text.to_owned()) {
            self.forms.remove(text);
        }
    }

    /// A message from outside without any remembered value, in any notation.
    #[must_use]
    pub fn scrub(&self, text: &str) -> String {
        self.forms.scrub(text, scrub::MESSAGE_BYTES_MIN).unwrap_or_else(|| text.to_owned())
    }

    /// Scrubs a text of Tidegate, in which short values occur by chance; `None` if it contains none.
    pub fn scrub_long(&self, text: &str) -> Option<String> {
        self.forms.scrub(text, scrub::TEXT_BYTES_MIN)
    }

    /// A value without any copy of a remembered value.
    #[must_use]
    pub fn scrubbed(&self, value: &Value) -> Value {
        let mut scrubbed = value.clone();
        self.scrub_value(&mut scrubbed);
        scrubbed
    }

    /// Scrubs all strings and keys of an object except its identity.
    pub fn scrub_object(&self, value: &mut Value) {
        if self.forms.is_empty() {
            return;
        }
        let Some(map) = value.as_object_mut() else { return };
        for (field, value) in map {
            match (field.as_str(), value) {
                ("apiVersion" | "kind", _) => {}
                ("metadata", Value::Object(metadata)) => {
                    let kept = ["name", "namespace"];
                    metadata
                        .iter_mut()
                        .filter(|(field, _)| !kept.contains(&field.as_str()))
                        .for_each(|(_, value)| self.scrub_value(value));
                }
                (_, value) => self.scrub_value(value),
            }
        }
    }

    fn scrub_value(&self, value: &mut Value) {
        match value {
            Value::String(text) => {
                if let Some(scrubbed) = self.scrub_long(text) {
                    *text = scrubbed;
                }
            }
            Value::Array(items) => items.iter_mut().for_each(|item| self.scrub_value(item)),
            Value::Object(map) => {
                map.values_mut().for_each(|value| self.scrub_value(value));
                scrub::keys(map, &mut |key| self.scrub_long(key));
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }
}

impl fmt::Debug for Masker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Masker")
    }
}

#[cfg(test)]
mod tests;
