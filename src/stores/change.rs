//! Which change in KCP wakes which subjects: one pure function.
//!
//! What counts is what others want: spec, labels, annotations, the wish to be deleted. Our own status writes wake
//! nobody, with one exception: how a Manifest fares concerns its runtime at once, whoever wrote it.

use std::{collections::BTreeMap, sync::Arc};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;

use super::{AccessSecret, Tables, kyma_of};
use tidegate_core::{
    api::{GitSource, Kyma, Manifest, ModuleReleaseMeta, ModuleTemplate, Watcher, manifest::ManifestStatus, names},
    landscape::{self, SourceName},
    name::Key,
};

use crate::{controller::Subject, queue::Trigger};

/// What became of one object.
#[derive(Clone, Debug)]
pub struct Edit<K> {
    /// Which one.
    pub key: Key,
    /// As it was; `None` if it was not there.
    pub before: Option<Arc<K>>,
    /// As it is; `None` if it is gone.
    pub after: Option<Arc<K>>,
}

/// A change in KCP.
#[derive(Clone, Debug)]
pub enum Change {
    /// Of a GitSource.
    GitSource(Edit<GitSource>),
    /// Of a Kyma.
    Kyma(Edit<Kyma>),
    /// Of a Manifest.
    Manifest(Edit<Manifest>),
    /// Of a ModuleTemplate.
    ModuleTemplate(Edit<ModuleTemplate>),
    /// Of a ModuleReleaseMeta.
    ModuleReleaseMeta(Edit<ModuleReleaseMeta>),
    /// Of a Watcher.
    Watcher(Edit<Watcher>),
    /// Of an access Secret.
    Access {
        /// As it was.
        before: Option<AccessSecret>,
        /// As it is.
        after: Option<AccessSecret>,
    },
    /// Of an Istio Gateway.
    Gateways,
    /// Of a VirtualService.
    VirtualService(Key),
    /// Of the CA bundle that runtimes trust, or of the moment at which it last grew.
    CaBundle,
    /// Of the authority, or of what the gateway serves with.
    Gateway,
    /// Of the certificate of these runtimes, or of its Secret.
    Certificate(Vec<Key>),
    /// Of the Secret with which runtimes pull the agent's image.
    PullSecret,
}

/// Who is woken, and why.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Wake {
    /// A subject.
    Subject(Subject, Trigger),
    /// Every runtime, so many at a time.
    Runtimes(Trigger),
    /// Every runtime of a namespace, once the catalog has settled.
    Catalog(String, Trigger),
    /// A source that may refer to something of the catalog, once that has settled.
    Referring(Key),
}

/// Who is woken by a change; `tables` hold what stands after it. Sorted, each one once.
pub fn wakes(change: &Change, tables: &Tables) -> Vec<Wake> {
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
        Change::Manifest(edit) => manifest(edit, &mut wakes),
        Change::ModuleTemplate(edit) => {
            catalog(metadata(edit.before.as_ref()), metadata(edit.after.as_ref()), tables, &mut wakes);
        }
        Change::ModuleReleaseMeta(edit) => {
            catalog(metadata(edit.before.as_ref()), metadata(edit.after.as_ref()), tables, &mut wakes);
        }
        Change::Watcher(edit) => {
            let (before, after) = (metadata(edit.before.as_ref()), metadata(edit.after.as_ref()));
            if let Some(trigger) = intent(before, after) {
                wakes.push(Wake::Subject(Subject::Watcher(edit.key.clone()), trigger));
                // Of two that want one path, the other may have it now.
                wakes.extend(watchers(tables));
                // The webhook configuration in every runtime is made from all Watchers.
                wakes.push(Wake::Runtimes(trigger));
            }
            wakes.extend(owner_in_git(before, after));
        }
        Change::Access { before, after } => access(before.as_ref(), after.as_ref(), &mut wakes),
        // It is named like the Watcher that it is for.
        Change::VirtualService(key) => {
            let is_watchers = tables.watchers().any(|watcher| watcher == key);
            wakes.extend(is_watchers.then(|| Wake::Subject(Subject::Watcher(key.clone()), Trigger::Drift)));
        }
        Change::Gateways => {
            wakes.extend(watchers(tables));
            // The certificate of a listener of our own names their hosts.
            wakes.extend(gateway(tables));
            // Agents send to the host of one of them.
            wakes.push(Wake::Runtimes(Trigger::Event));
        }
        Change::Gateway => wakes.extend(gateway(tables)),
        Change::Certificate(kymas) => {
            wakes.extend(kymas.iter().map(|kyma| Wake::Subject(Subject::Runtime(kyma.clone()), Trigger::Event)));
        }
        Change::CaBundle | Change::PullSecret => wakes.push(Wake::Runtimes(Trigger::Event)),
    }
    wakes.sort();
    wakes.dedup();
    wakes
}

