//! Definitions whose checks do not end, and sources with diagnostics without end.

use std::fmt::Write as _;

use kube::api::DeleteParams;
use serde_json::{Value, json};
use tidegate_testbed::{Extent, Repository};

use crate::{
    harness::{self, SOON, apply, eventually},
    stage::{Stage, kyma, module, release},
};

/// Three nested loops over this many items take hours.
const ITEMS: usize = 5_000;

fn files(name: &str) -> Vec<(String, String)> {
    let mut files = module(name, "1.0.0", "one");
    files.push((format!("modules/{name}/release.yaml"), release(name, &[("regular", "1.0.0")])));
    files
}

async fn stage() -> Stage {
    let files = files("mailer");
    let files: Vec<(&str, String)> = files.iter().map(|(path, text)| (path.as_str(), text.clone())).collect();
    Stage::with(1, Extent::Controllers, &files, &["--workers=8"]).await
}

/// A definition of a kind, and a custom resource of it, whose rule compares all with all with all.
fn endless_rule() -> String {
    let mut items = String::new();
    (0..ITEMS).for_each(|item| write!(items, "{item},").unwrap());
    format!(
        "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {{name: sums.example.org}}\n\
         spec:\n  group: example.org\n  names: {{kind: Sum, plural: sums}}\n  scope: Namespaced\n  versions:\n  \
         - name: v1\n    served: true\n    storage: true\n    schema:\n      openAPIV3Schema:\n        type: object\n        \
         properties:\n          items:\n            type: array\n            items: {{type: integer}}\n            \
         x-kubernetes-validations: [{{rule: 'self.all(a, self.all(b, self.all(c, a + b + c >= 0)))'}}]\n---\n\
         apiVersion: example.org/v1\nkind: Sum\nmetadata: {{name: sum, namespace: kyma-system}}\nitems: [{items}]\n"
    )
}

fn source(name: &str, repository: &Repository) -> Value {
    json!({
        "apiVersion": "tidegate.dev/v1alpha1", "kind": "GitSource",
        "metadata": {"name": name, "namespace": "kcp-system"},
        "spec": {"url": repository.url(), "ref": {"branch": "main"}, "interval": "10s", "timeout": "10s"},
    })
}

fn condition<'a>(source: &'a Value, type_: &str) -> Option<&'a Value> {
    source["status"]["conditions"].as_array()?.iter().find(|condition| condition["type"] == type_)
}

#[tokio::test(flavor = "multi_thread")]
async fn checks_without_end_are_one_sentence_about_their_sources_and_delay_nothing_else() {
    let stage = stage().await;
    let folder = harness::folder();
    // They leave a place for the check of another source.
    let names = ["a", "b", "c", "d", "e", "f"].map(|name| format!("endless{name}"));
    let repositories = names.each_ref().map(|name| {
        let repository = Repository::init(&folder.path().join(name)).unwrap();
        for (path, text) in files(name) {
            repository.write(&path, &text).unwrap();
        }
        let first = repository.commit("first").unwrap();
        (repository, first)
    });
    for (name, (repository, _)) in names.iter().zip(&repositories) {
        apply(&stage.kcp, &source(name, repository)).await;
    }
    stage.start();
    for (name, (_, first)) in names.iter().zip(&repositories) {
        stage
            .until("the first revision is applied", &stage.kcp, "GitSource", "kcp-system", name, |source| {
                source["status"]["appliedRevision"] == format!("main@sha1:{first}")
            })
            .await;
    }
    for (name, (repository, _)) in names.iter().zip(&repositories) {
        repository.write(&format!("modules/{name}/1.0.0/objects/endless.yaml"), &endless_rule()).unwrap();
        repository.commit("second").unwrap();
    }
    let good = stage.commit("kymas/one.yaml", &kyma("one", &["mailer"]));
    stage.kyma_in("one", "Ready").await;
    stage
        .until("a good source goes on", &stage.kcp, "GitSource", "kcp-system", "landscape", |source| {
            source["status"]["appliedRevision"] == format!("main@sha1:{good}")
        })
        .await;
    for (name, (_, first)) in names.iter().zip(&repositories).take(2) {
        let source = stage
            .until("the limit is reported", &stage.kcp, "GitSource", "kcp-system", name, |source| {
                condition(source, "Fetched").is_some_and(|fetched| fetched["reason"] == "LimitExceeded")
            })
            .await;
        let message = condition(&source, "Fetched").unwrap()["message"].as_str().unwrap().to_owned();
        let limit =
            "cannot be checked in what the fetch leaves of spec.timeout, which is 10 s: set a longer spec.timeout";
        assert!(message.contains(limit) && message.starts_with("main@sha1:"), "{message}");
        assert_eq!(source["status"]["appliedRevision"], format!("main@sha1:{first}"), "the last good revision stays");
    }
}

