//! What is known besides an object: the rules of its kind, and whether its StorageClass lets it grow.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::JSONSchemaProps;
use serde_json::Value;

use super::{Old, kinds};
use crate::{
    name::Key,
    object::{DisplayPath, Gvk},
    render::SharedObject,
    schema::{Schema, Violation, ViolationKind},
};

/// What an API server decides by besides the object itself. By default, nothing is known.
#[derive(Clone, Debug, Default)]
pub struct Context {
    /// The schema of a custom resource, if it has rules that compare with the old value.
    rules: Option<Schema>,
    /// Whether the StorageClass of a PersistentVolumeClaim lets it grow; `None` if it is not known.
    pub(super) expands: Option<bool>,
}

/// The word of a rule that compares with the old value.
const OLD_SELF: &str = "oldSelf";

// === impl Context ===

impl Context {
    /// What the objects of a module say about one of them.
    pub fn in_module(gvk: &Gvk, object: &Value, module: &[SharedObject]) -> Context {
        let class = object.pointer("/spec/storageClassName").and_then(Value::as_str);
        let is_claim = gvk.group.is_empty() && &*gvk.kind == "PersistentVolumeClaim";
        // What an object says of others does not depend on its owner.
        let value = |one: &SharedObject| one.object(&Key::new("", "")).into_value();
        let classes = module.iter().filter(|one| is_claim && &*one.id.kind == "StorageClass");
        let mut expands =
            classes.filter(|one| Some(&*one.id.name) == class).map(|one| value(one)["allowVolumeExpansion"] == true);
        let mut definitions = module.iter().filter(|one| {
            let group = one.id.name.split_once('.').map(|(_, group)| group);
            &*one.id.kind == "CustomResourceDefinition" && group == Some(&*gvk.group)
        });
        Context { rules: definitions.find_map(|one| rules(gvk, &value(one))), expands: expands.next() }
    }

    /// What the definition of a custom resource says about it.
    pub fn of_definition(gvk: &Gvk, definition: &Value) -> Context {
        Context { rules: rules(gvk, definition), expands: None }
    }

    /// Whether a PersistentVolumeClaim grows, and nothing is known of its StorageClass.
    pub fn may_not_grow(&self, gvk: &Gvk, old: &Value, new: &Value) -> bool {
        let is_claim = gvk.group.is_empty() && &*gvk.kind == "PersistentVolumeClaim";
        is_claim && self.expands.is_none() && kinds::grows(old, new)
    }

    /// What a rule of a custom resource refuses about a change, as a field and a clause.
    pub(super) fn broken_rule(&self, old: &Value, new: &Value, of: Old, kind: &str) -> Option<(String, String)> {
        let schema = self.rules.as_ref()?;
        let (mut old, mut new) = (old.clone(), of.after(old, new));
        schema.default(&mut old);
        schema.default(&mut new);
        // What is invalid by itself is another problem.
        let own = schema.check(&new);
        let is_rule = |one: &Violation| one.kind == ViolationKind::Rule && !own.contains(one);
        let broken = schema.check_update(&new, &old).into_iter().find(is_rule)?;
        let field = DisplayPath(&broken.path).to_string();
        let subject = if field.is_empty() { kind.to_owned() } else { format!("{field} of {kind}") };
        let fact = format!("{subject} cannot be changed in this way ({})", broken.message.trim_end_matches('.'));
        Some((field, fact))
    }
}

/// The schema of a version of a custom resource, if it has rules that compare with the old value. None if the
/// definition is of another kind or invalid, which is reported elsewhere.
fn rules(gvk: &Gvk, definition: &Value) -> Option<Schema> {
    let spec = &definition["spec"];
    if spec["group"] != *gvk.group || spec["names"]["kind"] != *gvk.kind {
        return None;
    }
    let version = spec["versions"].as_array()?.iter().find(|version| version["name"] == *gvk.version)?;
    let schema = version.pointer("/schema/openAPIV3Schema").filter(|schema| schema.to_string().contains(OLD_SELF))?;
    let schema: JSONSchemaProps = serde_json::from_value(schema.clone()).ok()?;
    Schema::compile(&schema).ok()
}
