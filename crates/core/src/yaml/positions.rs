//! The positions of the nodes of a tree, without the tree, to save memory for thousands of
//! definitions.

use std::{
    cell::OnceCell,
    hash::{DefaultHasher, Hash as _, Hasher as _},
};

use super::{Node, NodeValue};
use crate::object::PathPart;

/// The positions of all values and keys of a tree, by the hash of their path.
///
/// If two paths had the same hash, a message would name the wrong line, nothing worse.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Positions(Box<[Position]>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Position {
    path: u64,
    value: (u32, u32),
    key: (u32, u32),
}

/// A tree whose positions are looked up many times: the first time indexes all of them.
#[derive(Debug)]
pub struct Indexed<'a> {
    node: &'a Node,
    positions: OnceCell<Positions>,
}

/// Size of one position in [`Positions::to_bytes`], in bytes.
const POSITION_BYTES: usize = 24;

impl Positions {
    /// The positions of a tree.
    pub fn from_node(node: &Node) -> Positions {
        let mut positions = Vec::new();
        collect(node, &DefaultHasher::new(), (node.line, node.column), &mut positions);
        positions.sort_unstable_by_key(|position| position.path);
        Positions(positions.into_boxed_slice())
    }

    /// Line and column of the value at a path. If the path leaves the tree, those of the last key
    /// on the way. Same result as [`Node::position`].
    pub fn position(&self, path: &[PathPart]) -> (u32, u32) {
        if let Some(position) = self.find(path) {
            return position.value;
        }
        let parents = (0..path.len()).rev().map(|end| &path[..end]);
        parents.filter_map(|parent| self.find(parent)).map(|position| position.key).next().unwrap_or((1, 1))
    }

    /// Line and column of the key at a path. Same result as [`Node::key_position`].
    pub fn key_position(&self, path: &[PathPart]) -> (u32, u32) {
        match path.last() {
            Some(PathPart::Key(_)) => self.find(path).map_or_else(|| self.position(path), |position| position.key),
            Some(PathPart::Index(_)) | None => self.position(path),
        }
    }

    /// Bytes for [`Positions::from_bytes`].
    pub fn to_bytes(&self) -> Vec<u8> {
        let numbers = |position: &Position| {
            let Position { value, key, .. } = position;
            [value.0, value.1, key.0, key.1]
        };
        let mut bytes = Vec::with_capacity(self.0.len() * POSITION_BYTES);
        for position in &self.0 {
            bytes.extend_from_slice(&position.path.to_le_bytes());
            numbers(position).iter().for_each(|number| bytes.extend_from_slice(&number.to_le_bytes()));
        }
        bytes
    }

    /// Reads bytes of [`Positions::to_bytes`]; `None` if they are invalid.
    pub fn from_bytes(bytes: &[u8]) -> Option<Positions> {
        let (chunks, rest) = bytes.as_chunks::<POSITION_BYTES>();
        let number = |chunk: &[u8], at: usize| Some(u32::from_le_bytes(chunk.get(at..at + 4)?.try_into().ok()?));
        let position = |chunk: &[u8; POSITION_BYTES]| {
            let path = u64::from_le_bytes(chunk.first_chunk::<8>().copied()?);
            Some(Position {
                path,
                value: (number(chunk, 8)?, number(chunk, 12)?),
                key: (number(chunk, 16)?, number(chunk, 20)?),
            })
        };
        let positions: Option<Box<[Position]>> = chunks.iter().map(position).collect();
        positions.filter(|_| rest.is_empty()).map(Positions)
    }

    fn find(&self, path: &[PathPart]) -> Option<&Position> {
        let mut hasher = DefaultHasher::new();
        path.iter().for_each(|part| part.hash(&mut hasher));
        let wanted = hasher.finish();
        self.0.binary_search_by_key(&wanted, |position| position.path).ok().map(|index| &self.0[index])
    }
}

// === impl Indexed ===

impl<'a> Indexed<'a> {
    /// The tree, without an index yet.
    pub fn new(node: &'a Node) -> Indexed<'a> {
        Indexed { node, positions: OnceCell::new() }
    }

    /// Same result as [`Node::position`].
    pub fn position(&self, path: &[PathPart]) -> (u32, u32) {
        self.positions().position(path)
    }

    /// Same result as [`Node::key_position`].
    pub fn key_position(&self, path: &[PathPart]) -> (u32, u32) {
        self.positions().key_position(path)
    }

    fn positions(&self) -> &Positions {
        self.positions.get_or_init(|| Positions::from_node(self.node))
    }
}

fn collect(node: &Node, path: &DefaultHasher, key: (u32, u32), positions: &mut Vec<Position>) {
    positions.push(Position { path: path.finish(), value: (node.line, node.column), key });
    let below = |part: &PathPart| {
        let mut path = path.clone();
        part.hash(&mut path);
        path
    };
    match &node.value {
        NodeValue::Seq(items) => {
            for (index, item) in items.iter().enumerate() {
                collect(item, &below(&PathPart::Index(index)), (item.line, item.column), positions);
            }
        }
        NodeValue::Map(entries) => {
            // All keys of the mapping share one string.
            let mut part = PathPart::Key(String::new());
            for entry in entries {
                if let PathPart::Key(text) = &mut part {
                    text.clear();
                    text.push_str(&entry.key);
                }
                collect(&entry.value, &below(&part), (entry.key_line, entry.key_column), positions);
            }
        }
        NodeValue::Null
        | NodeValue::Bool(_)
        | NodeValue::Int(_)
        | NodeValue::UInt(_)
        | NodeValue::Float(_)
        | NodeValue::Str(_) => {}
    }
}
