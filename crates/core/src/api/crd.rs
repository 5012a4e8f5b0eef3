//! Generates CustomResourceDefinitions from types.
//!
//! The types define the fields, with patterns, limits and defaults as attributes. This module
//! contains the few schemas that no derive can generate. It also corrects every derived definition,
//! so that it accepts and rejects exactly what the upstream definitions do.

use std::collections::BTreeMap;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, CustomResourceDefinitionVersion, CustomResourceValidation, JSON, JSONSchemaProps,
    JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};
use schemars::{Schema, SchemaGenerator, json_schema};

/// Patterns in Go's syntax. They match anywhere, so each is anchored.
pub mod pattern {
    /// A channel.
    pub const CHANNEL: &str = "^[a-z]+$";
    /// The channel of an old channel-based template, which may be empty.
    pub const TEMPLATE_CHANNEL: &str = "^$|^[a-z]{3,}$";
    /// The version of a module, which may be empty: one pre-release identifier, no build metadata.
    pub const VERSION: &str = r"^((0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(-[a-zA-Z-][0-9a-zA-Z-]*)?)?$";
    /// The version of a mandatory module: all of Semantic Versioning 2.
    pub const MANDATORY_VERSION: &str = r"^(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(?:-((?:0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*)(?:\.(?:0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*))*))?(?:\+([0-9a-zA-Z-]+(?:\.[0-9a-zA-Z-]+)*))?$";
    /// The name of a module, which may be empty: words of three or more letters, joined by dashes.
    pub const MODULE_NAME: &str = "^([a-z]{3,}(-[a-z]{3,})*)?$";
    /// The name of an OCM component.
    pub const OCM_COMPONENT_NAME: &str =
        "^[a-z][-a-z0-9]*([.][a-z][-a-z0-9]*)*[.][a-z]{2,}(/[a-z][-a-z0-9_]*([.][a-z][-a-z0-9_]*)*)+$";
    /// A rule: the forms of a URL. Other rules say what is wrong with forms that are often tried.
    pub const GIT_URL_RULE: &str = r"self.matches('^(https?://[^/]|ssh://[^/]|file:///[^/]|/.|([^/@:]+@)?[^/@:]+:/?[^/])')
        && (self.startsWith('/') || self.startsWith('file:') || !self.matches('\\s'))";
    /// A rule: a port that TCP has, if there is one.
    pub const GIT_URL_PORT_RULE: &str = r"!self.matches('^(https|ssh)://([^/@]*@)?(\\[[^/\\]]*\\]|[^/@:\\[]*):0*([1-9][0-9]{5,}|[7-9][0-9]{4}|6[6-9][0-9]{3}|65[6-9][0-9]{2}|655[4-9][0-9]|6553[6-9])?(/|$)')";
    /// A path in a repository: relative, no `..`, no empty part.
    pub const REPOSITORY_PATH: &str =
        r"^(\.|([^/.][^/]*|\.[^/.][^/]*|\.\.[^/]+)(/([^/.][^/]*|\.[^/.][^/]*|\.\.[^/]+))*/?)$";
    /// A path on the machine that reads it.
    pub const ABSOLUTE_PATH: &str = r"^/[^\x00-\x1f]*[^/\x00-\x1f]$";
    /// The name of a branch or tag, without characters that git forbids.
    pub const GIT_REF_NAME: &str = r"^[^-/.\s~^:?*\[\\][^\s~^:?*\[\\]*$";
    /// The full name of a reference.
    pub const GIT_FULL_REF_NAME: &str = r"^refs/[^-/.\s~^:?*\[\\][^\s~^:?*\[\\]*$";
    /// A gitignore pattern that excludes nothing and is no comment.
    pub const GUARDED_PATH: &str = r"^[^!#\s\\]([^\\\n\r]*[^\s\\])?$";
    /// A commit in full. Repositories with SHA-256 cannot be read.
    pub const COMMIT: &str = "^[0-9a-f]{40}$";
    /// A duration of whole hours, minutes and seconds.
    pub const DURATION: &str = "^([0-9]+h)?([0-9]+m)?([0-9]+s)?$";
    /// Names of objects, with `*` for any characters.
    pub const NAME_GLOB: &str = r"^[a-z0-9*]([-a-z0-9.*]*[a-z0-9*])?$";
    /// A quantity.
    pub const QUANTITY: &str = r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$";
    /// The name of a namespace.
    pub const NAMESPACE: &str = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$";
}

// === schemas that no derive can make ===

