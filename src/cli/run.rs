//! `tidegate run`: the daemon.

use std::{
    io::{self, Write as _},
    path::PathBuf,
    time::Duration,
};

use anyhow::Context as _;
use tokio::signal::unix::{SignalKind, signal};

use tidegate_process::{Exit, tell};
use tidegate_process::{period::Period, telemetry, tls};

use crate::{
    config::{Config, Flags, LogFormat, Options},
    daemon::{Daemon, Ended, Mode, Report},
};

/// Runs the daemon, which keeps the landscape in the state that git describes.
#[derive(clap::Args)]
pub(super) struct Arguments {
    /// Read options from this YAML file; flags take precedence [default: none]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Print the effective options as a configuration file and exit [default: off]
    #[arg(long)]
    print_config: bool,
    /// Reconcile everything once and exit, without a port that no option names. Exit code 0: done; 3: definitions are
    /// invalid; 5: work is left, which is listed, also if only a missing right holds it up, or after SIGTERM or SIGINT;
    /// or the control plane cannot be reached, rejects the credentials or lacks a kind or namespace. With `--observe`,
    /// compare everything once and print the table. Exit code 0: no difference but decided improvements; 1:
    /// differences; 5: not everything could be compared [default: off]
    #[arg(long)]
    once: bool,
    /// Wait at most this long with `--once`
    #[arg(long, value_name = "DURATION", default_value = "5m", requires = "once")]
    timeout: Period,
    #[command(flatten)]
    flags: Flags,
}

/// Stack of a worker thread. Passes are deep in builds that are not optimised; what is not touched costs no memory.
const STACK_BYTES: usize = 8 << 20;

/// Runs the command. Fails if an option is invalid, or if the daemon fails.
pub(super) fn run(arguments: &Arguments) -> anyhow::Result<Exit> {
    let file = match &arguments.config {
        Some(path) => Options::load(path)?,
        None => Options::default(),
    };
    let options = arguments.flags.over(file.clone());
    if arguments.print_config {
        let text = options.to_yaml();
        // Nothing is printed that the daemon would reject.
        let config = Config::try_from(options)?;
        telemetry::check(&config.log)?;
        crate::daemon::check(&config)?;
        io::stdout().lock().write_all(text.as_bytes()).context("cannot write to standard output")?;
        return Ok(Exit::Ok);
    }
    let mut config = Config::try_from(options)?;
    if arguments.once {
        // A single pass receives no events, and may run beside a daemon.
        (config.events.address, config.events.tls_address) = (None, None);
        close_ports(&mut config, &arguments.flags, &file);
    }
    let format = match config.log_format {
        LogFormat::Auto => telemetry::Format::Auto,
        LogFormat::Json => telemetry::Format::Json,
        LogFormat::Text => telemetry::Format::Text,
    };
    telemetry::init(&config.log, format)?;
    for ignored in arguments.flags.ignored() {
        tracing::warn!(flag = ignored.flag, why = ignored.why, "flag of Lifecycle Manager ignored");
    }
    tls::install();
    let mode = if arguments.once { Mode::Once(arguments.timeout.0) } else { Mode::Forever };
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    let runtime = builder.enable_all().thread_stack_size(STACK_BYTES).build().context("cannot start worker threads")?;
    let ended = runtime.block_on(daemon(config, mode));
    // A fetch that hangs in its own thread, or a slow override, must not delay the exit.
    runtime.shutdown_timeout(Duration::from_secs(1));
    Ok(match ended? {
        Ended::Stopped => Exit::Ok,
        Ended::Once(report) => conclude(&report),
    })
}

/// Leaves only the ports that a flag or the file asks for: a single pass prints what it has found, and the usual ports
/// may be those of a daemon, or of another program.
fn close_ports(config: &mut Config, flags: &Flags, file: &Options) {
    let usual = Options::default();
    if !flags.has("metrics_address") && file.metrics_address == usual.metrics_address {
        config.metrics_address = None;
    }
    if !flags.has("health_address") && file.health_address == usual.health_address {
        config.health_address = None;
    }
    if !flags.has("hooks_address") && file.hooks_address == usual.hooks_address {
        config.hooks.address = None;
    }
}

async fn daemon(config: Config, mode: Mode) -> anyhow::Result<Ended> {
    // Signals are caught before anything starts, so that no signal kills a half-started daemon.
    let mut terminate = signal(SignalKind::terminate()).context("cannot listen for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot listen for SIGINT")?;
    let stop = async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    };
    Daemon::load(config).await?.run(mode, stop).await
}

/// Prints what work is left, and decides the exit code.
fn conclude(report: &Report) -> Exit {
    // Nothing is known, so a table would be empty.
    if let Some(why) = &report.unusable {
        tell!("error: {why}");
        return Exit::Incomplete;
    }
    if let Some(observed) = &report.observed {
        // A closed pipe is no failure of the comparison.
        let _ = io::stdout().lock().write_all(observed.text.as_bytes());
    }
    if let Some(observed) = &report.observed {
        return match (report.not_done.is_empty(), observed.differs) {
            (false, _) => Exit::Incomplete,
            (true, true) => Exit::Changes,
            (true, false) => Exit::Ok,
        };
    }
    for line in &report.not_done {
        tell!("not done: {line}");
    }
    for line in &report.notes {
        tell!("note: {line}");
    }
    if report.invalid {
        Exit::Invalid
    } else if report.not_done.is_empty() {
        Exit::Ok
    } else {
        Exit::Incomplete
    }
}

#[cfg(test)]
mod tests {
    use clap::{Args as _, Command, FromArgMatches as _};

    use super::*;

    /// The ports of a single pass with these flags and this file.
    fn ports(flags: &[&str], file: &Options) -> [bool; 3] {
        let matches = Flags::augment_args(Command::new("run").no_binary_name(true)).get_matches_from(flags);
        let flags = Flags::from_arg_matches(&matches).unwrap();
        let mut config = Config::try_from(flags.over(file.clone())).unwrap();
        close_ports(&mut config, &flags, file);
        [config.metrics_address.is_some(), config.health_address.is_some(), config.hooks.address.is_some()]
    }

    #[test]
    fn a_single_pass_listens_only_where_it_is_asked_to() {
        let none = Options::default();
        assert_eq!(ports(&[], &none), [false, false, false]);
        assert_eq!(ports(&["--observe"], &none), [false, false, false]);
        // Also on the usual port.
        assert_eq!(ports(&["--observe", "--metrics-address=0.0.0.0:8080"], &none), [true, false, false]);
        assert_eq!(ports(&["--observe", "--hooks-address=127.0.0.1:0"], &none), [false, false, true]);
        let file = Options { health_address: "127.0.0.1:9000".parse().unwrap(), ..Options::default() };
        assert_eq!(ports(&["--observe"], &file), [false, true, false]);
    }
}
