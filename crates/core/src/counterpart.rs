//! The Kyma in a runtime, counterpart of the Kyma in KCP: what must be written to it, and what was reverted.
//!
//! Once it is there it is written by merge patch, never by server-side apply: `spec.modules` is a map to the API server, in
//! which an apply cannot remove what a user added; and where the runtime decides, an apply without `spec` would remove it.

use serde_json::{Map, Value, json};

use crate::{
    api::{
        Kyma,
        kyma::{KymaSpec, Module},
    },
    object::Object,
    plan,
};

/// What must be written to the Kyma in a runtime.
#[derive(Clone, Debug, PartialEq)]
pub enum Write {
    /// It is as desired.
    Nothing,
    /// It is not there.
    Create(Box<Object>),
    /// It differs.
    Merge {
        /// The merge patch.
        patch: Value,
        /// What users had changed and is taken back, in words.
        reverted: Vec<String>,
    },
}

/// What must be written so that the runtime's Kyma is `desired`, as far as the Kyma in KCP lets us decide.
///
/// `desired` is the Kyma as rendered, with the spec of `kyma`, which is the one in KCP; `live` is what stands in the runtime.
pub fn write(desired: &Object, kyma: &Kyma, live: Option<&Kyma>) -> Write {
    let Some(live) = live else { return Write::Create(Box::new(desired.clone())) };
    let mut patch = Map::new();
    if let Some(metadata) = metadata_patch(desired, live) {
        patch.insert("metadata".to_owned(), metadata);
    }
    let target = plan::effective(kyma, Some(&live.spec));
    let reverted = differences(&target, &live.spec);
    if !reverted.is_empty() {
        patch.insert("spec".to_owned(), json!({ "channel": target.channel, "modules": *target.modules }));
    }
    if patch.is_empty() { Write::Nothing } else { Write::Merge { patch: Value::Object(patch), reverted } }
}

/// What differs between the spec that shall be and the one that is, in words; order does not count.
fn differences(target: &KymaSpec, live: &KymaSpec) -> Vec<String> {
    let mut found = Vec::new();
    if target.channel != live.channel {
        found.push(format!("channel {} instead of {}", live.channel, target.channel));
    }
    let by_name = |modules: &[Module], name: &str| modules.iter().find(|module| module.name == name).cloned();
    for module in &target.modules {
        match by_name(&live.modules, &module.name) {
            None => found.push(format!("module {} was missing", module.name)),
            Some(other) if other != *module => found.push(format!("module {} was changed", module.name)),
            Some(_) => {}
        }
    }
    for module in &live.modules {
        if by_name(&target.modules, &module.name).is_none() {
            found.push(format!("module {} was added", module.name));
        }
    }
    found
}

/// Labels and annotations that are desired and differ.
fn metadata_patch(desired: &Object, live: &Kyma) -> Option<Value> {
    let wanted = |field: &str| desired.value().pointer(&format!("/metadata/{field}")).and_then(Value::as_object);
    let mut metadata = Map::new();
    for (field, live) in [("labels", &live.metadata.labels), ("annotations", &live.metadata.annotations)] {
        let differing: Map<String, Value> = wanted(field)
            .into_iter()
            .flatten()
            .filter(|(key, value)| live.as_ref().and_then(|map| map.get(*key)).map(String::as_str) != value.as_str())
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect();
        if !differing.is_empty() {
            metadata.insert(field.to_owned(), Value::Object(differing));
        }
    }
    (!metadata.is_empty()).then_some(Value::Object(metadata))
}

#[cfg(test)]
mod tests;
