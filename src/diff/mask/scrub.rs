//! Clear values in texts, whoever wrote these: as they are, in capitals or small letters, quoted, and in base64 wherever
//! in a longer text they stand.
//!
//! Short values stand in every text by chance, so those are not looked for; nor are names of objects and namespaces,
//! which Secrets like to repeat.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet, HashMap},
};

use base64::{
    Engine,
    engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD},
};
use serde_json::{Map, Value};

/// In messages, shorter values are not looked for: they stand in every text.
pub(super) const MESSAGE_BYTES_MIN: usize = 4;
/// In objects, shorter values are not looked for: `admin`, `true` and `5432` are no secret there.
pub(super) const TEXT_BYTES_MIN: usize = 8;
/// Values shorter than this are only replaced where they are a word of their own: `test` must not break `latest`.
const WORD_BYTES_MAX: usize = 8;
/// A line of a value of several lines is looked for by itself from this length on: parsers quote single lines.
const LINE_BYTES_MIN: usize = 8;
/// Every form begins with so many bytes, by which it is found.
const HEAD: usize = 4;

/// What clear values may look like in a text, and what stands for each.
#[derive(Clone, Default)]
pub(super) struct Forms {
    /// By their first bytes.
    by_head: HashMap<[u8; HEAD], ByLength>,
}

/// The longest first, since one form may be part of another.
type ByLength = BTreeMap<(Reverse<usize>, String), Form>;

#[derive(Clone)]
struct Form {
    mask: String,
    /// The length of the value that it stands for.
    value_len: usize,
}

/// Renames keys of a mapping, in its order.
pub(super) fn keys(map: &mut Map<String, Value>, rename: &mut dyn FnMut(&str) -> Option<String>) {
    let renamed: Vec<Option<String>> = map.keys().map(|key| rename(key)).collect();
    if renamed.iter().all(Option::is_none) {
        return;
    }
    let entries = std::mem::take(map).into_iter().zip(renamed);
    map.extend(entries.map(|((key, value), renamed)| (renamed.unwrap_or(key), value)));
}

// === impl Forms ===

impl Forms {
    pub(super) fn is_empty(&self) -> bool {
        self.by_head.is_empty()
    }

    pub(super) fn add(&mut self, value: &[u8], mask: &str) {
        for (form, value_len) in forms(value) {
            if let Some(head) = head(form.as_bytes()) {
                let form = (Reverse(form.len()), form);
                let known = self.by_head.entry(head).or_default();
                known.entry(form).or_insert_with(|| Form { mask: mask.to_owned(), value_len });
            }
        }
    }

    pub(super) fn remove(&mut self, form: &str) {
        let known = head(form.as_bytes()).and_then(|head| self.by_head.get_mut(&head));
        if let Some(known) = known {
            known.remove(&(Reverse(form.len()), form.to_owned()));
        }
    }

    /// A text without the values that have at least so many bytes; `None` if it holds none.
    pub(super) fn scrub(&self, text: &str, bytes_min: usize) -> Option<String> {
        if self.is_empty() || text.len() < HEAD {
            return None;
        }
        let mut scrubbed: Option<String> = None;
        let (mut copied, mut at) = (0, 0);
        while let Some(head) = text.as_bytes().get(at..).and_then(head) {
            let found = self.by_head.get(&head).filter(|_| text.is_char_boundary(at));
            let found = found.into_iter().flatten().find(|((_, form), known)| {
                known.value_len >= bytes_min && text[at..].starts_with(form.as_str()) && stands(text, at, form)
            });
            match found {
                Some(((_, form), known)) => {
                    let scrubbed = scrubbed.get_or_insert_with(|| String::with_capacity(text.len()));
                    scrubbed.push_str(&text[copied..at]);
                    scrubbed.push_str(&known.mask);
                    at += form.len();
                    copied = at;
                }
                None => at += 1,
            }
        }
        scrubbed.map(|scrubbed| scrubbed + &text[copied..])
    }
}

fn head(bytes: &[u8]) -> Option<[u8; HEAD]> {
    bytes.get(..HEAD)?.try_into().ok()
}

/// Whether a form that was found counts: a short one only as a word of its own.
fn stands(text: &str, at: usize, form: &str) -> bool {
    let is_word = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
    form.len() >= WORD_BYTES_MAX
        || (!is_word(text[..at].chars().next_back()) && !is_word(text[at + form.len()..].chars().next()))
}

/// What a clear value may look like in a text that somebody else wrote, each with the length of what it stands for.
fn forms(value: &[u8]) -> BTreeSet<(String, usize)> {
    let mut forms = BTreeSet::new();
    if value.len() < MESSAGE_BYTES_MIN {
        return forms;
    }
    // Without padding, which is then left standing: it says nothing.
    forms.extend([(STANDARD_NO_PAD.encode(value), value.len()), (URL_SAFE_NO_PAD.encode(value), value.len())]);
    let Ok(text) = std::str::from_utf8(value) else { return forms };
    let text = text.trim();
    let lines = text.lines().map(str::trim).filter(|line| line.len() >= LINE_BYTES_MIN);
    for line in lines.chain([text]).filter(|line| line.len() >= MESSAGE_BYTES_MIN) {
        for spelled in [line.to_owned(), line.to_uppercase(), line.to_lowercase()] {
            let quoted = Value::from(spelled.as_str()).to_string();
            forms.extend([(quoted[1..quoted.len() - 1].to_owned(), line.len()), (spelled, line.len())]);
        }
        if line.len() >= TEXT_BYTES_MIN {
            forms.extend((0..3).map(|offset| (within(line.as_bytes(), offset), line.len())));
        }
    }
    forms
}

/// What base64 of a longer text has of a value that begins at this offset of a group of three bytes.
fn within(value: &[u8], offset: usize) -> String {
    let encoded = STANDARD_NO_PAD.encode([&vec![0; offset], value].concat());
    // The first and last digits depend on what stands before and behind.
    let start = [0, 2, 3].get(offset).copied().unwrap_or_default();
    let whole = (offset + value.len()) * 8 / 6;
    encoded.get(start..whole).unwrap_or_default().to_owned()
}
