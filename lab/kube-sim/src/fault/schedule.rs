// SPDX-License-Identifier: Apache-2.0

//! Decides which request has which fault: a pure function of the seed.

use std::time::Duration;

use http::{StatusCode, Uri};

/// A seed and the rates of faults.
#[derive(Clone, Debug)]
pub struct Schedule {
    /// Equal seeds give equal faults.
    pub seed: u64,
    /// The rates of faults.
    pub rates: Rates,
}

/// Rates in requests out of 1,000 that can have the fault. A request has at most one fault, so the rates that apply to
/// one request should add up to less than 1,000.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rates {
    /// Delayed requests; a delay may come with another fault.
    pub latency: u16,
    /// Limit of the delay.
    pub latency_max: Duration,
    /// 429 with `Retry-After`.
    pub throttled: u16,
    /// 500, 503 or 504.
    pub failed: u16,
    /// The connection ends before the request arrives.
    pub reset: u16,
    /// The write happens but its answer never arrives.
    pub lost: u16,
    /// How long the client waits for that answer.
    pub lost_after: Duration,
    /// Writes that need a webhook which does not answer: 500, and nothing is written.
    pub unjudged: u16,
    /// How long the server waits for the webhook.
    pub unjudged_after: Duration,
    /// Watches that end early.
    pub dropped: u16,
    /// Limit of the lifetime of such a watch.
    pub dropped_after_max: Duration,
    /// Watches with delayed events, so that their readers see an old state.
    pub late: u16,
    /// Limit of the delay of an event.
    pub late_max: Duration,
    /// Watches and pages whose version is too old, 410.
    pub gone: u16,
    /// Reads that allow any version and get an old one.
    pub stale: u16,
}

/// The fault of one request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// 429 with `Retry-After`.
    Throttled,
    /// The server fails with this code.
    Failed(StatusCode),
    /// The connection ends before the request arrives.
    Reset,
    /// The write happens but its answer never arrives: the client times out.
    Lost {
        /// How long the client waits.
        after: Duration,
    },
    /// A required webhook does not answer in time.
    Unjudged {
        /// How long the server waits for it.
        after: Duration,
    },
    /// The watch ends, as servers end them.
    Dropped {
        /// After this time,
        after: Duration,
        /// or after this many chunks of events, whichever comes first.
        events: usize,
    },
    /// The watch is delayed.
    Late {
        /// How long each chunk of events is held back.
        by: Duration,
    },
    /// The version to watch from is too old: 410.
    Gone,
    /// The next page of the list is too old: 410.
    GonePage,
    /// The answer is an earlier one.
    Stale,
}

/// The part of a request that determines its fault.
#[derive(Clone, Copy, Debug)]
pub struct Asked<'a> {
    /// `GET`, `POST`, …
    pub method: &'a str,
    /// The path without the query.
    pub path: &'a str,
    query: &'a str,
}

/// Limit of chunks of events until a watch ends.
const EVENTS_MAX: u64 = 8;
/// The statuses of a failing server.
const CODES: [StatusCode; 3] =
    [StatusCode::INTERNAL_SERVER_ERROR, StatusCode::SERVICE_UNAVAILABLE, StatusCode::GATEWAY_TIMEOUT];

/// The random draws of one request, independent of each other.
#[derive(Clone, Copy)]
enum Draw {
    Latency,
    LatencyLength,
    Fault,
    Detail,
    Events,
}

// === impl Fault ===

impl Fault {
    /// One word for its kind.
    pub fn kind(&self) -> &'static str {
        match self {
            Fault::Throttled => "throttled",
            Fault::Failed(_) => "failed",
            Fault::Reset => "reset",
            Fault::Lost { .. } => "lost",
            Fault::Unjudged { .. } => "unjudged",
            Fault::Dropped { .. } => "dropped",
            Fault::Late { .. } => "late",
            Fault::Gone => "gone",
            Fault::GonePage => "gone page",
            Fault::Stale => "stale",
        }
    }
}

// === impl Asked ===

