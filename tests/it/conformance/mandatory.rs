//! Mandatory modules, as rows of the conformance tables.

use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::{Value, json};
use tidegate_core::{
    api::names::{annotation, finalizer, label},
    component::Component,
    plan::manifest_name,
};
use tidegate_testbed::Extent;

use crate::{
    harness::{self, SOON, eventually, holds},
    oci::{
        artifact::{Artifact, Schema},
        server::Server,
    },
    stage::{self, QUIET, Stage, read, scenarios},
};

scenarios! {
    row_44_a_mandatory_module_is_not_downgraded,
    row_69_a_release_that_turns_reinstalls_nothing,
    row_69_one_bad_template_stops_its_own_module_only,
    row_70_a_definition_of_releases_that_goes_removes_nothing,
    row_70_a_kyma_without_access_does_not_hold_the_deletion,
    ;
    on real servers:
    e13_a_mandatory_module_comes_changes_and_goes_without_an_entry,
    e14_the_metrics_follow_mandatory_modules,
    i13_every_kyma_gets_a_manifest_unless_it_is_skipped,
    i14_a_deleted_release_waits_until_its_manifests_are_gone,
    row_69_a_manifest_of_lifecycle_manager_is_taken_up,
}

/// A ModuleReleaseMeta of a mandatory module, with annotations.
fn mandatory(module: &str, version: &str, annotations: &str) -> String {
    format!(
        "apiVersion: operator.kyma-project.io/v1beta2\nkind: ModuleReleaseMeta\nmetadata: {{name: {module}, namespace: \
         kcp-system, annotations: {{{annotations}}}}}\nspec: {{moduleName: {module}, ocmComponentName: \
         example.org/module/{module}, mandatory: {{version: {version}}}}}\n"
    )
}

/// Module `cache`, with a default custom resource, in two versions; `release` is its ModuleReleaseMeta.
fn cache(release: String) -> Vec<(String, String)> {
    let mut files = Vec::new();
    for (version, text) in [("1.0.0", "one"), ("1.1.0", "two")] {
        files.extend(stage::module("cache", version, text));
        files.push((format!("modules/cache/{version}/objects/crd.yaml"), stage::THING_CRD.to_owned()));
    }
    files.push((RELEASE.to_owned(), release));
    files
}

const RELEASE: &str = "modules/cache/release.yaml";

/// A running stage with Kymas that select these modules, and these files.
async fn running(kymas: &[&[&str]], mut files: Vec<(String, String)>, more: &[&str]) -> Stage {
    for (name, modules) in stage::KYMAS.iter().zip(kymas) {
        files.push((format!("kymas/{name}.yaml"), stage::kyma(name, modules)));
    }
    let files: Vec<(&str, String)> = files.iter().map(|(path, text)| (path.as_str(), text.clone())).collect();
    let stage = Stage::with(kymas.len(), Extent::Controllers, &files, more).await;
    stage.start();
    stage
}

/// The name of the Manifest of a module.
fn name_of(kyma: &str, module: &str) -> String {
    manifest_name(kyma, &format!("example.org/module/{module}"), module)
}

async fn manifest(stage: &Stage, module: &str, what: &str, is: impl Fn(&Value) -> bool) -> Value {
    stage.until(what, &stage.kcp, "Manifest", "kcp-system", &name_of("one", module), is).await
}

fn is_ready(object: &Value) -> bool {
    object["status"]["state"] == "Ready"
}

async fn text_is(stage: &Stage, module: &str, text: &str) {
    let name = format!("{module}-a");
    let holds = |map: &Value| map["data"]["text"] == text;
    stage.until(&format!("{name} says {text}"), &stage.skrs[0], "ConfigMap", "kyma-system", &name, holds).await;
}

async fn patch(client: &kube::Client, kind: &str, name: &str, patch: Value) {
    let sample = sample(kind, name);
    let api = harness::api_of(client, &sample).await.unwrap();
    api.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
}

async fn delete(client: &kube::Client, kind: &str, name: &str) {
    let api = harness::api_of(client, &sample(kind, name)).await.unwrap();
    api.delete(name, &DeleteParams::default()).await.unwrap();
}

