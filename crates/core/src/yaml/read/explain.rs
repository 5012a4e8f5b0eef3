//! Explains errors to users: what is wrong, where, and what to do. Messages quote only keys.

use granit_parser::{ErrorKind, ScanError};

use crate::yaml::{Limits, ParseError, ParseErrorKind, short};

/// Line and column, from 1.
pub(super) type At = (u32, u32);

/// Explains a parser error.
pub(super) fn explain(error: &ScanError, text: &str, lines_before: u32, limits: &Limits) -> ParseError {
    let number = |value: usize| u32::try_from(value).unwrap_or(u32::MAX - 1);
    let marker = error.marker();
    let (mut line, mut column) = (number(marker.line()).max(1), number(marker.col()) + 1);
    // At the end of the text, the parser reports a line that does not exist. The last line with text is more useful.
    let content = text.trim_end();
    let last = number(content.lines().count().max(1));
    if last < line {
        line = last;
        column = content.lines().last().map_or(1, |line| number(line.chars().count()) + 1);
    }
    let (kind, mut message, mut hint) = sentence(error, limits);
    let at = usize::try_from(line).ok().and_then(|line| text.lines().nth(line.checked_sub(1)?));
    let found = at.and_then(|content| content.chars().nth(usize::try_from(column).ok()?.checked_sub(1)?));
    if let (ErrorKind::UnexpectedCharacter { .. }, Some(found)) =
        (error.kind(), found.filter(|found| found.is_control()))
    {
        message = format!("the control character U+{:04X} is not allowed in YAML", u32::from(found));
        hint = Some("remove it; an editor may not show it");
    }
    // Some mistakes confuse the parser in many ways. The user needs to know the mistake itself.
    let mistake = if kind == ParseErrorKind::Syntax { mistake(text, line, &message) } else { None };
    match mistake {
        Some((at, message, hint)) => at_line(at, lines_before, kind, message.to_owned(), Some(hint)),
        None => at_line((line, column), lines_before, kind, message, hint),
    }
}

/// A syntax error that this reader detects.
pub(super) fn syntax(at: At, lines_before: u32, message: &str, hint: &'static str) -> ParseError {
    at_line(at, lines_before, ParseErrorKind::Syntax, message.to_owned(), Some(hint))
}

/// A duplicate key.
pub(super) fn tag(at: At, lines_before: u32, tag: &str) -> ParseError {
    let message = format!("the tag `{}` has no meaning in a definition", short(tag));
    let hint = "write the value that it stands for, or name the file in `ignore`";
    at_line(at, lines_before, ParseErrorKind::Tag, message, Some(hint))
}

pub(super) fn duplicate_key(at: At, lines_before: u32, key: &str) -> ParseError {
    let message = format!("the key `{}` occurs twice in this mapping", short(key));
    at_line(at, lines_before, ParseErrorKind::DuplicateKey, message, Some("remove one of them"))
}

/// Too many levels.
pub(super) fn depth(at: At, lines_before: u32, limits: &Limits) -> ParseError {
    let (kind, message, hint) = depth_sentence(limits);
    at_line(at, lines_before, kind, message, hint)
}

/// Too many values.
pub(super) fn nodes(at: At, lines_before: u32, limits: &Limits) -> ParseError {
    let message = format!("the document has more than the limit of {} values", limits.nodes_max);
    at_line(at, lines_before, ParseErrorKind::Limit, message, Some("split it into several documents"))
}

/// Too many values by aliases.
pub(super) fn aliases(at: At, lines_before: u32, limits: &Limits) -> ParseError {
    let message =
        format!("aliases make this document larger than the limit of {} added values", limits.alias_nodes_max);
    at_line(at, lines_before, ParseErrorKind::Limit, message, Some("write the values out, or use fewer aliases"))
}

