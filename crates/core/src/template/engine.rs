//! The requests to the template engine, as values: read these templates, render this one.
//!
//! Overrides come from repositories, and an engine cannot bound the memory of an expression: a
//! string that doubles sixty times, nested lists, a filter that repeats. So the program may
//! [`confine`] the engine to a separate process, which has limits and may be killed. Otherwise
//! requests are answered in this process. Embedded templates are trusted and always rendered here.

use std::{
    collections::BTreeMap,
    error::Error as _,
    fmt,
    sync::{Arc, LazyLock, Mutex, OnceLock, PoisonError},
};

use minijinja::{Environment, ErrorKind, value::Serde};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Template, environment, lines};

/// A request about templates. The first one to an engine is [`Request::Read`].
#[derive(Debug, Serialize, Deserialize)]
pub enum Request {
    /// Loads overrides by name and text.
    Read(Vec<(String, String)>),
    /// Renders one of them.
    Render {
        /// Its name.
        template: String,
        /// Its context.
        context: Value,
        /// The purpose.
        mode: Mode,
    },
}

/// The purpose of a rendering.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Mode {
    /// Return its text.
    Plain,
    /// Find the template lines behind its output, which contains markers. Output before an error is
    /// kept.
    Marked,
    /// Find where it exceeds a limit: every tag is reported before it is evaluated.
    Traced,
}

/// The answer of an engine.
#[derive(Debug, Serialize, Deserialize)]
pub enum Answer {
    /// For each template, in the order of the request: the context variables that it reads.
    Read(Vec<Result<Vec<String>, Mistake>>),
    /// The output of a template, or its error.
    Rendered(Result<String, Mistake>),
    /// The engine is about to evaluate a tag in this template and line. The final answer follows.
    At(String, u32),
}

/// An error in a template.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mistake {
    /// Its name, or that of an included template.
    pub template: String,
    /// Line in it, from 1.
    pub line: Option<u32>,
    /// One sentence.
    pub message: String,
    /// The output exceeded its limit, and the line is not known yet.
    pub full: bool,
}

/// Why an engine did not answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The cause.
    pub cause: Cause,
    /// The last template and line that it reported, if any.
    pub at: Option<(String, u32)>,
}

/// Why an engine failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The CPU time limit, in milliseconds.
    Time(u64),
    /// The memory limit, in MiB, or a stack overflow.
    Memory(u64),
    /// The engine could not be reached. The template is not the cause.
    Broken(String),
}

/// Answers requests about one set of overrides.
pub type Engine = Box<dyn FnMut(&Request) -> Result<Answer, Failure> + Send>;

static ENGINES: OnceLock<fn() -> Engine> = OnceLock::new();

/// An engine in this process.
#[derive(Clone)]
pub struct Local {
    environment: Environment<'static>,
    /// Names and texts of the overrides that are valid templates.
    overrides: Vec<(String, String)>,
    report: fn(&str, u32),
}

/// A set of overrides and the engine that has loaded them.
pub(super) struct Set {
    texts: Vec<(String, String)>,
    engine: Mutex<Option<Engine>>,
    /// Templates that exceeded a limit. They are not retried: each attempt costs as much as the
    /// limit allows.
    runaway: Mutex<BTreeMap<String, Mistake>>,
}

/// Renders overrides with such engines from now on. The program calls it once at its start.
pub fn confine(engines: fn() -> Engine) {
    // A second call would be a second program in one process.
    let _ = ENGINES.set(engines);
}

/// The engine of embedded templates.
pub(super) fn embedded() -> &'static Local {
    static EMBEDDED: LazyLock<Local> = LazyLock::new(|| Local::new(|_, _| {}));
    &EMBEDDED
}

fn start() -> Engine {
    match ENGINES.get() {
        Some(engines) => engines(),
        None => {
            let mut local = Local::new(|_, _| {});
            Box::new(move |request| Ok(local.answer(request)))
        }
    }
}

// === impl Cause ===

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Cause::Time(limit) => write!(f, "exceeds {limit} ms of CPU time: check it for endless loops"),
            Cause::Memory(limit) => {
                write!(f, "exceeds {limit} MiB of memory: check it for growing strings or lists")
            }
            Cause::Broken(problem) => write!(f, "cannot be rendered: {problem}"),
        }
    }
}

// === impl Set ===

