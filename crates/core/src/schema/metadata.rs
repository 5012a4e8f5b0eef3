//! What the API server requires of `metadata`, for every kind.
//!
//! The checks are lenient: fields that users write are checked as the server does. For fields that
//! the server sets, only the name is checked.
//! must be known by name.

use serde_json::{Map, Value};

use super::{
    ViolationKind,
    check::{Path, ViolationSink, cut, type_name},
    suggest,
};
use crate::name;

/// Every field of ObjectMeta.
const FIELDS: [&str; 15] = [
    "annotations",
    "creationTimestamp",
    "deletionGracePeriodSeconds",
    "deletionTimestamp",
    "finalizers",
    "generateName",
    "generation",
    "labels",
    "managedFields",
    "name",
    "namespace",
    "ownerReferences",
    "resourceVersion",
    "selfLink",
    "uid",
];
/// Limit for the keys and values of all annotations together, in bytes.
const ANNOTATIONS_BYTES_MAX: usize = 256 * 1024;
/// Limit for the value of a label, in characters.
const LABEL_LEN_MAX: usize = 63;

/// Whose metadata is checked: that of the object itself, or of an embedded object.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Of {
    /// The object itself: it needs a name.
    Object,
    /// An embedded object, which gets its name later.
    Embedded,
}

/// Checks the `metadata` of the object at `path`, which may be absent.
pub(super) fn check(metadata: Option<&Value>, of: Of, path: &mut Path, out: &mut ViolationSink<'_>) {
    let missing_name = |path: &mut Path, out: &mut ViolationSink<'_>| {
        if of == Of::Object {
            path.within("name", |path| {
                out.push(path.violation(ViolationKind::Required, "the object needs a name".to_owned()));
            });
        }
    };
    path.within("metadata", |path| match metadata {
        None | Some(Value::Null) => missing_name(path, out),
        Some(Value::Object(fields)) => {
            match fields.get("name").filter(|name| !name.is_null() && **name != "") {
                Some(found) => {
                    let rule = match of {
                        Of::Object => name::check_subdomain,
                        Of::Embedded => check_path_segment,
                    };
                    path.within("name", |path| check_name(found, rule, path, out));
                }
                None if fields.get("generateName").and_then(Value::as_str).is_some_and(|prefix| !prefix.is_empty()) => {
                }
                None => missing_name(path, out),
            }
            // The server treats null as absent, but the field name must still be known.
            for (field, value) in fields.iter().filter(|(field, value)| !value.is_null() || !is_known(field)) {
                path.within(field, |path| check_field(field, value, path, out));
            }
        }
        Some(other) => {
            let message = format!("must be a mapping, not {}", type_name(other));
            out.push(path.violation(ViolationKind::Type, message));
        }
    });
}

fn check_field(field: &str, value: &Value, path: &mut Path, out: &mut ViolationSink<'_>) {
    match field {
        "labels" => texts(value, path, out, |key, value, path, out| {
            check_qualified(key, path, out);
            if !is_label_value(value) {
                let message =
                    format!("`{}` is not a label value: at most 63 letters, digits, `-`, `_` and `.`", cut(value));
                out.push(path.violation(ViolationKind::Metadata, message));
            }
        }),
        "annotations" => {
            // Annotation keys may have an upper-case prefix: the server compares them in lower case.
            texts(value, path, out, |key, _, path, out| check_qualified(&key.to_lowercase(), path, out));
            let bytes: usize = value
                .as_object()
                .into_iter()
                .flatten()
                .map(|(key, value)| key.len() + value.as_str().map_or(0, str::len))
                .sum();
            if bytes > ANNOTATIONS_BYTES_MAX {
                let message =
                    format!("all annotations together have {bytes} bytes; the limit is {ANNOTATIONS_BYTES_MAX}");
                out.push(path.violation(ViolationKind::TooLong, message));
            }
        }
        "namespace" => check_name(value, check_label, path, out),
        "finalizers" => match value.as_array() {
            Some(items) if items.iter().all(Value::is_string) => {}
            _ => out.push(path.violation(ViolationKind::Type, "must be a list of strings".to_owned())),
        },
        "name" | "generateName" | "uid" | "resourceVersion" | "selfLink" if !value.is_string() => {
            let message = format!("must be a string, not {}", type_name(value));
            out.push(path.violation(ViolationKind::Type, message));
        }
        known if is_known(known) => {}
        unknown => {
            let did_you_mean = suggest::nearest(unknown, FIELDS).map(str::to_owned);
            out.push(path.unknown_field(unknown, did_you_mean));
        }
    }
}

/// Whether ObjectMeta has a field of this name.
pub fn is_known(field: &str) -> bool {
    FIELDS.contains(&field)
}

