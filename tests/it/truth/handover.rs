//! An object that leaves one source while another one declares it: what both comparisons say of it is what happens.

use std::path::Path;

use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::{Value, json};
use tidegate_testbed::{Folder, Repository};

use crate::{
    harness,
    stage::{self, Stage, read, scenarios},
};

scenarios! {
    an_object_that_another_source_declares_changes_hands,
    an_object_with_other_content_in_another_source_waits_for_leave,
    a_kyma_that_another_source_takes_over_without_a_module_loses_the_module_as_predicted,
    a_module_that_leaves_a_kyma_with_its_source_counts_for_the_removal_limit_of_the_other_one,
    a_module_that_moves_to_another_source_with_the_same_content_changes_nothing,
    a_version_that_another_source_takes_over_with_other_content_changes_runtimes_as_predicted,
    a_version_that_another_source_takes_over_without_an_object_waits_as_predicted,
    more_definitions_than_a_message_names_move_to_another_source_as_predicted,
    a_source_that_is_deleted_while_it_is_suspended_is_said_live_and_offline,
    a_source_that_differs_from_its_file_is_said_live_and_offline,
    a_source_that_is_read_a_moment_later_is_no_news_at_the_start_of_a_daemon,
}

/// A landscape and a second source, `other`.
struct Two {
    stage: Stage,
    other: Repository,
    folder: Folder,
}

/// A stage with a second source that declares objects of the first one.
async fn two(files: &[(String, String)]) -> Two {
    beside(stage::ready(1).await, files).await
}

/// Adds a second source to a stage.
async fn beside(stage: Stage, files: &[(String, String)]) -> Two {
    let folder = harness::folder();
    let other = Repository::init(&folder.path().join("other")).expect("a repository");
    let own = "apiVersion: tidegate.dev/v1alpha1\nkind: GitSource\nmetadata: {name: other, namespace: kcp-system}\n";
    other.write(".tidegate/source.yaml", own).expect("written");
    other.commit("nothing").expect("a commit");
    for (path, text) in files {
        other.write(path, text).expect("written");
    }
    other.commit("objects of the first source").expect("a commit");
    let mut source = read(&stage.kcp, "GitSource", "kcp-system", "landscape").await.expect("a source");
    source["metadata"] = json!({"name": "other", "namespace": "kcp-system"});
    source["spec"]["url"] = json!(other.url());
    source.as_object_mut().expect("an object").remove("status");
    harness::apply(&stage.kcp, &source).await;
    let is_held = |source: &Value| !source["status"]["withheld"].is_null();
    stage.until("the other source holds them back", &stage.kcp, "GitSource", "kcp-system", "other", is_held).await;
    Two { stage, other, folder }
}

/// As [`two`], with the Kyma of the first source in the other one: with these modules, and with leave to take it over
/// if it is so.
async fn with_kyma(modules: &[&str], adopt: bool) -> Two {
    two(&[("one.yaml".to_owned(), kyma(modules, adopt))]).await
}

fn kyma(modules: &[&str], adopt: bool) -> String {
    let text = stage::kyma("one", modules);
    match adopt {
        true => adopting(&text),
        false => text,
    }
}

/// A definition of one line of metadata, with leave to take its object over.
fn adopting(text: &str) -> String {
    text.replace("metadata: {name:", "metadata: {annotations: {tidegate.dev/adopt: \"true\"}, name:")
}

/// The files of a module.
fn mailer(text: &str) -> Vec<(String, String)> {
    let mut files = stage::module("mailer", "2.0.0", text);
    files.push(("modules/mailer/release.yaml".to_owned(), stage::release("mailer", &[("regular", "2.0.0")])));
    files
}

/// The objects of a module without its ClusterRole.
fn without_role(objects: &str) -> String {
    let documents: Vec<&str> =
        objects.split("---\n").filter(|document| !document.contains("kind: ClusterRole")).collect();
    documents.join("---\n")
}

/// One line for each difference: `kcp change Kyma one`, with `?` after an action that waits for a confirmation.
fn script(report: &Value) -> Vec<String> {
    let line = |one: &Value| {
        let text = |pointer: &str| one.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
        let waits = match text("/effect") {
            "applies" => "",
            "needs-confirmation" => "?",
            other => other,
        };
        format!("{} {}{waits} {} {}", text("/target"), text("/action"), text("/object/kind"), text("/object/name"))
    };
    report["differences"].as_array().expect("differences").iter().map(line).collect()
}

