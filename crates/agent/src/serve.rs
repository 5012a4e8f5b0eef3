//! Incoming connections: accepts, limits and closes them.
//!
//! No client can lock others out by holding connections: beyond [`CONNECTIONS_MAX`], a new connection replaces the one
//! with the oldest answer. The server limits the size of a body, the time for it and the pauses in it. Beyond their
//! first part, all bodies that are being read share one memory budget.

use std::{
    collections::BTreeMap,
    convert::Infallible,
    io,
    sync::{Arc, MutexGuard},
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
use tidegate_process::lock::Mutex;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpStream},
    sync::{Semaphore, SemaphorePermit, watch},
    task::{AbortHandle, JoinSet},
    time::{self, timeout},
};
use tokio_rustls::TlsAcceptor;

use super::credentials::Generation;

/// Answers requests.
pub trait Handler: Send + Sync + 'static {
    /// Answers one request.
    fn answer(&self, request: Request<Incoming>) -> impl Future<Output = Response<Full<Bytes>>> + Send;

    /// Called when a connection was closed in favour of a new one.
    fn evicted(&self);

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

/// Limit of connections. API servers keep a few open, each for one request at a time.
pub const CONNECTIONS_MAX: usize = 512;
/// Limit of a body, in bytes: a review contains an object twice, and etcd accepts objects up to 1.5 MiB.
pub const BODY_BYTES_MAX: usize = 8 << 20;
/// Memory budget of all bodies that are being read, in bytes.
const BODIES_BYTES_MAX: usize = 32 << 20;
/// How much of each body does not count against the budget, in bytes. So a client that exhausts the budget delays only
/// large reviews.
const BODY_BYTES_FREE: usize = 64 << 10;
/// The budget is counted in blocks of this many bytes.
const BLOCK_BYTES: usize = 16 << 10;
/// Limit of a TLS handshake.
const HANDSHAKE_MAX: Duration = Duration::from_secs(5);
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

/// Open connections, ordered by their last answer.
#[derive(Debug, Default)]
struct Open(Mutex<OpenInner>);

#[derive(Debug, Default)]
struct OpenInner {
    clock: u64,
    /// The first is the next to be closed.
    by_use: BTreeMap<u64, (u64, AbortHandle)>,
    /// When each connection was last used.
    uses: BTreeMap<u64, u64>,
}

/// Serves until `stop` is true; then ends within seconds.
///
/// With `credentials` it serves TLS, and each new connection uses the newest generation.
pub async fn serve<H: Handler>(
    listener: TcpListener,
    credentials: Option<watch::Receiver<Arc<Generation>>>,
    handler: Arc<H>,
    mut stop: watch::Receiver<bool>,
) {
    let open = Arc::new(Open::default());
    let mut tasks = JoinSet::new();
    let mut number = 0;
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            Some(_) = tasks.join_next() => continue,
            _ = stop.wait_for(|stop| *stop) => break,
        };
        let Ok((stream, _)) = accepted else {
            time::sleep(ACCEPT_PAUSE).await;
            continue;
        };
        if CONNECTIONS_MAX <= open.len() && open.close_oldest() {
            handler.evicted();
        }
        number += 1;
        let generation = credentials.as_ref().map(|credentials| Arc::clone(&credentials.borrow()));
        let connection =
            Connection { number, open: Arc::clone(&open), handler: Arc::clone(&handler), stop: stop.clone() };
        open.add(number);
        let abort = tasks.spawn(connection.run(stream, generation));
        open.can_be_closed(number, abort);
    }
    // From now on the system refuses new connections instead of queueing them.
    drop(listener);
    let _ = timeout(FINISH_MAX, async { while tasks.join_next().await.is_some() {} }).await;
    tasks.shutdown().await;
}

/// An answer with an empty body.
pub fn status(status: StatusCode) -> Response<Full<Bytes>> {
    let text = status.canonical_reason().unwrap_or_default();
    let mut response = Response::new(Full::from(format!("{text}\n")));
    *response.status_mut() = status;
    response
}

struct Connection<H> {
    number: u64,
    open: Arc<Open>,
    handler: Arc<H>,
    stop: watch::Receiver<bool>,
}

// === impl Connection ===

impl<H: Handler> Connection<H> {
    async fn run(self, stream: TcpStream, generation: Option<Arc<Generation>>) {
        let _ = stream.set_nodelay(true);
        match generation {
            None => self.http(stream).await,
            Some(generation) => {
                let acceptor = TlsAcceptor::from(Arc::clone(&generation.server));
                // TLS itself reports the failure to the client.
                match timeout(HANDSHAKE_MAX, acceptor.accept(stream)).await {
                    Ok(Ok(stream)) => self.http(stream).await,
                    Ok(Err(error)) => {
                        if let Some(alert) = about_our_certificate(&error) {
                            self.handler.certificate_refused(alert);
                        }
                    }
                    Err(_elapsed) => {}
                }
            }
        }
    }

    async fn http<S: AsyncRead + AsyncWrite + Unpin + Send>(&self, stream: S) {
        let service = service_fn(|request| async {
            let response = self.handler.answer(request).await;
            self.open.used(self.number);
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

impl<H> Drop for Connection<H> {
    fn drop(&mut self) {
        self.open.remove(self.number);
    }
}

// === impl Open ===

impl Open {
    fn len(&self) -> usize {
        self.lock().uses.len()
    }

    fn add(&self, number: u64) {
        let mut inner = self.lock();
        inner.clock += 1;
        let clock = inner.clock;
        inner.uses.insert(number, clock);
    }

    fn can_be_closed(&self, number: u64, abort: AbortHandle) {
        let mut inner = self.lock();
        // The connection may have ended already.
        if let Some(&last) = inner.uses.get(&number) {
            inner.by_use.insert(last, (number, abort));
        }
    }

    fn used(&self, number: u64) {
        let mut inner = self.lock();
        inner.clock += 1;
        let clock = inner.clock;
        let OpenInner { by_use, uses, .. } = &mut *inner;
        // A connection that is being closed is in neither map.
        let Some(last) = uses.get_mut(&number) else { return };
        if let Some(entry) = by_use.remove(last) {
            by_use.insert(clock, entry);
        }
        *last = clock;
    }

    fn remove(&self, number: u64) {
        let mut inner = self.lock();
        if let Some(last) = inner.uses.remove(&number) {
            inner.by_use.remove(&last);
        }
    }

    /// Closes the connection with the oldest answer.
    fn close_oldest(&self) -> bool {
        let mut inner = self.lock();
        let Some((_, (number, abort))) = inner.by_use.pop_first() else { return false };
        inner.uses.remove(&number);
        abort.abort();
        true
    }

    fn lock(&self) -> MutexGuard<'_, OpenInner> {
        self.0.lock()
    }
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
