//! The controllers: one file for each kind of subject, and what they share.
//!
//! A controller's `reconcile` reads the current state and moves one subject a step towards its desired state. It may be
//! dropped at any `await` and run again. It returns when to reconcile the subject next, or a [`Failure`], which is
//! logged here and nowhere else. It starts no tasks and does not wait for anything slow. For an object that is not
//! ready yet, it returns [`Finish::After`] or a `Failed(Waiting)`, and for a fetch in progress [`Finish::Awaiting`], so
//! that waiting occupies no worker.

pub(crate) mod annotations;
pub mod dispatch;
pub mod events;
pub(crate) mod finalizers;

use std::{collections::BTreeSet, error::Error, fmt, sync::Arc, time::Duration};

use bytes::Bytes;
use serde_json::json;

use self::events::Recorder;
use tidegate_cluster::{self as cluster, Cause, Cluster, Pool};
use tidegate_core::{
    api::{KYMA_GROUP, KYMA_VERSION, setup, shared::ObjectMeta},
    definition,
    landscape::{self, SourceName},
    name::Key,
    plan::{Settings, certificate::Backend, reporting::Agent},
    template::Library,
};
use tidegate_process::{lock::RwLock, retry::Class};

use crate::{
    components::Components,
    gateway::{
        GatewayContext,
        certificates::{Certificates, CertificatesContext},
    },
    maintenance::Maintenance,
    metrics::Metrics,
    observe::Observation,
    queue::{self, Finish, Triggers},
    release::ReleaseContext,
    renderer::{CurrentTemplates, Renderer},
    runtime::{self, RuntimeContext, RuntimeSettings, contacts::Contacts},
    setup::{Issuance, SetupContext, SetupMemory},
    source::{SourceContext, registry::SourceRegistry},
    stores::{self, Stores},
    watcher::{self, WatcherContext, inbox::Inbox},
};

/// Everything that the daemon wires together, made once. Each controller gets only what it uses of it:
/// [`Context::source`], [`Context::runtime`], [`Context::watcher`], [`Context::gateway`], [`Context::release`],
/// [`Context::setup`].
pub struct Context {
    /// The control plane. It refuses writes while this process does not lead.
    pub kcp: Arc<Cluster>,
    /// The runtimes. They refuse writes as well while this process does not lead.
    pub pool: Pool,
    /// The objects in the control plane.
    pub stores: Stores,
    /// Where one subject triggers another.
    pub queue: Queue,
    /// Settings that plans depend on, besides definitions.
    pub settings: Settings,
    /// The metrics.
    pub metrics: Metrics,
    /// Where controllers publish Events.
    pub events: Recorder,
    /// Namespaces in which Tidegate reads GitSources, Kymas and access Secrets.
    pub namespaces: BTreeSet<String>,
    /// Whether GitSources in KCP may name local paths.
    pub allow_local_sources: bool,
    /// How often a runtime is compared with its desired state, if nothing reports its changes.
    pub resync: Duration,
    /// Over how long upgrades to a new version are spread.
    pub rollout_delay_max: Duration,
    /// Longest wait before an object is repaired that is undone again and again.
    pub drift_repair_pause_max: Duration,
    /// Renders overrides of templates.
    pub renderer: Renderer,
    /// The templates: those of the daemon, and the overrides of sources.
    pub library: RwLock<Arc<Library>>,
    /// Repositories: definitions and objects of modules.
    pub sources: SourceRegistry,
    /// What this process remembers of each runtime.
    pub runtimes: runtime::KnownRuntimes,
    /// When each runtime last answered or sent an event.
    pub contacts: Contacts,
    /// The agent in runtimes; `None` if none is installed.
    pub agent: Option<Agent>,
    /// Events from runtimes, on their way to the queue.
    pub inbox: Inbox,
    /// The objects that runtimes share, rendered once.
    pub shared: runtime::SharedByRuntimes,
    /// Components and layers in OCI registries.
    pub components: Components,
    /// The policy of maintenance windows.
    pub maintenance: Maintenance,
    /// What this process remembers of each Watcher.
    pub watchers: watcher::AppliedVirtualServices,
    /// Certificates, and their issuer.
    pub certificates: Arc<Certificates>,
    /// What this process remembers of the objects of kcp landscapes.
    pub setup_memory: SetupMemory,
    /// The subjects whose last pass panicked.
    pub panicked: dispatch::Panicked,
    /// What a process knows that only observes; `None` if the daemon reconciles.
    pub observation: Option<Observation>,
}

