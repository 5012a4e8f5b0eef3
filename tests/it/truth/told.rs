//! What users are told without asking: Events about the modules of a runtime and about suspensions, lines of the log
//! about what of a revision does not happen, and columns of `kubectl get`.

use std::collections::BTreeSet;

use http::{Request, header::ACCEPT};
use kube::{
    Api,
    api::{Patch, PatchParams},
};
use serde_json::{Value, json};
use tidegate_core::{
    api::{self, GitSource, Kyma, Manifest},
    plan::manifest_name,
};

use crate::{
    harness::{self, SOON, eventually},
    stage::{self, Stage, read, scenarios},
};

scenarios! {
    what_happens_to_modules_is_an_event_about_their_kyma,
    a_suspended_runtime_says_who_suspended_it_and_why,
    a_suspended_source_whose_state_is_lost_says_what_rests_and_is_ready_after_a_look_at_git,
}

/// Waits until an Event about an object has this reason and this text.
async fn told(stage: &Stage, about: (&str, &str), reason: &str, text: &str) {
    let sample = json!({"apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": {"namespace": "kcp-system"}});
    let api = harness::api_of(&stage.kcp, &sample).await.expect("a kind that is served");
    eventually(&format!("{reason}: {text}"), SOON, async || {
        let events = api.list(&Default::default()).await.map_err(|error| error.to_string())?.items;
        let line = |event: &kube::core::DynamicObject| {
            let field = |name: &str| event.data[name].as_str().unwrap_or_default().to_owned();
            let regarding = &event.data["regarding"];
            let is_about = regarding["kind"] == about.0 && regarding["name"] == about.1;
            is_about.then(|| format!("{}: {}", field("reason"), field("note")))
        };
        let lines: Vec<String> = events.iter().filter_map(line).collect();
        let is_it = |line: &String| line.starts_with(&format!("{reason}: ")) && line.contains(text);
        if lines.iter().any(is_it) { Ok(()) } else { Err(format!("{lines:#?}")) }
    })
    .await;
}

async fn what_happens_to_modules_is_an_event_about_their_kyma() {
    let stage = stage::ready(1).await;
    let kyma = ("Kyma", "one");
    told(&stage, kyma, "ModuleInstalled", "cache 1.0.0").await;
    told(&stage, kyma, "ModuleInstalled", "mailer 2.0.0").await;
    let paused = stage.command(&["suspend", "rollout/cache", "--reason", "a test"]).await;
    assert!(paused.status.success(), "{paused:?}");
    stage.commit("modules/cache/release.yaml", &stage::release("cache", &[("regular", "1.1.0"), ("fast", "1.1.0")]));
    told(&stage, kyma, "ModuleHeld", "cache").await;
    let pause = async |value: Value| {
        let patch = json!({"metadata": {"labels": {"operator.kyma-project.io/skip-reconciliation": value}}});
        let api: Api<Manifest> = Api::namespaced(stage.kcp.clone(), "kcp-system");
        let name = manifest_name("one", "example.org/module/cache", "cache");
        api.patch(&name, &PatchParams::default(), &Patch::Merge(patch)).await.expect("a patch");
    };
    pause("true".into()).await;
    let resumed = stage.command(&["resume", "rollout/cache"]).await;
    assert!(resumed.status.success(), "{resumed:?}");
    let held = "paused by the label operator.kyma-project.io/skip-reconciliation of its Manifest, which holds back a \
                change; to continue, run `kubectl label manifest ";
    told(&stage, kyma, "Suspended", &format!("module cache: {held}")).await;
    for (command, line) in [
        (&["status", "kyma/one"][..], "Processing  "),
        (&["status", "module/cache"], "Processing: "),
        (&["reconcile", "kyma/one", "--wait", "--timeout=60s"], "module cache: "),
    ] {
        let output = stage.command(command).await;
        let text = String::from_utf8([output.stdout, output.stderr].concat()).expect("UTF-8");
        assert!(text.contains(&format!("{line}{held}")), "{command:?}: {text}");
        assert_eq!(output.status.code(), Some(if command[0] == "status" { 0 } else { 5 }), "{text}");
    }
    pause(Value::Null).await;
    told(&stage, kyma, "ModuleUpgraded", "upgraded cache from 1.0.0 to 1.1.0").await;
    // The downgrade guard of Lifecycle Manager.
    stage.commit("modules/cache/release.yaml", &stage::release("cache", &[("regular", "1.0.0"), ("fast", "1.1.0")]));
    told(&stage, kyma, "ModuleRefused", "module cache: ").await;
    stage.commit("modules/cache/release.yaml", &stage::release("cache", &[("regular", "1.1.0"), ("fast", "1.1.0")]));
    stage.kyma_in("one", "Ready").await;
    stage.commit("kymas/one.yaml", &stage::kyma("one", &["cache"]));
    told(&stage, kyma, "ModuleRemoved", "removed mailer 2.0.0").await;
    no_message_has_a_digest(&stage).await;
}

