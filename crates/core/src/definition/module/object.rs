//! Checks what an API server would reject in a module's objects, as far as the module itself
//! defines it: metadata, CustomResourceDefinitions, custom resources, and fields and encoding of
//! Secrets. A custom resource is checked against the CRD of its own module or of another module.
//!
//! Objects of Kubernetes' own kinds are checked for one version of Kubernetes, if the caller names one. The daemon
//! names none: an API server of another version may accept what this one rejects, so it asks the API server of each
//! runtime. No message quotes a value of a Secret.

use std::{
    cell::OnceCell,
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::JSONSchemaProps;
use serde_json::{Value, json};

use crate::{
    budget::Budget,
    content::ContentId,
    definition::{ModuleObjects, SourceObject, code},
    diagnostic::{Diagnostic, Diagnostics, FilePosition, LISTED_IN_FILE_MAX, Severity},
    kubernetes::{Api, Version},
    name::Key,
    object::{DisplayPath, ObjectId, PathPart},
    schema::{Schema, Violation, ViolationKind},
    yaml::{self, Node, NodeValue},
};

/// Group, version and kind.
type Gvk = (String, String, String);
/// The custom resources that a module defines.
type Schemas = BTreeMap<Gvk, Schema>;

const CRD_GROUP: &str = "apiextensions.k8s.io";
const CRD_KIND: &str = "CustomResourceDefinition";
const RBAC_GROUP: &str = "rbac.authorization.k8s.io";
/// Namespaced Kubernetes kinds that modules commonly contain.
const NAMESPACED: [&str; 19] = [
    "ConfigMap",
    "CronJob",
    "DaemonSet",
    "Deployment",
    "HorizontalPodAutoscaler",
    "Ingress",
    "Job",
    "Lease",
    "NetworkPolicy",
    "PersistentVolumeClaim",
    "Pod",
    "PodDisruptionBudget",
    "ReplicaSet",
    "Role",
    "RoleBinding",
    "Secret",
    "Service",
    "ServiceAccount",
    "StatefulSet",
];
/// The fields of a Secret.
const SECRET_FIELDS: [&str; 7] = ["apiVersion", "kind", "metadata", "type", "immutable", "data", "stringData"];
/// The fields of a version of a CustomResourceDefinition.
const VERSION_FIELDS: [&str; 9] = [
    "name",
    "served",
    "storage",
    "schema",
    "subresources",
    "additionalPrinterColumns",
    "deprecated",
    "deprecationWarning",
    "selectableFields",
];
/// The keywords of a schema.
const KEYWORDS: [&str; 43] = [
    "$ref",
    "$schema",
    "additionalItems",
    "additionalProperties",
    "allOf",
    "anyOf",
    "default",
    "definitions",
    "dependencies",
    "description",
    "enum",
    "example",
    "exclusiveMaximum",
    "exclusiveMinimum",
    "externalDocs",
    "format",
    "id",
    "items",
    "maxItems",
    "maxLength",
    "maxProperties",
    "maximum",
    "minItems",
    "minLength",
    "minProperties",
    "minimum",
    "multipleOf",
    "not",
    "nullable",
    "oneOf",
    "pattern",
    "patternProperties",
    "properties",
    "required",
    "title",
    "type",
    "uniqueItems",
    "x-kubernetes-embedded-resource",
    "x-kubernetes-int-or-string",
    "x-kubernetes-list-map-keys",
    "x-kubernetes-list-type",
    "x-kubernetes-map-type",
    "x-kubernetes-preserve-unknown-fields",
];
const RULES: &str = "x-kubernetes-validations";

/// One document of a module, and the sink for its problems.
struct Check<'a> {
    path: &'a Arc<str>,
    node: &'a Node,
    places: yaml::Indexed<'a>,
    budget: &'a Budget,
    out: &'a mut Diagnostics,
}

