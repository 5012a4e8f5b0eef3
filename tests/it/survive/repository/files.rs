//! The files of a repository: diagnostics without end, what lies outside of `paths`, and what other tools write.

use std::{fs, path::Path, process::Command, time::Duration};

use rustix::time::{ClockId, clock_gettime};
use serde_json::Value;
use tidegate_core::{
    definition,
    diagnostic::Diagnostics,
    revision::Revision,
    snapshot::{Content, File, Filter, Limits, Snapshot},
};
use tidegate_git as git;
use tidegate_testbed::Repository;

const RELEASE: &str = "apiVersion: operator.kyma-project.io/v1beta2\nkind: ModuleReleaseMeta\n\
                       metadata: {name: cache, namespace: kcp-system}\n\
                       spec:\n  moduleName: cache\n  ocmComponentName: example.com/module/cache\n  \
                       channels: [{channel: regular, version: 1.0.0}]\n";
const CONFIG: &str = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: cache, namespace: kyma-system}\n";

/// A repository and the GitSource that says what is read of it.
struct Stage {
    _folder: tempfile::TempDir,
    repository: Repository,
}

impl Stage {
    /// A module whose objects are at `module`, and this `spec` of a GitSource beside its URL.
    fn new(module: &str, spec: &str) -> Stage {
        let folder = tempfile::tempdir().unwrap();
        let repository = Repository::init(&folder.path().join("repository")).unwrap();
        let source = format!(
            "apiVersion: tidegate.dev/v1alpha1\nkind: GitSource\nmetadata: {{name: a, namespace: kcp-system}}\n\
             spec:\n  url: https://git.example.com/a\n{spec}"
        );
        fs::write(folder.path().join("source.yaml"), source).unwrap();
        let template = format!(
            "apiVersion: operator.kyma-project.io/v1beta2\nkind: ModuleTemplate\n\
             metadata: {{name: cache-1.0.0, namespace: kcp-system, annotations: {{tidegate.dev/module-path: {module}}}}}\n\
             spec: {{moduleName: cache, version: 1.0.0}}\n"
        );
        repository.write("landscape/template.yaml", &template).unwrap();
        repository.write("landscape/release.yaml", RELEASE).unwrap();
        repository.write(&format!("{module}/config.yaml"), CONFIG).unwrap();
        Stage { _folder: folder, repository }
    }

    fn write(&self, path: &str, text: &str) {
        self.repository.write(path, text).unwrap();
    }

    /// Exit code and diagnostics of `validate`.
    fn validate(&self) -> (Option<i32>, Vec<Value>) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
        command.args(["validate", ".", "--source-file", "../source.yaml", "-o", "json"]);
        let output = command.current_dir(self.repository.path()).output().unwrap();
        let error = || String::from_utf8_lossy(&output.stderr).into_owned();
        let value: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", error()));
        (output.status.code(), value["diagnostics"].as_array().unwrap().clone())
    }

    /// The codes and paths of the diagnostics of `validate`.
    fn found(&self) -> Vec<String> {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        self.validate().1.iter().map(|one| format!("{} {}", text(&one["code"]), text(&one["path"]))).collect()
    }

    fn committed(&self, filter: &Filter, limits: Limits) -> Result<Snapshot, git::Error> {
        self.repository.commit("all").unwrap();
        git::resolve(self.repository.path(), "HEAD", filter, limits)
    }
}

#[test]
fn what_is_ignored_or_outside_of_paths_is_neither_opened_nor_counted() {
    let stage = Stage::new("landscape/objects", "");
    for number in 0..50 {
        stage.write(&format!("vendor/{number}.json"), "{}");
        stage.write(&format!("other/{number}.yaml"), "a: 1");
    }
    stage.write(&format!("vendor/{}a.yaml", "deep/".repeat(70)), "a: 1");
    let limits = Limits { files_max: 10, total_bytes_max: 2_000, ..Limits::default() };
    let all = stage.committed(&Filter::new(None), limits).unwrap_err();
    assert!(matches!(all, git::Error::TooDeep { .. } | git::Error::TooManyFiles { .. }), "{all}");

    let [paths, ignore] = [["landscape".to_owned()], ["other/".to_owned()]];
    for filter in [
        Filter::new(None).within(&paths, &[]),
        Filter::new(None).within(&[], &["/vendor/".to_owned(), ignore[0].clone()]),
    ] {
        let snapshot = stage.committed(&filter, limits).unwrap();
        let files: Vec<&str> = snapshot.files.keys().map(|path| &**path).collect();
        assert_eq!(files, ["landscape/objects/config.yaml", "landscape/release.yaml", "landscape/template.yaml"]);
        assert!(snapshot.is_unopened("vendor/deep") && snapshot.object_id("vendor").is_some());
        let of_disk = git::read_work_tree(stage.repository.path(), &filter, limits).unwrap();
        assert_eq!(of_disk.files, snapshot.files, "the work tree is read in the same way");
    }
}

