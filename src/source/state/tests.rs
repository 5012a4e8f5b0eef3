use serde_json::json;
use tidegate_core::diagnostic::Diagnostic;

use super::*;

#[test]
fn a_failure_outside_of_a_fetch_keeps_the_time_of_the_next_fetch() {
    let last =
        |outcome| LastFetch { settings: Digest::of_bytes(b"settings"), next: Instant::now(), failures: 0, outcome };
    let done = last(ReadOutcome::Done);
    let failed = LastFetch { failures: 1, outcome: ReadOutcome::Failed(failure(Remedy::Edit)), ..done.clone() };
    assert_eq!(Fetching::Ended(Box::new(done)).with_failure(failure(Remedy::Edit)), Fetching::Ended(Box::new(failed)));
    assert_eq!(Fetching::Pending.with_failure(failure(Remedy::Edit)), Fetching::Pending);
}

#[test]
fn only_a_failure_that_a_retry_may_solve_is_not_stalled() {
    let secret = Remedy::Secret(SeenSecret::default());
    for (remedy, expected) in [(Remedy::Retry, false), (Remedy::Later, false), (secret, true), (Remedy::Edit, true)] {
        let outcome = ReadOutcome::Failed(failure(remedy));
        let last = LastFetch { settings: Digest::of_bytes(b"settings"), next: Instant::now(), failures: 1, outcome };
        let Fetched::Failed { reason: "Test", stalled, .. } = Fetching::Ended(Box::new(last)).fetched() else {
            panic!()
        };
        assert_eq!(stalled, expected);
    }
    assert_eq!(Fetching::Pending.fetched(), Fetched::Done);
}

#[test]
fn a_secret_differs_by_its_version_and_its_absence() {
    let seen = |version: Option<&str>| SeenSecret(version.map(ToOwned::to_owned));
    for (before, found, expected) in [
        (None, None, false),
        (None, Some("7"), true),
        (Some("7"), Some("7"), false),
        (Some("7"), Some("8"), true),
        (Some("7"), None, true),
    ] {
        assert_eq!(seen(before).differs(found), expected, "{before:?} {found:?}");
    }
}

#[test]
fn every_transition_of_a_revision_ends_in_one_state() {
    type Transition = fn(KnownRevision) -> KnownRevision;
    let unread: Transition = |_| KnownRevision::Unread;
    let new: Transition = |_| KnownRevision::Unread.advanced(revision('a'));
    let done: Transition = |_| KnownRevision::Unread.recalled(revision('a'));
    let refused: Transition = |_| KnownRevision::Unread.advanced(revision('a')).after_refusal(refusal('b'));
    let refused_first: Transition = |_| KnownRevision::Unread.after_refusal(refusal('b'));

    let again: Transition = |known| known.found_again(revision('a'));
    let advance: Transition = |known| known.advanced(revision('c'));
    let refuse: Transition = |known| known.after_refusal(refusal('d'));
    let recall: Transition = |known| known.recalled(revision('a'));
    let roll_out: Transition = KnownRevision::rolled_out;
    for (before, transition, expected) in [
        (unread, again, "active a"),
        (unread, advance, "active c, pending"),
        (unread, refuse, "refused d"),
        (unread, recall, "active a"),
        (unread, roll_out, "unread"),
        (new, again, "active a, pending"),
        (new, advance, "active c, pending"),
        (new, refuse, "refused d, pending"),
        (new, roll_out, "active a"),
        (done, again, "active a"),
        (done, advance, "active c, pending"),
        (done, refuse, "refused d"),
        (done, recall, "active a"),
        (refused, again, "active a, pending"),
        (refused, advance, "active c, pending"),
        (refused, refuse, "refused d, pending"),
        (refused, roll_out, "refused b"),
        // The status still reports the refusal of the later revision.
        (refused_first, recall, "refused b"),
        (refused_first, advance, "active c, pending"),
    ] {
        let known = before(KnownRevision::Unread);
        let from = text(&known);
        assert_eq!(text(&transition(known)), expected, "from {from}");
    }
}

#[test]
fn a_rewrite_is_over_when_the_status_is_settled() {
    assert_eq!(BranchHistory::Rewritten.after_status(false), BranchHistory::Rewritten);
    assert_eq!(BranchHistory::Rewritten.after_status(true), BranchHistory::Linear);
    assert_eq!(BranchHistory::Linear.after_status(false), BranchHistory::Linear);
}

#[test]
fn kept_trees_are_those_of_one_mirror() {
    let url = |name: &str| format!("https://git.example.org/{name}.git").parse::<Url>().unwrap();
    let trees = |digit: char| BTreeSet::from([digit.to_string().repeat(40).parse::<Oid>().unwrap()]);
    assert!(KeptTrees::None.are(&url("dev"), &BTreeSet::new()));
    assert!(!KeptTrees::None.are(&url("dev"), &trees('a')));
    let kept = KeptTrees::Kept { url: url("dev"), trees: trees('a') };
    assert!(kept.are(&url("dev"), &trees('a')));
    assert!(!kept.are(&url("dev"), &trees('b')));
    assert!(!kept.are(&url("other"), &trees('a')));
}

#[test]
fn our_own_status_is_used_until_the_watch_shows_it() {
    for (shown, written, expected) in [
        (Some("7"), Some(8), "ours"),
        (Some("8"), Some(8), "theirs"),
        (Some("9"), Some(8), "theirs"),
        (Some("7"), None, "theirs"),
        (None, Some(8), "theirs"),
        (None, None, "ours"),
    ] {
        let known = KnownStatus::Written { resource_version: written, status: Box::new(status("ours")) };
        let source = source(shown);
        let found = known.shown(&source).status.clone();
        assert_eq!(found, Some(status(expected)), "shown {shown:?}, written {written:?}");
        assert_eq!(KnownStatus::Unwritten.shown(&source).status, Some(status("theirs")));
    }
}

fn text(known: &KnownRevision) -> String {
    let digit = |revision: &Revision| revision.commit().unwrap().to_string().remove(0);
    let name = match known {
        KnownRevision::Unread => "unread".to_owned(),
        KnownRevision::Active { revision, .. } => format!("active {}", digit(revision)),
        KnownRevision::Refused { refused, .. } => format!("refused {}", digit(&refused.revision)),
    };
    match known.rollout() {
        Rollout::Done => name,
        Rollout::Pending => format!("{name}, pending"),
    }
}

fn failure(remedy: Remedy) -> ReadFailure {
    ReadFailure {
        reason: "Test",
        message: "it failed".to_owned(),
        said: None,
        remedy,
        retry_after: None,
        unverified: None,
    }
}

fn refusal(digit: char) -> RefusedRevision {
    let mut diagnostics = Diagnostics::default();
    diagnostics.push(Diagnostic::error("test", "broken".to_owned()));
    RefusedRevision { revision: revision(digit), reading: Digest::of_bytes(b"settings"), diagnostics }
}

fn revision(digit: char) -> Revision {
    Revision::Commit { name: "main".to_owned(), commit: digit.to_string().repeat(40).parse().unwrap() }
}

fn status(handled: &str) -> GitSourceStatus {
    serde_json::from_value(json!({ "lastHandledReconcileAt": handled })).unwrap()
}

fn source(resource_version: Option<&str>) -> GitSource {
    serde_json::from_value(json!({
        "apiVersion": "tidegate.dev/v1alpha1", "kind": "GitSource",
        "metadata": { "name": "dev", "namespace": "kcp-system", "resourceVersion": resource_version },
        "spec": { "url": "https://git.example.org/dev.git" },
        "status": status("theirs"),
    }))
    .unwrap()
}
