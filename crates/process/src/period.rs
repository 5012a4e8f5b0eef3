//! Durations as users write them in options and configuration files: `90s`, `5m`, `1h30m`, `250ms`, `1d`.
//!
//! jiff reads and prints them, in its "friendly" format. A day is always 24 hours here. Months and years are refused,
//! because their length depends on the date.

use std::{fmt, str::FromStr, time::Duration};

use jiff::{
    SpanRelativeTo,
    fmt::{
        StdFmtWrite,
        friendly::{Designator, Spacing, SpanParser, SpanPrinter},
    },
};
use serde::{Deserialize, Serialize};

/// A duration as users write it. Parsing what it prints gives the same duration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Period(pub Duration);

/// A text is not a valid duration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid duration {text:?}: {reason}")]
pub struct ParsePeriodError {
    text: String,
    /// What is wrong, or what to write instead.
    reason: &'static str,
}

/// Replaces jiff's messages, which do not say what to write instead.
const SYNTAX: &str = "use a number and a unit, for example 30s";

static PARSER: SpanParser = SpanParser::new();

/// Without spaces: `1h30m`. Hours are the largest unit, as in Go: `1440h`.
static PRINTER: SpanPrinter = SpanPrinter::new().designator(Designator::Compact).spacing(Spacing::None);

// === impl Period ===

impl FromStr for Period {
    type Err = ParsePeriodError;

    fn from_str(text: &str) -> Result<Period, ParsePeriodError> {
        let error = |reason| ParsePeriodError { text: text.to_owned(), reason };
        // Go's duration flags accept a zero without a unit, and no other number.
        if text.trim() == "0" {
            return Ok(Period(Duration::ZERO));
        }
        let span = PARSER.parse_span(text.trim()).map_err(|_| error(SYNTAX))?;
        if span.is_negative() {
            return Err(error("it must not be negative"));
        }
        if span.get_years() != 0 || span.get_months() != 0 {
            return Err(error("months and years differ in length; use days, for example 30d"));
        }
        let signed = span.to_duration(SpanRelativeTo::days_are_24_hours());
        let unsigned = signed.ok().and_then(|signed| Duration::try_from(signed).ok());
        unsigned.map(Period).ok_or_else(|| error(SYNTAX))
    }
}

impl fmt::Display for Period {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        PRINTER.print_unsigned_duration(&self.0, StdFmtWrite(f)).map_err(|_| fmt::Error)
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