fn at_line(
    (line, column): At,
    lines_before: u32,
    kind: ParseErrorKind,
    message: String,
    hint: Option<&'static str>,
) -> ParseError {
    ParseError { line: line + lines_before, column, kind, message, hint: hint.map(str::to_owned) }
}

fn depth_sentence(limits: &Limits) -> (ParseErrorKind, String, Option<&'static str>) {
    let message = format!("lists and mappings are nested deeper than the limit of {} levels", limits.depth_max);
    (ParseErrorKind::Limit, message, Some("reduce the nesting"))
}

fn sentence(error: &ScanError, limits: &Limits) -> (ParseErrorKind, String, Option<&'static str>) {
    let (message, hint) = match error.kind() {
        ErrorKind::RecursionLimitExceeded => return depth_sentence(limits),
        ErrorKind::UnclosedQuotedScalar => ("this quote is never closed", "close it on the same line"),
        ErrorKind::InvalidQuotedScalarIndent | ErrorKind::DocumentIndicatorInQuotedScalar => {
            (OPEN_QUOTE, "close it on the line where it begins")
        }
        ErrorKind::UnclosedFlowCollection { .. }
        | ErrorKind::UnexpectedEofFlowSequence
        | ErrorKind::UnexpectedEofFlowMapping
        | ErrorKind::UnexpectedEofImplicitFlowMapping => {
            ("this bracket is never closed", "close it, or quote a string that begins with a bracket")
        }
        ErrorKind::InvalidFlowScalarIndent => (OPEN_BRACKET, "close it on the line where it begins"),
        ErrorKind::MisplacedFlowCollectionEnd => {
            ("this closing bracket has no opening one", "remove it, or quote the string")
        }
        ErrorKind::MismatchedFlowCollectionEnd { .. } => {
            ("this bracket does not match the opening one", "`[` goes with `]` and `{` with `}`")
        }
        ErrorKind::ExpectedFlowMappingSeparator => {
            ("`,` or `}` is missing here", "fields between braces are separated by `,`")
        }
        ErrorKind::ExpectedFlowSequenceSeparator => {
            ("`,` or `]` is missing here", "items between brackets are separated by `,`")
        }
        ErrorKind::InvalidColonPlacement | ErrorKind::FlowMappingValueAdjacentCollection => {
            (COLON_MISPLACED, "check the lines above for a bracket or quote that is not closed")
        }
        ErrorKind::ExpectedBlockMappingKey => (
            "expected a field `name: value` here",
            "check the indentation of this line: fields of one mapping begin in the same column",
        ),
        ErrorKind::ExpectedBlockSequenceEntry => (
            "expected an item of the list, `- …`, here",
            "check the indentation of this line: items of one list begin in the same column",
        ),
        ErrorKind::MappingValueNotAllowed | ErrorKind::MappingKeyNotAllowed => {
            (SECOND_COLON, "check the indentation, or quote a value that contains `: `")
        }
        ErrorKind::SimpleKeyExpected | ErrorKind::InvalidSimpleKey => {
            ("this line has no `:` after its key", "write `name: value`")
        }
        ErrorKind::InvalidIndentation => (INDENTATION, "use two spaces for each level"),
        ErrorKind::TabNotAllowed
        | ErrorKind::TabInBlockIndentation
        | ErrorKind::TabAtBlockScalarStart
        | ErrorKind::TabInIndentation
        | ErrorKind::TabInPlainScalar => ("YAML must not be indented with tabs", "indent with spaces"),
        ErrorKind::UnexpectedCharacter { .. } => {
            ("this character cannot begin a value", "quote a value that begins with `@`, `` ` ``, `%`, `&`, `*` or `!`")
        }
        ErrorKind::MissingAnchorOrAliasName => {
            ("`&` or `*` must be followed by a name", "quote a value that begins with `&` or `*`")
        }
        ErrorKind::UnknownAnchor => (
            "this alias names an anchor that does not exist",
            "define it with `&` before, or quote a string that begins with `*`",
        ),
        ErrorKind::BlockSequenceEntryNotAllowed | ErrorKind::BlockEntryInFlowCollection => {
            ("a list must not begin here", "start the list on a new line below the key")
        }
        ErrorKind::UnknownQuotedScalarEscape | ErrorKind::InvalidQuotedScalarHexEscape => {
            ("this escape after `\\` is unknown", "write `\\\\` for a backslash, or use single quotes")
        }
        ErrorKind::InvalidTrailingSingleQuotedScalar | ErrorKind::InvalidTrailingDoubleQuotedScalar => {
            ("text follows the closing quote", "quote the whole value")
        }
        ErrorKind::CommentInterceptedScalar => {
            ("a comment interrupts this text", "quote the string, or move the comment")
        }
        ErrorKind::CommentNotSeparated => ("a `#` must follow a space", "put a space before `#`, or quote the text"),
        ErrorKind::UndeclaredTagHandle => ("this tag is unknown", "quote a value that begins with `!`"),
        ErrorKind::ExpectedNodeContent => {
            ("a value is missing here", "write a value, or quote one that begins with a special character")
        }
        ErrorKind::BomInsideDocument => ("a byte order mark is in the middle of the text", "remove it"),
        ErrorKind::InvalidBlockScalarIndent => {
            ("this line of the text block is indented less than its first line", "indent it like the first line")
        }
        // Reports the parser's own words, which never quote the text. The kinds above cover all common mistakes.
        other => {
            let words = other.to_string();
            if words.contains("document start") {
                let message = "the document above has ended, and no new document starts here".to_owned();
                return (ParseErrorKind::Syntax, message, Some("separate documents by a line `---`"));
            }
            let message = format!("this is not valid YAML: {}", short(&words));
            return (ParseErrorKind::Syntax, message, Some("check this line and the one above"));
        }
    };
    (ParseErrorKind::Syntax, message.to_owned(), Some(hint))
}

