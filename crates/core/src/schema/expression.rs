//! CEL in Tidegate: the available functions, compilation, and one-sentence errors.
//!
//! Errors do not quote values: values may be long, and the entries of a mapping have no stable
//! order.
//!
//! # Why not kube-cel
//!
//! The crate `kube-cel` (0.8) evaluates the same rules. It does not pass the tests of this module and of the simulator:
//!
//! * It does not check types. It compiles 90 of the 122 rules in `tests/it/sim/refused.rs`, among them `self.none == 1`
//!   and `self.text == 1`. The API server refuses these when the definition is created, and [`types`] says so in its
//!   words.
//! * It reports an unknown function, such as `isUrl(self.a)`, only when the rule is evaluated.
//! * It rejects every object if a rule uses a function that it lacks: `self.many.all(i, one,
//!   one.size() > i)`, `self.many.sortBy(one, one)`, `type(self.a) == string`. Here such a rule is
//!   evaluated or treated as satisfied.
//! * It depends on `cel` 0.13, which cannot parse `self.?a.orValue('x')`. Since we use `cel` 0.15, we cannot take its
//!   functions alone either.
//! * It compares list items by position. The API server compares the items of a list of type `map` by their keys.
//! * With `optionalOldSelf`, `oldSelf` is null or the value, not an optional. `oldSelf.orValue('first') == self` fails.
//! * It ignores the type `number`: if `self.ratio` is 3, `self.ratio / 2.0` fails. Its rules see unknown fields and
//!   null fields, which the API server drops before it evaluates rules.
//! * It does not limit how deep loops are nested, so nothing bounds the time of a rule with four nested `all`.
//!
//! It has functions for URLs, quantities, IP addresses, sets and versions that are missing here.
//! Try it again when it depends on the same `cel` as Tidegate.

mod depth;
mod free;
mod guard;
mod library;
mod memory;
pub mod types;

use std::{
    collections::{BTreeSet, HashMap},
    sync::{Arc, LazyLock},
};

use cel::{Context, Env, ExecutionError, IdedExpr, Value as CelValue, extensions};
use serde_json::Value;

use self::{free::Free, library::FunctionSupport, memory::Meter};
use super::format;
use crate::budget::Budget;

/// A compiled expression.
pub struct Expression {
    /// With a guard in every loop: see [`guard`].
    expression: IdedExpr,
    text: String,
    free: Free,
    /// A function of the API server that it needs and that is not evaluated here.
    foreign: Option<String>,
}

/// The variables of an evaluation, and what it may take. Evaluations share them one after the other.
pub struct Variables {
    context: Context<'static, 'static>,
    meter: Arc<Meter>,
}

/// Longest expression, in bytes. The longest rules in use have some hundred bytes.
const TEXT_LEN_MAX: usize = 10_000;

/// Stack for compiling, in bytes: several times what the longest expression needs in a debug build. The parser is
/// recursive and has no limit of its own. Only what is used becomes memory.
const STACK: usize = 16 << 20;

/// Deepest nesting of calls: a third of what overflows a stack of 2 MiB. The longest chains in use have some dozens.
const DEPTH_MAX: usize = 500;

/// Maximum nesting depth of macros that loop: each level may multiply the run time by the size of an
/// object. Without a [`Budget`], nothing else bounds it.
const LOOPS_MAX: usize = 3;

static ENVIRONMENT: LazyLock<Arc<Env>> = LazyLock::new(|| {
    let mut env = Env::stdlib();
    env.add_extension(extensions::strings).expect("the standard library does not declare the string extension");
    env.add_extension(extensions::lists).expect("the standard library does not declare the list extension");
    library::lists(&mut env).expect("the list extension does not declare what we add to it");
    Arc::new(env)
});

// === impl Expression ===

