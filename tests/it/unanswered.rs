//! A control plane that accepts connections and never answers: every command that asks it ends in time, with one
//! sentence and one exit code.

use std::{path::Path, time::Duration};

use futures::future::join_all;
use tokio::{net::TcpListener, process::Command};

use crate::harness;

/// The commands, without the options of the connection. `REPOSITORY` and `NEW` are folders.
const COMMANDS: &[&[&str]] = &[
    &["adopt", "kcp"],
    &["adopt", "kcp", "--yes"],
    &["adopt", "plan", "REPOSITORY"],
    &["adopt", "take", "--yes", "REPOSITORY"],
    &["adopt", "take", "--finish", "--yes"],
    &["adopt", "release", "--yes"],
    &["adopt", "from-flux"],
    &["adopt", "from-argocd"],
    &["export", "--landscape", "-"],
    &["export", "--as-git", "NEW"],
    &["reconcile", "kyma/dev"],
    &["reconcile", "kyma/dev", "--wait"],
    &["resume", "kyma/dev"],
    &["status"],
    &["suspend", "kyma/dev"],
    &["suspend", "rollout/cache"],
    &["diff", "--live", "REPOSITORY"],
];
/// A command that waits longer than this does not keep to its `--request-timeout` of one second.
const PATIENCE: Duration = Duration::from_secs(15);

/// A kubeconfig for a server at this port.
fn kubeconfig(folder: &Path, port: u16) -> String {
    let path = folder.join("kcp.kubeconfig");
    let text = format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: a\nclusters: [{{name: a, cluster: {{server: \
         'https://127.0.0.1:{port}'}}}}]\nusers: [{{name: a, user: {{token: t}}}}]\ncontexts: [{{name: a, context: \
         {{cluster: a, user: a}}}}]\n"
    );
    std::fs::write(&path, text).expect("a file");
    path.to_string_lossy().into_owned()
}

/// What a command says on both outputs, and its exit code.
async fn said(arguments: &[String]) -> (String, i32) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    command.args(arguments).kill_on_drop(true);
    let ended = tokio::time::timeout(PATIENCE, command.output()).await;
    let output = ended.unwrap_or_else(|_| panic!("{arguments:?} does not end")).expect("it runs");
    let text = [&output.stdout[..], &output.stderr[..]].concat();
    (String::from_utf8_lossy(&text).into_owned(), output.status.code().expect("an exit code"))
}

#[tokio::test(flavor = "multi_thread")]
async fn every_command_ends_in_time_with_one_sentence_that_names_the_server() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let port = listener.local_addr().expect("an address").port();
    let silent = tokio::spawn(async move {
        let mut held = Vec::new();
        while let Ok((connection, _)) = listener.accept().await {
            held.push(connection);
        }
    });
    let folder = harness::folder();
    let kubeconfig = kubeconfig(folder.path(), port);
    let repository = folder.path().join("repository");
    std::fs::create_dir_all(repository.join(".tidegate")).expect("a folder");
    let source =
        "apiVersion: tidegate.dev/v1alpha1\nkind: GitSource\nmetadata: {name: landscape, namespace: kcp-system}\n";
    std::fs::write(repository.join(".tidegate/source.yaml"), source).expect("a file");
    let repository = repository.to_string_lossy().into_owned();
    let new = folder.path().join("new").to_string_lossy().into_owned();
    let options = ["--kubeconfig", &kubeconfig, "--request-timeout", "1s"].map(str::to_owned);
    let commands = COMMANDS.iter().map(|words| {
        let words = words.iter().map(|word| match *word {
            "REPOSITORY" => repository.clone(),
            "NEW" => new.clone(),
            word => word.to_owned(),
        });
        words.chain(options.clone()).collect::<Vec<String>>()
    });
    let commands: Vec<Vec<String>> = commands.collect();
    let found = join_all(commands.iter().map(|arguments| said(arguments))).await;
    let sentence = format!("the control plane at 127.0.0.1:{port} cannot be reached: it does not answer in time");
    for (arguments, (text, code)) in commands.iter().zip(found) {
        assert_eq!(code, 5, "{arguments:?}: {text}");
        assert_eq!(text, format!("error: {sentence}\n"), "{arguments:?}");
    }
    assert!(!Path::new(&new).exists(), "nothing is exported");

    // A program gets a report that it can read.
    let words = ["diff", "--live", &repository, "-o", "json"].map(str::to_owned);
    let (text, code) = said(&words.into_iter().chain(options.clone()).collect::<Vec<_>>()).await;
    let report: serde_json::Value = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
    assert_eq!((report["unreached"][0]["message"].as_str(), code), (Some(&sentence[..]), 5), "{report:#}");

    // A single pass, which logs as well.
    let state = folder.path().join("state").to_string_lossy().into_owned();
    for mode in [&["--once"] as &[&str], &["--observe", "--once"]] {
        let words =
            [&["run", "--metrics-address=127.0.0.1:0", "--health-address=127.0.0.1:0", "--hooks-address=off"], mode]
                .concat();
        let arguments = words.into_iter().map(str::to_owned).chain(["--state".to_owned(), state.clone()]);
        let (text, code) = said(&arguments.chain(options.clone()).collect::<Vec<_>>()).await;
        // Beside the log, one line.
        let said = text.lines().filter(|line| !line.starts_with('{')).collect::<Vec<_>>();
        assert_eq!((said, code), (vec![&format!("error: {sentence}")[..]], 5), "{mode:?}: {text}");
    }
    silent.abort();

    // The same form if the connection is refused.
    let closed = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let port = closed.local_addr().expect("an address").port();
    drop(closed);
    let kubeconfig = self::kubeconfig(folder.path(), port);
    for command in [&["status"] as &[&str], &["adopt", "from-flux"], &["diff", "--live", &repository]] {
        let arguments = command.iter().copied().chain(["--kubeconfig", &kubeconfig]).map(str::to_owned);
        let expected =
            format!("error: the control plane at 127.0.0.1:{port} cannot be reached: the connection failed\n");
        assert_eq!(said(&arguments.collect::<Vec<_>>()).await, (expected, 5), "{command:?}");
    }
}
