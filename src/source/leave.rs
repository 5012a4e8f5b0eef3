//! The end of a GitSource: Tidegate deletes its objects or removes the ownership label, as `spec.deletionPolicy` says.
//!
//! A finalizer keeps the GitSource until then. An object that another source declares stays. If that source will take
//! it over, it keeps the label meanwhile: a label that names no GitSource protects nothing. Otherwise it loses the
//! label, because no source owns it from then on. Tidegate deletes nothing that a source might declare that has not
//! been read yet, nothing while the GitSource is suspended, and nothing at all before a user has confirmed what must be
//! confirmed when git removes it.
//!
//! A GitSource that goes with its definition or its namespace leaves its objects as they are, with the label, until a
//! user confirms that deletion. So a GitSource that comes back finds them again, and writes nothing.

mod decide;

use std::{collections::BTreeMap, sync::Arc};

use futures::{StreamExt, stream};
use serde_json::{Value, json};

use self::decide::Wait;
use super::{
    KnownSource, SourcePass,
    decide::{Parting, parting},
    failure,
    survey::served,
};
use tidegate_cluster::{self as cluster, Cause, Deleted, Metadata, OnConflict, Propagation, Target};
use tidegate_core::{
    api::{
        GitSource,
        git_source::DeletionPolicy,
        names::{finalizer, label},
    },
    definition::Kind,
    intake::{Id, Other, status::Kept},
    landscape::SourceName,
    name::Key,
    object::Gvk,
};
use tidegate_process::ambient;

use crate::{
    controller::{
        Failure, Pass,
        events::{Severity, reason},
        finalizers,
    },
    queue::Finish,
    stores::Origin,
};

/// Maximum number of requests at the same time; the end of a source need not be fast.
const REQUESTS_MAX: usize = 16;

