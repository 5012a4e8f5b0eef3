//! The daemon as a process: start, leadership, health, hand-over and stop; and the commands that query and control it.

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    process::Output,
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Value, json};
use tidegate_testbed::{Guarded, Repository};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

use crate::{
    git::github_app::Hub,
    harness::{self, SOON, apply, eventually, holds},
    stage::{ADMINISTRATORS, Server, read},
};

const LEASE: &str = "893110f7.kyma-project.io";

/// A namespace for one test in a KCP, with a user of its own, so that the server's records show the sender of each
/// request.
pub(crate) struct TestNamespace {
    server: Server,
    pub(crate) client: kube::Client,
    pub(crate) namespace: String,
    user: String,
    folder: tidegate_testbed::Folder,
}

pub(crate) struct Daemon {
    pub(crate) process: Guarded,
}

impl TestNamespace {
    pub(crate) async fn new() -> TestNamespace {
        TestNamespace::on(Server::kcp().await).await
    }

    /// In the real KCP that tests share, regardless of the environment.
    pub(crate) async fn real() -> TestNamespace {
        TestNamespace::on(Server::real_kcp().await).await
    }

    async fn on(server: Server) -> TestNamespace {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let client = server.client();
        let namespace = harness::namespace(&client, "daemon").await;
        let user = format!("daemon-{}", COUNT.fetch_add(1, Ordering::Relaxed));
        let folder = harness::folder();
        let kubeconfig = server.kubeconfig_of(&user, ADMINISTRATORS).text();
        std::fs::write(folder.path().join("kubeconfig"), kubeconfig).unwrap();
        TestNamespace { server, client, namespace, user, folder }
    }

    fn kubeconfig(&self) -> PathBuf {
        self.folder.path().join("kubeconfig")
    }

    fn arguments(&self, identity: &str) -> Vec<String> {
        [
            format!("--kubeconfig={}", self.kubeconfig().display()),
            format!("--namespace={}", self.namespace),
            format!("--lease-namespace={}", self.namespace),
            format!("--istio-namespace={}", self.namespace),
            format!("--state={}", self.folder.path().join(identity).display()),
            format!("--identity={identity}"),
            "--metrics-address=127.0.0.1:0".to_owned(),
            "--health-address=127.0.0.1:0".to_owned(),
            "--events-address=127.0.0.1:0".to_owned(),
            "--events-tls-address=127.0.0.1:0".to_owned(),
            "--hooks-address=127.0.0.1:0".to_owned(),
            "--lease-retry-period=200ms".to_owned(),
            "--log-format=json".to_owned(),
        ]
        .into()
    }

    pub(crate) fn start(&self, identity: &str, more: &[&str]) -> Daemon {
        let mut arguments = vec!["run".to_owned()];
        arguments.extend(self.arguments(identity));
        arguments.extend(more.iter().map(|argument| (*argument).to_owned()));
        let log = self.folder.path().join(format!("{identity}.log"));
        let process = Guarded::start(program(), arguments, self.folder.path(), &log).expect("the daemon starts");
        Daemon { process }
    }

    /// Runs a command until it exits.
    async fn command(&self, arguments: &[&str]) -> Output {
        tokio::process::Command::new(program())
            .args(arguments)
            .arg("--kubeconfig")
            .arg(self.kubeconfig())
            .output()
            .await
            .expect("the command runs")
    }

    async fn once(&self, repository: &Repository) -> (Option<i32>, String) {
        self.once_from(format!("--source={}", repository.path().display())).await
    }

    async fn once_from(&self, source: String) -> (Option<i32>, String) {
        self.once_with(&[source]).await
    }

    async fn once_with(&self, more: &[String]) -> (Option<i32>, String) {
        let mut arguments = vec!["run".to_owned(), "--once".to_owned(), "--timeout=60s".to_owned()];
        arguments.extend_from_slice(more);
        arguments.extend(self.arguments("once"));
        let output = tokio::process::Command::new(program()).args(arguments).output().await.unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    }

