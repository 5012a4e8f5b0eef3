//! How deep the calls of an expression are nested, without recursion.
//!
//! The evaluator is recursive. A chain such as `1+1+…` needs no brackets and nests one call in another with every
//! term, so a text within the limit of its length could overflow the stack, and the process would end.

use cel::{
    IdedExpr,
    common::ast::{EntryExpr, Expr},
};

/// The longest path from an expression to one of its parts, in steps.
pub(super) fn deepest(expression: &IdedExpr) -> usize {
    let mut deepest = 0;
    let mut left = vec![(expression, 1)];
    while let Some((part, depth)) = left.pop() {
        deepest = deepest.max(depth);
        let below = depth + 1;
        match &part.expr {
            Expr::Unspecified | Expr::Literal(_) | Expr::Ident(_) => {}
            Expr::Call(call) => {
                let parts = call.target.as_deref().into_iter().chain(&call.args);
                left.extend(parts.map(|part| (part, below)));
            }
            Expr::Comprehension(each) => {
                let parts: [&IdedExpr; 5] =
                    [&each.iter_range, &each.accu_init, &each.loop_cond, &each.loop_step, &each.result];
                left.extend(parts.map(|part| (part, below)));
            }
            Expr::List(list) => left.extend(list.elements.iter().map(|part| (part, below))),
            Expr::Map(map) => map.entries.iter().for_each(|entry| parts_of(&entry.expr, below, &mut left)),
            Expr::Struct(fields) => fields.entries.iter().for_each(|entry| parts_of(&entry.expr, below, &mut left)),
            Expr::Select(select) => left.push((&select.operand, below)),
        }
    }
    deepest
}

fn parts_of<'e>(entry: &'e EntryExpr, depth: usize, left: &mut Vec<(&'e IdedExpr, usize)>) {
    match entry {
        EntryExpr::StructField(field) => left.push((&field.value, depth)),
        EntryExpr::MapEntry(entry) => left.extend([(&entry.key, depth), (&entry.value, depth)]),
    }
}
