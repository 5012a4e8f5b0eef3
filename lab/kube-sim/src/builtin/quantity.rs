// SPDX-License-Identifier: Apache-2.0

//! Quantities such as `0.5Gi`, in the server's canonical form.

/// The canonical form, if the text is a valid quantity: the largest suffix of its family for which the number is whole.
pub(super) fn canonical(text: &str) -> Option<String> {
    let digits = text.find(|c: char| !matches!(c, '0'..='9' | '.' | '+' | '-')).unwrap_or(text.len());
    let (number, suffix) = text.split_at(digits);
    let (family, scale) = Family::from_suffix(suffix)?;
    let nanos = family.nanos(number, scale)?;
    Some(family.write(nanos))
}

/// The families of suffixes; a quantity keeps its family.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Family {
    Decimal,
    Binary,
    Exponent,
}

/// All quantities are counted in nanos.
const NANO: i128 = 1_000_000_000;
const DECIMAL: [(&str, i32); 10] =
    [("n", -9), ("u", -6), ("m", -3), ("", 0), ("k", 3), ("M", 6), ("G", 9), ("T", 12), ("P", 15), ("E", 18)];
const BINARY: [(&str, i32); 7] = [("", 0), ("Ki", 10), ("Mi", 20), ("Gi", 30), ("Ti", 40), ("Pi", 50), ("Ei", 60)];

// === impl Family ===

impl Family {
    /// The family of a suffix, and its power of 10 or 2.
    fn from_suffix(suffix: &str) -> Option<(Family, i32)> {
        let find = |table: &[(&str, i32)]| table.iter().find(|(name, _)| *name == suffix).map(|(_, scale)| *scale);
        if let Some(scale) = find(&DECIMAL) {
            return Some((Family::Decimal, scale));
        }
        if let Some(scale) = find(&BINARY) {
            return Some((Family::Binary, scale));
        }
        let exponent: i32 = suffix.strip_prefix(['e', 'E'])?.parse().ok()?;
        (-9..=18).contains(&exponent).then_some((Family::Exponent, exponent))
    }

    /// The scaled number; fractions of a nano are rounded up, as in the server.
    fn nanos(self, number: &str, scale: i32) -> Option<i128> {
        let (is_negative, number) = match number.strip_prefix('-') {
            Some(number) => (true, number),
            None => (false, number.strip_prefix('+').unwrap_or(number)),
        };
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        let digits = format!("{whole}{fraction}");
        if !digits.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        let digits: i128 = digits.parse().ok()?;
        let places = u32::try_from(fraction.len()).ok()?;
        let factor = match self {
            Family::Binary => NANO.checked_mul(1 << scale)?,
            Family::Decimal | Family::Exponent => 10_i128.checked_pow(u32::try_from(scale + 9).ok()?)?,
        };
        let divisor = 10_i128.checked_pow(places)?;
        let scaled = digits.checked_mul(factor)?;
        let nanos = scaled / divisor + i128::from(scaled % divisor != 0);
        Some(if is_negative { -nanos } else { nanos })
    }

    fn write(self, nanos: i128) -> String {
        if nanos == 0 {
            return "0".to_owned();
        }
        // A binary quantity below 1024 that is not whole has no binary form.
        let is_binary = self == Family::Binary && nanos % NANO == 0;
        if is_binary {
            let whole = nanos / NANO;
            let (suffix, scale) =
                BINARY.iter().rev().find(|(_, scale)| whole % (1 << scale) == 0).unwrap_or(&BINARY[0]);
            return format!("{}{suffix}", whole >> scale);
        }
        let fits = |scale: i32| u32::try_from(scale + 9).is_ok_and(|power| nanos % 10_i128.pow(power) == 0);
        let (suffix, scale) = DECIMAL.iter().rev().find(|(_, scale)| fits(*scale)).unwrap_or(&DECIMAL[0]);
        let number = nanos / 10_i128.pow(u32::try_from(scale + 9).unwrap_or_default());
        match self {
            Family::Exponent if *scale != 0 => format!("{number}e{scale}"),
            Family::Exponent => number.to_string(),
            Family::Decimal | Family::Binary => format!("{number}{suffix}"),
        }
    }
}