impl Set {
    /// Loads overrides. Returns, for each, the variables that it reads or its error. Invalid
    /// overrides are excluded from the set.
    pub(super) fn read(texts: Vec<(String, String)>) -> (Set, Vec<Result<Vec<String>, Mistake>>) {
        let mut engine = start();
        let (kept, results) = match engine(&Request::Read(texts.clone())) {
            Ok(Answer::Read(results)) => (Some(engine), results),
            // One override exceeds a limit of the engine: each gets a separate engine.
            _ => (None, texts.iter().map(read_alone).collect()),
        };
        let is_read = |result: &Result<_, _>| result.is_ok();
        let texts: Vec<_> =
            texts.into_iter().zip(&results).filter(|(_, result)| is_read(result)).map(|(text, _)| text).collect();
        (Set { texts, engine: Mutex::new(kept), runaway: Mutex::default() }, results)
    }

    /// Renders a template. Fails with the first mistake in it.
    pub(super) fn render(&self, template: Template, context: &Value, mode: Mode) -> Result<String, Mistake> {
        let name = template.name();
        if let Some(mistake) = self.runaway.lock().unwrap_or_else(PoisonError::into_inner).get(name) {
            return Err(mistake.clone());
        }
        let request = |mode| Request::Render { template: name.to_owned(), context: context.clone(), mode };
        let failure = match self.ask(&request(mode)) {
            Ok(Answer::Rendered(result)) => return result,
            Ok(_) => Failure { cause: Cause::Broken("the engine gave no answer".to_owned()), at: None },
            Err(failure) => failure,
        };
        let met_limit = !matches!(failure.cause, Cause::Broken(_));
        let at = if met_limit { self.place(&request(Mode::Traced)) } else { None };
        let (at, line) = at.map_or_else(|| (name.to_owned(), None), |(at, line)| (at, Some(line)));
        let mistake = Mistake { template: at, line, message: failure.cause.to_string(), full: false };
        if met_limit {
            self.runaway.lock().unwrap_or_else(PoisonError::into_inner).insert(name.to_owned(), mistake.clone());
        }
        Err(mistake)
    }

    /// The place where a rendering exceeds a limit.
    fn place(&self, traced: &Request) -> Option<(String, u32)> {
        match self.ask(traced) {
            Err(failure) => failure.at,
            Ok(Answer::Rendered(Err(mistake))) => mistake.line.map(|line| (mistake.template, line)),
            Ok(_) => None,
        }
    }

    /// Sends a request to the engine and starts the engine if necessary. A failed engine is not
    /// used again.
    fn ask(&self, request: &Request) -> Result<Answer, Failure> {
        let mut place = self.engine.lock().unwrap_or_else(PoisonError::into_inner);
        let mut engine = match place.take() {
            Some(engine) => engine,
            None => {
                let mut engine = start();
                engine(&Request::Read(self.texts.clone()))?;
                engine
            }
        };
        let answer = engine(request)?;
        *place = Some(engine);
        Ok(answer)
    }
}

fn read_alone(text: &(String, String)) -> Result<Vec<String>, Mistake> {
    let cause = match start()(&Request::Read(vec![text.clone()])) {
        Ok(Answer::Read(mut results)) if results.len() == 1 => return results.remove(0),
        Ok(_) => Cause::Broken("the engine gave no answer".to_owned()),
        Err(failure) => failure.cause,
    };
    // Constants are evaluated when a template is loaded, so a tag may exceed a limit by itself.
    let mut engine = start();
    let too_much = |(_, tag): &(u32, &str)| engine(&Request::Read(vec![(text.0.clone(), (*tag).to_owned())])).is_err();
    let line = lines::tags(&text.1).into_iter().find(too_much).map(|(line, _)| line);
    Err(Mistake { template: text.0.clone(), line, message: cause.to_string(), full: false })
}

// === impl Local ===

impl Local {
    /// An engine with the embedded templates. `report` receives each tag of a traced rendering.
    pub fn new(report: fn(&str, u32)) -> Local {
        let mut environment = environment::environment();
        for template in Template::ALL {
            environment.add_template(template.name(), template.text()).expect("embedded templates are tested");
        }
        Local { environment, overrides: Vec::new(), report }
    }

    /// Answers a request.
    pub fn answer(&mut self, request: &Request) -> Answer {
        match request {
            Request::Read(texts) => Answer::Read(texts.iter().map(|(name, text)| self.read(name, text)).collect()),
            Request::Render { template, context, mode } => Answer::Rendered(self.render(template, context, *mode)),
        }
    }

    /// The variables that a template reads, without those of included templates.
    pub(super) fn variables(&self, template: &str) -> Vec<String> {
        let found = self.environment.get_template(template);
        found.map_or_else(|_| Vec::new(), |found| found.undeclared_variables(false).into_iter().collect())
    }