    async fn lease_holder(&self) -> Option<String> {
        let sample = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {"name": LEASE, "namespace": self.namespace}});
        let api = harness::api_of(&self.client, &sample).await.unwrap();
        let lease = api.get_opt(LEASE).await.unwrap()?;
        lease.data["spec"]["holderIdentity"].as_str().map(str::to_owned)
    }

    /// Writes of the daemon's user since a mark.
    fn writes_since(&self, mark: u64) -> Vec<String> {
        let records = self.server.records_since(mark);
        let ours = records.iter().filter(|record| record.user == self.user && record.is_write());
        ours.map(|record| format!("{} {} {}", record.verb, record.resource, record.name)).collect()
    }

    fn repository(&self, files: &[(&str, &str)]) -> Repository {
        let repository = Repository::init(&self.folder.path().join("repo")).unwrap();
        for (path, text) in files {
            repository.write(path, &text.replace("NAMESPACE", &self.namespace)).unwrap();
        }
        repository.commit("first").unwrap();
        repository
    }
}

impl Daemon {
    /// The answer of `/readyz` or `/metrics`: status and body.
    pub(crate) async fn ask(&self, purpose: &str, path: &str) -> Result<(u16, String), String> {
        let address = self.address(purpose).ok_or_else(|| format!("not listening yet\n{}", self.process.log_tail()))?;
        let mut stream = TcpStream::connect(address).await.map_err(|error| error.to_string())?;
        let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.map_err(|error| error.to_string())?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.map_err(|error| error.to_string())?;
        let (head, body) = answer.split_once("\r\n\r\n").ok_or("no answer")?;
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).ok_or("no status")?;
        Ok((status, body.to_owned()))
    }

    /// The address in the log.
    pub(crate) fn address(&self, purpose: &str) -> Option<SocketAddr> {
        let log = std::fs::read_to_string(self.process.log()).ok()?;
        let records = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let mut listening =
            records.filter(|record| record["msg"] == "listening" && record["context"]["purpose"] == purpose);
        listening.next()?["context"]["address"].as_str()?.parse().ok()
    }

    pub(crate) async fn until_ready(&self) {
        eventually("the daemon is ready", SOON, async || match self.ask("health", "/readyz").await? {
            (200, _) => Ok(()),
            (_, body) => Err(format!("{body}\n{}", self.process.log_tail())),
        })
        .await;
    }

    pub(crate) async fn until_ended(&mut self) -> Option<i32> {
        let process = &mut self.process;
        eventually("the daemon ends", SOON, async || process.ended().ok_or_else(|| "it runs".to_owned())).await.code()
    }
}

fn program() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_tidegate"))
}

const RELEASE: &str = "apiVersion: operator.kyma-project.io/v1beta2\nkind: ModuleReleaseMeta\nmetadata: {name: cache, namespace: NAMESPACE}\nspec:\n  moduleName: cache\n  ocmComponentName: example.org/module/cache\n  channels: [{channel: regular, version: 1.0.0}]\n";
const TEMPLATE: &str = "apiVersion: operator.kyma-project.io/v1beta2\nkind: ModuleTemplate\nmetadata:\n  name: cache-1.0.0\n  namespace: NAMESPACE\n  annotations: {tidegate.dev/module-path: objects}\nspec:\n  moduleName: cache\n  version: 1.0.0\n";
const OBJECT: &str = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: cache, namespace: kyma-system}\ndata: {a: b}\n";

#[tokio::test(flavor = "multi_thread")]
async fn one_leads_the_other_names_it_and_takes_over_when_it_ends() {
    let place = TestNamespace::new().await;
    let mut first = place.start("first", &[]);
    first.until_ready().await;
    assert_eq!(place.lease_holder().await.as_deref(), Some("tidegate_first"));
    let (status, metrics) = first.ask("metrics", "/metrics").await.unwrap();
    assert_eq!(status, 200);
    assert!(metrics.contains("\ntidegate_leading 1\n"), "{metrics}");
    assert!(metrics.contains("tidegate_api_requests_total{cluster=\"kcp\",verb=\"list\"}"), "{metrics}");

    let second = place.start("second", &[]);
    eventually("the second says who leads", SOON, async || match second.ask("health", "/readyz").await? {
        (503, body) if body.contains("not leading: tidegate_first holds the Lease") => Ok(()),
        (status, body) => Err(format!("{status} {body}")),
    })
    .await;
    assert_eq!(second.ask("health", "/healthz").await.unwrap().0, 200);

    first.process.signal("TERM");
    assert_eq!(first.until_ended().await, Some(0));
    // The Lease lasts for three minutes. The other process takes over sooner, so the Lease was released.
    second.until_ready().await;
    assert_eq!(place.lease_holder().await.as_deref(), Some("tidegate_second"));
}

