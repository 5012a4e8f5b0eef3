//! The string formats that the API server checks.
//!
//! Each check is as lenient as the server's own, which follows Go's standard library more than any
//! standard. Neither the server nor Tidegate checks other formats. Some formats of the server are
//! left out on purpose, because no relevant CRD uses them (`isbn`, `creditcard`, `ssn`, …).

// IP addresses as values. Sockets are in `std::net`.
use core::net::IpAddr;

/// A format that is checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Format {
    DateTime,
    Date,
    Uri,
    Duration,
    Byte,
    Uuid,
    Ipv4,
    Ipv6,
    Cidr,
}

// === impl Format ===

impl Format {
    /// The format with this name in a schema; `None` if it is not checked.
    pub(super) fn from_name(name: &str) -> Option<Format> {
        // The server ignores dashes in names: `datetime` is `date-time`.
        Some(match name.replace('-', "").as_str() {
            "datetime" => Format::DateTime,
            "date" => Format::Date,
            "uri" => Format::Uri,
            "duration" => Format::Duration,
            "byte" => Format::Byte,
            "uuid" => Format::Uuid,
            "ipv4" => Format::Ipv4,
            "ipv6" => Format::Ipv6,
            "cidr" => Format::Cidr,
            _ => return None,
        })
    }

    /// Whether a text has this format.
    pub(super) fn accepts(self, text: &str) -> bool {
        match self {
            Format::DateTime => is_date_time(text),
            Format::Date => is_date(text),
            Format::Uri => is_request_uri(text),
            Format::Duration => duration_nanoseconds(text).is_some(),
            Format::Byte => is_base64(text),
            Format::Uuid => is_uuid(text),
            Format::Ipv4 => text.parse::<IpAddr>().is_ok_and(|address| address.is_ipv4()),
            Format::Ipv6 => text.parse::<IpAddr>().is_ok_and(|address| address.is_ipv6()),
            Format::Cidr => is_cidr(text),
        }
    }

    /// The description for a message.
    pub(super) fn description(self) -> &'static str {
        match self {
            Format::DateTime => "a date and time such as `2026-01-31T12:00:00Z`",
            Format::Date => "a date such as `2026-01-31`",
            Format::Uri => "a URI such as `https://example.com/path`",
            Format::Duration => "a duration such as `1m30s`",
            Format::Byte => "base64",
            Format::Uuid => "a UUID",
            Format::Ipv4 => "an IPv4 address",
            Format::Ipv6 => "an IPv6 address",
            Format::Cidr => "an address range such as `10.0.0.0/8`",
        }
    }
}

fn is_date(text: &str) -> bool {
    let bytes = text.as_bytes();
    if bytes.len() != 10 || bytes[4] != b'-' || bytes[7] != b'-' {
        return false;
    }
    let number = |range: std::ops::Range<usize>| {
        let digits = &bytes[range];
        digits.iter().all(u8::is_ascii_digit).then(|| digits.iter().fold(0, |n, d| n * 10 + u32::from(d - b'0')))
    };
    let (Some(year), Some(month), Some(day)) = (number(0..4), number(5..7), number(8..10)) else { return false };
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let days = match month {
        1 | 3 | 5 | 7 | 8 | 10 | 12 => 31,
        4 | 6 | 9 | 11 => 30,
        2 if leap => 29,
        2 => 28,
        _ => return false,
    };
    (1..=days).contains(&day)
}

/// The server's rule: a date, `t`, hours, minutes and seconds of two digits each, a fraction, and a
/// zone with any numbers.
pub(crate) fn is_date_time(text: &str) -> bool {
    let lower = text.to_lowercase();
    let mut parts = lower.split('t');
    let (Some(date), Some(time)) = (parts.next(), parts.next()) else { return false };
    is_date(date) && is_time(time)
}

fn is_time(text: &str) -> bool {
    let two = |text: &str, max: u32| {
        text.len() == 2
            && text.bytes().all(|b| b.is_ascii_digit())
            && text.parse::<u32>().is_ok_and(|number| number <= max)
    };
    let (Some(clock), Some(rest)) = (text.get(..8), text.get(8..)) else { return false };
    let mut parts = clock.split(':');
    let clock_ok = parts.next().is_some_and(|hours| two(hours, 23))
        && parts.next().is_some_and(|minutes| two(minutes, 59))
        && parts.next().is_some_and(|seconds| two(seconds, 59))
        && parts.next().is_none();
    let zone = match rest.strip_prefix('.') {
        Some(fraction) => {
            let digits = fraction.bytes().take_while(u8::is_ascii_digit).count();
            if digits == 0 {
                return false;
            }
            &fraction[digits..]
        }
        None => rest,
    };
    let offset = |zone: &str| {
        zone.strip_prefix(['+', '-'])
            .and_then(|offset| offset.split_once(':'))
            .is_some_and(|(hours, minutes)| two(hours, 99) && two(minutes, 99))
    };
    clock_ok && (zone == "z" || offset(zone))
}

