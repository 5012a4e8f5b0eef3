//! Finds the scalars of a text without the rules for definitions, for values that must not be shown whatever is wrong
//! with the text around them.
//!
//! Tags are ignored, keys may occur twice, and nesting may be deeper than in a definition. A document that is not YAML
//! is searched line by line for quoted texts, for what is behind a colon, and for what is between brackets. Each of
//! these takes linear time. An alias yields nothing, because its value is found at its anchor.

use std::rc::Rc;

use granit_parser::{Event, Parser, ScalarStyle};

use super::{documents, scalar};
use crate::yaml::NodeValue;

/// Maximum nesting that is read as YAML. A deeper document is searched line by line.
const DEPTH_MAX: usize = 10_000;

/// A scalar, and the key that it belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scalar {
    /// The key of the scalar, or of the list that it is in; empty if there is none.
    pub key: Rc<str>,
    /// The text, without quotes.
    pub text: String,
    /// Whether it is a number.
    pub is_number: bool,
}

/// The scalars that were found.
struct ScalarSink {
    scalars: Vec<Scalar>,
    count_max: usize,
}

/// A list or mapping that has begun.
enum Open {
    /// With the key that the list belongs to.
    Seq(Rc<str>),
    /// With the key whose value comes next; `None` if a key comes next.
    Map(Option<Rc<str>>),
}

/// The scalars of a text, at most `count_max`: without keys of mappings, `null` and booleans.
pub fn scalars(text: &str, count_max: usize) -> Vec<Scalar> {
    let mut found = ScalarSink { scalars: Vec::new(), count_max };
    for (_, document) in documents(text) {
        if !add_yaml(document, &mut found) {
            document.lines().for_each(|line| add_line(line, &mut found));
        }
    }
    found.scalars
}

// === impl ScalarSink ===

impl ScalarSink {
    fn add(&mut self, key: &Rc<str>, text: &str, is_quoted: bool) {
        if text.is_empty() || self.count_max <= self.scalars.len() {
            return;
        }
        let resolved = if is_quoted { None } else { scalar::resolve(text).ok() };
        let is_number = match resolved {
            Some(NodeValue::Null | NodeValue::Bool(_)) => return,
            Some(NodeValue::Int(_) | NodeValue::UInt(_) | NodeValue::Float(_)) => true,
            None | Some(NodeValue::Str(_) | NodeValue::Seq(_) | NodeValue::Map(_)) => false,
        };
        self.scalars.push(Scalar { key: Rc::clone(key), text: text.to_owned(), is_number });
    }
}

/// Adds the scalars of a YAML document up to its first error. Returns whether there is no error.
fn add_yaml(document: &str, found: &mut ScalarSink) -> bool {
    let options = granit_parser::options! {
        emit_comments: false,
        emit_unresolved_aliases: true,
        flow_nesting_limit: DEPTH_MAX,
        block_nesting_limit: DEPTH_MAX,
    };
    let mut open: Vec<Open> = Vec::new();
    for event in Parser::new_from_str_with_options(document, options) {
        let Ok((event, _)) = event else { return false };
        match event {
            Event::Scalar(text, style, _, _) => match key_of_next(&mut open) {
                Some(key) => found.add(&key, &text, style != ScalarStyle::Plain),
                None => set_key(&mut open, &text),
            },
            Event::SequenceStart(..) => {
                let key = collection_key(&mut open);
                open.push(Open::Seq(key));
            }
            Event::MappingStart(..) => {
                collection_key(&mut open);
                open.push(Open::Map(None));
            }
            Event::SequenceEnd | Event::MappingEnd => drop(open.pop()),
            Event::Alias(_) | Event::UnresolvedAlias(_) => drop(collection_key(&mut open)),
            _ => {}
        }
    }
    true
}

/// The key of the node that comes next; `None` if the node is a key itself.
fn key_of_next(open: &mut [Open]) -> Option<Rc<str>> {
    match open.last_mut() {
        None => Some(Rc::default()),
        Some(Open::Seq(key)) => Some(Rc::clone(key)),
        Some(Open::Map(key)) => key.take(),
    }
}

