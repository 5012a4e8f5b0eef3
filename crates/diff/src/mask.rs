//! Values of Secrets, replaced by keyed digests: in Secrets before anything is compared, in copies before it is shown.
//!
//! Equal values get equal digests, also where one is `data` and the other `stringData`, so that a comparison of masked
//! objects finds what a comparison of clear ones would; and a digest tells nothing of its value, not even its length,
//! to whoever lacks the key. A key is made anew for each run unless runs shall compare.
//!
//! Secrets are found wherever they are, see `find`. A [`Masker`] remembers the clear values that it has met, to scrub
//! them from everything else, see `scrub`: an annotation or an argument that repeats one, messages of API servers and
//! of templates. It refuses to print them: nothing of it is shown by `Debug`.

mod find;
mod scrub;

use std::fmt;

use serde_json::Value;
use sha2::{Digest as _, Sha256};

use self::scrub::Forms;

/// What digests of secret values are made with.
#[derive(Clone)]
pub struct MaskKey([u8; KEY_BYTES]);

/// Masks values, and remembers the clear ones so that texts can be scrubbed of them.
#[derive(Clone)]
pub struct Masker {
    key: MaskKey,
    forms: Forms,
}

/// Numbers in place of digests, in the order in which these are met: equal values still look equal, and runs with
/// different keys print the same.
#[derive(Clone, Debug, Default)]
pub struct Numbers(std::collections::BTreeMap<String, usize>);

/// How what stands for a value begins and ends.
const MASK_OPEN: &str = "(masked: Secret ";
const MASK_CLOSE: char = ')';
/// What comes before how a copy is written, where that is otherwise than in the Secret.
const MASK_FORM: char = ',';

const KEY_BYTES: usize = 32;
/// The block of SHA-256, which HMAC pads its key to.
const BLOCK_BYTES: usize = 64;
/// Bytes of a digest that are shown: two of a million values share one with a chance of one in five hundred.
const DIGEST_BYTES: usize = 6;
/// A shorter text gives no key that cannot be guessed.
const KEY_TEXT_BYTES_MIN: usize = 16;

/// `value`, with every value of every Secret in it masked.
pub fn masked(value: &Value, key: &MaskKey) -> Value {
    let mut masked = value.clone();
    find::mask(&mut masked, &mut |bytes, _| key.mask(bytes));
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
            Value::Object(map) => {
                map.values_mut().for_each(|value| self.put(value));
                scrub::keys(map, &mut |key| key.contains(MASK_OPEN).then(|| self.text(key)));
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }

    /// Numbers the digests in a text.
    pub fn text(&mut self, text: &str) -> String {
        let mut numbered = String::with_capacity(text.len());
        let mut rest = text;
        while let Some((before, behind)) = rest.split_once(MASK_OPEN) {
            numbered.push_str(before);
            numbered.push_str(MASK_OPEN);
            rest = behind;
            let Some((digest, behind)) = behind.split_at_checked(2 * DIGEST_BYTES) else { continue };
            // What somebody wrote by hand stays as it is.
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
    /// One that has met nothing yet.
    pub fn new(key: MaskKey) -> Masker {
        Masker { key, forms: Forms::default() }
    }

    /// Masks every value of every Secret in `value`, and remembers them. Says whether there was any.
    pub fn mask(&mut self, value: &mut Value) -> bool {
        let mut met = Vec::new();
        let any = find::mask(value, &mut |bytes, what| {
            if what == find::Met::Value {
                met.push(bytes.to_vec());
            }
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

    /// Remembers every value of every Secret in `value`.
    pub fn meet(&mut self, value: &Value) {
        if find::may_hold(value) {
            self.mask(&mut value.clone());
        }
    }

    /// Remembers a clear value that is no field of a Secret, such as a token.
    pub fn remember(&mut self, value: &[u8]) {
        // What is masked already is no value.
        if !std::str::from_utf8(value).is_ok_and(is_mask) {
            self.forms.add(value, &self.key.mask(value));
        }
    }

    /// Whether nothing was met.
    pub fn is_empty(&self) -> bool {
        self.forms.is_empty()
    }

    /// Says that a text is the name of something, which is no secret even where a Secret repeats it.
    pub fn is_name(&mut self, text: &str) {
        self.forms.remove(text);
    }

    /// A message of somebody else's without any value that was met, in whatever form.
    #[must_use]
    pub fn scrub(&self, text: &str) -> String {
        self.forms.scrub(text, scrub::MESSAGE_BYTES_MIN).unwrap_or_else(|| text.to_owned())
    }

    /// The same for a text of ours, in which short values stand by chance; `None` if there is none.
    pub fn scrub_long(&self, text: &str) -> Option<String> {
        self.forms.scrub(text, scrub::TEXT_BYTES_MIN)
    }

    /// A value without any copy of what was met.
    #[must_use]
    pub fn scrubbed(&self, value: &Value) -> Value {
        let mut scrubbed = value.clone();
        self.scrub_value(&mut scrubbed);
        scrubbed
    }

    /// Scrubs all texts and keys of an object, but for what identifies it.
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
