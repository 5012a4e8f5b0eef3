//! Gives objects back to Lifecycle Manager: the opposite of [`take_over`].
//!
//! What Tidegate claims of an object becomes a claim of the manager that applied it before, so that a field which
//! Lifecycle Manager drops later disappears. Three managers apply a Manifest, and each gets what it applies. Labels,
//! annotations and conditions that only Tidegate understands are removed. Everything else of the object stays as it is.

use bytes::Bytes;
use serde_json::{Map, Value, json};

use super::{Cause, Cluster, Error, Kind, Patch, take_over};
use tidegate_core::{
    api::names::{FIELD_MANAGER, annotation, finalizer},
    object::ObjectId,
};

/// Who gets Tidegate's claims.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heir {
    /// This manager, as if it had applied them.
    Manager(&'static str),
    /// The managers of a Manifest, each as if it had applied its part.
    OfManifest {
        /// Whether its source is a registry, as Lifecycle Manager writes it.
        is_from_registry: bool,
    },
    /// The manager of the copies of definitions in runtimes. It also claims what was not taken over.
    OfCopy,
    /// No manager: the next client that applies these fields claims them.
    NoManager,
}

/// Who gets the claims on an object, and on its status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Heirs {
    /// Those on everything but the status.
    pub object: Heir,
    /// Those on the status.
    pub status: Heir,
}

/// What must be written to give an object back.
#[derive(Clone, Debug, PartialEq)]
pub struct Return {
    /// The conditions that stay, if some go.
    conditions: Option<Value>,
    /// The JSON patch of the object, if its claims or its metadata change.
    patch: Option<Value>,
    /// What goes that only Tidegate understands, such as `label tidegate.dev/source`.
    marks: Vec<String>,
}

/// The manager of the spec of Manifests and of what every runtime has.
const MANAGER: &str = "lifecycle-manager";
/// The manager of the objects of modules, and of status and finalizers of Manifests.
const APPLIER: &str = "declarative.kyma-project.io/applier";
/// The manager of the copies of definitions.
const CATALOG: &str = "catalog-sync";

/// The prefix of labels, annotations and conditions that only Tidegate understands.
const OWN: &str = "tidegate.dev/";

// === impl Heirs ===

impl Heirs {
    /// The managers of an object in the control plane.
    pub fn in_kcp(object: &Value) -> Heirs {
        match object["kind"].as_str().unwrap_or_default() {
            "Manifest" => {
                let source = object.pointer("/spec/install/source/type").and_then(Value::as_str);
                let is_from_registry = source.is_some_and(|source| source.starts_with("oci-"));
                Heirs { object: Heir::OfManifest { is_from_registry }, status: Heir::Manager(APPLIER) }
            }
            "Certificate" => {
                Heirs { object: Heir::Manager("operator.kyma-project.io/lifecycle-manager"), status: Heir::NoManager }
            }
            _ => Heirs { object: Heir::NoManager, status: Heir::Manager(MANAGER) },
        }
    }

    /// The managers of an object in a runtime.
    pub fn in_runtime(object: &Value) -> Heirs {
        let is_of_module = !object["metadata"]["annotations"][annotation::OWNED_BY].is_null();
        let heir = match object["kind"].as_str().unwrap_or_default() {
            "Kyma" => Heir::Manager("kyma-sync-context"),
            "ModuleTemplate" | "ModuleReleaseMeta" => Heir::OfCopy,
            _ if is_of_module => Heir::Manager(APPLIER),
            "Namespace" => Heir::Manager("kyma-sync-context"),
            _ => Heir::Manager(MANAGER),
        };
        Heirs { object: heir, status: Heir::NoManager }
    }
}

// === impl Heir ===

impl Heir {
    /// The managers, each with its part of the claims. `rest` are the claims of others on the object.
    fn parts(self, claims: &Value, object: &Value, rest: &[Value]) -> Vec<(&'static str, Value)> {
        match self {
            Heir::NoManager => Vec::new(),
            Heir::Manager(manager) => vec![(manager, claims.clone())],
            Heir::OfManifest { is_from_registry } => of_manifest(claims, is_from_registry),
            Heir::OfCopy => {
                let mut claims = claims.clone();
                take_over::claim_what_stayed(&mut claims, object, rest);
                vec![(CATALOG, claims)]
            }
        }
    }
}

