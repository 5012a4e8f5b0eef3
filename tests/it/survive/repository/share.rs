//! Sources that are together as large as the daemon allows: the one that takes more than its share waits.

use serde_json::{Value, json};
use tidegate_testbed::{Extent, Repository};

use crate::{
    harness::{self, apply},
    stage::{Stage, kyma, module, release},
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
        let comment = "# nothing that anybody needs\n".repeat(MIB / 29 - 1_000);
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
