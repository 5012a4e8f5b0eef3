//! Namespaces and definitions that Tidegate created a moment ago.
//!
//! A first installation looks up each object before it applies it. In a namespace that Tidegate has just created, the
//! lookup would find only Tidegate's objects and the few that every namespace gets; the latter are still looked up. The
//! others are applied without force, so that an object which a user was quick to create keeps its content: a conflict
//! ends the freshness of that object, and the next pass looks it up.
//!
//! For two seconds after a kind is established, an API server delays every POST of it, so that its peers learn the kind
//! first. It does not delay an apply.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, MutexGuard},
    time::Duration,
};

use tokio::time::Instant;

use super::Kind;
use tidegate_core::object::ObjectId;
use tidegate_process::lock::Mutex;

/// How long a namespace is fresh: long enough for most first installations, too short for most others to use it.
const FRESH: Duration = Duration::from_secs(10);

/// How long a definition is fresh. The API server counts two seconds from when the kind was established, with a clock
/// of whole seconds.
const FRESH_DEFINITION: Duration = Duration::from_secs(5);

/// Objects that controllers create in every namespace.
const EVERYWHERE: [(&str, &str); 3] =
    [("ConfigMap", "kube-root-ca.crt"), ("ConfigMap", "openshift-service-ca.crt"), ("ServiceAccount", "default")];

/// The fresh namespaces and definitions of one cluster.
#[derive(Default)]
pub(super) struct Fresh(Mutex<Known>);

#[derive(Default)]
struct Known {
    namespaces: BTreeMap<Arc<str>, Namespace>,
    /// Since when, by `<plural>.<group>`.
    definitions: BTreeMap<Arc<str>, Instant>,
}

struct Namespace {
    since: Instant,
    /// The objects that exist in it: Tidegate has applied them, or was refused to.
    exist: BTreeSet<ObjectId>,
}

// === impl Fresh ===

impl Fresh {
    /// Records that an object was applied, and whether that created it.
    pub(super) fn note(&self, kind: &Kind, id: &ObjectId, created: bool, now: Instant) {
        let mut known = self.lock();
        let Known { namespaces, definitions } = &mut *known;
        if namespaces.is_empty() && definitions.is_empty() && !created {
            return;
        }
        definitions.retain(|_, since| now.duration_since(*since) < FRESH_DEFINITION);
        if created && &*id.group == "apiextensions.k8s.io" && &*id.kind == "CustomResourceDefinition" {
            definitions.insert(Arc::clone(&id.name), now);
        }
        namespaces.retain(|_, namespace| now.duration_since(namespace.since) < FRESH);
        if created && id.group.is_empty() && &*id.kind == "Namespace" {
            namespaces.insert(Arc::clone(&id.name), Namespace { since: now, exist: BTreeSet::new() });
        } else if kind.namespaced
            && let Some(namespace) = namespaces.get_mut(&id.namespace)
        {
            namespace.exist.insert(id.clone());
        }
    }

    /// Records that an object exists which Tidegate did not create.
    pub(super) fn met(&self, id: &ObjectId) {
        if let Some(namespace) = self.lock().namespaces.get_mut(&id.namespace) {
            namespace.exist.insert(id.clone());
        }
    }

    /// Whether an object hardly exists: its namespace is fresh, and neither Tidegate nor a controller has created it.
    pub(super) fn lacks(&self, id: &ObjectId, now: Instant) -> bool {
        let known = self.lock();
        let fresh = known.namespaces.get(&id.namespace).filter(|namespace| now.duration_since(namespace.since) < FRESH);
        fresh.is_some_and(|namespace| !namespace.exist.contains(id)) && !EVERYWHERE.contains(&(&*id.kind, &*id.name))
    }

    /// Whether the definition of a kind is fresh.
    pub(super) fn defines(&self, kind: &Kind, now: Instant) -> bool {
        let known = self.lock();
        if known.definitions.is_empty() {
            return false;
        }
        let name = format!("{}.{}", kind.plural, kind.gvk.group);
        known.definitions.get(name.as_str()).is_some_and(|since| now.duration_since(*since) < FRESH_DEFINITION)
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        self.0.lock()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_core::object::Gvk;

    #[test]
    fn only_an_object_absent_from_a_new_namespace_need_not_be_read() {
        let (fresh, now) = (Fresh::default(), Instant::now());
        let namespaces = Kind::built_in(&Gvk::new("", "v1", "Namespace")).unwrap();
        let config_maps = Kind::built_in(&Gvk::new("", "v1", "ConfigMap")).unwrap();
        let namespace = |name: &str| ObjectId::new("", "Namespace", "", name);
        let config_map = |namespace: &str, name: &str| ObjectId::new("", "ConfigMap", namespace, name);
        fresh.note(&namespaces, &namespace("old"), false, now);
        fresh.note(&namespaces, &namespace("new"), true, now);
        fresh.note(&config_maps, &config_map("new", "ours"), true, now);
        assert!(fresh.lacks(&config_map("new", "a"), now));
        assert!(!fresh.lacks(&config_map("new", "ours"), now), "it may belong to another module");
        assert!(!fresh.lacks(&config_map("new", "kube-root-ca.crt"), now));
        fresh.met(&config_map("new", "of a user"));
        assert!(!fresh.lacks(&config_map("new", "of a user"), now), "somebody was quick");
        assert!(!fresh.lacks(&config_map("old", "a"), now));
        assert!(!fresh.lacks(&ObjectId::new("rbac.authorization.k8s.io", "ClusterRole", "", "a"), now));
        assert!(!fresh.lacks(&config_map("new", "a"), now + FRESH));
        fresh.note(&config_maps, &config_map("old", "a"), false, now + FRESH);
        assert!(fresh.lock().namespaces.is_empty());
    }

    #[test]
    fn a_kind_is_fresh_for_a_while_after_we_defined_it() {
        let (fresh, now) = (Fresh::default(), Instant::now());
        let definitions = Kind::built_in(&Gvk::new("apiextensions.k8s.io", "v1", "CustomResourceDefinition")).unwrap();
        let thing = Kind::new(Gvk::new("example.com", "v1", "Thing"), "things", true);
        let definition = definitions.id(&tidegate_core::name::Key::new("", "things.example.com"));
        fresh.note(&definitions, &definition, false, now);
        assert!(!fresh.defines(&thing, now), "it existed before");
        fresh.note(&definitions, &definition, true, now);
        assert!(fresh.defines(&thing, now));
        assert!(!fresh.defines(&Kind::new(Gvk::new("example.org", "v1", "Thing"), "things", true), now));
        assert!(!fresh.defines(&thing, now + FRESH_DEFINITION));
    }
}
