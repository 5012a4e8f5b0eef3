// SPDX-License-Identifier: Apache-2.0

use super::*;

#[test]
fn ages_have_the_units_that_people_read() {
    let expected = [(0, "0s"), (119, "119s"), (125, "2m5s"), (600, "10m"), (3_600, "60m"), (3 * 3_600 + 60, "3h1m")];
    for (seconds, text) in expected {
        assert_eq!(duration(seconds), text);
    }
    assert_eq!((duration(10 * 3_600), duration(3 * 86_400 + 3_600)), ("10h".to_owned(), "3d1h".to_owned()));
    assert_eq!((duration(400 * 86_400), duration(1_000 * 86_400)), ("400d".to_owned(), "2y270d".to_owned()));
}

#[test]
fn paths_go_through_fields_positions_and_filters() {
    let object = json!({
        "metadata": {"labels": {"a.b/c": "x"}},
        "status": {"conditions": [{"type": "A", "status": "False"}, {"type": "Ready", "status": "True"}]},
    });
    let found = |path: &str| evaluate(path, &object);
    assert_eq!(found(".status.conditions[?(@.type==\"Ready\")].status"), Some(json!("True")));
    assert_eq!(found(".status.conditions[0].type"), Some(json!("A")));
    assert_eq!(found(".metadata.labels.a\\.b/c"), Some(json!("x")));
    assert_eq!(found(".status.conditions[*].type"), Some(json!("A")));
    assert_eq!(found(".status.none"), None);
    assert_eq!(found(".status.conditions[?(@.type"), None);
}
