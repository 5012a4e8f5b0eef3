//! What `tidegate diff` says of changes to the example, run as a user runs it.
//!
//! The expected output of a change is `diff/<change>.txt`; `UPDATE_GOLDEN=1 cargo test --test it diff::` writes it
//! anew, to be reviewed like code. Commits are shown as `<commit>`: they have another id in every run.

use std::{
    collections::BTreeSet,
    env, fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use serde_json::Value;
use tidegate_testbed::Repository;

use crate::harness;

const EXAMPLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/landscape");
const EXPECTED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/diff");

const CACHE: &str = "modules/cache/module-release-meta.yaml";
const PROD: &str = "landscapes/prod/kyma.yaml";
const DEV: &str = "landscapes/dev/kyma.yaml";

/// The example as a repository of its own, committed.
struct Stage {
    folder: tempfile::TempDir,
    repository: Repository,
}

impl Stage {
    fn new() -> Stage {
        let folder = tempfile::tempdir().unwrap();
        let repository = Repository::init(&folder.path().join("repo")).unwrap();
        harness::copy(Path::new(EXAMPLE), repository.path());
        repository.commit("the example").unwrap();
        Stage { folder, repository }
    }

    fn write(&self, file: &str, text: &str) -> &Stage {
        self.repository.write(file, text).unwrap();
        self
    }

    fn replace(&self, file: &str, from: &str, to: &str) -> &Stage {
        self.repository.replace(file, from, to).unwrap();
        self
    }

    fn remove(&self, file: &str) -> &Stage {
        self.repository.remove(file).unwrap();
        self
    }

    fn commit(&self) -> &Stage {
        self.repository.commit("a change").unwrap();
        self
    }

    /// A file beside the repository.
    fn beside(&self, name: &str, text: &str) -> String {
        let path = self.folder.path().join(name);
        fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    }

    /// Runs git in the repository, without the user's configuration.
    fn git(&self, arguments: &[&str]) {
        let mut command = Command::new("git");
        command.current_dir(self.repository.path()).args(arguments).env("GIT_CONFIG_GLOBAL", "/dev/null");
        let output = command.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }

    fn run(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
        command.arg("diff").args(arguments).current_dir(self.repository.path()).env("NO_COLOR", "1");
        command.output().unwrap()
    }

    /// Standard output and exit code.
    #[track_caller]
    fn text(&self, arguments: &[&str], code: i32) -> String {
        let output = self.run(arguments);
        let (out, errors) = (String::from_utf8(output.stdout).unwrap(), String::from_utf8_lossy(&output.stderr));
        assert_eq!(output.status.code(), Some(code), "{out}{errors}");
        without_commits(&out)
    }

    /// The report as JSON.
    #[track_caller]
    fn json(&self, arguments: &[&str], code: i32) -> Value {
        let all: Vec<&str> = arguments.iter().chain(&["-o", "json"]).copied().collect();
        serde_json::from_str(&self.text(&all, code)).unwrap()
    }

    /// The error of a command that cannot be carried out.
    #[track_caller]
    fn error(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        assert_eq!(output.status.code(), Some(2), "{}", String::from_utf8_lossy(&output.stdout));
        String::from_utf8(output.stderr).unwrap()
    }
}

fn without_commits(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, behind)) = rest.split_once("@sha1:") {
        shown.push_str(before);
        shown.push_str("@sha1:<commit>");
        rest = &behind[40..];
    }
    shown + rest
}

/// Without the short commit of a comment.
fn without_short_commits(text: &str) -> String {
    let (before, behind) = text.split_once("`main@").unwrap();
    let (_, behind) = behind.split_at(10);
    format!("{before}`main@<commit>{behind}")
}

#[track_caller]
fn check(name: &str, text: &str) {
    harness::check_recorded(&PathBuf::from(EXPECTED).join(format!("{name}.txt")), text);
}

/// The comment for a pull request with these changes of the example, against `diff/<name>.md`.
#[track_caller]
fn check_comment(name: &str, code: i32, arguments: &[&str], change: impl FnOnce(&Stage)) {
    let stage = Stage::new();
    change(&stage);
    let text = without_short_commits(&stage.text(&[arguments, &["-o", "markdown"]].concat(), code));
    assert!(text.lines().all(|line| line.chars().count() <= 500), "{text}");
    harness::check_recorded(&PathBuf::from(EXPECTED).join(format!("{name}.md")), &text);
}

/// What happens to which kinds of objects, and how often: `change ConfigMap ×2`.
fn script(report: &Value) -> Vec<String> {
    let differences = report["differences"].as_array().unwrap();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    differences
        .iter()
        .map(|one| {
            format!(
                "{} {} {} {}",
                text(&one["target"]),
                text(&one["action"]),
                text(&one["object"]["kind"]),
                text(&one["object"]["name"])
            )
        })
        .collect()
}

#[test]
fn a_channel_that_is_bumped() {
    let stage = Stage::new();
    stage.replace(CACHE, "version: 1.0.0", "version: 1.1.0");
    check("bump", &stage.text(&[], 1));
}

#[test]
fn a_module_that_is_removed() {
    let stage = Stage::new();
    stage.replace(PROD, "    - name: mailer\n", "");
    check("module-removed", &stage.text(&[], 1));
}

/// The release of the mandatory module.
const AUDIT: &str = "modules/audit-baseline/module-release-meta.yaml";

#[test]
fn a_mandatory_version_reaches_every_runtime() {
    let stage = Stage::new();
    let folder = "modules/audit-baseline/1.0.0";
    for file in ["module-template.yaml", "objects/config.yaml", "objects/rbac.yaml"] {
        let text = fs::read_to_string(stage.repository.path().join(folder).join(file)).unwrap();
        let text = text.replace("1.0.0", "1.1.0").replace("level: metadata", "level: request");
        stage.write(&format!("modules/audit-baseline/1.1.0/{file}"), &text);
    }
    stage.replace(AUDIT, "version: 1.0.0", "version: 1.1.0");
    check("mandatory-bump", &stage.text(&[], 1));
}

#[test]
fn a_mandatory_release_that_goes_takes_its_module_from_every_runtime() {
    let stage = Stage::new();
    stage.remove(AUDIT);
    check("mandatory-removed", &stage.text(&[], 1));
}

#[test]
fn a_mandatory_release_that_gets_channels_changes_labels_where_it_is_selected() {
    let stage = Stage::new();
    let channels =
        "channels:\n    - channel: fast\n      version: 1.0.0\n    - channel: regular\n      version: 1.0.0\n";
    stage.replace(AUDIT, "mandatory:\n    version: 1.0.0\n", channels);
    stage.replace(PROD, "    - name: mailer\n", "    - name: mailer\n    - name: audit-baseline\n");
    check("mandatory-turned", &stage.text(&[], 1));
}

#[test]
fn a_mandatory_version_that_goes_back_is_refused() {
    let stage = Stage::new();
    let template = "modules/audit-baseline/1.0.0/module-template.yaml";
    let text = fs::read_to_string(stage.repository.path().join(template)).unwrap().replace("1.0.0", "0.9.0");
    stage.write("modules/audit-baseline/0.9.0/module-template.yaml", &text.replace("0.9.0/objects", "1.0.0/objects"));
    stage.replace(AUDIT, "version: 1.0.0", "version: 0.9.0");
    let report = stage.json(&[], 1);
    let held = &report["held"][0];
    assert_eq!((&held["why"], &held["runtimes"].as_array().unwrap().len()), (&Value::from("downgrade"), &2), "{held}");
    assert!(!script(&report).iter().any(|line| line.contains("Manifest")), "{:?}", script(&report));
}

#[test]
fn a_broken_template_and_its_bump_change_no_runtime() {
    let stage = Stage::new();
    stage.replace("modules/cache/1.1.0/module-template.yaml", "moduleName: cache", "moduleNam: cache");
    stage.replace(CACHE, "version: 1.0.0", "version: 1.1.0");
    check("broken", &stage.text(&[], 3));
}

