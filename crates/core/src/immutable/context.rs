//! What is known besides an object: the rules of its kind, and whether its StorageClass lets it grow.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::JSONSchemaProps;
use serde_json::Value;

use super::{Old, kinds};
use crate::{
    name::Key,
    object::{DisplayPath, Gvk, is_built_in_group},
    render::SharedObject,
    schema::{Schema, Violation, ViolationKind},
};

/// What an API server decides by besides the object itself. By default, nothing is known.
#[derive(Clone, Debug, Default)]
pub struct Context {
    /// The schema of a custom resource, if it has rules that compare with the old value.
    rules: Option<Schema>,
    /// Whether a custom resource is known to have no such rules: its definition has none.
    has_no_rules: bool,
    /// Whether the StorageClass of a PersistentVolumeClaim lets it grow; `None` if it is not known.
    pub(super) expands: Option<bool>,
    /// Whether the live object is known to be as the old side declares it.
    pub(super) is_applied: bool,
    /// Whether a custom resource is known to have the same content in every version.
    is_same_in_every_version: bool,
}

/// Something about a PersistentVolumeClaim that decides whether it can grow, and that is not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Growth {
    /// Whether its StorageClass allows it.
    Class,
    /// Whether it is bound.
    Binding,
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
        let definitions = module.iter().filter(|one| {
            let group = one.id.name.split_once('.').map(|(_, group)| group);
            &*one.id.kind == "CustomResourceDefinition" && group == Some(&*gvk.group)
        });
        let definition = definitions.map(value).find(|one| defines(gvk, one));
        Context {
            expands: expands.next(),
            ..definition.map(|one| Context::of_definition(gvk, &one)).unwrap_or_default()
        }
    }

    /// What the definition of a custom resource says about it.
    pub fn of_definition(gvk: &Gvk, definition: &Value) -> Context {
        let rules = rules(gvk, definition);
        let (is_its, strategy) = (defines(gvk, definition), definition.pointer("/spec/conversion/strategy"));
        Context {
            has_no_rules: rules.is_none() && is_its,
            rules,
            is_same_in_every_version: is_its && strategy.is_none_or(|strategy| strategy == "None"),
            ..Context::default()
        }
    }

    /// The same, where the live object is known to be as the old side declares it.
    #[must_use]
    pub fn applied(self) -> Context {
        Context { is_applied: true, ..self }
    }

    /// Whether a custom resource changes its version, and may have another content in it: a webhook converts it, or its
    /// definition is not known.
    pub fn converts(&self, old: &Gvk, new: &Gvk) -> bool {
        is_other_version(old, new) && !self.is_same_in_every_version
    }

    /// Whether the kind of a custom resource may have rules that compare with the old value.
    pub(super) fn may_have_rules(&self) -> bool {
        !self.has_no_rules
    }

    /// What is not known of a PersistentVolumeClaim that grows. If its StorageClass forbids it, nothing else matters.
    pub fn growth(&self, gvk: &Gvk, old: &Value, new: &Value) -> Vec<Growth> {
        let is_claim = gvk.group.is_empty() && &*gvk.kind == "PersistentVolumeClaim";
        match self.expands {
            _ if !is_claim || !kinds::grows(old, new) => Vec::new(),
            None => vec![Growth::Class, Growth::Binding],
            Some(true) => vec![Growth::Binding],
            Some(false) => Vec::new(),
        }
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

/// Whether a custom resource changes its version.
pub fn is_other_version(old: &Gvk, new: &Gvk) -> bool {
    (&old.group, &old.kind) == (&new.group, &new.kind) && old.version != new.version && !is_built_in(&old.group)
}

/// Whether Kubernetes defines the kinds of a group.
pub(super) fn is_built_in(group: &str) -> bool {
    is_built_in_group(group)
}

/// Whether a definition is that of a kind.
fn defines(gvk: &Gvk, definition: &Value) -> bool {
    let spec = &definition["spec"];
    spec["group"] == *gvk.group && spec["names"]["kind"] == *gvk.kind
}

/// The schema of a version of a custom resource, if it has rules that compare with the old value. None if the
/// definition is of another kind or invalid, which is reported elsewhere.
fn rules(gvk: &Gvk, definition: &Value) -> Option<Schema> {
    if !defines(gvk, definition) {
        return None;
    }
    let version = definition["spec"]["versions"].as_array()?.iter().find(|version| version["name"] == *gvk.version)?;
    let schema = version.pointer("/schema/openAPIV3Schema").filter(|schema| schema.to_string().contains(OLD_SELF))?;
    let schema: JSONSchemaProps = serde_json::from_value(schema.clone()).ok()?;
    Schema::compile(&schema).ok()
}
