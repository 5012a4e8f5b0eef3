//! The removal of modules, and Manifests without a module, as rows of the conformance tables.

use std::time::Duration;

use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::{Value, json};
use tidegate_core::plan::manifest_name;

use crate::{
    harness::{self, SOON, apply, eventually},
    stage::{self, Stage, read, scenarios},
};

scenarios! {
    row_15_finalizers_of_a_kyma_are_those_of_upstream_and_the_legacy_one_is_stripped,
    row_31_a_kyma_is_removed_in_the_order_of_upstream,
    row_62_the_default_resource_is_created_once_and_a_new_policy_counts,
    row_63_with_ignore_a_custom_resource_of_a_user_holds_the_removal,
    row_65_a_module_that_is_released_and_dropped_between_two_passes_leaves_its_objects,
    row_68_an_orphan_stays_and_says_so,
    ;
    on real servers:
    e15_a_paused_manifest_is_neither_repaired_nor_removed,
    e17_e24_a_new_version_of_the_module_cr_reaches_a_blocked_removal,
    e19_custom_resources_of_users_in_any_version_hold_the_removal,
    e20_a_module_enabled_in_another_channel_is_upgraded_while_its_removal_waits,
    e22_an_unmanaged_module_leaves_its_objects,
    e22_a_module_without_a_default_resource_becomes_unmanaged_and_managed_again,
    e29_without_its_secret_a_kyma_ends_despite_the_finalizers_of_others,
    e37_without_rights_manifests_are_in_error_until_access_is_back,
}

const KYMA: &str = "operator.kyma-project.io/v1beta2";
const THING: &str = "example.org/v1";
const SKIP: &str = "operator.kyma-project.io/skip-reconciliation";
const WAITING: &str = "waiting for module crs deletion";

async fn api(client: &kube::Client, (version, kind): (&str, &str), namespace: &str) -> Api {
    let sample = json!({"apiVersion": version, "kind": kind, "metadata": {"name": "any", "namespace": namespace}});
    harness::api_of(client, &sample).await.expect("a kind that is served")
}

type Api = kube::Api<kube::api::DynamicObject>;

async fn merge(client: &kube::Client, kind: (&str, &str), namespace: &str, name: &str, patch: Value) {
    let api = api(client, kind, namespace).await;
    api.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.expect("a patch");
}

async fn delete(client: &kube::Client, kind: (&str, &str), namespace: &str, name: &str) {
    api(client, kind, namespace).await.delete(name, &DeleteParams::default()).await.expect("a delete");
}

/// A stage whose only Kyma has the module `cache` in 1.0.0; channel `fast` offers 1.1.0, whose default custom resource
/// has the version v2.
async fn stage() -> Stage {
    let mut files = stage::files(1);
    for (path, text) in &mut files {
        if path.ends_with("1.1.0/module-template.yaml") {
            *text = text.replace("example.org/v1", "example.org/v2");
        }
        if path.ends_with("1.1.0/objects/crd.yaml") {
            *text = both_versions(text);
        }
        if path == "kymas/one.yaml" {
            *text = stage::kyma("one", &["cache"]);
        }
    }
    let files: Vec<(&str, String)> = files.iter().map(|(path, text)| (path.as_str(), text.clone())).collect();
    let stage = Stage::new(1, &files).await;
    stage.start();
    stage.kyma_in("one", "Ready").await;
    stage
}

/// The same CustomResourceDefinition with a second version.
fn both_versions(crd: &str) -> String {
    let (head, version) = crd.split_once("    - name: v1\n").expect("a version");
    let second = version.replace("storage: true", "storage: false");
    format!("{head}    - name: v1\n{version}    - name: v2\n{second}")
}

fn manifest_of(module: &str) -> String {
    manifest_name("one", &format!("example.org/module/{module}"), module)
}

async fn manifest(stage: &Stage, what: &str, is: impl Fn(&Value) -> bool) -> Value {
    stage.until(what, &stage.kcp, "Manifest", "kcp-system", &manifest_of("cache"), is).await
}

/// Whether a Manifest is being deleted and waits with this message.
fn waits(message: &str) -> impl Fn(&Value) -> bool {
    let message = message.to_owned();
    move |manifest| {
        manifest["metadata"]["deletionTimestamp"].is_string()
            && manifest["status"]["state"] == "Deleting"
            && manifest["status"]["lastOperation"]["operation"].as_str() == Some(message.as_str())
    }
}

