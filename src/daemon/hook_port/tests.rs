use axum::{Router, routing::post};
use rcgen::{CertificateParams, KeyPair};
use rustls::{ClientConfig, RootCertStore, pki_types::ServerName};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _},
    net::TcpStream,
};
use tokio_rustls::TlsConnector;

use super::*;

const REQUEST: &[u8] = b"POST /hooks/a/b HTTP/1.1\r\nhost: localhost\r\ncontent-length: 2\r\n\r\n{}";

/// Writes a certificate for localhost and its key, and returns the certificate.
fn write_pair(folder: &Path) -> CertificateDer<'static> {
    let key = KeyPair::generate().unwrap();
    let certificate = CertificateParams::new(vec!["localhost".to_owned()]).unwrap().self_signed(&key).unwrap();
    std::fs::write(folder.join("tls.crt"), certificate.pem()).unwrap();
    std::fs::write(folder.join("tls.key"), key.serialize_pem()).unwrap();
    certificate.der().clone()
}

fn config(folder: Option<&Path>) -> config::Hooks {
    config::Hooks {
        address: Some("127.0.0.1:0".parse().unwrap()),
        certificate: folder.map(|folder| (folder.join("tls.crt"), folder.join("tls.key"))),
        trusted_peers: Peers::loopback(),
    }
}

/// A port that answers each delivery with 202, and its address. It ends with the token.
fn started(folder: Option<&Path>, stop: &CancellationToken) -> (SocketAddr, JoinSet<()>, Option<Certificate>) {
    let port = HookPort::bind(&config(folder), Threads::start().unwrap()).unwrap();
    let socket = port.socket.unwrap();
    let address = socket.local_addr().unwrap();
    let router = Router::new().route("/hooks/{namespace}/{name}", post(async || axum::http::StatusCode::ACCEPTED));
    let tls = port.certificate.as_ref().map(|certificate| certificate.served.subscribe());
    let mut tasks = JoinSet::new();
    tasks.spawn(serve::serve(socket, tls, router, stop.clone()));
    (address, tasks, port.certificate)
}

/// The status line of the answer to a delivery.
async fn status<S: AsyncRead + AsyncWrite + Unpin>(stream: &mut S) -> String {
    stream.write_all(REQUEST).await.unwrap();
    let mut answer = vec![0; 512];
    let length = stream.read(&mut answer).await.unwrap();
    String::from_utf8_lossy(&answer[..length]).lines().next().unwrap_or_default().to_owned()
}

async fn over_tls(address: SocketAddr, trusted: &CertificateDer<'static>) -> std::io::Result<String> {
    let mut roots = RootCertStore::empty();
    roots.add(trusted.clone()).unwrap();
    let config = ClientConfig::builder_with_provider(provider(Algorithms::All))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let stream = TcpStream::connect(address).await?;
    let name = ServerName::try_from("localhost").unwrap();
    let mut stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await?;
    Ok(status(&mut stream).await)
}

#[tokio::test]
async fn deliveries_come_over_tls_with_the_certificate_of_the_files() {
    let folder = tempfile::tempdir().unwrap();
    let trusted = write_pair(folder.path());
    let stop = CancellationToken::new();
    let (address, mut tasks, certificate) = started(Some(folder.path()), &stop);
    assert_eq!(over_tls(address, &trusted).await.unwrap(), "HTTP/1.1 202 Accepted");
    // A new pair is served to new connections.
    let renewed = write_pair(folder.path());
    let certificate = certificate.unwrap();
    let files = certificate.read().await.unwrap();
    certificate.served.send_replace(Arc::new(server_config(&files.0, &files.1).unwrap()));
    assert_eq!(over_tls(address, &renewed).await.unwrap(), "HTTP/1.1 202 Accepted");
    assert!(over_tls(address, &trusted).await.is_err());
    stop.cancel();
    while tasks.join_next().await.is_some() {}
    assert!(TcpStream::connect(address).await.is_err(), "it ends when it is stopped");
}

#[tokio::test]
async fn connections_that_never_end_leave_room_for_a_delivery() {
    let stop = CancellationToken::new();
    let (address, _tasks, _) = started(None, &stop);
    let mut stalled = Vec::new();
    for _ in 0..600 {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(b"POST /hooks/a/b HTTP/1.1\r\nhost: loc").await.unwrap();
        stalled.push(stream);
    }
    let mut stream = TcpStream::connect(address).await.unwrap();
    assert_eq!(status(&mut stream).await, "HTTP/1.1 202 Accepted");
    assert_eq!(status(&mut stream).await, "HTTP/1.1 202 Accepted", "the connection is kept");
    stop.cancel();
}

#[test]
fn a_certificate_that_cannot_be_served_fails_the_start() {
    let folder = tempfile::tempdir().unwrap();
    let text = |folder: &Path| match Certificate::open(&folder.join("tls.crt"), &folder.join("tls.key")) {
        Ok(_) => String::new(),
        Err(error) => format!("{error:#}"),
    };
    assert!(text(folder.path()).starts_with("cannot read "));
    write_pair(folder.path());
    assert_eq!(text(folder.path()), "");
    std::fs::write(folder.path().join("tls.key"), KeyPair::generate().unwrap().serialize_pem()).unwrap();
    assert!(text(folder.path()).contains("the key does not match the certificate"), "{}", text(folder.path()));
    std::fs::write(folder.path().join("tls.key"), "no key").unwrap();
    assert!(text(folder.path()).ends_with("the key is not PEM"), "{}", text(folder.path()));
    std::fs::write(folder.path().join("tls.crt"), "no certificate").unwrap();
    assert!(text(folder.path()).ends_with("the certificate is not PEM"), "{}", text(folder.path()));
}
