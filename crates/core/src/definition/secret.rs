//! Redacts diagnostics of files that contain a Secret. They keep the location and the type of the
//! mistake, but no content.

use std::{collections::BTreeSet, sync::LazyLock};

use serde_json::{Value, json};

use super::{Kind, code};
use crate::{
    api::{self, setup},
    diagnostic::Diagnostic,
    kubernetes, secret,
    snapshot::Snapshot,
    yaml,
};

/// Replaces what is hidden.
const HIDDEN: &str = "…";

/// Words that are safe to show: the field names of the Kyma kinds and of every object.
static FIELDS: LazyLock<BTreeSet<String>> = LazyLock::new(|| {
    let own =
        ["apiVersion", "kind", "metadata", "name", "namespace", "labels", "annotations", "data", "stringData", "type"];
    let mut fields: BTreeSet<String> = own.map(str::to_owned).into();
    fields.extend([api::KYMA_GROUP, api::KYMA_VERSION].join("/").split('.').map(str::to_owned));
    Kind::OF_KYMA.into_iter().for_each(|kind| collect(&json!(*kind.crd()), &mut fields));
    fields
});
/// The field names of the kinds of kcp landscapes. There are many, and few files need them.
static SETUP_FIELDS: LazyLock<BTreeSet<String>> = LazyLock::new(|| {
    let mut fields: BTreeSet<String> =
        setup::SETUP_GROUP.split('.').chain([setup::SETUP_VERSION]).map(str::to_owned).collect();
    setup::Kind::ALL.into_iter().for_each(|kind| collect(&json!(kind.crd()), &mut fields));
    fields
});

/// Whether a text may contain a Secret: it contains the word `secret` or the field `stringData`, in any case, or a
/// document with `data` whose kind is missing or misspelt. Checks the text and not the parsed objects, because an
/// invalid file has none. False positives are acceptable; false negatives are not.
pub fn mentions_secret(text: &str) -> bool {
    let text = text.to_ascii_lowercase();
    let mut documents = text.split("\n---");
    words(&text, "secret").next().is_some() || text.contains("stringdata") || documents.any(is_disguised)
}

/// Whether a document in lower case has `data`, and no kind that says what it is.
fn is_disguised(document: &str) -> bool {
    let api_versions = || fields(document, "apiversion");
    let is_core = !api_versions().any(|version| version.contains('/'));
    let api_version = if is_core { None } else { Some("/") };
    let mut kinds = fields(document, "kind").peekable();
    fields(document, "data").next().is_some()
        && (kinds.peek().is_none() || kinds.any(|kind| secret::may_be_kind(api_version, Some(kind))))
}

/// The values of a field in a text that need not be YAML, each up to the end of its line or the next comma.
fn fields<'a>(text: &'a str, field: &'a str) -> impl Iterator<Item = &'a str> {
    words(text, field).filter_map(move |start| {
        let rest = text[start + field.len()..].trim_start_matches(['"', '\'']).trim_start_matches([' ', '\t']);
        let value = rest.strip_prefix(':')?;
        let end = value.find(['\n', ',', '}', '#']).unwrap_or(value.len());
        Some(value[..end].trim().trim_matches(['"', '\'']))
    })
}

/// Where a text contains this word, as a word of its own.
fn words<'a>(text: &'a str, word: &'a str) -> impl Iterator<Item = usize> {
    text.match_indices(word).map(|(start, _)| start).filter(move |start| {
        let is_word = |c: Option<char>| c.is_some_and(char::is_alphanumeric);
        !is_word(text[..*start].chars().next_back()) && !is_word(text[start + word.len()..].chars().next())
    })
}

/// The text of a file, if messages must not quote it.
pub(super) fn first_secret<'a>(snapshot: &'a Snapshot, path: &str) -> Option<&'a str> {
    yaml::decode(snapshot.text(path)?).ok().filter(|text| mentions_secret(text))
}

