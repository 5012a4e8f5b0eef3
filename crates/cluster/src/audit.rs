//! One structured record for each write, under the tracing target `tidegate::audit`.

use std::sync::Arc;

use http::StatusCode;

use super::{ClusterName, Error, Verb};
use tidegate_core::{diagnostic::FilePosition, object::ObjectId};

/// The reason for a write. The audit record contains it together with cluster, verb and object. Cheap to clone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cause {
    /// The git revision that caused the write.
    pub revision: Option<Arc<str>>,
    /// The file and line that caused the write.
    pub place: Option<FilePosition>,
    /// The triggers of the pass: `event`, `requested`, `git`, `drift`, `resync`, `retry`, in priority order, joined by
    /// `+`. For a Kubernetes Event that a pass emits: `report`.
    pub trigger: Option<Arc<str>>,
}

// === impl Cause ===

impl Cause {
    /// A cause with this trigger.
    pub fn trigger(trigger: &str) -> Cause {
        Cause { trigger: Some(trigger.into()), ..Cause::default() }
    }

    /// The same cause with a revision.
    #[must_use]
    pub fn revision(&self, revision: impl Into<Arc<str>>) -> Cause {
        Cause { revision: Some(revision.into()), ..self.clone() }
    }

    /// The same cause with a file and line.
    #[must_use]
    pub fn place(&self, place: Option<FilePosition>) -> Cause {
        Cause { place: place.or_else(|| self.place.clone()), ..self.clone() }
    }
}

/// Records a write that was answered or that failed.
pub(super) fn record(
    cluster: &ClusterName,
    verb: Verb,
    object: &ObjectId,
    cause: &Cause,
    result: Result<StatusCode, &Error>,
) {
    let message = message(result);
    let status =
        result.map_or_else(Error::reason, |status| if status == StatusCode::CREATED { "Created" } else { "Ok" });
    macro_rules! record_at {
        ($level:ident) => {
            tracing::$level!(
                target: "tidegate::audit",
                %cluster,
                verb = verb.as_str(),
                %object,
                result = status,
                revision = cause.revision.as_deref(),
                place = cause.place.as_ref().map(tracing::field::display),
                trigger = cause.trigger.as_deref(),
                "{message}"
            )
        };
    }
    if is_of_outage(result) {
        record_at!(debug);
    } else {
        record_at!(info);
    }
}

/// Whether a write was not sent because its cluster cannot be reached. There is one for each pass over each runtime,
/// and the outage has lines of its own.
fn is_of_outage(result: Result<StatusCode, &Error>) -> bool {
    matches!(result, Err(Error::Unreachable { sent: false, .. }))
}

/// What became of a write.
fn message(result: Result<StatusCode, &Error>) -> &'static str {
    match result {
        Ok(_) => "wrote",
        Err(Error::NotLeading | Error::ReadOnly { .. }) => "write not sent",
        Err(Error::Unreachable { sent: false, .. }) => "write not sent",
        // The API server may have made it.
        Err(Error::Unreachable { .. }) => "write not answered",
        Err(_) => "write refused",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Target, error::Unreachable};

    #[test]
    fn only_what_was_written_is_said_to_be() {
        let target = || Target::Object(ObjectId::new("", "ConfigMap", "kyma-system", "a"));
        let refused = Error::Invalid { target: target(), message: "it is wrong".to_owned() };
        let forbidden = Error::Forbidden { target: target(), message: "no right".to_owned() };
        let unreachable = |sent| Error::Unreachable {
            cluster: "kcp".into(),
            server: "kcp:6443".into(),
            cause: Unreachable::Timeout,
            sent,
        };
        let cases = [
            (Ok(StatusCode::OK), "wrote"),
            (Ok(StatusCode::CREATED), "wrote"),
            (Err(&refused), "write refused"),
            (Err(&forbidden), "write refused"),
            (Err(&Error::NotLeading), "write not sent"),
            (Err(&Error::ReadOnly { target: target() }), "write not sent"),
            (Err(&unreachable(false)), "write not sent"),
            (Err(&unreachable(true)), "write not answered"),
        ];
        for (result, expected) in cases {
            assert_eq!(message(result), expected, "{result:?}");
        }
        let of_outage: Vec<bool> = cases.iter().map(|(result, _)| is_of_outage(*result)).collect();
        assert_eq!(of_outage, [false, false, false, false, false, false, true, false]);
    }
}
