//! Sockets and connections: their limits, their time-outs and their shutdown.

use std::{
    convert::Infallible,
    io,
    net::SocketAddr,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use rustls::pki_types::CertificateDer;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpSocket, TcpStream},
    sync::{Notify, watch},
    task::JoinSet,
};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use super::{Listener, Peer, Tls, timed::Timed};

/// Counts open connections and asks idle ones to close.
pub(super) struct Places {
    open: AtomicUsize,
    max: usize,
    /// Bytes, over all connections, that were read but do not yet form a request.
    kept: AtomicUsize,
    /// Notified when a new connection waits for a permit.
    pressed: Notify,
    /// When `pressed` was last notified, in milliseconds since `epoch`.
    said: AtomicU64,
    epoch: Instant,
}

/// The permit of an open connection; dropping it frees the permit.
struct ConnectionPermit(Listener);

/// The state of a connection.
pub(super) struct Activity {
    listener: Listener,
    /// Running requests.
    requests: AtomicUsize,
    /// When the last request ended or the connection began, in milliseconds since `epoch`.
    idle_since: AtomicU64,
    epoch: Instant,
    /// Bytes that were read but do not yet form a request.
    kept: AtomicUsize,
}

/// How a port identifies senders.
#[derive(Clone)]
enum Port {
    Forwarded,
    Tls(watch::Receiver<Option<Tls>>),
}

/// Connections that may wait to be accepted. A whole fleet may reconnect at once.
const BACKLOG: u32 = 4096;
/// File descriptors reserved for everything else.
const FILES_RESERVED: usize = 512;
/// At the connection limit, a connection that idles for this long is closed.
const IDLE_UNDER_PRESSURE: Duration = Duration::from_secs(2);
/// Pause after a failed accept, which mostly means that no file descriptor is free.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// Approximate limit of a request's head. A certificate with a long chain fits in many times.
const HEAD_MAX: usize = 65_536;
/// Limit of buffered bytes over all connections: thousands of heads of the size that gateways send.
const KEPT_MAX: usize = 32 << 20;
/// A connection with fewer buffered bytes is never closed for this reason.
const KEPT_FREE: usize = 8_192;

