//! The daemon's view of the control plane, filled by watches.
//!
//! Every accessor returns shared values of one moment; nothing reads from the API server here. The stores keep
//! projections without `managedFields`. They compare every change with the previous state, and wake the affected
//! subjects (`change::wakes` decides which).
//!
//! Nothing is woken before every table has been listed once and [`Stores::start`] was called. Before that, a runtime
//! whose access Secret is not listed yet looks like one without a Secret.

pub(crate) mod change;
pub mod definitions;
pub mod feed;
pub(crate) mod secret;
pub mod unreadable;

use std::{
    collections::{BTreeMap, BTreeSet, btree_map::Entry},
    sync::{Arc, MutexGuard},
    time::Duration,
};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use tokio::{
    sync::{Notify, watch},
    time::Instant,
};

use self::{
    change::{Change, Edit, Wake},
    definitions::{Definitions, Hold},
    secret::{GatewaySecret, LeafSecret, PullSecret, SourceSecret},
};
use crate::controller::{Queue, Subject};
use tidegate_cluster::{Cluster, Unreadable};
use tidegate_core::{
    api::{
        GitSource, Kyma, Manifest, ModuleReleaseMeta, ModuleTemplate, Watcher, git_source::GitSourceStatus, names,
        setup,
    },
    definition::{self, KcpLandscapes, Kind},
    intake::ConfirmBy,
    landscape::{self, Landscape, setup::Resources},
    name::Key,
    object::Object,
    overview,
    plan::{
        LeftUnmanaged, certificate::kyma_of as kyma_of_name, is_mandatory, is_mandatory_release, reporting::Gateway,
        rollout, setup::setup_mark,
    },
    render::RuntimeCrds,
};
use tidegate_process::lock::Mutex;

use crate::{
    gateway::pki::object::Live,
    queue::Trigger,
    setup::{
        LiveObjects, ObjectName,
        object::{LiveObject, ObjectKind},
        operator::{self, Held, Leases, Running},
    },
};

/// The daemon's view of the control plane. A handle: clones share it.
#[derive(Clone)]
pub struct Stores(Arc<Shared>);

/// A table that is not listed yet.
#[derive(Debug, Default)]
struct Awaited {
    /// How many watches have not listed their part of it.
    watches: usize,
    /// Which right is missing for that, as a sentence, if one is.
    denied: Option<String>,
}

struct Shared {
    tables: Mutex<Tables>,
    queue: Queue,
    /// The tables that are not listed yet, each with its namespace.
    missing: watch::Sender<BTreeMap<(Table, String), Awaited>>,
    /// Notified when a catalog changes: see [`Stores::spread`].
    catalog_changed: Notify,
    /// Notified when the gateway's Secret changes.
    gateway_changed: Notify,
    /// Whether our definitions and namespaces are there.
    definitions: Definitions,
    /// What other processes read of the sources of the command line.
    local_sources: watch::Sender<Option<String>>,
    /// kcp-operator, while it runs. Only its start and its end are reported.
    kcp_operator: watch::Sender<Option<Running>>,
    cluster_secrets: watch::Sender<ClusterSecrets>,
}

/// The watched kinds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Table {
    /// GitSources.
    Sources,
    /// Kymas.
    Kymas,
    /// Manifests.
    Manifests,
    /// ModuleTemplates.
    Templates,
    /// ModuleReleaseMetas.
    Releases,
    /// Watchers.
    Watchers,
    /// Access Secrets; metadata only.
    Access,
    /// Istio Gateways.
    Gateways,
    /// The gateway's Secret.
    GatewaySecret,
    /// The CA's Secret; metadata only.
    Authority,
    /// Certificates of runtimes, if another program issues them.
    Certificates,
    /// The Secrets of these certificates; metadata only.
    CertificateSecrets,
    /// The image pull Secret of runtimes. Its data are not kept.
    PullSecret,
    /// The Secrets whose data Secrets of modules get; metadata only.
    SourceSecrets,
    /// The CRDs that runtimes get.
    RuntimeCrds,
    /// The Secrets with credentials of OCI registries. Their content is not kept here.
    RegistrySecret,
    /// The resources of kcp landscapes of one kind.
    Setup(setup::Kind),
    /// The objects of kcp landscapes of one kind; metadata only, but for what others wait for.
    SetupObjects(ObjectKind),
    /// The Leases of kcp-operator.
    KcpOperator,
}

/// The tables, which `change::wakes` reads.
#[derive(Default)]
pub struct Tables {
    started: bool,
    /// Whether this process only observes.
    is_observing: bool,
    sources: BTreeMap<Key, Arc<GitSource>>,
    local_sources: BTreeMap<Key, Arc<GitSource>>,
    kymas: BTreeMap<Key, Arc<Kyma>>,
    kymas_by_runtime: BTreeMap<String, BTreeSet<Key>>,
    /// The modules that Kymas released before they dropped them. Most have none.
    left_unmanaged: BTreeMap<Key, LeftUnmanaged>,
    manifests: BTreeMap<Key, Arc<Manifest>>,
    manifests_by_kyma: BTreeMap<Key, BTreeSet<Key>>,
    /// ModuleTemplates, ModuleReleaseMetas and Watchers. Its Kymas stay empty: they change with every status, and each
    /// change would copy the whole map. Planning a runtime needs only its own Kyma.
    landscape: Arc<Landscape>,
    access: BTreeMap<Key, Arc<AccessSecret>>,
    access_by_kyma: BTreeMap<Key, BTreeSet<Key>>,
    gateways: BTreeMap<Key, Arc<GatewayEntry>>,
    /// The subject that manages the gateway's certificate, if there is one.
    gateway: Option<Key>,
    gateway_secret: Option<Arc<GatewaySecret>>,
    /// The resource version of the CA's Secret.
    authority: Option<String>,
    /// By name; all are in one namespace.
    certificates: BTreeMap<String, Arc<Live>>,
    certificate_secrets: BTreeMap<String, Arc<LeafSecret>>,
    pull_secret: Option<Arc<PullSecret>>,
    /// By name; all are in one namespace.
    source_secrets: BTreeMap<String, Arc<SourceSecret>>,
    runtime_crds: Arc<RuntimeCrds>,
    /// Namespaces whose catalog changed since the last spread.
    dirty_catalogs: BTreeMap<String, Trigger>,
    /// Sources whose definitions may refer to what changed in a catalog.
    referring: BTreeSet<Key>,
    /// Objects that exist and cannot be read.
    unreadable: BTreeMap<(Table, Key), Arc<Unreadable>>,
    /// How many runtimes have which version of each module.
    rollouts: rollout::Index,
    /// The ModuleTemplates that sources prune as soon as no runtime has their version, by source.
    awaited: BTreeMap<Key, BTreeSet<Key>>,
    /// Whether kcp landscapes are reconciled.
    is_setup_watched: bool,
    /// The kinds of kcp landscapes that the control plane does not serve, with the namespace of their watch.
    setup_not_served: BTreeSet<(setup::Kind, String)>,
    /// The resources of kcp landscapes.
    setup: Arc<Resources>,
    /// Grows whenever a definition of a kcp landscape changes. A status does not count.
    setup_version: u64,
    /// The resources by namespace and label of their objects.
    setup_by_mark: BTreeMap<(String, String), (setup::Kind, Key)>,
    /// Their objects, and all Secrets and ConfigMaps of the namespaces.
    setup_objects: BTreeMap<(ObjectKind, Key), Arc<LiveObject>>,
    /// The objects with the label of each resource, by namespace and label.
    setup_marked: BTreeMap<(String, Arc<str>), BTreeSet<ObjectName>>,
    /// The objects that each resource depends on, and the other way round.
    setup_needs: BTreeMap<(setup::Kind, Key), BTreeSet<ObjectName>>,
    setup_users: BTreeMap<(ObjectKind, Key), BTreeSet<(setup::Kind, Key)>>,
    /// Other clusters, by the namespace of their Secret and their name.
    other_clusters: BTreeMap<Key, OtherCluster>,
    /// The Leases of kcp-operator.
    kcp_operator: Leases,
}

/// Another cluster, with objects of kcp landscapes.
#[derive(Clone, Debug)]
pub(crate) struct OtherCluster {
    /// Whether it is known which cluster it is.
    pub(crate) identity: Identity,
    /// Why it cannot be reached now: one sentence.
    pub(crate) outage: Option<String>,
    /// The kinds whose objects are not listed yet.
    pub(crate) unlisted: BTreeSet<ObjectKind>,
    /// The kinds whose objects may not be listed or watched: which right is missing.
    pub(crate) denied: BTreeMap<ObjectKind, String>,
    /// Its objects of this control plane, shared with passes.
    pub(crate) objects: Arc<LiveObjects>,
}

