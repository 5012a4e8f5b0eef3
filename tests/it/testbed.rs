//! The real servers themselves: they serve, they keep users apart, they log, and they end with us.

use k8s_openapi::api::{
    apps::v1::Deployment,
    core::v1::{ConfigMap, Namespace},
};
use kube::{
    Api,
    api::{ListParams, ObjectMeta, PostParams},
};
use serde_json::json;
use tidegate_testbed::{ControlPlane, Extent, Guarded, Options};

use crate::harness::{self, SOON, eventually};

mod webhook;

/// `.ci/run` runs this first and shows its progress: from nothing, it takes as long as half of the suite.
#[tokio::test]
async fn every_program_that_the_tests_run_can_be_built() {
    harness::assets().await;
    let programs = [
        harness::kubectl().await,
        harness::cert_manager().await,
        harness::registry().await,
        harness::sshd().await,
        harness::gitea().await.0,
        harness::helm().await,
        harness::actionlint().await,
        harness::hadolint().await,
    ];
    for program in programs {
        assert!(program.is_file(), "{}", program.display());
    }
}

/// I27: a control plane and a runtime on this machine, which know nothing of each other.
#[tokio::test]
async fn i27_servers_share_an_etcd_and_no_object() {
    let (kcp, skr) = tokio::join!(harness::kcp(), harness::skr());
    let (kcp_client, skr_client) = (kcp.client().unwrap(), skr.client().unwrap());
    let name = harness::namespace(&kcp_client, "apart").await;
    assert!(Api::<Namespace>::all(kcp_client).get_opt(&name).await.unwrap().is_some());
    assert!(Api::<Namespace>::all(skr_client).get_opt(&name).await.unwrap().is_none());
}

#[tokio::test]
async fn a_deployment_becomes_ready_on_the_simulated_node() {
    let client = harness::skr_with_node().await.client().unwrap();
    let namespace = harness::namespace(&client, "ready").await;
    let deployment = json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "operator", "namespace": namespace},
        "spec": {
            "replicas": 2,
            "selector": {"matchLabels": {"app": "operator"}},
            "template": {
                "metadata": {"labels": {"app": "operator"}},
                "spec": {"containers": [{"name": "operator", "image": "example.org/operator:1.0.0"}]},
            },
        },
    });
    harness::apply(&client, &deployment).await;
    let deployments: Api<Deployment> = Api::namespaced(client, &namespace);
    eventually("two replicas are available", SOON, async || {
        let live = deployments.get("operator").await.map_err(|error| error.to_string())?;
        let available = live.status.and_then(|status| status.available_replicas);
        if available == Some(2) { Ok(()) } else { Err(format!("{available:?} available")) }
    })
    .await;
}

#[tokio::test]
async fn rbac_decides_and_the_audit_log_counts() {
    let kcp = harness::kcp().await;
    let admin = kcp.client().unwrap();
    let namespace = harness::namespace(&admin, "audit").await;
    let account = json!({
        "apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "reader", "namespace": namespace},
    });
    harness::apply(&admin, &account).await;
    let kubeconfig = kcp.kubeconfig_of_service_account(&namespace, "reader").await.unwrap();
    let audit = kcp.audit().unwrap();
    let mark = audit.mark();

    let client = kubeconfig.client().unwrap();
    let maps: Api<ConfigMap> = Api::namespaced(client, &namespace);
    let map = ConfigMap {
        metadata: ObjectMeta { name: Some("map".to_owned()), ..ObjectMeta::default() },
        ..ConfigMap::default()
    };
    let refused = maps.create(&PostParams::default(), &map).await;
    assert!(matches!(refused, Err(kube::Error::Api(status)) if status.code == 403));
    assert!(matches!(maps.list(&ListParams::default()).await, Err(kube::Error::Api(status)) if status.code == 403));

    let user = format!("system:serviceaccount:{namespace}:reader");
    eventually("both requests are logged", SOON, async || {
        let records = audit.since(mark).map_err(|error| error.to_string())?;
        let tally = tidegate_testbed::tally(records.iter().filter(|record| record.user == user));
        let row = |verb: &str| tally.0.get(&(user.clone(), verb.to_owned(), "configmaps".to_owned(), 403)).copied();
        if row("create") == Some(1) && row("list") == Some(1) { Ok(()) } else { Err(tally.to_string()) }
    })
    .await;
}

#[tokio::test]
async fn crds_of_go_modules_are_accepted() {
    let client = harness::kcp().await.client().unwrap();
    harness::install_crds_from(&client, "istio-crds.yaml", &[]).await;
    harness::install_crds_from(&client, "cert-manager-crds.yaml", &[]).await;
}

