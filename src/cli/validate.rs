//! `tidegate validate`: everything that is wrong with a repository, without any cluster.

use std::{
    io::{self, Write as _},
    path::PathBuf,
};

use anyhow::Context as _;

use super::{
    Exit,
    report::{self, Excerpts},
    repository::Repository,
};
use crate::{
    definition,
    diagnostic::{Diagnostic, Diagnostics, Severity},
    snapshot::{is_below, is_definition_name},
};

/// Checks definitions and templates; exit 0 if there is no error, 3 if there is one.
///
/// Of a folder or file within a repository, the whole repository is read, since its parts refer to each other; what is
/// said of the rest is not shown and does not count.
#[derive(clap::Args)]
pub(super) struct Arguments {
    #[command(flatten)]
    repository: Repository,
    /// How to print.
    #[arg(short, long, value_enum, default_value_t = Output::Text)]
    output: Output,
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
    /// One JSON object.
    Json,
}

/// Runs the command.
pub(super) fn run(arguments: &Arguments) -> anyhow::Result<Exit> {
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
    let files = part.as_deref().map_or(definitions.files, |part| {
        loaded.snapshot.below(part).filter(|(path, _)| is_definition_name(path)).count()
    });
    let is_of_part = |diagnostic: &Diagnostic| match (&part, &diagnostic.place) {
        (Some(part), Some(place)) => is_below(&place.path, part),
        _ => true,
    };
    let sorted: Vec<Diagnostic> = diagnostics.sorted().into_iter().filter(is_of_part).collect();
    let has_errors = sorted.iter().any(|diagnostic| diagnostic.severity == Severity::Error);
    let exit = if has_errors { Exit::Invalid } else { Exit::Ok };
    let written = match arguments.output {
        Output::Text => {
            let mut excerpts = Excerpts::new(&loaded.snapshot);
            report::write_text(&mut anstream::stdout().lock(), &sorted, &mut excerpts, files)
        }
        Output::Json => writeln!(io::stdout().lock(), "{:#}", report::to_json(&sorted)),
    };
    match written {
        // Whoever reads has read enough.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(exit),
        result => result.map(|()| exit).context("cannot write to standard output"),
    }
}
