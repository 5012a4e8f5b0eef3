// SPDX-License-Identifier: Apache-2.0

//! The schema information that managed fields and server-side apply need: which lists are sets or keyed, what is
//! atomic, and which fields exist.
//!
//! A schema comes from what the server publishes: the `openAPIV3Schema` of a CustomResourceDefinition's version, or a
//! component of `/openapi/v3`. Types are in one table and refer to each other by position, because some are recursive.
//! Equal tables of custom resources are shared in the process, because a fleet has the same CRDs a thousand times.

use std::{
    collections::{BTreeMap, HashMap},
    fmt,
    sync::{Arc, LazyLock, Mutex, PoisonError, Weak},
};

use serde_json::{Map, Value, json};

use super::set::Set;
use tidegate_core::object::{Digest, Gvk};

/// The schema of one kind at one version. Cheap to clone.
#[derive(Clone)]
pub struct Schema {
    types: Arc<Types>,
    root: TypeId,
    kind: Gvk,
    versions: Arc<[String]>,
    resets: Resets,
    /// The object that a new object is compared with.
    start: Arc<Value>,
    is_custom: bool,
}

/// Fields that a write to an endpoint never changes. The server restores the old value, so the writer does not own
/// them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resets {
    /// Nothing: the kind has no status subresource.
    Nothing,
    /// `status`; and `spec` by writes to `/status`.
    Status,
    /// `status`; and `spec` and `metadata.labels` by writes to `/status`.
    StatusAndLabels,
    /// `status`; and `spec`, `metadata.deletionTimestamp` and `metadata.ownerReferences` by writes to `/status`.
    StatusAndOwners,
    /// `status`; and `spec` and all of `metadata` by writes to `/status`.
    StatusAndMetadata,
}

/// Types that refer to each other.
#[derive(Debug, Default)]
pub struct Types(Vec<Atom>);

/// The position of a type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TypeId(u32);

/// The possible kinds of a value: any of those that are set.
#[derive(Clone, Debug, Default)]
pub(super) struct Atom {
    pub(super) scalar: Option<Scalar>,
    pub(super) list: Option<List>,
    pub(super) map: Option<Fields>,
}

/// A scalar value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scalar {
    Number,
    Text,
    Boolean,
    Any,
}

#[derive(Clone, Debug)]
pub(super) struct List {
    pub(super) items: TypeId,
    pub(super) relation: Relation,
}

/// How the items of a list are identified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Relation {
    /// Not at all: the list is one value.
    Atomic,
    /// By their value.
    Set,
    /// By these fields.
    Keyed(Vec<String>),
}

#[derive(Clone, Debug)]
pub(super) struct Fields {
    pub(super) named: Arc<BTreeMap<String, Property>>,
    /// The type of fields that the schema does not name; `None` if they are not allowed.
    pub(super) others: Option<TypeId>,
    pub(super) atomic: bool,
}

#[derive(Clone, Debug)]
pub(super) struct Property {
    pub(super) of: TypeId,
    pub(super) default: Option<Value>,
}

/// A type in its table.
#[derive(Clone, Copy)]
pub(super) struct Type<'a> {
    types: &'a Types,
    id: TypeId,
}

/// The kinds that a value can have: one if the value determines it, otherwise all.
#[derive(Clone, Copy)]
pub(super) struct Choice<'a> {
    pub(super) scalar: Option<Scalar>,
    pub(super) list: Option<&'a List>,
    pub(super) map: Option<&'a Fields>,
}

/// The kind of a type that applies.
#[derive(Clone, Copy)]
pub(super) enum Part<'a> {
    Map(&'a Fields),
    Scalar(Scalar),
    List(&'a List),
    Nothing,
}

/// Builds a table of types from components of OpenAPI documents.
pub struct TypesBuilder<'a> {
    components: &'a Map<String, Value>,
    types: Types,
    named: HashMap<&'a str, TypeId>,
    /// Types that copy another one but are atomic or granular; set at the end.
    overrides: Vec<(TypeId, TypeId, bool)>,
}