fn sample(kind: &str, name: &str) -> Value {
    let (api_version, namespace) = match kind {
        "ConfigMap" => ("v1", json!("kyma-system")),
        "CustomResourceDefinition" => ("apiextensions.k8s.io/v1", Value::Null),
        "GitSource" => ("tidegate.dev/v1alpha1", json!("kcp-system")),
        _ => ("operator.kyma-project.io/v1beta2", json!("kcp-system")),
    };
    json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": name, "namespace": namespace}})
}

/// Condition of Kyma `one` about its mandatory modules, once it says this.
async fn condition(stage: &Stage, status: &str, part: &str) {
    let is = |kyma: &Value| {
        let all = kyma["status"]["conditions"].as_array().into_iter().flatten();
        let mut found = all.filter(|condition| condition["type"] == "tidegate.dev/MandatoryModules");
        found.any(|one| one["status"] == status && one["message"].as_str().unwrap_or_default().contains(part))
    };
    let what = format!("the condition is {status}: {part}");
    let kyma = stage.until(&what, &stage.kcp, "Kyma", "kcp-system", "one", is).await;
    assert_eq!(
        kyma["status"]["modules"].as_array().into_iter().flatten().count(),
        0,
        "mandatory modules are not listed"
    );
}

async fn metrics(stage: &Stage) -> String {
    let (code, text) = stage.ask("metrics", "/metrics").await.unwrap();
    assert_eq!(code, 200);
    text
}

/// E13, #69, #70: installed without an entry, not in status or catalog, no channel label; the skip label of its
/// Manifest stops healing; a new version reaches it; without its ModuleReleaseMeta, all of it goes.
async fn e13_a_mandatory_module_comes_changes_and_goes_without_an_entry() {
    let mut files = cache(mandatory("cache", "1.0.0", ""));
    files.extend(stage::module("mailer", "2.0.0", "mail"));
    files.push(("modules/mailer/release.yaml".to_owned(), stage::release("mailer", &[("regular", "2.0.0")])));
    let stage = running(&[&["mailer"]], files, &[]).await;
    let skr = &stage.skrs[0];
    let kyma = stage.kyma_in("one", "Ready").await;
    let found = manifest(&stage, "cache", "it is ready", is_ready).await;
    let (labels, spec) = (&found["metadata"]["labels"], &found["spec"]);
    assert_eq!(labels[label::MANDATORY_MODULE], "true");
    assert_eq!((&labels[label::CHANNEL], &labels[label::MODULE_NAME]), (&Value::Null, &json!("cache")));
    assert_eq!((&spec["customResourcePolicy"], &spec["version"]), (&json!("CreateAndDelete"), &json!("1.0.0")));
    let modules: Vec<&Value> = kyma["status"]["modules"].as_array().unwrap().iter().map(|one| &one["name"]).collect();
    assert_eq!(modules, ["mailer"]);
    text_is(&stage, "cache", "one").await;
    stage.until("its default custom resource", skr, "Thing", "kyma-system", "cache-default", |_| true).await;
    assert!(read(skr, "ModuleReleaseMeta", "kyma-system", "mailer").await.is_some());
    for (kind, name) in [("ModuleReleaseMeta", "cache"), ("ModuleTemplate", "cache-1.0.0")] {
        assert!(read(skr, kind, "kyma-system", name).await.is_none(), "{kind} {name} is not in the catalog");
    }

    let name = name_of("one", "cache");
    let skip = |value: Value| json!({"metadata": {"labels": {label::SKIP_RECONCILIATION: value}}});
    let request = |value: &str| json!({"metadata": {"annotations": {annotation::RECONCILE_REQUESTED_AT: value}}});
    patch(&stage.kcp, "Manifest", &name, skip(json!("true"))).await;
    stage.rests().await;
    delete(skr, "ConfigMap", "cache-a").await;
    patch(&stage.kcp, "Kyma", "one", request("1")).await;
    stage.rests().await;
    assert!(read(skr, "ConfigMap", "kyma-system", "cache-a").await.is_none(), "the label stops healing");
    patch(&stage.kcp, "Manifest", &name, skip(Value::Null)).await;
    patch(&stage.kcp, "Kyma", "one", request("2")).await;
    text_is(&stage, "cache", "one").await;

    stage.commit(RELEASE, &mandatory("cache", "1.1.0", ""));
    text_is(&stage, "cache", "two").await;
    manifest(&stage, "cache", "it is ready", |found| is_ready(found) && found["spec"]["version"] == "1.1.0").await;

    // Removing it from git uninstalls it everywhere, so that waits for a confirmation.
    stage.repository.remove(RELEASE).unwrap();
    let commit = stage.repository.commit("without cache").unwrap();
    let lost = "runtimes lose cache 1.1.0 in runtime kcp-system/one";
    let waits = |source: &Value| source["status"]["diagnostics"].to_string().contains(lost);
    stage.until("the prune waits", &stage.kcp, "GitSource", "kcp-system", "landscape", waits).await;
    let confirm = json!({"metadata": {"annotations": {annotation::CONFIRM_PRUNE: commit.trim()}}});
    patch(&stage.kcp, "GitSource", "landscape", confirm).await;
    for (client, kind, name) in [
        (skr, "ConfigMap", "cache-a"),
        (skr, "Thing", "cache-default"),
        (&stage.kcp, "Manifest", name.as_str()),
        (&stage.kcp, "ModuleReleaseMeta", "cache"),
    ] {
        let namespace = if kind == "ConfigMap" || kind == "Thing" { "kyma-system" } else { "kcp-system" };
        stage.until_gone(client, kind, namespace, name).await;
    }
    stage.kyma_in("one", "Ready").await;
}

