//! Decides whether an event from a runtime is accepted, and what it triggers. Pure.

use std::{sync::Arc, time::Duration};

use tidegate_core::api::{KYMA_GROUP, Kyma};
use tidegate_events::{
    event::Event,
    listener::{Answer, Refusal},
};
use tokio::time::Instant;

use super::pace::AGAIN;
use crate::{
    config::Pinning,
    queue::{Trigger, Triggers},
    stores::Runtime,
};

/// Whether this process can accept events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Readiness {
    /// Another process leads.
    NotLeading,
    /// This process does not know the landscape, or has not read the journal.
    NotReady,
    /// It can accept events.
    Ready,
}

/// The sender of an event is no runtime.
#[derive(Clone, Debug)]
pub(super) struct Unidentified {
    /// The answer to the sender.
    pub(super) refusal: Refusal,
    /// The Kymas that have the same runtime id, if that is why.
    pub(super) rivals: Vec<Arc<Kyma>>,
}

/// Whether the sender's certificate names the domain of its runtime.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum NameCheck {
    /// It does, or the settings do not require it.
    Passed,
    /// It does not, and its events are accepted and counted. The note is for users.
    Unverified(&'static str),
    /// It does not, and its events are refused. The note is for users.
    Refused(&'static str, Refusal),
}

/// What an event is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum About {
    /// The Kyma in the runtime, which a new process reads anyway.
    Kyma,
    /// Any other object. The journal records the event, because a new process would not compare the objects.
    Object,
}

/// The note about two Kymas with one runtime id.
pub(super) const AMBIGUOUS: &str = "another Kyma has the same runtime id, so events of both are refused; change the \
                                    label kyma-project.io/runtime-id of one of them";

/// Why no event can be accepted now; `None` if events are accepted.
pub(super) fn unavailable(readiness: Readiness) -> Option<Answer> {
    match readiness {
        Readiness::NotLeading => {
            Some(Answer::Elsewhere(Refusal { reason: "not-leading", message: "another process takes events" }))
        }
        Readiness::NotReady => {
            Some(Answer::Unavailable(Refusal { reason: "not-ready", message: "the landscape is not known yet" }))
        }
        Readiness::Ready => None,
    }
}

/// The answer to an event that the journal could not record.
pub(super) fn not_recorded() -> Answer {
    Answer::Unavailable(Refusal { reason: "journal", message: "the event could not be recorded in the journal" })
}

/// The Kyma whose runtime id a certificate names.
///
/// # Errors
///
/// Fails unless exactly one Kyma has the id.
pub(super) fn identify(runtime: Runtime) -> Result<Arc<Kyma>, Unidentified> {
    let refused = |reason, message, rivals| Err(Unidentified { refusal: Refusal { reason, message }, rivals });
    match runtime {
        Runtime::One(kyma) => Ok(kyma),
        Runtime::Unknown => refused("runtime-unknown", "no runtime has the id that the certificate names", Vec::new()),
        Runtime::Ambiguous(kymas) => {
            refused("runtime-ambiguous", "several runtimes have the id that the certificate names", kymas)
        }
    }
}

/// Whether a certificate names the domain of its runtime. `is_named` tells whether it has a name.
pub(super) fn check_name(pinning: Pinning, domain: Option<&str>, is_named: impl FnOnce(&str) -> bool) -> NameCheck {
    let domain = domain.filter(|domain| !domain.is_empty());
    if pinning == Pinning::Off || domain.is_some_and(is_named) {
        return NameCheck::Passed;
    }
    let note = match domain {
        Some(_) => "an event came with a certificate that does not name the runtime's domain (annotation skr-domain)",
        None => "an event came, but the Kyma has no annotation skr-domain to compare its certificate with",
    };
    match pinning {
        Pinning::Enforce => {
            let message = "the certificate does not name the domain of its runtime";
            NameCheck::Refused(note, Refusal { reason: "domain", message })
        }
        Pinning::Warn | Pinning::Off => NameCheck::Unverified(note),
    }
}

/// What an event is about.
pub(super) fn about(event: &Event) -> About {
    if event.gvk.group == KYMA_GROUP && event.gvk.kind == "Kyma" { About::Kyma } else { About::Object }
}

