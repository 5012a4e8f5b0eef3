//! What one commit, or one command, takes from runtimes: it waits for a confirmation, or nothing goes at all.

use std::collections::BTreeSet;

use kube::{
    Client,
    api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams},
};
use serde_json::{Value, json};
use tidegate_core::{api::names::annotation, plan::manifest_name};
use tidegate_testbed::Extent;

use crate::{
    agent_path::world::OBJECTS,
    deploy::{self, chart},
    harness::{self, SOON, api_of, apply, eventually, holds},
    stage::{self, QUIET, Stage, read, scenarios},
};

scenarios! {
    a_module_that_leaves_more_kymas_than_the_limit_stays_until_the_commit_is_confirmed,
    custom_resources_of_users_keep_their_definition_and_the_message_names_the_first,
    objects_that_leave_a_version_in_more_runtimes_than_the_limit_stay_until_the_commit_is_confirmed,
}

const KYMAS: &str = "operator.kyma-project.io/v1beta2";

async fn delete(stage: &Stage, object: &Value) {
    let api = api_of(&stage.kcp, object).await.expect("a kind that is served");
    let name = object["metadata"]["name"].as_str().expect("a name");
    api.delete(name, &DeleteParams::default()).await.expect("a delete");
}

/// `docs/uninstall.md`, step by step, where the program was applied with kustomize. On real servers, because a step
/// deletes definitions that have custom resources.
#[tokio::test(flavor = "multi_thread")]
async fn leaving_in_order_changes_nothing_in_a_runtime() {
    let roles = deploy::objects("setup").into_iter().filter(|object| object["kind"] == "ClusterRole").collect();
    let files = files_to_leave();
    let stage = Stage::real(1, Extent::Controllers, &borrowed(&files), &[]).await;
    leave(&stage, deploy::objects("base"), roles).await;
}

/// The same where Helm has installed it.
#[tokio::test(flavor = "multi_thread")]
async fn leaving_in_order_changes_nothing_in_a_runtime_where_helm_has_installed_the_program() {
    let (program, roles) = (chart::uninstalled(chart::CHART).await, chart::uninstalled(chart::CRDS).await);
    let files = files_to_leave();
    let stage = Stage::new(1, &borrowed(&files)).await;
    leave(&stage, program, roles).await;
}

/// The definitions that the page deletes by their names, because Helm keeps them.
fn definitions_in_the_page() -> BTreeSet<String> {
    let page = std::fs::read_to_string("docs/uninstall.md").expect("a page");
    let (_, command) = page.split_once("kubectl delete crd ").expect("a command");
    let (command, _) = command.split_once("```").expect("its end");
    command.split_whitespace().filter(|word| *word != "\\").map(str::to_owned).collect()
}

/// What the page deletes of the agent in a runtime.
#[test]
fn the_page_names_every_object_of_an_agent() {
    let page = std::fs::read_to_string("docs/uninstall.md").expect("a page");
    let (_, commands) = page.split_once("export KUBECONFIG=runtime.kubeconfig").expect("commands");
    let (commands, _) = commands.split_once("```").expect("their end");
    let names = commands.replace("configuration skr", "configuration/skr").replace("class skr", "class/skr");
    let named: BTreeSet<&str> = names.split_whitespace().filter(|word| word.contains('/')).collect();
    let expected: Vec<String> =
        OBJECTS.iter().map(|(kind, _, name)| format!("{}/{name}", kind.to_ascii_lowercase())).collect();
    assert_eq!(named, expected.iter().map(String::as_str).collect());
}

/// Cluster-wide objects with the name of the program, by kind and name.
async fn ours(stage: &Stage) -> Vec<String> {
    let mut found = Vec::new();
    for kind in ["ClusterRole", "ClusterRoleBinding"] {
        let any = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind, "metadata": {"name": "any"}});
        let all = api_of(&stage.kcp, &any).await.expect("a kind that is served").list(&ListParams::default()).await;
        let names = all.expect("a list").into_iter().filter_map(|object| object.metadata.name);
        found.extend(names.filter(|name| name.starts_with("tidegate")).map(|name| format!("{kind} {name}")));
    }
    found
}

