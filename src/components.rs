//! Modules in OCI registries: finds the components that ModuleTemplates name and the objects in their layers, beside
//! the passes over runtimes.
//!
//! A pass never waits for a registry. It asks what is known, and ends. One task reads what is missing, a few at a time:
//! each component and each layer once for all runtimes, first from the disk, then from the registry. When a read ends,
//! exactly the runtimes that wait for it are woken.
//!
//! What is installed does not depend on the registry. The Manifest records what was found, see
//! [`tidegate_core::plan::Components::seen_by`]. A tag that was moved is an Event, and changes nothing until a user
//! requests it on a Kyma.
//!
//! `state` is what is known, `decide` what failures mean, and `enact` reads. This file only joins them.

use std::{collections::BTreeSet, path::Path, sync::Arc};

use anyhow::Context as _;
use futures::{StreamExt, stream::FuturesUnordered};
use k8s_openapi::api::core::v1::{ObjectReference, Secret};
use tidegate_core::{
    api::{KYMA_GROUP, KYMA_VERSION, Manifest},
    component::{Component, ParseAddressError, Source},
    content::ContentId,
    landscape::Landscape,
    name::Key,
    plan::{self, Answer, RuntimePlan, components},
    render::CompleteModule,
};
use tidegate_oci::{DockerConfig, DockerConfigError, Layers, Registry, Settings, Unpacker};
use tidegate_process::{ambient, lock::Mutex};
use tokio::{sync::Notify, time::Instant};

mod decide;
mod enact;
mod state;

use decide::NoAccess;
use enact::{Ended, Reader};
use state::{Effects, Job, LayerOf, Moved, Next, State, Told};

use crate::{
    config::{self, RegistryAccess},
    controller::{
        Queue, Subject,
        events::{Event, Recorder, reason},
    },
    queue::Trigger,
    runtime::manifest::Modules,
};

/// Components and layers.
pub struct Components {
    /// `None` without a registry.
    registry: Option<Configured>,
    state: Mutex<State>,
    /// Notified when there may be something to read.
    wake: Notify,
}

/// A registry that is configured.
struct Configured {
    config: config::Registry,
    /// The CAs of the registry in PEM, if they are not the system's.
    ca: Option<Vec<u8>>,
    unpacker: Unpacker,
    layers: Layers,
    access: Mutex<Arc<Result<Registry, NoAccess>>>,
}

/// The objects of a Manifest.
#[derive(Clone, Debug)]
pub(crate) enum Objects {
    /// All of them.
    Ready(CompleteModule),
    /// They are being read. The runtime is woken when that ends.
    Pending,
    /// They cannot be read. The runtime is woken when they can, or when there is another reason.
    Failed(String),
}

/// A runtime that waits for objects.
#[derive(Clone, Copy)]
pub(crate) struct Waiting<'a> {
    pub(crate) kyma: &'a Key,
    /// What wakes it.
    pub(crate) trigger: Trigger,
}

/// What a pass uses of this, beside the objects.
#[derive(Clone, Copy)]
pub(crate) struct Waker<'a> {
    pub(crate) queue: &'a Queue,
    pub(crate) events: &'a Recorder,
}

/// How many reads run at a time.
const READS_MAX: usize = 4;

// === impl Components ===

impl Components {
    /// Opens the cache in `folder`, if a registry is configured. No other process may use it. What a registry sends is
    /// unpacked by `unpacker`.
    ///
    /// # Errors
    ///
    /// Fails if the folder or the file with the CAs cannot be used.
    pub fn open(config: Option<&config::Registry>, folder: &Path, unpacker: Unpacker) -> anyhow::Result<Components> {
        let registry = match config {
            None => None,
            Some(config) => {
                let ca = config.ca.as_ref().map(std::fs::read).transpose();
                let ca = ca.with_context(|| format!("cannot read the CA of the registry from {:?}", config.ca))?;
                let cache = config.cache.as_deref().unwrap_or(folder);
                let layers = Layers::open(cache, config.quota_bytes, unpacker.clone());
                let layers = layers.context("cannot use the module cache")?;
                let mut configured = Configured {
                    config: config.clone(),
                    ca,
                    unpacker,
                    layers,
                    access: Mutex::new(Arc::new(Err(NoAccess(String::new())))),
                };
                let access = match &config.access {
                    RegistryAccess::Anonymous(address) => {
                        let registry = configured.registry(Settings::new(address.clone()));
                        Ok(registry.context("cannot use the registry")?)
                    }
                    RegistryAccess::Secret(secret) => Err(missing(secret)),
                };
                configured.access = Mutex::new(Arc::new(access));
                Some(configured)
            }
        };
        Ok(Components { registry, state: Mutex::default(), wake: Notify::new() })
    }

