//! What a pass does about the Kyma in a runtime. Pure. [`tidegate_core::counterpart`] decides what it writes.

use k8s_openapi::jiff::Timestamp;
use tidegate_core::{
    api::{kyma::KymaStatus, names::SKR_NAMESPACE, shared::Time},
    conditions,
};

use super::state::KnownCounterpart;

/// What a pass does about the Kyma in the runtime.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Start {
    /// It waits: the Kyma is being deleted, and is created again once it is gone. Nothing reports that.
    AwaitEnd,
    /// It creates the Kyma, or writes what differs.
    Write,
    /// It leaves the Kyma alone, which cannot be read.
    Leave,
}

/// What a pass does about the Kyma in the runtime.
pub(super) fn start(known: &KnownCounterpart) -> Start {
    match &known.live {
        _ if known.unreadable.is_some() => Start::Leave,
        Some(kyma) if kyma.metadata.deletion_timestamp.is_some() => Start::AwaitEnd,
        Some(_) | None => Start::Write,
    }
}

/// Whether the Kyma in the runtime must be read before the plan.
pub(super) fn must_read(known: &KnownCounterpart, has_changed: bool) -> bool {
    has_changed || known.live.is_none() || known.unreadable.is_some()
}

/// The `differences` that users made. If the Kyma is still as an earlier pass left it, the Kyma in KCP has changed
/// instead.
pub(super) fn reverted(known: &KnownCounterpart, differences: Vec<String>) -> Vec<String> {
    let is_untouched = known.live.as_ref().is_some_and(|kyma| Some(&kyma.spec) == known.left.as_ref());
    if is_untouched { Vec::new() } else { differences }
}

/// The status to copy to the Kyma in the runtime; none if it is the same but for its times, or the Kyma does not exist.
/// Other times alone mean that the status in KCP was lost, or said something else that the runtime never showed.
pub(super) fn to_show(known: &KnownCounterpart, status: &KymaStatus) -> Option<KymaStatus> {
    let kyma = known.live.as_ref()?;
    if known.unreadable.is_some() {
        return None;
    }
    let copy = copy(status);
    (kyma.status.as_ref().map(timeless) != Some(timeless(&copy))).then_some(copy)
}

/// A status without its times.
fn timeless(status: &KymaStatus) -> KymaStatus {
    let mut status = status.clone();
    for condition in &mut status.conditions {
        condition.last_transition_time = Time(Timestamp::UNIX_EPOCH);
    }
    if let Some(operation) = &mut status.last_operation {
        operation.last_update_time = None;
    }
    status
}

/// The status for users of the runtime: it refers only to objects that they can see.
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use k8s_openapi::jiff::Timestamp;
    use tidegate_core::{
        api::{
            Kyma,
            kyma::{KymaSpec, ModuleStatus, TrackingMetadata, TrackingObject},
            shared::{State, Time},
        },
        conditions::Status,
    };

    use super::*;

    fn kyma(channel: &str) -> Kyma {
        let mut kyma = Kyma::default();
        channel.clone_into(&mut kyma.spec.channel);
        kyma
    }

    fn known(live: Option<Kyma>, left: Option<KymaSpec>) -> KnownCounterpart {
        KnownCounterpart { live: live.map(Arc::new), left, unreadable: None }
    }

    #[test]
    fn a_kyma_that_is_deleted_in_the_runtime_is_created_again_once_it_is_gone() {
        let mut going = kyma("regular");
        going.metadata.deletion_timestamp = Some(Time(Timestamp::UNIX_EPOCH));
        for (live, expected) in
            [(None, Start::Write), (Some(kyma("regular")), Start::Write), (Some(going), Start::AwaitEnd)]
        {
            let mut known = known(live, None);
            assert_eq!(start(&known), expected);
            known.unreadable = Some("spec.channel: invalid type".to_owned());
            assert_eq!(start(&known), Start::Leave);
            assert!(must_read(&known, false) && to_show(&known, &KymaStatus::default()).is_none());
        }
    }

    #[test]
    fn it_is_read_again_only_for_a_reason() {
        for (live, has_changed, expected) in
            [(None, false, true), (Some(kyma("regular")), false, false), (Some(kyma("regular")), true, true)]
        {
            assert_eq!(must_read(&known(live, None), has_changed), expected);
        }
    }

    #[test]
    fn only_edits_of_users_are_reported_as_reverted() {
        let (edited, left) = (kyma("fast"), kyma("regular").spec);
        let differences = || vec!["channel".to_owned()];
        for (live, left, expected) in [
            (edited.clone(), Some(left.clone()), differences()),
            (edited, None, differences()),
            (kyma("regular"), Some(left), Vec::new()),
        ] {
            assert_eq!(reverted(&known(Some(live), left), differences()), expected);
        }
    }

    #[test]
    fn the_copy_of_the_status_leads_to_what_users_of_the_runtime_can_see() {
        let metadata = TrackingMetadata { namespace: "kcp-system".to_owned(), ..TrackingMetadata::default() };
        let object = || TrackingObject { metadata: metadata.clone(), ..TrackingObject::default() };
        let module = ModuleStatus { manifest: Some(object()), template: Some(object()), ..ModuleStatus::default() };
        let mut status = KymaStatus { state: State::Ready, modules: vec![module], ..KymaStatus::default() };
        for type_ in [conditions::APPLIED, conditions::WATCH_APPLIED, conditions::RECONCILE_REQUESTED, "Modules"] {
            let now = Time(Timestamp::UNIX_EPOCH);
            conditions::set(&mut status.conditions, type_, Status::True, "Ready", "", None, &now);
        }
        let mut known = known(Some(kyma("regular")), None);
        let shown = to_show(&known, &status).unwrap();
        assert_eq!(shown.conditions.iter().map(|condition| condition.type_.as_str()).collect::<Vec<_>>(), ["Modules"]);
        assert_eq!(shown.modules[0].manifest, None);
        assert_eq!(shown.modules[0].template.as_ref().unwrap().metadata.namespace, SKR_NAMESPACE);
        known.shows(shown);
        assert_eq!(to_show(&known, &status), None, "it has it");
        status.conditions[0].last_transition_time = Time(Timestamp::UNIX_EPOCH + jiff::SignedDuration::from_secs(1));
        assert_eq!(to_show(&known, &status), None, "only a time differs");
        known.live = None;
        assert_eq!(to_show(&known, &status), None, "it does not exist");
    }
}
