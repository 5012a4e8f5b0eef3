use std::sync::Arc;

use k8s_openapi::jiff::{SignedDuration, Timestamp};
use serde_json::json;
use tidegate_cluster::{Error, Target};
use tidegate_core::{
    api::{
        kyma::{ModuleStatus, TrackingMetadata, TrackingObject},
        shared::{State, Time},
    },
    conditions::Status,
    object::Gvk,
};

use super::*;

/// A Kyma whose own modules come from KCP.
fn kyma(channel: &str) -> Kyma {
    let mut kyma = Kyma::default();
    kyma.metadata.annotations = Some([("tidegate.dev/modules-from".to_owned(), "git".to_owned())].into());
    channel.clone_into(&mut kyma.spec.channel);
    kyma
}

fn deleted(mut kyma: Kyma) -> Kyma {
    kyma.metadata.deletion_timestamp = Some(Time(Timestamp::UNIX_EPOCH));
    kyma
}

/// The knowledge after a pass that left `left`, and a later read of `live`.
fn known(live: Option<Kyma>, left: Option<Kyma>) -> KnownCounterpart {
    let former = KnownCounterpart::default().found(left.map(Arc::new)).after(&CounterpartReport::Current);
    former.found(live.map(Arc::new))
}

/// The same, once a read had an answer that is no Kyma.
fn unreadable(live: Option<Kyma>) -> KnownCounterpart {
    let mut known = known(live, None);
    known.refreshed(Err(no_kyma())).unwrap();
    known
}

fn no_kyma() -> Error {
    let target = Target::Path("Kyma");
    Error::Answer { cluster: "runtime".into(), target, message: "spec.channel: invalid type".to_owned() }
}

/// Takes all steps of a pass in a runtime that applies every write. Returns the steps in words.
fn play(known: &mut KnownCounterpart, kcp: &Kyma) -> (Vec<&'static str>, CounterpartReport) {
    let (mut progress, mut script) = (Progress::Begun, Vec::new());
    loop {
        let step = next(known, kcp, progress);
        let (word, after) = match step {
            Step::Render => {
                let object = json!({"apiVersion": "v1", "kind": "Kyma", "metadata": {"name": "default"}});
                ("render", Progress::Rendered(Object::new(object).unwrap()))
            }
            Step::Create(_) => ("create", Progress::Written(CounterpartReport::Created)),
            Step::Merge { reverted, .. } => ("merge", Progress::Written(CounterpartReport::Merged { reverted })),
            Step::Read(report) => {
                *known = std::mem::take(known).found(Some(Arc::new(kcp.clone())));
                ("read", Progress::Read(report))
            }
            Step::End(report) => {
                *known = std::mem::take(known).after(&report);
                return (script, report);
            }
        };
        script.push(word);
        progress = after;
    }
}

#[track_caller]
fn check(mut known: KnownCounterpart, kcp: &Kyma, expected: &[&str], report: &CounterpartReport) {
    let (script, found) = play(&mut known, kcp);
    assert_eq!((script.as_slice(), &found), (expected, report));
}

fn merged(reverted: &[&str]) -> CounterpartReport {
    CounterpartReport::Merged { reverted: reverted.iter().map(|&name| name.to_owned()).collect() }
}

#[test]
fn a_kyma_that_is_deleted_in_the_runtime_is_created_again_once_it_is_gone() {
    let kcp = kyma("regular");
    let mut going = known(Some(deleted(kyma("regular"))), None);
    assert_eq!(play(&mut going, &kcp), (Vec::new(), CounterpartReport::AwaitsEnd));
    assert_eq!(CounterpartReport::AwaitsEnd.again(), Some(retry::DEPENDENCY_POLL));
    assert!(must_read(&going, false), "nothing reports its end");
    check(known(None, None), &kcp, &["render", "create", "read"], &CounterpartReport::Created);
    check(known(Some(kyma("regular")), None), &kcp, &["render"], &CounterpartReport::Current);
}

#[test]
fn a_kyma_that_cannot_be_read_is_left_alone_and_its_last_readable_state_stays_in_use() {
    for live in [kyma("regular"), kyma("fast"), deleted(kyma("regular"))] {
        let mut known = unreadable(Some(live.clone()));
        assert_eq!(play(&mut known, &kyma("regular")), (Vec::new(), CounterpartReport::Unreadable));
        assert_eq!(known.live().map(|live| &**live), Some(&live));
        assert!(known.problem().is_some_and(|problem| problem.ends_with("spec.channel: invalid type")));
        assert!(must_read(&known, false) && to_show(&known, &KymaStatus::default()).is_none());
        assert_eq!(CounterpartReport::Unreadable.again(), Some(Duration::from_secs(60)));
        known.refreshed(Ok(Some(Arc::new(live)))).unwrap();
        assert_eq!(known.problem(), None, "its user has corrected it");
    }
}

#[test]
fn a_kyma_that_was_never_readable_fails_the_pass() {
    let mut known = KnownCounterpart::default();
    assert!(matches!(known.refreshed(Err(no_kyma())), Err(Error::Answer { .. })));
    assert!(matches!(known, KnownCounterpart::Absent));
}