/// Which cluster another cluster is.
#[derive(Clone, Debug)]
pub(crate) enum Identity {
    /// It has not answered yet.
    Asked,
    /// Its Secret cannot be used, or it is the control plane: one sentence.
    Refused(String),
    /// It is known.
    Known {
        /// The connection.
        cluster: Arc<Cluster>,
        /// The UID of its namespace `kube-system`.
        uid: Arc<str>,
        /// The UID of the control plane.
        control_plane: Arc<str>,
    },
}

/// The Secrets with kubeconfigs of other clusters, by namespace and cluster: their names and versions.
pub(crate) type ClusterSecrets = BTreeMap<Key, BTreeMap<String, Arc<str>>>;

/// A GitSource and its origin.
#[derive(Clone, Debug)]
pub struct Source {
    /// The object.
    pub object: Arc<GitSource>,
    /// Its origin.
    pub origin: Origin,
}

/// The origin of a GitSource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// KCP: its status is written there.
    ControlPlane,
    /// The command line: it exists only in this process, and its status stays here.
    CommandLine,
}

impl Origin {
    /// How a user confirms what a commit of the source removes.
    pub(crate) fn confirm_by(self) -> ConfirmBy {
        match self {
            Origin::ControlPlane => ConfirmBy::Annotation,
            Origin::CommandLine => ConfirmBy::Option,
        }
    }
}

/// An access Secret, as far as its metadata describe it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccessSecret {
    /// The Kyma of its runtime.
    pub kyma: Key,
    /// Changes with every rotation.
    pub resource_version: String,
}

/// How to connect to a runtime.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Access {
    /// No Secret names this Kyma.
    Missing,
    /// Several Secrets name it, which is an error: their names.
    Ambiguous(Vec<String>),
    /// A Secret names it that cannot be read. Contains one sentence about it.
    Unreadable(String),
    /// Exactly one Secret names it.
    One {
        /// The Secret.
        secret: Key,
        /// Its resource version.
        resource_version: String,
    },
}

/// The Kyma with a given runtime id.
#[derive(Clone, Debug)]
pub enum Runtime {
    /// No Kyma has it.
    Unknown,
    /// One Kyma has it.
    One(Arc<Kyma>),
    /// Several Kymas have it, which is an error.
    Ambiguous(Vec<Arc<Kyma>>),
}

/// The part of an Istio Gateway that Watchers need.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GatewayEntry {
    /// Its name and hosts.
    pub gateway: Gateway,
    /// Its labels, for selectors.
    pub labels: BTreeMap<String, String>,
}

/// A kind with its own table.
pub trait Stored: Resource<DynamicType = ()> + Sized + Send + Sync + 'static {
    /// Its table.
    const TABLE: Table;
    /// Inserts it into its table, or removes it. Returns the previous object.
    fn put(tables: &mut Tables, key: &Key, object: Option<Arc<Self>>) -> Option<Arc<Self>>;
    /// Converts an edit into a change.
    fn change(edit: Edit<Self>) -> Change;
}

// === impl Source ===

impl Source {
    /// Its namespace and name.
    pub fn key(&self) -> Key {
        landscape::key(&self.object.metadata)
    }
}

// === impl Stores ===

/// Maximum gap between the first passes of two runtimes at start-up: a landscape of eight starts at once, one of
/// thousands spreads its first reads.
const START_GAP_MAX: Duration = Duration::from_millis(5);
/// Limit until the first pass of the last runtime.
const START_SPREAD_MAX: Duration = Duration::from_secs(60);

/// How many runtimes a change that affects all of them wakes at a time, in the order of their names. So other changes
/// need not wait behind thousands of runtimes.
const SPREAD_AT_ONCE: usize = 32;
const SPREAD_GAP: Duration = Duration::from_millis(50);

impl Stores {
    /// Creates empty stores that wake subjects in `queue`.
    pub fn new(queue: Queue) -> Stores {
        let (missing, _) = watch::channel(BTreeMap::new());
        Stores(Arc::new(Shared {
            tables: Mutex::default(),
            queue,
            missing,
            catalog_changed: Notify::new(),
            gateway_changed: Notify::new(),
            definitions: Definitions::default(),
            local_sources: watch::channel(None).0,
            kcp_operator: watch::channel(None).0,
            cluster_secrets: watch::channel(ClusterSecrets::new()).0,
        }))
    }

    /// What other processes read of the sources of the command line.
    pub(crate) fn local_sources(&self) -> watch::Receiver<Option<String>> {
        self.0.local_sources.subscribe()
    }

    /// Whether deletions in KCP may be acted upon.
    pub(crate) fn definitions(&self) -> &Definitions {
        &self.0.definitions
    }

    /// Records that this process only observes. A control plane of Lifecycle Manager has no GitSources, and need not
    /// serve their kind.
    pub(crate) fn observe(&self) {
        self.tables().is_observing = true;
    }

    /// Records that the control plane has stopped to serve a kind, or serves it again.
    pub(crate) fn set_served(&self, table: Table, namespace: &str, is_served: bool) {
        if table == Table::Sources && self.tables().is_observing {
            return;
        }
        if let Table::Setup(kind) = table {
            self.set_setup_served(kind, namespace, is_served);
        }
        if let Some(plural) = table.required() {
            self.definitions().set_served(plural, namespace, is_served, &self.working_sources());
        }
    }

    /// Why no deletion in a namespace may be acted upon; `None` if they may. Reads our definitions in the control
    /// plane.
    pub(crate) async fn hold(&self, kcp: &Cluster, namespace: &str) -> Option<Hold> {
        self.definitions().hold(kcp, namespace, &|| self.working_sources()).await
    }

    /// Follows holds in `namespaces`: see [`Definitions::next`].
    pub(crate) async fn next_hold(&self, kcp: &Cluster, namespaces: &BTreeSet<String>) -> Vec<String> {
        self.definitions().next(kcp, namespaces, &|| self.working_sources()).await
    }

    /// The GitSources that are not suspended.
    fn working_sources(&self) -> Vec<Key> {
        let tables = self.tables();
        let working = tables.sources.iter().filter(|(_, source)| !source.spec.suspend);
        working.map(|(key, _)| key.clone()).collect()
    }

    // --- objects in KCP ---

    /// A Kyma.
    pub fn kyma(&self, key: &Key) -> Option<Arc<Kyma>> {
        self.tables().kymas.get(key).cloned()
    }

    /// The modules that a Kyma released before it dropped them, as far as this process has seen it.
    pub(crate) fn left_unmanaged(&self, kyma: &Key) -> LeftUnmanaged {
        self.tables().left_unmanaged.get(kyma).cloned().unwrap_or_default()
    }

    /// All Kymas, by key.
    pub fn kymas(&self) -> Vec<Arc<Kyma>> {
        self.tables().kymas.values().cloned().collect()
    }

    /// The Kyma whose label has this runtime id.
    pub fn runtime(&self, id: &str) -> Runtime {
        let tables = self.tables();
        let keys = tables.kymas_by_runtime.get(id).into_iter().flatten();
        let mut kymas: Vec<Arc<Kyma>> = keys.filter_map(|key| tables.kymas.get(key)).cloned().collect();
        match (kymas.pop(), kymas.is_empty()) {
            (None, _) => Runtime::Unknown,
            (Some(kyma), true) => Runtime::One(kyma),
            (Some(kyma), false) => {
                kymas.push(kyma);
                Runtime::Ambiguous(kymas)
            }
        }
    }

    /// A Manifest.
    pub fn manifest(&self, key: &Key) -> Option<Arc<Manifest>> {
        self.tables().manifests.get(key).cloned()
    }

    /// The Manifests of a mandatory module, by key.
    pub(crate) fn manifests_of_mandatory(&self, release: &Key) -> Vec<Arc<Manifest>> {
        let tables = self.tables();
        let is_of = |manifest: &&Arc<Manifest>| mandatory_release_of(&manifest.metadata).as_ref() == Some(release);
        tables.manifests.values().filter(is_of).cloned().collect()
    }

    /// All Manifests, by key.
    pub fn manifests(&self) -> Vec<Arc<Manifest>> {
        self.tables().manifests.values().cloned().collect()
    }

    /// The Manifests of a Kyma, by key.
    pub(crate) fn manifests_of(&self, kyma: &Key) -> Vec<Arc<Manifest>> {
        let tables = self.tables();
        let keys = tables.manifests_by_kyma.get(kyma).into_iter().flatten();
        keys.filter_map(|key| tables.manifests.get(key)).cloned().collect()
    }

    /// ModuleTemplates, ModuleReleaseMetas and Watchers; its Kymas are empty.
    pub fn landscape(&self) -> Arc<Landscape> {
        Arc::clone(&self.tables().landscape)
    }

    /// A GitSource.
    pub fn source(&self, key: &Key) -> Option<Source> {
        self.tables().source(key)
    }

