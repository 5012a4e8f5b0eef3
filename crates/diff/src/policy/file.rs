//! The file with CEL rules.
//!
//! It is a list of mappings. Every error is one sentence with its line: a rule that is silently
//! misread protects nothing.

use std::collections::BTreeSet;

use super::{Match, Policies, Policy};
use tidegate_core::{
    diagnostic::Severity,
    schema::expression::Expression,
    yaml::{self, Entry, Node, NodeValue},
};

use crate::model::{Action, Side};

/// Why a rule file is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{line}:{column}: {message}")]
pub struct FileError {
    /// Line, from 1.
    pub line: u32,
    /// Column in characters, from 1; 0 if only the line is known.
    pub column: u32,
    /// One sentence.
    pub message: String,
}

/// The variables that a rule sees.
const VARIABLES: [&str; 7] = ["old", "new", "object", "runtime", "action", "catalog", "bookkeeping"];
/// The names of types, which are CEL values.
const TYPES: [&str; 10] = ["bool", "bytes", "double", "int", "list", "map", "null_type", "string", "type", "uint"];
/// Maximum number of rules in a file: each is evaluated for each difference.
const RULES_MAX: usize = 1_000;

/// The error for a file without rules.
const NO_RULES: &str = "the file has no rules: add one, or omit the option";

/// Parses rules. A file without rules is an error, because it protects nothing.
///
/// # Errors
///
/// Fails at the first error.
pub fn parse(text: &str) -> Result<Policies, FileError> {
    let documents = yaml::parse(text, &yaml::Limits::default()).map_err(|error| FileError {
        line: error.line,
        column: error.column,
        message: error.message,
    })?;
    let root = match documents.as_slice() {
        [] => return Err(FileError { line: 1, column: 1, message: NO_RULES.to_owned() }),
        [root] => root,
        [_, second, ..] => return Err(at(second, "the file must contain one document: a list of rules")),
    };
    let items = match &root.value {
        NodeValue::Seq(items) if !items.is_empty() => items.as_slice(),
        NodeValue::Null | NodeValue::Seq(_) => return Err(at(root, NO_RULES)),
        _ => return Err(at(root, "the file must be a list of rules")),
    };
    if let Some(first) = items.get(RULES_MAX) {
        return Err(at(first, format!("the file has more than {RULES_MAX} rules")));
    }
    let mut names = BTreeSet::new();
    let mut rules = Vec::with_capacity(items.len());
    for item in items {
        let policy = policy(item)?;
        if !names.insert(policy.name.clone()) {
            return Err(at(item, format!("two rules are named `{}`", yaml::short(&policy.name))));
        }
        rules.push(policy);
    }
    rules.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(Policies { rules })
}

fn policy(item: &Node) -> Result<Policy, FileError> {
    let entries = entries(item, &["name", "severity", "message", "messageExpression", "match", "rule"], "a rule")?;
    let mut name = None;
    let mut severity = Severity::Error;
    let mut message = None;
    let mut message_expression = None;
    let mut matches = Match::default();
    let mut rule = None;
    for Entry { key, value, .. } in entries {
        match key.as_str() {
            "name" => name = Some(text(value, key)?.to_owned()),
            "severity" => {
                severity = one_of(value, key, &[("error", Severity::Error), ("warning", Severity::Warning)])?;
            }
            "message" => message = Some(text(value, key)?.to_owned()),
            "messageExpression" => message_expression = Some(expression(value, key)?),
            "match" => matches = self::matches(value)?,
            "rule" => rule = Some(expression(value, key)?),
            _ => {}
        }
    }
    let name = name.ok_or_else(|| at(item, "a rule must have a `name`"))?;
    let rule = rule.ok_or_else(|| at(item, format!("the rule `{}` has no `rule`", yaml::short(&name))))?;
    Ok(Policy { name, severity, message, message_expression, matches, rule })
}

fn matches(node: &Node) -> Result<Match, FileError> {
    const TARGETS: [(&str, Side); 2] = [("kcp", Side::ControlPlane), ("runtime", Side::Runtime)];
    const ACTIONS: [Action; 6] =
        [Action::Create, Action::Change, Action::Delete, Action::Recreate, Action::Refuse, Action::Conflict];
    let actions = ACTIONS.map(|action| (action.as_str(), action));
    let mut matches = Match::default();
    for Entry { key, value, .. } in entries(node, &["kinds", "targets", "actions"], "`match`")? {
        match key.as_str() {
            "kinds" => matches.kinds = list(value, key, |item| Ok(text(item, "kinds")?.to_owned()))?,
            "targets" => matches.targets = list(value, key, |item| one_of(item, "targets", &TARGETS))?,
            "actions" => matches.actions = list(value, key, |item| one_of(item, "actions", &actions))?,
            _ => {}
        }
    }
    Ok(matches)
}

fn entries<'a>(node: &'a Node, known: &[&str], what: &str) -> Result<&'a [Entry], FileError> {
    let NodeValue::Map(entries) = &node.value else { return Err(at(node, format!("{what} must be a mapping"))) };
    match entries.iter().find(|entry| !known.contains(&entry.key.as_str())) {
        None => Ok(entries),
        Some(entry) => Err(FileError {
            line: entry.key_line,
            column: entry.key_column,
            message: format!("{what} has no `{}`; use {}", yaml::short(&entry.key), known.join(", ")),
        }),
    }
}

fn list<T>(node: &Node, key: &str, item: impl Fn(&Node) -> Result<T, FileError>) -> Result<Vec<T>, FileError> {
    match &node.value {
        NodeValue::Seq(items) if !items.is_empty() => items.iter().map(item).collect(),
        _ => Err(at(node, format!("`{key}` must be a non-empty list"))),
    }
}

fn one_of<T: Copy>(node: &Node, key: &str, known: &[(&str, T)]) -> Result<T, FileError> {
    let found = text(node, key)?;
    known.iter().find(|(name, _)| *name == found).map(|(_, value)| *value).ok_or_else(|| {
        let names: Vec<&str> = known.iter().map(|(name, _)| *name).collect();
        at(node, format!("`{key}` cannot be `{}`; use {}", yaml::short(found), names.join(", ")))
    })
}

fn text<'a>(node: &'a Node, key: &str) -> Result<&'a str, FileError> {
    let found = node.as_str().filter(|text| !text.trim().is_empty());
    found.ok_or_else(|| at(node, format!("`{key}` must be a non-empty string")))
}

fn expression(node: &Node, key: &str) -> Result<Expression, FileError> {
    let source = text(node, key)?;
    let compiled = Expression::compile(source).map_err(|message| at(node, format!("`{key}`: {message}")))?;
    if let Some(foreign) = compiled.foreign() {
        return Err(at(node, format!("`{key}`: the function `{foreign}` is not supported")));
    }
    let unknown = |name: &&String| !VARIABLES.contains(&name.as_str()) && !TYPES.contains(&name.as_str());
    match compiled.variables().iter().find(unknown).map(|name| yaml::short(name)) {
        None => Ok(compiled),
        Some(name) => {
            let known = VARIABLES.join(", ");
            Err(at(node, format!("`{key}` uses `{name}`, which does not exist in rules; use {known}")))
        }
    }
}

fn at(node: &Node, message: impl Into<String>) -> FileError {
    FileError { line: node.line, column: node.column, message: message.into() }
}
