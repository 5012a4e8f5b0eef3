//! `tidegate completions` and `tidegate man`: what shells and `man` know of the commands, generated from them.

use std::{fs, path::PathBuf};

use anyhow::Context as _;
use clap_complete::Shell;
use tidegate_process::{Exit, say};

use super::output;

/// Prints completions for a shell, for example `source <(tidegate completions bash)`.
#[derive(clap::Args)]
pub(super) struct Arguments {
    /// Print for this shell
    shell: Shell,
}

/// Writes man pages: one for the program and one for each command.
#[derive(clap::Args)]
pub(super) struct ManArguments {
    /// Write into this folder, which is created if it does not exist
    folder: PathBuf,
}

/// The name that is completed, whatever the file of the program is called.
const NAME: &str = "tidegate";

/// Prints completions. Fails if standard output cannot be written.
pub(super) fn run(arguments: &Arguments, mut command: clap::Command) -> anyhow::Result<Exit> {
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut command, NAME, &mut script);
    output::print(&script)
}

/// Writes man pages. Fails if a file cannot be written.
pub(super) fn man(arguments: &ManArguments, command: clap::Command) -> anyhow::Result<Exit> {
    let folder = &arguments.folder;
    fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
    clap_mangen::generate_to(command, folder).with_context(|| format!("cannot write into {}", folder.display()))?;
    say!("wrote the pages into {}", folder.display());
    Ok(Exit::Ok)
}
