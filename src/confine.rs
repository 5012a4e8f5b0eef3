//! The template engine in a process of its own, for templates that others wrote.
//!
//! The process is this program once more. Before it reads anything it bounds its own memory, and a second thread ends it
//! when a request takes too much computing; whatever a template does to it, the daemon only sees that the answer does not
//! come. Requests and answers are lines of JSON.
//!
//! Refuses to guess whose fault an end was: running out of memory and out of stack look alike, and are named alike.

use std::{
    io::{self, BufRead as _, BufReader, Write},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    sync::mpsc::{self, RecvTimeoutError},
    thread,
    time::{Duration, Instant},
};

use rustix::{
    process::{Resource, Rlimit, setrlimit},
    time::{ClockId, clock_gettime},
};
use tidegate_core::template::{Answer, Cause, Engine, Failure, Local, Request};

/// The arguments that make this program an engine.
pub const ARGUMENTS: [&str; 2] = ["template", "engine"];

/// Memory that an engine may write to. The embedded templates and a large context take a tenth.
const MEMORY_MIB_MAX: u64 = 64;
/// Computing that one request may cost: a hundred times what a webhook configuration for a thousand Watchers takes.
const COMPUTING_MAX: Duration = Duration::from_millis(1000);
/// Time that one request may take on a machine that has no time for it.
const TIME_MAX: Duration = Duration::from_secs(30);
/// How often the time is looked at.
const LOOK_INTERVAL: Duration = Duration::from_millis(20);
/// Exit code of an engine that took too long.
const EXIT_TIME: i32 = 71;
/// The longest answer that is read, in bytes: the cap of an output, escaped.
const ANSWER_BYTES_MAX: u64 = 32 << 20;

/// An engine in a process of its own. The process ends with it.
struct Confined {
    child: Child,
    requests: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

/// Starts engines in processes of their own; for [`template::confine`](tidegate_core::template::confine).
pub fn engine() -> Engine {
    let mut started = Confined::start().map_err(|error| format!("the template engine cannot be started: {error}"));
    Box::new(move |request| match &mut started {
        Ok(confined) => confined.ask(request),
        Err(problem) => Err(Failure { cause: Cause::Broken(problem.clone()), at: None }),
    })
}

/// What such a process does: answers until nobody asks any more.
pub fn serve() -> io::Result<()> {
    let (running, watched) = mpsc::channel();
    thread::Builder::new().stack_size(64 << 10).spawn(move || watch(&watched))?;
    let memory = Some(MEMORY_MIB_MAX << 20);
    setrlimit(Resource::Data, Rlimit { current: memory, maximum: memory })?;
    setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) })?;
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

// === impl Confined ===

impl Confined {
    fn start() -> io::Result<Confined> {
        // The program that runs, even if another stands at its path by now.
        let program = if cfg!(target_os = "linux") { "/proc/self/exe".into() } else { std::env::current_exe()? };
        let mut child = Command::new(program)
            .args(ARGUMENTS)
            .env_clear()
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()?;
        let (requests, answers) = (child.stdin.take(), child.stdout.take());
        let answers = answers.ok_or_else(|| io::Error::other("it has no output"))?;
        Ok(Confined { child, requests, answers: BufReader::new(answers) })
    }

    fn ask(&mut self, request: &Request) -> Result<Answer, Failure> {
        let mut at = None;
        match self.exchange(request, &mut at) {
            Ok(Some(answer)) => Ok(answer),
            Ok(None) => Err(Failure { cause: self.end(), at }),
            // A process that is gone can neither be written to nor read from.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Err(Failure { cause: self.end(), at }),
            Err(error) => Err(Failure { cause: Cause::Broken(error.to_string()), at }),
        }
    }

    /// The answer; `None` if the process ended before.
    fn exchange(&mut self, request: &Request, at: &mut Option<(String, u32)>) -> io::Result<Option<Answer>> {
        let mut line = serde_json::to_vec(request)?;
        line.push(b'\n');
        let requests = self.requests.as_mut().ok_or(io::ErrorKind::BrokenPipe)?;
        requests.write_all(&line)?;
        requests.flush()?;
        loop {
            let mut line = Vec::new();
            io::Read::take(&mut self.answers, ANSWER_BYTES_MAX).read_until(b'\n', &mut line)?;
            if line.last() != Some(&b'\n') {
                return Ok(None);
            }
            match serde_json::from_slice(&line)? {
                Answer::At(template, line) => *at = Some((template, line)),
                answer => return Ok(Some(answer)),
            }
        }
    }

    /// Why it ended.
    fn end(&mut self) -> Cause {
        // It may be in the midst of a line that is too long.
        let _ = self.child.kill();
        match self.child.wait() {
            Ok(status) if status.code() == Some(EXIT_TIME) => {
                Cause::Time(COMPUTING_MAX.as_millis().try_into().unwrap_or(u64::MAX))
            }
            // Out of memory and out of stack end in a signal; so does whoever kills it, and then it is tried again with
            // the next revision.
            Ok(status) if status.code().is_none() => Cause::Memory(MEMORY_MIB_MAX),
            Ok(status) => Cause::Broken(format!("the template engine ended with {status}")),
            Err(error) => Cause::Broken(error.to_string()),
        }
    }
}

impl Drop for Confined {
    fn drop(&mut self) {
        // It ends by itself when nobody can ask any more; if not, there is nothing to lose.
        drop(self.requests.take());
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
