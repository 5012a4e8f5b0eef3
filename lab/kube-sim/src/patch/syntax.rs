// SPDX-License-Identifier: Apache-2.0

//! The error of Go's JSON decoder for an invalid text. The server quotes it in its answer.

use serde_json::Value;

/// Limit of nesting, as in Go's decoder.
const DEPTH_MAX: usize = 10_000;

/// The first syntax error of `text`, in the words of Go's decoder; `None` if it is JSON.
///
/// Checks only the syntax. What serde_json also refuses (numbers out of range, invalid UTF-8) is accepted here.
pub fn syntax_error(text: &[u8]) -> Option<String> {
    let mut scanner = Scanner { text, at: 0, open: Vec::new() };
    scanner.value().and_then(|()| scanner.end()).err()
}

/// Parses a JSON text. As in Go's decoder, invalid UTF-8 and unpaired surrogates become U+FFFD.
///
/// # Errors
///
/// Fails if the text is not JSON.
pub fn parse_json(text: &[u8]) -> Result<Value, String> {
    match serde_json::from_slice(text) {
        Ok(value) => Ok(value),
        Err(error) => serde_json::from_str(&mended(text)).map_err(|_| error.to_string()),
    }
}

fn mended(text: &[u8]) -> String {
    let text = String::from_utf8_lossy(text);
    let mut mended = String::with_capacity(text.len());
    let mut rest = &*text;
    while let Some(at) = rest.find('\\') {
        let (plain, escape) = rest.split_at(at);
        mended.push_str(plain);
        let code = |text: &str| {
            let digits = text.strip_prefix("\\u")?.get(..4)?;
            u32::from_str_radix(digits, 16).ok()
        };
        let length = match (code(escape), escape.get(6..).and_then(code)) {
            (Some(0xd800..=0xdbff), Some(0xdc00..=0xdfff)) => 12,
            (Some(0xd800..=0xdfff), _) => {
                mended.push_str("\\ufffd");
                rest = &escape[6..];
                continue;
            }
            // An escaped character is one character, and may be a backslash.
            _ => 1 + escape[1..].chars().next().map_or(0, char::len_utf8),
        };
        mended.push_str(&escape[..length]);
        rest = &escape[length..];
    }
    mended.push_str(rest);
    mended
}

struct Scanner<'a> {
    text: &'a [u8],
    at: usize,
    /// The open brackets, so that nesting needs no stack.
    open: Vec<u8>,
}

// === impl Scanner ===

