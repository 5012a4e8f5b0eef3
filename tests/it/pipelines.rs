//! The example pipelines: what they run is run here, in a repository of its own, save for the steps that need a
//! network.

use std::{
    collections::BTreeMap,
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::Value;
use tidegate_core::yaml;
use tidegate_testbed::Repository;

use crate::harness;

const ROOT: &str = env!("CARGO_MANIFEST_DIR");
/// Where the pipelines look for rules: no folder that is read for definitions.
const RULES: &str = ".tidegate/policies.yaml";

/// A repository with the example and rules in its base, and a change on top of it.
struct Change {
    folder: tempfile::TempDir,
    repository: Repository,
    base: String,
    labels: &'static str,
}

/// How a script ended.
struct Ended {
    exit: i32,
    out: String,
}

impl Change {
    fn new(change: impl Fn(&Repository)) -> Change {
        Change::with_rules(&example("policies.yaml"), change)
    }

    fn with_rules(rules: &str, change: impl Fn(&Repository)) -> Change {
        let folder = tempfile::tempdir().unwrap();
        let repository = Repository::init(&folder.path().join("repo")).unwrap();
        harness::copy(&Path::new(ROOT).join("examples/landscape"), repository.path());
        repository.write(RULES, rules).unwrap();
        repository.commit("the example").unwrap();
        let base = git(&repository, &["rev-parse", "HEAD"]);
        change(&repository);
        repository.commit("a change").unwrap();
        Change { folder, repository, base, labels: "" }
    }

    fn temporary(&self) -> PathBuf {
        let path = self.folder.path().join("temporary");
        fs::create_dir_all(&path).unwrap();
        path
    }

    /// Runs a script as a runner does.
    fn run(&self, script: &str, variables: &BTreeMap<String, String>) -> Ended {
        let binary = Path::new(env!("CARGO_BIN_EXE_tidegate")).parent().unwrap();
        let path = format!("{}:{}", binary.display(), env::var("PATH").unwrap());
        let output = Command::new("bash")
            .args(["--noprofile", "--norc", "-eo", "pipefail", "-c", script])
            .current_dir(self.repository.path())
            .envs(variables)
            .env("PATH", path)
            .output()
            .unwrap();
        let out = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        Ended { exit: output.status.code().unwrap(), out }
    }
}

fn example(name: &str) -> String {
    fs::read_to_string(Path::new(ROOT).join("examples/ci").join(name)).unwrap()
}

fn parsed(name: &str) -> Value {
    let documents = yaml::parse(&example(name), &yaml::Limits::default()).unwrap();
    assert_eq!(documents.len(), 1);
    documents[0].to_json()
}

fn git(repository: &Repository, arguments: &[&str]) -> String {
    let output = Command::new("git").args(arguments).current_dir(repository.path()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

/// A version moves to another channel.
fn bump(repository: &Repository) {
    repository.replace("modules/cache/module-release-meta.yaml", "version: 1.0.0", "version: 1.1.0").unwrap();
}

fn break_it(repository: &Repository) {
    repository.replace("landscapes/dev/kyma.yaml", "channel: fast", "channel: FAST").unwrap();
}

// === GitHub ===

/// The steps of the job that run a script: name, script and variables.
fn steps() -> Vec<(String, String, BTreeMap<String, String>)> {
    let workflow = parsed("github.yaml");
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let variables = |value: Option<&Value>| -> BTreeMap<String, String> {
        value.and_then(Value::as_object).into_iter().flatten().map(|(key, value)| (key.clone(), text(value))).collect()
    };
    let job = &workflow["jobs"]["diff"];
    let steps = job["steps"].as_array().unwrap().iter().filter(|step| step.get("run").is_some());
    steps
        .map(|step| {
            let mut all = variables(job.get("env"));
            all.extend(variables(step.get("env")));
            (text(&step["name"]), text(&step["run"]), all)
        })
        .collect()
}

/// Runs the steps that need no network, in their order, and gives how each ended.
fn github(change: &Change) -> Vec<(String, Ended)> {
    let temporary = change.temporary();
    let file = |name: &str| temporary.join(name).to_str().unwrap().to_owned();
    let mut ended: Vec<(String, Ended)> = Vec::new();
    for (name, script, mut variables) in steps() {
        if ["curl ", "gh "].iter().any(|network| script.contains(network)) {
            continue;
        }
        let outputs = fs::read_to_string(file("output")).unwrap_or_default();
        let code = outputs.trim().strip_prefix("code=").unwrap_or_default().to_owned();
        for value in variables.values_mut() {
            *value = value.replace("${{ steps.compare.outputs.code }}", &code);
            *value = value.replace("${{ join(github.event.pull_request.labels.*.name, ' ') }}", change.labels);
            assert!(!value.contains("${{"), "{name} has a variable that this test does not know: {value}");
        }
        variables.insert("RUNNER_TEMP".to_owned(), temporary.to_str().unwrap().to_owned());
        variables.insert("GITHUB_OUTPUT".to_owned(), file("output"));
        variables.insert("GITHUB_STEP_SUMMARY".to_owned(), file("summary"));
        let one = change.run(&script, &variables);
        let failed = one.exit != 0;
        ended.push((name, one));
        if failed {
            break;
        }
    }
    ended
}

#[test]
fn a_workflow_trusts_no_fork() {
    let text = example("github.yaml");
    let code: String = text.lines().filter(|line| !line.trim_start().starts_with('#')).collect::<Vec<_>>().join("\n");
    assert!(!code.contains("vars."), "a fork's pull request sees no variables of the repository");
    assert!(!example("gitlab.yaml").contains("image: $"), "nor does a fork's pipeline");
    assert!(!code.contains("pull_request_target"), "a fork's code would run with the rights of the repository");
    let workflow = parsed("github.yaml");
    assert_eq!(workflow["permissions"], serde_json::json!({"contents": "read"}));
    let checkout = &workflow["jobs"]["diff"]["steps"][0]["with"];
    assert_eq!((&checkout["fetch-depth"], &checkout["persist-credentials"]), (&0.into(), &false.into()));
    for (name, script, _) in steps() {
        assert!(!script.contains("${{"), "{name}: an expression in a script is a way to inject one");
    }
    let writes = |step: &&Value| {
        let text = step.to_string();
        text.contains("gh api") || text.contains("upload-sarif")
    };
    for step in workflow["jobs"]["diff"]["steps"].as_array().unwrap().iter().filter(writes) {
        assert_eq!(step["if"], "github.event.pull_request.head.repo.full_name == github.repository");
    }
}

/// What is wrong with the platform must not stand between a change and its judgement.
#[test]
fn a_workflow_judges_whatever_becomes_of_the_rest() {
    let workflow = parsed("github.yaml");
    let steps = workflow["jobs"]["diff"]["steps"].as_array().unwrap();
    let judge = steps.last().unwrap();
    assert_eq!(judge["name"], "Judge");
    assert_eq!(judge["if"], "${{ !cancelled() && steps.compare.outcome == 'success' }}");
    let upload =
        steps.iter().find(|step| step["uses"].as_str().is_some_and(|uses| uses.contains("upload-sarif"))).unwrap();
    assert_eq!(upload["continue-on-error"], true);
    // The checkout is a merge: what its first parent had is not ours.
    let change = Change::new(bump);
    let repository = &change.repository;
    git(repository, &["checkout", "-q", "-b", "theirs", &change.base]);
    repository.replace("landscapes/prod/kyma.yaml", "    - name: mailer\n", "").unwrap();
    repository.commit("what the base did since").unwrap();
    git(repository, &["-c", "user.name=a", "-c", "user.email=a@b", "merge", "-q", "--no-edit", "main"]);
    let ended = github(&change);
    assert_eq!(ended.last().map(|(_, one)| one.exit), Some(0), "{}", ended[0].1.out);
    assert!(!ended[0].1.out.contains("mailer"), "{}", ended[0].1.out);
}

#[test]
fn a_workflow_shows_a_change_and_passes() {
    let change = Change::new(bump);
    let ended = github(&change);
    let names: Vec<(&str, i32)> = ended.iter().map(|(name, one)| (name.as_str(), one.exit)).collect();
    assert_eq!(names, [("Compare", 0), ("Judge", 0)], "{}", ended[0].1.out);
    assert!(
        ended[0].1.out.contains("::notice file=modules/cache/module-release-meta.yaml,line="),
        "{}",
        ended[0].1.out
    );
    let temporary = change.temporary();
    let comment = fs::read_to_string(temporary.join("comment.md")).unwrap();
    assert!(comment.starts_with("<!-- tidegate-diff -->\n"), "{comment}");
    assert_eq!(fs::read_to_string(temporary.join("summary")).unwrap(), comment);
    assert_eq!(fs::read_to_string(temporary.join("output")).unwrap(), "code=1\n");
    let sarif: Value = serde_json::from_str(&fs::read_to_string(temporary.join("tidegate.sarif")).unwrap()).unwrap();
    assert_eq!(sarif["version"], "2.1.0");
    // The marker by which the comment is found again is the one that it is given.
    assert!(example("github.yaml").contains("startswith(\"<!-- tidegate-diff -->\")"));
}

#[test]
fn a_workflow_fails_on_what_is_invalid_after_it_was_shown() {
    let change = Change::new(break_it);
    let ended = github(&change);
    let names: Vec<(&str, i32)> = ended.iter().map(|(name, one)| (name.as_str(), one.exit)).collect();
    assert_eq!(names, [("Compare", 0), ("Judge", 3)], "{}", ended[0].1.out);
    assert!(ended[0].1.out.contains("::error file=landscapes/dev/kyma.yaml,line=16"), "{}", ended[0].1.out);
    let comment = fs::read_to_string(change.temporary().join("comment.md")).unwrap();
    assert!(comment.contains("landscapes/dev/kyma.yaml:16"), "{comment}");
}

#[test]
fn rules_are_those_of_the_base() {
    let strict = "- {name: frozen, message: nothing may change, rule: 'false'}\n";
    let change = Change::with_rules(strict, |repository| {
        bump(repository);
        repository.write(RULES, "[]\n").unwrap();
    });
    let ended = github(&change);
    assert_eq!(ended.last().map(|(name, one)| (name.as_str(), one.exit)), Some(("Judge", 4)), "{}", ended[0].1.out);
    assert!(ended[0].1.out.contains("policy/frozen"), "{}", ended[0].1.out);
}

/// A label approves a rule, and a trailer, which the author of a change can write, does not.
#[test]
fn only_a_label_approves() {
    let judged = |labels: &'static str| {
        let change = Change::new(|repository| {
            repository.write("README.md", "a larger cache\n").unwrap();
            repository.commit("announced\n\nTidegate-Approve: crd").unwrap();
            repository.replace("modules/cache/1.1.0/objects/crd.yaml", "maximum: 5", "maximum: 6").unwrap();
        });
        let change = Change { labels, ..change };
        let exits = (github(&change).last().unwrap().1.exit, gitlab(&change).exit);
        let comments =
            [change.temporary().join("comment.md"), change.repository.path().join("tidegate-report.tmp/note.md")];
        (exits, comments.map(|path| fs::read_to_string(path).unwrap()))
    };
    let (exits, comments) = judged("other");
    assert_eq!(exits, (4, 4));
    for comment in comments {
        let step = "to approve `crd`, set the label `tidegate-approve/crd` and run the comparison again";
        assert!(comment.contains(step), "{comment}");
        assert!(!comment.contains("Tidegate-Approve"), "a trailer does nothing: {comment}");
    }
    assert_eq!(judged("other tidegate-approve/crd").0, (0, 0));
}

// === GitLab ===

#[test]
fn a_job_of_gitlab_shows_a_change_and_passes() {
    let change = Change::new(bump);
    let ended = gitlab(&change);
    assert_eq!(ended.exit, 0, "{}", ended.out);
    let report =
        |name: &str| fs::read_to_string(change.repository.path().join("tidegate-report.tmp").join(name)).unwrap();
    assert!(report("note.md").starts_with("<!-- tidegate-diff -->\n"));
    assert!(report("junit.xml").contains("<testsuite name=\"policies\""), "{}", report("junit.xml"));
    let quality: Value = serde_json::from_str(&report("codequality.json")).unwrap();
    assert!(quality.as_array().unwrap().iter().any(|one| one["check_name"] == "diff/change"), "{quality}");
}

#[test]
fn a_job_of_gitlab_fails_on_what_is_invalid_and_keeps_its_reports() {
    let change = Change::new(break_it);
    let ended = gitlab(&change);
    assert_eq!(ended.exit, 3, "{}", ended.out);
    let job = &parsed("gitlab.yaml")["tidegate"];
    assert_eq!(job["artifacts"]["when"], "always");
    for path in job["artifacts"]["reports"].as_object().unwrap().values() {
        assert!(change.repository.path().join(path.as_str().unwrap()).is_file(), "{path}");
    }
}

/// Runs the part of the job that needs no network.
fn gitlab(change: &Change) -> Ended {
    let job = &parsed("gitlab.yaml")["tidegate"];
    let lines = |key: &str| -> String {
        job[key].as_array().unwrap().iter().map(|line| line.as_str().unwrap()).collect::<Vec<_>>().join("\n")
    };
    assert!(lines("before_script").contains("curl ") && lines("after_script").contains("curl "));
    assert!(!lines("script").contains("curl "));
    let mut variables: BTreeMap<String, String> = job["variables"]
        .as_object()
        .unwrap()
        .iter()
        .map(|(key, value)| (key.clone(), value.as_str().unwrap().to_owned()))
        .collect();
    variables.insert("CI_MERGE_REQUEST_DIFF_BASE_SHA".to_owned(), change.base.clone());
    variables.insert("CI_MERGE_REQUEST_TARGET_BRANCH_SHA".to_owned(), String::new());
    variables.insert("CI_MERGE_REQUEST_LABELS".to_owned(), change.labels.replace(' ', ","));
    change.run(&lines("script"), &variables)
}

// === rendered objects ===

/// A repository with the sources of two modules, and programs that stand for kustomize and Helm.
fn with_sources() -> Change {
    Change::new(|repository| {
        let object = |name: &str| format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {name}}}\n");
        repository.write("sources/cache/kustomization.yaml", "resources: [a.yml]\n").unwrap();
        repository.write("sources/cache/a.yml", &object("cache")).unwrap();
        repository.write("sources/mailer/Chart.yaml", "name: mailer\n").unwrap();
        repository.write("sources/mailer/templates/a.yml", &object("mailer")).unwrap();
        let program = |name: &str, script: &str| {
            let path = format!(".tidegate/bin/{name}");
            repository.write(&path, &format!("#!/bin/sh\n{script}\n")).unwrap();
            let path = repository.path().join(path);
            fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        };
        program("kustomize", "[ \"$1\" = build ] && cat \"$2\"/*.yml");
        program("helm", "[ \"$1 $2\" = 'template mailer' ] && cat \"$3\"/templates/*.yml");
    })
}