#[test]
fn a_version_that_goes_back_is_refused() {
    let stage = Stage::new();
    stage.replace(CACHE, "version: 1.1.0", "version: 1.0.0");
    check("downgrade", &stage.text(&[], 1));
}

#[test]
fn an_allowed_version_goes_back() {
    let stage = Stage::new();
    stage.replace(CACHE, "version: 1.1.0", "version: 1.0.0");
    let annotation = "  namespace: kcp-system\n  annotations:\n    tidegate.dev/allow-downgrade: cache-1.0.0\n";
    stage.replace(CACHE, "  namespace: kcp-system\n", annotation);
    let report = stage.json(&[], 1);
    assert_eq!(report["held"], Value::Array(Vec::new()));
    assert!(script(&report).contains(&"runtime change Deployment cache-manager".to_owned()), "{:?}", script(&report));
}

#[test]
fn a_runtime_that_goes_waits_for_a_confirmation() {
    let stage = Stage::new();
    stage.remove("landscapes/prod/kyma.yaml");
    check("runtime-removed", &stage.text(&[], 1));
}

#[test]
fn while_errors_stand_nothing_goes() {
    let stage = Stage::new();
    stage.remove("landscapes/prod/kyma.yaml").write("broken.yaml", "a: [");
    let report = stage.json(&[], 3);
    assert_eq!(script(&report), Vec::<String>::new());
    assert_eq!(report["held"][0]["why"], "kept");
}

#[test]
fn a_template_that_is_overridden() {
    let stage = Stage::new();
    let source = stage.beside(
        "source.yaml",
        "apiVersion: tidegate.dev/v1alpha1\nkind: GitSource\nmetadata: {name: landscape, namespace: kcp-system}\n\
         spec: {url: \"https://git.example.org/a.git\", templates: templates}\n",
    );
    let namespace = "apiVersion: v1\nkind: Namespace\nmetadata:\n  labels:\n    istio-injection: enabled\n";
    stage.write("templates/skr/namespace.yaml", namespace);
    check("template", &stage.text(&["--source-file", &source], 1));
}

#[test]
fn a_dirty_tree_is_compared_as_it_lies_there() {
    let stage = Stage::new();
    stage.git(&["checkout", "-q", "-b", "work"]);
    stage.replace(DEV, "    - name: tracing-agent\n", "").commit();
    stage.replace(CACHE, "version: 1.0.0", "version: 1.1.0");
    let new = fs::read_to_string(stage.repository.path().join(DEV)).unwrap().replace("name: dev\n", "name: extra\n");
    stage.write("landscapes/dev/extra.yaml", &new);
    let all = script(&stage.json(&[], 1));
    assert!(all.contains(&"kcp create Kyma extra".to_owned()), "untracked: {all:?}");
    assert!(all.contains(&"kcp change ModuleReleaseMeta cache".to_owned()), "not committed: {all:?}");
    assert!(all.contains(&"kcp change Kyma dev".to_owned()), "committed on the branch: {all:?}");
    let committed = script(&stage.json(&["--to", "HEAD"], 1));
    assert!(!committed.contains(&"kcp create Kyma extra".to_owned()), "{committed:?}");
}

#[test]
fn without_from_the_merge_base_is_the_old_side() {
    let stage = Stage::new();
    stage.git(&["checkout", "-q", "-b", "work"]);
    stage.replace(CACHE, "version: 1.0.0", "version: 1.1.0").commit();
    stage.git(&["checkout", "-q", "main"]);
    stage.replace(PROD, "    - name: mailer\n", "").commit();
    stage.git(&["checkout", "-q", "work"]);
    let report = stage.json(&[], 1);
    let expected = "main@sha1:<commit>";
    assert_eq!(report["subject"]["from"], expected);
    let all = script(&report);
    assert!(!all.iter().any(|one| one.contains("delete Manifest")), "what main did since is not ours: {all:?}");
    assert!(script(&stage.json(&["--from", "main"], 1)).iter().any(|one| one.contains("Kyma prod")));
}

#[test]
fn nothing_differs_where_nothing_was_touched() {
    let stage = Stage::new();
    let report = stage.json(&[], 0);
    assert_eq!(script(&report), Vec::<String>::new());
    // A comment and the order of fields mean nothing.
    stage.replace(CACHE, "# The version of each channel.", "# Another word.");
    stage.replace(
        CACHE,
        "  moduleName: cache\n  ocmComponentName: example.org/module/cache\n",
        "  ocmComponentName: example.org/module/cache\n  moduleName: cache\n",
    );
    assert_eq!(script(&stage.json(&[], 0)), Vec::<String>::new());
}

#[test]
fn one_target_is_shown_alone() {
    let stage = Stage::new();
    stage.replace(CACHE, "version: 1.0.0", "version: 1.1.0");
    let kcp = script(&stage.json(&["--target", "kcp"], 1));
    assert!(kcp.iter().all(|one| one.starts_with("kcp ")) && !kcp.is_empty(), "{kcp:?}");
    let dev = stage.json(&["--target", "dev"], 1);
    assert_eq!(dev["summary"]["runtimesCompared"], 1);
    assert!(
        script(&dev).iter().all(|one| !one.contains("Manifest")),
        "dev is on the other channel: {:?}",
        script(&dev)
    );
    assert!(stage.error(&["--target", "nobody"]).contains("unknown target `nobody`"));
}

#[test]
fn no_link_of_a_work_tree_is_followed() {
    let stage = Stage::new();
    let folder = stage.folder.path().join("secrets");
    fs::create_dir(&folder).unwrap();
    fs::write(folder.join("kyma.yaml"), "apiVersion: planted-value\n").unwrap();
    symlink("/proc/self/environ", stage.repository.path().join("x.yaml")).unwrap();
    symlink(&folder, stage.repository.path().join("landscapes/linked")).unwrap();
    for format in ["text", "json", "markdown", "sarif", "github", "junit"] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
        command.args(["diff", "-o", format]).current_dir(stage.repository.path()).env("PLANTED", "planted-value");
        let output = command.output().unwrap();
        assert_eq!(output.status.code(), Some(3), "{format}");
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(!text.contains("planted-value"), "{format}: {text}");
        assert!(text.contains("Tidegate does not follow links"), "{format}: {text}");
    }
}

#[test]
fn a_crd_and_its_custom_resource_come_in_one_commit() {
    let stage = Stage::new();
    let crd = "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\n\
        metadata: {name: things.example.org}\nspec:\n  group: example.org\n  scope: Namespaced\n  \
        names: {plural: things, singular: thing, kind: Thing}\n  versions:\n    - name: v1\n      served: true\n      \
        storage: true\n      schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}\n---\n\
        apiVersion: example.org/v1\nkind: Thing\nmetadata: {name: first}\nspec: {size: 1}\n";
    stage.write("modules/cache/1.0.0/objects/thing.yaml", crd);
    let report = stage.json(&[], 1);
    let all = script(&report);
    let position = |wanted: &str| all.iter().position(|one| one == wanted);
    let crd = position("runtime create CustomResourceDefinition things.example.org");
    let thing = position("runtime create Thing first");
    assert!(crd.is_some() && crd < thing, "{all:?}");
    let thing = &report["differences"][thing.unwrap()];
    assert_eq!(thing["object"]["namespace"], "default", "its CRD says that it lives in a namespace");
}

const LANDSCAPE: &str = r#"{"apiVersion": "tidegate.dev/v1alpha1", "kind": "Landscape", "written": "WRITTEN", "kymas": [
{"namespace": "kcp-system", "name": "customer-1", "channel": "regular", "modules": [{"name": "cache"}], "installed": [{"name": "cache", "channel": "regular", "version": "1.0.0"}]},
{"namespace": "kcp-system", "name": "customer-2", "channel": "fast", "modules": [{"name": "mailer"}]}
]}"#;

