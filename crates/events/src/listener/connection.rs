//! Sockets and connections: their places, their time-outs and their shutdown.
//!
//! A connection begins with a place and a small buffer. Only when its ClientHello or its first head is complete does it
//! get the state of TLS and HTTP, for which there are [`Limits::unproven`] permits, half of them for one address. It
//! keeps its permit until its sender is known. [`tidegate_process::port_connections`] says which connection goes if
//! a place is needed.
//!
//! [`Limits::unproven`]: super::Limits::unproven

use std::{
    convert::Infallible,
    io,
    net::SocketAddr,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use rustls::pki_types::CertificateDer;
use tidegate_process::{
    lock::Mutex,
    memory::{self, Ebb},
    port::{Held, Opening, Port, Prefixed, Protocol, Room, StatePermit, first_message},
    port_connections,
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpSocket, TcpStream},
    sync::watch,
    task::JoinSet,
    time::MissedTickBehavior,
};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use super::{Limits, Listener, Peer, Tls, now, timed::Timed};

/// The connections of both ports, and what they share.
pub(super) struct Doors {
    forwarded: Port,
    tls: Port,
    /// Bytes, over all connections, that were read but do not yet form a request.
    kept: AtomicUsize,
    /// When a peer that is not trusted was last logged.
    stranger: Mutex<Option<Instant>>,
    /// Open connections.
    open: AtomicUsize,
    ebb: Mutex<Ebb>,
}

/// The state of a connection.
pub(crate) struct Activity {
    listener: Listener,
    held: Held,
    /// Running requests.
    requests: AtomicUsize,
    /// Bytes that were read but do not yet form a request.
    kept: AtomicUsize,
    /// Held until the sender is known.
    permit: Mutex<Option<StatePermit>>,
    is_proven: AtomicBool,
}

/// Counts an open connection.
struct Open<'a>(&'a AtomicUsize);

/// How a port identifies senders.
#[derive(Clone)]
enum Way {
    Forwarded,
    Tls(watch::Receiver<Option<Tls>>),
}

/// Connections that may wait to be accepted. A whole fleet may reconnect at once.
const BACKLOG: u32 = 4096;
/// File descriptors reserved for everything else: repositories, API servers, health and metrics.
const FILES_RESERVED: usize = 512;
/// A connection of an unknown sender goes for another one only after this time. A handshake across the world takes a
/// third of it.
const GRACE: Duration = Duration::from_secs(1);
/// Pause after a failed accept, which mostly means that no file descriptor is free.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// Approximate limit of a request's head. A certificate with a long chain fits in many times.
const HEAD_MAX: usize = 65_536;
/// Limit of buffered bytes over all connections: hundreds of heads with a long chain.
const KEPT_MAX: usize = 4 << 20;
/// A connection with fewer buffered bytes is never closed for this reason.
const KEPT_FREE: usize = 8_192;
/// How often to look whether memory can be given back.
const EBB_CHECK: Duration = Duration::from_secs(1);
/// A peer that is not trusted is logged at most this often.
const STRANGER_LOGGED: Duration = Duration::from_secs(60);

/// Binds an address. Port 0 binds a free port.
///
/// # Errors
///
/// Fails if the address is in use or the process may not bind it.
pub fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    // A restart must not wait for the connections of the previous process.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

impl Listener {
    /// Serves senders behind a gateway, without TLS. Closes connections of peers that are not trusted. Returns after
    /// `stop` completes and the running requests are answered.
    pub async fn serve_forwarded(&self, socket: TcpListener, stop: impl Future<Output = ()>) {
        self.serve(socket, Way::Forwarded, stop).await;
    }