async fn text_is(stage: &Stage, text: &str) {
    let is = |map: &Value| map["data"]["text"] == text;
    stage.until(&format!("cache-a says {text}"), &stage.skrs[0], "ConfigMap", "kyma-system", "cache-a", is).await;
}

/// A user's finalizer on the default custom resource.
async fn hold_default(stage: &Stage, finalizers: Value) {
    let patch = json!({"metadata": {"finalizers": finalizers}});
    merge(&stage.skrs[0], (THING, "Thing"), "kyma-system", "cache-default", patch).await;
}

fn kyma_without_modules() -> String {
    stage::kyma("one", &[])
}

const OF_DEFAULT: &str = "waiting for the default module CR Thing.example.org kyma-system/cache-default to be deleted";

/// E15, I10: the label on a Manifest stops the repair and the removal. A Kyma that is being deleted says what holds it.
async fn e15_a_paused_manifest_is_neither_repaired_nor_removed() {
    let stage = stage().await;
    let skr = &stage.skrs[0];
    let label = |value: Value| json!({"metadata": {"labels": {SKIP: value}}});
    merge(&stage.kcp, (KYMA, "Manifest"), "kcp-system", &manifest_of("cache"), label(json!("true"))).await;
    delete(skr, ("v1", "ConfigMap"), "kyma-system", "cache-b").await;
    suspend(&stage).await;
    delete(&stage.kcp, (KYMA, "Kyma"), "kcp-system", "one").await;
    stage
        .until("the Kyma says what holds it", &stage.kcp, "Kyma", "kcp-system", "one", |kyma| {
            let said = kyma["status"]["lastOperation"]["operation"].as_str().unwrap_or_default();
            kyma["status"]["state"] == "Deleting" && said.contains("module cache") && said.contains(SKIP)
        })
        .await;
    assert!(read(skr, "ConfigMap", "kyma-system", "cache-a").await.is_some(), "nothing is removed");
    assert!(read(skr, "ConfigMap", "kyma-system", "cache-b").await.is_none(), "nothing is repaired");
    merge(&stage.kcp, (KYMA, "Manifest"), "kcp-system", &manifest_of("cache"), label(Value::Null)).await;
    stage.until_gone(skr, "ConfigMap", "kyma-system", "cache-a").await;
    stage.until_gone(&stage.kcp, "Kyma", "kcp-system", "one").await;
}

/// Git would declare the Kyma again.
async fn suspend(stage: &Stage) {
    let patch = json!({"spec": {"suspend": true}});
    merge(&stage.kcp, ("tidegate.dev/v1alpha1", "GitSource"), "kcp-system", "landscape", patch).await;
}

/// E17, E24, #64: a disabled module whose removal waits gets the new version of its channel, with a new version of its
/// custom resource; its objects are repaired meanwhile, and then all of it goes.
async fn e17_e24_a_new_version_of_the_module_cr_reaches_a_blocked_removal() {
    let stage = stage().await;
    let skr = &stage.skrs[0];
    hold_default(&stage, json!(["example.org/hold"])).await;
    stage.commit("kymas/one.yaml", &kyma_without_modules());
    manifest(&stage, "the removal waits", waits(OF_DEFAULT)).await;
    delete(skr, ("v1", "ConfigMap"), "kyma-system", "cache-b").await;
    let release = stage::release("cache", &[("regular", "1.1.0"), ("fast", "1.1.0")]);
    stage.commit("modules/cache/release.yaml", &release);
    text_is(&stage, "two").await;
    let request = json!({"metadata": {"annotations": {"tidegate.dev/reconcile-requested-at": "now"}}});
    merge(&stage.kcp, (KYMA, "Kyma"), "kcp-system", "one", request).await;
    stage.until("what is missing is repaired", skr, "ConfigMap", "kyma-system", "cache-b", |_| true).await;
    let upgraded = manifest(&stage, "it still waits", waits(OF_DEFAULT)).await;
    assert_eq!(upgraded["spec"]["version"], "1.1.0");
    assert_eq!(upgraded["spec"]["resource"]["apiVersion"], "example.org/v2");
    let thing = read(skr, "Thing", "kyma-system", "cache-default").await.expect("its finalizer holds it");
    assert!(thing["metadata"]["deletionTimestamp"].is_string());
    hold_default(&stage, json!([])).await;
    stage.until_gone(skr, "ConfigMap", "kyma-system", "cache-a").await;
    stage.until_gone(skr, "CustomResourceDefinition", "", "things.example.org").await;
    stage.until_gone(&stage.kcp, "Manifest", "kcp-system", &manifest_of("cache")).await;
}

