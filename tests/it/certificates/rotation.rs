//! Changes of the CA: runtimes can always connect to the control plane, renewals happen in time, and late ones are
//! reported.

use std::{fmt::Debug, ops::RangeBounds};

use super::*;

const DOMAIN: Option<&str> = Some("one.example.org");

scenarios! {
    own_authority_is_replaced_over_and_over_and_every_handshake_succeeds,
    gateway_waits_for_a_runtime_that_does_not_trust_the_new_authority_yet,
    own_authority_that_nears_its_end_gets_a_successor_and_stays_trusted,
}

/// Whether a runtime can connect now.
async fn shake(world: &World, kyma: &str) -> Result<(), String> {
    let secret = world.secret(names::GATEWAY_SECRET).await.and_then(|secret| secret.data).ok_or("no gateway")?;
    let held = |key: &str| secret.get(key).map(|bytes| bytes.0.as_slice()).unwrap_or_default();
    let runtime = world.daemon().runtime(kyma);
    let (certificate, key) = runtime.leaf.as_ref().ok_or("no certificate")?;
    handshake::shake(
        "listener.example.com",
        (held("tls.crt"), held("tls.key")),
        held("ca.crt"),
        (certificate, key),
        &runtime.bundle,
    )
}

/// The number of trusted CAs.
async fn authorities(world: &World) -> usize {
    tidegate::internals::gateway::pki::read_bundle(&world.gateway("ca.crt").await)
        .map_or(0, |bundle| bundle.authorities().len())
}

/// Waits until the current CA has issued the certificates of the runtime and the gateway, and this number of CAs is
/// trusted. The runtime must be able to connect all the while.
async fn follows(world: &World, kyma: &str, trusted: impl RangeBounds<usize> + Debug) {
    eventually("all is of the present authority", SOON * 2, async || {
        if let Err(error) = shake(world, kyma).await {
            panic!("the runtime does not get through: {error}");
        }
        world.daemon().look();
        let root = tidegate::internals::gateway::pki::read_first(&world.data(names::AUTHORITY_SECRET, "tls.crt").await);
        let root = root.map_err(|error| error.to_string())?;
        let leaf = world.daemon().runtime(kyma).leaf.ok_or("no certificate")?;
        let leaf = tidegate::internals::gateway::pki::read_first(&leaf.0).map_err(|error| error.to_string())?;
        let served = tidegate::internals::gateway::pki::read_first(&world.gateway("tls.crt").await)
            .map_err(|error| error.to_string())?;
        let (leaf, served) = (
            tidegate::internals::gateway::pki::is_of(&leaf, &root),
            tidegate::internals::gateway::pki::is_of(&served, &root),
        );
        let known = authorities(world).await;
        if leaf && served && trusted.contains(&known) {
            return Ok(());
        }
        Err(format!("runtime {leaf}, gateway {served}, {known} authorities, of {trusted:?}"))
    })
    .await;
}

async fn own_authority_is_replaced_over_and_over_and_every_handshake_succeeds() {
    let mut world = World::builtin("own-rotation").await;
    world.kyma("one", DOMAIN).await;
    world.start().await;
    open(world.daemon(), &world.namespace, "one");
    world.issued("one").await;
    follows(&world, "one", 1..=1).await;
    for trusted in 2..=3 {
        world.api::<Secret>().delete(names::AUTHORITY_SECRET, &DeleteParams::default()).await.unwrap();
        follows(&world, "one", trusted..=trusted).await;
    }
    // Three new CAs in a row, faster than the daemon and the runtimes can follow.
    for _ in 0..3 {
        let before = world.data(names::AUTHORITY_SECRET, "tls.crt").await;
        world.api::<Secret>().delete(names::AUTHORITY_SECRET, &DeleteParams::default()).await.unwrap();
        eventually("there is another", SOON, async || {
            let now = world.data(names::AUTHORITY_SECRET, "tls.crt").await;
            if !now.is_empty() && now != before { Ok(()) } else { Err("not yet".to_owned()) }
        })
        .await;
        shake(&world, "one").await.unwrap();
    }
    eventually("all that were are trusted", SOON, async || {
        world.daemon().look();
        let known = authorities(&world).await;
        if (4..=6).contains(&known) { Ok(()) } else { Err(format!("{known}")) }
    })
    .await;
    let known = authorities(&world).await;
    follows(&world, "one", known..=known).await;
}

