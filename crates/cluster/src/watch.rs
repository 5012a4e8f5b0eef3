//! Following the objects of one kind: a list in pages, then a watch from where the list stood, for as long as it takes.
//!
//! What is kept of each object is a projection that the caller chooses, never managedFields; a change that does not
//! change the projection is no change. A kind that is not served is asked for again at a slow pace, and no error; that it is
//! not served is believed only if discovery says so as well, since what stands in front of an API server answers 404, too,
//! and everything of that kind would seem to be gone.
//! Connections that break are resumed where they were; a place that the API server no longer knows means a new list,
//! whose difference to what is known is told like any other change.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::Arc,
    time::Duration,
};

use futures::future::BoxFuture;
use http_body_util::BodyExt;
use kube::{Resource, client::Body};
use serde::{Deserialize, de::DeserializeOwned};
use tokio::{sync::watch, time::Instant};

use super::{Cluster, Error, Kind, Target, Verb, kind::push_encoded, transport::Ask};
use tidegate_core::name::Key;
use tidegate_process::{ambient, lock::RwLock, retry};

/// What is followed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// The kind.
    pub kind: Kind,
    /// One namespace, or all.
    pub namespace: Option<String>,
    /// A label selector.
    pub labels: Option<String>,
    /// A field selector.
    pub fields: Option<String>,
    /// Whether only metadata is asked for; the type that is read is then [`kube::core::PartialObjectMeta`].
    pub metadata_only: bool,
    /// How often a kind that is not served is asked for again.
    pub absent_pause: Duration,
}

/// What happened.
#[derive(Debug)]
pub enum Change<P> {
    /// An object appeared, or its projection is another.
    Set {
        /// Which object.
        key: Key,
        /// What it is now.
        new: Arc<P>,
        /// What it was.
        old: Option<Arc<P>>,
    },
    /// An object is gone, or the projection no longer wants it.
    Gone {
        /// Which object.
        key: Key,
        /// What it was.
        old: Arc<P>,
    },
    /// The first list is complete: from now on the store can be relied on. Also said of a kind that is not served.
    Synced,
}

/// What is known of the objects of one kind. Cheap to clone; every clone sees the same.
pub struct Store<P> {
    objects: Arc<RwLock<BTreeMap<Key, Arc<P>>>>,
    synced: watch::Receiver<bool>,
}

/// How long the API server keeps one watch open; longer than its own minimum, shorter than what load balancers cut.
const WATCH: Duration = Duration::from_secs(290);
/// A watch that ends sooner than this is asked for again only after a pause.
const WATCH_MIN: Duration = Duration::from_secs(1);
/// A watch without a word for this long is dead: the API server sends bookmarks every minute, and ends it by itself.
const SILENCE_MAX: Duration = Duration::from_secs(330);
/// Longest line of a watch: an object of etcd's limit, in JSON, with room.
const LINE_LEN_MAX: usize = 16 << 20;
/// How often a kind that is not served is asked for again, if nobody says otherwise.
const ABSENT: Duration = Duration::from_secs(30);

// === impl Options ===

impl Options {
    /// All objects of a kind.
    pub fn all(kind: Kind) -> Options {
        Options { kind, namespace: None, labels: None, fields: None, metadata_only: false, absent_pause: ABSENT }
    }

    /// In one namespace.
    #[must_use]
    pub fn namespace(self, namespace: &str) -> Options {
        Options { namespace: Some(namespace.to_owned()), ..self }
    }

    /// With labels.
    #[must_use]
    pub fn labels(self, selector: &str) -> Options {
        Options { labels: Some(selector.to_owned()), ..self }
    }

    /// With fields.
    #[must_use]
    pub fn fields(self, selector: &str) -> Options {
        Options { fields: Some(selector.to_owned()), ..self }
    }

    /// With another pace for a kind that is not served.
    #[must_use]
    pub fn absent_pause(self, absent_pause: Duration) -> Options {
        Options { absent_pause, ..self }
    }

    /// Metadata only.
    #[must_use]
    pub fn metadata_only(self) -> Options {
        Options { metadata_only: true, ..self }
    }
}

// === impl Store ===

impl<P> Store<P> {
    /// A store that holds these objects and follows nothing: for tests and offline use.
    pub fn of(objects: impl IntoIterator<Item = (Key, P)>) -> Store<P> {
        let (_, synced) = watch::channel(true);
        let objects = objects.into_iter().map(|(key, object)| (key, Arc::new(object))).collect();
        Store { objects: Arc::new(RwLock::new(objects)), synced }
    }