/// E19, #63: custom resources of users count in any namespace and version, and those of every definition that the
/// deletion would take with it.
async fn e19_custom_resources_of_users_in_any_version_hold_the_removal() {
    let stage = stage().await;
    let skr = &stage.skrs[0];
    let release = stage::release("cache", &[("regular", "1.1.0"), ("fast", "1.1.0")]);
    stage.commit("modules/cache/release.yaml", &release);
    text_is(&stage, "two").await;
    let users = json!({"apiVersion": THING, "kind": "Thing", "metadata": {"name": "users", "namespace": "default"}});
    apply(skr, &users).await;
    // The Manifest names v2, which the runtime no longer serves.
    let versions = [("v1", true, true), ("v2", false, false)].map(|(name, served, storage)| {
        json!({"name": name, "served": served, "storage": storage, "schema": {"openAPIV3Schema": {
            "type": "object", "properties": {"spec": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}}})
    });
    let crd = ("apiextensions.k8s.io/v1", "CustomResourceDefinition");
    merge(skr, crd, "", "things.example.org", json!({"spec": {"versions": versions}})).await;
    stage.commit("kymas/one.yaml", &kyma_without_modules());
    let message = format!("{WAITING}: Thing.example.org default/users");
    manifest(&stage, "the user's custom resource is waited for", waits(&message)).await;
    assert!(read(skr, "Thing", "default", "users").await.is_some());
    assert!(read(skr, "ConfigMap", "kyma-system", "cache-a").await.is_some(), "the module stays until then");
    delete(skr, (THING, "Thing"), "default", "users").await;
    stage.until_gone(skr, "CustomResourceDefinition", "", "things.example.org").await;
    stage.until_gone(&stage.kcp, "Manifest", "kcp-system", &manifest_of("cache")).await;

    // A definition without a default custom resource.
    let letters = stage::THING_CRD.replace("thing", "letter").replace("Thing", "Letter");
    stage.repository.write("modules/mailer/2.0.0/objects/crd.yaml", &letters).unwrap();
    stage.commit("kymas/one.yaml", &stage::kyma("one", &["mailer"]));
    stage.kyma_in("one", "Ready").await;
    let letter = json!({"apiVersion": THING, "kind": "Letter", "metadata": {"name": "users", "namespace": "default"}});
    let try_apply = async || harness::try_apply(skr, &letter).await.map_err(|error| error.to_string());
    eventually("the user's letter", SOON, try_apply).await;
    stage.commit("kymas/one.yaml", &kyma_without_modules());
    let mailer = manifest_of("mailer");
    let message = format!("{WAITING}: Letter.example.org default/users");
    stage.until("the letter is waited for", &stage.kcp, "Manifest", "kcp-system", &mailer, waits(&message)).await;
    delete(skr, (THING, "Letter"), "default", "users").await;
    stage.until_gone(skr, "CustomResourceDefinition", "", "letters.example.org").await;
    stage.until_gone(&stage.kcp, "Manifest", "kcp-system", &mailer).await;
}

/// E20, #64: enabled again in another channel, the module is upgraded while its Manifest stays `Deleting`. Then a new
/// Manifest and a new default custom resource follow.
async fn e20_a_module_enabled_in_another_channel_is_upgraded_while_its_removal_waits() {
    let stage = stage().await;
    hold_default(&stage, json!(["example.org/hold"])).await;
    stage.commit("kymas/one.yaml", &kyma_without_modules());
    let before = manifest(&stage, "the removal waits", waits(OF_DEFAULT)).await;
    let enabled = stage::kyma("one", &["cache"]).replace("name: cache,", "name: cache, channel: fast,");
    stage.commit("kymas/one.yaml", &enabled);
    text_is(&stage, "two").await;
    manifest(&stage, "the removal still waits", waits(OF_DEFAULT)).await;
    hold_default(&stage, json!([])).await;
    let after = manifest(&stage, "a new Manifest is ready", |manifest| {
        manifest["metadata"]["deletionTimestamp"].is_null() && manifest["status"]["state"] == "Ready"
    })
    .await;
    assert_ne!(before["metadata"]["uid"], after["metadata"]["uid"]);
    let thing = read(&stage.skrs[0], "Thing", "kyma-system", "cache-default").await.expect("a new one");
    assert!(thing["metadata"]["deletionTimestamp"].is_null());
    stage.kyma_in("one", "Ready").await;
}

/// E22: an unmanaged module leaves its objects without the ownership label, also when it is disabled afterwards.
/// Managed again, it has a Manifest again.
async fn e22_an_unmanaged_module_leaves_its_objects() {
    let stage = stage().await;
    let skr = &stage.skrs[0];
    let managed = stage::kyma("one", &["cache"]);
    let unmanaged = managed.replace("managed: true", "managed: false");
    let released = |map: &Value| map["metadata"]["labels"]["operator.kyma-project.io/managed-by"].is_null();
    let labelled = |map: &Value| map["metadata"]["labels"]["operator.kyma-project.io/managed-by"] == "kyma";
    stage.commit("kymas/one.yaml", &unmanaged);
    stage.until_gone(&stage.kcp, "Manifest", "kcp-system", &manifest_of("cache")).await;
    stage.until("it has no owner", skr, "ConfigMap", "kyma-system", "cache-a", released).await;
    assert!(read(skr, "Thing", "kyma-system", "cache-default").await.is_some());
    left_by_lifecycle_manager(skr).await;
    stage.commit("kymas/one.yaml", &managed);
    stage.until("it is managed again", skr, "ConfigMap", "kyma-system", "cache-a", labelled).await;
    stage.kyma_in("one", "Ready").await;
    let map = read(skr, "ConfigMap", "kyma-system", "cache-a").await.expect("it is there");
    assert_eq!(tidegate_core::adopt::managers(&map), ["tidegate"], "{map:#}");
    stage.commit("kymas/one.yaml", &unmanaged);
    stage.until_gone(&stage.kcp, "Manifest", "kcp-system", &manifest_of("cache")).await;
    stage.commit("kymas/one.yaml", &kyma_without_modules());
    stage
        .until("the Kyma forgets the module", &stage.kcp, "Kyma", "kcp-system", "one", |kyma| {
            kyma["status"]["modules"].as_array().is_none_or(Vec::is_empty)
        })
        .await;
    assert!(read(skr, "ConfigMap", "kyma-system", "cache-a").await.is_some(), "disabling it removes nothing");
}

/// Makes an object of the unmanaged module one that Lifecycle Manager left when it did the same.
async fn left_by_lifecycle_manager(skr: &kube::Client) {
    let released = read(skr, "ConfigMap", "kyma-system", "cache-a").await.expect("it is there");
    let metadata = &released["metadata"];
    assert!(metadata["annotations"].to_string().contains("owned-by"), "{released:#}");
    let map = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "data": released["data"],
        "metadata": {
            "name": "cache-a", "namespace": "kyma-system", "labels": metadata["labels"],
            "annotations": metadata["annotations"],
        },
    });
    delete(skr, ("v1", "ConfigMap"), "kyma-system", "cache-a").await;
    let applier = PatchParams::apply("declarative.kyma-project.io/applier").force();
    let maps = api(skr, ("v1", "ConfigMap"), "kyma-system").await;
    let left = maps.patch("cache-a", &applier, &Patch::Apply(&map)).await.expect("an apply");
    assert_eq!(left.metadata.managed_fields.map(|all| all.len()), Some(1), "no other client claims anything");
}

