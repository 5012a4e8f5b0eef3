use super::*;
use crate::revision::{Oid, Revision};

fn snapshot(files: &[(&str, &str)]) -> Snapshot {
    let mut snapshot = Snapshot::empty(Revision::WorkTree);
    for (path, text) in files {
        let file = File { id: Oid::new([1; 20]), content: Content::Text(text.as_bytes().into()) };
        snapshot.files.insert((*path).into(), file);
    }
    snapshot
}

fn file(spec: &str) -> String {
    format!("apiVersion: tidegate.dev/v1alpha1\nkind: GitSource\nmetadata: {{name: landscape}}\nspec:\n{spec}")
}

fn spec(text: &str) -> GitSourceSpec {
    let mut spec: GitSourceSpec = serde_yaml::from_str(&format!("url: https://git.example.org/a\n{text}")).unwrap();
    spec.url = "https://git.example.org/a".to_owned();
    spec
}

#[track_caller]
fn check(own: &str, theirs: &str, expected: &[(u32, &str)]) {
    let own = SourceFile::read(&snapshot(&[(".tidegate/source.yaml", &file(own))])).unwrap().unwrap();
    let found = own.differences("landscape", "kcp-system", &spec(theirs));
    let found: Vec<(u32, &str)> =
        found.iter().map(|one| (one.place.as_ref().unwrap().line, one.message.as_str())).collect();
    assert_eq!(found, expected);
}

#[test]
fn a_source_that_says_the_same_differs_in_nothing() {
    check("  paths: [a, b/]\n", "paths: [./b, a]", &[]);
    check("  timeout: 60s\n  interval: 1m\n", "interval: 60s", &[]);
    check("  strict: false\n  prune: true\n  onError: Withhold\n", "", &[]);
    check("  pruneLimit: {objects: 50}\n", "", &[]);
    check("  allow: {kinds: [Kyma, Watcher]}\n", "allow: {kinds: [Watcher, Kyma], names: [a-*]}", &[]);
    check("  templates: templates\n", "templates: templates/\npaths: [anything]", &[]);
}

#[test]
fn each_field_that_differs_is_named_with_its_line() {
    check(
        "  paths: [a]\n  strict: true\n  pruneLimit:\n    objects: 3\n",
        "paths: [a, b]\npruneLimit: {objects: 4}",
        &[
            (5, "the GitSource has `[\"a\",\"b\"]` as `spec.paths`, and this file `[\"a\"]`"),
            (6, "the GitSource has `false` as `spec.strict`, and this file `true`"),
            (8, "the GitSource has `4` as `spec.pruneLimit.objects`, and this file `3`"),
        ],
    );
    check("  templates: over\n", "", &[(5, "the GitSource has nothing as `spec.templates`, and this file `\"over\"`")]);
    check(
        "  ignore: [a, '!b']\n",
        "ignore: ['!b', a]",
        &[(5, "the GitSource has `[\"!b\",\"a\"]` as `spec.ignore`, and this file `[\"a\",\"!b\"]`")],
    );
    let own = SourceFile::read(&snapshot(&[(".tidegate/source.yaml", &file("  strict: true\n"))])).unwrap().unwrap();
    let found = own.differences("other", "kcp-system", &spec("strict: true"));
    assert_eq!(
        (found.len(), found[0].message.as_str(), found[0].place.as_ref().unwrap().line),
        (1, "the GitSource has `\"other\"` as `metadata.name`, and this file `\"landscape\"`", 3)
    );
    assert_eq!(found[0].field.as_ref().map(|field| field.0.as_str()), Some("metadata.name"));
}

#[track_caller]
fn check_refused(text: &str, line: u32, expected: &str) {
    let found = SourceFile::read(&snapshot(&[(".tidegate/source.yaml", text)])).unwrap_err();
    assert!(found.message.contains(expected), "{found:?}");
    assert_eq!(found.place.as_ref().unwrap().line, line, "{found:?}");
}

#[test]
fn what_belongs_to_the_control_plane_is_refused() {
    check_refused(&file("  paths: [a]\n  url: https://git.example.org/a\n"), 6, "`spec.url` does not belong here");
    check_refused(&file("  secretRef: {name: token}\n"), 5, "`spec.secretRef` does not belong here");
    check_refused(&file("  suspend: true\n"), 5, "`spec.suspend` does not belong here");
    check_refused(&file("  bearerTokenFile: /token\n"), 5, "`spec.bearerTokenFile` does not belong here");
    let weakened = "`spec.verify` does not belong here: a commit must not change the rules by which it is verified";
    check_refused(&file("  verify: {mode: Head, secretRef: {name: keys}}\n"), 5, weakened);
    check_refused(&file("  verify: {mode: Head}\n"), 5, weakened);
}

