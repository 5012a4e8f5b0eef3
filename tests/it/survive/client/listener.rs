//! Connections to the event ports that finish nothing: others are served all the while.

use std::{net::SocketAddr, time::Duration};

use tidegate_events::{
    identity::Xfcc,
    listener::{self, Limits, Listener, Tls},
    metrics::ListenerMetrics,
};
use tokio::{io::AsyncWriteExt as _, net::TcpStream, sync::watch};

use crate::{
    daemon::TestNamespace,
    events::Certificates,
    harness::{SOON, eventually},
    listener::{
        Bench,
        client::{self, Authority, BODY, Raw, TlsClient},
    },
};

/// The first bytes of a ClientHello: a record of 512 bytes, of which eleven come.
const HALF_HELLO: &[u8] = &[22, 3, 1, 2, 0, 1, 0, 1, 0xFC, 3, 3];
/// A head that does not end.
const HALF_HEAD: &[u8] = b"POST /v2/lifecycle-manager/event HTTP/1.1\r\nhost: a\r\nx-a: b";

/// Few places, so that a test fills them.
fn few() -> Limits {
    Limits { opening: 16, unproven: 8, connections: 16, drain: Duration::from_secs(2), ..Limits::default() }
}

/// Opens connections that each send something and then nothing more.
async fn flood(address: SocketAddr, count: usize, bytes: &[u8]) -> Vec<TcpStream> {
    let mut all = Vec::new();
    for _ in 0..count {
        let mut stream = TcpStream::connect(address).await.expect("the port accepts connections");
        // One that has already gone for another cannot be written to.
        let _ = stream.write_all(bytes).await;
        all.push(stream);
    }
    all
}

/// A listener with its own TLS that accepts every event.
struct Secured {
    authority: Authority,
    address: SocketAddr,
    metrics: ListenerMetrics,
    _tls: watch::Sender<Option<Tls>>,
}

impl Secured {
    async fn start(limits: Limits) -> Secured {
        let authority = Authority::new();
        let server = authority.issue("listener", |params| client::domain(params, "listener.example"));
        let metrics = ListenerMetrics::default();
        let listener = Listener::builder("lifecycle-manager")
            .limits(limits)
            .metrics(metrics.clone())
            .receiver(|_| Box::pin(std::future::ready(listener::Answer::Taken)));
        let socket = listener::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = socket.local_addr().unwrap();
        let (certificate, key) = (server.certificate.as_bytes(), server.key.as_bytes());
        let tls = Tls::from_pem(certificate, key, authority.pem().as_bytes(), listener::now()).unwrap();
        let (tls, receiver) = watch::channel(Some(tls));
        tokio::spawn(async move { listener.serve_tls(socket, receiver, std::future::pending()).await });
        Secured { authority, address, metrics, _tls: tls }
    }

    fn client(&self, runtime: &str) -> TlsClient {
        TlsClient::new(self.authority.pem(), Some(&self.authority.issue(runtime, |_| {})))
    }
}

