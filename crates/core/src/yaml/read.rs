//! Parses text to trees.
//!
//! The stream is split into documents. Each document is read as events, and its tree is built
//! without recursion. So only the limit restricts the nesting depth, never the stack.

mod explain;
mod lenient;
mod scalar;
mod tree;

pub use self::lenient::{Scalar, scalars};
use super::{Limits, Node, ParseError, ParseErrorKind};

/// Decodes UTF-8, with or without a byte order mark.
///
/// # Errors
///
/// Fails with the position of the first invalid byte.
pub fn decode(bytes: &[u8]) -> Result<&str, ParseError> {
    let text = std::str::from_utf8(bytes).map_err(|error| {
        let before = &bytes[..error.valid_up_to()];
        let start = before.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        let in_line = String::from_utf8_lossy(&before[start..]).chars().count();
        let byte = bytes.get(error.valid_up_to()).copied().unwrap_or_default();
        ParseError {
            line: count_lines(before) + 1,
            column: u32::try_from(in_line).unwrap_or(u32::MAX - 1) + 1,
            kind: ParseErrorKind::NotUtf8,
            message: format!("the byte 0x{byte:02x} is not UTF-8"),
            hint: Some("save the file as UTF-8".to_owned()),
        }
    })?;
    Ok(text.strip_prefix('\u{feff}').unwrap_or(text))
}

/// All documents of a stream, without empty ones.
///
/// # Errors
///
/// Fails with the first error.
pub fn parse(text: &str, limits: &Limits) -> Result<Vec<Node>, ParseError> {
    parse_each(text, limits).into_iter().collect()
}

/// Every document of a stream, without empty ones, or its error.
///
/// As for kubectl, a document ends at a line that begins with `---`, so an error in one does not
/// affect the next.
pub fn parse_each(text: &str, limits: &Limits) -> Vec<Result<Node, ParseError>> {
    let documents = documents(text);
    if let Some((line, _)) = documents.get(limits.documents_max) {
        return vec![Err(ParseError {
            line: *line + 1,
            column: 1,
            kind: ParseErrorKind::Limit,
            message: format!("the file has {} documents; the limit is {}", documents.len(), limits.documents_max),
            hint: Some("split it into several files".to_owned()),
        })];
    }
    documents.into_iter().flat_map(|(line, document)| tree::read(document, line, limits)).collect()
}

/// The documents of a stream, with the number of lines before each.
fn documents(text: &str) -> Vec<(u32, &str)> {
    let mut documents = Vec::new();
    let (mut start, mut start_line, mut offset) = (0, 0, 0);
    let mut has_content = false;
    let mut only_directives = true;
    for (number, line) in (0_u32..).zip(text.split_inclusive('\n')) {
        let marker =
            line.strip_prefix("---").is_some_and(|rest| rest.is_empty() || rest.starts_with(char::is_whitespace));
        // Directives (`%YAML 1.2`) belong to the document whose marker follows.
        if marker && !(has_content && only_directives) {
            if has_content {
                documents.push((start_line, &text[start..offset]));
            }
            (start, start_line, has_content) = (offset, number, false);
        }
        let trimmed = line.trim();
        let content = if marker { trimmed[3..].trim_start() } else { trimmed };
        if !content.is_empty() && !content.starts_with('#') && content != "..." {
            only_directives = content.starts_with('%') && (!has_content || only_directives);
            has_content = true;
        }
        offset += line.len();
    }
    if has_content {
        documents.push((start_line, &text[start..]));
    }
    documents
}

fn count_lines(bytes: &[u8]) -> u32 {
    u32::try_from(bytes.iter().filter(|byte| **byte == b'\n').count()).unwrap_or(u32::MAX - 1)
}
