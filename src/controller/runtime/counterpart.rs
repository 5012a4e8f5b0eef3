//! The Kyma in the runtime: read, written where it differs, and given a copy of the status.

use std::sync::Arc;

use bytes::Bytes;

use super::{Round, outcome::Failed};
use crate::{
    api::{
        Kyma,
        kyma::KymaStatus,
        names::{SKR_KYMA, SKR_NAMESPACE},
    },
    cluster::{Cluster, Error, Kind},
    conditions,
    controller::{
        events::{Severity, reason},
        status_body,
    },
    counterpart::{self, Write},
    name::Key,
    render,
};

fn key() -> Key {
    Key::new(SKR_NAMESPACE, SKR_KYMA)
}

/// The Kyma in the runtime; none if there is none yet.
pub(super) async fn read(cluster: &Cluster) -> Result<Option<Arc<Kyma>>, Error> {
    let kyma: Option<Kyma> = cluster.get_as(&Kind::namespaced::<Kyma>(), &key()).await?;
    Ok(kyma.map(|mut kyma| {
        kyma.metadata.managed_fields = None;
        Arc::new(kyma)
    }))
}

/// Creates it, or writes what differs. Returns what users had changed and what was taken back.
pub(super) async fn bring(
    round: &Round<'_>,
    cluster: &Cluster,
    known: &mut Option<Arc<Kyma>>,
) -> Result<Vec<String>, Failed> {
    if known.as_ref().is_some_and(|kyma| kyma.metadata.deletion_timestamp.is_some()) {
        // It is created again once it is gone.
        *known = None;
        return Ok(Vec::new());
    }
    let library = round.context.library();
    let desired = render::runtime_kyma(library.of(&round.kyma.metadata), round.kyma, &round.kyma.spec)?;
    let kind = Kind::namespaced::<Kyma>();
    let id = kind.id(&key());
    match counterpart::write(&desired, round.kyma, known.as_deref()) {
        Write::Nothing => Ok(Vec::new()),
        Write::Create(object) => {
            let body = Bytes::from(object.value().to_string());
            match cluster.create(round.cause, &kind, &id, body).await {
                Ok(_) | Err(Error::Exists { .. }) => {}
                Err(error) => return Err(error.into()),
            }
            *known = read(cluster).await?;
            round.tell(Severity::Normal, reason::REMOTE_INSTALLATION, "Install", "the runtime has got its Kyma");
            Ok(Vec::new())
        }
        Write::Merge { patch, reverted } => {
            cluster.merge_patch(round.cause, &kind, &id, None, Bytes::from(patch.to_string())).await?;
            *known = read(cluster).await?;
            Ok(reverted)
        }
    }
}

/// Gives the Kyma in the runtime a copy of the status, if it has another.
pub(super) async fn show(
    round: &Round<'_>,
    cluster: &Cluster,
    status: &KymaStatus,
    known: &mut Option<Arc<Kyma>>,
) -> Result<(), Error> {
    let Some(kyma) = known else { return Ok(()) };
    let shown = copy(status);
    if kyma.status.as_ref() == Some(&shown) {
        return Ok(());
    }
    let kind = Kind::namespaced::<Kyma>();
    match cluster.apply_status(round.cause, &kind, &kind.id(&key()), status_body("Kyma", &key(), &shown)).await {
        Ok(_) => {}
        // It went while we looked elsewhere, by our own hand at the end of a runtime: nobody is left to be shown anything.
        Err(Error::NotFound { .. } | Error::NotServed { .. }) => {
            *known = None;
            return Ok(());
        }
        Err(error) => return Err(error),
    }
    let mut next = Kyma::clone(kyma);
    next.status = Some(shown);
    *known = Some(Arc::new(next));
    Ok(())
}

/// The status as users of the runtime see it: references lead to objects that they can see.
fn copy(status: &KymaStatus) -> KymaStatus {
    let mut shown = status.clone();
    shown.conditions.retain(|condition| {
        ![conditions::APPLIED, conditions::RECONCILE_REQUESTED].contains(&condition.type_.as_str())
    });
    for module in &mut shown.modules {
        module.manifest = None;
        if let Some(template) = &mut module.template {
            SKR_NAMESPACE.clone_into(&mut template.metadata.namespace);
        }
    }
    shown
}
