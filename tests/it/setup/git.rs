//! kcp landscapes in git: their definitions are applied to the control plane and pruned as those of other kinds.

use std::sync::LazyLock;

use kube::api::DeleteParams;
use serde_json::{Value, json};
use tidegate_core::api::setup;
use tidegate_testbed::Record;

use super::{KcpLandscape, NAMESPACE, condition, object, resources};
use crate::{
    deploy, harness,
    stage::{self, USER, scenarios},
};

scenarios! {
    a_kcp_landscape_in_git_is_applied_repaired_and_pruned_and_a_restart_writes_nothing,
    a_bad_definition_of_a_kcp_landscape_is_held_back_and_nothing_is_pruned,
    a_resource_of_others_is_refused_until_its_definition_adopts_it,
    without_the_definitions_of_its_kinds_a_kcp_landscape_waits_and_the_rest_goes_on,
    what_diff_predicts_of_a_kcp_landscape_is_what_happens,
    a_source_that_goes_takes_its_kcp_landscape_along_where_it_says_so,
    r70_a_pass_that_has_begun_writes_nothing_more_when_kcp_operator_starts,
    r70_the_end_of_a_source_waits_until_kcp_operator_has_stopped;
    on real servers:
    the_rules_of_the_overlay_are_all_that_a_kcp_landscape_needs,
}

/// The file in git.
const FILE: &str = "kcp.yaml";
/// The example without permissions inside kcp: here is none, and a Kubeconfig with them waits for it before it goes.
static EXAMPLE: LazyLock<String> = LazyLock::new(|| {
    let all = include_str!("../../../examples/kcp/landscape.yaml");
    let permissions = "  authorization:\n    clusterRoleBindings:\n      clusterRoles: [cluster-admin]\n";
    assert!(all.contains(permissions), "the example has permissions");
    all.replace(permissions, "")
});

/// The example without the resources of these kinds.
fn without(kinds: &[&str]) -> String {
    let is_kept = |document: &&str| !kinds.iter().any(|kind| document.contains(&format!("\nkind: {kind}\n")));
    let kept: Vec<&str> = EXAMPLE.split("---\n").filter(is_kept).collect();
    assert_eq!(kept.len() + kinds.len(), setup::Kind::ALL.len());
    kept.join("---\n")
}

/// The first problem of the source with this code.
fn diagnostic(source: &Value, code: &str) -> Value {
    let all = source["status"]["diagnostics"].as_array().cloned().unwrap_or_default();
    all.into_iter().find(|found| found["code"] == code).unwrap_or_default()
}

// === impl KcpLandscape ===

impl KcpLandscape {
    /// The landscape of the example is built from git, and nothing is left to do.
    async fn built_from_git() -> KcpLandscape {
        let landscape = KcpLandscape::prepare(&["--kcp-landscapes"]).await;
        let commit = landscape.stage.commit(FILE, &EXAMPLE);
        landscape.stage.start();
        landscape.runs().await;
        landscape.settled(&commit, "True Applied: ").await;
        landscape.stage.rests().await;
        landscape
    }

    /// Waits until the source has read a commit, and its condition `Ready` begins like this.
    async fn settled(&self, commit: &str, ready: &str) -> Value {
        let what = format!("{commit} is {ready}");
        self.stage
            .until(&what, &self.client, "GitSource", NAMESPACE, "landscape", |source| {
                let read = source["status"]["attemptedRevision"].as_str().unwrap_or_default();
                read.ends_with(commit) && condition(source, "Ready").starts_with(ready)
            })
            .await
    }

    async fn patch_source(&self, patch: Value) {
        let source = object("tidegate.dev/v1alpha1", "GitSource", "landscape");
        let api = harness::api_of(&self.client, &source).await.unwrap();
        api.patch("landscape", &kube::api::PatchParams::default(), &kube::api::Patch::Merge(patch)).await.unwrap();
    }

    async fn confirm(&self, commit: &str) {
        self.patch_source(json!({"metadata": {"annotations": {"tidegate.dev/confirm-prune": commit}}})).await;
    }

    /// Waits until all resources of the example are gone.
    async fn all_is_gone(&self) {
        for resource in resources() {
            let text = |value: &Value| value.as_str().unwrap().to_owned();
            self.until_gone(&text(&resource["kind"]), &text(&resource["metadata"]["name"])).await;
        }
    }

