//! Objects that differ between runtimes only in the name of their owner.
//!
//! They are labelled and serialised once. The strings of a runtime are filled in when a body is
//! sent. The bytes between them are shared, so a module of a thousand runtimes is in memory once.

use std::{collections::BTreeSet, sync::Arc};

use serde_json::Value;

use super::{InjectError, Injection, platform, scope};
use crate::{
    api::names::{self, annotation, label},
    definition::{ModuleObjects, SourceObject},
    name::Key,
    object::{Digest, Gvk, Object, ObjectId},
    secret,
};

/// The labels that objects get, and their owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    /// Objects that every runtime has. As with Lifecycle Manager, they name no owner.
    Runtime,
    /// Objects of a module. The owner is its Manifest in KCP.
    Module,
}

/// Unique objects in the order of apply.
#[derive(Clone, Debug)]
pub struct SharedObjects {
    /// The objects.
    pub objects: Vec<SharedObject>,
    /// Digest of all of them, independent of the owner.
    pub digest: Digest,
}

/// All objects of one module.
///
/// Only made from [`ModuleObjects`], which exist only if every object of the module could be read.
/// So an object that is not in it is not desired, and may be pruned. Cheap to clone.
#[derive(Clone, Debug)]
pub struct CompleteModule(Arc<SharedObjects>);

/// One object, serialised without the name of its owner. Cheap to clone.
#[derive(Clone, Debug)]
pub struct SharedObject {
    /// Its identity.
    pub id: ObjectId,
    /// Its group, version and kind.
    pub gvk: Gvk,
    /// Its digest, independent of the owner.
    pub digest: Digest,
    /// Whether its definition allows Tidegate to take over an existing object without Tidegate's ownership label.
    pub adopt: bool,
    /// Its position in the input.
    pub index: usize,
    /// Whether its definition asks for data of the Secret in KCP that has its name.
    pub asks_for_data: bool,
    /// Where its data are from when it is sent. They are not part of the body.
    pub data_from: Option<Arc<DataSource>>,
    pub(super) body: Arc<[Piece]>,
}

/// A Secret in KCP whose data an object has.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DataSource {
    /// The Secret.
    pub secret: Key,
    /// The module that its label must name; `None` if it needs no label.
    pub module: Option<&'static str>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Piece {
    /// Literal JSON.
    Bytes(Box<[u8]>),
    /// `<namespace>/<name>` of the owner.
    Owner,
    /// The owner's name.
    OwnerName,
}

// === impl SharedObjects ===

impl SharedObjects {
    /// Labels and serialises `objects`.
    ///
    /// If two objects have the same identity, the first one wins. `namespaced` says whether a kind
    /// is namespaced, if known; built-in kinds and those of CRDs among the objects are always
    /// known. A namespaced object without a namespace gets `default`. A cluster-scoped object loses
    /// its namespace. An object of an unknown kind stays as it is.
    pub fn new<'a>(
        objects: impl IntoIterator<Item = &'a Object>,
        mark: Mark,
        namespaced: &dyn Fn(&Gvk) -> Option<bool>,
    ) -> SharedObjects {
        let originals: Vec<&Object> = objects.into_iter().collect();
        let own = scope::of_crds(originals.iter().copied());
        let mut seen = BTreeSet::new();
        let mut shared = Vec::with_capacity(originals.len());
        for (index, original) in originals.into_iter().enumerate() {
            let mut object = original.clone();
            let gvk = object.gvk();
            let scope = scope::built_in_scope(&gvk.group, &gvk.kind)
                .or_else(|| own.get(&(gvk.group.to_string(), gvk.kind.to_string())).copied())
                .or_else(|| namespaced(&gvk));
            match scope {
                Some(true) if object.namespace().is_empty() => object.set_namespace("default"),
                Some(false) => object.set_namespace(""),
                Some(true) | None => {}
            }
            if seen.insert(object.id()) {
                shared.push(SharedObject::new(object, gvk, mark, index));
            }
        }
        SharedObjects::sorted(shared)
    }

    /// The union of several sets without common objects. Shared parts stay shared.
    pub fn joined<'a>(all: impl IntoIterator<Item = &'a SharedObjects>) -> SharedObjects {
        let objects = all.into_iter().flat_map(|shared| &shared.objects).cloned();
        SharedObjects::sorted(objects.enumerate().map(|(index, object)| SharedObject { index, ..object }).collect())
    }

    /// The same objects, of which one has the data of a Secret in KCP, in this version of it.
    #[must_use]
    pub fn with_data(self, id: &ObjectId, source: &Arc<DataSource>, version: &str) -> SharedObjects {
        let with_data =
            |object: SharedObject| if object.id == *id { object.with_data(source, version) } else { object };
        SharedObjects::sorted(self.objects.into_iter().map(with_data).collect())
    }

    fn sorted(mut objects: Vec<SharedObject>) -> SharedObjects {
        objects.sort_by(|a, b| a.id.apply_order().cmp(&b.id.apply_order()));
        let digest = Digest::all(objects.iter().map(|object| &object.digest));
        SharedObjects { objects, digest }
    }
}

