//! Inside kcp: permissions of Kubeconfigs, and the clean-up before a Shard goes. And nothing beside kcp-operator.
//!
//! The simulated control plane plays kcp as well: each path below `/clusters/` is an API server of its own.

use std::time::Duration;

use k8s_openapi::jiff::SignedDuration;
use serde_json::{Value, json};
use tidegate_core::api::names::KCP_OPERATOR_LEASE;
use tidegate_process::ambient;

use super::{DEPLOYMENTS, KcpLandscape, NAMESPACE, condition, resources, resources_with_kcp};
use crate::{
    harness::{self, SOON, eventually},
    stage::{ADMIN, scenarios},
};

scenarios! {
    r38_permissions_inside_kcp_come_follow_their_definition_and_go,
    r38_where_kcp_does_not_answer_a_kubeconfig_goes_after_five_minutes,
    r38_a_former_workspace_that_is_gone_holds_nothing,
    r40_a_shard_stays_while_it_holds_workspaces_and_is_deleted_inside_kcp_first,
    r40_from_kcp_0_34_on_a_shard_that_goes_is_cordoned_and_stays_in_kcp,
    a_kcp_landscape_may_be_killed_anywhere_while_it_comes_and_goes,
    r70_while_kcp_operator_runs_the_daemon_writes_nothing,
    r70_a_daemon_that_starts_waits_whether_a_lease_is_renewed,
    r70_a_lease_is_read_before_it_counts_as_ended,
}

/// The kind in the workspace of a name.
fn of_kcp(kind: &str, name: &str) -> Value {
    let version = match kind {
        "ClusterRole" | "ClusterRoleBinding" => "rbac.authorization.k8s.io/v1",
        "Workspace" => "tenancy.kcp.io/v1alpha1",
        _ => "core.kcp.io/v1alpha1",
    };
    json!({"apiVersion": version, "kind": kind, "metadata": {"name": name}})
}

/// The kinds of kcp itself.
fn kinds_of_kcp() -> Vec<Value> {
    let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let crd = |group: &str, kind: &str, plural: &str| {
        json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": format!("{plural}.{group}")},
            "spec": {
                "group": group, "scope": "Cluster",
                "names": {
                    "kind": kind, "plural": plural, "singular": kind.to_lowercase(), "listKind": format!("{kind}List"),
                },
                "versions": [{
                    "name": "v1alpha1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema},
                }],
            },
        })
    };
    vec![
        crd("core.kcp.io", "Shard", "shards"),
        crd("core.kcp.io", "LogicalCluster", "logicalclusters"),
        crd("tenancy.kcp.io", "Workspace", "workspaces"),
    ]
}

impl KcpLandscape {
    /// The example, whose servers are reached where the control plane is.
    fn resources_inside(&self) -> Vec<Value> {
        let mut all = resources_with_kcp();
        for resource in &mut all {
            if ["RootShard", "Shard", "FrontProxy"].contains(&resource["kind"].as_str().unwrap()) {
                resource["metadata"]["annotations"]["tidegate.dev/kcp-address"] = self.address().into();
            }
        }
        all
    }

    fn address(&self) -> String {
        self.stage.landscape.kcp.kubeconfig().server.trim_start_matches("https://").to_owned()
    }

    /// A client of a workspace.
    fn inside(&self, path: &str) -> kube::Client {
        self.stage.landscape.kcp.workspace(path).client()
    }

    /// The names of the ClusterRoleBindings of a workspace.
    async fn bindings(&self, path: &str) -> Vec<String> {
        let api = harness::api_of(&self.inside(path), &of_kcp("ClusterRoleBinding", "any")).await.unwrap();
        let all = api.list(&kube::api::ListParams::default()).await.unwrap();
        all.items.into_iter().filter_map(|found| found.metadata.name).collect()
    }

    /// The writes in a workspace other than those of the test.
    fn writes_inside(&self, path: &str) -> Vec<String> {
        let all = self.stage.landscape.kcp.workspace(path).kept_requests(0).into_iter();
        let is_read = |verb: &str| ["get", "list", "watch"].contains(&verb);
        // The certificate of kcp-operator has this name.
        let ours = all.filter(|found| found.user == "system:kcp-operator" && !is_read(&found.verb));
        ours.map(|found| format!("{} {} {}", found.verb, found.resource, found.name)).collect()
    }

