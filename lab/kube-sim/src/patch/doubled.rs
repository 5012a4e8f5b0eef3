// SPDX-License-Identifier: Apache-2.0

//! Duplicate keys in the mappings of a JSON text. Parsers silently keep the last one; the server reports them.

use std::{borrow::Cow, collections::HashSet};

/// A duplicate key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Doubled {
    /// Its path, as strict decoding writes it: `spec.containers[0].name`.
    pub path: String,
    /// The key.
    pub key: String,
    /// Its line, from 1.
    pub line: usize,
}

/// An open mapping or list.
struct Level<'a> {
    /// The keys so far; `None` for a list.
    keys: Option<HashSet<Cow<'a, [u8]>>>,
    /// Its step in the path.
    at: Step<'a>,
    /// The current index of a list.
    index: usize,
}

/// One step of a path.
#[derive(Clone)]
enum Step<'a> {
    Root,
    Key(Cow<'a, [u8]>),
    Index(usize),
}

/// The duplicate keys of a JSON text, each path once, in the order of the text.
pub fn doubled(text: &[u8]) -> Vec<Doubled> {
    let mut found: Vec<Doubled> = Vec::new();
    let mut open: Vec<Level<'_>> = Vec::new();
    let mut last = Step::Root;
    let mut is_key = false;
    let mut at = 0;
    while let Some(byte) = text.get(at) {
        at += 1;
        match byte {
            b'{' | b'[' => {
                let at = open.last().filter(|level| level.keys.is_none()).map(|level| Step::Index(level.index));
                let keys = (*byte == b'{').then(HashSet::new);
                is_key = keys.is_some();
                open.push(Level { keys, at: at.unwrap_or_else(|| last.clone()), index: 0 });
            }
            b'}' | b']' => {
                open.pop();
                is_key = false;
            }
            b',' => {
                if let Some(level) = open.last_mut() {
                    level.index += 1;
                    is_key = level.keys.is_some();
                }
            }
            b'"' => {
                let begin = at;
                at = end_of_text(text, at);
                if std::mem::take(&mut is_key) {
                    let key = unescaped(&text[begin..at]);
                    at += 1;
                    let keys = open.last_mut().and_then(|level| level.keys.as_mut());
                    if keys.is_some_and(|keys| !keys.insert(key.clone())) {
                        let path = path(&open, &key);
                        if found.iter().all(|other| other.path != path) {
                            let line = 1 + text[..begin].iter().filter(|byte| **byte == b'\n').count();
                            found.push(Doubled { path, key: String::from_utf8_lossy(&key).into_owned(), line });
                        }
                    }
                    last = Step::Key(key);
                } else {
                    at += 1;
                }
            }
            _ => {}
        }
    }
    found
}

/// The position of the quotation mark that ends a text.
fn end_of_text(text: &[u8], begin: usize) -> usize {
    let mut at = begin;
    while let Some(byte) = text.get(at) {
        match byte {
            b'"' => return at,
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
    text.len()
}

fn unescaped(key: &[u8]) -> Cow<'_, [u8]> {
    if !key.contains(&b'\\') {
        return Cow::Borrowed(key);
    }
    let quoted = [b"\"", key, b"\""].concat();
    serde_json::from_slice::<String>(&quoted).map_or(Cow::Borrowed(key), |text| Cow::Owned(text.into_bytes()))
}

fn path(open: &[Level<'_>], key: &[u8]) -> String {
    let mut path = String::new();
    let mut push = |step: &Step<'_>| match step {
        Step::Root => {}
        Step::Key(key) => {
            if !path.is_empty() {
                path.push('.');
            }
            path.push_str(&String::from_utf8_lossy(key));
        }
        Step::Index(index) => path.push_str(&format!("[{index}]")),
    };
    open.iter().for_each(|level| push(&level.at));
    push(&Step::Key(Cow::Borrowed(key)));
    path
}
