//! A whole landscape for one test: KCP and runtimes of its own, a git repository, and the daemon.
//!
//! The servers are simulated, in this process, unless `TIDEGATE_TEST_SERVERS=real` or the test asks for real ones.
//! Within a [`scenario`] on simulated servers the clock is paused and the daemon is part of this process; everywhere
//! else it is a process of its own, which is what a test wants that has other processes as well: agents, or commands.

mod clock;
mod daemon;
mod servers;

use std::{
    path::Path,
    process::Output,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use base64::{Engine, engine::general_purpose::STANDARD};
use futures::{StreamExt as _, TryStreamExt as _};
use kube::{
    Api, Client,
    api::{DynamicObject, WatchEvent, WatchParams},
};
use kube_sim::Kubeconfig;
use serde_json::{Value, json};
use tidegate::internals::daemon::Report;
use tidegate_core::api::Kyma;
use tidegate_process::{ambient, telemetry};
use tidegate_testbed::{Extent, Guarded, Record, Repository};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    sync::SemaphorePermit,
};
use tracing::dispatcher::DefaultGuard;

use self::daemon::Daemon;
pub(crate) use self::{
    clock::{Servers, flow, scenario, scenario_on_real_servers, scenarios, servers},
    servers::{ADMIN, Copies, Server},
};
use crate::harness::{self, SOON, apply, eventually};

/// A landscape with Kymas `one`, `two`, … of which each has a runtime.
pub(crate) struct Stage {
    pub(crate) kcp: Client,
    pub(crate) skrs: Vec<Client>,
    pub(crate) repository: Repository,
    // Ends before other tests get its servers.
    daemon: Mutex<Option<Daemon>>,
    pub(crate) landscape: Landscape,
    /// Further options of the daemon.
    more: Vec<String>,
    /// The log of a daemon in this process.
    _logs: Option<DefaultGuard>,
    folder: tidegate_testbed::Folder,
}

/// The servers of a stage.
pub(crate) struct Landscape {
    /// The control plane cluster.
    pub(crate) kcp: Server,
    /// Its runtimes, `skr-1`, `skr-2`, …
    pub(crate) skrs: Vec<Server>,
    _permit: Option<SemaphorePermit<'static>>,
}

/// Names of the Kymas, in the order of the runtimes. Most stages have no more.
pub(crate) const KYMAS: [&str; 2] = ["one", "two"];
/// The same, for stages with more runtimes.
pub(crate) const MANY: [&str; 10] = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"];

// === impl Stage ===

impl Stage {
    /// Starts the servers, prepares KCP, commits `files` and declares the repository. The daemon is not started yet.
    pub(crate) async fn new(skrs: usize, files: &[(&str, String)]) -> Stage {
        Stage::with(skrs, Extent::Controllers, files, &[]).await
    }

    /// As [`Stage::new`], with runtimes of some extent and more arguments for the daemon.
    pub(crate) async fn with(skrs: usize, extent: Extent, files: &[(&str, String)], more: &[&str]) -> Stage {
        let landscape = match servers() {
            Servers::Simulated => Landscape::simulated(skrs, extent).await,
            Servers::Real => Landscape::real(skrs, extent).await,
        };
        Stage::on(landscape, files, more).await
    }

    /// As [`Stage::with`], on real servers whatever is asked for.
    pub(crate) async fn real(skrs: usize, extent: Extent, files: &[(&str, String)], more: &[&str]) -> Stage {
        Stage::on(Landscape::real(skrs, extent).await, files, more).await
    }

    /// As [`Stage::with`], on simulated servers whatever is asked for.
    pub(crate) async fn on_simulated(skrs: usize, extent: Extent, files: &[(&str, String)], more: &[&str]) -> Stage {
        Stage::on(Landscape::simulated(skrs, extent).await, files, more).await
    }