/// Whether a document is a CustomResourceDefinition. These must be checked before the other documents.
pub(super) fn is_definition(node: &Node) -> bool {
    let (group, _, kind) = gvk(node);
    group == CRD_GROUP && kind == CRD_KIND
}

/// What the CustomResourceDefinitions of a module say about its other objects.
pub(super) struct ModuleCheck {
    kubernetes: Option<Version>,
    kinds: Kinds,
    /// What an API server of that version would reject. The daemon applies such objects, because the version of the
    /// runtimes may be another one, so they do not make a module incomplete.
    rejected: Diagnostics,
    schemas: Schemas,
    /// By group and kind.
    scopes: BTreeMap<(String, String), String>,
    any: Schema,
}

/// What a module defines and uses of kinds that Kubernetes does not serve.
#[derive(Debug, Default)]
pub(in crate::definition) struct Kinds {
    /// The group and kind of each CustomResourceDefinition, valid or not.
    pub(in crate::definition) defined: BTreeSet<(String, String)>,
    /// By group, version and kind: what must be defined elsewhere.
    pub(in crate::definition) used: BTreeMap<Gvk, Use>,
}

/// A kind that a module uses and does not define.
#[derive(Debug)]
pub(in crate::definition) struct Use {
    /// The `apiVersion` of the first object.
    pub(in crate::definition) place: FilePosition,
    /// How many objects of the module have this kind.
    pub(in crate::definition) objects: usize,
    pub(in crate::definition) did_you_mean: Option<&'static str>,
}

impl ModuleCheck {
    /// A check of objects for a version of Kubernetes, if there is one.
    pub(super) fn new(kubernetes: Option<Version>) -> ModuleCheck {
        let (kinds, rejected) = (Kinds::default(), Diagnostics::default());
        ModuleCheck { kubernetes, kinds, rejected, schemas: Schemas::new(), scopes: BTreeMap::new(), any: any() }
    }

    /// What the module defines and uses of kinds that Kubernetes does not serve, and what an API server would reject.
    pub(super) fn into_kinds(mut self) -> (Kinds, Diagnostics) {
        if self.kubernetes.is_some() {
            self.kinds.defined.extend(self.scopes.into_keys());
        }
        (self.kinds, self.rejected)
    }

    /// Checks a CustomResourceDefinition. Incomplete if the budget ends before.
    pub(super) fn definition(&mut self, out: &mut Diagnostics, path: &Arc<str>, node: &Node, budget: &Budget) {
        let mut check = Check { path, node, places: yaml::Indexed::new(node), budget, out };
        check.metadata(&self.any, "");
        check.crd(&mut self.schemas);
        check.kubernetes(self.kubernetes, &mut self.kinds, &mut self.rejected);
        let text = |pointer: &[&str]| text(node, pointer).to_owned();
        self.scopes.insert((text(&["spec", "group"]), text(&["spec", "names", "kind"])), text(&["spec", "scope"]));
    }

    /// Checks another object, once all definitions were. Incomplete if the budget ends before.
    pub(super) fn object(&mut self, out: &mut Diagnostics, path: &Arc<str>, node: &Node, budget: &Budget) {
        let (group, version, kind) = gvk(node);
        let scope = self.scopes.get(&(group.clone(), kind.clone())).map(String::as_str);
        let mut check = Check { path, node, places: yaml::Indexed::new(node), budget, out };
        check.namespace(&kind, scope.map_or_else(|| NAMESPACED.contains(&&*kind), |scope| scope == "Namespaced"));
        let schema = self.schemas.get(&(group.clone(), version, kind.clone())).unwrap_or(&self.any);
        check.metadata(schema, &group);
        if scope.is_none() {
            check.kubernetes(self.kubernetes, &mut self.kinds, &mut self.rejected);
        }
        match (group.as_str(), kind.as_str()) {
            ("", "Secret") => {
                check.fields(node, "Secret", &SECRET_FIELDS, &[]);
                check.texts("stringData", false);
                check.texts("data", true);
            }
            ("", kind) if kind.eq_ignore_ascii_case("Secret") => {
                let message = "this kind does not exist; the kind of a Secret is case-sensitive";
                check.error(&["kind".into()], message, "write `kind: Secret`");
            }
            ("", "ConfigMap") => {
                check.texts("data", false);
                check.texts("binaryData", true);
            }
            _ => {}
        }
    }
}

