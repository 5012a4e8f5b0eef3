use std::time::Duration;

use serde_json::{Value, json};
use tidegate_core::{api::names::annotation, diagnostic::Diagnostics, revision::Oid};

use super::*;
use crate::source::fixtures::{failed, source};

const MINUTE: Duration = Duration::from_secs(60);

#[test]
fn a_source_is_fetched_when_its_interval_is_over_or_a_user_asks() {
    let (source, now) = (source(&json!({})), Instant::now());
    let terms = Terms::from_source(&source).unwrap();
    let last = LastFetch { settings: terms.fetching(), next: now + MINUTE, failures: 0, outcome: ReadOutcome::Done };
    let due =
        |last: &LastFetch, triggers| is_due(&source, &terms, &Fetching::Ended(Box::new(last.clone())), triggers, now);
    assert!(is_due(&source, &terms, &Fetching::Pending, only(Trigger::Changed), now));
    assert!(!due(&last, only(Trigger::Changed)));
    assert!(due(&LastFetch { next: now, ..last.clone() }, only(Trigger::Changed)));
    assert!(due(&LastFetch { settings: Digest::of_bytes(b"another url"), ..last.clone() }, only(Trigger::Changed)));
    for trigger in [Trigger::Git, Trigger::Push, Trigger::Requested] {
        assert!(due(&last, only(trigger)), "{trigger:?}");
    }
    // After a success a retry is for KCP, not for the git server.
    assert!(!due(&last, only(Trigger::Retry)));
    assert!(due(&LastFetch { outcome: failed(Remedy::Edit), ..last.clone() }, only(Trigger::Retry)));
    // While the git server asks to wait, only a user may hurry.
    let later = LastFetch { outcome: failed(Remedy::Later), ..last };
    for trigger in [Trigger::Retry, Trigger::Git, Trigger::Push] {
        assert!(!due(&later, only(trigger)), "{trigger:?}");
    }
    assert!(due(&later, only(Trigger::Requested)) && due(&LastFetch { next: now, ..later }, only(Trigger::Retry)));
}

#[test]
fn a_request_by_annotation_is_handled_once() {
    let mut source = source(&json!({}));
    source.metadata.annotations = Some([(annotation::RECONCILE_REQUESTED_AT.to_owned(), "noon".to_owned())].into());
    let (terms, now) = (Terms::from_source(&source).unwrap(), Instant::now());
    let last = ended(&terms, &Fetching::Pending, &Ok(()), now, MINUTE, 0.0);
    assert!(is_due(&source, &terms, &last, only(Trigger::Changed), now));
    source.status = Some(serde_json::from_value(json!({ "lastHandledReconcileAt": "noon" })).unwrap());
    assert!(!is_due(&source, &terms, &last, only(Trigger::Changed), now));
}

#[test]
fn a_revision_is_read_once_and_a_rewrite_must_be_allowed() {
    let check = |spec: &Value, follows: bool, active: Option<&Revision>, refused: bool, expected: FetchedRevision| {
        let terms = Terms::from_source(&source(spec)).unwrap();
        let refusal =
            RefusedRevision { revision: found(), reading: terms.reading(), diagnostics: Diagnostics::default() };
        let active = active.map(|revision| (revision, terms.reading()));
        assert_eq!(fetched(&terms, &found(), follows, active, refused.then_some(&refusal)), expected, "{spec}");
    };
    let main = json!({ "ref": { "branch": "main" } });
    let allowed = json!({ "ref": { "branch": "main" }, "allowRewrite": true });
    let refusing = json!({ "ref": { "branch": "main" }, "onError": "RefuseRevision" });
    let tag = json!({ "ref": { "tag": "v1" } });
    let (range, name) = (json!({ "ref": { "semver": "^1" } }), json!({ "ref": { "name": "refs/pull/4/head" } }));
    let head = json!({ "ref": { "name": "refs/heads/main" } });
    check(&json!({}), false, Some(&other()), false, FetchedRevision::Rewritten("the default branch".to_owned()));
    check(&range, false, Some(&other()), false, FetchedRevision::ReadRewritten);
    check(&name, false, Some(&other()), false, FetchedRevision::ReadRewritten);
    check(&head, false, Some(&other()), false, FetchedRevision::Rewritten("refs/heads/main".to_owned()));
    check(&main, true, None, false, FetchedRevision::Read);
    check(&main, true, Some(&found()), false, FetchedRevision::Active);
    check(&main, true, Some(&other()), false, FetchedRevision::Read);
    check(&main, false, Some(&found()), false, FetchedRevision::Active);
    check(&main, false, Some(&other()), false, FetchedRevision::Rewritten("main".to_owned()));
    check(&allowed, false, Some(&other()), false, FetchedRevision::ReadRewritten);
    check(&tag, false, Some(&other()), false, FetchedRevision::ReadRewritten);
    check(&refusing, true, Some(&other()), true, FetchedRevision::StillRefused);
    // With `Withhold` a refused revision is read.
    check(&main, true, Some(&other()), true, FetchedRevision::Read);
}

