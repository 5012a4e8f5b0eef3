//! How a new version of a module spreads over runtimes.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex},
    time::Duration,
};

use futures::{StreamExt as _, TryStreamExt as _};
use jiff::Timestamp;
use k8s_openapi::api::events::v1::Event;
use kube::{
    Api,
    api::{ListParams, WatchEvent, WatchParams},
};
use serde_json::{Value, json};
use tidegate_core::{
    api::{Manifest, shared::State},
    plan::manifest_name,
    status,
};
use tidegate_process::ambient;
use tidegate_testbed::Extent;

use crate::{
    harness::{SOON, apply, eventually},
    stage::{self, MANY, Stage, scenarios},
};

scenarios! {
    a_version_spreads_in_waves_two_at_a_time_and_a_restart_loses_nothing,
    a_version_that_fails_halts_and_goes_on_by_a_fixed_one_or_when_a_user_accepts_it,
    a_paused_rollout_waits_and_a_delayed_one_begins_in_its_time,
}

/// The release of module `mailer` in one version, with annotations.
fn release(version: &str, annotations: &str) -> String {
    stage::release("mailer", &[("regular", version)]).replace(
        "metadata: {name: mailer, namespace: kcp-system}",
        &format!("metadata: {{name: mailer, namespace: kcp-system, annotations: {{{annotations}}}}}"),
    )
}

/// Canaries first, two at a time.
const POLICY: &str = r#"tidegate.dev/rollout-waves: "stage=canary", tidegate.dev/rollout-max-unavailable: "2""#;
const RELEASE: &str = "modules/mailer/release.yaml";
/// The versions with an object that another client owns in every runtime, so that they fail.
const BROKEN: [&str; 2] = ["1.1.0", "1.2.0"];

/// Runtimes with module `mailer` in 1.0.0; the first two are canaries.
async fn stage_of(runtimes: usize, annotations: &str, more: &[&str]) -> Stage {
    let mut files = Vec::new();
    for version in ["1.0.0", "1.1.0", "1.1.1", "1.2.0"] {
        files.extend(stage::module("mailer", version, version));
        if BROKEN.contains(&version) {
            let theirs = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: theirs, namespace: default}\n";
            files.push((format!("modules/mailer/{version}/objects/theirs.yaml"), theirs.to_owned()));
        }
    }
    files.push((RELEASE.to_owned(), release("1.0.0", annotations)));
    for (index, name) in MANY.iter().take(runtimes).enumerate() {
        let stage = if index < 2 { "canary" } else { "all" };
        let kyma = stage::kyma(name, &["mailer"])
            .replace("namespace: kcp-system}", &format!("namespace: kcp-system, labels: {{stage: {stage}}}}}"));
        files.push((format!("kymas/{name}.yaml"), kyma));
    }
    let files: Vec<(&str, String)> = files.iter().map(|(path, text)| (path.as_str(), text.clone())).collect();
    let stage = Stage::with(runtimes, Extent::Controllers, &files, more).await;
    let theirs =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "theirs", "namespace": "default"}});
    for skr in &stage.skrs {
        apply(skr, &theirs).await;
    }
    stage.start();
    for name in MANY.iter().take(runtimes) {
        stage.kyma_in(name, "Ready").await;
    }
    stage
}

/// A Manifest at a moment: its version, and whether that is ready.
type Moment = (String, String, bool);

/// All Manifests as they change from now on: Kyma, version, whether it is ready.
async fn follow(stage: &Stage) -> Arc<Mutex<Vec<Moment>>> {
    let found = Arc::default();
    let api: Api<Manifest> = Api::namespaced(stage.kcp.clone(), "kcp-system");
    let version = api.list(&ListParams::default()).await.expect("a list").metadata.resource_version;
    let version = version.expect("lists have one");
    let mut events = api.watch(&WatchParams::default(), &version).await.expect("a watch").boxed();
    let follower: Arc<Mutex<Vec<Moment>>> = Arc::clone(&found);
    tokio::spawn(async move {
        while let Ok(Some(event)) = events.try_next().await {
            let (WatchEvent::Added(manifest) | WatchEvent::Modified(manifest)) = event else { continue };
            let kyma =
                manifest.metadata.labels.as_ref().and_then(|labels| labels.get("operator.kyma-project.io/kyma-name"));
            let state = manifest.status.as_ref().map(|status| status.state);
            let is_ready = state == Some(State::Ready) && !status::is_outdated(&manifest);
            let moment =
                (kyma.cloned().unwrap_or_default(), manifest.spec.version.clone().unwrap_or_default(), is_ready);
            follower.lock().expect("no panic holds it").push(moment);
        }
    });
    found
}

