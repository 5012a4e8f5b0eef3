//! Senders that are slow, silent, many or broken: each costs a bounded amount, and the others are served.

use std::time::{Duration, Instant};

use tidegate_events::{
    identity::Xfcc,
    listener::{Answer, Limits},
};

use super::{
    Bench,
    client::{self, BODY, Raw},
    limits,
};
use crate::harness::eventually;

const EVENT: &str = "/v2/lifecycle-manager/event";

async fn bench(edit: impl FnOnce(&mut Limits)) -> Bench {
    let mut limits = limits();
    edit(&mut limits);
    Bench::with(|builder| builder.forwarded(Xfcc::default()).limits(limits), 64).await
}

const SHORT: Duration = Duration::from_millis(300);

#[tokio::test]
async fn who_says_nothing_is_cut_off() {
    let bench = bench(|limits| limits.first_byte = SHORT).await;
    assert!(Raw::connect(bench.address).await.is_closed().await);
    assert_eq!(bench.metric(r#"tidegate_listener_lost_connections_total{reason="silent"}"#), 1.0);
    assert_eq!(bench.post(BODY).await, 200);
}

#[tokio::test]
async fn a_head_that_does_not_end_is_cut_off() {
    let bench = bench(|limits| limits.head = SHORT).await;
    let mut connection = Raw::connect(bench.address).await;
    connection.send(format!("POST {EVENT} HTTP/1.1\r\nhost: a\r\nx-a: b").as_bytes()).await;
    assert!(connection.is_closed().await);
    assert_eq!(bench.post(BODY).await, 200);
}

#[tokio::test]
async fn a_head_without_bound_is_refused() {
    let bench = bench(|_| {}).await;
    for header in [format!("x-a: {}", "a".repeat(300_000)), "x-a: b\r\n".repeat(200)] {
        let mut connection = Raw::connect(bench.address).await;
        connection.send(format!("POST {EVENT} HTTP/1.1\r\nhost: a\r\n{header}\r\n\r\n").as_bytes()).await;
        if let Some(reply) = connection.try_reply().await {
            assert_eq!(reply.status, 431);
        }
    }
    assert_eq!(bench.post(BODY).await, 200);
}

#[tokio::test]
async fn a_body_that_does_not_end_is_503_since_another_try_may_be_faster() {
    let bench = bench(|limits| limits.body = SHORT).await;
    let header = bench.header("runtime-1");
    for framing in ["content-length: 100", "transfer-encoding: chunked"] {
        let mut connection = Raw::connect(bench.address).await;
        connection.send(format!("POST {EVENT} HTTP/1.1\r\nhost: a\r\n{framing}\r\n{header}\r\n\r\n").as_bytes()).await;
        connection.send(b"5\r\n{\"wat\r\n").await;
        let reply = connection.reply().await;
        assert_eq!((reply.status, reply.header("retry-after")), (503, Some("2")), "{framing}");
    }
    assert_eq!(bench.post(BODY).await, 200);
}

#[tokio::test]
async fn chunks_without_end_are_413_after_a_while() {
    let bench = bench(|_| {}).await;
    let header = bench.header("runtime-1");
    let mut connection = Raw::connect(bench.address).await;
    connection
        .send(format!("POST {EVENT} HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n{header}\r\n\r\n").as_bytes())
        .await;
    let chunk = format!("3e8\r\n{}\r\n", "x".repeat(1000));
    let started = Instant::now();
    // The other side stops reading at some point; that ends the sending.
    let sending = async {
        for _ in 0..100_000 {
            if tokio::io::AsyncWriteExt::write_all(&mut connection.stream, chunk.as_bytes()).await.is_err() {
                break;
            }
        }
    };
    let _ = tokio::time::timeout(Duration::from_secs(20), sending).await;
    assert!(started.elapsed() < Duration::from_secs(20), "it was never cut off");
    assert_eq!(bench.metric(r#"watcher_listener_exceeding_size_limit_requests_total{server_name="listener"}"#), 1.0);
    assert_eq!(bench.post(BODY).await, 200);
}

#[tokio::test]
async fn broken_requests_end_their_connection_only() {
    let bench = bench(|_| {}).await;
    let header = bench.header("runtime-1");
    for request in [
        "\r\n\r\n\r\n".to_owned(),
        "nonsense\r\n\r\n".to_owned(),
        "\u{16}\u{3}\u{1}\u{2}\0".to_owned(),
        format!("POST {EVENT} HTTP/9.9\r\n\r\n"),
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_owned(),
        format!("POST {EVENT} HTTP/1.1\r\nhost: a\r\ncontent-length: x\r\n\r\n"),
        format!("POST {EVENT} HTTP/1.1\r\nhost: a\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nab"),
        format!("POST {EVENT} HTTP/1.1\r\nhost: a\r\n{header}\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n"),
    ] {
        let mut connection = Raw::connect(bench.address).await;
        connection.send(request.as_bytes()).await;
        tokio::io::AsyncWriteExt::shutdown(&mut connection.stream).await.ok();
        if let Some(reply) = connection.try_reply().await {
            assert!((400..500).contains(&reply.status), "{request:?}: {}", reply.status);
        }
    }
    assert_eq!(bench.post(BODY).await, 200);
}

#[tokio::test]
async fn who_does_not_read_answers_is_cut_off() {
    let bench = bench(|limits| limits.write = SHORT).await;
    let mut connection = Raw::connect(bench.address).await;
    let request = "GET /other HTTP/1.1\r\nhost: a\r\n\r\n".repeat(1000);
    let never_reads = async {
        while tokio::io::AsyncWriteExt::write_all(&mut connection.stream, request.as_bytes()).await.is_ok() {}
    };
    tokio::time::timeout(Duration::from_secs(30), never_reads).await.expect("it is cut off");
}

#[tokio::test]
async fn more_requests_than_there_are_places_for_are_503() {
    let bench = bench(|limits| limits.requests = 1).await;
    let header = bench.header("runtime-1");
    let mut slow = Raw::connect(bench.address).await;
    slow.send(format!("POST {EVENT} HTTP/1.1\r\nhost: a\r\ncontent-length: 100\r\n{header}\r\n\r\n").as_bytes()).await;
    eventually("the place is taken", Duration::from_secs(10), async || match bench.post(BODY).await {
        503 => Ok(()),
        status => Err(status.to_string()),
    })
    .await;
    drop(slow);
    eventually("the place is free again", Duration::from_secs(10), async || match bench.post(BODY).await {
        200 => Ok(()),
        status => Err(status.to_string()),
    })
    .await;
}

#[tokio::test]
async fn more_connections_than_there_are_places_for_close_the_one_that_idles_longest() {
    let bench = bench(|limits| limits.connections = 2).await;
    let header = bench.header("runtime-1");
    let mut kept = Vec::new();
    for _ in 0..3 {
        let mut connection = Raw::connect(bench.address).await;
        connection.post(&header, BODY).await;
        assert_eq!(connection.reply().await.status, 200);
        kept.push(connection);
    }
    assert!(kept[0].is_closed().await);
    kept[1].post(&header, BODY).await;
    assert_eq!(kept[1].reply().await.status, 200);
    assert_eq!(bench.metric(r#"tidegate_listener_lost_connections_total{reason="idle"}"#), 1.0);
}

#[tokio::test]
async fn connections_that_all_have_a_request_under_way_leave_no_place_and_that_is_503() {
    let bench = bench(|limits| limits.connections = 1).await;
    let header = bench.header("runtime-1");
    let mut slow = Raw::connect(bench.address).await;
    slow.send(format!("POST {EVENT} HTTP/1.1\r\nhost: a\r\ncontent-length: 100\r\n{header}\r\n\r\n").as_bytes()).await;
    eventually("the place is taken", Duration::from_secs(10), async || {
        let reply = client::post(bench.address, &header, BODY).await;
        let close = reply.header("connection").map(str::to_owned);
        if (reply.status, close.as_deref()) == (503, Some("close")) { Ok(()) } else { Err(format!("{reply:?}")) }
    })
    .await;
    drop(slow);
    eventually("the place is free again", Duration::from_secs(10), async || match bench.post(BODY).await {
        200 => Ok(()),
        status => Err(status.to_string()),
    })
    .await;
}

#[tokio::test]
async fn one_runtime_has_a_share_of_the_requests_and_others_have_theirs() {
    let bench = bench(|limits| limits.sender_requests = 1).await;
    let header = bench.header("runtime-1");
    let mut slow = Raw::connect(bench.address).await;
    slow.send(format!("POST {EVENT} HTTP/1.1\r\nhost: a\r\ncontent-length: 100\r\n{header}\r\n\r\n").as_bytes()).await;
    eventually("its share is taken", Duration::from_secs(10), async || match bench.post(BODY).await {
        503 => Ok(()),
        status => Err(status.to_string()),
    })
    .await;
    assert_eq!(client::post(bench.address, &bench.header("runtime-2"), BODY).await.status, 200);
}

/// With ten thousand connections that say nothing, events are taken as if there were none.
#[tokio::test(flavor = "multi_thread")]
async fn ten_thousand_idle_connections_cost_little_and_stop_no_other() {
    let bench = bench(|_| {}).await;
    let before = resident();
    let mut idle = Vec::with_capacity(9_000);
    // Both ends are in this process, which may open so many files and no more.
    let files = rustix::process::getrlimit(rustix::process::Resource::Nofile).current.unwrap_or(u64::MAX);
    let count = usize::try_from(files.saturating_sub(1000) / 2).unwrap_or(usize::MAX).min(10_000);
    while idle.len() < count {
        idle.push(Raw::connect(bench.address).await);
    }
    let mut slowest = Duration::ZERO;
    for _ in 0..20 {
        let started = Instant::now();
        assert_eq!(bench.post(BODY).await, 200);
        slowest = slowest.max(started.elapsed());
    }
    assert!(slowest < Duration::from_secs(1), "{slowest:?}");
    let each = resident().saturating_sub(before) / count;
    // Both ends of each, and whatever other tests take meanwhile.
    assert!(each < 32 * 1024, "{each} bytes for each of {count}");
}

/// Heads that do not end, from many connections, take no more memory than is set aside for them.
#[tokio::test]
async fn heads_that_do_not_end_share_a_bounded_memory() {
    let bench = bench(|_| {}).await;
    let head = format!("POST {EVENT} HTTP/1.1\r\nhost: a\r\nx-a: {}", "a".repeat(60_000));
    let mut kept = Vec::new();
    let mut cut = 0;
    for _ in 0..700 {
        let mut connection = Raw::connect(bench.address).await;
        connection.send(head.as_bytes()).await;
        kept.push(connection);
    }
    for connection in kept.iter_mut().rev().take(50) {
        cut += usize::from(connection.is_closed().await);
    }
    assert_eq!(cut, 50, "the last ones found no room");
    assert_eq!(bench.post(BODY).await, 200, "and a sender of little is served");
}

fn resident() -> usize {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap();
    text.split(' ').nth(1).and_then(|pages| pages.parse::<usize>().ok()).unwrap() * 4096
}

#[tokio::test]
async fn a_receiver_that_hangs_is_503_and_stops_no_other() {
    let authority = client::Authority::new();
    let limits = Limits { receiver: SHORT, ..limits() };
    let hangs = |received: tidegate_events::listener::Received| -> futures::future::BoxFuture<'static, Answer> {
        match received.runtime_id() {
            "hangs" => Box::pin(std::future::pending()),
            _ => Box::pin(std::future::ready(Answer::Taken)),
        }
    };
    let listener = tidegate_events::listener::Listener::builder("lifecycle-manager")
        .forwarded(Xfcc::default())
        .limits(limits)
        .receiver(hangs);
    let now = tidegate_events::listener::now();
    listener.set_authorities(tidegate_events::identity::Authorities::parse(authority.pem().as_bytes(), now).ok());
    let socket = tidegate_events::listener::bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = socket.local_addr().unwrap();
    tokio::spawn(async move { listener.serve_forwarded(socket, std::future::pending()).await });
    let header = |runtime: &str| client::xfcc(&authority.issue(runtime, |_| {}).certificate);
    let (hangs, well) = (header("hangs"), header("well"));
    let (first, second) = tokio::join!(client::post(address, &hangs, BODY), client::post(address, &well, BODY));
    assert_eq!((first.status, first.header("retry-after")), (503, Some("2")));
    assert_eq!(second.status, 200);
}