    async fn on(landscape: Landscape, files: &[(&str, String)], more: &[&str]) -> Stage {
        let kcp = landscape.kcp.client();
        let skr_clients: Vec<Client> = landscape.skrs.iter().map(Server::client).collect();
        for (name, skr) in MANY.iter().zip(&landscape.skrs) {
            apply(&kcp, &access_secret(name, skr)).await;
        }
        let folder = harness::folder();
        let repository = Repository::init(&folder.path().join("repo")).expect("a repository");
        for (path, text) in files {
            repository.write(path, text).expect("a file");
        }
        repository.commit("first").expect("a commit");
        apply(&kcp, &source(&repository.url())).await;
        let more = more.iter().map(|argument| (*argument).to_owned()).collect();
        let _logs = ambient::is_simulated().then(|| {
            let log = std::fs::File::create(folder.path().join(LOG)).expect("a file");
            let dispatch = telemetry::json(telemetry::FILTER, Mutex::new(log)).expect("a filter");
            tracing::dispatcher::set_default(&dispatch)
        });
        Stage { kcp, skrs: skr_clients, repository, landscape, daemon: Mutex::new(None), more, _logs, folder }
    }

    /// Starts the daemon as an administrator of its own, so that the servers' records tell its requests from those of
    /// the test.
    pub(crate) fn start(&self) {
        self.start_with(&[]);
    }

    /// Deletes the disk of the daemon, which is stopped.
    pub(crate) fn forget(&self) {
        std::fs::remove_dir_all(self.folder.path().join("state")).expect("it had a state");
    }

    /// Starts the daemon with further options.
    pub(crate) fn start_with(&self, more: &[&str]) {
        self.start_daemon(&self.landscape.kcp.kubeconfig_of(USER, ADMINISTRATORS), more);
    }

    /// Starts the daemon as this user.
    pub(crate) fn start_as(&self, access: &Kubeconfig) {
        self.start_daemon(access, &[]);
    }

    /// Starts the daemon as this user, with further options.
    pub(crate) fn start_as_with(&self, access: &Kubeconfig, more: &[&str]) {
        self.start_daemon(access, more);
    }

    /// A single pass of a daemon in this process, with further options. Only on simulated servers.
    pub(crate) async fn once(&self, timeout: Duration, more: &[&str]) -> Report {
        self.once_until(std::future::pending(), timeout, more).await
    }

    /// The same, but the daemon must stop, as after a signal, when `stop` completes.
    pub(crate) async fn once_until(&self, stop: impl Future<Output = ()>, timeout: Duration, more: &[&str]) -> Report {
        let arguments = self.arguments("state", &self.landscape.kcp.kubeconfig_of(USER, ADMINISTRATORS), more);
        daemon::once(&arguments, Server::network(self.landscape.servers()), timeout, stop).await
    }

    /// Starts one more daemon, as a process with its own state folder.
    pub(crate) fn beside(&self, name: &str, more: &[&str]) -> Guarded {
        let access = self.landscape.kcp.kubeconfig_of(USER, ADMINISTRATORS);
        let arguments = self.arguments(name, &access, more);
        let log = self.folder.path().join(format!("{name}.log"));
        match Daemon::process(&arguments, self.folder.path(), &log) {
            Daemon::Process(process) => process,
            Daemon::Here(_) => unreachable!("it was started as a process"),
        }
    }

    fn start_daemon(&self, access: &Kubeconfig, more: &[&str]) {
        let arguments = self.arguments("state", access, more);
        let daemon = if ambient::is_simulated() {
            Daemon::here(&arguments, Server::network(self.landscape.servers()))
        } else {
            Daemon::process(&arguments, self.folder.path(), &self.log())
        };
        *self.lock() = Some(daemon);
    }

