use std::fs;

use super::*;

fn error(text: &str) -> String {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("sources.yaml");
    fs::write(&path, text).unwrap();
    let error = in_file(&path, "kcp-system").unwrap_err();
    format!("{error:#}").replace(&folder.path().display().to_string(), "DIR")
}

#[test]
fn a_source_is_named_after_its_repository() {
    for (place, name) in [
        ("https://git.example.com/team/Landscape.git", "landscape"),
        ("/srv/git/landscape/", "landscape"),
        ("my repo", "my-repo"),
        ("/", "source"),
    ] {
        assert_eq!(name_of(place), name, "{place}");
    }
}

#[test]
fn a_url_follows_the_default_branch_or_the_one_behind_the_mark() {
    let source = named("https://git.example.com/landscape.git", "kcp-system").unwrap();
    assert_eq!(source.spec.reference, None);
    assert_eq!(source.metadata.namespace.as_deref(), Some("kcp-system"));
    let source = named("https://git.example.com/landscape.git#prod", "kcp-system").unwrap();
    assert_eq!(source.spec.url, "https://git.example.com/landscape.git");
    assert_eq!(source.spec.reference.unwrap().branch.as_deref(), Some("prod"));
}

#[test]
fn a_path_follows_what_is_checked_out_and_may_be_a_folder_of_the_repository() {
    let folder = tempfile::tempdir().unwrap();
    let repository = tidegate_testbed::Repository::init(folder.path()).unwrap();
    fs::create_dir_all(folder.path().join("landscapes/dev")).unwrap();
    repository.write("landscapes/dev/kyma.yaml", "").unwrap();
    repository.commit("a landscape").unwrap();
    let source = named(&folder.path().join("landscapes/dev").display().to_string(), "kcp-system").unwrap();
    assert_eq!(source.spec.url, folder.path().canonicalize().unwrap().display().to_string());
    assert_eq!(source.spec.paths, ["landscapes/dev"]);
    assert_eq!(source.metadata.name.as_deref(), Some("dev"));
    assert!(source.spec.reference.unwrap().branch.is_some());
}

#[test]
fn a_repository_names_its_source_and_its_file_is_one_as_well() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("Checkout");
    fs::create_dir_all(&root).unwrap();
    let repository = tidegate_testbed::Repository::init(&root).unwrap();
    let shown = root.display().to_string();
    let canonical = root.canonicalize().unwrap().display().to_string();
    // Nothing is committed yet, and then no file names it.
    assert_eq!(named(&shown, "kcp-system").unwrap().metadata.name.as_deref(), Some("checkout"));
    repository.write("kyma.yaml", "").unwrap();
    repository.commit("no file names it").unwrap();
    assert_eq!(named(&shown, "kcp-system").unwrap().metadata.name.as_deref(), Some("checkout"));

    let own = "apiVersion: tidegate.dev/v1alpha1\nkind: GitSource\nmetadata: {name: landscape, namespace: team}\n";
    repository.write(".tidegate/source.yaml", own).unwrap();
    repository.commit("as `export --as-git` writes it").unwrap();
    let source = named(&shown, "kcp-system").unwrap();
    assert_eq!(landscape::key(&source.metadata).to_string(), "team/landscape");
    assert_eq!((&source.spec.url, &source.spec.paths), (&canonical, &Vec::new()));
    let branch = source.spec.reference.clone().unwrap().branch;
    assert!(branch.is_some());
    let file = root.join(".tidegate/source.yaml");
    let found = in_file(&file, "kcp-system").unwrap();
    assert_eq!(landscape::key(&found[0].metadata).to_string(), "team/landscape");
    assert_eq!((&found[0].spec.url, found[0].spec.reference.clone().unwrap().branch), (&canonical, branch));

    // The revision must agree with the source in all that it sets.
    repository.write(".tidegate/source.yaml", &format!("{own}spec: {{paths: [modules], prune: false}}\n")).unwrap();
    repository.commit("with settings").unwrap();
    let source = named(&shown, "kcp-system").unwrap();
    assert_eq!(source.spec.paths, ["modules"]);
    let snapshot = git::resolve_after(&root, "HEAD", None, &Filter::default(), Limits::default()).unwrap();
    let own_file = SourceFile::read(&snapshot).unwrap().expect("a file");
    assert_eq!(own_file.differences("landscape", "team", &source.spec), []);

    repository.write(".tidegate/source.yaml", &own.replace("GitSource", "Kyma")).unwrap();
    repository.commit("broken").unwrap();
    let refused = format!("{:#}", named(&shown, "kcp-system").unwrap_err());
    assert!(refused.contains("must contain exactly one GitSource"), "{refused}");
}