/// Messages of conditions are sentences. The digest of what was applied follows a reason. A revision is no digest.
async fn no_message_has_a_digest(stage: &Stage) {
    let (mut seen, mut in_reasons) = (0, BTreeSet::new());
    let of_kyma = ["Kyma", "Manifest", "ModuleTemplate", "ModuleReleaseMeta", "Watcher"];
    let kinds = of_kyma.map(|kind| ("operator.kyma-project.io/v1beta2", kind));
    for (api_version, kind) in kinds.into_iter().chain([("tidegate.dev/v1alpha1", "GitSource")]) {
        let sample = json!({"apiVersion": api_version, "kind": kind, "metadata": {"namespace": "kcp-system"}});
        let api = harness::api_of(&stage.kcp, &sample).await.expect("a kind that is served");
        for object in api.list(&Default::default()).await.expect("a list").items {
            let status = &object.data["status"];
            let has_digest = |text: &str| {
                let text = text.replace("@sha1:", "@");
                let mut words = text.split('@').enumerate();
                // What follows an at sign is a revision: its first word is a commit.
                words.any(|(index, part)| {
                    let part = if index == 0 { part } else { part.trim_start_matches(|c: char| c.is_ascii_hexdigit()) };
                    part.split(|letter: char| !letter.is_ascii_hexdigit()).any(|word| 40 <= word.len())
                })
            };
            let conditions = status["conditions"].as_array().cloned().unwrap_or_default();
            let messages = conditions.iter().map(|one| &one["message"]);
            for message in messages.chain([&status["lastOperation"]["operation"]]).filter_map(Value::as_str) {
                assert!(!has_digest(message), "{kind}: {message}");
                seen += 1;
            }
            let with_digest = conditions.iter().filter(|one| has_digest(one["reason"].as_str().unwrap_or_default()));
            in_reasons.extend(with_digest.map(|one| format!("{kind} {}", one["type"].as_str().unwrap_or_default())));
        }
    }
    assert!(4 < seen, "{seen} messages");
    for place in ["Kyma tidegate.dev/Applied", "Manifest tidegate.dev/Applied"] {
        assert!(in_reasons.contains(place), "{in_reasons:?}");
    }
}

