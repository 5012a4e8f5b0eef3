//! Sources behind TLS and credentials, and servers that misbehave: what the daemon makes of a GitSource's Secret, and
//! that one bad server keeps nothing else from going on.

use base64::{Engine, engine::general_purpose::STANDARD};
use k8s_openapi::{ByteString, api::core::v1::Secret};
use kube::api::PostParams;

use super::*;
use crate::git::{
    proxy::{Conduct, Relay},
    repository::git,
    server::{Action, Request, Server},
    ssh::server::{Sshd, key},
};

scenarios! {
    credentials_and_authority_come_from_the_secret_and_rotate,
    a_source_over_ssh_is_applied_and_its_keys_rotate,
    the_proxy_of_a_secret_is_used,
    a_truncated_or_cut_answer_keeps_the_last_good_revision_in_force,
    a_rewritten_branch_is_refused_and_where_it_is_allowed_its_losses_are_confirmed,
}

/// The `Fetched` condition: status and reason.
async fn fetched(world: &World, source: &str) -> String {
    let source = world.source(source).await;
    let conditions = source.status.iter().flat_map(|status| &status.conditions);
    conditions
        .filter(|condition| condition.type_ == "Fetched")
        .map(|condition| format!("{} {}", condition.status, condition.reason))
        .collect()
}

/// Waits until a source could not be fetched, for this reason.
async fn until_refused(world: &World, source: &str, reason: &str) {
    let wanted = format!("False {reason}");
    eventually(&format!("the status says {reason}"), SOON, async || {
        let found = fetched(world, source).await;
        (found == wanted).then_some(()).ok_or(found)
    })
    .await;
}

/// Replaces the Secret, and asks for a look: nothing tells the daemon of a Secret that it does not watch.
async fn put_secret(world: &World, data: &[(&str, &[u8])], round: &str) {
    write_secret(world, data).await;
    world.annotate("landscape", names::annotation::RECONCILE_REQUESTED_AT, round).await;
}

async fn write_secret(world: &World, data: &[(&str, &[u8])]) {
    let api = world.api::<Secret>();
    let _ = api.delete("access", &DeleteParams::default()).await;
    let secret = Secret {
        metadata: kube::core::ObjectMeta { name: Some("access".to_owned()), ..Default::default() },
        data: Some(data.iter().map(|(key, value)| ((*key).to_owned(), ByteString(value.to_vec()))).collect()),
        ..Secret::default()
    };
    api.create(&PostParams::default(), &secret).await.unwrap();
}

/// Admits only clients that send this header.
fn guard(server: &Server, wanted: &str) {
    let wanted = wanted.to_owned();
    server.behave(move |request| match request.authorization() {
        Some(found) if found == wanted => Action::Serve,
        _ => {
            Action::Answer(401, vec![("www-authenticate", "Basic realm=\"git\"".to_owned())], b"s3cret-answer".to_vec())
        }
    });
}