#[test]
fn what_was_read_with_other_settings_is_read_again() {
    let terms = Terms::from_source(&source(&json!({}))).unwrap();
    let active = Some((&found(), Digest::of_bytes(b"other paths")));
    assert_eq!(fetched(&terms, &found(), true, active, None), FetchedRevision::Read);
}

#[test]
fn only_access_that_is_stalled_waits_for_another_secret() {
    let seen = SeenSecret(Some("7".to_owned()));
    assert_eq!(remedy(Class::Stalled, Some(&seen)), Remedy::Secret(seen.clone()));
    assert_eq!(remedy(Class::Stalled, None), Remedy::Edit);
    for class in [Class::Transient, Class::Waiting] {
        assert_eq!(remedy(class, Some(&seen)), Remedy::Retry);
    }
}

#[test]
fn other_keys_may_solve_a_revision_that_is_not_verified() {
    let (source, now) = (source(&json!({"verify": {"secretRef": {"name": "signers"}}})), Instant::now());
    let terms = Terms::from_source(&source).unwrap();
    let seen = SeenSecret(Some("7".to_owned()));
    let outcome = failed(Remedy::Keys(seen.clone()));
    let last =
        Fetching::Ended(Box::new(LastFetch { settings: terms.fetching(), next: now + MINUTE, failures: 1, outcome }));
    let namespace = source.metadata.namespace.as_deref().unwrap_or_default();
    let expected = Start::FetchIfChanged(Key::new(namespace, "signers"), seen);
    assert_eq!(start(&source, &terms, Some(key()), &last, only(Trigger::Changed), now), expected);
}

#[test]
fn without_a_due_fetch_only_another_version_of_the_secret_starts_one() {
    let (source, now) = (source(&json!({})), Instant::now());
    let terms = Terms::from_source(&source).unwrap();
    let seen = SeenSecret(Some("7".to_owned()));
    let check = |outcome: ReadOutcome, secret: Option<Key>, expected: Start| {
        let last = Fetching::Ended(Box::new(LastFetch {
            settings: terms.fetching(),
            next: now + MINUTE,
            failures: 0,
            outcome,
        }));
        assert_eq!(start(&source, &terms, secret, &last, only(Trigger::Changed), now), expected, "{last:?}");
    };
    check(ReadOutcome::Done, Some(key()), Start::Skip);
    check(failed(Remedy::Retry), Some(key()), Start::Skip);
    check(failed(Remedy::Edit), Some(key()), Start::Skip);
    check(failed(Remedy::Secret(seen.clone())), Some(key()), Start::FetchIfChanged(key(), seen.clone()));
    check(failed(Remedy::Secret(seen)), None, Start::Skip);
    check(failed(Remedy::Keys(SeenSecret(None))), Some(key()), Start::Skip);
    let first = start(&source, &terms, Some(key()), &Fetching::Pending, only(Trigger::Changed), now);
    assert_eq!(first, Start::Fetch);
}

