//! Git: fetches repositories and reads the files of a revision.
//!
//! * [`Mirror`] is a bare repository per source and URL in a [`State`] folder. A fetch is incremental, has one total
//!   deadline for the network and runs on its own thread, so a stalled server delays nothing else. Fetched objects stay
//!   readable even if the server disappears.
//! * [`Engine`] does everything that unpacks objects of a mirror. The daemon's engine does so in processes with limits:
//!   168 KiB of a repository can ask for a gigabyte of memory. This process speaks git's protocol, stores packs in
//!   files, and looks up ids in indexes; it unpacks nothing that came from a server.
//! * [`Mirror::snapshot`] and [`resolve`] read files from git objects. Nothing is checked out, so no symbolic link and
//!   no `..` can lead out of the repository.
//! * [`read_work_tree`] reads what `git add -A` would see, for the command line. It, [`resolve`] and [`merge_base`]
//!   read the user's own repositories, which git itself has unpacked on this machine, in this process.
//! * [`LocalWatch`] reports that a local repository changed.
//!
//! A [`GitHubApp`] in place of credentials asks GitHub's API for a token before a fetch, in the time of that fetch.
//!
//! It refuses: credentials over plain HTTP or after a redirect to another origin; link-local addresses (metadata
//! services), checked after name resolution for every connection, and through a proxy as far as the URL has an address;
//! ssh hosts that the Secret's `known_hosts` does not know; repositories with SHA-256 ids; answers beyond the limits in
//! [`limits`]. It runs no program, reads no configuration of the user or the system and no environment, and prints no
//! text from a remote in errors: [`Error::said`] has it, cleaned, for the GitSource's status.

#![cfg_attr(test, allow(clippy::needless_pass_by_value, reason = "tests write values where they are used"))]

use std::sync::Once;

pub use self::{
    engine::{EXIT_COMPUTING, EXIT_ELAPSED, Engine, Trial, serve},
    error::{Error, Exhaustion},
    flaw::{Distrust, Flaw, Strange},
    github_app::{AppProblem, AppSettings, AppSettingsProblem, GitHubApp},
    local::{
        Head, MergeBase, RepositoryPath, evidence, head, locate, merge_base, messages_between, read_object,
        read_work_tree, read_work_tree_after, resolve, resolve_after,
    },
    local_changes::LocalWatch,
    mirror::{Fetched, Mirror},
    objects::Files,
    proxy::{Proxy, ProxyProblem},
    remote::{ClientCertificate, Credentials, Reference, Remote},
    server_message::ServerMessage,
    ssh::{HostKey, HostKeyProblem, IdentityProblem, SshAccess},
    state::State,
    url::{ParseUrlError, Url},
};

mod address;
mod advertisement;
mod answer;
mod copy;
mod engine;
mod error;
mod evidence;
mod fetch;
mod flaw;
#[doc(hidden)]
pub mod fuzz;
mod generation;
mod github_app;
mod history;
mod http;
pub mod limits;
mod local;
mod local_changes;
mod loose;
mod mirror;
mod objects;
mod packet;
mod proxy;
mod remote;
mod server_message;
mod ssh;
mod state;
mod thread;
mod transport;
mod url;
mod work;
mod work_tree;

/// Configures libgit2 once per process; every entry point of this crate calls it.
fn prepare() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // Settings such as `url.insteadOf`, `http.proxy` and `core.excludesFile` would make the result depend on the
        // machine. With an empty search path, only the configuration of the repository itself is read.
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
        // SAFETY: as above. Git checks who owns a repository because it runs hooks and programs from its configuration.
        // Tidegate runs none, and another user often owns the checkout in a pipeline.
        let set = unsafe { git2::opts::set_verify_owner_validation(false) };
        debug_assert!(set.is_ok(), "the setting exists in this libgit2");
    });
}