async fn credentials_and_authority_come_from_the_secret_and_rotate() {
    let mut world = World::new("access").await;
    world.module("mail", &["1.0.0"], "1.0.0");
    let commit = world.commit();
    let server = Server::start(world.folder.path());
    guard(&server, "Bearer t0ken-one");
    world.declare("landscape", json!({"url": server.url("repository"), "secretRef": {"name": "access"}})).await;
    world.start().await;

    until_refused(&world, "landscape", "SecretNotFound").await;
    for (round, data) in [
        &[("password-file", &b"t0ken-one"[..])][..],
        &[("username", b"kim")],
        &[("password", b"t0ken-one"), ("bearerToken", b"t0ken-one")],
        &[("bearerToken", b"t0ken-\xff")],
    ]
    .into_iter()
    .enumerate()
    {
        put_secret(&world, data, &format!("invalid-{round}")).await;
        until_refused(&world, "landscape", "SecretInvalid").await;
        put_secret(&world, &[("bearerToken", b"t0ken-one")], &format!("untrusted-{round}")).await;
        until_refused(&world, "landscape", "CertificateNotTrusted").await;
    }
    let ca = ("ca.crt", &server.ca[..]);
    put_secret(&world, &[("bearerToken", b"t0ken-bad"), ca], "wrong").await;
    until_refused(&world, "landscape", "AuthenticationFailed").await;
    // A line break at the end is part of no token.
    put_secret(&world, &[("bearerToken", b"t0ken-one\n"), ca], "right").await;
    world.settled("landscape", &commit).await;

    // Rotated on both sides: the next poll is refused with what was kept, and succeeds with what the Secret says now.
    guard(&server, &format!("Basic {}", STANDARD.encode("kim:t0ken-two")));
    write_secret(&world, &[("username", b"kim"), ("password", b"t0ken-two"), ca]).await;
    world.module("note", &["1.0.0"], "1.0.0");
    let commit = world.commit();
    let before = server.requests().len();
    world.daemon().push("landscape", queue::Trigger::Git);
    world.settled("landscape", &commit).await;
    let since: Vec<String> =
        server.requests()[before..].iter().filter_map(Request::authorization).map(str::to_owned).collect();
    assert_eq!(since.first().map(String::as_str), Some("Bearer t0ken-one"), "{since:?}");
    assert!(since.iter().skip(1).all(|header| header.starts_with("Basic ")), "{since:?}");

    // The token is revoked: the active revision stays, and no message contains a token or the server's answer.
    guard(&server, "Bearer t0ken-three");
    world.daemon().push("landscape", queue::Trigger::Git);
    until_refused(&world, "landscape", "AuthenticationFailed").await;
    assert!(world.api::<ModuleTemplate>().get("note-1.0.0").await.is_ok());
    let status = serde_json::to_string(&world.source("landscape").await.status).unwrap();
    assert!(!status.contains("t0ken") && !status.contains("s3cret"), "{status}");
}

async fn a_source_over_ssh_is_applied_and_its_keys_rotate() {
    let mut world = World::new("ssh").await;
    world.module("mail", &["1.0.0"], "1.0.0");
    let commit = world.commit();
    let server = Sshd::start(world.folder.path(), &["host_ed25519"], &[]).await;
    world.declare("landscape", json!({"url": server.url("repository"), "secretRef": {"name": "access"}})).await;
    world.start().await;
    until_refused(&world, "landscape", "SecretNotFound").await;

    let (good, other, identity) =
        (format!("localhost {}", key("host_ed25519.pub")), format!("localhost {}", key("ca.pub")), key("ed25519"));
    put_secret(&world, &[("password", b"s3cret")], "none").await;
    until_refused(&world, "landscape", "SecretInvalid").await;
    put_secret(&world, &[("identity", identity.as_bytes())], "unknown").await;
    until_refused(&world, "landscape", "HostKeyNotTrusted").await;
    put_secret(&world, &[("identity", identity.as_bytes()), ("known_hosts", other.as_bytes())], "other").await;
    until_refused(&world, "landscape", "HostKeyNotTrusted").await;
    let status = serde_json::to_string(&world.source("landscape").await.status).unwrap();
    assert!(status.contains("SHA256:IFRMLnL729eQqi/fJdkMb9/bTvdp8tInc+QeI+xXwk8"), "{status}");
    let foreign = key("ca");
    put_secret(&world, &[("identity", foreign.as_bytes()), ("known_hosts", good.as_bytes())], "foreign").await;
    until_refused(&world, "landscape", "AuthenticationFailed").await;
    assert!(server.log().iter().all(|line| !line.starts_with("exec")), "{:?}", server.log());
    // A key that nothing reads is a warning, and stops nothing.
    let pair = [("identity", identity.as_bytes()), ("known_hosts", good.as_bytes()), ("bearerToken", &b"t0ken"[..])];
    put_secret(&world, &pair, "right").await;
    world.settled("landscape", &commit).await;
    let status = world.source("landscape").await.status.unwrap();
    let codes: Vec<&str> = status.diagnostics.iter().map(|found| found.code.as_str()).collect();
    assert_eq!(codes, ["secret-key-unread"]);
    assert!(status.diagnostics[0].message.starts_with("nothing reads `bearerToken` of Secret "));

    // Rotated: the next poll takes the new key, and the warning ends.
    let rotated = key("ecdsa");
    write_secret(&world, &[("identity", rotated.as_bytes()), ("known_hosts", good.as_bytes())]).await;
    world.module("note", &["1.0.0"], "1.0.0");
    let commit = world.commit();
    world.annotate("landscape", names::annotation::RECONCILE_REQUESTED_AT, "rotated").await;
    world.settled("landscape", &commit).await;
    let status = serde_json::to_string(&world.source("landscape").await.status).unwrap();
    assert!(!status.contains("s3cret") && !status.contains("secret-key-unread"), "{status}");
}

