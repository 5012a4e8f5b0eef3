//! The changed lines between two objects, as YAML, with context lines and the field of the first
//! one.

use serde_json::{Map, Value};
use similar::{ChangeTag, TextDiff};

use super::model::{Hunk, Line};
use tidegate_core::{
    object::{DisplayPath, PathPart},
    yaml::{self, Node, NodeValue},
};

/// Number of context lines.
const CONTEXT: usize = 3;
/// Larger mappings are not reordered like the other side, because the cost is quadratic.
const ORDERED_KEYS_MAX: usize = 1000;

/// The hunks between two objects; all lines if there is only one object.
pub fn hunks(old: Option<&Value>, new: Option<&Value>) -> Vec<Hunk> {
    match (old, new) {
        (Some(old), Some(new)) => between(&in_order_of(old, new), new),
        (Some(old), None) => {
            whole(old, Line::Old).map(|lines| vec![Hunk { old_start: 1, ..lines }]).unwrap_or_default()
        }
        (None, Some(new)) => {
            whole(new, Line::New).map(|lines| vec![Hunk { new_start: 1, ..lines }]).unwrap_or_default()
        }
        (None, None) => Vec::new(),
    }
}

fn whole(value: &Value, line: fn(String) -> Line) -> Option<Hunk> {
    let text = yaml::to_string(value);
    let lines: Vec<Line> = text.lines().map(|text| line(text.to_owned())).collect();
    (!lines.is_empty()).then_some(Hunk { path: String::new(), old_start: 0, new_start: 0, lines })
}

fn between(old: &Value, new: &Value) -> Vec<Hunk> {
    let (old, new) = (yaml::to_string(old), yaml::to_string(new));
    let diff = TextDiff::from_lines(&old, &new);
    let groups = diff.grouped_ops(CONTEXT);
    if groups.is_empty() {
        return Vec::new();
    }
    let (old_fields, new_fields) = (Fields::from_yaml(&old), Fields::from_yaml(&new));
    groups
        .iter()
        .filter_map(|group| {
            let (first, last) = (group.first()?, group.last()?);
            let (old_range, new_range) =
                (first.old_range().start..last.old_range().end, first.new_range().start..last.new_range().end);
            let changes = || group.iter().flat_map(|operation| diff.iter_changes(operation));
            let path = changes().find_map(|change| match change.tag() {
                ChangeTag::Equal => None,
                ChangeTag::Delete => Some(old_fields.at(change.old_index()? + 1)),
                ChangeTag::Insert => Some(new_fields.at(change.new_index()? + 1)),
            });
            let lines = changes().map(|change| {
                let text = change.value().trim_end_matches('\n').to_owned();
                match change.tag() {
                    ChangeTag::Equal => Line::Same(text),
                    ChangeTag::Delete => Line::Old(text),
                    ChangeTag::Insert => Line::New(text),
                }
            });
            // As in unified diffs, an empty side names the line before it.
            let start = |range: &std::ops::Range<usize>| if range.is_empty() { range.start } else { range.start + 1 };
            Some(Hunk {
                path: path.unwrap_or_default(),
                old_start: start(&old_range),
                new_start: start(&new_range),
                lines: lines.collect(),
            })
        })
        .collect()
}

/// The field on each line.
struct Fields(Vec<(usize, String)>);

impl Fields {
    fn from_yaml(text: &str) -> Fields {
        let mut fields = Vec::new();
        if let Ok(documents) = yaml::parse(text, &yaml::Limits::default()) {
            documents.iter().for_each(|node| collect(node, &mut Vec::new(), &mut fields));
        }
        Fields(fields)
    }

    /// The innermost field that begins on a line, or on the last line above with a field.
    fn at(&self, line: usize) -> String {
        let end = self.0.partition_point(|(start, _)| *start <= line);
        self.0[..end].last().map(|(_, path)| path.clone()).unwrap_or_default()
    }
}

/// Fields in the order of the text. Fields on the same line come from the outside in.
fn collect(node: &Node, path: &mut Vec<PathPart>, fields: &mut Vec<(usize, String)>) {
    let mut below = |part: PathPart, line: u32, node: &Node, path: &mut Vec<PathPart>| {
        path.push(part);
        fields.push((line as usize, DisplayPath(path).to_string()));
        collect(node, path, fields);
        path.pop();
    };
    match &node.value {
        NodeValue::Seq(items) => {
            for (index, item) in items.iter().enumerate() {
                below(PathPart::Index(index), item.line, item, path);
            }
        }
        NodeValue::Map(entries) => {
            for entry in entries {
                below(PathPart::Key(entry.key.clone()), entry.key_line, &entry.value, path);
            }
        }
        NodeValue::Null
        | NodeValue::Bool(_)
        | NodeValue::Int(_)
        | NodeValue::UInt(_)
        | NodeValue::Float(_)
        | NodeValue::Str(_) => {}
    }
}

