//! Decides what other clusters have: values in, values out.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::Arc,
};

use serde_json::{Value, json};
use tidegate_core::{
    api::{
        names::{annotation, label},
        shared::{Condition, ObjectMeta},
    },
    conditions::{
        self,
        setup::{CLUSTER, PLACES, VALID},
    },
    landscape,
    object::{Digest, Object},
    plan::setup::{Gate, Mounted, Plan, Problem, setup_mark},
};

use super::Open;
use crate::{
    setup::{
        content,
        decide::Outcome,
        object::{LiveObject, ObjectKind, ObjectState},
        state::{Desired, Keys, Known, KnownContent, LiveObjects, ObjectName, Observed, Origin, Site},
    },
    stores::{Identity, OtherCluster, Stores},
};

/// The value of the label `tidegate.dev/setup` of a copy. That of a resource has a dot.
pub(super) const COPY: &str = "copy";
/// The key of the kubeconfig in its Secret, as for runtimes.
pub(super) const CONFIG: &str = "config";

/// A cluster that may have objects of a resource.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::setup) struct Place {
    /// Its name in annotations.
    pub(in crate::setup) name: String,
    /// The UID of its namespace `kube-system`, or [`UNKNOWN`].
    pub(in crate::setup) uid: String,
}

/// Instead of the UID of a cluster that has not said it since the record of clusters was lost. Then its name counts.
pub(super) const UNKNOWN: &str = "unknown";

/// Whether a cluster can be used now.
pub(super) enum Standing {
    /// It has not answered since the start.
    Asked,
    /// It cannot: one sentence.
    Unusable(String),
    /// It can.
    Usable(Open),
}

/// What is left of a resource in a cluster.
pub(super) enum Gone {
    /// Nothing.
    All,
    /// The cluster has not answered since the start.
    Asked,
    /// So many objects, which are being deleted.
    Leaves(usize),
    /// It is not known, because the cluster cannot be used or a request failed there: one sentence.
    Unknown(String),
}

/// What the resources in a cluster mount.
#[derive(Clone, Debug, Default)]
pub(super) struct Users {
    /// The keys of each Secret and ConfigMap.
    pub(super) mounted: BTreeMap<ObjectName, Wanted>,
    /// Those that are copied only if they exist, because no pod waits for them.
    pub(super) optional: BTreeSet<ObjectName>,
    /// The Secrets with credentials of registries.
    pulled: BTreeSet<String>,
    /// Whether each of the resources has a plan.
    pub(super) are_all_known: bool,
}

/// The keys of a copy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Wanted {
    /// Those that are named.
    named: BTreeSet<String>,
    /// The labels of the resources of which a volume has all.
    whole: BTreeSet<String>,
    /// Whether pods wait for it.
    is_required: bool,
}

// === impl Place ===

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.name, self.uid)
    }
}

impl Place {
    fn read(text: &str) -> Option<Place> {
        let (name, uid) = text.strip_suffix(')')?.split_once(" (")?;
        Some(Place { name: name.to_owned(), uid: uid.to_owned() })
    }

    /// Whether both are one cluster, whatever its name.
    pub(super) fn is_same(&self, other: &Place) -> bool {
        self.uid == other.uid && (self.uid != UNKNOWN || self.name == other.name)
    }
}

fn conditions_of(status: &Value) -> Vec<Condition> {
    serde_json::from_value(status["conditions"].clone()).unwrap_or_default()
}

/// The clusters that a status names.
pub(in crate::setup) fn read_places(status: &Value) -> BTreeSet<Place> {
    let all = conditions_of(status);
    conditions::message(&all, PLACES).unwrap_or_default().split(", ").filter_map(Place::read).collect()
}

/// Whether a status is not one that Tidegate wrote: it is gone, or others have edited the clusters that it names. Then
/// it does not tell where objects of the resource are. A status of before the first write elsewhere does not look so,
/// nor one of which only a cluster was removed: then what the clusters show counts.
pub(super) fn is_lost(status: &Value) -> bool {
    let all = conditions_of(status);
    match conditions::find(&all, PLACES) {
        Some(_) => {
            let text = conditions::message(&all, PLACES).unwrap_or_default();
            text.split(", ").any(|text| Place::read(text).is_none())
        }
        // The first is in each status, and the second is true only if the clusters are named as well.
        None => conditions::find(&all, VALID).is_none() || conditions::is_true(&all, CLUSTER),
    }
}

/// Adds clusters that are not known yet.
pub(super) fn add_places(known: &mut BTreeSet<Place>, more: impl IntoIterator<Item = Place>) {
    for place in more {
        if !known.iter().any(|known| known.is_same(&place)) {
            known.insert(place);
        }
    }
}

