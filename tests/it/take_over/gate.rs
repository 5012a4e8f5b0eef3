//! A gate in front of real API servers: it lets some writes of a program through and stops the next one, before it
//! arrives or before it is answered, so that the program can be killed at exactly that point.

use std::sync::{Arc, Mutex, PoisonError};

use axum::{
    Router,
    body::{Body, to_bytes},
    extract::{Request, State},
    http::{Method, StatusCode, header},
    response::Response,
};
use hyper_util::{
    rt::{TokioExecutor, TokioIo},
    server::conn::auto,
    service::TowerToHyperService,
};
use kube::Client;
use kube_sim::{Authority, Kubeconfig};
use rustls::{
    ServerConfig,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
};
use tokio::{net::TcpListener, sync::watch, task::JoinSet};
use tokio_rustls::TlsAcceptor;

/// A loopback address that leads to an API server. It ends with this value.
pub(super) struct Gate {
    /// Leads to the address.
    pub(super) kubeconfig: Kubeconfig,
    _tasks: JoinSet<()>,
}

/// What the gates of a landscape let through. Clones share it.
#[derive(Clone)]
pub(super) struct Barrier(Arc<Shared>);

struct Shared {
    open: Mutex<Open>,
    /// Whether a write was stopped.
    stopped: watch::Sender<bool>,
    /// How many requests are on their way to the servers.
    running: watch::Sender<usize>,
}

struct Open {
    /// How many writes more.
    left: usize,
    /// Where the write after them ends.
    end: End,
    /// Whether that write has come: nothing passes any more.
    is_over: bool,
    /// How often everything was let through again. Nothing arrives over a connection from before that.
    era: usize,
    /// Method and path of the writes that arrived.
    writes: Vec<String>,
}

/// Where a write ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// It does not arrive.
    BeforeItArrives,
    /// It arrives, and its answer does not.
    BeforeItsAnswer,
}

/// What becomes of a request.
enum Way {
    Through,
    Ends(End),
    Never,
}

/// A request that is on its way to a server, also while its body arrives.
struct Running(Arc<Shared>);

/// The longest body.
const BODY_MAX: usize = 64 << 20;

// === impl Barrier ===

impl Barrier {
    pub(super) fn new() -> Barrier {
        let open = Open { left: usize::MAX, end: End::BeforeItArrives, is_over: false, era: 0, writes: Vec::new() };
        let (stopped, running) = (watch::Sender::new(false), watch::Sender::new(0));
        Barrier(Arc::new(Shared { open: Mutex::new(open), stopped, running }))
    }

    /// From now on, lets so many writes through, then nothing. Forgets the writes before.
    pub(super) fn let_through(&self, writes: usize, end: End) {
        let mut open = self.open();
        (open.left, open.end, open.is_over) = (writes, end, false);
        open.writes.clear();
        self.0.stopped.send_replace(false);
    }

    /// From now on, everything arrives. What was stopped does not, nor does what comes over a connection from before:
    /// what a killed client has sent may not have been read yet.
    pub(super) fn lift(&self) {
        let mut open = self.open();
        (open.left, open.is_over) = (usize::MAX, false);
        open.era += 1;
    }

    /// That of a connection that begins now.
    fn era(&self) -> usize {
        self.open().era
    }

    /// Returns once a write is stopped.
    pub(super) async fn stopped(&self) {
        let _ = self.0.stopped.subscribe().wait_for(|stopped| *stopped).await;
    }

    /// Returns once no request is on its way to a server: what a killed client has sent arrives.
    pub(super) async fn settled(&self) {
        let _ = self.0.running.subscribe().wait_for(|running| *running == 0).await;
    }

    /// Method and path of the writes that arrived.
    pub(super) fn writes(&self) -> Vec<String> {
        self.open().writes.clone()
    }

    fn open(&self) -> std::sync::MutexGuard<'_, Open> {
        self.0.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn way(&self, era: usize, method: &Method, path: &str) -> Way {
        let mut open = self.open();
        if open.is_over || era != open.era {
            return Way::Never;
        }
        if *method == Method::GET {
            return Way::Through;
        }
        let way = if open.left == 0 { Way::Ends(open.end) } else { Way::Through };
        if !matches!(way, Way::Ends(End::BeforeItArrives)) {
            open.writes.push(format!("{method} {path}"));
        }
        match way {
            Way::Through => open.left -= 1,
            Way::Ends(end) => {
                open.is_over = true;
                // The other one says so when it has arrived.
                if end == End::BeforeItArrives {
                    self.0.stopped.send_replace(true);
                }
            }
            Way::Never => {}
        }
        way
    }
}