/// A landscape with a Watcher.
fn files_to_leave() -> Vec<(String, String)> {
    let mut files = stage::files(1);
    files.push(("watcher.yaml".to_owned(), stage::WATCHER.to_owned()));
    files
}

/// Borrows what a stage takes.
fn borrowed(files: &[(String, String)]) -> Vec<(&str, String)> {
    files.iter().map(|(path, text)| (path.as_str(), text.clone())).collect()
}

/// Leaves in the order of the page. `program` and `roles` are what its steps 3 and 4 delete.
async fn leave(stage: &Stage, program: Vec<Value>, roles: Vec<Value>) {
    for object in program.iter().chain(&roles) {
        apply(&stage.kcp, object).await;
    }
    assert!(ours(stage).await.len() > roles.len(), "its account has rights");
    stage.start();
    stage.kyma_in("one", "Ready").await;
    stage.rests().await;
    let installed = read(&stage.skrs[0], "ConfigMap", "kyma-system", "cache-a").await.expect("it is installed");

    let named = |kind: &str, api_version: &str, name: &str| json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": name, "namespace": "kcp-system"}});
    let landscape = named("GitSource", "tidegate.dev/v1alpha1", "landscape");
    let source = read(&stage.kcp, "GitSource", "kcp-system", "landscape").await.expect("it is there");
    delete(stage, &landscape).await;
    stage.until_gone(&stage.kcp, "GitSource", "kcp-system", "landscape").await;
    // No runtime is in error, and the way back needs nothing but the same GitSource.
    let kyma = stage.kyma_in("one", "Warning").await;
    assert!(kyma["status"].to_string().contains("was left by GitSource kcp-system/landscape"), "{kyma}");
    let mut again = landscape.clone();
    again["spec"] = source["spec"].clone();
    apply(&stage.kcp, &again).await;
    stage.kyma_in("one", "Ready").await;
    let applied = |source: &Value| message(source, "Ready").starts_with("applied ");
    stage.until("all is back", &stage.kcp, "GitSource", "kcp-system", "landscape", applied).await;
    let still = read(&stage.skrs[0], "ConfigMap", "kyma-system", "cache-a").await.expect("it stays");
    assert_eq!(still["metadata"]["resourceVersion"], installed["metadata"]["resourceVersion"]);

    delete(stage, &landscape).await;
    stage.until_gone(&stage.kcp, "GitSource", "kcp-system", "landscape").await;
    delete(stage, &named("Watcher", KYMAS, "watcher")).await;
    stage.until_gone(&stage.kcp, "Watcher", "kcp-system", "watcher").await;
    for object in &program {
        delete(stage, object).await;
    }
    stage.kill().await;
    let kyma = read(&stage.kcp, "Kyma", "kcp-system", "one").await.expect("it stays");
    assert_eq!(kyma["metadata"]["labels"]["tidegate.dev/source"], Value::Null, "no source owns it");
    assert!(read(&stage.kcp, "ModuleTemplate", "kcp-system", "cache-1.0.0").await.is_some());

    for kind in ["Kyma", "Manifest", "ModuleReleaseMeta"] {
        let api = api_of(&stage.kcp, &named(kind, KYMAS, "any")).await.expect("a kind that is served");
        for object in api.list(&ListParams::default()).await.expect("a list") {
            let free = Patch::Merge(json!({"metadata": {"finalizers": null}}));
            let name = object.metadata.name.as_deref().expect("a name");
            api.patch(name, &PatchParams::default(), &free).await.expect("a patch");
        }
    }
    for object in &roles {
        delete(stage, object).await;
    }
    assert_eq!(ours(stage).await, Vec::<String>::new());
    let setup = deploy::objects("setup");
    let definitions = setup.iter().filter(|object| object["kind"] == "CustomResourceDefinition");
    let names: BTreeSet<String> =
        definitions.clone().map(|object| object["metadata"]["name"].as_str().expect("a name").to_owned()).collect();
    assert_eq!(definitions_in_the_page(), names);
    for object in definitions {
        delete(stage, object).await;
        let name = object["metadata"]["name"].as_str().expect("a name");
        stage.until_gone(&stage.kcp, "CustomResourceDefinition", "", name).await;
    }
    assert!(read(&stage.kcp, "Secret", "kcp-system", "access-one").await.is_some(), "the namespace stays");
    let still = read(&stage.skrs[0], "ConfigMap", "kyma-system", "cache-a").await.expect("it stays");
    assert_eq!(still["metadata"]["resourceVersion"], installed["metadata"]["resourceVersion"]);
    assert!(harness::api_of(&stage.kcp, &named("Kyma", KYMAS, "one")).await.is_err(), "no definition is left");
}

