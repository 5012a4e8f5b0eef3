// SPDX-License-Identifier: Apache-2.0

//! The two versions of an Event: `v1`, which is stored, and `events.k8s.io/v1`.

use serde_json::{Map, Value};

use super::{resource::Resource, store::Object};

/// The renamed fields: the stored name, and the name in `events.k8s.io/v1`.
const FIELDS: [(&str, &str); 8] = [
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
    ("reportingComponent", "reportingController"),
    ("reportingInstance", "reportingInstance"),
];

/// The object in the version of `resource`; `None` if only `apiVersion` differs.
pub(super) fn from_stored(resource: &Resource, object: &Object) -> Option<Value> {
    (&*resource.kind.group == "events.k8s.io").then(|| {
        let mut object = renamed(object.value(), "events.k8s.io/v1", |field| {
            FIELDS.iter().find(|(stored, _)| *stored == field).map(|(_, other)| *other)
        });
        if let Some(fields) = object.as_object_mut() {
            // Only the older version shows empty values.
            fields.retain(|name, value| !(name.starts_with("reporting") && value == ""));
        }
        object
    })
}

/// The object in its stored version.
pub(super) fn to_stored(resource: &Resource, mut object: Value) -> Value {
    if &*resource.kind.group == "events.k8s.io" {
        return renamed(object, "v1", |field| {
            FIELDS.iter().find(|(_, other)| *other == field).map(|(stored, _)| *stored)
        });
    }
    object["apiVersion"] = (&*resource.stored).into();
    object
}

fn renamed(object: Value, api_version: &str, name_of: impl Fn(&str) -> Option<&'static str>) -> Value {
    let Value::Object(fields) = object else { return object };
    let fields = fields.into_iter().map(|(name, value)| match name.as_str() {
        "apiVersion" => (name, api_version.into()),
        field => (name_of(field).map_or_else(|| field.to_owned(), str::to_owned), value),
    });
    Value::Object(fields.collect::<Map<String, Value>>())
}