    /// Starts the daemon and kills it again, each time after more writes, until `done`. Plays the kubelet meanwhile.
    /// Returns how often it was killed. The last daemon runs.
    async fn killed_until(&self, what: &str, done: impl AsyncFn() -> bool) -> usize {
        let began = ambient::now();
        for writes in 1.. {
            let mark = self.stage.landscape.kcp.mark();
            self.stage.start();
            loop {
                if done().await {
                    return writes - 1;
                }
                assert!(
                    ambient::now().duration_since(began) < SignedDuration::from_mins(20),
                    "not {what} after {writes} starts: {}",
                    self.log()
                );
                let all = self.requests_since(mark).into_iter();
                let written = all.filter(|found| !found.starts_with("get ") && !found.starts_with("list ")).count();
                if writes <= written {
                    break;
                }
                for name in DEPLOYMENTS {
                    let found = self.read("Deployment", name).await.unwrap_or_default();
                    if !found.is_null() && found["status"]["readyReplicas"] != found["spec"]["replicas"] {
                        self.pods_are_ready(name).await;
                    }
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            self.stage.kill().await;
        }
        unreachable!("it returns or panics")
    }

    fn whole_log(&self) -> String {
        std::fs::read_to_string(self.stage.log()).unwrap_or_default()
    }

    /// Applies all resources, starts the daemon, and waits until the Kubeconfig has its permissions.
    async fn grants(&self) {
        for resource in self.resources_inside() {
            harness::apply(&self.client, &resource).await;
        }
        self.stage.start();
        self.runs().await;
        self.until("Kubeconfig", "admin", "it is granted", is_granted).await;
    }

    async fn until_bindings(&self, path: &str, within: Duration, expected: &[String]) {
        eventually(&format!("the bindings in {path}"), within, async || match self.bindings(path).await {
            found if found == expected => Ok(()),
            found => Err(format!("{found:?}\n{}", self.log())),
        })
        .await;
    }
}

/// Whether a Kubeconfig has its permissions inside kcp.
fn is_granted(kubeconfig: &Value) -> bool {
    condition(kubeconfig, "tidegate.dev/Kcp").starts_with("True Granted")
}

/// Rows 38, 39 and 72.
async fn r38_permissions_inside_kcp_come_follow_their_definition_and_go() {
    let landscape = KcpLandscape::prepare(&["--kcp-landscapes"]).await;
    for mut resource in landscape.resources_inside() {
        if resource["kind"] == "Kubeconfig" {
            let roles = json!(["cluster-admin", "reader"]);
            resource["spec"]["authorization"]["clusterRoleBindings"]["clusterRoles"] = roles;
        }
        harness::apply(&landscape.client, &resource).await;
    }
    let admin = landscape.read("Kubeconfig", "admin").await.unwrap();
    let uid = admin["metadata"]["uid"].as_str().unwrap();
    let named = |role: &str| format!("{uid}:{role}");
    // What kcp-operator made: one that stays, and one that left the definition.
    let company = landscape.inside("root:company");
    for role in ["reader", "former"] {
        let mut binding = of_kcp("ClusterRoleBinding", &named(role));
        binding["metadata"]["labels"] = json!({"operator.kcp.io/kubeconfig": uid});
        binding["roleRef"] = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role});
        binding["subjects"] =
            json!([{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "kubeconfig:admin"}]);
        harness::apply(&company, &binding).await;
    }
    let mut of_others = of_kcp("ClusterRoleBinding", "of-others");
    of_others["roleRef"] = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "reader"});
    harness::apply(&company, &of_others).await;
    landscape.stage.start();
    landscape.runs().await;
    let expected = "False Missing: ClusterRole reader does not exist in workspace root:company: create it there";
    let is_said = |found: &Value| condition(found, "tidegate.dev/Kcp") == expected;
    let admin = landscape.until("Kubeconfig", "admin", "it names the role", is_said).await;
    assert_eq!(admin["status"]["authorization"]["provisionedCluster"], "root:company");
    assert_eq!(admin["status"]["phase"], "Ready");
    let both = [named("cluster-admin"), named("reader"), "of-others".to_owned()];
    landscape.until_bindings("root:company", SOON, &both).await;
    let writes = [
        format!("delete clusterrolebindings.rbac.authorization.k8s.io {}", named("former")),
        format!("patch clusterrolebindings.rbac.authorization.k8s.io {}", named("cluster-admin")),
    ];
    assert_eq!(landscape.writes_inside("root:company"), writes, "what kcp-operator made is adopted without a write");

    harness::apply(&company, &of_kcp("ClusterRole", "reader")).await;
    landscape.until("Kubeconfig", "admin", "the role is there", is_granted).await;

    // A restart compares, and writes nothing.
    landscape.stage.rests().await;
    landscape.stage.kill().await;
    let marks = landscape.stage.marks();
    landscape.stage.start();
    landscape.until("Kubeconfig", "admin", "it is there", is_granted).await;
    landscape.stage.rests().await;
    assert_eq!(landscape.stage.requests_since(&marks), [""; 0]);
    assert_eq!(landscape.writes_inside("root:company"), writes);

    // What others delete comes back.
    let api = harness::api_of(&company, &of_kcp("ClusterRoleBinding", "any")).await.unwrap();
    api.delete(&named("reader"), &kube::api::DeleteParams::default()).await.unwrap();
    landscape.until_bindings("root:company", Duration::from_secs(700), &both).await;

    // Another workspace, and without the authorization: nothing is left behind.
    landscape.merge("Kubeconfig", "admin", None, json!({"spec": {"targetWorkspace": "root:other"}})).await;
    landscape.until_bindings("root:other", SOON, &both[..2]).await;
    landscape.until_bindings("root:company", SOON, &both[2..]).await;
    landscape.merge("Kubeconfig", "admin", None, json!({"spec": {"authorization": null}})).await;
    landscape.until_bindings("root:other", SOON, &[]).await;
    let is_without = |found: &Value| {
        found["status"]["authorization"].is_null() && condition(found, "tidegate.dev/Kcp") == "none none: none"
    };
    landscape.until("Kubeconfig", "admin", "it asks for nothing", is_without).await;

    // And with the Kubeconfig.
    let roles = json!({"clusterRoleBindings": {"clusterRoles": ["cluster-admin"]}});
    landscape.merge("Kubeconfig", "admin", None, json!({"spec": {"authorization": roles}})).await;
    landscape.until_bindings("root:other", SOON, &both[..1]).await;
    landscape.until("Kubeconfig", "admin", "it is granted", is_granted).await;
    landscape.delete("Kubeconfig", "admin").await;
    landscape.until_gone("Kubeconfig", "admin").await;
    landscape.until_bindings("root:other", SOON, &[]).await;
    landscape.until_bindings("root:company", SOON, &both[2..]).await;
}

