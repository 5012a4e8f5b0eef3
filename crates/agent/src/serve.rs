//! Incoming connections: accepts, limits and closes them.
//!
//! A new connection costs a socket until its ClientHello or its first head is complete. At most [`OPENING_MAX`] wait
//! for that, and then the oldest of them goes. At most [`CONNECTIONS_MAX`] have got further, and then the one goes that
//! has been idle longest. A connection with a handshake or a request under way never goes: if all of them have one, new
//! ones wait in the system's queue. The server limits the size of a body, the time for it and the pauses in it. Beyond
//! their first part, all bodies that are being read share one memory budget.

use std::{
    convert::Infallible,
    io,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use bytes::{Bytes, BytesMut};
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::{
    body::{Body as _, Incoming},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::{TokioIo, TokioTimer};
use rustls::AlertDescription;
use tidegate_process::{
    memory::{self, Ebb},
    port::{Held, Opening, Port, Prefixed, Protocol, Room, StatePermit, first_message},
    port_connections::Limits,
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpStream},
    sync::{Notify, Semaphore, SemaphorePermit, watch},
    task::JoinSet,
    time::{self, timeout},
};

use super::{credentials::Generation, handshake::Handshakes};

/// Answers requests.
pub trait Handler: Send + Sync + 'static {
    /// Answers one request.
    fn answer(&self, request: Request<Incoming>) -> impl Future<Output = Response<Full<Bytes>>> + Send;

    /// Called when a connection was closed in favour of a new one. If it was idle, a request may have been on its way.
    fn evicted(&self, was_idle: bool);

    /// Called when a client rejected our certificate, with its TLS alert.
    fn certificate_refused(&self, alert: AlertDescription);
}

/// The memory budget of all bodies that are being read.
#[derive(Debug)]
pub struct Budget(Semaphore);

/// A body and its share of the budget.
#[derive(Debug)]
pub struct Body<'a> {
    /// The bytes.
    pub bytes: Bytes,
    _permits: Vec<SemaphorePermit<'a>>,
}

/// Limit of connections with a complete first message. An API server sends at most 600 requests at once, each over a
/// connection of its own.
pub const CONNECTIONS_MAX: usize = 1024;
/// Limit of connections with an incomplete first message. An API server sends it at once.
pub const OPENING_MAX: usize = 256;
/// Limit of a body, in bytes: a review contains an object twice, and etcd accepts objects up to 1.5 MiB.
pub const BODY_BYTES_MAX: usize = 8 << 20;
/// Memory budget of all bodies that are being read, in bytes.
const BODIES_BYTES_MAX: usize = 32 << 20;
/// How much of each body does not count against the budget, in bytes. So a client that exhausts the budget delays only
/// large reviews.
const BODY_BYTES_FREE: usize = 64 << 10;
/// The budget is counted in blocks of this many bytes.
const BLOCK_BYTES: usize = 16 << 10;
/// Limit until the first message of a TLS connection is complete, and until it begins.
const HELLO_MAX: Duration = Duration::from_secs(5);
/// Limit for reading a body.
const BODY_MAX: Duration = Duration::from_secs(10);
/// Limit of a pause in a body. API servers have the whole body before they send.
const BODY_PAUSE_MAX: Duration = Duration::from_secs(2);
/// Limit until the head of a request is complete, including the idle time before it. Clients of API servers close idle
/// connections after 90 s. We must not close first, because a request may be on its way.
const IDLE_MAX: Duration = Duration::from_secs(180);
/// Limit of a request's head, and of what is read ahead of a body, in bytes.
const BUFFER_BYTES_MAX: usize = 64 << 10;
/// Pause after a failed accept, which mostly means that no file descriptor is free.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// How long to wait for running requests after the last accept.
const FINISH_MAX: Duration = Duration::from_secs(3);

/// Connections with a complete first message that have to wait.
#[derive(Debug, Default)]
struct Line {
    length: AtomicUsize,
    moved: Notify,
}

/// What all connections of a port share.
struct Server<H> {
    handler: Arc<H>,
    port: Port,
    line: Line,
    /// With these, the port speaks TLS.
    secured: Option<(watch::Receiver<Arc<Generation>>, Handshakes)>,
    stop: watch::Receiver<bool>,
}

