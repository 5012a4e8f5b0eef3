//! Requests of every sort, and the answer to each: upstream's, with the deviations that are meant.

use super::{
    Bench,
    client::{self, BODY, Raw},
};

const EVENT: &str = "/v2/lifecycle-manager/event";

/// Bodies, the status that upstream answers, and what an event then says. Where upstream says 500, so that its agents
/// try again what can never succeed, we say 400.
#[tokio::test]
async fn row_52_bodies_are_decoded_as_by_go() {
    let mut bench = Bench::new().await;
    let kyma = ["kyma-system", "default", "operator.kyma-project.io", "v1beta2", "Kyma"];
    let gvk = r#""watchedGvk":{"group":"g","version":"v","kind":"k"}"#;
    let nothing = ["", "", "", "", ""];
    let accepted: &[(&str, String, [&str; 5])] = &[
        ("current agent", BODY.to_owned(), kyma),
        ("all lower-case keys", BODY.replace("Namespace", "namespace").replace("Name\"", "name\""), kyma),
        (
            "all upper-case keys",
            BODY.replace("watchedGvk", "WATCHEDGVK")
                .replace("watched\"", "WATCHED\"")
                .replace("group", "GROUP")
                .replace("version\"", "VERSION\"")
                .replace("kind", "KIND"),
            kyma,
        ),
        ("legacy body with owner", BODY.replacen('{', r#"{"owner":{"Namespace":"kcp-system","Name":"one"},"#, 1), kyma),
        (
            "unknown fields",
            format!(r#"{{"watched":{{"Namespace":"a","Name":"b","uid":1}},{gvk},"extra":[1,2]}}"#),
            ["a", "b", "g", "v", "k"],
        ),
        (
            "duplicate scalar",
            r#"{"watched":{"Name":"a","Name":"b","Namespace":"n"},"watchedGvk":{}}"#.to_owned(),
            ["n", "b", "", "", ""],
        ),
        (
            "duplicate object",
            r#"{"watched":{"Name":"a","Namespace":"n"},"watched":{"Name":"b"},"watchedGvk":{}}"#.to_owned(),
            ["n", "b", "", "", ""],
        ),
        ("empty object", "{}".to_owned(), nothing),
        ("null", "null".to_owned(), nothing),
        ("null members", r#"{"watched":null,"watchedGvk":null}"#.to_owned(), nothing),
        ("missing watchedGvk", r#"{"watched":{"Namespace":"n","Name":"x"}}"#.to_owned(), ["n", "x", "", "", ""]),
        ("white space around", format!(" \n{BODY} \n"), kyma),
    ];
    for (name, body, expected) in accepted {
        assert_eq!(bench.post(body).await, 200, "{name}");
        let event = bench.event().await.event;
        let found = [event.watched.namespace, event.watched.name, event.gvk.group, event.gvk.version, event.gvk.kind];
        assert_eq!(found, *expected, "{name}");
    }
    let refused = [
        ("empty body", String::new()),
        ("array", "[]".to_owned()),
        ("string", "\"x\"".to_owned()),
        ("watched is a string", r#"{"watched":"n/x"}"#.to_owned()),
        ("name is a number", r#"{"watched":{"Name":1}}"#.to_owned()),
        ("trailing second document", format!("{BODY}{BODY}")),
        ("truncated", BODY[..BODY.len() - 1].to_owned()),
        ("byte order mark", format!("\u{feff}{BODY}")),
        ("deep", "[".repeat(16_000)),
    ];
    for (name, body) in refused {
        let reply = client::post(bench.address, &bench.header("runtime-1"), &body).await;
        assert_eq!(reply.status, 400, "{name}");
        assert!(reply.body.starts_with("could not unmarshal watcher event"), "{name}: {}", reply.body);
        assert!(body.len() < 3 || !reply.body.contains(&body), "{name}: nothing is echoed");
    }
    assert_eq!(bench.metric(r#"tidegate_listener_refused_total{reason="no-event"}"#), 9.0);
}

/// Each request has everything wrong that is checked later, so that the order shows.
#[tokio::test]
async fn rows_48_to_57_what_is_checked_first_is_answered() {
    let bench = Bench::new().await;
    let nameless = client::xfcc(&bench.authority.issue("", |_| {}).certificate);
    let long = format!("content-length: {}", 16_385);
    let ask =
        async |what: &str, headers: &[&str], body: &[u8]| client::request(bench.address, what, headers, body).await;
    let put = format!("PUT {EVENT}");
    let post = format!("POST {EVENT}");
    let check = |reply: client::Reply, status: u16, body: &str| {
        assert_eq!((reply.status, reply.body.as_str()), (status, body));
        assert_eq!(reply.header("content-type"), Some("text/plain; charset=utf-8"));
        assert_eq!(reply.header("x-content-type-options"), Some("nosniff"));
        reply
    };
    check(ask("PUT /other", &[&long], b"").await, 404, "404 page not found\n");
    check(ask(&put, &[&long], b"").await, 413, "Body size greater than 16384 bytes is not allowed\n");
    let reply = check(ask(&put, &[], b"[").await, 405, "PUT method is not allowed on this path\n");
    assert_eq!(reply.header("allow"), Some("POST"));
    check(
        ask(&post, &[], b"[").await,
        401,
        "could not get client certificate from request: X-Forwarded-Client-Cert header is missing\n",
    );
    check(
        ask(&post, &["x-forwarded-client-cert: Cert=%ZZ"], b"[").await,
        401,
        "could not get client certificate from request: certificate is not URL-encoded\n",
    );
    check(ask(&post, &[&nameless], b"[").await, 400, "client certificate common name is empty\n");
    let reply = ask(&post, &[&bench.header("runtime-1")], b"[").await;
    assert_eq!(reply.status, 400);
}

#[tokio::test]
async fn row_48_only_the_one_path_is_served() {
    let mut bench = Bench::new().await;
    let header = bench.header("runtime-1");
    for path in [
        "/",
        "/v2/lifecycle-manager",
        "/v2/lifecycle-manager/event/",
        "/v2/lifecycle-manager/event/more",
        "//v2/lifecycle-manager/event",
        "/v2//lifecycle-manager/event",
        "/v2/./lifecycle-manager/event",
        "/v2/x/../lifecycle-manager/event",
        "/v2/lifecycle-manager%2Fevent",
        "/v2/lifecycle%2Dmanager/event",
        "/v2/lifecycle-manager/event%00",
        "/V2/lifecycle-manager/event",
        "/v1/lifecycle-manager/event",
        "/v/lifecycle-manager/event",
        "/r1/lifecycle-manager/event",
        "/v2/other/event",
    ] {
        let reply = client::request(bench.address, &format!("POST {path}"), &[&header], BODY.as_bytes()).await;
        assert_eq!(reply.status, 404, "{path}");
    }
    // What is asked for beside the path does not matter.
    for path in [&format!("{EVENT}?timeout=1"), &format!("http://listener.example{EVENT}")] {
        let reply = client::request(bench.address, &format!("POST {path}"), &[&header], BODY.as_bytes()).await;
        assert_eq!(reply.status, 200, "{path}");
        bench.event().await;
    }
}

#[tokio::test]
async fn row_49_every_other_method_is_405() {
    let bench = Bench::new().await;
    for method in ["GET", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE"] {
        let reply = client::request(bench.address, &format!("{method} {EVENT}"), &[], b"").await;
        assert_eq!((reply.status, reply.header("allow")), (405, Some("POST")), "{method}");
        assert_eq!(reply.body, format!("{method} method is not allowed on this path\n"));
    }
    let reply = client::request(bench.address, &format!("BREW {EVENT}"), &[], b"").await;
    assert_eq!((reply.status, reply.body.as_str()), (405, "this method is not allowed on this path\n"));
}

/// The sizes of upstream's test, and the border.
#[tokio::test]
async fn rows_6_2_and_50_bodies_up_to_16384_bytes() {
    let mut bench = Bench::new().await;
    let padded = |size: usize| format!("{BODY}{}", " ".repeat(size - BODY.len()));
    for size in [262, 16_384] {
        assert_eq!(bench.post(&padded(size)).await, 200, "{size}");
        bench.event().await;
    }
    for size in [16_385, 31_722, 1 << 20] {
        assert_eq!(bench.post(&padded(size)).await, 413, "{size}");
    }
    let header = bench.header("runtime-1");
    for (size, status) in [(16_384, 200), (16_385, 413), (31_722, 413), (200_000, 413)] {
        let reply = chunked(&bench, &header, &padded(size)).await;
        assert_eq!(reply.status, status, "{size} in chunks");
    }
    let series = r#"watcher_listener_exceeding_size_limit_requests_total{server_name="listener"}"#;
    assert_eq!(bench.metric(series), 6.0);
}

async fn chunked(bench: &Bench, header: &str, body: &str) -> client::Reply {
    let mut connection = Raw::connect(bench.address).await;
    let head = format!("POST {EVENT} HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n{header}\r\n\r\n");
    connection.send(head.as_bytes()).await;
    for piece in body.as_bytes().chunks(1000) {
        connection.send(format!("{:x}\r\n", piece.len()).as_bytes()).await;
        connection.send(&[piece, b"\r\n"].concat()).await;
    }
    connection.send(b"0\r\n\r\n").await;
    connection.reply().await
}

#[tokio::test]
async fn row_29_a_body_may_come_in_chunks_and_after_100_continue() {
    let mut bench = Bench::new().await;
    let header = bench.header("runtime-1");
    assert_eq!(chunked(&bench, &header, BODY).await.status, 200);
    bench.event().await;
    let mut connection = Raw::connect(bench.address).await;
    let length = BODY.len();
    let head = format!(
        "POST {EVENT} HTTP/1.1\r\nhost: a\r\nexpect: 100-continue\r\ncontent-length: {length}\r\n{header}\r\n\r\n"
    );
    connection.send(head.as_bytes()).await;
    assert_eq!(connection.reply().await.status, 100);
    connection.send(BODY.as_bytes()).await;
    assert_eq!(connection.reply().await.status, 200);
    bench.event().await;
}

#[tokio::test]
async fn rows_55_and_56_certificates_that_do_not_count_are_401() {
    let bench = Bench::new().await;
    let stranger = client::Authority::new();
    let good = bench.header("runtime-1");
    let expired = client::xfcc(&bench.authority.issue("runtime-1", client::expired).certificate);
    let foreign = client::xfcc(&stranger.issue("runtime-1", |_| {}).certificate);
    let value = |header: &str| header.split_once(": ").unwrap().1.to_owned();
    let twice = format!("{good},{}", value(&bench.header("runtime-2")));
    let appended = format!(r#"{good},By=spiffe://a;Hash=12;Subject="";URI=spiffe://mallory"#);
    let lines = format!("{good}\r\n{}", bench.header("runtime-2"));
    let cases = [
        ("expired", expired, "certificate-expired"),
        ("foreign", foreign, "certificate-foreign"),
        ("two certificates", twice, "several-certificates"),
        ("two elements", appended, "several-certificates"),
        ("two lines with certificates", lines, "several-certificates"),
        ("too long", format!("{good};DNS={}", "x".repeat(33_000)), "certificate-malformed"),
        ("empty", "x-forwarded-client-cert: Cert=;Other=foo".to_owned(), "certificate-malformed"),
        ("none", "x-other: a".to_owned(), "certificate-missing"),
    ];
    for (name, header, reason) in cases {
        let series = format!(r#"tidegate_listener_refused_total{{reason="{reason}"}}"#);
        let before = bench.metric(&series);
        let reply = client::post(bench.address, &header, BODY).await;
        assert_eq!(reply.status, 401, "{name}");
        assert!(reply.body.starts_with("could not get client certificate from request: "), "{name}: {}", reply.body);
        assert_eq!(bench.metric(&series), before + 1.0, "{name}");
    }
}
