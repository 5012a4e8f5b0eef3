//! Decides which change in KCP wakes which subjects. Pure.
//!
//! Changes of what others request count: spec, labels, annotations and the deletion timestamp. Tidegate's own status
//! writes wake no subject, with one exception: a change of a Manifest's state wakes its runtime at once, no matter who
//! wrote it.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;

use super::{AccessSecret, Table, Tables, kyma_of, mandatory_release_of, template_of, unreadable};
use tidegate_core::{
    api::{
        GitSource, Kyma, Manifest, ModuleReleaseMeta, ModuleTemplate, Watcher, manifest::ManifestStatus, names, setup,
    },
    landscape::{self, SourceName},
    name::Key,
    plan::is_mandatory_release,
};

use crate::{controller::Subject, queue::Trigger};

/// The change of one object.
#[derive(Clone, Debug)]
pub struct Edit<K> {
    /// The object's key.
    pub key: Key,
    /// The object before; `None` if it did not exist.
    pub before: Option<Arc<K>>,
    /// The object now; `None` if it is gone.
    pub after: Option<Arc<K>>,
}

/// A change in KCP.
#[derive(Clone, Debug)]
pub enum Change {
    /// A GitSource changed.
    GitSource(Edit<GitSource>),
    /// A Kyma changed.
    Kyma(Edit<Kyma>),
    /// A Manifest changed.
    Manifest(Edit<Manifest>),
    /// A ModuleTemplate changed.
    ModuleTemplate(Edit<ModuleTemplate>),
    /// A ModuleReleaseMeta changed.
    ModuleReleaseMeta(Edit<ModuleReleaseMeta>),
    /// A Watcher changed.
    Watcher(Edit<Watcher>),
    /// An access Secret changed.
    Access {
        /// The Secret before.
        before: Option<Arc<AccessSecret>>,
        /// The Secret now.
        after: Option<Arc<AccessSecret>>,
    },
    /// An Istio Gateway changed.
    Gateways,
    /// A VirtualService changed.
    VirtualService(Key),
    /// The CA bundle that runtimes trust changed, or the time of its last addition.
    CaBundle,
    /// The CA or the gateway's Secret changed.
    Gateway,
    /// The certificates of these runtimes, or their Secrets, changed.
    Certificate(Vec<Key>),
    /// The image pull Secret of runtimes changed.
    PullSecret,
    /// A Secret whose data Secrets of a module get changed.
    SourceSecret,
    /// A CRD that runtimes get changed.
    RuntimeCrds,
    /// A resource of a kcp landscape changed. Contains its metadata before and now.
    Setup(Edit<ObjectMeta>),
    /// The control plane serves other kinds of kcp landscapes than before.
    SetupServed,
    /// kcp-operator has begun or ended to run.
    KcpOperator,
    /// An object of a kcp landscape changed, or a Secret or ConfigMap. Contains the resources that depend on it.
    SetupObject(BTreeSet<(setup::Kind, Key)>),
    /// An object with this metadata has become unreadable, or is no longer.
    Unreadable(Table, Box<ObjectMeta>),
}

/// A subject to wake, and the trigger.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Wake {
    /// One subject.
    Subject(Subject, Trigger),
    /// Every runtime, a limited number at a time.
    Runtimes(Trigger),
    /// Every runtime with a Manifest of this module, a limited number at a time.
    Module(String, Trigger),
    /// Every runtime of a namespace, after the catalog has settled.
    Catalog(String, Trigger),
    /// A source that may refer to something in the catalog, after that has settled.
    Referring(Key),
}

