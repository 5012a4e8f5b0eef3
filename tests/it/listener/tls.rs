//! The listener's own TLS: which clients it accepts, and what happens when certificates and CAs change.

use std::{net::SocketAddr, time::Duration};

use futures::StreamExt as _;
use rustls::crypto::ring;
use tidegate_events::{
    listener::{self, Events, Listener, Tls},
    metrics::ListenerMetrics,
};
use tokio::sync::watch;

use super::client::{Authority, BODY, Leaf, TlsClient, domain, expired, xfcc};

struct Bench {
    authority: Authority,
    server: Leaf,
    address: SocketAddr,
    events: Events,
    metrics: ListenerMetrics,
    tls: watch::Sender<Option<Tls>>,
}

impl Bench {
    async fn new() -> Bench {
        let authority = Authority::new();
        let server = authority.issue("listener", |params| domain(params, "listener.example"));
        let metrics = ListenerMetrics::default();
        let (listener, events) = Listener::builder("lifecycle-manager").metrics(metrics.clone()).events(64);
        let socket = listener::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = socket.local_addr().unwrap();
        let (tls, receiver) = watch::channel(Some(material(&server, authority.pem())));
        tokio::spawn(async move { listener.serve_tls(socket, receiver, std::future::pending()).await });
        Bench { authority, server, address, events, metrics, tls }
    }

    fn client(&self, leaf: Option<&Leaf>) -> TlsClient {
        TlsClient::new(self.authority.pem(), leaf)
    }

    async fn event(&mut self) -> String {
        let next = tokio::time::timeout(Duration::from_secs(60), self.events.next());
        next.await.expect("an event").expect("open").runtime_id().to_owned()
    }

    fn has_lost(&self, reason: &str) -> bool {
        self.metrics.render().contains(&format!(r#"tidegate_listener_lost_connections_total{{reason="{reason}"}} 1"#))
    }
}

fn material(server: &Leaf, authorities: &str) -> Tls {
    let now = listener::now();
    Tls::from_pem(server.certificate.as_bytes(), server.key.as_bytes(), authorities.as_bytes(), now).unwrap()
}

#[tokio::test]
async fn row_47_who_has_a_certificate_gets_in_and_a_header_does_not_matter() {
    let mut bench = Bench::new().await;
    let leaf = bench.authority.issue("runtime-1", |_| {});
    let client = bench.client(Some(&leaf));
    assert_eq!(client.post(bench.address, BODY).await.unwrap().status, 200);
    assert_eq!(bench.event().await, "runtime-1");
    let forged = xfcc(&bench.authority.issue("runtime-2", |_| {}).certificate);
    let mut connection = client.connect(bench.address).await.unwrap();
    connection.post(&forged, BODY).await;
    assert_eq!(connection.reply().await.status, 200);
    assert_eq!(bench.event().await, "runtime-1", "the port decides, never a header");
}

#[tokio::test]
async fn who_has_none_that_counts_does_not_get_in() {
    let bench = Bench::new().await;
    let stranger = Authority::new();
    let cases = [
        ("certificate-missing", None),
        ("certificate-foreign", Some(stranger.issue("runtime-1", |_| {}))),
        ("certificate-expired", Some(bench.authority.issue("runtime-1", expired))),
    ];
    for (reason, leaf) in cases {
        assert!(bench.client(leaf.as_ref()).post(bench.address, BODY).await.is_none(), "{reason}");
        assert!(bench.has_lost(reason), "{reason}: {}", bench.metrics.render());
    }
    let nameless = bench.authority.issue("", |_| {});
    assert_eq!(bench.client(Some(&nameless)).post(bench.address, BODY).await.unwrap().status, 400);
}

#[tokio::test]
async fn only_tls_1_3_and_also_with_what_fips_allows() {
    let mut bench = Bench::new().await;
    let leaf = bench.authority.issue("runtime-1", |_| {});
    let old = TlsClient::with(ring::default_provider(), &[&rustls::version::TLS12], bench.authority.pem(), Some(&leaf));
    assert!(old.connect(bench.address).await.is_err());
    let mut strict = ring::default_provider();
    strict.kx_groups = vec![ring::kx_group::SECP256R1];
    strict.cipher_suites = vec![ring::cipher_suite::TLS13_AES_128_GCM_SHA256];
    let strict = TlsClient::with(strict, &[&rustls::version::TLS13], bench.authority.pem(), Some(&leaf));
    assert_eq!(strict.post(bench.address, BODY).await.unwrap().status, 200);
    assert_eq!(bench.event().await, "runtime-1");
}

#[tokio::test]
async fn what_is_reloaded_counts_for_new_and_for_open_connections() {
    let mut bench = Bench::new().await;
    let next = Authority::new();
    let (before, after) = (bench.authority.issue("before", |_| {}), next.issue("after", |_| {}));
    let (old, new) = (bench.client(Some(&before)), bench.client(Some(&after)));
    let mut open = old.connect(bench.address).await.unwrap();
    open.post("x-test: a", BODY).await;
    assert_eq!(open.reply().await.status, 200);
    assert_eq!(bench.event().await, "before");
    assert!(new.post(bench.address, BODY).await.is_none(), "not trusted yet");

    // Both CAs, then only the new one, as in a rotation.
    let both = format!("{}{}", next.pem(), bench.authority.pem());
    bench.tls.send_replace(Some(material(&bench.server, &both)));
    assert_eq!(new.post(bench.address, BODY).await.unwrap().status, 200);
    assert_eq!(bench.event().await, "after");
    open.post("x-test: a", BODY).await;
    assert_eq!(open.reply().await.status, 200, "an open connection goes on");
    assert_eq!(bench.event().await, "before");

    bench.tls.send_replace(Some(material(&bench.server, next.pem())));
    assert_eq!(new.post(bench.address, BODY).await.unwrap().status, 200);
    assert_eq!(bench.event().await, "after");
    open.post("x-test: a", BODY).await;
    assert_eq!(open.reply().await.status, 401, "no CA vouches for it any more");
    assert!(old.post(bench.address, BODY).await.is_none());

    bench.tls.send_replace(None);
    assert!(new.post(bench.address, BODY).await.is_none(), "there is nothing to show");
}

#[tokio::test]
async fn a_server_certificate_that_is_the_authority_itself_is_shown_as_upstreams_gateway_does() {
    let key = rcgen::KeyPair::generate().unwrap();
    let mut params = rcgen::CertificateParams::new(vec!["listener.example".to_owned()]).unwrap();
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let pem = params.self_signed(&key).unwrap().pem();
    let tls = Tls::from_pem(pem.as_bytes(), key.serialize_pem().as_bytes(), pem.as_bytes(), listener::now());
    assert!(tls.is_ok());
}

#[test]
fn what_does_not_go_together_is_refused_without_a_word_of_the_key() {
    let authority = Authority::new();
    let (one, two) = (authority.issue("one", |_| {}), authority.issue("two", |_| {}));
    let make = |certificate: &str, key: &str, authorities: &str| {
        let tls = Tls::from_pem(certificate.as_bytes(), key.as_bytes(), authorities.as_bytes(), listener::now());
        tls.unwrap_err().to_string()
    };
    let pem = authority.pem();
    assert!(make(&one.certificate, &two.key, pem).contains("does not match the server certificate"));
    assert!(make("", &two.key, pem).contains("certificate"));
    assert!(make(&one.certificate, "key", pem).contains("private key"));
    assert!(make(&one.certificate, &one.key, "").contains("client CA bundle"));
}
