//! The limit: all final objects of Tidegate, applied once by a bare client over sixteen connections.
//!
//! The KCP comes first, on all connections. Then the runtimes follow, as many at a time as there are connections, each
//! on one connection. If there are fewer runtimes, they share the connections. In a cluster the order is: CRDs, until
//! they are served; namespaces; everything else; statuses. For a phase that changes existing objects, the limit covers
//! only the objects and statuses that differ from before.

use std::{
    collections::{BTreeSet, HashMap},
    time::{Duration, Instant},
};

use anyhow::Context as _;
use bytes::Bytes;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use serde_json::{Value, json};

use super::process::Machine;
use crate::servers::Server;
use tidegate_cluster::{self as cluster, Cause, Cluster, ClusterName, Kind, OnConflict, access};
use tidegate_core::{
    api::{
        self,
        names::{KCP_NAMESPACE, MANAGED_BY_SKR, label},
        setup,
    },
    name::Key,
    object::{Digest, Gvk, Object, ObjectId, Stage},
};
use tidegate_process::retry::Class;
use tidegate_testbed as testbed;

/// Concurrent requests, over all clusters.
const CONNECTIONS: usize = 16;
/// Limit until the kind of a definition is served.
const ESTABLISHED_MAX: Duration = Duration::from_secs(30);

/// Limit of attempts of a write after transient failures.
const TRIES_MAX: usize = 3;
const PAUSE: Duration = Duration::from_millis(100);

/// Clients of all clusters, KCP first.
pub(super) struct Clients(Vec<Cluster>);

/// The objects at the last collection, with and without their status.
#[derive(Default)]
pub(super) struct Collected(HashMap<(usize, ObjectId), (Digest, Option<Digest>)>);

/// Objects in their final form, in the order of apply.
#[derive(Default)]
pub(super) struct Objects(Vec<Final>);

/// One object, as far as it must be sent.
struct Final {
    cluster: usize,
    kind: Kind,
    id: ObjectId,
    /// The object without its status; `None` if only the status changed.
    body: Option<Bytes>,
    /// The status with the identity of the object.
    status: Option<Bytes>,
}

/// The result of the bare client.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Limit {
    /// Wall time; the median of several runs.
    pub(super) wall: Duration,
    /// The shortest and the longest of the runs.
    pub(super) between: (Duration, Duration),
    /// Requests of one run; all are writes.
    pub(super) writes: usize,
    /// The part of the processors that other processes used, if known: the maximum of all runs.
    pub(super) others: Option<f64>,
}

// === impl Limit ===

impl Limit {
    fn from_measured(wall: Duration, writes: usize, others: Option<f64>) -> Limit {
        Limit { wall, between: (wall, wall), writes, others }
    }

    /// The median of several runs; `None` without runs.
    pub(super) fn median(mut runs: Vec<Limit>) -> Option<Limit> {
        runs.sort_by_key(|limit| limit.wall);
        let between = (runs.first()?.wall, runs.last()?.wall);
        let others = runs.iter().filter_map(|limit| limit.others).reduce(f64::max);
        runs.get(runs.len() / 2).map(|limit| Limit { between, others, ..*limit })
    }
}

// === impl Clients ===

impl Clients {
    /// Creates clients of the administrators.
    pub(super) fn connect(clusters: &[Server]) -> anyhow::Result<Clients> {
        clusters.iter().map(client).collect::<Result<_, _>>().map(Clients)
    }
}

fn client(server: &Server) -> anyhow::Result<Cluster> {
    let text = server.kubeconfig().text();
    let config = access::parse(text.as_bytes())?.config()?;
    let limits = cluster::Limits { concurrency: CONNECTIONS, ..cluster::Limits::default() };
    Cluster::new(ClusterName::Kcp, &config, limits).with_context(|| format!("no client of {}", server.name()))
}

// === impl Objects ===