#[test]
fn a_pattern_with_an_exclamation_mark_still_selects_a_part_of_an_ignored_folder() {
    let stage = Stage::new("landscape/objects", "");
    stage.write("vendor/ours/a.yaml", "a: 1");
    stage.write("vendor/theirs/b.yaml", "b: 1");
    let filter = Filter::new(None).within(&[], &["/vendor/*".to_owned(), "!/vendor/ours".to_owned()]);
    let snapshot = stage.committed(&filter, Limits::default()).unwrap();
    let vendor: Vec<&str> = snapshot.below("vendor").map(|(path, _)| &**path).collect();
    assert_eq!(vendor, ["vendor/ours/a.yaml"]);
}

#[test]
fn a_module_outside_of_paths_or_in_an_ignored_folder_is_read() {
    for spec in ["  paths: [landscape]\n", "  ignore: [/vendor/]\n"] {
        let stage = Stage::new("vendor/cache/objects", spec);
        stage.write("vendor/cache/broken.yaml", "{");
        stage.write("vendor/other/broken.yaml", "{");
        assert_eq!(stage.found(), [""; 0], "{spec}");
        stage.write("vendor/cache/objects/broken.yaml", "{");
        let found = stage.found();
        assert!(found.contains(&"yaml-syntax vendor/cache/objects/broken.yaml".to_owned()), "{spec}: {found:?}");
    }
}

#[test]
fn a_file_of_a_module_may_have_eight_mebibytes() {
    let stage = Stage::new("landscape/objects", "");
    let bundle = |bytes: usize| format!("{CONFIG}data:\n  a: \"{}\"\n", "x".repeat(bytes));
    stage.write("landscape/objects/config.yaml", &bundle(3 << 20));
    assert_eq!(stage.found(), [""; 0]);
    stage.write("landscape/objects/config.yaml", &bundle(9 << 20));
    assert!(stage.found().contains(&"file-too-large landscape/objects/config.yaml".to_owned()));
    stage.write("landscape/objects/config.yaml", CONFIG);
    stage.write("landscape/large.yaml", &bundle(2 << 20));
    assert_eq!(stage.found(), ["file-too-large landscape/large.yaml"]);
}

#[test]
fn sixty_thousand_mistakes_in_a_file_are_fifty_lines_and_their_number() {
    let stage = Stage::new("landscape/objects", "");
    let fields: String = (0..60_000).map(|number| format!("  f{number}: 1\n")).collect();
    stage.write("landscape/release.yaml", &format!("{RELEASE}{fields}"));
    let (code, diagnostics) = stage.validate();
    assert_eq!(code, Some(3));
    let unknown = diagnostics.iter().filter(|one| one["code"] == "unknown-field").count();
    assert_eq!(unknown, 50);
    let more = diagnostics.iter().find(|one| one["code"] == "more-problems").unwrap();
    let message = more["message"].as_str().unwrap();
    assert_eq!(message, "and 59,950 more errors in this file, which are not listed");
}

/// The CPU time of this thread that reading a definition with so many unknown fields takes.
fn reading(fields: usize) -> Duration {
    let fields: String = (0..fields).map(|number| format!("  f{number}: 1\n")).collect();
    let text = format!("{RELEASE}{fields}");
    let mut snapshot = Snapshot::empty(Revision::WorkTree);
    let file = File { id: "1".repeat(40).parse().unwrap(), content: Content::Text(text.into_bytes().into()) };
    snapshot.files.insert("release.yaml".into(), file);
    let computed = || Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap();
    let begin = computed();
    let mut diagnostics = Diagnostics::default();
    definition::read(&mut diagnostics, &snapshot, &definition::Options::default(), &mut definition::Cache::default());
    let took = computed() - begin;
    assert!(diagnostics.has_errors());
    took
}

