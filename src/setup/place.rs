//! Objects in another cluster: a resource with the annotation `tidegate.dev/cluster` has its Deployments, Services and
//! PodDisruptionBudgets there, and copies of what its pods mount.
//!
//! The Secret with the label `tidegate.dev/cluster-name` leads to it, by the same rules as the kubeconfig of a runtime:
//! it may run no programs. Certificates and all that is made of them stay in the control plane. A copy has exactly the
//! mounted keys, so no private key leaves that no pod there needs.
//!
//! A cluster that cannot be reached delays only what belongs there. Its objects are watched, as those of the control
//! plane. What left a cluster, because its resource did, goes once it is elsewhere.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use futures::future::{self, BoxFuture};
use k8s_openapi::jiff::SignedDuration;
use kube::core::{DynamicObject, PartialObjectMeta};
use serde_json::json;
use tidegate_cluster::{
    Cluster, ClusterName, Error, Limits, access,
    follower::{self, Change, Options},
};
use tidegate_core::{
    api::names::{annotation, label},
    name::Key,
    object::{Digest, Object},
    plan::setup::{Gate, Mounted, Plan, setup_mark},
};
use tidegate_process::ambient;

use super::{
    SetupPass, content,
    decide::{self, Outcome},
    enact,
    object::{LiveObject, ObjectKind},
    state::{Desired, Keys, Known, LiveObjects, ObjectName, Observed, Origin},
};
use crate::{
    controller::events::{self, reason},
    stores::{OtherCluster, Stores},
};

/// After this time, a cluster is tried again that could not be used.
pub(super) const RETRY: Duration = Duration::from_secs(30);
/// How long a deletion waits for another cluster. Afterwards, what is there stays.
const PATIENCE: SignedDuration = SignedDuration::from_secs(300);
/// The key of the kubeconfig in its Secret, as for runtimes.
const CONFIG: &str = "config";
/// A pass over a landscape must not wait longer for one answer.
const LIMITS: Limits =
    Limits { concurrency: 8, request_timeout: Duration::from_secs(10), connect_timeout: Duration::from_secs(3) };

/// A request that failed, and where.
#[derive(Debug)]
pub(super) struct Failed {
    pub(super) error: Error,
    /// Whether another cluster than the control plane failed.
    pub(super) is_elsewhere: bool,
}

/// Where the pods of a resource are, or why that is not known: one sentence.
pub(super) type Placed = Result<String, String>;

/// Why a cluster cannot be used now: one sentence; `None` if it can.
fn unusable(name: &str, namespace: &str, found: Option<&OtherCluster>) -> Option<String> {
    let Some(found) = found else {
        return Some(format!(
            "no Secret in namespace {namespace} has the label `{}: {name}`: create one with a kubeconfig in the key \
             `{CONFIG}`",
            label::CLUSTER_NAME
        ));
    };
    match &found.connection {
        Err(sentence) => Some(sentence.clone()),
        Ok(cluster) if cluster.outage().is_some() => Some(format!("cluster {name} cannot be reached")),
        Ok(_) => {
            let kind = found.unlisted.first()?.as_str();
            Some(format!("cluster {name} has not answered yet: its objects of the kind {kind} are not listed"))
        }
    }
}

/// The copies of what the pods of a plan mount. `keys` are the digests of the values in the control plane.
fn copies(plan: &Plan, keys: &BTreeMap<ObjectName, Keys>) -> Vec<Desired> {
    let copy = |mounted: Mounted| {
        let kind = ObjectKind::named(mounted.kind)?;
        let value = json!({
            "apiVersion": "v1",
            "kind": mounted.kind,
            "metadata": {
                "name": mounted.name,
                "namespace": plan.key.namespace(),
                "labels": { label::SETUP: setup_mark(plan.kind, plan.key.name()) },
            },
        });
        let mut object = Object::new(value).ok()?;
        if kind == ObjectKind::Secret {
            object.map_mut().insert("type".to_owned(), "Opaque".into());
        }
        let (name, wanted) = ((kind, mounted.name.clone()), mounted.keys.clone());
        let gates = vec![Gate::Key(mounted)];
        let values = decide::digest_of_keys(&gates, keys).map(|digest| digest.to_string()).unwrap_or_default();
        let digest = Digest::of_bytes(format!("{}{wanted:?}{values}", object.digest()).as_bytes());
        object.set_annotation(annotation::DIGEST, &digest.to_string());
        Some(Desired { name, object, digest, gates, origin: Origin::Copied(wanted), replicas: None })
    };
    plan.mounted().into_iter().filter_map(copy).collect()
}

