// SPDX-License-Identifier: Apache-2.0

//! Label and field selectors, as query parameters.
//!
//! An invalid selector is refused in the words of the server's lexer, which never names a position.

use super::{
    refusal::{Cause, Refusal},
    text,
};

/// Selects objects by labels. Empty: all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Labels(Vec<Requirement>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Requirement {
    key: String,
    demand: Demand,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Demand {
    Exists,
    Absent,
    /// One of these values.
    In(Vec<String>),
    /// None of these values, or the label is absent.
    NotIn(Vec<String>),
    Greater(i64),
    Less(i64),
}

/// Selects objects by fields: path, value, and whether it must be equal. Empty: all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Fields(pub(super) Vec<FieldTerm>);

/// One condition on a field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FieldTerm {
    pub(super) path: String,
    pub(super) value: String,
    /// False: it must differ.
    pub(super) equal: bool,
}

/// A token of a label selector.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Token {
    End,
    /// `!`, `(`, `)`, `,`, `=`, `==`, `!=`, `<`, `>`
    Sign(&'static str),
    /// A name, a value, or one of the words `in` and `notin`.
    Word(String),
}

struct Lexer<'a> {
    rest: &'a str,
    next: Option<Token>,
}

const OPERATORS: &str = "in, notin, =, ==, !=, gt, lt";

// === impl Labels ===

impl Labels {
    /// Parses the parameter `labelSelector`.
    pub(super) fn parse(text: &str) -> Result<Labels, Refusal> {
        parse_labels(text).map(Labels).map_err(Refusal::bad_request)
    }

    /// Reads a `LabelSelector` object, such as a webhook's `objectSelector`.
    pub(super) fn of_object(selector: &serde_json::Value) -> Labels {
        let word = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
        let mut requirements = Vec::new();
        for (key, value) in selector["matchLabels"].as_object().into_iter().flatten() {
            requirements.push(Requirement { key: key.clone(), demand: Demand::In(vec![word(value)]) });
        }
        for expression in selector["matchExpressions"].as_array().into_iter().flatten() {
            let values = || expression["values"].as_array().into_iter().flatten().map(word).collect();
            let demand = match expression["operator"].as_str().unwrap_or_default() {
                "In" => Demand::In(values()),
                "NotIn" => Demand::NotIn(values()),
                "DoesNotExist" => Demand::Absent,
                _ => Demand::Exists,
            };
            requirements.push(Requirement { key: word(&expression["key"]), demand });
        }
        Labels(requirements)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether labels match. `of` returns the value of a label.
    pub(super) fn matches<'a>(&self, of: impl Fn(&str) -> Option<&'a str>) -> bool {
        self.0.iter().all(|requirement| {
            let value = of(&requirement.key);
            let number = || value.and_then(|value| value.parse::<i64>().ok());
            match &requirement.demand {
                Demand::Exists => value.is_some(),
                Demand::Absent => value.is_none(),
                Demand::In(values) => value.is_some_and(|value| values.iter().any(|one| one == value)),
                Demand::NotIn(values) => value.is_none_or(|value| values.iter().all(|one| one != value)),
                Demand::Greater(than) => number().is_some_and(|number| number > *than),
                Demand::Less(than) => number().is_some_and(|number| number < *than),
            }
        })
    }
}

fn parse_labels(text: &str) -> Result<Vec<Requirement>, String> {
    let mut lexer = Lexer { rest: text, next: None };
    let mut requirements = Vec::new();
    loop {
        match lexer.peek() {
            Token::Word(_) | Token::Sign("!") => {
                let requirement = parse_requirement(&mut lexer);
                requirements.push(requirement.map_err(|problem| format!("unable to parse requirement: {problem}"))?);
                match lexer.take() {
                    Token::End => break,
                    Token::Sign(",") => {
                        let after = lexer.peek();
                        if !matches!(after, Token::Word(_) | Token::Sign("!")) {
                            return Err(format!("found '{}', expected: identifier after ','", after.text()));
                        }
                    }
                    other => return Err(format!("found '{}', expected: ',' or 'end of string'", other.text())),
                }
            }
            Token::End => break,
            other @ Token::Sign(_) => {
                return Err(format!("found '{}', expected: !, identifier, or 'end of string'", other.text()));
            }
        }
    }
    Ok(requirements)
}

