//! The listener: accepts events from runtimes over HTTP, and answers 200 only after the receiver has accepted the
//! event.
//!
//! Any operator can embed it; the daemon does so, too:
//!
//! ```no_run
//! # async fn example(bundle: &[u8]) -> Result<(), Box<dyn std::error::Error>> {
//! use futures::StreamExt as _;
//! use tidegate_events::{identity::{Authorities, Xfcc}, listener::{self, Listener}};
//!
//! let (listener, mut events) = Listener::builder("my-manager").forwarded(Xfcc::default()).events(1024);
//! listener.set_authorities(Some(Authorities::parse(bundle, listener::now())?));
//! let socket = listener::bind("0.0.0.0:8082".parse()?)?;
//! tokio::spawn(async move { listener.serve_forwarded(socket, std::future::pending()).await });
//! while let Some(received) = events.next().await {
//!     println!("{} changed in {}", received.event.watched.name, received.runtime_id());
//! }
//! # Ok(()) }
//! ```
//!
//! The listener checks a request in this order:
//!
//! | check | answer |
//! | --- | --- |
//! | another path than `/v2/<component>/event` | 404 |
//! | a `Content-Length` beyond 16,384 | 413 |
//! | another method than POST; agents probe the connection with GET | 405 |
//! | more concurrent requests than [`Limits::requests`], or than [`Limits::sender_requests`] of one sender | 503 |
//! | no certificate, or an untrusted one (see [`identity`]) | 401 |
//! | a certificate without a common name | 400 |
//! | a body beyond 16,384 bytes, also in chunks | 413 |
//! | a body that is not an event | 400 |
//! | a sender that the verify function or the receiver refuses | 403 |
//! | a receiver that cannot accept the event now | 503 |
//! | otherwise | 200 |
//!
//! Every 503 has a `Retry-After`. Agents of the Runtime Watcher retry after a 5xx and never after a 4xx, so a request
//! that can never succeed gets a 4xx. The listener never blocks on a full receiver: it answers 503. [`Limits`] bound
//! memory and time. If one runtime sends many more events than the others, its answers are delayed, so that the answers
//! to the others are not.
//!
//! A connection whose sender is unknown has a place only until another one needs it. So no number of handshakes, heads
//! or bodies that never end keeps others from being served. Behind a gateway, a peer that [`Xfcc::peers`] does not
//! contain is closed at once.
//!
//! The listener does not interpret events and never quotes what a sender sent.

mod check;
mod connection;
mod fairness;
mod stream;
mod timed;
mod tls;

use std::{
    collections::HashMap,
    fmt,
    net::IpAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant, SystemTime},
};

use bytes::Bytes;
use futures::future::BoxFuture;
use http::{HeaderMap, Method, Request, Response, header::USER_AGENT};
use http_body_util::Full;
use rustls::pki_types::{CertificateDer, UnixTime};
use tidegate_process::lock::Mutex;

use self::{
    check::{BodyError, Reply},
    connection::{Activity, Doors},
    fairness::Fairness,
};
use super::{
    event::{self, Event},
    identity::{self, Authorities, Identity, Known, Xfcc},
};
use crate::metrics::ListenerMetrics;

pub use self::{
    connection::bind,
    stream::Events,
    tls::{Tls, TlsError},
};

/// Accepts events for one component. A handle: clones share everything.
#[derive(Clone)]
pub struct Listener(Arc<Shared>);

/// Configures a [`Listener`].
pub struct Builder {
    component: String,
    xfcc: Option<Xfcc>,
    limits: Limits,
    metrics: ListenerMetrics,
    verify: Option<Verify>,
    probed: Option<Probed>,
}

/// An event and its sender.
#[derive(Clone, Debug)]
pub struct Received {
    /// Which object changed.
    pub event: Event,
    /// The contents of the sender's certificate.
    pub identity: Arc<Identity>,
    /// Whether the sender waited until the change was persisted. The agents of the Runtime Watcher do not wait: they
    /// send during admission.
    pub settled: bool,
}

