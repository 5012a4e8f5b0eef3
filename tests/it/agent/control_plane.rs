//! The control plane's end: TLS 1.3 with client certificates, and whatever a test wants it to answer.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use rustls::{
    RootCertStore, ServerConfig,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
    server::WebPkiClientVerifier,
    version::TLS13,
};
use tidegate_process::tls::{self, Algorithms};
use tokio::{
    io::AsyncWriteExt as _,
    net::{TcpListener, TcpStream},
    task::{JoinHandle, JoinSet},
};
use tokio_rustls::TlsAcceptor;

use super::{
    certificates::{Authority, Identity},
    http::{self, Message},
};

/// The answer to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Reply {
    /// A status, and more headers.
    Status(u16, &'static str),
    /// No answer.
    Silence,
    /// No answer to paths that contain this; 200 to others.
    SilenceFor(&'static str),
    /// A status for events. Probes succeed.
    Refuse(u16),
    /// The connection is closed without an answer.
    Close,
}

/// A request that arrived, and its sender.
#[derive(Clone, Debug)]
pub(crate) struct Received {
    pub(crate) message: Message,
    /// Which connection it came on, counted from 1.
    pub(crate) connection: usize,
    /// The certificate that the client showed.
    pub(crate) certificate: Vec<u8>,
    /// The name that it asked for.
    pub(crate) server_name: Option<String>,
    pub(crate) at: Instant,
}

/// A control plane. Ends with its last handle.
pub(crate) struct ControlPlane {
    pub(crate) address: SocketAddr,
    shared: Arc<Shared>,
    task: Option<JoinHandle<()>>,
}

struct Shared {
    received: Mutex<Vec<Received>>,
    reply: Mutex<Reply>,
    config: Mutex<Arc<ServerConfig>>,
}

/// TLS settings of the gateway.
pub(crate) fn config(server: &Identity, clients: &[&Authority]) -> Arc<ServerConfig> {
    let provider = tls::provider(Algorithms::All);
    let mut roots = RootCertStore::empty();
    for authority in clients {
        roots.add(CertificateDer::from_pem_slice(authority.pem.as_bytes()).unwrap()).unwrap();
    }
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider)).build().unwrap();
    let config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&TLS13])
        .unwrap()
        .with_client_cert_verifier(verifier)
        .with_single_cert(
            vec![CertificateDer::from_pem_slice(server.certificate.as_bytes()).unwrap()],
            PrivateKeyDer::from_pem_slice(server.key.as_bytes()).unwrap(),
        );
    Arc::new(config.unwrap())
}

impl ControlPlane {
    pub(crate) async fn start(config: Arc<ServerConfig>) -> ControlPlane {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let shared = Arc::new(Shared {
            received: Mutex::default(),
            reply: Mutex::new(Reply::Status(200, "")),
            config: Mutex::new(config),
        });
        let address = listener.local_addr().unwrap();
        let task = Some(tokio::spawn(accept(listener, Arc::clone(&shared))));
        ControlPlane { address, shared, task }
    }

    /// Sets the answer from now on.
    pub(crate) fn reply(&self, reply: Reply) {
        *self.shared.reply.lock().unwrap() = reply;
    }

    /// Sets the TLS settings of new connections.
    pub(crate) fn secure(&self, config: Arc<ServerConfig>) {
        *self.shared.config.lock().unwrap() = config;
    }

    /// Stops: closes all connections and refuses new ones.
    pub(crate) async fn stop(&mut self) {
        let task = self.task.take().unwrap();
        task.abort();
        let _ = task.await;
    }

    /// Starts again.
    pub(crate) async fn resume(&mut self) {
        let listener = TcpListener::bind(self.address).await.unwrap();
        self.task = Some(tokio::spawn(accept(listener, Arc::clone(&self.shared))));
    }

    /// All requests so far.
    pub(crate) fn received(&self) -> Vec<Received> {
        self.shared.received.lock().unwrap().clone()
    }

    /// The bodies of all events so far.
    pub(crate) fn events(&self) -> Vec<String> {
        let posts = self.received().into_iter().filter(|received| received.message.first.starts_with("POST "));
        posts.map(|received| String::from_utf8(received.message.body).unwrap()).collect()
    }

    /// Waits for this number of events.
    pub(crate) async fn wait_for(&self, count: usize) -> Vec<String> {
        let deadline = Instant::now() + http::PATIENCE;
        loop {
            let events = self.events();
            if count <= events.len() {
                return events;
            }
            assert!(Instant::now() < deadline, "{count} events were expected: {events:?}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

impl Drop for ControlPlane {
    fn drop(&mut self) {
        if let Some(task) = &self.task {
            task.abort();
        }
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    let mut connections = JoinSet::new();
    for number in 1.. {
        let (stream, _) = listener.accept().await.unwrap();
        connections.spawn(serve(stream, number, Arc::clone(&shared)));
    }
}

async fn serve(stream: TcpStream, connection: usize, shared: Arc<Shared>) {
    let config = Arc::clone(&shared.config.lock().unwrap());
    let Ok(mut stream) = TlsAcceptor::from(config).accept(stream).await else { return };
    let session = stream.get_ref().1;
    let certificate = session.peer_certificates().unwrap()[0].to_vec();
    let server_name = session.server_name().map(str::to_owned);
    while let Ok(Some(message)) = http::read(&mut stream).await {
        let at = Instant::now();
        let is_probe = message.first.starts_with("GET ");
        let first = message.first.clone();
        let (certificate, server_name) = (certificate.clone(), server_name.clone());
        let received = Received { message, connection, certificate, server_name, at };
        shared.received.lock().unwrap().push(received);
        let reply = shared.reply.lock().unwrap().clone();
        let (status, headers) = match reply {
            // A listener answers 405 to every method but POST.
            Reply::Status(200, headers) if is_probe => (405, headers),
            Reply::Status(status, headers) => (status, headers),
            Reply::SilenceFor(part) if !first.contains(part) => (200, ""),
            Reply::Silence | Reply::SilenceFor(_) => std::future::pending().await,
            Reply::Refuse(status) => (if is_probe { 405 } else { status }, ""),
            Reply::Close => return,
        };
        let answer = format!("HTTP/1.1 {status} As Told\r\nContent-Length: 0\r\n{headers}\r\n");
        if stream.write_all(answer.as_bytes()).await.is_err() {
            return;
        }
    }
}
