//! Templates: every generated object comes from one, and a source or the command line may override
//! any of them.
//!
//! A template gets a documented context and writes one object of one kind; see [`Template`] for the
//! list. It reads no file, clock or random number. Fuel limits its run time, and its output is
//! limited. The caller may pass an [`Engine`] that also limits the memory of overrides. Delimiters are
//! `{{ }}`, `{% %}`, `{# #}`. In addition to the filters of the engine there are
//!
//! * `tojson`: any value as JSON on one line, which is also YAML: the safe way to print any value;
//! * `toyaml`: any value as YAML on several lines, without the last line break; follow it by
//!   `indent(n)`;
//! * `indent(n)`: indents every line except the first;
//! * `quote`: a scalar as a quoted string;
//!
//! and the function `fail("why")`. An undefined variable is an error; a field without a value is
//! null.
//!
//! Tidegate sets identity, ownership and its labels afterwards: a template can neither forge nor
//! drop them.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use serde_json::Value;

use crate::{
    api::shared::ObjectMeta,
    diagnostic::{Diagnostic, Diagnostics, FilePosition, grouped},
    landscape::SourceName,
    object::{Digest, Object},
    snapshot::{Content, Snapshot},
    yaml,
};

mod check;
mod engine;
mod environment;
mod lines;
mod list;
mod uses;

pub use check::Stamp;
pub use engine::{Answer, Ask, Cause, Engine, Failure, Local, Mistake, Mode, Overrides, Request};
pub use list::{Produces, Template};
pub use uses::Uses;

/// A set of templates: one for each [`Template`], and the partial templates that these include.
/// Cheap to clone.
#[derive(Clone)]
pub struct Templates {
    /// The overrides.
    overrides: Arc<BTreeMap<String, Override>>,
    /// Their engine.
    set: engine::Shared,
    /// Overrides that are not valid templates. Nothing is rendered in their place.
    broken: Arc<BTreeMap<String, Error>>,
    /// Digest of all overrides.
    digest: Digest,
    /// What renders objects for which an override fails.
    fallback: Option<Arc<Fallback>>,
}

/// Receives what became of each object that was rendered with an override: the template, the object, and the error
/// for which another template has rendered it.
pub type Report = dyn Fn(Template, &str, Option<&Error>) + Send + Sync;

/// What renders objects for which an override fails, although it became active.
struct Fallback {
    /// The last good templates first.
    templates: Vec<Templates>,
    report: Box<Report>,
}

/// Whose fault it is that an object cannot be rendered.
enum Fault {
    /// The template's.
    Template(Error),
    /// The engine's: it was not reached, or has stopped. Other templates must not replace a good one then.
    Engine(Error),
}

/// An override.
#[derive(Clone)]
struct Override {
    path: Arc<str>,
    text: Arc<str>,
    /// The variables that it reads.
    variables: BTreeSet<String>,
}

/// Which templates apply to which objects: those of a source to its own objects, the base to
/// everything else.
#[derive(Clone)]
pub struct Library {
    base: Templates,
    sources: BTreeMap<SourceName, Templates>,
}

/// A file in a folder of templates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TemplateFile {
    /// Path in that folder: the template's name.
    pub name: String,
    /// Path in diagnostics.
    pub path: Arc<str>,
    /// Its text; `None` if it cannot be read, which is already reported.
    pub text: Option<String>,
}

/// Why an object could not be rendered. One sentence, with template and line if known.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "template {}{}: {message}{}",
    .template, .line.map(|line| format!(":{line}")).unwrap_or_default(), in_rendering(.subject)
)]
pub struct Error {
    /// Name of the template, or of one that it includes.
    pub template: String,
    /// Line in it, from 1.
    pub line: Option<u32>,
    /// What is wrong.
    pub message: String,
    /// The object that is rendered, such as `Watcher kcp-system/watcher`.
    pub subject: String,
    /// The file of the override; `None` for an embedded template.
    pub path: Option<Arc<str>>,
}

