//! When a GitSource is deleted: its objects stay without its mark, or go, as it says.
//!
//! A finalizer holds the GitSource until then. What another source declares is left alone, mark and all: the mark of a
//! source that is gone holds nothing, so the other takes the object over without a delete. Nothing is deleted before all
//! other sources have been read, nor while the GitSource is suspended.

use std::collections::BTreeMap;

use futures::{StreamExt, stream};
use serde_json::{Value, json};

use super::{
    Progress, SourcePass,
    decide::{self, Parting},
    failure,
    survey::served,
};
use tidegate_cluster::{self as cluster, Cause, Deleted, Metadata, OnConflict, Propagation, Target};
use tidegate_core::{
    api::{
        GitSource,
        git_source::DeletionPolicy,
        names::{annotation, finalizer, label},
    },
    definition::Kind,
    intake::{Id, Other, status},
    landscape::SourceName,
    name::Key,
    object::Gvk,
};
use tidegate_process::{ambient, retry::Class};

use crate::{
    controller::{Failure, Pass, finalizers},
    queue::Finish,
    stores::Origin,
};

/// Requests under way at once; leaving need not be fast.
const PARALLEL: usize = 16;
/// A status names at most this many sources.
const NAMED_MAX: usize = 10;

/// Puts the finalizer on a GitSource, before anything bears its mark.
pub(super) async fn guard(pass: &SourcePass<'_>) -> Result<(), Failure> {
    let guarded = pass.source.metadata.finalizers.iter().flatten().any(|name| name == finalizer::SOURCE);
    if guarded || pass.origin == Origin::CommandLine {
        return Ok(());
    }
    let kind = cluster::Kind::namespaced::<GitSource>();
    let body = json!({
        "apiVersion": kind.gvk.api_version(),
        "kind": &*kind.gvk.kind,
        "metadata": {
            "name": pass.key.name(),
            "namespace": pass.key.namespace(),
            "uid": pass.source.metadata.uid,
            "finalizers": [finalizer::SOURCE],
        },
    });
    let cause = Cause::trigger(&pass.triggers.to_string());
    let applied =
        pass.ctx.kcp.apply(&cause, &kind, &kind.id(pass.key), body.to_string().into(), OnConflict::Report).await;
    applied.map(drop).map_err(failure)
}

/// Lets go of everything, then of the GitSource.
pub(super) async fn run(pass: &SourcePass<'_>, progress: &mut Progress) -> Pass {
    if !pass.source.metadata.finalizers.iter().flatten().any(|name| name == finalizer::SOURCE) {
        return Ok(Finish::Done);
    }
    let cause = Cause::trigger(&pass.triggers.to_string());
    let policy = pass.source.spec.deletion_policy.unwrap_or_default();
    let prune = policy == DeletionPolicy::Delete && !definition_goes(pass).await.map_err(failure)?;
    let label_value = SourceName::new(pass.key.clone()).label_value();
    let others = pass.others();
    if prune && let Some(wait) = Wait::find(pass.source, &others) {
        let status = status::not_ready(pass.source, wait.reason(), &wait.message(), ambient::now());
        pass.write(progress, status).await?;
        return Ok(wait.finish());
    }
    let selector = format!("{}={label_value}", label::SOURCE);
    for kind in Kind::ALL.into_iter().rev() {
        let mut ours: Vec<Metadata> = Vec::new();
        for namespace in pass.ctx.namespaces {
            let marked = pass.ctx.kcp.list_metadata(&served(kind), Some(namespace), Some(&selector)).await;
            ours.extend(marked.map_err(failure)?.into_iter().filter(|metadata| !is_inherited(kind, metadata, &others)));
        }
        let cause = &cause;
        let results: Vec<_> = stream::iter(ours)
            .map(|metadata| async move { let_go(pass, cause, kind, &metadata, prune).await })
            .buffer_unordered(PARALLEL)
            .collect()
            .await;
        results.into_iter().collect::<Result<Vec<()>, _>>().map_err(failure)?;
    }
    let kind = cluster::Kind::namespaced::<GitSource>();
    let ours = [finalizer::SOURCE];
    let released = finalizers::release_known(pass.ctx.kcp, &cause, &kind, &pass.source.metadata, &ours).await;
    released.map(|()| Finish::Done).map_err(failure)
}