    /// All GitSources, by key. A source of the command line hides one in KCP with the same key.
    pub fn sources(&self) -> Vec<Source> {
        let tables = self.tables();
        let keys: BTreeSet<&Key> = tables.sources.keys().chain(tables.local_sources.keys()).collect();
        keys.into_iter().filter_map(|key| tables.source(key)).collect()
    }

    /// How to connect to a runtime.
    pub fn access(&self, kyma: &Key) -> Access {
        let is_for_kyma = |found: &unreadable::UnreadableObject| kyma_of(&found.object.metadata).as_ref() == Some(kyma);
        if let Some(found) =
            self.all_unknown(&[Table::Access], Some(kyma.namespace())).iter().find(|found| is_for_kyma(found))
        {
            return Access::Unreadable(found.sentence());
        }
        let tables = self.tables();
        let secrets: Vec<&Key> = tables.access_by_kyma.get(kyma).into_iter().flatten().collect();
        match secrets.as_slice() {
            [] => Access::Missing,
            [secret] => match tables.access.get(*secret) {
                Some(access) => {
                    Access::One { secret: (*secret).clone(), resource_version: access.resource_version.clone() }
                }
                None => Access::Missing,
            },
            several => Access::Ambiguous(several.iter().map(|secret| secret.name().to_owned()).collect()),
        }
    }

    /// All Istio Gateways, by key.
    pub fn gateways(&self) -> Vec<Arc<GatewayEntry>> {
        self.tables().gateways.values().cloned().collect()
    }

    /// The CA bundle that runtimes trust, in PEM.
    pub fn ca_bundle(&self) -> Option<Arc<[u8]>> {
        self.tables().gateway_secret.as_ref()?.bundle.clone()
    }

    /// The gateway's Secret.
    pub fn gateway_secret(&self) -> Option<Arc<GatewaySecret>> {
        self.tables().gateway_secret.clone()
    }

    /// A `Certificate` of a runtime.
    pub fn certificate(&self, name: &str) -> Option<Arc<Live>> {
        self.tables().certificates.get(name).cloned()
    }

    /// The Secret of a runtime's certificate.
    pub(crate) fn certificate_secret(&self, name: &str) -> Option<Arc<LeafSecret>> {
        self.tables().certificate_secrets.get(name).cloned()
    }

    /// The image pull Secret of runtimes, if it exists.
    pub(crate) fn pull_secret(&self) -> Option<Arc<PullSecret>> {
        self.tables().pull_secret.clone()
    }

    /// A Secret whose data Secrets of a module get, if it has the label of one.
    pub(crate) fn source_secret(&self, name: &str) -> Option<Arc<SourceSecret>> {
        self.tables().source_secrets.get(name).cloned()
    }

    /// The CRDs that runtimes get.
    pub(crate) fn runtime_crds(&self) -> Arc<RuntimeCrds> {
        Arc::clone(&self.tables().runtime_crds)
    }

    // --- kcp landscapes ---

    /// The resources of kcp landscapes.
    pub(crate) fn setup(&self) -> Arc<Resources> {
        Arc::clone(&self.tables().setup)
    }

    /// The resources of kcp landscapes, and a number that grows whenever a definition among them changes.
    pub(crate) fn setup_with_version(&self) -> (Arc<Resources>, u64) {
        let tables = self.tables();
        (Arc::clone(&tables.setup), tables.setup_version)
    }

    /// Records that kcp landscapes are reconciled.
    pub(crate) fn watch_setup(&self) {
        self.tables().is_setup_watched = true;
    }

    /// Whether definitions of kcp landscapes are applied.
    pub(crate) fn kcp_landscapes(&self) -> KcpLandscapes {
        let tables = self.tables();
        match tables.setup_not_served.first() {
            _ if !tables.is_setup_watched => KcpLandscapes::Off,
            Some((kind, _)) => KcpLandscapes::NotServed(*kind),
            None if self.0.kcp_operator.borrow().is_some() => KcpLandscapes::KcpOperatorRuns,
            None => KcpLandscapes::Applied,
        }
    }

    /// The kinds of definitions that the control plane serves, as far as they are reconciled, in the order of apply.
    /// `has_operator` says whether kcp-operator runs: a pass that has decided something about it reads it only once.
    pub(crate) fn applied_kinds(&self, has_operator: bool) -> Vec<Kind> {
        let tables = self.tables();
        let is_applied = |kind: &Kind| match kind {
            Kind::ModuleTemplate | Kind::ModuleReleaseMeta | Kind::Watcher | Kind::Kyma => true,
            Kind::Setup(kind) => {
                !has_operator
                    && tables.is_setup_watched
                    && tables.setup_not_served.iter().all(|(missing, _)| missing != kind)
            }
        };
        Kind::ALL.into_iter().filter(is_applied).collect()
    }

    /// Records that the control plane has stopped to serve a kind of kcp landscapes, or serves it again. Sources apply
    /// other definitions then.
    fn set_setup_served(&self, kind: setup::Kind, namespace: &str, is_served: bool) {
        let mut tables = self.tables();
        let entry = (kind, namespace.to_owned());
        let is_news =
            if is_served { tables.setup_not_served.remove(&entry) } else { tables.setup_not_served.insert(entry) };
        if is_news {
            self.wake(&mut tables, &Change::SetupServed);
        }
    }

    /// kcp-operator, while it runs. Meanwhile, nothing of kcp landscapes may be written.
    pub(crate) fn kcp_operator(&self) -> watch::Receiver<Option<Running>> {
        self.0.kcp_operator.subscribe()
    }

    /// How long it takes at most until it is known whether kcp-operator runs; `None` if it is known.
    pub(crate) fn kcp_operator_doubt(&self) -> Option<Duration> {
        let running = self.0.kcp_operator.borrow();
        let doubtful = running.as_ref().filter(|running| !running.is_seen)?;
        // The API server is asked then.
        Some(doubtful.until.saturating_duration_since(Instant::now()).max(operator::ANSWER))
    }

    /// Stores the state of a Lease of kcp-operator; `None` if it was released or is gone.
    pub(crate) fn set_kcp_operator(&self, key: &Key, held: Option<Arc<Held>>, now: Instant) {
        let is_first = self.0.missing.borrow().contains_key(&(Table::KcpOperator, String::new()));
        self.tables().kcp_operator.set(key, held.map(Arc::unwrap_or_clone), is_first, now);
        self.judge_kcp_operator(now);
    }

    /// The Leases of kcp-operator that seem to have ended.
    pub(crate) fn doubtful_leases(&self, now: Instant) -> Vec<Key> {
        self.tables().kcp_operator.doubtful(now)
    }

    /// Stores the answer of the API server to a request for a Lease. `asked` says when the request began and ended.
    pub(crate) fn answer_kcp_operator(&self, key: &Key, held: Option<Held>, asked: (Instant, Instant)) {
        self.tables().kcp_operator.answer(key, held, asked);
        self.judge_kcp_operator(asked.1);
    }

    /// Finds out whether kcp-operator runs at `now`. If that has changed, says so once and wakes everything of kcp
    /// landscapes.
    fn judge_kcp_operator(&self, now: Instant) {
        let mut tables = self.tables();
        let running = tables.kcp_operator.running(now);
        let known = self.0.kcp_operator.borrow().as_ref().map(|running| running.is_seen);
        match &running {
            Some(Running { namespace, holder, is_seen: true, .. }) if known != Some(true) => {
                let hint = definition::KCP_OPERATOR_RUNS;
                tracing::warn!(namespace, holder, hint, "kcp-operator runs; writing nothing of kcp landscapes");
            }
            Some(Running { namespace, holder, is_seen: false, .. }) if known.is_none() => {
                tracing::info!(namespace, holder, "waiting whether kcp-operator renews its Lease");
            }
            None if known == Some(true) => {
                tracing::info!("kcp-operator does not run any more; reconciling kcp landscapes");
            }
            Some(_) | None => {}
        }
        let is_news = self.0.kcp_operator.send_if_modified(|known| {
            let is_news = known.as_ref().map(|known| known.is_seen) != running.as_ref().map(|known| known.is_seen);
            *known = running;
            is_news
        });
        if is_news {
            self.wake(&mut tables, &Change::KcpOperator);
        }
    }

    /// The objects of a namespace that bear the label of a resource, and those with these names.
    pub(crate) fn setup_objects(&self, namespace: &str, mark: &str, names: &BTreeSet<ObjectName>) -> LiveObjects {
        let tables = self.tables();
        let marked = tables.setup_marked.get(&(namespace.to_owned(), mark.into())).into_iter().flatten();
        let found = marked.chain(names).filter_map(|(kind, name)| {
            let live = tables.setup_objects.get(&(*kind, Key::new(namespace, name)))?;
            Some(((*kind, name.clone()), Arc::clone(live)))
        });
        found.collect()
    }

