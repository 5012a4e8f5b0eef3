//! The event of contract `v2`: which object changed.
//!
//! Written as the Go agents write it, byte for byte: no white space, all six values always there, `Namespace` and `Name`
//! capitalised (they stem from a Go type without JSON names), the others in lower case. Read as the Go listeners read it:
//! names of members in any case, unknown ones ignored, duplicates merged, `null` for nothing.
//!
//! Refuses to judge: an event with empty strings is an event.

use std::fmt;

use serde::{
    Serialize,
    de::{DeserializeSeed, IgnoredAny, MapAccess, Visitor},
};

/// The contract that we speak: the first segment of the path.
pub const CONTRACT: &str = "v2";
/// The manager whose path the control plane serves, and whose events bring a runtime to reconcile.
pub const MANAGER: &str = "lifecycle-manager";

/// Something happened to an object.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct Event {
    /// Where the object stands.
    pub watched: Watched,
    /// What it is.
    #[serde(rename = "watchedGvk")]
    pub gvk: Gvk,
}

/// Namespace and name of an object.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct Watched {
    /// Its namespace; empty for what is in none.
    #[serde(rename = "Namespace")]
    pub namespace: String,
    /// Its name.
    #[serde(rename = "Name")]
    pub name: String,
}

/// Group, version and kind of an object.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct Gvk {
    /// The API group; empty for the core.
    pub group: String,
    /// The version.
    pub version: String,
    /// The kind.
    pub kind: String,
}

/// Bytes that are no event. Says where the reading ended, and nothing of what was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the body is no event: {what} at line {line}, column {column}")]
pub struct ParseEventError {
    what: &'static str,
    line: usize,
    column: usize,
}

/// The path on which events for a manager are sent. The manager is put in as it is: whoever takes it from outside encodes
/// it first.
pub fn path(contract: &str, manager: &str) -> String {
    format!("/{contract}/{manager}/event")
}

// === impl Event ===

impl Event {
    /// The body of the request, as Go's encoder writes it.
    pub fn to_body(&self) -> String {
        let text = serde_json::to_string(self).expect("strings are always JSON");
        // Go escapes what HTML would read. These characters stand in strings only, so they can be replaced in the text.
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

    /// Reads a body.
    ///
    /// Costs no more than a pass over the bytes, whatever they are: unknown members are skipped without recursion.
    pub fn parse(body: &[u8]) -> Result<Event, ParseEventError> {
        let text = replaced(body);
        let mut event = Event::default();
        let mut reader = serde_json::Deserializer::from_slice(text.as_bytes());
        Object(&mut event).deserialize(&mut reader).and_then(|()| reader.end()).map_err(|error| {
            use serde_json::error::Category;
            let what = match error.classify() {
                Category::Data => "a value of another type than expected",
                Category::Eof => "an unexpected end",
                Category::Syntax | Category::Io => "no valid JSON",
            };
            ParseEventError { what, line: error.line(), column: error.column() }
        })?;
        Ok(event)
    }
}

// === impl Gvk ===

impl Gvk {
    /// Group and version of an `apiVersion` as Kubernetes reads it: one slash parts them, without a slash it is the
    /// version alone, and with more it is neither.
    pub fn new(api_version: &str, kind: &str) -> Gvk {
        let (group, version) = match api_version.split_once('/') {
            None => ("", api_version),
            Some((_, version)) if version.contains('/') => ("", ""),
            Some((group, version)) => (group, version),
        };
        Gvk { group: group.to_owned(), version: version.to_owned(), kind: kind.to_owned() }
    }
}

/// The bytes as text, with U+FFFD for every byte that belongs to no character, as Go decodes strings. Outside of strings
/// the character is as wrong as the byte was.
fn replaced(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        text.push_str(chunk.valid());
        text.extend(chunk.invalid().iter().map(|_| char::REPLACEMENT_CHARACTER));
    }
    text
}

/// Fields that members of a JSON object fill in.
trait Fields {
    /// Reads the value of a member whose name is `name` in lower case.
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

/// Reads an object into fields that may have been filled before; `null` leaves them as they are.
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

/// A character as Go compares the names of members: without regard to case, and with the two characters beyond ASCII
/// that fold into it.
fn folded(c: char) -> char {
    match c {
        '\u{17F}' => 's',  // the long s
        '\u{212A}' => 'k', // the sign of Kelvin
        other => other.to_ascii_lowercase(),
    }
}

/// Reads a string over what was there; `null` leaves that as it is. Half of a surrogate pair becomes U+FFFD.
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
        // As bytes, since only so does the reader pass on what is no Unicode scalar value.
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
            // All other bytes were replaced before: what is left are surrogates, three bytes each, reported one by one.
            if chunk.invalid().first() == Some(&0xED) {
                self.0.push(char::REPLACEMENT_CHARACTER);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