/// The schemas that a module defines, provided that [`ModuleCheck`] found no error in them.
fn schemas(objects: &ModuleObjects, budget: &Budget) -> Schemas {
    let mut schemas = Schemas::new();
    for object in objects.objects().iter().filter(|source| is_crd(source.id())).map(SourceObject::object) {
        let text = |pointer| object.value().pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
        let versions = object.value().pointer("/spec/versions").and_then(Value::as_array);
        for version in versions.into_iter().flatten() {
            let schema = version.pointer("/schema/openAPIV3Schema").cloned().unwrap_or_default();
            let props = serde_json::from_value::<JSONSchemaProps>(schema).ok();
            let name = version.get("name").and_then(Value::as_str).unwrap_or_default().to_owned();
            if let Some(schema) = props.and_then(|props| Schema::compile_within(&props, budget).ok()) {
                schemas.insert((text("/spec/group"), name, text("/spec/names/kind")), schema);
            }
        }
    }
    schemas
}

/// Problems of a Secret that is a module's default resource: the path, and the problem.
pub(in crate::definition) fn unknown_fields(data: &Value) -> Vec<(Vec<PathPart>, String)> {
    let text = |name: &str| data.get(name).and_then(Value::as_str).unwrap_or_default();
    if (text("apiVersion"), text("kind")) != ("v1", "Secret") {
        return Vec::new();
    }
    let fields = data.as_object().into_iter().flatten().map(|(field, _)| field.as_str());
    let unknown = fields.filter(|field| !SECRET_FIELDS.contains(field));
    unknown.map(|field| (vec![field.into()], format!("a Secret has no field `{}`", yaml::short(field)))).collect()
}

/// The kinds that all modules define.
#[derive(Default)]
pub(in crate::definition) struct Defined<'a>(BTreeMap<(String, String), Vec<Definer<'a>>>);

/// A module that defines a kind.
struct Definer<'a> {
    /// The module's key, from its ModuleTemplate. Two versions of one module are never in the same
    /// runtime.
    module: &'a str,
    template: &'a Key,
    content: ContentId,
    served: BTreeSet<String>,
    objects: &'a ModuleObjects,
    /// Compiled when the first resource of one of its kinds is checked.
    schemas: OnceCell<Schemas>,
}

/// A path, and what is wrong there.
pub(in crate::definition) type Wrong = (Vec<PathPart>, String);

/// The verdict of the modules' CRDs on a custom resource.
pub(in crate::definition) enum Opinion<'a> {
    /// Problems according to every CRD of the kind: the one of the same module or, without it,
    /// those of all versions of all other modules. Empty if some CRD accepts the resource.
    All(Vec<Wrong>),
    /// Versions of other modules that reject it, if other versions accept it.
    Some(Vec<Refusing<'a>>),
}

/// A version of a module that rejects a custom resource.
pub(in crate::definition) struct Refusing<'a> {
    pub(in crate::definition) module: &'a str,
    /// Its ModuleTemplate.
    pub(in crate::definition) template: &'a Key,
    pub(in crate::definition) content: ContentId,
    /// The first reason.
    pub(in crate::definition) message: String,
}

impl<'a> Defined<'a> {
    /// Adds the kinds that a module defines.
    pub(in crate::definition) fn add(&mut self, module: &'a str, template: &'a Key, objects: &'a ModuleObjects) {
        for crd in objects.objects().iter().filter(|source| is_crd(source.id())).map(SourceObject::object) {
            let text = |pointer| crd.value().pointer(pointer).and_then(Value::as_str).unwrap_or_default();
            let versions = crd.value().pointer("/spec/versions").and_then(Value::as_array).into_iter().flatten();
            let served = versions.filter(|version| version.get("served") == Some(&Value::Bool(true)));
            let served = served.filter_map(|version| version.get("name")?.as_str().map(str::to_owned)).collect();
            let kind = (text("/spec/group").to_owned(), text("/spec/names/kind").to_owned());
            let (content, schemas) = (objects.content(), OnceCell::new());
            self.0.entry(kind).or_default().push(Definer { module, template, content, served, objects, schemas });
        }
    }

