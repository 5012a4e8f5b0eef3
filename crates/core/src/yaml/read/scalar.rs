//! Resolves plain scalars by the rules of kubectl's YAML library: YAML 1.1 with Go's numbers.

use crate::yaml::NodeValue;

/// Up to here, floats without a fraction are exact integers: kubectl writes them as integers.
const EXACT_INTEGER_MAX: f64 = 9e15;

/// A number that JSON cannot represent.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct NotFinite;

/// Resolves a plain scalar without a tag. Fails on infinity and NaN.
pub(super) fn resolve(text: &str) -> Result<NodeValue, NotFinite> {
    let value = match text {
        "" | "~" | "null" | "Null" | "NULL" => NodeValue::Null,
        "y" | "Y" | "yes" | "Yes" | "YES" | "true" | "True" | "TRUE" | "on" | "On" | "ON" => NodeValue::Bool(true),
        "n" | "N" | "no" | "No" | "NO" | "false" | "False" | "FALSE" | "off" | "Off" | "OFF" => NodeValue::Bool(false),
        ".nan" | ".NaN" | ".NAN" => return Err(NotFinite),
        _ if matches!(text.trim_start_matches(['+', '-']), ".inf" | ".Inf" | ".INF") => return Err(NotFinite),
        _ => number(text).unwrap_or_else(|| NodeValue::Str(text.to_owned())),
    };
    Ok(value)
}

/// The number in a text, if there is one. As in Go, an integer that exceeds all integer types is a
/// float.
fn number(text: &str) -> Option<NodeValue> {
    if !text.starts_with(|c: char| c.is_ascii_digit() || matches!(c, '+' | '-' | '.')) {
        return None;
    }
    let plain: String = text.chars().filter(|c| *c != '_').collect();
    integer(&plain).or_else(|| float(&plain))
}

/// Decimal, or with the prefixes `0x`, `0o`, `0b` and `0` of other bases.
fn integer(text: &str) -> Option<NodeValue> {
    let (negative, digits) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    let prefix: String = digits.chars().take(2).flat_map(char::to_lowercase).collect();
    let (radix, digits) = match prefix.as_str() {
        "0x" => (16, &digits[2..]),
        "0o" => (8, &digits[2..]),
        "0b" => (2, &digits[2..]),
        _ if digits.len() > 1 && digits.starts_with('0') => (8, &digits[1..]),
        _ => (10, digits),
    };
    // Rust would accept a second sign.
    if digits.is_empty() || !digits.chars().all(|c| c.is_digit(radix)) {
        return None;
    }
    let magnitude = u64::from_str_radix(digits, radix).ok()?;
    if negative {
        return 0_i64.checked_sub_unsigned(magnitude).map(NodeValue::Int);
    }
    Some(i64::try_from(magnitude).map_or(NodeValue::UInt(magnitude), NodeValue::Int))
}

/// `1.5`, `.5`, `1.`, `1e3`. A number that is too large to be finite is a string.
fn float(text: &str) -> Option<NodeValue> {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let (mantissa, exponent) = match unsigned.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, Some(exponent.strip_prefix(['+', '-']).unwrap_or(exponent))),
        None => (unsigned, None),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let are_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let has_digits = !whole.is_empty() || !fraction.is_empty();
    let exponent_ok = exponent.is_none_or(|exponent| !exponent.is_empty() && are_digits(exponent));
    if !(has_digits && are_digits(whole) && are_digits(fraction) && exponent_ok) {
        return None;
    }
    let number: f64 = text.parse().ok()?;
    if !number.is_finite() {
        return None;
    }
    if number.fract() == 0.0 && number.abs() < EXACT_INTEGER_MAX {
        // Formatting and parsing again is exact below 2^53.
        return format!("{number:.0}").parse().ok().map(NodeValue::Int);
    }
    Some(NodeValue::Float(number))
}