#[test]
fn a_fetch_in_progress_is_replaced_only_for_other_settings_and_repeated_for_what_came_since() {
    let mut source = source(&json!({}));
    let terms = Terms::from_source(&source).unwrap();
    let fetch = RunningFetch {
        settings: terms.fetching(),
        requested: None,
        since: Instant::now(),
        triggers: only(Trigger::Resync),
        again: false,
    };
    assert_eq!(running(None, &terms, only(Trigger::Git)), Running::None);
    let other = Terms { url: "https://git.example.org/other.git".to_owned(), ..terms.clone() };
    assert_eq!(running(Some(fetch.clone()), &other, only(Trigger::Git)), Running::Outdated(only(Trigger::Resync)));
    for (trigger, again) in [
        (Trigger::Changed, false),
        (Trigger::Drift, false),
        (Trigger::Retry, false),
        (Trigger::Git, true),
        (Trigger::Push, true),
        (Trigger::Requested, true),
    ] {
        let expected = RunningFetch { triggers: only(Trigger::Resync).with(trigger), again, ..fetch.clone() };
        let found = running(Some(fetch.clone()), &terms, only(trigger));
        assert_eq!(found, Running::Current(expected.clone()));
        assert_eq!(must_repeat(&expected, &source), again, "{trigger}");
    }
    source.metadata.annotations = Some([(annotation::RECONCILE_REQUESTED_AT.to_owned(), "noon".to_owned())].into());
    assert!(must_repeat(&fetch, &source), "the request came after the fetch began");
    assert!(!must_repeat(&RunningFetch { requested: Some("noon".to_owned()), ..fetch }, &source));
}

#[test]
fn until_the_first_fetch_ends_the_status_says_what_it_waits_for() {
    let terms = Terms::from_source(&source(&json!({}))).unwrap();
    let fetch = || RunningFetch {
        settings: terms.fetching(),
        requested: None,
        since: Instant::now(),
        triggers: Triggers::default(),
        again: false,
    };
    let now = Instant::now();
    let failed = ended(&terms, &Fetching::Pending, &Err(Problem::Local), now, MINUTE, 0.0);
    for (fetch, running, progress, expected) in [
        (Fetching::Pending, None, FetchProgress::Asks, "done"),
        (Fetching::Pending, Some(fetch()), FetchProgress::Ended, "the revision is fetched, and waits until checks"),
        (Fetching::Pending, Some(fetch()), FetchProgress::Asks, "git.example.org has not answered yet"),
        (
            Fetching::Pending,
            Some(fetch()),
            FetchProgress::Waits,
            "the fetch waits for its turn: servers that answered last time come first, which git.example.org did not",
        ),
        // What is known of the last fetch stays.
        (failed, Some(fetch()), FetchProgress::Waits, "spec.url names a path"),
        (ended(&terms, &Fetching::Pending, &Ok(()), now, MINUTE, 0.0), Some(fetch()), FetchProgress::Asks, "done"),
    ] {
        let known = KnownSource { fetch, running, ..KnownSource::default() };
        let found = match fetched_so_far(&known, &terms, progress) {
            Fetched::Done => "done".to_owned(),
            Fetched::Failed { message, .. } | Fetched::Unverified { message, .. } => message,
        };
        assert!(found.starts_with(expected), "{found}");
    }
}

#[test]
fn failures_in_a_row_are_counted_and_a_server_may_ask_to_wait() {
    let (terms, now) = (Terms::from_source(&source(&json!({}))).unwrap(), Instant::now());
    let lost = || {
        let url = "https://kcp.example.org".to_owned();
        let error = cluster::Error::TooManyRequests {
            cluster: url.as_str().into(),
            retry_after: Some(Duration::from_secs(90)),
        };
        Err(Problem::SecretRead { secret: key(), error: Box::new(error) })
    };
    let next = |fetch: &Fetching| match fetch {
        Fetching::Ended(last) => last.next - now,
        Fetching::Pending => unreachable!("it ended"),
    };
    let first = ended(&terms, &Fetching::Pending, &Err(Problem::Interrupted(found())), now, MINUTE, 0.0);
    assert_eq!((first.failures(), next(&first)), (1, MINUTE));
    let second = ended(&terms, &first, &lost(), now, MINUTE, 0.0);
    assert_eq!((second.failures(), next(&second)), (2, Duration::from_secs(90)));
    let third = ended(&terms, &second, &Ok(()), now, MINUTE, 0.0);
    assert_eq!((third.failures(), next(&third)), (0, MINUTE));
}

