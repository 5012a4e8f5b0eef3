//! Finds Secrets: as objects, in lists, within other objects (`spec.data` of a ModuleTemplate,
//! `spec.resource` of a Manifest), and in strings that contain objects as JSON, YAML or base64 of
//! either. An example is the annotation of `kubectl apply`. Strings are parsed a few levels deep,
//! so that no notation hides a Secret: escapes, tags, anchors, nested quotes. A string that cannot
//! be parsed and mentions a Secret is masked as a whole. Field names and keys of `data` are not
//! secret.
//!
//! An object whose kind is missing or misspelt is a Secret if its content looks like one, see
//! [`tidegate_core::secret`].

use std::{collections::HashSet, fmt};

use base64::{Engine, engine::general_purpose::STANDARD};
use serde::de::{self, Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};
use tidegate_core::{schema::metadata::is_known, secret, yaml};

/// Maps a clear value to its mask.
pub(super) type Sink<'a> = dyn FnMut(&[u8], Met) -> String + 'a;

/// The kind of a masked value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Met {
    /// A value whose copies are secret as well.
    Value,
    /// A value that is only near a secret one.
    Beside,
}

/// What a mapping is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MapPlace {
    /// A whole document.
    Root,
    /// The fields of a schema: a field `stringData` of it is the description of one.
    Properties,
    /// Any other mapping.
    Within,
}

/// The fields of a Secret with its values.
const VALUES: [&str; 2] = ["data", "stringData"];
/// Annotations that only Tidegate writes.
const OURS: [&str; 2] = ["operator.kyma-project.io/", "tidegate.dev/"];
/// Contains an object, which is shown except for its values.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";
/// Maximum nesting of parsed strings. Deeper ones are masked as a whole if they mention a Secret.
const DEPTH_MAX: usize = 6;
/// A shorter text cannot contain a Secret with a value.
const TEXT_BYTES_MIN: usize = 24;
/// Minimum length of text that looks like base64 before it is decoded.
const BASE64_HEAD: usize = 24;

/// Masks in place. Returns whether there was anything to mask.
pub(super) fn mask(value: &mut Value, sink: &mut Sink<'_>) -> bool {
    match value {
        Value::Object(map) => map_at(map, DEPTH_MAX, MapPlace::Root, sink),
        other => value_at(other, DEPTH_MAX, sink),
    }
}

