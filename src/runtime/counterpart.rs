//! The Kyma in the runtime: read, written where it differs, and given a copy of the status.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;

use super::{Round, outcome::Failed};
use tidegate_cluster::{Cluster, Error, Kind};
use tidegate_core::{
    api::{
        Kyma,
        kyma::{KymaSpec, KymaStatus},
        names::{SKR_KYMA, SKR_NAMESPACE},
    },
    conditions,
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

/// What came of bringing the Kyma in the runtime to what it should be.
#[derive(Default)]
pub(super) struct Brought {
    /// What users had changed and what was taken back.
    pub(super) reverted: Vec<String>,
    /// When to look again.
    pub(super) again: Option<Duration>,
}

/// Creates it, or writes what differs.
pub(super) async fn bring(
    round: &Round<'_>,
    cluster: &Cluster,
    known: &mut Option<Arc<Kyma>>,
    left: &mut Option<KymaSpec>,
) -> Result<Brought, Failed> {
    let brought = write(round, cluster, known, left.as_ref()).await?;
    *left = known.as_ref().map(|kyma| kyma.spec.clone());
    Ok(brought)
}

/// `left` is the specification that an earlier pass left: where it still stands, what differs is news from KCP.
async fn write(
    round: &Round<'_>,
    cluster: &Cluster,
    known: &mut Option<Arc<Kyma>>,
    left: Option<&KymaSpec>,
) -> Result<Brought, Failed> {
    if known.as_ref().is_some_and(|kyma| kyma.metadata.deletion_timestamp.is_some()) {
        // It is created again once it is gone, which nothing tells us.
        *known = None;
        return Ok(Brought { again: Some(retry::DEPENDENCY_POLL), ..Brought::default() });
    }
    let library = round.context.library();
    let kyma = Arc::clone(round.kyma);
    let render = move |templates: &Templates| render::runtime_kyma(templates, &kyma, &kyma.spec);
    let desired = round.context.renderer.with(library.of(&round.kyma.metadata), render).await?;
    let kind = Kind::namespaced::<Kyma>();
    let id = kind.id(&key());
    match counterpart::write(&desired, round.kyma, known.as_deref()) {
        Write::Nothing => Ok(Brought::default()),
        Write::Create(object) => {
            let body = Bytes::from(object.value().to_string());
            match cluster.create(round.cause, &kind, &id, body).await {
                Ok(_) | Err(Error::Exists { .. }) => {}
                Err(error) => return Err(error.into()),
            }
            *known = read(cluster).await?;
            round.tell(Severity::Normal, reason::REMOTE_INSTALLATION, "Install", "the runtime has got its Kyma");
            Ok(Brought::default())
        }
        Write::Merge { patch, reverted } => {
            let untouched = known.as_ref().is_some_and(|kyma| Some(&kyma.spec) == left);
            let reverted = if untouched { Vec::new() } else { reverted };
            cluster.merge_patch(round.cause, &kind, &id, None, Bytes::from(patch.to_string())).await?;
            *known = read(cluster).await?;
            Ok(Brought { reverted, again: None })
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
        ![conditions::APPLIED, conditions::WATCH_APPLIED, conditions::RECONCILE_REQUESTED]
            .contains(&condition.type_.as_str())
    });
    for module in &mut shown.modules {
        module.manifest = None;
        if let Some(template) = &mut module.template {
            SKR_NAMESPACE.clone_into(&mut template.metadata.namespace);
        }
    }
    shown
}
