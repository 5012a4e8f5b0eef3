// SPDX-License-Identifier: Apache-2.0

//! Compares two values, as sets of fields.

use std::collections::BTreeMap;

use serde_json::Value;

use super::{
    super::{
        path::{Step, equal},
        schema::{Fields, List, Part, Relation, Type},
        set::Set,
    },
    as_list, as_map, step_to,
};

/// The difference of two values. No field is in two of the sets.
#[derive(Clone, Debug, Default)]
pub(in super::super) struct Comparison {
    pub(in super::super) removed: Set,
    pub(in super::super) modified: Set,
    pub(in super::super) added: Set,
}

/// Compares `before` with `after`.
pub(in super::super) fn compare(of: Type<'_>, before: &Value, after: &Value) -> Comparison {
    let mut walk = Walk { path: Vec::new(), comparison: Comparison::default() };
    walk.visit(of, Some(before), Some(after));
    walk.comparison
}

// === impl Comparison ===

impl Comparison {
    /// Removes these fields and everything below them.
    pub(in super::super) fn without(self, fields: &Set) -> Comparison {
        Comparison {
            removed: self.removed.without_subtrees(fields),
            modified: self.modified.without_subtrees(fields),
            added: self.added.without_subtrees(fields),
        }
    }
}

struct Walk {
    path: Vec<Step>,
    comparison: Comparison,
}

// === impl Walk ===

impl Walk {
    fn visit(&mut self, of: Type<'_>, left: Option<&Value>, right: Option<&Value>) {
        let (chosen_left, chosen_right) = (of.choice(left), of.choice(right));
        let is_leaf = if right.is_none() {
            self.part(of, chosen_left.part(), left, right)
        } else if left.is_none() || chosen_left.is_same(chosen_right) {
            self.part(of, chosen_right.part(), left, right)
        } else {
            self.part(of, chosen_left.part(), left, right);
            self.part(of, chosen_right.part(), left, right)
        };
        if !is_leaf {
            match (left, right) {
                (None, _) => self.comparison.added.insert(&self.path),
                (_, None) => self.comparison.removed.insert(&self.path),
                (Some(_), Some(_)) => {}
            }
        }
    }

    /// True if the values were compared as a whole.
    fn part(&mut self, of: Type<'_>, part: Part<'_>, left: Option<&Value>, right: Option<&Value>) -> bool {
        let is_leaf = match part {
            Part::Scalar(_) => true,
            Part::Map(fields) => {
                let is_empty = |value| as_map(value).is_none_or(serde_json::Map::is_empty);
                fields.atomic || (is_empty(left) && is_empty(right))
            }
            Part::List(list) => {
                let is_empty = |value| as_list(value).is_none_or(Vec::is_empty);
                list.relation == Relation::Atomic || (is_empty(left) && is_empty(right))
            }
            Part::Nothing => false,
        };
        match part {
            _ if is_leaf => self.leaf(left, right),
            Part::Map(fields) => self.fields(of, fields, left, right),
            Part::List(list) => self.items(of, list, left, right),
            Part::Scalar(_) | Part::Nothing => {}
        }
        is_leaf
    }

    fn leaf(&mut self, left: Option<&Value>, right: Option<&Value>) {
        match (left, right) {
            (None, _) => self.comparison.added.insert(&self.path),
            (_, None) => self.comparison.removed.insert(&self.path),
            (Some(left), Some(right)) if !equal(left, right) => self.comparison.modified.insert(&self.path),
            (Some(_), Some(_)) => {}
        }
    }

    fn below(&mut self, step: Step, visit: impl FnOnce(&mut Walk)) {
        self.path.push(step);
        visit(self);
        self.path.pop();
    }

    fn fields(&mut self, of: Type<'_>, fields: &Fields, left: Option<&Value>, right: Option<&Value>) {
        let (left, right) = (as_map(left), as_map(right));
        for (name, value) in left.into_iter().flatten() {
            let Some((of, _)) = of.field(fields, name) else { continue };
            let other = right.and_then(|right| right.get(name));
            self.below(Step::field(name), |walk| walk.visit(of, Some(value), other));
        }
        let is_new = |name: &String| left.is_none_or(|left| !left.contains_key(name));
        for (name, value) in right.into_iter().flatten().filter(|(name, _)| is_new(name)) {
            let Some((of, _)) = of.field(fields, name) else { continue };
            self.below(Step::field(name), |walk| walk.visit(of, None, Some(value)));
        }
    }

    fn items(&mut self, of: Type<'_>, list: &List, left: Option<&Value>, right: Option<&Value>) {
        let mut both: BTreeMap<Step, (Vec<&Value>, Vec<&Value>)> = BTreeMap::new();
        for item in as_list(left).into_iter().flatten() {
            let Ok(step) = step_to(of, list, item) else { continue };
            both.entry(step).or_default().0.push(item);
        }
        for item in as_list(right).into_iter().flatten() {
            let Ok(step) = step_to(of, list, item) else { continue };
            both.entry(step).or_default().1.push(item);
        }
        let of = of.at(list.items);
        for (step, (left, right)) in both {
            // Duplicate items are compared as one value.
            match (left.as_slice(), right.as_slice()) {
                ([] | [_], [] | [_]) => {
                    self.below(step, |walk| walk.visit(of, left.first().copied(), right.first().copied()));
                }
                ([_, _, ..], [_, _, ..]) => {
                    let is_equal =
                        left.len() == right.len() && left.iter().zip(&right).all(|(left, right)| equal(left, right));
                    if !is_equal {
                        self.below(step, |walk| walk.comparison.modified.insert(&walk.path));
                    }
                }
                ([_, _, ..], _) => self.below(step, |walk| {
                    if let [item] = right.as_slice() {
                        walk.visit(of, None, Some(item));
                    }
                    walk.comparison.removed.insert(&walk.path);
                }),
                (_, [_, _, ..]) => self.below(step, |walk| {
                    if let [item] = left.as_slice() {
                        walk.visit(of, Some(item), None);
                    }
                    walk.comparison.added.insert(&walk.path);
                }),
            }
        }
    }
}
