use std::collections::BTreeMap;

use serde_json::{Value, json};
use tidegate_core::{diagnostic::Diagnostics, object::ObjectId, revision::Oid};

use super::*;

const MINUTE: Duration = Duration::from_secs(60);
const FLUX: [(&str, &str); 2] =
    [("kustomize.toolkit.fluxcd.io/name", "apps"), ("kustomize.toolkit.fluxcd.io/namespace", "flux-system")];

#[test]
fn a_source_is_fetched_when_its_interval_is_over_or_somebody_asks() {
    let (source, now) = (source(&json!({})), Instant::now());
    let terms = Terms::from_source(&source).unwrap();
    let last = LastFetch { fetching: terms.fetching(), next: now + MINUTE };
    let due = |last, reading: &Reading, triggers| is_due(&source, &terms, last, reading, triggers, now);
    assert!(due(None, &Reading::Never, only(Trigger::Changed)));
    assert!(!due(Some(last), &Reading::Done, only(Trigger::Changed)));
    assert!(due(Some(LastFetch { next: now, ..last }), &Reading::Done, only(Trigger::Changed)));
    assert!(due(
        Some(LastFetch { fetching: Digest::of_bytes(b"another url"), ..last }),
        &Reading::Done,
        only(Trigger::Changed)
    ));
    for trigger in [Trigger::Git, Trigger::Requested] {
        assert!(due(Some(last), &Reading::Done, only(trigger)), "{trigger:?}");
    }
    // A retry is for what failed; otherwise it is for KCP, not for the remote.
    assert!(!due(Some(last), &Reading::Done, only(Trigger::Retry)));
    assert!(due(Some(last), &failed(Remedy::Edit), only(Trigger::Retry)));
}

#[test]
fn a_request_by_annotation_is_handled_once() {
    let mut source = source(&json!({}));
    source.metadata.annotations = Some([(annotation::RECONCILE_REQUESTED_AT.to_owned(), "noon".to_owned())].into());
    let (terms, now) = (Terms::from_source(&source).unwrap(), Instant::now());
    let last = Some(LastFetch { fetching: terms.fetching(), next: now + MINUTE });
    assert!(is_due(&source, &terms, last, &Reading::Done, only(Trigger::Changed), now));
    source.status = Some(serde_json::from_value(json!({ "lastHandledReconcileAt": "noon" })).unwrap());
    assert!(!is_due(&source, &terms, last, &Reading::Done, only(Trigger::Changed), now));
}

#[test]
fn a_revision_is_read_once_and_a_rewrite_needs_leave() {
    let check = |spec: &Value, follows: bool, in_force: Option<&Revision>, refused: bool, expected: FetchedRevision| {
        let terms = Terms::from_source(&source(spec)).unwrap();
        let refusal =
            RefusedRevision { revision: found(), reading: terms.reading(), diagnostics: Diagnostics::default() };
        let in_force = in_force.map(|revision| (revision, terms.reading()));
        assert_eq!(fetched(&terms, &found(), follows, in_force, refused.then_some(&refusal)), expected, "{spec}");
    };
    let main = json!({ "ref": { "branch": "main" } });
    let allowed = json!({ "ref": { "branch": "main" }, "allowRewrite": true });
    let refusing = json!({ "ref": { "branch": "main" }, "onError": "RefuseRevision" });
    let tag = json!({ "ref": { "tag": "v1" } });
    check(&main, true, None, false, FetchedRevision::Read);
    check(&main, true, Some(&found()), false, FetchedRevision::InForce);
    check(&main, true, Some(&other()), false, FetchedRevision::Read);
    check(&main, false, Some(&found()), false, FetchedRevision::InForce);
    check(&main, false, Some(&other()), false, FetchedRevision::Rewritten("main".to_owned()));
    check(&allowed, false, Some(&other()), false, FetchedRevision::ReadRewritten);
    check(&tag, false, Some(&other()), false, FetchedRevision::ReadRewritten);
    check(&refusing, true, Some(&other()), true, FetchedRevision::StillRefused);
    // With `Withhold` what was refused before is read.
    check(&main, true, Some(&other()), true, FetchedRevision::Read);
}