/// Why nothing is deleted yet.
enum Wait {
    /// The GitSource is suspended.
    Suspended,
    /// These sources have not been read: one of them might declare what would be deleted.
    Unread(Vec<Key>),
}

// === impl Wait ===

impl Wait {
    fn find(source: &GitSource, others: &BTreeMap<String, Other>) -> Option<Wait> {
        let unread = others.values().filter(|other| !other.idle && other.declares.is_none());
        let unread: Vec<Key> = unread.map(|other| other.key.clone()).collect();
        match (source.spec.suspend, unread.is_empty()) {
            (true, _) => Some(Wait::Suspended),
            (false, false) => Some(Wait::Unread(unread)),
            (false, true) => None,
        }
    }

    fn reason(&self) -> &'static str {
        match self {
            Wait::Suspended => "Suspended",
            Wait::Unread(_) => "PruneWaits",
        }
    }

    fn message(&self) -> String {
        match self {
            Wait::Suspended => "the source is suspended: its objects are deleted once it is resumed, and stay if \
                                spec.deletionPolicy says Orphan"
                .to_owned(),
            Wait::Unread(sources) => {
                let names: Vec<String> = sources.iter().take(NAMED_MAX).map(ToString::to_string).collect();
                format!("nothing is deleted before these sources have been read: {}", names.join(", "))
            }
        }
    }

    fn finish(&self) -> Finish {
        match self {
            // Resuming it is an event.
            Wait::Suspended => Finish::Done,
            Wait::Unread(_) => Finish::Failed(Class::Waiting),
        }
    }
}

/// Whether our CustomResourceDefinition is being deleted, and the GitSource only goes along: then nobody has asked for
/// its objects to go.
async fn definition_goes(pass: &SourcePass<'_>) -> Result<bool, cluster::Error> {
    let gvk = Gvk::new("apiextensions.k8s.io", "v1", "CustomResourceDefinition");
    let kind = cluster::Kind::built_in(&gvk).expect("CustomResourceDefinition is a built-in kind");
    let found = pass.ctx.kcp.get_metadata(&kind, &Key::new("", "gitsources.tidegate.dev")).await?;
    Ok(found.is_none_or(|metadata| metadata.deleting))
}

/// Whether another source that has been read declares the object.
fn is_inherited(kind: Kind, metadata: &Metadata, others: &BTreeMap<String, Other>) -> bool {
    let id: Id = (kind, metadata.key());
    others.values().any(|other| !other.idle && other.declares.as_ref().is_some_and(|ids| ids.contains(&id)))
}

async fn let_go(
    pass: &SourcePass<'_>,
    cause: &Cause,
    kind: Kind,
    metadata: &Metadata,
    prune: bool,
) -> Result<(), cluster::Error> {
    let served = served(kind);
    match decide::parting(metadata, prune) {
        Parting::Unmark => unmark(pass, cause, kind, metadata).await,
        Parting::Delete => match pass.ctx.kcp.delete(cause, &served, metadata, Propagation::Background).await? {
            Deleted::Gone | Deleted::Terminating => Ok(()),
            // It has changed since the list, and may bear our mark no more: this pass fails, and the next one lists again.
            Deleted::Changed => Err(cluster::Error::Changed { target: Target::Object(metadata.id.clone()) }),
        },
    }
}

/// Takes the marks of a source off an object.
pub(super) async fn unmark(
    pass: &SourcePass<'_>,
    cause: &Cause,
    kind: Kind,
    metadata: &Metadata,
) -> Result<(), cluster::Error> {
    let body = json!({ "metadata": {
        "labels": { label::SOURCE: Value::Null },
        "annotations": {
            annotation::SOURCE: Value::Null,
            annotation::PATH: Value::Null,
            annotation::DIGEST: Value::Null,
            annotation::MODULE_TREE: Value::Null,
        },
    }});
    match pass.ctx.kcp.merge_patch(cause, &served(kind), &metadata.id, None, body.to_string().into()).await {
        Ok(_) | Err(cluster::Error::NotFound { .. }) => Ok(()),
        Err(error) => Err(error),
    }
}