    /// The Secret with the credentials, if one is configured.
    pub fn secret(&self) -> Option<&Key> {
        match &self.registry.as_ref()?.config.access {
            RegistryAccess::Anonymous(_) => None,
            RegistryAccess::Secret(secret) => Some(secret),
        }
    }

    /// Takes the registry and its credentials from that Secret, or from its absence. What failed is tried at once.
    pub fn set_secret(&self, found: Option<&Result<DockerConfig, DockerConfigError>>) {
        let (Some(configured), Some(secret)) = (&self.registry, self.secret()) else { return };
        let access = match found {
            None => Err(missing(secret)),
            Some(Err(error)) => Err(NoAccess(format!("Secret {secret}: {error}"))),
            Some(Ok(found)) => configured.with_credentials(found.clone()),
        };
        if let Err(NoAccess(why)) = &access {
            tracing::warn!(error = why, "no access to the registry of modules");
        }
        *configured.access.lock() = Arc::new(access);
        self.state.lock().access_changed(Instant::now());
        self.wake.notify_one();
    }

    /// Follows the components that channels offer.
    pub fn follow(&self, landscape: &Landscape) {
        if self.registry.is_some() {
            self.state.lock().follow(plan::components_named(landscape), Instant::now());
            self.wake.notify_one();
        }
    }

    /// What a runtime with these Manifests knows of components. `requested` is when a user has requested what the tags
    /// name now. Then the registry is asked once more for what the Manifests install, and the second value says whether
    /// an answer is missing.
    pub(crate) fn seen_by(
        &self,
        kyma: &Key,
        manifests: &[Arc<Manifest>],
        requested: Option<Instant>,
        waker: Waker<'_>,
    ) -> (plan::Components, bool) {
        if self.registry.is_none() {
            let why = "no OCI registry is configured: use --oci-registry-host or --oci-registry-cred-secret";
            let known = plan::Components::new(Arc::default(), Answer::Failed(why.to_owned()));
            return (known.seen_by(manifests.iter().map(|manifest| &**manifest), &|_| false), false);
        }
        let (mut moved, mut renewed, mut is_waiting) = (Vec::new(), BTreeSet::new(), false);
        let known = {
            let (mut state, now) = (self.state.lock(), Instant::now());
            state.release(kyma);
            for (component, published) in manifests.iter().filter_map(|manifest| components::recorded(manifest)) {
                moved.extend(published.record.manifest.and_then(|installed| state.compare(&component, installed)));
                match requested {
                    Some(since) if state.renew(kyma, &component, since, now) => {
                        renewed.insert(component);
                    }
                    Some(_) => is_waiting = true,
                    None => {}
                }
            }
            plan::Components::new(state.answers(), Answer::Pending)
        };
        if is_waiting {
            self.wake.notify_one();
        }
        moved.iter().for_each(|moved| publish(waker.events, moved));
        let is_renewed = |component: &Component| renewed.contains(component);
        (known.seen_by(manifests.iter().map(|manifest| &**manifest), &is_renewed), is_waiting)
    }

    /// Wakes a runtime when one of the components is found that its plan waits for.
    pub(crate) fn wait(&self, kyma: &Key, plan: &RuntimePlan, seen: &plan::Components, waker: Waker<'_>) {
        if self.registry.is_none() {
            return;
        }
        let wanted = plan.deciding();
        let wanted = wanted.iter().filter_map(|module| module.component.as_ref());
        let missing: Vec<(&Component, &Answer)> = wanted
            .map(|component| (component, seen.get(component)))
            .filter(|(_, answer)| !matches!(answer, Answer::Found(_)))
            .collect();
        if missing.is_empty() {
            return;
        }
        let is_late = {
            let (mut state, now) = (self.state.lock(), Instant::now());
            missing
                .into_iter()
                .fold(false, |is_late, (component, answer)| state.want(kyma, component, answer, now) || is_late)
        };
        if is_late {
            waker.queue.push(Subject::Runtime(kyma.clone()), Trigger::Changed);
        }
        self.wake.notify_one();
    }

    /// A runtime that is gone waits for nothing.
    pub(crate) fn forget(&self, kyma: &Key) {
        self.state.lock().release(kyma);
    }

    /// The objects in a layer, with these images.
    pub(crate) fn objects(
        &self,
        modules: &Modules,
        waiting: Waiting<'_>,
        source: &Source,
        images: &[String],
    ) -> Objects {
        let content = ContentId::layer(source.digest, source.kind, images);
        if let Some(module) = modules.get(content) {
            return Objects::Ready(module);
        }
        if self.registry.is_none() {
            let why = "its objects are in an OCI registry, and none is configured: use --oci-registry-host or \
                       --oci-registry-cred-secret";
            return Objects::Failed(why.to_owned());
        }
        let layer = LayerOf { source: source.clone(), images: images.to_vec() };
        let told = self.state.lock().layer(waiting.kyma, waiting.trigger, &layer, Instant::now());
        self.wake.notify_one();
        match told {
            Told::Pending => Objects::Pending,
            Told::Failed(message) => Objects::Failed(message),
        }
    }

