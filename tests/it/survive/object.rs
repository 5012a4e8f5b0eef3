//! One object in KCP or in a runtime: unreadable custom resources, definitions and namespaces that are deleted.

use k8s_openapi::api::events::v1::Event;
use kube::{
    Api,
    api::{DeleteParams, DynamicObject, Patch, PatchParams},
};
use serde_json::{Value, json};

use crate::{
    harness::{self, SOON, eventually, holds},
    stage::{self, QUIET, Stage, read, scenarios},
};

scenarios! {
    at_start_a_kyma_that_cannot_be_read_is_named_and_all_others_are_reconciled,
    while_running_a_kyma_that_cannot_be_read_keeps_its_last_state_and_its_deletion_waits,
    nothing_is_removed_for_objects_of_any_kind_that_cannot_be_read,
    at_start_a_source_that_cannot_be_read_holds_up_no_runtime,
    a_watcher_that_cannot_be_read_keeps_its_rule_and_the_kymas_ready,
    a_kyma_with_a_value_of_a_newer_lifecycle_manager_is_read_and_reconciled,
    a_kyma_in_a_runtime_that_cannot_be_read_is_named_and_everything_else_there_is_repaired,
    a_field_of_git_that_makes_an_object_unreadable_is_repaired_and_any_other_stays,
    an_object_in_a_runtime_whose_metadata_cannot_be_read_is_named_and_kept_and_all_others_are_repaired,
    an_access_secret_that_cannot_be_read_concerns_only_its_runtime,
    secrets_with_content_that_cannot_be_read_concern_only_their_runtime_and_their_source,
    deleting_the_definition_of_kymas_empties_no_runtime_and_what_comes_back_is_taken_up_without_a_write,
    a_saved_kyma_is_created_again_after_its_definition_without_a_write_to_its_runtime,
    a_lost_control_plane_is_built_anew_from_what_was_saved_without_a_write_to_a_module,
    deleting_the_definition_of_sources_changes_nothing_and_what_comes_back_is_taken_up_without_a_write,
    a_definition_of_sources_that_is_back_before_a_pass_reads_it_was_deleted_all_the_same,
    deleting_a_definition_of_the_catalog_removes_nothing_from_runtimes,
    deleting_a_namespace_of_kymas_empties_no_runtime,
    deleting_all_of_the_deployment_at_once_empties_no_runtime,
    a_deletion_of_a_definition_that_is_confirmed_removes_everything,
}

const KYMA: &str = "operator.kyma-project.io/v1beta2";
const SOURCE: &str = "tidegate.dev/v1alpha1";
const CRD: &str = "apiextensions.k8s.io/v1";

async fn api(client: &kube::Client, version: &str, kind: &str, namespace: &str) -> Api<DynamicObject> {
    let sample = json!({"apiVersion": version, "kind": kind, "metadata": {"name": "x", "namespace": namespace}});
    harness::api_of(client, &sample).await.expect("a kind that is served")
}

async fn merge(client: &kube::Client, (version, kind): (&str, &str), name: &str, patch: Value) {
    let namespace = if version == CRD { "" } else { "kcp-system" };
    let api = api(client, version, kind, namespace).await;
    api.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.expect("a patch");
}

/// Makes the definition of a kind accept anything in `spec`, as a newer version of it may accept more than ours.
async fn loosen(client: &kube::Client, name: &str) {
    let api = api(client, CRD, "CustomResourceDefinition", "").await;
    let mut versions = api.get(name).await.expect("a definition").data["spec"]["versions"].clone();
    for version in versions.as_array_mut().expect("versions") {
        version["schema"]["openAPIV3Schema"]["properties"]["spec"] =
            json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    }
    let patch = Patch::Merge(json!({"spec": {"versions": versions}}));
    api.patch(name, &PatchParams::default(), &patch).await.expect("a patch");
}

async fn loosen_ours(stage: &Stage) {
    for plural in ["kymas", "manifests", "moduletemplates", "modulereleasemetas", "watchers"] {
        loosen(&stage.kcp, &format!("{plural}.operator.kyma-project.io")).await;
    }
    loosen(&stage.kcp, "gitsources.tidegate.dev").await;
}

const POISON: &str = "not-a-boolean";
/// A field of a Kyma that our type cannot read.
fn poison() -> Value {
    json!({"spec": {"skipMaintenanceWindows": POISON}})
}
const PROBLEM: &str = "spec.skipMaintenanceWindows: invalid type, expected a boolean";

/// Lines of the log that name an object as unreadable.
fn named_in_log(stage: &Stage, object: &str) -> Vec<String> {
    let log = std::fs::read_to_string(stage.log()).expect("a log");
    let of_object = |line: &&str| line.contains("object cannot be read") && line.contains(object);
    log.lines().filter(of_object).map(str::to_owned).collect()
}

/// The notes of all Events with a reason about an object.
async fn events(stage: &Stage, reason: &str, name: &str) -> Vec<String> {
    let events: Api<Event> = Api::namespaced(stage.kcp.clone(), "kcp-system");
    let all = events.list(&Default::default()).await.expect("a list").items;
    let about = |event: &Event| event.regarding.as_ref().and_then(|regarding| regarding.name.as_deref()) == Some(name);
    let found = all.into_iter().filter(|event| event.reason.as_deref() == Some(reason) && about(event));
    found.map(|event| event.note.unwrap_or_default()).collect()
}

async fn until_ready(stage: &Stage) {
    eventually("it is ready", SOON, async || match stage.ask("health", "/readyz").await? {
        (200, _) => Ok(()),
        (_, body) => Err(body),
    })
    .await;
}

/// Commits the bump of a module that both runtimes have.
fn bump(stage: &Stage) {
    stage.commit("modules/cache/release.yaml", &stage::release("cache", &[("regular", "1.1.0"), ("fast", "1.1.0")]));
}

