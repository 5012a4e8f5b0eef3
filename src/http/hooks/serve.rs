//! The connections of the port for deliveries, with TLS or without.
//!
//! A connection costs a socket until its ClientHello or its first head is complete. At most [`STATES`] have got
//! further. Until one of its deliveries is answered with something else than a refusal, a connection has its place only
//! until another one needs it. So no number of connections that never end keeps others from being served.

use std::{convert::Infallible, net::SocketAddr, sync::Arc, time::Duration};

use axum::{
    Router,
    body::Body,
    extract::ConnectInfo,
    http::{Request, StatusCode},
};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use rustls::ServerConfig;
use tidegate_process::{
    lock::Mutex,
    port::{Held, Opening, Port, Prefixed, Protocol, Room, StatePermit, first_message},
    port_connections::Limits,
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpStream},
    sync::watch,
    task::JoinSet,
    time::{sleep, timeout},
};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt as _;

/// The TLS configuration of new connections.
pub(crate) type Tls = watch::Receiver<Arc<ServerConfig>>;

/// Connections with an incomplete first message.
const OPENING: usize = 256;
/// Connections with a complete first message, and no delivery that was accepted. One address has half of them.
const STATES: usize = 128;
/// Connections with a delivery that was accepted.
const PROVEN: usize = 128;
/// A connection goes for another one only after this time.
const GRACE: Duration = Duration::from_secs(2);
/// Limit of the time until the first byte, and between two requests.
const IDLE_MAX: Duration = Duration::from_secs(60);
/// Limit of the time for a ClientHello, a handshake or a head.
const HEAD_TIME_MAX: Duration = Duration::from_secs(10);
/// Limit of a head, in bytes.
const HEAD_BYTES_MAX: usize = 32 << 10;
/// Pause after a failed accept, which mostly means that no file descriptor is free.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// Limit of the time for running requests after the last accept.
const FINISH_TIME_MAX: Duration = Duration::from_secs(5);

/// What all connections share.
#[derive(Clone)]
struct Server {
    router: Router,
    port: Port,
    tls: Option<Tls>,
    stop: CancellationToken,
}

/// Serves until `stop`, and then until the running requests are answered.
pub(crate) async fn serve(socket: TcpListener, tls: Option<Tls>, router: Router, stop: CancellationToken) {
    let limits = Limits { opening: OPENING, proven: PROVEN, sender: PROVEN };
    let port = Port::new(limits, STATES, Room::FromUnproven { grace: GRACE, share: STATES / 2 });
    let server = Server { router, port, tls, stop };
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            () = server.stop.cancelled() => break,
            accepted = socket.accept() => match accepted {
                Ok((stream, peer)) => {
                    let _ = stream.set_nodelay(true);
                    let (server, held) = (server.clone(), server.port.admit(peer.ip()));
                    connections.spawn(async move { server.run(stream, peer, held).await });
                }
                Err(error) => {
                    tracing::debug!(%error, "cannot accept a connection");
                    sleep(ACCEPT_PAUSE).await;
                }
            },
            Some(_) = connections.join_next() => {}
        }
    }
    drop(socket);
    let _ = timeout(FINISH_TIME_MAX, async { while connections.join_next().await.is_some() {} }).await;
    connections.shutdown().await;
}

// === impl Server ===

impl Server {
    async fn run(&self, stream: TcpStream, peer: SocketAddr, held: Held) {
        let protocol = if self.tls.is_some() { Protocol::Tls } else { Protocol::Http };
        let opened = tokio::select! {
            () = self.stop.cancelled() => return,
            () = held.evicted() => return,
            opened = first_message(&stream, protocol, IDLE_MAX, HEAD_TIME_MAX) => opened,
        };
        let Opening::Message(message) = opened else { return };
        let permit = tokio::select! {
            () = held.evicted() => return,
            permit = held.begin() => Mutex::new(Some(permit)),
        };
        // On the heap, so that a connection which has not come this far is small.
        let speaks = Box::pin(self.speak(Prefixed::new(message, stream), peer, &held, &permit));
        tokio::select! {
            () = held.evicted() => {}
            () = speaks => {}
        }
    }

    async fn speak(
        &self,
        stream: Prefixed<TcpStream>,
        peer: SocketAddr,
        held: &Held,
        permit: &Mutex<Option<StatePermit>>,
    ) {
        let Some(tls) = &self.tls else { return self.converse(stream, peer, held, permit).await };
        let config = Arc::clone(&tls.borrow());
        match timeout(HEAD_TIME_MAX, TlsAcceptor::from(config).accept(stream)).await {
            Ok(Ok(stream)) => self.converse(stream, peer, held, permit).await,
            Ok(Err(error)) => tracing::debug!(%error, "TLS handshake failed"),
            Err(_elapsed) => {}
        }
    }

    /// Answers requests until the peer closes the connection or the server stops.
    async fn converse<S: AsyncRead + AsyncWrite + Unpin>(
        &self,
        stream: S,
        peer: SocketAddr,
        held: &Held,
        permit: &Mutex<Option<StatePermit>>,
    ) {
        let service = service_fn(async |request: Request<Incoming>| {
            let is_proven = permit.lock().is_none();
            if is_proven {
                held.work();
            }
            let mut request = request.map(Body::new);
            request.extensions_mut().insert(ConnectInfo(peer));
            let Ok(response) = self.router.clone().oneshot(request).await;
            if !is_proven && response.status() == StatusCode::ACCEPTED && held.prove(None) {
                drop(permit.lock().take());
            }
            if permit.lock().is_none() {
                held.rest();
            }
            Ok::<_, Infallible>(response)
        });
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(IDLE_MAX)
            .max_buf_size(HEAD_BYTES_MAX)
            .serve_connection(TokioIo::new(stream), service);
        tokio::pin!(connection);
        tokio::select! {
            _ = connection.as_mut() => return,
            () = self.stop.cancelled() => connection.as_mut().graceful_shutdown(),
        }
        let _ = connection.await;
    }
}
