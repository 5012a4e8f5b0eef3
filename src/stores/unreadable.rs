//! Objects that exist in the control plane and do not match their type.
//!
//! They keep their last projection in the stores, if they had one. A reader that would take an object for gone must ask
//! here first: nothing may be deleted because an object cannot be read.

use std::sync::Arc;

use k8s_openapi::{api::core::v1::ObjectReference, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use tidegate_cluster::Unreadable;
use tidegate_core::{
    api::names::DEPLOYER,
    landscape::{self, SourceName},
    name::Key,
};

use super::{
    Stores, Table, Tables,
    change::{Change, Wake},
    kyma_of,
};
use crate::{
    controller::{
        Subject,
        events::{Event, Recorder, Severity, reason},
    },
    queue::Trigger,
};

/// An unreadable object of a table.
#[derive(Clone, Debug)]
pub struct UnreadableObject {
    /// Its table.
    pub table: Table,
    /// What is known of it.
    pub object: Arc<Unreadable>,
}

// === impl UnreadableObject ===

impl UnreadableObject {
    /// One sentence: which object, which field, and what is wrong with it.
    pub fn sentence(&self) -> String {
        sentence(self.table, &self.object)
    }
}

fn sentence(table: Table, object: &Unreadable) -> String {
    format!("{} {} cannot be read: {}", table.kind(), object.key(), object.problem)
}

impl Stores {
    /// Stores that an object cannot be read; `None` if it can be read again, or is gone.
    pub(crate) fn set_unreadable(&self, table: Table, key: &Key, found: Option<Arc<Unreadable>>) {
        let mut tables = self.tables();
        let entry = (table, key.clone());
        let before = match found.clone() {
            Some(found) => tables.unreadable.insert(entry, found),
            None => tables.unreadable.remove(&entry),
        };
        if let Some(metadata) = found.or(before).map(|object| object.metadata.clone()) {
            self.wake(&mut tables, &Change::Unreadable(table, Box::new(metadata)));
        }
    }

    /// All unreadable objects.
    pub fn unreadable(&self) -> Vec<UnreadableObject> {
        let found = |((table, _), object): (&(Table, Key), &Arc<Unreadable>)| UnreadableObject {
            table: *table,
            object: Arc::clone(object),
        };
        self.tables().unreadable.iter().map(found).collect()
    }

    /// Why an object cannot be read; `None` if it can, or does not exist.
    pub(crate) fn unreadable_object(&self, table: Table, key: &Key) -> Option<UnreadableObject> {
        let object = self.tables().unreadable.get(&(table, key.clone())).cloned()?;
        Some(UnreadableObject { table, object })
    }

    /// The unreadable Manifests of a Kyma.
    pub(crate) fn unreadable_manifests_of(&self, kyma: &Key) -> Vec<UnreadableObject> {
        let mut found = self.unreadable();
        found.retain(|found| found.table == Table::Manifests && kyma_of(&found.object.metadata).as_ref() == Some(kyma));
        found
    }

    /// An object of these tables in a namespace, or in any, that cannot be read and never could: nothing is known of
    /// its content.
    pub fn unknown(&self, wanted: &[Table], namespace: Option<&str>) -> Option<UnreadableObject> {
        self.all_unknown(wanted, namespace).into_iter().next()
    }

    /// All such objects.
    pub(crate) fn all_unknown(&self, wanted: &[Table], namespace: Option<&str>) -> Vec<UnreadableObject> {
        let tables = self.tables();
        let is_unknown = |((table, key), _): &(&(Table, Key), &Arc<Unreadable>)| {
            wanted.contains(table)
                && namespace.is_none_or(|namespace| key.namespace() == namespace)
                && !tables.has(*table, key)
        };
        let unknown = tables.unreadable.iter().filter(is_unknown);
        unknown.map(|((table, _), object)| UnreadableObject { table: *table, object: Arc::clone(object) }).collect()
    }

    /// Publishes an Event about every unreadable object. Called when this process begins to lead: Events of processes
    /// that do not lead are dropped.
    pub(crate) fn tell_unreadable(&self, events: &Recorder) {
        for found in self.unreadable() {
            tell(events, &found, self.effect(&found));
        }
    }

    /// Names an unreadable object in the log and, while this process works, in an Event.
    pub(super) fn report_unreadable(&self, events: &Recorder, found: &UnreadableObject) {
        let (kind, object, problem) = (found.table.kind(), found.object.key(), &found.object.problem);
        let effect = self.effect(found);
        tracing::warn!(kind, %object, problem, effect, "object cannot be read");
        if self.tables().started {
            tell(events, found, effect);
        }
    }

    /// What Tidegate uses instead of an unreadable object.
    pub(super) fn effect(&self, found: &UnreadableObject) -> &'static str {
        match found.table {
            // Their content is not in the stores.
            Table::RuntimeCrds | Table::RegistrySecret => MAY_STAY,
            table if self.tables().has(table, &found.object.key()) => "its last readable state stays in use",
            _ => "Tidegate has no readable state of it",
        }
    }
}