    /// Sets the objects of its namespace that a resource depends on. Their changes wake it.
    pub(crate) fn set_setup_needs(&self, (kind, key): (setup::Kind, &Key), needs: BTreeSet<ObjectName>) {
        self.tables().set_setup_needs((kind, key), needs);
    }

    /// Adds an object that a resource depends on.
    pub(crate) fn add_setup_need(&self, (kind, key): (setup::Kind, &Key), need: &ObjectName) {
        let mut tables = self.tables();
        let mut needs = tables.setup_needs.get(&(kind, key.clone())).cloned().unwrap_or_default();
        if needs.insert(need.clone()) {
            tables.set_setup_needs((kind, key), needs);
        }
    }

    /// Stores the current state of an object; `None` if it is gone.
    pub(crate) fn set_setup_object(&self, (kind, key): (ObjectKind, &Key), object: Option<Arc<LiveObject>>) {
        let mut tables = self.tables();
        let mark = |object: Option<&Arc<LiveObject>>| {
            let mark = object?.mark.clone()?;
            Some((key.namespace().to_owned(), mark))
        };
        let after = mark(object.as_ref());
        if kind == ObjectKind::Secret {
            let before = tables.setup_objects.get(&(kind, key.clone()));
            self.note_cluster_secret(key, before.map(|found| &**found), object.as_deref());
        }
        let before = match object {
            Some(object) => tables.setup_objects.insert((kind, key.clone()), object),
            None => tables.setup_objects.remove(&(kind, key.clone())),
        };
        let before = mark(before.as_ref());
        let name = (kind, key.name().to_owned());
        let mut concerned = tables.setup_users.get(&(kind, key.clone())).cloned().unwrap_or_default();
        let marks = before.iter().chain(&after).map(|(namespace, mark)| (namespace.clone(), mark.to_string()));
        concerned.extend(marks.filter_map(|mark| tables.setup_by_mark.get(&mark).cloned()));
        reindex(&mut tables.setup_marked, &name, before, after);
        if !concerned.is_empty() {
            self.wake(&mut tables, &Change::SetupObject(concerned));
        }
    }

    /// Notes that a Secret leads to another cluster, or does not any more.
    fn note_cluster_secret(&self, secret: &Key, before: Option<&LiveObject>, after: Option<&LiveObject>) {
        let place = |object: &LiveObject| Some(Key::new(secret.namespace(), object.cluster.as_deref()?));
        let before = before.and_then(place);
        let after = after.and_then(|after| Some((place(after)?, Arc::clone(&after.resource_version))));
        if before.is_none() && after.is_none() {
            return;
        }
        self.0.cluster_secrets.send_modify(|all| {
            let former = before.and_then(|place| match all.entry(place) {
                Entry::Occupied(secrets) => Some(secrets),
                Entry::Vacant(_) => None,
            });
            if let Some(mut secrets) = former {
                secrets.get_mut().remove(secret.name());
                if secrets.get().is_empty() {
                    secrets.remove();
                }
            }
            if let Some((place, version)) = after {
                all.entry(place).or_default().insert(secret.name().to_owned(), version);
            }
        });
    }

    /// The Secrets that lead to other clusters.
    pub(crate) fn cluster_secrets(&self) -> watch::Receiver<ClusterSecrets> {
        self.0.cluster_secrets.subscribe()
    }

    /// The other clusters to which Secrets of a namespace lead, by name.
    pub(crate) fn other_clusters(&self, namespace: &str) -> Vec<(String, OtherCluster)> {
        let secrets = self.0.cluster_secrets.borrow();
        let mut names: BTreeSet<String> = secrets
            .keys()
            .filter(|place| place.namespace() == namespace)
            .map(|place| place.name().to_owned())
            .collect();
        drop(secrets);
        let tables = self.tables();
        let known = tables.other_clusters.keys().filter(|place| place.namespace() == namespace);
        names.extend(known.map(|place| place.name().to_owned()));
        let found = |name: String| {
            let found = tables.other_clusters.get(&Key::new(namespace, &name)).cloned();
            (name, found.unwrap_or_else(OtherCluster::asked))
        };
        names.into_iter().map(found).collect()
    }

    /// The first kind whose objects in another cluster are not listed yet.
    pub(crate) fn unlisted_elsewhere(&self, place: &Key) -> Option<ObjectKind> {
        self.tables().other_clusters.get(place)?.unlisted.first().copied()
    }

    /// A right that is missing in another cluster, so that its objects cannot be watched: one sentence.
    pub(crate) fn denied_elsewhere(&self, place: &Key) -> Option<String> {
        self.tables().other_clusters.get(place)?.denied.values().next().cloned()
    }

    /// Records which right is missing to watch the objects of a kind in another cluster; `None` if none is.
    pub(crate) fn set_denied_elsewhere(&self, place: &Key, kind: ObjectKind, why: Option<String>) {
        let mut tables = self.tables();
        let Some(cluster) = tables.other_clusters.get_mut(place) else { return };
        match why {
            Some(why) => _ = cluster.denied.insert(kind, why),
            None => _ = cluster.denied.remove(&kind),
        }
    }

