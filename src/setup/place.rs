//! Objects in other clusters: a resource with the annotation `tidegate.dev/cluster` has its Deployments, Services and
//! PodDisruptionBudgets there, and copies of what its pods mount.
//!
//! # Which cluster it is
//!
//! The Secret with the label `tidegate.dev/cluster-name` in the namespace of the resource leads there, by the same
//! rules as the kubeconfig of a runtime: it may run no programs and name no files. A cluster is known by the UID of its
//! namespace `kube-system`. The control plane itself is refused, and so are two names of one cluster. [`follow()`]
//! keeps the connections: each cluster on its own, so that one which hangs delays no other.
//!
//! # What is there, and whose it is
//!
//! Certificates and all that is made of them stay in the control plane. A copy has exactly the mounted keys; of a
//! volume with all keys of a Secret, private keys of CAs and of other resources are left out.
//!
//! Every object there has the label `tidegate.dev/control-plane`. Only objects with this label are watched, changed and
//! deleted, so two control planes may use one cluster. Objects of one resource also have its UID in the label
//! `tidegate.dev/owner`, and are deleted only by it. A copy belongs to all resources in that cluster that mount it. Its
//! keys are theirs together, whichever of them writes it. It goes when no resource and no Deployment there mounts it.
//!
//! # In which order
//!
//! Before the first write in a cluster, the status of the resource names the cluster, in the condition
//! `tidegate.dev/Places`. It names it until nothing of the resource is left there. So neither a restart nor a deletion
//! forgets a cluster that cannot be reached: the finalizer stays meanwhile. If that status is lost or was edited, any
//! of the clusters may have objects of the resource, and each is asked. Not each such change can be seen. So a resource
//! that is being deleted also waits until each cluster of its namespace has answered, or has failed to, and loses what
//! these show. Only a user gives a cluster up, by name, with the annotation `tidegate.dev/forget-cluster`. When a
//! resource moves, what is in the former cluster goes once all pods in the new one are ready. Nothing counts as gone by
//! a watch alone, which may be late: the cluster lists it.
//!
//! A pass ends without a status while a cluster has not answered since the start. A cluster that cannot be reached
//! delays only what belongs there.

mod decide;
mod follow;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use tidegate_cluster::{Cluster, Error};
use tidegate_core::{
    api::{
        names::{finalizer, label},
        setup::Kind,
    },
    name::Key,
    plan::setup::{Known as KnownOfCluster, Plan, setup_mark},
};
use tidegate_process::ambient;
use tokio::time::Instant;

use self::decide::{COPY, Gone, Standing, Users};
pub(super) use self::decide::{Place, name_of, read_places, write_places};
pub(crate) use self::follow::follow;
use super::{
    SetupPass,
    decide::Outcome,
    enact,
    object::{LiveObject, ObjectKind},
    state::{self, Desired, Known, LiveObjects, ObjectName, Observed, Site},
};
use crate::{
    controller::events::{self, reason},
    stores::OtherCluster,
};

/// After this time, a cluster is tried again that could not be used.
pub(super) const RETRY: Duration = Duration::from_secs(30);

/// A request that failed, and where.
#[derive(Debug)]
pub(super) struct Failed {
    pub(super) error: Error,
    /// Whether another cluster than the control plane failed.
    pub(super) is_elsewhere: bool,
}

/// Why work in another cluster ended early.
enum Stop {
    /// The control plane failed.
    Control(Error),
    /// The other cluster did: one sentence.
    Elsewhere(String),
    /// An object in the other cluster has changed since it was seen: one sentence.
    Changed(String),
}

/// What became of the objects of a resource in other clusters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Placement {
    /// Whether its pods are where they shall be: one sentence. `None` if no other cluster has any of it.
    pub(super) state: Option<Result<String, String>>,
    /// The clusters that may have objects of the resource.
    pub(super) places: BTreeSet<Place>,
    /// Whether a cluster has not answered since the start. Its answer wakes the resource.
    pub(super) is_asked: bool,
    /// Whether objects in a former cluster are being deleted.
    pub(super) is_clearing: bool,
    /// Whether its cluster has not shown all that was applied there. It may be gone before.
    pub(super) is_unseen: bool,
    /// The keys that the copies there do not have although a volume has all keys: one sentence each.
    pub(super) left_out: Vec<String>,
}

