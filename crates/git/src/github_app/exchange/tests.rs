use std::time::Duration;

use super::*;

fn headers(given: &[(&'static str, &str)]) -> HeaderMap {
    given.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect()
}

/// 2026-11-25T12:00:00Z.
fn now() -> Timestamp {
    Timestamp::from_second(1_795_608_000).unwrap()
}

#[test]
fn a_wait_is_what_the_api_asks_for_within_an_hour() {
    let seconds = |given: &[(&'static str, &str)]| wait(&headers(given), now()).map(|wait| wait.as_secs());
    assert_eq!(seconds(&[]), None);
    assert_eq!(seconds(&[("retry-after", "60"), ("x-ratelimit-reset", "1795608900")]), Some(60));
    assert_eq!(seconds(&[("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", "1795608900")]), Some(900));
    assert_eq!(seconds(&[("x-ratelimit-remaining", "7"), ("x-ratelimit-reset", "1795608900")]), None);
    assert_eq!(seconds(&[("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", "99999999999")]), Some(3600));
    for passed in ["1795607000", "-9223372036854775808", "x"] {
        assert_eq!(seconds(&[("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", passed)]), None, "{passed}");
    }
    assert_eq!(wait(&headers(&[("retry-after", "99999999999")]), now()), Some(Duration::from_secs(3600)));
}

#[test]
fn a_jwt_is_rejected_for_the_clock_only_if_the_clocks_differ() {
    let why = |date: &str| problem(401, &headers(&[("date", date)]), Question::Token("1"), now());
    assert_eq!(why("Wed, 25 Nov 2026 12:00:54 GMT"), AppProblem::Signature);
    assert_eq!(why("Wed, 25 Nov 2026 11:59:00 GMT"), AppProblem::Clock { seconds: 60 });
    assert_eq!(why("Wed, 25 Nov 2026 12:09:00 GMT"), AppProblem::Clock { seconds: 540 });
    assert_eq!(why("yesterday"), AppProblem::Signature);
    assert_eq!(problem(401, &headers(&[]), Question::Owner("a"), now()), AppProblem::Signature);
}