#[test]
fn a_landscape_file_brings_runtimes_that_git_does_not_declare() {
    let stage = Stage::new();
    stage.replace(CACHE, "version: 1.0.0", "version: 1.1.0");
    let written = "2020-01-01T00:00:00Z";
    let file = stage.beside("landscape.json", &LANDSCAPE.replace("WRITTEN", written));
    let report = stage.json(&["--landscape", &file, "--max-age", "40000d"], 1);
    assert_eq!(report["summary"]["runtimesTotal"], 4);
    assert_eq!(report["moves"][0]["runtimes"], 2, "prod and customer-1");
    let manifests = report["differences"].as_array().unwrap().iter().find(|one| one["object"]["kind"] == "Manifest");
    assert_eq!(manifests.unwrap()["objects"], 2, "one difference, two runtimes: {report:#}");
    assert_eq!(report["diagnostics"], Value::Array(Vec::new()));
    let failed = LANDSCAPE
        .replace("WRITTEN", written)
        .replace("\"version\": \"1.0.0\"", "\"version\": \"1.0.0\", \"failed\": true");
    let file = stage.beside("landscape.json", &failed);
    let report = stage.json(&["--landscape", &file, "--max-age", "40000d"], 1);
    assert_eq!(report["diagnostics"][0]["code"], "module-failed");
    let message = "module cache is in state Error in 1 runtime, first kcp-system/customer-1: an earlier change may have \
                   been refused there, so this report may differ from what happens";
    assert_eq!(report["diagnostics"][0]["message"], message);
}

#[test]
fn commands_name_the_source_of_the_landscape_file_or_say_that_it_is_assumed() {
    let stage = only_kymas();
    let source = |names: [&str; 2]| {
        let kyma = |(name, source): (&str, &str)| {
            format!(
                "{{\"namespace\": \"kcp-system\", \"name\": \"{name}\", \"channel\": \"regular\", \
                 \"labels\": {{\"tidegate.dev/source\": \"kcp-system.{source}\"}}}}"
            )
        };
        let kymas = ["one", "two"].into_iter().zip(names).map(kyma).collect::<Vec<String>>().join(", ");
        let trees = ["c15cab3d04ec92b416507419d7124ec912699dc9", "bc164fce99cc5236a6f0986ac4931bc2ec9a7599"];
        let file = catalog(trees).replace("\"kymas\": []", &format!("\"kymas\": [{kymas}]"));
        stage.beside("landscape.json", &file)
    };
    stage.remove("one.yaml");
    let with = |names: [&str; 2]| {
        let file = source(names);
        stage.text(&["--landscape", &file, "--max-age", "40000d", "-o", "markdown"], 1)
    };
    let named = with(["fleet", "fleet"]);
    assert!(named.contains("kubectl annotate gitsource -n kcp-system fleet "), "{named}");
    assert!(!named.contains("source-assumed"), "{named}");
    let assumed = with(["fleet", "other"]);
    assert!(assumed.contains("kubectl annotate gitsource -n kcp-system landscape "), "{assumed}");
    assert!(assumed.contains("source-assumed") && assumed.contains("kcp-system/landscape"), "{assumed}");
}

#[test]
fn a_repository_with_nothing_of_the_only_source_of_the_landscape_file_is_not_taken_for_its() {
    let stage = only_kymas();
    stage.remove("one.yaml");
    let with = |kyma: &str| {
        let kymas = format!(
            "\"kymas\": [{{\"namespace\": \"kcp-system\", \"name\": \"{kyma}\", \"channel\": \"regular\", \
             \"labels\": {{\"tidegate.dev/source\": \"kcp-system.fleet\"}}}}], \
             \"sources\": [{{\"namespace\": \"kcp-system\", \"name\": \"fleet\"}}]"
        );
        let trees = ["c15cab3d04ec92b416507419d7124ec912699dc9", "bc164fce99cc5236a6f0986ac4931bc2ec9a7599"];
        let file = stage.beside("landscape.json", &catalog(trees).replace("\"kymas\": []", &kymas));
        let output = stage.run(&["--landscape", &file, "--max-age", "40000d"]);
        String::from_utf8(output.stdout).unwrap()
    };
    let its = with("one");
    assert!(its.contains("Kyma") && !its.contains("source-assumed"), "{its}");
    let another = with("three");
    assert!(another.contains("source-assumed") && another.contains("assume kcp-system/landscape"), "{another}");
}

#[test]
fn limits_and_waits_of_the_gitsource_come_from_the_landscape_file_unless_its_own_file_sets_them() {
    let stage = only_kymas();
    let trees = ["c15cab3d04ec92b416507419d7124ec912699dc9", "bc164fce99cc5236a6f0986ac4931bc2ec9a7599"];
    let with = |source: &str| {
        let source = format!("{{\"namespace\": \"kcp-system\", \"name\": \"landscape\", {source}}}");
        let file = catalog(trees).replace("\"kymas\": []", &format!("\"kymas\": [], \"sources\": [{source}]"));
        stage.beside("landscape.json", &file)
    };
    let text = |file: &str, code| stage.text(&["--landscape", file, "--max-age", "40000d"], code);
    stage.replace("one.yaml", "modules: [{name: cache}]", "modules: []");
    let at_once = text(&with("\"removalLimit\": 1"), 1);
    assert!(!at_once.contains("confirm-prune"), "{at_once}");
    let asks = text(&with("\"removalLimit\": 0"), 1);
    assert!(asks.contains("confirm-prune") && asks.contains("the removal limit of 0"), "{asks}");
    stage.write(
        ".tidegate/source.yaml",
        "apiVersion: tidegate.dev/v1alpha1\nkind: GitSource\nmetadata: {name: landscape, namespace: kcp-system}\n\
         spec: {removalLimit: 1}\n",
    );
    let own = text(&with("\"removalLimit\": 0, \"unconfirmed\": \"main@sha1:abc\""), 1);
    assert!(!own.contains("confirm-prune"), "{own}");
    let waits = "GitSource kcp-system/landscape waits for the confirmation of main@sha1:";
    assert!(own.contains("unconfirmed-before") && own.contains(waits), "{own}");
    let other = "{\"namespace\": \"kcp-system\", \"name\": \"other\", \"heldBackUnnamed\": 5}";
    let sources = format!("\"kymas\": [], \"sources\": [{other}]");
    let file = stage.beside("landscape.json", &catalog(trees).replace("\"kymas\": []", &sources));
    let unnamed = "warning[held-back-unnamed]: GitSource kcp-system/other holds back 5 more definitions";
    assert!(text(&file, 1).contains(unnamed));
    let failed = "\"kymas\": [{\"namespace\": \"kcp-system\", \"name\": \"one\", \"channel\": \"regular\", \
                  \"installed\": [{\"name\": \"cache\", \"version\": \"1.0.0\", \"failed\": true}]}]";
    let file = stage.beside("landscape.json", &catalog(trees).replace("\"kymas\": []", failed));
    assert!(!text(&file, 1).contains("module-failed"), "the commit does not change the module");
    let negative = stage.run(&["--landscape", &with("\"pruneLimit\": {\"objects\": -1}"), "--max-age", "40000d"]);
    let errors = String::from_utf8_lossy(&negative.stderr);
    assert_eq!(negative.status.code(), Some(2));
    assert!(
        errors.contains("cannot use the limits in the landscape file: spec.pruneLimit must not be negative"),
        "{errors}"
    );
}

#[test]
fn the_first_line_names_the_modules_that_come_and_go_and_their_runtimes() {
    let stage = Stage::new();
    let headline = |arguments: &[&str], code: i32| {
        let text = stage.text(arguments, code);
        text.lines().find(|line| line.starts_with("### ")).unwrap_or_else(|| panic!("{text}")).to_owned()
    };
    let before = stage.repository.read(PROD).unwrap();
    let mailer = before.lines().find(|line| line.contains("name: mailer")).unwrap_or_else(|| panic!("{before}"));
    stage.write(PROD, &before.replace(&format!("{mailer}\n"), ""));
    let goes = headline(&["--from", "HEAD", "-o", "markdown"], 1);
    assert!(goes.starts_with("### mailer ") && goes.contains(" goes from 1 of 2 runtimes; "), "{goes}");
    stage.commit();
    stage.write(PROD, &before);
    let comes = headline(&["--from", "HEAD", "-o", "markdown"], 1);
    assert!(comes.starts_with("### mailer ") && comes.contains(" comes to 1 of 2 runtimes; "), "{comes}");
}

