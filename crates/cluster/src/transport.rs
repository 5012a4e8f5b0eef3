//! HTTP to one API server: with limits, counters and time-outs, without retries.
//!
//! A write that waited for its permit checks leadership again. The write is cancelled if this process loses leadership
//! during the request, because a late write could undo changes of the next leader.
//!
//! HTTP/1.1 over keep-alive connections, one for each concurrent request. Measured with 2,000 small applies, 16 at a
//! time, on loopback against kube-apiserver 1.36: HTTP/2 takes as long, uses a fifth more of the client's processor
//! time, and lets one stalled connection stall every request to that cluster. The default stack of `kube` also takes a
//! fifth more (its trace layer and timers). Answers with only metadata take a tenth less than whole objects.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use http::{
    HeaderName, HeaderValue, Method, Request, Response, StatusCode,
    header::{ACCEPT, RETRY_AFTER},
};
use http_body_util::{BodyExt, Limited};
use hyper_util::{client::legacy::connect::HttpConnector, rt::TokioExecutor, rt::TokioTimer};
use kube::client::{Body, ConfigExt};
use tokio::{sync::Semaphore, time::Instant};
use tower::ServiceBuilder;

use super::{
    breaker::{Breaker, Outage},
    crowd::{Crowd, Member},
    denial::{Denial, Denials},
    error::{self, Error, Target, Unreachable},
    failing::Failing,
    lease::Leadership,
};
use tidegate_process::{
    ambient,
    lock::Mutex,
    retry::{self, BACKOFF_MAX},
};

/// Limits of the requests to a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Concurrent requests, without watches. The default is that of the bare client in the performance budgets.
    pub concurrency: usize,
    /// Limit of one request, from sending it to the end of the answer.
    pub request_timeout: Duration,
    /// Limit for opening a TCP connection.
    pub connect_timeout: Duration,
}

/// How API servers are reached.
#[derive(Clone, Default)]
pub struct Network(Option<Arc<InProcess>>);

/// The client for a configuration, if its API server is in this process.
type InProcess = dyn Fn(&kube::Config) -> Option<kube::Client> + Send + Sync;

/// The verb of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Verb {
    /// Reads an object, or discovery.
    Get,
    /// Reads a page of a list.
    List,
    /// Watches changes.
    Watch,
    /// Applies as a dry run.
    DryRun,
    /// Applies an object or a status.
    Apply,
    /// Patches an object in another way.
    Patch,
    /// Creates an object.
    Create,
    /// Replaces an object; only the Lease.
    Update,
    /// Deletes an object.
    Delete,
}

/// The number of requests by verb.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Requests([u64; Verb::ALL.len()]);

/// HTTP to one API server.
pub(super) struct Transport {
    name: Arc<str>,
    /// Host and port of the API server.
    server: Arc<str>,
    client: kube::Client,
    places: Semaphore,
    limits: Limits,
    counters: Arc<[AtomicU64; Verb::ALL.len()]>,
    breaker: Arc<Breaker>,
    /// The permissions that the client lacks.
    pub(super) denied: Mutex<Denials>,
    worn: AtomicBool,
    /// Whether the last answer was that the credentials are rejected.
    rejected: AtomicBool,
    crowd: Member,
    /// Without it, writes are always allowed.
    leadership: Option<Leadership>,
    /// Whether only reads are sent.
    pub(super) is_read_only: bool,
    /// The server errors of the control plane. Those of a runtime say enough one by one.
    failing: Option<Failing>,
}

/// One request.
pub(super) struct Ask {
    pub(super) method: Method,
    pub(super) path: String,
    pub(super) verb: Verb,
    pub(super) target: Target,
    pub(super) headers: [Option<(HeaderName, &'static str)>; 2],
    pub(super) body: Bytes,
}

/// A successful answer.
pub(super) struct Answer {
    pub(super) status: StatusCode,
    pub(super) body: Bytes,
}

/// Limit of an answer. A page of 500 custom resources may be large; no API server sends more than this.
const ANSWER_BYTES_MAX: usize = 256 << 20;
/// Idle connections are closed after this. API servers and load balancers drop them later.
const IDLE: Duration = Duration::from_secs(45);

const METADATA: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
const METADATA_LIST: &str = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";

// === impl Limits ===

impl Default for Limits {
    fn default() -> Limits {
        Limits { concurrency: 16, request_timeout: Duration::from_secs(30), connect_timeout: Duration::from_secs(5) }
    }
}

// === impl Network ===

impl Network {
    /// A network over TCP and TLS, with the settings of each configuration.
    pub fn real() -> Network {
        Network::default()
    }

    /// Without sockets: `client` returns the in-process API server for a configuration. Other API servers are reached
    /// over TCP.
    pub fn in_process(client: impl Fn(&kube::Config) -> Option<kube::Client> + Send + Sync + 'static) -> Network {
        Network(Some(Arc::new(client)))
    }

    fn client(&self, config: &kube::Config, limits: &Limits) -> Result<kube::Client, kube::Error> {
        let here = || self.0.as_ref()?(config);
        match here() {
            Some(client) => Ok(client),
            None => client(config, limits),
        }
    }
}

impl fmt::Debug for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "InProcess" } else { "Real" })
    }
}

