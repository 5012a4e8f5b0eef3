//! Reads a component descriptor: one of two schemas, as YAML or JSON.
//!
//! Only what installs a module is read: the component, its last repository context, and its resources. All other
//! fields may have any value.

use std::fmt;

use serde_json::Value;

use super::{BlobDigest, Component};
use crate::yaml;

/// Limit of a component descriptor, as in Lifecycle Manager. Real ones have at most 20 KiB.
pub const DESCRIPTOR_BYTES_MAX: usize = 100 << 10;
/// What an error quotes of a descriptor at most: a name or a type, not a text.
const QUOTE_CHARS_MAX: usize = 80;

/// What a component descriptor says about a module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Module {
    /// The blob with the objects.
    pub layer: Layer,
    /// Images in their own registry. Images of the same name and tag in the objects are replaced by these references.
    pub localized_images: Vec<String>,
}

/// The blob with a module's objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layer {
    /// Its digest.
    pub digest: BlobDigest,
    /// How it holds the objects.
    pub kind: LayerKind,
}

/// How a blob holds the objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LayerKind {
    /// The blob is the YAML: `oci-ref`.
    Yaml,
    /// The blob is a tar archive, and its first regular file is the YAML: `oci-dir`.
    Tar,
}

/// A place in a descriptor. Displays as a path, for example `component.resources[2].access.type`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldPath(String);

/// Why a component descriptor does not yield a module. Quotes at most a name, cut and without control characters.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DescriptorError {
    /// The descriptor is larger than [`DESCRIPTOR_BYTES_MAX`].
    #[error("the component descriptor has more than {} KiB", DESCRIPTOR_BYTES_MAX >> 10)]
    TooLarge,
    /// The text is neither YAML nor JSON.
    #[error("the component descriptor is neither valid YAML nor JSON: {0}")]
    Syntax(yaml::ParseError),
    /// There is no document, or more than one.
    #[error("the component descriptor has {0} documents instead of one")]
    Documents(usize),
    /// The schema is unknown.
    #[error(
        "failed to decode component descriptor: its schema is neither `v2` (meta.schemaVersion) nor \
         `ocm.software/v3alpha1` (apiVersion)"
    )]
    Schema,
    /// A field is missing or has the wrong type.
    #[error("the component descriptor has no valid `{place}`: {expected} is required there")]
    Field {
        /// The field.
        place: FieldPath,
        /// What is required.
        expected: &'static str,
    },
    /// It describes another component.
    #[error("the component descriptor is for {found}, but {asked} was requested")]
    OtherComponent {
        /// The component and version in the descriptor.
        found: String,
        /// The component and version that were asked for.
        asked: Component,
    },
    /// There is no repository context.
    #[error("the component descriptor has no repository context: publish the module with OCM's tools")]
    NoContext,
    /// The repository context is of another type.
    #[error("repository context type `{0}` is not supported: use `OCIRegistry`")]
    ContextType(String),
    /// The component's name is not the path of its repository.
    #[error("component name mapping `{0}` is not supported: use `urlPath`")]
    Mapping(String),
    /// The type of an access is unknown.
    #[error("access type not supported: resource `{resource}` has access type `{kind}`")]
    AccessType {
        /// The resource.
        resource: String,
        /// The type.
        kind: String,
    },
    /// There is no resource with the objects.
    #[error("the component descriptor has no resource `raw-manifest`, which contains the objects of the module")]
    NoRawManifest,
    /// Two resources have the name.
    #[error("the component descriptor has more than one resource `raw-manifest`")]
    TwoRawManifests,
    /// The objects are not in a local blob.
    #[error("resource `raw-manifest` has access type `{0}`: use `localBlob`")]
    NotABlob(String),
    /// The blob is not named by a digest.
    #[error("`{place}` of the component descriptor is {problem}")]
    Reference {
        /// The field.
        place: FieldPath,
        /// The problem.
        problem: super::ParseDigestError,
    },
    /// The digest of the resource is not the digest of its blob.
    #[error("resource `raw-manifest` has the digest sha256:{stated}, but refers to the blob {blob}")]
    OtherDigest {
        /// The digest of the resource.
        stated: String,
        /// The blob.
        blob: BlobDigest,
    },
    /// The digest of the resource uses another algorithm.
    #[error("resource `raw-manifest` has a digest with the algorithm `{0}`, which is not supported: use `SHA-256`")]
    DigestAlgorithm(String),
}

/// Where a schema has its fields.
struct Schema {
    component: &'static [&'static str],
    contexts: &'static [&'static str],
    resources: &'static [&'static str],
}

const V2: Schema = Schema {
    component: &["component"],
    contexts: &["component", "repositoryContexts"],
    resources: &["component", "resources"],
};

