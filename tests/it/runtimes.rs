//! From a commit to objects in runtimes, and back out again: the whole daemon.

use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::{Value, json};

use crate::{
    harness::{self, holds},
    stage::{self, QUIET, Stage, read, scenarios},
};

scenarios! {
    a_commit_reaches_two_runtimes_and_an_unchanged_world_costs_nothing,
    the_last_module_goes_when_git_empties_the_list,
    what_was_believed_applied_is_applied_again_when_its_manifest_says_otherwise,
    of_two_modules_that_bring_one_object_the_first_has_it,
    what_happens_in_a_runtime_is_repaired_kept_or_removed,
    a_kyma_of_kubectl_is_decided_by_its_runtime_and_strangers_are_left_alone,
    a_runtime_that_cannot_be_reached_says_so_and_delays_no_other,
    a_runtime_that_lost_its_definitions_is_checked_completely_at_once,
    killed_at_any_moment_it_converges_after_a_restart,
}

async fn patch(client: &kube::Client, kind: &str, api_version: &str, namespace: &str, name: &str, patch: Value) {
    let sample = json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": name, "namespace": namespace}});
    let api = harness::api_of(client, &sample).await.expect("a kind that is served");
    api.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.expect("a patch");
}

async fn delete(client: &kube::Client, kind: &str, api_version: &str, namespace: &str, name: &str) {
    let sample = json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": name, "namespace": namespace}});
    let api = harness::api_of(client, &sample).await.expect("a kind that is served");
    api.delete(name, &DeleteParams::default()).await.expect("a delete");
}

const KYMA: &str = "operator.kyma-project.io/v1beta2";

async fn request(stage: &Stage, name: &str, value: &str) {
    let annotation = json!({"metadata": {"annotations": {"tidegate.dev/reconcile-requested-at": value}}});
    patch(&stage.kcp, "Kyma", KYMA, "kcp-system", name, annotation).await;
    stage
        .until("the request is handled", &stage.kcp, "Kyma", "kcp-system", name, |kyma| {
            kyma["status"]["conditions"].as_array().is_some_and(|all| {
                all.iter().any(|one| one["type"] == "tidegate.dev/ReconcileRequested" && one["message"] == value)
            })
        })
        .await;
}

async fn a_commit_reaches_two_runtimes_and_an_unchanged_world_costs_nothing() {
    let stage = stage::ready(2).await;
    for skr in &stage.skrs {
        let config = read(skr, "ConfigMap", "kyma-system", "cache-a").await.expect("installed");
        assert_eq!(config["data"]["text"], "one");
        assert_eq!(config["metadata"]["labels"]["operator.kyma-project.io/managed-by"], "kyma");
        assert_eq!(config["metadata"]["labels"]["app.kubernetes.io/part-of"], "Kyma");
        let kyma = read(skr, "Kyma", "kyma-system", "default").await.expect("the runtime's Kyma");
        assert_eq!(kyma["metadata"]["labels"]["operator.kyma-project.io/watched-by"], "kyma");
        stage
            .until("status is shown", skr, "Kyma", "kyma-system", "default", |kyma| kyma["status"]["state"] == "Ready")
            .await;
        assert!(read(skr, "ModuleReleaseMeta", "kyma-system", "cache").await.is_some(), "the catalog is there");
        assert!(
            read(skr, "Thing", "kyma-system", "cache-default").await.is_some(),
            "the default custom resource is there"
        );
    }

    // In one process: no request to runtimes, no write to KCP but the Lease.
    stage.commit("README.md", "nothing that is a definition");
    settle(&stage).await;
    let marks = stage.marks();
    holds("an unchanged landscape is quiet", QUIET, async || quiet(&stage, &marks)).await;

    // A new process: one GET a runtime, no write.
    stage.kill().await;
    let marks = stage.marks();
    stage.start();
    request_free_start(&stage, &marks).await;

    // A new process on a new disk: the same.
    stage.kill().await;
    stage.forget();
    let marks = stage.marks();
    stage.start();
    request_free_start(&stage, &marks).await;

    // A new version: the daemon sends only the objects that differ.
    let marks = stage.marks();
    stage.commit("modules/cache/release.yaml", &stage::release("cache", &[("regular", "1.1.0"), ("fast", "1.1.0")]));
    for skr in &stage.skrs {
        stage
            .until("the bump arrives", skr, "ConfigMap", "kyma-system", "cache-a", |map| map["data"]["text"] == "two")
            .await;
    }
    for name in stage::KYMAS {
        stage
            .until("status follows", &stage.kcp, "Kyma", "kcp-system", name, |kyma| {
                kyma["status"]["modules"][0]["version"] == "1.1.0" && kyma["status"]["state"] == "Ready"
            })
            .await;
    }
    let sent: Vec<String> = stage
        .requests_since(&marks)
        .into_iter()
        .filter(|request| request.contains(" patch ") && request.starts_with("skr-1") && !request.contains("kymas"))
        .collect();
    assert!(
        !sent.iter().any(|request| request.ends_with("configmaps cache-b")),
        "an object that did not change is not sent: {sent:?}"
    );
}