/// The claims on a Manifest, by manager. One applies all but finalizers. The next one then applies the whole Manifest
/// with two finalizers. The last one applies finalizers alone, where the module has a custom resource.
///
/// A source in git is not Lifecycle Manager's: one that writes another source must be able to remove its fields, and so
/// claim them alone.
fn of_manifest(claims: &Value, is_from_registry: bool) -> Vec<(&'static str, Value)> {
    const PATH: [&str; 2] = ["f:metadata", "f:finalizers"];
    let of_resource = format!("v:\"{}\"", finalizer::MANIFEST_RESOURCE);
    let finalizers = claims.pointer("/f:metadata/f:finalizers").cloned().unwrap_or_default();
    let only = |finalizers: &Value| json!({PATH[0]: {PATH[1]: finalizers}});
    let mut spec = claims.clone();
    remove_below(&mut spec, &PATH, "");
    let mut parts = vec![(MANAGER, spec)];
    let mut whole = if is_from_registry { claims.clone() } else { only(&finalizers) };
    remove_below(&mut whole, &PATH, &of_resource);
    if whole.pointer("/f:metadata/f:finalizers").is_some_and(Value::is_object) {
        parts.push((APPLIER, whole));
    }
    if finalizers.get(&of_resource).is_some() {
        parts.push((take_over::FORMER_OF_FINALIZERS, only(&finalizers)));
    }
    parts.retain(|(_, claims)| claims.as_object().is_some_and(|claims| !claims.is_empty()));
    parts
}

// === impl Return ===

impl Return {
    /// What must be written to give back a live object; `None` if it has nothing of Tidegate.
    pub fn of(object: &Value, heirs: Heirs) -> Option<Return> {
        let is_own = |condition: &&Value| condition["type"].as_str().is_some_and(|type_| type_.starts_with(OWN));
        let marks = marks(object);
        let conditions = object.pointer("/status/conditions").and_then(Value::as_array);
        let conditions = conditions
            .filter(|all| all.iter().any(|one| is_own(&one)))
            .map(|all| Value::Array(all.iter().filter(|condition| !is_own(condition)).cloned().collect()));
        let entries = object.pointer("/metadata/managedFields").and_then(Value::as_array).map(Vec::as_slice);
        let entries = entries.unwrap_or_default();
        let inherited = inherited(object, entries, heirs);
        let mut operations = removals(object);
        if operations.is_empty() && inherited == entries {
            return conditions.map(|conditions| Return { conditions: Some(conditions), patch: None, marks });
        }
        // An empty list would be filled in by the API server; one empty entry clears it.
        let inherited = if inherited.is_empty() { vec![json!({})] } else { inherited };
        operations.push(json!({"op": "replace", "path": "/metadata/managedFields", "value": inherited}));
        Some(Return { conditions, patch: Some(Value::Array(operations)), marks })
    }

    /// What goes that only Tidegate understands: its labels, annotations and conditions, each with its kind.
    pub fn marks(&self) -> &[String] {
        &self.marks
    }
}

/// The labels, annotations and conditions that only Tidegate understands, such as `label tidegate.dev/source`.
fn marks(object: &Value) -> Vec<String> {
    let named = |what: &'static str, name: &str| name.starts_with(OWN).then(|| format!("{what} {name}"));
    let of_metadata = [("label", "labels"), ("annotation", "annotations")].into_iter().flat_map(|(what, field)| {
        let all = object["metadata"][field].as_object().into_iter().flatten();
        all.filter_map(move |(name, _)| named(what, name))
    });
    let conditions = object.pointer("/status/conditions").and_then(Value::as_array).into_iter().flatten();
    let of_status = conditions.filter_map(|condition| named("condition", condition["type"].as_str()?));
    of_metadata.chain(of_status).collect()
}

/// The operations that remove Tidegate's labels and annotations.
fn removals(object: &Value) -> Vec<Value> {
    let mut operations = Vec::new();
    for field in ["labels", "annotations"] {
        let all = object["metadata"][field].as_object().into_iter().flatten();
        for (name, _) in all.filter(|(name, _)| name.starts_with(OWN)) {
            let path = format!("/metadata/{field}/{}", name.replace('~', "~0").replace('/', "~1"));
            operations.push(json!({"op": "remove", "path": path}));
        }
    }
    operations
}