#[test]
fn what_was_read_with_other_settings_is_read_again() {
    let terms = Terms::from_source(&source(&json!({}))).unwrap();
    let in_force = Some((&found(), Digest::of_bytes(b"other paths")));
    assert_eq!(fetched(&terms, &found(), true, in_force, None), FetchedRevision::Read);
}

#[test]
fn a_pass_ends_with_what_comes_first() {
    let (terms, now) = (Terms::from_source(&source(&json!({ "interval": "5m" }))).unwrap(), Instant::now());
    let last = Some(LastFetch { fetching: terms.fetching(), next: now + MINUTE });
    let check = |reading: &Reading, failure, again, expected: Finish| {
        assert_eq!(finish(&terms, last, reading, failure, again, now), expected, "{reading:?}");
    };
    let resync = |wait| Finish::After(wait, Trigger::Resync);
    check(&Reading::Done, None, false, resync(MINUTE));
    check(&Reading::Done, None, true, Finish::After(LOOK_AGAIN, Trigger::Retry));
    check(&Reading::Done, Some(Class::Waiting), true, Finish::Failed(Class::Waiting));
    check(&failed(Remedy::Retry), None, true, Finish::Failed(Class::Transient));
    check(&failed(Remedy::Retry), Some(Class::Stalled), true, Finish::Failed(Class::Stalled));
    check(&failed(Remedy::Secret), None, false, resync(SECRET_LOOK));
    check(&failed(Remedy::Edit), None, false, resync(MINUTE));
    assert_eq!(finish(&terms, None, &Reading::Never, None, false, now), resync(MINUTE * 5));
}

#[test]
fn only_access_that_is_stalled_waits_for_another_secret() {
    assert_eq!(remedy(Class::Stalled, true), Remedy::Secret);
    assert_eq!(remedy(Class::Stalled, false), Remedy::Edit);
    for class in [Class::Transient, Class::Waiting] {
        assert_eq!(remedy(class, true), Remedy::Retry);
    }
}

#[test]
fn only_what_still_is_ours_and_not_kept_is_deleted() {
    let ours = live(&[(label::SOURCE, "kcp-system.dev")], &[]);
    assert!(may_prune(&ours, "kcp-system.dev", "u1"));
    assert!(!may_prune(&ours, "kcp-system.dev", "u2"), "a later object of the same name");
    assert!(!may_prune(&ours, "kcp-system.other", "u1"), "another source's");
    assert!(!may_prune(&Metadata { deleting: true, ..ours.clone() }, "kcp-system.dev", "u1"), "on its way");
    let kept = live(&[(label::SOURCE, "kcp-system.dev")], &[(annotation::PRUNE, "disabled")]);
    assert!(!may_prune(&kept, "kcp-system.dev", "u1"), "kept by its user");

    assert_eq!(parting(&ours, true), Parting::Delete);
    assert_eq!(parting(&ours, false), Parting::Unmark);
    assert_eq!(parting(&kept, true), Parting::Unmark);
    let flux = live(&FLUX, &[]);
    assert_eq!(parting(&flux, true), Parting::Unmark, "another tool's");
}

fn only(trigger: Trigger) -> Triggers {
    Triggers::default().with(trigger)
}

fn failed(remedy: Remedy) -> Reading {
    Reading::Failed { reason: "Test", message: "it failed".to_owned(), remedy }
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

fn source(spec: &Value) -> GitSource {
    let mut all = json!({ "url": "https://git.example.org/dev.git" });
    all.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
    serde_json::from_value(json!({
        "apiVersion": "tidegate.dev/v1alpha1", "kind": "GitSource",
        "metadata": { "name": "dev", "namespace": "kcp-system" },
        "spec": all,
    }))
    .unwrap()
}

fn live(labels: &[(&str, &str)], annotations: &[(&str, &str)]) -> Metadata {
    let texts = |pairs: &[(&str, &str)]| -> BTreeMap<String, String> {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    };
    Metadata {
        id: ObjectId::new("", "Kyma", "kcp-system", "a"),
        version: "v1".into(),
        uid: "u1".to_owned(),
        resource_version: "7".to_owned(),
        generation: 1,
        labels: texts(labels),
        annotations: texts(annotations),
        finalizers: Vec::new(),
        managers: Vec::new(),
        deleting: false,
    }
}