async fn patch(stage: &Stage, value: Value) {
    let sample = json!({"apiVersion": "tidegate.dev/v1alpha1", "kind": "GitSource", "metadata": {"name": "landscape", "namespace": "kcp-system"}});
    let api = api_of(&stage.kcp, &sample).await.expect("a kind that is served");
    api.patch("landscape", &PatchParams::default(), &Patch::Merge(value)).await.expect("a patch");
}

async fn confirm(stage: &Stage, commit: &str) {
    patch(stage, json!({"metadata": {"annotations": {annotation::CONFIRM_PRUNE: commit}}})).await;
}

/// The message of a condition; empty if there is none.
fn message<'a>(object: &'a Value, type_: &str) -> &'a str {
    let all = object["status"]["conditions"].as_array().map(Vec::as_slice).unwrap_or_default();
    let found = all.iter().find(|condition| condition["type"] == type_);
    found.and_then(|condition| condition["message"].as_str()).unwrap_or_default()
}

/// Waits until the source is Ready at a commit, or says why it is not.
async fn source(stage: &Stage, commit: &str, reason: &str) -> Value {
    let what = format!("the source is {reason} at {commit}");
    stage
        .until(&what, &stage.kcp, "GitSource", "kcp-system", "landscape", |source| {
            let conditions = source["status"]["conditions"].as_array().map(Vec::as_slice).unwrap_or_default();
            let ready = conditions.iter().find(|condition| condition["type"] == "Ready");
            ready.is_some_and(|ready| ready["reason"] == reason)
                && source["status"]["attemptedRevision"].as_str().is_some_and(|revision| revision.ends_with(commit))
        })
        .await
}

/// Waits until both Kymas say that a removal waits, or that none does.
async fn kymas(stage: &Stage, says: impl Fn(&str) -> bool) {
    for name in stage::KYMAS {
        let is = |kyma: &Value| says(message(kyma, "tidegate.dev/Removal"));
        stage.until("the Kyma says what waits", &stage.kcp, "Kyma", "kcp-system", name, is).await;
    }
}

async fn exist(stage: &Stage, names: &[&str]) -> Vec<bool> {
    let mut found = Vec::new();
    for skr in &stage.skrs {
        for name in names {
            found.push(read(skr, "ConfigMap", "kyma-system", name).await.is_some());
        }
    }
    found
}

async fn gone(stage: &Stage, name: &str) {
    for skr in &stage.skrs {
        stage.until_gone(skr, "ConfigMap", "kyma-system", name).await;
    }
}

/// Waits until the ConfigMap `cache-a` has this text in both runtimes.
async fn arrived(stage: &Stage, text: &str) {
    for skr in &stage.skrs {
        let is = |map: &Value| map["data"]["text"] == text;
        stage.until("the other change arrives", skr, "ConfigMap", "kyma-system", "cache-a", is).await;
    }
}

async fn events(client: &Client, reason: &str) -> Vec<String> {
    let sample = json!({"apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": {"name": "any", "namespace": "kcp-system"}});
    let api = api_of(client, &sample).await.expect("a kind that is served");
    let events = api.list(&ListParams::default()).await.expect("a list");
    let is_it = |event: &&DynamicObject| event.data["reason"] == reason;
    events.items.iter().filter(is_it).filter_map(|event| event.data["note"].as_str().map(str::to_owned)).collect()
}

const CACHE: &str = "modules/cache/1.0.0/objects/objects.yaml";

