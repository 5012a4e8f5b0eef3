//! Applies many objects: in waves, in parallel within a wave, each with its own outcome.
//!
//! A failed object stops only the objects that need it: those in its namespace, and the custom resources of its
//! definition. Nothing is retried.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;
use futures::{StreamExt, stream};
use serde_json::Value;
use tokio::time::Instant;

use super::{Cause, Cluster, ESTABLISHED_WAIT_MAX, Error, Kind, Metadata, OnConflict, Target, Verb, transport::Ask};
use tidegate_core::{
    diagnostic::FilePosition,
    name::Key,
    object::{Gvk, ObjectId, Stage},
};

/// One object to apply.
#[derive(Clone, Debug)]
pub struct Task {
    /// The kind and version under which it is applied.
    pub gvk: Gvk,
    /// The object's identity.
    pub id: ObjectId,
    /// Its JSON.
    pub body: Bytes,
    /// How to treat fields of other managers.
    pub on_conflict: OnConflict,
    /// Its current resource version, if known. It shows whether the apply changed anything.
    pub known: Option<String>,
    /// The file and line, for the audit record.
    pub place: Option<FilePosition>,
    /// Whether the object has claims to take over.
    pub claims: Claims,
}

/// Whether an object has claims to take over, see [`Metadata::has_other_claims`]. They are then taken over first, and
/// the object is applied only if that is not enough.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claims {
    /// It has none.
    None,
    /// It has some.
    ToTakeOver,
    /// It is a Secret that Tidegate did not look up: it may have some if it exists.
    OfSecret,
}

/// The outcome of one object.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The object's identity.
    pub id: ObjectId,
    /// The outcome.
    pub effect: Effect,
}

/// The result of an apply.
#[derive(Clone, Debug)]
pub enum Effect {
    /// The object is as desired.
    Applied {
        /// Its metadata after the apply.
        metadata: Box<Metadata>,
        /// Whether the apply changed it; unknown without an earlier resource version.
        changed: Option<bool>,
    },
    /// The apply failed.
    Failed(Error),
    /// The object was not applied, because an object that it needs failed.
    Skipped {
        /// The namespace or definition that failed.
        needs: ObjectId,
    },
}

// === impl Task ===

impl Task {
    /// Applies an object that has Tidegate's ownership label, and takes over fields of other managers.
    pub fn forced(gvk: Gvk, id: ObjectId, body: Bytes) -> Task {
        let (on_conflict, known, place, claims) = (OnConflict::Force, None, None, Claims::None);
        Task { gvk, id, body, on_conflict, known, place, claims }
    }
}

// === impl Effect ===

impl Effect {
    /// Whether the object is as desired.
    pub fn is_applied(&self) -> bool {
        matches!(self, Effect::Applied { .. })
    }
}

/// First interval of checking whether a new kind is served. That usually takes some ten milliseconds.
const ESTABLISHED_POLL_MIN: Duration = Duration::from_millis(8);
const ESTABLISHED_POLL_MAX: Duration = Duration::from_millis(500);
/// When to read the definition itself, to find out why its kind is not served yet.
const ESTABLISHED_DOUBT: Duration = Duration::from_secs(1);

/// The objects that may be applied at the same time. Definitions and namespaces do not need each other, nor do RBAC and
/// configuration, so these stages share waves.
fn wave(stage: Stage) -> u8 {
    match stage {
        Stage::Crd | Stage::Namespace => 0,
        Stage::Rbac | Stage::Configuration => 1,
        Stage::Workload => 2,
        Stage::Webhook => 3,
        Stage::CustomResource => 4,
    }
}

const WAVE_LAST: u8 = 4;

/// What later waves must know about earlier ones.
#[derive(Default)]
struct Broken {
    namespaces: BTreeMap<Arc<str>, ObjectId>,
    kinds: BTreeMap<(Arc<str>, Arc<str>), ObjectId>,
}

// === impl Cluster ===