/// The receiver's decision about an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The receiver has accepted the event.
    Taken,
    /// The sender may not send this event and should not retry.
    Refused(Refusal),
    /// The receiver cannot accept the event now; the sender should retry.
    Unavailable(Refusal),
    /// Another replica accepts events. The listener closes the connection after the answer, so that a retry may reach
    /// that replica.
    Elsewhere(Refusal),
}

/// Why an event is not accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// One word for metrics.
    pub reason: &'static str,
    /// A sentence for the sender. It must not reveal anything about other runtimes.
    pub message: &'static str,
}

/// Limits of a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Connections of each port whose first message, a ClientHello or a head, is incomplete. At this limit, the oldest
    /// of the address with the most of them is closed.
    pub opening: usize,
    /// Connections of each port with a complete first message and an unknown sender. At this limit, new ones wait, and
    /// the oldest of the address with the most of them is closed if it is older than a second. One address has at most
    /// half of these places: beyond it, its own connections wait, and its oldest one goes in the same way.
    pub unproven: usize,
    /// Connections of each port whose sender is known. At this limit, the one is closed that has been idle longest; a
    /// new one is refused only if all have a request under way.
    pub connections: usize,
    /// Connections over TLS of one sender.
    pub sender_connections: usize,
    /// Concurrent requests.
    pub requests: usize,
    /// Concurrent requests of one sender.
    pub sender_requests: usize,
    /// How long a new connection may take to send its first byte.
    pub first_byte: Duration,
    /// How long the TLS handshake may take.
    pub handshake: Duration,
    /// How long the head of a request may take, and how long a connection may idle between two requests.
    pub head: Duration,
    /// How long the body of a request may take.
    pub body: Duration,
    /// How long a receiver may take to accept an event.
    pub receiver: Duration,
    /// How long a peer may leave an answer unread.
    pub write: Duration,
    /// At shutdown, how long to wait for running requests.
    pub drain: Duration,
}

/// How a request reached the listener.
pub(crate) enum Peer<'a> {
    /// Through a gateway, which names the sender in a header.
    Forwarded {
        /// The gateway's address.
        address: IpAddr,
        /// The connection, unless another server accepted it.
        connection: Option<&'a Activity>,
    },
    /// From the sender itself, with this certificate chain.
    Direct(&'a [CertificateDer<'static>]),
}

struct Shared {
    path: String,
    xfcc: Option<Xfcc>,
    limits: Limits,
    metrics: ListenerMetrics,
    verify: Option<Verify>,
    probed: Option<Probed>,
    receive: Receive,
    /// The senders behind a gateway.
    forwarded: Known,
    /// The senders that connect directly over TLS.
    direct: Known,
    fairness: Mutex<Fairness>,
    requests: AtomicUsize,
    /// Concurrent requests of each sender.
    senders: Mutex<HashMap<Box<str>, usize>>,
    doors: Doors,
}

type Verify = Box<dyn Fn(&Received) -> Result<(), Refusal> + Send + Sync>;
type Probed = Box<dyn Fn(&Identity) + Send + Sync>;
type Receive = Box<dyn Fn(Received) -> BoxFuture<'static, Answer> + Send + Sync>;

/// A permit for one of the concurrent requests.
struct RequestPermit<'a>(&'a AtomicUsize);

/// A permit for one of the concurrent requests of a sender.
struct SenderPermit<'a> {
    senders: &'a Mutex<HashMap<Box<str>, usize>>,
    sender: Arc<Identity>,
}

/// The prefix of our agents' `User-Agent`. They send after the change is persisted.
const OWN_AGENT: &[u8] = b"tidegate-agent/";

/// The current time, as [`Authorities::parse`] takes it.
pub fn now() -> UnixTime {
    identity::moment(SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default())
}

