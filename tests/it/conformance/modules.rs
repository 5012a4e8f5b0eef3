//! Modules from their definitions to their objects, as rows of the conformance tables: the daemon on real servers.

use k8s_openapi::api::{apps::v1::Deployment, core::v1::Node};
use kube::api::{ListParams, Patch, PatchParams};
use serde_json::{Value, json};
use tidegate_core::api::names::label;
use tidegate_testbed::Extent;

use super::land::{self, KYMA, MANIFEST, THING, kyma, manifest, module, release};
use crate::{
    agent_path::world,
    harness,
    stage::{self, Stage, read},
};

/// No pass comes by itself: whatever happens is due to a change.
const NEVER: &str = "--resync=2h";

/// A landscape with the modules of [`stage::files`] in git. Their channels and Kyma `one`, without modules yet, are
/// declared by `kubectl`, so that a change of them is seen at once.
async fn declared() -> Stage {
    let mut files = stage::files(0);
    files.retain(|(path, _)| !path.ends_with("release.yaml"));
    let stage = Stage::real(1, Extent::Controllers, &land::borrowed(&files), &[NEVER]).await;
    harness::apply(&stage.kcp, &release("cache", &[("regular", "1.0.0")])).await;
    harness::apply(&stage.kcp, &release("mailer", &[("regular", "2.0.0")])).await;
    harness::apply(&stage.kcp, &kyma("one", &[])).await;
    stage.start();
    stage
}

async fn one(stage: &Stage, what: &str, holds: impl Fn(&Value) -> bool) -> Value {
    stage.until(what, &stage.kcp, "Kyma", "kcp-system", "one", holds).await
}

/// Waits until a module is in this state, with this message.
async fn says(stage: &Stage, name: &str, state: &str, message: &str) -> Value {
    one(stage, &format!("{name} is {state}: {message}"), |kyma| {
        module(kyma, name)["state"] == state && module(kyma, name)["message"].as_str() == Some(message)
    })
    .await
}

/// I09: the Manifests and the modules in the status are those of the spec. I11: a Manifest follows its template, is as
/// before after edits, and keeps a label of others; only its name names a module. I07: channel `none` is an error. E25:
/// a new version in a channel is installed. E28: a version without a ModuleTemplate is an error with an exact text,
/// until it is corrected. I10: an unknown module is a warning, and the skip label stops all but the removal.
#[tokio::test(flavor = "multi_thread")]
async fn e25_e28_i07_i09_i10_i11_a_module_follows_the_spec_its_template_and_its_release() {
    let stage = declared().await;
    for modules in [&["cache"][..], &["cache", "mailer"], &[], &["cache"]] {
        harness::apply(&stage.kcp, &kyma("one", modules)).await;
        let listed = |kyma: &Value| -> Vec<String> {
            let all = kyma["status"]["modules"].as_array().into_iter().flatten();
            all.filter_map(|one| one["name"].as_str().map(str::to_owned)).collect()
        };
        let is_done = |kyma: &Value| {
            kyma["status"]["state"] == "Ready"
                && listed(kyma) == modules
                && modules.iter().all(|name| module(kyma, name)["state"] == "Ready")
        };
        one(&stage, &format!("its modules are {modules:?}"), is_done).await;
        assert_eq!(land::manifests(&stage).await, modules);
    }

    follows_its_template(&stage).await;
    only_its_name_names_a_module(&stage).await;
    channel_none(&stage).await;

    // E25.
    harness::apply(&stage.kcp, &release("cache", &[("regular", "1.1.0")])).await;
    let is_new = |kyma: &Value| kyma["status"]["state"] == "Ready" && module(kyma, "cache")["version"] == "1.1.0";
    one(&stage, "the new version is Ready", is_new).await;
    let skr = &stage.skrs[0];
    assert_eq!(read(skr, "ConfigMap", "kyma-system", "cache-a").await.unwrap()["data"]["text"], "two");
    let upgraded = manifest(&stage, "cache", "its Manifest", |_| true).await;
    assert_eq!(upgraded["spec"]["version"], "1.1.0");

    // E28.
    harness::apply(&stage.kcp, &release("cache", &[("regular", "1.2.3")])).await;
    let missing = "failed to get module template: ModuleTemplate.operator.kyma-project.io \"cache-1.2.3\" not found";
    let refused = says(&stage, "cache", "Error", missing).await;
    assert_eq!(refused["status"]["state"], "Error");
    assert_eq!(read(skr, "ConfigMap", "kyma-system", "cache-a").await.unwrap()["data"]["text"], "two");
    harness::apply(&stage.kcp, &release("cache", &[("regular", "1.1.0")])).await;
    one(&stage, "it is Ready again", is_new).await;
    skipped(&stage).await;
}

