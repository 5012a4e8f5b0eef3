//! The free variables of an expression, the functions that it calls, and how deeply its loops are
//! nested.

use std::collections::BTreeSet;

use cel::{
    IdedExpr,
    common::ast::{CallExpr, EntryExpr, Expr},
};

use super::library;

/// What an expression depends on.
#[derive(Default)]
pub(super) struct Free {
    /// Variables that no macro of the expression declares.
    pub(super) variables: BTreeSet<String>,
    /// Fields that it accesses by name, as `variable.field`. A variable that is used as a whole is
    /// listed by itself.
    pub(super) fields: BTreeSet<String>,
    /// Functions by full name, with their argument counts; includes operators.
    pub(super) functions: BTreeSet<(String, usize)>,
    /// The maximum nesting depth of macros that loop (`all`, `exists`, `map`, …).
    pub(super) loops: usize,
}

impl Free {
    /// Analyses an expression.
    pub(super) fn from_expression(expression: &IdedExpr) -> Free {
        let mut free = Free::default();
        free.visit(expression, &mut Vec::new(), 0);
        free
    }

    fn visit<'e>(&mut self, expression: &'e IdedExpr, bound: &mut Vec<&'e str>, loops: usize) {
        match &expression.expr {
            Expr::Unspecified | Expr::Literal(_) => {}
            Expr::Ident(name) => {
                if is_free(name, bound) && !library::is_type(name) {
                    self.variables.insert(name.clone());
                    self.fields.insert(name.clone());
                }
            }
            Expr::Call(call) => self.call(call, bound, loops),
            Expr::Comprehension(each) => {
                self.loops = self.loops.max(loops + 1);
                self.visit(&each.iter_range, bound, loops);
                self.visit(&each.accu_init, bound, loops);
                let outer = bound.len();
                bound.extend([each.iter_var.as_str(), each.accu_var.as_str()]);
                bound.extend(each.iter_var2.as_deref());
                for part in [&each.loop_cond, &each.loop_step, &each.result] {
                    self.visit(part, bound, loops + 1);
                }
                bound.truncate(outer);
            }
            Expr::List(list) => list.elements.iter().for_each(|element| self.visit(element, bound, loops)),
            Expr::Map(map) => map.entries.iter().for_each(|entry| self.entry(&entry.expr, bound, loops)),
            Expr::Struct(fields) => fields.entries.iter().for_each(|entry| self.entry(&entry.expr, bound, loops)),
            Expr::Select(select) => match &select.operand.expr {
                Expr::Ident(name) if is_free(name, bound) && library::is_space(name) => {
                    self.functions.insert((format!("{name}.{}", select.field), 0));
                }
                Expr::Ident(name) if is_free(name, bound) => {
                    self.variables.insert(name.clone());
                    self.fields.insert(format!("{name}.{}", select.field));
                }
                _ => self.visit(&select.operand, bound, loops),
            },
        }
    }

    fn call<'e>(&mut self, call: &'e CallExpr, bound: &mut Vec<&'e str>, loops: usize) {
        let space = call.target.as_deref().and_then(|target| match &target.expr {
            Expr::Ident(name) if is_free(name, bound) && library::is_space(name) => Some(name),
            _ => None,
        });
        let name = match space {
            Some(space) => format!("{space}.{}", call.func_name),
            None => call.func_name.clone(),
        };
        self.functions.insert((name, call.args.len()));
        if space.is_none() {
            call.target.iter().for_each(|target| self.visit(target, bound, loops));
        }
        let outer = bound.len();
        bound.extend(library::declared(call));
        call.args.iter().for_each(|argument| self.visit(argument, bound, loops));
        bound.truncate(outer);
    }

    fn entry<'e>(&mut self, entry: &'e EntryExpr, bound: &mut Vec<&'e str>, loops: usize) {
        match entry {
            EntryExpr::StructField(field) => self.visit(&field.value, bound, loops),
            EntryExpr::MapEntry(entry) => {
                self.visit(&entry.key, bound, loops);
                self.visit(&entry.value, bound, loops);
            }
        }
    }
}

/// A name that begins with `@` is an accumulator of a macro.
fn is_free(name: &str, bound: &[&str]) -> bool {
    !name.starts_with('@') && !bound.contains(&name)
}
