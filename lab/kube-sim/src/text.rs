// SPDX-License-Identifier: Apache-2.0

//! Formats of names, labels and annotations, with the server's messages.

const LABEL_LEN_MAX: usize = 63;
const SUBDOMAIN_LEN_MAX: usize = 253;

const SUBDOMAIN: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or \
                         '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used \
                         for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
const LABEL: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must \
                     start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for \
                     validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";
const DNS_1035: &str = "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an \
    alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for \
    validation is '[a-z]([-a-z0-9]*[a-z0-9])?')";
const QUALIFIED: &str = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an \
    alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is \
    '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
const LABEL_VALUE: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or \
                           '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or \
                           'my_value',  or '12345', regex used for validation is \
                           '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";

/// The errors of a DNS subdomain.
pub(super) fn subdomain_problems(text: &str) -> Vec<String> {
    problems(text, SUBDOMAIN_LEN_MAX, text.split('.').all(is_label), SUBDOMAIN)
}

/// The errors of a DNS label.
pub(super) fn label_problems(text: &str) -> Vec<String> {
    if text.contains('.') && text.split('.').all(is_label) {
        return vec!["must not contain dots".to_owned()];
    }
    problems(text, LABEL_LEN_MAX, is_label(text), LABEL)
}

/// The errors of a DNS label that must begin with a letter.
pub(super) fn dns_1035_problems(text: &str) -> Vec<String> {
    let fits = is_label(text) && text.starts_with(|c: char| c.is_ascii_lowercase());
    problems(text, LABEL_LEN_MAX, fits, DNS_1035)
}

/// The errors of a text as one segment of a path.
pub(super) fn segment_problems(text: &str) -> Vec<String> {
    if matches!(text, "." | "..") {
        return vec![format!("may not be '{text}'")];
    }
    ["/", "%"].into_iter().filter(|sign| text.contains(sign)).map(|sign| format!("may not contain '{sign}'")).collect()
}

/// The errors of a label's value.
pub(super) fn label_value_problems(text: &str) -> Vec<String> {
    problems(text, LABEL_LEN_MAX, text.is_empty() || is_qualified_part(text), LABEL_VALUE)
}

/// The errors of a key of a label, an annotation or a finalizer: `name` or `prefix/name`.
pub(super) fn qualified_name_problems(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let name = match text.split('/').collect::<Vec<_>>().as_slice() {
        [name] => *name,
        [prefix, name] => {
            if prefix.is_empty() {
                found.push("prefix part must be non-empty".to_owned());
            } else {
                // For a prefix, the server's message uses the other unit.
                let told = |problem: String| format!("prefix part {}", problem.replace("253 characters", "253 bytes"));
                found.extend(subdomain_problems(prefix).into_iter().map(told));
            }
            *name
        }
        _ => {
            return vec![format!(
                "a valid label key {QUALIFIED} with an optional DNS subdomain prefix and '/' (e.g. \
                 'example.com/MyName')"
            )];
        }
    };
    if name.is_empty() {
        found.push("name part must be non-empty".to_owned());
    } else if name.len() > LABEL_LEN_MAX {
        found.push(format!("name part must be no more than {LABEL_LEN_MAX} bytes"));
    }
    if !name.is_empty() && !is_qualified_part(name) || name.is_empty() {
        found.push(format!("name part {QUALIFIED}"));
    }
    found
}

fn problems(text: &str, length_max: usize, fits: bool, sentence: &str) -> Vec<String> {
    let mut found = Vec::new();
    if length_max < text.len() {
        // The server's messages use two units for the same thing.
        let unit = if length_max == SUBDOMAIN_LEN_MAX || sentence == LABEL { "characters" } else { "bytes" };
        found.push(format!("must be no more than {length_max} {unit}"));
    }
    if !fits {
        found.push(sentence.to_owned());
    }
    found
}

fn is_label(text: &str) -> bool {
    let alphanumeric = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    text.starts_with(alphanumeric) && text.ends_with(alphanumeric) && text.chars().all(|c| alphanumeric(c) || c == '-')
}

fn is_qualified_part(text: &str) -> bool {
    let alphanumeric = |c: char| c.is_ascii_alphanumeric();
    text.starts_with(alphanumeric)
        && text.ends_with(alphanumeric)
        && text.chars().all(|c| alphanumeric(c) || "-_.".contains(c))
}

/// Go's message for a text that is not a number for `function`, such as `ParseInt`.
pub(super) fn number_problem(function: &str, text: &str) -> String {
    let digits = text.strip_prefix(['-', '+']).filter(|_| function == "ParseInt").unwrap_or(text);
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    let problem = if is_number { "value out of range" } else { "invalid syntax" };
    format!("strconv.{function}: parsing {}: {problem}", serde_json::Value::from(text))
}
