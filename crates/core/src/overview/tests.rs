#![expect(clippy::needless_pass_by_value, reason = "fixtures take `json!` on the spot")]

use serde_json::{Value, json};

use super::*;

fn object<K: serde::de::DeserializeOwned>(kind: &str, name: &str, rest: Value) -> K {
    let mut value = json!({
        "apiVersion": if kind == "GitSource" { "tidegate.dev/v1alpha1" } else { "operator.kyma-project.io/v1beta2" },
        "kind": kind,
        "metadata": {"namespace": "kcp-system", "name": name, "generation": 2},
    });
    for (key, part) in rest.as_object().unwrap() {
        if let (Some(known), Some(part)) = (value[key].as_object_mut(), part.as_object()) {
            known.extend(part.clone());
        } else {
            value[key] = part.clone();
        }
    }
    serde_json::from_value(value).unwrap()
}

fn source(name: &str, suspend: bool, status: Value) -> GitSource {
    object(
        "GitSource",
        name,
        json!({"spec": {"url": "https://git.example.com/l.git", "suspend": suspend}, "status": status}),
    )
}

fn ready(status: &str, message: &str) -> Value {
    json!([{"type": "Ready", "status": status, "reason": "R", "message": message, "lastTransitionTime": "2026-01-01T00:00:00Z"}])
}

fn kyma(name: &str, labels: Value, status: Value) -> Kyma {
    object("Kyma", name, json!({"metadata": {"labels": labels}, "spec": {"channel": "regular"}, "status": status}))
}

#[test]
fn a_source_stands_as_its_ready_condition_says_of_the_latest_generation() {
    let line = |suspend, status| {
        let line = super::source(&source("landscape", suspend, status));
        (line.standing, line.message)
    };
    assert_eq!(line(false, Value::Null), (SubjectState::Waiting, "not reconciled yet".to_owned()));
    let status = |generation: i64, status| json!({"observedGeneration": generation, "conditions": ready(status, "m")});
    assert_eq!(line(false, status(2, "True")), (SubjectState::Well, "m".to_owned()));
    assert_eq!(line(false, status(2, "False")), (SubjectState::Wrong, "m".to_owned()));
    assert_eq!(line(false, status(2, "Unknown")), (SubjectState::Waiting, "m".to_owned()));
    assert_eq!(line(false, status(1, "True")).0, SubjectState::Waiting);
    assert_eq!(line(true, status(2, "True")).0, SubjectState::Stopped);
    // A user stopped it, and others wait for it.
    let message = format!("the source is suspended; {WAIT_FOR_TEMPLATES}");
    let status = json!({"observedGeneration": 2, "conditions": ready("False", &message)});
    assert_eq!(line(true, status), (SubjectState::Wrong, message));
}

#[test]
fn a_runtime_says_what_would_be_removed_and_why_its_agent_is_not_installed() {
    let condition = |type_: &str, reason: &str, message: &str| json!({"type": type_, "status": "False", "reason": reason, "message": message, "lastTransitionTime": "2026-01-01T00:00:00Z"});
    let line = |state: &str, conditions: Value| {
        let status = json!({"state": state, "lastOperation": {"operation": "the operation"}, "conditions": conditions});
        runtime(&kyma("one", json!({}), status))
    };
    let ready = line("Ready", json!([condition(conditions::REMOVAL, "Unconfirmed", "module cache waits")]));
    assert_eq!((ready.standing, ready.removal.as_deref()), (SubjectState::Wrong, Some("module cache waits")));
    assert_eq!(ready.message, "module cache waits");
    let removal = || condition(conditions::REMOVAL, "Unconfirmed", "module cache waits");
    let both = line("Processing", json!([removal()]));
    assert_eq!((both.standing, both.message.as_str()), (SubjectState::Wrong, "the operation; module cache waits"));
    let status = json!({"state": "Ready", "conditions": [removal()]});
    let suspended = runtime(&kyma("one", json!({label::SKIP_RECONCILIATION: "true"}), status));
    assert_eq!(suspended.standing, SubjectState::Stopped, "a user knows that nothing happens there");
    let no_agent = condition(conditions::WATCH, "NoCertificate", "no agent is installed: there is no CA");
    let installing = line("Processing", json!([no_agent]));
    let expected = "the operation; NoCertificate: no agent is installed: there is no CA";
    assert_eq!((installing.standing, installing.message.as_str()), (SubjectState::Waiting, expected));
    let expected = (SubjectState::Well, "the operation");
    let ready = line("Ready", json!([no_agent]));
    assert_eq!((ready.standing, ready.message.as_str()), expected, "it needs none");
}

