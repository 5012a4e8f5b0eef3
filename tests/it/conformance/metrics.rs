//! Metrics and Events, as rows of the conformance tables.

use std::{collections::BTreeMap, time::Duration};

use k8s_openapi::api::events::v1::Event;
use kube::{
    Api,
    api::{DeleteParams, ListParams, Patch, PatchParams},
};
use serde_json::{Value, json};

use crate::{
    harness::{self, SOON, apply, eventually},
    stage::{self, Stage, read, scenarios},
};

scenarios! {
    row_33_each_step_of_a_removal_is_an_event_with_lifecycle_managers_reason,
    row_33_a_removal_without_progress_is_stuck_and_says_why_once,
    row_90_a_manifest_of_a_deleted_mandatory_module_that_cannot_be_deleted_is_an_event,
    incident_3523_a_namespace_that_never_ends_costs_no_storm,
    ;
    on real servers:
    e08_states_and_requeue_reasons_are_metrics_and_a_deleted_kyma_leaves_no_series,
}

const KYMA: &str = "operator.kyma-project.io/v1beta2";

async fn api(client: &kube::Client, (version, kind): (&str, &str), namespace: &str) -> Api<kube::api::DynamicObject> {
    let sample = json!({"apiVersion": version, "kind": kind, "metadata": {"name": "any", "namespace": namespace}});
    harness::api_of(client, &sample).await.expect("a kind that is served")
}

async fn merge(client: &kube::Client, kind: (&str, &str), namespace: &str, name: &str, patch: Value) {
    let api = api(client, kind, namespace).await;
    api.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.expect("a patch");
}

async fn delete(client: &kube::Client, kind: (&str, &str), namespace: &str, name: &str) {
    api(client, kind, namespace).await.delete(name, &DeleteParams::default()).await.expect("a delete");
}

/// Git would declare deleted definitions again.
async fn suspend(stage: &Stage) {
    let patch = json!({"spec": {"suspend": true}});
    merge(&stage.kcp, ("tidegate.dev/v1alpha1", "GitSource"), "kcp-system", "landscape", patch).await;
}

async fn stage_of(files: Vec<(String, String)>) -> Stage {
    let files: Vec<(&str, String)> = files.iter().map(|(path, text)| (path.as_str(), text.clone())).collect();
    let stage = Stage::new(1, &files).await;
    stage.start();
    stage.kyma_in("one", "Ready").await;
    stage
}

/// The Events of Tidegate.
async fn events(stage: &Stage) -> Vec<Event> {
    let api: Api<Event> = Api::namespaced(stage.kcp.clone(), "kcp-system");
    let ours = |event: &Event| event.reporting_controller.as_deref() == Some("tidegate.dev/tidegate");
    api.list(&ListParams::default()).await.expect("a list").items.into_iter().filter(ours).collect()
}

/// The notes of the Events about an object with this reason.
async fn notes(stage: &Stage, about: &str, reason: &str) -> Vec<String> {
    let is = |event: &Event| {
        event.reason.as_deref() == Some(reason)
            && event.regarding.as_ref().and_then(|object| object.name.as_deref()) == Some(about)
    };
    events(stage).await.into_iter().filter(is).filter_map(|event| event.note).collect()
}

/// The samples of a scrape, by name and labels.
async fn scrape(stage: &Stage) -> Result<BTreeMap<String, f64>, String> {
    let (status, text) = stage.ask("metrics", "/metrics").await?;
    assert_eq!(status, 200);
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    Ok(lines
        .filter_map(|line| line.rsplit_once(' '))
        .filter_map(|(key, value)| Some((key.to_owned(), value.parse().ok()?)))
        .collect())
}

