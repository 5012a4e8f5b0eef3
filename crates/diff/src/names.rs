//! Names that only one runtime has, and objects without them, so that objects of several runtimes
//! can be equal.

use std::fmt;

use serde_json::Value;

/// A runtime's own names, and their replacements, which make objects of several runtimes equal.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Names(
    /// Names and replacements. The longest names come first, because one may be part of another.
    Vec<(String, String)>,
);

// === impl Names ===

impl Names {
    /// From names and their meanings: `("one-cache-123", "Manifest of cache")`. Empty names are
    /// ignored.
    pub fn new<W: fmt::Display>(names: impl IntoIterator<Item = (String, W)>) -> Names {
        let mut names: Vec<(String, String)> = names
            .into_iter()
            .filter(|(name, _)| !name.is_empty())
            .map(|(name, what)| (name, format!("((own: {what}))")))
            .collect();
        names.sort_by(|(one, _), (other, _)| (other.len(), one).cmp(&(one.len(), other)));
        Names(names)
    }

    /// `text` without the runtime's own names.
    pub fn neutral_text(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for (name, mark) in &self.0 {
            if text.contains(name.as_str()) {
                text = replace_words(&text, name, mark);
            }
        }
        text
    }

    /// `value` without the runtime's own names in its strings.
    #[must_use]
    pub fn neutral(&self, value: &Value) -> Value {
        map_texts(value, &|text| self.neutral_text(text))
    }

    /// `value` with the runtime's own names restored.
    #[must_use]
    pub fn own(&self, value: &Value) -> Value {
        map_texts(value, &|text| {
            let marked = self.0.iter().filter(|(_, mark)| text.contains(mark.as_str()));
            marked.fold(text.to_owned(), |text, (name, mark)| text.replace(mark.as_str(), name))
        })
    }
}

/// Replaces a name unless it is part of another one.
fn replace_words(text: &str, name: &str, mark: &str) -> String {
    let is_name = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || matches!(c, '-' | '_' | '.'));
    let mut replaced = String::with_capacity(text.len());
    let mut rest = 0;
    for (start, found) in text.match_indices(name) {
        let end = start + found.len();
        if !is_name(text[..start].chars().next_back()) && !is_name(text[end..].chars().next()) {
            replaced.push_str(&text[rest..start]);
            replaced.push_str(mark);
            rest = end;
        }
    }
    replaced.push_str(&text[rest..]);
    replaced
}

fn map_texts(value: &Value, change: &dyn Fn(&str) -> String) -> Value {
    match value {
        Value::String(text) => Value::String(change(text)),
        Value::Array(items) => items.iter().map(|item| map_texts(item, change)).collect(),
        Value::Object(map) => {
            Value::Object(map.iter().map(|(key, value)| (key.clone(), map_texts(value, change))).collect())
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_name_does_not_touch_other_words() {
        let names =
            Names::new([("a".to_owned(), "name"), ("kcp-system/a".to_owned(), "key"), (String::new(), "nothing")]);
        let neutral = names.neutral_text("a banana of kcp-system/a is a-b, a.b, b_a and (a)");
        assert_eq!(neutral, "((own: name)) banana of ((own: key)) is a-b, a.b, b_a and (((own: name)))");
    }

    #[test]
    fn what_is_neutral_gets_its_names_back() {
        let names = Names::new([("one".to_owned(), "Kyma"), ("one-cache-1".to_owned(), "Manifest of cache")]);
        let value = serde_json::json!({"a": ["one", {"b": "kcp-system/one-cache-1"}], "c": 1});
        let neutral = names.neutral(&value);
        assert_eq!(neutral["a"][1]["b"], "kcp-system/((own: Manifest of cache))");
        assert_eq!(names.own(&neutral), value);
    }
}