/// The scripts of a job that render, with the variables of the job.
fn rendering(change: &Change, script: &str, variables: &Value, more: &[(&str, &str)]) -> Ended {
    let all =
        variables.as_object().unwrap().iter().map(|(key, value)| (key.clone(), value.as_str().unwrap().to_owned()));
    let more = more.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
    let variables: BTreeMap<String, String> = all.chain(more).collect();
    change.run(&format!("PATH=\"$PWD/.tidegate/bin:$PATH\"\n{script}"), &variables)
}

const RENDERED: [&str; 2] = ["modules/cache/1.1.0/objects/rendered.yaml", "modules/mailer/2.4.0/objects/rendered.yaml"];

#[test]
fn a_workflow_commits_rendered_objects_and_a_fork_is_told_to() {
    let job = &parsed("render-github.yaml")["jobs"]["render"];
    let script = |name: &str| {
        let steps = job["steps"].as_array().unwrap();
        let step = steps.iter().find(|step| step["name"] == name).unwrap();
        step["run"].as_str().unwrap().to_owned()
    };
    let change = with_sources();
    let remote = change.temporary().join("remote.git");
    git(&change.repository, &["clone", "-q", "--bare", ".", remote.to_str().unwrap()]);
    git(&change.repository, &["remote", "add", "origin", remote.to_str().unwrap()]);
    let run =
        |name: &str, fork: &str| rendering(&change, &script(name), &job["env"], &[("FORK", fork), ("BRANCH", "topic")]);
    assert_eq!(run("Render", "false").exit, 0);
    let refused = run("Commit", "true");
    assert_eq!(refused.exit, 1);
    assert!(refused.out.contains("::error::The rendered objects are not up to date"), "{}", refused.out);
    let ended = run("Commit", "false");
    assert_eq!(ended.exit, 0, "{}", ended.out);
    let pushed = git(&change.repository, &["rev-parse", "HEAD"]);
    let tip = Command::new("git").args(["rev-parse", "topic"]).current_dir(&remote).output().unwrap();
    assert_eq!(String::from_utf8(tip.stdout).unwrap().trim(), pushed);
    for (path, name) in RENDERED.iter().zip(["cache", "mailer"]) {
        let text = fs::read_to_string(change.repository.path().join(path)).unwrap();
        assert!(text.contains(&format!("name: {name}")), "{text}");
    }
    // The next run has nothing to do.
    assert_eq!((run("Render", "true").exit, run("Commit", "true").exit), (0, 0));
    assert_eq!(git(&change.repository, &["rev-parse", "HEAD"]), pushed);
    // What was rendered is a part of the modules.
    let ended = change.run("tidegate validate .", &BTreeMap::new());
    assert!(ended.out.contains("sources/mailer/Chart.yaml"), "the sources are not ignored here: {}", ended.out);
}

