//! Label selectors with the semantics of Kubernetes.
//!
//! [`kube::core::Selector`] matches. This module adds checks of the API server that kube lacks:
//! `In` and `NotIn` need values, `Exists` and `DoesNotExist` take none. The format of keys and
//! values is not checked.

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

#[cfg(test)]
mod tests;