#[test]
fn the_time_for_mistakes_grows_with_their_number_and_not_with_its_square() {
    const FACTOR: u32 = 8;
    // The least of three: another process can only make a reading longer.
    let least = |fields: usize| (0..3).map(|_| reading(fields)).min().unwrap();
    let (few, many) = (least(7_500), least(7_500 * FACTOR as usize));
    println!("7,500 mistakes: {few:?}, {FACTOR} times as many: {many:?}");
    // Eight times as much work, or 64 times as much if each field is looked up in a list of all.
    assert!(many < few * FACTOR * 3, "{few:?} and {many:?}");
}

#[test]
fn diagnostics_of_all_files_of_a_source_have_a_limit() {
    let stage = Stage::new("landscape/objects", "");
    let text = "- 1\n---\n".repeat(5_000);
    for file in 0..100 {
        stage.write(&format!("landscape/{file:02}.yaml"), &text);
    }
    let (code, diagnostics) = stage.validate();
    assert_eq!(code, Some(3));
    assert_eq!(diagnostics.iter().filter(|one| one["code"] == "not-an-object").count(), 1_000);
    let more = diagnostics.iter().filter(|one| one["code"] == "more-problems").count();
    assert_eq!(more, 51, "fifty files with a number of their own, and one number for all others");
}

#[test]
fn what_other_tools_write_is_one_diagnostic_that_says_what_it_is() {
    let stage = Stage::new("landscape/objects", "");
    let encrypted = "apiVersion: operator.kyma-project.io/v1beta2\nkind: Kyma\nmetadata: {name: a}\n\
                     spec: {channel: \"ENC[AES256_GCM,data:abc]\"}\nsops: {mac: \"ENC[abc]\", version: 3.8.1}\n";
    stage.write("landscape/encrypted.yaml", encrypted);
    stage.write("landscape/tag.yaml", "apiVersion: !vault a\nkind: Kyma\n");
    stage.write("landscape/chart/Chart.yaml", "apiVersion: v2\nname: a\nversion: 1.0.0\n");
    stage.write("landscape/chart/templates/a.yaml", "{{ if .Values.a }}\na: b\n{{ end }}\n");
    stage.write("landscape/chart/templates/b.yaml", "{{ include \"a\" . }}\n");
    stage.write("landscape/chart/values.yaml", "a: b\n");
    stage.write("landscape/image/oci-layout", "{\"imageLayoutVersion\": \"1.0.0\"}");
    stage.write("landscape/image/index.json", "{\"schemaVersion\": 2, \"manifests\": []}");
    assert_eq!(
        stage.found(),
        [
            "helm-chart landscape/chart/Chart.yaml",
            "sops-encrypted landscape/encrypted.yaml",
            "oci-layout landscape/image/index.json",
            "yaml-tag landscape/tag.yaml",
        ]
    );
}

#[test]
fn a_name_that_occurs_twice_in_a_tree_is_not_read() {
    let stage = Stage::new("landscape/objects", "");
    stage.repository.commit("all").unwrap();
    let repository = git2::Repository::open(stage.repository.path()).unwrap();
    let odb = repository.odb().unwrap();
    let mut tree = Vec::new();
    for text in ["a: 1\n", "a: 2\n"] {
        let blob = repository.blob(text.as_bytes()).unwrap();
        tree.extend_from_slice(b"100644 a.yaml\0");
        tree.extend_from_slice(blob.as_bytes());
    }
    let tree = odb.write(git2::ObjectType::Tree, &tree).unwrap();
    let commit =
        format!("tree {tree}\nauthor a <a@example.com> 0 +0000\ncommitter a <a@example.com> 0 +0000\n\nforged\n");
    let commit = odb.write(git2::ObjectType::Commit, commit.as_bytes()).unwrap();
    let snapshot =
        git::resolve(stage.repository.path(), &commit.to_string(), &Filter::new(None), Limits::default()).unwrap();
    let content: Vec<&Content> = snapshot.files.values().map(|file| &file.content).collect();
    assert_eq!(content, [&Content::Ambiguous]);
}

#[test]
fn a_large_file_that_nothing_refers_to_is_not_hashed() {
    let stage = Stage::new("landscape/objects", "  paths: [landscape]\n");
    stage.repository.commit("all").unwrap();
    for folder in ["landscape", "."] {
        let path = stage.repository.path().join(folder).join("dump.bin");
        // Twenty gigabytes without content: hashing them takes a minute and more.
        fs::File::create(Path::new(&path)).unwrap().set_len(20 << 30).unwrap();
    }
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    let output = command.args(["diff", "."]).current_dir(stage.repository.path()).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(stage.found(), [""; 0]);
}