// === impl Running ===

impl Running {
    fn new(shared: &Arc<Shared>) -> Running {
        shared.running.send_modify(|running| *running += 1);
        Running(Arc::clone(shared))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.0.running.send_modify(|running| *running -= 1);
    }
}

// === impl Gate ===

impl Gate {
    /// Opens a gate to the server of a client. `name` is that of the kubeconfig.
    pub(super) async fn new(name: &str, client: Client, barrier: &Barrier) -> Gate {
        tidegate_process::tls::install();
        let authority = Authority::new(&format!("{name} gate")).expect("an authority");
        let identity = authority.server("gate", &["localhost", "127.0.0.1"]).expect("a certificate");
        let chain = vec![CertificateDer::from_pem_slice(identity.certificate.as_bytes()).expect("PEM")];
        let key = PrivateKeyDer::from_pem_slice(identity.key.as_bytes()).expect("PEM");
        let config = ServerConfig::builder().with_no_client_auth().with_single_cert(chain, key).expect("a certificate");
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let barrier = barrier.clone();
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                // A client sends no request before the handshake, which begins later.
                let state = (client.clone(), barrier.clone(), barrier.era());
                let (acceptor, router) = (acceptor.clone(), Router::new().fallback(forward).with_state(state));
                connections.spawn(async move {
                    let Ok(stream) = acceptor.accept(stream).await else { return };
                    let builder = auto::Builder::new(TokioExecutor::new());
                    let _ = builder.serve_connection(TokioIo::new(stream), TowerToHyperService::new(router)).await;
                });
            }
        });
        let credentials = authority.client("through-the-gate", None).expect("a certificate");
        let kubeconfig = Kubeconfig {
            name: name.to_owned(),
            server: format!("https://127.0.0.1:{port}"),
            authority: authority.pem().to_owned(),
            credentials: kube_sim::Credentials::Certificate(credentials),
        };
        Gate { kubeconfig, _tasks: tasks }
    }
}

async fn forward(State((client, barrier, era)): State<(Client, Barrier, usize)>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let path = parts.uri.path_and_query().expect("a path").to_string();
    // From before the decision, so that none is missed that passes.
    let running = Running::new(&barrier.0);
    let way = barrier.way(era, &parts.method, parts.uri.path());
    if matches!(way, Way::Never | Way::Ends(End::BeforeItArrives)) {
        drop(running);
        return std::future::pending().await;
    }
    let mut forwarded = http::Request::builder().method(parts.method).uri(path);
    for name in [header::CONTENT_TYPE, header::ACCEPT] {
        if let Some(value) = parts.headers.get(&name) {
            forwarded = forwarded.header(name, value);
        }
    }
    // A client that is killed may leave a part of a body.
    let Ok(body) = to_bytes(body, BODY_MAX).await else {
        drop(running);
        return std::future::pending().await;
    };
    let forwarded = forwarded.body(kube::client::Body::from(body.to_vec())).expect("a request");
    // Of its own, so that it arrives whatever becomes of the client.
    let sent = tokio::spawn(async move {
        let answer = client.send(forwarded).await;
        drop(running);
        answer
    });
    let answer = sent.await.expect("it ends").expect("the server answers");
    if matches!(way, Way::Ends(End::BeforeItsAnswer)) {
        barrier.0.stopped.send_replace(true);
        return std::future::pending().await;
    }
    let (parts, body) = answer.into_parts();
    let mut response = Response::new(Body::new(body));
    *response.status_mut() = StatusCode::from_u16(parts.status.as_u16()).expect("a status");
    if let Some(value) = parts.headers.get(header::CONTENT_TYPE) {
        response.headers_mut().insert(header::CONTENT_TYPE, value.clone());
    }
    response
}

#[test]
fn what_was_sent_before_the_gate_is_lifted_does_not_arrive() {
    let barrier = Barrier::new();
    let former = barrier.era();
    barrier.let_through(1, End::BeforeItArrives);
    assert!(matches!(barrier.way(former, &Method::PATCH, "/one"), Way::Through));
    assert!(matches!(barrier.way(former, &Method::PATCH, "/two"), Way::Ends(End::BeforeItArrives)));
    barrier.lift();
    assert!(matches!(barrier.way(former, &Method::PATCH, "/three"), Way::Never));
    assert!(matches!(barrier.way(former, &Method::GET, "/three"), Way::Never));
    assert!(matches!(barrier.way(barrier.era(), &Method::PATCH, "/four"), Way::Through));
    assert_eq!(barrier.writes(), ["PATCH /one", "PATCH /four"]);
}
