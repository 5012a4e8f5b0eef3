//! A control plane that lacks kinds, or has no landscape: nothing is ready, and each command says what to do.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Stdio,
};

use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};
use tidegate_testbed::{Folder, Repository};
use tokio::process::Command;

use crate::harness;

/// A control plane, a folder for a repository, and a file for the control plane's kubeconfig.
struct EmptyControlPlane {
    folder: Folder,
    /// Ends with the test.
    served: kube_sim::Served,
}

// === impl EmptyControlPlane ===

impl EmptyControlPlane {
    fn kubeconfig(&self) -> PathBuf {
        self.folder.path().join("kubeconfig")
    }

    fn repository(&self) -> PathBuf {
        self.folder.path().join("landscape")
    }

    /// Standard output, standard error and exit code of a command.
    async fn run(&self, arguments: &[&str]) -> (String, String, i32) {
        let kubeconfig = self.kubeconfig().display().to_string();
        self.run_alone(&[arguments, &["--kubeconfig", &kubeconfig]].concat()).await
    }

    /// The same of a command that needs no control plane.
    async fn run_alone(&self, arguments: &[&str]) -> (String, String, i32) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
        command.args(arguments);
        command.stdin(Stdio::null()).kill_on_drop(true);
        let output = command.output().await.expect("the program starts");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (text(&output.stdout), text(&output.stderr), output.status.code().expect("an exit code"))
    }

    /// `adopt plan` with the repository.
    async fn plan(&self, arguments: &[&str]) -> (String, String, i32) {
        let path = self.repository().display().to_string();
        self.run(&[&["adopt", "plan", &path], arguments].concat()).await
    }

    /// An observer that compares once, with the repository as its source.
    async fn observe(&self) -> (String, String, i32) {
        let (path, state) = (self.repository().display().to_string(), self.folder.path().join("state"));
        let state = format!("--state={}", state.display());
        self.run(&["run", "--observe", "--once", "--timeout=60s", "--allow-local-sources", "--source", &path, &state])
            .await
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.repository().join(path);
        fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        fs::write(path, text).expect("a file");
    }
}

fn crds(is_meant: impl Fn(&str) -> bool) -> Vec<Value> {
    let all = tidegate_core::api::crds().iter().filter(|crd| is_meant(&crd.spec.names.kind));
    all.map(|crd| serde_json::to_value(crd).expect("JSON")).collect()
}

fn kyma(name: &str, namespace: &str) -> Value {
    json!({
        "apiVersion": "operator.kyma-project.io/v1beta2", "kind": "Kyma",
        "metadata": {"name": name, "namespace": namespace}, "spec": {"channel": "regular"},
    })
}

fn namespace(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
}

/// A control plane without any kind of Lifecycle Manager, and a repository with one Kyma.
async fn place() -> (EmptyControlPlane, kube::Client) {
    let (place, client) = bare().await;
    harness::apply(&client, &namespace("kcp-system")).await;
    (place, client)
}

/// The same without the namespace.
async fn bare() -> (EmptyControlPlane, kube::Client) {
    let server = kube_sim::Server::new(&kube_sim::Options::default());
    let served = server.listen("kcp").await.expect("a port");
    let folder = harness::folder();
    let place = EmptyControlPlane { folder, served };
    fs::write(place.kubeconfig(), place.served.kubeconfig().text()).expect("a file");
    let source =
        "apiVersion: tidegate.dev/v1alpha1\nkind: GitSource\nmetadata: {name: landscape, namespace: kcp-system}\n";
    place.write(".tidegate/source.yaml", source);
    place.write("kymas/one.yaml", &kyma("one", "kcp-system").to_string());
    (place, server.client())
}

fn commit(path: &Path) -> Repository {
    let repository = Repository::init(path).expect("a repository");
    repository.commit("a landscape").expect("a commit");
    repository
}

