//! Delivery of events: the bytes on the wire, and what happens while the control plane is unreachable.

use std::time::{Duration, Instant};

use tidegate_agent::settings::Timing;
use tokio::net::TcpListener;

use super::{
    certificates::{Authority, HOST, Mount},
    control_plane::Reply,
    http,
    stage::{QUIET, Running, Stage, created, event, settings},
};

#[tokio::test(flavor = "multi_thread")]
async fn rows_26_to_31_the_request_is_the_go_agents_but_for_its_name() {
    let stage = Stage::start(QUIET).await;
    stage.change("default").await;
    stage.control_plane.wait_for(1).await;
    let received = stage.control_plane.received().remove(0);
    assert_eq!(received.message.first, "POST /v2/lifecycle-manager/event HTTP/1.1");
    let host = format!("{HOST}:{}", stage.control_plane.address.port());
    let agent = concat!("tidegate-agent/", env!("CARGO_PKG_VERSION"));
    let expected = [
        ("Host", host.as_str()),
        ("User-Agent", agent),
        ("Content-Length", "140"),
        ("Content-Type", "application/json"),
        ("Accept-Encoding", "gzip"),
    ];
    assert_eq!(received.message.headers, expected.map(|(name, value)| (name.to_owned(), value.to_owned())));
    assert_eq!(received.message.text(), event("default"));
    assert_eq!(received.certificate, der(&stage.identity.certificate));
    assert_eq!(received.server_name.as_deref(), Some(HOST));
}

fn der(pem: &str) -> Vec<u8> {
    use rustls::pki_types::{CertificateDer, pem::PemObject};
    CertificateDer::from_pem_slice(pem.as_bytes()).unwrap().to_vec()
}