/// The clusters that may have objects of a resource if nothing is known of it: all to which Secrets of its namespace
/// lead, and the one that it asks for.
pub(super) fn possible_places(all: &[(String, OtherCluster)], wanted: Option<&str>) -> BTreeSet<Place> {
    let uid = |found: &OtherCluster| match &found.identity {
        Identity::Known { uid, .. } => uid.to_string(),
        Identity::Asked | Identity::Refused(_) => UNKNOWN.to_owned(),
    };
    let mut places = BTreeSet::new();
    add_places(&mut places, all.iter().map(|(name, found)| Place { name: name.clone(), uid: uid(found) }));
    let wanted = wanted.filter(|wanted| all.iter().all(|(name, _)| name != wanted));
    add_places(&mut places, wanted.map(|wanted| Place { name: wanted.to_owned(), uid: UNKNOWN.to_owned() }));
    places
}

/// The same as text.
pub(in crate::setup) fn write_places(places: &BTreeSet<Place>) -> String {
    places.iter().map(Place::to_string).collect::<Vec<_>>().join(", ")
}

/// Whether a user has given up what a cluster has of a resource: by the name or UID of the cluster, and nothing else.
/// The annotation that lets a Shard go with its workspaces does not: the pods may still run in a cluster that Tidegate
/// cannot reach.
pub(super) fn is_forgotten(metadata: &ObjectMeta, place: &Place) -> bool {
    let named = landscape::annotation(metadata, annotation::FORGET_CLUSTER).unwrap_or_default();
    named.split(',').map(str::trim).any(|named| !named.is_empty() && (named == place.name || named == place.uid))
}

/// Why objects stay in a cluster, and what to do if it does not come back.
pub(super) fn unforgotten(place: &Place, sentence: &str) -> String {
    if place.uid == UNKNOWN {
        return format!(
            "the status did not say which clusters have objects of it, and cluster {} may have some: {sentence}; if it \
             has none, or is gone for good, set the annotation `{}: {}`",
            place.name,
            annotation::FORGET_CLUSTER,
            place.name
        );
    }
    format!(
        "objects stay in cluster {place}: {sentence}; if it is gone for good, set the annotation `{}: {}`",
        annotation::FORGET_CLUSTER,
        place.uid
    )
}

/// The cluster with this name.
pub(super) fn standing(name: &str, namespace: &str, stores: &Stores) -> Standing {
    let all = stores.other_clusters(namespace);
    let Some((_, found)) = all.iter().find(|(other, _)| other == name) else {
        return Standing::Unusable(format!(
            "no Secret in namespace {namespace} has the label `{}: {name}`: create one with a kubeconfig in the key \
             `{CONFIG}`",
            label::CLUSTER_NAME
        ));
    };
    if let Identity::Known { uid, .. } = &found.identity {
        let is_same =
            |other: &OtherCluster| matches!(&other.identity, Identity::Known { uid: other, .. } if other == uid);
        let same: Vec<&str> = all.iter().filter(|(_, other)| is_same(other)).map(|(name, _)| name.as_str()).collect();
        if 1 < same.len() {
            return Standing::Unusable(format!(
                "{} are names of one cluster: remove the label `{}` from all but one of their Secrets",
                same.join(" and "),
                label::CLUSTER_NAME
            ));
        }
    }
    judge(name, found.clone())
}

fn judge(name: &str, found: OtherCluster) -> Standing {
    match (&found.identity, &found.outage) {
        (Identity::Refused(sentence), _) | (Identity::Asked | Identity::Known { .. }, Some(sentence)) => {
            Standing::Unusable(sentence.clone())
        }
        (Identity::Asked, None) => Standing::Asked,
        (Identity::Known { .. }, None) => open(name, found).map_or(Standing::Asked, Standing::Usable),
    }
}

/// Whether a cluster has not answered since the start, and may do so: its answer, or why there is none, follows.
pub(super) fn is_any_asked(all: Vec<(String, OtherCluster)>) -> bool {
    all.into_iter().any(|(name, found)| matches!(judge(&name, found), Standing::Asked))
}

/// A cluster whose objects are listed.
pub(super) fn open(name: &str, found: OtherCluster) -> Option<Open> {
    let OtherCluster { identity: Identity::Known { cluster, uid, control_plane }, objects, unlisted, .. } = found
    else {
        return None;
    };
    unlisted.is_empty().then(|| Open { name: name.to_owned(), cluster, site: Site { uid, control_plane }, objects })
}

