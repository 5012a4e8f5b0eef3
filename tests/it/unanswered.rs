//! A control plane that accepts connections and never answers, or that rejects the credentials: every command that asks
//! it ends in time, with one sentence and one exit code.

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
/// The modes of a single pass.
const MODES: [&[&str]; 2] = [&["--once"], &["--observe", "--once"]];
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

/// A repository of one GitSource.
fn repository(folder: &Path) -> String {
    let repository = folder.join("repository");
    std::fs::create_dir_all(repository.join(".tidegate")).expect("a folder");
    let source =
        "apiVersion: tidegate.dev/v1alpha1\nkind: GitSource\nmetadata: {name: landscape, namespace: kcp-system}\n";
    std::fs::write(repository.join(".tidegate/source.yaml"), source).expect("a file");
    repository.to_string_lossy().into_owned()
}

/// A folder that does not exist.
fn new(folder: &Path) -> String {
    folder.join("new").to_string_lossy().into_owned()
}

/// The commands with these options.
fn commands(folder: &Path, options: &[String]) -> Vec<Vec<String>> {
    let (repository, new) = (repository(folder), new(folder));
    let of_words = |words: &&[&str]| -> Vec<String> {
        let words = words.iter().map(|word| match *word {
            "REPOSITORY" => repository.clone(),
            "NEW" => new.clone(),
            word => word.to_owned(),
        });
        words.chain(options.iter().cloned()).collect()
    };
    COMMANDS.iter().map(of_words).collect()
}

/// A pass over everything. It listens nowhere, so it runs beside others.
fn single_pass(mode: &[&str], folder: &Path, options: &[String]) -> Vec<String> {
    let words = [&["run"][..], mode].concat().into_iter().map(str::to_owned);
    let state = ["--state".to_owned(), folder.join("state").to_string_lossy().into_owned()];
    words.chain(state).chain(options.iter().cloned()).collect()
}

/// What a command says beside the log.
fn without_log(text: &str) -> Vec<&str> {
    text.lines().filter(|line| !line.starts_with('{')).collect()
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
    let repository = repository(folder.path());
    let new = new(folder.path());
    let options = ["--kubeconfig", &kubeconfig, "--request-timeout", "1s"].map(str::to_owned);
    let commands = commands(folder.path(), &options);
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
    for mode in MODES {
        let (text, code) = said(&single_pass(mode, folder.path(), &options)).await;
        assert_eq!((without_log(&text), code), (vec![&format!("error: {sentence}")[..]], 5), "{mode:?}: {text}");
        assert!(text.contains("loaded") && !text.contains("listening"), "{mode:?}: {text}");
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

/// A token that the API server does not know, for example because it has expired.
#[tokio::test(flavor = "multi_thread")]
async fn every_command_whose_credentials_are_rejected_names_the_server_and_the_reason() {
    tidegate_process::tls::install();
    let server = kube_sim::Server::new(&kube_sim::Options::default()).listen("kcp").await.expect("a port");
    let known = server.kubeconfig_with_token("known", kube_sim::User::admin()).text();
    let folder = harness::folder();
    let kubeconfig = folder.path().join("kcp.kubeconfig");
    std::fs::write(&kubeconfig, known.replace("known", "unknown")).expect("a file");
    let options = ["--kubeconfig".to_owned(), kubeconfig.to_string_lossy().into_owned()];
    let commands = commands(folder.path(), &options);
    let found = join_all(commands.iter().map(|arguments| said(arguments))).await;
    let rejected = format!("the control plane at 127.0.0.1:{} rejected the credentials of ", server.port());
    for (arguments, (text, code)) in commands.iter().zip(found) {
        assert_eq!((&*text, code), (&*format!("error: {rejected}the kubeconfig\n"), 5), "{arguments:?}");
    }
    assert!(!Path::new(&new(folder.path())).exists(), "nothing is exported");
    for mode in MODES {
        let (text, code) = said(&single_pass(mode, folder.path(), &options)).await;
        let expected = format!("error: {rejected}this process");
        assert_eq!((without_log(&text), code), (vec![&expected[..]], 5), "{mode:?}: {text}");
    }
}

/// As for `system:anonymous`, which may not even ask which kinds there are.
#[tokio::test(flavor = "multi_thread")]
async fn a_single_pass_that_may_not_list_the_kinds_ends_at_once() {
    tidegate_process::tls::install();
    let server = kube_sim::Server::new(&kube_sim::Options::default()).listen("kcp").await.expect("a port");
    let folder = harness::folder();
    let kubeconfig = folder.path().join("kcp.kubeconfig");
    std::fs::write(&kubeconfig, server.kubeconfig().text()).expect("a file");
    server.fail(Some(http::StatusCode::FORBIDDEN));
    let options = ["--kubeconfig".to_owned(), kubeconfig.to_string_lossy().into_owned()];
    let expected =
        format!("error: the control plane at 127.0.0.1:{} does not list its kinds to this process", server.port());
    for mode in MODES {
        let (text, code) = said(&single_pass(mode, folder.path(), &options)).await;
        assert_eq!((without_log(&text), code), (vec![&expected[..]], 5), "{mode:?}: {text}");
    }
}