#[test]
fn a_resource_of_a_kcp_landscape_stands_as_the_first_condition_that_fails() {
    let line = |kind: setup::Kind, metadata: Value, conditions: &[(&str, &str)]| {
        let conditions: Vec<Value> = conditions
            .iter()
            .map(|(type_, status)| json!({"type": type_, "status": status, "reason": "R", "message": *type_, "lastTransitionTime": "2026-01-01T00:00:00Z"}))
            .collect();
        let mut all = json!({"namespace": "kcp-system", "name": "main", "finalizers": ["tidegate.dev/setup"]});
        all.as_object_mut().unwrap().extend(metadata.as_object().unwrap().clone());
        let metadata: ObjectMeta = serde_json::from_value(all).unwrap();
        SetupLine::new(kind, &metadata, &json!({ "conditions": conditions })).map(|line| (line.standing, line.message))
    };
    let of_shard = |conditions: &[(&str, &str)]| line(setup::Kind::Shard, json!({}), conditions);
    let said = |standing, message: &str| Some((standing, message.to_owned()));
    let well = said(SubjectState::Well, "as desired");
    assert_eq!(of_shard(&[("tidegate.dev/Valid", "True"), ("Available", "True")]), well);
    let waits = said(SubjectState::Waiting, "tidegate.dev/Kcp");
    assert_eq!(of_shard(&[("tidegate.dev/Kcp", "False"), ("Available", "True")]), waits);
    let problems = [("Available", "False"), ("tidegate.dev/Mounts", "False"), ("tidegate.dev/Objects", "False")];
    assert_eq!(of_shard(&problems), said(SubjectState::Wrong, "tidegate.dev/Objects"));
    assert_eq!(of_shard(&problems[..2]), said(SubjectState::Waiting, "tidegate.dev/Mounts"));
    assert_eq!(of_shard(&[]), said(SubjectState::Waiting, "not reconciled yet"));
    // What exists and cannot be used is a problem; what is missing may come.
    let unusable = json!([
        {"type": "tidegate.dev/Certificates", "status": "False", "reason": "CertificateNotReady", "message": "not yet",
         "lastTransitionTime": "2026-01-01T00:00:00Z"},
        {"type": "tidegate.dev/Mounts", "status": "False", "reason": "Unusable", "message": "the CA has expired",
         "lastTransitionTime": "2026-01-01T00:00:00Z"},
    ]);
    let broken = said(SubjectState::Wrong, "the CA has expired");
    let metadata = json!({"namespace": "kcp-system", "name": "main", "finalizers": ["tidegate.dev/setup"]});
    let metadata: ObjectMeta = serde_json::from_value(metadata).unwrap();
    let found = SetupLine::new(setup::Kind::RootShard, &metadata, &json!({ "conditions": unusable }));
    assert_eq!(found.map(|line| (line.standing, line.message)), broken);
    // The status of a CacheServer has no fields, so an annotation has it.
    let cache =
        |noted: &str| line(setup::Kind::CacheServer, json!({"annotations": {"tidegate.dev/status": noted}}), &[]);
    assert_eq!(line(setup::Kind::CacheServer, json!({}), &[]), said(SubjectState::Waiting, "not reconciled yet"));
    assert_eq!(cache(&json!({ "conditions": unusable }).to_string()), broken);
    let up = json!({"conditions": [{"type": "Available", "status": "True", "reason": "ReplicasUp", "message": "up",
        "lastTransitionTime": "2026-01-01T00:00:00Z"}]});
    assert_eq!(cache(&up.to_string()), well);
    assert_eq!(cache("junk"), said(SubjectState::Waiting, "not reconciled yet"));
    let deleted = json!({"deletionTimestamp": "2026-01-01T00:00:00Z"});
    let leaves = [("tidegate.dev/Valid", "False"), ("tidegate.dev/Deletion", "False")];
    let expected = said(SubjectState::Waiting, "tidegate.dev/Deletion");
    assert_eq!(line(setup::Kind::Shard, deleted, &leaves), expected);
    let others = line(setup::Kind::Shard, json!({"finalizers": ["operator.kcp.io/cleanup"]}), &[]);
    assert_eq!(others, None, "another operator has it");
}

