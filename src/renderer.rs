//! Renders overrides of templates, in processes with limits.
//!
//! Overrides come from repositories, and rendering one can take as long as an engine allows. A [`Renderer`] sends them
//! to a few confined processes of this program. It starts a process on demand and replaces a process
//! that ended. One thread owns the processes and their pipes. It has no other work, so it can wait for an answer, end a
//! process that gives none, and start the next one. Each renderer owns its processes: there is no global pool.
//!
//! [`Renderer::with`] never blocks a task of the daemon. With embedded templates only, it renders at once. With
//! overrides, it renders on a thread for blocking work, and the task awaits the result. It uses at most as many of
//! these threads as there are processes. A command has nothing else to do, so it waits on its own thread.
//!
//! Guarantees that a process renders only with the overrides of the request. Guarantees that a template that exceeded a
//! limit is not rendered again with the same overrides. Decides nothing about the answers.

use std::{
    io,
    path::{Path, PathBuf},
    process::Stdio,
    sync::{Arc, Weak, mpsc},
    thread,
    time::Duration,
};

use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader},
    process::{Child, ChildStdin, ChildStdout, Command},
    sync::{
        Semaphore,
        mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel},
    },
    task::JoinSet,
};

use tidegate_core::{
    api::shared::ObjectMeta,
    template::{Answer, Ask, Cause, Engine, Failure, Library, Mode, Overrides, Request, Templates},
};
use tidegate_process::{ambient, lock::RwLock};

use crate::confine;

/// Renders overrides.
pub struct Renderer {
    engine: Engine,
    /// Permits of tasks that render with overrides.
    permits: Semaphore,
}

/// The templates of the daemon with what renders them: the part that passes over runtimes, Watchers and certificates
/// share.
#[derive(Clone, Copy)]
pub struct CurrentTemplates<'a> {
    /// The templates: those of the daemon, and the overrides of sources.
    pub library: &'a RwLock<Arc<Library>>,
    /// Renders overrides.
    pub renderer: &'a Renderer,
}

/// A request, and the channel for its answer.
struct Question {
    overrides: Arc<Overrides>,
    request: Request,
    reply: mpsc::Sender<Result<Answer, Failure>>,
}

/// The processes of a renderer.
struct Pool {
    program: PathBuf,
    /// The process that was used last is the last one.
    idle: Vec<Confined>,
    busy: JoinSet<Done>,
    runaways: Vec<Runaway>,
}

/// The result of work on a question.
struct Done {
    /// The process; `None` if it ended.
    confined: Option<Confined>,
    runaway: Option<Runaway>,
}

/// A template that exceeded a limit. It is not rendered again, because each attempt costs all that the limit allows.
struct Runaway {
    /// Weak, because the entry is useless once nothing else uses these overrides.
    overrides: Weak<Overrides>,
    template: String,
    failure: Failure,
}

/// A process, or room for one, and the overrides of its question.
struct Session {
    program: PathBuf,
    confined: Option<Confined>,
    overrides: Arc<Overrides>,
}

/// An engine in a separate process. Dropping this value ends the process.
struct Confined {
    child: Child,
    requests: ChildStdin,
    answers: BufReader<ChildStdout>,
    /// The overrides that the process has read.
    read: Weak<Overrides>,
}

/// Processes of one renderer. With two, a slow template does not block all others, and the CPU use stays limited.
const PROCESSES_MAX: usize = 2;
/// Longest time for one answer. A process ends itself earlier, unless a signal has stopped it.
const ANSWER_TIME_MAX: Duration = confine::TIME_MAX.saturating_add(Duration::from_secs(10));
/// The longest answer that is read, in bytes: the limit of an output, with room for JSON escapes.
const ANSWER_BYTES_MAX: u64 = 32 << 20;

// === impl Renderer ===

impl Renderer {
    /// A renderer that starts processes of the running program. Fails if the thread for them cannot be started.
    pub fn confined() -> io::Result<Renderer> {
        Renderer::by(confine::program()?)
    }

