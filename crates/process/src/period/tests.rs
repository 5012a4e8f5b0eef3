use super::*;

#[test]
fn periods_are_read_and_written() {
    for (text, milliseconds, printed) in [
        ("90s", 90_000, "1m30s"),
        ("5m", 300_000, "5m"),
        ("1h30m", 5_400_000, "1h30m"),
        ("250ms", 250, "250ms"),
        ("1m30s", 90_000, "1m30s"),
        ("5m ", 300_000, "5m"),
        ("0s", 0, "0s"),
        ("0", 0, "0s"),
        ("1m30s250ms", 90_250, "1m30s250ms"),
        ("1d", 86_400_000, "24h"),
        ("1d12h", 129_600_000, "36h"),
        ("2w", 1_209_600_000, "336h"),
        ("1440h", 5_184_000_000, "1440h"),
        ("2160h", 7_776_000_000, "2160h"),
        ("1.5h", 5_400_000, "1h30m"),
        ("1h 30m", 5_400_000, "1h30m"),
        ("30 seconds", 30_000, "30s"),
    ] {
        let parsed: Period = text.parse().unwrap();
        assert_eq!(parsed.0, Duration::from_millis(milliseconds), "{text}");
        assert_eq!(parsed.to_string(), printed, "{text}");
        assert_eq!(printed.parse::<Period>().unwrap(), parsed, "{text}");
    }
}

#[test]
fn invalid_periods_are_refused_with_what_to_write_instead() {
    let syntax = "use a number and a unit, for example 30s";
    for (text, reason) in [
        ("soon", syntax),
        ("", syntax),
        ("5", syntax),
        ("m", syntax),
        ("5x", syntax),
        ("30m1h", syntax),
        ("PT5M", syntax),
        ("-5m", "it must not be negative"),
        ("5m ago", "it must not be negative"),
        ("-1y", "it must not be negative"),
        ("1y", "months and years differ in length; use days, for example 30d"),
        ("1mo", "months and years differ in length; use days, for example 30d"),
        ("8000000d", syntax),
        ("999999999999h", syntax),
        ("99999999999999999999h", syntax),
    ] {
        let message = text.parse::<Period>().unwrap_err().to_string();
        assert_eq!(message, format!("invalid duration {text:?}: {reason}"));
    }
}

#[test]
fn every_duration_survives_being_printed_and_read() {
    for duration in [
        Duration::from_nanos(1),
        Duration::from_micros(1500),
        Duration::from_millis(1),
        Duration::from_secs(3599),
        Duration::from_secs(100 * 365 * 86_400),
        Duration::new(86_399, 999_999_999),
    ] {
        let printed = Period(duration).to_string();
        assert_eq!(printed.parse(), Ok(Period(duration)), "{printed}");
    }
}

#[test]
fn files_hold_periods_as_text() {
    let period: Period = serde_json::from_str("\"1h30m\"").unwrap();
    assert_eq!(period, Period(Duration::from_secs(5400)));
    assert_eq!(serde_json::to_string(&period).unwrap(), "\"1h30m\"");
    let message = serde_json::from_str::<Period>("\"soon\"").unwrap_err().to_string();
    assert!(message.starts_with("invalid duration \"soon\": use a number and a unit, for example 30s"), "{message}");
    assert!(serde_json::from_str::<Period>("30").is_err());
}
