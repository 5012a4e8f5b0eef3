//! The data of a pass over a resource of a kcp landscape: known at its start, remembered between passes, and observed
//! by its requests.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::{Arc, MutexGuard},
    time::Duration,
};

use k8s_openapi::jiff::Timestamp;
use serde_json::Value;
use tidegate_core::{
    api::{setup::Kind, shared::ObjectMeta},
    landscape::setup::Resources,
    name::Key,
    object::{Digest, Object},
    plan::{
        certificate::Authority,
        setup::{self as plan, Content, Gate, Known as KnownOfCluster, Phase, Problem, Replicas},
    },
};
use tidegate_process::lock::Mutex;
use tokio::time::Instant;

use super::{
    builtin::Request,
    inside::{Compared, Connection},
    object::{LiveObject, ObjectKind},
    place::Place,
};
use crate::gateway::pki;

/// After this time without a write to an object, a status says that the work goes on.
const REST: Duration = Duration::from_secs(1);
/// After this time, a status says that the work goes on, whatever happens.
const UNSAID_MAX: Duration = Duration::from_secs(5);

/// After this time without a use, a connection is closed: twice the time between two uses of a resource that stays.
const UNUSED: Duration = Duration::from_secs(1200);

/// How often the connections are looked for that were not used for so long.
const SWEEP: Duration = Duration::from_secs(60);

/// Of how many pairs of certificates it is known whether one has signed the other: a few for each Secret with a
/// certificate of a landscape with some thousand. Then all are forgotten, also those of certificates that are gone.
const PAIRS_MAX: usize = 16_384;

/// The end of the names of Secrets with keys of service accounts.
const KEY_SUFFIX: &str = "-service-account";

/// An object of a namespace.
pub(crate) type ObjectName = (ObjectKind, String);

/// Objects of a namespace, without their content.
pub(crate) type LiveObjects = BTreeMap<ObjectName, Arc<LiveObject>>;

/// The digests of the values of a Secret or ConfigMap, by key.
pub(super) type Keys = BTreeMap<String, Digest>;

/// The resource that has a CA or key.
type Owner = (Kind, Key);

/// What this process remembers of the objects of kcp landscapes.
#[derive(Debug, Default)]
pub struct SetupMemory(Mutex<Memory>);

#[derive(Debug, Default)]
struct Memory {
    verified: HashMap<(ObjectKind, Key), Verified>,
    contents: HashMap<(ObjectKind, Key), Arc<KnownContent>>,
    judged: Option<Judged>,
    /// Statuses that are not written yet.
    unsaid: HashMap<(Kind, Key), Unsaid>,
    /// Statuses that were written, with the version of the resource before: its watch may not show them yet.
    reported: HashMap<(Kind, Key), (String, Value)>,
    /// What was found inside kcp for Kubeconfigs.
    compared: HashMap<Key, Compared>,
    /// Connections to workspaces, by URL.
    connections: Connections<Connection>,
    /// Since when something inside kcp cannot be cleaned up; `None` once nothing is left to do.
    trying: HashMap<(Kind, Key), Option<Timestamp>>,
    /// The certificates of CAs, by Secret, of which it is known that no former one is in use.
    settled: HashMap<Key, (Owner, Digest)>,
    /// The resources that wait until that is known, by Secret.
    awaiting: HashMap<Key, BTreeSet<(Kind, Key)>>,
    /// The last certificates of keys of service accounts whose Secrets do not exist, by Secret.
    gone: HashMap<Key, Authority>,
    /// Whether the second of two certificates has signed the first one.
    signed: HashMap<(Digest, Digest), bool>,
    /// How far the replacement of a CA was, by Secret, when that was last told.
    told: HashMap<Key, (Owner, Phase)>,
    /// The other clusters that resources have in their status, as it was last written or found. A resource that this
    /// process has not finished a pass over is missing.
    places: HashMap<(Kind, Key), BTreeSet<Place>>,
}

/// Connections that are open because resources use them.
#[derive(Debug)]
struct Connections<C> {
    /// By URL.
    open: HashMap<String, Used<C>>,
    /// When all were last asked whether they are used.
    swept: Option<Instant>,
}

#[derive(Debug)]
struct Used<C> {
    connection: C,
    by: BTreeSet<(Kind, Key)>,
    last: Instant,
}

