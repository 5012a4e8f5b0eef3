//! The agent's Prometheus metrics.
//!
//! The first six are the Runtime Watcher's, with its names, types, labels and reasons, because dashboards and tests
//! look for them. The others begin with `tidegate_agent_`.

use std::{
    sync::{
        Arc,
        atomic::{AtomicI64, AtomicU64},
    },
    time::Duration,
};

use prometheus_client::{
    encoding::{EncodeLabelSet, text},
    metrics::{counter::Counter, family::Family, gauge::Gauge, histogram::Histogram},
    registry::{Registry, Unit},
};

use super::{pending::Depth, validity::Validity};

/// The counters. A handle: clones share them.
#[derive(Clone, Debug)]
pub struct Metrics(Arc<Counted>);

/// Why an event did not arrive, in the Runtime Watcher's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// An update of a subresource that is not watched.
    InvalidSubresource,
    /// An attempt failed or was refused.
    FailedRequest,
}

#[derive(Debug)]
struct Counted {
    request_duration: Gauge<f64, AtomicU64>,
    requests: Counter,
    request_errors: Counter,
    sent: Counter,
    failures: Family<ReasonLabels, Counter>,
    fips: Gauge<i64, AtomicI64>,

    answers: Histogram,
    deliveries: Histogram,
    resends: Counter,
    resyncs: Counter,
    dropped: Family<ReasonLabels, Counter>,
    malformed: Counter,
    dry_runs: Counter,
    evicted: Counter,
    cut: Counter,
    certificates_refused: Counter,
    connections: Gauge<i64, AtomicI64>,
    reloads: Family<ResultLabels, Counter>,
    certificate_expiry: Gauge<i64, AtomicI64>,
    path_up: Gauge<i64, AtomicI64>,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ReasonLabels {
    error_reason: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ResultLabels {
    result: &'static str,
}

/// Reasons of the Runtime Watcher that cannot occur here, because they stop the agent at the start.
const UNUSED_REASONS: [&str; 2] = ["missing-address-or-contract", "request-setup"];
/// Reasons for dropping an event.
const OVERFLOW: &str = "overflow";
const REFUSED: &str = "refused";
/// Buckets of the answer's duration, in seconds. An answer takes microseconds.
const ANSWER_BOUNDS: [f64; 10] = [0.000_05, 0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.1, 1.0];
/// Buckets of the delivery delay, in seconds: from the change to its delivery, including the settle delay.
const DELIVERY_BOUNDS: [f64; 10] = [0.25, 0.35, 0.5, 1.0, 2.5, 5.0, 15.0, 60.0, 300.0, 1800.0];

// === impl Metrics ===

impl Metrics {
    /// Creates the counters at zero. `fips` is the Runtime Watcher's number of the FIPS mode.
    pub fn new(fips: i64) -> Metrics {
        let counted = Counted {
            request_duration: Gauge::default(),
            requests: Counter::default(),
            request_errors: Counter::default(),
            sent: Counter::default(),
            failures: Family::default(),
            fips: Gauge::default(),
            answers: Histogram::new(ANSWER_BOUNDS),
            deliveries: Histogram::new(DELIVERY_BOUNDS),
            resends: Counter::default(),
            resyncs: Counter::default(),
            dropped: Family::default(),
            malformed: Counter::default(),
            dry_runs: Counter::default(),
            evicted: Counter::default(),
            cut: Counter::default(),
            certificates_refused: Counter::default(),
            connections: Gauge::default(),
            reloads: Family::default(),
            certificate_expiry: Gauge::default(),
            path_up: Gauge::default(),
        };
        counted.fips.set(fips);
        // A series that exists from the start shows its first increase.
        for error_reason in [Failure::InvalidSubresource.reason(), Failure::FailedRequest.reason()] {
            drop(counted.failures.get_or_create(&ReasonLabels { error_reason }));
        }
        for error_reason in UNUSED_REASONS {
            drop(counted.failures.get_or_create(&ReasonLabels { error_reason }));
        }
        for error_reason in [OVERFLOW, REFUSED] {
            drop(counted.dropped.get_or_create(&ReasonLabels { error_reason }));
        }
        for result in ["success", "error"] {
            drop(counted.reloads.get_or_create(&ResultLabels { result }));
        }
        Metrics(Arc::new(counted))
    }

    /// Counts a review.
    pub fn review(&self) {
        self.0.requests.inc();
    }

    /// Counts a review that cannot be read.
    pub fn review_unreadable(&self) {
        self.0.request_errors.inc();
    }

    /// Counts an answered review.
    pub fn answered(&self, duration: Duration) {
        self.0.request_duration.set(duration.as_secs_f64());
        self.0.answers.observe(duration.as_secs_f64());
    }

    /// Counts a review whose object cannot be read.
    pub fn object_malformed(&self) {
        self.0.malformed.inc();
    }

    /// Counts a review of a dry run.
    pub fn dry_run(&self) {
        self.0.dry_runs.inc();
    }

    /// Counts a connection that was closed in favour of a new one.
    pub fn connection_evicted(&self) {
        self.0.evicted.inc();
    }

    /// Counts a review whose body was too large, did not come or had no place.
    pub fn review_cut(&self) {
        self.0.cut.inc();
    }

    /// Counts a handshake that failed because the client rejected our certificate.
    pub fn certificate_refused(&self) {
        self.0.certificates_refused.inc();
    }

    /// Counts an event when it is sent for the first time.
    pub fn event(&self) {
        self.0.sent.inc();
    }

    /// Counts an event that is sent again, in case its object was not persisted before.
    pub fn resend(&self) {
        self.0.resends.inc();
    }

    /// Counts a resync of the whole runtime.
    pub fn resync(&self) {
        self.0.resyncs.inc();
    }

    /// Counts a delivered event and the time since its change.
    pub fn delivered(&self, after: Duration) {
        self.0.deliveries.observe(after.as_secs_f64());
    }

    /// Counts a failure.
    pub fn failed(&self, failure: Failure) {
        self.0.failures.get_or_create(&ReasonLabels { error_reason: failure.reason() }).inc();
    }

    /// Counts an event that was dropped because the control plane refused it permanently.
    pub fn refused(&self) {
        self.0.dropped.get_or_create(&ReasonLabels { error_reason: REFUSED }).inc();
    }

    /// Counts an event that was dropped because the outbox was full.
    pub fn overflowed(&self) {
        self.0.dropped.get_or_create(&ReasonLabels { error_reason: OVERFLOW }).inc();
    }

    /// Counts a reload of the credentials; `None` if it failed.
    pub fn reloaded(&self, validity: Option<Validity>) {
        let result = if validity.is_some() { "success" } else { "error" };
        self.0.reloads.get_or_create(&ResultLabels { result }).inc();
        if let Some(validity) = validity {
            self.certificate(validity);
        }
    }

    /// Records the validity of the current certificate.
    pub fn certificate(&self, validity: Validity) {
        self.0.certificate_expiry.set(i64::try_from(validity.not_after).unwrap_or(i64::MAX));
    }

    /// Records the connections to the control plane that were opened so far.
    pub fn connections(&self, count: u64) {
        self.0.connections.set(i64::try_from(count).unwrap_or(i64::MAX));
    }

    /// Records whether the connection to the control plane works.
    pub fn path(&self, up: bool) {
        self.0.path_up.set(i64::from(up));
    }

    /// All metrics in OpenMetrics text. `depth` describes the outbox now.
    pub fn render(&self, depth: Depth) -> String {
        let mut registry = Registry::default();
        self.register_upstream(&mut registry);
        self.register_ours(&mut registry);
        register_depth(&mut registry, depth);
        let mut text = String::new();
        text::encode(&mut text, &registry).expect("writing to a String cannot fail");
        text
    }

    fn register_upstream(&self, registry: &mut Registry) {
        let counted = &self.0;
        registry.register(
            "watcher_request_duration",
            "Duration of the last review, in seconds",
            counted.request_duration.clone(),
        );
        registry.register("watcher_admission_request", "Reviews", counted.requests.clone());
        registry.register(
            "watcher_admission_request_error",
            "Reviews that cannot be read",
            counted.request_errors.clone(),
        );
        registry.register("watcher_kcp_requests", "Events sent, without repetitions", counted.sent.clone());
        registry.register(
            "watcher_failed_kcp",
            "Failed attempts to send an event, and events not sent",
            counted.failures.clone(),
        );
        registry.register(
            "watcher_fips_mode",
            "Requested FIPS mode: 0 all TLS algorithms, 1 and 2 approved ones only; the module is not validated",
            counted.fips.clone(),
        );
    }

    fn register_ours(&self, registry: &mut Registry) {
        let ours = registry.sub_registry_with_prefix("tidegate_agent");
        let counted = &self.0;
        ours.register_with_unit(
            "answer_duration",
            "Duration of answers to reviews",
            Unit::Seconds,
            counted.answers.clone(),
        );
        ours.register_with_unit(
            "delivery_delay",
            "Time from a change to its delivery, including the settle delay",
            Unit::Seconds,
            counted.deliveries.clone(),
        );
        ours.register(
            "resends",
            "Events sent again, in case their object was not persisted before",
            counted.resends.clone(),
        );
        ours.register("resyncs", "Requests for a full resync of the runtime", counted.resyncs.clone());
        ours.register("dropped_events", "Events dropped, by reason", counted.dropped.clone());
        ours.register("malformed_objects", "Reviews whose object cannot be read", counted.malformed.clone());
        ours.register("dry_runs", "Reviews of dry runs, which send no event", counted.dry_runs.clone());
        ours.register("evicted_connections", "Connections closed in favour of new ones", counted.evicted.clone());
        ours.register(
            "cut_reviews",
            "Reviews that were not read: their body was too large or too slow, broke off or had no place",
            counted.cut.clone(),
        );
        ours.register(
            "refused_certificates",
            "Handshakes that failed because the client rejected the agent's certificate",
            counted.certificates_refused.clone(),
        );
        ours.register(
            "control_plane_connections",
            "Connections opened to the control plane",
            counted.connections.clone(),
        );
        ours.register("credential_reloads", "Reloads of the mounted Secret, by result", counted.reloads.clone());
        ours.register_with_unit(
            "certificate_expiry",
            "Expiry of the current certificate, in seconds since 1970",
            Unit::Seconds,
            counted.certificate_expiry.clone(),
        );
        ours.register(
            "path_up",
            "Whether the connection to the control plane worked when last used",
            counted.path_up.clone(),
        );
    }
}

fn register_depth(registry: &mut Registry, depth: Depth) {
    let ours = registry.sub_registry_with_prefix("tidegate_agent");
    let number = |count: usize| {
        let gauge: Gauge<i64, AtomicI64> = Gauge::default();
        gauge.set(i64::try_from(count).unwrap_or(i64::MAX));
        gauge
    };
    ours.register("pending_objects", "Objects with an undelivered change", number(depth.undelivered));
    ours.register("trailing_objects", "Objects whose event will be sent again", number(depth.trailing));
    let oldest: Gauge<f64, AtomicU64> = Gauge::default();
    oldest.set(depth.oldest.as_secs_f64());
    ours.register_with_unit("pending_oldest", "Age of the oldest undelivered change", Unit::Seconds, oldest);
}

// === impl Failure ===

impl Failure {
    fn reason(self) -> &'static str {
        match self {
            Failure::InvalidSubresource => "invalid-subresource",
            Failure::FailedRequest => "failed-request",
        }
    }
}

#[cfg(test)]
mod tests;