    async fn is_leaving(&self, kind: &str, name: &str) -> bool {
        self.read(kind, name).await.is_none_or(|found| found["metadata"]["deletionTimestamp"].is_string())
    }
}

async fn a_kcp_landscape_in_git_is_applied_repaired_and_pruned_and_a_restart_writes_nothing() {
    let landscape = KcpLandscape::built_from_git().await;
    let source = stage::read(&landscape.client, "GitSource", NAMESPACE, "landscape").await.unwrap();
    assert_eq!(source["status"]["counts"]["applied"], 6);
    assert_eq!(condition(&source, "tidegate.dev/KcpLandscapes"), "none none: none");
    let requests = landscape.requests_since(0);
    for resource in resources() {
        let (kind, name) = (resource["kind"].as_str().unwrap(), resource["metadata"]["name"].as_str().unwrap());
        let found = landscape.read(kind, name).await.unwrap();
        assert_eq!(found["metadata"]["labels"]["tidegate.dev/source"], "kcp-system.landscape", "{kind}");
        assert_eq!(found["metadata"]["annotations"]["tidegate.dev/path"], FILE, "{kind}");
        assert_eq!(found["metadata"]["finalizers"], json!(["tidegate.dev/setup"]), "{kind}");
        let plural = setup::Kind::ALL.into_iter().find(|known| known.as_str() == kind).unwrap().plural();
        let write = format!("patch {plural}.operator.kcp.io {name}");
        let writes = requests.iter().filter(|found| **found == write).count();
        // The status of a CacheServer is in an annotation.
        let statuses = requests.iter().filter(|found| **found == write.replace(".io ", ".io/status ")).count();
        match found["metadata"]["annotations"].get("tidegate.dev/status") {
            Some(_) => assert!(kind == "CacheServer" && 1 < writes && statuses == 0, "{kind}: {writes} {statuses}"),
            None => assert!(kind != "CacheServer" && writes == 1 && 0 < statuses, "{kind}: {writes} {statuses}"),
        }
    }

    // A restart writes nothing.
    landscape.stage.kill().await;
    let marks = landscape.stage.marks();
    landscape.stage.start();
    tokio::time::sleep(std::time::Duration::from_secs(60)).await;
    assert_eq!(landscape.stage.requests_since(&marks), [""; 0]);

    // An export says that it is without them.
    let folder = harness::folder();
    let path = folder.path().join("export");
    let exported = landscape.stage.command(&["export", "--as-git", path.to_str().unwrap()]).await;
    let said = String::from_utf8_lossy(&exported.stderr);
    assert_eq!(exported.status.code(), Some(5), "{said}");
    assert!(
        said.contains(
            "not exported: 6 resources of kcp landscapes (CacheServer kcp-system/cache, RootShard kcp-system/main"
        ),
        "{said}"
    );

    // A change in git takes effect, and a change of others does not last.
    let commit = landscape.stage.commit(FILE, &EXAMPLE.replace("  replicas: 3\n", "  replicas: 4\n"));
    landscape.until("Deployment", "eu-shard-kcp", "as git says", |found| found["spec"]["replicas"] == 4).await;
    landscape.settled(&commit, "True Applied: ").await;
    landscape.merge("Shard", "eu", None, json!({"spec": {"replicas": 7}})).await;
    landscape.until("Shard", "eu", "as git says again", |found| found["spec"]["replicas"] == 4).await;
    landscape.until("Deployment", "eu-shard-kcp", "as git says again", |found| found["spec"]["replicas"] == 4).await;

    // A Kubeconfig goes at once. A Shard, a RootShard and a CacheServer need a confirmation.
    let commit = landscape.stage.commit(FILE, &without(&["Kubeconfig"]));
    landscape.until_gone("Kubeconfig", "admin").await;
    landscape.until_gone("Secret", "admin-kubeconfig").await;
    landscape.settled(&commit, "True Applied: ").await;
    let commit = landscape.stage.commit(FILE, &without(&["Kubeconfig", "VirtualWorkspace", "Shard"]));
    landscape.until_gone("VirtualWorkspace", "eu-workspaces").await;
    let source = landscape.settled(&commit, "False PruneUnconfirmed: ").await;
    let expected = "Shard kcp-system/eu is removed from git, and its prune needs a confirmation; nothing leads to its \
                    workspaces any more";
    let found = diagnostic(&source, "prune-unconfirmed");
    assert!(found["message"].as_str().unwrap_or_default().starts_with(expected), "{source}");
    let commit = landscape.stage.commit(FILE, &without(&["Kubeconfig", "VirtualWorkspace", "Shard", "FrontProxy"]));
    landscape.until_gone("FrontProxy", "public").await;
    landscape.settled(&commit, "False PruneUnconfirmed: ").await;
    landscape.stage.repository.remove(FILE).unwrap();
    let files = stage::module("mail", "1.0.0", "hello");
    files.iter().for_each(|(path, text)| landscape.stage.repository.write(path, text).unwrap());
    let commit = landscape.stage.repository.commit("a module instead").unwrap();
    landscape.settled(&commit, "False PruneUnconfirmed: ").await;
    landscape.stage.rests().await;
    for (kind, name) in [("Shard", "eu"), ("RootShard", "main"), ("CacheServer", "cache")] {
        assert!(!landscape.is_leaving(kind, name).await, "{kind} {name} needs a confirmation");
    }
    landscape.confirm(&commit).await;
    landscape.all_is_gone().await;
    landscape.settled(&commit, "True Applied: ").await;
    let first = |name: &str| landscape.first("delete", "deployments.apps", name);
    assert!(first("eu-shard-kcp") < first("main-kcp"), "the root shard goes after its shards");
    assert!(first("main-kcp") < first("cache-cache-server"));
    assert!(landscape.read("Secret", "main-ca").await.is_some(), "the keys of CAs stay");
}

