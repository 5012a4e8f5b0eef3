//! Reading files: from objects and from work trees, which must agree.

use std::{
    fs,
    os::unix::{
        ffi::OsStrExt,
        fs::{PermissionsExt, symlink},
    },
    path::Path,
};

use tidegate_core::snapshot::{Content, Filter, Limits, Snapshot};
use tidegate_git::{Error, Head, head as head_of, locate, read_work_tree, resolve};

use super::repository::{Repository, git};

fn filter() -> Filter {
    Filter::new(Some("templates"))
}

fn head(repository: &Repository) -> Snapshot {
    resolve(&repository.path(), "HEAD", &filter(), Limits::default()).unwrap()
}

fn on_disk(path: &Path) -> Snapshot {
    read_work_tree(path, &filter(), Limits::default()).unwrap()
}

/// Path and kind of every file, in one line each.
fn listing(snapshot: &Snapshot) -> Vec<String> {
    let kind = |content: &Content| match content {
        Content::Text(bytes) => format!("text {}", bytes.len()),
        Content::TooLarge { bytes } => format!("too large {bytes}"),
        Content::Symlink => "link".to_owned(),
        Content::Submodule => "submodule".to_owned(),
        Content::LfsPointer => "lfs".to_owned(),
        Content::OverBudget => "over budget".to_owned(),
        Content::NameNotUtf8 => "name".to_owned(),
        Content::Ambiguous => "ambiguous".to_owned(),
    };
    snapshot.files.iter().map(|(path, file)| format!("{path}: {}", kind(&file.content))).collect()
}

/// What is on disk is what a commit of everything holds.
#[track_caller]
fn check_agree(repository: &Repository) {
    let before = on_disk(&repository.path());
    repository.git(&["add", "-A"]);
    repository.git(&["commit", "-q", "--allow-empty", "-m", "all"]);
    let committed = head(repository);
    assert_eq!(before.trees, committed.trees);
    assert_eq!(before.files, committed.files);
    // And with an index that knows all of it.
    let after = on_disk(&repository.path());
    assert_eq!((after.files, after.trees), (committed.files, committed.trees));
}

const LFS: &str = "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n";

/// One of everything that may lie in a repository.
fn zoo() -> Repository {
    let repository = Repository::new();
    for (path, content) in [
        ("a.yaml", "a"),
        ("a-b/x.yaml", "in a-b"),
        ("a/x.yaml", "in a"),
        ("a/y/z.json", "{}"),
        ("a.b/x.yml", "in a.b"),
        (".github/workflow.yaml", "hidden"),
        ("templates/kcp/manifest.txt", "template"),
        ("README.md", "read me"),
        ("empty.yaml", ""),
        ("pointer.yaml", LFS),
    ] {
        repository.write(path, content);
    }
    symlink("/etc/passwd", repository.path().join("link.yaml")).unwrap();
    symlink("a", repository.path().join("folder-link")).unwrap();
    symlink("/nowhere", repository.path().join("dangling")).unwrap();
    repository.write("program.yaml", "#!/bin/sh");
    fs::set_permissions(repository.path().join("program.yaml"), fs::Permissions::from_mode(0o755)).unwrap();
    let nested = repository.path().join("nested");
    fs::create_dir(&nested).unwrap();
    git(&nested, &["init", "-q", "-b", "main"]);
    fs::write(nested.join("inner.yaml"), "inner").unwrap();
    git(&nested, &["add", "-A"]);
    git(&nested, &["commit", "-q", "-m", "inner"]);
    repository
}

#[test]
fn every_kind_of_entry_is_what_it_is() {
    let repository = zoo();
    check_agree(&repository);
    let expected = [
        "a-b/x.yaml: text 6",
        "a.b/x.yml: text 6",
        "a.yaml: text 1",
        "a/x.yaml: text 4",
        "a/y/z.json: text 2",
        "dangling: link",
        "empty.yaml: text 0",
        "folder-link: link",
        "link.yaml: link",
        "nested: submodule",
        "pointer.yaml: lfs",
        "program.yaml: text 9",
        "templates/kcp/manifest.txt: text 8",
    ];
    assert_eq!(listing(&head(&repository)), expected);
    assert_eq!(listing(&on_disk(&repository.path())), expected);
}