    /// How many other clusters there are, by state.
    pub(crate) fn count_other_clusters(&self) -> BTreeMap<&'static str, usize> {
        let mut counts: BTreeMap<_, _> = ["reached", "refused", "unreached"].map(|state| (state, 0)).into();
        for cluster in self.tables().other_clusters.values() {
            *counts.entry(cluster.state()).or_default() += 1;
        }
        counts
    }

    /// The Deployments of a namespace that are in the clusters which their resources ask for.
    pub(crate) fn deployments_elsewhere(&self, namespace: &str) -> LiveObjects {
        let tables = self.tables();
        let mut found = LiveObjects::new();
        for (place, cluster) in tables.other_clusters.iter().filter(|(place, _)| place.namespace() == namespace) {
            let is_wanted = |live: &LiveObject| {
                let mark = live.mark.as_deref().map(|mark| (namespace.to_owned(), mark.to_owned()));
                let resource = mark.and_then(|mark| tables.setup_by_mark.get(&mark));
                resource.is_some_and(|(kind, key)| tables.setup.cluster_of(*kind, key) == Some(place.name()))
            };
            let deployments = cluster.objects.iter().filter(|((kind, _), _)| *kind == ObjectKind::Deployment);
            let wanted = deployments.filter(|(_, live)| is_wanted(live));
            found.extend(wanted.map(|(name, live)| (name.clone(), Arc::clone(live))));
        }
        found
    }

    /// Stores which cluster another cluster is; its objects are not listed yet. `None` if no Secret leads to it.
    pub(crate) fn set_other_cluster(&self, place: &Key, identity: Option<Identity>) {
        let mut tables = self.tables();
        match identity {
            Some(identity) => {
                tables.other_clusters.insert(place.clone(), OtherCluster { identity, ..OtherCluster::asked() });
            }
            None => _ = tables.other_clusters.remove(place),
        }
        self.wake_namespace(&mut tables, place.namespace());
    }

    /// Stores why another cluster cannot be reached; `None` once it can.
    pub(crate) fn set_outage_elsewhere(&self, place: &Key, outage: Option<String>) {
        let mut tables = self.tables();
        let Some(cluster) = tables.other_clusters.get_mut(place) else { return };
        cluster.outage = outage;
        self.wake_namespace(&mut tables, place.namespace());
    }

    /// Wakes the resources of a namespace: what another cluster has of them may have changed.
    fn wake_namespace(&self, tables: &mut Tables, namespace: &str) {
        let concerned = tables.setup_of(namespace).into_iter().collect();
        self.wake(tables, &Change::SetupObject(concerned));
    }

    /// Wakes resources of kcp landscapes: a pass over another one has found what they wait for.
    pub(crate) fn wake_setup(&self, resources: BTreeSet<(setup::Kind, Key)>) {
        if !resources.is_empty() {
            self.wake(&mut self.tables(), &Change::SetupObject(resources));
        }
    }

    /// Wakes the resources that ask for another cluster, but for one that has left it.
    pub(crate) fn wake_placed(&self, place: &Key, left: &(setup::Kind, Key)) {
        let mut tables = self.tables();
        let mut concerned = tables.placed_in(place);
        concerned.remove(left);
        self.wake(&mut tables, &Change::SetupObject(concerned));
    }

    /// Records that the objects of a kind in another cluster are listed.
    pub(crate) fn listed_elsewhere(&self, place: &Key, kind: ObjectKind) {
        let mut tables = self.tables();
        let Some(cluster) = tables.other_clusters.get_mut(place) else { return };
        cluster.unlisted.remove(&kind);
        cluster.denied.remove(&kind);
        if cluster.unlisted.is_empty() {
            self.wake_namespace(&mut tables, place.namespace());
        }
    }

    /// Stores the current state of an object in another cluster; `None` if it is gone.
    pub(crate) fn set_object_elsewhere(&self, place: &Key, name: &ObjectName, object: Option<Arc<LiveObject>>) {
        let mut tables = self.tables();
        let Some(cluster) = tables.other_clusters.get_mut(place) else { return };
        let after = object.clone();
        // A pass that looks at them keeps its own.
        let objects = Arc::make_mut(&mut cluster.objects);
        let before = match object {
            Some(object) => objects.insert(name.clone(), object),
            None => objects.remove(name),
        };
        if !cluster.unlisted.is_empty() {
            return;
        }
        let marks = [before, after].into_iter().flatten().filter_map(|live| live.mark.clone());
        let marks = marks.map(|mark| (place.namespace().to_owned(), mark.to_string()));
        let mut concerned: BTreeSet<_> = marks.filter_map(|mark| tables.setup_by_mark.get(&mark).cloned()).collect();
        let id = (name.0, Key::new(place.namespace(), &name.1));
        let users = tables.setup_users.get(&id).into_iter().flatten();
        match name.0 {
            // Others wait for Deployments, and the copies are theirs who mount them.
            ObjectKind::Deployment => concerned.extend(users.cloned()),
            ObjectKind::Secret | ObjectKind::ConfigMap => {
                let placed =
                    |resource: &&(setup::Kind, Key)| tables.setup.cluster_of(resource.0, &resource.1).is_some();
                concerned.extend(users.filter(placed).cloned());
            }
            ObjectKind::Issuer | ObjectKind::Certificate | ObjectKind::Service | ObjectKind::PodDisruptionBudget => {}
        }
        if !concerned.is_empty() {
            self.wake(&mut tables, &Change::SetupObject(concerned));
        }
    }

    /// Reads or changes the counts of versions, and wakes the runtimes that may go on then.
    pub(crate) fn rollouts<T>(&self, work: impl FnOnce(&mut rollout::Index) -> T) -> T {
        let mut tables = self.tables();
        let result = work(&mut tables.rollouts);
        self.wake_rollouts(&mut tables);
        result
    }

    /// Records the ModuleTemplates that a source prunes as soon as no runtime has their version: the end of the last
    /// Manifest with it wakes the source. Returns whether that has happened to one of them already.
    pub(crate) fn set_awaited(&self, source: &Key, templates: BTreeSet<Key>) -> bool {
        let mut tables = self.tables();
        let is_over = templates.iter().any(|template| !tables.is_installed(template));
        if templates.is_empty() {
            tables.awaited.remove(source);
        } else {
            tables.awaited.insert(source.clone(), templates);
        }
        is_over
    }

    // --- sources of the command line ---

    /// Adds a GitSource that exists only in this process.
    pub(crate) fn add_local_source(&self, source: GitSource) {
        let key = landscape::key(&source.metadata);
        let mut tables = self.tables();
        tables.local_sources.insert(key, Arc::new(source));
        self.show_local_sources(&tables);
    }

    fn show_local_sources(&self, tables: &Tables) {
        let sources = tables.local_sources.values().map(|source| &**source);
        self.0.local_sources.send_replace(overview::local_sources_text(sources));
    }

    /// Stores the status of such a GitSource.
    pub(crate) fn set_local_status(&self, key: &Key, status: GitSourceStatus) {
        let mut tables = self.tables();
        if let Some(source) = tables.local_sources.get_mut(key) {
            Arc::make_mut(source).status = Some(status);
            self.show_local_sources(&tables);
        }
    }

    /// Removes an annotation of such a GitSource.
    pub(crate) fn forget_local(&self, key: &Key, annotation: &str) {
        let mut tables = self.tables();
        let annotations =
            tables.local_sources.get_mut(key).map(|source| &mut Arc::make_mut(source).metadata.annotations);
        annotations.and_then(Option::as_mut).and_then(|all| all.remove(annotation));
    }

    // --- updates ---

    /// Stores the current state of an object; `None` if it is gone.
    pub fn set<K: Stored>(&self, key: &Key, after: Option<Arc<K>>) {
        let mut tables = self.tables();
        let before = K::put(&mut tables, key, after.clone());
        self.wake(&mut tables, &K::change(Edit { key: key.clone(), before, after }));
    }

    /// Stores the current state of an access Secret; `None` if it is gone or names no Kyma any more.
    pub fn set_access(&self, secret: &Key, access: Option<Arc<AccessSecret>>) {
        let mut tables = self.tables();
        let after = access.as_ref().map(|access| access.kyma.clone());
        let before = put(&mut tables.access, secret, access.clone());
        reindex(&mut tables.access_by_kyma, secret, before.as_ref().map(|access| access.kyma.clone()), after);
        self.wake(&mut tables, &Change::Access { before, after: access });
    }

    /// Records that a VirtualService changed or is gone.
    pub(crate) fn virtual_service_changed(&self, key: &Key) {
        let mut tables = self.tables();
        self.wake(&mut tables, &Change::VirtualService(key.clone()));
    }

    /// Stores the current state of a Gateway; `None` if it is gone.
    pub(crate) fn set_gateway(&self, key: &Key, gateway: Option<Arc<GatewayEntry>>) {
        let mut tables = self.tables();
        let is_new = tables.gateways.get(key) != gateway.as_ref();
        put(&mut tables.gateways, key, gateway);
        if is_new {
            self.wake(&mut tables, &Change::Gateways);
        }
    }

    /// Stores the gateway's Secret.
    pub(crate) fn set_gateway_secret(&self, secret: Option<Arc<GatewaySecret>>) {
        let mut tables = self.tables();
        let trust = |secret: Option<&Arc<GatewaySecret>>| {
            secret.map(|secret| (secret.bundle.clone(), secret.bundled_at.clone()))
        };
        let is_new_trust = trust(tables.gateway_secret.as_ref()) != trust(secret.as_ref());
        let is_new = tables.gateway_secret != secret;
        tables.gateway_secret = secret;
        if is_new {
            self.0.gateway_changed.notify_one();
            self.wake(&mut tables, &Change::Gateway);
        }
        if is_new_trust {
            self.wake(&mut tables, &Change::CaBundle);
        }
    }

    /// Sets the subject that manages the gateway's certificate.
    pub(crate) fn look_after(&self, gateway: Key) {
        self.tables().gateway = Some(gateway);
    }

    /// Stores the resource version of the CA's Secret.
    pub(crate) fn set_authority(&self, resource_version: Option<String>) {
        let mut tables = self.tables();
        if tables.authority != resource_version {
            tables.authority = resource_version;
            self.wake(&mut tables, &Change::Gateway);
        }
    }

    /// Stores the current state of a runtime's `Certificate`; `None` if it is gone.
    pub(crate) fn set_certificate(&self, name: &str, certificate: Option<Arc<Live>>) {
        let mut tables = self.tables();
        let after = certificate.clone();
        let before = put(&mut tables.certificates, name, certificate);
        if before != after {
            let says =
                before.iter().chain(&after).map(|live| live.kyma.as_deref()).map(|says| kyma_of_name(name, says));
            let kymas = says.flatten().collect();
            self.wake(&mut tables, &Change::Certificate(kymas));
        }
    }

    /// Stores the current state of the Secret of a runtime's certificate; `None` if it is gone.
    pub(crate) fn set_certificate_secret(&self, name: &str, secret: Option<Arc<LeafSecret>>) {
        let mut tables = self.tables();
        let after = secret.clone();
        let before = put(&mut tables.certificate_secrets, name, secret);
        if before != after {
            let known = tables.certificates.get(name).and_then(|live| live.kyma.clone());
            let says = before.iter().chain(&after).map(|secret| secret.kyma.as_deref().or(known.as_deref()));
            let kymas = says.filter_map(|says| kyma_of_name(name, says)).collect();
            self.wake(&mut tables, &Change::Certificate(kymas));
        }
    }

    /// Stores the image pull Secret of runtimes; `None` if it is gone.
    pub(crate) fn set_pull_secret(&self, secret: Option<Arc<PullSecret>>) {
        let mut tables = self.tables();
        if tables.pull_secret != secret {
            tables.pull_secret = secret;
            self.wake(&mut tables, &Change::PullSecret);
        }
    }

    /// Stores the current state of a Secret whose data Secrets of a module get; `None` if it is gone, or has no label.
    pub(crate) fn set_source_secret(&self, name: &str, secret: Option<Arc<SourceSecret>>) {
        let mut tables = self.tables();
        let after = secret.clone();
        let before = put(&mut tables.source_secrets, name, secret);
        if before != after {
            self.wake(&mut tables, &Change::SourceSecret);
        }
    }

    /// Stores a CRD that runtimes get. One that is gone stays as it was: runtimes keep it.
    pub(crate) fn set_runtime_crd(&self, crd: &Arc<Object>) {
        let mut tables = self.tables();
        let after = tables.runtime_crds.with(crd);
        if *tables.runtime_crds != after {
            tables.runtime_crds = Arc::new(after);
            self.wake(&mut tables, &Change::RuntimeCrds);
        }
    }

    /// Announces that a table will be listed.
    pub fn expect(&self, table: Table, namespace: &str) {
        self.0.missing.send_modify(|missing| {
            missing.entry((table, namespace.to_owned())).or_default().watches += 1;
        });
    }

    /// Records that a table has been listed once.
    pub fn listed(&self, table: Table, namespace: &str) {
        self.0.missing.send_if_modified(|missing| {
            let Entry::Occupied(mut watches) = missing.entry((table, namespace.to_owned())) else { return false };
            watches.get_mut().watches -= 1;
            if watches.get().watches == 0 {
                watches.remove();
            }
            true
        });
    }

    /// Records which right is missing to list a table, as a sentence.
    pub(crate) fn set_denied(&self, table: Table, namespace: &str, why: &str) {
        self.0.missing.send_if_modified(|missing| {
            let Some(awaited) = missing.get_mut(&(table, namespace.to_owned())) else { return false };
            let is_new = awaited.denied.as_deref() != Some(why);
            awaited.denied = Some(why.to_owned());
            is_new
        });
    }

    /// Whether tables are left that are not listed yet, and this process may list none of them.
    pub(crate) fn is_denied(&self) -> bool {
        let missing = self.0.missing.borrow();
        !missing.is_empty() && missing.values().all(|awaited| awaited.denied.is_some())
    }

    /// Why each table is missing that is not listed yet: one line each.
    pub(crate) fn not_listed(&self) -> Vec<String> {
        let missing = self.0.missing.borrow();
        let line = |((table, namespace), awaited): (&(Table, String), &Awaited)| {
            let why = awaited.denied.as_deref().unwrap_or("not listed yet");
            format!("{}: {why}", table.name_in(namespace))
        };
        missing.iter().map(line).collect()
    }

    /// The tables that are not listed yet, as text.
    pub fn missing(&self) -> Vec<String> {
        self.0.missing.borrow().keys().map(|(table, namespace)| table.name_in(namespace)).collect()
    }

    /// Waits until every announced table has been listed.
    pub async fn complete(&self) {
        let mut missing = self.0.missing.subscribe();
        // The sender lives as long as `self`, so waiting cannot fail.
        let _ = missing.wait_for(BTreeMap::is_empty).await;
    }

    // --- waking subjects ---

    /// Starts to wake subjects at changes, and wakes every existing one once.
    pub fn start(&self) {
        self.tables().started = true;
        self.definitions().begin(&self.working_sources());
        self.wake_all();
    }

    /// Wakes every existing subject once, if this process works.
    pub(crate) fn wake_all(&self) {
        let tables = self.tables();
        if !tables.started {
            return;
        }
        let queue = &self.0.queue;
        for key in tables.sources.keys().chain(tables.local_sources.keys()) {
            queue.push(Subject::Source(key.clone()), Trigger::Changed);
        }
        for key in tables.landscape.watchers.keys() {
            queue.push(Subject::Watcher(key.clone()), Trigger::Changed);
        }
        for (key, _) in tables.landscape.releases.iter().filter(|(_, release)| is_mandatory_release(release)) {
            queue.push(Subject::Release(key.clone()), Trigger::Changed);
        }
        if let Some(gateway) = &tables.gateway {
            queue.push(Subject::Gateway(gateway.clone()), Trigger::Changed);
        }
        for (kind, key) in tables.setup.ids() {
            queue.push(Subject::Setup(kind, key.clone()), Trigger::Changed);
        }
        // A Manifest or a certificate without its Kyma still needs cleaning up.
        let certified = tables.certified();
        let known = tables.kymas.keys().chain(tables.manifests_by_kyma.keys());
        let runtimes: BTreeSet<&Key> = known.chain(&certified).collect();
        let gap = START_GAP_MAX.min(START_SPREAD_MAX / u32::try_from(runtimes.len().max(1)).unwrap_or(u32::MAX));
        for (position, kyma) in (0_u32..).zip(runtimes) {
            let delay = gap.saturating_mul(position);
            queue.push_after(Subject::Runtime(kyma.clone()), Trigger::Changed, delay);
        }
    }

    /// Wakes every runtime, a few at a time: something that all of them may depend on has changed.
    pub(crate) fn wake_runtimes(&self) {
        let tables = self.tables();
        if tables.started {
            self.spread_runtimes(tables.kymas.keys(), Trigger::Changed);
        }
    }

    /// Stops waking subjects.
    pub fn stop(&self) {
        self.tables().started = false;
    }

    /// Waits until a catalog changes.
    pub async fn catalog_changed(&self) {
        self.0.catalog_changed.notified().await;
    }

    /// Waits until the gateway's Secret changes. Only one task may wait.
    pub(crate) async fn gateway_changed(&self) {
        self.0.gateway_changed.notified().await;
    }

    /// Wakes the runtimes that see the changed catalogs, and the sources that may refer to them. Call it a moment after
    /// [`Stores::catalog_changed`], so that a commit with a thousand ModuleTemplates wakes each runtime once.
    pub fn spread(&self) {
        let mut tables = self.tables();
        for source in std::mem::take(&mut tables.referring) {
            self.0.queue.push(Subject::Source(source), Trigger::Changed);
        }
        for (namespace, trigger) in std::mem::take(&mut tables.dirty_catalogs) {
            for kyma in tables.kymas.keys().filter(|kyma| kyma.namespace() == namespace) {
                self.0.queue.push(Subject::Runtime(kyma.clone()), trigger);
            }
        }
    }

    /// Wakes the runtimes whose turn has come.
    fn wake_rollouts(&self, tables: &mut Tables) {
        for kyma in tables.rollouts.take_woken() {
            self.0.queue.push(Subject::Runtime(kyma), Trigger::Changed);
        }
    }

    fn wake(&self, tables: &mut Tables, change: &Change) {
        if !tables.started {
            return;
        }
        self.wake_rollouts(tables);
        for wake in change::wakes(change, tables) {
            match wake {
                Wake::Subject(subject, trigger) => {
                    self.0.queue.push(subject, trigger);
                }
                Wake::Runtimes(trigger) => self.spread_runtimes(tables.kymas.keys(), trigger),
                Wake::Module(module, trigger) => self.spread_runtimes(tables.with_module(&module).iter(), trigger),
                Wake::Referring(source) => {
                    tables.referring.insert(source);
                    self.0.catalog_changed.notify_one();
                }
                Wake::Catalog(namespace, trigger) => {
                    let pending = tables.dirty_catalogs.entry(namespace).or_insert(trigger);
                    *pending = trigger.min(*pending);
                    self.0.catalog_changed.notify_one();
                }
            }
        }
    }

    fn spread_runtimes<'a>(&self, kymas: impl Iterator<Item = &'a Key>, trigger: Trigger) {
        let mut delay = Duration::ZERO;
        for (position, kyma) in kymas.enumerate() {
            if position != 0 && position % SPREAD_AT_ONCE == 0 {
                delay += SPREAD_GAP;
            }
            let subject = Subject::Runtime(kyma.clone());
            if delay.is_zero() {
                self.0.queue.push(subject, trigger);
            } else {
                self.0.queue.push_after(subject, trigger, delay);
            }
        }
    }

    fn tables(&self) -> MutexGuard<'_, Tables> {
        self.0.tables.lock()
    }
}

