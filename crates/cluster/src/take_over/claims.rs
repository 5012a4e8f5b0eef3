//! Claims on fields, as `managedFields` has them, compared with an object that is to be applied.
//!
//! An apply claims exactly the fields of its body. If the claims on a live object are these already, and its values are
//! those of the body, the apply would change nothing. What is claimed as a whole must be the same in both, since an
//! apply also removes what is in it beside the body. In doubt the answer is no: an apply that changes nothing does no
//! harm.

use serde_json::{Map, Value};
use tidegate_core::changes::covers;

/// What every object has and no manager claims.
const UNCLAIMED: [&str; 2] = ["apiVersion", "kind"];
/// The same in `metadata`.
const UNCLAIMED_METADATA: [&str; 3] = ["name", "namespace", "creationTimestamp"];

/// Whether an apply of `desired` claims exactly these fields, and what is claimed as a whole is so in `live`.
pub(super) fn are_those_of(desired: &Value, live: &Value, claims: &Map<String, Value>) -> bool {
    let Some(mut desired) = desired.as_object().cloned() else { return false };
    desired.retain(|field, _| !UNCLAIMED.contains(&field.as_str()));
    if let Some(metadata) = desired.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.retain(|field, _| !UNCLAIMED_METADATA.contains(&field.as_str()));
        if metadata.is_empty() {
            desired.remove("metadata");
        }
    }
    are_of_map(&desired, live, claims)
}

fn are_of(value: &Value, live: &Value, claims: &Map<String, Value>) -> bool {
    match value {
        // A mapping or list that is claimed as a whole.
        Value::Object(_) | Value::Array(_) if claims.is_empty() => covers(value, live) && covers(live, value),
        _ if claims.is_empty() => true,
        Value::Object(map) => are_of_map(map, live, claims),
        Value::Array(items) => are_of_list(items, live, claims),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

fn are_of_map(map: &Map<String, Value>, live: &Value, claims: &Map<String, Value>) -> bool {
    let claimed: Vec<(&String, &Value)> = claims.iter().filter(|(field, _)| *field != ".").collect();
    claimed.len() == map.len() && claimed.iter().all(|(field, claims)| {
        let Some(field) = field.strip_prefix("f:") else { return false };
        matches!((map.get(field), claims), (Some(value), Value::Object(claims)) if are_of(value, &live[field], claims))
    })
}

fn are_of_list(items: &[Value], live: &Value, claims: &Map<String, Value>) -> bool {
    let claimed: Vec<(&String, &Value)> = claims.iter().filter(|(item, _)| *item != ".").collect();
    claimed.len() == items.len()
        && items.iter().all(|item| {
            let mut own = claimed.iter().filter(|(name, _)| is_item(item, name));
            match (own.next(), own.next()) {
                (Some((name, Value::Object(claims))), None) => {
                    let mut same = live.as_array().into_iter().flatten().filter(|live| is_item(live, name));
                    same.next().is_some_and(|live| are_of(item, live, claims))
                }
                _ => false,
            }
        })
}

/// Whether a claim on an item of a list is about this one: `k:` and its keys, or `v:` and its value.
fn is_item(item: &Value, claim: &str) -> bool {
    let parsed = |text: &str| serde_json::from_str::<Value>(text).ok();
    match claim.split_once(':') {
        Some(("v", value)) => parsed(value).as_ref() == Some(item),
        Some(("k", keys)) => {
            let keys = parsed(keys);
            let keys = keys.as_ref().and_then(Value::as_object);
            keys.is_some_and(|keys| keys.iter().all(|(key, value)| item.get(key).is_none_or(|own| own == value)))
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn service() -> Value {
        json!({
            "apiVersion": "v1", "kind": "Service",
            "metadata": {"name": "a", "namespace": "b", "labels": {"app": "a"}, "finalizers": ["x"]},
            "spec": {"selector": {"app": "a"}, "ports": [{"port": 80, "name": "http"}, {"port": 443, "name": "tls"}]},
        })
    }

    fn claims() -> Value {
        json!({
            "f:metadata": {"f:labels": {"f:app": {}}, "f:finalizers": {"v:\"x\"": {}}},
            "f:spec": {"f:selector": {}, "f:ports": {
                "k:{\"port\":80,\"protocol\":\"TCP\"}": {".": {}, "f:port": {}, "f:name": {}},
                "k:{\"port\":443,\"protocol\":\"TCP\"}": {".": {}, "f:port": {}, "f:name": {}},
            }},
        })
    }

    fn are(desired: &Value, claims: &Value) -> bool {
        are_those_of(desired, desired, claims.as_object().unwrap())
    }

    #[test]
    fn an_apply_claims_the_fields_of_its_body() {
        assert!(are(&service(), &claims()));
    }

    #[test]
    fn a_claim_more_or_less_is_another_apply() {
        let changes: [fn(&mut Value); 6] = [
            |desired| desired["metadata"]["labels"]["more"] = "b".into(),
            |desired| drop(desired["spec"]["ports"].as_array_mut().unwrap().pop()),
            |desired| desired["spec"]["ports"][1]["port"] = 444.into(),
            |desired| drop(desired["spec"]["ports"][0].as_object_mut().unwrap().remove("name")),
            |desired| desired["spec"]["type"] = "ClusterIP".into(),
            |desired| desired["metadata"]["finalizers"] = json!(["y"]),
        ];
        for (index, change) in changes.into_iter().enumerate() {
            let mut desired = service();
            change(&mut desired);
            assert!(!are(&desired, &claims()), "{index}");
        }
        let mut more = claims();
        more["f:metadata"]["f:annotations"] = json!({"f:old": {}});
        assert!(!are(&service(), &more));
    }

    #[test]
    fn an_item_that_two_claims_may_mean_is_in_doubt() {
        let desired = json!({"spec": {"ports": [{"port": 53}, {"port": 54}]}});
        let claims = json!({"f:spec": {"f:ports": {
            "k:{\"port\":53,\"protocol\":\"TCP\"}": {".": {}, "f:port": {}},
            "k:{\"port\":53,\"protocol\":\"UDP\"}": {".": {}, "f:port": {}},
        }}});
        assert!(!are(&desired, &claims));
    }
}