#[test]
fn tree_ids_are_those_of_git() {
    let repository = zoo();
    let snapshot = on_disk(&repository.path());
    repository.commit(&[]);
    let tree = |path: &str| repository.git(&["rev-parse", &format!("HEAD:{path}")]);
    for path in ["", "a", "a/y", "a-b", "templates/kcp"] {
        assert_eq!(snapshot.object_id(path).unwrap().to_string(), tree(path), "{path}");
    }
    assert_eq!(snapshot.object_id("a.yaml").unwrap().to_string(), tree("a.yaml"));
    // Hidden folders count in the tree above them, and have no row of their own.
    assert!(!snapshot.trees.contains_key(".github"));
}

#[test]
fn names_that_are_no_utf8_are_shown_and_not_read() {
    let repository = Repository::with(&[("a.yaml", "a")]);
    let name = |bytes: &[u8]| repository.path().join(std::ffi::OsStr::from_bytes(bytes));
    fs::write(name(b"b\xff.yaml"), "b").unwrap();
    fs::write(name(b"c\xff.txt"), "c").unwrap();
    fs::create_dir(name(b"d\xfe")).unwrap();
    fs::write(name(b"d\xfe/x.yaml"), "d").unwrap();
    check_agree(&repository);
    assert_eq!(listing(&head(&repository)), ["a.yaml: text 1", "b\\xff.yaml: name", "d\\xfe: name"]);
}

#[test]
fn limits_leave_out_the_same_files_wherever_they_come_from() {
    let repository = Repository::new();
    for (path, length) in [("a.yaml", 40), ("b.yaml", 101), ("c.yaml", 40), ("d.yaml", 40), ("e.yaml", 1)] {
        repository.write(path, "x".repeat(length));
    }
    repository.commit(&[]);
    let limits = Limits { file_bytes_max: 100, files_max: 5, total_bytes_max: 100, ..Limits::default() };
    let expected =
        ["a.yaml: text 40", "b.yaml: too large 101", "c.yaml: text 40", "d.yaml: over budget", "e.yaml: over budget"];
    let of_commit = resolve(&repository.path(), "HEAD", &filter(), limits).unwrap();
    let of_disk = read_work_tree(&repository.path(), &filter(), limits).unwrap();
    assert_eq!(listing(&of_commit), expected);
    assert_eq!((of_commit.files, of_commit.trees), (of_disk.files, of_disk.trees));
    let limits = Limits { files_max: 4, ..limits };
    let of_commit = resolve(&repository.path(), "HEAD", &filter(), limits).unwrap_err();
    let of_disk = read_work_tree(&repository.path(), &filter(), limits).unwrap_err();
    assert_eq!(of_commit.to_string(), "the revision contains more than 4 files");
    assert_eq!(of_commit.to_string(), of_disk.to_string());
}

#[test]
fn a_folder_that_is_too_deep_is_said_so() {
    let repository = Repository::new();
    let deep = "d/".repeat(70);
    repository.write(&format!("{deep}a.yaml"), "x");
    let on_disk = read_work_tree(&repository.path(), &filter(), Limits::default()).unwrap_err();
    repository.commit(&[]);
    let committed = resolve(&repository.path(), "HEAD", &filter(), Limits::default()).unwrap_err();
    assert_eq!(committed.to_string(), on_disk.to_string());
    assert!(committed.to_string().ends_with("is more than 64 folders deep"), "{committed}");
}

