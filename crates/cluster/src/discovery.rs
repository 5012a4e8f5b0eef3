//! Which kinds an API server serves.
//!
//! The sources, in this order: the table of built-in kinds, CustomResourceDefinitions that this client applied, earlier
//! discovery, and then the API server, with one aggregated request at most once every [`PAUSE`]. Equal answers of many
//! clusters are stored once.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::{Arc, LazyLock, Weak},
    time::Duration,
};

use http::header::ACCEPT;
use serde::Deserialize;
use tokio::time::Instant;

use super::{Cluster, Error, Kind, Target, Verb, position, transport::Ask};
use tidegate_core::object::{Digest, Gvk};
use tidegate_process::lock::Mutex;

/// Minimum interval between two discoveries of a cluster. A pass asks for many kinds and causes one discovery.
const PAUSE: Duration = Duration::from_secs(5);

type Kinds = BTreeMap<Gvk, Kind>;

/// The known kinds of one cluster.
#[derive(Default)]
pub(super) struct Known(Mutex<State>);

#[derive(Default)]
struct State {
    /// From CustomResourceDefinitions that this client applied.
    applied: Kinds,
    /// The CustomResourceDefinitions that this client applied and whose kinds are served, by UID and generation. If one
    /// is recreated or changes its version, the client waits for its kinds again.
    served: BTreeSet<String>,
    /// From discovery, with its time.
    discovered: Option<(Instant, Arc<Kinds>)>,
}

/// Discovery answers by their digest: clusters with the same definitions share one.
static INTERNED: LazyLock<Mutex<HashMap<Digest, Weak<Kinds>>>> = LazyLock::new(Mutex::default);

/// Kubernetes before 1.30 answers with the older version.
const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,\
                          application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList";

// === impl Known ===

impl Known {
    /// Looks a kind up without a request. `Some(None)` if a recent discovery did not contain it.
    fn find(&self, gvk: &Gvk, now: Instant) -> Option<Option<Kind>> {
        let state = self.lock();
        if let Some(kind) = state.applied.get(gvk) {
            return Some(Some(kind.clone()));
        }
        let (at, kinds) = state.discovered.as_ref()?;
        match kinds.get(gvk) {
            Some(kind) => Some(Some(kind.clone())),
            None if now.duration_since(*at) < PAUSE => Some(None),
            None => None,
        }
    }

    /// Adds the kinds of a CustomResourceDefinition, which may not be served yet.
    pub(super) fn learn(&self, kinds: &[Kind]) {
        self.lock().applied.extend(kinds.iter().map(|kind| (kind.gvk.clone(), kind.clone())));
    }

    /// Whether the kinds of a CustomResourceDefinition, in this state, are known to be served.
    pub(super) fn is_served(&self, definition: &str) -> bool {
        self.lock().served.contains(definition)
    }

    /// Records that the kinds of a CustomResourceDefinition, in this state, are served.
    pub(super) fn note_served(&self, definition: String) {
        self.lock().served.insert(definition);
    }

    /// Forgets a kind that is not served after all.
    pub(super) fn forget(&self, gvk: &Gvk) {
        let mut state = self.lock();
        state.applied.remove(gvk);
        if state.discovered.as_ref().is_some_and(|(_, kinds)| kinds.contains_key(gvk)) {
            state.discovered = None;
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.0.lock()
    }
}

// === impl Cluster ===

impl Cluster {
    /// A kind as this API server serves it; `None` if it is not served.
    ///
    /// # Errors
    ///
    /// Fails if discovery fails.
    pub async fn kind(&self, gvk: &Gvk) -> Result<Option<Kind>, Error> {
        if let Some(kind) = Kind::built_in(gvk) {
            return Ok(Some(kind));
        }
        if let Some(found) = self.kinds.find(gvk, Instant::now()) {
            return Ok(found);
        }
        let kinds = self.discover().await?;
        let found = kinds.get(gvk).cloned();
        self.kinds.lock().discovered = Some((Instant::now(), kinds));
        Ok(found)
    }

    /// A kind in the given version or, if that is no longer served, in another; `None` if no version is served.
    ///
    /// Use it for objects that were applied some time ago: they outlive the version under which they were applied.
    ///
    /// # Errors
    ///
    /// Fails if discovery fails.
    pub async fn kind_in_any_version(&self, gvk: &Gvk) -> Result<Option<Kind>, Error> {
        if let Some(kind) = self.kind(gvk).await? {
            return Ok(Some(kind));
        }
        let state = self.kinds.lock();
        let discovered = state.discovered.iter().flat_map(|(_, kinds)| kinds.values());
        let same = |kind: &&Kind| kind.gvk.group == gvk.group && kind.gvk.kind == gvk.kind;
        Ok(state.applied.values().chain(discovered).find(same).cloned())
    }

