//! The limit: every object of ours in its final form, applied once by a bare client over sixteen connections.
//!
//! CRDs first, and waited for; then namespaces; then everything else; then the statuses.

use std::time::{Duration, Instant};

use anyhow::Context as _;
use bytes::Bytes;
use futures::{StreamExt, stream};
use serde_json::{Value, json};

use crate::{
    api::{
        self,
        names::{KCP_NAMESPACE, MANAGED_BY_SKR, label},
    },
    cluster::{self, Cause, Cluster, ClusterName, Kind, OnConflict, access},
    name::Key,
    object::{Gvk, Object, Stage},
    testbed::{self, ControlPlane},
};

/// Requests under way at once, over all clusters.
const CONNECTIONS: usize = 16;

/// The final objects of each cluster, KCP first.
pub(super) struct Objects(Vec<Vec<(Kind, Object)>>);

/// What the bare client took.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limit {
    /// Wall time.
    pub(super) wall: Duration,
    /// Requests, all of them writes.
    pub(super) writes: usize,
}

// === impl Objects ===

impl Objects {
    /// How many there are.
    pub(super) fn count(&self) -> usize {
        self.0.iter().map(Vec::len).sum()
    }
}

/// Reads every object of ours from the clusters.
pub(super) async fn collect(clusters: &[ControlPlane]) -> anyhow::Result<Objects> {
    let mut all = Vec::with_capacity(clusters.len());
    for (index, server) in clusters.iter().enumerate() {
        let cluster = client(server)?;
        let mut objects = Vec::new();
        for gvk in if index == 0 { kcp_kinds() } else { skr_kinds() } {
            let Some(kind) = cluster.kind(&gvk).await? else { continue };
            let selector = (index > 0).then(|| format!("{}={MANAGED_BY_SKR}", label::MANAGED_BY));
            let namespace = (index == 0).then_some(KCP_NAMESPACE);
            for object in cluster.list(&kind, namespace, selector.as_deref()).await? {
                objects.push((kind.clone(), bare(object)));
            }
        }
        objects.sort_by(|(_, one), (_, other)| one.id().apply_order().cmp(&other.id().apply_order()));
        all.push(objects);
    }
    Ok(Objects(all))
}

fn kcp_kinds() -> Vec<Gvk> {
    ["ModuleTemplate", "ModuleReleaseMeta", "Kyma", "Manifest"]
        .map(|kind| Gvk::new(api::KYMA_GROUP, api::KYMA_VERSION, kind))
        .into()
}

fn skr_kinds() -> Vec<Gvk> {
    let rbac = "rbac.authorization.k8s.io";
    let mut kinds = vec![
        Gvk::new("apiextensions.k8s.io", "v1", "CustomResourceDefinition"),
        Gvk::new("", "v1", "Namespace"),
        Gvk::new("", "v1", "ServiceAccount"),
        Gvk::new("", "v1", "ConfigMap"),
        Gvk::new(rbac, "v1", "Role"),
        Gvk::new(rbac, "v1", "RoleBinding"),
        Gvk::new(rbac, "v1", "ClusterRole"),
        Gvk::new(rbac, "v1", "ClusterRoleBinding"),
        Gvk::new("admissionregistration.k8s.io", "v1", "ValidatingWebhookConfiguration"),
    ];
    kinds.extend(
        ["ModuleTemplate", "ModuleReleaseMeta", "Kyma"].map(|kind| Gvk::new(api::KYMA_GROUP, api::KYMA_VERSION, kind)),
    );
    kinds
}

/// An object without what the server added.
fn bare(mut object: Object) -> Object {
    let metadata = object.metadata_mut();
    for field in ["managedFields", "uid", "resourceVersion", "creationTimestamp", "generation"] {
        metadata.shift_remove(field);
    }
    object
}

fn client(server: &ControlPlane) -> anyhow::Result<Cluster> {
    let text = server.kubeconfig().text();
    let config = access::parse(text.as_bytes())?.config()?;
    let limits = cluster::Limits { concurrency: CONNECTIONS, ..cluster::Limits::default() };
    Ok(Cluster::new(ClusterName::Kcp, &config, limits)?)
}

