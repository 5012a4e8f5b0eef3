//! Where work on objects of a mirror runs: in a process with limits, or here.
//!
//! A pack of 1.6 KB can describe a gigabyte, and nothing but unpacking it tells. So the daemon unpacks nothing: for
//! each task it starts its own program as an engine, which limits its memory and time, answers and ends. A task that
//! exceeds a limit becomes [`Error::Exhausted`], and this process notices nothing else. The number of engines is
//! limited too. An engine never waits for a network: this process stores a pack in a file first.
//!
//! The request is a line of JSON. The answer is lines of JSON; the bytes of a file follow its line.

use std::{
    fmt,
    io::{self, BufRead, BufReader, Read, Write},
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    sync::Arc,
    time::Duration,
};

use serde::{Deserialize, Serialize};
use tokio::sync::Semaphore;

use super::{
    error::{Error, Exhaustion},
    generation,
    limits::{ENGINES_MAX, EngineLimits},
    thread,
    work::{self, Answer, Frame, Job, Sink, Stopped, Task, Trouble},
};
use tidegate_process::lock::Mutex;

/// Runs work on objects. Cheap to clone.
#[derive(Clone)]
pub struct Engine(Runner);

#[derive(Clone)]
enum Runner {
    /// In this process.
    Local,
    /// In this process, with trouble.
    Simulated(Arc<Trials>),
    Confined(Arc<Confined>),
}

/// Draws what happens to the next task.
type Trials = dyn Fn() -> Option<Trial> + Send + Sync;

/// Trouble with a task, for simulations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trial {
    /// The server of a repository never answers. Tasks on a mirror are done.
    Silent,
    /// The engine exceeds a limit before it has done anything.
    KilledBefore(Exhaustion),
    /// The engine exceeds a limit when the work is done, and cannot say so.
    KilledAfter(Exhaustion),
}

/// How to start an engine.
#[derive(Debug)]
struct Confined {
    program: PathBuf,
    arguments: Vec<String>,
    limits: EngineLimits,
    permits: Arc<Semaphore>,
}

/// Why a task has no answer.
#[derive(Debug)]
pub(super) enum Failure {
    Trouble(Trouble),
    /// Its engine exceeded a limit.
    Exhausted(Exhaustion),
    /// Its engine failed otherwise.
    Engine(String),
}

/// One line of an engine.
#[derive(Serialize, Deserialize)]
enum Line {
    Frame(Frame),
    /// As many bytes follow: the content of the file in this frame.
    Content(Frame, usize),
    Done(Answer),
    Failed(Trouble),
}

/// An engine that runs. Dropping this value ends it.
struct Running(Arc<Mutex<Child>>);

/// Exit code of an engine that exceeded its time.
pub const EXIT_ELAPSED: i32 = 70;
/// Exit code of an engine that exceeded its CPU time.
pub const EXIT_COMPUTING: i32 = 71;
/// An engine ends itself. One that a signal has stopped is ended this much later.
const TIME_GRACE: Duration = Duration::from_secs(10);
/// Longest line of an engine. A path has 4 KiB, an answer 300 ids.
const LINE_BYTES_MAX: u64 = 1 << 20;
/// Longest content of a file. Snapshots have smaller limits; this one holds whatever an engine sends.
const CONTENT_BYTES_MAX: usize = 64 << 20;

/// Does the task on `input` in this process, which must have limited itself, and writes the result to `output`.
///
/// # Errors
///
/// Fails if the task is invalid, or if the result cannot be written.
pub fn serve(input: impl BufRead, mut output: impl Write) -> io::Result<()> {
    let line = input.lines().next().ok_or_else(|| io::Error::other("it was given no task"))??;
    let task: Task = serde_json::from_str(&line)?;
    bound_caches();
    let mut failed = None;
    let mut sink = |frame: Frame| {
        say_frame(&mut output, frame).map_err(|error| {
            failed = Some(error);
            Stopped
        })
    };
    let result = work::perform(&task, &mut sink);
    if let Some(error) = failed {
        return Err(error);
    }
    say(&mut output, &result.map_or_else(Line::Failed, Line::Done))?;
    output.flush()
}

/// Keeps libgit2 from holding a quarter of a gigabyte of objects, and from mapping all of a large pack.
fn bound_caches() {
    super::prepare();
    #[expect(unsafe_code, reason = "process-wide settings of libgit2")]
    // SAFETY: this process is an engine with one thread that uses libgit2, and it has opened no repository yet.
    let set = unsafe {
        git2::opts::set_cache_max_size(8 << 20)
            .and_then(|()| git2::opts::set_mwindow_size(4 << 20))
            .and_then(|()| git2::opts::set_mwindow_mapped_limit(64 << 20))
    };
    debug_assert!(set.is_ok(), "the settings exist in this libgit2");
}