/// Kyma `one` with module `cache` under this policy.
fn with_policy(policy: &str) -> String {
    stage::kyma("one", &["cache"]).replace("name: cache,", &format!("name: cache, customResourcePolicy: {policy},"))
}

/// E22: with policy `Ignore`, there is no default custom resource; a user's own stays with the objects when the module
/// becomes unmanaged, and is taken as it is when the module is managed again.
async fn e22_a_module_without_a_default_resource_becomes_unmanaged_and_managed_again() {
    let stage = stage().await;
    let skr = &stage.skrs[0];
    stage.commit("kymas/one.yaml", &kyma_without_modules());
    stage.until_gone(&stage.kcp, "Manifest", "kcp-system", &manifest_of("cache")).await;
    stage.commit("kymas/one.yaml", &with_policy("Ignore"));
    manifest(&stage, "it is ready", |manifest| manifest["status"]["state"] == "Ready").await;
    assert!(read(skr, "Thing", "kyma-system", "cache-default").await.is_none());
    let users = json!({"apiVersion": THING, "kind": "Thing", "metadata": {"name": "users", "namespace": "default"}});
    apply(skr, &users).await;
    stage.commit("kymas/one.yaml", &with_policy("Ignore").replace("managed: true", "managed: false"));
    stage.until_gone(&stage.kcp, "Manifest", "kcp-system", &manifest_of("cache")).await;
    let released = |map: &Value| map["metadata"]["labels"]["operator.kyma-project.io/managed-by"].is_null();
    stage.until("it has no owner", skr, "ConfigMap", "kyma-system", "cache-a", released).await;
    assert!(read(skr, "Thing", "default", "users").await.is_some());
    stage.commit("kymas/one.yaml", &with_policy("Ignore"));
    manifest(&stage, "it is ready again", |manifest| manifest["status"]["state"] == "Ready").await;
    assert!(read(skr, "Thing", "default", "users").await.is_some());
    assert!(read(skr, "Thing", "kyma-system", "cache-default").await.is_none());
}