impl Objects {
    /// The number of clusters.
    pub(super) fn count(&self) -> usize {
        self.0.len()
    }

    /// Reads all objects of Tidegate from the clusters, and keeps those that differ from `memory`.
    pub(super) async fn collect(
        clients: &Clients,
        memory: &mut Collected,
        wanted: impl Fn(usize) -> bool,
    ) -> anyhow::Result<Objects> {
        let clusters = clients.0.iter().enumerate().filter(|(index, _)| wanted(*index));
        let reads = clusters.map(|(index, client)| read(index, client));
        let mut all = Vec::new();
        let mut read = stream::iter(reads).buffer_unordered(CONNECTIONS);
        while let Some(objects) = read.next().await {
            all.extend(objects?.into_iter().filter_map(|object| memory.learn(object)));
        }
        drop(read);
        all.sort_by(|one: &Final, other| {
            (one.cluster, one.id.apply_order()).cmp(&(other.cluster, other.id.apply_order()))
        });
        Ok(Objects(all))
    }

    /// Reads all objects of the kcp landscapes in a KCP.
    pub(super) async fn of_setup(clients: &Clients) -> anyhow::Result<Objects> {
        let client = &clients.0[0];
        let resources = setup::Kind::ALL.map(|kind| Gvk::new(setup::SETUP_GROUP, setup::SETUP_VERSION, kind.as_str()));
        let made = [
            Gvk::new("", "v1", "Secret"),
            Gvk::new("", "v1", "ConfigMap"),
            Gvk::new("", "v1", "Service"),
            Gvk::new("apps", "v1", "Deployment"),
            Gvk::new("policy", "v1", "PodDisruptionBudget"),
        ];
        let events = [Gvk::new("events.k8s.io", "v1", "Event")];
        let kinds = resources.into_iter().chain(events).map(|gvk| (gvk, None));
        let kinds = kinds.chain(made.into_iter().map(|gvk| (gvk, Some(label::SETUP))));
        let mut all = Vec::new();
        for (gvk, selector) in kinds {
            let Some(kind) = client.kind(&gvk).await? else { continue };
            let found = client.list(&kind, Some(KCP_NAMESPACE), selector).await?;
            all.extend(found.into_iter().map(|object| Final::from_object(0, kind.clone(), object)));
        }
        all.sort_by(|one: &Final, other| one.id.apply_order().cmp(&other.id.apply_order()));
        Ok(Objects(all))
    }

    /// Runs `work` on the objects of each cluster: first the KCP, then as many runtimes at a time as there are
    /// connections. Returns the sum of the results.
    async fn each_cluster(
        &self,
        clients: &Clients,
        work: impl AsyncFn(&Cluster, usize, &[Final]) -> anyhow::Result<usize>,
    ) -> anyhow::Result<usize> {
        let (kcp, runtimes) = self.0.split_at(self.0.partition_point(|object| object.cluster == 0));
        let mut sum = work(&clients.0[0], CONNECTIONS, kcp).await?;
        let runtimes: Vec<&[Final]> = runtimes.chunk_by(|one, other| one.cluster == other.cluster).collect();
        let at_a_time = runtimes.len().clamp(1, CONNECTIONS);
        let each = runtimes
            .into_iter()
            .enumerate()
            .map(|(index, objects)| work(&clients.0[objects[0].cluster], share(index, at_a_time), objects));
        let mut done = stream::iter(each).buffer_unordered(at_a_time);
        while let Some(count) = done.next().await {
            sum += count?;
        }
        Ok(sum)
    }
}

/// The number of connections of a runtime, if this many are written to concurrently.
fn share(index: usize, at_a_time: usize) -> usize {
    CONNECTIONS / at_a_time + usize::from(index < CONNECTIONS % at_a_time)
}

// === impl Collected ===

