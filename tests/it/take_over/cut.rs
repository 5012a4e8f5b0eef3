//! `adopt take`, `adopt take --finish` and `adopt release`, killed at 50 points and started again: nothing is lost, and
//! no object is written more than once more.
//!
//! The commands run in this process on copies of one landscape, so that every point begins with the same objects. They
//! are dropped between two polls, as a process that is killed: before a request, while it is on its way, or before its
//! answer is read.

use std::{collections::BTreeMap, future::poll_fn, task::Poll};

use clap::Parser;
use kube::{
    Api, Client,
    api::{DynamicObject, ListParams, Patch, PatchParams},
};
use serde_json::{Value, json};
use tidegate::internals::adopt::{self, ReleaseArguments, TakeArguments};
use tidegate_cluster::Network;

use super::{before_with, outdate, retire};
use crate::{
    harness,
    stage::{self, Copies, Stage, scenarios},
};

scenarios!(a_take_over_may_be_killed_anywhere, finishing_may_be_killed_anywhere, giving_back_may_be_killed_anywhere,);

/// At how many points each command is killed.
const POINTS: usize = 50;
/// Kinds of which the landscape has objects, each with the namespaces in which a cluster has them.
const KINDS: [(&str, &str, &[&str]); 17] = [
    ("v1", "Namespace", &[""]),
    ("v1", "Secret", &["kcp-system", "kyma-system"]),
    ("v1", "ConfigMap", &["kcp-system", "kyma-system"]),
    ("v1", "Service", &["kcp-system"]),
    ("apps/v1", "Deployment", &["kcp-system"]),
    ("cert-manager.io/v1", "Issuer", &["kcp-system"]),
    ("cert-manager.io/v1", "Certificate", &["kcp-system"]),
    ("apiextensions.k8s.io/v1", "CustomResourceDefinition", &[""]),
    ("rbac.authorization.k8s.io/v1", "ClusterRole", &[""]),
    ("coordination.k8s.io/v1", "Lease", &["kcp-system"]),
    ("operator.kyma-project.io/v1beta2", "Kyma", &["kcp-system", "kyma-system"]),
    ("operator.kyma-project.io/v1beta2", "Manifest", &["kcp-system"]),
    ("operator.kyma-project.io/v1beta2", "ModuleTemplate", &["kcp-system", "kyma-system"]),
    ("operator.kyma-project.io/v1beta2", "ModuleReleaseMeta", &["kcp-system", "kyma-system"]),
    ("operator.kyma-project.io/v1beta2", "Watcher", &["kcp-system"]),
    ("tidegate.dev/v1alpha1", "GitSource", &["kcp-system"]),
    ("example.org/v1", "Thing", &["kyma-system"]),
];

#[derive(Parser)]
struct Take {
    #[command(flatten)]
    arguments: TakeArguments,
}

#[derive(Parser)]
struct Release {
    #[command(flatten)]
    arguments: ReleaseArguments,
}

/// How often a command is polled until something was written, and in all.
#[derive(Clone, Copy, Debug)]
struct Polls {
    before_writes: usize,
    all: usize,
}

/// Every object of every cluster, without what depends on the order and time of writes.
async fn objects(copies: &Copies) -> BTreeMap<String, Value> {
    objects_of(copies.clients()).await
}

/// The same of clusters with these names, clients, and numbers of objects.
pub(super) async fn objects_of(clusters: impl IntoIterator<Item = (&str, Client, usize)>) -> BTreeMap<String, Value> {
    let mut all = BTreeMap::new();
    for (cluster, client, count) in clusters {
        all.insert(format!("{cluster} objects"), count.into());
        for (version, kind, namespaces) in KINDS {
            for namespace in namespaces {
                for object in list(&client, version, kind, namespace).await {
                    let name = object["metadata"]["name"].as_str().expect("a name").to_owned();
                    all.insert(format!("{cluster} {kind} {namespace}/{name}"), timeless(object));
                }
            }
        }
    }
    all
}

async fn list(client: &Client, version: &str, kind: &str, namespace: &str) -> Vec<Value> {
    let sample = json!({"apiVersion": version, "kind": kind, "metadata": {"name": "any", "namespace": namespace}});
    let Ok(api): Result<Api<DynamicObject>, _> = harness::api_of(client, &sample).await else { return Vec::new() };
    let found = api.list(&ListParams::default()).await.expect("a list");
    found.into_iter().map(|object| serde_json::to_value(object).expect("JSON")).collect()
}

