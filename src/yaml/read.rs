//! Text to trees.

use std::{collections::HashSet, fmt};

use serde::{
    Deserialize, Deserializer,
    de::{self, MapAccess, SeqAccess, Visitor},
};
use serde_saphyr::{Error, Spanned};

use super::{Entry, Limits, Node, NodeValue, ParseError, ParseErrorKind};

/// Floats up to here are exact integers when they have no fraction: kubectl writes them as integers.
const EXACT_INTEGER_MAX: f64 = 9e15;

/// Bytes to text: UTF-8, with or without a byte order mark.
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

/// All documents of a stream, or the first error. Documents without content are left out.
pub fn parse(text: &str, limits: &Limits) -> Result<Vec<Node>, ParseError> {
    parse_each(text, limits).into_iter().collect()
}

/// Every document of a stream, each read or with its error. Documents without content are left out.
///
/// A document ends where a line begins with `---`, as for kubectl, so an error in one does not reach the next.
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
    documents.into_iter().flat_map(|(line, document)| parse_document(document, line, limits)).collect()
}

/// The documents of a stream with the number of lines before each.
fn documents(text: &str) -> Vec<(u32, &str)> {
    let mut documents = Vec::new();
    let (mut start, mut start_line, mut offset) = (0, 0, 0);
    let mut has_content = false;
    let mut only_directives = true;
    for (number, line) in (0_u32..).zip(text.split_inclusive('\n')) {
        let marker =
            line.strip_prefix("---").is_some_and(|rest| rest.is_empty() || rest.starts_with(char::is_whitespace));
        // Directives (`%YAML 1.2`) belong to the document whose marker follows them.
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

fn parse_document(text: &str, lines_before: u32, limits: &Limits) -> Vec<Result<Node, ParseError>> {
    let options = serde_saphyr::options! {
        legacy_octal_numbers: true,
        with_snippet: false,
        ignore_binary_tag_for_string: true,
        budget: serde_saphyr::budget! {
            max_depth: limits.depth_max,
            flow_nesting_limit: limits.depth_max,
            max_nodes: limits.nodes_max,
            // Ends of lists and mappings are events as well.
            max_events: limits.nodes_max.saturating_mul(2).saturating_add(limits.alias_nodes_max.saturating_mul(2)),
            max_recorded_anchor_events: limits.nodes_max,
            // Comments before an entry are cheap, and a licence at the top of a file has more than the default of 32.
            max_buffered_comment_events: 100_000,
            // Growth is limited itself; how many aliases share an anchor says nothing.
            enforce_alias_anchor_ratio: false,
        },
        alias_limits: serde_saphyr::alias_limits! {
            max_total_replayed_events: limits.alias_nodes_max,
        },
    };
    match serde_saphyr::from_multiple_with_options::<Node>(text, options) {
        Ok(mut nodes) => {
            if lines_before != 0 {
                nodes.iter_mut().for_each(|node| node.shift(lines_before));
            }
            nodes.into_iter().map(Ok).collect()
        }
        Err(error) => vec![Err(explain(&error, text, lines_before, limits))],
    }
}

// === reading ===

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Node, D::Error> {
        let spanned = Spanned::<NodeValue>::deserialize(deserializer)?;
        let (line, column) = position(&spanned);
        Ok(Node { value: spanned.value, line, column })
    }
}

impl<'de> Deserialize<'de> for NodeValue {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<NodeValue, D::Error> {
        deserializer.deserialize_any(ValueVisitor)
    }
}

/// A key, as text: kubectl reads a plain `1` or `on` as a number or boolean and writes it as JSON text.
struct KeyText(String);

impl<'de> Deserialize<'de> for KeyText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<KeyText, D::Error> {
        let text = match deserializer.deserialize_any(ValueVisitor)? {
            NodeValue::Null => "null".to_owned(),
            NodeValue::Bool(flag) => flag.to_string(),
            NodeValue::Int(number) => number.to_string(),
            NodeValue::UInt(number) => number.to_string(),
            NodeValue::Float(number) => number.to_string(),
            NodeValue::Str(text) => text,
            NodeValue::Seq(_) | NodeValue::Map(_) => return Err(de::Error::custom(COMPLEX_KEY)),
        };
        Ok(KeyText(text))
    }
}

