//! The requests to the template engine, as values: read these templates, render this one.
//!
//! Overrides come from repositories, and an engine cannot bound the memory of an expression: a
//! string that doubles sixty times, nested lists, a filter that repeats. [`Engine::Local`] limits
//! steps and the size of the output, and nothing else. Where that is not enough, the caller passes
//! [`Engine::Elsewhere`], which has limits on memory and CPU time and may end before it answers.
//!
//! An engine is an argument: nothing here decides which one a process uses. Embedded templates are
//! trusted and always rendered here.

use std::{
    error::Error as _,
    fmt,
    sync::{Arc, LazyLock},
};

use minijinja::{Environment, ErrorKind, value::Serde};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Template, environment, lines};

/// Overrides that an engine reads together: names and texts.
pub type Overrides = Vec<(String, String)>;

/// A question about templates.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Request {
    /// Reads overrides. They replace those that were read before.
    Read(Arc<Overrides>),
    /// Renders one of the overrides that were read last.
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
    /// The engine gave no answer, and the template is not the cause.
    #[serde(default)]
    pub unanswered: bool,
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

/// How an engine elsewhere is asked about overrides. Waits for the answer, so it must not be called where waiting is
/// harmful. The engine reads the overrides before it renders one of them.
///
/// A failure of a rendering that met a limit names the place, as far as it can be found.
pub type Ask = Arc<dyn Fn(&Arc<Overrides>, Request) -> Result<Answer, Failure> + Send + Sync>;

/// What renders overrides.
#[derive(Clone)]
pub enum Engine {
    /// This thread. It limits steps and the size of the output, but neither memory nor computing.
    Local,
    /// Another process, which has its own limits.
    Elsewhere(Ask),
}

/// An engine in this process.
#[derive(Clone)]
pub struct Local {
    environment: Environment<'static>,
    /// Names and texts of the overrides that are templates.
    overrides: Overrides,
    report: fn(&str, u32),
}

/// A set of overrides and what renders them.
pub(super) struct Set {
    overrides: Arc<Overrides>,
    reader: Reader,
}

enum Reader {
    /// Has read the overrides.
    Here(Box<Local>),
    Elsewhere(Ask),
}

/// The engine of embedded templates.
pub(super) fn embedded() -> &'static Local {
    static EMBEDDED: LazyLock<Local> = LazyLock::new(Local::embedded);
    &EMBEDDED
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

// === impl Failure ===

impl Failure {
    /// Whether the engine met one of its limits, which is the template's fault.
    pub fn met_limit(&self) -> bool {
        match self.cause {
            Cause::Time(_) | Cause::Memory(_) => true,
            Cause::Broken(_) => false,
        }
    }

    fn no_answer() -> Failure {
        Failure { cause: Cause::Broken("the engine gave no answer".to_owned()), at: None }
    }

    /// As a mistake of the template that was to be read or rendered.
    fn mistake(self, template: &str) -> Mistake {
        let unanswered = !self.met_limit();
        let (at, line) = self.at.map_or_else(|| (template.to_owned(), None), |(at, line)| (at, Some(line)));
        Mistake { template: at, line, message: self.cause.to_string(), full: false, unanswered }
    }
}

// === impl Set ===

impl Set {
    /// Reads overrides. For each one, returns the variables that it uses, or what is wrong with it.
    pub(super) fn read(engine: &Engine, overrides: Overrides) -> (Set, Vec<Result<Vec<String>, Mistake>>) {
        let overrides = Arc::new(overrides);
        let ask = match engine {
            Engine::Local => {
                let mut local = Local::new(|_, _| {});
                let results = local.read(&overrides);
                return (Set { overrides, reader: Reader::Here(Box::new(local)) }, results);
            }
            Engine::Elsewhere(ask) => Arc::clone(ask),
        };
        if let Ok(Answer::Read(results)) = ask(&overrides, Request::Read(Arc::clone(&overrides)))
            && results.len() == overrides.len()
        {
            return (Set { overrides, reader: Reader::Elsewhere(ask) }, results);
        }
        // One of them is too much for the engine, so each is read alone, and that one is left out.
        let results: Vec<_> = overrides.iter().map(|text| read_alone(&ask, text)).collect();
        let good = overrides.iter().zip(&results).filter(|(_, result)| result.is_ok());
        let overrides = Arc::new(good.map(|(text, _)| text.clone()).collect());
        (Set { overrides, reader: Reader::Elsewhere(ask) }, results)
    }

