//! One pass over a resource of a kcp landscape (RootShard, Shard, FrontProxy, CacheServer, VirtualWorkspace,
//! Kubeconfig): its objects in the control plane, its finalizer, its status.
//!
//! [`tidegate_core::plan::setup`] says which objects a resource has, and what each of them waits for. Watches of the
//! objects, and of all Secrets and ConfigMaps of the namespaces without their content, wake the resources that depend
//! on them. So waiting sends no request, and what a user adds takes effect at once.
//!
//! The objects bear the label `tidegate.dev/setup` of their resource. By this label they are found again, also after a
//! restart, and pruned. The annotation `tidegate.dev/digest` says what was applied, so a new process compares each
//! object once and writes nothing.
//!
//! Objects of kcp-operator become Tidegate's by [`adopt`]. Some of them stay as they are for now, see [`hold`].
//!
//! While a CA is being replaced, pods trust the former one as well, and some certificates wait, see [`overlap`].
//!
//! Values of Secrets are read only if something mounts or contains them, and only after they changed. A pass keeps the
//! digests of values, and certificates, but no other values. Connections to workspaces inside kcp stay open, each with
//! its key.

pub(crate) mod adopt;
mod builtin;
mod content;
mod decide;
mod enact;
mod hold;
mod inside;
mod leave;
pub(crate) mod object;
pub(crate) mod operator;
mod overlap;
pub(crate) mod place;
mod state;
mod status;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use futures::{StreamExt, stream};
use k8s_openapi::{api::core::v1::ObjectReference, jiff::Timestamp};
use serde_json::Value;
use tidegate_cluster::{Cause, Cluster, Error};
use tidegate_core::{
    api::{
        names::annotation,
        setup::{Kind, SETUP_GROUP, SETUP_VERSION},
        shared::ObjectMeta,
    },
    conditions,
    landscape::{self, setup::Resources},
    name::Key,
    object::{Digest, Object},
    plan::setup::{self as plan, Content, Known as KnownOfCluster, Plan, Problem, Replicas, setup_mark},
    render::{self, live},
    template::Templates,
};
use tidegate_process::{ambient, retry::Class};

use self::{
    decide::{Act, Next, Outcome},
    object::ObjectKind,
    overlap::Overlaps,
    state::{Desired, Keys, Known, Observed, Origin, Verified},
    status::Facts,
};
use crate::{
    controller::{
        self, Failure, Pass,
        events::{self, Event, Recorder, reason},
    },
    queue::{Finish, Trigger, Triggers},
    renderer::CurrentTemplates,
    source::registry::SourceRegistry,
    stores::{Stores, Table},
};

pub use state::{Issuance, SetupMemory};
pub(crate) use state::{LiveObjects, ObjectName};

/// The parts of the daemon that passes over resources of kcp landscapes use.
#[derive(Clone, Copy)]
pub struct SetupContext<'a> {
    /// The control plane. It refuses writes while this process does not lead.
    pub kcp: &'a Cluster,
    /// The objects in the control plane.
    pub stores: &'a Stores,
    /// Which sources have been read, so that their templates are known.
    pub sources: &'a SourceRegistry,
    /// The templates.
    pub templates: CurrentTemplates<'a>,
    /// Publishes Events.
    pub events: &'a Recorder,
    /// What this process remembers of the objects.
    pub memory: &'a SetupMemory,
    /// Who issues certificates.
    pub issuance: Issuance,
}

/// How long until an object is read again that others own or that the API server rejected. Nothing reports that it
/// changed.
const REFUSED_RETRY: Duration = Duration::from_secs(300);

/// How long until a certificate is looked at again that waits for the trust in its CA. What ends the wait wakes the
/// resource before: an object that it needs, or the pass that finds that no former certificate is in use. A change of
/// another resource that changes none of these objects does not.
const HELD_RETRY: Duration = Duration::from_secs(60);

/// How many Secrets and ConfigMaps a pass reads at the same time: other passes share the connection.
const READS_MAX: usize = 8;

/// Limits of the time until a renewal is looked for.
const RENEWAL_SOONEST: Duration = Duration::from_secs(1);
const RENEWAL_LATEST: Duration = Duration::from_secs(24 * 3600);