#[test]
fn an_old_landscape_file_is_a_warning() {
    let stage = Stage::new();
    let file = stage.beside("landscape.json", &LANDSCAPE.replace("WRITTEN", "2020-01-01T00:00:00Z"));
    let output = stage.run(&["--landscape", &file, "-o", "json"]);
    assert_eq!(output.status.code(), Some(0));
    let errors = String::from_utf8(output.stderr).unwrap();
    assert!(errors.contains("was written at 2020-01-01T00:00:00Z, more than 24h"), "{errors}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["diagnostics"][0]["code"], "landscape-old");
    assert_eq!(report["subject"]["landscapeWritten"], "2020-01-01T00:00:00Z", "{report:#}");
    let output = stage.run(&["--landscape", &file, "--max-age", "1000000h", "-o", "json"]);
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    // The age of a file from the future is unknown, and an invalid version is ignored. Both cause a warning.
    let text = LANDSCAPE.replace("WRITTEN", "2999-01-01T00:00:00Z").replace("\"1.0.0\"", "\"garbage\"");
    let file = stage.beside("landscape.json", &text);
    let output = stage.run(&["--landscape", &file, "-o", "json"]);
    assert_eq!(output.status.code(), Some(0), "warnings");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let codes: Vec<&str> =
        report["diagnostics"].as_array().unwrap().iter().filter_map(|one| one["code"].as_str()).collect();
    assert_eq!(codes, ["landscape-future", "landscape-version"]);
    assert!(report["diagnostics"][1]["message"].as_str().unwrap().contains("module cache is installed in Kyma"));
}

/// What a change brings is checked against the CustomResourceDefinitions that the same change brings.
#[test]
fn a_kind_and_an_object_of_one_commit_are_checked_together() {
    let stage = Stage::new();
    let folder = "modules/cache/1.1.0/objects";
    let crd = "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {name: foos.example.org}\n\
               spec:\n  group: example.org\n  scope: Namespaced\n  names: {kind: Foo, plural: foos, listKind: FooList, singular: foo}\n  \
               versions:\n  - name: v1\n    served: true\n    storage: true\n    schema:\n      openAPIV3Schema:\n        \
               type: object\n        properties: {count: {type: integer, minimum: 3}}\n";
    let object = "---\napiVersion: example.org/v1\nkind: Foo\nmetadata: {name: a, namespace: kyma-system}\ncount: 1\n";
    stage.repository.write(&format!("{folder}/foo.yaml"), &format!("{crd}{object}")).unwrap();
    let report = stage.json(&[], 3);
    let found = report["diagnostics"].as_array().unwrap().iter().find(|one| one["code"] == "module-object").unwrap();
    assert!(found["message"].as_str().unwrap().contains("1 must be at least 3"), "{found}");
    stage.repository.remove(&format!("{folder}/foo.yaml")).unwrap();
    stage.replace("modules/cache/1.1.0/module-template.yaml", "memory: 256Mi", "memory: much");
    let report = stage.json(&[], 3);
    let found = report["diagnostics"].as_array().unwrap().iter().find(|one| one["code"] == "module-object").unwrap();
    assert!(found["message"].as_str().unwrap().contains("default resource: `spec.memory`"), "{found}");
}

/// A folder or file selects its repository, since a part refers to the rest.
#[test]
fn a_part_that_is_named_stands_for_the_whole() {
    let stage = Stage::new();
    stage.replace(CACHE, "version: 1.0.0", "version: 1.1.0");
    let whole = stage.json(&[], 1);
    for part in ["landscapes", CACHE] {
        let path = stage.repository.path().join(part);
        assert_eq!(stage.json(&[path.to_str().unwrap()], 1)["differences"], whole["differences"], "{part}");
    }
}

#[test]
fn a_suspended_source_is_said() {
    let stage = Stage::new();
    stage.replace(CACHE, "version: 1.0.0", "version: 1.1.0");
    let text = LANDSCAPE.replace("\"kymas\"", "\"suspended\": [\"kcp-system/landscape\"], \"kymas\"");
    let file = stage.beside("landscape.json", &text.replace("WRITTEN", "2020-01-01T00:00:00Z"));
    let source = stage.beside(
        "source.yaml",
        "apiVersion: tidegate.dev/v1alpha1\nkind: GitSource\nmetadata: {name: landscape, namespace: kcp-system}\n\
         spec: {url: https://example.org/x.git, suspend: true}\n",
    );
    for (arguments, hint) in [
        (["--landscape", &file], "run `tidegate resume` to resume it"),
        (["--source-file", &source], "remove `spec.suspend` from the GitSource in git to resume it"),
    ] {
        let report = stage.json(&arguments, 1);
        assert_eq!(report["held"][0]["why"], "suspended", "{:#}", report["held"]);
        assert_eq!(report["held"][0]["hint"], hint, "{:#}", report["held"]);
        let differences = report["differences"].as_array().unwrap();
        assert!(differences.iter().all(|one| one["effect"] == "held"), "{differences:#?}");
    }
}

#[test]
fn a_bad_landscape_file_is_one_sentence_with_its_line() {
    let stage = Stage::new();
    let file = stage.beside("landscape.json", &LANDSCAPE.replace("\"installed\"", "\"instaled\""));
    let error = stage.error(&["--landscape", &file]);
    assert!(error.contains("landscape.json:1:"), "{error}");
    let file =
        stage.beside("landscape.yaml", "apiVersion: tidegate.dev/v1alpha1\nkind: Landscape\nwritten: now\nkymas: []\n");
    let error = stage.error(&["--landscape", &file]);
    assert!(error.contains("landscape.yaml:1: `written` is not an RFC 3339 timestamp"), "{error}");
    assert_eq!(error.lines().count(), 1, "{error}");
}

#[test]
fn the_runtime_decides_where_it_is_told_to() {
    let stage = Stage::new();
    stage.replace(PROD, "  annotations:\n", "  annotations:\n    tidegate.dev/modules-from: runtime\n").commit();
    stage.replace(PROD, "    - name: mailer\n", "");
    let report = stage.json(&["--from", "HEAD"], 1);
    assert_eq!(script(&report), ["kcp change Kyma prod"]);
    assert_eq!(report["held"][0]["why"], "decided-by-runtime");
    let unknown = report["unknown"].as_array().unwrap();
    assert!(
        unknown.iter().any(|one| one["value"] == "module lists of runtimes that select their own modules"),
        "{unknown:?}"
    );
}

/// Adding a Secret must not change what rules see.
#[test]
fn no_secret_switches_a_rule_off() {
    let stage = Stage::new();
    let rules = stage.beside(
        "rules.yaml",
        "- name: no-privileged\n  rule: '!new.spec.template.spec.containers.exists(c, has(c.securityContext) && has(c.securityContext.privileged) && c.securityContext.privileged)'\n  match: {kinds: [Deployment]}\n\
         - name: no-dockerhub\n  rule: '!new.spec.template.spec.containers.exists(c, c.image.startsWith(\"docker.io/\"))'\n  match: {kinds: [Deployment]}\n",
    );
    let objects = "modules/cache/1.1.0/objects";
    let manager = format!("{objects}/manager.yaml");
    stage.replace(&manager, "allowPrivilegeEscalation: false", "privileged: true");
    stage.replace(&manager, "registry.example.org/cache", "docker.io/evil");
    let secret = "apiVersion: v1\nkind: Secret\nmetadata: {name: s1, namespace: kyma-system}\nstringData: {a: privileged, b: docker.io/evil}\n";
    stage.write(&format!("{objects}/s.yaml"), secret);
    let report = stage.json(&["--from", "HEAD", "--policy", &rules], 4);
    let mut violated: Vec<&str> =
        report["findings"].as_array().unwrap().iter().map(|one| one["rule"].as_str().unwrap()).collect();
    violated.dedup();
    assert_eq!(violated, ["no-dockerhub", "no-privileged", "same-version"]);
    assert!(!report.to_string().contains("docker.io/evil"), "{report:#}");
}

/// Fields that no Secret has are errors, and what they hold is masked all the same.
#[test]
fn a_misspelt_field_of_a_secret_is_an_error_and_not_shown() {
    for (kind, field) in [("Secret", "stringdata"), ("Secret", "Data"), ("Secret", "extra"), ("secret", "stringData")] {
        let stage = Stage::new();
        let secret = format!(
            "apiVersion: v1\nkind: {kind}\nmetadata: {{name: s1, namespace: kyma-system}}\n{field}: {{token: PLANTED-typo-11}}\n"
        );
        stage.write("modules/cache/1.1.0/objects/s.yaml", &secret);
        for format in ["text", "markdown", "json"] {
            let text = stage.text(&["--from", "HEAD", "-o", format], 3);
            assert!(!text.contains("PLANTED-typo-11"), "{text}");
            assert!(text.contains("module-object"), "{text}");
        }
    }
}

/// Custom resources are validated against the CRDs of all modules, in the version that is served.
#[test]
fn custom_resources_are_checked_against_every_module() {
    let resource = |spec: &str| {
        format!(
            "apiVersion: cache.example.org/v1alpha1\nkind: Cache\nmetadata: {{name: other, namespace: kyma-system}}\nspec: {spec}\n"
        )
    };
    let errors = |stage: &Stage, code: i32| -> Vec<String> {
        let report = stage.json(&["--from", "HEAD"], code);
        let all = report["diagnostics"].as_array().unwrap().iter();
        all.filter(|one| one["code"] == "module-object").map(|one| one["message"].to_string()).collect()
    };
    let stage = Stage::new();
    let path = "modules/mailer/2.4.0/objects/c.yaml";
    stage.write(path, &resource("{memory: bogus, replicas: 99, nosuch: 1}"));
    let found = errors(&stage, 3);
    assert!(found.iter().any(|message| message.contains("nosuch")), "{found:?}");
    stage.write(path, &resource("{}"));
    assert_eq!(errors(&stage, 1), [""; 0]);
    // One version of the module takes it and the other does not: so it is said where the other one is installed.
    let stage = Stage::new();
    let field = "replicas: {type: integer, minimum: 1, maximum: 5}";
    let more = format!("{field}\n                nosuch: {{type: integer}}");
    stage.replace("modules/cache/1.1.0/objects/crd.yaml", field, &more).commit();
    stage.write(path, &resource("{nosuch: 1}"));
    let report = stage.json(&["--from", "HEAD"], 3);
    let all = report["diagnostics"].as_array().unwrap();
    let of = |code: &str| -> Vec<&Value> { all.iter().filter(|one| one["code"] == code).collect() };
    assert_eq!(
        (of("module-object").len(), of("module-object-unfit").len(), of("object-refused").len()),
        (0, 1, 1),
        "{all:#?}"
    );
    let refused = of("object-refused")[0];
    assert!(refused["message"].as_str().unwrap().ends_with("; 1 runtime with cache-1.0.0 will reject it"), "{refused}");
    assert_eq!(refused["place"]["path"], path);
    let held = &report["held"][0];
    assert_eq!((&held["why"], &held["module"]), (&"refused".into(), &"mailer".into()), "{held}");
    assert_eq!(held["runtimes"], serde_json::json!(["kcp-system/prod"]), "its channel has the other version");
    let created: Vec<(&Value, &Value)> = report["differences"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|one| one["object"]["kind"] == "Cache")
        .map(|one| (&one["effect"], &one["runtimes"][0]))
        .collect();
    assert_eq!(created, [(&"applies".into(), &"kcp-system/dev".into()), (&"held".into(), &"kcp-system/prod".into())]);
    // It was so before: nothing new is refused.
    stage.commit();
    stage.replace(PROD, "prod-instance", "another-instance");
    assert_eq!(stage.json(&["--from", "HEAD"], 1)["held"], Value::Array(Vec::new()));
    // The version of the default resource goes.
    let stage = Stage::new();
    stage.replace("modules/cache/1.1.0/objects/crd.yaml", "v1alpha1", "v1");
    let found = errors(&stage, 3);
    assert!(found.iter().any(|message| message.contains("does not serve this version")), "{found:?}");
}

#[test]
fn the_comment_of_a_bump() {
    check_comment("bump", 1, &[], |stage| {
        stage.replace(CACHE, "version: 1.0.0", "version: 1.1.0");
    });
}

#[test]
fn the_comment_of_a_new_module() {
    check_comment("new-module", 1, &[], |stage| {
        let folder = "modules/notes/1.0.0";
        let config = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: notes, namespace: kyma-system}\ndata: {a: b}\n";
        stage.write(&format!("{folder}/objects/config.yaml"), config);
        let head = |kind: &str, name: &str| {
            format!(
                "apiVersion: operator.kyma-project.io/v1beta2\nkind: {kind}\nmetadata:\n  name: {name}\n  namespace: kcp-system\n"
            )
        };
        let template = format!(
            "{}  annotations: {{tidegate.dev/module-path: {folder}/objects}}\nspec: {{moduleName: notes, version: 1.0.0}}\n",
            head("ModuleTemplate", "notes-1.0.0")
        );
        stage.write(&format!("{folder}/module-template.yaml"), &template);
        let release = format!(
            "{}spec:\n  moduleName: notes\n  ocmComponentName: example.org/module/notes\n  channels: [{{channel: regular, version: 1.0.0}}]\n",
            head("ModuleReleaseMeta", "notes")
        );
        stage.write("modules/notes/module-release-meta.yaml", &release);
        stage.replace(PROD, "    - name: mailer\n", "    - name: mailer\n    - name: notes\n");
    });
}

