//! What a process knows of the Kyma in a runtime between passes. Pure.

use std::{collections::BTreeSet, sync::Arc};

use tidegate_cluster::Error;
use tidegate_core::api::{
    Kyma,
    kyma::{KymaSpec, KymaStatus},
    shared::State,
};

use super::decide::CounterpartReport;

/// What a process knows of the Kyma in one runtime between passes.
#[derive(Debug, Default)]
pub(in crate::runtime) enum KnownCounterpart {
    /// This process has not read it, or it does not exist.
    #[default]
    Absent,
    /// It was read.
    Readable(Counterpart),
    /// It exists and cannot be read.
    Unreadable {
        /// The Kyma as it was last readable. It still decides the plan.
        last: Counterpart,
        /// Why it cannot be read.
        problem: String,
    },
}

/// The Kyma in a runtime.
#[derive(Debug)]
pub(in crate::runtime) struct Counterpart {
    /// The Kyma as last read or written.
    pub(super) kyma: Arc<Kyma>,
    /// Its specification after the last pass; none before the end of the first one. A later read may differ by the
    /// edits of users.
    pub(super) left: Option<KymaSpec>,
}

// === impl KnownCounterpart ===

impl KnownCounterpart {
    /// The Kyma as last readable; none if it has not been read or does not exist.
    pub(in crate::runtime) fn live(&self) -> Option<&Arc<Kyma>> {
        match self {
            KnownCounterpart::Absent => None,
            KnownCounterpart::Readable(counterpart) | KnownCounterpart::Unreadable { last: counterpart, .. } => {
                Some(&counterpart.kyma)
            }
        }
    }

    /// Why the Kyma cannot be read; none if it can.
    pub(in crate::runtime) fn problem(&self) -> Option<&str> {
        match self {
            KnownCounterpart::Absent | KnownCounterpart::Readable(_) => None,
            KnownCounterpart::Unreadable { problem, .. } => Some(problem),
        }
    }

    /// The modules that the Kyma shows as installed. Of one that cannot be read that is not known: its status is not
    /// written. `Warning` says nothing: it may be why a module is not installed as requested.
    pub(in crate::runtime) fn installed(&self) -> BTreeSet<String> {
        let kyma = self.live().filter(|_| self.problem().is_none());
        let modules = kyma.and_then(|kyma| kyma.status.as_ref()).into_iter().flat_map(|status| &status.modules);
        modules.filter(|module| module.state == State::Ready).map(|module| module.name.clone()).collect()
    }

    /// Notes the answer to a read before the plan. An answer that is no Kyma leaves the last one in use.
    ///
    /// # Errors
    ///
    /// The error of the read, if nothing is known without it.
    pub(super) fn refreshed(&mut self, read: Result<Option<Arc<Kyma>>, Error>) -> Result<(), Error> {
        *self = match (read, std::mem::take(self)) {
            (Ok(found), former) => former.found(found),
            (
                Err(error @ Error::Answer { .. }),
                KnownCounterpart::Readable(last) | KnownCounterpart::Unreadable { last, .. },
            ) => KnownCounterpart::Unreadable { last, problem: error.to_string() },
            (Err(error), former) => {
                *self = former;
                return Err(error);
            }
        };
        Ok(())
    }

    /// Notes that a write failed. If the Kyma does not exist any more, the next pass reads it.
    pub(super) fn refused(&mut self, error: &Error) {
        if let Error::NotFound { .. } | Error::NotServed { .. } = error {
            *self = KnownCounterpart::Absent;
        }
    }

    /// The knowledge after a read that found `kyma`.
    pub(super) fn found(self, kyma: Option<Arc<Kyma>>) -> KnownCounterpart {
        let left = match self {
            KnownCounterpart::Absent => None,
            KnownCounterpart::Readable(former) | KnownCounterpart::Unreadable { last: former, .. } => former.left,
        };
        match kyma {
            Some(kyma) => KnownCounterpart::Readable(Counterpart { kyma, left }),
            None => KnownCounterpart::Absent,
        }
    }

    /// The knowledge after a pass.
    pub(super) fn after(self, report: &CounterpartReport) -> KnownCounterpart {
        let leave = |counterpart: Counterpart| Counterpart { left: Some(counterpart.kyma.spec.clone()), ..counterpart };
        match (report, self) {
            // Nothing reports its end, so the next pass reads it.
            (CounterpartReport::AwaitsEnd, _) | (_, KnownCounterpart::Absent) => KnownCounterpart::Absent,
            (_, KnownCounterpart::Readable(counterpart)) => KnownCounterpart::Readable(leave(counterpart)),
            (_, KnownCounterpart::Unreadable { last, problem }) => {
                KnownCounterpart::Unreadable { last: leave(last), problem }
            }
        }
    }

    /// The knowledge after a write of the status; `None` if the Kyma does not exist any more.
    pub(super) fn shows(self, status: Option<KymaStatus>) -> KnownCounterpart {
        match (self, status) {
            (KnownCounterpart::Readable(mut counterpart), Some(status)) => {
                Arc::make_mut(&mut counterpart.kyma).status = Some(status);
                KnownCounterpart::Readable(counterpart)
            }
            (known @ KnownCounterpart::Unreadable { .. }, Some(_)) => known,
            (KnownCounterpart::Absent, _) | (_, None) => KnownCounterpart::Absent,
        }
    }
}