// === impl Limits ===

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            // On both ports together, these places cost 60 MiB at most: 6, 28 and 24 KiB each, and what is kept of
            // heads.
            opening: 1_024,
            unproven: 256,
            connections: 640,
            // An agent needs one. A burst of others may arrive before it has closed the first ones.
            sender_connections: 64,
            requests: 2_048,
            sender_requests: 64,
            first_byte: Duration::from_secs(20),
            handshake: Duration::from_secs(10),
            // As upstream: gateways keep connections open for this long.
            head: Duration::from_secs(60),
            body: Duration::from_secs(10),
            receiver: Duration::from_secs(10),
            write: Duration::from_secs(20),
            drain: Duration::from_secs(5),
        }
    }
}

// === impl Builder ===

impl Builder {
    /// Identifies senders by the header of a gateway. Without it, only [`Listener::serve_tls`] can identify senders.
    #[must_use]
    pub fn forwarded(mut self, xfcc: Xfcc) -> Builder {
        self.xfcc = Some(xfcc);
        self
    }

    /// Replaces the default limits.
    #[must_use]
    pub fn limits(mut self, limits: Limits) -> Builder {
        self.limits = limits;
        self
    }

    /// Counts into these metrics.
    #[must_use]
    pub fn metrics(mut self, metrics: ListenerMetrics) -> Builder {
        self.metrics = metrics;
        self
    }

    /// Runs `verify` before the receiver, and answers 403 if it fails. See [`Identity::is_named`].
    #[must_use]
    pub fn verify(mut self, verify: impl Fn(&Received) -> Result<(), Refusal> + Send + Sync + 'static) -> Builder {
        self.verify = Some(Box::new(verify));
        self
    }

    /// Calls `probed` for every sender that only probed the connection.
    #[must_use]
    pub fn probed(mut self, probed: impl Fn(&Identity) + Send + Sync + 'static) -> Builder {
        self.probed = Some(Box::new(probed));
        self
    }

    /// Builds a listener that puts its events into a stream. The stream holds at most `capacity` events; while it is
    /// full, senders get 503.
    pub fn events(self, capacity: usize) -> (Listener, Events) {
        let (sender, events) = stream::channel(capacity);
        let listener = self.receiver(move |received| {
            let answer = sender.take(received);
            Box::pin(std::future::ready(answer))
        });
        (listener, events)
    }

    /// Builds a listener that passes each event to a function, which decides the answer.
    pub fn receiver(
        self,
        receive: impl Fn(Received) -> BoxFuture<'static, Answer> + Send + Sync + 'static,
    ) -> Listener {
        let path = event::path(event::CONTRACT, &self.component);
        self.metrics.serves(&path);
        Listener(Arc::new(Shared {
            path,
            xfcc: self.xfcc,
            limits: self.limits,
            metrics: self.metrics,
            verify: self.verify,
            probed: self.probed,
            receive: Box::new(receive),
            forwarded: Known::default(),
            direct: Known::default(),
            fairness: Mutex::default(),
            requests: AtomicUsize::new(0),
            senders: Mutex::default(),
            doors: Doors::new(&self.limits),
        }))
    }
}

// === impl Listener ===

impl Listener {
    /// Starts to configure a listener for one component: the manager that a Watcher names.
    pub fn builder(component: &str) -> Builder {
        Builder {
            component: component.to_owned(),
            xfcc: None,
            limits: Limits::default(),
            metrics: ListenerMetrics::default(),
            verify: None,
            probed: None,
        }
    }

    /// The path that accepts events.
    pub fn path(&self) -> &str {
        &self.0.path
    }

    /// Replaces the CAs that forwarded certificates must chain to. With `None`, every sender gets 503.
    pub fn set_authorities(&self, authorities: Option<Authorities>) {
        self.0.forwarded.set_authorities(authorities);
    }