impl Collected {
    /// The parts of an object that changed; `None` if none did.
    fn learn(&mut self, mut object: Final) -> Option<Final> {
        let digest = |bytes: &Bytes| Digest::of_bytes(bytes);
        let body = object.body.as_ref().map(digest)?;
        let status = object.status.as_ref().map(digest);
        let before = self.0.insert((object.cluster, object.id.clone()), (body, status));
        if let Some((known, known_status)) = before {
            if known == body {
                object.body = None;
            }
            if known_status == status {
                object.status = None;
            }
        }
        (object.body.is_some() || object.status.is_some()).then_some(object)
    }
}

async fn read(index: usize, client: &Cluster) -> anyhow::Result<Vec<Final>> {
    let mut objects = Vec::new();
    for gvk in if index == 0 { kcp_kinds() } else { skr_kinds() } {
        let Some(kind) = client.kind(&gvk).await? else { continue };
        let selector = (index > 0).then(|| format!("{}={MANAGED_BY_SKR}", label::MANAGED_BY));
        let namespace = (index == 0).then_some(KCP_NAMESPACE);
        for object in client.list(&kind, namespace, selector.as_deref()).await? {
            objects.push(Final::from_object(index, kind.clone(), object));
        }
    }
    Ok(objects)
}

/// The kinds that Tidegate writes in the KCP. The GitSource belongs to the user, and its status is one of many.
fn kcp_kinds() -> Vec<Gvk> {
    let ours = ["ModuleTemplate", "ModuleReleaseMeta", "Kyma", "Manifest"];
    let ours = ours.map(|kind| Gvk::new(api::KYMA_GROUP, api::KYMA_VERSION, kind));
    ours.into_iter().chain([Gvk::new("events.k8s.io", "v1", "Event")]).collect()
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

// === impl Final ===

impl Final {
    fn from_object(cluster: usize, kind: Kind, mut object: Object) -> Final {
        let id = kind.id(&Key::new(object.namespace(), object.name()));
        let ours = [api::KYMA_GROUP, setup::SETUP_GROUP].contains(&&*object.gvk().group);
        let status = object.field("status").filter(|_| ours).map(|status| {
            let status = json!({
                "apiVersion": object.gvk().api_version(), "kind": object.gvk().kind,
                "metadata": {"name": object.name(), "namespace": object.namespace()},
                "status": status,
            });
            Bytes::from(status.to_string())
        });
        object.map_mut().shift_remove("status");
        // Fields that the server sets.
        for field in ["managedFields", "uid", "resourceVersion", "creationTimestamp", "generation"] {
            object.metadata_mut().shift_remove(field);
        }
        let body = Some(Bytes::from(object.value().to_string()));
        Final { cluster, kind, id, body, status }
    }

    fn key(&self) -> Key {
        Key::new(&self.id.namespace, &self.id.name)
    }
}

/// Prepares a new KCP as it is before the daemon writes to it.
pub(super) async fn prepare(kcp: &Server) -> anyhow::Result<()> {
    let client = kcp.client()?;
    let crds: Vec<Value> = api::crds().iter().map(serde_json::to_value).collect::<Result<_, _>>()?;
    testbed::install_crds(&client, &crds).await?;
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": KCP_NAMESPACE}});
    testbed::apply(&client, &namespace).await?;
    Ok(())
}

/// Applies the objects.
pub(super) async fn apply(clients: &Clients, objects: &Objects) -> anyhow::Result<Limit> {
    let (started, machine) = (Instant::now(), Machine::now());
    let writes = objects.each_cluster(clients, async |client, connections, objects: &[Final]| {
        let mut writes = 0;
        for wave in [Wave::Definitions, Wave::Namespaces, Wave::Objects, Wave::Statuses] {
            let tasks: Vec<&Final> = objects.iter().filter(|object| wave.takes(object)).collect();
            writes += tasks.len();
            let sent = tasks.iter().map(|object| wave.send(client, object));
            stream::iter(sent).buffer_unordered(connections).try_collect::<()>().await?;
            if wave == Wave::Definitions && !tasks.is_empty() {
                established(client, objects).await?;
            }
        }
        Ok(writes)
    });
    let writes = writes.await?;
    let wall = started.elapsed();
    let others = machine.zip(Machine::now()).map(|(before, now)| now.others_since(&before));
    Ok(Limit::from_measured(wall, writes, others))
}

/// Reads each object and applies it as a dry run, as `kubectl diff` does.
pub(super) async fn try_out(clients: &Clients, objects: &Objects) -> anyhow::Result<Limit> {
    let (started, machine) = (Instant::now(), Machine::now());
    let writes = objects.each_cluster(clients, async |client, connections, objects: &[Final]| {
        let tasks = objects.iter().filter_map(|object| object.body.as_ref().map(|body| (object, body)));
        let tries = tasks.map(|(object, body)| async move {
            client.get(&object.kind, &object.key()).await.with_context(|| object.id.to_string())?;
            let tried = client.dry_run(&object.kind, &object.id, body.clone(), OnConflict::Force).await;
            tried.map(drop).with_context(|| object.id.to_string())
        });
        stream::iter(tries).buffer_unordered(connections).try_collect::<()>().await?;
        Ok(objects.len())
    });
    let writes = writes.await?;
    let wall = started.elapsed();
    let others = machine.zip(Machine::now()).map(|(before, now)| now.others_since(&before));
    Ok(Limit::from_measured(wall, writes, others))
}

/// Which parts are sent together.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Wave {
    Definitions,
    Namespaces,
    Objects,
    Statuses,
}

