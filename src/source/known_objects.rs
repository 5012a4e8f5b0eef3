//! What this process knows of the objects that it applied, so that a pass over an unchanged world makes no request.
//!
//! A watch shows our own write a moment after the API server answered it. Until then the answer is valid, not the
//! object that the watch shows. A pass compares an object with git once, and again only after a change.

use std::{
    collections::BTreeMap,
    hash::{DefaultHasher, Hash, Hasher},
    sync::Arc,
    time::Duration,
};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use tidegate_cluster::Metadata;
use tidegate_core::intake::Id;
use tokio::time::Instant;

/// A watch is never further behind than this: after that time, the object that it shows is valid.
const LAG_MAX: Duration = Duration::from_secs(5);

/// What this process knows of objects in KCP.
#[derive(Debug, Default)]
pub(super) struct KnownObjects {
    known: BTreeMap<Id, Known>,
    managers: BTreeMap<Id, (Version, Arc<[String]>)>,
}

#[derive(Debug)]
struct Known {
    version: Version,
    resource_version: Option<u64>,
    digest: Arc<str>,
    answered: Option<Instant>,
}

/// The parts of an object that git can set: after a change of any, it must be compared with git again.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Version {
    uid: Arc<str>,
    generation: i64,
    metadata_hash: u64,
}

/// What this process knows of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Seen {
    /// The watch does not show our successful apply yet: the object is as applied.
    Ahead,
    /// It was compared with git, and has not changed since.
    Verified,
    /// It must be compared with git.
    Unknown,
}

// === impl KnownObjects ===

impl KnownObjects {
    /// Records the answer to an apply.
    pub(super) fn applied(&mut self, id: &Id, digest: &Arc<str>, metadata: &Metadata, now: Instant) {
        let known = Known {
            version: Version {
                uid: metadata.uid.as_str().into(),
                generation: metadata.generation,
                metadata_hash: metadata_hash(&metadata.labels, &metadata.annotations, &metadata.finalizers),
            },
            resource_version: metadata.resource_version.parse().ok(),
            digest: Arc::clone(digest),
            answered: Some(now),
        };
        self.known.insert(id.clone(), known);
        self.managers.remove(id);
    }

    /// Records that an object was compared with git and is the same.
    pub(super) fn verified(&mut self, id: &Id, digest: &Arc<str>, metadata: &ObjectMeta) {
        let version = Version::from_metadata(metadata);
        self.known
            .insert(id.clone(), Known { version, resource_version: None, digest: Arc::clone(digest), answered: None });
    }

    /// What is known of an object. The watch shows it with `metadata`, and its definition has `digest`.
    pub(super) fn seen(&self, id: &Id, digest: &Arc<str>, metadata: Option<&ObjectMeta>, now: Instant) -> Seen {
        let Some(known) = self.known.get(id).filter(|known| known.digest == *digest) else { return Seen::Unknown };
        let fresh = known.answered.is_some_and(|answered| now.duration_since(answered) < LAG_MAX);
        let Some(metadata) = metadata else { return if fresh { Seen::Ahead } else { Seen::Unknown } };
        if known.version == Version::from_metadata(metadata) {
            return Seen::Verified;
        }
        // Resource versions of one kind grow: with a lower one, the watch does not show our write yet.
        let shown = metadata.resource_version.as_deref().and_then(|text| text.parse::<u64>().ok());
        let behind = matches!((shown, known.resource_version), (Some(shown), Some(known)) if shown < known);
        if fresh && behind { Seen::Ahead } else { Seen::Unknown }
    }

    /// Forgets an object that was deleted.
    pub(super) fn forget(&mut self, id: &Id) {
        self.known.remove(id);
        self.managers.remove(id);
    }

    /// Records the names of an object's field managers, which the watch does not show.
    pub(super) fn set_managers(&mut self, id: &Id, metadata: &Metadata) {
        let version = Version {
            uid: metadata.uid.as_str().into(),
            generation: metadata.generation,
            metadata_hash: metadata_hash(&metadata.labels, &metadata.annotations, &metadata.finalizers),
        };
        self.managers.insert(id.clone(), (version, metadata.managers.clone().into()));
    }

