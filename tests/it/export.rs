//! `tidegate export --as-git`: a running landscape becomes a repository that changes nothing.

use std::{collections::BTreeMap, path::Path};

use kube::{
    Client,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};
use tidegate_core::api::names::{annotation, finalizer, label};
use tidegate_testbed::Extent;

use crate::{
    conformance::oci::artifact,
    git::server::{Action, Server},
    harness, live_diff,
    oci::{
        artifact::Artifact,
        hostile::{self, serve},
    },
    stage::{self, Stage, read},
};

const VERSION: &str = "operator.kyma-project.io/v1beta2";

/// The output of a command, its errors, and its exit code.
async fn run(stage: &Stage, arguments: &[&str]) -> (String, String, i32) {
    let output = stage.command(arguments).await;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (text(&output.stdout), text(&output.stderr), output.status.code().expect("an exit code"))
}

/// Creates an object as a client that does not use server-side apply.
async fn create(client: &Client, manager: &str, object: &Value) {
    let api = harness::api_of(client, object).await.expect("a kind that is served");
    let parameters = PostParams { field_manager: Some(manager.to_owned()), ..PostParams::default() };
    api.create(&parameters, &serde_json::from_value(object.clone()).expect("an object")).await.expect("a new object");
}

async fn merge(client: &Client, object: &Value, patch: Value) {
    let api = harness::api_of(client, object).await.expect("a kind that is served");
    let name = object["metadata"]["name"].as_str().expect("a name");
    api.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.expect("a patch");
}

fn object(kind: &str, name: &str, labels: Value, spec: Value) -> Value {
    json!({
        "apiVersion": VERSION, "kind": kind, "spec": spec,
        "metadata": {"name": name, "namespace": "kcp-system", "labels": labels},
    })
}

/// A definition as `kubectl apply` and the typed clients of a pipeline write it.
fn applied(kind: &str, name: &str, spec: Value) -> Value {
    let mut object = object(kind, name, json!({"team": "modules"}), spec);
    let noted = object.to_string();
    object["metadata"]["annotations"] = json!({"kubectl.kubernetes.io/last-applied-configuration": noted});
    object
}

/// The definitions before Tidegate: two modules in a registry, a mandatory one among them, a Watcher and a Kyma.
fn definitions() -> Vec<(&'static str, Value)> {
    let mut all = Vec::new();
    for module in ["keda", "warden"] {
        let component = format!("example.org/module/{module}");
        let template = json!({
            "channel": "", "moduleName": module, "version": "1.0.0", "mandatory": false, "requiresDowntime": false,
            "descriptor": {"component": {"name": component, "version": "1.0.0"}},
            "info": {"repository": "https://example.org/r", "documentation": "https://example.org/d"},
        });
        let mut release = json!({"moduleName": module, "ocmComponentName": component, "beta": false});
        match module {
            "warden" => release["mandatory"] = json!({"version": "1.0.0"}),
            _ => release["channels"] = json!([{"channel": "regular", "version": "1.0.0"}]),
        }
        all.push(("kubectl-client-side-apply", applied("ModuleTemplate", &format!("{module}-1.0.0"), template)));
        all.push(("kubectl-client-side-apply", applied("ModuleReleaseMeta", module, release)));
    }
    let watcher = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/landscape/landscapes/dev/watcher.yaml");
    let watcher = std::fs::read_to_string(watcher).expect("a file");
    all.push(("kubectl-client-side-apply", serde_yaml::from_str(&watcher).expect("YAML")));
    let labels = json!({
        label::MANAGED_BY: "lifecycle-manager", "kyma-project.io/runtime-id": "r-1",
        "kyma-project.io/global-account-id": "ga-1", "kyma-project.io/region": "eu-1",
    });
    let mut kyma = object("Kyma", "one", labels, json!({"channel": "regular", "modules": []}));
    kyma["metadata"]["finalizers"] = json!([finalizer::KYMA]);
    kyma["metadata"]["annotations"] = json!({"skr-domain": "c-1234567.kyma.example.com"});
    all.push(("KEB", kyma));
    all
}