async fn gateway_waits_for_a_runtime_that_does_not_trust_the_new_authority_yet() {
    let mut world = World::builtin("laggard").await;
    world.kyma("one", DOMAIN).await;
    world.kyma("two", Some("two.example.org")).await;
    world.start().await;
    open(world.daemon(), &world.namespace, "one");
    open(world.daemon(), &world.namespace, "two");
    world.issued("one").await;
    world.issued("two").await;
    world.daemon().sleeps("two", true);
    // A pass that began before may still read the new CA.
    world.daemon().context.queue.settled().await;
    let served = world.gateway("tls.crt").await;
    world.api::<Secret>().delete(names::AUTHORITY_SECRET, &DeleteParams::default()).await.unwrap();
    eventually("the new authority is trusted", SOON, async || {
        let known = authorities(&world).await;
        if known == 2 { Ok(()) } else { Err(format!("{known}")) }
    })
    .await;
    // Well past the grace period.
    holds("the gateway serves as before, and both get through", Duration::from_secs(5), async || {
        world.daemon().look();
        shake(&world, "one").await?;
        shake(&world, "two").await?;
        if world.gateway("tls.crt").await == served { Ok(()) } else { Err("it has changed".to_owned()) }
    })
    .await;
    world.daemon().sleeps("two", false);
    follows(&world, "two", 2..=2).await;
    shake(&world, "one").await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn authority_of_cert_manager_is_replaced_and_every_handshake_succeeds() {
    let mut world = World::new("cm-rotation", Some(Backend::CertManager)).await;
    world.install_issuers().await;
    world.start_cert_manager().await;
    world.kyma("one", DOMAIN).await;
    world.start().await;
    open(world.daemon(), &world.namespace, "one");
    world.issued("one").await;
    let known = authorities(&world).await;
    follows(&world, "one", known..).await;
    let before = world.data(names::AUTHORITY_SECRET, "tls.crt").await;
    world.replace_authority().await;
    eventually("there is another authority", SOON, async || {
        shake(&world, "one").await?;
        let now = world.data(names::AUTHORITY_SECRET, "tls.crt").await;
        if now == before { Err("not yet".to_owned()) } else { Ok(()) }
    })
    .await;
    // cert-manager may issue it twice in a row.
    follows(&world, "one", known + 1..).await;
    eventually("the gateway serves with the authority's certificate", SOON, async || {
        world.daemon().look();
        let (served, issued) = (world.gateway("tls.crt").await, world.data(names::AUTHORITY_SECRET, "tls.crt").await);
        if served == issued { Ok(()) } else { Err("it is another one".to_owned()) }
    })
    .await;
    eventually("nothing is overdue", SOON, async || {
        let overdue = world.daemon().overdue();
        if overdue.is_empty() { Ok(()) } else { Err(format!("{overdue:?}")) }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn authority_that_cert_manager_made_is_gone_on_with() {
    let mut world = World::new("adopt", Some(Backend::CertManager)).await;
    world.install_issuers().await;
    world.start_cert_manager().await;
    world.kyma("one", DOMAIN).await;
    world.start().await;
    let before = world.issued("one").await;
    let authority = world.data(names::AUTHORITY_SECRET, "tls.crt").await;
    // cert-manager stops, so no issuer remains.
    world.stop().await;
    world.stop_cert_manager();
    world.certificates().await.delete("one-webhook-tls", &DeleteParams::default()).await.unwrap();
    world.rules.backend = Some(Backend::Builtin);
    world.start().await;
    open(world.daemon(), &world.namespace, "one");
    eventually("the runtime has a certificate of ours", SOON, async || {
        let leaf = world.daemon().runtime("one").leaf;
        if leaf.is_some() && leaf != before.leaf { Ok(()) } else { Err("not yet".to_owned()) }
    })
    .await;
    follows(&world, "one", 1..).await;
    assert_eq!(world.data(names::AUTHORITY_SECRET, "tls.crt").await, authority, "it is not issued anew");
    eventually("the gateway has a certificate of its own", SOON, async || {
        let served = world.gateway("tls.crt").await;
        if served == authority { Err("still the authority's".to_owned()) } else { Ok(()) }
    })
    .await;
    shake(&world, "one").await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn e34_certificate_that_is_not_renewed_is_told_until_it_is() {
    let mut world = World::new("e34", Some(Backend::CertManager)).await;
    world.install_issuers().await;
    world.start_cert_manager().await;
    world.kyma("one", DOMAIN).await;
    world.start().await;
    world.issued("one").await;
    // cert-manager writes the Secret before the status. If it is stopped in between, the status never changes.
    eventually("cert-manager is done with it, and nothing is overdue", SOON, async || {
        let certificate = world.certificates().await.get("one-webhook-tls").await.map_err(|error| error.to_string())?;
        let status = &certificate.data["status"];
        let conditions = status["conditions"].as_array().cloned().unwrap_or_default();
        let is_under_way = conditions.iter().any(|one| one["type"] == "Issuing" && one["status"] == "True");
        let overdue = world.daemon().overdue();
        if status["notBefore"].is_string() && !is_under_way && overdue.is_empty() {
            return Ok(());
        }
        Err(format!("{overdue:?}, {status}"))
    })
    .await;
    let before = world.daemon().runtime("one");
    // No issuer runs, and the Secret says that the CA was replaced.
    world.stop_cert_manager();
    let now = Timestamp::from_second(ambient::now().as_second() + 1).unwrap();
    let patch = json!({"metadata": {"annotations": {names::annotation::BUNDLED_AT: now.to_string()}}});
    world.api::<Secret>().patch(names::GATEWAY_SECRET, &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap();
    eventually("it is overdue", SOON, async || {
        let overdue = world.daemon().overdue();
        if overdue == ["one"] { Ok(()) } else { Err(format!("{overdue:?}")) }
    })
    .await;
    eventually("it is asked for anew, and what cert-manager says is kept", SOON, async || {
        let certificate = world.certificates().await.get("one-webhook-tls").await.map_err(|error| error.to_string())?;
        let conditions = certificate.data["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let asked = |condition: &&Value| {
            (&condition["type"], &condition["status"], &condition["reason"])
                == (&json!("Issuing"), &json!("True"), &json!("ManuallyTriggered"))
        };
        let is_kept = conditions.iter().any(|condition| condition["type"] == "Ready");
        if is_kept && conditions.iter().any(|condition| asked(&condition)) {
            Ok(())
        } else {
            Err(format!("{conditions:?}"))
        }
    })
    .await;

    world.start_cert_manager().await;
    eventually("it is renewed and no longer told", SOON, async || {
        let leaf = world.daemon().runtime("one").leaf;
        let overdue = world.daemon().overdue();
        if leaf != before.leaf && overdue.is_empty() { Ok(()) } else { Err(format!("{overdue:?}")) }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn e07_certificate_of_the_gateway_that_nears_its_end_is_told() {
    let mut world = World::new("e07", Some(Backend::Builtin)).await;
    world.start().await;
    let close = || gateway::is_close_to_expiry(world.daemon().context.gateway(), ambient::now());
    eventually("it is far from its end", SOON, async || match close() {
        Some(false) => Ok(()),
        other => Err(format!("{other:?}")),
    })
    .await;
    // A certificate for seven days, from the same CA.
    let authority = world.data(names::AUTHORITY_SECRET, "tls.crt").await;
    let root = tidegate::internals::gateway::pki::Root::read(
        &authority,
        &world.data(names::AUTHORITY_SECRET, "tls.key").await,
    )
    .unwrap();
    let week = Duration::from_secs(7 * 24 * 3600);
    let now = ambient::now();
    let validity = plan::certificate::Validity { not_before: now, not_after: plan::certificate::later(now, week) };
    let hosts = ["listener.example.com".to_owned()];
    let issue =
        tidegate::internals::gateway::pki::Issue { common_name: "listener", names: &hosts, validity, is_server: true };
    let leaf = root.issue(issue).unwrap();
    let patch = json!({"data": data(&[("tls.crt", &leaf.certificate), ("tls.key", &leaf.key)])});
    world.api::<Secret>().patch(names::GATEWAY_SECRET, &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap();
    eventually("it is told", SOON, async || match close() {
        Some(true) => Ok(()),
        other => Err(format!("{other:?}")),
    })
    .await;
}

async fn own_authority_that_nears_its_end_gets_a_successor_and_stays_trusted() {
    let mut world = World::builtin("own-end").await;
    world.kyma("one", DOMAIN).await;
    // The CA is valid for thirty days, less than a certificate.
    let now = ambient::now();
    let month = Duration::from_secs(30 * 24 * 3600);
    let validity = plan::certificate::Validity { not_before: now, not_after: plan::certificate::later(now, month) };
    let old = tidegate::internals::gateway::pki::Root::generate("klm-watcher-selfsigned-ca", validity).unwrap();
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls",
        "metadata": {"name": names::AUTHORITY_SECRET, "namespace": world.namespace},
        "data": data(&[("tls.crt", &old.certificate), ("tls.key", &old.key), ("ca.crt", &old.certificate)]),
    });
    harness::apply(&world.client, &secret).await;
    world.start().await;
    open(world.daemon(), &world.namespace, "one");
    world.issued("one").await;
    follows(&world, "one", 2..=2).await;
    let successor =
        tidegate::internals::gateway::pki::read_first(&world.data(names::AUTHORITY_SECRET, "tls.crt").await).unwrap();
    assert!(plan::certificate::later(now, month * 6) < successor.validity.not_after);
    let mark = world.mark();
    world.daemon().look();
    world.daemon().context.queue.settled().await;
    assert_eq!(world.writes(mark), [""; 0], "one successor is enough");
}