/// A cluster that can be used.
struct Open {
    name: String,
    cluster: Arc<Cluster>,
    site: Site,
    objects: Arc<LiveObjects>,
}

impl From<Failed> for Stop {
    fn from(failed: Failed) -> Stop {
        match failed.error {
            error if !failed.is_elsewhere => Stop::Control(error),
            error @ Error::Changed { .. } => Stop::Changed(error.to_string()),
            error => Stop::Elsewhere(error.to_string()),
        }
    }
}

impl From<Error> for Stop {
    fn from(error: Error) -> Stop {
        Stop::Control(error)
    }
}

impl Placement {
    /// Whether something has to be tried again that no watch reports.
    pub(super) fn is_retried(&self) -> bool {
        self.is_clearing || matches!(self.state, Some(Err(_)))
    }
}

impl SetupPass<'_> {
    /// Objects of the control plane, and Deployments in other clusters.
    pub(super) fn around(&self, live: &LiveObjects) -> LiveObjects {
        let mut around = live.clone();
        around.extend(self.context.stores.deployments_elsewhere(self.key.namespace()));
        around
    }

    /// The clusters that may have objects of the resource: by its status, or because a watch shows some. All of them if
    /// its status is not what Tidegate wrote.
    pub(super) fn places(&self) -> BTreeSet<Place> {
        let all = self.context.stores.other_clusters(self.key.namespace());
        let mut places = self.recorded_places(self.kind, self.key, &all);
        let mark = setup_mark(self.kind, self.key.name());
        for (name, found) in all {
            if let Some(open) = decide::open(&name, found)
                && open.objects.values().any(|live| self.is_own(live, &mark))
            {
                decide::add_places(&mut places, [Place { name, uid: open.site.uid.to_string() }]);
            }
        }
        places
    }

    /// The clusters that may have objects of a resource by its status, or all of them if that is not what Tidegate
    /// wrote. A resource without the finalizer has none anywhere.
    fn recorded_places(&self, kind: Kind, key: &Key, all: &[(String, OtherCluster)]) -> BTreeSet<Place> {
        let SetupPass { context, resources, .. } = *self;
        let (status, known) = (resources.status(kind, key), context.memory.places(kind, key));
        let mut finalizers =
            resources.metadata(kind, key).into_iter().flat_map(|found| found.finalizers.iter().flatten());
        let is_taken = finalizers.any(|name| name == finalizer::SETUP);
        let is_lost = is_taken && known.is_none() && kind != Kind::Kubeconfig && decide::is_lost(&status);
        // Its name may have changed since the status that the watch shows.
        let mut places = BTreeSet::new();
        decide::add_places(&mut places, known.into_iter().flatten());
        decide::add_places(&mut places, decide::read_places(&status));
        if is_lost {
            decide::add_places(&mut places, decide::possible_places(all, resources.cluster_of(kind, key)));
        }
        places
    }

    /// Whether a cluster that may have objects of a resource, by its status, has not listed them.
    pub(super) fn is_anywhere_unlisted(&self, kind: Kind, key: &Key, all: &[(String, OtherCluster)]) -> bool {
        let listed: BTreeSet<&str> = all.iter().filter_map(|(_, found)| decide::listed(found)).collect();
        self.recorded_places(kind, key, all).iter().any(|place| !listed.contains(place.uid.as_str()))
    }

    /// What another cluster shall have of the resource, beside copies; `None` if the control plane has everything.
    pub(super) fn elsewhere(&self, known: &mut Known) -> Option<Known> {
        self.resources.cluster_of(self.kind, self.key)?;
        Some(decide::split(known))
    }

    /// Makes the objects in another cluster, then removes them where they were. Fails if the control plane does.
    pub(super) async fn place(
        &self,
        elsewhere: Option<Known>,
        plan: Option<&Plan>,
        here: &Known,
        observed: &mut Observed,
        outcomes: &mut Vec<(ObjectName, Outcome)>,
    ) -> Result<Placement, Error> {
        let mut placement = Placement { places: self.places(), ..Placement::default() };
        let Some(plan) = plan else { return Ok(placement) };
        let wanted = self.resources.cluster_of(self.kind, self.key);
        let mut target = None;
        if let (Some(known), Some(name)) = (elsewhere, wanted) {
            let standing = decide::standing(name, self.key.namespace(), self.context.stores);
            match standing {
                Standing::Asked => return Ok(Placement { is_asked: true, ..placement }),
                Standing::Unusable(sentence) => return Ok(Placement { state: Some(Err(sentence)), ..placement }),
                Standing::Usable(open) => {
                    self.settle_in(&open, &mut placement.places).await?;
                    match self.work_there(&open, plan, known, observed).await {
                        Ok((there, left_out)) => {
                            placement.is_unseen = self.is_unseen(&open, &there);
                            placement.left_out = left_out;
                            outcomes.extend(there);
                        }
                        Err(Stop::Control(error)) => return Err(error),
                        Err(Stop::Elsewhere(sentence) | Stop::Changed(sentence)) => {
                            let sentence = format!("cluster {name}: {sentence}");
                            return Ok(Placement { state: Some(Err(sentence)), ..placement });
                        }
                    }
                    placement.state = Some(Ok(format!("its pods are in cluster {name}")));
                    target = Some(open.site.uid);
                }
            }
        }
        self.tidy(target.as_deref(), plan, here, observed, outcomes, &mut placement).await?;
        Ok(placement)
    }

    /// Removes what is where the pods are no longer, once they are ready where they shall be.
    async fn tidy(
        &self,
        target: Option<&str>,
        plan: &Plan,
        here: &Known,
        observed: &mut Observed,
        outcomes: &mut Vec<(ObjectName, Outcome)>,
        placement: &mut Placement,
    ) -> Result<(), Error> {
        let is_left = target.is_some() && here.live.iter().any(|((kind, _), live)| left(*kind, live, &here.mark));
        let former: Vec<Place> =
            placement.places.iter().filter(|place| Some(place.uid.as_str()) != target).cloned().collect();
        if !is_left && former.is_empty() {
            return Ok(());
        }
        let live = match target {
            Some(uid) => decide::find(self.key.namespace(), uid, self.context.stores).map(|open| open.objects),
            None => Some(Arc::new(here.live.clone())),
        };
        let is_settled = outcomes.iter().all(|(_, outcome)| matches!(outcome, Outcome::Well | Outcome::Stays));
        if !here.is_complete || !is_settled || !decide::are_up(plan, &live.unwrap_or_default()) {
            let before =
                placement.state.take().and_then(Result::ok).unwrap_or_else(|| "its pods start here".to_owned());
            placement.state = Some(Ok(format!("{before}; those that it had before go once these are ready")));
            return Ok(());
        }
        if is_left {
            let mut rest = here.clone();
            rest.wanted.retain(|(kind, _)| !kind.is_placed());
            let done = self.work(&rest, observed).await?;
            outcomes.extend(done.into_iter().filter(|(name, _)| name.0.is_placed()));
        }
        for place in former {
            let standing = decide::reach(&place, self.key.namespace(), self.context.stores);
            if decide::is_target(&standing, target) {
                placement.places.remove(&place);
                continue;
            }
            match self.clear(standing).await? {
                Gone::All => _ = placement.places.remove(&place),
                Gone::Asked => placement.is_asked = true,
                Gone::Unknown(sentence) if decide::is_forgotten(self.metadata, &place) => {
                    self.tell_orphans(&place, &sentence);
                    placement.places.remove(&place);
                }
                Gone::Leaves(count) => {
                    let sentence = format!("{count} objects in cluster {} are being deleted", place.name);
                    placement.state = Some(Ok(sentence));
                    placement.is_clearing = true;
                }
                Gone::Unknown(sentence) => {
                    placement.state = Some(Err(decide::unforgotten(&place, &sentence)));
                }
            }
        }
        Ok(())
    }

    /// Names a cluster in the status before the first write there.
    async fn settle_in(&self, open: &Open, places: &mut BTreeSet<Place>) -> Result<(), Error> {
        let SetupPass { context, resources, kind, key, metadata, cause, .. } = *self;
        let place = Place { name: open.name.clone(), uid: open.site.uid.to_string() };
        let known = context.memory.places(kind, key).unwrap_or_default();
        let is_recorded = known.contains(&place) || decide::read_places(&resources.status(kind, key)).contains(&place);
        // It may have another name now, or have said only now which one it is.
        places.retain(|known| known.uid != place.uid && (known.uid != decide::UNKNOWN || known.name != place.name));
        places.insert(place);
        if is_recorded {
            return Ok(());
        }
        let before = context.memory.reported(kind, key, metadata).unwrap_or_else(|| resources.status(kind, key));
        let status = super::status::with_places(&before, places, metadata.generation, ambient::now());
        enact::report(context.kcp, cause, kind, key, &status).await?;
        context.memory.set_reported(kind, key, metadata, &status);
        context.memory.set_places(kind, key, places.clone());
        Ok(())
    }

    /// Works in the cluster that a resource asks for: copies first, because pods mount them. Returns what became of the
    /// objects, and which keys the copies do not have.
    async fn work_there(
        &self,
        open: &Open,
        plan: &Plan,
        known: Known,
        observed: &mut Observed,
    ) -> Result<(Vec<(ObjectName, Outcome)>, Vec<String>), Stop> {
        let users = self.users(open, Some(plan), observed).await?;
        let mut there =
            Observed { keys: observed.keys.clone(), values: observed.values.clone(), ..Observed::default() };
        let content = |name: &ObjectName| self.context.memory.content(self.key.namespace(), name);
        let live = |name: &ObjectName| here_of(self, name);
        let (copies, mut outcomes) = decide::copies(plan, &users, &open.site, &content, &live);
        let copies = Known { is_complete: false, ..self.known_there(open, COPY, copies, &known) };
        outcomes.extend(self.run(open, &copies, &mut there).await?);
        let (optional, mut more) = decide::optional_copies(plan, &users, &open.site, &content, &live);
        let optional = Known { is_complete: false, ..self.known_there(open, COPY, optional, &known) };
        more.extend(self.run(open, &optional, &mut there).await?);
        let is_blocked = outcomes.iter().any(|(_, outcome)| !matches!(outcome, Outcome::Well | Outcome::Waits(_)));
        // New pods would wait for what they mount. Until it is there, those that exist stay.
        if !is_blocked {
            let uid = self.metadata.uid.as_deref().unwrap_or_default();
            let desired = known.desired.iter().map(|one| decide::labelled(one, &open.site, Some(uid))).collect();
            let mark = known.mark.clone();
            let mut own = Known { is_complete: known.is_complete, ..self.known_there(open, &mark, desired, &known) };
            own.wanted.extend(known.wanted.iter().cloned());
            outcomes.extend(self.run(open, &own, &mut there).await?);
        }
        outcomes.extend(more);
        self.prune_copies(open, &users, &known).await?;
        Ok((outcomes, decide::left_out(plan, &users, &content, &live)))
    }

    /// Whether a cluster has not shown all objects that were applied there.
    fn is_unseen(&self, open: &Open, there: &[(ObjectName, Outcome)]) -> bool {
        let scope = state::scope(&open.site.uid, self.key.namespace());
        let verified = self.context.memory.verified(&scope, there.iter().map(|(name, _)| name));
        verified.values().any(|verified| !verified.is_shown)
    }

    /// The objects with a mark in a cluster, and those that shall be there.
    fn known_there(&self, open: &Open, mark: &str, desired: Vec<Desired>, known: &Known) -> Known {
        let wanted: BTreeSet<ObjectName> = desired.iter().map(|desired| desired.name.clone()).collect();
        let is_own =
            |live: &LiveObject| if mark == COPY { live.mark.as_deref() == Some(COPY) } else { self.is_own(live, mark) };
        let live = open.objects.iter().filter(|(name, live)| wanted.contains(*name) || is_own(live));
        let live: LiveObjects = live.map(|(name, live)| (name.clone(), Arc::clone(live))).collect();
        let scope = state::scope(&open.site.uid, self.key.namespace());
        self.context.memory.shown(&scope, live.keys());
        Known {
            mark: mark.to_owned(),
            place: Some(open.site.clone()),
            verified: self.context.memory.verified(&scope, wanted.iter()),
            live,
            wanted,
            desired,
            held: BTreeMap::new(),
            definition: None,
            ..known.clone()
        }
    }

    /// Whether an object in another cluster is one of the resource.
    fn is_own(&self, live: &LiveObject, mark: &str) -> bool {
        live.mark.as_deref() == Some(mark)
            && live.owner.is_some()
            && live.owner.as_deref() == self.metadata.uid.as_deref()
    }

    async fn run(&self, open: &Open, known: &Known, there: &mut Observed) -> Result<Vec<(ObjectName, Outcome)>, Stop> {
        let mut outcomes = self.work_in(&open.cluster, known, there).await.inspect_err(|failed| {
            // Further requests would wait as long.
            if failed.is_elsewhere && failed.error.is_unreachable() {
                open.cluster.silent_since(Instant::now());
            }
        })?;
        self.remember(known, there, &outcomes);
        outcomes.retain(|(name, _)| !decide::is_provided(known, there, name));
        // What was read and applied says nothing of objects with the same names that belong to others.
        there.applied.clear();
        there.found.clear();
        Ok(outcomes)
    }

    /// Deletes the copies that no resource and no Deployment in a cluster mounts.
    async fn prune_copies(&self, open: &Open, users: &Users, known: &Known) -> Result<(), Stop> {
        if !users.are_all_known {
            return Ok(());
        }
        let mut rest = self.known_there(open, COPY, Vec::new(), known);
        rest.wanted.extend(users.mounted.keys().cloned());
        rest.wanted.extend(open.objects.values().flat_map(|live| live.mounts.iter().cloned()));
        // Pods do without them.
        rest.wanted.retain(|name| !users.optional.contains(name) || here_of(self, name).is_some());
        rest.is_complete = true;
        self.run(open, &rest, &mut Observed::default()).await.map(drop)
    }

    /// What the resources mount that ask for a cluster, or that still have pods there. `own` is the plan of this one,
    /// if it stays there.
    async fn users(&self, open: &Open, own: Option<&Plan>, observed: &mut Observed) -> Result<Users, Error> {
        let SetupPass { resources, key, .. } = *self;
        let all = resources.ids().filter(|(_, other)| other.namespace() == key.namespace());
        let has_pods = |mark: &str| {
            let mut deployments = open.objects.iter().filter(|((kind, _), _)| *kind == ObjectKind::Deployment);
            deployments.any(|(_, live)| live.mark.as_deref() == Some(mark))
        };
        let is_user = |(kind, key): &(Kind, &Key)| {
            let is_leaving = resources.metadata(*kind, key).is_some_and(|found| found.deletion_timestamp.is_some());
            let is_wanted = !is_leaving && resources.cluster_of(*kind, key) == Some(open.name.as_str());
            let is_this = (*kind, *key) == (self.kind, self.key);
            !is_this && (is_wanted || has_pods(&setup_mark(*kind, key.name())))
        };
        let users: Vec<(Kind, &Key)> = all.filter(is_user).collect();
        let mut chained = KnownOfCluster::default();
        for (kind, key) in &users {
            chained.chained.extend(self.chained_of(*kind, key, observed).await?.chained);
        }
        let known = self.with_trusts(chained, observed).await?;
        let plans = users.into_iter().filter_map(|(kind, key)| resources.plan(kind, key, &known));
        Ok(Users::new(own.cloned().map(Ok).into_iter().chain(plans)))
    }

    /// Deletes what a cluster has of the resource. Fails if the control plane does.
    async fn clear(&self, standing: Standing) -> Result<Gone, Error> {
        let namespace = self.key.namespace();
        let open = match standing {
            Standing::Asked => return Ok(Gone::Asked),
            Standing::Unusable(sentence) => return Ok(Gone::Unknown(sentence)),
            Standing::Usable(open) => open,
        };
        match self.clear_in(&open).await {
            Ok(0) => {
                // The others may have less to copy now.
                let left = (self.kind, self.key.clone());
                self.context.stores.wake_placed(&Key::new(namespace, &open.name), &left);
                Ok(Gone::All)
            }
            Ok(count) => Ok(Gone::Leaves(count)),
            Err(Stop::Control(error)) => Err(error),
            // Its present state is deleted in the next pass.
            Err(Stop::Changed(_)) => Ok(Gone::Leaves(1)),
            Err(Stop::Elsewhere(sentence)) => Ok(Gone::Unknown(format!("cluster {}: {sentence}", open.name))),
        }
    }

    /// Deletes what is in a cluster of the resource, and returns how many objects are left.
    async fn clear_in(&self, open: &Open) -> Result<usize, Stop> {
        let nothing = self.nothing();
        let mut known = self.known_there(open, &nothing.mark, Vec::new(), &nothing);
        known.is_complete = true;
        let outcomes = self.run(open, &known, &mut Observed::default()).await?;
        let left = outcomes.iter().filter(|(_, outcome)| *outcome == Outcome::Leaves).count();
        let left = if left == 0 { self.unseen(open).await? } else { left };
        if left == 0 {
            let others = self.users(open, None, &mut Observed::default()).await?;
            self.prune_copies(open, &others, &nothing).await?;
        }
        Ok(left)
    }

    /// How many objects of the resource a cluster has that its watches have not shown yet.
    async fn unseen(&self, open: &Open) -> Result<usize, Failed> {
        let Some(uid) = self.metadata.uid.as_deref() else { return Ok(0) };
        let selector = format!("{}={},{}={uid}", label::CONTROL_PLANE, open.site.control_plane, label::OWNER);
        let mut count = 0;
        for kind in ObjectKind::PLACED.into_iter().filter(|kind| kind.is_placed()) {
            let found = open.cluster.list_metadata(&kind.kind(), Some(self.key.namespace()), Some(&selector)).await;
            let found = found.map_err(|error| Failed { error, is_elsewhere: true })?;
            count += found.iter().filter(|one| !open.objects.contains_key(&(kind, one.id.name.to_string()))).count();
        }
        Ok(count)
    }

    /// What a resource that is being deleted waits for, before anything of it goes, because a cluster cannot be
    /// listed: one sentence. Nobody knows then whether its pods run.
    pub(super) fn unlisted(&self) -> Placement {
        let mut placement = Placement { places: self.places(), ..Placement::default() };
        // A status does not always show that others have edited it. What its clusters show is known once they answer.
        let all = self.context.stores.other_clusters(self.key.namespace());
        placement.is_asked = self.kind != Kind::Kubeconfig && decide::is_any_asked(all);
        for place in placement.places.clone() {
            match decide::reach(&place, self.key.namespace(), self.context.stores) {
                Standing::Usable(_) => {}
                Standing::Asked => placement.is_asked = true,
                Standing::Unusable(_) if decide::is_forgotten(self.metadata, &place) => {}
                Standing::Unusable(sentence) => placement.state = Some(Err(decide::unforgotten(&place, &sentence))),
            }
        }
        placement
    }

    /// Deletes what other clusters have of a resource that is being deleted. Returns what that waits for: one sentence;
    /// `None` if nothing is left. Fails if the control plane does.
    pub(super) async fn leave_elsewhere(&self, placement: &mut Placement) -> Result<Option<String>, Error> {
        for place in placement.places.clone() {
            let standing = decide::reach(&place, self.key.namespace(), self.context.stores);
            match self.clear(standing).await? {
                Gone::All => _ = placement.places.remove(&place),
                Gone::Asked => return Ok(Some(format!("cluster {} has not answered yet", place.name))),
                Gone::Leaves(count) => {
                    return Ok(Some(format!("{count} objects in cluster {} are being deleted", place.name)));
                }
                Gone::Unknown(sentence) if decide::is_forgotten(self.metadata, &place) => {
                    self.tell_orphans(&place, &sentence);
                    placement.places.remove(&place);
                }
                Gone::Unknown(sentence) => {
                    let sentence = decide::unforgotten(&place, &sentence);
                    placement.state = Some(Err(sentence.clone()));
                    return Ok(Some(sentence));
                }
            }
        }
        Ok(None)
    }

    /// Says what stays in a cluster that a user has given up.
    fn tell_orphans(&self, place: &Place, sentence: &str) {
        let uid = self.metadata.uid.as_deref().unwrap_or_default();
        let note = format!(
            "objects with the label {}={uid} stay in cluster {place}: {sentence}; delete what stays yourself",
            label::OWNER
        );
        tracing::warn!(problem = note, "orphans stay in another cluster");
        self.tell(events::Severity::Warning, reason::KEPT, note);
    }
}

/// An object in the control plane.
fn here_of(pass: &SetupPass<'_>, name: &ObjectName) -> Option<Arc<LiveObject>> {
    let all = pass.context.stores.setup_objects(pass.key.namespace(), "", &BTreeSet::from([name.clone()]));
    all.get(name).cloned()
}

/// Whether an object of the resource is in the control plane that belongs into another cluster.
fn left(kind: ObjectKind, live: &LiveObject, mark: &str) -> bool {
    kind.is_placed() && live.mark.as_deref() == Some(mark)
}

#[cfg(test)]
mod tests;
