//! What may be said of a file that holds a Secret: where a mistake is and what kind of mistake, nothing that stands there.

use std::{collections::BTreeSet, sync::LazyLock};

use serde_json::Value;

use super::{Kind, code};
use crate::{api, diagnostic::Diagnostic, snapshot::Snapshot, yaml};

/// Stands for what is not shown.
const HIDDEN: &str = "…";

/// Names that say nothing of a file: the fields of our kinds and of every object.
static FIELDS: LazyLock<BTreeSet<String>> = LazyLock::new(|| {
    let own =
        ["apiVersion", "kind", "metadata", "name", "namespace", "labels", "annotations", "data", "stringData", "type"];
    let mut fields: BTreeSet<String> = own.map(str::to_owned).into();
    fields.extend([api::KYMA_GROUP, api::KYMA_VERSION].join("/").split('.').map(str::to_owned));
    for crd in Kind::ALL.into_iter().filter_map(|kind| api::crd(kind.as_str())) {
        collect(&serde_json::to_value(crd).unwrap_or_default(), &mut fields);
    }
    fields
});

/// Whether the word `secret` stands in a text in whatever case. Asked of the text and not of the parsed objects, since
/// a broken file has none; and rather too often than once too seldom.
pub fn mentions_secret(text: &str) -> bool {
    const WORD: &str = "secret";
    let text = text.to_ascii_lowercase();
    text.match_indices(WORD).any(|(start, _)| {
        let is_word = |c: Option<char>| c.is_some_and(char::is_alphanumeric);
        !is_word(text[..start].chars().next_back()) && !is_word(text[start + WORD.len()..].chars().next())
    })
}

/// The text of a file, if nothing of it may be quoted.
pub(super) fn of<'a>(snapshot: &'a Snapshot, path: &str) -> Option<&'a str> {
    yaml::decode(snapshot.text(path)?).ok().filter(|text| mentions_secret(text))
}

/// A diagnostic without anything that stands in this text, its place aside.
pub(super) fn conceal(diagnostic: Diagnostic, text: &str) -> Diagnostic {
    let numbers = matches!(diagnostic.code, code::RANGE | code::PORT);
    let message = sentence(&diagnostic.message, text, numbers);
    let hint = diagnostic.hint.as_deref().map(|hint| sentence(hint, text, numbers));
    Diagnostic { message, hint, ..diagnostic }
}

/// A sentence without what it quotes of this text. Values stand between backticks, and, in the words of parsers, between
/// quotes; numbers may stand by themselves.
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

/// Whether all words of a quotation are names of fields, indices, or not in the text at all.
fn is_known(quoted: &str, text: &str) -> bool {
    const INDEX_LEN_MAX: usize = 3;
    let is_index = |word: &str| word.len() <= INDEX_LEN_MAX && word.bytes().all(|byte| byte.is_ascii_digit());
    let words = quoted.split(|c: char| !c.is_alphanumeric() && c != '-' && c != '_' && c != '/');
    words.filter(|word| !word.is_empty()).all(|word| FIELDS.contains(word) || is_index(word) || !text.contains(word))
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
    fn nothing_that_stands_in_the_file_is_quoted() {
        let text = "kind: Secret\nspec:\n  channel: TOPHUSH!\n  port: 80821\n  modules:\n  - name: hush\n";
        let cases = [
            (
                "`spec.channel`: `TOPHUSH!` does not match the pattern `^[a-z]+$`",
                "`spec.channel`: `…` does not match the pattern `^[a-z]+$`",
            ),
            ("unknown field `TOPHUSH` in `spec`", "unknown field `…` in `spec`"),
            ("another item of this list has the same `name: hush`", "another item of this list has the same `…`"),
            ("`spec.modules[0].managed`: must be a text", "`spec.modules[0].managed`: must be a text"),
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