// === impl CompleteModule ===

impl CompleteModule {
    /// Labels and serialises the objects of a module. The Namespace `kyma-system` is left out: Tidegate applies its
    /// own in every runtime, and two owners would overwrite each other's labels.
    pub fn new(module: &ModuleObjects) -> CompleteModule {
        let objects: Vec<Object> = module.objects().iter().map(SourceObject::object).collect();
        let SharedObjects { mut objects, .. } = SharedObjects::new(&objects, Mark::Module, &|_| None);
        objects.retain(|object| !platform::is_runtime_namespace(&object.id));
        CompleteModule(Arc::new(SharedObjects::sorted(objects)))
    }

    /// The objects.
    pub fn objects(&self) -> &Arc<SharedObjects> {
        &self.0
    }

    /// The same objects, with what a landscape puts into them. Those that stay as they are stay shared.
    ///
    /// # Errors
    ///
    /// Fails if an object is not as the injection needs it.
    pub fn with(&self, injection: &Injection) -> Result<CompleteModule, InjectError> {
        let objects = self.0.objects.iter().map(|object| injection.put_into(object));
        Ok(CompleteModule(Arc::new(SharedObjects::sorted(objects.collect::<Result<_, _>>()?))))
    }
}

// === impl SharedObject ===

impl SharedObject {
    fn new(mut object: Object, gvk: Gvk, mark: Mark, index: usize) -> SharedObject {
        let is_secret = (&*gvk.group, &*gvk.kind) == ("", "Secret");
        let asks_for_data = is_secret && object.annotation(annotation::INJECT_DATA_FROM_KCP) == Some("true");
        // The data of the control plane replaces `data`, and the texts lie over it.
        if is_secret && !asks_for_data {
            secret::fold_texts(object.map_mut());
        }
        let before = object.value().to_string();
        let [owner, owner_name] = placeholders(&before);
        object.set_label(label::MANAGED_BY, names::MANAGED_BY_SKR);
        match mark {
            Mark::Runtime => {}
            Mark::Module => {
                object.set_annotation(annotation::OWNED_BY, &owner);
                object.set_label(label::COMPONENT, &owner_name);
                object.set_label(label::PART_OF, "Kyma");
                object.set_annotation(annotation::DISCLAIMER, annotation::DISCLAIMER_TEXT);
            }
        }
        let digest = object.digest();
        let text = object.value().to_string();
        let body = pieces(&text, &owner, &owner_name);
        let adopt = object.annotation(annotation::ADOPT) == Some("true");
        let id = object.id();
        SharedObject { id, gvk, digest, adopt, index, asks_for_data, data_from: None, body: body.into() }
    }

