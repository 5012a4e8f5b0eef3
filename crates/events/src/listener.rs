//! The listener: takes events of runtimes over HTTP, and says 200 only when each is in good hands.
//!
//! A library for operators; the daemon is one of its users:
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
//! What is checked, in this order, and what the answer is:
//!
//! | | answer |
//! | --- | --- |
//! | another path than `/v2/<component>/event` | 404 |
//! | a `Content-Length` beyond 16,384 | 413 |
//! | another method than POST; whoever asks by GET learns that the way is open | 405 |
//! | more requests under way than we take | 503 |
//! | no certificate, or none that counts here (see [`identity`]) | 401 |
//! | a certificate without a common name | 400 |
//! | a body beyond 16,384 bytes, also in chunks | 413 |
//! | a body that is no event | 400 |
//! | a sender that is not allowed: what the verify function, or the receiver, says | 403 |
//! | a receiver that cannot take it now | 503 |
//! | else | 200 |
//!
//! Every 503 says `Retry-After`. Agents of the Runtime Watcher try again after a 5xx and never after a 4xx, so what can
//! never succeed is a 4xx. Nothing here waits for anybody: a receiver that is full is a 503. Memory and time are bounded by
//! [`Limits`], and where one runtime sends much more than the others, its answers come later, so that theirs do not.
//!
//! Refuses to know what an event means, and to quote what was sent.

mod check;
mod connection;
mod fairness;
mod stream;
mod timed;
mod tls;

use std::{
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

/// Takes events for one component. A handle; clones share everything.
#[derive(Clone)]
pub struct Listener(Arc<Shared>);

/// What a [`Listener`] is made from.
pub struct Builder {
    component: String,
    xfcc: Option<Xfcc>,
    limits: Limits,
    metrics: ListenerMetrics,
    verify: Option<Verify>,
    probed: Option<Probed>,
}

/// An event, and who sent it.
#[derive(Clone, Debug)]
pub struct Received {
    /// What changed.
    pub event: Event,
    /// What the sender's certificate says.
    pub identity: Arc<Identity>,
    /// Whether the sender waits until the change is stored before it sends. The agents of the Runtime Watcher do not: they
    /// send while the change is still being admitted.
    pub settled: bool,
}

/// What becomes of an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It is in good hands.
    Taken,
    /// Its sender is not allowed to send it, and need not try again.
    Refused(Refusal),
    /// Not now; the sender should try again.
    Unavailable(Refusal),
    /// Not here; another replica takes events. The connection ends with the answer, so that the next attempt may lead there.
    Elsewhere(Refusal),
}

/// Why an event is not taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// One word for metrics.
    pub reason: &'static str,
    /// A sentence for the sender. It must not tell of others.
    pub message: &'static str,
}

/// What a listener takes at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Connections at once. Where there are as many, those that idle are closed, and others hear 503.
    pub connections: usize,
    /// Requests handled at once.
    pub requests: usize,
    /// Until a new connection sends its first byte.
    pub first_byte: Duration,
    /// For the TLS handshake.
    pub handshake: Duration,
    /// For the head of a request, and between two requests.
    pub head: Duration,
    /// For the body of a request.
    pub body: Duration,
    /// For a receiver to take an event.
    pub receiver: Duration,
    /// How long the other side may refuse to read an answer.
    pub write: Duration,
    /// At the end, for requests under way.
    pub drain: Duration,
}

/// How a request came to us.
pub(crate) enum Peer<'a> {
    /// Through a gateway, which says in a header who sent it.
    Forwarded(IpAddr),
    /// From the sender, with this certificate and the chain behind it.
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
    /// Senders behind a gateway.
    forwarded: Known,
    /// Senders of our own handshakes.
    direct: Known,
    fairness: Mutex<Fairness>,
    requests: AtomicUsize,
    connections: connection::Places,
}

type Verify = Box<dyn Fn(&Received) -> Result<(), Refusal> + Send + Sync>;
type Probed = Box<dyn Fn(&Identity) + Send + Sync>;
type Receive = Box<dyn Fn(Received) -> BoxFuture<'static, Answer> + Send + Sync>;

/// A place among the requests that are handled at once.
struct Place<'a>(&'a AtomicUsize);

/// How our own agents name themselves: they send when a change is stored.
const OWN_AGENT: &[u8] = b"tidegate-agent/";

/// The moment of now, as [`Authorities::parse`] takes it.
pub fn now() -> UnixTime {
    identity::moment(SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default())
}

