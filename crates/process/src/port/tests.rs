use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpListener,
};

use super::*;

#[test]
fn a_first_message_is_complete_when_tls_or_http_can_read_it() {
    let hello = |length: u8, sent: usize| [&[22, 3, 1, 0, length][..], &vec![1; sent]].concat();
    let long = vec![b'a'; MESSAGE_BYTES_MAX];
    let cases: [(&[u8], Protocol, bool); 12] = [
        (b"", Protocol::Tls, false),
        (b"\x16\x03", Protocol::Tls, false),
        (&hello(9, 8), Protocol::Tls, false),
        (&hello(9, 9), Protocol::Tls, true),
        (&hello(9, 10), Protocol::Tls, true),
        // Not TLS, and an announcement of more than is kept.
        (b"GET / HTTP/1.1\r\n", Protocol::Tls, true),
        (&[&[22, 3, 1, 255, 255], &long[5..]].concat(), Protocol::Tls, true),
        (b"POST / HTTP/1.1\r\nhost: a\r\n", Protocol::Http, false),
        (b"POST / HTTP/1.1\r\nhost: a\r\n\r\n", Protocol::Http, true),
        (b"POST / HTTP/1.1\nhost: a\n\nbody", Protocol::Http, true),
        (b"POST / HTTP/1.1\nhost: a\n\r", Protocol::Http, false),
        (&long, Protocol::Http, true),
    ];
    for (message, protocol, expected) in cases {
        assert_eq!(is_complete(message, protocol), expected, "{protocol:?} {:?}", &message[..message.len().min(40)]);
    }
}

async fn pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    (client, listener.accept().await.unwrap().0)
}

#[tokio::test]
async fn what_was_read_first_is_read_again() {
    let (mut client, server) = pair().await;
    let head = b"POST / HTTP/1.1\r\n\r\nbo";
    client.write_all(head).await.unwrap();
    let wait = Duration::from_secs(60);
    let Opening::Message(message) = first_message(&server, Protocol::Http, wait, wait).await else {
        panic!("there is a message")
    };
    client.write_all(b"dy").await.unwrap();
    client.shutdown().await.unwrap();
    let mut all = Vec::new();
    Prefixed::new(message, server).read_to_end(&mut all).await.unwrap();
    assert_eq!(all, b"POST / HTTP/1.1\r\n\r\nbody");
}

#[tokio::test]
async fn a_peer_that_closes_is_distinguished_from_one_that_is_late() {
    let (instant, long) = (Duration::from_millis(1), Duration::from_secs(60));
    let (client, server) = pair().await;
    assert_eq!(first_message(&server, Protocol::Http, instant, long).await, Opening::Silent);
    drop(client);
    assert_eq!(first_message(&server, Protocol::Http, long, long).await, Opening::Closed);
    let (mut client, server) = pair().await;
    client.write_all(b"POST").await.unwrap();
    assert_eq!(first_message(&server, Protocol::Http, long, instant).await, Opening::Slow);
    client.write_all(b" / HT").await.unwrap();
    drop(client);
    let half = Opening::Message(b" / HT".to_vec());
    assert_eq!(first_message(&server, Protocol::Http, long, long).await, half);
}

const LIMITS: Limits = Limits { opening: 8, proven: 8, sender: 8 };
const ADDRESS: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

#[tokio::test(start_paused = true)]
async fn one_that_waits_for_room_gets_it_from_the_oldest_once_its_grace_is_over() {
    let grace = Duration::from_secs(1);
    let port = Port::new(LIMITS, 2, Room::FromUnproven { grace, share: 2 });
    let started = Instant::now();
    let (first, second, third) = (port.admit(ADDRESS), port.admit(ADDRESS), port.admit(ADDRESS));
    let of_first = first.begin().await;
    tokio::time::advance(grace / 2).await;
    let _of_second = second.begin().await;
    let leaves = async {
        first.evicted().await;
        drop(of_first);
    };
    let (_of_third, ()) = tokio::join!(third.begin(), leaves);
    let waited = started.elapsed();
    assert!(grace <= waited && waited < grace + 2 * ROOM_CHECK, "{waited:?}");
    let stays = tokio::time::timeout(Duration::ZERO, second.evicted()).await;
    assert!(stays.is_err(), "one is enough");
}

#[tokio::test(start_paused = true)]
async fn one_address_holds_its_share_and_others_do_not_wait_for_it() {
    let grace = Duration::from_secs(1);
    let port = Port::new(LIMITS, 4, Room::FromUnproven { grace, share: 2 });
    let flood: Vec<Held> = (0..4).map(|_| port.admit(ADDRESS)).collect();
    let (of_first, _of_second) = (flood[0].begin().await, flood[1].begin().await);
    // Two more of that address wait in its own line.
    let mut waiting = [Box::pin(flood[2].begin()), Box::pin(flood[3].begin())];
    for one in &mut waiting {
        assert!(is_pending(one.as_mut()).await);
    }
    let started = Instant::now();
    let other = port.admit(IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 1)));
    let _of_other = other.begin().await;
    assert_eq!(started.elapsed(), Duration::ZERO, "its own address has room");
    // The line moves on when the oldest of the address is overdue, and takes nothing of the other address.
    let leaves = async {
        flood[0].evicted().await;
        drop(of_first);
    };
    let (_of_third, ()) = tokio::join!(waiting[0].as_mut(), leaves);
    assert!(grace <= started.elapsed());
    let stays = tokio::time::timeout(Duration::ZERO, other.evicted()).await;
    assert!(stays.is_err(), "another address pays for its own connections only");
}

/// Whether a future is pending after it was polled once.
async fn is_pending<T>(future: Pin<&mut impl Future<Output = T>>) -> bool {
    tokio::time::timeout(Duration::ZERO, future).await.is_err()
}

#[tokio::test(start_paused = true)]
async fn one_with_a_request_or_a_handshake_under_way_never_goes() {
    let port = Port::new(LIMITS, 2, Room::FromIdle);
    let (busy, idle, next) = (port.admit(ADDRESS), port.admit(ADDRESS), port.admit(ADDRESS));
    let (_of_busy, of_idle) = (busy.begin().await, idle.begin().await);
    assert!(busy.prove(None) && idle.prove(None));
    let day = Duration::from_secs(86_400);
    assert!(tokio::time::timeout(day, next.begin()).await.is_err(), "both are busy");
    idle.rest();
    let leaves = async {
        idle.evicted().await;
        drop(of_idle);
    };
    let (of_next, ()) = tokio::join!(next.begin(), leaves);
    // It is in its handshake: nothing goes for another.
    let last = port.admit(ADDRESS);
    assert!(tokio::time::timeout(day, last.begin()).await.is_err());
    drop(of_next);
    last.begin().await;
}
