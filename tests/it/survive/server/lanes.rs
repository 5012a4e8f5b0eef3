//! Git servers that accept connections and never answer. All other work continues meanwhile, and the daemon still stops
//! on request.

use std::{
    net::TcpListener,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};

use super::git_server;
use crate::{
    harness::{SOON, apply, eventually},
    stage::{Stage, kyma, module, release},
};

/// More sources than the daemon has workers.
const HANGING: usize = 80;
/// How many fetches of a server that has not answered yet are in progress at once. The others hold no place.
const AT_ONCE: usize = 2;
/// How many fetches of servers that have not answered yet hold a place at once.
const NEW_AT_ONCE: usize = 16;
/// Servers that never answer. They need four turns of that many places.
const SILENT: usize = 60;

/// A server that accepts connections and never answers.
struct Hole {
    url: String,
    connections: Arc<AtomicUsize>,
}

impl Hole {
    fn open() -> Hole {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("https://localhost:{}/landscape.git", listener.local_addr().unwrap().port());
        let connections = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&connections);
        let held = Mutex::new(Vec::new());
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                held.lock().unwrap().push(stream);
                counted.fetch_add(1, Ordering::SeqCst);
            }
        });
        Hole { url, connections }
    }

    /// Declares many sources there.
    async fn declare(&self, stage: &Stage) {
        for number in 0..HANGING {
            self.declare_one(stage, number).await;
        }
    }

    /// Declares a source there. Its fetch takes longer than any test waits.
    async fn declare_one(&self, stage: &Stage, number: usize) {
        let source = json!({
            "apiVersion": "tidegate.dev/v1alpha1", "kind": "GitSource",
            "metadata": {"name": format!("hanging-{number:02}"), "namespace": "kcp-system"},
            "spec": {"url": self.url, "timeout": "1h", "interval": "10s"},
        });
        apply(&stage.kcp, &source).await;
    }

    /// Waits until the daemon has a connection.
    async fn is_asked(&self) {
        eventually("the daemon asks the server", SOON, async || match self.connections.load(Ordering::SeqCst) {
            0 => Err("no connection".to_owned()),
            _ => Ok(()),
        })
        .await;
    }
}

fn files() -> Vec<(String, String)> {
    let mut files = module("mailer", "1.0.0", "one");
    files.push(("modules/mailer/release.yaml".to_owned(), release("mailer", &[("regular", "1.0.0")])));
    files
}

async fn stage(more: &[&str]) -> Stage {
    let files = files();
    let files: Vec<(&str, String)> = files.iter().map(|(path, text)| (path.as_str(), text.clone())).collect();
    Stage::with(1, tidegate_testbed::Extent::Controllers, &files, more).await
}

#[tokio::test(flavor = "multi_thread")]
async fn eighty_sources_on_a_server_that_never_answers_delay_nothing_else() {
    let stage = stage(&["--workers=8"]).await;
    let hole = Hole::open();
    hole.declare(&stage).await;
    stage.start();
    hole.is_asked().await;
    stage.commit("kymas/one.yaml", &kyma("one", &["mailer"]));
    stage.kyma_in("one", "Ready").await;
    // A Kyma that git does not declare needs no source at all.
    let by_hand = json!({
        "apiVersion": "operator.kyma-project.io/v1beta2", "kind": "Kyma",
        "metadata": {"name": "by-hand", "namespace": "kcp-system"},
        "spec": {"channel": "regular"},
    });
    apply(&stage.kcp, &by_hand).await;
    stage
        .until("the new Kyma has a status", &stage.kcp, "Kyma", "kcp-system", "by-hand", |kyma| {
            kyma["status"]["state"].is_string()
        })
        .await;
    let status = stage
        .until("a source says what it waits for", &stage.kcp, "GitSource", "kcp-system", "hanging-79", |source| {
            source["status"]["conditions"].as_array().is_some_and(|conditions| !conditions.is_empty())
        })
        .await;
    let ready = status["status"]["conditions"].as_array().unwrap().iter().find(|one| one["type"] == "Ready").unwrap();
    assert_eq!((&ready["status"], &ready["reason"]), (&json!("False"), &json!("Fetching")), "{ready}");
    assert!(ready["message"].as_str().unwrap().contains("localhost"), "{ready}");
    // None of these fetches ends during the test, so all of them are counted.
    let connections = hole.connections.load(Ordering::SeqCst);
    assert!(connections <= AT_ONCE, "{connections} connections");
}

#[tokio::test(flavor = "multi_thread")]
async fn sixty_servers_that_never_answer_leave_a_place_for_a_new_one() {
    let stage = stage(&["--workers=8"]).await;
    let holes: Vec<Hole> = (0..SILENT).map(|_| Hole::open()).collect();
    for (number, hole) in holes.iter().enumerate() {
        hole.declare_one(&stage, number).await;
    }
    // A daemon that knows no server: each has its first contact.
    stage.start();
    eventually("the silent servers hold all places", SOON, async || {
        let asked = holes.iter().filter(|hole| 0 < hole.connections.load(Ordering::SeqCst)).count();
        if NEW_AT_ONCE <= asked { Ok(()) } else { Err(format!("{asked} are asked")) }
    })
    .await;
    let (_server, url) = git_server(&stage).await;
    let good = json!({
        "apiVersion": "tidegate.dev/v1alpha1", "kind": "GitSource",
        "metadata": {"name": "new", "namespace": "kcp-system"},
        "spec": {"url": url, "ref": {"branch": "main"}, "secretRef": {"name": "git"}},
    });
    apply(&stage.kcp, &good).await;
    stage
        .until("the new source has its revision", &stage.kcp, "GitSource", "kcp-system", "new", |source| {
            source["status"]["conditions"].as_array().is_some_and(|conditions| {
                conditions.iter().any(|one| one["type"] == "Fetched" && one["status"] == "True")
            })
        })
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_ends_eighty_fetches_of_a_server_that_never_answers_within_a_second() {
    // Far longer than the test waits.
    let stage = stage(&["--shutdown-timeout=1h"]).await;
    let hole = Hole::open();
    hole.declare(&stage).await;
    let mut took = Vec::new();
    // On a busy machine a process may get no CPU for a second, but not each time.
    for _ in 0..3 {
        hole.connections.store(0, Ordering::SeqCst);
        stage.start();
        hole.is_asked().await;
        stage.signal("TERM");
        stage.ends().await;
        took.push(stopped_after(&stage));
        if took.iter().any(|took| *took < Duration::from_secs(1)) {
            return;
        }
    }
    panic!("it took {took:?}");
}

/// How long the daemon took to stop, by its log.
fn stopped_after(stage: &Stage) -> Duration {
    let log = std::fs::read_to_string(stage.log()).unwrap();
    let records: Vec<Value> = log.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let at = |message: &str| -> Timestamp {
        let record = records.iter().rfind(|record| record["msg"] == message);
        record.unwrap_or_else(|| panic!("{message} is not in the log"))["date"].as_str().unwrap().parse().unwrap()
    };
    at("stopped").duration_since(at("stopping")).try_into().unwrap()
}
