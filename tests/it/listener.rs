//! The listener over real sockets: what is checked in which order, what it answers, and what it costs.

mod bad_input;
mod cases;
pub(crate) mod client;
mod tls;

use std::{net::SocketAddr, time::Duration};

use futures::StreamExt as _;
use tidegate_events::{
    identity::{Authorities, Peers, Xfcc},
    listener::{self, Builder, Events, Limits, Listener, Received},
    metrics::ListenerMetrics,
};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use self::client::{Authority, BODY};

/// A listener behind a gateway, on a port of its own, with a stream of a few events.
pub(crate) struct Bench {
    pub(crate) authority: Authority,
    pub(crate) address: SocketAddr,
    pub(crate) events: Events,
    pub(crate) metrics: ListenerMetrics,
    pub(crate) listener: Listener,
    pub(crate) stop: CancellationToken,
    pub(crate) served: JoinHandle<()>,
}

pub(crate) fn limits() -> Limits {
    Limits { drain: Duration::from_secs(2), ..Limits::default() }
}

impl Bench {
    pub(crate) async fn new() -> Bench {
        Bench::with(|builder| builder.forwarded(Xfcc::default()), 16).await
    }

    pub(crate) async fn with(edit: impl FnOnce(Builder) -> Builder, capacity: usize) -> Bench {
        let authority = Authority::new();
        let metrics = ListenerMetrics::default();
        let builder = Listener::builder("lifecycle-manager").limits(limits()).metrics(metrics.clone());
        let (listener, events) = edit(builder).events(capacity);
        let bundle = Authorities::parse(authority.pem().as_bytes(), listener::now()).unwrap();
        listener.set_authorities(Some(bundle));
        let socket = listener::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = socket.local_addr().unwrap();
        let stop = CancellationToken::new();
        let (serving, stopped) = (listener.clone(), stop.clone());
        let served = tokio::spawn(async move { serving.serve_forwarded(socket, stopped.cancelled_owned()).await });
        Bench { authority, address, events, metrics, listener, stop, served }
    }

    /// The header for a runtime.
    pub(crate) fn header(&self, runtime: &str) -> String {
        client::xfcc(&self.authority.issue(runtime, |_| {}).certificate)
    }

    /// Sends a body with a good certificate, and returns the status.
    pub(crate) async fn post(&self, body: &str) -> u16 {
        client::post(self.address, &self.header("runtime-1"), body).await.status
    }

    /// The next event, which must be there already.
    pub(crate) async fn event(&mut self) -> Received {
        tokio::time::timeout(Duration::from_secs(60), self.events.next()).await.expect("an event").expect("open")
    }

    /// The value of a series.
    pub(crate) fn metric(&self, series: &str) -> f64 {
        let text = self.metrics.render();
        let line = text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
        line.and_then(|value| value.parse().ok()).unwrap_or(0.0)
    }
}

#[tokio::test]
async fn row_6_2_an_event_arrives_with_what_was_watched_and_the_id_of_its_runtime() {
    let mut bench = Bench::new().await;
    let reply = client::post(bench.address, &bench.header("runtime-1"), BODY).await;
    assert_eq!((reply.status, reply.body.as_str()), (200, ""));
    let received = bench.event().await;
    assert_eq!(received.runtime_id(), "runtime-1");
    assert_eq!((&*received.event.watched.namespace, &*received.event.watched.name), ("kyma-system", "default"));
    let gvk = &received.event.gvk;
    assert_eq!((&*gvk.group, &*gvk.version, &*gvk.kind), ("operator.kyma-project.io", "v1beta2", "Kyma"));
    assert!(!received.settled, "not our agent");
}

#[tokio::test]
async fn our_own_agent_is_known_by_its_name() {
    let mut bench = Bench::new().await;
    let header = format!("{}\r\nuser-agent: tidegate-agent/0.1.0", bench.header("runtime-1"));
    assert_eq!(client::post(bench.address, &header, BODY).await.status, 200);
    assert!(bench.event().await.settled);
}

