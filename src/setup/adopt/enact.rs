//! Enacts the writes of a take-over of kcp landscapes: one act, one request. Decides nothing.

use bytes::Bytes;
use tidegate_cluster::{Cause, Cluster, Error};
use tidegate_core::name::Key;

use super::{Act, decide::named};
use crate::setup::enact;

/// What became of a write.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Written {
    /// It was done.
    Done,
    /// The object has changed or gone since it was read.
    Outdated,
    /// The API server rejects it: one sentence.
    Rejected(String),
}

/// Sends a write. Fails if the request fails.
pub(crate) async fn enact(cluster: &Cluster, cause: &Cause, act: &Act) -> anyhow::Result<Written> {
    let (namespace, name) = act.place();
    let kind = name.0.kind();
    let written = match act {
        Act::Patch { patch, .. } => {
            let id = kind.id(&Key::new(namespace, &name.1));
            cluster.merge_patch(cause, &kind, &id, None, Bytes::from(patch.to_string())).await.map(drop)
        }
        Act::Claim(_, object) => cluster.take_claims_of_kcp_operator(cause, &kind, object).await,
        Act::Apply(_, object, on_conflict) => match enact::apply(cluster, cause, name, object, *on_conflict).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(sentence)) => return Ok(rejected(act, &sentence)),
            Err(error) => Err(error),
        },
    };
    match written {
        Ok(()) => Ok(Written::Done),
        Err(Error::Changed { .. } | Error::NotFound { .. }) => Ok(Written::Outdated),
        Err(error @ (Error::Invalid { .. } | Error::Forbidden { .. })) => Ok(rejected(act, &error.to_string())),
        Err(error) => Err(error.into()),
    }
}

fn rejected(act: &Act, sentence: &str) -> Written {
    Written::Rejected(format!("{} is not written: {sentence}", named(act.place())))
}
