//! Checks one document by itself: its kind, its schema, and the rules that the schema cannot
//! express.

mod effect;
mod kind;
mod metadata;

use std::{
    collections::{BTreeSet, HashSet},
    sync::{Arc, OnceLock},
};

use serde_json::{Value, json};

use super::{
    Definition, Kind, Options, code,
    file::Candidate,
    kinds, layout,
    module::{self, Kustomized},
};
use crate::{
    api::{self, names},
    diagnostic::{Diagnostic, Diagnostics, FilePosition, LISTED_IN_FILE_MAX, Severity},
    landscape::setup::Resources,
    name::Key,
    object::{DisplayPath, Object, PathPart},
    schema::{Schema, Violation, ViolationKind},
    yaml::{self, Node, NodeValue},
};

/// The schema of a kind. Compiled once, when the first definition of the kind is checked: some are large.
fn schema(kind: Kind) -> &'static Schema {
    static SCHEMAS: [OnceLock<Schema>; Kind::ALL.len()] = [const { OnceLock::new() }; Kind::ALL.len()];
    SCHEMAS[kind.index()].get_or_init(|| {
        let (crd, (_, served)) = (kind.crd(), kind.api());
        let version = crd.spec.versions.iter().find(|version| version.name == served);
        let schema = version
            .and_then(|version| version.schema.as_ref())
            .and_then(|schema| schema.open_api_v3_schema.as_ref())
            .expect("the version that is served has a schema");
        Schema::compile(schema).expect("our own schemas compile: a test applies them to an API server")
    })
}

/// The context in which a document is checked, and the sink for its problems.
struct Check<'a> {
    path: &'a Arc<str>,
    node: &'a Node,
    places: yaml::Indexed<'a>,
    options: &'a Options,
    out: Vec<Diagnostic>,
    /// Errors that are only counted.
    more: usize,
}

/// Checks a document. Returns `None` if it is not one of our definitions, or has no usable name.
pub(super) fn document(out: &mut Diagnostics, path: &Arc<str>, node: &Node, options: &Options) -> Option<Candidate> {
    let found = kinds::find(node);
    if let Some(diagnostic) = layout::of_document(node, &found) {
        out.push(diagnostic.at(FilePosition::at(path, node.line, node.column)));
        return None;
    }
    let is_kustomization = kinds::is_kustomization_name(path) && found == kinds::DocumentKind::Untyped;
    if is_kustomization || found == kinds::DocumentKind::Kustomization {
        out.extend(module::kustomization(path, node, Kustomized::Definitions));
        return None;
    }
    let kinds::DocumentKind::Ours(kind) = found else {
        let (line, column) = (node.line, node.column);
        if let Some((diagnostic, field)) = kinds::refusal(&found, options.strict) {
            let (line, column) = if field.is_empty() { (line, column) } else { node.position(&[field.into()]) };
            out.push(diagnostic.at(FilePosition::at(path, line, column)));
        } else if let Some(diagnostic) = no_object(&found, node) {
            out.push(diagnostic.at(FilePosition::at(path, line, column)));
        }
        return None;
    };
    let mut check = Check { path, node, places: yaml::Indexed::new(node), options, out: Vec::new(), more: 0 };
    let candidate = check.definition(kind);
    out.extend(check.out);
    out.count_more(path, Severity::Error, check.more);
    candidate
}

/// The diagnostic for a document that is not an object. It is an error if the document may have
/// been a definition: a document that is skipped silently would look removed from git and be
/// pruned.
fn no_object(found: &kinds::DocumentKind, node: &Node) -> Option<Diagnostic> {
    if *found == kinds::DocumentKind::NoMapping {
        return Some(kinds::no_mapping(node));
    }
    if *found != kinds::DocumentKind::Untyped {
        return None;
    }
    if node.get("spec").is_some() && node.get("metadata").is_some() {
        let message = "this document has `metadata` and `spec`, but neither `apiVersion` nor `kind`";
        let hint = "complete it, or name the file in `ignore`";
        return Some(Diagnostic::error(code::TYPE_MISSING, message).hint(hint));
    }
    let within = kinds::within(node)?;
    let message = format!(
        "the object in line {} is nested below a key of another mapping, so Tidegate does not read it",
        within.line
    );
    let hint = "make it a separate document, or name the file in `ignore`";
    Some(Diagnostic::error(code::NOT_AN_OBJECT, message).hint(hint))
}

