// SPDX-License-Identifier: Apache-2.0

use serde_json::json;

use super::*;

fn wants(selector: &str, labels: &[(&str, &str)]) -> bool {
    let of = |key: &str| labels.iter().find(|(name, _)| *name == key).map(|(_, value)| *value);
    Labels::parse(selector).unwrap().matches(of)
}

#[test]
fn labels_are_compared_as_texts_and_numbers() {
    let labels = [("app", "one"), ("n", "5")];
    for selector in ["", "app", "app=one", "app in (one, two)", "app!=two", "!other", "n>4,n<6", "other notin (a)"] {
        assert!(wants(selector, &labels), "{selector}");
    }
    for selector in ["!app", "app=two", "app notin (one)", "n>5", "app>1", "other", "other in (a)"] {
        assert!(!wants(selector, &labels), "{selector}");
    }
}

#[test]
fn selectors_of_objects_mean_the_same() {
    let selector = Labels::of_object(&json!({
        "matchLabels": {"app": "one"},
        "matchExpressions": [{"key": "n", "operator": "Exists"}, {"key": "x", "operator": "DoesNotExist"}],
    }));
    assert!(selector.matches(|key| (key != "x").then_some("one")));
    assert!(!selector.matches(|_| Some("one")));
    assert!(Labels::of_object(&json!(null)).is_empty());
}

#[test]
fn fields_may_hold_escaped_signs() {
    let fields = Fields::parse(r"metadata.name=a\,b,type!=c").unwrap();
    let terms: Vec<_> = fields.0.iter().map(|term| (&*term.path, &*term.value, term.equal)).collect();
    assert_eq!(terms, [("metadata.name", "a,b", true), ("type", "c", false)]);
    assert!(Fields::parse("foo").is_err());
}
