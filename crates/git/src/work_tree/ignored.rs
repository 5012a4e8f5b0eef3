//! What a repository ignores: `.gitignore` of each folder, and `.git/info/exclude`.

use std::{
    fs::File,
    io::Read,
    os::{fd::OwnedFd, unix::ffi::OsStrExt},
    path::Path,
    rc::Rc,
};

use git2::Repository;
use ignore::{
    Match,
    gitignore::{Gitignore, GitignoreBuilder},
};
use rustix::fs::{Mode, OFlags, openat};

/// Limit of a list's size.
const LIST_BYTES_MAX: u64 = 1 << 20;

/// The lists that apply to a folder, innermost first.
#[derive(Clone)]
pub(super) struct Ignored {
    list: Option<Rc<List>>,
}

struct List {
    matcher: Gitignore,
    /// Length of the path of the list's folder; its patterns are relative to that.
    folder_len: usize,
    outer: Option<Rc<List>>,
}

// === impl Ignored ===

impl Ignored {
    /// No lists: nothing is ignored.
    pub(super) fn nothing() -> Ignored {
        Ignored { list: None }
    }

    /// The repository's own list, outside of the work tree.
    pub(super) fn of_repository(repository: &Repository) -> Ignored {
        let text = std::fs::read_to_string(repository.commondir().join("info/exclude")).unwrap_or_default();
        Ignored::nothing().and(&text, 0)
    }

    /// Adds the list of a folder, if there is one.
    pub(super) fn within(&self, folder: &OwnedFd, folder_path: &[u8]) -> Ignored {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let Ok(file) = openat(folder, ".gitignore", flags, Mode::empty()) else { return self.clone() };
        let file = File::from(file);
        let mut bytes = Vec::new();
        let is_file = file.metadata().is_ok_and(|metadata| metadata.is_file());
        if !is_file || file.take(LIST_BYTES_MAX).read_to_end(&mut bytes).is_err() {
            return self.clone();
        }
        self.and(&String::from_utf8_lossy(&bytes), folder_path.len())
    }

    fn and(&self, text: &str, folder_len: usize) -> Ignored {
        let mut builder = GitignoreBuilder::new("");
        for line in text.trim_start_matches('\u{feff}').lines() {
            // As in git, an invalid pattern matches nothing.
            let _ = builder.add_line(None, line);
        }
        match builder.build() {
            Ok(matcher) if !matcher.is_empty() => {
                Ignored { list: Some(Rc::new(List { matcher, folder_len, outer: self.list.clone() })) }
            }
            _ => self.clone(),
        }
    }

    /// Whether a path is ignored, if its folder is not.
    pub(super) fn matches(&self, path: &[u8], is_folder: bool) -> bool {
        let mut next = self.list.as_ref();
        while let Some(list) = next {
            let below = path.get(list.folder_len..).unwrap_or_default();
            let below = below.strip_prefix(b"/").unwrap_or(below);
            match list.matcher.matched(Path::new(std::ffi::OsStr::from_bytes(below)), is_folder) {
                Match::Ignore(_) => return true,
                Match::Whitelist(_) => return false,
                Match::None => next = list.outer.as_ref(),
            }
        }
        false
    }
}