impl Expression {
    /// Compiles an expression. Functions of the API server that are not evaluated here are allowed:
    /// [`Expression::foreign`] names them.
    ///
    /// # Errors
    ///
    /// Fails with one sentence if the text is too long, is not valid CEL, or calls an unknown function.
    pub fn compile(text: &str) -> Result<Expression, String> {
        let text = text.trim();
        if TEXT_LEN_MAX < text.len() {
            return Err(format!("it is longer than {TEXT_LEN_MAX} bytes"));
        }
        stacker::grow(STACK, || Expression::compile_here(text))
    }

    /// Compiles on the present stack, and drops there what is refused: dropping is recursive as well.
    fn compile_here(text: &str) -> Result<Expression, String> {
        let program = ENVIRONMENT.compile(text).map_err(|problem| {
            // The rest is an excerpt with a marker below.
            let problem = problem.to_string();
            problem.lines().next().unwrap_or_default().trim_start_matches("ERROR: ").to_owned()
        })?;
        // What follows is recursive, and so is the evaluator.
        if DEPTH_MAX < depth::deepest(program.expression()) {
            return Err(format!("its calls are nested more than {DEPTH_MAX} deep: split it into several rules"));
        }
        let free = Free::from_expression(program.expression());
        let first = |wanted: FunctionSupport| {
            let of = free.functions.iter().find(|(name, arguments)| library::support(name, *arguments) == wanted);
            of.map(|(name, _)| name.clone())
        };
        // Unknown functions are rejected when the expression is compiled, not when it is evaluated, and in a stable
        // order.
        if let Some(unknown) = first(FunctionSupport::Unknown) {
            return Err(format!("the function `{unknown}` is not supported"));
        }
        let foreign = first(FunctionSupport::Foreign);
        if LOOPS_MAX < free.loops {
            return Err(format!("more than {LOOPS_MAX} looping macros are nested within each other"));
        }
        let mut expression = program.expression().clone();
        guard::insert(&mut expression);
        Ok(Expression { expression, free, foreign, text: text.to_owned() })
    }

    /// A function that is not evaluated here. With one, the expression must not be evaluated.
    pub fn foreign(&self) -> Option<&str> {
        self.foreign.as_deref()
    }

    /// Evaluates the expression.
    ///
    /// # Errors
    ///
    /// Fails with one sentence if the evaluation fails.
    pub fn evaluate(&self, variables: &Variables) -> Result<CelValue, String> {
        self.execute(variables).map_err(|problem| explain(&problem))
    }

    /// Evaluates a condition.
    ///
    /// # Errors
    ///
    /// Fails if the result is not a boolean or the evaluation fails, in the words of the API server where these are
    /// known.
    pub fn decide(&self, variables: &Variables) -> Result<bool, String> {
        match self.execute(variables) {
            Ok(CelValue::Bool(holds)) => Ok(holds),
            Ok(_) => Err("it is neither true nor false".to_owned()),
            Err(ExecutionError::NoSuchKey(key)) => Err(format!("no such key: {key}")),
            Err(ExecutionError::DivisionByZero(_)) => Err("division by zero".to_owned()),
            Err(problem) => Err(explain(&problem)),
        }
    }

    /// Whether the result may be a boolean. A constant expression is evaluated to find out.
    pub fn may_decide(&self) -> bool {
        self.constant().is_none_or(|value| matches!(value, CelValue::Bool(_)))
    }

    /// Whether the result may be a string.
    pub fn may_tell(&self) -> bool {
        self.constant().is_none_or(|value| matches!(value, CelValue::String(_)))
    }

    /// The constant result, if the expression uses no variables.
    fn constant(&self) -> Option<CelValue> {
        if self.variables().is_empty() && self.foreign.is_none() {
            self.execute(&Variables::default()).ok()
        } else {
            None
        }
    }

    fn execute(&self, variables: &Variables) -> Result<CelValue, ExecutionError> {
        variables.meter.reset();
        let result = CelValue::resolve(&self.expression, &variables.context);
        // `||` and `exists` may have dropped the error.
        if variables.meter.is_over() { Err(memory::exceeded()) } else { result }
    }

    /// The source text.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Whether it uses a variable.
    pub fn names(&self, variable: &str) -> bool {
        self.free.variables.contains(variable)
    }

