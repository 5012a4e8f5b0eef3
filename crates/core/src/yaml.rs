//! Parses YAML and JSON to trees with a position on every node and key, and writes them back.
//!
//! This is the only user of the YAML crates. Objects for a cluster are read by kubectl's scalar
//! rules (`0644` is 420, `yes` is true, duplicate keys are errors), and written so that kubectl
//! reads them back unchanged. Our own configuration files are read by another crate with plainer
//! rules ([`read_own`]).
//!
//! A stream is first split into documents, so one invalid document hides no other. Depth, number of
//! nodes, number of documents and the growth by aliases are limited; an error names the limit. No
//! error quotes a value: it may be a secret.

mod own;
mod positions;
mod read;
mod write;

use serde_json::{Map, Value};

pub use self::{
    own::{OwnError, read_own, without_values},
    positions::{Indexed, Positions},
    read::{Scalar, decode, parse, parse_each, scalars},
    write::to_string,
};
use crate::object::PathPart;

/// A value and its position.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// The value.
    pub value: NodeValue,
    /// Line, from 1.
    pub line: u32,
    /// Column in characters, from 1.
    pub column: u32,
}

/// A value by kubectl's scalar rules. A number without a fraction is an integer, however it is
/// written.
#[derive(Clone, Debug, PartialEq)]
pub enum NodeValue {
    /// `null`, `~` or nothing.
    Null,
    /// `true`, `yes`, `on` and their variants.
    Bool(bool),
    /// An integer that fits into `i64`.
    Int(i64),
    /// An integer beyond `i64`.
    UInt(u64),
    /// A number with a fraction, or a very large one. Never infinite or NaN.
    Float(f64),
    /// A string.
    Str(String),
    /// A list.
    Seq(Vec<Node>),
    /// A mapping, in the order of the text. Keys are unique.
    Map(Vec<Entry>),
}

/// A key, its position, and its value.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// The key as JSON has it: like kubectl, an unquoted `1` or `on` becomes a string.
    pub key: String,
    /// Line of the key, from 1.
    pub key_line: u32,
    /// Column of the key, from 1.
    pub key_column: u32,
    /// The value.
    pub value: Node,
}

/// The limits of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Nested lists and mappings.
    pub depth_max: usize,
    /// Documents in a stream.
    pub documents_max: usize,
    /// Values and keys in a document, as written.
    pub nodes_max: usize,
    /// Values and keys that aliases may add to a document.
    pub alias_nodes_max: usize,
}

/// The kind of a problem.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ParseErrorKind {
    /// The text is not valid YAML.
    Syntax,
    /// A mapping has a key twice.
    DuplicateKey,
    /// A limit is exceeded.
    Limit,
    /// The text is not UTF-8.
    NotUtf8,
    /// A value has a tag that has no meaning here, such as `!vault`.
    Tag,
}

/// Why a text cannot be read. Contains no excerpt of the text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}, column {column}: {message}")]
pub struct ParseError {
    /// Line, from 1.
    pub line: u32,
    /// Column in characters, from 1. 0 if only the line is known.
    pub column: u32,
    /// The kind of the problem.
    pub kind: ParseErrorKind,
    /// One sentence.
    pub message: String,
    /// What to do next.
    pub hint: Option<String>,
}

// === impl Limits ===

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            // The deepest CustomResourceDefinitions in use (a pod template in a schema) have about 45 levels.
            depth_max: 100,
            // A file of 1 MiB with documents of 100 bytes.
            documents_max: 10_000,
            // A file of 1 MiB cannot contain many more.
            nodes_max: 500_000,
            // Aliases serve small repetitions. Larger growth is an attempt to exhaust memory.
            alias_nodes_max: 50_000,
        }
    }
}

// === impl Node ===

