//! Decides about one review: which event to send, and what to answer. A pure function.
//!
//! The rules are the Runtime Watcher's. The webhook's rules in the runtime select the field: a review of the object
//! itself compares its `spec`, a review of the subresource `status` compares its `status`.
//!
//! Three rules are ours. A dry run sends no event, because nothing changes, unless the control plane marked it as a
//! probe of the way from the API server to itself. An unreadable object sends no event. And if
//! the control plane watches modules' objects for drift, changes to their labels, annotations, finalizers and owners
//! also count, because the control plane wrote these as well.

use serde::Deserialize;
use serde_json::{Number, Value, value::RawValue};

use super::review::{Metadata, Object, Request};
use tidegate_events::event::{Event, Gvk, PROBE, PROBE_LEN_MAX, Watched};

/// The result of a review.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    /// The event to send.
    pub event: Option<Event>,
    /// Whether the event is about a probe of the control plane. No change follows it.
    pub is_probe: bool,
    /// The message of the answer.
    pub message: String,
    /// What was wrong with the review, for a counter.
    pub wrong: Option<Wrong>,
}

/// What can be wrong with a valid review.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wrong {
    /// It is an update of a subresource that is not watched.
    Subresource,
    /// The object is missing or has no name.
    Object,
}

/// The message if an event follows. It says `succeeded` although nothing is sent yet, because the answer does not wait
/// and tools look for this text.
const TOLD: &str = "kcp request succeeded";
/// The group and kind of Kymas. Changes of their metadata do not count: KLM and users write labels all the time.
const KYMA: (&str, &str) = ("operator.kyma-project.io", "Kyma");
/// The label of objects that the control plane manages.
const MANAGED_BY: (&str, &str) = ("operator.kyma-project.io/managed-by", "kyma");
/// Limit of a name in an event, in bytes. Kubernetes allows 253.
const NAME_BYTES_MAX: usize = 256;

/// Decides about a review.
pub fn decide(request: &Request<'_>) -> Decision {
    let subject = match request.operation.as_str() {
        "CREATE" | "UPDATE" => request.object,
        "DELETE" => request.old_object,
        other => return Decision::silent(not_supported(request, other)),
    };
    let Some(object) = Object::parse(subject).filter(|object| is_bounded(object)) else {
        let message = "cannot read the object of the review: no event is sent".to_owned();
        return Decision { event: None, is_probe: false, message, wrong: Some(Wrong::Object) };
    };
    if request.dry_run == Some(true) {
        if let Some(value) = probe(&object) {
            return Decision {
                event: Some(Event::of_probe(&value)),
                is_probe: true,
                message: TOLD.to_owned(),
                wrong: None,
            };
        }
        return Decision::silent(format!("dry run: no event is sent for watched resource {}", named(&object)));
    }
    if request.operation != "UPDATE" {
        return Decision::tell(&object);
    }
    // An unreadable old object counts as different.
    let old = Object::parse(request.old_object);
    let subresource = request.sub_resource.as_deref().unwrap_or_default();
    let changed = match subresource {
        "" => old.is_none_or(|old| object_changed(&object, &old)),
        status if status.eq_ignore_ascii_case("status") => old.is_none_or(|old| !equal(object.status, old.status)),
        _ => {
            let message = format!("invalid subresource: watched resource {}", named(&object));
            return Decision { event: None, is_probe: false, message, wrong: Some(Wrong::Subresource) };
        }
    };
    if changed {
        Decision::tell(&object)
    } else {
        Decision::silent(format!("no change detected on watched resource {}", named(&object)))
    }
}

// === impl Decision ===

impl Decision {
    fn tell(object: &Object<'_>) -> Decision {
        let watched = Watched { namespace: object.namespace().to_owned(), name: object.metadata.name.clone() };
        let event = Event { watched, gvk: Gvk::new(&object.api_version, &object.kind) };
        Decision { event: Some(event), is_probe: false, message: TOLD.to_owned(), wrong: None }
    }

    fn silent(message: String) -> Decision {
        Decision { event: None, is_probe: false, message, wrong: None }
    }
}

/// The value by which the control plane marked a dry run as its probe.
fn probe(object: &Object<'_>) -> Option<String> {
    let annotations = object.metadata.annotations.filter(|raw| raw.get().contains(PROBE))?;
    let annotations = serde_json::from_str::<Value>(annotations.get()).ok()?;
    let is_sound = |value: &&str| !value.is_empty() && value.len() <= PROBE_LEN_MAX;
    annotations[PROBE].as_str().filter(is_sound).map(str::to_owned)
}

