//! What commands print for platforms: each format is what its platform reads, at the line that causes it.

use std::{fs, path::Path, process::Command};

use serde_json::Value;
use tidegate_testbed::Repository;

use crate::harness;

const KYMA: &str = "landscapes/dev/kyma.yaml";

/// The example with a mistake in line 16 of one of its files, below a folder of a repository.
fn broken() -> (tempfile::TempDir, Repository) {
    let folder = tempfile::tempdir().unwrap();
    let repository = Repository::init(&folder.path().join("repo")).unwrap();
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/landscape");
    harness::copy(&example, &repository.path().join("deep/landscape"));
    repository.replace(&format!("deep/landscape/{KYMA}"), "channel: fast", "channel: FAST").unwrap();
    repository.commit("the example").unwrap();
    (folder, repository)
}

/// Standard output, standard error and exit code of `tidegate validate`.
fn validate(repository: &Repository, arguments: &[&str]) -> (String, String, i32) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    command.arg("validate").arg(repository.path().join("deep/landscape")).args(arguments);
    let output = command.output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (text(output.stdout), text(output.stderr), output.status.code().unwrap())
}

#[test]
fn annotations_name_the_file_from_the_root_of_the_checkout() {
    let (_folder, repository) = broken();
    let (text, _, exit) = validate(&repository, &["-o", "github"]);
    assert_eq!((text.lines().count(), exit), (1, 3), "{text}");
    assert!(text.starts_with(&format!("::error file=deep/landscape/{KYMA},line=16,col=")), "{text}");

    let (text, _, _) = validate(&repository, &["-o", "sarif"]);
    let value: Value = serde_json::from_str(&text).unwrap();
    let place = value.pointer("/runs/0/results/0/locations/0/physicalLocation").unwrap();
    assert_eq!(place["artifactLocation"]["uri"], format!("deep/landscape/{KYMA}"));
    assert_eq!(place["region"]["startLine"], 16);

    let (text, _, _) = validate(&repository, &["-o", "gitlab"]);
    let value: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(value[0]["location"]["path"], format!("deep/landscape/{KYMA}"));

    let (text, _, _) = validate(&repository, &["-o", "junit"]);
    assert!(text.contains("failures=\"1\"") && text.contains(&format!("file=\"deep/landscape/{KYMA}\" line=\"16\"")));
}

/// Standard error and exit code of a command whose standard output is a full disk.
#[cfg(target_os = "linux")]
fn to_a_full_disk(arguments: &[&str]) -> (String, Option<i32>) {
    let full = fs::File::options().write(true).open("/dev/full").unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_tidegate")).args(arguments).stdout(full).output().unwrap();
    (String::from_utf8(output.stderr).unwrap(), output.status.code())
}