#[test]
fn what_is_not_done_is_named_with_its_cause() {
    let sources = [
        source("good", false, json!({"observedGeneration": 2, "conditions": ready("True", "applied")})),
        source(
            "bad",
            false,
            json!({
                "observedGeneration": 2,
                "conditions": ready("False", "2 definitions are held back"),
                "diagnostics": [{"severity": "error", "code": "unknown-field", "message": "no such field"}],
            }),
        ),
    ];
    let kymas = [
        kyma(
            "broken",
            json!({}),
            json!({
                "state": "Error",
                "lastOperation": {"operation": "module cache: no version"},
                "modules": [
                    {"name": "mailer", "state": "Ready"},
                    {"name": "cache", "state": "Error", "message": "no version"},
                ],
            }),
        ),
        kyma("fresh", json!({}), Value::Null),
        kyma("fine", json!({}), json!({"state": "Ready", "lastOperation": {"operation": "kyma is ready"}})),
        kyma("stopped", json!({"operator.kyma-project.io/skip-reconciliation": "true"}), json!({"state": "Error"})),
    ];
    let overview = Overview::from_objects(&sources, &kymas, []);
    assert_eq!(
        overview.not_done(),
        [
            "source kcp-system/bad: 2 definitions are held back",
            "runtime kcp-system/broken: module cache: no version",
            "runtime kcp-system/fresh: not reconciled yet",
        ]
    );
    assert!(overview.has_invalid_definitions());
    assert!(!Overview::from_objects(&sources[..1], &kymas, []).has_invalid_definitions());
}

