//! Label selectors, as Kubernetes reads them.
//!
//! [`kube::core::Selector`] matches. What is added here is what the API server checks and kube does not: `In` and
//! `NotIn` need values, `Exists` and `DoesNotExist` take none. The format of keys and values is not checked.

use kube::core::Selector;

use crate::api::shared::{LabelSelector, LabelSelectorRequirement};

/// The selector as kube matches it; `None` if Kubernetes refuses it, so that it matches nothing.
pub fn parse(selector: &LabelSelector) -> Option<Selector> {
    let is_valid = selector.match_expressions.iter().flatten().all(has_fitting_values);
    if is_valid { Selector::try_from(selector.clone()).ok() } else { None }
}

/// Without this, kube takes `NotIn` with an empty list for a requirement that everything meets.
fn has_fitting_values(requirement: &LabelSelectorRequirement) -> bool {
    let is_empty = requirement.values.as_ref().is_none_or(Vec::is_empty);
    match requirement.operator.as_str() {
        "In" | "NotIn" => !is_empty,
        "Exists" | "DoesNotExist" => is_empty,
        _ => false,
    }
}

#[cfg(test)]
mod tests;