/// The type of values without a schema: lists and mappings are one value.
const UNTYPED: TypeId = TypeId(0);
/// As [`UNTYPED`], but the fields of mappings are separate.
const DEDUCED: TypeId = TypeId(1);
/// The prefix of references to components.
const REFERENCE: &str = "#/components/schemas/";
/// Values with the type string that may also be numbers or anything.
const QUANTITY: &str = "io.k8s.apimachinery.pkg.api.resource.Quantity";
const RAW_EXTENSION: &str = "io.k8s.apimachinery.pkg.runtime.RawExtension";
/// The name of the metadata type of custom resources.
const OBJECT_META: &str = "ObjectMeta";

/// The metadata type of custom resources.
static METADATA: LazyLock<Map<String, Value>> = LazyLock::new(object_meta);
/// Tables of custom resources in use, by the digest of their input.
static SHARED: LazyLock<Mutex<HashMap<Digest, Weak<Types>>>> = LazyLock::new(Mutex::default);

// === impl Schema ===

impl Schema {
    /// The schema of a custom resource, from the `openAPIV3Schema` of one version. `status` says whether that version
    /// has the status subresource. `versions` contains all served versions, as `group/version`.
    pub fn custom(kind: Gvk, props: &Value, status: bool, versions: &[String]) -> Schema {
        let digest = Digest::from_value(props);
        let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
        let types = shared.get(&digest).and_then(Weak::upgrade).unwrap_or_else(|| {
            shared.retain(|_, types| types.strong_count() != 0);
            let types = Arc::new(Types::custom(props));
            shared.insert(digest, Arc::downgrade(&types));
            types
        });
        let root = types.last();
        let resets = if status { Resets::StatusAndMetadata } else { Resets::Nothing };
        let start = Arc::new(start(&kind, json!({})));
        Schema { types, root, kind, versions: versions.into(), resets, start, is_custom: true }
    }

    /// The schema of a built-in kind, whose types are in a shared table. `empty` is an object of the kind without
    /// values: no manager owns what it contains.
    pub fn builtin(kind: Gvk, types: Arc<Types>, root: TypeId, resets: Resets, empty: Value) -> Schema {
        let versions = Arc::new([kind.api_version()]);
        Schema { types, root, versions, resets, start: Arc::new(start(&kind, empty)), is_custom: false, kind }
    }

    /// The kind and version of the schema.
    pub fn kind(&self) -> &Gvk {
        &self.kind
    }

    pub(super) fn start(&self) -> &Value {
        &self.start
    }

    pub(super) fn is_custom(&self) -> bool {
        self.is_custom
    }

    pub(super) fn root(&self) -> Type<'_> {
        Type { types: &self.types, id: self.root }
    }

    /// Whether the server serves the kind in this version.
    pub(super) fn is_served(&self, api_version: &str) -> bool {
        self.versions.is_empty() || self.versions.iter().any(|version| version == api_version)
    }

    /// The fields that a write to the endpoint never changes.
    pub(super) fn resets(&self, subresource: Option<&str>) -> Set {
        let of_status = subresource == Some("status");
        match (self.resets, of_status) {
            (Resets::Nothing, _) => Set::default(),
            (_, false) => Set::from_paths([&["status"]]),
            (Resets::Status, true) => Set::from_paths([&["spec"]]),
            (Resets::StatusAndLabels, true) => Set::from_paths([&["spec"], &["metadata", "labels"]]),
            (Resets::StatusAndOwners, true) => {
                Set::from_paths([&["spec"], &["metadata", "deletionTimestamp"], &["metadata", "ownerReferences"]])
            }
            (Resets::StatusAndMetadata, true) => Set::from_paths([&["spec"], &["metadata"]]),
        }
    }
}

fn start(kind: &Gvk, mut empty: Value) -> Value {
    empty["apiVersion"] = json!(kind.api_version());
    empty["kind"] = json!(&*kind.kind);
    empty
}

impl fmt::Debug for Schema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Schema({}, {} types)", self.kind, self.types.0.len())
    }
}

// === impl Types ===

