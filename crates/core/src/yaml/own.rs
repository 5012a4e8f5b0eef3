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
