//! What a git server says of an error, cleaned for the status of the GitSource. Pure.
//!
//! The text comes from outside. It may contain escape sequences for terminals, a web page, or the credentials of the
//! request. Only the condition of the GitSource shows it: no log, Event or metric does.

use std::fmt;

use base64::{
    Engine,
    engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD},
};

use super::remote::Credentials;

/// Longest quotation. A condition has room for it beside Tidegate's own sentence.
const CHARS_MAX: usize = 200;
/// How much of an answer is read for a quotation.
pub(super) const BYTES_MAX: usize = 4 << 10;

/// A server's own words, cleaned: printable, at most 200 characters, without credentials and user info.
#[derive(Clone, PartialEq, Eq)]
pub struct ServerMessage(String);

/// Cleans what a server says. `None` if nothing remains.
pub(super) fn clean(bytes: &[u8], credentials: Option<&Credentials>) -> Option<ServerMessage> {
    let is_cut = BYTES_MAX <= bytes.len();
    let bytes = bytes.get(..BYTES_MAX).unwrap_or(bytes);
    let mut text = printable(&String::from_utf8_lossy(bytes));
    let secrets = secrets(credentials);
    for secret in &secrets {
        text = text.replace(secret, "***");
    }
    if is_cut {
        without_beginnings(&mut text, &secrets);
    }
    let text = without_tokens(&without_user_info(&text));
    let text = ["ERR ", "remote: ", "fatal: ", "error: "]
        .iter()
        .fold(text.as_str(), |text, prefix| text.strip_prefix(prefix).unwrap_or(text));
    let text = text.trim();
    (!text.is_empty()).then(|| ServerMessage(shortened(text)))
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
            vec![pair, password.clone()]
        }
    };
    let encoded: Vec<String> = secrets.iter().flat_map(|secret| encodings(secret)).collect();
    secrets.extend(encoded);
    secrets.retain(|secret| !secret.is_empty());
    // A long form may contain a short one.
    secrets.sort_by_key(|secret| std::cmp::Reverse(secret.len()));
    secrets.dedup();
    secrets
}

/// Replaces the beginning of a secret at the end of a text that was cut.
fn without_beginnings(text: &mut String, secrets: &[String]) {
    let begins =
        |secret: &String| (1..secret.len()).rev().find(|end| text.as_bytes().ends_with(&secret.as_bytes()[..*end]));
    let longest = secrets.iter().filter_map(begins).max();
    if let Some(length) = longest {
        // A character that the cut has divided is no part of the text any more.
        let end = text.floor_char_boundary(text.len() - length);
        text.truncate(end);
        text.push_str("***");
    }
}

/// Replaces tokens of others, as far as their form tells: a server may quote those of its own configuration.
fn without_tokens(text: &str) -> String {
    let is_part = |c: char| c.is_ascii_alphanumeric() || "-._~+/%".contains(c);
    let (mut cleaned, mut rest, mut before) = (String::with_capacity(text.len()), text, Word::Other);
    while let Some(start) = rest.find(is_part) {
        let (between, from) = rest.split_at(start);
        let (word, behind) = from.split_at(from.find(|c| !is_part(c)).unwrap_or(from.len()));
        cleaned.push_str(between);
        let is_name = behind.trim_start_matches(['"', '\'']).starts_with([':', '=']);
        let kind = Word::of(word, is_name);
        match (before, kind) {
            // `Authorization: Bearer` names the form of what follows.
            (Word::Header, Word::Scheme) | (Word::Other, Word::Header | Word::Scheme | Word::Other) => {
                cleaned.push_str(token_at(word).map_or(word, |at| &word[..at]));
                cleaned.push_str(if token_at(word).is_some() { "***" } else { "" });
            }
            (Word::Scheme, _) if PLAIN_WORDS.contains(&word.to_ascii_lowercase().as_str()) => cleaned.push_str(word),
            (Word::Header | Word::Scheme, _) => cleaned.push_str("***"),
        }
        before = match (before, kind) {
            (Word::Header, Word::Scheme) | (Word::Other, Word::Scheme) => Word::Scheme,
            (Word::Other, Word::Header) => Word::Header,
            (Word::Header | Word::Scheme | Word::Other, _) => Word::Other,
        };
        rest = behind;
    }
    cleaned.push_str(rest);
    cleaned
}

/// What follows a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Word {
    /// A secret, perhaps after a scheme: the word is the name of a header.
    Header,
    /// A secret: the word is a scheme of authentication.
    Scheme,
    /// Anything.
    Other,
}

/// Words after a scheme that are no secrets.
const PLAIN_WORDS: [&str; 8] =
    ["auth", "authentication", "authorization", "credentials", "is", "realm", "token", "tokens"];
/// Beginnings of tokens of GitHub, GitLab, Atlassian, AWS and Slack, and of JSON Web Tokens.
const TOKENS: [&str; 25] = [
    "ghp_",
    "gho_",
    "ghu_",
    "ghs_",
    "ghr_",
    "github_pat_",
    "glpat-",
    "gldt-",
    "glrt-",
    "glrtr-",
    "glcbt-",
    "glptt-",
    "glft-",
    "glimt-",
    "glagent-",
    "glsoat-",
    "gloas-",
    "ATATT",
    "ATBB",
    "ATCTT",
    "AKIA",
    "ASIA",
    "xoxb-",
    "xoxp-",
    "eyJ",
];

/// Where a token begins in a word: at its beginning, or after a character that no name contains.
fn token_at(word: &str) -> Option<usize> {
    let begins = |prefix: &&str| {
        word.match_indices(*prefix).map(|(at, _)| at).find(|at| {
            let is_word_before = word[..*at].ends_with(|c: char| c.is_ascii_alphanumeric() || c == '_');
            !is_word_before && at + prefix.len() < word.len()
        })
    };
    TOKENS.iter().filter_map(begins).min()
}

/// The encodings of a secret that a server may quote: percent-encoding, hex in both cases, and base64 in both
/// alphabets, with and without padding, which may be percent-encoded in turn.
fn encodings(secret: &str) -> Vec<String> {
    let nibbles = secret.bytes().flat_map(|byte| [byte >> 4, byte & 15]);
    let hex: String = nibbles.filter_map(|nibble| char::from_digit(nibble.into(), 16)).collect();
    let mut encodings = vec![percent_encoded(secret), hex.to_ascii_uppercase(), hex];
    for engine in [STANDARD_NO_PAD, URL_SAFE_NO_PAD] {
        let bare = engine.encode(secret);
        let padding = "=".repeat(bare.len().wrapping_neg() % 4);
        let padded = format!("{bare}{padding}");
        encodings.extend([percent_encoded(&padded), padded, percent_encoded(&bare), bare]);
    }
    encodings
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

// === impl Word ===

impl Word {
    /// `is_name` says whether a colon or an equals sign follows.
    fn of(word: &str, is_name: bool) -> Word {
        let word = word.to_ascii_lowercase();
        let is_header = word == "authorization" || word == "proxy-authorization" || word.ends_with("-token");
        match word.as_str() {
            _ if is_name && is_header => Word::Header,
            "bearer" | "basic" => Word::Scheme,
            _ => Word::Other,
        }
    }
}

// === impl ServerMessage ===

impl fmt::Display for ServerMessage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Errors are logged with `Debug` as well, so this shows nothing.
impl fmt::Debug for ServerMessage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ServerMessage(…)")
    }
}

#[cfg(test)]
mod tests;