/// Moves the objects of a resource a step towards their desired state.
///
/// # Errors
///
/// Errors of the control plane, and waiting if something cannot be read.
pub(crate) async fn reconcile(context: SetupContext<'_>, kind: Kind, key: &Key, triggers: Triggers) -> Pass {
    let (resources, version) = context.stores.setup_with_version();
    if context.stores.unreadable_object(Table::Setup(kind), key).is_some() {
        return Ok(Finish::Deferred);
    }
    let Some(metadata) = resources.metadata(kind, key) else {
        context.memory.said(kind, key);
        context.memory.forget_resource(kind, key);
        return Ok(Finish::Gone);
    };
    // What it refers to, or an object of its own, may be among them.
    if let Some(found) = context.stores.all_unknown(&tables(), Some(key.namespace())).first() {
        return Err(Failure::new(Class::Waiting, "Unreadable", found.sentence()));
    }
    let mut operator = context.stores.kcp_operator();
    let cause = controller::cause(triggers);
    let pass = SetupPass { context, resources: &resources, version, kind, key, metadata, cause: &cause };
    if metadata.deletion_timestamp.is_none() {
        controller::templates_read(context.stores, context.sources, metadata)?;
    }
    let work = async {
        match metadata.deletion_timestamp {
            Some(_) => pass.leave().await,
            None => pass.stay(requested(&resources, kind, key, triggers)).await,
        }
    };
    let ended = tokio::select! {
        biased;
        // Its end wakes everything.
        _ = operator.wait_for(Option::is_some) => {
            return Ok(context.stores.kcp_operator_doubt().map_or(Finish::Done, Finish::Awaiting));
        }
        ended = work => ended,
    };
    ended.map_err(|error| Failure::new(error.class(), error.reason(), error))
}

/// Writes into the status of a resource why its last pass panicked. Other passes write their own status.
///
/// # Errors
///
/// The control plane rejects the status.
pub(crate) async fn report_failure(
    context: SetupContext<'_>,
    kind: Kind,
    key: &Key,
    triggers: Triggers,
    failure: &Failure,
) -> Result<(), Failure> {
    if context.stores.kcp_operator().borrow().is_some() {
        return Ok(());
    }
    let resources = context.stores.setup();
    let Some(metadata) = resources.metadata(kind, key) else { return Ok(()) };
    let (before, message) = (resources.status(kind, key), failure.error.to_string());
    let mut status = status::failed(&before, metadata.generation, failure.reason, &message, ambient::now());
    // The watch may not show yet what the pass has written of other clusters before it panicked.
    let places = context.memory.places(kind, key).unwrap_or_default();
    if !places.is_empty() {
        status = status::with_places(&status, &places, metadata.generation, ambient::now());
    }
    let cause = controller::cause(triggers);
    let written = enact::report(context.kcp, &cause, kind, key, &status).await;
    written.map_err(|error| Failure::new(error.class(), error.reason(), error))?;
    context.memory.set_reported(kind, key, metadata, &status);
    Ok(())
}

/// The tables that a plan depends on.
fn tables() -> Vec<Table> {
    Kind::ALL.map(Table::Setup).into_iter().chain(ObjectKind::ALL.map(Table::SetupObjects)).collect()
}

/// Whether a user asks to compare everything with the control plane.
fn requested(resources: &Resources, kind: Kind, key: &Key, triggers: Triggers) -> bool {
    let status = resources.status(kind, key);
    let handled: Vec<_> = serde_json::from_value(status["conditions"].clone()).unwrap_or_default();
    let handled = conditions::message(&handled, conditions::RECONCILE_REQUESTED);
    let metadata = resources.metadata(kind, key);
    let requested = metadata.and_then(|found| landscape::annotation(found, annotation::RECONCILE_REQUESTED_AT));
    let is_new = requested.is_some() && requested != handled;
    is_new || triggers.contains(Trigger::Requested) || triggers.contains(Trigger::Resync)
}

/// One pass over a resource.
struct SetupPass<'a> {
    context: SetupContext<'a>,
    resources: &'a Resources,
    /// Grows whenever a definition changes.
    version: u64,
    kind: Kind,
    key: &'a Key,
    metadata: &'a ObjectMeta,
    cause: &'a Cause,
}

// === impl SetupPass ===

