//! One pass over a runtime: its Kyma, what every runtime has, its Manifests, and the objects of each.
//!
//! What a pass does, in order: look at the Kyma in the runtime if there is reason to; plan; bring namespace, CRDs,
//! catalog and webhook configuration to what they should be; write the Kyma in the runtime and the Manifests in KCP where
//! they differ; pass over each Manifest; write the status of the Kyma once, and its copy in the runtime, where they differ.
//!
//! A pass over a runtime without news makes no request. The first pass of a process reads the runtime's Kyma, once, and
//! writes nothing that is as recorded. What users did in a runtime is looked for on a resync, on request, or when an event
//! says so: objects are listed by their metadata and only what changed is looked at closer. An event about the Kyma in the
//! runtime costs one read of it.
//!
//! What it refuses: to render before the template overrides of the sources behind it have been read, to prune while anything is unknown, to create objects that exist without our mark, and to work on a
//! runtime whose access Secret is absent, ambiguous or asks for more than inline credentials.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use futures::{FutureExt, StreamExt, future::BoxFuture, stream};
use k8s_openapi::jiff::Timestamp;
use tokio::time::Instant;

use crate::controller::{
    Context, Failure, Pass,
    events::{Severity, reason},
};
use tidegate_cluster::{Cause, Cluster, Error, Metadata};
use tidegate_core::{
    api::{
        Kyma, Manifest,
        kyma::{KymaSpec, KymaStatus},
        names::{MANAGED_BY_SKR, annotation, label},
    },
    conditions, definition, landscape,
    name::Key,
    object::{Gvk, ObjectId},
    plan,
    status::{Facts, ModulesFromFact},
};
use tidegate_process::{
    ambient,
    retry::{self, Class},
};

use crate::queue::{Finish, Trigger, Triggers};

mod base;
pub mod contacts;
mod counterpart;
pub mod manifest;
mod manifests;
pub mod objects;
mod outcome;
mod remove;
mod shelf;
mod watch;

pub use base::Bases;
pub use watch::Reports;

/// What a process remembers of all runtimes between passes.
#[derive(Debug, Default)]
pub struct Memories(Mutex<HashMap<Key, Memory>>);

/// What a process remembers of one runtime between passes.
#[derive(Debug, Default)]
struct Memory {
    base: base::Memory,
    watch: watch::Memory,
    /// The Kyma in the runtime, as it was last read or written.
    counterpart: Option<Arc<Kyma>>,
    /// Its specification as the last pass left it.
    left: Option<KymaSpec>,
    /// The status of the Kyma in KCP as we last wrote it, with the resource version that it then had.
    status: Option<(String, KymaStatus)>,
    /// The Manifests as we last wrote them, and when.
    written: BTreeMap<Key, (Arc<Manifest>, Instant)>,
    /// Those whose status a pass may have written before it failed: what it says now is asked for.
    doubtful: BTreeSet<Key>,
    manifests: BTreeMap<Key, manifest::Memory>,
    /// What the end is waited for of, and how many looks for it there were.
    removing: Option<(String, u32)>,
}

/// A watch that does not show what we wrote this long ago is not asked any more: the API server is.
const LAG_MAX: Duration = Duration::from_secs(2);

/// Longest time for one pass. Nothing in it waits for anything slow, so a pass that takes longer is stuck.
const PASS_MAX: Duration = Duration::from_secs(300);
/// Manifests of one runtime that are worked on at once; their requests share the runtime's bound.
const MANIFESTS_AT_ONCE: usize = 4;

// === impl Memories ===

impl Memories {
    fn take(&self, key: &Key) -> Memory {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(key).unwrap_or_default()
    }

    fn put(&self, key: &Key, memory: Memory) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(key.clone(), memory);
    }

    /// Forgets a runtime: the next pass looks at everything, as that of a new process.
    pub fn forget(&self, key: &Key) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(key);
    }
}

/// Brings a runtime a step nearer to what its Kyma says.
pub async fn reconcile(context: &Context, key: &Key, triggers: Triggers) -> Pass {
    let mut memory = context.runtimes.take(key);
    let passed = tokio::time::timeout(PASS_MAX, pass(context, key, triggers, &mut memory)).await;
    match passed {
        Ok(Ok(Finish::Gone)) => Ok(Finish::Gone),
        Ok(result) => {
            context.runtimes.put(key, memory);
            result
        }
        // What was remembered may be half true: it is not put back.
        Err(_) => Err(Failure::new(Class::Transient, "PassTimeout", "the pass took too long")),
    }
}

