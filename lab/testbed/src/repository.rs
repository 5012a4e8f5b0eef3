//! A git repository on this machine for commits, as a platform engineer makes them, without the git program.

use std::{
    fs,
    path::{Path, PathBuf},
};

use git2::{Commit, IndexAddOption, Oid, RepositoryInitOptions, Signature};

use crate::Error;

/// A repository with a work tree and the branch `main`.
#[derive(Clone, Debug)]
pub struct Repository {
    path: PathBuf,
}

// === impl Repository ===

impl Repository {
    /// Creates an empty repository.
    ///
    /// # Errors
    ///
    /// Fails if the folder cannot be written.
    pub fn init(path: &Path) -> Result<Repository, Error> {
        let mut options = RepositoryInitOptions::new();
        options.initial_head("main").mkpath(true).external_template(false);
        let made = git2::Repository::init_opts(path, &options).map_err(failed("make", path))?;
        // Later commits by hand should not require a user name.
        let mut settings = made.config().map_err(failed("configure", path))?;
        for (key, value) in [("user.name", "Platform"), ("user.email", "platform@example.org")] {
            settings.set_str(key, value).map_err(failed("configure", path))?;
        }
        Ok(Repository { path: path.to_owned() })
    }

    /// The path of its work tree.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its URL, for a GitSource.
    pub fn url(&self) -> String {
        format!("file://{}", self.path.display())
    }

    /// Reads a file of the work tree.
    ///
    /// # Errors
    ///
    /// Fails if it cannot be read.
    pub fn read(&self, file: &str) -> Result<String, Error> {
        let path = self.path.join(file);
        fs::read_to_string(&path).map_err(Error::file("read", path))
    }

    /// Writes a file of the work tree.
    ///
    /// # Errors
    ///
    /// Fails if it cannot be written.
    pub fn write(&self, file: &str, text: &str) -> Result<(), Error> {
        let path = self.path.join(file);
        let parent = path.parent().unwrap_or(&self.path);
        fs::create_dir_all(parent).map_err(Error::file("make the folder", parent))?;
        fs::write(&path, text).map_err(Error::file("write", path))
    }

    /// Replaces a passage of a file.
    ///
    /// # Errors
    ///
    /// Fails if the file does not contain it, or cannot be written.
    pub fn replace(&self, file: &str, from: &str, to: &str) -> Result<(), Error> {
        let text = self.read(file)?;
        if !text.contains(from) {
            let source = std::io::Error::other(format!("it does not contain `{from}`"));
            return Err(Error::File { action: "edit", path: self.path.join(file), source });
        }
        self.write(file, &text.replacen(from, to, 1))
    }

    /// Removes a file or folder from the work tree.
    ///
    /// # Errors
    ///
    /// Fails if it cannot be removed.
    pub fn remove(&self, file: &str) -> Result<(), Error> {
        let path = self.path.join(file);
        let removed = if path.is_dir() { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
        removed.map_err(Error::file("remove", path))
    }

    /// Commits everything in the work tree and returns the commit's id.
    ///
    /// # Errors
    ///
    /// Fails if the repository cannot be written.
    pub fn commit(&self, message: &str) -> Result<String, Error> {
        let failed = || failed("commit to", &self.path);
        let repository = self.open()?;
        let mut index = repository.index().map_err(failed())?;
        index.add_all(["*"], IndexAddOption::DEFAULT, None).map_err(failed())?;
        index.update_all(["*"], None).map_err(failed())?;
        index.write().map_err(failed())?;
        let tree = index.write_tree().map_err(failed())?;
        self.record(&repository, tree, message)
    }

    /// Reverts a commit in a new one, as `git revert` does, and returns the new commit's id. Uncommitted changes in the
    /// work tree are lost.
    ///
    /// # Errors
    ///
    /// Fails if the commit cannot be reverted.
    pub fn revert(&self, commit: &str) -> Result<String, Error> {
        let failed = || failed("revert a commit of", &self.path);
        let repository = self.open()?;
        let reverted = repository.find_commit(Oid::from_str(commit).map_err(failed())?).map_err(failed())?;
        let head = self.head_commit(&repository)?;
        let mut index = repository.revert_commit(&reverted, &head, 0, None).map_err(failed())?;
        let tree = index.write_tree_to(&repository).map_err(failed())?;
        let title = reverted.summary().ok().flatten().unwrap_or_default().to_owned();
        let made = self.record(&repository, tree, &format!("Revert \"{title}\"\n\nThis reverts commit {commit}."))?;
        let mut checkout = git2::build::CheckoutBuilder::new();
        repository.checkout_head(Some(checkout.force())).map_err(failed())?;
        Ok(made)
    }

    /// The id of the last commit.
    ///
    /// # Errors
    ///
    /// Fails if there is none.
    pub fn head(&self) -> Result<String, Error> {
        Ok(self.head_commit(&self.open()?)?.id().to_string())
    }

    fn open(&self) -> Result<git2::Repository, Error> {
        git2::Repository::open(&self.path).map_err(failed("open", &self.path))
    }

    fn head_commit<'a>(&self, repository: &'a git2::Repository) -> Result<Commit<'a>, Error> {
        let head = repository.head().and_then(|head| head.peel_to_commit());
        head.map_err(failed("read", &self.path))
    }

    fn record(&self, repository: &git2::Repository, tree: Oid, message: &str) -> Result<String, Error> {
        let failed = || failed("commit to", &self.path);
        let tree = repository.find_tree(tree).map_err(failed())?;
        let author = Signature::now("Platform", "platform@example.org").map_err(failed())?;
        // The first commit has no parent.
        let parent = self.head_commit(repository).ok();
        let parents: Vec<&Commit<'_>> = parent.iter().collect();
        let made = repository.commit(Some("HEAD"), &author, &author, message, &tree, &parents);
        Ok(made.map_err(failed())?.to_string())
    }
}

fn failed(action: &'static str, path: &Path) -> impl FnOnce(git2::Error) -> Error {
    let path = path.to_owned();
    move |source| Error::Repository { action, path, source }
}

#[cfg(test)]
mod tests;
