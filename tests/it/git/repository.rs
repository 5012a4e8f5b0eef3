//! Repositories made by git itself.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use ssh_key::{HashAlg, LineEnding, PrivateKey};

/// A repository with a work tree in a folder of its own.
pub(crate) struct Repository {
    folder: tempfile::TempDir,
}

impl Repository {
    /// One without commits, on branch `main`.
    pub(crate) fn new() -> Repository {
        let repository = Repository { folder: tempfile::tempdir().unwrap() };
        fs::create_dir(repository.path()).unwrap();
        repository.git(&["init", "-q", "-b", "main"]);
        repository
    }

    /// One with a commit that holds these files.
    pub(crate) fn with(files: &[(&str, &str)]) -> Repository {
        let repository = Repository::new();
        repository.commit(files);
        repository
    }

    /// The folder that a server serves; the repository is `repo` in it.
    pub(crate) fn root(&self) -> PathBuf {
        self.folder.path().canonicalize().unwrap()
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.root().join("repo")
    }

    /// Writes a file.
    pub(crate) fn write(&self, path: &str, content: impl AsRef<[u8]>) {
        let path = self.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    /// Writes files and commits everything; the commit's id.
    pub(crate) fn commit(&self, files: &[(&str, &str)]) -> String {
        for (path, content) in files {
            self.write(path, content);
        }
        self.git(&["add", "-A"]);
        self.git(&["commit", "-q", "--allow-empty", "-m", "change"]);
        self.git(&["rev-parse", "HEAD"])
    }

    /// Runs git in it; what it prints.
    pub(crate) fn git(&self, arguments: &[&str]) -> String {
        git(&self.path(), arguments)
    }
}

/// Runs git in a folder; what it prints.
pub(crate) fn git(folder: &Path, arguments: &[&str]) -> String {
    let output = Command::new("git")
        .args(["-c", "safe.directory=*", "-c", "protocol.file.allow=always"])
        .args(arguments)
        .current_dir(folder)
        .envs([("GIT_CONFIG_NOSYSTEM", "1"), ("GIT_CONFIG_GLOBAL", "/dev/null")])
        .envs([("GIT_AUTHOR_NAME", "a"), ("GIT_AUTHOR_EMAIL", "a@example.com")])
        .envs([("GIT_COMMITTER_NAME", "a"), ("GIT_COMMITTER_EMAIL", "a@example.com")])
        .env_remove("GIT_DIR")
        .env_remove("GIT_WORK_TREE")
        .output()
        .unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    assert!(output.status.success(), "git {arguments:?}: {}", text(&output.stderr));
    text(&output.stdout)
}

/// Replaces the last commit of the branch `main` by the same one, signed with a key of SSH. It was committed at
/// `time`, or when the former one was. Returns its id.
pub(crate) fn sign_last(repository: &Path, key: &PrivateKey, time: Option<git2::Time>) -> String {
    let repository = git2::Repository::open(repository).unwrap();
    let commit = repository.head().unwrap().peel_to_commit().unwrap();
    let parents: Vec<git2::Commit<'_>> = commit.parents().collect();
    let parents: Vec<&git2::Commit<'_>> = parents.iter().collect();
    let author = match time {
        Some(time) => git2::Signature::new("a", "a@example.com", &time).unwrap(),
        None => commit.committer().to_owned(),
    };
    let tree = commit.tree().unwrap();
    let content = repository.commit_create_buffer(&author, &author, "signed\n", &tree, &parents).unwrap();
    let content = String::from_utf8(content.to_vec()).unwrap();
    let signature = key.sign("git", HashAlg::Sha512, content.as_bytes()).unwrap().to_pem(LineEnding::LF).unwrap();
    let id = repository.commit_signed(&content, signature.trim_end(), None).unwrap();
    repository.find_reference("refs/heads/main").unwrap().set_target(id, "signed").unwrap();
    id.to_string()
}