async fn a_bad_definition_of_a_kcp_landscape_is_held_back_and_nothing_is_pruned() {
    let landscape = KcpLandscape::prepare(&["--kcp-landscapes"]).await;
    let admin = EXAMPLE.split("---\n").last().unwrap();
    let guest = admin.replace("name: admin\n", "name: guest\n").replace("admin-kubeconfig", "guest-kubeconfig");
    let commit = landscape.stage.commit(FILE, &format!("{}---\n{guest}", *EXAMPLE));
    landscape.stage.start();
    landscape.runs().await;
    landscape.settled(&commit, "True Applied: ").await;

    let broken = EXAMPLE.replace("validity: 8766h", "validity: 1m").replace("  replicas: 3\n", "  replicas: 4\n");
    let commit = landscape.stage.commit(FILE, &broken);
    let source = landscape.settled(&commit, "False Withheld: ").await;
    assert_eq!(diagnostic(&source, "kcp-rule")["severity"], "error", "{source}");
    assert_eq!(source["status"]["withheld"][0]["name"], "admin");
    assert_eq!(source["status"]["counts"]["toPrune"], 1);
    landscape.until("Shard", "eu", "the rest goes on", |found| found["spec"]["replicas"] == 4).await;
    landscape.stage.rests().await;
    let admin = landscape.read("Kubeconfig", "admin").await.unwrap();
    assert_eq!(admin["spec"]["validity"], "8766h", "the last good version stays");
    assert!(!landscape.is_leaving("Kubeconfig", "guest").await, "nothing is pruned");

    let commit = landscape.stage.commit(FILE, &broken.replace("validity: 1m", "validity: 8766h"));
    landscape.until_gone("Kubeconfig", "guest").await;
    landscape.settled(&commit, "True Applied: ").await;
}

async fn a_resource_of_others_is_refused_until_its_definition_adopts_it() {
    let landscape = KcpLandscape::prepare(&["--kcp-landscapes"]).await;
    let mut theirs = resources().into_iter().find(|resource| resource["kind"] == "RootShard").unwrap();
    theirs["spec"]["logging"] = json!({"level": 5});
    harness::apply(&landscape.client, &theirs).await;
    let commit = landscape.stage.commit(FILE, &EXAMPLE);
    landscape.stage.start();
    let source = landscape.settled(&commit, "False ").await;
    let found = diagnostic(&source, "foreign-object");
    let message = found["message"].as_str().unwrap_or_default();
    assert!(message.starts_with("RootShard kcp-system/main exists in KCP without the ownership label"), "{source}");
    assert!(message.contains("testbed"), "{message}");
    let root = landscape.read("RootShard", "main").await.unwrap();
    assert!(root["metadata"]["labels"]["tidegate.dev/source"].is_null() && root["spec"]["logging"]["level"] == 5);
    landscape.until("Shard", "eu", "the rest is applied", |_| true).await;

    let adopts = EXAMPLE.replace(
        "kind: RootShard\nmetadata:\n",
        "kind: RootShard\nmetadata:\n  annotations: {tidegate.dev/adopt: \"true\"}\n",
    );
    let commit = landscape.stage.commit(FILE, &adopts);
    landscape.settled(&commit, "True Applied: ").await;
    let root = landscape.read("RootShard", "main").await.unwrap();
    assert_eq!(root["metadata"]["labels"]["tidegate.dev/source"], "kcp-system.landscape");
    assert_eq!(root["metadata"]["finalizers"], json!(["tidegate.dev/setup"]));
}