/// An embedded object of any kind.
pub(super) fn embedded_object(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "x-kubernetes-embedded-resource": true,
        "x-kubernetes-preserve-unknown-fields": true,
    })
}

/// An embedded object of any kind, which may be null.
pub(super) fn nullable_embedded_object(generator: &mut SchemaGenerator) -> Schema {
    let mut schema = embedded_object(generator);
    schema.insert("nullable".to_owned(), true.into());
    schema
}

/// A mapping that is passed on unchanged.
pub(super) fn any_mapping(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "object", "x-kubernetes-preserve-unknown-fields": true})
}

/// Conditions, one for each type, with the limits of the API conventions.
pub(super) fn conditions(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["type"],
        "items": {
            "type": "object",
            "description": "One aspect of the state of an object.",
            "required": ["lastTransitionTime", "message", "reason", "status", "type"],
            "properties": {
                "type": {
                    "type": "string",
                    "description": "The aspect.",
                    "maxLength": 316,
                    "pattern": r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$",
                },
                "status": {
                    "type": "string",
                    "description": "True, False or Unknown.",
                    "enum": ["True", "False", "Unknown"],
                },
                "reason": {
                    "type": "string",
                    "description": "The reason, in one word for programs.",
                    "minLength": 1,
                    "maxLength": 1024,
                    "pattern": "^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$",
                },
                "message": {
                    "type": "string",
                    "description": "The reason, in a sentence for people.",
                    "maxLength": 32768,
                },
                "lastTransitionTime": {
                    "type": "string",
                    "description": "When the status last changed.",
                    "format": "date-time",
                },
                "observedGeneration": {
                    "type": "integer",
                    "description": "Generation of the object that the condition refers to.",
                    "format": "int64",
                    "minimum": 0,
                },
            },
        },
    })
}

/// A label selector.
pub(super) fn label_selector(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "x-kubernetes-map-type": "atomic",
        "properties": {
            "matchLabels": {
                "type": "object",
                "description": "Required labels with their values.",
                "additionalProperties": {"type": "string"},
            },
            "matchExpressions": {
                "type": "array",
                "description": "Further requirements; all must hold.",
                "x-kubernetes-list-type": "atomic",
                "items": {
                    "type": "object",
                    "description": "A requirement on one label.",
                    "required": ["key", "operator"],
                    "properties": {
                        "key": {"type": "string", "description": "The label."},
                        "operator": {"type": "string", "description": "In, NotIn, Exists or DoesNotExist."},
                        "values": {
                            "type": "array",
                            "description": "Values, for In and NotIn.",
                            "x-kubernetes-list-type": "atomic",
                            "items": {"type": "string"},
                        },
                    },
                },
            },
        },
    })
}

// === what is put right in every derived definition ===

/// Corrects a derived definition.
pub(super) fn finish(mut crd: CustomResourceDefinition) -> CustomResourceDefinition {
    crd.spec.names.list_kind = Some(format!("{}List", crd.spec.names.kind));
    crd.spec.names.categories = None;
    for version in &mut crd.spec.versions {
        if let Some(schema) = version.schema.as_mut().and_then(|schema| schema.open_api_v3_schema.as_mut()) {
            describe(schema);
            add_type_and_metadata(schema);
            drop_derived_nulls(schema);
        }
    }
    crd
}

/// Allows objects without a `spec`, as the upstream definitions do.
pub(super) fn with_optional_spec(mut crd: CustomResourceDefinition) -> CustomResourceDefinition {
    for version in &mut crd.spec.versions {
        if let Some(schema) = version.schema.as_mut().and_then(|schema| schema.open_api_v3_schema.as_mut()) {
            schema.required = None;
        }
    }
    crd
}

/// Adds a version that is no longer served.
///
/// An API server whose `status.storedVersions` still contains it rejects a definition without it.
pub(super) fn with_retired_version(mut crd: CustomResourceDefinition, name: &str) -> CustomResourceDefinition {
    let kind = &crd.spec.names.kind;
    let current = &crd.spec.versions[0];
    let retired = CustomResourceDefinitionVersion {
        name: name.to_owned(),
        served: false,
        storage: false,
        deprecated: Some(true),
        deprecation_warning: Some(format!(
            "kyma-project.io/{name} {kind} is deprecated. Use {} instead.",
            current.name
        )),
        additional_printer_columns: current.additional_printer_columns.clone(),
        subresources: current.subresources.clone(),
        schema: Some(CustomResourceValidation {
            open_api_v3_schema: Some(JSONSchemaProps {
                description: Some(
                    "Kept only because objects may be stored in this version; it is not served.".to_owned(),
                ),
                type_: Some("object".to_owned()),
                x_kubernetes_preserve_unknown_fields: Some(true),
                ..JSONSchemaProps::default()
            }),
        }),
        ..CustomResourceDefinitionVersion::default()
    };
    crd.spec.versions.insert(0, retired);
    crd
}