    /// The kinds that the API server serves now and that are wanted, sorted by plural, so that the versions of one
    /// follow each other. Always asks the API server.
    pub(super) async fn served_now(&self, is_wanted: impl Fn(&Kind) -> bool) -> Result<Vec<Kind>, Error> {
        let kinds = self.discover().await?;
        let mut found: Vec<Kind> = kinds.values().filter(|kind| is_wanted(kind)).cloned().collect();
        found.sort_by(|one, other| (&one.gvk.group, &one.plural).cmp(&(&other.gvk.group, &other.plural)));
        self.kinds.lock().discovered = Some((Instant::now(), kinds));
        Ok(found)
    }

    /// Whether the API server itself reports a kind. Asks again unless a recent discovery lacked it. Built-in kinds are
    /// always served. Kinds of definitions that this client applied stay known, because the server may serve them at
    /// any moment.
    pub(super) async fn serves(&self, gvk: &Gvk) -> Result<bool, Error> {
        if Kind::built_in(gvk).is_some() {
            return Ok(true);
        }
        let now = Instant::now();
        let denied = |(at, kinds): &(Instant, Arc<Kinds>)| now.duration_since(*at) < PAUSE && !kinds.contains_key(gvk);
        if self.kinds.lock().discovered.as_ref().is_some_and(denied) {
            return Ok(false);
        }
        let kinds = self.discover().await?;
        let serves = kinds.contains_key(gvk);
        self.kinds.lock().discovered = Some((now, kinds));
        Ok(serves)
    }

    async fn discover(&self) -> Result<Arc<Kinds>, Error> {
        let target = Target::Path("discovery");
        let ask = Ask::get("/apis".to_owned(), Verb::Get, target.clone()).header(ACCEPT, AGGREGATED);
        let answer = self.transport.ask(ask).await?;
        let digest = Digest::of_bytes(&answer.body);
        let interned = || INTERNED.lock();
        if let Some(kinds) = interned().get(&digest).and_then(Weak::upgrade) {
            return Ok(kinds);
        }
        let not_understood = |message| Error::Answer { cluster: self.transport.name(), target, message };
        let wire: Groups = match serde_json::from_slice(&answer.body) {
            Ok(Groups { kind, .. }) if kind != "APIGroupDiscoveryList" => {
                // Other JSON would look like an API server without kinds.
                return Err(not_understood("it is not an APIGroupDiscoveryList".to_owned()));
            }
            Ok(wire) => wire,
            Err(error) => return Err(not_understood(position(&error))),
        };
        let kinds = Arc::new(wire.kinds());
        let mut interned = interned();
        interned.retain(|_, kinds| kinds.strong_count() > 0);
        interned.insert(digest, Arc::downgrade(&kinds));
        Ok(kinds)
    }
}

/// The part of `APIGroupDiscoveryList` that the client reads.
#[derive(Deserialize)]
struct Groups {
    #[serde(default)]
    kind: String,
    #[serde(default)]
    items: Vec<Group>,
}

#[derive(Deserialize)]
struct Group {
    #[serde(default)]
    metadata: GroupMetadata,
    #[serde(default)]
    versions: Vec<Version>,
}

#[derive(Default, Deserialize)]
struct GroupMetadata {
    #[serde(default)]
    name: String,
}

#[derive(Deserialize)]
struct Version {
    #[serde(default)]
    version: String,
    #[serde(default)]
    resources: Vec<Resource>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Resource {
    #[serde(default)]
    resource: String,
    #[serde(default)]
    response_kind: Option<ResponseKind>,
    #[serde(default)]
    scope: String,
}

#[derive(Default, Deserialize)]
struct ResponseKind {
    #[serde(default)]
    kind: String,
}

// === impl Groups ===

impl Groups {
    fn kinds(self) -> Kinds {
        let mut kinds = Kinds::new();
        for group in self.items {
            for version in group.versions {
                for resource in version.resources {
                    let kind = resource.response_kind.unwrap_or_default().kind;
                    let gvk = Gvk::new(&group.metadata.name, &version.version, &kind);
                    kinds.insert(gvk.clone(), Kind::new(gvk, &resource.resource, resource.scope == "Namespaced"));
                }
            }
        }
        kinds
    }
}