async fn pass(context: &Context, key: &Key, triggers: Triggers, memory: &mut Memory) -> Pass {
    let now = ambient::now();
    let cause = crate::controller::cause(triggers);
    let manifests = known_manifests(context, key, memory)
        .await
        .map_err(|error| Failure::new(error.class(), error.reason(), error))?;
    let Some(kyma) = context.stores.kyma(key) else {
        return remove::orphans(context, key, &cause, &manifests, memory).await;
    };
    let cause = context.origin(&cause, definition::Kind::Kyma, &kyma.metadata);
    let look = looks(triggers, memory.watch.is_due(context, key), &kyma, &manifests);
    let resync = triggers.contains(Trigger::Resync);
    let round = Round { context, key, kyma: &kyma, cause: &cause, now, look, resync, read: rereads(triggers) };
    if kyma.metadata.deletion_timestamp.is_some() {
        return remove::reconcile(&round, manifests, memory).await;
    }
    if round.is_skipped() {
        return Ok(Finish::Deferred);
    }
    context.templates_read(&kyma.metadata)?;
    let installed = match round.install(&manifests, memory).await {
        Ok(installed) => installed,
        // Somebody was faster, or the watch is behind: that says nothing of the runtime, and the next pass sees it.
        Err(failed) if failed.kind == outcome::FailedKind::Stale => {
            return Err(Failure::new(Class::Transient, failed.reason, failed.message));
        }
        Err(failed) => return round.failed(failed, &manifests, memory).await,
    };
    round.conclude(&installed.facts, &installed.cluster, memory).await?;
    Ok(match installed.again {
        Some(delay) => Finish::After(delay, Trigger::Retry),
        None => Finish::Done,
    })
}

/// One pass over a runtime.
struct Round<'a> {
    context: &'a Context,
    key: &'a Key,
    kyma: &'a Arc<Kyma>,
    cause: &'a Cause,
    now: Timestamp,
    /// Whether the runtime itself is looked at, beyond what this process and the statuses remember.
    look: bool,
    /// Whether it is time to look at what nobody reports.
    resync: bool,
    /// Whether its Kyma is read again at least.
    read: bool,
}

/// What a pass that went through found.
struct Installed {
    cluster: Arc<Cluster>,
    facts: Facts,
    again: Option<Duration>,
}

// === impl Round ===