/// Row 38: it does not wait for ever.
async fn r38_where_kcp_does_not_answer_a_kubeconfig_goes_after_five_minutes() {
    let landscape = KcpLandscape::prepare(&["--kcp-landscapes"]).await;
    landscape.grants().await;
    // It accepts connections and says nothing.
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = silent.local_addr().unwrap().to_string();
    let hanging = json!({"metadata": {"annotations": {"tidegate.dev/kcp-address": address}}});
    landscape.merge("FrontProxy", "public", None, hanging).await;
    let hangs = |found: &Value| {
        let said = condition(found, "tidegate.dev/Kcp");
        said.starts_with("False Waiting: workspace root:company: ") && said.contains(&address)
    };
    landscape.until("Kubeconfig", "admin", "it hangs, and that is said", hangs).await;
    // Nothing answers there.
    let nowhere = json!({"metadata": {"annotations": {"tidegate.dev/kcp-address": "127.0.0.1:1"}}});
    landscape.merge("FrontProxy", "public", None, nowhere).await;
    let waits = |found: &Value| {
        let said = condition(found, "tidegate.dev/Kcp");
        said.starts_with("False Waiting: workspace root:company: ") && said.contains("127.0.0.1:1)")
    };
    landscape.until("Kubeconfig", "admin", "it is said", waits).await;
    landscape.delete("Kubeconfig", "admin").await;
    let waits = |found: &Value| {
        condition(found, "tidegate.dev/Deletion")
            .starts_with("False Waiting: it is removed from kcp first, which is tried for five minutes: workspace ")
    };
    landscape.until("Kubeconfig", "admin", "it waits", waits).await;
    tokio::time::sleep(Duration::from_secs(240)).await;
    assert!(landscape.read("Kubeconfig", "admin").await.is_some(), "it is tried for five minutes");
    tokio::time::sleep(Duration::from_secs(120)).await;
    landscape.until_gone("Kubeconfig", "admin").await;
    assert!(landscape.whole_log().contains("an orphan stays inside kcp"), "{}", landscape.log());
    assert_eq!(landscape.bindings("root:company").await.len(), 1, "it stays, and the log names it");
}