#[tokio::test]
async fn row_61_a_stream_that_is_full_is_503_and_no_request_waits() {
    let mut bench = Bench::with(|builder| builder.forwarded(Xfcc::default()), 2).await;
    assert_eq!((bench.post(BODY).await, bench.post(BODY).await), (200, 200));
    let reply = client::post(bench.address, &bench.header("runtime-1"), BODY).await;
    assert_eq!(reply.status, 503);
    assert_eq!(reply.header("retry-after"), Some("2"));
    bench.event().await;
    assert_eq!(bench.post(BODY).await, 200, "there is room again");
    // What was answered with 200 is in the stream, nothing else.
    bench.event().await;
    bench.event().await;
    drop(std::mem::replace(&mut bench.events, Listener::builder("x").events(1).1));
    assert_eq!(bench.post(BODY).await, 503, "the receiver is closed");
}

#[tokio::test]
async fn row_60_a_verifier_says_403_and_it_is_counted() {
    let refusal = listener::Refusal { reason: "test", message: "not from there" };
    let verify = move |received: &Received| {
        if received.identity.is_named("good.example") { Ok(()) } else { Err(refusal.clone()) }
    };
    let mut bench = Bench::with(|builder| builder.forwarded(Xfcc::default()).verify(verify), 4).await;
    let header = |domain: &str| {
        client::xfcc(&bench.authority.issue("runtime-1", |params| client::domain(params, domain)).certificate)
    };
    let (good, bad) = (header("GOOD.example"), header("bad.example"));
    let reply = client::post(bench.address, &bad, BODY).await;
    assert_eq!((reply.status, reply.body.as_str()), (403, "not from there\n"));
    assert_eq!(client::post(bench.address, &good, BODY).await.status, 200);
    bench.event().await;
    let series = r#"watcher_listener_failed_verification_requests_total{server_name="listener",request_uri_label="/v2/lifecycle-manager/event"}"#;
    assert_eq!(bench.metric(series), 1.0, "{}", bench.metrics.render());
}

#[tokio::test]
async fn row_68_the_six_series_move() {
    let mut bench = Bench::new().await;
    let name = |name: &str| format!("watcher_listener_{name}{{server_name=\"listener\"}}");
    assert_eq!(bench.post(BODY).await, 200);
    bench.event().await;
    assert_eq!(bench.post("[").await, 400);
    assert_eq!(bench.post(&"x".repeat(20_000)).await, 413);
    assert_eq!(client::request(bench.address, "POST /other", &[], b"").await.status, 404);
    assert_eq!(client::request(bench.address, "GET /v2/lifecycle-manager/event", &[], b"").await.status, 405);
    assert!(0.0 < bench.metric(&name("request_duration")));
    assert_eq!(bench.metric(&name("requests_total")), 3.0, "not those with 404 and 413");
    assert_eq!(bench.metric(&name("request_errors_total")), 1.0, "a probe is no error");
    assert_eq!(bench.metric(&name("exceeding_size_limit_requests_total")), 1.0);
    assert_eq!(bench.metric(&name("inflight_requests")), 0.0);
    // One that is under way is seen.
    let mut slow = client::Raw::connect(bench.address).await;
    let header = bench.header("runtime-1");
    slow.send(
        format!("POST /v2/lifecycle-manager/event HTTP/1.1\r\nhost: a\r\n{header}\r\ncontent-length: 9\r\n\r\n")
            .as_bytes(),
    )
    .await;
    crate::harness::eventually("a request is under way", Duration::from_secs(60), async || {
        let text = bench.metrics.render();
        let wanted = format!("{} 1", name("inflight_requests"));
        if text.contains(&wanted) { Ok(()) } else { Err(text) }
    })
    .await;
}

