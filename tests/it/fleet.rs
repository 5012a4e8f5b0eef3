//! `tidegate sim serve` and `tidegate sim bench`: fleets of simulated runtimes.

use std::{path::Path, process::Stdio, time::Duration};

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::{
    Api, Client, ResourceExt as _,
    api::{DeleteParams, ListParams, Patch, PatchParams},
};
use kube_sim::{Options, Served, Server};
use serde_json::{Value, json};
use tokio::process::{Child, Command};

use crate::harness::{self, SOON, eventually};

/// A bench of three runtimes takes a few seconds; on a machine that builds at the same time it takes longer.
const BENCH_MAX: Duration = Duration::from_secs(15 * 60);

fn tidegate() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    command.stdin(Stdio::null()).kill_on_drop(true);
    command
}

/// Starts a fleet of three that keeps its files in a folder.
fn serve(folder: &Path, more: &[&str]) -> Child {
    serve_so_many(3, folder, more)
}

fn serve_so_many(runtimes: usize, folder: &Path, more: &[&str]) -> Child {
    let log = std::fs::File::create(folder.with_extension("log")).unwrap();
    let errors = log.try_clone().unwrap();
    let mut command = tidegate();
    command.args(["sim", "serve", "--dir"]).arg(folder).arg(format!("--runtimes={runtimes}")).args(more);
    command.stdout(log).stderr(errors).spawn().unwrap()
}

/// What a fleet says that cannot be served.
async fn not_served(folder: &Path, kubeconfig: &str) -> String {
    let status = tokio::time::timeout(SOON, serve(folder, &[kubeconfig]).wait()).await.expect("it ends").unwrap();
    let said = std::fs::read_to_string(folder.with_extension("log")).unwrap();
    assert_eq!((status.code(), said.lines().count()), (Some(2), 1), "{said}");
    said
}

/// Waits until a fleet says that all of it is there.
async fn served(folder: &Path) {
    eventually("the fleet is there", SOON, async || {
        let log = std::fs::read_to_string(folder.with_extension("log")).unwrap_or_default();
        if log.contains("press Ctrl-C to stop") { Ok(()) } else { Err(log) }
    })
    .await;
}

/// A client by a kubeconfig's text.
async fn client(text: &str) -> Client {
    let kubeconfig = kube::config::Kubeconfig::from_yaml(text).unwrap();
    Client::try_from(kube::Config::from_custom_kubeconfig(kubeconfig, &Default::default()).await.unwrap()).unwrap()
}

fn secrets(kcp: &Client) -> Api<Secret> {
    harness::namespaced(kcp, "kcp-system")
}

/// The names of all Secrets.
async fn names(kcp: &Client) -> Vec<String> {
    secrets(kcp).list(&ListParams::default()).await.unwrap().iter().map(kube::ResourceExt::name_any).collect()
}

/// The names of the Secrets of so many runtimes.
fn of_runtimes(runtimes: usize) -> Vec<String> {
    (1..=runtimes).map(|index| format!("kubeconfig-runtime-{index:04}")).collect()
}

/// Tells a process to end, as Ctrl-C does, and waits until it has.
async fn end(mut child: Child) -> bool {
    let id = child.id().and_then(|id| i32::try_from(id).ok()).expect("it runs");
    let id = rustix::process::Pid::from_raw(id).expect("a process");
    rustix::process::kill_process(id, rustix::process::Signal::TERM).unwrap();
    tokio::time::timeout(SOON, child.wait()).await.expect("it ends").unwrap().success()
}

/// A control plane of the test's own.
async fn control_plane(folder: &Path) -> (Served, Client, String) {
    tidegate_process::tls::install();
    let kcp = Server::new(&Options::default()).listen("kcp").await.unwrap();
    let kubeconfig = folder.join("given.kubeconfig");
    std::fs::write(&kubeconfig, kcp.kubeconfig().text()).unwrap();
    let client = kcp.kubeconfig().client().unwrap();
    harness::install_own_crds(&client).await;
    (kcp, client, format!("--kubeconfig={}", kubeconfig.display()))
}