/// Whether a line is in a document that may be a Secret. A line of 0 stands for the whole file.
pub(super) fn is_in_secret(text: &str, line: u32) -> bool {
    let (mut start, mut end) = (0, 0);
    for (number, content) in (1..).zip(text.split_inclusive('\n')) {
        let begins = content.starts_with("---");
        if begins && line < number && 0 < line {
            break;
        }
        // What ends one document and begins the next belongs to both.
        if begins && number != line {
            start = end;
        }
        end += content.len();
    }
    line == 0 || mentions_secret(&text[start..end])
}

/// The documents of a text that may be Secrets.
pub(super) fn documents(text: &str) -> String {
    let (mut all, mut document) = (String::new(), String::new());
    let mut end = |document: &mut String| {
        if mentions_secret(document) {
            all.push_str(document);
        }
        document.clear();
    };
    for line in text.split_inclusive('\n') {
        if line.starts_with("---") {
            end(&mut document);
        }
        document.push_str(line);
    }
    end(&mut document);
    all
}

/// The diagnostic with everything redacted that occurs in this text. Its place stays.
pub(super) fn conceal(diagnostic: Diagnostic, text: &str) -> Diagnostic {
    let numbers = matches!(diagnostic.code, code::RANGE | code::PORT);
    let message = sentence(&diagnostic.message, text, numbers);
    let hint = diagnostic.hint.as_deref().map(|hint| sentence(hint, text, numbers));
    Diagnostic { message, hint, ..diagnostic }
}

/// The sentence with all quotations of this text redacted. Values are between backticks or, in
/// messages of parsers, between quotes. Numbers may be unquoted.
pub(super) fn sentence(sentence: &str, text: &str, numbers: bool) -> String {
    let mut shown = String::with_capacity(sentence.len());
    for (index, part) in sentence.split('`').enumerate() {
        if index % 2 == 1 {
            shown.push_str(&format!("`{}`", if is_known(part, text) { part } else { HIDDEN }));
            continue;
        }
        for (index, part) in part.split('"').enumerate() {
            match index % 2 {
                1 => shown.push_str(&format!("\"{HIDDEN}\"")),
                _ if numbers => shown.push_str(&part.replace(|c: char| c.is_ascii_digit(), HIDDEN)),
                _ => shown.push_str(part),
            }
        }
    }
    shown
}

/// Words of messages that say nothing about a file: `must be a string, not `true` or `false``.
const OWN_WORDS: [&str; 3] = ["true", "false", "null"];

/// Whether all words of a quotation are words of Tidegate's messages, field names, known kinds, indices, or absent from
/// the text.
fn is_known(quoted: &str, text: &str) -> bool {
    const INDEX_LEN_MAX: usize = 3;
    let is_own = |word: &str| {
        // A list of allowed characters, such as `-`, is no quotation either.
        OWN_WORDS.contains(&word) || kubernetes::is_known_kind(word) || !word.contains(char::is_alphanumeric)
    };
    let is_index = |word: &str| word.len() <= INDEX_LEN_MAX && word.bytes().all(|byte| byte.is_ascii_digit());
    let words = quoted.split(|c: char| !c.is_alphanumeric() && c != '-' && c != '_' && c != '/');
    let is_setup = text.contains(setup::SETUP_GROUP);
    let is_field = |word: &str| FIELDS.contains(word) || is_setup && SETUP_FIELDS.contains(word);
    words
        .filter(|word| !word.is_empty())
        .all(|word| is_own(word) || is_field(word) || is_index(word) || !text.contains(word))
}

