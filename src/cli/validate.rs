//! `tidegate validate`: reports every problem of a repository. Needs no cluster.

use std::path::PathBuf;

use super::{
    Exit, diff,
    output::{self, Sink},
    report::{self, Excerpts},
    repository::{Repository, check_templates},
    trust,
};
use tidegate_core::{
    definition::{self, Definitions},
    diagnostic::{Diagnostic, Diagnostics, Severity},
    kubernetes::Version,
    snapshot::{is_below, is_definition_name},
};
use tidegate_diff::{github, gitlab, json, junit, model::Report, sarif};

/// Checks definitions and templates. Exit code 0: no errors; 3: errors.
///
/// If PATH lies inside a repository, the whole repository is checked, because files refer to each other. Only problems
/// under PATH are reported and affect the exit code.
#[derive(clap::Args)]
pub(super) struct Arguments {
    #[command(flatten)]
    repository: Repository,
    #[command(flatten)]
    trust: trust::Arguments,
    /// Print in this format: `text`, `json`, `sarif`, `github`, `gitlab` or `junit`. Repeat the option for more
    /// formats; all but one need a file, for example `sarif=tidegate.sarif`
    #[arg(short, long = "output", value_name = "FORMAT[=FILE]", default_value = "text")]
    outputs: Vec<Sink<Output>>,
    /// Report objects of kinds that Tidegate does not know as errors, in modules those of kinds that nothing defines
    /// [default: off]
    #[arg(long)]
    strict: bool,
    /// Check the objects of modules against the kinds and fields of this version of Kubernetes, for example `1.36`
    /// [default: the newest version that Tidegate knows]
    #[arg(long, value_name = "VERSION")]
    kubernetes_version: Option<Version>,
    /// Read definitions from these folders and files, relative to the root of the repository, for example
    /// `modules,kymas/dev.yaml` [default: the paths of the GitSource]
    #[arg(long, value_name = "PATH", num_args = 1.., value_delimiter = ',')]
    paths: Vec<String>,
    /// Read from this file which modules other GitSources define. Write it with `tidegate export --landscape` [default:
    /// none; a Kyma that uses such a module is then an error]
    #[arg(long, value_name = "FILE")]
    landscape: Option<PathBuf>,
    /// Use the templates in this folder instead of the embedded ones; those of the repository take precedence [default:
    /// none]
    #[arg(long, value_name = "DIR")]
    templates: Option<PathBuf>,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum Output {
    /// Text for people, as a compiler prints it
    Text,
    /// JSON for programs, with the schema `docs/validate.schema.json`
    Json,
    /// SARIF 2.1.0, for code scanning
    Sarif,
    /// Workflow commands of GitHub
    Github,
    /// Code quality report of GitLab
    Gitlab,
    /// JUnit XML
    Junit,
}

/// Runs the command. Fails if the repository cannot be read, or if an output cannot be written.
pub(super) fn run(arguments: &Arguments) -> anyhow::Result<Exit> {
    output::check(&arguments.outputs)?;
    let selected = (!arguments.paths.is_empty()).then_some(&arguments.paths[..]);
    let mut loaded = arguments.repository.load_selected(selected)?;
    loaded.options.strict |= arguments.strict;
    loaded.options.kubernetes = Some(arguments.kubernetes_version.unwrap_or_else(Version::newest));
    // Files refer to each other, so the whole repository is checked and only the problems of the part are reported.
    let part = loaded.part.clone().filter(|_| arguments.paths.is_empty());
    if part.is_some() {
        loaded.widen();
    }
    if let Some(path) = &arguments.landscape {
        loaded.know(&diff::read_landscape(path)?);
    }
    let mut diagnostics = Diagnostics::default();
    let library = loaded.library(&mut diagnostics, arguments.templates.as_deref())?;
    let mut cache = definition::Cache::default();
    let definitions = definition::read(&mut diagnostics, &loaded.snapshot, &loaded.options, &mut cache);
    let mut diagnostics = check_templates(diagnostics, &library, &loaded.source, &definitions);
    loaded.hint(&mut diagnostics);
    let (path, rev, counting) = arguments.repository.signed();
    arguments.trust.verify(&mut diagnostics, counting, path, (rev, None))?;
    let files = part.as_deref().map_or(definitions.files, |part| {
        loaded.snapshot.below(part).filter(|(path, _)| is_definition_name(path)).count()
    });
    if !diagnostics.has_errors() && !declares_in(&definitions, part.as_deref()) {
        let is_input = arguments.repository.is_input();
        let message = match files {
            _ if is_input && loaded.is_blank() => "no definitions found: standard input is empty".to_owned(),
            _ if is_input => "no definitions found: standard input contains none".to_owned(),
            0 => "no definitions found: there are no YAML or JSON files".to_owned(),
            files => format!("no definitions found: none of {files} YAML and JSON files contains one"),
        };
        let hint = match is_input {
            true => "check the command that writes it",
            false => "check the path, `--paths` and `ignore`",
        };
        diagnostics.push(Diagnostic::error("nothing-found", message).hint(hint));
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

/// Whether a part of the repository, or all of it, has a definition or objects of a module that a definition names.
fn declares_in(definitions: &Definitions, part: Option<&str>) -> bool {
    let is_of_part = |path: &str| part.is_none_or(|part| is_below(path, part));
    let held_back = definitions.withheld.iter().map(|withheld| &*withheld.place.path);
    let modules = definitions.good.values().filter_map(|definition| definition.module.as_ref());
    let is_of_module = |path: &str| part.is_some_and(|part| is_below(part, path));
    definitions.good.values().map(|definition| &*definition.place.path).chain(held_back).any(is_of_part)
        || modules.into_iter().any(|module| is_of_part(&module.path) || is_of_module(&module.path))
}