/// What a controller works on.
///
/// Displays as `source NAMESPACE/NAME` and so on, and as `Shard NAMESPACE/NAME` if it belongs to a kcp landscape.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Subject {
    /// A GitSource.
    Source(Key),
    /// A Kyma with its Manifests, and the cluster behind it.
    Runtime(Key),
    /// A Watcher.
    Watcher(Key),
    /// The Secret with the gateway's serving certificate and the CAs that it trusts.
    Gateway(Key),
    /// The ModuleReleaseMeta of a mandatory module.
    Release(Key),
    /// A resource of a kcp landscape, with its objects in the control plane.
    Setup(setup::Kind, Key),
}

/// The queue of the daemon.
pub type Queue = queue::Queue<Subject>;

/// How a pass over one subject ended.
pub type Pass = Result<Finish, Failure>;

/// Why a pass failed.
#[derive(Debug)]
pub struct Failure {
    /// What can resolve the failure.
    pub class: Class,
    /// One word in PascalCase, for metrics and Events.
    pub reason: &'static str,
    /// The error, with its chain of sources.
    pub error: Box<dyn Error + Send + Sync>,
}

// === impl Context ===

impl Context {
    /// The parts that passes over GitSources use.
    pub fn source(&self) -> SourceContext<'_> {
        SourceContext {
            renderer: &self.renderer,
            kcp: &self.kcp,
            stores: &self.stores,
            queue: &self.queue,
            metrics: &self.metrics,
            events: &self.events,
            registry: &self.sources,
            library: &self.library,
            agent: self.agent.as_ref(),
            plan: &self.settings,
            namespaces: &self.namespaces,
            allow_local_sources: self.allow_local_sources,
        }
    }

    /// The parts that passes over runtimes use.
    pub fn runtime(&self) -> RuntimeContext<'_> {
        RuntimeContext {
            kcp: &self.kcp,
            pool: &self.pool,
            stores: &self.stores,
            events: &self.events,
            settings: RuntimeSettings {
                plan: &self.settings,
                agent: self.agent.as_ref(),
                rollout_delay_max: self.rollout_delay_max,
                drift_repair_pause_max: self.drift_repair_pause_max,
            },
            templates: self.templates(),
            sources: &self.sources,
            runtimes: &self.runtimes,
            contacts: &self.contacts,
            shared: &self.shared,
            components: &self.components,
            maintenance: &self.maintenance,
            metrics: &self.metrics,
            certificates: CertificatesContext {
                kcp: &self.kcp,
                stores: &self.stores,
                namespaces: &self.namespaces,
                templates: self.templates(),
                queue: &self.queue,
                certificates: &self.certificates,
            },
        }
    }

    /// The parts that passes over Watchers use.
    pub fn watcher(&self) -> WatcherContext<'_> {
        WatcherContext {
            kcp: &self.kcp,
            stores: &self.stores,
            sources: &self.sources,
            templates: self.templates(),
            memories: &self.watchers,
            has_address: self.certificates.listener.address.is_some(),
        }
    }

    /// The templates, with what renders them.
    fn templates(&self) -> CurrentTemplates<'_> {
        CurrentTemplates { library: &self.library, renderer: &self.renderer }
    }

    /// The parts that passes over ModuleReleaseMetas of mandatory modules use.
    pub fn release(&self) -> ReleaseContext<'_> {
        ReleaseContext { kcp: &self.kcp, stores: &self.stores, events: &self.events }
    }

    /// The parts that passes over resources of kcp landscapes use.
    pub fn setup(&self) -> SetupContext<'_> {
        SetupContext {
            kcp: &self.kcp,
            stores: &self.stores,
            sources: &self.sources,
            templates: self.templates(),
            events: &self.events,
            memory: &self.setup_memory,
            issuance: match self.certificates.rules.backend {
                Some(Backend::Builtin) => Issuance::Builtin,
                Some(Backend::CertManager | Backend::Gardener) | None => Issuance::CertManager,
            },
        }
    }

    /// The parts that passes over the gateway's Secret use.
    pub fn gateway(&self) -> GatewayContext<'_> {
        GatewayContext { kcp: &self.kcp, stores: &self.stores, queue: &self.queue, certificates: &self.certificates }
    }
}

/// The current templates.
pub(crate) fn library(library: &RwLock<Arc<Library>>) -> Arc<Library> {
    Arc::clone(&library.read())
}