async fn a_suspended_runtime_says_who_suspended_it_and_why() {
    let stage = stage::ready(1).await;
    stage.rests().await;
    let done = stage.command(&["suspend", "kyma/one", "--reason=upgrade of the network"]).await;
    assert!(done.status.success(), "{done:?}");
    told(&stage, ("Kyma", "one"), "Suspended", ": upgrade of the network; Tidegate does not change the runtime").await;
    let kyma = read(&stage.kcp, "Kyma", "kcp-system", "one").await.expect("it is there");
    let note = kyma["metadata"]["annotations"]["tidegate.dev/suspended"].as_str().unwrap_or_default();
    assert!(note.starts_with("by ") && note.ends_with(": upgrade of the network"), "{note}");
    let status = stage.command(&["status", "kyma/one"]).await;
    let text = String::from_utf8(status.stdout).expect("UTF-8");
    assert!(text.contains(&format!("suspended {note}")), "{text}");
    let done = stage.command(&["resume", "kyma/one"]).await;
    assert!(done.status.success(), "{done:?}");
    told(&stage, ("Kyma", "one"), "Resumed", "").await;

    // A user resumes with kubectl what the command suspended, and suspends it again: the old reason is not shown.
    let label = async |value: Value| {
        let patch = json!({"metadata": {"labels": {"operator.kyma-project.io/skip-reconciliation": value}}});
        let api: Api<Kyma> = Api::namespaced(stage.kcp.clone(), "kcp-system");
        api.patch("one", &PatchParams::default(), &Patch::Merge(patch)).await.expect("a patch");
    };
    let done = stage.command(&["suspend", "kyma/one", "--reason=last week"]).await;
    assert!(done.status.success(), "{done:?}");
    told(&stage, ("Kyma", "one"), "Suspended", ": last week").await;
    label(Value::Null).await;
    let is_forgotten = |kyma: &Value| kyma["metadata"]["annotations"]["tidegate.dev/suspended"].is_null();
    stage.until("the reason is gone", &stage.kcp, "Kyma", "kcp-system", "one", is_forgotten).await;
    label("true".into()).await;
    let who = |kyma: &Value| {
        let entries = kyma["metadata"]["managedFields"].as_array().cloned().unwrap_or_default();
        let label = "/fieldsV1/f:metadata/f:labels/f:operator.kyma-project.io~1skip-reconciliation";
        let entry = entries.into_iter().find(|entry| entry.pointer(label).is_some()).unwrap_or_default();
        let text = |field: &str| entry[field].as_str().unwrap_or_default().to_owned();
        format!("suspended by {} since {}", text("manager"), text("time"))
    };
    let kyma = read(&stage.kcp, "Kyma", "kcp-system", "one").await.expect("it is there");
    let who = who(&kyma);
    told(&stage, ("Kyma", "one"), "Suspended", &who).await;
    let status = stage.command(&["status", "kyma/one"]).await;
    let text = String::from_utf8(status.stdout).expect("UTF-8");
    assert!(text.contains(&who), "{who}: {text}");
    label(Value::Null).await;
    told(&stage, ("Kyma", "one"), "Resumed", &who).await;

    let done = stage.command(&["suspend", "gitsource/landscape", "--reason=an audit"]).await;
    assert!(done.status.success(), "{done:?}");
    told(&stage, ("GitSource", "landscape"), "Suspended", ": an audit").await;
    let suspended = |source: &Value| source["status"].to_string().contains(": an audit");
    stage.until("the status says why", &stage.kcp, "GitSource", "kcp-system", "landscape", suspended).await;
    let resumed = json!({"spec": {"suspend": false}});
    let api: Api<GitSource> = Api::namespaced(stage.kcp.clone(), "kcp-system");
    api.patch("landscape", &PatchParams::default(), &Patch::Merge(resumed)).await.expect("a patch");
    stage.until("the reason is gone", &stage.kcp, "GitSource", "kcp-system", "landscape", is_forgotten).await;
}

/// The messages of warnings in the daemon's log, with some of their fields.
fn warnings(stage: &Stage) -> Vec<String> {
    let log = std::fs::read_to_string(stage.log()).unwrap_or_default();
    let lines = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let is_warning = |line: &Value| line["level"].as_str().is_some_and(|level| level.eq_ignore_ascii_case("warn"));
    let text = |line: Value| {
        let field = |name: &str| line["context"][name].to_string().trim_matches('"').to_owned();
        let [path, number, held, also, count] = ["path", "line", "held_back", "also", "count"].map(field);
        let text = line["msg"].as_str().unwrap_or_default();
        format!("{text} {path}:{number} held_back={held} files={} also={also} count={count}", field("files"))
    };
    lines.filter(is_warning).map(text).collect()
}

