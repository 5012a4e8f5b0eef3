//! Requests to one registry: authorization, redirects, limits and errors. GET only.

use std::{
    error::Error as StdError,
    io,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use http::{
    HeaderMap, HeaderValue, Request, Response, StatusCode, Uri,
    header::{ACCEPT, AUTHORIZATION, CONTENT_LENGTH, LOCATION, RETRY_AFTER, USER_AGENT},
};
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use serde::Deserialize;
use sha2::{Digest as _, Sha256};
use tidegate_core::component::{BlobDigest, RegistryAddress};
use tidegate_process::{ambient, lock::Mutex, redirect, retry};
use tokio::{fs::File, io::AsyncWriteExt as _};

use super::{
    authorization::{Authorization, Proof},
    challenge::{self, Challenge},
    connect::{Http, Refused},
    error::Error,
    limits::{REDIRECTS_MAX, RETRY_AFTER_MAX, TOKEN_BYTES_MAX},
};

/// One registry.
pub(super) struct Wire {
    pub(super) http: Http,
    pub(super) address: RegistryAddress,
    /// Other hosts that may get the credentials, for a token.
    pub(super) token_hosts: Vec<String>,
    pub(super) authorization: Mutex<Authorization>,
    pub(super) timeout: Duration,
    pub(super) traffic: Arc<Traffic>,
}

/// What was exchanged with a registry and its token servers. Only grows.
#[derive(Debug, Default)]
pub struct Traffic {
    requests: AtomicU64,
    received_bytes: AtomicU64,
}

/// What is read.
#[derive(Clone, Debug)]
pub(super) struct Target {
    /// The repository, with the registry's subpath.
    pub(super) repository: String,
    /// `manifests/TAG` or `blobs/DIGEST`.
    pub(super) tail: String,
    /// The name in errors: registry, repository, and tag or digest.
    pub(super) name: String,
    /// The media types of a manifest.
    pub(super) accept: Option<&'static str>,
}

/// Where a body goes.
#[derive(Debug)]
pub(super) enum Sink {
    /// Into memory.
    Memory(Vec<u8>),
    /// Into a file.
    File(File, PathBuf),
}

/// The answer of a token server.
#[derive(Deserialize)]
struct Token {
    token: Option<String>,
    /// The same, by its name in OAuth.
    access_token: Option<String>,
}

/// An answer, and whether it came from the origin of the request.
struct Answer {
    response: Response<Incoming>,
    is_same_origin: bool,
}

// === impl Wire ===

impl Wire {
    /// Requests `target`, with the authorization that the registry asks for.
    pub(super) async fn get(&self, target: &Target) -> Result<Response<Incoming>, Error> {
        let url = format!("{}/{}/{}", self.address.url(), target.repository, target.tail);
        // All parts are checked names; only together they may be too long.
        let url: Uri = url.parse().map_err(|_| Error::NotFound { from: target.name.clone() })?;
        let sent = self.authorization.lock().known(&target.repository);
        let answer = self.follow(&url, target, sent.as_ref()).await?;
        if answer.response.status() != StatusCode::UNAUTHORIZED {
            return checked(answer.response, target);
        }
        if !answer.is_same_origin {
            let why = "to another host that requires credentials; they are only sent to the registry";
            return Err(Error::Redirect { from: target.name.clone(), why });
        }
        let proven = self.prove(answer.response.headers(), target).await?;
        let rejected = |sent| Error::Authentication { from: target.name.clone(), sent };
        if proven == sent {
            return Err(rejected(self.authorization.lock().has_credentials()));
        }
        let answer = self.follow(&url, target, proven.as_ref()).await?;
        if answer.response.status() == StatusCode::UNAUTHORIZED {
            return Err(rejected(self.authorization.lock().has_credentials()));
        }
        checked(answer.response, target)
    }

    /// What to send after a 401.
    async fn prove(&self, headers: &HeaderMap, target: &Target) -> Result<Option<HeaderValue>, Error> {
        let proof = self.authorization.lock().proof();
        match challenge::read(headers) {
            Some(_) if proof.is_token => Err(Error::Authentication { from: target.name.clone(), sent: true }),
            None => Err(Error::Challenge { from: target.name.clone() }),
            Some(Challenge::Basic) if proof.header.is_none() => {
                Err(Error::Authentication { from: target.name.clone(), sent: false })
            }
            Some(Challenge::Basic) => {
                self.authorization.lock().learn_basic(&proof);
                Ok(proof.header)
            }
            Some(Challenge::Bearer { realm, service }) => {
                let token = self.token(&realm, service.as_deref(), &proof, target).await?;
                self.authorization.lock().learn_token(&proof, &target.repository, token.clone());
                Ok(Some(token))
            }
        }
    }

    /// Requests a token for one repository.
    async fn token(
        &self,
        realm: &str,
        service: Option<&str>,
        proof: &Proof,
        target: &Target,
    ) -> Result<HeaderValue, Error> {
        let scope = format!("repository:{}:pull", target.repository);
        let mut query = vec![("scope", scope.as_str())];
        query.extend(service.map(|service| ("service", service)));
        let server = challenge::token_server(&self.address, realm, &query, proof.header.is_some(), &self.token_hosts)
            .map_err(|why| Error::Realm { from: self.address.to_string(), why })?;
        let sent = proof.header.as_ref().filter(|_| server.with_credentials);
        let name = format!("the token server of {}", self.address);
        let response = self.send(&server.uri, None, sent, &name).await?;
        match response.status() {
            // Google answers 403 to unknown credentials.
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN | StatusCode::BAD_REQUEST => {
                return Err(Error::Authentication { from: name, sent: sent.is_some() });
            }
            // A token is in the answer or nowhere: a redirect of this request is after the credentials.
            status if status.is_redirection() => {
                return Err(Error::Redirect { from: name, why: "a request for a token, which is refused" });
            }
            _ => {}
        }
        let token_target = Target { name: name.clone(), ..target.clone() };
        let response = checked(response, &token_target)?;
        let mut body = Sink::Memory(Vec::new());
        self.receive(response, TOKEN_BYTES_MAX, &name, &mut body).await?;
        let why = "contains no token";
        let token: Token =
            serde_json::from_slice(&body.into_bytes()).map_err(|_| Error::Answer { from: name.clone(), why })?;
        let token = token.token.or(token.access_token).filter(|token| !token.is_empty());
        let value = token.and_then(|token| HeaderValue::from_str(&format!("Bearer {token}")).ok());
        let mut value = value.ok_or(Error::Answer { from: name, why })?;
        value.set_sensitive(true);
        Ok(value)
    }

    /// Sends a request and follows redirects.
    async fn follow(&self, url: &Uri, target: &Target, sent: Option<&HeaderValue>) -> Result<Answer, Error> {
        let mut hop = redirect::Hop { uri: url.clone(), is_same_origin: true };
        for _ in 0..=REDIRECTS_MAX {
            let authorization = sent.filter(|_| hop.is_same_origin);
            let response = self.send(&hop.uri, target.accept, authorization, &target.name).await?;
            if !matches!(response.status().as_u16(), 301 | 302 | 303 | 307 | 308) {
                return Ok(Answer { response, is_same_origin: hop.is_same_origin });
            }
            let location = response.headers().get(LOCATION).map_or(b"".as_slice(), |value| value.as_bytes());
            hop = redirect::follow(url, &hop.uri, location)
                .map_err(|why| Error::Redirect { from: target.name.clone(), why })?;
        }
        Err(Error::Redirect { from: target.name.clone(), why: "in circles or too often" })
    }

    async fn send(
        &self,
        url: &Uri,
        accept: Option<&'static str>,
        authorization: Option<&HeaderValue>,
        name: &str,
    ) -> Result<Response<Incoming>, Error> {
        let mut request = Request::get(url.clone())
            .header(USER_AGENT, concat!("tidegate/", env!("CARGO_PKG_VERSION")))
            .body(Empty::<Bytes>::new())
            .map_err(|_| Error::Credentials { host: self.address.to_string() })?;
        let headers = request.headers_mut();
        if let Some(accept) = accept {
            headers.insert(ACCEPT, HeaderValue::from_static(accept));
        }
        if let Some(authorization) = authorization {
            headers.insert(AUTHORIZATION, authorization.clone());
        }
        self.traffic.requests.fetch_add(1, Ordering::Relaxed);
        self.http.request(request).await.map_err(|error| unreachable_error(&error, name))
    }

    /// Writes a body to `sink` and returns the digest of its bytes.
    ///
    /// # Errors
    ///
    /// Fails if the body has more than `limit` bytes or ends early, or if the sink fails.
    pub(super) async fn receive(
        &self,
        response: Response<Incoming>,
        limit: u64,
        name: &str,
        sink: &mut Sink,
    ) -> Result<BlobDigest, Error> {
        let too_much = || Error::TooMuch { from: name.to_owned(), limit };
        let broken = |why| Error::Answer { from: name.to_owned(), why };
        let length = response.headers().get(CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
        if length.is_some_and(|length| limit < length) {
            return Err(too_much());
        }
        let mut body = response.into_body();
        let mut hasher = Sha256::new();
        let mut remaining = limit;
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|_| broken("ends early: the connection was closed"))?;
            let Ok(bytes) = frame.into_data() else { continue };
            let count = bytes.len() as u64;
            self.traffic.received_bytes.fetch_add(count, Ordering::Relaxed);
            remaining = remaining.checked_sub(count).ok_or_else(too_much)?;
            hasher.update(&bytes);
            sink.write(&bytes).await?;
        }
        sink.flush().await?;
        Ok(BlobDigest::from_bytes(hasher.finalize().into()))
    }
}