    /// Reads what is wanted. Runs until it is dropped.
    pub(crate) async fn run(&self, queue: &Queue, events: &Recorder, modules: &Modules) {
        let Some(configured) = &self.registry else { return std::future::pending().await };
        let waker = Waker { queue, events };
        let mut running = FuturesUnordered::new();
        loop {
            let mut next = Next::Idle;
            while running.len() < READS_MAX {
                next = self.state.lock().next(Instant::now());
                let Next::Start(job) = &next else { break };
                running.push(configured.read(job.clone(), modules));
            }
            let until = match next {
                Next::Wait(until) => Some(until),
                // Too many run already; the end of one wakes this loop.
                Next::Start(_) | Next::Idle => None,
            };
            tokio::select! {
                // In this order, so that a simulation repeats itself.
                biased;
                Some((job, ended)) = running.next() => self.end(&job, ended, waker),
                () = self.wake.notified() => {}
                () = tokio::time::sleep_until(until.unwrap_or_else(Instant::now)), if until.is_some() => {}
            }
        }
    }

    fn end(&self, job: &Job, Ended { outcome, layer }: Ended, waker: Waker<'_>) {
        let (now, fraction) = (Instant::now(), ambient::fraction());
        let Effects { wake, moved, failed } = {
            let mut state = self.state.lock();
            if let Some((layer, failure)) = layer {
                state.layer_ended(layer, failure, now, fraction);
            }
            state.end(job, outcome, now, fraction)
        };
        if let Some(error) = failed {
            tracing::warn!(error, "a module cannot be read from its registry");
        }
        if let Some(moved) = moved {
            publish(waker.events, &moved);
        }
        for (kyma, trigger) in wake {
            waker.queue.push(Subject::Runtime(kyma), trigger);
        }
    }
}

// === impl Configured ===

impl Configured {
    /// The registry, with what the configuration says of it.
    fn registry(&self, settings: Settings) -> Result<Registry, tidegate_oci::Error> {
        let (ca, token_hosts) = (self.ca.clone(), self.config.token_hosts.clone());
        Registry::new(Settings { ca, token_hosts, unpacker: self.unpacker.clone(), ..settings })
    }

    /// The registry and the credentials of a Secret. If only the credentials have changed, connections are kept.
    fn with_credentials(&self, found: DockerConfig) -> Result<Registry, NoAccess> {
        let DockerConfig { registry, credentials } = found;
        let below = registry.below(&self.config.subpath);
        let address = below.map_err(|error: ParseAddressError| NoAccess(error.to_string()))?;
        let same = self.access.lock().as_ref().as_ref().ok().filter(|known| *known.address() == address).cloned();
        let registry = match same {
            Some(registry) => registry.set_credentials(Some(credentials)).map(|()| registry),
            None => self.registry(Settings { credentials: Some(credentials), ..Settings::new(address) }),
        };
        registry.map_err(|error| NoAccess(error.to_string()))
    }

    async fn read(&self, job: Job, modules: &Modules) -> (Job, Ended) {
        let access = Arc::clone(&self.access.lock());
        let ended = Reader { layers: &self.layers, access: &access, modules }.run(&job).await;
        (job, ended)
    }
}

/// What the watch of the Secret keeps of it.
pub fn docker_config(secret: Secret) -> Result<DockerConfig, DockerConfigError> {
    let data = secret.data.unwrap_or_default().remove(".dockerconfigjson");
    DockerConfig::parse(data.as_ref().map(|bytes| bytes.0.as_slice()))
}

fn missing(secret: &Key) -> NoAccess {
    NoAccess(format!("no private oci registry auth secret found: {secret}"))
}

/// Reports a moved tag on its ModuleTemplates.
fn publish(events: &Recorder, moved: &Moved) {
    let (severity, note) = decide::moved_note(moved);
    tracing::warn!(component = %moved.component, installed = %moved.installed, found = %moved.found, "a tag was moved");
    for template in &moved.templates {
        let regarding = ObjectReference {
            api_version: Some(format!("{KYMA_GROUP}/{KYMA_VERSION}")),
            kind: Some("ModuleTemplate".to_owned()),
            namespace: Some(template.namespace().to_owned()),
            name: Some(template.name().to_owned()),
            ..ObjectReference::default()
        };
        let (reason, action) = (reason::TAG_MOVED, "Resolve");
        events.publish_event(Event { regarding, severity, reason, action, note: note.clone() });
    }
}
