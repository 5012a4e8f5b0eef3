//! The pages that a new user follows, word for word: what stands in their blocks of shell is run as it stands, with
//! kubectl and this program. What needs a container runtime is not run here.

mod how_to;
mod recovery;

use std::{
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use serde_json::json;
use tidegate_testbed::{Extent, Folder};
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    process::Command,
};

use crate::{
    harness::{self, SOON, eventually},
    stage::{self, Stage, read},
    take_over::{apply_before, files_before},
};

/// The tour itself takes half a minute; a loaded machine takes longer.
const TOUR_MAX: Duration = Duration::from_secs(15 * 60);

fn page(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs").join(name);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The part of a page below a heading, up to the next one of this level.
fn section(name: &str, heading: &str) -> String {
    let page = page(name);
    let (_, rest) = page.split_once(&format!("\n{heading}\n")).unwrap_or_else(|| panic!("{name} has no {heading}"));
    let level = heading.split(' ').next().unwrap_or_default();
    rest.split(&format!("\n{level} ")).next().unwrap_or_default().to_owned()
}

/// The blocks of shell of a page, in order.
fn blocks(name: &str) -> Vec<String> {
    let blocks = blocks_of(&page(name));
    assert!(blocks.len() > 2, "{name} has blocks of shell");
    blocks
}

fn blocks_of(text: &str) -> Vec<String> {
    let (mut blocks, mut open) = (Vec::new(), None);
    for line in text.lines() {
        match &mut open {
            None if line.trim() == "```sh" => open = Some((line.len() - line.trim_start().len(), String::new())),
            None => {}
            Some((_, block)) if line.trim() == "```" => {
                blocks.push(std::mem::take(block));
                open = None;
            }
            Some((indent, block)) => {
                block.push_str(line.get(*indent..).unwrap_or_default());
                block.push('\n');
            }
        }
    }
    blocks
}

/// The only block of a page that begins like this.
fn block(page: &str, beginning: &str) -> String {
    let mut found: Vec<String> = blocks(page).into_iter().filter(|block| block.starts_with(beginning)).collect();
    let block = found.pop().unwrap_or_else(|| panic!("{page} has no block that begins with {beginning}"));
    assert!(found.is_empty(), "{page} has several");
    block
}

/// The shell of a user.
struct Shell {
    /// The programs of the user.
    bin: Folder,
    /// Where the user is.
    place: PathBuf,
    kubeconfig: Option<PathBuf>,
}

// === impl Shell ===

impl Shell {
    async fn new(place: &Path, kubeconfig: Option<PathBuf>) -> Shell {
        let bin = harness::folder();
        symlink(harness::kubectl().await, bin.path().join("kubectl")).expect("a link");
        symlink(env!("CARGO_BIN_EXE_tidegate"), bin.path().join("tidegate")).expect("a link");
        Shell { bin, place: place.to_owned(), kubeconfig }
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        let path = format!("{}:/usr/local/bin:/usr/bin:/bin", self.bin.path().display());
        command.current_dir(&self.place).env("PATH", path).stdin(Stdio::null()).kill_on_drop(true);
        for kind in ["CACHE", "CONFIG", "DATA"] {
            command.env(format!("HELM_{kind}_HOME"), self.bin.path().join("helm-files"));
        }
        for who in ["GIT_AUTHOR", "GIT_COMMITTER"] {
            command.env(format!("{who}_NAME"), "user").env(format!("{who}_EMAIL"), "user@example.org");
        }
        if let Some(kubeconfig) = &self.kubeconfig {
            command.env("KUBECONFIG", kubeconfig);
        }
        command
    }

    /// Runs a block until its first command that fails. Returns what it says, and its exit code.
    async fn run(&self, block: &str) -> (String, i32) {
        let output = self.command("sh").args(["-euc", block]).output().await.expect("a shell");
        let text = [&output.stdout[..], &output.stderr[..]].concat();
        (String::from_utf8_lossy(&text).into_owned(), output.status.code().expect("an exit code"))
    }

    /// Runs a block, each command of which must succeed.
    async fn well(&self, block: &str) -> String {
        let (text, code) = self.run(block).await;
        assert_eq!(code, 0, "{block}\n{text}");
        text
    }
}

/// How the program was installed.
#[derive(Clone, Copy, PartialEq)]
enum Installed {
    Kustomize,
    Helm,
}

/// Steps 1 to 5, where the program was applied with kustomize.
#[tokio::test(flavor = "multi_thread")]
async fn the_uninstall_page_is_followed_word_for_word() {
    uninstall(
        Installed::Kustomize,
        "kubectl apply --server-side --force-conflicts -k deploy/setup && kubectl apply -k deploy/base",
    )
    .await;
}

/// The same, where Helm has installed it.
#[tokio::test(flavor = "multi_thread")]
async fn the_uninstall_page_is_followed_word_for_word_after_helm() {
    // The servers of the test have the CRDs already.
    uninstall(
        Installed::Helm,
        "helm install tidegate-crds deploy/chart-crds -n kcp-system --take-ownership --force-conflicts
         helm install tidegate deploy/chart -n kcp-system",
    )
    .await;
}

async fn uninstall(installed: Installed, install: &str) {
    let mut files = stage::files(1);
    files.push(("watcher.yaml".to_owned(), stage::WATCHER.to_owned()));
    let files: Vec<(&str, String)> = files.iter().map(|(path, text)| (path.as_str(), text.clone())).collect();
    let stage = Stage::real(1, Extent::Controllers, &files, &[]).await;
    let folder = harness::folder();
    symlink(Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy"), folder.path().join("deploy")).expect("a link");
    let runtime = stage.landscape.skrs[0].kubeconfig().text();
    fs::write(folder.path().join("runtime.kubeconfig"), runtime).expect("a file");
    let shell = Shell::new(folder.path(), Some(stage.kubeconfig())).await;
    if installed == Installed::Helm {
        symlink(harness::helm().await, shell.bin.path().join("helm")).expect("a link");
    }
    shell.well(install).await;
    stage.start();
    stage.kyma_in("one", "Ready").await;
    stage.rests().await;
    let module = read(&stage.skrs[0], "ConfigMap", "kyma-system", "cache-a").await.expect("it is installed");

    let mut steps = blocks("uninstall.md");
    // Two of the steps have lines for each way.
    let of_helm = |block: &String| block.starts_with("helm ");
    let of_kustomize = |block: &String| {
        block.starts_with("kubectl delete -k deploy/base") || block.starts_with("kubectl delete -f deploy/setup/")
    };
    assert_eq!((steps.len(), steps.iter().filter(|one| of_helm(one)).count()), (9, 2), "{steps:#?}");
    assert_eq!(steps.iter().filter(|one| of_kustomize(one)).count(), 2, "{steps:#?}");
    steps.retain(|block| match installed {
        Installed::Kustomize => !of_helm(block),
        Installed::Helm => !of_kustomize(block),
    });
    let [sources, watchers, program, finalizers, definitions, own, agent] = &steps[..] else { panic!("{steps:#?}") };
    let said = shell.well(sources).await;
    assert!(said.contains("landscape"), "it shows the policy: {said}");
    shell.well(watchers).await;
    shell.well(program).await;
    stage.kill().await;
    assert!(read(&stage.kcp, "Kyma", "kcp-system", "one").await.is_some(), "it stays");
    shell.well(finalizers).await;
    shell.well(definitions).await;
    // Without an agent and without a pod, not all of it exists: then kubectl says so, and no more.
    for step in [own, agent] {
        let (text, _) = shell.run(step).await;
        let said = text.lines().filter(|line| !line.contains(" deleted") && !line.contains("NotFound"));
        assert_eq!(said.collect::<Vec<_>>(), [""; 0], "{step}\n{text}");
    }

    let left = shell.well("kubectl get clusterroles,clusterrolebindings,crd,leases -n kcp-system -o name").await;
    let is_ours = |line: &&str| line.contains("tidegate") || line.contains("kyma-project.io");
    assert_eq!(left.lines().filter(is_ours).collect::<Vec<_>>(), [""; 0]);
    let still = read(&stage.skrs[0], "ConfigMap", "kyma-system", "cache-a").await.expect("it stays");
    assert_eq!(still["metadata"]["resourceVersion"], module["metadata"]["resourceVersion"]);
}

/// From what comes before the switch to the way back. The pods of both programs are not there: scaling a Deployment
/// changes its number only, and the daemon is started by the test.
#[tokio::test(flavor = "multi_thread")]
async fn the_switch_of_the_take_over_page_is_followed_word_for_word() {
    const PAGE: &str = "take-over.md";
    let files = files_before(&[]);
    let files: Vec<(&str, String)> = files.iter().map(|(path, text)| (path.as_str(), text.clone())).collect();
    let stage = Stage::real(1, Extent::Controllers, &files, &[]).await;
    harness::install_crds_from(&stage.kcp, "istio-crds.yaml", &["authorizationpolicies.security.istio.io"]).await;
    apply_before(&stage, &files).await;
    surround_with_lifecycle_manager(&stage).await;
    let place = stage.repository.path();
    fs::copy(stage.kubeconfig(), place.join("kcp.kubeconfig")).expect("a file");
    let shell = Shell::new(place, Some(stage.kubeconfig())).await;
    let replicas = async |name: &str| {
        let found = read(&stage.kcp, "Deployment", "kcp-system", name).await.expect("it is there");
        found["spec"]["replicas"].as_i64().expect("a number")
    };
    prepare_the_take_over(PAGE, &stage).await;

    let said = shell.well(&block(PAGE, "tidegate run ")).await;
    assert!(said.contains("ociRegistryHost: europe-docker.pkg.dev/kyma-project/prod"), "{said}");
    shell.well(&block(PAGE, "kubectl scale deployment klm-controller-manager tidegate ")).await;
    assert_eq!((replicas("klm-controller-manager").await, replicas("tidegate").await), (0, 0));
    let said = shell.well(&block(PAGE, "tidegate adopt plan ")).await;
    assert!(said.contains("0 to resolve first") && said.contains("6 definitions marked"), "{said}");
    assert_eq!(replicas("tidegate").await, 1);
    stage.start();
    stage.kyma_in("one", "Ready").await;
    stage.rests().await;

    let service =
        async || read(&stage.kcp, "Service", "kcp-system", "klm-controller-manager-events").await.expect("it is there");
    let former = service().await;
    shell.well(&block(PAGE, "kubectl get service klm-controller-manager-events ")).await;
    let switched = service().await;
    assert_eq!(switched["spec"]["selector"], json!({"app.kubernetes.io/name": "tidegate"}));
    assert_eq!(switched["spec"]["ports"][0]["targetPort"], "events");
    // There is no pod that could become ready.
    let wait = "kubectl rollout status deployment/tidegate -n kcp-system --timeout=10m\n";
    let status = block(PAGE, wait).replace(wait, "");
    assert_eq!(status, "tidegate status\n");
    shell.well(&status).await;
    let said = shell.well(&block(PAGE, "tidegate validate\n")).await;
    assert!(said.contains("0 errors"), "{said}");
    shell.well(&block(PAGE, "tidegate adopt take --finish ")).await;
    stage.rests().await;

    // The way back.
    let installed = read(&stage.skrs[0], "ConfigMap", "kyma-system", "cache-a").await.expect("it is installed");
    let way_back = page(PAGE).split_once("\n## The way back\n").expect("a section").1.to_owned();
    let steps = blocks_of(&way_back);
    let [sources, program, release, start] = &steps[..] else { panic!("{steps:#?}") };
    let said = shell.well(sources).await;
    assert!(said.contains("landscape"), "it shows the policy: {said}");
    let checkout = place.with_file_name("checkout");
    Shell::new(&checkout, Some(stage.kubeconfig())).await.well(program).await;
    assert!(read(&stage.kcp, "Deployment", "kcp-system", "tidegate").await.is_none());
    // As its pod ends.
    stage.signal("TERM");
    stage.ends().await;
    let said = shell.well(release).await;
    assert!(said.contains("objects would be given back") && said.contains("objects given back"), "{said}");
    shell.well(start).await;
    let found = service().await;
    assert_eq!(found["spec"], former["spec"]);
    assert_eq!(replicas("klm-controller-manager").await, 1);
    let still = read(&stage.skrs[0], "ConfigMap", "kyma-system", "cache-a").await.expect("it stays");
    assert_eq!((&still["data"], &still["metadata"]["uid"]), (&installed["data"], &installed["metadata"]["uid"]));
    assert!(!still["metadata"]["managedFields"].to_string().contains("tidegate"), "{still:#}");
}

/// The Deployment of Lifecycle Manager, the Service that Watchers name, and the namespace of the gateway.
async fn surround_with_lifecycle_manager(stage: &Stage) {
    let labels = json!({"app.kubernetes.io/name": "klm-controller-manager"});
    let container = json!({"name": "main", "image": "example.org/none:1"});
    let deployment = json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "klm-controller-manager", "namespace": "kcp-system"},
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
        },
    });
    let service = json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {"name": "klm-controller-manager-events", "namespace": "kcp-system"},
        "spec": {"selector": labels, "ports": [{"name": "event", "port": 8082, "targetPort": 8082}]},
    });
    let istio = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "istio-system"}});
    for object in [istio, deployment, service] {
        harness::apply(&stage.kcp, &object).await;
    }
}