/// The UID of a cluster whose objects are listed.
pub(super) fn listed(found: &OtherCluster) -> Option<&str> {
    match &found.identity {
        Identity::Known { uid, .. } if found.unlisted.is_empty() => Some(uid),
        Identity::Known { .. } | Identity::Asked | Identity::Refused(_) => None,
    }
}

/// The cluster with this UID, whatever its name.
pub(super) fn find(namespace: &str, uid: &str, stores: &Stores) -> Option<Open> {
    let all = stores.other_clusters(namespace).into_iter();
    all.filter_map(|(name, found)| open(&name, found)).find(|open| *open.site.uid == *uid)
}

/// The cluster that a status names.
pub(super) fn reach(place: &Place, namespace: &str, stores: &Stores) -> Standing {
    reach_in(place, stores.other_clusters(namespace))
}

/// The same among these.
pub(super) fn reach_in(place: &Place, all: Vec<(String, OtherCluster)>) -> Standing {
    let is_it = |found: &OtherCluster| matches!(&found.identity, Identity::Known { uid, .. } if **uid == *place.uid);
    let mut of_name = None;
    let mut is_asked = false;
    for (name, found) in all {
        if is_it(&found) || (place.uid == UNKNOWN && name == place.name) {
            return judge(&name, found);
        }
        is_asked |= matches!(found.identity, Identity::Asked) && found.outage.is_none();
        if name == place.name {
            of_name = Some(found);
        }
    }
    match of_name {
        // One of them may be it.
        _ if is_asked => Standing::Asked,
        Some(OtherCluster { identity: Identity::Known { .. }, .. }) => {
            Standing::Unusable(format!("the Secret of cluster {} leads to another one now", place.name))
        }
        Some(found) => judge(&place.name, found),
        None => {
            Standing::Unusable(format!("no Secret has the label `{}` and leads there: create one", label::CLUSTER_NAME))
        }
    }
}

/// Whether a cluster is the one with this UID. A place whose UID is unknown may be the one where the pods are now: by
/// another name, as long as not both had answered.
pub(super) fn is_target(standing: &Standing, target: Option<&str>) -> bool {
    match standing {
        Standing::Usable(open) => Some(&*open.site.uid) == target,
        Standing::Asked | Standing::Unusable(_) => false,
    }
}

/// Whether all pods of a plan are ready.
pub(super) fn are_up(plan: &Plan, live: &LiveObjects) -> bool {
    let state = |name: &str| live.get(&(ObjectKind::Deployment, name.to_owned())).map(|found| &found.state);
    plan.deployments.iter().all(|one| matches!(state(&one.name), Some(ObjectState::Deployment(pods)) if pods.are_up()))
}

/// Takes out of what the control plane shall have what another cluster shall have. Until it is there, what the control
/// plane has of it stays.
pub(super) fn split(known: &mut Known) -> Known {
    let (there, here): (Vec<Desired>, Vec<Desired>) =
        std::mem::take(&mut known.desired).into_iter().partition(|desired| desired.name.0.is_placed());
    known.desired = here;
    let wanted = known.wanted.iter().filter(|name| name.0.is_placed()).cloned().collect();
    Known { wanted, desired: there, live: LiveObjects::new(), verified: BTreeMap::new(), ..known.clone() }
}

/// An object for another cluster, with the labels by which it is found there again. A copy has no `owner`.
pub(super) fn labelled(desired: &Desired, site: &Site, owner: Option<&str>) -> Desired {
    let mut labelled = desired.clone();
    labelled.object.set_label(label::CONTROL_PLANE, &site.control_plane);
    if let Some(owner) = owner {
        labelled.object.set_label(label::OWNER, owner);
    }
    let labels = format!("{} {}", site.control_plane, owner.unwrap_or_default());
    labelled.digest = Digest::all([&desired.digest, &Digest::of_bytes(labels.as_bytes())]);
    labelled.object.set_annotation(annotation::DIGEST, &labelled.digest.to_string());
    labelled
}

// === impl Users ===

impl Users {
    /// What the pods of these plans mount, together.
    pub(super) fn new(plans: impl Iterator<Item = Result<Plan, Problem>>) -> Users {
        let mut users = Users { are_all_known: true, ..Users::default() };
        for plan in plans {
            let Ok(plan) = plan else {
                users.are_all_known = false;
                continue;
            };
            users.pulled.extend(plan.pull_secrets().into_iter().map(str::to_owned));
            let required = plan.mounted().into_iter().map(|mounted| (mounted, true));
            let all = required.chain(plan.used().into_iter().map(|used| (used, false)));
            for (Mounted { kind, name, keys }, is_required) in all {
                let Some(kind) = ObjectKind::named(kind) else { continue };
                let wanted = users.mounted.entry((kind, name)).or_default();
                wanted.is_required |= is_required;
                wanted.whole.extend(keys.is_empty().then(|| setup_mark(plan.kind, plan.key.name())));
                wanted.named.extend(keys);
            }
        }
        let optional = users.mounted.iter().filter(|(_, wanted)| !wanted.is_required);
        users.optional = optional.map(|(name, _)| name.clone()).collect();
        users
    }