impl SetupPass<'_> {
    /// A pass over a resource that stays.
    async fn stay(&self, compares_all: bool) -> Result<Finish, Error> {
        let SetupPass { context, resources, kind, key, metadata, .. } = *self;
        if !metadata.finalizers.iter().flatten().any(|name| name == tidegate_core::api::names::finalizer::SETUP) {
            enact::take_charge(context.kcp, self.cause, kind, key, metadata).await?;
            // Without the finalizer, nothing was made anywhere, and its status need not say so.
            if context.memory.places(kind, key).is_none() {
                context.memory.set_places(kind, key, place::read_places(&resources.status(kind, key)));
            }
        }
        let mut observed = Observed::default();
        let chained = self.chained(&mut observed).await?;
        let overlaps = self.overlaps(chained.clone(), &mut observed).await?;
        let planned = resources.plan(kind, key, &overlaps.cluster).expect("it exists");
        let problems = self.problems(&chained, planned.as_ref().err());
        let (mut known, failures) = match planned.as_ref().ok().filter(|_| !self.is_forbidden()) {
            Some(plan) => self.known(plan, &overlaps, &mut observed).await?,
            None => (self.nothing(), Vec::new()),
        };
        if compares_all {
            context.memory.forget(key.namespace(), known.wanted.iter());
            context.memory.forget_elsewhere(key.namespace(), known.wanted.iter());
            known.verified.clear();
        }
        let elsewhere = planned.as_ref().ok().and_then(|_| self.elsewhere(&mut known));
        let mut outcomes = self.work(&known, &mut observed).await?;
        self.remember(&known, &observed, &outcomes);
        let own_plan = planned.as_ref().ok().filter(|_| !self.is_forbidden());
        let placement = self.place(elsewhere, own_plan, &known, &mut observed, &mut outcomes).await?;
        if placement.is_asked {
            return Ok(Finish::Done);
        }
        let inside = self.grant(&mut observed, compares_all).await?;
        // The other cluster may have listed its objects since the pass began.
        let around = self.around(&known.live);
        let facts = Facts {
            kind,
            key,
            resources,
            metadata,
            plan: planned.as_ref(),
            problems: &problems,
            outcomes: &outcomes,
            failures: &failures,
            live: &around,
            issuance: context.issuance,
            inside: &inside,
            replaced: &overlaps.sentences,
            last_key: overlaps.last_key.as_ref(),
            placement: &placement,
            leaving: None,
        };
        let moved = !observed.applied.is_empty() || !observed.deleted.is_empty();
        let unsaid = self.report(&facts, moved).await?;
        let is_refused = |(_, outcome): &(ObjectName, Outcome)| match outcome {
            Outcome::Refused(_) => true,
            Outcome::Well | Outcome::Waits(_) | Outcome::Unusable(_) | Outcome::Leaves | Outcome::Stays => false,
        };
        let refused = outcomes.iter().any(is_refused).then_some((REFUSED_RETRY, Trigger::Resync));
        let unsaid = unsaid.map(|after| (after, Trigger::Retry));
        let mut applied = context.memory.verified(key.namespace(), known.wanted.iter()).into_values();
        // It may be gone before the watch has shown it.
        let is_unseen = placement.is_unseen || applied.any(|verified| !verified.is_shown);
        let unseen = is_unseen.then_some((decide::UNSEEN, Trigger::Retry));
        let renewal = renewal(&known).map(|after| (after, Trigger::Resync));
        let trigger = match &inside.state {
            inside::State::Waits(_) => Trigger::Retry,
            inside::State::Nothing | inside::State::Well | inside::State::Missing(_) => Trigger::Resync,
        };
        let again = inside.after.map(|after| (after, trigger));
        let held = (!known.held.is_empty()).then_some((HELD_RETRY, Trigger::Retry));
        let ending = overlaps.until.map(|until| (soon(until, known.now), Trigger::Retry));
        let unplaced = placement.is_retried().then_some((place::RETRY, Trigger::Retry));
        let all = [refused, unsaid, unseen, renewal, again, held, ending, unplaced];
        let first = all.into_iter().flatten().min_by_key(|(after, _)| *after);
        Ok(first.map_or(Finish::Done, |(after, trigger)| Finish::After(after, trigger)))
    }

    /// A pass over a resource that is being deleted.
    async fn leave(&self) -> Result<Finish, Error> {
        let SetupPass { context, resources, kind, key, metadata, .. } = *self;
        if !leave::is_held(metadata) {
            context.memory.forget_resource(kind, key);
            context.stores.set_setup_needs((kind, key), BTreeSet::new());
            return Ok(Finish::Done);
        }
        let definition = enact::definition(context.kcp, kind).await?;
        let mut observed = Observed::default();
        let waits = leave::waits(resources, kind, key, definition);
        // Others wake it when they go, and nothing inside kcp does.
        let is_retried = waits.is_none();
        let mut placement = self.unlisted();
        if placement.is_asked {
            return Ok(Finish::Done);
        }
        let waits = waits.or_else(|| placement.state.clone().and_then(Result::err));
        let waits = match waits {
            Some(waits) => Some(waits),
            None => self.clean_up(&mut observed).await?,
        };
        let waits = match waits {
            Some(waits) => Some(waits),
            None => self.leave_elsewhere(&mut placement).await?,
        };
        let is_retried = is_retried && waits.is_some();
        let mut known = self.nothing();
        known.is_complete = waits.is_none();
        let outcomes = self.work(&known, &mut observed).await?;
        let leaves = outcomes.iter().filter(|(_, outcome)| *outcome == Outcome::Leaves).count();
        if waits.is_none() && leaves == 0 {
            self.tell_kept(&outcomes);
            enact::release(context.kcp, self.cause, kind, metadata).await?;
            context.memory.forget(key.namespace(), known.live.keys());
            context.memory.forget_resource(kind, key);
            match kind {
                Kind::RootShard | Kind::Shard => context.memory.forget_key(key),
                Kind::CacheServer | Kind::FrontProxy | Kind::VirtualWorkspace | Kind::Kubeconfig => {}
            }
            return Ok(Finish::Done);
        }
        let inside = inside::Report { provisioned: self.provisioned(), ..inside::Report::default() };
        let leaving = waits.unwrap_or_else(|| format!("{leaves} objects are being deleted"));
        let planned = resources.plan(kind, key, &KnownOfCluster::default()).expect("it exists");
        let facts = Facts {
            kind,
            key,
            resources,
            metadata,
            plan: planned.as_ref(),
            problems: &[],
            outcomes: &outcomes,
            failures: &[],
            live: known.around(),
            issuance: context.issuance,
            inside: &inside,
            replaced: &[],
            last_key: None,
            placement: &placement,
            leaving: Some(&leaving),
        };
        self.report(&facts, false).await?;
        Ok(if is_retried { Finish::After(inside::RETRY, Trigger::Retry) } else { Finish::Done })
    }

    /// The workspace that may have ClusterRoleBindings of the resource.
    fn provisioned(&self) -> Option<String> {
        let kubeconfig = self.resources.kubeconfigs.get(self.key).filter(|_| self.kind == Kind::Kubeconfig)?;
        kubeconfig.provisioned().map(str::to_owned)
    }

    /// Whether nothing may be made of the resource: its user is one with which parts of kcp trust each other.
    fn is_forbidden(&self) -> bool {
        let kubeconfig = self.resources.kubeconfigs.get(self.key).filter(|_| self.kind == Kind::Kubeconfig);
        kubeconfig.is_some_and(|found| plan::is_reserved_user(&found.spec.username))
    }

    /// Whether the root CA behind the resource is self-signed. As long as its Secret cannot be read, what was made of
    /// it says so: nothing changes because the Secret is missing.
    async fn chained(&self, observed: &mut Observed) -> Result<KnownOfCluster, Error> {
        self.chained_of(self.kind, self.key, observed).await
    }

    /// The same for another resource of the namespace.
    async fn chained_of(&self, kind: Kind, key: &Key, observed: &mut Observed) -> Result<KnownOfCluster, Error> {
        let SetupPass { context, resources, .. } = *self;
        let Some((root, ca)) = resources.root_of(kind, key) else { return Ok(KnownOfCluster::default()) };
        let (namespace, name) = (key.namespace(), (ObjectKind::Secret, ca));
        context.stores.add_setup_need((self.kind, self.key), &name);
        let live = context.stores.setup_objects(namespace, "", &BTreeSet::from([name.clone()]));
        self.learn_all(std::iter::once(&name), &live, observed).await?;
        let known = context.memory.content(namespace, &name).filter(|_| live.contains_key(&name));
        let is_chained = match known.and_then(|known| known.is_self_signed) {
            Some(is_self_signed) => !is_self_signed,
            None => {
                let mark = setup_mark(Kind::RootShard, root.name());
                let made = context.stores.setup_objects(namespace, &mark, &BTreeSet::new());
                // One of them alone is there while its CA is being replaced.
                ["client", "requestheader-client"]
                    .into_iter()
                    .all(|ca| made.contains_key(&(ObjectKind::Secret, format!("{}-{ca}-ca-trust", root.name()))))
            }
        };
        let chained = is_chained.then(|| root.clone()).into_iter().collect();
        Ok(KnownOfCluster { chained, ..KnownOfCluster::default() })
    }

    /// The rules that the resource violates.
    fn problems(&self, chained: &KnownOfCluster, unplanned: Option<&Problem>) -> Vec<Problem> {
        let is_own = |problem: &&Problem| problem.kind == self.kind && problem.key == *self.key;
        let all = self.context.memory.problems((self.resources, self.version), chained);
        let mut problems: Vec<Problem> = all.iter().filter(is_own).cloned().collect();
        problems.extend(unplanned.filter(|problem| is_own(problem) && !problems.contains(problem)).cloned());
        problems
    }

    /// What the pass knows if nothing is desired for now.
    fn nothing(&self) -> Known {
        let (namespace, mark) = (self.key.namespace(), setup_mark(self.kind, self.key.name()));
        let live = self.context.stores.setup_objects(namespace, &mark, &BTreeSet::new());
        Known {
            namespace: namespace.to_owned(),
            mark,
            place: None,
            around: Some(self.around(&live)),
            live,
            verified: BTreeMap::new(),
            desired: Vec::new(),
            definition: None,
            wanted: BTreeSet::new(),
            is_complete: false,
            may_adopt: false,
            held: BTreeMap::new(),
            issuance: self.context.issuance,
            now: ambient::now(),
        }
    }

    /// What the pass knows about the objects of a plan, and which templates failed.
    async fn known(
        &self,
        plan: &Plan,
        overlaps: &Overlaps,
        observed: &mut Observed,
    ) -> Result<(Known, Vec<String>), Error> {
        let SetupPass { context, resources, kind, key, metadata, .. } = *self;
        let namespace = key.namespace();
        let (wanted, mut inputs, mut needs) = names(plan);
        if resources.cluster_of(kind, key).is_some() {
            // Copies are made of what exists.
            let used: BTreeSet<ObjectName> = plan.used().iter().filter_map(place::name_of).collect();
            needs.extend(used.iter().cloned());
            inputs.extend(used);
        }
        needs.extend(resources.root_of(kind, key).map(|(_, ca)| (ObjectKind::Secret, ca)));
        needs.extend(overlaps.needs.iter().cloned());
        context.stores.set_setup_needs((kind, key), needs.clone());
        let mark = setup_mark(kind, key.name());
        let live = context.stores.setup_objects(namespace, &mark, &needs);
        context.memory.shown(namespace, live.keys());
        self.learn_all(inputs.iter(), &live, observed).await?;
        let (owned, keys, issuance) = (plan.clone(), observed.keys.clone(), context.issuance);
        let is_adopted = decide::owned(&live, &mark).any(|live| live.is_adopted);
        let render = move |templates: &Templates| {
            let definition = is_adopted.then(|| hold::definition(templates, &owned)).flatten();
            (desired(templates, &owned, &keys, issuance), definition)
        };
        let ((desired, failures), definition) = context.templates.for_object(metadata, render).await;
        let held = self.held(overlaps, &desired, &live, observed).await?;
        let known = Known {
            namespace: namespace.to_owned(),
            mark,
            place: None,
            verified: context.memory.verified(namespace, wanted.iter()),
            around: Some(self.around(&live)),
            live,
            desired,
            definition,
            wanted,
            is_complete: failures.is_empty(),
            may_adopt: landscape::annotation(metadata, annotation::ADOPT) == Some("true"),
            held,
            issuance: context.issuance,
            now: ambient::now(),
        };
        Ok((known, failures))
    }

    /// Reads the values of Secrets and ConfigMaps that changed since they were read, and notes those that exist.
    async fn learn_all<'n>(
        &self,
        names: impl Iterator<Item = &'n ObjectName> + Clone,
        live: &LiveObjects,
        observed: &mut Observed,
    ) -> Result<(), Error> {
        let SetupPass { context, key, .. } = *self;
        let (memory, namespace) = (context.memory, key.namespace());
        let version =
            |name: &ObjectName| memory.content(namespace, name).map(|known| Arc::clone(&known.resource_version));
        let is_unread = |name: &&ObjectName| {
            !observed.values.contains_key(*name) && decide::unread(std::iter::once(*name), live, version).is_some()
        };
        let unread: BTreeSet<ObjectName> = names.clone().filter(is_unread).cloned().collect();
        let kcp = context.kcp;
        // After a start, that may be everything that a CA has signed.
        let mut reads = stream::iter(unread)
            .map(|name| async move { (enact::read(kcp, namespace, &name).await, name) })
            .buffer_unordered(READS_MAX);
        while let Some((found, name)) = reads.next().await {
            self.learned(name, found?, observed);
        }
        for name in names {
            let known = memory.content(namespace, name).filter(|_| live.contains_key(name));
            if let Some(known) = known {
                observed.keys.insert(name.clone(), known.keys.clone());
            }
        }
        Ok(())
    }

    /// Reads the values of a Secret or ConfigMap.
    async fn learn(&self, name: &ObjectName, observed: &mut Observed) -> Result<(), Error> {
        let found = enact::read(self.context.kcp, self.key.namespace(), name).await?;
        self.learned(name.clone(), found, observed);
        Ok(())
    }

    /// Notes a Secret or ConfigMap that was read; `None` if it does not exist.
    fn learned(&self, name: ObjectName, found: Option<Object>, observed: &mut Observed) {
        self.note(&name, found.as_ref(), observed);
        observed.learned.insert(name, found);
    }

    /// Notes the values of a Secret or ConfigMap that was read.
    fn note(&self, name: &ObjectName, found: Option<&Object>, observed: &mut Observed) {
        let values = found.map(content::values).unwrap_or_default();
        let version = found.map(|found| found.value()["metadata"]["resourceVersion"].as_str().unwrap_or_default());
        let known = found.zip(version).map(|(found, version)| content::known_of(found, version));
        self.context.memory.set_content(self.key.namespace(), name, known, ambient::now());
        observed.values.insert(name.clone(), values);
    }

    /// An object as it is now. One whose values were read in this pass is not read again.
    async fn read(&self, name: &ObjectName, observed: &mut Observed) -> Result<Option<Object>, Error> {
        if let Some(found) = observed.learned.remove(name) {
            return Ok(found);
        }
        let found = enact::read(self.context.kcp, self.key.namespace(), name).await?;
        if name.0.is_input() {
            self.note(name, found.as_ref(), observed);
        }
        Ok(found)
    }

    /// Works in the control plane until there is nothing more to do, and returns what became of each object.
    async fn work(&self, known: &Known, observed: &mut Observed) -> Result<Vec<(ObjectName, Outcome)>, Error> {
        self.work_in(self.context.kcp, known, observed).await.map_err(|failed| failed.error)
    }

    /// Works in a cluster until there is nothing more to do, and returns what became of each object. What a resource
    /// refers to is read in the control plane.
    async fn work_in(
        &self,
        cluster: &Cluster,
        known: &Known,
        observed: &mut Observed,
    ) -> Result<Vec<(ObjectName, Outcome)>, place::Failed> {
        let memory = self.context.memory;
        let (namespace, scope) = (self.key.namespace(), known.scope());
        let is_elsewhere = known.place.is_some();
        let failed = |error: Error| place::Failed { error, is_elsewhere };
        loop {
            match decide::next(known, observed) {
                Next::End(outcomes) => return Ok(outcomes),
                Next::Do(Act::Learn(name)) => {
                    let learned = self.learn(&name, observed).await;
                    learned.map_err(|error| place::Failed { error, is_elsewhere: false })?;
                }
                Next::Do(Act::Read(name)) if is_elsewhere => {
                    let found = enact::read(cluster, namespace, &name).await.map_err(failed)?;
                    observed.found.insert(name, found);
                }
                Next::Do(Act::Read(name)) => {
                    let found = self.read(&name, observed).await.map_err(failed)?;
                    observed.found.insert(name, found);
                }
                Next::Do(Act::Apply(name, object, digest, on_conflict)) => {
                    let applied =
                        enact::apply(cluster, self.cause, &name, &object, on_conflict).await.map_err(failed)?;
                    if let Ok(version) = &applied {
                        let version = Arc::clone(version);
                        // The object did not exist before, so its content is what Tidegate applied.
                        let is_new = matches!(observed.found.get(&name), Some(None));
                        if name.0.is_input() && is_new && !is_elsewhere {
                            let content = content::known_of(&object, &version);
                            memory.set_content(namespace, &name, Some(content), known.now);
                        }
                        memory.verify(&scope, &name, Verified { digest, version, is_shown: false, since: known.now });
                    }
                    observed.applied.insert(name, applied.map(drop));
                }
                Next::Do(Act::Delete(name, live)) => {
                    enact::delete(cluster, self.cause, namespace, &name, &live).await.map_err(failed)?;
                    memory.forget(&scope, std::iter::once(&name));
                    observed.deleted.insert(name);
                }
            }
        }
    }

    /// Remembers the objects that were read and are as desired.
    fn remember(&self, known: &Known, observed: &Observed, outcomes: &[(ObjectName, Outcome)]) {
        for (name, outcome) in outcomes.iter().filter(|(name, _)| !observed.applied.contains_key(name)) {
            let found = observed.found.get(name).and_then(Option::as_ref).filter(|_| *outcome == Outcome::Well);
            let desired = known.desired.iter().find(|desired| desired.name == *name);
            if let (Some(found), Some(desired)) = (found, desired) {
                let version = name.0.version_of_object(found);
                let is_shown = known.live.contains_key(name);
                // The watch may not show yet that it may stay as it is.
                let Some(digest) = decide::target(known, desired, hold::is_adopted(|name| found.annotation(name)))
                else {
                    continue;
                };
                let verified = Verified { digest, version, is_shown, since: known.now };
                self.context.memory.verify(&known.scope(), name, verified);
            }
        }
    }

    /// Writes the status if it differs, and an Event about a problem. Returns how long a status waits that only says
    /// that the work goes on. `moved` says whether the pass wrote an object.
    async fn report(&self, facts: &Facts<'_>, moved: bool) -> Result<Option<Duration>, Error> {
        let (SetupContext { kcp, memory, .. }, kind, key) = (self.context, self.kind, self.key);
        if let Some(problem) = status::problem(facts) {
            tracing::debug!(problem, "not everything is applied");
            self.tell(events::Severity::Warning, reason::NOT_APPLIED, problem);
        }
        let before = memory.reported(kind, key, self.metadata);
        let before = before.unwrap_or_else(|| self.resources.status(kind, key));
        let status = status::status(facts, &before, ambient::now());
        if before == status {
            memory.said(kind, key);
            memory.set_places(kind, key, facts.placement.places.clone());
            return Ok(None);
        }
        if status::is_under_way(facts, &before, &status)
            && let Some(after) = memory.postpone(kind, key, moved, ambient::now())
        {
            return Ok(Some(after));
        }
        memory.said(kind, key);
        enact::report(kcp, self.cause, kind, key, &status).await?;
        memory.set_reported(kind, key, self.metadata, &status);
        memory.set_places(kind, key, facts.placement.places.clone());
        Ok(None)
    }

    /// Says which Secrets stay although their resource goes.
    fn tell_kept(&self, outcomes: &[(ObjectName, Outcome)]) {
        let kept = outcomes.iter().filter(|(_, outcome)| *outcome == Outcome::Stays);
        let names: Vec<&str> = kept.map(|((_, name), _)| name.as_str()).collect();
        if !names.is_empty() {
            let names = names.join(", ");
            let note = format!("the Secrets {names} stay: nothing that their keys signed can be renewed without them");
            self.tell(events::Severity::Normal, reason::KEPT, note);
        }
    }

    fn tell(&self, severity: events::Severity, reason: &'static str, note: String) {
        let regarding = regarding(self.kind, self.key, self.metadata);
        self.context.events.publish_event(Event { regarding, severity, reason, action: "Reconcile", note });
    }
}

