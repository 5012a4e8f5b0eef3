//! Who may send events to the daemon: ids and domains of Kymas, replicas that do not lead, ports that are in use.

use std::path::Path;

use serde_json::{Value, json};

use super::{Certificates, kyma_event};
use crate::{
    daemon::{Daemon, TestNamespace},
    harness::{self, SOON, apply, eventually},
    listener::client::{self, Reply},
};

async fn place() -> (TestNamespace, Certificates) {
    let place = TestNamespace::real().await;
    let certificates = Certificates::new();
    certificates.install(&place.client, &place.namespace).await;
    (place, certificates)
}

async fn kyma(place: &TestNamespace, name: &str, id: &str, domain: &str) {
    apply(
        &place.client,
        &json!({"apiVersion": "operator.kyma-project.io/v1beta2", "kind": "Kyma",
            "metadata": {"name": name, "namespace": place.namespace, "labels": {"kyma-project.io/runtime-id": id},
                "annotations": {"skr-domain": domain}},
            "spec": {"channel": "regular"}}),
    )
    .await;
}

async fn post(daemon: &Daemon, header: &str) -> Reply {
    client::post(daemon.address("events").expect("it listens"), header, &kyma_event()).await
}

/// Asks until the daemon's watches have seen the last write.
async fn until_answered(daemon: &Daemon, header: &str, status: u16) -> Reply {
    eventually(&format!("the answer is {status}"), SOON, async || match post(daemon, header).await {
        reply if reply.status == status => Ok(reply),
        reply => Err(format!("{reply:?}\n{}", daemon.process.log_tail())),
    })
    .await
}

async fn metric(daemon: &Daemon, series: &str) -> f64 {
    let (_, text) = daemon.ask("metrics", "/metrics").await.unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
    line.and_then(|value| value.parse().ok()).unwrap_or_else(|| panic!("{series} is not in {text}"))
}