#[tokio::test(flavor = "multi_thread")]
async fn while_lifecycle_manager_holds_the_lease_nothing_is_written() {
    let place = TestNamespace::new().await;
    let repository =
        place.repository(&[("release.yaml", RELEASE), ("template.yaml", TEMPLATE), ("objects/a.yaml", OBJECT)]);
    let now = k8s_openapi::jiff::Timestamp::now();
    apply(
        &place.client,
        &json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {"name": LEASE, "namespace": place.namespace},
            "spec": {"holderIdentity": "klm-controller-manager-0_3f0e", "leaseDurationSeconds": 3600,
                "acquireTime": format!("{now:.6}"), "renewTime": format!("{now:.6}")}}),
    )
    .await;
    let mark = place.server.mark();
    let source = format!("--source={}", repository.path().display());
    let mut daemon = place.start("waits", &[&source]);
    let readiness =
        eventually("it names Lifecycle Manager", SOON, async || match daemon.ask("health", "/readyz").await? {
            (503, body) if body.contains("not leading: klm-controller-manager-0_3f0e holds the Lease") => Ok(body),
            (status, body) => Err(format!("{status} {body}\n{}", daemon.process.log_tail())),
        })
        .await;
    // `/readyz` says how long the process waits at most.
    for expected in
        [", and this process has seen no renewal for ", " s; it takes over when the Lease is released, or in 3"]
    {
        assert!(readiness.contains(expected), "{expected}: {readiness}");
    }
    let log = std::fs::read_to_string(daemon.process.log()).unwrap();
    let said: Vec<&str> = log.lines().filter(|line| line.contains("another process holds the lease")).collect();
    let [line] = said.as_slice() else { panic!("it is said once: {log}") };
    assert!(line.contains("klm-controller-manager-0_3f0e") && line.contains("3600"), "{line}");
    holds("nothing is written", Duration::from_secs(3), async || match place.writes_since(mark) {
        writes if writes.is_empty() => Ok(()),
        writes => Err(format!("{writes:?}")),
    })
    .await;
    daemon.process.signal("TERM");
    assert_eq!(daemon.until_ended().await, Some(0));
    assert_eq!(place.lease_holder().await.as_deref(), Some("klm-controller-manager-0_3f0e"));
}