/// A status that is not written yet, because it only says that the work goes on.
#[derive(Clone, Copy, Debug)]
struct Unsaid {
    /// When the first such status was not written.
    since: Timestamp,
    /// When a pass last wrote an object.
    moved: Timestamp,
}

/// The rules that resources violate. Most passes after one another are over the same definitions.
#[derive(Debug)]
struct Judged {
    /// See [`crate::stores::Stores::setup_with_version`].
    version: u64,
    chained: KnownOfCluster,
    problems: Arc<[Problem]>,
}

/// What this process knows of an object that it has applied or compared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Verified {
    /// The digest of what was applied.
    pub(super) digest: Digest,
    /// The version of the object then, see [`LiveObject::version`].
    pub(super) version: Arc<str>,
    /// Whether the watch has shown the object since.
    pub(super) is_shown: bool,
    /// When it was applied or compared.
    pub(super) since: Timestamp,
}

/// What this process has read of a Secret or ConfigMap: no values but certificates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct KnownContent {
    /// The resource version that was read.
    pub(super) resource_version: Arc<str>,
    /// The digests of its values.
    pub(super) keys: Keys,
    /// Whether its first certificate is self-signed; `None` if it has no readable one.
    pub(super) is_self_signed: Option<bool>,
    /// Its certificates, its own first, or those in a kubeconfig.
    pub(super) certificates: Vec<Authority>,
    /// The certificates in `ca.crt`.
    pub(super) above: Vec<Authority>,
    /// The annotation of a trust Secret.
    pub(super) note: Option<String>,
    /// The certificate that it had before, for another key.
    pub(super) former: Option<Authority>,
    /// Since when this process knows its key.
    pub(super) since: Timestamp,
    /// The keys with a private key.
    pub(super) private: BTreeSet<String>,
    /// Those of them whose private key is that of a CA.
    pub(super) authorities: BTreeSet<String>,
    /// Those that may have the private key of a CA: nothing that can be read says whose it is.
    pub(super) unclear: BTreeSet<String>,
}

/// The values of a Secret or ConfigMap, by key. They do not outlive the pass that read them.
pub(super) type Values = BTreeMap<String, Vec<u8>>;

/// A rendered object.
#[derive(Clone, Debug)]
pub(super) struct Desired {
    /// Its kind and name.
    pub(super) name: ObjectName,
    /// The object with the annotation of its digest. Of a Secret that is made of others, the value is missing.
    pub(super) object: Object,
    /// Changes with the object and with the values that it is made of.
    pub(super) digest: Digest,
    /// What it waits for.
    pub(super) gates: Vec<Gate>,
    /// Where the values of a Secret come from.
    pub(super) origin: Origin,
    /// The number of pods, if it is not part of the object.
    pub(super) replicas: Option<Replicas>,
}

/// Where the values of an object come from.
#[derive(Clone, Debug)]
pub(super) enum Origin {
    /// They are part of the object, or another program writes them.
    Rendered,
    /// Other Secrets contain them.
    Composed(Content),
    /// The built-in CA issues them.
    Issued(Box<Request>),
    /// The object of the same kind and name in the control plane has them.
    Copied {
        /// The keys of the copy.
        keys: Vec<String>,
        /// Further keys that stay as they are if the copy has them.
        kept: BTreeSet<String>,
    },
}

/// Who issues the certificates of kcp landscapes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Issuance {
    /// cert-manager.
    CertManager,
    /// Tidegate, see [`super::builtin`].
    Builtin,
}

/// A cluster other than the control plane, as a place for objects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Site {
    /// The UID of the cluster.
    pub(super) uid: Arc<str>,
    /// The label of all objects there that this control plane made.
    pub(super) control_plane: Arc<str>,
}