#[test]
fn ignored_files_are_left_out_unless_they_are_tracked() {
    let repository = Repository::with(&[("tracked/out.yaml", "tracked"), ("kept.log.yaml", "x")]);
    repository.write(
        ".gitignore",
        "# a comment\n*.log.yaml\n!kept2.log.yaml\n/only-root.yaml\nbuild/\ntracked\n  \n\\#odd.yaml\n**/deep/x.yaml\r\n",
    );
    repository.write("sub/.gitignore", "local.yaml\n!again.log.yaml\n/anchored/\n");
    repository.write(".git/info/exclude", "excluded.yaml\n");
    for path in [
        "a.yaml",
        "b.log.yaml",
        "kept2.log.yaml",
        "only-root.yaml",
        "sub/only-root.yaml",
        "build/x.yaml",
        "sub/build/x.yaml",
        "build.yaml",
        "tracked/new.yaml",
        "#odd.yaml",
        "x/deep/x.yaml",
        "deep/x.yaml",
        "deep/y.yaml",
        "local.yaml",
        "sub/local.yaml",
        "sub/again.log.yaml",
        "sub/other.log.yaml",
        "sub/anchored/x.yaml",
        "sub/x/anchored/x.yaml",
        "excluded.yaml",
        "sub/excluded.yaml",
        "x/tracked",
        "y/build",
    ] {
        repository.write(path, path);
    }
    check_agree(&repository);
    let names: Vec<_> = head(&repository).files.into_keys().collect();
    assert!(names.iter().any(|name| &**name == "tracked/out.yaml"), "{names:?}");
    assert!(!names.iter().any(|name| &**name == "tracked/new.yaml"), "{names:?}");
}

#[test]
fn what_was_deleted_changed_or_staged_is_as_on_disk() {
    let repository =
        Repository::with(&[("a.yaml", "a"), ("b.yaml", "b"), ("c/d.yaml", "d"), ("e.yaml", "e"), ("f.yaml", "f")]);
    fs::remove_file(repository.path().join("a.yaml")).unwrap();
    fs::remove_dir_all(repository.path().join("c")).unwrap();
    repository.write("b.yaml", "B");
    repository.write("staged.yaml", "1");
    repository.git(&["add", "staged.yaml"]);
    repository.write("staged.yaml", "2");
    fs::remove_file(repository.path().join("e.yaml")).unwrap();
    repository.write("e.yaml/now-a-folder.yaml", "e");
    fs::set_permissions(repository.path().join("f.yaml"), fs::Permissions::from_mode(0o755)).unwrap();
    check_agree(&repository);
}

#[test]
fn a_submodule_is_one_whether_it_is_checked_out_or_not() {
    let inner = Repository::with(&[("x.yaml", "x")]);
    let repository = Repository::with(&[("a.yaml", "a")]);
    repository.git(&["submodule", "--quiet", "add", inner.path().to_str().unwrap(), "module"]);
    check_agree(&repository);
    assert_eq!(listing(&head(&repository)), ["a.yaml: text 1", "module: submodule"]);
    repository.git(&["submodule", "--quiet", "deinit", "-f", "module"]);
    check_agree(&repository);
    assert_eq!(listing(&on_disk(&repository.path())), ["a.yaml: text 1", "module: submodule"]);
}

#[test]
fn line_ends_are_converted_where_git_would() {
    let repository = Repository::new();
    repository.write(".gitattributes", "auto.yaml text=auto\nset.yaml text\nbinary.yaml -text\n");
    for path in ["auto.yaml", "set.yaml", "binary.yaml", "plain.yaml"] {
        repository.write(path, "a: 1\r\nb: 2\r\n");
    }
    check_agree(&repository);
    let snapshot = on_disk(&repository.path());
    assert_eq!(snapshot.text("auto.yaml").unwrap().as_ref(), b"a: 1\nb: 2\n");
    assert_eq!(snapshot.text("plain.yaml").unwrap().as_ref(), b"a: 1\r\nb: 2\r\n");

    let repository = Repository::with(&[("was.yaml", "a: 1\r\n")]);
    repository.git(&["config", "core.autocrlf", "input"]);
    repository.write("plain.yaml", "a: 1\r\n");
    repository.write("was.yaml", "a: 2\r\n");
    check_agree(&repository);
    assert_eq!(on_disk(&repository.path()).text("was.yaml").unwrap().as_ref(), b"a: 2\r\n");
}

#[test]
fn a_file_that_is_not_read_counts_in_its_tree_however_large_it_is() {
    let repository = Repository::with(&[("a/x.yaml", "x")]);
    repository.write("a/large.bin", "0123456789abcdef".repeat(9 << 16));
    repository.write("a/large.yaml", "0123456789abcdef".repeat(9 << 16));
    check_agree(&repository);
}

#[test]
fn a_file_kept_by_lfs_is_one_also_where_its_content_lies() {
    let repository = Repository::new();
    repository.write(".gitattributes", "*.yaml filter=lfs\n");
    repository.write("a.yaml", "the content itself");
    repository.write("b.json", "{}");
    assert_eq!(listing(&on_disk(&repository.path())), ["a.yaml: lfs", "b.json: text 2"]);
}