fn parse_requirement(lexer: &mut Lexer<'_>) -> Result<Requirement, String> {
    let absent = lexer.peek() == Token::Sign("!");
    if absent {
        lexer.take();
    }
    let key = match lexer.take() {
        Token::Word(word) => word,
        other => return Err(format!("found '{}', expected: identifier", other.text())),
    };
    let problems = text::qualified_name_problems(&key);
    if !problems.is_empty() {
        return Err(Cause::invalid_text("<nil>", &key, &problems.join("; ")).to_string());
    }
    if absent {
        return Ok(Requirement { key, demand: Demand::Absent });
    }
    if matches!(lexer.peek(), Token::End | Token::Sign(",")) {
        return Ok(Requirement { key, demand: Demand::Exists });
    }
    let operator = match lexer.take() {
        Token::Sign(sign @ ("=" | "==" | "!=" | "<" | ">")) => sign.to_owned(),
        Token::Word(word) if matches!(word.as_str(), "in" | "notin") => word,
        other => return Err(format!("found '{}', expected: {OPERATORS}", other.text())),
    };
    let values = match operator.as_str() {
        "in" | "notin" => parse_values(lexer)?,
        _ => vec![parse_value(lexer)?],
    };
    let number = values.first().and_then(|value| value.parse::<i64>().ok());
    check_values(&key, &values, matches!(operator.as_str(), "<" | ">") && number.is_none())?;
    let demand = match (operator.as_str(), number) {
        (">", Some(than)) => Demand::Greater(than),
        ("<", Some(than)) => Demand::Less(than),
        ("!=" | "notin", _) => Demand::NotIn(values),
        _ => Demand::In(values),
    };
    Ok(Requirement { key, demand })
}

/// All errors in the values of a requirement, as one text.
fn check_values(key: &str, values: &[String], lacks_number: bool) -> Result<(), String> {
    let mut causes = Vec::new();
    for (index, value) in values.iter().enumerate().filter(|_| lacks_number) {
        let detail = "for 'Gt', 'Lt' operators, the value must be an integer";
        causes.push(Cause::invalid_text(&format!("values[{index}]"), value, detail).to_string());
    }
    for (index, value) in values.iter().enumerate() {
        let problems = text::label_value_problems(value);
        if !problems.is_empty() {
            let path = format!("values[{index}][{key}]");
            causes.push(Cause::invalid_text(&path, value, &problems.join("; ")).to_string());
        }
    }
    match causes.as_slice() {
        [] => Ok(()),
        [only] => Err(only.clone()),
        all => Err(format!("[{}]", all.join(", "))),
    }
}

fn parse_value(lexer: &mut Lexer<'_>) -> Result<String, String> {
    match lexer.peek() {
        Token::End | Token::Sign(",") => Ok(String::new()),
        Token::Word(word) => {
            lexer.take();
            Ok(word)
        }
        other @ Token::Sign(_) => Err(format!("found '{}', expected: identifier", other.text())),
    }
}

/// `(a, b)`: nothing between or beside commas is an empty value.
fn parse_values(lexer: &mut Lexer<'_>) -> Result<Vec<String>, String> {
    match lexer.take() {
        Token::Sign("(") => {}
        other => return Err(format!("found '{}' expected: '('", other.text())),
    }
    match lexer.peek() {
        Token::Word(_) | Token::Sign(",") => {}
        Token::Sign(")") => {
            lexer.take();
            return Ok(vec![String::new()]);
        }
        other => return Err(format!("found '{}', expected: ',', ')' or identifier", other.text())),
    }
    let mut values = Vec::new();
    loop {
        match lexer.take() {
            Token::Word(word) => {
                values.push(word);
                match lexer.peek() {
                    Token::Sign(",") => {}
                    Token::Sign(")") => break,
                    other => return Err(format!("found '{}', expected: ',' or ')'", other.text())),
                }
            }
            Token::Sign(",") => {
                if values.is_empty() {
                    values.push(String::new());
                }
                match lexer.peek() {
                    Token::Sign(")") => {
                        values.push(String::new());
                        break;
                    }
                    Token::Sign(",") => values.push(String::new()),
                    Token::End | Token::Sign(_) | Token::Word(_) => {}
                }
            }
            other => return Err(format!("found '{}', expected: ',', or identifier", other.text())),
        }
    }
    lexer.take();
    values.sort_unstable();
    values.dedup();
    Ok(values)
}

