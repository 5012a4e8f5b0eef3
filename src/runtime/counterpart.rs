//! The Kyma in the runtime: Tidegate reads it, writes differences, and copies the status of the Kyma in KCP to it.
//!
//! `state` is what is known of it, and `decide` what to do. This file sends the requests.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;

use super::{RuntimePass, outcome::Failed};
use tidegate_cluster::{Cluster, Error, Kind};
use tidegate_core::{
    api::{
        Kyma,
        kyma::KymaStatus,
        names::{SKR_KYMA, SKR_NAMESPACE},
    },
    counterpart::{self, Write},
    name::Key,
    render,
    template::Templates,
};
use tidegate_process::retry;

use crate::controller::{
    events::{Severity, reason},
    status_body,
};

mod decide;
mod state;

pub(super) use state::KnownCounterpart;

use decide::Start;

/// How often a Kyma in a runtime that cannot be read is read again. Its user may have corrected it.
const UNREADABLE_RETRY: Duration = Duration::from_secs(60);

fn key() -> Key {
    Key::new(SKR_NAMESPACE, SKR_KYMA)
}

/// Reads the Kyma in the runtime; none if it does not exist yet.
async fn read(cluster: &Cluster) -> Result<Option<Arc<Kyma>>, Error> {
    let kyma: Option<Kyma> = cluster.get_as(&Kind::namespaced::<Kyma>(), &key()).await?;
    Ok(kyma.map(|mut kyma| {
        kyma.metadata.managed_fields = None;
        Arc::new(kyma)
    }))
}

/// Reads the Kyma in the runtime, if it is not known or may have changed.
///
/// # Errors
///
/// The error of the request.
pub(super) async fn refresh(cluster: &Cluster, known: &mut KnownCounterpart, has_changed: bool) -> Result<(), Error> {
    if decide::must_read(known, has_changed) {
        match read(cluster).await {
            Ok(live) => {
                known.live = live;
                known.unreadable = None;
            }
            // What was read before still decides, and the Kyma is not written.
            Err(error @ Error::Answer { .. }) if known.live.is_some() => known.unreadable = Some(error.to_string()),
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// The Kyma in the runtime after a pass.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct CounterpartReport {
    /// The edits of users that were reverted.
    pub(super) reverted: Vec<String>,
    /// When to try again.
    pub(super) again: Option<Duration>,
}

/// Creates the Kyma in the runtime, or writes what differs.
///
/// # Errors
///
/// The error of a request, or of a template.
pub(super) async fn reconcile(
    pass: &RuntimePass<'_>,
    cluster: &Cluster,
    known: &mut KnownCounterpart,
) -> Result<CounterpartReport, Failed> {
    let report = match decide::start(known) {
        Start::AwaitEnd => {
            known.live = None;
            CounterpartReport { again: Some(retry::DEPENDENCY_POLL), ..CounterpartReport::default() }
        }
        Start::Write => write(pass, cluster, known).await?,
        Start::Leave => CounterpartReport { again: Some(UNREADABLE_RETRY), ..CounterpartReport::default() },
    };
    known.left = known.live.as_ref().map(|kyma| kyma.spec.clone());
    Ok(report)
}

async fn write(
    pass: &RuntimePass<'_>,
    cluster: &Cluster,
    known: &mut KnownCounterpart,
) -> Result<CounterpartReport, Failed> {
    let library = pass.context.library();
    let kyma = Arc::clone(pass.kyma);
    let render = move |templates: &Templates| render::runtime_kyma(templates, &kyma, &kyma.spec);
    let desired = pass.context.renderer.with(library.for_object(&pass.kyma.metadata), render).await?;
    let kind = Kind::namespaced::<Kyma>();
    let id = kind.id(&key());
    match counterpart::write(&desired, pass.kyma, known.live.as_deref()) {
        Write::Nothing => Ok(CounterpartReport::default()),
        Write::Create(object) => {
            let body = Bytes::from(object.value().to_string());
            match cluster.create(pass.cause, &kind, &id, body).await {
                Ok(_) | Err(Error::Exists { .. }) => {}
                Err(error) => return Err(error.into()),
            }
            known.live = read(cluster).await?;
            pass.publish(Severity::Normal, reason::REMOTE_INSTALLATION, "Install", "created the Kyma in the runtime");
            Ok(CounterpartReport::default())
        }
        Write::Merge { patch, reverted } => {
            let reverted = decide::reverted(known, reverted);
            cluster.merge_patch(pass.cause, &kind, &id, None, Bytes::from(patch.to_string())).await?;
            known.live = read(cluster).await?;
            Ok(CounterpartReport { reverted, again: None })
        }
    }
}

/// Copies the status to the Kyma in the runtime, if it differs.
///
/// # Errors
///
/// The error of the request.
pub(super) async fn show(
    pass: &RuntimePass<'_>,
    cluster: &Cluster,
    status: &KymaStatus,
    known: &mut KnownCounterpart,
) -> Result<(), Error> {
    let Some(shown) = decide::to_show(known, status) else { return Ok(()) };
    let kind = Kind::namespaced::<Kyma>();
    match cluster.apply_status(pass.cause, &kind, &kind.id(&key()), status_body("Kyma", &key(), &shown)).await {
        Ok(_) => known.shows(shown),
        // It has been deleted in the meantime, or its CRD has, which Tidegate deletes when it removes a runtime.
        Err(Error::NotFound { .. } | Error::NotServed { .. }) => known.live = None,
        Err(error) => return Err(error),
    }
    Ok(())
}
