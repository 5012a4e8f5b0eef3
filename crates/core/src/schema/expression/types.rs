//! A type checker for CEL that reports errors in the words of the API server's compiler.
//!
//! It reports only what is certain: an unknown type causes no error. The grammar, and so its syntax
//! errors, are the same as the server's.

mod operators;

use std::{collections::BTreeMap, fmt, sync::Arc};

use cel::{
    IdedExpr,
    common::ast::{CallExpr, ComprehensionExpr, EntryExpr, Expr, LiteralValue, SourceInfo},
};

use super::{
    ENVIRONMENT,
    library::{self, FunctionSupport},
};

/// The type of a value.
#[derive(Clone, Debug, PartialEq)]
pub enum Type {
    /// The type is unknown here, so nothing is reported.
    Unknown,
    /// Any type; the server does not know it either.
    Dyn,
    /// An error was already reported.
    Error,
    /// A boolean.
    Bool,
    /// A signed integer.
    Int,
    /// An unsigned integer.
    Uint,
    /// A floating-point number.
    Double,
    /// A string.
    Text,
    /// Bytes.
    Bytes,
    /// Null.
    Null,
    /// A timestamp.
    Time,
    /// A duration.
    Duration,
    /// A list of values of one type.
    List(Arc<Type>),
    /// A map from keys of one type to values of another.
    Map(Arc<Type>, Arc<Type>),
    /// A mapping with known fields.
    Object(Arc<Object>),
    /// A value that may be absent.
    Optional(Arc<Type>),
}

/// A mapping with known fields.
#[derive(Debug)]
pub struct Object {
    /// The name in messages.
    pub name: String,
    /// Its fields, by name.
    pub fields: BTreeMap<String, Type>,
}

/// An error and its position: line and column, both from 1, in characters.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Problem {
    line: usize,
    column: usize,
    message: String,
}

/// Functions that the server declares although they are not operators, and their result types.
const RESULTS: &[(&str, Type)] = &[
    ("bool", Type::Bool),
    ("bytes", Type::Bytes),
    ("charAt", Type::Text),
    ("contains", Type::Bool),
    ("double", Type::Double),
    ("duration", Type::Duration),
    ("endsWith", Type::Bool),
    ("format", Type::Text),
    ("hasValue", Type::Bool),
    ("indexOf", Type::Int),
    ("int", Type::Int),
    ("join", Type::Text),
    ("lastIndexOf", Type::Int),
    ("lowerAscii", Type::Text),
    ("matches", Type::Bool),
    ("replace", Type::Text),
    ("size", Type::Int),
    ("startsWith", Type::Bool),
    ("string", Type::Text),
    ("substring", Type::Text),
    ("timestamp", Type::Time),
    ("trim", Type::Text),
    ("uint", Type::Uint),
    ("upperAscii", Type::Text),
];

/// The type of an expression.
///
/// # Errors
///
/// Fails with all errors in the server's words, with an excerpt.
pub fn check(text: &str, variables: &BTreeMap<&str, Type>) -> Result<Type, String> {
    let drawn = |mut problems: Vec<Problem>| {
        problems.sort();
        let drawings: Vec<String> = problems.iter().map(|problem| problem.drawn(text)).collect();
        drawings.join("\n")
    };
    let program = match ENVIRONMENT.compile(text) {
        Ok(program) => program,
        Err(found) => {
            let one = |at: isize| usize::try_from(at).unwrap_or_default().max(1);
            let problem = |of: &cel::ParseError| Problem {
                line: one(of.pos.0),
                column: one(of.pos.1),
                message: expecting(&of.msg),
            };
            // The parser repeats the errors of its grammar.
            let is_own = |of: &&cel::ParseError| found.errors.len() > 1 && of.msg.starts_with("Incomplete ");
            return Err(drawn(found.errors.iter().filter(|of| !is_own(of)).map(problem).collect()));
        }
    };
    let mut checker =
        Checker { text, source: program.source_info(), variables, scope: Vec::new(), problems: Vec::new() };
    let found = checker.visit(program.expression());
    if checker.problems.is_empty() { Ok(found) } else { Err(drawn(checker.problems)) }
}

/// A syntax error. Where any operator could follow, the server's parser names only the tokens that
/// end the expression.
fn expecting(message: &str) -> String {
    let Some((begin, set)) = message.split_once(" expecting {").filter(|(_, set)| set.contains("'==', '!='")) else {
        return message.to_owned();
    };
    match ["<EOF>", "':'"].into_iter().find(|end| set.contains(end)) {
        Some(end) => format!("{begin} expecting {end}"),
        None => message.to_owned(),
    }
}

struct Checker<'a> {
    text: &'a str,
    source: &'a SourceInfo,
    variables: &'a BTreeMap<&'a str, Type>,
    /// Variables that macros declare, innermost last.
    scope: Vec<(String, Type)>,
    problems: Vec<Problem>,
}

