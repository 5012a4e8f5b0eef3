//! Patterns of Go's RE2 on the `regex` crate.
//!
//! The two differ in details. In Go, `\d`, `\w`, `\s` and `\b` are ASCII only, `[` and `&&` are
//! literal inside a class, and `\Q…\E` quotes. A pattern matches anywhere in the text: it is not
//! anchored.

use regex::Regex;

/// Compiles a Go pattern. Fails if RE2 or the `regex` crate rejects it.
pub(super) fn compile(pattern: &str) -> Result<Regex, regex::Error> {
    Regex::new(&translate(pattern))
}

/// The same pattern in the syntax of the `regex` crate.
fn translate(pattern: &str) -> String {
    let mut translated = String::with_capacity(pattern.len() + 16);
    let mut rest = pattern.chars().peekable();
    let mut class = Class::Outside;
    while let Some(c) = rest.next() {
        match (c, class) {
            ('\\', _) => match rest.next() {
                Some('Q') => quote(&mut rest, &mut translated),
                Some(escaped) => {
                    translated.push_str(&escape(escaped, class != Class::Outside));
                    class = class.after_item();
                }
                None => translated.push('\\'),
            },
            ('[', Class::Outside) => {
                translated.push('[');
                if rest.next_if_eq(&'^').is_some() {
                    translated.push('^');
                }
                class = Class::Begin;
            }
            // `[:alpha:]` inside a class is a named class in both; any other `[` means itself in Go only.
            ('[', _) if rest.peek() == Some(&':') => {
                translated.push('[');
                for inner in rest.by_ref() {
                    translated.push(inner);
                    if inner == ']' {
                        break;
                    }
                }
                class = Class::Inside;
            }
            // A `]` in first position is literal.
            (']', Class::Begin) => {
                translated.push_str("\\]");
                class = Class::Inside;
            }
            (']', Class::Inside) => {
                translated.push(']');
                class = Class::Outside;
            }
            ('[' | '&' | '~', Class::Begin | Class::Inside) => {
                translated.extend(['\\', c]);
                class = Class::Inside;
            }
            (c, _) => {
                translated.push(c);
                class = class.after_item();
            }
        }
    }
    translated
}

/// The position within a pattern.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Class {
    /// Outside `[` and `]`.
    Outside,
    /// Directly after `[` or `[^`.
    Begin,
    /// Later in a class.
    Inside,
}

impl Class {
    fn after_item(self) -> Class {
        match self {
            Class::Outside => Class::Outside,
            Class::Begin | Class::Inside => Class::Inside,
        }
    }
}

/// The text from `\Q` to `\E`, with each character escaped.
fn quote(rest: &mut std::iter::Peekable<std::str::Chars<'_>>, translated: &mut String) {
    while let Some(c) = rest.next() {
        if c == '\\' && rest.next_if_eq(&'E').is_some() {
            return;
        }
        translated.push_str(&regex::escape(c.encode_utf8(&mut [0; 4])));
    }
}

/// An escape, with the ASCII-only classes spelled out.
fn escape(escaped: char, in_class: bool) -> String {
    let ascii = |set: &str, negated: bool| match (in_class, negated) {
        (true, false) => set.to_owned(),
        (_, true) => format!("[^{set}]"),
        (false, false) => format!("[{set}]"),
    };
    match escaped {
        'd' => ascii("0-9", false),
        'D' => ascii("0-9", true),
        'w' => ascii("0-9A-Za-z_", false),
        'W' => ascii("0-9A-Za-z_", true),
        's' => ascii(r"\t\n\f\r ", false),
        'S' => ascii(r"\t\n\f\r ", true),
        'b' if !in_class => r"(?-u:\b)".to_owned(),
        other => format!("\\{other}"),
    }
}
