//! The Kyma in the runtime: read, written where it differs, and given a copy of the status.

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

fn key() -> Key {
    Key::new(SKR_NAMESPACE, SKR_KYMA)
}

/// The Kyma in the runtime; none if there is none yet.
async fn read(cluster: &Cluster) -> Result<Option<Arc<Kyma>>, Error> {
    let kyma: Option<Kyma> = cluster.get_as(&Kind::namespaced::<Kyma>(), &key()).await?;
    Ok(kyma.map(|mut kyma| {
        kyma.metadata.managed_fields = None;
        Arc::new(kyma)
    }))
}

/// Reads it if it is not known, or if somebody says that it changed.
pub(super) async fn look(cluster: &Cluster, known: &mut KnownCounterpart, has_changed: bool) -> Result<(), Error> {
    if decide::must_read(known, has_changed) {
        known.live = read(cluster).await?;
    }
    Ok(())
}

/// What came of bringing the Kyma in the runtime to what it should be.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct CounterpartReport {
    /// What users had changed and what was taken back.
    pub(super) reverted: Vec<String>,
    /// When to look again.
    pub(super) again: Option<Duration>,
}

/// Creates it, or writes what differs.
pub(super) async fn bring(
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
            pass.tell(Severity::Normal, reason::REMOTE_INSTALLATION, "Install", "the runtime has got its Kyma");
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

/// Gives the Kyma in the runtime a copy of the status, if it has another.
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
        // It went while we looked elsewhere, or its definition did, by our own hand at the end of a runtime: nobody is
        // left to be shown anything.
        Err(Error::NotFound { .. } | Error::NotServed { .. }) => known.live = None,
        Err(error) => return Err(error),
    }
    Ok(())
}