fn timeless(mut object: Value) -> Value {
    let metadata = object["metadata"].as_object_mut().expect("metadata");
    metadata.remove("resourceVersion");
    if let Some(entries) = metadata.get_mut("managedFields").and_then(Value::as_array_mut) {
        for entry in entries.iter_mut() {
            entry.as_object_mut().expect("an entry").remove("time");
        }
        entries.sort_by_key(Value::to_string);
    }
    object
}

/// How often each object was written.
fn counted(writes: Vec<String>) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for write in writes {
        *counts.entry(write).or_default() += 1;
    }
    counts
}

/// Runs a command to its end, and counts its polls.
async fn whole(copies: &Copies, command: impl Future<Output = ()>) -> Polls {
    let mut polls = Polls { before_writes: 0, all: 0 };
    let mut command = Box::pin(command);
    poll_fn(|context| {
        polls.all += 1;
        let polled = command.as_mut().poll(context);
        if copies.writes().is_empty() {
            polls.before_writes = polls.all;
        }
        polled
    })
    .await;
    polls
}

/// Runs a command, and drops it after so many polls. Returns whether that was before its end.
async fn killed(command: impl Future<Output = ()>, polls: usize) -> bool {
    let mut left = polls;
    let mut command = Box::pin(command);
    let is_killed = poll_fn(|context| {
        if left == 0 {
            return Poll::Ready(true);
        }
        left -= 1;
        command.as_mut().poll(context).map(|()| false)
    })
    .await;
    drop(command);
    is_killed
}

/// Kills a command at 50 points from its first write to its last, each time on a copy of the landscape, and starts it
/// again. `command` runs it until it has succeeded, and `order` checks the order of all writes.
pub(crate) async fn check<C: Future<Output = ()>>(
    stage: &Stage,
    command: impl Fn(Network) -> C,
    order: impl Fn(&[String]),
) {
    let uncut = Copies::of(stage.landscape.servers());
    let before = objects(&uncut).await;
    let polls = whole(&uncut, command(uncut.network())).await;
    let (expected, allowed) = (objects(&uncut).await, counted(uncut.writes()));
    order(&uncut.writes());
    assert!(expected != before && allowed.len() > POINTS / 2, "there is much to write: {allowed:?}");
    assert_eq!(before.keys().collect::<Vec<_>>(), expected.keys().collect::<Vec<_>>(), "no object comes or goes");
    // With the first write on its way, and before the end.
    let (first, last) = (polls.before_writes, polls.all - 1);
    assert!(last - first >= POINTS, "{polls:?}");

    for point in 0..POINTS {
        let at = first + (last - first) * point / (POINTS - 1);
        let copies = Copies::of(stage.landscape.servers());
        assert!(killed(command(copies.network()), at).await, "it ended before poll {at} of {polls:?}");
        // What the killed process has sent arrives, or does not.
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        let written = copies.writes().len();
        command(copies.network()).await;
        order(&copies.writes());
        let found = objects(&copies).await;
        for (name, object) in &expected {
            assert_eq!(found.get(name), Some(object), "{name}, killed at poll {at}, after {written} writes");
        }
        assert_eq!(found.len(), expected.len(), "killed at poll {at}");
        for (write, count) in counted(copies.writes()) {
            let once = allowed.get(&write).unwrap_or_else(|| panic!("{write}, killed at poll {at}"));
            assert!(count <= once + 1, "{write}: {count} times, killed at poll {at}");
        }
    }

    // And once more, with nothing to do.
    let written = uncut.writes().len();
    command(uncut.network()).await;
    assert_eq!(uncut.writes().len(), written, "{:?}", &uncut.writes()[written..]);
}

async fn a_take_over_may_be_killed_anywhere() {
    let more: Vec<String> = (1..=60).map(|index| format!("more-{index}")).collect();
    let stage = before_with(&more).await;
    // Manifests that their Kymas have, and one that none has, which stays Lifecycle Manager's.
    for (kyma, marks) in [("one", "mandatory"), ("more-1", "mandatory"), ("more-2", "mandatory"), ("one", "orphan")] {
        apply_manifest(&stage, kyma, marks).await;
    }
    for kind in ["kymas", "moduletemplates", "modulereleasemetas", "manifests"] {
        outdate(&stage, &format!("{kind}.operator.kyma-project.io")).await;
    }
    let (kubeconfig, repository) = (stage.kubeconfig(), stage.repository.path().to_owned());
    let take = |network: Network| {
        let arguments = ["take", "--yes", "--kubeconfig"].map(std::ffi::OsString::from).into_iter();
        let arguments = arguments.chain([kubeconfig.clone().into(), repository.clone().into()]);
        let Take { arguments } = Take::parse_from(arguments);
        async move {
            match adopt::take(&arguments, &network).await.expect("it succeeds") {
                Ok(_) => {}
                Err(findings) => panic!("{findings:#?}"),
            }
        }
    };
    let kinds = [("kymas", 61), ("moduletemplates", 3), ("modulereleasemetas", 2), ("manifests", 4)];
    check(&stage, take, |writes| kinds.iter().for_each(|(kind, objects)| stored_before(writes, kind, *objects))).await;
}

