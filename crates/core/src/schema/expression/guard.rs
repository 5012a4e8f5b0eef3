//! Makes the loops of an expression end with the budget of an evaluation, and what it builds with its memory.
//!
//! The evaluator has no such limits, and three nested loops over a list of some thousands take hours. So each loop asks
//! a function before each item, and each part that builds or copies a value charges it: see [`memory`]. The names of
//! these functions cannot be written in CEL. What reads numbers, compares or takes a field of an object is left as it
//! is.

use cel::{
    IdedExpr,
    common::ast::{CallExpr, ComprehensionExpr, EntryExpr, Expr, IdedEntryExpr, ListExpr, LiteralValue, operators},
};

use super::memory;

/// The function that says whether there is time left.
pub(super) const HAS_TIME: &str = "@has_time";

/// Functions and operators whose result is a string, bytes, a list or an optional of their own.
const BUILDERS: &[&str] = &[
    "@sortByAssociatedKeys",
    "bytes",
    "distinct",
    "flatten",
    "format",
    "lowerAscii",
    "of",
    "ofNonZeroValue",
    "quote",
    "reverse",
    "slice",
    "sort",
    "string",
    "substring",
    "trim",
    "upperAscii",
    operators::OPT_INDEX,
    operators::OPT_SELECT,
];

/// Names that may be optionals, or contain some: each access to a field of an optional copies the field.
struct Guard {
    optional: Vec<String>,
}

/// Inserts the functions into an expression.
pub(super) fn insert(expression: &mut IdedExpr) {
    Guard { optional: vec!["oldSelf".to_owned()] }.insert(expression);
}

// === impl Guard ===

impl Guard {
    fn insert(&mut self, expression: &mut IdedExpr) {
        match &mut expression.expr {
            Expr::Unspecified | Expr::Literal(_) | Expr::Ident(_) => {}
            Expr::Call(_) => self.call(expression),
            Expr::Comprehension(each) => self.comprehension(each),
            Expr::List(list) if !list.elements.iter().all(is_constant) => {
                list.elements.iter_mut().for_each(|element| self.keep(element));
            }
            Expr::Map(map) if !map.entries.iter().all(is_constant_entry) => {
                map.entries.iter_mut().for_each(|entry| self.keep_entry(&mut entry.expr));
            }
            Expr::List(_) | Expr::Map(_) => {}
            Expr::Struct(fields) => fields.entries.iter_mut().for_each(|entry| self.keep_entry(&mut entry.expr)),
            Expr::Select(select) => {
                self.insert(&mut select.operand);
                if !select.test && self.may_be_optional(&select.operand) {
                    wrap(expression, memory::BUILT);
                }
            }
        }
    }

    fn call(&mut self, expression: &mut IdedExpr) {
        let Expr::Call(call) = &mut expression.expr else { return };
        call.target.iter_mut().for_each(|target| self.insert(target));
        call.args.iter_mut().for_each(|argument| self.insert(argument));
        let is_builder = match (call.func_name.as_str(), &call.target, call.args.as_mut_slice()) {
            ("range", Some(_), [count]) => {
                wrap(count, memory::COUNT);
                false
            }
            (operators::ADD, None, operands) => !operands.iter().any(is_number),
            (operators::INDEX, None, [operand, _]) => self.may_be_optional(operand),
            (name, Some(_), _) => match memory::MEMBERS.iter().find(|(of, _)| *of == name) {
                Some((_, charged)) => {
                    call.func_name = (*charged).to_owned();
                    false
                }
                None => BUILDERS.contains(&name),
            },
            (name, None, _) => BUILDERS.contains(&name),
        };
        if is_builder {
            wrap(expression, memory::BUILT);
        }
    }

