//! Reading what exists in a cluster of the user, and removing what the demo has made. Decides nothing.
//!
//! No controller removes a finalizer any more, so they go first. What is left then follows from the deletion of
//! definitions and namespaces.

use std::time::Duration;

use anyhow::{Context as _, anyhow};
use k8s_openapi::{
    api::{
        admissionregistration::v1::ValidatingWebhookConfiguration,
        core::v1::{ConfigMap, Namespace},
        rbac::v1::{ClusterRole, ClusterRoleBinding},
        scheduling::v1::PriorityClass,
    },
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Api, Client, ResourceExt as _,
    api::{ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams},
};
use serde_json::json;
use tidegate_core::api::names::{MANAGED_BY_SKR, label};
use tidegate_testbed as testbed;

use super::decide::{Role, Seen, is_made};

/// Longest time until everything is gone. Namespaces take the longest.
const GONE: Duration = Duration::from_secs(180);

/// What exists in a cluster. Fails if it does not answer.
pub(super) async fn look(client: &Client, role: Role, mark: (&str, &str)) -> anyhow::Result<Seen> {
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let all = namespaces.list(&ListParams::default()).await?;
    let system = all.iter().find(|one| one.name_any() == "kube-system").and_then(kube::ResourceExt::uid);
    let marks: Api<ConfigMap> = Api::namespaced(client.clone(), mark.0);
    let mark = marks.get_opt(mark.1).await?;
    let is_marked = mark.is_some();
    let marked_as = mark.and_then(|mark| Role::of_option(mark.data?.get("role")?));
    let labelled = match role {
        Role::ControlPlane => Vec::new(),
        Role::Runtime => labelled(client).await?,
    };
    Ok(Seen {
        uid: system.context("it has no namespace kube-system")?,
        is_marked,
        marked_as,
        namespaces: all.iter().map(kube::ResourceExt::name_any).collect(),
        definitions: definitions(client).await?.iter().map(kube::ResourceExt::name_any).collect(),
        labelled,
    })
}

/// Removes everything that the demo has made in a cluster, apart from its mark, and waits until it is gone.
pub(super) async fn all(client: &Client, role: Role) -> anyhow::Result<()> {
    if role == Role::Runtime {
        // The API server calls no webhook of the demo while the rest goes.
        remove_labelled(client).await?;
    }
    let made = definitions(client).await?;
    for definition in made.iter().filter(|one| is_made(&one.name_any())) {
        release(client, definition).await?;
    }
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    for definition in made.iter().filter(|one| is_made(&one.name_any())) {
        gone(api.delete(&definition.name_any(), &DeleteParams::default()).await.map(drop))?;
    }
    let namespaces: Api<Namespace> = Api::all(client.clone());
    for name in role.namespaces() {
        gone(namespaces.delete(name, &DeleteParams::default()).await.map(drop))?;
    }
    let left = testbed::until(GONE, async || {
        // Deletions that were under way may have left finalizers.
        let made = definitions(client).await.map_err(|error| error.to_string())?;
        let made: Vec<_> = made.iter().filter(|one| is_made(&one.name_any())).collect();
        for definition in &made {
            release(client, definition).await.map_err(|error| error.to_string())?;
        }
        let seen = look(client, role, ("default", "any")).await.map_err(|error| error.to_string())?;
        let namespaces = seen.namespaces.iter().filter(|name| role.namespaces().contains(&name.as_str()));
        let left: Vec<String> = made.iter().map(|one| one.name_any()).chain(namespaces.cloned()).collect();
        if left.is_empty() { Ok(()) } else { Err(left.join(", ")) }
    });
    left.await.map_err(|late| anyhow!("some of what the demo made still exists: {late}"))
}

/// Removes the mark of the demo.
pub(super) async fn mark(client: &Client, (namespace, name): (&str, &str)) -> anyhow::Result<()> {
    let marks: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
    gone(marks.delete(name, &DeleteParams::default()).await.map(drop))
}

async fn definitions(client: &Client) -> anyhow::Result<Vec<CustomResourceDefinition>> {
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    Ok(api.list(&ListParams::default()).await?.items)
}

/// The kinds of cluster-wide objects that the demo makes in a runtime, apart from definitions.
fn kinds() -> [ApiResource; 4] {
    [
        ApiResource::erase::<ValidatingWebhookConfiguration>(&()),
        ApiResource::erase::<ClusterRoleBinding>(&()),
        ApiResource::erase::<ClusterRole>(&()),
        ApiResource::erase::<PriorityClass>(&()),
    ]
}

/// The cluster-wide objects with the label of Kyma, apart from definitions: kind and name.
async fn labelled(client: &Client) -> anyhow::Result<Vec<String>> {
    let mut found = Vec::new();
    for kind in kinds() {
        let api: Api<DynamicObject> = Api::all_with(client.clone(), &kind);
        let all = api.list(&ListParams::default().labels(&ours())).await?;
        found.extend(all.iter().map(|one| format!("the {} {}", kind.kind, one.name_any())));
    }
    Ok(found)
}

async fn remove_labelled(client: &Client) -> anyhow::Result<()> {
    for kind in kinds() {
        let api: Api<DynamicObject> = Api::all_with(client.clone(), &kind);
        let removed = api.delete_collection(&DeleteParams::default(), &ListParams::default().labels(&ours())).await;
        gone(removed.map(drop))?;
    }
    Ok(())
}

fn ours() -> String {
    format!("{}={MANAGED_BY_SKR}", label::MANAGED_BY)
}

/// Removes the finalizers of all custom resources of a definition.
async fn release(client: &Client, definition: &CustomResourceDefinition) -> anyhow::Result<()> {
    let spec = &definition.spec;
    let Some(version) = spec.versions.iter().find(|version| version.served) else { return Ok(()) };
    let resource = ApiResource {
        group: spec.group.clone(),
        version: version.name.clone(),
        api_version: format!("{}/{}", spec.group, version.name),
        kind: spec.names.kind.clone(),
        plural: spec.names.plural.clone(),
    };
    let all: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
    let found = match all.list(&ListParams::default()).await {
        Ok(found) => found,
        // It is gone already.
        Err(kube::Error::Api(status)) if status.code == 404 => return Ok(()),
        Err(error) => return Err(error.into()),
    };
    for object in found.iter().filter(|object| !object.finalizers().is_empty()) {
        let api: Api<DynamicObject> = match object.namespace() {
            Some(namespace) => Api::namespaced_with(client.clone(), &namespace, &resource),
            None => all.clone(),
        };
        let free = Patch::Merge(json!({"metadata": {"finalizers": null}}));
        gone(api.patch(&object.name_any(), &PatchParams::default(), &free).await.map(drop))?;
    }
    Ok(())
}

/// What does not exist any more needs no request.
fn gone(result: kube::Result<()>) -> anyhow::Result<()> {
    match result {
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        result => Ok(result?),
    }
}
