//! Takes objects over from Lifecycle Manager, so that fields which only it declared disappear: all of its objects in
//! runtimes, and Manifests and certificates in the control plane. And from kcp-operator: the objects of kcp landscapes.
//!
//! Server-side apply removes a field only if no other manager claims it. Lifecycle Manager's old claims would keep
//! every field that a later version of its module drops. So Tidegate takes over its claims, once for each object, and
//! the next apply removes the fields that are no longer declared. If the object is as desired already, no apply
//! follows: the take-over is then one write. Claims of other managers, and those on a status, stay. So does what
//! `kubectl apply` noted on a definition, which Lifecycle Manager copies to runtimes: a write to every object of every
//! runtime is not worth it.
//!
//! kcp-operator updates objects, and does not apply them. Its claims become those of an apply, so that the next apply
//! removes what is no longer declared. Nothing but `tidegate adopt kcp` takes them over: `manager` is the name of many
//! programs.

use bytes::Bytes;
use serde_json::{Map, Value, json};

use super::{Cause, Cluster, ClusterName, Error, Kind, Metadata, OnConflict, Patch, position};
use tidegate_core::{
    api::names::FIELD_MANAGER,
    changes::covers,
    name::Key,
    object::{Object, ObjectId},
    secret,
};

mod claims;

/// The field managers of Lifecycle Manager in runtimes, and for Manifests.
const FORMER: [&str; 4] =
    ["declarative.kyma-project.io/applier", "lifecycle-manager", "catalog-sync", "kyma-sync-context"];

/// The field manager of Lifecycle Manager for certificates in the control plane.
const FORMER_OF_CERTIFICATES: &str = "operator.kyma-project.io/lifecycle-manager";

/// The field manager of Lifecycle Manager that applies a finalizer of Manifests. In runtimes it creates objects and
/// applies none.
pub(super) const FORMER_OF_FINALIZERS: &str = "resource.kyma-project.io/finalizer";

/// The field manager of kcp-operator: the name of its program. It updates.
const KCP_OPERATOR: &str = "manager";

/// Whose claims are taken over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Former {
    /// What Lifecycle Manager applied.
    LifecycleManager,
    /// What kcp-operator updated, and what Tidegate patched since.
    KcpOperator,
}

/// What `kubectl apply` notes on an object.
const LAST_APPLIED: &str = "f:kubectl.kubernetes.io/last-applied-configuration";

/// Fields that Lifecycle Manager's Go types always have, and that their CustomResourceDefinition sets to the same
/// value: by kind, below `spec`. Without a claim on them, they stay. So they need no apply that gives the claims up.
const DEFAULTED: [(&str, [&str; 2]); 1] = [("ModuleReleaseMeta", ["f:beta", "f:internal"])];

/// Tidegate's field manager and the others whose fields it takes over when it applies an object of a kind: an apply
/// removes those of their fields that it does not set.
pub fn managers_before(cluster: &ClusterName, kind: &str) -> &'static [&'static str] {
    const ALL: [&str; 6] = [FIELD_MANAGER, FORMER[0], FORMER[1], FORMER[2], FORMER[3], FORMER_OF_FINALIZERS];
    match (cluster, kind) {
        (ClusterName::Runtime(_), _) => &ALL[..5],
        (ClusterName::Kcp, "Manifest") => &ALL,
        (ClusterName::Kcp, "Certificate") => &[FIELD_MANAGER, FORMER_OF_CERTIFICATES],
        (ClusterName::Kcp | ClusterName::Placed(_) | ClusterName::Workspace { .. }, _) => &[FIELD_MANAGER],
    }
}

/// Whether the claims of a field manager are Tidegate's, or become Tidegate's in a runtime.
pub(super) fn is_taken_over(manager: &str) -> bool {
    manager == FIELD_MANAGER || FORMER.contains(&manager)
}

