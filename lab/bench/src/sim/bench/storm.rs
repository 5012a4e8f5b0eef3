//! All runtimes report changes at once, as agents behind a gateway do.

use std::time::{Duration, Instant};

use crate::sim::{
    fleet,
    listener::load::{Sender, Way},
    process::Daemon,
    stage::{HOST, Stage},
};
use futures::{StreamExt as _, stream};
use jiff::Timestamp;

/// Runtimes that send concurrently.
const CONNECTIONS: usize = 16;

/// The result of a storm.
pub(super) struct Storm {
    /// When each runtime began to send, in their order.
    pub(super) began: Vec<Timestamp>,
    /// Events that were acknowledged.
    pub(super) taken: usize,
    /// From the first event to the last acknowledgement.
    pub(super) took: Duration,
}

/// A sender for each runtime, with its own certificate.
pub(super) fn senders(stage: &Stage, daemon: &Daemon, runtimes: usize) -> anyhow::Result<Vec<Sender>> {
    let address = daemon.address("events")?;
    let sender = |index| {
        let identity = stage.authority.runtime(&fleet::runtime_id(index), &[&fleet::domain(index)])?;
        Sender::new(address, Way::Forwarded { keep: true }, HOST, stage.authority.pem(), &identity)
    };
    (1..=runtimes).map(sender).collect()
}

/// Each sender sends this many events.
pub(super) async fn send(senders: &[Sender], events: usize) -> anyhow::Result<Storm> {
    let started = Instant::now();
    let sends = senders.iter().map(|sender| async move {
        let began = Timestamp::now();
        (began, sender.send_some(events).await)
    });
    let sent: Vec<_> = stream::iter(sends).buffered(CONNECTIONS).collect().await;
    let took = started.elapsed();
    let failed: usize = sent.iter().map(|(_, sample)| sample.failed).sum();
    let taken: usize = sent.iter().map(|(_, sample)| sample.count()).sum();
    // As agents do, a sender retries if the listener rejects an event because of its limits.
    let all = senders.len() * events;
    anyhow::ensure!(taken == all, "{taken} of {all} events were taken, {failed} attempts failed");
    Ok(Storm { began: sent.into_iter().map(|(began, _)| began).collect(), taken, took })
}
