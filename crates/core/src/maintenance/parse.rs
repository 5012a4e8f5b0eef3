//! Reads a policy of maintenance windows.

use std::fmt;

use jiff::{
    Timestamp,
    civil::{Date, Time, Weekday},
    tz::Offset,
};
use regex::Regex;

use super::{Clock, MATCHES, Policy, Rule, Span, Window, compile};
use crate::yaml::{self, Entry, Limits, Node, NodeValue};

/// Something in a policy that is wrong, or probably is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Line, from 1.
    pub line: u32,
    /// One sentence.
    pub message: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.message)
    }
}

// === impl Problem ===

impl Problem {
    /// The same, of the rule with this number. A policy may be one line of JSON: then its line says nothing.
    fn in_rule(self, number: usize) -> Problem {
        Problem { message: format!("rule {number}: {}", self.message), ..self }
    }
}

/// A time in the file: a moment, or a time of day.
struct Moment {
    date: Option<Date>,
    clock: Clock,
}

pub(super) fn policy(text: &str) -> Result<Policy, Problem> {
    let documents = yaml::parse(text, &Limits::default())
        .map_err(|error| Problem { line: error.line.max(1), message: error.message })?;
    let [document] = &*documents else {
        let message = format!("the file has {} documents: a policy is one mapping", documents.len());
        return Err(Problem { line: 1, message });
    };
    let mut policy = Policy::default();
    let [rules, default] = fields(document, "the policy", ["rules", "default"], &mut policy.remarks)?;
    let rules = rules.map(|node| list(node, "`rules`")).transpose()?.unwrap_or_default();
    for (rule, number) in rules.iter().zip(1..) {
        let mut remarks = Vec::new();
        let found = read_rule(rule, &mut remarks).map_err(|problem| problem.in_rule(number))?;
        policy.remarks.extend(remarks.into_iter().map(|remark| remark.in_rule(number)));
        policy.rules.push(found);
    }
    policy.default = default.map(|node| window(node, &mut policy.remarks)).transpose()?;
    Ok(policy)
}

fn read_rule(node: &Node, remarks: &mut Vec<Problem>) -> Result<Rule, Problem> {
    let [matches, windows] = fields(node, "a rule", ["match", "windows"], remarks)?;
    let matches = matches.ok_or_else(|| problem(node, "the rule has no `match`: name at least one expression"))?;
    let mut patterns = Vec::new();
    for (value, (key, label)) in
        fields(matches, "`match`", MATCHES.map(|(key, _)| key), remarks)?.into_iter().zip(MATCHES)
    {
        if let Some(pattern) = value.map(|value| expression(value, key, remarks)).transpose()?.flatten() {
            patterns.push((label, pattern));
        }
    }
    if patterns.is_empty() {
        remarks.push(problem(matches, "the rule has no expression, so it matches no runtime"));
    }
    let windows = windows.map(|node| list(node, "`windows`")).transpose()?.unwrap_or_default();
    let windows = windows.iter().map(|node| window(node, remarks)).collect::<Result<_, _>>()?;
    Ok(Rule { patterns, windows })
}

/// An expression; none if it is empty.
fn expression(node: &Node, key: &str, remarks: &mut Vec<Problem>) -> Result<Option<Regex>, Problem> {
    let pattern = text(node, key)?;
    if pattern.is_empty() {
        return Ok(None);
    }
    // A policy of Lifecycle Manager has such a bar.
    if let Some(bar) = pattern.chars().find(|found| ['│', '｜', '¦', '❘'].contains(found)) {
        remarks.push(problem(node, format!("`{key}` has the character {bar}, which is not the `|` of an alternative")));
    }
    let compiled = compile(pattern);
    compiled.map(Some).ok_or_else(|| problem(node, format!("`{key}` is not a valid regular expression, or too large")))
}

fn window(node: &Node, remarks: &mut Vec<Problem>) -> Result<Window, Problem> {
    let [days, begin, end] = fields(node, "a window", ["days", "begin", "end"], remarks)?;
    let days = days.map(|node| list(node, "`days`")).transpose()?.unwrap_or_default();
    let days = days.iter().map(day).collect::<Result<Vec<_>, _>>()?;
    let time = |value: Option<&Node>, key: &str| {
        let value = value.ok_or_else(|| problem(node, format!("the window has no `{key}`")))?;
        let parsed = moment(text(value, key)?);
        parsed.ok_or_else(|| problem(value, format!("invalid time in `{key}`: {}", example(&days))))
    };
    let (begin, end) = (time(begin, "begin")?, time(end, "end")?);
    if !days.is_empty() {
        return Ok(Window::Weekly { days, begin: begin.clock, end: end.clock });
    }
    let once = |moment: &Moment, key: &str| {
        let found: Option<Timestamp> = moment.date.and_then(|date| moment.clock.on(date));
        let message = || format!("`{key}` has no date, and the window has no `days`: {}", example(&[]));
        found.ok_or_else(|| problem(node, message()))
    };
    let span = Span { begin: once(&begin, "begin")?, end: once(&end, "end")? };
    if span.end <= span.begin {
        remarks.push(problem(node, "the window ends before it begins, so it is never open"));
    }
    Ok(Window::Once(span))
}