/// I11.
async fn follows_its_template(stage: &Stage) {
    let rendered = manifest(stage, "cache", "its Manifest", |_| true).await;
    let resource = json!({
        "apiVersion": THING.0, "kind": THING.1, "metadata": {"name": "cache-default", "namespace": "kyma-system"},
        "spec": {"size": 1},
    });
    assert_eq!((&rendered["spec"]["version"], &rendered["spec"]["resource"]), (&json!("1.0.0"), &resource));
    assert_eq!(rendered["metadata"]["labels"][label::CHANNEL], "regular", "E15");
    let name = land::name_of("one", "cache");
    let edit = json!({
        "metadata": {"labels": {"example.org/note": "theirs"}},
        "spec": {"version": "1.7.0", "resource": {"spec": {"size": 7}}},
    });
    land::merge(&stage.kcp, MANIFEST, "kcp-system", &name, edit).await;
    let is_as_before = |one: &Value| one["spec"]["version"] == "1.0.0" && one["spec"]["resource"] == resource;
    manifest(stage, "cache", "the edit is reverted", is_as_before).await;

    let skip = |value: Value| json!({"metadata": {"labels": {label::SKIP_RECONCILIATION: value}}});
    land::merge(&stage.kcp, MANIFEST, "kcp-system", &name, skip(json!("true"))).await;
    let path = "modules/cache/1.0.0/module-template.yaml";
    let template = stage::module("cache", "1.0.0", "one").remove(0).1;
    stage.commit(path, &template.replace("size: 1", "size: 2"));
    let follows = |one: &Value| one["spec"]["resource"]["spec"]["size"] == 2;
    let followed = manifest(stage, "cache", "it follows its template", follows).await;
    let labels = &followed["metadata"]["labels"];
    assert_eq!((&labels[label::SKIP_RECONCILIATION], &labels["example.org/note"]), (&json!("true"), &json!("theirs")));
    land::merge(&stage.kcp, MANIFEST, "kcp-system", &name, skip(Value::Null)).await;
    // The default custom resource was created once, and is its user's since then.
    let thing = land::find(&stage.skrs[0], THING, "kyma-system", "cache-default").await.unwrap();
    assert_eq!(thing["spec"]["size"], 1);
}

/// I11: neither namespace and name nor the name of its component.
async fn only_its_name_names_a_module(stage: &Stage) {
    let others = ["kcp-system/cache", "example.org/module/cache"];
    harness::apply(&stage.kcp, &kyma("one", &[&["cache"][..], &others].concat())).await;
    for other in others {
        says(stage, other, "Warning", "no ModuleReleaseMeta found").await;
    }
    assert_eq!(land::manifests(stage).await, ["cache"]);
    // I10: in the control plane and in the runtime.
    let is_warned = |kyma: &Value| {
        let mut all = kyma["status"]["conditions"].as_array().into_iter().flatten();
        kyma["status"]["state"] == "Warning" && all.any(|one| one["type"] == "Modules" && one["status"] == "False")
    };
    one(stage, "the Kyma is in Warning", is_warned).await;
    let what = "the runtime is shown the Warning";
    stage.until(what, &stage.skrs[0], "Kyma", "kyma-system", "default", is_warned).await;
    harness::apply(&stage.kcp, &kyma("one", &["cache"])).await;
    stage.kyma_in("one", "Ready").await;
}