fn held(report: &Value) -> Vec<String> {
    let text = |one: &Value| {
        let part = |name: &str| one[name].as_str().unwrap_or_default().to_owned();
        format!("{}: {}; {}", part("why"), part("message"), part("hint"))
    };
    report["held"].as_array().expect("a list").iter().map(text).collect()
}

#[track_caller]
fn has(all: &[String], line: &str, what: &str) {
    assert!(all.iter().any(|one| one.contains(line)), "{what}: no `{line}` in {all:#?}");
}

impl Two {
    /// What both comparisons of a repository say, live and offline, with their exit codes.
    async fn reports(&self, repository: &Path, more: &[&str]) -> [(Value, i32); 2] {
        let landscape = self.export().await;
        let path = repository.to_str().expect("UTF-8");
        let run = async |arguments: &[&str], is_live: bool| {
            let output = match is_live {
                true => self.stage.command(arguments).await,
                false => self.stage.command_offline(arguments).await,
            };
            let report = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"));
            (report, output.status.code().expect("a code"))
        };
        let live = run(&["diff", path, "-o", "json", "--live"], true).await;
        let offline = run(&[&["diff", path, "-o", "json", "--landscape", &landscape], more].concat(), false).await;
        [live, offline]
    }

    /// Writes the landscape file.
    async fn export(&self) -> String {
        let landscape = self.folder.path().join("landscape.json");
        let landscape = landscape.to_str().expect("UTF-8").to_owned();
        assert!(self.stage.command(&["export", "--landscape", &landscape]).await.status.success());
        landscape
    }

    /// Commits, and waits until the first source has read that.
    async fn committed(&self, what: &str) {
        let commit = self.stage.repository.commit(what).expect("a commit");
        self.read("landscape", &commit).await;
    }

    async fn read(&self, source: &str, commit: &str) {
        let is_read = |source: &Value| {
            source["status"]["attemptedRevision"].as_str().is_some_and(|revision| revision.ends_with(commit))
        };
        let kcp = &self.stage.kcp;
        self.stage.until("the commit is read", kcp, "GitSource", "kcp-system", source, is_read).await;
    }

    /// What the status of the other source says.
    async fn said(&self) -> String {
        let source = read(&self.stage.kcp, "GitSource", "kcp-system", "other").await.expect("a source");
        source["status"].to_string()
    }

    async fn patch(&self, source: &str, patch: Value) {
        let sample = json!({"apiVersion": "tidegate.dev/v1alpha1", "kind": "GitSource", "metadata": {"name": source, "namespace": "kcp-system"}});
        let api = harness::api_of(&self.stage.kcp, &sample).await.expect("a kind that is served");
        api.patch(source, &PatchParams::default(), &Patch::Merge(patch)).await.expect("a patch");
    }

    async fn kyma(&self) -> Value {
        read(&self.stage.kcp, "Kyma", "kcp-system", "one").await.expect("a Kyma")
    }

    async fn is_installed(&self, config_map: &str) -> bool {
        read(&self.stage.skrs[0], "ConfigMap", "kyma-system", config_map).await.is_some()
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.stage.log()).expect("a log")
    }
}

/// Drops the Kyma from the first source. Before, both comparisons say that it stays.
async fn dropped(two: &Two) {
    two.stage.repository.remove("kymas/one.yaml").expect("removed");
    for (report, _) in two.reports(two.stage.repository.path(), &[]).await {
        assert_eq!(report["differences"], json!([]));
        let held = held(&report);
        has(&held, "kept: Kyma kcp-system/one is no longer declared, but is not deleted", "it stays");
        has(&held, "GitSource kcp-system/other declares it", "it stays");
        has(&held, "tidegate.dev/adopt", "what to do");
    }
    two.committed("the Kyma goes").await;
}

fn is_of_other(object: &Value) -> bool {
    object["metadata"]["labels"]["tidegate.dev/source"] == "kcp-system.other"
}

