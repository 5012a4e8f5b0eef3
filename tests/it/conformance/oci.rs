//! Modules in OCI registries, as rows of the conformance tables: the daemon with a real registry.

use std::{
    fs,
    path::PathBuf,
    sync::{Condvar, Mutex},
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use k8s_openapi::api::events::v1::Event;
use kube::{
    Api,
    api::{DeleteParams, ListParams, Patch, PatchParams},
};
use serde_json::{Value, json};
use tidegate_core::component::{BlobDigest, Component};

use crate::{
    harness::{self, SOON, apply, eventually, holds},
    oci::{
        artifact::{Artifact, Schema, archive, gzip, tar},
        hostile::{self, answer, serve},
        server::Server,
    },
    stage::{self, QUIET, Stage, read},
};

/// A version of a module as its definition and its artifact have it.
pub(crate) fn component(module: &str, version: &str) -> Component {
    Component::new(&format!("example.org/module/{module}"), version).unwrap()
}

/// A ModuleTemplate whose objects are in a registry.
fn template(module: &str, version: &str) -> String {
    format!(
        "apiVersion: operator.kyma-project.io/v1beta2\nkind: ModuleTemplate\nmetadata: {{name: {module}-{version}, \
         namespace: kcp-system}}\nspec: {{moduleName: {module}, version: {version}, descriptor: {{}}}}\n"
    )
}

/// The objects of a module: a ConfigMap with a text, and one without.
fn objects(module: &str, text: &str) -> String {
    let map = |name: &str, text: &str| {
        format!(
            "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {module}-{name}, namespace: kyma-system}}\ndata: {{text: \
             {text}}}\n"
        )
    };
    format!("{}---\n{}", map("a", text), map("b", "same"))
}

/// A module as OCM's tools publish it: its objects in a compressed archive.
pub(crate) fn artifact(module: &str, version: &str, text: &str) -> Artifact {
    let layer = gzip(&tar(&[("raw-manifest.yaml", objects(module, text).as_bytes())]));
    Artifact::new(&component(module, version), Schema::V2, layer, "application/x-tar")
}

/// Definitions of Kyma `one` with modules in a registry, each in version 1.0.0; 1.1.0 is declared as well.
fn files(modules: &[&str]) -> Vec<(String, String)> {
    let mut files = vec![("kymas/one.yaml".to_owned(), stage::kyma("one", modules))];
    for module in modules {
        files.push((format!("modules/{module}/release.yaml"), stage::release(module, &[("regular", "1.0.0")])));
        for version in ["1.0.0", "1.1.0"] {
            files.push((format!("modules/{module}/{version}.yaml"), template(module, version)));
        }
    }
    files
}

pub(crate) async fn stage_with(modules: &[&str], more: &[&str]) -> Stage {
    let files = files(modules);
    let files: Vec<(&str, String)> = files.iter().map(|(path, text)| (path.as_str(), text.clone())).collect();
    Stage::with(1, tidegate_testbed::Extent::Controllers, &files, more).await
}

/// A registry without a password and a stage whose daemon reads from it.
pub(crate) async fn landscape(artifacts: &[Artifact], modules: &[&str]) -> (Server, Stage) {
    let server = Server::start(None, None).await;
    for artifact in artifacts {
        server.push("", artifact, None);
    }
    let host = format!("--oci-registry-host={}", server.address());
    (server, stage_with(modules, &[&host]).await)
}

/// The Manifest of a module of Kyma `one`.
async fn manifest(stage: &Stage, module: &str, what: &str, is: impl Fn(&Value) -> bool) -> Value {
    let component = component(module, "1.0.0");
    let name = tidegate_core::plan::manifest_name("one", component.name.as_str(), module);
    stage.until(what, &stage.kcp, "Manifest", "kcp-system", &name, is).await
}

fn is_ready(object: &Value) -> bool {
    object["status"]["state"] == "Ready"
}

/// A module of Kyma `one` in its status.
pub(crate) async fn module(stage: &Stage, name: &str, what: &str, is: impl Fn(&Value) -> bool) -> Value {
    let find = |kyma: &Value| kyma["status"]["modules"].as_array()?.iter().find(|one| one["name"] == name).cloned();
    let kyma = stage
        .until(what, &stage.kcp, "Kyma", "kcp-system", "one", |kyma| find(kyma).is_some_and(|module| is(&module)))
        .await;
    find(&kyma).unwrap()
}

/// Whether a module is in Error with a message that has this beginning and this part.
pub(crate) fn fails(start: &str, part: &str) -> impl Fn(&Value) -> bool {
    let (start, part) = (start.to_owned(), part.to_owned());
    move |module| {
        let message = module["message"].as_str().unwrap_or_default();
        module["state"] == "Error" && message.starts_with(&start) && message.contains(&part)
    }
}

pub(crate) async fn text_is(stage: &Stage, module: &str, text: &str) {
    let name = format!("{module}-a");
    let holds = |map: &Value| map["data"]["text"] == text;
    stage.until(&format!("{name} says {text}"), &stage.skrs[0], "ConfigMap", "kyma-system", &name, holds).await;
}

async fn annotate(stage: &Stage, kind: &str, name: &str, value: &str) {
    let sample = json!({
        "apiVersion": "operator.kyma-project.io/v1beta2", "kind": kind,
        "metadata": {"name": name, "namespace": "kcp-system"},
    });
    let api = harness::api_of(&stage.kcp, &sample).await.unwrap();
    let patch = json!({"metadata": {"annotations": {"tidegate.dev/reconcile-requested-at": value}}});
    api.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
}

/// The notes of Events about the landscape that have this part.
async fn notes(stage: &Stage, part: &str) -> Vec<String> {
    let api: Api<Event> = Api::namespaced(stage.kcp.clone(), "kcp-system");
    let events = api.list(&ListParams::default()).await.unwrap().items;
    events.into_iter().filter_map(|event| event.note).filter(|note| note.contains(part)).collect()
}

/// The Secret of a registry, with the password of `robot`.
fn secret(server: &Server, password: &str) -> Value {
    let auth = STANDARD.encode(format!("robot:{password}"));
    let config = json!({"auths": {server.host(): {"auth": auth}}}).to_string();
    json!({
        "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/dockerconfigjson",
        "metadata": {"name": "registry", "namespace": "kcp-system"},
        "data": {".dockerconfigjson": STANDARD.encode(config)},
    })
}

const NOT_FOUND: &str = "error finding ComponentDescriptor: failed to get config file for ocm artifact with \
                         name=\"example.org/module/keda\" and version=\"1.0.0\": ";

/// E30, #46, #47: the descriptor and the layer come from a private registry, below a subpath; the Manifest names both.
#[tokio::test(flavor = "multi_thread")]
async fn e30_a_manifest_names_the_private_registry_of_its_secret() {
    let server = Server::start(Some("first"), None).await;
    let keda = artifact("keda", "1.0.0", "one");
    let published = server.push("team/modules", &keda, Some("robot:first"));
    let more = ["--oci-registry-cred-secret=registry", "--modules-repository-subpath=team/modules"];
    let stage = stage_with(&["keda"], &more).await;
    apply(&stage.kcp, &secret(&server, "first")).await;
    stage.start();
    stage.kyma_in("one", "Ready").await;
    let manifest = manifest(&stage, "keda", "it is ready", is_ready).await;
    let digest = BlobDigest::of(&keda.layer).to_string();
    let expected = json!({
        "repo": format!("{}/team/modules", server.host()), "name": "example.org/module/keda", "ref": digest,
        "type": "oci-dir",
    });
    assert_eq!(manifest["spec"]["install"], json!({"name": "raw-manifest", "source": expected}));
    assert_eq!(manifest["spec"]["localizedImages"], json!(["r.example.com/a/keda:2.0.0"]));
    let annotations = &manifest["metadata"]["annotations"];
    assert_eq!(annotations["sync-oci-ref"], digest);
    assert_eq!(annotations["tidegate.dev/component-digest"], published.to_string());
    text_is(&stage, "keda", "one").await;
}

/// E38, #50: images of the same name and tag become the localized references.
#[tokio::test(flavor = "multi_thread")]
async fn e38_a_transferred_module_uses_the_localized_images() {
    let deployment = r#"apiVersion: apps/v1
kind: Deployment
metadata: {name: keda, namespace: kyma-system}
spec:
  selector: {matchLabels: {app: keda}}
  template:
    metadata: {labels: {app: keda}}
    spec:
      initContainers: [{name: init, image: "europe.example.com/kyma/keda:2.0.0"}]
      containers:
        - name: keda
          image: europe.example.com/kyma/keda:2.0.0
          env: [{name: IMAGE, value: "europe.example.com/kyma/keda:2.0.0"}, {name: OTHER, value: "x/keda:1.0.0"}]
"#;
    let keda =
        Artifact::new(&component("keda", "1.0.0"), Schema::V3, deployment.as_bytes().to_vec(), "application/x-yaml");
    let (_server, stage) = landscape(&[keda], &["keda"]).await;
    stage.start();
    let skr = &stage.skrs[0];
    let found = stage.until("it is installed", skr, "Deployment", "kyma-system", "keda", |_| true).await;
    let pod = &found["spec"]["template"]["spec"];
    let local = "r.example.com/a/keda:2.0.0";
    assert_eq!((&pod["initContainers"][0]["image"], &pod["containers"][0]["image"]), (&json!(local), &json!(local)));
    let env = &pod["containers"][0]["env"];
    assert_eq!((&env[0]["value"], &env[1]["value"]), (&json!(local), &json!("x/keda:1.0.0")));
}

/// I15: a valid layer is Ready and recorded; an invalid one is an Error with its text, and not recorded; then
/// corrected.
#[tokio::test(flavor = "multi_thread")]
async fn i15_an_invalid_layer_is_an_error_until_it_is_corrected() {
    let broken = Artifact::new(&component("bad", "1.0.0"), Schema::V2, b"kind: [".to_vec(), "");
    let good = artifact("bad", "1.1.0", "good");
    let digest = BlobDigest::of(&good.layer).to_string();
    let (_server, stage) = landscape(&[broken, good, artifact("keda", "1.0.0", "one")], &["bad", "keda"]).await;
    stage.start();
    let bad = manifest(&stage, "bad", "it fails", |manifest| manifest["status"]["state"] == "Error").await;
    let operation = bad["status"]["lastOperation"]["operation"].as_str().unwrap();
    assert!(operation.starts_with("failed to parse manifest objects: raw-manifest.yaml:1:"), "{operation}");
    assert!(bad["metadata"]["annotations"]["sync-oci-ref"].is_null(), "{bad}");
    manifest(&stage, "keda", "the other is ready", is_ready).await;
    assert_eq!(notes(&stage, "failed to parse manifest objects").await.len(), 1);

    stage.commit("modules/bad/release.yaml", &stage::release("bad", &[("regular", "1.1.0")]));
    stage.kyma_in("one", "Ready").await;
    let bad = manifest(&stage, "bad", "it is ready", is_ready).await;
    assert_eq!(bad["metadata"]["annotations"]["sync-oci-ref"], digest);
    text_is(&stage, "bad", "good").await;
}

/// I16, #49: the credentials are those of the Secret, and a rotation takes effect at once.
#[tokio::test(flavor = "multi_thread")]
async fn i16_a_rotated_secret_takes_effect_at_once() {
    let server = Server::start(Some("first"), None).await;
    server.push("", &artifact("keda", "1.0.0", "one"), Some("robot:first"));
    let stage = stage_with(&["keda"], &["--oci-registry-cred-secret=registry"]).await;
    apply(&stage.kcp, &secret(&server, "second")).await;
    stage.start();
    let rejected = "rejected the credentials: check whether they are correct and still valid";
    module(&stage, "keda", "the credentials are wrong", fails(NOT_FOUND, rejected)).await;
    assert_eq!(notes(&stage, rejected).await.len(), 1);
    // What only a change can resolve is tried again after minutes; the test waits for less.
    apply(&stage.kcp, &secret(&server, "first")).await;
    stage.kyma_in("one", "Ready").await;

    let mut two = secret(&server, "first");
    let config = json!({"auths": {"a.example.com": {"auth": "YTpi"}, "b.example.com": {"auth": "YTpi"}}}).to_string();
    two["data"][".dockerconfigjson"] = json!(STANDARD.encode(config));
    apply(&stage.kcp, &two).await;
    stage.commit("modules/keda/release.yaml", &stage::release("keda", &[("regular", "1.1.0")]));
    let one = ".dockerconfigjson must contain exactly one registry";
    module(&stage, "keda", "the Secret is invalid", fails("error finding ComponentDescriptor: ", one)).await;
    text_is(&stage, "keda", "one").await;
}

/// I18: without the Secret, what is installed stays; what must be read says so.
#[tokio::test(flavor = "multi_thread")]
async fn i18_a_missing_secret_is_said_and_changes_nothing() {
    let server = Server::start(Some("first"), None).await;
    server.push("", &artifact("keda", "1.0.0", "one"), Some("robot:first"));
    let stage = stage_with(&["keda"], &["--oci-registry-cred-secret=registry"]).await;
    stage.start();
    let missing = "no private oci registry auth secret found: kcp-system/registry";
    module(&stage, "keda", "the Secret is missing", fails(NOT_FOUND, missing)).await;
    apply(&stage.kcp, &secret(&server, "first")).await;
    stage.kyma_in("one", "Ready").await;

    // A new process on a new disk, without the Secret.
    stage.kill().await;
    stage.forget();
    let secrets: Api<k8s_openapi::api::core::v1::Secret> = Api::namespaced(stage.kcp.clone(), "kcp-system");
    secrets.delete("registry", &DeleteParams::default()).await.unwrap();
    stage.start();
    stage.rests().await;
    let ready = manifest(&stage, "keda", "it stays ready", is_ready).await;
    let name = ready["metadata"]["name"].as_str().unwrap();
    annotate(&stage, "Manifest", name, "1").await;
    manifest(&stage, "keda", "it says why it cannot be checked", |manifest| {
        manifest["status"]["state"] == "Error" && manifest["status"]["lastOperation"]["operation"] == missing
    })
    .await;
    text_is(&stage, "keda", "one").await;
    apply(&stage.kcp, &secret(&server, "first")).await;
    manifest(&stage, "keda", "it is ready again", is_ready).await;
}

/// #46, #47: a registry that is away does not hurt what is installed, also after a restart without a disk; then only
/// what is new waits for it.
#[tokio::test(flavor = "multi_thread")]
async fn row_46_a_registry_that_is_away_does_not_hurt_what_is_installed() {
    let (server, stage) = landscape(&[artifact("keda", "1.0.0", "one")], &["keda"]).await;
    stage.start();
    stage.kyma_in("one", "Ready").await;
    stage.rests().await;
    drop(server);
    for forgets in [false, true] {
        stage.kill().await;
        if forgets {
            stage.forget();
        }
        let marks = stage.marks();
        stage.start();
        // One GET of the runtime's Kyma, and nothing else.
        holds("nothing is written", QUIET, async || {
            let sent = stage.requests_since(&marks);
            let wrong: Vec<&String> = sent.iter().filter(|line| !line.contains(" get ")).collect();
            if wrong.is_empty() { Ok(()) } else { Err(format!("{wrong:?}")) }
        })
        .await;
        assert!(is_ready(&manifest(&stage, "keda", "it is there", |_| true).await));
    }
    stage.commit("modules/keda/release.yaml", &stage::release("keda", &[("regular", "1.1.0")]));
    let start = NOT_FOUND.replace("1.0.0", "1.1.0");
    let said = module(&stage, "keda", "the new version waits", fails(&start, "connection refused")).await;
    assert_eq!(said["version"], "1.0.0", "what is installed stays");
    text_is(&stage, "keda", "one").await;
    assert_eq!(notes(&stage, "connection refused").await.len(), 1);
}

/// #46: a resync cannot read the layer from a registry that is away. What is installed stays Ready.
#[tokio::test(flavor = "multi_thread")]
async fn row_46_a_resync_without_the_registry_leaves_what_is_installed_ready() {
    let server = Server::start(None, None).await;
    server.push("", &artifact("keda", "1.0.0", "one"), None);
    let host = format!("--oci-registry-host={}", server.address());
    let stage = stage_with(&["keda"], &[&host, "--resync=10s"]).await;
    stage.start();
    stage.kyma_in("one", "Ready").await;
    stage.rests().await;
    drop(server);
    stage.kill().await;
    stage.forget();
    stage.start();
    let unchecked = "the objects cannot be checked for drift while the registry of the module is away";
    eventually("an Event says so", SOON, async || match notes(&stage, unchecked).await.len() {
        0 => Err("no Event".to_owned()),
        _ => Ok(()),
    })
    .await;
    assert!(is_ready(&manifest(&stage, "keda", "it is there", |_| true).await));
    text_is(&stage, "keda", "one").await;
}

/// #46: a tag that was moved is an Event, and changes nothing until it is requested on the Kyma.
#[tokio::test(flavor = "multi_thread")]
async fn row_46_a_moved_tag_changes_nothing_until_it_is_requested() {
    let (server, stage) = landscape(&[artifact("keda", "1.0.0", "one")], &["keda"]).await;
    stage.start();
    stage.kyma_in("one", "Ready").await;
    server.push("", &artifact("keda", "1.0.0", "two"), None);
    // A new disk: the tag is resolved again.
    stage.kill().await;
    stage.forget();
    stage.start();
    let moved = "the tag of example.org/module/keda:1.0.0 was moved from sha256:";
    eventually("an Event says so", SOON, async || match notes(&stage, moved).await.len() {
        1 => Ok(()),
        count => Err(format!("{count} Events")),
    })
    .await;
    stage.rests().await;
    text_is(&stage, "keda", "one").await;
    manifest(&stage, "keda", "it is ready", is_ready).await;

    annotate(&stage, "Kyma", "one", "1").await;
    text_is(&stage, "keda", "two").await;
    stage.kyma_in("one", "Ready").await;
    assert_eq!(notes(&stage, moved).await.len(), 1);
}

/// #46: commands read the cache of a daemon, and say what is not in it; nothing seems to go.
#[tokio::test(flavor = "multi_thread")]
async fn row_46_commands_read_the_cache_and_leave_out_what_it_lacks() {
    let server = Server::start(None, None).await;
    server.push("", &artifact("keda", "1.0.0", "one"), None);
    let cache = harness::folder();
    let cached =
        [format!("--oci-registry-host={}", server.host()), format!("--module-cache={}", cache.path().display())];
    let stage = stage_with(&["keda"], &[&cached[0], &cached[1]]).await;
    stage.start();
    stage.kyma_in("one", "Ready").await;
    stage.kill().await;
    drop(server);

    let path = stage.repository.path().to_owned();
    let run = |command: &str, more: &[&str]| {
        let program = env!("CARGO_BIN_EXE_tidegate");
        let output = std::process::Command::new(program).arg(command).arg(&path).args(more).output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (output.status.code(), text(&output.stdout), text(&output.stderr))
    };
    let (code, objects, _) = run("render", &[&cached[0], &cached[1]]);
    assert_eq!((code, objects.matches("name: keda-a").count()), (Some(0), 1), "{objects}");
    stage.commit("kymas/two.yaml", &stage::kyma("two", &["keda"]));
    let (code, objects, said) = run("render", &[]);
    assert_eq!((code, objects.matches("name: keda-a").count()), (Some(0), 0), "{objects}");
    let line = "module keda is left out: example.org/module/keda:1.0.0 is not known offline";
    assert_eq!(said.matches(line).count(), 1, "one line a module: {said}");

    // The new version is not in the cache.
    let before = stage.commit("README.md", "nothing that is a definition");
    stage.commit("modules/keda/release.yaml", &stage::release("keda", &[("regular", "1.1.0")]));
    let more = [cached[0].as_str(), cached[1].as_str(), "--from", before.trim()];
    let (code, changes, said) = run("diff", &more);
    assert!(code.is_some_and(|code| [1, 5].contains(&code)), "{code:?} {changes} {said}");
    assert!(!changes.contains("keda-a"), "nothing goes: {changes}");
    assert!(changes.contains("is not known offline"), "{changes}");
}

/// #48: modules in git and in a registry are beside each other.
#[tokio::test(flavor = "multi_thread")]
async fn row_48_a_runtime_has_modules_from_git_and_from_a_registry() {
    let server = Server::start(None, None).await;
    server.push("", &artifact("keda", "1.0.0", "one"), None);
    let mut files = files(&["keda"]);
    files.extend(stage::module("mailer", "2.0.0", "mail"));
    files.push(("modules/mailer/release.yaml".to_owned(), stage::release("mailer", &[("regular", "2.0.0")])));
    files[0].1 = stage::kyma("one", &["keda", "mailer"]);
    let files: Vec<(&str, String)> = files.iter().map(|(path, text)| (path.as_str(), text.clone())).collect();
    let host = format!("--oci-registry-host={}", server.address());
    let stage = Stage::with(1, tidegate_testbed::Extent::Controllers, &files, &[&host]).await;
    stage.start();
    stage.kyma_in("one", "Ready").await;
    text_is(&stage, "keda", "one").await;
    text_is(&stage, "mailer", "mail").await;

    // A module that leaves takes its objects along.
    stage.commit("kymas/one.yaml", &stage::kyma("one", &["mailer"]));
    stage.until_gone(&stage.skrs[0], "ConfigMap", "kyma-system", "keda-a").await;
    text_is(&stage, "mailer", "mail").await;
}

/// #48: more registries are in the configuration file. Each has its own credentials and gets no other's requests, and
/// one that is away holds up no other.
#[tokio::test(flavor = "multi_thread")]
async fn row_48_components_are_read_from_the_registry_that_the_file_names() {
    let (main, team) = (Server::start(None, None).await, Server::start(Some("first"), None).await);
    main.push("", &artifact("keda", "1.0.0", "one"), None);
    main.push("", &artifact("keda", "1.1.0", "two"), None);
    team.push("modules", &artifact("mailer", "1.0.0", "mail"), Some("robot:first"));
    let folder = harness::folder();
    let file = folder.path().join("tidegate.yaml");
    let text = format!(
        "ociRegistryHost: {}\nociRegistries:\n- components: [example.org/module/mailer]\n  credSecret: registry\n  \
         subpath: modules\n",
        main.address()
    );
    fs::write(&file, text).unwrap();
    let stage = stage_with(&["keda", "mailer"], &[&format!("--config={}", file.display())]).await;
    apply(&stage.kcp, &secret(&team, "first")).await;
    stage.start();
    stage.kyma_in("one", "Ready").await;
    text_is(&stage, "keda", "one").await;
    text_is(&stage, "mailer", "mail").await;
    assert!(main.log().contains("module/keda") && !main.log().contains("module/mailer"));
    assert!(team.log().contains("module/mailer") && !team.log().contains("module/keda"));

    drop(team);
    stage.commit("modules/mailer/release.yaml", &stage::release("mailer", &[("regular", "1.1.0")]));
    module(&stage, "mailer", "its registry is away", fails("error finding ComponentDescriptor: ", "")).await;
    stage.commit("modules/keda/release.yaml", &stage::release("keda", &[("regular", "1.1.0")]));
    text_is(&stage, "keda", "two").await;
    text_is(&stage, "mailer", "mail").await;
}

/// #47, #57: a damaged file is never taken for a module that has lost objects, so nothing is pruned.
#[tokio::test(flavor = "multi_thread")]
async fn row_57_a_damaged_layer_prunes_nothing() {
    let whole = objects("keda", "one");
    let keda = Artifact::new(&component("keda", "1.0.0"), Schema::V2, whole.clone().into_bytes(), "");
    let digest = BlobDigest::of(&keda.layer);
    let server = Server::start(None, None).await;
    server.push("", &keda, None);
    let cache = harness::folder();
    let more =
        [format!("--oci-registry-host={}", server.address()), format!("--module-cache={}", cache.path().display())];
    let stage = stage_with(&["keda"], &[&more[0], &more[1]]).await;
    stage.start();
    stage.kyma_in("one", "Ready").await;
    stage.kill().await;

    // Cut where one document ends, the file is valid YAML with fewer objects.
    let path: PathBuf = cache.path().join(digest.hex());
    assert_eq!(fs::read(&path).unwrap(), whole.as_bytes());
    fs::write(&path, &whole[..whole.find("---").unwrap()]).unwrap();
    drop(server);
    stage.start();
    annotate(
        &stage,
        "Manifest",
        manifest(&stage, "keda", "it is there", |_| true).await["metadata"]["name"].as_str().unwrap(),
        "1",
    )
    .await;
    let pull = "failed to extract raw manifest from layer digest: failed to pull layer due to: ";
    manifest(&stage, "keda", "it says why it cannot be checked", |manifest| {
        manifest["status"]["lastOperation"]["operation"].as_str().is_some_and(|text| text.starts_with(pull))
    })
    .await;
    for name in ["keda-a", "keda-b"] {
        assert!(read(&stage.skrs[0], "ConfigMap", "kyma-system", name).await.is_some(), "{name} stays");
    }
}

/// Bad input: each is one sentence and one Event, and the module beside them is installed.
#[tokio::test(flavor = "multi_thread")]
async fn whatever_a_registry_sends_is_one_sentence_and_hurts_no_other_module() {
    let yaml = |module: &str, text: &str| {
        let media_type = "application/x-yaml";
        Artifact::new(&component(module, "1.0.0"), Schema::V2, text.as_bytes().to_vec(), media_type)
    };
    let layer = |module: &str, layer: Vec<u8>| {
        Artifact::new(&component(module, "1.0.0"), Schema::V2, layer, "application/x-tar")
    };
    let with = |module: &str, change: &dyn Fn(&mut Value)| {
        let component = component(module, "1.0.0");
        let mut descriptor = crate::oci::artifact::descriptor(&component, Schema::V2, &json!([]));
        change(&mut descriptor);
        let text = descriptor.to_string();
        Artifact::with_descriptor(&component, Vec::new(), tar(&[("component-descriptor.yaml", text.as_bytes())]))
    };
    let link = archive("raw-manifest.yaml", ::tar::EntryType::Symlink, b"");
    let outside = archive("../raw-manifest.yaml", ::tar::EntryType::Regular, objects("outside", "x").as_bytes());
    let whole = gzip(&tar(&[("raw-manifest.yaml", objects("cut", "x").repeat(50).as_bytes())]));
    let two = format!("{}---\n{}", objects("twice", "x"), objects("twice", "y"));
    let artifacts = vec![
        artifact("good", "1.0.0", "good"),
        artifact("denied", "1.0.0", "x"),
        artifact("endless", "1.0.0", "x"),
        artifact("changed", "1.0.0", "x"),
        layer("cut", whole[..whole.len() / 2].to_vec()),
        Artifact::new(
            &component("bomb", "1.0.0"),
            Schema::V2,
            gzip(&vec![0; 1 << 20]).repeat(33),
            "application/x-yaml",
        ),
        layer("link", link),
        layer("outside", outside),
        with("nothing", &|_| {}),
        with("homeless", &|descriptor| descriptor["component"]["repositoryContexts"] = json!([])),
        yaml("kindless", "apiVersion: v1\nmetadata: {name: a}\n"),
        yaml("twice", &two),
        // Another module has this object, and it comes first by name.
        yaml("thief", &objects("good", "stolen")),
    ];
    let expected: &[(&str, &str)] = &[
        ("denied", "requires credentials, but none are configured"),
        ("endless", "sends more than 67108864 bytes"),
        ("changed", "not the one that was requested: the registry or a proxy changed it"),
        ("cut", "is truncated or broken gzip data"),
        ("bomb", "has more than 33554432 bytes when it is inflated"),
        ("link", "is a tar archive with a link or a device; use regular files"),
        ("outside", "is a tar archive with a path that is absolute or contains `..`"),
        ("nothing", "the component descriptor has no resource `raw-manifest`"),
        ("homeless", "the component descriptor has no repository context"),
        ("kindless", "failed to parse manifest objects: raw-manifest.yaml:1:1: this object has no `kind`"),
        ("twice", "is already in this module, at raw-manifest.yaml:1"),
        ("thief", "ConfigMap kyma-system/good-a exists and is not ours"),
    ];
    let modules: Vec<String> =
        artifacts.iter().map(|one| one.component.name.as_str().rsplit('/').next().unwrap().to_owned()).collect();
    let server = hostile::plain();
    let blobs = |module: &str| {
        let artifact = artifacts.iter().zip(&modules).find(|(_, name)| *name == module).unwrap().0;
        format!("/blobs/{}", BlobDigest::of(&artifact.layer))
    };
    let (endless, changed, good) = (blobs("endless"), blobs("changed"), blobs("good"));
    let host = format!("--oci-registry-host={}", hostile::host(&server));
    let (is_good_read, changes) = (Mutex::new(false), Condvar::new());
    server.behave(move |request| {
        if request.target.ends_with(&good) {
            *is_good_read.lock().unwrap() = true;
            changes.notify_all();
        }
        // An object belongs to the module that is read first. This request has a thread of its own.
        if request.target.contains("/module/thief/") {
            let is_read = is_good_read.lock().unwrap();
            drop(changes.wait_timeout_while(is_read, harness::SOON / 3, |is_read| !*is_read).unwrap());
        }
        if request.target.contains("/module/denied/") {
            let challenge = vec![("www-authenticate", "Basic realm=\"test\"".to_owned())];
            return crate::git::server::Action::Answer(401, challenge, Vec::new());
        }
        if request.target.contains("/module/endless/") && request.target.ends_with(&endless) {
            return crate::git::server::Action::Flood("application/octet-stream", Vec::new(), vec![b' '; 1 << 16]);
        }
        if request.target.contains("/module/changed/") && request.target.ends_with(&changed) {
            return answer(b"kind: Secret\n");
        }
        let of = |one: &&Artifact| request.target.contains(&format!("/{}/", one.component.name));
        artifacts.iter().find(of).map_or_else(|| answer(b""), |one| serve(one, request))
    });
    let names: Vec<&str> = modules.iter().map(String::as_str).collect();
    let stage = stage_with(&names, &[&host]).await;
    stage.start();
    for (name, part) in expected {
        module(&stage, name, &format!("{name} fails"), fails("", part)).await;
    }
    module(&stage, "good", "the good one is ready", |module| module["state"] == "Ready").await;
    text_is(&stage, "good", "good").await;
    stage.rests().await;
    for (name, part) in expected {
        let notes = notes(&stage, &format!("module {name}: ")).await;
        let said: Vec<&String> = notes.iter().filter(|note| note.contains(part)).collect();
        assert_eq!(said.len(), 1, "{name}: {notes:#?}");
    }
}
