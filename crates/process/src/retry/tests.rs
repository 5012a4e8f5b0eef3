use super::*;

#[test]
fn transient_delays_double_up_to_a_limit() {
    let delays: Vec<u128> =
        (1..=10).map(|attempt| delay(Class::Transient, attempt, Duration::from_secs(600)).as_millis()).collect();
    assert_eq!(delays, [500, 1000, 2000, 4000, 8000, 16_000, 32_000, 64_000, 120_000, 120_000]);
    assert_eq!(delay(Class::Transient, u32::MAX, Duration::ZERO), BACKOFF_MAX);
}

#[test]
fn waiting_is_brisk_then_slow() {
    assert_eq!(delay(Class::Waiting, 0, Duration::ZERO), DEPENDENCY_POLL);
    assert_eq!(delay(Class::Waiting, 15, Duration::ZERO), DEPENDENCY_POLL);
    assert_eq!(delay(Class::Waiting, 17, Duration::ZERO), Duration::from_secs(4));
    assert_eq!(delay(Class::Waiting, 1000, Duration::ZERO), DEPENDENCY_POLL_MAX);
}

#[test]
fn stalled_waits_for_the_interval() {
    assert_eq!(delay(Class::Stalled, 7, Duration::from_secs(60)), Duration::from_secs(60));
}

#[test]
fn jitter_only_lengthens_and_by_a_quarter_at_most() {
    let second = Duration::from_secs(1);
    assert_eq!(jittered(second, 0.0), second);
    assert_eq!(jittered(second, 1.0), Duration::from_millis(1250));
    assert_eq!(jittered(second, 99.0), Duration::from_millis(1250));
}

#[test]
fn what_is_spread_is_never_late() {
    let interval = Duration::from_secs(300);
    for (fraction, seconds) in [(0.0, 300), (0.5, 262), (1.0, 225), (9.0, 225)] {
        assert_eq!(spread(interval, fraction).as_secs(), seconds, "{fraction}");
    }
}

#[test]
fn retries_of_what_is_repeated_anyway_come_within_its_interval() {
    let seconds = Duration::from_secs;
    for (interval, attempt, fraction, milliseconds) in [
        (10, 1, 0.0, 500),
        (10, 1, 1.0, 625),
        (10, 4, 0.0, 4000),
        (10, 5, 0.0, 8000),
        (10, 5, 1.0, 10_000),
        (10, 40, 0.5, 9000),
        (60, 7, 0.0, 32_000),
        (60, 40, 1.0, 60_000),
        (600, 40, 0.0, 120_000),
    ] {
        let delay = within(seconds(interval), attempt, fraction).as_millis();
        assert_eq!(delay, milliseconds, "{interval} {attempt} {fraction}");
    }
}

#[test]
fn polls_come_after_the_interval_and_up_to_a_tenth_later() {
    let minute = Duration::from_secs(60);
    let cases = [(-1.0, 60_000), (0.0, 60_000), (0.25, 61_500), (0.5, 63_000), (1.0, 66_000), (7.0, 66_000)];
    for (fraction, milliseconds) in cases {
        assert_eq!(poll(minute, fraction), Duration::from_millis(milliseconds), "{fraction}");
    }
    assert_eq!(poll(Duration::MAX / 2, 0.0), Duration::MAX / 2);
}

#[test]
fn what_the_other_side_asks_for_is_honoured_within_reason() {
    let seconds = Duration::from_secs;
    assert_eq!(at_least(seconds(1), seconds(7)), seconds(7));
    assert_eq!(at_least(seconds(9), seconds(7)), seconds(9));
    assert_eq!(at_least(seconds(1), seconds(86_400)), BACKOFF_MAX);
}

#[test]
fn retry_after_is_seconds_or_a_date_up_to_a_limit() {
    let now = httpdate::parse_http_date("Sun, 06 Nov 1994 08:49:37 GMT").unwrap();
    let max = Duration::from_secs(3600);
    for (value, expected) in [
        ("120", Some(120)),
        (" 0 ", Some(0)),
        ("Sun, 06 Nov 1994 08:50:07 GMT", Some(30)),
        ("Sun, 06 Nov 1994 08:00:00 GMT", Some(0)),
        ("99999999", Some(3600)),
        ("18446744073709551615", Some(3600)),
        ("99999999999999999999999", Some(3600)),
        ("Fri, 31 Dec 9999 23:59:59 GMT", Some(3600)),
        ("", None),
        ("soon", None),
        ("-5", None),
        ("1.5", None),
        ("-99999999999999999999999", None),
    ] {
        assert_eq!(asked(value, now, max), expected.map(Duration::from_secs), "{value}");
    }
}
