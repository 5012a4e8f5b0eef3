// SPDX-License-Identifier: Apache-2.0

//! The work of the real server's controllers after a write, done at once before the answer: definitions are
//! established, dependents collected, namespaces emptied and Deployments made ready.
//!
//! There are no background tasks, except for a Deployment that becomes ready after a delay.

use std::sync::{Arc, Mutex, PoisonError};

use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::{
    Readiness, Server, crd,
    delete::{CLEANUP, DeleteOptions, Policy},
    patch::{Write, tidy_metadata, track_update},
    resource::{DEFINITIONS, NAMESPACES, Resource},
    store::{Draft, Object, key, split_key},
};

/// Limit of retries of our own changes after concurrent writes.
const TRIES_MAX: usize = 8;

impl Server {
    /// What the server adds to a new object.
    pub(super) fn begin(&self, resource: &Resource, object: &mut Value) {
        match &*resource.collection {
            NAMESPACES => {
                let name = object["metadata"]["name"].clone();
                object["metadata"]["labels"]["kubernetes.io/metadata.name"] = name;
                object["status"] = json!({"phase": "Active"});
            }
            DEFINITIONS => {
                let names = object["spec"]["names"].clone();
                let kind = names["kind"].as_str().unwrap_or_default();
                if names["singular"].as_str().unwrap_or_default().is_empty() {
                    object["spec"]["names"]["singular"] = kind.to_lowercase().into();
                }
                if names["listKind"].as_str().unwrap_or_default().is_empty() {
                    object["spec"]["names"]["listKind"] = format!("{kind}List").into();
                }
                let versions = object["spec"]["versions"].as_array().into_iter().flatten();
                let stored: Vec<Value> = versions
                    .filter(|version| version["storage"] == true)
                    .map(|version| version["name"].clone())
                    .collect();
                object["status"] =
                    json!({"conditions": null, "acceptedNames": {"plural": "", "kind": ""}, "storedVersions": stored});
                if object["spec"]["conversion"].is_null() {
                    object["spec"]["conversion"] = json!({"strategy": "None"});
                }
            }
            "deployments.apps" => object["status"] = json!({}),
            "statefulsets.apps" => object["status"] = json!({"replicas": 0, "availableReplicas": 0}),
            "replicasets.apps" => object["status"] = json!({"replicas": 0}),
            "daemonsets.apps" => {
                object["status"] = json!({
                    "currentNumberScheduled": 0, "numberMisscheduled": 0, "desiredNumberScheduled": 0, "numberReady": 0,
                });
            }
            _ => {}
        }
    }

    /// What the server adds after ownership is determined.
    pub(super) fn hold(&self, resource: &Resource, object: &mut Value) {
        if resource.is(NAMESPACES) {
            object["spec"]["finalizers"] = json!(["kubernetes"]);
        }
    }

    /// Acts on an object that was created or changed.
    pub(super) fn settle(&self, resource: &Resource, place: &Arc<str>, object: &Arc<Object>) {
        match &*resource.collection {
            DEFINITIONS => self.settle_definition(place, object),
            NAMESPACES if object.deleting => self.empty(place),
            "deployments.apps" => self.settle_workload(resource, place, object),
            "mutatingwebhookconfigurations.admissionregistration.k8s.io"
            | "validatingwebhookconfigurations.admissionregistration.k8s.io" => self.webhooks_changed(),
            _ => {}
        }
        if object.deleting {
            self.release(&resource.collection, place);
        } else if !object.owners.is_empty() {
            self.collect(resource, place);
        }
    }