impl Check<'_> {
    fn definition(&mut self, kind: Kind) -> Option<Candidate> {
        let node = self.node;
        let place = FilePosition::at(self.path, node.line, node.column);
        let mut value = node.to_json();
        self.leave_out_server_fields(&mut value);
        let namespace = self.namespace(&mut value);
        let module_path = match kind {
            Kind::ModuleTemplate => self.module_path(&value),
            Kind::ModuleReleaseMeta | Kind::Watcher | Kind::Kyma | Kind::Setup(_) => None,
        };
        let has_path =
            value.pointer("/metadata/annotations").is_some_and(|all| all.get(names::annotation::MODULE_PATH).is_some());
        let needs_descriptor = kind == Kind::ModuleTemplate && has_path && value.pointer("/spec/descriptor").is_none();
        if needs_descriptor && let Some(spec) = value.get_mut("spec").and_then(Value::as_object_mut) {
            // The schema requires it, but it can only be filled in once the ModuleReleaseMeta is known.
            spec.insert("descriptor".to_owned(), json!({}));
        }
        self.generate_name(&value);
        if matches!(value.get("spec"), None | Some(Value::Null)) {
            // The schemas accept it, but an empty definition was most likely cut off or indented wrongly.
            let message = format!("the required field `spec` is missing, so this {kind} is empty");
            self.error(self.at_key(&["spec".into()]), code::REQUIRED, message, "add `spec`");
        }
        self.schema(kind, &value);
        self.metadata(kind, &value);
        if !self.has_errors() {
            self.typed(kind, &value);
        }
        self.rules_beside_errors(kind, &value);
        self.allowed(kind, namespace.as_deref(), &value);
        let name = value.pointer("/metadata/name").and_then(Value::as_str).filter(|name| !name.is_empty());
        let (Some(name), Some(namespace)) = (name, namespace) else { return None };
        let key = Key::new(&namespace, name);
        let errors = self.out.iter().filter(|diagnostic| diagnostic.severity == Severity::Error);
        let first = errors.min_by_key(|diagnostic| diagnostic.place.clone());
        let problem = first.map(|first| (first.place.clone().unwrap_or_else(|| place.clone()), first.message.clone()));
        let meant = self::kind::meant(kind, &value).map(|name| Key::new(key.namespace(), &name));
        let meant = meant.filter(|meant| *meant != key);
        let component = Candidate::component_of(kind, &value);
        let definition = match (&problem, Object::new(value)) {
            (None, Ok(object)) => Some(Arc::new(Definition {
                kind,
                key: key.clone(),
                place: place.clone(),
                digest: object.digest(),
                object,
                module: None,
                fields: Arc::new(yaml::Positions::from_node(node)),
            })),
            _ => None,
        };
        Some(Candidate { kind, key, meant, place, problem, definition, module_path, needs_descriptor, component })
    }

    /// Checks the rules, even of a definition that its schema rejects, to report all mistakes at
    /// once. A mistake that is already reported is not repeated in other words.
    fn rules_beside_errors(&mut self, kind: Kind, value: &Value) {
        let known: BTreeSet<FilePosition> = self.out.iter().filter_map(|found| found.place.clone()).collect();
        let before = self.out.len();
        self.rules(kind, value);
        self.effects(kind, value);
        if self.out[..before].iter().any(|found| found.severity == Severity::Error) {
            let more = self.out.split_off(before);
            self.out.extend(
                more.into_iter().filter(|found| !found.place.as_ref().is_some_and(|place| known.contains(place))),
            );
        }
    }

    /// Whether an error was found.
    fn has_errors(&self) -> bool {
        self.out.iter().any(|diagnostic| diagnostic.severity == Severity::Error)
    }

    /// The place of the value at a path.
    fn at(&self, path: &[PathPart]) -> FilePosition {
        let (line, column) = self.places.position(path);
        FilePosition::at(self.path, line, column)
    }

    /// The place of the key at a path.
    fn at_key(&self, path: &[PathPart]) -> FilePosition {
        let (line, column) = self.places.key_position(path);
        FilePosition::at(self.path, line, column)
    }

    fn error(&mut self, place: FilePosition, code: &'static str, message: impl Into<String>, hint: impl Into<String>) {
        self.out.push(Diagnostic::error(code, message).hint(hint).at(place));
    }

    fn warning(
        &mut self,
        place: FilePosition,
        code: &'static str,
        message: impl Into<String>,
        hint: impl Into<String>,
    ) {
        self.out.push(Diagnostic::warning(code, message).hint(hint).at(place));
    }

    fn schema(&mut self, kind: Kind, value: &Value) {
        let (violations, more) = schema(kind).check_some(value, LISTED_IN_FILE_MAX, &self.options.budget);
        self.more += more;
        // One message is enough for a misspelt required field.
        let misspelt: Vec<Vec<PathPart>> = violations
            .iter()
            .filter_map(|violation| match (&violation.kind, violation.path.split_last()) {
                (ViolationKind::UnknownField { did_you_mean: Some(meant) }, Some((_, parent))) => {
                    Some(parent.iter().cloned().chain([PathPart::from(meant.as_str())]).collect())
                }
                _ => None,
            })
            .collect();
        let mut told = HashSet::new();
        for violation in violations {
            if violation.kind != ViolationKind::Required || !misspelt.contains(&violation.path) {
                let field = violation.path.last().cloned();
                let diagnostic = self.violation(violation);
                // Repetitions through an alias have the same place.
                if told.insert((diagnostic.place.clone(), diagnostic.code, field)) {
                    self.out.push(diagnostic);
                }
            }
        }
    }

    fn violation(&self, violation: Violation) -> Diagnostic {
        let Violation { path, kind, message, hint } = violation;
        let (code, place) = match kind {
            ViolationKind::UnknownField { .. } => (code::UNKNOWN_FIELD, self.at_key(&path)),
            ViolationKind::Required => (code::REQUIRED, self.at(&path)),
            ViolationKind::Type | ViolationKind::Null => (code::WRONG_TYPE, self.at(&path)),
            ViolationKind::Format => (code::FORMAT, self.at(&path)),
            ViolationKind::Pattern => (code::PATTERN, self.at(&path)),
            ViolationKind::Enum => (code::ENUM, self.at(&path)),
            ViolationKind::TooShort => (code::TOO_SHORT, self.at(&path)),
            ViolationKind::TooLong => (code::TOO_LONG, self.at(&path)),
            ViolationKind::Range => (code::RANGE, self.at(&path)),
            ViolationKind::Duplicate => (code::DUPLICATE_ITEM, self.at(&path)),
            ViolationKind::Combination => (code::COMBINATION, self.at_key(&path)),
            ViolationKind::Rule | ViolationKind::Tolerated => (code::RULE, self.at_key(&path)),
            // For a label, either the key or the value may be wrong.
            ViolationKind::Metadata if message.contains(" is not a key of ") => (code::METADATA, self.at_key(&path)),
            ViolationKind::Metadata => (code::METADATA, self.at(&path)),
        };
        let is_plain = matches!(
            self.node.at(&path).map(|node| &node.value),
            Some(NodeValue::Bool(_) | NodeValue::Int(_) | NodeValue::UInt(_) | NodeValue::Float(_))
        );
        let hint = if is_plain && message.starts_with("must be a string") {
            // The value is not repeated: the parser has already turned `1.10` into 1.1.
            Some("write it in quotes".to_owned())
        } else {
            hint.or_else(|| advice(code, &path))
        };
        // For an unknown or missing field, the message names the field and the path names its mapping.
        let shown: &[PathPart] = match kind {
            ViolationKind::UnknownField { .. } | ViolationKind::Required => {
                path.split_last().map_or(&[], |(_, parent)| parent)
            }
            _ => &path,
        };
        let message = match (shown.is_empty(), &kind) {
            (true, _) => message,
            (false, ViolationKind::UnknownField { .. } | ViolationKind::Required) => {
                format!("{message} in `{}`", DisplayPath(shown))
            }
            (false, _) => format!("`{}`: {message}", DisplayPath(shown)),
        };
        let diagnostic = Diagnostic::error(code, yaml::printable(&message)).at(place);
        Diagnostic { hint, ..diagnostic }
    }

    /// Reports what the schema accepts and our own types reject. This should never happen, but a
    /// definition must not get lost silently.
    fn typed(&mut self, kind: Kind, value: &Value) {
        let problem = match kind {
            Kind::ModuleTemplate => serde_json::from_value::<api::ModuleTemplate>(value.clone()).err(),
            Kind::ModuleReleaseMeta => serde_json::from_value::<api::ModuleReleaseMeta>(value.clone()).err(),
            Kind::Watcher => serde_json::from_value::<api::Watcher>(value.clone()).err(),
            Kind::Kyma => serde_json::from_value::<api::Kyma>(value.clone()).err(),
            Kind::Setup(kind) => Resources::default().insert(kind, &Key::new("", ""), value.clone()).err(),
        };
        let Some(problem) = problem else { return };
        if let Some((path, number)) = too_large(self.node, &mut Vec::new()) {
            let message = format!("`{}`: {number:.0} does not fit into 64 bits", DisplayPath(&path));
            self.error(self.at(&path), code::RANGE, message, "write a smaller number");
        } else {
            let message = yaml::printable(&yaml::short(&problem.to_string()));
            let place = self.at(&["spec".into()]);
            self.error(place, code::REQUIRED, message, format!("complete the {kind}"));
        }
    }

    /// Whether the GitSource and the daemon allow this definition.
    fn allowed(&mut self, kind: Kind, namespace: Option<&str>, value: &Value) {
        let allow = &self.options.allow;
        if !allow.admits_kind(kind) {
            let message = format!("this source is not allowed to declare a {kind}");
            let hint = format!("`allow.kinds` of the GitSource is {}", allow.kinds.join(", "));
            self.error(self.at(&["kind".into()]), code::NOT_ALLOWED, message, hint);
        }
        if let Some(namespace) = namespace {
            let place = self.at(&["metadata".into(), "namespace".into()]);
            if !self.options.namespaces.is_empty() && !self.options.namespaces.iter().any(|counts| counts == namespace)
            {
                let message = format!("definitions are not allowed in namespace `{}`", yaml::short(namespace));
                let hint =
                    format!("use {}, or start Tidegate with `--namespace`", self.options.namespaces.join(" or "));
                self.error(place, code::NAMESPACE_REFUSED, message, hint);
            } else if !allow.admits_namespace(namespace) {
                let message =
                    format!("this source is not allowed to declare objects in namespace `{}`", yaml::short(namespace));
                let hint = format!("`allow.namespaces` of the GitSource is {}", allow.namespaces.join(", "));
                self.error(place, code::NOT_ALLOWED, message, hint);
            }
        }
        let name = value.pointer("/metadata/name").and_then(Value::as_str);
        if let Some(name) = name
            && !allow.admits_name(name)
        {
            let message = format!("this source is not allowed to declare objects named `{}`", yaml::short(name));
            let hint = format!("`allow.names` of the GitSource is {}", allow.names.join(", "));
            self.error(self.at(&["metadata".into(), "name".into()]), code::NOT_ALLOWED, message, hint);
        }
    }
}

