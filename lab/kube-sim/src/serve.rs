// SPDX-License-Identifier: Apache-2.0

//! Serves a server over TLS, on its own loopback port.
//!
//! Each server has its own port, CA, certificate and administrator. To a client it is a cluster like any other, and its
//! kubeconfig looks like a real one. A thousand servers are a thousand sockets of one process.

use std::{
    net::Ipv4Addr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use axum::body::Body;
use http::{Method, Request, Response, StatusCode, Uri};
use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    server::conn::auto,
    service::TowerToHyperService,
};
use rustls::{
    RootCertStore, ServerConfig,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
    server::WebPkiClientVerifier,
};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::watch,
    task::JoinSet,
};
use tokio_rustls::TlsAcceptor;
use tower::ServiceExt as _;

use super::{Server, Service, User};
use crate::{Authority, Credentials, Kubeconfig};

/// Why a server cannot be served over TLS.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No port is available.
    #[error("cannot bind a loopback port")]
    Bind(#[source] std::io::Error),
    /// A certificate cannot be created.
    #[error("cannot create certificates")]
    Certificate(#[source] crate::CredentialsError),
    /// The TLS configuration is invalid.
    #[error("cannot set up TLS: {0}")]
    Tls(String),
}

/// Idle connections are closed after this, as in the real server. Clients close them earlier.
const IDLE_MAX: Duration = Duration::from_secs(90);

/// Lets so many writes through to the servers that share it. Once they are answered, nothing else arrives, as if every
/// further request was still on its way. So a client can be killed between two writes.
#[derive(Clone, Debug)]
pub struct WriteLimit(Arc<LimitState>);

#[derive(Debug)]
struct LimitState {
    writes: Mutex<Writes>,
    /// Whether nothing more arrives.
    reached: watch::Sender<bool>,
}

/// The writes of a [`WriteLimit`].
#[derive(Debug)]
struct Writes {
    left: usize,
    /// Those that are not answered.
    running: usize,
}

/// A server over TLS. It is served as long as this value exists.
pub struct Served {
    server: Server,
    name: String,
    port: u16,
    authority: Authority,
    kubeconfig: Kubeconfig,
    acceptor: TlsAcceptor,
    frozen: watch::Sender<bool>,
    failing: watch::Sender<Option<StatusCode>>,
    limit: Option<WriteLimit>,
    tasks: Mutex<JoinSet<()>>,
}

impl Server {
    /// Serves it on a free port, under this name in its kubeconfig.
    ///
    /// # Errors
    ///
    /// Fails if no port is free or a certificate cannot be created.
    pub async fn listen(&self, name: &str) -> Result<Served, Error> {
        self.listen_for(name, None).await
    }

    /// The same, with a limit for writes.
    ///
    /// # Errors
    ///
    /// Fails as [`Server::listen`].
    pub async fn listen_with(&self, name: &str, limit: WriteLimit) -> Result<Served, Error> {
        self.listen_for(name, Some(limit)).await
    }

    async fn listen_for(&self, name: &str, limit: Option<WriteLimit>) -> Result<Served, Error> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.map_err(Error::Bind)?;
        let port = listener.local_addr().map_err(Error::Bind)?.port();
        let authority = Authority::new(&format!("{name} authority")).map_err(Error::Certificate)?;
        let acceptor = acceptor(&authority)?;
        let admin = authority.client("admin", Some("system:masters")).map_err(Error::Certificate)?;
        let kubeconfig = Kubeconfig {
            name: name.to_owned(),
            server: format!("https://127.0.0.1:{port}"),
            authority: authority.pem().to_owned(),
            credentials: Credentials::Certificate(admin),
        };
        let (frozen, failing) = (watch::Sender::new(false), watch::Sender::new(None));
        let (server, name, tasks) = (self.clone(), name.to_owned(), Mutex::default());
        let served = Served { server, name, port, authority, kubeconfig, acceptor, frozen, failing, limit, tasks };
        served.serve(listener);
        Ok(served)
    }
}

// === impl WriteLimit ===

impl WriteLimit {
    /// Lets so many writes through.
    pub fn new(writes: usize) -> WriteLimit {
        let state =
            LimitState { writes: Mutex::new(Writes { left: writes, running: 0 }), reached: watch::Sender::new(false) };
        WriteLimit(Arc::new(state))
    }