    /// Acts on an object that is gone.
    pub(super) fn gone(&self, resource: &Resource, place: &Arc<str>, object: &Arc<Object>) {
        match &*resource.collection {
            DEFINITIONS => {
                self.forget_definition(place);
                self.settle_others(place.split_once('.').map_or("", |(_, group)| group));
            }
            "mutatingwebhookconfigurations.admissionregistration.k8s.io"
            | "validatingwebhookconfigurations.admissionregistration.k8s.io" => self.webhooks_changed(),
            _ => {}
        }
        for (collection, key) in self.0.store.owned_by(&object.uid) {
            if let Some(resource) = self.resource_of(&collection) {
                self.collect(&resource, &key);
            }
        }
        // Objects that waited for this one may go now.
        for uid in &object.owners {
            self.release_owner(uid, object);
        }
        let (namespace, _) = split_key(place);
        if !namespace.is_empty() {
            let namespace: Arc<str> = namespace.into();
            if self.0.store.get(NAMESPACES, &namespace).is_some_and(|found| found.deleting) {
                self.finish_namespace(&namespace);
            }
        }
        if let Some(definition) = &resource.custom.as_ref().map(|_| &resource.collection) {
            self.finish_definition(definition);
        }
    }

    // --- definitions ---

    fn settle_definition(&self, place: &Arc<str>, object: &Arc<Object>) {
        // Its resources are served until it is gone.
        if object.deleting {
            self.clean_up_definition(place);
            return;
        }
        let value = object.value();
        let is_served = self.custom().values().any(|resource| *resource.collection == **place);
        let conflict = if is_served { None } else { self.name_conflict(&value) };
        if conflict.is_none()
            && let Ok(defined) = crd::define(&value)
        {
            self.serve(&defined, place);
        }
        let status = crd::accepted_status(&value, conflict.as_ref(), self.0.clock.now());
        let accepted = value["status"]["acceptedNames"] == status["acceptedNames"];
        let conditions = value["status"]["conditions"].as_array().map(Vec::as_slice).unwrap_or_default();
        let wanted = if conflict.is_none() { "True" } else { "False" };
        let established = conditions.len() == 2 && conditions.iter().all(|condition| condition["status"] == wanted);
        let stored =
            value["spec"]["versions"].as_array().into_iter().flatten().find(|version| version["storage"] == true);
        let stored = stored.map(|version| version["name"].clone()).unwrap_or_default();
        let is_known = value["status"]["storedVersions"].as_array().is_some_and(|of| of.contains(&stored));
        if accepted && established && is_known {
            return;
        }
        self.amend(DEFINITIONS, place, "kube-apiserver", Some("status"), |after| {
            if !(accepted && established) {
                after["status"] = crd::accepted_status(after, conflict.as_ref(), self.0.clock.now());
            }
            if !is_known && let Some(versions) = after["status"]["storedVersions"].as_array_mut() {
                versions.push(stored.clone());
            }
        });
    }

    /// Why a definition cannot be established: another one of its group has one of its names.
    fn name_conflict(&self, definition: &Value) -> Option<crd::Conflict> {
        let (group, names) = (&definition["spec"]["group"], &definition["spec"]["names"]);
        let custom = self.custom();
        let others: Vec<&Resource> =
            custom.values().map(|of| &**of).filter(|other| *group == *other.kind.group).collect();
        let is_kind = |name: &str| others.iter().any(|other| *other.kind.kind == *name || *other.list_kind == *name);
        let is_resource = |name: &str| {
            let has = |other: &&Resource| {
                *other.plural == *name
                    || *other.singular == *name
                    || other.short_names.iter().any(|short| short == name)
            };
            others.iter().any(has)
        };
        let text = |field: &str| names[field].as_str().unwrap_or_default();
        let short = names["shortNames"].as_array().into_iter().flatten().filter_map(Value::as_str);
        // The server reports only the last conflict, in this order.
        let used = |name: &str| format!("{} is already in use", Value::from(name));
        let conflict = |reason: &'static str, name: &str| (reason, used(name));
        if is_kind(text("listKind")) {
            return Some(conflict("ListKindConflict", text("listKind")));
        }
        if is_kind(text("kind")) {
            return Some(conflict("KindConflict", text("kind")));
        }
        if let Some(name) = short.into_iter().find(|name| is_resource(name)) {
            return Some(conflict("ShortNamesConflict", name));
        }
        let singular = text("singular");
        (!singular.is_empty() && is_resource(singular)).then(|| conflict("SingularConflict", singular))
    }