    /// The names of an object's field managers, if they were read since its last change.
    pub(super) fn managers(&self, id: &Id, metadata: &ObjectMeta) -> Option<Arc<[String]>> {
        let (version, managers) = self.managers.get(id)?;
        (*version == Version::from_metadata(metadata)).then(|| Arc::clone(managers))
    }
}

// === impl Version ===

impl Version {
    fn from_metadata(metadata: &ObjectMeta) -> Version {
        let empty = BTreeMap::new();
        Version {
            uid: metadata.uid.as_deref().unwrap_or_default().into(),
            generation: metadata.generation.unwrap_or_default(),
            metadata_hash: metadata_hash(
                metadata.labels.as_ref().unwrap_or(&empty),
                metadata.annotations.as_ref().unwrap_or(&empty),
                metadata.finalizers.as_deref().unwrap_or_default(),
            ),
        }
    }
}

/// A hash of labels, annotations and finalizers. They do not change the generation, but git sets some of them.
fn metadata_hash(
    labels: &BTreeMap<String, String>,
    annotations: &BTreeMap<String, String>,
    finalizers: &[String],
) -> u64 {
    // The stores drop this annotation of kubectl. The answers of the API server have it.
    const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";
    let mut hasher = DefaultHasher::new();
    labels.hash(&mut hasher);
    for entry in annotations.iter().filter(|(key, _)| *key != LAST_APPLIED) {
        entry.hash(&mut hasher);
    }
    finalizers.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_core::{definition::Kind, name::Key};

    fn id() -> Id {
        (Kind::Kyma, Key::new("kcp-system", "a"))
    }

    fn shown(generation: i64, resource_version: &str) -> ObjectMeta {
        ObjectMeta {
            uid: Some("u".to_owned()),
            generation: Some(generation),
            resource_version: Some(resource_version.to_owned()),
            ..ObjectMeta::default()
        }
    }

    fn answer(generation: i64, resource_version: &str) -> Metadata {
        Metadata {
            id: tidegate_core::object::ObjectId::new("", "Kyma", "kcp-system", "a"),
            version: "v1".into(),
            uid: "u".to_owned(),
            resource_version: resource_version.to_owned(),
            generation,
            labels: BTreeMap::new(),
            annotations: BTreeMap::new(),
            finalizers: Vec::new(),
            managers: Vec::new(),
            deleting: false,
            last_other: None,
            claims_texts: false,
            has_user_writes: false,
            owners: Vec::new(),
            unreadable: None,
        }
    }

    #[test]
    fn a_watch_that_is_behind_our_own_write_is_ignored_for_a_moment() {
        let (mut known, digest, now) = (KnownObjects::default(), Arc::from("a"), Instant::now());
        known.applied(&id(), &digest, &answer(2, "10"), now);
        assert_eq!(known.seen(&id(), &digest, None, now), Seen::Ahead);
        assert_eq!(known.seen(&id(), &digest, Some(&shown(1, "9")), now), Seen::Ahead);
        assert_eq!(known.seen(&id(), &digest, None, now + LAG_MAX), Seen::Unknown);
    }

    #[test]
    fn an_applied_or_compared_object_is_verified_until_it_changes() {
        let (mut known, digest, now) = (KnownObjects::default(), Arc::from("a"), Instant::now());
        known.applied(&id(), &digest, &answer(2, "10"), now);
        assert_eq!(known.seen(&id(), &digest, Some(&shown(2, "12")), now), Seen::Verified);
        assert_eq!(known.seen(&id(), &digest, Some(&shown(3, "13")), now), Seen::Unknown);
        known.verified(&id(), &digest, &shown(3, "13"));
        assert_eq!(known.seen(&id(), &digest, Some(&shown(3, "20")), now), Seen::Verified);
        assert_eq!(known.seen(&id(), &Arc::from("b"), Some(&shown(3, "20")), now), Seen::Unknown);
    }

    #[test]
    fn a_removed_label_is_a_change() {
        let (mut known, digest, now) = (KnownObjects::default(), Arc::from("a"), Instant::now());
        let mut metadata = shown(1, "1");
        metadata.labels = Some([("a".to_owned(), "b".to_owned())].into());
        known.verified(&id(), &digest, &metadata);
        assert_eq!(known.seen(&id(), &digest, Some(&shown(1, "2")), now), Seen::Unknown);
    }
}