/// E08: the states of Kyma and modules are 1 for the present one; the requeue reasons of Lifecycle Manager grow; all
/// series of a deleted Kyma go.
async fn e08_states_and_requeue_reasons_are_metrics_and_a_deleted_kyma_leaves_no_series() {
    let mut files = stage::files(1);
    for (path, text) in &mut files {
        if path == "kymas/one.yaml" {
            *text = text.replace(
                "metadata: {name: one, namespace: kcp-system}",
                "metadata: {name: one, namespace: kcp-system, labels: {kyma-project.io/instance-id: i-1}, \
                 annotations: {skr-domain: one.kyma.example.org}}",
            );
        }
    }
    let stage = stage_of(files).await;
    let kyma = |state: &str| {
        format!("lifecycle_mgr_kyma_state{{kyma_name=\"one\",state=\"{state}\",shoot=\"one\",instance_id=\"i-1\"}}")
    };
    let module = |module: &str, state: &str| {
        format!(
            "lifecycle_mgr_module_state{{module_name=\"{module}\",kyma_name=\"one\",state=\"{state}\",shoot=\"one\",\
             instance_id=\"i-1\"}}"
        )
    };
    let reason = |reason: &str, kind: &str| {
        format!("lifecycle_mgr_requeue_reason_total{{requeue_reason=\"{reason}\",requeue_type=\"{kind}\"}}")
    };
    // What the daemon has written reaches its metrics with the next event of its watch.
    let samples = eventually("what the status says is in the metrics", SOON, async || {
        let samples = scrape(&stage).await?;
        let value = |key: &str| samples.get(key).copied();
        let states = [
            (kyma("Ready"), 1.0),
            (kyma("Error"), 0.0),
            (module("cache", "Ready"), 1.0),
            (module("mailer", "Unmanaged"), 0.0),
        ];
        let reasons = [
            ("initial_state_handling", 1.0),
            ("manifest_initialize", 2.0),
            ("manifest_add_finalizer", 2.0),
            ("manifest_reconcile_finished", 2.0),
        ];
        let are_states = states.iter().all(|(key, wanted)| value(key) == Some(*wanted));
        let are_reasons = reasons
            .iter()
            .all(|(name, at_least)| value(&reason(name, "intended")).is_some_and(|count| *at_least <= count));
        if are_states && are_reasons { Ok(samples) } else { Err(format!("{samples:#?}")) }
    })
    .await;
    // No name but Lifecycle Manager's is among them.
    let known = [
        "kyma_",
        "labels_and_finalizers_update",
        "crds_sync",
        "image_pull_secret_sync",
        "manifest_",
        "module_catalog_sync",
        "skr_webhook_installation",
        "initial_state_handling",
        "sync_context_retrieval",
        "remote_",
        "spec_replacement_",
        "status_sync_to_remote",
        "processing_kyma_state",
    ];
    let of_reasons = samples.keys().filter_map(|key| key.split("requeue_reason=\"").nth(1));
    for found in of_reasons {
        assert!(known.iter().any(|known| found.starts_with(known)), "{found}");
    }
    for gauge in ["lifecycle_mgr_mandatory_modules", "lifecycle_mgr_maintenance_window_config_read_success"] {
        assert!(samples.contains_key(gauge), "{gauge}");
    }

    // A disabled module loses its series, and one that is enabled again gets them.
    stage.commit("kymas/one.yaml", &stage::kyma("one", &["cache"]));
    eventually("the series of the module go", SOON * 2, async || {
        let samples = scrape(&stage).await?;
        let left: Vec<&String> = samples.keys().filter(|key| key.contains("module_name=\"mailer\"")).collect();
        if left.is_empty() { Ok(()) } else { Err(format!("{left:?}")) }
    })
    .await;

    suspend(&stage).await;
    delete(&stage.kcp, (KYMA, "Kyma"), "kcp-system", "one").await;
    stage.until_gone(&stage.kcp, "Kyma", "kcp-system", "one").await;
    eventually("all series of the Kyma go", SOON, async || {
        let samples = scrape(&stage).await?;
        let left: Vec<&String> = samples.keys().filter(|key| key.contains("kyma_name=\"one\"")).collect();
        let is_counted =
            ["kyma_status_update_to_deleting", "manifest_crs_cleanup", "remote_kyma_deletion", "kyma_deletion"]
                .iter()
                .all(|name| samples.get(&reason(name, "intended")).is_some_and(|count| 1.0 <= *count));
        if left.is_empty() && is_counted { Ok(()) } else { Err(format!("{left:?}: {samples:#?}")) }
    })
    .await;
}