impl Round<'_> {
    /// Brings everything in the runtime, and the Manifests in KCP, to what they should be.
    async fn install(&self, manifests: &[Arc<Manifest>], memory: &mut Memory) -> Result<Installed, outcome::Failed> {
        let cluster = self.access().await?;
        self.take_charge().await?;
        let landscape = self.context.stores.landscape();
        let mode = plan::modules_from(self.kyma);
        let look = self.look || (self.resync && memory.watch.webhooks_moved(&cluster).await?);
        if look || self.read || memory.counterpart.is_none() {
            memory.counterpart = counterpart::read(&cluster).await?;
        }
        let spec = plan::effective(self.kyma, memory.counterpart.as_ref().map(|kyma| &kyma.spec));
        let plan = plan::runtime(&landscape, self.kyma, &spec, &self.context.settings);
        let live = if look { Some(self.survey(&cluster, manifests).await?) } else { None };
        let base = base::bring(self, &cluster, &landscape, &plan, live.as_ref(), &mut memory.base).await?;
        let counterpart::Brought { reverted, again: counterpart_again } =
            counterpart::bring(self, &cluster, &mut memory.counterpart, &mut memory.left).await?;
        if !reverted.is_empty() {
            let note = format!("edits in the runtime were taken back: {}", reverted.join(", "));
            self.tell(Severity::Normal, reason::METADATA_SYNCHRONIZATION, "Revert", note);
        }
        let modules = manifests::bring(self, &plan, manifests).await?;
        let (passed, again) = self.pass_over(&cluster, &modules.present, live.as_ref(), memory).await?;
        let watch = watch::bring(self, &cluster, &landscape, &passed, live.as_ref(), &mut memory.watch).await?;
        let facts = Facts {
            modules: modules.facts(&passed),
            crds: base.crds,
            catalog: base.catalog,
            webhook: watch.webhook,
            pull_secret: watch.pull_secret,
            applied: base.applied,
            watch: Some(watch.watch),
            watch_applied: watch.applied,
            channel: spec.channel.clone(),
            requested: self.requested(),
            modules_from: Some(self.modules_from(mode, &reverted)),
            failure: modules.failure(),
            deleting: None,
        };
        Ok(Installed {
            cluster,
            facts,
            again: [again, base.again, watch.again, counterpart_again].into_iter().fold(None, soonest),
        })
    }

    /// The client for the runtime.
    async fn access(&self) -> Result<Arc<Cluster>, outcome::Failed> {
        outcome::access(self.context, self.key).await
    }

    /// Passes over each Manifest that is there, a few at once.
    async fn pass_over(
        &self,
        cluster: &Cluster,
        manifests: &[Arc<Manifest>],
        live: Option<&BTreeMap<ObjectId, Metadata>>,
        memory: &mut Memory,
    ) -> Result<(Vec<Arc<Manifest>>, Option<Duration>), Error> {
        let site = manifest::Site { context: self.context, cluster, cause: self.cause, live, manifests };
        let mut taken: Vec<(Arc<Manifest>, manifest::Memory)> = manifests
            .iter()
            .map(|manifest| {
                let memory = memory.manifests.remove(&landscape::key(&manifest.metadata)).unwrap_or_default();
                (Arc::clone(manifest), memory.of(manifest))
            })
            .collect();
        // Boxed, since the compiler cannot see that a stream of closures over borrowed values is `Send`.
        let passes: Vec<BoxFuture<'_, Result<manifest::Passed, Error>>> =
            taken.iter_mut().map(|(manifest, memory)| manifest::reconcile(&site, manifest, memory).boxed()).collect();
        let results: Vec<Result<manifest::Passed, Error>> =
            stream::iter(passes).buffered(MANIFESTS_AT_ONCE).collect().await;
        let (mut passed, mut again, mut failure) = (Vec::new(), None, None);
        // What one pass has written counts, whatever became of the others.
        for ((manifest, of_manifest), result) in taken.iter().zip(results) {
            let key = landscape::key(&manifest.metadata);
            match result {
                Ok(result) => {
                    again = soonest(again, result.again);
                    memory.written.insert(key, (Arc::clone(&result.manifest), Instant::now()));
                    passed.push(result.manifest);
                }
                Err(error) => {
                    if of_manifest.leaves_doubt() {
                        memory.doubtful.insert(key);
                    }
                    failure.get_or_insert(error);
                }
            }
        }
        memory.manifests =
            taken.into_iter().map(|(manifest, memory)| (landscape::key(&manifest.metadata), memory)).collect();
        match failure {
            Some(error) => Err(error),
            None => Ok((passed, again)),
        }
    }

    /// Tells whoever looks at the Kyma.
    fn tell(&self, severity: Severity, reason: &'static str, action: &'static str, note: impl Into<String>) {
        self.context.events.publish(&**self.kyma, severity, reason, action, note);
    }

    /// The metadata of everything in the runtime that bears our mark, of the kinds that we put there: a list a kind.
    async fn survey(
        &self,
        cluster: &Cluster,
        manifests: &[Arc<Manifest>],
    ) -> Result<BTreeMap<ObjectId, Metadata>, Error> {
        let mut kinds: Vec<Gvk> = base::kinds();
        kinds.extend(watch::kinds(self.context.agent.is_some()));
        for synced in manifests.iter().filter_map(|manifest| manifest.status.as_ref()).flat_map(|status| &status.synced)
        {
            kinds.push(Gvk::new(&synced.group, &synced.version, &synced.kind));
        }
        kinds.sort();
        kinds.dedup_by(|one, other| one.group == other.group && one.kind == other.kind);
        let selector = format!("{}={MANAGED_BY_SKR}", label::MANAGED_BY);
        let mut found = BTreeMap::new();
        for gvk in kinds {
            let Some(kind) = cluster.kind(&gvk).await? else { continue };
            let listed = cluster.list_metadata(&kind, None, Some(&selector)).await?;
            found.extend(listed.into_iter().map(|metadata| (metadata.id.clone(), metadata)));
        }
        Ok(found)
    }

    fn requested(&self) -> Option<String> {
        landscape::annotation(&self.kyma.metadata, annotation::RECONCILE_REQUESTED_AT).map(str::to_owned)
    }

    fn is_skipped(&self) -> bool {
        landscape::label(&self.kyma.metadata, label::SKIP_RECONCILIATION)
            .is_some_and(|value| value.eq_ignore_ascii_case("true"))
    }

    /// Who decides the module list, and what was reverted last.
    fn modules_from(&self, mode: plan::ModulesFrom, reverted: &[String]) -> ModulesFromFact {
        let (reason, message) = match mode {
            plan::ModulesFrom::Runtime => ("Runtime", "the Kyma in the runtime decides the modules"),
            plan::ModulesFrom::Git => {
                ("Git", "the Kyma in the control plane decides the modules; edits in the runtime are reverted")
            }
            plan::ModulesFrom::Merge => {
                ("Merge", "modules of the Kyma in the control plane stay; others may be added in the runtime")
            }
        };
        if !reverted.is_empty() {
            return ModulesFromFact { reason, message: format!("{message}; last reverted: {}", reverted.join(", ")) };
        }
        // What was reverted is said until something else is: whoever edited finds it there.
        let before = self
            .kyma
            .status
            .as_ref()
            .and_then(|status| conditions::message(&status.conditions, conditions::MODULES_FROM));
        let message = before.filter(|before| before.starts_with(message)).unwrap_or(message);
        ModulesFromFact { reason, message: message.to_owned() }
    }
}