impl<'a> Asked<'a> {
    /// Reads a request.
    pub fn from_request(method: &'a str, uri: &'a Uri) -> Asked<'a> {
        Asked { method, path: uri.path(), query: uri.query().unwrap_or_default() }
    }

    fn parameter(self, name: &str) -> Option<&'a str> {
        let mut pairs = self.query.split('&').map(|pair| pair.split_once('=').unwrap_or((pair, "")));
        pairs.find(|(key, _)| *key == name).map(|(_, value)| value)
    }

    /// Whether it is a watch.
    pub fn is_watch(self) -> bool {
        self.method == "GET" && matches!(self.parameter("watch"), Some("true" | "1"))
    }

    fn is_write(self) -> bool {
        !matches!(self.method, "GET" | "HEAD" | "OPTIONS")
    }

    /// Whether it is a page after the first.
    fn is_continued(self) -> bool {
        self.method == "GET" && self.parameter("continue").is_some_and(|token| !token.is_empty())
    }

    /// Whether it is a read that the server may answer with any version.
    pub fn allows_any_version(self) -> bool {
        self.method == "GET" && !self.is_watch() && self.parameter("resourceVersion") == Some("0")
    }
}

// === impl Schedule ===

impl Schedule {
    /// The delay of the `nth` request of its kind.
    pub fn latency(&self, asked: Asked<'_>, nth: u64) -> Duration {
        if self.draw(asked, nth, Draw::Latency) % 1_000 < u64::from(self.rates.latency) {
            part(self.rates.latency_max, self.draw(asked, nth, Draw::LatencyLength))
        } else {
            Duration::ZERO
        }
    }

    /// The fault of the `nth` request of its kind.
    pub fn fault(&self, asked: Asked<'_>, nth: u64) -> Option<Fault> {
        let rates = &self.rates;
        let detail = self.draw(asked, nth, Draw::Detail);
        let code = CODES[usize::try_from(detail % 3).unwrap_or_default()];
        let is_watch = asked.is_watch();
        let dropped = Fault::Dropped {
            after: part(rates.dropped_after_max, detail),
            events: usize::try_from(self.draw(asked, nth, Draw::Events) % EVENTS_MAX).unwrap_or_default(),
        };
        let faults = [
            (rates.throttled, true, Fault::Throttled),
            (rates.failed, true, Fault::Failed(code)),
            (rates.reset, true, Fault::Reset),
            (rates.lost, asked.is_write(), Fault::Lost { after: rates.lost_after }),
            (rates.unjudged, asked.is_write(), Fault::Unjudged { after: rates.unjudged_after }),
            (rates.dropped, is_watch, dropped),
            (rates.late, is_watch, Fault::Late { by: part(rates.late_max, detail) }),
            (rates.gone, is_watch, Fault::Gone),
            (rates.gone, asked.is_continued(), Fault::GonePage),
            (rates.stale, asked.allows_any_version(), Fault::Stale),
        ];
        let mut drawn = self.draw(asked, nth, Draw::Fault) % 1_000;
        for (rate, _, fault) in faults.into_iter().filter(|(_, can_be, _)| *can_be) {
            match drawn.checked_sub(u64::from(rate)) {
                Some(rest) => drawn = rest,
                None => return Some(fault),
            }
        }
        None
    }

    /// A pseudo-random number that depends only on the request and the seed.
    fn draw(&self, asked: Asked<'_>, nth: u64, what: Draw) -> u64 {
        // FNV-1a over the inputs, then the finish of SplitMix64, which spreads the low bits.
        let mut hash = 0xcbf2_9ce4_8422_2325_u64;
        let numbers = [self.seed, nth, what as u64].map(u64::to_le_bytes);
        let bytes =
            numbers.as_flattened().iter().chain(asked.method.as_bytes()).chain(b" ").chain(asked.path.as_bytes());
        for byte in bytes {
            hash = (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
        hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        hash ^ (hash >> 31)
    }
}

/// A fraction of a duration.
fn part(whole: Duration, drawn: u64) -> Duration {
    let millis = u64::try_from(whole.as_millis()).unwrap_or(u64::MAX);
    Duration::from_millis(drawn % millis.saturating_add(1).max(1))
}
