//! Follows the objects of one kind: a paged list, then a watch from that list's resource version, without end.
//!
//! The caller chooses a projection of each object, never with managedFields. A change that does not change the
//! projection is not reported. Objects are read one by one: an object that does not match the type is reported as
//! unreadable and keeps its last projection, and all others are followed as before. The follower keeps the reported
//! projections to compare them; it shares them with the caller, so keep the `Arc`s and not copies. A kind that is not
//! served is not an error: the follower asks again at a slow pace. It believes a 404 only if discovery confirms it,
//! because a proxy in front of an API server may answer 404, too, and all objects would seem to be gone. Broken
//! connections resume where they were. An expired resource version leads to a new list, and its differences are
//! reported like any other change.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use futures::future::BoxFuture;
use http_body_util::BodyExt;
use kube::{Resource, client::Body};
use serde::{Deserialize, de::DeserializeOwned};
use tokio::time::Instant;

use super::{
    Cluster, Error, Kind, Target, Verb,
    kind::push_encoded,
    transport::Ask,
    unreadable::{self, Item, Unreadable},
};
use tidegate_core::name::Key;
use tidegate_process::{ambient, retry};

/// The objects to follow.
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
    /// Whether to request only metadata; the type is then [`kube::core::PartialObjectMeta`].
    pub metadata_only: bool,
    /// How often to ask again for a kind that is not served.
    pub absent_pause: Duration,
}

/// A change.
#[derive(Debug)]
pub enum Change<P> {
    /// An object appeared, or its projection changed.
    Set {
        /// The object.
        key: Key,
        /// The new projection.
        new: Arc<P>,
        /// The old projection.
        old: Option<Arc<P>>,
    },
    /// An object is gone, or its projection is now `None`.
    Gone {
        /// The object.
        key: Key,
        /// The last projection.
        old: Arc<P>,
    },
    /// An object exists and cannot be read. Its last projection, if there is one, still holds.
    Unreadable {
        /// The object.
        key: Key,
        /// What is known of it.
        found: Arc<Unreadable>,
    },
    /// An unreadable object can be read again, or is gone. A [`Change::Set`] or [`Change::Gone`] may follow.
    Cleared {
        /// The object.
        key: Key,
    },
    /// The control plane does not serve the kind, so there are no objects. Reported before they are reported as gone.
    NotServed,
    /// The kind is served again, and all its objects are reported.
    Served,
    /// This process may not list or watch the objects. What is known of them stays. It tries again, and reports this
    /// each time.
    Forbidden {
        /// The missing right, as a sentence with the account.
        why: String,
    },
    /// After [`Change::Forbidden`], if a list was complete before: this process may watch the objects again. Changes
    /// since then follow.
    Permitted,
    /// The first list is complete: from now on the caller knows all objects. Also reported for a kind that is not
    /// served.
    Synced,
}

/// How long the API server keeps a watch open: longer than its own minimum, shorter than load balancers allow.
const WATCH: Duration = Duration::from_secs(290);
/// The same for a cluster that is only observed: an observer of few objects may read each of them once in ten hours,
/// and each new watch is a read. Bookmarks keep the connection in use.
const WATCH_OBSERVED: Duration = Duration::from_secs(24 * 3600);
/// After a watch that ends sooner than this, the next one is delayed.
const WATCH_MIN: Duration = Duration::from_secs(1);
/// A watch without data for this long is dead: the API server sends bookmarks every minute and ends it by itself.
const SILENCE_MAX: Duration = Duration::from_secs(330);
/// Failures of one watch after which an outage of the cluster, if there is one, is known.
const OUTAGE_AFTER: u32 = 3;
/// Limit of a line: an object of etcd's maximum size, in JSON, with a margin.
const LINE_LEN_MAX: usize = 16 << 20;
/// Default interval of asking again for a kind that is not served.
const ABSENT: Duration = Duration::from_secs(30);
/// The longest such interval where a cluster is only observed. It doubles from the default each time: what is missing
/// for minutes is likely to be missing for weeks.
const ABSENT_OBSERVED_MAX: Duration = Duration::from_secs(3600);

// === impl Options ===

impl Options {
    /// All objects of a kind.
    pub fn all(kind: Kind) -> Options {
        Options { kind, namespace: None, labels: None, fields: None, metadata_only: false, absent_pause: ABSENT }
    }

