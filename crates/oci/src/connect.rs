//! Connections to registries: over TCP, with TLS on ring, without a proxy, and not to addresses that are refused.

use std::{
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use http::Uri;
use http_body_util::Empty;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::{
    client::legacy::Client,
    rt::{TokioExecutor, TokioIo, TokioTimer},
};
use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, pem::PemObject},
};
use rustls_platform_verifier::Verifier;
use tidegate_process::{address, tls};
use tokio::{net::TcpStream, time::timeout};
use tower::Service;

use super::{error::Error, limits::CONNECT_MAX};

/// A client with its pool of connections.
pub(super) type Http = Client<HttpsConnector<Connector>, Empty<Bytes>>;

/// Idle connections are closed after this. Registries and load balancers drop them later.
const IDLE: Duration = Duration::from_secs(45);
/// Idle connections to one host: as many as downloads run at a time.
const IDLE_CONNECTIONS_MAX: usize = super::limits::DOWNLOADS_MAX;

/// Opens TCP connections.
#[derive(Clone, Copy, Debug)]
pub(super) struct Connector;

/// Why a connection was not opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Refused {
    /// The host has an address that Tidegate never connects to.
    #[error("a link-local or metadata address")]
    Address,
    /// The host has no address.
    #[error("cannot resolve the host name")]
    NoName,
}

/// A client that trusts `ca`, or else what the system trusts.
pub(super) fn client(ca: Option<&[u8]>) -> Result<Http, Error> {
    let connector = HttpsConnectorBuilder::new()
        .with_tls_config(tls_config(ca)?)
        .https_or_http()
        .enable_http1()
        .wrap_connector(Connector);
    Ok(Client::builder(TokioExecutor::new())
        .pool_timer(TokioTimer::new())
        .pool_idle_timeout(IDLE)
        .pool_max_idle_per_host(IDLE_CONNECTIONS_MAX)
        .build(connector))
}

fn tls_config(ca: Option<&[u8]>) -> Result<ClientConfig, Error> {
    let provider = tls::provider(tls::Algorithms::All);
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|_| Error::SystemAuthorities)?;
    let Some(pem) = ca else {
        let verifier = Verifier::new(provider).map_err(|_| Error::SystemAuthorities)?;
        return Ok(builder.dangerous().with_custom_certificate_verifier(Arc::new(verifier)).with_no_client_auth());
    };
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(pem) {
        roots.add(certificate.map_err(|_| Error::Authorities)?).map_err(|_| Error::Authorities)?;
    }
    if roots.is_empty() {
        Err(Error::Authorities)
    } else {
        Ok(builder.with_root_certificates(roots).with_no_client_auth())
    }
}

async fn connect(uri: Uri) -> io::Result<TokioIo<TcpStream>> {
    let host = uri.host().unwrap_or_default().trim_start_matches('[').trim_end_matches(']').to_owned();
    let port = uri.port_u16().unwrap_or(if uri.scheme_str() == Some("http") { 80 } else { 443 });
    let found = tokio::net::lookup_host((host, port)).await.map_err(|_| io::Error::other(Refused::NoName))?;
    let addresses: Vec<_> = found.collect();
    // One forbidden address among valid ones is suspicious, so refuse the name.
    if addresses.iter().any(|found| address::is_forbidden(found.ip())) {
        return Err(io::Error::other(Refused::Address));
    }
    let mut failure = io::Error::other(Refused::NoName);
    for address in addresses {
        match timeout(CONNECT_MAX, TcpStream::connect(address)).await {
            Ok(Ok(stream)) => {
                stream.set_nodelay(true)?;
                return Ok(TokioIo::new(stream));
            }
            Ok(Err(error)) => failure = error,
            Err(_) => failure = io::ErrorKind::TimedOut.into(),
        }
    }
    Err(failure)
}

// === impl Connector ===

impl Service<Uri> for Connector {
    type Response = TokioIo<TcpStream>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<TokioIo<TcpStream>>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        Box::pin(connect(uri))
    }
}