// === impl Token ===

impl Token {
    fn text(&self) -> &str {
        match self {
            Token::End => "",
            Token::Sign(sign) => sign,
            Token::Word(word) => word,
        }
    }
}

// === impl Lexer ===

impl Lexer<'_> {
    fn peek(&mut self) -> Token {
        let token = self.take();
        self.next = Some(token.clone());
        token
    }

    fn take(&mut self) -> Token {
        if let Some(token) = self.next.take() {
            return token;
        }
        self.rest = self.rest.trim_start_matches([' ', '\t', '\r', '\n']);
        for sign in ["==", "!=", "=", "!", "(", ")", ",", "<", ">"] {
            if let Some(rest) = self.rest.strip_prefix(sign) {
                self.rest = rest;
                return Token::Sign(sign);
            }
        }
        let ends = |c: char| " \t\r\n=!(),<>".contains(c);
        let end = self.rest.find(ends).unwrap_or(self.rest.len());
        if end == 0 {
            return Token::End;
        }
        let (word, rest) = self.rest.split_at(end);
        self.rest = rest;
        Token::Word(word.to_owned())
    }
}

// === impl Fields ===

impl Fields {
    /// Parses the parameter `fieldSelector`. The resource decides which fields are allowed.
    pub(super) fn parse(text: &str) -> Result<Fields, Refusal> {
        let mut parts = split_unescaped(text);
        // The server checks them in this order and reports the first error.
        parts.sort_unstable();
        let mut terms = Vec::new();
        for term in parts.iter().filter(|term| !term.is_empty()) {
            // The first operator in the term wins, and of those at one position the longest.
            let parsed = term.find(['!', '=']).map(|at| term.split_at(at)).and_then(|(path, rest)| {
                let operator = ["!=", "==", "="].into_iter().find(|operator| rest.starts_with(operator))?;
                Some((path, &rest[operator.len()..], operator != "!="))
            });
            let Some((path, value, equal)) = parsed else {
                return Err(Refusal::bad_request(format!("invalid selector: '{text}'; can't understand '{term}'")));
            };
            let value = unescape(value)?;
            // An empty term selects everything.
            if !path.is_empty() || !value.is_empty() {
                terms.push(FieldTerm { path: path.to_owned(), value, equal });
            }
        }
        Ok(Fields(terms))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Splits at commas without a preceding backslash.
fn split_unescaped(text: &str) -> Vec<String> {
    let mut terms = vec![String::new()];
    let mut escaped = false;
    for c in text.chars() {
        if c == ',' && !escaped {
            terms.push(String::new());
            continue;
        }
        escaped = c == '\\' && !escaped;
        if let Some(term) = terms.last_mut() {
            term.push(c);
        }
    }
    terms
}

/// Removes the backslashes before `\`, `,` and `=`; other backslashes are invalid.
fn unescape(value: &str) -> Result<String, Refusal> {
    let refuse = |problem: String| Err(Refusal::bad_request(format!("invalid field selector: {problem}")));
    let mut unescaped = String::with_capacity(value.len());
    let mut chars = value.chars();
    while let Some(c) = chars.next() {
        match (c, if c == '\\' { chars.next() } else { None }) {
            ('\\', Some(escaped @ ('\\' | ',' | '='))) => unescaped.push(escaped),
            ('\\', other) => {
                let other = other.map(String::from).unwrap_or_default();
                return refuse(format!("invalid escape sequence: \\{other}"));
            }
            (',' | '=', _) => return refuse(format!("unescaped character in value: {}", u32::from(c))),
            (plain, _) => unescaped.push(plain),
        }
    }
    Ok(unescaped)
}

#[cfg(test)]
mod tests;
