//! Texts that tools compare for equality, as rows of the conformance tables: the daemon on real servers.

use k8s_openapi::api::events::v1::Event;
use kube::{Api, api::ListParams};
use serde_json::{Value, json};
use tidegate_testbed::Extent;

use crate::{
    harness::{SOON, eventually},
    stage::{self, Stage, read},
};

async fn running(files: Vec<(String, String)>, more: &[&str]) -> Stage {
    let files: Vec<(&str, String)> = files.iter().map(|(path, text)| (path.as_str(), text.clone())).collect();
    let stage = Stage::real(1, Extent::Controllers, &files, more).await;
    stage.start();
    stage
}

/// Waits until Kyma `one` is in this state, with this message of a module in KCP and in the runtime.
async fn says(stage: &Stage, state: &str, module: &str, message: &str) -> Value {
    let found = |kyma: &Value| {
        let mut modules = kyma["status"]["modules"].as_array().into_iter().flatten();
        kyma["status"]["state"] == state && modules.any(|one| one["name"] == module && one["message"] == message)
    };
    let what = format!("{module} says: {message}");
    stage.until(&what, &stage.skrs[0], "Kyma", "kyma-system", "default", &found).await;
    stage.until(&what, &stage.kcp, "Kyma", "kcp-system", "one", &found).await
}

/// E23: the version stays, the message is exact, and what to do is beside it.
#[tokio::test(flavor = "multi_thread")]
async fn e23_a_switch_to_a_lower_channel_is_refused_with_the_exact_text() {
    let on = |channel: &str| stage::kyma("one", &["cache"]).replace("regular", channel);
    let mut files = stage::files(0);
    files.push(("kymas/one.yaml".to_owned(), on("fast")));
    let stage = running(files, &[]).await;
    stage.kyma_in("one", "Ready").await;
    stage.commit("kymas/one.yaml", &on("regular"));
    let text = "module template update not allowed: ignore channel skew (from fast to regular), as a higher version \
                (1.1.0) of the module was previously installed";
    let kyma = says(&stage, "Warning", "cache", text).await;
    assert_eq!(kyma["status"]["modules"][0]["version"], "1.1.0");
    let hint = "module cache: to go back to 1.0.0, commit annotation `tidegate.dev/allow-downgrade: cache-1.0.0` on \
                ModuleReleaseMeta cache or on the Kyma";
    let conditions = kyma["status"]["conditions"].as_array().unwrap();
    assert!(conditions.iter().any(|one| one["type"] == "tidegate.dev/Hints" && one["message"] == hint), "{kyma}");
    let events: Api<Event> = Api::namespaced(stage.kcp.clone(), "kcp-system");
    eventually("an Event has both", SOON, async || {
        let all = events.list(&ListParams::default()).await.map_err(|error| error.to_string())?.items;
        let notes: Vec<String> = all.into_iter().filter_map(|event| event.note).collect();
        let note = format!("module cache: {text}; {}", hint.trim_start_matches("module cache: "));
        if notes.contains(&note) { Ok(()) } else { Err(format!("{notes:#?}")) }
    })
    .await;
    let status = stage.command(&["status"]).await;
    let shown = String::from_utf8_lossy(&status.stdout).into_owned();
    assert!(shown.contains(&format!("next: {hint}")), "{shown}");

    stage.commit("kymas/one.yaml", &on("fast"));
    let kyma = stage.kyma_in("one", "Ready").await;
    assert!(!kyma["status"]["conditions"].to_string().contains("tidegate.dev/Hints"), "{kyma}");
}