const V3: Schema =
    Schema { component: &["metadata"], contexts: &["repositoryContexts"], resources: &["spec", "resources"] };

/// What the access of a resource refers to.
enum Access {
    /// A blob beside the descriptor, by a digest in this field.
    Blob { field: &'static str, kind: LayerKind },
    /// An image that is listed for localisation.
    Image,
    /// An image by another name of the type, which Lifecycle Manager does not list either.
    UnlistedImage,
}

/// Reads the descriptor of `asked`.
///
/// # Errors
///
/// Fails if the text is not a descriptor in a known schema, if it describes another component or version, or if it
/// contains something that is not supported.
pub fn read(bytes: &[u8], asked: &Component) -> Result<Module, DescriptorError> {
    if DESCRIPTOR_BYTES_MAX < bytes.len() {
        return Err(DescriptorError::TooLarge);
    }
    let value = parse(bytes)?;
    let schema = schema(&value)?;
    check_component(&value, &schema, asked)?;
    check_context(&value, &schema)?;
    module(&value, &schema)
}

fn parse(bytes: &[u8]) -> Result<Value, DescriptorError> {
    // JSON is not quite a subset of YAML: it may be indented with tabs.
    if let Ok(value) = serde_json::from_slice(bytes) {
        return Ok(value);
    }
    let text = yaml::decode(bytes).map_err(DescriptorError::Syntax)?;
    let mut documents = yaml::parse(text, &yaml::Limits::default()).map_err(DescriptorError::Syntax)?;
    match (documents.pop(), documents.len()) {
        (Some(document), 0) => Ok(document.to_json()),
        (None, _) => Err(DescriptorError::Documents(0)),
        (Some(_), others) => Err(DescriptorError::Documents(others + 1)),
    }
}

fn schema(value: &Value) -> Result<Schema, DescriptorError> {
    let text = |pointer: &str| value.pointer(pointer).and_then(Value::as_str);
    match (text("/meta/schemaVersion"), text("/apiVersion"), text("/kind")) {
        (Some("v2"), None, _) => Ok(V2),
        (None, Some("ocm.software/v3alpha1"), Some("ComponentVersion")) => Ok(V3),
        _ => Err(DescriptorError::Schema),
    }
}

fn check_component(value: &Value, schema: &Schema, asked: &Component) -> Result<(), DescriptorError> {
    let place = FieldPath(schema.component.join("."));
    let component = at(value, schema.component).unwrap_or(&Value::Null);
    let (name, version) = (text(component, &place, "name")?, text(component, &place, "version")?);
    if name == asked.name.as_str() && version == asked.version.as_str() {
        return Ok(());
    }
    let found = format!("{}:{}", quoted(name), quoted(version));
    Err(DescriptorError::OtherComponent { found, asked: asked.clone() })
}

/// The last context is where the component was transferred to. Its host is replaced by the configured one, so only the
/// mapping matters.
fn check_context(value: &Value, schema: &Schema) -> Result<(), DescriptorError> {
    let contexts = list(value, schema.contexts)?;
    let Some(context) = contexts.last() else { return Err(DescriptorError::NoContext) };
    let place = FieldPath(format!("{}[{}]", schema.contexts.join("."), contexts.len() - 1));
    match text(context, &place, "type")? {
        "OCIRegistry" | "OCIRegistry/v1" | "ociRegistry" | "ociRegistry/v1" => {}
        other => return Err(DescriptorError::ContextType(quoted(other))),
    }
    match optional_text(context, &place, "componentNameMapping")? {
        "" | "urlPath" => Ok(()),
        other => Err(DescriptorError::Mapping(quoted(other))),
    }
}

fn module(value: &Value, schema: &Schema) -> Result<Module, DescriptorError> {
    let mut layer = None;
    let mut localized_images = Vec::new();
    for (index, resource) in list(value, schema.resources)?.iter().enumerate() {
        let place = FieldPath(format!("{}[{index}]", schema.resources.join(".")));
        let name = text(resource, &place, "name")?;
        let access_place = place.field("access");
        let access = resource.get("access").unwrap_or(&Value::Null);
        let kind = text(access, &access_place, "type")?;
        let what = access_of(name, kind, optional_text(access, &access_place, "mediaType")?)?;
        if matches!(what, Access::Image) {
            localized_images.push(text(access, &access_place, "imageReference")?.to_owned());
        }
        if name != "raw-manifest" {
            continue;
        }
        let Access::Blob { field, kind } = what else { return Err(DescriptorError::NotABlob(quoted(kind))) };
        let place_of_digest = access_place.field(field);
        let digest: BlobDigest = text(access, &access_place, field)?
            .parse()
            .map_err(|problem| DescriptorError::Reference { place: place_of_digest, problem })?;
        check_digest(resource, digest, &place)?;
        if layer.replace(Layer { digest, kind }).is_some() {
            return Err(DescriptorError::TwoRawManifests);
        }
    }
    Ok(Module { layer: layer.ok_or(DescriptorError::NoRawManifest)?, localized_images })
}

/// What an access type refers to. An unknown type fails the module, whatever resource it is in, as in Lifecycle
/// Manager.
fn access_of(resource: &str, kind: &str, media_type: &str) -> Result<Access, DescriptorError> {
    match kind {
        "localBlob" | "localBlob/v1" | "LocalBlob" | "LocalBlob/v1" => {
            let kind = if media_type == "application/x-tar" { LayerKind::Tar } else { LayerKind::Yaml };
            Ok(Access::Blob { field: "localReference", kind })
        }
        // It has no media type.
        "localOciBlob" | "localOciBlob/v1" => Ok(Access::Blob { field: "digest", kind: LayerKind::Yaml }),
        "ociArtifact" => Ok(Access::Image),
        "ociArtifact/v1" | "ociRegistry" | "ociRegistry/v1" | "ociImage" | "ociImage/v1" | "OCIImage"
        | "OCIImage/v1" => Ok(Access::UnlistedImage),
        other => Err(DescriptorError::AccessType { resource: quoted(resource), kind: quoted(other) }),
    }
}

/// A digest of the plain blob must be that of the blob. Other normalisations are of an image or a signature.
fn check_digest(resource: &Value, blob: BlobDigest, place: &FieldPath) -> Result<(), DescriptorError> {
    let Some(digest) = resource.get("digest").filter(|digest| !digest.is_null()) else { return Ok(()) };
    let place = place.field("digest");
    if optional_text(digest, &place, "normalisationAlgorithm")? != "genericBlobDigest/v1" {
        return Ok(());
    }
    match text(digest, &place, "hashAlgorithm")? {
        "SHA-256" => {}
        other => return Err(DescriptorError::DigestAlgorithm(quoted(other))),
    }
    let stated = text(digest, &place, "value")?;
    if stated.eq_ignore_ascii_case(&blob.hex()) {
        return Ok(());
    }
    Err(DescriptorError::OtherDigest { stated: quoted(stated), blob })
}

/// The value at a path of keys.
fn at<'v>(value: &'v Value, path: &[&str]) -> Option<&'v Value> {
    path.iter().try_fold(value, |value, key| value.get(key))
}

