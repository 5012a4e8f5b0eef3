//! Keeps the connections to other clusters, and watches their objects: one task a cluster.
//!
//! A cluster is used once it is known which one it is. An outage, and a right that it denies, is logged once when it
//! begins and once when it ends, and wakes the resources of its namespace both times.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use futures::future::{self, BoxFuture, FutureExt as _};
use kube::core::{DynamicObject, PartialObjectMeta};
use tidegate_cluster::{
    Cluster, ClusterName, Error, Kind, Limits, access,
    follower::{self, Change as Watched, Options},
};
use tidegate_core::{api::names::label, name::Key, object::Gvk};
use tidegate_process::retry;
use tokio::time::Instant;

use super::decide::CONFIG;
use crate::{
    setup::{
        content, enact,
        object::{LiveObject, ObjectKind},
    },
    stores::{Identity, Stores},
};

/// A pass over a landscape must not wait longer for one answer.
const LIMITS: Limits =
    Limits { concurrency: 8, request_timeout: Duration::from_secs(10), connect_timeout: Duration::from_secs(3) };
/// Pauses before a cluster is asked again which one it is.
const PAUSE_MIN: Duration = Duration::from_secs(2);
const PAUSE_MAX: Duration = Duration::from_secs(30);
/// How often the end or the begin of an outage is looked for. Sends a request only during an outage.
const GLANCE: Duration = Duration::from_secs(1);
/// How often a cluster is asked whether it grants a right again that it has denied.
const ASKED_AGAIN: Duration = Duration::from_secs(10);
/// A cluster that has not listed its objects after this time is a problem.
const LISTED_WITHIN: Duration = Duration::from_secs(15);

/// Why a cluster is not used.
enum Refusal {
    /// Only a change of its Secret helps: one sentence.
    Final(String),
    /// It may be used later: one sentence.
    ForNow(String),
}

/// Why a cluster that is known cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Trouble {
    /// It cannot be reached.
    Outage,
    /// The account of its Secret lacks a right.
    Denied,
    /// It does not list its objects, for another reason.
    Unlisted,
}

/// A change of why a cluster cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    /// The sentence is the same.
    Nothing,
    /// The kind of trouble is the same, and the sentence is another one: it is noted, and not logged again.
    Cause,
    /// A trouble begins, or another kind of it.
    Begin,
    /// The cluster answers again, or can be used. It may be another one now.
    End,
}

/// A cluster, and the Secrets that lead there with their versions.
struct Kept<'a> {
    secrets: BTreeMap<String, Arc<str>>,
    work: BoxFuture<'a, ()>,
}

/// Keeps connections to other clusters, and watches their objects. Never ends.
pub(crate) async fn follow(kcp: &Cluster, stores: &Stores) {
    let mut secrets = stores.cluster_secrets();
    let mut all: BTreeMap<Key, Kept<'_>> = BTreeMap::new();
    loop {
        let wanted = secrets.borrow_and_update().clone();
        all.retain(|place, kept| {
            if !wanted.contains_key(place) {
                stores.set_other_cluster(place, None);
            }
            wanted.get(place) == Some(&kept.secrets)
        });
        for (place, secrets) in wanted {
            all.entry(place.clone()).or_insert_with(|| {
                let work = keep(kcp, stores, place, secrets.clone()).boxed();
                Kept { secrets, work }
            });
        }
        let works = future::join_all(all.values_mut().map(|kept| &mut kept.work));
        tokio::select! {
            // The sender lives as long as `stores`.
            _ = secrets.changed() => {}
            () = async { works.await; future::pending().await } => {}
        }
    }
}