impl Types {
    /// The types of a custom resource; its own is the last one.
    fn custom(props: &Value) -> Types {
        let mut props = props.clone();
        embed(&mut props);
        if let Some(properties) = object(&mut props, "properties") {
            add_type_meta(properties);
        }
        let mut builder = TypesBuilder::new(&METADATA);
        let atom = builder.atom(&props, false);
        builder.push(atom);
        builder.finish()
    }

    fn last(&self) -> TypeId {
        TypeId::at(self.0.len() - 1)
    }

    fn atom(&self, id: TypeId) -> &Atom {
        &self.0[id.0 as usize]
    }
}

/// The fields of a part of the schema, which is created if it is absent.
fn object<'a>(schema: &'a mut Value, name: &str) -> Option<&'a mut Map<String, Value>> {
    schema.as_object_mut()?.entry(name).or_insert_with(|| json!({})).as_object_mut()
}

fn add_type_meta(properties: &mut Map<String, Value>) {
    properties.insert("apiVersion".to_owned(), json!({"type": "string"}));
    properties.insert("kind".to_owned(), json!({"type": "string"}));
    properties.insert("metadata".to_owned(), json!({"$ref": format!("{REFERENCE}{OBJECT_META}")}));
}

/// Adds the common fields to embedded objects.
fn embed(schema: &mut Value) {
    if let Some(properties) = schema.get_mut("properties").and_then(Value::as_object_mut) {
        properties.values_mut().for_each(embed);
    }
    for inner in ["items", "additionalProperties"] {
        if let Some(inner) = schema.get_mut(inner).filter(|inner| inner.is_object()) {
            embed(inner);
        }
    }
    if schema.get("x-kubernetes-embedded-resource") == Some(&Value::Bool(true))
        && let Some(properties) = object(schema, "properties")
    {
        add_type_meta(properties);
    }
}

/// The metadata of every object, as the server publishes it, without descriptions.
fn object_meta() -> Map<String, Value> {
    let time = json!({"type": "string", "format": "date-time"});
    let texts = json!({"type": "object", "additionalProperties": {"type": "string"}});
    let meta = json!({"type": "object", "properties": {
        "annotations": texts,
        "creationTimestamp": time,
        "deletionGracePeriodSeconds": {"type": "integer", "format": "int64"},
        "deletionTimestamp": time,
        "finalizers": {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"},
        "generateName": {"type": "string"},
        "generation": {"type": "integer", "format": "int64"},
        "labels": texts,
        "managedFields": {"type": "array", "x-kubernetes-list-type": "atomic", "items": {
            "type": "object", "properties": {
                "apiVersion": {"type": "string"},
                "fieldsType": {"type": "string"},
                "fieldsV1": {"type": "object"},
                "manager": {"type": "string"},
                "operation": {"type": "string"},
                "subresource": {"type": "string"},
                "time": time,
            },
        }},
        "name": {"type": "string"},
        "namespace": {"type": "string"},
        "ownerReferences": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["uid"],
            "items": {"type": "object", "x-kubernetes-map-type": "atomic", "properties": {
                "apiVersion": {"type": "string"},
                "blockOwnerDeletion": {"type": "boolean"},
                "controller": {"type": "boolean"},
                "kind": {"type": "string"},
                "name": {"type": "string"},
                // The value of a reference without a UID; later validation refuses it.
                "uid": {"type": "string", "default": ""},
            }},
        },
        "resourceVersion": {"type": "string"},
        "selfLink": {"type": "string"},
        "uid": {"type": "string"},
    }});
    Map::from_iter([(OBJECT_META.to_owned(), meta)])
}

/// Whether the metadata of objects has a field of this name.
pub(super) fn is_metadata(name: &str) -> bool {
    METADATA[OBJECT_META]["properties"].get(name).is_some()
}

// === impl TypeId ===

impl TypeId {
    fn at(index: usize) -> TypeId {
        TypeId(u32::try_from(index).expect("a schema has fewer types than 2^32"))
    }
}

// === impl TypesBuilder ===

