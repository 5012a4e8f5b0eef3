use std::sync::atomic::{AtomicUsize, Ordering};

use axum::{
    body::{Body, to_bytes},
    http::{Method, Request},
};
use futures::stream;
use tidegate_process::lock::Mutex;
use tower::ServiceExt as _;

use super::*;

/// A router that answers each delivery with an outcome, and what it was given.
struct Stage {
    router: Router,
    deliveries: Arc<Mutex<Vec<Delivery>>>,
    stalled: Arc<Mutex<Vec<IpAddr>>>,
}

fn stage(admission: Admission, outcome: Outcome) -> Stage {
    let deliveries = Arc::<Mutex<Vec<Delivery>>>::default();
    let received = Arc::clone(&deliveries);
    let stalled = Arc::<Mutex<Vec<IpAddr>>>::default();
    let counted = Arc::clone(&stalled);
    let hooks = Hooks {
        admits: Box::new(move |_| admission),
        receive: Box::new(move |delivery| {
            received.lock().push(delivery);
            Box::pin(std::future::ready(outcome.clone()))
        }),
        proxies: Peers::loopback(),
        metrics: Metrics::default(),
        large: Semaphore::new(LARGE_BODIES_MAX),
        stalled: Box::new(move |address| counted.lock().push(address)),
    };
    Stage { router: router(Arc::new(hooks)), deliveries, stalled }
}

async fn ask(router: &Router, request: Request<Body>) -> (StatusCode, HeaderMap, String) {
    let response = router.clone().oneshot(request).await.unwrap();
    let (head, body) = response.into_parts();
    let text = String::from_utf8(to_bytes(body, 1 << 20).await.unwrap().to_vec()).unwrap();
    (head.status, head.headers, text)
}

fn post_to(path: &str) -> axum::http::request::Builder {
    let peer: SocketAddr = "127.0.0.1:4711".parse().unwrap();
    Request::post(path).extension(ConnectInfo(peer))
}

const PATH: &str = "/hooks/kcp-system/landscape";

#[tokio::test]
async fn each_outcome_has_its_answer() {
    let sources = vec![Key::new("kcp-system", "landscape"), Key::new("kcp-system", "next")];
    for (outcome, status, message) in [
        (
            Outcome::Accepted { woken: sources.clone(), suspended: Vec::new() },
            202,
            "accepted: kcp-system/landscape, kcp-system/next are fetched",
        ),
        (
            Outcome::Accepted { woken: sources[..1].to_vec(), suspended: sources[1..].to_vec() },
            202,
            "accepted: kcp-system/landscape is fetched; kcp-system/next is suspended and fetched when resumed",
        ),
        (Outcome::Duplicate, 202, "ignored: this delivery came before"),
        (Outcome::NoPush, 202, "ignored: this is not a push"),
        (
            Outcome::OtherRepository,
            202,
            "ignored: no GitSource with this Secret has the repository of this push as its spec.url",
        ),
        (Outcome::OtherRef, 202, "ignored: no GitSource with this Secret follows a ref of this push"),
        (Outcome::Malformed("the push names no URL".to_owned()), 400, "the push names no URL"),
        (Outcome::Refused, 401, "refused: there is no such receiver, or the signature or token is wrong"),
    ] {
        let stage = stage(Admission::Open, outcome);
        let (found, _, text) = ask(&stage.router, post_to(PATH).body(Body::from("{}")).unwrap()).await;
        assert_eq!((found.as_u16(), text), (status, format!("{message}\n")));
        let delivery = stage.deliveries.lock().remove(0);
        assert_eq!((delivery.source, &*delivery.body), (Key::new("kcp-system", "landscape"), &b"{}"[..]));
    }
}

#[tokio::test]
async fn other_paths_methods_and_encodings_never_reach_the_receiver() {
    let stage = stage(Admission::Open, Outcome::Refused);
    let request = |method: Method, path: &str| Request::builder().method(method).uri(path).body(Body::empty()).unwrap();
    for path in ["/", "/hooks", "/hooks/kcp-system", "/hooks/kcp-system/a/b", "/metrics"] {
        assert_eq!(ask(&stage.router, request(Method::POST, path)).await.0, StatusCode::NOT_FOUND, "{path}");
    }
    for method in [Method::GET, Method::PUT, Method::DELETE] {
        assert_eq!(ask(&stage.router, request(method, PATH)).await.0, StatusCode::METHOD_NOT_ALLOWED);
    }
    for encoding in ["gzip", "deflate", "br", "identity, gzip", "\u{e9}"] {
        let request = post_to(PATH).header("content-encoding", encoding).body(Body::from("bomb")).unwrap();
        assert_eq!(ask(&stage.router, request).await.0, StatusCode::UNSUPPORTED_MEDIA_TYPE, "{encoding}");
    }
    assert!(stage.deliveries.lock().is_empty());
}

