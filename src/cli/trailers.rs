//! The trailers of a commit message, by git's rules.
//!
//! They are in the last paragraph, which is not the subject. Either each of its lines is a trailer, or git itself wrote
//! one of them and at least a quarter of its lines are trailers. An indented line continues the trailer before it.

/// How lines begin that git writes itself.
const GENERATED: [&str; 2] = ["Signed-off-by: ", "(cherry picked from commit "];
/// White space, as git knows it. Other white space would hide that a paragraph goes on.
const SPACE: [char; 4] = [' ', '\t', '\r', '\n'];
/// The beginning of a comment.
const COMMENT: char = '#';

/// The trailers of a message, names and values, in order. A value of several lines becomes one line.
pub(super) fn parse(message: &str) -> Vec<(&str, String)> {
    let mut trailers: Vec<(&str, String)> = Vec::new();
    let mut is_open = false;
    for line in block(message) {
        if is_indented(line) {
            if let Some((_, value)) = trailers.last_mut().filter(|_| is_open) {
                value.push(' ');
                value.push_str(line.trim());
            }
            continue;
        }
        let trailer = name_and_value(line);
        is_open = trailer.is_some();
        trailers.extend(trailer.map(|(name, value)| (name, value.trim().to_owned())));
    }
    trailers
}

/// How many lines of a message look like a trailer of this name. Those that are none do nothing.
pub(super) fn lines_named(message: &str, name: &str) -> usize {
    let is_named = |line: &&str| name_and_value(line.trim()).is_some_and(|(found, _)| found.eq_ignore_ascii_case(name));
    message.lines().filter(is_named).count()
}

/// The lines of the paragraph with trailers; none if there is no such paragraph.
fn block(message: &str) -> Vec<&str> {
    let lines: Vec<&str> = message.trim_matches(SPACE).lines().collect();
    // The first paragraph is the subject, whatever it looks like.
    let Some(blank) = lines.iter().rposition(|line| line.trim_matches(SPACE).is_empty()) else { return Vec::new() };
    let block = &lines[blank + 1..];
    let (mut trailers, mut others, mut is_generated, mut is_open) = (0, 0, false, false);
    for line in block {
        if is_indented(line) {
            others += usize::from(!is_open);
            continue;
        }
        let is_ours = GENERATED.iter().any(|beginning| line.starts_with(beginning));
        is_open = is_ours || name_and_value(line).is_some();
        is_generated |= is_ours;
        trailers += usize::from(is_open);
        others += usize::from(!is_open && !line.starts_with(COMMENT));
    }
    let is_block = if is_generated { others <= trailers * 3 } else { trailers > 0 && others == 0 };
    if is_block { block.to_vec() } else { Vec::new() }
}

fn is_indented(line: &str) -> bool {
    line.starts_with(SPACE)
}

/// `Name: value`: letters, digits and `-`, then perhaps white space, then the colon.
fn name_and_value(line: &str) -> Option<(&str, &str)> {
    let (name, value) = line.split_once(':')?;
    let name = name.trim_end_matches([' ', '\t']);
    let is_name = !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-');
    is_name.then_some((name, value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(message: &str, expected: &[(&str, &str)]) {
        let found = parse(message);
        let found: Vec<(&str, &str)> = found.iter().map(|(name, value)| (*name, value.as_str())).collect();
        assert_eq!(found, expected, "{message}");
    }

    /// Checks that libgit2 says the same.
    #[track_caller]
    fn check_both(message: &str, expected: &[(&str, &str)]) {
        check(message, expected);
        let theirs = git2::message_trailers_strs(message).unwrap();
        let folded = |value: &str| value.lines().map(str::trim).collect::<Vec<_>>().join(" ");
        let theirs: Vec<(String, String)> =
            theirs.iter().map(|(name, value)| (name.to_owned(), folded(value))).collect();
        let expected: Vec<(String, String)> =
            expected.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        assert_eq!(theirs, expected, "{message}");
    }

    #[test]
    fn trailers_are_in_the_last_paragraph() {
        check_both("subject\n\nbody\n\nA-b: one, two\nC: x\n", &[("A-b", "one, two"), ("C", "x")]);
        check_both("subject\n\nA: one\n\nmore\n", &[]);
        check_both("subject\n\nA: one\n \nB: two\n\n", &[("B", "two")]);
        check_both("subject\r\n\r\nA: one\r\n", &[("A", "one")]);
    }

    #[test]
    fn the_subject_and_an_indented_line_are_no_trailers() {
        check_both("A: one\n", &[]);
        check("\n\nA: one\n", &[]);
        check_both("subject\nA: one\n", &[]);
        check_both("subject\n\n  A: one\n", &[]);
        check_both("subject\n\nsee\n  A: one\n", &[]);
        check_both("subject\n\nB: x\n  A: one\n", &[("B", "x A: one")]);
        check("subject\n\nA: one\n---\nmore\n", &[]);
        check_both("subject\n\u{a0}\nA: one\n", &[]);
        check_both("subject\n\nA: one\n\n\u{a0}\n", &[]);
    }

    #[test]
    fn a_value_may_have_several_lines_and_none() {
        check_both("subject\n\nA: one,\n  two\nB: x\n", &[("A", "one, two"), ("B", "x")]);
        check("subject\n\nA: one,\n\ttwo\n", &[("A", "one, two")]);
        check("subject\n\nA:\nB : x\n", &[("A", ""), ("B", "x")]);
    }

    #[test]
    fn a_paragraph_of_git_may_have_other_lines() {
        let signed = ("Signed-off-by", "x <y>");
        check_both("subject\n\nnot one\nA: one\n", &[]);
        check_both("subject\n\nnot one\nA: one\nSigned-off-by: x <y>\n", &[("A", "one"), signed]);
        check_both("subject\n\na\nb\nc\nSigned-off-by: x <y>\n", &[signed]);
        check_both("subject\n\na\nb\nc\nd\nSigned-off-by: x <y>\n", &[]);
    }

    #[test]
    fn lines_that_look_like_trailers_are_counted() {
        let message = "A: one\n\na: two\n\n  A : three\n> A: four\nsee A: five\nB: six\n";
        assert_eq!((lines_named(message, "a"), parse(message).len()), (3, 0));
    }
}