/// The subject of an error that was found before any object was rendered.
const NO_SUBJECT: &str = "";
/// Code of the error about a folder of templates that is a link.
const CODE_SYMLINK: &str = "symlink";
/// Code of the diagnostic of an [`Error`].
pub const CODE_TEMPLATE: &str = "template";
/// Code of the warning about a missing folder of templates.
pub const CODE_TEMPLATES_ABSENT: &str = "templates-absent";
/// Code of the error about a file that overrides nothing.
pub const CODE_TEMPLATE_UNKNOWN: &str = "template-unknown";

// === impl Templates ===

impl Templates {
    /// The embedded templates.
    pub fn embedded() -> Templates {
        Templates {
            overrides: Arc::default(),
            set: None,
            broken: Arc::default(),
            digest: Digest::of_bytes(&[]),
            fallback: None,
        }
    }

    /// These templates with overrides. A file whose name begins with `_` is a partial template,
    /// which others include. `engine` loads the overrides now and renders them later.
    ///
    /// A file that overrides nothing, cannot be read or is not a valid template is an error.
    /// Objects that it would render are held back; the embedded template does not replace it.
    #[must_use]
    pub fn with_overrides(
        &self,
        engine: &Engine,
        diagnostics: &mut Diagnostics,
        files: impl IntoIterator<Item = TemplateFile>,
    ) -> Templates {
        let mut overrides = (*self.overrides).clone();
        let mut broken = (*self.broken).clone();
        let mut digest = self.digest;
        let (mut new, mut unread) = (BTreeSet::new(), Vec::new());
        for file in files {
            let is_partial = file.name.rsplit('/').next().is_some_and(|name| name.starts_with('_'));
            if Template::named(&file.name).is_none() && !is_partial {
                if file.text.is_some() {
                    diagnostics.push(unknown(&file));
                }
                continue;
            }
            let texts = [file.name.as_str(), file.text.as_deref().unwrap_or("\0")];
            let texts = texts.map(|text| Digest::of_bytes(text.as_bytes()));
            digest = Digest::all([&digest].into_iter().chain(&texts));
            let Some(text) = file.text else {
                unread.push(unreadable(file.name, file.path));
                continue;
            };
            new.insert(file.name.clone());
            let found = Override { path: file.path, text: text.into(), variables: BTreeSet::new() };
            overrides.insert(file.name, found);
        }
        if new.is_empty() && unread.is_empty() {
            return self.clone();
        }
        let texts = overrides.iter().map(|(name, found)| (name.clone(), found.text.to_string())).collect();
        let (set, results) = engine::Set::read(engine, texts);
        for ((name, found), result) in overrides.iter_mut().zip(results) {
            broken.remove(name);
            match result {
                Ok(variables) => found.variables = variables.into_iter().collect(),
                Err(mistake) => {
                    let error = error(mistake, NO_SUBJECT, Some(Arc::clone(&found.path)));
                    if new.contains(name) {
                        diagnostics.push(error.diagnostic());
                    }
                    broken.insert(name.clone(), error);
                }
            }
        }
        broken.extend(unread.into_iter().map(|error| (error.template.clone(), error)));
        let set = Some(Arc::new(set));
        Templates { overrides: overrides.into(), set, broken: broken.into(), digest, fallback: None }
    }

    /// These templates, with others that render each object for which one of these overrides fails: what no sample has
    /// shown must not stop objects that could be rendered before. The first that succeeds renders the object. `report`
    /// receives what became of each object.
    #[must_use]
    pub fn with_fallback(self, templates: Vec<Templates>, report: Box<Report>) -> Templates {
        let templates = templates.into_iter().map(|templates| Templates { fallback: None, ..templates }).collect();
        Templates { fallback: Some(Arc::new(Fallback { templates, report })), ..self }
    }

    /// The templates that render objects for which one of these overrides fails.
    pub fn fallbacks(&self) -> &[Templates] {
        self.fallback.as_ref().map(|fallback| fallback.templates.as_slice()).unwrap_or_default()
    }