    /// Establishes definitions that waited for the names of another one.
    fn settle_others(&self, group: &str) {
        for (place, object) in self.0.store.all(DEFINITIONS) {
            let is_of_group = place.split_once('.').is_some_and(|(_, of)| of == group);
            if is_of_group && !object.deleting && self.resource_of(&place).is_none() {
                self.settle_definition(&place, &object);
            }
        }
    }

    /// Deletes all objects of a definition that is being deleted.
    fn clean_up_definition(&self, place: &Arc<str>) {
        let collection: Arc<str> = Arc::clone(place);
        if let Some(resource) = self.resource_of(&collection) {
            for (key, _) in self.0.store.all(&collection) {
                let (namespace, name) = split_key(&key);
                let _ = self.delete_now(&resource, namespace, name, &DeleteOptions::with(Policy::Background));
            }
        }
        self.finish_definition(&collection);
    }

    /// Removes a definition that is being deleted and has no objects any more.
    fn finish_definition(&self, collection: &Arc<str>) {
        let waiting = self.0.store.get(DEFINITIONS, collection).is_some_and(|definition| definition.deleting);
        if waiting && self.0.store.all(collection).is_empty() {
            self.drop_finalizer(DEFINITIONS, collection, CLEANUP);
        }
    }

    // --- namespaces ---

    /// Deletes the contents of a namespace that is being deleted.
    fn empty(&self, namespace: &Arc<str>) {
        for (collection, key) in self.0.store.in_namespace(namespace) {
            if let Some(resource) = self.resource_of(&collection) {
                let (namespace, name) = split_key(&key);
                let _ = self.delete_now(&resource, namespace, name, &DeleteOptions::with(Policy::Background));
            }
        }
        self.finish_namespace(namespace);
    }

    fn finish_namespace(&self, namespace: &Arc<str>) {
        if !self.0.store.in_namespace(namespace).is_empty() {
            return;
        }
        self.amend(NAMESPACES, namespace, "kube-controller-manager", Some("finalize"), |after| {
            after["spec"] = json!({});
        });
    }

    // --- owners ---

    /// Deletes an object without remaining owners, and removes references to missing owners.
    fn collect(&self, resource: &Resource, place: &Arc<str>) {
        let Some(object) = self.0.store.get(&resource.collection, place) else { return };
        let value = object.metadata_value();
        let owners = value["ownerReferences"].as_array().map(Vec::as_slice).unwrap_or_default();
        let (namespace, name) = split_key(place);
        let there: Vec<&Value> = owners.iter().filter(|owner| self.is_there(owner, namespace)).collect();
        if there.len() == owners.len() {
            return;
        }
        if there.is_empty() {
            let _ = self.delete_now(resource, namespace, name, &DeleteOptions::with(Policy::Background));
            return;
        }
        let there: Vec<Value> = there.into_iter().cloned().collect();
        self.amend(&resource.collection, place, "kube-controller-manager", None, |after| {
            after["metadata"]["ownerReferences"] = json!(there);
        });
    }

    /// Whether an owner exists. An owner of an unknown kind may exist.
    fn is_there(&self, owner: &Value, namespace: &str) -> bool {
        let text = |field: &str| owner[field].as_str().unwrap_or_default();
        let Some(resource) = self.resource_of_kind(text("apiVersion"), text("kind")) else { return true };
        let namespace = if resource.namespaced { namespace } else { "" };
        let found = self.0.store.get(&resource.collection, &key(namespace, text("name")));
        found.is_some_and(|found| *found.uid == *text("uid"))
    }

