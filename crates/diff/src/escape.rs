//! Escapes values for outputs: each output has its own control syntax.
//!
//! All output passes through here, including names and messages: they are from definitions, and a
//! definition may be from a fork.

use serde_json::Value;
use tidegate_core::yaml;

/// A text on one line, safe for a terminal and the log of a pipeline.
///
/// Escapes characters that move the cursor or hide text, and commands of pipeline runners:
/// `::error::` at the beginning of a line, `##[error]` and similar ones anywhere.
pub(super) fn line(text: &str) -> String {
    let mut shown = yaml::printable(text);
    if shown.trim_start().starts_with("::") {
        shown = shown.replacen(':', "\\u{3a}", 1);
    }
    let mut safe = String::with_capacity(shown.len());
    let mut rest = shown.as_str();
    while let Some(start) = rest.find("##") {
        let (before, behind) = rest.split_at(start + 2);
        let word = behind.len() - behind.trim_start_matches(|c: char| c == '#' || c.is_ascii_alphanumeric()).len();
        let (word, behind) = behind.split_at(word);
        safe.extend([before, word]);
        rest = behind.strip_prefix('[').map_or(behind, |behind| {
            safe.push_str("\\u{5b}");
            behind
        });
    }
    safe.push_str(rest);
    safe
}

/// Cuts a text to a number of characters.
pub(super) fn cut(text: &str, characters_max: usize) -> String {
    match text.char_indices().nth(characters_max) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// A text with short ids: of a commit or a digest, the first characters tell which one is meant.
pub(super) fn short_ids(text: &str) -> String {
    /// Shorter runs of such digits may be anything.
    const DIGITS_MIN: usize = 40;
    const SHOWN: usize = 10;
    let is_digit = |c: char| c.is_ascii_digit() || ('a'..='f').contains(&c);
    let mut shown = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(start) = rest.find(is_digit) {
        let (before, behind) = rest.split_at(start);
        let (run, behind) = behind.split_at(behind.find(|c| !is_digit(c)).unwrap_or(behind.len()));
        shown.push_str(before);
        if run.len() < DIGITS_MIN {
            shown.push_str(run);
        } else {
            // `main@sha1:…` is the name of a revision.
            if let Some(name) = shown.strip_suffix("@sha1:") {
                shown.truncate(name.len() + 1);
            }
            shown.push_str(&run[..SHOWN]);
        }
        rest = behind;
    }
    shown + rest
}

/// Text within an element of HTML.
pub(super) fn html(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in line(text).chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            _ => escaped.push(c),
        }
    }
    escaped
}

/// A code span of Markdown, which contains no markup, mention or reference.
pub(super) fn code(text: &str) -> String {
    let text = line(text);
    if text.is_empty() {
        return String::new();
    }
    let fence = "`".repeat(longest_run(&text, '`') + 1);
    let pad = if text.starts_with(['`', ' ']) || text.ends_with(['`', ' ']) { " " } else { "" };
    format!("{fence}{pad}{text}{pad}{fence}")
}

/// A sentence in Markdown: as it is if nothing in it could be markup, a mention, a reference or a
/// link, otherwise a code span.
pub(super) fn sentence(text: &str) -> String {
    let is_harmless = |c: char| c.is_alphanumeric() || " .,:;-+()%→".contains(c);
    if text.chars().all(is_harmless) && !text.contains("www.") { text.to_owned() } else { code(text) }
}

/// A fence of Markdown that is longer than any fence in the text.
pub(super) fn fence<'a>(lines: impl Iterator<Item = &'a str>) -> String {
    let longest = lines.map(|line| longest_run(line, '`')).max().unwrap_or_default();
    "`".repeat(longest.max(2) + 1)
}

fn longest_run(text: &str, wanted: char) -> usize {
    text.split(|c| c != wanted).map(str::len).max().unwrap_or_default()
}

/// Text or an attribute of XML 1.0, which cannot represent most control characters or
/// noncharacters: [`line()`] removes all of them.
pub(super) fn xml(text: &str) -> String {
    html(text)
}

/// The message of a workflow command of GitHub.
pub(super) fn message(text: &str) -> String {
    text.replace('%', "%25").replace('\r', "%0D").replace('\n', "%0A")
}

/// A property of a workflow command of GitHub.
pub(super) fn property(text: &str) -> String {
    message(text).replace(':', "%3A").replace(',', "%2C")
}

/// A path as a relative reference.
pub(super) fn uri(path: &str) -> String {
    let mut uri = String::with_capacity(path.len());
    for byte in path.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' => uri.push(char::from(byte)),
            _ => uri.push_str(&format!("%{byte:02X}")),
        }
    }
    uri
}

/// JSON for a stream that a user may look at: characters that could control a terminal or a runner
/// are escaped as `\u`, which parses to the same value.
pub(super) fn json(value: &Value) -> String {
    let text = format!("{value:#}\n");
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        // JSON itself escapes lower characters. Outside of strings there are none of these.
        if c >= '\u{7f}' && yaml::printable(c.encode_utf8(&mut [0; 4])).starts_with('\\') {
            for unit in c.encode_utf16(&mut [0; 2]) {
                escaped.push_str(&format!("\\u{unit:04x}"));
            }
        } else if c == '[' && is_command(&escaped) {
            escaped.push_str("\\u005b");
        } else {
            escaped.push(c);
        }
    }
    escaped
}

/// Whether a text ends in `##` and a word, so that `[` would turn it into a runner command.
fn is_command(text: &str) -> bool {
    let word = text.trim_end_matches(|c: char| c == '#' || c.is_ascii_alphanumeric());
    text[word.len()..].contains("##")
}

#[cfg(test)]
mod tests;