/// A resource in an Event.
pub(crate) fn regarding(kind: Kind, key: &Key, metadata: &ObjectMeta) -> ObjectReference {
    ObjectReference {
        api_version: Some(format!("{SETUP_GROUP}/{SETUP_VERSION}")),
        kind: Some(kind.as_str().to_owned()),
        namespace: Some(key.namespace().to_owned()),
        name: Some(key.name().to_owned()),
        uid: metadata.uid.clone(),
        resource_version: metadata.resource_version.clone(),
        ..ObjectReference::default()
    }
}

/// The objects of a plan, the Secrets and ConfigMaps whose values they depend on, and all whose changes matter.
fn names(plan: &Plan) -> (BTreeSet<ObjectName>, BTreeSet<ObjectName>, BTreeSet<ObjectName>) {
    let of = |kind: ObjectKind| move |name: &String| (kind, name.clone());
    let mut wanted: BTreeSet<ObjectName> =
        plan.issuers.iter().map(|found| &found.name).map(of(ObjectKind::Issuer)).collect();
    wanted.extend(plan.certificates.iter().map(|found| &found.name).map(of(ObjectKind::Certificate)));
    // Issuers write the Secrets of Certificates, with the label.
    wanted.extend(plan.certificates.iter().map(|found| &found.name).map(of(ObjectKind::Secret)));
    wanted.extend(plan.secrets.iter().map(|found| &found.name).map(of(ObjectKind::Secret)));
    wanted.extend(plan.configs.iter().map(|found| &found.name).map(of(ObjectKind::ConfigMap)));
    wanted.extend(plan.deployments.iter().map(|found| &found.name).map(of(ObjectKind::Deployment)));
    wanted.extend(plan.services.iter().map(|found| &found.name).map(of(ObjectKind::Service)));
    wanted.extend(plan.budgets.iter().map(|found| &found.name).map(of(ObjectKind::PodDisruptionBudget)));
    let gates = plan.certificates.iter().flat_map(|found| found.gates.clone());
    let gates = gates.chain(plan.secrets.iter().flat_map(plan::Secret::gates));
    let gates: Vec<plan::Gate> = gates.chain(plan.deployments.iter().flat_map(|found| found.gates.clone())).collect();
    let inputs: BTreeSet<ObjectName> = decide::inputs(&gates).collect();
    let authorities = plan.issuers.iter().map(|found| &found.secret).map(of(ObjectKind::Secret));
    let needs = wanted.iter().cloned().chain(gates.iter().filter_map(decide::named)).chain(authorities).collect();
    (wanted, inputs, needs)
}