/// A list, which may be missing or null.
fn list<'v>(value: &'v Value, path: &[&str]) -> Result<&'v [Value], DescriptorError> {
    match at(value, path) {
        None | Some(Value::Null) => Ok(&[]),
        Some(Value::Array(items)) => Ok(items),
        Some(_) => Err(DescriptorError::Field { place: FieldPath(path.join(".")), expected: "a list" }),
    }
}

/// A text that is not empty.
fn text<'v>(value: &'v Value, place: &FieldPath, field: &str) -> Result<&'v str, DescriptorError> {
    value
        .get(field)
        .and_then(Value::as_str)
        .filter(|text| !text.is_empty())
        .ok_or_else(|| DescriptorError::Field { place: place.field(field), expected: "a string that is not empty" })
}

/// A text, or nothing.
fn optional_text<'v>(value: &'v Value, place: &FieldPath, field: &str) -> Result<&'v str, DescriptorError> {
    match value.get(field) {
        None | Some(Value::Null) => Ok(""),
        Some(Value::String(text)) => Ok(text),
        Some(_) => Err(DescriptorError::Field { place: place.field(field), expected: "a string" }),
    }
}

/// A text from a descriptor for an error: cut, and without characters that change how a terminal shows the rest.
fn quoted(text: &str) -> String {
    let clean = |c: char| if c.is_control() || c == '`' { '\u{fffd}' } else { c };
    let mut quote: String = text.chars().take(QUOTE_CHARS_MAX).map(clean).collect();
    if text.chars().nth(QUOTE_CHARS_MAX).is_some() {
        quote.push('…');
    }
    quote
}

// === impl LayerKind ===

impl LayerKind {
    /// The name in `spec.install.source.type`.
    pub fn as_str(self) -> &'static str {
        match self {
            LayerKind::Yaml => "oci-ref",
            LayerKind::Tar => "oci-dir",
        }
    }
}

// === impl FieldPath ===

impl FieldPath {
    fn field(&self, name: &str) -> FieldPath {
        FieldPath(format!("{self}.{name}"))
    }
}

impl fmt::Display for FieldPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests;
