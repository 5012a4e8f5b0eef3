//! Whether an API server answers with nothing but errors of its own: its storage is away, or a load balancer has no API
//! server left behind it.
//!
//! Only reads of objects show it. A write also fails if a webhook does, and discovery works without the storage. No
//! request is refused meanwhile: what is read or written next shows that it is over.

use http::StatusCode;
use tidegate_process::lock::Mutex;
use tokio::time::Instant;

use super::{
    breaker::Outage,
    error::{Target, Unreachable},
    transport::Verb,
};

/// Reads in a row that fail until this is an outage. Requests run in parallel, so a server that ends may fail several.
const FAILURES_MAX: u32 = 5;

/// The errors in a row of one API server.
#[derive(Debug, Default)]
pub(super) struct Failing(Mutex<Option<Errors>>);

#[derive(Clone, Copy, Debug)]
struct Errors {
    count: u32,
    since: Instant,
    last: StatusCode,
}

// === impl Failing ===

impl Failing {
    /// Records an answer. Returns whether an outage ends with it.
    pub(super) fn answered(&self, verb: Verb, target: &Target, status: StatusCode, now: Instant) -> bool {
        let is_of_object = match target {
            Target::Object(_) | Target::List(_) => true,
            Target::Path(_) => false,
        };
        let is_read = match verb {
            Verb::Get | Verb::List | Verb::Watch => true,
            Verb::DryRun | Verb::Apply | Verb::Patch | Verb::Create | Verb::Update | Verb::Delete => false,
        };
        let mut errors = self.0.lock();
        match (is_of_object, status.is_server_error()) {
            (false, _) => false,
            (true, false) => errors.take().is_some_and(Errors::are_an_outage),
            (true, true) => {
                if is_read {
                    let Errors { count, since, .. } = errors.unwrap_or(Errors { count: 0, since: now, last: status });
                    *errors = Some(Errors { count: count.saturating_add(1), since, last: status });
                }
                false
            }
        }
    }

    /// The outage, while there is one.
    pub(super) fn outage(&self) -> Option<Outage> {
        let errors = (*self.0.lock()).filter(|errors| errors.are_an_outage())?;
        Some(Outage { since: errors.since, cause: Unreachable::Failing { status: errors.last } })
    }
}

// === impl Errors ===

impl Errors {
    fn are_an_outage(self) -> bool {
        FAILURES_MAX <= self.count
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tidegate_core::object::Gvk;

    use super::*;

    fn list() -> Target {
        Target::List(Gvk::new("", "v1", "ConfigMap"))
    }

    #[test]
    fn only_errors_of_reads_without_an_answer_between_them_are_an_outage() {
        let (failing, start) = (Failing::default(), Instant::now());
        let at = |second| start + Duration::from_secs(second);
        let ask = |verb, target: &Target, status: u16, second| {
            failing.answered(verb, target, StatusCode::from_u16(status).unwrap(), at(second))
        };
        for second in 0..20 {
            // A webhook that fails, next to a server that works.
            assert!(!ask(Verb::Apply, &list(), 500, second));
            assert!(!ask(Verb::DryRun, &list(), 500, second));
        }
        for second in 20..40 {
            // One kind of which the conversion fails, next to another one.
            assert!(!ask(Verb::List, &list(), 500, second));
            assert!(!ask(Verb::Get, &list(), 404, second));
        }
        assert_eq!(failing.outage(), None);
        for second in 40..45 {
            assert_eq!(failing.outage(), None);
            assert!(!ask(Verb::Watch, &list(), 500 + u16::try_from(second - 40).unwrap(), second));
        }
        let cause = Unreachable::Failing { status: StatusCode::GATEWAY_TIMEOUT };
        assert_eq!(failing.outage(), Some(Outage { since: at(40), cause }));
        assert!(!ask(Verb::Get, &Target::Path("version"), 200, 45), "discovery needs no storage");
        assert!(!ask(Verb::Apply, &list(), 500, 45));
        assert!(failing.outage().is_some());
        assert!(ask(Verb::Get, &list(), 404, 46), "any answer ends it");
        assert_eq!(failing.outage(), None);
        assert!(!ask(Verb::Get, &list(), 200, 47), "it ends once");
    }
}