    /// Whether a module defines the kind of an object.
    pub(in crate::definition) fn defines(&self, id: &ObjectId) -> bool {
        self.0.contains_key(&(id.group.to_string(), id.kind.to_string()))
    }

    /// Checks a custom resource of the module with this name and these objects.
    pub(in crate::definition) fn opinion(
        &self,
        (module, own): (&str, ContentId),
        resource: &Value,
        budget: &Budget,
    ) -> Opinion<'a> {
        let field = |name: &str| resource.get(name).and_then(Value::as_str).unwrap_or_default();
        let ((group, version), kind) = (field("apiVersion").split_once('/').unwrap_or_default(), field("kind"));
        let all = self.0.get(&(group.to_owned(), kind.to_owned())).map_or(&[][..], Vec::as_slice);
        let by = |definer: &Definer<'_>| -> Vec<Wrong> {
            if !definer.served.contains(version) {
                let message =
                    format!("the CustomResourceDefinition of {} does not serve this version", yaml::short(kind));
                return vec![(vec!["apiVersion".into()], message)];
            }
            let schemas = definer.schemas.get_or_init(|| schemas(definer.objects, budget));
            let schema = schemas.get(&(group.to_owned(), version.to_owned(), kind.to_owned()));
            let found =
                schema.map(|schema| schema.check_some(resource, LISTED_IN_FILE_MAX, budget)).unwrap_or_default();
            found.0.iter().map(|violation| (violation.path.clone(), sentence(violation))).collect()
        };
        let is_own = |definer: &&Definer<'_>| definer.content == own;
        if let Some(own) = all.iter().find(is_own) {
            return Opinion::All(by(own));
        }
        let others = all.iter().filter(|definer| definer.module != module);
        let opinions: Vec<(&Definer<'a>, Vec<Wrong>)> = others.map(|definer| (definer, by(definer))).collect();
        if opinions.iter().all(|(_, wrong)| !wrong.is_empty()) {
            return Opinion::All(opinions.into_iter().next().map(|(_, wrong)| wrong).unwrap_or_default());
        }
        let refusing = opinions.into_iter().filter_map(|(definer, wrong)| {
            let Definer { module, template, content, .. } = *definer;
            let (_, message) = wrong.into_iter().next()?;
            Some(Refusing { module, template, content, message })
        });
        Opinion::Some(refusing.collect())
    }
}

fn is_crd(id: &ObjectId) -> bool {
    (&*id.group, &*id.kind) == (CRD_GROUP, CRD_KIND)
}

/// The message of a violation, with the field that it is about.
pub(in crate::definition) fn sentence(violation: &Violation) -> String {
    let shown: &[PathPart] = match violation.kind {
        ViolationKind::UnknownField { .. } | ViolationKind::Required => {
            violation.path.split_last().map_or(&[], |(_, parent)| parent)
        }
        _ => &violation.path,
    };
    let message = yaml::printable(&violation.message);
    if shown.is_empty() { message } else { format!("`{}`: {message}", DisplayPath(shown)) }
}

/// The schema of an object of which only the metadata is known.
fn any() -> Schema {
    let props = serde_json::from_value(json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true}));
    Schema::compile(&props.expect("this is a schema")).expect("this schema has nothing to compile")
}

fn gvk(node: &Node) -> Gvk {
    let api_version = text(node, &["apiVersion"]);
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    (group.to_owned(), version.to_owned(), text(node, &["kind"]).to_owned())
}

