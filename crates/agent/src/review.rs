//! The parts of an AdmissionReview that the agent reads, and its answer.
//!
//! The agent parses only what it needs: `spec` and `status` stay raw JSON, so that a review of megabytes takes one pass
//! and no tree. It does not check version and kind but echoes them, as the Go agent does.

use std::{fmt, marker::PhantomData};

use serde::{
    Deserialize, Deserializer, Serialize,
    de::{IgnoredAny, MapAccess, Visitor, value::MapAccessDeserializer},
};
use serde_json::value::RawValue;

/// The relevant part of an AdmissionReview.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Review<'a> {
    /// The API version, which the answer echoes.
    #[serde(default)]
    pub api_version: Option<String>,
    /// The kind, which the answer echoes.
    #[serde(default)]
    pub kind: Option<String>,
    /// The request.
    #[serde(borrow, deserialize_with = "object")]
    pub request: Request<'a>,
}

/// The request of a review.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Request<'a> {
    /// The UID, which the answer echoes.
    #[serde(default)]
    pub uid: String,
    /// Kind of the object; part of the answer to an unsupported operation.
    #[serde(default, deserialize_with = "object")]
    pub kind: RequestKind,
    /// CREATE, UPDATE, DELETE, CONNECT.
    #[serde(default)]
    pub operation: String,
    /// `status`, or empty for the object itself.
    #[serde(default)]
    pub sub_resource: Option<String>,
    /// Whether this is a dry run.
    #[serde(default)]
    pub dry_run: Option<bool>,
    /// The new object.
    #[serde(default, borrow)]
    pub object: Option<&'a RawValue>,
    /// The old object.
    #[serde(default, borrow)]
    pub old_object: Option<&'a RawValue>,
}

/// Group, version and kind, as spelled in a review.
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

/// The relevant part of an object.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Object<'a> {
    /// Group and version.
    #[serde(default)]
    pub api_version: String,
    /// The kind.
    #[serde(default)]
    pub kind: String,
    /// The metadata.
    #[serde(default, borrow, deserialize_with = "object")]
    pub metadata: Metadata<'a>,
    /// The spec; `null` counts as absent.
    #[serde(default, borrow)]
    pub spec: Option<&'a RawValue>,
    /// The status; `null` counts as absent.
    #[serde(default, borrow)]
    pub status: Option<&'a RawValue>,
}

/// The relevant part of an object's metadata.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Metadata<'a> {
    /// The name.
    #[serde(default)]
    pub name: String,
    /// The namespace.
    #[serde(default)]
    pub namespace: Option<String>,
    /// The labels.
    #[serde(default, borrow)]
    pub labels: Option<&'a RawValue>,
    /// The annotations.
    #[serde(default, borrow)]
    pub annotations: Option<&'a RawValue>,
    /// The finalizers.
    #[serde(default, borrow)]
    pub finalizers: Option<&'a RawValue>,
    /// The owner references.
    #[serde(default, borrow)]
    pub owner_references: Option<&'a RawValue>,
    /// The deletion timestamp.
    #[serde(default)]
    pub deletion_timestamp: Option<IgnoredAny>,
}

/// The body is not an AdmissionReview. Gives the position of the error but quotes nothing from the body.
#[derive(Debug, thiserror::Error)]
#[error("the body is not an AdmissionReview: invalid at line {line}, column {column}")]
pub struct ParseReviewError {
    line: usize,
    column: usize,
}

/// The answer, which always allows the write.
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

/// Accepts only a JSON object. serde would also accept a list of the members.
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
    /// Reads an AdmissionReview from a body.
    ///
    /// # Errors
    ///
    /// Fails if the body is not JSON or not an AdmissionReview.
    pub fn parse(body: &[u8]) -> Result<Review<'_>, ParseReviewError> {
        serde_json::from_slice(body).map_err(|error| ParseReviewError { line: error.line(), column: error.column() })
    }

    /// The body of the answer. The message appears in audit logs.
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
    /// Reads an object of a review. `None` if it is not an object or has no name.
    pub fn parse(raw: Option<&'a RawValue>) -> Option<Object<'a>> {
        let object: Object<'a> = object(&mut serde_json::Deserializer::from_str(raw?.get())).ok()?;
        (!object.metadata.name.is_empty()).then_some(object)
    }

    /// The namespace; empty if there is none.
    pub fn namespace(&self) -> &str {
        self.metadata.namespace.as_deref().unwrap_or_default()
    }
}
