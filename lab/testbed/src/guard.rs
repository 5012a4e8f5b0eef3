//! Processes and folders that end with this process, even if it is killed.
//!
//! A process cannot clean up after its own SIGKILL. So each server is started by a small shell script that reads a pipe
//! whose writing end only we hold. When we end, the kernel closes the pipe; the script then kills its server. (Linux's
//! parent-death signal would need `unsafe`, and fires when the starting *thread* ends.)

use std::{
    ffi::OsStr,
    fs::OpenOptions,
    io::Write as _,
    os::unix::process::CommandExt as _,
    path::{Path, PathBuf},
    process::{Child, ChildStdin, Command, ExitStatus, Stdio},
};

use crate::Error;

/// Runs its arguments as a child. Each line on standard input is a signal to forward; end of input kills the child.
/// Exits with the child's exit code as soon as the child ends.
const GUARD: &str = r#"
exec 3<&0 </dev/null
"$@" 3<&- &
child=$!
{ while read -r signal; do kill -s "$signal" "$child"; done; kill -s KILL "$child"; } <&3 2>/dev/null &
watcher=$!
exec 3<&-
wait "$child"
code=$?
kill -s KILL "$watcher" 2>/dev/null
exit "$code"
"#;

/// The garbage collection of programs in Go: none until the program has this much memory. A kube-apiserver of a test
/// rarely comes that far, and spends a fifth less CPU time than with the default.
const GO_MEMORY: [(&str, &str); 2] = [("GOGC", "off"), ("GOMEMLIMIT", "512MiB")];

/// Removes its argument, a folder, at the end of standard input. A server that is being killed may still write there,
/// so it retries. It does not depend on the user's `PATH`.
const JANITOR: &str = r#"
read -r word && exit 0
PATH="${PATH:+$PATH:}/usr/bin:/bin"
tries=0
while [ "$tries" -lt 100 ]; do
  rm -rf -- "$1" 2>/dev/null && [ ! -e "$1" ] && exit 0
  tries=$((tries + 1))
  sleep 0.1
done
exit 1
"#;

/// A running program that is killed when this value is dropped or this process ends.
#[derive(Debug)]
pub struct Guarded {
    name: String,
    log: PathBuf,
    guard: Child,
    pipe: Option<ChildStdin>,
}

/// Tells whether a [`Guarded`] program has ended, without owning it.
#[derive(Clone, Debug)]
pub struct Pulse {
    guard: u32,
    log: PathBuf,
}

// === impl Pulse ===

impl Pulse {
    /// The end of its log, if it has ended and its exit status has not been read yet.
    pub fn ended(&self) -> Option<String> {
        // The name in parentheses may contain spaces; the state follows it.
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.guard)).ok()?;
        let (_, rest) = stat.rsplit_once(')')?;
        rest.trim_start().starts_with('Z').then(|| tail(&self.log, 12))
    }
}

// === impl Guarded ===

impl Guarded {
    /// Starts `program` in `folder`, in its own process group, and appends its output to `log`.
    ///
    /// # Errors
    ///
    /// Fails if the log cannot be opened or the program cannot be started.
    pub fn start<A: AsRef<OsStr>>(
        program: &Path,
        arguments: impl IntoIterator<Item = A>,
        folder: &Path,
        log: &Path,
    ) -> Result<Guarded, Error> {
        let output =
            OpenOptions::new().create(true).append(true).open(log).map_err(Error::file("open the log", log))?;
        let errors = output.try_clone().map_err(Error::file("open the log", log))?;
        let mut guard = Command::new("/bin/sh")
            .args(["-c", GUARD, "guard"])
            .arg(program)
            .args(arguments)
            .current_dir(folder)
            .envs(GO_MEMORY)
            .stdin(Stdio::piped())
            .stdout(output)
            .stderr(errors)
            // Ctrl-C in a terminal reaches a whole process group, but we decide when the servers end.
            .process_group(0)
            .spawn()
            .map_err(|source| Error::Start { program: program.to_owned(), source })?;
        let name = program.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let pipe = guard.stdin.take();
        Ok(Guarded { name, log: log.to_owned(), guard, pipe })
    }

    /// The program's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The path of its log.
    pub fn log(&self) -> &Path {
        &self.log
    }

    /// The process id of the program itself, while it runs. Its parent is the guard.
    pub fn program_pid(&self) -> Option<u32> {
        let guard = self.guard.id();
        let children = std::fs::read_to_string(format!("/proc/{guard}/task/{guard}/children")).ok()?;
        // The guard reads its pipe with `cat`, which it starts after the program.
        children.split_whitespace().next()?.parse().ok()
    }

    /// A handle that tells whether it has ended.
    pub fn pulse(&self) -> Pulse {
        Pulse { guard: self.guard.id(), log: self.log.clone() }
    }

    /// Its exit status, if it has ended.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.guard.try_wait().ok().flatten()
    }

    /// Forwards a signal, by its name without `SIG`. Does nothing if the process has ended.
    pub fn signal(&mut self, signal: &str) {
        if let Some(pipe) = &mut self.pipe {
            // A broken pipe means that it has ended, which `ended` reports.
            let _ = writeln!(pipe, "{signal}");
        }
    }

    /// Kills it and waits for its end.
    pub fn end(&mut self) {
        drop(self.pipe.take());
        let _ = self.guard.wait();
    }

    /// The end of its log, for an error message.
    pub fn log_tail(&self) -> String {
        tail(&self.log, 12)
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        self.end();
    }
}

/// A temporary folder that is removed when this value is dropped or this process ends.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
    janitor: Child,
}

impl Folder {
    /// Creates a folder in the system's temporary folder, with a name that begins with `prefix`.
    ///
    /// # Errors
    ///
    /// Fails if the folder cannot be created.
    pub fn temporary(prefix: &str) -> Result<Folder, Error> {
        Folder::temporary_in(&std::env::temp_dir(), prefix)
    }

    /// As [`Folder::temporary`], in another folder.
    ///
    /// # Errors
    ///
    /// Fails if the folder cannot be created.
    pub fn temporary_in(place: &Path, prefix: &str) -> Result<Folder, Error> {
        let made = tempfile::Builder::new().prefix(prefix).tempdir_in(place);
        Folder::owned(made.map_err(Error::file("make a folder in", place))?.keep())
    }

    /// Takes ownership of an existing folder.
    ///
    /// # Errors
    ///
    /// Fails if the process that removes it cannot be started.
    pub fn owned(path: PathBuf) -> Result<Folder, Error> {
        let janitor = Command::new("/bin/sh")
            .args(["-c", JANITOR, "janitor"])
            .arg(&path)
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
            .map_err(|source| Error::Start { program: "/bin/sh".into(), source })?;
        Ok(Folder { path, janitor })
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Keeps the folder permanently.
    pub fn keep(mut self) -> PathBuf {
        if let Some(mut pipe) = self.janitor.stdin.take() {
            // Without a janitor, the folder stays as well.
            let _ = writeln!(pipe, "keep");
        }
        self.path.clone()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // `wait` closes the pipe first.
        let _ = self.janitor.wait();
    }
}

/// The last lines of a file, or why they cannot be read.
pub(super) fn tail(path: &Path, lines: usize) -> String {
    match std::fs::read(path) {
        Ok(bytes) => {
            let text = String::from_utf8_lossy(&bytes);
            let all: Vec<&str> = text.lines().collect();
            let last = all[all.len().saturating_sub(lines)..].join("\n");
            if last.is_empty() { "it printed nothing".to_owned() } else { last }
        }
        Err(error) => format!("no log: {error}"),
    }
}

#[cfg(test)]
mod tests;
