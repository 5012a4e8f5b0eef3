//! Maps a line of output to the line of the template that wrote it.
//!
//! Markers are inserted at the ends of template lines, and the template is rendered again. The
//! position of a marker in the output shows which line wrote it. This happens only if the output
//! has an error, so a valid rendering costs nothing extra. Templates that exceed a limit are traced
//! in a similar way.

/// Delimiters of a line number. They are in the private use area, so user texts do not contain
/// them.
const OPEN: char = '\u{f0f0}';
const CLOSE: char = '\u{f0f1}';

/// The function that traced templates call with their name and line.
pub(super) const REPORT: &str = "_reached";

/// The template with a marker at the end of each line whose end is text.
///
/// Lines that end in a tag get none: the engine removes the line break after a tag, and a marker
/// would keep it.
pub(super) fn marked(text: &str) -> String {
    let mut marked = String::with_capacity(text.len() * 2);
    let mut rest = text;
    let mut line = 1;
    let mut after_tag = false;
    while let Some(c) = rest.chars().next() {
        if let Some(length) = tag_length(rest) {
            let (tag, behind) = rest.split_at(length);
            marked.push_str(tag);
            line += tag.matches('\n').count();
            after_tag = !tag.ends_with("}}") || tag.ends_with("-}}");
            rest = behind;
            continue;
        }
        if c == '\n' {
            if !after_tag {
                marked.push(OPEN);
                marked.push_str(&line.to_string());
                marked.push(CLOSE);
            }
            line += 1;
        }
        after_tag = false;
        marked.push(c);
        rest = &rest[c.len_utf8()..];
    }
    marked
}

/// The template line behind a line of output, both from 1. All output lines of one template line
/// precede the same marker.
pub(super) fn template_line(marked_output: &str, output_line: u32) -> Option<u32> {
    let skipped = usize::try_from(output_line.saturating_sub(1)).ok()?;
    let mut lines = marked_output.split('\n').skip(skipped);
    lines.find_map(|line| {
        let (_, mark) = line.rsplit_once(OPEN)?;
        mark.split(CLOSE).next()?.parse().ok()
    })
}

/// The template line that wrote last, for truncated output.
pub(super) fn last_template_line(marked_output: &str) -> Option<u32> {
    let (before, _) = marked_output.rsplit_once(CLOSE)?;
    before.rsplit_once(OPEN)?.1.parse().ok()
}

/// The template with a call of [`REPORT`] before each tag, so the last report shows the last tag
/// that was reached.
pub(super) fn traced(name: &str, text: &str) -> String {
    let name = serde_json::Value::from(name).to_string();
    let mut traced = String::with_capacity(text.len() * 2);
    let mut rest = text;
    let mut line = 1;
    while let Some(c) = rest.chars().next() {
        let length = tag_length(rest);
        if length.is_some() && !rest.starts_with("{#") {
            traced.push_str(&format!("{{{{ {REPORT}({name}, {line}) }}}}"));
        }
        let (written, behind) = rest.split_at(length.unwrap_or(c.len_utf8()));
        line += written.matches('\n').count();
        traced.push_str(written);
        rest = behind;
    }
    traced
}

/// The tags of a template, with their first lines.
pub(super) fn tags(text: &str) -> Vec<(u32, &str)> {
    let mut tags = Vec::new();
    let mut rest = text;
    let mut line = 1;
    while let Some(c) = rest.chars().next() {
        let length = tag_length(rest);
        let (written, behind) = rest.split_at(length.unwrap_or(c.len_utf8()));
        if length.is_some() {
            tags.push((line, written));
        }
        line += u32::try_from(written.matches('\n').count()).unwrap_or(u32::MAX);
        rest = behind;
    }
    tags
}

/// Length of the tag at the start of `text`. A `raw` block is one tag.
fn tag_length(text: &str) -> Option<usize> {
    let end = match text.get(..2)? {
        "{#" => return Some(text.find("#}").map_or(text.len(), |end| end + 2)),
        "{{" => "}}",
        "{%" => "%}",
        _ => return None,
    };
    let mut quote = None;
    let mut length = text.len();
    for (position, c) in text.char_indices().skip(2) {
        match quote {
            Some(open) if c == open => quote = None,
            Some(_) => {}
            None if c == '"' || c == '\'' => quote = Some(c),
            None if text[position..].starts_with(end) => {
                length = position + end.len();
                break;
            }
            None => {}
        }
    }
    let inner = text[2..length].trim_start_matches(['-', '+']).trim_start();
    let is_raw = end == "%}" && inner.starts_with("raw") && !inner[3..].starts_with(|c: char| c.is_alphanumeric());
    if is_raw {
        let closing = text.find("endraw").and_then(|from| text[from..].find("%}").map(|end| from + end + 2));
        return Some(closing.unwrap_or(text.len()));
    }
    Some(length)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_stand_at_the_ends_of_lines_that_write() {
        let text = "a\n{% if x %}\nb {{ y }}\n{# c\nd #}\ne\n";
        let marked = marked(text).replace(OPEN, "<").replace(CLOSE, ">");
        assert_eq!(marked, "a<1>\n{% if x %}\nb {{ y }}<3>\n{# c\nd #}\ne<6>\n");
    }

    #[test]
    fn a_tag_may_hold_what_looks_like_its_end() {
        let text = "{{ \"}}\" }}\nb\n";
        let marked = marked(text).replace(OPEN, "<").replace(CLOSE, ">");
        assert_eq!(marked, "{{ \"}}\" }}<1>\nb<2>\n");
    }

    #[test]
    fn an_output_line_without_mark_belongs_to_the_next_one() {
        let output = format!("x{OPEN}1{CLOSE}\ny\nz{OPEN}4{CLOSE}\n");
        assert_eq!(template_line(&output, 1), Some(1));
        assert_eq!(template_line(&output, 2), Some(4));
        assert_eq!(template_line(&output, 9), None);
    }
}
