//! The values that the API server fills in.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSON, JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};
use serde_json::Value;

/// The schema of `spec` in the version that is stored.
pub fn of_spec(crd: &CustomResourceDefinition) -> Option<&JSONSchemaProps> {
    let version = crd.spec.versions.iter().find(|version| version.storage)?;
    version.schema.as_ref()?.open_api_v3_schema.as_ref()?.properties.as_ref()?.get("spec")
}

/// Removes every field that has its default value, unless the field is required: the API server adds it again.
pub fn remove_defaults(value: &mut Value, schema: &JSONSchemaProps) {
    match value {
        Value::Object(fields) => {
            let named = schema.properties.as_ref();
            let required = schema.required.as_deref().unwrap_or_default();
            fields.retain(|name, value| {
                let default = named.and_then(|named| named.get(name)).and_then(|property| property.default.as_ref());
                required.contains(name) || default.is_none_or(|JSON(default)| default != value)
            });
            for (name, value) in fields {
                match (named.and_then(|named| named.get(name)), &schema.additional_properties) {
                    (Some(property), _) => remove_defaults(value, property),
                    (None, Some(JSONSchemaPropsOrBool::Schema(others))) => remove_defaults(value, others),
                    (None, Some(JSONSchemaPropsOrBool::Bool(_)) | None) => {}
                }
            }
        }
        Value::Array(items) => {
            if let Some(JSONSchemaPropsOrArray::Schema(schema)) = &schema.items {
                items.iter_mut().for_each(|item| remove_defaults(item, schema));
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}
