//! Releases: the scripts on sample data, the workflows as far as they can be checked here, and the container files.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use regex::Regex;

use crate::{deploy, harness};

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
        let release = Release { folder: tempfile::tempdir().expect("a folder") };
        fs::write(release.path().join("program"), PROGRAM).expect("a file");
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
    for file in
        ["tidegate", "LICENSE", "README.md", "CHANGELOG.md", "man/tidegate.1"].map(str::to_owned).iter().chain(&shells)
    {
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
        succeeds(&release.install(system, machine));
        let installed = Command::new(release.file("prefix/bin/tidegate")).arg("version").output().expect("it runs");
        succeeds(&installed);
        assert!(release.path().join("prefix/share/man/man1/tidegate.1").is_file(), "{system} {machine}");
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
    let workflow = read(".github/workflows/release.yml");
    assert!(workflow.contains("deploy/release/notes \"$version\" >/dev/null"), "it fails before anything is built");
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
    let (chart, base) = (text("chart"), text("base/kustomization.yaml"));
    let digest = format!("sha256:{}", "0123456789abcdef".repeat(4));
    succeeds(&script("pin", &[&digest, &chart, &base]));
    let values = fs::read_to_string(text("chart/values.yaml")).expect("values");
    assert!(values.contains(&format!("\n  digest: {digest}\n")), "{values}");
    let base_text = fs::read_to_string(&base).expect("a kustomization");
    assert!(base_text.ends_with(&format!("  newName: ghcr.io/tidegate/tidegate\n  digest: {digest}\n")), "{base_text}");
    // Neither twice nor with something else.
    assert!(!script("pin", &[&digest, &chart, &base]).status.success());
    let invalid = script("pin", &["sha256:1", &chart, &base]);
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
    assert!(!lint(&read(".github/workflows/release.yml").replace("needs: version", "needs: nothing")).status.success());
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
    let release = read(".github/workflows/release.yml");
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
    let release = read(".github/workflows/release.yml");
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
        // Checksums, formula and install script.
        "sha256sum ./*",
        "deploy/release/generate \"$VERSION\" out/SHA256SUMS out",
        // Signatures.
        "cosign sign-blob --yes --bundle out/SHA256SUMS.sigstore.json out/SHA256SUMS",
        "cosign sign --yes \"$IMAGE@$digest\"",
        // Provenance of files and images.
        "subject-path: out/*",
        "subject-digest: ${{ steps.index.outputs.digest }}",
        "gh release create \"$GITHUB_REF_NAME\"",
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
    let release = read(".github/workflows/release.yml");
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

/// What a linter of container files says, as far as it concerns ours.
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