async fn the_last_module_goes_when_git_empties_the_list() {
    let stage = stage::ready(1).await;
    assert!(read(&stage.skrs[0], "ConfigMap", "kyma-system", "cache-a").await.is_some());
    // An empty list is a choice. Without a list the runtime would choose.
    stage.commit("kymas/one.yaml", &stage::kyma("one", &[]));
    stage
        .until("no module is left", &stage.kcp, "Kyma", "kcp-system", "one", |kyma| {
            kyma["status"]["modules"].as_array().is_none_or(Vec::is_empty) && kyma["status"]["state"] == "Ready"
        })
        .await;
    assert!(read(&stage.skrs[0], "ConfigMap", "kyma-system", "cache-a").await.is_none(), "it is gone from the runtime");
    stage
        .until("the runtime is shown none", &stage.skrs[0], "Kyma", "kyma-system", "default", |kyma| {
            kyma["spec"]["modules"].as_array().is_none_or(Vec::is_empty)
        })
        .await;
}

async fn what_was_believed_applied_is_applied_again_when_its_manifest_says_otherwise() {
    let stage = stage::ready(1).await;
    let (kcp, skr) = (&stage.kcp, &stage.skrs[0]);
    let group = "operator.kyma-project.io/v1beta2";
    let text_is = |text: &'static str| move |map: &Value| map["data"]["text"] == text;
    let kyma = read(kcp, "Kyma", "kcp-system", "one").await.expect("declared");
    let modules = kyma["status"]["modules"].as_array().expect("installed").clone();
    let mailer = modules.iter().find(|module| module["name"] == "mailer").expect("installed");
    let mailer = mailer["manifest"]["metadata"]["name"].as_str().expect("a name").to_owned();

    // A deleted Manifest is created again, and so are its objects.
    let uid = |object: &Value| object["metadata"]["uid"].clone();
    let former = uid(&read(skr, "ConfigMap", "kyma-system", "mailer-a").await.expect("installed"));
    delete(kcp, "Manifest", group, "kcp-system", &mailer).await;
    stage.until("its object is made anew", skr, "ConfigMap", "kyma-system", "mailer-a", |map| uid(map) != former).await;
    stage
        .until("it is recorded", kcp, "Manifest", "kcp-system", &mailer, |manifest| {
            manifest["status"]["state"] == "Ready" && manifest["status"]["synced"].as_array().map(Vec::len) == Some(3)
        })
        .await;

    // A reconcile request on a Manifest checks its objects.
    let edit = json!({"data": {"text": "edited"}});
    patch(skr, "ConfigMap", "v1", "kyma-system", "mailer-a", edit).await;
    let request = json!({"metadata": {"annotations": {"tidegate.dev/reconcile-requested-at": "1"}}});
    patch(kcp, "Manifest", group, "kcp-system", &mailer, request).await;
    stage.until("it is repaired", skr, "ConfigMap", "kyma-system", "mailer-a", text_is("mail")).await;

    // If a user hands an unmanaged module back, the daemon manages it again.
    let unmanaged = stage::kyma("one", &["cache", "mailer"]).replace("mailer, managed: true", "mailer, managed: false");
    stage.commit("kymas/one.yaml", &unmanaged);
    stage
        .until("the mark goes", skr, "ConfigMap", "kyma-system", "mailer-a", |map| {
            map["metadata"]["labels"]["operator.kyma-project.io/managed-by"].is_null()
        })
        .await;
    stage.until_gone(kcp, "Manifest", "kcp-system", &mailer).await;
    stage.commit("kymas/one.yaml", &stage::kyma("one", &["cache", "mailer"]));
    stage
        .until("the mark is back", skr, "ConfigMap", "kyma-system", "mailer-a", |map| {
            map["metadata"]["labels"]["operator.kyma-project.io/managed-by"] == "kyma"
        })
        .await;
    stage.kyma_in("one", "Ready").await;

    // Killed while one version gives way to another that is then taken back: what is there is not believed to be the
    // former, which is recorded still.
    let bumped = stage::release("cache", &[("regular", "1.1.0"), ("fast", "1.1.0")]);
    stage.commit("modules/cache/release.yaml", &bumped);
    stage.until("the bump begins", skr, "ConfigMap", "kyma-system", "cache-a", text_is("two")).await;
    stage.kill().await;
    let allowed = stage::release("cache", &[("regular", "1.0.0"), ("fast", "1.1.0")])
        .replace("name: cache,", "name: cache, annotations: {tidegate.dev/allow-downgrade: cache-1.0.0},");
    stage.commit("modules/cache/release.yaml", &allowed);
    stage.start();
    stage.until("the former is back", skr, "ConfigMap", "kyma-system", "cache-a", text_is("one")).await;
    stage.kyma_in("one", "Ready").await;
}

