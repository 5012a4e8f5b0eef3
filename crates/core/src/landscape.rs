//! The landscape: every valid definition, typed and indexed by key.
//!
//! The command line builds it from the definitions of one revision, the daemon from the objects in
//! KCP. Both get the same objects, because [`stamp`] turns a definition into the object in KCP. The
//! landscape decides nothing: `plan` does.

use std::{collections::BTreeMap, sync::Arc};

use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::{
    api::{
        GitSource, Kyma, ModuleReleaseMeta, ModuleTemplate, Watcher,
        names::{self, annotation, finalizer},
        shared::ObjectMeta,
    },
    definition::{Definition, Definitions, Kind},
    diagnostic::{Diagnostic, Diagnostics},
    name::Key,
    object::{Digest, Object},
};

pub mod file;
pub mod setup;

/// Why a source takes nothing over and applies nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Idle {
    /// It is suspended.
    Suspended,
    /// It is being deleted.
    Ending,
    /// It is being deleted, and suspended: nothing of it is deleted until a user resumes it.
    SuspendedEnding,
}

impl Idle {
    fn new(is_suspended: bool, is_ending: bool) -> Option<Idle> {
        match (is_suspended, is_ending) {
            (false, false) => None,
            (true, false) => Some(Idle::Suspended),
            (false, true) => Some(Idle::Ending),
            (true, true) => Some(Idle::SuspendedEnding),
        }
    }
}

/// What ends the suspension of a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResumeBy {
    /// `tidegate resume`.
    Command,
    /// A change of the file that declares the GitSource, because it sets `spec.suspend`.
    File,
}

/// Why a source takes nothing over and applies nothing; none if it does.
pub fn idle(source: &GitSource) -> Option<Idle> {
    Idle::new(source.spec.suspend, source.metadata.deletion_timestamp.is_some())
}

/// Whether a source takes nothing over and applies nothing: it is suspended, or being deleted.
pub fn is_idle(source: &GitSource) -> bool {
    idle(source).is_some()
}

/// Definitions by key. Iteration is in key order, so it is reproducible.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Landscape {
    /// Runtimes.
    pub kymas: BTreeMap<Key, Arc<Kyma>>,
    /// Versions of modules, by `<namespace>/<module>-<version>`.
    pub templates: BTreeMap<Key, Arc<ModuleTemplate>>,
    /// Channels of modules, by `<namespace>/<module>`.
    pub releases: BTreeMap<Key, Arc<ModuleReleaseMeta>>,
    /// Objects to watch in runtimes.
    pub watchers: BTreeMap<Key, Arc<Watcher>>,
    /// kcp landscapes.
    pub setup: setup::Resources,
}

/// The GitSource that declares an object: `<namespace>/<name>`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SourceName(Key);

/// Diagnostic code of a definition that passes the schema but cannot be deserialized.
pub const CODE_UNREADABLE: &str = "unreadable";

/// Maximum length of a label value.
const LABEL_LEN_MAX: usize = 63;

/// The key of an object. A missing name or namespace, which no API server stores, becomes an empty
/// string.
pub fn key(metadata: &ObjectMeta) -> Key {
    Key::new(metadata.namespace.as_deref().unwrap_or_default(), metadata.name.as_deref().unwrap_or_default())
}

/// One of an object's labels.
pub fn label<'a>(metadata: &'a ObjectMeta, name: &str) -> Option<&'a str> {
    metadata.labels.as_ref()?.get(name).map(String::as_str)
}

/// Whether a label says that a Kyma is left alone. In any case of letters, as Lifecycle Manager reads it.
pub fn is_skipped(kyma: &ObjectMeta) -> bool {
    label(kyma, names::label::SKIP_RECONCILIATION).is_some_and(says_true)
}

/// Whether the value of a label switches something on, in any case of letters.
pub fn says_true(value: &str) -> bool {
    value.eq_ignore_ascii_case("true")
}

/// One of an object's annotations.
pub fn annotation<'a>(metadata: &'a ObjectMeta, name: &str) -> Option<&'a str> {
    metadata.annotations.as_ref()?.get(name).map(String::as_str)
}

/// The field that suspends an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Switch {
    /// The label [`names::label::SKIP_RECONCILIATION`] of a Kyma.
    Label,
    /// `spec.suspend` of a GitSource.
    Spec,
    /// The annotation of a ModuleReleaseMeta that pauses a rollout.
    Pause,
}