/// Takes out of what the control plane shall have what another cluster shall have. Until it is there, what the control
/// plane has of it stays.
fn split(known: &mut Known, plan: &Plan, cluster: &str, keys: &BTreeMap<ObjectName, Keys>) -> Known {
    let (there, here): (Vec<Desired>, Vec<Desired>) =
        std::mem::take(&mut known.desired).into_iter().partition(|desired| desired.name.0.is_placed());
    known.desired = here;
    let desired: Vec<Desired> = copies(plan, keys).into_iter().chain(there).collect();
    let wanted = desired.iter().map(|desired| desired.name.clone());
    let planned = known.wanted.iter().filter(|name| name.0.is_placed()).cloned();
    Known {
        cluster: Some(cluster.to_owned()),
        wanted: wanted.chain(planned).collect(),
        desired,
        definition: None,
        verified: BTreeMap::new(),
        live: LiveObjects::new(),
        ..known.clone()
    }
}

impl SetupPass<'_> {
    /// Objects of the control plane, and Deployments in other clusters.
    pub(super) fn around(&self, live: &LiveObjects) -> LiveObjects {
        let mut around = live.clone();
        around.extend(self.context.stores.deployments_elsewhere(self.key.namespace()));
        around
    }

    /// What another cluster shall have of the resource; `None` if the control plane has everything.
    pub(super) fn elsewhere(&self, plan: &Plan, known: &mut Known, observed: &Observed) -> Option<Known> {
        let cluster = self.resources.cluster_of(self.kind, self.key)?;
        Some(split(known, plan, cluster, &observed.keys))
    }

    /// Makes the objects in another cluster, then removes them where they were. Returns whether the pods are there;
    /// `None` if the control plane has them. Fails if the control plane does.
    pub(super) async fn place(
        &self,
        elsewhere: Option<Known>,
        here: &Known,
        observed: &mut Observed,
        outcomes: &mut Vec<(ObjectName, Outcome)>,
    ) -> Result<Option<Placed>, Error> {
        let namespace = self.key.namespace();
        let place = elsewhere.as_ref().and_then(|known| Some(Key::new(namespace, known.cluster.as_deref()?)));
        let mut placed = None;
        if let (Some(known), Some(place)) = (elsewhere, &place) {
            match self.work_elsewhere(place, known, observed).await? {
                Ok(there) => {
                    outcomes.extend(there);
                    placed = Some(Ok(format!("its pods are in cluster {}", place.name())));
                }
                Err(sentence) => placed = Some(Err(sentence)),
            }
        }
        let is_settled = outcomes.iter().all(|(_, outcome)| matches!(outcome, Outcome::Well | Outcome::Stays));
        if !here.is_complete || !is_settled || matches!(placed, Some(Err(_))) {
            return Ok(placed);
        }
        if place.is_some() && here.live.iter().any(|((kind, _), live)| is_left(*kind, live, &here.mark)) {
            let mut rest = here.clone();
            rest.wanted.retain(|(kind, _)| !kind.is_placed());
            let left = self.work(&rest, observed).await?;
            outcomes.extend(left.into_iter().filter(|(name, _)| name.0.is_placed()));
        }
        for former in self.context.stores.clusters_with(namespace, &here.mark) {
            if place.as_ref() != Some(&former)
                && let Err(sentence) = self.clear(&former).await?
            {
                return Ok(Some(Err(sentence)));
            }
        }
        Ok(placed)
    }

    /// Works in another cluster. Returns what became of each object, or why the cluster cannot be used. Fails if the
    /// control plane does.
    async fn work_elsewhere(
        &self,
        place: &Key,
        mut known: Known,
        observed: &mut Observed,
    ) -> Result<Result<Vec<(ObjectName, Outcome)>, String>, Error> {
        let (stores, memory) = (self.context.stores, self.context.memory);
        let found = stores.other_cluster(place);
        if let Some(sentence) = unusable(place.name(), place.namespace(), found.as_ref()) {
            return Ok(Err(sentence));
        }
        let Some(OtherCluster { connection: Ok(cluster), objects, .. }) = found else {
            return Ok(Err(format!("cluster {} has no connection", place.name())));
        };
        known.live = objects
            .into_iter()
            .filter(|(name, live)| live.mark.as_deref() == Some(&known.mark) || known.wanted.contains(name))
            .collect();
        let scope = known.scope();
        memory.shown(&scope, known.live.keys());
        known.verified = memory.verified(&scope, known.wanted.iter());
        // What was read and applied in the control plane says nothing of objects with the same names.
        let (keys, values) = (observed.keys.clone(), std::mem::take(&mut observed.values));
        let mut there = Observed { keys, values, ..Observed::default() };
        let worked = self.work_in(&cluster, &known, &mut there).await;
        let outcomes = match worked {
            Ok(outcomes) => outcomes,
            Err(Failed { error, is_elsewhere: false }) => return Err(error),
            Err(Failed { error, is_elsewhere: true }) => {
                return Ok(Err(format!("cluster {}: {error}", place.name())));
            }
        };
        self.remember(&known, &there, &outcomes);
        Ok(Ok(outcomes))
    }

    /// Deletes what another cluster has of the resource. Returns how many objects are left, or why they cannot be
    /// deleted. Fails if the control plane does.
    async fn clear(&self, place: &Key) -> Result<Result<usize, String>, Error> {
        let known = Known { cluster: Some(place.name().to_owned()), is_complete: true, ..self.nothing() };
        let done = self.work_elsewhere(place, known, &mut Observed::default()).await?;
        Ok(done.map(|outcomes| outcomes.iter().filter(|(_, outcome)| *outcome == Outcome::Leaves).count()))
    }

    /// What a resource that is being deleted waits for in other clusters: one sentence. `None` if nothing of it is
    /// there, or if what is there stays. Fails if the control plane does.
    pub(super) async fn leave_elsewhere(&self) -> Result<Option<String>, Error> {
        let (stores, memory, now) = (self.context.stores, self.context.memory, ambient::now());
        let (kind, key) = (self.kind, self.key);
        let own = self.resources.cluster_of(kind, key).map(|cluster| Key::new(key.namespace(), cluster));
        let mark = setup_mark(kind, key.name());
        let places: BTreeSet<Key> = stores.clusters_with(key.namespace(), &mark).into_iter().chain(own).collect();
        for place in places {
            match self.clear(&place).await? {
                Ok(0) => memory.reached(kind, key),
                Ok(left) => {
                    memory.reached(kind, key);
                    return Ok(Some(format!("{left} objects in cluster {} are being deleted", place.name())));
                }
                Err(sentence) => {
                    let is_known = stores.other_cluster(&place).is_some();
                    if is_known && now.duration_since(memory.unreached_since(kind, key, now)) < PATIENCE {
                        return Ok(Some(format!("its objects go first, which is tried for five minutes: {sentence}")));
                    }
                    let note = format!(
                        "objects with the label {}={mark} stay in cluster {}: {sentence}; delete what stays yourself",
                        label::SETUP,
                        place.name()
                    );
                    tracing::warn!(problem = note, "orphans stay in another cluster");
                    self.tell(events::Severity::Warning, reason::KEPT, note);
                }
            }
        }
        Ok(None)
    }
}

