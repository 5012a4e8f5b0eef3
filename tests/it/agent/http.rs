//! A minimal HTTP/1.1, written and parsed by hand, so that tests see the bytes on the wire.

use std::{io, sync::Arc, time::Duration};

use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, ServerName, pem::PemObject},
};
use tidegate_process::tls::{self, Algorithms};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _},
    net::TcpStream,
    time::timeout,
};
use tokio_rustls::{TlsConnector, client::TlsStream};

/// Longest time for anything that a test waits for.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// A message: its first line, its headers as they came, its body.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Message {
    pub(crate) first: String,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Message {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(found, _)| found.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
    }

    pub(crate) fn status(&self) -> u16 {
        self.first.split(' ').nth(1).unwrap().parse().unwrap()
    }

    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }
}

/// Reads a message; `None` at the end of the connection.
pub(crate) async fn read(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<Option<Message>> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        if stream.read(&mut byte).await? == 0 {
            return Ok(None);
        }
        head.push(byte[0]);
    }
    let head = String::from_utf8(head).unwrap();
    let mut lines = head.trim_end().split("\r\n");
    let mut message = Message { first: lines.next().unwrap().to_owned(), ..Message::default() };
    message.headers =
        lines.filter_map(|line| line.split_once(": ")).map(|(name, value)| (name.into(), value.into())).collect();
    let length = message.header("content-length").map_or(0, |length| length.parse().unwrap());
    message.body = vec![0; length];
    stream.read_exact(&mut message.body).await?;
    Ok(Some(message))
}

/// Sends bytes and reads the answer.
pub(crate) async fn ask(stream: &mut (impl AsyncRead + AsyncWrite + Unpin), bytes: &[u8]) -> Option<Message> {
    let exchange = async {
        // The server may answer and close before it has read everything.
        let _ = stream.write_all(bytes).await;
        let _ = stream.flush().await;
        read(stream).await.ok().flatten()
    };
    timeout(PATIENCE, exchange).await.expect("an answer in time")
}

/// A POST with a body and its length.
pub(crate) fn post(path: &str, body: &[u8]) -> Vec<u8> {
    let head = format!("POST {path} HTTP/1.1\r\nHost: agent\r\nContent-Length: {}\r\n\r\n", body.len());
    [head.as_bytes(), body].concat()
}

/// A GET.
pub(crate) fn get(path: &str) -> Vec<u8> {
    format!("GET {path} HTTP/1.1\r\nHost: agent\r\n\r\n").into_bytes()
}

/// The TLS settings of a client that trusts one CA.
pub(crate) fn trusting(bundle: &str) -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(bundle.as_bytes()) {
        roots.add(certificate.unwrap()).unwrap();
    }
    let config = ClientConfig::builder_with_provider(tls::provider(Algorithms::All))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    Arc::new(config)
}

/// Opens TLS on a connection.
pub(crate) async fn secured(
    config: Arc<ClientConfig>,
    name: &'static str,
    stream: TcpStream,
) -> io::Result<TlsStream<TcpStream>> {
    TlsConnector::from(config).connect(ServerName::try_from(name).unwrap(), stream).await
}
