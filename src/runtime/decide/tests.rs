use k8s_openapi::jiff::Timestamp;
use tidegate_core::{
    api::{
        manifest::{ManifestStatus, SyncedObject},
        shared::{LastOperation, ObjectMeta, Time},
    },
    object::Digest,
};

use super::*;

fn kyma(requested: Option<&str>, handled: Option<&str>) -> Kyma {
    let mut kyma = Kyma::default();
    kyma.metadata.annotations =
        requested.map(|value| [(annotation::RECONCILE_REQUESTED_AT.to_owned(), value.to_owned())].into());
    let facts = Facts { requested: handled.map(str::to_owned), ..Facts::default() };
    kyma.status = Some(status::kyma(&kyma, &facts, Timestamp::UNIX_EPOCH));
    kyma
}

fn failed(kind: FailedKind) -> Failed {
    Failed { reason: "Unreachable", message: "no route".to_owned(), class: Class::Waiting, kind }
}

#[track_caller]
fn check(trigger: Trigger, is_due: bool, kyma: &Kyma, expected: Scope) {
    assert_eq!(scope(Triggers::from(trigger), is_due, kyma, &[]), expected, "{}, due: {is_due}", trigger.name());
}

#[test]
fn a_runtime_is_checked_only_for_a_reason() {
    for (trigger, expected) in [
        (Trigger::Changed, Scope::Nothing),
        (Trigger::Requested, Scope::Nothing),
        (Trigger::Git, Scope::Nothing),
        (Trigger::Retry, Scope::Nothing),
        (Trigger::Drift, Scope::Everything),
        (Trigger::Resync, Scope::Everything),
    ] {
        check(trigger, true, &kyma(None, None), expected);
    }
}

#[test]
fn a_resync_checks_only_a_runtime_whose_changes_are_not_reported() {
    check(Trigger::Resync, false, &kyma(None, None), Scope::Nothing);
    check(Trigger::Drift, false, &kyma(None, None), Scope::Everything);
    check(Trigger::Resync, false, &kyma(Some("1"), None), Scope::Everything);
    for trigger in Trigger::ALL {
        assert_eq!(is_resync(trigger.into()), trigger == Trigger::Resync, "{trigger}");
    }
}

#[test]
fn a_changed_webhook_configuration_makes_a_resync_check_everything() {
    for (scope, is_resync, asks) in [
        (Scope::Nothing, true, true),
        (Scope::Kyma, true, true),
        (Scope::Everything, true, false),
        (Scope::Nothing, false, false),
    ] {
        assert_eq!(checks_webhooks(scope, is_resync), asks, "{scope:?}");
        assert_eq!(scope_after_webhooks(scope, false), scope);
        assert_eq!(scope_after_webhooks(scope, true), Scope::Everything);
    }
}

/// Its definition may be gone, and with it all that the status says was applied.
#[test]
fn an_installed_runtime_without_its_kyma_is_checked_completely() {
    let applied = Facts { applied: Some(Digest::from_value(&Value::Null)), ..Facts::default() };
    let mut installed = Kyma::default();
    installed.status = Some(status::kyma(&installed, &applied, Timestamp::UNIX_EPOCH));
    let (new, counterpart) = (Kyma::default(), Kyma::default());
    assert_eq!(scope_after_read(Scope::Nothing, None, &installed), Scope::Everything);
    assert_eq!(scope_after_read(Scope::Kyma, Some(&counterpart), &installed), Scope::Kyma);
    assert_eq!(scope_after_read(Scope::Nothing, None, &new), Scope::Nothing, "it is installed anyway");
}

#[test]
fn an_event_of_the_runtime_reads_its_kyma_and_nothing_else() {
    check(Trigger::Reported, true, &kyma(None, None), Scope::Kyma);
    check(Trigger::Reported, true, &kyma(Some("1"), None), Scope::Everything);
}

#[test]
fn a_request_is_handled_once() {
    check(Trigger::Changed, true, &kyma(Some("1"), None), Scope::Everything);
    check(Trigger::Changed, true, &kyma(Some("2"), Some("1")), Scope::Everything);
    check(Trigger::Changed, true, &kyma(Some("1"), Some("1")), Scope::Nothing);
}

#[test]
fn a_request_that_failed_is_tried_again_and_says_so() {
    let asked = kyma(Some("2"), Some("1"));
    let facts = failed_facts(&asked, &[], &failed(FailedKind::Unreachable)).unwrap();
    assert_eq!((facts.requested.as_deref(), facts.tried.as_deref()), (None, Some("2")));
    let mut tried = asked.clone();
    tried.status = Some(status::kyma(&asked, &facts, Timestamp::UNIX_EPOCH));
    let conditions = &tried.status.as_ref().unwrap().conditions;
    let condition = conditions::find(conditions, conditions::RECONCILE_REQUESTED).unwrap();
    assert_eq!((condition.status.as_str(), condition.message.as_str()), ("False", "2"));
    check(Trigger::Retry, false, &tried, Scope::Everything);
    let done = kyma(Some("2"), Some("2"));
    assert_eq!(failed_facts(&done, &[], &failed(FailedKind::Unreachable)).unwrap().tried, None);
}