/// E33: a selector without a list, a list without a selector, and an account that is removed: each its own text, and a
/// forced removal.
#[tokio::test(flavor = "multi_thread")]
async fn e33_restricted_modules_are_refused_with_the_exact_texts() {
    let selected = |module: &str, version: &str, account: &str| {
        let selector = format!("  kymaSelector: {{matchLabels: {{kyma-project.io/global-account-id: {account}}}}}\n");
        format!("{}{selector}", stage::release(module, &[("regular", version)]))
    };
    let mut files = stage::files(0);
    let release = |files: &mut Vec<(String, String)>, module: &str, text: String| {
        files.retain(|(path, _)| path != &format!("modules/{module}/release.yaml"));
        files.push((format!("modules/{module}/release.yaml"), text));
    };
    release(&mut files, "cache", selected("cache", "1.0.0", "a"));
    release(&mut files, "mailer", selected("mailer", "2.0.0", "a"));
    let labelled = stage::kyma("one", &["cache"])
        .replace("namespace: kcp-system}", "namespace: kcp-system, labels: {kyma-project.io/global-account-id: a}}");
    files.push(("kymas/one.yaml".to_owned(), labelled.clone()));
    let stage = running(files, &["--restricted-default-modules=cache"]).await;
    stage.kyma_in("one", "Ready").await;

    stage.commit("modules/cache/release.yaml", &selected("cache", "1.0.0", "b"));
    let denied = "module template not allowed: restricted module not allowed for this Kyma";
    says(&stage, "Error", "cache", denied).await;
    stage.until_gone(&stage.skrs[0], "ConfigMap", "kyma-system", "cache-a").await;
    stage.commit("modules/cache/release.yaml", &stage::release("cache", &[("regular", "1.0.0")]));
    says(&stage, "Error", "cache", "module template not allowed").await;
    stage.commit("modules/cache/release.yaml", &selected("cache", "1.0.0", "a"));
    stage.kyma_in("one", "Ready").await;

    stage.commit("kymas/one.yaml", &labelled.replace("{name: cache, managed: true}", "{name: mailer, managed: true}"));
    let mistaken = "module template not allowed: module has kymaSelector but is not in restricted modules list";
    says(&stage, "Error", "mailer", mistaken).await;
    assert!(read(&stage.skrs[0], "ConfigMap", "kyma-system", "mailer-a").await.is_none());
}

/// I10: a cluster-scoped default custom resource has no namespace in the status of the module; a mandatory module
/// cannot be enabled.
#[tokio::test(flavor = "multi_thread")]
async fn i10_a_cluster_scoped_resource_has_no_namespace_and_a_mandatory_module_is_refused() {
    let mut files = stage::files(0);
    for (path, text) in &mut files {
        if path.ends_with("crd.yaml") {
            *text = text.replace("scope: Namespaced", "scope: Cluster");
        }
        if path == "modules/cache/1.0.0/module-template.yaml" {
            *text = text
                .replace("annotations: {", "annotations: {operator.kyma-project.io/is-cluster-scoped: 'true', ")
                .replace("name: cache-default, namespace: kyma-system", "name: cache-default");
        }
        if path == "modules/mailer/release.yaml" {
            *text = text.replace("channels: [{channel: regular, version: 2.0.0}]", "mandatory: {version: 2.0.0}");
        }
    }
    files.push(("kymas/one.yaml".to_owned(), stage::kyma("one", &["cache", "mailer"])));
    let stage = running(files, &[]).await;
    let text = "no templates were found: for module mailer in channel regular ";
    let kyma = says(&stage, "Warning", "mailer", text).await;
    let holds = |kyma: &Value| {
        let module = &kyma["status"]["modules"][0];
        module["state"] == "Ready" && module["resource"]["metadata"]["name"] == "cache-default"
    };
    let kyma = match holds(&kyma) {
        true => kyma,
        false => stage.until("cache is ready", &stage.kcp, "Kyma", "kcp-system", "one", holds).await,
    };
    let namespace = &kyma["status"]["modules"][0]["resource"]["metadata"]["namespace"];
    assert!(*namespace == json!("") || namespace.is_null(), "{namespace}");
    stage.commit("kymas/one.yaml", &stage::kyma("one", &["cache"]));
    stage.kyma_in("one", "Ready").await;
}
