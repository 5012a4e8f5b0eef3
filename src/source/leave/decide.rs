//! Whether the objects of a GitSource that is being deleted can be deleted now. Pure: nothing is read or sent.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::jiff::Timestamp;
use tidegate_cluster::Metadata;
use tidegate_core::{
    api::{
        GitSource,
        git_source::GitSourceStatus,
        names::{annotation, label},
    },
    conditions,
    definition::{Definition, Kind},
    intake::{
        self, Id, Installed, Other, Policy, UnconfirmedEnd,
        status::{self, Kept},
    },
    landscape::{self, SourceName, setup::Resources},
    name::Key,
    words::agreeing,
};
use tidegate_process::retry::Class;

use crate::{
    queue::Finish,
    source::decide::{Parting, parting},
    stores::definitions::{Guarded, Hold},
};

/// Maximum number of sources that a status names.
const NAMED_MAX: usize = 10;

/// Why nothing is deleted yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Wait {
    /// The GitSource is suspended.
    Suspended,
    /// These sources have not been read: they may declare the same objects.
    Unread(Vec<Key>),
    /// A user must confirm what runtimes lose.
    Unconfirmed(UnconfirmedEnd),
    /// kcp-operator runs, so nothing is written to this many resources of kcp landscapes.
    KcpOperator(usize),
}

/// Whether a user wants the GitSource to go, or at least has confirmed what takes it along: its definition, or its
/// namespace. `hold` is why deletions are held now.
pub(super) fn is_meant(with_definition: bool, hold: Option<&Hold>) -> bool {
    match hold {
        None => true,
        Some(Hold::Terminating(Guarded::Namespace(_))) => false,
        Some(_) => !with_definition,
    }
}

/// The sources that have not been read and might declare one of these objects.
pub(super) fn unread<'a>(ids: impl IntoIterator<Item = &'a Id>, others: &BTreeMap<String, Other>) -> Option<Wait> {
    let ids: Vec<&Id> = ids.into_iter().collect();
    let unread = others.values().filter(|other| ids.iter().any(|id| other.might_declare(id)));
    let unread: Vec<Key> = unread.map(|other| other.key.clone()).collect();
    if unread.is_empty() { None } else { Some(Wait::Unread(unread)) }
}

/// What the end of a source waits for while kcp-operator runs: its resources of kcp landscapes, which would stay with
/// the label.
pub(super) fn beside_kcp_operator(resources: &Resources, source: &SourceName) -> Option<Wait> {
    let value = source.label_value();
    let is_ours = |(kind, key): &(_, &Key)| {
        resources.metadata(*kind, key).and_then(|found| landscape::label(found, label::SOURCE)) == Some(value.as_str())
    };
    let count = resources.ids().filter(is_ours).count();
    if count == 0 { None } else { Some(Wait::KcpOperator(count)) }
}

/// Whether a user must confirm the deletion of these objects with their source, at the commit that its status names.
pub(super) fn unconfirmed(source: &GitSource, objects: &BTreeSet<Id>, installed: &[Installed]) -> Option<Wait> {
    let annotations = source.metadata.annotations.as_ref();
    let confirmed = annotations.and_then(|all| all.get(annotation::CONFIRM_PRUNE)).map(|text| text.trim().to_owned());
    // Without valid limits, the default ones hold.
    let policy =
        intake::policy(&source.spec, confirmed.clone()).unwrap_or_else(|_| Policy { confirmed, ..Policy::default() });
    let revision = source.status.as_ref().and_then(|status| status.attempted_revision.as_deref());
    let commit = revision.and_then(|text| text.rsplit_once("@sha1:")?.1.parse().ok());
    let key = landscape::key(&source.metadata);
    intake::unconfirmed_end(&key, commit, objects, installed, &policy).map(Wait::Unconfirmed)
}