// === impl Wave ===

impl Wave {
    fn takes(self, object: &Final) -> bool {
        let has_body = object.body.is_some();
        match (self, object.id.stage()) {
            (Wave::Definitions, stage) => has_body && stage == Stage::Crd,
            (Wave::Namespaces, stage) => has_body && stage == Stage::Namespace,
            (Wave::Objects, stage) => has_body && stage != Stage::Crd && stage != Stage::Namespace,
            (Wave::Statuses, _) => object.status.is_some(),
        }
    }

    async fn send(self, client: &Cluster, object: &Final) -> anyhow::Result<()> {
        let (cause, Final { kind, id, .. }) = (Cause::trigger("limit"), object);
        let body = if self == Wave::Statuses { &object.status } else { &object.body };
        let mut tries = 0;
        loop {
            let body = body.clone().unwrap_or_default();
            let sent = match self {
                Wave::Statuses => client.apply_status(&cause, kind, id, body).await,
                Wave::Definitions | Wave::Namespaces | Wave::Objects => {
                    client.apply(&cause, kind, id, body, OnConflict::Force).await
                }
            };
            tries += 1;
            match sent {
                // A lost connection must not discard all measurements.
                Err(error) if tries < TRIES_MAX && error.class() == Class::Transient => {
                    tracing::warn!(error = %error, object = %id, "retrying a write of the bare client");
                    tokio::time::sleep(PAUSE).await;
                }
                sent => return sent.map(drop).with_context(|| format!("{id} of cluster {}", object.cluster)),
            }
        }
    }
}

/// Waits until a runtime serves the kinds of its definitions; checks each kind once.
async fn established(client: &Cluster, objects: &[Final]) -> anyhow::Result<()> {
    let mut seen = BTreeSet::new();
    for object in objects.iter().filter(|object| &*object.kind.gvk.group == api::KYMA_GROUP) {
        if !seen.insert(object.kind.gvk.clone()) {
            continue;
        }
        let ask = async || {
            let listed = client.list_metadata(&object.kind, Some(KCP_NAMESPACE), None).await;
            listed.map(drop).map_err(|error| error.to_string())
        };
        let late = |late| anyhow::anyhow!("{} is not served: {late}", object.kind.gvk);
        testbed::until(ESTABLISHED_MAX, ask).await.map_err(late)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