fn gateway(tables: &Tables) -> impl Iterator<Item = Wake> {
    tables.gateway().map(|gateway| Wake::Subject(Subject::Gateway(gateway.clone()), Trigger::Event)).into_iter()
}

fn watchers(tables: &Tables) -> impl Iterator<Item = Wake> {
    tables.watchers().map(|watcher| Wake::Subject(Subject::Watcher(watcher.clone()), Trigger::Event))
}

/// Why a change concerns the controller of the object itself; `None` if only its status or bookkeeping changed.
fn intent(before: Option<&ObjectMeta>, after: Option<&ObjectMeta>) -> Option<Trigger> {
    let (Some(before), Some(after)) = (before, after) else {
        return before.or(after).map(|metadata| if digest(metadata).is_some() { Trigger::Git } else { Trigger::Event });
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
        // While an object is being deleted, others' finalizers are what is waited for.
        || (deleting && before.finalizers != after.finalizers);
    changed.then_some(Trigger::Event)
}

/// An object that git declares was changed or deleted by somebody else: its source must look.
///
/// Our own applies carry a new digest, so they do not wake the source that made them.
fn owner_in_git(before: Option<&ObjectMeta>, after: Option<&ObjectMeta>) -> Option<Wake> {
    let before = before?;
    let source = SourceName::of(before)?;
    let untouched = after.is_some_and(|after| {
        digest(before) != digest(after)
            || (before.generation == after.generation
                && before.deletion_timestamp.is_some() == after.deletion_timestamp.is_some()
                && same(before.labels.as_ref(), after.labels.as_ref())
                && same(before.annotations.as_ref(), after.annotations.as_ref()))
    });
    (!untouched).then(|| Wake::Subject(Subject::Source(source.key().clone()), Trigger::Drift))
}

/// Every runtime of the namespace may use it, or sees it; and sources other than its own may refer to it.
fn catalog(before: Option<&ObjectMeta>, after: Option<&ObjectMeta>, tables: &Tables, wakes: &mut Vec<Wake>) {
    if let Some(trigger) = intent(before, after) {
        let namespace = after.or(before).and_then(|metadata| metadata.namespace.clone()).unwrap_or_default();
        wakes.push(Wake::Catalog(namespace, trigger));
        let own = after.or(before).and_then(SourceName::of);
        let others = tables.sources().filter(|key| own.as_ref().is_none_or(|own| own.key() != *key));
        wakes.extend(others.cloned().map(Wake::Referring));
    }
    wakes.extend(owner_in_git(before, after));
}

fn manifest(edit: &Edit<Manifest>, wakes: &mut Vec<Wake>) {
    let (before, after) = (metadata(edit.before.as_ref()), metadata(edit.after.as_ref()));
    let trigger = intent(before, after);
    let outcome =
        |manifest: Option<&Arc<Manifest>>| manifest.and_then(|manifest| manifest.status.as_ref()).map(outcome);
    let fares_otherwise = outcome(edit.before.as_ref()) != outcome(edit.after.as_ref());
    // A Manifest whose label names another Kyma concerns both.
    for kyma in [before, after].into_iter().flatten().filter_map(kyma_of) {
        if let Some(trigger) = trigger.or(fares_otherwise.then_some(Trigger::Event)) {
            wakes.push(Wake::Subject(Subject::Runtime(kyma), trigger));
        }
    }
}

/// What a runtime reads from the status of its Manifests; the inventory is none of its business.
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

/// The runtimes that the Secret opened and opens.
fn access(before: Option<&AccessSecret>, after: Option<&AccessSecret>, wakes: &mut Vec<Wake>) {
    if before != after {
        let kymas = [before, after].into_iter().flatten().map(|access| access.kyma.clone());
        wakes.extend(kymas.map(|kyma| Wake::Subject(Subject::Runtime(kyma), Trigger::Event)));
    }
}

fn digest(metadata: &ObjectMeta) -> Option<&str> {
    landscape::annotation(metadata, names::annotation::DIGEST)
}

/// Equal texts; an absent map is an empty one.
fn same(left: Option<&BTreeMap<String, String>>, right: Option<&BTreeMap<String, String>>) -> bool {
    let empty = BTreeMap::new();
    left.unwrap_or(&empty) == right.unwrap_or(&empty)
}

fn metadata<K: Resource>(object: Option<&Arc<K>>) -> Option<&ObjectMeta> {
    object.map(|object| object.meta())
}
