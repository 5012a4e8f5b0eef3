//! Whether the control plane is told, and what the API server is answered: a function of one review.
//!
//! The rules are the Runtime Watcher's. The webhook's rules in the runtime say which field counts: a review of the object
//! itself is about its `spec`, one of the subresource `status` about its `status`.
//!
//! Beyond them: a dry run tells nobody, since nothing will change; an object that cannot be read has no event; and where
//! modules' own objects are watched for drift, what is done to their labels, annotations, finalizers and owners counts too,
//! as the control plane wrote those as well.

use serde::Deserialize;
use serde_json::{Number, Value, value::RawValue};

use super::review::{Metadata, Object, Request};
use tidegate_events::event::{Event, Gvk, Watched};

/// What follows from a review.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    /// What is sent.
    pub event: Option<Event>,
    /// What the answer says.
    pub message: String,
    /// What was wrong with the review, for a counter.
    pub wrong: Option<Wrong>,
}

/// What can be wrong with a review that is one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wrong {
    /// An update of a subresource that nobody watches.
    Subresource,
    /// No object, or one without a name.
    Object,
}

/// The message of a review that was told of. It says `succeeded` before anything was sent: the answer waits for nobody,
/// and tools look for this text.
const TOLD: &str = "kcp request succeeded";
/// The group of Kymas, for which metadata does not count: KLM and users write labels there all the time.
const KYMA: (&str, &str) = ("operator.kyma-project.io", "Kyma");
/// The label of objects that the control plane manages.
const MANAGED_BY: (&str, &str) = ("operator.kyma-project.io/managed-by", "kyma");
/// Longest name of anything in an event, in bytes. Kubernetes allows 253.
const NAME_BYTES_MAX: usize = 256;

/// Decides about a review.
pub fn decide(request: &Request<'_>) -> Decision {
    let subject = match request.operation.as_str() {
        "CREATE" | "UPDATE" => request.object,
        "DELETE" => request.old_object,
        other => return Decision::silent(not_supported(request, other)),
    };
    let Some(object) = Object::parse(subject).filter(|object| is_bounded(object)) else {
        let message = "the object of the review cannot be read: no event is sent".to_owned();
        return Decision { event: None, message, wrong: Some(Wrong::Object) };
    };
    if request.dry_run == Some(true) {
        return Decision::silent(format!("dry run: no event is sent for watched resource {}", named(&object)));
    }
    if request.operation != "UPDATE" {
        return Decision::tell(&object);
    }
    // What cannot be read was different.
    let old = Object::parse(request.old_object);
    let subresource = request.sub_resource.as_deref().unwrap_or_default();
    let changed = match subresource {
        "" => old.is_none_or(|old| object_changed(&object, &old)),
        status if status.eq_ignore_ascii_case("status") => old.is_none_or(|old| !equal(object.status, old.status)),
        _ => {
            let message = format!("invalid subresource: watched resource {}", named(&object));
            return Decision { event: None, message, wrong: Some(Wrong::Subresource) };
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
        Decision { event: Some(event), message: TOLD.to_owned(), wrong: None }
    }

    fn silent(message: String) -> Decision {
        Decision { event: None, message, wrong: None }
    }
}

fn not_supported(request: &Request<'_>, operation: &str) -> String {
    let kind = &request.kind;
    let operation: String = operation.chars().take(NAME_BYTES_MAX).collect();
    // Spelled as Go prints the three: the message is compared with upstream's.
    let group_version =
        if kind.group.is_empty() { kind.version.clone() } else { format!("{}/{}", kind.group, kind.version) };
    format!("operation {operation} not supported for {group_version}, Kind={}", kind.kind)
}

fn named(object: &Object<'_>) -> String {
    format!("{}/{}", object.namespace(), object.metadata.name)
}

/// Whether all that goes into an event is as short as Kubernetes has it: what waits is bounded.
fn is_bounded(object: &Object<'_>) -> bool {
    [object.namespace(), &object.metadata.name, &object.api_version, &object.kind]
        .iter()
        .all(|text| text.len() <= NAME_BYTES_MAX)
}

/// Whether an update of the object itself counts.
fn object_changed(new: &Object<'_>, old: &Object<'_>) -> bool {
    let spec_changed = match (new.spec, old.spec) {
        (Some(new), Some(old)) => !equal(Some(new), Some(old)),
        // Without a spec on both sides there is nothing to compare: every update counts.
        _ => true,
    };
    spec_changed || (is_module_object(new, old) && metadata_changed(&new.metadata, &old.metadata))
}

/// Whether the control plane made the object, so that any change to it is drift. Without the label now or before it is
/// somebody else's.
fn is_module_object(new: &Object<'_>, old: &Object<'_>) -> bool {
    let gvk = Gvk::new(&new.api_version, &new.kind);
    (gvk.group.as_str(), gvk.kind.as_str()) != KYMA && (is_managed(&new.metadata) || is_managed(&old.metadata))
}

fn is_managed(metadata: &Metadata<'_>) -> bool {
    let (label, value) = MANAGED_BY;
    // Most objects are told apart by a look at the text.
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

/// Whether two JSON texts mean the same. What cannot be read into a tree (too deep) differs: an event too many costs
/// little.
fn equal(one: Option<&RawValue>, other: Option<&RawValue>) -> bool {
    match (one, other) {
        (None, None) => true,
        (Some(one), Some(other)) => {
            // API servers write both with one encoder, so that what is equal is nearly always equal as text.
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

/// Whether two numbers are one: integers exactly, and `1` is `1.0`.
fn equal_numbers(one: &Number, other: &Number) -> bool {
    let integer = |number: &Number| number.as_i128();
    match (integer(one), integer(other)) {
        (Some(one), Some(other)) => one == other,
        (None, None) => one.as_f64() == other.as_f64(),
        (Some(integer), None) => is_integer(other, integer),
        (None, Some(integer)) => is_integer(one, integer),
    }
}

/// Whether a number with a fraction or an exponent is this integer. Both sides are doubles here: a number written so is
/// one for whoever reads it.
fn is_integer(float: &Number, integer: i128) -> bool {
    #[expect(clippy::cast_precision_loss, reason = "compared as the double that it would be read as")]
    let integer = integer as f64;
    float.as_f64() == Some(integer)
}

#[cfg(test)]
mod tests;