// === impl Checker ===

impl Checker<'_> {
    fn visit(&mut self, expression: &IdedExpr) -> Type {
        match &expression.expr {
            Expr::Unspecified => Type::Unknown,
            Expr::Literal(literal) => match literal {
                LiteralValue::Boolean(_) => Type::Bool,
                LiteralValue::Bytes(_) => Type::Bytes,
                LiteralValue::Double(_) => Type::Double,
                LiteralValue::Int(_) => Type::Int,
                LiteralValue::Null => Type::Null,
                LiteralValue::String(_) => Type::Text,
                LiteralValue::UInt(_) => Type::Uint,
            },
            Expr::Ident(name) => self.variable(expression.id, name),
            Expr::Call(call) => self.call(expression.id, call),
            Expr::Comprehension(each) => self.comprehension(each),
            Expr::List(list) => {
                let mut of = None;
                for element in &list.elements {
                    of = Some(self.joined(of, element));
                }
                Type::List(Arc::new(of.unwrap_or(Type::Unknown)))
            }
            Expr::Map(map) => {
                let (mut keys, mut values) = (None, None);
                for entry in &map.entries {
                    if let EntryExpr::MapEntry(entry) = &entry.expr {
                        keys = Some(self.joined(keys, &entry.key));
                        values = Some(self.joined(values, &entry.value));
                    }
                }
                let of = |of: Option<Type>| Arc::new(of.unwrap_or(Type::Unknown));
                Type::Map(of(keys), of(values))
            }
            Expr::Struct(_) => Type::Unknown,
            Expr::Select(select) => {
                if let Expr::Ident(root) = &select.operand.expr
                    && self.is_space(root)
                {
                    return Type::Unknown;
                }
                let operand = self.visit(&select.operand);
                let found = self.field(expression.id, &operand, &select.field);
                if select.test { Type::Bool } else { found }
            }
        }
    }

    fn variable(&mut self, id: u64, name: &str) -> Type {
        let bound = self.scope.iter().rev().find(|(bound, _)| bound == name).map(|(_, of)| of.clone());
        if let Some(of) = bound.or_else(|| self.variables.get(name).cloned()) {
            return of;
        }
        // A name that begins with `@` is an accumulator of a macro.
        if library::is_type(name) || name.starts_with(['@', '.']) {
            return Type::Unknown;
        }
        self.report(id, undeclared(name))
    }

    /// Whether a name is not a variable, but a prefix of function or type names.
    fn is_space(&self, name: &str) -> bool {
        library::is_space(name)
            && !self.variables.contains_key(name)
            && self.scope.iter().all(|(bound, _)| bound != name)
    }

    fn field(&mut self, id: u64, operand: &Type, field: &str) -> Type {
        match operand {
            Type::Unknown => Type::Unknown,
            Type::Dyn | Type::Error => Type::Dyn,
            Type::Optional(of) => Type::Optional(Arc::new(self.field(id, of, field))),
            Type::Map(_, value) => Type::clone(value),
            Type::Object(object) => match object.fields.get(field) {
                Some(found) => found.clone(),
                None => self.report(id, format!("undefined field '{field}'")),
            },
            other => {
                self.report(id, format!("type '{other}' does not support field selection"));
                Type::Dyn
            }
        }
    }

    fn call(&mut self, id: u64, call: &CallExpr) -> Type {
        let name = call.func_name.as_str();
        let space = call.target.as_deref().and_then(|target| match &target.expr {
            Expr::Ident(root) if self.is_space(root) => Some((target.id, root)),
            _ => None,
        });
        let full = space.map_or_else(|| name.to_owned(), |(_, space)| format!("{space}.{name}"));
        let is_unknown = library::support(&full, call.args.len()) == FunctionSupport::Unknown;
        let mut arguments = Vec::with_capacity(call.args.len() + 1);
        if let Some(target) = call.target.as_deref().filter(|_| space.is_none()) {
            arguments.push(self.visit(target));
        }
        // The types of a macro's variables are unknown if the macro is not evaluated here.
        let outer = self.scope.len();
        self.scope.extend(library::declared(call).into_iter().map(|name| (name.to_owned(), Type::Unknown)));
        for argument in &call.args {
            arguments.push(self.visit(argument));
        }
        self.scope.truncate(outer);
        if let Some((target, space)) = space {
            if is_unknown {
                self.report(target, undeclared(space));
                return self.report(id, undeclared(name));
            }
            return Type::Unknown;
        }
        if let Some(found) = operators::known(name, &arguments, call.target.is_some()) {
            return match found {
                operators::CallType::Type(of) => of,
                operators::CallType::Operands(wrong) => {
                    for index in wrong {
                        let message = format!("expected type 'bool' but found '{}'", arguments[index]);
                        self.report(call.args[index].id, message);
                    }
                    Type::Error
                }
                operators::CallType::NoOverload => {
                    operators::settle(name, &mut arguments);
                    let message = no_overload(name, &arguments, call.target.is_some());
                    self.report(id, message)
                }
            };
        }
        if is_unknown {
            return self.report(id, undeclared(name));
        }
        let known = RESULTS.iter().find(|(known, _)| *known == name);
        known.map_or(Type::Unknown, |(_, of)| of.clone())
    }

    fn comprehension(&mut self, each: &ComprehensionExpr) -> Type {
        let range = self.visit(&each.iter_range);
        let begin = self.visit(&each.accu_init);
        let (first, second) = match &range {
            Type::List(of) if each.iter_var2.is_some() => (Type::Int, Type::clone(of)),
            Type::List(of) => (Type::clone(of), Type::Unknown),
            Type::Map(key, value) => (Type::clone(key), Type::clone(value)),
            Type::Unknown => (Type::Unknown, Type::Unknown),
            Type::Dyn | Type::Error => (Type::Dyn, Type::Dyn),
            other => {
                let message = format!(
                    "expression of type '{other}' cannot be range of a comprehension (must be list, map, or dynamic)"
                );
                self.report(each.iter_range.id, message);
                (Type::Error, Type::Error)
            }
        };
        let outer = self.scope.len();
        self.scope.push((each.accu_var.clone(), begin));
        self.scope.push((each.iter_var.clone(), first));
        if let Some(name) = &each.iter_var2 {
            self.scope.push((name.clone(), second));
        }
        self.visit(&each.loop_cond);
        let step = self.visit(&each.loop_step);
        self.scope.truncate(outer);
        // The items of a list that a macro builds have the type of its steps.
        self.scope.push((each.accu_var.clone(), step));
        let result = self.visit(&each.result);
        self.scope.truncate(outer);
        result
    }

    /// The common type of the previous elements and this one. They must be the same.
    fn joined(&mut self, before: Option<Type>, element: &IdedExpr) -> Type {
        let found = self.visit(element);
        match before {
            Some(before) if !operators::fits(&before, &found) => {
                let message = format!("expected type '{before}' but found '{found}'");
                self.report(element.id, message)
            }
            Some(before) if !matches!(before, Type::Unknown) && !matches!(found, Type::Dyn | Type::Unknown) => before,
            Some(_) | None => found,
        }
    }

    fn report(&mut self, id: u64, message: String) -> Type {
        let start = self.source.offset_for(id).map_or(0, |(start, _)| start as usize);
        let before: Vec<char> = self.text.get(..start).unwrap_or_default().chars().collect();
        let line = 1 + before.iter().filter(|c| **c == '\n').count();
        let column = 1 + before.iter().rev().take_while(|c| **c != '\n').count();
        let problem = Problem { line, column, message };
        if !self.problems.contains(&problem) {
            self.problems.push(problem);
        }
        Type::Error
    }
}