#[tokio::test(flavor = "multi_thread")]
async fn row_42_all_events_go_over_one_connection() {
    let stage = Stage::start(QUIET).await;
    for index in 0..20 {
        stage.change(&format!("k{index}")).await;
        stage.control_plane.wait_for(index + 1).await;
    }
    assert!(stage.control_plane.received().iter().all(|received| received.connection == 1));
    assert_eq!(stage.metric("tidegate_agent_control_plane_connections").await, 1.0);
    assert_eq!(stage.metric("watcher_kcp_requests_total").await, 20.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn row_42_a_connection_that_was_closed_meanwhile_costs_no_failure() {
    let mut stage = Stage::start(QUIET).await;
    stage.change("a").await;
    stage.control_plane.wait_for(1).await;
    // The connection is closed and the next one accepted, as when a load balancer drops connections.
    stage.control_plane.stop().await;
    stage.control_plane.resume().await;
    stage.change("b").await;
    assert_eq!(stage.control_plane.wait_for(2).await, [event("a"), event("b")]);
    stage.wait_for_metric("tidegate_agent_pending_objects", 0.0).await;
    assert_eq!(stage.metric("watcher_failed_kcp_total{error_reason=\"failed-request\"}").await, 0.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn row_41_of_many_changes_of_one_object_one_is_told() {
    // Long enough for all of them on a machine that does other things as well.
    let stage = Stage::start(Timing { settle: Duration::from_secs(15), ..QUIET }).await;
    let mut stream = stage.connect().await;
    let review = http::post("/validate/lifecycle-manager", &serde_json::to_vec(&created("default")).unwrap());
    for _ in 0..100 {
        assert_eq!(http::ask(&mut stream, &review).await.unwrap().status(), 200);
    }
    stage.control_plane.wait_for(1).await;
    stage.wait_for_metric("tidegate_agent_pending_objects", 0.0).await;
    assert_eq!(stage.control_plane.events(), [event("default")]);
}

#[tokio::test(flavor = "multi_thread")]
async fn row_39_no_review_waits_for_a_control_plane_that_refuses() {
    let mut stage = Stage::start(QUIET).await;
    stage.control_plane.stop().await;
    for name in ["a", "b", "c"] {
        let begun = Instant::now();
        stage.change(name).await;
        // An agent that waits for such a control plane answers after six seconds at the least.
        assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    }
    let deadline = Instant::now() + http::PATIENCE;
    while stage.metric("watcher_failed_kcp_total{error_reason=\"failed-request\"}").await == 0.0 {
        assert!(Instant::now() < deadline);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(stage.metric("tidegate_agent_pending_objects").await, 3.0);
    stage.control_plane.resume().await;
    let mut events = stage.control_plane.wait_for(3).await;
    events.sort();
    assert_eq!(events, [event("a"), event("b"), event("c")]);
    stage.wait_for_metric("tidegate_agent_pending_objects", 0.0).await;
    assert_eq!(stage.metric("watcher_kcp_requests_total").await, 3.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn row_39_no_review_waits_for_a_control_plane_that_is_silent() {
    let stage = Stage::start(QUIET).await;
    stage.control_plane.reply(Reply::Silence);
    stage.change("a").await;
    stage.control_plane.wait_for(1).await;
    for name in ["b", "c", "a"] {
        let begun = Instant::now();
        stage.change(name).await;
        // An agent that waits for such a control plane answers after six seconds at the least.
        assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    }
    assert_eq!(stage.metric("tidegate_agent_pending_objects").await, 3.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn row_38_a_handshake_that_is_never_answered_is_given_up() {
    let authority = Authority::new();
    let mount = Mount::new(&authority.runtime(), &authority.pem);
    // Connections stay in the socket's queue.
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let timing = Timing { probe_interval: Duration::from_millis(10), ..QUIET };
    let agent = Running::start(timing, settings(&mount, silent.local_addr().unwrap())).await;
    let begun = Instant::now();
    let detail = loop {
        let page = agent.plain("/readyz").await.text().to_owned();
        if page.contains("down") {
            break page;
        }
        assert!(begun.elapsed() < http::PATIENCE, "{page}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    };
    assert!(detail.contains("took longer than 5 s to accept a connection"), "{detail}");
}

#[tokio::test(flavor = "multi_thread")]
async fn row_37_what_can_pass_is_tried_again() {
    for status in [500_u16, 502, 503, 504, 408, 425, 429] {
        let stage = Stage::start(QUIET).await;
        stage.control_plane.reply(Reply::Status(status, ""));
        stage.change("default").await;
        stage.control_plane.wait_for(1).await;
        stage.wait_for_metric("watcher_failed_kcp_total{error_reason=\"failed-request\"}", 1.0).await;
        // A 5xx means that there is no listener behind the gateway. A 4xx comes from the listener itself.
        assert_eq!(stage.metric("tidegate_agent_path_up").await, f64::from(status < 500), "{status}");
        stage.control_plane.reply(Reply::Status(200, ""));
        assert_eq!(stage.control_plane.wait_for(2).await, [event("default"), event("default")], "{status}");
        stage.wait_for_metric("tidegate_agent_pending_objects", 0.0).await;
        assert_eq!(stage.metric("tidegate_agent_path_up").await, 1.0, "{status}");
        assert_eq!(stage.metric("watcher_failed_kcp_total{error_reason=\"failed-request\"}").await, 1.0, "{status}");
        assert_eq!(stage.metric("watcher_kcp_requests_total").await, 1.0, "{status}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn row_37_retry_after_is_waited_for() {
    let stage = Stage::start(QUIET).await;
    stage.control_plane.reply(Reply::Status(429, "Retry-After: 3\r\n"));
    stage.change("default").await;
    stage.control_plane.wait_for(1).await;
    stage.control_plane.reply(Reply::Status(200, ""));
    stage.control_plane.wait_for(2).await;
    let received = stage.control_plane.received();
    let pause = received[1].at - received[0].at;
    assert!(Duration::from_millis(2_900) < pause, "{pause:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn row_36_only_200_is_a_yes_and_other_statuses_are_a_no() {
    for status in [201, 202, 204, 302, 400, 401, 403, 404, 413] {
        let stage = Stage::start(QUIET).await;
        stage.control_plane.reply(Reply::Status(status, ""));
        stage.change("default").await;
        stage.wait_for_metric("tidegate_agent_dropped_events_total{error_reason=\"refused\"}", 1.0).await;
        stage.wait_for_metric("tidegate_agent_pending_objects", 0.0).await;
        stage.wait_for_metric("watcher_failed_kcp_total{error_reason=\"failed-request\"}", 1.0).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_refusal_the_runtime_is_checked_once_the_listener_is_back() {
    let stage = Stage::start(Timing { resync_within: Duration::from_millis(30), ..QUIET }).await;
    // The full check that the start requests.
    let resync = stage.control_plane.wait_for(1).await.remove(0);
    stage.control_plane.reply(Reply::Status(403, ""));
    stage.change("a").await;
    stage.wait_for_metric("tidegate_agent_dropped_events_total{error_reason=\"refused\"}", 1.0).await;
    stage.control_plane.reply(Reply::Status(200, ""));
    stage.change("b").await;
    let expected = [resync.clone(), event("a"), event("b"), resync];
    assert_eq!(stage.control_plane.wait_for(4).await, expected);
    assert_eq!(stage.metric("tidegate_agent_resyncs_total").await, 2.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn row_40_an_event_settles_and_is_sent_once_more() {
    let timing = Timing { settle: Duration::from_millis(300), resend: Duration::from_millis(1_500), ..QUIET };
    let stage = Stage::start(timing).await;
    let begun = Instant::now();
    stage.change("default").await;
    assert_eq!(stage.control_plane.wait_for(2).await, [event("default"), event("default")]);
    let received = stage.control_plane.received();
    assert!(Duration::from_millis(300) <= received[0].at - begun, "{:?}", received[0].at - begun);
    assert!(Duration::from_millis(1_500) <= received[1].at - begun, "{:?}", received[1].at - begun);
    stage.wait_for_metric("tidegate_agent_trailing_objects", 0.0).await;
    assert_eq!(stage.metric("watcher_kcp_requests_total").await, 1.0);
    assert_eq!(stage.metric("tidegate_agent_resends_total").await, 1.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn row_43_after_a_start_the_runtime_is_looked_at() {
    let stage = Stage::start(Timing { resync_within: Duration::from_millis(30), ..QUIET }).await;
    let expected = r#"{"watched":{"Namespace":"kyma-system","Name":"skr-webhook"},"watchedGvk":{"group":"apps","version":"v1","kind":"Deployment"}}"#;
    assert_eq!(stage.control_plane.wait_for(1).await, [expected]);
    assert_eq!(stage.control_plane.received()[0].message.first, "POST /v2/lifecycle-manager/event HTTP/1.1");
}

#[tokio::test(flavor = "multi_thread")]
async fn every_so_often_all_managers_are_reminded() {
    let timing = Timing { resync_interval: Duration::from_millis(400), ..QUIET };
    let stage = Stage::start(timing).await;
    stage.review("/validate/other", &created("mine")).await;
    let usual = event("default");
    let deadline = Instant::now() + http::PATIENCE;
    loop {
        let received = stage.control_plane.received();
        let of = |path: &str, body: &str| {
            let first = format!("POST {path} HTTP/1.1");
            received
                .iter()
                .filter(|received| received.message.first == first && received.message.text() == body)
                .count()
        };
        if 2 <= of("/v2/lifecycle-manager/event", &usual) && 2 <= of("/v2/other/event", &event("mine")) {
            break;
        }
        assert!(Instant::now() < deadline, "{received:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_path_is_proven_without_an_event() {
    let mut stage = Stage::start(Timing { probe_interval: Duration::from_millis(100), ..QUIET }).await;
    stage.wait_for_metric("tidegate_agent_path_up", 1.0).await;
    let probe = stage.control_plane.received().remove(0).message;
    assert_eq!((probe.first.as_str(), probe.body.len()), ("GET /v2/lifecycle-manager/event HTTP/1.1", 0));
    assert!(stage.plain("/readyz").await.text().contains("connection to the control plane: up"));

    stage.control_plane.stop().await;
    stage.wait_for_metric("tidegate_agent_path_up", 0.0).await;
    let ready = stage.plain("/readyz").await;
    // Events wait here. Another agent would not deliver them sooner.
    assert_eq!(ready.status(), 200);
    assert!(ready.text().contains("connection to the control plane: down for"), "{}", ready.text());

    stage.control_plane.resume().await;
    stage.wait_for_metric("tidegate_agent_path_up", 1.0).await;
    assert_eq!(stage.metric("watcher_kcp_requests_total").await, 0.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_path_that_leads_elsewhere_is_none() {
    let stage = Stage::start(Timing { probe_interval: Duration::from_millis(100), ..QUIET }).await;
    stage.control_plane.reply(Reply::Status(404, ""));
    let deadline = Instant::now() + http::PATIENCE;
    while !stage.plain("/readyz").await.text().contains("a probe was answered with 404 instead of 405") {
        assert!(Instant::now() < deadline);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn row_34_a_gateway_with_a_leaf_of_its_own_is_trusted() {
    let authority = Authority::new();
    let server = authority.server(HOST);
    let stage = Stage::start_with(QUIET, authority, &server).await;
    stage.change("default").await;
    assert_eq!(stage.control_plane.wait_for(1).await, [event("default")]);
}

#[tokio::test(flavor = "multi_thread")]
async fn row_34_a_gateway_of_another_name_or_authority_is_told_nothing() {
    let ours = Authority::new();
    let elsewhere = ours.server("elsewhere");
    let stranger = Authority::new().itself();
    for server in [elsewhere, stranger] {
        let authority = Authority::new();
        let stage = Stage::start_with(QUIET, authority, &server).await;
        stage.change("default").await;
        stage.wait_for_metric("watcher_failed_kcp_total{error_reason=\"failed-request\"}", 1.0).await;
        assert!(stage.plain("/readyz").await.text().contains("invalid peer certificate"));
        assert_eq!(stage.control_plane.received().len(), 0);
        assert_eq!(stage.metric("tidegate_agent_pending_objects").await, 1.0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn row_43_at_the_end_what_waits_is_sent() {
    let timing = Timing { settle: Duration::from_millis(500), shutdown_delay: Duration::from_millis(300), ..QUIET };
    let mut stage = Stage::start(timing).await;
    stage.change("before").await;
    stage.agent.stop();
    // The cluster does not know of the shutdown yet: reviews are still answered, and `/readyz` fails.
    let deadline = Instant::now() + http::PATIENCE;
    while stage.plain("/readyz").await.status() != 503 {
        assert!(Instant::now() < deadline);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    stage.change("meanwhile").await;
    let Stage { agent, control_plane, .. } = stage;
    let address = agent.admission;
    assert_eq!(agent.ended().await, 0);
    let mut events = control_plane.events();
    events.sort();
    assert_eq!(events, [event("before"), event("meanwhile")]);
    assert!(tokio::net::TcpStream::connect(address).await.is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn row_43_the_end_does_not_wait_for_ever() {
    let mut stage = Stage::start(Timing { flush: Duration::from_millis(300), ..QUIET }).await;
    stage.control_plane.stop().await;
    stage.change("default").await;
    let begun = Instant::now();
    stage.agent.stop();
    assert_eq!(stage.agent.ended().await, 1);
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
}

#[tokio::test(flavor = "multi_thread")]
async fn row_37_a_connection_that_breaks_off_is_tried_again() {
    let stage = Stage::start(QUIET).await;
    stage.control_plane.reply(Reply::Close);
    stage.change("default").await;
    stage.control_plane.wait_for(1).await;
    stage.control_plane.reply(Reply::Status(200, ""));
    stage.control_plane.wait_for(2).await;
    stage.wait_for_metric("tidegate_agent_pending_objects", 0.0).await;
    assert!(1.0 <= stage.metric("watcher_failed_kcp_total{error_reason=\"failed-request\"}").await);
}
