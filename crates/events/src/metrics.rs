//! What is counted where events of runtimes come in.
//!
//! The six names that begin with `watcher_listener_` are upstream's, and here they move. Labels have a fixed set of
//! values: nothing that a sender writes becomes one.

use std::{
    sync::{Arc, atomic::AtomicU64},
    time::Duration,
};

use prometheus_client::{
    encoding::{EncodeLabelSet, text},
    metrics::{counter::Counter, family::Family, gauge::Gauge},
    registry::Registry,
};

/// The counters of one listener. A handle; clones share them.
#[derive(Clone, Default)]
pub struct ListenerMetrics(Arc<Counted>);

#[derive(Default)]
struct Counted {
    duration: Gauge<f64, AtomicU64>,
    requests: Counter,
    errors: Counter,
    in_flight: Gauge,
    oversized: Counter,
    failed_verifications: Family<PathLabels, Counter>,
    refused: Family<ReasonLabels, Counter>,
    unverified: Counter,
    slowed: Counter,
    connections: Family<PortLabels, Gauge>,
    accepted: Family<PortLabels, Counter>,
    lost: Family<ReasonLabels, Counter>,
    probes: Counter,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct PathLabels {
    request_uri_label: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ReasonLabels {
    reason: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct PortLabels {
    port: &'static str,
}

/// A request under way: counted as such until it is dropped.
pub struct InFlight(ListenerMetrics);

/// An open connection: counted as such until it is dropped.
pub struct Connection(ListenerMetrics, &'static str);

/// The one value of upstream's label `server_name`.
const SERVER: &str = "listener";

// === impl ListenerMetrics ===

impl ListenerMetrics {
    /// Takes note that a request is being handled.
    pub fn in_flight(&self) -> InFlight {
        self.0.in_flight.inc();
        InFlight(self.clone())
    }

    /// Takes note that a connection is open on a port.
    pub fn connected(&self, port: &'static str) -> Connection {
        self.0.connections.get_or_create(&PortLabels { port }).inc();
        self.0.accepted.get_or_create(&PortLabels { port }).inc();
        Connection(self.clone(), port)
    }

    /// Counts a request that was handled.
    pub fn handled(&self, duration: Duration) {
        self.0.requests.inc();
        self.0.duration.set(duration.as_secs_f64());
    }

    /// Counts a request that was not answered with success; a probe is none.
    pub fn failed(&self, reason: &'static str) {
        self.0.errors.inc();
        self.0.refused.get_or_create(&ReasonLabels { reason }).inc();
    }

    /// Counts a request with too large a body.
    pub fn oversized(&self) {
        self.0.oversized.inc();
    }

    /// Counts a request whose sender was known and not allowed. `path` is ours, not what was asked for.
    pub fn failed_verification(&self, path: &str) {
        self.0.failed_verifications.get_or_create(&PathLabels { request_uri_label: path.to_owned() }).inc();
    }

    /// Counts an event that was taken although its certificate does not name the domain of its runtime.
    pub fn unverified(&self) {
        self.0.unverified.inc();
    }

    /// Counts an answer that was held back, since its runtime sends much more than the others.
    pub fn slowed(&self) {
        self.0.slowed.inc();
    }

    /// Counts a connection that never became a request.
    pub fn lost(&self, reason: &'static str) {
        self.0.lost.get_or_create(&ReasonLabels { reason }).inc();
    }

    /// Counts a request that only asked whether the way is open.
    pub fn probed(&self) {
        self.0.probes.inc();
    }

    /// The counters in OpenMetrics text, for whoever has no other metrics.
    pub fn render(&self) -> String {
        let mut registry = Registry::default();
        self.register(&mut registry);
        let mut text = String::new();
        text::encode(&mut text, &registry).expect("writing to a String cannot fail");
        text
    }

    /// From now on the path has a series, so that it can be seen to be zero.
    pub fn serves(&self, path: &str) {
        drop(self.0.failed_verifications.get_or_create(&PathLabels { request_uri_label: path.to_owned() }));
    }

    /// Puts the counters among others.
    pub fn register(&self, registry: &mut Registry) {
        let counted = &*self.0;
        let upstream = registry.sub_registry_with_label(("server_name".into(), SERVER.into()));
        upstream.register(
            "watcher_listener_request_duration",
            "Duration of the last request, in seconds",
            counted.duration.clone(),
        );
        upstream.register("watcher_listener_requests", "Requests that were handled", counted.requests.clone());
        upstream.register(
            "watcher_listener_request_errors",
            "Requests that were not answered with success",
            counted.errors.clone(),
        );
        upstream.register(
            "watcher_listener_inflight_requests",
            "Requests that are being handled",
            counted.in_flight.clone(),
        );
        upstream.register(
            "watcher_listener_exceeding_size_limit_requests",
            "Requests with too large a body",
            counted.oversized.clone(),
        );
        upstream.register(
            "watcher_listener_failed_verification_requests",
            "Requests whose sender is known and not allowed",
            counted.failed_verifications.clone(),
        );
        registry.register("tidegate_listener_refused", "Requests by why they were refused", counted.refused.clone());
        registry.register(
            "tidegate_listener_unverified_events",
            "Events that were taken although their certificate does not name the domain of the runtime",
            counted.unverified.clone(),
        );
        registry.register(
            "tidegate_listener_slowed_answers",
            "Answers that were held back, since one runtime sends much more than the others",
            counted.slowed.clone(),
        );
        registry.register("tidegate_listener_connections", "Open connections", counted.connections.clone());
        registry.register("tidegate_listener_accepted", "Connections so far", counted.accepted.clone());
        registry.register(
            "tidegate_listener_lost_connections",
            "Connections that ended before a request, by why",
            counted.lost.clone(),
        );
        registry.register(
            "tidegate_listener_probes",
            "Requests that only asked whether the way is open",
            counted.probes.clone(),
        );
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.0.in_flight.dec();
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.0.0.connections.get_or_create(&PortLabels { port: self.1 }).dec();
    }
}