/// The objects of module `cache` with this text.
fn cache(text: &str) -> String {
    stage::module("cache", "1.0.0", text).remove(1).1
}

/// One commit that drops a module from both Kymas, and changes another module: only the change arrives, also after a
/// restart, until the commit is reverted or confirmed.
async fn a_module_that_leaves_more_kymas_than_the_limit_stays_until_the_commit_is_confirmed() {
    let files = stage::files(2);
    let files: Vec<(&str, String)> = files.iter().map(|(path, text)| (path.as_str(), text.clone())).collect();
    let stage = Stage::new(2, &files).await;
    patch(&stage, json!({"spec": {"removalLimit": 1}})).await;
    stage.start();
    for name in stage::KYMAS {
        stage.kyma_in(name, "Ready").await;
    }
    let drop_mailer = |text: &str| {
        for name in stage::KYMAS {
            stage.repository.write(&format!("kymas/{name}.yaml"), &stage::kyma(name, &["cache"])).expect("a file");
        }
        stage.commit(CACHE, &cache(text))
    };
    let commit = drop_mailer("changed");
    let waiting = source(&stage, &commit, "RemovalUnconfirmed").await;
    let said = message(&waiting, "Applied");
    let command = format!("kubectl annotate gitsource -n kcp-system landscape tidegate.dev/confirm-prune={commit}");
    assert!(said.contains("module mailer is removed from 2 runtimes, more than the removal limit of 1"), "{said}");
    assert!(said.contains(&command), "{said}");
    arrived(&stage, "changed").await;
    kymas(&stage, |said| said.contains("removes module mailer from 2 runtimes") && said.contains(&command)).await;
    eventually("an Event says so", SOON, async || match events(&stage.kcp, "RemovalWaits").await {
        found
            if found.iter().any(|note| {
                note.starts_with("to confirm, run `kubectl annotate gitsource -n kcp-system landscape ")
                    && note.contains("module mailer")
            }) =>
        {
            Ok(())
        }
        found => Err(format!("{found:?}")),
    })
    .await;
    let log = std::fs::read_to_string(stage.log()).expect("a log");
    let warned: Vec<&str> = log.lines().filter(|line| line.contains("a removal waits for a confirmation")).collect();
    assert_eq!(warned.len(), 1, "{warned:?}");
    assert!(warned[0].contains("WARN") && warned[0].contains("kymas/one.yaml"), "{warned:?}");
    assert!(warned[0].contains("tidegate.dev/confirm-prune="), "the command: {warned:?}");

    stage.rests().await;
    stage.kill().await;
    stage.start();
    stage.rests().await;
    let marks = stage.marks();
    holds("a removal that waits costs nothing", QUIET, async || match stage.requests_since(&marks) {
        requests if requests.is_empty() => Ok(()),
        requests => Err(format!("{requests:?}")),
    })
    .await;
    assert_eq!(exist(&stage, &["mailer-a", "mailer-b"]).await, [true; 4]);

    for name in stage::KYMAS {
        stage
            .repository
            .write(&format!("kymas/{name}.yaml"), &stage::kyma(name, &["cache", "mailer"]))
            .expect("a file");
    }
    let reverted = stage.commit("README.md", "reverted\n");
    source(&stage, &reverted, "Applied").await;
    kymas(&stage, str::is_empty).await;

    let commit = drop_mailer("changed again");
    source(&stage, &commit, "RemovalUnconfirmed").await;
    arrived(&stage, "changed again").await;
    assert_eq!(exist(&stage, &["mailer-a", "mailer-b"]).await, [true; 4]);
    confirm(&stage, &commit).await;
    gone(&stage, "mailer-a").await;
    source(&stage, &commit, "Applied").await;
    kymas(&stage, str::is_empty).await;
}

