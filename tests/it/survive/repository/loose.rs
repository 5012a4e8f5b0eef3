//! Loose objects that are cut, as a full disk leaves them. libgit2 reads such a file for ever.

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};

use tidegate_core::{name::Key, revision::Revision};
use tidegate_git::{Engine, Error, Exhaustion, Reference, Remote, State, limits::EngineLimits};

use crate::{
    git::{Fixture, noise, repository::Repository, server::Server},
    harness::SOON,
};

fn plain(server: &Server) -> Remote {
    Remote {
        url: server.url("repo").parse().unwrap(),
        reference: Reference::Branch("main".into()),
        credentials: None,
        client: None,
        ca: None,
        proxy: None,
        ssh: None,
        timeout: Duration::from_secs(60),
    }
}

/// The file of a loose object.
fn loose(git: &Path, id: &str) -> PathBuf {
    git.join("objects").join(&id[..2]).join(&id[2..])
}

/// Replaces a file by its beginning.
fn cut(file: &Path, length: usize) {
    let bytes = fs::read(file).unwrap();
    fs::remove_file(file).unwrap();
    fs::write(file, &bytes[..length.min(bytes.len() - 1)]).unwrap();
}

/// Replaces the packs of a repository by loose objects.
fn unpacked(git: &Path) {
    let packs: Vec<PathBuf> =
        fs::read_dir(git.join("objects/pack")).unwrap().map(|entry| entry.unwrap().path()).collect();
    for pack in packs {
        let moved = git.join(pack.file_name().unwrap());
        fs::rename(&pack, &moved).unwrap();
        if moved.extension().is_some_and(|extension| extension == "pack") {
            let mut command = Command::new("git");
            command.arg("--git-dir").arg(git).args(["unpack-objects", "-q"]).stdin(File::open(&moved).unwrap());
            assert!(command.status().unwrap().success());
        }
    }
}

#[tokio::test]
async fn a_command_on_a_repository_with_a_cut_object_ends_with_a_sentence() {
    for what in ["HEAD", "HEAD^{tree}", "HEAD:a.yaml"] {
        let repository = Repository::with(&[("a.yaml", &noise(3, 40_000)), ("b.yaml", "b: 1\n")]);
        let root = repository.path();
        let id = repository.git(&["rev-parse", what]);
        cut(&loose(&root.join(".git"), id.trim()), 100);
        for arguments in [&["diff", "--from", "HEAD", "--to", "HEAD"][..], &["diff"]] {
            let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_tidegate"));
            command.args(arguments).current_dir(&root).stdin(Stdio::null()).kill_on_drop(true);
            let output = tokio::time::timeout(SOON, command.output()).await.expect("it ends").unwrap();
            let text = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.code(), Some(2), "{what} {arguments:?}: {text}");
            assert!(text.starts_with("error: ") && text.contains(id.trim()), "{what} {arguments:?}: {text}");
        }
    }
}

