//! The Kyma of a runtime, its Manifests and its objects, as far as they cannot be read, and what a pass leaves alone
//! because of it. Pure.
//!
//! A Kyma keeps its last readable state, and the runtime is reconciled with that. Nothing is removed for an object that
//! cannot be read: neither a runtime nor a module, and its deletion waits as well.

use std::{collections::BTreeMap, time::Duration};

use tidegate_core::{
    api::{Kyma, Manifest},
    landscape,
    object::ObjectId,
    status,
};

use super::{decide::Scope, manifests, objects::LiveObjects};
use crate::stores::unreadable::UnreadableObject;

/// What cannot be read of a runtime.
#[derive(Clone, Debug, Default)]
pub(super) struct Unreadable {
    /// Its Kyma.
    pub(super) kyma: Option<UnreadableObject>,
    /// Its Manifests.
    pub(super) manifests: Vec<UnreadableObject>,
}

/// The objects in a runtime whose metadata cannot be read, as of the last pass that checked all objects. Each with the
/// field and what is wrong with it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct UnreadableObjects(BTreeMap<ObjectId, Box<str>>);

/// How often a runtime with such objects is checked again. A user may have corrected them.
const UNREADABLE_RETRY: Duration = Duration::from_secs(60);

/// What to do about a runtime whose Kyma is not in the stores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WithoutKyma {
    /// Nothing: the Kyma exists, or a Manifest of it cannot be read.
    Wait,
    /// Remove what it left behind: the Kyma is gone.
    CleanUp,
}

// === impl Unreadable ===

impl Unreadable {
    /// What to do if the stores have no Kyma.
    pub(super) fn without_kyma(&self) -> WithoutKyma {
        if self.kyma.is_some() || !self.manifests.is_empty() { WithoutKyma::Wait } else { WithoutKyma::CleanUp }
    }

    /// Whether the pass does nothing: the Kyma cannot be read and is being deleted, or was when it could.
    pub(super) fn holds(&self, kyma: &Kyma) -> bool {
        let is_deleting = |found: &UnreadableObject| found.object.metadata.deletion_timestamp.is_some();
        self.kyma.as_ref().is_some_and(|found| is_deleting(found) || kyma.metadata.deletion_timestamp.is_some())
    }

    /// Whether a Manifest cannot be read; it is as it was when it could.
    pub(super) fn has_manifest(&self, manifest: &Manifest) -> bool {
        let key = landscape::key(&manifest.metadata);
        self.manifests.iter().any(|found| found.object.key() == key)
    }

    /// The modules whose Manifests cannot be read, each with one sentence about it.
    pub(super) fn modules(&self) -> BTreeMap<&str, String> {
        let named = self.manifests.iter().map(|found| (manifests::module_of(&found.object.metadata), found.sentence()));
        named.filter_map(|(module, sentence)| Some((module?, sentence))).collect()
    }

    /// Why a removal of the runtime waits; `None` if it does not.
    pub(super) fn keeps_from_removal(&self) -> Option<String> {
        let first = self.manifests.first()?;
        Some(format!("the removal waits: {}", first.sentence()))
    }
}

// === impl UnreadableObjects ===

impl UnreadableObjects {
    /// Those among the live objects.
    pub(super) fn among(live: &LiveObjects) -> UnreadableObjects {
        let found = live.values().filter_map(|metadata| Some((metadata.id.clone(), metadata.unreadable.clone()?)));
        UnreadableObjects(found.collect())
    }

    /// What the status says of them; none if there are none.
    pub(super) fn failure(&self) -> Option<status::Failure> {
        let (id, problem) = self.0.first_key_value()?;
        let more = match self.0.len() {
            1 => String::new(),
            count => format!(" (and {} more)", count - 1),
        };
        let message = format!(
            "{id} in the runtime cannot be read: {problem}{more}; correct it; until then Tidegate does not delete it"
        );
        Some(status::Failure { reason: "UnreadableObject", message, access: false })
    }

    /// What a pass checks that would check `scope`: while there are such objects, all of them.
    pub(super) fn scope(&self, scope: Scope) -> Scope {
        if self.0.is_empty() { scope } else { Scope::Everything }
    }

    /// When to check them again.
    pub(super) fn again(&self) -> Option<Duration> {
        (!self.0.is_empty()).then_some(UNREADABLE_RETRY)
    }