/// The data at the start of a pass: from watches, the templates and earlier passes.
#[derive(Clone, Debug)]
pub(super) struct Known {
    /// Namespace of the resource and of all its objects.
    pub(super) namespace: String,
    /// The label of the resource's objects.
    pub(super) mark: String,
    /// Where the objects are, if not in the control plane.
    pub(super) place: Option<Site>,
    /// The objects that bear the label, and those that the plan names.
    pub(super) live: LiveObjects,
    /// What the objects wait for, if not for `live`: objects of the control plane, and Deployments wherever they are.
    pub(super) around: Option<LiveObjects>,
    /// What was applied or compared before.
    pub(super) verified: BTreeMap<ObjectName, Verified>,
    /// The objects that shall exist, in the order of apply.
    pub(super) desired: Vec<Desired>,
    /// All objects that shall exist, also those that another program makes.
    pub(super) wanted: BTreeSet<ObjectName>,
    /// The digest of all objects of the resource, if it has objects that may stay as kcp-operator left them; `None`
    /// also if a template fails.
    pub(super) definition: Option<Digest>,
    /// Whether every object of the resource could be rendered.
    pub(super) is_complete: bool,
    /// Whether an annotation of the resource allows to take over objects without the label.
    pub(super) may_adopt: bool,
    /// Certificates that are not issued for now, because not all pods trust their CA: one sentence each.
    pub(super) held: BTreeMap<ObjectName, String>,
    /// Who issues certificates.
    pub(super) issuance: Issuance,
    /// When the pass began.
    pub(super) now: Timestamp,
}

/// The results of a pass so far.
#[derive(Clone, Debug, Default)]
pub(super) struct Observed {
    /// The digests of the Secrets and ConfigMaps that exist.
    pub(super) keys: BTreeMap<ObjectName, Keys>,
    /// The values that were read in this pass.
    pub(super) values: BTreeMap<ObjectName, Values>,
    /// The Secrets and ConfigMaps whose values were read in this pass; `None` for one that does not exist.
    pub(super) learned: BTreeMap<ObjectName, Option<Object>>,
    /// The objects that were read in this pass to be compared; `None` for one that does not exist.
    pub(super) found: BTreeMap<ObjectName, Option<Object>>,
    /// The objects that were applied in this pass, or why the API server rejected them: one sentence.
    pub(super) applied: BTreeMap<ObjectName, Result<(), String>>,
    /// The objects that were deleted in this pass.
    pub(super) deleted: BTreeSet<ObjectName>,
}

// === impl SetupMemory ===