#[test]
fn a_job_of_gitlab_fails_until_rendered_objects_are_committed() {
    let job = &parsed("render-gitlab.yaml")["render"];
    let lines = job["script"].as_array().unwrap().iter().map(|line| line.as_str().unwrap());
    let script = lines.collect::<Vec<_>>().join("\n");
    let change = with_sources();
    let ended = rendering(&change, &script, &job["variables"], &[]);
    assert_eq!(ended.exit, 1, "{}", ended.out);
    assert!(ended.out.contains("apply render.patch"), "{}", ended.out);
    git(&change.repository, &["reset", "-q", "--hard"]);
    git(&change.repository, &["apply", "render.patch"]);
    fs::remove_file(change.repository.path().join("render.patch")).unwrap();
    change.repository.commit("rendered").unwrap();
    let ended = rendering(&change, &script, &job["variables"], &[]);
    assert_eq!(ended.exit, 0, "{}", ended.out);
}

/// A user must see that a checksum of an example is none.
#[test]
fn no_checksum_of_an_example_looks_like_a_real_one() {
    for name in ["github.yaml", "gitlab.yaml", "render-github.yaml", "render-gitlab.yaml"] {
        let text = fs::read_to_string(Path::new(ROOT).join("examples/ci").join(name)).unwrap();
        let values: Vec<&str> = text.lines().filter_map(|line| Some(line.split_once("_SHA256: ")?.1)).collect();
        assert!(!values.is_empty(), "{name}");
        assert!(values.iter().all(|value| value.starts_with("REPLACE-THIS-BY-")), "{name}: {values:?}");
    }
}