    /// Their number by kind.
    pub(super) fn count(&self) -> BTreeMap<String, usize> {
        let mut kinds = BTreeMap::new();
        for id in self.0.keys() {
            *kinds.entry(id.kind.to_string()).or_default() += 1;
        }
        kinds
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
    use k8s_openapi::jiff::Timestamp;

    use tidegate_cluster::Metadata;

    use super::*;
    use crate::{runtime::objects::fixtures, stores::Table};

    fn found(table: Table, name: &str, is_deleting: bool) -> UnreadableObject {
        let metadata = ObjectMeta {
            name: Some(name.to_owned()),
            namespace: Some("kcp-system".to_owned()),
            deletion_timestamp: is_deleting.then_some(Time(Timestamp::UNIX_EPOCH)),
            labels: Some([("operator.kyma-project.io/module-name".to_owned(), "cache".to_owned())].into()),
            ..ObjectMeta::default()
        };
        let object =
            tidegate_cluster::Unreadable { metadata, problem: "spec: invalid type".to_owned(), names_templates: false };
        UnreadableObject { table, object: Arc::new(object) }
    }

    fn kyma(is_deleting: bool) -> Kyma {
        let mut kyma = Kyma::default();
        kyma.metadata.deletion_timestamp = is_deleting.then_some(Time(Timestamp::UNIX_EPOCH));
        kyma
    }

    #[test]
    fn what_cannot_be_read_is_not_taken_for_gone() {
        let nothing = Unreadable::default();
        assert_eq!(nothing.without_kyma(), WithoutKyma::CleanUp);
        let kyma = Unreadable { kyma: Some(found(Table::Kymas, "one", false)), manifests: Vec::new() };
        assert_eq!(kyma.without_kyma(), WithoutKyma::Wait);
        let manifest = Unreadable { kyma: None, manifests: vec![found(Table::Manifests, "one-cache", false)] };
        assert_eq!(manifest.without_kyma(), WithoutKyma::Wait);
    }

    #[test]
    fn a_deletion_waits_until_the_kyma_can_be_read() {
        for (unreadable, is_deleting, expected) in [
            (None, false, false),
            (None, true, false),
            (Some(false), false, false),
            (Some(false), true, true),
            (Some(true), false, true),
        ] {
            let found = unreadable.map(|is_deleting| found(Table::Kymas, "one", is_deleting));
            let unreadable = Unreadable { kyma: found, manifests: Vec::new() };
            assert_eq!(unreadable.holds(&kyma(is_deleting)), expected);
        }
    }

    #[test]
    fn a_manifest_names_its_module_and_keeps_the_runtime() {
        let unreadable = Unreadable { kyma: None, manifests: vec![found(Table::Manifests, "one-cache", false)] };
        let message = "Manifest kcp-system/one-cache cannot be read: spec: invalid type";
        assert_eq!(unreadable.modules(), BTreeMap::from([("cache", message.to_owned())]));
        assert_eq!(unreadable.keeps_from_removal(), Some(format!("the removal waits: {message}")));
        assert_eq!(Unreadable::default().keeps_from_removal(), None);
    }
    #[test]
    fn unreadable_objects_of_a_runtime_are_named_once_counted_and_checked_again() {
        let none = UnreadableObjects::among(&LiveObjects::new());
        assert_eq!((none.failure(), none.scope(Scope::Kyma), none.again()), (None, Scope::Kyma, None));
        let object = |name: &str, problem: Option<&str>| {
            let id = ObjectId::new("", "ConfigMap", "kyma-system", name);
            let metadata = Metadata { unreadable: problem.map(Into::into), ..fixtures::metadata(&id, "1") };
            (id, metadata)
        };
        let problem = Some("metadata.labels: invalid type, expected an object");
        for (live, more) in [
            (vec![object("a", None), object("b", problem)], ""),
            (vec![object("b", problem), object("c", problem), object("d", problem)], " (and 2 more)"),
        ] {
            let found = UnreadableObjects::among(&live.into_iter().collect());
            let expected = format!(
                "ConfigMap kyma-system/b in the runtime cannot be read: metadata.labels: invalid type, expected an \
                 object{more}; correct it; until then Tidegate does not delete it"
            );
            assert_eq!(found.failure().map(|failure| failure.message), Some(expected));
            assert_eq!(found.scope(Scope::Nothing), Scope::Everything);
            assert!(found.again().is_some());
            assert_eq!(found.count(), [("ConfigMap".to_owned(), if more.is_empty() { 1 } else { 3 })].into());
        }
    }
}
