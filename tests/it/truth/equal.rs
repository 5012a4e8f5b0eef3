//! What `tidegate diff` predicts, offline and live, is what the daemon then does: over generated changes on simulated
//! servers, and once for each change on real ones.
//!
//! A trial changes the work tree of a landscape that is at rest, asks `diff` about it, commits, and compares what
//! happened to each object. A prediction says of each object that it is created, changed, deleted, or deleted and
//! created again, either now or after a confirmation. Everything else (refused, held, waiting, or not mentioned) must
//! stay as it is. If something waits for a confirmation, the trial confirms it and compares again.

mod changes;

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use kube::api::{DynamicObject, ListParams, Patch, PatchParams};
use serde_json::{Value, json};
use tidegate_process::ambient;
use tidegate_testbed::{Extent, Folder};

use self::changes::{Change, Repo};
use crate::{
    harness::{self, SOON},
    stage::{KYMAS, QUIET, Stage, scenarios},
};

scenarios! {
    generated_changes_do_what_was_predicted;
    on real servers:
    every_change_does_what_was_predicted,
}

/// What happens to objects, by cluster, kind and name.
type Actions = BTreeMap<String, String>;
/// The objects of all clusters: identity and content.
type World = BTreeMap<String, (String, Value)>;

/// Kinds that are compared in runtimes, with their namespace.
const IN_RUNTIMES: [(&str, &str, &str); 8] = [
    ("v1", "ConfigMap", "kyma-system"),
    ("v1", "Namespace", ""),
    ("rbac.authorization.k8s.io/v1", "ClusterRole", ""),
    ("apiextensions.k8s.io/v1", "CustomResourceDefinition", ""),
    (KYMA, "ModuleTemplate", "kyma-system"),
    (KYMA, "ModuleReleaseMeta", "kyma-system"),
    (KYMA, "Kyma", "kyma-system"),
    ("example.org/v1", "Alpha", "kyma-system"),
];
/// Kinds that are compared in KCP.
const IN_KCP: [&str; 4] = ["ModuleTemplate", "ModuleReleaseMeta", "Kyma", "Manifest"];
const KYMA: &str = "operator.kyma-project.io/v1beta2";
/// Seeds of generated changes, unless the environment names their number.
const SEEDS: u64 = 12;

/// Several changes at a time, as many as a seed asks for.
async fn generated_changes_do_what_was_predicted() {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().expect("a number"));
    let (first, count) = match (number("TIDEGATE_SEED"), number("TIDEGATE_TRUTH_SEEDS")) {
        (Some(seed), None) => (seed, 1),
        (first, count) => (first.unwrap_or_default(), count.unwrap_or(SEEDS)),
    };
    for seed in first..first + count {
        let (repo, changes) = Change::some(seed);
        let mut trial = Trial::begin(repo).await;
        trial.change(&changes, &format!("seed {seed}, {changes:?}")).await;
    }
}

/// Each change once, in commits that follow each other.
async fn every_change_does_what_was_predicted() {
    let mut trial = Trial::begin(Repo::new(Some(1))).await;
    for changes in Change::in_few_commits() {
        trial.change(&changes, &format!("{changes:?}")).await;
    }
}

/// A landscape whose definitions change.
struct Trial {
    stage: Stage,
    /// The committed definitions.
    repo: Repo,
    folder: Folder,
}

impl Trial {
    /// Applies a repository.
    async fn begin(repo: Repo) -> Trial {
        let folder = harness::folder();
        let policy = folder.path().join("policy.json");
        // No window ever opens.
        std::fs::write(&policy, "{}").expect("a file");
        let files = repo.files();
        let files: Vec<(&str, String)> = files.iter().map(|(path, text)| (path.as_str(), text.clone())).collect();
        let option = format!("--maintenance-policy={}", policy.display());
        let stage = Stage::with(2, Extent::Controllers, &files, &[&option]).await;
        if let Some(limit) = repo.removal_limit {
            patch(&stage, json!({"spec": {"removalLimit": limit}})).await;
        }
        harness::apply(&stage.kcp, &changes::by_hand_in_kcp()).await;
        stage.start();
        for name in KYMAS {
            stage.kyma_in(name, "Ready").await;
        }
        for object in changes::by_hand_in_runtimes() {
            for skr in &stage.skrs {
                harness::apply(skr, &object).await;
            }
        }
        stage.rests().await;
        Trial { stage, repo, folder }
    }

