//! Which kinds an API server serves.
//!
//! Asked in this order: the table of built-in kinds, what definitions that we applied said, what discovery answered
//! before, and only then the API server, with one aggregated request, at most once in [`PAUSE`]. Equal answers of
//! many clusters are kept once.

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

/// Shortest time between two discoveries of one cluster: a pass asks for many kinds, the cluster is asked once.
const PAUSE: Duration = Duration::from_secs(5);

type Kinds = BTreeMap<Gvk, Kind>;

/// What is known of one cluster.
#[derive(Default)]
pub(super) struct Known(Mutex<State>);

#[derive(Default)]
struct State {
    /// From definitions that we applied.
    applied: Kinds,
    /// The definitions that we applied and whose kinds are served, by uid and generation: one that is made anew, or that
    /// gets another version, is waited for again.
    served: BTreeSet<String>,
    /// From discovery, with the time of it.
    discovered: Option<(Instant, Arc<Kinds>)>,
}

/// Answers of discovery by the digest of their bytes: clusters with the same definitions share one.
static INTERNED: LazyLock<Mutex<HashMap<Digest, Weak<Kinds>>>> = LazyLock::new(Mutex::default);

/// The older version is what Kubernetes before 1.30 answers.
const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,\
                          application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList";

// === impl Known ===

impl Known {
    /// What the API server does not have to be asked for: `Some(None)` if it was asked a moment ago and has no such kind.
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

    /// Learns what a definition brings, which may not be served yet.
    pub(super) fn learn(&self, kinds: &[Kind]) {
        self.lock().applied.extend(kinds.iter().map(|kind| (kind.gvk.clone(), kind.clone())));
    }

    /// Whether the kinds of a definition, in this state of it, are known to be served.
    pub(super) fn is_served(&self, definition: &str) -> bool {
        self.lock().served.contains(definition)
    }

    /// Remembers that the kinds of a definition, in this state of it, are served.
    pub(super) fn note_served(&self, definition: String) {
        self.lock().served.insert(definition);
    }

    /// Forgets a kind that turned out not to be served.
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
    /// A kind as this API server serves it; `None` if it does not.
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

    /// A kind in the given version or, if the API server no longer serves that, in another one; `None` if it serves none.
    ///
    /// For objects that were applied some time ago: they outlive the version under which they were applied.
    pub async fn kind_in_any_version(&self, gvk: &Gvk) -> Result<Option<Kind>, Error> {
        if let Some(kind) = self.kind(gvk).await? {
            return Ok(Some(kind));
        }
        let state = self.kinds.lock();
        let discovered = state.discovered.iter().flat_map(|(_, kinds)| kinds.values());
        let same = |kind: &&Kind| kind.gvk.group == gvk.group && kind.gvk.kind == gvk.kind;
        Ok(state.applied.values().chain(discovered).find(same).cloned())
    }

    /// Whether the API server says of itself that it serves a kind; asked anew unless it has denied it a moment ago.
    /// Built-in kinds always are. What definitions that we applied said stays known: their kinds may be served any moment.
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
                // Something else in JSON would read as an API server without a single kind.
                return Err(not_understood("it is no APIGroupDiscoveryList".to_owned()));
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

/// `APIGroupDiscoveryList`, as far as we read it.
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