async fn without_the_definitions_of_its_kinds_a_kcp_landscape_waits_and_the_rest_goes_on() {
    let landscape = KcpLandscape::bare(&["--kcp-landscapes"]).await;
    landscape.stage.repository.write(FILE, &EXAMPLE).unwrap();
    let files = stage::module("mail", "1.0.0", "hello");
    files.iter().for_each(|(path, text)| landscape.stage.repository.write(path, text).unwrap());
    let commit = landscape.stage.repository.commit("a module and a kcp landscape").unwrap();
    landscape.stage.start();
    let waits_for = |kind: &str| {
        format!(
            "False NotReconciled: kcp.yaml:3:1: 6 definitions of kcp landscapes are checked, but not applied; this is the \
             first; the control plane does not serve {kind}: apply what `tidegate crds --kcp` prints"
        )
    };
    let source = landscape.settled(&commit, "True Applied: ").await;
    assert_eq!(condition(&source, "tidegate.dev/KcpLandscapes"), waits_for("cacheservers"));
    assert!(stage::read(&landscape.client, "ModuleTemplate", NAMESPACE, "mail-1.0.0").await.is_some());

    // Most of them are not enough.
    let mut crds: Vec<Value> = setup::Kind::ALL.map(|kind| serde_json::to_value(kind.crd()).unwrap()).to_vec();
    let last = crds.pop().unwrap();
    harness::install_crds(&landscape.client, &crds).await;
    landscape
        .stage
        .until("one is missing", &landscape.client, "GitSource", NAMESPACE, "landscape", |source| {
            condition(source, "tidegate.dev/KcpLandscapes") == waits_for("kubeconfigs")
        })
        .await;
    assert!(landscape.read("RootShard", "main").await.is_none());

    harness::install_crds(&landscape.client, &[last]).await;
    landscape
        .stage
        .until("it is applied", &landscape.client, "GitSource", NAMESPACE, "landscape", |source| {
            condition(source, "tidegate.dev/KcpLandscapes") == "none none: none"
                && source["status"]["counts"]["applied"] == 7
        })
        .await;
    landscape.runs().await;
}

async fn what_diff_predicts_of_a_kcp_landscape_is_what_happens() {
    let landscape = KcpLandscape::built_from_git().await;
    let path = landscape.stage.repository.path().to_str().unwrap().to_owned();
    let diff = async |more: &[&str]| -> Value {
        let arguments = [&["diff", &path, "--live", "-o", "json"], more].concat();
        let output = landscape.stage.command(&arguments).await;
        let text = String::from_utf8(output.stdout).unwrap();
        serde_json::from_str(&text)
            .unwrap_or_else(|error| panic!("{error}: {text}\n{}", String::from_utf8_lossy(&output.stderr)))
    };
    let lines = |report: &Value| -> Vec<String> {
        let line = |found: &Value| {
            let text = |field: &Value| field.as_str().unwrap_or("?").to_owned();
            let object = format!("{} {}", text(&found["object"]["kind"]), text(&found["object"]["name"]));
            format!("{} {object}: {}", text(&found["action"]), text(&found["effect"]))
        };
        report["differences"].as_array().unwrap().iter().map(line).collect()
    };
    assert_eq!(lines(&diff(&["--kcp-landscapes"]).await), [""; 0], "nothing differs");
    let next = without(&["Kubeconfig", "VirtualWorkspace", "Shard"])
        .replace("  audit:\n", "  logging: {level: 4}\n  audit:\n");
    landscape.stage.repository.write(FILE, &next).unwrap();
    assert_eq!(
        lines(&diff(&["--kcp-landscapes"]).await),
        [
            "delete Kubeconfig admin: applies",
            "delete Shard eu: needs-confirmation",
            "delete VirtualWorkspace eu-workspaces: applies",
            "change RootShard main: applies",
        ]
    );
    // As a daemon without the option.
    let off = diff(&[]).await;
    assert_eq!(lines(&off), [""; 0]);
    assert!(off["diagnostics"].to_string().contains("kcp-not-reconciled"), "{off}");

    let commit = landscape.stage.repository.commit("as predicted").unwrap();
    landscape.until_gone("VirtualWorkspace", "eu-workspaces").await;
    landscape.until_gone("Kubeconfig", "admin").await;
    landscape.until("RootShard", "main", "as predicted", |found| found["spec"]["logging"]["level"] == 4).await;
    landscape.settled(&commit, "False PruneUnconfirmed: ").await;
    assert!(!landscape.is_leaving("Shard", "eu").await);
}