async fn events_of(place: &TestNamespace, name: &str) -> Vec<String> {
    let sample = json!({"apiVersion": "events.k8s.io/v1", "kind": "Event",
        "metadata": {"name": "any", "namespace": place.namespace}});
    let all = harness::api_of(&place.client, &sample).await.unwrap().list(&Default::default()).await.unwrap();
    let of = all.items.iter().filter(|event| event.data["regarding"]["name"] == name);
    of.filter_map(|event| event.data["reason"].as_str().map(str::to_owned)).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_58_and_59_a_runtime_is_known_by_its_id_and_by_one_kyma_only() {
    let (place, certificates) = place().await;
    let domain = super::domain("one");
    let daemon = place.start("lookup", &["--event-settle=0s"]);
    daemon.until_ready().await;
    let header = certificates.header("one");
    let reply = until_answered(&daemon, &header, 403).await;
    assert_eq!(reply.body, "no runtime has the id that the certificate names\n");
    kyma(&place, "one", "id-one", &domain).await;
    until_answered(&daemon, &header, 200).await;
    // Another Kyma with the same id: the daemon cannot tell which one is meant.
    kyma(&place, "two", "id-one", &domain).await;
    let reply = until_answered(&daemon, &header, 403).await;
    assert_eq!(reply.body, "several runtimes have the id that the certificate names\n");
    assert!(metric(&daemon, r#"tidegate_listener_refused_total{reason="runtime-ambiguous"}"#).await >= 1.0);
    for name in ["one", "two"] {
        eventually("the Kyma is told", SOON, async || match events_of(&place, name).await {
            reasons if reasons.iter().any(|reason| reason == "RuntimeIdAmbiguous") => Ok(()),
            reasons => Err(format!("{reasons:?}")),
        })
        .await;
    }
    kyma(&place, "two", "id-two", &super::domain("two")).await;
    until_answered(&daemon, &header, 200).await;
    until_answered(&daemon, &certificates.header("two"), 200).await;
    let path = r#"watcher_listener_failed_verification_requests_total{server_name="listener",request_uri_label="/v2/lifecycle-manager/event"}"#;
    assert!(metric(&daemon, path).await >= 2.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn row_60_a_certificate_must_name_the_domain_of_its_runtime_unless_one_is_told_otherwise() {
    let (place, certificates) = place().await;
    kyma(&place, "one", "id-one", "ONE.kyma.example.org").await;
    kyma(&place, "two", "id-two", "elsewhere.example.org").await;
    let bare = json!({"apiVersion": "operator.kyma-project.io/v1beta2", "kind": "Kyma",
        "metadata": {"name": "bare", "namespace": place.namespace, "labels": {"kyma-project.io/runtime-id": "id-bare"}},
        "spec": {"channel": "regular"}});
    apply(&place.client, &bare).await;
    let (one, two, bare) = (certificates.header("one"), certificates.header("two"), certificates.header("bare"));
    for (mode, expected) in [("enforce", [200, 403, 403]), ("warn", [200, 200, 200]), ("off", [200, 200, 200])] {
        let mut daemon = place.start(mode, &[&format!("--domain-name-pinning={mode}")]);
        daemon.until_ready().await;
        for (header, status) in [&one, &two, &bare].into_iter().zip(expected) {
            let reply = post(&daemon, header).await;
            assert_eq!(reply.status, status, "{mode}: {reply:?}");
        }
        let unverified = metric(&daemon, "tidegate_listener_unverified_events_total").await;
        assert_eq!(unverified, if mode == "warn" { 2.0 } else { 0.0 }, "{mode}");
        daemon.process.signal("TERM");
        daemon.until_ended().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn row_63_who_does_not_lead_says_503_and_the_way_can_be_probed_all_the_same() {
    let (place, certificates) = place().await;
    kyma(&place, "one", "id-one", &super::domain("one")).await;
    let first = place.start("first", &[]);
    first.until_ready().await;
    let second = place.start("second", &[]);
    let header = certificates.header("one");
    eventually("the second listens", SOON, async || second.address("events").ok_or_else(String::new)).await;
    // Before the daemon has read its certificates, it answers 503, and keeps the connection open.
    let reply =
        eventually("it ends the connection, so that the next may lead to another", SOON, async || {
            match post(&second, &header).await {
                reply if reply.header("connection") == Some("close") => Ok(reply),
                reply => Err(format!("{reply:?}\n{}", second.process.log_tail())),
            }
        })
        .await;
    assert_eq!((reply.status, reply.header("retry-after")), (503, Some("2")));
    let address = second.address("events").unwrap();
    assert_eq!(client::request(address, "GET /v2/lifecycle-manager/event", &[], b"").await.status, 405);
    until_answered(&first, &header, 200).await;
    drop(first);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bundle_that_comes_later_is_believed_at_once() {
    let place = TestNamespace::new().await;
    kyma(&place, "one", "id-one", &super::domain("one")).await;
    let daemon = place.start("late", &[]);
    daemon.until_ready().await;
    let certificates = Certificates::new();
    let header = certificates.header("one");
    assert_eq!(post(&daemon, &header).await.status, 503, "no sender can be verified yet");
    certificates.install(&place.client, &place.namespace).await;
    until_answered(&daemon, &header, 200).await;
    // Our own TLS listener is there as well.
    let tls = client::TlsClient::new(certificates.authority.pem(), Some(&certificates.for_kyma("one")));
    let address = daemon.address("events over TLS").expect("it listens");
    eventually("TLS is served", SOON, async || match tls.post(address, &kyma_event()).await {
        Some(reply) if reply.status == 200 => Ok(()),
        other => Err(format!("{other:?}")),
    })
    .await;
    // Another CA replaces the first one.
    let others = Certificates::new();
    others.install(&place.client, &place.namespace).await;
    until_answered(&daemon, &header, 401).await;
    until_answered(&daemon, &others.header("one"), 200).await;
}

#[tokio::test]
async fn row_64_a_port_that_is_taken_ends_the_process_and_off_is_no_port() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    let folder = harness::folder();
    let run = async |events: &str| {
        let mut command = tokio::process::Command::new(Path::new(env!("CARGO_BIN_EXE_tidegate")));
        command.args([
            "run",
            "--metrics-address=127.0.0.1:0",
            "--health-address=127.0.0.1:0",
            "--events-tls-address=off",
            "--hooks-address=off",
        ]);
        command.arg(format!("--events-address={events}"));
        command.arg(format!("--state={}", folder.path().display())).arg("--kubeconfig=/nowhere");
        let output = command.output().await.unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let (code, text) = run(&address.to_string()).await;
    assert_eq!(code, Some(2));
    assert!(text.contains(&format!("cannot listen on {address} for events")), "{text}");
    let (_, text) = run("off").await;
    assert!(!text.contains("cannot listen") && text.contains("/nowhere"), "{text}");
}

#[tokio::test]
async fn what_cannot_be_meant_is_refused_with_a_sentence() {
    for (option, expected) in [
        ("--xfcc-trusted-peers=10.0.0.0/33", "`xfccTrustedPeers`: invalid network `10.0.0.0/33`"),
        ("--xfcc-gateway-identity=gateway", "`xfccGatewayIdentity`: invalid SPIFFE ID `gateway`: use for example"),
        ("--event-settle=2m", "`eventSettle`: 2m is too long: use at most 1m"),
        ("--events-address=8082", "invalid address `8082`: use IP:PORT, :PORT or off"),
    ] {
        let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_tidegate"));
        let output = command.args(["run", "--print-config", option]).output().await.unwrap();
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{option}: {text}");
        assert!(text.contains(expected), "{option}: {text}");
    }
    let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_tidegate"));
    let output =
        command.args(["run", "--print-config", "--kyma-skr-listener-bind-address=:9082"]).output().await.unwrap();
    let printed: Value = serde_yaml::from_slice(&output.stdout).unwrap();
    assert_eq!(printed["eventsAddress"], "0.0.0.0:9082");
}
