//! A control plane that denies every request: each command says so, and its exit code says whether another one may do
//! with what there is.

use std::path::Path;

use futures::future::join_all;
use serde_json::json;
use tokio::{net::TcpListener, process::Command, task::JoinSet};

use crate::harness;

/// The commands, without the options of the connection, each with its exit code. `REPOSITORY` and `NEW` are folders.
const COMMANDS: &[(&[&str], i32)] = &[
    (&["adopt", "plan", "REPOSITORY"], 2),
    (&["adopt", "take", "--yes", "REPOSITORY"], 2),
    (&["adopt", "release", "--yes"], 2),
    (&["adopt", "from-flux"], 2),
    (&["adopt", "from-argocd"], 2),
    (&["reconcile", "kyma/dev"], 2),
    (&["resume", "kyma/dev"], 2),
    (&["status"], 2),
    (&["suspend", "kyma/dev"], 2),
    (&["suspend", "rollout/cache"], 2),
    (&["export", "--landscape", "-"], 5),
    (&["export", "--as-git", "NEW"], 5),
    (&["diff", "--live", "REPOSITORY"], 5),
    (&["diff", "--live", "REPOSITORY", "-o", "json"], 5),
];

/// The answer of an API server to a client without rights.
async fn deny() -> axum::response::Response {
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Forbidden", "code": 403,
        "message": "this is forbidden: User \"anna\" cannot do it",
    });
    let answer = axum::response::Response::builder().status(403).header("content-type", "application/json");
    answer.body(axum::body::Body::from(status.to_string())).expect("an answer")
}

/// What a command says on both outputs, and its exit code.
async fn said(arguments: &[String]) -> (String, i32) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    let output = command.args(arguments).kill_on_drop(true).output().await.expect("it runs");
    let text = [&output.stdout[..], &output.stderr[..]].concat();
    (String::from_utf8_lossy(&text).into_owned(), output.status.code().expect("an exit code"))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_right_ends_a_command_with_a_code_that_says_what_it_means() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let server = format!("http://{}", listener.local_addr().expect("an address"));
    let mut tasks = JoinSet::new();
    tasks.spawn(async move { axum::serve(listener, axum::Router::new().fallback(deny)).await.expect("a server") });
    let folder = harness::folder();
    let path = |name: &str| folder.path().join(name).to_string_lossy().into_owned();
    let text = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "a",
        "clusters": [{"name": "a", "cluster": {"server": server}}], "users": [{"name": "a", "user": {}}],
        "contexts": [{"name": "a", "context": {"cluster": "a", "user": "a"}}],
    });
    std::fs::write(path("kubeconfig"), text.to_string()).expect("a file");
    std::fs::create_dir_all(path("repository/.tidegate")).expect("a folder");
    let source =
        "apiVersion: tidegate.dev/v1alpha1\nkind: GitSource\nmetadata: {name: landscape, namespace: kcp-system}\n";
    std::fs::write(path("repository/.tidegate/source.yaml"), source).expect("a file");
    let whole = |words: &[&str]| -> Vec<String> {
        let words = words.iter().map(|word| match *word {
            "REPOSITORY" => path("repository"),
            "NEW" => path("new"),
            word => word.to_owned(),
        });
        words.chain(["--kubeconfig".to_owned(), path("kubeconfig")]).collect()
    };
    let commands: Vec<Vec<String>> = COMMANDS.iter().map(|(words, _)| whole(words)).collect();
    let found = join_all(commands.iter().map(|arguments| said(arguments))).await;
    for ((words, expected), (text, code)) in COMMANDS.iter().zip(found) {
        assert!(code == *expected && text.contains("forbidden"), "{words:?}: {code} {text}");
    }
    assert!(!Path::new(&path("new")).exists(), "nothing is exported");
}
