//! Turns the output of a template into an object: parses the YAML, checks the kind, and sets our
//! identity, labels and annotations.
//!
//! A template may add labels and annotations. Tidegate sets those that define the owner of an
//! object. A template that sets them is rejected, not silently overridden.

use serde_json::{Map, Value};

use super::Template;
use crate::{
    object::Object,
    yaml::{self, Node, NodeValue, ParseErrorKind},
};

/// Metadata that is set on an object, regardless of its template.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Stamp {
    /// Namespace; empty for a cluster-scoped object.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// Labels.
    pub labels: Vec<(String, String)>,
    /// Annotations.
    pub annotations: Vec<(String, String)>,
    /// Owner references, as in `metadata`.
    pub owners: Vec<Value>,
    /// Finalizers.
    pub finalizers: Vec<String>,
}

/// An error in the output, and its line.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Problem {
    pub(super) line: Option<u32>,
    pub(super) message: String,
}

/// Keys of labels and annotations that only Tidegate sets: they define the owner and the controller
/// of an object.
const RESERVED: [&str; 3] = ["operator.kyma-project.io/", "deprecated-operator.kyma-project.io/", "tidegate.dev/"];

/// The output of a template.
pub(super) struct Written<'t> {
    /// All of it.
    pub(super) text: &'t str,
    /// Whether a string occurs literally in the template. Computed strings are not quoted: they may
    /// be part of a secret.
    pub(super) is_literal: &'t dyn Fn(&str) -> bool,
}

/// Parses the output as the object that `template` produces, and stamps it.
/// Fails if the output is not one valid object of the right kind.
pub(super) fn object(template: Template, written: &Written<'_>, stamp: &Stamp) -> Result<Object, Problem> {
    let documents = yaml::parse(written.text, &yaml::Limits::default()).map_err(|error| {
        let key = error.message.split('`').nth(1).unwrap_or_default().trim_end_matches('…');
        let is_computed = error.kind == ParseErrorKind::DuplicateKey && !(written.is_literal)(key);
        let what = if is_computed { "a computed key occurs twice" } else { error.message.as_str() };
        at(Some(error.line), format!("writes invalid YAML: {what}"))
    })?;
    let mut documents = documents.iter().filter(|node| !matches!(node.value, NodeValue::Null));
    let Some(node) = documents.next() else { return Err(at(None, "writes no object")) };
    if let Some(second) = documents.next() {
        return Err(at(Some(second.line), "writes more than one object"));
    }
    check_kind(template, node, written)?;
    check_metadata(node, stamp, written)?;
    let mut value = node.to_json();
    let map = value.as_object_mut().expect("check_kind saw a mapping");
    stamp.put_on(map);
    Object::new(value).map_err(|error| at(Some(node.line), error.to_string()))
}

fn check_kind(template: Template, node: &Node, written: &Written<'_>) -> Result<(), Problem> {
    let NodeValue::Map(entries) = &node.value else {
        return Err(at(Some(node.line), "writes something that is not a mapping"));
    };
    let produces = template.produces();
    for (field, allowed) in [("apiVersion", produces.api_versions), ("kind", &[produces.kind][..])] {
        let Some(entry) = entries.iter().find(|entry| entry.key == field) else {
            return Err(at(Some(node.line), format!("writes an object without `{field}`")));
        };
        let found = text(&entry.value);
        if !allowed.contains(&found) {
            let what = written.named(found, || format!("`{field}: {found}`"), || format!("a computed `{field}`"));
            let message = format!("writes {what}; it may only write `{field}: {}`", allowed[0]);
            return Err(at(Some(entry.key_line), message));
        }
    }
    match entries.iter().find(|entry| entry.key == "status") {
        Some(entry) => Err(at(Some(entry.key_line), "writes `status`, which only the object's controller may write")),
        None => Ok(()),
    }
}