/// `managedFields` with Tidegate's claims as those of their heirs.
fn inherited(object: &Value, entries: &[Value], heirs: Heirs) -> Vec<Value> {
    let (own, mut rest): (Vec<Value>, Vec<Value>) =
        entries.iter().cloned().partition(|entry| entry["manager"] == FIELD_MANAGER);
    // What Tidegate wrote by an update was a user's or Lifecycle Manager's before, and no client applies it.
    for mut entry in own.into_iter().filter(|entry| entry["operation"] == "Apply") {
        let is_status = entry["subresource"] == "status";
        remove_own(&mut entry["fieldsV1"]);
        let heir = if is_status { heirs.status } else { heirs.object };
        for (manager, claims) in heir.parts(&entry["fieldsV1"], object, &rest) {
            let mut entry = entry.clone();
            (entry["manager"], entry["fieldsV1"]) = (manager.into(), claims);
            add(&mut rest, entry);
        }
    }
    rest
}

/// Adds claims to those that the same manager has.
fn add(all: &mut Vec<Value>, entry: Value) {
    let is_same = |other: &&mut Value| {
        ["manager", "operation", "apiVersion", "subresource"].iter().all(|field| other.get(field) == entry.get(field))
    };
    match all.iter_mut().find(is_same) {
        Some(other) => {
            let claims = entry["fieldsV1"].as_object().cloned().unwrap_or_default();
            if let Some(all) = other["fieldsV1"].as_object_mut() {
                take_over::unite(all, &claims);
            }
        }
        None => all.push(entry),
    }
}

/// Removes the claims on what is removed with them: labels, annotations and conditions that only Tidegate understands.
/// So a process that is killed after the conditions are gone leaves the same claims as one that is not.
fn remove_own(claims: &mut Value) {
    let (mark, condition) = (format!("f:{OWN}"), format!("k:{{\"type\":\"{OWN}"));
    remove_below(claims, &["f:metadata", "f:labels"], &mark);
    remove_below(claims, &["f:metadata", "f:annotations"], &mark);
    remove_below(claims, &["f:status", "f:conditions"], &condition);
}

/// Removes the claims at a path whose names begin so. An empty mapping goes as well: it would be a claim on all that
/// others have in it.
fn remove_below(claims: &mut Value, path: &[&str], prefix: &str) {
    let Some(all) = claims.as_object_mut() else { return };
    let Some((field, rest)) = path.split_first() else {
        all.retain(|name, _| !name.starts_with(prefix));
        return;
    };
    let is_empty = |value: &Value| value.as_object().is_some_and(Map::is_empty);
    let Some(below) = all.get_mut(*field).filter(|below| !is_empty(below)) else { return };
    remove_below(below, rest, prefix);
    if is_empty(below) {
        all.remove(*field);
    }
}

// === impl Cluster ===

