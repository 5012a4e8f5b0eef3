//! What a git server says of an error, cleaned for the status of the GitSource. Pure.
//!
//! The text comes from outside. It may contain escape sequences for terminals, a web page, or the credentials of the
//! request. Only the condition of the GitSource shows it: no log, Event or metric does.

use std::fmt;

use base64::{Engine, engine::general_purpose::STANDARD};

use super::remote::Credentials;

/// Longest quotation. A condition has room for it beside Tidegate's own sentence.
const CHARS_MAX: usize = 200;
/// How much of an answer is read for a quotation.
pub(super) const BYTES_MAX: usize = 4 << 10;

/// A server's own words, cleaned: printable, at most 200 characters, without credentials and user info.
#[derive(Clone, PartialEq, Eq)]
pub struct Said(String);

/// Cleans what a server says. `None` if nothing remains.
pub(super) fn clean(bytes: &[u8], credentials: Option<&Credentials>) -> Option<Said> {
    let bytes = bytes.get(..BYTES_MAX).unwrap_or(bytes);
    let mut text = printable(&String::from_utf8_lossy(bytes));
    for secret in secrets(credentials) {
        text = text.replace(&secret, "***");
    }
    let text = without_user_info(&text);
    let text = ["ERR ", "remote: ", "fatal: ", "error: "]
        .iter()
        .fold(text.as_str(), |text, prefix| text.strip_prefix(prefix).unwrap_or(text));
    let text = text.trim();
    (!text.is_empty()).then(|| Said(shortened(text)))
}

/// One line without escape sequences and invisible characters.
fn printable(text: &str) -> String {
    let mut printable = String::with_capacity(text.len());
    let mut rest = text.chars().peekable();
    while let Some(c) = rest.next() {
        match c {
            // A sequence for terminals ends with its first letter.
            '\u{1b}' if rest.next_if_eq(&'[').is_some() => {
                while rest.next().is_some_and(|c| !c.is_ascii_alphabetic()) {}
            }
            c if c.is_whitespace() => {
                if !printable.ends_with(' ') {
                    printable.push(' ');
                }
            }
            c if c.is_control() || is_invisible(c) => {}
            c => printable.push(c),
        }
    }
    printable
}

/// Characters that change how the text around them is shown, and parts of none.
fn is_invisible(c: char) -> bool {
    matches!(c,
        '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
        | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{fff0}'..='\u{fffd}' | '\u{e000}'..='\u{f8ff}'
        | '\u{e0000}'..='\u{10ffff}')
}

/// All forms in which the server has seen the credentials.
fn secrets(credentials: Option<&Credentials>) -> Vec<String> {
    let mut secrets = match credentials {
        None => Vec::new(),
        Some(Credentials::Bearer(token)) => vec![token.clone()],
        Some(Credentials::Basic { username, password }) => {
            let pair = format!("{username}:{password}");
            vec![STANDARD.encode(&pair), pair, password.clone()]
        }
    };
    let encoded: Vec<String> = secrets.iter().map(|secret| percent_encoded(secret)).collect();
    secrets.extend(encoded);
    secrets.retain(|secret| !secret.is_empty());
    // A long form may contain a short one.
    secrets.sort_by_key(|secret| std::cmp::Reverse(secret.len()));
    secrets.dedup();
    secrets
}

fn percent_encoded(text: &str) -> String {
    let byte = |byte: u8| match byte {
        b'-' | b'.' | b'_' | b'~' => char::from(byte).to_string(),
        byte if byte.is_ascii_alphanumeric() => char::from(byte).to_string(),
        byte => format!("%{byte:02X}"),
    };
    text.bytes().map(byte).collect()
}

/// Removes user info and query of each URL.
fn without_user_info(text: &str) -> String {
    let mut cleaned = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("://") {
        cleaned.push_str(before);
        cleaned.push_str("://");
        let end = after.find(|c: char| c.is_whitespace() || "\"'<>`".contains(c)).unwrap_or(after.len());
        let (url, behind) = after.split_at(end);
        // A password may contain any character, also a slash that is not encoded.
        let url = url.rsplit_once('@').map_or(url, |(_, url)| url);
        cleaned.push_str(url.split(['?', '#']).next().unwrap_or_default());
        rest = behind;
    }
    cleaned.push_str(rest);
    cleaned
}

fn shortened(text: &str) -> String {
    if text.chars().count() <= CHARS_MAX {
        return text.to_owned();
    }
    let mut short: String = text.chars().take(CHARS_MAX - 1).collect();
    short.push('…');
    short
}

// === impl Said ===

impl fmt::Display for Said {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Errors are logged with `Debug` as well, so this shows nothing.
impl fmt::Debug for Said {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Said(…)")
    }
}

#[cfg(test)]
mod tests;