fn is_bumped(map: &Value) -> bool {
    map["data"]["text"] == "two"
}

fn writes(requests: Vec<String>, server: &str) -> Vec<String> {
    let is_write =
        |request: &String| [" patch ", " create ", " delete ", " update "].iter().any(|verb| request.contains(verb));
    requests.into_iter().filter(|request| request.starts_with(server) && is_write(request)).collect()
}

async fn at_start_a_kyma_that_cannot_be_read_is_named_and_all_others_are_reconciled() {
    let stage = stage::ready(2).await;
    stage.kill().await;
    loosen_ours(&stage).await;
    merge(&stage.kcp, (KYMA, "Kyma"), "two", poison()).await;
    let marks = stage.marks();
    stage.start();
    bump(&stage);
    stage.until("the other is reconciled", &stage.skrs[0], "ConfigMap", "kyma-system", "cache-a", is_bumped).await;
    stage.kyma_in("one", "Ready").await;
    until_ready(&stage).await;

    // It is named with its field, once: in the log, an Event, the metrics and `tidegate status`.
    let named = named_in_log(&stage, "kcp-system/two");
    assert!(named.len() == 1 && named[0].contains(PROBLEM) && !named[0].contains(POISON), "{named:?}");
    let noted = events(&stage, "Unreadable", "two").await;
    assert!(noted.len() == 1 && noted[0].contains(PROBLEM) && !noted[0].contains(POISON), "{noted:?}");
    let (_, metrics) = stage.ask("metrics", "/metrics").await.expect("metrics");
    assert!(metrics.contains("tidegate_unreadable_objects{kind=\"Kyma\"} 1"), "{metrics}");
    let output = stage.command(&["status"]).await;
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains(&format!("Kyma kcp-system/two cannot be read: {PROBLEM}")), "{text}");
    assert!(text.contains("Healthy: 1 source, 1 runtime"), "{text}");

    // Nothing is known of what it wants, so nothing of it changes.
    let written = writes(stage.requests_since(&marks), "skr-2");
    assert!(written.is_empty(), "{written:?}");
    merge(&stage.kcp, (KYMA, "Kyma"), "two", json!({"spec": {"skipMaintenanceWindows": null}})).await;
    stage.until("it is reconciled again", &stage.skrs[1], "ConfigMap", "kyma-system", "cache-a", is_bumped).await;
    let (_, metrics) = stage.ask("metrics", "/metrics").await.expect("metrics");
    assert!(!metrics.contains("tidegate_unreadable_objects{"), "{metrics}");
}