#[test]
fn a_plain_folder_and_a_single_file_can_be_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().canonicalize().unwrap();
    fs::create_dir_all(path.join("sub")).unwrap();
    fs::write(path.join("a.yaml"), "a").unwrap();
    fs::write(path.join("sub/b.yaml"), "b").unwrap();
    fs::write(path.join("note"), "n").unwrap();
    let snapshot = on_disk(&path);
    assert_eq!(listing(&snapshot), ["a.yaml: text 1", "sub/b.yaml: text 1"]);
    assert!(snapshot.trees.contains_key("sub"));
    assert_eq!(listing(&on_disk(&path.join("sub/b.yaml"))), ["b.yaml: text 1"]);
    assert_eq!(listing(&on_disk(&path.join("note"))), ["note: text 1"]);
    let error = read_work_tree(&path.join("absent"), &filter(), Limits::default()).unwrap_err();
    assert_eq!(error.to_string(), format!("cannot read {}", path.join("absent").display()));
    let error = resolve(&path, "HEAD", &filter(), Limits::default()).unwrap_err();
    assert_eq!(error.to_string(), format!("{} is not in a readable git repository", path.display()));
}

#[test]
fn paths_are_relative_to_the_repository_wherever_one_stands() {
    let repository = Repository::with(&[("a.yaml", "a"), ("sub/b.yaml", "b"), ("sub/deep/c.yaml", "c")]);
    let whole = on_disk(&repository.path());
    for below in ["sub", "sub/deep", "sub/deep/c.yaml"] {
        let path = repository.path().join(below);
        assert_eq!(on_disk(&path), whole);
        assert_eq!(resolve(&path, "HEAD", &filter(), Limits::default()).unwrap().trees, whole.trees);
        let place = locate(&path).unwrap();
        assert_eq!((place.root, &*place.below, place.is_repository), (repository.path(), below, true));
    }
    assert_eq!(locate(&repository.path()).unwrap().below, "");
    // What the repository ignores is a folder like any other.
    repository.write(".gitignore", "/target\n");
    repository.write("target/example/x.yaml", "x");
    let place = locate(&repository.path().join("target/example")).unwrap();
    assert_eq!((&*place.below, place.is_repository), ("", false));
    assert_eq!(listing(&on_disk(&repository.path().join("target/example"))), ["x.yaml: text 1"]);
}

#[test]
fn a_path_through_a_link_within_the_repository_is_refused() {
    let outside = tempfile::tempdir().unwrap();
    fs::create_dir(outside.path().join("sub")).unwrap();
    fs::write(outside.path().join("sub/secret.yaml"), "secret").unwrap();
    let repository = Repository::with(&[("a.yaml", "a")]);
    symlink(outside.path(), repository.path().join("link")).unwrap();
    for below in ["link", "link/sub", "link/sub/secret.yaml"] {
        let error = read_work_tree(&repository.path().join(below), &filter(), Limits::default()).unwrap_err();
        assert!(matches!(error, Error::PathIsLink { .. }), "{below}: {error}");
    }
    assert_eq!(listing(&on_disk(&repository.path())), ["a.yaml: text 1", "link: link"]);
    // A link to a repository is how some homes are laid out.
    let home = tempfile::tempdir().unwrap();
    symlink(repository.path(), home.path().join("work")).unwrap();
    assert_eq!(listing(&on_disk(&home.path().join("work"))), ["a.yaml: text 1", "link: link"]);
}

#[test]
fn revisions_are_resolved_as_git_does() {
    let repository = Repository::new();
    let first = repository.commit(&[("a.yaml", "1")]);
    repository.git(&["tag", "-a", "v1", "-m", "x"]);
    repository.commit(&[("a.yaml", "2")]);
    for revision in ["v1", "HEAD~1", "main^", &first, &first[..10]] {
        let snapshot = resolve(&repository.path(), revision, &filter(), Limits::default()).unwrap();
        assert_eq!(snapshot.revision.to_string(), format!("{revision}@sha1:{first}"));
        assert_eq!(snapshot.text("a.yaml").unwrap().as_ref(), b"1");
    }
    for revision in ["absent", "HEAD:a.yaml", "", "--all"] {
        let error = resolve(&repository.path(), revision, &filter(), Limits::default()).unwrap_err();
        let expected = format!("`{revision}` is not a commit in the repository at {}", repository.path().display());
        assert_eq!(error.to_string(), expected);
    }
}

