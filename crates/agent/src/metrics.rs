//! What Prometheus sees of the agent.
//!
//! The first six names are the Runtime Watcher's, with its types, labels and reasons: dashboards and tests look for them.
//! What it has no name for begins with `tidegate_agent_`.

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

/// What is counted. A handle; clones share it.
#[derive(Clone, Debug)]
pub struct Metrics(Arc<Counted>);

/// Why an event did not arrive, in the Runtime Watcher's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// An update of a subresource that nobody watches.
    InvalidSubresource,
    /// An attempt failed, or was refused.
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

/// Reasons of the Runtime Watcher that do not happen here: what they name is an error at the start.
const UNUSED_REASONS: [&str; 2] = ["missing-address-or-contract", "request-setup"];
/// Reasons for which an event is dropped.
const OVERFLOW: &str = "overflow";
const REFUSED: &str = "refused";
/// Bounds of answers, in seconds: they take microseconds.
const ANSWER_BOUNDS: [f64; 10] = [0.000_05, 0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.1, 1.0];
/// Bounds of deliveries, in seconds: from a change until it was told, the settling included.
const DELIVERY_BOUNDS: [f64; 10] = [0.25, 0.35, 0.5, 1.0, 2.5, 5.0, 15.0, 60.0, 300.0, 1800.0];

// === impl Metrics ===

impl Metrics {
    /// Everything at zero. `fips` is the Runtime Watcher's number for the algorithms that are used.
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
            certificates_refused: Counter::default(),
            connections: Gauge::default(),
            reloads: Family::default(),
            certificate_expiry: Gauge::default(),
            path_up: Gauge::default(),
        };
        counted.fips.set(fips);
        // A series that is there from the start can be watched for its first increase.
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

    /// A review has come.
    pub fn review(&self) {
        self.0.requests.inc();
    }

    /// It could not be read.
    pub fn review_unreadable(&self) {
        self.0.request_errors.inc();
    }

    /// It was answered.
    pub fn answered(&self, duration: Duration) {
        self.0.request_duration.set(duration.as_secs_f64());
        self.0.answers.observe(duration.as_secs_f64());
    }

    /// Its object could not be read.
    pub fn object_malformed(&self) {
        self.0.malformed.inc();
    }

    /// Its object was about to be changed, but only for show.
    pub fn dry_run(&self) {
        self.0.dry_runs.inc();
    }

    /// A connection was closed for another one.
    pub fn connection_evicted(&self) {
        self.0.evicted.inc();
    }

    /// Whoever connected did not take our certificate.
    pub fn certificate_refused(&self) {
        self.0.certificates_refused.inc();
    }

    /// An event is sent for the first time.
    pub fn event(&self) {
        self.0.sent.inc();
    }

    /// An event is sent once more, in case its object was not stored yet.
    pub fn resend(&self) {
        self.0.resends.inc();
    }

    /// The runtime is to be looked at as a whole.
    pub fn resync(&self) {
        self.0.resyncs.inc();
    }

    /// An event arrived, so long after the change that it tells of.
    pub fn delivered(&self, after: Duration) {
        self.0.deliveries.observe(after.as_secs_f64());
    }

    /// Something about an event failed.
    pub fn failed(&self, failure: Failure) {
        self.0.failures.get_or_create(&ReasonLabels { error_reason: failure.reason() }).inc();
    }

    /// An event was dropped, since it was refused for good.
    pub fn refused(&self) {
        self.0.dropped.get_or_create(&ReasonLabels { error_reason: REFUSED }).inc();
    }

    /// An event was dropped, since too many waited.
    pub fn overflowed(&self) {
        self.0.dropped.get_or_create(&ReasonLabels { error_reason: OVERFLOW }).inc();
    }

    /// Credentials were replaced, or could not be.
    pub fn reloaded(&self, validity: Option<Validity>) {
        let result = if validity.is_some() { "success" } else { "error" };
        self.0.reloads.get_or_create(&ResultLabels { result }).inc();
        if let Some(validity) = validity {
            self.certificate(validity);
        }
    }

    /// The certificate in use.
    pub fn certificate(&self, validity: Validity) {
        self.0.certificate_expiry.set(i64::try_from(validity.not_after).unwrap_or(i64::MAX));
    }

    /// Connections made to the control plane so far.
    pub fn connections(&self, count: u64) {
        self.0.connections.set(i64::try_from(count).unwrap_or(i64::MAX));
    }

    /// Whether the way to the control plane is there.
    pub fn path(&self, up: bool) {
        self.0.path_up.set(i64::from(up));
    }

    /// Everything in OpenMetrics text. `depth` is what waits now.
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
            "Seconds that the last review took",
            counted.request_duration.clone(),
        );
        registry.register("watcher_admission_request", "Reviews", counted.requests.clone());
        registry.register(
            "watcher_admission_request_error",
            "Reviews that could not be read",
            counted.request_errors.clone(),
        );
        registry.register("watcher_kcp_requests", "Events sent, each counted once", counted.sent.clone());
        registry.register(
            "watcher_failed_kcp",
            "Attempts to send an event that failed, and events not sent",
            counted.failures.clone(),
        );
        registry.register(
            "watcher_fips_mode",
            "Algorithms of TLS: 0 all, 1 and 2 approved ones only, as asked for; the module is not a validated one",
            counted.fips.clone(),
        );
    }

    fn register_ours(&self, registry: &mut Registry) {
        let ours = registry.sub_registry_with_prefix("tidegate_agent");
        let counted = &self.0;
        ours.register_with_unit("answer_duration", "Time that answers took", Unit::Seconds, counted.answers.clone());
        ours.register_with_unit(
            "delivery_delay",
            "From a change until it was told, settling included",
            Unit::Seconds,
            counted.deliveries.clone(),
        );
        ours.register(
            "resends",
            "Events sent once more, in case their object was not stored yet",
            counted.resends.clone(),
        );
        ours.register("resyncs", "Events that have the runtime looked at as a whole", counted.resyncs.clone());
        ours.register("dropped_events", "Events dropped, by reason", counted.dropped.clone());
        ours.register("malformed_objects", "Reviews whose object could not be read", counted.malformed.clone());
        ours.register("dry_runs", "Reviews of dry runs, which nobody is told of", counted.dry_runs.clone());
        ours.register("evicted_connections", "Connections closed for newer ones", counted.evicted.clone());
        ours.register(
            "refused_certificates",
            "Handshakes that ended because the caller did not take our certificate",
            counted.certificates_refused.clone(),
        );
        ours.register(
            "control_plane_connections",
            "Connections made to the control plane since the start",
            counted.connections.clone(),
        );
        ours.register("credential_reloads", "Changes of the mounted Secret, by result", counted.reloads.clone());
        ours.register_with_unit(
            "certificate_expiry",
            "When the certificate in use ends, since 1970",
            Unit::Seconds,
            counted.certificate_expiry.clone(),
        );
        ours.register(
            "path_up",
            "Whether the way to the control plane was there when last used",
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
    ours.register("pending_objects", "Objects whose change has not been told yet", number(depth.undelivered));
    ours.register("trailing_objects", "Objects that will be told of once more", number(depth.trailing));
    let oldest: Gauge<f64, AtomicU64> = Gauge::default();
    oldest.set(depth.oldest.as_secs_f64());
    ours.register_with_unit("pending_oldest", "Age of the oldest change that has not been told", Unit::Seconds, oldest);
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