/// Whether an object may have claims to take over.
pub(super) fn is_due(cluster: &ClusterName, metadata: &Metadata) -> bool {
    let former = &managers_before(cluster, &metadata.id.kind)[1..];
    let is_former = |manager: &String| former.contains(&manager.as_str());
    metadata.managers.iter().any(is_former)
}

/// Whether Lifecycle Manager claims fields of an object that it applied, beside its status.
pub fn is_claimed(object: &Object) -> bool {
    merged(&entries(object.value()), Former::LifecycleManager).is_some()
}

/// Whether an apply of `desired` by Tidegate would change nothing of a live object: value by value and claim by claim,
/// and Lifecycle Manager claims nothing. In doubt, it would.
pub fn is_as_applied(desired: &Value, live: &Object) -> bool {
    let entries = entries(live.value());
    if entries.iter().any(|entry| Former::LifecycleManager.owns(entry)) {
        return false;
    }
    let is_ours = |entry: &&Value| is_operation(entry, "Apply") && entry["manager"] == FIELD_MANAGER;
    let mut ours = entries.iter().filter(is_ours);
    let (Some(ours), None) = (ours.next(), ours.next()) else { return false };
    let claims = ours["fieldsV1"].as_object().filter(|_| ours["apiVersion"] == desired["apiVersion"]);
    covers(desired, live.value()) && claims.is_some_and(|claims| claims::are_those_of(desired, live.value(), claims))
}

/// A live object as it is after [`Cluster::take_claims_of_kcp_operator`]; `None` if there is nothing to take over.
pub fn claimed_from_kcp_operator(object: &Object) -> Option<Value> {
    let merged = merged(&entries(object.value()), Former::KcpOperator)?;
    let mut after = object.value().clone();
    after["metadata"]["managedFields"] = merged.entries.into();
    Some(after)
}

/// Whether kcp-operator claims fields of an object, beside its status.
pub fn is_of_kcp_operator(object: &Object) -> bool {
    let is_its_own = |entry: &Value| Former::KcpOperator.owns(entry) && entry["manager"] == KCP_OPERATOR;
    entries(object.value()).iter().any(is_its_own)
}

/// What becomes of the claims on an object.
#[derive(Debug, PartialEq)]
struct Merged {
    /// `managedFields` with Lifecycle Manager's claims as Tidegate's.
    entries: Vec<Value>,
    /// Tidegate's claims in them.
    claims: Map<String, Value>,
    /// Whether Lifecycle Manager claimed more than Tidegate did.
    has_grown: bool,
}

/// Whether an entry is about the object itself, and of this operation.
fn is_operation(entry: &Value, operation: &str) -> bool {
    entry["operation"] == operation && entry.get("subresource").is_none_or(|s| s == "")
}

/// Merges the claims of another program into Tidegate's; `None` if it claims nothing.
fn merged(entries: &[Value], whose: Former) -> Option<Merged> {
    let applied = |entry: &Value| is_operation(entry, "Apply");
    let former = |entry: &Value| whose.owns(entry);
    let first = entries.iter().find(|entry| former(entry))?;
    let ours = entries.iter().find(|entry| applied(entry) && entry["manager"] == FIELD_MANAGER);
    let mut all = ours.and_then(|entry| entry["fieldsV1"].as_object().cloned()).unwrap_or_default();
    let mut has_grown = false;
    for claims in entries.iter().filter(|entry| former(entry)).filter_map(|entry| entry["fieldsV1"].as_object()) {
        has_grown |= unite(&mut all, &without_notes(claims));
    }
    // Where Tidegate claims nothing yet, its entry takes the place of the first one.
    let place = ours.unwrap_or(first);
    let rest = entries.iter().filter(|entry| std::ptr::eq(*entry, place) || !former(entry)).map(|entry| {
        let mut entry = entry.clone();
        if entry == *place {
            entry["manager"] = FIELD_MANAGER.into();
            entry["operation"] = "Apply".into();
            entry["fieldsV1"] = Value::Object(all.clone());
        }
        entry
    });
    Some(Merged { entries: rest.collect(), claims: all, has_grown })
}