/// The key of a list, mapping or alias. One that is a key itself has none, and its value comes next.
fn collection_key(open: &mut [Open]) -> Rc<str> {
    key_of_next(open).unwrap_or_else(|| {
        set_key(open, "");
        Rc::default()
    })
}

fn set_key(open: &mut [Open], text: &str) {
    if let Some(Open::Map(key)) = open.last_mut() {
        *key = Some(Rc::from(text));
    }
}

/// Adds what may be a value in a line of a document that is not YAML.
fn add_line(line: &str, found: &mut ScalarSink) {
    add_quoted(line, found);
    let mut rest = line.trim();
    let mut is_item = false;
    while let Some(item) = rest.strip_prefix("- ") {
        rest = item.trim_start();
        is_item = true;
    }
    if is_item || key_and_value(rest).is_some() {
        add_plain(rest, found);
        if let Some((before, _)) = rest.split_once(" #") {
            add_plain(before, found);
        }
    }
    if rest.contains(['{', '}', '[', ']']) {
        rest.split(['{', '}', '[', ']', ',']).for_each(|part| add_plain(part, found));
    }
}

/// Adds the texts in quotes, except keys. A quote without an end reaches to the end of the line.
fn add_quoted(line: &str, found: &mut ScalarSink) {
    let mut key: Rc<str> = Rc::default();
    let mut rest = line;
    while let Some(at) = rest.find(['"', '\'']) {
        let (before, quoted) = rest.split_at(at);
        let is_double = quoted.starts_with('"');
        let inner = &quoted[1..];
        // An apostrophe.
        if !is_double && before.ends_with(char::is_alphanumeric) {
            rest = inner;
            continue;
        }
        let is_key_part = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '.');
        let plain_key =
            before.trim_end().strip_suffix(':').and_then(|key| key.rsplit(|c: char| !is_key_part(c)).next());
        if let Some(plain_key) = plain_key.filter(|key| !key.is_empty()) {
            key = Rc::from(plain_key);
        }
        let end = closing_quote(inner, is_double);
        let written = &inner[..end.unwrap_or(inner.len())];
        let text = match end {
            Some(end) if is_double => serde_json::from_str(&quoted[..end + 2]).unwrap_or_else(|_| written.to_owned()),
            Some(_) => written.replace("''", "'"),
            None => written.to_owned(),
        };
        rest = end.map_or("", |end| &inner[end + 1..]);
        if rest.trim_start().starts_with(':') {
            key = Rc::from(text);
        } else {
            found.add(&key, &text, true);
        }
    }
}

/// Where a quoted text ends.
fn closing_quote(inner: &str, is_double: bool) -> Option<usize> {
    let bytes = inner.as_bytes();
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'\\' if is_double => at += 1,
            b'\'' if !is_double && bytes.get(at + 1) == Some(&b'\'') => at += 1,
            b'"' if is_double => return Some(at),
            b'\'' if !is_double => return Some(at),
            _ => {}
        }
        at += 1;
    }
    None
}

/// Adds the plain value of `key: value`, or the whole text if there is no key.
fn add_plain(text: &str, found: &mut ScalarSink) {
    let (key, mut value) = key_and_value(text).unwrap_or(("", text));
    value = value.trim();
    // Tags and anchors.
    while let Some((_, behind)) = value.split_once(' ').filter(|_| value.starts_with(['!', '&'])) {
        value = behind.trim_start();
    }
    let value = value.trim_end_matches(',');
    // Quoted texts and the parts of lists and mappings are added by themselves.
    if !value.starts_with(['"', '\'', '{', '[']) {
        found.add(&Rc::from(key.trim().trim_matches('"')), value, false);
    }
}

fn key_and_value(text: &str) -> Option<(&str, &str)> {
    text.split_once(": ").or_else(|| text.split_once("\":"))
}