/// A source of the command line is no object, so only the log, the Lease and `tidegate status` can say it.
#[tokio::test(flavor = "multi_thread")]
async fn what_of_a_revision_does_not_happen_is_in_the_log_and_in_the_status_of_a_local_source() {
    let stage = stage::ready(1).await;
    let path = "modules/mailer/release.yaml";
    let broken = stage::release("mailer", &[("regular", "2.0.0")]).replace("channel: regular", "channel: REGULAR");
    stage.commit(path, &broken);
    let line = "the revision has an error modules/mailer/release.yaml:";
    eventually("the definition that is held back is a warning", SOON, async || {
        let found = warnings(&stage);
        if found.iter().any(|found| found.starts_with(line)) { Ok(()) } else { Err(format!("{found:#?}")) }
    })
    .await;
    let said = warnings(&stage).iter().filter(|found| found.starts_with(line)).count();
    assert_eq!(said, 1, "one warning for one cause: {:#?}", warnings(&stage));
    let of_release = warnings(&stage).into_iter().find(|found| found.starts_with(line)).expect("it was there");
    let number = |after: &str| -> usize {
        let digits = of_release.split(after).nth(1).unwrap_or_default().split(|one: char| !one.is_ascii_digit()).next();
        digits.and_then(|digits| digits.parse().ok()).unwrap_or_default()
    };
    assert!(0 < number("release.yaml:") && 0 < number("held_back="), "{of_release}");
    // The same problem in another file: one warning counts both and names both.
    let other = stage::release("cache", &[("regular", "1.0.0"), ("fast", "1.1.0")]);
    stage.commit("modules/cache/release.yaml", &other.replace("channel: regular", "channel: REGULAR"));
    eventually("both files are in one warning", SOON, async || {
        let found = warnings(&stage);
        let line = "the revision has an error modules/cache/release.yaml:";
        let is_it =
            |found: &String| found.starts_with(line) && found.contains(" files=2 also=modules/mailer/release.yaml:");
        if found.iter().any(is_it) { Ok(()) } else { Err(format!("{found:#?}")) }
    })
    .await;
    stage.commit("modules/cache/release.yaml", &other);
    stage.repository.remove("kymas/one.yaml").expect("it is there");
    stage.repository.commit("a Kyma goes").expect("a commit");
    eventually("the prune that waits is a warning", SOON, async || {
        let found = warnings(&stage);
        let is_it = |found: &String| {
            found.starts_with("objects that git no longer has are not pruned ") && found.ends_with(" count=1")
        };
        if found.iter().any(is_it) { Ok(()) } else { Err(format!("{found:#?}")) }
    })
    .await;
    stage.commit("kymas/one.yaml", &stage::kyma("one", &["cache", "mailer"]));

    let repository = stage.repository.path().display().to_string();
    stage.kill().await;
    stage.start_with(&[&format!("--source={repository}")]);
    eventually("the source of the command line is shown with its problem", SOON, async || {
        let output = stage.command(&["status"]).await;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let sources = text.lines().filter(|line| line.trim_start().starts_with("source ")).count();
        if 1 < sources && text.matches(path).count() == 2 { Ok(()) } else { Err(text) }
    })
    .await;
}

