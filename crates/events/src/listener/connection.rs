//! Sockets and connections: how many, how long, and how they end.

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

/// Connections that are open, and the wish that idle ones end.
pub(super) struct Places {
    open: AtomicUsize,
    max: usize,
    /// Bytes of all connections that were read and are no request yet.
    kept: AtomicUsize,
    /// Somebody waits for a place.
    pressed: Notify,
    /// When that was last said, in milliseconds since `epoch`.
    said: AtomicU64,
    epoch: Instant,
}

/// A place, until it is dropped.
struct Place(Listener);

/// What a connection does.
pub(super) struct Activity {
    listener: Listener,
    /// Requests under way.
    requests: AtomicUsize,
    /// When the last one ended, or the connection began, in milliseconds since `epoch`.
    idle_since: AtomicU64,
    epoch: Instant,
    /// Bytes that were read and are no request yet.
    kept: AtomicUsize,
}

/// How a port tells who sends.
#[derive(Clone)]
enum Port {
    Forwarded,
    Tls(watch::Receiver<Option<Tls>>),
}

/// Connections that may wait to be accepted: a fleet that returns at once.
const BACKLOG: u32 = 4096;
/// Files that are left for everything else.
const FILES_RESERVED: usize = 512;
/// Where there is no place left, who is idle for so long makes room.
const IDLE_UNDER_PRESSURE: Duration = Duration::from_secs(2);
/// Pause after a socket could not be accepted, mostly for want of files.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// Longest head of a request, more or less: a certificate with a long chain of names fits in many times.
const HEAD_MAX: usize = 65_536;
/// Bytes of heads that have not ended, of all connections together: thousands of heads as gateways send them.
const KEPT_MAX: usize = 32 << 20;
/// Whoever has fewer of them is not the one who goes.
const KEPT_FREE: usize = 8_192;

/// What is said to a connection for which there is no place.
const FULL: &[u8] =
    b"HTTP/1.1 503 Service Unavailable\r\nretry-after: 2\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";

/// Binds an address. Port 0 takes a free one.
pub fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    // A restart must not wait for the connections of the former process.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

impl Listener {
    /// Serves senders behind a gateway, without TLS, until `stop` is done and the requests under way are answered.
    pub async fn serve_forwarded(&self, socket: TcpListener, stop: impl Future<Output = ()>) {
        self.serve(socket, Port::Forwarded, stop).await;
    }

    /// Serves senders that come by themselves, over TLS. What `tls` holds counts for new connections at once; while it
    /// holds nothing, connections are closed.
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
                        tracing::debug!(%error, "a connection could not be accepted");
                        tokio::time::sleep(ACCEPT_PAUSE).await;
                    }
                },
                Some(_) = connections.join_next() => {}
            }
        }
        // Whoever connects from now on is refused by the system, and tries another replica.
        drop(socket);
        stopping.cancel();
        let all = async { while connections.join_next().await.is_some() {} };
        if tokio::time::timeout(self.0.limits.drain, all).await.is_err() {
            tracing::warn!(connections = connections.len(), "requests of runtimes are cut off");
            connections.shutdown().await;
        }
    }

    /// Gives a connection a task, if there is a place for it.
    fn admit(
        &self,
        connections: &mut JoinSet<()>,
        stream: TcpStream,
        peer: SocketAddr,
        port: &Port,
        stopping: &CancellationToken,
    ) {
        let Some(place) = Place::take(self) else {
            self.0.metrics.lost("no-place");
            if matches!(port, Port::Forwarded) {
                // The buffer of a new socket is empty; where even this fails, the connection just ends.
                let _ = stream.try_write(FULL);
            }
            return;
        };
        // An answer is one small piece and should leave at once.
        let _ = stream.set_nodelay(true);
        let (port, stopping) = (port.clone(), stopping.clone());
        connections.spawn(async move { place.run(stream, peer, port, &stopping).await });
    }
}

// === impl Place ===

impl Place {
    fn take(listener: &Listener) -> Option<Place> {
        let places = &listener.0.connections;
        let open = places.open.fetch_add(1, Ordering::Relaxed);
        let place = Place(listener.clone());
        if open < places.max {
            return Some(place);
        }
        places.press();
        None
    }

    async fn run(self, stream: TcpStream, peer: SocketAddr, port: Port, stopping: &CancellationToken) {
        let shared = &*self.0.0;
        let _connection = shared.metrics.connected(port.name());
        // Nothing is allocated for a connection that says nothing.
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
                        tracing::debug!(%error, "a handshake failed");
                    }
                    Err(_) => shared.metrics.lost("handshake-too-slow"),
                }
            }
        }
    }

    /// Answers request after request, until the other side or we have enough.
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
                // However it ended, whoever needs an answer did not get one and tries again.
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

impl Drop for Place {
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
    /// As many as are wished for, and as files allow.
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

    /// Asks idle connections to end; once a second, since each of them looks up.
    fn press(&self) {
        let now = since(self.epoch) + 1000;
        let said = self.said.load(Ordering::Relaxed);
        if said + 1000 <= now && self.said.compare_exchange(said, now, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
            self.pressed.notify_waiters();
        }
    }

    /// Returns once somebody waits for a place, and not before `grace` is over.
    async fn pressed_after(&self, grace: Duration) {
        tokio::time::sleep(grace).await;
        self.pressed.notified().await;
    }
}

/// Lets this process open as many files as it may, and says how many that are.
fn raise_files() -> usize {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let now = getrlimit(Resource::Nofile);
    // What cannot be raised stays as it is.
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

    /// Takes note of bytes that were read. False if there is no room for them.
    pub(super) fn keeps(&self, bytes: usize) -> bool {
        let own = self.kept.fetch_add(bytes, Ordering::Relaxed) + bytes;
        let all = self.listener.0.connections.kept.fetch_add(bytes, Ordering::Relaxed) + bytes;
        own <= KEPT_FREE || all <= KEPT_MAX
    }

    /// What was read has become a request.
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