/// I10: under the skip label neither Manifest nor status changes, and a deleted Kyma goes all the same.
async fn skipped(stage: &Stage) {
    let skip = json!({"metadata": {"labels": {label::SKIP_RECONCILIATION: "true"}}});
    land::merge(&stage.kcp, KYMA, "kcp-system", "one", skip).await;
    stage.rests().await;
    let before = read(&stage.kcp, "Kyma", "kcp-system", "one").await.unwrap();
    let edit = json!({"spec": {"version": "1.7.0"}});
    land::merge(&stage.kcp, MANIFEST, "kcp-system", &land::name_of("one", "cache"), edit).await;
    harness::apply(&stage.kcp, &release("cache", &[("regular", "1.2.3")])).await;
    stage.rests().await;
    let frozen = manifest(stage, "cache", "it is there", |_| true).await;
    assert_eq!(frozen["spec"]["version"], "1.7.0");
    let after = read(&stage.kcp, "Kyma", "kcp-system", "one").await.unwrap();
    assert_eq!(after["status"], before["status"]);
    land::delete(&stage.kcp, KYMA, "kcp-system", "one").await;
    stage.until_gone(&stage.kcp, "Kyma", "kcp-system", "one").await;
    assert!(read(&stage.skrs[0], "ConfigMap", "kyma-system", "cache-a").await.is_none());
    assert_eq!(land::manifests(stage).await, [""; 0]);
}

/// I07: a version beside the channel is no field of the API, as upstream; channel `none` is an error of the module.
async fn channel_none(stage: &Stage) {
    let with = |module: Value| json!({"spec": {"modules": [module]}});
    let channel = |channel: &str| with(json!({"name": "cache", "managed": true, "channel": channel}));
    land::merge(&stage.kcp, KYMA, "kcp-system", "one", channel("none")).await;
    let refused = one(stage, "cache is in Error", |kyma| module(kyma, "cache")["state"] == "Error").await;
    assert_eq!(refused["status"]["state"], "Error");
    let mut pinned = channel("regular");
    pinned["spec"]["modules"][0]["version"] = json!("1.1.0");
    land::merge(&stage.kcp, KYMA, "kcp-system", "one", pinned).await;
    let served = stage.kyma_in("one", "Ready").await;
    assert_eq!(served["spec"]["modules"][0]["version"], Value::Null);
    assert_eq!(module(&served, "cache")["version"], "1.0.0");
}

/// Whether something is for `beta`, and whether it is `internal`.
type Audience = (bool, bool);

const AUDIENCES: [Audience; 4] = [(false, false), (true, false), (true, true), (false, true)];

/// The module that is for this audience.
fn module_for(audience: Audience) -> &'static str {
    match audience {
        (false, false) => "general",
        (true, false) => "beta",
        (true, true) => "both",
        (false, true) => "internal",
    }
}

