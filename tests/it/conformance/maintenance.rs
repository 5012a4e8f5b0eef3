//! Maintenance windows, as rows of the conformance tables.

use std::{fs, os::unix::fs::symlink, path::PathBuf, time::Duration};

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::events::v1::Event;
use kube::{
    Api,
    api::{DeleteParams, ListParams, Patch, PatchParams},
};
use serde_json::{Value, json};
use tidegate_process::ambient;
use tidegate_testbed::{Extent, Folder};

use crate::{
    harness::{self, SOON, eventually},
    stage::{self, Stage, read, scenarios},
};

scenarios! {
    row_45_an_upgrade_begins_a_second_after_its_window_and_nothing_is_sent_before,
    row_45_the_last_good_policy_stays_when_a_mounted_one_is_broken,
    row_45_without_a_policy_the_upgrade_is_an_error_and_the_module_stays;
    on real servers:
    e10_the_first_installation_of_a_downtime_module_waits_for_no_window,
    e11_a_kyma_that_skips_windows_is_upgraded_at_once,
    e12_maintenance_window_waits,
}

const WAITING: &str = "waiting for next maintenance window to update module version";
const METRIC: &str = "lifecycle_mgr_maintenance_window_config_read_success";
const KYMA: &str = "operator.kyma-project.io/v1beta2";
/// A policy without windows.
const NEVER: &str = "{}";

/// The file of a policy, which tests replace as the kubelet does: it switches a symlink to a folder.
struct PolicyFile(Folder);

impl PolicyFile {
    fn new(text: &str) -> PolicyFile {
        let file = PolicyFile(harness::folder());
        symlink("..data/policy.json", file.path()).unwrap();
        file.set(text);
        file
    }

    fn path(&self) -> PathBuf {
        self.0.path().join("policy.json")
    }

    fn option(&self) -> String {
        format!("--maintenance-policy={}", self.path().display())
    }

    fn set(&self, text: &str) {
        let root = self.0.path();
        let number = fs::read_dir(root).unwrap().count();
        let folder = format!("..version-{number}");
        fs::create_dir(root.join(&folder)).unwrap();
        fs::write(root.join(&folder).join("policy.json"), text).unwrap();
        symlink(&folder, root.join("..data_tmp")).unwrap();
        fs::rename(root.join("..data_tmp"), root.join("..data")).unwrap();
    }
}

/// A policy with one window for all runtimes.
fn window(begin: Timestamp) -> String {
    json!({"default": {"begin": begin, "end": begin + SignedDuration::from_hours(2)}}).to_string()
}

/// This time, or the next full second, which is all that a policy can say.
fn full_second(time: Timestamp) -> Timestamp {
    Timestamp::from_second(time.as_second() + 1).unwrap()
}

/// Kyma `one` with module `mailer` in 1.0.0. Its version 1.1.0 requires downtime, and 1.0.1 does not.
fn files(kyma: &str) -> Vec<(String, String)> {
    let mut files = stage::module("mailer", "1.0.0", "one");
    files.extend(stage::module("mailer", "1.0.1", "one"));
    files.extend(stage::module("mailer", "1.1.0", "two"));
    for (path, text) in &mut files {
        if path.ends_with("1.1.0/module-template.yaml") {
            *text = text.replace("version: 1.1.0\n", "version: 1.1.0\n  requiresDowntime: true\n");
            assert!(text.contains("requiresDowntime"));
        }
    }
    files.push(("modules/mailer/release.yaml".to_owned(), release("1.0.0")));
    files.push(("kymas/one.yaml".to_owned(), kyma.to_owned()));
    files
}

fn release(version: &str) -> String {
    stage::release("mailer", &[("regular", version)])
}

async fn simulated(policy: &PolicyFile) -> Stage {
    let (files, option) = (files(&stage::kyma("one", &["mailer"])), policy.option());
    let files: Vec<(&str, String)> = files.iter().map(|(path, text)| (path.as_str(), text.clone())).collect();
    Stage::with(1, Extent::Controllers, &files, &[&option]).await
}

