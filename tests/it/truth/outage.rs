//! What is said while the control plane cannot be reached, or denies a permission, and how soon its end has an effect.

use std::time::{Duration, Instant};

use http::StatusCode;
use serde_json::{Value, json};
use tidegate_testbed::Extent;

use crate::{
    deploy,
    harness::{self, SOON, apply, eventually, holds},
    stage::{self, Stage},
};

/// The Lease outlives the outage, as with the default timing.
const LEASE: [&str; 3] = ["--lease-duration=180s", "--lease-renew-deadline=120s", "--lease-retry-period=1s"];
/// What the log says of an outage.
const OUTAGE: &str = "the control plane cannot be reached; nothing is reconciled";
/// What waits is applied this soon after the end of an outage.
const SECONDS: Duration = Duration::from_secs(10);

/// The warnings and errors in the daemon's log.
fn problems(stage: &Stage) -> Vec<Value> {
    let log = std::fs::read_to_string(stage.log()).expect("a log");
    let lines = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let is_problem = |line: &Value| {
        let level = line["level"].as_str().unwrap_or_default().to_lowercase();
        level.starts_with("warn") || level.starts_with("err")
    };
    lines.filter(is_problem).collect()
}

fn files() -> Vec<(String, String)> {
    stage::files(1)
}

/// Waits until the runtime lacks the module that the last commit takes from it, and returns how long it took.
async fn until_applied(stage: &Stage, channel: &str) -> Duration {
    let start = Instant::now();
    let follows = |kyma: &Value| kyma["spec"]["channel"] == channel;
    stage.until("the commit is applied", &stage.kcp, "Kyma", "kcp-system", "one", follows).await;
    start.elapsed()
}

fn kyma_on(channel: &str) -> String {
    stage::kyma("one", &["cache"]).replace("channel: regular", &format!("channel: {channel}"))
}

#[tokio::test(flavor = "multi_thread")]
async fn an_outage_is_one_warning_and_its_end_is_noticed_within_seconds() {
    let files = files();
    let files: Vec<(&str, String)> = files.iter().map(|(path, text)| (path.as_str(), text.clone())).collect();
    outage(Stage::with(1, Extent::Controllers, &files, &LEASE).await).await;
}

/// A real one answers with errors while it starts, and closes its watches in its own way.
#[tokio::test(flavor = "multi_thread")]
async fn an_outage_of_a_real_api_server_is_one_warning_and_its_end_is_noticed_within_seconds() {
    let files = files();
    let files: Vec<(&str, String)> = files.iter().map(|(path, text)| (path.as_str(), text.clone())).collect();
    outage(Stage::real(1, Extent::Controllers, &files, &LEASE).await).await;
}

/// The control plane stops and comes back.
async fn outage(stage: Stage) {
    stage.start();
    stage.kyma_in("one", "Ready").await;
    stage.rests().await;
    let before = problems(&stage).len();

    stage.landscape.kcp.stop().await;
    is_one_warning(&stage, before, &["the connection failed", "the connection was lost"]).await;
    stage.landscape.kcp.start_again().await;
    ends_within_seconds(&stage).await;
}

/// A load balancer whose API servers are gone, or one whose storage is: it can be reached, and does nothing.
#[tokio::test(flavor = "multi_thread")]
async fn a_control_plane_that_answers_only_with_errors_is_an_outage_as_well() {
    let files = files();
    let files: Vec<(&str, String)> = files.iter().map(|(path, text)| (path.as_str(), text.clone())).collect();
    let stage = Stage::on_simulated(1, Extent::Controllers, &files, &LEASE).await;
    stage.start();
    stage.kyma_in("one", "Ready").await;
    stage.rests().await;
    let before = problems(&stage).len();

    stage.landscape.kcp.fail(Some(StatusCode::SERVICE_UNAVAILABLE)).await;
    let began = Instant::now();
    is_one_warning(&stage, before, &["it answers only with errors, the last with HTTP status 503"]).await;
    // And then one a minute.
    tokio::time::sleep(Duration::from_secs(50)).await;
    let said: Vec<Value> = problems(&stage).into_iter().skip(before).collect();
    let (outage, others): (Vec<&Value>, Vec<&Value>) = said.iter().partition(|line| line["msg"] == OUTAGE);
    let minutes = usize::try_from(began.elapsed().as_secs() / 59).expect("a small number");
    assert!((2..=1 + minutes).contains(&outage.len()), "{said:#?}");
    // Half of the time after which the process ends is over, which is said once.
    assert!(others.len() <= 1 && others.iter().all(|line| line["msg"] == "cannot renew the lease"), "{said:#?}");
    stage.landscape.kcp.fail(None).await;
    ends_within_seconds(&stage).await;
}

/// Connections stay open, and no request is answered. So no request fails, and only the Lease shows it.
#[tokio::test(flavor = "multi_thread")]
async fn a_control_plane_that_hangs_is_an_outage_as_well() {
    let files = files();
    let files: Vec<(&str, String)> = files.iter().map(|(path, text)| (path.as_str(), text.clone())).collect();
    hang(Stage::on_simulated(1, Extent::Controllers, &files, &LEASE).await).await;
}