#[test]
#[cfg(target_os = "linux")]
fn a_full_disk_ends_a_command_with_one_sentence() {
    let sentence = "error: cannot write to standard output: No space left on device (os error 28)\n";
    let size = ["--runtimes=1", "--modules=1", "--templates=1", "--objects=1", "--runs=1", "--no-yardstick"];
    let offline = [&["sim", "diff-offline"], size.as_slice()].concat();
    for arguments in [
        ["crds"].as_slice(),
        &["crds", "--kcp"],
        &["agent", "--version"],
        // These would go on for half a minute, and for ever.
        &["demo", "--once"],
        &["sim", "serve", "--runtimes=1"],
    ] {
        assert_eq!(to_a_full_disk(arguments), (sentence.to_owned(), Some(2)), "{arguments:?}");
    }
    // This one says on standard error how far it is.
    let (said, exit) = to_a_full_disk(&offline);
    assert!(said.ends_with(sentence) && !said.contains("panicked"), "{said}");
    assert_eq!(exit, Some(2), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
#[cfg(target_os = "linux")]
async fn a_daemon_whose_log_cannot_be_written_does_its_work() {
    tidegate_process::tls::install();
    let kcp = kube_sim::Server::new(&kube_sim::Options::default()).listen("kcp").await.unwrap();
    let client = kcp.kubeconfig().client().unwrap();
    harness::install_own_crds(&client).await;
    let namespace = serde_json::json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kcp-system"}});
    harness::apply(&client, &namespace).await;
    let folder = harness::folder();
    let kubeconfig = folder.path().join("kcp.kubeconfig");
    fs::write(&kubeconfig, kcp.kubeconfig().text()).unwrap();
    let full = fs::File::options().write(true).open("/dev/full").unwrap();
    let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_tidegate"));
    command.args(["run", "--once", "--timeout=60s", "--kubeconfig"]).arg(&kubeconfig);
    command.arg("--state").arg(folder.path().join("state"));
    command.args(["--metrics-address=127.0.0.1:0", "--health-address=127.0.0.1:0", "--hooks-address=off"]);
    let ended = command.stderr(full).kill_on_drop(true).status().await.unwrap();
    assert_eq!(ended.code(), Some(0));
}

#[test]
fn one_run_writes_several_outputs() {
    let (folder, repository) = broken();
    let file = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (sarif, text) = (format!("sarif={}", file("a.sarif")), format!("text={}", file("a.txt")));
    let (out, _, exit) = validate(&repository, &["-o", "github", "-o", &sarif, "--output", &text]);
    assert_eq!(exit, 3);
    assert!(out.starts_with("::error "), "{out}");
    assert_eq!(fs::read_to_string(file("a.sarif")).unwrap(), validate(&repository, &["-o", "sarif"]).0);
    let text = fs::read_to_string(file("a.txt")).unwrap();
    assert_eq!(text, validate(&repository, &[]).0);
    assert!(!text.contains('\u{1b}'));
}

#[test]
fn outputs_that_cannot_be_are_refused_before_any_work() {
    let (_folder, repository) = broken();
    let refused = |arguments: &[&str], expected: &str| {
        let (out, errors, exit) = validate(&repository, arguments);
        assert_eq!((out.as_str(), exit), ("", 2), "{errors}");
        assert!(errors.contains(expected), "{errors}");
    };
    refused(&["-o", "json", "-o", "text"], "only one output can go to standard output");
    refused(&["-o", "json=a", "-o", "text=a"], "two outputs go to a");
    refused(&["-o", "yaml"], "unknown format: use text, json, sarif, github, gitlab, junit");
    refused(&["-o", "json="], "the file is missing after `=`");
    refused(&["-o", "json=/no/such/folder/a"], "cannot write /no/such/folder/a");
}

#[test]
fn a_good_repository_has_nothing_to_say() {
    let (_folder, repository) = broken();
    repository.replace(&format!("deep/landscape/{KYMA}"), "channel: FAST", "channel: fast").unwrap();
    assert_eq!(validate(&repository, &["-o", "github"]), (String::new(), String::new(), 0));
    assert_eq!(validate(&repository, &["-o", "gitlab"]).0, "[]\n");
    let (text, _, _) = validate(&repository, &["-o", "sarif"]);
    let value: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(value["runs"][0]["results"], Value::Array(Vec::new()));
    assert!(validate(&repository, &["-o", "junit"]).0.contains("definitions and templates are valid"));
}

// === what a comparison says of itself ===

/// The example, committed, and a version that moves to another channel on top of it.
fn changed() -> (tempfile::TempDir, Repository) {
    let folder = tempfile::tempdir().unwrap();
    let repository = Repository::init(&folder.path().join("repo")).unwrap();
    harness::copy(&Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/landscape"), repository.path());
    repository.commit("the example").unwrap();
    repository.replace("modules/cache/module-release-meta.yaml", "version: 1.0.0", "version: 1.1.0").unwrap();
    (folder, repository)
}

/// Standard output, standard error and exit code of `tidegate diff` with the last commit as the old side.
fn diff(repository: &Repository, arguments: &[&str]) -> (String, String, i32) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    command.args(["diff", "--from", "HEAD"]).args(arguments).current_dir(repository.path());
    let output = command.output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (text(output.stdout), text(output.stderr), output.status.code().unwrap())
}

#[test]
fn the_exit_code_says_how_it_ended() {
    let (folder, repository) = changed();
    let exit = |arguments: &[&str]| diff(&repository, arguments).2;
    assert_eq!(exit(&["--to", "HEAD"]), 0);
    assert_eq!(exit(&[]), 1);
    assert_eq!(exit(&["--fail-on", "recreate,crd,conflict,mass-change=100%"]), 1);
    assert_eq!(exit(&["--fail-on", "delete"]), 1, "the copies of the catalog do not count");
    assert_eq!(exit(&["--fail-on", "mass-change=50%"]), 1, "the same");
    assert_eq!(exit(&["--fail-on", "mass-change=49%"]), 4);
    repository.remove("modules/cache/1.1.0/objects/config.yaml").unwrap();
    assert_eq!(exit(&["--fail-on", "crd,delete"]), 4);
    let rules = folder.path().join("policies.yaml");
    let with = |text: &str| {
        fs::write(&rules, text).unwrap();
        exit(&["--policy", rules.to_str().unwrap()])
    };
    assert_eq!(with("- {name: a, rule: 'object.kind != \"Secret\"'}\n"), 1);
    assert_eq!(with("- {name: a, rule: 'action == \"create\"'}\n"), 4);
    assert_eq!(with("- {name: a, severity: warning, rule: 'action == \"create\"'}\n"), 1);
    assert_eq!(with("- {name: a, rule: 'object.absent'}\n"), 4, "what cannot be evaluated is violated");
    assert_eq!(exit(&["--from", "no-such-branch"]), 2);
    repository.replace(KYMA, "channel: fast", "channel: FAST").unwrap();
    assert_eq!(exit(&["--fail-on", "delete"]), 3, "what is invalid comes first");
}

#[test]
fn what_a_trailer_or_a_label_approves_does_not_fail() {
    let (_folder, repository) = changed();
    let first = repository.head().unwrap();
    repository.commit("a bump\n\nit reaches all of them\n\nTidegate-Approve: mass-change, everything").unwrap();
    let run = |arguments: &[&str]| {
        let from = ["--from", first.as_str(), "--fail-on", "mass-change=10%"];
        let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
        command.arg("diff").args(from).args(arguments).current_dir(repository.path());
        let output = command.output().unwrap();
        (String::from_utf8(output.stdout).unwrap(), output.status.code().unwrap())
    };
    let (out, exit) = run(&["-o", "json"]);
    assert_eq!(exit, 1, "{out}");
    let report: Value = serde_json::from_str(&out).unwrap();
    let message = report["findings"][0]["message"].as_str().unwrap();
    let by = format!("(approved by commit {})", &repository.head().unwrap()[..10]);
    assert!(report["findings"][0]["severity"] == "warning" && message.ends_with(&by), "{report:#}");
    let warning = report["diagnostics"].as_array().unwrap().iter().find(|one| one["code"] == "approval").unwrap();
    assert!(warning["message"].as_str().unwrap().contains("`everything` is not a rule"), "{warning}");
    assert_eq!(run(&["--ignore-trailers"]).1, 4);
    assert_eq!(run(&["--ignore-trailers", "--approve", "mass-change"]).1, 1);
    assert_eq!(run(&["--ignore-trailers", "--approve", "delete"]).1, 4);
    assert_eq!(run(&["--approve", "all"]).1, 2);
}

#[test]
fn a_job_that_only_shows_never_fails() {
    let (_folder, repository) = changed();
    let exit = |arguments: &[&str]| diff(&repository, &[&["--exit-zero"][..], arguments].concat()).2;
    assert_eq!((exit(&[]), exit(&["--fail-on", "delete"])), (0, 0));
    repository.replace(KYMA, "channel: fast", "channel: FAST").unwrap();
    assert_eq!(exit(&[]), 0);
    assert_eq!(exit(&["--to", "no-such-branch"]), 2, "there is nothing to show");
}

#[test]
fn labels_of_runtimes_reach_the_rules() {
    let (folder, repository) = changed();
    let rules = folder.path().join("policies.yaml");
    let rule = "- name: beta\n  message: m\n  match: {kinds: [ModuleReleaseMeta], targets: [runtime]}\n  \
                rule: 'runtime.labels[\"operator.kyma-project.io/beta\"] != \"true\"'\n";
    fs::write(&rules, rule).unwrap();
    let (out, errors, exit) = diff(&repository, &["--policy", rules.to_str().unwrap()]);
    assert_eq!(exit, 4, "{errors}{out}");
    assert!(out.contains("changes in 2 runtimes (in kcp-system/dev)"), "{out}");
}

#[test]
fn what_is_wrong_with_rules_is_one_sentence_before_any_work() {
    let (folder, repository) = changed();
    let rules = folder.path().join("policies.yaml");
    let path = rules.to_str().unwrap().to_owned();
    let refused = |arguments: &[&str], expected: &str| {
        let (out, errors, exit) = diff(&repository, arguments);
        assert_eq!((out.as_str(), exit), ("", 2), "{errors}");
        assert!(errors.contains(expected), "{errors}");
    };
    fs::write(&rules, "- name: a\n  rule: 'object.('\n").unwrap();
    refused(&["--policy", &path], "policies.yaml:2:9: `rule`: ");
    fs::write(&rules, "- name: a\n  rule: 'true'\n  sevrity: error\n").unwrap();
    refused(&["--policy", &path], "policies.yaml:3:3: a rule has no `sevrity`");
    fs::write(&rules, "- name: a\n  rule: 'true'\n").unwrap();
    refused(&["--policy", &path, "--policy", &path], "rule `a` is already defined in another file");
    refused(&["--policy", "/no/such/file"], "cannot read /no/such/file");
    refused(&["--fail-on", "deletes"], "unknown rule `deletes`");
    refused(&["--fail-on", "mass-change=110%"], "invalid percentage");
    refused(&["--budget", "100"], "a comment needs at least 6000 characters");
    refused(&["--marker", "a--b"], "cannot be a marker");
}

#[test]
fn a_comment_has_the_marker_and_the_length_that_it_is_given() {
    let (_folder, repository) = changed();
    let lines = (0..200).map(|line| format!("  key-{line}: \"a value that takes some room\"\n")).collect::<String>();
    let config =
        format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: long, namespace: kyma-system}}\ndata:\n{lines}");
    repository.write("modules/cache/1.1.0/objects/long.yaml", &config).unwrap();
    let (comment, _, _) = diff(&repository, &["-o", "markdown", "--marker", "prod", "--budget", "6000"]);
    assert!(comment.starts_with("<!-- prod -->\n"), "{comment}");
    assert!(comment.chars().count() <= 6_000 && comment.contains("This comment is cut"), "{comment}");
    let (comment, _, _) = diff(&repository, &["-o", "markdown"]);
    assert!(comment.starts_with("<!-- tidegate-diff -->\n") && !comment.contains("This comment is cut"), "{comment}");
}