/// The subjects that a change wakes, sorted and unique. `tables` contain the state after the change.
pub(crate) fn wakes(change: &Change, tables: &Tables) -> Vec<Wake> {
    let mut wakes = Vec::new();
    match change {
        Change::GitSource(edit) => {
            let trigger = intent(metadata(edit.before.as_ref()), metadata(edit.after.as_ref()));
            wakes.extend(trigger.map(|trigger| Wake::Subject(Subject::Source(edit.key.clone()), trigger)));
        }
        Change::Kyma(edit) => {
            let (before, after) = (metadata(edit.before.as_ref()), metadata(edit.after.as_ref()));
            let trigger = intent(before, after);
            wakes.extend(trigger.map(|trigger| Wake::Subject(Subject::Runtime(edit.key.clone()), trigger)));
            wakes.extend(owner_in_git(before, after));
        }
        Change::Manifest(edit) => manifest(edit, tables, &mut wakes),
        Change::ModuleTemplate(edit) => {
            catalog(metadata(edit.before.as_ref()), metadata(edit.after.as_ref()), tables, &mut wakes);
        }
        Change::ModuleReleaseMeta(edit) => {
            let (before, after) = (metadata(edit.before.as_ref()), metadata(edit.after.as_ref()));
            catalog(before, after, tables, &mut wakes);
            if edit.after.as_ref().is_some_and(|release| is_mandatory_release(release)) {
                let trigger = intent(before, after);
                wakes.extend(trigger.map(|trigger| Wake::Subject(Subject::Release(edit.key.clone()), trigger)));
            }
        }
        Change::Watcher(edit) => {
            let (before, after) = (metadata(edit.before.as_ref()), metadata(edit.after.as_ref()));
            if let Some(trigger) = intent(before, after) {
                wakes.push(Wake::Subject(Subject::Watcher(edit.key.clone()), trigger));
                // If two Watchers want one path, the other may get it now.
                wakes.extend(watchers(tables));
                // The webhook configuration in every runtime depends on all Watchers.
                wakes.push(Wake::Runtimes(trigger));
            }
            wakes.extend(owner_in_git(before, after));
        }
        Change::Access { before, after } => access(before.as_deref(), after.as_deref(), &mut wakes),
        // It has the name of its Watcher.
        Change::VirtualService(key) => {
            let is_watchers = tables.watchers().any(|watcher| watcher == key);
            wakes.extend(is_watchers.then(|| Wake::Subject(Subject::Watcher(key.clone()), Trigger::Drift)));
        }
        Change::Gateways => {
            wakes.extend(watchers(tables));
            // The certificate of Tidegate's own listener contains the Gateways' hosts.
            wakes.extend(gateway(tables));
            // Agents send to a host of a Gateway.
            wakes.push(Wake::Runtimes(Trigger::Changed));
        }
        Change::Gateway => wakes.extend(gateway(tables)),
        Change::Certificate(kymas) => {
            wakes.extend(kymas.iter().map(|kyma| Wake::Subject(Subject::Runtime(kyma.clone()), Trigger::Changed)));
        }
        Change::CaBundle | Change::PullSecret | Change::RuntimeCrds => wakes.push(Wake::Runtimes(Trigger::Changed)),
        Change::Setup(edit) => {
            // References go both ways: a root shard lists its shards, and a shard reads its root shard.
            let trigger = intent(edit.before.as_deref(), edit.after.as_deref());
            let all = tables.setup_of(edit.key.namespace());
            wakes.extend(trigger.into_iter().flat_map(|trigger| {
                all.iter().map(move |(kind, key)| Wake::Subject(Subject::Setup(*kind, key.clone()), trigger))
            }));
            wakes.extend(owner_in_git(edit.before.as_deref(), edit.after.as_deref()));
        }
        Change::SetupServed => {
            wakes.extend(tables.sources().map(|key| Wake::Subject(Subject::Source(key.clone()), Trigger::Changed)));
        }
        Change::KcpOperator => {
            wakes.extend(tables.sources().map(|key| Wake::Subject(Subject::Source(key.clone()), Trigger::Changed)));
            let subjects = tables.setup_ids().map(|(kind, key)| Subject::Setup(kind, key.clone()));
            wakes.extend(subjects.map(|subject| Wake::Subject(subject, Trigger::Changed)));
        }
        Change::SetupObject(resources) => {
            let subjects = resources.iter().map(|(kind, key)| Subject::Setup(*kind, key.clone()));
            wakes.extend(subjects.map(|subject| Wake::Subject(subject, Trigger::Changed)));
        }
        Change::SourceSecret => wakes.push(Wake::Module(names::DEPLOYER.to_owned(), Trigger::Changed)),
        Change::Unreadable(table, metadata) => wakes.extend(unreadable::wakes(*table, metadata, tables)),
    }
    wakes.sort();
    wakes.dedup();
    wakes
}

fn gateway(tables: &Tables) -> impl Iterator<Item = Wake> {
    tables.gateway().map(|gateway| Wake::Subject(Subject::Gateway(gateway.clone()), Trigger::Changed)).into_iter()
}

fn watchers(tables: &Tables) -> impl Iterator<Item = Wake> {
    tables.watchers().map(|watcher| Wake::Subject(Subject::Watcher(watcher.clone()), Trigger::Changed))
}

/// Why a change concerns the controller of the object itself; `None` if only its status or bookkeeping changed.
fn intent(before: Option<&ObjectMeta>, after: Option<&ObjectMeta>) -> Option<Trigger> {
    let (Some(before), Some(after)) = (before, after) else {
        return before
            .or(after)
            .map(|metadata| if digest(metadata).is_some() { Trigger::Git } else { Trigger::Changed });
    };
    let requested = |metadata| landscape::annotation(metadata, names::annotation::RECONCILE_REQUESTED_AT);
    if digest(before) != digest(after) {
        return Some(Trigger::Git);
    }
    if requested(before) != requested(after) {
        return Some(Trigger::Requested);
    }
    let deleting = after.deletion_timestamp.is_some();
    let changed = before.uid != after.uid
        || before.generation != after.generation
        || before.deletion_timestamp.is_some() != deleting
        || !same(before.labels.as_ref(), after.labels.as_ref())
        || !same(before.annotations.as_ref(), after.annotations.as_ref())
        // While an object is being deleted, Tidegate waits for the finalizers of others.
        || (deleting && before.finalizers != after.finalizers);
    changed.then_some(Trigger::Changed)
}

