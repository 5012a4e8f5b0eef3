//! Git: fetching what users push, and reading the files of a revision.
//!
//! * [`Mirror`] is a bare repository per source and URL below a [`State`] folder. A fetch is incremental, has a
//!   deadline in total and a thread of its own, so a server that stalls holds nobody else up. What was read before
//!   stays readable whatever becomes of the server.
//! * [`Mirror::snapshot`] and [`resolve`] read files from git objects; nothing is ever checked out, so no symbolic
//!   link and no `..` can lead out of the repository.
//! * [`read_work_tree`] reads what `git add -A` would see, for the command line.
//! * [`LocalWatch`] says that something happened to a local repository.
//!
//! What it refuses: credentials over plain http, and after a redirect to another origin; addresses that are
//! link-local (metadata services live there), checked after the name is resolved, for every connection; repositories
//! with SHA-256 ids; answers beyond the limits in [`limits`]. No program is run, no configuration of the user or the
//! system is read, no proxy is taken from the environment, and no error quotes what a remote said.

use std::sync::Once;

pub use self::{
    error::Error,
    local::{MergeBase, Place, locate, merge_base, read_work_tree, read_work_tree_after, resolve, resolve_after},
    mirror::{Fetched, Mirror},
    objects::Files,
    remote::{Credentials, Reference, Remote},
    state::State,
    url::{ParseUrlError, Url},
    watch::LocalWatch,
};

mod address;
mod advertisement;
mod error;
mod fetch;
mod generation;
mod http;
pub mod limits;
mod local;
mod mirror;
mod objects;
mod redirect;
mod remote;
mod state;
mod thread;
mod url;
mod watch;
mod work_tree;

/// Sets libgit2 up, once per process; every entrance of this module calls it.
fn prepare() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // `url.insteadOf`, `http.proxy`, `core.excludesFile` and their like would make what we read depend on the
        // machine. An empty search path leaves only the configuration of the repository itself.
        for level in [
            git2::ConfigLevel::System,
            git2::ConfigLevel::Global,
            git2::ConfigLevel::XDG,
            git2::ConfigLevel::ProgramData,
        ] {
            #[expect(unsafe_code, reason = "process-wide settings of libgit2, made once and before any use of it")]
            // SAFETY: within `Once`, before the first repository is opened; no other thread is in libgit2 yet.
            let set = unsafe { git2::opts::set_search_path(level, "") };
            debug_assert!(set.is_ok(), "an empty search path is valid");
        }
        #[expect(unsafe_code, reason = "as above")]
        // SAFETY: as above. Git asks who owns a repository since it runs hooks and programs named in its
        // configuration; we run none, and checkouts in pipelines often belong to somebody else.
        let set = unsafe { git2::opts::set_verify_owner_validation(false) };
        debug_assert!(set.is_ok(), "the setting exists in this libgit2");
        http::register();
    });
}
