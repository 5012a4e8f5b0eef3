//! The template engine as a process of its own, for templates that others wrote.
//!
//! The process is this program once more; a [`Renderer`](crate::renderer::Renderer) starts it and asks it. Before the
//! process reads anything, it limits its own memory. A second thread ends the process when a request takes too much
//! computing. Whatever a template does to it, the daemon only sees that the answer does not come. Requests and answers are
//! lines of JSON.
//!
//! Refuses to guess why it ended: running out of memory and out of stack look alike, and are reported alike.

use std::{
    io::{self, BufRead as _, Write},
    sync::mpsc::{self, RecvTimeoutError},
    thread,
    time::{Duration, Instant},
};

use rustix::{
    process::{Resource, Rlimit, nice, setrlimit},
    time::{ClockId, clock_gettime},
};
use tidegate_core::template::{Answer, Local, Request};

/// The arguments that make this program an engine.
pub const ARGUMENTS: [&str; 2] = ["template", "engine"];

/// Memory that an engine may write to. The embedded templates and a large context take a tenth.
pub(crate) const MEMORY_MIB_MAX: u64 = 64;
/// Computing that one request may cost: a hundred times what a webhook configuration for a thousand Watchers takes.
pub(crate) const COMPUTING_MAX: Duration = Duration::from_millis(1000);
/// Time that one request may take on a machine that has no time for it.
pub(crate) const TIME_MAX: Duration = Duration::from_secs(30);
/// Exit code of an engine that took too long.
pub(crate) const EXIT_TIME: i32 = 71;
/// How often the time is looked at.
const LOOK_INTERVAL: Duration = Duration::from_millis(20);
/// On a busy machine, an engine gets a third of what the daemon gets: answers to others come first.
const NICENESS: i32 = 5;

/// Answers requests until standard input ends. Fails if it cannot limit itself, and on a request that is
/// none.
pub fn serve() -> io::Result<()> {
    let (running, watched) = mpsc::channel();
    thread::Builder::new().stack_size(64 << 10).spawn(move || watch(&watched))?;
    let memory = Some(MEMORY_MIB_MAX << 20);
    setrlimit(Resource::Data, Rlimit { current: memory, maximum: memory })?;
    setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) })?;
    // The system may forbid it; then it competes on equal terms.
    let _ = nice(NICENESS);
    let mut local = Local::new(|template, line| {
        // Whoever asked is gone if this fails, and the next answer fails as well.
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

/// The computing of this process until now.
fn computed() -> Duration {
    clock_gettime(ClockId::ProcessCPUTime).try_into().unwrap_or_default()
}
