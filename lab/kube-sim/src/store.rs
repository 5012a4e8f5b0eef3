// SPDX-License-Identifier: Apache-2.0

//! The objects of a server as serialised bytes, one version counter, and a bounded history for watches.
//!
//! An object is serialised once, when it is written. Reads, lists, watches and metadata-only answers copy those bytes.
//! Everything but metadata and status is shared by equal objects of the process, because a fleet has the same
//! definitions and workloads a thousand times. The same holds for the history of an object whose status changes.
//!
//! The lock is held for a lookup or a swap of pointers, never for parsing or computing: a writer reads, computes, and
//! commits only if the object has not changed meanwhile.

mod shared;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, VecDeque},
    ops::Bound,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use bytes::{BufMut, Bytes, BytesMut};
use serde_json::{Map, Value};
use tokio::sync::watch;

/// A stored object. It is immutable; a write replaces it.
#[derive(Debug)]
pub(super) struct Object {
    /// Its JSON without the shared part: `kind`, `apiVersion`, `metadata` with `resourceVersion` first, and `status`.
    own: Bytes,
    /// The shared part, between metadata and status, with a comma before each field.
    shared: Arc<[u8]>,
    /// The position of `"metadata":`.
    head: u32,
    /// Start and end of the value of `metadata`.
    metadata: (u32, u32),
    pub(super) version: u64,
    pub(super) uid: Box<str>,
    labels: Labels,
    /// UIDs of its owners.
    pub(super) owners: Box<[Box<str>]>,
    /// Whether it has a `deletionTimestamp`.
    pub(super) deleting: bool,
}

/// Labels, in the order of the object.
type Labels = Box<[(Box<str>, Box<str>)]>;

/// An object without a version.
pub(super) struct Draft {
    before_version: Vec<u8>,
    after_version: Vec<u8>,
    shared: Vec<u8>,
    head: usize,
    /// The end of `metadata` in `after_version`.
    metadata_end: usize,
    uid: Box<str>,
    labels: Labels,
    owners: Box<[Box<str>]>,
    deleting: bool,
}

/// The location of an object: its collection and its key.
pub(super) type Spot = (Arc<str>, Arc<str>);

/// The change of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Happening {
    Added,
    Modified,
    Deleted,
}

/// One entry of the history.
#[derive(Clone, Debug)]
pub(super) struct Event {
    pub(super) happening: Happening,
    pub(super) key: Arc<str>,
    /// The object now; for a deletion, its last state with the version of its deletion.
    pub(super) object: Arc<Object>,
    pub(super) before: Option<Arc<Object>>,
}

/// The objects of one resource, in any version.
struct Collection {
    objects: BTreeMap<Arc<str>, Arc<Object>>,
    history: VecDeque<Event>,
    /// The version of the newest event that is no longer stored.
    compacted: u64,
    changed: watch::Sender<u64>,
}

/// All objects of a server.
pub(super) struct Store {
    state: Mutex<State>,
    history_max: usize,
}

struct State {
    version: u64,
    collections: HashMap<Arc<str>, Collection>,
    /// By the UID of an owner: its dependents, as collection and key.
    owned: HashMap<Box<str>, BTreeSet<Spot>>,
    /// Collections whose kind is not served any more, with the version at that time. Should it be served again, no
    /// watch can begin before that.
    forgotten: HashMap<Arc<str>, u64>,
}

/// A page of a list.
pub(super) struct Page {
    pub(super) items: Vec<(Arc<str>, Arc<Object>)>,
    /// The version of the whole store when the page was read.
    pub(super) version: u64,
    /// The number of following objects in the range.
    pub(super) remaining: usize,
}

/// Events after a version.
pub(super) struct News {
    pub(super) events: Vec<Event>,
    /// The version up to which the events are complete.
    pub(super) version: u64,
}

/// Another writer changed the object since it was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Raced;

/// The requested version is older than the history; contains the oldest available one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Compacted(pub(super) u64);

const RESOURCE_VERSION: &[u8] = b"\"metadata\":{\"resourceVersion\":\"";

/// The key of an object in its collection, which determines the order.
pub(super) fn key(namespace: &str, name: &str) -> Arc<str> {
    if namespace.is_empty() { name.into() } else { format!("{namespace}/{name}").into() }
}

/// Namespace and name of a key.
pub(super) fn split_key(key: &str) -> (&str, &str) {
    key.split_once('/').unwrap_or(("", key))
}

// === impl Draft ===

