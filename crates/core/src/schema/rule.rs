//! The rules of `x-kubernetes-validations`, in CEL.
//!
//! A rule sees its value as the API server presents it: with defaults, without unknown fields, and
//! with escaped names where they are not identifiers. Durations are integers, in nanoseconds, which
//! compare in the same way.
//!
//! A rule is treated as satisfied if it compares with a missing old value, or uses a function of
//! the API server that is not evaluated here.

use std::{collections::HashMap, sync::Arc};

use cel::{Value as CelValue, objects::OptionalValue};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::ValidationRule;
use serde_json::Value;

use super::{
    expression::{Expression, Variables},
    node::{List, Node, Others, Type},
};
use crate::budget::Budget;

/// A compiled rule.
pub(super) struct Rule {
    expression: Expression,
    message: Option<String>,
    message_expression: Option<Expression>,
    /// The field of the violation, relative to the value of the rule.
    pub(super) field: Vec<String>,
    /// Whether it compares with the old value.
    pub(super) is_transition: bool,
    /// Whether the old value is an optional, so that the rule also applies without one.
    optional: bool,
}

/// Why a rule is violated.
pub(super) struct Broken {
    pub(super) message: String,
    /// Its evaluation failed, so it makes no statement about the field that it names.
    pub(super) fails: bool,
}

/// Separates the rule from the problem if its evaluation failed.
pub const INAPPLICABLE: &str = " cannot be applied: ";

/// Reserved words of CEL that cannot be field names.
const RESERVED: &[&str] = &[
    "as",
    "break",
    "const",
    "continue",
    "else",
    "false",
    "for",
    "function",
    "if",
    "import",
    "in",
    "let",
    "loop",
    "namespace",
    "null",
    "package",
    "return",
    "true",
    "var",
    "void",
    "while",
];

// === impl Rule ===

impl Rule {
    /// Compiles a rule. Fails with the reason if its expression, its message or its field is
    /// invalid.
    pub(super) fn compile(rule: &ValidationRule) -> Result<Rule, String> {
        let expression = Expression::compile(&rule.rule)?;
        let message_expression = rule.message_expression.as_deref().map(Expression::compile).transpose()?;
        let field = rule.field_path.as_deref().unwrap_or_default();
        Ok(Rule {
            is_transition: expression.names("oldSelf"),
            optional: rule.optional_old_self.unwrap_or_default(),
            expression,
            message_expression,
            message: rule.message.clone().filter(|message| !message.trim().is_empty()),
            field: field.split('.').filter(|part| !part.is_empty()).map(str::to_owned).collect(),
        })
    }

    /// Evaluates the rule. `bind` has bound the new and the old value to `self` and `oldSelf`.
    /// Returns the violation, if any.
    pub(super) fn check(&self, this: &CelValue, old: Option<&CelValue>, budget: &Budget) -> Option<Broken> {
        if self.is_transition && old.is_none() && !self.optional || self.expression.foreign().is_some() {
            return None;
        }
        let variables = self.variables(this, old, budget);
        match self.expression.evaluate(&variables) {
            Ok(CelValue::Bool(true)) => None,
            Ok(_) => Some(Broken { message: self.message(&variables), fails: false }),
            Err(problem) => {
                let message = format!("the rule `{}`{INAPPLICABLE}{problem}", self.expression.text());
                Some(Broken { message, fails: true })
            }
        }
    }

    fn variables(&self, this: &CelValue, old: Option<&CelValue>, budget: &Budget) -> Variables {
        let mut variables = Variables::within(budget);
        variables.set("self", this.clone());
        let old = match (self.optional, old) {
            (true, old) => {
                let optional = old.cloned().map_or_else(OptionalValue::none, OptionalValue::of);
                CelValue::Opaque(Arc::new(optional))
            }
            (false, old) => old.cloned().unwrap_or(CelValue::Null),
        };
        variables.set("oldSelf", old);
        variables
    }

    fn message(&self, variables: &Variables) -> String {
        let computed = self.message_expression.as_ref().filter(|program| program.foreign().is_none());
        let computed = computed.and_then(|program| match program.evaluate(variables) {
            Ok(CelValue::String(message)) if !message.trim().is_empty() => Some(message.to_string()),
            _ => None,
        });
        computed
            .or_else(|| self.message.clone())
            .unwrap_or_else(|| format!("the rule `{}` does not hold", self.expression.text()))
    }
}

impl std::fmt::Debug for Rule {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Rule").field(&self.expression.text()).finish()
    }
}

/// Converts a value to CEL as rules see it.
pub(super) fn bind(node: &Node, value: &Value) -> CelValue {
    match value {
        Value::Null => CelValue::Null,
        Value::Bool(flag) => CelValue::Bool(*flag),
        Value::Number(number) => match (node.kind, number.as_i64(), number.as_f64()) {
            (Type::Number, _, Some(float)) | (_, None, Some(float)) => CelValue::Float(float),
            (_, Some(whole), _) => CelValue::Int(whole),
            (_, None, None) => CelValue::Null,
        },
        Value::String(text) => CelValue::String(Arc::new(text.clone())),
        Value::Array(items) => {
            let bound = items.iter().map(|item| node.items.as_deref().map_or(CelValue::Null, |node| bind(node, item)));
            CelValue::List(Arc::new(bound.collect()))
        }
        Value::Object(fields) => {
            let mut bound: HashMap<String, CelValue> = HashMap::new();
            for (name, property) in &node.properties {
                let value = fields.get(name).filter(|value| !value.is_null() || property.nullable);
                if let Some(value) = value.or(property.default.as_ref()) {
                    bound.insert(escape(name), bind(property, value));
                }
            }
            if let Others::Of(of) = &node.others {
                // Keys of a map are data, not field names, so they are not escaped.
                let others = fields.iter().filter(|(name, _)| !node.properties.contains_key(*name));
                bound.extend(others.map(|(name, value)| (name.clone(), bind(of, value))));
            }
            if node.embedded {
                for name in ["apiVersion", "kind"] {
                    if let Some(Value::String(text)) = fields.get(name) {
                        bound.insert(name.to_owned(), CelValue::from(text.as_str()));
                    }
                }
            }
            CelValue::from(bound)
        }
    }
}

/// A field name as rules spell it.
pub fn escape(name: &str) -> String {
    if RESERVED.contains(&name) {
        return format!("__{name}__");
    }
    name.replace("__", "__underscores__").replace('.', "__dot__").replace('-', "__dash__").replace('/', "__slash__")
}

/// The values of the list keys in one item, with defaults.
pub(super) fn key_of<'a>(items: &'a Node, list: &'a List, item: &'a Value) -> Vec<Option<&'a Value>> {
    match list {
        List::Atomic => Vec::new(),
        List::Set => vec![Some(item)],
        List::Map(keys) => keys.iter().map(|key| item.get(key).or_else(|| items.default_of(key))).collect(),
    }
}