// === impl Limits ===

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            connections: 16_384,
            requests: 2_048,
            first_byte: Duration::from_secs(20),
            handshake: Duration::from_secs(10),
            // Upstream's: gateways keep connections for as long.
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
    /// Takes senders from the header of a gateway. Without this only [`Listener::serve_tls`] can tell who sends.
    #[must_use]
    pub fn forwarded(mut self, xfcc: Xfcc) -> Builder {
        self.xfcc = Some(xfcc);
        self
    }

    /// Bounds what is taken.
    #[must_use]
    pub fn limits(mut self, limits: Limits) -> Builder {
        self.limits = limits;
        self
    }

    /// Counts there.
    #[must_use]
    pub fn metrics(mut self, metrics: ListenerMetrics) -> Builder {
        self.metrics = metrics;
        self
    }

    /// Asks before an event is handed on, and answers 403 where that fails. [`Identity::is_named`] is of use here.
    #[must_use]
    pub fn verify(mut self, verify: impl Fn(&Received) -> Result<(), Refusal> + Send + Sync + 'static) -> Builder {
        self.verify = Some(Box::new(verify));
        self
    }

    /// Tells of senders who only asked whether the way is open.
    #[must_use]
    pub fn probed(mut self, probed: impl Fn(&Identity) + Send + Sync + 'static) -> Builder {
        self.probed = Some(Box::new(probed));
        self
    }

    /// A listener whose events come out of a stream. At most `capacity` of them wait there; then it is full, and senders
    /// hear 503.
    pub fn events(self, capacity: usize) -> (Listener, Events) {
        let (sender, events) = stream::channel(capacity);
        let listener = self.receiver(move |received| {
            let answer = sender.take(received);
            Box::pin(std::future::ready(answer))
        });
        (listener, events)
    }

    /// A listener that hands each event to a function, and answers what that says.
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
            connections: connection::Places::new(self.limits.connections),
        }))
    }
}

// === impl Listener ===

impl Listener {
    /// A listener for the events of one component, as the manager of a Watcher names it.
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

    /// The path on which events come in.
    pub fn path(&self) -> &str {
        &self.0.path
    }

    /// From now on these authorities stand behind forwarded certificates; without any, nobody is believed.
    pub fn set_authorities(&self, authorities: Option<Authorities>) {
        self.0.forwarded.set_authorities(authorities);
    }

    /// A router with the one path, for a server of one's own that is made with
    /// `into_make_service_with_connect_info::<SocketAddr>()`. Only senders behind a gateway can be told from each other
    /// there, and the bounds on connections are that server's.
    pub fn router(&self) -> axum::Router {
        use axum::extract::{ConnectInfo, Request};
        let listener = self.clone();
        axum::Router::new().fallback(move |ConnectInfo(peer): ConnectInfo<std::net::SocketAddr>, request: Request| {
            let listener = listener.clone();
            async move { listener.handle(&Peer::Forwarded(peer.ip()), request).await.map(axum::body::Body::new) }
        })
    }

    /// Answers a request.
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
                // A sender that is cut off while it writes does not read the answer.
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

    /// What the answer to a request with the right head is, and how long it is held back.
    async fn decide<B>(&self, peer: &Peer<'_>, headers: &HeaderMap, body: B) -> (Reply, Duration)
    where
        B: hyper::body::Body<Data = Bytes> + Send,
    {
        let limits = &self.0.limits;
        let Some(_place) = Place::take(&self.0.requests, limits.requests) else {
            return (Reply::unavailable("overloaded", "too many requests at once"), Duration::ZERO);
        };
        let mut body = Box::pin(body);
        let identity = match self.identity(peer, headers) {
            Ok(identity) => identity,
            Err(reply) => {
                check::discard(body, limits.body.min(Duration::from_secs(1))).await;
                return (reply, Duration::ZERO);
            }
        };
        let pause = self.fairness(identity.common_name());
        let event = match tokio::time::timeout(limits.body, check::body(body.as_mut())).await {
            Ok(Ok(bytes)) => Event::parse(&bytes),
            Ok(Err(BodyError::TooLarge)) => return (Reply::too_large(), pause),
            Ok(Err(BodyError::Broken)) => return (Reply::unreadable(), pause),
            // Slow is not wrong: another try may be faster.
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

    /// Who sends, as far as we believe it.
    fn identity(&self, peer: &Peer<'_>, headers: &HeaderMap) -> Result<Arc<Identity>, Reply> {
        let identity = self.presented(peer, headers).map_err(Reply::unknown)?;
        if identity.common_name().is_empty() { Err(Reply::nameless()) } else { Ok(identity) }
    }

    fn presented(&self, peer: &Peer<'_>, headers: &HeaderMap) -> Result<Arc<Identity>, identity::Error> {
        match peer {
            Peer::Direct(chain) => self.0.direct.by_chain(chain, now()),
            Peer::Forwarded(address) => {
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
            Err(_) => Reply::unavailable("receiver-too-slow", "the event could not be taken in time"),
        }
    }

    fn fairness(&self, runtime: &str) -> Duration {
        let mut fairness = self.0.fairness.lock();
        fairness.pause(runtime, Instant::now())
    }

    /// Tells of a sender of ours that looked whether the way is open.
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
            // As upstream: what is asked of another path concerns nobody here.
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
    /// The id of the runtime that sent it.
    pub fn runtime_id(&self) -> &str {
        self.identity.common_name()
    }
}

// === impl Place ===

impl<'a> Place<'a> {
    fn take(taken: &'a AtomicUsize, places: usize) -> Option<Place<'a>> {
        let place = Place(taken);
        // The place is given back by the drop, also where there was none.
        (taken.fetch_add(1, Ordering::Relaxed) < places).then_some(place)
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests;