    /// `map` and `filter` keep their shape, which the evaluator knows: otherwise it would copy their result for each
    /// item. There the items are guarded, and everywhere else the condition of the loop.
    fn comprehension(&mut self, each: &mut ComprehensionExpr) {
        self.insert(&mut each.iter_range);
        if !is_constant(&each.accu_init) {
            self.keep(&mut each.accu_init);
        }
        let outer = self.optional.len();
        if self.may_be_optional(&each.iter_range) {
            self.optional.extend(each.iter_var2.iter().chain([&each.iter_var]).cloned());
        }
        if self.may_be_optional(&each.accu_init) {
            self.optional.push(each.accu_var.clone());
        }
        if let Some((condition, items)) = appended(&mut each.loop_step) {
            if let Some(condition) = condition {
                self.insert(condition);
                if_time(condition, LiteralValue::Boolean(false.into()));
            }
            for item in items {
                self.keep(item);
                if_time(item, LiteralValue::Null);
            }
            wrap(&mut each.iter_range, memory::RANGE);
        } else {
            for part in [&mut each.loop_cond, &mut each.loop_step, &mut each.result] {
                self.insert(part);
            }
            if_time(&mut each.loop_cond, LiteralValue::Boolean(false.into()));
        }
        self.optional.truncate(outer);
    }

    fn keep_entry(&mut self, entry: &mut EntryExpr) {
        match entry {
            EntryExpr::StructField(field) => self.keep(&mut field.value),
            EntryExpr::MapEntry(entry) => {
                self.keep(&mut entry.key);
                self.keep(&mut entry.value);
            }
        }
    }

    /// Guards a part whose value is copied into a list or a mapping. What has been charged already is moved there.
    fn keep(&mut self, part: &mut IdedExpr) {
        self.insert(part);
        let is_charged = match &part.expr {
            Expr::Call(call) => {
                call.func_name == memory::BUILT || memory::MEMBERS.iter().any(|(_, name)| *name == call.func_name)
            }
            Expr::List(_) | Expr::Map(_) => !is_constant(part),
            _ => false,
        };
        if !is_charged {
            wrap(part, memory::KEPT);
        }
    }

    /// Whether a value may be or contain an optional. What a variable other than `oldSelf` contains comes from JSON.
    fn may_be_optional(&self, expression: &IdedExpr) -> bool {
        match &expression.expr {
            Expr::Ident(name) => self.optional.contains(name),
            Expr::Select(select) => self.may_be_optional(&select.operand),
            Expr::Call(call) => match (call.func_name.as_str(), call.args.as_slice()) {
                (operators::INDEX, [operand, _]) => self.may_be_optional(operand),
                _ => true,
            },
            _ => !is_constant(expression),
        }
    }
}

/// Whether the value is part of the expression's text, which is short.
fn is_constant(expression: &IdedExpr) -> bool {
    match &expression.expr {
        Expr::Literal(_) => true,
        Expr::List(list) => list.elements.iter().all(is_constant),
        Expr::Map(map) => map.entries.iter().all(is_constant_entry),
        _ => false,
    }
}

fn is_constant_entry(entry: &IdedEntryExpr) -> bool {
    matches!(&entry.expr, EntryExpr::MapEntry(entry) if is_constant(&entry.key) && is_constant(&entry.value))
}

fn is_number(expression: &IdedExpr) -> bool {
    use LiteralValue::{Double, Int, UInt};
    matches!(expression.expr, Expr::Literal(Int(_) | UInt(_) | Double(_)))
}

/// The condition of the step of `map` or `filter`, if it has one, and what it appends to the result.
fn appended(step: &mut IdedExpr) -> Option<(Option<&mut IdedExpr>, &mut Vec<IdedExpr>)> {
    let Expr::Call(step) = &mut step.expr else { return None };
    if step.func_name != operators::CONDITIONAL {
        return items(step).map(|items| (None, items));
    }
    match step.args.as_mut_slice() {
        [condition, IdedExpr { expr: Expr::Call(appended), .. }, _] => {
            items(appended).map(|items| (Some(condition), items))
        }
        _ => None,
    }
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
    let inner = std::mem::take(expression);
    let otherwise = IdedExpr { id, expr: Expr::Literal(otherwise) };
    *expression = call(id, operators::CONDITIONAL, vec![call(id, HAS_TIME, Vec::new()), inner, otherwise]);
}

/// Replaces an expression by a function of its value.
fn wrap(expression: &mut IdedExpr, function: &str) {
    let id = expression.id;
    *expression = call(id, function, vec![std::mem::take(expression)]);
}

fn call(id: u64, function: &str, args: Vec<IdedExpr>) -> IdedExpr {
    IdedExpr { id, expr: Expr::Call(CallExpr { func_name: function.to_owned(), target: None, args }) }
}
