//! Label selectors, as Kubernetes reads them.

use std::collections::BTreeMap;

use crate::api::shared::LabelSelector;

/// Whether a selector matches labels. An empty one matches everything; an unknown operator matches nothing.
pub fn matches(selector: &LabelSelector, labels: &BTreeMap<String, String>) -> bool {
    let equal = selector.match_labels.iter().flatten().all(|(key, value)| labels.get(key) == Some(value));
    let expressed = selector.match_expressions.iter().flatten().all(|requirement| {
        let value = labels.get(&requirement.key);
        let listed =
            |value: &String| requirement.values.as_ref().is_some_and(|values| values.iter().any(|v| v == value));
        match requirement.operator.as_str() {
            "In" => value.is_some_and(listed),
            "NotIn" => !value.is_some_and(listed),
            "Exists" => value.is_some(),
            "DoesNotExist" => value.is_none(),
            _ => false,
        }
    });
    equal && expressed
}

/// Whether a selector has no requirement at all.
pub fn is_empty(selector: &LabelSelector) -> bool {
    selector.match_labels.as_ref().is_none_or(BTreeMap::is_empty)
        && selector.match_expressions.as_ref().is_none_or(Vec::is_empty)
}
