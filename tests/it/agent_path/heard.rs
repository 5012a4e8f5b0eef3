//! Which agents count as connected: only those whose events would be accepted.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::Value;
use tidegate_testbed::{Extent, free_port};

use super::world::{self, AGENT, until_watch};
use crate::{
    events::listening,
    listener::client,
    stage::{Stage, scenarios},
};

scenarios! {
    a_probe_with_a_certificate_whose_events_are_refused_is_not_heard,
}

/// The certificate in the Secret of the first runtime, once it differs from `former`.
async fn certificate(stage: &Stage, former: &str) -> String {
    let text = |secret: &Value| {
        let encoded = secret["data"]["tls.crt"].as_str().unwrap_or_default();
        String::from_utf8(STANDARD.decode(encoded).unwrap_or_default()).unwrap_or_default()
    };
    let holds = |secret: &Value| ![former, ""].contains(&text(secret).as_str());
    let secret =
        stage.until("the certificate arrives", &stage.skrs[0], "Secret", "kyma-system", "skr-webhook-tls", holds).await;
    text(&secret)
}

/// Sends a probe, as agents do. The header names the certificate, as a gateway does.
async fn probe(stage: &Stage, certificate: &str) {
    let address = listening(&stage.log(), "events").expect("it listens");
    let mut stream = client::Raw::connect(address).await;
    let header = client::xfcc(certificate);
    stream.send(format!("GET /v2/lifecycle-manager/event HTTP/1.1\r\nhost: a\r\n{header}\r\n\r\n").as_bytes()).await;
    assert_eq!(stream.reply().await.status, 405);
}

/// If the events of an agent are rejected, its probes prove nothing. Otherwise changes in its runtime would stay
/// undetected.
async fn a_probe_with_a_certificate_whose_events_are_refused_is_not_heard() {
    let listener = free_port();
    let addresses =
        [format!("--events-tls-address=127.0.0.1:{listener}"), format!("--listener-address=localhost:{listener}")];
    let arguments: Vec<&str> = AGENT.into_iter().chain(addresses.iter().map(String::as_str)).collect();
    let stage = world::stage(1, Extent::Node, &[], &arguments).await;
    stage.start();
    stage.kyma_in("one", "Ready").await;
    until_watch(&stage, "one", "Unknown Awaited").await;

    // The runtime moves to another domain. Its former certificate is still valid, but for the old domain.
    let former = certificate(&stage, "").await;
    let moved = world::kyma("one", &["cache"]).replace("one.example.org", "moved.example.org");
    stage.commit("kymas/one.yaml", &moved);
    let current = certificate(&stage, &former).await;
    stage
        .until("the Kyma has moved", &stage.kcp, "Kyma", "kcp-system", "one", |kyma| {
            kyma["metadata"]["annotations"]["skr-domain"] == "moved.example.org"
        })
        .await;

    probe(&stage, &former).await;
    until_watch(&stage, "one", "False Refused").await;
    // It connects, but no API server calls an agent here.
    probe(&stage, &current).await;
    until_watch(&stage, "one", "False Deaf").await;
}