#[test]
fn the_first_pass_with_an_access_secret_reads_the_kyma_in_the_runtime() {
    let access = |name: &str, version: &str| AccessVersion {
        secret: Key::new("kcp-system", name),
        resource_version: version.to_owned(),
    };
    let now = access("one", "7");
    for (scope, answered, expected) in [
        (Scope::Nothing, None, true),
        (Scope::Nothing, Some(access("one", "6")), true),
        (Scope::Nothing, Some(access("other", "7")), true),
        (Scope::Nothing, Some(access("one", "7")), false),
        (Scope::Kyma, Some(access("one", "7")), true),
        (Scope::Everything, Some(access("one", "7")), true),
    ] {
        assert_eq!(must_read_kyma(scope, answered.as_ref(), &now), expected, "{scope:?} {answered:?}");
    }
}

#[test]
fn only_a_request_of_a_user_passes_the_breaker() {
    for trigger in Trigger::ALL {
        assert_eq!(passes_breaker(trigger.into()), trigger == Trigger::Requested, "{trigger}");
    }
}

#[test]
fn a_request_on_a_manifest_is_one_for_its_runtime() {
    let manifest = |requested: Option<&str>| {
        let mut manifest = Manifest::default();
        manifest.metadata.annotations =
            requested.map(|value| [(annotation::RECONCILE_REQUESTED_AT.to_owned(), value.to_owned())].into());
        [Arc::new(manifest)]
    };
    let triggers = Triggers::from(Trigger::Requested);
    assert_eq!(scope(triggers, true, &kyma(None, None), &manifest(Some("now"))), Scope::Everything);
    assert_eq!(scope(triggers, true, &kyma(None, None), &manifest(None)), Scope::Nothing);
}

#[test]
fn a_kyma_that_is_deleted_is_removed_even_if_its_user_has_stopped_it() {
    let with = |skip: Option<&str>, is_deleted: bool| {
        let mut kyma = kyma(None, None);
        kyma.metadata.labels = skip.map(|value| [(label::SKIP_RECONCILIATION.to_owned(), value.to_owned())].into());
        kyma.metadata.deletion_timestamp = is_deleted.then_some(Time(Timestamp::UNIX_EPOCH));
        start(&kyma)
    };
    assert_eq!(with(None, false), Start::Install);
    assert_eq!(with(Some("false"), false), Start::Install);
    assert_eq!(with(Some("True"), false), Start::Leave);
    assert_eq!(with(Some("true"), true), Start::Remove);
}

#[test]
fn a_kyma_gets_our_finalizer_and_label_once() {
    let with = |finalizers: &[&str], label: &str| {
        let mut kyma = kyma(None, None);
        kyma.metadata.labels = Some([(label::MANAGED_BY.to_owned(), label.to_owned())].into());
        kyma.metadata.finalizers = Some(finalizers.iter().map(|&name| name.to_owned()).collect());
        charge_patch(&kyma).map(|patch| patch["metadata"]["finalizers"].clone())
    };
    let ours = finalizer::KYMA;
    for (finalizers, label, expected) in [
        (&["theirs", ours][..], MANAGED_BY_KCP, None),
        (&[ours], "someone", Some(json!([ours]))),
        (&["theirs"], MANAGED_BY_KCP, Some(json!(["theirs", ours]))),
        (&[ours, finalizer::KYMA_PURGE], MANAGED_BY_KCP, Some(json!([ours]))),
    ] {
        assert_eq!(with(finalizers, label), expected, "{finalizers:?}");
    }
    assert!(charge_patch(&kyma(None, None)).is_some());
}

#[test]
fn each_kind_that_we_put_into_a_runtime_is_listed_once() {
    let manifest = |group: &str, version: &str, kind: &str| {
        let object = |(group, version, kind): (&str, &str, &str)| SyncedObject {
            group: group.to_owned(),
            version: version.to_owned(),
            kind: kind.to_owned(),
            ..SyncedObject::default()
        };
        let synced = vec![object((group, version, kind))];
        let status = Some(ManifestStatus { synced, ..ManifestStatus::default() });
        Arc::new(Manifest { status, ..Manifest::default() })
    };
    let base = kinds(&[], false, false);
    assert!(base.is_sorted());
    assert_eq!(kinds(&[manifest("", "v1", "Namespace")], false, false), base);
    let things = [manifest("x.io", "v1", "Thing"), manifest("x.io", "v1beta1", "Thing")];
    assert_eq!(kinds(&things, false, false).len(), base.len() + 1);
    assert!(base.len() < kinds(&[], true, false).len());
    assert_eq!(kinds(&[], false, true).len(), base.len() + 1, "the image pull Secret");
}

