use super::*;

const TAGS: [&str; 12] = [
    "0.0.3",
    "0.2.5",
    "v1.0.0",
    "1.2.0-rc.1",
    "1.2.0",
    "1.2.9",
    "1.10.0",
    "v2.0.0-alpha",
    "2.0.0",
    "2.1.0-rc.1",
    "latest",
    "v1",
];

#[track_caller]
fn check(range: &str, expected: &str) {
    let range: VersionRange = range.parse().unwrap_or_else(|error| panic!("{range}: {error}"));
    let mut found: Vec<VersionTag> =
        TAGS.iter().filter_map(|name| VersionTag::parse(name)).filter(|tag| range.contains(tag)).collect();
    found.sort();
    assert_eq!(found.iter().map(|tag| tag.name.as_str()).collect::<Vec<_>>().join(" "), expected, "{range}");
}

#[test]
fn a_range_contains_versions_as_for_flux_and_npm() {
    check("*", "0.0.3 0.2.5 v1.0.0 1.2.0 1.2.9 1.10.0 2.0.0");
    check("^1", "v1.0.0 1.2.0 1.2.9 1.10.0");
    check("^1.2", "1.2.0 1.2.9 1.10.0");
    check("~1.2", "1.2.0 1.2.9");
    check("~1", "v1.0.0 1.2.0 1.2.9 1.10.0");
    check("1.2.x", "1.2.0 1.2.9");
    check("1.x", "v1.0.0 1.2.0 1.2.9 1.10.0");
    check("1.2", "1.2.0 1.2.9");
    check("1.2.0", "1.2.0");
    check("=1.2.0", "1.2.0");
    check("v1.2.0", "1.2.0");
    check("^0.2.1", "0.2.5");
    check("^0.0.3", "0.0.3");
    check("^0.0", "0.0.3");
    check(">=1.0.0 <2.0.0", "v1.0.0 1.2.0 1.2.9 1.10.0");
    check(">= 1.2.0, < 1.10", "1.2.0 1.2.9");
    check(">1.2", "1.10.0 2.0.0");
    check("<=1.2", "0.0.3 0.2.5 v1.0.0 1.2.0 1.2.9");
    check(">1.2.0 <=1.10.0", "1.2.9 1.10.0");
    check("0.2.x || ^2", "0.2.5 2.0.0");
    check(">3", "");
}

#[test]
fn a_pre_release_counts_if_a_bound_has_one() {
    check(">=1.2.0-0 <2.0.0", "1.2.0-rc.1 1.2.0 1.2.9 1.10.0");
    check(">=1.0.0-0", "v1.0.0 1.2.0-rc.1 1.2.0 1.2.9 1.10.0 v2.0.0-alpha 2.0.0 2.1.0-rc.1");
    check("^2.0.0-alpha", "v2.0.0-alpha 2.0.0 2.1.0-rc.1");
    check("1.2.0-rc.1", "1.2.0-rc.1");
    check("=1.2.0-v", "");
    check("<2.0.0-beta >1.10.0", "v2.0.0-alpha");
}

#[test]
fn the_highest_version_is_the_greatest_tag() {
    let tag = |name: &str| VersionTag::parse(name).unwrap();
    assert!(tag("v1.10.0") > tag("1.9.0"));
    assert!(tag("1.0.0") > tag("1.0.0-rc.1"));
    assert_eq!([tag("1.0.0"), tag("v1.0.0")].into_iter().max().unwrap().name, "v1.0.0");
    for name in ["", "v", "1", "1.2", "v1.2.3.4", "release-1.2.3", "1.2.3 "] {
        assert_eq!(VersionTag::parse(name), None, "{name}");
    }
}

#[test]
fn what_is_not_a_range_is_refused() {
    for text in ["", " ", "||", "^1 ||", "newest", ">=", "1.2.3.4", "^1.x.3y", &"1 ".repeat(33)] {
        assert_eq!(text.parse::<VersionRange>(), Err(ParseRangeError), "{text}");
    }
    let range: VersionRange = ">=1.0.0 <2.0.0".parse().unwrap();
    let json = serde_json::to_string(&range).unwrap();
    assert_eq!((json.as_str(), serde_json::from_str(&json).ok()), ("\">=1.0.0 <2.0.0\"", Some(range)));
}