    /// One object.
    pub fn get(&self, key: &Key) -> Option<Arc<P>> {
        self.read().get(key).cloned()
    }

    /// All objects by key.
    pub fn all(&self) -> Vec<(Key, Arc<P>)> {
        self.read().iter().map(|(key, object)| (key.clone(), Arc::clone(object))).collect()
    }

    /// How many objects there are.
    pub fn len(&self) -> usize {
        self.read().len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.read().is_empty()
    }

    /// Whether the first list is complete.
    pub fn is_synced(&self) -> bool {
        *self.synced.borrow()
    }

    /// Returns as soon as the first list is complete; never if the watch ended before.
    pub async fn synced(&self) {
        if self.synced.clone().wait_for(|synced| *synced).await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    fn read(&self) -> std::sync::RwLockReadGuard<'_, BTreeMap<Key, Arc<P>>> {
        self.objects.read()
    }
}

impl<P> Clone for Store<P> {
    fn clone(&self) -> Store<P> {
        Store { objects: Arc::clone(&self.objects), synced: self.synced.clone() }
    }
}

impl<P> fmt::Debug for Store<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store").field("len", &self.len()).field("synced", &self.is_synced()).finish()
    }
}

/// A store, and the future that keeps it: it never ends and does nothing until it is polled.
///
/// `project` takes what is worth keeping of an object, or `None` if nothing is; managedFields are gone before it sees
/// it. `on_change` is called after the store has changed, in the order of changes, and must not block.
pub fn follow<K, P>(
    cluster: Arc<Cluster>,
    options: Options,
    project: impl Fn(K) -> Option<P> + Send + 'static,
    on_change: impl FnMut(Change<P>) + Send + 'static,
) -> (Store<P>, BoxFuture<'static, ()>)
where
    K: Resource + DeserializeOwned + Send + 'static,
    P: PartialEq + Send + Sync + 'static,
{
    let (sender, synced) = watch::channel(false);
    let store = Store { objects: Arc::default(), synced };
    let follower = Follower {
        cluster,
        options,
        project: Box::new(project),
        on_change: Box::new(on_change),
        store: store.clone(),
        synced: sender,
    };
    (store, Box::pin(follower.run()))
}

/// What keeps a store.
struct Follower<K, P> {
    cluster: Arc<Cluster>,
    options: Options,
    project: Box<dyn Fn(K) -> Option<P> + Send>,
    on_change: Box<dyn FnMut(Change<P>) + Send>,
    store: Store<P>,
    synced: watch::Sender<bool>,
}

/// One line of a watch.
#[derive(Deserialize)]
struct Line<'a> {
    #[serde(rename = "type")]
    kind: &'a str,
    #[serde(borrow)]
    object: &'a serde_json::value::RawValue,
}

/// An object of which only the resource version is read, or a `Status`.
#[derive(Deserialize)]
struct Mark {
    #[serde(default)]
    metadata: super::Wire,
    #[serde(default)]
    code: Option<u16>,
}

// === impl Follower ===