#[tokio::test]
async fn a_search_for_a_commit_that_might_read_a_cut_object_ends_with_a_sentence() {
    let repository = Repository::with(&[("a.yaml", "a: 0\n")]);
    // The message makes the commit long enough to be cut within what follows its header.
    repository.git(&["commit", "-q", "--allow-empty", "-m", &noise(5, 20_000)]);
    let cut_id = repository.git(&["rev-parse", "HEAD"]);
    let cut_id = cut_id.trim();
    for number in 1..4 {
        repository.commit(&[("a.yaml", &format!("a: {number}\n"))]);
    }
    let root = repository.path();
    let head = repository.git(&["rev-parse", "HEAD"]);
    let parent = repository.git(&["rev-parse", "HEAD~1"]);
    // The branches diverged before the commit that will be cut.
    repository.git(&["checkout", "-q", "-b", "feature", "HEAD~4"]);
    repository.commit(&[("b.yaml", "b: 1\n")]);
    cut(&loose(&root.join(".git"), cut_id), 2_000);
    let run = async |arguments: &[&str]| {
        let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_tidegate"));
        command.arg("diff").args(arguments).current_dir(&root).stdin(Stdio::null()).kill_on_drop(true);
        let output = tokio::time::timeout(SOON, command.output()).await.expect("it ends").unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let searched: [&[&str]; 4] =
        [&["--from", "main~3", "--to", "main"], &["--from", &cut_id[..8], "--to", "main"], &["--from", ":/noise"], &[]];
    for arguments in searched {
        let (code, text) = run(arguments).await;
        assert_eq!(code, Some(2), "{arguments:?}: {text}");
        assert!(text.starts_with("error: ") && text.contains(cut_id), "{arguments:?}: {text}");
    }
    let (code, text) = run(&["--from", parent.trim(), "--to", head.trim()]).await;
    assert_ne!(code, Some(2), "{text}");
    // A search reads no blobs.
    cut(&loose(&root.join(".git"), repository.git(&["rev-parse", "main~2:a.yaml"]).trim()), 10);
    fs::remove_file(loose(&root.join(".git"), cut_id)).unwrap();
    let (code, text) = run(&["--from", "main~1", "--to", "main"]).await;
    assert_ne!(code, Some(2), "{text}");
}

#[tokio::test]
async fn a_mirror_with_a_cut_object_is_built_anew() {
    let text = noise(4, 40_000);
    let repository = Repository::with(&[("a.yaml", &text)]);
    let server = Server::start_plain(&repository.root());
    let fixture = Fixture::new(plain(&server));
    let good = fixture.update().await.revision;
    unpacked(&fixture.generation());
    assert_eq!(fixture.read(&good).await.unwrap().text("a.yaml").unwrap()[..], *text.as_bytes());
    cut(&loose(&fixture.generation(), repository.git(&["rev-parse", "HEAD:a.yaml"]).trim()), 5_000);
    let error = fixture.read(&good).await.unwrap_err();
    assert_eq!(error.reason(), "MirrorDamaged", "{error}");
    let again = fixture.update().await.revision;
    assert_eq!(fixture.read(&again).await.unwrap().text("a.yaml").unwrap()[..], *text.as_bytes());
}

#[tokio::test]
async fn the_engine_of_a_task_that_libgit2_never_ends_is_ended_by_its_cpu_time() {
    let repository = Repository::with(&[("templates/a.yaml", "a: 1\n")]);
    // The message makes the commit long enough to be cut within what follows its header.
    let message = noise(5, 20_000);
    repository.git(&["commit", "-q", "--allow-empty", "-m", &message]);
    let parent = repository.git(&["rev-parse", "HEAD"]);
    repository.commit(&[("templates/a.yaml", "a: 2\n")]);
    let server = Server::start_plain(&repository.root());
    let folder = tempfile::tempdir().unwrap();
    let computing = Duration::from_secs(1);
    let limits = EngineLimits { computing, ..EngineLimits::default() };
    let numbers = [u128::from(limits.memory_mib), limits.computing.as_millis(), limits.time.as_millis()];
    let arguments = ["git".to_owned(), "engine".to_owned()].into_iter().chain(numbers.map(|number| number.to_string()));
    let engine = Engine::confined(env!("CARGO_BIN_EXE_tidegate").into(), arguments.collect(), limits);
    let state = State::open(folder.path()).unwrap().with_engine(engine);
    let remote = plain(&server);
    let mirror = state.mirror(&Key::new("kcp-system", "landscape"), &remote.url).unwrap();
    let revision: Revision = mirror.fetch(&remote).await.unwrap().revision;
    assert_eq!(mirror.versions(&revision, "templates", 5).await.unwrap().len(), 2);
    let generation = crate::git::generation_below(folder.path());
    unpacked(&generation);
    cut(&loose(&generation, parent.trim()), 2_000);
    let error = mirror.versions(&revision, "templates", 5).await.unwrap_err();
    let limit = Exhaustion::Computing(computing);
    assert!(matches!(error, Error::Exhausted { limit: found, .. } if found == limit), "{error}");
}