/// Who suspended an object, since when and why, if the annotation says it. Otherwise, which client set the field and
/// when, if the metadata has managedFields.
pub fn suspension(metadata: &ObjectMeta, switch: Switch) -> Option<String> {
    let note = annotation(metadata, names::annotation::SUSPENDED).unwrap_or_default();
    let note: String = note.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    match note.trim() {
        "" => suspender(metadata, switch).map(|who| format!("suspended {who}")),
        note => Some(format!("suspended {note}")),
    }
}

/// The client that owns a field, and when it last set one.
fn suspender(metadata: &ObjectMeta, switch: Switch) -> Option<String> {
    let owns = |fields: &Value| switch.is_in(fields);
    let mut entries = metadata.managed_fields.iter().flatten();
    let entry = entries.find(|entry| entry.fields_v1.as_ref().is_some_and(|fields| owns(&fields.0)))?;
    let who = match entry.manager.as_deref()? {
        names::FIELD_MANAGER => "in git".to_owned(),
        manager => format!("by {manager}"),
    };
    let since = entry.time.as_ref().map(|time| format!(" since {}", time.0));
    Some(format!("{who}{}", since.unwrap_or_default()))
}

/// The file that suspends an object, and the GitSource with it: the field is one that git declares. `None` if it is
/// not, or if the metadata have no managedFields.
pub fn suspended_by_git(metadata: &ObjectMeta, switch: Switch) -> Option<String> {
    let mut entries = metadata.managed_fields.iter().flatten();
    entries.find(|entry| {
        entry.manager.as_deref() == Some(names::FIELD_MANAGER)
            && entry.fields_v1.as_ref().is_some_and(|fields| switch.is_in(&fields.0))
    })?;
    let source = annotation(metadata, names::annotation::SOURCE)?;
    let path = annotation(metadata, names::annotation::PATH).unwrap_or("a file");
    Some(format!("{path} of GitSource {source}"))
}

// === impl Switch ===

impl Switch {
    /// Whether the fields of a client, as managedFields have them, have it.
    fn is_in(self, fields: &Value) -> bool {
        let metadata = &fields["f:metadata"];
        match self {
            Switch::Label => metadata["f:labels"].get(format!("f:{}", names::label::SKIP_RECONCILIATION)).is_some(),
            Switch::Spec => fields["f:spec"].get("f:suspend").is_some(),
            Switch::Pause => {
                metadata["f:annotations"].get(format!("f:{}", names::annotation::ROLLOUT_PAUSED)).is_some()
            }
        }
    }

    /// The field as a user writes it.
    pub fn field(self) -> String {
        match self {
            Switch::Label => format!("label {}", names::label::SKIP_RECONCILIATION),
            Switch::Spec => "field spec.suspend".to_owned(),
            Switch::Pause => format!("annotation {}", names::annotation::ROLLOUT_PAUSED),
        }
    }
}

/// The object that is applied to KCP for a definition: as written, with our ownership label and
/// annotations.
///
/// It changes only if the definition, its path or its module does: it contains neither commit nor
/// line. So an unrelated commit causes no write. The digest covers everything that is applied but the path: a file that
/// moves causes none either, and the annotation follows with the next change.
pub fn stamp(definition: &Definition, source: &SourceName) -> Object {
    let mut object = definition.object.clone();
    object.map_mut().shift_remove("status");
    let forged = [annotation::MODULE_TREE, annotation::DIGEST];
    if let Some(annotations) = object.metadata_mut().get_mut("annotations").and_then(Value::as_object_mut) {
        annotations.retain(|name, _| !forged.contains(&name.as_str()));
    }
    object.set_label(names::label::SOURCE, &source.label_value());
    object.set_annotation(annotation::SOURCE, &source.to_string());
    // At its place among the annotations, and without influence on the digest.
    object.set_annotation(annotation::PATH, "");
    if let Some(module) = &definition.module {
        object.set_annotation(annotation::MODULE_TREE, &module.tree.to_string());
    }
    match definition.kind {
        Kind::Kyma => {
            object.set_label(names::label::MANAGED_BY, names::MANAGED_BY_KCP);
            add_finalizer(&mut object, finalizer::KYMA);
            // The API server removes a list when an apply removes its last item, so empty and missing lists would look
            // alike. An annotation that git controls records the difference.
            let is_suspended = object.label(names::label::SKIP_RECONCILIATION);
            if is_suspended.is_some_and(says_true) && object.annotation(annotation::SUSPENDED).is_none() {
                object.set_annotation(annotation::SUSPENDED, "in git");
            }
            let wants_none = object.value()["spec"]["modules"].as_array().is_some_and(Vec::is_empty);
            if wants_none && object.annotation(annotation::MODULES_FROM).is_none() {
                object.set_annotation(annotation::MODULES_FROM, "git");
            }
        }
        // Set here, so that the controller need not write the Watcher a second time.
        Kind::Watcher => add_finalizer(&mut object, finalizer::WATCHER),
        Kind::Setup(_) => add_finalizer(&mut object, finalizer::SETUP),
        Kind::ModuleTemplate | Kind::ModuleReleaseMeta => {}
    }
    let digest = object.digest().to_string();
    object.set_annotation(annotation::DIGEST, &digest);
    object.set_annotation(annotation::PATH, &definition.place.path);
    object
}

