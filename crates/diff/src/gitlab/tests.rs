use super::*;
use crate::fixture;

#[test]
fn one_of_everything() {
    insta::assert_snapshot!(gitlab(&fixture::report(), ""));
}

#[test]
fn every_entry_has_what_gitlab_asks_for() {
    let value: Value = serde_json::from_str(&gitlab(&fixture::nasty(), "")).unwrap();
    for entry in value.as_array().unwrap() {
        let text = |pointer: &str| entry.pointer(pointer).and_then(Value::as_str).is_some_and(|text| !text.is_empty());
        assert!(text("/description") && text("/check_name") && text("/fingerprint") && text("/location/path"));
        assert!(entry["location"]["lines"]["begin"].as_u64().unwrap() > 0);
        assert!(["info", "major", "critical"].contains(&entry["severity"].as_str().unwrap()));
    }
}