async fn a_source_that_goes_takes_its_kcp_landscape_along_where_it_says_so() {
    let landscape = KcpLandscape::built_from_git().await;
    landscape.patch_source(json!({"spec": {"deletionPolicy": "Delete"}})).await;
    let source = object("tidegate.dev/v1alpha1", "GitSource", "landscape");
    let api = harness::api_of(&landscape.client, &source).await.unwrap();
    api.delete("landscape", &DeleteParams::default()).await.unwrap();
    let waits = |source: &Value| condition(source, "Ready").starts_with("False PruneUnconfirmed: ");
    let found = landscape.stage.until("it waits", &landscape.client, "GitSource", NAMESPACE, "landscape", waits).await;
    assert!(!landscape.is_leaving("Kubeconfig", "admin").await, "nothing goes before all of it is confirmed");
    let revision = found["status"]["attemptedRevision"].as_str().unwrap();
    let commit = revision.rsplit(':').next().unwrap();
    landscape.confirm(&format!("deletion:{commit}")).await;
    landscape.all_is_gone().await;
    landscape.stage.until_gone(&landscape.client, "GitSource", NAMESPACE, "landscape").await;
}

async fn r70_the_end_of_a_source_waits_until_kcp_operator_has_stopped() {
    let landscape = KcpLandscape::built_from_git().await;
    KcpLandscape::held_by(&landscape.client, "operator-0", "2001-01-01T00:00:00.000000Z").await;
    let is_seen = |source: &Value| condition(source, "tidegate.dev/KcpLandscapes").contains("kcp-operator runs");
    landscape.stage.until("it is said", &landscape.client, "GitSource", NAMESPACE, "landscape", is_seen).await;
    let source = object("tidegate.dev/v1alpha1", "GitSource", "landscape");
    let api = harness::api_of(&landscape.client, &source).await.unwrap();
    api.delete("landscape", &DeleteParams::default()).await.unwrap();
    let waits = |source: &Value| {
        let expected = "False PruneWaits: 6 resources of kcp landscapes stay with the source while kcp-operator runs";
        condition(source, "Ready").starts_with(expected)
    };
    landscape.stage.until("it waits", &landscape.client, "GitSource", NAMESPACE, "landscape", waits).await;
    let label = |found: Value| found["metadata"]["labels"]["tidegate.dev/source"].clone();
    assert_eq!(label(landscape.read("RootShard", "main").await.unwrap()), "kcp-system.landscape");
    // Its Lease ends.
    landscape.stage.until_gone(&landscape.client, "GitSource", NAMESPACE, "landscape").await;
    assert_eq!(label(landscape.read("RootShard", "main").await.unwrap()), Value::Null);
    assert!(!landscape.is_leaving("RootShard", "main").await);
}