/// Serves until `stop` is true; then ends within seconds.
///
/// With `secured` it serves TLS, and each new connection uses the newest generation.
pub async fn serve<H: Handler>(
    listener: TcpListener,
    secured: Option<(watch::Receiver<Arc<Generation>>, Handshakes)>,
    handler: Arc<H>,
    mut stop: watch::Receiver<bool>,
) {
    raise_files();
    let limits = Limits { opening: OPENING_MAX, proven: CONNECTIONS_MAX, sender: CONNECTIONS_MAX };
    let port = Port::new(limits, CONNECTIONS_MAX, Room::FromIdle);
    let server = Arc::new(Server { handler, port, line: Line::default(), secured, stop: stop.clone() });
    let (mut tasks, mut ebb) = (JoinSet::new(), Ebb::default());
    loop {
        if ebb.falls_to(tasks.len()) {
            drop(tokio::task::spawn_blocking(memory::give_back));
        }
        let accepted = async {
            server.line.is_empty().await;
            listener.accept().await
        };
        let accepted = tokio::select! {
            accepted = accepted => accepted,
            Some(_) = tasks.join_next() => continue,
            _ = stop.wait_for(|stop| *stop) => break,
        };
        let Ok((stream, peer)) = accepted else {
            time::sleep(ACCEPT_PAUSE).await;
            continue;
        };
        let _ = stream.set_nodelay(true);
        let held = server.port.admit(peer.ip());
        let server = Arc::clone(&server);
        tasks.spawn(async move { server.run(stream, held).await });
    }
    // From now on the system refuses new connections instead of queueing them.
    drop(listener);
    let _ = timeout(FINISH_MAX, async { while tasks.join_next().await.is_some() {} }).await;
    tasks.shutdown().await;
}

/// Raises the limit of open files to its maximum. Some systems start programs with a limit of 1,024.
fn raise_files() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let now = getrlimit(Resource::Nofile);
    // On failure the current limit stays, and connections beyond it wait in the system's queue.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: now.maximum, maximum: now.maximum });
}

/// An answer with an empty body.
pub fn status(status: StatusCode) -> Response<Full<Bytes>> {
    let text = status.canonical_reason().unwrap_or_default();
    let mut response = Response::new(Full::from(format!("{text}\n")));
    *response.status_mut() = status;
    response
}

// === impl Line ===

impl Line {
    /// Waits in line for a permit.
    async fn pass(&self, held: &Held) -> StatePermit {
        struct InLine<'a>(&'a Line);
        impl Drop for InLine<'_> {
            fn drop(&mut self) {
                if self.0.length.fetch_sub(1, Ordering::Relaxed) == 1 {
                    self.0.moved.notify_one();
                }
            }
        }
        self.length.fetch_add(1, Ordering::Relaxed);
        let _in_line = InLine(self);
        held.begin().await
    }

    /// Waits until no connection is in line.
    async fn is_empty(&self) {
        while 0 < self.length.load(Ordering::Relaxed) {
            self.moved.notified().await;
        }
    }
}

// === impl Server ===

impl<H: Handler> Server<H> {
    async fn run(&self, stream: TcpStream, held: Held) {
        let mut stop = self.stop.clone();
        let opened = tokio::select! {
            opened = self.open(&stream, &held) => opened,
            () = held.evicted() => return self.handler.evicted(false),
            // A request may be on its way: only what has sent nothing ends here.
            _ = stop.wait_for(|stop| *stop) => return,
        };
        let Some((message, _permit)) = opened else { return };
        // On the heap, so that a connection which has not come this far is small.
        let speaks = Box::pin(self.speak(Prefixed::new(message, stream), &held));
        tokio::select! {
            () = held.evicted() => self.handler.evicted(true),
            () = speaks => {}
        }
    }

    async fn open(&self, stream: &TcpStream, held: &Held) -> Option<(Vec<u8>, StatePermit)> {
        let (protocol, within) =
            if self.secured.is_some() { (Protocol::Tls, HELLO_MAX) } else { (Protocol::Http, IDLE_MAX) };
        match first_message(stream, protocol, within, within).await {
            Opening::Message(message) => Some((message, self.line.pass(held).await)),
            Opening::Silent | Opening::Slow | Opening::Closed => None,
        }
    }

