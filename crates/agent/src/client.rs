//! One connection to the control plane, which is kept open.
//!
//! The client speaks HTTP/1.1 over TLS like the Runtime Watcher: no ALPN, no proxy from the environment, `Host` with
//! its port, a content length and no chunks. It replaces a connection that uses old credentials, and one that has been
//! idle for so long that a load balancer may have dropped it. If a connection turns out to be dead, the client repeats
//! the request at once on a new one. So an event may arrive twice.

use std::{io, net::SocketAddr, sync::Arc, time::Duration};

use bytes::Bytes;
use http::{Method, Request, StatusCode, header};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use tokio::{
    net::{TcpStream, lookup_host},
    sync::watch,
    task::JoinHandle,
    time::{Instant, timeout, timeout_at},
};
use tokio_rustls::{TlsConnector, client::TlsStream};

use super::{credentials::Generation, settings::ControlPlane};
use tidegate_process::{ambient, retry};

/// The `User-Agent` of the agent. The listener knows by it that the agent waits until a change is persisted.
pub const USER_AGENT: &str = concat!("tidegate-agent/", env!("CARGO_PKG_VERSION"));

/// A client of one control plane.
#[derive(Debug)]
pub struct Client {
    address: ControlPlane,
    credentials: watch::Receiver<Arc<Generation>>,
    connection: Option<Connection>,
    /// Connections opened so far.
    connections: u64,
}

/// The answer to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The HTTP status.
    pub status: StatusCode,
    /// How long the server asks us to wait.
    pub retry_after: Option<Duration>,
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The host name cannot be resolved.
    #[error("cannot resolve {host}")]
    Resolve {
        /// The host name.
        host: String,
        /// The cause, if the resolver gave one.
        source: Option<io::Error>,
    },
    /// No address accepts the connection.
    #[error("cannot connect to {authority}")]
    Connect {
        /// Host and port.
        authority: String,
        /// The error of the last address.
        source: io::Error,
    },
    /// The TLS handshake failed.
    #[error("TLS with {authority} failed")]
    Tls {
        /// Host and port.
        authority: String,
        /// The cause.
        source: io::Error,
    },
    /// The connection ended during the request.
    #[error("the connection to {authority} ended during the request")]
    Exchange {
        /// Host and port.
        authority: String,
        /// The cause.
        source: hyper::Error,
    },
    /// The request took too long.
    #[error("{authority} took longer than {} s to {what}", limit.as_secs())]
    Slow {
        /// Host and port.
        authority: String,
        /// The limit.
        limit: Duration,
        /// The step that took too long.
        what: &'static str,
    },
}

#[derive(Debug)]
struct Connection {
    requests: SendRequest<Full<Bytes>>,
    driver: JoinHandle<()>,
    generation: u64,
    used: Instant,
}

/// Limit for opening a connection, including TLS.
const CONNECT_MAX: Duration = Duration::from_secs(5);
/// Least time for one of several addresses: it is limited, so that one that drops packets does not use up all the time.
const ADDRESS_MIN: Duration = Duration::from_secs(1);
/// Limit for an answer on a reused connection, which may be dead without notice.
const REUSED_MAX: Duration = Duration::from_secs(5);
/// Limit for a whole attempt.
const ATTEMPT_MAX: Duration = Duration::from_secs(15);
/// Limit for reusing an idle connection. It is longer than the interval of probes and shorter than what load balancers
/// keep.
const IDLE_MAX: Duration = Duration::from_secs(180);
/// Limit, in bytes, of an answer that is read so that its connection can be reused.
const ANSWER_BYTES_MAX: usize = 64 << 10;
/// The step after the connection was opened.
const ANSWER: &str = "answer";
/// How many addresses of a name are tried.
const ADDRESSES_MAX: usize = 4;

// === impl Error ===

impl Error {
    /// Whether the server opened the connection but did not answer. Then the request may be the cause.
    pub fn is_unanswered(&self) -> bool {
        matches!(self, Error::Exchange { .. } | Error::Slow { what: ANSWER, .. })
    }
}

// === impl Client ===

impl Client {
    /// Creates a client without a connection.
    pub fn new(address: ControlPlane, credentials: watch::Receiver<Arc<Generation>>) -> Client {
        Client { address, credentials, connection: None, connections: 0 }
    }

    /// Connections opened so far.
    pub fn connections(&self) -> u64 {
        self.connections
    }

    /// Sends an event.
    ///
    /// # Errors
    ///
    /// Fails if the control plane cannot be reached or does not answer in time. Any HTTP status is an answer.
    pub async fn post(&mut self, path: &str, body: String) -> Result<Answer, Error> {
        self.ask(&Method::POST, path, Bytes::from(body)).await
    }

    /// Probes the event path with GET. Status 405 proves that the whole connection works, because the listener accepts
    /// only POST.
    ///
    /// # Errors
    ///
    /// Fails if the control plane cannot be reached or does not answer in time. Any HTTP status is an answer.
    pub async fn probe(&mut self, path: &str) -> Result<Answer, Error> {
        self.ask(&Method::GET, path, Bytes::new()).await
    }

