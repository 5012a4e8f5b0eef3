//! What sends: certificates, and HTTP by hand.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose, SanType};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _},
    net::TcpStream,
};

/// What an agent posts.
pub(crate) const BODY: &str = r#"{"watched":{"Namespace":"kyma-system","Name":"default"},"watchedGvk":{"group":"operator.kyma-project.io","version":"v1beta2","kind":"Kyma"}}"#;
/// No answer takes so long.
const ANSWER_MAX: Duration = Duration::from_secs(30);

/// A CA for runtimes.
pub(crate) struct Authority {
    pem: String,
    issuer: Issuer<'static, KeyPair>,
}

/// A certificate and its key, in PEM.
#[derive(Clone)]
pub(crate) struct Leaf {
    pub(crate) certificate: String,
    pub(crate) key: String,
}

impl Authority {
    pub(crate) fn new() -> Authority {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, "klm-watcher-selfsigned-ca");
        let pem = params.self_signed(&key).unwrap().pem();
        Authority { pem, issuer: Issuer::new(params, key) }
    }

    pub(crate) fn pem(&self) -> &str {
        &self.pem
    }

    /// A certificate as a runtime gets it.
    pub(crate) fn issue(&self, common_name: &str, edit: impl FnOnce(&mut CertificateParams)) -> Leaf {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec!["skr-webhook.kyma-system.svc".to_owned()]).unwrap();
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(DnType::OrganizationName, "example");
        if !common_name.is_empty() {
            params.distinguished_name.push(DnType::CommonName, common_name);
        }
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::KeyEncipherment];
        edit(&mut params);
        let certificate = params.signed_by(&key, &self.issuer).unwrap().pem();
        Leaf { certificate, key: key.serialize_pem() }
    }
}

/// Names a domain in a certificate.
pub(crate) fn domain(params: &mut CertificateParams, domain: &str) {
    params.subject_alt_names.insert(0, SanType::DnsName(domain.try_into().unwrap()));
}

/// Ends a certificate before today.
pub(crate) fn expired(params: &mut CertificateParams) {
    (params.not_before, params.not_after) = (rcgen::date_time_ymd(2020, 1, 1), rcgen::date_time_ymd(2021, 1, 1));
}

/// The header of a gateway, as Envoy writes it.
pub(crate) fn xfcc(pem: &str) -> String {
    let encoded =
        pem.replace('\n', "%0A").replace(' ', "%20").replace('+', "%2B").replace('/', "%2F").replace('=', "%3D");
    format!(r#"x-forwarded-client-cert: Hash=ab;Cert="{encoded}";Subject="CN=a,O=b";URI=;DNS=a"#)
}

/// An answer.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    head: String,
    pub(crate) body: String,
}

impl Reply {
    /// A header, by its name in lower case.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let lines = self.head.lines().filter_map(|line| line.split_once(": "));
        lines.filter(|(found, _)| found.eq_ignore_ascii_case(name)).map(|(_, value)| value).next()
    }
}

/// A connection, by hand.
pub(crate) struct Raw<S = TcpStream> {
    pub(crate) stream: S,
    read: Vec<u8>,
}