/// One commit that deletes an object of a module in place, and changes another module.
async fn objects_that_leave_a_version_in_more_runtimes_than_the_limit_stay_until_the_commit_is_confirmed() {
    let stage = stage::ready(2).await;
    patch(&stage, json!({"spec": {"removalLimit": 1}})).await;
    let path = "modules/mailer/2.0.0/objects/objects.yaml";
    let all = stage::module("mailer", "2.0.0", "mail").remove(1).1;
    let documents: Vec<&str> = all.split("---\n").collect();
    assert!(documents[1].contains("mailer-b"));
    stage.repository.write(path, &[documents[0], documents[2]].join("---\n")).expect("a file");
    let commit = stage.commit(CACHE, &cache("changed"));
    let waiting = source(&stage, &commit, "RemovalUnconfirmed").await;
    let sentence = "ConfigMap kyma-system/mailer-b of module mailer 2.0.0 is removed from 2 runtimes";
    assert!(message(&waiting, "Applied").contains(sentence), "{waiting}");
    arrived(&stage, "changed").await;
    kymas(&stage, |said| said.contains("removes ConfigMap kyma-system/mailer-b of module mailer 2.0.0")).await;
    let status = stage.command(&["status"]).await;
    let text = String::from_utf8(status.stdout).expect("UTF-8");
    assert!(text.starts_with("Problems (3)\n") && text.contains("Healthy: 0 sources, 0 runtimes, "), "{text}");

    stage.kill().await;
    stage.forget();
    stage.start();
    stage.rests().await;
    source(&stage, &commit, "RemovalUnconfirmed").await;
    assert_eq!(exist(&stage, &["mailer-b"]).await, [true; 2], "a new process knows what waits");
    confirm(&stage, &commit).await;
    gone(&stage, "mailer-b").await;
    source(&stage, &commit, "Applied").await;
    let is_spent = |source: &Value| source["metadata"]["annotations"]["tidegate.dev/confirm-prune"].is_null();
    stage.until("the confirmation is spent", &stage.kcp, "GitSource", "kcp-system", "landscape", is_spent).await;
    kymas(&stage, str::is_empty).await;
    assert_eq!(exist(&stage, &["mailer-a"]).await, [true; 2]);

    patch(&stage, json!({"spec": {"removalLimit": 2}})).await;
    stage.repository.write(path, documents[2]).expect("a file");
    let commit = stage.commit("README.md", "one more object goes\n");
    gone(&stage, "mailer-a").await;
    source(&stage, &commit, "Applied").await;
}

/// The report of `tidegate diff --live` about the work tree.
async fn live_diff(stage: &Stage) -> Value {
    let path = stage.repository.path().to_str().expect("UTF-8");
    let output = stage.command(&["diff", path, "--live", "-o", "json"]).await;
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
}

/// The deletes of a report, as `effect kind name`.
fn deletes(report: &Value) -> Vec<String> {
    let differences = report["differences"].as_array().expect("a list").iter();
    let text = |one: &Value, pointer: &str| one.pointer(pointer).and_then(Value::as_str).unwrap_or("?").to_owned();
    let line = |one| format!("{} {} {}", text(one, "/effect"), text(one, "/object/kind"), text(one, "/object/name"));
    differences.filter(|one| one["action"] == "delete").map(line).collect()
}