/// The objects that a GitSource takes along.
pub(super) fn deleted(owned: &[(Kind, Vec<Metadata>)], prune: bool) -> BTreeSet<Id> {
    let all = owned.iter().flat_map(|(kind, ours)| ours.iter().map(move |metadata| (*kind, metadata)));
    let is_deleted = |(_, metadata): &(Kind, &Metadata)| match parting(metadata, prune) {
        Parting::Delete => !metadata.deleting,
        Parting::Release => false,
    };
    all.filter(is_deleted).map(|(kind, metadata)| (kind, metadata.key())).collect()
}

/// Whether a status of a source says of its end what the present one does not.
pub(super) fn is_news(source: &GitSource, next: &GitSourceStatus) -> bool {
    fn ready(status: &GitSourceStatus) -> Option<&str> {
        conditions::find(&status.conditions, status::READY).map(|ready| ready.message.as_str())
    }
    source.status.as_ref().and_then(ready) != ready(next)
}

/// Whether another source that has been read declares the object.
pub(super) fn is_inherited(id: &Id, others: &BTreeMap<String, Other>) -> bool {
    others.values().any(|other| !other.idle && other.declares.as_ref().is_some_and(|ids| ids.contains(id)))
}

/// Whether another source takes over an object of `owner`: its definition says the same, or allows that.
pub(super) fn takes_over(definition: &Definition, adopt: bool, owner: &SourceName, metadata: &Metadata) -> bool {
    let digest = metadata.annotations.get(annotation::DIGEST).map(String::as_str);
    adopt || landscape::says_the_same(definition, owner, digest)
}

// === impl Wait ===

impl Wait {
    /// The reason to delete nothing at all, if there is one.
    pub(super) fn find(source: &GitSource) -> Option<Wait> {
        source.spec.suspend.then_some(Wait::Suspended)
    }