async fn while_running_a_kyma_that_cannot_be_read_keeps_its_last_state_and_its_deletion_waits() {
    let stage = stage::ready(2).await;
    loosen_ours(&stage).await;
    merge(&stage.kcp, (KYMA, "Kyma"), "two", poison()).await;
    bump(&stage);
    for skr in &stage.skrs {
        stage.until("both are reconciled", skr, "ConfigMap", "kyma-system", "cache-a", is_bumped).await;
    }
    until_ready(&stage).await;
    assert_eq!(named_in_log(&stage, "kcp-system/two").len(), 1);

    // Nothing is removed for it, as long as it cannot be read.
    let kymas = api(&stage.kcp, KYMA, "Kyma", "kcp-system").await;
    kymas.delete("two", &DeleteParams::default()).await.expect("a delete");
    holds("its deletion waits", QUIET, async || {
        match read(&stage.skrs[1], "ConfigMap", "kyma-system", "cache-a").await {
            Some(_) if read(&stage.kcp, "Kyma", "kcp-system", "two").await.is_some() => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await;
    merge(&stage.kcp, (KYMA, "Kyma"), "two", json!({"spec": {"skipMaintenanceWindows": null}})).await;
    stage.until_gone(&stage.skrs[1], "ConfigMap", "kyma-system", "cache-a").await;
}

async fn nothing_is_removed_for_objects_of_any_kind_that_cannot_be_read() {
    let mut files = stage::files(1);
    files.push(("watcher.yaml".to_owned(), stage::WATCHER.to_owned()));
    let files: Vec<(&str, String)> = files.iter().map(|(path, text)| (path.as_str(), text.clone())).collect();
    let stage = Stage::new(1, &files).await;
    stage.start();
    let kyma = stage.kyma_in("one", "Ready").await;
    stage.rests().await;
    let modules = kyma["status"]["modules"].as_array().expect("modules");
    let cache = modules.iter().find(|module| module["name"] == "cache").expect("installed");
    let manifest = cache["manifest"]["metadata"]["name"].as_str().expect("a name").to_owned();
    stage.kill().await;
    loosen_ours(&stage).await;
    for (kind, name, patch) in [
        ("Manifest", manifest.as_str(), json!({"spec": {"remote": "maybe"}})),
        ("ModuleTemplate", "cache-1.1.0", json!({"spec": {"mandatory": "maybe"}})),
        ("ModuleReleaseMeta", "mailer", json!({"spec": {"beta": "maybe"}})),
        ("Watcher", "watcher", json!({"spec": {"manager": 3}})),
    ] {
        merge(&stage.kcp, (KYMA, kind), name, patch).await;
    }
    let marks = stage.marks();
    stage.start();
    // A commit takes away the template that cannot be read, beside one that is for others.
    stage.commit("modules/cache/release.yaml", &stage::release("cache", &[("regular", "1.0.0")]));
    stage
        .until("the module says what is wrong", &stage.kcp, "Kyma", "kcp-system", "one", |kyma| {
            kyma["status"].to_string().contains("cannot be read: spec.remote: invalid type, expected a boolean")
        })
        .await;
    until_ready(&stage).await;
    holds("nothing is removed", QUIET, async || {
        let deleted: Vec<String> =
            stage.requests_since(&marks).into_iter().filter(|request| request.contains(" delete ")).collect();
        if deleted.is_empty() { Ok(()) } else { Err(format!("{deleted:?}")) }
    })
    .await;
    for (kind, name) in [
        ("ConfigMap", "cache-a"),
        ("ConfigMap", "mailer-a"),
        ("ModuleTemplate", "cache-1.1.0"),
        ("ModuleReleaseMeta", "mailer"),
    ] {
        assert!(read(&stage.skrs[0], kind, "kyma-system", name).await.is_some(), "{kind} {name}");
    }
    let (_, metrics) = stage.ask("metrics", "/metrics").await.expect("metrics");
    for kind in ["Manifest", "ModuleTemplate", "ModuleReleaseMeta", "Watcher"] {
        assert!(metrics.contains(&format!("tidegate_unreadable_objects{{kind=\"{kind}\"}} 1")), "{kind}: {metrics}");
    }

    // A Manifest that belongs to no module of a Kyma is in no Kyma's status.
    let alone = json!({"apiVersion": KYMA, "kind": "Manifest", "metadata": {"name": "alone", "namespace": "kcp-system"},
        "spec": {"remote": "maybe"}});
    harness::apply(&stage.kcp, &alone).await;
    let output = stage.command(&["status"]).await;
    let text = String::from_utf8_lossy(&output.stdout);
    let sentence = "Manifest kcp-system/alone cannot be read: spec.remote: invalid type, expected a boolean";
    assert!(text.contains(sentence), "{text}");

    // A GitSource that cannot be read gives nothing up either; other GitSources and all runtimes go on.
    merge(&stage.kcp, (SOURCE, "GitSource"), "landscape", json!({"spec": {"prune": "maybe"}})).await;
    stage.kill().await;
    let marks = stage.marks();
    stage.start();
    until_ready(&stage).await;
    holds("nothing is removed", QUIET, async || {
        let deleted: Vec<String> =
            stage.requests_since(&marks).into_iter().filter(|request| request.contains(" delete ")).collect();
        if deleted.is_empty() { Ok(()) } else { Err(format!("{deleted:?}")) }
    })
    .await;
}

/// Its overrides of templates would concern everything, but it has none: so much can be known.
async fn at_start_a_source_that_cannot_be_read_holds_up_no_runtime() {
    let stage = stage::ready(2).await;
    stage.kill().await;
    loosen_ours(&stage).await;
    merge(&stage.kcp, (SOURCE, "GitSource"), "landscape", json!({"spec": {"prune": "maybe"}})).await;
    let copies = api(&stage.skrs[0], KYMA, "ModuleTemplate", "kyma-system").await;
    copies.delete("cache-1.0.0", &DeleteParams::default()).await.expect("it is deleted");
    stage.start();
    until_ready(&stage).await;
    let request = json!({"metadata": {"annotations": {"tidegate.dev/reconcile-requested-at": "now"}}});
    merge(&stage.kcp, (KYMA, "Kyma"), "one", request).await;
    stage.until("it is back", &stage.skrs[0], "ModuleTemplate", "kyma-system", "cache-1.0.0", |_| true).await;
}

async fn a_watcher_that_cannot_be_read_keeps_its_rule_and_the_kymas_ready() {
    const PROBLEM: &str = "Watcher kcp-system/watcher cannot be read: spec.manager: ";
    const CONFIGURATION: (&str, &str) = ("ValidatingWebhookConfiguration", "skr-webhook");
    let other = |resource: &str| {
        let named = stage::WATCHER.replace("name: watcher\n", "name: other\n");
        named.replace("lifecycle-manager", "other-manager").replace("resource: kymas", &format!("resource: {resource}"))
    };
    let mut files = stage::files(1);
    files.push(("watcher.yaml".to_owned(), stage::WATCHER.to_owned()));
    files.push(("other.yaml".to_owned(), other("kymas")));
    let files: Vec<(&str, String)> = files.iter().map(|(path, text)| (path.as_str(), text.clone())).collect();
    let stage = Stage::new(1, &files).await;
    stage.start();
    stage.kyma_in("one", "Ready").await;
    stage.rests().await;
    let rule = |live: &Value, name: &str| {
        let webhooks = live["webhooks"].as_array().into_iter().flatten();
        let name = format!("kcp-system.{name}.operator.kyma-project.io");
        webhooks.clone().find(|webhook| webhook["name"] == name).map(|webhook| webhook["rules"].clone())
    };
    let (kind, name) = CONFIGURATION;
    let before = read(&stage.skrs[0], kind, "", name).await.expect("a configuration");
    let former = rule(&before, "watcher").expect("a rule");

    // The next process has never read it, and the other changes.
    stage.kill().await;
    loosen_ours(&stage).await;
    merge(&stage.kcp, (KYMA, "Watcher"), "watcher", json!({"spec": {"manager": 3}})).await;
    stage.start();
    stage.commit("other.yaml", &other("secrets"));
    let live = stage
        .until("the rule of the other arrives", &stage.skrs[0], kind, "", name, |live| {
            rule(live, "other").is_some_and(|rules| rules.to_string().contains("secrets"))
        })
        .await;
    assert_eq!(rule(&live, "watcher"), Some(former), "{live}");
    until_ready(&stage).await;
    holds("the Kyma stays ready", QUIET, async || {
        let kyma = read(&stage.kcp, "Kyma", "kcp-system", "one").await.ok_or("it is gone")?;
        if kyma["status"]["state"] == "Ready" { Ok(()) } else { Err(kyma["status"].to_string()) }
    })
    .await;
    let output = stage.command(&["status"]).await;
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains(PROBLEM) && text.contains("1 runtime"), "{text}");
    let noted = events(&stage, "Unreadable", "watcher").await;
    assert!(noted.len() == 1 && noted[0].contains(PROBLEM), "{noted:?}");
    let (_, metrics) = stage.ask("metrics", "/metrics").await.expect("metrics");
    assert!(metrics.contains("tidegate_unreadable_objects{kind=\"Watcher\"} 1"), "{metrics}");
}

async fn a_kyma_with_a_value_of_a_newer_lifecycle_manager_is_read_and_reconciled() {
    let stage = stage::ready(1).await;
    stage.kill().await;
    loosen_ours(&stage).await;
    let modules = json!([{"name": "cache", "managed": true, "customResourcePolicy": "CreateOnce"}]);
    merge(&stage.kcp, (KYMA, "Kyma"), "one", json!({"spec": {"modules": modules}})).await;
    stage.start();
    bump(&stage);
    stage.until("it is reconciled", &stage.skrs[0], "ConfigMap", "kyma-system", "cache-a", is_bumped).await;
    assert!(named_in_log(&stage, "kcp-system/one").is_empty());
}

async fn a_kyma_in_a_runtime_that_cannot_be_read_is_named_and_everything_else_there_is_repaired() {
    let stage = stage::ready(1).await;
    let skr = &stage.skrs[0];
    loosen(skr, "kymas.operator.kyma-project.io").await;
    let kymas = api(skr, KYMA, "Kyma", "kyma-system").await;
    let poisoned = Patch::Merge(poison());
    kymas.patch("default", &PatchParams::default(), &poisoned).await.expect("a patch");
    let maps = api(skr, "v1", "ConfigMap", "kyma-system").await;
    maps.delete("cache-b", &DeleteParams::default()).await.expect("a delete");
    let requested = json!({"metadata": {"annotations": {"tidegate.dev/reconcile-requested-at": "1"}}});
    merge(&stage.kcp, (KYMA, "Kyma"), "one", requested).await;
    stage.until("its object is back", skr, "ConfigMap", "kyma-system", "cache-b", |_| true).await;
    stage
        .until("its status says so", &stage.kcp, "Kyma", "kcp-system", "one", |kyma| {
            kyma["status"].to_string().contains(PROBLEM) && !kyma["status"].to_string().contains(POISON)
        })
        .await;
    let corrected = Patch::Merge(json!({"spec": {"skipMaintenanceWindows": null}}));
    kymas.patch("default", &PatchParams::default(), &corrected).await.expect("a patch");
    stage.kyma_in("one", "Ready").await;
}

async fn a_field_of_git_that_makes_an_object_unreadable_is_repaired_and_any_other_stays() {
    let stage = stage::ready(1).await;
    loosen_ours(&stage).await;
    merge(&stage.kcp, (KYMA, "Kyma"), "one", poison()).await;
    merge(&stage.kcp, (KYMA, "Kyma"), "one", json!({"spec": {"channel": 7}})).await;
    stage
        .until("its channel is that of git", &stage.kcp, "Kyma", "kcp-system", "one", |kyma| {
            kyma["spec"]["channel"] == "regular"
        })
        .await;
    stage.rests().await;
    let kyma = read(&stage.kcp, "Kyma", "kcp-system", "one").await.expect("a Kyma");
    assert_eq!(kyma["spec"]["skipMaintenanceWindows"], POISON, "a newer program may have written it");
}

async fn an_object_in_a_runtime_whose_metadata_cannot_be_read_is_named_and_kept_and_all_others_are_repaired() {
    const PROBLEM: &str = "ConfigMap kyma-system/cache-a in the runtime cannot be read: metadata.labels: invalid type, expected an object";
    let stage = stage::ready(1).await;
    let skr = &stage.skrs[0];
    stage.rests().await;
    let server = &stage.landscape.skrs[0];
    server.spoil("cache-a", Some(("labels", json!("as of another type"))));
    let maps = api(skr, "v1", "ConfigMap", "kyma-system").await;
    for lost in ["cache-b", "mailer-a"] {
        maps.delete(lost, &DeleteParams::default()).await.expect("a delete");
    }
    let requested = json!({"metadata": {"annotations": {"tidegate.dev/reconcile-requested-at": "1"}}});
    merge(&stage.kcp, (KYMA, "Kyma"), "one", requested).await;
    for lost in ["cache-b", "mailer-a"] {
        stage.until("it is back", skr, "ConfigMap", "kyma-system", lost, |_| true).await;
    }
    stage
        .until("its status says so", &stage.kcp, "Kyma", "kcp-system", "one", |kyma| {
            kyma["status"].to_string().contains(PROBLEM)
        })
        .await;
    tokio::time::sleep(QUIET * 20).await;
    let noted: Vec<String> = events(&stage, "RuntimeFailed", "one").await;
    assert!(noted.len() == 1 && noted[0].contains(PROBLEM), "{noted:?}");
    let log = std::fs::read_to_string(stage.log()).expect("a log");
    assert_eq!(log.lines().filter(|line| line.contains(PROBLEM)).count(), 1, "{log}");
    let (_, metrics) = stage.ask("metrics", "/metrics").await.expect("metrics");
    assert!(metrics.contains("tidegate_unreadable_objects{kind=\"ConfigMap\"} 1"), "{metrics}");

    // It is present: what it belongs to is not taken for removed.
    stage.commit("kymas/one.yaml", &stage::kyma("one", &["mailer"]));
    stage.until_gone(skr, "ConfigMap", "kyma-system", "cache-b").await;
    holds("it stays", QUIET, async || match read(skr, "ConfigMap", "kyma-system", "cache-a").await {
        Some(_) => Ok(()),
        None => Err("it is gone".to_owned()),
    })
    .await;
    server.spoil("cache-a", None);
    stage.until_gone(skr, "ConfigMap", "kyma-system", "cache-a").await;
    stage.kyma_in("one", "Ready").await;
    eventually("the metric follows at the end of the pass", SOON, async || {
        let (_, metrics) = stage.ask("metrics", "/metrics").await?;
        if metrics.contains("tidegate_unreadable_objects{") { Err(metrics) } else { Ok(()) }
    })
    .await;
}

async fn an_access_secret_that_cannot_be_read_concerns_only_its_runtime() {
    const PROBLEM: &str = "Secret kcp-system/access-two cannot be read: metadata.annotations: invalid type";
    let stage = stage::ready(2).await;
    stage.rests().await;
    stage.kill().await;
    stage.landscape.kcp.spoil("access-two", Some(("annotations", json!(7))));
    let marks = stage.marks();
    stage.start();
    bump(&stage);
    stage.until("the other is reconciled", &stage.skrs[0], "ConfigMap", "kyma-system", "cache-a", is_bumped).await;
    stage.kyma_in("one", "Ready").await;
    until_ready(&stage).await;
    let two = stage.kyma_in("two", "Error").await;
    assert!(two["status"].to_string().contains(PROBLEM), "{two}");
    assert_eq!(named_in_log(&stage, "kcp-system/access-two").len(), 1);
    let noted = events(&stage, "Unreadable", "access-two").await;
    assert!(noted.len() == 1 && noted[0].contains(PROBLEM), "{noted:?}");
    let (_, metrics) = stage.ask("metrics", "/metrics").await.expect("metrics");
    assert!(metrics.contains("tidegate_unreadable_objects{kind=\"Secret\"} 1"), "{metrics}");
    let written = writes(stage.requests_since(&marks), "skr-2");
    assert!(written.is_empty(), "{written:?}");
}

async fn secrets_with_content_that_cannot_be_read_concern_only_their_runtime_and_their_source() {
    let stage = stage::ready(2).await;
    stage.rests().await;
    let marks = stage.marks();
    // A simulated server accepts this; a real one would have to be older, or be changed behind its back.
    merge(&stage.kcp, ("v1", "Secret"), "access-two", json!({"data": {"config": "%not base64%"}})).await;
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "git", "namespace": "kcp-system"},
        "data": {"password": "%not base64%"}});
    harness::apply(&stage.kcp, &secret).await;
    let source = json!({"apiVersion": SOURCE, "kind": "GitSource",
        "metadata": {"name": "other", "namespace": "kcp-system"},
        "spec": {"url": "https://localhost:1/other.git", "interval": "10s", "secretRef": {"name": "git"}}});
    harness::apply(&stage.kcp, &source).await;
    let expected = "Secret kcp-system/git: ";
    let other = stage
        .until("the source says so", &stage.kcp, "GitSource", "kcp-system", "other", |source| {
            source["status"]["conditions"].to_string().contains(expected)
        })
        .await;
    let told = other["status"].to_string();
    assert!(told.contains("data.password") && !told.contains("%not"), "{told}");
    let two = stage.kyma_in("two", "Error").await;
    let told = two["status"].to_string();
    assert!(told.contains("kcp-system/access-two, key `config`") && !told.contains("%not"), "{told}");

    // Nothing is removed, and the other objects are still reconciled.
    bump(&stage);
    stage.until("the other is reconciled", &stage.skrs[0], "ConfigMap", "kyma-system", "cache-a", is_bumped).await;
    stage.kyma_in("one", "Ready").await;
    let written = writes(stage.requests_since(&marks), "skr-2");
    assert!(written.is_empty(), "{written:?}");
    merge(&stage.kcp, ("v1", "Secret"), "access-two", stage::access_secret("two", &stage.landscape.skrs[1])).await;
    stage.until("it is reconciled again", &stage.skrs[1], "ConfigMap", "kyma-system", "cache-a", is_bumped).await;
}