#[test]
fn what_was_reverted_is_said_until_something_else_is() {
    let edits = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>();
    let mut kyma = kyma(None, None);
    let mut say_of = |generation, mode, reverted: &[&str]| {
        kyma.metadata.generation = Some(generation);
        let fact = modules_from(&kyma, mode, &edits(reverted));
        let facts = Facts { modules_from: Some(fact.clone()), ..Facts::default() };
        kyma.status = Some(status::kyma(&kyma, &facts, Timestamp::UNIX_EPOCH));
        fact.message
    };
    let mut say = |mode, reverted: &[&str]| say_of(1, mode, reverted);
    let git = "the Kyma in the control plane decides the modules; edits in the runtime are reverted";
    assert_eq!(say(plan::ModulesFrom::Git, &[]), git);
    let told = format!("{git}; last reverted: channel, module cache");
    assert_eq!(say(plan::ModulesFrom::Git, &["channel", "module cache"]), told);
    assert_eq!(say(plan::ModulesFrom::Git, &[]), told);
    assert_eq!(say_of(2, plan::ModulesFrom::Git, &[]), git, "git may say now what was reverted before");
    assert_eq!(say_of(2, plan::ModulesFrom::Git, &["channel"]), format!("{git}; last reverted: channel"));
    assert_eq!(say_of(2, plan::ModulesFrom::Runtime, &[]), "the Kyma in the runtime decides the modules");
}

#[test]
fn the_part_that_asks_first_says_when_to_go_again() {
    let seconds = |seconds| Some(Duration::from_secs(seconds));
    let after = |seconds, trigger| Finish::After(Duration::from_secs(seconds), trigger);
    assert_eq!(finish([None, None], None), Finish::Done);
    assert_eq!(finish([seconds(9), None, seconds(3)], None), after(3, Trigger::Retry));
    // A window is nothing that the runtime lacks until it begins.
    assert_eq!(finish([None], seconds(7)), after(7, Trigger::Resync));
    assert_eq!(finish([seconds(9)], seconds(7)), after(7, Trigger::Resync));
    assert_eq!(finish([seconds(5)], seconds(7)), after(5, Trigger::Retry));
}

#[test]
fn a_failure_is_told_in_the_status_unless_it_says_nothing_of_the_runtime() {
    let mut kyma = kyma(None, None);
    kyma.spec.modules = serde_json::from_value(json!([{"name": "cache"}])).unwrap();
    for (kind, is_told, is_access) in [
        (FailedKind::Wrong, true, false),
        (FailedKind::Unreachable, true, true),
        (FailedKind::NoAccess, true, true),
        (FailedKind::BadAccess, true, true),
        (FailedKind::Stale, false, false),
    ] {
        let facts = failed_facts(&kyma, &[], &failed(kind));
        assert_eq!(facts.is_some(), is_told, "{kind:?}");
        assert_eq!(facts.as_ref().is_some_and(|facts| facts.failure.as_ref().unwrap().access), is_access, "{kind:?}");
        let modules = facts.map(|facts| facts.modules).unwrap_or_default();
        let refused = Planned::Refused { state: State::Error, message: "no route".to_owned(), hint: None };
        assert!(modules.iter().all(|module| module.planned == refused && module.manifest.is_none()));
        assert_eq!(modules.len(), usize::from(is_told), "each module says so as well");
    }
}

#[test]
fn nothing_is_tried_again_before_there_is_another_way_to_the_runtime() {
    for (kind, expected) in [
        (FailedKind::NoAccess, None),
        (FailedKind::BadAccess, None),
        (FailedKind::Wrong, Some(Class::Waiting)),
        (FailedKind::Unreachable, Some(Class::Waiting)),
        (FailedKind::Stale, Some(Class::Transient)),
    ] {
        match (failed_finish(failed(kind)), expected) {
            (Ok(finish), None) => assert_eq!(finish, Finish::Deferred),
            (Err(failure), Some(class)) => assert_eq!((failure.class, failure.reason), (class, "Unreachable")),
            (pass, _) => panic!("{kind:?}: {pass:?}"),
        }
    }
}

#[test]
fn what_has_come_to_be_wrong_is_told_once() {
    let module = |name: &str, state, message: Option<&str>| ModuleStatus {
        name: name.to_owned(),
        state,
        message: message.map(str::to_owned),
        ..ModuleStatus::default()
    };
    let before = KymaStatus {
        modules: vec![module("known", State::Error, Some("no")), module("worse", State::Warning, Some("hm"))],
        last_operation: Some(LastOperation { operation: "no route".to_owned(), ..LastOperation::default() }),
        ..KymaStatus::default()
    };
    let next = KymaStatus {
        modules: vec![
            module("fine", State::Ready, None),
            module("known", State::Error, Some("no")),
            module("mute", State::Error, None),
            module("worse", State::Error, Some("hm")),
        ],
        ..KymaStatus::default()
    };
    let texts = |facts: &Facts| -> Vec<(&str, String)> {
        news(Some(&before), &next, facts).iter().map(|news| (news.event().1, news.event().2)).collect()
    };
    let of_modules =
        [("ModuleFailed", "module mute: no message".to_owned()), ("ModuleFailed", "module worse: hm".to_owned())];
    assert_eq!(texts(&Facts::default()), of_modules);
    let failing = |message: &str, access| {
        let failure = status::Failure { reason: "Unreachable", message: message.to_owned(), access };
        Facts { failure: Some(failure), ..Facts::default() }
    };
    assert_eq!(texts(&failing("no route", true)), of_modules, "it was said before");
    assert_eq!(texts(&failing("gone", true)), [("Unreachable", "gone".to_owned())]);
    assert_eq!(texts(&failing("gone", false)), [("RuntimeFailed", "gone".to_owned())]);
}