impl Draft {
    /// From an object with `kind`, `apiVersion` and `metadata`. Drops a `resourceVersion`.
    pub(super) fn from_object(object: &Value) -> Draft {
        let empty = &Map::new();
        let fields = object.as_object().unwrap_or(empty);
        let metadata = fields.get("metadata").and_then(Value::as_object).unwrap_or(empty);
        let mut before = Vec::with_capacity(128);
        before.push(b'{');
        for name in ["kind", "apiVersion"] {
            if let Some(value) = fields.get(name) {
                write_field(&mut before, name, value);
                before.push(b',');
            }
        }
        let head = before.len();
        before.extend_from_slice(RESOURCE_VERSION);
        let mut after = Vec::with_capacity(1024);
        after.push(b'"');
        for (name, value) in metadata.iter().filter(|(name, _)| *name != "resourceVersion") {
            after.push(b',');
            write_field(&mut after, name, value);
        }
        after.push(b'}');
        let metadata_end = after.len();
        let mut shared = Vec::new();
        for (name, value) in fields {
            let out = match name.as_str() {
                "kind" | "apiVersion" | "metadata" => continue,
                "status" => &mut after,
                _ => &mut shared,
            };
            out.push(b',');
            write_field(out, name, value);
        }
        after.push(b'}');
        let text = |value: &Value| Box::from(value.as_str().unwrap_or_default());
        let labels = metadata.get("labels").and_then(Value::as_object).into_iter().flatten();
        let owners = metadata.get("ownerReferences").and_then(Value::as_array).into_iter().flatten();
        Draft {
            before_version: before,
            after_version: after,
            shared,
            head,
            metadata_end,
            uid: metadata.get("uid").map(text).unwrap_or_default(),
            labels: labels.map(|(key, value)| (key.as_str().into(), text(value))).collect(),
            owners: owners.map(|owner| text(&owner["uid"])).collect(),
            deleting: metadata.get("deletionTimestamp").is_some_and(|at| !at.is_null()),
        }
    }

    /// The JSON without a version, for the answer to a dry run.
    pub(super) fn without_version(&self) -> Bytes {
        const EMPTY: &[u8] = b"\"resourceVersion\":\"";
        let mut bytes = self.before_version[..self.before_version.len() - EMPTY.len()].to_vec();
        // It begins with the end of the version's text and, if there is more metadata, a comma.
        let metadata = &self.after_version[1..self.metadata_end];
        bytes.extend_from_slice(metadata.strip_prefix(b",").unwrap_or(metadata));
        bytes.extend_from_slice(&self.shared);
        bytes.extend_from_slice(&self.after_version[self.metadata_end..]);
        bytes.into()
    }

    /// The object with a version.
    pub(super) fn at(self, version: u64) -> Object {
        let number = version.to_string();
        let start = self.before_version.len();
        let mut bytes = BytesMut::with_capacity(start + number.len() + self.after_version.len());
        bytes.put_slice(&self.before_version);
        bytes.put_slice(number.as_bytes());
        bytes.put_slice(&self.after_version);
        let metadata_start = self.head + b"\"metadata\":".len();
        Object {
            own: bytes.freeze(),
            shared: shared::share(self.shared),
            head: position(self.head),
            metadata: (position(metadata_start), position(start + number.len() + self.metadata_end)),
            version,
            uid: self.uid,
            labels: self.labels,
            owners: self.owners,
            deleting: self.deleting,
        }
    }
}

fn write_field(out: &mut Vec<u8>, name: &str, value: &Value) {
    serde_json::to_writer(&mut *out, name).expect("a text is written to memory");
    out.push(b':');
    serde_json::to_writer(&mut *out, value).expect("a value is written to memory");
}

fn position(position: usize) -> u32 {
    u32::try_from(position).expect("bodies are far below 4 GiB")
}

// === impl Object ===

impl Object {
    /// Its JSON.
    pub(super) fn bytes(&self) -> Bytes {
        let mut bytes = Vec::with_capacity(self.len());
        self.push_from(0, &mut bytes);
        bytes.into()
    }

    /// The length of its JSON.
    pub(super) fn len(&self) -> usize {
        self.own.len() + self.shared.len()
    }

    /// Appends its JSON without the opening brace, `kind` and `apiVersion`.
    pub(super) fn push_tail(&self, bytes: &mut Vec<u8>) {
        self.push_from(self.head as usize, bytes);
    }

    fn push_from(&self, start: usize, bytes: &mut Vec<u8>) {
        let metadata_end = self.metadata.1 as usize;
        bytes.extend_from_slice(&self.own[start..metadata_end]);
        bytes.extend_from_slice(&self.shared);
        bytes.extend_from_slice(&self.own[metadata_end..]);
    }

    /// The JSON of its metadata.
    pub(super) fn metadata(&self) -> &[u8] {
        &self.own[self.metadata.0 as usize..self.metadata.1 as usize]
    }

    /// The object as a value.
    pub(super) fn value(&self) -> Value {
        serde_json::from_slice(&self.bytes()).expect("what is stored is JSON")
    }