fn example(days: &[Weekday]) -> &'static str {
    match days {
        [] => "use for example 2026-10-10T20:00:00Z",
        [_, ..] => "use for example 20:00:00Z or 20:00:00+02:00",
    }
}

fn day(node: &Node) -> Result<Weekday, Problem> {
    Ok(match text(node, "days")? {
        "Mon" => Weekday::Monday,
        "Tue" => Weekday::Tuesday,
        "Wed" => Weekday::Wednesday,
        "Thu" => Weekday::Thursday,
        "Fri" => Weekday::Friday,
        "Sat" => Weekday::Saturday,
        "Sun" => Weekday::Sunday,
        _ => return Err(problem(node, "invalid day in `days`: use Mon, Tue, Wed, Thu, Fri, Sat or Sun")),
    })
}

/// Parses `20:00:00+02:00`, or the same after a date and `T`.
fn moment(text: &str) -> Option<Moment> {
    let (date, rest) = match text.split_once(['T', 't']) {
        Some((date, rest)) => (Some(date.parse::<Date>().ok()?), rest),
        None => (None, text),
    };
    let (time, zone) = rest.split_at(rest.find(['Z', 'z', '+', '-'])?);
    let clock = Clock { time: clock_time(time)?, offset: offset(zone)? };
    Some(Moment { date, clock })
}

/// Hours, minutes and seconds. A fraction of a second does not matter.
fn clock_time(text: &str) -> Option<Time> {
    let text = text.split_once('.').map_or(text, |(whole, _)| whole);
    let [hour, minute, second] = numbers(text)?;
    Time::new(hour, minute, second, 0).ok()
}

fn offset(zone: &str) -> Option<Offset> {
    let sign = match zone.get(..1)? {
        "Z" | "z" => return (zone.len() == 1).then_some(Offset::UTC),
        "+" => 1,
        _ => -1,
    };
    let [hours, minutes] = numbers(&zone[1..])?;
    if 23 < hours || 59 < minutes {
        return None;
    }
    Offset::from_seconds(sign * (i32::from(hours) * 3600 + i32::from(minutes) * 60)).ok()
}

/// Numbers of two digits, separated by colons.
fn numbers<const N: usize>(text: &str) -> Option<[i8; N]> {
    let number = |part: &str| {
        let is_number = part.len() == 2 && part.bytes().all(|byte| byte.is_ascii_digit());
        is_number.then(|| part.parse::<i8>().ok()).flatten()
    };
    text.split(':').map(number).collect::<Option<Vec<i8>>>()?.try_into().ok()
}

/// The values of the keys of a mapping; none for a key that is missing or null. Keys may have any case.
fn fields<'a, const N: usize>(
    node: &'a Node,
    what: &str,
    keys: [&str; N],
    remarks: &mut Vec<Problem>,
) -> Result<[Option<&'a Node>; N], Problem> {
    let mut found = [None; N];
    let NodeValue::Map(entries) = &node.value else {
        return Err(problem(node, format!("{what} must be a mapping with {}", listed(&keys))));
    };
    for Entry { key, key_line, value, .. } in entries {
        let at = |message: String| Problem { line: *key_line, message };
        let Some(index) = keys.iter().position(|known| known.eq_ignore_ascii_case(key)) else {
            remarks.push(at(format!("{what} has a key that means nothing here; known are {}", listed(&keys))));
            continue;
        };
        if found[index].replace(value).is_some() {
            return Err(at(format!("{what} has the key `{}` twice", keys[index])));
        }
    }
    Ok(found.map(|value| value.filter(|node| node.value != NodeValue::Null)))
}

fn listed(keys: &[&str]) -> String {
    keys.iter().map(|key| format!("`{key}`")).collect::<Vec<_>>().join(", ")
}

fn list<'a>(node: &'a Node, what: &str) -> Result<&'a [Node], Problem> {
    match &node.value {
        NodeValue::Seq(items) => Ok(items),
        _ => Err(problem(node, format!("{what} must be a list"))),
    }
}

fn text<'a>(node: &'a Node, key: &str) -> Result<&'a str, Problem> {
    match &node.value {
        NodeValue::Str(text) => Ok(text),
        _ => Err(problem(node, format!("`{key}` must be text, in quotes"))),
    }
}

fn problem(node: &Node, message: impl Into<String>) -> Problem {
    Problem { line: node.line, message: message.into() }
}
