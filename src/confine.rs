//! Engines: this program as a separate process with limits, for what comes from repositories.
//!
//! A [`Renderer`](crate::renderer::Renderer) starts this program again as a template engine and sends it requests. A
//! [`tidegate_git::Engine`] starts it for each task on git objects, and a [`tidegate_oci::Unpacker`] for each blob of a
//! registry. Before an engine reads anything, it limits its own memory. A second thread ends the process when it uses
//! too much time. Whatever a template, a pack or a blob does to its engine, the daemon only sees a missing answer.
//! Requests and answers are lines of JSON.
//!
//! Does not guess why an engine ended. Running out of memory and out of stack look alike, so the daemon reports them
//! alike.

use std::{
    io::{self, BufRead as _, Write},
    path::PathBuf,
    sync::mpsc::{self, RecvTimeoutError},
    thread,
    time::{Duration, Instant},
};

use rustix::{
    process::{Resource, Rlimit, nice, setrlimit},
    time::{ClockId, clock_gettime},
};
use tidegate_core::template::{Answer, Local, Request};
use tidegate_git::{self as git, limits::EngineLimits};
use tidegate_oci::{self as oci, limits::UnpackLimits};

/// The arguments that make this program a template engine.
pub(crate) const ARGUMENTS: [&str; 2] = ["template", "engine"];
/// The arguments that make this program an engine for git objects; its memory in MiB, CPU time and elapsed time in
/// milliseconds follow.
const GIT_ARGUMENTS: [&str; 2] = ["git", "engine"];

/// The arguments that make this program unpack a blob; its memory in MiB, CPU time and elapsed time in milliseconds
/// follow, and what the blob is.
const OCI_ARGUMENTS: [&str; 2] = ["oci", "engine"];
// Engines for git and for blobs end in the same way.
const _: () = assert!(git::EXIT_COMPUTING == oci::EXIT_COMPUTING && git::EXIT_ELAPSED == oci::EXIT_ELAPSED);

/// Memory that an engine may write to. The embedded templates and a large context need a tenth of it.
pub(crate) const MEMORY_MIB_MAX: u64 = 64;
/// CPU time of one request. A webhook configuration for a thousand Watchers needs a hundredth of it.
pub(crate) const COMPUTING_MAX: Duration = Duration::from_millis(1000);
/// Elapsed time of one request. A busy machine may give the engine little CPU time.
pub(crate) const TIME_MAX: Duration = Duration::from_secs(30);
/// Exit code of an engine that took too long.
pub(crate) const EXIT_TIME: i32 = 71;
/// How often the second thread compares the times with their limits.
const LOOK_INTERVAL: Duration = Duration::from_millis(20);
/// On a busy machine, an engine gets a third of the daemon's CPU share, so that the daemon stays responsive.
const NICENESS: i32 = 5;

/// Answers requests until standard input ends. Fails if the process cannot limit itself, or if a request is invalid.
pub(crate) fn serve() -> io::Result<()> {
    let (running, watched) = mpsc::channel();
    thread::Builder::new().stack_size(64 << 10).spawn(move || watch(&watched))?;
    limit(MEMORY_MIB_MAX)?;
    let mut local = Local::new(|template, line| {
        // If this fails, the daemon has closed the pipe. The next answer then fails as well.
        let _ = say(&Answer::At(template.to_owned(), line));
    });
    for line in io::stdin().lock().lines() {
        let request: Request = serde_json::from_str(&line?)?;
        let begun = running.send(true);
        let answer = local.answer(&request);
        begun.and_then(|()| running.send(false)).map_err(io::Error::other)?;
        say(&answer)?;
    }
    Ok(())
}

/// The engine of a mirror, with limits for each task.
///
/// A renderer does not outlive the daemon's pipe. A git engine may write to the state folder, so it ends with the
/// thread that has started it: the next daemon must have the folder to itself. Fails if the running program is not
/// found.
pub(crate) fn git_engine(limits: EngineLimits) -> io::Result<git::Engine> {
    let arguments = arguments(GIT_ARGUMENTS, limits.memory_mib, limits.computing, limits.time);
    Ok(git::Engine::confined(program()?, arguments, limits))
}