impl Node {
    /// The same value as JSON, without positions.
    pub fn to_json(&self) -> Value {
        match &self.value {
            NodeValue::Null => Value::Null,
            NodeValue::Bool(flag) => Value::Bool(*flag),
            NodeValue::Int(number) => Value::from(*number),
            NodeValue::UInt(number) => Value::from(*number),
            NodeValue::Float(number) => Value::from(*number),
            NodeValue::Str(text) => Value::from(text.as_str()),
            NodeValue::Seq(items) => Value::Array(items.iter().map(Node::to_json).collect()),
            NodeValue::Map(entries) => {
                let pairs = entries.iter().map(|entry| (entry.key.clone(), entry.value.to_json()));
                Value::Object(pairs.collect::<Map<_, _>>())
            }
        }
    }

    /// The value of a field, if this is a mapping that has it.
    pub fn get(&self, key: &str) -> Option<&Node> {
        self.entry(key).map(|entry| &entry.value)
    }

    /// A field with its key, if this is a mapping that has it.
    pub fn entry(&self, key: &str) -> Option<&Entry> {
        match &self.value {
            NodeValue::Map(entries) => entries.iter().find(|entry| entry.key == key),
            _ => None,
        }
    }

    /// Its items, if it is a list.
    pub fn items(&self) -> &[Node] {
        match &self.value {
            NodeValue::Seq(items) => items,
            _ => &[],
        }
    }

    /// Its text, if it is a string.
    pub fn as_str(&self) -> Option<&str> {
        match &self.value {
            NodeValue::Str(text) => Some(text),
            _ => None,
        }
    }

    /// The node at a path, or `None` if the path leaves the tree.
    pub fn at(&self, path: &[PathPart]) -> Option<&Node> {
        path.iter().try_fold(self, Node::child)
    }

    /// Line and column of the value at a path. If the path leaves the tree, those of the last node
    /// on the way.
    pub fn position(&self, path: &[PathPart]) -> (u32, u32) {
        let mut node = self;
        let mut key = None;
        for part in path {
            match node.child(part) {
                Some(child) => {
                    key = match part {
                        PathPart::Key(name) => node.entry(name),
                        PathPart::Index(_) => None,
                    };
                    node = child;
                }
                // A missing field is missing from its parent: the parent's key is a better position than its content.
                None => return key.map_or((node.line, node.column), |entry| (entry.key_line, entry.key_column)),
            }
        }
        (node.line, node.column)
    }

    /// Line and column of the key at a path. If the last part is an index, those of the value.
    pub fn key_position(&self, path: &[PathPart]) -> (u32, u32) {
        match path.split_last() {
            Some((PathPart::Key(name), parent)) => self
                .at(parent)
                .and_then(|node| node.entry(name))
                .map_or_else(|| self.position(path), |entry| (entry.key_line, entry.key_column)),
            _ => self.position(path),
        }
    }

    fn child(&self, part: &PathPart) -> Option<&Node> {
        match part {
            PathPart::Key(name) => self.get(name),
            PathPart::Index(index) => self.items().get(*index),
        }
    }
}

/// A text with escapes, safe to print to a terminal.
pub fn printable(text: &str) -> String {
    // Nearly every text is harmless, and a report may contain millions.
    if text.chars().all(is_harmless) { text.to_owned() } else { text.chars().flat_map(visible).collect() }
}

/// A text for a message: at most 60 characters, control characters escaped.
pub fn short(text: &str) -> String {
    const CHARACTERS_MAX: usize = 60;
    let mut shown: String = text.chars().take(CHARACTERS_MAX).flat_map(visible).collect();
    if text.chars().nth(CHARACTERS_MAX).is_some() {
        shown.push('…');
    }
    shown
}

/// A character, escaped if it would move the cursor or hide text in a terminal.
fn visible(c: char) -> Vec<char> {
    if is_harmless(c) { vec![c] } else { c.escape_default().collect() }
}

/// Besides control characters, escapes characters that change the writing direction or are
/// invisible: they make a text look like another. Also escapes noncharacters, which XML readers
/// reject.
fn is_harmless(c: char) -> bool {
    !c.is_control()
        && u32::from(c) & 0xfffe != 0xfffe
        && !matches!(c, '\u{ad}' | '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{fdd0}'..='\u{fdef}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}'
            | '\u{e0000}'..='\u{e007f}')
}

#[cfg(test)]
mod tests;
