// SPDX-License-Identifier: Apache-2.0

//! A set of fields: the content of one entry of managed fields.
//!
//! It is a tree of steps. A field may be in the set without its descendants, and vice versa. So there are two
//! differences: [`Set::difference`] removes exactly the named fields, [`Set::without_subtrees`] also everything below
//! them.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::path::Step;

/// Fields of an object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Set {
    nodes: BTreeMap<Step, Node>,
}

/// The state of one field.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Node {
    /// Whether the field itself is in the set.
    member: bool,
    below: Set,
}

// === impl Node ===

impl Node {
    fn is_empty(&self) -> bool {
        !self.member && self.below.is_empty()
    }
}

// === impl Set ===

impl Set {
    /// A set of the fields at these paths.
    pub(super) fn from_paths<const N: usize>(paths: [&[&str]; N]) -> Set {
        let mut set = Set::default();
        for path in paths {
            set.insert(&path.iter().map(|name| Step::field(name)).collect::<Vec<_>>());
        }
        set
    }

    pub(super) fn is_empty(&self) -> bool {
        self.nodes.values().all(Node::is_empty)
    }

    /// Adds a path. The empty path, which is the whole object, is never in a set.
    pub(super) fn insert(&mut self, path: &[Step]) {
        let Some((last, way)) = path.split_last() else { return };
        let mut set = self;
        for step in way {
            set = set.descend(step);
        }
        set.nodes.entry(last.clone()).or_default().member = true;
    }

    /// The subset below a step, which is created if it is absent.
    pub(super) fn descend(&mut self, step: &Step) -> &mut Set {
        if !self.nodes.contains_key(step) {
            self.nodes.insert(step.clone(), Node::default());
        }
        &mut self.nodes.get_mut(step).expect("it is there, or was just inserted").below
    }

    /// Adds a direct child.
    pub(super) fn add(&mut self, step: Step) {
        self.nodes.entry(step).or_default().member = true;
    }

    pub(super) fn has(&self, step: &Step) -> bool {
        self.nodes.get(step).is_some_and(|node| node.member)
    }

    /// The subset below a step, if there is one.
    pub(super) fn below(&self, step: &Step) -> Option<&Set> {
        self.nodes.get(step).map(|node| &node.below).filter(|set| !set.is_empty())
    }

    pub(super) fn contains(&self, path: &[Step]) -> bool {
        let Some((last, way)) = path.split_last() else { return false };
        let mut set = self;
        for step in way {
            let Some(below) = set.below(step) else { return false };
            set = below;
        }
        set.has(last)
    }

    /// The direct children, each with whether it is in the set and what is below it.
    pub(super) fn steps(&self) -> impl Iterator<Item = (&Step, bool, &Set)> {
        self.nodes.iter().map(|(step, node)| (step, node.member, &node.below))
    }

    /// All paths: at each level first its own fields, then their descendants.
    pub(super) fn paths(&self) -> Vec<Vec<Step>> {
        let mut paths = Vec::new();
        self.collect(&mut Vec::new(), &mut paths);
        paths
    }

    fn collect(&self, prefix: &mut Vec<Step>, paths: &mut Vec<Vec<Step>>) {
        for (step, _) in self.nodes.iter().filter(|(_, node)| node.member) {
            let mut path = prefix.clone();
            path.push(step.clone());
            paths.push(path);
        }
        for (step, node) in &self.nodes {
            prefix.push(step.clone());
            node.below.collect(prefix, paths);
            prefix.pop();
        }
    }

    pub(super) fn union(mut self, other: &Set) -> Set {
        self.extend(other);
        self
    }

    fn extend(&mut self, other: &Set) {
        for (step, node) in &other.nodes {
            match self.nodes.get_mut(step) {
                Some(own) => {
                    own.member |= node.member;
                    own.below.extend(&node.below);
                }
                None => {
                    self.nodes.insert(step.clone(), node.clone());
                }
            }
        }
    }

    pub(super) fn intersection(&self, other: &Set) -> Set {
        let both = |(step, node): (&Step, &Node)| {
            let found = other.nodes.get(step)?;
            let node = Node { member: node.member && found.member, below: node.below.intersection(&found.below) };
            (!node.is_empty()).then(|| (step.clone(), node))
        };
        Set { nodes: self.nodes.iter().filter_map(both).collect() }
    }

    /// Removes exactly the fields of `other`; their descendants stay.
    pub(super) fn difference(&self, other: &Set) -> Set {
        let rest = |(step, node): (&Step, &Node)| {
            let node = match other.nodes.get(step) {
                Some(found) => {
                    Node { member: node.member && !found.member, below: node.below.difference(&found.below) }
                }
                None => node.clone(),
            };
            (!node.is_empty()).then(|| (step.clone(), node))
        };
        Set { nodes: self.nodes.iter().filter_map(rest).collect() }
    }

    /// Removes the fields of `other` and everything below them.
    pub(super) fn without_subtrees(&self, other: &Set) -> Set {
        let rest = |(step, node): (&Step, &Node)| {
            let node = match other.nodes.get(step) {
                Some(found) if found.member => return None,
                Some(found) => Node { member: node.member, below: node.below.without_subtrees(&found.below) },
                None => node.clone(),
            };
            (!node.is_empty()).then(|| (step.clone(), node))
        };
        Set { nodes: self.nodes.iter().filter_map(rest).collect() }
    }

    /// Encodes to `fieldsV1`.
    pub(super) fn encode(&self) -> Value {
        Value::Object(self.fields())
    }

    fn fields(&self) -> Map<String, Value> {
        let mut fields = Map::new();
        for (step, node) in self.nodes.iter().filter(|(_, node)| !node.is_empty()) {
            let mut below = node.below.fields();
            if node.member && !below.is_empty() {
                below.shift_insert(0, ".".to_owned(), json!({}));
            }
            fields.insert(step.encode(), Value::Object(below));
        }
        fields
    }

    /// Decodes from `fieldsV1`.
    pub(super) fn decode(fields: &Value) -> Result<Set, String> {
        let fields = match fields {
            Value::Object(fields) => fields,
            Value::Null => return Ok(Set::default()),
            _ => return Err("fieldsV1 must be an object".to_owned()),
        };
        let mut set = Set::default();
        for (key, value) in fields.iter().filter(|(key, _)| *key != ".") {
            let Some(step) = Step::decode(key)? else { continue };
            let below = Set::decode(value)?;
            let member = below.is_empty() || value.get(".").is_some();
            set.nodes.insert(step, Node { member, below });
        }
        Ok(set)
    }
}