/// What a key that is a list or a mapping is answered with.
const COMPLEX_KEY: &str = "a key must be a text, not a list or a mapping";
/// How the sentence about a second key begins.
const DUPLICATE_KEY: &str = "the key occurs twice: ";

fn position<T>(spanned: &Spanned<T>) -> (u32, u32) {
    let at = if spanned.referenced.line() == 0 { spanned.defined } else { spanned.referenced };
    let number = |value: u64| u32::try_from(value).unwrap_or(u32::MAX);
    (number(at.line()), number(at.column()))
}

struct ValueVisitor;

impl<'de> Visitor<'de> for ValueVisitor {
    type Value = NodeValue;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any YAML value")
    }

    fn visit_unit<E>(self) -> Result<NodeValue, E> {
        Ok(NodeValue::Null)
    }

    fn visit_none<E>(self) -> Result<NodeValue, E> {
        Ok(NodeValue::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<NodeValue, D::Error> {
        NodeValue::deserialize(deserializer)
    }

    fn visit_bool<E>(self, flag: bool) -> Result<NodeValue, E> {
        Ok(NodeValue::Bool(flag))
    }

    fn visit_i64<E>(self, number: i64) -> Result<NodeValue, E> {
        Ok(NodeValue::Int(number))
    }

    fn visit_u64<E>(self, number: u64) -> Result<NodeValue, E> {
        Ok(i64::try_from(number).map_or(NodeValue::UInt(number), NodeValue::Int))
    }

    fn visit_f64<E>(self, number: f64) -> Result<NodeValue, E> {
        if number.fract() == 0.0 && number.abs() < EXACT_INTEGER_MAX {
            // `as` is exact here: an integer below 2^53.
            return Ok(NodeValue::Int(number as i64));
        }
        Ok(NodeValue::Float(number))
    }

    fn visit_str<E>(self, text: &str) -> Result<NodeValue, E> {
        Ok(NodeValue::Str(text.to_owned()))
    }

    fn visit_string<E>(self, text: String) -> Result<NodeValue, E> {
        Ok(NodeValue::Str(text))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<NodeValue, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = access.next_element()? {
            items.push(item);
        }
        Ok(NodeValue::Seq(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<NodeValue, A::Error> {
        let mut entries = Vec::new();
        let mut seen = HashSet::new();
        while let Some((key, value)) = access.next_entry::<Spanned<KeyText>, Node>()? {
            let (key_line, key_column) = position(&key);
            let key = key.value.0;
            // The crate compares keys as they are written; `on` and `true` are one key for kubectl.
            if !seen.insert(key.clone()) {
                return Err(de::Error::custom(format!("{DUPLICATE_KEY}{key_line}:{key_column}:{key}")));
            }
            entries.push(Entry { key, key_line, key_column, value });
        }
        Ok(NodeValue::Map(entries))
    }
}

// === errors ===

fn explain(error: &Error, text: &str, lines_before: u32, limits: &Limits) -> ParseError {
    let mut cause = error;
    while let Error::AliasError { error, .. } | Error::WithSnippet { error, .. } = cause {
        cause = error;
    }
    let at = error.location().filter(|at| at.line() != 0);
    let number = |value: u64| u32::try_from(value).unwrap_or(u32::MAX);
    let (mut line, mut column) = at.map_or((1, 1), |at| (number(at.line()), number(at.column())));
    // At the end of the text the parser stands on a line that does not exist; the last line with text says more.
    let last = u32::try_from(text.trim_end().lines().count().max(1)).unwrap_or(u32::MAX);
    if last < line {
        line = last;
        let end = text.trim_end().lines().last().map_or(0, |line| line.chars().count());
        column = u32::try_from(end).unwrap_or(u32::MAX - 1) + 1;
    }
    let (kind, message, hint) = sentence(cause, limits);
    if let (ParseErrorKind::DuplicateKey, Some((key_line, key_column))) = (kind, duplicate_position(cause)) {
        (line, column) = (key_line, key_column);
    }
    // Some mistakes confuse the parser in many ways; the user wants to hear of the mistake.
    let mistake = if kind == ParseErrorKind::Syntax { mistake(text, line, &message) } else { None };
    match mistake {
        Some(((line, column), message, hint)) => ParseError {
            line: line + lines_before,
            column,
            kind,
            message: message.to_owned(),
            hint: Some(hint.to_owned()),
        },
        None => ParseError { line: line + lines_before, column, kind, message, hint },
    }
}

fn sentence(cause: &Error, limits: &Limits) -> (ParseErrorKind, String, Option<String>) {
    use ParseErrorKind::{DuplicateKey, Limit, Syntax};
    let some = |hint: &str| Some(hint.to_owned());
    match cause {
        Error::DuplicateMappingKey { key, .. } => {
            let message = key.as_deref().map_or_else(
                || "a key occurs twice in this mapping".to_owned(),
                |key| format!("the key `{}` occurs twice in this mapping", super::short(key)),
            );
            (DuplicateKey, message, some("remove one of them"))
        }
        Error::Message { msg, .. } if msg.starts_with(DUPLICATE_KEY) => {
            let key = msg[DUPLICATE_KEY.len()..].splitn(3, ':').nth(2).unwrap_or_default();
            (
                DuplicateKey,
                format!("the key `{}` occurs twice in this mapping", super::short(key)),
                some("remove one of them"),
            )
        }
        Error::Message { msg, .. } if msg.starts_with(COMPLEX_KEY) => {
            (Syntax, COMPLEX_KEY.to_owned(), some("braces begin a mapping: quote the text if it begins with one"))
        }
        Error::Budget { breach, .. } => limit(breach, limits),
        Error::AliasReplayLimitExceeded { .. }
        | Error::AliasExpansionLimitExceeded { .. }
        | Error::AliasReplayStackDepthExceeded { .. } => (
            Limit,
            format!("aliases make this document larger than the limit of {} added values", limits.alias_nodes_max),
            some("write the values out, or use fewer aliases"),
        ),
        Error::UnknownAnchor { .. } => (
            Syntax,
            "this alias names an anchor that does not exist".to_owned(),
            some("define it with `&` before, or quote a text that begins with `*`"),
        ),
        Error::RecursiveReferencesRequireWeakTypes { .. } => {
            (Syntax, "this alias stands within its own anchor".to_owned(), some("a value cannot contain itself"))
        }
        Error::NonFiniteFloat { .. } => (
            Syntax,
            "this number is infinite or no number, which JSON cannot say".to_owned(),
            some("quote it if it is a text"),
        ),
        Error::MergeValueNotMapOrSeqOfMaps { .. } => {
            (Syntax, "`<<` must be followed by a mapping or an alias of one".to_owned(), None)
        }
        Error::InvalidScalar { ty, .. } => {
            (Syntax, format!("this value is not a {ty}, as its tag says"), some("remove the tag"))
        }
        Error::ExternalMessage { msg, .. } => syntax(msg, limits),
        _ => (Syntax, "this is not valid YAML".to_owned(), None),
    }
}

/// The parser's own errors, in the user's words. Its message is matched since its kinds are not part of the API.
fn syntax(message: &str, limits: &Limits) -> (ParseErrorKind, String, Option<String>) {
    const TABLE: &[(&str, &str, &str)] = &[
        ("tab", "a tab must not indent YAML", "indent with spaces"),
        ("unclosed quote", "this quote is never closed", "close it on the same line"),
        ("unclosed bracket", "this bracket is never closed", "close it, or quote a text that begins with a bracket"),
        ("misplaced bracket", "this closing bracket has no opening one", "remove it, or quote the text"),
        ("mismatched bracket", "this bracket closes another kind of bracket", "`[` goes with `]` and `{` with `}`"),
        ("unexpected EOF while parsing a flow", "a bracket is never closed", "close `[` or `{`"),
        ("unexpected EOF while parsing an implicit flow", "a bracket is never closed", "close `[` or `{`"),
        ("while parsing a flow mapping", "`,` or `}` is missing here", "fields between braces are separated by `,`"),
        ("while parsing a flow sequence", "`,` or `]` is missing here", "items between brackets are separated by `,`"),
        ("invalid indentation in multiline quoted", OPEN_QUOTE, "close it on the line where it begins"),
        ("invalid indentation in flow", OPEN_BRACKET, "close it on the line where it begins"),
        (
            "illegal placement of ':'",
            COLON_MISPLACED,
            "check the lines above for a bracket or quote that is not closed",
        ),
        (
            "while parsing a block mapping",
            "a field `name: value` must stand here",
            "check the indentation of this line: fields of one mapping begin in the same column",
        ),
        (
            "while parsing a block collection",
            "an item of the list, `- …`, must stand here",
            "check the indentation of this line: items of one list begin in the same column",
        ),
        (
            "mapping values are not allowed",
            "a second `:` makes no sense here",
            "check the indentation, or quote a value that contains `: `",
        ),
        ("simple key expected", "this line has no `:` after its key", "write `name: value`"),
        ("simple key is no longer valid", "this line has no `:` after its key", "write `name: value`"),
        ("invalid indentation", INDENTATION, "use two spaces for each level"),
        (
            "unexpected character",
            "this character cannot begin a value",
            "quote a value that begins with `@`, `` ` ``, `%`, `&`, `*` or `!`",
        ),
        (
            "while scanning an anchor or alias",
            "`&` or `*` must be followed by a name",
            "quote a value that begins with `&` or `*`",
        ),
        (
            "block sequence entries are not allowed",
            "a list must not begin on this line",
            "put `- ` on a line of its own below the key",
        ),
        (
            "while parsing a quoted scalar",
            "this escape after `\\` is unknown",
            "write `\\\\` for a backslash, or use single quotes",
        ),
        ("invalid trailing content after", "text follows the closing quote", "quote the whole value"),
        ("comment intercepting", "a comment interrupts this text", "quote the text, or move the comment"),
        ("comments must be separated", "a `#` must follow a space", "put a space before `#`, or quote the text"),
        ("the handle wasn't declared", "this tag is unknown", "quote a value that begins with `!`"),
        (
            "while parsing a node",
            "a value is missing here",
            "write a value, or quote one that begins with a special character",
        ),
        ("a BOM", "a byte order mark stands in the middle of the text", "remove it"),
        (
            "wrongly indented line in block scalar",
            "this line of the text block is indented less than its first line",
            "indent it alike",
        ),
    ];
    if message == "recursion limit exceeded" {
        return depth(limits);
    }
    let found = TABLE.iter().find(|(beginning, ..)| message.starts_with(beginning));
    match found {
        Some((_, sentence, hint)) => (ParseErrorKind::Syntax, (*sentence).to_owned(), Some((*hint).to_owned())),
        None if message.contains("tab") => {
            (ParseErrorKind::Syntax, "a tab must not indent YAML".to_owned(), Some("indent with spaces".to_owned()))
        }
        None => (ParseErrorKind::Syntax, format!("this is not valid YAML: {}", super::short(message)), None),
    }
}

fn depth(limits: &Limits) -> (ParseErrorKind, String, Option<String>) {
    let message = format!("lists and mappings are nested deeper than the limit of {} levels", limits.depth_max);
    (ParseErrorKind::Limit, message, Some("no definition needs so many".to_owned()))
}

fn limit(breach: &serde_saphyr::budget::BudgetBreach, limits: &Limits) -> (ParseErrorKind, String, Option<String>) {
    use serde_saphyr::budget::BudgetBreach;
    let hint = Some("split it into several documents".to_owned());
    let message = match breach {
        BudgetBreach::Depth { .. } => return depth(limits),
        BudgetBreach::Nodes { .. } | BudgetBreach::Events { .. } => {
            format!("the document has more than the limit of {} values", limits.nodes_max)
        }
        BudgetBreach::Aliases { .. } | BudgetBreach::Anchors { .. } | BudgetBreach::MergeKeys { .. } => {
            "the document has more anchors, aliases or merge keys than the limit of 10,000".to_owned()
        }
        BudgetBreach::RecordedAnchorEvents { .. } | BudgetBreach::RecordedAnchorBytes { .. } => {
            "the anchors of the document hold more than the limit".to_owned()
        }
        _ => "the document is larger than the reader's limits".to_owned(),
    };
    (ParseErrorKind::Limit, message, hint)
}

fn duplicate_position(cause: &Error) -> Option<(u32, u32)> {
    let Error::Message { msg, .. } = cause else { return None };
    let mut parts = msg.strip_prefix(DUPLICATE_KEY)?.splitn(3, ':');
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

/// The mistake behind a syntax error: where it is, what it is, what to do.
fn mistake(text: &str, line: u32, message: &str) -> Option<((u32, u32), &'static str, &'static str)> {
    if let Some(at) = conflict(text) {
        return Some((at, "this is the mark of a merge that was not resolved", "resolve the merge and commit again"));
    }
    if let Some(at) = tab_in_indentation(text, line) {
        return Some((at, "a tab must not indent YAML", "indent with spaces"));
    }
    if !MISPLACED.contains(&message) {
        return None;
    }
    let (at, opening) = left_open(text, line)?;
    Some(match opening {
        '[' | '{' => (at, "this bracket is never closed", "close it, or quote a text that begins with a bracket"),
        _ => (at, "this quote is never closed", "close it on the same line"),
    })
}

/// What the parser says when a quote or a bracket further up was left open.
const MISPLACED: [&str; 4] = [COLON_MISPLACED, OPEN_QUOTE, OPEN_BRACKET, INDENTATION];
const COLON_MISPLACED: &str = "a `:` makes no sense here";
const OPEN_QUOTE: &str = "a quote further up is not closed";
const OPEN_BRACKET: &str = "a bracket further up is not closed";
const INDENTATION: &str = "the indentation of this line fits nothing above it";

/// The first mark that git leaves where a merge failed.
fn conflict(text: &str) -> Option<(u32, u32)> {
    let is_mark = |line: &str| ["<<<<<<< ", ">>>>>>> ", "======="].iter().any(|mark| line.starts_with(mark));
    let lines: Vec<u32> = (1..).zip(text.lines()).filter(|(_, line)| is_mark(line)).map(|(number, _)| number).collect();
    // A single row of `=` may be a title in a comment or a text.
    if lines.len() < 2 { None } else { lines.first().map(|line| (*line, 1)) }
}

/// The nearest quote or bracket at or above a line that its own line does not close.
fn left_open(text: &str, line: u32) -> Option<((u32, u32), char)> {
    /// How far up to look: what is open for longer is probably meant.
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
            // Within a word, a quote is an apostrophe and a bracket is a letter like others.
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

/// A tab among the white space that begins the line of an error or one beside it.
fn tab_in_indentation(text: &str, line: u32) -> Option<(u32, u32)> {
    [line, line + 1, line.saturating_sub(1)].into_iter().filter(|number| *number != 0).find_map(|number| {
        let content = text.lines().nth(usize::try_from(number).ok()? - 1)?;
        let white = content.chars().take_while(|c| c.is_whitespace());
        let before = white.take_while(|c| *c != '\t').count();
        let is_tab = content.chars().nth(before) == Some('\t');
        is_tab.then(|| (number, u32::try_from(before).unwrap_or(u32::MAX - 1) + 1))
    })
}

fn count_lines(bytes: &[u8]) -> u32 {
    u32::try_from(bytes.iter().filter(|byte| **byte == b'\n').count()).unwrap_or(u32::MAX - 1)
}