/// The rendered objects of a plan in the order of apply, and one sentence for each template that failed. `keys` are the
/// digests of the values that they mount and contain.
fn desired(
    templates: &Templates,
    plan: &Plan,
    keys: &BTreeMap<ObjectName, Keys>,
    issuance: Issuance,
) -> (Vec<Desired>, Vec<String>) {
    let namespace = plan.key.namespace();
    let digest = |gates: &[plan::Gate]| decide::digest_of_keys(gates, keys).map(|digest| digest.to_string());
    let mut inputs: BTreeMap<String, String> = BTreeMap::new();
    for deployment in &plan.deployments {
        let name = live::mounts(&Key::new(namespace, &deployment.name));
        inputs.insert(name, digest(&deployment.gates).unwrap_or_default());
    }
    for secret in &plan.secrets {
        let values = digest(&secret.gates()).unwrap_or_default();
        let name = live::data(&Key::new(namespace, &secret.name));
        inputs.insert(name, format!("{}{values}", content::outline(&secret.content)));
    }
    let (mut all, mut failures) = (Vec::new(), Vec::new());
    for (_, rendered) in render::setup(templates, plan, &|name| inputs.get(name).cloned().unwrap_or_default()) {
        match rendered {
            Ok(object) if issuance == Issuance::Builtin && &*object.gvk().kind == "Issuer" => {}
            Ok(object) if issuance == Issuance::Builtin && &*object.gvk().kind == "Certificate" => {
                match issued(plan, &object, digest(&plan.gates("Certificate", object.name()))) {
                    Ok(desired) => all.push(desired),
                    Err(sentence) => failures.push(sentence),
                }
            }
            Ok(object) => all.extend(finished(plan, object)),
            Err(error) => failures.push(error.to_string()),
        }
    }
    (all, failures)
}

