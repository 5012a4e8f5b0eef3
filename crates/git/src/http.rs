//! Git's smart protocol over HTTP and HTTPS: a transport for libgit2, with ureq and rustls.
//!
//! libgit2 does not tell a transport which fetch it belongs to, so a fetch puts its [`Session`] into a thread-local.
//! The session also returns the error, because libgit2's own message may contain text from the remote and is dropped.

use std::{
    cell::RefCell,
    io::{self, Read, Write},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use base64::{Engine, engine::general_purpose::STANDARD};
use git2::transport::{Service, SmartSubtransport, SmartSubtransportStream, Transport};
use ureq::{
    Agent, Body, RequestExt,
    http::{Request, Response, StatusCode, Uri, header},
    tls::{Certificate, PemItem, RootCerts, TlsConfig, parse_pem},
    unversioned::transport::DefaultConnector,
};

use super::{
    address::{GuardedResolver, Refused},
    advertisement::{self, Problem},
    error::Error,
    limits::{ADVERTISEMENT_BYTES_MAX, PACK_BYTES_MAX, REDIRECTS_MAX},
    redirect,
    remote::{Credentials, Remote},
    url::Url,
};
use tidegate_process::{lock::Mutex, tls};

thread_local! {
    /// The fetch of this thread.
    static SESSION: RefCell<Option<Arc<Session>>> = const { RefCell::new(None) };
}

const ADVERTISEMENT: &str = "/info/refs?service=git-upload-pack";

/// One fetch: its remote, its deadline and its result.
pub(super) struct Session {
    url: Url,
    agent: Agent,
    authorization: Option<String>,
    deadline: Instant,
    timeout: Duration,
    /// The base of all requests; a redirect of the first request changes it.
    base: Mutex<Base>,
    failure: Mutex<Option<Error>>,
    received_bytes: AtomicU64,
}

#[derive(Clone)]
struct Base {
    /// Without `/info/refs`.
    uri: String,
    is_same_origin: bool,
}

/// Opens connections for libgit2.
struct Connections(Arc<Session>);

/// One request and its answer. libgit2 writes the request, then reads.
struct Exchange {
    session: Arc<Session>,
    kind: ExchangeKind,
    request: Vec<u8>,
    answer: Option<Box<dyn Read + Send>>,
}

#[derive(Clone, Copy)]
enum ExchangeKind {
    Advertisement,
    Pack,
}

/// A body with a size limit and a deadline.
struct Limited<R> {
    session: Arc<Session>,
    body: R,
    remaining: u64,
    limit: u64,
    what: &'static str,
}

/// Registers the transports, once per process and before any fetch.
pub(super) fn register() {
    for scheme in ["https", "http"] {
        let factory = |remote: &git2::Remote<'_>| {
            let session = SESSION.with_borrow(Clone::clone);
            // Only fetches of this crate use the transport; one without a session would have no limits.
            let session = session.ok_or_else(|| git2::Error::from_str("no session"))?;
            Transport::smart(remote, true, Connections(session))
        };
        #[expect(unsafe_code, reason = "the only way to give libgit2 a transport")]
        // SAFETY: called within `Once`, before this process makes its first transport.
        let registered = unsafe { git2::transport::register(scheme, factory) };
        debug_assert!(registered.is_ok(), "only this module registers a transport");
    }
}

// === impl Session ===

impl Session {
    /// Creates a session.
    ///
    /// # Errors
    ///
    /// Fails if credentials would be sent unencrypted, or if credentials or CAs are invalid.
    pub(super) fn new(remote: &Remote, deadline: Instant) -> Result<Arc<Session>, Error> {
        let url = remote.url.clone();
        let authorization = match remote.credentials() {
            Some(_) if !url.is_encrypted() => return Err(Error::CredentialsOverHttp { url: Box::new(url) }),
            Some(credentials) => Some(authorization(&url, credentials)?),
            None => None,
        };
        let agent = agent(remote.ca.as_deref())?;
        Ok(Arc::new(Session {
            base: Mutex::new(Base { uri: url.to_string(), is_same_origin: true }),
            url,
            agent,
            authorization,
            deadline,
            timeout: remote.timeout,
            failure: Mutex::new(None),
            received_bytes: AtomicU64::new(0),
        }))
    }

    /// Runs `work` with this session on this thread.
    pub(super) fn scope<T>(self: &Arc<Session>, work: impl FnOnce() -> T) -> T {
        struct Reset;
        impl Drop for Reset {
            fn drop(&mut self) {
                SESSION.set(None);
            }
        }
        SESSION.set(Some(Arc::clone(self)));
        let _reset = Reset;
        work()
    }