    /// The same object after a change that keeps its identity, labels and annotations. Fails if the change does.
    pub(super) fn changed<E>(&self, change: impl FnOnce(&mut Value) -> Result<(), E>) -> Result<SharedObject, E> {
        let text: String = self.body.iter().map(|piece| piece.text("", "")).collect();
        let [owner, owner_name] = placeholders(&text);
        let text: String = self.body.iter().map(|piece| piece.text(&owner, &owner_name)).collect();
        let mut value = serde_json::from_str(&text).expect("it was serialised from an object");
        change(&mut value)?;
        let (digest, text) = (Digest::from_value(&value), value.to_string());
        Ok(SharedObject { digest, body: pieces(&text, &owner, &owner_name).into(), ..self.clone() })
    }

    /// The same object, with data that it gets when it is sent.
    pub(super) fn with_data(self, source: &Arc<DataSource>, version: &str) -> SharedObject {
        // A new version must be applied, although nothing else of the object has changed.
        let digest = Digest::all([&self.digest, &Digest::of_bytes(version.as_bytes())]);
        SharedObject { digest, data_from: Some(Arc::clone(source)), ..self }
    }

    /// The JSON for one owner, with the `data` of a Secret in place of its own.
    pub fn body_with(&self, owner: &Key, data: &Value) -> Vec<u8> {
        let mut object = self.object(owner);
        object.map_mut().insert("data".to_owned(), data.clone());
        object.into_value().to_string().into_bytes()
    }

    /// The JSON for one owner: the Kyma or the Manifest in KCP.
    pub fn body(&self, owner: &Key) -> Vec<u8> {
        let mut body = Vec::new();
        for piece in &*self.body {
            match piece {
                Piece::Bytes(bytes) => body.extend_from_slice(bytes),
                // Namespaces and names contain nothing that JSON would escape.
                Piece::Owner => body.extend_from_slice(owner.to_string().as_bytes()),
                Piece::OwnerName => body.extend_from_slice(owner.name().as_bytes()),
            }
        }
        body
    }

    /// The object for one owner.
    pub fn object(&self, owner: &Key) -> Object {
        let value = serde_json::from_slice(&self.body(owner)).expect("names need no escape in JSON");
        Object::new(value).expect("it was serialised from an object")
    }
}

// === impl Piece ===

impl Piece {
    fn text<'a>(&'a self, owner: &'a str, owner_name: &'a str) -> &'a str {
        match self {
            Piece::Bytes(bytes) => std::str::from_utf8(bytes).expect("it is a part of JSON, cut at a placeholder"),
            Piece::Owner => owner,
            Piece::OwnerName => owner_name,
        }
    }
}

/// Two strings that do not occur in `text` and need no escape in JSON.
fn placeholders(text: &str) -> [String; 2] {
    let mut mark = "((owner".to_owned();
    while text.contains(&mark) {
        mark.push('-');
    }
    [format!("{mark}))"), format!("{mark} name))")]
}