#[test]
fn the_comment_of_a_template() {
    check_comment("template", 1, &[], |stage| {
        let own = "apiVersion: tidegate.dev/v1alpha1\nkind: GitSource\nmetadata: {name: landscape}\nspec: {templates: templates}\n";
        stage.write(".tidegate/source.yaml", own);
        let namespace = "apiVersion: v1\nkind: Namespace\nmetadata:\n  labels:\n    istio-injection: enabled\n";
        stage.write("templates/skr/namespace.yaml", namespace);
    });
}

#[test]
fn the_comment_of_a_kyma_that_goes() {
    check_comment("kyma-deleted", 1, &[], |stage| {
        stage.remove(PROD);
    });
}

#[test]
fn the_comment_of_a_downgrade() {
    check_comment("downgrade", 1, &[], |stage| {
        stage.replace(CACHE, "version: 1.1.0", "version: 1.0.0");
    });
}

#[test]
fn the_comment_of_a_refused_change() {
    check_comment("refused", 4, &["--fail-on", "refused"], |stage| {
        stage.replace(
            "modules/cache/1.0.0/objects/rbac.yaml",
            "  kind: Role\n  name: cache-manager-leader\n",
            "  kind: Role\n  name: other\n",
        );
    });
}

#[test]
fn the_comment_of_a_broken_template() {
    check_comment("broken", 3, &[], |stage| {
        stage.replace("modules/cache/1.1.0/module-template.yaml", "moduleName: cache", "moduleNam: cache");
        stage.replace(CACHE, "version: 1.0.0", "version: 1.1.0");
    });
}

#[test]
fn the_comment_of_a_broken_override() {
    check_comment("override", 3, &[], |stage| {
        let own = "apiVersion: tidegate.dev/v1alpha1\nkind: GitSource\nmetadata: {name: landscape}\nspec: {templates: templates}\n";
        stage.write(".tidegate/source.yaml", own);
        stage.write("templates/skr/namespace.yaml", "apiVersion: v1\nkind: {{ knid }}\n");
        stage.replace(CACHE, "version: 1.0.0", "version: 1.1.0");
    });
}