impl<K, P> Follower<K, P>
where
    K: Resource + DeserializeOwned + Send + 'static,
    P: PartialEq + Send + Sync + 'static,
{
    async fn run(mut self) {
        let mut failures: u32 = 0;
        let mut from: Option<String> = None;
        loop {
            let (began, watched) = (Instant::now(), from.is_some());
            let result = match from.take() {
                None => self.list().await,
                Some(version) => self.watch(version).await,
            };
            let error = match result {
                Ok(version) => {
                    failures = 0;
                    // A server that ends every watch at once must not be asked as fast as it answers.
                    if watched && began.elapsed() < WATCH_MIN {
                        tokio::time::sleep(retry::jittered(WATCH_MIN, ambient::fraction())).await;
                    }
                    from = Some(version);
                    continue;
                }
                Err(Interrupted { error, resume }) => {
                    from = resume;
                    error
                }
            };
            // A watch that ran for a while and broke is no failure in a row.
            failures = if began.elapsed() > WATCH / 10 { 1 } else { failures + 1 };
            let pause = match *error {
                Error::NotServed { .. } if self.is_absent().await => self.absent(),
                _ => self.pause(&error, failures),
            };
            tokio::time::sleep(pause).await;
        }
    }

    /// Whether a kind that is answered as not served is not served indeed. Whoever cannot tell keeps what is known.
    async fn is_absent(&mut self) -> bool {
        matches!(self.cluster.serves(&self.options.kind.gvk).await, Ok(false))
    }

    /// Takes note that the kind is not served; returns how long to wait.
    fn absent(&mut self) -> Duration {
        self.replace(BTreeMap::new());
        self.say_synced();
        retry::jittered(self.options.absent_pause, ambient::fraction())
    }

    /// How long to wait after an error, and what to say about it.
    fn pause(&self, error: &Error, failures: u32) -> Duration {
        let kind = &self.options.kind.gvk;
        if matches!(error, Error::Expired { .. }) && failures <= 1 {
            return Duration::ZERO;
        }
        let pause = retry::jittered(retry::delay(retry::Class::Transient, failures, ABSENT), ambient::fraction());
        if failures > 1 {
            tracing::warn!(cluster = %self.cluster.name(), %kind, reason = error.reason(), failures, "watch interrupted");
        }
        error.retry_after().map_or(pause, |asked| asked.max(pause))
    }

    /// Reads everything; returns the resource version from which to watch.
    async fn list(&mut self) -> Result<String, Interrupted> {
        let mut objects = BTreeMap::new();
        let mut from: Option<String> = None;
        let version = loop {
            let options = &self.options;
            let (namespace, labels, fields) =
                (options.namespace.as_deref(), options.labels.as_deref(), options.fields.as_deref());
            let page = self
                .cluster
                .page::<K>(&options.kind, namespace, labels, fields, from.as_deref(), options.metadata_only)
                .await?;
            for object in page.items {
                if let Some((key, projection)) = self.project(object) {
                    objects.insert(key, projection);
                }
            }
            match page.metadata.next {
                Some(next) if !next.is_empty() => from = Some(next),
                _ => break page.metadata.resource_version,
            }
        };
        self.replace(objects);
        self.say_synced();
        Ok(version)
    }

    /// Follows changes until the API server ends the watch; returns the resource version from which to go on.
    async fn watch(&mut self, mut version: String) -> Result<String, Interrupted> {
        let options = &self.options;
        let mut path = options.kind.path(options.namespace.as_deref(), None, None);
        path.push_str(&format!("?watch=true&allowWatchBookmarks=true&timeoutSeconds={}", WATCH.as_secs()));
        let parameters = [
            ("labelSelector", options.labels.as_deref()),
            ("fieldSelector", options.fields.as_deref()),
            ("resourceVersion", Some(&*version)),
        ];
        for (name, value) in parameters {
            if let Some(value) = value {
                path.push_str(&format!("&{name}="));
                push_encoded(&mut path, value);
            }
        }
        let mut ask = Ask::get(path, Verb::Watch, Target::List(options.kind.gvk.clone()));
        if options.metadata_only {
            ask = ask.metadata_only();
        }
        let body = self.cluster.transport.open(ask).await.map_err(|error| Interrupted::at(error, &version))?;
        let mut lines = Lines { body, buffer: Vec::new(), done: 0 };
        loop {
            let line = match tokio::time::timeout(SILENCE_MAX, lines.next()).await {
                Ok(Ok(Some(line))) => line,
                // The end of a watch, also a rude one, is nothing but the moment to ask again from where we are.
                Ok(Ok(None)) => return Ok(version),
                Ok(Err(())) | Err(_) => {
                    let cause = super::Unreachable::Broken;
                    return Err(Interrupted::at(
                        Error::Unreachable { cluster: self.cluster.transport.name(), cause },
                        &version,
                    ));
                }
            };
            version = self.take(&line, version)?;
        }
    }

    /// Takes one line of a watch; returns the resource version after it.
    fn take(&mut self, line: &[u8], version: String) -> Result<String, Interrupted> {
        let kind = self.options.kind.clone();
        let misunderstood = |this: &Follower<K, P>, error: serde_json::Error| {
            // A line that cannot be read is skipped by listing anew; staying here would hide it for ever.
            Interrupted::from(this.cluster.misunderstood_list(&kind, &super::position(&error)))
        };
        let line: Line<'_> = serde_json::from_slice(line).map_err(|error| misunderstood(self, error))?;
        let mark: Mark = serde_json::from_str(line.object.get()).map_err(|error| misunderstood(self, error))?;
        match line.kind {
            "ERROR" => {
                let target = Target::List(kind.gvk.clone());
                let error = match mark.code {
                    Some(410) => Error::Expired { target },
                    code => Error::Answer {
                        cluster: self.cluster.transport.name(),
                        target,
                        message: format!("the watch ended with status {}", code.unwrap_or_default()),
                    },
                };
                return Err(Interrupted::from(error));
            }
            "BOOKMARK" => {}
            "DELETED" => self.remove(&Key::new(&mark.metadata.namespace, &mark.metadata.name)),
            _ => {
                let object: K = serde_json::from_str(line.object.get()).map_err(|error| misunderstood(self, error))?;
                match self.project(object) {
                    Some((key, projection)) => self.set(key, projection),
                    None => self.remove(&Key::new(&mark.metadata.namespace, &mark.metadata.name)),
                }
            }
        }
        Ok(if mark.metadata.resource_version.is_empty() { version } else { mark.metadata.resource_version })
    }

    fn project(&self, mut object: K) -> Option<(Key, P)> {
        object.meta_mut().managed_fields = None;
        let meta = object.meta();
        let key = Key::new(meta.namespace.as_deref().unwrap_or_default(), meta.name.as_deref().unwrap_or_default());
        (self.project)(object).map(|projection| (key, projection))
    }

    fn set(&mut self, key: Key, projection: P) {
        let new = Arc::new(projection);
        let old = {
            let mut objects = self.store.objects.write();
            if objects.get(&key).is_some_and(|old| **old == *new) {
                return;
            }
            objects.insert(key.clone(), Arc::clone(&new))
        };
        (self.on_change)(Change::Set { key, new, old });
    }

    fn remove(&mut self, key: &Key) {
        let old = self.store.objects.write().remove(key);
        if let Some(old) = old {
            (self.on_change)(Change::Gone { key: key.clone(), old });
        }
    }

    /// Takes a whole list: what is not in it is gone.
    fn replace(&mut self, objects: BTreeMap<Key, P>) {
        let gone: BTreeSet<Key> = self.store.read().keys().filter(|key| !objects.contains_key(key)).cloned().collect();
        for key in &gone {
            self.remove(key);
        }
        for (key, projection) in objects {
            self.set(key, projection);
        }
    }

    fn say_synced(&mut self) {
        if !self.synced.send_replace(true) {
            (self.on_change)(Change::Synced);
        }
    }
}