impl SetupMemory {
    /// What was applied or compared, of objects with these names.
    pub(super) fn verified<'a>(
        &self,
        namespace: &str,
        names: impl Iterator<Item = &'a ObjectName>,
    ) -> BTreeMap<ObjectName, Verified> {
        let memory = self.lock();
        let found = names.filter_map(|name| Some((name.clone(), memory.verified.get(&id(namespace, name))?.clone())));
        found.collect()
    }

    /// Remembers that an object is as `verified` says.
    pub(super) fn verify(&self, namespace: &str, name: &ObjectName, verified: Verified) {
        self.lock().verified.insert(id(namespace, name), verified);
    }

    /// Remembers that the watch shows these objects.
    pub(super) fn shown<'a>(&self, namespace: &str, names: impl Iterator<Item = &'a ObjectName>) {
        let mut memory = self.lock();
        for name in names {
            if let Some(verified) = memory.verified.get_mut(&id(namespace, name)) {
                verified.is_shown = true;
            }
        }
    }

    /// Forgets what was applied or compared, so that these objects are read again.
    pub(super) fn forget<'a>(&self, namespace: &str, names: impl Iterator<Item = &'a ObjectName>) {
        let mut memory = self.lock();
        for name in names {
            memory.verified.remove(&id(namespace, name));
        }
    }

    /// The same for objects with these names in other clusters.
    pub(super) fn forget_elsewhere<'a>(&self, namespace: &str, names: impl Iterator<Item = &'a ObjectName>) {
        let names: BTreeSet<&ObjectName> = names.collect();
        let is_elsewhere = |key: &Key| key.namespace().rsplit_once('/').is_some_and(|(_, own)| own == namespace);
        let mut memory = self.lock();
        memory.verified.retain(|(kind, key), _| !is_elsewhere(key) || !names.contains(&(*kind, key.name().to_owned())));
    }

    /// The rules that resources violate, judged once for each version of the definitions.
    pub(super) fn problems(&self, (resources, version): (&Resources, u64), chained: &KnownOfCluster) -> Arc<[Problem]> {
        let is_same = |judged: &&Judged| judged.version == version && judged.chained == *chained;
        if let Some(judged) = self.lock().judged.as_ref().filter(is_same) {
            return Arc::clone(&judged.problems);
        }
        let (plans, _) = resources.plans(chained);
        let problems: Arc<[Problem]> = plan::problems(resources, &plans).into();
        self.lock().judged = Some(Judged { version, chained: chained.clone(), problems: Arc::clone(&problems) });
        problems
    }

    /// How long a status can wait that only says that the work goes on; `None` if it is written now: when nothing was
    /// written for [`REST`], and after [`UNSAID_MAX`] in any case. `moved` says whether the pass wrote an object.
    pub(super) fn postpone(&self, kind: Kind, key: &Key, moved: bool, now: Timestamp) -> Option<Duration> {
        let mut memory = self.lock();
        let unsaid = memory.unsaid.entry((kind, key.clone())).or_insert(Unsaid { since: now, moved: now });
        if moved {
            unsaid.moved = now;
        }
        let due = (unsaid.moved + REST).min(unsaid.since + UNSAID_MAX);
        if due <= now {
            memory.unsaid.remove(&(kind, key.clone()));
            return None;
        }
        // The clock may have been set back.
        Some(Duration::try_from(due.duration_since(now)).unwrap_or_default().min(REST))
    }

    /// Notes that the status of a resource says what there is to say.
    pub(super) fn said(&self, kind: Kind, key: &Key) {
        self.lock().unsaid.remove(&(kind, key.clone()));
    }

    /// Remembers a status that was written while the watch showed this version of the resource.
    pub(super) fn set_reported(&self, kind: Kind, key: &Key, metadata: &ObjectMeta, status: &Value) {
        if let Some(version) = &metadata.resource_version {
            self.lock().reported.insert((kind, key.clone()), (version.clone(), status.clone()));
        }
    }

    /// The status that was written last, if the watch still shows the version of the resource before.
    pub(super) fn reported(&self, kind: Kind, key: &Key, metadata: &ObjectMeta) -> Option<Value> {
        let (mut memory, key) = (self.lock(), (kind, key.clone()));
        let (version, status) = memory.reported.get(&key)?;
        if metadata.resource_version.as_ref() == Some(version) {
            return Some(status.clone());
        }
        memory.reported.remove(&key);
        None
    }

    /// What was read of a Secret or ConfigMap.
    pub(super) fn content(&self, namespace: &str, name: &ObjectName) -> Option<Arc<KnownContent>> {
        self.lock().contents.get(&id(namespace, name)).cloned()
    }

    /// Remembers what was read of a Secret or ConfigMap; `None` if it does not exist.
    pub(super) fn set_content(
        &self,
        namespace: &str,
        name: &ObjectName,
        content: Option<KnownContent>,
        now: Timestamp,
    ) {
        let (mut memory, id) = (self.lock(), id(namespace, name));
        let before = memory.contents.remove(&id);
        let is_key = name.1.ends_with(KEY_SUFFIX);
        let last = before.as_ref().and_then(|before| before.certificates.first()).filter(|_| is_key).cloned();
        let last = last.or_else(|| memory.gone.get(&id.1).filter(|_| is_key).cloned());
        let Some(mut content) = content else {
            memory.gone.extend(last.map(|last| (id.1, last)));
            return;
        };
        let is_same = last.as_ref().zip(content.certificates.first()).map(|(last, own)| pki::is_same_key(last, own));
        let before = before.map(|before| (before.former.clone(), before.since));
        (content.former, content.since) = match (is_same, before) {
            (Some(false), _) => (last, now),
            (Some(true), Some((former, since))) => (former, since),
            (None, Some((former, _))) => (former, now),
            (Some(true) | None, None) => (None, now),
        };
        memory.contents.insert(id, Arc::new(content));
    }

    /// Forgets the keys of service accounts of a shard that is gone: another one of this name does not trust them.
    pub(super) fn forget_key(&self, shard: &Key) {
        let secret = Key::new(shard.namespace(), &format!("{}{KEY_SUFFIX}", shard.name()));
        let mut memory = self.lock();
        memory.gone.remove(&secret);
        memory.contents.remove(&(ObjectKind::Secret, secret));
    }

    /// Whether a CA has signed a certificate. `is_signed` checks the signature, which takes long: once for each pair.
    pub(super) fn is_signed(
        &self,
        certificate: &Authority,
        authority: &Authority,
        is_signed: impl FnOnce() -> bool,
    ) -> bool {
        let pair = (Digest::of_bytes(&certificate.der), Digest::of_bytes(&authority.der));
        let known = self.lock().signed.get(&pair).copied();
        if let Some(known) = known {
            return known;
        }
        let found = is_signed();
        let mut memory = self.lock();
        if PAIRS_MAX <= memory.signed.len() {
            memory.signed.clear();
        }
        memory.signed.insert(pair, found);
        found
    }

    /// Whether no former certificate of a CA or key is in use beside this one.
    pub(super) fn is_settled_with(&self, anchor: &Key, present: &Authority) -> bool {
        self.lock().is_settled_with(anchor, present)
    }

    /// The same for a resource that waits for it: [`SetupMemory::settle_with`] returns it then.
    pub(super) fn awaits_settled(&self, anchor: &Key, present: &Authority, kind: Kind, key: &Key) -> bool {
        let mut memory = self.lock();
        let is_settled = memory.is_settled_with(anchor, present);
        if !is_settled {
            memory.awaiting.entry(anchor.clone()).or_default().insert((kind, key.clone()));
        }
        is_settled
    }

    /// Remembers that no former certificate of a CA or key is in use beside this one, and forgets the former one: a
    /// renewal that keeps the key must not bring it back. Returns the resources that have waited for it.
    pub(super) fn settle_with(&self, anchor: &Key, owner: &Owner, present: &Authority) -> BTreeSet<(Kind, Key)> {
        let mut memory = self.lock();
        memory.settled.insert(anchor.clone(), (owner.clone(), Digest::of_bytes(&present.der)));
        memory.gone.remove(anchor);
        let content = memory.contents.get_mut(&(ObjectKind::Secret, anchor.clone()));
        if let Some(content) = content.filter(|content| content.former.is_some()) {
            Arc::make_mut(content).former = None;
        }
        memory.awaiting.remove(anchor).unwrap_or_default()
    }

    /// Whether it was not told yet how far the replacement of a CA or key is. Notes that it is.
    pub(super) fn tells(&self, anchor: &Key, owner: &Owner, phase: Phase) -> bool {
        let mut memory = self.lock();
        match phase {
            Phase::Settled => memory.told.remove(anchor).is_some(),
            Phase::Spreading | Phase::Reissuing | Phase::Ending => {
                let before = memory.told.insert(anchor.clone(), (owner.clone(), phase));
                before.is_none_or(|(_, before)| before != phase)
            }
        }
    }

    /// What was found inside kcp for a Kubeconfig.
    pub(super) fn compared(&self, key: &Key) -> Option<Compared> {
        self.lock().compared.get(key).cloned()
    }

    /// Remembers what was found inside kcp for a Kubeconfig.
    pub(super) fn set_compared(&self, key: &Key, compared: Compared) {
        self.lock().compared.insert(key.clone(), compared);
    }

    /// Forgets what was found inside kcp for a Kubeconfig, so that it is compared again.
    pub(super) fn forget_compared(&self, key: &Key) {
        self.lock().compared.remove(key);
    }

    /// The connection to the workspace with this URL, for a resource. From time to time, closes those that were not
    /// used for long.
    pub(super) fn connection(&self, url: &str, by: (Kind, &Key), now: Instant) -> Option<Connection> {
        self.lock().connections.take(url, by, now)
    }

    /// Keeps a connection until the resource is gone.
    pub(super) fn set_connection(&self, url: &str, connection: Connection, by: (Kind, &Key), now: Instant) {
        self.lock().connections.keep(url, connection, by, now);
    }

    /// Since when something inside kcp cannot be cleaned up: since `now`, if this is the first try.
    pub(super) fn trying_since(&self, kind: Kind, key: &Key, now: Timestamp) -> Timestamp {
        self.lock().trying.entry((kind, key.clone())).or_insert(Some(now)).unwrap_or(now)
    }

    /// Forgets since when: what is inside kcp answered.
    pub(super) fn not_trying(&self, kind: Kind, key: &Key) {
        self.lock().trying.remove(&(kind, key.clone()));
    }

    /// Remembers that nothing is left to do inside kcp, or that what is left stays there.
    pub(super) fn settle(&self, kind: Kind, key: &Key) {
        self.lock().trying.insert((kind, key.clone()), None);
    }

    /// Whether nothing is left to do inside kcp, or what is left stays there.
    pub(super) fn is_settled(&self, kind: Kind, key: &Key) -> bool {
        self.lock().trying.get(&(kind, key.clone())) == Some(&None)
    }

    /// The other clusters in the status that was last written: the watch may not show it yet. `None` if this process
    /// does not know them.
    pub(super) fn places(&self, kind: Kind, key: &Key) -> Option<BTreeSet<Place>> {
        self.lock().places.get(&(kind, key.clone())).cloned()
    }

    /// Remembers the other clusters in the status.
    pub(super) fn set_places(&self, kind: Kind, key: &Key, places: BTreeSet<Place>) {
        self.lock().places.insert((kind, key.clone()), places);
    }

    /// Forgets everything inside kcp and in other clusters of a resource that is gone, and how far the replacement of
    /// its CAs and keys was.
    pub(super) fn forget_resource(&self, kind: Kind, key: &Key) {
        let mut memory = self.lock();
        let is_other = |owner: &Owner| owner.0 != kind || owner.1 != *key;
        memory.settled.retain(|_, (owner, _)| is_other(owner));
        memory.told.retain(|_, (owner, _)| is_other(owner));
        memory.awaiting.retain(|_, by| !by.remove(&(kind, key.clone())) || !by.is_empty());
        memory.trying.remove(&(kind, key.clone()));
        memory.places.remove(&(kind, key.clone()));
        memory.reported.remove(&(kind, key.clone()));
        memory.connections.leave((kind, key));
        if kind == Kind::Kubeconfig {
            memory.compared.remove(key);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Memory> {
        self.0.lock()
    }
}

// === impl Memory ===

impl Memory {
    fn is_settled_with(&self, anchor: &Key, present: &Authority) -> bool {
        self.settled.get(anchor).is_some_and(|(_, digest)| *digest == Digest::of_bytes(&present.der))
    }
}

// === impl Connections ===

impl<C> Default for Connections<C> {
    fn default() -> Connections<C> {
        Connections { open: HashMap::new(), swept: None }
    }
}

impl<C: Clone> Connections<C> {
    fn take(&mut self, url: &str, (kind, key): (Kind, &Key), now: Instant) -> Option<C> {
        let is_unused = |used: &Used<C>| UNUSED <= now.saturating_duration_since(used.last);
        // A landscape may have a thousand, and each pass uses some.
        if self.swept.is_none_or(|swept| SWEEP <= now.saturating_duration_since(swept)) {
            self.open.retain(|_, used| !is_unused(used));
            self.swept = Some(now);
        }
        let used = self.open.get_mut(url).filter(|used| !is_unused(used))?;
        used.by.insert((kind, key.clone()));
        used.last = now;
        Some(used.connection.clone())
    }

    fn keep(&mut self, url: &str, connection: C, (kind, key): (Kind, &Key), now: Instant) {
        let mut by = self.open.remove(url).map(|used| used.by).unwrap_or_default();
        by.insert((kind, key.clone()));
        self.open.insert(url.to_owned(), Used { connection, by, last: now });
    }

    /// Closes those that only a resource used that is gone.
    fn leave(&mut self, (kind, key): (Kind, &Key)) {
        let gone = (kind, key.clone());
        self.open.retain(|_, used| !used.by.remove(&gone) || !used.by.is_empty());
    }
}

// === impl Known ===

impl Known {
    /// What the objects wait for.
    pub(super) fn around(&self) -> &LiveObjects {
        self.around.as_ref().unwrap_or(&self.live)
    }

    /// Under which namespace the memory has the objects. No namespace has a slash.
    pub(super) fn scope(&self) -> String {
        match &self.place {
            Some(place) => scope(&place.uid, &self.namespace),
            None => self.namespace.clone(),
        }
    }
}

/// Under which namespace the memory has objects of another cluster.
pub(super) fn scope(uid: &str, namespace: &str) -> String {
    format!("{uid}/{namespace}")
}

fn id(namespace: &str, (kind, name): &ObjectName) -> (ObjectKind, Key) {
    (*kind, Key::new(namespace, name))
}

#[cfg(test)]
mod tests;