#[test]
fn a_git_server_that_asks_for_no_wait_is_not_asked_at_once() {
    let (seconds, now) = (Duration::from_secs, Instant::now());
    for (interval, failures, asked, expected) in [
        ("10s", 0, 0, 500),
        ("10s", 1, 0, 1_000),
        ("10s", 100, 0, 8_000),
        ("10m", 0, 1, 1_000),
        ("10m", 4, 1, 8_000),
        ("10m", 100, 1, 120_000),
        // A longer wait replaces the interval, in both directions.
        ("10s", 0, 3_600, 3_600_000),
        ("1h", 0, 30, 30_000),
    ] {
        let terms = Terms::from_source(&source(&json!({ "interval": interval }))).unwrap();
        let error = git::Error::Status {
            url: Box::new(terms.url.parse().unwrap()),
            status: 429,
            said: None,
            retry_after: Some(seconds(asked)),
        };
        let before = LastFetch { settings: terms.fetching(), next: now, failures, outcome: ReadOutcome::Done };
        let found = ended(&terms, &Fetching::Ended(Box::new(before)), &Err(Problem::Git(error)), now, MINUTE, 0.0);
        let Fetching::Ended(last) = found else { unreachable!("it ended") };
        let expected = (Duration::from_millis(expected), failures + 1);
        assert_eq!((last.next - now, last.failures), expected, "{interval} {failures} {asked}");
    }
}

#[test]
fn a_local_path_needs_the_permission_of_the_daemon() {
    let terms = |url: &str| Terms { url: url.to_owned(), ..Terms::from_source(&source(&json!({}))).unwrap() };
    let reason = |url: &str, local_allowed| match super::url(&terms(url), local_allowed) {
        Ok(_) => "valid",
        Err(problem) => problem.failure().reason,
    };
    assert_eq!(reason("https://git.example.org/dev.git", false), "valid");
    assert_eq!(reason("/srv/git/dev", true), "valid");
    assert_eq!(reason("/srv/git/dev", false), "LocalSourceRefused");
    assert_eq!(reason("ftp://git.example.org/dev.git", true), "InvalidURL");
    assert_eq!(reason("git@git.example.org:dev.git", false), "valid");
}

#[test]
fn the_cached_secret_is_used_until_a_user_may_have_changed_it() {
    let check = |secret: Option<Key>, trigger, expected: bool| {
        let found = cached(Some(access("7")), secret.as_ref(), &url(), only(trigger));
        assert_eq!(found.is_some(), expected, "{secret:?} {trigger:?}");
    };
    check(Some(key()), Trigger::Resync, true);
    check(Some(key()), Trigger::Git, true);
    check(Some(key()), Trigger::Requested, false);
    check(Some(key()), Trigger::Changed, false);
    check(Some(Key::new("kcp-system", "another")), Trigger::Resync, false);
    check(None, Trigger::Resync, false);
    assert_eq!(cached(None, Some(&key()), &url(), only(Trigger::Resync)), None);
    // For ssh, other keys of the Secret are read.
    let ssh = "git@git.example.org:dev.git".parse().unwrap();
    assert_eq!(cached(Some(access("7")), Some(&key()), &ssh, only(Trigger::Resync)), None);
}

#[test]
fn a_fetch_begins_with_the_secret_that_it_needs() {
    for (secret, cached, expected) in [
        (None, None, "fetch Anonymous"),
        (Some(key()), None, "read kcp-system/dev-git"),
        (Some(key()), Some(access("7")), "fetch Cached 7"),
    ] {
        assert_eq!(text(&begin(secret, cached)), expected);
    }
}

