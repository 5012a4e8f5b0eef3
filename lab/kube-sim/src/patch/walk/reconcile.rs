// SPDX-License-Identifier: Apache-2.0

//! Updates sets that were written under an older schema: what is atomic now is owned as a whole.

use super::{
    super::{
        path::Step,
        schema::{Part, Relation, Type},
        set::Set,
    },
    below,
};

/// The set under the current schema.
pub(in super::super) fn reconcile(of: Type<'_>, set: &Set) -> Set {
    let mut changes = Changes { path: Vec::new(), atomic: Set::default() };
    changes.visit(of, Some(set), false);
    if changes.atomic.is_empty() {
        return set.clone();
    }
    set.without_subtrees(&changes.atomic).union(&changes.atomic)
}

struct Changes {
    path: Vec<Step>,
    /// Fields that must be owned as a whole.
    atomic: Set,
}

// === impl Changes ===

impl Changes {
    /// `is_leaf` says that the field itself is owned but nothing below it.
    fn visit(&mut self, of: Type<'_>, set: Option<&Set>, is_leaf: bool) {
        let is_atomic = match of.part(None) {
            Part::Scalar(_) | Part::Nothing => return,
            // The type of values without a schema never changes.
            Part::Map(fields) if fields.named.is_empty() && of.is_untyped_map(fields) => return,
            Part::Map(fields) => fields.atomic && (is_leaf || set.is_some()),
            Part::List(list) => list.relation == Relation::Atomic,
        };
        if is_atomic && !is_leaf {
            self.atomic.insert(&self.path);
            return;
        }
        for (step, is_member, inner) in set.into_iter().flat_map(Set::steps) {
            let Some(of) = below(of, step) else { continue };
            let inner = Some(inner).filter(|inner| !inner.is_empty());
            self.path.push(step.clone());
            self.visit(of, inner, is_member && inner.is_none());
            self.path.pop();
        }
    }
}