    /// Makes changes, and compares predictions with what happens. `what` is for the message of a failure.
    async fn change(&mut self, changes: &[Change], what: &str) {
        let mut repo = self.repo.clone();
        changes.iter().for_each(|change| change.make(&mut repo));
        let before = world(&self.stage).await;
        let landscape = self.file("landscape.json");
        let exported = self.stage.command(&["export", "--landscape", &landscape]).await;
        assert!(exported.status.success(), "{what}: {exported:?}");
        repo.write(&self.repo, &self.stage.repository);
        self.repo = repo;
        let policy = self.file("policy.json");
        let path = self.stage.repository.path().to_str().expect("UTF-8").to_owned();
        let mut predictions = vec![
            self.predicted(&["diff", &path, "--live", "--maintenance-policy", &policy], what).await,
            self.predicted(&["diff", &path, "--landscape", &landscape, "--maintenance-policy", &policy], what).await,
        ];
        predictions.truncate(if changes.iter().any(|change| change.is_unknown_offline()) { 1 } else { 2 });
        let commit = self.stage.repository.commit(what).expect("a commit");
        let now = json!({"metadata": {"annotations": {"tidegate.dev/reconcile-requested-at": commit}}});
        patch(&self.stage, now).await;
        let is_read = |source: &Value| {
            source["status"]["attemptedRevision"].as_str().is_some_and(|revision| revision.ends_with(&commit))
        };
        let kcp = &self.stage.kcp;
        self.stage.until("the commit is read", kcp, "GitSource", "kcp-system", "landscape", is_read).await;
        self.compare(&before, &predictions, |prediction| prediction.now.clone(), what).await;
        if predictions.iter().any(|prediction| !prediction.confirmed.is_empty()) {
            let confirm = json!({"metadata": {"annotations": {"tidegate.dev/confirm-prune": commit}}});
            patch(&self.stage, confirm).await;
            // Of what waits, the live comparison shows only the definitions in KCP.
            predictions.retain(|prediction| !prediction.command.contains("--live"));
            self.compare(&before, &predictions, Prediction::all, &format!("{what}, confirmed")).await;
        }
    }

    fn file(&self, name: &str) -> String {
        self.folder.path().join(name).to_str().expect("UTF-8").to_owned()
    }

    /// Waits until what a part of the predictions says has happened, and checks that nothing else happens then.
    async fn compare(&self, before: &World, predictions: &[Prediction], of: fn(&Prediction) -> Actions, what: &str) {
        for prediction in predictions {
            self.as_predicted(before, prediction, &of(prediction), what).await;
        }
        let quiet = if ambient::is_simulated() { QUIET } else { QUIET / 4 };
        tokio::time::sleep(quiet).await;
        let after = world(&self.stage).await;
        for prediction in predictions {
            let found = prediction.differs(&of(prediction), &happened(before, &after));
            found.unwrap_or_else(|found| panic!("{what}: not as `{}` predicts\n{found}", prediction.command));
            prediction.agrees(&after, what);
        }
    }

    /// Waits until all that is predicted has happened.
    async fn as_predicted(&self, before: &World, prediction: &Prediction, actions: &Actions, what: &str) {
        let (mut waited, mut pause) = (Duration::ZERO, Duration::from_millis(200));
        while let Err(found) = prediction.differs(actions, &happened(before, &world(&self.stage).await)) {
            assert!(waited < SOON, "{what}: not as `{}` predicts\n{found}", prediction.command);
            tokio::time::sleep(pause).await;
            waited += pause;
            pause = (pause * 2).min(QUIET / 4);
        }
    }

    async fn predicted(&self, arguments: &[&str], what: &str) -> Prediction {
        // An administrator's kubeconfig is an option of the live comparison only.
        let is_live = arguments.contains(&"--live");
        let all = [arguments, &["-o", "json"]].concat();
        let output = if is_live { self.stage.command(&all).await } else { self.stage.command_offline(&all).await };
        let report: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{what}: {output:?}"));
        Prediction::read(&report, arguments.join(" "))
    }
}

