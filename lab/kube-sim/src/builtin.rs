// SPDX-License-Identifier: Apache-2.0

//! The built-in kinds: their schemas, what decoding refuses and drops, and their defaults.
//!
//! `builtin/schemas.json` contains the schemas of the real server's `/openapi/v3`, one component a line, without the
//! parts that no function here reads. `tests/it/sim/builtin.rs` writes the file and compares it with the server.

mod canonical;
mod check;
mod decode;
mod defaults;
mod pod;
pub(super) mod protobuf;
mod quantity;

use std::{
    collections::BTreeMap,
    sync::{Arc, LazyLock},
};

use serde_json::{Map, Value};

use super::patch::{Resets, Schema, TypeId, Types, TypesBuilder};
use tidegate_core::object::Gvk;

pub(super) use self::check::check;
pub use self::{
    decode::{prune, prune_metadata},
    defaults::default,
};

/// All components, by name.
static COMPONENTS: LazyLock<Map<String, Value>> = LazyLock::new(|| {
    let recorded = include_str!("builtin/schemas.json");
    serde_json::from_str(recorded).expect("the recorded schemas are JSON: a test writes them")
});
static KINDS: LazyLock<Kinds> = LazyLock::new(Kinds::new);

/// The field of a recorded component that contains its kind, as `[group, version, kind]`.
const KIND: &str = "kind";

struct Kinds {
    types: Arc<Types>,
    /// The component and the type of each kind.
    roots: BTreeMap<Gvk, (&'static str, TypeId)>,
}

/// The schema of a built-in kind; `None` if the kind is not included here.
pub fn schema(kind: &Gvk) -> Option<Schema> {
    let (component, root) = KINDS.roots.get(kind)?;
    let has_status = COMPONENTS[*component]["properties"].get("status").is_some();
    let resets = match &*kind.kind {
        _ if !has_status => Resets::Nothing,
        "Deployment" => Resets::StatusAndLabels,
        "Pod" => Resets::StatusAndOwners,
        _ => Resets::Status,
    };
    let empty = canonical::canonical(component, Value::Object(Map::new()));
    Some(Schema::builtin(kind.clone(), Arc::clone(&KINDS.types), *root, resets, empty))
}

/// All built-in kinds that are included here.
pub fn kinds() -> impl Iterator<Item = &'static Gvk> {
    KINDS.roots.keys()
}

/// A component as it was recorded.
pub(super) fn recorded(component: &str) -> Option<&'static Value> {
    COMPONENTS.get(component)
}

/// The component of a kind.
pub(super) fn component(kind: &Gvk) -> Option<&'static str> {
    KINDS.roots.get(kind).map(|(component, _)| *component)
}

// === impl Kinds ===

impl Kinds {
    fn new() -> Kinds {
        let mut builder = TypesBuilder::new(&COMPONENTS);
        let mut roots = BTreeMap::new();
        for (name, schema) in &*COMPONENTS {
            let Some([group, version, kind]) = schema[KIND].as_array().map(Vec::as_slice) else { continue };
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            let kind = Gvk::new(&text(group), &text(version), &text(kind));
            roots.insert(kind, (name.as_str(), builder.component(name)));
        }
        Kinds { types: Arc::new(builder.finish()), roots }
    }
}

#[cfg(test)]
mod tests;