/// `old` with its keys in the order of `new`: a field that only moved within its mapping is not a
/// difference.
fn in_order_of(old: &Value, new: &Value) -> Value {
    match (old, new) {
        (Value::Object(old), Value::Object(new)) if old.len().max(new.len()) <= ORDERED_KEYS_MAX => {
            let mut keys: Vec<&String> = new.keys().filter(|key| old.contains_key(*key)).collect();
            let mut behind: Option<&String> = None;
            for key in old.keys() {
                if !new.contains_key(key) {
                    // A key that only the old side has stays behind its predecessor.
                    let at = behind.and_then(|behind| keys.iter().position(|known| *known == behind));
                    keys.insert(at.map_or(0, |at| at + 1), key);
                }
                behind = Some(key);
            }
            let ordered = keys.into_iter().filter_map(|key| {
                let value = old.get(key)?;
                Some((key.clone(), new.get(key).map_or_else(|| value.clone(), |new| in_order_of(value, new))))
            });
            Value::Object(ordered.collect::<Map<_, _>>())
        }
        (Value::Array(old), Value::Array(new)) => {
            let ordered = old.iter().enumerate().map(|(index, value)| match new.get(index) {
                Some(new) => in_order_of(value, new),
                None => value.clone(),
            });
            Value::Array(ordered.collect())
        }
        (old, _) => old.clone(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// A hunk in the unified diff format.
    fn text(hunks: &[Hunk]) -> String {
        let mut text = String::new();
        for hunk in hunks {
            text.push_str(&format!("@@ -{} +{} @@ {}\n", hunk.old_start, hunk.new_start, hunk.path));
            for line in &hunk.lines {
                let (mark, line) = match line {
                    Line::Same(line) => (' ', line),
                    Line::Old(line) => ('-', line),
                    Line::New(line) => ('+', line),
                };
                text.push_str(&format!("{mark}{line}\n"));
            }
        }
        text
    }

    #[track_caller]
    fn check(old: &Value, new: &Value, expected: &str) {
        assert_eq!(text(&hunks(Some(old), Some(new))), expected);
    }

    #[test]
    fn a_hunk_names_the_field_of_its_first_changed_line() {
        let deployment = |image: &str| {
            json!({
                "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "a"},
                "spec": {"replicas": 1, "template": {"spec": {"containers": [
                    {"name": "manager", "image": image, "ports": [{"containerPort": 8080}]},
                ]}}},
            })
        };
        check(
            &deployment("manager:1"),
            &deployment("manager:2"),
            "@@ -8 +8 @@ spec.template.spec.containers[0].image\n     spec:\n       containers:\n       - name: manager\n-        image: manager:1\n+        image: manager:2\n         ports:\n         - containerPort: 8080\n",
        );
    }

    #[test]
    fn the_order_of_keys_is_no_difference() {
        let old = json!({"b": 1, "a": {"z": 1, "x": 2}, "gone": 3});
        let new = json!({"a": {"x": 2, "z": 1}, "b": 1});
        check(&old, &new, "@@ -1 +1 @@ gone\n a:\n   x: 2\n   z: 1\n-gone: 3\n b: 1\n");
        assert_eq!(hunks(Some(&json!({"b": 1, "a": 2})), Some(&json!({"a": 2, "b": 1}))), []);
    }

    #[test]
    fn an_object_on_one_side_is_shown_whole() {
        let value = json!({"kind": "ConfigMap"});
        assert_eq!(text(&hunks(None, Some(&value))), "@@ -0 +1 @@ \n+kind: ConfigMap\n");
        assert_eq!(text(&hunks(Some(&value), None)), "@@ -1 +0 @@ \n-kind: ConfigMap\n");
    }

    #[test]
    fn a_line_within_a_text_belongs_to_its_field() {
        let config = |last: &str| json!({"data": {"config.yaml": format!("a: 1\nb: 2\nc: 3\nd: {last}\n")}});
        let found = hunks(Some(&config("4")), Some(&config("5")));
        assert_eq!(found[0].path, "data[config.yaml]");
        assert!(text(&found).contains("-    d: 4\n+    d: 5\n"), "{}", text(&found));
    }
}