async fn r70_a_pass_that_has_begun_writes_nothing_more_when_kcp_operator_starts() {
    let landscape = KcpLandscape::prepare(&["--kcp-landscapes"]).await;
    landscape.stage.commit(FILE, &EXAMPLE);
    let client = landscape.client.clone();
    // Before the second of its definitions arrives, kcp-operator starts.
    landscape.stage.landscape.kcp.before("/rootshards/main", async move {
        KcpLandscape::held_by(&client, "operator-0", "2001-01-01T00:00:00.000000Z").await;
        tokio::time::sleep(std::time::Duration::from_secs(1)).await;
    });
    landscape.stage.start();
    landscape
        .stage
        .until("it is said", &landscape.client, "GitSource", NAMESPACE, "landscape", |source| {
            condition(source, "tidegate.dev/KcpLandscapes").contains("kcp-operator runs")
        })
        .await;
    let kinds = ["rootshards", "shards", "frontproxies", "virtualworkspaces", "kubeconfigs"];
    let written = landscape.written_since(0);
    let after = written.iter().filter(|found| kinds.iter().any(|kind| found.contains(&format!(" {kind}.operator"))));
    assert_eq!(after.collect::<Vec<_>>(), Vec::<&String>::new(), "{written:?}");
    assert!(written.iter().any(|found| found.contains(" cacheservers.operator")), "{written:?}");
    // Once it has stopped, everything comes.
    landscape.runs().await;
}

/// Row 69: the rules for `diff --live --kcp-landscapes` are all that it needs, and it needs each.
async fn diff_needs_its_rules(landscape: &KcpLandscape) {
    const DIFF: &str = "system:serviceaccount:kcp-system:tidegate-diff";
    let component = deploy::objects("pipelines");
    for object in &component {
        harness::apply(&landscape.client, object).await;
    }
    let is_own = |object: &&Value| object["metadata"]["name"] == "tidegate-diff-kcp-landscapes";
    let own: Vec<Value> = component.iter().filter(is_own).cloned().collect();
    let rules = deploy::rules(&own, "tidegate-diff");
    deploy::until_granted(&landscape.client, DIFF, &rules).await;
    let kcp = landscape.stage.landscape.kcp.real();
    let access = kcp.kubeconfig_of_service_account("kcp-system", "tidegate-diff").await.unwrap();
    let folder = harness::folder();
    let path = folder.path().join("kubeconfig");
    std::fs::write(&path, access.text()).unwrap();
    // Every resource changes.
    let changed = EXAMPLE
        .replace("etcd-cache.kcp", "etcd-cache-2.kcp")
        .replace("etcd-main.kcp", "etcd-main-2.kcp")
        .replace("replicas: 3", "replicas: 4")
        .replace("hostname: eu.kcp", "hostname: eu-2.kcp")
        .replace("clientID: kcp", "clientID: kcp-2")
        .replace("company:platform", "company:support");
    landscape.stage.repository.write(FILE, &changed).unwrap();
    let mark = landscape.stage.landscape.kcp.mark();
    let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_tidegate"));
    command.args(["diff", "--live", "--kcp-landscapes", "-o", "json", "--kubeconfig"]).arg(&path);
    let output = command.arg(landscape.stage.repository.path()).output().await.unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let report: Value = serde_json::from_str(&text)
        .unwrap_or_else(|error| panic!("{error}: {text}\n{}", String::from_utf8_lossy(&output.stderr)));
    assert_eq!(report["differences"].as_array().map(Vec::len), Some(6), "{report:#}");
    let records = landscape.stage.landscape.kcp.records_since(mark);
    let ours: Vec<_> = records.iter().filter(|record| record.user == DIFF).collect();
    let refused: Vec<_> = ours.iter().filter(|record| record.code == 403).collect();
    assert!(refused.is_empty(), "{refused:#?}");
    let needs = ours.iter().flat_map(|record| deploy::needs(record)).collect();
    let idle = deploy::idle(&rules, &needs);
    assert!(idle.is_empty(), "rules that it does not need: {idle:#?}");
    landscape.stage.repository.write(FILE, &EXAMPLE).unwrap();
}

