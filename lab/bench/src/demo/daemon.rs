//! The daemon of the demo: this program as a child process, restarted as a Deployment would do it.

use std::{
    path::{Path, PathBuf},
    sync::MutexGuard,
    time::Duration,
};

use anyhow::Context as _;
use tidegate_process::{lock::Mutex, say};
use tidegate_testbed::Guarded;

use super::report;

/// What the guard reports for a child that was killed by SIGKILL, as every shell does.
const KILLED: i32 = 128 + 9;
/// How often to check whether it still runs.
const POLL: Duration = Duration::from_millis(200);

/// A running daemon. Dropping the value stops it.
pub(super) struct Daemon {
    program: PathBuf,
    arguments: Vec<String>,
    folder: PathBuf,
    log: PathBuf,
    process: Mutex<Guarded>,
}

impl Daemon {
    /// Starts it in `folder`, with its log in `daemon.log` there. Fails if the process does not start.
    pub(super) fn start(folder: &Path, arguments: Vec<String>) -> anyhow::Result<Daemon> {
        let program = std::env::current_exe().context("cannot find the path of this program")?;
        let log = folder.join("daemon.log");
        let process = Guarded::start(&program, &arguments, folder, &log)?;
        Ok(Daemon { program, arguments, folder: folder.to_owned(), log, process: Mutex::new(process) })
    }

    /// The command line, for a user who runs it by hand.
    pub(super) fn command_line(&self) -> String {
        let arguments = self.arguments.iter().map(say::word);
        std::iter::once(say::word(self.program.display())).chain(arguments).collect::<Vec<_>>().join(" ")
    }

    /// The path of its log.
    pub(super) fn log(&self) -> &Path {
        &self.log
    }

    /// The end of its log.
    pub(super) fn log_tail(&self) -> String {
        self.process().log_tail()
    }

    /// Kills it, as `kill -9` would. [`Daemon::supervise`] starts it again.
    pub(super) fn kill(&self) {
        self.process().signal("KILL");
    }

    /// Starts it again whenever it was killed, as a Deployment would. Returns an error when it exited by itself, which
    /// must not happen.
    pub(super) async fn supervise(&self) -> anyhow::Error {
        loop {
            tokio::time::sleep(POLL).await;
            let Some(status) = self.process().ended() else { continue };
            if status.code() != Some(KILLED) {
                return anyhow::anyhow!("the daemon exited unexpectedly ({status})");
            }
            report::doing("the daemon was killed: restarting it");
            match Guarded::start(&self.program, &self.arguments, &self.folder, &self.log) {
                Ok(process) => *self.process() = process,
                Err(error) => return error.into(),
            }
        }
    }

    fn process(&self) -> MutexGuard<'_, Guarded> {
        self.process.lock()
    }
}
