//! `tidegate template`: the templates that can be overridden, and the values that an override can use.

use anyhow::{Context as _, bail};

use tidegate_core::template::Template;
use tidegate_process::Exit;

use super::output;
use crate::confine;

/// Shows the templates that produce objects.
#[derive(clap::Args)]
pub(super) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    /// Lists the templates and what each produces.
    List,
    /// Prints the text of a template, as the start of an override.
    Show {
        /// Select the template by the name that `list` prints, for example `kcp/manifest.yaml`
        name: String,
    },
    /// Renders templates for another process of this program, with limited resources.
    #[command(hide = true)]
    Engine,
    /// Prints the fields that a template can use, each with a description and an example.
    Context {
        /// Select the template by the name that `list` prints, for example `kcp/manifest.yaml`
        name: String,
    },
}

/// Runs the command. Fails if the template is unknown, or if the output cannot be written.
pub(super) fn run(arguments: &Arguments) -> anyhow::Result<Exit> {
    let text = match &arguments.command {
        Command::List => list(),
        Command::Show { name } => named(name)?.text().to_owned(),
        Command::Context { name } => named(name)?.context().to_owned(),
        Command::Engine => {
            confine::serve().context("only Tidegate starts the template engine: use `tidegate render`")?;
            return Ok(Exit::Ok);
        }
    };
    output::print(text.as_bytes())
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
    bail!("unknown template `{name}`: use one of {}", names.join(", "))
}