impl Cluster {
    /// Applies objects in waves: definitions and namespaces, RBAC and configuration, workloads, webhooks, custom
    /// resources.
    ///
    /// Returns one outcome for each task, in the order of the tasks. Custom resources wait until the kinds of the
    /// definitions among the tasks are served.
    pub async fn enact(&self, cause: &Cause, tasks: Vec<Task>) -> Vec<Outcome> {
        let mut waves: [Vec<(usize, Task)>; WAVE_LAST as usize + 1] = Default::default();
        for (index, task) in tasks.into_iter().enumerate() {
            waves[usize::from(wave(task.id.stage()))].push((index, task));
        }
        let [first, middle @ .., last] = waves;
        let mut broken = Broken::default();
        let mut outcomes = self.wave(cause, first, &broken).await;
        let definitions: Vec<Definition> = broken.note(&outcomes);
        definitions.iter().for_each(|definition| self.kinds.learn(&definition.kinds));
        // Wait for the kinds while the waves in between are applied.
        let unserved = definitions.into_iter().filter(|definition| !self.kinds.is_served(&definition.state));
        let established = stream::iter(unserved)
            .map(async |definition| {
                let result = self.wait_established(&definition.id, &definition.kinds).await;
                (definition, result)
            })
            .buffer_unordered(self.transport.concurrency())
            .collect::<Vec<_>>();
        let between = async {
            let mut outcomes = Vec::new();
            for wave in middle {
                outcomes.extend(self.wave(cause, wave, &broken).await);
            }
            outcomes
        };
        let (between, established) = futures::join!(between, established);
        outcomes.extend(between);
        for (definition, result) in established {
            match result {
                Ok(()) => self.kinds.note_served(definition.state),
                Err(error) => {
                    broken.blame(&definition.id, &definition.kinds);
                    fail(&mut outcomes, &definition.id, error);
                }
            }
        }
        outcomes.extend(self.wave(cause, last, &broken).await);
        outcomes.sort_unstable_by_key(|(index, ..)| *index);
        outcomes.into_iter().map(|(_, _, outcome)| outcome).collect()
    }

    async fn wave(&self, cause: &Cause, tasks: Vec<(usize, Task)>, broken: &Broken) -> Vec<Done> {
        stream::iter(tasks)
            .map(async |(index, task)| {
                let effect = match broken.needed_by(&task.id) {
                    Some(needs) => Effect::Skipped { needs: needs.clone() },
                    None => match self.apply_task(cause, &task).await {
                        Ok(metadata) => Effect::Applied {
                            changed: task.known.as_ref().map(|known| *known != metadata.resource_version),
                            metadata: Box::new(metadata),
                        },
                        Err(error) => Effect::Failed(error),
                    },
                };
                let body = (task.id.stage() == Stage::Crd).then_some(task.body);
                (index, body, Outcome { id: task.id, effect })
            })
            .buffer_unordered(self.transport.concurrency())
            .collect()
            .await
    }

    async fn apply_task(&self, cause: &Cause, task: &Task) -> Result<Metadata, Error> {
        let not_served = || Error::NotServed { gvk: task.gvk.clone() };
        let kind = self.kind(&task.gvk).await?.ok_or_else(not_served)?;
        let cause = match &task.place {
            Some(place) => &cause.place(Some(place.clone())),
            None => cause,
        };
        if self.takes_claims(&kind, task).await?
            && let Some(metadata) = self.take_claims(cause, &kind, &task.id, &task.body).await?
        {
            return Ok(metadata);
        }
        // Tidegate did not look whether it exists. If a user was quick to create it, its content stays.
        let is_unseen = self.fresh.lacks(&task.id, Instant::now());
        let on_conflict = if is_unseen { OnConflict::Report } else { task.on_conflict };
        let result = self.apply(cause, &kind, &task.id, task.body.clone(), on_conflict).await;
        match &result {
            Err(Error::NotServed { .. }) => {
                self.kinds.forget(&task.gvk);
                Err(not_served())
            }
            Err(Error::Conflict { .. }) if is_unseen => {
                self.fresh.met(&task.id);
                result
            }
            _ => result,
        }
    }

    /// Whether the claims on an object are taken over before it is applied. Reads the metadata of a Secret.
    async fn takes_claims(&self, kind: &Kind, task: &Task) -> Result<bool, Error> {
        match task.claims {
            Claims::None => Ok(false),
            Claims::ToTakeOver => Ok(true),
            Claims::OfSecret if self.fresh.lacks(&task.id, Instant::now()) => Ok(false),
            Claims::OfSecret => {
                let found = self.get_metadata(kind, &Key::new(&task.id.namespace, &task.id.name)).await?;
                Ok(found.is_some_and(|live| live.has_other_claims() && !live.deleting))
            }
        }
    }

    /// Waits until the kinds of a definition are served. It polls with list requests, because only their success proves
    /// that objects can be applied.
    ///
    /// # Errors
    ///
    /// Fails if the definition can never be established, if that takes too long, or if the cluster cannot be reached.
    pub async fn wait_established(&self, definition: &ObjectId, kinds: &[Kind]) -> Result<(), Error> {
        let start = Instant::now();
        for kind in kinds {
            let mut pause = ESTABLISHED_POLL_MIN;
            loop {
                let path = format!("{}?limit=1", kind.path(None, None, None));
                let ask = Ask::get(path, Verb::List, Target::List(kind.gvk.clone())).metadata_list();
                match self.transport.ask(ask).await {
                    Ok(_) => break,
                    Err(Error::NotServed { .. } | Error::TooManyRequests { .. }) => {}
                    Err(error) => return Err(error),
                }
                if start.elapsed() > ESTABLISHED_DOUBT {
                    self.doubt(definition, start).await?;
                }
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(ESTABLISHED_POLL_MAX);
            }
        }
        Ok(())
    }