/// The derive documents its own wrapper; the useful text is at the specification.
fn describe(schema: &mut JSONSchemaProps) {
    let spec = schema.properties.as_ref().and_then(|properties| properties.get("spec"));
    schema.description = spec.and_then(|spec| spec.description.clone());
    schema.title = None;
}

/// The fields that every object has.
fn add_type_and_metadata(schema: &mut JSONSchemaProps) {
    let text = |description: &str| JSONSchemaProps {
        description: Some(description.to_owned()),
        type_: Some("string".to_owned()),
        ..JSONSchemaProps::default()
    };
    let properties = schema.properties.get_or_insert_with(BTreeMap::new);
    properties.insert("apiVersion".to_owned(), text("Group and version of this object's kind."));
    properties.insert("kind".to_owned(), text("Kind of this object."));
    properties.insert(
        "metadata".to_owned(),
        JSONSchemaProps { type_: Some("object".to_owned()), ..JSONSchemaProps::default() },
    );
}

/// The derive makes every optional field nullable. Upstream's are not: the server drops a null
/// there. A schema that preserves unknown fields is from this file, and its `nullable` is intended.
fn drop_derived_nulls(schema: &mut JSONSchemaProps) {
    if schema.x_kubernetes_preserve_unknown_fields != Some(true) {
        schema.nullable = None;
    }
    if schema.default == Some(JSON(serde_json::Value::Null)) {
        schema.default = None;
    }
    schema.properties.iter_mut().flatten().for_each(|(_, property)| drop_derived_nulls(property));
    if let Some(JSONSchemaPropsOrArray::Schema(items)) = &mut schema.items {
        drop_derived_nulls(items);
    }
    if let Some(JSONSchemaPropsOrBool::Schema(others)) = &mut schema.additional_properties {
        drop_derived_nulls(others);
    }
}

/// Corrects the schemas of Kubernetes' own types in a definition whose only values with two types are quantities.
///
/// The names of references may be missing, quantities have a pattern, and a claim is listed once: what the generator
/// of the upstream definitions writes.
pub(super) fn with_core_types(mut crd: CustomResourceDefinition) -> CustomResourceDefinition {
    for version in &mut crd.spec.versions {
        if let Some(schema) = version.schema.as_mut().and_then(|schema| schema.open_api_v3_schema.as_mut()) {
            correct_core_types(schema);
        }
    }
    crd
}

fn correct_core_types(schema: &mut JSONSchemaProps) {
    if schema.x_kubernetes_int_or_string == Some(true) {
        let of_type = |name: &str| JSONSchemaProps { type_: Some(name.to_owned()), ..JSONSchemaProps::default() };
        *schema = JSONSchemaProps {
            any_of: Some(vec![of_type("integer"), of_type("string")]),
            pattern: Some(pattern::QUANTITY.to_owned()),
            x_kubernetes_int_or_string: Some(true),
            description: Some("A number with an optional unit, for example `500m` or `2Gi`.".to_owned()),
            ..JSONSchemaProps::default()
        };
        return;
    }
    let properties = schema.properties.get_or_insert_default();
    if let Some(name) = properties.get_mut("name")
        && name.description.as_deref().is_some_and(|text| text.contains("is effectively required"))
    {
        name.default = Some(JSON("".into()));
        schema.required.iter_mut().for_each(|required| required.retain(|field| field != "name"));
        schema.required.take_if(|required| required.is_empty());
        schema.x_kubernetes_map_type = Some("atomic".to_owned());
    }
    if let Some(claims) = properties.get_mut("claims") {
        claims.x_kubernetes_list_type = Some("map".to_owned());
        claims.x_kubernetes_list_map_keys = Some(vec!["name".to_owned()]);
    }
    properties.values_mut().for_each(correct_core_types);
    schema.properties.take_if(|properties| properties.is_empty());
    if let Some(JSONSchemaPropsOrArray::Schema(items)) = &mut schema.items {
        correct_core_types(items);
    }
    if let Some(JSONSchemaPropsOrBool::Schema(others)) = &mut schema.additional_properties {
        correct_core_types(others);
    }
}
