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
//! `route` says which registry has a component, `state` is what is known, `decide` what failures mean, and `enact`
//! reads. This file only joins them.

use std::{
    collections::BTreeSet,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use anyhow::Context as _;
use futures::{StreamExt, stream::FuturesUnordered};
use k8s_openapi::api::core::v1::{ObjectReference, Secret};
use tidegate_core::{
    api::{KYMA_GROUP, KYMA_VERSION, Manifest},
    component::{Component, ComponentName, ParseAddressError, Source},
    content::ContentId,
    landscape::Landscape,
    name::Key,
    plan::{self, Answer, RuntimePlan, components, components::NO_REGISTRY},
    render::CompleteModule,
};
use tidegate_oci::{DockerConfig, DockerConfigError, Layers, Registry, Settings, Traffic, Unpacker};
use tidegate_process::{ambient, lock::Mutex};
use tokio::{sync::Notify, time::Instant};

mod decide;
mod enact;
mod route;
mod state;

use decide::NoAccess;
use enact::{Ended, Reader};
use route::{RegistryIndex, Routes};
use state::{Effects, Job, LayerOf, Moved, Next, State, Unavailable};

use crate::{
    config::{self, Registries, RegistryAccess},
    controller::{
        Queue, Subject,
        events::{Event, Recorder, reason},
    },
    metrics::RegistrySeries,
    queue::Trigger,
    runtime::manifest::ModuleCache,
};

/// Components and layers.
pub struct Components {
    /// In the order of the configuration.
    registries: Vec<Configured>,
    routes: Routes,
    /// `None` without a registry.
    layers: Option<Layers>,
    state: Mutex<State>,
    /// Notified when there may be something to read.
    wake: Notify,
    /// Whether the log has that modules have no registry.
    has_warned: AtomicBool,
}

/// A registry that is configured.
struct Configured {
    config: config::Registry,
    /// The CAs of the registry in PEM, if they are not the system's.
    ca: Option<Vec<u8>>,
    unpacker: Unpacker,
    traffic: Arc<Traffic>,
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
    Failed {
        /// Why.
        message: String,
        /// Whether only the registry is away.
        is_away: bool,
    },
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

// === impl Components ===

impl Components {
    /// Opens the cache in `folder`, if a registry is configured. No other process may use it. What registries send is
    /// unpacked by `unpacker`.
    ///
    /// # Errors
    ///
    /// Fails if the folder or a file with CAs cannot be used.
    pub fn open(config: &Registries, folder: &Path, unpacker: Unpacker) -> anyhow::Result<Components> {
        let routes = Routes::to(&config.all);
        let registries = config.all.iter().map(|registry| Configured::new(registry, &unpacker));
        let registries = registries.collect::<anyhow::Result<Vec<Configured>>>()?;
        let layers = match registries.is_empty() {
            true => None,
            false => {
                let layers = Layers::open(config.cache.as_deref().unwrap_or(folder), config.quota_bytes, unpacker);
                Some(layers.context("cannot use the module cache")?)
            }
        };
        let state = Mutex::new(State::new(routes.clone()));
        Ok(Components { registries, routes, layers, state, wake: Notify::new(), has_warned: AtomicBool::new(false) })
    }

    /// The Secrets with credentials.
    pub fn secrets(&self) -> BTreeSet<&Key> {
        self.registries.iter().filter_map(Configured::secret).collect()
    }

    /// Takes registry and credentials from that Secret, or from its absence. What failed is tried at once.
    pub fn set_secret(&self, secret: &Key, found: Option<&Result<DockerConfig, DockerConfigError>>) {
        for (index, configured) in self.registries.iter().enumerate() {
            if configured.secret() != Some(secret) {
                continue;
            }
            let access = match found {
                None => Err(missing(secret)),
                Some(Err(error)) => Err(NoAccess(format!("Secret {secret}: {error}"))),
                Some(Ok(found)) => configured.with_credentials(found.clone()),
            };
            if let Err(NoAccess(why)) = &access {
                tracing::warn!(error = why, "no access to the registry of modules");
            }
            *configured.access.lock() = Arc::new(access);
            self.state.lock().access_changed(RegistryIndex(index), Instant::now());
        }
        self.wake.notify_one();
    }

    /// Follows the components that channels offer.
    pub fn follow(&self, landscape: &Landscape) {
        self.state.lock().follow(plan::components_named(landscape), Instant::now());
        self.wake.notify_one();
    }

    /// What a runtime with these Manifests knows of components. `requested` is when a user has requested what the tags
    /// name now. Then the registries are asked once more for what the Manifests install, and the second value says
    /// whether an answer is missing.
    pub(crate) fn seen_by(
        &self,
        kyma: &Key,
        manifests: &[Arc<Manifest>],
        requested: Option<Instant>,
        waker: Waker<'_>,
    ) -> (plan::Components, bool) {
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
        let wanted = plan.deciding();
        let wanted = wanted.iter().filter_map(|module| module.component.as_ref());
        let missing: Vec<(&Component, &Answer)> = wanted
            .map(|component| (component, seen.get(component)))
            .filter(|(_, answer)| !matches!(answer, Answer::Found(_)))
            .collect();
        self.wait_for(kyma, missing, waker);
    }

    /// Wakes a runtime when its registry has answered for a component that is installed. What the daemon notes on its
    /// Manifest depends on that, so a comparison before is not the last one. Returns whether there is such a component.
    pub(crate) fn wait_for_installed(
        &self,
        kyma: &Key,
        plan: &RuntimePlan,
        seen: &plan::Components,
        waker: Waker<'_>,
    ) -> bool {
        let wanted = plan.deciding();
        let wanted = wanted.iter().filter_map(|module| module.component.as_ref());
        let pending: Vec<(&Component, &Answer)> = wanted
            .filter(|component| seen.is_pending(component))
            .map(|component| (component, &Answer::Pending))
            .collect();
        let is_waiting = !pending.is_empty();
        self.wait_for(kyma, pending, waker);
        is_waiting
    }

    /// Wakes a runtime when there are other answers than these.
    fn wait_for(&self, kyma: &Key, missing: Vec<(&Component, &Answer)>, waker: Waker<'_>) {
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

    /// Whether a registry is configured that may have a component.
    pub(crate) fn has_registry(&self, name: &ComponentName) -> bool {
        self.routes.of(name).is_some()
    }

    /// Says once that modules are not checked because no registry is configured for them. Each Kyma says it of its own.
    pub(crate) fn warn_without_registry(&self, kyma: &Key, modules: &[String]) {
        if !modules.is_empty() && !self.has_warned.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                %kyma, modules = modules.join(", "), next = NO_REGISTRY,
                "installed modules stay as they are and are not checked, because no registry is configured for them"
            );
        }
    }

    /// The series of the registries.
    pub(crate) fn series(&self) -> Vec<RegistrySeries> {
        let state = self.state.lock();
        let series = self.registries.iter().enumerate().map(|(index, configured)| RegistrySeries {
            registry: configured.name(),
            answering: state.is_answering(RegistryIndex(index)),
            failing: state.failing(RegistryIndex(index)),
            requests: configured.traffic.requests(),
            received_bytes: configured.traffic.received_bytes(),
        });
        series.collect()
    }

    /// Whether a runtime waits for a read that has not ended once. The queue does not show that.
    pub(crate) fn is_awaited(&self) -> bool {
        self.state.lock().is_awaited()
    }

    /// A runtime that is gone waits for nothing.
    pub(crate) fn forget(&self, kyma: &Key) {
        self.state.lock().release(kyma);
    }

    /// The objects in a layer, with these images.
    pub(crate) fn objects(
        &self,
        modules: &ModuleCache,
        waiting: Waiting<'_>,
        source: &Source,
        images: &[String],
    ) -> Objects {
        let content = ContentId::layer(source.digest, source.kind, images);
        if let Some(module) = modules.get(content) {
            return Objects::Ready(module);
        }
        let layer = LayerOf { source: source.clone(), images: images.to_vec() };
        let told = self.state.lock().layer(waiting.kyma, waiting.trigger, &layer, Instant::now());
        self.wake.notify_one();
        match told {
            Unavailable::Pending => Objects::Pending,
            Unavailable::Failed { message, is_away } => Objects::Failed { message, is_away },
        }
    }

    /// Reads what is wanted. Runs until it is dropped.
    pub(crate) async fn run(&self, queue: &Queue, events: &Recorder, modules: &ModuleCache) {
        let Some(layers) = &self.layers else { return std::future::pending().await };
        let waker = Waker { queue, events };
        let mut running = FuturesUnordered::new();
        loop {
            let until = loop {
                let next = self.state.lock().next(Instant::now());
                match next {
                    Next::Start(job) => {
                        let access = self.access(&job);
                        running.push(async move {
                            let ended = Reader { layers, access: &access, modules }.run(&job).await;
                            (job, ended)
                        });
                    }
                    Next::Wait(until) => break Some(until),
                    Next::Idle => break None,
                }
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

    /// Access to the registry that has what a job reads.
    fn access(&self, job: &Job) -> Arc<Result<Registry, NoAccess>> {
        match self.routes.of(job.name()) {
            Some(RegistryIndex(index)) => Arc::clone(&self.registries[index].access.lock()),
            None => Arc::new(Err(NoAccess(NO_REGISTRY.to_owned()))),
        }
    }

    fn end(&self, job: &Job, Ended { outcome, layer }: Ended, waker: Waker<'_>) {
        let (now, fraction) = (Instant::now(), ambient::fraction());
        let Effects { wake, moved, failed } = {
            let mut state = self.state.lock();
            let of_layer = layer.map(|(layer, failure)| state.layer_ended(layer, failure, now, fraction));
            state.end(job, outcome, now, fraction).with_layer(of_layer.unwrap_or_default())
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
    fn new(config: &config::Registry, unpacker: &Unpacker) -> anyhow::Result<Configured> {
        let ca = config.ca.as_ref().map(std::fs::read).transpose();
        let ca = ca.with_context(|| format!("cannot read the CA of the registry from {:?}", config.ca))?;
        let access = Mutex::new(Arc::new(Err(NoAccess(String::new()))));
        let configured =
            Configured { config: config.clone(), ca, unpacker: unpacker.clone(), traffic: Arc::default(), access };
        let access = match &config.access {
            RegistryAccess::Anonymous(address) => {
                let registry = configured.registry(Settings::new(address.clone()));
                Ok(registry.context("cannot use the registry")?)
            }
            RegistryAccess::Secret(secret) => Err(missing(secret)),
        };
        *configured.access.lock() = Arc::new(access);
        Ok(configured)
    }

    /// Its address, or its Secret as long as that names none.
    fn name(&self) -> String {
        match (&**self.access.lock(), &self.config.access) {
            (Ok(registry), _) => registry.address().to_string(),
            (Err(_), RegistryAccess::Anonymous(address)) => address.to_string(),
            (Err(_), RegistryAccess::Secret(secret)) => format!("secret {secret}"),
        }
    }

    /// The Secret with the credentials, if one is configured.
    fn secret(&self) -> Option<&Key> {
        match &self.config.access {
            RegistryAccess::Anonymous(_) => None,
            RegistryAccess::Secret(secret) => Some(secret),
        }
    }

    /// The registry, with what the configuration says of it.
    fn registry(&self, settings: Settings) -> Result<Registry, tidegate_oci::Error> {
        let (ca, token_hosts) = (self.ca.clone(), self.config.token_hosts.clone());
        let (unpacker, traffic) = (self.unpacker.clone(), Arc::clone(&self.traffic));
        Registry::new(Settings { ca, token_hosts, unpacker, traffic, ..settings })
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
}

/// What the watch of the Secret keeps of it.
///
/// # Errors
///
/// Fails if the Secret has no `.dockerconfigjson`, or if that is invalid.
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