async fn of_two_modules_that_bring_one_object_the_first_has_it() {
    let mut files = stage::files(1);
    let path = "modules/mailer/2.0.0/objects/objects.yaml";
    let (_, objects) = files.iter_mut().find(|(file, _)| file == path).expect("mailer's objects");
    let good = objects.clone();
    objects.push_str(
        "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: cache-b, namespace: kyma-system}\ndata: {text: mine}\n",
    );
    let files: Vec<(&str, String)> = files.iter().map(|(path, text)| (path.as_str(), text.clone())).collect();
    let stage = Stage::new(1, &files).await;
    stage.start();
    let kyma = stage
        .until("the second module says whose it is", &stage.kcp, "Kyma", "kcp-system", "one", |kyma| {
            let modules = kyma["status"]["modules"].as_array();
            modules.is_some_and(|modules| {
                modules.len() == 2 && modules[1]["state"] == "Error" && modules[0]["state"] == "Ready"
            })
        })
        .await;
    let message = kyma["status"]["modules"][1]["message"].as_str().unwrap_or_default();
    assert!(
        message.contains("ConfigMap kyma-system/cache-b exists and is not ours: it belongs to Manifest one-cache-"),
        "{message}"
    );
    let shared = read(&stage.skrs[0], "ConfigMap", "kyma-system", "cache-b").await.expect("the first brings it");
    assert_eq!(shared["data"]["text"], "same");

    stage.commit(path, &good);
    stage.kyma_in("one", "Ready").await;
}

/// A namespace for runtimes with a label that the embedded template does not set.
const NAMESPACE_OVERRIDE: &str = r"apiVersion: v1
kind: Namespace
metadata:
  labels:
    example.org/team: platform
";

/// Whether it has that label.
fn is_labelled(namespace: &Value) -> bool {
    namespace["metadata"]["labels"]["example.org/team"] == "platform"
}

/// A landscape at rest whose runtime has the namespace of [`NAMESPACE_OVERRIDE`]; `spec` goes into its GitSource.
async fn with_override(spec: Value) -> Stage {
    let stage = stage::ready(1).await;
    let spec = json!({ "spec": spec });
    patch(&stage.kcp, "GitSource", "tidegate.dev/v1alpha1", "kcp-system", "landscape", spec).await;
    stage.commit("overrides/skr/namespace.yaml", NAMESPACE_OVERRIDE);
    stage.until("the override arrives", &stage.skrs[0], "Namespace", "", "kyma-system", is_labelled).await;
    settle(&stage).await;
    stage.kyma_in("one", "Ready").await;
    stage
}