#[test]
fn what_the_api_server_answers_about_the_secret_decides_the_fetch() {
    let mut secret = Secret::default();
    secret.metadata.resource_version = Some("8".to_owned());
    secret.data = Some([("password".to_owned(), k8s_openapi::ByteString(b"secret".to_vec()))].into());
    let lost = cluster::Error::NotServed { gvk: tidegate_core::object::Gvk::new("", "v1", "Secret") };
    for (answer, expected) in [
        (Ok(Some(secret)), "fetch Fresh 8"),
        (Ok(Some(Secret::default())), "end SecretInvalid, Secret(SeenSecret(None))"),
        (Ok(None), "end SecretNotFound, Secret(SeenSecret(None))"),
        (Err(lost), "end SecretNotReadable, Retry"),
    ] {
        assert_eq!(text(&after_secret(&url(), &key(), answer)), expected);
    }
}

#[test]
fn a_server_that_rejects_the_cached_secret_gets_the_current_one_once() {
    let cached = || FetchAccess::Cached(access("7"));
    let fresh = || FetchAccess::Fresh(access("8"));
    for (access, answer, expected) in [
        (FetchAccess::Anonymous, Ok(()), "end without a Secret"),
        (cached(), Ok(()), "end with 7"),
        (fresh(), Ok(()), "end with 8"),
        (cached(), Err(rejected()), "read kcp-system/dev-git"),
        (fresh(), Err(rejected()), "end AuthenticationFailed, Secret(SeenSecret(Some(\"8\")))"),
        (FetchAccess::Anonymous, Err(rejected()), "end AuthenticationFailed, Secret(SeenSecret(None))"),
        (cached(), Err(git::Error::Thread), "end StorageFailed, Retry"),
        (cached(), Err(of_app(git::AppProblem::Signature)), "read kcp-system/dev-git"),
        (cached(), Err(of_app(git::AppProblem::Rate { status: 429 })), "end RateLimited, Retry"),
        (fresh(), Err(of_app(git::AppProblem::Permission)), "end AccessDenied, Secret(SeenSecret(Some(\"8\")))"),
        (fresh(), Err(git::Error::Thread), "end StorageFailed, Retry"),
    ] {
        let fetched = git::Fetched { revision: found(), object: commit('b'), fast_forward: true, received_bytes: 0 };
        assert_eq!(text(&after_fetch(access, None, answer.map(|()| fetched))), expected);
    }
}

#[test]
fn an_error_of_a_fetch_names_the_keys_that_nothing_reads_and_the_secret_of_a_bad_value() {
    let message =
        |access: SourceAccess, error: git::Error| match after_fetch(FetchAccess::Fresh(access), None, Err(error)) {
            FetchStep::End(Err(problem)) => problem.failure(),
            step => unreachable!("{}", text(&step)),
        };
    let misspelt = message(SourceAccess { unread: vec!["caFile".to_owned()], ..access("8") }, rejected());
    let begin = "https://git.example.org/dev.git rejected the credentials: check whether they are correct and still valid; \
                 nothing reads `caFile` (rename it to `ca.crt`) of Secret kcp-system/dev-git: for an https URL, the keys are ";
    assert!(misspelt.message.starts_with(begin), "{}", misspelt.message);
    assert_eq!(misspelt.remedy, Remedy::Secret(SeenSecret(Some("8".to_owned()))));
    let junk = message(access("8"), git::Error::Authorities);
    assert_eq!(junk.message, "ca.crt contains no valid PEM certificate; correct Secret kcp-system/dev-git");
    assert_eq!(message(access("8"), rejected()).message.split("; ").count(), 1);
}

#[test]
fn a_request_carries_the_secret_and_the_reference() {
    let terms = Terms::from_source(&source(&json!({ "ref": { "tag": "v1" } }))).unwrap();
    let url: git::Url = terms.url.parse().unwrap();
    let request = remote(&terms, &url, &FetchAccess::Fresh(access("7")));
    assert_eq!(request.reference, Reference::Tag("v1".to_owned()));
    let credentials = Some(git::Credentials::Bearer("token".to_owned()));
    assert_eq!((request.credentials, request.ca), (credentials, None));
    let request = remote(&terms, &url, &FetchAccess::Anonymous);
    assert_eq!((request.credentials, request.ca, request.timeout), (None, None, terms.timeout));
}