    /// Its metadata as a value.
    pub(super) fn metadata_value(&self) -> Value {
        serde_json::from_slice(self.metadata()).expect("what is stored is JSON")
    }

    /// The value of a label.
    pub(super) fn label(&self, key: &str) -> Option<&str> {
        self.labels.iter().find(|(name, _)| &**name == key).map(|(_, value)| &**value)
    }

    /// The same object with a later version, as it is sent after its deletion.
    pub(super) fn at_version(&self, version: u64) -> Object {
        let start = self.head as usize + RESOURCE_VERSION.len();
        let end = start + self.version.to_string().len();
        let number = version.to_string();
        let mut bytes = BytesMut::with_capacity(self.own.len() + number.len());
        bytes.put_slice(&self.own[..start]);
        bytes.put_slice(number.as_bytes());
        bytes.put_slice(&self.own[end..]);
        Object {
            own: bytes.freeze(),
            shared: Arc::clone(&self.shared),
            metadata: (self.metadata.0, position(self.metadata.1 as usize + number.len() + start - end)),
            version,
            head: self.head,
            uid: self.uid.clone(),
            labels: self.labels.clone(),
            owners: self.owners.clone(),
            deleting: self.deleting,
        }
    }
}

// === impl Store ===

impl Store {
    /// Creates an empty store. Each collection keeps `history_max` events.
    pub(super) fn new(history_max: usize) -> Store {
        // A real server has written before the first request. Zero means "any version" to clients.
        let state = State { version: 1, collections: HashMap::new(), owned: HashMap::new(), forgotten: HashMap::new() };
        Store { state: Mutex::new(state), history_max }
    }

