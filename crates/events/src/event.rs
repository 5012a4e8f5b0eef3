//! The event of contract `v2`: which object changed.
//!
//! Writes an event byte for byte as the Go agents write it: no white space and always all six values. `Namespace` and
//! `Name` are capitalised because they come from a Go type without JSON names; the other members are in lower case.
//! Reads an event as the Go listeners read it: member names in any case, unknown members ignored, duplicates merged,
//! `null` ignored.
//!
//! Does not validate the content: an event with empty strings is an event.

use std::fmt;

use serde::{
    Serialize,
    de::{DeserializeSeed, IgnoredAny, MapAccess, Visitor},
};

/// The version of the contract: the first segment of the path.
pub const CONTRACT: &str = "v2";
/// The manager that Tidegate's control plane serves. An event for it triggers a reconciliation of the runtime.
pub const MANAGER: &str = "lifecycle-manager";

/// The annotation of a dry run by which Tidegate probes the way from an API server to its agent and back. Its value is
/// the name of the event that the agent sends.
pub const PROBE: &str = "tidegate.dev/watch-probe";
/// Length limit of a probe's value, in bytes. Tidegate sends 16.
pub const PROBE_LEN_MAX: usize = 63;
/// Group, version and kind of the event about a probe. No object is of this kind.
const PROBE_GVK: (&str, &str, &str) = ("tidegate.dev", "v1alpha1", "WatchProbe");

/// An object changed.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct Event {
    /// Namespace and name of the object.
    pub watched: Watched,
    /// Group, version and kind of the object.
    #[serde(rename = "watchedGvk")]
    pub gvk: Gvk,
}

/// Namespace and name of an object.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct Watched {
    /// The namespace; empty for a cluster-scoped object.
    #[serde(rename = "Namespace")]
    pub namespace: String,
    /// The name.
    #[serde(rename = "Name")]
    pub name: String,
}

/// Group, version and kind of an object.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct Gvk {
    /// The API group; empty for the core group.
    pub group: String,
    /// The version.
    pub version: String,
    /// The kind.
    pub kind: String,
}

/// The body is not an event. Gives the position of the error but quotes nothing from the body.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the body is not an event: {what} at line {line}, column {column}")]
pub struct ParseEventError {
    what: &'static str,
    line: usize,
    column: usize,
}

/// The path to which agents send events for a manager. The manager is inserted as it is: encode it first if it comes
/// from outside.
pub fn path(contract: &str, manager: &str) -> String {
    format!("/{contract}/{manager}/event")
}

// === impl Event ===

impl Event {
    /// The event about a probe with this value.
    pub fn of_probe(value: &str) -> Event {
        let (group, version, kind) = PROBE_GVK;
        Event {
            watched: Watched { namespace: String::new(), name: value.to_owned() },
            gvk: Gvk { group: group.to_owned(), version: version.to_owned(), kind: kind.to_owned() },
        }
    }

    /// The value of the probe that the event is about, if it is about one.
    pub fn probe(&self) -> Option<&str> {
        let Gvk { group, version, kind } = &self.gvk;
        ((group.as_str(), version.as_str(), kind.as_str()) == PROBE_GVK).then_some(&*self.watched.name)
    }

    /// The body of the request, in the form that Go's encoder writes.
    pub fn to_body(&self) -> String {
        let text = serde_json::to_string(self).expect("strings are always JSON");
        // Go escapes characters that have a meaning in HTML. They occur only in strings, so the text can be replaced
        // directly.
        if !text.contains(['<', '>', '&', '\u{2028}', '\u{2029}']) {
            return text;
        }
        let mut escaped = String::with_capacity(text.len() + 16);
        for c in text.chars() {
            match c {
                '<' => escaped.push_str("\\u003c"),
                '>' => escaped.push_str("\\u003e"),
                '&' => escaped.push_str("\\u0026"),
                '\u{2028}' => escaped.push_str("\\u2028"),
                '\u{2029}' => escaped.push_str("\\u2029"),
                other => escaped.push(other),
            }
        }
        escaped
    }

    /// Reads an event from the body of a request.
    ///
    /// Takes one pass over the bytes, whatever they contain: unknown members are skipped without recursion.
    ///
    /// # Errors
    ///
    /// Fails if the body is not valid JSON, or if a known member has the wrong type.
    pub fn parse(body: &[u8]) -> Result<Event, ParseEventError> {
        let text = replaced(body);
        let mut event = Event::default();
        let mut reader = serde_json::Deserializer::from_slice(text.as_bytes());
        Object(&mut event).deserialize(&mut reader).and_then(|()| reader.end()).map_err(|error| {
            use serde_json::error::Category;
            let what = match error.classify() {
                Category::Data => "a value of the wrong type",
                Category::Eof => "unexpected end of input",
                Category::Syntax | Category::Io => "invalid JSON",
            };
            ParseEventError { what, line: error.line(), column: error.column() }
        })?;
        Ok(event)
    }
}