/// `kubectl get` asks for a table, and the API server fills its columns.
#[tokio::test]
async fn kubectl_get_shows_what_one_wants_to_know_first() {
    let crds: Vec<Value> = api::crds().iter().map(|crd| serde_json::to_value(crd).expect("JSON")).collect();
    let client = harness::kcp().await.client().expect("a client");
    harness::install_crds(&client, &crds).await;
    let namespace = harness::namespace(&client, "columns").await;
    let now = "2026-01-01T00:00:00Z";
    let condition = |type_: &str, status: &str, reason: &str, message: &str| json!({"type": type_, "status": status, "reason": reason, "message": message, "lastTransitionTime": now});
    let kyma = json!({"apiVersion": "operator.kyma-project.io/v1beta2", "kind": "Kyma",
    "metadata": {"name": "one", "namespace": namespace,
        "labels": {"operator.kyma-project.io/skip-reconciliation": "true"},
        "annotations": {"tidegate.dev/suspended": "by alice: audit"}},
    "spec": {"channel": "regular"},
    "status": {"state": "Ready", "conditions": [
        condition("tidegate.dev/ModuleCount", "True", "Counted", "1 of 2 modules are ready"),
        condition("tidegate.dev/Watch", "True", "Heard", "well"),
    ]}});
    let manifest = json!({"apiVersion": "operator.kyma-project.io/v1beta2", "kind": "Manifest",
        "metadata": {"name": "two", "namespace": namespace, "labels": {
            "operator.kyma-project.io/module-name": "cache", "operator.kyma-project.io/channel": "fast"}},
        "spec": {"remote": true, "version": "1.1.0", "install": {"name": "raw-manifest", "source": {}}},
        "status": {"state": "Processing", "lastOperation": {"operation": "waiting for resources to become ready"}}});
    let watcher = json!({"apiVersion": "operator.kyma-project.io/v1beta2", "kind": "Watcher",
    "metadata": {"name": "three", "namespace": namespace},
    "spec": {"serviceInfo": {"name": "a", "namespace": "b", "port": 1}, "field": "spec",
        "resourceToWatch": {"group": "g", "version": "v1", "resource": "r"}, "gateway": {"selector": {}}},
    "status": {"state": "Error", "conditions": [
        condition("tidegate.dev/Route", "False", "NotConfigured", "there is no Gateway"),
    ]}});
    let source = json!({"apiVersion": "tidegate.dev/v1alpha1", "kind": "GitSource",
    "metadata": {"name": "four", "namespace": namespace}, "spec": {"url": "https://git.example.org/l"},
    "status": {"appliedRevision": "main@sha1:0a1b", "conditions": [
        condition("Ready", "False", "Suspended", "suspended by alice: audit"),
        condition("tidegate.dev/Scope", "True", "Settled:0a1b", "no change has left objects to prune"),
    ]}});
    let release = json!({"apiVersion": "operator.kyma-project.io/v1beta2", "kind": "ModuleReleaseMeta",
    "metadata": {"name": "five", "namespace": namespace, "annotations": {
        "tidegate.dev/rollout-paused": "true", "tidegate.dev/suspended": "by alice: it is slow"}},
    "spec": {"moduleName": "five", "channels": [{"channel": "regular", "version": "1.0.0"}]}});
    for (object, plural, expected) in [
        (
            &kyma,
            "kymas",
            "Name=one State=Ready Modules=1 of 2 modules are ready Watch=Heard Suspended=true \
             Suspension=by alice: audit",
        ),
        (&release, "modulereleasemetas", "Name=five Paused=true Suspension=by alice: it is slow"),
        (
            &manifest,
            "manifests",
            "Name=two State=Processing Module=cache Version=1.1.0 Channel=fast \
             Message=waiting for resources to become ready",
        ),
        (&watcher, "watchers", "Name=three State=Error Reason=there is no Gateway"),
        (&source, "gitsources", "Name=four Ready=False Status=suspended by alice: audit Revision=main@sha1:0a1b"),
    ] {
        harness::apply(&client, object).await;
        let api = harness::api_of(&client, object).await.expect("a kind that is served");
        let name = object["metadata"]["name"].as_str().expect("a name");
        if object["status"].is_object() {
            let status = kube::api::Patch::Merge(json!({"status": object["status"]}));
            api.patch_status(name, &Default::default(), &status).await.expect("a status");
        }
        let version = object["apiVersion"].as_str().expect("a version");
        let path = format!("/apis/{version}/namespaces/{namespace}/{plural}");
        let request = Request::get(path).header(ACCEPT, "application/json;as=Table;v=v1;g=meta.k8s.io");
        let table: Value = client.request(request.body(Vec::new()).expect("a request")).await.expect("a table");
        let columns = table["columnDefinitions"].as_array().expect("columns").iter();
        let cells = table["rows"][0]["cells"].as_array().expect("a row");
        let shown: Vec<String> = columns
            .zip(cells)
            .filter(|(column, _)| column["name"] != "Age")
            .map(|(column, cell)| format!("{}={}", column["name"].as_str().unwrap(), cell.as_str().unwrap_or("-")))
            .collect();
        assert_eq!(shown.join(" "), expected);
    }
}

async fn a_suspended_source_whose_state_is_lost_says_what_rests_and_is_ready_after_a_look_at_git() {
    let stage = stage::ready(1).await;
    let suspend = async |suspend: bool| {
        let api = Api::<GitSource>::namespaced(stage.kcp.clone(), "kcp-system");
        let patch = Patch::Merge(json!({"spec": {"suspend": suspend}}));
        api.patch("landscape", &PatchParams::default(), &patch).await.expect("a patch");
    };
    let ready = |source: &Value| {
        let conditions = source["status"]["conditions"].as_array().cloned().unwrap_or_default();
        conditions.into_iter().find(|one| one["type"] == "Ready").unwrap_or_default()
    };
    let until = async |what: &str, is_it: &dyn Fn(&Value) -> bool| {
        let source = |found: &Value| is_it(&ready(found));
        stage.until(what, &stage.kcp, "GitSource", "kcp-system", "landscape", source).await
    };
    suspend(true).await;
    until("it is suspended", &|ready| ready["reason"] == "Suspended").await;
    stage.kill().await;
    stage.forget();
    stage.start();
    let says = "its modules are not repaired; `tidegate resume gitsource/landscape -n kcp-system` ends the suspension";
    until("it says what rests", &|ready| ready["message"].as_str().is_some_and(|text| text.contains(says))).await;
    let (path, away) = (stage.repository.path(), stage.repository.path().with_extension("away"));
    std::fs::rename(path, &away).expect("renamed");
    suspend(false).await;
    let source = until("it is no longer suspended", &|ready| ready["reason"] != "Suspended").await;
    assert_eq!(ready(&source)["status"], "False", "the repository cannot be read: {source:#}");
    std::fs::rename(&away, path).expect("renamed");
    until("it is ready", &|ready| ready["status"] == "True").await;
}