async fn real(kyma: &str, policy: &PolicyFile) -> Stage {
    let (files, option) = (files(kyma), policy.option());
    let files: Vec<(&str, String)> = files.iter().map(|(path, text)| (path.as_str(), text.clone())).collect();
    Stage::real(1, Extent::Controllers, &files, &[&option]).await
}

/// `mailer` of Kyma `one` in its status.
fn module(kyma: &Value) -> &Value {
    &kyma["status"]["modules"][0]
}

fn condition(kyma: &Value) -> Option<&Value> {
    let mut all = kyma["status"]["conditions"].as_array()?.iter();
    all.find(|condition| condition["type"] == "tidegate.dev/MaintenanceWindow")
}

async fn kyma(stage: &Stage, what: &str, is: impl Fn(&Value) -> bool) -> Value {
    stage.until(what, &stage.kcp, "Kyma", "kcp-system", "one", is).await
}

/// Waits until an upgrade waits, with this part in the condition's message.
async fn waits(stage: &Stage, part: &str) -> Value {
    kyma(stage, &format!("the upgrade waits: {part}"), |kyma| {
        module(kyma)["maintenance"] == true
            && condition(kyma).is_some_and(|found| found["message"].as_str().unwrap().contains(part))
    })
    .await
}

/// Waits until `mailer` is Ready in this version, and nothing waits.
async fn is_in(stage: &Stage, version: &str) -> Value {
    let kyma = kyma(stage, &format!("it is in {version}"), |kyma| {
        kyma["status"]["state"] == "Ready" && module(kyma)["version"] == version && module(kyma)["state"] == "Ready"
    })
    .await;
    let waits = module(&kyma)["maintenance"].as_bool().unwrap_or_default();
    assert_eq!((waits, condition(&kyma)), (false, None), "{kyma}");
    kyma
}

async fn text_is(stage: &Stage, text: &str) {
    let holds = |map: &Value| map["data"]["text"] == text;
    stage.until(&format!("it says {text}"), &stage.skrs[0], "ConfigMap", "kyma-system", "mailer-a", holds).await;
}