    /// Renders every override with the example of its context, and reports failures. Nothing is
    /// rendered with a template that fails.
    ///
    /// An example cannot prove that a template is correct, but it shows most mistakes before an
    /// object needs the template.
    pub fn check(&mut self, diagnostics: &mut Diagnostics) {
        let mut failed = BTreeMap::new();
        let replaced = Template::ALL.into_iter().filter(|template| self.overrides.contains_key(template.name()));
        for template in replaced.filter(|template| !self.broken.contains_key(template.name())) {
            let stamp = Stamp::new("kcp-system", "example");
            let context = example(template);
            if let Err(error) = self.render(template, &context, &stamp, "the example of its context") {
                diagnostics.push(error.diagnostic());
                failed.insert(template.name().to_owned(), error);
            }
        }
        if !failed.is_empty() {
            Arc::make_mut(&mut self.broken).extend(failed);
        }
    }

    /// Adds to each error in an override how many objects use it, and what renders them until it is
    /// corrected.
    #[must_use]
    pub fn with_uses(&self, diagnostics: Diagnostics, uses: &Uses) -> Diagnostics {
        diagnostics.map(|diagnostic| {
            let path = diagnostic.place.as_ref().map(|place| Arc::clone(&place.path));
            let found = self.overrides.iter().find(|(_, found)| path.as_ref() == Some(&found.path));
            let Some((name, _)) = found.filter(|_| diagnostic.code == CODE_TEMPLATE) else { return diagnostic };
            let count = match Template::named(name) {
                Some(template) => uses.of(template),
                // Any override may include a partial template.
                None => {
                    let replaced = Template::ALL.into_iter().filter(|one| self.overrides.contains_key(one.name()));
                    replaced.map(|template| uses.of(template)).sum()
                }
            };
            let objects =
                if count == 1 { "1 object uses".to_owned() } else { format!("{} objects use", grouped(count)) };
            let hint = format!(
                "{objects} this template; until it is corrected, Tidegate renders with the last good templates of \
                 the source"
            );
            diagnostic.hint(hint)
        })
    }

    /// Whether any template is not the embedded one: rendering may then take as long as the engine allows.
    pub fn has_overrides(&self) -> bool {
        !self.overrides.is_empty()
    }

    /// The text of a template.
    pub fn source(&self, template: Template) -> String {
        let found = self.overrides.get(template.name());
        found.map_or_else(|| template.text().to_owned(), |found| found.text.to_string())
    }

    /// The override of the embedded template, if there is one.
    pub fn overridden_by(&self, template: Template) -> Option<&str> {
        self.overrides.get(template.name()).map(|found| &*found.path)
    }

    /// The place where a template, or a partial template that it may include, differs from `old`;
    /// `None` if it does not differ. For an embedded template the place is `None`.
    pub fn differs(&self, old: &Templates, template: Template) -> Option<Option<FilePosition>> {
        if self == old {
            return None;
        }
        let partials = |templates: &Templates| -> BTreeSet<String> {
            templates.overrides.keys().filter(|name| Template::named(name).is_none()).cloned().collect()
        };
        let mut names = vec![template.name().to_owned()];
        names.extend(partials(self).union(&partials(old)).cloned());
        let text = |templates: &Templates, name: &str| match Template::named(name) {
            Some(template) => Some(templates.source(template)),
            None => templates.overrides.get(name).map(|found| found.text.to_string()),
        };
        names.iter().find_map(|name| {
            let (before, after) = (text(old, name), text(self, name));
            if before == after {
                return None;
            }
            let (before, after) = (before.unwrap_or_default(), after.unwrap_or_default());
            let same = before.lines().zip(after.lines()).take_while(|(before, after)| before == after).count();
            // If lines were only removed at the end, the last remaining line is the place.
            let line = (same + 1).min(after.lines().count().max(1));
            let line = u32::try_from(line).unwrap_or(u32::MAX);
            let new = self.overrides.get(name).map(|found| FilePosition::at(&found.path, line, 0));
            Some(new.or_else(|| old.overrides.get(name).map(|found| FilePosition::at(&found.path, 1, 0))))
        })
    }

