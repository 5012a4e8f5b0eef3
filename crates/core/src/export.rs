//! Custom resources of a control plane as definitions for git: what a user would have written.
//!
//! A definition has the name, the labels, the annotations and the spec of its object. It lacks what others add to the
//! object: the API server (status, versions, `managedFields`, defaults of the schema), Lifecycle Manager (its label,
//! its finalizers, the empty channel of a ModuleTemplate), `kubectl apply`, Flux and Argo CD (how they recognize their
//! objects), and Tidegate (its ownership label, digests, requests). So the definition is a part of the object, and an
//! apply of it changes nothing.
//!
//! Two things are not exported. An object that is being deleted would come back. The objects of a module in git are in
//! the repository of its GitSource, which is the place to copy them from.

use serde_json::{Map, Value};

use crate::{
    adopt,
    api::{
        self,
        names::{MANAGED_BY_KCP, annotation, label},
    },
    definition::Kind,
    intake::OtherTool,
    object::Object,
    schema,
};

/// A file of the repository.
#[derive(Clone, Debug, PartialEq)]
pub struct File {
    /// Its path, relative to the root. Objects of one namespace have different paths.
    pub path: String,
    /// The definition in it.
    pub definition: Value,
}

/// Why an object has no file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// It is being deleted.
    #[error("it is being deleted")]
    Terminating,
    /// The objects of its module are in another repository.
    #[error("the objects of its module are in the repository of its GitSource")]
    FromGit,
}

/// The kinds of definitions, in the order of their folders.
pub const KINDS: [Kind; 4] = [Kind::Kyma, Kind::ModuleTemplate, Kind::ModuleReleaseMeta, Kind::Watcher];

/// Annotations that Tidegate or its users write on live objects, and that are no part of a definition.
const OF_TIDEGATE: [&str; 9] = [
    annotation::PATH,
    annotation::SOURCE,
    annotation::DIGEST,
    annotation::MODULE_TREE,
    annotation::RECONCILE_REQUESTED_AT,
    annotation::SUSPENDED,
    annotation::CONFIRM_DELETION,
    annotation::ADOPT,
    annotation::ADOPTED,
];
/// What `kubectl apply` writes on the objects that it applies.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

// === impl File ===

impl File {
    /// The definition of a live object.
    ///
    /// A Kyma that no GitSource owns gets its modules from its runtime, and Lifecycle Manager reads the list in the
    /// control plane only once. With such a list, git would decide. So it is left out, and an annotation says who
    /// decides: the list of another client stays in the control plane, where it would be git's.
    ///
    /// # Errors
    ///
    /// Refuses an object that git cannot declare.
    pub fn of(kind: Kind, object: &Object) -> Result<File, Refused> {
        if !object.value()["metadata"]["deletionTimestamp"].is_null() {
            return Err(Refused::Terminating);
        }
        if object.annotation(annotation::MODULE_PATH).is_some() {
            return Err(Refused::FromGit);
        }
        let mut spec = object.value()["spec"].clone();
        if let Some(schema) = api::crd(&kind.to_string()).and_then(schema::of_spec) {
            schema::remove_defaults(&mut spec, schema);
        }
        let is_of_runtime = kind == Kind::Kyma
            && object.label(label::SOURCE).is_none()
            && object.annotation(annotation::MODULES_FROM).is_none();
        let mut metadata = metadata(kind, object);
        if let Some(spec) = spec.as_object_mut() {
            let is_empty_channel = kind == Kind::ModuleTemplate && spec.get("channel") == Some(&Value::from(""));
            spec.retain(|field, value| !(value.is_null() || is_empty_channel && field == "channel"));
            if is_of_runtime {
                spec.shift_remove("modules");
            }
        }
        if is_of_runtime {
            let annotations = metadata.entry("annotations").or_insert_with(|| Value::Object(Map::new()));
            annotations[annotation::MODULES_FROM] = "runtime".into();
        }
        let mut definition = Map::new();
        definition.insert("apiVersion".to_owned(), object.value()["apiVersion"].clone());
        definition.insert("kind".to_owned(), kind.to_string().into());
        definition.insert("metadata".to_owned(), Value::Object(metadata));
        if !spec.is_null() {
            definition.insert("spec".to_owned(), spec);
        }
        Ok(File { path: path(kind, object), definition: Value::Object(definition) })
    }
}

/// Its names, and the labels and annotations of users.
fn metadata(kind: Kind, object: &Object) -> Map<String, Value> {
    let of_tools = OtherTool::marks(&adopt::managers(object.value()));
    let is_label = |(name, value): &(&String, &Value)| {
        let is_managed_by = kind == Kind::Kyma && *name == label::MANAGED_BY && *value == MANAGED_BY_KCP;
        !is_managed_by && *name != label::SOURCE && !of_tools.contains(&name.as_str())
    };
    let is_annotation = |(name, _): &(&String, &Value)| {
        let name = name.as_str();
        name != LAST_APPLIED && !OF_TIDEGATE.contains(&name) && !of_tools.contains(&name)
    };
    let live = &object.value()["metadata"];
    let kept = |field: &str, is_kept: &dyn Fn(&(&String, &Value)) -> bool| -> Map<String, Value> {
        let all = live[field].as_object().into_iter().flatten();
        all.filter(is_kept).map(|(name, value)| (name.clone(), value.clone())).collect()
    };
    let mut metadata = Map::new();
    metadata.insert("name".to_owned(), live["name"].clone());
    metadata.insert("namespace".to_owned(), live["namespace"].clone());
    for (field, marks) in [("labels", kept("labels", &is_label)), ("annotations", kept("annotations", &is_annotation))]
    {
        if !marks.is_empty() {
            metadata.insert(field.to_owned(), Value::Object(marks));
        }
    }
    metadata
}

/// `modules/cache/1.0.0.yaml`, `modules/cache/release.yaml`, `kymas/dev.yaml`, `watchers/dev.yaml`.
fn path(kind: Kind, object: &Object) -> String {
    let name = &object.id().name;
    match kind {
        Kind::Kyma => format!("kymas/{name}.yaml"),
        Kind::Watcher => format!("watchers/{name}.yaml"),
        Kind::ModuleReleaseMeta => format!("modules/{name}/release.yaml"),
        Kind::ModuleTemplate | Kind::Setup(_) => {
            let module = object.value()["spec"]["moduleName"].as_str().unwrap_or_default();
            // A template that belongs to a channel names no module.
            // The module is then a part of the object's name, so it is safe in a path.
            match name.strip_prefix(module).and_then(|rest| rest.strip_prefix('-')) {
                Some(version) if !module.is_empty() && !version.is_empty() && version != "release" => {
                    format!("modules/{module}/{version}.yaml")
                }
                _ => format!("modules/{name}.yaml"),
            }
        }
    }
}

#[cfg(test)]
mod tests;