#[tokio::test(flavor = "multi_thread")]
async fn template_overrides_hold_across_restarts_also_while_their_source_is_suspended() {
    let stage = with_override(json!({"templates": "overrides"})).await;
    stage.kill().await;
    let marks = stage.marks();
    stage.start();
    request_free_start(&stage, &marks).await;

    let source = "tidegate.dev/v1alpha1";
    patch(&stage.kcp, "GitSource", source, "kcp-system", "landscape", json!({"spec": {"suspend": true}})).await;
    stage
        .until("it is suspended", &stage.kcp, "GitSource", "kcp-system", "landscape", |source| {
            source["status"]["conditions"].to_string().contains("Suspended")
        })
        .await;
    stage.kill().await;
    let marks = stage.marks();
    stage.start();
    request_free_start(&stage, &marks).await;
}

/// Its end waits for a confirmation. Until it is gone, runtimes use its modules and templates, whichever process serves
/// them.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_deleted_source_declares_stays_in_use_across_restarts_until_its_end_is_confirmed() {
    let stage = with_override(json!({"templates": "overrides", "deletionPolicy": "Delete"})).await;
    let skr = &stage.skrs[0];
    delete(&stage.kcp, "GitSource", "tidegate.dev/v1alpha1", "kcp-system", "landscape").await;
    let waits = |source: &Value| source["status"]["conditions"].to_string().contains("PruneUnconfirmed");
    stage.until("its end waits", &stage.kcp, "GitSource", "kcp-system", "landscape", waits).await;
    stage.kill().await;
    let marks = stage.marks();
    stage.start();
    request_free_start(&stage, &marks).await;
    patch(skr, "ConfigMap", "v1", "kyma-system", "cache-a", json!({"data": {"text": "edited"}})).await;
    request(&stage, "one", "after the restart").await;
    let is_repaired = |config: &Value| config["data"]["text"] == "one";
    stage.until("it is repaired", skr, "ConfigMap", "kyma-system", "cache-a", is_repaired).await;
    let namespace = read(skr, "Namespace", "", "kyma-system").await.expect("it stays");
    assert!(is_labelled(&namespace), "{namespace}");

    // Without its disk, the daemon changes nothing, and says so.
    stage.kill().await;
    stage.forget();
    stage.start();
    let is_said = |source: &Value| {
        source["status"]["conditions"].to_string().contains("so its modules are not repaired meanwhile")
    };
    stage.until("it is said", &stage.kcp, "GitSource", "kcp-system", "landscape", is_said).await;
    let namespace = read(skr, "Namespace", "", "kyma-system").await.expect("it stays");
    assert!(is_labelled(&namespace), "{namespace}");

    let head = stage.repository.head().expect("a commit");
    let confirmed = json!({"metadata": {"annotations": {"tidegate.dev/confirm-prune": format!("deletion:{head}")}}});
    patch(&stage.kcp, "GitSource", "tidegate.dev/v1alpha1", "kcp-system", "landscape", confirmed).await;
    stage.until_gone(&stage.kcp, "GitSource", "kcp-system", "landscape").await;
    stage.until_gone(&stage.kcp, "Kyma", "kcp-system", "one").await;
    stage.until_gone(skr, "ConfigMap", "kyma-system", "cache-a").await;
}

/// Waits until the daemon has attempted the last commit.
async fn settle(stage: &Stage) {
    let head = stage.repository.head().expect("a commit");
    stage
        .until("the source is applied", &stage.kcp, "GitSource", "kcp-system", "landscape", |source| {
            source["status"]["appliedRevision"].as_str().is_some_and(|revision| revision.ends_with(&head))
        })
        .await;
}

fn quiet(stage: &Stage, marks: &[u64]) -> Result<(), String> {
    let found = stage.requests_since(marks);
    if found.is_empty() { Ok(()) } else { Err(format!("{found:?}")) }
}

/// After a restart the daemon reads each runtime's Kyma once and writes nothing.
async fn request_free_start(stage: &Stage, marks: &[u64]) {
    harness::eventually("the new process has looked at both runtimes", harness::SOON * 2, async || {
        let found = stage.requests_since(marks);
        let looked =
            found.iter().filter(|request| request.contains(" get kymas.operator.kyma-project.io default")).count();
        if looked == stage.skrs.len() { Ok(()) } else { Err(format!("{found:?}")) }
    })
    .await;
    holds("a new process writes nothing", QUIET, async || {
        let others: Vec<String> = stage
            .requests_since(marks)
            .into_iter()
            .filter(|request| !request.contains(" get kymas.operator.kyma-project.io default"))
            .collect();
        if others.is_empty() { Ok(()) } else { Err(format!("{others:?}")) }
    })
    .await;
}