    /// Its free variables.
    pub fn variables(&self) -> &BTreeSet<String> {
        &self.free.variables
    }

    /// The fields of a variable that it uses; `None` if it uses the variable as a whole.
    pub fn fields_of(&self, variable: &str) -> Option<Vec<&str>> {
        if self.free.fields.contains(variable) {
            return None;
        }
        let field = |entry: &'_ String| -> Option<usize> {
            entry.strip_prefix(variable)?.starts_with('.').then_some(variable.len() + 1)
        };
        Some(self.free.fields.iter().filter_map(|entry| field(entry).map(|start| &entry[start..])).collect())
    }
}

impl std::fmt::Debug for Expression {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Expression").field(&self.text).finish()
    }
}

// === impl Variables ===

impl Default for Variables {
    fn default() -> Variables {
        Variables::within(&Budget::default())
    }
}

impl Variables {
    /// No variables yet. Evaluations end with the budget; their results are then meaningless.
    pub fn within(budget: &Budget) -> Variables {
        let mut context = Context::with_env(Arc::clone(&ENVIRONMENT));
        let meter = Arc::new(Meter::default());
        memory::add(&mut context, &meter);
        let (budget, built) = (budget.clone(), Arc::clone(&meter));
        context
            .add_function(guard::HAS_TIME, move || !budget.is_over() && !built.is_over())
            .expect("the standard library has no such function");
        context
            .add_function("duration", |text: Arc<String>| {
                format::duration_nanoseconds(&text)
                    .ok_or_else(|| ExecutionError::function_error("duration", format!("`{text}` is not a duration")))
            })
            .expect("the standard library has no `duration` without its feature");
        Variables { context, meter }
    }

    /// Sets a variable.
    pub fn set(&mut self, name: &str, value: CelValue) {
        self.context.add_variable_from_value(name, value);
    }
}

/// Converts a value without a schema. Whole numbers become `int`, whatever their sign.
pub fn bind(value: &Value) -> CelValue {
    match value {
        Value::Null => CelValue::Null,
        Value::Bool(flag) => CelValue::Bool(*flag),
        Value::Number(number) => match (number.as_i64(), number.as_u64(), number.as_f64()) {
            (Some(whole), _, _) => CelValue::Int(whole),
            (None, Some(whole), _) => CelValue::UInt(whole),
            (None, None, Some(float)) => CelValue::Float(float),
            (None, None, None) => CelValue::Null,
        },
        Value::String(text) => CelValue::String(Arc::new(text.clone())),
        Value::Array(items) => CelValue::List(Arc::new(items.iter().map(bind).collect())),
        Value::Object(fields) => {
            let bound: HashMap<String, CelValue> =
                fields.iter().map(|(name, value)| (name.clone(), bind(value))).collect();
            CelValue::from(bound)
        }
    }
}

fn explain(problem: &ExecutionError) -> String {
    match problem {
        ExecutionError::NoSuchKey(key) => format!("`{key}` does not exist; check it with `has(…)` or `in` first"),
        ExecutionError::UndeclaredReference(name) => format!("`{name}` does not exist"),
        ExecutionError::NoSuchOverload(overload) => overload.to_string(),
        ExecutionError::UnexpectedType { got, want } => format!("found a {got} instead of a {want}"),
        ExecutionError::ValuesNotComparable(_, _) => "two values cannot be compared".to_owned(),
        ExecutionError::FunctionError { function, .. } if function == memory::BUILT => memory::explain(),
        ExecutionError::FunctionError { function, .. } => format!("the function `{function}` fails"),
        ExecutionError::DivisionByZero(_) | ExecutionError::RemainderByZero(_) => "division by zero".to_owned(),
        ExecutionError::IndexOutOfBounds(_) => "an index is beyond the end of its list".to_owned(),
        ExecutionError::Overflow(operator, _, _) => format!("a number becomes too large in `{operator}`"),
        _ => "a value has a type that is not supported here".to_owned(),
    }
}

#[cfg(test)]
mod tests;