impl Raw {
    pub(crate) async fn connect(address: SocketAddr) -> Raw {
        Raw::new(TcpStream::connect(address).await.expect("there is a listener"))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Raw<S> {
    pub(crate) fn new(stream: S) -> Raw<S> {
        Raw { stream, read: Vec::new() }
    }

    /// Sends bytes; that the other side is gone shows when an answer is read.
    pub(crate) async fn send(&mut self, bytes: &[u8]) {
        let _ = self.stream.write_all(bytes).await;
        let _ = self.stream.flush().await;
    }

    pub(crate) async fn post(&mut self, header: &str, body: &str) {
        let head = format!(
            "POST /v2/lifecycle-manager/event HTTP/1.1\r\nHost: listener:443\r\nContent-Type: application/json\r\n\
             Content-Length: {}\r\n{header}\r\n\r\n",
            body.len()
        );
        self.send(&[head.as_bytes(), body.as_bytes()].concat()).await;
    }

    /// The next answer.
    pub(crate) async fn reply(&mut self) -> Reply {
        self.try_reply().await.expect("an answer")
    }

    /// The next answer, if there is one.
    pub(crate) async fn try_reply(&mut self) -> Option<Reply> {
        tokio::time::timeout(ANSWER_MAX, self.next_reply()).await.expect("an answer in time")
    }

    async fn next_reply(&mut self) -> Option<Reply> {
        let head = loop {
            if let Some(end) = self.read.windows(4).position(|window| window == b"\r\n\r\n") {
                let head: Vec<u8> = self.read.drain(..end + 4).collect();
                break String::from_utf8(head).expect("UTF-8");
            }
            self.more().await?;
        };
        let status = head.split(' ').nth(1)?.parse().ok()?;
        let mut reply = Reply { status, head, body: String::new() };
        let length: usize = reply.header("content-length").map_or(0, |length| length.parse().expect("a number"));
        while self.read.len() < length {
            self.more().await?;
        }
        reply.body = String::from_utf8(self.read.drain(..length).collect()).expect("UTF-8");
        Some(reply)
    }

    async fn more(&mut self) -> Option<()> {
        let mut buffer = [0; 4096];
        match self.stream.read(&mut buffer).await {
            Ok(0) | Err(_) => None,
            Ok(read) => {
                self.read.extend_from_slice(&buffer[..read]);
                Some(())
            }
        }
    }

    /// Whether the other side ends the connection without a word.
    pub(crate) async fn is_closed(&mut self) -> bool {
        self.try_reply().await.is_none()
    }
}

/// Sends an event over a connection of its own.
pub(crate) async fn post(address: SocketAddr, header: &str, body: &str) -> Reply {
    let mut connection = Raw::connect(address).await;
    connection.post(header, body).await;
    connection.reply().await
}

/// Sends a request of any sort: method and path, header lines, a body with its length.
pub(crate) async fn request(address: SocketAddr, what: &str, headers: &[&str], body: &[u8]) -> Reply {
    let mut connection = Raw::connect(address).await;
    let mut head = format!("{what} HTTP/1.1\r\nhost: listener\r\n");
    for header in headers {
        head.push_str(header);
        head.push_str("\r\n");
    }
    if !body.is_empty() {
        head.push_str(&format!("content-length: {}\r\n", body.len()));
    }
    head.push_str("\r\n");
    connection.send(&[head.as_bytes(), body].concat()).await;
    connection.reply().await
}

/// How a client does TLS.
pub(crate) struct TlsClient {
    pub(crate) config: Arc<rustls::ClientConfig>,
}

impl TlsClient {
    /// Trusts one CA and presents a certificate, if there is one.
    pub(crate) fn new(trusted: &str, leaf: Option<&Leaf>) -> TlsClient {
        TlsClient::with(rustls::crypto::ring::default_provider(), &[&rustls::version::TLS13], trusted, leaf)
    }

    pub(crate) fn with(
        provider: rustls::crypto::CryptoProvider,
        versions: &[&'static rustls::SupportedProtocolVersion],
        trusted: &str,
        leaf: Option<&Leaf>,
    ) -> TlsClient {
        use rustls::pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _};
        let mut roots = rustls::RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(trusted.as_bytes()).unwrap()).unwrap();
        let builder = rustls::ClientConfig::builder_with_provider(Arc::new(provider))
            .with_protocol_versions(versions)
            .unwrap()
            .with_root_certificates(roots);
        let config = match leaf {
            None => builder.with_no_client_auth(),
            Some(leaf) => {
                let chain = CertificateDer::pem_slice_iter(leaf.certificate.as_bytes()).map(Result::unwrap).collect();
                builder
                    .with_client_auth_cert(chain, PrivateKeyDer::from_pem_slice(leaf.key.as_bytes()).unwrap())
                    .unwrap()
            }
        };
        TlsClient { config: Arc::new(config) }
    }

    /// A new connection; fails where the handshake does.
    pub(crate) async fn connect(
        &self,
        address: SocketAddr,
    ) -> std::io::Result<Raw<tokio_rustls::client::TlsStream<TcpStream>>> {
        let stream = TcpStream::connect(address).await?;
        let name = rustls::pki_types::ServerName::try_from("listener.example").expect("a name");
        tokio_rustls::TlsConnector::from(Arc::clone(&self.config)).connect(name, stream).await.map(Raw::new)
    }

    /// Sends an event over a new connection; none if there is no answer. With TLS 1.3 a client learns only then that
    /// its certificate was refused.
    pub(crate) async fn post(&self, address: SocketAddr, body: &str) -> Option<Reply> {
        let mut connection = self.connect(address).await.ok()?;
        connection.post("x-test: a", body).await;
        connection.try_reply().await
    }
}