fn pieces(text: &str, owner: &str, owner_name: &str) -> Vec<Piece> {
    let mut pieces = Vec::new();
    let mut rest = text;
    loop {
        let next = [(owner, Piece::Owner), (owner_name, Piece::OwnerName)]
            .into_iter()
            .filter_map(|(placeholder, piece)| rest.find(placeholder).map(|at| (at, placeholder.len(), piece)))
            .min_by_key(|(at, _, _)| *at);
        let Some((at, length, piece)) = next else { break };
        pieces.push(Piece::Bytes(rest.as_bytes()[..at].into()));
        pieces.push(piece);
        rest = &rest[at + length..];
    }
    pieces.push(Piece::Bytes(rest.as_bytes().into()));
    pieces
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn object(api_version: &str, kind: &str, namespace: &str) -> Object {
        let mut object =
            Object::new(json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": "a"}})).unwrap();
        object.set_namespace(namespace);
        object
    }

    #[track_caller]
    fn check_namespace(object: &Object, expected: &str) {
        let shared = SharedObjects::new([object], Mark::Module, &|_| None);
        assert_eq!(&*shared.objects[0].id.namespace, expected);
    }

    #[test]
    fn namespaces_follow_the_scope_of_the_kind() {
        check_namespace(&object("v1", "ConfigMap", ""), "default");
        check_namespace(&object("v1", "ConfigMap", "kyma-system"), "kyma-system");
        check_namespace(&object("rbac.authorization.k8s.io/v1", "ClusterRole", "kyma-system"), "");
        check_namespace(&object("example.com/v1", "Thing", ""), "");
        check_namespace(&object("example.com/v1", "Thing", "x"), "x");
    }

    #[test]
    fn kinds_of_crds_beside_them_are_known() {
        let crd = Object::new(json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": "things.example.com"},
            "spec": {"group": "example.com", "scope": "Namespaced", "names": {"kind": "Thing"}},
        }))
        .unwrap();
        let thing = object("example.com/v1", "Thing", "");
        let shared = SharedObjects::new([&thing, &crd], Mark::Module, &|_| None);
        let ids: Vec<String> = shared.objects.iter().map(|object| object.id.to_string()).collect();
        assert_eq!(
            ids,
            ["CustomResourceDefinition.apiextensions.k8s.io things.example.com", "Thing.example.com default/a"]
        );
    }

    #[test]
    fn an_owner_is_filled_into_shared_bytes() {
        let mut config = object("v1", "ConfigMap", "kyma-system");
        config.map_mut().insert("data".to_owned(), json!({"text": "((owner)) stays"}));
        let shared = SharedObjects::new([&config, &config], Mark::Module, &|_| None);
        assert_eq!(shared.objects.len(), 1, "a duplicate object is included once");
        let object = shared.objects[0].object(&Key::new("kcp-system", "one-cache-1"));
        assert_eq!(object.annotation(annotation::OWNED_BY), Some("kcp-system/one-cache-1"));
        assert_eq!(object.label(label::COMPONENT), Some("one-cache-1"));
        assert_eq!(object.label(label::PART_OF), Some("Kyma"));
        assert_eq!(object.label(label::MANAGED_BY), Some("kyma"));
        assert_eq!(object.annotation(annotation::DISCLAIMER), Some(annotation::DISCLAIMER_TEXT));
        assert_eq!(object.value()["data"]["text"], "((owner)) stays");
    }

    #[test]
    fn the_texts_of_a_secret_are_sent_as_data() {
        let mut secret = object("v1", "Secret", "kyma-system");
        secret.map_mut().insert("stringData".to_owned(), json!({"a": "1"}));
        let mut other = object("example.com/v1", "Secret", "kyma-system");
        other.map_mut().insert("stringData".to_owned(), json!({"a": "1"}));
        let shared = SharedObjects::new([&secret, &other], Mark::Module, &|_| None);
        let sent = |index: usize| shared.objects[index].object(&Key::new("kcp-system", "one")).into_value();
        assert_eq!((&sent(0)["data"], sent(0).get("stringData")), (&json!({"a": "MQ=="}), None));
        assert_eq!(sent(1)["stringData"], json!({"a": "1"}), "it is of another group");
    }

    #[test]
    fn the_namespace_of_every_runtime_is_left_out_of_a_module() {
        let text = "apiVersion: v1\nkind: Namespace\nmetadata: {name: kyma-system}\n---\napiVersion: v1\nkind: \
                    Namespace\nmetadata: {name: own}\n";
        let (tree, path) = ("0".repeat(40).parse().unwrap(), "objects.yaml".into());
        let files = [(&path, text.as_bytes())].into_iter();
        let module = crate::definition::module_objects(tree, files, &crate::yaml::Limits::default()).unwrap();
        let complete = CompleteModule::new(&module);
        let [only] = complete.objects().objects.as_slice() else { panic!("{:?}", complete.objects()) };
        assert_eq!((&*only.id.name, only.index), ("own", 1), "its place is still that in the module");
    }

    #[test]
    fn what_every_runtime_has_names_no_owner() {
        let shared = SharedObjects::new([&object("v1", "Namespace", "")], Mark::Runtime, &|_| None);
        let object = shared.objects[0].object(&Key::new("kcp-system", "one"));
        assert_eq!(object.label(label::MANAGED_BY), Some("kyma"));
        assert_eq!((object.annotation(annotation::OWNED_BY), object.label(label::COMPONENT)), (None, None));
    }
}