/// E26, I03, I12: sixteen cases, each a Kyma and a ModuleTemplate with or without each of two labels. What is not
/// allowed says so, and is not installed. I02: a change of labels or spec takes effect at once.
#[tokio::test(flavor = "multi_thread")]
async fn e26_i02_i03_i12_beta_and_internal_modules_are_for_kymas_with_their_labels() {
    let mut files = Vec::new();
    for audience in AUDIENCES {
        let name = module_for(audience);
        let mut made = stage::module(name, "1.0.0", "one");
        made[0].1 = labelled(&made[0].1, audience);
        files.extend(made);
        let channels = [("regular", "1.0.0"), ("fast", "1.0.0")];
        files.push((format!("modules/{name}/release.yaml"), stage::release(name, &channels)));
    }
    let stage = Stage::real(1, Extent::Controllers, &land::borrowed(&files), &[NEVER]).await;
    let modules = AUDIENCES.map(module_for);
    harness::apply(&stage.kcp, &kyma("one", &modules)).await;
    stage.start();
    for of_kyma in AUDIENCES {
        let on = |is: bool| if is { json!("true") } else { Value::Null };
        let labels = json!({label::BETA: on(of_kyma.0), label::INTERNAL: on(of_kyma.1)});
        land::merge(&stage.kcp, KYMA, "kcp-system", "one", json!({"metadata": {"labels": labels}})).await;
        let mut allowed = Vec::new();
        for of_module in AUDIENCES {
            let name = module_for(of_module);
            let map = format!("{name}-a");
            if let Some(what) = refusal(of_kyma, of_module) {
                says(&stage, name, "Error", &format!("module template not allowed: {what} module")).await;
                stage.until_gone(&stage.skrs[0], "ConfigMap", "kyma-system", &map).await;
            } else {
                one(&stage, &format!("{name} is Ready"), |kyma| module(kyma, name)["state"] == "Ready").await;
                assert!(read(&stage.skrs[0], "ConfigMap", "kyma-system", &map).await.is_some(), "{name} is installed");
                allowed.push(name);
            }
        }
        allowed.sort_unstable();
        assert_eq!(land::manifests(&stage).await, allowed, "for a Kyma that is {of_kyma:?}");
    }

    // The last one was internal. Labels of ModuleTemplates change: what was for beta is for all, and the other way.
    let beta = module_for((true, false));
    let (path, template) = stage::module(beta, "1.0.0", "one").remove(0);
    stage.commit(&path, &template);
    one(&stage, "it is for all", |kyma| module(kyma, beta)["state"] == "Ready").await;
    let general = module_for((false, false));
    let (path, template) = stage::module(general, "1.0.0", "one").remove(0);
    stage.commit(&path, &labelled(&template, (true, false)));
    says(&stage, general, "Error", "module template not allowed: beta module").await;

    // I02: another channel for all.
    let mut fast = kyma("one", &[beta]);
    fast["spec"]["channel"] = json!("fast");
    harness::apply(&stage.kcp, &fast).await;
    one(&stage, "the channel is another", |kyma| {
        let status = &kyma["status"];
        status["activeChannel"] == "fast" && status["state"] == "Ready" && module(kyma, beta)["channel"] == "fast"
    })
    .await;
}

/// A ModuleTemplate for an audience.
fn labelled(template: &str, (beta, internal): Audience) -> String {
    let labels = [(beta, label::BETA), (internal, label::INTERNAL)];
    let labels: Vec<String> =
        labels.into_iter().filter(|(is, _)| *is).map(|(_, label)| format!("{label}: 'true'")).collect();
    template.replace("metadata:\n", &format!("metadata:\n  labels: {{{}}}\n", labels.join(", ")))
}

/// What upstream's table refuses, and its word for it: `internal` is asked first.
fn refusal(kyma: Audience, module: Audience) -> Option<&'static str> {
    match (kyma, module) {
        ((_, false), (_, true)) => Some("internal"),
        ((false, _), (true, _)) => Some("beta"),
        ((true, _), (true, _)) | (_, (false, _)) => None,
    }
}