    /// Renders a template. Fails with the first mistake in it.
    pub(super) fn render(&self, template: Template, context: &Value, mode: Mode) -> Result<String, Mistake> {
        let name = template.name();
        let ask = match &self.reader {
            Reader::Here(local) => return local.render(name, context, mode),
            Reader::Elsewhere(ask) => ask,
        };
        let request = Request::Render { template: name.to_owned(), context: context.clone(), mode };
        match ask(&self.overrides, request) {
            Ok(Answer::Rendered(result)) => result,
            Ok(Answer::Read(_) | Answer::At(..)) => Err(Failure::no_answer().mistake(name)),
            Err(failure) => Err(failure.mistake(name)),
        }
    }
}

fn read_alone(ask: &Ask, text: &(String, String)) -> Result<Vec<String>, Mistake> {
    let read = |text: (String, String)| {
        let overrides = Arc::new(vec![text]);
        ask(&overrides, Request::Read(Arc::clone(&overrides)))
    };
    let failure = match read(text.clone()) {
        Ok(Answer::Read(mut results)) if results.len() == 1 => return results.remove(0),
        Ok(_) => Failure::no_answer(),
        Err(failure) => failure,
    };
    // Constants are computed when a template is read. A tag that is too much is so by itself as well.
    let too_much = |(_, tag): &(u32, &str)| read((text.0.clone(), (*tag).to_owned())).is_err();
    let line = lines::tags(&text.1).into_iter().find(too_much).map(|(line, _)| line);
    Err(Mistake { line, ..failure.mistake(&text.0) })
}

// === impl Local ===

impl Local {
    /// An engine with the embedded templates. `report` receives each tag of a traced rendering.
    pub fn new(report: fn(&str, u32)) -> Local {
        Local { report, ..embedded().clone() }
    }

    fn embedded() -> Local {
        let mut environment = environment::environment();
        for template in Template::ALL {
            environment.add_template(template.name(), template.text()).expect("embedded templates are tested");
        }
        Local { environment, overrides: Vec::new(), report: |_, _| {} }
    }

    /// Answers a request.
    pub fn answer(&mut self, request: &Request) -> Answer {
        match request {
            Request::Read(overrides) => Answer::Read(self.read(overrides)),
            Request::Render { template, context, mode } => Answer::Rendered(self.render(template, context, *mode)),
        }
    }

    /// The variables that a template reads, without those of included templates.
    pub(super) fn variables(&self, template: &str) -> Vec<String> {
        let found = self.environment.get_template(template);
        found.map_or_else(|_| Vec::new(), |found| found.undeclared_variables(false).into_iter().collect())
    }

    fn read(&mut self, overrides: &Overrides) -> Vec<Result<Vec<String>, Mistake>> {
        // All that is known of embedded templates stays; a clone of them is cheap.
        *self = Local { report: self.report, ..embedded().clone() };
        overrides.iter().map(|(name, text)| self.add(name, text)).collect()
    }

    fn add(&mut self, name: &str, text: &str) -> Result<Vec<String>, Mistake> {
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
            prepared.set_fuel(Some(environment::FUEL_MAX * 4));
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
        unanswered: false,
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
        ErrorKind::OutOfFuel => format!("exceeds {} steps: check it for endless loops", environment::FUEL_MAX),
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
