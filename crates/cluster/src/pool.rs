//! Clients of runtimes: created on demand from the access Secret, and dropped when they are idle.
//!
//! A client belongs to one resource version of its Secret, so a rotated Secret takes effect at the next use, and the
//! first request with it is sent even if the runtime could not be reached before. The circuit breaker and the counters
//! of a runtime outlive its clients. The pool does not know which runtimes exist: the caller forgets deleted ones.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use base64::{Engine, engine::general_purpose::STANDARD};
use serde::Deserialize;
use tokio::{sync::OnceCell, time::Instant};

use super::{
    Cluster, ClusterName, Error, Kind, Leadership, Limits, Requests,
    access::{self, Refused},
    crowd::Crowd,
};
use tidegate_core::{api::names::ACCESS_SECRET_KEY, name::Key, object::Gvk};
use tidegate_process::lock::Mutex;

/// An idle client is dropped after this, with its connections.
const IDLE_MAX: Duration = Duration::from_secs(600);
/// Minimum life of a client whose credentials were rejected. So a wrong Secret costs one client a minute, and a missing
/// permission does not open a connection for every request.
const WORN_MIN: Duration = Duration::from_secs(60);

/// Clients of runtimes.
#[derive(Debug)]
pub struct Pool {
    kcp: Arc<Cluster>,
    limits: Limits,
    leadership: Option<Leadership>,
    crowd: Crowd,
    entries: Mutex<BTreeMap<Key, Entry>>,
}

#[derive(Debug)]
struct Entry {
    /// Namespace, name and resource version of the Secret.
    secret: (Key, String),
    cluster: Arc<OnceCell<Arc<Cluster>>>,
    /// The previous client, whose breaker and counters are kept.
    former: Option<Arc<Cluster>>,
    made: Instant,
    used: Instant,
}

#[derive(Deserialize)]
struct Secret {
    #[serde(default)]
    data: BTreeMap<String, String>,
}

// === impl Pool ===

impl Pool {
    /// An empty pool that reads access Secrets from `kcp`.
    pub fn new(kcp: Arc<Cluster>, limits: Limits, leadership: Option<Leadership>) -> Pool {
        Pool { kcp, limits, leadership, crowd: Crowd::default(), entries: Mutex::default() }
    }

    /// The client of a Kyma's runtime, for this resource version of its access Secret.
    ///
    /// Reads the Secret if there is no client for it yet. Sends no request to the runtime.
    ///
    /// # Errors
    ///
    /// Fails if the Secret cannot be read or its kubeconfig is not accepted.
    pub async fn cluster(&self, runtime: &Key, secret: &Key, resource_version: &str) -> Result<Arc<Cluster>, Error> {
        let (cell, former) = self.entry(runtime, secret, resource_version);
        let cluster = cell.get_or_try_init(async || self.connect(runtime, secret, former.as_deref()).await).await?;
        if former.is_some() {
            // The new client has taken over its breaker and counters, so drop the old one with its connections.
            if let Some(entry) = self.entries().get_mut(runtime).filter(|entry| Arc::ptr_eq(&entry.cluster, &cell)) {
                entry.former = None;
            }
        }
        Ok(Arc::clone(cluster))
    }

    /// The last used client of a runtime, if it still exists. Creates none.
    pub fn existing(&self, runtime: &Key) -> Option<Arc<Cluster>> {
        self.entries().get(runtime).and_then(|entry| entry.held().cloned())
    }

    /// Whether requests to a runtime are refused now, because it could not be reached.
    pub fn is_open(&self, runtime: &Key) -> bool {
        self.existing(runtime).is_some_and(|cluster| cluster.transport.is_open())
    }

    /// Lets the next request to a runtime pass, even if the runtime is left alone because it could not be reached.
    pub fn probe_now(&self, runtime: &Key) {
        if let Some(cluster) = self.existing(runtime) {
            cluster.transport.probe_now();
        }
    }

    /// Drops everything about a deleted runtime.
    pub fn forget(&self, runtime: &Key) {
        // It is dropped, with its connections, after the lock.
        let _entry = self.entries().remove(runtime);
    }