/// Whether an object of the resource is in the control plane that belongs into another cluster.
fn is_left(kind: ObjectKind, live: &LiveObject, mark: &str) -> bool {
    kind.is_placed() && live.mark.as_deref() == Some(mark)
}

/// The watches of a cluster.
struct Open {
    /// The Secrets that lead there, and their versions.
    secrets: BTreeMap<String, Arc<str>>,
    watches: Vec<BoxFuture<'static, ()>>,
    /// Whether the control plane must be asked again.
    is_retried: bool,
}

/// Keeps connections to other clusters, and watches their objects. Never ends.
pub(crate) async fn follow(kcp: &Cluster, stores: &Stores) {
    let mut secrets = stores.cluster_secrets();
    let mut all: BTreeMap<Key, Open> = BTreeMap::new();
    loop {
        let wanted = secrets.borrow_and_update().clone();
        all.retain(|place, open| {
            if !wanted.contains_key(place) {
                stores.set_other_cluster(place, None);
            }
            !open.is_retried && wanted.get(place) == Some(&open.secrets)
        });
        for (place, secrets) in wanted {
            if !all.contains_key(&place) {
                let open = open(kcp, stores, &place, secrets).await;
                all.insert(place, open);
            }
        }
        let is_retried = all.values().any(|open| open.is_retried);
        let watches = future::join_all(all.values_mut().flat_map(|open| &mut open.watches));
        tokio::select! {
            // The sender lives as long as `stores`.
            _ = secrets.changed() => {}
            () = tokio::time::sleep(RETRY), if is_retried => {}
            () = async { watches.await; future::pending().await } => {}
        }
    }
}

