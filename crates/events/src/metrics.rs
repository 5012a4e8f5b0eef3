//! The metrics of a listener.
//!
//! The six names that begin with `watcher_listener_` are upstream's. Every label has a fixed set of values: no text of
//! a sender becomes a label.

use std::{
    sync::{Arc, atomic::AtomicU64},
    time::Duration,
};

use prometheus_client::{
    encoding::{EncodeLabelSet, text},
    metrics::{counter::Counter, family::Family, gauge::Gauge},
    registry::Registry,
};

/// The counters of one listener. A handle: clones share them.
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

/// A running request; dropping it decrements the gauge.
pub struct InFlight(ListenerMetrics);

/// An open connection; dropping it decrements the gauge.
pub struct Connection(ListenerMetrics, &'static str);

/// The only value of upstream's label `server_name`.
const SERVER: &str = "listener";

// === impl ListenerMetrics ===

impl ListenerMetrics {
    /// Counts a running request until the result is dropped.
    pub fn in_flight(&self) -> InFlight {
        self.0.in_flight.inc();
        InFlight(self.clone())
    }

    /// Counts an open connection on a port until the result is dropped.
    pub fn connected(&self, port: &'static str) -> Connection {
        self.0.connections.get_or_create(&PortLabels { port }).inc();
        self.0.accepted.get_or_create(&PortLabels { port }).inc();
        Connection(self.clone(), port)
    }

    /// Counts a handled request.
    pub fn handled(&self, duration: Duration) {
        self.0.requests.inc();
        self.0.duration.set(duration.as_secs_f64());
    }

    /// Counts a request that failed. Probes do not fail.
    pub fn failed(&self, reason: &'static str) {
        self.0.errors.inc();
        self.0.refused.get_or_create(&ReasonLabels { reason }).inc();
    }

    /// Counts a request with too large a body.
    pub fn oversized(&self) {
        self.0.oversized.inc();
    }

    /// Counts a request from an identified sender that is not allowed. `path` is the listener's path, not the requested
    /// one.
    pub fn failed_verification(&self, path: &str) {
        self.0.failed_verifications.get_or_create(&PathLabels { request_uri_label: path.to_owned() }).inc();
    }

    /// Counts an accepted event whose certificate does not name the domain of its runtime.
    pub fn unverified(&self) {
        self.0.unverified.inc();
    }

    /// Counts an answer that was delayed because its runtime sends many more events than the others.
    pub fn slowed(&self) {
        self.0.slowed.inc();
    }

    /// Counts a connection that ended before a request.
    pub fn lost(&self, reason: &'static str) {
        self.0.lost.get_or_create(&ReasonLabels { reason }).inc();
    }

    /// Counts a request that only probed the connection.
    pub fn probed(&self) {
        self.0.probes.inc();
    }

    /// The counters in OpenMetrics text, for a program without other metrics.
    pub fn render(&self) -> String {
        let mut registry = Registry::default();
        self.register(&mut registry);
        let mut text = String::new();
        text::encode(&mut text, &registry).expect("writing to a String cannot fail");
        text
    }

    /// Creates the series of a path, so that its value is visible while it is zero.
    pub fn serves(&self, path: &str) {
        drop(self.0.failed_verifications.get_or_create(&PathLabels { request_uri_label: path.to_owned() }));
    }

    /// Registers the counters.
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
        registry.register("tidegate_listener_refused", "Refused requests by reason", counted.refused.clone());
        registry.register(
            "tidegate_listener_unverified_events",
            "Accepted events whose certificate does not name the domain of the runtime",
            counted.unverified.clone(),
        );
        registry.register(
            "tidegate_listener_slowed_answers",
            "Answers delayed because their runtime sends many more events than the others",
            counted.slowed.clone(),
        );
        registry.register("tidegate_listener_connections", "Open connections", counted.connections.clone());
        registry.register("tidegate_listener_accepted", "Accepted connections", counted.accepted.clone());
        registry.register(
            "tidegate_listener_lost_connections",
            "Connections that ended before a request, by reason",
            counted.lost.clone(),
        );
        registry.register(
            "tidegate_listener_probes",
            "Requests that only probed the connection",
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