    /// Drops idle clients; call it periodically. Keeps the breakers of unreachable clusters.
    pub fn sweep(&self) {
        let now = Instant::now();
        let is_idle = |entry: &Entry| {
            let open = entry.held().is_some_and(|cluster| cluster.transport.is_open());
            now.duration_since(entry.used) >= IDLE_MAX && !open
        };
        let mut entries = self.entries();
        let keys: Vec<Key> = entries.iter().filter(|(_, entry)| is_idle(entry)).map(|(key, _)| key.clone()).collect();
        let idle: Vec<Entry> = keys.iter().filter_map(|key| entries.remove(key)).collect();
        // Their connections end after the lock.
        drop(entries);
        drop(idle);
    }

    /// The number of clients.
    pub fn len(&self) -> usize {
        self.entries().len()
    }

    /// Whether there is no client.
    pub fn is_empty(&self) -> bool {
        self.entries().is_empty()
    }

    /// Requests of the current clients, by runtime.
    pub fn requests(&self) -> BTreeMap<Key, Requests> {
        let requests = |(key, entry): (&Key, &Entry)| Some((key.clone(), entry.held()?.requests()));
        self.entries().iter().filter_map(requests).collect()
    }

    /// The entry of a runtime's client: a new one if the Secret changed or the credentials were rejected.
    fn entry(
        &self,
        runtime: &Key,
        secret: &Key,
        resource_version: &str,
    ) -> (Arc<OnceCell<Arc<Cluster>>>, Option<Arc<Cluster>>) {
        let now = Instant::now();
        let mut entries = self.entries();
        let new = |former: Option<Arc<Cluster>>| Entry {
            secret: (secret.clone(), resource_version.to_owned()),
            cluster: Arc::default(),
            former,
            made: now,
            used: now,
        };
        let entry = entries.entry(runtime.clone()).or_insert_with(|| new(None));
        let rotated = entry.secret.0 != *secret || entry.secret.1 != resource_version;
        let worn = entry.cluster.get().is_some_and(|cluster| cluster.is_worn());
        if rotated || (worn && now.duration_since(entry.made) >= WORN_MIN) {
            let former = entry.held().cloned();
            if rotated && let Some(former) = &former {
                // The failures were those of another connection, but the counters of the runtime stay.
                former.transport.probe_now();
            }
            *entry = new(former);
        }
        entry.used = now;
        (Arc::clone(&entry.cluster), entry.former.clone())
    }

    async fn connect(&self, runtime: &Key, secret: &Key, former: Option<&Cluster>) -> Result<Arc<Cluster>, Error> {
        let refused = |refused| Error::Access { secret: secret.clone(), key: ACCESS_SECRET_KEY, refused };
        let kind = Kind::new(Gvk::new("", "v1", "Secret"), "secrets", true);
        let found: Option<Secret> = self.kcp.get_as(&kind, secret).await?;
        let data = found.and_then(|mut secret| secret.data.remove(ACCESS_SECRET_KEY));
        let data = data.ok_or_else(|| refused(Refused::Missing))?;
        let kubeconfig = STANDARD.decode(data).map_err(|_| refused(Refused::NotAKubeconfig))?;
        let config = access::parse(&kubeconfig).and_then(|access| access.config()).map_err(refused)?;
        let name = ClusterName::Runtime(runtime.clone());
        let cluster =
            Cluster::on(&self.kcp.network, name, &config, self.limits)?.replacing(former).among(self.crowd.clone());
        let cluster = if self.kcp.is_read_only() { cluster.read_only() } else { cluster };
        Ok(Arc::new(match &self.leadership {
            Some(leadership) => cluster.guarded(leadership.clone()),
            None => cluster,
        }))
    }

    fn entries(&self) -> std::sync::MutexGuard<'_, BTreeMap<Key, Entry>> {
        self.entries.lock()
    }
}

// === impl Entry ===

impl Entry {
    /// The client, or the previous one while it is not created yet.
    fn held(&self) -> Option<&Arc<Cluster>> {
        self.cluster.get().or(self.former.as_ref())
    }
}

// === impl Cluster ===

impl Cluster {
    /// The same client with the breaker and counters of the previous one.
    fn replacing(self, former: Option<&Cluster>) -> Cluster {
        Cluster { transport: self.transport.replacing(former.map(|former| &former.transport)), ..self }
    }

    /// The same client as a member of a crowd.
    fn among(self, crowd: Crowd) -> Cluster {
        Cluster { transport: self.transport.among(crowd), ..self }
    }
}