/// The steps before the switch: the backup, and the program that waits. Their user is in a checkout of this repository.
async fn prepare_the_take_over(name: &str, stage: &Stage) {
    let folder = harness::folder();
    let checkout = folder.path().join("checkout");
    fs::create_dir(&checkout).expect("a folder");
    harness::copy(&Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy"), &checkout.join("deploy"));
    let shell = Shell::new(&checkout, Some(stage.kubeconfig())).await;
    shell.well(&block(name, "mkdir -m 700 ../backup\n")).await;
    let kept = |file: &str| fs::read_to_string(checkout.join(file)).unwrap_or_else(|error| panic!("{file}: {error}"));
    for (file, object) in [
        ("../backup/kymas.yaml", "name: one\n"),
        ("../backup/moduletemplates.yaml", "name: cache-1.0.0\n"),
        ("../backup/modulereleasemetas.yaml", "name: mailer\n"),
        ("../backup/manifests.yaml", "kind: List\n"),
        ("../backup/watchers.yaml", "kind: List\n"),
        ("../backup/access.yaml", "kind: Secret\n"),
    ] {
        assert!(kept(file).contains(object), "{file}: {}", kept(file));
    }
    shell.well(&block(name, "cp -r deploy/overlays/istio-cert-manager ")).await;
    // What the page says in words.
    let file = checkout.join("deploy/overlays/take-over/kustomization.yaml");
    let mut text = fs::read_to_string(&file).expect("the copy");
    for removed in ["certificates.yaml", "gateway.yaml", "events.yaml"] {
        assert!(page(name).contains(&format!("`{removed}`")), "{removed}");
        text = text.replace(&format!("- {removed}\n"), "");
    }
    fs::write(&file, text).expect("a file");
    shell.well(&block(name, "kubectl apply --server-side -f deploy/setup/crds/")).await;
    assert!(read(&stage.kcp, "Deployment", "kcp-system", "tidegate").await.is_some());
    // For the way back.
    harness::copy(&checkout.join("deploy"), &stage.repository.path().with_file_name("checkout").join("deploy"));
}

/// The demo, and what the user does in a second terminal.
#[tokio::test(flavor = "multi_thread")]
async fn the_quickstart_is_followed_word_for_word() {
    const PAGE: &str = "quickstart.md";
    let folder = harness::folder();
    let shell = Shell::new(folder.path(), None).await;
    let start = block(PAGE, "tidegate demo --dir demo\n");
    let words: Vec<&str> = start.split_whitespace().collect();
    let mut demo = shell.command(words[0]);
    demo.args(&words[1..]).stdout(Stdio::piped());
    let mut demo = demo.spawn().expect("it starts");
    let mut lines = BufReader::new(demo.stdout.take().expect("its output")).lines();
    let toured = async {
        while let Some(line) = lines.next_line().await.expect("a line") {
            if line.contains("Two things to break next:") {
                return;
            }
        }
        panic!("it ends before its tour does");
    };
    tokio::time::timeout(TOUR_MAX, toured).await.expect("the tour ends");
    // Later output is read as well: a program whose output nobody reads would stop.
    let rest = tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });

    let second = block(PAGE, "export KUBECONFIG=demo/kcp.kubeconfig\n");
    // Before the removal, nothing is wrong.
    shell.well(&second).await;
    let environment = second.lines().next().expect("the first line");
    let status = format!("{environment}\ntidegate status\n");
    eventually("what the runtime would lose is said, and the command that confirms it", SOON * 4, async || {
        let (text, code) = shell.run(&status).await;
        let is_said = text.contains("dev") && text.contains("tidegate.dev/confirm-prune=");
        if is_said { Ok(()) } else { Err(format!("{code} {text}")) }
    })
    .await;
    shell.well(&block(PAGE, "git -C demo/repo revert ")).await;
    eventually("the wait ends", SOON * 4, async || {
        let (text, code) = shell.run(&status).await;
        if code == 0 && !text.contains("confirm-prune") { Ok(()) } else { Err(format!("{code} {text}")) }
    })
    .await;
    let pid = rustix::process::Pid::from_raw(i32::try_from(demo.id().expect("it runs")).expect("a pid"));
    rustix::process::kill_process(pid.expect("a pid"), rustix::process::Signal::INT).expect("a signal");
    tokio::time::timeout(SOON * 4, demo.wait()).await.expect("Ctrl-C ends it").expect("a status");
    rest.await.expect("its output ends");
}