async fn an_object_that_another_source_declares_changes_hands() {
    let two = with_kyma(&["cache", "mailer"], true).await;
    let said = two.said().await;
    assert!(said.contains("no longer declares it, this source takes it over without deleting it"), "{said}");
    // The other source owns no Kyma, and its pull requests neither create nor delete this one.
    let [_, (report, code)] = two.reports(two.other.path(), &["--from", "HEAD~1"]).await;
    assert_eq!((script(&report), code), (vec!["kcp conflictheld Kyma one".to_owned()], 1));
    has(&held(&report), "is also declared by GitSource kcp-system/landscape, which owns it", "whose it is");
    two.other.remove("one.yaml").expect("removed");
    let [_, (report, code)] = two.reports(two.other.path(), &[]).await;
    assert_eq!((script(&report), code), (Vec::new(), 0), "{report:#}");
    two.other.write("one.yaml", &kyma(&["cache", "mailer"], true)).expect("written");
    let before = two.kyma().await;
    dropped(&two).await;
    let after = two.stage.until("it changes hands", &two.stage.kcp, "Kyma", "kcp-system", "one", is_of_other).await;
    assert_eq!(after["metadata"]["uid"], before["metadata"]["uid"]);
    assert!(!two.log().contains("with other content"), "leave to take it over is no content");
}

async fn an_object_with_other_content_in_another_source_waits_for_leave() {
    let two = with_kyma(&["mailer"], false).await;
    let said = two.said().await;
    assert!(said.contains("no longer declares it, it stays as it is, because this definition has other"), "{said}");
    dropped(&two).await;
    two.stage.rests().await;
    assert!(!is_of_other(&two.kyma().await));
    // The comparison with leave knows that the first source has dropped it.
    two.other.write("one.yaml", &kyma(&["mailer"], true)).expect("written");
    for (report, code) in two.reports(two.other.path(), &[]).await {
        let found = script(&report);
        has(&found, "kcp change Kyma one", "it changes");
        // Offline, the objects of the modules of the other repository are not known.
        has(&found, "kcp delete Manifest one-cache", "a module leaves");
        assert_eq!((code, held(&report)), (1, Vec::new()));
    }
    two.other.commit("with leave").expect("a commit");
    two.stage.until("it changes hands", &two.stage.kcp, "Kyma", "kcp-system", "one", is_of_other).await;
    two.stage.until_gone(&two.stage.skrs[0], "ConfigMap", "kyma-system", "cache-a").await;
}

async fn a_kyma_that_another_source_takes_over_without_a_module_loses_the_module_as_predicted() {
    let two = with_kyma(&["cache"], true).await;
    two.stage.repository.remove("kymas/one.yaml").expect("removed");
    for (report, code) in two.reports(two.stage.repository.path(), &[]).await {
        let found = script(&report);
        for line in ["kcp change Kyma one", "kcp delete Manifest", "runtime delete ConfigMap mailer-a"] {
            has(&found, line, "what changes");
        }
        assert!(found.iter().all(|line| !line.contains("cache")), "{found:#?}");
        has(
            &held(&report),
            "GitSource kcp-system/other takes it over with other content; module mailer leaves",
            "said",
        );
        assert_eq!(code, 1);
    }
    two.committed("the Kyma goes").await;
    two.stage.until("it changes hands", &two.stage.kcp, "Kyma", "kcp-system", "one", is_of_other).await;
    two.stage.until_gone(&two.stage.skrs[0], "ConfigMap", "kyma-system", "mailer-a").await;
    assert!(two.is_installed("cache-a").await);
    let log = two.log();
    assert!(log.contains("took over an object of another source with other content"), "{log}");
}

async fn a_module_that_leaves_a_kyma_with_its_source_counts_for_the_removal_limit_of_the_other_one() {
    let two = with_kyma(&["cache"], true).await;
    two.patch("other", json!({"spec": {"removalLimit": 0}})).await;
    two.stage.repository.remove("kymas/one.yaml").expect("removed");
    for (report, _) in two.reports(two.stage.repository.path(), &[]).await {
        let found = script(&report);
        for line in ["kcp change? Kyma one", "runtime delete? ConfigMap mailer-a"] {
            has(&found, line, "what waits");
        }
        let waits: Vec<String> = held(&report).into_iter().filter(|one| one.starts_with("unconfirmed")).collect();
        let [one] = &waits[..] else { panic!("{waits:#?}") };
        assert!(one.contains("module mailer is removed from 1 runtime, more than the removal limit of 0"), "{one}");
        assert!(one.contains("in the repository of GitSource kcp-system/other `kubectl annotate gitsource"), "{one}");
    }
    two.committed("the Kyma goes").await;
    let waits = |source: &Value| source["status"].to_string().contains("more than the removal limit of 0");
    let source = two.stage.until("it waits", &two.stage.kcp, "GitSource", "kcp-system", "other", waits).await;
    two.stage.rests().await;
    assert!(two.is_installed("mailer-a").await && !is_of_other(&two.kyma().await));
    let revision = source["status"]["attemptedRevision"].as_str().expect("a revision");
    let commit = revision.rsplit(':').next().expect("a commit");
    two.patch("other", json!({"metadata": {"annotations": {"tidegate.dev/confirm-prune": commit}}})).await;
    two.stage.until_gone(&two.stage.skrs[0], "ConfigMap", "kyma-system", "mailer-a").await;
    assert!(is_of_other(&two.kyma().await));
}

