//! One connection to the control plane, kept open.
//!
//! HTTP/1.1 over TLS, as the Runtime Watcher speaks it: no ALPN, no proxy from the environment, `Host` with its port, a
//! length and no chunks. A connection that was made with former credentials is replaced, and so is one that has been idle
//! for so long that a load balancer may have forgotten it. A request on a connection that turns out to be dead is made
//! again at once on a new one: an event may arrive twice.

use std::{
    io,
    net::SocketAddr,
    sync::Arc,
    time::{Duration, SystemTime},
};

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

/// What the agent calls itself: the listener knows by this name that an event comes after its settling.
pub const USER_AGENT: &str = concat!("tidegate-agent/", env!("CARGO_PKG_VERSION"));

/// A client of one control plane.
#[derive(Debug)]
pub struct Client {
    address: ControlPlane,
    credentials: watch::Receiver<Arc<Generation>>,
    connection: Option<Connection>,
    /// Connections made so far.
    connections: u64,
}

/// What was answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The status.
    pub status: StatusCode,
    /// How long the other side asks us to wait.
    pub retry_after: Option<Duration>,
}

/// Why nothing was answered.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The name has no address.
    #[error("cannot resolve {host}")]
    Resolve {
        /// The name.
        host: String,
        /// Why, if anybody said.
        source: Option<io::Error>,
    },
    /// Nobody accepts the connection.
    #[error("cannot connect to {authority}")]
    Connect {
        /// Where.
        authority: String,
        /// Why, for the last of its addresses.
        source: io::Error,
    },
    /// The two do not trust each other, or do not speak TLS.
    #[error("TLS with {authority} failed")]
    Tls {
        /// Who.
        authority: String,
        /// Why.
        source: io::Error,
    },
    /// The exchange broke off.
    #[error("the exchange with {authority} broke off")]
    Exchange {
        /// Who.
        authority: String,
        /// Why.
        source: hyper::Error,
    },
    /// It took too long.
    #[error("{authority} took longer than {} s to {what}", limit.as_secs())]
    Slow {
        /// Who.
        authority: String,
        /// The limit.
        limit: Duration,
        /// What it should have done.
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

/// Longest time for connecting, TLS included.
const CONNECT_MAX: Duration = Duration::from_secs(5);
/// Longest time for one of several addresses, so that one that swallows packets does not use up all.
const ADDRESS_MIN: Duration = Duration::from_secs(1);
/// Longest time for an answer on a connection that was open already: it may be dead without anybody having said so.
const REUSED_MAX: Duration = Duration::from_secs(5);
/// Longest time for a whole attempt.
const ATTEMPT_MAX: Duration = Duration::from_secs(15);
/// A connection that has been idle for longer is replaced: more than the pause between two probes, less than load
/// balancers remember.
const IDLE_MAX: Duration = Duration::from_secs(180);
/// The longest answer that is read so that its connection can be used again, in bytes.
const ANSWER_BYTES_MAX: usize = 64 << 10;
/// What whoever took the connection should do.
const ANSWER: &str = "answer";
/// Addresses of a name that are tried.
const ADDRESSES_MAX: usize = 4;

// === impl Error ===

impl Error {
    /// Whether it was about the request: somebody took the connection, and did not answer.
    pub fn is_unanswered(&self) -> bool {
        matches!(self, Error::Exchange { .. } | Error::Slow { what: ANSWER, .. })
    }
}

// === impl Client ===

impl Client {
    /// A client without a connection yet.
    pub fn new(address: ControlPlane, credentials: watch::Receiver<Arc<Generation>>) -> Client {
        Client { address, credentials, connection: None, connections: 0 }
    }

    /// Connections made so far.
    pub fn connections(&self) -> u64 {
        self.connections
    }

    /// Sends an event.
    pub async fn post(&mut self, path: &str, body: String) -> Result<Answer, Error> {
        self.ask(&Method::POST, path, Bytes::from(body)).await
    }

    /// Asks for a path where only events are taken, which the other end says with 405: the whole way is there.
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

    /// The open connection, if it can be used.
    fn usable(&mut self) -> Option<Connection> {
        let generation = self.credentials.borrow().number;
        self.connection.take().filter(|connection| {
            connection.generation == generation
                && !connection.requests.is_closed()
                && connection.used.elapsed() < IDLE_MAX
        })
    }

    /// Headers in the order and spelling of Go's client.
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
        request.body(Full::new(body)).expect("path and authority were checked when they were taken in")
    }

    async fn connect(&self) -> Result<Connection, Error> {
        let slow = |_elapsed| Error::Slow {
            authority: self.address.authority.clone(),
            limit: CONNECT_MAX,
            what: "take a connection",
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
            // Whoever waits for an answer is told of an error; without a request nobody needs to be.
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
                    // Without it the kernel may hold the short request back.
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

/// One request and its answer; and the connection, if it can be used again.
async fn exchange(
    mut connection: Connection,
    request: Request<Full<Bytes>>,
) -> Result<(Answer, Option<Connection>), hyper::Error> {
    connection.requests.ready().await?;
    let response = connection.requests.send_request(request).await?;
    let retry_after = response.headers().get(header::RETRY_AFTER).and_then(|value| retry_after(value.to_str().ok()?));
    let answer = Answer { status: response.status(), retry_after };
    // What stands in the answer says nothing to us, but has to be out of the way.
    let read = Limited::new(response.into_body(), ANSWER_BYTES_MAX).collect().await;
    connection.used = Instant::now();
    Ok((answer, read.is_ok().then_some(connection)))
}

/// How long `Retry-After` asks us to wait: seconds, or a date.
fn retry_after(text: &str) -> Option<Duration> {
    if let Ok(seconds) = text.trim().parse() {
        return Some(Duration::from_secs(seconds));
    }
    let date = httpdate::parse_http_date(text).ok()?;
    Some(date.duration_since(SystemTime::now()).unwrap_or_default())
}

// === impl Connection ===

impl Drop for Connection {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

#[cfg(test)]
mod tests;