#[test]
fn nothing_moves_and_nothing_is_coloured_where_no_terminal_looks_on() {
    let (_folder, repository) = changed();
    let (out, errors, _) = diff(&repository, &[]);
    assert_eq!(errors, "", "no progress in the log of a pipeline");
    assert!(!out.contains('\u{1b}'));
    let coloured = |name: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
        command.args(["diff", "--from", "HEAD"]).env(name, "1").current_dir(repository.path());
        String::from_utf8(command.output().unwrap().stdout).unwrap()
    };
    assert!(coloured("CLICOLOR_FORCE").contains('\u{1b}'));
    assert_eq!(coloured("NO_COLOR"), out);
}

/// What a command prints with all of its streams at a terminal.
fn at_a_terminal(repository: &Repository, command: &str) -> String {
    let line = format!("{} {command}", env!("CARGO_BIN_EXE_tidegate"));
    let mut script = Command::new("script");
    script.args(["--quiet", "--return", "--command", &line, "/dev/null"]).current_dir(repository.path());
    script.env_remove("NO_COLOR").env_remove("CI").env("TERM", "xterm-256color").stdin(std::process::Stdio::null());
    let output = script.output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", String::from_utf8_lossy(&output.stdout));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn a_terminal_sees_colours_and_what_takes_long() {
    let (_folder, repository) = changed();
    let seen = at_a_terminal(&repository, "diff --from HEAD");
    assert!(seen.contains("\u{1b}[32m"), "lines that come are green: {seen:?}");
    assert!(seen.contains("reading the repository"), "it is said what takes long: {seen:?}");
    // A file is not a terminal, so it gets no colours.
    at_a_terminal(&repository, "diff --from HEAD -o text=report.txt");
    assert!(!fs::read_to_string(repository.path().join("report.txt")).unwrap().contains('\u{1b}'));
}

