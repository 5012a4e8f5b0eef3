use super::*;

/// Days, and a window that passes midnight on a clock behind UTC.
const POLICY: &str = r#"{
  "rules": [
    {"match": {"plan": "trial|free"},
     "windows": [{"days": ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"], "begin": "01:00:00Z", "end": "01:00:00Z"}]},
    {"match": {"region": "^eu-", "globalAccountId": "special"},
     "windows": [
       {"days": ["Sat"], "begin": "21:00:00+00:00", "end": "03:00:00+00:00"},
       {"days": ["Wed"], "begin": "12:00:00Z", "end": "12:10:00Z"}
     ]},
    {"match": {"region": "eu-west"},
     "windows": [{"days": ["Mon"], "begin": "00:00:00Z", "end": "23:00:00Z"}]},
    {"match": {"region": "us-"},
     "windows": [{"days": ["Sun"], "begin": "22:00:00-08:00", "end": "02:00:00-08:00"}]},
    {"match": {"platformRegion": "cf-jp"},
     "windows": [
       {"begin": "2026-12-18T20:00:00Z", "end": "2026-12-19T00:00:00Z"},
       {"begin": "2026-10-10T20:00:00Z", "end": "2026-10-11T00:00:00+09:00"},
       {"begin": "2026-10-10T20:00:00+02:00", "end": "2026-10-11T00:00:00+02:00"}
     ]}
  ],
  "default": {"days": ["Thu"], "begin": "20:00:00Z", "end": "22:00:00Z"}
}"#;

fn labels(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(key, value)| (format!("kyma-project.io/{key}"), (*value).to_owned())).collect()
}

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

/// The standing in one word: `open`, `never`, or the next begin.
fn word(policy: &Policy, runtime: &[(&str, &str)], now: &str, minutes: u64) -> String {
    match policy.standing(&labels(runtime), at(now), Duration::from_secs(60 * minutes)) {
        WindowState::Open => "open".to_owned(),
        WindowState::Closed { next } => next.to_string(),
        WindowState::Never => "never".to_owned(),
    }
}

#[test]
fn the_first_rule_that_matches_decides_and_then_the_default() {
    let policy = Policy::parse(POLICY).unwrap();
    // 2026-11-22 is a Sunday.
    let now = "2026-11-22T12:00:00Z";
    for (runtime, expected) in [
        // Every day all day, with one hole: the window that ends is followed by the one that begins.
        (&[("broker-plan-name", "free")][..], "open"),
        (&[("broker-plan-name", "azure-free-tier"), ("region", "eu-central-1")], "open"),
        // Any expression is enough, and finds its text anywhere.
        (&[("region", "eu-central-1")], "2026-11-28T21:00:00Z"),
        (&[("global-account-id", "a-special-one")], "2026-11-28T21:00:00Z"),
        // The third rule matches too, but only the first one that matches counts.
        (&[("region", "eu-west-1")], "2026-11-28T21:00:00Z"),
        // Unless the expression says where.
        (&[("region", "not-eu-west-1")], "2026-11-23T00:00:00Z"),
        (&[("region", "us-east-1")], "2026-11-23T06:00:00Z"),
        (&[("platform-region", "cf-jp10")], "2026-12-18T20:00:00Z"),
        // No rule matches: the default. An empty label matches nothing.
        (&[], "2026-11-26T20:00:00Z"),
        (&[("region", "")], "2026-11-26T20:00:00Z"),
        (&[("region", "mars")], "2026-11-26T20:00:00Z"),
        (&[("shoot-name", "free")], "2026-11-26T20:00:00Z"),
    ] {
        assert_eq!(word(&policy, runtime, now, 20), expected, "{runtime:?}");
    }
}

#[test]
fn a_window_is_open_after_its_begin_and_until_the_minimum_is_left() {
    let policy = Policy::parse(POLICY).unwrap();
    let thursday = |time: &str, minutes: u64| word(&policy, &[], &format!("2026-11-26T{time}Z"), minutes);
    assert_eq!(thursday("19:59:59", 20), "2026-11-26T20:00:00Z");
    assert_eq!(thursday("20:00:00", 20), "2026-11-26T20:00:00Z", "begin < now");
    assert_eq!(thursday("20:00:01", 20), "open");
    assert_eq!(thursday("21:39:59", 20), "open");
    assert_eq!(thursday("21:40:00", 20), "2026-12-03T20:00:00Z", "now + size < end");
    assert_eq!(thursday("21:59:59", 0), "open");
    assert_eq!(thursday("22:00:00", 0), "2026-12-03T20:00:00Z");
    assert_eq!(thursday("20:00:01", 120), "never", "a window that is too short is never open");
}

#[test]
fn a_window_past_midnight_ends_the_next_day() {
    let policy = Policy::parse(POLICY).unwrap();
    for (runtime, now, expected) in [
        (("region", "eu-1"), "2026-11-28T20:59:00Z", "2026-11-28T21:00:00Z"),
        (("region", "eu-1"), "2026-11-28T23:59:00Z", "open"),
        (("region", "eu-1"), "2026-11-29T00:01:00Z", "open"),
        (("region", "eu-1"), "2026-11-29T02:39:59Z", "open"),
        (("region", "eu-1"), "2026-11-29T02:40:00Z", "2026-12-05T21:00:00Z"),
        // Sunday 22:00 at -08:00 is Monday 06:00 in UTC.
        (("region", "us-1"), "2026-11-22T23:00:00Z", "2026-11-23T06:00:00Z"),
        (("region", "us-1"), "2026-11-23T06:30:00Z", "open"),
        (("region", "us-1"), "2026-11-23T09:30:00Z", "open"),
        (("region", "us-1"), "2026-11-23T09:40:00Z", "2026-11-30T06:00:00Z"),
        // The same time twice is a whole day.
        (("broker-plan-name", "trial"), "2026-11-23T00:50:00Z", "2026-11-23T01:00:00Z"),
        (("broker-plan-name", "trial"), "2026-11-23T00:30:00Z", "open"),
        (("broker-plan-name", "trial"), "2026-11-23T01:00:01Z", "open"),
    ] {
        assert_eq!(word(&policy, &[runtime], now, 20), expected, "{runtime:?} at {now}");
    }
}

#[test]
fn windows_with_dates_are_used_up_and_then_the_default_counts() {
    let policy = Policy::parse(POLICY).unwrap();
    for (now, expected) in [
        ("2026-10-01T00:00:00Z", "2026-10-10T18:00:00Z"),
        // 20:30 at +02:00, in the third window of the list.
        ("2026-10-10T18:30:00Z", "open"),
        ("2026-10-10T21:30:00Z", "open"),
        ("2026-10-10T21:50:00Z", "2026-12-18T20:00:00Z"),
        ("2026-12-18T23:30:00Z", "open"),
        // Saturday: the default is Thursday's.
        ("2026-12-19T00:00:00Z", "2026-12-24T20:00:00Z"),
    ] {
        assert_eq!(word(&policy, &[("platform-region", "cf-jp10")], now, 20), expected, "at {now}");
    }
    let policy = Policy::parse(r#"{"rules": [{"match": {"plan": "a"}, "windows": []}]}"#).unwrap();
    assert_eq!(word(&policy, &[("broker-plan-name", "a")], "2026-11-22T00:00:00Z", 20), "never");
    assert_eq!(word(&Policy::parse("{}").unwrap(), &[], "2026-11-22T00:00:00Z", 20), "never");
}

#[test]
fn a_policy_may_be_yaml_and_its_keys_have_any_case() {
    let yaml = "RULES:\n- Match: {GlobalAccountId: one, PLAN: ''}\n  Windows:\n  - {DAYS: [Sat], begin: 20:00:00Z, \
                End: 00:00:00+00:00}\nDefault: {Begin: 2026-10-10T20:00:00Z, end: 2026-10-11T00:00:00Z}\n";
    let policy = Policy::parse(yaml).unwrap();
    assert_eq!(policy.remarks(), []);
    let now = "2026-10-10T22:00:00Z";
    assert_eq!(word(&policy, &[("global-account-id", "one")], now, 20), "open");
    assert_eq!(word(&policy, &[], now, 20), "open");
    assert_eq!(word(&policy, &[("broker-plan-name", "anything")], "2026-10-09T22:00:00Z", 20), "2026-10-10T20:00:00Z");
}

/// The lines of what is wrong, or of what is suspicious.
fn said(text: &str) -> String {
    match Policy::parse(text) {
        Ok(policy) => policy.remarks().iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"),
        Err(problem) => format!("refused: {problem}"),
    }
}

#[test]
fn what_is_wrong_is_one_sentence_with_its_line() {
    let rule = |rest: &str| format!("rules:\n- match: {{plan: a}}\n  windows:\n  - {rest}\n");
    for (text, expected) in [
        ("[]".to_owned(), "refused: line 1: the policy must be a mapping with `rules`, `default`"),
        (String::new(), "refused: line 1: the file has 0 documents: a policy is one mapping"),
        ("rules: {}".to_owned(), "refused: line 1: `rules` must be a list"),
        (
            "rules:\n- windows: []".to_owned(),
            "refused: line 2: rule 1: the rule has no `match`: name at least one expression",
        ),
        (
            "rules:\n- match: {plan: '('}".to_owned(),
            "refused: line 2: rule 1: `plan` is not a valid regular expression, or too large",
        ),
        (
            "rules:\n- match: {plan: 'a{1000}{1000}'}".to_owned(),
            "refused: line 2: rule 1: `plan` is not a valid regular expression, or too large",
        ),
        ("rules:\n- match: {plan: 1}".to_owned(), "refused: line 2: rule 1: `plan` must be text, in quotes"),
        ("rules:\n- match: {plan: a, Plan: b}".to_owned(), "refused: line 2: rule 1: `match` has the key `plan` twice"),
        (
            rule("{days: [Monday], begin: 20:00:00Z, end: 21:00:00Z}"),
            "refused: line 4: rule 1: invalid day in `days`: use Mon, Tue, Wed, Thu, Fri, Sat or Sun",
        ),
        (rule("{days: [Mon], begin: 20:00:00Z}"), "refused: line 4: rule 1: the window has no `end`"),
        (
            rule("{days: [Mon], begin: '20:00', end: 21:00:00Z}"),
            "refused: line 4: rule 1: invalid time in `begin`: use for example 20:00:00Z or 20:00:00+02:00",
        ),
        (
            rule("{days: [Mon], begin: 24:00:00Z, end: 21:00:00Z}"),
            "refused: line 4: rule 1: invalid time in `begin`: use for example 20:00:00Z or 20:00:00+02:00",
        ),
        (
            rule("{begin: 2026-13-01T00:00:00Z, end: 2026-10-11T00:00:00Z}"),
            "refused: line 4: rule 1: invalid time in `begin`: use for example 2026-10-10T20:00:00Z",
        ),
        (
            rule("{begin: 20:00:00Z, end: 21:00:00Z}"),
            "refused: line 4: rule 1: `begin` has no date, and the window has no `days`: use for example \
             2026-10-10T20:00:00Z",
        ),
        (
            rule("{begin: 2026-10-12T00:00:00Z, end: 2026-10-11T00:00:00Z}"),
            "line 4: rule 1: the window ends before it begins, so it is never open",
        ),
        (
            "default: {days: [Sat], timeBegin: 20:00:00Z, timeEnd: 00:00:00Z}".to_owned(),
            "refused: line 1: the window has no `begin`",
        ),
        ("rules:\n- match: {}\n".to_owned(), "line 2: rule 1: the rule has no expression, so it matches no runtime"),
        (
            "rules:\n- match: {region: central│us}\n".to_owned(),
            "line 2: rule 1: `region` has the character │, which is not the `|` of an alternative",
        ),
        (
            r#"{"rules": [{"match": {"plan": "a"}}, {"match": {"plan": "b"}, "windows": [{"days": ["Sat"]}]}]}"#
                .to_owned(),
            "refused: line 1: rule 2: the window has no `begin`",
        ),
        (
            r#"{"rules": [{"match": {"plan": "a"}}, {"match": {"plan": "b"}, "days": []}, {"match": {}}]}"#.to_owned(),
            "line 1: rule 2: a rule has a key that means nothing here; known are `match`, `windows`\n\
             line 1: rule 3: the rule has no expression, so it matches no runtime",
        ),
        ("comment: a".to_owned(), "line 1: the policy has a key that means nothing here; known are `rules`, `default`"),
    ] {
        assert_eq!(said(&text), expected, "{text}");
    }
    assert!(said("{\n\"rules\": [\n").starts_with("refused: line "), "{}", said("{\n\"rules\": [\n"));
}

/// With days, a date in begin or end does not matter, as for Lifecycle Manager.
#[test]
fn a_date_of_a_weekly_window_is_ignored() {
    let policy = "default: {days: [Sat], begin: 2024-10-10T20:00:00Z, end: 2024-10-10T22:00:00Z}";
    assert_eq!(word(&Policy::parse(policy).unwrap(), &[], "2026-11-22T00:00:00Z", 20), "2026-11-28T20:00:00Z");
}
