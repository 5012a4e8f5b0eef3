//! `tidegate agent`, and the program `tidegate-agent`: the watcher in a runtime cluster.

use std::{
    ffi::{OsStr, OsString},
    net::SocketAddr,
    os::unix::ffi::OsStrExt as _,
};

use anyhow::Context as _;
use tokio::signal::unix::{SignalKind, signal};

use tidegate_process::{Exit, period::Period, say, telemetry, tls};

use crate::{
    Addresses, Agent,
    settings::{Settings, Timing},
};

/// Watches a runtime cluster: answers its API server's reviews and tells the control plane what changed.
///
/// Reads the Runtime Watcher's environment: WEBHOOK_PORT (8443), METRICS_PORT (2112), CA_CERT, TLS_CERT, TLS_KEY, KCP_ADDR,
/// KCP_CONTRACT, and fips140= in GODEBUG. Options may be written with one dash or with two.
#[derive(clap::Args)]
pub struct Arguments {
    /// Print the version and do nothing
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = false, hide_default_value = true, hide_possible_values = true, value_name = "BOOL")]
    version: bool,
    /// Log for people, and more, instead of JSON
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = false, hide_default_value = true, hide_possible_values = true, value_name = "BOOL")]
    development: bool,
    /// What is logged, as a filter such as `info` or `warn,tidegate=debug`
    #[arg(long, value_name = "FILTER")]
    log: Option<String>,
    /// Where reviews are taken, instead of WEBHOOK_PORT of all addresses; port 0 takes a free one
    #[arg(long, value_name = "ADDRESS")]
    webhook_address: Option<SocketAddr>,
    /// Where metrics and health are told, instead of METRICS_PORT of all addresses; port 0 takes a free one
    #[arg(long, value_name = "ADDRESS")]
    metrics_address: Option<SocketAddr>,
    /// From a review until its event is sent: reviews come before writes are stored
    #[arg(long, value_name = "DURATION", default_value = "300ms")]
    settle: Period,
    /// From a review until its event is sent once more, in case storing took longer; 0s for never
    #[arg(long, value_name = "DURATION", default_value = "5s")]
    resend: Period,
    /// How often the path to the control plane is proven where no event proves it; 0s for never
    #[arg(long, value_name = "DURATION", default_value = "2m")]
    probe_interval: Period,
    /// Within this time of a start, or of the end of an outage, the runtime is looked at as a whole; 0s for never
    #[arg(long, value_name = "DURATION", default_value = "1m")]
    resync_within: Period,
    /// How often it is looked at anyway; 0s for never
    #[arg(long, value_name = "DURATION", default_value = "12h")]
    resync_interval: Period,
    /// After SIGTERM, how long reviews are still taken while the cluster learns of it
    #[arg(long, value_name = "DURATION", default_value = "2s")]
    shutdown_delay: Period,
    /// After that, how long events are still sent
    #[arg(long, value_name = "DURATION", default_value = "10s")]
    flush: Period,
}

/// The filter of the logs with --development.
const DEVELOPMENT_FILTER: &str = "info,tidegate=debug";
/// Threads that answer reviews.
const WORKERS: usize = 2;

/// Runs the command.
pub fn run(arguments: &Arguments) -> anyhow::Result<Exit> {
    if arguments.version {
        // The Runtime Watcher's words.
        say!("Runtime Watcher version: {}", env!("CARGO_PKG_VERSION"));
        return Ok(Exit::Ok);
    }
    let settings = Settings::read(|name| std::env::var(name).ok())?;
    let (filter, format) = if arguments.development {
        (DEVELOPMENT_FILTER, telemetry::Format::Text)
    } else {
        (telemetry::FILTER, telemetry::Format::Json)
    };
    telemetry::init(arguments.log.as_deref().unwrap_or(filter), format)?;
    tls::install();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(WORKERS)
        .enable_all()
        .build()
        .context("cannot start worker threads")?;
    let left = runtime.block_on(agent(settings, arguments.timing(), arguments.addresses()))?;
    if left == 0 {
        return Ok(Exit::Ok);
    }
    // The next agent has the runtime looked at as a whole, so they are late, not lost.
    tracing::warn!(left, "ended before all changes were told");
    Ok(Exit::Incomplete)
}

async fn agent(settings: Settings, timing: Timing, addresses: Addresses) -> anyhow::Result<usize> {
    // Signals are caught before anything starts, so that none can hit a half-started agent.
    let mut terminate = signal(SignalKind::terminate()).context("cannot listen for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot listen for SIGINT")?;
    let stop = async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    };
    Ok(Agent::load(settings, timing, addresses).await?.run(stop).await?)
}

// === impl Arguments ===

impl Arguments {
    fn timing(&self) -> Timing {
        Timing {
            settle: self.settle.0,
            resend: self.resend.0,
            probe_interval: self.probe_interval.0,
            resync_within: self.resync_within.0,
            resync_interval: self.resync_interval.0,
            shutdown_delay: self.shutdown_delay.0,
            flush: self.flush.0,
            ..Timing::default()
        }
    }

    fn addresses(&self) -> Addresses {
        Addresses { admission: self.webhook_address, plain: self.metrics_address }
    }
}

/// The arguments of the process, where options of the agent that have one dash get two: the Runtime Watcher's are read by
/// Go, to which both are one.
pub fn normalised(arguments: impl Iterator<Item = OsString>) -> impl Iterator<Item = OsString> {
    let mut of_agent = false;
    arguments.enumerate().map(move |(index, argument)| {
        of_agent |= index == 1 && argument == OsStr::new("agent");
        if of_agent { doubled(argument) } else { argument }
    })
}

/// The same for a process that is nothing but the agent.
pub fn with_two_dashes(arguments: impl Iterator<Item = OsString>) -> impl Iterator<Item = OsString> {
    arguments.map(doubled)
}

/// An option with two dashes in place of one; any other argument as it is.
fn doubled(argument: OsString) -> OsString {
    let bytes = argument.as_bytes();
    if bytes.len() <= 2 || bytes[0] != b'-' || bytes[1] == b'-' {
        return argument;
    }
    let mut double = OsString::from("-");
    double.push(argument);
    double
}

#[cfg(test)]
mod tests;