/// The command that prints the numbers comes to its end, with all of them.
#[test]
fn what_a_rendering_of_a_fleet_costs_is_measured() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    command.args([
        "sim",
        "render-offline",
        "--runtimes",
        "20",
        "--modules",
        "2",
        "--templates",
        "25",
        "--objects",
        "2",
    ]);
    let output = command.args(["-o", "json"]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let value: Value = serde_json::from_slice(&output.stdout).unwrap();
    let rows = value["rows"].as_array().unwrap();
    let formats: Vec<&str> = rows.iter().map(|row| row["format"].as_str().unwrap()).collect();
    assert_eq!(formats, ["yaml", "json"]);
    for row in rows {
        let number = |name: &str| row[name].as_u64().unwrap();
        assert!(number("outputBytes") > 10_000 && number("peakBytes") > 1 << 20, "{row}");
    }
}

/// The command that prints the numbers comes to its end, with all of them.
#[test]
fn what_a_comparison_costs_is_measured_beside_its_yardstick() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    command.args(["sim", "diff-offline", "--runtimes", "4", "--modules", "2", "--templates", "50", "--objects", "2"]);
    command.args(["--runs", "1", "--yardstick-runtimes", "2", "-o", "json"]);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let value: Value = serde_json::from_slice(&output.stdout).unwrap();
    let rows = value["rows"].as_array().unwrap();
    let names: Vec<&str> = rows.iter().map(|row| row["name"].as_str().unwrap()).collect();
    let expected = [
        "diff, cold",
        "diff, cold, filling a cache",
        "diff, warm",
        "a part: diff, cold",
        "a part: rendering, and diff -r",
        "a part: diff -r alone",
    ];
    assert_eq!(names, expected);
    // Such a short `diff -r` may end before its memory is measured.
    let is_seen = |row: &Value| row["peakBytes"].as_u64().unwrap() > 0 || row["name"] == "a part: diff -r alone";
    assert!(rows.iter().all(|row| row["wallSeconds"].as_f64().unwrap() > 0.0 && is_seen(row)), "{rows:?}");
    assert_eq!((&value["runtimes"], &value["partRuntimes"]), (&4.into(), &2.into()));
}

