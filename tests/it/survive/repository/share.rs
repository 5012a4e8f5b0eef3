//! Sources that are together as large as the daemon allows: the one that takes more than its share waits.

use serde_json::{Value, json};
use tidegate_testbed::{Extent, Repository};

use crate::{
    harness::{self, apply},
    stage::{Stage, kyma, module, release},
    survive::pod::{self, Pod, Watched},
};

const MIB: usize = 1 << 20;

/// A source with a module of its own, and comments.
struct Source {
    name: &'static str,
    repository: Repository,
}

impl Source {
    fn new(folder: &std::path::Path, name: &'static str) -> Source {
        let repository = Repository::init(&folder.join(name)).unwrap();
        for (path, text) in module(name, "1.0.0", "one") {
            repository.write(&path, &text).unwrap();
        }
        repository.write(&format!("modules/{name}/release.yaml"), &release(name, &[("regular", "1.0.0")])).unwrap();
        Source { name, repository }
    }

    /// Commits so many files of one MiB each, a little less in total.
    fn commit(&self, files: usize) -> String {
        let comment = "# nothing that a user needs.\n".repeat(MIB / 29 - 1_000);
        for file in 0..files {
            self.repository.write(&format!("comments/{file}.yaml"), &comment).unwrap();
        }
        self.repository.commit(&format!("{files} files")).unwrap()
    }

    fn object(&self) -> Value {
        json!({
            "apiVersion": "tidegate.dev/v1alpha1", "kind": "GitSource",
            "metadata": {"name": self.name, "namespace": "kcp-system"},
            "spec": {"url": self.repository.url(), "ref": {"branch": "main"}, "interval": "10s", "timeout": "5m"},
        })
    }

    async fn is_applied(&self, stage: &Stage, commit: &str) {
        let applied = format!("main@sha1:{commit}");
        stage
            .until("the revision is applied", &stage.kcp, "GitSource", "kcp-system", self.name, |source| {
                source["status"]["appliedRevision"] == applied.as_str()
            })
            .await;
    }
}

fn fetched(source: &Value) -> Option<&Value> {
    source["status"]["conditions"].as_array()?.iter().find(|condition| condition["type"] == "Fetched")
}