    /// Serves senders that connect directly over TLS. New connections use the current value of `tls`; while it is
    /// `None`, connections are closed. Returns after `stop` completes and the running requests are answered.
    pub async fn serve_tls(
        &self,
        socket: TcpListener,
        tls: watch::Receiver<Option<Tls>>,
        stop: impl Future<Output = ()>,
    ) {
        let mut changes = tls.clone();
        let follow = async {
            loop {
                let authorities = changes.borrow_and_update().as_ref().map(|tls| tls.authorities.clone());
                self.0.direct.set_authorities(authorities);
                if changes.changed().await.is_err() {
                    return std::future::pending().await;
                }
            }
        };
        tokio::select! {
            () = follow => {}
            () = self.serve(socket, Way::Tls(tls), stop) => {}
        }
    }

    async fn serve(&self, socket: TcpListener, way: Way, stop: impl Future<Output = ()>) {
        let stopping = CancellationToken::new();
        let mut connections = JoinSet::new();
        let mut stop = pin!(stop);
        let mut checks = tokio::time::interval(EBB_CHECK);
        checks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                () = &mut stop => break,
                _ = checks.tick() => self.0.doors.give_back(),
                accepted = socket.accept() => match accepted {
                    Ok((stream, peer)) => self.admit(&mut connections, stream, peer, &way, &stopping),
                    Err(error) => {
                        self.0.metrics.lost("not-accepted");
                        tracing::debug!(%error, "cannot accept a connection");
                        tokio::time::sleep(ACCEPT_PAUSE).await;
                    }
                },
                Some(_) = connections.join_next() => {}
            }
        }
        // From now on the system refuses new connections, and senders try another replica.
        drop(socket);
        stopping.cancel();
        let all = async { while connections.join_next().await.is_some() {} };
        if tokio::time::timeout(self.0.limits.drain, all).await.is_err() {
            tracing::warn!(connections = connections.len(), "aborting requests of runtimes after the drain time-out");
            connections.shutdown().await;
        }
    }

    /// Spawns a task for a connection, unless its peer is not trusted.
    fn admit(
        &self,
        connections: &mut JoinSet<()>,
        stream: TcpStream,
        peer: SocketAddr,
        way: &Way,
        stopping: &CancellationToken,
    ) {
        let trusts = |xfcc: &crate::identity::Xfcc| xfcc.peers.contain(peer.ip());
        if matches!(way, Way::Forwarded) && !self.0.xfcc.as_ref().is_some_and(trusts) {
            self.0.metrics.lost("peer-not-trusted");
            if self.0.doors.may_log_stranger() {
                tracing::warn!(
                    peer = %peer.ip(),
                    "closing connections of a peer that is not trusted to forward certificates: if it is your gateway, \
                     trust its network"
                );
            }
            return;
        }
        // An answer is one small packet and should leave at once.
        let _ = stream.set_nodelay(true);
        let held = self.0.doors.port(way).admit(peer.ip());
        let (listener, way, stopping) = (self.clone(), way.clone(), stopping.clone());
        connections.spawn(async move { listener.run(stream, peer, held, way, &stopping).await });
    }

    async fn run(&self, stream: TcpStream, peer: SocketAddr, held: Held, way: Way, stopping: &CancellationToken) {
        let metrics = self.0.metrics.clone();
        let _connection = metrics.connected(way.name());
        let _open = Open::new(&self.0.doors.open);
        let opened = tokio::select! {
            () = stopping.cancelled() => return metrics.lost("silent"),
            () = held.evicted() => return metrics.lost("crowded"),
            opened = self.open(&stream, &held, &way) => opened,
        };
        let (message, permit) = match opened {
            Ok(opened) => opened,
            Err(reason) => return metrics.lost(reason),
        };
        let activity = Arc::new(Activity::new(self, held, permit));
        let stream = Timed::new(Prefixed::new(message, stream), &activity, self.0.limits.write);
        // On the heap, so that a connection which has not come this far is small.
        let speaks = Box::pin(self.speak(stream, &activity, peer, way, stopping));
        tokio::select! {
            () = activity.held.evicted() => metrics.lost(if activity.is_proven() { "idle" } else { "crowded" }),
            () = speaks => {}
        }
    }

    /// Reads the first message of a connection, and waits for a permit to read more.
    async fn open(&self, stream: &TcpStream, held: &Held, way: &Way) -> Result<(Vec<u8>, StatePermit), &'static str> {
        let limits = &self.0.limits;
        let (protocol, whole, slow) = match way {
            Way::Forwarded => (Protocol::Http, limits.head, "head-too-slow"),
            Way::Tls(_) => (Protocol::Tls, limits.handshake, "handshake-too-slow"),
        };
        match first_message(stream, protocol, limits.first_byte, whole).await {
            Opening::Message(message) => Ok((message, held.begin().await)),
            Opening::Silent | Opening::Closed => Err("silent"),
            Opening::Slow => Err(slow),
        }
    }

    async fn speak(
        &self,
        stream: Timed<Prefixed<TcpStream>>,
        activity: &Activity,
        peer: SocketAddr,
        way: Way,
        stopping: &CancellationToken,
    ) {
        let metrics = &self.0.metrics;
        let Way::Tls(tls) = way else {
            let peer = Peer::Forwarded { address: peer.ip(), connection: Some(activity) };
            return self.converse(stream, activity, &peer, stopping).await;
        };
        let Some(tls) = tls.borrow().clone() else { return metrics.lost("no-certificate-yet") };
        let handshake = Box::pin(TlsAcceptor::from(tls.config).accept(stream));
        match tokio::time::timeout(self.0.limits.handshake, handshake).await {
            Ok(Ok(stream)) => {
                let chain: Vec<CertificateDer<'static>> = stream
                    .get_ref()
                    .1
                    .peer_certificates()
                    .map(|chain| chain.iter().map(|der| der.clone().into_owned()).collect())
                    .unwrap_or_default();
                let identity = self.0.direct.by_chain(&chain, now());
                if !activity.prove(identity.as_ref().ok().map(|identity| identity.common_name())) {
                    return metrics.lost("no-place");
                }
                activity.held.rest();
                self.converse(stream, activity, &Peer::Direct(&chain), stopping).await;
            }
            Ok(Err(error)) => {
                metrics.lost(handshake_reason(&error));
                tracing::debug!(%error, "TLS handshake failed");
            }
            Err(_) => metrics.lost("handshake-too-slow"),
        }
    }

    /// Answers requests until the peer closes the connection or the listener stops.
    async fn converse<S>(&self, stream: S, activity: &Activity, peer: &Peer<'_>, stopping: &CancellationToken)
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let service = service_fn(async |request: http::Request<Incoming>| {
            activity.begin();
            let response = Box::pin(self.handle(peer, request)).await;
            activity.end();
            Ok::<_, Infallible>(response)
        });
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(self.0.limits.head)
            .max_buf_size(HEAD_MAX)
            .serve_connection(TokioIo::new(stream), service);
        let mut connection = pin!(connection);
        tokio::select! {
            // A sender without an answer retries, however the connection ended.
            _ = connection.as_mut() => return,
            () = stopping.cancelled() => connection.as_mut().graceful_shutdown(),
        }
        let _ = connection.await;
    }
}