/// Keeps one cluster. Never ends.
async fn keep(kcp: &Cluster, stores: &Stores, place: Key, secrets: BTreeMap<String, Arc<str>>) {
    stores.set_other_cluster(&place, Some(Identity::Asked));
    let mut failures: u32 = 0;
    loop {
        match identify(kcp, &place, &secrets).await {
            Ok((cluster, uid, control_plane)) => {
                let (to_watch, known) = (Arc::clone(&cluster), Arc::clone(&control_plane));
                if 0 < failures {
                    tracing::info!(cluster = %place, "another cluster of kcp landscapes can be used again");
                }
                let identity = Arc::clone(&uid);
                stores.set_other_cluster(&place, Some(Identity::Known { cluster, uid, control_plane }));
                let watches = ObjectKind::PLACED.map(|kind| watch(&to_watch, stores, &place, &known, kind));
                tokio::select! {
                    _ = future::join_all(watches) => {}
                    () = glance(&to_watch, stores, &place, &identity) => {}
                }
                tracing::warn!(cluster = %place, "the Secret of another cluster leads to a different one now");
                stores.set_other_cluster(&place, Some(Identity::Asked));
            }
            Err(Refusal::Final(problem)) => {
                tracing::warn!(cluster = %place, problem, "cannot use another cluster of kcp landscapes");
                stores.set_other_cluster(&place, Some(Identity::Refused(problem)));
                // A change of its Secret ends this.
                future::pending::<()>().await;
            }
            Err(Refusal::ForNow(problem)) => {
                failures = failures.saturating_add(1);
                if failures == 1 {
                    tracing::warn!(cluster = %place, problem, "cannot use another cluster of kcp landscapes");
                }
                stores.set_outage_elsewhere(&place, Some(problem));
                tokio::time::sleep(retry::backoff(PAUSE_MIN, PAUSE_MAX, failures)).await;
            }
        }
    }
}

/// Notes when a cluster cannot be used any more, and when it can again. Ends if another one answers after an outage.
async fn glance(cluster: &Cluster, stores: &Stores, place: &Key, identity: &str) {
    let began = Instant::now();
    let (mut known, mut asked) = (None, None);
    loop {
        tokio::time::sleep(GLANCE).await;
        if cluster.outage().is_some() {
            // Nothing else asks it meanwhile. Most of these requests are not sent: after each there is a pause.
            _ = uid(cluster).await;
        }
        let denied = stores.denied_elsewhere(place);
        let is_due = asked.is_none_or(|asked: Instant| ASKED_AGAIN <= asked.elapsed());
        if let Some(denial) = cluster.denial().filter(|_| denied.is_some() && is_due) {
            asked = Some(Instant::now());
            // Once it is granted, this wakes its watches, however long their pauses have become.
            _ = cluster.is_granted(&denial).await;
        }
        let unlisted = stores.unlisted_elsewhere(place).filter(|_| LISTED_WITHIN <= began.elapsed());
        let outage = cluster.outage().map(|outage| outage.cause.to_string());
        let found = trouble(place.name(), outage.as_deref(), denied.as_deref(), unlisted);
        let change = change(known.as_ref(), found.as_ref());
        if change == Change::Nothing {
            continue;
        }
        if change == Change::End {
            match uid(cluster).await {
                Ok(Some(now)) if *now != *identity => return,
                Ok(_) => {}
                // It is used once it has said which one it is.
                Err(_) => continue,
            }
        }
        match &found {
            Some(_) if change == Change::Cause => {}
            Some((Trouble::Outage, problem)) => {
                tracing::warn!(cluster = %place, problem, "another cluster of kcp landscapes cannot be reached");
            }
            Some((Trouble::Denied | Trouble::Unlisted, problem)) => {
                tracing::warn!(cluster = %place, problem, "cannot use another cluster of kcp landscapes");
            }
            None => tracing::info!(cluster = %place, "another cluster of kcp landscapes can be reached again"),
        }
        stores.set_outage_elsewhere(place, found.as_ref().map(|(_, problem)| problem.clone()));
        known = found;
    }
}

/// What has changed about a cluster since it was last noted why it cannot be used.
fn change(known: Option<&(Trouble, String)>, found: Option<&(Trouble, String)>) -> Change {
    match (known, found) {
        (known, found) if known == found => Change::Nothing,
        (Some((known, _)), Some((found, _))) if known == found => Change::Cause,
        (_, None) | (Some((Trouble::Outage, _)), _) => Change::End,
        (_, Some(_)) => Change::Begin,
    }
}

/// Why a cluster cannot be used, and one sentence about it.
fn trouble(
    name: &str,
    outage: Option<&str>,
    denied: Option<&str>,
    unlisted: Option<ObjectKind>,
) -> Option<(Trouble, String)> {
    const HINT: &str = "give the account of its Secret the rights of `deploy/kcp-cluster`";
    match (outage, denied, unlisted) {
        (Some(cause), _, _) => Some((Trouble::Outage, format!("cluster {name} cannot be reached: {cause}"))),
        (None, Some(why), _) => {
            Some((Trouble::Denied, format!("the objects in cluster {name} cannot be watched: {why}; {HINT}")))
        }
        (None, None, Some(kind)) => {
            let kind = kind.as_str();
            Some((Trouble::Unlisted, format!("cluster {name} does not list its objects of the kind {kind}: {HINT}")))
        }
        (None, None, None) => None,
    }
}