/// Row 71: on a real API server, with the real definitions, as the service account: a landscape is applied from git,
/// changes, is repaired, survives a restart without a write, and goes.
async fn the_rules_of_the_overlay_are_all_that_a_kcp_landscape_needs() {
    let landscape = KcpLandscape::prepare(&["--kcp-landscapes"]).await;
    let all = deploy::objects("overlays/kcp-landscapes");
    for object in &all {
        harness::apply(&landscape.client, object).await;
    }
    let rules = deploy::rules(&all, deploy::NAME);
    deploy::until_granted(&landscape.client, deploy::ACCOUNT, &rules).await;
    let with_budget = "kind: CacheServer\nmetadata:\n  annotations: {tidegate.dev/pod-disruption-budget: '1'}\n";
    let text = EXAMPLE.replacen("kind: CacheServer\nmetadata:\n", with_budget, 1);
    let commit = landscape.stage.commit(FILE, &text);
    let account =
        landscape.stage.landscape.kcp.real().kubeconfig_of_service_account("kcp-system", "tidegate").await.unwrap();
    landscape.stage.start_as(&account);
    landscape.settled(&commit, "True Applied: ").await;
    // No pod runs here, so the root shard waits for its cache.
    landscape.until("Deployment", "cache-cache-server", "it exists", |_| true).await;
    landscape.until("Kubeconfig", "admin", "it is ready", |found| found["status"]["phase"] == "Ready").await;
    let waits = |found: &Value| condition(found, "tidegate.dev/Mounts").contains("cache-cache-server are not ready");
    landscape.until("RootShard", "main", "it waits for its cache", waits).await;
    let found = landscape.read("RootShard", "main").await.unwrap();
    assert_eq!(found["metadata"]["labels"]["tidegate.dev/source"], "kcp-system.landscape");

    // A change of others, and an object that is no longer desired.
    landscape.merge("Shard", "eu", None, json!({"spec": {"replicas": 7}})).await;
    landscape.until("Shard", "eu", "as git says", |found| found["spec"]["replicas"] == 3).await;
    for (kind, name) in [
        ("Issuer", "main-ca"),
        ("Service", "main-kcp"),
        ("Certificate", "eu-server"),
        ("PodDisruptionBudget", "cache-cache-server"),
    ] {
        landscape.merge(kind, name, None, json!({"metadata": {"annotations": {"tidegate.dev/digest": "x"}}})).await;
        let is_repaired = |found: &Value| found["metadata"]["annotations"]["tidegate.dev/digest"] != "x";
        landscape.until(kind, name, "it is repaired", is_repaired).await;
    }
    landscape.stage.rests().await;
    diff_needs_its_rules(&landscape).await;

    // A restart compares everything, and writes nothing. It waits whether a Lease that was left is renewed.
    landscape.stage.kill().await;
    KcpLandscape::held_by(&landscape.client, "operator-0", "2001-01-01T00:00:00.000000Z").await;
    let mark = landscape.stage.landscape.kcp.mark();
    landscape.stage.start_as(&account);
    harness::eventually("it has compared its Deployment", harness::SOON, async || {
        let records = landscape.stage.landscape.kcp.records_since(mark);
        let mut of_daemon = records.iter().filter(|found| found.user == deploy::ACCOUNT && found.verb == "get");
        let has_read = of_daemon.any(|found| found.resource == "deployments.apps");
        if has_read { Ok(()) } else { Err("not yet".to_owned()) }
    })
    .await;
    landscape.stage.rests().await;
    let writes: Vec<String> = landscape
        .stage
        .landscape
        .kcp
        .records_since(mark)
        .iter()
        .filter(|found| found.user == deploy::ACCOUNT && found.verb != "get" && found.resource.contains("kcp.io"))
        .filter(|found| found.verb != "list" && found.verb != "watch")
        .map(|found| format!("{} {} {}", found.verb, found.resource, found.name))
        .collect();
    assert_eq!(writes, [""; 0]);

    landscape.stage.repository.remove(FILE).unwrap();
    let commit = landscape.stage.repository.commit("all of it goes").unwrap();
    landscape.settled(&commit, "False PruneUnconfirmed: ").await;
    assert!(!landscape.is_leaving("FrontProxy", "public").await, "nothing goes before it is confirmed");
    landscape.confirm(&commit).await;
    landscape.all_is_gone().await;
    landscape.settled(&commit, "True Applied: ").await;

    let records = landscape.stage.landscape.kcp.records();
    let ours: Vec<&Record> = records.iter().filter(|record| record.user == deploy::ACCOUNT).collect();
    let refused: Vec<&&Record> = ours.iter().filter(|record| record.code == 403).collect();
    assert!(refused.is_empty(), "refused: {refused:?}");
    let needs = ours.iter().flat_map(|record| deploy::needs(record)).collect();
    let base = deploy::rules(&deploy::objects("base"), deploy::NAME);
    let idle = deploy::idle(&rules, &needs);
    let idle: Vec<_> = idle.into_iter().filter(|rule| !base.contains(rule)).collect();
    assert!(idle.is_empty(), "rules that a kcp landscape does not need: {idle:#?}");
    assert!(!records.iter().any(|record| record.user == USER), "the daemon was the service account all the time");
}