/// Row 62: the default custom resource is created once: an edit stays, and deleted it stays away. A policy that becomes
/// `CreateAndDelete` later is followed, and one that becomes `Ignore` leaves the resource alone.
async fn row_62_the_default_resource_is_created_once_and_a_new_policy_counts() {
    let stage = stage().await;
    let skr = &stage.skrs[0];
    let things = api(skr, (THING, "Thing"), "kyma-system").await;
    let edit = json!({"spec": {"size": 7}});
    merge(skr, (THING, "Thing"), "kyma-system", "cache-default", edit).await;
    let request = async |value: &str| {
        let request = json!({"metadata": {"annotations": {"tidegate.dev/reconcile-requested-at": value}}});
        merge(&stage.kcp, (KYMA, "Kyma"), "kcp-system", "one", request).await;
        stage
            .until("the request is handled", &stage.kcp, "Kyma", "kcp-system", "one", |kyma| {
                let mut all = kyma["status"]["conditions"].as_array().into_iter().flatten();
                all.any(|one| one["type"] == "tidegate.dev/ReconcileRequested" && one["message"] == value)
            })
            .await;
    };
    request("1").await;
    assert_eq!(things.get("cache-default").await.unwrap().data["spec"]["size"], 7, "a user's edit stays");
    delete(skr, (THING, "Thing"), "kyma-system", "cache-default").await;
    request("2").await;
    assert!(things.get_opt("cache-default").await.unwrap().is_none(), "it is created once");

    stage.commit("kymas/one.yaml", &kyma_without_modules());
    stage.until_gone(&stage.kcp, "Manifest", "kcp-system", &manifest_of("cache")).await;
    stage.commit("kymas/one.yaml", &with_policy("Ignore"));
    let is_under = |policy: &str| {
        let policy = policy.to_owned();
        move |manifest: &Value| {
            manifest["spec"]["customResourcePolicy"] == *policy && manifest["status"]["state"] == "Ready"
        }
    };
    manifest(&stage, "it is ready under Ignore", is_under("Ignore")).await;
    assert!(read(skr, "Thing", "kyma-system", "cache-default").await.is_none(), "it is not created");
    stage.commit("kymas/one.yaml", &with_policy("CreateAndDelete"));
    stage.until("the new policy creates it", skr, "Thing", "kyma-system", "cache-default", |_| true).await;
    let created = manifest(&stage, "it is ready", is_under("CreateAndDelete")).await;
    assert!(created["metadata"]["finalizers"].to_string().contains("resource.kyma-project.io/finalizer"));
    stage.commit("kymas/one.yaml", &with_policy("Ignore"));
    manifest(&stage, "it is ready under Ignore again", is_under("Ignore")).await;
    assert!(read(skr, "Thing", "kyma-system", "cache-default").await.is_some(), "it is the user's now");
}