// === impl Table ===

impl Table {
    /// Its content, as text.
    pub fn name(self) -> &'static str {
        match self {
            Table::Sources => "GitSources",
            Table::Kymas => "Kymas",
            Table::Manifests => "Manifests",
            Table::Templates => "ModuleTemplates",
            Table::Releases => "ModuleReleaseMetas",
            Table::Watchers => "Watchers",
            Table::Access => "access Secrets",
            Table::Gateways => "Gateways",
            Table::GatewaySecret => "the gateway's Secret",
            Table::Authority => "the CA's Secret",
            Table::Certificates => "Certificates",
            Table::CertificateSecrets => "Secrets with certificates",
            Table::PullSecret => "the image pull Secret",
            Table::SourceSecrets => "the Secrets for modules",
            Table::RuntimeCrds => "the CustomResourceDefinitions of runtimes",
            Table::RegistrySecret => "the Secrets of OCI registries",
            Table::Setup(kind) => match kind {
                setup::Kind::CacheServer => "CacheServers",
                setup::Kind::RootShard => "RootShards",
                setup::Kind::FrontProxy => "FrontProxies",
                setup::Kind::Shard => "Shards",
                setup::Kind::VirtualWorkspace => "VirtualWorkspaces",
                setup::Kind::Kubeconfig => "Kubeconfigs",
            },
            Table::SetupObjects(kind) => match kind {
                ObjectKind::Issuer => "Issuers of kcp landscapes",
                ObjectKind::Certificate => "Certificates of kcp landscapes",
                ObjectKind::Secret => "Secrets",
                ObjectKind::ConfigMap => "ConfigMaps",
                ObjectKind::Deployment => "Deployments of kcp landscapes",
                ObjectKind::Service => "Services of kcp landscapes",
                ObjectKind::PodDisruptionBudget => "PodDisruptionBudgets of kcp landscapes",
            },
            Table::KcpOperator => "the Lease of kcp-operator",
        }
    }

    /// The kind of its objects.
    pub fn kind(self) -> &'static str {
        match self {
            Table::Sources => "GitSource",
            Table::Kymas => "Kyma",
            Table::Manifests => "Manifest",
            Table::Templates => "ModuleTemplate",
            Table::Releases => "ModuleReleaseMeta",
            Table::Watchers => "Watcher",
            Table::Gateways => "Gateway",
            Table::RuntimeCrds => "CustomResourceDefinition",
            Table::Certificates => "Certificate",
            Table::Access
            | Table::GatewaySecret
            | Table::Authority
            | Table::CertificateSecrets
            | Table::PullSecret
            | Table::SourceSecrets
            | Table::RegistrySecret => "Secret",
            Table::Setup(kind) => kind.as_str(),
            Table::SetupObjects(kind) => kind.as_str(),
            Table::KcpOperator => "Lease",
        }
    }

    /// The plural of its kind, if the daemon cannot work without it.
    fn required(self) -> Option<&'static str> {
        match self {
            Table::Sources => Some("gitsources"),
            Table::Kymas => Some("kymas"),
            Table::Manifests => Some("manifests"),
            Table::Templates => Some("moduletemplates"),
            Table::Releases => Some("modulereleasemetas"),
            Table::Watchers => Some("watchers"),
            Table::Access
            | Table::Gateways
            | Table::GatewaySecret
            | Table::Authority
            | Table::Certificates
            | Table::CertificateSecrets
            | Table::PullSecret
            | Table::SourceSecrets
            | Table::RuntimeCrds
            | Table::RegistrySecret
            | Table::Setup(_)
            | Table::SetupObjects(_)
            | Table::KcpOperator => None,
        }
    }

    /// The API version of its objects, for references to them.
    fn api_version(self) -> &'static str {
        match self {
            Table::Sources => "tidegate.dev/v1alpha1",
            Table::Kymas | Table::Manifests | Table::Templates | Table::Releases | Table::Watchers => {
                "operator.kyma-project.io/v1beta2"
            }
            Table::Gateways => "networking.istio.io/v1beta1",
            Table::RuntimeCrds => "apiextensions.k8s.io/v1",
            // The group depends on the issuer; the kind and the name are enough to find it.
            Table::Certificates => "",
            Table::Access
            | Table::GatewaySecret
            | Table::Authority
            | Table::CertificateSecrets
            | Table::PullSecret
            | Table::SourceSecrets
            | Table::RegistrySecret => "v1",
            Table::Setup(_) => "operator.kcp.io/v1alpha1",
            Table::KcpOperator => "coordination.k8s.io/v1",
            Table::SetupObjects(kind) => match kind {
                ObjectKind::Issuer | ObjectKind::Certificate => "cert-manager.io/v1",
                ObjectKind::Secret | ObjectKind::ConfigMap | ObjectKind::Service => "v1",
                ObjectKind::Deployment => "apps/v1",
                ObjectKind::PodDisruptionBudget => "policy/v1",
            },
        }
    }

    /// Its content and its namespace, as text. Objects of the whole cluster have none.
    fn name_in(self, namespace: &str) -> String {
        match namespace {
            "" => self.name().to_owned(),
            namespace => format!("{} in {namespace}", self.name()),
        }
    }
}