    /// Only in one namespace.
    #[must_use]
    pub fn namespace(self, namespace: &str) -> Options {
        Options { namespace: Some(namespace.to_owned()), ..self }
    }

    /// Only with labels.
    #[must_use]
    pub fn labels(self, selector: &str) -> Options {
        Options { labels: Some(selector.to_owned()), ..self }
    }

    /// Only with fields.
    #[must_use]
    pub fn fields(self, selector: &str) -> Options {
        Options { fields: Some(selector.to_owned()), ..self }
    }

    /// Sets the interval of asking again for a kind that is not served.
    #[must_use]
    pub fn absent_pause(self, absent_pause: Duration) -> Options {
        Options { absent_pause, ..self }
    }

    /// Only metadata.
    #[must_use]
    pub fn metadata_only(self) -> Options {
        Options { metadata_only: true, ..self }
    }
}

/// Follows the objects. The future never ends and does nothing until it is polled.
///
/// `project` selects what to keep of an object, or returns `None` to keep nothing; it never sees managedFields.
/// `on_change` is called for each change, in order, and must not block.
pub fn follow<K, P>(
    cluster: Arc<Cluster>,
    options: Options,
    project: impl Fn(K) -> Option<P> + Send + 'static,
    on_change: impl FnMut(Change<P>) + Send + 'static,
) -> BoxFuture<'static, ()>
where
    K: Resource + DeserializeOwned + Send + 'static,
    P: PartialEq + Send + Sync + 'static,
{
    let follower = Follower {
        cluster,
        options,
        project: Box::new(project),
        on_change: Box::new(on_change),
        reported: BTreeMap::new(),
        unreadable: BTreeMap::new(),
        is_synced: false,
        is_forbidden: false,
        is_absent: false,
        absences: 0,
    };
    Box::pin(follower.run())
}

struct Follower<K, P> {
    cluster: Arc<Cluster>,
    options: Options,
    project: Box<dyn Fn(K) -> Option<P> + Send>,
    on_change: Box<dyn FnMut(Change<P>) + Send>,
    /// What the caller knows.
    reported: BTreeMap<Key, Arc<P>>,
    /// The objects that exist and cannot be read.
    unreadable: BTreeMap<Key, Arc<Unreadable>>,
    is_synced: bool,
    /// Whether the last request was forbidden.
    is_forbidden: bool,
    /// Whether the kind was reported as not served.
    is_absent: bool,
    /// How often in a row it was not served.
    absences: u32,
}

/// One line of a watch.
#[derive(Deserialize)]
struct Line<'a> {
    #[serde(rename = "type")]
    kind: &'a str,
    #[serde(borrow)]
    object: &'a serde_json::value::RawValue,
}