async fn the_proxy_of_a_secret_is_used() {
    let mut world = World::new("proxy").await;
    world.module("mail", &["1.0.0"], "1.0.0");
    let commit = world.commit();
    let server = Server::start(world.folder.path());
    let relay = Relay::start(Conduct::Connect);
    write_secret(&world, &[("ca.crt", &server.ca)]).await;
    let spec = json!({
        "url": server.url("repository"), "secretRef": {"name": "access"}, "proxySecretRef": {"name": "proxy"},
    });
    world.declare("landscape", spec).await;
    world.start().await;
    until_refused(&world, "landscape", "SecretInvalid").await;
    let address = format!("http://localhost:{}", relay.port);
    let secret = Secret {
        metadata: kube::core::ObjectMeta { name: Some("proxy".to_owned()), ..Default::default() },
        data: Some([("address".to_owned(), ByteString(address.into_bytes()))].into()),
        ..Secret::default()
    };
    world.api::<Secret>().create(&PostParams::default(), &secret).await.unwrap();
    world.annotate("landscape", names::annotation::RECONCILE_REQUESTED_AT, "proxy").await;
    world.settled("landscape", &commit).await;
    assert!(relay.requests().iter().all(|request| request.starts_with("CONNECT localhost:")));
    assert!(!relay.requests().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_stalls_in_a_pack_holds_no_other_source_up() {
    let mut world = World::new("stall").await;
    world.module("mail", &["1.0.0"], "1.0.0");
    let commit = world.commit();
    let server = Server::start(world.folder.path());
    server.behave(|request| if request.is_for_pack() { Action::Stall(200) } else { Action::Serve });
    write_secret(&world, &[("ca.crt", &server.ca)]).await;
    // Each holds one of the four workers until its time-out.
    for number in 0..3 {
        let spec = json!({"url": server.url("repository"), "secretRef": {"name": "access"}, "timeout": "45s", "paths": ["none"]});
        world.declare(&format!("stalled-{number}"), spec).await;
    }
    world.start().await;
    eventually("all packs stall", SOON, async || {
        let packs = server.requests().iter().filter(|request| request.is_for_pack()).count();
        if packs == 3 { Ok(()) } else { Err(packs.to_string()) }
    })
    .await;
    world.declare("landscape", json!({})).await;
    world.settled_within("landscape", &commit, Duration::from_secs(20)).await;
    world.module("note", &["1.0.0"], "1.0.0");
    let commit = world.commit();
    world.settled_within("landscape", &commit, Duration::from_secs(20)).await;
    let still = world.source("stalled-0").await.status.unwrap_or_default();
    assert_eq!(still.attempted_revision, None, "it is still being fetched");
}

async fn a_truncated_or_cut_answer_keeps_the_last_good_revision_in_force() {
    let mut world = World::new("cut").await;
    world.module("mail", &["1.0.0"], "1.0.0");
    world.kyma("a", "mail");
    let commit = world.commit();
    let server = Server::start(world.folder.path());
    write_secret(&world, &[("ca.crt", &server.ca)]).await;
    world.declare("landscape", json!({"url": server.url("repository"), "secretRef": {"name": "access"}})).await;
    world.start().await;
    world.settled("landscape", &commit).await;

    world.repository.remove("a.yaml").unwrap();
    world.module("note", &["1.0.0"], "1.0.0");
    let next = world.commit();
    let bad: [fn(&Request) -> Action; 3] = [
        |request| if request.is_for_pack() { Action::Cut(150) } else { Action::Serve },
        |request| if request.is_for_pack() { Action::Shorten(150) } else { Action::Serve },
        |_| Action::Answer(200, vec![("content-type", "text/html".to_owned())], b"<html>s3cret-answer</html>".to_vec()),
    ];
    for behaviour in bad {
        server.behave(behaviour);
        world.restart().await;
        world.daemon().push("landscape", queue::Trigger::Git);
        eventually("it cannot be fetched, and says what stays in force", SOON, async || {
            let source = world.source("landscape").await;
            let fetched = condition(&source, "Fetched");
            let in_force = fetched.message.ends_with(&format!("main@sha1:{commit} stays active"));
            let told = fetched.message.contains("s3cret");
            (fetched.status == "False" && in_force && !told).then_some(()).ok_or(fetched.message.clone())
        })
        .await;
        world.api::<ModuleReleaseMeta>().delete("mail", &DeleteParams::default()).await.unwrap();
        eventually("what was in force is enforced", SOON, async || {
            world.api::<ModuleReleaseMeta>().get("mail").await.map(drop).map_err(text)
        })
        .await;
        assert!(world.api::<Kyma>().get("a").await.unwrap().metadata.deletion_timestamp.is_none());
        assert!(world.api::<ModuleTemplate>().get_opt("note-1.0.0").await.unwrap().is_none());
    }
    server.behave(|_| Action::Serve);
    world.daemon().push("landscape", queue::Trigger::Git);
    world.attempted("landscape", &next).await;
    assert!(world.api::<ModuleTemplate>().get("note-1.0.0").await.is_ok());
}

async fn a_rewritten_branch_is_refused_and_where_it_is_allowed_its_losses_are_confirmed() {
    let mut world = World::new("rewrite").await;
    world.module("mail", &["1.0.0"], "1.0.0");
    let first = world.commit();
    world.module("note", &["1.0.0"], "1.0.0");
    let second = world.commit();
    world.declare("landscape", json!({})).await;
    world.start().await;
    world.settled("landscape", &second).await;

    git(world.repository.path(), &["reset", "-q", "--hard", &first]);
    world.module("calendar", &["1.0.0"], "1.0.0");
    let rewritten = world.commit();
    world.daemon().push("landscape", queue::Trigger::Git);
    until_refused(&world, "landscape", "Rewritten").await;
    let status = world.source("landscape").await.status.unwrap();
    assert_eq!(status.applied_revision, Some(format!("main@sha1:{second}")));
    assert!(world.api::<ModuleTemplate>().get_opt("calendar-1.0.0").await.unwrap().is_none());

    world.declare("landscape", json!({"allowRewrite": true})).await;
    world.attempted("landscape", &rewritten).await;
    assert!(world.api::<ModuleTemplate>().get("calendar-1.0.0").await.is_ok());
    assert_eq!(ready(&world.source("landscape").await), "False PruneUnconfirmed");
    assert!(world.api::<ModuleTemplate>().get("note-1.0.0").await.is_ok(), "its loss waits for a confirmation");
    world.annotate("landscape", names::annotation::CONFIRM_PRUNE, &rewritten).await;
    world.gone::<ModuleTemplate>("note-1.0.0").await;
    world.settled("landscape", &rewritten).await;
}