/// What Tidegate uses instead of an unreadable object, if it is not known whether it could be read before.
pub(crate) const MAY_STAY: &str = "what Tidegate has read of it before, if anything, stays in use";

fn tell(events: &Recorder, found: &UnreadableObject, effect: &str) {
    let metadata = &found.object.metadata;
    events.publish_event(Event {
        regarding: ObjectReference {
            api_version: Some(found.table.api_version().to_owned()),
            kind: Some(found.table.kind().to_owned()),
            name: metadata.name.clone(),
            namespace: metadata.namespace.clone(),
            uid: metadata.uid.clone(),
            ..ObjectReference::default()
        },
        severity: Severity::Warning,
        reason: reason::UNREADABLE,
        action: "Read",
        note: format!("{}; {effect}, and nothing is deleted because of it", found.sentence()),
    });
}

/// The subjects that depend on an object that has become unreadable, or is no longer.
pub(super) fn wakes(table: Table, metadata: &ObjectMeta, tables: &Tables) -> Vec<Wake> {
    let key = landscape::key(metadata);
    let trigger = Trigger::Changed;
    let mut wakes: Vec<Wake> = match table {
        Table::Sources => vec![Wake::Subject(Subject::Source(key), trigger)],
        Table::Kymas => vec![Wake::Subject(Subject::Runtime(key), trigger)],
        Table::Manifests | Table::Access => {
            kyma_of(metadata).map(|kyma| Wake::Subject(Subject::Runtime(kyma), trigger)).into_iter().collect()
        }
        Table::Templates | Table::Releases => vec![Wake::Catalog(key.namespace().to_owned(), trigger)],
        Table::Watchers => vec![Wake::Subject(Subject::Watcher(key), trigger), Wake::Runtimes(trigger)],
        Table::Gateways => vec![Wake::Runtimes(trigger)],
        Table::GatewaySecret | Table::Authority => tables
            .gateway()
            .map(|gateway| Wake::Subject(Subject::Gateway(gateway.clone()), trigger))
            .into_iter()
            .collect(),
        Table::SourceSecrets => vec![Wake::Module(DEPLOYER.to_owned(), trigger)],
        Table::Certificates
        | Table::CertificateSecrets
        | Table::PullSecret
        | Table::RuntimeCrds
        | Table::RegistrySecret
        | Table::KcpOperator => Vec::new(),
        Table::Setup(_) | Table::SetupObjects(_) => {
            let resources = tables.setup_of(key.namespace()).into_iter();
            resources.map(|(kind, key)| Wake::Subject(Subject::Setup(kind, key), trigger)).collect()
        }
    };
    // Its source must know that it is there.
    let owner = SourceName::from_metadata(metadata);
    wakes.extend(owner.map(|source| Wake::Subject(Subject::Source(source.key().clone()), trigger)));
    wakes
}