/// From when on a pass is sure to see the change behind an event. For an event before its write is persisted, only the
/// second pass is.
pub(super) fn visible_from(is_settled: bool, now: Instant) -> Instant {
    now + if is_settled { Duration::ZERO } else { AGAIN }
}

/// The triggers for an event.
pub(super) fn triggers(about: About) -> Triggers {
    let triggers = Triggers::from(Trigger::Reported);
    match about {
        About::Kyma => triggers,
        About::Object => triggers.with(Trigger::Drift),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_accepted_once_this_process_leads_and_knows_the_landscape() {
        assert!(
            matches!(unavailable(Readiness::NotLeading), Some(Answer::Elsewhere(refusal)) if refusal.reason == "not-leading")
        );
        assert!(
            matches!(unavailable(Readiness::NotReady), Some(Answer::Unavailable(refusal)) if refusal.reason == "not-ready")
        );
        assert_eq!(unavailable(Readiness::Ready), None);
        assert!(matches!(not_recorded(), Answer::Unavailable(refusal) if refusal.reason == "journal"));
    }

    #[test]
    fn exactly_one_kyma_must_have_the_runtime_id() {
        let kyma = Arc::new(Kyma::default());
        assert!(identify(Runtime::One(Arc::clone(&kyma))).is_ok_and(|found| Arc::ptr_eq(&found, &kyma)));
        for (runtime, reason, rivals) in [
            (Runtime::Unknown, "runtime-unknown", 0),
            (Runtime::Ambiguous(vec![Arc::clone(&kyma), kyma]), "runtime-ambiguous", 2),
        ] {
            let found = identify(runtime).unwrap_err();
            assert_eq!((found.refusal.reason, found.rivals.len()), (reason, rivals));
        }
    }

    #[test]
    fn a_certificate_must_name_the_domain_as_far_as_the_settings_require_it() {
        #[derive(Debug, PartialEq)]
        enum Is {
            Passed,
            Unverified,
            Refused,
        }
        for (pinning, domain, expected) in [
            (Pinning::Enforce, Some("one.example.org"), Is::Passed),
            (Pinning::Enforce, Some("two.example.org"), Is::Refused),
            (Pinning::Enforce, Some(""), Is::Refused),
            (Pinning::Enforce, None, Is::Refused),
            (Pinning::Warn, Some("one.example.org"), Is::Passed),
            (Pinning::Warn, Some("two.example.org"), Is::Unverified),
            (Pinning::Warn, None, Is::Unverified),
            (Pinning::Off, Some("two.example.org"), Is::Passed),
            (Pinning::Off, None, Is::Passed),
        ] {
            let (note, found) = match check_name(pinning, domain, |name| name == "one.example.org") {
                NameCheck::Passed => (None, Is::Passed),
                NameCheck::Unverified(note) => (Some(note), Is::Unverified),
                NameCheck::Refused(note, refusal) => {
                    assert_eq!(refusal.reason, "domain");
                    (Some(note), Is::Refused)
                }
            };
            assert_eq!(found, expected, "{pinning:?} {domain:?}");
            let has_domain = domain.is_some_and(|domain| !domain.is_empty());
            let expected = if has_domain { "does not name" } else { "has no annotation" };
            assert!(note.is_none_or(|note| note.contains(expected)), "{note:?}");
        }
    }

    #[test]
    fn only_an_event_about_another_object_than_the_kyma_makes_a_pass_compare_all_objects() {
        for (group, kind, expected) in [
            (KYMA_GROUP, "Kyma", About::Kyma),
            (KYMA_GROUP, "ModuleTemplate", About::Object),
            ("example.org", "Kyma", About::Object),
            ("", "ConfigMap", About::Object),
        ] {
            let mut event = Event::default();
            group.clone_into(&mut event.gvk.group);
            kind.clone_into(&mut event.gvk.kind);
            assert_eq!(about(&event), expected, "{group}/{kind}");
            assert_eq!(triggers(expected).contains(Trigger::Drift), expected == About::Object);
            assert!(triggers(expected).contains(Trigger::Reported));
        }
    }

    #[test]
    fn a_change_that_may_not_be_persisted_is_visible_to_the_second_pass() {
        let now = Instant::now();
        assert_eq!(visible_from(true, now), now);
        assert_eq!(visible_from(false, now), now + AGAIN);
    }
}