/// The mistake behind a syntax error: where it is, what it is, and what to do.
fn mistake(text: &str, line: u32, message: &str) -> Option<(At, &'static str, &'static str)> {
    if let Some(at) = conflict(text) {
        return Some((at, "this is a marker of an unresolved merge conflict", "resolve the merge and commit again"));
    }
    if let Some(at) = tab_in_indentation(text, line) {
        return Some((at, "YAML must not be indented with tabs", "indent with spaces"));
    }
    if message == SECOND_COLON
        && let Some(found) = no_key(text, line)
    {
        return Some(found);
    }
    if !MISPLACED.contains(&message) {
        return None;
    }
    let (at, opening) = left_open(text, line)?;
    Some(match opening {
        '[' | '{' => (at, "this bracket is never closed", "close it, or quote a string that begins with a bracket"),
        _ => (at, "this quote is never closed", "close it on the same line"),
    })
}

/// The parser's errors when an earlier quote or bracket is not closed.
const MISPLACED: [&str; 4] = [COLON_MISPLACED, OPEN_QUOTE, OPEN_BRACKET, INDENTATION];
const COLON_MISPLACED: &str = "unexpected `:`";
const SECOND_COLON: &str = "unexpected second `:`";
const OPEN_QUOTE: &str = "a quote above is not closed";
const OPEN_BRACKET: &str = "a bracket above is not closed";
const INDENTATION: &str = "the indentation of this line matches no line above";

