//! A set of fields: the content of one entry of managed fields.
//!
//! It is a tree of steps. A field may be in the set without what is below it, and the other way round. Two differences
//! matter: [`Set::difference`] takes away exactly the fields named, [`Set::without_subtrees`] all below them, too.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::path::Step;

/// Fields of an object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Set {
    nodes: BTreeMap<Step, Node>,
}

/// What is known of one field.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Node {
    /// The field itself is in the set.
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
    /// The fields at these paths.
    pub(super) fn of<const N: usize>(paths: [&[&str]; N]) -> Set {
        let mut set = Set::default();
        for path in paths {
            set.insert(&path.iter().map(|name| Step::field(name)).collect::<Vec<_>>());
        }
        set
    }

    pub(super) fn is_empty(&self) -> bool {
        self.nodes.values().all(Node::is_empty)
    }

    /// The whole object, the empty path, is never in a set.
    pub(super) fn insert(&mut self, path: &[Step]) {
        let Some((last, way)) = path.split_last() else { return };
        let mut set = self;
        for step in way {
            set = set.descend(step);
        }
        set.nodes.entry(last.clone()).or_default().member = true;
    }

    /// What is below a step, to add to it.
    pub(super) fn descend(&mut self, step: &Step) -> &mut Set {
        if !self.nodes.contains_key(step) {
            self.nodes.insert(step.clone(), Node::default());
        }
        &mut self.nodes.get_mut(step).expect("it is there, or was just inserted").below
    }

    /// Adds a field right below.
    pub(super) fn add(&mut self, step: Step) {
        self.nodes.entry(step).or_default().member = true;
    }

    pub(super) fn has(&self, step: &Step) -> bool {
        self.nodes.get(step).is_some_and(|node| node.member)
    }

    /// What is below a step, if anything is.
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

    /// The steps right below, each with whether it is in the set and what is below it.
    pub(super) fn steps(&self) -> impl Iterator<Item = (&Step, bool, &Set)> {
        self.nodes.iter().map(|(step, node)| (step, node.member, &node.below))
    }

    /// All paths: at each level first its own fields, then what is below.
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

    /// Without exactly the fields of `other`: what is below them stays.
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

    /// Without the fields of `other` and all below them.
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

    /// As `fieldsV1`.
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

    /// From `fieldsV1`.
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