/// Fails if this process has not yet read a source with template overrides that affect the object. A source affects its
/// own objects, and all objects if it contains part of the catalog or Watchers. Rendering too early would apply the
/// embedded templates' output, and the overrides' output a moment later.
pub(crate) fn templates_read(stores: &Stores, sources: &SourceRegistry, metadata: &ObjectMeta) -> Result<(), Failure> {
    let is_unread = |source: &stores::Source| {
        let overrides = source.object.spec.templates.as_ref().is_some_and(|folder| !folder.is_empty());
        overrides && sources.loaded(&source.key()).is_none()
    };
    let unread: Vec<Key> =
        stores.sources().iter().filter(|source| is_unread(source)).map(stores::Source::key).collect();
    // One that was never readable: as much of it as can be known without its type.
    let unknown = stores.all_unknown(&[stores::Table::Sources], None).into_iter().map(|found| found.object);
    let unknown = unknown.filter(|object| object.names_templates).map(|object| object.key());
    let unread: Vec<Key> = unread.into_iter().chain(unknown).collect();
    if unread.is_empty() {
        return Ok(());
    }
    let landscape = stores.landscape();
    let templates = landscape.templates.values().map(|template| &template.metadata);
    let releases = landscape.releases.values().map(|release| &release.metadata);
    let watchers = landscape.watchers.values().map(|watcher| &watcher.metadata);
    let all = std::iter::once(metadata).chain(templates).chain(releases).chain(watchers);
    let owners: BTreeSet<Key> = all.filter_map(SourceName::from_metadata).map(|source| source.key().clone()).collect();
    match unread.into_iter().find(|source| owners.contains(source)) {
        None => Ok(()),
        Some(source) => {
            let message = format!("the templates of GitSource {source} have not been read yet");
            Err(Failure::new(Class::Waiting, "TemplatesNotRead", message))
        }
    }
}

/// Why a pass writes, for the audit log.
pub fn cause(triggers: Triggers) -> Cause {
    Cause::trigger(&triggers.to_string())
}

/// The same cause, with the revision, file and line of the definition behind an object, if a source declares it.
pub(crate) fn origin(sources: &SourceRegistry, cause: &Cause, kind: definition::Kind, metadata: &ObjectMeta) -> Cause {
    let source = SourceName::from_metadata(metadata).and_then(|name| sources.loaded(name.key()));
    let Some(loaded) = source else { return cause.clone() };
    let declared = loaded.definitions.good.get(&(kind, landscape::key(metadata)));
    cause.revision(loaded.revision.to_string()).place(declared.map(|definition| definition.place.clone()))
}

// === impl Subject ===

impl Subject {
    /// The key that running work must not share: only one task at a time works on a runtime, whatever triggered it.
    pub fn lane(&self) -> Option<Key> {
        match self {
            Subject::Runtime(kyma) => Some(kyma.clone()),
            Subject::Source(_)
            | Subject::Watcher(_)
            | Subject::Gateway(_)
            | Subject::Release(_)
            | Subject::Setup(..) => None,
        }
    }

    /// Its kind in logs and metrics.
    pub fn kind(&self) -> &'static str {
        match self {
            Subject::Source(_) => "source",
            Subject::Runtime(_) => "runtime",
            Subject::Watcher(_) => "watcher",
            Subject::Gateway(_) => "gateway",
            Subject::Release(_) => "release",
            Subject::Setup(..) => "setup",
        }
    }

    /// Namespace and name of its custom resource in KCP.
    pub fn key(&self) -> &Key {
        let (Subject::Source(key)
        | Subject::Runtime(key)
        | Subject::Watcher(key)
        | Subject::Gateway(key)
        | Subject::Release(key)
        | Subject::Setup(_, key)) = self;
        key
    }
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Subject::Setup(kind, key) => write!(f, "{kind} {key}"),
            Subject::Source(_)
            | Subject::Runtime(_)
            | Subject::Watcher(_)
            | Subject::Gateway(_)
            | Subject::Release(_) => write!(f, "{} {}", self.kind(), self.key()),
        }
    }
}

// === impl Failure ===

impl Failure {
    /// From an error of an adapter, with the class and reason that the error reports.
    pub fn new(class: Class, reason: &'static str, error: impl Into<Box<dyn Error + Send + Sync>>) -> Failure {
        Failure { class, reason, error: error.into() }
    }

    /// How long an API server asked the client to wait, if that is why the pass failed.
    pub fn retry_after(&self) -> Option<Duration> {
        self.error.downcast_ref::<cluster::Error>().and_then(cluster::Error::retry_after)
    }
}

/// The body of an apply of the status of a Kyma kind.
pub(crate) fn status_body(kind: &str, key: &Key, status: &impl serde::Serialize) -> Bytes {
    let body = json!({
        "apiVersion": format!("{KYMA_GROUP}/{KYMA_VERSION}"),
        "kind": kind,
        "metadata": { "name": key.name(), "namespace": key.namespace() },
        "status": status,
    });
    Bytes::from(body.to_string())
}

/// An error and its causes in one line, each cause once.
pub fn chain(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        // Some crates print their source in their own message.
        if !text.contains(&cause_text) {
            text.push_str(": ");
            text.push_str(&cause_text);
        }
        source = cause.source();
    }
    text
}