#[tokio::test]
async fn a_server_comes_back_with_its_objects() {
    let server = harness::dedicated(Options { name: "again".to_owned(), ..Options::default() }).await;
    let client = server.client().unwrap();
    let name = harness::namespace(&client, "kept").await;
    server.stop();
    assert!(Api::<Namespace>::all(client.clone()).get(&name).await.is_err());
    server.start_again().await.unwrap();
    Api::<Namespace>::all(server.client().unwrap()).get(&name).await.unwrap();
}

#[tokio::test]
async fn a_webhooks_service_is_reached_without_a_cluster_network() {
    let skr = harness::dedicated(Options { name: "hook".to_owned(), ..Options::default() }).await;
    let client = skr.client().unwrap();
    let namespace = harness::namespace(&client, "hook").await;
    let hook = webhook::Webhook::start(skr.authority(), &format!("hook.{namespace}.svc"));
    let service = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": "hook", "namespace": namespace},
        "spec": {"ports": [{"port": 443, "targetPort": 8443}]},
    });
    harness::apply(&client, &service).await;
    harness::apply(&client, &webhook::configuration(&namespace, skr.authority().pem())).await;
    let map = |name: &str| {
        json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": name, "namespace": namespace, "labels": {"watched": "yes"}},
        })
    };
    // Without a port calls fail, which this configuration forbids.
    let refused = eventually("the configuration is in force", SOON, async || {
        match harness::try_apply(&client, &map("early")).await {
            Ok(_) => Err("the webhook was not called".to_owned()),
            Err(error) => Ok(error.to_string()),
        }
    })
    .await;
    assert!(refused.contains("failed calling webhook"), "{refused}");

    skr.webhooks().lead_to(Some(hook.port()));
    harness::apply(&client, &map("one")).await;
    assert_eq!(hook.requests(), ["POST /validate/sample?timeout=5s HTTP/1.1"]);
    assert!(1 < skr.webhooks().connections());
    skr.webhooks().lead_to(None);
}

/// The test plays both parts: without the variable it starts itself again as the process that is to be killed.
#[tokio::test]
async fn servers_end_when_their_process_is_killed() {
    const VARIABLE: &str = "TIDEGATE_TEST_KILLED";
    const NAME: &str = "testbed::servers_end_when_their_process_is_killed";
    if let Some(file) = std::env::var_os(VARIABLE) {
        let options = Options { name: "killed".to_owned(), extent: Extent::Controllers, ..Options::default() };
        let server = ControlPlane::start(harness::assets().await, options).await.unwrap();
        let said = format!("{}\n{}\n", server.folder().display(), server.etcd().folder().display());
        std::fs::write(&file, said + &server.url()).unwrap();
        std::future::pending::<()>().await;
    }
    // Few servers at a time, and this is one.
    let _permit = harness::permits(1).await;
    let folder = harness::folder();
    let file = folder.path().join("said");
    // `env` sets the variable for the other process alone. Guarded, since this test may fail before it kills it.
    let program = std::env::current_exe().unwrap();
    let arguments = [format!("{VARIABLE}={}", file.display()), program.display().to_string(), NAME.to_owned()];
    let arguments = arguments.iter().map(String::as_str).chain(["--exact", "--nocapture"]);
    let mut victim =
        Guarded::start(std::path::Path::new("/usr/bin/env"), arguments, folder.path(), &folder.path().join("log"))
            .unwrap();
    let said = eventually("the other process has its servers", 3 * SOON, async || {
        let said = std::fs::read_to_string(&file).map_err(|error| error.to_string())?;
        if said.contains("https://") { Ok(said) } else { Err(said) }
    })
    .await;
    let folders: Vec<&str> = said.lines().take(2).collect();
    let address = said.lines().last().unwrap().trim_start_matches("https://").to_owned();
    // etcd, kube-apiserver and kube-controller-manager, with two shells each. The last may still be starting.
    eventually("all processes run", SOON, async || {
        let running = processes(&folders).len();
        if running == 3 * 3 { Ok(()) } else { Err(format!("{running} processes")) }
    })
    .await;
    std::net::TcpStream::connect(&address).expect("the server is there");

    victim.signal("KILL");
    eventually("all servers are gone, and their folders", SOON, async || {
        let left = processes(&folders);
        let kept: Vec<&&str> = folders.iter().filter(|folder| std::path::Path::new(folder).exists()).collect();
        if left.is_empty() && kept.is_empty() { Ok(()) } else { Err(format!("processes {left:?}, folders {kept:?}")) }
    })
    .await;
    assert!(std::net::TcpStream::connect(&address).is_err());
    assert!(victim.ended().is_some());
}

fn processes(folders: &[&str]) -> Vec<String> {
    folders.iter().flat_map(|folder| harness::processes_below(std::path::Path::new(folder))).collect()
}