/// Whether an object of another source has the content of a definition: that source has last applied a definition that
/// says the same. Who declares it, and in which file, does not matter.
pub fn has_content(definition: &Definition, live: &ObjectMeta) -> bool {
    let owner = SourceName::from_metadata(live);
    owner.is_some_and(|owner| says_the_same(definition, &owner, annotation(live, annotation::DIGEST)))
}

/// Whether a definition says the same as the one that a source has last applied. `applied` is the digest of that one.
/// Whether either of them may take an object over is not a part of what it says.
pub fn says_the_same(definition: &Definition, owner: &SourceName, applied: Option<&str>) -> bool {
    let Some(applied) = applied else { return false };
    let is_applied = |definition: &Definition| stamp(definition, owner).annotation(annotation::DIGEST) == Some(applied);
    is_applied(definition)
        || [None, Some("true"), Some("false")].iter().any(|adopt| is_applied(&with_adopt(definition, *adopt)))
}

/// A definition with another value of the annotation that lets it take an object over.
fn with_adopt(definition: &Definition, adopt: Option<&str>) -> Definition {
    let mut other = definition.clone();
    match adopt {
        Some(value) => other.object.set_annotation(annotation::ADOPT, value),
        None => {
            if let Some(annotations) = other.object.metadata_mut().get_mut("annotations").and_then(Value::as_object_mut)
            {
                annotations.shift_remove(annotation::ADOPT);
            }
        }
    }
    other
}

/// Whether a GitSource of this name has left an object when it was deleted: it has no ownership label, but names the
/// GitSource. A user who copies an object copies this as well, so it is only a reason to look further.
pub fn is_left_by(source: &SourceName, live: &ObjectMeta) -> bool {
    label(live, names::label::SOURCE).is_none()
        && annotation(live, annotation::SOURCE).is_some_and(|named| named == source.to_string())
}

/// What the object of a definition is like if its source has left it and nothing has changed since but the label: the
/// source has last applied this definition. `None` if it has last applied another one.
pub fn as_left(definition: &Definition, source: &SourceName, live: &ObjectMeta) -> Option<Object> {
    let mut left = expected(definition, source);
    if annotation(live, annotation::DIGEST) != left.annotation(annotation::DIGEST) {
        return None;
    }
    if let Some(labels) = left.metadata_mut().get_mut("labels").and_then(Value::as_object_mut) {
        labels.shift_remove(names::label::SOURCE);
    }
    Some(left)
}

/// What the object in KCP is compared with, to find changes of other clients: everything that is applied but the path
/// of the definition, which may have changed since.
pub fn expected(definition: &Definition, source: &SourceName) -> Object {
    let mut object = stamp(definition, source);
    if let Some(annotations) = object.metadata_mut().get_mut("annotations").and_then(Value::as_object_mut) {
        annotations.shift_remove(annotation::PATH);
    }
    object
}

/// The modules of a Kyma in KCP without those that its definition does not have; none if it has no others, or if the
/// definition has no list of modules. An apply leaves the entries of other field managers in a list, so the list must
/// be replaced.
pub fn without_other_modules(desired: &Value, live: &Value) -> Option<Value> {
    let modules = |object: &'_ Value| object.pointer("/spec/modules").and_then(Value::as_array).cloned();
    let (desired, live) = (modules(desired)?, modules(live)?);
    let count = live.len();
    let is_declared = |found: &Value| desired.iter().any(|wanted| wanted.get("name") == found.get("name"));
    let kept: Vec<Value> = live.into_iter().filter(is_declared).collect();
    (kept.len() < count).then_some(Value::Array(kept))
}