    /// A renderer that starts processes of `program`, which must be Tidegate. Fails if the thread for them cannot be
    /// started.
    pub fn by(program: PathBuf) -> io::Result<Renderer> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (ask, questions) = unbounded_channel();
        let pool = Pool { program, idle: Vec::new(), busy: JoinSet::new(), runaways: Vec::new() };
        // The thread ends with the last sender: this renderer, and the templates that its engine has read.
        thread::Builder::new().name("renderer".to_owned()).spawn(move || runtime.block_on(pool.run(questions)))?;
        Ok(Renderer::new(Engine::Elsewhere(ask_by(ask))))
    }

    /// A renderer that renders overrides in this process, without limits on memory and CPU time: for simulations.
    #[cfg(feature = "internals")]
    pub fn local() -> Renderer {
        Renderer::new(Engine::Local)
    }

    fn new(engine: Engine) -> Renderer {
        Renderer { engine, permits: Semaphore::new(PROCESSES_MAX) }
    }

    /// The engine, for code that may wait for it.
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Renders with templates. Does not block other tasks.
    pub async fn with<T: Send + 'static>(
        &self,
        templates: &Templates,
        work: impl FnOnce(&Templates) -> T + Send + 'static,
    ) -> T {
        if !templates.has_overrides() {
            return work(templates);
        }
        let templates = templates.clone();
        self.wait_for(move || work(&templates)).await
    }

    /// Renders with the templates of several sources. Does not block other tasks.
    pub(crate) async fn with_library<T: Send + 'static>(
        &self,
        library: &Arc<Library>,
        work: impl FnOnce(&Library) -> T + Send + 'static,
    ) -> T {
        if !library.has_overrides() {
            return work(library);
        }
        let library = Arc::clone(library);
        self.wait_for(move || work(&library)).await
    }

    async fn wait_for<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> T {
        let _permit = self.permits.acquire().await.expect("the semaphore is never closed");
        ambient::blocking(work).await.expect("rendering does not panic")
    }
}

// === impl CurrentTemplates ===

impl CurrentTemplates<'_> {
    /// The templates as they are now.
    pub(crate) fn library(&self) -> Arc<Library> {
        Arc::clone(&self.library.read())
    }

    /// Renders with the templates of the source that declares an object. Does not block other tasks.
    pub(crate) async fn for_object<T: Send + 'static>(
        &self,
        metadata: &ObjectMeta,
        work: impl FnOnce(&Templates) -> T + Send + 'static,
    ) -> T {
        let library = self.library();
        self.renderer.with(library.for_object(metadata), work).await
    }
}

/// A function that sends a request to the pool and waits for its answer.
fn ask_by(questions: UnboundedSender<Question>) -> Ask {
    Arc::new(move |overrides, request| {
        let stopped = || broken("the template engine has stopped".to_owned());
        let (reply, answer) = mpsc::channel();
        let question = Question { overrides: Arc::clone(overrides), request, reply };
        // The queue needs no limit: every question has a caller that waits for it.
        questions.send(question).map_err(|_| stopped())?;
        answer.recv().unwrap_or_else(|_| Err(stopped()))
    })
}

fn broken(problem: String) -> Failure {
    Failure { cause: Cause::Broken(problem), at: None }
}

// === impl Pool ===

impl Pool {
    /// Answers until every sender is dropped.
    async fn run(mut self, mut questions: UnboundedReceiver<Question>) {
        loop {
            tokio::select! {
                Some(done) = self.busy.join_next() => self.take_back(done.expect("work on a question does not panic")),
                question = questions.recv(), if self.busy.len() < PROCESSES_MAX => match question {
                    Some(question) => self.begin(question),
                    None => return,
                },
            }
        }
    }

    fn begin(&mut self, question: Question) {
        if let Some(failure) = self.known(&question) {
            // Sending fails only if the caller has been dropped.
            let _ = question.reply.send(Err(failure));
            return;
        }
        let session = Session {
            program: self.program.clone(),
            confined: self.process_for(&question.overrides),
            overrides: Arc::clone(&question.overrides),
        };
        self.busy.spawn(session.run(question));
    }

    fn take_back(&mut self, done: Done) {
        self.idle.extend(done.confined);
        if let Some(runaway) = done.runaway {
            self.runaways.retain(|known| known.overrides.strong_count() != 0);
            self.runaways.push(runaway);
        }
    }

    /// The failure of a template that exceeded a limit before.
    fn known(&self, question: &Question) -> Option<Failure> {
        let Request::Render { template, .. } = &question.request else { return None };
        let is_it = |known: &&Runaway| is_same(&known.overrides, &question.overrides) && known.template == *template;
        self.runaways.iter().find(is_it).map(|known| known.failure.clone())
    }

    /// An idle process, if possible one that has read these overrides; `None` if there is room for a new one.
    fn process_for(&mut self, overrides: &Arc<Overrides>) -> Option<Confined> {
        if let Some(position) = self.idle.iter().position(|confined| is_same(&confined.read, overrides)) {
            return Some(self.idle.remove(position));
        }
        let is_full = PROCESSES_MAX <= self.idle.len() + self.busy.len();
        (is_full && !self.idle.is_empty()).then(|| self.idle.remove(0))
    }
}

/// Whether both refer to the same value. The weak reference keeps its address from being reused.
fn is_same(known: &Weak<Overrides>, overrides: &Arc<Overrides>) -> bool {
    std::ptr::eq(known.as_ptr(), Arc::as_ptr(overrides))
}