    fn arguments(&self, state: &str, access: &Kubeconfig, more: &[&str]) -> Vec<String> {
        let kubeconfig = self.folder.path().join("kcp.kubeconfig");
        std::fs::write(&kubeconfig, access.text()).expect("a file");
        let state = self.folder.path().join(state);
        let mut arguments = vec![
            "run",
            "--kubeconfig",
            path(&kubeconfig),
            "--state",
            path(&state),
            "--allow-local-sources",
            "--metrics-address=127.0.0.1:0",
            "--health-address=127.0.0.1:0",
            "--events-address=127.0.0.1:0",
            "--events-tls-address=127.0.0.1:0",
            "--hooks-address=127.0.0.1:0",
            "--log-format=json",
            // A test that kills the daemon does not wait for the whole Lease.
            "--lease-duration=6s",
            "--lease-renew-deadline=4s",
            "--lease-retry-period=200ms",
        ];
        // Only what is logged after this is considered.
        let name = |argument: &str| argument.split('=').next().unwrap_or_default().to_owned();
        for later in [&self.more.iter().map(String::as_str).collect::<Vec<_>>()[..], more] {
            arguments.retain(|argument| {
                !argument.starts_with("--") || !later.iter().any(|later| name(later) == name(argument))
            });
            arguments.extend(later);
        }
        arguments.into_iter().map(str::to_owned).collect()
    }

    /// Kills the daemon.
    pub(crate) async fn kill(&self) {
        let daemon = self.lock().take();
        if let Some(daemon) = daemon {
            daemon.kill().await;
        }
    }

    /// Sends a signal to the daemon.
    pub(crate) fn signal(&self, signal: &str) {
        if let Some(daemon) = self.lock().as_mut() {
            daemon.signal(signal);
        }
    }

    /// Waits until the daemon, which is a process, has exited.
    pub(crate) async fn ends(&self) {
        let ended = || self.lock().as_mut().is_none_or(Daemon::has_ended);
        eventually("the daemon ends", SOON, async || if ended() { Ok(()) } else { Err(self.log_tail()) }).await;
    }

    /// A file with the administrator's kubeconfig.
    pub(crate) fn kubeconfig(&self) -> std::path::PathBuf {
        let kubeconfig = self.folder.path().join("admin.kubeconfig");
        std::fs::write(&kubeconfig, self.landscape.kcp.kubeconfig().text()).expect("a file");
        kubeconfig
    }

    /// Runs a `tidegate` command with the administrator's kubeconfig. Real time passes meanwhile.
    pub(crate) async fn command(&self, arguments: &[&str]) -> Output {
        let kubeconfig = self.kubeconfig();
        let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_tidegate"));
        let _flow = clock::flow();
        command.args(arguments).arg("--kubeconfig").arg(&kubeconfig).output().await.expect("the command runs")
    }

    /// Runs a `tidegate` command that needs no cluster. Real time passes meanwhile.
    pub(crate) async fn command_offline(&self, arguments: &[&str]) -> Output {
        let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_tidegate"));
        let _flow = clock::flow();
        command.args(arguments).output().await.expect("the command runs")
    }

    /// The id of the daemon's process, once it runs.
    pub(crate) async fn process_id(&self) -> u32 {
        let found = || self.lock().as_ref().and_then(Daemon::process_id);
        eventually("the daemon runs", SOON, async || found().ok_or_else(|| self.log_tail())).await
    }

    /// The daemon's log.
    pub(crate) fn log(&self) -> std::path::PathBuf {
        self.folder.path().join(LOG)
    }