#[tokio::test(flavor = "multi_thread")]
async fn once_ends_with_what_became_of_everything() {
    let place = TestNamespace::new().await;
    let repository =
        place.repository(&[("release.yaml", RELEASE), ("template.yaml", TEMPLATE), ("objects/a.yaml", OBJECT)]);
    let (code, log) = place.once(&repository).await;
    assert_eq!(code, Some(0), "{log}");
    assert!(read(&place.client, "ModuleReleaseMeta", &place.namespace, "cache").await.is_some());

    // A Kyma without an access Secret cannot be reconciled.
    let kyma = "apiVersion: operator.kyma-project.io/v1beta2\nkind: Kyma\nmetadata: {name: lonely, namespace: NAMESPACE}\nspec: {channel: regular}\n";
    repository.write("kyma.yaml", &kyma.replace("NAMESPACE", &place.namespace)).unwrap();
    repository.commit("a runtime").unwrap();
    let (code, log) = place.once(&repository).await;
    assert_eq!(code, Some(5), "{log}");
    assert!(log.contains(&format!("not done: runtime {}/lonely: ", place.namespace)), "{log}");

    repository
        .write("template.yaml", &TEMPLATE.replace("NAMESPACE", &place.namespace).replace("version: 1", "versoin: 1"))
        .unwrap();
    repository.commit("a mistake").unwrap();
    let (code, log) = place.once(&repository).await;
    assert_eq!(code, Some(3), "{log}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_commit_of_a_command_line_source_removes_is_confirmed_by_an_option() {
    let place = TestNamespace::new().await;
    let repository =
        place.repository(&[("release.yaml", RELEASE), ("template.yaml", TEMPLATE), ("objects/a.yaml", OBJECT)]);
    assert_eq!(place.once(&repository).await.0, Some(0));
    repository.remove("release.yaml").unwrap();
    repository.remove("template.yaml").unwrap();
    let commit = repository.commit("the module goes").unwrap();
    let source = format!("--source={}", repository.path().display());
    let (code, log) = place.once_with(std::slice::from_ref(&source)).await;
    let option = format!("--confirm-prune={commit}");
    assert!(code == Some(5) && log.contains(&option) && !log.contains("kubectl annotate"), "{code:?} {log}");
    let is_there = async || read(&place.client, "ModuleReleaseMeta", &place.namespace, "cache").await.is_some();
    assert!(is_there().await);

    // No object of the control plane is the source, which its commands say.
    let mut daemon = place.start("stays", &[&source]);
    for command in ["reconcile", "suspend", "resume"] {
        eventually(&format!("{command} says where the source is from"), SOON, async || {
            let output = place.command(&[command, "gitsource/repo", "-n", &place.namespace]).await;
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            let is_said = said.contains("is not in the control plane: the daemon has it from `run --source`");
            if is_said && output.status.code() == Some(2) { Ok(()) } else { Err(format!("{:?} {said}", output.status)) }
        })
        .await;
    }
    daemon.process.signal("TERM");
    assert_eq!(daemon.until_ended().await, Some(0));

    let (code, log) = place.once_with(&[source, option]).await;
    assert_eq!(code, Some(0), "{log}");
    assert!(!is_there().await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_file_of_a_source_file_is_read_for_each_fetch_and_no_log_has_a_token_or_a_key() {
    let place = TestNamespace::new().await;
    let repository =
        place.repository(&[("release.yaml", RELEASE), ("template.yaml", TEMPLATE), ("objects/a.yaml", OBJECT)]);
    let hub = Hub::start(place.folder.path());
    let (token, file) = (place.folder.path().join("token"), place.folder.path().join("source.yaml"));
    let source = format!("--source-file={}", file.display());
    let declare = |spec: serde_json::Value| {
        let source = json!({
            "apiVersion": "tidegate.dev/v1alpha1", "kind": "GitSource", "metadata": {"name": "landscape"}, "spec": spec,
        });
        std::fs::write(&file, source.to_string()).unwrap();
    };
    let secret = async |name: &str, data: Vec<(&str, Vec<u8>)>| {
        let data: serde_json::Map<String, Value> =
            data.into_iter().map(|(key, value)| (key.to_owned(), STANDARD.encode(value).into())).collect();
        let secret = json!({"apiVersion": "v1", "kind": "Secret", "data": data,
            "metadata": {"name": name, "namespace": place.namespace}});
        apply(&place.client, &secret).await;
    };
    let url = hub.server.url("repo");
    secret("trust", vec![("ca.crt", hub.server.ca.clone())]).await;
    declare(json!({"url": url, "secretRef": {"name": "trust"}, "bearerTokenFile": token}));
    let mut logs = String::new();
    hub.expect("Bearer t0ken-one");
    for (content, expected) in
        [("t0ken-one\n", Some(0)), ("t0ken-old", Some(5)), ("t0ken-one\nt0ken-two", Some(5)), ("t0ken-one", Some(0))]
    {
        std::fs::write(&token, content).unwrap();
        let (code, log) = place.once_from(source.clone()).await;
        assert_eq!(code, expected, "{content}: {log}");
        logs.push_str(&log);
    }
    assert!(logs.contains("which has several lines: it must contain one token"), "{logs}");
    assert!(read(&place.client, "ModuleReleaseMeta", &place.namespace, "cache").await.is_some());

    repository.write("more.yaml", "# another commit\n").unwrap();
    repository.commit("more").unwrap();
    hub.expect_token();
    secret("app", hub.secret()).await;
    declare(json!({"url": url, "secretRef": {"name": "app"}}));
    let (code, log) = place.once_from(source.clone()).await;
    assert_eq!((code, hub.given()), (Some(0), 1), "{log}");
    hub.change_key();
    let (code, rejected) = place.once_from(source).await;
    assert_eq!(code, Some(5), "{rejected}");
    assert!(rejected.contains("it rejects the signature of the app (401)"), "{rejected}");
    logs.extend([log, rejected]);
    // `eyJ` begins every JWT, `MII` every key.
    for part in ["t0ken", "eyJ", "MII", "PRIVATE KEY"] {
        assert!(!logs.contains(part), "{part}: {logs}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn sources_are_asked_stopped_and_shown_by_commands() {
    let place = TestNamespace::new().await;
    let repository =
        place.repository(&[("release.yaml", RELEASE), ("template.yaml", TEMPLATE), ("objects/a.yaml", OBJECT)]);
    apply(
        &place.client,
        &json!({"apiVersion": "tidegate.dev/v1alpha1", "kind": "GitSource",
            "metadata": {"name": "landscape", "namespace": place.namespace},
            "spec": {"url": repository.url(), "ref": {"branch": "main"}, "interval": "1h"}}),
    )
    .await;
    let daemon = place.start("commands", &["--allow-local-sources"]);
    daemon.until_ready().await;
    let namespace = place.namespace.as_str();
    let run = async |arguments: &[&str]| {
        let output = place.command(&[arguments, &["-n", namespace]].concat()).await;
        let text = [output.stdout, output.stderr].concat();
        (output.status.code(), String::from_utf8_lossy(&text).into_owned())
    };

    let (code, text) = run(&["reconcile", "landscape", "--wait", "--timeout=60s"]).await;
    assert_eq!(code, Some(0), "{text}\n{}", daemon.process.log_tail());
    assert!(text.starts_with(&format!("GitSource {namespace}/landscape: reconciled: ")), "{text}");
    let (code, text) = run(&["status"]).await;
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("Healthy: 1 source\n"), "{text}");

    let (code, text) = run(&["suspend", "gitsource/landscape"]).await;
    assert_eq!(code, Some(0), "{text}");
    let (_, text) = run(&["status", "-o", "json"]).await;
    let shown: Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(shown["sources"][0]["standing"], "stopped", "{text}");
    let (code, text) = run(&["suspend", "gitsource/landscape"]).await;
    assert_eq!(code, Some(0), "{text}");
    let since = text.split(" since ").nth(1).and_then(|since| since.split(';').next()).expect(&text).to_owned();
    assert!(text.contains("; nothing changed, write --reason to say why it stays suspended"), "{text}");
    assert!(run(&["suspend", "gitsource/landscape"]).await.1.contains(&since), "the first one stays");
    let (code, text) = run(&["suspend", "gitsource/landscape", "--reason", "upgrade"]).await;
    assert!(code == Some(0) && text.contains("suspended; Tidegate fetches"), "{text}");
    let (_, text) = run(&["suspend", "gitsource/landscape"]).await;
    assert!(text.contains(": upgrade; nothing changed"), "{text}");
    let (code, text) = run(&["resume", "gs/landscape"]).await;
    assert!(code == Some(0) && text.ends_with("landscape: resumed\n"), "{text}");
    let (code, text) = run(&["resume", "gs/landscape"]).await;
    assert!(code == Some(0) && text.ends_with("landscape: not suspended; nothing changed\n"), "{text}");

    let (code, text) = run(&["reconcile", "nothing"]).await;
    assert_eq!(code, Some(2));
    assert!(text.contains("no GitSource, Kyma, Manifest or Watcher `nothing`"), "{text}");
    assert_eq!(run(&["suspend", "watcher/landscape"]).await.0, Some(2));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_may_act_as_another_user_and_group() {
    let place = TestNamespace::real().await;
    let run = async |more: &[&str]| {
        let output = place.command(&[&["status", "-n", &place.namespace], more].concat()).await;
        let text = [output.stdout, output.stderr].concat();
        (output.status.code(), String::from_utf8_lossy(&text).into_owned())
    };
    let (code, text) = run(&["--as", "anna"]).await;
    assert_eq!(code, Some(2), "{text}");
    assert!(text.contains("User \"anna\" cannot list resource"), "{text}");
    let (code, text) = run(&["--as", "anna", "--as-group", "staff", "--as-group", "system:masters"]).await;
    assert_eq!(code, Some(0), "{text}");
}

#[test]
fn a_flag_of_lifecycle_manager_without_effect_is_one_warning() {
    let folder = harness::folder();
    let state = format!("--state={}", folder.path().display());
    let flags =
        ["run", "--pprof", "--log-level=1", "--leader-elect=True", "--kubeconfig=/nowhere", "--log-format=json"];
    let ports = ["--metrics-bind-address=127.0.0.1:0", "--health-probe-bind-address=127.0.0.1:0", &state];
    let program = std::process::Command::new(env!("CARGO_BIN_EXE_tidegate")).args(flags).args(ports).output().unwrap();
    let log = String::from_utf8_lossy(&program.stderr).into_owned();
    let records = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let ignored = records.filter(|record| record["msg"] == "flag of Lifecycle Manager ignored");
    let ignored: Vec<Value> = ignored.map(|record| record["context"]["flag"].clone()).collect();
    assert_eq!(ignored, [json!("log-level"), json!("pprof")], "{log}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_that_loses_the_lease_ends_and_writes_nothing_more() {
    let place = TestNamespace::new().await;
    let mut daemon = place.start("loses", &[]);
    daemon.until_ready().await;
    let sample = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"name": LEASE, "namespace": place.namespace}});
    let api = harness::api_of(&place.client, &sample).await.unwrap();
    let taken = json!({"spec": {"holderIdentity": "klm-controller-manager-0_3f0e", "leaseDurationSeconds": 3600}});
    api.patch(LEASE, &kube::api::PatchParams::default(), &kube::api::Patch::Merge(&taken)).await.unwrap();
    assert_eq!(daemon.until_ended().await, Some(2));
    let log = std::fs::read_to_string(daemon.process.log()).unwrap();
    assert!(log.contains("error: lost leadership to klm-controller-manager-0_3f0e"), "{log}");
    assert_eq!(place.lease_holder().await.as_deref(), Some("klm-controller-manager-0_3f0e"), "it is not given back");
}

#[tokio::test(flavor = "multi_thread")]
async fn told_to_stop_with_work_under_way_it_gives_the_lease_back_and_ends_well() {
    let place = TestNamespace::new().await;
    // A runtime that accepts connections and never answers, so that work on it waits.
    let runtime = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    runtime.set_nonblocking(true).unwrap();
    let kubeconfig = format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: a\ncontexts: [{{name: a, context: {{cluster: a, user: a}}}}]\n\
         clusters: [{{name: a, cluster: {{server: 'https://{}', certificate-authority-data: {}}}}}]\n\
         users: [{{name: a, user: {{token: t}}}}]\n",
        runtime.local_addr().unwrap(),
        base64::Engine::encode(&base64::engine::general_purpose::STANDARD, place.server.kubeconfig().authority)
    );
    apply(
        &place.client,
        &json!({"apiVersion": "v1", "kind": "Secret",
            "metadata": {"name": "access-slow", "namespace": place.namespace,
                "labels": {"operator.kyma-project.io/kyma-name": "slow"}},
            "stringData": {"config": kubeconfig}}),
    )
    .await;
    apply(
        &place.client,
        &json!({"apiVersion": "operator.kyma-project.io/v1beta2", "kind": "Kyma",
            "metadata": {"name": "slow", "namespace": place.namespace}, "spec": {"channel": "regular"}}),
    )
    .await;
    let mut daemon = place.start("first", &["--shutdown-timeout=2s"]);
    daemon.until_ready().await;
    let mut held = Vec::new();
    eventually("the runtime is worked on", SOON, async || {
        held.push(runtime.accept().map_err(|error| format!("{error}\n{}", daemon.process.log_tail()))?);
        Ok(())
    })
    .await;
    daemon.process.signal("TERM");
    assert_eq!(daemon.until_ended().await, Some(0));
    let log = std::fs::read_to_string(daemon.process.log()).unwrap();
    let said = |message: &str| log.lines().any(|line| line.contains(&format!("\"msg\":\"{message}\"")));
    assert!(said("stopping") && said("stopped") && !log.contains("panicked"), "{log}");
    // The Lease lasts for three minutes. The next process leads at once, so the Lease was released.
    let next = place.start("second", &[]);
    next.until_ready().await;
}

#[tokio::test]
async fn options_are_printed_as_a_file_that_can_be_used_and_unknown_ones_are_refused_with_their_line() {
    let folder = harness::folder();
    let file = folder.path().join("tidegate.yaml");
    let run = async |arguments: &[&str]| {
        let output = tokio::process::Command::new(program()).arg("run").args(arguments).output().await.unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        (output.status.code(), text(output.stdout), text(output.stderr))
    };
    std::fs::write(&file, "# what we changed\nworkers: 3\nresync: 2m\n").unwrap();
    let path = file.to_str().unwrap();
    let (code, printed, problem) = run(&["--config", path, "--resync=90s", "--print-config"]).await;
    assert_eq!(code, Some(0), "{problem}");
    for line in ["workers: 3", "resync: 1m30s", "leaseDuration: 3m"] {
        assert!(printed.lines().any(|found| found == line), "{line}: {printed}");
    }
    std::fs::write(&file, &printed).unwrap();
    assert_eq!(run(&["--config", path, "--print-config"]).await, (Some(0), printed, String::new()));

    std::fs::write(&file, "workers: 3\nworkres: 4\n").unwrap();
    let (code, printed, problem) = run(&["--config", path, "--print-config"]).await;
    assert_eq!((code, printed.as_str()), (Some(2), ""));
    assert!(problem.contains("tidegate.yaml:2") && problem.contains("workres"), "{problem}");
}

#[tokio::test]
async fn godebug_of_the_process_is_a_default_that_file_and_flag_replace() {
    let folder = harness::folder();
    let file = folder.path().join("tidegate.yaml");
    std::fs::write(&file, "skrWebhookGodebug: fips140=off\n").unwrap();
    let config = format!("--config={}", file.display());
    let flag = "--skr-webhook-godebug=fips140=on";
    for (arguments, expected) in [
        (&[][..], "skrWebhookGodebug: fips140=only"),
        (&[&*config], "skrWebhookGodebug: fips140=off"),
        (&[&*config, flag], "skrWebhookGodebug: fips140=on"),
    ] {
        let mut command = tokio::process::Command::new(program());
        command.args(["run", "--print-config"]).args(arguments).env("GODEBUG", "fips140=only");
        let output = command.output().await.unwrap();
        let printed = String::from_utf8(output.stdout).unwrap();
        assert!(printed.lines().any(|line| line == expected), "{arguments:?}: {printed}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn without_our_kinds_it_waits_and_says_what_to_apply() {
    let server = Server::bare().await;
    let client = server.client();
    let namespace = harness::namespace(&client, "bare").await;
    let folder = harness::folder();
    std::fs::write(folder.path().join("kubeconfig"), server.kubeconfig().text()).unwrap();
    let place = TestNamespace { server, client, namespace, user: String::new(), folder };
    let daemon = place.start("early", &[]);
    eventually("it says what is missing", SOON, async || match daemon.ask("health", "/readyz").await? {
        (503, body) if body.contains("does not serve") && body.contains("`tidegate crds`") => Ok(()),
        (status, body) => Err(format!("{status} {body}")),
    })
    .await;
    harness::install_own_crds(&place.client).await;
    daemon.until_ready().await;
}