async fn a_module_that_moves_to_another_source_with_the_same_content_changes_nothing() {
    let two = two(&mailer("mail")).await;
    two.stage.repository.remove("modules/mailer").expect("removed");
    let path = two.stage.repository.path();
    for (report, code) in two.reports(path, &[]).await {
        assert_eq!((script(&report), code), (Vec::new(), 0), "{report:#}");
        assert!(!report["diagnostics"].to_string().contains("unknown-module"), "{report:#}");
        has(&held(&report), "ModuleTemplate kcp-system/mailer-2.0.0 is no longer declared, but is not deleted", "said");
    }
    let landscape = two.export().await;
    let arguments = ["validate", path.to_str().expect("UTF-8"), "--landscape", &landscape];
    let validated = two.stage.command_offline(&arguments).await;
    assert_eq!(validated.status.code(), Some(0), "{validated:?}");
    // The other source's comparison finds no other content either.
    let [_, (report, _)] = two.reports(two.other.path(), &["--from", "HEAD~1"]).await;
    assert!(!report.to_string().contains("has other content"), "{report:#}");
    two.committed("the module goes").await;
    for (kind, name) in [("ModuleTemplate", "mailer-2.0.0"), ("ModuleReleaseMeta", "mailer")] {
        two.stage.until("it changes hands", &two.stage.kcp, kind, "kcp-system", name, is_of_other).await;
    }
    two.stage.rests().await;
    let source = read(&two.stage.kcp, "GitSource", "kcp-system", "landscape").await.expect("a source");
    assert_eq!(source["status"]["withheld"], Value::Null, "{source:#}");
    assert!(two.is_installed("mailer-a").await);
}

async fn a_version_that_another_source_takes_over_with_other_content_changes_runtimes_as_predicted() {
    let two = two(&mailer("other mail")).await;
    two.stage.repository.remove("modules/mailer").expect("removed");
    two.committed("the module goes").await;
    two.stage.rests().await;
    let template = &mailer("other mail")[0];
    let text = template.1.replace("  annotations: {", "  annotations: {tidegate.dev/adopt: \"true\", ");
    two.other.write(&template.0, &text).expect("written");
    // Nothing of the module leaves, so this rule is not violated.
    let [(live, live_code), (offline, offline_code)] = two.reports(two.other.path(), &["--fail-on", "delete"]).await;
    has(&script(&live), "kcp change ModuleTemplate mailer-2.0.0", "live");
    has(&script(&live), "runtime change ConfigMap mailer-a", "live");
    has(&script(&offline), "kcp change ModuleTemplate mailer-2.0.0", "offline");
    has(&script(&offline), "kcp change Manifest", "offline");
    let unknown = offline["unknown"].to_string();
    assert!(unknown.contains("objects in another source, of module mailer"), "{unknown}");
    assert_eq!((live_code, offline_code), (1, 1));
    let objects = "modules/mailer/2.0.0/objects/objects.yaml";
    let before = two.other.read(objects).expect("a file");
    two.other.write(objects, &without_role(&before)).expect("written");
    let [(live, _), (offline, code)] = two.reports(two.other.path(), &["--fail-on", "delete"]).await;
    has(&script(&live), "runtime delete ClusterRole mailer", "live");
    has(&script(&offline), "runtime delete ClusterRole mailer", "offline");
    assert_eq!(code, 4, "{offline:#}");
    two.other.write(objects, &before).expect("written");
    two.other.commit("with leave").expect("a commit");
    let is_other = |map: &Value| map["data"]["text"] == "other mail";
    two.stage.until("it changes", &two.stage.skrs[0], "ConfigMap", "kyma-system", "mailer-a", is_other).await;
    assert!(two.log().contains("took over an object of another source with other content"));
}