#[tokio::test(flavor = "multi_thread")]
async fn without_all_kinds_no_command_is_ready_and_an_observer_ends() {
    let (place, client) = place().await;
    commit(&place.repository());
    let (text, _, code) = place.plan(&[]).await;
    assert!(code == 1 && text.contains("the control plane has no CustomResourceDefinition of Lifecycle Manager"));
    let all = "Kyma, Manifest, ModuleReleaseMeta, ModuleTemplate, Watcher";
    let advice = "apply what `tidegate crds` prints";
    let check = async |missing: &str, of_definitions: &str| {
        let not_served = format!("the control plane does not serve {missing}: ");
        for command in [&["adopt", "release", "--yes"] as &[&str], &["adopt", "take", "--finish", "--yes"]] {
            let (text, errors, code) = place.run(command).await;
            assert_eq!(code, 1, "{command:?}: {text}{errors}");
            assert!(text.starts_with(&format!("blocks  {not_served}")) && text.contains(advice), "{command:?}: {text}");
            assert!(text.ends_with("\nnothing was written: 1 finding is to resolve first\n"), "{command:?}: {text}");
        }
        for command in ["from-flux", "from-argocd"] {
            let (text, errors, code) = place.run(&["adopt", command]).await;
            assert_eq!((text.as_str(), code), ("", 5), "{command}: {errors}");
            let expected = format!("error: the control plane does not serve {of_definitions}: ");
            assert!(errors.starts_with(&expected) && errors.contains(advice), "{command}: {errors}");
        }
        let (text, errors, code) = place.observe().await;
        assert_eq!((text.as_str(), code), ("", 5), "{errors}");
        let expected = format!("error: {not_served}{advice}\n");
        assert!(errors.ends_with(&expected), "{errors}");
    };
    check(all, "Kyma, ModuleReleaseMeta, ModuleTemplate, Watcher").await;

    harness::install_crds(&client, &crds(|kind| !["Kyma", "GitSource"].contains(&kind))).await;
    check("Kyma", "Kyma").await;
    let (text, _, code) = place.plan(&[]).await;
    assert!(code == 1 && text.contains("blocks  the control plane does not serve Kyma: "), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_control_plane_lacks_is_said_by_commands_that_take_nothing_over() {
    let (place, client) = bare().await;
    let into = place.folder.path().join("export").display().to_string();
    let landscape: &[&str] = &["export", "--landscape", "-"];
    let as_git: &[&str] = &["export", "--as-git", &into];
    let named: &[&str] = &["export", "--landscape", "-", "-n", "kcp-system"];
    let lacks_namespace = async |place: &EmptyControlPlane, command: &[&str]| {
        let (text, errors, code) = place.run(command).await;
        let expected = "error: the control plane has no namespace kcp-system: select another with -n\n";
        assert_eq!((text.as_str(), errors.as_str(), code), ("", expected, 2), "{command:?}");
    };
    lacks_namespace(&place, named).await;
    lacks_namespace(&place, as_git).await;
    let path = place.repository().display().to_string();
    let served = async |expected: &str| {
        for format in ["text", "json"] {
            let (text, errors, code) = place.run(&["diff", &path, "--live", "-o", format]).await;
            assert!(code == 5 && text.contains(expected), "{format}: {code} {text}{errors}");
        }
    };
    let all = "the control plane does not serve Kyma, Manifest, ModuleReleaseMeta, ModuleTemplate, Watcher: check the \
               kubeconfig; if it is the right one, apply what `tidegate crds` prints";
    served(all).await;

    harness::apply(&client, &namespace("kcp-system")).await;
    served(all).await;
    let advice = "check the kubeconfig; if it is the right one, apply what `tidegate crds` prints";
    for (command, kinds, expected) in
        [(landscape, "gitsources, kymas, modulereleasemetas, moduletemplates", 5), (as_git, "kymas", 5)]
    {
        let (text, errors, code) = place.run(command).await;
        assert_eq!((text.as_str(), code), ("", expected), "{command:?}: {errors}");
        assert_eq!(errors, format!("error: the control plane does not serve {kinds}: {advice}\n"), "{command:?}");
    }
    assert!(!Path::new(&into).exists());
    let commands: [(&[&str], &str); 4] = [
        (&["resume", "rollout/x"], "ModuleReleaseMeta"),
        (&["reconcile", "kyma/dev"], "Kyma"),
        (&["suspend", "gitsource/x"], "GitSource"),
        (&["suspend", "x"], "GitSource, Kyma, Manifest, Watcher"),
    ];
    for (command, kinds) in commands {
        let (text, errors, code) = place.run(command).await;
        assert_eq!((text.as_str(), code), ("", 2), "{command:?}: {errors}");
        assert_eq!(errors, format!("error: the control plane does not serve {kinds}: {advice}\n"), "{command:?}");
    }
    harness::install_crds(&client, &crds(|kind| kind != "Kyma")).await;
    served("the control plane does not serve Kyma: check the kubeconfig; ").await;
    let (_, errors, code) = place.run(&["reconcile", "x"]).await;
    let expected = "error: no GitSource, Kyma, Manifest or Watcher `x` in namespace kcp-system: select another \
                    namespace with -n\n";
    assert_eq!((errors.as_str(), code), (expected, 2));

    // With all kinds and without the namespace, a landscape would look empty.
    let (place, client) = bare().await;
    harness::install_crds(&client, &crds(|_| true)).await;
    lacks_namespace(&place, landscape).await;
    let path = place.repository().display().to_string();
    let (text, errors, code) = place.run(&["diff", &path, "--live"]).await;
    assert_eq!((text.as_str(), code), ("", 2), "{errors}");
    assert!(
        errors.ends_with("error: the control plane has no namespace kcp-system: select another with -n\n"),
        "{errors}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn errors_of_files_come_before_the_name_of_the_source() {
    let (place, _client) = place().await;
    fs::remove_dir_all(place.repository().join(".tidegate")).expect("a folder");
    let unnamed = "no file names the GitSource: name it in `.tidegate/source.yaml`, or pass `--source-file`\n";
    let (text, errors, code) = place.plan(&[]).await;
    assert_eq!((text.as_str(), errors.as_str(), code), ("", format!("error: {unnamed}").as_str(), 2));
    place.write("kymas/broken.yaml", "kind: [\n");
    let (text, errors, code) = place.plan(&[]).await;
    assert!(errors.starts_with("error: the repository has 1 error:\n  kymas/broken.yaml:"), "{errors}");
    assert!(errors.ends_with(&format!("\n  {unnamed}")), "{errors}");
    assert_eq!((text.as_str(), code), ("", 2));
    // Standard input is empty.
    let (text, errors, code) = place.run(&["adopt", "plan", "-"]).await;
    let empty = "error: no definitions found: standard input is empty: check the command that writes it\n";
    assert_eq!((text.as_str(), errors.as_str(), code), ("", empty, 2));
    let (_, errors, code) = place.run(&["adopt", "plan", "--context", "nope"]).await;
    assert!(code == 2 && errors.ends_with(": nope: select another context with --context\n"), "{errors}");
}

#[tokio::test(flavor = "multi_thread")]
async fn without_the_definition_of_gitsources_nothing_is_taken_over() {
    let (place, client) = place().await;
    commit(&place.repository());
    harness::install_crds(&client, &crds(|kind| kind != "GitSource")).await;
    harness::apply(&client, &kyma("one", "kcp-system")).await;
    let blocks = "blocks  the control plane does not serve GitSource: without this kind, the daemon does nothing\n        \
                  apply deploy/setup/crds/tidegate.dev_gitsources.yaml, or what `tidegate crds` prints\n";
    let path = place.repository().display().to_string();
    for command in [&["adopt", "plan"][..], &["adopt", "take", "--yes"]] {
        let (text, errors, code) = place.run(&[command, &[path.as_str()]].concat()).await;
        assert!(code == 1 && text.contains(blocks), "{command:?}: {text}{errors}");
    }
    harness::install_crds(&client, &crds(|kind| kind == "GitSource")).await;
    let (text, errors, code) = place.plan(&[]).await;
    assert!(code == 0 && !text.contains("GitSource: "), "{text}{errors}");
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_landscape_there_is_nothing_to_take_over_and_nothing_to_give_back() {
    let (place, client) = place().await;
    harness::install_crds(&client, &crds(|_| true)).await;
    let nothing = "there is no object of Lifecycle Manager in kcp-system, so there is nothing to do";
    let (text, _, code) = place.plan(&[]).await;
    assert!(code == 1 && text.contains(&format!("blocks  {nothing}\n        check the kubeconfig, or ")), "{text}");
    let (text, _, code) = place.run(&["adopt", "release", "--yes"]).await;
    assert!(code == 1 && text.contains(nothing) && text.contains("\nnothing was written: "), "{text}");
    for command in ["from-flux", "from-argocd"] {
        let (text, errors, code) = place.run(&["adopt", command]).await;
        assert!(code == 1 && text.is_empty() && errors.starts_with(nothing), "{command}: {text}{errors}");
    }
    let into = place.folder.path().join("export").display().to_string();
    let (text, errors, code) = place.run(&["export", "--as-git", &into]).await;
    assert!(code == 1 && text.is_empty(), "{text}{errors}");
    assert!(errors.starts_with("there is nothing to export in kcp-system: "), "{errors}");
    assert!(!Path::new(&into).exists());

    // One namespace of two has a landscape.
    harness::apply(&client, &namespace("kcp")).await;
    harness::apply(&client, &kyma("one", "kcp-system")).await;
    let (text, _, code) = place.plan(&["-n", "kcp-system", "-n", "kcp"]).await;
    let note = "note    there is no object of Lifecycle Manager in kcp\n        check the spelling, or omit this -n\n";
    assert!(code == 0 && text.contains(note), "{text}");
    let (text, _, code) = place.run(&["adopt", "release", "-n", "kcp"]).await;
    assert!(code == 1 && text.contains("no object of Lifecycle Manager in kcp, so"), "{text}");

    // A check without the option says something else as well.
    place.write("kymas/other.yaml", &kyma("other", "kcp").to_string().replace("channel", "chanel"));
    let path = place.repository().display().to_string();
    let (text, _, code) = place.run_alone(&["validate", &path]).await;
    assert!(code == 3 && text.contains("error[namespace-refused]"), "{text}");
    let (text, errors, code) = place.plan(&["-n", "kcp-system", "-n", "kcp"]).await;
    assert!(code == 2 && text.is_empty(), "{text}");
    assert!(errors.starts_with("error: the repository has "), "{errors}");
    assert!(errors.contains("\n  kymas/other.yaml:1:"), "{errors}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plan_says_what_it_reads_and_what_becomes_of_objects_that_git_lacks() {
    let (place, client) = place().await;
    harness::install_crds(&client, &crds(|_| true)).await;
    let mut own = kyma("two", "kcp-system");
    own["metadata"]["labels"] = json!({"tidegate.dev/source": "kcp-system.landscape"});
    for kyma in [&kyma("one", "kcp-system"), &own, &kyma("three", "kcp-system")] {
        harness::apply(&client, kyma).await;
    }
    let kept = {
        let mut kept = kyma("five", "kcp-system");
        kept["metadata"]["labels"] = json!({"tidegate.dev/source": "kcp-system.landscape"});
        kept["metadata"]["annotations"] = json!({"tidegate.dev/prune": "disabled"});
        kept
    };
    harness::apply(&client, &kept).await;
    let (text, _, code) = place.plan(&[]).await;
    assert_eq!(code, 0, "{text}");
    for expected in [
        "belongs to this GitSource, is not in git, and stays, because it is annotated `tidegate.dev/prune: disabled`: \
         kcp-system/five\n",
        "by GitSource kcp-system/landscape, revision none (a folder without git)\n",
        "note    the definitions are in a folder without git, and the daemon reads commits only\n",
        "note    1 object of kind Kyma in the control plane belongs to this GitSource, is not in git, and is to be \
         deleted: kcp-system/two\n        `tidegate diff --live` says ",
        "note    1 object of kind Kyma in the control plane is not in git, and stays: kcp-system/three\n",
    ] {
        assert!(text.contains(expected), "{expected}: {text}");
    }
    // The file of the GitSource turns the prune off, and then the GitSource in the control plane decides.
    let file = fs::read_to_string(place.repository().join(".tidegate/source.yaml")).expect("a file");
    place.write(".tidegate/source.yaml", &format!("{file}spec: {{prune: false}}\n"));
    let (text, _, _) = place.plan(&[]).await;
    assert!(text.contains("and stays, because its GitSource says `prune: false`: kcp-system/two\n"), "{text}");
    let mut source: Value = serde_yaml::from_str(&file).expect("YAML");
    source["spec"] = json!({"url": "https://git.example.org/landscape"});
    harness::apply(&client, &source).await;
    let (text, _, _) = place.plan(&[]).await;
    assert!(text.contains("is not in git, and is to be deleted: kcp-system/two\n"), "{text}");
    place.write(".tidegate/source.yaml", &file);
    let (_, errors, code) = place.observe().await;
    assert!(code == 2 && errors.contains("is not in a git repository, and the daemon reads commits only"), "{errors}");

    let repository = Repository::init(&place.repository()).expect("a repository");
    let (text, _, _) = place.plan(&[]).await;
    assert!(text.contains(", revision none (branch main has no commit)\n"), "{text}");
    assert!(text.contains("are in a repository whose branch main has no commit, and the daemon "), "{text}");
    repository.commit("a landscape").expect("a commit");
    let branch = place.repository().join(".git/refs/heads/main");
    let commit = fs::read(&branch).expect("a branch");
    fs::write(&branch, "no id\n").expect("a file");
    let (text, _, code) = place.plan(&[]).await;
    assert!(code == 0 && text.contains(", revision none (HEAD cannot be read)\n"), "{text}");
    assert!(text.contains("        mend the repository: cannot read the repository at "), "{text}");
    fs::write(&branch, commit).expect("a file");
    let (text, _, _) = place.plan(&[]).await;
    let line = text.lines().nth(1).expect("a head");
    assert!(line.starts_with("by GitSource kcp-system/landscape, revision HEAD@sha1:"), "{line}");
    assert!(!line.contains("uncommitted") && !text.contains("reads commits only"), "{text}");
    place.write("kymas/four.yaml", &kyma("four", "kcp-system").to_string());
    let (text, _, _) = place.plan(&[]).await;
    let changed = text.lines().nth(1).expect("a head");
    assert_eq!(changed, format!("{line} with uncommitted changes"));
    assert!(text.contains("note    the definitions have changes that are not committed, and "), "{text}");
}

/// Lifecycle Manager must not start before all runtimes are given back, and this one cannot be reached.
#[tokio::test(flavor = "multi_thread")]
async fn runtimes_that_were_not_reached_come_before_lifecycle_manager() {
    let (place, client) = place().await;
    harness::install_crds(&client, &crds(|_| true)).await;
    harness::apply(&client, &kyma("one", "kcp-system")).await;
    // A new Kyma whose access Secret is still to come has nothing to give back.
    let (text, errors, code) = place.run(&["adopt", "release", "--yes"]).await;
    assert_eq!((errors.as_str(), code), ("", 0), "{text}");
    assert!(text.contains("\n1 runtime has no access Secret and was never reached: kcp-system/one\n"), "{text}");
    assert!(text.ends_with("\nnext: start Lifecycle Manager\n"), "{text}");
    // The access Secret of this one is gone.
    let reached = json!({"status": {"state": "Ready", "conditions": [{
        "type": "CRDsSync", "status": "True", "reason": "Ready", "message": "CRDs are synchronized to the SKR",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }]}});
    let kymas = harness::api_of(&client, &kyma("one", "kcp-system")).await.expect("a kind that is served");
    kymas.patch_status("one", &PatchParams::default(), &Patch::Merge(&reached)).await.expect("a status");
    let (text, errors, code) = place.run(&["adopt", "release", "--yes"]).await;
    assert_eq!(code, 5, "{text}{errors}");
    assert_eq!(errors, "warning: runtime kcp-system/one is not given back: it has no access Secret\n");
    let last = text.lines().last().expect("a line");
    assert_eq!(last, "next: run the command again, until no runtime is left; then start Lifecycle Manager");
    let (text, errors, code) = place.run(&["adopt", "release", "--yes", "--no-runtimes"]).await;
    assert_eq!(code, 5, "{text}{errors}");
    assert_eq!(errors, "warning: 1 runtime is skipped: kcp-system/one\n");
    let last = text.lines().last().expect("a line");
    assert_eq!(last, "next: run the command without --no-runtimes; then start Lifecycle Manager");
    // What to type is the whole command.
    let (text, _, _) = place.run(&["adopt", "release", "--no-runtimes"]).await;
    let last = text.lines().last().expect("a line");
    let kubeconfig = place.kubeconfig();
    let expected =
        format!("to do it: tidegate adopt release --no-runtimes --kubeconfig {} --yes", kubeconfig.display());
    assert_eq!(last, expected);
}

/// One that accepts connections and never answers.
#[tokio::test(flavor = "multi_thread")]
async fn a_runtime_that_does_not_answer_takes_no_longer_than_the_request_timeout() {
    let (place, client) = place().await;
    harness::install_crds(&client, &crds(|_| true)).await;
    harness::apply(&client, &kyma("one", "kcp-system")).await;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let port = listener.local_addr().expect("an address").port();
    let silent = tokio::spawn(async move {
        let mut held = Vec::new();
        while let Ok((connection, _)) = listener.accept().await {
            held.push(connection);
        }
    });
    let kubeconfig = fs::read_to_string(place.kubeconfig()).expect("a file");
    let mut kubeconfig: Value = serde_yaml::from_str(&kubeconfig).expect("YAML");
    kubeconfig["clusters"][0]["cluster"]["server"] = format!("https://127.0.0.1:{port}").into();
    let config = k8s_openapi::ByteString(kubeconfig.to_string().into_bytes());
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "data": {"config": config},
        "metadata": {
            "name": "one", "namespace": "kcp-system", "labels": {"operator.kyma-project.io/kyma-name": "one"},
        },
    });
    harness::apply(&client, &secret).await;
    // The default is 30 s.
    let limit = std::time::Duration::from_secs(20);
    let command = place.run(&["adopt", "release", "--request-timeout", "3s"]);
    let (text, errors, code) = tokio::time::timeout(limit, command).await.expect("it ends in time");
    assert_eq!(code, 5, "{text}{errors}");
    assert!(errors.starts_with("warning: runtime kcp-system/one is not given back: "), "{errors}");
    assert!(errors.contains("it does not answer in time"), "{errors}");
    silent.abort();
}