    /// Whether a template, or any template that it may include, can read this context variable.
    pub fn may_use(&self, template: Template, variable: &str) -> bool {
        // The variables of partial templates are not tracked: with partial templates, every variable may be read.
        let partial = self.overrides.keys().any(|name| Template::named(name).is_none());
        partial
            || match self.overrides.get(template.name()) {
                Some(found) => found.variables.contains(variable),
                None => engine::embedded().variables(template.name()).iter().any(|name| name == variable),
            }
    }

    /// Renders the object that `stamp` names. `subject` names the definition in errors.
    ///
    /// # Errors
    ///
    /// Fails if the template fails or writes an invalid object.
    pub fn render(&self, template: Template, context: &Value, stamp: &Stamp, subject: &str) -> Result<Object, Error> {
        self.render_if(template, context, stamp, subject, |_| Ok(()))
    }

    /// The same.
    ///
    /// # Errors
    ///
    /// Fails also if `accept` does, with one sentence about the object.
    pub fn render_if(
        &self,
        template: Template,
        context: &Value,
        stamp: &Stamp,
        subject: &str,
        accept: impl Fn(&Object) -> Result<(), String>,
    ) -> Result<Object, Error> {
        let render = |templates: &Templates| {
            let object = templates.render_alone(template, context, stamp, subject)?;
            let accepted = accept(&object).map_err(|message| templates.error(template, None, message, subject));
            accepted.map(|()| object).map_err(Fault::Template)
        };
        let fallback = self.fallback.as_ref().filter(|_| self.overrides.contains_key(template.name()));
        match (render(self), fallback) {
            (Ok(object), Some(fallback)) => {
                (fallback.report)(template, subject, None);
                Ok(object)
            }
            (Err(Fault::Template(error)), Some(fallback)) => {
                (fallback.report)(template, subject, Some(&error));
                fallback.templates.iter().find_map(|templates| render(templates).ok()).ok_or(error)
            }
            (Ok(object), None) => Ok(object),
            (Err(Fault::Template(error) | Fault::Engine(error)), _) => Err(error),
        }
    }

    /// Renders an object without a fallback.
    fn render_alone(&self, template: Template, context: &Value, stamp: &Stamp, subject: &str) -> Result<Object, Fault> {
        if let Some(error) = self.broken.get(template.name()) {
            return Err(Fault::Template(Error { subject: subject.to_owned(), ..error.clone() }));
        }
        let text = self.text(template, context, Mode::Plain).map_err(|mistake| {
            let line = if mistake.full { self.template_line(template, context, None) } else { mistake.line };
            let path = self.overrides.get(&mistake.template).map(|found| Arc::clone(&found.path));
            let fault = if mistake.unanswered { Fault::Engine } else { Fault::Template };
            fault(error(Mistake { line, ..mistake }, subject, path))
        })?;
        let is_literal = |text: &str| self.is_literal(template, text);
        let written = check::Written { text: &text, is_literal: &is_literal };
        check::object(template, &written, stamp).map_err(|problem| {
            let line = problem.line.and_then(|line| self.template_line(template, context, Some(line)));
            Fault::Template(self.error(template, line, problem.message, subject))
        })
    }

    /// An error in one of these templates.
    fn error(&self, template: Template, line: Option<u32>, message: String, subject: &str) -> Error {
        Error {
            template: template.name().to_owned(),
            line,
            message,
            subject: subject.to_owned(),
            path: self.overrides.get(template.name()).map(|found| Arc::clone(&found.path)),
        }
    }

    fn text(&self, template: Template, context: &Value, mode: Mode) -> Result<String, Mistake> {
        match &self.set {
            Some(set) if self.overrides.contains_key(template.name()) => set.render(template, context, mode),
            _ => engine::embedded().render(template.name(), context, mode),
        }
    }