/// Adds our finalizer to a GitSource, before any object gets its ownership label. Fails if KCP does not accept it.
pub(super) async fn guard(pass: &SourcePass<'_>) -> Result<(), Failure> {
    if is_guarded(pass.source) || pass.origin == Origin::CommandLine {
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

fn is_guarded(source: &GitSource) -> bool {
    source.metadata.finalizers.iter().flatten().any(|name| name == finalizer::SOURCE)
}

/// Deletes or releases all objects, then drops our finalizer. `kept` is what this process has of the source. Fails with
/// the first request that KCP does not accept.
pub(super) async fn run(pass: &SourcePass<'_>, known: &mut KnownSource, kept: Kept) -> Pass {
    if !is_guarded(pass.source) {
        return Ok(Finish::Done);
    }
    // Until it is known whether kcp-operator runs, the objects of kcp landscapes would be forgotten.
    if let Some(limit) = pass.ctx.stores.kcp_operator_doubt() {
        return Ok(Finish::Awaiting(limit));
    }
    let cause = Cause::trigger(&pass.triggers.to_string());
    let with_definition = is_definition_deleted(pass).await.map_err(failure)?;
    let hold = pass.ctx.stores.hold(pass.ctx.kcp, pass.key.namespace()).await;
    // It may be gone with its definition, and a new one with its name may be there: the watch shows that later. It is
    // read last: what exists after a definition was read that is not being deleted does not go with that definition.
    let live = pass.ctx.kcp.get_metadata(&cluster::Kind::namespaced::<GitSource>(), pass.key).await.map_err(failure)?;
    if live.map(|metadata| metadata.uid) != pass.source.metadata.uid {
        return Ok(Finish::Deferred);
    }
    if !decide::is_meant(with_definition, hold.as_ref()) {
        return drop_finalizer(pass, &cause).await;
    }
    let policy = pass.source.spec.deletion_policy.unwrap_or_default();
    let prune = policy == DeletionPolicy::Delete && !with_definition;
    let label_value = SourceName::new(pass.key.clone()).label_value();
    let others = pass.others();
    if prune && let Some(wait) = Wait::find(pass.source) {
        return waits(pass, known, &wait, kept).await;
    }
    // Read once: if it starts from here on, a write below fails, and the next pass waits.
    let has_operator = pass.ctx.stores.kcp_operator().borrow().is_some();
    let beside = || decide::beside_kcp_operator(&pass.ctx.stores.setup(), &SourceName::new(pass.key.clone()));
    if has_operator && let Some(wait) = beside() {
        return waits(pass, known, &wait, kept).await;
    }
    let mut owned: Vec<(Kind, Vec<Metadata>)> = Vec::new();
    let mut declared: Vec<(Kind, Metadata)> = Vec::new();
    for kind in pass.ctx.stores.applied_kinds(has_operator).into_iter().rev() {
        let labelled = list(pass, kind, &label_value).await.map_err(failure)?;
        let is_inherited = |one: &Metadata| decide::is_inherited(&(kind, one.key()), &others);
        let (inherited, ours): (Vec<_>, Vec<_>) = labelled.into_iter().partition(is_inherited);
        owned.push((kind, ours));
        declared.extend(inherited.into_iter().map(|one| (kind, one)));
    }
    let deleted = decide::deleted(&owned, prune);
    // Nothing is deleted before a user has confirmed all of it.
    if let Some(wait) = decide::unconfirmed(pass.source, &deleted, &pass.installed()) {
        return waits(pass, known, &wait, kept).await;
    }
    let declared = declared.iter().filter(|(kind, one)| !is_taken_over(pass, *kind, one, &others));
    for (kind, metadata) in declared {
        if !pass.may_write(*kind) {
            return Err(failure(kcp_operator_started(metadata)));
        }
        release(pass, &cause, *kind, metadata).await.map_err(failure)?;
    }
    for (kind, ours) in owned {
        let ids: Vec<Id> = ours.iter().map(|metadata| (kind, metadata.key())).collect();
        // What comes later is used by what waits.
        if prune && let Some(wait) = decide::unread(&ids, &others) {
            return waits(pass, known, &wait, kept).await;
        }
        let cause = &cause;
        let results: Vec<_> = stream::iter(ours)
            .map(|metadata| async move { delete_or_release(pass, cause, kind, &metadata, prune).await })
            .buffer_unordered(REQUESTS_MAX)
            .collect()
            .await;
        results.into_iter().collect::<Result<Vec<()>, _>>().map_err(failure)?;
    }
    drop_finalizer(pass, &cause).await
}

/// The objects of a kind with the ownership label.
async fn list(pass: &SourcePass<'_>, kind: Kind, label_value: &str) -> Result<Vec<Metadata>, cluster::Error> {
    let selector = format!("{}={label_value}", label::SOURCE);
    let mut labelled: Vec<Metadata> = Vec::new();
    for namespace in pass.ctx.namespaces {
        labelled.extend(pass.ctx.kcp.list_metadata(&served(kind), Some(namespace), Some(&selector)).await?);
    }
    Ok(labelled)
}

/// Whether a source that declares an object will take it over once this source is gone.
fn is_taken_over(pass: &SourcePass<'_>, kind: Kind, metadata: &Metadata, others: &BTreeMap<String, Other>) -> bool {
    let (id, name) = ((kind, metadata.key()), SourceName::new(pass.key.clone()));
    let loaded = others.values().filter(|other| !other.idle).filter_map(|other| pass.ctx.registry.loaded(&other.key));
    let mut claims = loaded.filter_map(|loaded| {
        let definition = loaded.definitions.good.get(&id)?;
        Some((Arc::clone(definition), loaded.declared.get(&id)?.adopt))
    });
    claims.any(|(definition, adopt)| decide::takes_over(&definition, adopt, &name, metadata))
}

/// Lets the GitSource go.
async fn drop_finalizer(pass: &SourcePass<'_>, cause: &Cause) -> Pass {
    let kind = cluster::Kind::namespaced::<GitSource>();
    let ours = [finalizer::SOURCE];
    let released = finalizers::release_known(pass.ctx.kcp, cause, &kind, &pass.source.metadata, &ours).await;
    released.map(|()| Finish::Done).map_err(failure)
}

/// Writes into the status what the end of the source waits for.
async fn waits(pass: &SourcePass<'_>, known: &mut KnownSource, wait: &Wait, kept: Kept) -> Pass {
    let status = wait.status(pass.source, kept, ambient::now());
    if decide::is_news(pass.source, &status) {
        let source = pass.key;
        tracing::warn!(%source, reason = wait.reason(), cause = wait.sentence(), "the end of a GitSource waits");
        pass.ctx.events.publish(pass.source, Severity::Warning, reason::PRUNE_WAITS, "Prune", wait.message());
    }
    pass.write(known, status).await?;
    Ok(wait.finish())
}

/// Whether the CustomResourceDefinition is being deleted, and the GitSource with it. Then no user asked to delete the
/// objects.
async fn is_definition_deleted(pass: &SourcePass<'_>) -> Result<bool, cluster::Error> {
    let gvk = Gvk::new("apiextensions.k8s.io", "v1", "CustomResourceDefinition");
    let kind = cluster::Kind::built_in(&gvk).expect("CustomResourceDefinition is a built-in kind");
    let found = pass.ctx.kcp.get_metadata(&kind, &Key::new("", "gitsources.tidegate.dev")).await?;
    Ok(found.is_none_or(|metadata| metadata.deleting))
}

/// Deletes an object, or removes its ownership label. Fails if kcp-operator has started meanwhile: the object stays,
/// and so does our finalizer.
async fn delete_or_release(
    pass: &SourcePass<'_>,
    cause: &Cause,
    kind: Kind,
    metadata: &Metadata,
    prune: bool,
) -> Result<(), cluster::Error> {
    if !pass.may_write(kind) {
        return Err(kcp_operator_started(metadata));
    }
    let served = served(kind);
    match parting(metadata, prune) {
        Parting::Release => release(pass, cause, kind, metadata).await,
        Parting::Delete => match pass.ctx.kcp.delete(cause, &served, metadata, Propagation::Background).await? {
            Deleted::Gone | Deleted::Terminating => Ok(()),
            // It may have lost our ownership label since the list. This pass fails, and the next one lists again.
            Deleted::Changed => Err(cluster::Error::Changed { target: Target::Object(metadata.id.clone()) }),
        },
    }
}

/// An object stays, because kcp-operator has started meanwhile.
fn kcp_operator_started(metadata: &Metadata) -> cluster::Error {
    cluster::Error::Changed { target: Target::Object(metadata.id.clone()) }
}

/// Removes the ownership label from an object. Our annotations stay: they prove nothing alone, and tell the same
/// GitSource, if it is applied again, that it has left this object. Fails if KCP does not accept that.
pub(super) async fn release(
    pass: &SourcePass<'_>,
    cause: &Cause,
    kind: Kind,
    metadata: &Metadata,
) -> Result<(), cluster::Error> {
    let body = json!({ "metadata": { "labels": { label::SOURCE: Value::Null } } });
    match pass.ctx.kcp.merge_patch(cause, &served(kind), &metadata.id, None, body.to_string().into()).await {
        Ok(_) | Err(cluster::Error::NotFound { .. }) => Ok(()),
        Err(error) => Err(error),
    }
}