impl<'a> TypesBuilder<'a> {
    /// Creates a builder with the types that every table has.
    pub fn new(components: &'a Map<String, Value>) -> TypesBuilder<'a> {
        let anything = |of: TypeId, atomic: bool| Atom {
            scalar: Some(Scalar::Any),
            list: Some(List { items: UNTYPED, relation: Relation::Atomic }),
            map: Some(Fields { named: Arc::default(), others: Some(of), atomic }),
        };
        let types = Types(vec![anything(UNTYPED, true), anything(DEDUCED, false)]);
        TypesBuilder { components, types, named: HashMap::new(), overrides: Vec::new() }
    }

    /// The type of a component, which is created at its first use.
    pub fn component(&mut self, name: &str) -> TypeId {
        if let Some(&id) = self.named.get(name) {
            return id;
        }
        let Some((name, schema)) = self.components.get_key_value(name) else { return DEDUCED };
        // Reserve the position first, because the type may refer to itself.
        let id = self.push(Atom::default());
        self.named.insert(name, id);
        let atom = match name.as_str() {
            QUANTITY => Atom { scalar: Some(Scalar::Any), ..Atom::default() },
            RAW_EXTENSION => self.types.atom(UNTYPED).clone(),
            _ => self.atom(schema, false),
        };
        self.types.0[id.0 as usize] = atom;
        id
    }

    /// The table.
    pub fn finish(mut self) -> Types {
        for (id, of, atomic) in self.overrides {
            let mut atom = self.types.atom(of).clone();
            if let Some(fields) = &mut atom.map {
                fields.atomic = atomic;
            } else if let Some(list) = &mut atom.list
                && atomic
            {
                list.relation = Relation::Atomic;
            }
            self.types.0[id.0 as usize] = atom;
        }
        self.types
    }

    fn push(&mut self, atom: Atom) -> TypeId {
        self.types.0.push(atom);
        self.types.last()
    }

    fn atom(&mut self, schema: &Value, keeps_unknown: bool) -> Atom {
        let keeps_unknown = keeps_unknown || schema["x-kubernetes-preserve-unknown-fields"] == Value::Bool(true);
        let format = schema["format"].as_str().unwrap_or_default();
        match schema["type"].as_str().unwrap_or_default() {
            "object" => Atom { map: Some(self.fields(schema, keeps_unknown)), ..Atom::default() },
            "array" => Atom { list: Some(self.list(schema, keeps_unknown)), ..Atom::default() },
            "integer" | "number" => Atom { scalar: Some(Scalar::Number), ..Atom::default() },
            "boolean" => Atom { scalar: Some(Scalar::Boolean), ..Atom::default() },
            // A string with another format may be something else, such as `int-or-string`.
            "string" if matches!(format, "" | "byte") => Atom { scalar: Some(Scalar::Text), ..Atom::default() },
            "string" => Atom { scalar: Some(Scalar::Any), ..Atom::default() },
            _ => Atom {
                scalar: Some(Scalar::Any),
                list: Some(self.list(schema, keeps_unknown)),
                map: Some(self.fields(schema, keeps_unknown)),
            },
        }
    }

    fn reference(&mut self, schema: &Value, keeps_unknown: bool) -> TypeId {
        let target = schema["$ref"].as_str().or_else(|| match schema["allOf"].as_array()?.as_slice() {
            [only] => only["$ref"].as_str(),
            _ => None,
        });
        let Some(target) = target else {
            let atom = self.atom(schema, keeps_unknown);
            return self.push(atom);
        };
        let id = self.component(target.strip_prefix(REFERENCE).unwrap_or(target));
        match relationship(schema) {
            Some(atomic) => {
                let place = self.push(Atom::default());
                self.overrides.push((place, id, atomic));
                place
            }
            None => id,
        }
    }

    fn fields(&mut self, schema: &Value, keeps_unknown: bool) -> Fields {
        let mut named = BTreeMap::new();
        for (name, property) in schema["properties"].as_object().into_iter().flatten() {
            let of = self.reference(property, keeps_unknown);
            named.insert(name.clone(), Property { of, default: property.get("default").cloned() });
        }
        let others = match schema.get("additionalProperties") {
            None | Some(Value::Null) => (keeps_unknown || named.is_empty()).then_some(DEDUCED),
            Some(Value::Bool(allowed)) => allowed.then_some(DEDUCED),
            Some(others) => Some(self.reference(others, keeps_unknown)),
        };
        Fields { named: Arc::new(named), others, atomic: relationship(schema).unwrap_or_default() }
    }

    fn list(&mut self, schema: &Value, keeps_unknown: bool) -> List {
        let items = match schema.get("items") {
            Some(items) if items.is_object() => self.reference(items, keeps_unknown),
            _ => UNTYPED,
        };
        List { items, relation: Relation::from_schema(schema) }
    }
}

/// Whether the schema declares a mapping as atomic or granular.
fn relationship(schema: &Value) -> Option<bool> {
    match schema["x-kubernetes-map-type"].as_str()? {
        "atomic" => Some(true),
        "granular" => Some(false),
        _ => None,
    }
}

// === impl Relation ===

impl Relation {
    fn from_schema(schema: &Value) -> Relation {
        if let Some(kind) = schema["x-kubernetes-list-type"].as_str() {
            let keys = schema["x-kubernetes-list-map-keys"].as_array().into_iter().flatten();
            return match kind {
                "set" => Relation::Set,
                "map" => Relation::Keyed(keys.filter_map(Value::as_str).map(str::to_owned).collect()),
                _ => Relation::Atomic,
            };
        }
        match schema["x-kubernetes-patch-strategy"].as_str() {
            Some("merge" | "merge,retainKeys") => match schema["x-kubernetes-patch-merge-key"].as_str() {
                Some(key) => Relation::Keyed(vec![key.to_owned()]),
                None => Relation::Set,
            },
            _ => Relation::Atomic,
        }
    }
}

// === impl Type ===

impl<'a> Type<'a> {
    pub(super) fn at(self, id: TypeId) -> Type<'a> {
        Type { types: self.types, id }
    }

