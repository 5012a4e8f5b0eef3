//! Processes and folders that end with us, also when we are killed.
//!
//! A process cannot clean up after its own SIGKILL, so somebody else has to: each server is started by a shell of a
//! few lines that holds the reading end of a pipe. The writing end is ours alone; when we end, in whatever way, the
//! kernel closes it, the shell reads the end of the file and kills its server. (Linux's parent-death signal would need
//! `unsafe`, and fires when the starting *thread* ends.)

use std::{
    ffi::OsStr,
    fs::OpenOptions,
    io::Write as _,
    os::unix::process::CommandExt as _,
    path::{Path, PathBuf},
    process::{Child, ChildStdin, Command, ExitStatus, Stdio},
};

use crate::Error;

/// Runs its arguments as a child. Each line on standard input is the name of a signal to pass on; its end kills the
/// child. Ends with the child's exit code as soon as the child ends.
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

/// Removes its argument, a folder, when standard input ends without a word. A server that is being killed may still
/// write into it, hence the repetition. What it needs is found without the user's `PATH`, too.
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

/// Tells whether a [`Guarded`] program has ended, to whoever does not hold it.
#[derive(Clone, Debug)]
pub struct Pulse {
    guard: u32,
    log: PathBuf,
}

// === impl Pulse ===

impl Pulse {
    /// The end of its log, if it has ended and nobody has asked how yet.
    pub fn ended(&self) -> Option<String> {
        // The name in parentheses may hold blanks; the state follows it.
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.guard)).ok()?;
        let (_, rest) = stat.rsplit_once(')')?;
        rest.trim_start().starts_with('Z').then(|| tail(&self.log, 12))
    }
}

// === impl Guarded ===

impl Guarded {
    /// Starts `program` in `folder`, in a process group of its own, with its output appended to `log`.
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
            .stdin(Stdio::piped())
            .stdout(output)
            .stderr(errors)
            // Ctrl-C in a terminal goes to a whole process group; who ends the servers, and when, is for us to say.
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

    /// Where its output goes.
    pub fn log(&self) -> &Path {
        &self.log
    }

    /// The process id of the program itself, while it runs: its guard is the parent.
    pub fn program_pid(&self) -> Option<u32> {
        let guard = self.guard.id();
        let children = std::fs::read_to_string(format!("/proc/{guard}/task/{guard}/children")).ok()?;
        // The guard reads its pipe with a `cat` of its own; the program was started before it.
        children.split_whitespace().next()?.parse().ok()
    }

    /// What tells whether it has ended.
    pub fn pulse(&self) -> Pulse {
        Pulse { guard: self.guard.id(), log: self.log.clone() }
    }

    /// How it ended, if it has.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.guard.try_wait().ok().flatten()
    }

    /// Passes a signal on, by its name without `SIG`. A process that has ended hears nothing.
    pub fn signal(&mut self, signal: &str) {
        if let Some(pipe) = &mut self.pipe {
            // A broken pipe means that it has ended, which is no news to the one who asks `ended`.
            let _ = writeln!(pipe, "{signal}");
        }
    }

    /// Kills it and waits until it is gone.
    pub fn end(&mut self) {
        drop(self.pipe.take());
        let _ = self.guard.wait();
    }

    /// The end of its log, for an error's message.
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
    /// A new folder with a name that begins with `prefix`, in the system's temporary folder.
    pub fn temporary(prefix: &str) -> Result<Folder, Error> {
        let made = tempfile::Builder::new()
            .prefix(prefix)
            .tempdir()
            .map_err(Error::file("make a folder in", std::env::temp_dir()))?;
        Folder::owned(made.keep())
    }

    /// Takes over an existing folder.
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

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Keeps the folder for good.
    pub fn keep(mut self) -> PathBuf {
        if let Some(mut pipe) = self.janitor.stdin.take() {
            // A janitor that is gone removes nothing either.
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

/// The last lines of a file, or why there are none.
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
