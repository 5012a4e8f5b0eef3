//! When a runtime may get an upgrade that requires downtime: the policy of maintenance windows, and
//! the windows that it yields for a runtime.
//!
//! The policy is Lifecycle Manager's file, JSON or YAML. Its first rule that matches a runtime
//! decides; if no window of that rule is left, the default window does. Differences from Lifecycle
//! Manager:
//!
//! * Any window of a rule can be open, whatever their order in the file. Upstream, a recurring window
//!   hides all windows after it.
//! * A window that passes midnight is open after midnight too. Upstream, it is over then.
//! * A window that is not longer than the minimum size is skipped, because it is never open.
//!
//! [`crate::plan::window`] says which upgrades ask it.

use std::{collections::BTreeMap, time::Duration};

use jiff::{
    SignedDuration, Timestamp, ToSpan,
    civil::{Date, Time, Weekday},
    tz::Offset,
};
use regex::{Regex, RegexBuilder};

use crate::api::names::label;

mod parse;

pub use parse::Problem;

/// A policy of maintenance windows.
#[derive(Clone, Debug, Default)]
pub struct Policy {
    rules: Vec<Rule>,
    default: Option<Window>,
    remarks: Vec<Problem>,
}

/// Windows for some runtimes.
#[derive(Clone, Debug)]
struct Rule {
    /// Label of a Kyma, and what finds its value. One that does is enough.
    patterns: Vec<(&'static str, Regex)>,
    windows: Vec<Window>,
}

/// One window of the policy.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Window {
    /// Once.
    Once(Span),
    /// On these days of the week, as the clock of `begin` counts days.
    Weekly { days: Vec<Weekday>, begin: Clock, end: Clock },
}

/// A time of day, with the offset of its clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Clock {
    time: Time,
    offset: Offset,
}

/// A window in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Span {
    begin: Timestamp,
    end: Timestamp,
}

/// Whether a runtime has an open window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WindowState {
    /// A window is open, and long enough.
    Open,
    /// No window is open. The next one begins then.
    Closed {
        /// The begin.
        next: Timestamp,
    },
    /// The policy has no window left for the runtime.
    Never,
}

/// How far ahead a weekly window is looked for. It occurs at least once in a week; the days before and after are those
/// of other time zones, and of a window that began the day before.
const DAYS_AHEAD: std::ops::RangeInclusive<i64> = -2..=8;

// === impl Policy ===

impl Policy {
    /// Parses a policy, in JSON or YAML. Keys may have any case, as for Lifecycle Manager.
    ///
    /// See [`Policy::remarks`] for what is suspicious only.
    ///
    /// # Errors
    ///
    /// Fails with the first thing that is wrong.
    pub fn parse(text: &str) -> Result<Policy, Problem> {
        parse::policy(text)
    }

    /// What is probably a mistake in the file, in its order: unknown keys, windows that are never open.
    pub fn remarks(&self) -> &[Problem] {
        &self.remarks
    }

    /// Whether a runtime has an open window now: one that has begun and lasts longer than `size` from now.
    ///
    /// `labels` are those of its Kyma in the control plane.
    pub fn standing(&self, labels: &BTreeMap<String, String>, now: Timestamp, size: Duration) -> WindowState {
        let size = SignedDuration::try_from(size).unwrap_or(SignedDuration::MAX);
        let rule = self.rules.iter().find(|rule| rule.matches(labels));
        let of_rule = rule.and_then(|rule| standing(&rule.windows, now, size));
        of_rule.or_else(|| standing(self.default.as_slice(), now, size)).unwrap_or(WindowState::Never)
    }
}

impl Rule {
    fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        self.patterns.iter().any(|(label, pattern)| {
            labels.get(*label).is_some_and(|value| !value.is_empty() && pattern.is_match(value))
        })
    }
}

/// What the windows come to; none if none of them is left.
fn standing(windows: &[Window], now: Timestamp, size: SignedDuration) -> Option<WindowState> {
    let spans = windows.iter().flat_map(|window| window.spans(now));
    let begin = spans.filter(|span| span.is_left(now, size)).map(|span| span.begin).min()?;
    Some(if begin < now { WindowState::Open } else { WindowState::Closed { next: begin } })
}

// === impl Window ===

impl Window {
    /// The window, each time that it may be open now or soon.
    fn spans(&self, now: Timestamp) -> Vec<Span> {
        match self {
            Window::Once(span) => vec![*span],
            Window::Weekly { days, begin, end } => {
                let today = begin.offset.to_datetime(now).date();
                let dates = DAYS_AHEAD.filter_map(|days| today.checked_add(days.days()).ok());
                let dates = dates.filter(|date| days.contains(&date.weekday()));
                dates.filter_map(|date| Span::on(date, *begin, *end)).collect()
            }
        }
    }
}

// === impl Span ===

impl Span {
    /// The window of one day. If it does not end after its begin, it ends the next day.
    fn on(date: Date, begin: Clock, end: Clock) -> Option<Span> {
        let begin = begin.on(date)?;
        let mut last = date;
        // Clocks with different offsets may be more than one day apart.
        loop {
            let end = end.on(last)?;
            if begin < end {
                return Some(Span { begin, end });
            }
            last = last.tomorrow().ok()?;
        }
    }

    /// Whether the window is open, or can be.
    fn is_left(self, now: Timestamp, size: SignedDuration) -> bool {
        let from = self.begin.max(now);
        from.checked_add(size).is_ok_and(|earliest| earliest < self.end)
    }
}

// === impl Clock ===

impl Clock {
    fn on(self, date: Date) -> Option<Timestamp> {
        self.offset.to_timestamp(date.to_datetime(self.time)).ok()
    }
}

/// What a key of `match` is compared with.
const MATCHES: [(&str, &str); 4] = [
    ("globalAccountID", label::GLOBAL_ACCOUNT_ID),
    ("plan", label::PLAN),
    ("region", label::REGION),
    ("platformRegion", label::PLATFORM_REGION),
];

/// Memory of a compiled expression, in bytes. The longest useful list of regions needs a tenth.
const REGEXP_BYTES_MAX: usize = 1 << 20;

fn compile(pattern: &str) -> Option<Regex> {
    RegexBuilder::new(pattern).size_limit(REGEXP_BYTES_MAX).build().ok()
}

#[cfg(test)]
mod tests;