// === impl Gvk ===

impl Gvk {
    /// Splits an `apiVersion` as Kubernetes does: one slash separates group and version, no slash means the core group,
    /// and more than one slash gives an empty group and version.
    pub fn new(api_version: &str, kind: &str) -> Gvk {
        let (group, version) = match api_version.split_once('/') {
            None => ("", api_version),
            Some((_, version)) if version.contains('/') => ("", ""),
            Some((group, version)) => (group, version),
        };
        Gvk { group: group.to_owned(), version: version.to_owned(), kind: kind.to_owned() }
    }
}

/// The bytes as text. As in Go, every byte that is not part of a valid character becomes U+FFFD. Outside of strings,
/// this character is as invalid as the byte was.
fn replaced(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        text.push_str(chunk.valid());
        text.extend(chunk.invalid().iter().map(|_| char::REPLACEMENT_CHARACTER));
    }
    text
}

/// A struct that the members of a JSON object fill.
trait Fields {
    /// Reads the value of the member `name`, which is in lower case.
    fn member<'de, A: MapAccess<'de>>(&mut self, name: &str, map: &mut A) -> Result<(), A::Error>;
}

impl Fields for Event {
    fn member<'de, A: MapAccess<'de>>(&mut self, name: &str, map: &mut A) -> Result<(), A::Error> {
        match name {
            "watched" => map.next_value_seed(Object(&mut self.watched)),
            "watchedgvk" => map.next_value_seed(Object(&mut self.gvk)),
            _ => map.next_value::<IgnoredAny>().map(drop),
        }
    }
}

impl Fields for Watched {
    fn member<'de, A: MapAccess<'de>>(&mut self, name: &str, map: &mut A) -> Result<(), A::Error> {
        match name {
            "namespace" => map.next_value_seed(Text(&mut self.namespace)),
            "name" => map.next_value_seed(Text(&mut self.name)),
            _ => map.next_value::<IgnoredAny>().map(drop),
        }
    }
}

impl Fields for Gvk {
    fn member<'de, A: MapAccess<'de>>(&mut self, name: &str, map: &mut A) -> Result<(), A::Error> {
        match name {
            "group" => map.next_value_seed(Text(&mut self.group)),
            "version" => map.next_value_seed(Text(&mut self.version)),
            "kind" => map.next_value_seed(Text(&mut self.kind)),
            _ => map.next_value::<IgnoredAny>().map(drop),
        }
    }
}

/// Reads an object into fields that may already have values; `null` keeps them.
struct Object<'a, T>(&'a mut T);

impl<'de, T: Fields> DeserializeSeed<'de> for Object<'_, T> {
    type Value = ();

    fn deserialize<D: serde::Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_option(self)
    }
}

impl<'de, T: Fields> Visitor<'de> for Object<'_, T> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object or null")
    }

    fn visit_none<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_some<D: serde::Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let mut name = String::new();
        while map.next_key_seed(Text(&mut name))?.is_some() {
            let folded: String = name.chars().map(folded).collect();
            self.0.member(&folded, &mut map)?;
            name.clear();
        }
        Ok(())
    }
}

/// Folds a character as Go does when it compares member names: ASCII case, and the two characters beyond ASCII that
/// fold into ASCII letters.
fn folded(c: char) -> char {
    match c {
        '\u{17F}' => 's',  // the long s
        '\u{212A}' => 'k', // the Kelvin sign
        other => other.to_ascii_lowercase(),
    }
}

/// Reads a string and replaces the current one; `null` keeps it. An unpaired surrogate becomes U+FFFD.
struct Text<'a>(&'a mut String);

impl<'de> DeserializeSeed<'de> for Text<'_> {
    type Value = ();

    fn deserialize<D: serde::Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_option(self)
    }
}

impl<'de> Visitor<'de> for Text<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string or null")
    }

    fn visit_none<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_some<D: serde::Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        // Reads bytes, because serde_json passes on unpaired surrogates only in this mode.
        deserializer.deserialize_bytes(self)
    }

    fn visit_str<E>(self, text: &str) -> Result<(), E> {
        text.clone_into(self.0);
        Ok(())
    }

    fn visit_bytes<E: serde::de::Error>(self, bytes: &[u8]) -> Result<(), E> {
        self.0.clear();
        for chunk in bytes.utf8_chunks() {
            self.0.push_str(chunk.valid());
            // `replaced` has already removed all other invalid bytes. Only surrogates are left: three bytes each,
            // reported one by one.
            if chunk.invalid().first() == Some(&0xED) {
                self.0.push(char::REPLACEMENT_CHARACTER);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