// === impl Tables ===

impl Tables {
    /// The subject that manages the gateway's certificate.
    pub fn gateway(&self) -> Option<&Key> {
        self.gateway.as_ref()
    }

    /// The Kymas of all certificates, whether they exist or not.
    fn certified(&self) -> BTreeSet<Key> {
        let certificates = self.certificates.iter().map(|(name, live)| (name, live.kyma.as_deref()));
        let secrets = self.certificate_secrets.iter().map(|(name, secret)| {
            let known = self.certificates.get(name).and_then(|live| live.kyma.as_deref());
            (name, secret.kyma.as_deref().or(known))
        });
        certificates.chain(secrets).filter_map(|(name, says)| kyma_of_name(name, says)).collect()
    }

    /// The Kymas with a Manifest of a module, in order.
    fn with_module(&self, module: &str) -> BTreeSet<Key> {
        let is_of =
            |manifest: &&Arc<Manifest>| landscape::label(&manifest.metadata, names::label::MODULE_NAME) == Some(module);
        self.manifests.values().filter(is_of).filter_map(|manifest| kyma_of(&manifest.metadata)).collect()
    }

    /// The sources that wait until no runtime has the version of a ModuleTemplate.
    pub(crate) fn awaiting(&self, template: &Key) -> impl Iterator<Item = &Key> {
        self.awaited.iter().filter(move |(_, templates)| templates.contains(template)).map(|(source, _)| source)
    }

    /// Whether a runtime has the version of a ModuleTemplate.
    pub(crate) fn is_installed(&self, template: &Key) -> bool {
        self.manifests.values().any(|manifest| template_of(manifest).as_ref() == Some(template))
    }

    /// The keys of all GitSources.
    pub fn sources(&self) -> impl Iterator<Item = &Key> {
        self.sources.keys().chain(self.local_sources.keys())
    }

    /// The keys of all Watchers.
    pub fn watchers(&self) -> impl Iterator<Item = &Key> {
        self.landscape.watchers.keys()
    }

    /// Whether an object of a table has been read.
    fn has(&self, table: Table, key: &Key) -> bool {
        match table {
            Table::Sources => self.sources.contains_key(key),
            Table::Kymas => self.kymas.contains_key(key),
            Table::Manifests => self.manifests.contains_key(key),
            Table::Templates => self.landscape.templates.contains_key(key),
            Table::Releases => self.landscape.releases.contains_key(key),
            Table::Watchers => self.landscape.watchers.contains_key(key),
            Table::Access => self.access.contains_key(key),
            Table::Gateways => self.gateways.contains_key(key),
            Table::GatewaySecret => self.gateway_secret.is_some(),
            Table::Authority => self.authority.is_some(),
            Table::Certificates => self.certificates.contains_key(key.name()),
            Table::CertificateSecrets => self.certificate_secrets.contains_key(key.name()),
            Table::PullSecret => self.pull_secret.is_some(),
            Table::SourceSecrets => self.source_secrets.contains_key(key.name()),
            // Those that cannot be read stay as they were; the content of the others is elsewhere.
            Table::RuntimeCrds | Table::RegistrySecret => false,
            Table::Setup(kind) => self.setup.metadata(kind, key).is_some(),
            Table::SetupObjects(kind) => self.setup_objects.contains_key(&(kind, key.clone())),
            Table::KcpOperator => self.kcp_operator.has(key),
        }
    }

    /// All resources of kcp landscapes.
    pub(crate) fn setup_ids(&self) -> impl Iterator<Item = (setup::Kind, &Key)> {
        self.setup.ids()
    }

    /// The resources of kcp landscapes in a namespace.
    pub(crate) fn setup_of(&self, namespace: &str) -> Vec<(setup::Kind, Key)> {
        let own = self.setup.ids().filter(|(_, key)| key.namespace() == namespace);
        own.map(|(kind, key)| (kind, key.clone())).collect()
    }

    /// The resources that ask for another cluster.
    fn placed_in(&self, place: &Key) -> BTreeSet<(setup::Kind, Key)> {
        let placed = self.setup.placed_in(place.namespace(), place.name());
        placed.map(|(kind, key)| (kind, key.clone())).collect()
    }

    fn set_setup_needs(&mut self, (kind, key): (setup::Kind, &Key), needs: BTreeSet<ObjectName>) {
        let (resource, namespace) = ((kind, key.clone()), key.namespace());
        let before = self.setup_needs.remove(&resource).unwrap_or_default();
        for (kind, name) in before.difference(&needs) {
            let id = (*kind, Key::new(namespace, name));
            if let Some(users) = self.setup_users.get_mut(&id) {
                users.remove(&resource);
                if users.is_empty() {
                    self.setup_users.remove(&id);
                }
            }
        }
        for (kind, name) in needs.difference(&before) {
            self.setup_users.entry((*kind, Key::new(namespace, name))).or_default().insert(resource.clone());
        }
        if !needs.is_empty() {
            self.setup_needs.insert(resource, needs);
        }
    }