#[test]
fn the_comment_of_a_first_commit() {
    let folder = tempfile::tempdir().unwrap();
    let repository = Repository::init(&folder.path().join("repo")).unwrap();
    repository.write("README.md", "a landscape\n").unwrap();
    repository.commit("begin").unwrap();
    harness::copy(Path::new(EXAMPLE), repository.path());
    let stage = Stage { folder, repository };
    let text = without_short_commits(&stage.text(&["-o", "markdown"], 1));
    assert!(text.lines().all(|line| line.chars().count() <= 500), "{text}");
    harness::check_recorded(&PathBuf::from(EXPECTED).join("first-commit.md"), &text);
}

/// Modules of another repository, as `tidegate export` writes them.
fn catalog(trees: [&str; 2]) -> String {
    let metadata = |name: &str, more: &str| {
        format!(
            "{{\"name\": \"{name}\", \"namespace\": \"kcp-system\", \"labels\": {{\"tidegate.dev/source\": \
             \"kcp-system.modules\"}}, \"annotations\": {{\"tidegate.dev/source\": \"kcp-system/modules\"{more}}}}}"
        )
    };
    let template = |version: &str, tree: &str| {
        let content =
            format!(", \"tidegate.dev/module-path\": \"cache/{version}\", \"tidegate.dev/module-tree\": \"{tree}\"");
        format!(
            "{{\"apiVersion\": \"operator.kyma-project.io/v1beta2\", \"kind\": \"ModuleTemplate\", \"metadata\": {}, \
             \"spec\": {{\"moduleName\": \"cache\", \"version\": \"{version}\", \"descriptor\": {{}}}}}}",
            metadata(&format!("cache-{version}"), &content)
        )
    };
    let release = |module: &str, channels: &str| {
        format!(
            "{{\"apiVersion\": \"operator.kyma-project.io/v1beta2\", \"kind\": \"ModuleReleaseMeta\", \"metadata\": {}, \
             \"spec\": {{\"moduleName\": \"{module}\", \"ocmComponentName\": \"example.org/{module}\", \"channels\": [{channels}]}}}}",
            metadata(module, "")
        )
    };
    format!(
        "{{\"apiVersion\": \"tidegate.dev/v1alpha1\", \"kind\": \"Landscape\", \"written\": \"2020-01-01T00:00:00Z\", \
         \"kymas\": [], \"templates\": [{}, {}], \"releases\": [{}]}}",
        template("1.0.0", trees[0]),
        template("1.1.0", trees[1]),
        release(
            "cache",
            "{\"channel\": \"regular\", \"version\": \"1.0.0\"}, {\"channel\": \"fast\", \"version\": \"1.1.0\"}"
        ),
    )
}

/// A repository with Kymas only: their modules are in another one.
fn only_kymas() -> Stage {
    let folder = tempfile::tempdir().unwrap();
    let repository = Repository::init(&folder.path().join("repo")).unwrap();
    let kyma = |name: &str, channel: &str| {
        format!(
            "apiVersion: operator.kyma-project.io/v1beta2\nkind: Kyma\nmetadata: {{name: {name}, namespace: kcp-system}}\n\
             spec:\n  channel: {channel}\n  modules: [{{name: cache}}]\n"
        )
    };
    repository.write("one.yaml", &kyma("one", "regular")).unwrap();
    repository.write("two.yaml", &kyma("two", "regular")).unwrap();
    repository.commit("two Kymas").unwrap();
    Stage { folder, repository }
}

#[test]
fn a_landscape_file_brings_the_modules_of_other_sources() {
    let stage = only_kymas();
    stage.replace("one.yaml", "channel: regular", "channel: fast");
    stage.json(&[], 3);
    let trees = ["c15cab3d04ec92b416507419d7124ec912699dc9", "bc164fce99cc5236a6f0986ac4931bc2ec9a7599"];
    let with = |trees: [&str; 2], code: i32| {
        let file = stage.beside("landscape.json", &catalog(trees));
        stage.json(&["--landscape", &file, "--max-age", "40000d"], code)
    };
    let report = with(trees, 1);
    assert_eq!(report["diagnostics"], Value::Array(Vec::new()), "the references resolve");
    let found = script(&report);
    assert!(found.iter().any(|line| line.starts_with("kcp change Manifest one-cache-")), "{found:?}");
    let source = &report["differences"]
        .as_array()
        .unwrap()
        .iter()
        .find(|one| one["object"]["kind"] == "Manifest")
        .unwrap()["new"]["spec"]["install"]["source"];
    assert_eq!((&source["source"], &source["tree"]), (&"kcp-system/modules".into(), &trees[1].into()), "{source}");
    let file = stage.beside("landscape.json", &catalog(trees));
    let validate = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
        command.arg("validate").args(arguments).current_dir(stage.repository.path()).status().unwrap().code()
    };
    assert_eq!((validate(&[]), validate(&["--landscape", &file])), (Some(3), Some(0)));
    // Their objects are not here: that is said, and none of them seems to go or to come.
    assert!(!found.iter().any(|line| line.starts_with("runtime") && !line.contains("Kyma")), "{found:?}");
    let unknown = report["unknown"]
        .as_array()
        .unwrap()
        .iter()
        .find(|one| one["value"] == "objects in another source, of module cache");
    assert_eq!(unknown.unwrap()["mayHide"], true, "{:#}", report["unknown"]);
    // Equal content hides nothing.
    let report = with([trees[0]; 2], 1);
    assert!(!report["unknown"].to_string().contains("objects in another source"), "{:#}", report["unknown"]);
}

#[test]
fn what_another_source_declares_is_not_predicted_as_applied() {
    let stage = only_kymas();
    let release = "apiVersion: operator.kyma-project.io/v1beta2\nkind: ModuleReleaseMeta\nmetadata: {name: cache, namespace: kcp-system}\n\
                   spec: {moduleName: cache, ocmComponentName: example.org/cache, channels: [{channel: regular, version: 1.1.0}]}\n";
    stage.write("release.yaml", release);
    let trees = ["c15cab3d04ec92b416507419d7124ec912699dc9", "bc164fce99cc5236a6f0986ac4931bc2ec9a7599"];
    let file = stage.beside("landscape.json", &catalog(trees));
    let report = stage.json(&["--landscape", &file, "--max-age", "40000d"], 1);
    let [one] = &script(&report)[..] else { panic!("{:?}", script(&report)) };
    assert!(one.starts_with("kcp conflict ModuleReleaseMeta cache"), "{one}");
    assert_eq!(report["differences"][0]["effect"], "held");
    let held = &report["held"][0];
    assert_eq!(held["why"], "conflict");
    let message = "ModuleReleaseMeta kcp-system/cache is also declared by GitSource kcp-system/modules, which owns it";
    assert_eq!((&held["message"], &held["place"]["path"]), (&message.into(), &"release.yaml".into()), "{held}");
}

#[test]
fn a_kyma_of_another_source_is_not_predicted_as_applied() {
    let stage = only_kymas();
    let three = stage.repository.read("two.yaml").unwrap().replace("name: two", "name: three");
    stage.write("three.yaml", &three);
    let trees = ["c15cab3d04ec92b416507419d7124ec912699dc9", "bc164fce99cc5236a6f0986ac4931bc2ec9a7599"];
    let kyma = |name: &str, source: &str| {
        format!(
            "{{\"namespace\": \"kcp-system\", \"name\": \"{name}\", \"channel\": \"regular\", \"labels\": \
             {{\"tidegate.dev/source\": \"kcp-system.{source}\"}}}}"
        )
    };
    let kymas = [kyma("one", "landscape"), kyma("three", "modules")].join(", ");
    let file = catalog(trees).replace("\"kymas\": []", &format!("\"kymas\": [{kymas}]"));
    let file = stage.beside("landscape.json", &file);
    let report = stage.json(&["--landscape", &file, "--max-age", "40000d"], 1);
    let [one] = &script(&report)[..] else { panic!("{:?}", script(&report)) };
    assert!(one.starts_with("kcp conflict Kyma three"), "{one}");
    let held = &report["held"][0];
    let message = "Kyma kcp-system/three is also declared by GitSource kcp-system/modules, which owns it";
    assert_eq!((&held["why"], &held["message"]), (&"conflict".into(), &message.into()), "{held}");
}