fn check_metadata(node: &Node, stamp: &Stamp, written: &Written<'_>) -> Result<(), Problem> {
    let NodeValue::Map(entries) = &node.value else { return Ok(()) };
    let Some(metadata) = entries.iter().find(|entry| entry.key == "metadata") else { return Ok(()) };
    let fields = match &metadata.value.value {
        NodeValue::Null => return Ok(()),
        NodeValue::Map(fields) => fields,
        _ => return Err(at(Some(metadata.key_line), "writes `metadata` that is not a mapping")),
    };
    for field in fields {
        let line = Some(field.key_line);
        let same = |expected: &str| text(&field.value) == expected;
        match field.key.as_str() {
            "name" if same(&stamp.name) => {}
            "namespace" if same(&stamp.namespace) => {}
            "labels" => check_marks("label", &field.value, &stamp.labels, written)?,
            "annotations" => check_marks("annotation", &field.value, &stamp.annotations, written)?,
            other => {
                let computed = || "a computed field of `metadata`".to_owned();
                let what = written.named(other, || format!("`metadata.{other}`"), computed);
                return Err(at(line, format!("writes {what}; only Tidegate sets identity and ownership")));
            }
        }
    }
    Ok(())
}

fn check_marks(what: &str, node: &Node, ours: &[(String, String)], written: &Written<'_>) -> Result<(), Problem> {
    let entries = match &node.value {
        NodeValue::Null => return Ok(()),
        NodeValue::Map(entries) => entries,
        _ => return Err(at(Some(node.line), format!("writes {what}s that are not a mapping"))),
    };
    for entry in entries {
        let key = &entry.key;
        let mark = || written.named(key, || format!("{what} `{key}`"), || format!("{what} with a computed key"));
        let NodeValue::Str(found) = &entry.value.value else {
            return Err(at(Some(entry.key_line), format!("writes {} that is not a string", mark())));
        };
        let expected = ours.iter().find(|(key, _)| *key == entry.key).map(|(_, value)| value);
        let reserved = RESERVED.iter().any(|prefix| entry.key.starts_with(prefix));
        if expected.map_or(reserved, |expected| expected != found) {
            return Err(at(Some(entry.key_line), format!("writes {}, which only Tidegate sets", mark())));
        }
    }
    Ok(())
}

/// A scalar as a string; empty for any other value.
fn text(node: &Node) -> &str {
    match &node.value {
        NodeValue::Str(text) => text,
        _ => "",
    }
}

fn at(line: Option<u32>, message: impl Into<String>) -> Problem {
    Problem { line, message: message.into() }
}

// === impl Written ===

impl Written<'_> {
    /// Describes a string: quoted if it occurs in the template, otherwise as computed.
    fn named(&self, text: &str, literal: impl FnOnce() -> String, computed: impl FnOnce() -> String) -> String {
        if (self.is_literal)(text) { literal() } else { computed() }
    }
}

// === impl Stamp ===

impl Stamp {
    /// The stamp of an object without labels and annotations.
    pub fn new(namespace: &str, name: &str) -> Stamp {
        Stamp { namespace: namespace.to_owned(), name: name.to_owned(), ..Stamp::default() }
    }

    /// Adds a label.
    #[must_use]
    pub fn label(mut self, key: &str, value: &str) -> Stamp {
        self.labels.push((key.to_owned(), value.to_owned()));
        self
    }

    /// Adds an annotation.
    #[must_use]
    pub fn annotation(mut self, key: &str, value: &str) -> Stamp {
        self.annotations.push((key.to_owned(), value.to_owned()));
        self
    }

    /// Sets all of it. `apiVersion`, `kind` and `metadata` come first, as readers expect.
    fn put_on(&self, map: &mut Map<String, Value>) {
        let written = map.shift_remove("metadata").and_then(|metadata| match metadata {
            Value::Object(metadata) => Some(metadata),
            _ => None,
        });
        let mut written = written.unwrap_or_default();
        let mut metadata = Map::new();
        metadata.insert("name".to_owned(), Value::from(self.name.as_str()));
        if !self.namespace.is_empty() {
            metadata.insert("namespace".to_owned(), Value::from(self.namespace.as_str()));
        }
        for (field, ours) in [("labels", &self.labels), ("annotations", &self.annotations)] {
            let mut all = match written.shift_remove(field) {
                Some(Value::Object(all)) => all,
                _ => Map::new(),
            };
            all.extend(ours.iter().map(|(key, value)| (key.clone(), Value::from(value.as_str()))));
            all.sort_keys();
            if !all.is_empty() {
                metadata.insert(field.to_owned(), Value::Object(all));
            }
        }
        if !self.owners.is_empty() {
            metadata.insert("ownerReferences".to_owned(), Value::from(self.owners.clone()));
        }
        if !self.finalizers.is_empty() {
            metadata.insert("finalizers".to_owned(), Value::from(self.finalizers.clone()));
        }
        map.shift_insert(2.min(map.len()), "metadata".to_owned(), Value::Object(metadata));
    }
}
