//! Spans of time as people write them: `90s`, `5m`, `1h30m`, `250ms`.

use std::{fmt, str::FromStr, time::Duration};

use serde::{Deserialize, Serialize};

/// A span of time as people write it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Period(pub Duration);

/// A text is no span of time.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no duration; write for example `30s`, `5m` or `1h30m`")]
pub struct ParsePeriodError(String);

// === impl Period ===

/// Units, the largest first.
const UNITS: [(&str, u64); 4] = [("h", 3_600_000), ("m", 60_000), ("s", 1000), ("ms", 1)];

/// Read and not written: a day is 24 hours, which is said as such.
const DAY: (&str, u64) = ("d", 86_400_000);

impl FromStr for Period {
    type Err = ParsePeriodError;

    fn from_str(text: &str) -> Result<Period, ParsePeriodError> {
        let error = || ParsePeriodError(text.to_owned());
        let mut milliseconds: u64 = 0;
        let mut rest = text.trim();
        if rest.is_empty() {
            return Err(error());
        }
        while !rest.is_empty() {
            let digits = rest.find(|c: char| !c.is_ascii_digit()).ok_or_else(error)?;
            let number: u64 = rest[..digits].parse().map_err(|_| error())?;
            rest = &rest[digits..];
            let unit = rest.find(|c: char| c.is_ascii_digit()).unwrap_or(rest.len());
            let (_, factor) = UNITS.iter().chain([&DAY]).find(|(name, _)| *name == &rest[..unit]).ok_or_else(error)?;
            milliseconds =
                number.checked_mul(*factor).and_then(|part| milliseconds.checked_add(part)).ok_or_else(error)?;
            rest = &rest[unit..];
        }
        Ok(Period(Duration::from_millis(milliseconds)))
    }
}

impl fmt::Display for Period {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest = u64::try_from(self.0.as_millis()).unwrap_or(u64::MAX);
        if rest == 0 {
            return f.write_str("0s");
        }
        for (unit, factor) in UNITS {
            if factor <= rest {
                write!(f, "{}{unit}", rest / factor)?;
                rest %= factor;
            }
        }
        Ok(())
    }
}

impl Serialize for Period {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Period {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Period, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests;