/// A GitSource of the same name was deleted with `deletionPolicy: Orphan`, and left the Kyma with other content.
#[test]
fn a_kyma_that_a_deleted_source_has_left_with_other_content_is_held() {
    let stage = only_kymas();
    stage.replace("two.yaml", "channel: regular", "channel: fast");
    let kyma = |annotations: &str| {
        format!(
            "{{\"namespace\": \"kcp-system\", \"name\": \"two\", \"channel\": \"regular\", \"modules\": [{{\"name\": \
             \"cache\"}}], \"annotations\": {{{annotations}}}}}"
        )
    };
    let trees = ["c15cab3d04ec92b416507419d7124ec912699dc9", "bc164fce99cc5236a6f0986ac4931bc2ec9a7599"];
    let report = |annotations: &str| {
        let file = catalog(trees).replace("\"kymas\": []", &format!("\"kymas\": [{}]", kyma(annotations)));
        let file = stage.beside("landscape.json", &file);
        stage.json(&["--landscape", &file, "--max-age", "40000d"], 1)
    };
    let left = "\"tidegate.dev/source\": \"kcp-system/landscape\", \"tidegate.dev/digest\": \"other\"";
    let held = report(left);
    let [one] = &script(&held)[..] else { panic!("{:?}", script(&held)) };
    assert!(one.starts_with("kcp conflict Kyma two"), "{one}");
    assert!(held["held"].to_string().contains("a GitSource that no longer exists"), "{:#}", held["held"]);
    // A file that has neither is that of an export without labels.
    assert!(script(&report(""))[0].starts_with("kcp change Kyma two"));
}

#[test]
fn of_several_files_of_sources_none_counts_until_one_is_chosen_or_is_the_only_one() {
    let stage = Stage::new();
    let (dev, prod) = (".tidegate/dev.yaml", ".tidegate/prod.yaml");
    stage.replace(dev, "name: landscape", "name: dev").replace(prod, "name: landscape", "name: prod");
    stage.replace(dev, "  interval: 1m", "  templates: templates").commit();
    stage.replace(CACHE, "version: 1.0.0", "version: 1.1.0");
    let labelled = "apiVersion: v1\nkind: Namespace\nmetadata:\n  labels:\n    origin: {{ name|quote }}\n";
    let of = |report: &Value| {
        let codes =
            report["diagnostics"].as_array().unwrap().iter().map(|one| one["code"].as_str().unwrap().to_owned());
        let lines = script(report).into_iter().filter(|line| line.contains("Namespace"));
        (report["subject"]["source"].as_str().unwrap().to_owned(), codes.collect::<Vec<_>>(), lines.count())
    };
    // The name counts for what waits for a confirmation: `runtime-removed.txt` shows what is said then.
    assert_eq!(of(&stage.json(&[], 1)), ("kcp-system/landscape".to_owned(), Vec::<String>::new(), 0));
    stage.write("templates/skr/namespace.yaml", labelled);
    let chosen = |file: &str| of(&stage.json(&["--source-file", file], 1));
    assert_eq!(chosen(dev), ("kcp-system/dev".to_owned(), Vec::new(), 1));
    assert_eq!(chosen(prod), ("kcp-system/prod".to_owned(), Vec::new(), 0));
    // The only one names the source, its paths and its templates, whatever the name of the file.
    stage.remove(prod);
    assert_eq!(of(&stage.json(&[], 1)), ("kcp-system/dev".to_owned(), Vec::new(), 1));
    for command in ["validate", "render"] {
        stage.write("templates/skr/namespace.yaml", "kind: {{ nothing }}\n");
        let mut process = Command::new(env!("CARGO_BIN_EXE_tidegate"));
        let output = process.args([command, "."]).current_dir(stage.repository.path()).output().unwrap();
        let said = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
        assert!(said.contains("templates/skr/namespace.yaml:1") && output.status.code() == Some(3), "{said}");
    }
}

#[test]
fn the_repositorys_own_source_is_used_without_a_flag() {
    let stage = Stage::new();
    let own = |spec: &str| {
        format!(
            "apiVersion: tidegate.dev/v1alpha1\nkind: GitSource\nmetadata: {{name: dev, namespace: kcp-system}}\nspec: {spec}\n"
        )
    };
    stage.write(".tidegate/source.yaml", &own("{paths: [modules, landscapes/dev]}"));
    // The commit that adds the file changes nothing: the control plane read the same paths before.
    let report = stage.json(&[], 0);
    assert_eq!(report["subject"]["source"], "kcp-system/dev", "{report:#}");
    stage.replace(CACHE, "version: 1.0.0", "version: 1.1.0");
    assert_eq!(stage.json(&[], 1)["summary"]["runtimesTotal"], 1, "only dev is read");
    let source =
        stage.beside("prod.yaml", &own("{url: https://git.example.org/a.git, paths: [modules, landscapes/prod]}"));
    let report = stage.json(&["--source-file", &source], 3);
    assert_eq!(report["moves"][0]["runtimes"], 1, "a flag takes precedence");
    assert_eq!(report["diagnostics"][0]["code"], "source-differs", "as for the daemon: {report:#}");
    stage.write(".tidegate/source.yaml", &own("{path: [modules]}"));
    let report = stage.json(&[], 3);
    let found = report["diagnostics"].as_array().unwrap().iter().find(|one| one["code"] == "source-file").unwrap();
    assert_eq!(
        (&found["place"]["path"], &found["place"]["line"]),
        (&".tidegate/source.yaml".into(), &4.into()),
        "{found}"
    );
}

/// What could not be said is in the first line, whatever else differs.
#[test]
fn the_first_line_tells_of_errors_and_of_what_does_not_come_about() {
    let stage = Stage::new();
    let config = "modules/cache/1.1.0/objects/config.yaml";
    let before = stage.repository.read(config).unwrap();
    let line = before.lines().find(|line| line.contains("snapshots: ")).unwrap().to_owned();
    stage.replace(config, &line, "  snapshots: \"1m\"");
    stage.write("landscapes/bad.yaml", "a: [\n");
    let text = stage.text(&["--from", "HEAD", "-o", "markdown"], 3);
    let first = text.lines().find(|line| line.starts_with("### ")).unwrap();
    assert!(first.contains("1 ConfigMap changes") && first.ends_with("; 1 error"), "{first}");
}