/// How long until the first certificate of the built-in CA has to be renewed; `None` if there is none.
fn renewal(known: &Known) -> Option<Duration> {
    let renewals = known.desired.iter().filter(|desired| matches!(desired.origin, Origin::Issued(_)));
    let first = renewals.filter_map(|desired| known.live.get(&desired.name)?.renew_at()).min()?;
    Some(soon(first, known.now))
}

/// How long until a moment, within limits.
fn soon(moment: Timestamp, now: Timestamp) -> Duration {
    let after = Duration::try_from(moment.duration_since(now)).unwrap_or_default();
    after.clamp(RENEWAL_SOONEST, RENEWAL_LATEST)
}

/// The Secret of a rendered Certificate, which the built-in CA issues. `ca` is the digest of the CA's Secret. Fails
/// with one sentence if the CA cannot issue what it asks for.
fn issued(plan: &Plan, certificate: &Object, ca: Option<String>) -> Result<Desired, String> {
    let name = certificate.name();
    let gates = plan.gates("Certificate", name);
    let authority = decide::inputs(&gates).next().map(|(_, secret)| secret);
    let is_root = plan.certificates.iter().any(|found| found.name == name && found.is_root);
    let request = builtin::read(certificate, authority, is_root)?;
    let mut object = request.secret(certificate);
    let digest = Digest::of_bytes(format!("{}{}", certificate.digest(), ca.unwrap_or_default()).as_bytes());
    object.set_annotation(annotation::DIGEST, &digest.to_string());
    let (name, origin) = ((ObjectKind::Secret, name.to_owned()), Origin::Issued(Box::new(request)));
    Ok(Desired { name, object, digest, gates, origin, replicas: None })
}