#[tokio::test]
async fn a_bomb_of_gzip_is_never_decompressed() {
    let stage = stage(Admission::Open, Outcome::Refused);
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    for _ in 0..32 {
        std::io::Write::write_all(&mut encoder, &[b' '; 1 << 20]).unwrap();
    }
    let bomb = encoder.finish().unwrap();
    assert!(bomb.len() < BODY_BYTES_MAX, "{}", bomb.len());
    let encoded = post_to(PATH).header("content-encoding", "gzip").body(Body::from(bomb.clone())).unwrap();
    let (status, headers, text) = ask(&stage.router, encoded).await;
    assert_eq!((status.as_u16(), text.as_str()), (415, "send the body without a Content-Encoding\n"));
    assert_eq!(headers[CONNECTION], "close");
    assert!(stage.deliveries.lock().is_empty());
    // Without the header it is a body like any other, as it came.
    assert_eq!(ask(&stage.router, post_to(PATH).body(Body::from(bomb.clone())).unwrap()).await.0, 401);
    assert_eq!(stage.deliveries.lock()[0].body, bomb);
}

#[tokio::test]
async fn what_is_not_admitted_is_told_to_come_again() {
    for (admission, status) in [(Admission::Limited, 429), (Admission::Standby, 503)] {
        let stage = stage(admission, Outcome::Refused);
        let (found, headers, _) = ask(&stage.router, post_to(PATH).body(Body::from("{}")).unwrap()).await;
        assert_eq!(
            (found.as_u16(), &headers[RETRY_AFTER], &headers[CONNECTION]),
            (status, &HeaderValue::from_static("5"), &HeaderValue::from_static("close"))
        );
        assert!(stage.deliveries.lock().is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn a_body_is_read_up_to_a_limit_of_bytes_and_time() {
    let stage = stage(Admission::Open, Outcome::NoPush);
    let whole = |bytes: usize| Body::from(vec![b' '; bytes]);
    let taken = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&taken);
    // 100 MiB without a length.
    let chunks = stream::iter(0..1_600).map(move |_| {
        counted.fetch_add(1, Ordering::Relaxed);
        Ok::<_, std::io::Error>(Bytes::from(vec![b' '; 64 << 10]))
    });
    let endless = stream::repeat_with(|| Ok::<_, std::io::Error>(Bytes::from_static(b" "))).then(async |chunk| {
        tokio::time::sleep(Duration::from_millis(900)).await;
        chunk
    });
    let silent = stream::pending::<Result<Bytes, std::io::Error>>();
    let broken = stream::iter([Ok(Bytes::from_static(b"{")), Err(std::io::Error::other("cut"))]);
    for (body, status) in [
        (whole(1 << 20), 202),
        (whole((1 << 20) + 1), 413),
        (Body::from_stream(chunks), 413),
        (Body::from_stream(endless), 408),
        (Body::from_stream(silent), 408),
        (Body::from_stream(broken), 400),
    ] {
        let (found, ..) = ask(&stage.router, post_to(PATH).body(body).unwrap()).await;
        assert_eq!(found.as_u16(), status);
    }
    assert_eq!(stage.deliveries.lock().len(), 1, "only a whole body reaches the receiver");
    assert_eq!(taken.load(Ordering::Relaxed), 1_600, "what is sent is read, so that the sender reads the answer");
}

#[tokio::test(start_paused = true)]
async fn large_bodies_that_never_end_leave_room_for_small_ones() {
    let stage = stage(Admission::Open, Outcome::NoPush);
    let mut stalled = tokio::task::JoinSet::new();
    for _ in 0..2 * LARGE_BODIES_MAX {
        let first = stream::iter([Ok::<_, std::io::Error>(Bytes::from(vec![b' '; BODY_BYTES_FREE + 1]))]);
        let body = Body::from_stream(first.chain(stream::pending()));
        let router = stage.router.clone();
        stalled.spawn(async move { ask(&router, post_to(PATH).body(body).unwrap()).await.0 });
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    let small = ask(&stage.router, post_to(PATH).body(Body::from("{}")).unwrap()).await.0;
    assert_eq!(small, StatusCode::ACCEPTED);
    while let Some(status) = stalled.join_next().await {
        assert_eq!(status.unwrap(), StatusCode::REQUEST_TIMEOUT);
    }
    assert_eq!(stage.stalled.lock().len(), 2 * LARGE_BODIES_MAX, "each counts against its address");
    let large = ask(&stage.router, post_to(PATH).body(Body::from(vec![b' '; 1 << 20])).unwrap()).await.0;
    assert_eq!(large, StatusCode::ACCEPTED);
}

#[test]
fn the_sender_is_the_peer_or_what_a_trusted_peer_says_last() {
    let ip = |text: &str| text.parse::<IpAddr>().unwrap();
    let proxies = Peers::parse(["10.0.0.0/8"]).unwrap();
    for (peer, forwarded, expected) in [
        ("192.0.2.1", &[][..], "192.0.2.1"),
        ("192.0.2.1", &["198.51.100.7"], "192.0.2.1"),
        ("10.1.2.3", &["198.51.100.7"], "198.51.100.7"),
        ("10.1.2.3", &["203.0.113.9, 198.51.100.7"], "198.51.100.7"),
        ("10.1.2.3", &["203.0.113.9", "198.51.100.7:4711"], "198.51.100.7"),
        ("10.1.2.3", &["[2001:db8::1]:4711"], "2001:db8::1"),
        ("10.1.2.3", &["unknown"], "10.1.2.3"),
        ("10.1.2.3", &[], "10.1.2.3"),
    ] {
        let mut headers = HeaderMap::new();
        for value in forwarded {
            headers.append("x-forwarded-for", HeaderValue::from_static(value));
        }
        assert_eq!(sender(ip(peer), &headers, &proxies), ip(expected), "{peer} {forwarded:?}");
    }
}
