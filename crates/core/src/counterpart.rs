//! The Kyma in a runtime, the counterpart of the Kyma in KCP: what to write to it, and what was
//! reverted.
//!
//! An existing counterpart is written by merge patch, never by server-side apply. For the API
//! server, `spec.modules` is a map, and an apply cannot remove what a user added to it. If the
//! runtime selects its modules, an apply without `spec` would remove it.

use serde_json::{Map, Value, json};

use crate::{
    api::{
        Kyma,
        kyma::{KymaSpec, Module},
    },
    object::Object,
    plan,
};

/// The necessary write to the Kyma in a runtime.
#[derive(Clone, Debug, PartialEq)]
pub enum Write {
    /// It is as desired.
    Nothing,
    /// It does not exist.
    Create(Box<Object>),
    /// It changes.
    Merge {
        /// The merge patch.
        patch: Value,
        /// The changes of users that are reverted, in words.
        reverted: Vec<String>,
    },
}

/// The write that turns the runtime's Kyma into `desired`, as far as the Kyma in KCP controls it.
///
/// `desired` is the rendered Kyma with the spec of `kyma`, the one in KCP. `live` is the Kyma in
/// the runtime.
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

/// The differences between the desired and the live spec, in words. The order does not matter.
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

/// Desired labels and annotations that differ from the live ones.
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