fn undeclared(name: &str) -> String {
    format!("undeclared reference to '{name}' (in container '')")
}

fn no_overload(name: &str, arguments: &[Type], has_target: bool) -> String {
    let list = |of: &[Type]| of.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    let signature = match arguments {
        [target, rest @ ..] if has_target => format!("{target}.({})", list(rest)),
        all => format!("({})", list(all)),
    };
    format!("found no matching overload for '{name}' applied to '{signature}'")
}

// === impl Problem ===

impl Problem {
    /// The error with its source line, and a marker below it.
    fn drawn(&self, text: &str) -> String {
        let line = text.split('\n').nth(self.line - 1).unwrap_or_default().replace('\t', " ");
        let before = line.chars().take(self.column - 1);
        let dots: String = before.map(|c| if c.is_ascii() { '.' } else { '\u{ff0e}' }).collect();
        let mark = match line.chars().nth(self.column - 1) {
            Some(c) if !c.is_ascii() => '\u{ff3e}',
            _ => '^',
        };
        format!("ERROR: <input>:{}:{}: {}\n | {line}\n | {dots}{mark}", self.line, self.column, self.message)
    }
}

// === impl Type ===

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Type::Unknown | Type::Dyn => "dyn",
            Type::Error => "!error!",
            Type::Bool => "bool",
            Type::Int => "int",
            Type::Uint => "uint",
            Type::Double => "double",
            Type::Text => "string",
            Type::Bytes => "bytes",
            Type::Null => "null",
            Type::Time => "timestamp",
            Type::Duration => "duration",
            Type::List(of) => return write!(f, "list({of})"),
            Type::Map(key, value) => return write!(f, "map({key}, {value})"),
            Type::Object(object) => &object.name,
            Type::Optional(of) => return write!(f, "optional_type({of})"),
        })
    }
}

impl PartialEq for Object {
    /// Compares by name: names are unique.
    fn eq(&self, other: &Object) -> bool {
        self.name == other.name
    }
}
