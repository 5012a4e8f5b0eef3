//! What a pass over a runtime begins with: whether it does anything, what it confirms before, and what it is for. Pure.

use std::sync::Arc;

use tidegate_cluster::Kind;
use tidegate_core::{
    api::{Kyma, Manifest, ModuleReleaseMeta},
    name::Key,
};

use super::{
    decide::{self, Start},
    unreadable::{Unreadable, WithoutKyma},
};
use crate::stores::definitions::Hold;

/// What is known of a runtime before its pass decides anything.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shown<'a> {
    /// Its Kyma, if the stores have it.
    pub(super) kyma: Option<&'a Arc<Kyma>>,
    /// Its Manifests.
    pub(super) manifests: &'a [Arc<Manifest>],
    /// See [`decide::deleted_releases`].
    pub(super) releases: &'a [Arc<ModuleReleaseMeta>],
    /// Its Kyma and its Manifests, as far as they cannot be read.
    pub(super) unreadable: &'a Unreadable,
    /// Why nothing may be removed from the runtime now; `None` if it may.
    pub(super) hold: Option<&'a Hold>,
}

/// What a pass does first.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Opening<'a> {
    /// It ends. Something else wakes the runtime.
    Defer,
    /// It removes what the Kyma, which is gone, left behind.
    CleanUp,
    /// It reconciles the runtime with this Kyma.
    Reconcile(&'a Arc<Kyma>),
}

/// An object whose deletion or absence a pass removes something for, with the UID that the stores show; none if they
/// show no object.
pub(super) type RemovedFor = (Kind, Key, Option<String>);

/// What a pass does with a runtime whose Kyma it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Course<'a> {
    /// Nothing but the status, because nothing may be removed.
    Hold(&'a Hold),
    /// It removes the runtime.
    Remove,
    /// Nothing: a user has suspended it.
    Leave,
    /// It installs what the Kyma wants.
    Install,
}

/// What a pass notes in this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Act {
    /// No agent that can be probed runs in the runtime.
    RestContact,
    /// The runtime need not be reached.
    TellReached,
}

// === impl Shown ===

impl<'a> Shown<'a> {
    /// What the pass does first, and what it must confirm before: the objects may not be as the stores show them.
    pub(super) fn opening(&self, key: &Key) -> (Opening<'a>, Vec<RemovedFor>) {
        let Some(kyma) = self.kyma else {
            return match (self.hold, self.unreadable.without_kyma()) {
                (None, WithoutKyma::CleanUp) => (Opening::CleanUp, decide::removed_for(key, None, self.manifests, &[])),
                (None, WithoutKyma::Wait) | (Some(_), _) => (Opening::Defer, Vec::new()),
            };
        };
        if self.unreadable.holds(kyma) {
            return (Opening::Defer, Vec::new());
        }
        let confirm = match self.hold {
            None => decide::removed_for(key, Some(&**kyma), self.manifests, self.releases),
            // Nothing is removed.
            Some(_) => Vec::new(),
        };
        (Opening::Reconcile(kyma), confirm)
    }
}

/// What a pass does with a runtime whose Kyma it has, and what it notes before. `hold` is why nothing may be removed.
pub(super) fn course(start: Start, hold: Option<&Hold>) -> (Course<'_>, &'static [Act]) {
    match (start, hold) {
        (Start::Leave, Some(hold)) => (Course::Hold(hold), &[Act::TellReached]),
        (Start::Remove | Start::Install, Some(hold)) => (Course::Hold(hold), &[]),
        (Start::Remove, None) => (Course::Remove, &[Act::RestContact]),
        (Start::Leave, None) => (Course::Leave, &[Act::RestContact, Act::TellReached]),
        (Start::Install, None) => (Course::Install, &[]),
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::jiff::Timestamp;
    use tidegate_core::api::shared::{ObjectMeta, Time};

    use super::*;
    use crate::stores::{Table, unreadable::UnreadableObject};

    fn kyma(is_deleting: bool) -> Arc<Kyma> {
        let mut kyma = Kyma::default();
        kyma.metadata.deletion_timestamp = is_deleting.then_some(Time(Timestamp::UNIX_EPOCH));
        kyma.metadata.uid = Some("1".to_owned());
        Arc::new(kyma)
    }

    fn unreadable(table: Table) -> UnreadableObject {
        let metadata = ObjectMeta { name: Some("one".to_owned()), ..ObjectMeta::default() };
        let object =
            tidegate_cluster::Unreadable { metadata, problem: "spec: invalid type".to_owned(), names_templates: false };
        UnreadableObject { table, object: Arc::new(object) }
    }

    #[test]
    fn a_pass_begins_by_what_can_be_read_and_what_may_be_removed() {
        let (present, going) = (kyma(false), kyma(true));
        let hold = Hold::NotServed("Kyma");
        let readable = Unreadable::default();
        let of_kyma = Unreadable { kyma: Some(unreadable(Table::Kymas)), manifests: Vec::new() };
        let of_manifest = Unreadable { kyma: None, manifests: vec![unreadable(Table::Manifests)] };
        for (kyma, unreadable, hold, expected, uids) in [
            // A Kyma that is gone is confirmed to be gone.
            (None, &readable, None, Opening::CleanUp, vec![None]),
            (None, &readable, Some(&hold), Opening::Defer, vec![]),
            (None, &of_kyma, None, Opening::Defer, vec![]),
            (None, &of_manifest, None, Opening::Defer, vec![]),
            (Some(&present), &readable, None, Opening::Reconcile(&present), vec![]),
            (Some(&present), &readable, Some(&hold), Opening::Reconcile(&present), vec![]),
            (Some(&present), &of_kyma, None, Opening::Reconcile(&present), vec![]),
            // One that is being deleted is confirmed to be that one, unless nothing is removed.
            (Some(&going), &readable, None, Opening::Reconcile(&going), vec![Some("1".to_owned())]),
            (Some(&going), &readable, Some(&hold), Opening::Reconcile(&going), vec![]),
            (Some(&going), &of_kyma, None, Opening::Defer, vec![]),
        ] {
            let shown = Shown { kyma, manifests: &[], releases: &[], unreadable, hold };
            let (opening, confirm) = shown.opening(&Key::new("kcp-system", "one"));
            let found: Vec<Option<String>> = confirm.into_iter().map(|(_, _, uid)| uid).collect();
            assert_eq!((opening, found), (expected, uids), "{shown:?}");
        }
    }

    #[test]
    fn a_hold_comes_before_everything_that_a_kyma_asks_for() {
        let hold = Hold::NotServed("Kyma");
        for (start, held, expected, acts) in [
            (Start::Install, None, Course::Install, &[][..]),
            (Start::Remove, None, Course::Remove, &[Act::RestContact][..]),
            (Start::Leave, None, Course::Leave, &[Act::RestContact, Act::TellReached][..]),
            (Start::Install, Some(&hold), Course::Hold(&hold), &[][..]),
            (Start::Remove, Some(&hold), Course::Hold(&hold), &[][..]),
            (Start::Leave, Some(&hold), Course::Hold(&hold), &[Act::TellReached][..]),
        ] {
            assert_eq!(course(start, held), (expected, acts), "{start:?}");
        }
    }
}