/// Why following stopped, and from where it can go on; from a new list if there is no place.
struct Interrupted {
    error: Box<Error>,
    resume: Option<String>,
}

impl Interrupted {
    /// Resumable, unless the API server says that it no longer knows the place.
    fn at(error: Error, version: &str) -> Interrupted {
        let resume = match &error {
            Error::Expired { .. } | Error::NotServed { .. } | Error::Invalid { .. } => None,
            _ => Some(version.to_owned()),
        };
        Interrupted { error: Box::new(error), resume }
    }
}

impl From<Error> for Interrupted {
    fn from(error: Error) -> Interrupted {
        Interrupted { error: Box::new(error), resume: None }
    }
}

/// The lines of an answer that goes on.
struct Lines {
    body: Body,
    buffer: Vec<u8>,
    /// Bytes of the buffer that are known to hold no line break.
    done: usize,
}

// === impl Lines ===

impl Lines {
    /// The next line; `None` at the end of the answer, an error if it broke or if a line is longer than any object.
    async fn next(&mut self) -> Result<Option<Vec<u8>>, ()> {
        loop {
            if let Some(end) = self.buffer[self.done..].iter().position(|&byte| byte == b'\n') {
                let end = self.done + end;
                let rest = self.buffer.split_off(end + 1);
                let mut line = std::mem::replace(&mut self.buffer, rest);
                self.done = 0;
                line.truncate(end);
                return Ok(Some(line));
            }
            self.done = self.buffer.len();
            if self.done > LINE_LEN_MAX {
                return Err(());
            }
            match self.body.frame().await {
                None => return Ok(None),
                Some(Ok(frame)) => {
                    if let Some(data) = frame.data_ref() {
                        self.buffer.extend_from_slice(data);
                    }
                }
                Some(Err(_)) => return Err(()),
            }
        }
    }
}