    async fn ask(&mut self, method: &Method, path: &str, body: Bytes) -> Result<Answer, Error> {
        let deadline = Instant::now() + ATTEMPT_MAX;
        if let Some(connection) = self.usable() {
            let request = self.request(method, path, body.clone());
            if let Ok(Ok((answer, connection))) = timeout(REUSED_MAX, exchange(connection, request)).await {
                self.connection = connection;
                return Ok(answer);
            }
        }
        let slow = || Error::Slow { authority: self.address.authority.clone(), limit: ATTEMPT_MAX, what: ANSWER };
        let connection = self.connect().await?;
        let request = self.request(method, path, body);
        let (answer, connection) = timeout_at(deadline, exchange(connection, request))
            .await
            .map_err(|_elapsed| slow())?
            .map_err(|source| Error::Exchange { authority: self.address.authority.clone(), source })?;
        self.connection = connection;
        self.connections += 1;
        Ok(answer)
    }

    /// The open connection, if it can be reused.
    fn usable(&mut self) -> Option<Connection> {
        let generation = self.credentials.borrow().number;
        self.connection.take().filter(|connection| {
            connection.generation == generation
                && !connection.requests.is_closed()
                && connection.used.elapsed() < IDLE_MAX
        })
    }

    /// Builds a request with the headers in the order and spelling of Go's client.
    fn request(&self, method: &Method, path: &str, body: Bytes) -> Request<Full<Bytes>> {
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::HOST, &self.address.authority)
            .header(header::USER_AGENT, USER_AGENT);
        if method == Method::POST {
            request =
                request.header(header::CONTENT_LENGTH, body.len()).header(header::CONTENT_TYPE, "application/json");
        }
        let request = request.header(header::ACCEPT_ENCODING, "gzip");
        request.body(Full::new(body)).expect("path and authority were checked when they were parsed")
    }

    async fn connect(&self) -> Result<Connection, Error> {
        let slow = |_elapsed| Error::Slow {
            authority: self.address.authority.clone(),
            limit: CONNECT_MAX,
            what: "accept a connection",
        };
        timeout(CONNECT_MAX, async {
            let generation = Arc::clone(&self.credentials.borrow());
            let stream = self.secured(&generation, self.tcp().await?).await?;
            let broken = |source| Error::Exchange { authority: self.address.authority.clone(), source };
            let (requests, connection) = http1::Builder::new()
                .title_case_headers(true)
                .max_buf_size(ANSWER_BYTES_MAX)
                .handshake(TokioIo::new(stream))
                .await
                .map_err(broken)?;
            // The request in flight reports the error; without a request the error does not matter.
            let driver = tokio::spawn(async move { drop(connection.await) });
            Ok(Connection { requests, driver, generation: generation.number, used: Instant::now() })
        })
        .await
        .map_err(slow)?
    }

    async fn secured(&self, generation: &Generation, stream: TcpStream) -> Result<TlsStream<TcpStream>, Error> {
        let connector = TlsConnector::from(Arc::clone(&generation.client));
        let failed = |source| Error::Tls { authority: self.address.authority.clone(), source };
        connector.connect(self.address.server_name.clone(), stream).await.map_err(failed)
    }

    async fn tcp(&self) -> Result<TcpStream, Error> {
        let unresolved = |source| Error::Resolve { host: self.address.host.clone(), source };
        let found = lookup_host((self.address.host.as_str(), self.address.port)).await;
        let addresses: Vec<SocketAddr> = found.map_err(|error| unresolved(Some(error)))?.take(ADDRESSES_MAX).collect();
        let mut last = None;
        for (index, address) in addresses.iter().enumerate() {
            let left = u32::try_from(addresses.len() - index).unwrap_or(u32::MAX);
            let share = if left == 1 { CONNECT_MAX } else { (CONNECT_MAX / (left + 1)).max(ADDRESS_MIN) };
            match timeout(share, TcpStream::connect(address)).await {
                Ok(Ok(stream)) => {
                    // Without this, the kernel may delay the short request.
                    let _ = stream.set_nodelay(true);
                    return Ok(stream);
                }
                Ok(Err(error)) => last = Some(error),
                Err(_elapsed) => last = Some(io::ErrorKind::TimedOut.into()),
            }
        }
        let source = last.ok_or_else(|| unresolved(None))?;
        Err(Error::Connect { authority: self.address.authority.clone(), source })
    }
}

/// Sends one request and reads its answer. Also returns the connection if it can be reused.
async fn exchange(
    mut connection: Connection,
    request: Request<Full<Bytes>>,
) -> Result<(Answer, Option<Connection>), hyper::Error> {
    connection.requests.ready().await?;
    let response = connection.requests.send_request(request).await?;
    let retry_after = response.headers().get(header::RETRY_AFTER).and_then(|value| value.to_str().ok());
    // How long is honoured, `pending` decides.
    let retry_after = retry_after.and_then(|value| retry::asked(value, ambient::now().into(), Duration::MAX));
    let answer = Answer { status: response.status(), retry_after };
    // The body of the answer is not used, but it must be read before the connection can be reused.
    let read = Limited::new(response.into_body(), ANSWER_BYTES_MAX).collect().await;
    connection.used = Instant::now();
    Ok((answer, read.is_ok().then_some(connection)))
}

// === impl Connection ===

impl Drop for Connection {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

#[cfg(test)]
mod tests;