    fn read(&mut self, name: &str, text: &str) -> Result<Vec<String>, Mistake> {
        self.environment.add_template_owned(name.to_owned(), text.to_owned()).map_err(|error| {
            self.environment.remove_template(name);
            mistake(name, &error, &self.overrides)
        })?;
        self.overrides.push((name.to_owned(), text.to_owned()));
        Ok(self.variables(name))
    }

    pub(super) fn render(&self, template: &str, context: &Value, mode: Mode) -> Result<String, Mistake> {
        let mut output = environment::Capped::default();
        let mut render = |environment: &Environment<'_>| {
            environment.get_template(template)?.render_captured_to(Serde(context), &mut output).map(|_| ())
        };
        let result = match mode {
            Mode::Plain => render(&self.environment),
            Mode::Marked | Mode::Traced => render(&self.prepared(template, mode)?),
        };
        match result {
            Err(error) if mode != Mode::Marked => Err(mistake(template, &error, &self.overrides)),
            _ => Ok(output.text()),
        }
    }

    /// The templates with markers or reports.
    fn prepared(&self, template: &str, mode: Mode) -> Result<Environment<'static>, Mistake> {
        let mut prepared = self.environment.clone();
        let mut replace = |name: &str, text: String| {
            prepared.add_template_owned(name.to_owned(), text).map_err(|error| mistake(name, &error, &self.overrides))
        };
        if mode == Mode::Marked {
            let text = self.environment.get_template(template).map(|found| lines::marked(found.source()));
            replace(template, text.map_err(|error| mistake(template, &error, &self.overrides))?)?;
        } else {
            for (name, text) in &self.overrides {
                replace(name, lines::traced(name, text))?;
            }
            // Reports are steps as well, and must not exhaust the fuel.
            prepared.set_fuel(Some(environment::FUEL * 4));
            let report = self.report;
            prepared.add_function(lines::REPORT, move |name: String, line: u32| {
                report(&name, line);
                ""
            });
        }
        Ok(prepared)
    }
}

/// The error of a template.
fn mistake(template: &str, error: &minijinja::Error, overrides: &[(String, String)]) -> Mistake {
    // An error in an included template or a macro is wrapped. The innermost one has the line.
    let mut innermost = error;
    while let Some(source) = innermost.source().and_then(|source| source.downcast_ref::<minijinja::Error>()) {
        innermost = source;
    }
    let line = innermost.line().and_then(|line| line.try_into().ok());
    Mistake {
        template: innermost.name().unwrap_or(template).to_owned(),
        line,
        message: sentence(innermost, overrides),
        full: error.kind() == ErrorKind::WriteFailure && line.is_none(),
    }
}

/// Describes an error of the engine. `overrides` are its templates, by name.
fn sentence(error: &minijinja::Error, overrides: &[(String, String)]) -> String {
    let excerpt = || -> Option<&str> { error.template_source()?.get(error.range()?).map(str::trim) };
    let detail = error.detail().unwrap_or_default();
    match error.kind() {
        ErrorKind::UndefinedError => match excerpt() {
            Some(excerpt) => format!("`{excerpt}` is not in the context"),
            None => "a variable is not in the context".to_owned(),
        },
        ErrorKind::OutOfFuel => format!("exceeds {} steps: check it for endless loops", environment::FUEL),
        ErrorKind::WriteFailure => format!("writes more than {} bytes", environment::OUTPUT_BYTES_MAX),
        ErrorKind::SyntaxError => format!("syntax error: {detail}"),
        ErrorKind::TemplateNotFound => not_found(detail, overrides),
        // Numbers are omitted: they may come from anywhere.
        ErrorKind::InvalidOperation if detail.starts_with("unable to calculate") => {
            "computes too large a number".to_owned()
        }
        ErrorKind::InvalidOperation if !detail.is_empty() => detail.to_owned(),
        kind if detail.is_empty() => kind.to_string(),
        kind => format!("{kind}: {detail}"),
    }
}

/// A missing template is named only if its name is in the source of a template: a computed name may
/// be part of a secret.
fn not_found(detail: &str, overrides: &[(String, String)]) -> String {
    let is_literal = |name: &&str| {
        let quoted = ['"', '\''].map(|quote| format!("{quote}{name}{quote}"));
        overrides.iter().any(|(_, text)| quoted.iter().any(|quoted| text.contains(quoted.as_str())))
    };
    match detail.split(['"', '\'']).nth(1).filter(is_literal) {
        Some(name) => format!("template `{name}` does not exist"),
        None => "includes a template with a computed name, which does not exist".to_owned(),
    }
}

/// Shared by templates with the same overrides.
pub(super) type Shared = Option<Arc<Set>>;
