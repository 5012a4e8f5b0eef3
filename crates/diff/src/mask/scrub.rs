//! Finds clear values in any text: literal, in upper or lower case, quoted, and in base64 at any
//! offset of a longer text.
//!
//! Short values occur in every text by chance, so they are not searched. The same applies to names
//! of objects and namespaces, which Secrets often repeat.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet, HashMap},
};

use base64::{
    Engine,
    engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD},
};
use serde_json::{Map, Value};

use super::{MASK_CLOSE, MASK_FORM};

/// In messages, shorter values are not searched: they occur by chance.
pub(super) const MESSAGE_BYTES_MIN: usize = 4;
/// In objects, shorter values are not searched: `admin`, `true` and `5432` are not secret there.
pub(super) const TEXT_BYTES_MIN: usize = 8;
/// Shorter values are only replaced as separate words: `test` must not break `latest`.
const WORD_BYTES_MAX: usize = 8;
/// Minimum length of a line of a multi-line value to be searched by itself: parsers quote single
/// lines.
const LINE_BYTES_MIN: usize = 8;
/// Length of the prefix by which forms are found.
const HEAD: usize = 4;

/// The forms of clear values in a text, and their masks.
#[derive(Clone, Default)]
pub(super) struct Forms {
    /// By their first bytes.
    by_head: HashMap<[u8; HEAD], ByLength>,
}

/// The longest come first, because one form may be part of another.
type ByLength = BTreeMap<(Reverse<usize>, String), Form>;

#[derive(Clone)]
struct Form {
    mask: String,
    /// The length of the original value.
    value_len: usize,
}

/// The notation of a copy, so that different notations of a value look different.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Written {
    /// As in the Secret.
    AsIs,
    /// One of its lines.
    Line(usize),
    Capitals,
    Small,
    Base64,
}

/// Renames the keys of a mapping, in order. Keys stay distinct: the second of two equal names gets
/// a number.
pub(super) fn keys(map: &mut Map<String, Value>, rename: &mut dyn FnMut(&str) -> Option<String>) {
    let renamed: Vec<Option<String>> = map.keys().map(|key| rename(key)).collect();
    if renamed.iter().all(Option::is_none) {
        return;
    }
    let mut taken: BTreeSet<String> =
        map.keys().zip(&renamed).filter(|(_, renamed)| renamed.is_none()).map(|(key, _)| key.clone()).collect();
    for ((key, value), renamed) in std::mem::take(map).into_iter().zip(renamed) {
        let key = renamed.map_or(key, |renamed| {
            let others = (2..).map(|number| format!("{renamed} ({number})"));
            let free = std::iter::once(renamed.clone()).chain(others).find(|name| !taken.contains(name));
            let free = free.unwrap_or_default();
            taken.insert(free.clone());
            free
        });
        map.insert(key, value);
    }
}

// === impl Written ===

impl Written {
    /// The mask of a copy, from the mask of the value.
    fn masked(self, mask: &str) -> String {
        let how = match self {
            Written::AsIs => return mask.to_owned(),
            Written::Line(number) => format!("line {number}"),
            Written::Capitals => "in capitals".to_owned(),
            Written::Small => "in small letters".to_owned(),
            Written::Base64 => "in base64".to_owned(),
        };
        format!("{}{MASK_FORM} {how}{MASK_CLOSE}", mask.trim_end_matches(MASK_CLOSE))
    }
}

// === impl Forms ===

impl Forms {
    pub(super) fn is_empty(&self) -> bool {
        self.by_head.is_empty()
    }

    pub(super) fn add(&mut self, value: &[u8], mask: &str) {
        for (form, (value_len, written)) in forms(value) {
            if let Some(head) = head(form.as_bytes()) {
                let form = (Reverse(form.len()), form);
                let known = self.by_head.entry(head).or_default();
                known.entry(form).or_insert_with(|| Form { mask: written.masked(mask), value_len });
            }
        }
    }

    pub(super) fn remove(&mut self, form: &str) {
        let known = head(form.as_bytes()).and_then(|head| self.by_head.get_mut(&head));
        if let Some(known) = known {
            known.remove(&(Reverse(form.len()), form.to_owned()));
        }
    }

    /// A text without values of at least this length; `None` if it contains none.
    pub(super) fn scrub(&self, text: &str, bytes_min: usize) -> Option<String> {
        if self.is_empty() || text.len() < HEAD {
            return None;
        }
        let mut scrubbed: Option<String> = None;
        let (mut copied, mut at) = (0, 0);
        while let Some(head) = text.as_bytes().get(at..).and_then(head) {
            let found = self.by_head.get(&head).filter(|_| text.is_char_boundary(at));
            let found = found.into_iter().flatten().find(|((_, form), known)| {
                known.value_len >= bytes_min && text[at..].starts_with(form.as_str()) && is_separate(text, at, form)
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

/// Whether a match is valid: a short one only as a separate word.
fn is_separate(text: &str, at: usize, form: &str) -> bool {
    let is_word = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
    form.len() >= WORD_BYTES_MAX
        || (!is_word(text[..at].chars().next_back()) && !is_word(text[at + form.len()..].chars().next()))
}

/// The forms of a clear value in a text from outside, each with the length of its original.
fn forms(value: &[u8]) -> BTreeMap<String, (usize, Written)> {
    let mut forms = BTreeMap::new();
    if value.len() < MESSAGE_BYTES_MIN {
        return forms;
    }
    // The first claim of a form wins: the notation of the Secret comes first.
    let mut add = |form: String, len: usize, written: Written| {
        forms.entry(form).or_insert((len, written));
    };
    let text = std::str::from_utf8(value).unwrap_or_default().trim();
    let lines = text.lines().map(str::trim).enumerate().filter(|(_, line)| line.len() >= LINE_BYTES_MIN);
    let whole = std::iter::once((text, Written::AsIs));
    let parts = lines.map(|(index, line)| (line, Written::Line(index + 1)));
    let parts: Vec<(&str, Written)> = whole.chain(parts).filter(|(part, _)| part.len() >= MESSAGE_BYTES_MIN).collect();
    for (part, written) in &parts {
        let quoted = |text: &str| {
            let quoted = Value::from(text).to_string();
            quoted[1..quoted.len() - 1].to_owned()
        };
        add((*part).to_owned(), part.len(), *written);
        add(quoted(part), part.len(), *written);
        for (spelled, written) in [(part.to_uppercase(), Written::Capitals), (part.to_lowercase(), Written::Small)] {
            add(quoted(&spelled), part.len(), written);
            add(spelled, part.len(), written);
        }
    }
    // Without padding, which stays in the text: it reveals nothing.
    add(STANDARD_NO_PAD.encode(value), value.len(), Written::Base64);
    add(URL_SAFE_NO_PAD.encode(value), value.len(), Written::Base64);
    for (part, _) in parts.iter().filter(|(part, _)| part.len() >= TEXT_BYTES_MIN) {
        (0..3).for_each(|offset| add(within(part.as_bytes(), offset), part.len(), Written::Base64));
    }
    forms
}

/// The base64 digits of a longer text that depend only on a value at this offset in a group of
/// three bytes.
fn within(value: &[u8], offset: usize) -> String {
    let encoded = STANDARD_NO_PAD.encode([&vec![0; offset], value].concat());
    // The first and last digits depend on the neighbouring text.
    let start = [0, 2, 3].get(offset).copied().unwrap_or_default();
    let whole = (offset + value.len()) * 8 / 6;
    encoded.get(start..whole).unwrap_or_default().to_owned()
}