    /// A router with the one path, for your own server. Create that with
    /// `into_make_service_with_connect_info::<SocketAddr>()`. The router identifies only senders behind a gateway, and
    /// your server must limit connections itself.
    pub fn router(&self) -> axum::Router {
        use axum::extract::{ConnectInfo, Request};
        let listener = self.clone();
        axum::Router::new().fallback(move |ConnectInfo(peer): ConnectInfo<std::net::SocketAddr>, request: Request| {
            let listener = listener.clone();
            let peer = Peer::Forwarded { address: peer.ip(), connection: None };
            async move { listener.handle(&peer, request).await.map(axum::body::Body::new) }
        })
    }

    pub(crate) async fn handle<B>(&self, peer: &Peer<'_>, request: Request<B>) -> Response<Full<Bytes>>
    where
        B: hyper::body::Body<Data = Bytes> + Send,
    {
        let started = Instant::now();
        let (head, body) = request.into_parts();
        let shared = &*self.0;
        let reply = match check::head(&head, &shared.path) {
            Err(reply) => {
                self.note_probe(peer, &head.method, &head.headers, &reply);
                // Read the body first: a sender that is cut off while it writes does not read the answer.
                check::discard(Box::pin(body), shared.limits.body.min(Duration::from_secs(1))).await;
                reply
            }
            Ok(()) => {
                let _in_flight = shared.metrics.in_flight();
                let (reply, pause) = self.decide(peer, &head.headers, body).await;
                if !pause.is_zero() {
                    shared.metrics.slowed();
                    tokio::time::sleep(pause).await;
                }
                reply
            }
        };
        self.count(&reply, &head.method, started.elapsed());
        reply.into_response()
    }

    /// Decides the answer to a request with a valid head, and how long to delay it.
    async fn decide<B>(&self, peer: &Peer<'_>, headers: &HeaderMap, body: B) -> (Reply, Duration)
    where
        B: hyper::body::Body<Data = Bytes> + Send,
    {
        let limits = &self.0.limits;
        let overloaded = || (Reply::unavailable("overloaded", "too many requests at once"), Duration::ZERO);
        let Some(permit) = RequestPermit::take(&self.0.requests, limits.requests) else { return overloaded() };
        let mut body = Box::pin(body);
        let identity = match self.identity(peer, headers) {
            Ok(identity) => identity,
            Err(reply) => {
                // A body that is not read delays no request.
                drop(permit);
                check::discard(body, limits.body.min(Duration::from_secs(1))).await;
                return (reply, Duration::ZERO);
            }
        };
        let Some(_permit) = SenderPermit::take(&self.0.senders, &identity, limits.sender_requests) else {
            return overloaded();
        };
        if let Peer::Forwarded { connection: Some(connection), .. } = peer
            && !connection.prove(None)
        {
            return (Reply::unavailable("no-place", "too many connections at once").ending(), Duration::ZERO);
        }
        let pause = self.fairness(identity.common_name());
        let event = match tokio::time::timeout(limits.body, check::body(body.as_mut())).await {
            Ok(Ok(bytes)) => Event::parse(&bytes),
            Ok(Err(BodyError::TooLarge)) => return (Reply::too_large(), pause),
            Ok(Err(BodyError::Broken)) => return (Reply::unreadable(), pause),
            // A retry may be faster, so this is a 503.
            Err(_) => return (Reply::unavailable("body-too-slow", "could not read request body"), pause),
        };
        let reply = match event {
            Err(error) => Reply::no_event(&error),
            Ok(event) => {
                let settled = headers.get(USER_AGENT).is_some_and(|agent| agent.as_bytes().starts_with(OWN_AGENT));
                self.receive(Received { event, identity, settled }).await
            }
        };
        (reply, pause)
    }

    /// The trusted identity of the sender.
    fn identity(&self, peer: &Peer<'_>, headers: &HeaderMap) -> Result<Arc<Identity>, Reply> {
        let identity = self.presented(peer, headers).map_err(Reply::unknown)?;
        if identity.common_name().is_empty() { Err(Reply::nameless()) } else { Ok(identity) }
    }

    fn presented(&self, peer: &Peer<'_>, headers: &HeaderMap) -> Result<Arc<Identity>, identity::Error> {
        match peer {
            Peer::Direct(chain) => self.0.direct.by_chain(chain, now()),
            Peer::Forwarded { address, .. } => {
                let xfcc = self.0.xfcc.as_ref().ok_or(identity::Error::PeerNotTrusted)?;
                let lines = headers.get_all(check::XFCC).iter().map(http::HeaderValue::as_bytes);
                let element = xfcc.element(*address, lines)?;
                self.0.forwarded.by_element(&element, now())
            }
        }
    }

    async fn receive(&self, received: Received) -> Reply {
        if let Some(verify) = &self.0.verify
            && let Err(refusal) = verify(&received)
        {
            return Reply::refused(&refusal);
        }
        match tokio::time::timeout(self.0.limits.receiver, (self.0.receive)(received)).await {
            Ok(Answer::Taken) => Reply::taken(),
            Ok(Answer::Refused(refusal)) => Reply::refused(&refusal),
            Ok(Answer::Unavailable(refusal)) => Reply::unavailable(refusal.reason, refusal.message),
            Ok(Answer::Elsewhere(refusal)) => Reply::unavailable(refusal.reason, refusal.message).ending(),
            Err(_) => Reply::unavailable("receiver-too-slow", "the event could not be accepted in time"),
        }
    }

    fn fairness(&self, runtime: &str) -> Duration {
        let mut fairness = self.0.fairness.lock();
        fairness.pause(runtime, Instant::now())
    }

    /// Reports a sender that only probed the connection.
    fn note_probe(&self, peer: &Peer<'_>, method: &Method, headers: &HeaderMap, reply: &Reply) {
        if !reply.is_wrong_method() || *method != Method::GET {
            return;
        }
        self.0.metrics.probed();
        if let Some(probed) = &self.0.probed
            && let Ok(identity) = self.identity(peer, headers)
        {
            probed(&identity);
        }
    }

    fn count(&self, reply: &Reply, method: &Method, duration: Duration) {
        let metrics = &self.0.metrics;
        match reply.reason() {
            // As upstream, requests to other paths are not counted.
            Some(check::WRONG_PATH) => return,
            Some(check::TOO_LARGE) => {
                metrics.oversized();
                return;
            }
            Some(check::WRONG_METHOD) if *method == Method::GET => {}
            Some(reason) => metrics.failed(reason),
            None => {}
        }
        if reply.is_refusal() {
            metrics.failed_verification(&self.0.path);
        }
        metrics.handled(duration);
    }
}

impl fmt::Debug for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Listener").field("path", &self.0.path).finish_non_exhaustive()
    }
}