impl Scanner<'_> {
    fn value(&mut self) -> Result<(), String> {
        loop {
            self.blank();
            match self.peek()? {
                b'{' => {
                    self.enter(b'{')?;
                    self.blank();
                    if self.peek()? == b'}' {
                        self.at += 1;
                        self.open.pop();
                    } else {
                        self.key()?;
                        continue;
                    }
                }
                b'[' => {
                    self.enter(b'[')?;
                    self.blank();
                    if self.peek()? != b']' {
                        continue;
                    }
                    self.at += 1;
                    self.open.pop();
                }
                b'"' => self.string()?,
                b'-' | b'0'..=b'9' => self.number()?,
                b't' => self.literal("true")?,
                b'f' => self.literal("false")?,
                b'n' => self.literal("null")?,
                found => return Err(invalid(found, "looking for beginning of value")),
            }
            if self.closed()? {
                return Ok(());
            }
        }
    }

    /// After a value: closes what ends here. True if nothing is open; otherwise another value follows.
    fn closed(&mut self) -> Result<bool, String> {
        loop {
            let Some(&bracket) = self.open.last() else { return Ok(true) };
            self.blank();
            match (bracket, self.peek()?) {
                (b'{', b'}') | (b'[', b']') => {
                    self.at += 1;
                    self.open.pop();
                }
                (b'{', b',') => {
                    self.at += 1;
                    self.blank();
                    self.key()?;
                    return Ok(false);
                }
                (b'[', b',') => {
                    self.at += 1;
                    return Ok(false);
                }
                (b'{', found) => return Err(invalid(found, "after object key:value pair")),
                (_, found) => return Err(invalid(found, "after array element")),
            }
        }
    }

    fn end(&mut self) -> Result<(), String> {
        self.blank();
        match self.text.get(self.at) {
            Some(&found) => Err(invalid(found, "after top-level value")),
            None => Ok(()),
        }
    }

    fn enter(&mut self, bracket: u8) -> Result<(), String> {
        if self.open.len() == DEPTH_MAX {
            return Err("exceeded max depth".to_owned());
        }
        self.open.push(bracket);
        self.at += 1;
        Ok(())
    }

    fn key(&mut self) -> Result<(), String> {
        match self.peek()? {
            b'"' => self.string()?,
            found => return Err(invalid(found, "looking for beginning of object key string")),
        }
        self.blank();
        match self.peek()? {
            b':' => self.at += 1,
            found => return Err(invalid(found, "after object key")),
        }
        Ok(())
    }

    fn string(&mut self) -> Result<(), String> {
        self.at += 1;
        loop {
            match self.next()? {
                b'"' => return Ok(()),
                b'\\' => match self.next_or_blank() {
                    b'b' | b'f' | b'n' | b'r' | b't' | b'\\' | b'/' | b'"' => {}
                    b'u' => {
                        for _ in 0..4 {
                            let found = self.next_or_blank();
                            if !found.is_ascii_hexdigit() {
                                return Err(invalid(found, "in \\u hexadecimal character escape"));
                            }
                        }
                    }
                    found => return Err(invalid(found, "in string escape code")),
                },
                found if found < 0x20 => return Err(invalid(found, "in string literal")),
                _ => {}
            }
        }
    }

    fn number(&mut self) -> Result<(), String> {
        if self.peek()? == b'-' {
            self.at += 1;
            self.digit("in numeric literal")?;
        } else {
            self.at += 1;
        }
        // A number that begins with 0 ends there.
        if self.text[self.at - 1] != b'0' {
            self.digits();
        }
        if self.text.get(self.at) == Some(&b'.') {
            self.at += 1;
            self.digit("after decimal point in numeric literal")?;
            self.digits();
        }
        if matches!(self.text.get(self.at), Some(b'e' | b'E')) {
            self.at += 1;
            if matches!(self.text.get(self.at), Some(b'+' | b'-')) {
                self.at += 1;
            }
            self.digit("in exponent of numeric literal")?;
            self.digits();
        }
        Ok(())
    }

    fn digit(&mut self, place: &str) -> Result<(), String> {
        match self.next_or_blank() {
            b'0'..=b'9' => Ok(()),
            found => Err(invalid(found, place)),
        }
    }

    fn digits(&mut self) {
        while self.text.get(self.at).is_some_and(u8::is_ascii_digit) {
            self.at += 1;
        }
    }

    fn literal(&mut self, word: &str) -> Result<(), String> {
        self.at += 1;
        for expected in word.chars().skip(1) {
            let found = self.next_or_blank();
            if char::from(found) != expected {
                return Err(invalid(found, &format!("in literal {word} (expecting {})", quoted(expected))));
            }
        }
        Ok(())
    }

    fn blank(&mut self) {
        while matches!(self.text.get(self.at), Some(b' ' | b'\t' | b'\r' | b'\n')) {
            self.at += 1;
        }
    }

    fn peek(&self) -> Result<u8, String> {
        self.text.get(self.at).copied().ok_or_else(|| "unexpected end of JSON input".to_owned())
    }

    /// At the end, Go's decoder checks whether a blank could follow.
    fn next_or_blank(&mut self) -> u8 {
        self.next().unwrap_or(b' ')
    }

    fn next(&mut self) -> Result<u8, String> {
        let found = self.peek()?;
        self.at += 1;
        Ok(found)
    }
}

fn invalid(found: u8, place: &str) -> String {
    format!("invalid character {} {place}", quoted(char::from(found)))
}

/// A character as Go quotes it.
fn quoted(character: char) -> String {
    match character {
        '\'' => r"'\''".to_owned(),
        '"' => r#"'"'"#.to_owned(),
        '\n' => r"'\n'".to_owned(),
        '\r' => r"'\r'".to_owned(),
        '\t' => r"'\t'".to_owned(),
        '\u{7}' => r"'\a'".to_owned(),
        '\u{8}' => r"'\b'".to_owned(),
        '\u{b}' => r"'\v'".to_owned(),
        '\u{c}' => r"'\f'".to_owned(),
        '\\' => r"'\\'".to_owned(),
        other if (other as u32) < 0x20 || other as u32 == 0x7f => format!("'\\x{:02x}'", other as u32),
        other if (0x80..0xa0).contains(&(other as u32)) || other as u32 == 0xad => {
            format!("'\\u{:04x}'", other as u32)
        }
        other => format!("'{other}'"),
    }
}