/// The watches of a real one hang as well.
#[tokio::test(flavor = "multi_thread")]
async fn a_real_api_server_that_hangs_is_an_outage_as_well() {
    let files = files();
    let files: Vec<(&str, String)> = files.iter().map(|(path, text)| (path.as_str(), text.clone())).collect();
    hang(Stage::real(1, Extent::Controllers, &files, &LEASE).await).await;
}

/// The control plane hangs while the daemon leads, and answers again.
async fn hang(stage: Stage) {
    stage.start();
    stage.kyma_in("one", "Ready").await;
    stage.rests().await;
    let before = problems(&stage).len();

    stage.landscape.kcp.freeze();
    is_one_warning(&stage, before, &["it does not answer in time"]).await;
    stage.landscape.kcp.thaw();
    ends_within_seconds(&stage).await;
}

/// The log and `/readyz` say that the control plane cannot be reached, and why; nothing else is said, whatever happens.
/// Which of the causes is said depends on whether a request was open.
async fn is_one_warning(stage: &Stage, before: usize, causes: &[&str]) {
    let is_cause = |text: &str| causes.iter().any(|cause| text.contains(cause));
    eventually("the outage is said", SOON, async || {
        let said = problems(stage).into_iter().skip(before);
        let said = said.filter(|line| line["msg"] == OUTAGE);
        let names_server = |line: &Value| line["context"]["server"].as_str().is_some_and(|server| server.contains(':'));
        let said = said.filter(names_server);
        let mut said = said.map(|line| line["context"]["cause"].to_string());
        match said.next() {
            Some(said) if is_cause(&said) => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await;
    match stage.ask("health", "/readyz").await {
        Ok((503, text)) => {
            assert!(
                text.contains("the control plane at 127.0.0.1:")
                    && text.contains(" cannot be reached since")
                    && is_cause(&text),
                "{text}"
            );
        }
        other => panic!("{other:?}"),
    }
    // A commit and passes over everything meanwhile add no line.
    stage.commit("kymas/one.yaml", &kyma_on("fast"));
    holds("nothing else is said", Duration::from_secs(15), async || {
        let said: Vec<Value> = problems(stage).into_iter().skip(before).collect();
        if said.len() == 1 { Ok(()) } else { Err(format!("{said:#?}")) }
    })
    .await;
}

/// What waited is applied, and the daemon is ready.
async fn ends_within_seconds(stage: &Stage) {
    let took = until_applied(stage, "fast").await;
    assert!(took < SECONDS, "{took:?} after the control plane was back");
    eventually("it is ready again", SOON, async || match stage.ask("health", "/readyz").await {
        Ok((200, _)) => Ok(()),
        other => Err(format!("{other:?}")),
    })
    .await;
}

/// Without its RoleBinding, the daemon may do nothing in its namespace. No watch tells it that it may again.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_missing_permission_held_up_is_applied_seconds_after_it_is_granted() {
    let files = files();
    let files: Vec<(&str, String)> = files.iter().map(|(path, text)| (path.as_str(), text.clone())).collect();
    let stage = Stage::real(1, Extent::Controllers, &files, &LEASE).await;
    let is_right = |object: &&Value| {
        let kind = object["kind"].as_str().unwrap_or_default();
        kind.ends_with("Role") || kind.ends_with("RoleBinding") || kind == "ServiceAccount"
    };
    for object in deploy::objects("base").iter().filter(is_right) {
        apply(&stage.kcp, object).await;
    }
    let daemon = stage.landscape.kcp.kubeconfig_of("system:serviceaccount:kcp-system:tidegate", None);
    stage.start_as(&daemon);
    stage.kyma_in("one", "Ready").await;

    let binding = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
        "metadata": {"name": "tidegate", "namespace": "kcp-system"}});
    let api = harness::api_of(&stage.kcp, &binding).await.expect("a kind that is served");
    let granted = api.get("tidegate").await.expect("it is there");
    api.delete("tidegate", &Default::default()).await.expect("a delete");
    stage.commit("kymas/one.yaml", &kyma_on("fast"));
    let denied = "the control plane denies a permission; what needs it waits";
    eventually("the missing permission is said", SOON, async || {
        let said = problems(&stage).into_iter().any(|line| {
            let permission = line["context"]["permission"].as_str().unwrap_or_default();
            line["msg"] == denied && permission.contains("in namespace kcp-system")
        });
        if said { Ok(()) } else { Err("not yet".to_owned()) }
    })
    .await;

    let mut granted = serde_json::to_value(granted).expect("JSON");
    granted["metadata"] = binding["metadata"].clone();
    apply(&stage.kcp, &granted).await;
    let took = until_applied(&stage, "fast").await;
    assert!(took < SECONDS, "{took:?} after the permission was granted");
}