// === impl Traffic ===

impl Traffic {
    /// The number of requests.
    pub fn requests(&self) -> u64 {
        self.requests.load(Ordering::Relaxed)
    }

    /// The bytes of bodies that were received.
    pub fn received_bytes(&self) -> u64 {
        self.received_bytes.load(Ordering::Relaxed)
    }
}

// === impl Sink ===

impl Sink {
    /// What is in memory.
    pub(super) fn into_bytes(self) -> Vec<u8> {
        match self {
            Sink::Memory(bytes) => bytes,
            Sink::File(..) => Vec::new(),
        }
    }

    async fn write(&mut self, bytes: &[u8]) -> Result<(), Error> {
        match self {
            Sink::Memory(memory) => memory.extend_from_slice(bytes),
            Sink::File(file, path) => {
                let written = file.write_all(bytes).await;
                written.map_err(|source| Error::Cache { operation: "write", path: path.clone(), source })?;
            }
        }
        Ok(())
    }

    async fn flush(&mut self) -> Result<(), Error> {
        match self {
            Sink::Memory(_) => Ok(()),
            Sink::File(file, path) => {
                let flushed = file.flush().await;
                flushed.map_err(|source| Error::Cache { operation: "write", path: path.clone(), source })
            }
        }
    }
}

/// The answer, if it is a success.
fn checked(response: Response<Incoming>, target: &Target) -> Result<Response<Incoming>, Error> {
    let from = target.name.clone();
    let retry_after = response.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok());
    let retry_after = retry_after.and_then(|value| retry::asked(value, ambient::now().into(), RETRY_AFTER_MAX));
    match response.status() {
        StatusCode::OK => Ok(response),
        StatusCode::FORBIDDEN if retry_after.is_none() => Err(Error::Forbidden { from }),
        StatusCode::NOT_FOUND | StatusCode::GONE => Err(Error::NotFound { from }),
        other => Err(Error::Status { from, status: other.as_u16(), retry_after }),
    }
}

