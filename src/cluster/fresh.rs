//! Namespaces that we created a moment ago: what is not ours cannot be in them yet, so nobody has to look.
//!
//! A first installation looks up each object before it is applied. In a namespace that did not exist before we made it,
//! such a look finds nothing but our own objects and the few that every namespace gets; these are still looked up.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard},
    time::{Duration, Instant},
};

use super::Kind;
use crate::object::ObjectId;

/// How long a namespace counts as fresh: long enough for a first installation, too short for anybody else to make use of it.
const FRESH: Duration = Duration::from_secs(60);

/// Objects that controllers put into every namespace.
const EVERYWHERE: [(&str, &str); 3] =
    [("ConfigMap", "kube-root-ca.crt"), ("ConfigMap", "openshift-service-ca.crt"), ("ServiceAccount", "default")];

/// Fresh namespaces of one cluster.
#[derive(Default)]
pub(super) struct Fresh(Mutex<BTreeMap<Arc<str>, Namespace>>);

struct Namespace {
    since: Instant,
    /// What we have put into it.
    applied: BTreeSet<ObjectId>,
}

// === impl Fresh ===

impl Fresh {
    /// Notes that an object was applied, and whether that created it.
    pub(super) fn note(&self, kind: &Kind, id: &ObjectId, created: bool, now: Instant) {
        let mut namespaces = self.lock();
        if namespaces.is_empty() && !created {
            return;
        }
        namespaces.retain(|_, namespace| now.duration_since(namespace.since) < FRESH);
        if created && id.group.is_empty() && &*id.kind == "Namespace" {
            namespaces.insert(Arc::clone(&id.name), Namespace { since: now, applied: BTreeSet::new() });
        } else if kind.namespaced
            && let Some(namespace) = namespaces.get_mut(&id.namespace)
        {
            namespace.applied.insert(id.clone());
        }
    }

    /// Whether an object cannot be there: its namespace is fresh, and neither we nor a controller has put it there.
    pub(super) fn lacks(&self, id: &ObjectId, now: Instant) -> bool {
        let namespaces = self.lock();
        let fresh = namespaces.get(&id.namespace).filter(|namespace| now.duration_since(namespace.since) < FRESH);
        fresh.is_some_and(|namespace| !namespace.applied.contains(id)) && !EVERYWHERE.contains(&(&*id.kind, &*id.name))
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Arc<str>, Namespace>> {
        self.0.lock().expect("nothing panics while it holds this lock")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::Gvk;

    #[test]
    fn only_what_nobody_has_put_into_a_new_namespace_need_not_be_looked_up() {
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
        assert!(!fresh.lacks(&config_map("old", "a"), now));
        assert!(!fresh.lacks(&ObjectId::new("rbac.authorization.k8s.io", "ClusterRole", "", "a"), now));
        assert!(!fresh.lacks(&config_map("new", "a"), now + FRESH));
        fresh.note(&config_maps, &config_map("old", "a"), false, now + FRESH);
        assert!(fresh.lock().is_empty());
    }
}