    /// The answer of the daemon's port for `health` or `metrics`: status and body. Real time passes meanwhile.
    pub(crate) async fn ask(&self, purpose: &str, path: &str) -> Result<(u16, String), String> {
        let log = std::fs::read_to_string(self.log()).map_err(|error| error.to_string())?;
        let records = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        // Of several processes, the last one runs.
        let mut listening =
            records.filter(|record| record["msg"] == "listening" && record["context"]["purpose"] == purpose);
        let listening = listening.next_back().ok_or("not listening yet")?;
        let address = listening["context"]["address"].as_str().ok_or("no address")?.to_owned();
        let _flow = clock::flow();
        let asked = async {
            let mut stream = TcpStream::connect(address).await?;
            let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
            stream.write_all(request.as_bytes()).await?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer).await.map(|_| answer)
        };
        let answer = asked.await.map_err(|error: std::io::Error| error.to_string())?;
        let (head, body) = answer.split_once("\r\n\r\n").ok_or("no answer")?;
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).ok_or("no status")?;
        Ok((status, body.to_owned()))
    }

    /// Commits one changed file.
    pub(crate) fn commit(&self, path: &str, text: &str) -> String {
        self.repository.write(path, text).expect("a file");
        self.repository.commit(&format!("change {path}")).expect("a commit")
    }

    /// Waits for a Kyma to be in a state, and returns it.
    pub(crate) async fn kyma_in(&self, name: &str, state: &str) -> Value {
        self.until(&format!("Kyma {name} is {state}"), &self.kcp, "Kyma", "kcp-system", name, |kyma| {
            kyma["status"]["state"] == state
                && kyma["status"]["modules"].as_array().is_none_or(|modules| {
                    state != "Ready"
                        || modules.iter().all(|module| module["state"] == "Ready" || module["state"] == "Unmanaged")
                })
        })
        .await
    }

    /// Waits until an object is as `holds` says, and returns it. A failure shows the end of the daemon's log.
    pub(crate) async fn until(
        &self,
        what: &str,
        client: &Client,
        kind: &str,
        namespace: &str,
        name: &str,
        holds: impl Fn(&Value) -> bool,
    ) -> Value {
        eventually(what, SOON * 2, async || match read(client, kind, namespace, name).await {
            Some(object) if holds(&object) => Ok(object),
            Some(object) => Err(format!("{}\n{}", summary(&object), self.log_tail())),
            None => Err(format!("not there\n{}", self.log_tail())),
        })
        .await
    }

    /// Waits until an object is gone.
    pub(crate) async fn until_gone(&self, client: &Client, kind: &str, namespace: &str, name: &str) {
        eventually(&format!("{kind} {name} is gone"), SOON * 2, async || {
            match read(client, kind, namespace, name).await {
                None => Ok(()),
                Some(object) => Err(format!("{}\n{}", summary(&object), self.log_tail())),
            }
        })
        .await;
    }

    /// The end of the daemon's log, for the message of a failure.
    pub(crate) fn log_tail(&self) -> String {
        self.last_lines(12)
    }

    /// The last lines of the daemon's log, for the message of a failure.
    pub(crate) fn last_lines(&self, lines: usize) -> String {
        daemon::tail(&self.log(), lines)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<Daemon>> {
        self.daemon.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The daemon's writes to KCP, without its Lease, and all its requests to runtimes, since [`Stage::marks`] returned
    /// `marks`.
    pub(crate) fn requests_since(&self, marks: &[u64]) -> Vec<String> {
        let mut found = Vec::new();
        for (cluster, mark) in self.landscape.servers().zip(marks) {
            let is_kcp = cluster.name() == self.landscape.kcp.name();
            let records = cluster.records_since(*mark).into_iter();
            let counts = |record: &Record| record.user == USER && (!is_kcp || is_write(record));
            found.extend(
                records
                    .filter(counts)
                    .map(|record| format!("{} {} {} {}", cluster.name(), record.verb, record.resource, record.name)),
            );
        }
        found
    }

    /// Waits until the daemon has sent no request for a second: all statuses are written.
    pub(crate) async fn rests(&self) {
        let mut marks = self.marks();
        eventually("the world is quiet", SOON, async || {
            let before = std::mem::replace(&mut marks, self.marks());
            tokio::time::sleep(Duration::from_secs(1)).await;
            match self.requests_since(&before) {
                requests if requests.is_empty() => Ok(()),
                requests => Err(format!("{requests:?}")),
            }
        })
        .await;
    }

    /// The present positions in the records of KCP and the runtimes.
    pub(crate) fn marks(&self) -> Vec<u64> {
        self.landscape.servers().map(Server::mark).collect()
    }
}

// === impl Landscape ===

impl Landscape {
    /// In this process, with nothing to wait for.
    async fn simulated(skrs: usize, extent: Extent) -> Landscape {
        let kcp = Server::simulated_kcp().await;
        let mut runtimes = Vec::new();
        for index in 1..=skrs {
            runtimes.push(Server::simulated(&format!("skr-{index}"), extent).await);
        }
        Landscape { kcp, skrs: runtimes, _permit: None }
    }

    /// As processes, on an etcd of their own.
    async fn real(skrs: usize, extent: Extent) -> Landscape {
        let harness::Landscape { kcp, skrs, permit } = harness::dedicated_landscape(skrs, extent).await;
        servers::furnish(&kcp.client().expect("a client")).await;
        let real = |server| Server::Real(Box::new(server));
        Landscape { kcp: real(kcp), skrs: skrs.into_iter().map(real).collect(), _permit: Some(permit) }
    }

    /// KCP and the runtimes.
    pub(crate) fn servers(&self) -> impl Iterator<Item = &Server> {
        std::iter::once(&self.kcp).chain(&self.skrs)
    }
}

fn is_write(record: &Record) -> bool {
    !["get", "list", "watch"].contains(&record.verb.as_str()) && !record.resource.starts_with("leases")
}

/// The user as which the daemon acts; tests act as another.
pub(crate) const USER: &str = "tidegate-test";
/// The group of cluster administrators.
pub(crate) const ADMINISTRATORS: Option<&str> = Some("system:masters");
/// The daemon's log, in the folder of its stage.
const LOG: &str = "daemon.log";

/// The states of the Kymas in a cluster, each time that they were written.
#[derive(Clone, Default)]
pub(crate) struct States(Arc<Mutex<Vec<(String, String)>>>);

impl States {
    /// Follows the Kymas in all of these clusters from now on.
    pub(crate) async fn follow(clients: impl IntoIterator<Item = &Client>) -> States {
        let states = States::default();
        for client in clients {
            let api: Api<Kyma> = Api::all(client.clone());
            let mut events = api.watch(&WatchParams::default(), "0").await.expect("a watch").boxed();
            let follower = states.clone();
            tokio::spawn(async move {
                loop {
                    while let Ok(Some(event)) = events.try_next().await {
                        let (WatchEvent::Added(kyma) | WatchEvent::Modified(kyma)) = event else { continue };
                        let state = kyma.status.map(|status| status.state.to_string()).unwrap_or_default();
                        let name = kyma.metadata.name.unwrap_or_default();
                        follower.0.lock().expect("no panic holds it").push((name, state));
                    }
                    // The API server ends each watch after some minutes.
                    let Ok(next) = api.watch(&WatchParams::default(), "0").await else { return };
                    events = next.boxed();
                }
            });
        }
        states
    }

    /// Asserts that Kymas were seen, and that none was in this state.
    #[track_caller]
    pub(crate) fn were_never(&self, state: &str) {
        let states = self.0.lock().expect("no panic holds it").clone();
        assert!(!states.is_empty() && states.iter().all(|(_, seen)| seen != state), "{states:?}");
    }

    /// Asserts that the Kymas were written at least so often, that each was `Ready`, and that none left that state.
    #[track_caller]
    pub(crate) fn were_ready(&self, writes_min: usize) {
        let states = self.0.lock().expect("no panic holds it").clone();
        let mut last: std::collections::BTreeMap<&str, &str> = std::collections::BTreeMap::new();
        for (name, state) in &states {
            let before = last.insert(name, state);
            assert!(before != Some("Ready") || state == "Ready", "Kyma {name} leaves Ready: {states:?}");
        }
        assert!(last.values().all(|state| *state == "Ready"), "{states:?}");
        assert!(writes_min <= states.len(), "the watch sees them: {states:?}");
    }
}

/// A kubeconfig Secret for a Kyma.
pub(crate) fn access_secret(kyma: &str, skr: &Server) -> Value {
    let kubeconfig = skr.kubeconfig_of(USER, ADMINISTRATORS).text();
    json!({
        "apiVersion": "v1", "kind": "Secret",
        "metadata": {"name": format!("access-{kyma}"), "namespace": "kcp-system", "labels": {"operator.kyma-project.io/kyma-name": kyma}},
        "data": {"config": STANDARD.encode(kubeconfig)},
    })
}

fn source(url: &str) -> Value {
    json!({
        "apiVersion": "tidegate.dev/v1alpha1", "kind": "GitSource",
        "metadata": {"name": "landscape", "namespace": "kcp-system"},
        "spec": {"url": url, "ref": {"branch": "main"}, "interval": "10s"},
    })
}

fn path(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}

/// An object, if it exists. `None` also if its kind is not served.
pub(crate) async fn read(client: &Client, kind: &str, namespace: &str, name: &str) -> Option<Value> {
    let api_version = match kind {
        "Kyma" | "Manifest" | "ModuleTemplate" | "ModuleReleaseMeta" | "Watcher" => "operator.kyma-project.io/v1beta2",
        "GitSource" => "tidegate.dev/v1alpha1",
        "ClusterRole" => "rbac.authorization.k8s.io/v1",
        "CustomResourceDefinition" => "apiextensions.k8s.io/v1",
        "ValidatingWebhookConfiguration" => "admissionregistration.k8s.io/v1",
        "VirtualService" | "Gateway" => "networking.istio.io/v1beta1",
        "Certificate" => "cert-manager.io/v1",
        "Lease" => "coordination.k8s.io/v1",
        "Thing" => "example.org/v1",
        "Deployment" | "StatefulSet" => "apps/v1",
        "NetworkPolicy" => "networking.k8s.io/v1",
        "PriorityClass" => "scheduling.k8s.io/v1",
        _ => "v1",
    };
    let sample = json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": name, "namespace": namespace}});
    let api: Api<DynamicObject> = harness::api_of(client, &sample).await.ok()?;
    let object = api.get_opt(name).await.ok()??;
    serde_json::to_value(object).ok()
}

/// The part of an object that a failure shows.
fn summary(object: &Value) -> String {
    let mut shown = object.clone();
    if let Some(metadata) = shown["metadata"].as_object_mut() {
        metadata.remove("managedFields");
    }
    shown.to_string()
}

/// A module in git: a template with objects, of which the first ConfigMap's text is `text`. Only `cache` has a default
/// custom resource: a kind belongs to one module, since objects of it keep that module from being removed.
pub(crate) fn module(module: &str, version: &str, text: &str) -> Vec<(String, String)> {
    let folder = format!("modules/{module}/{version}");
    let data = if module == "cache" {
        "\n  data: {apiVersion: example.org/v1, kind: Thing, metadata: {name: cache-default, namespace: kyma-system}, spec: {size: 1}}"
    } else {
        ""
    };
    let template = format!(
        r#"apiVersion: operator.kyma-project.io/v1beta2
kind: ModuleTemplate
metadata:
  name: {module}-{version}
  namespace: kcp-system
  annotations: {{tidegate.dev/module-path: {folder}/objects}}
spec:
  moduleName: {module}
  version: {version}{data}
"#
    );
    let objects = format!(
        r#"apiVersion: v1
kind: ConfigMap
metadata: {{name: {module}-a, namespace: kyma-system}}
data: {{text: "{text}"}}
---
apiVersion: v1
kind: ConfigMap
metadata: {{name: {module}-b, namespace: kyma-system}}
data: {{text: same}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {{name: {module}}}
rules: [{{apiGroups: [""], resources: [configmaps], verbs: [get]}}]
"#
    );
    vec![(format!("{folder}/module-template.yaml"), template), (format!("{folder}/objects/objects.yaml"), objects)]
}

/// The CRD of the modules' default custom resource, as a module's object.
pub(crate) const THING_CRD: &str = r#"apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: things.example.org}
spec:
  group: example.org
  scope: Namespaced
  names: {kind: Thing, plural: things, singular: thing, listKind: ThingList}
  versions:
    - name: v1
      served: true
      storage: true
      schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object, x-kubernetes-preserve-unknown-fields: true}}}}