    /// Reads why the kinds of a definition are not served yet. Fails if they never will be, or if this takes too long.
    async fn doubt(&self, definition: &ObjectId, start: Instant) -> Result<(), Error> {
        let gvk = Gvk::new(&definition.group, "v1", &definition.kind);
        let Some(kind) = Kind::built_in(&gvk) else { return Ok(()) };
        let object = self.get(&kind, &Key::new("", &definition.name)).await?;
        let refused = |condition: &&Value| {
            condition["status"] == "False"
                && (condition["type"] == "NamesAccepted" || condition["type"] == "Established")
        };
        let conditions = object.as_ref().and_then(|object| object.value().pointer("/status/conditions"));
        let condition = conditions.and_then(Value::as_array).into_iter().flatten().find(refused);
        let message = condition.and_then(|condition| condition["message"].as_str());
        match message {
            Some(message) => {
                Err(Error::NotEstablished { name: definition.name.to_string(), message: message.to_owned() })
            }
            None if start.elapsed() > ESTABLISHED_WAIT_MAX => Err(Error::NotEstablished {
                name: definition.name.to_string(),
                message: format!("its kinds are not served after {} s", ESTABLISHED_WAIT_MAX.as_secs()),
            }),
            None => Ok(()),
        }
    }

    /// See [`Cluster::survey`].
    pub(super) async fn survey_places(
        &self,
        objects: Vec<(Gvk, ObjectId)>,
    ) -> Result<BTreeMap<ObjectId, Metadata>, Error> {
        let mut places: BTreeMap<(Gvk, Arc<str>), BTreeSet<ObjectId>> = BTreeMap::new();
        let now = Instant::now();
        for (gvk, id) in objects.into_iter().filter(|(_, id)| !self.fresh.lacks(id, now)) {
            places.entry((gvk, Arc::clone(&id.namespace))).or_default().insert(id);
        }
        let found = stream::iter(places)
            .map(async |((gvk, namespace), ids)| {
                let Some(kind) = self.kind(&gvk).await? else { return Ok(Vec::new()) };
                let all = match ids.first() {
                    // A read of one object instead of a list does not load the other objects.
                    Some(id) if ids.len() == 1 => {
                        self.find_metadata(&kind, &Key::new(&id.namespace, &id.name)).await?.into_iter().collect()
                    }
                    _ => self.list_metadata(&kind, Some(&*namespace).filter(|_| kind.namespaced), None).await?,
                };
                Ok(all.into_iter().filter(|metadata: &Metadata| ids.contains(&metadata.id)).collect::<Vec<_>>())
            })
            .buffer_unordered(self.transport.concurrency())
            .collect::<Vec<Result<Vec<Metadata>, Error>>>()
            .await;
        let mut all = BTreeMap::new();
        for metadata in found {
            all.extend(metadata?.into_iter().map(|metadata| (metadata.id.clone(), metadata)));
        }
        Ok(all)
    }
}

/// Index of the task, the body of a definition, and the outcome.
type Done = (usize, Option<Bytes>, Outcome);

/// A definition that was applied.
struct Definition {
    id: ObjectId,
    /// UID and generation.
    state: String,
    kinds: Vec<Kind>,
}

fn fail(outcomes: &mut [Done], definition: &ObjectId, error: Error) {
    if let Some((_, _, outcome)) = outcomes.iter_mut().find(|(_, _, outcome)| outcome.id == *definition) {
        outcome.effect = Effect::Failed(error);
    }
}

// === impl Broken ===

impl Broken {
    /// Records what failed in the first wave; returns the definitions that were applied.
    fn note(&mut self, outcomes: &[Done]) -> Vec<Definition> {
        let mut applied = Vec::new();
        for (_, body, Outcome { id, effect }) in outcomes {
            match (body.as_ref().map(|body| Kind::of_definition(body)), effect) {
                (Some(kinds), Effect::Applied { metadata, .. }) => {
                    let state = format!("{}/{}", metadata.uid, metadata.generation);
                    applied.push(Definition { id: id.clone(), state, kinds });
                }
                (Some(kinds), Effect::Failed(_) | Effect::Skipped { .. }) => self.blame(id, &kinds),
                (None, Effect::Failed(_) | Effect::Skipped { .. }) => {
                    self.namespaces.insert(Arc::clone(&id.name), id.clone());
                }
                (None, Effect::Applied { .. }) => {}
            }
        }
        applied
    }

    fn blame(&mut self, definition: &ObjectId, kinds: &[Kind]) {
        for kind in kinds {
            self.kinds.insert((Arc::clone(&kind.gvk.group), Arc::clone(&kind.gvk.kind)), definition.clone());
        }
    }

    /// The failed object that `id` needs.
    fn needed_by(&self, id: &ObjectId) -> Option<&ObjectId> {
        let by_kind = || self.kinds.get(&(Arc::clone(&id.group), Arc::clone(&id.kind)));
        self.namespaces.get(&id.namespace).or_else(by_kind)
    }
}