    /// Whether a string occurs in a template, or in one that it may include.
    fn is_literal(&self, template: Template, text: &str) -> bool {
        self.source(template).contains(text) || self.overrides.values().any(|found| found.text.contains(text))
    }

    /// The template line behind a line of output. Without an output line, the template line that
    /// wrote last.
    fn template_line(&self, template: Template, context: &Value, line: Option<u32>) -> Option<u32> {
        let output = self.text(template, context, Mode::Marked).ok()?;
        line.map_or_else(|| lines::last_template_line(&output), |line| lines::template_line(&output, line))
    }
}

/// Digest of the texts in order, independent of their files.
impl PartialEq for Templates {
    fn eq(&self, other: &Templates) -> bool {
        self.digest == other.digest
    }
}

impl Default for Templates {
    fn default() -> Templates {
        Templates::embedded()
    }
}

impl std::fmt::Debug for Templates {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let paths: Vec<&str> = self.overrides.values().map(|found| &*found.path).collect();
        f.debug_struct("Templates").field("overrides", &paths).finish_non_exhaustive()
    }
}

/// The context that `tidegate template context` prints, as a value.
pub fn example(template: Template) -> Value {
    let nodes = yaml::parse(template.context(), &yaml::Limits::default());
    nodes.ok().and_then(|nodes| nodes.first().map(yaml::Node::to_json)).unwrap_or_default()
}

/// The templates in a folder of a snapshot: its YAML files, except those that document contexts.
///
/// If the folder is a link, its templates are unknown, so none can be read.
pub fn files(diagnostics: &mut Diagnostics, snapshot: &Snapshot, folder: &str) -> Vec<TemplateFile> {
    let mut files = Vec::new();
    // A link has no children in the snapshot, so the folder or one of its parents may be one.
    let ends = folder.match_indices('/').map(|(end, _)| end).chain([folder.len()]);
    let around = ends.filter_map(|end| snapshot.files.get_key_value(&folder[..end]));
    for (path, _) in around.filter(|(_, file)| file.content == Content::Symlink) {
        let message = "the folder of templates is, or is behind, a symbolic link, and Tidegate does not follow links";
        let hint = "put the folder itself here; until then nothing is rendered that its templates may affect";
        diagnostics.push(Diagnostic::error(CODE_SYMLINK, message).hint(hint).at(FilePosition::file(path)));
        let unread =
            |template: Template| TemplateFile { name: template.name().to_owned(), path: Arc::clone(path), text: None };
        files.extend(Template::ALL.map(unread));
    }
    let mut is_there = !files.is_empty() || folder.is_empty();
    for (path, file) in snapshot.below(folder) {
        is_there = true;
        let name = path.strip_prefix(folder).unwrap_or(path).trim_start_matches('/');
        if !name.ends_with(".yaml") || name.ends_with(".context.yaml") {
            continue;
        }
        let text = file.text().and_then(|bytes| std::str::from_utf8(bytes).ok()).map(str::to_owned);
        if text.is_none() {
            let message = format!("template {name} cannot be read: it is a link, is not UTF-8, or is too large");
            diagnostics.push(Diagnostic::error(CODE_TEMPLATE, message).at(FilePosition::file(path)));
        }
        files.push(TemplateFile { name: name.to_owned(), path: Arc::clone(path), text });
    }
    if !is_there {
        let message = format!("the folder `{folder}` does not exist, so Tidegate uses the embedded templates");
        let hint = "put a template there, or remove `spec.templates` from the GitSource";
        diagnostics.push(Diagnostic::warning(CODE_TEMPLATES_ABSENT, message).hint(hint));
    }
    files
}

/// The error for every object of a template that cannot be read.
fn unreadable(template: String, path: Arc<str>) -> Error {
    let message = "cannot be read, and the embedded template does not replace it".to_owned();
    Error { template, line: None, message, subject: NO_SUBJECT.to_owned(), path: Some(path) }
}