"#;

/// The CustomResourceDefinition of kind `Box`, of which no module has a default custom resource. `annotations` are in
/// YAML, for example `{tidegate.dev/prune: enabled}`.
pub(crate) fn box_crd(annotations: &str) -> String {
    format!(
        "apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {{name: boxes.example.org, annotations: {annotations}}}
spec:
  group: example.org
  scope: Namespaced
  names: {{kind: Box, plural: boxes, singular: box, listKind: BoxList}}
  versions:
    - {{name: v1, served: true, storage: true, schema: {{openAPIV3Schema: {{type: object}}}}}}
"
    )
}

/// A Watcher, whose selector matches no Gateway.
pub(crate) const WATCHER: &str = r"apiVersion: operator.kyma-project.io/v1beta2
kind: Watcher
metadata:
  name: watcher
  namespace: kcp-system
  labels: {operator.kyma-project.io/managed-by: lifecycle-manager}
spec:
  serviceInfo: {name: tidegate-events, namespace: kcp-system, port: 8082}
  labelsToWatch: {operator.kyma-project.io/watched-by: kyma}
  field: spec
  resourceToWatch: {group: operator.kyma-project.io, version: '*', resource: kymas}
  gateway: {selector: {matchLabels: {app: watcher-gateway}}}
";