/// Checks a mapping of strings, and each entry with `check_entry`.
fn texts(
    value: &Value,
    path: &mut Path,
    out: &mut ViolationSink<'_>,
    check: impl Fn(&str, &str, &mut Path, &mut ViolationSink<'_>),
) {
    let Some(entries) = value.as_object() else {
        let message = format!("must be a mapping of strings, not {}", type_name(value));
        out.push(path.violation(ViolationKind::Type, message));
        return;
    };
    for (key, value) in entries {
        path.within(key, |path| match value.as_str() {
            Some(text) => check(key, text, path, out),
            // The server reads null as the empty string here.
            None if value.is_null() => check(key, "", path, out),
            None => {
                let mut violation =
                    path.violation(ViolationKind::Type, format!("must be a string, not {}", type_name(value)));
                violation.hint = Some(format!("write it in quotes: \"{value}\""))
                    .filter(|_| !value.is_object() && !value.is_array());
                out.push(violation);
            }
        });
    }
}

fn check_name(
    value: &Value,
    check: impl Fn(&str) -> Result<(), name::ParseNameError>,
    path: &mut Path,
    out: &mut ViolationSink<'_>,
) {
    // `check_field` reports values that are not strings.
    let Some(text) = value.as_str() else { return };
    if let Err(problem) = check(text) {
        out.push(path.violation(ViolationKind::Metadata, problem.to_string()));
    }
}

/// Any text that can be in a URL path: the name rule of an embedded object's kind is unknown.
fn check_path_segment(text: &str) -> Result<(), name::ParseNameError> {
    match text.chars().find(|c| matches!(c, '/' | '%')) {
        Some(found) => Err(name::ParseNameError::Forbidden { found }),
        None if matches!(text, "." | "..") => Err(name::ParseNameError::Forbidden { found: '.' }),
        None => Ok(()),
    }
}

/// An RFC 1123 label, or empty: an empty namespace means none.
fn check_label(text: &str) -> Result<(), name::ParseNameError> {
    if text.is_empty() {
        return Ok(());
    }
    if text.len() > LABEL_LEN_MAX {
        return Err(name::ParseNameError::TooLong { found: text.len(), limit: LABEL_LEN_MAX });
    }
    if text.contains('.') {
        return Err(name::ParseNameError::Forbidden { found: '.' });
    }
    name::check_subdomain(text)
}

/// `name` or `prefix/name`: the form of keys of labels and annotations.
fn check_qualified(key: &str, path: &mut Path, out: &mut ViolationSink<'_>) {
    let (prefix, name) = match key.split_once('/') {
        Some((prefix, name)) => (Some(prefix), name),
        None => (None, key),
    };
    let name_ok = !name.is_empty() && is_label_value(name);
    if !name_ok || prefix.is_some_and(|prefix| name::check_subdomain(prefix).is_err()) {
        let message = format!(
            "`{}` is not a key of labels or annotations; use a key such as `app` or `example.com/app`",
            cut(key)
        );
        out.push(path.violation(ViolationKind::Metadata, message));
    }
}

fn is_label_value(text: &str) -> bool {
    let ends = |c: Option<char>| c.is_none_or(|c| c.is_ascii_alphanumeric());
    text.len() <= LABEL_LEN_MAX
        && text.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
        && ends(text.chars().next())
        && ends(text.chars().next_back())
}

/// Whether every object has this field, besides the fields of its schema.
pub(super) fn is_type_or_metadata(field: &str) -> bool {
    matches!(field, "apiVersion" | "kind" | "metadata")
}

/// Checks `apiVersion` and `kind`, which must be non-empty strings.
pub(super) fn check_type(fields: &Map<String, Value>, path: &mut Path, out: &mut ViolationSink<'_>) {
    for field in ["apiVersion", "kind"] {
        path.within(field, |path| match fields.get(field) {
            None | Some(Value::Null) => {
                out.push(path.violation(ViolationKind::Required, format!("`{field}` is missing")));
            }
            Some(Value::String(text)) if text.is_empty() => {
                out.push(path.violation(ViolationKind::Required, format!("`{field}` must not be empty")));
            }
            Some(Value::String(text)) if !is_type(field, text) => {
                let message =
                    format!("`{}` is not a valid {}", cut(text), if field == "kind" { "kind" } else { "API version" });
                out.push(path.violation(ViolationKind::Metadata, message));
            }
            Some(Value::String(_)) => {}
            Some(other) => {
                let message = format!("must be a string, not {}", type_name(other));
                out.push(path.violation(ViolationKind::Type, message));
            }
        });
    }
}

/// A kind is a label that may have upper-case letters and begins with a letter. An API version has
/// at most one slash.
fn is_type(field: &str, text: &str) -> bool {
    match field {
        "kind" => {
            text.len() <= LABEL_LEN_MAX
                && text.starts_with(|c: char| c.is_ascii_alphabetic())
                && !text.ends_with('-')
                && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '-')
        }
        _ => text.matches('/').count() <= 1,
    }
}
