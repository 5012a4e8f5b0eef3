//! Pushes that git hosts deliver: what they wake, and what they never do.

use std::net::SocketAddr;

use axum::{
    Router,
    body::{Body, to_bytes},
    extract::ConnectInfo,
    http::{HeaderMap, Request, StatusCode},
};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use hmac::{Hmac, KeyInit as _, Mac as _};
use k8s_openapi::api::core::v1::Secret;
use sha2::Sha256;
use tidegate::internals::daemon::hook_routes;
use tidegate_cluster::Leadership;
use tidegate_events::Peers;
use tokio::time::Instant as Moment;
use tower::ServiceExt as _;

use super::*;
use crate::git::server;

mod gitea;

scenarios! {
    a_push_that_is_delivered_is_applied_long_before_the_next_poll,
    a_storm_of_ten_thousand_deliveries_costs_two_fetches_and_delays_no_other_source,
    a_token_is_rotated_without_a_delivery_that_is_refused,
    a_name_without_a_receiver_and_a_wrong_signature_get_the_same_answer_after_the_same_time,
    pushes_of_other_repositories_refs_and_events_wake_nothing,
    a_push_that_only_polling_finds_is_reported_until_one_is_delivered,
    an_address_whose_deliveries_are_refused_does_not_keep_others_out,
}

const TOKEN: &str = "0123456789abcdef0123456789abcdef";
const NEXT: &str = "fedcba9876543210fedcba9876543210";
/// Polling takes no part in these tests.
const SELDOM: &str = "5h";

/// What a delivery gets: status and body.
type Answer = (StatusCode, String);

/// A git host that knows a token.
struct GitHost {
    router: Router,
    path: String,
    token: String,
    address: SocketAddr,
    sent: u32,
}

impl GitHost {
    fn new(world: &World, source: &str, token: &str) -> GitHost {
        let context = &world.daemon().context;
        GitHost {
            router: hook_routes(Peers::loopback(), context, &Leadership::unconditional()),
            path: format!("/hooks/{}/{source}", world.namespace),
            token: token.to_owned(),
            address: "192.0.2.1:4711".parse().unwrap(),
            sent: 0,
        }
    }

    /// Delivers a push of the repository at `url`, as GitHub does, with an id of its own.
    async fn push(&mut self, url: &str, reference: &str) -> Answer {
        self.sent += 1;
        let body = json!({"ref": reference, "repository": {"clone_url": url, "default_branch": "main"}}).to_string();
        self.send("push", &self.id(self.sent), &body).await
    }

    /// The id of a delivery. No two hosts have the same ones.
    fn id(&self, number: u32) -> String {
        format!("{}-{}-{number}", self.path, &self.token[..4])
    }

    async fn send(&self, event: &str, id: &str, body: &str) -> Answer {
        let (status, _, text) = self.exchange(event, id, body).await;
        (status, text)
    }

    /// As [`GitHost::send`]. Returns the headers of the answer as well.
    async fn exchange(&self, event: &str, id: &str, body: &str) -> (StatusCode, HeaderMap, String) {
        let mac = Hmac::<Sha256>::new_from_slice(self.token.as_bytes()).unwrap().chain_update(body).finalize();
        let signature: String = mac.into_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
        let request = Request::post(&self.path)
            .extension(ConnectInfo(self.address))
            .header("x-github-event", event)
            .header("x-github-delivery", id)
            .header("x-hub-signature-256", format!("sha256={signature}"))
            .body(Body::from(body.to_owned()))
            .unwrap();
        let response = self.router.clone().oneshot(request).await.unwrap();
        let (head, body) = response.into_parts();
        let body = to_bytes(body, 1 << 20).await.unwrap();
        (head.status, head.headers, String::from_utf8(body.to_vec()).unwrap())
    }
}

impl World {
    async fn give_token(&self, name: &str, tokens: &[(&str, &str)]) {
        let data: serde_json::Map<String, Value> =
            tokens.iter().map(|(key, value)| ((*key).to_owned(), STANDARD.encode(value).into())).collect();
        let _ = self.api::<Secret>().delete(name, &DeleteParams::default()).await;
        let metadata = json!({"name": name, "namespace": self.namespace});
        let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": data});
        harness::apply(&self.client, &secret).await;
    }