fn add_finalizer(object: &mut Object, finalizer: &str) {
    let finalizers = object.metadata_mut().entry("finalizers").or_insert_with(|| Value::Array(Vec::new()));
    match finalizers.as_array_mut() {
        Some(finalizers) if !finalizers.iter().any(|found| found == finalizer) => {
            finalizers.push(Value::from(finalizer));
        }
        _ => {}
    }
}

// === impl Landscape ===

impl Landscape {
    /// The definitions of one source, as they will be in KCP.
    pub fn from_definitions(
        diagnostics: &mut Diagnostics,
        definitions: &Definitions,
        source: &SourceName,
    ) -> Landscape {
        Landscape::following(diagnostics, definitions, source, None)
    }

    /// As [`Landscape::from_definitions`]. Shares unchanged definitions of the same source with `previous`.
    pub fn following(
        diagnostics: &mut Diagnostics,
        definitions: &Definitions,
        source: &SourceName,
        previous: Option<(&Definitions, &Landscape)>,
    ) -> Landscape {
        let mut landscape = Landscape::default();
        for (id, definition) in &definitions.good {
            let (kind, key) = id;
            let known = previous.filter(|(previous, _)| {
                previous.good.get(id).is_some_and(|previous| Arc::ptr_eq(previous, definition))
            });
            let known = known.map(|(_, landscape)| landscape);
            let inserted = match kind {
                Kind::ModuleTemplate => {
                    let known = known.map(|known| &known.templates);
                    insert(&mut landscape.templates, known, key, definition, source)
                }
                Kind::ModuleReleaseMeta => {
                    let known = known.map(|known| &known.releases);
                    insert(&mut landscape.releases, known, key, definition, source)
                }
                Kind::Watcher => {
                    let known = known.map(|known| &known.watchers);
                    insert(&mut landscape.watchers, known, key, definition, source)
                }
                Kind::Kyma => {
                    let known = known.map(|known| &known.kymas);
                    insert(&mut landscape.kymas, known, key, definition, source)
                }
                Kind::Setup(kind) => landscape.setup.insert(*kind, key, stamp(definition, source).into_value()),
            };
            if let Err(error) = inserted {
                // The schema accepts it and our types reject it, which should be impossible.
                let message = format!("{kind} {key} cannot be read: {error}");
                diagnostics.push(Diagnostic::error(CODE_UNREADABLE, message).at(definition.place.clone()));
            }
        }
        landscape
    }
}

fn insert<T: DeserializeOwned>(
    into: &mut BTreeMap<Key, Arc<T>>,
    known: Option<&BTreeMap<Key, Arc<T>>>,
    key: &Key,
    definition: &Definition,
    source: &SourceName,
) -> Result<(), serde_json::Error> {
    let known = known.and_then(|known| known.get(key));
    let typed = match known {
        Some(known) => Arc::clone(known),
        None => Arc::new(serde_json::from_value(stamp(definition, source).into_value())?),
    };
    into.insert(key.clone(), typed);
    Ok(())
}

// === impl SourceName ===

impl SourceName {
    /// The name of a GitSource by its key.
    pub fn new(key: Key) -> SourceName {
        SourceName(key)
    }

    /// The source that owns an object in KCP. The object has our ownership label, and its
    /// annotation contains the full name.
    ///
    /// The annotation alone proves nothing: it is included when a user copies an object.
    pub fn from_metadata(metadata: &ObjectMeta) -> Option<SourceName> {
        let label = label(metadata, names::label::SOURCE)?;
        let source = SourceName(annotation(metadata, names::annotation::SOURCE)?.parse().ok()?);
        (source.label_value() == label).then_some(source)
    }

    /// The GitSource.
    pub fn key(&self) -> &Key {
        &self.0
    }

    /// Value of the label `tidegate.dev/source`: `<namespace>.<name>`. Beyond 63 characters it is
    /// cut and hashed.
    pub fn label_value(&self) -> String {
        let full = format!("{}.{}", self.0.namespace(), self.0.name());
        if full.len() <= LABEL_LEN_MAX {
            return full;
        }
        let digest = Digest::of_bytes(full.as_bytes()).short();
        let kept = full[..LABEL_LEN_MAX - digest.len() - 1].trim_end_matches(['-', '.']);
        format!("{kept}-{digest}")
    }
}

impl std::fmt::Display for SourceName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests;