/// A landscape whose Shard is known inside kcp, with clients of the workspace `root` and of all workspaces.
async fn with_a_shard() -> (KcpLandscape, kube::Client, kube::Client) {
    let landscape = KcpLandscape::prepare(&["--kcp-landscapes"]).await;
    for resource in landscape.resources_inside() {
        harness::apply(&landscape.client, &resource).await;
    }
    let (root, all) = (landscape.inside("root"), landscape.inside("*"));
    for client in [&root, &all] {
        harness::install_crds(client, &kinds_of_kcp()).await;
    }
    harness::apply(&root, &of_kcp("Shard", "eu")).await;
    (landscape, root, all)
}

/// Row 40.
async fn r40_a_shard_stays_while_it_holds_workspaces_and_is_deleted_inside_kcp_first() {
    let (landscape, root, all) = with_a_shard().await;
    for (name, id, path) in [("one", "2x4v", Some("root:company")), ("two", "system:shard", None)] {
        let mut cluster = of_kcp("LogicalCluster", name);
        cluster["metadata"]["annotations"] = json!({"kcp.io/cluster": id, "kcp.io/path": path});
        if path.is_none() {
            cluster["metadata"]["annotations"].as_object_mut().unwrap().remove("kcp.io/path");
        }
        harness::apply(&all, &cluster).await;
    }
    landscape.stage.start();
    landscape.runs().await;
    landscape.delete("VirtualWorkspace", "eu-workspaces").await;
    landscape.delete("Shard", "eu").await;
    let waits = |found: &Value| {
        condition(found, "tidegate.dev/Deletion")
            .starts_with("False Waiting: Shard eu may hold workspaces: it holds root:company; move or delete them")
    };
    landscape.until("Shard", "eu", "it names its workspace", waits).await;
    assert!(landscape.read("Deployment", "eu-shard-kcp").await.is_some());
    let shards = harness::api_of(&root, &of_kcp("Shard", "eu")).await.unwrap();
    assert!(shards.get_opt("eu").await.unwrap().is_some());

    let clusters = harness::api_of(&all, &of_kcp("LogicalCluster", "one")).await.unwrap();
    clusters.delete("one", &kube::api::DeleteParams::default()).await.unwrap();
    landscape.until_gone("Shard", "eu").await;
    assert!(shards.get_opt("eu").await.unwrap().is_none(), "it is deleted inside kcp");
    landscape.until_gone("Deployment", "eu-shard-kcp").await;
}

/// kcp refuses requests for a workspace that is gone, as it does if the client may not enter it.
async fn r38_a_former_workspace_that_is_gone_holds_nothing() {
    let landscape = KcpLandscape::prepare(&["--kcp-landscapes"]).await;
    let root = landscape.inside("root");
    harness::install_crds(&root, &kinds_of_kcp()).await;
    landscape.grants().await;

    // It is there, and refuses the daemon.
    harness::apply(&root, &of_kcp("Workspace", "company")).await;
    landscape.stage.landscape.kcp.refuse_workspace("root:company", true);
    landscape.merge("Kubeconfig", "admin", None, json!({"spec": {"targetWorkspace": "root:other"}})).await;
    let waits =
        |found: &Value| condition(found, "tidegate.dev/Kcp").starts_with("False Waiting: workspace root:company: ");
    let found = landscape.until("Kubeconfig", "admin", "it waits", waits).await;
    assert_eq!(found["status"]["authorization"]["provisionedCluster"], "root:company");
    assert_eq!(landscape.bindings("root:other").await, [""; 0]);

    // It is gone.
    let api = harness::api_of(&root, &of_kcp("Workspace", "any")).await.unwrap();
    api.delete("company", &kube::api::DeleteParams::default()).await.unwrap();
    let found = landscape.until("Kubeconfig", "admin", "it is granted", is_granted).await;
    assert_eq!(found["status"]["authorization"]["provisionedCluster"], "root:other");
    assert_eq!(landscape.bindings("root:other").await.len(), 1);

    // With the Kubeconfig, too: nothing waits, and no orphan is reported.
    landscape.stage.landscape.kcp.refuse_workspace("root:other", true);
    landscape.delete("Kubeconfig", "admin").await;
    landscape.until_gone("Kubeconfig", "admin").await;
    assert!(!landscape.whole_log().contains("an orphan stays inside kcp"), "{}", landscape.log());
}