    /// From now on, everything arrives. What was held back does not: its client is gone.
    pub fn lift(&self) {
        self.writes().left = usize::MAX;
        self.0.reached.send_replace(false);
    }

    /// Returns once as many writes are answered as are let through.
    pub async fn reached(&self) {
        let _ = self.0.reached.subscribe().wait_for(|is_reached| *is_reached).await;
    }

    /// Whether a request arrives now.
    fn arrival(&self, method: &Method, uri: &Uri) -> Arrival<'_> {
        let is_read = [Method::GET, Method::HEAD].contains(method);
        let is_write = !is_read && !uri.query().unwrap_or_default().contains("dryRun");
        let mut writes = self.writes();
        match (writes.left, is_write) {
            (0, _) => Arrival::Never,
            (_, false) => Arrival::Read,
            (_, true) => {
                writes.left -= 1;
                writes.running += 1;
                Arrival::Write(RunningWrite(self))
            }
        }
    }

    fn writes(&self) -> MutexGuard<'_, Writes> {
        self.0.writes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether a request arrives at a server with a [`WriteLimit`].
enum Arrival<'a> {
    /// It changes nothing.
    Read,
    /// It is one of the writes. Counted until the answer is made.
    Write(#[expect(dead_code, reason = "dropping it counts")] RunningWrite<'a>),
    /// It comes after the last write.
    Never,
}

/// A write that is not answered.
struct RunningWrite<'a>(&'a WriteLimit);

impl Drop for RunningWrite<'_> {
    fn drop(&mut self) {
        let mut writes = self.0.writes();
        writes.running -= 1;
        if writes.left == 0 && writes.running == 0 {
            self.0.0.reached.send_replace(true);
        }
    }
}

// === impl Served ===

impl Served {
    /// The server.
    pub fn server(&self) -> &Server {
        &self.server
    }

    /// The name of its kubeconfig.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The administrator's kubeconfig.
    pub fn kubeconfig(&self) -> &Kubeconfig {
        &self.kubeconfig
    }

    /// Stops answering requests, but still accepts connections. Open watches continue.
    pub fn freeze(&self) {
        self.frozen.send_replace(true);
    }

    /// Undoes [`Served::freeze`]: pending requests are answered now.
    pub fn thaw(&self) {
        self.frozen.send_replace(false);
    }

    /// From now on, answers every request with this status and without a body, as a load balancer does that has no
    /// server left behind it; `None` ends that. Open watches continue.
    pub fn fail(&self, status: Option<StatusCode>) {
        self.failing.send_replace(status);
    }

    /// Stops it like a crash, with all its connections: new ones are refused. Its objects stay.
    pub async fn stop(&self) {
        let mut tasks = std::mem::take(&mut *self.tasks.lock().unwrap_or_else(PoisonError::into_inner));
        tasks.shutdown().await;
    }

    /// Serves on its old port again after [`Served::stop`].
    ///
    /// # Errors
    ///
    /// Fails if the port is taken.
    pub async fn start_again(&self) -> Result<(), Error> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, self.port)).await.map_err(Error::Bind)?;
        self.serve(listener);
        Ok(())
    }

    fn serve(&self, listener: TcpListener) {
        let limit = self.limit.clone();
        let moods = Moods { frozen: self.frozen.subscribe(), failing: self.failing.subscribe(), limit };
        let accepting = accept(listener, self.acceptor.clone(), self.server.clone(), moods);
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner).spawn(accepting);
    }

    /// A kubeconfig with a client certificate of any user.
    ///
    /// # Errors
    ///
    /// Fails if the certificate cannot be created.
    pub fn kubeconfig_of(&self, user: &str, group: Option<&str>) -> Result<Kubeconfig, Error> {
        let identity = self.authority.client(user, group).map_err(Error::Certificate)?;
        Ok(Kubeconfig { credentials: Credentials::Certificate(identity), ..self.kubeconfig.clone() })
    }

    /// A kubeconfig with a new token, which the server accepts from now on.
    pub fn kubeconfig_with_token(&self, token: &str, user: User) -> Kubeconfig {
        self.server.accept_token(token, user);
        Kubeconfig { credentials: Credentials::Token(token.to_owned()), ..self.kubeconfig.clone() }
    }
}