/// Row 63: under `Ignore`, the custom resource with the name of the default one is a user's: it holds the removal.
async fn row_63_with_ignore_a_custom_resource_of_a_user_holds_the_removal() {
    let stage = stage().await;
    stage.commit("kymas/one.yaml", &with_policy("Ignore"));
    manifest(&stage, "the policy is Ignore", |manifest| {
        manifest["spec"]["customResourcePolicy"] == "Ignore" && manifest["status"]["state"] == "Ready"
    })
    .await;
    stage.commit("kymas/one.yaml", &kyma_without_modules());
    manifest(&stage, "the custom resource is waited for", |manifest| {
        let said = manifest["status"]["lastOperation"]["operation"].as_str().unwrap_or_default();
        manifest["status"]["state"] == "Deleting" && said.starts_with(WAITING)
    })
    .await;
    let skr = &stage.skrs[0];
    assert!(read(skr, "ConfigMap", "kyma-system", "cache-a").await.is_some(), "the module stays until then");
    delete(skr, (THING, "Thing"), "kyma-system", "cache-default").await;
    stage.until_gone(skr, "ConfigMap", "kyma-system", "cache-a").await;
    stage.until_gone(&stage.kcp, "Manifest", "kcp-system", &manifest_of("cache")).await;
}

/// Row 15, §2.3: the Kyma has upstream's finalizer, its Manifests have upstream's three, and the Kyma in the runtime
/// has none. The purge finalizer of an older Lifecycle Manager goes, and that of others stays until they remove it.
async fn row_15_finalizers_of_a_kyma_are_those_of_upstream_and_the_legacy_one_is_stripped() {
    let stage = stage().await;
    let of = |object: &Value| object["metadata"]["finalizers"].clone();
    let kyma = read(&stage.kcp, "Kyma", "kcp-system", "one").await.unwrap();
    assert_eq!(of(&kyma), json!(["operator.kyma-project.io/Kyma"]));
    assert_eq!(of(&read(&stage.skrs[0], "Kyma", "kyma-system", "default").await.unwrap()), Value::Null);
    let manifest = read(&stage.kcp, "Manifest", "kcp-system", &manifest_of("cache")).await.unwrap();
    let expected =
        ["declarative.kyma-project.io/finalizer", "label-removal-finalizer", "resource.kyma-project.io/finalizer"];
    assert_eq!(of(&manifest), json!(expected));
    suspend(&stage).await;
    let (purge, theirs) =
        ("operator.kyma-project.io/purge-finalizer", "operator.kyma-project.io/runtime-monitoring-finalizer");
    let finalizers = json!(["operator.kyma-project.io/Kyma", purge, theirs]);
    merge(&stage.kcp, (KYMA, "Kyma"), "kcp-system", "one", json!({"metadata": {"finalizers": finalizers}})).await;
    delete(&stage.kcp, (KYMA, "Kyma"), "kcp-system", "one").await;
    stage
        .until("only theirs is left", &stage.kcp, "Kyma", "kcp-system", "one", |kyma| of(kyma) == json!([theirs]))
        .await;
    assert!(read(&stage.skrs[0], "ConfigMap", "kyma-system", "cache-a").await.is_none(), "all else is done");
    merge(&stage.kcp, (KYMA, "Kyma"), "kcp-system", "one", json!({"metadata": {"finalizers": []}})).await;
    stage.until_gone(&stage.kcp, "Kyma", "kcp-system", "one").await;
}

