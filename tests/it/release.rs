//! Releases: the scripts on sample data, the workflows as far as they can be checked here, and the container files.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use regex::Regex;
use serde_json::Value;

use crate::{deploy, harness};

const RELEASE: &str = ".github/workflows/release.yml";
const TARGETS: [&str; 4] =
    ["x86_64-unknown-linux-gnu", "aarch64-unknown-linux-gnu", "x86_64-apple-darwin", "aarch64-apple-darwin"];

fn path(below: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(below)
}

fn read(below: &str) -> String {
    fs::read_to_string(path(below)).unwrap_or_else(|error| panic!("{below}: {error}"))
}

/// Runs one of the scripts of `deploy/release`. Completions and man pages are those of this program.
fn script(name: &str, args: &[&str]) -> Output {
    let script = path("deploy/release").join(name);
    let run = env!("CARGO_BIN_EXE_tidegate");
    Command::new(script).args(args).env("TIDEGATE_RUN", run).output().expect("it runs")
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[track_caller]
fn succeeds(output: &Output) {
    assert!(output.status.success(), "{}", stderr(output));
}

/// A release of a small program as the archives of all targets, with checksums, formula and install script.
struct Release {
    folder: tempfile::TempDir,
}

/// The program of each archive. The one of this build has hundreds of megabytes of symbols.
const PROGRAM: &str = "#!/bin/sh\necho tidegate 0.1.0\n";

impl Release {
    fn new() -> Release {
        Release::of(PROGRAM)
    }

    fn of(program: &str) -> Release {
        let release = Release { folder: tempfile::tempdir().expect("a folder") };
        fs::write(release.path().join("program"), program).expect("a file");
        for target in TARGETS {
            succeeds(&script("archive", &[&release.file("program"), "0.1.0", target, release.text()]));
        }
        let sums = Command::new("sha256sum").args(TARGETS.map(archive)).current_dir(release.path()).output();
        fs::write(release.path().join("SHA256SUMS"), sums.expect("sha256sum runs").stdout).expect("a file");
        succeeds(&script("generate", &["0.1.0", &release.file("SHA256SUMS"), release.text()]));
        release
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    fn text(&self) -> &str {
        self.path().to_str().expect("UTF-8")
    }

    fn file(&self, name: &str) -> String {
        format!("{}/{name}", self.text())
    }

    /// Runs the install script as on a machine of this kind, with the release as a mirror.
    fn install(&self, system: &str, machine: &str) -> Output {
        let programs = self.path().join("programs");
        fs::create_dir_all(&programs).expect("a folder");
        let uname = format!("#!/bin/sh\nif [ \"$1\" = -s ]; then echo {system}; else echo {machine}; fi\n");
        fs::write(programs.join("uname"), uname).expect("a file");
        succeeds(&Command::new("chmod").arg("755").arg(programs.join("uname")).output().expect("it runs"));
        let search = std::env::var("PATH").expect("a search path");
        Command::new("sh")
            .arg(self.file("install.sh"))
            .env("PATH", format!("{}:{search}", programs.display()))
            .env("TIDEGATE_PREFIX", self.path().join("prefix"))
            .env("TIDEGATE_BASE_URL", format!("file://{}", self.text()))
            .output()
            .expect("it runs")
    }
}

fn archive(target: &str) -> String {
    format!("tidegate-0.1.0-{target}.tar.gz")
}

#[test]
fn archive_holds_the_program_its_completions_and_its_man_pages() {
    let release = Release::new();
    let list = Command::new("tar").arg("-tzf").arg(release.file(&archive(TARGETS[0]))).output().expect("it runs");
    let list = String::from_utf8(list.stdout).expect("UTF-8");
    let folder = "tidegate-0.1.0-x86_64-unknown-linux-gnu";
    let shells = ["bash", "zsh", "fish", "powershell", "elvish"].map(|shell| format!("completions/tidegate.{shell}"));
    let pages = ["man/tidegate.1", "man/tidegate-run.1", "man/tidegate-adopt-take.1"];
    let files = ["tidegate", "LICENSE", "README.md", "CHANGELOG.md"].into_iter().chain(pages).map(str::to_owned);
    for file in files.chain(shells) {
        assert!(list.lines().any(|line| line == format!("{folder}/{file}")), "{file} is not in\n{list}");
    }
    // The same files give the same archive.
    let again = tempfile::tempdir().expect("a folder");
    let folder = again.path().to_str().expect("UTF-8");
    succeeds(&script("archive", &[&release.file("program"), "0.1.0", TARGETS[0], folder]));
    let bytes = |folder: &Path| fs::read(folder.join(archive(TARGETS[0]))).expect("an archive");
    assert!(bytes(release.path()) == bytes(again.path()), "the archives differ");
}

#[test]
fn install_script_installs_what_has_the_checksum_of_the_release_and_nothing_else() {
    let release = Release::new();
    for (system, machine) in [("Linux", "x86_64"), ("Linux", "aarch64"), ("Darwin", "arm64"), ("Darwin", "x86_64")] {
        let _ = fs::remove_dir_all(release.path().join("prefix"));
        let output = release.install(system, machine);
        succeeds(&output);
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(said.contains(&format!("add {} to PATH", release.file("prefix/bin"))), "{said}");
        let installed = Command::new(release.file("prefix/bin/tidegate")).arg("version").output().expect("it runs");
        succeeds(&installed);
        let completions = [
            "bash-completion/completions/tidegate",
            "zsh/site-functions/_tidegate",
            "fish/vendor_completions.d/tidegate.fish",
        ];
        for file in completions.iter().chain(&["man/man1/tidegate.1"]) {
            assert!(release.path().join("prefix/share").join(file).is_file(), "{file} on {system} {machine}");
        }
    }
    let unknown = release.install("Plan9", "mips");
    assert!(!unknown.status.success() && stderr(&unknown).contains("there is no binary for Plan9 on mips"));

    fs::remove_dir_all(release.path().join("prefix")).expect("it was installed");
    let mut bytes = fs::read(release.file(&archive(TARGETS[1]))).expect("an archive");
    bytes.push(0);
    fs::write(release.file(&archive(TARGETS[1])), bytes).expect("a file");
    let changed = release.install("Linux", "aarch64");
    assert!(!changed.status.success() && stderr(&changed).contains("nothing is installed"), "{}", stderr(&changed));
    assert!(!release.path().join("prefix").exists());
    succeeds(&release.install("Linux", "x86_64"));
}

#[test]
fn install_script_installs_no_program_that_does_not_run() {
    let release = Release::of("#!/bin/sh\nexit 1\n");
    let output = release.install("Linux", "x86_64");
    assert!(!output.status.success() && stderr(&output).contains("it needs glibc 2.35"), "{}", stderr(&output));
    let left = fs::read_dir(release.path().join("prefix/bin")).expect("a folder").count();
    assert_eq!(left, 0, "files are left");
}

#[test]
fn formula_has_the_checksum_of_each_archive() {
    let release = Release::new();
    let formula = fs::read_to_string(release.file("tidegate.rb")).expect("a formula");
    let sums = fs::read_to_string(release.file("SHA256SUMS")).expect("checksums");
    assert_eq!(sums.lines().count(), TARGETS.len());
    for line in sums.lines() {
        let (sum, name) = line.split_once("  ").expect("a checksum and a name");
        let url = format!("/releases/download/v0.1.0/{name}\"\n      sha256 \"{sum}\"\n");
        assert!(formula.contains(&url), "{url} is not in\n{formula}");
    }
    // A missing checksum and a version that is none are refused.
    let missing = script("generate", &["0.2.0", &release.file("SHA256SUMS"), release.text()]);
    assert!(!missing.status.success() && stderr(&missing).contains("has no checksum of tidegate-0.2.0-"));
    let invalid = script("generate", &["latest", &release.file("SHA256SUMS"), release.text()]);
    assert!(!invalid.status.success() && stderr(&invalid).contains(r#"invalid version "latest""#));
}

/// A step of a workflow, with its job, and the values of the job's matrix with which it runs.
struct Step {
    job: String,
    runner: String,
    values: BTreeMap<String, String>,
    step: Value,
}

// === impl Step ===

impl Step {
    fn text(&self, path: &[&str]) -> &str {
        path.iter().fold(&self.step, |value, key| &value[*key]).as_str().expect("a text")
    }
}

/// As GitHub has it: all combinations of the lists, then each entry of `include` is added to those that it fits, and is
/// one of its own if it fits none.
fn combinations(matrix: &Value) -> Vec<BTreeMap<String, String>> {
    let text = |value: &Value| value.as_str().expect("a text").to_owned();
    let mut all = vec![BTreeMap::new()];
    let axes = matrix.as_object().into_iter().flatten().filter(|(name, _)| *name != "include");
    for (name, values) in axes {
        let values: Vec<String> = values.as_array().expect("a list").iter().map(text).collect();
        let with = |one: &BTreeMap<String, String>, value: &String| {
            one.clone().into_iter().chain([(name.clone(), value.clone())]).collect()
        };
        all = all.iter().flat_map(|one| values.iter().map(move |value| with(one, value))).collect();
    }
    let axes: Vec<String> = all[0].keys().cloned().collect();
    let mut others = Vec::new();
    for entry in matrix["include"].as_array().into_iter().flatten() {
        let entry: BTreeMap<String, String> =
            entry.as_object().expect("a mapping").iter().map(|(name, value)| (name.clone(), text(value))).collect();
        let fits = |one: &&mut BTreeMap<String, String>| {
            axes.iter().all(|axis| entry.get(axis).is_none_or(|value| one[axis] == *value))
        };
        match axes.is_empty() {
            true => others.push(entry),
            false => all.iter_mut().filter(fits).for_each(|one| one.extend(entry.clone())),
        }
    }
    if others.is_empty() { all } else { others }
}

/// A text of a workflow with the values of the matrix.
fn expanded(text: &str, values: &BTreeMap<String, String>) -> String {
    values.iter().fold(text.to_owned(), |text, (name, value)| text.replace(&format!("${{{{ matrix.{name} }}}}"), value))
}

/// Each step of a workflow on each of its runners.
fn steps(workflow: &str) -> Vec<Step> {
    let workflow = deploy::documents(&read(workflow)).remove(0);
    let mut all = Vec::new();
    for (name, job) in workflow["jobs"].as_object().expect("jobs") {
        for values in combinations(&job["strategy"]["matrix"]) {
            let runner = expanded(job["runs-on"].as_str().expect("a runner"), &values);
            for step in job["steps"].as_array().expect("steps") {
                let is_skipped = step["if"] == "runner.os == 'Linux'" && runner.starts_with("macos-");
                assert!(step["if"].is_null() || step["if"] == "runner.os == 'Linux'", "{step}");
                if !is_skipped {
                    all.push(Step {
                        job: name.clone(),
                        runner: runner.clone(),
                        values: values.clone(),
                        step: step.clone(),
                    });
                }
            }
        }
    }
    all
}

/// A pattern of an image's artifacts matches none of the image whose name begins like it.
#[test]
fn each_download_of_the_workflow_gets_the_artifacts_of_its_image() {
    let steps = steps(RELEASE);
    let of = |action: &str, field: &str| -> Vec<(&Step, String)> {
        let is_of = |step: &&Step| step.step["uses"].as_str().is_some_and(|uses| uses.starts_with(action));
        let named = |step| (step, expanded(Step::text(step, &["with", field]), &step.values));
        steps.iter().filter(is_of).map(named).collect()
    };
    let uploaded: Vec<String> = of("actions/upload-artifact@", "name").into_iter().map(|(_, name)| name).collect();
    assert_eq!(uploaded.iter().collect::<BTreeSet<_>>().len(), uploaded.len(), "no two have one name: {uploaded:?}");
    let mut got: Vec<(String, Vec<String>)> = Vec::new();
    for (step, pattern) in of("actions/download-artifact@", "pattern") {
        let matching = Regex::new(&format!("^{}$", regex::escape(&pattern).replace(r"\*", "[^/]*"))).unwrap();
        let mut names: Vec<String> = uploaded.iter().filter(|name| matching.is_match(name)).cloned().collect();
        names.sort();
        let image = step.values.get("image").map(|image| format!(" {image}")).unwrap_or_default();
        got.push((format!("{}{image}", step.job), names));
    }
    let expected = |job: &str, names: &[&str]| -> (String, Vec<String>) {
        (job.to_owned(), names.iter().map(|name| (*name).to_owned()).collect())
    };
    let mut binaries = TARGETS.map(|target| format!("binary-{target}"));
    binaries.sort();
    let binaries: Vec<&str> = binaries.iter().map(String::as_str).collect();
    got.sort();
    assert_eq!(
        got,
        [
            expected("publish", &binaries),
            expected("publish", &["image-tidegate", "image-tidegate-agent"]),
            expected("sign-images tidegate", &["digest-amd64-tidegate", "digest-arm64-tidegate"]),
            expected("sign-images tidegate-agent", &["digest-amd64-tidegate-agent", "digest-arm64-tidegate-agent"]),
        ]
    );
}

/// The step of the workflow, as it stands, on small files. What writes a file while a shell lists its folder shows only
/// sometimes.
#[test]
fn the_checksums_list_every_file_and_never_themselves() {
    const TIMES: usize = 100;
    let steps = steps(RELEASE);
    let is_of_checksums = |step: &&Step| step.step["name"].as_str().is_some_and(|name| name.starts_with("Checksums"));
    let script = steps.iter().find(is_of_checksums).expect("a step").text(&["run"]).to_owned();
    let mut files: Vec<String> = TARGETS.map(archive).into();
    files.extend(["images.txt", "tidegate-0.1.0.tgz", "tidegate-crds-0.1.0.tgz"].map(str::to_owned));
    files.sort();
    for time in 1..=TIMES {
        let folder = tempfile::tempdir().expect("a folder");
        std::os::unix::fs::symlink(path("deploy"), folder.path().join("deploy")).expect("a link");
        fs::create_dir(folder.path().join("out")).expect("a folder");
        for file in &files {
            fs::write(folder.path().join("out").join(file), file).expect("a file");
        }
        // As GitHub runs it.
        let mut shell = Command::new("bash");
        shell.args(["-e", "-c", &script]).current_dir(folder.path()).env("VERSION", "0.1.0");
        succeeds(&shell.output().expect("it runs"));
        let sums = fs::read_to_string(folder.path().join("out/SHA256SUMS")).expect("checksums");
        let listed: Vec<&str> = sums.lines().filter_map(|line| Some(line.split_once("  ")?.1)).collect();
        assert_eq!(listed, files, "time {time} of {TIMES}");
        let mut check = Command::new("sha256sum");
        check.args(["--check", "SHA256SUMS"]).current_dir(folder.path().join("out"));
        succeeds(&check.output().expect("it runs"));
        assert!(folder.path().join("out/install.sh").is_file());
    }
}

/// What a runner of macOS runs: its bash is 3.2, which takes an empty array for an unset variable, and its tar is not
/// GNU's.
#[test]
fn scripts_that_macos_runs_need_neither_a_new_bash_nor_gnu_tar() {
    let named = Regex::new(r"(?:^|\s)((?:\.ci|deploy/release)/[a-z]+)\b").unwrap();
    let mut scripts = BTreeSet::new();
    for (workflow, _) in workflows() {
        for step in steps(&format!(".github/workflows/{workflow}")) {
            let run = step.step["run"].as_str().unwrap_or_default();
            if step.runner.starts_with("macos-") {
                scripts.extend(named.captures_iter(run).map(|found| found[1].to_owned()));
            }
        }
    }
    assert_eq!(scripts, BTreeSet::from(["deploy/release/archive".to_owned()]));
    // A guard names the array before: `${options[@]+"${options[@]}"}`.
    let array = Regex::new(r#"(\$\{\w+\[@\]\+)?"\$\{\w+\[@\]\}""#).unwrap();
    // Words that bash 3.2 does not have.
    let newer = Regex::new(r"\b(mapfile|readarray|declare -A|local -n|declare -n)\b|\$\{\w+(,,|\^\^|@Q)").unwrap();
    for script in &scripts {
        let text = read(script);
        assert!(text.contains("\nset -euo pipefail\n"), "{script}");
        let unguarded: Vec<&str> = array
            .captures_iter(&text)
            .filter(|found| found.get(1).is_none())
            .map(|found| found.get(0).expect("a match").as_str())
            .collect();
        assert_eq!(unguarded, [""; 0], "{script}");
        assert_eq!(newer.find(&text).map(|found| found.as_str()), None, "{script}");
    }
    assert!(array.captures("tar \"${options[@]}\"").is_some_and(|found| found.get(1).is_none()), "it would find one");

    // With a tar that knows none of GNU's options.
    let folder = tempfile::tempdir().expect("a folder");
    let at = |name: &str| folder.path().join(name).to_str().expect("UTF-8").to_owned();
    let search = std::env::var("PATH").expect("a search path");
    let real = search.split(':').map(|folder| format!("{folder}/tar")).find(|tar| Path::new(tar).is_file());
    let tar = format!(
        "#!/bin/sh\nfor one in \"$@\"; do case \"$one\" in\n  --version) echo 'bsdtar 3.5.3 - libarchive 3.7.4'; exit ;;\n  \
         --*) echo \"Option $one is not supported\" >&2; exit 1 ;;\nesac; done\nexec {} \"$@\"\n",
        real.expect("a tar"),
    );
    fs::create_dir(at("programs")).expect("a folder");
    fs::write(at("programs/tar"), tar).expect("a file");
    fs::write(at("program"), PROGRAM).expect("a file");
    succeeds(&Command::new("chmod").arg("755").arg(at("programs/tar")).output().expect("it runs"));
    let packed = Command::new(path("deploy/release/archive"))
        .args([&at("program"), "0.1.0", TARGETS[3], &at("out")])
        .env("PATH", format!("{}:{search}", at("programs")))
        .env("TIDEGATE_RUN", env!("CARGO_BIN_EXE_tidegate"))
        .output();
    succeeds(&packed.expect("it runs"));
    let list = Command::new("tar").arg("-tzf").arg(at(&format!("out/{}", archive(TARGETS[3])))).output();
    let list = String::from_utf8(list.expect("it runs").stdout).expect("UTF-8");
    assert!(list.contains("tidegate-0.1.0-aarch64-apple-darwin/man/tidegate.1\n"), "{list}");
}

/// What a release builds, as `OS ARCHITECTURE PACKAGE FEATURES`.
fn built(runner: &str, command: &str) -> Option<String> {
    let words: Vec<&str> = command.split_whitespace().collect();
    if words.first() != Some(&"cargo") || !["build", "check"].contains(words.get(1)?) {
        return None;
    }
    let package = words.iter().position(|word| *word == "-p").and_then(|at| words.get(at + 1))?;
    let features = if words.contains(&"--no-default-features") { "without features" } else { "with features" };
    let system = if runner.starts_with("macos-") { "macOS arm64" } else { "Linux" };
    let machine = match system {
        "Linux" if runner.ends_with("-arm") => " arm64",
        "Linux" => " amd64",
        _ => "",
    };
    Some(format!("{system}{machine} {package} {features}"))
}

/// Each program is compiled before a change is merged, for each system and architecture, with the features of the
/// release. The runner of macOS builds both of its architectures, and checks its own.
#[test]
fn the_workflow_checks_what_a_release_builds() {
    let commands = |workflow: &str| -> BTreeSet<String> {
        let lines = |step: &Step| -> Vec<String> {
            let run = step.step["run"].as_str().unwrap_or_default();
            run.lines().filter_map(|line| built(&step.runner, line)).collect()
        };
        steps(workflow).iter().flat_map(lines).collect()
    };
    let mut released = commands(RELEASE);
    for step in steps(RELEASE).iter().filter(|step| step.values.contains_key("file")) {
        let file = read(&step.values["file"]);
        let build =
            file.lines().filter_map(|line| line.strip_prefix("RUN ")).find(|line| line.starts_with("cargo build"));
        let command = build.and_then(|build| build.split(" && ").next()).expect("a build");
        released.extend(built(&step.runner, command));
    }
    let expected = [
        "Linux amd64 tidegate with features",
        "Linux amd64 tidegate without features",
        "Linux amd64 tidegate-agent with features",
        "Linux arm64 tidegate with features",
        "Linux arm64 tidegate without features",
        "Linux arm64 tidegate-agent with features",
        "macOS arm64 tidegate with features",
    ];
    assert_eq!(released, expected.map(str::to_owned).into());
    let mut checked = commands(".github/workflows/ci.yml");
    // On amd64, all packages with all targets, and the product.
    let ci = steps(".github/workflows/ci.yml");
    assert!(ci.iter().any(|step| step.runner == "ubuntu-24.04" && step.step["run"] == ".ci/run"));
    let run = read(".ci/run");
    for line in [
        "step cargo clippy --quiet --locked --all-targets -- -D warnings\n",
        "step cargo clippy --quiet --locked -p tidegate --no-default-features -- -D warnings\n",
    ] {
        assert!(run.contains(line), "{line}");
    }
    assert!(
        read("Cargo.toml").contains("default-members = [\".\", \"crates/*\", \"lab/*\"]"),
        "without -p: all packages"
    );
    checked.extend(expected.iter().filter(|one| one.starts_with("Linux amd64 ")).map(|one| (*one).to_owned()));
    assert_eq!(released.difference(&checked).collect::<Vec<_>>(), [""; 0]);
    // On this machine, for the other architecture.
    let cross: BTreeSet<String> =
        read(".ci/cross").lines().filter_map(|line| built("ubuntu-22.04-arm", &line.replace(" --quiet", ""))).collect();
    assert_eq!(
        cross,
        expected.iter().filter(|one| one.starts_with("Linux arm64 ")).map(|one| (*one).to_owned()).collect()
    );
}

/// Where something that the check for another architecture needs is missing, `.ci/run` says so in a line and goes on.
#[test]
fn the_check_for_another_architecture_says_what_is_missing() {
    let run = read(".ci/run");
    for line in ["if ! missing=\"$(.ci/cross check)\"; then\n", "\n  step cross 600\n"] {
        assert!(run.contains(line), "{line}");
    }
    let folder = tempfile::tempdir().unwrap();
    let check = |tools: &[(&str, &str)]| {
        let bin = folder.path().join(tools.len().to_string());
        fs::create_dir(&bin).unwrap();
        for tool in ["bash", "dirname", "uname", "grep"] {
            let found =
                ["/usr/bin", "/bin"].map(|place| Path::new(place).join(tool)).into_iter().find(|at| at.exists());
            std::os::unix::fs::symlink(found.expect("it is installed"), bin.join(tool)).unwrap();
        }
        for (name, script) in tools {
            fs::write(bin.join(name), format!("#!/bin/bash\n{script}\n")).unwrap();
            fs::set_permissions(bin.join(name), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        }
        let output = Command::new("/bin/bash")
            .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join(".ci/cross"))
            .args(["check", "aarch64-unknown-linux-gnu"])
            .env("PATH", &bin)
            .env("XDG_CACHE_HOME", folder.path())
            .output()
            .unwrap();
        (String::from_utf8_lossy(&output.stdout).into_owned(), output.status.code())
    };
    let missing = |text: &str| (format!("{text}\n"), Some(1));
    assert_eq!(check(&[]), missing("rustup is not installed"));
    let none = ("rustup", "echo x86_64-unknown-linux-gnu");
    let said = "the standard library for aarch64-unknown-linux-gnu is not installed";
    assert_eq!(check(&[none]), missing(said));
    let library = ("rustup", "echo aarch64-unknown-linux-gnu");
    let no_pip = [library, ("python3", "exit 1"), ("rm", ":")];
    assert_eq!(check(&no_pip), missing("pip cannot install zig, which compiles the C code"));
}

/// The section headings of the changelog, with the kinds of changes below each.
fn sections(text: &str) -> Vec<(String, Vec<String>)> {
    let mut sections: Vec<(String, Vec<String>)> = Vec::new();
    for line in text.lines() {
        if let Some(kind) = line.strip_prefix("### ") {
            sections.last_mut().expect("a section").1.push(kind.to_owned());
        } else if let Some(heading) = line.strip_prefix("## ") {
            sections.push((heading.to_owned(), Vec::new()));
        }
    }
    sections
}

/// As <https://keepachangelog.com> has it, and as the workflow reads it.
#[test]
fn the_changelog_has_a_section_of_the_version_and_a_release_has_it_as_its_notes() {
    let version = env!("CARGO_PKG_VERSION");
    let changelog = read("CHANGELOG.md");
    let sections = sections(&changelog);
    let headings: Vec<&str> = sections.iter().map(|(heading, _)| heading.as_str()).collect();
    assert_eq!(headings[0], "[Unreleased]");
    let released = Regex::new(r"^\[(\d+\.\d+\.\d+)\] - \d{4}-\d{2}-\d{2}$").expect("a pattern");
    let versions: Vec<String> = headings[1..]
        .iter()
        .map(|heading| released.captures(heading).unwrap_or_else(|| panic!("## {heading}"))[1].to_owned())
        .collect();
    assert_eq!(versions.first().map(String::as_str), Some(version), "the version of Cargo.toml comes first");
    for (heading, kinds) in &sections {
        let known = ["Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"];
        let in_order: Vec<&str> = known.into_iter().filter(|kind| kinds.iter().any(|found| found == kind)).collect();
        assert_eq!(*kinds, in_order, "## {heading}");
    }
    for name in versions.iter().map(String::as_str).chain(["Unreleased"]) {
        let link = format!("\n[{name}]: https://github.com/tidegate/tidegate/");
        assert!(changelog.contains(&link), "{name} has no link");
    }

    let notes = script("notes", &[version]);
    succeeds(&notes);
    let notes = String::from_utf8(notes.stdout).expect("UTF-8");
    let (_, rest) = changelog.split_once(&format!("\n## [{version}] - ")).expect("a section");
    let section = rest.split_once('\n').expect("a line").1.split("\n## ").next().unwrap_or_default();
    let section = section.split("\n[Unreleased]: ").next().unwrap_or_default();
    assert_eq!(notes.trim(), section.trim());
    let missing = script("notes", &["9.9.9"]);
    assert!(!missing.status.success() && stderr(&missing).contains("has no section \"## [9.9.9] - DATE\""));
    let workflow = read(RELEASE);
    assert!(workflow.contains("deploy/release/notes --release \"$version\" >/dev/null"), "before anything is built");
    // A release lacks no entry.
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("CHANGELOG.md");
    let strict = |unreleased: &str| {
        let text = format!("## [Unreleased]\n{unreleased}\n## [0.1.0] - 2026-01-01\n\n* one\n\n[0.1.0]: https://a\n");
        fs::write(&file, text).expect("a file");
        script("notes", &["--release", "0.1.0", file.to_str().expect("UTF-8")])
    };
    succeeds(&strict(""));
    let left = strict("\n### Fixed\n\n* two\n");
    assert!(!left.status.success() && stderr(&left).contains("has entries below \"## [Unreleased]\""));
    assert!(workflow.contains("deploy/release/notes \"$VERSION\" >notes.md"), "the notes are one section");
}

#[test]
fn the_newest_glibc_that_a_binary_may_need_is_checked() {
    let binary = env!("CARGO_BIN_EXE_tidegate");
    let found = script("glibc", &[binary, "9.99"]);
    succeeds(&found);
    let found = String::from_utf8(found.stdout).expect("UTF-8");
    assert!(Regex::new(r"^2\.\d+\n$").unwrap().is_match(&found), "{found}");
    let refused = script("glibc", &[binary, "2.2"]);
    assert!(!refused.status.success() && stderr(&refused).contains("but at most 2.2 is allowed"));
}

#[test]
fn a_release_names_its_image_by_digest() {
    let folder = tempfile::tempdir().expect("a folder");
    harness::copy(&path("deploy"), folder.path());
    let text = |name: &str| folder.path().join(name).to_str().expect("UTF-8").to_owned();
    let base = text("base/kustomization.yaml");
    let digest = format!("sha256:{}", "0123456789abcdef".repeat(4));
    let agent = format!("sha256:{}", "fedcba9876543210".repeat(4));
    let packed = folder.path().to_str().expect("UTF-8");
    succeeds(&script("pin", &[&digest, &agent, packed]));
    let values = fs::read_to_string(text("chart/values.yaml")).expect("values");
    assert!(values.contains(&format!("\n  digest: {digest}\n")), "{values}");
    let base_text = fs::read_to_string(&base).expect("a kustomization");
    assert!(base_text.ends_with(&format!("  newName: ghcr.io/tidegate/tidegate\n  digest: {digest}\n")), "{base_text}");
    // Runtimes get the agent by its digest.
    let tag = format!("{}@{agent}", env!("CARGO_PKG_VERSION"));
    assert!(values.contains(&format!("\n    tag: \"{tag}\"\n")), "{values}");
    for overlay in ["istio-cert-manager", "direct-mtls"] {
        let overlay = fs::read_to_string(text(&format!("overlays/{overlay}/kustomization.yaml"))).expect("an overlay");
        assert!(overlay.contains(&format!("value: --skr-watcher-image-tag={tag}\n")), "{overlay}");
    }
    // Neither twice nor with something else.
    assert!(!script("pin", &[&digest, &agent, packed]).status.success());
    let invalid = script("pin", &["sha256:1", &agent, packed]);
    assert!(!invalid.status.success() && stderr(&invalid).contains(r#"invalid digest "sha256:1""#));
}

fn workflows() -> Vec<(String, String)> {
    let files = fs::read_dir(path(".github/workflows")).expect("a folder");
    let names = files.map(|file| file.expect("a file").file_name().into_string().expect("UTF-8"));
    let mut all: Vec<(String, String)> =
        names.map(|name| (name.clone(), read(&format!(".github/workflows/{name}")))).collect();
    all.sort();
    assert!(!all.is_empty());
    all
}

#[tokio::test(flavor = "multi_thread")]
async fn actionlint_finds_nothing_in_the_workflows() {
    let actionlint = harness::actionlint().await;
    let lint = |text: &str| {
        let file = tempfile::Builder::new().suffix(".yml").tempfile().expect("a file");
        fs::write(file.path(), text).expect("a file");
        Command::new(actionlint).args(["-no-color"]).arg(file.path()).output().expect("it runs")
    };
    for (name, text) in workflows() {
        let found = lint(&text);
        assert!(found.status.success(), "{name}: {}", String::from_utf8_lossy(&found.stdout));
    }
    // It would find something.
    assert!(!lint(&read(RELEASE).replace("needs: version", "needs: nothing")).status.success());
}

/// A change is upgraded to from the release before it: the job has the tags, and its script builds both programs.
#[test]
fn the_workflow_upgrades_from_the_release_before() {
    let workflow = deploy::documents(&read(".github/workflows/ci.yml")).remove(0);
    let steps = workflow["jobs"]["upgrade"]["steps"].as_array().expect("steps");
    assert!(steps.iter().any(|step| step["with"]["fetch-depth"] == 0), "the tags are there: {steps:?}");
    assert!(steps.iter().any(|step| step["run"] == ".ci/upgrade"), "{steps:?}");

    // The script in a repository with one release, with a `cargo` that only notes how it is called.
    let folder = tempfile::tempdir().expect("a folder");
    let at = |below: &str| folder.path().join(below);
    let repository = tidegate_testbed::Repository::init(&at("checkout")).expect("a repository");
    let script = read(".ci/upgrade");
    repository.write(".ci/upgrade", &script).expect("a file");
    let git = |args: &[&str]| {
        let output = Command::new("git").args(args).current_dir(at("checkout")).output().expect("git runs");
        succeeds(&output);
        String::from_utf8(output.stdout).expect("UTF-8").trim().to_owned()
    };
    let upgrade = |args: &[&str]| -> Vec<String> {
        let calls = at("calls");
        fs::write(&calls, "").expect("a file");
        let note = |name: &str| format!("echo \"{name} $(git log -1 --format=%s) $*\" >>{}", calls.display());
        let cargo = format!(
            "#!/bin/sh\n{}\nmkdir -p \"$CARGO_TARGET_DIR/debug\"\ncat >\"$CARGO_TARGET_DIR/debug/tidegate\" \
             <<'END'\n#!/bin/sh\n{}\nEND\nchmod +x \"$CARGO_TARGET_DIR/debug/tidegate\"\n",
            note("cargo"),
            note("tidegate"),
        );
        fs::create_dir_all(at("programs")).expect("a folder");
        fs::write(at("programs/cargo"), cargo).expect("a file");
        succeeds(&Command::new("chmod").arg("+x").arg(at("programs/cargo")).output().expect("it runs"));
        let path = format!("{}:{}", at("programs").display(), std::env::var("PATH").expect("a path"));
        let mut command = Command::new("bash");
        command.arg(at("checkout/.ci/upgrade")).args(args).env("PATH", path);
        let output = command.env("CARGO_TARGET_DIR", at("target")).output().expect("it runs");
        succeeds(&output);
        assert_eq!(git(&["worktree", "list"]).lines().count(), 1, "it leaves nothing behind");
        fs::read_to_string(&calls).expect("a file").lines().map(str::to_owned).collect()
    };
    repository.commit("one").expect("a commit");
    repository.write("a", "1").expect("a file");
    repository.commit("two").expect("a commit");
    repository.write("a", "2").expect("a file");
    repository.commit("three").expect("a commit");
    let old = at("target/before/debug/tidegate");
    let expected = |before: &str| -> Vec<String> {
        let sim = |servers: &str| {
            format!(
                "tidegate three sim upgrade --old {} --control-plane {servers} --runtime-servers {servers} --runtimes 4",
                old.display()
            )
        };
        let build = |of: &str| format!("cargo {of} build --quiet --locked");
        vec![build(before), build("three"), sim("simulated"), sim("real")]
    };
    assert_eq!(upgrade(&[]), expected("two"), "without a release, from the commit before");
    git(&["tag", "v0.1.0", "HEAD~2"]);
    assert_eq!(upgrade(&[]), expected("one"), "from the release before");
    git(&["tag", "v0.2.0", "HEAD"]);
    assert_eq!(upgrade(&[]), expected("one"), "a release is upgraded to from the one before it");
    assert_eq!(upgrade(&["HEAD~1"]), expected("two"));
}

#[test]
fn actions_are_pinned_by_commit_and_jobs_have_no_more_rights_than_named() {
    let pinned = Regex::new(r"^[\w-]+/[\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+$").unwrap();
    let mut commits = BTreeSet::new();
    for (name, text) in workflows() {
        for line in text.lines() {
            if let Some((_, action)) = line.split_once("uses: ") {
                assert!(pinned.is_match(action), "{name}: {action}");
                commits.insert(action.to_owned());
            }
        }
        assert!(text.contains("\npermissions:\n  contents: read\n"), "{name}: rights by default");
        assert!(!text.contains("write-all") && !text.contains("pull_request_target"), "{name}");
        // An expression is text of a shell only by a variable.
        let workflow = deploy::documents(&text).remove(0);
        let jobs = workflow["jobs"].as_object().expect("jobs").values();
        let steps = jobs.flat_map(|job| job["steps"].as_array().expect("steps"));
        for script in steps.filter_map(|step| step["run"].as_str()) {
            assert!(!script.contains("${{"), "{name}: {script}");
        }
    }
    // One version of each action.
    let actions: BTreeSet<&str> = commits.iter().filter_map(|action| action.split('@').next()).collect();
    assert_eq!(actions.len(), commits.len(), "{commits:?}");
}

#[test]
fn the_workflow_builds_all_targets_and_checks_the_version() {
    let release = read(RELEASE);
    for target in TARGETS {
        assert!(release.contains(&format!("{{target: {target}, ")), "{target}");
        assert!(read("docs/release.md").contains(&format!("`tidegate-VERSION-{target}.tar.gz`")), "{target}");
    }
    let maximum = Regex::new(r#"GLIBC_MAX: "([\d.]+)""#).unwrap();
    let maximum = &maximum.captures(&release).expect("a maximum")[1];
    assert!(read("docs/release.md").contains(&format!("need glibc {maximum} ")), "{maximum}");
    for file in ["deploy/Dockerfile", "deploy/Dockerfile.agent"] {
        assert!(release.contains(&format!("file: {file}}}")), "{file}");
    }
}

/// What docs/release.md promises of a release is made by a step of the workflow.
#[test]
fn the_workflow_makes_each_file_of_a_release_and_signs_it() {
    let release = read(RELEASE);
    for step in [
        // Archives, charts and kustomization.
        "deploy/release/archive \"target/$TARGET/dist/tidegate\" \"$VERSION\" \"$TARGET\" out",
        "cat images/* | sort >out/images.txt",
        "helm package packed/chart packed/chart-crds --destination out",
        "tar -C packed -czf \"out/tidegate-$VERSION-kustomize.tar.gz\" .",
        // SBOM, of the program and of the images.
        "cp bom.json \"out/tidegate-$VERSION.cdx.json\"",
        "uses: actions/attest-sbom@",
        "--sbom=true --provenance=mode=max",
        // Formula and install script; `the_checksums_list_every_file_and_never_themselves` runs the step.
        "deploy/release/generate \"$VERSION\" out/SHA256SUMS out",
        // Signatures.
        "cosign sign-blob --yes --bundle out/SHA256SUMS.sigstore.json out/SHA256SUMS",
        "cosign sign --yes \"$IMAGE@$digest\"",
        // Provenance of files and images.
        "subject-path: out/*",
        "subject-digest: ${{ steps.index.outputs.digest }}",
        "gh release create \"$GITHUB_REF_NAME\"",
        "case \"$VERSION\" in *-*) kind=(--prerelease) ;; esac",
        // Only what was merged and checked.
        "git merge-base --is-ancestor \"$commit\" origin/main",
        "actions/workflows/ci.yml/runs?branch=main&event=push&status=success&head_sha=$commit",
        "packed/release/pin \"$digest\" \"$agent\" packed",
    ] {
        assert!(release.contains(step), "{step}");
    }
    assert_eq!(release.matches("uses: actions/attest-build-provenance@").count(), 2, "files and images");
    // The archives have the demo, with which the quickstart begins; the image does not.
    let archives = release.lines().find(|line| line.contains("--target \"$TARGET\"")).expect("a build");
    assert!(!archives.contains("--no-default-features"), "{archives}");
    assert!(read("deploy/Dockerfile").contains("-p tidegate --no-default-features "));
}

/// What `tidegate version` prints comes from variables that both builds set.
#[test]
fn builds_tell_the_program_its_commit() {
    let release = read(RELEASE);
    let image = read("deploy/Dockerfile");
    let source = read("src/cli/version.rs");
    for name in ["COMMIT", "COMMIT_DATE"] {
        let variable = format!("TIDEGATE_{name}");
        assert!(source.contains(&format!("option_env!(\"{variable}\")")), "{variable}");
        assert!(release.contains(&format!("{variable}=\"$(git ")), "{variable} of archives");
        assert!(release.contains(&format!("--build-arg {name}=\"$(git ")), "{name} of images");
        assert!(image.contains(&format!("\nARG {name}\n")), "{name}");
        assert!(image.contains(&format!("{variable}=${name}")), "{variable} of images");
    }
    assert!(release.contains("export TIDEGATE_COMMIT TIDEGATE_COMMIT_DATE"));
}

/// The lines of README and page install what a release has, and the link leads to the page.
#[test]
fn install_lines_name_a_file_that_a_release_has() {
    let line = format!(
        "curl -fsSLO https://github.com/tidegate/tidegate/releases/download/v{}/install.sh\nsh install.sh\n",
        env!("CARGO_PKG_VERSION")
    );
    for page in ["README.md", "docs/release.md"] {
        assert!(read(page).contains(&format!("```sh\n{line}```\n")), "{page}");
    }
    assert!(read("README.md").contains("](docs/release.md#install)"));
    assert!(read("docs/release.md").contains("\n## Install\n"));
    // All files of `out` are in the release, with the script below this address.
    let generated = read("deploy/release/generate");
    assert!(generated.contains("base=\"https://github.com/tidegate/tidegate/releases/download/v$version\"\n"));
    assert!(generated.contains("cat >\"$out/install.sh\" <<END\n"));
    assert!(read(RELEASE).contains("--notes-file notes.md out/*"));
}

/// Pages and examples that name a release name this one.
#[test]
fn pages_and_examples_name_this_version() {
    let named = Regex::new(
        r"(?:releases/download/v|refs/tags/v|/tidegate(?:-agent)?:|\btidegate-)(\d+\.\d+\.\d+)|example `v(\d+\.\d+\.\d+)`",
    );
    let named = named.unwrap();
    let folders = ["docs", "examples/ci", "deploy", "deploy/chart"];
    let files =
        folders.iter().flat_map(|folder| fs::read_dir(path(folder)).unwrap()).map(|entry| entry.unwrap().path());
    let is_text = |file: &PathBuf| file.extension().is_some_and(|one| one == "md" || one == "yaml");
    let mut count = 0;
    let mut others = Vec::new();
    for file in files.chain([path("README.md")]).filter(is_text) {
        let text = fs::read_to_string(&file).unwrap();
        for found in named.captures_iter(&text) {
            count += 1;
            let version = found.get(1).or(found.get(2)).expect("a version").as_str();
            if version != env!("CARGO_PKG_VERSION") {
                others.push(format!("{}: {}", file.display(), &found[0]));
            }
        }
    }
    assert!(others.is_empty(), "these name another version than {}: {others:#?}", env!("CARGO_PKG_VERSION"));
    assert!(8 < count, "{count} places");
}

#[tokio::test(flavor = "multi_thread")]
async fn hadolint_finds_nothing_in_the_container_files() {
    let hadolint = harness::hadolint().await;
    let lint = |text: &str| {
        let file = tempfile::NamedTempFile::new().expect("a file");
        fs::write(file.path(), text).expect("a file");
        let mut command = Command::new(hadolint);
        // No file of settings changes what it finds.
        command.args(["--no-color", "--config", "/dev/null"]).arg(file.path()).output().expect("it runs")
    };
    for name in ["deploy/Dockerfile", "deploy/Dockerfile.agent"] {
        let found = lint(&read(name));
        assert!(found.status.success(), "{name}: {}", String::from_utf8_lossy(&found.stdout));
        // It would find something.
        let untagged = read(name).replace("rust:1.95.0-bookworm", "rust");
        let found = lint(&untagged);
        assert!(!found.status.success() && String::from_utf8_lossy(&found.stdout).contains("DL3006"), "{found:?}");
    }
}

/// What such a linter does not know of ours.
#[test]
fn container_files_are_pinned_run_as_a_user_and_fetch_nothing() {
    for file in ["deploy/Dockerfile", "deploy/Dockerfile.agent"] {
        let text = read(file);
        let lines: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
        let of = |word: &str| -> Vec<&str> { lines.iter().filter_map(|line| line.strip_prefix(word)).collect() };
        let images = of("FROM ");
        assert_eq!(images.len(), 2, "{file}: one stage builds, one runs");
        for image in &images {
            let tag = image.split(' ').next().and_then(|image| image.rsplit_once(':')).map(|(_, tag)| tag);
            assert!(tag.is_some_and(|tag| !tag.is_empty() && tag != "latest"), "{file}: {image}");
        }
        assert!(of("ADD ").is_empty(), "{file}: COPY does not fetch or unpack");
        let users = of("USER ");
        assert_eq!(users, ["65532:65532"], "{file}: the level `restricted` needs a number");
        let position = |word: &str| lines.iter().rposition(|line| line.starts_with(word)).expect("it is there");
        assert!(position("FROM ") < position("USER ") && position("USER ") < position("ENTRYPOINT "), "{file}");
        for word in ["ENTRYPOINT ", "CMD "] {
            assert!(of(word).iter().all(|value| value.starts_with('[')), "{file}: {word}without a shell");
        }
        for run in of("RUN ") {
            assert!(run.contains("--locked") && !run.contains("curl") && !run.contains("sudo"), "{file}: {run}");
        }
        assert!(of("COPY --from=").iter().all(|copy| copy.starts_with("build ")), "{file}: from the stage that builds");
    }
}