/// A rendered object with what the decision needs to know of it.
fn finished(plan: &Plan, mut object: Object) -> Option<Desired> {
    let kind = ObjectKind::named(&object.gvk().kind)?;
    let name = object.name().to_owned();
    let content = plan.secrets.iter().find(|secret| kind == ObjectKind::Secret && secret.name == name);
    let origin = match content.map(|secret| &secret.content) {
        Some(content @ (Content::Bundle(_) | Content::Credentials(_))) => Origin::Composed(content.clone()),
        Some(Content::Files(_) | Content::Trusted(_)) | None => Origin::Rendered,
    };
    let deployment = plan.deployments.iter().find(|found| kind == ObjectKind::Deployment && found.name == name);
    let replicas = deployment.map(|found| found.replicas).filter(|replicas| leaves_replicas(*replicas, &mut object));
    let digest = object.digest();
    object.set_annotation(annotation::DIGEST, &digest.to_string());
    let gates = plan.gates(kind.as_str(), &name);
    Some(Desired { name: (kind, name), object, digest, gates, origin, replicas })
}

/// Whether the number of pods is not part of the object; removes it then. A template may write another number.
fn leaves_replicas(replicas: Replicas, object: &mut Object) -> bool {
    let (Replicas::OnCreation(planned) | Replicas::AtMost(planned)) = replicas else { return false };
    let Some(spec) = object.map_mut().get_mut("spec").and_then(Value::as_object_mut) else { return false };
    let is_planned = spec.get("replicas").and_then(Value::as_i64) == Some(i64::from(planned));
    if is_planned {
        spec.remove("replicas");
    }
    is_planned
}