async fn what_happens_in_a_runtime_is_repaired_kept_or_removed() {
    let stage = stage::ready(1).await;
    let skr = &stage.skrs[0];

    // Drift: an object deleted, another edited, both back on request.
    delete(skr, "ConfigMap", "v1", "kyma-system", "cache-b").await;
    patch(skr, "ConfigMap", "v1", "kyma-system", "cache-a", json!({"data": {"text": "edited"}})).await;
    request(&stage, "one", "1").await;
    stage.until("what was deleted is back", skr, "ConfigMap", "kyma-system", "cache-b", |_| true).await;
    stage
        .until("what was edited is back", skr, "ConfigMap", "kyma-system", "cache-a", |map| {
            map["data"]["text"] == "one"
        })
        .await;

    // The default custom resource is created once: deleted by its user, it stays deleted.
    delete(skr, "Thing", "example.org/v1", "kyma-system", "cache-default").await;
    request(&stage, "one", "2").await;
    assert!(read(skr, "Thing", "kyma-system", "cache-default").await.is_none());

    // Git decides the modules of a Kyma that it declares: an edit in the runtime is reverted and explained there.
    let added = json!({"spec": {"modules": [{"name": "cache", "managed": true}]}});
    patch(skr, "Kyma", KYMA, "kyma-system", "default", added).await;
    request(&stage, "one", "3").await;
    let kyma = stage
        .until("the edit is explained", skr, "Kyma", "kyma-system", "default", |kyma| {
            kyma["status"]["conditions"].to_string().contains("module mailer was missing")
        })
        .await;
    assert_eq!(kyma["spec"]["modules"].as_array().map(Vec::len), Some(2));

    // A module that leaves git leaves the runtime, its custom resource definition included; what is not ours stays.
    harness::apply(
        skr,
        &json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "theirs", "namespace": "kyma-system"}}),
    )
    .await;
    stage.commit("kymas/one.yaml", &stage::kyma("one", &["cache"]));
    stage.until_gone(skr, "ConfigMap", "kyma-system", "mailer-a").await;
    stage
        .until("status forgets the module", &stage.kcp, "Kyma", "kcp-system", "one", |kyma| {
            kyma["status"]["modules"].as_array().is_some_and(|modules| modules.len() == 1)
                && kyma["status"]["state"] == "Ready"
        })
        .await;
    assert!(read(skr, "ConfigMap", "kyma-system", "theirs").await.is_some());
    assert!(read(skr, "ConfigMap", "kyma-system", "cache-a").await.is_some());

    // Users' custom resources block the removal of a module, so they are deleted first.
    harness::apply(skr, &json!({"apiVersion": "example.org/v1", "kind": "Thing", "metadata": {"name": "users", "namespace": "default"}})).await;
    // Git would declare the Kyma again.
    patch(
        &stage.kcp,
        "GitSource",
        "tidegate.dev/v1alpha1",
        "kcp-system",
        "landscape",
        json!({"spec": {"suspend": true}}),
    )
    .await;
    delete(&stage.kcp, "Kyma", KYMA, "kcp-system", "one").await;
    stage
        .until("the user's resource is waited for", &stage.kcp, "Kyma", "kcp-system", "one", |kyma| {
            kyma["status"]["state"] == "Deleting" && kyma.to_string().contains("waiting for module crs deletion")
        })
        .await;
    assert!(read(skr, "ConfigMap", "kyma-system", "cache-a").await.is_some(), "the module stays until then");
    delete(skr, "Thing", "example.org/v1", "default", "users").await;
    stage.until_gone(skr, "ConfigMap", "kyma-system", "cache-a").await;
    stage.until_gone(skr, "CustomResourceDefinition", "", "things.example.org").await;
    stage.until_gone(skr, "ValidatingWebhookConfiguration", "", "skr-webhook").await;
    stage.until_gone(&stage.kcp, "Kyma", "kcp-system", "one").await;
    assert!(read(skr, "ConfigMap", "kyma-system", "theirs").await.is_some());
}