/// What becomes of the claims on an object in a runtime: Lifecycle Manager's become Tidegate's, and those on texts of a
/// Secret become claims on its data, so that the next apply removes what is no longer declared. `None` if there are
/// neither.
fn merged_in_runtime(object: &Value) -> Option<Merged> {
    let mut all = entries(object);
    let mut claims_texts = false;
    let is_applied =
        |entry: &&mut Value| is_operation(entry, "Apply") && entry["manager"].as_str().is_some_and(is_taken_over);
    if secret::is_secret(object) {
        for entry in all.iter_mut().filter(is_applied) {
            claims_texts |= entry["fieldsV1"].as_object_mut().is_some_and(secret::fold_claims);
        }
    }
    merged(&all, Former::LifecycleManager).or_else(|| {
        let ours = all.iter().find(|entry| is_operation(entry, "Apply") && entry["manager"] == FIELD_MANAGER);
        let claims = ours?["fieldsV1"].as_object()?.clone();
        claims_texts.then_some(Merged { entries: all, claims, has_grown: false })
    })
}

/// The claims on an object, without those of Lifecycle Manager on what the API server sets anyway.
fn entries(object: &Value) -> Vec<Value> {
    let all = object.pointer("/metadata/managedFields").and_then(Value::as_array);
    let mut all = all.cloned().unwrap_or_default();
    let Some((_, fields)) = DEFAULTED.iter().find(|(kind, _)| object["kind"] == *kind) else { return all };
    for entry in all.iter_mut().filter(|entry| entry["manager"].as_str().is_some_and(|name| FORMER.contains(&name))) {
        if let Some(claims) = entry.pointer_mut("/fieldsV1/f:spec").and_then(Value::as_object_mut) {
            claims.retain(|field, _| !fields.contains(&field.as_str()));
        }
    }
    all
}

/// Adds the claims on a copy of a definition that were not taken over, as far as no other manager has them: on what the
/// API server sets anyway, and on what `kubectl apply` noted.
pub(super) fn claim_what_stayed(claims: &mut Value, object: &Value, rest: &[Value]) {
    let is_free = |path: &str| rest.iter().all(|entry| entry["fieldsV1"].pointer(path).is_none());
    let fields = DEFAULTED.iter().filter(|(kind, _)| object["kind"] == *kind).flat_map(|(_, fields)| fields);
    for field in fields {
        let is_set = !object["spec"][field.trim_start_matches("f:")].is_null();
        if is_set && is_free(&format!("/f:spec/{field}")) {
            claims["f:spec"][*field] = json!({});
        }
    }
    let noted = LAST_APPLIED.trim_start_matches("f:");
    let path = format!("/f:metadata/f:annotations/{}", LAST_APPLIED.replace('/', "~1"));
    if !object["metadata"]["annotations"][noted].is_null() && is_free(&path) {
        claims["f:metadata"]["f:annotations"][LAST_APPLIED] = json!({});
    }
}

/// Claims without that on what `kubectl apply` noted.
fn without_notes(claims: &Map<String, Value>) -> Map<String, Value> {
    let mut claims = claims.clone();
    if let Some(metadata) = claims.get_mut("f:metadata").and_then(Value::as_object_mut)
        && let Some(annotations) = metadata.get_mut("f:annotations").and_then(Value::as_object_mut)
    {
        annotations.remove(LAST_APPLIED);
        if annotations.is_empty() {
            metadata.remove("f:annotations");
        }
    }
    claims
}

/// Adds claims to others. Returns whether any was new.
pub(super) fn unite(all: &mut Map<String, Value>, more: &Map<String, Value>) -> bool {
    let mut grown = false;
    for (field, claims) in more {
        match (all.get_mut(field), claims) {
            (Some(Value::Object(known)), Value::Object(claims)) => grown |= unite(known, claims),
            (Some(_), _) => {}
            (None, claims) => {
                all.insert(field.clone(), claims.clone());
                grown = true;
            }
        }
    }
    grown
}