/// Converts an error before the first byte of an answer.
fn unreachable_error(error: &hyper_util::client::legacy::Error, name: &str) -> Error {
    let from = || name.to_owned();
    let connect = |why| Error::Connect { from: from(), why };
    let mut cause: Option<&(dyn StdError + 'static)> = Some(error);
    while let Some(error) = cause {
        if let Some(error) = error.downcast_ref::<rustls::Error>() {
            return match error {
                rustls::Error::InvalidCertificate(_) | rustls::Error::NoCertificatesPresented => {
                    Error::Certificate { from: from() }
                }
                _ => connect("the TLS handshake failed"),
            };
        }
        match error.downcast_ref::<Refused>() {
            Some(Refused::Address) => return Error::Address { from: from() },
            Some(Refused::NoName) => return connect("cannot resolve the host name"),
            None => {}
        }
        let io = error.downcast_ref::<io::Error>();
        // An error inside an `io::Error` is not its `source()`.
        if let Some(inner) = io.and_then(io::Error::get_ref) {
            cause = Some(inner);
            continue;
        }
        match io.map(io::Error::kind) {
            Some(io::ErrorKind::ConnectionRefused) => return connect("connection refused"),
            Some(io::ErrorKind::TimedOut) => return connect("no connection within the time-out"),
            Some(io::ErrorKind::HostUnreachable | io::ErrorKind::NetworkUnreachable) => {
                return connect("no route to the host");
            }
            _ => cause = error.source(),
        }
    }
    connect("the connection was closed before an answer, or the answer is not HTTP")
}