/// Whether the runtime itself must be looked at: somebody may have changed it, or asks.
/// `is_due` is whether a resync is a reason.
fn looks(triggers: Triggers, is_due: bool, kyma: &Kyma, manifests: &[Arc<Manifest>]) -> bool {
    let requested = landscape::annotation(&kyma.metadata, annotation::RECONCILE_REQUESTED_AT);
    let handled = kyma
        .status
        .as_ref()
        .and_then(|status| conditions::message(&status.conditions, conditions::RECONCILE_REQUESTED));
    requested.is_some_and(|requested| Some(requested) != handled)
        || manifests.iter().any(|manifest| manifest::is_asked_for(manifest))
        || triggers.iter().any(|trigger| match trigger {
            Trigger::Drift => true,
            Trigger::Resync => is_due,
            Trigger::Watch | Trigger::Event | Trigger::Requested | Trigger::Git | Trigger::Retry => false,
        })
}

/// Whether the Kyma in the runtime must be read again: the runtime says that something changed there.
fn rereads(triggers: Triggers) -> bool {
    triggers.contains(Trigger::Watch)
}

/// The Manifests of a Kyma: what the watch says, or what we wrote since.
async fn known_manifests(context: &Context, key: &Key, memory: &mut Memory) -> Result<Vec<Arc<Manifest>>, Error> {
    let listed = context.stores.manifests_of(key);
    let listed: BTreeMap<Key, Arc<Manifest>> =
        listed.into_iter().map(|manifest| (landscape::key(&manifest.metadata), manifest)).collect();
    // What the watch does not show is gone, or the watch is behind. To take it for absent would lose its inventory.
    memory.written.retain(|key, (manifest, _)| {
        listed.contains_key(key) || !(manifest::is_released(manifest) || context.stores.manifest(key).is_some())
    });
    let is_unseen = |key: &Key, at: &Instant| !listed.contains_key(key) && LAG_MAX <= at.elapsed();
    let unseen = memory.written.iter().filter(|(key, (_, at))| is_unseen(key, at)).map(|(key, _)| key.clone());
    let asked: BTreeSet<Key> = unseen.chain(memory.doubtful.iter().cloned()).collect();
    for key in asked {
        // If this fails, all that is remembered stays remembered.
        match manifests::read(&context.kcp, &key).await? {
            Some(manifest) => memory.written.insert(key.clone(), (manifest, Instant::now())),
            None => memory.written.remove(&key),
        };
        memory.doubtful.remove(&key);
    }
    // The watch lags behind our own writes by some milliseconds.
    memory.written.retain(|key, (ours, _)| {
        let shown = listed.get(key);
        shown.is_none_or(|shown| is_newer(&ours.metadata.resource_version, &shown.metadata.resource_version))
    });
    let ours = memory.written.iter().map(|(key, (manifest, _))| (key.clone(), Arc::clone(manifest)));
    let mut known: Vec<Arc<Manifest>> =
        listed.into_iter().chain(ours).collect::<BTreeMap<_, _>>().into_values().collect();
    known.sort_by(|one, other| one.metadata.name.cmp(&other.metadata.name));
    Ok(known)
}

/// Whether a resource version is later than another. They are numbers since Kubernetes promised so (1.35); where they
/// are not, the watch is believed.
fn is_newer(one: &Option<String>, other: &Option<String>) -> bool {
    let number = |text: &Option<String>| text.as_ref().and_then(|text| text.parse::<u64>().ok());
    match (number(one), number(other)) {
        (Some(one), Some(other)) => one > other,
        _ => false,
    }
}

fn soonest(one: Option<Duration>, other: Option<Duration>) -> Option<Duration> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}

/// How often a runtime that cannot be worked on is tried all the same.
const RETRY_STALLED: Duration = Duration::from_secs(300);

/// Delay after failures in a row.
fn delay(class: Class, attempt: u32) -> Duration {
    retry::delay(class, attempt, RETRY_STALLED)
}

#[cfg(test)]
mod tests;