fn unknown(file: &TemplateFile) -> Diagnostic {
    let names: Vec<&str> = Template::ALL.into_iter().map(Template::name).collect();
    Diagnostic::error(CODE_TEMPLATE_UNKNOWN, format!("template `{}` does not exist", file.name))
        .at(FilePosition::file(&file.path))
        .hint(format!("use one of {}; begin the name of a partial template with `_`", names.join(", ")))
}

fn in_rendering(subject: &str) -> String {
    if subject.is_empty() { String::new() } else { format!(" (rendering {subject})") }
}

fn error(mistake: Mistake, subject: &str, path: Option<Arc<str>>) -> Error {
    let Mistake { template, line, message, .. } = mistake;
    Error { template, line, message, subject: subject.to_owned(), path }
}

// === impl Library ===

impl Library {
    /// A library with the templates for everything that no source overrides.
    pub fn new(base: Templates) -> Library {
        Library { base, sources: BTreeMap::new() }
    }

    /// The templates for objects that belong to no single source.
    pub fn base(&self) -> &Templates {
        &self.base
    }

    /// Sets the templates of a source: [`Library::base`] with its overrides.
    pub fn set(&mut self, source: SourceName, templates: Templates) {
        self.sources.insert(source, templates);
    }

    /// Removes the templates of a source.
    pub fn remove(&mut self, source: &SourceName) {
        self.sources.remove(source);
    }

    /// The templates for an object: those of the source that owns it.
    pub fn for_object(&self, metadata: &ObjectMeta) -> &Templates {
        self.of_source(SourceName::from_metadata(metadata).as_ref())
    }

    /// The templates of a source.
    pub fn of_source(&self, source: Option<&SourceName>) -> &Templates {
        source.and_then(|source| self.sources.get(source)).unwrap_or(&self.base)
    }

    /// The templates of a source, if it overrides any.
    pub fn overrides_of(&self, source: &SourceName) -> Option<&Templates> {
        self.sources.get(source)
    }

    /// Whether any of the templates is not the embedded one.
    pub fn has_overrides(&self) -> bool {
        self.base.has_overrides() || self.sources.values().any(Templates::has_overrides)
    }

    /// The source of an object, if it overrides templates.
    pub fn overriding(&self, metadata: &ObjectMeta) -> Option<SourceName> {
        SourceName::from_metadata(metadata).filter(|source| self.sources.contains_key(source))
    }

    /// The templates for a shared result of several objects: those of a source if it owns all of
    /// them.
    pub fn of_all<'a>(&self, all: impl IntoIterator<Item = &'a ObjectMeta>) -> &Templates {
        let mut sources = all.into_iter().map(SourceName::from_metadata);
        let Some(first) = sources.next() else { return &self.base };
        if sources.all(|source| source == first) { self.of_source(first.as_ref()) } else { &self.base }
    }
}

// === impl Error ===

impl Error {
    /// The error as a diagnostic, at the line of the override if there is one.
    pub fn diagnostic(&self) -> Diagnostic {
        let line = self.line.unwrap_or_default();
        let diagnostic = Diagnostic::error(CODE_TEMPLATE, format!("template {}: {}", self.template, self.message));
        let diagnostic = diagnostic.about(&self.subject);
        match &self.path {
            Some(path) => diagnostic.at(FilePosition::at(path, line, 0)),
            None => diagnostic,
        }
    }

    /// The error as a diagnostic, if it is the first of so many objects for which an active override fails.
    pub fn diagnostic_of_first(&self, count: usize) -> Diagnostic {
        let objects = if count == 1 { "1 object".to_owned() } else { format!("{} objects", grouped(count)) };
        self.diagnostic().hint(format!(
            "the template fails for {objects}; until it is corrected, Tidegate renders these with the last good \
             templates of the source, or with the embedded ones"
        ))
    }
}

#[cfg(test)]
mod tests;