/// Whether there may be something to mask. Cheap, without false negatives.
pub(super) fn may_hold(value: &Value) -> bool {
    match value {
        Value::Object(map) => {
            let kind = map.get("kind").and_then(Value::as_str).map(str::trim);
            kind.is_some_and(|kind| is_called(kind, "Secret") || is_called(kind, "SecretList"))
                || secret::has_string_data(map)
                || secret::is_disguised(map, true)
                || map.values().any(may_hold)
        }
        Value::Array(items) => items.iter().any(may_hold),
        Value::String(text) => is_suspect(text),
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}

fn value_at(value: &mut Value, depth: usize, sink: &mut Sink<'_>) -> bool {
    match value {
        Value::Object(map) => map_at(map, depth, MapPlace::Within, sink),
        Value::Array(items) => items.iter_mut().fold(false, |any, item| value_at(item, depth, sink) | any),
        Value::String(text) => match text_at(text, depth, sink) {
            Some(masked) => {
                *text = masked;
                true
            }
            None => false,
        },
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}

/// Whether two words are equal except for case: a Secret with a misspelt kind still contains secret
/// values.
fn is_called(word: &str, name: &str) -> bool {
    word.eq_ignore_ascii_case(name)
}

fn map_at(map: &mut Map<String, Value>, depth: usize, place: MapPlace, sink: &mut Sink<'_>) -> bool {
    let is_kind = |map: &Map<_, _>, name| {
        map.get("kind").and_then(Value::as_str).is_some_and(|kind| is_called(kind.trim(), name))
    };
    // In any group: a kind of another group with this name most likely contains secrets as well.
    let is_named = is_kind(map, "Secret");
    let is_root = place == MapPlace::Root;
    let is_disguised = !is_named && place != MapPlace::Properties && secret::is_disguised(map, is_root);
    let is_secret = is_named || is_disguised || (place != MapPlace::Properties && secret::has_string_data(map));
    // A reference to a Secret contains its kind as well.
    let is_object = is_disguised || (is_named && (is_root || map.contains_key("apiVersion")));
    let is_schema = map.get("type").is_some_and(|of| of == "object");
    if is_kind(map, "SecretList") {
        // The items of a typed list have no kind.
        let items = map.get_mut("items").and_then(Value::as_array_mut);
        for item in items.into_iter().flatten().filter_map(Value::as_object_mut) {
            item.entry("kind").or_insert_with(|| Value::from("Secret"));
        }
    }
    let mut any = false;
    for (field, value) in map {
        any |= match field.as_str() {
            field if is_secret && VALUES.iter().any(|name| is_called(field, name)) => {
                values(value, is_called(field, "data"), sink)
            }
            "apiVersion" | "kind" | "type" if is_object && value.is_string() => false,
            "immutable" if is_object && value.is_boolean() => false,
            "metadata" if is_object => metadata(value, depth, sink),
            _ if is_object => all(value, Met::Value, sink),
            "properties" if is_schema => match value {
                Value::Object(fields) => map_at(fields, depth, MapPlace::Properties, sink),
                other => value_at(other, depth, sink),
            },
            _ => value_at(value, depth, sink),
        };
    }
    any
}

/// Masks user data in the metadata of a Secret.
fn metadata(value: &mut Value, depth: usize, sink: &mut Sink<'_>) -> bool {
    let Value::Object(map) = value else { return all(value, Met::Value, sink) };
    let mut any = false;
    for (field, value) in map {
        any |= match (field.as_str(), value) {
            // Names, labels, and fields for the API server and its controllers.
            (field, _) if field != "annotations" && is_known(field) => false,
            ("annotations", Value::Object(annotations)) => annotations.iter_mut().fold(false, |any, (key, value)| {
                let within = value_at(value, depth, sink);
                let is_shown = OURS.iter().any(|ours| key.starts_with(ours)) || (within && key == LAST_APPLIED);
                any | within | (!is_shown && all(value, Met::Beside, sink))
            }),
            (_, value) => all(value, Met::Value, sink),
        };
    }
    any
}

/// Masks everything in a value except the keys of mappings.
fn all(value: &mut Value, met: Met, sink: &mut Sink<'_>) -> bool {
    match value {
        Value::Null => false,
        Value::Object(map) => map.values_mut().fold(false, |any, value| all(value, met, sink) | any),
        Value::Array(items) => items.iter_mut().fold(false, |any, value| all(value, met, sink) | any),
        Value::Bool(_) | Value::Number(_) | Value::String(_) => {
            *value = Value::from(sink(&clear(value, false), met));
            true
        }
    }
}

/// Masks the content of `data` or `stringData`.
fn values(values: &mut Value, encoded: bool, sink: &mut Sink<'_>) -> bool {
    match values {
        Value::Null => false,
        Value::Object(values) => {
            for value in values.values_mut() {
                let bytes = clear(value, encoded);
                *value = Value::from(sink(&bytes, Met::Value));
            }
            !values.is_empty()
        }
        // Secrets have no such field, but mistaken content is secret as well.
        other => {
            let bytes = clear(other, false);
            *other = Value::from(sink(&bytes, Met::Value));
            true
        }
    }
}

/// The bytes of a value.
fn clear(value: &Value, encoded: bool) -> Vec<u8> {
    match value {
        Value::String(text) if encoded => decoded(text).unwrap_or_else(|| text.as_bytes().to_vec()),
        Value::String(text) => text.as_bytes().to_vec(),
        other => other.to_string().into_bytes(),
    }
}

pub(super) fn decoded(text: &str) -> Option<Vec<u8>> {
    let compact: String = text.split_ascii_whitespace().collect();
    STANDARD.decode(compact).ok()
}

/// A text with its Secrets masked; `None` if it contains none.
fn text_at(text: &str, depth: usize, sink: &mut Sink<'_>) -> Option<String> {
    if !is_suspect(text) {
        return None;
    }
    if let Some(inner) = base64_text(text) {
        return match depth.checked_sub(1) {
            // Masked as one value: in base64, a digest would differ in each run.
            Some(depth) => text_at(&inner, depth, sink).map(|_| sink(inner.as_bytes(), Met::Value)),
            None => names_secret(&inner).then(|| sink(text.as_bytes(), Met::Value)),
        };
    }
    let whole = |sink: &mut Sink<'_>| names_secret(text).then(|| sink(text.as_bytes(), Met::Value));
    let (Some((mut values, is_json)), Some(depth)) = (parsed(text), depth.checked_sub(1)) else { return whole(sink) };
    // Text that is not a mapping, such as a line of a script, is one value.
    if values.iter().any(|value| value.as_str().is_some_and(|inner| inner.len() >= text.trim().len())) {
        return whole(sink);
    }
    let mut met = Vec::new();
    let mut note = |bytes: &[u8], what: Met| {
        met.push(bytes.to_vec());
        sink(bytes, what)
    };
    let any = values.iter_mut().fold(false, |any, value| value_at(value, depth, &mut note) | any);
    if !any {
        return None;
    }
    if !is_json && text.contains('&') {
        // Content that an alias or a merge key repeats is also at its anchor.
        values.iter_mut().for_each(|value| repeated(value, &met, sink));
    }
    Some(match (values.as_slice(), is_json) {
        ([value], true) => value.to_string(),
        _ => values.iter().map(yaml::to_string).collect::<Vec<_>>().join("---\n"),
    })
}

/// Masks strings that equal a remembered value.
fn repeated(value: &mut Value, met: &[Vec<u8>], sink: &mut Sink<'_>) {
    match value {
        Value::Object(map) => map.values_mut().for_each(|value| repeated(value, met, sink)),
        Value::Array(items) => items.iter_mut().for_each(|item| repeated(item, met, sink)),
        Value::String(text) => {
            let is_met = |bytes: &[u8]| met.iter().any(|met| met == bytes);
            let found = [Some(text.as_bytes().to_vec()), decoded(text)];
            if let Some(bytes) = found.into_iter().flatten().find(|bytes| is_met(bytes)) {
                *text = sink(&bytes, Met::Value);
            }
        }
        Value::Number(_) | Value::Bool(_) => {
            let bytes = value.to_string().into_bytes();
            if met.contains(&bytes) {
                *value = Value::from(sink(&bytes, Met::Value));
            }
        }
        Value::Null => {}
    }
}

/// The documents of a text, and whether it is JSON; `None` if it cannot be parsed.
pub(super) fn parsed(text: &str) -> Option<(Vec<Value>, bool)> {
    if text.trim_start().starts_with(['{', '[', '"'])
        && let Ok(value) = serde_json::from_str::<Value>(text)
        // A value has only the last of two equal keys. YAML refuses them.
        && serde_json::from_str::<UniqueKeys>(text).is_ok()
    {
        return Some((vec![value], true));
    }
    let documents = yaml::parse(text, &yaml::Limits::default()).ok()?;
    Some((documents.iter().map(yaml::Node::to_json).collect(), false))
}

/// JSON in which no mapping has a key twice.
struct UniqueKeys;

impl<'de> Deserialize<'de> for UniqueKeys {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<UniqueKeys, D::Error> {
        deserializer.deserialize_any(UniqueKeysVisitor)
    }
}

struct UniqueKeysVisitor;

impl<'de> Visitor<'de> for UniqueKeysVisitor {
    type Value = UniqueKeys;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON without duplicate keys")
    }

    fn visit_unit<E: de::Error>(self) -> Result<UniqueKeys, E> {
        Ok(UniqueKeys)
    }

    fn visit_bool<E: de::Error>(self, _: bool) -> Result<UniqueKeys, E> {
        Ok(UniqueKeys)
    }

    fn visit_i64<E: de::Error>(self, _: i64) -> Result<UniqueKeys, E> {
        Ok(UniqueKeys)
    }

    fn visit_u64<E: de::Error>(self, _: u64) -> Result<UniqueKeys, E> {
        Ok(UniqueKeys)
    }

    fn visit_f64<E: de::Error>(self, _: f64) -> Result<UniqueKeys, E> {
        Ok(UniqueKeys)
    }

    fn visit_str<E: de::Error>(self, _: &str) -> Result<UniqueKeys, E> {
        Ok(UniqueKeys)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<UniqueKeys, A::Error> {
        while items.next_element::<UniqueKeys>()?.is_some() {}
        Ok(UniqueKeys)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<UniqueKeys, A::Error> {
        let mut keys = HashSet::new();
        while let Some((key, _)) = fields.next_entry::<String, UniqueKeys>()? {
            if !keys.insert(key) {
                return Err(de::Error::custom("duplicate key"));
            }
        }
        Ok(UniqueKeys)
    }
}

/// Whether a text may contain a Secret: it contains both words, the fields of an object with data, or characters that
/// may encode them.
fn is_suspect(text: &str) -> bool {
    let contains_any = |words: &[&str]| words.iter().any(|word| text.contains(word));
    let says = || {
        (text.contains("kind") && contains_any(&["Secret", "secret", "SECRET"]))
            || contains_any(&["stringData", "StringData", "stringdata"])
            || (contains_any(&["apiVersion", "kind"]) && contains_any(&["data", "Data"]))
    };
    let escapes = || text.contains('\\') && text.contains(':') && text.contains('"');
    text.len() >= TEXT_BYTES_MIN && (says() || escapes() || is_base64(text))
}

fn is_base64(text: &str) -> bool {
    let is_digit =
        |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'=') || byte.is_ascii_whitespace();
    text.bytes().take(BASE64_HEAD).all(|byte| is_digit(byte) && byte != b' ')
}

/// The decoded text of base64.
pub(super) fn base64_text(text: &str) -> Option<String> {
    let bytes = is_base64(text).then(|| decoded(text)).flatten()?;
    String::from_utf8(bytes).ok()
}

/// Whether a text that cannot be parsed contains `stringData:` or `kind: Secret`, in YAML's block or flow style,
/// over several lines, with a tag or an anchor, in quotes or with escapes. The kind may be misspelt.
fn names_secret(text: &str) -> bool {
    /// Maximum total length of tags and anchors between `kind:` and `Secret`.
    const MARKS_MAX: usize = 64;
    let plain = unescaped(text);
    let compact: String = plain.chars().filter(|c| !c.is_whitespace() && !matches!(c, '"' | '\'' | '\\')).collect();
    if compact.contains("stringData:") {
        return true;
    }
    // White space ends a word, which the compact text no longer shows.
    let mut words = plain.split("kind").filter_map(|rest| {
        let rest = rest.trim_start_matches(['"', '\'', '\\', ' ']).strip_prefix(':')?;
        rest.split(|c: char| !c.is_alphanumeric()).find(|word| !word.is_empty())
    });
    words.any(secret::is_near)
        || compact.match_indices("kind:").any(|(at, found)| {
            let rest = &compact[at + found.len()..];
            rest.starts_with("Secret")
                || (rest.starts_with(['!', '&', '>', '|'])
                    && rest.find("Secret").is_some_and(|at| at <= MARKS_MAX && !rest[..at].contains(['{', ':', ','])))
        })
}

/// A text with `\x53` and `\u0053` decoded.
fn unescaped(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('\\') {
        plain.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        let digits = match rest.as_bytes().first() {
            Some(b'x') => 2,
            Some(b'u') => 4,
            Some(b'U') => 8,
            _ => continue,
        };
        let code =
            rest.get(1..=digits).and_then(|digits| u32::from_str_radix(digits, 16).ok()).and_then(char::from_u32);
        if let Some(c) = code {
            plain.push(c);
            rest = &rest[1 + digits..];
        }
    }
    plain.push_str(rest);
    plain
}