fn say_frame(output: &mut impl Write, frame: Frame) -> io::Result<()> {
    let content = match &frame {
        Frame::File { content: Some(content), .. } => Some(Arc::clone(content)),
        Frame::File { content: None, .. }
        | Frame::Folder { .. }
        | Frame::Unopened { .. }
        | Frame::Special { .. }
        | Frame::Evidence(_) => None,
    };
    match content {
        Some(content) => {
            say(output, &Line::Content(frame, content.len()))?;
            output.write_all(&content)
        }
        None => say(output, &Line::Frame(frame)),
    }
}

fn say(output: &mut impl Write, line: &Line) -> io::Result<()> {
    serde_json::to_writer(&mut *output, line)?;
    output.write_all(b"\n")
}

// === impl Engine ===

impl Engine {
    /// An engine in this process, without limits on memory and time: for simulations, and for tests.
    pub fn local() -> Engine {
        Engine(Runner::Local)
    }

    /// An engine in this process whose tasks fail as `trials` says, which is asked before each task: for simulations.
    pub fn simulated(trials: impl Fn() -> Option<Trial> + Send + Sync + 'static) -> Engine {
        Engine(Runner::Simulated(Arc::new(trials)))
    }

    /// An engine in processes of `program`, which must observe the limits and call [`serve`] if it is started with
    /// `arguments`.
    pub fn confined(program: PathBuf, arguments: Vec<String>, limits: EngineLimits) -> Engine {
        let permits = Arc::new(Semaphore::new(ENGINES_MAX));
        Engine(Runner::Confined(Arc::new(Confined { program, arguments, limits, permits })))
    }

    /// Does a task. `taker` takes its frames, and returns what the caller wants of them. `hold` is kept until the work
    /// has ended, even if this future is dropped before.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        task: Task,
        hold: impl Send + 'static,
        mut taker: T,
        take: fn(&mut T, Frame) -> Result<(), Error>,
    ) -> Result<(Result<Answer, Failure>, T), Error> {
        let confined = match &self.0 {
            Runner::Local => return local(task, None, hold, taker, take).await,
            Runner::Simulated(trials) => {
                let trial = trials();
                if let (Some(Trial::Silent), Job::Copy { timeout, .. }) = (trial, &task.job) {
                    tokio::time::sleep(*timeout).await;
                }
                return local(task, trial, hold, taker, take).await;
            }
            Runner::Confined(confined) => Arc::clone(confined),
        };
        let time_max = confined.limits.time + TIME_GRACE;
        let permits = Arc::clone(&confined.permits);
        let permit = permits.acquire_owned().await.expect("the semaphore is never closed");
        let running = Arc::new(Mutex::new(None));
        let running_of_thread = Arc::clone(&running);
        let work = thread::run(move || {
            let _hold = (hold, permit);
            let (result, error) = collect(&mut taker, take, |sink| confined.perform(&task, &running_of_thread, sink));
            if matches!(result, Err(Failure::Exhausted(_) | Failure::Engine(_))) && task.job.writes() {
                generation::tidy(&task.repository);
            }
            error.map_or(Ok((result, taker)), Err)
        });
        tokio::pin!(work);
        match tokio::time::timeout(time_max, &mut work).await {
            Ok(done) => done,
            Err(_) => {
                let child: Option<Arc<Mutex<Child>>> = running.lock().clone();
                if let Some(child) = child {
                    // The work then ends, and says so.
                    let _ = child.lock().kill();
                }
                work.await
            }
        }
    }
}

/// Does a task in this process, with trouble if there is to be some.
async fn local<T: Send + 'static>(
    task: Task,
    trial: Option<Trial>,
    hold: impl Send + 'static,
    mut taker: T,
    take: fn(&mut T, Frame) -> Result<(), Error>,
) -> Result<(Result<Answer, Failure>, T), Error> {
    thread::run(move || {
        let _hold = hold;
        let (result, error) = collect(&mut taker, take, |sink| attempt(&task, trial, sink));
        if matches!(result, Err(Failure::Exhausted(_))) && task.job.writes() {
            generation::tidy(&task.repository);
        }
        error.map_or(Ok((result, taker)), Err)
    })
    .await
}

fn attempt(task: &Task, trial: Option<Trial>, sink: Sink<'_>) -> Result<Answer, Failure> {
    match (trial, &task.job) {
        (Some(Trial::Silent), Job::Copy { .. }) => Err(Failure::Trouble(Trouble::Deadline)),
        (Some(Trial::KilledBefore(limit)), _) => Err(Failure::Exhausted(limit)),
        (Some(Trial::KilledAfter(limit)), _) => {
            let _ = work::perform(task, sink);
            Err(Failure::Exhausted(limit))
        }
        (Some(Trial::Silent) | None, _) => work::perform(task, sink).map_err(Failure::Trouble),
    }
}