    /// Creates a store with the same objects but without history.
    pub(super) fn restored(&self, history_max: usize) -> Store {
        let state = self.lock();
        let collection = |(name, of): (&Arc<str>, &Collection)| {
            let collection = Collection {
                objects: of.objects.clone(),
                history: VecDeque::new(),
                compacted: state.version,
                changed: watch::Sender::new(state.version),
            };
            (Arc::clone(name), collection)
        };
        let collections = state.collections.iter().map(collection).collect();
        let forgotten = state.forgotten.clone();
        let state = State { version: state.version, collections, owned: state.owned.clone(), forgotten };
        Store { state: Mutex::new(state), history_max }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The version of the last write.
    pub(super) fn version(&self) -> u64 {
        self.lock().version
    }

    pub(super) fn get(&self, collection: &str, key: &str) -> Option<Arc<Object>> {
        self.lock().collections.get(collection)?.objects.get(key).cloned()
    }

    /// Objects whose keys begin with `prefix`, from the key `begin` on, at most `limit` of those that `wanted` selects.
    pub(super) fn list(
        &self,
        collection: &str,
        prefix: &str,
        begin: Option<&str>,
        limit: usize,
        wanted: impl Fn(&str, &Object) -> bool,
    ) -> Page {
        let state = self.lock();
        let mut page = Page { items: Vec::new(), version: state.version, remaining: 0 };
        let Some(collection) = state.collections.get(collection) else { return page };
        let begin = Bound::Included(begin.unwrap_or(prefix));
        let range = collection.objects.range::<str, _>((begin, Bound::Unbounded));
        for (key, object) in range.take_while(|(key, _)| key.starts_with(prefix)) {
            if !wanted(key, object) {
                continue;
            }
            if page.items.len() < limit {
                page.items.push((Arc::clone(key), Arc::clone(object)));
            } else {
                page.remaining += 1;
            }
        }
        page
    }

    /// All objects of a collection.
    pub(super) fn all(&self, collection: &str) -> Vec<(Arc<str>, Arc<Object>)> {
        self.list(collection, "", None, usize::MAX, |_, _| true).items
    }

    /// The objects in a namespace, as collection and key.
    pub(super) fn in_namespace(&self, namespace: &str) -> Vec<Spot> {
        let prefix = format!("{namespace}/");
        let state = self.lock();
        let mut found = Vec::new();
        for (name, collection) in &state.collections {
            let range = collection.objects.range::<str, _>((Bound::Included(prefix.as_str()), Bound::Unbounded));
            let keys = range.map(|(key, _)| key).take_while(|key| key.starts_with(&prefix));
            found.extend(keys.map(|key| (Arc::clone(name), Arc::clone(key))));
        }
        // The order of hash maps is random; the result must not be.
        found.sort_unstable();
        found
    }

    /// The dependents of this UID: collection and key.
    pub(super) fn owned_by(&self, uid: &str) -> Vec<Spot> {
        self.lock().owned.get(uid).into_iter().flatten().cloned().collect()
    }

    /// Replaces the object that was read at `expected`, or creates it.
    pub(super) fn put(
        &self,
        collection: &Arc<str>,
        key: &Arc<str>,
        expected: Option<u64>,
        draft: Draft,
    ) -> Result<Arc<Object>, Raced> {
        let mut guard = self.lock();
        let state = &mut *guard;
        let place = state.collection(collection);
        let before = place.objects.get(key).cloned();
        if before.as_ref().map(|object| object.version) != expected {
            return Err(Raced);
        }
        let version = state.version + 1;
        let object = Arc::new(draft.at(version));
        state.version = version;
        state.index(collection, key, before.as_deref(), Some(&object));
        let happening = if before.is_some() { Happening::Modified } else { Happening::Added };
        let place = state.collection(collection);
        place.objects.insert(Arc::clone(key), Arc::clone(&object));
        let event = Event { happening, key: Arc::clone(key), object: Arc::clone(&object), before };
        place.note(event, version, self.history_max);
        Ok(object)
    }

    /// Removes the object that was read at `expected`.
    pub(super) fn remove(&self, collection: &Arc<str>, key: &Arc<str>, expected: u64) -> Result<(), Raced> {
        let mut guard = self.lock();
        let state = &mut *guard;
        let place = state.collection(collection);
        match place.objects.get(key) {
            Some(object) if object.version == expected => {}
            _ => return Err(Raced),
        }
        let Some(before) = place.objects.remove(key) else { return Err(Raced) };
        let version = state.version + 1;
        state.version = version;
        state.index(collection, key, Some(&before), None);
        let object = Arc::new(before.at_version(version));
        let event = Event { happening: Happening::Deleted, key: Arc::clone(key), object, before: Some(before) };
        state.collection(collection).note(event, version, self.history_max);
        Ok(())
    }

    /// Notifies about changes of a collection, with the version of its last write.
    pub(super) fn follow(&self, collection: &Arc<str>) -> watch::Receiver<u64> {
        self.lock().collection(collection).changed.subscribe()
    }

    /// The events of a collection after `version`.
    pub(super) fn news(&self, collection: &str, version: u64) -> Result<News, Compacted> {
        let state = self.lock();
        let Some(place) = state.collections.get(collection) else {
            if let Some(end) = state.forgotten.get(collection).filter(|end| version < **end) {
                return Err(Compacted(*end));
            }
            return Ok(News { events: Vec::new(), version: state.version });
        };
        if version < place.compacted {
            return Err(Compacted(place.compacted));
        }
        let first = place.history.partition_point(|event| event.object.version <= version);
        Ok(News { events: place.history.range(first..).cloned().collect(), version: state.version })
    }

    /// Drops the history of all collections: watches and lists from an older version get 410.
    pub(super) fn compact(&self) {
        let mut state = self.lock();
        let version = state.version;
        for place in state.collections.values_mut() {
            place.history.clear();
            place.compacted = version;
        }
    }

    /// Drops a collection whose kind is no longer served, and notifies its watchers.
    pub(super) fn forget(&self, collection: &str) {
        let mut state = self.lock();
        let version = state.version;
        if let Some((name, _)) = state.collections.remove_entry(collection) {
            state.forgotten.insert(name, version);
        }
    }

    /// The number of objects.
    pub(super) fn len(&self) -> usize {
        self.lock().collections.values().map(|place| place.objects.len()).sum()
    }
}

// === impl State ===

impl State {
    fn collection(&mut self, name: &Arc<str>) -> &mut Collection {
        let version = self.version;
        let compacted = self.forgotten.get(name).copied().unwrap_or_default();
        self.collections.entry(Arc::clone(name)).or_insert_with(|| Collection {
            objects: BTreeMap::new(),
            history: VecDeque::new(),
            compacted,
            changed: watch::Sender::new(version),
        })
    }

    fn index(&mut self, collection: &Arc<str>, key: &Arc<str>, before: Option<&Object>, after: Option<&Object>) {
        let owners = |object: Option<&Object>| object.map(|object| object.owners.to_vec()).unwrap_or_default();
        let (before, after) = (owners(before), owners(after));
        if before == after {
            return;
        }
        let place = (Arc::clone(collection), Arc::clone(key));
        for uid in before {
            if let Some(owned) = self.owned.get_mut(&uid) {
                owned.remove(&place);
                if owned.is_empty() {
                    self.owned.remove(&uid);
                }
            }
        }
        for uid in after {
            self.owned.entry(uid).or_default().insert(place.clone());
        }
    }
}

// === impl Collection ===

impl Collection {
    fn note(&mut self, event: Event, version: u64, history_max: usize) {
        self.history.push_back(event);
        while self.history.len() > history_max {
            if let Some(event) = self.history.pop_front() {
                self.compacted = event.object.version;
            }
        }
        self.changed.send_replace(version);
    }
}

#[cfg(test)]
mod tests;