/// An object of which only its name and version are read, or a `Status`.
#[derive(Deserialize)]
struct Mark {
    #[serde(default)]
    metadata: MarkMetadata,
    #[serde(default)]
    code: Option<u16>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct MarkMetadata {
    name: String,
    namespace: String,
    resource_version: String,
}

/// The objects of a complete list.
struct Listed<P> {
    objects: BTreeMap<Key, P>,
    unreadable: BTreeMap<Key, Unreadable>,
}

/// How long to wait before asking again for a kind that was not served so often before. An observer asks less and less.
fn absent_pause(first: Duration, absences: u32, is_observed: bool) -> Duration {
    match is_observed {
        true => first.saturating_mul(2_u32.saturating_pow(absences)).min(ABSENT_OBSERVED_MAX.max(first)),
        false => first,
    }
}

// === impl Follower ===

impl<K, P> Follower<K, P>
where
    K: Resource + DeserializeOwned + Send + 'static,
    P: PartialEq + Send + Sync + 'static,
{
    async fn run(mut self) {
        let (mut failures, mut was_expired): (u32, bool) = (0, false);
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
                    // Do not ask at full speed if the server ends every watch at once.
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
            if let Error::Forbidden { .. } = *error {
                self.is_forbidden = true;
                (self.on_change)(Change::Forbidden { why: error.to_string() });
            }
            // A watch that ran for a while before it broke is not a consecutive failure.
            failures = if began.elapsed() > WATCH / 10 { 1 } else { failures + 1 };
            let is_expired = matches!(*error, Error::Expired { .. });
            let pause = match *error {
                Error::NotServed { .. } if self.is_absent().await => self.absent(),
                // A list helps at once, however long the outage was that made the version too old.
                _ if is_expired && (failures <= 1 || !was_expired) => Duration::ZERO,
                _ => self.pause(&error, failures),
            };
            was_expired = is_expired;
            // An outage that ends wakes all watches, however long their pauses have become.
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = self.cluster.recovered() => {}
            }
        }
    }

    /// Whether a kind that was answered with 404 is really not served. If discovery fails, all objects stay.
    async fn is_absent(&mut self) -> bool {
        matches!(self.cluster.serves(&self.options.kind.gvk).await, Ok(false))
    }

    /// Records that the kind is not served; returns how long to wait.
    fn absent(&mut self) -> Duration {
        if !std::mem::replace(&mut self.is_absent, true) {
            (self.on_change)(Change::NotServed);
        }
        self.replace(Listed { objects: BTreeMap::new(), unreadable: BTreeMap::new() });
        self.say_synced();
        let pause = absent_pause(self.options.absent_pause, self.absences, self.cluster.is_read_only());
        self.absences = self.absences.saturating_add(1);
        retry::jittered(pause, ambient::fraction())
    }

    /// Logs an error and returns how long to wait.
    fn pause(&self, error: &Error, failures: u32) -> Duration {
        let kind = &self.options.kind.gvk;
        let pause = retry::jittered(retry::delay(retry::Class::Transient, failures, ABSENT), ambient::fraction());
        let is_outage = error.may_be_outage() && (self.cluster.outage().is_some() || failures <= OUTAGE_AFTER);
        if is_outage {
            // One line says so for all watches: see `Cluster::outage`.
            tracing::debug!(cluster = %self.cluster.name(), %kind, reason = error.reason(), "watch interrupted");
        } else if failures > 1 && failures.is_power_of_two() {
            tracing::warn!(
                cluster = %self.cluster.name(),
                %kind,
                reason = error.reason(),
                failures,
                "watch interrupted"
            );
        }
        error.retry_after().map_or(pause, |asked| asked.max(pause))
    }

    /// Lists everything; returns the resource version from which to watch.
    async fn list(&mut self) -> Result<String, Interrupted> {
        let mut listed = Listed { objects: BTreeMap::new(), unreadable: BTreeMap::new() };
        let mut from: Option<String> = None;
        let version = loop {
            let options = &self.options;
            let (namespace, labels, fields) =
                (options.namespace.as_deref(), options.labels.as_deref(), options.fields.as_deref());
            let page = self
                .cluster
                .page::<Item<K>>(&options.kind, namespace, labels, fields, from.as_deref(), options.metadata_only)
                .await?;
            for item in page.items {
                match item {
                    Item::Readable(object) => listed.objects.extend(self.project(object)),
                    Item::Unreadable(found) => _ = listed.unreadable.insert(found.key(), *found),
                }
            }
            match page.metadata.next {
                Some(next) if !next.is_empty() => from = Some(next),
                _ => break page.metadata.resource_version,
            }
        };
        self.replace(listed);
        self.absences = 0;
        if std::mem::replace(&mut self.is_absent, false) {
            (self.on_change)(Change::Served);
        }
        self.say_permitted();
        self.say_synced();
        Ok(version)
    }

    /// Watches until the API server ends the watch; returns the resource version from which to continue.
    async fn watch(&mut self, mut version: String) -> Result<String, Interrupted> {
        let options = &self.options;
        let watch = if self.cluster.is_read_only() { WATCH_OBSERVED } else { WATCH };
        let mut path = options.kind.path(options.namespace.as_deref(), None, None);
        path.push_str(&format!("?watch=true&allowWatchBookmarks=true&timeoutSeconds={}", watch.as_secs()));
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
        self.say_permitted();
        let mut lines = Lines { body, buffer: Vec::new(), done: 0 };
        loop {
            let line = match tokio::time::timeout(SILENCE_MAX, lines.next()).await {
                Ok(Ok(Some(line))) => line,
                // However a watch ends, the next one continues from here.
                Ok(Ok(None)) => return Ok(version),
                Ok(Err(())) | Err(_) => {
                    let error = self.cluster.transport.unreachable(super::Unreachable::Broken, true);
                    return Err(Interrupted::at(error, &version));
                }
            };
            version = self.take(&line, version)?;
        }
    }

    /// Handles one line of a watch; returns the resource version after it.
    fn take(&mut self, line: &[u8], version: String) -> Result<String, Interrupted> {
        let kind = self.options.kind.clone();
        let misunderstood = |this: &Follower<K, P>, error: serde_json::Error| {
            // A new list skips the unreadable line; resuming here would never get past it.
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
            _ => match unreadable::read::<K>(line.object.get()) {
                Ok(object) => match self.project(object) {
                    Some((key, projection)) => self.set(key, projection),
                    None => self.remove(&Key::new(&mark.metadata.namespace, &mark.metadata.name)),
                },
                Err(Some(found)) => self.keep(*found),
                // An API server names every object. A new list skips the line.
                Err(None) => {
                    return Err(self
                        .cluster
                        .misunderstood_list(&kind, "the watch shows an object without a name")
                        .into());
                }
            },
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
        self.clear(&key);
        let new = Arc::new(projection);
        if self.reported.get(&key).is_some_and(|old| **old == *new) {
            return;
        }
        let old = self.reported.insert(key.clone(), Arc::clone(&new));
        (self.on_change)(Change::Set { key, new, old });
    }

    /// Keeps an object that cannot be read as it was.
    fn keep(&mut self, found: Unreadable) {
        let key = found.key();
        if self.unreadable.get(&key).is_some_and(|known| **known == found) {
            return;
        }
        let found = Arc::new(found);
        self.unreadable.insert(key.clone(), Arc::clone(&found));
        (self.on_change)(Change::Unreadable { key, found });
    }

    fn clear(&mut self, key: &Key) {
        if self.unreadable.remove(key).is_some() {
            (self.on_change)(Change::Cleared { key: key.clone() });
        }
    }

    fn remove(&mut self, key: &Key) {
        self.clear(key);
        if let Some(old) = self.reported.remove(key) {
            (self.on_change)(Change::Gone { key: key.clone(), old });
        }
    }

    /// Replaces all objects by a list: an object that is not in it is gone.
    fn replace(&mut self, listed: Listed<P>) {
        let Listed { objects, unreadable } = listed;
        let known = self.reported.keys().chain(self.unreadable.keys());
        let is_listed = |key: &Key| objects.contains_key(key) || unreadable.contains_key(key);
        let gone: BTreeSet<Key> = known.filter(|key| !is_listed(key)).cloned().collect();
        for key in &gone {
            self.remove(key);
        }
        for (key, projection) in objects {
            self.set(key, projection);
        }
        for found in unreadable.into_values() {
            self.keep(found);
        }
    }

    /// Before the first list is complete, [`Change::Synced`] says it.
    fn say_permitted(&mut self) {
        if std::mem::replace(&mut self.is_forbidden, false) && self.is_synced {
            (self.on_change)(Change::Permitted);
        }
    }

    fn say_synced(&mut self) {
        if !std::mem::replace(&mut self.is_synced, true) {
            (self.on_change)(Change::Synced);
        }
    }
}

/// Why the watch stopped, and the resource version to resume from; `None` for a new list.
struct Interrupted {
    error: Box<Error>,
    resume: Option<String>,
}

impl Interrupted {
    /// Resumable, unless the API server says that the resource version has expired.
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

/// The lines of a streamed answer.
struct Lines {
    body: Body,
    buffer: Vec<u8>,
    /// Bytes of the buffer that contain no line break.
    done: usize,
}

// === impl Lines ===

impl Lines {
    /// The next line; `None` at the end of the answer. Fails if the answer breaks off or a line is too long.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_observer_asks_less_and_less_often_for_a_kind_that_is_not_served() {
        let pauses = |is_observed| -> Vec<u64> {
            [0, 1, 2, 6, 7, 40].map(|absences| absent_pause(ABSENT, absences, is_observed).as_secs()).into()
        };
        assert_eq!(pauses(true), [30, 60, 120, 1920, 3600, 3600]);
        assert_eq!(pauses(false), [30; 6]);
        let long = ABSENT_OBSERVED_MAX * 2;
        assert_eq!(absent_pause(long, 3, true), long, "never more often than a caller asks for");
    }
}