    /// The type of a new copy of a Secret with these keys. The kubelet takes credentials of registries from two types
    /// only. A copy that exists may keep another one, see [`content::may_keep_type`].
    fn secret_type(&self, name: &str, keys: &[String]) -> &'static str {
        let has = |wanted: &str| self.pulled.contains(name) && keys.iter().any(|key| key == wanted);
        if has(".dockerconfigjson") {
            content::DOCKER_CONFIG_JSON
        } else if has(".dockercfg") {
            content::DOCKER_CONFIG
        } else {
            content::OPAQUE
        }
    }
}

// === impl Wanted ===

impl Wanted {
    /// The keys that a copy has of a Secret or ConfigMap with this content: never the private key of a CA, also if a
    /// volume names it. Of a volume with all keys, what may be one is left out, and private keys are if the Secret
    /// belongs to a resource, `owner`, that has no such volume.
    fn keys(&self, content: &KnownContent, owner: Option<&str>) -> Vec<String> {
        let is_of_others = owner.is_some_and(|owner| !self.whole.contains(owner));
        let is_left_out =
            |key: &String| content.unclear.contains(key) || (is_of_others && content.private.contains(key));
        let is_in_whole = |key: &String| !self.whole.is_empty() && !is_left_out(key);
        let is_wanted = |key: &String| self.named.contains(key) || is_in_whole(key);
        let is_copied = |key: &&String| !content.authorities.contains(*key) && is_wanted(key);
        content.keys.keys().filter(is_copied).cloned().collect()
    }
}

/// Why a resource whose volume names the private key of a CA gets no copy: one sentence; `None` if none does. Others
/// may mount the certificate of the same Secret.
fn refusal(mounted: &Mounted, content: &KnownContent) -> Option<String> {
    let key = mounted.keys.iter().find(|key| content.authorities.contains(*key))?;
    Some(format!(
        "Secret {}, key `{key}`: the private key of a CA does not leave the control plane; mount `tls.crt` only",
        mounted.name
    ))
}

/// The copies of what the pods of a plan mount, with the keys for all users, and what cannot be copied. `content` and
/// `live` are those of the control plane.
pub(super) fn copies(
    plan: &Plan,
    users: &Users,
    site: &Site,
    content: &dyn Fn(&ObjectName) -> Option<Arc<KnownContent>>,
    live: &dyn Fn(&ObjectName) -> Option<Arc<LiveObject>>,
) -> (Vec<Desired>, Vec<(ObjectName, Outcome)>) {
    copies_of(plan, (plan.mounted(), true), users, site, content, live)
}

/// The same of what they use if it exists, and do not wait for.
pub(super) fn optional_copies(
    plan: &Plan,
    users: &Users,
    site: &Site,
    content: &dyn Fn(&ObjectName) -> Option<Arc<KnownContent>>,
    live: &dyn Fn(&ObjectName) -> Option<Arc<LiveObject>>,
) -> (Vec<Desired>, Vec<(ObjectName, Outcome)>) {
    let required: BTreeSet<ObjectName> = plan.mounted().iter().filter_map(name_of).collect();
    let exists = |name: &ObjectName| live(name).is_some() && content(name).is_some();
    let is_optional =
        |mounted: &Mounted| name_of(mounted).is_some_and(|name| !required.contains(&name) && exists(&name));
    let used = plan.used().into_iter().filter(is_optional).collect();
    copies_of(plan, (used, false), users, site, content, live)
}

/// An object that is mounted.
pub(in crate::setup) fn name_of(mounted: &Mounted) -> Option<ObjectName> {
    Some((ObjectKind::named(mounted.kind)?, mounted.name.clone()))
}