    /// Declares a source with a receiver that polls seldom.
    async fn declare_with_receiver(&self, name: &str, spec: Value) {
        let mut full = json!({"interval": SELDOM, "receiver": {"secretRef": {"name": "hook"}}});
        full.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
        self.declare(name, full).await;
    }

    /// Declares a source with a receiver whose repository is on a server: commits in a folder on this machine are
    /// noticed by themselves.
    async fn serve_remote(&self, name: &str, spec: Value) -> server::Server {
        let server = server::Server::start(self.folder.path());
        self.give_token("access", &[("ca.crt", std::str::from_utf8(&server.ca).unwrap())]).await;
        let mut full = json!({"url": server.url("repository"), "secretRef": {"name": "access"}});
        full.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
        self.declare_with_receiver(name, full).await;
        server
    }

    /// Status, reason and message of `Received`; nothing without the condition.
    async fn received(&self, name: &str) -> String {
        let conditions = self.source(name).await.status.map(|status| status.conditions).unwrap_or_default();
        let found = conditions.into_iter().find(|condition| condition.type_ == "Received");
        found.map(|found| format!("{} {}: {}", found.status, found.reason, found.message)).unwrap_or_default()
    }
}

/// How often the references of a repository were asked for: once a fetch.
fn fetches(server: &server::Server, repository: &str) -> usize {
    let asked = format!("/{repository}/info/refs");
    server.requests().iter().filter(|request| request.target.starts_with(&asked)).count()
}

fn accepted(world: &World, names: &[&str]) -> Answer {
    let names: Vec<String> = names.iter().map(|name| format!("{}/{name}", world.namespace)).collect();
    let is = if names.len() == 1 { "is" } else { "are" };
    (StatusCode::ACCEPTED, format!("accepted: {} {is} fetched\n", names.join(", ")))
}

