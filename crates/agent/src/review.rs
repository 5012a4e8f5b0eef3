//! What the agent reads of an AdmissionReview, and what it answers.
//!
//! Reads no more than it decides about: `spec` and `status` stay the bytes that came, so that a review of megabytes costs
//! a pass over it and no tree. Neither version nor kind is checked; both are echoed, as the Go agent does.

use std::{fmt, marker::PhantomData};

use serde::{
    Deserialize, Deserializer, Serialize,
    de::{IgnoredAny, MapAccess, Visitor, value::MapAccessDeserializer},
};
use serde_json::value::RawValue;

/// The part of an AdmissionReview that counts.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Review<'a> {
    /// Echoed.
    #[serde(default)]
    pub api_version: Option<String>,
    /// Echoed.
    #[serde(default)]
    pub kind: Option<String>,
    /// What the API server asks.
    #[serde(borrow, deserialize_with = "object")]
    pub request: Request<'a>,
}

/// What the API server asks.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Request<'a> {
    /// Echoed, so that the answer finds its question.
    #[serde(default)]
    pub uid: String,
    /// Kind of the object in the request; named in the answer to what is not supported.
    #[serde(default, deserialize_with = "object")]
    pub kind: RequestKind,
    /// CREATE, UPDATE, DELETE, CONNECT.
    #[serde(default)]
    pub operation: String,
    /// `status`, or empty for the object itself.
    #[serde(default)]
    pub sub_resource: Option<String>,
    /// Whether nothing will come of it.
    #[serde(default)]
    pub dry_run: Option<bool>,
    /// The object as it will be.
    #[serde(default, borrow)]
    pub object: Option<&'a RawValue>,
    /// The object as it was.
    #[serde(default, borrow)]
    pub old_object: Option<&'a RawValue>,
}

/// Group, version and kind as a review spells them.
#[derive(Debug, Default, Deserialize)]
pub struct RequestKind {
    /// The API group.
    #[serde(default)]
    pub group: String,
    /// The version.
    #[serde(default)]
    pub version: String,
    /// The kind.
    #[serde(default)]
    pub kind: String,
}

/// The part of an object that counts.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Object<'a> {
    /// Group and version.
    #[serde(default)]
    pub api_version: String,
    /// The kind.
    #[serde(default)]
    pub kind: String,
    /// Who it is.
    #[serde(default, borrow, deserialize_with = "object")]
    pub metadata: Metadata<'a>,
    /// What it should be; `null` counts as absent.
    #[serde(default, borrow)]
    pub spec: Option<&'a RawValue>,
    /// What it is; `null` counts as absent.
    #[serde(default, borrow)]
    pub status: Option<&'a RawValue>,
}

/// The part of an object's metadata that counts.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Metadata<'a> {
    /// Its name.
    #[serde(default)]
    pub name: String,
    /// Its namespace.
    #[serde(default)]
    pub namespace: Option<String>,
    /// Its labels.
    #[serde(default, borrow)]
    pub labels: Option<&'a RawValue>,
    /// Its annotations.
    #[serde(default, borrow)]
    pub annotations: Option<&'a RawValue>,
    /// What holds its deletion up.
    #[serde(default, borrow)]
    pub finalizers: Option<&'a RawValue>,
    /// What it goes with.
    #[serde(default, borrow)]
    pub owner_references: Option<&'a RawValue>,
    /// Since when it is being deleted.
    #[serde(default)]
    pub deletion_timestamp: Option<IgnoredAny>,
}

/// A body that is no AdmissionReview. Says where the reading ended, and nothing of what was read.
#[derive(Debug, thiserror::Error)]
#[error("the body is no AdmissionReview: unreadable at line {line}, column {column}")]
pub struct ParseReviewError {
    line: usize,
    column: usize,
}

/// The answer: always that the write may go on.
#[derive(Serialize)]
struct Answer<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    kind: Option<&'a str>,
    #[serde(rename = "apiVersion", skip_serializing_if = "Option::is_none")]
    api_version: Option<&'a str>,
    response: Response<'a>,
}

#[derive(Serialize)]
struct Response<'a> {
    uid: &'a str,
    allowed: bool,
    status: Status<'a>,
}

#[derive(Serialize)]
struct Status<'a> {
    metadata: Empty,
    status: &'static str,
    message: &'a str,
}

#[derive(Serialize)]
struct Empty {}

/// Reads an object as an object: serde would take a list for one as well, member by member.
fn object<'de, T: Deserialize<'de>, D: Deserializer<'de>>(deserializer: D) -> Result<T, D::Error> {
    struct Members<T>(PhantomData<T>);

    impl<'de, T: Deserialize<'de>> Visitor<'de> for Members<T> {
        type Value = T;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an object")
        }

        fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<T, A::Error> {
            T::deserialize(MapAccessDeserializer::new(map))
        }
    }

    deserializer.deserialize_map(Members(PhantomData))
}

// === impl Review ===

impl Review<'_> {
    /// Reads a body.
    pub fn parse(body: &[u8]) -> Result<Review<'_>, ParseReviewError> {
        serde_json::from_slice(body).map_err(|error| ParseReviewError { line: error.line(), column: error.column() })
    }

    /// The body of the answer, with a message for whoever looks into audit logs.
    pub fn answer(&self, message: &str) -> Vec<u8> {
        let some = |text: &Option<String>| text.as_deref().is_some_and(|text| !text.is_empty());
        let answer = Answer {
            kind: self.kind.as_deref().filter(|_| some(&self.kind)),
            api_version: self.api_version.as_deref().filter(|_| some(&self.api_version)),
            response: Response {
                uid: &self.request.uid,
                allowed: true,
                status: Status { metadata: Empty {}, status: "Success", message },
            },
        };
        serde_json::to_vec(&answer).expect("strings are always JSON")
    }
}

// === impl Object ===

impl<'a> Object<'a> {
    /// Reads an object of a review. `None` if it has no name or is no object: nothing can be said about it.
    pub fn parse(raw: Option<&'a RawValue>) -> Option<Object<'a>> {
        let object: Object<'a> = object(&mut serde_json::Deserializer::from_str(raw?.get())).ok()?;
        (!object.metadata.name.is_empty()).then_some(object)
    }

    /// Its namespace, or nothing.
    pub fn namespace(&self) -> &str {
        self.metadata.namespace.as_deref().unwrap_or_default()
    }
}
