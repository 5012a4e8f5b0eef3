//! Callers of the agent: more than it has places for, and what it does when one had to go.

use std::{sync::Arc, time::Duration};

use rustls::ClientConfig;
use tidegate_agent::{
    client::Client,
    credentials::Generation,
    deliver::{Courier, deliver},
    manager::Manager,
    metrics::Metrics,
    outbox::Outbox,
    pending,
    settings::Timing,
};
use tidegate_events::event::Event;
use tokio::{sync::watch, time::Instant};

use crate::agent::{
    certificates::{Authority, Mount, SERVICE},
    http,
    stage::{QUIET, Stage, created, event, settings},
};

/// An API server sends up to 600 reviews at once, each over a connection of its own.
#[tokio::test(flavor = "multi_thread")]
async fn no_connection_of_600_callers_is_cut_for_another() {
    let stage = Stage::start(QUIET).await;
    let review = http::post("/validate/kyma", &serde_json::to_vec(&created("default")).unwrap());
    let mut callers = Vec::new();
    for _ in 0..600 {
        callers.push(stage.connect().await);
    }
    for (index, caller) in callers.iter_mut().enumerate() {
        let answer = http::ask(caller, &review).await.unwrap_or_else(|| panic!("review {index} was cut"));
        assert_eq!(answer.status(), 200);
    }
    assert_eq!(stage.metric("tidegate_agent_evicted_connections_total").await, 0.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn reviews_are_answered_until_everything_is_flushed() {
    let mut stage = Stage::start(Timing { flush: Duration::from_secs(60), ..QUIET }).await;
    stage.control_plane.stop().await;
    stage.change("before").await;
    stage.wait_for_metric("tidegate_agent_path_up", 0.0).await;
    stage.agent.stop();
    let stopping = async {
        while stage.plain("/readyz").await.status() != 503 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(http::PATIENCE, stopping).await.expect("it stops");
    for index in 0..20 {
        stage.change(&format!("meanwhile-{index}")).await;
    }
    stage.control_plane.resume().await;
    let Stage { agent, control_plane, .. } = stage;
    assert_eq!(agent.ended().await, 0);
    let mut events = control_plane.events();
    events.sort();
    events.dedup();
    let mut expected: Vec<String> = (0..20).map(|index| event(&format!("meanwhile-{index}"))).collect();
    expected.push(event("before"));
    expected.sort();
    assert_eq!(events, expected);
}

/// An event that failed again and again waits for up to a minute. The certificate may have been the reason. The clock
/// is paused, so a pause takes its whole time on it.
#[tokio::test(start_paused = true)]
async fn new_credentials_end_the_pause_after_failures_at_once() {
    let authority = Authority::new();
    let mount = Mount::new(&authority.runtime(), &authority.pem);
    let unused = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let settings = settings(&mount, unused);
    let provider = tidegate_process::tls::provider(settings.fips.algorithms());
    let generation = |number| Arc::new(Generation::load(&settings.files, &provider, number).unwrap());
    let (credentials, renewed) = watch::channel(generation(1));
    let (_stop, stopped) = watch::channel(false);
    let metrics = Metrics::new(0);
    let limits = pending::Limits { settle: Duration::ZERO, resend: Duration::ZERO, objects: 8 };
    let outbox = Arc::new(Outbox::new(limits, metrics.clone()));
    let client = Client::new(settings.control_plane.clone(), credentials.subscribe());
    let courier = Courier::new(Arc::clone(&outbox), client, metrics.clone(), QUIET, "v2".to_owned());
    tokio::spawn(deliver(courier, renewed, stopped));
    let manager = Manager::of_path("/validate/lifecycle-manager").unwrap();
    outbox.changed(pending::Key { manager, event: Event::parse(event("default").as_bytes()).unwrap() });

    let failures = || {
        let page = metrics.render(outbox.depth());
        let of =
            |line: &str| line.strip_prefix("watcher_failed_kcp_total{error_reason=\"failed-request\"} ")?.parse().ok();
        page.lines().find_map(of).unwrap_or(0_u32)
    };
    let failed = async |count| {
        while failures() < count {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        Instant::now()
    };
    for count in [8, 9, 10] {
        let before = failed(count).await;
        credentials.send_replace(generation(u64::from(count)));
        let pause = failed(count + 1).await - before;
        assert!(pause < Duration::from_millis(100), "{pause:?}");
    }
}

/// A review whose body breaks off was a write all the same.
#[tokio::test(flavor = "multi_thread")]
async fn a_review_that_breaks_off_is_counted_and_the_runtime_is_checked() {
    use tokio::io::AsyncWriteExt as _;
    let timing =
        Timing { probe_interval: Duration::from_millis(100), resync_within: Duration::from_millis(10), ..QUIET };
    let stage = Stage::start(timing).await;
    let resyncs = "tidegate_agent_resyncs_total";
    stage.wait_for_metric(resyncs, 1.0).await;
    let mut caller = stage.connect().await;
    let head = b"POST /validate/lifecycle-manager HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\n{\"request\":";
    caller.write_all(head).await.unwrap();
    caller.shutdown().await.unwrap();
    stage.wait_for_metric("tidegate_agent_cut_reviews_total", 1.0).await;
    stage.wait_for_metric(resyncs, 2.0).await;
}

/// Each connection of an API server that keeps its sessions costs a signature only once.
#[tokio::test(flavor = "multi_thread")]
async fn a_session_is_resumed_although_hundreds_of_connections_came_between() {
    use rustls::HandshakeKind;
    use tokio::{io::AsyncWriteExt as _, net::TcpStream};
    let stage = Stage::start(QUIET).await;
    let connect = async |client: &Arc<ClientConfig>| {
        let stream = TcpStream::connect(stage.agent.admission).await.unwrap();
        let mut stream = http::secured(Arc::clone(client), SERVICE, stream).await.unwrap();
        let answer = http::ask(&mut stream, &http::get("/none")).await.unwrap();
        assert_eq!(answer.status(), 404);
        let kind = stream.get_ref().1.handshake_kind();
        let _ = stream.shutdown().await;
        kind
    };
    let kept = http::trusting(&stage.authority.pem);
    assert_ne!(connect(&kept).await, Some(HandshakeKind::Resumed));
    for _ in 0..300 {
        connect(&http::trusting(&stage.authority.pem)).await;
    }
    assert_eq!(connect(&kept).await, Some(HandshakeKind::Resumed));
}