/// Both pipelines get the program out of the archive of a release, as `deploy/release/archive` makes it.
#[test]
fn pipelines_unpack_an_archive_of_a_release_and_check_it() {
    let workflow = parsed("github.yaml");
    let steps = workflow["jobs"]["diff"]["steps"].as_array().unwrap();
    let of_github = steps.iter().find(|step| step["name"] == "Get tidegate").unwrap()["run"].as_str().unwrap();
    let of_gitlab = parsed("gitlab.yaml")["tidegate"]["before_script"][0].as_str().unwrap().to_owned();
    // A runner has what `apt-get` installs.
    let of_gitlab: Vec<&str> = of_gitlab.lines().filter(|line| !line.starts_with("apt-get ")).collect();
    for script in [of_github.to_owned(), of_gitlab.join("\n")] {
        let change = Change::new(|_| {});
        let temporary = change.temporary();
        let program = temporary.join("program");
        fs::write(&program, "#!/bin/sh\necho it runs\n").unwrap();
        let archive = Command::new(Path::new(ROOT).join("deploy/release/archive"))
            .args([program.to_str().unwrap(), "0.1.0", "x86_64-unknown-linux-gnu", temporary.to_str().unwrap()])
            .env("TIDEGATE_RUN", env!("CARGO_BIN_EXE_tidegate"))
            .output()
            .unwrap();
        assert!(archive.status.success(), "{archive:?}");
        let archive = temporary.join("tidegate-0.1.0-x86_64-unknown-linux-gnu.tar.gz");
        let sum = Command::new("sha256sum").arg(&archive).output().unwrap().stdout;
        let sum = String::from_utf8(sum).unwrap().split(' ').next().unwrap().to_owned();
        for (sum, expected) in [(sum.clone(), 0), (sum.replace(|digit: char| digit.is_ascii_digit(), "0"), 1)] {
            let folder = tempfile::tempdir().unwrap();
            let home = folder.path().to_str().unwrap().to_owned();
            let variables: BTreeMap<String, String> = [
                ("TIDEGATE_URL", format!("file://{}", archive.display())),
                ("TIDEGATE_SHA256", sum),
                ("RUNNER_TEMP", home.clone()),
                ("HOME", home.clone()),
                ("GITHUB_PATH", format!("{home}/path")),
            ]
            .map(|(name, value)| (name.to_owned(), value))
            .into();
            let ended = change.run(&format!("{script}\n\"{home}/bin/tidegate\""), &variables);
            assert_eq!(ended.exit, expected, "{script}\n{}", ended.out);
            assert_eq!(ended.out.contains("it runs"), expected == 0, "{}", ended.out);
        }
    }
}