/// Why the line above a `:` is not a separate field, so that the parser reads both lines as one
/// string.
fn no_key(text: &str, line: u32) -> Option<(At, &'static str, &'static str)> {
    let (number, above) = (1..)
        .zip(text.lines())
        .take_while(|(number, _)| *number < line)
        .filter(|(_, content)| {
            let content = content.trim_start();
            !content.is_empty() && !content.starts_with('#')
        })
        .last()?;
    let column = |byte: usize| u32::try_from(above[..byte].chars().count()).unwrap_or(u32::MAX - 1) + 1;
    if above.starts_with("----") {
        return Some(((number, 1), "exactly three `-` separate documents", "write `---`"));
    }
    let colon = above.find(':')?;
    let behind = above[colon + 1..].chars().next()?;
    if behind != ' ' && behind.is_whitespace() {
        let hint = "replace the character after the `:` with a plain space; it may be a no-break space";
        return Some(((number, column(colon + 1)), "this is not a plain space", hint));
    }
    let is_key =
        above[..colon].trim_start_matches(['-', ' ']).chars().all(|c| c.is_alphanumeric() || "-_./".contains(c));
    if is_key && !behind.is_whitespace() && behind != '/' {
        return Some(((number, column(colon)), "a space is missing after this `:`", "write `name: value`"));
    }
    let indentation = |content: &str| content.len() - content.trim_start_matches([' ', '-']).len();
    let own = text.lines().nth(usize::try_from(line).ok()?.checked_sub(1)?)?;
    if is_key && !above[colon + 1..].trim().is_empty() && indentation(above) < indentation(own) {
        let at = (line, u32::try_from(indentation(own)).ok()? + 1);
        return Some((
            at,
            "this line is indented deeper than the one above, which already has a value",
            "indent it like the line above",
        ));
    }
    None
}

/// The first marker of an unresolved merge conflict.
fn conflict(text: &str) -> Option<At> {
    let is_mark = |line: &str| ["<<<<<<< ", ">>>>>>> ", "======="].iter().any(|mark| line.starts_with(mark));
    let lines: Vec<u32> = (1..).zip(text.lines()).filter(|(_, line)| is_mark(line)).map(|(number, _)| number).collect();
    // A single row of `=` may be a heading in a comment or a string.
    if lines.len() < 2 { None } else { lines.first().map(|line| (*line, 1)) }
}

/// The nearest unclosed quote or bracket at or above a line.
fn left_open(text: &str, line: u32) -> Option<(At, char)> {
    /// How many lines to search. An earlier quote or bracket is probably intended.
    const LINES_MAX: usize = 50;
    let before: Vec<(u32, &str)> = (1..).zip(text.lines()).take_while(|(number, _)| *number <= line).collect();
    before.iter().rev().take(LINES_MAX).find_map(|(number, content)| {
        let (column, opening) = open_in_line(content)?;
        Some(((*number, column), opening))
    })
}

fn open_in_line(line: &str) -> Option<(u32, char)> {
    let mut brackets = Vec::new();
    let mut quote = None;
    let mut before = ' ';
    for (column, c) in (1_u32..).zip(line.chars()) {
        match (quote, c) {
            (Some((_, open)), _) if c == open => quote = None,
            (Some(_), _) => {}
            // Within a word, a quote is an apostrophe and a bracket is an ordinary character.
            (None, '"' | '\'') if !before.is_alphanumeric() => quote = Some((column, c)),
            (None, '[' | '{') if !before.is_alphanumeric() => brackets.push((column, c)),
            (None, ']' | '}') => {
                brackets.pop();
            }
            (None, '#') if before.is_whitespace() => break,
            (None, _) => {}
        }
        before = c;
    }
    quote.or_else(|| brackets.first().copied())
}

/// A tab in the leading white space of the line with the error, or of a neighbouring line.
fn tab_in_indentation(text: &str, line: u32) -> Option<At> {
    [line, line + 1, line.saturating_sub(1)].into_iter().filter(|number| *number != 0).find_map(|number| {
        let content = text.lines().nth(usize::try_from(number).ok()? - 1)?;
        let white = content.chars().take_while(|c| c.is_whitespace());
        let before = white.take_while(|c| *c != '\t').count();
        let is_tab = content.chars().nth(before) == Some('\t');
        is_tab.then(|| (number, u32::try_from(before).unwrap_or(u32::MAX - 1) + 1))
    })
}
