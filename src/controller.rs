//! The controllers: one file for each kind of subject, and what they share.
//!
//! A controller's `reconcile` looks at the world and brings one subject a step nearer to what it should be. It may be
//! dropped at any `await` and run again. It returns what becomes of the subject, or a [`Failure`], which is logged here
//! and nowhere else. It starts no tasks and waits for nothing that takes long: what is not ready yet is a
//! [`Finish::After`] or a `Failed(Waiting)`, so that waiting holds no worker.

pub mod dispatch;
pub mod events;
pub(crate) mod finalizers;

use std::{collections::BTreeSet, error::Error, fmt, sync::Arc, time::Duration};

use bytes::Bytes;
use serde_json::json;

use self::events::Recorder;
use tidegate_cluster::{self as cluster, Cause, Cluster, Pool};
use tidegate_core::{
    api::{KYMA_GROUP, KYMA_VERSION, shared::ObjectMeta},
    definition,
    landscape::{self, SourceName},
    name::Key,
    plan::{Settings, reporting::Agent},
    template::Library,
};
use tidegate_process::{lock::RwLock, retry::Class};

use crate::{
    gateway::{GatewayContext, certificates::Certificates},
    metrics::Metrics,
    queue::{self, Finish, Triggers},
    renderer::Renderer,
    runtime::{self, RuntimeContext, contacts::Contacts, manifest::Modules},
    source::{SourceContext, registry::SourceRegistry},
    stores::{self, Stores},
    watcher::{self, WatcherContext, inbox::Inbox},
};

/// Everything that the daemon wires together, made once. Each controller gets only what it uses of it:
/// [`Context::source`], [`Context::runtime`], [`Context::watcher`], [`Context::gateway`].
pub struct Context {
    /// The control plane. Writes through it are refused while we do not lead.
    pub kcp: Arc<Cluster>,
    /// The runtimes, likewise.
    pub pool: Pool,
    /// What stands in the control plane.
    pub stores: Stores,
    /// Where subjects ask for each other.
    pub queue: Queue,
    /// What plans depend on beside definitions.
    pub settings: Settings,
    /// What is counted.
    pub metrics: Metrics,
    /// What users are told.
    pub events: Recorder,
    /// Namespaces in which GitSources, Kymas and access Secrets count.
    pub namespaces: BTreeSet<String>,
    /// Whether GitSources in KCP may name local paths.
    pub allow_local_sources: bool,
    /// How often a runtime is compared with what it should be, where nothing reports its changes.
    pub resync: Duration,
    /// What renders overrides of templates.
    pub renderer: Renderer,
    /// The templates: those of the daemon, and the overrides of sources.
    pub library: RwLock<Arc<Library>>,
    /// Repositories: definitions and objects of modules.
    pub sources: SourceRegistry,
    /// What this process remembers of each runtime.
    pub runtimes: runtime::KnownRuntimes,
    /// When each runtime was last heard of.
    pub contacts: Contacts,
    /// The agent in runtimes; `None` if none is installed.
    pub agent: Option<Agent>,
    /// Events of runtimes, on their way to the queue.
    pub inbox: Inbox,
    /// What every runtime has, rendered once a class.
    pub bases: runtime::Bases,
    /// What reports changes in runtimes, rendered once for all that have the same kinds of objects.
    pub reports: runtime::Reports,
    /// Objects of modules, marked and serialised once.
    pub modules: Modules,
    /// What this process remembers of each Watcher.
    pub watchers: watcher::AppliedVirtualServices,
    /// Certificates, and their issuer.
    pub certificates: Arc<Certificates>,
}

/// What a controller works on.
///
/// Displays as `source NAMESPACE/NAME` and so on.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Subject {
    /// A GitSource.
    Source(Key),
    /// A Kyma with its Manifests, and the cluster behind it.
    Runtime(Key),
    /// A Watcher.
    Watcher(Key),
    /// What the gateway serves with, and whom it trusts: the Secret with both.
    Gateway(Key),
}

/// The queue of the daemon.
pub type Queue = queue::Queue<Subject>;

/// How a pass over one subject ended.
pub type Pass = Result<Finish, Failure>;

