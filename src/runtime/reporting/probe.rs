//! Probes the path from the API servers of runtimes through their agents to this process.
//!
//! A probe is a dry run: it changes an annotation of the agent's Service as another client would. The API server calls
//! the webhook for drift, as for any change, and stores nothing. The agent sends the mark in the annotation back as an
//! event. `contacts` decides when to probe and what the answers say. This file sends the requests, at a bounded rate.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use serde_json::json;
use tidegate_cluster::{Error, Kind};
use tidegate_core::{
    api::names::{SKR_NAMESPACE, SKR_WEBHOOK},
    name::Key,
    object::Gvk,
};
use tidegate_events::event::PROBE;
use tidegate_process::ambient;
use tokio::{task::JoinSet, time::Instant};

use crate::{
    controller::{Context, Subject},
    queue::Trigger,
    runtime::{contacts::Probe, outcome},
};

/// How often to look for due probes.
const TICK: Duration = Duration::from_secs(1);
/// Limit of one probe. An API server waits five seconds for an agent that does not answer.
const PROBE_TIME_MAX: Duration = Duration::from_secs(10);

/// Sends probes, at most `probes_max` in one [`TICK`], and asks for passes where the status no longer says what they
/// have shown. Without `probes_max`, the number of runtimes decides. Never ends.
pub(crate) async fn run(context: Arc<Context>, probes_max: Option<usize>) {
    let mut probes = JoinSet::new();
    loop {
        tokio::time::sleep(TICK).await;
        while probes.try_join_next().is_some() {}
        let due = context.contacts.due(Instant::now(), probes_max, ambient::number);
        for kyma in due.news {
            context.queue.push(Subject::Runtime(kyma), Trigger::Changed);
        }
        for probe in due.probes {
            let context = Arc::clone(&context);
            probes.spawn(async move { send(&context, &probe).await });
        }
    }
}

/// Sends a probe. What comes back is an event.
async fn send(context: &Context, probe: &Probe) {
    let sent = tokio::time::timeout(PROBE_TIME_MAX, ask(context, probe)).await;
    match sent {
        Ok(Ok(())) => {}
        Ok(Err(error)) => {
            tracing::debug!(runtime = %probe.kyma, error, "cannot probe the agent of a runtime");
            context.contacts.unsent(probe, Instant::now());
        }
        // The API server may be waiting for the agent.
        Err(_) => tracing::debug!(runtime = %probe.kyma, "a probe was not answered in time"),
    }
}

async fn ask(context: &Context, probe: &Probe) -> Result<(), String> {
    let (cluster, _) =
        outcome::versioned_access(context.runtime(), &probe.kyma).await.map_err(|failed| failed.message)?;
    let kind = Kind::new(Gvk::new("", "v1", "Service"), "services", true);
    let id = kind.id(&Key::new(SKR_NAMESPACE, SKR_WEBHOOK));
    let patch = json!({"metadata": {"annotations": {PROBE: format!("{:016x}", probe.mark)}}});
    let sent = cluster.dry_run_merge(&kind, &id, Bytes::from(patch.to_string())).await;
    sent.map_err(|error: Error| error.to_string())
}