fn text<'a>(node: &'a Node, path: &[&str]) -> &'a str {
    let found = path.iter().try_fold(node, |node, field| node.get(field));
    found.and_then(Node::as_str).unwrap_or_default()
}

fn is_true(node: Option<&Node>) -> bool {
    node.is_some_and(|node| node.value == NodeValue::Bool(true))
}

/// Whether a text is base64 as Go decodes it: with padding, ignoring line breaks.
fn is_base64(text: &str) -> bool {
    let bytes: Vec<u8> = text.bytes().filter(|byte| !matches!(byte, b'\r' | b'\n')).collect();
    let padding = bytes.iter().rev().take_while(|byte| **byte == b'=').count();
    let is_digit = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/');
    bytes.len().is_multiple_of(4) && padding <= 2 && bytes[..bytes.len() - padding].iter().all(is_digit)
}

impl Check<'_> {
    fn error(&mut self, path: &[PathPart], message: impl Into<String>, hint: &str) {
        let (line, column) = self.places.position(path);
        let place = FilePosition::at(self.path, line, column);
        self.out.push(Diagnostic::error(code::MODULE_OBJECT, message).hint(hint).at(place));
    }

    /// Checks the kind and the fields of an object that no CustomResourceDefinition of the module defines.
    fn kubernetes(&mut self, version: Option<Version>, kinds: &mut Kinds, rejected: &mut Diagnostics) {
        let Some(version) = version else { return };
        let (api_version, kind) = (text(self.node, &["apiVersion"]), text(self.node, &["kind"]));
        let served = match version.api(api_version, kind) {
            // Secrets are checked without quoting a value.
            Api::Served(_) if (api_version, kind) == ("v1", "Secret") => return,
            Api::Served(served) => served,
            // A Secret in another case is reported as such.
            Api::Absent { .. } if api_version == "v1" && kind.eq_ignore_ascii_case("Secret") => return,
            Api::Absent { message, hint, field } => {
                let (line, column) = self.places.position(&[field.into()]);
                let place = FilePosition::at(self.path, line, column);
                let message = yaml::printable(&message);
                rejected.push(Diagnostic::error(code::KUBERNETES_KIND, message).hint(hint).at(place));
                return;
            }
            Api::Foreign { did_you_mean } => {
                let (line, column) = self.places.position(&["apiVersion".into()]);
                let place = FilePosition::at(self.path, line, column);
                let first = || Use { place, objects: 0, did_you_mean };
                kinds.used.entry(gvk(self.node)).or_insert_with(first).objects += 1;
                return;
            }
        };
        let (violations, more) = served.check(&self.node.to_json(), LISTED_IN_FILE_MAX, self.budget);
        rejected.count_more(self.path, Severity::Error, more);
        for violation in violations {
            let is_below = |path: &[&str]| {
                path.len() <= violation.path.len()
                    && path.iter().zip(&violation.path).all(|(field, part)| *part == PathPart::from(*field))
            };
            // What `ModuleCheck` reports in its own words.
            let is_known = match kind {
                "ConfigMap" => is_below(&["data"]) || is_below(&["binaryData"]),
                CRD_KIND => is_below(&["spec", "versions"]),
                _ => false,
            };
            if is_known {
                continue;
            }
            let (line, column) = match violation.kind {
                ViolationKind::UnknownField { .. } => self.places.key_position(&violation.path),
                _ => self.places.position(&violation.path),
            };
            let hint = violation.hint.as_deref().unwrap_or("check the indentation and the quotes");
            let place = FilePosition::at(self.path, line, column);
            let error = Diagnostic::error(code::KUBERNETES_FIELD, sentence(&violation)).hint(yaml::printable(hint));
            rejected.push(error.at(place));
        }
    }

    /// Checks metadata and everything else that the schema covers.
    fn metadata(&mut self, schema: &Schema, group: &str) {
        let name: [PathPart; 2] = ["metadata".into(), "name".into()];
        let (violations, more) = schema.check_some(&self.node.to_json(), LISTED_IN_FILE_MAX, self.budget);
        self.out.count_more(self.path, Severity::Error, more);
        for violation in violations {
            // Names of roles and bindings may contain nearly any character.
            if group == RBAC_GROUP && violation.path == name {
                continue;
            }
            let hint = violation.hint.as_deref().unwrap_or("the API server would reject it");
            let (line, column) = match violation.kind {
                ViolationKind::UnknownField { .. } => self.places.key_position(&violation.path),
                _ => self.places.position(&violation.path),
            };
            let place = FilePosition::at(self.path, line, column);
            self.out.push(Diagnostic::error(code::MODULE_OBJECT, sentence(&violation)).hint(hint).at(place));
        }
    }

    fn namespace(&mut self, kind: &str, namespaced: bool) {
        if !namespaced || !text(self.node, &["metadata", "namespace"]).is_empty() {
            return;
        }
        let message = format!(
            "this {} has no namespace, so it is created in the namespace `default` of each runtime",
            yaml::short(kind)
        );
        let (line, column) = self.node.position(&["metadata".into()]);
        let place = FilePosition::at(self.path, line, column);
        self.out.push(Diagnostic::warning(code::NAMESPACE_MISSING, message).hint("write `namespace`").at(place));
    }

    /// Checks that values are strings or base64. No message quotes a value.
    fn texts(&mut self, field: &str, encoded: bool) {
        let Some(node) = self.node.get(field) else { return };
        let entries = match &node.value {
            NodeValue::Map(entries) => entries,
            NodeValue::Null => return,
            _ => {
                return self.error(
                    &[field.into()],
                    format!("`{field}` must be a mapping"),
                    "write `name: value` below it",
                );
            }
        };
        for entry in entries {
            let path = [field.into(), entry.key.as_str().into()];
            match &entry.value.value {
                NodeValue::Null => {}
                NodeValue::Str(text) if encoded && !is_base64(text) => {
                    let hint = if field == "data" { "encode it, or move it to `stringData`" } else { "encode it" };
                    self.error(&path, format!("a value of `{field}` is not base64"), hint);
                }
                NodeValue::Str(_) => {}
                _ => self.error(&path, format!("a value of `{field}` must be a string"), "write it in quotes"),
            }
        }
    }

    fn crd(&mut self, schemas: &mut Schemas) {
        let node = self.node;
        let (group, plural) = (text(node, &["spec", "group"]), text(node, &["spec", "names", "plural"]));
        let kind = text(node, &["spec", "names", "kind"]);
        for (field, value) in [("group", group), ("names.plural", plural), ("names.kind", kind)] {
            if value.is_empty() {
                let path: Vec<PathPart> = ["spec"].into_iter().chain(field.split('.')).map(PathPart::from).collect();
                self.error(&path, format!("`spec.{field}` is missing"), "add it");
            }
        }
        let expected = format!("{plural}.{group}");
        if !group.is_empty() && !plural.is_empty() && text(node, &["metadata", "name"]) != expected {
            let message = "the name of a CustomResourceDefinition must be `<plural>.<group>`";
            self.error(
                &["metadata".into(), "name".into()],
                message,
                &format!("write `name: {}`", yaml::short(&expected)),
            );
        }
        if !matches!(text(node, &["spec", "scope"]), "Namespaced" | "Cluster") {
            let hint = "write `Namespaced` or `Cluster`";
            self.error(&["spec".into(), "scope".into()], "`spec.scope` is not a scope", hint);
        }
        let versions: &[Node] = node.get("spec").and_then(|spec| spec.get("versions")).map_or(&[], Node::items);
        let stored = versions.iter().filter(|version| is_true(version.get("storage"))).count();
        if stored != 1 {
            let message = format!("exactly one version must have `storage: true`, not {stored}");
            self.error(&["spec".into(), "versions".into()], message, "set it where objects are stored");
        }
        for (index, version) in versions.iter().enumerate() {
            let at = |rest: &[&str]| -> Vec<PathPart> {
                let begin = ["spec".into(), "versions".into(), index.into()];
                begin.into_iter().chain(rest.iter().map(|part| PathPart::from(*part))).collect()
            };
            self.fields(version, CRD_KIND, &VERSION_FIELDS, &at(&[]));
            if let Some(schema) = version.get("schema") {
                self.fields(schema, CRD_KIND, &["openAPIV3Schema"], &at(&["schema"]));
            }
            let Some(schema) = version.get("schema").and_then(|schema| schema.get("openAPIV3Schema")) else {
                self.error(&at(&["schema"]), "this version has no `schema.openAPIV3Schema`", "add it");
                continue;
            };
            let path = at(&["schema", "openAPIV3Schema"]);
            if self.keywords(schema, &path)
                && let Some(schema) = self.compile(schema, &path)
            {
                let version = text(version, &["name"]).to_owned();
                schemas.insert((group.to_owned(), version, kind.to_owned()), schema);
            }
        }
    }

    fn compile(&mut self, schema: &Node, path: &[PathPart]) -> Option<Schema> {
        let Ok(props) = serde_json::from_value::<JSONSchemaProps>(schema.to_json()) else {
            let message = "this is not a valid schema: one of its keywords has a value of the wrong type";
            self.error(path, message, "compare it with the documentation of CustomResourceDefinitions");
            return None;
        };
        match Schema::compile_within(&props, self.budget) {
            Ok(schema) => Some(schema),
            // The API server may know functions that we do not.
            Err(error) if error.problem.starts_with("rule ") => None,
            Err(error) => {
                self.error(path, yaml::printable(&error.to_string()), "the API server would reject it");
                None
            }
        }
    }

    /// Whether a schema has only known keywords, and types where they are required.
    fn keywords(&mut self, schema: &Node, path: &[PathPart]) -> bool {
        let known: Vec<&str> = KEYWORDS.into_iter().chain([RULES]).collect();
        let mut good = self.fields(schema, CRD_KIND, &known, path);
        let below = |rest: Vec<PathPart>| -> Vec<PathPart> { path.iter().cloned().chain(rest).collect() };
        let untyped = schema.get("type").is_none()
            && !is_true(schema.get("x-kubernetes-int-or-string"))
            && !is_true(schema.get("x-kubernetes-preserve-unknown-fields"));
        if untyped {
            self.error(path, "this part of the schema has no `type`", "add it");
            good = false;
        }
        if let Some(NodeValue::Map(entries)) = schema.get("properties").map(|node| &node.value) {
            for entry in entries {
                good &= self.keywords(&entry.value, &below(vec!["properties".into(), entry.key.as_str().into()]));
            }
        }
        for field in ["items", "additionalProperties"] {
            if let Some(node) = schema.get(field).filter(|node| matches!(node.value, NodeValue::Map(_))) {
                good &= self.keywords(node, &below(vec![field.into()]));
            }
        }
        good
    }

    /// Whether a mapping has only these fields.
    fn fields(&mut self, node: &Node, kind: &str, known: &[&str], path: &[PathPart]) -> bool {
        let NodeValue::Map(entries) = &node.value else { return true };
        let unknown: Vec<_> = entries.iter().filter(|entry| !known.contains(&entry.key.as_str())).collect();
        for entry in &unknown {
            let field: Vec<PathPart> = path.iter().cloned().chain([entry.key.as_str().into()]).collect();
            let (line, column) = self.node.key_position(&field);
            let message = format!("a {kind} has no field `{}` here", yaml::short(&entry.key));
            let hint = crate::definition::near::did_you_mean(&entry.key, known.iter().copied());
            let hint = hint.unwrap_or_else(|| "remove it".to_owned());
            let place = FilePosition::at(self.path, line, column);
            self.out.push(Diagnostic::error(code::MODULE_OBJECT, message).hint(hint).at(place));
        }
        unknown.is_empty()
    }
}