async fn delete_crd(stage: &Stage, name: &str) {
    let crds = api(&stage.kcp, CRD, "CustomResourceDefinition", "").await;
    crds.delete(name, &DeleteParams::default()).await.expect("a delete");
}

/// Waits until `/readyz` says that deletions are held, and how to confirm the deletion of something.
async fn until_held(stage: &Stage, command: &str) {
    eventually("it says that deletions are held", SOON, async || match stage.ask("health", "/readyz").await? {
        (503, body) if body.contains("deletions are held") && body.contains(command) => Ok(()),
        (status, body) => Err(format!("{status} {body}")),
    })
    .await;
}

/// `tidegate status` says that a kind is not served, shows the rest, and its exit code says that something is left.
async fn status_names(stage: &Stage, kind: &str, rest: &str) {
    let output = stage.command(&["status"]).await;
    let text = String::from_utf8_lossy(&output.stdout);
    let line =
        format!("deletions are held: the control plane does not serve {kind}: apply what `tidegate crds` prints");
    assert!(text.contains(&line) && text.contains(rest), "{text}{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.status.code(), Some(5), "{text}");
}

/// Nothing is written to any runtime for a while.
async fn runtimes_stay(stage: &Stage, marks: &[u64]) {
    holds("no runtime is written to", QUIET, async || {
        let written: Vec<String> =
            (1..=stage.skrs.len()).flat_map(|skr| writes(stage.requests_since(marks), &format!("skr-{skr}"))).collect();
        if written.is_empty() { Ok(()) } else { Err(format!("{written:?}")) }
    })
    .await;
}

/// Ends what the API server waits for, as an administrator does who wants a definition to go.
async fn strip_finalizers(stage: &Stage, kind: &str) {
    let objects = api(&stage.kcp, KYMA, kind, "kcp-system").await;
    for object in objects.list(&Default::default()).await.expect("a list").items {
        let patch = Patch::Merge(json!({"metadata": {"finalizers": null}}));
        objects.patch(&object.metadata.name.expect("a name"), &PatchParams::default(), &patch).await.expect("a patch");
    }
}

async fn deleting_the_definition_of_kymas_empties_no_runtime_and_what_comes_back_is_taken_up_without_a_write() {
    let stage = stage::ready(2).await;
    stage.rests().await;
    let marks = stage.marks();
    delete_crd(&stage, "kymas.operator.kyma-project.io").await;
    let command = "kubectl annotate crd kymas.operator.kyma-project.io tidegate.dev/confirm-deletion=true";
    until_held(&stage, command).await;
    runtimes_stay(&stage, &marks).await;
    let kyma = read(&stage.kcp, "Kyma", "kcp-system", "one").await.expect("its finalizer keeps it");
    assert!(kyma["status"].to_string().contains(command), "{}", kyma["status"]);
    let log = std::fs::read_to_string(stage.log()).expect("a log");
    let said: Vec<&str> =
        log.lines().filter(|line| line.contains("deletions of Kymas and Manifests are held")).collect();
    assert!(said.len() == 1 && said[0].contains(command), "{said:?}");

    // An administrator lets the definition go, and its Kymas with it; then applies it again.
    strip_finalizers(&stage, "Kyma").await;
    stage.until_gone(&stage.kcp, "CustomResourceDefinition", "", "kymas.operator.kyma-project.io").await;
    status_names(&stage, "kymas", "\nHealthy: ").await;
    runtimes_stay(&stage, &marks).await;
    harness::install_own_crds(&stage.kcp).await;
    for name in stage::KYMAS {
        stage.kyma_in(name, "Ready").await;
    }
    until_ready(&stage).await;
    runtimes_stay(&stage, &marks).await;

    // What is asked for from now on happens.
    bump(&stage);
    for skr in &stage.skrs {
        stage.until("the bump arrives", skr, "ConfigMap", "kyma-system", "cache-a", is_bumped).await;
    }
    stage.commit("kymas/one.yaml", &stage::kyma("one", &["mailer"]));
    stage.until_gone(&stage.skrs[0], "ConfigMap", "kyma-system", "cache-a").await;
}

/// Two runtimes at rest: git declares the Kyma of the first one, a broker has created that of the second.
async fn with_kyma_of_a_broker() -> Stage {
    let files = stage::files(1);
    let files: Vec<(&str, String)> = files.iter().map(|(path, text)| (path.as_str(), text.clone())).collect();
    let stage = Stage::new(2, &files).await;
    let kyma = json!({"apiVersion": KYMA, "kind": "Kyma", "metadata": {"name": "two", "namespace": "kcp-system"},
        "spec": {"channel": "regular", "modules": [{"name": "mailer"}]}});
    harness::apply(&stage.kcp, &kyma).await;
    stage.start();
    for name in stage::KYMAS {
        stage.kyma_in(name, "Ready").await;
    }
    stage.rests().await;
    stage
}

/// The way back that the message names, for a Kyma that git does not declare.
async fn a_saved_kyma_is_created_again_after_its_definition_without_a_write_to_its_runtime() {
    let stage = with_kyma_of_a_broker().await;
    let marks = stage.marks();
    delete_crd(&stage, "kymas.operator.kyma-project.io").await;
    until_held(&stage, "to keep everything, save the kymas that git does not declare, remove the finalizers").await;
    let kymas = api(&stage.kcp, KYMA, "Kyma", "kcp-system").await;
    let mut saved = kymas.get("two").await.expect("its finalizer keeps it");
    strip_finalizers(&stage, "Kyma").await;
    stage.until_gone(&stage.kcp, "CustomResourceDefinition", "", "kymas.operator.kyma-project.io").await;
    harness::install_own_crds(&stage.kcp).await;
    let metadata = &mut saved.metadata;
    (metadata.uid, metadata.resource_version, metadata.finalizers, metadata.managed_fields) = (None, None, None, None);
    metadata.deletion_timestamp = None;
    saved.data["status"] = Value::Null;
    let kymas = api(&stage.kcp, KYMA, "Kyma", "kcp-system").await;
    kymas.create(&Default::default(), &saved).await.expect("a create");
    for name in stage::KYMAS {
        stage.kyma_in(name, "Ready").await;
    }
    until_ready(&stage).await;
    runtimes_stay(&stage, &marks).await;
}

/// The resource versions of the objects of modules in both runtimes.
async fn objects_of_modules(stage: &Stage) -> Vec<Option<String>> {
    let mut versions = Vec::new();
    for skr in &stage.skrs {
        for name in ["cache-a", "cache-b", "mailer-a", "mailer-b"] {
            let found = read(skr, "ConfigMap", "kyma-system", name).await;
            versions.push(found.and_then(|map| map["metadata"]["resourceVersion"].as_str().map(str::to_owned)));
        }
    }
    versions
}

/// The kinds that `docs/disaster-recovery.md` saves of a control plane.
const SAVED: [(&str, &str); 4] = [("v1", "Secret"), (KYMA, "Kyma"), (KYMA, "Manifest"), (SOURCE, "GitSource")];

/// The steps of the section "Lost control plane", on the same server, from which everything is deleted first.
async fn a_lost_control_plane_is_built_anew_from_what_was_saved_without_a_write_to_a_module() {
    let stage = with_kyma_of_a_broker().await;
    let mut saved = Vec::new();
    for (version, kind) in SAVED {
        let objects = api(&stage.kcp, version, kind, "kcp-system").await;
        saved.extend(objects.list(&Default::default()).await.expect("a list").items.into_iter().map(|mut object| {
            object.types = Some(kube::core::TypeMeta { api_version: version.to_owned(), kind: kind.to_owned() });
            object
        }));
    }
    let installed = objects_of_modules(&stage).await;
    stage.kill().await;
    stage.forget();
    for (version, kind) in SAVED {
        if version != "v1" {
            let objects = api(&stage.kcp, version, kind, "kcp-system").await;
            for object in objects.list(&Default::default()).await.expect("a list").items {
                let patch = Patch::Merge(json!({"metadata": {"finalizers": null}}));
                let name = object.metadata.name.expect("a name");
                objects.patch(&name, &PatchParams::default(), &patch).await.expect("a patch");
            }
        }
    }
    let definitions = api(&stage.kcp, CRD, "CustomResourceDefinition", "").await;
    for definition in definitions.list(&Default::default()).await.expect("a list").items {
        let name = definition.metadata.name.expect("a name");
        if name.ends_with(".operator.kyma-project.io") || name.ends_with(".tidegate.dev") {
            delete_crd(&stage, &name).await;
            stage.until_gone(&stage.kcp, "CustomResourceDefinition", "", &name).await;
        }
    }
    let secrets = api(&stage.kcp, "v1", "Secret", "kcp-system").await;
    for secret in &saved {
        if secret.types.as_ref().is_some_and(|types| types.kind == "Secret") {
            let name = secret.metadata.name.as_deref().expect("a name");
            secrets.delete(name, &DeleteParams::default()).await.expect("a delete");
        }
    }
    let marks = stage.marks();

    harness::install_own_crds(&stage.kcp).await;
    for object in &saved {
        let types = object.types.clone().expect("a kind");
        let objects = api(&stage.kcp, &types.api_version, &types.kind, "kcp-system").await;
        let mut object = object.clone();
        let metadata = &mut object.metadata;
        (metadata.uid, metadata.resource_version, metadata.managed_fields) = (None, None, None);
        metadata.owner_references = None;
        let name = metadata.name.clone().expect("a name");
        if name == "two" && types.kind == "Kyma" {
            let label = ("operator.kyma-project.io/skip-reconciliation".to_owned(), "true".to_owned());
            metadata.labels.get_or_insert_default().extend([label]);
        }
        objects.create(&Default::default(), &object).await.expect("a create");
        if types.kind == "Manifest" {
            let status = Patch::Merge(json!({"status": object.data["status"]}));
            objects.patch_status(&name, &PatchParams::default(), &status).await.expect("a patch");
        }
    }
    stage.start();
    stage.kyma_in("one", "Ready").await;
    let label = json!({"metadata": {"labels": {"operator.kyma-project.io/skip-reconciliation": null}}});
    merge(&stage.kcp, (KYMA, "Kyma"), "two", label).await;
    stage.kyma_in("two", "Ready").await;
    stage.rests().await;
    // Copies of the catalog, and what the runtimes' own Kymas say of it.
    let of_catalog = ["kymas.", "moduletemplates.", "modulereleasemetas."];
    let (found, after) = (objects_of_modules(&stage).await, stage.requests_since(&marks));
    let written: Vec<String> = (1..=2)
        .flat_map(|skr| writes(after.clone(), &format!("skr-{skr}")))
        .filter(|one| !of_catalog.iter().any(|plural| one.contains(plural)))
        .collect();
    assert!(written.is_empty() && found == installed, "{written:?}");

    // The inventory is known again: what a version no longer has goes.
    bump(&stage);
    stage.until("the bump arrives", &stage.skrs[0], "ConfigMap", "kyma-system", "cache-a", is_bumped).await;
}

async fn deleting_the_definition_of_sources_changes_nothing_and_what_comes_back_is_taken_up_without_a_write() {
    let stage = stage::ready(2).await;
    stage.rests().await;
    let sources = api(&stage.kcp, "tidegate.dev/v1alpha1", "GitSource", "kcp-system").await;
    let mut source = sources.get("landscape").await.expect("a source");
    let marks = stage.marks();
    delete_crd(&stage, "gitsources.tidegate.dev").await;
    stage.until_gone(&stage.kcp, "CustomResourceDefinition", "", "gitsources.tidegate.dev").await;
    until_held(&stage, "gitsources.tidegate.dev").await;
    let nothing_changes = async || {
        runtimes_stay(&stage, &marks).await;
        let declared = |one: &String| {
            ["kymas", "moduletemplates", "modulereleasemetas", "manifests"].iter().any(|kind| one.contains(kind))
        };
        let written: Vec<String> = writes(stage.requests_since(&marks), "kcp").into_iter().filter(declared).collect();
        assert!(written.is_empty(), "{written:?}");
    };
    nothing_changes().await;

    harness::install_own_crds(&stage.kcp).await;
    let metadata = &mut source.metadata;
    (metadata.uid, metadata.resource_version, metadata.finalizers, metadata.managed_fields) = (None, None, None, None);
    source.data["status"] = Value::Null;
    let sources = api(&stage.kcp, "tidegate.dev/v1alpha1", "GitSource", "kcp-system").await;
    sources.create(&Default::default(), &source).await.expect("a create");
    until_ready(&stage).await;
    for kyma in ["one", "two"] {
        stage.kyma_in(kyma, "Ready").await;
    }
    nothing_changes().await;
    bump(&stage);
    stage.until("the bump arrives", &stage.skrs[0], "ConfigMap", "kyma-system", "cache-a", is_bumped).await;
}

async fn a_definition_of_sources_that_is_back_before_a_pass_reads_it_was_deleted_all_the_same() {
    let stage = stage::ready(1).await;
    stage.rests().await;
    let kcp = stage.kcp.clone();
    let (sender, replaced) = tokio::sync::oneshot::channel();
    stage.landscape.kcp.before("/customresourcedefinitions/gitsources.tidegate.dev", async move {
        let sources = api(&kcp, "tidegate.dev/v1alpha1", "GitSource", "kcp-system").await;
        let patch = Patch::Merge(json!({"metadata": {"finalizers": null}}));
        sources.patch("landscape", &PatchParams::default(), &patch).await.expect("a patch");
        harness::install_own_crds(&kcp).await;
        sender.send(()).expect("it is waited for");
    });
    delete_crd(&stage, "gitsources.tidegate.dev").await;
    replaced.await.expect("it is read");
    holds("its objects keep their label", QUIET, async || {
        let kyma = read(&stage.kcp, "Kyma", "kcp-system", "one").await.unwrap_or_default();
        let label = &kyma["metadata"]["labels"]["tidegate.dev/source"];
        if label == "kcp-system.landscape" { Ok(()) } else { Err(label.to_string()) }
    })
    .await;
}

async fn deleting_a_definition_of_the_catalog_removes_nothing_from_runtimes() {
    let stage = stage::ready(1).await;
    stage.rests().await;
    let marks = stage.marks();
    for plural in ["modulereleasemetas", "moduletemplates", "manifests"] {
        delete_crd(&stage, &format!("{plural}.operator.kyma-project.io")).await;
    }
    until_held(&stage, "manifests.operator.kyma-project.io tidegate.dev/confirm-deletion=true").await;
    runtimes_stay(&stage, &marks).await;
    strip_finalizers(&stage, "Manifest").await;
    stage.until_gone(&stage.kcp, "CustomResourceDefinition", "", "manifests.operator.kyma-project.io").await;
    status_names(&stage, "manifests", "\nHealthy: ").await;
    // A new process finds its kinds missing, and waits for them.
    runtimes_stay(&stage, &marks).await;
    harness::install_own_crds(&stage.kcp).await;
    until_ready(&stage).await;
    stage.kyma_in("one", "Ready").await;
    runtimes_stay(&stage, &marks).await;
}

async fn deleting_a_namespace_of_kymas_empties_no_runtime() {
    let files = stage::files(1);
    let files: Vec<(&str, String)> = files.iter().map(|(path, text)| (path.as_str(), text.clone())).collect();
    let more = ["--namespace=kcp-system", "--namespace=team-a"];
    let stage = Stage::with(2, tidegate_testbed::Extent::Controllers, &files, &more).await;
    harness::apply(&stage.kcp, &json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team-a"}})).await;
    let mut secret = stage::access_secret("two", &stage.landscape.skrs[1]);
    secret["metadata"]["namespace"] = json!("team-a");
    harness::apply(&stage.kcp, &secret).await;
    let kyma = json!({"apiVersion": KYMA, "kind": "Kyma", "metadata": {"name": "two", "namespace": "team-a"},
        "spec": {"channel": "regular"}});
    harness::apply(&stage.kcp, &kyma).await;
    stage.start();
    stage.kyma_in("one", "Ready").await;
    stage
        .until("the other is installed", &stage.kcp, "Kyma", "team-a", "two", |kyma| kyma["status"]["state"] == "Ready")
        .await;
    stage.rests().await;
    let marks = stage.marks();
    let namespaces = api(&stage.kcp, "v1", "Namespace", "").await;
    namespaces.delete("team-a", &DeleteParams::default()).await.expect("a delete");
    until_held(&stage, "kubectl annotate namespace team-a tidegate.dev/confirm-deletion=true").await;
    runtimes_stay(&stage, &marks).await;
    assert!(read(&stage.kcp, "Kyma", "team-a", "two").await.is_some(), "its finalizer stays");
    // Objects in other namespaces are still reconciled.
    bump(&stage);
    stage.until("the bump arrives", &stage.skrs[0], "ConfigMap", "kyma-system", "cache-a", is_bumped).await;
}

/// `kubectl delete -k deploy/setup`: all definitions, and the namespace with the Kymas, their access Secrets and the
/// Lease.
async fn deleting_all_of_the_deployment_at_once_empties_no_runtime() {
    let stage = stage::ready(2).await;
    stage.rests().await;
    let marks = stage.marks();
    let deployed = include_str!("../../../deploy/setup/kustomization.yaml");
    let files = deployed.lines().filter_map(|line| line.strip_prefix("- crds/")?.strip_suffix(".yaml"));
    let definitions: Vec<String> = files
        .map(|file| file.split_once('_').map(|(group, plural)| format!("{plural}.{group}")).expect("group and plural"))
        .collect();
    assert_eq!(definitions.len(), 6, "{definitions:?}");
    for name in &definitions {
        delete_crd(&stage, name).await;
    }
    let namespaces = api(&stage.kcp, "v1", "Namespace", "").await;
    namespaces.delete("kcp-system", &DeleteParams::default()).await.expect("a delete");
    until_held(&stage, "tidegate.dev/confirm-deletion=true").await;
    runtimes_stay(&stage, &marks).await;
    for skr in &stage.skrs {
        for name in ["cache-a", "mailer-a"] {
            assert!(read(skr, "ConfigMap", "kyma-system", name).await.is_some(), "{name} stays");
        }
    }
}

async fn a_deletion_of_a_definition_that_is_confirmed_removes_everything() {
    let stage = stage::ready(1).await;
    delete_crd(&stage, "kymas.operator.kyma-project.io").await;
    until_held(&stage, "kubectl annotate crd kymas").await;
    let confirmed = json!({"metadata": {"annotations": {"tidegate.dev/confirm-deletion": "true"}}});
    merge(&stage.kcp, (CRD, "CustomResourceDefinition"), "kymas.operator.kyma-project.io", confirmed).await;
    stage.until_gone(&stage.skrs[0], "ConfigMap", "kyma-system", "cache-a").await;
    stage.until_gone(&stage.kcp, "CustomResourceDefinition", "", "kymas.operator.kyma-project.io").await;
}
