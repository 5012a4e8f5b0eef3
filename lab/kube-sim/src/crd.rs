// SPDX-License-Identifier: Apache-2.0

//! Interprets CustomResourceDefinitions: the resources that they define, and whether they are valid.
//!
//! All servers of the process share the result for equal definitions, because a fleet has the same ones a thousand
//! times.

mod accept;
mod judge;
mod prune;

use std::{
    collections::HashMap,
    sync::{Arc, LazyLock, Mutex, PoisonError, Weak},
};

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::JSONSchemaProps;
use serde_json::Value;

pub(super) use self::{
    accept::{Conflict, accepted_status, check},
    judge::violations,
    prune::prune,
};
use super::{
    patch::Schema,
    resource::{Generation, Habits, Names, Resource, collection},
};
use tidegate_core::{
    object::{Digest, Gvk},
    schema,
};

/// What a definition says about one version.
#[derive(Debug)]
pub(super) struct Custom {
    /// The `openAPIV3Schema`.
    pub(super) props: Value,
    /// The same, compiled for validation and defaults.
    pub(super) checks: schema::Schema,
    /// Columns of tables: name, type, format, description, priority and path.
    pub(super) columns: Vec<Value>,
    /// Additional fields for selectors, besides name and namespace.
    pub(super) selectable: Vec<String>,
}

/// The resources of a definition, one for each served version.
pub(super) type Defined = Vec<Arc<Resource>>;

static SHARED: LazyLock<Mutex<HashMap<Digest, Vec<Weak<Resource>>>>> = LazyLock::new(Mutex::default);

/// The resources of a definition. Fails if its schema is invalid.
pub(super) fn define(definition: &Value) -> Result<Defined, schema::CompileError> {
    let spec = &definition["spec"];
    let digest = Digest::from_value(spec);
    let shared = || SHARED.lock().unwrap_or_else(PoisonError::into_inner);
    // The servers own the resources; the cache does not.
    let known = shared().get(&digest).and_then(|known| known.iter().map(Weak::upgrade).collect::<Option<Defined>>());
    if let Some(defined) = known {
        return Ok(defined);
    }
    let versions = spec["versions"].as_array().map(Vec::as_slice).unwrap_or_default();
    let served = versions.iter().filter(|version| version["served"] == true);
    let defined =
        served.map(|version| resource(spec, versions, version).map(Arc::new)).collect::<Result<Defined, _>>()?;
    let mut shared = shared();
    shared.retain(|_, known| known.iter().any(|resource| resource.strong_count() > 0));
    shared.insert(digest, defined.iter().map(Arc::downgrade).collect());
    Ok(defined)
}

fn resource(spec: &Value, versions: &[Value], version: &Value) -> Result<Resource, schema::CompileError> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let words = |value: &Value| value.as_array().into_iter().flatten().map(text).collect::<Vec<_>>();
    let (group, names) = (text(&spec["group"]), &spec["names"]);
    let kind = Gvk::new(&group, &text(&version["name"]), &text(&names["kind"]));
    let api_version = |version: &Value| format!("{group}/{}", text(&version["name"]));
    let stored = versions.iter().find(|version| version["storage"] == true).map_or_else(String::new, api_version);
    let props = version["schema"]["openAPIV3Schema"].clone();
    let compiled = compile(&props)?;
    let status = !version["subresources"]["status"].is_null();
    let served: Vec<String> = versions.iter().filter(|version| version["served"] == true).map(api_version).collect();
    let plural = text(&names["plural"]);
    let or = |found: String, other: String| if found.is_empty() { other } else { found };
    let selectable = version["selectableFields"].as_array().into_iter().flatten();
    Ok(Resource {
        api_version: api_version(version).into(),
        collection: collection(&group, &plural),
        singular: or(text(&names["singular"]), kind.kind.to_lowercase()).into(),
        list_kind: or(text(&names["listKind"]), format!("{}List", kind.kind)).into(),
        plural: plural.into(),
        namespaced: spec["scope"] == "Namespaced",
        short_names: words(&names["shortNames"]),
        categories: words(&names["categories"]),
        stored: stored.into(),
        habits: Habits {
            status,
            put_creates: false,
            put_needs_version: true,
            generation: if status { Generation::Content } else { Generation::All },
            names: Names::Subdomain,
        },
        schema: Schema::custom(kind.clone(), &props, status, &served),
        custom: Some(Custom {
            checks: compiled,
            columns: version["additionalPrinterColumns"].as_array().cloned().unwrap_or_default(),
            selectable: selectable.map(|field| text(&field["jsonPath"]).trim_start_matches('.').to_owned()).collect(),
            props,
        }),
        kind,
    })
}

/// Compiles a schema for validation and defaults.
fn compile(props: &Value) -> Result<schema::Schema, schema::CompileError> {
    let typed: JSONSchemaProps = serde_json::from_value(props.clone())
        .map_err(|error| schema::CompileError { field: String::new(), problem: error.to_string() })?;
    schema::Schema::compile(&typed)
}