#[test]
fn a_request_over_ssh_carries_the_key_and_the_known_hosts() {
    let terms = Terms::from_source(&source(&json!({ "ref": { "semver": "^1" } }))).unwrap();
    let ssh = git::SshAccess { identity: Some("pem".to_owned()), ..git::SshAccess::default() };
    let found = SourceAccess { content: Content::Ssh(ssh.clone()), ..access("7") };
    let request = remote(&terms, &url(), &FetchAccess::Fresh(found));
    assert_eq!((request.ssh, request.credentials), (Some(ssh), None));
    assert_eq!(request.reference, Reference::Versions("^1".parse().unwrap()));
}

#[test]
fn a_tag_that_was_moved_is_reported() {
    let terms = |reference: Value| Terms::from_source(&source(&json!({ "ref": reference }))).unwrap();
    let tag = terms(json!({ "tag": "main" }));
    let message =
        |terms: &Terms, last: Option<&Revision>| moved_tag(terms, last, &found()).map(|warning| warning.message);
    assert_eq!(message(&tag, None), None);
    assert_eq!(message(&tag, Some(&found())), None);
    let moved = message(&tag, Some(&other())).unwrap();
    assert!(moved.starts_with("the tag main was moved from "), "{moved}");
    assert_eq!(message(&terms(json!({ "branch": "main" })), Some(&other())), None);
    assert_eq!(message(&terms(json!({ "tag": "v2" })), Some(&other())), None);
}

#[test]
fn a_revision_is_read_without_a_fetch_only_if_what_is_active_is_out_of_date() {
    let terms = Terms::from_source(&source(&json!({}))).unwrap();
    let (revision, current, former) = (found(), terms.reading(), Digest::of_bytes(b"other paths"));
    for (active, references, expected) in [
        (None, References::Same, Reload::LastGood),
        (Some((&revision, current)), References::Same, Reload::Nothing),
        (Some((&revision, current)), References::Changed, Reload::Again(found())),
        (Some((&revision, former)), References::Same, Reload::Again(found())),
        (Some((&revision, former)), References::Changed, Reload::Again(found())),
    ] {
        assert_eq!(reload(&terms, active, references, None), expected, "{active:?} {references:?}");
    }
    // Refused with these settings, it is not read again until something else changes. Other settings may accept it.
    let refused = |revision, reading| RefusedRevision { revision, reading, diagnostics: Diagnostics::default() };
    let outdated = Some((&revision, former));
    for (refused, references, expected) in [
        (refused(found(), current), References::Same, Reload::Nothing),
        (refused(found(), current), References::Changed, Reload::Again(found())),
        (refused(found(), former), References::Same, Reload::Again(found())),
        (refused(other(), current), References::Same, Reload::Again(found())),
        (refused(other(), former), References::Same, Reload::Again(other())),
    ] {
        assert_eq!(reload(&terms, outdated, references, Some(&refused)), expected, "{refused:?} {references:?}");
    }
    let corrected = refused(other(), former);
    assert_eq!(reload(&terms, Some((&revision, current)), References::Same, Some(&corrected)), Reload::Again(other()));
    assert_eq!(reload(&terms, None, References::Same, Some(&corrected)), Reload::Again(other()));
    assert_eq!(reload(&terms, None, References::Same, Some(&refused(other(), current))), Reload::LastGood);
}

#[test]
fn the_last_good_revision_is_read_unless_it_says_otherwise_than_the_gitsource() {
    let terms = Terms::from_source(&source(&json!({}))).unwrap();
    let refused = |revision, reading, code| {
        let mut diagnostics = Diagnostics::default();
        diagnostics.push(Diagnostic::error(code, "a message"));
        RefusedRevision { revision, reading, diagnostics }
    };
    let (current, former) = (terms.reading(), Digest::of_bytes(b"other paths"));
    for (refused, expected) in [
        (None, true),
        (Some(refused(found(), current, code::SOURCE_DIFFERS)), false),
        (Some(refused(found(), current, code::SOURCE_FILE)), false),
        (Some(refused(found(), former, code::SOURCE_DIFFERS)), true),
        (Some(refused(other(), current, code::SOURCE_DIFFERS)), true),
        (Some(refused(found(), current, code::APPLY_FAILED)), true),
    ] {
        assert_eq!(is_recalled(&terms, &found(), refused.as_ref()), expected, "{refused:?}");
    }
}