/// Why a handshake failed, in one word.
fn handshake_reason(error: &io::Error) -> &'static str {
    use rustls::{CertificateError, Error};
    match error.get_ref().and_then(|error| error.downcast_ref::<Error>()) {
        Some(Error::NoCertificatesPresented) => "certificate-missing",
        Some(Error::InvalidCertificate(CertificateError::Expired | CertificateError::ExpiredContext { .. })) => {
            "certificate-expired"
        }
        Some(Error::InvalidCertificate(_)) => "certificate-foreign",
        _ => "handshake-failed",
    }
}

// === impl Way ===

impl Way {
    fn name(&self) -> &'static str {
        match self {
            Way::Forwarded => "forwarded",
            Way::Tls(_) => "tls",
        }
    }
}

// === impl Doors ===

impl Doors {
    /// Two ports with these places each, or with fewer if the limit of open files is lower.
    pub(super) fn new(limits: &Limits) -> Doors {
        let limits = fitting(limits, raise_files().saturating_sub(FILES_RESERVED));
        let port = || {
            let places = port_connections::Limits {
                opening: limits.opening,
                proven: limits.connections,
                sender: limits.sender_connections,
            };
            Port::new(places, limits.unproven, Room::FromUnproven { grace: GRACE, share: (limits.unproven / 2).max(1) })
        };
        Doors {
            forwarded: port(),
            tls: port(),
            kept: AtomicUsize::new(0),
            stranger: Mutex::default(),
            open: AtomicUsize::new(0),
            ebb: Mutex::default(),
        }
    }