/// Applies the objects to fresh clusters.
pub(super) async fn apply(clusters: &[ControlPlane], objects: &Objects) -> anyhow::Result<Limit> {
    // What the daemon found in KCP is not part of what it writes.
    let kcp = clusters[0].client()?;
    let crds: Vec<Value> = api::crds().iter().map(serde_json::to_value).collect::<Result<_, _>>()?;
    testbed::install_crds(&kcp, &crds).await?;
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": KCP_NAMESPACE}});
    testbed::apply(&kcp, &namespace).await?;
    let clients: Vec<Cluster> = clusters.iter().map(client).collect::<Result<_, _>>()?;

    let started = Instant::now();
    let mut writes = 0;
    for wave in [Wave::Definitions, Wave::Namespaces, Wave::Objects, Wave::Statuses] {
        let tasks: Vec<(&Cluster, &Kind, &Object)> = clients
            .iter()
            .zip(&objects.0)
            .flat_map(|(client, objects)| objects.iter().map(move |(kind, object)| (client, kind, object)))
            .filter(|(_, _, object)| wave.takes(object))
            .collect();
        writes += tasks.len();
        let mut results = stream::iter(tasks)
            .map(|(client, kind, object)| wave.send(client, kind, object))
            .buffer_unordered(CONNECTIONS);
        while let Some(result) = results.next().await {
            result?;
        }
        drop(results);
        if wave == Wave::Definitions {
            established(&clients, objects).await?;
        }
    }
    Ok(Limit { wall: started.elapsed(), writes })
}

/// Reads each object and tries out to apply it as it is, as `kubectl diff` does.
pub(super) async fn try_out(clusters: &[ControlPlane], objects: &Objects) -> anyhow::Result<Limit> {
    let clients: Vec<Cluster> = clusters.iter().map(client).collect::<Result<_, _>>()?;
    let started = Instant::now();
    let tasks: Vec<(&Cluster, &Kind, &Object)> = clients
        .iter()
        .zip(&objects.0)
        .flat_map(|(client, objects)| objects.iter().map(move |(kind, object)| (client, kind, object)))
        .collect();
    let writes = tasks.len();
    let mut results = stream::iter(tasks)
        .map(|(client, kind, object)| async move {
            let key = Key::new(object.namespace(), object.name());
            let id = kind.id(&key);
            client.get(kind, &key).await.with_context(|| id.to_string())?;
            let mut body = object.clone();
            body.map_mut().shift_remove("status");
            let body = Bytes::from(body.value().to_string());
            client.dry_run(kind, &id, body, OnConflict::Force).await.with_context(|| id.to_string())
        })
        .buffer_unordered(CONNECTIONS);
    while let Some(result) = results.next().await {
        result?;
    }
    drop(results);
    Ok(Limit { wall: started.elapsed(), writes })
}

/// What may be sent at once.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Wave {
    Definitions,
    Namespaces,
    Objects,
    Statuses,
}

// === impl Wave ===

impl Wave {
    fn takes(self, object: &Object) -> bool {
        let ours = &*object.gvk().group == api::KYMA_GROUP;
        match (self, object.id().stage()) {
            (Wave::Definitions, stage) => stage == Stage::Crd,
            (Wave::Namespaces, stage) => stage == Stage::Namespace,
            (Wave::Objects, stage) => stage != Stage::Crd && stage != Stage::Namespace,
            (Wave::Statuses, _) => ours && object.field("status").is_some(),
        }
    }

    async fn send(self, client: &Cluster, kind: &Kind, object: &Object) -> anyhow::Result<()> {
        let id = kind.id(&Key::new(object.namespace(), object.name()));
        let cause = Cause::trigger("limit");
        if self == Wave::Statuses {
            let body = json!({
                "apiVersion": object.gvk().api_version(), "kind": object.gvk().kind,
                "metadata": {"name": object.name(), "namespace": object.namespace()},
                "status": object.field("status"),
            });
            client
                .apply_status(&cause, kind, &id, Bytes::from(body.to_string()))
                .await
                .with_context(|| format!("status of {id}"))?;
            return Ok(());
        }
        let mut body = object.clone();
        body.map_mut().shift_remove("status");
        client
            .apply(&cause, kind, &id, Bytes::from(body.value().to_string()), OnConflict::Force)
            .await
            .with_context(|| id.to_string())?;
        Ok(())
    }
}

/// Waits until the runtimes serve the kinds of their definitions.
async fn established(clients: &[Cluster], objects: &Objects) -> anyhow::Result<()> {
    for (client, objects) in clients.iter().zip(&objects.0) {
        for (kind, _) in objects.iter().filter(|(kind, _)| &*kind.gvk.group == api::KYMA_GROUP) {
            let ask = async || match client.list_metadata(kind, Some(KCP_NAMESPACE), None).await {
                Ok(_) if client.kind(&kind.gvk).await.is_ok_and(|kind| kind.is_some()) => Ok(()),
                Ok(_) => Err("not served".to_owned()),
                Err(error) => Err(error.to_string()),
            };
            testbed::until(Duration::from_secs(30), ask)
                .await
                .map_err(|late| anyhow::anyhow!("{} is not served: {late}", kind.gvk))?;
        }
    }
    Ok(())
}