async fn a_version_that_another_source_takes_over_without_an_object_waits_as_predicted() {
    let mut files = mailer("mail");
    for (path, text) in &mut files {
        *text = match path.ends_with("module-template.yaml") {
            true => text.replace("  annotations: {", "  annotations: {tidegate.dev/adopt: \"true\", "),
            false => without_role(text),
        };
    }
    let two = two(&files).await;
    two.patch("other", json!({"spec": {"removalLimit": 0}})).await;
    two.stage.repository.remove("modules/mailer").expect("removed");
    for (report, _) in two.reports(two.stage.repository.path(), &[]).await {
        has(&script(&report), "runtime delete? ClusterRole mailer", "what waits");
        let held = held(&report);
        let role = "ClusterRole.rbac.authorization.k8s.io mailer of module mailer 2.0.0";
        has(&held, &format!("takes it over with other content; {role} leaves 1 runtime"), "what leaves");
        has(&held, &format!("{role} is removed from 1 runtime, more than the removal limit of 0"), "what waits");
    }
    two.committed("the module goes").await;
    let waits = |source: &Value| source["status"].to_string().contains("more than the removal limit of 0");
    let source = two.stage.until("it waits", &two.stage.kcp, "GitSource", "kcp-system", "other", waits).await;
    two.stage.rests().await;
    let skr = &two.stage.skrs[0];
    assert!(read(skr, "ClusterRole", "", "mailer").await.is_some());
    let revision = source["status"]["attemptedRevision"].as_str().expect("a revision");
    let commit = revision.rsplit(':').next().expect("a commit");
    two.patch("other", json!({"metadata": {"annotations": {"tidegate.dev/confirm-prune": commit}}})).await;
    two.stage.until_gone(skr, "ClusterRole", "", "mailer").await;
    assert!(two.is_installed("mailer-a").await);
}

/// So many that messages name only the first of them, and lists of the status once did as well.
async fn more_definitions_than_a_message_names_move_to_another_source_as_predicted() {
    const VERSIONS: usize = 24;
    let names: Vec<String> = (0..VERSIONS).map(|number| format!("archive-3.{number}.0")).collect();
    let files: Vec<(String, String)> =
        (0..VERSIONS).flat_map(|number| stage::module("archive", &format!("3.{number}.0"), "old")).collect();
    let stage = stage::ready(1).await;
    for (path, text) in &files {
        stage.repository.write(path, text).expect("written");
    }
    stage.repository.commit("an archive").expect("a commit");
    let mut before = Vec::new();
    for name in &names {
        before.push(stage.until("it is there", &stage.kcp, "ModuleTemplate", "kcp-system", name, |_| true).await);
    }
    let two = beside(stage, &files).await;
    two.stage.repository.remove("modules/archive").expect("removed");
    for (report, code) in two.reports(two.stage.repository.path(), &["--fail-on", "delete"]).await {
        assert_eq!((script(&report), code), (Vec::new(), 0), "{report:#}");
        let held = held(&report);
        for name in &names {
            has(
                &held,
                &format!("kept: ModuleTemplate kcp-system/{name} is no longer declared, but is not deleted"),
                "kept",
            );
        }
    }
    two.committed("the archive goes").await;
    for (name, before) in names.iter().zip(before) {
        let kcp = &two.stage.kcp;
        let after = two.stage.until("it changes hands", kcp, "ModuleTemplate", "kcp-system", name, is_of_other).await;
        assert_eq!(after["metadata"]["uid"], before["metadata"]["uid"], "{name}");
    }
}