/// Rows 40 and 75: kcp registers its Shards itself, and lets no client delete them.
async fn r40_from_kcp_0_34_on_a_shard_that_goes_is_cordoned_and_stays_in_kcp() {
    let (landscape, root, all) = with_a_shard().await;
    let admin = landscape.inside(ADMIN);
    harness::install_crds(&admin, &kinds_of_kcp()).await;
    harness::apply(&admin, &of_kcp("Shard", "eu")).await;
    landscape.merge("RootShard", "main", None, json!({"spec": {"image": {"tag": "v0.34.0"}}})).await;
    let mut cluster = of_kcp("LogicalCluster", "one");
    cluster["metadata"]["annotations"] = json!({"kcp.io/cluster": "2x4v", "kcp.io/path": "root:company"});
    harness::apply(&all, &cluster).await;
    landscape.stage.start();
    landscape.runs().await;
    landscape.delete("VirtualWorkspace", "eu-workspaces").await;
    landscape.delete("Shard", "eu").await;
    let waits = |found: &Value| {
        condition(found, "tidegate.dev/Deletion").starts_with("False Waiting: Shard eu may hold workspaces: it holds ")
    };
    landscape.until("Shard", "eu", "it names its workspace", waits).await;
    let shards = async |client: &kube::Client| harness::api_of(client, &of_kcp("Shard", "eu")).await.unwrap();
    let found = shards(&admin).await.get("eu").await.unwrap();
    let cordon = found.metadata.annotations.unwrap_or_default();
    assert_eq!(cordon.get("experimental.core.kcp.io/unschedulable").map(String::as_str), Some("true"));
    let clusters = harness::api_of(&all, &of_kcp("LogicalCluster", "one")).await.unwrap();
    clusters.delete("one", &kube::api::DeleteParams::default()).await.unwrap();
    landscape.until_gone("Shard", "eu").await;
    for client in [&admin, &root] {
        assert!(shards(client).await.get_opt("eu").await.unwrap().is_some(), "it is not deleted");
    }
    assert_eq!(landscape.writes_inside("root"), [""; 0]);
    assert_eq!(landscape.writes_inside(ADMIN), ["patch shards.core.kcp.io eu"], "once");
    assert!(landscape.whole_log().contains("stays in the list of shards of kcp"), "{}", landscape.log());
    landscape.until_gone("Deployment", "eu-shard-kcp").await;
}

impl KcpLandscape {
    /// Writes the Lease of kcp-operator, as a holder with any clock.
    pub(super) async fn held_by(client: &kube::Client, holder: &str, renewed: &str) {
        let lease = json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {"name": KCP_OPERATOR_LEASE, "namespace": NAMESPACE},
            "spec": {"holderIdentity": holder, "leaseDurationSeconds": 15, "renewTime": renewed},
        });
        harness::apply(client, &lease).await;
    }

    /// The writes of the daemon of kcp landscapes since a mark.
    pub(super) fn written_since(&self, mark: u64) -> Vec<String> {
        let all = self.requests_since(mark).into_iter();
        let of_kcp = all.filter(|found| !found.starts_with("get ") && !found.starts_with("list "));
        of_kcp.filter(|found| !found.contains("gitsources") && !found.contains("events")).collect()
    }
}