/// What a metric says of a source; `None` if the daemon does not know the source.
async fn metric(stage: &Stage, name: &str, source: &str) -> Option<usize> {
    let (_, text) = stage.ask("metrics", "/metrics").await.unwrap();
    let series = format!("{name}{{source=\"kcp-system/{source}\"}} ");
    text.lines().find_map(|line| line.strip_prefix(&series)?.trim().parse().ok())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_daemon_lists_ten_thousand_diagnostics_of_all_sources_together() {
    const SOURCES: usize = 14;
    let stage = stage().await;
    let folder = harness::folder();
    for number in 0..SOURCES {
        let name = format!("noisy{number:02}");
        let repository = Repository::init(&folder.path().join(&name)).unwrap();
        // A file lists fifty, and a source a thousand.
        for file in 0..25 {
            repository.write(&format!("{file}.yaml"), &"- 1\n---\n".repeat(100)).unwrap();
        }
        repository.commit("noise").unwrap();
        apply(&stage.kcp, &source(&name, &repository)).await;
    }
    stage.start();
    let (mut all, mut full) = (0, 0);
    for number in 0..SOURCES {
        let name = format!("noisy{number:02}");
        let source = stage
            .until("the problems are reported", &stage.kcp, "GitSource", "kcp-system", &name, |source| {
                condition(source, "Ready").is_some_and(|ready| ready["reason"] == "Invalid")
            })
            .await;
        let shown = source["status"]["diagnostics"].as_array().unwrap().len();
        assert_eq!(shown, 20, "each source shows as many as fit into its status");
        let listed = metric(&stage, "tidegate_source_diagnostics", &name).await.unwrap();
        assert!(20 <= listed, "{name} lists {listed}");
        full += usize::from(1_000 <= listed);
        all += listed;
    }
    // Beside those that fit, each file and each source has one line with the number of the others.
    println!("{all} diagnostics, {full} sources with all that they may list");
    assert!((9_000..=10_000 + SOURCES * 80).contains(&all), "{all}");
    assert!(full < 11, "{full} sources have a thousand");
    let good = stage.commit("kymas/one.yaml", &kyma("one", &["mailer"]));
    stage.kyma_in("one", "Ready").await;
    stage
        .until("a good source goes on", &stage.kcp, "GitSource", "kcp-system", "landscape", |source| {
            source["status"]["appliedRevision"] == format!("main@sha1:{good}")
        })
        .await;
}

/// The memory of a process that is its own, in MiB.
fn resident_mib(process: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() >> 10
}

#[tokio::test(flavor = "multi_thread")]
async fn the_memory_of_a_source_that_is_gone_is_given_back() {
    const MIB: usize = 39;
    let stage = stage().await;
    let folder = harness::folder();
    let repository = Repository::init(&folder.path().join("large")).unwrap();
    for (path, text) in files("large") {
        repository.write(&path, &text).unwrap();
    }
    for file in 0..MIB {
        let mut text = String::new();
        for number in 0..1_024 {
            let data = format!("{file:04} {number:04} ").repeat(95);
            let name = format!("large-{file}-{number}");
            let head = "apiVersion: v1\nkind: ConfigMap";
            writeln!(text, "---\n{head}\nmetadata: {{name: {name}, namespace: kyma-system}}\ndata: {{a: {data}}}")
                .unwrap();
        }
        repository.write(&format!("modules/large/1.0.0/objects/{file}.yaml"), &text).unwrap();
    }
    let commit = repository.commit("large").unwrap();
    stage.start();
    stage
        .until("the small source is applied", &stage.kcp, "GitSource", "kcp-system", "landscape", |source| {
            condition(source, "Ready").is_some_and(|ready| ready["status"] == "True")
        })
        .await;
    let process = stage.process_id().await;
    let before = resident_mib(process);

    let mut large = source("large", &repository);
    large["spec"]["timeout"] = json!("10m");
    apply(&stage.kcp, &large).await;
    stage
        .until("the large source is applied", &stage.kcp, "GitSource", "kcp-system", "large", |source| {
            source["status"]["appliedRevision"] == format!("main@sha1:{commit}")
        })
        .await;
    let bytes = metric(&stage, "tidegate_source_bytes", "large").await.unwrap();
    assert!((MIB << 20..(MIB + 3) << 20).contains(&bytes), "{bytes} bytes");
    // What a check needs is given back a moment after it.
    let at_most = async |what: &str, limit: u64| {
        eventually(what, SOON, async || match resident_mib(process) {
            now if now < limit => Ok(now),
            now => Err(format!("{now} MiB, {before} MiB before")),
        })
        .await
    };
    let used = at_most("the daemon has twice the text", before + 2 * MIB as u64 + 32).await;
    let sources = harness::api_of(&stage.kcp, &large).await.unwrap();
    sources.delete("large", &DeleteParams::default()).await.unwrap();
    stage.until_gone(&stage.kcp, "GitSource", "kcp-system", "large").await;
    let left = at_most("the memory is given back", before + MIB as u64 / 2).await;
    println!("{before} MiB before, {used} MiB with {MIB} MiB of objects, {left} MiB afterwards");
    assert_eq!(metric(&stage, "tidegate_source_bytes", "large").await, None);
}