async fn a_push_that_is_delivered_is_applied_long_before_the_next_poll() {
    let mut world = World::new("push").await;
    world.module("mail", &["1.0.0"], "1.0.0");
    world.give_token("hook", &[("token", TOKEN)]).await;
    let commit = world.commit();
    let server = world.serve_remote("landscape", json!({})).await;
    world.start().await;
    world.settled("landscape", &commit).await;
    let awaiting = world.received("landscape").await;
    assert!(awaiting.starts_with("Unknown AwaitingDelivery: no delivery has arrived yet; "), "{awaiting}");

    let mut host = GitHost::new(&world, "landscape", TOKEN);
    let url = server.url("repository");
    for version in ["1.1.0", "1.2.0"] {
        world.module("mail", &[version], version);
        let commit = world.commit();
        assert_eq!(host.push(&url, "refs/heads/main").await, accepted(&world, &["landscape"]));
        world.settled_within("landscape", &commit, Duration::from_secs(20)).await;
        assert!(world.api::<ModuleTemplate>().get(&format!("mail-{version}")).await.is_ok());
    }
    let received = world.received("landscape").await;
    assert!(received.starts_with("True Delivered: the last delivery arrived at "), "{received}");

    // The same delivery again is no news; a test of the webhook is no push.
    world.daemon().quiet().await;
    let body = json!({"ref": "refs/heads/main", "repository": {"clone_url": url}}).to_string();
    let (status, text) = host.send("push", &host.id(1), &body).await;
    assert_eq!((status, text.as_str()), (StatusCode::ACCEPTED, "ignored: this delivery came before\n"));
    // One that woke nothing is not remembered: after a mistake in the source is corrected, it is sent again.
    let elsewhere =
        json!({"ref": "refs/heads/main", "repository": {"clone_url": "https://git.example.com/other"}}).to_string();
    for _ in 0..2 {
        let (status, text) = host.send("push", "delivery-6", &elsewhere).await;
        assert_eq!(status, StatusCode::ACCEPTED, "{text}");
        assert!(text.starts_with("ignored: ") && !text.contains("came before"), "{text}");
    }
    let (status, text) = host.send("ping", "delivery-7", r#"{"zen": "Keep it logically awesome."}"#).await;
    assert_eq!((status, text.as_str()), (StatusCode::ACCEPTED, "ignored: this is not a push\n"));
    let (status, text) = host.send("push", "delivery-8", &body[..body.len() - 1]).await;
    assert_eq!(status, StatusCode::BAD_REQUEST, "{text}");
}

async fn a_storm_of_ten_thousand_deliveries_costs_two_fetches_and_delays_no_other_source() {
    const STORM: u32 = 10_000;
    let mut world = World::new("storm").await;
    world.module("mail", &["1.0.0"], "1.0.0");
    let other = Repository::init(&world.folder.path().join("other")).unwrap();
    other.write("note-1.0.0.yaml", &template(&world.namespace, "note", "1.0.0")).unwrap();
    let commits = [world.commit(), other.commit("a change").unwrap()];
    let server = server::Server::start(world.folder.path());
    world.give_token("hook", &[("token", TOKEN)]).await;
    world.give_token("access", &[("ca.crt", std::str::from_utf8(&server.ca).unwrap())]).await;
    for name in ["landscape", "other"] {
        let repository = if name == "other" { "other" } else { "repository" };
        let spec = json!({"url": server.url(repository), "secretRef": {"name": "access"}});
        world.declare_with_receiver(name, spec).await;
    }
    world.start().await;
    world.settled("landscape", &commits[0]).await;
    world.settled("other", &commits[1]).await;
    world.daemon().quiet().await;

    world.mark();
    let before = (fetches(&server, "repository"), fetches(&server, "other"));
    world.module("mail", &["1.1.0"], "1.1.0");
    let commit = world.commit();
    other.write("note-1.1.0.yaml", &template(&world.namespace, "note", "1.1.0")).unwrap();
    let others = other.commit("a change").unwrap();
    let mut host = GitHost::new(&world, "landscape", TOKEN);
    let mut neighbour = GitHost::new(&world, "other", TOKEN);
    let url = server.url("repository");
    for number in 0..STORM {
        assert_eq!(host.push(&url, "refs/heads/main").await, accepted(&world, &["landscape"]), "{number}");
        if number == STORM / 2 {
            let found = neighbour.push(&server.url("other"), "refs/heads/main").await;
            assert_eq!(found, accepted(&world, &["other"]));
        }
    }
    world.settled_within("other", &others, Duration::from_secs(20)).await;
    world.settled_within("landscape", &commit, Duration::from_secs(20)).await;
    // The second fetch comes later, for what was delivered while the first one ran.
    tokio::time::sleep(Duration::from_secs(15)).await;
    world.daemon().quiet().await;
    let found = fetches(&server, "repository") - before.0;
    assert!((1..=2).contains(&found), "{found} fetches");
    assert_eq!(fetches(&server, "other") - before.1, 1);
    assert!(world.status_writes() <= 6, "{} writes of two statuses", world.status_writes());
}

async fn a_token_is_rotated_without_a_delivery_that_is_refused() {
    let mut world = World::new("rotate").await;
    world.module("mail", &["1.0.0"], "1.0.0");
    let commit = world.commit();
    world.declare_with_receiver("landscape", json!({})).await;
    world.start().await;
    world.settled("landscape", &commit).await;
    let url = world.repository.url();
    let (mut old, mut new) = (GitHost::new(&world, "landscape", TOKEN), GitHost::new(&world, "landscape", NEXT));
    let missing =
        format!("False HookSecret: all deliveries are refused: Secret {}/hook does not exist", world.namespace);
    assert_eq!(world.received("landscape").await, missing);

    let yes = accepted(&world, &["landscape"]);
    type Step<'a> = (&'a [(&'a str, &'a str)], bool, bool);
    let steps: [Step<'_>; 5] = [
        (&[("token", "short")], false, false),
        (&[("token", TOKEN)], true, false),
        (&[("token", NEXT), ("previousToken", TOKEN)], true, true),
        (&[("token", NEXT)], false, true),
        (&[("other", TOKEN)], false, false),
    ];
    for (tokens, old_is_valid, new_is_valid) in steps {
        world.give_token("hook", tokens).await;
        // A token that is removed is refused after this time. One that is added is accepted at once.
        if !(old_is_valid && new_is_valid) {
            tokio::time::sleep(Duration::from_secs(11)).await;
        }
        for (host, is_valid) in [(&mut old, old_is_valid), (&mut new, new_is_valid)] {
            // A read of the Secret for a delivery that is refused needs a second since the last one.
            tokio::time::sleep(Duration::from_millis(1_100)).await;
            let found = host.push(&url, "refs/heads/main").await;
            assert_eq!(found == yes, is_valid, "{tokens:?}: {found:?}");
            assert_eq!(found.0 == StatusCode::UNAUTHORIZED, !is_valid, "{tokens:?}: {found:?}");
        }
    }
    // The delivery that was refused for it tells the status, long before the next pass.
    let unusable = format!("Secret {}/hook has no key `token`", world.namespace);
    eventually("the status says what is wrong", SOON, async || {
        let found = world.received("landscape").await;
        if found.ends_with(&unusable) { Ok(()) } else { Err(found) }
    })
    .await;
    world.give_token("hook", &[("token", NEXT), ("previoustoken", TOKEN)]).await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(new.push(&url, "refs/heads/main").await, yes);
    let misspelt = "nothing reads `previoustoken` (rename it to `previousToken`)";
    eventually("the status names the key that nothing reads", SOON, async || {
        let status = world.source("landscape").await.status.unwrap_or_default();
        let is_said = status.diagnostics.iter().any(|found| found.message.starts_with(misspelt));
        if is_said { Ok(()) } else { Err(format!("{:?}", status.diagnostics)) }
    })
    .await;
    eventually("the status says that it was delivered", SOON, async || {
        let found = world.received("landscape").await;
        if found.starts_with("True Delivered") { Ok(()) } else { Err(found) }
    })
    .await;
}