/// A Lease that was never released may be years old, or its holder's clock may be wrong.
async fn r70_a_daemon_that_starts_waits_whether_a_lease_is_renewed() {
    let landscape = KcpLandscape::prepare(&["--kcp-landscapes"]).await;
    KcpLandscape::held_by(&landscape.client, "operator-0", "2001-01-01T00:00:00.000000Z").await;
    for resource in resources() {
        harness::apply(&landscape.client, &resource).await;
    }
    let mark = landscape.stage.landscape.kcp.mark();
    landscape.stage.start();
    tokio::time::sleep(Duration::from_secs(14)).await;
    assert_eq!(landscape.written_since(mark), [""; 0]);
    landscape.runs().await;
    landscape.stage.rests().await;
    assert!(!landscape.whole_log().contains("kcp-operator runs"), "{}", landscape.log());

    // A restart waits as well, and says nothing.
    landscape.stage.kill().await;
    let marks = landscape.stage.marks();
    landscape.stage.start();
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(landscape.stage.requests_since(&marks), [""; 0]);

    // It runs after all, and its clock is far behind.
    landscape.delete("ConfigMap", "public-config").await;
    landscape.until("ConfigMap", "public-config", "it is repaired", |_| true).await;
    KcpLandscape::held_by(&landscape.client, "operator-0", "2001-01-01T00:00:02.000000Z").await;
    eventually("the daemon sees it", SOON, async || {
        let seen = landscape.whole_log().contains("kcp-operator runs; writing nothing of kcp landscapes");
        if seen { Ok(()) } else { Err(landscape.log()) }
    })
    .await;
    landscape.delete("ConfigMap", "public-config").await;
    tokio::time::sleep(Duration::from_secs(14)).await;
    assert!(landscape.read("ConfigMap", "public-config").await.is_none());
}

/// The watch may be late or interrupted.
async fn r70_a_lease_is_read_before_it_counts_as_ended() {
    let landscape = KcpLandscape::prepare(&["--kcp-landscapes"]).await;
    KcpLandscape::held_by(&landscape.client, "operator-0", "2001-01-01T00:00:00.000000Z").await;
    for resource in resources() {
        harness::apply(&landscape.client, &resource).await;
    }
    // Just before the daemon reads it, it is renewed.
    let client = landscape.client.clone();
    landscape.stage.landscape.kcp.before("/leases/239f9f9a.operator.kcp.io", async move {
        KcpLandscape::held_by(&client, "operator-0", "2001-01-01T00:00:15.000000Z").await;
    });
    let mark = landscape.stage.landscape.kcp.mark();
    landscape.stage.start();
    eventually("the daemon sees it", SOON, async || {
        let seen = landscape.whole_log().contains("kcp-operator runs; writing nothing of kcp landscapes");
        if seen { Ok(()) } else { Err(landscape.log()) }
    })
    .await;
    tokio::time::sleep(Duration::from_secs(14)).await;
    assert_eq!(landscape.written_since(mark), [""; 0]);
    landscape.runs().await;
}