/// E14: the metrics count mandatory modules, and follow the state of each.
async fn e14_the_metrics_follow_mandatory_modules() {
    let stage = running(&[&[]], cache(mandatory("cache", "1.0.0", "")), &[]).await;
    manifest(&stage, "cache", "it is ready", is_ready).await;
    let series = |state: &str, value: u8| {
        let labels = format!(r#"module_name="cache",kyma_name="one",state="{state}""#);
        format!("lifecycle_mgr_mandatory_module_state{{{labels}}} {value}")
    };
    let says = async |lines: &[String]| {
        eventually("the metrics follow", SOON, async || {
            let text = metrics(&stage).await;
            let missing: Vec<&String> = lines.iter().filter(|line| !text.contains(*line)).collect();
            if missing.is_empty() { Ok(()) } else { Err(format!("{missing:?}")) }
        })
        .await;
    };
    let count = |number: u8| format!("lifecycle_mgr_mandatory_modules {number}");
    says(&[count(1), series("Ready", 1), series("Deleting", 0)]).await;

    // A finalizer of others holds the Manifest, and so the ModuleReleaseMeta.
    let name = name_of("one", "cache");
    let finalizers = |all: &[&str]| json!({"metadata": {"finalizers": all}});
    let ours = [finalizer::MANIFEST, finalizer::LABEL_REMOVAL, finalizer::MANIFEST_RESOURCE, "example.org/wait"];
    patch(&stage.kcp, "Manifest", &name, finalizers(&ours)).await;
    delete(&stage.kcp, "ModuleReleaseMeta", "cache").await;
    says(&[count(1), series("Ready", 0), series("Deleting", 1)]).await;
    stage.until_gone(&stage.skrs[0], "ConfigMap", "kyma-system", "cache-a").await;
    // Git declares it still: it is created again once it is gone.
    stage.repository.remove(RELEASE).unwrap();
    stage.repository.commit("without cache").unwrap();
    stage.rests().await;
    patch(&stage.kcp, "Manifest", &name, finalizers(&[])).await;
    stage.until_gone(&stage.kcp, "ModuleReleaseMeta", "kcp-system", "cache").await;
    eventually("no series is left", SOON, async || {
        let text = metrics(&stage).await;
        let is_gone = !text.contains("lifecycle_mgr_mandatory_module_state{") && text.contains(&count(0));
        if is_gone { Ok(()) } else { Err(text) }
    })
    .await;
}

/// I13: the Manifest has the Kyma as its owner, the status lists no module, and a skipped Kyma gets nothing until the
/// label goes.
async fn i13_every_kyma_gets_a_manifest_unless_it_is_skipped() {
    let mut files = cache(mandatory("cache", "1.0.0", ""));
    let skipped = stage::kyma("two", &[]).replace(
        "namespace: kcp-system}",
        "namespace: kcp-system, labels: {operator.kyma-project.io/skip-reconciliation: 'true'}}",
    );
    files.push(("kymas/two.yaml".to_owned(), skipped));
    files.push(("kymas/one.yaml".to_owned(), stage::kyma("one", &[])));
    let files: Vec<(&str, String)> = files.iter().map(|(path, text)| (path.as_str(), text.clone())).collect();
    let stage = Stage::with(2, Extent::Controllers, &files, &[]).await;
    stage.start();
    let found = manifest(&stage, "cache", "it is ready", is_ready).await;
    let kyma = read(&stage.kcp, "Kyma", "kcp-system", "one").await.unwrap();
    let owner = &found["metadata"]["ownerReferences"][0];
    assert_eq!((&owner["uid"], &owner["controller"]), (&kyma["metadata"]["uid"], &json!(true)));
    condition(&stage, "True", "mandatory modules are ready: cache").await;

    let two = name_of("two", "cache");
    stage.rests().await;
    assert!(read(&stage.kcp, "Manifest", "kcp-system", &two).await.is_none(), "a skipped Kyma gets none");
    stage.commit("kymas/two.yaml", &stage::kyma("two", &[]));
    stage.until("the label is gone", &stage.kcp, "Manifest", "kcp-system", &two, is_ready).await;

    // A Kyma that is deleted takes its mandatory modules along, and no others.
    delete(&stage.kcp, "Kyma", "one").await;
    stage.until_gone(&stage.skrs[0], "ConfigMap", "kyma-system", "cache-a").await;
    assert!(read(&stage.kcp, "Manifest", "kcp-system", &two).await.is_some_and(|found| is_ready(&found)));
}

/// I14, #70: the finalizer, the deletion of the Manifests, and the removal of the finalizer.
async fn i14_a_deleted_release_waits_until_its_manifests_are_gone() {
    let stage = running(&[&[]], cache(mandatory("cache", "1.0.0", "")), &[]).await;
    manifest(&stage, "cache", "it is ready", is_ready).await;
    let release = read(&stage.kcp, "ModuleReleaseMeta", "kcp-system", "cache").await.unwrap();
    assert_eq!(release["metadata"]["finalizers"], json!([finalizer::MANDATORY_MODULE]));
    stage.rests().await;
    let marks = stage.marks();
    // Git declares it: while it exists, it keeps its source from creating it again.
    delete(&stage.kcp, "ModuleReleaseMeta", "cache").await;
    let uid = &release["metadata"]["uid"];
    stage
        .until("there is a new one", &stage.kcp, "ModuleReleaseMeta", "kcp-system", "cache", |release| {
            release["metadata"]["uid"] != *uid && !release["metadata"]["finalizers"].is_null()
        })
        .await;
    let sent = stage.requests_since(&marks);
    let position = |what: String| sent.iter().position(|line| *line == what).unwrap_or_else(|| panic!("{sent:#?}"));
    let of_kcp = |verb: &str, plural: &str, name: &str| format!("kcp {verb} {plural}.operator.kyma-project.io {name}");
    let name = name_of("one", "cache");
    // First its deletion, then that of its objects, then its finalizers, then that of the ModuleReleaseMeta.
    let last = position(of_kcp("patch", "manifests", &name));
    assert!(position(of_kcp("delete", "manifests", &name)) < last);
    assert!(last < position(of_kcp("patch", "modulereleasemetas", "cache")));
    position("skr-1 delete configmaps cache-a".to_owned());
    manifest(&stage, "cache", "it is installed anew", is_ready).await;
}

/// #28, #70: a runtime without an access Secret does not hold the deletion: its Manifest ends, and its objects stay.
/// With a Secret, the module is taken up again if there is one.
async fn row_70_a_kyma_without_access_does_not_hold_the_deletion() {
    let stage = running(&[&[]], cache(mandatory("cache", "1.0.0", "")), &[]).await;
    manifest(&stage, "cache", "it is ready", is_ready).await;
    let release = read(&stage.kcp, "ModuleReleaseMeta", "kcp-system", "cache").await.unwrap();
    let secret = stage::access_secret("one", &stage.landscape.skrs[0]);
    let secrets: kube::Api<k8s_openapi::api::core::v1::Secret> = harness::namespaced(&stage.kcp, "kcp-system");
    secrets.delete("access-one", &DeleteParams::default()).await.unwrap();
    stage.kyma_in("one", "Error").await;
    delete(&stage.kcp, "ModuleReleaseMeta", "cache").await;
    stage.until_gone(&stage.kcp, "Manifest", "kcp-system", &name_of("one", "cache")).await;
    // Git declares it again.
    let uid = &release["metadata"]["uid"];
    let is_new = |release: &Value| release["metadata"]["uid"] != *uid && !release["metadata"]["finalizers"].is_null();
    stage.until("there is a new one", &stage.kcp, "ModuleReleaseMeta", "kcp-system", "cache", is_new).await;
    stage.kyma_in("one", "Error").await;
    let skr = &stage.skrs[0];
    let before = read(skr, "ConfigMap", "kyma-system", "cache-a").await.expect("it could not be removed");
    harness::apply(&stage.kcp, &secret).await;
    manifest(&stage, "cache", "it is taken up", is_ready).await;
    let after = read(skr, "ConfigMap", "kyma-system", "cache-a").await.unwrap();
    assert_eq!(before["metadata"]["uid"], after["metadata"]["uid"]);
}

/// #44: no lower version of a mandatory module, unless a definition allows it.
async fn row_44_a_mandatory_module_is_not_downgraded() {
    let stage = running(&[&[]], cache(mandatory("cache", "1.1.0", "")), &[]).await;
    text_is(&stage, "cache", "two").await;
    stage.commit(RELEASE, &mandatory("cache", "1.0.0", ""));
    let part = "mandatory module cache: module template update not allowed: a higher version (1.1.0) of the module was \
                previously installed; to go back to 1.0.0, commit annotation `tidegate.dev/allow-downgrade: cache-1.0.0`";
    condition(&stage, "False", part).await;
    stage.kyma_in("one", "Ready").await;
    text_is(&stage, "cache", "two").await;
    stage.commit(RELEASE, &mandatory("cache", "1.0.0", "tidegate.dev/allow-downgrade: cache-1.0.0"));
    text_is(&stage, "cache", "one").await;
    condition(&stage, "True", "ready").await;
}

/// #69: a template that is not there stops its own module only, and the Kyma stays Ready.
async fn row_69_one_bad_template_stops_its_own_module_only() {
    let stage = running(&[&[]], cache(mandatory("cache", "1.0.0", "")), &[]).await;
    let bad = json!({
        "apiVersion": "operator.kyma-project.io/v1beta2", "kind": "ModuleReleaseMeta",
        "metadata": {"name": "absent", "namespace": "kcp-system"},
        "spec": {
            "moduleName": "absent", "ocmComponentName": "example.org/module/absent", "mandatory": {"version": "1.0.0"},
        },
    });
    harness::apply(&stage.kcp, &bad).await;
    let part = "mandatory module absent: failed to get module template: ModuleTemplate.operator.kyma-project.io \
                \"absent-1.0.0\" not found";
    condition(&stage, "False", part).await;
    text_is(&stage, "cache", "one").await;
    stage.kyma_in("one", "Ready").await;
    stage.commit(RELEASE, &mandatory("cache", "1.1.0", ""));
    text_is(&stage, "cache", "two").await;
    delete(&stage.kcp, "ModuleReleaseMeta", "absent").await;
    stage.until_gone(&stage.kcp, "ModuleReleaseMeta", "kcp-system", "absent").await;
    condition(&stage, "True", "mandatory modules are ready: cache").await;
}

/// #69: from channels to mandatory and back, nothing is reinstalled; who does not select the module loses it then.
async fn row_69_a_release_that_turns_reinstalls_nothing() {
    let channels = || stage::release("cache", &[("regular", "1.0.0")]);
    let stage = running(&[&["cache"], &[]], cache(channels()), &[]).await;
    stage.kyma_in("one", "Ready").await;
    stage.rests().await;
    let (first, second) = (&stage.skrs[0], &stage.skrs[1]);
    let uid = |object: Value| object["metadata"]["uid"].clone();
    let map = async || uid(read(first, "ConfigMap", "kyma-system", "cache-a").await.unwrap());
    let before = (uid(manifest(&stage, "cache", "it is ready", is_ready).await), map().await);

    stage.commit(RELEASE, &mandatory("cache", "1.0.0", ""));
    let is_mandatory = |found: &Value| {
        let labels = &found["metadata"]["labels"];
        labels[label::MANDATORY_MODULE] == "true" && labels[label::CHANNEL].is_null() && is_ready(found)
    };
    let turned = manifest(&stage, "cache", "it is mandatory", is_mandatory).await;
    let text = "no templates were found: for module cache in channel regular ";
    let kyma = stage.kyma_in("one", "Warning").await;
    assert_eq!(kyma["status"]["modules"][0]["message"], text);
    stage.until("two has it as well", second, "ConfigMap", "kyma-system", "cache-a", |_| true).await;
    stage.rests().await;
    assert_eq!((uid(turned), map().await), before);

    stage.commit(RELEASE, &channels());
    let is_selected = |found: &Value| {
        let labels = &found["metadata"]["labels"];
        labels[label::MANDATORY_MODULE].is_null() && labels[label::CHANNEL] == "regular" && is_ready(found)
    };
    let turned = manifest(&stage, "cache", "it has a channel again", is_selected).await;
    stage.kyma_in("one", "Ready").await;
    stage.until_gone(second, "ConfigMap", "kyma-system", "cache-a").await;
    stage.until_gone(&stage.kcp, "Manifest", "kcp-system", &name_of("two", "cache")).await;
    let has_none = |release: &Value| release["metadata"]["finalizers"].is_null();
    stage.until("the finalizer goes", &stage.kcp, "ModuleReleaseMeta", "kcp-system", "cache", has_none).await;
    assert_eq!((uid(turned), map().await), before);
}

/// #69: what Lifecycle Manager installed is taken up without a write; its labels go when the release gets channels.
async fn row_69_a_manifest_of_lifecycle_manager_is_taken_up() {
    let stage = running(&[&["cache"]], cache(mandatory("cache", "1.0.0", "")), &[]).await;
    let ours = manifest(&stage, "cache", "it is ready", is_ready).await;
    stage.rests().await;
    stage.kill().await;
    stage.forget();

    // The same Manifest as Lifecycle Manager writes it: by one manager, and by another with the finalizers.
    let name = name_of("one", "cache");
    patch(&stage.kcp, "Manifest", &name, json!({"metadata": {"finalizers": []}})).await;
    delete(&stage.kcp, "Manifest", &name).await;
    stage.until_gone(&stage.kcp, "Manifest", "kcp-system", &name).await;
    let mut theirs = json!({
        "apiVersion": ours["apiVersion"], "kind": "Manifest",
        "metadata": {"name": name, "namespace": "kcp-system"}, "spec": ours["spec"],
    });
    for field in ["labels", "annotations", "ownerReferences"] {
        theirs["metadata"][field] = ours["metadata"][field].clone();
    }
    let api = harness::api_of(&stage.kcp, &theirs).await.unwrap();
    let by = |manager: &str| PatchParams::apply(manager).force();
    api.patch(&name, &by("lifecycle-manager"), &Patch::Apply(&theirs)).await.unwrap();
    theirs["metadata"]["finalizers"] = ours["metadata"]["finalizers"].clone();
    let applier = by("declarative.kyma-project.io/applier");
    api.patch(&name, &applier, &Patch::Apply(&theirs)).await.unwrap();
    let mut status = theirs.clone();
    status["status"] = ours["status"].clone();
    api.patch_status(&name, &applier, &Patch::Apply(&status)).await.unwrap();

    let marks = stage.marks();
    stage.start();
    holds("nothing is written", QUIET, async || {
        let sent = stage.requests_since(&marks);
        let wrong: Vec<&String> = sent.iter().filter(|line| !line.contains(" get ")).collect();
        if wrong.is_empty() { Ok(()) } else { Err(format!("{wrong:?}")) }
    })
    .await;

    stage.commit(RELEASE, &stage::release("cache", &[("regular", "1.0.0")]));
    let is_selected = |found: &Value| {
        let labels = &found["metadata"]["labels"];
        labels[label::MANDATORY_MODULE].is_null() && labels[label::CHANNEL] == "regular"
    };
    manifest(&stage, "cache", "it has a channel", is_selected).await;
    stage.kyma_in("one", "Ready").await;
    stage.rests().await;
    text_is(&stage, "cache", "one").await;
}

/// #69, #48: a mandatory module from an OCI registry.
#[tokio::test(flavor = "multi_thread")]
async fn row_69_a_mandatory_module_comes_from_a_registry() {
    let objects =
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: keda-a, namespace: kyma-system}\ndata: {text: one}\n";
    let component = Component::new("example.org/module/keda", "1.0.0").unwrap();
    let artifact = Artifact::new(&component, Schema::V2, objects.as_bytes().to_vec(), "application/x-yaml");
    let server = Server::start(None, None).await;
    server.push("", &artifact, None);
    let template = "apiVersion: operator.kyma-project.io/v1beta2\nkind: ModuleTemplate\nmetadata: {name: keda-1.0.0, \
                    namespace: kcp-system}\nspec: {moduleName: keda, version: 1.0.0, descriptor: {}}\n";
    let files = vec![
        ("modules/keda/release.yaml".to_owned(), mandatory("keda", "1.0.0", "")),
        ("modules/keda/1.0.0.yaml".to_owned(), template.to_owned()),
    ];
    let stage = running(&[&[]], files, &[&format!("--oci-registry-host={}", server.address())]).await;
    let found = manifest(&stage, "keda", "it is ready", is_ready).await;
    assert_eq!(found["spec"]["install"]["source"]["name"], "example.org/module/keda");
    assert_eq!(found["metadata"]["labels"][label::MANDATORY_MODULE], "true");
    text_is(&stage, "keda", "one").await;
    condition(&stage, "True", "mandatory modules are ready: keda").await;
}