/// What unpacks the blobs of a registry. Like a renderer, such a process does not outlive the daemon's pipe. Fails if
/// the running program is not found.
pub(crate) fn unpacker() -> io::Result<oci::Unpacker> {
    let limits = UnpackLimits::default();
    let arguments = arguments(OCI_ARGUMENTS, limits.memory_mib, limits.computing, limits.time);
    Ok(oci::Unpacker::confined(program()?, arguments, limits))
}

fn arguments(command: [&str; 2], memory_mib: u64, computing: Duration, time: Duration) -> Vec<String> {
    let numbers = [u128::from(memory_mib), computing.as_millis(), time.as_millis()];
    command.into_iter().map(str::to_owned).chain(numbers.map(|number| number.to_string())).collect()
}

/// Does one task on git objects. Fails if the process cannot limit itself, or if the task is invalid.
pub(crate) fn serve_git(limits: EngineLimits) -> io::Result<()> {
    thread::Builder::new().stack_size(64 << 10).spawn(move || watch_task(limits.computing, limits.time))?;
    #[cfg(target_os = "linux")]
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))?;
    limit(limits.memory_mib)?;
    git::serve(io::stdin().lock(), io::BufWriter::new(io::stdout().lock()))
}

/// Unpacks one blob of a registry. Fails if the process cannot limit itself, or if it is given no kind of blob.
pub(crate) fn serve_oci(limits: UnpackLimits, kind: &str) -> io::Result<()> {
    thread::Builder::new().stack_size(64 << 10).spawn(move || watch_task(limits.computing, limits.time))?;
    limit(limits.memory_mib)?;
    oci::serve(kind, io::stdin().lock(), io::BufWriter::new(io::stdout().lock()))
}

/// The running program. This path works even if another program has replaced the file. Fails if the system does not say
/// where it is.
pub(crate) fn program() -> io::Result<PathBuf> {
    if cfg!(target_os = "linux") { Ok("/proc/self/exe".into()) } else { std::env::current_exe() }
}

/// Limits the memory and the priority of this process.
fn limit(memory_mib: u64) -> io::Result<()> {
    let memory = Some(memory_mib << 20);
    setrlimit(Resource::Data, Rlimit { current: memory, maximum: memory })?;
    setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) })?;
    // The system may forbid this. The engine then runs with the daemon's priority.
    let _ = nice(NICENESS);
    Ok(())
}

/// Ends the process if its only task takes too long.
fn watch_task(computing: Duration, time: Duration) {
    let begin = Instant::now();
    loop {
        thread::park_timeout(LOOK_INTERVAL);
        if computing < computed() {
            std::process::exit(git::EXIT_COMPUTING);
        }
        if time < begin.elapsed() {
            std::process::exit(git::EXIT_ELAPSED);
        }
    }
}

fn say(answer: &Answer) -> io::Result<()> {
    let mut line = serde_json::to_vec(answer)?;
    line.push(b'\n');
    let mut output = io::stdout().lock();
    output.write_all(&line)?;
    output.flush()
}

/// Ends the process if a request takes too long.
fn watch(running: &mpsc::Receiver<bool>) {
    while let Ok(true) = running.recv() {
        let (begin, computed) = (Instant::now(), computed());
        loop {
            match running.recv_timeout(LOOK_INTERVAL) {
                Ok(_) => break,
                Err(RecvTimeoutError::Disconnected) => return,
                Err(RecvTimeoutError::Timeout) => {
                    if COMPUTING_MAX < self::computed().saturating_sub(computed) || TIME_MAX < begin.elapsed() {
                        std::process::exit(EXIT_TIME);
                    }
                }
            }
        }
    }
}

/// The CPU time that this process has used.
fn computed() -> Duration {
    clock_gettime(ClockId::ProcessCPUTime).try_into().unwrap_or_default()
}
