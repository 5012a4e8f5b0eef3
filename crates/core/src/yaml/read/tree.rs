//! Builds trees from events.

use std::collections::{HashMap, HashSet};

use granit_parser::{Event, Parser, ScalarStyle, Span, Tag};

use super::{
    explain::{self, At},
    scalar,
};
use crate::yaml::{Entry, Limits, Node, NodeValue, ParseError};

/// The namespace of YAML's own tags.
const TAGS: &str = "tag:yaml.org,2002:";
/// The merge key, which copies the fields of other mappings.
const MERGE: &str = "<<";

/// A tree under construction.
struct Builder<'a> {
    limits: &'a Limits,
    lines_before: u32,
    open: Vec<Open>,
    anchors: HashMap<usize, Anchored>,
    /// Anchors of incomplete values.
    unfinished: HashSet<usize>,
    nodes: usize,
    alias_nodes: usize,
    done: Vec<Node>,
}

/// A value that aliases may repeat, with its size and its depth.
struct Anchored {
    node: Node,
    size: usize,
    height: usize,
}

/// An incomplete list or mapping.
struct Open {
    at: At,
    anchor: usize,
    content: Content,
    /// The number of values in it.
    size: usize,
    /// The number of levels in it.
    height: usize,
}

enum Content {
    Seq(Vec<Node>),
    Map { entries: Vec<Entry>, keys: HashSet<String>, key: Option<(Key, At)>, merges: Vec<Node> },
}

enum Key {
    Text(String),
    Merge,
}

/// Reads the documents of a text without separator lines; usually one.
pub(super) fn read(text: &str, lines_before: u32, limits: &Limits) -> Vec<Result<Node, ParseError>> {
    let options = granit_parser::options! {
        emit_comments: false,
        // One level more than our own limit, so that our limit is hit first and named.
        flow_nesting_limit: limits.depth_max.saturating_add(1),
        block_nesting_limit: limits.depth_max.saturating_add(1),
    };
    let mut builder = Builder {
        limits,
        lines_before,
        open: Vec::new(),
        anchors: HashMap::new(),
        unfinished: HashSet::new(),
        nodes: 0,
        alias_nodes: 0,
        done: Vec::new(),
    };
    for event in Parser::new_from_str_with_options(text, options) {
        let result = match event {
            Ok((event, span)) => builder.event(event, &span),
            Err(error) => Err(explain::explain(&error, text, lines_before, limits)),
        };
        if let Err(error) = result {
            return builder.done.into_iter().map(Ok).chain([Err(error)]).collect();
        }
    }
    builder.done.into_iter().map(Ok).collect()
}

