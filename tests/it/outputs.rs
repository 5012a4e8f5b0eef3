//! What commands print for platforms: each format is what its platform reads, at the line that causes it.

use std::{fs, path::Path, process::Command};

use serde_json::Value;
use tidegate::testbed::Repository;

const KYMA: &str = "landscapes/dev/kyma.yaml";

/// The example with a mistake in line 16 of one of its files, below a folder of a repository.
fn broken() -> (tempfile::TempDir, Repository) {
    let folder = tempfile::tempdir().unwrap();
    let repository = Repository::init(&folder.path().join("repo")).unwrap();
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/landscape");
    copy(&example, &repository.path().join("deep/landscape"));
    repository.replace(&format!("deep/landscape/{KYMA}"), "channel: fast", "channel: FAST").unwrap();
    repository.commit("the example").unwrap();
    (folder, repository)
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        let target = to.join(path.file_name().unwrap());
        if path.is_dir() {
            copy(&path, &target);
        } else {
            fs::copy(&path, &target).unwrap();
        }
    }
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
    refused(&["-o", "yaml"], "there is no such format; use text, json, sarif, github, gitlab, junit");
    refused(&["-o", "json="], "there is no file after `=`");
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