/// `is_required` says whether the pods of the plan wait for what they mount. Those of other plans do not matter.
fn copies_of(
    plan: &Plan,
    (mounted, is_required): (Vec<Mounted>, bool),
    users: &Users,
    site: &Site,
    content: &dyn Fn(&ObjectName) -> Option<Arc<KnownContent>>,
    live: &dyn Fn(&ObjectName) -> Option<Arc<LiveObject>>,
) -> (Vec<Desired>, Vec<(ObjectName, Outcome)>) {
    let (mut copies, mut refused) = (Vec::new(), Vec::new());
    for mounted in mounted {
        let Some(name) = name_of(&mounted) else { continue };
        let wanted = users.mounted.get(&name).cloned().unwrap_or_default();
        let found = content(&name);
        let owner = live(&name).and_then(|live| live.mark.clone());
        if let Some(sentence) = found.as_ref().and_then(|found| refusal(&mounted, found)) {
            refused.push((name, Outcome::Unusable(sentence)));
            continue;
        }
        let keys = found.as_ref().map(|found| wanted.keys(found, owner.as_deref())).unwrap_or_default();
        // The pods of a resource that has no plan now mount what its last plan said.
        let kept = found.as_ref().filter(|_| !users.are_all_known).map(|found| others(found, &keys));
        let keys = (keys, kept.unwrap_or_default());
        let gates = if is_required { vec![Gate::Key(mounted.clone())] } else { Vec::new() };
        let copied = copy(plan, &mounted, keys, users, found.as_deref(), site);
        copies.extend(copied.map(|copy| Desired { gates, ..copy }));
    }
    (copies, refused)
}

/// The keys that no copy has although a volume of the plan has all keys: one sentence each. That private keys of CAs
/// stay in the control plane is always so, and not said.
pub(super) fn left_out(
    plan: &Plan,
    users: &Users,
    content: &dyn Fn(&ObjectName) -> Option<Arc<KnownContent>>,
    live: &dyn Fn(&ObjectName) -> Option<Arc<LiveObject>>,
) -> Vec<String> {
    let mut sentences = BTreeSet::new();
    for mounted in plan.mounted().into_iter().chain(plan.used()).filter(|mounted| mounted.keys.is_empty()) {
        let Some(name) = name_of(&mounted) else { continue };
        let (Some(found), Some(wanted)) = (content(&name), users.mounted.get(&name)) else { continue };
        let owner = live(&name).and_then(|live| live.mark.clone());
        let copied = wanted.keys(&found, owner.as_deref());
        sentences.extend(others(&found, &copied).into_iter().map(|key| {
            format!(
                "{} {}, key `{key}`: the copy does not have it, because it may be a private key that these pods must \
                 not have; name it under `items` of the volume if they need it",
                mounted.kind, mounted.name
            )
        }));
    }
    sentences.into_iter().collect()
}

/// Whether a user has created there what is copied only if it exists: it stays as it is.
pub(super) fn is_provided(known: &Known, there: &Observed, name: &ObjectName) -> bool {
    let is_optional = known.desired.iter().any(|desired| {
        desired.name == *name && desired.gates.is_empty() && matches!(desired.origin, Origin::Copied { .. })
    });
    let found = there.found.get(name).and_then(Option::as_ref).filter(|_| is_optional);
    found.is_some_and(|found| found.label(label::SETUP).is_none()) && !there.applied.contains_key(name)
}

/// The other keys of a Secret or ConfigMap that a copy may have.
fn others(content: &KnownContent, keys: &[String]) -> BTreeSet<String> {
    let all = content.keys.keys().filter(|key| !keys.contains(key) && !content.authorities.contains(*key));
    all.cloned().collect()
}

fn copy(
    plan: &Plan,
    mounted: &Mounted,
    (keys, kept): (Vec<String>, BTreeSet<String>),
    users: &Users,
    found: Option<&KnownContent>,
    site: &Site,
) -> Option<Desired> {
    let kind = ObjectKind::named(mounted.kind)?;
    let value = json!({
        "apiVersion": "v1",
        "kind": mounted.kind,
        "metadata": {
            "name": mounted.name,
            "namespace": plan.key.namespace(),
            "labels": { label::SETUP: COPY },
        },
    });
    let mut object = Object::new(value).ok()?;
    if kind == ObjectKind::Secret {
        object.map_mut().insert("type".to_owned(), users.secret_type(&mounted.name, &keys).into());
    }
    let nothing = Keys::new();
    let values = found.map_or(&nothing, |found| &found.keys);
    let values = keys.iter().filter_map(|key| Some(format!("{key}={}", values.get(key)?)));
    // Once nothing is kept any more, the copy is another one.
    let values: Vec<String> = values.chain(kept.iter().map(|key| format!("{key} stays"))).collect();
    let digest = Digest::of_bytes(format!("{}{}", object.digest(), values.join("\n")).as_bytes());
    let name = (kind, mounted.name.clone());
    let origin = Origin::Copied { keys, kept };
    let copy = Desired { name, object, digest, gates: Vec::new(), origin, replicas: None };
    Some(labelled(&copy, site, None))
}