#[test]
fn a_request_that_fails_changes_nothing() {
    let mut known = known(Some(kyma("regular")), Some(kyma("regular")));
    assert!(matches!(known.refreshed(Err(Error::NotLeading)), Err(Error::NotLeading)));
    check(known, &kyma("fast"), &["render", "merge", "read"], &merged(&[]));
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
    let steps = ["render", "merge", "read"];
    let edits = merged(&["channel fast instead of regular"]);
    check(known(Some(kyma("fast")), Some(kyma("regular"))), &kyma("regular"), &steps, &edits);
    check(known(Some(kyma("fast")), None), &kyma("regular"), &steps, &edits);
    // The channel has changed in KCP.
    check(known(Some(kyma("regular")), Some(kyma("regular"))), &kyma("fast"), &steps, &merged(&[]));
}

#[test]
fn a_pass_remembers_what_it_left() {
    let mut known = known(Some(kyma("fast")), Some(kyma("fast")));
    play(&mut known, &kyma("regular"));
    assert!(matches!(&known, KnownCounterpart::Readable(live) if live.left == Some(kyma("regular").spec)));
    check(
        known.found(Some(Arc::new(kyma("fast")))),
        &kyma("regular"),
        &["render", "merge", "read"],
        &merged(&["channel fast instead of regular"]),
    );
}

#[test]
fn users_are_told_of_a_new_kyma_and_of_reverted_edits() {
    for (report, expected) in [
        (CounterpartReport::Current, None),
        (CounterpartReport::AwaitsEnd, None),
        (CounterpartReport::Unreadable, None),
        (merged(&[]), None),
        (CounterpartReport::Created, Some("created the Kyma in the runtime")),
        (merged(&["channel", "module cache"]), Some("reverted edits in the runtime: channel, module cache")),
    ] {
        assert_eq!(report.event().map(|(_, _, note)| note).as_deref(), expected, "{report:?}");
    }
    assert_eq!(merged(&["channel"]).reverted(), ["channel"]);
}

#[test]
fn the_copy_of_the_status_leads_to_what_users_of_the_runtime_can_see() {
    let metadata = TrackingMetadata { namespace: "kcp-system".to_owned(), ..TrackingMetadata::default() };
    let object = || TrackingObject { metadata: metadata.clone(), ..TrackingObject::default() };
    let module = ModuleStatus { manifest: Some(object()), template: Some(object()), ..ModuleStatus::default() };
    let mut status = KymaStatus { state: State::Ready, modules: vec![module], ..KymaStatus::default() };
    let hidden =
        [conditions::APPLIED, conditions::WATCH_APPLIED, conditions::RECONCILE_REQUESTED, conditions::REGISTRY];
    for type_ in hidden.into_iter().chain(["Modules"]) {
        let now = Time(Timestamp::UNIX_EPOCH);
        conditions::set(&mut status.conditions, type_, Status::True, "Ready", "", None, &now);
    }
    let known = known(Some(kyma("regular")), None);
    let shown = to_show(&known, &status).unwrap();
    assert_eq!(shown.conditions.iter().map(|condition| condition.type_.as_str()).collect::<Vec<_>>(), ["Modules"]);
    assert_eq!(shown.modules[0].manifest, None);
    assert_eq!(shown.modules[0].template.as_ref().unwrap().metadata.namespace, SKR_NAMESPACE);
    let known = known.shows(Some(shown));
    assert_eq!(to_show(&known, &status), None, "it has it");
    status.conditions[0].last_transition_time = Time(Timestamp::UNIX_EPOCH + SignedDuration::from_secs(1));
    assert_eq!(to_show(&known, &status), None, "only a time differs");
    status.state = State::Error;
    assert!(to_show(&known, &status).is_some(), "the state differs");
    let known = known.shows(None);
    assert_eq!(to_show(&known, &status), None, "it does not exist");
}

#[test]
fn a_kyma_that_can_be_read_shows_which_modules_are_installed() {
    let module = |name: &str, state| ModuleStatus { name: name.to_owned(), state, ..ModuleStatus::default() };
    let mut shown = kyma("regular");
    shown.status = Some(KymaStatus {
        modules: vec![
            module("going", State::Deleting),
            module("ready", State::Ready),
            module("refused", State::Warning),
            module("starting", State::Processing),
        ],
        ..KymaStatus::default()
    });
    assert_eq!(known(Some(shown.clone()), None).installed(), ["ready".to_owned()].into());
    assert!(unreadable(Some(shown)).installed().is_empty(), "its status is not written until it can be read");
    assert!(known(Some(kyma("regular")), None).installed().is_empty());
    assert!(known(None, None).installed().is_empty());
}

#[test]
fn a_kyma_that_a_write_does_not_find_is_read_before_the_next_one() {
    let gone = Error::NotServed { gvk: Gvk::new("operator.kyma-project.io", "v1beta2", "Kyma") };
    for (error, expected) in [(gone, true), (no_kyma(), false)] {
        let mut known = known(Some(kyma("regular")), None);
        known.refused(&error);
        assert_eq!(must_read(&known, false), expected, "{error}");
    }
}