#[test]
fn mandatory_modules_are_shown_beside_the_state_of_their_kyma() {
    let condition = |status: &str, reason: &str, message: &str| {
        json!([{"type": "tidegate.dev/MandatoryModules", "status": status, "reason": reason, "message": message,
                "lastTransitionTime": "2026-01-01T00:00:00Z"}])
    };
    let with = |conditions: Value| {
        let status = json!({"state": "Ready", "lastOperation": {"operation": "fine"}, "conditions": conditions});
        super::runtime(&kyma("one", json!({}), status))
    };
    for (status, reason, expected) in [
        ("True", "Ready", (SubjectState::Well, "fine")),
        ("False", "Processing", (SubjectState::Waiting, "said")),
        ("False", "Failed", (SubjectState::Wrong, "said")),
    ] {
        let line = with(condition(status, reason, "said"));
        assert_eq!((line.standing, line.message.as_str(), line.state), (expected.0, expected.1, State::Ready));
    }
    let manifest = |module: &str, is_mandatory: &str| -> Manifest {
        let labels = json!({
            "operator.kyma-project.io/kyma-name": "one", "operator.kyma-project.io/module-name": module,
            "operator.kyma-project.io/mandatory-module": is_mandatory,
        });
        let spec = json!({"remote": true, "version": "1.0.0", "install": {"name": "raw-manifest", "source": {}}});
        let status = json!({"state": "Error", "lastOperation": {"operation": "because"}});
        object("Manifest", module, json!({"metadata": {"labels": labels}, "spec": spec, "status": status}))
    };
    let kymas = [kyma("one", json!({}), json!({"state": "Ready"})), kyma("two", json!({}), Value::Null)];
    let manifests = [manifest("warden", "true"), manifest("audit", "true"), manifest("selected", "false")];
    let overview = Overview::from_objects(&[], &kymas, []).with_mandatory(&manifests);
    let lines: Vec<String> = overview.runtimes[0]
        .mandatory
        .iter()
        .map(|line| format!("{} {:?} {:?} {:?}", line.name, line.standing, line.version, line.message))
        .collect();
    assert_eq!(
        lines,
        [r#"audit Wrong Some("1.0.0") Some("because")"#, r#"warden Wrong Some("1.0.0") Some("because")"#]
    );
    assert_eq!(overview.runtimes[1].mandatory, []);
}

#[test]
fn a_removal_that_waits_for_users_is_wrong_and_another_one_is_in_progress() {
    use SubjectState::{Stopped, Waiting, Wrong};
    let line = |hint: &str, skipped: bool| {
        let conditions = json!([{"type": conditions::HINTS, "status": "True", "reason": "UserAction", "message": hint,
            "lastTransitionTime": "2026-01-01T00:00:00Z"}]);
        let message = "waiting for module crs deletion: Cache a/b";
        let modules = json!([{"name": "cache", "state": "Deleting", "message": message},
            {"name": "mailer", "state": "Processing"}]);
        let status = json!({"state": "Processing", "conditions": conditions, "modules": modules});
        let labels = if skipped { json!({label::SKIP_RECONCILIATION: "true"}) } else { json!({}) };
        let line = runtime(&kyma("one", labels, status));
        (line.standing, line.modules[0].standing, line.modules[1].standing)
    };
    let by_users = "module cache: waits since noon for the deletion of Cache a/b by their users";
    assert_eq!(line(by_users, false), (Wrong, Wrong, Waiting));
    assert_eq!(line(by_users, true).0, Stopped);
    let held = "module cache: waits since noon for the deletion of Cache a/b; these finalizers of it remain";
    assert_eq!(line(held, false), (Waiting, Waiting, Waiting));
    // Another module of the runtime goes on, or none does.
    for (other, expected) in [("Processing", true), ("Ready", false)] {
        let condition = |type_: &str, status: &str, message: &str| {
            json!({"type": type_, "status": status, "reason": "Any", "message": message,
                "lastTransitionTime": "2026-01-01T00:00:00Z"})
        };
        let modules = json!([{"name": "cache", "state": "Deleting"}, {"name": "mailer", "state": other}]);
        let conditions = json!([condition(conditions::HINTS, "True", by_users)]);
        let status = json!({"state": "Processing", "conditions": conditions, "modules": modules});
        let held = kyma("one", json!({}), status);
        assert_eq!(Overview::from_objects([], &[held], []).is_under_way(), expected, "{other}");
        let removal = json!([condition(conditions::REMOVAL, "False", "module cache waits")]);
        let modules = json!([{"name": "mailer", "state": other}]);
        let status = json!({"state": "Processing", "conditions": removal, "modules": modules});
        let unconfirmed = kyma("one", json!({}), status);
        assert_eq!(Overview::from_objects([], &[unconfirmed], []).is_under_way(), expected, "{other}");
    }
    let mandatory = |message: &str| {
        let conditions = json!([{"type": conditions::MANDATORY_MODULES, "status": "False", "reason": "Processing",
            "message": message, "lastTransitionTime": "2026-01-01T00:00:00Z"}]);
        runtime(&kyma("one", json!({}), json!({"state": "Ready", "conditions": conditions}))).standing
    };
    assert_eq!(
        mandatory("waiting for mandatory modules: a (waits for the deletion of Cache a/b by their users)"),
        Wrong
    );
    assert_eq!(mandatory("waiting for mandatory modules: a"), Waiting);
}

#[test]
fn a_broken_watch_is_told_beside_every_other_problem() {
    let line = |labels: Value, state: &str, operation: &str| {
        let conditions = json!([{
            "type": conditions::WATCH, "status": "False", "reason": "Deaf", "message": "no event came back",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }]);
        let status = json!({"state": state, "conditions": conditions, "lastOperation": {"operation": operation}});
        let line = runtime(&kyma("dev", labels, status));
        (line.standing, line.message)
    };
    let none = || json!({});
    for (labels, state, operation, expected) in [
        (none(), "Ready", "ok", (SubjectState::Wrong, "Deaf: no event came back")),
        (none(), "Error", "rejected", (SubjectState::Wrong, "rejected; Deaf: no event came back")),
        (none(), "Processing", "waits", (SubjectState::Wrong, "waits; Deaf: no event came back")),
        (
            json!({label::SKIP_RECONCILIATION: "true"}),
            "Ready",
            "ok",
            (SubjectState::Stopped, "stopped by label operator.kyma-project.io/skip-reconciliation"),
        ),
    ] {
        assert_eq!(line(labels, state, operation), (expected.0, expected.1.to_owned()), "{state}");
    }
}

#[test]
fn a_watcher_says_why_it_has_no_virtual_service() {
    let condition = |type_: &str, message: &str| {
        json!({"type": type_, "status": "False", "reason": "A", "message": message,
            "lastTransitionTime": "2026-01-01T00:00:00Z"})
    };
    let constant = condition("VirtualService", "VirtualService is not configured");
    let cause = condition(conditions::ROUTE, "no Gateway matches the selector");
    let line = |conditions: Value| {
        let watcher = json!({
            "apiVersion": "operator.kyma-project.io/v1beta2", "kind": "Watcher",
            "metadata": {"namespace": "kcp-system", "name": "w"},
            "spec": {"resourceToWatch": {"group": "a", "version": "v1", "resource": "as"}, "field": "spec",
                "gateway": {"selector": {}}, "manager": "m",
                "serviceInfo": {"name": "s", "namespace": "n", "port": 1}},
            "status": {"state": "Error", "conditions": conditions},
        });
        let line = super::watcher(&serde_json::from_value(watcher).unwrap());
        (line.standing, line.message)
    };
    let expected = (SubjectState::Wrong, "no Gateway matches the selector".to_owned());
    assert_eq!(line(json!([constant.clone(), cause])), expected);
    assert_eq!(line(json!([constant])), (SubjectState::Wrong, "VirtualService is not configured".to_owned()));
}

#[test]
fn a_ready_kyma_of_an_older_generation_is_under_way() {
    let condition = json!([{"type": "Modules", "status": "True", "reason": "Ready", "message": "",
        "observedGeneration": 1, "lastTransitionTime": "2026-01-01T00:00:00Z"}]);
    let line = super::runtime(&kyma("one", json!({}), json!({"state": "Ready", "conditions": condition})));
    assert_eq!(line.standing, SubjectState::Waiting);
}

#[test]
fn a_module_in_progress_says_what_it_waits_for_and_other_hints_stay() {
    let line = |name: &str, standing| ModuleLine {
        name: name.to_owned(),
        standing,
        state: State::Processing,
        version: None,
        channel: None,
        message: None,
        maintenance: false,
    };
    let mut modules = [line("a", SubjectState::Waiting), line("b", SubjectState::Wrong)];
    let hints = "module a: waits since 12:00 for Deployment x/y; and no more: quota; module b: remove it; module c: \
                 waits for z";
    let left = tell_waits(hints, &mut modules);
    assert_eq!(modules[0].message.as_deref(), Some("waits since 12:00 for Deployment x/y; and no more: quota"));
    assert_eq!(modules[1].message, None);
    assert_eq!(left.as_deref(), Some("module b: remove it; module c: waits for z"));
    assert_eq!(tell_waits("", &mut modules), None);

    // A pause is said of a module whatever its state is.
    let mut modules = [line("a", SubjectState::Well), line("b", SubjectState::Wrong), line("c", SubjectState::Waiting)];
    modules[1].message = Some("no image".to_owned());
    let paused = "paused by the label l of its Manifest";
    let hints = format!("module a: {paused}; module b: {paused}; module c: {paused}, which holds back a change");
    // The Manifest of a mandatory module says it.
    let hints = format!("{hints}; module warden: {paused}");
    assert_eq!(tell_waits(&hints, &mut modules), None);
    let said = modules.iter().map(|module| module.message.as_deref().unwrap_or_default());
    let expected = [paused.to_owned(), format!("no image; {paused}"), format!("{paused}, which holds back a change")];
    assert_eq!(said.collect::<Vec<_>>(), expected);
    assert!(modules.iter().all(ModuleLine::is_paused));
}