    /// Handles the finalizers of propagation: deletes or orphans the dependents.
    fn release(&self, collection: &Arc<str>, place: &Arc<str>) {
        let Some(object) = self.0.store.get(collection, place) else { return };
        let metadata = object.metadata_value();
        let has =
            |finalizer: &str| metadata["finalizers"].as_array().is_some_and(|of| of.iter().any(|one| one == finalizer));
        if has("orphan") {
            for (owned, key) in self.0.store.owned_by(&object.uid) {
                self.amend(&owned, &key, "kube-controller-manager", None, |after| {
                    if let Some(owners) = after["metadata"]["ownerReferences"].as_array_mut() {
                        owners.retain(|owner| owner["uid"] != *object.uid);
                    }
                });
            }
            self.drop_finalizer(collection, place, "orphan");
        } else if has("foregroundDeletion") {
            for (owned, key) in self.0.store.owned_by(&object.uid) {
                let Some(resource) = self.resource_of(&owned) else { continue };
                let Some(dependent) = self.0.store.get(&owned, &key).filter(|dependent| !dependent.deleting) else {
                    continue;
                };
                let (namespace, name) = split_key(&key);
                let policy = if blocks(&dependent, &object.uid) { Policy::Foreground } else { Policy::Background };
                let _ = self.delete_now(&resource, namespace, name, &DeleteOptions::with(policy));
            }
            self.release_if_free(collection, place, &object.uid);
        }
    }

    fn release_owner(&self, uid: &str, dependent: &Object) {
        let metadata = dependent.metadata_value();
        let owners = metadata["ownerReferences"].as_array().into_iter().flatten();
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        for owner in owners.filter(|owner| owner["uid"] == *uid) {
            let Some(resource) = self.resource_of_kind(&text(&owner["apiVersion"]), &text(&owner["kind"])) else {
                continue;
            };
            let namespace = if resource.namespaced { text(&metadata["namespace"]) } else { String::new() };
            let place = key(&namespace, &text(&owner["name"]));
            let found = self.0.store.get(&resource.collection, &place);
            if found.is_some_and(|found| found.deleting && *found.uid == *uid) {
                self.release_if_free(&resource.collection, &place, uid);
            }
        }
    }

    /// Removes an object that waited for its dependents, if no blocking one is left.
    fn release_if_free(&self, collection: &Arc<str>, place: &Arc<str>, uid: &str) {
        let blocked = self
            .0
            .store
            .owned_by(uid)
            .iter()
            .any(|(owned, key)| self.0.store.get(owned, key).is_some_and(|dependent| blocks(&dependent, uid)));
        if !blocked {
            self.drop_finalizer(collection, place, "foregroundDeletion");
        }
    }

    // --- workloads ---

    fn settle_workload(&self, resource: &Resource, place: &Arc<str>, object: &Arc<Object>) {
        let value = object.value();
        if object.deleting || value["status"]["observedGeneration"] == value["metadata"]["generation"] {
            return;
        }
        let (namespace, name) = split_key(place);
        let Readiness::After(delay) = self.readiness(namespace, name) else {
            self.report(resource, place, false);
            return;
        };
        if delay.is_zero() {
            self.report(resource, place, true);
            return;
        }
        self.report(resource, place, false);
        // The task holds only a weak reference, so that it does not keep the server alive.
        let (server, collection, place) =
            (Arc::downgrade(&self.0), Arc::clone(&resource.collection), Arc::clone(place));
        let generation = value["metadata"]["generation"].clone();
        self.0.tasks.spawn(async move {
            tokio::time::sleep(delay).await;
            let Some(server) = server.upgrade().map(Server) else { return };
            let Some(resource) = server.resource_of(&collection) else { return };
            let live = server.0.store.get(&collection, &place).map(|object| object.metadata_value());
            if live.is_some_and(|live| live["generation"] == generation) {
                server.report(&resource, &place, true);
            }
        });
    }