// === impl Former ===

impl Former {
    /// Whether an entry of `managedFields` is taken over.
    fn owns(self, entry: &Value) -> bool {
        let Some(manager) = entry["manager"].as_str() else { return false };
        match self {
            Former::LifecycleManager => {
                is_operation(entry, "Apply")
                    && (FORMER.contains(&manager) || [FORMER_OF_CERTIFICATES, FORMER_OF_FINALIZERS].contains(&manager))
            }
            Former::KcpOperator => is_operation(entry, "Update") && [KCP_OPERATOR, FIELD_MANAGER].contains(&manager),
        }
    }
}

// === impl Metadata ===

impl Metadata {
    /// Whether an object in a runtime has claims to take over before it is applied: those of Lifecycle Manager, and
    /// those on the texts of a Secret.
    pub fn has_other_claims(&self) -> bool {
        self.is_of_former() || self.claims_texts
    }

    /// Whether Lifecycle Manager claims fields of an object in a runtime.
    pub fn is_of_former(&self) -> bool {
        self.managers.iter().any(|manager| FORMER.contains(&manager.as_str()))
    }
}

// === impl Cluster ===

impl Cluster {
    /// Takes over the claims in the answer to an apply, and applies again if fields must be removed.
    pub(super) async fn take_over(
        &self,
        cause: &Cause,
        kind: &Kind,
        id: &ObjectId,
        answer: &[u8],
        body: Bytes,
    ) -> Result<Metadata, Error> {
        let object: Value = serde_json::from_slice(answer)
            .map_err(|error| self.misunderstood(kind, &Key::new(&id.namespace, &id.name), &position(&error)))?;
        let Some(merged) = merged_in_runtime(&object) else {
            return self.metadata(kind, id, answer);
        };
        let metadata = self.write_claims(cause, kind, id, &object, &merged).await?;
        if merged.has_grown {
            return self.patch(cause, kind, id, None, Patch::Apply(OnConflict::Force), body).await;
        }
        Ok(metadata)
    }

    /// Takes over the claims on a live object, with one write: those of Lifecycle Manager, and those on the texts of a
    /// Secret. Returns its metadata if it is as `body` desires, value
    /// by value and claim by claim. Otherwise it must still be applied.
    ///
    /// # Errors
    ///
    /// Fails if the object cannot be read, or if the API server refuses the write: another client may just have changed
    /// the object.
    pub(super) async fn take_claims(
        &self,
        cause: &Cause,
        kind: &Kind,
        id: &ObjectId,
        body: &[u8],
    ) -> Result<Option<Metadata>, Error> {
        let Some(live) = self.get(kind, &Key::new(&id.namespace, &id.name)).await? else { return Ok(None) };
        let live = live.value();
        let Some(merged) = merged_in_runtime(live) else { return Ok(None) };
        let metadata = self.write_claims(cause, kind, id, live, &merged).await?;
        let Ok(desired) = serde_json::from_slice::<Value>(body) else { return Ok(None) };
        let is_as_desired = covers(&desired, live) && claims::are_those_of(&desired, live, &merged.claims);
        Ok(is_as_desired.then_some(metadata))
    }

    /// Takes over the claims on an object as it was read, with one write, and changes nothing else. Returns its
    /// metadata. Sends nothing if Lifecycle Manager claims nothing.
    ///
    /// # Errors
    ///
    /// Fails if the API server refuses the write: another client may just have changed the object.
    pub async fn take_claims_of(&self, cause: &Cause, kind: &Kind, live: &Object) -> Result<Metadata, Error> {
        let (id, value) = (live.id(), live.value());
        match merged_in_runtime(value) {
            Some(merged) => self.write_claims(cause, kind, &id, value, &merged).await,
            None => self.metadata(kind, &id, value.to_string().as_bytes()),
        }
    }

