//! Objects that stay as kcp-operator left them: pure.
//!
//! A take-over must not restart pods, and must not have certificates issued anew. But Tidegate renders most Deployments
//! and some Certificates in another way than kcp-operator did. So `tidegate adopt kcp` gives them the label of their
//! resource and the annotation `tidegate.dev/adopted-as`, and changes nothing else of them. The annotation is a digest
//! of three things:
//!
//! * the resource's objects as Tidegate renders them without anything that only a cluster knows ([`definition`]),
//! * the object itself as Tidegate renders it, with the digest of what it mounts,
//! * the values of the live object where it differs from that.
//!
//! While the digest is what the daemon would write into the annotation now, the object is as desired, see [`is_held`].
//! It differs after each of these changes, and then the daemon applies the object as any other:
//!
//! * The resource changes, so that any of its objects does. This ends the hold of all objects of the resource.
//! * A mounted key changes. This ends the hold of the Deployments that mount it: pods that need a restart get one.
//! * Another client changes what differed, or makes another field differ. Then the object is repaired.
//!
//! Fields that Tidegate does not set are no part of it, such as defaults that a newer API server adds, and the number
//! of pods, if another controller decides it. The apply removes the annotation, and writes `tidegate.dev/digest`. An
//! object with that annotation is not held, whatever else it says: so nothing can bring an ended hold back.

use serde_json::{Value, json};
use tidegate_core::{
    api::names::annotation,
    changes::merged,
    object::{Digest, Object},
    plan::setup::Plan,
    render,
    template::Templates,
};

use super::{object::ObjectKind, state::Desired};

/// The part of an object that is compared.
const SPEC: &str = "spec";

/// Whether a change of objects of this kind restarts pods, or may have a certificate issued anew.
pub(super) fn is_holdable(kind: ObjectKind) -> bool {
    match kind {
        ObjectKind::Certificate | ObjectKind::Deployment => true,
        ObjectKind::Issuer
        | ObjectKind::Secret
        | ObjectKind::ConfigMap
        | ObjectKind::Service
        | ObjectKind::PodDisruptionBudget => false,
    }
}

/// The digest of all objects of a resource, without what only a cluster knows. `None` if a template fails: then it is
/// not known whether the resource has changed.
pub(super) fn definition(templates: &Templates, plan: &Plan) -> Option<Digest> {
    let all = render::setup(templates, plan, &|_| String::new()).into_iter();
    let digests: Vec<Digest> =
        all.map(|(_, object)| object.ok().map(|object| object.digest())).collect::<Option<_>>()?;
    Some(Digest::all(&digests))
}

/// What the annotation `tidegate.dev/adopted-as` of a live object says while the object stays as it is.
pub(super) fn adopted_as(definition: &Digest, desired: &Desired, live: &Value) -> Digest {
    let live = &live[SPEC];
    let after = merged(&desired.object.value()[SPEC], live);
    let mut differing = Vec::new();
    differences(&mut differing, String::new(), live, &after);
    let differing: Vec<Value> = differing.into_iter().map(|(path, live)| json!([path, live])).collect();
    Digest::all([&hold(definition, desired), &Digest::from_value(&Value::Array(differing))])
}

/// Identifies what a held object was compared with.
pub(super) fn hold(definition: &Digest, desired: &Desired) -> Digest {
    Digest::all([definition, &desired.digest])
}

/// Whether an object with these annotations may stay as kcp-operator left it: it was taken over, and not applied since.
pub(super) fn is_adopted<'a>(annotation: impl Fn(&str) -> Option<&'a str>) -> bool {
    annotation(annotation::ADOPTED_AS).is_some() && annotation(annotation::DIGEST).is_none()
}

/// Whether an object that was read stays as it is. `definition` is `None` if it is not known whether the resource has
/// changed.
pub(super) fn is_held(definition: Option<&Digest>, desired: &Desired, found: &Object) -> bool {
    let Some(noted) = found.annotation(annotation::ADOPTED_AS).filter(|_| is_adopted(|name| found.annotation(name)))
    else {
        return false;
    };
    definition.is_none_or(|definition| adopted_as(definition, desired, found.value()).to_string() == noted)
}

/// Collects the paths at which two values differ, each with the first value there.
pub(super) fn differences(all: &mut Vec<(String, Value)>, path: String, one: &Value, other: &Value) {
    match (one, other) {
        (Value::Object(one), Value::Object(other)) => {
            let more = other.keys().filter(|field| !one.contains_key(*field));
            let mut fields: Vec<&String> = one.keys().chain(more).collect();
            fields.sort();
            for field in fields {
                let of = |map: &serde_json::Map<String, Value>| map.get(field).cloned().unwrap_or_default();
                let is_plain = field.chars().all(char::is_alphanumeric);
                let below = match (is_plain, path.is_empty()) {
                    (true, true) => field.clone(),
                    (true, false) => format!("{path}.{field}"),
                    (false, _) => format!("{path}[{field:?}]"),
                };
                differences(all, below, &of(one), &of(other));
            }
        }
        (Value::Null, Value::Object(_)) => differences(all, path, &json!({}), other),
        (Value::Object(_), Value::Null) => differences(all, path, one, &json!({})),
        (Value::Array(one), Value::Array(other)) if one.len() == other.len() => {
            for (index, (one, other)) in one.iter().zip(other).enumerate() {
                differences(all, format!("{path}[{index}]"), one, other);
            }
        }
        (one, other) if one == other => {}
        (one, _) => all.push((path, one.clone())),
    }
}

#[cfg(test)]
mod tests;