/// Connects to a cluster, and asks which one it is. Returns its UID and that of the control plane.
async fn identify(
    kcp: &Cluster,
    place: &Key,
    secrets: &BTreeMap<String, Arc<str>>,
) -> Result<(Arc<Cluster>, Arc<str>, Arc<str>), Refusal> {
    let name = place.name();
    let cluster = connect(kcp, place, secrets).await?;
    let control_plane = uid(kcp).await.map_err(|error| {
        Refusal::ForNow(format!("cluster {name} cannot be compared with the control plane: {error}"))
    })?;
    let uid =
        uid(&cluster).await.map_err(|error| Refusal::ForNow(format!("cluster {name} cannot be used: {error}")))?;
    match (control_plane, uid) {
        (Some(control_plane), Some(uid)) if control_plane == uid => Err(Refusal::Final(format!(
            "cluster {name} is the control plane itself: remove the annotation from its resources, and the label from \
             its Secret"
        ))),
        (Some(control_plane), Some(uid)) => Ok((cluster, uid, control_plane)),
        (None, _) => Err(Refusal::ForNow("the control plane has no namespace kube-system".to_owned())),
        (_, None) => Err(Refusal::ForNow(format!(
            "cluster {name} has no namespace kube-system, by which clusters are told apart"
        ))),
    }
}

/// The UID of a cluster: that of its namespace `kube-system`, which nobody can delete.
async fn uid(cluster: &Cluster) -> Result<Option<Arc<str>>, Error> {
    let kind = Kind::new(Gvk::new("", "v1", "Namespace"), "namespaces", false);
    let found = cluster.get_object_meta(&kind, &Key::new("", "kube-system")).await?;
    Ok(found.and_then(|found| found.uid).map(Into::into))
}

/// The connection.
async fn connect(kcp: &Cluster, place: &Key, secrets: &BTreeMap<String, Arc<str>>) -> Result<Arc<Cluster>, Refusal> {
    let cluster = place.name();
    let names: Vec<&str> = secrets.keys().map(String::as_str).collect();
    let [name] = names[..] else {
        let names = names.join(", ");
        return Err(Refusal::Final(format!(
            "the Secrets {names} lead to cluster {cluster}: remove the label from all but one"
        )));
    };
    let found = enact::read(kcp, place.namespace(), &(ObjectKind::Secret, name.to_owned())).await;
    let found =
        found.map_err(|error| Refusal::ForNow(format!("cannot read Secret {name} of cluster {cluster}: {error}")))?;
    let values = found.as_ref().map(content::values).unwrap_or_default();
    let Some(kubeconfig) = values.get(CONFIG) else {
        return Err(Refusal::Final(format!("Secret {name} of cluster {cluster} has no key `{CONFIG}`")));
    };
    let refused = |error: &dyn std::fmt::Display| {
        Refusal::Final(format!("Secret {name} of cluster {cluster} cannot be used: {error}"))
    };
    let access = access::parse(kubeconfig).and_then(|access| access.config());
    let config = access.map_err(|error| refused(&error))?;
    let connected = kcp.alike(ClusterName::Placed(place.clone()), &config, LIMITS);
    connected.map(Arc::new).map_err(|error| refused(&error))
}

/// Watches the objects of a kind that this control plane made.
fn watch(
    cluster: &Arc<Cluster>,
    stores: &Stores,
    place: &Key,
    control_plane: &str,
    kind: ObjectKind,
) -> BoxFuture<'static, ()> {
    let selector = format!("{}={control_plane}", label::CONTROL_PLANE);
    let options = Options::all(kind.kind()).namespace(place.namespace()).labels(&selector);
    let cluster = Arc::clone(cluster);
    let (stores, place) = (stores.clone(), place.clone());
    let on_change = move |change: Watched<LiveObject>| match change {
        Watched::Set { key, new, .. } => stores.set_object_elsewhere(&place, &(kind, key.name().to_owned()), Some(new)),
        Watched::Gone { key, .. } => stores.set_object_elsewhere(&place, &(kind, key.name().to_owned()), None),
        Watched::Synced => stores.listed_elsewhere(&place, kind),
        Watched::Forbidden { why } => stores.set_denied_elsewhere(&place, kind, Some(why)),
        Watched::Permitted => stores.set_denied_elsewhere(&place, kind, None),
        // Such an object is read before it is written.
        Watched::Unreadable { .. } | Watched::Cleared { .. } | Watched::NotServed | Watched::Served => {}
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