/// The channels of a module.
pub(crate) fn release(module: &str, channels: &[(&str, &str)]) -> String {
    let channels: Vec<String> =
        channels.iter().map(|(channel, version)| format!("{{channel: {channel}, version: {version}}}")).collect();
    format!(
        r#"apiVersion: operator.kyma-project.io/v1beta2
kind: ModuleReleaseMeta
metadata: {{name: {module}, namespace: kcp-system}}
spec:
  moduleName: {module}
  ocmComponentName: example.org/module/{module}
  channels: [{}]
"#,
        channels.join(", ")
    )
}

/// A Kyma with modules.
pub(crate) fn kyma(name: &str, modules: &[&str]) -> String {
    let modules: Vec<String> = modules.iter().map(|module| format!("{{name: {module}, managed: true}}")).collect();
    format!(
        r#"apiVersion: operator.kyma-project.io/v1beta2
kind: Kyma
metadata: {{name: {name}, namespace: kcp-system}}
spec:
  channel: regular
  modules: [{}]
"#,
        modules.join(", ")
    )
}

/// Two modules, two channels, and a Kyma for each runtime.
pub(crate) fn files(skrs: usize) -> Vec<(String, String)> {
    let mut files = Vec::new();
    files.extend(module("cache", "1.0.0", "one"));
    files.extend(module("cache", "1.1.0", "two"));
    files.extend(module("mailer", "2.0.0", "mail"));
    for version in ["1.0.0", "1.1.0"] {
        files.push((format!("modules/cache/{version}/objects/crd.yaml"), THING_CRD.to_owned()));
    }
    files.push(("modules/cache/release.yaml".to_owned(), release("cache", &[("regular", "1.0.0"), ("fast", "1.1.0")])));
    files.push(("modules/mailer/release.yaml".to_owned(), release("mailer", &[("regular", "2.0.0")])));
    for name in KYMAS.iter().take(skrs) {
        files.push((format!("kymas/{name}.yaml"), kyma(name, &["cache", "mailer"])));
    }
    files
}

/// A stage with [`files`], with the daemon running and everything Ready.
pub(crate) async fn ready(skrs: usize) -> Stage {
    ready_of(skrs, skrs).await
}

/// As [`ready`] with one runtime, and there is a second one that has no Kyma yet.
pub(crate) async fn ready_beside_another_runtime() -> Stage {
    ready_of(2, 1).await
}

async fn ready_of(skrs: usize, kymas: usize) -> Stage {
    let files = files(kymas);
    let files: Vec<(&str, String)> = files.iter().map(|(path, text)| (path.as_str(), text.clone())).collect();
    let stage = Stage::new(skrs, &files).await;
    stage.start();
    for name in KYMAS.iter().take(kymas) {
        stage.kyma_in(name, "Ready").await;
    }
    stage
}

/// Longer than an unwanted pass would take to start.
pub(crate) const QUIET: Duration = Duration::from_secs(12);