impl Cluster {
    /// Gives a live object back. It must be as it was read: otherwise the API server refuses.
    ///
    /// # Errors
    ///
    /// Fails if the API server refuses a write: the object has changed, or is gone.
    pub async fn give_back(
        &self,
        cause: &Cause,
        kind: &Kind,
        id: &ObjectId,
        object: &Value,
        return_: &Return,
    ) -> Result<(), Error> {
        let mut version = object["metadata"]["resourceVersion"].clone();
        if let Some(conditions) = &return_.conditions {
            let patch = json!([
                {"op": "replace", "path": "/metadata/resourceVersion", "value": version},
                {"op": "replace", "path": "/status/conditions", "value": conditions},
            ]);
            let body = Bytes::from(patch.to_string());
            version = self.patch(cause, kind, id, Some("status"), Patch::Json, body).await?.resource_version.into();
        }
        if let Some(patch) = &return_.patch {
            let mut operations = patch.as_array().cloned().unwrap_or_default();
            operations.push(json!({"op": "replace", "path": "/metadata/resourceVersion", "value": version}));
            self.patch(cause, kind, id, None, Patch::Json, Value::Array(operations).to_string().into()).await?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn entry(manager: &str, operation: &str, subresource: Option<&str>, fields: &Value) -> Value {
        let mut entry = json!({
            "manager": manager, "operation": operation, "apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": fields,
        });
        if let Some(subresource) = subresource {
            entry["subresource"] = subresource.into();
        }
        entry
    }

    fn manifest() -> Value {
        json!({
            "kind": "Manifest",
            "metadata": {
                "name": "a", "labels": {"app": "a", "tidegate.dev/source": "b"},
                "annotations": {"tidegate.dev/a~b": "c", "keep": "d"},
                "managedFields": [
                    entry(FIELD_MANAGER, "Apply", None, &json!({"f:spec": {"f:a": {}}})),
                    entry("lifecycle-manager", "Apply", None, &json!({"f:spec": {"f:b": {}}})),
                    entry("kubectl", "Update", None, &json!({"f:spec": {"f:c": {}}})),
                    entry(FIELD_MANAGER, "Update", None, &json!({"f:spec": {"f:d": {}}})),
                    entry(FIELD_MANAGER, "Apply", Some("status"), &json!({"f:status": {"f:state": {}}})),
                ],
            },
            "status": {"conditions": [{"type": "Resources"}, {"type": "tidegate.dev/Applied"}]},
        })
    }

    #[test]
    fn each_manager_of_a_manifest_gets_what_it_applies() {
        let claim = |name: &str| format!("v:\"{name}\"");
        let (main, label) = (claim(finalizer::MANIFEST), claim(finalizer::LABEL_REMOVAL));
        let resource = claim(finalizer::MANIFEST_RESOURCE);
        let parts = |fields: &Value, type_: &str| -> BTreeMap<String, Value> {
            let managed = json!([entry(FIELD_MANAGER, "Apply", None, fields)]);
            let object = json!({
                "kind": "Manifest", "metadata": {"managedFields": managed},
                "spec": {"install": {"source": {"type": type_}}},
            });
            let patch = Return::of(&object, Heirs::in_kcp(&object)).unwrap().patch.unwrap();
            let all = patch[0]["value"].as_array().unwrap();
            all.iter().map(|one| (one["manager"].as_str().unwrap().to_owned(), one["fieldsV1"].clone())).collect()
        };
        let of = |finalizers: &Value, with_spec: bool| {
            let mut fields =
                json!({"f:metadata": {"f:labels": {"f:a": {}}, "f:finalizers": finalizers}, "f:spec": {"f:b": {}}});
            if !with_spec {
                fields = json!({"f:metadata": {"f:finalizers": finalizers}});
            }
            fields
        };
        let spec = json!({"f:metadata": {"f:labels": {"f:a": {}}}, "f:spec": {"f:b": {}}});
        let (two, three) = (json!({&main: {}, &label: {}}), json!({&main: {}, &label: {}, &resource: {}}));
        let manager = || ("lifecycle-manager".to_owned(), spec.clone());
        let applier = |fields: Value| ("declarative.kyma-project.io/applier".to_owned(), fields);
        let of_resource = || ("resource.kyma-project.io/finalizer".to_owned(), of(&three, false));
        assert_eq!(parts(&of(&two, true), "oci-ref"), [manager(), applier(of(&two, true))].into());
        assert_eq!(parts(&of(&three, true), "oci-dir"), [manager(), applier(of(&two, true)), of_resource()].into());
        // The next one that writes a source must be able to remove what is in this one.
        assert_eq!(parts(&of(&three, true), "git"), [manager(), applier(of(&two, false)), of_resource()].into());
        assert_eq!(parts(&spec, "oci-ref"), [manager()].into(), "without finalizers");
    }

    #[test]
    fn a_copy_of_a_definition_gets_the_claims_that_were_not_taken_over() {
        let noted = "kubectl.kubernetes.io/last-applied-configuration";
        let copy = |kind: &str, more: &[Value]| {
            let mut managed = vec![entry(FIELD_MANAGER, "Apply", None, &json!({"f:spec": {"f:moduleName": {}}}))];
            managed.extend_from_slice(more);
            let annotations = json!({noted: "{}"});
            json!({
                "kind": kind, "metadata": {"annotations": annotations, "managedFields": managed},
                "spec": {"moduleName": "a", "beta": false, "internal": false},
            })
        };
        let claims = |object: &Value| {
            let patch = Return::of(object, Heirs::in_runtime(object)).unwrap().patch.unwrap();
            let all = patch[0]["value"].as_array().unwrap().clone();
            all.into_iter().find(|one| one["manager"] == "catalog-sync").unwrap()["fieldsV1"].clone()
        };
        let annotation = json!({"f:annotations": {format!("f:{noted}"): {}}});
        assert_eq!(
            claims(&copy("ModuleReleaseMeta", &[])),
            json!({"f:metadata": annotation, "f:spec": {"f:moduleName": {}, "f:beta": {}, "f:internal": {}}})
        );
        assert_eq!(
            claims(&copy("ModuleTemplate", &[])),
            json!({"f:metadata": annotation, "f:spec": {"f:moduleName": {}}})
        );
        // A user applied the copy.
        let user = entry("kubectl-client-side-apply", "Update", None, &json!({"f:metadata": annotation}));
        assert_eq!(claims(&copy("ModuleTemplate", &[user])), json!({"f:spec": {"f:moduleName": {}}}));
    }

    #[test]
    fn claims_become_those_of_the_manager_that_had_them() {
        let object = manifest();
        let found = Return::of(&object, Heirs::in_kcp(&object)).unwrap();
        assert_eq!(found.conditions, Some(json!([{"type": "Resources"}])));
        let marks = ["label tidegate.dev/source", "annotation tidegate.dev/a~b", "condition tidegate.dev/Applied"];
        assert_eq!(found.marks(), marks);
        let entries = json!([
            entry("lifecycle-manager", "Apply", None, &json!({"f:spec": {"f:b": {}, "f:a": {}}})),
            entry("kubectl", "Update", None, &json!({"f:spec": {"f:c": {}}})),
            entry(
                "declarative.kyma-project.io/applier",
                "Apply",
                Some("status"),
                &json!({"f:status": {"f:state": {}}})
            ),
        ]);
        assert_eq!(
            found.patch,
            Some(json!([
                {"op": "remove", "path": "/metadata/labels/tidegate.dev~1source"},
                {"op": "remove", "path": "/metadata/annotations/tidegate.dev~1a~0b"},
                {"op": "replace", "path": "/metadata/managedFields", "value": entries},
            ]))
        );
    }

    #[test]
    fn an_object_without_anything_of_tidegate_is_left_alone() {
        let object = json!({
            "kind": "ConfigMap",
            "metadata": {"name": "a", "managedFields": [entry("kubectl", "Update", None, &json!({}))]},
            "status": {"conditions": [{"type": "Ready"}]},
        });
        assert_eq!(Return::of(&object, Heirs::in_runtime(&object)), None);
    }

    #[test]
    fn claims_on_what_is_removed_go_with_it() {
        let mut claims = json!({
            "f:metadata": {"f:labels": {"f:tidegate.dev/source": {}}, "f:annotations": {"f:tidegate.dev/a": {}, "f:b": {}}},
            "f:status": {"f:conditions": {
                "k:{\"type\":\"tidegate.dev/Applied\"}": {".": {}}, "k:{\"type\":\"Modules\"}": {".": {}},
            }},
        });
        remove_own(&mut claims);
        let left = json!({
            "f:metadata": {"f:annotations": {"f:b": {}}},
            "f:status": {"f:conditions": {"k:{\"type\":\"Modules\"}": {".": {}}}},
        });
        assert_eq!(claims, left);
        let mut only = json!({"f:metadata": {"f:labels": {"f:tidegate.dev/source": {}}}, "f:spec": {}});
        remove_own(&mut only);
        assert_eq!(only, json!({"f:spec": {}}));
    }

    #[test]
    fn definitions_get_no_manager_and_objects_of_modules_the_applier() {
        let definition = json!({"metadata": {"managedFields": [entry(FIELD_MANAGER, "Apply", None, &json!({}))]}});
        let patch = Return::of(&definition, Heirs::in_kcp(&json!({"kind": "Kyma"}))).unwrap().patch.unwrap();
        assert_eq!(patch, json!([{"op": "replace", "path": "/metadata/managedFields", "value": [{}]}]));
        let heir = |kind: &str, annotations: &Value| {
            Heirs::in_runtime(&json!({"kind": kind, "metadata": {"annotations": annotations}})).object
        };
        let owned = json!({annotation::OWNED_BY: "kcp-system/a"});
        assert_eq!(heir("Deployment", &owned), Heir::Manager("declarative.kyma-project.io/applier"));
        assert_eq!(heir("Kyma", &owned), Heir::Manager("kyma-sync-context"));
        assert_eq!(heir("Deployment", &Value::Null), Heir::Manager("lifecycle-manager"));
        assert_eq!(heir("ModuleTemplate", &Value::Null), Heir::OfCopy);
    }
}
