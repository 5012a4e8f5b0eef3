use super::*;

#[track_caller]
fn check(path: &str, expected: Option<&str>) {
    let found = Manager::of_path(path).map(|manager| manager.event_path("v2"));
    assert_eq!(found.as_deref(), expected, "{path}");
}

#[test]
fn row_7_the_manager_is_the_rest_of_the_path() {
    check("/validate/lifecycle-manager", Some("/v2/lifecycle-manager/event"));
    check("/validate/a/b", Some("/v2/a/b/event"));
    check("/validate/a%2Fb", Some("/v2/a/b/event"));
}

#[test]
fn row_7_white_space_ends_it() {
    check("/validate/a%20b", Some("/v2/a/event"));
    check("/validate/a%0Ab", Some("/v2/a/event"));
    check("/validate/a%C2%A0b", Some("/v2/a/event"));
}

#[test]
fn row_12_no_manager_is_no_path() {
    check("/validate/", None);
    check("/validate", None);
    check("/validate/%20a", None);
}

#[test]
fn row_8_other_paths_are_none() {
    for path in ["/", "/metrics", "/healthz", "/Validate/a", "validate/a", "*", "//validate/a"] {
        check(path, None);
    }
}

#[test]
fn path_tricks_are_no_manager() {
    for path in [
        "/validate/../metrics",
        "/validate/%2e%2e/metrics",
        "/validate/a/../b",
        "/validate/./a",
        "/validate/a//b",
        "/validate/a/",
        "/validate//a",
        "/validate/a%00",
        "/validate/a%1Fb",
        "/validate/a%2",
        "/validate/a%zz",
        "/validate/a%+1",
        "/validate/%ff",
    ] {
        check(path, None);
    }
    check(&format!("/validate/{}", "a".repeat(257)), None);
    check(&format!("/validate/{}", "a".repeat(256)), Some(&format!("/v2/{}/event", "a".repeat(256))));
}

#[test]
fn what_a_path_cannot_hold_is_encoded_again() {
    check("/validate/a%3Fb%23c%25d%22", Some("/v2/a%3Fb%23c%25d%22/event"));
    check("/validate/%C3%A4", Some("/v2/%C3%A4/event"));
}
