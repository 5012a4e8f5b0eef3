//! Kubernetes quantities: `0.1` and `100m` are equal.

use std::cmp::Ordering;

use serde_json::Value;

/// Maps whose values are quantities.
const FIELDS: [&str; 4] = ["limits", "requests", "capacity", "hard"];

/// Units and their factors: powers of ten or two. The last three are fractions.
const UNITS: [(&str, u32, u32); 16] = [
    ("", 10, 0),
    ("k", 10, 3),
    ("M", 10, 6),
    ("G", 10, 9),
    ("T", 10, 12),
    ("P", 10, 15),
    ("E", 10, 18),
    ("Ki", 2, 10),
    ("Mi", 2, 20),
    ("Gi", 2, 30),
    ("Ti", 2, 40),
    ("Pi", 2, 50),
    ("Ei", 2, 60),
    ("m", 10, 3),
    ("u", 10, 6),
    ("n", 10, 9),
];

/// Whether the values of a map are quantities.
pub(super) fn are_in(field: &str) -> bool {
    FIELDS.contains(&field)
}

/// Whether two values are the same quantity.
pub(super) fn same(one: &Value, other: &Value) -> bool {
    one == other || read(one).zip(read(other)).is_some_and(|(one, other)| one == other)
}

/// Which of two quantities is larger; `None` if one of them is invalid.
pub fn compare_quantities(one: &Value, other: &Value) -> Option<Ordering> {
    Some(read(one)?.cmp(&read(other)?))
}

/// The quantity in billionths. `None` if it is invalid or beyond the size of any cluster.
fn read(value: &Value) -> Option<i128> {
    let text = match value {
        Value::String(text) => text.clone(),
        Value::Number(number) => number.to_string(),
        _ => return None,
    };
    let (sign, text) = text.strip_prefix('-').map_or((1, text.as_str()), |text| (-1, text));
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let (_, base, power) = UNITS.iter().find(|(name, ..)| *name == unit)?;
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let digits = format!("{whole}{fraction}");
    let mut amount: i128 = digits.parse().ok()?;
    let mut scale = 9 - i32::try_from(fraction.len()).ok()?;
    match unit {
        "m" | "u" | "n" => scale -= i32::try_from(*power).ok()?,
        _ => amount = amount.checked_mul(i128::from(*base).checked_pow(*power)?)?,
    }
    let factor = 10_i128.checked_pow(scale.unsigned_abs())?;
    let amount = if scale < 0 { amount / factor } else { amount.checked_mul(factor)? };
    Some(sign * amount)
}