/// A landscape that runs, and of which git declares nothing. The daemon is stopped.
async fn landscape(more: &[&str]) -> Stage {
    let stage = Stage::with(1, Extent::Controllers, &[("README.md", "No definitions yet.\n".to_owned())], more).await;
    live_diff::gateway(&stage).await;
    for (manager, definition) in definitions() {
        create(&stage.kcp, manager, &definition).await;
    }
    stage.start();
    // Its user selects a module.
    let skr = &stage.skrs[0];
    stage.until("the runtime has a Kyma", skr, "Kyma", "kyma-system", "default", |_| true).await;
    let mut kyma = object("Kyma", "default", json!({}), json!({}));
    kyma["metadata"]["namespace"] = json!("kyma-system");
    merge(skr, &kyma, json!({"spec": {"modules": [{"name": "keda"}]}})).await;
    // Without an agent, no event reports it.
    let asked = json!({"metadata": {"annotations": {annotation::RECONCILE_REQUESTED_AT: "now"}}});
    merge(&stage.kcp, &object("Kyma", "one", json!({}), json!({})), asked).await;
    for map in ["keda-a", "warden-a"] {
        stage.until(&format!("{map} is installed"), skr, "ConfigMap", "kyma-system", map, |_| true).await;
    }
    let is_ready = |watcher: &Value| watcher["status"]["state"] == "Ready";
    stage.until("the Watcher is ready", &stage.kcp, "Watcher", "kcp-system", "kyma-dev", is_ready).await;
    let has_keda = |kyma: &Value| {
        let is_ready = |module: &Value| module["name"] == "keda" && module["state"] == "Ready";
        kyma["status"]["modules"].as_array().is_some_and(|all| all.iter().any(is_ready))
    };
    stage.until("the module is ready", &stage.kcp, "Kyma", "kcp-system", "one", has_keda).await;
    stage.rests().await;
    end(&stage).await;
    stage
}

/// The files below a folder, by path.
fn files_in(folder: &Path) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    for entry in std::fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        let name = path.file_name().expect("a name").to_string_lossy().into_owned();
        if path.is_dir() {
            found.extend(files_in(&path).into_iter().map(|(below, text)| (format!("{name}/{below}"), text)));
        } else {
            found.insert(name, std::fs::read_to_string(&path).expect("UTF-8"));
        }
    }
    found
}

/// Writes of the administrator to all clusters since `marks`, verb, resource and name.
fn writes(stage: &Stage, marks: &[u64]) -> Vec<String> {
    let all = stage.landscape.servers().zip(marks).flat_map(|(cluster, mark)| {
        let records = cluster.records_since(*mark).into_iter().filter(tidegate_testbed::Record::is_write);
        records.map(|record| format!("{} {} {} {}", cluster.name(), record.verb, record.resource, record.name))
    });
    all.collect()
}

fn parsed(text: &str) -> Value {
    serde_yaml::from_str(text).expect("YAML")
}

/// The registry has these modules, and nothing else.
fn publish(registry: &Server, artifacts: Vec<Artifact>) {
    registry.behave(move |request| {
        let of = |one: &&Artifact| request.target.contains(&format!("/{}/", one.component.name));
        artifacts.iter().find(of).map_or(Action::Answer(404, Vec::new(), Vec::new()), |one| serve(one, request))
    });
}

