//! The agent as a program of its own, for the image in runtime clusters: arguments in, exit code out.

use std::process::ExitCode;

use clap::Parser as _;
use tidegate_agent::cli;
use tidegate_process::{Exit, say, tell};

#[derive(clap::Parser)]
#[command(name = "tidegate-agent", max_term_width = 100)]
struct Program {
    #[command(flatten)]
    arguments: cli::Arguments,
}

fn main() -> ExitCode {
    let program = Program::parse_from(cli::with_two_dashes(std::env::args_os()));
    match cli::run(&program.arguments).and_then(|exit| say::check().map(|()| exit)) {
        Ok(exit) => exit.into(),
        Err(error) => {
            tell!("error: {error:#}");
            Exit::Usage.into()
        }
    }
}