async fn custom_resources_of_users_keep_their_definition_and_the_message_names_the_first() {
    let mut files = stage::files(1);
    let boxes = "modules/mailer/2.0.0/objects/boxes.yaml";
    // The module allows its deletion.
    files.push((boxes.to_owned(), stage::box_crd("{tidegate.dev/prune: enabled}")));
    let files: Vec<(&str, String)> = files.iter().map(|(path, text)| (path.as_str(), text.clone())).collect();
    let stage = Stage::new(1, &files).await;
    stage.start();
    stage.kyma_in("one", "Ready").await;
    let skr = &stage.skrs[0];
    let mine = |kind: &str, name: &str| json!({"apiVersion": "example.org/v1", "kind": kind, "metadata": {"name": name, "namespace": "default"}});
    for object in [mine("Box", "mine"), mine("Thing", "mine"), mine("Thing", "other")] {
        apply(skr, &object).await;
    }

    stage.repository.remove(boxes).expect("a file");
    let report = live_diff(&stage).await;
    assert_eq!(deletes(&report), ["held CustomResourceDefinition boxes.example.org"], "{report:#}");
    let kept = "CustomResourceDefinition.apiextensions.k8s.io boxes.example.org is no longer declared, but stays, \
                because users have custom resources: Box.example.org default/mine";
    assert_eq!(report["held"][0]["message"], kept, "{report:#}");
    stage.commit("README.md", "the definition is no longer part of the module\n");
    eventually("an Event says why it stays", SOON, async || match events(&stage.kcp, "Kept").await {
        notes
            if notes.iter().any(|note| note.ends_with("users have custom resources: Box.example.org default/mine")) =>
        {
            Ok(())
        }
        notes => Err(format!("{notes:?}")),
    })
    .await;
    stage.rests().await;
    assert!(read(skr, "CustomResourceDefinition", "", "boxes.example.org").await.is_some());

    stage.repository.write("kymas/one.yaml", &stage::kyma("one", &["mailer"])).expect("a file");
    let report = live_diff(&stage).await;
    let gone = deletes(&report);
    assert!(gone.contains(&"held CustomResourceDefinition things.example.org".to_owned()), "{report:#}");
    assert!(gone.iter().all(|line| line.starts_with("held ")), "the module stays as it is: {gone:#?}");
    let kept = "module cache stays until users have deleted their custom resources: Thing.example.org default/mine \
                (and 1 more)";
    let held = report["held"].as_array().expect("a list");
    assert!(held.iter().any(|held| held["message"] == kept && held["module"] == "cache"), "{report:#}");
    stage.commit("kymas/one.yaml", &stage::kyma("one", &["mailer"]));
    let name = manifest_name("one", "example.org/module/cache", "cache");
    stage
        .until("the Manifest says what it waits for", &stage.kcp, "Manifest", "kcp-system", &name, |manifest| {
            manifest["status"]["lastOperation"]["operation"]
                == "waiting for module crs deletion: Thing.example.org default/mine (and 1 more)"
        })
        .await;
    // What Lifecycle Manager has no text for: what is missing, and since when.
    let waits = "the deletion of Thing.example.org default/mine (and 1 more) by their users";
    let says = |kyma: &Value| {
        let conditions = kyma["status"]["conditions"].as_array().into_iter().flatten();
        let mut hints = conditions.filter(|condition| condition["type"] == "tidegate.dev/Hints");
        let hint = hints.next().and_then(|hint| hint["message"].as_str()).unwrap_or_default().to_owned();
        hint.starts_with("module cache: waits since 20") && hint.ends_with(&format!(" for {waits}"))
    };
    stage.until("the Kyma says what it waits for", &stage.kcp, "Kyma", "kcp-system", "one", says).await;
    let status = stage.command(&["status"]).await;
    let text = String::from_utf8(status.stdout).expect("UTF-8");
    assert!(text.contains(waits) && text.starts_with("Problems (1)\n"), "{text}");
    assert_eq!(status.status.code(), Some(1), "only users can end it");
    let status = stage.command(&["status", "module/cache"]).await;
    assert_eq!(status.status.code(), Some(1), "{status:?}");
    eventually("an Event and one line of the log say it", SOON, async || {
        let notes = events(&stage.kcp, "ModuleHeld").await;
        let log = std::fs::read_to_string(stage.log()).unwrap_or_default();
        let lines = log.matches("the removal of a module waits for users").count();
        let is_said = |note: &String| note.starts_with("module cache: waits since 20") && note.ends_with(waits);
        if lines == 1 && notes.iter().any(is_said) { Ok(()) } else { Err(format!("{lines} lines, {notes:?}")) }
    })
    .await;
    assert!(read(skr, "Thing", "default", "mine").await.is_some());
    for object in [mine("Thing", "mine"), mine("Thing", "other")] {
        let api = api_of(skr, &object).await.expect("a kind that is served");
        let name = object["metadata"]["name"].as_str().expect("a name");
        api.delete(name, &DeleteParams::default()).await.expect("a delete");
    }
    stage.until_gone(skr, "CustomResourceDefinition", "", "things.example.org").await;
    stage.until_gone(&stage.kcp, "Manifest", "kcp-system", &name).await;
    assert!(read(skr, "CustomResourceDefinition", "", "boxes.example.org").await.is_some());
}
