//! Kymas, their runtimes and the access to them, as rows of the conformance tables: the daemon on real servers.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use kube::api::DeleteParams;
use serde_json::{Value, json};
use tidegate_core::api::names::{FIELD_MANAGER, annotation, label};
use tidegate_testbed::Extent;

use super::land::{self, KYMA, MANIFEST, THING, kyma};
use crate::{
    agent_path::world::{AGENT, gateway},
    harness::{self, holds},
    stage::{self, Stage, read},
};

const FIPS: &str = "fips140=only,tlsmlkem=0";
const DEPLOYMENT: land::Kind<'static> = ("apps/v1", "Deployment");
const DEFINITION: land::Kind<'static> = ("apiextensions.k8s.io/v1", "CustomResourceDefinition");

/// E01: a Kyma becomes Ready in the control plane and in its runtime, with the agent; deleted, it goes from the runtime
/// first. E09, I04: the labels of everything in the runtime. E06: the FIPS mode of the daemon and of the agent. I01:
/// all of it is written by one field manager.
#[tokio::test(flavor = "multi_thread")]
async fn e01_e06_e09_i01_i04_a_kyma_is_installed_labelled_and_removed() {
    let files = stage::files(0);
    let godebug = format!("--skr-webhook-godebug={FIPS}");
    let arguments = [&AGENT[..], &[&godebug]].concat();
    let stage = Stage::real(1, Extent::Node, &land::borrowed(&files), &arguments).await;
    let skr = &stage.skrs[0];
    let istio = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "istio-system"}});
    harness::apply(&stage.kcp, &istio).await;
    harness::apply(&stage.kcp, &gateway(443)).await;
    // As a broker creates it: the list of modules is only what the runtime begins with.
    let mut declared = kyma("one", &["cache"]);
    declared["metadata"]["annotations"] = json!({annotation::SKR_DOMAIN: "one.example.org"});
    declared["metadata"]["labels"] = json!(BTreeMap::from(ACCOUNTS));
    harness::apply(&stage.kcp, &declared).await;
    stage.start();

    let installed = stage.kyma_in("one", "Ready").await;
    let counterpart = stage
        .until("the runtime's Kyma is Ready", skr, "Kyma", "kyma-system", "default", |kyma| {
            kyma["status"]["state"] == "Ready"
        })
        .await;
    let agent = land::find(skr, DEPLOYMENT, "kyma-system", "skr-webhook").await.expect("the agent");
    assert_eq!(agent["status"]["readyReplicas"], 1, "{}", agent["status"]);
    labels(&stage, &counterpart).await;
    one_manager(&stage, &installed, &counterpart).await;
    fips(&stage, &agent).await;

    let (kymas, mark) = (land::api(&stage.kcp, KYMA, "kcp-system").await, stage.landscape.skrs[0].mark());
    kymas.delete("one", &DeleteParams::default()).await.unwrap();
    stage.until_gone(&stage.kcp, "Kyma", "kcp-system", "one").await;
    assert!(land::find(skr, KYMA, "kyma-system", "default").await.is_none(), "it went from the runtime before");
    assert!(read(skr, "ConfigMap", "kyma-system", "cache-a").await.is_none());
    let records = stage.landscape.skrs[0].records_since(mark);
    assert!(records.iter().any(|record| record.verb == "delete" && record.name == "default"), "the daemon deleted it");
}

/// The labels of a Kyma that its runtime is shown.
const ACCOUNTS: [(&str, &str); 3] =
    [(label::RUNTIME_ID, "id-of-one"), (label::GLOBAL_ACCOUNT_ID, "account"), (label::SUBACCOUNT_ID, "subaccount")];