async fn a_source_that_is_deleted_while_it_is_suspended_is_said_live_and_offline() {
    let two = with_kyma(&["cache", "mailer"], true).await;
    two.patch("other", json!({"spec": {"suspend": true, "deletionPolicy": "Delete"}})).await;
    let is_suspended = |source: &Value| source["status"].to_string().contains("\"Suspended\"");
    two.stage.until("it is suspended", &two.stage.kcp, "GitSource", "kcp-system", "other", is_suspended).await;
    let sample = json!({"apiVersion": "tidegate.dev/v1alpha1", "kind": "GitSource", "metadata": {"name": "other", "namespace": "kcp-system"}});
    let sources = harness::api_of(&two.stage.kcp, &sample).await.expect("a kind that is served");
    sources.delete("other", &DeleteParams::default()).await.expect("a deletion");
    let waits = |source: &Value| source["status"].to_string().contains("resume it to delete its objects");
    two.stage.until("its end waits", &two.stage.kcp, "GitSource", "kcp-system", "other", waits).await;

    for (report, _) in two.reports(two.other.path(), &["--from", "HEAD~1"]).await {
        let said = "the GitSource kcp-system/other is suspended while it is being deleted: Tidegate applies nothing";
        has(&held(&report), said, "of its own repository");
    }
    two.stage.repository.remove("kymas/one.yaml").expect("removed");
    for (report, code) in two.reports(two.stage.repository.path(), &[]).await {
        assert_eq!((script(&report), code), (Vec::new(), 0), "{report:#}");
        let expected = "kept: Kyma kcp-system/one is no longer declared, but is not deleted: GitSource kcp-system/other \
                        declares it as well, but is suspended while it is being deleted: until it resumes and is gone, \
                        the object stays, and then it goes like others that git no longer declares; to let it end, run \
                        `tidegate resume gitsource/other -n kcp-system`";
        assert_eq!(held(&report), [expected]);
    }
    two.committed("the Kyma goes").await;
    two.stage.rests().await;
    assert!(!is_of_other(&two.kyma().await));
    let landscape = async || read(&two.stage.kcp, "GitSource", "kcp-system", "landscape").await.expect("a source");
    assert!(!landscape().await["status"].to_string().contains("confirm-prune"), "nothing waits for a confirmation");

    let resumed = two.stage.command(&["resume", "gitsource/other", "-n", "kcp-system"]).await;
    assert!(resumed.status.success(), "{resumed:?}");
    two.stage.until_gone(&two.stage.kcp, "GitSource", "kcp-system", "other").await;
    // Like others that git no longer declares: a Kyma goes once a user confirms that.
    let asks = |source: &Value| source["status"].to_string().contains("tidegate.dev/confirm-prune=");
    two.stage.until("it asks", &two.stage.kcp, "GitSource", "kcp-system", "landscape", asks).await;
    assert!(!two.kyma().await.is_null());
}

async fn a_source_that_differs_from_its_file_is_said_live_and_offline() {
    let two = with_kyma(&["cache", "mailer"], true).await;
    let own = "apiVersion: tidegate.dev/v1alpha1\nkind: GitSource\nmetadata: {name: other, namespace: kcp-system}\n\
               spec: {removalLimit: 3}\n";
    two.other.write(".tidegate/source.yaml", own).expect("written");
    two.patch("other", json!({"spec": {"removalLimit": 5}})).await;
    let landscape = two.export().await;
    for (report, code) in two.reports(two.other.path(), &[]).await {
        let found = &report["diagnostics"];
        assert!(
            found.to_string().contains("source-differs") && found.to_string().contains("spec.removalLimit"),
            "{found:#}"
        );
        assert_eq!(code, 3);
    }
    let path = two.other.path().to_str().expect("UTF-8");
    let validated = two.stage.command_offline(&["validate", path, "--landscape", &landscape]).await;
    assert_eq!(validated.status.code(), Some(3), "{validated:?}");
    two.other.commit("another limit").expect("a commit");
    let is_said = |source: &Value| {
        let conditions = source["status"]["conditions"].as_array().cloned().unwrap_or_default();
        conditions.iter().any(|one| one["type"] == "Ready" && one["reason"] == "SourceDiffers")
    };
    let source = two.stage.until("it is said", &two.stage.kcp, "GitSource", "kcp-system", "other", is_said).await;
    let conditions = source["status"]["conditions"].as_array().expect("conditions");
    let ready = conditions.iter().find(|one| one["type"] == "Ready").expect("a condition")["message"].to_string();
    assert!(ready.contains("correct one of the two: .tidegate/source.yaml:4 and the GitSource differ in"), "{ready}");
    assert!(!ready.contains('…'), "{ready}");
}

async fn a_source_that_is_read_a_moment_later_is_no_news_at_the_start_of_a_daemon() {
    let two = with_kyma(&["mailer"], false).await;
    two.stage.rests().await;
    let before = two.said().await;
    two.stage.kill().await;
    two.stage.start();
    two.stage.kyma_in("one", "Ready").await;
    two.stage.rests().await;
    assert_eq!(two.said().await, before);
    assert!(!two.log().contains("which has not been read yet"), "{}", two.log());
}