#[test]
fn a_file_elsewhere_must_name_a_repository() {
    let source = "apiVersion: tidegate.dev/v1alpha1\nkind: GitSource\nmetadata: {name: landscape}\n";
    for text in [source.to_owned(), format!("{source}spec: {{paths: [modules]}}\n")] {
        assert_eq!(
            error(&text),
            "DIR/sources.yaml:1: the GitSource names no repository: add `spec.url`, or use `--source` with the folder of \
             the repository, which reads its `.tidegate/source.yaml`"
        );
    }
}

#[test]
fn an_error_says_what_is_wrong_and_repeats_no_password() {
    let refused = named("ftp://user:secret@host/repo", "kcp-system").unwrap_err();
    let text = format!("{refused:#}");
    assert!(text.contains("https://") && !text.contains("secret"), "{text}");
}

#[test]
fn a_file_holds_git_sources_as_the_control_plane_has_them() {
    let good = "apiVersion: tidegate.dev/v1alpha1\nkind: GitSource\nmetadata: {name: landscape}\nspec:\n  url: https://git.example.com/l.git\n";
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("sources.yaml");
    fs::write(&path, good).unwrap();
    let sources = in_file(&path, "elsewhere").unwrap();
    assert_eq!(sources[0].metadata.namespace.as_deref(), Some("elsewhere"));
    let misspelt = error(&good.replace("  url:", "  interval: 5m\n  sus: true\n  url:"));
    assert!(misspelt.starts_with("DIR/sources.yaml:6:3: spec.sus: "), "{misspelt}");
    for url in [
        "https://anna:hunter2@git.example.com/l.git",
        "https://hunter2@git.example.com/l.git",
        "https://git.example.com/l.git?access_token=hunter2",
        "anna:hunter2@git.example.com:l.git",
    ] {
        let refused = error(&good.replace("https://git.example.com/l.git", url));
        assert!(refused.starts_with("DIR/sources.yaml:5:3: spec.url"), "{refused}");
        assert!(!refused.contains("hunter2"), "{refused}");
    }
    assert_eq!(
        error("kind: ConfigMap\napiVersion: v1\n"),
        "DIR/sources.yaml:1: only GitSources of tidegate.dev/v1alpha1 are allowed in this file"
    );
    assert_eq!(error("# nothing\n"), "DIR/sources.yaml contains no GitSource");
}

#[test]
fn a_repository_with_one_gitsource_has_its_name_and_one_with_several_names_them() {
    let folder = tempfile::tempdir().unwrap();
    let repository = tidegate_testbed::Repository::init(folder.path()).unwrap();
    let shown = folder.path().display().to_string();
    let source = |name: &str| {
        let metadata = format!("metadata: {{name: {name}, namespace: team}}");
        let spec = "spec: {url: 'https://git.example.com/landscape.git', paths: [modules], secretRef: {name: git}}";
        format!("apiVersion: tidegate.dev/v1alpha1\nkind: GitSource\n{metadata}\n{spec}\n")
    };
    repository.write(".tidegate/dev.yaml", &source("dev")).unwrap();
    repository.commit("as users apply it").unwrap();
    let found = named(&shown, "kcp-system").unwrap();
    assert_eq!(landscape::key(&found.metadata).to_string(), "team/dev");
    assert_eq!(found.spec.url, folder.path().canonicalize().unwrap().display().to_string());
    assert_eq!((found.spec.paths, found.spec.secret_ref.is_none()), (vec!["modules".to_owned()], true));

    let plain = "apiVersion: tidegate.dev/v1alpha1\nkind: GitSource\nmetadata: {name: prod}\n";
    repository.write(".tidegate/prod.yaml", plain).unwrap();
    repository.commit("a second one").unwrap();
    let error = named(&shown, "kcp-system").unwrap_err().to_string();
    assert_eq!(
        error,
        "`.tidegate` has several GitSources (.tidegate/dev.yaml, .tidegate/prod.yaml): choose one of them with \
         `--source-file .tidegate/dev.yaml`"
    );
    // As it says.
    let found = in_file(&folder.path().join(".tidegate/prod.yaml"), "kcp-system").unwrap();
    assert_eq!(landscape::key(&found[0].metadata).to_string(), "kcp-system/prod");
    assert_eq!(found[0].spec.url, folder.path().canonicalize().unwrap().display().to_string());
}

#[test]
fn a_folder_without_git_is_refused_with_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let error = named(&folder.path().display().to_string(), "kcp-system").unwrap_err().to_string();
    assert!(error.ends_with("the daemon reads commits only: make it a repository, and commit its files"), "{error}");
}