/// Row 31, §3.5: the runtime loses what reports changes, the catalog's CRDs, its Kyma and the CRD of that, in this
/// order. A custom resource of a user holds the Kyma in the control plane, with its finalizer.
async fn row_31_a_kyma_is_removed_in_the_order_of_upstream() {
    let stage = stage().await;
    let skr = &stage.skrs[0];
    let users = json!({"apiVersion": THING, "kind": "Thing", "metadata": {"name": "users", "namespace": "default"}});
    apply(skr, &users).await;
    stage.rests().await;
    suspend(&stage).await;
    let marks = stage.marks();
    delete(&stage.kcp, (KYMA, "Kyma"), "kcp-system", "one").await;
    manifest(&stage, "the user's custom resource is waited for", |manifest| {
        let said = manifest["status"]["lastOperation"]["operation"].as_str().unwrap_or_default();
        manifest["metadata"]["deletionTimestamp"].is_string() && said.starts_with(WAITING)
    })
    .await;
    let kyma = stage.kyma_in("one", "Deleting").await;
    assert_eq!(kyma["metadata"]["finalizers"], json!(["operator.kyma-project.io/Kyma"]));
    delete(skr, (THING, "Thing"), "default", "users").await;
    stage.until_gone(&stage.kcp, "Kyma", "kcp-system", "one").await;
    let sent: Vec<String> = stage.requests_since(&marks).into_iter().filter(|line| line.contains(" delete ")).collect();
    let at = |what: &str| {
        let found = sent.iter().position(|line| line.ends_with(what));
        found.unwrap_or_else(|| panic!("no delete of {what}: {sent:#?}"))
    };
    let group = "operator.kyma-project.io";
    let order = [
        at("skr-webhook"),
        at(&format!("moduletemplates.{group}")),
        at(&format!("modulereleasemetas.{group}")),
        at(" default"),
        at(&format!("kymas.{group}")),
    ];
    assert!(order.is_sorted(), "{sent:#?}");
}

/// Row 65: a Kyma makes a module unmanaged and drops it before any pass: the objects stay, without the ownership label.
async fn row_65_a_module_that_is_released_and_dropped_between_two_passes_leaves_its_objects() {
    let stage = stage().await;
    suspend(&stage).await;
    let label = |value: Value| json!({"metadata": {"labels": {SKIP: value}}});
    let change = async |patch: Value| merge(&stage.kcp, (KYMA, "Kyma"), "kcp-system", "one", patch).await;
    change(label(json!("true"))).await;
    change(json!({"spec": {"modules": [{"name": "cache", "managed": false}]}})).await;
    change(json!({"spec": {"modules": [{"name": "mailer", "managed": true}]}})).await;
    change(label(Value::Null)).await;
    stage.until_gone(&stage.kcp, "Manifest", "kcp-system", &manifest_of("cache")).await;
    let skr = &stage.skrs[0];
    let map = read(skr, "ConfigMap", "kyma-system", "cache-a").await.expect("it stays");
    assert!(map["metadata"]["labels"]["operator.kyma-project.io/managed-by"].is_null(), "{map}");
    assert!(read(skr, "Thing", "kyma-system", "cache-default").await.is_some());
    stage.rests().await;
    assert!(read(skr, "ConfigMap", "kyma-system", "cache-a").await.is_some());
}

/// E29: a finalizer of others on a Manifest holds the Kyma until the access Secret is gone.
async fn e29_without_its_secret_a_kyma_ends_despite_the_finalizers_of_others() {
    let stage = stage().await;
    let name = manifest_of("cache");
    let live = api(&stage.kcp, (KYMA, "Manifest"), "kcp-system").await.get(&name).await.unwrap();
    let mut finalizers = live.metadata.finalizers.unwrap_or_default();
    finalizers.push("example.org/theirs".to_owned());
    let patch = json!({"metadata": {"finalizers": finalizers}});
    merge(&stage.kcp, (KYMA, "Manifest"), "kcp-system", &name, patch).await;
    suspend(&stage).await;
    delete(&stage.kcp, (KYMA, "Kyma"), "kcp-system", "one").await;
    let message = "waiting as other finalizers are present: [example.org/theirs]";
    manifest(&stage, "the finalizer holds it", waits(message)).await;
    assert!(read(&stage.kcp, "Kyma", "kcp-system", "one").await.is_some());
    let secret = stage::access_secret("one", &stage.landscape.skrs[0]);
    delete(&stage.kcp, ("v1", "Secret"), "kcp-system", secret["metadata"]["name"].as_str().unwrap()).await;
    stage.until_gone(&stage.kcp, "Manifest", "kcp-system", &name).await;
    stage.until_gone(&stage.kcp, "Kyma", "kcp-system", "one").await;
}