/// Why a pass failed.
#[derive(Debug)]
pub struct Failure {
    /// What can help.
    pub class: Class,
    /// One word in PascalCase, for metrics and Events.
    pub reason: &'static str,
    /// The error, with its chain of sources.
    pub error: Box<dyn Error + Send + Sync>,
}

// === impl Context ===

impl Context {
    /// What passes over GitSources use.
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
            namespaces: &self.namespaces,
            allow_local_sources: self.allow_local_sources,
        }
    }

    /// What passes over runtimes use.
    pub fn runtime(&self) -> RuntimeContext<'_> {
        RuntimeContext {
            kcp: &self.kcp,
            pool: &self.pool,
            stores: &self.stores,
            queue: &self.queue,
            settings: &self.settings,
            events: &self.events,
            namespaces: &self.namespaces,
            resync: self.resync,
            renderer: &self.renderer,
            library: &self.library,
            sources: &self.sources,
            runtimes: &self.runtimes,
            contacts: &self.contacts,
            agent: self.agent.as_ref(),
            bases: &self.bases,
            reports: &self.reports,
            modules: &self.modules,
            certificates: &self.certificates,
        }
    }

    /// What passes over Watchers use.
    pub fn watcher(&self) -> WatcherContext<'_> {
        WatcherContext {
            renderer: &self.renderer,
            kcp: &self.kcp,
            stores: &self.stores,
            sources: &self.sources,
            library: &self.library,
            memories: &self.watchers,
            has_address: self.certificates.listener.address.is_some(),
        }
    }

    /// What passes over the gateway's Secret use.
    pub fn gateway(&self) -> GatewayContext<'_> {
        GatewayContext { kcp: &self.kcp, stores: &self.stores, queue: &self.queue, certificates: &self.certificates }
    }
}

/// The templates as they are now.
pub(crate) fn library(library: &RwLock<Arc<Library>>) -> Arc<Library> {
    Arc::clone(&library.read())
}

/// Fails while a source with template overrides has not been read in this process, and an object with these metadata
/// comes from it, or anything of the catalog or the Watchers. To render before it is read would write what the embedded
/// templates say, and take it back a moment later.
pub(crate) fn templates_read(stores: &Stores, sources: &SourceRegistry, metadata: &ObjectMeta) -> Result<(), Failure> {
    let is_unread = |source: &stores::Source| {
        let overrides = source.object.spec.templates.as_ref().is_some_and(|folder| !folder.is_empty());
        overrides && sources.loaded(&source.key()).is_none()
    };
    let unread: Vec<Key> =
        stores.sources().iter().filter(|source| is_unread(source)).map(stores::Source::key).collect();
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

/// Why a pass writes, for the audit.
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
    /// What running work must not share: a runtime is worked on by one task at a time, whatever asks for it.
    pub fn lane(&self) -> Option<Key> {
        match self {
            Subject::Runtime(kyma) => Some(kyma.clone()),
            Subject::Source(_) | Subject::Watcher(_) | Subject::Gateway(_) => None,
        }
    }

    /// Its kind in logs and metrics.
    pub fn kind(&self) -> &'static str {
        match self {
            Subject::Source(_) => "source",
            Subject::Runtime(_) => "runtime",
            Subject::Watcher(_) => "watcher",
            Subject::Gateway(_) => "gateway",
        }
    }

    /// Namespace and name of its custom resource in KCP.
    pub fn key(&self) -> &Key {
        let (Subject::Source(key) | Subject::Runtime(key) | Subject::Watcher(key) | Subject::Gateway(key)) = self;
        key
    }
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind(), self.key())
    }
}

// === impl Failure ===

impl Failure {
    /// From an error of an adapter, with what that says of itself.
    pub fn new(class: Class, reason: &'static str, error: impl Into<Box<dyn Error + Send + Sync>>) -> Failure {
        Failure { class, reason, error: error.into() }
    }

    /// How long an API server asked us to wait, if that is why the pass failed.
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

/// An error and its causes in one line, each of them once.
pub fn chain(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        // Some crates print their source themselves.
        if !text.contains(&cause_text) {
            text.push_str(": ");
            text.push_str(&cause_text);
        }
        source = cause.source();
    }
    text
}