    /// The first error of the transport.
    pub(super) fn take_failure(&self) -> Option<Error> {
        self.failure.lock().take()
    }

    /// Bytes of answers so far.
    pub(super) fn received_bytes(&self) -> u64 {
        self.received_bytes.load(Ordering::Relaxed)
    }

    /// Keeps the first error; later ones are its consequences.
    fn fail(&self, error: Error) -> io::Error {
        self.failure.lock().get_or_insert(error);
        io::Error::other("the fetch failed")
    }

    fn url(&self) -> Box<Url> {
        Box::new(self.url.clone())
    }

    fn base(&self) -> Base {
        self.base.lock().clone()
    }

    fn remaining(&self) -> Result<Duration, Error> {
        let remaining = self.deadline.saturating_duration_since(Instant::now());
        if remaining.is_zero() {
            return Err(Error::Deadline { url: self.url(), timeout: self.timeout });
        }
        Ok(remaining)
    }

    fn send(&self, request: Request<Vec<u8>>, is_same_origin: bool) -> Result<Response<Body>, Error> {
        let (mut parts, body) = request.into_parts();
        if let Some(authorization) = self.authorization.as_ref().filter(|_| is_same_origin) {
            let mut value =
                header::HeaderValue::from_str(authorization).map_err(|_| Error::Credentials { url: self.url() })?;
            value.set_sensitive(true);
            parts.headers.insert(header::AUTHORIZATION, value);
        }
        let remaining = Some(self.remaining()?);
        let request = Request::from_parts(parts, body);
        let sent = request.with_agent(&self.agent).configure().timeout_global(remaining).run();
        sent.map_err(|error| self.connection_error(error, Moment::Connecting))
    }

    /// Requests the references and follows redirects.
    fn advertisement(&self) -> Result<Response<Body>, Error> {
        let origin: Uri = self.uri(&format!("{}{ADVERTISEMENT}", self.url))?;
        let mut hop = redirect::Hop { uri: origin.clone(), is_same_origin: true };
        for _ in 0..=REDIRECTS_MAX {
            let request = self.request(Request::get(hop.uri.clone()), Vec::new())?;
            let response = self.send(request, hop.is_same_origin)?;
            let Some(location) = location(&response) else {
                self.check_status(response.status(), hop.is_same_origin)?;
                self.move_base(&hop)?;
                return Ok(response);
            };
            hop = redirect::follow(&origin, &hop.uri, location)
                .map_err(|why| Error::Redirect { url: self.url(), why })?;
        }
        Err(Error::Redirect { url: self.url(), why: "in circles or too often" })
    }

    /// Requests a pack. A redirect in the middle of a fetch is refused.
    fn pack(&self, negotiation: Vec<u8>) -> Result<Response<Body>, Error> {
        let base = self.base();
        let builder = Request::post(self.uri(&format!("{}/git-upload-pack", base.uri))?)
            .header(header::CONTENT_TYPE, "application/x-git-upload-pack-request")
            .header(header::ACCEPT, "application/x-git-upload-pack-result");
        let response = self.send(self.request(builder, negotiation)?, base.is_same_origin)?;
        if response.status().is_redirection() {
            return Err(Error::Redirect { url: self.url(), why: "in the middle of a fetch" });
        }
        self.check_status(response.status(), base.is_same_origin)?;
        Ok(response)
    }

    fn uri(&self, text: &str) -> Result<Uri, Error> {
        // Both parts are valid; only their combination may be too long for a URI.
        text.parse().map_err(|_| Error::Redirect { url: self.url(), why: "to an invalid URL" })
    }

    fn request(&self, builder: ureq::http::request::Builder, body: Vec<u8>) -> Result<Request<Vec<u8>>, Error> {
        builder.body(body).map_err(|_| Error::Credentials { url: self.url() })
    }

    fn move_base(&self, hop: &redirect::Hop) -> Result<(), Error> {
        let text = hop.uri.to_string();
        let uri = text
            .strip_suffix(ADVERTISEMENT)
            .ok_or_else(|| Error::Redirect { url: self.url(), why: "to something that is not a repository" })?;
        let base = Base { uri: uri.to_owned(), is_same_origin: hop.is_same_origin };
        *self.base.lock() = base;
        Ok(())
    }