/// #33: the reasons of the steps are upstream's, and so is their order.
async fn row_33_each_step_of_a_removal_is_an_event_with_lifecycle_managers_reason() {
    let mut files = stage::files(1);
    files.push(("watcher.yaml".to_owned(), stage::WATCHER.to_owned()));
    let stage = stage_of(files).await;
    suspend(&stage).await;
    delete(&stage.kcp, (KYMA, "Kyma"), "kcp-system", "one").await;
    stage.until_gone(&stage.kcp, "Kyma", "kcp-system", "one").await;
    let expected = [
        "SetKcpKymaStateDeleting",
        "SetSkrKymaStateDeleting",
        "DeleteManifests",
        "DeleteSkrWebhookResources",
        "DeleteSkrModuleTemplateCrd",
        "DeleteSkrModuleReleaseMetaCrd",
        "DeleteSkrKyma",
        "DeleteSkrKymaCrd",
        "DropKymaFinalizer",
    ];
    eventually("all steps are Events", SOON, async || {
        let events = events(&stage).await;
        let said = |reason: &str| events.iter().filter(|event| event.reason.as_deref() == Some(reason)).count();
        let counts: Vec<(&str, usize)> = expected.iter().map(|reason| (*reason, said(reason))).collect();
        if counts.iter().all(|(_, count)| *count == 1) { Ok(()) } else { Err(format!("{counts:?}")) }
    })
    .await;
    assert!(notes(&stage, "one", "KymaDeletionStuck").await.is_empty());
}

/// #33: what holds a removal for five minutes is one Event.
async fn row_33_a_removal_without_progress_is_stuck_and_says_why_once() {
    let stage = stage_of(stage::files(1)).await;
    let hold = json!({"metadata": {"finalizers": ["example.org/hold"]}});
    merge(&stage.skrs[0], ("v1", "ConfigMap"), "kyma-system", "mailer-a", hold).await;
    suspend(&stage).await;
    delete(&stage.kcp, (KYMA, "Kyma"), "kcp-system", "one").await;
    tokio::time::sleep(Duration::from_secs(240)).await;
    assert!(notes(&stage, "one", "KymaDeletionStuck").await.is_empty(), "four minutes may be normal");
    tokio::time::sleep(Duration::from_secs(600)).await;
    let said = notes(&stage, "one", "KymaDeletionStuck").await;
    assert_eq!(said.len(), 1, "{said:?}");
    assert!(said[0].contains("no progress for 5 minutes: module mailer: deletion is not yet finished"), "{said:?}");
    assert_eq!(notes(&stage, "one", "EnsureManifestDeletion").await.len(), 1);
    merge(&stage.skrs[0], ("v1", "ConfigMap"), "kyma-system", "mailer-a", json!({"metadata": {"finalizers": null}}))
        .await;
    stage.until_gone(&stage.kcp, "Kyma", "kcp-system", "one").await;
}

/// #90: `DeletingMandatoryModuleManifestError` on the ModuleReleaseMeta.
async fn row_90_a_manifest_of_a_deleted_mandatory_module_that_cannot_be_deleted_is_an_event() {
    let mut files = stage::files(1);
    files.extend(stage::module("warden", "1.0.0", "guards"));
    let release = stage::release("warden", &[]).replace("channels: []", "mandatory: {version: 1.0.0}");
    files.push(("modules/warden/release.yaml".to_owned(), release));
    let stage = stage_of(files).await;
    let installed = |map: &Value| map["data"]["text"] == "guards";
    stage.until("it is installed", &stage.skrs[0], "ConfigMap", "kyma-system", "warden-a", installed).await;
    suspend(&stage).await;
    // A policy of the control plane that denies the deletion of Manifests.
    let policy = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": "no-deletion"},
        "webhooks": [{
            "name": "no-deletion.example.org", "admissionReviewVersions": ["v1"], "sideEffects": "None",
            "failurePolicy": "Fail", "timeoutSeconds": 1,
            "clientConfig": {"url": "https://127.0.0.1:1/deny"},
            "rules": [{
                "apiGroups": ["operator.kyma-project.io"], "apiVersions": ["*"], "resources": ["manifests"],
                "operations": ["DELETE"], "scope": "*",
            }],
        }],
    });
    apply(&stage.kcp, &policy).await;
    delete(&stage.kcp, (KYMA, "ModuleReleaseMeta"), "kcp-system", "warden").await;
    eventually("the ModuleReleaseMeta says why it stays", SOON, async || {
        let said = notes(&stage, "warden", "DeletingMandatoryModuleManifestError").await;
        if said.len() == 1 && said[0].starts_with("cannot delete Manifest kcp-system/") {
            Ok(())
        } else {
            Err(format!("{said:?}"))
        }
    })
    .await;
    delete(&stage.kcp, ("admissionregistration.k8s.io/v1", "ValidatingWebhookConfiguration"), "", "no-deletion").await;
    stage.until_gone(&stage.kcp, "ModuleReleaseMeta", "kcp-system", "warden").await;
    assert!(read(&stage.skrs[0], "ConfigMap", "kyma-system", "warden-a").await.is_none());
}