impl std::fmt::Debug for Served {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Served").field("name", &self.name).field("port", &self.port).finish_non_exhaustive()
    }
}

fn acceptor(authority: &Authority) -> Result<TlsAcceptor, Error> {
    let identity = authority.server("kube-apiserver", &["localhost", "127.0.0.1", "kubernetes.default.svc"]);
    let identity = identity.map_err(Error::Certificate)?;
    let tls = |error: &dyn std::fmt::Display| Error::Tls(error.to_string());
    let mut roots = RootCertStore::empty();
    roots
        .add(CertificateDer::from_pem_slice(authority.pem().as_bytes()).map_err(|error| tls(&error))?)
        .map_err(|error| tls(&error))?;
    let clients = WebPkiClientVerifier::builder(Arc::new(roots)).allow_unauthenticated().build();
    let chain = vec![CertificateDer::from_pem_slice(identity.certificate.as_bytes()).map_err(|error| tls(&error))?];
    let key = PrivateKeyDer::from_pem_slice(identity.key.as_bytes()).map_err(|error| tls(&error))?;
    let mut config = ServerConfig::builder()
        .with_client_cert_verifier(clients.map_err(|error| tls(&error))?)
        .with_single_cert(chain, key)
        .map_err(|error| tls(&error))?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}

/// How a server behaves now.
#[derive(Clone)]
struct Moods {
    frozen: watch::Receiver<bool>,
    failing: watch::Receiver<Option<StatusCode>>,
    limit: Option<WriteLimit>,
}

async fn accept(listener: TcpListener, acceptor: TlsAcceptor, server: Server, moods: Moods) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                // Without a free file descriptor, `accept` fails; the next one may succeed.
                if let Ok((stream, _)) = accepted {
                    connections.spawn(connection(stream, acceptor.clone(), server.clone(), moods.clone()));
                }
            }
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn connection(stream: TcpStream, acceptor: TlsAcceptor, server: Server, moods: Moods) {
    // A client that is gone, or does not speak TLS, needs no handling.
    let _ = stream.set_nodelay(true);
    thawed(moods.frozen.clone()).await;
    let Ok(stream) = acceptor.accept(stream).await else { return };
    let user = stream.get_ref().1.peer_certificates().and_then(|chain| user_of(chain.first()?));
    let service = Service::new(server, user);
    let service = TowerToHyperService::new(tower::service_fn(move |request: Request<_>| {
        let (service, moods) = (service.clone(), moods.clone());
        async move {
            thawed(moods.frozen).await;
            let failing = *moods.failing.borrow();
            let arrival = moods.limit.as_ref().map(|limit| limit.arrival(request.method(), request.uri()));
            if let Some(Arrival::Never) = arrival {
                std::future::pending::<()>().await;
            }
            let answer = match failing {
                None => service.oneshot(request).await,
                Some(status) => {
                    let mut answer = Response::new(Body::empty());
                    *answer.status_mut() = status;
                    Ok(answer)
                }
            };
            drop(arrival);
            answer
        }
    }));
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(IDLE_MAX);
    builder.http2().timer(TokioTimer::new());
    let _ = builder.serve_connection(TokioIo::new(stream), service).await;
}

/// Waits while the server is frozen. A stopped server answers nothing anyway.
async fn thawed(mut frozen: watch::Receiver<bool>) {
    let _ = frozen.wait_for(|frozen| !frozen).await;
}

/// The user of a certificate: its common name and organisations.
fn user_of(certificate: &CertificateDer<'_>) -> Option<User> {
    let (_, parsed) = x509_parser::parse_x509_certificate(certificate).ok()?;
    let subject = parsed.subject();
    let name = subject.iter_common_name().next()?.as_str().ok()?.to_owned();
    let organisations = subject.iter_organization().filter_map(|name| name.as_str().ok());
    let mut groups: Vec<String> = organisations.map(str::to_owned).collect();
    groups.push("system:authenticated".to_owned());
    Some(User { name, groups, ..User::default() })
}
