//! Makes the loops of an expression end with the budget of an evaluation.
//!
//! The evaluator has no such limit, and three nested loops over a list of some thousands take hours. So each loop asks a
//! function before each item. Its name cannot be written in CEL.

use cel::{
    IdedExpr,
    common::ast::{CallExpr, ComprehensionExpr, EntryExpr, Expr, ListExpr, LiteralValue, operators},
};

/// The function that says whether there is time left.
pub(super) const HAS_TIME: &str = "@has_time";

/// Inserts the function into every loop.
pub(super) fn insert(expression: &mut IdedExpr) {
    match &mut expression.expr {
        Expr::Unspecified | Expr::Literal(_) | Expr::Ident(_) => {}
        Expr::Call(call) => {
            call.target.iter_mut().for_each(|target| insert(target));
            call.args.iter_mut().for_each(insert);
        }
        Expr::Comprehension(each) => {
            for part in
                [&mut each.iter_range, &mut each.accu_init, &mut each.loop_cond, &mut each.loop_step, &mut each.result]
            {
                insert(part);
            }
            guard(each);
        }
        Expr::List(list) => list.elements.iter_mut().for_each(insert),
        Expr::Map(map) => map.entries.iter_mut().for_each(|entry| within(&mut entry.expr)),
        Expr::Struct(fields) => fields.entries.iter_mut().for_each(|entry| within(&mut entry.expr)),
        Expr::Select(select) => insert(&mut select.operand),
    }
}

fn within(entry: &mut EntryExpr) {
    match entry {
        EntryExpr::StructField(field) => insert(&mut field.value),
        EntryExpr::MapEntry(entry) => {
            insert(&mut entry.key);
            insert(&mut entry.value);
        }
    }
}

/// Guards one loop. `map` and `filter` keep their shape, which the evaluator knows: otherwise it would copy their result
/// for each item. There the items are guarded, and everywhere else the condition of the loop.
fn guard(each: &mut ComprehensionExpr) {
    if let Expr::Call(step) = &mut each.loop_step.expr {
        match (step.func_name.as_str(), step.args.as_mut_slice()) {
            (operators::CONDITIONAL, [condition, appended, _]) => {
                if let Expr::Call(appended) = &mut appended.expr
                    && let Some(items) = items(appended)
                {
                    if_time(condition, LiteralValue::Boolean(false.into()));
                    items.iter_mut().for_each(|item| if_time(item, LiteralValue::Null));
                    return;
                }
            }
            _ => {
                if let Some(items) = items(step) {
                    items.iter_mut().for_each(|item| if_time(item, LiteralValue::Null));
                    return;
                }
            }
        }
    }
    if_time(&mut each.loop_cond, LiteralValue::Boolean(false.into()));
}

/// The items that a call appends to the result of a loop, if it does.
fn items(call: &mut CallExpr) -> Option<&mut Vec<IdedExpr>> {
    match (call.func_name.as_str(), call.args.as_mut_slice()) {
        (operators::ADD, [_, IdedExpr { expr: Expr::List(ListExpr { elements, .. }), .. }]) => Some(elements),
        _ => None,
    }
}

/// Replaces an expression by itself if there is time, and else by this value.
fn if_time(expression: &mut IdedExpr, otherwise: LiteralValue) {
    let id = expression.id;
    let call = |func_name: &str, args| IdedExpr {
        id,
        expr: Expr::Call(CallExpr { func_name: func_name.to_owned(), target: None, args }),
    };
    let inner = std::mem::take(expression);
    let otherwise = IdedExpr { id, expr: Expr::Literal(otherwise) };
    *expression = call(operators::CONDITIONAL, vec![call(HAS_TIME, Vec::new()), inner, otherwise]);
}
