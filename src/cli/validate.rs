//! `tidegate validate`: everything that is wrong with a repository, without any cluster.

use std::path::PathBuf;

use super::{
    Exit,
    output::{self, Sink},
    report::{self, Excerpts},
    repository::Repository,
};
use tidegate_core::{
    definition,
    diagnostic::{Diagnostic, Diagnostics, Severity},
    snapshot::{is_below, is_definition_name},
};
use tidegate_diff::{github, gitlab, json, junit, model::Report, sarif};

/// Checks definitions and templates; exit 0 if there is no error, 3 if there is one.
///
/// Of a folder or file within a repository, the whole repository is read, since its parts refer to each other; what is
/// said of the rest is not shown and does not count.
#[derive(clap::Args)]
pub(super) struct Arguments {
    #[command(flatten)]
    repository: Repository,
    /// How to print: text, json, sarif, github, gitlab or junit.
    ///
    /// Several times for several; all but one must name a file.
    #[arg(short, long = "output", value_name = "FORMAT[=FILE]", default_value = "text")]
    outputs: Vec<Sink<Output>>,
    /// Objects of kinds that Tidegate does not know are errors.
    #[arg(long)]
    strict: bool,
    /// Folders and files that are read for definitions, relative to the repository's root; in place of those of the
    /// GitSource.
    #[arg(long, value_name = "PATH", num_args = 1.., value_delimiter = ',')]
    paths: Vec<String>,
    /// Folder of templates that replace embedded ones, where the repository does not.
    #[arg(long, value_name = "DIR")]
    templates: Option<PathBuf>,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum Output {
    /// As a compiler prints it.
    Text,
    /// For programs; `docs/validate.schema.json` is its schema.
    Json,
    /// SARIF 2.1.0, for code scanning.
    Sarif,
    /// Workflow commands of GitHub.
    Github,
    /// Code quality report of GitLab.
    Gitlab,
    /// JUnit XML.
    Junit,
}

/// Runs the command.
pub(super) fn run(arguments: &Arguments) -> anyhow::Result<Exit> {
    output::check(&arguments.outputs)?;
    let mut loaded = arguments.repository.load()?;
    loaded.options.strict |= arguments.strict;
    // A part refers to the rest of the repository, so all of it is read and only what is said of the part is shown.
    let part = loaded.part.take().filter(|_| arguments.paths.is_empty());
    if part.is_some() || !arguments.paths.is_empty() {
        loaded.options.paths.clone_from(&arguments.paths);
    }
    let mut diagnostics = Diagnostics::default();
    loaded.library(&mut diagnostics, arguments.templates.as_deref())?;
    let mut cache = definition::Cache::default();
    let definitions = definition::read(&mut diagnostics, &loaded.snapshot, &loaded.options, &mut cache);
    loaded.hint(&mut diagnostics);
    let files = part.as_deref().map_or(definitions.files, |part| {
        loaded.snapshot.below(part).filter(|(path, _)| is_definition_name(path)).count()
    });
    if files == 0 && !diagnostics.has_errors() {
        let message = "no definitions are found: there is no YAML or JSON file";
        let hint = "check the path, `--paths` and `ignore`";
        diagnostics.push(Diagnostic::warning("nothing-found", message).hint(hint));
    }
    let is_of_part = |diagnostic: &Diagnostic| match (&part, &diagnostic.place) {
        (Some(part), Some(place)) => is_below(&place.path, part),
        _ => true,
    };
    let sorted: Vec<Diagnostic> = diagnostics.sorted().into_iter().filter(is_of_part).collect();
    let has_errors = sorted.iter().any(|diagnostic| diagnostic.severity == Severity::Error);
    let exit = if has_errors { Exit::Invalid } else { Exit::Ok };
    let report = Report { diagnostics: sorted, ..Report::default() };
    let mut excerpts = Excerpts::new(&loaded.snapshot);
    for sink in &arguments.outputs {
        sink.write(&mut |out| {
            let text = match sink.format {
                Output::Text => return report::write_text(out, &report.diagnostics, &mut excerpts, files),
                Output::Json => json::validation(&report.diagnostics),
                Output::Sarif => sarif::sarif(&report, &loaded.below),
                Output::Github => github::github(&report, &loaded.below),
                Output::Gitlab => gitlab::gitlab(&report, &loaded.below),
                Output::Junit => junit::junit(&report, &loaded.below),
            };
            out.write_all(text.as_bytes())
        })?;
    }
    Ok(exit)
}