#[test]
fn a_bare_repository_is_read_by_revision_only() {
    let repository = Repository::with(&[("a.yaml", "1")]);
    let bare = repository.root().join("bare");
    git(&repository.root(), &["clone", "-q", "--bare", "repo", "bare"]);
    let snapshot = resolve(&bare, "main", &filter(), Limits::default()).unwrap();
    assert_eq!(listing(&snapshot), ["a.yaml: text 1"]);
    let error = read_work_tree(&bare, &filter(), Limits::default()).unwrap_err();
    assert!(error.to_string().contains("--rev"), "{error}");
}

#[test]
fn a_linked_work_tree_and_one_without_commits_can_be_read() {
    let repository = Repository::with(&[("a.yaml", "1")]);
    repository.git(&["worktree", "add", "-q", "../linked"]);
    let linked = repository.root().join("linked");
    fs::write(linked.join("b.yaml"), "2").unwrap();
    assert_eq!(listing(&on_disk(&linked)), ["a.yaml: text 1", "b.yaml: text 1"]);
    let empty = Repository::new();
    assert_eq!(listing(&on_disk(&empty.path())), Vec::<String>::new());
    empty.write("a.yaml", "1");
    check_agree(&empty);
}

#[test]
fn a_pipe_in_the_work_tree_delays_nothing() {
    let repository = Repository::with(&[("a.yaml", "1")]);
    let made = std::process::Command::new("mkfifo").arg(repository.path().join("pipe.yaml")).status().unwrap();
    assert!(made.success());
    assert_eq!(listing(&on_disk(&repository.path())), ["a.yaml: text 1"]);
}

#[test]
fn what_is_wrong_with_head_is_said_as_it_is() {
    let repository = Repository::new();
    let path = repository.path();
    let branch = repository.git(&["symbolic-ref", "--short", "HEAD"]);
    let (branch, in_git) = (branch.trim(), |name: &str| path.join(".git").join(name));
    assert_eq!(head_of(&path).unwrap(), Head::Unborn(branch.to_owned()));
    repository.commit(&[("a.yaml", "a: 1\n")]);
    assert_eq!(head_of(&path).unwrap(), Head::Commit);
    let detached = fs::read_to_string(in_git("HEAD")).unwrap();

    let why = || head_of(&path).unwrap_err().to_string();
    fs::write(in_git("HEAD"), "ref: refs/heads/other\n").unwrap();
    assert_eq!(head_of(&path).unwrap(), Head::Unborn("other".to_owned()), "others have commits");
    fs::write(in_git("refs/heads/other"), "no id\n").unwrap();
    let said = why();
    assert!(said.contains(": HEAD cannot be read: "), "a broken ref: {said}");
    let lost = "0123456789012345678901234567890123456789";
    fs::write(in_git("refs/heads/other"), format!("{lost}\n")).unwrap();
    let said = why();
    assert!(
        said.ends_with(&format!(
            ": it lacks the commit {lost} of HEAD: run `git fsck`, and clone the repository again"
        )),
        "{said}"
    );

    // Who owns it does not matter. Only an administrator may give it away.
    for path in [path.clone(), in_git("")] {
        drop(std::os::unix::fs::chown(path, Some(65_534), Some(65_534)));
    }
    fs::write(in_git("HEAD"), &detached).unwrap();
    assert_eq!(head_of(&path).unwrap(), Head::Commit, "its owner is another user");

    // As without the permission to read it: the operating system refuses.
    fs::remove_file(in_git("HEAD")).unwrap();
    symlink("HEAD", in_git("HEAD")).unwrap();
    let said = why();
    assert!(said.contains(": cannot open .git/HEAD: "), "{said}");
    assert!(matches!(locate(&path), Err(Error::Repository { .. })), "it is no folder without git");
    fs::remove_file(in_git("HEAD")).unwrap();
    fs::write(in_git("HEAD"), detached).unwrap();
    assert_eq!(head_of(&path).unwrap(), Head::Commit);
}
