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
use crate::{definition, diagnostic::Diagnostics};

/// Checks definitions and templates; exit 0 if there is no error, 3 if there is one.
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
    if !arguments.paths.is_empty() {
        loaded.options.paths.clone_from(&arguments.paths);
    }
    let mut diagnostics = Diagnostics::default();
    loaded.library(&mut diagnostics, arguments.templates.as_deref())?;
    let mut cache = definition::Cache::default();
    let definitions = definition::read(&mut diagnostics, &loaded.snapshot, &loaded.options, &mut cache);
    let exit = if diagnostics.has_errors() { Exit::Invalid } else { Exit::Ok };
    let sorted = diagnostics.sorted();
    let written = match arguments.output {
        Output::Text => {
            let mut excerpts = Excerpts::new(&loaded.snapshot);
            report::write_text(&mut anstream::stdout().lock(), &sorted, &mut excerpts, definitions.files)
        }
        Output::Json => writeln!(io::stdout().lock(), "{:#}", report::to_json(&sorted)),
    };
    match written {
        // Whoever reads has read enough.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(exit),
        result => result.map(|()| exit).context("cannot write to standard output"),
    }
}