// === impl Verb ===

impl Verb {
    /// All verbs.
    pub const ALL: [Verb; 9] = [
        Verb::Get,
        Verb::List,
        Verb::Watch,
        Verb::DryRun,
        Verb::Apply,
        Verb::Patch,
        Verb::Create,
        Verb::Update,
        Verb::Delete,
    ];

    /// The name in metrics and audit records.
    pub fn as_str(self) -> &'static str {
        match self {
            Verb::Get => "get",
            Verb::List => "list",
            Verb::Watch => "watch",
            Verb::DryRun => "dry-run",
            Verb::Apply => "apply",
            Verb::Patch => "patch",
            Verb::Create => "create",
            Verb::Update => "update",
            Verb::Delete => "delete",
        }
    }

    /// Whether it changes anything.
    pub fn is_write(self) -> bool {
        match self {
            Verb::Get | Verb::List | Verb::Watch | Verb::DryRun => false,
            Verb::Apply | Verb::Patch | Verb::Create | Verb::Update | Verb::Delete => true,
        }
    }
}

// === impl Requests ===

impl Requests {
    /// The number for one verb.
    pub fn count(&self, verb: Verb) -> u64 {
        self.0[verb as usize]
    }

    /// The number for all verbs.
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }

    /// The number for the verbs that change something.
    pub fn writes(&self) -> u64 {
        Verb::ALL.into_iter().filter(|verb| verb.is_write()).map(|verb| self.count(verb)).sum()
    }

    /// The difference to `earlier`.
    #[must_use]
    pub fn since(&self, earlier: &Requests) -> Requests {
        Requests(std::array::from_fn(|index| self.0[index] - earlier.0[index]))
    }
}

// === impl Transport ===

impl Transport {
    pub(super) fn new(
        name: Arc<str>,
        config: &kube::Config,
        limits: Limits,
        network: &Network,
    ) -> Result<Transport, Error> {
        let client = network
            .client(config, &limits)
            .map_err(|error| Error::Client { cluster: name.clone(), message: client_problem(&error, config) })?;
        let server = server_of(config);
        Ok(Transport {
            name,
            server: server.into(),
            client,
            places: Semaphore::new(limits.concurrency),
            limits,
            counters: Arc::default(),
            breaker: Arc::default(),
            denied: Mutex::default(),
            worn: AtomicBool::new(false),
            rejected: AtomicBool::new(false),
            crowd: Member::default(),
            leadership: None,
            is_read_only: false,
            failing: None,
        })
    }

    /// Without which no write may be sent.
    pub(super) fn leadership(&self) -> Option<&Leadership> {
        self.leadership.as_ref()
    }

    /// The same, but writes are refused without `leadership`.
    pub(super) fn led(self, leadership: Leadership) -> Transport {
        Transport { leadership: Some(leadership), failing: Some(Failing::default()), ..self }
    }

    /// The same, but only reads are sent.
    pub(super) fn read_only(self) -> Transport {
        Transport { is_read_only: true, ..self }
    }

    /// The same, with the breaker and counters of the client that it replaces.
    pub(super) fn replacing(self, other: Option<&Transport>) -> Transport {
        match other {
            Some(other) => {
                Transport { breaker: Arc::clone(&other.breaker), counters: Arc::clone(&other.counters), ..self }
            }
            None => self,
        }
    }

    /// The same, as a member of a crowd.
    pub(super) fn among(self, crowd: Crowd) -> Transport {
        Transport { crowd: Member::joining(crowd), ..self }
    }

    pub(super) fn name(&self) -> Arc<str> {
        Arc::clone(&self.name)
    }

    pub(super) fn server(&self) -> &str {
        &self.server
    }

    pub(super) fn requests(&self) -> Requests {
        Requests(std::array::from_fn(|index| self.counters[index].load(Ordering::Relaxed)))
    }

    pub(super) fn is_worn(&self) -> bool {
        self.worn.load(Ordering::Relaxed)
    }

    pub(super) fn rejects_credentials(&self) -> bool {
        self.rejected.load(Ordering::Relaxed)
    }

    pub(super) fn concurrency(&self) -> usize {
        self.limits.concurrency
    }

    pub(super) fn is_open(&self) -> bool {
        self.breaker.is_open()
    }