fn is_over_the_limit(source: &Value) -> bool {
    fetched(source).is_some_and(|fetched| fetched["reason"] == "LimitExceeded")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_source_with_more_than_its_share_waits_and_the_others_do_not() {
    let files = [("kymas/one.yaml", kyma("one", &["small"]))];
    let stage = Stage::with(1, Extent::Controllers, &files, &[]).await;
    let folder = harness::folder();
    let [large, greedy, small] = ["large", "greedy", "small"].map(|name| Source::new(folder.path(), name));
    let first = [large.commit(40), greedy.commit(1), small.commit(2)];
    for source in [&large, &greedy, &small] {
        apply(&stage.kcp, &source.object()).await;
    }
    stage.start();
    for (source, commit) in [&large, &greedy, &small].iter().zip(&first) {
        source.is_applied(&stage, commit).await;
    }
    stage.kyma_in("one", "Ready").await;

    // It would fit as long as the others stay as they are.
    let second = format!("main@sha1:{}", greedy.commit(48));
    stage
        .until("the large revision is read", &stage.kcp, "GitSource", "kcp-system", greedy.name, |source| {
            source["status"]["appliedRevision"] == second.as_str() || is_over_the_limit(source)
        })
        .await;
    // What is within its share always fits.
    let second = small.commit(12);
    small.is_applied(&stage, &second).await;
    let waits = stage
        .until("the limit is reported", &stage.kcp, "GitSource", "kcp-system", greedy.name, is_over_the_limit)
        .await;
    let message = fetched(&waits).unwrap()["message"].as_str().unwrap().to_owned();
    for part in ["kcp-system/large with 38.9 MiB", "96.0 MiB", "its share of 12.0 MiB", "spec.ignore"] {
        assert!(message.contains(part), "{part}: {message}");
    }
    assert_eq!(waits["status"]["appliedRevision"], format!("main@sha1:{}", first[1]), "the last good one stays");

    // As soon as the largest source needs less, the one that waits gets what it needs.
    large.repository.remove("comments").unwrap();
    let less = large.commit(1);
    large.is_applied(&stage, &less).await;
    stage
        .until("the source that waited goes on", &stage.kcp, "GitSource", "kcp-system", greedy.name, |source| {
            fetched(source).is_some_and(|fetched| fetched["status"] == "True")
        })
        .await;
}

/// A ModuleTemplate with this field as its data.
fn with_data(module: &str, patch: usize, data: &str) -> String {
    format!(
        "apiVersion: operator.kyma-project.io/v1beta2\nkind: ModuleTemplate\n\
         metadata: {{name: {module}-2.0.{patch}, namespace: kcp-system, annotations: {{tidegate.dev/module-path: \
         modules/{module}/1.0.0/objects}}}}\n\
         spec:\n  moduleName: {module}\n  version: 2.0.{patch}\n  data:\n    apiVersion: v1\n    kind: ConfigMap\n    \
         metadata: {{name: {module}, namespace: kyma-system}}\n    {data}\n"
    )
}

/// A daemon with a small source and a runtime, in the memory of its Pod.
async fn in_its_pod(more: &[&str]) -> (Stage, u32, Pod) {
    let mut files = module("small", "1.0.0", "one");
    files.push(("modules/small/release.yaml".to_owned(), release("small", &[("regular", "1.0.0")])));
    files.push(("kymas/one.yaml".to_owned(), kyma("one", &["small"])));
    let files: Vec<(&str, String)> = files.iter().map(|(path, text)| (path.as_str(), text.clone())).collect();
    let stage = Stage::with(1, Extent::Controllers, &files, more).await;
    stage.start();
    let process = stage.process_id().await;
    let pod = Pod::of(process);
    (stage, process, pod)
}

#[tokio::test(flavor = "multi_thread")]
async fn files_as_large_as_all_sources_may_have_fit_into_the_pod() {
    // A simulated control plane without optimisation takes long for each definition.
    let lease = ["--lease-duration=10m", "--lease-renew-deadline=9m", "--lease-retry-period=10s"];
    let (stage, process, pod) = in_its_pod(&lease).await;
    let watched = Watched::start(process);
    let folder = harness::folder();
    let line = format!("a: {}", "text ".repeat(190_000));
    // Of three sources, two can have no more.
    let sources = ["large", "next"].map(|name| Source::new(folder.path(), name));
    let mut commits = Vec::new();
    for source in &sources {
        for patch in 0..38 {
            let text = with_data(source.name, patch, &line);
            source.repository.write(&format!("modules/{}/{patch}.yaml", source.name), &text).unwrap();
        }
        commits.push(source.repository.commit("all").unwrap());
        let mut object = source.object();
        object["spec"]["timeout"] = json!("10m");
        apply(&stage.kcp, &object).await;
    }
    for (source, commit) in sources.iter().zip(&commits) {
        source.is_applied(&stage, commit).await;
    }
    stage.kyma_in("one", "Ready").await;
    // The next revision is checked beside the one that is active.
    sources[0].repository.write("modules/large/0.yaml", &with_data("large", 100, &line)).unwrap();
    let next = sources[0].repository.commit("another").unwrap();
    sources[0].is_applied(&stage, &next).await;
    println!("{pod}; largest memory: daemon {} MiB", watched.daemon_mib());
    assert_eq!(stage.process_id().await, process, "it is the same process");
    stage.kill().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn definitions_of_thirty_million_values_are_one_sentence_and_fit_into_the_pod() {
    let (stage, process, pod) = in_its_pod(&[]).await;
    stage.kyma_in("one", "Ready").await;
    let watched = Watched::start(process);
    let folder = harness::folder();
    let hostile = Source::new(folder.path(), "hostile");
    let first = hostile.repository.commit("good").unwrap();
    apply(&stage.kcp, &hostile.object()).await;
    hostile.is_applied(&stage, &first).await;
    // Two bytes each: git compresses all of them to a few KiB.
    let ones = format!("a: [{}1]", "1,".repeat(490_000));
    for patch in 0..60 {
        let text = with_data("hostile", patch, &ones);
        hostile.repository.write(&format!("modules/hostile/{patch}.yaml"), &text).unwrap();
    }
    hostile.repository.commit("hostile").unwrap();
    let source =
        stage.until("the limit is reported", &stage.kcp, "GitSource", "kcp-system", "hostile", is_over_the_limit).await;
    let message = fetched(&source).unwrap()["message"].as_str().unwrap();
    assert!(
        message.starts_with("the definitions of this revision have ") && message.contains(" values or more"),
        "{message}"
    );
    assert_eq!(source["status"]["appliedRevision"], format!("main@sha1:{first}"), "the last good one stays");
    let good = stage.commit("kymas/one.yaml", &kyma("one", &[]));
    stage
        .until("a good source goes on", &stage.kcp, "GitSource", "kcp-system", "landscape", |source| {
            source["status"]["appliedRevision"] == format!("main@sha1:{good}")
        })
        .await;
    println!("{pod}; largest memory: daemon {} MiB", watched.daemon_mib());
    assert!(watched.daemon_mib() < pod::memory_bytes() >> 21, "half of the Pod is for the engines");
    assert_eq!(stage.process_id().await, process, "it is the same process");
    stage.kill().await;
}