/// The versions of the runtimes.
async fn versions(stage: &Stage) -> BTreeMap<String, String> {
    let api: Api<Manifest> = Api::namespaced(stage.kcp.clone(), "kcp-system");
    let manifests = api.list(&ListParams::default()).await.expect("a list").items;
    let version = |manifest: Manifest| {
        let labels = manifest.metadata.labels?;
        Some((labels.get("operator.kyma-project.io/kyma-name")?.clone(), manifest.spec.version?))
    };
    manifests.into_iter().filter_map(version).collect()
}

/// The Kymas that have a version.
async fn having(stage: &Stage, version: &str) -> BTreeSet<String> {
    versions(stage).await.into_iter().filter(|(_, found)| found == version).map(|(kyma, _)| kyma).collect()
}

async fn until_having(stage: &Stage, version: &str, count: usize) {
    eventually(&format!("{count} runtimes have {version}"), SOON * 2, async || {
        let found = having(stage, version).await;
        if found.len() == count { Ok(()) } else { Err(format!("{found:?}")) }
    })
    .await;
}

/// Waits for the condition of a Kyma to have this reason, and returns its message.
async fn waits(stage: &Stage, kyma: &str, reason: &str) -> String {
    let condition = |kyma: &Value| {
        let conditions = kyma["status"]["conditions"].as_array().cloned().unwrap_or_default();
        conditions.into_iter().find(|condition| condition["type"] == "tidegate.dev/Rollout")
    };
    let is = |kyma: &Value| condition(kyma).is_some_and(|condition| condition["reason"] == reason);
    let found = stage.until(&format!("{kyma} waits: {reason}"), &stage.kcp, "Kyma", "kcp-system", kyma, is).await;
    condition(&found).expect("it has one")["message"].as_str().expect("a text").to_owned()
}

/// The notes of the Events with this reason.
async fn notes(stage: &Stage, reason: &str) -> Vec<String> {
    let api: Api<Event> = Api::namespaced(stage.kcp.clone(), "kcp-system");
    let events = api.list(&ListParams::default()).await.expect("a list").items;
    let of_rollout = events.into_iter().filter(|event| event.reason.as_deref() == Some(reason));
    of_rollout.filter_map(|event| event.note).collect()
}

/// What happened on the way to a version: most runtimes that had it without being ready at a time, and whether a
/// runtime of the last wave had it before all canaries were ready.
fn course(moments: &[Moment], version: &str) -> (usize, bool) {
    let mut latest: BTreeMap<&str, bool> = BTreeMap::new();
    let (mut most, mut is_early) = (0, false);
    for (kyma, found, is_ready) in moments.iter().filter(|(_, found, _)| found == version) {
        debug_assert_eq!(found, version);
        latest.insert(kyma, *is_ready);
        most = most.max(latest.values().filter(|is_ready| !**is_ready).count());
        let canaries_are_ready = MANY[..2].iter().all(|canary| latest.get(canary) == Some(&true));
        is_early |= !MANY[..2].contains(&kyma.as_str()) && !canaries_are_ready;
    }
    (most, is_early)
}

async fn a_version_spreads_in_waves_two_at_a_time_and_a_restart_loses_nothing() {
    let stage = stage_of(10, POLICY, &[]).await;
    let moments = follow(&stage).await;
    stage.commit(RELEASE, &release("1.1.1", POLICY));
    // In the midst of it, the daemon is killed.
    eventually("some runtimes have the version", SOON, async || {
        let found = having(&stage, "1.1.1").await;
        if 4 <= found.len() { Ok(()) } else { Err(format!("{found:?}")) }
    })
    .await;
    stage.kill().await;
    let before = having(&stage, "1.1.1").await;
    assert!(before.len() < 10, "{before:?}");
    stage.start();
    until_having(&stage, "1.1.1", 10).await;
    for name in MANY {
        stage.kyma_in(name, "Ready").await;
    }
    let sample =
        "tidegate_rollout_runtimes{module_name=\"mailer\",channel=\"regular\",version=\"1.1.1\",state=\"done\"} 10";
    eventually("the metrics say that it is over", SOON, async || {
        let (_, metrics) = stage.ask("metrics", "/metrics").await?;
        if metrics.contains(sample) { Ok(()) } else { Err(metrics) }
    })
    .await;
    let moments = moments.lock().expect("no panic holds it").clone();
    assert_eq!(course(&moments, "1.1.1"), (2, false), "{moments:#?}");
    for name in MANY {
        let is_over = |kyma: &Value| !kyma["status"]["conditions"].to_string().contains("tidegate.dev/Rollout");
        stage.until("nothing waits", &stage.kcp, "Kyma", "kcp-system", name, is_over).await;
    }
}