    /// Whether passes over a ModuleReleaseMeta have something to do.
    pub(crate) fn is_mandatory_release(&self, key: &Key) -> bool {
        self.landscape.releases.get(key).is_some_and(|release| is_mandatory_release(release))
    }

    fn source(&self, key: &Key) -> Option<Source> {
        let local = self.local_sources.get(key).map(|object| (object, Origin::CommandLine));
        let (object, origin) = local.or_else(|| self.sources.get(key).map(|object| (object, Origin::ControlPlane)))?;
        Some(Source { object: Arc::clone(object), origin })
    }
}

/// Inserts a value into a map or removes it, and returns the previous value.
fn put<K, V>(map: &mut BTreeMap<K::Owned, V>, key: &K, value: Option<V>) -> Option<V>
where
    K: Ord + ToOwned + ?Sized,
    K::Owned: Ord,
{
    match value {
        Some(value) => map.insert(key.to_owned(), value),
        None => map.remove(key),
    }
}

/// Updates an index from owners to owned objects.
fn reindex<K: Ord, V: Ord + Clone>(
    index: &mut BTreeMap<K, BTreeSet<V>>,
    owned: &V,
    before: Option<K>,
    after: Option<K>,
) {
    if before == after {
        return;
    }
    if let Some(before) = before
        && let Some(all) = index.get_mut(&before)
    {
        all.remove(owned);
        if all.is_empty() {
            index.remove(&before);
        }
    }
    if let Some(after) = after {
        index.entry(after).or_default().insert(owned.clone());
    }
}

/// The ModuleReleaseMeta of a Manifest, if its module is mandatory.
pub(crate) fn mandatory_release_of(manifest: &ObjectMeta) -> Option<Key> {
    let module = landscape::label(manifest, names::label::MODULE_NAME).filter(|_| is_mandatory(manifest))?;
    Some(Key::new(manifest.namespace.as_deref().unwrap_or_default(), module))
}

/// The ModuleTemplate of the version that a Manifest has, if it is one of a runtime.
pub(crate) fn template_of(manifest: &Manifest) -> Option<Key> {
    let module = landscape::label(&manifest.metadata, names::label::MODULE_NAME)?;
    let version = manifest.spec.version.as_deref().unwrap_or_default();
    let namespace = kyma_of(&manifest.metadata)?.namespace().to_owned();
    Some(Key::new(&namespace, &format!("{module}-{version}")))
}

/// The Kyma of a Manifest or access Secret, which a label names, in the same namespace.
pub fn kyma_of(metadata: &ObjectMeta) -> Option<Key> {
    let name = landscape::label(metadata, names::label::KYMA_NAME)?;
    Some(Key::new(metadata.namespace.as_deref().unwrap_or_default(), name))
}

// === impl OtherCluster ===

impl OtherCluster {
    fn asked() -> OtherCluster {
        let unlisted = ObjectKind::PLACED.into_iter().collect();
        let (denied, objects) = (BTreeMap::new(), Arc::default());
        OtherCluster { identity: Identity::Asked, outage: None, unlisted, denied, objects }
    }

    /// Its state in metrics.
    fn state(&self) -> &'static str {
        match self.identity {
            Identity::Refused(_) => "refused",
            Identity::Known { .. } if self.outage.is_none() && self.unlisted.is_empty() => "reached",
            Identity::Known { .. } | Identity::Asked => "unreached",
        }
    }
}

// === impl Stored ===

macro_rules! stored {
    ($kind:ident, $table:ident, |$tables:ident| $map:expr) => {
        impl Stored for $kind {
            const TABLE: Table = Table::$table;

            fn put($tables: &mut Tables, key: &Key, object: Option<Arc<Self>>) -> Option<Arc<Self>> {
                put($map, key, object)
            }

            fn change(edit: Edit<Self>) -> Change {
                Change::$kind(edit)
            }
        }
    };
}

stored!(GitSource, Sources, |tables| &mut tables.sources);
stored!(ModuleTemplate, Templates, |tables| &mut Arc::make_mut(&mut tables.landscape).templates);
stored!(ModuleReleaseMeta, Releases, |tables| &mut Arc::make_mut(&mut tables.landscape).releases);
stored!(Watcher, Watchers, |tables| &mut Arc::make_mut(&mut tables.landscape).watchers);

impl Stored for Kyma {
    const TABLE: Table = Table::Kymas;

    fn put(tables: &mut Tables, key: &Key, object: Option<Arc<Self>>) -> Option<Arc<Self>> {
        // An empty id does not count, because no certificate has it.
        let id = |kyma: &Arc<Kyma>| {
            let id = landscape::label(&kyma.metadata, names::label::RUNTIME_ID)?;
            (!id.is_empty()).then(|| id.to_owned())
        };
        let after = object.as_ref().and_then(id);
        let mut left = tables.left_unmanaged.remove(key).unwrap_or_default();
        if let (Some(before), Some(after)) = (tables.kymas.get(key), &object) {
            left.changed(before.spec.modules.iter(), after.spec.modules.iter());
            if !left.is_empty() {
                tables.left_unmanaged.insert(key.clone(), left);
            }
        }
        tables.rollouts.set_kyma(key, object.as_deref().map(rollout::KymaFacts::of));
        let before = put(&mut tables.kymas, key, object);
        reindex(&mut tables.kymas_by_runtime, key, before.as_ref().and_then(id), after);
        before
    }

    fn change(edit: Edit<Self>) -> Change {
        Change::Kyma(edit)
    }
}

impl Stored for Manifest {
    const TABLE: Table = Table::Manifests;

    fn put(tables: &mut Tables, key: &Key, object: Option<Arc<Self>>) -> Option<Arc<Self>> {
        let kyma = object.as_ref().and_then(|manifest| kyma_of(&manifest.metadata));
        tables.rollouts.set_manifest(key, object.as_deref());
        let before = put(&mut tables.manifests, key, object);
        let kyma_before = before.as_ref().and_then(|manifest| kyma_of(&manifest.metadata));
        reindex(&mut tables.manifests_by_kyma, key, kyma_before, kyma);
        before
    }

    fn change(edit: Edit<Self>) -> Change {
        Change::Manifest(edit)
    }
}

/// Whether the metadata of a resource of a kcp landscape says the same, but for bookkeeping and status.
fn is_same_definition(before: &ObjectMeta, after: &ObjectMeta) -> bool {
    let annotations = |metadata: &ObjectMeta| {
        let mut annotations = metadata.annotations.clone().unwrap_or_default();
        // The status of a CacheServer.
        annotations.remove(names::annotation::STATUS);
        annotations
    };
    before.uid == after.uid
        && before.labels == after.labels
        && before.deletion_timestamp == after.deletion_timestamp
        && annotations(before) == annotations(after)
}

macro_rules! stored_of_setup {
    ($kind:ident, $map:ident) => {
        impl Stored for setup::$kind {
            const TABLE: Table = Table::Setup(setup::Kind::$kind);

            fn put(tables: &mut Tables, key: &Key, object: Option<Arc<Self>>) -> Option<Arc<Self>> {
                let kind = setup::Kind::$kind;
                let mark = (key.namespace().to_owned(), setup_mark(kind, key.name()));
                if object.is_some() {
                    tables.setup_by_mark.insert(mark, (kind, key.clone()));
                } else {
                    tables.setup_by_mark.remove(&mark);
                    tables.set_setup_needs((kind, key), BTreeSet::new());
                }
                let after = object.clone();
                let before = put(&mut Arc::make_mut(&mut tables.setup).$map, key, object);
                let is_same = match (&before, &after) {
                    (Some(before), Some(after)) => {
                        before.spec == after.spec && is_same_definition(&before.metadata, &after.metadata)
                    }
                    (None, None) => true,
                    (Some(_), None) | (None, Some(_)) => false,
                };
                tables.setup_version += u64::from(!is_same);
                before
            }

            fn change(edit: Edit<Self>) -> Change {
                let metadata = |object: Option<Arc<Self>>| object.map(|object| Arc::new(object.metadata.clone()));
                let Edit { key, before, after } = edit;
                Change::Setup(Edit { key, before: metadata(before), after: metadata(after) })
            }
        }
    };
}

stored_of_setup!(CacheServer, cache_servers);
stored_of_setup!(RootShard, root_shards);
stored_of_setup!(FrontProxy, front_proxies);
stored_of_setup!(Shard, shards);
stored_of_setup!(VirtualWorkspace, virtual_workspaces);
stored_of_setup!(Kubeconfig, kubeconfigs);

#[cfg(test)]
mod tests;
