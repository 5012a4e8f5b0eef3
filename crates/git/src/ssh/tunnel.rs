//! A connection to an ssh server through an HTTP proxy: one CONNECT, and then what the server sends.
//!
//! The proxy gets its own credentials and the host's name. An ssh server speaks first, so its version may follow the
//! proxy's answer at once: nothing after the answer is read here.

use std::sync::Arc;

use rustls::{ClientConfig, RootCertStore, pki_types::ServerName};
use rustls_platform_verifier::Verifier;
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, BufReader},
    net::TcpStream,
};
use tokio_rustls::TlsConnector;

use crate::{
    http,
    proxy::{self, NO_PROXY, Proxy},
};
use tidegate_process::tls;

/// A connection, whatever is below it.
pub(super) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// Why there is no connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Failure {
    /// What the proxy does, or does not.
    Proxy(&'static str),
    /// The given CAs cannot be read.
    Authorities,
}

/// Opens a connection to a host through a proxy. `ca` are the CAs of a proxy with TLS, in PEM; without them, those of
/// the system.
pub(super) async fn open(
    stream: TcpStream,
    proxy: &Proxy,
    ca: Option<&[u8]>,
    (host, port): (&str, u16),
) -> Result<Box<dyn Stream>, Failure> {
    // ssh sends small packets and waits for their answers.
    let _ = stream.set_nodelay(true);
    let mut stream: Box<dyn Stream> =
        if proxy.is_encrypted() { Box::new(encrypt(stream, proxy, ca).await?) } else { Box::new(stream) };
    let cut = |_| Failure::Proxy(NO_PROXY);
    stream.write_all(proxy.request(host, port).as_bytes()).await.map_err(cut)?;
    stream.flush().await.map_err(cut)?;
    let mut stream = BufReader::new(stream);
    let mut head = Vec::new();
    loop {
        head.push(stream.read_u8().await.map_err(cut)?);
        match proxy::answer(&head) {
            None => {}
            Some(Ok(())) => return Ok(Box::new(stream)),
            Some(Err(why)) => return Err(Failure::Proxy(why)),
        }
    }
}

async fn encrypt(
    stream: TcpStream,
    proxy: &Proxy,
    ca: Option<&[u8]>,
) -> Result<tokio_rustls::client::TlsStream<TcpStream>, Failure> {
    let name = ServerName::try_from(proxy.host().to_owned());
    let name = name.map_err(|_| Failure::Proxy("its address cannot be used"))?;
    let connector = TlsConnector::from(Arc::new(config(ca)?));
    connector.connect(name, stream).await.map_err(|error| {
        let found = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
        Failure::Proxy(match found {
            Some(rustls::Error::InvalidCertificate(_)) => {
                "its certificate is not trusted: let the system of Tidegate trust its CA"
            }
            Some(rustls::Error::InvalidMessage(_)) => "it does not speak TLS: use http:// in the address of the proxy",
            _ => "the TLS handshake with it failed",
        })
    })
}

fn config(ca: Option<&[u8]>) -> Result<ClientConfig, Failure> {
    let provider = tls::provider(tls::Algorithms::All);
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider)).with_safe_default_protocol_versions();
    let builder = builder.map_err(|_| Failure::Authorities)?;
    let Some(pem) = ca else {
        let verifier = Verifier::new(provider).map_err(|_| Failure::Proxy("the CAs of the system cannot be read"))?;
        return Ok(builder.dangerous().with_custom_certificate_verifier(Arc::new(verifier)).with_no_client_auth());
    };
    let mut roots = RootCertStore::empty();
    for certificate in http::authorities(pem).map_err(|_| Failure::Authorities)? {
        // One that cannot be read is skipped, as for https.
        let _ = roots.add(certificate.der().to_vec().into());
    }
    Ok(builder.with_root_certificates(roots).with_no_client_auth())
}