/// I19: a module is not Ready before its Deployment is. I17: its custom resource does not matter for that, its
/// inventory lists all its objects, and disabling it removes them. E18: a check changes none of them, and a Deployment
/// that was scaled to nothing is as before after it.
#[tokio::test(flavor = "multi_thread")]
async fn e18_i17_i19_a_module_is_as_ready_as_its_deployment_and_stays_as_it_is() {
    let mut files = stage::files(0);
    let crd = stage::THING_CRD.replace("properties: {spec:", "properties: {status: {ANY}, spec:");
    let crd = crd.replace("{ANY}", "{type: object, x-kubernetes-preserve-unknown-fields: true}");
    assert_ne!(crd, stage::THING_CRD);
    files.push(("modules/cache/1.0.0/objects/crd.yaml".to_owned(), crd));
    files.push(("modules/cache/1.0.0/objects/deployment.yaml".to_owned(), world::DEPLOYMENT.to_owned()));
    let stage = Stage::real(1, Extent::Node, &land::borrowed(&files), &[]).await;
    let skr = &stage.skrs[0];
    cordon(skr, true).await;
    harness::apply(&stage.kcp, &kyma("one", &["cache"])).await;
    stage.start();

    // I19: the objects are there, and no pod runs.
    let is_not_available = |deployment: &Value| {
        let mut conditions = deployment["status"]["conditions"].as_array().into_iter().flatten();
        conditions.any(|one| one["type"] == "Available" && one["status"] == "False")
    };
    stage.until("the Deployment waits", skr, "Deployment", "kyma-system", "cache", is_not_available).await;
    land::checked(&stage, "1").await;
    let waiting = one(&stage, "the Kyma waits", |kyma| kyma["status"]["state"] == "Processing").await;
    assert_eq!(module(&waiting, "cache")["state"], "Processing", "{waiting}");
    manifest(&stage, "cache", "its Manifest waits", |one| one["status"]["state"] == "Processing").await;
    cordon(skr, false).await;
    stage.kyma_in("one", "Ready").await;

    // I17.
    let status = json!({"status": {"state": "Error"}});
    land::merge(skr, THING, "kyma-system", "cache-default", status).await;
    land::checked(&stage, "2").await;
    let ready = stage.kyma_in("one", "Ready").await;
    assert_eq!(module(&ready, "cache")["state"], "Ready");
    let found = manifest(&stage, "cache", "its Manifest is Ready", |one| one["status"]["state"] == "Ready").await;
    let synced = land::synced(&found);
    let names: Vec<String> = synced.iter().map(|one| format!("{} {}", one.kind, one.name)).collect();
    let expected = [
        "CustomResourceDefinition things.example.org",
        "Deployment cache",
        "ClusterRole cache",
        "ConfigMap cache-a",
        "ConfigMap cache-b",
    ];
    assert_eq!(names, expected);

    // E18.
    let mut before = Vec::new();
    for object in &synced {
        before.push(object.live(skr).await.unwrap()["metadata"]["resourceVersion"].clone());
    }
    for request in ["3", "4"] {
        land::checked(&stage, request).await;
    }
    for (object, before) in synced.iter().zip(&before) {
        let live = object.live(skr).await.unwrap();
        assert_eq!(live["metadata"]["resourceVersion"], *before, "{object:?}");
    }
    scale_to_nothing(&stage).await;

    harness::apply(&stage.kcp, &kyma("one", &[])).await;
    land::until_gone(skr, &synced).await;
    stage.until_gone(&stage.kcp, "Manifest", "kcp-system", &land::name_of("one", "cache")).await;
}

/// E18: under the skip label a module is scaled to nothing; without it, it is as before.
async fn scale_to_nothing(stage: &Stage) {
    let skr = &stage.skrs[0];
    let skip = |value: Value| json!({"metadata": {"labels": {label::SKIP_RECONCILIATION: value}}});
    let name = land::name_of("one", "cache");
    land::merge(&stage.kcp, MANIFEST, "kcp-system", &name, skip(json!("true"))).await;
    let deployments: kube::Api<Deployment> = harness::namespaced(skr, "kyma-system");
    let nothing = Patch::Merge(json!({"spec": {"replicas": 0}}));
    deployments.patch_scale("cache", &PatchParams::default(), &nothing).await.unwrap();
    land::checked(stage, "5").await;
    let scaled = read(skr, "Deployment", "kyma-system", "cache").await.unwrap();
    assert_eq!(scaled["spec"]["replicas"], 0, "the label stops the repair");
    land::merge(&stage.kcp, MANIFEST, "kcp-system", &name, skip(Value::Null)).await;
    land::checked(stage, "6").await;
    let is_back = |one: &Value| one["spec"]["replicas"] == 1 && one["status"]["readyReplicas"] == 1;
    stage.until("it is as before", skr, "Deployment", "kyma-system", "cache", is_back).await;
    stage.kyma_in("one", "Ready").await;
}

/// Lets no further pod onto the nodes of a runtime, or lets them again.
async fn cordon(skr: &kube::Client, is_closed: bool) {
    let nodes: kube::Api<Node> = kube::Api::all(skr.clone());
    for node in nodes.list(&ListParams::default()).await.unwrap() {
        let patch = Patch::Merge(json!({"spec": {"unschedulable": is_closed}}));
        nodes.patch(&node.metadata.name.unwrap(), &PatchParams::default(), &patch).await.unwrap();
    }
}