/// Runs work whose frames go to `taker`. Returns its result, and the error of `take` that ended it.
fn collect<T>(
    taker: &mut T,
    take: fn(&mut T, Frame) -> Result<(), Error>,
    work: impl FnOnce(Sink<'_>) -> Result<Answer, Failure>,
) -> (Result<Answer, Failure>, Option<Error>) {
    let mut error = None;
    let mut sink = |frame| {
        take(taker, frame).map_err(|found| {
            error = Some(found);
            Stopped
        })
    };
    let result = work(&mut sink);
    (result, error)
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Runner::Local => f.write_str("Engine::local"),
            Runner::Simulated(_) => f.write_str("Engine::simulated"),
            Runner::Confined(confined) => confined.fmt(f),
        }
    }
}

// === impl Confined ===

impl Confined {
    /// Starts an engine, gives it a task and reads its answer.
    fn perform(
        &self,
        task: &Task,
        running: &Mutex<Option<Arc<Mutex<Child>>>>,
        sink: Sink<'_>,
    ) -> Result<Answer, Failure> {
        let broken = |error: io::Error| Failure::Engine(error.to_string());
        let mut line = serde_json::to_vec(task).map_err(|error| Failure::Engine(error.to_string()))?;
        line.push(b'\n');
        let mut child = start(&self.program, &self.arguments).map_err(broken)?;
        let pipes = (child.stdin.take(), child.stdout.take());
        let child = Running(Arc::new(Mutex::new(child)));
        *running.lock() = Some(Arc::clone(&child.0));
        let (Some(mut requests), Some(answers)) = pipes else {
            return Err(Failure::Engine("it has no pipes".to_owned()));
        };
        // An engine that ended before it read the task breaks the pipe; how it ended says more.
        let _ = requests.write_all(&line);
        drop(requests);
        match read_answer(&mut BufReader::new(answers), sink) {
            Ok(Some(Err(Trouble::Memory))) => Err(Failure::Exhausted(Exhaustion::Memory(self.limits.memory_mib))),
            Ok(Some(result)) => result.map_err(Failure::Trouble),
            Ok(None) => Err(self.end(&child)),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Err(self.end(&child)),
            Err(error) => Err(broken(error)),
        }
    }

    /// Why an engine ended without an answer.
    fn end(&self, child: &Running) -> Failure {
        // It has closed its output; if it has not ended, it never will.
        let status = child.wait();
        match status.map(|status| (status, status.code())) {
            Ok((_, Some(EXIT_COMPUTING))) => Failure::Exhausted(Exhaustion::Computing(self.limits.computing)),
            Ok((_, Some(EXIT_ELAPSED))) => Failure::Exhausted(Exhaustion::Elapsed(self.limits.time)),
            // Running out of memory ends in a signal. A kill from outside looks the same; the task is tried again.
            Ok((_, None)) => Failure::Exhausted(Exhaustion::Memory(self.limits.memory_mib)),
            Ok((status, Some(_))) => Failure::Engine(format!("it ended with {status}")),
            Err(error) => Failure::Engine(error.to_string()),
        }
    }
}

fn start(program: &Path, arguments: &[String]) -> io::Result<Child> {
    Command::new(program)
        .args(arguments)
        .env_clear()
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
}

/// The answer of an engine; `None` if it ended first.
fn read_answer(answers: &mut impl BufRead, sink: Sink<'_>) -> io::Result<Option<Result<Answer, Trouble>>> {
    loop {
        let mut line = Vec::new();
        answers.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut line)?;
        if line.last() != Some(&b'\n') {
            return Ok(None);
        }
        let frame = match serde_json::from_slice(&line)? {
            Line::Done(answer) => return Ok(Some(Ok(answer))),
            Line::Failed(trouble) => return Ok(Some(Err(trouble))),
            Line::Frame(frame) => frame,
            Line::Content(frame, length) => with_content(frame, length, answers)?,
        };
        if sink(frame).is_err() {
            return Ok(Some(Err(Trouble::Stopped)));
        }
    }
}

fn with_content(frame: Frame, length: usize, answers: &mut impl BufRead) -> io::Result<Frame> {
    match frame {
        // The length is the one that limits were compared with, so a wrong engine cannot make it larger.
        Frame::File { path, id, bytes, .. } if usize::try_from(bytes) == Ok(length) && length <= CONTENT_BYTES_MAX => {
            let mut content = Vec::new();
            answers.take(bytes).read_to_end(&mut content)?;
            if content.len() != length {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            Ok(Frame::File { path, id, bytes, content: Some(content.into()) })
        }
        Frame::File { .. }
        | Frame::Folder { .. }
        | Frame::Unopened { .. }
        | Frame::Special { .. }
        | Frame::Evidence(_) => Err(io::Error::other("its answer is invalid")),
    }
}

// === impl Running ===

impl Running {
    /// Waits until it has ended. Does not hold the lock meanwhile, because another thread may have to end it.
    fn wait(&self) -> io::Result<ExitStatus> {
        let _ = self.0.lock().kill();
        self.0.lock().wait()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.wait();
    }
}
