//! The control plane's side of the watch path, as an agent sees it: TLS with client certificates, and an answer.
//!
//! It accepts and counts every event but does not check it, so that a benchmark measures only the agent.

use std::{
    convert::Infallible,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::{
    body::Incoming,
    client::conn::http1::{self as client, SendRequest},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::TokioIo;
use rustls::{
    ClientConfig, RootCertStore, ServerConfig,
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject},
    server::WebPkiClientVerifier,
};
use tokio::{
    net::{TcpListener, TcpStream},
    task::JoinSet,
};
use tokio_rustls::{TlsAcceptor, TlsConnector};

use super::Error;
use kube_sim::{Authority, Identity};
use tidegate_process::tls::{self, Algorithms};

/// A gateway that accepts events. Dropping it stops the gateway.
#[derive(Debug)]
pub struct Gateway {
    address: SocketAddr,
    events: Arc<AtomicU64>,
    _tasks: JoinSet<()>,
}

/// A TLS connection for consecutive requests.
#[derive(Debug)]
pub struct Caller {
    requests: SendRequest<Full<Bytes>>,
    _tasks: JoinSet<()>,
}

// === impl Gateway ===

impl Gateway {
    /// Starts a gateway on a free port with the certificate `identity`, for clients of `authority`.
    ///
    /// # Errors
    ///
    /// Fails if the certificate cannot be used or no port is free.
    pub async fn start(authority: &Authority, identity: &Identity) -> Result<Gateway, Error> {
        let config = Arc::new(server_config(authority, identity)?);
        let listener = TcpListener::bind("127.0.0.1:0").await.map_err(network)?;
        let address = listener.local_addr().map_err(network)?;
        let events = Arc::new(AtomicU64::new(0));
        let mut tasks = JoinSet::new();
        tasks.spawn(accept(listener, TlsAcceptor::from(config), Arc::clone(&events)));
        Ok(Gateway { address, events, _tasks: tasks })
    }

    /// Its address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The number of accepted events.
    pub fn events(&self) -> u64 {
        self.events.load(Ordering::Relaxed)
    }
}

async fn accept(listener: TcpListener, acceptor: TlsAcceptor, events: Arc<AtomicU64>) {
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        let (acceptor, events) = (acceptor.clone(), Arc::clone(&events));
        connections.spawn(async move {
            let Ok(stream) = acceptor.accept(stream).await else { return };
            let service = service_fn(|request: Request<Incoming>| {
                let events = Arc::clone(&events);
                async move { Ok::<_, Infallible>(answer(request, &events).await) }
            });
            // The client sees how its connection ends.
            let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

async fn answer(request: Request<Incoming>, events: &AtomicU64) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::default());
    if request.method() == Method::POST && request.into_body().collect().await.is_ok() {
        events.fetch_add(1, Ordering::Relaxed);
    } else {
        *response.status_mut() = StatusCode::METHOD_NOT_ALLOWED;
    }
    response
}

// === impl Caller ===

impl Caller {
    /// Connects as an API server connects to a webhook.
    ///
    /// # Errors
    ///
    /// Fails if the connection or the TLS handshake fails.
    pub async fn connect(authority: &Authority, name: &str, address: SocketAddr) -> Result<Caller, Error> {
        let config = ClientConfig::builder_with_provider(tls::provider(Algorithms::All))
            .with_safe_default_protocol_versions()
            .map_err(broken)?
            .with_root_certificates(roots(authority)?)
            .with_no_client_auth();
        let stream = TcpStream::connect(address).await.map_err(network)?;
        stream.set_nodelay(true).map_err(network)?;
        let name = ServerName::try_from(name.to_owned()).map_err(broken)?;
        let stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await.map_err(network)?;
        let (requests, connection) = client::handshake(TokioIo::new(stream)).await.map_err(broken)?;
        let mut tasks = JoinSet::new();
        tasks.spawn(async move { drop(connection.await) });
        Ok(Caller { requests, _tasks: tasks })
    }

    /// Posts a body and reads the answer.
    ///
    /// # Errors
    ///
    /// Fails if the connection is lost.
    pub async fn post(&mut self, path: &str, body: Bytes) -> Result<StatusCode, Error> {
        self.requests.ready().await.map_err(broken)?;
        let request =
            Request::post(path).header(http::header::HOST, "webhook").body(Full::new(body)).map_err(broken)?;
        let response = self.requests.send_request(request).await.map_err(broken)?;
        let status = response.status();
        response.into_body().collect().await.map_err(broken)?;
        Ok(status)
    }
}

fn server_config(authority: &Authority, identity: &Identity) -> Result<ServerConfig, Error> {
    let provider = tls::provider(Algorithms::All);
    let verifier =
        WebPkiClientVerifier::builder_with_provider(Arc::new(roots(authority)?), Arc::clone(&provider)).build();
    let chain = vec![CertificateDer::from_pem_slice(identity.certificate.as_bytes()).map_err(broken)?];
    let key = PrivateKeyDer::from_pem_slice(identity.key.as_bytes()).map_err(broken)?;
    ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(broken)?
        .with_client_cert_verifier(verifier.map_err(broken)?)
        .with_single_cert(chain, key)
        .map_err(broken)
}

fn roots(authority: &Authority) -> Result<RootCertStore, Error> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(authority.pem().as_bytes()).map_err(broken)?).map_err(broken)?;
    Ok(roots)
}

fn network(source: std::io::Error) -> Error {
    Error::Network { source }
}

fn broken(error: impl std::error::Error + Send + Sync + 'static) -> Error {
    Error::Network { source: std::io::Error::other(error) }
}