fn collect(value: &Value, fields: &mut BTreeSet<String>) {
    match value {
        Value::Object(entries) => {
            for (name, below) in entries {
                if name == "properties" {
                    fields.extend(below.as_object().into_iter().flatten().map(|(field, _)| field.clone()));
                }
                collect(below, fields);
            }
        }
        Value::Array(items) => items.iter().for_each(|item| collect(item, fields)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_that_may_hold_a_secret_is_recognised() {
        let rows = [
            ("kind: Secret\n", true),
            ("{\"kind\":\"secret\"}", true),
            ("apiVersion: v1\nkind: Secert\ndata:\n  a: [\n", true),
            ("apiVersion: example.org/v1\n\"kind\" : 'Secrte' # mine\ndata: {a: b}\n", true),
            ("apiVersion: v1\ndata:\n  a: aHVudGVyMg==\n", true),
            ("apiVersion: v1\nkind:\ndata:\n  a: aHVudGVyMg==\n", true),
            ("apiVersion: v1\nkind: Credentials\ndata:\n  a: aHVudGVyMg==\n", true),
            ("stringData: {a: b}\n", true),
            ("kind: ConfigMap\ndata: {a: b}\n---\nkind: Sceret\ndata: {a: b}\n", true),
            ("apiVersion: v1\nkind: ConfigMap\ndata: {a: b}\n", false),
            ("apiVersion: operator.kyma-project.io/v1beta2\nkind: ModuleTemplate\nspec: {data: {a: b}}\n", false),
            ("kind: Role\nrules: [{resources: [secretstores]}]\n", false),
            ("a: [", false),
        ];
        for (text, expected) in rows {
            assert_eq!(mentions_secret(text), expected, "{text}");
        }
    }

    #[test]
    fn the_lines_of_a_secret_are_those_of_its_document() {
        let text = "kind: Kyma\nspec: {a: b}\n---\nkind: Secret\ndata: {a: b}\n---\nkind: Kyma\nspec: {}\n";
        let secret: Vec<u32> = (0..=9).filter(|&line| is_in_secret(text, line)).collect();
        assert_eq!(secret, [0, 3, 4, 5, 6]);
        assert_eq!(documents(text), "---\nkind: Secret\ndata: {a: b}\n");
    }

    #[test]
    fn what_only_messages_say_is_not_redacted() {
        let text = "kind: secret\nspec:\n  immutable: true\n  a: y\n  label: a-b_c.d hush\n# Secret\n";
        let cases = [
            ("must be a string, not `true` or `false`", "must be a string, not `true` or `false`"),
            ("at most 63 letters, digits, `-`, `_` and `.`", "at most 63 letters, digits, `-`, `_` and `.`"),
            ("write `Secret`", "write `Secret`"),
            ("did you mean `ConfigMap`?", "did you mean `ConfigMap`?"),
            ("`hush` is not a label value", "`…` is not a label value"),
            ("`a-b_c.d hush` is not a label value", "`…` is not a label value"),
        ];
        for (message, expected) in cases {
            assert_eq!(sentence(message, text, false), expected);
        }
    }

    #[test]
    fn nothing_that_stands_in_the_file_is_quoted() {
        let text = "kind: Secret\nspec:\n  channel: TOPHUSH!\n  port: 80821\n  modules:\n  - name: hush\n";
        let cases = [
            (
                "`spec.channel`: `TOPHUSH!` does not match the pattern `^[a-z]+$`",
                "`spec.channel`: `…` does not match the pattern `^[a-z]+$`",
            ),
            ("unknown field `TOPHUSH` in `spec`", "unknown field `…` in `spec`"),
            ("another item of this list has the same `name: hush`", "another item of this list has the same `…`"),
            ("`spec.modules[0].managed`: must be a string", "`spec.modules[0].managed`: must be a string"),
            ("invalid type: string \"TOPHUSH\", expected u16", "invalid type: string \"…\", expected u16"),
        ];
        for (message, expected) in cases {
            assert_eq!(sentence(message, text, false), expected);
        }
        assert_eq!(
            sentence("80821 must be at most 65535", text, true),
            "………… must be at most …………".replace("…………", "……………")
        );
    }
}