#[test]
fn the_json_of_a_comparison_has_its_version_and_all_runtimes() {
    let (_folder, repository) = changed();
    repository.remove("modules/cache/1.1.0/objects/config.yaml").unwrap();
    let (out, _, _) = diff(&repository, &["-o", "json", "--fail-on", "delete"]);
    let value: Value = serde_json::from_str(&out).unwrap();
    assert_eq!((&value["version"], &value["verdict"]), (&1.into(), &"violated".into()));
    assert_eq!(value["checked"], serde_json::json!(["fail-on: delete"]));
    let finding = &value["findings"][0];
    let index = usize::try_from(finding["difference"].as_u64().unwrap()).unwrap();
    assert_eq!(value["differences"][index]["action"], "delete");
    assert_eq!(value["differences"][index]["runtimes"], serde_json::json!(["kcp-system/dev"]));
    let differences = value["differences"].as_array().unwrap().iter();
    let of_catalog = differences
        .filter(|one| one["target"] == "runtime" && one["object"]["kind"] == "ModuleTemplate")
        .collect::<Vec<_>>();
    let all = ["kcp-system/dev", "kcp-system/prod"];
    assert_eq!(of_catalog[0]["runtimes"], serde_json::json!(all));
}

/// A value of a definition that means something to a runner of pipelines is text to it in every output.
#[test]
fn no_value_of_a_definition_is_a_command() {
    let (_folder, repository) = changed();
    let config = "modules/cache/1.1.0/objects/config.yaml";
    let text = repository.read(config).unwrap();
    let evil = "\n  evil: |\n    ::error file=a::injected\n    ##[error]injected\n    ```\n    </details> <img src=x> @everyone\n    \
                \u{2028}::warning::injected\n";
    repository
        .write(config, &text.replacen("\ndata:\n", &format!("\ndata:{}", evil.trim_end_matches(' ')), 1))
        .unwrap();
    for format in ["text", "markdown", "json", "sarif", "github", "gitlab", "junit"] {
        let (out, errors, exit) = diff(&repository, &["-o", format]);
        assert_eq!(exit, 1, "{errors}");
        assert!(!out.contains("##[error]") && !out.contains('\u{2028}'), "{format}: {out}");
        let commands = out.lines().filter(|line| line.trim_start().starts_with("::"));
        assert!(commands.clone().all(|line| format == "github" && !line.contains("injected")), "{format}: {out}");
        if format == "text" {
            assert!(out.contains("::error file=a::injected"), "what is escaped is still shown: {out}");
        }
    }
}

