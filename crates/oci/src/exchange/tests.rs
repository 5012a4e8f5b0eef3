use super::*;

#[test]
fn retry_after_is_seconds_or_a_date() {
    let now = httpdate::parse_http_date("Sun, 06 Nov 1994 08:49:37 GMT").unwrap();
    for (value, expected) in [
        ("7", Some(7)),
        (" 7 ", Some(7)),
        ("Sun, 06 Nov 1994 08:50:37 GMT", Some(60)),
        ("Sun, 06 Nov 1994 08:00:00 GMT", Some(0)),
        ("99999999999999999999999", Some(RETRY_AFTER_MAX.as_secs())),
        ("99999999", Some(RETRY_AFTER_MAX.as_secs())),
        ("Fri, 31 Dec 9999 23:59:59 GMT", Some(RETRY_AFTER_MAX.as_secs())),
        ("-1", None),
        ("soon", None),
        ("", None),
    ] {
        assert_eq!(retry_after_of(value, now), expected.map(Duration::from_secs), "{value}");
    }
}