#[tokio::test]
async fn half_handshakes_in_all_places_shut_out_no_runtime() {
    let secured = Secured::start(few()).await;
    let client = secured.client("runtime-1");
    for round in 0..3 {
        let half = flood(secured.address, 40, HALF_HELLO).await;
        let reply = client.post(secured.address, BODY).await;
        assert_eq!(reply.map(|reply| reply.status), Some(200), "round {round}");
        drop(half);
    }
    let text = secured.metrics.render();
    assert!(text.contains(r#"lost_connections_total{reason="crowded"}"#), "{text}");
}

#[tokio::test]
async fn half_heads_in_all_places_shut_out_no_gateway() {
    let bench = Bench::with(|builder| builder.forwarded(Xfcc::default()).limits(few()), 64).await;
    for round in 0..3 {
        let half = flood(bench.address, 40, HALF_HEAD).await;
        let mut connection = Raw::connect(bench.address).await;
        connection.post(&bench.header("runtime-1"), BODY).await;
        assert_eq!(connection.try_reply().await.map(|reply| reply.status), Some(200), "round {round}");
        drop(half);
    }
}

/// Requests of a known runtime, forwarded by the gateway, of which the bodies do not come.
#[tokio::test]
async fn bodies_that_do_not_come_shut_out_no_runtime_but_their_own() {
    const SHARE: usize = 4;
    let limits = Limits { sender_requests: SHARE, body: Duration::from_secs(60), ..few() };
    let bench = Bench::with(|builder| builder.forwarded(Xfcc::default()).limits(limits), 64).await;
    let own = bench.header("runtime-1");
    let head = format!("POST /v2/lifecycle-manager/event HTTP/1.1\r\nhost: a\r\ncontent-length: 100\r\n{own}\r\n\r\n");
    let half = flood(bench.address, SHARE, head.as_bytes()).await;
    // The listener may not have read all heads yet.
    eventually("the share of the runtime is taken", SOON, async || {
        match client::post(bench.address, &own, BODY).await.status {
            503 => Ok(()),
            status => Err(status.to_string()),
        }
    })
    .await;
    // Beyond its share, its requests are refused, and those of others are not.
    let more = flood(bench.address, 40, head.as_bytes()).await;
    for other in ["runtime-2", "runtime-3"] {
        assert_eq!(client::post(bench.address, &bench.header(other), BODY).await.status, 200, "{other}");
    }
    assert_eq!(client::post(bench.address, &own, BODY).await.status, 503, "its share is still taken");
    drop((half, more));
}

/// What tools and the kubelet ask is answered, and the memory of the daemon stays far below its pod's limit.
#[tokio::test(flavor = "multi_thread")]
async fn thousands_of_half_connections_cost_the_daemon_little_and_it_says_how_it_is() {
    const HALF: usize = 3_000;
    const COST_MAX: usize = 64 << 20;
    let place = TestNamespace::new().await;
    let certificates = Certificates::new();
    certificates.install(&place.client, &place.namespace).await;
    let daemon = place.start("attacked", &[]);
    daemon.until_ready().await;
    let (plain, tls) = (daemon.address("events").unwrap(), daemon.address("events over TLS").unwrap());
    let pid = daemon.process.program_pid().unwrap();
    let resident = || {
        let text = std::fs::read_to_string(format!("/proc/{pid}/statm")).unwrap();
        text.split(' ').nth(1).and_then(|pages| pages.parse::<usize>().ok()).unwrap() * 4096
    };
    let sockets = || {
        let files = std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap().flatten();
        files
            .filter(|file| {
                std::fs::read_link(file.path()).is_ok_and(|link| link.to_string_lossy().starts_with("socket:"))
            })
            .count()
    };
    let (before, sockets_before) = (resident(), sockets());
    let mut half = flood(tls, HALF, HALF_HELLO).await;
    half.extend(flood(plain, HALF, HALF_HEAD).await);
    for (port, path) in [("health", "/readyz"), ("health", "/healthz"), ("metrics", "/metrics")] {
        assert_eq!(daemon.ask(port, path).await.unwrap().0, 200, "{path}");
    }
    // The kernel has accepted all connections, but the daemon may not have yet.
    eventually("the oldest connections are closed", SOON, async || {
        let (_, metrics) = daemon.ask("metrics", "/metrics").await?;
        let is_said = metrics.contains(r#"tidegate_listener_lost_connections_total{reason="crowded"}"#);
        if is_said { Ok(()) } else { Err(metrics) }
    })
    .await;
    let reply = client::post(plain, &certificates.header("one"), BODY).await;
    assert_eq!(reply.status, 403, "it is heard: no Kyma has this id");
    let cost = resident().saturating_sub(before);
    assert!(cost < COST_MAX, "{cost} bytes");
    drop(half);
    let all_closed = async || {
        eventually("the daemon has closed them", SOON, async || match sockets() {
            // The daemon may have opened connections to its API server.
            open if open <= sockets_before + 8 => Ok(()),
            open => Err(format!("{open} sockets, {sockets_before} before")),
        })
        .await;
    };
    all_closed().await;
    // What is not given back, and not used again either, would be needed twice.
    let mut half = flood(tls, HALF, HALF_HELLO).await;
    half.extend(flood(plain, HALF, HALF_HEAD).await);
    let reply = client::post(plain, &certificates.header("one"), BODY).await;
    assert_eq!(reply.status, 403, "the port has accepted what came before");
    drop(half);
    all_closed().await;
    let kept = resident().saturating_sub(before);
    println!("{HALF} half connections to each port cost {cost} bytes; after a second time {kept} are kept");
    assert!(kept < cost + cost / 2, "{kept} bytes, {cost} after the first time");
}
