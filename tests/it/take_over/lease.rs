//! The Lease of a Lifecycle Manager that has ended: it does not release it, so a daemon waits as long as it says.

use std::time::Duration;

use serde_json::{Value, json};
use tidegate_testbed::Extent;
use tokio::time::Instant;

use super::{LEASE, apply};
use crate::{
    harness::{SOON, eventually},
    stage::{self, Stage, read, scenarios},
};

scenarios!(while_a_lifecycle_manager_that_has_ended_keeps_its_lease_the_daemon_says_until_when);

const KLM: &str = "klm-controller-manager-0_3f0e";
/// How long its Lease lasts by default.
const LASTS: Duration = Duration::from_secs(180);
/// The default times of the daemon, which are not those of other tests.
const TIMES: [&str; 3] = ["--lease-duration=180s", "--lease-renew-deadline=120s", "--lease-retry-period=3s"];

/// The Lease, as Lifecycle Manager renews it.
async fn renew(stage: &Stage) {
    let now = tidegate_process::ambient::now();
    let lease = json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"name": LEASE, "namespace": "kcp-system"},
        "spec": {"holderIdentity": KLM, "leaseDurationSeconds": LASTS.as_secs(), "renewTime": format!("{now:.6}")},
    });
    apply(&stage.kcp, &lease).await;
}

/// What the log says with these words.
fn said(stage: &Stage, words: &str) -> Vec<Value> {
    let log = std::fs::read_to_string(stage.log()).expect("a log");
    let records = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    records.filter(|record| record["msg"].as_str().is_some_and(|message| message.contains(words))).collect()
}

/// The seconds before a word of a sentence.
fn seconds_before(sentence: &str, words: &str) -> u64 {
    let before = sentence.split_once(words).unwrap_or_else(|| panic!("{words}: {sentence}")).0;
    before.rsplit(' ').next().and_then(|number| number.parse().ok()).unwrap_or_else(|| panic!("{words}: {sentence}"))
}

async fn while_a_lifecycle_manager_that_has_ended_keeps_its_lease_the_daemon_says_until_when() {
    const WAITS: &str = "another process holds the lease; this process waits until it is released";
    const ENDED: &str = "the holder of the lease does not renew it; this process takes over after this wait";
    let files = stage::files(1);
    let files: Vec<(&str, String)> = files.iter().map(|(path, text)| (path.as_str(), text.clone())).collect();
    let stage = Stage::with(1, Extent::Controllers, &files, &TIMES).await;
    renew(&stage).await;
    let marks = stage.marks();
    stage.start();
    let ready = async || stage.ask("health", "/readyz").await;
    let waits = format!("not leading: {KLM} holds the Lease, and this process has seen no renewal for ");
    eventually("it names Lifecycle Manager", SOON, async || match ready().await? {
        (503, body) if body.contains(&waits) => Ok(()),
        (status, body) => Err(format!("{status} {body}")),
    })
    .await;
    let mut ended = Instant::now();
    for _ in 0..6 {
        tokio::time::sleep(Duration::from_secs(5)).await;
        ended = Instant::now();
        renew(&stage).await;
    }
    let [waiting] = &said(&stage, WAITS)[..] else { panic!("it is said once: {:#?}", said(&stage, WAITS)) };
    assert_eq!((&waiting["level"], &waiting["context"]["holder"]), (&json!("INFO"), &json!(KLM)), "{waiting:#}");
    assert_eq!(waiting["context"]["duration_seconds"], LASTS.as_secs(), "{waiting:#}");
    assert!(said(&stage, ENDED).is_empty(), "it renews its Lease");

    let silent = eventually("the log says that it has ended", SOON, async || {
        said(&stage, ENDED).pop().ok_or_else(|| "not yet".to_owned())
    })
    .await;
    assert_eq!((&silent["level"], &silent["context"]["holder"]), (&json!("WARN"), &json!(KLM)), "{silent:#}");
    let (_, body) = ready().await.expect("an answer");
    let sentence = body.lines().find(|line| line.starts_with("not leading: ")).expect("it waits");
    let times = [
        ["unrenewed_seconds", "wait_seconds"].map(|field| silent["context"][field].as_u64().expect("a number")),
        [seconds_before(sentence, " s; it takes over when"), seconds_before(sentence, " s if it is not renewed")],
    ];
    for [unrenewed, wait] in times {
        // Both are rounded down.
        assert!((15..60).contains(&unrenewed) && [179, 180].contains(&(unrenewed + wait)), "{silent:#} {sentence}");
    }

    // It keeps its word: no write before, and then it leads. Its clock and ours may be a read apart.
    tokio::time::sleep_until(ended + LASTS - Duration::from_secs(5)).await;
    let written = stage.requests_since(&marks);
    assert!(written.is_empty(), "Lifecycle Manager has the Lease: {written:?}");
    eventually("it leads", SOON, async || match ready().await? {
        (200, _) => Ok(()),
        (status, body) => Err(format!("{status} {body}")),
    })
    .await;
    let lease = read(&stage.kcp, "Lease", "kcp-system", LEASE).await.expect("it is there");
    assert!(
        lease["spec"]["holderIdentity"].as_str().is_some_and(|holder| holder.starts_with("tidegate_")),
        "{lease:#}"
    );
    assert_eq!(said(&stage, ENDED).len(), 1, "it is said once");
    stage.kyma_in("one", "Ready").await;
}
