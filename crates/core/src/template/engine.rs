//! What is asked of a template engine, as values: read these templates, render this one.
//!
//! Overrides come from repositories. An engine cannot limit what an expression builds on the way: a text that doubles
//! sixty times, a list of lists of lists, a filter that repeats. The engine in here ([`Engine::Local`]) limits steps and
//! the size of the output, and nothing else. Where that is not enough, the caller passes an engine that runs elsewhere
//! ([`Engine::Elsewhere`]), with limits on memory and computing. That engine may end before it answers.
//!
//! An engine is an argument: nothing in here decides which one a process uses. Embedded templates are part of the
//! program and are always rendered here.

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
        /// What it sees.
        context: Value,
        /// What for.
        mode: Mode,
    },
}

/// What a rendering is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Mode {
    /// For its text.
    Plain,
    /// For the lines behind its text, which has marks; what was written before an error counts.
    Marked,
    /// For the place where it comes to its end: every tag is reported before it is evaluated.
    Traced,
}

/// What an engine says.
#[derive(Debug, Serialize, Deserialize)]
pub enum Answer {
    /// Of each template, in the order of the request: the variables of its context that it looks at.
    Read(Vec<Result<Vec<String>, Mistake>>),
    /// What a template wrote, or what is wrong with it.
    Rendered(Result<String, Mistake>),
    /// A tag is about to be evaluated, in this template and line; the answer itself is still to come.
    At(String, u32),
}

/// What is wrong with a template.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mistake {
    /// Its name, or that of one which it includes.
    pub template: String,
    /// Line in it, from 1.
    pub line: Option<u32>,
    /// One sentence.
    pub message: String,
    /// The output met its cap, and nobody knows yet in which line.
    pub full: bool,
}

/// Why an engine gave no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// What it met.
    pub cause: Cause,
    /// Template and line that it was at, where that was reported.
    pub at: Option<(String, u32)>,
}

/// What an engine met.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The limit of its time, in milliseconds.
    Time(u64),
    /// The limit of its memory, in MiB, or the end of its stack.
    Memory(u64),
    /// It could not be asked; no fault of the template.
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

/// An engine of this process.
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
            Cause::Time(limit) => write!(f, "takes more than {limit} ms of computing; does it repeat without end?"),
            Cause::Memory(limit) => {
                write!(f, "takes more than {limit} MiB of memory; does it build ever longer texts or lists?")
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
        let (at, line) = self.at.map_or_else(|| (template.to_owned(), None), |(at, line)| (at, Some(line)));
        Mistake { template: at, line, message: self.cause.to_string(), full: false }
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

    /// What a template writes.
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
    /// With the embedded templates. `report` is told of each tag of a traced rendering.
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

    /// The variables that a template looks at, those of templates that it includes left out.
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

    /// The templates with marks, or with reports.
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
            // Reports are steps, too, and must not be what ends it.
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

/// What the engine found wrong with a template.
fn mistake(template: &str, error: &minijinja::Error, overrides: &[(String, String)]) -> Mistake {
    // An error in an included template or a macro is wrapped: the innermost one knows the line.
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

/// What the engine found, in our words. `overrides` are the templates that it was given, by name.
fn sentence(error: &minijinja::Error, overrides: &[(String, String)]) -> String {
    let excerpt = || -> Option<&str> { error.template_source()?.get(error.range()?).map(str::trim) };
    let detail = error.detail().unwrap_or_default();
    match error.kind() {
        ErrorKind::UndefinedError => match excerpt() {
            Some(excerpt) => format!("`{excerpt}` is not there in the context"),
            None => "a variable is not there in the context".to_owned(),
        },
        ErrorKind::OutOfFuel => format!("takes more than {} steps; does it end?", environment::FUEL),
        ErrorKind::WriteFailure => format!("writes more than {} bytes", environment::OUTPUT_BYTES_MAX),
        ErrorKind::SyntaxError => format!("syntax error: {detail}"),
        ErrorKind::TemplateNotFound => not_found(detail, overrides),
        // The numbers are left out: they may come from anywhere.
        ErrorKind::InvalidOperation if detail.starts_with("unable to calculate") => {
            "computes a number that is too large".to_owned()
        }
        ErrorKind::InvalidOperation if !detail.is_empty() => detail.to_owned(),
        kind if detail.is_empty() => kind.to_string(),
        kind => format!("{kind}: {detail}"),
    }
}

/// A template that is not there is named only where its name stands in a template: what is computed may be part of a
/// secret.
fn not_found(detail: &str, overrides: &[(String, String)]) -> String {
    let is_literal = |name: &&str| {
        let quoted = ['"', '\''].map(|quote| format!("{quote}{name}{quote}"));
        overrides.iter().any(|(_, text)| quoted.iter().any(|quoted| text.contains(quoted.as_str())))
    };
    match detail.split(['"', '\'']).nth(1).filter(is_literal) {
        Some(name) => format!("there is no template `{name}`"),
        None => "wants a template of a name that it computes, and there is none of that name".to_owned(),
    }
}

/// Shared by the templates that have the same overrides.
pub(super) type Shared = Option<Arc<Set>>;
