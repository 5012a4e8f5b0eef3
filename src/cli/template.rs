//! `tidegate template`: what can be overridden, and what an override has to work with.

use std::io::{self, Write as _};

use anyhow::{Context as _, bail};

use tidegate_core::template::Template;
use tidegate_process::Exit;

use crate::confine;

/// Shows the templates from which objects are made.
#[derive(clap::Args)]
pub(super) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    /// Lists the templates and what each produces.
    List,
    /// Prints the text of a template, to begin an override with.
    Show {
        /// Name, as `list` prints it.
        name: String,
    },
    /// Renders for another process of this program, within bounds.
    #[command(hide = true)]
    Engine,
    /// Prints what a template may use: each field with what it is, and an example.
    Context {
        /// Name, as `list` prints it.
        name: String,
    },
}

/// Runs the command.
pub(super) fn run(arguments: &Arguments) -> anyhow::Result<Exit> {
    let text = match &arguments.command {
        Command::List => list(),
        Command::Show { name } => named(name)?.text().to_owned(),
        Command::Context { name } => named(name)?.context().to_owned(),
        Command::Engine => {
            confine::serve().context("the template engine has nobody to talk to")?;
            return Ok(Exit::Ok);
        }
    };
    match io::stdout().lock().write_all(text.as_bytes()) {
        // Whoever reads has read enough.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(Exit::Ok),
        result => result.map(|()| Exit::Ok).context("cannot write to standard output"),
    }
}

fn list() -> String {
    let mut text = format!("{:<30} {:<32} {}\n", "NAME", "PRODUCES", "IN");
    for template in Template::ALL {
        let produces = template.produces();
        text.push_str(&format!("{:<30} {:<32} {}\n", template.name(), produces.kind, produces.cluster));
    }
    text
}

fn named(name: &str) -> anyhow::Result<Template> {
    if let Some(template) = Template::named(name) {
        return Ok(template);
    }
    let names: Vec<&str> = Template::ALL.into_iter().map(Template::name).collect();
    bail!("there is no template `{name}`; use one of {}", names.join(", "))
}