/// The lines of a block that need a container runtime are left out.
fn without_containers(block: &str) -> String {
    let needs = |line: &&str| ["docker ", "kind "].iter().any(|program| line.starts_with(program));
    block.lines().filter(|line| !needs(line)).map(|line| format!("{line}\n")).collect()
}

/// A control plane on kind, with a real API server in place of kind, and a daemon that the test starts.
#[tokio::test(flavor = "multi_thread")]
async fn the_part_of_the_quickstart_on_kind_is_followed_word_for_word() {
    const PAGE: &str = "quickstart.md";
    let mut files = stage::files(0);
    files.push(("kymas/dev.yaml".to_owned(), stage::kyma("dev", &["cache", "mailer"])));
    let files: Vec<(&str, String)> = files.iter().map(|(path, text)| (path.as_str(), text.clone())).collect();
    let stage = Stage::real(1, Extent::Controllers, &files, &[]).await;
    let folder = harness::folder();
    symlink(Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy"), folder.path().join("deploy")).expect("a link");
    // As kind names the context.
    let kubeconfig = fs::read_to_string(stage.kubeconfig()).expect("a kubeconfig");
    let mut kubeconfig: serde_json::Value = serde_yaml::from_str(&kubeconfig).expect("YAML");
    kubeconfig["contexts"][0]["name"] = json!("kind-kcp");
    kubeconfig["current-context"] = json!("kind-kcp");
    fs::write(folder.path().join("kcp.yaml"), kubeconfig.to_string()).expect("a file");
    let page = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs").join(PAGE)).expect("a page");
    let source = page.split("```yaml\n").nth(1).and_then(|rest| rest.split("```").next()).expect("a GitSource");
    // The repository of this test, where the page has an example.
    let (example, url) = ("https://git.example.com/team/landscape.git", stage.repository.url());
    assert!(source.contains(example), "{source}");
    fs::write(folder.path().join("landscape.yaml"), source.replace(example, &url)).expect("a file");
    let gone = json!({
        "apiVersion": "tidegate.dev/v1alpha1", "kind": "GitSource",
        "metadata": {"name": "landscape", "namespace": "kcp-system"},
    });
    let sources = harness::api_of(&stage.kcp, &gone).await.expect("a kind that is served");
    sources.delete("landscape", &kube::api::DeleteParams::default()).await.expect("a delete");

    let shell = Shell::new(folder.path(), Some(folder.path().join("kcp.yaml"))).await;
    let install = without_containers(&block(PAGE, "docker build "));
    // The test has applied the CRDs itself, and nobody reads a watch that has no end.
    let install = install.replace("--server-side -k", "--server-side --force-conflicts -k");
    let watch = "kubectl get gitsources -n kcp-system --watch\n";
    assert!(install.ends_with(watch), "{install}");
    shell.well(&install.replace(" --watch", "")).await;
    stage.start();
    let access = "no access Secret: create one in namespace kcp-system with label \
                  operator.kyma-project.io/kyma-name=dev\n";
    assert!(page.contains(access), "the page says what the Kyma says");
    let kyma = stage.kyma_in("dev", "Error").await;
    assert!(kyma.to_string().contains(access.trim_end()), "{kyma:#}");

    fs::write(folder.path().join("dev.kubeconfig"), stage.landscape.skrs[0].kubeconfig().text()).expect("a file");
    let secret = without_containers(&block(PAGE, "kind create cluster --name dev "));
    assert_eq!(secret.lines().count(), 2, "{secret}");
    shell.well(&secret).await;
    stage.kyma_in("dev", "Ready").await;
}

/// What no test can run says why, and nothing else is left out.
#[test]
fn only_what_needs_a_container_runtime_is_not_run() {
    let others: Vec<String> = blocks("quickstart.md")
        .into_iter()
        .filter(|block| {
            !["tidegate demo --dir", "export KUBECONFIG", "git -C"].iter().any(|run| block.starts_with(run))
        })
        .collect();
    assert!(others.iter().all(|block| block.contains("kind create cluster")), "{others:#?}");
    assert_eq!(others.len(), 3, "{others:#?}");
}