#[tokio::test(flavor = "multi_thread")]
async fn every_runtime_of_a_fleet_is_a_cluster_that_its_secret_leads_to() {
    let place = harness::folder();
    let folder = place.path().join("fleet");
    let child = serve(&folder, &[]);
    served(&folder).await;
    let kcp = client(&std::fs::read_to_string(folder.join("kcp.kubeconfig")).unwrap()).await;
    let label = "operator.kyma-project.io/kyma-name";
    let found = secrets(&kcp).list(&ListParams::default().labels(label)).await.unwrap().items;
    let kymas: Vec<&str> = found.iter().map(|secret| secret.labels()[label].as_str()).collect();
    assert_eq!(kymas, ["runtime-0001", "runtime-0002", "runtime-0003"]);
    for secret in &found {
        let name = secret.labels()[label].as_str();
        let text = String::from_utf8(secret.data.as_ref().unwrap()["config"].0.clone()).unwrap();
        assert_eq!(text, std::fs::read_to_string(folder.join(format!("runtimes/{name}.kubeconfig"))).unwrap());
        let maps: Api<ConfigMap> = Api::default_namespaced(client(&text).await);
        assert!(maps.list(&ListParams::default()).await.unwrap().items.is_empty(), "{name} is another's runtime");
        let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}});
        maps.patch(name, &PatchParams::apply("test"), &Patch::Apply(map)).await.unwrap();
    }
    // What a control plane needs to make something of it is served, too.
    let kymas = json!({"apiVersion": "operator.kyma-project.io/v1beta2", "kind": "Kyma"});
    assert!(harness::api_of(&kcp, &kymas).await.is_ok());
    assert!(end(child).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_given_control_plane_has_the_secrets_as_long_as_the_fleet_is_there() {
    let place = harness::folder();
    let (_kcp, kcp, kubeconfig) = control_plane(place.path()).await;
    let folder = place.path().join("fleet");
    // Twice: the second fleet is another one behind the same names.
    for _ in 0..2 {
        let child = serve(&folder, &[&kubeconfig]);
        served(&folder).await;
        assert_eq!(names(&kcp).await, of_runtimes(3));
        assert!(!folder.join("kcp.kubeconfig").exists(), "no control plane is simulated");
        assert!(end(child).await);
        assert!(names(&kcp).await.is_empty(), "nothing leads nowhere");
    }
}

/// A fleet for this control plane ends soon, with one sentence that says this, and leaves no file.
async fn refused(kubeconfig: &str, said: &[&str]) {
    let place = harness::folder();
    let given = place.path().join("given.kubeconfig");
    std::fs::write(&given, kubeconfig).unwrap();
    let folder = place.path().join("fleet");
    let mut command = tidegate();
    command.args(["sim", "serve", "--runtimes=2", "--kubeconfig"]).arg(&given).arg("--dir").arg(&folder);
    let began = std::time::Instant::now();
    let ended = tokio::time::timeout(SOON, command.output()).await.expect("it ends").unwrap();
    let took = began.elapsed();
    let error = String::from_utf8(ended.stderr).unwrap();
    assert_eq!((ended.status.code(), error.lines().count()), (Some(2), 1), "{error}");
    assert!(said.iter().all(|part| error.contains(part)), "{error}");
    assert!(took < Duration::from_secs(15), "{took:?}");
    assert!(!folder.exists(), "something is left: {error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_control_plane_that_will_not_do_is_told_at_once() {
    let place = harness::folder();
    let (kcp, client, _) = control_plane(place.path()).await;
    let given = kcp.kubeconfig().text();
    let at = |port: u16| {
        let server = kcp.kubeconfig().server.clone();
        given.replace(&server, &format!("https://127.0.0.1:{port}"))
    };
    // No server listens on the first port. One on the second port accepts connections and never answers.
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    refused(&at(free), &["does not answer", &format!("127.0.0.1:{free}"), "refused", "use another kubeconfig"]).await;
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    refused(&at(silent.local_addr().unwrap().port()), &["does not answer", "no answer within 5 s"]).await;
    // A token that the API server does not know.
    let stranger = kcp.kubeconfig_with_token("known", kube_sim::User::admin()).text().replace("known", "unknown");
    refused(&stranger, &["denies access", "Unauthorized", "with access"]).await;
    let empty = Server::new(&Options::default()).listen("empty").await.unwrap();
    refused(&empty.kubeconfig().text(), &["serves no Kymas", "tidegate crds"]).await;
    let namespaces: Api<k8s_openapi::api::core::v1::Namespace> = Api::all(empty.kubeconfig().client().unwrap());
    assert!(namespaces.get_opt("kcp-system").await.unwrap().is_none(), "a namespace is left");
    drop(client);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_user_without_rights_brings_no_fleet_to_a_control_plane() {
    let plane = harness::api_server().await;
    harness::install_own_crds(&plane.client().unwrap()).await;
    let kubeconfig = plane.kubeconfig_of("nobody-of-note", None).unwrap().text();
    refused(&kubeconfig, &["does not allow this user to list Secrets", "kcp-system", "grant it"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fleet_leaves_the_secrets_of_another_one_alone() {
    let place = harness::folder();
    let (_kcp, kcp, kubeconfig) = control_plane(place.path()).await;
    let (one, other) = (place.path().join("one"), place.path().join("other"));
    let mut first = serve(&one, &[&kubeconfig]);
    served(&one).await;
    let before = secrets(&kcp).list(&ListParams::default()).await.unwrap().items;
    let said = not_served(&other, &kubeconfig).await;
    assert!(said.contains("Secret kubeconfig-runtime-0001 belongs to another fleet"), "{said}");
    assert_eq!(secrets(&kcp).list(&ListParams::default()).await.unwrap().items, before);
    // The Secrets of a killed fleet are not removed. The message says how to remove them.
    first.kill().await.unwrap();
    assert_eq!(not_served(&other, &kubeconfig).await, said);
    let (_, command) = said.split_once("if it no longer runs, `kubectl ").expect("a command");
    let (command, _) = command.split_once('`').expect("a command");
    let given = place.path().join("given.kubeconfig");
    let selector = command.strip_prefix(&format!("--kubeconfig {} -n kcp-system delete secrets -l ", given.display()));
    let all = ListParams::default().labels(selector.expect("a selector"));
    secrets(&kcp).delete_collection(&DeleteParams::default(), &all).await.unwrap();
    assert!(names(&kcp).await.is_empty());
    let second = serve(&other, &[&kubeconfig]);
    served(&other).await;
    assert!(end(second).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fleet_removes_what_a_killed_one_of_its_folder_has_left() {
    let place = harness::folder();
    let (_kcp, kcp, kubeconfig) = control_plane(place.path()).await;
    let folder = place.path().join("fleet");
    let mut first = serve(&folder, &[&kubeconfig]);
    served(&folder).await;
    first.kill().await.unwrap();
    assert_eq!(names(&kcp).await, of_runtimes(3));
    let second = serve_so_many(1, &folder, &[&kubeconfig]);
    served(&folder).await;
    assert_eq!(names(&kcp).await, of_runtimes(1));
    let leads = secrets(&kcp).get("kubeconfig-runtime-0001").await.unwrap().data.unwrap()["config"].0.clone();
    let there = std::fs::read_to_string(folder.join("runtimes/runtime-0001.kubeconfig")).unwrap();
    assert_eq!(String::from_utf8(leads).unwrap(), there, "it leads to the runtime of before");
    assert!(end(second).await);
    assert!(names(&kcp).await.is_empty(), "nothing leads nowhere");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fleet_that_cannot_be_served_takes_back_what_it_wrote() {
    let place = harness::folder();
    let (_kcp, kcp, kubeconfig) = control_plane(place.path()).await;
    // A webhook that is nowhere refuses one of the Secrets.
    let service = json!({"name": "nowhere", "namespace": "kcp-system"});
    let hook = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": "refusing"},
        "webhooks": [{
            "name": "refusing.example.org", "admissionReviewVersions": ["v1"], "sideEffects": "None",
            "clientConfig": {"service": service}, "failurePolicy": "Fail", "timeoutSeconds": 1,
            "rules": [{
                "apiGroups": [""], "apiVersions": ["v1"], "resources": ["secrets"], "operations": ["CREATE"],
            }],
            "matchConditions": [{"name": "one", "expression": "object.metadata.name == 'kubeconfig-runtime-0003'"}],
        }],
    });
    harness::apply(&kcp, &hook).await;
    let said = not_served(&place.path().join("fleet"), &kubeconfig).await;
    assert!(said.contains("cannot write Secret kubeconfig-runtime-0003"), "{said}");
    assert!(names(&kcp).await.is_empty(), "nothing leads nowhere");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_folder_of_a_fleet_that_runs_is_not_taken() {
    let place = harness::folder();
    let folder = place.path().join("fleet");
    let first = serve(&folder, &[]);
    served(&folder).await;
    let before = std::fs::read_to_string(folder.join("runtimes/runtime-0001.kubeconfig")).unwrap();
    let arguments = ["sim", "serve", "--runtimes=1", "--dir"];
    let second = tokio::time::timeout(SOON, tidegate().args(arguments).arg(&folder).output()).await.expect("it ends");
    let said = String::from_utf8(second.unwrap().stderr).unwrap();
    assert!(said.contains("belongs to a running fleet"), "{said}");
    assert_eq!(std::fs::read_to_string(folder.join("runtimes/runtime-0001.kubeconfig")).unwrap(), before);
    assert!(end(first).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bench_whose_daemon_ends_says_so_at_once() {
    let place = harness::folder();
    let mut bench = tidegate();
    let bench = bench.args(["sim", "bench", "--runtimes=1", "--modules=1", "--objects=5"]);
    let bench = bench.env("TMPDIR", place.path()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let started = async || daemon_in(place.path()).ok_or("no daemon was started".to_owned());
    let daemon = eventually("the daemon is started", SOON, started).await;
    rustix::process::kill_process(daemon, rustix::process::Signal::KILL).unwrap();
    let ended = tokio::time::timeout(SOON, bench.wait_with_output()).await.expect("it ends").unwrap();
    let said = String::from_utf8(ended.stderr).unwrap();
    assert!(!ended.status.success());
    assert!(said.contains("the daemon exited"), "{said}");
}

/// The daemon that keeps its files in a folder.
fn daemon_in(folder: &Path) -> Option<rustix::process::Pid> {
    let folder = folder.to_str().expect("a path in UTF-8");
    let processes = std::fs::read_dir("/proc").unwrap().filter_map(|entry| {
        let id: i32 = entry.ok()?.file_name().to_str()?.parse().ok()?;
        Some((id, std::fs::read_to_string(format!("/proc/{id}/cmdline")).ok()?))
    });
    let is_it = |line: &str| {
        let mut words = line.split('\0');
        words.next() == Some(env!("CARGO_BIN_EXE_tidegate"))
            && words.next() == Some("run")
            && words.any(|word| word.starts_with(folder))
    };
    let (id, _) = processes.into_iter().find(|(_, line)| is_it(line))?;
    rustix::process::Pid::from_raw(id)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bench_that_would_be_in_vain_begins_nothing_and_keeps_earlier_numbers() {
    let place = harness::folder();
    let file = place.path().join("numbers.json");
    std::fs::write(&file, "earlier numbers").unwrap();
    for (resync, path, problem) in [("1s", file.as_path(), "1s is too short"), ("1h", place.path(), "cannot write")] {
        let mut bench = tidegate();
        let bench = bench.args(["sim", "bench", "--resync", resync, "--json"]).arg(path);
        let ended = tokio::time::timeout(SOON, bench.output()).await.expect("it ends").unwrap();
        let said = String::from_utf8(ended.stderr).unwrap();
        assert!(!ended.status.success() && said.contains(problem) && !said.contains("starting"), "{said}");
    }
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "earlier numbers");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_secret_of_another_client_stays_as_it_is() {
    let of_kyma = json!({"operator.kyma-project.io/kyma-name": "runtime-0002"});
    for (name, labels, said) in [
        ("theirs", of_kyma, "Secret theirs is for another runtime with the same name"),
        ("kubeconfig-runtime-0002", json!({}), "Secret kubeconfig-runtime-0002 does not belong to this fleet"),
    ] {
        let place = harness::folder();
        let (_kcp, kcp, kubeconfig) = control_plane(place.path()).await;
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kcp-system"}});
        harness::apply(&kcp, &namespace).await;
        let theirs = json!({
            "apiVersion": "v1", "kind": "Secret", "data": {"theirs": "dGhlaXJz"},
            "metadata": {"name": name, "namespace": "kcp-system", "labels": labels},
        });
        harness::apply(&kcp, &theirs).await;
        let before = secrets(&kcp).list(&ListParams::default()).await.unwrap().items;
        let error = not_served(&place.path().join("fleet"), &kubeconfig).await;
        assert!(error.contains(said), "{error}");
        assert_eq!(secrets(&kcp).list(&ListParams::default()).await.unwrap().items, before);
    }
}

/// The phases of a bench of three runtimes, by name.
async fn bench(more: &[&str]) -> Vec<Value> {
    let place = harness::folder();
    let file = place.path().join("numbers.json");
    let output = tidegate()
        .args(["sim", "bench", "--runtimes=3", "--modules=2", "--objects=3", "--idle=2", "--events=3", "--json"])
        .arg(&file)
        .args(more)
        .output();
    let output = tokio::time::timeout(BENCH_MAX, output).await.expect("the bench ends").unwrap();
    let (said, problems) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{said}\n{problems}");
    let report: Value = serde_json::from_str(&std::fs::read_to_string(&file).unwrap()).unwrap();
    assert_eq!((&report["runtimes"], &report["modules"], &report["objects"]), (&json!(3), &json!(2), &json!(3)));
    let phases = report["phases"].as_array().unwrap().clone();
    for phase in &phases {
        let name = phase["name"].as_str().unwrap();
        assert!(said.contains(name), "the table has a line for {name}: {said}");
        assert!(phase["residentBytes"].as_u64() > Some(1 << 20), "{phase}");
        assert!(phase["peakBytes"].as_u64() > Some(1 << 20), "{phase}");
        assert!(phase["cpuSeconds"].is_number() && phase["wallSeconds"].is_number(), "{phase}");
    }
    phases
}

fn phase<'a>(phases: &'a [Value], name: &str) -> &'a Value {
    phases.iter().find(|phase| phase["name"] == name).unwrap_or_else(|| panic!("there is a phase {name}"))
}

#[track_caller]
fn check_phases(phases: &[Value]) {
    let names: Vec<&str> = phases.iter().map(|phase| phase["name"].as_str().unwrap()).collect();
    let expected = [
        "first rollout",
        "idle",
        "channel bump",
        "1 % of modules changed",
        "one object deleted",
        "event storm",
        "20 % black-holed",
        "20 % back",
        "daemon restart",
    ];
    assert_eq!(names, expected);
    // Each of these has objects that are other than before, runtimes that got them, and a limit beside it.
    let runtimes = [
        ("first rollout", 3),
        ("channel bump", 3),
        ("1 % of modules changed", 1),
        ("20 % black-holed", 2),
        ("20 % back", 1),
    ];
    for (name, runtimes) in runtimes {
        let phase = phase(phases, name);
        assert_eq!(phase["work"]["unit"], "objects");
        assert!(phase["work"]["count"].as_u64() >= Some(3 * runtimes), "{name}: {}", phase["work"]);
        assert_eq!(phase["latency"]["runtimes"], runtimes, "{name}");
        let (writes, limit) = (phase["runtimes"]["writes"].as_u64(), phase["limit"]["writes"].as_u64());
        assert!(writes >= Some(3 * runtimes), "{name}: {phase:#}");
        assert!(limit >= phase["work"]["count"].as_u64(), "{name}: {phase:#}");
        assert!(phase["timesTheLimit"]["time"].is_number() && phase["timesTheLimit"]["writes"].is_number(), "{name}");
    }
    // A rollout brings: 3 × 2 × 3 objects of modules, a namespace, three definitions and a Kyma each, and the catalog.
    assert!(phase(phases, "first rollout")["work"]["count"].as_u64() >= Some(18 + 15), "{phases:#?}");
    let storm = phase(phases, "event storm");
    assert_eq!(storm["work"], json!({"unit": "events", "count": 9, "perSecond": storm["work"]["perSecond"]}));
    assert!(storm["runtimes"]["byVerb"]["get"].as_u64() >= Some(3), "{storm:#}");
    assert_eq!(phase(phases, "daemon restart")["latency"]["runtimes"], 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_small_fleet_is_measured_phase_by_phase() {
    check_phases(&bench(&[]).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_real_control_plane_may_lead_simulated_runtimes() {
    let _permit = harness::permits(1).await;
    harness::assets().await;
    check_phases(&bench(&["--control-plane=real"]).await);
}