/// A module that git adds is in no registry: the daemon would set each Kyma to Error, so the plan blocks.
async fn lost_modules_block(stage: &Stage, registry: &Server, option: &str) {
    let names = ["modules/lost/1.0.0.yaml", "modules/lost/release.yaml"];
    for (name, (kind, object, spec)) in names.into_iter().zip([
        ("ModuleTemplate", "lost-1.0.0", json!({"moduleName": "lost", "version": "1.0.0", "descriptor": {}})),
        (
            "ModuleReleaseMeta",
            "lost",
            json!({"moduleName": "lost", "ocmComponentName": "example.org/module/lost", "mandatory": {"version": "1.0.0"}}),
        ),
    ]) {
        stage.commit(name, &self::object(kind, object, json!({}), spec).to_string());
    }
    let path = stage.repository.path().to_string_lossy().into_owned();
    let said = async |arguments: &[&str]| {
        let (text, errors, code) = run(stage, &[&["adopt", "plan", &path], arguments].concat()).await;
        (text + &errors, code)
    };
    let (text, code) = said(&[option]).await;
    let host = hostile::host(registry);
    let lost = format!(
        "blocks  example.org/module/lost:1.0.0 cannot be read from a registry that an option names, so 1 Kyma would be \
         set to Error: kcp-system/one; {host}/component-descriptors/example.org/module/lost:1.0.0 does not exist, or \
         these credentials have no access to it\n"
    );
    assert!(code == 1 && text.contains(&lost), "{text}");
    let (text, code) = said(&[option, "--no-registries"]).await;
    assert!(
        code == 0 && text.contains("note    no Manifest records 1 component, and no registry was asked: "),
        "{text}"
    );
    registry.behave(|_| Action::Answer(503, Vec::new(), Vec::new()));
    let (text, code) = said(&[option]).await;
    let unanswered = "blocks  no Manifest records 1 component, and no registry says whether it exists: ";
    assert!(code == 1 && text.contains(unanswered) && text.contains("answered with HTTP status 503"), "{text}");
    registry.behave(|_| Action::Answer(403, Vec::new(), Vec::new()));
    let unread = format!("blocks  the daemon cannot read what is installed from the registry {host}, and would set ");
    let named = "; from there are 2 installed modules: keda 1.0.0 in 1 runtime, warden 1.0.0 in 1 runtime\n";
    for command in [&["adopt", "plan"][..], &["adopt", "take", "--yes"]] {
        let (text, errors, code) = run(stage, &[command, &[option, path.as_str()]].concat()).await;
        assert!(code == 1 && text.contains(&unread) && text.contains(named), "{text}{errors}");
        assert!(text.contains("denied access (403)"), "{text}");
    }
    // A Secret names the registry with its credentials.
    let config = json!({"auths": {&host: {"username": "u", "password": "p"}}}).to_string();
    let mut secret = self::object("Secret", "login", json!({}), json!({}));
    secret["apiVersion"] = "v1".into();
    secret["type"] = "kubernetes.io/dockerconfigjson".into();
    secret["stringData"] = json!({".dockerconfigjson": config});
    secret.as_object_mut().expect("an object").remove("spec");
    let (text, code) = said(&["--oci-registry-cred-secret=login"]).await;
    assert!(
        code == 2 && text.contains("Secret kcp-system/login of --oci-registry-cred-secret does not exist"),
        "{text}"
    );
    create(&stage.kcp, "test", &secret).await;
    let artifacts = ["keda", "warden", "lost"].map(|module| artifact(module, "1.0.0", "one"));
    publish(registry, artifacts.into());
    let (text, code) = said(&["--oci-registry-cred-secret=login"]).await;
    assert!(code == 0 && text.contains("start the daemon with `--oci-registry-cred-secret=login`"), "{text}");
    for name in names {
        stage.repository.remove(name).expect("a file");
    }
    stage.repository.commit("without a lost module").expect("a commit");
    let artifacts = ["keda", "warden"].map(|module| artifact(module, "1.0.0", "one"));
    publish(registry, artifacts.into());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_running_landscape_becomes_a_repository_that_changes_nothing() {
    let artifacts = ["keda", "warden"].map(|module| artifact(module, "1.0.0", "one"));
    let server = hostile::plain();
    publish(&server, artifacts.into());
    let cache = harness::folder();
    let options = [
        format!("--oci-registry-host={}", hostile::host(&server)),
        format!("--module-cache={}", cache.path().display()),
    ];
    let stage = landscape(&[&options[0], &options[1]]).await;
    let marks = stage.marks();

    let folder = stage.repository.path().with_file_name("exported");
    let exported = folder.to_string_lossy().into_owned();
    let (text, errors, code) = run(&stage, &["export", "--as-git", &exported]).await;
    assert_eq!(code, 0, "{text}{errors}");
    let said = format!(
        "1 Kyma, 2 ModuleTemplates, 2 ModuleReleaseMetas, 1 Watcher are in {exported}; check them with \
         `tidegate validate {exported}`\n"
    );
    assert_eq!((text, errors), (said, String::new()));
    let nowhere = stage.repository.path().with_file_name("nowhere");
    let (_, errors, code) = run(&stage, &["export", "--as-git", &nowhere.to_string_lossy(), "-n", "nowhere"]).await;
    assert!(code == 2 && errors.contains("has no namespace nowhere") && !nowhere.exists(), "{code} {errors}");
    let found = files_in(&folder);
    assert_eq!(
        found.keys().map(String::as_str).collect::<Vec<_>>(),
        [
            ".tidegate/source.yaml",
            "kymas/one.yaml",
            "modules/keda/1.0.0.yaml",
            "modules/keda/release.yaml",
            "modules/warden/1.0.0.yaml",
            "modules/warden/release.yaml",
            "watchers/kyma-dev.yaml",
        ]
    );
    assert_eq!(
        parsed(&found["kymas/one.yaml"]),
        json!({
            "apiVersion": VERSION, "kind": "Kyma", "spec": {"channel": "regular"},
            "metadata": {
                "name": "one", "namespace": "kcp-system",
                "annotations": {
                    "skr-domain": "c-1234567.kyma.example.com", "tidegate.dev/modules-from": "runtime",
                },
                "labels": {
                    "kyma-project.io/runtime-id": "r-1", "kyma-project.io/global-account-id": "ga-1",
                    "kyma-project.io/region": "eu-1",
                },
            },
        })
    );
    assert_eq!(
        parsed(&found["modules/keda/1.0.0.yaml"]),
        json!({
            "apiVersion": VERSION, "kind": "ModuleTemplate",
            "metadata": {"name": "keda-1.0.0", "namespace": "kcp-system", "labels": {"team": "modules"}},
            "spec": {
                "moduleName": "keda", "version": "1.0.0", "mandatory": false, "requiresDowntime": false,
                "descriptor": {"component": {"name": "example.org/module/keda", "version": "1.0.0"}},
                "info": {"repository": "https://example.org/r", "documentation": "https://example.org/d"},
            },
        }),
        "a module in a registry stays a reference"
    );

    assert_eq!(
        parsed(&found[".tidegate/source.yaml"]),
        json!({
            "apiVersion": "tidegate.dev/v1alpha1", "kind": "GitSource",
            "metadata": {"name": "landscape", "namespace": "kcp-system"},
        })
    );

    // The export is the content of the repository of a GitSource with this name.
    stage.repository.remove("README.md").expect("a file");
    for (path, text) in &found {
        stage.repository.write(path, text).expect("a file");
    }
    stage.repository.commit("the landscape as it is").expect("a commit");
    let path = stage.repository.path().to_string_lossy().into_owned();
    let validated = stage.command_offline(&["validate", &path]).await;
    let said = [&validated.stdout[..], &validated.stderr[..]].concat();
    let said = String::from_utf8_lossy(&said).into_owned();
    assert_eq!((validated.status.code(), said.trim()), (Some(0), "0 errors, 0 warnings in 6 files"));

    let (text, errors, code) = run(&stage, &["adopt", "plan", &path]).await;
    let unnamed = "blocks  Tidegate cannot render 2 installed modules from the registry ";
    assert!(code == 1 && text.contains(unnamed) && text.contains("keda 1.0.0 in 1 runtime"), "{text}{errors}");
    // The registry of a typing error is not the one that has them.
    let wrong = ["--oci-registry-host=r.example.com/prod", "--no-registries"];
    for command in [&["adopt", "plan"][..], &["adopt", "take", "--yes"]] {
        let (text, errors, code) = run(&stage, &[command, &wrong, &[path.as_str()]].concat()).await;
        let unread = "blocks  the daemon cannot read 2 installed modules from the registry ";
        assert!(code == 1 && text.contains(unread), "{command:?} {text}{errors}");
    }
    let registry = options[0].as_str();
    let (text, errors, code) = run(&stage, &["adopt", "plan", registry, &path]).await;
    assert_eq!(code, 0, "{text}{errors}");
    let equal = "to do   6 definitions in git say what the control plane has, and get the ownership label: ";
    assert!(text.contains(equal) && !text.contains("not in git"), "{text}");
    lost_modules_block(&stage, &server, &options[0]).await;
    assert_eq!(writes(&stage, &marks), ["kcp create secrets login"], "until here, only this test writes");
    let (text, errors, code) = run(&stage, &["adopt", "take", "--yes", registry, &path]).await;
    assert!(code == 0 && text.contains("6 definitions marked"), "{text}{errors}");

    let marks = stage.marks();
    let diff = ["diff", &path, "--live", "-o", "json", &options[0], &options[1]];
    let (text, errors, code) = run(&stage, &diff).await;
    let report: Value = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}{errors}"));
    assert_eq!(code, 0, "{report:#}");
    for part in ["differences", "held", "unreached", "unknown", "diagnostics"] {
        let is_empty = report[part].as_array().is_none_or(Vec::is_empty);
        assert!(is_empty, "{part}: {:#}", report[part]);
    }
    assert_eq!(report["summary"]["runtimesCompared"], 1, "{report:#}");

    // The daemon finds what it would apply.
    stage.start();
    let is_applied = |source: &Value| source["status"]["counts"]["applied"] == 6;
    stage.until("git declares all", &stage.kcp, "GitSource", "kcp-system", "landscape", is_applied).await;
    stage.rests().await;
    let statuses = ["kcp patch gitsources.", "kcp patch kymas.", "kcp create events."];
    let mut lines = stage.requests_since(&marks);
    lines.retain(|line| ![" get ", " list ", " watch "].iter().any(|read| line.contains(read)));
    lines.retain(|line| !statuses.iter().any(|status| line.starts_with(status)));
    assert_eq!(lines, Vec::<String>::new(), "only statuses");
    let unmarked = read(&stage.kcp, "Kyma", "kcp-system", "one").await.expect("it is there");
    assert_eq!(unmarked["metadata"]["labels"][label::SOURCE], "kcp-system.landscape");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_exported_is_named_and_the_rest_is_written() {
    let files = stage::files(1);
    let files: Vec<(&str, String)> = files.iter().map(|(path, text)| (path.as_str(), text.clone())).collect();
    let stage = Stage::new(1, &files).await;
    let parent = stage.repository.path().parent().expect("a folder");
    let folder = parent.join("exported");
    let exported = folder.to_string_lossy().into_owned();
    let export = ["export", "--as-git", &exported];
    let mut kyma = object("Kyma", "leaving", json!({}), json!({"channel": "regular"}));
    kyma["metadata"]["finalizers"] = json!(["example.org/keep"]);
    create(&stage.kcp, "KEB", &kyma).await;
    let kymas = harness::api_of(&stage.kcp, &kyma).await.expect("a kind that is served");
    kymas.delete("leaving", &DeleteParams::default()).await.expect("a delete");

    // Nothing else is there.
    let (text, errors, code) = run(&stage, &export).await;
    assert_eq!(code, 0, "{text}{errors}");
    assert_eq!(errors, "warning: Kyma kcp-system/leaving is left out: it is being deleted\n");
    assert_eq!(files_in(&folder).into_keys().collect::<Vec<_>>(), [".tidegate/source.yaml"]);
    let (text, errors, code) = run(&stage, &export).await;
    assert_eq!((text.as_str(), code), ("", 2), "{errors}");
    assert!(errors.contains("is not empty: name a folder that does not exist"), "{errors}");

    // A module in git is in another repository already, and the rest is exported.
    for path in ["modules/cache/1.0.0/module-template.yaml", "modules/cache/release.yaml"] {
        let mut definition = parsed(&stage.repository.read(path).expect("a file"));
        definition["metadata"]["labels"] = json!({label::SOURCE: "kcp-system.landscape"});
        if definition["kind"] == "ModuleTemplate" {
            definition["spec"]["descriptor"] = json!({});
            definition["metadata"]["annotations"] = json!({annotation::MODULE_PATH: "modules/cache/1.0.0/objects"});
        }
        create(&stage.kcp, "tidegate", &definition).await;
    }
    create(&stage.kcp, "KEB", &object("Kyma", "other", json!({}), json!({"channel": "regular"}))).await;
    std::fs::remove_dir_all(&folder).expect("a folder");
    let (text, errors, code) = run(&stage, &export).await;
    assert!(text.starts_with("1 Kyma, 0 ModuleTemplates, 0 ModuleReleaseMetas, 0 Watchers are in "), "{text}");
    assert_eq!(code, 5, "{text}{errors}");
    assert_eq!(
        errors.lines().last().unwrap_or_default(),
        "not exported: module kcp-system/cache (ModuleReleaseMeta kcp-system/cache, ModuleTemplate \
         kcp-system/cache-1.0.0): its objects are in the repository of GitSource kcp-system/landscape, which stays \
         their source of truth; copy its folder from there"
    );
    assert_eq!(files_in(&folder).into_keys().collect::<Vec<_>>(), [".tidegate/source.yaml", "kymas/other.yaml"]);
}

/// A server with one Kyma, for an account that may list the kinds of Lifecycle Manager alone.
/// `served` are the kinds of kcp landscapes that it has.
fn answer(served: &[&str], path: &str) -> axum::response::Response {
    let status = |code: u16, reason: &str| {
        let mut status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code});
        (status["reason"], status["message"]) = (json!(reason), json!(reason));
        status
    };
    let list = |items: Value| json!({"kind": "List", "apiVersion": VERSION, "metadata": {}, "items": items});
    let kcp = "operator.kcp.io/v1alpha1";
    let (code, body) = if path == format!("/apis/{kcp}") {
        let resource =
            |kind: &&str| json!({"name": "", "singularName": "", "namespaced": true, "kind": kind, "verbs": []});
        let resources: Vec<Value> = served.iter().map(resource).collect();
        let kind = "APIResourceList";
        match served {
            [] => (404, status(404, "NotFound")),
            _ => (200, json!({"kind": kind, "apiVersion": "v1", "groupVersion": kcp, "resources": resources})),
        }
    } else if path.starts_with("/apis/operator.kyma-project.io/") && path.ends_with("/kymas") {
        (200, list(json!([object("Kyma", "one", json!({}), json!({"channel": "regular"}))])))
    } else if path.starts_with("/apis/operator.kyma-project.io/") {
        (200, list(json!([])))
    } else {
        (403, status(403, "Forbidden"))
    };
    let answer = axum::response::Response::builder().status(code).header("content-type", "application/json");
    answer.body(axum::body::Body::from(body.to_string())).expect("an answer")
}