async fn request(stage: &Stage, value: &str) {
    let sample = json!({"apiVersion": KYMA, "kind": "Kyma", "metadata": {"name": "one", "namespace": "kcp-system"}});
    let api = harness::api_of(&stage.kcp, &sample).await.unwrap();
    let patch = json!({"metadata": {"annotations": {"tidegate.dev/reconcile-requested-at": value}}});
    api.patch("one", &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
}

async fn metric_is(stage: &Stage, value: u8) {
    let line = format!("{METRIC} {value}");
    eventually(&line, SOON, async || match stage.ask("metrics", "/metrics").await {
        Ok((200, text)) if text.lines().any(|found| found == line) => Ok(()),
        other => Err(format!("{other:?}")),
    })
    .await;
}

/// The notes of Events with this reason.
async fn notes(stage: &Stage, reason: &str) -> Vec<String> {
    let api: Api<Event> = Api::namespaced(stage.kcp.clone(), "kcp-system");
    let events = api.list(&ListParams::default()).await.unwrap().items;
    let is_it = |event: &Event| event.reason.as_deref() == Some(reason);
    events.into_iter().filter(is_it).filter_map(|event| event.note).collect()
}

/// E10: the first installation is immediate, whatever the policy; the metric says that it was read.
async fn e10_the_first_installation_of_a_downtime_module_waits_for_no_window() {
    let policy = PolicyFile::new(NEVER);
    let stage = real(&stage::kyma("one", &["mailer"]), &policy).await;
    stage.commit("modules/mailer/release.yaml", &release("1.1.0"));
    stage.start();
    is_in(&stage, "1.1.0").await;
    text_is(&stage, "two").await;
    metric_is(&stage, 1).await;
}

/// E11: a Kyma with `skipMaintenanceWindows` is upgraded at once.
async fn e11_a_kyma_that_skips_windows_is_upgraded_at_once() {
    let policy = PolicyFile::new(NEVER);
    let skips = stage::kyma("one", &["mailer"]).replace("spec:\n", "spec:\n  skipMaintenanceWindows: true\n");
    let stage = real(&skips, &policy).await;
    stage.start();
    is_in(&stage, "1.0.0").await;
    stage.commit("modules/mailer/release.yaml", &release("1.1.0"));
    is_in(&stage, "1.1.0").await;
    text_is(&stage, "two").await;
}

/// E12: without a window the old version stays, is repaired, and the Kyma is Ready; when a window opens, it is
/// upgraded.
async fn e12_maintenance_window_waits() {
    let policy = PolicyFile::new(NEVER);
    let stage = real(&stage::kyma("one", &["mailer"]), &policy).await;
    stage.start();
    is_in(&stage, "1.0.0").await;
    stage.commit("modules/mailer/release.yaml", &release("1.1.0"));
    let waiting = waits(&stage, "no maintenance window left for this runtime; waiting: mailer 1.0.0 to 1.1.0").await;
    assert_eq!((&waiting["status"]["state"], &module(&waiting)["state"]), (&json!("Ready"), &json!("Ready")));
    assert_eq!((&module(&waiting)["version"], &module(&waiting)["message"]), (&json!("1.0.0"), &json!(WAITING)));
    assert_eq!(module(&waiting)["template"]["metadata"]["name"], "mailer-1.0.0");

    // An edit of the Manifest is reverted, and so is one in the runtime.
    let name = module(&waiting)["manifest"]["metadata"]["name"].as_str().unwrap();
    let sample = json!({"apiVersion": KYMA, "kind": "Manifest", "metadata": {"name": name, "namespace": "kcp-system"}});
    let manifests = harness::api_of(&stage.kcp, &sample).await.unwrap();
    let edit = json!({"spec": {"version": "0.9.0"}});
    manifests.patch(name, &PatchParams::default(), &Patch::Merge(edit)).await.unwrap();
    let is_old = |manifest: &Value| manifest["spec"]["version"] == "1.0.0";
    stage.until("the Manifest is as before", &stage.kcp, "Manifest", "kcp-system", name, is_old).await;
    let maps: Api<k8s_openapi::api::core::v1::ConfigMap> = Api::namespaced(stage.skrs[0].clone(), "kyma-system");
    maps.delete("mailer-a", &DeleteParams::default()).await.unwrap();
    request(&stage, "1").await;
    text_is(&stage, "one").await;

    let shown = stage.command(&["status"]).await;
    let shown = String::from_utf8(shown.stdout).unwrap();
    assert!(shown.contains("Waiting for a maintenance window (1)\n  runtime kcp-system/one  the policy"), "{shown}");

    let begin = full_second(Timestamp::now() + SignedDuration::from_secs(8));
    policy.set(&window(begin));
    let next = format!("the next maintenance window begins at {begin}; waiting: mailer 1.0.0 to 1.1.0");
    waits(&stage, &next).await;
    let upgraded = is_in(&stage, "1.1.0").await;
    assert!(begin < Timestamp::now(), "not before its window: {upgraded}");
    text_is(&stage, "two").await;
    let manifest = read(&stage.kcp, "Manifest", "kcp-system", name).await.unwrap();
    assert_eq!(manifest["spec"]["version"], "1.1.0");
}

/// #45: a runtime waits for hours, costs nothing meanwhile, and is upgraded when its window begins; also after a
/// restart.
async fn row_45_an_upgrade_begins_a_second_after_its_window_and_nothing_is_sent_before() {
    let begin = full_second(ambient::now() + SignedDuration::from_hours(3));
    let policy = PolicyFile::new(&window(begin));
    let stage = simulated(&policy).await;
    stage.start();
    is_in(&stage, "1.0.0").await;
    stage.commit("modules/mailer/release.yaml", &release("1.1.0"));
    waits(&stage, &format!("begins at {begin}")).await;
    stage.rests().await;
    stage.kill().await;
    stage.start();
    stage.rests().await;
    let marks = stage.marks();
    let ahead = Duration::try_from(begin.duration_since(ambient::now())).unwrap();
    tokio::time::sleep(ahead).await;
    let writes: Vec<String> = stage
        .requests_since(&marks)
        .into_iter()
        .filter(|line| ![" get ", " list ", " watch "].iter().any(|read| line.contains(read)))
        .collect();
    assert_eq!(writes, Vec::<String>::new(), "nothing is written before the window");
    let waiting = read(&stage.kcp, "Kyma", "kcp-system", "one").await.unwrap();
    assert_eq!(module(&waiting)["version"], "1.0.0");
    tokio::time::sleep(Duration::from_secs(4)).await;
    is_in(&stage, "1.1.0").await;
    let late = ambient::now().duration_since(begin);
    assert!(late < SignedDuration::from_secs(30), "no resync was awaited: {late:?}");
}

/// #45: a policy that cannot be used is one Event and a metric, and changes nothing; the next good one takes effect.
async fn row_45_the_last_good_policy_stays_when_a_mounted_one_is_broken() {
    let begin = full_second(ambient::now() + SignedDuration::from_hours(3));
    let policy = PolicyFile::new(&window(begin));
    let stage = simulated(&policy).await;
    stage.start();
    is_in(&stage, "1.0.0").await;
    metric_is(&stage, 1).await;
    policy.set(r#"{"default": {"days": ["Saturday"], "begin": "20:00:00Z", "end": "22:00:00Z"}}"#);
    metric_is(&stage, 0).await;
    stage.commit("modules/mailer/release.yaml", &release("1.1.0"));
    waits(&stage, &format!("begins at {begin}")).await;
    tokio::time::sleep(Duration::from_secs(30)).await;
    let said = notes(&stage, "MaintenancePolicy").await;
    let problem =
        ":1: invalid day in `days`: use Mon, Tue, Wed, Thu, Fri, Sat or Sun; the last good policy stays active";
    assert!(matches!(said.as_slice(), [one] if one.ends_with(problem)), "{said:?}");
    policy.set(&window(full_second(ambient::now() - SignedDuration::from_mins(1))));
    is_in(&stage, "1.1.0").await;
    metric_is(&stage, 1).await;
}

/// #45: without a policy the module keeps its version, with Lifecycle Manager's error; an upgrade without downtime
/// goes on.
async fn row_45_without_a_policy_the_upgrade_is_an_error_and_the_module_stays() {
    let policy = PolicyFile::new("not: [a policy");
    let stage = simulated(&policy).await;
    stage.start();
    is_in(&stage, "1.0.0").await;
    stage.commit("modules/mailer/release.yaml", &release("1.0.1"));
    is_in(&stage, "1.0.1").await;
    stage.commit("modules/mailer/release.yaml", &release("1.1.0"));
    let failed = kyma(&stage, "it is an error", |kyma| module(kyma)["state"] == "Error").await;
    let text = "failed to determine if maintenance window is active: no maintenance window policy configured";
    assert_eq!((&module(&failed)["message"], &module(&failed)["version"]), (&json!(text), &json!("1.0.1")));
    assert_eq!(condition(&failed).unwrap()["reason"], "NoPolicy");
    assert_eq!(notes(&stage, "MaintenancePolicy").await.len(), 1);
    text_is(&stage, "one").await;
    policy.set(&window(full_second(ambient::now() - SignedDuration::from_mins(1))));
    is_in(&stage, "1.1.0").await;
}