    /// Writes the status of a Deployment: all of its replicas are ready, or none.
    fn report(&self, resource: &Resource, place: &Arc<str>, ready: bool) {
        let now = self.0.clock.now_text();
        let (_, name) = split_key(place);
        self.amend(&resource.collection, place, "kube-controller-manager", Some("status"), |after| {
            let replicas = after["spec"]["replicas"].as_i64().unwrap_or(1);
            let condition = |kind: &str, holds: bool, reason: &str, message: String| {
                json!({
                    "type": kind, "status": if holds { "True" } else { "False" }, "lastUpdateTime": now,
                    "lastTransitionTime": now, "reason": reason, "message": message,
                })
            };
            let available = if ready || replicas == 0 {
                condition(
                    "Available",
                    true,
                    "MinimumReplicasAvailable",
                    "Deployment has minimum availability.".to_owned(),
                )
            } else {
                let message = "Deployment does not have minimum availability.".to_owned();
                condition("Available", false, "MinimumReplicasUnavailable", message)
            };
            let progressing = if ready {
                let message = format!("Deployment \"{name}\" has successfully progressed.");
                condition("Progressing", true, "NewReplicaSetAvailable", message)
            } else {
                condition("Progressing", true, "ReplicaSetUpdated", format!("Deployment \"{name}\" is progressing."))
            };
            let mut status = json!({"observedGeneration": after["metadata"]["generation"]});
            if replicas > 0 {
                status["replicas"] = json!(replicas);
                status["updatedReplicas"] = json!(replicas);
                if ready {
                    status["readyReplicas"] = json!(replicas);
                    status["availableReplicas"] = json!(replicas);
                } else {
                    status["unavailableReplicas"] = json!(replicas);
                }
            }
            status["conditions"] = json!([available, progressing]);
            after["status"] = status;
        });
    }

    // --- our own changes ---

    fn drop_finalizer(&self, collection: &str, place: &Arc<str>, finalizer: &str) {
        self.amend(collection, place, "kube-controller-manager", None, |after| {
            let Some(metadata) = after["metadata"].as_object_mut() else { return };
            let Some(finalizers) = metadata.get_mut("finalizers").and_then(Value::as_array_mut) else { return };
            finalizers.retain(|one| one != finalizer);
            if finalizers.is_empty() {
                metadata.shift_remove("finalizers");
            }
        });
    }

    /// Changes an object as a controller, under its own name, and removes the object if nothing holds it any more.
    fn amend(
        &self,
        collection: &str,
        place: &Arc<str>,
        manager: &str,
        subresource: Option<&str>,
        change: impl Fn(&mut Value),
    ) {
        let Some(resource) = self.resource_of(collection) else { return };
        for _ in 0..TRIES_MAX {
            let Some(live) = self.0.store.get(collection, place) else { return };
            let before = live.value();
            let mut after = before.clone();
            change(&mut after);
            tidy_metadata(&mut after);
            if after == before {
                return;
            }
            if super::metadata::is_finished(&resource, &after) {
                if self.0.store.remove(&resource.collection, place, live.version).is_ok() {
                    self.gone(&resource, place, &live);
                    return;
                }
                continue;
            }
            let now = self.0.clock.now();
            let write = Write { manager, subresource, api_version: &resource.stored, now, force: false };
            let after = track_update(&resource.schema, Some(&before), after, &write);
            if let Ok(stored) =
                self.0.store.put(&resource.collection, place, Some(live.version), Draft::from_object(&after))
            {
                // A status change triggers no controller.
                if subresource != Some("status") {
                    self.settle(&resource, place, &stored);
                }
                return;
            }
        }
    }
}

/// Whether a dependent blocks the deletion of its owner.
fn blocks(dependent: &Object, owner: &str) -> bool {
    let metadata = dependent.metadata_value();
    let owners = metadata["ownerReferences"].as_array().into_iter().flatten();
    owners.filter(|reference| reference["uid"] == *owner).any(|reference| reference["blockOwnerDeletion"] == true)
}

/// The tasks of one server, which end with it.
#[derive(Debug, Default)]
pub(super) struct Tasks(Mutex<JoinSet<()>>);

// === impl Tasks ===

impl Tasks {
    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let mut tasks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        while tasks.try_join_next().is_some() {}
        tasks.spawn(task);
    }
}
