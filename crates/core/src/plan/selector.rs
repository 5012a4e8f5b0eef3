//! Label selectors with the semantics of Kubernetes.
//!
//! [`kube::core::Selector`] matches. This module adds checks of the API server that kube lacks:
//! `In` and `NotIn` need values, `Exists` and `DoesNotExist` take none. The format of keys and
//! values is not checked.
//!
//! [`read`] reads selectors as kubectl does: `stage=canary,region in (eu, us),!frozen`.

use kube::core::Selector;

use crate::api::shared::{LabelSelector, LabelSelectorRequirement};

/// The selector for kube. `None` if Kubernetes rejects it, so that it matches nothing.
pub fn parse(selector: &LabelSelector) -> Option<Selector> {
    let is_valid = selector.match_expressions.iter().flatten().all(has_fitting_values);
    if is_valid { Selector::try_from(selector.clone()).ok() } else { None }
}

/// Otherwise kube treats `NotIn` with an empty list as a requirement that every object meets.
fn has_fitting_values(requirement: &LabelSelectorRequirement) -> bool {
    let is_empty = requirement.values.as_ref().is_none_or(Vec::is_empty);
    match requirement.operator.as_str() {
        "In" | "NotIn" => !is_empty,
        "Exists" | "DoesNotExist" => is_empty,
        _ => false,
    }
}

/// Reads a selector in the syntax of kubectl.
///
/// # Errors
///
/// Fails with one sentence.
pub fn read(text: &str) -> Result<Selector, String> {
    let requirements = split(text);
    let requirements = requirements.iter().map(|text| text.trim()).map(requirement).collect::<Result<Vec<_>, _>>()?;
    let selector = LabelSelector { match_expressions: Some(requirements), match_labels: None };
    parse(&selector).ok_or_else(|| format!("`{text}` is not a label selector"))
}

/// The requirements of a selector: what commas separate outside of parentheses.
fn split(text: &str) -> Vec<&str> {
    let (mut depth, mut start, mut parts) = (0_usize, 0, Vec::new());
    for (at, c) in text.char_indices() {
        match c {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                parts.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&text[start..]);
    parts
}

fn requirement(text: &str) -> Result<LabelSelectorRequirement, String> {
    let is_key = |c: char| c.is_ascii_alphanumeric() || ['.', '_', '-', '/'].contains(&c);
    let problem = || format!("`{text}` is not a requirement: use for example stage=canary or region in (eu, us)");
    let (is_negated, rest) = text.strip_prefix('!').map_or((false, text), |rest| (true, rest));
    let end = rest.find(|c| !is_key(c)).unwrap_or(rest.len());
    let (key, rest) = (&rest[..end], rest[end..].trim());
    let (operator, values) = match (is_negated, rest) {
        (true, "") => ("DoesNotExist", None),
        (false, "") => ("Exists", None),
        (true, _) => return Err(problem()),
        (false, rest) => {
            let (operator, values) = [("==", "In"), ("=", "In"), ("!=", "NotIn"), ("in", "In"), ("notin", "NotIn")]
                .into_iter()
                .find_map(|(sign, operator)| Some((operator, (sign, rest.strip_prefix(sign)?.trim()))))
                .ok_or_else(problem)?;
            (operator, Some(values_of(values).ok_or_else(problem)?))
        }
    };
    if key.is_empty() {
        return Err(problem());
    }
    Ok(LabelSelectorRequirement { key: key.to_owned(), operator: operator.to_owned(), values })
}

/// The values after a sign: one after `=`, a list in parentheses after a word.
fn values_of((sign, text): (&str, &str)) -> Option<Vec<String>> {
    let is_value = |value: &&str| value.chars().all(|c| c.is_ascii_alphanumeric() || ['.', '_', '-'].contains(&c));
    let values: Vec<&str> = if sign.ends_with("in") {
        text.strip_prefix('(')?.strip_suffix(')')?.split(',').map(str::trim).collect()
    } else {
        vec![text]
    };
    values.iter().all(is_value).then(|| values.into_iter().map(str::to_owned).collect())
}

#[cfg(test)]
mod tests;