/// Row 70.
async fn r70_while_kcp_operator_runs_the_daemon_writes_nothing() {
    let landscape = KcpLandscape::prepare(&["--kcp-landscapes"]).await;
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kcp-operator-system"}});
    harness::apply(&landscape.client, &namespace).await;
    let now = || ambient::now().strftime("%Y-%m-%dT%H:%M:%S.000000Z").to_string();
    let renew = async |holder: &str, renewed: String| {
        let lease = json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {"name": KCP_OPERATOR_LEASE, "namespace": "kcp-operator-system"},
            "spec": {"holderIdentity": holder, "leaseDurationSeconds": 15, "renewTime": renewed},
        });
        harness::apply(&landscape.client, &lease).await;
    };
    renew("operator-0", now()).await;
    for resource in resources() {
        harness::apply(&landscape.client, &resource).await;
    }
    let mark = landscape.stage.landscape.kcp.mark();
    let written = || {
        let all = landscape.requests_since(mark).into_iter();
        let of_kcp = all.filter(|found| !found.starts_with("get ") && !found.starts_with("list "));
        of_kcp.filter(|found| !found.contains("gitsources") && !found.contains("events")).collect::<Vec<_>>()
    };
    landscape.stage.start();
    for _ in 0..10 {
        tokio::time::sleep(Duration::from_secs(2)).await;
        renew("operator-0", now()).await;
    }
    assert_eq!(written(), [""; 0], "kcp-operator renews its Lease");
    let warned = landscape.whole_log().matches("kcp-operator runs; writing nothing of kcp landscapes").count();
    assert_eq!(warned, 1, "{}", landscape.log());
    // The command asks once, and does not go by the clock of the holder either.
    renew("operator-0", "2001-01-01T00:00:00.000000Z".to_owned()).await;
    let status = landscape.stage.command(&["status"]).await;
    let said = String::from_utf8_lossy(&status.stdout).into_owned();
    assert!(said.contains("Tidegate writes nothing of kcp landscapes, because kcp-operator runs: scale"), "{said}");

    // Released, as when it is stopped: the daemon starts by itself.
    renew("", now()).await;
    landscape.until("Secret", "main-ca", "it is made", |_| true).await;
    assert!(!written().is_empty());
    landscape.runs().await;
    landscape.stage.rests().await;

    // It starts again, and crashes: what others change stays until its Lease has ended.
    let began = ambient::now();
    renew("operator-1", now()).await;
    eventually("the daemon sees it", SOON, async || {
        let seen = landscape.whole_log().matches("kcp-operator runs; writing nothing of kcp landscapes").count();
        if seen == 2 { Ok(()) } else { Err(landscape.log()) }
    })
    .await;
    landscape.delete("ConfigMap", "public-config").await;
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert!(landscape.read("ConfigMap", "public-config").await.is_none());
    landscape.until("ConfigMap", "public-config", "it is made again", |_| true).await;
    assert!(SignedDuration::from_secs(13) <= ambient::now().duration_since(began), "the Lease has ended");
}

/// Whatever the daemon does when it is killed: the next one comes to the same end, and nothing is left behind.
async fn a_kcp_landscape_may_be_killed_anywhere_while_it_comes_and_goes() {
    let (landscape, root, _) = with_a_shard().await;
    let phases = [("RootShard", "main", "Running"), ("Shard", "eu", "Running"), ("FrontProxy", "public", "Running")];
    let kills = landscape
        .killed_until("it runs", async || {
            for (kind, name, phase) in phases {
                if landscape.read(kind, name).await.unwrap_or_default()["status"]["phase"] != phase {
                    return false;
                }
            }
            let admin = landscape.read("Kubeconfig", "admin").await.unwrap_or_default();
            admin["status"]["phase"] == "Ready" && condition(&admin, "tidegate.dev/Kcp").starts_with("True Granted")
        })
        .await;
    assert!(5 < kills, "it was killed {kills} times");
    landscape.stage.rests().await;
    landscape.stage.kill().await;
    assert_eq!(landscape.bindings("root:company").await.len(), 1);

    // A Shard and a Kubeconfig go, with what they have inside kcp.
    for (kind, name) in [("VirtualWorkspace", "eu-workspaces"), ("Kubeconfig", "admin"), ("Shard", "eu")] {
        landscape.delete(kind, name).await;
    }
    let are_gone = async |names: &[(&str, &str)]| {
        for (kind, name) in names {
            if landscape.read(kind, name).await.is_some() {
                return false;
            }
        }
        true
    };
    let first = [("VirtualWorkspace", "eu-workspaces"), ("Kubeconfig", "admin"), ("Shard", "eu")];
    landscape.killed_until("the Shard is gone", async || are_gone(&first).await).await;
    landscape.stage.kill().await;
    assert_eq!(landscape.bindings("root:company").await, [""; 0]);
    let shards = harness::api_of(&root, &of_kcp("Shard", "eu")).await.unwrap();
    assert!(shards.get_opt("eu").await.unwrap().is_none());

    let rest = [("FrontProxy", "public"), ("RootShard", "main"), ("CacheServer", "cache")];
    for (kind, name) in rest {
        landscape.delete(kind, name).await;
    }
    landscape.killed_until("all is gone", async || are_gone(&rest).await).await;
    for kind in ["Issuer", "Certificate", "ConfigMap", "Deployment", "Service"] {
        let api =
            harness::api_of(&landscape.client, &super::object(super::api_version(kind), kind, "any")).await.unwrap();
        let left = api.list(&kube::api::ListParams::default().labels("tidegate.dev/setup")).await.unwrap();
        assert!(left.items.is_empty(), "{kind}: {:?}", left.items);
    }
}