// === scripts that need a network, and pre-commit ===

#[test]
fn every_script_is_one_that_the_shell_can_read() {
    let change = Change::new(bump);
    let mut scripts: Vec<String> = steps().into_iter().map(|(_, script, _)| script).collect();
    let job = &parsed("gitlab.yaml")["tidegate"];
    for key in ["before_script", "script", "after_script"] {
        scripts.extend(job[key].as_array().unwrap().iter().map(|line| line.as_str().unwrap().to_owned()));
    }
    for step in parsed("render-github.yaml")["jobs"]["render"]["steps"].as_array().unwrap() {
        scripts.extend(step["run"].as_str().map(str::to_owned));
    }
    for key in ["before_script", "script"] {
        let job = &parsed("render-gitlab.yaml")["render"];
        scripts.extend(job[key].as_array().unwrap().iter().map(|line| line.as_str().unwrap().to_owned()));
    }
    for script in scripts {
        let quoted = script.replace('\'', "'\\''");
        let ended = change.run(&format!("bash -n -c '{quoted}'"), &BTreeMap::new());
        assert_eq!(ended.exit, 0, "{script}\n{}", ended.out);
    }
}

#[test]
fn the_hook_lets_good_commits_pass_and_no_others() {
    let hooks = [&parsed("pre-commit-config.yaml")["repos"][0]["hooks"][0], &hook_of_the_root()];
    for hook in hooks {
        assert_eq!((&hook["id"], &hook["pass_filenames"]), (&"tidegate-validate".into(), &false.into()));
        let entry = hook["entry"].as_str().unwrap();
        let files = regex::Regex::new(hook["files"].as_str().unwrap()).unwrap();
        assert!(files.is_match("a/b.yaml") && files.is_match("a.yml") && files.is_match("a.json"));
        assert!(!files.is_match("README.md"));
        assert_eq!(Change::new(bump).run(entry, &BTreeMap::new()).exit, 0);
        assert_eq!(Change::new(break_it).run(entry, &BTreeMap::new()).exit, 3);
    }
}

fn hook_of_the_root() -> Value {
    let text = fs::read_to_string(Path::new(ROOT).join(".pre-commit-hooks.yaml")).unwrap();
    yaml::parse(&text, &yaml::Limits::default()).unwrap()[0].to_json()[0].clone()
}