/// The first integral number that is larger than any of our integer types.
fn too_large(node: &Node, path: &mut Vec<PathPart>) -> Option<(Vec<PathPart>, f64)> {
    let mut within = |part: PathPart, node: &Node| {
        path.push(part);
        let found = too_large(node, path);
        path.pop();
        found
    };
    match &node.value {
        NodeValue::Float(number) if number.fract() == 0.0 => Some((path.clone(), *number)),
        NodeValue::Seq(items) => items.iter().enumerate().find_map(|(index, item)| within(index.into(), item)),
        NodeValue::Map(entries) => entries.iter().find_map(|entry| within(entry.key.as_str().into(), &entry.value)),
        _ => None,
    }
}

/// The hint for a violation that has none of its own.
fn advice(code: &'static str, path: &[PathPart]) -> Option<String> {
    let last = path.iter().rev().find_map(|part| match part {
        PathPart::Key(key) => Some(key.as_str()),
        PathPart::Index(_) => None,
    });
    let hint = match (code, last) {
        (code::PATTERN, Some("channel")) => "use 3 to 32 lower-case letters, for example `regular`".to_owned(),
        (code::PATTERN, Some("version")) => "use a version such as `1.2.3` or `1.2.3-rc1`".to_owned(),
        (code::PATTERN, Some("moduleName")) => {
            "use words of three or more lower-case letters, joined by `-`".to_owned()
        }
        (code::PATTERN, Some("ocmComponentName")) => {
            "use a component name such as `kyma-project.io/module/keda`".to_owned()
        }
        (code::REQUIRED, Some(field)) => format!("add `{field}`"),
        (code::UNKNOWN_FIELD, _) => "remove it, or correct its name or indentation".to_owned(),
        (code::WRONG_TYPE, _) => "check the indentation and the quotes".to_owned(),
        (code::RULE, Some("spec")) => {
            "a module is either mandatory or offered in channels: remove one of the two".to_owned()
        }
        (code::DUPLICATE_ITEM, _) => "remove one of them".to_owned(),
        (code::PATTERN, _) => "write a value that matches the pattern".to_owned(),
        (code::ENUM, _) => "write one of the allowed values".to_owned(),
        (code::FORMAT, _) => "write it in this format".to_owned(),
        (code::METADATA, Some("name" | "namespace")) => "rename it".to_owned(),
        (code::METADATA, _) => {
            "keys and values of labels have letters, digits, `-`, `_` and `.`, and no spaces".to_owned()
        }
        (code::RANGE, _) => "write a number within the limits".to_owned(),
        _ => return None,
    };
    Some(hint)
}

/// Whether a text matches a pattern in which `*` matches any run of characters.
pub(super) fn matches(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split('*');
    let Some(mut rest) = parts.next().and_then(|first| text.strip_prefix(first)) else { return false };
    let Some(last) = parts.next_back() else { return rest.is_empty() };
    for part in parts {
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    rest.ends_with(last)
}

/// The namespace of definitions that specify none.
fn default_namespace(options: &Options) -> &str {
    options.namespaces.first().map_or(names::KCP_NAMESPACE, String::as_str)
}