async fn a_name_without_a_receiver_and_a_wrong_signature_get_the_same_answer_after_the_same_time() {
    let mut world = World::new("oracle").await;
    world.module("mail", &["1.0.0"], "1.0.0");
    world.give_token("hook", &[("token", TOKEN)]).await;
    let commit = world.commit();
    world.declare_with_receiver("landscape", json!({})).await;
    world
        .declare_with_receiver("keyless", json!({"paths": ["none"], "receiver": {"secretRef": {"name": "none"}}}))
        .await;
    world.declare("plain", json!({"paths": ["none"]})).await;
    world.start().await;
    world.settled("landscape", &commit).await;
    let body = json!({"ref": "refs/heads/main", "repository": {"clone_url": world.repository.url()}}).to_string();
    let mut answers = Vec::new();
    for source in ["landscape", "keyless", "plain", "unknown"] {
        let host = GitHost::new(&world, source, NEXT);
        let began = Moment::now();
        let answer = host.exchange("push", &host.id(1), &body).await;
        let took = began.elapsed();
        // Simulated time is exact. With real servers a second and a little more.
        assert!((1_000..1_500).contains(&took.as_millis()), "{source}: {took:?}");
        answers.push(answer);
    }
    assert_eq!(answers[0].0, StatusCode::UNAUTHORIZED);
    assert!(answers.iter().all(|answer| *answer == answers[0]), "{answers:?}");
}