#[tokio::test(flavor = "multi_thread")]
async fn kinds_of_kcp_landscapes_that_may_not_be_listed_are_named() {
    const NONE: &[&str] = &[];
    const SOME: &[&str] = &["RootShard", "Shard"];
    for (served, expected, code) in [
        (NONE, "", 0),
        (
            SOME,
            "not known: whether there are resources of kcp landscapes, which are not exported: cannot list rootshards \
             in namespace kcp-system, shards in namespace kcp-system; use an account that may, because a daemon with \
             --kcp-landscapes prunes those that a GitSource owns and git lacks\n",
            5,
        ),
    ] {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let server = format!("http://{}", listener.local_addr().expect("an address"));
        let router = axum::Router::new()
            .fallback(async move |request: axum::extract::Request| answer(served, request.uri().path()));
        let mut tasks = tokio::task::JoinSet::new();
        tasks.spawn(async move { axum::serve(listener, router).await.expect("a server") });
        let folder = harness::folder();
        let kubeconfig = folder.path().join("kubeconfig");
        let text = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "a",
            "clusters": [{"name": "a", "cluster": {"server": server}}], "users": [{"name": "a", "user": {}}],
            "contexts": [{"name": "a", "context": {"cluster": "a", "user": "a"}}],
        });
        std::fs::write(&kubeconfig, text.to_string()).expect("a file");
        let exported = folder.path().join("exported");
        let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_tidegate"));
        command.args(["export", "--as-git"]).arg(&exported).arg("--kubeconfig").arg(&kubeconfig).kill_on_drop(true);
        let output = command.output().await.expect("the program starts");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!((&*errors, output.status.code()), (expected, Some(code)));
        assert!(files_in(&exported).contains_key("kymas/one.yaml"));
    }
}