/// Wakes the source of an object that another program changed or deleted.
///
/// Tidegate's own applies have a new digest, so they do not wake their own source. An object of another client that
/// replaces one of git has no digest, or another UID.
fn owner_in_git(before: Option<&ObjectMeta>, after: Option<&ObjectMeta>) -> Option<Wake> {
    let before = before?;
    let source = SourceName::from_metadata(before)?;
    let untouched = after.is_some_and(|after| {
        let is_own_apply = || digest(after).is_some() && digest(before) != digest(after) && before.uid == after.uid;
        is_own_apply()
            || (before.generation == after.generation
                && before.deletion_timestamp.is_some() == after.deletion_timestamp.is_some()
                && same(before.labels.as_ref(), after.labels.as_ref())
                && same(before.annotations.as_ref(), after.annotations.as_ref()))
    });
    (!untouched).then(|| Wake::Subject(Subject::Source(source.key().clone()), Trigger::Drift))
}

/// Wakes every runtime of the namespace, because it may use the object, and other sources that may refer to it.
fn catalog(before: Option<&ObjectMeta>, after: Option<&ObjectMeta>, tables: &Tables, wakes: &mut Vec<Wake>) {
    if let Some(trigger) = intent(before, after) {
        let namespace = after.or(before).and_then(|metadata| metadata.namespace.clone()).unwrap_or_default();
        wakes.push(Wake::Catalog(namespace, trigger));
        let own = after.or(before).and_then(SourceName::from_metadata);
        let others = tables.sources().filter(|key| own.as_ref().is_none_or(|own| own.key() != *key));
        wakes.extend(others.cloned().map(Wake::Referring));
    }
    wakes.extend(owner_in_git(before, after));
}

fn manifest(edit: &Edit<Manifest>, tables: &Tables, wakes: &mut Vec<Wake>) {
    let (before, after) = (metadata(edit.before.as_ref()), metadata(edit.after.as_ref()));
    // Its finalizer waits for the last Manifest of its module.
    if let Some(release) = before.and_then(mandatory_release_of)
        && after.and_then(mandatory_release_of).as_ref() != Some(&release)
        && tables.is_mandatory_release(&release)
    {
        wakes.push(Wake::Subject(Subject::Release(release), Trigger::Changed));
    }
    // A source may wait to prune the version that no runtime has any more.
    let template = |manifest: Option<&Arc<Manifest>>| manifest.and_then(|manifest| template_of(manifest));
    if let Some(left) =
        template(edit.before.as_ref()).filter(|left| template(edit.after.as_ref()).as_ref() != Some(left))
    {
        let awaiting = tables.awaiting(&left).filter(|_| !tables.is_installed(&left));
        wakes.extend(awaiting.map(|source| Wake::Subject(Subject::Source(source.clone()), Trigger::Changed)));
    }
    let trigger = intent(before, after);
    let outcome =
        |manifest: Option<&Arc<Manifest>>| manifest.and_then(|manifest| manifest.status.as_ref()).map(outcome);
    let fares_otherwise = outcome(edit.before.as_ref()) != outcome(edit.after.as_ref());
    // If the label of a Manifest changes from one Kyma to another, wake both.
    for kyma in [before, after].into_iter().flatten().filter_map(kyma_of) {
        if let Some(trigger) = trigger.or(fares_otherwise.then_some(Trigger::Changed)) {
            wakes.push(Wake::Subject(Subject::Runtime(kyma), trigger));
        }
    }
}

/// The part of a Manifest's status that its runtime reads. The inventory does not matter.
fn outcome(status: &ManifestStatus) -> impl PartialEq + use<> {
    let conditions: Vec<_> = status
        .conditions
        .iter()
        .map(|condition| {
            (condition.type_.clone(), condition.status.clone(), condition.reason.clone(), condition.message.clone())
        })
        .collect();
    let operation = status.last_operation.as_ref().map(|last| last.operation.clone());
    (status.state, conditions, operation)
}

/// Wakes the runtimes that the Secret named before and names now.
fn access(before: Option<&AccessSecret>, after: Option<&AccessSecret>, wakes: &mut Vec<Wake>) {
    if before != after {
        let kymas = [before, after].into_iter().flatten().map(|access| access.kyma.clone());
        wakes.extend(kymas.map(|kyma| Wake::Subject(Subject::Runtime(kyma), Trigger::Changed)));
    }
}

fn digest(metadata: &ObjectMeta) -> Option<&str> {
    landscape::annotation(metadata, names::annotation::DIGEST)
}

/// Compares two maps; a missing map equals an empty one.
fn same(left: Option<&BTreeMap<String, String>>, right: Option<&BTreeMap<String, String>>) -> bool {
    let empty = BTreeMap::new();
    left.unwrap_or(&empty) == right.unwrap_or(&empty)
}

fn metadata<K: Resource>(object: Option<&Arc<K>>) -> Option<&ObjectMeta> {
    object.map(|object| object.meta())
}