/// E09, I04.
async fn labels(stage: &Stage, counterpart: &Value) {
    let skr = &stage.skrs[0];
    let of_kyma = &counterpart["metadata"]["labels"];
    assert_eq!(of_kyma[label::WATCHED_BY], "kyma");
    for (key, value) in ACCOUNTS {
        assert_eq!(of_kyma[key], value, "{key}");
    }
    let namespace = read(skr, "Namespace", "", "kyma-system").await.unwrap();
    for (key, value) in [("istio-injection", "enabled"), ("namespaces.warden.kyma-project.io/validate", "enabled")] {
        assert_eq!(namespace["metadata"]["labels"][key], value, "{key}");
    }
    let group = "operator.kyma-project.io/v1beta2";
    let webhooks = ("admissionregistration.k8s.io/v1", "ValidatingWebhookConfiguration");
    for (kind, namespace, name) in [
        (("v1", "Namespace"), "", "kyma-system"),
        (KYMA, "kyma-system", "default"),
        ((group, "ModuleTemplate"), "kyma-system", "cache-1.0.0"),
        ((group, "ModuleReleaseMeta"), "kyma-system", "cache"),
        (DEFINITION, "", "kymas.operator.kyma-project.io"),
        (DEFINITION, "", "moduletemplates.operator.kyma-project.io"),
        (DEFINITION, "", "modulereleasemetas.operator.kyma-project.io"),
        (DEPLOYMENT, "kyma-system", "skr-webhook"),
        (webhooks, "", "skr-webhook"),
        (("v1", "Secret"), "kyma-system", "skr-webhook-tls"),
    ] {
        let live = land::find(skr, kind, namespace, name).await.unwrap_or_else(|| panic!("{kind:?} {name}"));
        assert_eq!(live["metadata"]["labels"][label::MANAGED_BY], "kyma", "{kind:?} {name}");
    }
    let manifest = land::manifest(stage, "cache", "its Manifest", |_| true).await;
    let synced = land::synced(&manifest);
    assert_eq!(synced.len(), 4, "{synced:?}");
    for object in synced {
        let live = object.live(skr).await.unwrap_or_else(|| panic!("{object:?}"));
        assert_eq!(live["metadata"]["labels"][label::MANAGED_BY], "kyma", "{object:?}");
    }
}

/// I01: upstream's test asks for manager `lifecycle-manager`; all that Tidegate writes has one manager, `tidegate`.
async fn one_manager(stage: &Stage, installed: &Value, counterpart: &Value) {
    let managers = |object: &Value| -> BTreeSet<String> {
        let fields = object["metadata"]["managedFields"].as_array().into_iter().flatten();
        fields.filter_map(|entry| entry["manager"].as_str().map(str::to_owned)).collect()
    };
    assert!(managers(installed).contains(FIELD_MANAGER), "beside the client that declared the Kyma");
    let name = land::name_of("one", "cache");
    let manifest = land::find(&stage.kcp, MANIFEST, "kcp-system", &name).await.unwrap();
    let only = BTreeSet::from([FIELD_MANAGER.to_owned()]);
    let skr = &stage.skrs[0];
    let map = read(skr, "ConfigMap", "kyma-system", "cache-a").await.unwrap();
    let release = read(skr, "ModuleReleaseMeta", "kyma-system", "cache").await.unwrap();
    for object in [&manifest, counterpart, &map, &release] {
        assert_eq!(managers(object), only, "{} {}", object["kind"], object["metadata"]["name"]);
    }
}

/// E06. Upstream's gauge says 2, `only`, because Lifecycle Manager is built with a validated module. Tidegate is not.
async fn fips(stage: &Stage, agent: &Value) {
    let (code, metrics) = stage.ask("metrics", "/metrics").await.unwrap();
    assert_eq!(code, 200);
    assert!(metrics.lines().any(|line| line == "lifecycle_mgr_fips_mode 0"), "the truth about this build");
    let containers = agent["spec"]["template"]["spec"]["containers"].as_array().unwrap();
    let server = containers.iter().find(|container| container["name"] == "server").expect("a container");
    let set = json!({"name": "GODEBUG", "value": FIPS});
    assert!(server["env"].as_array().unwrap().contains(&set), "{}", server["env"]);
}