    /// One word in PascalCase, for the status.
    pub(super) fn reason(&self) -> &'static str {
        match self {
            Wait::Suspended => "Suspended",
            Wait::Unread(_) | Wait::KcpOperator(_) => "PruneWaits",
            Wait::Unconfirmed(_) => status::PRUNE_UNCONFIRMED,
        }
    }

    /// The status of the source meanwhile.
    pub(super) fn status(&self, source: &GitSource, kept: Kept, now: Timestamp) -> GitSourceStatus {
        match self {
            Wait::Unconfirmed(end) => status::end_unconfirmed(source, end, kept, now),
            Wait::Suspended | Wait::Unread(_) | Wait::KcpOperator(_) => {
                let message = format!("{}{}", self.message(), status::not_in_use(kept));
                status::not_ready(source, self.reason(), &message, now)
            }
        }
    }

    /// All that there is to say, for the log.
    pub(super) fn sentence(&self) -> String {
        match self {
            Wait::Unconfirmed(end) => end.sentence.clone(),
            Wait::Suspended | Wait::Unread(_) | Wait::KcpOperator(_) => self.message(),
        }
    }

    /// The note of the Event, and what the message of `Ready` begins with.
    pub(super) fn message(&self) -> String {
        match self {
            Wait::Suspended => "the source is suspended: resume it to delete its objects, or set spec.deletionPolicy \
                                to Orphan to keep them"
                .to_owned(),
            Wait::Unread(sources) => {
                let names: Vec<String> = sources.iter().take(NAMED_MAX).map(ToString::to_string).collect();
                format!("objects are not deleted before these sources have been read: {}", names.join(", "))
            }
            Wait::Unconfirmed(end) => status::brief_end(end),
            Wait::KcpOperator(count) => format!(
                "{count} {} of kcp landscapes stay with the source while kcp-operator runs: scale its Deployment to 0",
                agreeing(*count, "resource", "resources")
            ),
        }
    }

    /// When the next pass is due.
    pub(super) fn finish(&self) -> Finish {
        match self {
            // The watch reports the edit that resumes or confirms it.
            Wait::Suspended | Wait::Unconfirmed(_) => Finish::Done,
            // So does the Lease of kcp-operator.
            Wait::KcpOperator(_) => Finish::Done,
            Wait::Unread(_) => Finish::Failed(Class::Waiting),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;
    use tidegate_core::definition::Allow;

    use super::*;
    use crate::source::fixtures::source;

    #[test]
    fn nothing_is_deleted_while_suspended() {
        for (suspend, expected) in [(false, None), (true, Some(Wait::Suspended))] {
            assert_eq!(Wait::find(&source(&json!({ "suspend": suspend }))), expected);
        }
    }

    #[test]
    fn a_source_that_goes_with_its_definition_or_namespace_is_not_meant_to_go_until_a_user_confirms_that() {
        let definition = || Hold::Terminating(Guarded::Definition("gitsources", "tidegate.dev"));
        let kymas = || Hold::Terminating(Guarded::Definition("kymas", "operator.kyma-project.io"));
        let namespace = || Hold::Terminating(Guarded::Namespace("kcp-system".to_owned()));
        for (with_definition, hold, expected) in [
            (false, None, true),
            (true, Some(definition()), false),
            (true, Some(Hold::Absent(Guarded::Definition("gitsources", "tidegate.dev"))), false),
            // The deletion is confirmed.
            (true, None, true),
            (false, Some(namespace()), false),
            // Only another definition is concerned.
            (false, Some(kymas()), true),
        ] {
            assert_eq!(is_meant(with_definition, hold.as_ref()), expected, "{with_definition} {hold:?}");
        }
    }

    #[test]
    fn an_object_waits_for_the_sources_that_have_not_been_read_and_might_declare_it() {
        let kyma = (Kind::Kyma, Key::new("kcp-system", "a"));
        let watcher = (Kind::Watcher, Key::new("kcp-system", "w"));
        let read = || other("read", false, Some(&[]));
        let idle = || other("idle", true, None);
        let any = || other("any", false, None);
        let watchers = || {
            let (label, other) = other("watchers", false, None);
            (label, Other { allow: Allow { kinds: vec!["Watcher".to_owned()], ..Allow::default() }, ..other })
        };
        let wait = |names: &[&str]| Some(Wait::Unread(names.iter().map(|name| Key::new("kcp-system", name)).collect()));
        for (ids, others, expected) in [
            (vec![&kyma, &watcher], vec![], None),
            (vec![&kyma, &watcher], vec![read(), idle()], None),
            (vec![&kyma], vec![read(), watchers()], None),
            (vec![&kyma, &watcher], vec![read(), watchers()], wait(&["watchers"])),
            (vec![&kyma], vec![any(), watchers()], wait(&["any"])),
            (vec![], vec![any()], None),
        ] {
            assert_eq!(unread(ids, &others.into_iter().collect()), expected);
        }
    }

    #[test]
    fn a_wait_says_what_ends_it() {
        let key = |number| Key::new("kcp-system", &format!("s{number}"));
        let unread = Wait::Unread((0..NAMED_MAX + 2).map(key).collect());
        assert_eq!((unread.reason(), unread.finish()), ("PruneWaits", Finish::Failed(Class::Waiting)));
        assert!(unread.message().ends_with("s8, kcp-system/s9"), "{}", unread.message());
        assert_eq!((Wait::Suspended.reason(), Wait::Suspended.finish()), ("Suspended", Finish::Done));
        let operator = Wait::KcpOperator(2);
        assert_eq!((operator.reason(), operator.finish()), ("PruneWaits", Finish::Done));
        let expected = "2 resources of kcp landscapes stay with the source while kcp-operator runs: scale its \
                        Deployment to 0";
        assert_eq!(operator.message(), expected);
        let (command, sentence) = ("kubectl annotate it".to_owned(), "because ".repeat(200));
        let unconfirmed = Wait::Unconfirmed(UnconfirmedEnd { command, objects: 27, sentence });
        assert_eq!((unconfirmed.reason(), unconfirmed.finish()), ("PruneUnconfirmed", Finish::Done));
        let brief = "`kubectl annotate it` deletes 27 objects; condition Applied names them";
        assert_eq!(unconfirmed.message(), brief);
        let said = |wait: &Wait, kept, type_| {
            let status = wait.status(&source(&json!({})), kept, Timestamp::UNIX_EPOCH);
            conditions::find(&status.conditions, type_).expect("it is set").message.clone()
        };
        let not_in_use = "; the state folder has no revision of it, so its modules are not repaired meanwhile";
        for (kept, rest) in [(Kept::Read, ""), (Kept::Unread, ""), (Kept::Lost, not_in_use)] {
            assert_eq!(said(&unconfirmed, kept, status::READY), brief);
            assert_eq!(said(&unconfirmed, kept, status::APPLIED), format!("{}{rest}", unconfirmed.sentence()));
            let suspended = said(&Wait::Suspended, kept, status::READY);
            assert_eq!(suspended, format!("{}{rest}", Wait::Suspended.message()));
            assert!(suspended.chars().count() <= status::READY_CHARS_MAX, "{suspended}");
        }
    }

    #[test]
    fn what_runtimes_lose_is_confirmed_with_the_commit_that_the_status_names() {
        const COMMIT: &str = "0123456789012345678901234567890123456789";
        let kyma: BTreeSet<Id> = [(Kind::Kyma, Key::new("kcp-system", "a"))].into();
        let leaving = |revision: Option<&str>, confirmed: Option<&str>| {
            let mut source = source(&json!({"deletionPolicy": "Delete"}));
            let status =
                GitSourceStatus { attempted_revision: revision.map(str::to_owned), ..GitSourceStatus::default() };
            source.status = Some(status);
            let annotation = confirmed.map(|value| (annotation::CONFIRM_PRUNE.to_owned(), value.to_owned()));
            source.metadata.annotations = Some(annotation.into_iter().collect());
            source
        };
        let revision = format!("main@sha1:{COMMIT}");
        let other = COMMIT.replace('0', "f");
        let deletion = |commit: &str| Some(format!("deletion:{commit}"));
        let confirmed = |revision: Option<&str>, text: Option<String>| leaving(revision, text.as_deref());
        for (source, objects, waits) in [
            (leaving(Some(&revision), None), &kyma, true),
            (confirmed(Some(&revision), deletion(&other)), &kyma, true),
            (confirmed(Some(&revision), deletion(COMMIT)), &kyma, false),
            // A commit confirms what it removes from git, not the end of the source.
            (leaving(Some(&revision), Some(COMMIT)), &kyma, true),
            (leaving(Some(&revision), Some(&revision)), &kyma, true),
            (confirmed(None, deletion(COMMIT)), &kyma, true),
            (confirmed(None, deletion("worktree")), &kyma, false),
            (leaving(Some(&revision), None), &BTreeSet::new(), false),
        ] {
            let wait = unconfirmed(&source, objects, &[]);
            assert_eq!(wait.is_some(), waits, "{:?} {:?}", source.status, source.metadata.annotations);
            if let Some(wait) = wait {
                let next = wait.status(&source, Kept::Lost, Timestamp::UNIX_EPOCH);
                assert!(is_news(&source, &next));
                let mut said = source.clone();
                said.status = Some(next.clone());
                assert!(!is_news(&said, &next));
            }
        }
    }

    #[test]
    fn only_an_active_source_that_was_read_inherits_an_object() {
        let (a, b) = ((Kind::Kyma, Key::new("kcp-system", "a")), (Kind::Kyma, Key::new("kcp-system", "b")));
        let declares = |idle| [other("other", idle, Some(std::slice::from_ref(&a)))].into();
        assert!(is_inherited(&a, &declares(false)));
        assert!(!is_inherited(&b, &declares(false)));
        assert!(!is_inherited(&a, &declares(true)));
        assert!(!is_inherited(&a, &[other("other", false, None)].into()));
    }

    fn other(name: &str, idle: bool, declares: Option<&[Id]>) -> (String, Other) {
        let declares = declares.map(|ids| Arc::new(ids.iter().cloned().collect::<BTreeSet<Id>>()));
        let other = Other { key: Key::new("kcp-system", name), idle, declares, allow: Allow::default() };
        (format!("kcp-system.{name}"), other)
    }
}