async fn pushes_of_other_repositories_refs_and_events_wake_nothing() {
    let mut world = World::new("others").await;
    world.module("mail", &["1.0.0"], "1.0.0");
    let commit = world.commit();
    world.give_token("hook", &[("token", TOKEN)]).await;
    let server = world.serve_remote("landscape", json!({})).await;
    world.start().await;
    world.settled("landscape", &commit).await;
    world.daemon().quiet().await;
    let before = fetches(&server, "repository");
    let mut host = GitHost::new(&world, "landscape", TOKEN);
    let url = server.url("repository");
    let ignored = |text: &str| (StatusCode::ACCEPTED, format!("ignored: no GitSource with this Secret {text}\n"));
    let other_ref = ignored("follows a ref of this push");
    let other_repository = ignored("has the repository of this push as its spec.url");
    for (url, reference, expected) in [
        (url.as_str(), "refs/heads/next", &other_ref),
        (url.as_str(), "refs/tags/main", &other_ref),
        (url.as_str(), "main", &other_ref),
        (&server.url("other"), "refs/heads/main", &other_repository),
        ("https://localhost/repository", "refs/heads/main", &other_repository),
    ] {
        assert_eq!(host.push(url, reference).await, *expected, "{url} {reference}");
    }
    tokio::time::sleep(QUIET).await;
    world.daemon().quiet().await;
    assert_eq!(fetches(&server, "repository"), before);
    // Another spelling of the same repository.
    let spelt = url.replace("localhost", "kim@LOCALHOST") + ".git/";
    assert_eq!(host.push(&spelt, "refs/heads/main").await, accepted(&world, &["landscape"]));
    eventually("it is fetched", SOON, async || {
        let found = fetches(&server, "repository") - before;
        if found == 1 { Ok(()) } else { Err(found.to_string()) }
    })
    .await;
}

async fn a_push_that_only_polling_finds_is_reported_until_one_is_delivered() {
    let mut world = World::new("missed").await;
    world.module("mail", &["1.0.0"], "1.0.0");
    world.give_token("hook", &[("token", TOKEN)]).await;
    let commit = world.commit();
    let server = world.serve_remote("landscape", json!({"interval": "10s"})).await;
    world.start().await;
    world.settled("landscape", &commit).await;

    world.module("mail", &["1.1.0"], "1.1.0");
    let commit = world.commit();
    world.settled("landscape", &commit).await;
    let missed = format!("False NotDelivered: polling found main@sha1:{commit}: no delivery announced it; ");
    eventually("the status says so", SOON, async || {
        let found = world.received("landscape").await;
        if found.starts_with(&missed) { Ok(()) } else { Err(found) }
    })
    .await;
    let diagnostics = world.source("landscape").await.status.unwrap().diagnostics;
    assert_eq!(diagnostics.iter().map(|one| one.code.as_str()).collect::<Vec<_>>(), ["push-not-delivered"]);
    assert_eq!(ready(&world.source("landscape").await), "True Applied", "it is no problem of the source");

    let mut host = GitHost::new(&world, "landscape", TOKEN);
    world.module("mail", &["1.2.0"], "1.2.0");
    let commit = world.commit();
    assert_eq!(host.push(&server.url("repository"), "refs/heads/main").await, accepted(&world, &["landscape"]));
    world.settled("landscape", &commit).await;
    let received = world.received("landscape").await;
    assert!(received.starts_with("True Delivered: "), "{received}");
    assert!(world.source("landscape").await.status.unwrap().diagnostics.is_empty());
}

async fn an_address_whose_deliveries_are_refused_does_not_keep_others_out() {
    let mut world = World::new("limit").await;
    world.module("mail", &["1.0.0"], "1.0.0");
    world.give_token("hook", &[("token", TOKEN)]).await;
    let commit = world.commit();
    world.declare_with_receiver("landscape", json!({})).await;
    world.start().await;
    world.settled("landscape", &commit).await;
    let url = world.repository.url();
    let mut hostile = tokio::task::JoinSet::new();
    for _ in 0..100 {
        let (mut host, url) = (GitHost::new(&world, "landscape", NEXT), url.clone());
        host.address = "198.51.100.9:4711".parse().unwrap();
        hostile.spawn(async move { host.push(&url, "refs/heads/main").await.0 });
    }
    let mut found: Vec<StatusCode> = Vec::new();
    while let Some(status) = hostile.join_next().await {
        found.push(status.unwrap());
    }
    let limited = found.iter().filter(|status| **status == StatusCode::TOO_MANY_REQUESTS).count();
    let refused = found.iter().filter(|status| **status == StatusCode::UNAUTHORIZED).count();
    assert_eq!((limited + refused, refused < 40), (100, true), "{limited} {refused}");
    let mut host = GitHost::new(&world, "landscape", TOKEN);
    assert_eq!(host.push(&url, "refs/heads/main").await, accepted(&world, &["landscape"]));
}