/// E37: without access, the Kyma and its Manifests are in Error. With a new Secret they are as before, and nothing is
/// written to the runtime but the status of its Kyma.
async fn e37_without_rights_manifests_are_in_error_until_access_is_back() {
    let stage = stage().await;
    let before = read(&stage.skrs[0], "ConfigMap", "kyma-system", "cache-a").await.unwrap();
    let skr = &stage.landscape.skrs[0];
    let good = stage::access_secret("one", skr);
    let mut bad = good.clone();
    let denied = skr.kubeconfig_of("nobody", None).text().replace("client-certificate-data", "client-certificate-gone");
    bad["data"]["config"] = json!(base64(&denied));
    apply(&stage.kcp, &bad).await;
    let is_error = |object: &Value| object["status"]["state"] == "Error";
    let in_error = manifest(&stage, "the Manifest is in Error", is_error).await;
    let message = in_error["status"]["lastOperation"]["operation"].as_str().unwrap_or_default().to_owned();
    let kyma = stage.until("the Kyma as well", &stage.kcp, "Kyma", "kcp-system", "one", is_error).await;
    assert_eq!(kyma["status"]["lastOperation"]["operation"], message);
    apply(&stage.kcp, &good).await;
    manifest(&stage, "the Manifest is as before", |manifest| manifest["status"]["state"] == "Ready").await;
    stage.kyma_in("one", "Ready").await;
    let after = read(&stage.skrs[0], "ConfigMap", "kyma-system", "cache-a").await.unwrap();
    assert_eq!(before["metadata"]["resourceVersion"], after["metadata"]["resourceVersion"]);
}

fn base64(text: &str) -> String {
    use base64::{Engine as _, engine::general_purpose::STANDARD};
    STANDARD.encode(text)
}

/// Row 68: a Manifest that neither the Kyma nor Tidegate knows stays, and so does one whose Kyma does not exist. After
/// five minutes each says so, with one Event. Deleted by a user, they go.
async fn row_68_an_orphan_stays_and_says_so() {
    let stage = stage().await;
    let orphans = [("by-hand", "one"), ("left", "gone")];
    let mut orphan = read(&stage.kcp, "Manifest", "kcp-system", &manifest_of("cache")).await.unwrap();
    orphan.as_object_mut().unwrap().remove("status");
    for (name, kyma) in orphans {
        orphan["metadata"] = json!({
            "name": name, "namespace": "kcp-system", "finalizers": ["declarative.kyma-project.io/finalizer"],
            "labels": {"operator.kyma-project.io/kyma-name": kyma, "operator.kyma-project.io/module-name": "other"},
        });
        apply(&stage.kcp, &orphan).await;
    }
    tokio::time::sleep(Duration::from_secs(200)).await;
    for (name, _) in orphans {
        let young = read(&stage.kcp, "Manifest", "kcp-system", name).await.expect("it stays");
        assert!(young["metadata"]["deletionTimestamp"].is_null() && young["status"]["state"].is_null(), "{name}");
    }
    tokio::time::sleep(Duration::from_secs(100)).await;
    for ((name, _), why) in
        orphans.iter().zip(["manifest is not referenced in Kyma status", "parent Kyma does not exist"])
    {
        let is_error = |manifest: &Value| manifest["status"]["state"] == "Error";
        let old = stage.until("the orphan says so", &stage.kcp, "Manifest", "kcp-system", name, is_error).await;
        let expected = format!("orphaned manifest detected: {why}");
        assert_eq!(old["status"]["lastOperation"]["operation"], expected);
    }
    tokio::time::sleep(Duration::from_secs(600)).await;
    let events: kube::Api<k8s_openapi::api::events::v1::Event> = kube::Api::namespaced(stage.kcp.clone(), "kcp-system");
    let events = events.list(&kube::api::ListParams::default()).await.unwrap().items;
    let of_orphans = events.iter().filter(|event| event.reason.as_deref() == Some("OrphanedManifest"));
    let mut about: Vec<&str> = of_orphans.filter_map(|event| event.regarding.as_ref()?.name.as_deref()).collect();
    about.sort_unstable();
    assert_eq!(about, ["by-hand", "left"]);
    stage.kyma_in("one", "Ready").await;
    for (name, _) in orphans {
        delete(&stage.kcp, (KYMA, "Manifest"), "kcp-system", name).await;
        stage.until_gone(&stage.kcp, "Manifest", "kcp-system", name).await;
    }
    assert!(read(&stage.skrs[0], "ConfigMap", "kyma-system", "cache-a").await.is_some());
}
