// SPDX-License-Identifier: Apache-2.0

//! The JSONPath of printer columns: fields, positions, and filters that compare one field with a text.

use serde_json::Value;

/// The first value at a path such as `.status.conditions[?(@.type=="Ready")].status`.
pub(super) fn evaluate(path: &str, object: &Value) -> Option<Value> {
    let mut rest = path.trim().trim_start_matches('{').trim_end_matches('}').trim_start_matches('$');
    let mut found: Vec<&Value> = vec![object];
    while !rest.is_empty() {
        let (step, after) = next(rest)?;
        found = found.into_iter().flat_map(|value| step.select(value)).collect();
        rest = after;
    }
    found.into_iter().find(|value| !value.is_null()).cloned()
}

enum Step<'a> {
    Field(&'a str),
    Index(usize),
    All,
    /// Items whose field is this text.
    Where(Vec<&'a str>, &'a str),
}

/// The first step of a path, and the rest.
fn next(path: &str) -> Option<(Step<'_>, &str)> {
    if let Some(rest) = path.strip_prefix('[') {
        if let Some(filter) = rest.strip_prefix("?(") {
            let (filter, rest) = filter.split_once(")]")?;
            let (field, value) = filter.split_once("==")?;
            let field = field.trim().strip_prefix("@.")?.split('.').collect();
            return Some((Step::Where(field, value.trim().trim_matches(['"', '\''])), rest));
        }
        let (inside, rest) = rest.split_once(']')?;
        let step = match inside.trim() {
            "*" => Step::All,
            text => match text.parse() {
                Ok(index) => Step::Index(index),
                Err(_) => Step::Field(text.trim_matches(['"', '\''])),
            },
        };
        return Some((step, rest));
    }
    let rest = path.strip_prefix('.').unwrap_or(path);
    let mut end = rest.len();
    let mut escaped = false;
    for (index, c) in rest.char_indices() {
        if matches!(c, '.' | '[') && !escaped {
            end = index;
            break;
        }
        escaped = c == '\\';
    }
    (end > 0).then(|| (Step::Field(&rest[..end]), &rest[end..]))
}

impl Step<'_> {
    fn select<'v>(&self, value: &'v Value) -> Vec<&'v Value> {
        match self {
            // A dot in a name is escaped.
            Step::Field(name) => value.get(name.replace('\\', "")).into_iter().collect(),
            Step::Index(index) => value.get(index).into_iter().collect(),
            Step::All => value.as_array().into_iter().flatten().collect(),
            Step::Where(field, wanted) => {
                let is_it = |item: &&Value| {
                    field.iter().try_fold(*item, |value, part| value.get(part)).and_then(Value::as_str) == Some(*wanted)
                };
                value.as_array().into_iter().flatten().filter(is_it).collect()
            }
        }
    }
}