impl Builder<'_> {
    fn event(&mut self, event: Event<'_>, span: &Span) -> Result<(), ParseError> {
        let number = |value: usize| u32::try_from(value).unwrap_or(u32::MAX - 1);
        let at = (number(span.start.line()).max(1), number(span.start.col()) + 1);
        match event {
            Event::Scalar(text, style, anchor, tag) => {
                self.count(at)?;
                self.check_tag(tag.as_deref(), at)?;
                let is_merge = style == ScalarStyle::Plain && text == MERGE && tag.is_none();
                let value = self.scalar(&text, style, tag.as_deref(), at)?;
                let node = self.node(value, at);
                self.anchor(anchor, &node, 1, 0);
                self.push(node, 1, 0, is_merge, at)
            }
            Event::SequenceStart(_, anchor, tag) => {
                self.check_tag(tag.as_deref(), at)?;
                self.start(at, anchor, Content::Seq(Vec::new()))
            }
            Event::MappingStart(_, anchor, tag) => {
                self.check_tag(tag.as_deref(), at)?;
                let content = Content::Map { entries: Vec::new(), keys: HashSet::new(), key: None, merges: Vec::new() };
                self.start(at, anchor, content)
            }
            Event::SequenceEnd | Event::MappingEnd => self.end(),
            Event::Alias(anchor) => self.alias(anchor, at),
            // Nodes carry their anchor numbers. An unknown alias is an error of the parser.
            _ => Ok(()),
        }
    }

    fn node(&self, value: NodeValue, (line, column): At) -> Node {
        Node { value, line: line + self.lines_before, column }
    }

    fn count(&mut self, at: At) -> Result<(), ParseError> {
        self.nodes += 1;
        if self.limits.nodes_max < self.nodes {
            return Err(explain::nodes(at, self.lines_before, self.limits));
        }
        Ok(())
    }

    fn start(&mut self, at: At, anchor: usize, content: Content) -> Result<(), ParseError> {
        self.count(at)?;
        if self.limits.depth_max <= self.open.len() {
            return Err(explain::depth(at, self.lines_before, self.limits));
        }
        if anchor != 0 {
            self.unfinished.insert(anchor);
        }
        self.open.push(Open { at, anchor, content, size: 1, height: 0 });
        Ok(())
    }

    fn end(&mut self) -> Result<(), ParseError> {
        let Some(open) = self.open.pop() else { return Ok(()) };
        let value = match open.content {
            Content::Seq(items) => NodeValue::Seq(items),
            Content::Map { mut entries, mut keys, merges, .. } => {
                for merge in merges {
                    self.merge(&mut entries, &mut keys, merge)?;
                }
                NodeValue::Map(entries)
            }
        };
        let node = self.node(value, open.at);
        let height = open.height + 1;
        self.unfinished.remove(&open.anchor);
        self.anchor(open.anchor, &node, open.size, height);
        self.push(node, open.size, height, false, open.at)
    }

    fn anchor(&mut self, anchor: usize, node: &Node, size: usize, height: usize) {
        if anchor != 0 {
            self.anchors.insert(anchor, Anchored { node: node.clone(), size, height });
        }
    }

    fn alias(&mut self, anchor: usize, at: At) -> Result<(), ParseError> {
        self.count(at)?;
        if self.unfinished.contains(&anchor) {
            let message = "this alias is within its own anchor";
            return Err(explain::syntax(at, self.lines_before, message, "a value cannot contain itself"));
        }
        let Some(Anchored { node, size, height }) = self.anchors.get(&anchor) else {
            let message = "this alias names an anchor that does not exist";
            return Err(explain::syntax(at, self.lines_before, message, "define it with `&` before"));
        };
        let (size, height) = (*size, *height);
        self.alias_nodes = self.alias_nodes.saturating_add(size);
        if self.limits.alias_nodes_max < self.alias_nodes {
            return Err(explain::aliases(at, self.lines_before, self.limits));
        }
        if self.limits.depth_max < self.open.len() + height {
            return Err(explain::depth(at, self.lines_before, self.limits));
        }
        // Users look at the alias first. The values in it keep their own positions.
        let node = self.node(node.value.clone(), at);
        self.push(node, size, height, false, at)
    }

    /// Inserts a complete value into its parent.
    fn push(&mut self, node: Node, size: usize, height: usize, is_merge: bool, at: At) -> Result<(), ParseError> {
        let lines_before = self.lines_before;
        let Some(open) = self.open.last_mut() else {
            // An empty document.
            if node.value != NodeValue::Null {
                self.done.push(node);
            }
            return Ok(());
        };
        open.size += size;
        open.height = open.height.max(height);
        match &mut open.content {
            Content::Seq(items) => items.push(node),
            Content::Map { entries, keys, key, merges } => match key.take() {
                None if is_merge => *key = Some((Key::Merge, at)),
                None => {
                    let text = key_text(node, at, lines_before)?;
                    if !keys.insert(text.clone()) {
                        return Err(explain::duplicate_key(at, lines_before, &text));
                    }
                    *key = Some((Key::Text(text), at));
                }
                Some((Key::Merge, _)) => merges.push(node),
                Some((Key::Text(key), (line, key_column))) => {
                    entries.push(Entry { key, key_line: line + lines_before, key_column, value: node });
                }
            },
        }
        Ok(())
    }

    /// Copies the missing fields from one or several mappings.
    fn merge(&self, entries: &mut Vec<Entry>, keys: &mut HashSet<String>, merge: Node) -> Result<(), ParseError> {
        let at = (merge.line - self.lines_before, merge.column);
        let sources = match merge.value {
            NodeValue::Seq(items) => items,
            _ => vec![merge],
        };
        for source in sources {
            let NodeValue::Map(fields) = source.value else {
                let message = "`<<` must be followed by a mapping or an alias of one";
                return Err(explain::syntax(at, self.lines_before, message, "quote it if it is an ordinary key"));
            };
            entries.extend(fields.into_iter().filter(|field| keys.insert(field.key.clone())));
        }
        Ok(())
    }

    /// Refuses a tag of another program: it stands for a value that only that program can compute.
    fn check_tag(&self, tag: Option<&Tag>, at: At) -> Result<(), ParseError> {
        let Some(tag) = tag else { return Ok(()) };
        let is_own = tag.suffix_in_namespace(TAGS).is_some();
        // `!` alone says that the value is a string.
        if is_own || format!("{}{}", tag.handle(), tag.suffix()) == "!" {
            return Ok(());
        }
        Err(explain::tag(at, self.lines_before, &format!("{}{}", tag.original_handle(), tag.suffix())))
    }

    fn scalar(&self, text: &str, style: ScalarStyle, tag: Option<&Tag>, at: At) -> Result<NodeValue, ParseError> {
        let error = |message: &str, hint| Err(explain::syntax(at, self.lines_before, message, hint));
        let own = tag.map(|tag| tag.suffix_in_namespace(TAGS));
        let resolved = match own.as_ref().map(|suffix| suffix.as_deref()) {
            None if style == ScalarStyle::Plain => scalar::resolve(text),
            Some(Some("bool" | "float" | "int" | "null")) => scalar::resolve(text),
            Some(Some("binary")) => {
                return error("the tag `!!binary` is not supported", "write the text unencoded, or use `binaryData`");
            }
            // A quoted string, or any custom tag.
            None | Some(_) => return Ok(NodeValue::Str(text.to_owned())),
        };
        let Ok(value) = resolved else {
            return error("JSON cannot represent infinity or NaN", "quote it if it is a text");
        };
        let fits = match (own.flatten().as_deref(), &value) {
            (Some("bool"), NodeValue::Bool(_)) | (Some("null"), NodeValue::Null) => true,
            (Some("int"), NodeValue::Int(_) | NodeValue::UInt(_)) => true,
            (Some("float"), NodeValue::Int(_) | NodeValue::UInt(_) | NodeValue::Float(_)) => true,
            (Some("bool" | "null" | "int" | "float"), _) => false,
            _ => true,
        };
        if fits { Ok(value) } else { error("this value does not match its tag", "remove the tag") }
    }
}

/// A key as JSON has it: kubectl reads a plain `1` or `on` as a number or boolean and writes it as
/// a string.
fn key_text(node: Node, at: At, lines_before: u32) -> Result<String, ParseError> {
    match node.value {
        NodeValue::Str(text) => Ok(text),
        NodeValue::Bool(flag) => Ok(flag.to_string()),
        NodeValue::Int(number) => Ok(number.to_string()),
        NodeValue::UInt(number) => Ok(number.to_string()),
        NodeValue::Float(number) => Ok(number.to_string()),
        NodeValue::Null => Err(explain::syntax(
            at,
            lines_before,
            "a key is missing before this `:`",
            "quote the key if it is a string",
        )),
        NodeValue::Seq(_) | NodeValue::Map(_) => {
            let message = "a key must be a string, not a list or a mapping";
            let hint = "a brace begins a mapping: quote the key if it begins with one";
            Err(explain::syntax(at, lines_before, message, hint))
        }
    }
}