    fn port(&self, way: &Way) -> &Port {
        match way {
            Way::Forwarded => &self.forwarded,
            Way::Tls(_) => &self.tls,
        }
    }

    /// Gives memory back after many connections have ended.
    fn give_back(&self) {
        if self.ebb.lock().falls_to(self.open.load(Ordering::Relaxed)) {
            drop(tokio::task::spawn_blocking(memory::give_back));
        }
    }

    fn may_log_stranger(&self) -> bool {
        let mut last = self.stranger.lock();
        let may = last.is_none_or(|last| STRANGER_LOGGED <= last.elapsed());
        if may {
            *last = Some(Instant::now());
        }
        may
    }
}

/// Limits under which the connections of both ports need no more files than these.
pub(super) fn fitting(limits: &Limits, files: usize) -> Limits {
    let wished = 2 * (limits.opening + limits.unproven + limits.connections);
    let scaled = |places: usize| if wished <= files { places } else { (places * files / wished).max(1) };
    Limits {
        opening: scaled(limits.opening),
        unproven: scaled(limits.unproven),
        connections: scaled(limits.connections),
        ..*limits
    }
}

/// Raises the limit of open files to its maximum and returns it.
fn raise_files() -> usize {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let now = getrlimit(Resource::Nofile);
    // On failure the current limit stays.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: now.maximum, maximum: now.maximum });
    let files = getrlimit(Resource::Nofile).current;
    files.map_or(usize::MAX, |files| usize::try_from(files).unwrap_or(usize::MAX))
}

// === impl Open ===

impl<'a> Open<'a> {
    fn new(count: &'a AtomicUsize) -> Open<'a> {
        count.fetch_add(1, Ordering::Relaxed);
        Open(count)
    }
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

// === impl Activity ===

impl Activity {
    fn new(listener: &Listener, held: Held, permit: StatePermit) -> Activity {
        Activity {
            listener: listener.clone(),
            held,
            requests: AtomicUsize::new(0),
            kept: AtomicUsize::new(0),
            permit: Mutex::new(Some(permit)),
            is_proven: AtomicBool::new(false),
        }
    }

    /// Records that the sender is known. Returns false if there is no place for it.
    pub(super) fn prove(&self, sender: Option<&str>) -> bool {
        if self.is_proven() {
            return true;
        }
        let has_place = self.held.prove(sender);
        if has_place {
            self.is_proven.store(true, Ordering::Relaxed);
            drop(self.permit.lock().take());
        }
        has_place
    }

    fn is_proven(&self) -> bool {
        self.is_proven.load(Ordering::Relaxed)
    }

    fn begin(&self) {
        self.forget();
        if self.requests.fetch_add(1, Ordering::Relaxed) == 0 {
            self.held.work();
        }
    }

    fn end(&self) {
        self.forget();
        if self.requests.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.held.rest();
        }
    }

    /// Records bytes that were read. Returns false if the limit is exceeded.
    pub(super) fn keeps(&self, bytes: usize) -> bool {
        let own = self.kept.fetch_add(bytes, Ordering::Relaxed) + bytes;
        let all = self.listener.0.doors.kept.fetch_add(bytes, Ordering::Relaxed) + bytes;
        own <= KEPT_FREE || all <= KEPT_MAX
    }

    /// Resets the count, because the bytes now form a request.
    fn forget(&self) {
        let own = self.kept.swap(0, Ordering::Relaxed);
        self.listener.0.doors.kept.fetch_sub(own, Ordering::Relaxed);
    }
}

impl Drop for Activity {
    fn drop(&mut self) {
        self.forget();
    }
}