    fn check_status(&self, status: StatusCode, is_same_origin: bool) -> Result<(), Error> {
        let url = self.url();
        match status {
            StatusCode::OK => Ok(()),
            StatusCode::UNAUTHORIZED if self.authorization.is_some() && !is_same_origin => {
                let why = "to another host that requires credentials; they are only sent to the host of the URL";
                Err(Error::Redirect { url, why })
            }
            StatusCode::UNAUTHORIZED => Err(Error::Authentication { url, sent: self.authorization.is_some() }),
            StatusCode::FORBIDDEN => Err(Error::Forbidden { url }),
            StatusCode::NOT_FOUND | StatusCode::GONE => Err(Error::NoRepository { url }),
            other => Err(Error::Status { url, status: other.as_u16() }),
        }
    }

    fn check_content_type(&self, response: &Response<Body>, expected: &str) -> Result<(), Error> {
        let found = response.headers().get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
        let media_type = found.unwrap_or_default().split(';').next().unwrap_or_default().trim();
        if media_type.eq_ignore_ascii_case(expected) { Ok(()) } else { Err(Error::NotGit { url: self.url() }) }
    }

    /// The body of an answer, with its limit and the deadline.
    fn limited(
        self: &Arc<Session>,
        response: Response<Body>,
        limit: u64,
        what: &'static str,
    ) -> Limited<impl Read + use<>> {
        // The body's own limit is larger by one, so that this crate's limit is reported.
        let body = response.into_body().into_with_config().limit(limit.saturating_add(1)).reader();
        Limited { session: Arc::clone(self), body, remaining: limit, limit, what }
    }

    /// Converts an error of ureq.
    fn connection_error(&self, error: ureq::Error, moment: Moment) -> Error {
        let url = self.url();
        let connect = |why| Error::Connect { url: self.url(), why };
        match error {
            ureq::Error::Timeout(_) => Error::Deadline { url, timeout: self.timeout },
            ureq::Error::HostNotFound => connect("cannot resolve the host name"),
            ureq::Error::ConnectionFailed => connect("no connection"),
            ureq::Error::Rustls(error) => self.tls_error(&error),
            ureq::Error::Io(error) => self.io_error(&error, moment),
            ureq::Error::Other(other) => match other.downcast::<Refused>() {
                Ok(refused) => Error::Address { host: refused.host },
                Err(_) => connect("no connection"),
            },
            _ => Error::Answer { url },
        }
    }

    fn io_error(&self, error: &io::Error, moment: Moment) -> Error {
        let inner = error.get_ref();
        if let Some(error) = inner.and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
            return self.tls_error(error);
        }
        if let Some(ureq::Error::Timeout(_)) = inner.and_then(|inner| inner.downcast_ref::<ureq::Error>()) {
            return Error::Deadline { url: self.url(), timeout: self.timeout };
        }
        let connect = |why| Error::Connect { url: self.url(), why };
        match (error.kind(), moment) {
            (io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock, _) => {
                Error::Deadline { url: self.url(), timeout: self.timeout }
            }
            (io::ErrorKind::ConnectionRefused, _) => connect("connection refused"),
            (io::ErrorKind::HostUnreachable | io::ErrorKind::NetworkUnreachable, _) => connect("no route to the host"),
            (_, Moment::Connecting) => connect("the connection was closed before an answer"),
            (_, Moment::Reading) => Error::Answer { url: self.url() },
        }
    }

    fn tls_error(&self, error: &rustls::Error) -> Error {
        match error {
            rustls::Error::InvalidCertificate(_) | rustls::Error::NoCertificatesPresented => {
                Error::Certificate { url: self.url() }
            }
            _ => Error::Connect { url: self.url(), why: "the TLS handshake failed" },
        }
    }
}

/// When a connection failed.
#[derive(Clone, Copy)]
enum Moment {
    Connecting,
    Reading,
}

/// The target of a redirect; `None` if the answer is not a redirect.
fn location(response: &Response<Body>) -> Option<&[u8]> {
    match response.status().as_u16() {
        301 | 302 | 303 | 307 | 308 => {
            Some(response.headers().get(header::LOCATION).map_or(b"", |value| value.as_bytes()))
        }
        _ => None,
    }
}

fn authorization(url: &Url, credentials: &Credentials) -> Result<String, Error> {
    let (text, value) = match credentials {
        Credentials::Basic { username, password } => {
            let pair = format!("{username}:{password}");
            let value = format!("Basic {}", STANDARD.encode(&pair));
            (pair, value)
        }
        Credentials::Bearer(token) => (token.clone(), format!("Bearer {token}")),
    };
    // Most often, a Secret's value ends with a line break, and the server answers an unexplained 401.
    if text.chars().any(char::is_control) || header::HeaderValue::from_str(&value).is_err() {
        return Err(Error::Credentials { url: Box::new(url.clone()) });
    }
    Ok(value)
}