async fn a_kyma_of_kubectl_is_decided_by_its_runtime_and_strangers_are_left_alone() {
    let files: Vec<(String, String)> = stage::files(0);
    let files: Vec<(&str, String)> = files.iter().map(|(path, text)| (path.as_str(), text.clone())).collect();
    let stage = Stage::new(1, &files).await;
    let skr = &stage.skrs[0];
    // Another client has created an object with the name of one of the module's.
    harness::apply(skr, &json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kyma-system"}})).await;
    harness::apply(skr, &json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "cache-a", "namespace": "kyma-system"}, "data": {"text": "theirs"},
    }))
    .await;
    stage.start();
    harness::apply(
        &stage.kcp,
        &json!({
            "apiVersion": KYMA, "kind": "Kyma", "metadata": {"name": "one", "namespace": "kcp-system"},
            "spec": {"channel": "regular", "modules": [{"name": "cache", "managed": true}]},
        }),
    )
    .await;

    // The object without the ownership label stays unchanged, and the error names its manager.
    stage
        .until("the stranger is reported", &stage.kcp, "Kyma", "kcp-system", "one", |kyma| {
            kyma["status"]["state"] == "Error"
                && kyma["status"].to_string().contains("ConfigMap kyma-system/cache-a exists and is not ours")
        })
        .await;
    let theirs = read(skr, "ConfigMap", "kyma-system", "cache-a").await.expect("there");
    assert_eq!(theirs["data"]["text"], "theirs");
    assert!(read(skr, "ConfigMap", "kyma-system", "cache-b").await.is_some(), "the rest is installed");
    delete(skr, "ConfigMap", "v1", "kyma-system", "cache-a").await;
    request(&stage, "one", "1").await;
    stage.kyma_in("one", "Ready").await;

    // The runtime decides: a module added there is installed, and the spec in KCP stays unchanged.
    let more = json!({"spec": {"modules": [{"name": "cache", "managed": true}, {"name": "mailer", "managed": true}]}});
    patch(skr, "Kyma", KYMA, "kyma-system", "default", more).await;
    request(&stage, "one", "2").await;
    stage.until("the user's module is installed", skr, "ConfigMap", "kyma-system", "mailer-a", |_| true).await;
    let kyma = stage.kyma_in("one", "Ready").await;
    assert_eq!(kyma["spec"]["modules"].as_array().map(Vec::len), Some(1));

    // Unmanaged: the objects stay without the ownership label, and the Manifest is deleted.
    let unmanaged =
        json!({"spec": {"modules": [{"name": "cache", "managed": true}, {"name": "mailer", "managed": false}]}});
    patch(skr, "Kyma", KYMA, "kyma-system", "default", unmanaged).await;
    request(&stage, "one", "3").await;
    stage
        .until("the mark is taken off", skr, "ConfigMap", "kyma-system", "mailer-a", |map| {
            map["metadata"]["labels"].get("operator.kyma-project.io/managed-by").is_none()
        })
        .await;
    stage
        .until("status says so", &stage.kcp, "Kyma", "kcp-system", "one", |kyma| {
            kyma["status"]["modules"]
                .as_array()
                .is_some_and(|all| all.iter().any(|one| one["name"] == "mailer" && one["state"] == "Unmanaged"))
        })
        .await;

    // Without its access Secret the runtime is unreachable. The Kyma is deleted all the same.
    delete(&stage.kcp, "Secret", "v1", "kcp-system", "access-one").await;
    delete(&stage.kcp, "Kyma", KYMA, "kcp-system", "one").await;
    stage.until_gone(&stage.kcp, "Kyma", "kcp-system", "one").await;
}