#[test]
fn every_difference_points_at_a_line() {
    let (_folder, repository) = changed();
    repository.remove("modules/mailer/2.4.0/objects/rbac.yaml").unwrap();
    repository
        .write(
            "modules/cache/1.1.0/objects/more.yaml",
            "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, namespace: b}\n",
        )
        .unwrap();
    repository.replace(KYMA, "    - name: tracing-agent\n", "").unwrap();
    let (out, _, _) = diff(&repository, &["-o", "json"]);
    let value: Value = serde_json::from_str(&out).unwrap();
    for one in value["differences"].as_array().unwrap() {
        assert!(one["places"][0]["line"].as_u64().unwrap_or_default() > 0, "{:#} {}", one["object"], one["action"]);
    }
    let (out, _, _) = diff(&repository, &["-o", "github"]);
    assert!(out.lines().filter(|line| line.contains("title=diff/")).all(|line| line.contains(" file=")), "{out}");
}

// --- what is generated from the commands ---

fn output(arguments: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_tidegate")).args(arguments).output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn a_shell_completes_commands_options_and_values() {
    let script = output(&["completions", "bash"]);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("tidegate.bash");
    fs::write(&file, script).unwrap();
    let completed = |words: &str| {
        let (before, word) = words.rsplit_once(' ').unwrap();
        let (count, before) = (words.split(' ').count() - 1, before.rsplit(' ').next().unwrap());
        let typed = format!(
            "source {}; COMP_WORDS=({words}); COMP_CWORD={count}; _tidegate tidegate {word} {before}; printf '%s\\n' \"${{COMPREPLY[@]}}\"",
            file.display()
        );
        let output = Command::new("bash").args(["--norc", "-c", &typed]).output().unwrap();
        String::from_utf8(output.stdout).unwrap().split_whitespace().map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(completed("tidegate val"), ["validate"]);
    assert_eq!(completed("tidegate validate --trus"), ["--trusted-keys"]);
    for shell in ["zsh", "fish", "powershell", "elvish"] {
        assert!(output(&["completions", shell]).contains("validate"), "{shell}");
    }
}

#[test]
fn each_command_has_a_man_page() {
    let folder = tempfile::tempdir().unwrap();
    let pages = folder.path().join("man1");
    let said = output(&["man", pages.to_str().unwrap()]);
    let text = |name: &str| fs::read_to_string(pages.join(name)).unwrap_or_default();
    for name in ["tidegate", "tidegate-validate", "tidegate-template-show"] {
        let page = text(&format!("{name}.1"));
        assert!(page.contains(&format!(".TH {name} 1")), "{name}: {page}");
    }
    assert!(text("tidegate-validate.1").contains("trusted\\-keys"), "{}", text("tidegate-validate.1"));
    assert_eq!(said, format!("wrote the pages into {}\n", pages.display()));
    assert!(!pages.join("tidegate-oci.1").exists(), "hidden commands have none");
}

#[test]
fn the_version_is_that_of_the_package() {
    let version = env!("CARGO_PKG_VERSION");
    assert_eq!(output(&["version"]).lines().next(), Some(&*format!("tidegate {version}")));
    let value: Value = serde_json::from_str(&output(&["version", "-o", "json"])).unwrap();
    assert_eq!(value["version"], version);
}

// --- the GitSource of an option ---

#[test]
fn a_source_file_that_says_otherwise_than_the_repository_is_an_error_as_for_the_daemon() {
    let folder = tempfile::tempdir().unwrap();
    let repository = Repository::init(&folder.path().join("repo")).unwrap();
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/landscape");
    harness::copy(&example, &repository.path().join("landscape"));
    let head = "apiVersion: tidegate.dev/v1alpha1\nkind: GitSource\n";
    repository.write("landscape/.tidegate/source.yaml", &format!("{head}spec:\n  strict: true\n")).unwrap();
    repository.commit("the example").unwrap();
    let given = folder.path().join("source.yaml");
    let run = |strict: bool| {
        let spec = format!("metadata: {{name: a}}\nspec: {{url: https://git.example.com/a, strict: {strict}}}\n");
        fs::write(&given, format!("{head}{spec}")).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
        command.args(["validate", "--source-file"]).arg(&given).arg(repository.path().join("landscape"));
        let output = command.output().unwrap();
        (String::from_utf8(output.stdout).unwrap() + &String::from_utf8_lossy(&output.stderr), output.status.code())
    };
    let (text, exit) = run(false);
    assert!(text.contains("error[source-differs]: the GitSource has `false` as `spec.strict`"), "{text}");
    assert_eq!(exit, Some(3));
    let (text, exit) = run(true);
    assert_eq!((text.contains("source-differs"), exit), (false, Some(0)), "{text}");
}