async fn patch(stage: &Stage, value: Value) {
    let sample = json!({"apiVersion": "tidegate.dev/v1alpha1", "kind": "GitSource", "metadata": {"name": "landscape", "namespace": "kcp-system"}});
    let api = harness::api_of(&stage.kcp, &sample).await.expect("a kind that is served");
    api.patch("landscape", &PatchParams::default(), &Patch::Merge(value)).await.expect("a patch");
}

/// What a command predicts.
struct Prediction {
    command: String,
    /// What happens without an act of a user.
    now: Actions,
    /// What happens after a confirmation.
    confirmed: Actions,
    /// The objects that are created or changed, as they will be.
    objects: BTreeMap<String, Value>,
}

fn key(runtime: &str, kind: &str, name: &str) -> String {
    format!("{} {kind} {name}", runtime.trim_start_matches("kcp-system/"))
}

/// A Manifest is known by its runtime and module: its name is a hash of them.
fn manifest_key(runtime: &str, manifest: &Value) -> String {
    let module = manifest["metadata"]["labels"]["operator.kyma-project.io/module-name"].as_str().unwrap_or("?");
    format!("kcp {} {module}", key(runtime, "Manifest", "of"))
}

fn is_compared(key: &str) -> bool {
    let kind = key.split(' ').nth(1).unwrap_or_default();
    IN_KCP.contains(&kind) || key.contains(" Manifest of ") || IN_RUNTIMES.iter().any(|(_, known, _)| *known == kind)
}

/// The objects that Tidegate may touch.
async fn world(stage: &Stage) -> World {
    let mut world = World::new();
    for kind in IN_KCP {
        for object in list(&stage.kcp, KYMA, kind, "kcp-system").await {
            let key = match kind {
                "Manifest" => {
                    let kyma =
                        object["metadata"]["labels"]["operator.kyma-project.io/kyma-name"].as_str().unwrap_or("?");
                    manifest_key(kyma, &object)
                }
                _ => format!("kcp {kind} {}", object["metadata"]["name"].as_str().unwrap_or_default()),
            };
            world.insert(key, seen(object));
        }
    }
    for (name, skr) in KYMAS.iter().zip(&stage.skrs) {
        for (api_version, kind, namespace) in IN_RUNTIMES {
            for object in list(skr, api_version, kind, namespace).await {
                world.insert(key(name, kind, object["metadata"]["name"].as_str().unwrap_or_default()), seen(object));
            }
        }
    }
    world
}

async fn list(client: &kube::Client, api_version: &str, kind: &str, namespace: &str) -> Vec<Value> {
    let sample = json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": "any", "namespace": namespace}});
    // A kind that no CustomResourceDefinition defines has no objects.
    let Ok(api) = harness::api_of(client, &sample).await else { return Vec::new() };
    let found: Vec<DynamicObject> = api.list(&ListParams::default()).await.map(|all| all.items).unwrap_or_default();
    found.into_iter().map(|object| serde_json::to_value(object).expect("JSON")).collect()
}

/// Stands for the identity of an object that is being deleted.
const TERMINATING: &str = "terminating";