async fn a_runtime_that_cannot_be_reached_says_so_and_delays_no_other() {
    let stage = stage::ready(2).await;
    stage.landscape.skrs[1].stop().await;
    stage.commit("modules/cache/release.yaml", &stage::release("cache", &[("regular", "1.1.0"), ("fast", "1.1.0")]));
    stage
        .until("the healthy one goes on", &stage.skrs[0], "ConfigMap", "kyma-system", "cache-a", |map| {
            map["data"]["text"] == "two"
        })
        .await;
    let kyma = stage.kyma_in("two", "Error").await;
    assert!(
        kyma["status"]["modules"].as_array().is_some_and(|all| all.iter().all(|one| one["state"] == "Error")),
        "every module says so: {kyma}"
    );
    stage.landscape.skrs[1].start_again().await;
    stage
        .until("the other catches up", &stage.skrs[1], "ConfigMap", "kyma-system", "cache-a", |map| {
            map["data"]["text"] == "two"
        })
        .await;
    stage.kyma_in("two", "Ready").await;

    // A Secret that asks for a program is refused by name, and the program does not run; a good one takes effect at
    // once.
    let canary = stage.log().with_file_name("canary");
    let exec = format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: a\ncontexts: [{{name: a, context: {{cluster: a, user: a}}}}]\nclusters: [{{name: a, cluster: {{server: 'https://127.0.0.1:1'}}}}]\nusers: [{{name: a, user: {{exec: {{apiVersion: client.authentication.k8s.io/v1, command: touch, args: ['{}']}}}}}}]\n",
        canary.display()
    );
    let mut secret = stage::access_secret("one", &stage.landscape.skrs[0]);
    let good = secret.clone();
    secret["data"]["config"] = Value::from(base64::Engine::encode(&base64::engine::general_purpose::STANDARD, exec));
    harness::apply(&stage.kcp, &secret).await;
    let kyma = stage.kyma_in("one", "Error").await;
    assert!(kyma["status"]["lastOperation"]["operation"].as_str().is_some_and(|text| text.contains("exec")), "{kyma}");
    harness::apply(&stage.kcp, &good).await;
    stage.kyma_in("one", "Ready").await;
    assert!(!canary.exists(), "the program must not run");
}

async fn a_runtime_that_lost_its_definitions_is_checked_completely_at_once() {
    let stage = stage::ready(1).await;
    stage.rests().await;
    stage.kill().await;
    let skr = &stage.skrs[0];
    for plural in ["kymas", "moduletemplates"] {
        let name = format!("{plural}.operator.kyma-project.io");
        delete(skr, "CustomResourceDefinition", "apiextensions.k8s.io/v1", "", &name).await;
    }
    stage.start();
    for (kind, name) in [("Kyma", "default"), ("ModuleTemplate", "cache-1.0.0")] {
        stage.until("it is back long before the next resync", skr, kind, "kyma-system", name, |_| true).await;
    }
    stage.kyma_in("one", "Ready").await;
}

async fn killed_at_any_moment_it_converges_after_a_restart() {
    let stage = stage::ready(1).await;
    let skr = &stage.skrs[0];
    for (round, version) in ["1.1.0", "1.0.0", "1.1.0", "1.0.0"].into_iter().enumerate() {
        // A downgrade is a roll back that git asks for: the annotation goes with it where the guard would refuse it.
        let kyma = stage::kyma("one", if round % 2 == 0 { &["cache", "mailer"] } else { &["cache"] });
        stage.commit("kymas/one.yaml", &kyma);
        stage.commit(
            "modules/cache/1.1.0/objects/extra.yaml",
            &format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: extra-{round}, namespace: kyma-system}}\n"),
        );
        stage
            .commit("modules/cache/release.yaml", &stage::release("cache", &[("regular", version), ("fast", "1.1.0")]));
        tokio::time::timeout(std::time::Duration::from_millis(150 * (round as u64 + 1)), std::future::pending::<()>())
            .await
            .ok();
        stage.kill().await;
        stage.start();
    }
    stage.commit("modules/cache/release.yaml", &stage::release("cache", &[("regular", "1.1.0"), ("fast", "1.1.0")]));
    stage.commit("kymas/one.yaml", &stage::kyma("one", &["cache", "mailer"]));
    stage.until("the last version is there", skr, "ConfigMap", "kyma-system", "extra-3", |_| true).await;
    stage.until("the module is back", skr, "ConfigMap", "kyma-system", "mailer-a", |_| true).await;
    for round in 0..3 {
        stage.until_gone(skr, "ConfigMap", "kyma-system", &format!("extra-{round}")).await;
    }
    stage.kyma_in("one", "Ready").await;
}