/// #70: a definition that is deleted together with its CustomResourceDefinition removes nothing from runtimes.
async fn row_70_a_definition_of_releases_that_goes_removes_nothing() {
    let stage = running(&[&[]], cache(mandatory("cache", "1.0.0", "")), &[]).await;
    manifest(&stage, "cache", "it is ready", is_ready).await;
    stage.rests().await;
    delete(&stage.kcp, "CustomResourceDefinition", "modulereleasemetas.operator.kyma-project.io").await;
    let is_going = |release: &Value| !release["metadata"]["deletionTimestamp"].is_null();
    stage.until("it is being deleted", &stage.kcp, "ModuleReleaseMeta", "kcp-system", "cache", is_going).await;
    let name = name_of("one", "cache");
    holds("the module stays", QUIET, async || {
        let manifest = read(&stage.kcp, "Manifest", "kcp-system", &name).await.ok_or("the Manifest is gone")?;
        let release = read(&stage.kcp, "ModuleReleaseMeta", "kcp-system", "cache").await.ok_or("it is gone")?;
        let has_finalizer = release["metadata"]["finalizers"].as_array().is_some_and(|all| !all.is_empty());
        let stays = manifest["metadata"]["deletionTimestamp"].is_null() && has_finalizer;
        if stays { Ok(()) } else { Err(format!("{manifest} {release}")) }
    })
    .await;
    text_is(&stage, "cache", "one").await;
}