#[test]
fn only_a_revision_that_the_source_follows_is_refused_for_its_errors() {
    use Flaws::{Disagreement, Errors, None as Good};
    use OnError::{RefuseRevision, Withhold};
    use Purpose::{Follow, Recall};
    let (same, other) = (found(), other());
    for (purpose, on_error, flaws, last, expected) in [
        (Follow, Withhold, Good, None, ReadRevision::New),
        (Follow, Withhold, Errors, None, ReadRevision::New),
        (Follow, Withhold, Errors, Some(&other), ReadRevision::New),
        (Follow, Withhold, Errors, Some(&same), ReadRevision::Same),
        (Follow, RefuseRevision, Good, Some(&other), ReadRevision::New),
        (Follow, RefuseRevision, Good, Some(&same), ReadRevision::Same),
        (Follow, RefuseRevision, Errors, Some(&other), ReadRevision::Refused),
        // Another object in KCP may break the active revision as well.
        (Follow, RefuseRevision, Errors, Some(&same), ReadRevision::Refused),
        (Recall, RefuseRevision, Errors, Some(&same), ReadRevision::Recalled),
        (Recall, Withhold, Good, Some(&same), ReadRevision::Recalled),
        (Follow, Withhold, Disagreement, Some(&same), ReadRevision::Refused),
        (Follow, Withhold, Disagreement, None, ReadRevision::Refused),
        (Recall, Withhold, Disagreement, Some(&same), ReadRevision::Refused),
    ] {
        let read = read(purpose, on_error, flaws, &same, last);
        assert_eq!(read, expected, "{purpose:?} {on_error:?} {flaws:?} {last:?}");
    }
}

fn text(step: &FetchStep) -> String {
    let version = |access: &SourceAccess| access.seen.0.clone().unwrap_or_default();
    match step {
        FetchStep::ReadSecret(key) => format!("read {key}"),
        FetchStep::Fetch(FetchAccess::Anonymous) => "fetch Anonymous".to_owned(),
        FetchStep::Fetch(FetchAccess::Cached(access)) => format!("fetch Cached {}", version(access)),
        FetchStep::Fetch(FetchAccess::Fresh(access)) => format!("fetch Fresh {}", version(access)),
        FetchStep::End(Ok(FetchEnd { access: None, .. })) => "end without a Secret".to_owned(),
        FetchStep::End(Ok(FetchEnd { access: Some(access), .. })) => format!("end with {}", version(access)),
        FetchStep::End(Err(problem)) => {
            let failure = problem.failure();
            format!("end {}, {:?}", failure.reason, failure.remedy)
        }
    }
}

fn rejected() -> git::Error {
    let url: git::Url = "https://git.example.org/dev.git".parse().unwrap();
    git::Error::Authentication { url: Box::new(url), sent: true, said: None }
}

fn of_app(why: git::AppProblem) -> git::Error {
    let url: git::Url = "https://api.github.com".parse().unwrap();
    git::Error::GitHubApp { url: Box::new(url), why, said: None, retry_after: None }
}

fn access(version: &str) -> SourceAccess {
    let login = Some(Login::Credentials(git::Credentials::Bearer("token".to_owned())));
    let seen = SeenSecret(Some(version.to_owned()));
    let content = Content::Https { login, ca: None, client: None };
    SourceAccess { secret: key(), seen, content, unread: Vec::new() }
}

fn url() -> git::Url {
    "https://git.example.org/dev.git".parse().unwrap()
}

fn key() -> Key {
    Key::new("kcp-system", "dev-git")
}

fn only(trigger: Trigger) -> Triggers {
    Triggers::default().with(trigger)
}

fn found() -> Revision {
    Revision::Commit { name: "main".to_owned(), commit: commit('a') }
}

fn other() -> Revision {
    Revision::Commit { name: "main".to_owned(), commit: commit('b') }
}

fn commit(digit: char) -> Oid {
    digit.to_string().repeat(40).parse().unwrap()
}