    pub(super) fn atom(self) -> &'a Atom {
        self.types.atom(self.id)
    }

    /// Whether the type of a mapping's fields depends only on their values.
    pub(super) fn is_untyped_map(self, fields: &Fields) -> bool {
        fields.others == Some(DEDUCED)
    }

    /// The type of a field of a mapping, and whether the schema names it.
    pub(super) fn field(self, fields: &'a Fields, name: &str) -> Option<(Type<'a>, bool)> {
        match fields.named.get(name) {
            Some(property) => Some((self.at(property.of), true)),
            None => fields.others.map(|others| (self.at(others), false)),
        }
    }

    /// The kinds that a value can have. A value that matches none leaves all.
    pub(super) fn choice(self, value: Option<&Value>) -> Choice<'a> {
        let atom = self.atom();
        let all = Choice { scalar: atom.scalar, list: atom.list.as_ref(), map: atom.map.as_ref() };
        let none = Choice { scalar: None, list: None, map: None };
        match value {
            Some(Value::Object(_)) if all.map.is_some() => Choice { map: all.map, ..none },
            Some(Value::Array(_)) if all.list.is_some() => Choice { list: all.list, ..none },
            Some(Value::Bool(_) | Value::Number(_) | Value::String(_)) if all.scalar.is_some() => {
                Choice { scalar: all.scalar, ..none }
            }
            _ => all,
        }
    }

    pub(super) fn part(self, value: Option<&Value>) -> Part<'a> {
        self.choice(value).part()
    }
}

// === impl Choice ===

impl<'a> Choice<'a> {
    pub(super) fn part(self) -> Part<'a> {
        match self {
            Choice { map: Some(fields), .. } => Part::Map(fields),
            Choice { scalar: Some(scalar), .. } => Part::Scalar(scalar),
            Choice { list: Some(list), .. } => Part::List(list),
            Choice { map: None, scalar: None, list: None } => Part::Nothing,
        }
    }

    /// Whether both have the same kinds.
    pub(super) fn is_same(self, other: Choice<'_>) -> bool {
        self.scalar.is_some() == other.scalar.is_some()
            && self.list.is_some() == other.list.is_some()
            && self.map.is_some() == other.map.is_some()
    }
}