/// The daemon ends, and no Lease keeps others waiting.
async fn end(stage: &Stage) {
    stage.kill().await;
    let lease = json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"name": "893110f7.kyma-project.io", "namespace": "kcp-system"},
    });
    merge(&stage.kcp, &lease, json!({"spec": {"holderIdentity": ""}})).await;
}

/// What a deleted GitSource left: the modules that it had applied to Kymas are claimed by no other client. Once the
/// landscape is taken over again by its export, nothing differs.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_deleted_gitsource_has_left_is_taken_over_by_its_export() {
    let stage = stage::ready(1).await;
    stage.rests().await;
    let source = read(&stage.kcp, "GitSource", "kcp-system", "landscape").await.expect("it is there");
    let sources = harness::api_of(&stage.kcp, &source).await.expect("a kind that is served");
    sources.delete("landscape", &DeleteParams::default()).await.expect("a delete");
    stage.until_gone(&stage.kcp, "GitSource", "kcp-system", "landscape").await;
    stage.rests().await;
    end(&stage).await;

    let folder = stage.repository.path().with_file_name("exported");
    let exported = folder.to_string_lossy().into_owned();
    let (text, errors, code) = run(&stage, &["export", "--as-git", &exported]).await;
    assert_eq!(code, 5, "its modules are in git: {text}{errors}");
    for (path, text) in files_in(&folder) {
        stage.repository.write(&path, &text).expect("a file");
    }
    stage.repository.commit("the landscape as it is").expect("a commit");
    let path = stage.repository.path().to_string_lossy().into_owned();
    let (text, errors, code) = run(&stage, &["adopt", "take", "--yes", &path]).await;
    assert_eq!(code, 0, "{text}{errors}");
    let (text, errors, code) = run(&stage, &["diff", &path, "--live", "-o", "json"]).await;
    let report: Value = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}{errors}"));
    for part in ["differences", "held", "unreached", "unknown", "diagnostics"] {
        let is_empty = report[part].as_array().is_none_or(Vec::is_empty);
        assert!(is_empty, "{part}: {:#}", report[part]);
    }
    assert_eq!(code, 0, "{report:#}");

    // The repository names the source of an observer, whatever its folder is called.
    let state = harness::folder();
    let state = format!("--state={}", state.path().display());
    let observe = ["run", "--observe", "--once", "--timeout=60s", "--source", &path, &state, "--log=info"];
    let (text, errors, code) = run(&stage, &observe).await;
    assert!(text.contains("\nsource kcp-system/landscape  ") && text.contains("\nnot compared: 0\n"), "{text}{errors}");
    assert_eq!(code, 0, "{text}{errors}");
    let named = |line: &str| line.contains("a source of the command line") && line.contains("kcp-system/landscape");
    assert!(errors.lines().any(named), "{errors}");
}
