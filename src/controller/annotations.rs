//! Removes annotations with which users said something about one state of an object, once that state is over: a
//! confirmation that has been carried out, or the reason of a suspension that has ended.
//!
//! An annotation that a client declares by server-side apply, such as one in git, stays: that client would set it
//! again.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::{Value, json};
use tidegate_cluster::{Cause, Cluster, Error, Kind};
use tidegate_core::landscape;

/// Removes an annotation of an object, if it still has the value of `known` and no client declares it. Sends one read,
/// and at most one write.
///
/// # Errors
///
/// Errors of the control plane. An object that another client has changed meanwhile or deleted is none: it stays as it
/// is.
pub(crate) async fn remove(
    kcp: &Cluster,
    cause: &Cause,
    kind: &Kind,
    known: &ObjectMeta,
    name: &str,
) -> Result<(), Error> {
    match try_remove(kcp, cause, kind, known, name).await {
        Ok(_) | Err(Error::NotFound { .. } | Error::Changed { .. }) => Ok(()),
        Err(error) => Err(error),
    }
}

/// As [`remove`], for what may go on only without the annotation. Returns whether this call has removed it.
///
/// # Errors
///
/// Errors of the control plane, also that another client has changed the object meanwhile.
pub(crate) async fn try_remove(
    kcp: &Cluster,
    cause: &Cause,
    kind: &Kind,
    known: &ObjectMeta,
    name: &str,
) -> Result<bool, Error> {
    let key = landscape::key(known);
    let live = kcp.get_object_meta(kind, &key).await?;
    let Some(version) = live.as_ref().and_then(|live| removable(known, live, name)) else { return Ok(false) };
    let body = json!({ "metadata": { "resourceVersion": version, "annotations": { name: Value::Null } } });
    kcp.merge_patch(cause, kind, &kind.id(&key), None, body.to_string().into()).await.map(|_| true)
}

/// The version at which the annotation may be removed.
fn removable<'l>(known: &ObjectMeta, live: &'l ObjectMeta, name: &str) -> Option<&'l str> {
    let value = landscape::annotation(live, name)?;
    let is_same = live.uid == known.uid && landscape::annotation(known, name) == Some(value);
    let is_declared = live.managed_fields.iter().flatten().any(|entry| {
        let fields = entry.fields_v1.as_ref().map(|fields| &fields.0["f:metadata"]["f:annotations"]);
        let has_it = fields.and_then(|fields| fields.get(format!("f:{name}"))).is_some();
        entry.operation.as_deref() == Some("Apply") && has_it
    });
    live.resource_version.as_deref().filter(|_| is_same && !is_declared)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_a_user_set_and_nobody_changed_is_removed() {
        let object = |uid: &str, value: &str, operation: &str| -> ObjectMeta {
            let fields = json!({"f:metadata": {"f:annotations": {"f:tidegate.dev/suspended": {}}}});
            let entry = json!({"manager": "a", "operation": operation, "fieldsType": "FieldsV1", "fieldsV1": fields});
            let metadata = json!({
                "name": "a", "uid": uid, "resourceVersion": "7", "annotations": {"tidegate.dev/suspended": value},
                "managedFields": [entry],
            });
            serde_json::from_value(metadata).unwrap()
        };
        let known = ObjectMeta { managed_fields: None, ..object("1", "by alice", "Update") };
        let removable = |live: &ObjectMeta, name| super::removable(&known, live, name).map(str::to_owned);
        let name = "tidegate.dev/suspended";
        assert_eq!(removable(&object("1", "by alice", "Update"), name).as_deref(), Some("7"));
        for (why, live) in [
            ("it is in git", object("1", "by alice", "Apply")),
            ("another user has suspended it", object("1", "by bob", "Update")),
            ("another object has its name", object("2", "by alice", "Update")),
        ] {
            assert_eq!(removable(&live, name), None, "{why}");
        }
        assert_eq!(removable(&object("1", "by alice", "Update"), "tidegate.dev/other"), None);
    }
}