fn not_supported(request: &Request<'_>, operation: &str) -> String {
    let kind = &request.kind;
    let operation: String = operation.chars().take(NAME_BYTES_MAX).collect();
    // Formatted as in Go, because tools compare the message with upstream's.
    let group_version =
        if kind.group.is_empty() { kind.version.clone() } else { format!("{}/{}", kind.group, kind.version) };
    format!("operation {operation} not supported for {group_version}, Kind={}", kind.kind)
}

fn named(object: &Object<'_>) -> String {
    format!("{}/{}", object.namespace(), object.metadata.name)
}

/// Whether all names in an event have a length that Kubernetes allows, so that the outbox is bounded.
fn is_bounded(object: &Object<'_>) -> bool {
    [object.namespace(), &object.metadata.name, &object.api_version, &object.kind]
        .iter()
        .all(|text| text.len() <= NAME_BYTES_MAX)
}

/// Whether an update of the object itself is relevant.
fn object_changed(new: &Object<'_>, old: &Object<'_>) -> bool {
    let spec_changed = match (new.spec, old.spec) {
        (Some(new), Some(old)) => !equal(Some(new), Some(old)),
        // Without a spec on both sides there is nothing to compare, so every update counts.
        _ => true,
    };
    spec_changed || (is_module_object(new, old) && metadata_changed(&new.metadata, &old.metadata))
}

/// Whether the control plane manages the object, now or before, so that any change is drift.
fn is_module_object(new: &Object<'_>, old: &Object<'_>) -> bool {
    let gvk = Gvk::new(&new.api_version, &new.kind);
    (gvk.group.as_str(), gvk.kind.as_str()) != KYMA && (is_managed(&new.metadata) || is_managed(&old.metadata))
}

fn is_managed(metadata: &Metadata<'_>) -> bool {
    let (label, value) = MANAGED_BY;
    // A text search excludes most objects.
    metadata
        .labels
        .filter(|labels| labels.get().contains(label))
        .is_some_and(|labels| serde_json::from_str::<Value>(labels.get()).is_ok_and(|labels| labels[label] == value))
}

fn metadata_changed(new: &Metadata<'_>, old: &Metadata<'_>) -> bool {
    !equal(new.labels, old.labels)
        || !equal(new.annotations, old.annotations)
        || !equal(new.finalizers, old.finalizers)
        || !equal(new.owner_references, old.owner_references)
        || new.deletion_timestamp.is_some() != old.deletion_timestamp.is_some()
}

/// Whether two JSON texts have the same meaning. A text that is nested too deeply to be parsed counts as different: one
/// event too many is cheap.
fn equal(one: Option<&RawValue>, other: Option<&RawValue>) -> bool {
    match (one, other) {
        (None, None) => true,
        (Some(one), Some(other)) => {
            // API servers write both with one encoder, so equal values nearly always have equal texts.
            one.get() == other.get()
                || match (tree(one), tree(other)) {
                    (Some(one), Some(other)) => equal_trees(&one, &other),
                    _ => false,
                }
        }
        _ => false,
    }
}

fn tree(raw: &RawValue) -> Option<Value> {
    Value::deserialize(raw).ok()
}

fn equal_trees(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Number(one), Value::Number(other)) => equal_numbers(one, other),
        (Value::Array(one), Value::Array(other)) => {
            one.len() == other.len() && one.iter().zip(other).all(|(one, other)| equal_trees(one, other))
        }
        (Value::Object(one), Value::Object(other)) => {
            one.len() == other.len()
                && one.iter().all(|(key, value)| other.get(key).is_some_and(|found| equal_trees(value, found)))
        }
        (one, other) => one == other,
    }
}

/// Whether two numbers are equal. Integers are compared exactly, and `1` equals `1.0`.
fn equal_numbers(one: &Number, other: &Number) -> bool {
    let integer = |number: &Number| number.as_i128();
    match (integer(one), integer(other)) {
        (Some(one), Some(other)) => one == other,
        (None, None) => one.as_f64() == other.as_f64(),
        (Some(integer), None) => is_integer(other, integer),
        (None, Some(integer)) => is_integer(one, integer),
    }
}

/// Whether a number with a fraction or an exponent equals this integer. Both are compared as doubles, because readers
/// parse such a number as a double.
fn is_integer(float: &Number, integer: i128) -> bool {
    #[expect(clippy::cast_precision_loss, reason = "compared as the double that it would be read as")]
    let integer = integer as f64;
    float.as_f64() == Some(integer)
}

#[cfg(test)]
mod tests;