/// Go's `url.ParseRequestURI`: an absolute path, or a scheme with anything after it that is not
/// obviously malformed.
fn is_request_uri(text: &str) -> bool {
    if text.is_empty() || text.chars().any(|c| c.is_ascii_control()) {
        return false;
    }
    if text == "*" {
        return true;
    }
    let Some((has_scheme, rest)) = split_scheme(text) else { return false };
    let rest = rest.split_once('?').map_or(rest, |(path, _)| path);
    if !rest.starts_with('/') {
        return has_scheme;
    }
    let path = match rest.strip_prefix("//").filter(|_| has_scheme) {
        Some(after) => {
            let (authority, path) = after.split_at(after.find('/').unwrap_or(after.len()));
            if !is_authority(authority) {
                return false;
            }
            path
        }
        None => rest,
    };
    percent_escapes_are_whole(path)
}

/// The scheme, if there is one, and the rest. `None` if the text begins with a colon.
fn split_scheme(text: &str) -> Option<(bool, &str)> {
    for (position, c) in text.char_indices() {
        match c {
            'a'..='z' | 'A'..='Z' => {}
            '0'..='9' | '+' | '-' | '.' if position > 0 => {}
            ':' if position == 0 => return None,
            ':' => return Some((true, &text[position + 1..])),
            _ => break,
        }
    }
    Some((false, text))
}

fn is_authority(authority: &str) -> bool {
    let host = match authority.rsplit_once('@') {
        Some((user, host)) => {
            let allowed = |c: char| c.is_ascii_alphanumeric() || "-._:~!$&'()*+,;=%@".contains(c);
            if !user.chars().all(allowed) || !percent_escapes_are_whole(user) {
                return false;
            }
            host
        }
        None => authority,
    };
    let is_port = |port: &str| port.is_empty() || port.bytes().all(|b| b.is_ascii_digit());
    if let Some(bracketed) = host.strip_prefix('[') {
        let Some((_, after)) = bracketed.split_once(']') else { return false };
        return after.is_empty() || after.strip_prefix(':').is_some_and(is_port);
    }
    let name = match host.rsplit_once(':') {
        Some((_, port)) if !is_port(port) => return false,
        Some((name, _)) => name,
        None => host,
    };
    let allowed = |c: char| !c.is_ascii() || c.is_ascii_alphanumeric() || "-_.~!$&'()*+,;=:[]<>\"%".contains(c);
    name.chars().all(allowed) && percent_escapes_are_whole(name)
}

fn percent_escapes_are_whole(text: &str) -> bool {
    text.split('%').skip(1).all(|after| after.len() >= 2 && after.as_bytes()[..2].iter().all(u8::is_ascii_hexdigit))
}

/// Go's `time.ParseDuration`, in nanoseconds: `1h30m`, `-1.5s`, `0`.
pub fn duration_nanoseconds(text: &str) -> Option<i64> {
    let (negative, mut rest) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    if rest == "0" {
        return Some(0);
    }
    if rest.is_empty() {
        return None;
    }
    let mut total: f64 = 0.0;
    while !rest.is_empty() {
        let number_end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let (number, after) = rest.split_at(number_end);
        if number.is_empty() || number == "." || number.matches('.').count() > 1 {
            return None;
        }
        let number: f64 = format!("0{number}0").parse().ok()?;
        // A trailing zero makes `5.` and `.5` parse as numbers. It must not change integers.
        let number = if rest[..number_end].contains('.') { number } else { number / 10.0 };
        let unit_end = after.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(after.len());
        let (unit, next) = after.split_at(unit_end);
        total += number
            * match unit {
                "ns" => 1.0,
                "us" | "µs" | "μs" => 1e3,
                "ms" => 1e6,
                "s" => 1e9,
                "m" => 60e9,
                "h" => 3600e9,
                _ => return None,
            };
        rest = next;
    }
    // The limit is about 292 years. Go rejects longer durations as well.
    const NANOSECONDS_MAX: f64 = 9.2e18;
    #[expect(
        clippy::cast_possible_truncation,
        reason = "bounded in the line above, and fractions of a nanosecond are irrelevant"
    )]
    (total <= NANOSECONDS_MAX).then_some(if negative { -(total as i64) } else { total as i64 })
}

/// Base64 with padding, in one line.
pub(crate) fn is_base64(text: &str) -> bool {
    let data = text.trim_end_matches('=');
    !text.is_empty()
        && text.len().is_multiple_of(4)
        && text.len() - data.len() <= 2
        && data.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'+' || b == b'/')
}

/// Each dash is optional.
fn is_uuid(text: &str) -> bool {
    let mut rest = text;
    for (position, length) in [8, 4, 4, 4, 12].into_iter().enumerate() {
        if position > 0 {
            rest = rest.strip_prefix('-').unwrap_or(rest);
        }
        let Some((group, after)) = rest.split_at_checked(length) else { return false };
        if !group.bytes().all(|b| b.is_ascii_hexdigit()) {
            return false;
        }
        rest = after;
    }
    rest.is_empty()
}

fn is_cidr(text: &str) -> bool {
    let Some((address, bits)) = text.split_once('/') else { return false };
    let Ok(address) = address.parse::<IpAddr>() else { return false };
    let plain = !bits.is_empty() && bits.bytes().all(|b| b.is_ascii_digit());
    plain && bits.parse::<u8>().is_ok_and(|bits| bits <= if address.is_ipv4() { 32 } else { 128 })
}