#[test]
fn a_removal_that_begins_to_wait_for_users_is_told_once() {
    let hinted = |hint: &str| {
        let (mut status, now) = (KymaStatus::default(), Time(Timestamp::UNIX_EPOCH));
        let (type_, reason) = (conditions::HINTS, conditions::HINTS_REASON);
        conditions::set(&mut status.conditions, type_, conditions::Status::True, reason, hint, None, &now);
        status
    };
    let texts = |before: &KymaStatus, next: &KymaStatus| -> Vec<(&str, String)> {
        let facts = Facts::default();
        let found = news(Some(before), next, &facts);
        found.iter().map(|news| (news.event().1, news.event().2)).collect()
    };
    let waits = |first: &str| format!("module cache: waits since noon for the deletion of {first} by their users");
    let (none, starting) = (KymaStatus::default(), hinted("module cache: waits since noon for Deployment a/b"));
    assert!(texts(&none, &starting).is_empty());
    let mine = hinted(&waits("Cache a/mine (and 1 more)"));
    assert_eq!(texts(&starting, &mine), [("ModuleHeld", waits("Cache a/mine (and 1 more)"))]);
    let other = format!("{}; module mailer: remove it", waits("Cache a/other"));
    assert!(texts(&mine, &hinted(&other)).is_empty(), "it is known that users hold it");
    assert!(texts(&mine, &none).is_empty());
}

#[test]
fn a_new_kyma_whose_runtime_shows_a_status_continues_it() {
    let with = |state: Option<State>| {
        let status = state.map(|state| KymaStatus { state, ..KymaStatus::default() });
        Kyma { status, ..Kyma::default() }
    };
    for (kyma, counterpart, expected) in [
        (with(None), Some(with(Some(State::Ready))), true),
        (with(Some(State::Unknown)), Some(with(Some(State::Ready))), true),
        (with(None), Some(with(None)), false),
        (with(None), None, false),
        (with(Some(State::Ready)), Some(with(Some(State::Ready))), false),
    ] {
        assert_eq!(is_resumed(&kyma, counterpart.as_ref()), expected);
        let state = continued(kyma.clone(), counterpart.as_ref()).status.map(|status| status.state);
        let before = kyma.status.map(|status| status.state);
        assert_eq!(state, if expected { Some(State::Ready) } else { before });
    }
}

#[test]
fn only_what_a_pass_removes_something_for_is_asked_for_again() {
    let key = Key::new("kcp-system", "one");
    let time = || Some(Time(Timestamp::UNIX_EPOCH));
    let metadata = |name: &str, deleting: bool| ObjectMeta {
        name: Some(name.to_owned()),
        namespace: Some("kcp-system".to_owned()),
        uid: Some(format!("uid-{name}")),
        deletion_timestamp: if deleting { time() } else { None },
        ..ObjectMeta::default()
    };
    let kyma = |deleting| Kyma { metadata: metadata("one", deleting), ..Kyma::default() };
    let manifest =
        |name: &str, deleting| Arc::new(Manifest { metadata: metadata(name, deleting), ..Manifest::default() });
    let check_with = |kyma: Option<&Kyma>,
                      manifests: &[Arc<Manifest>],
                      releases: Vec<Arc<ModuleReleaseMeta>>,
                      expected: &[(&str, &str, Option<&str>)]| {
        let found = removed_for(&key, kyma, manifests, &releases);
        let found: Vec<(&str, &str, Option<&str>)> =
            found.iter().map(|(kind, key, uid)| (&*kind.gvk.kind, key.name(), uid.as_deref())).collect();
        assert_eq!(found, expected);
    };
    let check = |kyma: Option<&Kyma>, manifests: &[Arc<Manifest>], expected: &[(&str, &str, Option<&str>)]| {
        check_with(kyma, manifests, Vec::new(), expected);
    };
    let deleted = || vec![Arc::new(release("warden", true, true))];
    let expected = ("ModuleReleaseMeta", "warden", Some("uid-warden"));
    check_with(Some(&kyma(false)), &[manifest("one-a", false)], deleted(), &[expected]);
    check_with(
        Some(&kyma(true)),
        &[manifest("one-a", false)],
        deleted(),
        &[("Kyma", "one", Some("uid-one")), expected],
    );
    check(Some(&kyma(false)), &[manifest("one-a", false)], &[]);
    check(None, &[manifest("one-a", false)], &[("Kyma", "one", None)]);
    check(None, &[manifest("one-a", true)], &[("Kyma", "one", None), ("Manifest", "one-a", Some("uid-one-a"))]);
    check(Some(&kyma(true)), &[manifest("one-a", false)], &[("Kyma", "one", Some("uid-one"))]);
    check(
        Some(&kyma(false)),
        &[manifest("one-a", true), manifest("one-b", false)],
        &[("Kyma", "one", Some("uid-one")), ("Manifest", "one-a", Some("uid-one-a"))],
    );
}