    pub(super) fn outage(&self) -> Option<Outage> {
        self.breaker.outage().or_else(|| self.failing.as_ref()?.outage())
    }

    pub(super) async fn recovered(&self) {
        self.breaker.recovered().await;
    }

    /// Wakes those that wait until the cluster is usable again.
    pub(super) fn wake(&self) {
        self.breaker.wake();
    }

    /// The error of a request that did not reach the server, or was not answered.
    pub(super) fn unreachable(&self, cause: Unreachable, sent: bool) -> Error {
        Error::Unreachable { cluster: self.name(), server: Arc::clone(&self.server), cause, sent }
    }

    /// Leaves the cluster alone, which has not answered since then.
    pub(super) fn trip(&self, since: Instant) {
        self.breaker.trip(since, Instant::now());
    }

    /// Sends the next request, even if the cluster is left alone at the moment.
    pub(super) fn probe_now(&self) {
        self.breaker.probe_now(Instant::now());
    }

    /// Sends a request and reads its whole answer.
    pub(super) async fn ask(&self, ask: Ask) -> Result<Answer, Error> {
        self.admit(&ask)?;
        let _request = self.crowd.begin();
        let weight = u32::try_from(self.crowd.weight(self.limits.concurrency)).unwrap_or(1);
        let _places = self.places.acquire_many(weight).await.expect("this semaphore is never closed");
        // Check only now, because waiting for the permit may have taken long.
        match self.leadership.as_ref().filter(|_| ask.verb.is_write()) {
            None => self.exchange(ask).await,
            Some(leadership) if !leadership.is_leading() => Err(Error::NotLeading),
            Some(leadership) => tokio::select! {
                answer = self.exchange(ask) => answer,
                // Opening the connection may take long, too.
                () = leadership.lost() => Err(Error::NotLeading),
            },
        }
    }

    /// Refuses everything but reads if the cluster is read-only. A dry run is refused as well: to RBAC it is a write.
    ///
    /// [`Transport::ask`] and [`Transport::open`] are the only ways to an API server, and both begin with this.
    fn admit(&self, ask: &Ask) -> Result<(), Error> {
        if self.is_read_only && ask.method != Method::GET {
            return Err(Error::ReadOnly { target: ask.target.clone() });
        }
        Ok(())
    }

    async fn exchange(&self, ask: Ask) -> Result<Answer, Error> {
        let (verb, target) = (ask.verb, ask.target.clone());
        let (status, headers, body) = self
            .guarded(async {
                let response = self.send(ask).await?;
                let (parts, body) = response.into_parts();
                let body = Limited::new(body, ANSWER_BYTES_MAX)
                    .collect()
                    .await
                    .map_err(|error| error::of_transport(&*error))?
                    .to_bytes();
                Ok((parts.status, parts.headers, body))
            })
            .await?;
        self.answered(verb, &target, status);
        if status.is_success() {
            return Ok(Answer { status, body });
        }
        Err(self.refusal(&target, status, &headers, &body))
    }

    /// Sends a request with an endless answer: the caller reads the body and limits its time.
    pub(super) async fn open(&self, ask: Ask) -> Result<Body, Error> {
        self.admit(&ask)?;
        let (verb, target) = (ask.verb, ask.target.clone());
        let response = self.guarded(self.send(ask)).await?;
        let status = response.status();
        self.answered(verb, &target, status);
        if status.is_success() {
            return Ok(response.into_body());
        }
        let headers = response.headers().clone();
        let body = self
            .guarded(async {
                let body = Limited::new(response.into_body(), ANSWER_BYTES_MAX).collect().await;
                body.map_err(|error| error::of_transport(&*error))
            })
            .await?;
        Err(self.refusal(&target, status, &headers, &body.to_bytes()))
    }

    /// Runs an exchange with the server: within the time-out, behind the breaker.
    async fn guarded<T>(&self, exchange: impl Future<Output = Result<T, Unreachable>>) -> Result<T, Error> {
        self.breaker.admit(Instant::now()).map_err(|cause| self.unreachable(cause, false))?;
        let result = tokio::time::timeout(self.limits.request_timeout, exchange).await;
        let cause = match result {
            Ok(Ok(value)) => {
                self.breaker.succeeded();
                return Ok(value);
            }
            Ok(Err(cause)) => cause,
            Err(_elapsed) => Unreachable::Timeout,
        };
        self.breaker.failed(cause, Instant::now());
        if matches!(cause, Unreachable::Untrusted | Unreachable::Tls | Unreachable::Dns) {
            self.worn.store(true, Ordering::Relaxed);
        }
        Err(self.unreachable(cause, true))
    }