#[test]
fn a_mistake_is_one_sentence_with_its_line() {
    check_refused(&file("  path: [a]\n"), 5, "unknown field `path`");
    check_refused(&file("  paths: a\n"), 5, "");
    check_refused(
        &file("  ref: {semver: newest}\n"),
        5,
        "spec.ref.semver is not a range of versions: use a range such as",
    );
    check_refused("a: [\n", 1, "this bracket is never closed");
    check_refused("a: 1\n", 1, "exactly one GitSource");
    let mut linked = snapshot(&[(".tidegate/source.yaml", "")]);
    linked.files.get_mut(".tidegate/source.yaml").unwrap().content = Content::Symlink;
    assert!(SourceFile::read(&linked).unwrap_err().message.contains("symbolic link"));
}

#[test]
fn without_it_the_only_source_of_the_folder_is_taken_by_commands() {
    let applied = file("  url: https://git.example.org/a\n  secretRef: {name: token}\n  paths: [a]\n");
    let one = snapshot(&[(".tidegate/prod.yaml", &applied), (".tidegate/rules.yaml", "- name: a\n")]);
    assert_eq!(SourceFile::find(&one).unwrap().unwrap().spec.paths, ["a"]);
    assert_eq!(SourceFile::read(&one), Ok(None), "it does not bind the GitSource");
    let two = snapshot(&[(".tidegate/prod.yaml", &applied), (".tidegate/dev.yaml", &applied)]);
    assert_eq!(SourceFile::find(&two), Ok(None), "which of the two is meant is not known");
    let own = file("  paths: [b]\n");
    let all = snapshot(&[(".tidegate/prod.yaml", &applied), (".tidegate/source.yaml", &own)]);
    assert_eq!(SourceFile::find(&all).unwrap().unwrap().spec.paths, ["b"]);
    assert_eq!(SourceFile::find(&snapshot(&[("a.yaml", "")])), Ok(None));
}

/// A URL with a password may be in a field where it does not belong.
#[test]
fn no_value_of_a_field_is_repeated() {
    for (written, line, expected) in [
        ("  paths: [\"https://anna:hunter2@git.example.org/a\"]\n", 5, "spec.paths[0]: the value does not match the"),
        ("  templates: https://hunter2@git.example.org/a\n", 5, "spec.templates: the value does not match the pattern"),
        (
            "  ref: {branch: \"https://git.example.org/a?token=hunter2\"}\n",
            5,
            "spec.ref.branch: the value does not match",
        ),
        ("  interval: hunter2\n", 5, "spec.interval: the value does not match the pattern"),
        ("  onError: hunter2\n", 5, "spec.onError: the value is not one of `Withhold`, `RefuseRevision`"),
        (
            "  allow: {namespaces: [\"anna:hunter2@git.example.org\"]}\n",
            5,
            "spec.allow.namespaces[0]: the value does not",
        ),
        ("  password: hunter2\n", 5, "unknown field `password`"),
        ("  allow: {\"https://anna:hunter2@git.example.org/a\"}\n", 5, "spec.allow: a field has an invalid name"),
        ("  https://anna:hunter2@git.example.org/a\n", 4, "spec: must be a mapping, not a string"),
    ] {
        let found = SourceFile::read(&snapshot(&[(".tidegate/source.yaml", &file(written))])).unwrap_err();
        assert!(found.message.contains(expected), "{written}: {found:?}");
        assert!(!format!("{found:?}").contains("hunter2"), "{written}: {found:?}");
        assert_eq!(found.place.as_ref().unwrap().line, line, "{found:?}");
    }
    let named =
        "apiVersion: tidegate.dev/v1alpha1\nkind: GitSource\nmetadata: {name: 'anna:hunter2@git.example.org:a'}\n";
    let found = SourceFile::read(&snapshot(&[(".tidegate/source.yaml", named)])).unwrap_err();
    assert!(found.message.starts_with("metadata.name: ") && !found.message.contains("hunter2"), "{found:?}");
    // Patterns of ignored files may be anything.
    check(
        "  ignore: ['https://anna:hunter2@git.example.org/a']\n",
        "",
        &[(5, "the GitSource has nothing as `spec.ignore`, and this file a value with a URL")],
    );
}