/// Connects to a cluster.
async fn open(kcp: &Cluster, stores: &Stores, place: &Key, secrets: BTreeMap<String, Arc<str>>) -> Open {
    let mut is_retried = false;
    let connection = match connect(kcp, place, &secrets).await {
        Ok(connection) => connection,
        Err(error) => {
            is_retried = true;
            Err(format!("cannot read the Secret of cluster {}: {error}", place.name()))
        }
    };
    let watches = match &connection {
        Ok(cluster) => ObjectKind::PLACED.map(|kind| watch(cluster, stores, place, kind)).into(),
        Err(problem) => {
            tracing::warn!(cluster = %place, problem, "cannot use another cluster of kcp landscapes");
            Vec::new()
        }
    };
    stores.set_other_cluster(place, Some(connection));
    Open { secrets, watches, is_retried }
}

/// The connection, or why the Secret cannot be used: one sentence. Fails if the control plane does.
async fn connect(
    kcp: &Cluster,
    place: &Key,
    secrets: &BTreeMap<String, Arc<str>>,
) -> Result<Result<Arc<Cluster>, String>, Error> {
    let cluster = place.name();
    let names: Vec<&str> = secrets.keys().map(String::as_str).collect();
    let [name] = names[..] else {
        let names = names.join(", ");
        return Ok(Err(format!("the Secrets {names} lead to cluster {cluster}: remove the label from all but one")));
    };
    let found = enact::read(kcp, place.namespace(), &(ObjectKind::Secret, name.to_owned())).await?;
    let values = found.as_ref().map(content::values).unwrap_or_default();
    let Some(kubeconfig) = values.get(CONFIG) else {
        return Ok(Err(format!("Secret {name} of cluster {cluster} has no key `{CONFIG}`")));
    };
    let config = match access::parse(kubeconfig).and_then(|access| access.config()) {
        Ok(config) => config,
        Err(refused) => return Ok(Err(format!("Secret {name} of cluster {cluster} cannot be used: {refused}"))),
    };
    let connected = kcp.alike(ClusterName::Placed(place.clone()), &config, LIMITS);
    Ok(connected.map(Arc::new).map_err(|error| format!("Secret {name} of cluster {cluster} cannot be used: {error}")))
}

/// Watches the objects of a kind with the label of a resource.
fn watch(cluster: &Arc<Cluster>, stores: &Stores, place: &Key, kind: ObjectKind) -> BoxFuture<'static, ()> {
    let options = Options::all(kind.kind()).namespace(place.namespace()).labels(label::SETUP);
    let cluster = Arc::clone(cluster);
    let (stores, place) = (stores.clone(), place.clone());
    let on_change = move |change: Change<LiveObject>| match change {
        Change::Set { key, new, .. } => stores.set_object_elsewhere(&place, (kind, key.name().to_owned()), Some(new)),
        Change::Gone { key, .. } => stores.set_object_elsewhere(&place, (kind, key.name().to_owned()), None),
        Change::Synced => stores.listed_elsewhere(&place, kind),
        // Such an object is read before it is written.
        Change::Unreadable { .. } | Change::Cleared { .. } | Change::NotServed | Change::Served => {}
    };
    if kind == ObjectKind::Deployment {
        let project = move |found: DynamicObject| Some(LiveObject::from_object(kind, found));
        return follower::follow(cluster, options, project, on_change);
    }
    let project = move |found: PartialObjectMeta<DynamicObject>| Some(LiveObject::from_metadata(kind, found));
    follower::follow(cluster, options.metadata_only(), project, on_change)
}

#[cfg(test)]
mod tests;
