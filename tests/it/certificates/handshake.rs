//! Whether a runtime can connect to the control plane, with the certificates of both: TLS 1.3 with client certificates.

use std::sync::Arc;

use rustls::{
    ClientConfig, ClientConnection, RootCertStore, ServerConfig, ServerConnection,
    client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime, pem::PemObject as _},
    server::WebPkiClientVerifier,
};

/// Performs a handshake. An error names the side that rejects it, and the reason.
pub(crate) fn shake(
    host: &str,
    server: (&[u8], &[u8]),
    trusted_by_server: &[u8],
    client: (&[u8], &[u8]),
    trusted_by_client: &[u8],
) -> Result<(), String> {
    tidegate_process::tls::install();
    let text = |error: rustls::Error| error.to_string();
    let clients = Arc::new(store(trusted_by_server)?);
    let verifier = WebPkiClientVerifier::builder(clients).build().map_err(|error| error.to_string())?;
    let (chain, key) = pair(server)?;
    let server = ServerConfig::builder_with_protocol_versions(&[&rustls::version::TLS13])
        .with_client_cert_verifier(verifier)
        .with_single_cert(chain, key)
        .map_err(text)?;
    let (chain, key) = pair(client)?;
    let client = ClientConfig::builder_with_protocol_versions(&[&rustls::version::TLS13])
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(AsGo::new(trusted_by_client)?))
        .with_client_auth_cert(chain, key)
        .map_err(text)?;
    let name = ServerName::try_from(host.to_owned()).map_err(|error| error.to_string())?;
    let mut client = ClientConnection::new(Arc::new(client), name).map_err(text)?;
    let mut server = ServerConnection::new(Arc::new(server)).map_err(text)?;
    for _ in 0..4 {
        let mut up = Vec::new();
        client.write_tls(&mut up).map_err(|error| error.to_string())?;
        server.read_tls(&mut up.as_slice()).map_err(|error| error.to_string())?;
        server.process_new_packets().map_err(|error| format!("the server refuses: {error}"))?;
        let mut down = Vec::new();
        server.write_tls(&mut down).map_err(|error| error.to_string())?;
        client.read_tls(&mut down.as_slice()).map_err(|error| error.to_string())?;
        client.process_new_packets().map_err(|error| format!("the client refuses: {error}"))?;
    }
    if client.is_handshaking() || server.is_handshaking() { Err("it does not end".to_owned()) } else { Ok(()) }
}

fn store(bundle: &[u8]) -> Result<RootCertStore, String> {
    let mut store = RootCertStore::empty();
    for certificate in certificates(bundle)? {
        store.add(certificate).map_err(|error| error.to_string())?;
    }
    Ok(store)
}

fn certificates(text: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    CertificateDer::pem_slice_iter(text).collect::<Result<_, _>>().map_err(|error| error.to_string())
}

fn pair((chain, key): (&[u8], &[u8])) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>), String> {
    Ok((certificates(chain)?, PrivateKeyDer::from_pem_slice(key).map_err(|error| error.to_string())?))
}

/// How Go verifies a server: a certificate in the bundle itself is valid too, such as that of Lifecycle Manager's
/// gateway.
#[derive(Debug)]
struct AsGo {
    bundle: Vec<CertificateDer<'static>>,
    inner: Arc<rustls::client::WebPkiServerVerifier>,
}

impl AsGo {
    fn new(bundle: &[u8]) -> Result<AsGo, String> {
        let inner = rustls::client::WebPkiServerVerifier::builder(Arc::new(store(bundle)?)).build();
        Ok(AsGo { bundle: certificates(bundle)?, inner: inner.map_err(|error| error.to_string())? })
    }
}

impl ServerCertVerifier for AsGo {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        if self.bundle.iter().any(|known| known.as_ref() == end_entity.as_ref()) {
            return Ok(ServerCertVerified::assertion());
        }
        self.inner.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &rustls::DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.inner.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &rustls::DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.inner.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<rustls::SignatureScheme> {
        self.inner.supported_verify_schemes()
    }
}