/// Applies a Manifest as Lifecycle Manager.
pub(super) async fn apply_manifest(stage: &Stage, kyma: &str, marks: &str) {
    let labels = json!({
        "operator.kyma-project.io/kyma-name": kyma, "operator.kyma-project.io/module-name": format!("legacy-{marks}"),
    });
    let name = format!("{kyma}-{marks}");
    let digest = format!("sha256:{}", "0".repeat(64));
    let mut manifest = json!({
        "apiVersion": "operator.kyma-project.io/v1beta2", "kind": "Manifest",
        "metadata": {"name": name, "namespace": "kcp-system", "labels": labels},
        "spec": {"remote": true, "version": "1.0.0", "install": {"name": "raw-manifest", "source": {
            "type": "git", "source": "kcp-system/landscape", "path": "modules/legacy", "tree": digest[7..47],
        }}},
    });
    if marks == "mandatory" {
        manifest["metadata"]["labels"]["operator.kyma-project.io/mandatory-module"] = json!("true");
    }
    let api = harness::api_of(&stage.kcp, &manifest).await.expect("a kind that is served");
    let by = PatchParams::apply("lifecycle-manager").force();
    api.patch(&name, &by, &Patch::Apply(&manifest)).await.expect("an apply");
}

/// An outdated version leaves a CustomResourceDefinition after each object of its kind was stored again.
fn stored_before(writes: &[String], kind: &str, objects: usize) {
    let status = format!("/customresourcedefinitions/{kind}.operator.kyma-project.io/status");
    let ended = writes.iter().position(|write| write.ends_with(&status));
    let ended = ended.unwrap_or_else(|| panic!("{kind}: its version leaves: {writes:?}"));
    let of_kind = format!("/namespaces/kcp-system/{kind}/");
    let stored: std::collections::BTreeSet<&String> =
        writes[..ended].iter().filter(|write| write.contains(&of_kind) && write.contains(" patch ")).collect();
    assert_eq!(stored.len(), objects, "{kind}: before the version leaves, {stored:?} of {writes:?}");
}

async fn finishing_may_be_killed_anywhere() {
    // Sixteen are written at once, so there must be many for so many points.
    let more: Vec<String> = (1..=240).map(|index| format!("more-{index}")).collect();
    let stage = before_with(&more).await;
    let adopted = Patch::Merge(json!({"metadata": {"annotations": {"tidegate.dev/adopted": "true", "kept": "yes"}}}));
    for name in more.iter().map(String::as_str).chain(["one"]) {
        let shape = json!({
            "apiVersion": "operator.kyma-project.io/v1beta2", "kind": "Kyma",
            "metadata": {"name": name, "namespace": "kcp-system"},
        });
        let kymas = harness::api_of(&stage.kcp, &shape).await.expect("a kind that is served");
        kymas.patch(name, &PatchParams::default(), &adopted).await.expect("a patch");
    }
    let kubeconfig = stage.kubeconfig();
    let command = |network: Network| {
        let arguments = ["take", "--finish", "--yes", "--kubeconfig"].map(std::ffi::OsString::from).into_iter();
        let Take { arguments } = Take::parse_from(arguments.chain([kubeconfig.clone().into()]));
        async move {
            match adopt::finish(&arguments, &network).await.expect("it succeeds") {
                Ok(finished) => assert_eq!(finished.left, 0),
                Err(findings) => panic!("{findings:#?}"),
            }
        }
    };
    check(&stage, command, |_| {}).await;
}

async fn giving_back_may_be_killed_anywhere() {
    let stage = stage::ready(2).await;
    retire(&stage).await;
    let kubeconfig = stage.kubeconfig();
    let command = |network: Network| {
        let arguments = ["release", "--yes", "--kubeconfig"].map(std::ffi::OsString::from).into_iter();
        let Release { arguments } = Release::parse_from(arguments.chain([kubeconfig.clone().into()]));
        async move {
            match adopt::release(&arguments, &network).await.expect("it succeeds") {
                Ok(outcome) => assert!(outcome.left.is_empty(), "{:?}", outcome.left),
                Err(findings) => panic!("{findings:#?}"),
            }
        }
    };
    check(&stage, command, |_| {}).await;
}