fn agent(ca: Option<&[u8]>) -> Result<Agent, Error> {
    let roots = match ca {
        Some(pem) => RootCerts::new_with_certs(&authorities(pem)?),
        None => RootCerts::PlatformVerifier,
    };
    let tls = TlsConfig::builder()
        .root_certs(roots)
        .unversioned_rustls_crypto_provider(tls::provider(tls::Algorithms::All))
        .build();
    let config = Agent::config_builder()
        .tls_config(tls)
        .http_status_as_error(false)
        // `advertisement` follows redirects itself, because each hop decides again about credentials.
        .max_redirects(0)
        // A proxy would resolve names itself, so that no address could be checked.
        .proxy(None)
        // Some servers send web pages to clients that do not look like git.
        .user_agent(concat!("git/2.0 (tidegate ", env!("CARGO_PKG_VERSION"), ")"))
        .build();
    Ok(Agent::with_parts(config, DefaultConnector::default(), GuardedResolver::default()))
}

fn authorities(pem: &[u8]) -> Result<Vec<Certificate<'static>>, Error> {
    let mut certificates = Vec::new();
    for item in parse_pem(pem) {
        // Ignore a key in the same file.
        if let PemItem::Certificate(certificate) = item.map_err(|_| Error::Authorities)? {
            certificates.push(certificate);
        }
    }
    let mut store = rustls::RootCertStore::empty();
    let readable = certificates.iter().filter(|certificate| store.add(certificate.der().to_vec().into()).is_ok());
    if readable.count() == 0 { Err(Error::Authorities) } else { Ok(certificates) }
}

// === impl Connections ===

impl SmartSubtransport for Connections {
    fn action(&self, _: &str, service: Service) -> Result<Box<dyn SmartSubtransportStream>, git2::Error> {
        let kind = match service {
            Service::UploadPackLs => ExchangeKind::Advertisement,
            Service::UploadPack => ExchangeKind::Pack,
            Service::ReceivePackLs | Service::ReceivePack => {
                return Err(git2::Error::from_str("this transport only fetches"));
            }
        };
        let session = Arc::clone(&self.0);
        Ok(Box::new(Exchange { session, kind, request: Vec::new(), answer: None }))
    }

    fn close(&self) -> Result<(), git2::Error> {
        Ok(())
    }
}

// === impl Exchange ===

impl Exchange {
    fn answer(&mut self) -> Result<Box<dyn Read + Send>, Error> {
        let session = Arc::clone(&self.session);
        match self.kind {
            ExchangeKind::Advertisement => {
                let response = session.advertisement()?;
                session.check_content_type(&response, "application/x-git-upload-pack-advertisement")?;
                let mut body = session.limited(response, ADVERTISEMENT_BYTES_MAX, "bytes of references");
                let mut bytes = Vec::new();
                let url = session.url();
                // `Limited` has recorded the first error, and only that is reported.
                body.read_to_end(&mut bytes).map_err(|_| Error::Answer { url: url.clone() })?;
                let checked = advertisement::checked(&bytes).map_err(|problem| match problem {
                    Problem::Broken => Error::Answer { url },
                    Problem::Refused => Error::NoRepository { url },
                    Problem::Sha256 => Error::Sha256 { url },
                })?;
                Ok(Box::new(io::Cursor::new(checked)))
            }
            ExchangeKind::Pack => {
                let response = session.pack(std::mem::take(&mut self.request))?;
                session.check_content_type(&response, "application/x-git-upload-pack-result")?;
                Ok(Box::new(session.limited(response, PACK_BYTES_MAX, "bytes of objects")))
            }
        }
    }
}

impl Write for Exchange {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.request.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Read for Exchange {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.answer.is_none() {
            let answer = self.answer().map_err(|error| self.session.fail(error))?;
            self.answer = Some(answer);
        }
        match &mut self.answer {
            Some(answer) => answer.read(buffer),
            None => Ok(0),
        }
    }
}

// === impl Limited ===

impl<R: Read> Read for Limited<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let session = &self.session;
        session.remaining().map_err(|error| session.fail(error))?;
        let count = self.body.read(buffer).map_err(|error| {
            // ureq wraps its own errors in `io::Error`.
            let error = match error.downcast::<ureq::Error>() {
                Ok(error) => session.connection_error(error, Moment::Reading),
                Err(error) => session.io_error(&error, Moment::Reading),
            };
            session.fail(error)
        })?;
        let bytes = count as u64;
        if self.remaining < bytes {
            let (url, what, limit) = (session.url(), self.what, self.limit);
            return Err(session.fail(Error::TooMuch { url, what, limit }));
        }
        self.remaining -= bytes;
        session.received_bytes.fetch_add(bytes, Ordering::Relaxed);
        Ok(count)
    }
}