    /// Records an answer. Wakes those that wait for the end of an outage if it is over.
    fn answered(&self, verb: Verb, target: &Target, status: StatusCode) {
        self.rejected.store(status == StatusCode::UNAUTHORIZED, Ordering::Relaxed);
        let Some(failing) = &self.failing else { return };
        if failing.answered(verb, target, status, Instant::now()) {
            self.breaker.wake();
        }
    }

    async fn send(&self, ask: Ask) -> Result<Response<Body>, Unreachable> {
        self.counters[ask.verb as usize].fetch_add(1, Ordering::Relaxed);
        let mut request = Request::new(Body::from(ask.body));
        *request.method_mut() = ask.method;
        // Paths consist of checked names and encoded values.
        *request.uri_mut() = ask.path.parse().map_err(|_| Unreachable::Broken)?;
        for (name, value) in ask.headers.into_iter().flatten() {
            request.headers_mut().insert(name, HeaderValue::from_static(value));
        }
        self.client.send(request).await.map_err(|error| error::of_transport(&error))
    }

    fn refusal(&self, target: &Target, status: StatusCode, headers: &http::HeaderMap, body: &[u8]) -> Error {
        if matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) {
            self.worn.store(true, Ordering::Relaxed);
        }
        if status == StatusCode::FORBIDDEN
            && let Some(denial) = error::said(body).and_then(|said| Denial::of_message(&said))
        {
            self.denied.lock().add(denial);
        }
        let retry_after = headers.get(RETRY_AFTER).and_then(|value| value.to_str().ok());
        let retry_after = retry_after.and_then(|value| retry::asked(value, ambient::now().into(), BACKOFF_MAX));
        error::of_answer((&self.name, &self.server), target, status, retry_after, body)
    }
}

impl fmt::Debug for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Transport").field(&self.name).finish()
    }
}

/// A client over a connection pool that suits Tidegate's requests.
fn client(config: &kube::Config, limits: &Limits) -> Result<kube::Client, kube::Error> {
    let mut connector = HttpConnector::new();
    connector.enforce_http(false);
    connector.set_nodelay(true);
    connector.set_connect_timeout(Some(limits.connect_timeout));
    // This also detects a vanished peer on an idle connection.
    connector.set_keepalive(Some(Duration::from_secs(30)));
    let connector = config.rustls_https_connector_with_connector(connector)?;
    let http = hyper_util::client::legacy::Client::builder(TokioExecutor::new())
        .pool_timer(TokioTimer::new())
        .pool_idle_timeout(IDLE)
        .pool_max_idle_per_host(limits.concurrency)
        .build::<_, Body>(connector);
    let service = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .option_layer(config.auth_layer()?)
        .layer(config.extra_headers_layer()?)
        .map_err(tower::BoxError::from)
        .service(http);
    Ok(kube::Client::new(service, config.default_namespace.clone()))
}

/// Host and port of the API server that a configuration names.
fn server_of(config: &kube::Config) -> &str {
    config.cluster_url.authority().map_or("unknown server", |authority| authority.as_str())
}

/// What is wrong with the configuration of a client. The errors below contain no content of keys or certificates.
pub fn client_problem(error: &kube::Error, config: &kube::Config) -> String {
    let mut text = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        source = cause.source();
    }
    // The error of rustls. `openssl x509` issues version 1 unless it gets a file of extensions.
    if text.contains("UnsupportedCertVersion") {
        return format!(
            "the client certificate for {} is X.509 version 1, which the TLS library of Tidegate does not support: issue \
             one of version 3, for example with `openssl x509 -req -extfile FILE`, where FILE has an extension such as \
             `extendedKeyUsage = clientAuth`",
            server_of(config)
        );
    }
    text
}

// === impl Ask ===

impl Ask {
    pub(super) fn get(path: String, verb: Verb, target: Target) -> Ask {
        Ask { method: Method::GET, path, verb, target, headers: [None, None], body: Bytes::new() }
    }

    pub(super) fn write(method: Method, path: String, verb: Verb, target: Target, body: Bytes) -> Ask {
        Ask { method, path, verb, target, headers: [None, None], body }
    }

    /// Adds a header that describes the body.
    pub(super) fn header(mut self, name: HeaderName, value: &'static str) -> Ask {
        self.headers[0] = Some((name, value));
        self
    }

    /// Adds the `Accept` header.
    pub(super) fn accept(mut self, value: &'static str) -> Ask {
        self.headers[1] = Some((ACCEPT, value));
        self
    }

    /// Requests only the object's metadata, which has a tenth of the object's size or less.
    pub(super) fn metadata_only(self) -> Ask {
        self.accept(METADATA)
    }

    /// Requests a list of only metadata.
    pub(super) fn metadata_list(self) -> Ask {
        self.accept(METADATA_LIST)
    }
}