#[tokio::test]
async fn row_65_requests_under_way_are_answered_at_the_end_and_new_ones_refused() {
    let mut bench = Bench::new().await;
    let header = bench.header("runtime-1");
    let mut slow = client::Raw::connect(bench.address).await;
    let length = BODY.len();
    let head =
        format!("POST /v2/lifecycle-manager/event HTTP/1.1\r\nhost: a\r\n{header}\r\ncontent-length: {length}\r\n\r\n");
    slow.send(head.as_bytes()).await;
    slow.send(&BODY.as_bytes()[..10]).await;
    let mut idle = client::Raw::connect(bench.address).await;
    idle.send(b"GET /v2/lifecycle-manager/event HTTP/1.1\r\nhost: a\r\n\r\n").await;
    assert_eq!(idle.reply().await.status, 405);
    crate::harness::eventually("the request is under way", Duration::from_secs(60), async || {
        let text = bench.metrics.render();
        if text.contains("inflight_requests{server_name=\"listener\"} 1") { Ok(()) } else { Err(text) }
    })
    .await;
    bench.stop.cancel();
    assert!(idle.is_closed().await, "a connection without a request ends");
    slow.send(&BODY.as_bytes()[10..]).await;
    let reply = slow.reply().await;
    assert_eq!(reply.status, 200);
    assert_eq!(reply.header("connection"), Some("close"));
    bench.event().await;
    bench.served.await.unwrap();
    assert!(tokio::net::TcpStream::connect(bench.address).await.is_err(), "there is no listener");
}

#[tokio::test]
async fn one_connection_carries_many_events() {
    let mut bench = Bench::new().await;
    let header = bench.header("runtime-1");
    let mut connection = client::Raw::connect(bench.address).await;
    for _ in 0..10 {
        connection.post(&header, BODY).await;
        assert_eq!(connection.reply().await.status, 200);
        bench.event().await;
    }
    assert_eq!(bench.metric(r#"tidegate_listener_accepted_total{port="forwarded"}"#), 1.0);
}

#[tokio::test]
async fn the_path_can_be_probed_and_the_prober_is_told() {
    let (sender, mut probed) = tokio::sync::mpsc::unbounded_channel();
    let tell = move |identity: &tidegate_events::identity::Identity| {
        let _ = sender.send(identity.common_name().to_owned());
    };
    let bench = Bench::with(|builder| builder.forwarded(Xfcc::default()).probed(tell), 1).await;
    let header = bench.header("runtime-1");
    let reply = client::request(bench.address, "GET /v2/lifecycle-manager/event", &[&header], b"").await;
    assert_eq!((reply.status, reply.header("allow")), (405, Some("POST")));
    assert_eq!(probed.recv().await.as_deref(), Some("runtime-1"));
    let reply = client::request(bench.address, "GET /v2/lifecycle-manager/event", &[], b"").await;
    assert_eq!(reply.status, 405, "also without a certificate");
}

#[tokio::test]
async fn it_can_be_a_route_of_another_server() {
    let bench = Bench::new().await;
    let socket = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = socket.local_addr().unwrap();
    let router = bench.listener.router().into_make_service_with_connect_info::<SocketAddr>();
    let server = tokio::spawn(async move { axum::serve(socket, router).await });
    let mut bench = bench;
    assert_eq!(client::post(address, &bench.header("runtime-1"), BODY).await.status, 200);
    assert_eq!(bench.event().await.runtime_id(), "runtime-1");
    assert_eq!(client::request(address, "POST /other", &[], b"").await.status, 404);
    server.abort();
}

#[tokio::test]
async fn row_55_a_peer_that_is_not_trusted_is_closed_before_it_says_a_word() {
    let peers = Peers::parse(["192.0.2.0/24"]).unwrap();
    let bench = Bench::with(|builder| builder.forwarded(Xfcc { peers, gateway: None }), 1).await;
    let mut connection = client::Raw::connect(bench.address).await;
    assert!(connection.is_closed().await);
    assert_eq!(bench.metric(r#"tidegate_listener_lost_connections_total{reason="peer-not-trusted"}"#), 1.0);
}

#[tokio::test]
async fn without_authorities_it_is_503_and_not_401() {
    let bench = Bench::new().await;
    bench.listener.set_authorities(None);
    let reply = client::post(bench.address, &bench.header("runtime-1"), BODY).await;
    assert_eq!((reply.status, reply.header("retry-after")), (503, Some("2")));
}