/// The identity of an object, and its content without what servers and controllers write.
fn seen(mut object: Value) -> (String, Value) {
    let uid = object["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
    let terminating = object["metadata"]["deletionTimestamp"].is_string();
    let metadata = &object["metadata"];
    let mut annotations = metadata["annotations"].clone();
    if let Some(annotations) = annotations.as_object_mut() {
        annotations.remove("tidegate.dev/digest");
    }
    let kept = json!({"labels": metadata["labels"], "annotations": annotations});
    if let Some(fields) = object.as_object_mut() {
        fields.insert("metadata".to_owned(), kept);
        fields.remove("status");
    }
    (if terminating { TERMINATING.to_owned() } else { uid }, object)
}

/// What happened to each object.
fn happened(before: &World, after: &World) -> Actions {
    let keys: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
    let action = |key: &String| match (before.get(key), after.get(key)) {
        (None, Some(_)) => Some("create"),
        (Some(_), None) => Some("delete"),
        (Some(_), Some(new)) if new.0 == TERMINATING => Some("delete"),
        (Some(old), Some(new)) if old.0 != new.0 => Some("recreate"),
        (Some(old), Some(new)) if old.1 != new.1 => Some("change"),
        (Some(_), Some(_)) | (None, None) => None,
    };
    keys.into_iter().filter_map(|key| Some((key.clone(), action(key)?.to_owned()))).collect()
}

// === impl Prediction ===

impl Prediction {
    fn read(report: &Value, command: String) -> Prediction {
        let (now, confirmed, objects) = (Actions::new(), Actions::new(), BTreeMap::new());
        let mut prediction = Prediction { command, now, confirmed, objects };
        for one in report["differences"].as_array().expect("differences") {
            let text = |pointer: &str| one.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
            let actions = match text("/effect") {
                "applies" => &mut prediction.now,
                "needs-confirmation" => &mut prediction.confirmed,
                _ => continue,
            };
            if !["create", "change", "delete", "recreate"].contains(&text("/action")) {
                continue;
            }
            let runtimes: Vec<&str> =
                one["runtimes"].as_array().expect("runtimes").iter().filter_map(Value::as_str).collect();
            let is_exact = runtimes.len() <= 1 || text("/target") != "kcp";
            for key in keys(one, &runtimes).into_iter().filter(|key| is_compared(key)) {
                if is_exact && !one["new"].is_null() {
                    prediction.objects.insert(key.clone(), one["new"].clone());
                }
                actions.insert(key, text("/action").to_owned());
            }
        }
        prediction
    }

    /// How what was predicted differs from what happened. Offline, objects that a user has created in runtimes are not
    /// known.
    fn differs(&self, predicted: &Actions, happened: &Actions) -> Result<(), String> {
        let theirs = changes::by_hand_in_runtimes().map(|object| object["metadata"]["name"].clone());
        let is_known = |key: &str| {
            self.command.contains("--live") || theirs.iter().all(|name| key.rsplit(' ').next() != name.as_str())
        };
        let only = |one: &Actions, other: &Actions| -> Vec<String> {
            let of = one.iter().filter(|(key, action)| is_known(key) && other.get(*key) != Some(action));
            of.map(|(key, action)| format!("{action} {key}")).collect()
        };
        let (wrong, missed) = (only(predicted, happened), only(happened, predicted));
        if wrong.is_empty() && missed.is_empty() {
            return Ok(());
        }
        Err(format!("predicted: {wrong:#?}\nhappened: {missed:#?}"))
    }

    /// What has happened after a confirmation.
    fn all(&self) -> Actions {
        self.now.iter().chain(&self.confirmed).map(|(key, action)| (key.clone(), action.clone())).collect()
    }

    /// What is created or changed holds what was shown, unless that waits.
    fn agrees(&self, after: &World, what: &str) {
        for (key, shown) in self.objects.iter().filter(|(key, _)| !self.confirmed.contains_key(*key)) {
            let Some((_, live)) = after.get(key) else { continue };
            let shown = seen(shown.clone()).1;
            assert!(
                tidegate_core::changes::covers(&without_nulls(&shown), live),
                "{what}: {key} by `{}`\nshown: {shown:#}\nlive: {live:#}",
                self.command
            );
        }
    }
}

/// The objects that a difference concerns.
fn keys(difference: &Value, runtimes: &[&str]) -> Vec<String> {
    let text = |pointer: &str| difference.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let shown = if difference["new"].is_null() { &difference["old"] } else { &difference["new"] };
    let (kind, name) = (text("/object/kind"), text("/object/name"));
    match (text("/target"), kind) {
        ("kcp", "Manifest") => runtimes.iter().map(|runtime| manifest_key(runtime, shown)).collect(),
        ("kcp", "Kyma") if !runtimes.is_empty() => {
            let name = |runtime: &&str| runtime.trim_start_matches("kcp-system/").to_owned();
            runtimes.iter().map(|runtime| format!("kcp {kind} {}", name(runtime))).collect()
        }
        ("kcp", _) => vec![format!("kcp {kind} {name}")],
        _ => runtimes.iter().map(|runtime| key(runtime, kind, name)).collect(),
    }
}

/// Without fields that the live object need not have.
fn without_nulls(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            let kept = fields.iter().filter(|(_, value)| !value.is_null());
            Value::Object(kept.map(|(name, value)| (name.clone(), without_nulls(value))).collect())
        }
        other => other.clone(),
    }
}