/// E16: with a broken access Secret, a module is enabled and yields no Manifest; once it is corrected, the module is
/// installed. E35: a runtime that is gone puts the Kyma and each of its modules into Error.
#[tokio::test(flavor = "multi_thread")]
async fn e16_e35_without_access_nothing_is_installed_and_everything_is_in_error() {
    let files = stage::files(0);
    let stage = Stage::real(1, Extent::Controllers, &land::borrowed(&files), &[]).await;
    let good = stage::access_secret("one", &stage.landscape.skrs[0]);
    let mut broken = good.clone();
    broken["data"]["config"] = json!("aW52YWxpZA==");
    harness::apply(&stage.kcp, &broken).await;
    harness::apply(&stage.kcp, &kyma("one", &["cache"])).await;
    stage.start();
    stage.kyma_in("one", "Error").await;
    harness::apply(&stage.kcp, &kyma("one", &["cache", "mailer"])).await;
    land::checked(&stage, "1").await;
    stage.kyma_in("one", "Error").await;
    assert_eq!(land::manifests(&stage).await, [""; 0]);
    let skr = &stage.skrs[0];
    assert!(read(skr, "Namespace", "", "kyma-system").await.is_none(), "the runtime was not entered");

    let secret = ("v1", "Secret");
    land::delete(&stage.kcp, secret, "kcp-system", good["metadata"]["name"].as_str().unwrap()).await;
    harness::apply(&stage.kcp, &good).await;
    stage.kyma_in("one", "Ready").await;
    assert_eq!(land::manifests(&stage).await, ["cache", "mailer"]);
    assert!(land::find(skr, THING, "kyma-system", "cache-default").await.is_some());

    stage.landscape.skrs[0].stop().await;
    land::checked(&stage, "2").await;
    let lost = stage.kyma_in("one", "Error").await;
    for name in ["cache", "mailer"] {
        assert_eq!(land::module(&lost, name)["state"], "Error", "{lost}");
    }
}

/// E04, E05: a module whose custom resource has a finalizer holds its Kyma, deleted in the background or in the
/// foreground, also when the runtime is gone. Without its access Secret, Manifest and Kyma vanish.
#[tokio::test(flavor = "multi_thread")]
async fn e04_e05_a_kyma_waits_for_its_module_until_the_access_secret_is_gone() {
    let files = stage::files(0);
    let stage = Stage::real(2, Extent::Controllers, &land::borrowed(&files), &[]).await;
    for name in stage::KYMAS {
        harness::apply(&stage.kcp, &kyma(name, &["cache"])).await;
    }
    stage.start();
    for (name, skr) in stage::KYMAS.iter().zip(&stage.skrs) {
        stage.kyma_in(name, "Ready").await;
        let hold = json!({"metadata": {"finalizers": ["example.org/hold"]}});
        land::merge(skr, THING, "kyma-system", "cache-default", hold).await;
    }
    let kymas = land::api(&stage.kcp, KYMA, "kcp-system").await;
    for (name, how) in stage::KYMAS.iter().zip([DeleteParams::background(), DeleteParams::foreground()]) {
        kymas.delete(name, &how).await.unwrap();
    }
    let waits =
        |object: &Value| object["metadata"]["deletionTimestamp"].is_string() && object["status"]["state"] == "Deleting";
    for (name, skr) in stage::KYMAS.iter().zip(&stage.skrs) {
        let held = stage.until("the Kyma waits", &stage.kcp, "Kyma", "kcp-system", name, waits).await;
        let finalizers = held["metadata"]["finalizers"].to_string();
        // The garbage collector takes its own finalizer away at any time.
        assert!(finalizers.contains("operator.kyma-project.io/Kyma"), "{finalizers}");
        let manifest = land::name_of(name, "cache");
        stage
            .until(
                "the Manifest waits for its custom resource",
                &stage.kcp,
                "Manifest",
                "kcp-system",
                &manifest,
                |one| waits(one) && one["status"]["lastOperation"]["operation"].to_string().contains("cache-default"),
            )
            .await;
        let thing = land::find(skr, THING, "kyma-system", "cache-default").await.expect("its finalizer holds it");
        assert!(thing["metadata"]["deletionTimestamp"].is_string());
        assert!(read(skr, "ConfigMap", "kyma-system", "cache-a").await.is_some(), "the module works until then");
    }

    for skr in &stage.landscape.skrs {
        skr.stop().await;
    }
    holds("both are still being deleted", STILL, async || {
        for name in stage::KYMAS {
            let found = read(&stage.kcp, "Kyma", "kcp-system", name).await.unwrap_or_default();
            if !waits(&found) || land::manifests(&stage).await.len() != 2 {
                return Err(format!("{name}: {}", found["status"]));
            }
        }
        Ok(())
    })
    .await;
    for name in stage::KYMAS {
        land::delete(&stage.kcp, ("v1", "Secret"), "kcp-system", &format!("access-{name}")).await;
        stage.until_gone(&stage.kcp, "Kyma", "kcp-system", name).await;
    }
    assert_eq!(land::manifests(&stage).await, [""; 0]);
}

/// Longer than a pass over a runtime that is gone.
const STILL: Duration = Duration::from_secs(8);
