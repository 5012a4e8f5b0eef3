//! Any client may connect to the ports. Its cost is limited, and other requests are still served.

use std::{sync::Arc, time::Duration};

use rustls::{
    ClientConfig,
    crypto::ring::{cipher_suite, kx_group},
    version::{TLS12, TLS13},
};
use serde_json::json;
use tidegate_process::tls::{self, Algorithms};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    time::timeout,
};

use super::{
    certificates::SERVICE,
    http,
    stage::{QUIET, Stage, created, event},
};

/// Checks that the agent still works.
async fn works(stage: &Stage) {
    stage.change("still").await;
    let deadline = std::time::Instant::now() + http::PATIENCE;
    while !stage.control_plane.events().contains(&event("still")) {
        assert!(std::time::Instant::now() < deadline);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn row_11_malformed_reviews_are_no_answer_and_counted() {
    let stage = Stage::start(QUIET).await;
    let bodies: Vec<Vec<u8>> = vec![
        b"".to_vec(),
        b"{".to_vec(),
        b"null".to_vec(),
        b"[]".to_vec(),
        b"\"x\"".to_vec(),
        b"{}".to_vec(),
        b"{\"request\":null}".to_vec(),
        b"{\"request\":{\"uid\":1}}".to_vec(),
        b"{\"request\":{\"object\":}}".to_vec(),
        b"{\"request\":{}}{\"request\":{}}".to_vec(),
        b"\xff\xfe".to_vec(),
        vec![b'['; 1 << 20],
        [b"{\"request\":".as_slice(), &vec![b'{'; 1 << 20]].concat(),
    ];
    for (index, body) in bodies.iter().enumerate() {
        let mut stream = stage.connect().await;
        let answer = http::ask(&mut stream, &http::post("/validate/kyma", body)).await.unwrap();
        assert_eq!(answer.status(), 400, "{index}");
        let errors = stage.metric("watcher_admission_request_error_total").await;
        assert_eq!(errors, f64::from(u32::try_from(index).unwrap() + 1), "{index}");
    }
    works(&stage).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn path_tricks_lead_nowhere() {
    let stage = Stage::start(QUIET).await;
    let body = serde_json::to_vec(&created("default")).unwrap();
    for path in [
        "/validate",
        "/validate/",
        "//validate/a",
        "/validate//a",
        "/validate/../metrics",
        "/validate/%2e%2e/a",
        "/validate/a/../b",
        "/validate/a%00",
        "/validate/%ff",
        "/VALIDATE/a",
        "/x/validate/a",
        "/validate/?a",
        "/metrics",
        "http://a/metrics",
    ] {
        let mut stream = stage.connect().await;
        let answer = http::ask(&mut stream, &http::post(path, &body)).await.unwrap();
        assert_eq!(answer.status(), 404, "{path}");
    }
    // An absolute target is accepted as a path.
    let mut stream = stage.connect().await;
    let answer = http::ask(&mut stream, &http::post("https://a/validate/lifecycle-manager", &body)).await.unwrap();
    assert_eq!(answer.status(), 200);
    assert_eq!(stage.control_plane.wait_for(1).await, [event("default")]);
}

#[tokio::test(flavor = "multi_thread")]
async fn row_46_a_body_of_more_than_8_mib_is_refused_unread() {
    let stage = Stage::start(QUIET).await;
    let mut stream = stage.connect().await;
    let head = format!("POST /validate/kyma HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n", (8 << 20) + 1);
    let answer = http::ask(&mut stream, head.as_bytes()).await.unwrap();
    assert_eq!(answer.status(), 413);
    works(&stage).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn row_46_chunks_without_end_are_refused_at_8_mib() {
    let stage = Stage::start(QUIET).await;
    let (mut reader, mut writer) = tokio::io::split(stage.connect().await);
    let writing = tokio::spawn(async move {
        let head = "POST /validate/kyma HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
        writer.write_all(head.as_bytes()).await.unwrap();
        let chunk = [b"10000\r\n".as_slice(), &vec![b' '; 0x1_0000], b"\r\n"].concat();
        let mut written = 0;
        while writer.write_all(&chunk).await.is_ok() && written < 64 << 20 {
            written += 0x1_0000;
        }
        written
    });
    let answer = timeout(http::PATIENCE, http::read(&mut reader)).await.unwrap().unwrap().unwrap();
    assert_eq!(answer.status(), 413);
    drop(reader);
    let written = timeout(http::PATIENCE, writing).await.unwrap().unwrap();
    assert!(written < 64 << 20, "{written} bytes were taken");
    works(&stage).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn row_46_a_body_of_megabytes_is_decided_about() {
    let stage = Stage::start(QUIET).await;
    let mut review = created("default");
    review["request"]["operation"] = "UPDATE".into();
    review["request"]["oldObject"] = review["request"]["object"].clone();
    for key in ["object", "oldObject"] {
        review["request"][key]["spec"]["blob"] = "x".repeat(3 << 20).into();
    }
    let answer = stage.review("/validate/kyma", &review).await;
    assert!(answer.text().contains("no change detected"), "{}", answer.text());
    review["request"]["object"]["spec"]["blob"] = json!("y".repeat(3 << 20));
    stage.review("/validate/kyma", &review).await;
    assert_eq!(stage.control_plane.wait_for(1).await, [event("default")]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_that_ends_early_is_no_review() {
    let stage = Stage::start(QUIET).await;
    for _ in 0..20 {
        let mut stream = stage.connect().await;
        stream
            .write_all(b"POST /validate/kyma HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\n{\"request\":")
            .await
            .unwrap();
        stream.shutdown().await.unwrap();
        let mut rest = Vec::new();
        let _ = timeout(http::PATIENCE, stream.read_to_end(&mut rest)).await.expect("an end in time");
        assert!(!rest.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&rest));
    }
    works(&stage).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn slow_writers_are_given_up_and_delay_no_other() {
    let stage = Stage::start(QUIET).await;
    let mut slow = Vec::new();
    for _ in 0..100 {
        let mut stream = stage.connect().await;
        stream
            .write_all(b"POST /validate/kyma HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\n{\"requ")
            .await
            .unwrap();
        slow.push(stream);
    }
    // Heads that never end.
    for _ in 0..100 {
        let mut stream = stage.connect().await;
        stream.write_all(b"POST /validate/kyma HTTP/1.1\r\nHost: ").await.unwrap();
        slow.push(stream);
    }
    works(&stage).await;
    let answer = timeout(http::PATIENCE, http::read(&mut slow[0])).await.unwrap().unwrap().unwrap();
    assert_eq!(answer.status(), 408);
    works(&stage).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn bytes_that_are_no_http_or_no_tls_change_nothing() {
    let stage = Stage::start(QUIET).await;
    for bytes in [
        b"\0\0\0\0".as_slice(),
        b"GET / HTTP/1.1\r\n\r\n",
        b"\x16\x03\x01\xff\xff",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        &[0xFF; 4096],
    ] {
        for address in [stage.agent.admission, stage.agent.plain] {
            let mut stream = TcpStream::connect(address).await.unwrap();
            let _ = stream.write_all(bytes).await;
            drop(stream);
        }
        let mut stream = stage.connect().await;
        let _ = stream.write_all(bytes).await;
    }
    let long = format!("GET /validate/a HTTP/1.1\r\nHost: {}\r\n\r\n", "a".repeat(1 << 20));
    let mut stream = stage.connect().await;
    let answer = http::ask(&mut stream, long.as_bytes()).await;
    assert!(answer.is_none_or(|answer| answer.status() == 431));
    works(&stage).await;
}

fn client(stage: &Stage, versions: &[&'static rustls::SupportedProtocolVersion], narrow: bool) -> Arc<ClientConfig> {
    use rustls::pki_types::{CertificateDer, pem::PemObject};
    let mut provider = (*tls::provider(Algorithms::All)).clone();
    if narrow {
        provider.cipher_suites = vec![cipher_suite::TLS13_AES_128_GCM_SHA256];
        provider.kx_groups = vec![kx_group::SECP256R1];
    }
    let mut roots = rustls::RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(stage.authority.pem.as_bytes()).unwrap()).unwrap();
    let config = ClientConfig::builder_with_provider(Arc::new(provider)).with_protocol_versions(versions).unwrap();
    Arc::new(config.with_root_certificates(roots).with_no_client_auth())
}

#[tokio::test(flavor = "multi_thread")]
async fn row_6_tls_1_3_only_with_p_256_and_aes_gcm() {
    let stage = Stage::start(QUIET).await;
    let connect = async |config| {
        let stream = TcpStream::connect(stage.agent.admission).await.unwrap();
        http::secured(config, SERVICE, stream).await.map(drop).map_err(|error| error.to_string())
    };
    assert_eq!(connect(client(&stage, &[&TLS13], true)).await, Ok(()));
    assert!(connect(client(&stage, &[&TLS12], false)).await.unwrap_err().contains("ProtocolVersion"));
}

#[tokio::test(flavor = "multi_thread")]
async fn beyond_256_connections_that_say_nothing_the_oldest_of_them_is_closed() {
    let stage = Stage::start(QUIET).await;
    let mut used = stage.connect().await;
    let review = http::post("/validate/kyma", &serde_json::to_vec(&created("default")).unwrap());
    let mut idle = Vec::new();
    for index in 0..600 {
        idle.push(TcpStream::connect(stage.agent.admission).await.unwrap());
        if index % 100 == 0 {
            assert_eq!(http::ask(&mut used, &review).await.unwrap().status(), 200);
        }
    }
    // The one that is used stays open.
    assert_eq!(http::ask(&mut used, &review).await.unwrap().status(), 200);
    let deadline = std::time::Instant::now() + http::PATIENCE;
    while stage.metric("tidegate_agent_evicted_connections_total").await < 344.0 {
        assert!(std::time::Instant::now() < deadline);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let mut end = [0];
    let read = timeout(http::PATIENCE, idle[0].read(&mut end)).await.expect("it is closed");
    assert!(read.is_err() || read.is_ok_and(|count| count == 0));
    works(&stage).await;
}

/// If the webhook configuration of an API server contains another CA, the API server ignores the failed calls. Only the
/// agent can notice.
#[tokio::test(flavor = "multi_thread")]
async fn who_does_not_take_the_certificate_is_counted_and_others_are_not() {
    let stage = Stage::start(QUIET).await;
    let strangers = http::trusting(&super::certificates::Authority::new().pem);
    for count in 1..=3 {
        let stream = TcpStream::connect(stage.agent.admission).await.unwrap();
        assert!(http::secured(Arc::clone(&strangers), SERVICE, stream).await.is_err());
        stage.wait_for_metric("tidegate_agent_refused_certificates_total", f64::from(count)).await;
    }
    // A port check, which closes the connection without a handshake.
    drop(TcpStream::connect(stage.agent.admission).await.unwrap());
    works(&stage).await;
    assert_eq!(stage.metric("tidegate_agent_refused_certificates_total").await, 3.0);
}