// === impl Session ===

impl Session {
    async fn run(mut self, question: Question) -> Done {
        let mut answer = self.ask(&question.request).await;
        let mut runaway = None;
        if let Request::Render { template, context, .. } = question.request
            && let Err(failure) = &mut answer
            && failure.met_limit()
        {
            failure.at = self.place(Request::Render { template: template.clone(), context, mode: Mode::Traced }).await;
            runaway = Some(Runaway { overrides: Arc::downgrade(&self.overrides), template, failure: failure.clone() });
        }
        // Sending fails only if the caller has been dropped.
        let _ = question.reply.send(answer);
        Done { confined: self.confined, runaway }
    }

    /// Template and line in which a traced rendering ends.
    async fn place(&mut self, traced: Request) -> Option<(String, u32)> {
        match self.ask(&traced).await {
            Err(failure) => failure.at,
            Ok(Answer::Rendered(Err(mistake))) => mistake.line.map(|line| (mistake.template, line)),
            Ok(_) => None,
        }
    }

    /// Sends a request to the process, and starts one if there is none. A process that failed gets no further request.
    async fn ask(&mut self, request: &Request) -> Result<Answer, Failure> {
        let mut confined = match self.confined.take() {
            Some(confined) => confined,
            None => Confined::start(&self.program)
                .map_err(|error| broken(format!("the template engine cannot be started: {error}")))?,
        };
        let reads = matches!(request, Request::Read(_));
        if !reads && !is_same(&confined.read, &self.overrides) {
            confined.ask(&Request::Read(Arc::clone(&self.overrides))).await?;
        }
        let answer = confined.ask(request).await?;
        confined.read = Arc::downgrade(&self.overrides);
        self.confined = Some(confined);
        Ok(answer)
    }
}

// === impl Confined ===

impl Confined {
    fn start(program: &Path) -> io::Result<Confined> {
        let mut child = Command::new(program)
            .args(confine::ARGUMENTS)
            .env_clear()
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()?;
        let requests = child.stdin.take().ok_or_else(|| io::Error::other("it has no input"))?;
        let answers = child.stdout.take().ok_or_else(|| io::Error::other("it has no output"))?;
        Ok(Confined { child, requests, answers: BufReader::new(answers), read: Weak::new() })
    }

    async fn ask(&mut self, request: &Request) -> Result<Answer, Failure> {
        let mut at = None;
        let exchange = self.exchange(request, &mut at);
        match tokio::time::timeout(ANSWER_TIME_MAX, exchange).await {
            Err(_) => Err(broken(format!("the template engine gave no answer in {} s", ANSWER_TIME_MAX.as_secs()))),
            Ok(Ok(Some(answer))) => Ok(answer),
            Ok(Ok(None)) => Err(Failure { cause: self.end().await, at }),
            // A process that ended before it read the request breaks the pipe.
            Ok(Err(error)) if error.kind() == io::ErrorKind::BrokenPipe => Err(Failure { cause: self.end().await, at }),
            Ok(Err(error)) => Err(Failure { cause: Cause::Broken(error.to_string()), at }),
        }
    }

    /// The answer; `None` if the process ended first.
    async fn exchange(&mut self, request: &Request, at: &mut Option<(String, u32)>) -> io::Result<Option<Answer>> {
        let mut line = serde_json::to_vec(request)?;
        line.push(b'\n');
        self.requests.write_all(&line).await?;
        self.requests.flush().await?;
        loop {
            let mut line = Vec::new();
            (&mut self.answers).take(ANSWER_BYTES_MAX).read_until(b'\n', &mut line).await?;
            if line.last() != Some(&b'\n') {
                return Ok(None);
            }
            match serde_json::from_slice(&line)? {
                Answer::At(template, line) => *at = Some((template, line)),
                answer => return Ok(Some(answer)),
            }
        }
    }

    /// Why the process ended.
    async fn end(&mut self) -> Cause {
        // The process may still be writing a line that is too long.
        let _ = self.child.start_kill();
        match self.child.wait().await {
            Ok(status) if status.code() == Some(confine::EXIT_TIME) => {
                Cause::Time(confine::COMPUTING_MAX.as_millis().try_into().unwrap_or(u64::MAX))
            }
            // Running out of memory or stack ends in a signal. A kill from outside looks the same; the next revision
            // retries the template.
            Ok(status) if status.code().is_none() => Cause::Memory(confine::MEMORY_MIB_MAX),
            Ok(status) => Cause::Broken(format!("the template engine ended with {status}")),
            Err(error) => Cause::Broken(error.to_string()),
        }
    }
}

#[cfg(test)]
mod tests;