    /// Takes over the claims of kcp-operator on an object as it was read, with one write, and changes nothing else.
    /// What Tidegate patched before becomes part of them. Sends nothing if there is nothing to take over.
    ///
    /// # Errors
    ///
    /// Fails if the API server refuses the write: another client may just have changed the object.
    pub async fn take_claims_of_kcp_operator(&self, cause: &Cause, kind: &Kind, live: &Object) -> Result<(), Error> {
        let (id, value) = (live.id(), live.value());
        match merged(&entries(value), Former::KcpOperator) {
            Some(merged) => self.write_claims(cause, kind, &id, value, &merged).await.map(drop),
            None => Ok(()),
        }
    }

    /// Replaces the claims on an object.
    async fn write_claims(
        &self,
        cause: &Cause,
        kind: &Kind,
        id: &ObjectId,
        object: &Value,
        merged: &Merged,
    ) -> Result<Metadata, Error> {
        // The resource version makes this a compare-and-swap: newer claims of others are never overwritten.
        let patch = json!([
            { "op": "replace", "path": "/metadata/managedFields", "value": merged.entries },
            { "op": "replace", "path": "/metadata/resourceVersion", "value": object["metadata"]["resourceVersion"] },
        ]);
        self.patch(cause, kind, id, None, Patch::Json, patch.to_string().into()).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(manager: &str, operation: &str, fields: &Value) -> Value {
        json!({"manager": manager, "operation": operation, "apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": fields})
    }

    #[test]
    fn claims_of_lifecycle_manager_become_ours_and_no_others() {
        let mut status = entry("lifecycle-manager", "Apply", &json!({"f:status": {}}));
        status["subresource"] = "status".into();
        let user = entry("kubectl", "Apply", &json!({"f:data": {"f:user": {}}}));
        let update = entry("lifecycle-manager", "Update", &json!({"f:metadata": {"f:finalizers": {}}}));
        let entries = [
            entry("declarative.kyma-project.io/applier", "Apply", &json!({"f:data": {"f:old": {}, "f:both": {}}})),
            user.clone(),
            entry(FIELD_MANAGER, "Apply", &json!({"f:data": {"f:both": {}, "f:new": {}}})),
            status.clone(),
            update.clone(),
        ];
        let Merged { entries: all, has_grown, .. } = merged(&entries, Former::LifecycleManager).unwrap();
        assert!(has_grown);
        let ours = entry(FIELD_MANAGER, "Apply", &json!({"f:data": {"f:both": {}, "f:new": {}, "f:old": {}}}));
        assert_eq!(all, [user.clone(), ours, status.clone(), update.clone()]);

        // Before the first apply.
        let Merged { entries: all, claims, .. } =
            merged(&[entries[0].clone(), user.clone(), status.clone()], Former::LifecycleManager).unwrap();
        let ours = entry(FIELD_MANAGER, "Apply", &json!({"f:data": {"f:old": {}, "f:both": {}}}));
        assert_eq!(all, [ours.clone(), user, status]);
        assert_eq!(Value::Object(claims), ours["fieldsV1"]);
    }

    /// The entries after a merge, and whether Lifecycle Manager claimed more.
    fn both(entries: &[Value]) -> Option<(Vec<Value>, bool)> {
        merged(entries, Former::LifecycleManager).map(|merged| (merged.entries, merged.has_grown))
    }

    #[test]
    fn there_is_nothing_to_do_without_its_claims_and_no_second_apply_without_more_of_them() {
        let ours = entry(FIELD_MANAGER, "Apply", &json!({"f:data": {"f:a": {}}}));
        assert_eq!(both(std::slice::from_ref(&ours)), None);
        let same = entry("catalog-sync", "Apply", &json!({"f:data": {"f:a": {}}}));
        assert_eq!(both(&[same, ours.clone()]), Some((vec![ours], false)));
    }

    #[test]
    fn an_apply_changes_nothing_if_values_and_claims_are_those_of_its_body() {
        let desired = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "namespace": "b"}, "data": {"a": "1"},
        });
        let live = |data: Value, entries: Value| {
            let mut live = desired.clone();
            live["data"] = data;
            live["metadata"]["managedFields"] = entries;
            Object::new(live).unwrap()
        };
        let ours = |fields: Value| entry(FIELD_MANAGER, "Apply", &fields);
        let claims = json!({"f:data": {"f:a": {}}});
        let is = |data: Value, entries: Value| is_as_applied(&desired, &live(data, entries));
        assert!(is(json!({"a": "1"}), json!([ours(claims.clone())])));
        let user = entry("kubectl", "Update", &json!({"f:data": {"f:b": {}}}));
        assert!(is(json!({"a": "1", "b": "2"}), json!([ours(claims.clone()), user])), "what others add stays");
        assert!(!is(json!({"a": "2"}), json!([ours(claims.clone())])), "another value");
        let dropped = json!({"f:data": {"f:a": {}, "f:b": {}}});
        assert!(!is(json!({"a": "1", "b": "2"}), json!([ours(dropped)])), "a field that is no longer desired goes");
        let former = entry("lifecycle-manager", "Apply", &claims);
        assert!(!is(json!({"a": "1"}), json!([ours(claims), former])), "its claims are taken over");
        assert!(!is(json!({"a": "1"}), json!([])), "nothing is claimed");

        // Claimed as a whole: what the next version drops in it has to go.
        let role = |rule: Value| {
            json!({
                "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "a"},
                "rules": [rule],
            })
        };
        let narrow = json!({"apiGroups": [""], "resources": ["secrets"], "resourceNames": ["a"], "verbs": ["get"]});
        let wide = json!({"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]});
        let mut live = role(narrow.clone());
        let claims = entry(FIELD_MANAGER, "Apply", &json!({"f:rules": {}}));
        let claims = claims.as_object().map(|claims| {
            let mut claims = claims.clone();
            claims.insert("apiVersion".to_owned(), "rbac.authorization.k8s.io/v1".into());
            claims
        });
        live["metadata"]["managedFields"] = json!([claims]);
        let live = Object::new(live).unwrap();
        assert!(is_as_applied(&role(narrow), &live), "it is the same");
        assert!(!is_as_applied(&role(wide), &live), "it drops a field");
    }

    #[test]
    fn claims_on_the_texts_of_a_secret_become_claims_on_its_data() {
        let texts =
            |manager: &str| entry(manager, "Apply", &json!({"f:stringData": {"f:a": {}, "f:b": {}}, "f:type": {}}));
        let user = entry("kubectl", "Apply", &json!({"f:stringData": {"f:c": {}}}));
        let secret = |kind: &str, entries: &[Value]| json!({"apiVersion": "v1", "kind": kind, "metadata": {"managedFields": entries}});
        let data = entry(FIELD_MANAGER, "Apply", &json!({"f:type": {}, "f:data": {"f:a": {}, "f:b": {}}}));
        for manager in [FIELD_MANAGER, "declarative.kyma-project.io/applier"] {
            let merged = merged_in_runtime(&secret("Secret", &[user.clone(), texts(manager)])).unwrap();
            assert_eq!(merged.entries, [user.clone(), data.clone()]);
            assert_eq!(Value::Object(merged.claims), data["fieldsV1"]);
        }
        assert_eq!(merged_in_runtime(&secret("Secret", &[user.clone(), data])), None, "once");
        assert_eq!(merged_in_runtime(&secret("SealedSecret", &[user, texts(FIELD_MANAGER)])), None);
    }

    #[test]
    fn the_finalizer_that_lifecycle_manager_applies_to_a_manifest_becomes_ours() {
        let finalizers = |names: &[&str]| {
            let claims: Map<String, Value> = names.iter().map(|name| (format!("v:\"{name}\""), json!({}))).collect();
            json!({"f:metadata": {"f:finalizers": claims}})
        };
        let of_manifest = entry("lifecycle-manager", "Apply", &json!({"f:spec": {"f:remote": {}}}));
        let of_resource = entry("resource.kyma-project.io/finalizer", "Apply", &finalizers(&["a", "b"]));
        let (all, has_grown) = both(&[of_manifest, of_resource]).unwrap();
        let mut claims = finalizers(&["a", "b"]);
        claims["f:spec"] = json!({"f:remote": {}});
        assert_eq!((all, has_grown), (vec![entry(FIELD_MANAGER, "Apply", &claims)], true));
        let before = |cluster: &ClusterName, kind: &str| managers_before(cluster, kind).to_vec();
        assert!(before(&ClusterName::Kcp, "Manifest").contains(&FORMER_OF_FINALIZERS));
        let runtime = ClusterName::Runtime(Key::new("kcp-system", "one"));
        assert!(!before(&runtime, "Thing").contains(&FORMER_OF_FINALIZERS), "what it creates there is the user's");
    }

    #[test]
    fn what_kubectl_noted_on_a_definition_stays_on_its_copy() {
        let labels = json!({"f:team": {}});
        let ours = entry(FIELD_MANAGER, "Apply", &json!({"f:metadata": {"f:labels": labels}}));
        let noted = |more: &Value| {
            let mut annotations = json!({"f:kubectl.kubernetes.io/last-applied-configuration": {}});
            annotations.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            entry("catalog-sync", "Apply", &json!({"f:metadata": {"f:annotations": annotations, "f:labels": labels}}))
        };
        assert_eq!(both(&[noted(&json!({})), ours.clone()]), Some((vec![ours.clone()], false)));
        let taken =
            entry(FIELD_MANAGER, "Apply", &json!({"f:metadata": {"f:labels": labels, "f:annotations": {"f:old": {}}}}));
        assert_eq!(both(&[noted(&json!({"f:old": {}})), ours]), Some((vec![taken], true)));
    }

    #[test]
    fn what_a_definition_defaults_needs_no_apply_that_gives_it_up() {
        let release = |kind: &str| {
            let spec = json!({"f:spec": {"f:beta": {}, "f:internal": {}, "f:moduleName": {}}});
            json!({"kind": kind, "metadata": {"managedFields": [entry("catalog-sync", "Apply", &spec)]}})
        };
        let claims =
            |kind: &str| Value::Object(merged(&entries(&release(kind)), Former::LifecycleManager).unwrap().claims);
        assert_eq!(claims("ModuleReleaseMeta"), json!({"f:spec": {"f:moduleName": {}}}));
        let all = json!({"f:spec": {"f:beta": {}, "f:internal": {}, "f:moduleName": {}}});
        assert_eq!(claims("Thing"), all, "of another kind, they may have to go");
    }

    #[test]
    fn what_kcp_operator_updated_and_tidegate_patched_becomes_one_apply_and_nothing_else() {
        let mut status = entry("manager", "Update", &json!({"f:status": {}}));
        status["subresource"] = "status".into();
        let user = entry("kubectl-edit", "Update", &json!({"f:metadata": {"f:annotations": {"f:team": {}}}}));
        let applied = entry("manager", "Apply", &json!({"f:spec": {"f:other": {}}}));
        let operator = entry("manager", "Update", &json!({"f:spec": {"f:template": {}}}));
        let patched = entry(FIELD_MANAGER, "Update", &json!({"f:metadata": {"f:labels": {"f:mark": {}}}}));
        let all = [user.clone(), operator, status.clone(), patched, applied.clone()];
        let ours = json!({"f:spec": {"f:template": {}}, "f:metadata": {"f:labels": {"f:mark": {}}}});
        let ours = entry(FIELD_MANAGER, "Apply", &ours);
        let merged = |entries: &[Value]| merged(entries, Former::KcpOperator).map(|merged| merged.entries);
        assert_eq!(merged(&all).unwrap(), [user, ours, status, applied]);
        assert_eq!(merged(&merged(&all).unwrap()), None, "once");
        assert_eq!(both(&all), None, "the take-over of Lifecycle Manager leaves them alone");
    }
}
