//! Reads our own configuration files: plain scalar rules, and errors with their line.

use serde::de::DeserializeOwned;

/// Why a configuration file cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}, column {column}: {message}")]
pub struct OwnError {
    /// Line, from 1; 0 if unknown.
    pub line: u32,
    /// Column, from 1; 0 if unknown.
    pub column: u32,
    /// What is wrong, without the position.
    pub message: String,
}

/// Reads one of our own configuration files. Empty text is an empty mapping.
///
/// # Errors
///
/// Fails if the text is not valid YAML or does not match the type.
pub fn read_own<T: DeserializeOwned>(text: &str) -> Result<T, OwnError> {
    let blank = text.lines().all(|line| line.trim().is_empty() || line.trim_start().starts_with('#'));
    serde_yaml::from_str(if blank { "{}" } else { text }).map_err(|error| {
        let number = |value: usize| u32::try_from(value).unwrap_or(u32::MAX);
        let (line, column) = error.location().map_or((0, 0), |at| (number(at.line()), number(at.column())));
        let message = error.to_string();
        // The error has fields for the position, so the sentence omits it.
        let message = match message.rfind(" at line ") {
            Some(end) if line != 0 => message[..end].to_owned(),
            _ => message,
        };
        // The user needs no details of how serde selects a variant.
        let message = match message.contains("untagged enum") {
            true => "this value has none of the allowed forms".to_owned(),
            false => message,
        };
        OwnError { line, column, message }
    })
}

/// A message of a parser of types, without values of the text: the file may be another one than was meant, with
/// secrets. An unknown field is named if its name is a plain word.
pub fn without_values(message: &str) -> String {
    for (beginning, may_be_shown) in [("unknown field `", true), ("unknown variant `", false)] {
        let Some((before, rest)) = message.split_once(beginning) else { continue };
        // The name may contain what ends it.
        let end = ["`, expected ", "`, there are no "].into_iter().find_map(|end| rest.rfind(end));
        let (name, expected) = end.map_or((HIDDEN, "`"), |end| rest.split_at(end));
        let name = if may_be_shown && is_plain(name) { name } else { HIDDEN };
        return format!("{}{beginning}{name}{expected}", unquoted(before));
    }
    unquoted(message)
}

/// Stands for a value.
const HIDDEN: &str = "…";
/// What a parser found, before its value in backticks.
const FOUND: [&str; 4] = ["boolean `", "integer `", "floating point `", "character `"];

fn is_plain(name: &str) -> bool {
    const LEN_MAX: usize = 40;
    name.len() <= LEN_MAX && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-'))
}

/// A message without texts in quotes, and without numbers and other values in backticks. A quote without an end hides
/// the rest.
fn unquoted(message: &str) -> String {
    let mut shown = String::with_capacity(message.len());
    let mut rest = message.chars();
    while let Some(c) = rest.next() {
        shown.push(c);
        let end = match c {
            '"' => '"',
            '`' if FOUND.iter().any(|found| shown.ends_with(found)) => '`',
            _ => continue,
        };
        shown.push_str(HIDDEN);
        while let Some(c) = rest.next() {
            if c == '\\' {
                rest.next();
            } else if c == end {
                shown.push(c);
                break;
            }
        }
    }
    shown
}