fn release(name: &str, is_mandatory: bool, is_deleting: bool) -> ModuleReleaseMeta {
    let offer = if is_mandatory { json!({"mandatory": {"version": "1.0.0"}}) } else { json!({"channels": []}) };
    let mut release = json!({
        "apiVersion": "operator.kyma-project.io/v1beta2", "kind": "ModuleReleaseMeta",
        "metadata": {"namespace": "kcp-system", "name": name, "uid": format!("uid-{name}")}, "spec": offer,
    });
    release["spec"]["moduleName"] = json!(name);
    if is_deleting {
        release["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    }
    serde_json::from_value(release).unwrap()
}

#[test]
fn a_deleted_release_counts_while_its_mandatory_module_is_installed() {
    let manifest = |is_deleting: bool| {
        let mut manifest = Manifest::default();
        manifest.metadata.labels = Some([(label::MODULE_NAME.to_owned(), "warden".to_owned())].into());
        manifest.metadata.deletion_timestamp = is_deleting.then_some(Time(Timestamp::UNIX_EPOCH));
        Arc::new(manifest)
    };
    let (present, going) = (vec![manifest(false)], vec![manifest(true)]);
    for (is_mandatory, is_deleting, manifests, expected) in [
        (true, true, &present, 1),
        (true, true, &going, 0),
        (true, false, &present, 0),
        (false, true, &present, 0),
        (true, true, &Vec::new(), 0),
    ] {
        let mut landscape = Landscape::default();
        let release = release("warden", is_mandatory, is_deleting);
        landscape.releases.insert(landscape::key(&release.metadata), Arc::new(release));
        assert_eq!(deleted_releases(&landscape, "kcp-system", manifests).len(), expected);
    }
}

#[test]
fn a_runtime_without_a_secret_does_not_hold_a_deleted_release() {
    let manifest = |mandatory: &str, skip: &str| {
        let mut manifest = Manifest::default();
        let labels =
            [(label::MODULE_NAME, "warden"), (label::MANDATORY_MODULE, mandatory), (label::SKIP_RECONCILIATION, skip)];
        manifest.metadata.labels = Some(labels.map(|(key, value)| (key.to_owned(), value.to_owned())).into());
        vec![Arc::new(manifest)]
    };
    for (kind, manifests, is_deleting, expected) in [
        (FailedKind::NoAccess, manifest("true", ""), true, 1),
        (FailedKind::NoAccess, manifest("true", ""), false, 0),
        (FailedKind::NoAccess, manifest("", ""), true, 0),
        (FailedKind::NoAccess, manifest("true", "true"), true, 0),
        (FailedKind::Unreachable, manifest("true", ""), true, 0),
        (FailedKind::BadAccess, manifest("true", ""), true, 0),
        (FailedKind::Wrong, manifest("true", ""), true, 0),
    ] {
        let mut landscape = Landscape::default();
        let release = release("warden", true, is_deleting);
        landscape.releases.insert(landscape::key(&release.metadata), Arc::new(release));
        let failed = Failed { reason: "R", message: String::new(), class: Class::Waiting, kind };
        let ended = to_abandon(&failed, &landscape, "kcp-system", &manifests);
        assert_eq!(ended.len(), expected, "{kind:?} {is_deleting}");
    }
    let failed = Failed { reason: "R", message: String::new(), class: Class::Waiting, kind: FailedKind::NoAccess };
    assert!(to_abandon(&failed, &Landscape::default(), "kcp-system", &manifest("true", "")).is_empty(), "it is gone");
}

#[test]
fn a_request_is_handled_when_no_registry_is_waited_for() {
    let (first, later) = (Instant::now(), Instant::now() + std::time::Duration::from_secs(9));
    let request = |value: &str, since| Request { value: value.to_owned(), since };
    for (kyma, former, expected) in [
        (kyma(None, None), None, None),
        (kyma(Some("1"), Some("1")), Some(request("1", first)), None),
        (kyma(Some("1"), None), None, Some(request("1", later))),
        (kyma(Some("1"), None), Some(request("1", first)), Some(request("1", first))),
        (kyma(Some("2"), Some("1")), Some(request("1", first)), Some(request("2", later))),
    ] {
        assert_eq!(pending_request(&kyma, former, later), expected);
    }
    for (handled, is_waiting, expected) in
        [(None, false, Some("2")), (None, true, None), (Some("1"), true, Some("1")), (Some("1"), false, Some("2"))]
    {
        assert_eq!(handled_by_pass(&kyma(Some("2"), handled), is_waiting).as_deref(), expected);
    }
}

#[test]
fn the_condition_of_a_rollout_names_what_waits_and_first_what_a_user_must_do() {
    let held = |module: &str, hold: Hold| {
        let ModuleOutcome::Wait(wait) = waiting(&[(module, None)]).modules.remove(0).outcome else {
            panic!("it waits")
        };
        planned(module, ModuleOutcome::Wait(Box::new(Wait { why: WaitFor::Rollout(hold), ..*wait })))
    };
    let said = |modules: Vec<plan::ModulePlan>| match rollout(&plan_of(modules)) {
        RolloutFact::Unknown => panic!("it is known"),
        RolloutFact::Nothing => "nothing".to_owned(),
        RolloutFact::Waiting { reason, message } => format!("{reason}: {message}"),
    };
    assert_eq!(said(waiting(&[("a", None)]).modules), "nothing", "a window is no rollout");
    assert_eq!(
        said(vec![held("a", Hold::Wave { wave: 1, of: 3 }), held("b", Hold::Halted)]),
        "Halted: a 1.0.0 to 1.1.0: wave 1 of 3 is not complete; b 1.0.0 to 1.1.0: the rollout is halted, because it \
         failed in other runtimes"
    );
    assert_eq!(
        said(vec![held("a", Hold::Unavailable), held("b", Hold::Paused(None))]),
        "Paused: a 1.0.0 to 1.1.0: as many runtimes as allowed are being upgraded; b 1.0.0 to 1.1.0: the rollout is \
         paused by annotation tidegate.dev/rollout-paused"
    );
    let until = Hold::Delay("2026-11-23T12:00:00Z".parse().unwrap());
    assert_eq!(said(vec![held("a", until)]), "Delayed: a 1.0.0 to 1.1.0: it begins at 2026-11-23T12:00:00Z");
    let plan = plan_of(vec![held("a", Hold::Paused(None))]);
    assert_eq!(maintenance(&plan, None), MaintenanceFact::Nothing);
}

#[test]
fn an_upgrade_is_free_held_or_asked_for() {
    let release = |annotations: Value| -> Landscape {
        let release: ModuleReleaseMeta = serde_json::from_value(json!({
            "apiVersion": "operator.kyma-project.io/v1beta2", "kind": "ModuleReleaseMeta",
            "metadata": {"namespace": "kcp-system", "name": "a", "annotations": annotations},
            "spec": {"moduleName": "a", "channels": [{"channel": "regular", "version": "1.1.0"}]},
        }))
        .unwrap();
        let mut landscape = Landscape::default();
        landscape.releases.insert(Key::new("kcp-system", "a"), Arc::new(release));
        landscape
    };
    let offer = plan::Offer::Channel("regular".to_owned());
    let upgrade = Upgrade { module: "a", offer: &offer, to: "1.1.0" };
    let mut kyma = kyma(None, None);
    kyma.metadata.namespace = Some("kcp-system".to_owned());
    let now: Timestamp = "2026-11-23T12:00:00Z".parse().unwrap();
    let found =
        |annotations: Value, delay: u64| spread(&release(annotations), &kyma, upgrade, Duration::from_secs(delay), now);
    assert_eq!(found(json!({}), 0), Spread::Free);
    assert!(matches!(found(json!({}), 300), Spread::Held(Hold::Delay(until)) if now < until));
    let invalid = found(json!({"tidegate.dev/rollout-max-unavailable": "none"}), 0);
    assert!(matches!(invalid, Spread::Held(Hold::Invalid(message)) if message.contains("rollout-max-unavailable")));
    let Spread::Asked(line, policy, asked) = found(json!({"tidegate.dev/rollout-max-unavailable": "2"}), 0) else {
        panic!("others decide");
    };
    assert_eq!((line.release.name(), &line.offer, asked.to), ("a", &offer, "1.1.0"));
    assert_eq!(policy.max_unavailable, Some(plan::rollout::Share::Number(2)));
    let failed = ["x", "y", "z", "zz"].map(|name| Key::new("kcp-system", name));
    let note = halted_note(&upgrade, &failed.iter().collect::<Vec<_>>());
    assert!(
        note.starts_with(
            "the rollout of version 1.1.0 (regular) is halted, because it failed in the runtimes of x, y, z and others;"
        ),
        "{note}"
    );
    assert!(note.contains("`tidegate resume rollout/a`"), "{note}");
}

#[test]
fn a_rollout_that_waits_for_a_user_has_an_event() {
    let offer = plan::Offer::Channel("regular".to_owned());
    let upgrade = Upgrade { module: "a", offer: &offer, to: "1.1.0" };
    let failed = Key::new("kcp-system", "x");
    let news = |hold: Hold| rollout_news(&upgrade, &hold, || vec![&failed]);
    let paused = "version 1.1.0 (regular) reaches no more runtimes: the rollout is paused by annotation \
                  tidegate.dev/rollout-paused, suspended by anna: it is slow. Run `tidegate resume rollout/a`, or \
                  remove the annotation in git if git declares it";
    let hold = Hold::Paused(Some("suspended by anna: it is slow".to_owned()));
    assert_eq!(news(hold), Some((Severity::Normal, reason::ROLLOUT_PAUSED, paused.to_owned())));
    let halted = news(Hold::Halted).map(|(severity, reason, _)| (severity, reason));
    assert_eq!(halted, Some((Severity::Warning, reason::ROLLOUT_HALTED)));
    let begins = "2026-11-23T12:00:00Z".parse().unwrap();
    let invalid = Hold::Invalid("x".to_owned());
    for hold in [Hold::Wave { wave: 1, of: 2 }, Hold::Unavailable, Hold::Delay(begins), invalid] {
        assert_eq!(news(hold.clone()), None, "{hold}");
    }
}

/// A plan where these modules wait, each for its window.
fn waiting(modules: &[(&str, Option<&str>)]) -> RuntimePlan {
    let coming = plan::Refusal {
        reason: plan::reason::COMPONENT_PENDING,
        state: State::Processing,
        message: String::new(),
        hint: None,
        keep: true,
    };
    let module = |(name, next): &(&str, Option<&str>)| {
        let wait = Wait {
            why: WaitFor::Window,
            from: "1.0.0".to_owned(),
            to: "1.1.0".to_owned(),
            next: next.map(|next| next.parse().unwrap()),
            kept: None,
            coming: Err(coming.clone()),
        };
        planned(name, ModuleOutcome::Wait(Box::new(wait)))
    };
    plan_of(modules.iter().map(module).collect())
}

fn planned(name: &str, outcome: ModuleOutcome) -> plan::ModulePlan {
    plan::ModulePlan {
        name: name.to_owned(),
        offer: plan::Offer::Channel("regular".to_owned()),
        component: None,
        outcome,
    }
}

fn plan_of(modules: Vec<plan::ModulePlan>) -> RuntimePlan {
    let class = plan::Class { namespace: "kcp-system".to_owned(), beta: false, internal: false, restricted: [].into() };
    RuntimePlan { kyma: Key::new("kcp-system", "one"), modules, mandatory: Vec::new(), class }
}

#[test]
fn a_pass_starts_a_second_after_the_begin_of_the_first_window() {
    for (modules, now, expected) in [
        (vec![], "2026-11-28T19:59:00Z", None),
        (vec![("a", None)], "2026-11-28T19:59:00Z", None),
        (vec![("a", Some("2026-11-28T20:00:00Z"))], "2026-11-28T19:59:00Z", Some(61)),
        (vec![("a", Some("2026-11-28T20:00:00Z")), ("b", None)], "2026-11-28T19:59:59Z", Some(2)),
        (
            vec![("a", Some("2026-11-28T21:00:00Z")), ("b", Some("2026-11-28T20:00:00Z"))],
            "2026-11-28T20:00:00Z",
            Some(1),
        ),
        // The pass was slow.
        (vec![("a", Some("2026-11-28T20:00:00Z"))], "2026-11-28T20:00:30Z", Some(1)),
        // At most an hour ahead.
        (vec![("a", Some("2026-12-28T20:00:00Z"))], "2026-11-28T20:00:00Z", Some(3600)),
    ] {
        let found = window_pass(&waiting(&modules), now.parse().unwrap());
        assert_eq!(found, expected.map(Duration::from_secs), "{modules:?} at {now}");
    }
}

#[test]
fn the_condition_says_what_waits_and_for_when() {
    let said = |plan: &RuntimePlan, skips: bool| {
        let spec = KymaSpec { skip_maintenance_windows: skips, ..KymaSpec::default() };
        match maintenance(plan, Some(&spec)) {
            MaintenanceFact::Unknown => panic!("it is known"),
            MaintenanceFact::Nothing => "nothing".to_owned(),
            MaintenanceFact::Waiting { reason, message } => format!("{reason}: {message}"),
        }
    };
    let saturday = Some("2026-11-28T20:00:00Z");
    let waits = "Waiting: the next maintenance window begins at 2026-11-28T20:00:00Z; waiting: a 1.0.0 to 1.1.0";
    assert_eq!(said(&waiting(&[]), false), "nothing");
    assert_eq!(said(&waiting(&[]), true), "nothing");
    assert_eq!(said(&waiting(&[("a", saturday)]), false), waits);
    assert_eq!(
        said(&waiting(&[("a", saturday)]), true),
        format!(
            "{waits}; skipMaintenanceWindows of the Kyma in the runtime has no effect, set it in the control plane"
        )
    );
    assert_eq!(said(&waiting(&[("a", None), ("b", saturday)]), false), format!("{waits}, b 1.0.0 to 1.1.0"));
    assert_eq!(
        said(&waiting(&[("a", None)]), false),
        "NoWindow: the policy has no maintenance window left for this runtime; waiting: a 1.0.0 to 1.1.0"
    );
    let refusal =
        |reason| plan::Refusal { reason, state: State::Error, message: String::new(), hint: None, keep: true };
    let refused = |reason| plan_of(vec![planned("a", ModuleOutcome::Refuse(refusal(reason)))]);
    assert_eq!(
        said(&refused(plan::reason::NO_MAINTENANCE_POLICY), false),
        "NoPolicy: no policy of maintenance windows: use --maintenance-policy; waiting: a"
    );
    assert_eq!(said(&refused(plan::reason::NO_CHANNEL), false), "nothing");
}

#[test]
fn what_a_commit_would_remove_is_said_until_every_source_has_been_read_without_it() {
    let told = |waiting: RemovalFact| {
        let mut kyma = Kyma::default();
        let facts = Facts { removal: waiting, ..Facts::default() };
        kyma.status = Some(status::kyma(&kyma, &facts, Timestamp::UNIX_EPOCH));
        kyma
    };
    let sentence: Arc<str> = "m goes".into();
    let waiting = || RemovalFact::Waiting(Arc::clone(&sentence));
    for (kyma, found, are_visited, expected) in [
        (told(RemovalFact::Nothing), Some(Arc::clone(&sentence)), false, waiting()),
        (told(RemovalFact::Nothing), None, false, RemovalFact::Nothing),
        (told(waiting()), None, false, RemovalFact::Unknown),
        (told(waiting()), None, true, RemovalFact::Nothing),
    ] {
        let fact = removal(&kyma, found, || are_visited);
        assert_eq!(fact, expected);
        let after = status::kyma(&kyma, &Facts { removal: fact, ..Facts::default() }, Timestamp::UNIX_EPOCH);
        let said = conditions::find(&after.conditions, conditions::REMOVAL).map(|condition| condition.message.as_str());
        assert_eq!(said, (expected != RemovalFact::Nothing).then_some("m goes"));
    }
}

#[test]
fn a_module_that_another_client_drops_stays_while_git_declares_it() {
    let manifest = |module: &str, edit: &dyn Fn(&mut Manifest)| {
        let mut manifest = Manifest::default();
        manifest.metadata.labels = Some([(label::MODULE_NAME.to_owned(), module.to_owned())].into());
        edit(&mut manifest);
        Arc::new(manifest)
    };
    let deleting = |manifest: &mut Manifest| {
        manifest.metadata.deletion_timestamp = Some(tidegate_core::api::shared::Time(Timestamp::UNIX_EPOCH));
    };
    let spec = |modules: &[&str]| -> KymaSpec {
        let modules: Vec<Value> = modules.iter().map(|name| json!({"name": name})).collect();
        serde_json::from_value(json!({"channel": "regular", "modules": modules})).unwrap()
    };
    let kyma = |modules: &[&str], source: Option<&str>| {
        let mut kyma = Kyma { spec: spec(modules), ..Kyma::default() };
        kyma.metadata.labels = source.map(|source| [(label::SOURCE.to_owned(), source.to_owned())].into());
        Arc::new(kyma)
    };
    let names = |kyma: &Kyma| kyma.spec.modules.iter().map(|module| module.name.clone()).collect::<Vec<_>>();
    let installed = [manifest("cache", &|_| {}), manifest("mailer", &|_| {}), manifest("gone", &deleting)];
    let ours = kyma(&["mailer"], Some("a.b"));
    assert!(has_dropped(&ours, &installed));
    assert!(!has_dropped(&kyma(&["mailer"], None), &installed), "a Kyma of others");
    assert!(!has_dropped(&kyma(&["mailer", "cache"], Some("a.b")), &installed), "one that is being deleted leaves");
    let declared = |declared: Declared<'_>| {
        let (whole, is_unknown) = with_dropped(&ours, declared, &installed);
        (names(&whole), is_unknown)
    };
    // A module of git that is not installed comes with the repair, in its own time.
    let whole = spec(&["cache", "mailer", "gone", "new"]);
    assert_eq!(declared(Declared::Applied(&whole)), (vec!["mailer".to_owned(), "cache".to_owned()], false));
    let less = spec(&["mailer"]);
    assert_eq!(declared(Declared::Applied(&less)), (vec!["mailer".to_owned()], false), "git has dropped it as well");
    assert_eq!(declared(Declared::Nothing), (vec!["mailer".to_owned()], false));
    assert_eq!(declared(Declared::Unknown), (vec!["mailer".to_owned(), "cache".to_owned()], true));
    // Where users decide in the runtime, they may have removed it there.
    let mut merged = Kyma::clone(&ours);
    merged.metadata.annotations = Some([(annotation::MODULES_FROM.to_owned(), "merge".to_owned())].into());
    let (same, is_unknown) = with_dropped(&Arc::new(merged), Declared::Unknown, &installed);
    assert_eq!((names(&same), is_unknown), (vec!["mailer".to_owned()], true));
    let kept = |modules_from, is_unknown| {
        let wanted = with_installed(spec(&["mailer", "own"]), modules_from, is_unknown, &installed);
        wanted.modules.iter().map(|module| module.name.clone()).collect::<Vec<_>>()
    };
    assert_eq!(kept(ModulesFrom::Merge, true), ["mailer", "own", "cache"], "it may be one of git");
    assert_eq!(kept(ModulesFrom::Merge, false), ["mailer", "own"]);
    assert_eq!(kept(ModulesFrom::Runtime, true), ["mailer", "own"], "its user has removed it");
    let mut of_runtime = Kyma::clone(&ours);
    of_runtime.metadata.annotations = Some([(annotation::MODULES_FROM.to_owned(), "runtime".to_owned())].into());
    let (same, is_unknown) = with_dropped(&Arc::new(of_runtime), Declared::Unknown, &installed);
    assert_eq!((names(&same), is_unknown), (vec!["mailer".to_owned()], false), "nothing depends on git");
    let minute = Duration::from_secs(60);
    assert_eq!(finish_unknown(Finish::Done), Finish::After(UNKNOWN_RETRY, Trigger::Changed));
    assert_eq!(finish_unknown(Finish::After(minute, Trigger::Resync)), Finish::After(UNKNOWN_RETRY, Trigger::Changed));
    assert_eq!(finish_unknown(Finish::Deferred), Finish::Deferred);
}