    async fn speak(&self, stream: Prefixed<TcpStream>, held: &Held) {
        let Some((credentials, handshakes)) = &self.secured else { return self.http(stream, held).await };
        let config = Arc::clone(&credentials.borrow().server);
        // TLS itself reports a failure to the client.
        match handshakes.accept(config, stream).await {
            Ok(stream) => self.http(stream, held).await,
            Err(error) => {
                if let Some(alert) = about_our_certificate(&error) {
                    self.handler.certificate_refused(alert);
                }
            }
        }
    }

    async fn http<S: AsyncRead + AsyncWrite + Unpin + Send>(&self, stream: S, held: &Held) {
        // There are as many places as permits.
        held.prove(None);
        held.rest();
        let service = service_fn(|request| async {
            held.work();
            let response = self.handler.answer(request).await;
            held.rest();
            Ok::<_, Infallible>(response)
        });
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(IDLE_MAX)
            .max_buf_size(BUFFER_BYTES_MAX)
            .serve_connection(TokioIo::new(stream), service);
        tokio::pin!(connection);
        let mut stop = self.stop.clone();
        // The result does not matter: the client sees how its connection ends.
        tokio::select! {
            _ = connection.as_mut() => return,
            _ = stop.wait_for(|stop| *stop) => {}
        }
        connection.as_mut().graceful_shutdown();
        let _ = connection.await;
    }
}

/// The client's TLS alert, if a handshake failed because the client rejected our certificate.
fn about_our_certificate(error: &io::Error) -> Option<AlertDescription> {
    let alert = match error.get_ref()?.downcast_ref::<rustls::Error>()? {
        rustls::Error::AlertReceived(alert) => *alert,
        _ => return None,
    };
    let is_about_it = matches!(
        alert,
        AlertDescription::BadCertificate
            | AlertDescription::UnsupportedCertificate
            | AlertDescription::CertificateRevoked
            | AlertDescription::CertificateExpired
            | AlertDescription::CertificateUnknown
            | AlertDescription::UnknownCA
            // A CA of the same name with another key: the signature does not match.
            | AlertDescription::DecryptError
    );
    is_about_it.then_some(alert)
}

// === impl Budget ===

impl Default for Budget {
    fn default() -> Budget {
        Budget(Semaphore::new(BODIES_BYTES_MAX / BLOCK_BYTES))
    }
}

impl Budget {
    /// Reads a body.
    ///
    /// # Errors
    ///
    /// Fails with 413 if the body is too large, with 408 if it is too slow, and with 503 if the budget is exhausted.
    pub async fn read(&self, mut body: Incoming) -> Result<Body<'_>, StatusCode> {
        let hint = body.size_hint();
        if usize::try_from(hint.lower()).is_ok_and(|length| BODY_BYTES_MAX < length) {
            return Err(StatusCode::PAYLOAD_TOO_LARGE);
        }
        let deadline = time::Instant::now() + BODY_MAX;
        let (mut bytes, mut permits) = (BytesMut::new(), Vec::new());
        loop {
            let pause = deadline.min(time::Instant::now() + BODY_PAUSE_MAX);
            let frame = match time::timeout_at(pause, body.frame()).await {
                Err(_elapsed) => return Err(StatusCode::REQUEST_TIMEOUT),
                Ok(None) => return Ok(Body { bytes: bytes.freeze(), _permits: permits }),
                Ok(Some(Err(_))) => return Err(StatusCode::BAD_REQUEST),
                Ok(Some(Ok(frame))) => frame,
            };
            let Ok(data) = frame.into_data() else { continue };
            let length = bytes.len() + data.len();
            if BODY_BYTES_MAX < length {
                return Err(StatusCode::PAYLOAD_TOO_LARGE);
            }
            // Only received bytes count: a `Content-Length` alone reserves nothing.
            while permits.len() * BLOCK_BYTES + BODY_BYTES_FREE < length {
                match time::timeout_at(deadline, self.0.acquire()).await {
                    Ok(Ok(permit)) => permits.push(permit),
                    Ok(Err(_)) | Err(_) => return Err(StatusCode::SERVICE_UNAVAILABLE),
                }
            }
            bytes.extend_from_slice(&data);
        }
    }
}

#[cfg(test)]
mod tests;