/// How often each line of the log occurs that is a warning or an error, without what differs between attempts.
fn complaints(stage: &Stage) -> BTreeMap<String, usize> {
    let log = std::fs::read_to_string(stage.log()).expect("a log");
    let lines = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let mut found = BTreeMap::new();
    for line in lines.filter(|line| matches!(line["level"].as_str(), Some("WARN" | "ERROR"))) {
        let mut context = line["context"].clone();
        if let Some(context) = context.as_object_mut() {
            context.retain(|key, _| !matches!(key.as_str(), "attempt" | "trigger" | "pass"));
        }
        *found.entry(format!("{} {} {context}", line["level"], line["msg"])).or_default() += 1;
    }
    found
}

/// #3523: in one runtime kyma-system stays Terminating, with seven modules in it. Upstream, twelve hours of this cost
/// 700,000 error lines and 2,500 requests a second.
async fn incident_3523_a_namespace_that_never_ends_costs_no_storm() {
    let modules = ["alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta"];
    let mut files = Vec::new();
    for module in modules {
        files.extend(stage::module(module, "1.0.0", "one"));
        files.push((format!("modules/{module}/release.yaml"), stage::release(module, &[("regular", "1.0.0")])));
    }
    files.push(("kymas/one.yaml".to_owned(), stage::kyma("one", &modules)));
    let stage = stage_of(files).await;
    let held = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "held", "namespace": "kyma-system", "finalizers": ["example.org/hold"]},
    });
    apply(&stage.skrs[0], &held).await;
    delete(&stage.skrs[0], ("v1", "Namespace"), "", "kyma-system").await;
    let request = json!({"metadata": {"annotations": {"tidegate.dev/reconcile-requested-at": "now"}}});
    merge(&stage.kcp, (KYMA, "Kyma"), "kcp-system", "one", request).await;
    stage.kyma_in("one", "Error").await;

    tokio::time::sleep(Duration::from_secs(120)).await;
    let (marks, before) = (stage.marks(), complaints(&stage));
    const MINUTES: u64 = 30;
    tokio::time::sleep(Duration::from_secs(MINUTES * 60)).await;
    // All requests of the daemon, but those for its Lease.
    let requests: usize = stage
        .landscape
        .servers()
        .zip(&marks)
        .map(|(server, mark)| {
            let records = server.records_since(*mark).into_iter();
            records.filter(|record| record.user == stage::USER && !record.resource.starts_with("leases")).count()
        })
        .sum();
    assert!(requests < usize::try_from(MINUTES * 60).unwrap(), "{requests} requests in {MINUTES} minutes");
    // A cause has one line, and one more for each step of the back-off, which ends at two minutes.
    const STEPS_MAX: usize = 9;
    let after = complaints(&stage);
    for (line, count) in &after {
        assert!(*count <= STEPS_MAX, "{count} times {line}");
    }
    let more: usize = after.values().sum::<usize>() - before.values().sum::<usize>();
    assert!(more <= modules.len(), "{more} lines more in {MINUTES} minutes: {after:#?}");
    let mut said: BTreeMap<String, usize> = BTreeMap::new();
    for event in events(&stage).await {
        let about = event.regarding.and_then(|object| object.name).unwrap_or_default();
        *said.entry(format!("{about} {:?}: {:?}", event.reason, event.note)).or_default() += 1;
    }
    assert!(said.values().all(|count| *count == 1), "{said:#?}");
    eprintln!("incident 3523: {requests} requests in {MINUTES} minutes, {} lines, {} Events", after.len(), said.len());

    // It heals once the namespace can end.
    merge(&stage.skrs[0], ("v1", "ConfigMap"), "kyma-system", "held", json!({"metadata": {"finalizers": null}})).await;
    stage.kyma_in("one", "Ready").await;
}
