//! Runtimes that cannot be reached: the status says so at once and keeps the cause, and a request of a user does not
//! wait.

use std::time::Duration;

use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::{Value, json};

use crate::{
    harness::apply,
    stage::{self, Stage, USER, access_secret, scenarios},
};

scenarios! {
    an_access_secret_that_leads_nowhere_is_in_the_status_at_once_and_the_cause_stays,
    a_runtime_that_cannot_be_reached_is_tried_at_once_with_another_secret,
    a_request_reaches_a_runtime_that_is_left_alone_and_its_result_is_the_exit_code,
}

/// Far less than the interval at which healthy runtimes are checked, and more than a pass takes.
const AT_ONCE: Duration = Duration::from_secs(2);
/// Long enough that all back-offs have their longest delay.
const LONG: Duration = Duration::from_secs(1200);

/// An access Secret for Kyma `one` that leads to the runtime with this number.
async fn lead_to(stage: &Stage, skr: usize) {
    apply(&stage.kcp, &access_secret("one", &stage.landscape.skrs[skr])).await;
}

async fn kyma(stage: &Stage) -> Value {
    stage::read(&stage.kcp, "Kyma", "kcp-system", "one").await.expect("it exists")
}

fn reachable(kyma: &Value) -> Option<&Value> {
    kyma["status"]["conditions"].as_array()?.iter().find(|one| one["type"] == "tidegate.dev/Reachable")
}

/// A landscape with Kyma `one`, which is Ready, and a second runtime that is down.
async fn stage_with_a_dead_runtime() -> Stage {
    let stage = stage::ready_beside_another_runtime().await;
    stage.rests().await;
    stage.landscape.skrs[1].stop().await;
    stage
}

async fn an_access_secret_that_leads_nowhere_is_in_the_status_at_once_and_the_cause_stays() {
    let stage = stage_with_a_dead_runtime().await;
    lead_to(&stage, 1).await;
    tokio::time::sleep(AT_ONCE).await;
    let first = kyma(&stage).await;
    assert_eq!(first["status"]["state"], "Error", "{first}");
    let cause = reachable(&first).expect("a condition").clone();
    assert_eq!((&cause["status"], &cause["reason"]), (&json!("False"), &json!("Unreachable")), "{cause}");
    assert!(cause["message"].as_str().unwrap().ends_with("cannot be reached: the connection failed"), "{cause}");

    tokio::time::sleep(LONG).await;
    assert_eq!(reachable(&kyma(&stage).await), Some(&cause), "the cause stays while the runtime is left alone");
    let said = |level: &str| -> Vec<String> {
        let log = std::fs::read_to_string(stage.log()).expect("a log");
        let records = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let of_runtime =
            records.filter(|record| record["level"] == level && record.to_string().contains("kcp-system/one"));
        of_runtime.filter_map(|record| record["msg"].as_str().map(str::to_owned)).collect()
    };
    assert_eq!(said("WARN"), ["a runtime cannot be reached"], "once, and not for each pass");
    let (text, code) = {
        let output = stage.command(&["status"]).await;
        (String::from_utf8_lossy(&output.stdout).into_owned(), output.status.code())
    };
    assert!(code == Some(1) && text.contains("runtime kcp-system/one") && text.contains("cannot be reached"), "{text}");

    lead_to(&stage, 0).await;
    tokio::time::sleep(AT_ONCE).await;
    assert_eq!(kyma(&stage).await["status"]["state"], "Ready");
    assert!(said("INFO").iter().any(|line| line.starts_with("all runtimes of this cause")), "{:?}", said("INFO"));
}

async fn a_runtime_that_cannot_be_reached_is_tried_at_once_with_another_secret() {
    let stage = stage_with_a_dead_runtime().await;
    lead_to(&stage, 1).await;
    tokio::time::sleep(LONG).await;
    assert_eq!(kyma(&stage).await["status"]["state"], "Error");
    lead_to(&stage, 0).await;
    tokio::time::sleep(AT_ONCE).await;
    assert_eq!(kyma(&stage).await["status"]["state"], "Ready");

    // What is no kubeconfig sends no request, and says so.
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret",
        "metadata": {
            "name": "access-one", "namespace": "kcp-system", "labels": {"operator.kyma-project.io/kyma-name": "one"},
        },
        "data": {"config": STANDARD.encode("server: nowhere")},
    });
    apply(&stage.kcp, &secret).await;
    tokio::time::sleep(AT_ONCE).await;
    assert_eq!(kyma(&stage).await["status"]["state"], "Error");
}

async fn a_request_reaches_a_runtime_that_is_left_alone_and_its_result_is_the_exit_code() {
    let stage = stage::ready(1).await;
    let reconcile = async |target: &str| {
        let output = stage.command(&["reconcile", target, "--wait", "--timeout=45s"]).await;
        let text = [output.stdout, output.stderr].concat();
        (output.status.code(), String::from_utf8_lossy(&text).into_owned())
    };
    stage.landscape.skrs[0].stop().await;
    let (code, text) = reconcile("kyma/one").await;
    assert_eq!(code, Some(5), "{text}");
    let cause = "not as desired: Error: cluster skr/kcp-system/one (";
    assert!(text.contains(cause) && text.contains(") cannot be reached: the connection failed"), "{text}");

    tokio::time::sleep(LONG).await;
    let mark = stage.landscape.skrs[0].mark();
    let manifest = kyma(&stage).await["status"]["modules"][0]["manifest"]["metadata"]["name"].clone();
    let (code, text) = reconcile(&format!("manifest/{}", manifest.as_str().unwrap())).await;
    assert_eq!(code, Some(5), "{text}");
    assert!(text.contains("the connection failed"), "{text}");

    stage.landscape.skrs[0].start_again().await;
    let (code, text) = reconcile("kyma/one").await;
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("reconciled: Ready: kyma is ready"), "{text}");
    let records = stage.landscape.skrs[0].records_since(mark);
    assert!(records.iter().any(|record| record.user == USER), "the runtime was asked: {records:?}");

    // A source whose repository is gone, and one that is good.
    let (code, text) = reconcile("gitsource/landscape").await;
    assert_eq!(code, Some(0), "{text}");
    std::fs::rename(stage.repository.path(), stage.repository.path().with_extension("gone")).unwrap();
    let (code, text) = reconcile("gitsource/landscape").await;
    assert_eq!(code, Some(5), "{text}");
    assert!(text.contains("is not a git repository") || text.contains("stays active"), "{text}");
}