/// If git has an unreadable template, the embedded one is never used without a diagnostic.
#[test]
fn templates_that_cannot_be_read_are_not_replaced_by_embedded_ones() {
    let stage = Stage::new();
    let source = |folder: &str| {
        let spec = format!("spec: {{url: \"https://git.example.org/a.git\", templates: {folder}}}\n");
        let head =
            "apiVersion: tidegate.dev/v1alpha1\nkind: GitSource\nmetadata: {name: landscape, namespace: kcp-system}\n";
        stage.beside(&format!("{folder}.yaml"), &format!("{head}{spec}"))
    };
    let template = "templates/kcp/manifest.yaml";
    let embedded = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/templates/kcp/manifest.yaml")).unwrap();
    stage.write(template, &embedded.replace("remote: true", "remote: false")).commit();
    let path = stage.repository.path();
    let elsewhere = stage.folder.path().join("elsewhere");
    let manifests = |report: &Value| script(report).into_iter().filter(|one| one.contains("Manifest")).count();
    let codes = |report: &Value| -> BTreeSet<String> {
        let all = report["diagnostics"].as_array().unwrap().iter();
        all.map(|one| one["code"].as_str().unwrap().to_owned()).collect()
    };
    let source_file = source("templates");
    let arguments = ["--from", "HEAD", "--source-file", source_file.as_str()];
    let validated = || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
        command.args(["validate", ".", "--source-file", &source_file]).current_dir(path).output().unwrap().status.code()
    };
    // The file.
    fs::rename(path.join(template), &elsewhere).unwrap();
    symlink(&elsewhere, path.join(template)).unwrap();
    let report = stage.json(&arguments, 3);
    assert_eq!((manifests(&report), validated()), (0, Some(3)), "{report:#}");
    assert!(codes(&report).contains("template"), "{report:#}");
    fs::remove_file(path.join(template)).unwrap();
    fs::rename(&elsewhere, path.join(template)).unwrap();
    assert_eq!(stage.json(&arguments, 0)["diagnostics"], Value::Array(Vec::new()));
    // The folder.
    fs::rename(path.join("templates"), &elsewhere).unwrap();
    symlink(&elsewhere, path.join("templates")).unwrap();
    let report = stage.json(&arguments, 3);
    assert_eq!((manifests(&report), validated()), (0, Some(3)), "{report:#}");
    assert!(codes(&report).contains("symlink"), "{report:#}");
    fs::remove_file(path.join("templates")).unwrap();
    // There is none: that is said, and shown.
    let report = stage.json(&arguments, 1);
    assert!(manifests(&report) > 0, "{report:#}");
    assert_eq!(codes(&report), BTreeSet::from(["templates-absent".to_owned()]));
    assert!(report["diagnostics"][0]["message"].as_str().unwrap().contains("the folder `templates` does not exist"));
}

/// A rule that judges nothing is said to, and a file without rules is none.
#[test]
fn a_rule_that_judges_nothing_is_said() {
    let stage = Stage::new();
    stage.replace(CACHE, "version: 1.0.0", "version: 1.1.0");
    let rules = stage.beside("rules.yaml", "- {name: a, rule: 'false', match: {kinds: [Configmap]}}\n");
    let report = stage.json(&["--policy", &rules], 1);
    let warning = report["diagnostics"].as_array().unwrap().iter().find(|one| one["code"] == "policy-kind").unwrap();
    assert_eq!(warning["hint"], "did you mean `ConfigMap`?");
    for empty in ["", "[]\n"] {
        let rules = stage.beside("rules.yaml", empty);
        let error = stage.error(&["--policy", &rules]);
        assert!(error.contains("rules.yaml:1:1: the file has no rules"), "{error}");
    }
}

#[test]
fn of_a_repository_around_another_it_is_said_which_one_to_name() {
    let folder = tempfile::tempdir().unwrap();
    let repository = Repository::init(&folder.path().join("repo")).unwrap();
    harness::copy(Path::new(EXAMPLE), &repository.path().join("infra"));
    fs::create_dir(repository.path().join("infra/.tidegate"))
        .or_else(|error| match error.kind() {
            std::io::ErrorKind::AlreadyExists => Ok(()),
            _ => Err(error),
        })
        .unwrap();
    repository.commit("all of it").unwrap();
    let stage = Stage { folder, repository };
    let report = stage.json(&["."], 3);
    let hint = report["diagnostics"].as_array().unwrap().iter().find(|one| one["code"] == "own-repository").unwrap();
    assert!(hint["message"].as_str().unwrap().contains("the folder infra is a repository of its own"), "{hint}");
    assert_eq!(stage.json(&["infra"], 0)["diagnostics"], Value::Array(Vec::new()));
}

#[test]
fn values_of_secrets_are_masked_and_two_runs_print_the_same() {
    let stage = Stage::new();
    let secret = |value: &str| {
        format!(
            "apiVersion: v1\nkind: Secret\nmetadata: {{name: token, namespace: kyma-system}}\nstringData: {{token: {value}, same: {value}}}\n"
        )
    };
    stage.write("modules/cache/1.0.0/objects/secret.yaml", &secret("planted-old")).commit();
    stage.write("modules/cache/1.0.0/objects/secret.yaml", &secret("planted-new"));
    for format in ["text", "json", "markdown", "sarif", "github", "gitlab", "junit"] {
        let run = || stage.run(&["--from", "HEAD", "-o", format]).stdout;
        let first = run();
        let text = String::from_utf8_lossy(&first);
        assert!(!text.contains("planted"), "{format}: {text}");
        assert_eq!(first, run(), "{format}: byte for byte");
    }
    let report = stage.json(&["--from", "HEAD"], 1);
    let secret =
        report["differences"].as_array().unwrap().iter().find(|one| one["object"]["kind"] == "Secret").unwrap();
    let data = &secret["new"]["data"];
    assert_eq!(data["token"], data["same"], "equal values look equal");
    assert_ne!(data["token"], secret["old"]["data"]["token"]);
}

#[test]
fn a_shallow_clone_is_told_what_to_do() {
    let stage = Stage::new();
    stage.replace(CACHE, "version: 1.0.0", "version: 1.1.0").commit();
    stage.git(&["branch", "old", "HEAD~1"]);
    let from = format!("file://{}", stage.repository.path().display());
    let target = stage.folder.path().join("shallow");
    stage.git(&["clone", "-q", "--depth", "1", &from, target.to_str().unwrap()]);
    let error = stage.error(&[target.to_str().unwrap(), "--from", "HEAD~1"]);
    assert!(error.contains("it is a shallow clone without `HEAD~1`; run `git fetch --unshallow`"), "{error}");
}

#[test]
fn a_partial_clone_is_told_what_to_do() {
    let stage = Stage::new();
    stage.git(&["config", "uploadpack.allowFilter", "true"]);
    let from = format!("file://{}", stage.repository.path().display());
    let target = stage.folder.path().join("partial");
    let path = target.to_str().unwrap();
    stage.git(&["clone", "-q", "--no-checkout", "--filter=blob:none", &from, path]);
    let error = stage.error(&[path, "--from", "HEAD", "--to", "HEAD"]);
    assert!(error.contains("it is a partial clone without blob "), "{error}");
    assert!(error.contains("; clone it without `--filter`, or run `git fetch --refetch --no-filter`"), "{error}");
    assert_eq!(error.lines().count(), 1, "{error}");
    // The advice is good.
    stage.git(&["-C", path, "fetch", "-q", "--refetch", "--no-filter"]);
    stage.json(&[path, "--from", "HEAD", "--to", "HEAD"], 0);
}

#[test]
fn a_folder_without_commits_is_told_so() {
    let folder = tempfile::tempdir().unwrap();
    let stage = Stage { repository: Repository::init(&folder.path().join("repo")).unwrap(), folder };
    let error = stage.error(&[]);
    assert!(error.contains("it has no commit yet"), "{error}");
}

#[test]
fn a_cache_changes_nothing_but_the_time() {
    let stage = Stage::new();
    let secret = "apiVersion: v1\nkind: Secret\nmetadata: {name: token, namespace: kyma-system}\nstringData: {token: planted-value}\n";
    stage.write("modules/mailer/2.4.0/objects/secret.yaml", secret).commit();
    stage.replace(CACHE, "version: 1.0.0", "version: 1.1.0");
    let folder = stage.folder.path().join("cache");
    let cached = || {
        let output = stage.run(&["-o", "json", "--cache-dir", folder.to_str().unwrap()]);
        assert_eq!(String::from_utf8_lossy(&output.stderr), "");
        output.stdout
    };
    let plain = stage.run(&["-o", "json"]).stdout;
    assert_eq!(cached(), plain, "an empty cache");
    let files: Vec<PathBuf> = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    let [file] = files.as_slice() else { panic!("{files:?}") };
    let bytes = fs::read(file).unwrap();
    assert!(!String::from_utf8_lossy(&bytes).contains("planted-value"));
    assert_eq!(cached(), plain, "a full cache");
    assert_eq!(fs::read(file).unwrap(), bytes, "there was nothing to add");
    for damaged in [&bytes[..bytes.len() / 2], b"", b"no cache at all"] {
        fs::write(file, damaged).unwrap();
        assert_eq!(cached(), plain, "a damaged cache");
        assert_eq!(fs::read(file).unwrap(), bytes, "it is written anew");
    }
}