async fn a_version_that_fails_halts_and_goes_on_by_a_fixed_one_or_when_a_user_accepts_it() {
    let stage = stage_of(10, POLICY, &[]).await;
    let canaries: BTreeSet<String> = MANY[..2].iter().map(|name| (*name).to_owned()).collect();
    stage.commit(RELEASE, &release("1.1.0", POLICY));
    for name in &canaries {
        stage.kyma_in(name, "Error").await;
    }
    // One of those that wait is woken to report it.
    let message = waits(&stage, "eight", "Halted").await;
    assert_eq!(message, "mailer 1.0.0 to 1.1.0: the rollout is halted, because it failed in other runtimes");
    eventually("an Event says so", SOON, async || {
        let notes = notes(&stage, "RolloutHalted").await;
        let is_said = notes.iter().any(|note| note.contains("it failed in the runtimes of ") && note.contains("1.1.0"));
        if is_said { Ok(()) } else { Err(format!("{notes:?}")) }
    })
    .await;
    // The others stay, are Ready, and are repaired; also after a restart.
    for _ in 0..2 {
        tokio::time::sleep(stage::QUIET).await;
        assert_eq!(having(&stage, "1.1.0").await, canaries);
        let kyma = stage.kyma_in("ten", "Ready").await;
        let module = &kyma["status"]["modules"][0];
        assert_eq!((&module["version"], &module["message"]), (&json!("1.0.0"), &Value::Null), "{module}");
        stage.kill().await;
        stage.start();
    }
    // A version that works goes everywhere, to the canaries first.
    let moments = follow(&stage).await;
    stage.commit(RELEASE, &release("1.1.1", POLICY));
    until_having(&stage, "1.1.1", 10).await;
    for name in MANY {
        stage.kyma_in(name, "Ready").await;
    }
    let moments = moments.lock().expect("no panic holds it").clone();
    assert_eq!(course(&moments, "1.1.1"), (2, false), "{moments:#?}");

    // A user accepts the failures of the canaries: two more runtimes get the version, fail, and halt it again.
    stage.commit(RELEASE, &release("1.2.0", POLICY));
    for name in &canaries {
        stage.kyma_in(name, "Error").await;
    }
    waits(&stage, "eight", "Halted").await;
    let resumed = stage.command(&["resume", "rollout/mailer"]).await;
    let said = String::from_utf8_lossy(&resumed.stdout).into_owned();
    assert!(said.contains("rollout resumed; failures that are accepted: 1.2.0=2"), "{said} {resumed:?}");
    until_having(&stage, "1.2.0", 4).await;
    tokio::time::sleep(stage::QUIET).await;
    assert_eq!(having(&stage, "1.2.0").await.len(), 4);
    let status = stage.command(&["status"]).await;
    let said = String::from_utf8_lossy(&status.stdout).into_owned();
    assert!(said.contains("Waiting for their turn in a rollout (6)"), "{said}");
}

async fn a_paused_rollout_waits_and_a_delayed_one_begins_in_its_time() {
    let paused = r#"tidegate.dev/rollout-paused: "true""#;
    let stage = stage_of(2, paused, &["--module-upgrade-rollout-max-delay=1m"]).await;
    stage.commit(RELEASE, &release("1.1.1", paused));
    let mut begins = BTreeMap::new();
    for name in ["one", "two"] {
        let message = waits(&stage, name, "Delayed").await;
        let time = message.strip_prefix("mailer 1.0.0 to 1.1.1: it begins at ").expect("a time");
        begins.insert(name, time.parse::<Timestamp>().expect("a time"));
    }
    // A restart does not begin anew.
    stage.kill().await;
    stage.start();
    for name in ["one", "two"] {
        let message = waits(&stage, name, "Paused").await;
        assert!(begins[name] <= ambient::now(), "{name}: {message}");
    }
    let late = begins.values().max().expect("two").as_second();
    assert!(ambient::now().as_second() < late + 30, "the delays are over");
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert!(having(&stage, "1.1.1").await.is_empty());
    let said = notes(&stage, "RolloutPaused").await;
    let paused = "version 1.1.1 (regular) reaches no more runtimes: the rollout is paused by annotation";
    assert!(said.len() == 1 && said[0].starts_with(paused), "{said:?}");
    let resumed = stage.command(&["resume", "rollout/mailer"]).await;
    // Git declares the pause, so it ends there.
    let said = String::from_utf8_lossy(&resumed.stderr).into_owned();
    assert!(said.contains("is suspended in git: remove the annotation tidegate.dev/rollout-paused from"), "{said}");
    stage.commit(RELEASE, &release("1.1.1", ""));
    until_having(&stage, "1.1.1", 2).await;
    let name = manifest_name("one", "example.org/module/mailer", "mailer");
    let is_ready = |manifest: &Value| manifest["status"]["state"] == "Ready";
    stage.until("it is installed", &stage.kcp, "Manifest", "kcp-system", &name, is_ready).await;
}
