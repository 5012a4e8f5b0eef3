//! `tidegate agent`: reports changes in a runtime cluster to the control plane.

use std::{
    ffi::{OsStr, OsString},
    net::SocketAddr,
    os::unix::ffi::OsStrExt as _,
};

use anyhow::Context as _;
use tokio::signal::unix::{SignalKind, signal};

use crate::{
    Addresses, Agent,
    settings::{Settings, Timing},
};
use tidegate_process::{Exit, period::Period, say, telemetry, tls};

/// Watches a runtime cluster: answers admission reviews of its API server and reports changes to the control plane.
///
/// Reads the environment of the Runtime Watcher: WEBHOOK_PORT (default 8443), METRICS_PORT (default 2112), CA_CERT,
/// TLS_CERT, TLS_KEY, KCP_ADDR, KCP_CONTRACT, and `fips140=` in GODEBUG. Accepts options with one dash or with two.
///
/// Exit code 0: stopped by SIGTERM, all events delivered. 2: the agent cannot start. 5: stopped with undelivered
/// events.
#[derive(clap::Args)]
pub struct Arguments {
    /// Print the version and exit [default: false]
    #[arg(
        long, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = false,
        hide_default_value = true, hide_possible_values = true, value_name = "BOOL"
    )]
    version: bool,
    /// Write logs as text instead of JSON, with more details [default: false]
    #[arg(
        long, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = false,
        hide_default_value = true, hide_possible_values = true, value_name = "BOOL"
    )]
    development: bool,
    /// Write the logs that pass this filter, for example `info` or `warn,tidegate=debug` [default: warn,tidegate=info,
    /// with --development info,tidegate=debug]
    #[arg(long, value_name = "FILTER")]
    log: Option<String>,
    /// Listen on this address for admission reviews, for example `127.0.0.1:8443`; port 0 takes a free port [default:
    /// WEBHOOK_PORT on all addresses]
    #[arg(long, value_name = "IP:PORT")]
    webhook_address: Option<SocketAddr>,
    /// Listen on this address for requests to /metrics, /healthz and /readyz, for example `127.0.0.1:2112`; port 0
    /// takes a free port [default: METRICS_PORT on all addresses]
    #[arg(long, value_name = "IP:PORT")]
    metrics_address: Option<SocketAddr>,
    /// Wait this long after an admission review before sending its event, so that the write has been persisted
    #[arg(long, value_name = "DURATION", default_value = "300ms")]
    settle: Period,
    /// Send each event again this long after its review, in case persisting took longer; 0s disables it
    #[arg(long, value_name = "DURATION", default_value = "5s")]
    resend: Period,
    /// Probe the connection to the control plane at this interval while no event is sent; 0s disables it
    #[arg(long, value_name = "DURATION", default_value = "2m")]
    probe_interval: Period,
    /// Request a full resync of the runtime within this time after a start or an outage; 0s disables it
    #[arg(long, value_name = "DURATION", default_value = "1m")]
    resync_within: Period,
    /// Request a full resync of the runtime at this interval; 0s disables it
    #[arg(long, value_name = "DURATION", default_value = "12h")]
    resync_interval: Period,
    /// Answer reviews for this long after SIGTERM, until the cluster stops sending them
    #[arg(long, value_name = "DURATION", default_value = "2s")]
    shutdown_delay: Period,
    /// Send waiting events for at most this long after `--shutdown-delay`
    #[arg(long, value_name = "DURATION", default_value = "10s")]
    flush: Period,
}

/// The filter of the logs with --development.
const DEVELOPMENT_FILTER: &str = "info,tidegate=debug";
/// Threads that answer reviews.
const WORKERS: usize = 2;

/// Runs the command.
///
/// # Errors
///
/// Fails if the settings are invalid or the agent cannot start.
pub fn run(arguments: &Arguments) -> anyhow::Result<Exit> {
    if arguments.version {
        // The text of the Runtime Watcher, to the letter.
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
    // The next agent requests a full resync, so these events are late, not lost.
    tracing::warn!(left, "stopped with undelivered events");
    Ok(Exit::Incomplete)
}

async fn agent(settings: Settings, timing: Timing, addresses: Addresses) -> anyhow::Result<usize> {
    // Signals are caught before anything starts, so that no signal kills a half-started agent.
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

/// The arguments of the process, with two dashes where an option of the agent has one. The Runtime Watcher accepts
/// both, as every Go program does.
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