// === impl Received ===

impl Received {
    /// The id of the runtime that sent the event.
    pub fn runtime_id(&self) -> &str {
        self.identity.common_name()
    }
}

// === impl RequestPermit ===

impl<'a> RequestPermit<'a> {
    fn take(taken: &'a AtomicUsize, places: usize) -> Option<RequestPermit<'a>> {
        let place = RequestPermit(taken);
        // Dropping the permit decrements the counter, also if the limit was exceeded.
        (taken.fetch_add(1, Ordering::Relaxed) < places).then_some(place)
    }
}

impl Drop for RequestPermit<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

// === impl SenderPermit ===

impl<'a> SenderPermit<'a> {
    fn take(
        senders: &'a Mutex<HashMap<Box<str>, usize>>,
        sender: &Arc<Identity>,
        limit: usize,
    ) -> Option<SenderPermit<'a>> {
        let mut counts = senders.lock();
        let count = counts.entry(sender.common_name().into()).or_default();
        if limit <= *count {
            return None;
        }
        *count += 1;
        Some(SenderPermit { senders, sender: Arc::clone(sender) })
    }
}

impl Drop for SenderPermit<'_> {
    fn drop(&mut self) {
        let mut counts = self.senders.lock();
        let Some(count) = counts.get_mut(self.sender.common_name()) else { return };
        *count -= 1;
        if *count == 0 {
            counts.remove(self.sender.common_name());
        }
    }
}

#[cfg(test)]
mod tests;