/// The answer to a connection beyond the limit.
const FULL: &[u8] =
    b"HTTP/1.1 503 Service Unavailable\r\nretry-after: 2\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";

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
    /// Serves senders behind a gateway, without TLS. Returns after `stop` completes and the running requests are
    /// answered.
    pub async fn serve_forwarded(&self, socket: TcpListener, stop: impl Future<Output = ()>) {
        self.serve(socket, Port::Forwarded, stop).await;
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
            () = self.serve(socket, Port::Tls(tls), stop) => {}
        }
    }

    async fn serve(&self, socket: TcpListener, port: Port, stop: impl Future<Output = ()>) {
        let stopping = CancellationToken::new();
        let mut connections = JoinSet::new();
        let mut stop = pin!(stop);
        loop {
            tokio::select! {
                () = &mut stop => break,
                accepted = socket.accept() => match accepted {
                    Ok((stream, peer)) => self.admit(&mut connections, stream, peer, &port, &stopping),
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

    /// Spawns a task for a connection, unless the limit is reached.
    fn admit(
        &self,
        connections: &mut JoinSet<()>,
        stream: TcpStream,
        peer: SocketAddr,
        port: &Port,
        stopping: &CancellationToken,
    ) {
        let Some(place) = ConnectionPermit::take(self) else {
            self.0.metrics.lost("no-place");
            if matches!(port, Port::Forwarded) {
                // The buffer of a new socket is empty. If this write fails all the same, the connection just ends.
                let _ = stream.try_write(FULL);
            }
            return;
        };
        // An answer is one small packet and should leave at once.
        let _ = stream.set_nodelay(true);
        let (port, stopping) = (port.clone(), stopping.clone());
        connections.spawn(async move { place.run(stream, peer, port, &stopping).await });
    }
}

// === impl ConnectionPermit ===

impl ConnectionPermit {
    fn take(listener: &Listener) -> Option<ConnectionPermit> {
        let places = &listener.0.connections;
        let open = places.open.fetch_add(1, Ordering::Relaxed);
        let place = ConnectionPermit(listener.clone());
        if open < places.max {
            return Some(place);
        }
        places.press();
        None
    }

    async fn run(self, stream: TcpStream, peer: SocketAddr, port: Port, stopping: &CancellationToken) {
        let shared = &*self.0.0;
        let _connection = shared.metrics.connected(port.name());
        // Allocate nothing until the peer sends its first byte.
        let mut first = [0];
        let speaks = tokio::select! {
            () = stopping.cancelled() => false,
            () = shared.connections.pressed_after(IDLE_UNDER_PRESSURE) => false,
            peeked = tokio::time::timeout(shared.limits.first_byte, stream.peek(&mut first)) => {
                matches!(peeked, Ok(Ok(1)))
            }
        };
        if !speaks {
            shared.metrics.lost("silent");
            return;
        }
        let activity = Arc::new(Activity::new(&self.0));
        let stream = Timed::new(stream, &activity, shared.limits.write);
        match port {
            Port::Forwarded => self.converse(stream, &activity, &Peer::Forwarded(peer.ip()), stopping).await,
            Port::Tls(tls) => {
                let Some(tls) = tls.borrow().clone() else { return shared.metrics.lost("no-certificate-yet") };
                let handshake = TlsAcceptor::from(tls.config).accept(stream);
                match tokio::time::timeout(shared.limits.handshake, handshake).await {
                    Ok(Ok(stream)) => {
                        let chain: Vec<CertificateDer<'static>> = stream
                            .get_ref()
                            .1
                            .peer_certificates()
                            .map(|chain| chain.iter().map(|der| der.clone().into_owned()).collect())
                            .unwrap_or_default();
                        self.converse(stream, &activity, &Peer::Direct(&chain), stopping).await;
                    }
                    Ok(Err(error)) => {
                        shared.metrics.lost(handshake_reason(&error));
                        tracing::debug!(%error, "TLS handshake failed");
                    }
                    Err(_) => shared.metrics.lost("handshake-too-slow"),
                }
            }
        }
    }

    /// Answers requests until the peer closes the connection or the listener stops.
    async fn converse<S>(&self, stream: S, activity: &Activity, peer: &Peer<'_>, stopping: &CancellationToken)
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let shared = &*self.0.0;
        let service = service_fn(async |request: http::Request<Incoming>| {
            activity.begin();
            let response = self.0.handle(peer, request).await;
            activity.end();
            Ok::<_, Infallible>(response)
        });
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(shared.limits.head)
            .max_buf_size(HEAD_MAX)
            .serve_connection(TokioIo::new(stream), service);
        let mut connection = pin!(connection);
        let mut ends = false;
        loop {
            tokio::select! {
                // A sender without an answer retries, however the connection ended.
                _ = connection.as_mut() => return,
                () = stopping.cancelled(), if !ends => {
                    ends = true;
                    connection.as_mut().graceful_shutdown();
                }
                () = shared.connections.pressed.notified(), if !ends => {
                    if activity.is_idle_for(IDLE_UNDER_PRESSURE) {
                        ends = true;
                        connection.as_mut().graceful_shutdown();
                    }
                }
            }
        }
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        self.0.0.connections.open.fetch_sub(1, Ordering::Relaxed);
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

// === impl Port ===

impl Port {
    fn name(&self) -> &'static str {
        match self {
            Port::Forwarded => "forwarded",
            Port::Tls(_) => "tls",
        }
    }
}

// === impl Places ===

impl Places {
    /// Allows `wished` connections, or fewer if the limit of open files is lower.
    pub(super) fn new(wished: usize) -> Places {
        let max = wished.min(raise_files().saturating_sub(FILES_RESERVED).max(1));
        Places {
            open: AtomicUsize::new(0),
            max,
            kept: AtomicUsize::new(0),
            pressed: Notify::new(),
            said: AtomicU64::new(0),
            epoch: Instant::now(),
        }
    }

    /// Asks idle connections to close. At most once a second, because this wakes every connection.
    fn press(&self) {
        let now = since(self.epoch) + 1000;
        let said = self.said.load(Ordering::Relaxed);
        if said + 1000 <= now && self.said.compare_exchange(said, now, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
            self.pressed.notify_waiters();
        }
    }

    /// Returns once a new connection waits for a permit, but not before `grace` has passed.
    async fn pressed_after(&self, grace: Duration) {
        tokio::time::sleep(grace).await;
        self.pressed.notified().await;
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

// === impl Activity ===

impl Activity {
    fn new(listener: &Listener) -> Activity {
        Activity {
            listener: listener.clone(),
            requests: AtomicUsize::new(0),
            idle_since: AtomicU64::new(0),
            epoch: Instant::now(),
            kept: AtomicUsize::new(0),
        }
    }

    fn begin(&self) {
        self.forget();
        self.requests.fetch_add(1, Ordering::Relaxed);
    }

    fn end(&self) {
        self.forget();
        self.requests.fetch_sub(1, Ordering::Relaxed);
        self.idle_since.store(since(self.epoch), Ordering::Relaxed);
    }

    /// Records bytes that were read. Returns false if the limit is exceeded.
    pub(super) fn keeps(&self, bytes: usize) -> bool {
        let own = self.kept.fetch_add(bytes, Ordering::Relaxed) + bytes;
        let all = self.listener.0.connections.kept.fetch_add(bytes, Ordering::Relaxed) + bytes;
        own <= KEPT_FREE || all <= KEPT_MAX
    }

    /// Resets the count, because the bytes now form a request.
    fn forget(&self) {
        let own = self.kept.swap(0, Ordering::Relaxed);
        self.listener.0.connections.kept.fetch_sub(own, Ordering::Relaxed);
    }

    fn is_idle_for(&self, duration: Duration) -> bool {
        let idle = since(self.epoch).saturating_sub(self.idle_since.load(Ordering::Relaxed));
        self.requests.load(Ordering::Relaxed) == 0 && duration <= Duration::from_millis(idle)
    }
}

impl Drop for Activity {
    fn drop(&mut self) {
        self.forget();
    }
}

fn since(epoch: Instant) -> u64 {
    u64::try_from(epoch.elapsed().as_millis()).unwrap_or(u64::MAX)
}
