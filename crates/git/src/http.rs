//! Git's smart protocol over HTTP and HTTPS, with ureq and rustls: one request for the references, and one for a pack.
//!
//! Knows nothing of objects: it copies a pack to a file, and another process reads it.

mod deadline;

use std::{
    fs::File,
    io::{self, Read},
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use base64::{Engine, engine::general_purpose::STANDARD};
use rustls::{
    pki_types::{CertificateDer, PrivateKeyDer},
    sign::CertifiedKey,
};
use ureq::{
    Agent, Body, RequestExt,
    http::{Request, Response, StatusCode, Uri, header},
    tls::{Certificate, ClientCert, PemItem, RootCerts, TlsConfig, parse_pem},
};

use super::{
    address::{self, GuardedResolver, Refused},
    advertisement::{self, Advertisement},
    answer,
    error::Error,
    flaw::{self, Flaw, Strange},
    limits::{ADVERTISEMENT_BYTES_MAX, PACK_BYTES_MAX, REDIRECTS_MAX, RETRY_AFTER_MAX},
    proxy::{self, Proxy},
    remote::{ClientCertificate, Credentials, Reference, Remote},
    server_message::{self, ServerMessage},
    state::state_error,
    transport,
    url::Url,
};
use tidegate_process::{ambient, lock::Mutex, redirect, retry, tls};

const NO_CERTIFICATE: &str = "tls.crt contains no valid PEM certificate";
const NO_KEY: &str = "tls.key contains no valid PEM private key";
const KEY_IS_ENCRYPTED: &str = "tls.key is encrypted: decrypt it with `openssl pkey -in KEY -out tls.key`";
const ADVERTISEMENT: &str = "/info/refs?service=git-upload-pack";

/// One fetch: its remote, its deadline and its result.
pub(super) struct Session {
    url: Url,
    agent: Agent,
    /// The proxy, and what sends requests through it.
    proxied: Option<(Proxy, Agent)>,
    credentials: Option<Credentials>,
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

/// A body with a size limit and a deadline.
struct Limited<R> {
    session: Arc<Session>,
    body: R,
    remaining: u64,
    limit: u64,
    what: &'static str,
}

// === impl Session ===

impl Session {
    /// Creates a session. One of a GitHub App gets a token first, if it has none.
    ///
    /// # Errors
    ///
    /// Fails if credentials would be sent unencrypted, if credentials or CAs are invalid, or if there is no token.
    pub(super) fn new(remote: &Remote, deadline: Instant) -> Result<Arc<Session>, Error> {
        let url = remote.url.clone();
        let has_secrets = remote.client.is_some() || remote.github_app.is_some() || remote.credentials().is_some();
        if has_secrets && !url.is_encrypted() {
            return Err(Error::CredentialsOverHttp { url: Box::new(url) });
        }
        let credentials = match &remote.github_app {
            Some(app) => Some(app.credentials(remote, deadline)?),
            None => remote.credentials().cloned(),
        };
        Session::with(remote, url, credentials, deadline)
    }

    /// A session with an encrypted URL and these credentials, and with proxy, CAs and time of a remote.
    ///
    /// # Errors
    ///
    /// Fails if credentials or CAs are invalid.
    pub(super) fn with(
        remote: &Remote,
        url: Url,
        credentials: Option<Credentials>,
        deadline: Instant,
    ) -> Result<Arc<Session>, Error> {
        let authorization = credentials.as_ref().map(|credentials| authorization(&url, credentials)).transpose()?;
        let agent = agent(remote, None, deadline)?;
        let proxied =
            remote.proxy.as_ref().map(|proxy| Ok((proxy.clone(), self::agent(remote, Some(proxy), deadline)?)));
        let proxied = proxied.transpose()?;
        Ok(Arc::new(Session {
            base: Mutex::new(Base { uri: url.to_string(), is_same_origin: true }),
            url,
            agent,
            proxied,
            credentials,
            authorization,
            deadline,
            timeout: remote.timeout,
            failure: Mutex::new(None),
            received_bytes: AtomicU64::new(0),
        }))
    }

    /// Requests the references, and returns what a fetch needs of them.
    pub(super) fn advertisement(self: &Arc<Session>, follow: &Reference) -> Result<Advertisement, Error> {
        let response = self.references()?;
        let response = self.check_content_type(response, "application/x-git-upload-pack-advertisement")?;
        let body = self.limited(response, ADVERTISEMENT_BYTES_MAX, "bytes of references");
        advertisement::read(body, follow).map_err(|problem| {
            transport::advertisement_error(&self.url, self.credentials.as_ref(), problem, |error| {
                self.read_error(error)
            })
        })
    }

    /// Requests a pack, and writes it to a file.
    pub(super) fn pack(self: &Arc<Session>, request: Vec<u8>, path: &Path) -> Result<(), Error> {
        let mut target = File::create(path).map_err(state_error("create", path))?;
        let response = self.negotiate(request)?;
        let response = self.check_content_type(response, "application/x-git-upload-pack-result")?;
        let body = self.limited(response, PACK_BYTES_MAX, "bytes of objects");
        answer::unwrap(body, &mut target).map_err(|problem| {
            transport::pack_error(&self.url, self.credentials.as_ref(), problem, path, |error| self.read_error(error))
        })
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

    /// The error that the body of an answer has recorded.
    pub(super) fn read_error(&self, error: &io::Error) -> Error {
        self.failure.lock().take().unwrap_or_else(|| self.io_error(error, Moment::Reading))
    }

    fn answer(&self, flaw: Flaw) -> Error {
        Error::Answer { url: self.url(), flaw }
    }

    pub(super) fn url(&self) -> Box<Url> {
        Box::new(self.url.clone())
    }

    fn base(&self) -> Base {
        self.base.lock().clone()
    }

    fn remaining(&self) -> Result<Duration, Error> {
        let remaining = self.deadline.saturating_duration_since(Instant::now());
        if remaining.is_zero() {
            return Err(Error::Deadline { url: self.url(), proxy: None, timeout: self.timeout });
        }
        Ok(remaining)
    }

    /// Sends a request, with the credentials if it goes where they belong.
    pub(super) fn send(&self, request: Request<Vec<u8>>, is_same_origin: bool) -> Result<Response<Body>, Error> {
        let (mut parts, body) = request.into_parts();
        if let Some(authorization) = self.authorization.as_ref().filter(|_| is_same_origin) {
            let mut value =
                header::HeaderValue::from_str(authorization).map_err(|_| Error::Credentials { url: self.url() })?;
            value.set_sensitive(true);
            parts.headers.insert(header::AUTHORIZATION, value);
        }
        let remaining = Some(self.remaining()?);
        let request = Request::from_parts(parts, body);
        let host = request.uri().host().unwrap_or_default().to_owned();
        let Some((proxy, agent)) = self.proxied.as_ref().filter(|(proxy, _)| proxy.is_for(&host)) else {
            let sent = request.with_agent(&self.agent).configure().timeout_global(remaining).run();
            return sent.map_err(|error| self.connection_error(error, Moment::Connecting));
        };
        // The proxy resolves names. What is an address already can be checked here.
        if address::is_forbidden_literal(&host) {
            return Err(Error::Address { host });
        }
        let sent = request.with_agent(agent).configure().timeout_global(remaining).run();
        sent.map_err(|error| self.proxy_error(error, proxy))
    }

    /// Requests the references and follows redirects.
    fn references(&self) -> Result<Response<Body>, Error> {
        let origin: Uri = self.uri(&format!("{}{ADVERTISEMENT}", self.url))?;
        let mut hop = redirect::Hop { uri: origin.clone(), is_same_origin: true };
        for _ in 0..=REDIRECTS_MAX {
            let request = self.request(Request::get(hop.uri.clone()), Vec::new())?;
            let response = self.send(request, hop.is_same_origin)?;
            let Some(location) = location(&response) else {
                let response = self.check_status(response, hop.is_same_origin)?;
                self.move_base(&hop)?;
                return Ok(response);
            };
            hop = redirect::follow(&origin, &hop.uri, location)
                .map_err(|why| Error::Redirect { url: self.url(), why })?;
        }
        Err(Error::Redirect { url: self.url(), why: "in circles or too often" })
    }

    /// Requests a pack. A redirect in the middle of a fetch is refused.
    fn negotiate(&self, negotiation: Vec<u8>) -> Result<Response<Body>, Error> {
        let base = self.base();
        let builder = Request::post(self.uri(&format!("{}/git-upload-pack", base.uri))?)
            .header(header::CONTENT_TYPE, "application/x-git-upload-pack-request")
            .header(header::ACCEPT, "application/x-git-upload-pack-result");
        let response = self.send(self.request(builder, negotiation)?, base.is_same_origin)?;
        if response.status().is_redirection() {
            return Err(Error::Redirect { url: self.url(), why: "in the middle of a fetch" });
        }
        self.check_status(response, base.is_same_origin)
    }

    fn uri(&self, text: &str) -> Result<Uri, Error> {
        // Both parts are valid; only their combination may be too long for a URI.
        text.parse().map_err(|_| Error::Redirect { url: self.url(), why: "to an invalid URL" })
    }

    pub(super) fn request(
        &self,
        builder: ureq::http::request::Builder,
        body: Vec<u8>,
    ) -> Result<Request<Vec<u8>>, Error> {
        builder.body(body).map_err(|_| Error::Credentials { url: self.url() })
    }

    fn move_base(&self, hop: &redirect::Hop) -> Result<(), Error> {
        let text = hop.uri.to_string();
        let uri = text.strip_suffix(ADVERTISEMENT).ok_or_else(|| Error::Redirect {
            url: self.url(),
            why: "to something that is not a repository, for example to a page for signing in",
        })?;
        let base = Base { uri: uri.to_owned(), is_same_origin: hop.is_same_origin };
        *self.base.lock() = base;
        Ok(())
    }

    fn check_status(&self, response: Response<Body>, is_same_origin: bool) -> Result<Response<Body>, Error> {
        let (url, status) = (self.url(), response.status());
        let retry_after = response.headers().get(header::RETRY_AFTER).and_then(|value| value.to_str().ok());
        let retry_after = retry_after.and_then(|value| retry::asked(value, ambient::now().into(), RETRY_AFTER_MAX));
        match status {
            StatusCode::OK => Ok(response),
            StatusCode::UNAUTHORIZED if self.authorization.is_some() && !is_same_origin => {
                let why = "to another host that requires credentials; they are only sent to the host of the URL";
                Err(Error::Redirect { url, why })
            }
            StatusCode::UNAUTHORIZED => {
                Err(Error::Authentication { url, sent: self.authorization.is_some(), said: self.said(response) })
            }
            StatusCode::FORBIDDEN if retry_after.is_none() => Err(Error::Forbidden { url, said: self.said(response) }),
            StatusCode::NOT_FOUND | StatusCode::GONE => Err(Error::NoRepository { url, said: self.said(response) }),
            other => Err(Error::Status { url, status: other.as_u16(), said: self.said(response), retry_after }),
        }
    }

    /// What a server says of an error, in a body that is meant to be read. A web page is not quoted.
    pub(super) fn said(&self, response: Response<Body>) -> Option<ServerMessage> {
        let media_type = media_type(&response);
        let mut bytes = Vec::new();
        let body = response.into_body().into_reader();
        // Whatever could be read is enough.
        let _ = body.take(server_message::BYTES_MAX as u64).read_to_end(&mut bytes);
        match media_type.as_str() {
            "text/plain" => server_message::clean(&bytes, self.credentials.as_ref()),
            "application/json" => {
                let value: serde_json::Value = serde_json::from_slice(&bytes).ok()?;
                let text =
                    ["message", "error_description", "error"].into_iter().find_map(|key| value.get(key)?.as_str());
                server_message::clean(text?.as_bytes(), self.credentials.as_ref())
            }
            _ => None,
        }
    }

    fn check_content_type(&self, response: Response<Body>, expected: &str) -> Result<Response<Body>, Error> {
        let found = match media_type(&response).as_str() {
            found if found == expected => return Ok(response),
            "text/html" | "application/xhtml+xml" => Strange::WebPage,
            "text/plain" if is_dumb(response) => Strange::Dumb,
            _ => Strange::Other,
        };
        Err(Error::NotGit { url: self.url(), found })
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
            ureq::Error::Timeout(_) => Error::Deadline { url, proxy: None, timeout: self.timeout },
            ureq::Error::HostNotFound => connect("cannot resolve the host name"),
            ureq::Error::ConnectionFailed => connect("no connection"),
            ureq::Error::Protocol(_) | ureq::Error::Http(_) | ureq::Error::LargeResponseHeader(..) => {
                self.answer(Flaw::NotHttp)
            }
            ureq::Error::Rustls(error) => self.tls_error(&error),
            ureq::Error::Io(error) => self.io_error(&error, moment),
            ureq::Error::Other(other) => match other.downcast::<Refused>() {
                Ok(refused) => Error::Address { host: refused.host },
                Err(_) => connect("no connection"),
            },
            _ => self.answer(Flaw::Cut),
        }
    }

    /// Converts an error of ureq about a request through a proxy.
    fn proxy_error(&self, error: ureq::Error, proxy: &Proxy) -> Error {
        let status = match &error {
            ureq::Error::ConnectProxyFailed(text) => Some(status_of_proxy(text)),
            _ => None,
        };
        let failed = |why| Error::Proxy { url: self.url(), proxy: proxy.to_string(), why };
        if let Some(status) = status {
            return failed(proxy::refusal(status));
        }
        match self.connection_error(error, Moment::Connecting) {
            Error::Connect { why, .. } => failed(why),
            Error::Answer { flaw: Flaw::NotHttp | Flaw::Cut, .. } => failed(proxy::NO_PROXY),
            other => other,
        }
    }

    fn io_error(&self, error: &io::Error, moment: Moment) -> Error {
        let inner = error.get_ref();
        if let Some(error) = inner.and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
            return self.tls_error(error);
        }
        if let Some(ureq::Error::Timeout(_)) = inner.and_then(|inner| inner.downcast_ref::<ureq::Error>()) {
            return Error::Deadline { url: self.url(), proxy: None, timeout: self.timeout };
        }
        let connect = |why| Error::Connect { url: self.url(), why };
        match (error.kind(), moment) {
            (io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock, _) => {
                Error::Deadline { url: self.url(), proxy: None, timeout: self.timeout }
            }
            (io::ErrorKind::ConnectionRefused, _) => connect("connection refused"),
            (io::ErrorKind::HostUnreachable | io::ErrorKind::NetworkUnreachable, _) => connect("no route to the host"),
            (_, Moment::Connecting) => connect("the connection was closed before an answer"),
            (_, Moment::Reading) => self.answer(Flaw::Cut),
        }
    }

    fn tls_error(&self, error: &rustls::Error) -> Error {
        match (flaw::distrust(error), error) {
            (Some(why), _) => Error::Certificate { url: self.url(), why },
            (None, rustls::Error::InvalidMessage(_)) => {
                Error::Connect { url: self.url(), why: "the server does not speak TLS: check the scheme and the port" }
            }
            (None, rustls::Error::PeerIncompatible(_) | rustls::Error::AlertReceived(_)) => Error::Connect {
                url: self.url(),
                why: "the server and Tidegate have no TLS version or algorithm in common",
            },
            (None, _) => Error::Connect { url: self.url(), why: "the TLS handshake failed" },
        }
    }
}

/// The status with which a proxy answered, in the words of ureq.
fn status_of_proxy(text: &str) -> Option<u16> {
    text.strip_prefix("proxy server responded ")?.split('/').next()?.parse().ok()
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

fn media_type(response: &Response<Body>) -> String {
    let found = response.headers().get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    found.unwrap_or_default().split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
}

/// Whether an answer is the list of references of a repository that is served as files.
fn is_dumb(response: Response<Body>) -> bool {
    let mut start = [0; 41];
    let mut body = response.into_body().into_reader();
    body.read_exact(&mut start).is_ok() && start[..40].iter().all(u8::is_ascii_hexdigit) && start[40] == b'\t'
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

fn agent(remote: &Remote, proxy: Option<&Proxy>, deadline: Instant) -> Result<Agent, Error> {
    let proxy = proxy.map(Proxy::to_ureq).transpose().map_err(|_| Error::Proxy {
        url: Box::new(remote.url.clone()),
        proxy: remote.proxy.as_ref().map(ToString::to_string).unwrap_or_default(),
        why: "its address cannot be used",
    })?;
    let roots = match remote.ca.as_deref() {
        Some(pem) => RootCerts::new_with_certs(&authorities(pem)?),
        None => RootCerts::PlatformVerifier,
    };
    let tls = TlsConfig::builder()
        .root_certs(roots)
        .client_cert(remote.client.as_ref().map(client_certificate).transpose()?)
        .unversioned_rustls_crypto_provider(tls::provider(tls::Algorithms::All))
        .build();
    let config = Agent::config_builder()
        .tls_config(tls)
        .http_status_as_error(false)
        // `advertisement` follows redirects itself, because each hop decides again about credentials.
        .max_redirects(0)
        .proxy(proxy)
        // Some servers send web pages to clients that do not look like git.
        .user_agent(concat!("git/2.0 (tidegate ", env!("CARGO_PKG_VERSION"), ")"))
        .build();
    Ok(Agent::with_parts(config, deadline::connector(deadline), GuardedResolver::default()))
}

/// A certificate of the client. A certificate and a key that do not belong together would panic at the connection.
fn client_certificate(client: &ClientCertificate) -> Result<ClientCert, Error> {
    let mut certificates = Vec::new();
    for item in parse_pem(&client.certificate) {
        if let PemItem::Certificate(certificate) =
            item.map_err(|_| Error::ClientCertificate { what: NO_CERTIFICATE })?
        {
            certificates.push(certificate);
        }
    }
    // Both formats of OpenSSL. No parser of rustls reads one of them.
    let is_encrypted = |line: &[u8]| {
        line.starts_with(b"-----BEGIN ENCRYPTED PRIVATE KEY") || line.starts_with(b"Proc-Type: 4,ENCRYPTED")
    };
    if client.key.split(|byte| *byte == b'\n').any(is_encrypted) {
        return Err(Error::ClientCertificate { what: KEY_IS_ENCRYPTED });
    }
    let key = parse_pem(&client.key).find_map(|item| match item {
        Ok(PemItem::PrivateKey(key)) => Some(key),
        _ => None,
    });
    let key = key.ok_or_else(|| Error::ClientCertificate { what: NO_KEY })?;
    let chain: Vec<CertificateDer<'static>> =
        certificates.iter().map(|certificate| certificate.der().to_vec().into()).collect();
    if chain.is_empty() {
        return Err(Error::ClientCertificate { what: NO_CERTIFICATE });
    }
    let der = PrivateKeyDer::try_from(key.der().to_vec()).map_err(|_| Error::ClientCertificate { what: NO_KEY })?;
    CertifiedKey::from_der(chain, der, &tls::provider(tls::Algorithms::All)).map_err(|error| match error {
        rustls::Error::InconsistentKeys(_) => Error::ClientCertificate { what: "tls.key is not the key of tls.crt" },
        _ => Error::ClientCertificate { what: NO_KEY },
    })?;
    Ok(ClientCert::new_with_certs(&certificates, key))
}

/// The CAs in a text. Fails if there are none.
pub(super) fn authorities(pem: &[u8]) -> Result<Vec<Certificate<'static>>, Error> {
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
