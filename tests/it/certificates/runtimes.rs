//! Certificates of runtimes are issued, restored and removed.

use kube::api::ListParams;

use super::*;

const DOMAIN: Option<&str> = Some("one.example.org");

scenarios! {
    own_certificate_is_made_again_after_deletion_and_after_a_change,
    own_authority_costs_no_request_while_nothing_changes,
    bundle_that_cannot_be_read_stops_everything_and_is_named_without_its_text,
}

async fn with_cert_manager(name: &str) -> World {
    let mut world = World::new(name, Some(Backend::CertManager)).await;
    world.install_issuers().await;
    world.start_cert_manager().await;
    world.kyma("one", DOMAIN).await;
    world.start().await;
    world
}

async fn with_own_authority(name: &str) -> World {
    own_authority_of(World::builtin(name).await).await
}

async fn own_authority_of(mut world: World) -> World {
    world.kyma("one", DOMAIN).await;
    world.start().await;
    world
}

/// Waits until the daemon writes nothing more, so that later writes have a later cause.
async fn rests(world: &World) {
    eventually("nothing is written any more", SOON, async || {
        world.daemon().context.queue.settled().await;
        let mark = world.mark();
        tokio::time::sleep(Duration::from_millis(1500)).await;
        match world.writes(mark).as_slice() {
            [] => Ok(()),
            writes => Err(writes.join(", ")),
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn i25_certificate_is_as_lifecycle_manager_has_it_and_missing_skr_domain_fails() {
    let world = with_cert_manager("i25").await;
    let runtime = world.issued("one").await;
    let certificate = world.certificates().await.get("one-webhook-tls").await.unwrap();
    let spec = &certificate.data["spec"];
    assert_eq!(spec["commonName"], "id-one");
    let names = ["one.example.org", "skr-webhook.kyma-system.svc.cluster.local", "skr-webhook.kyma-system.svc"];
    assert_eq!(spec["dnsNames"], json!(names));
    assert_eq!((&spec["duration"], &spec["renewBefore"]), (&json!("1440h0m0s"), &json!("720h0m0s")));
    let secret = world.secret("one-webhook-tls").await.unwrap();
    let labels = secret.metadata.labels.unwrap();
    assert_eq!(labels[names::label::PURPOSE], names::CERTIFICATE_PURPOSE);
    assert_eq!(labels[names::label::MANAGED_BY], "lifecycle-manager");
    assert_eq!(runtime.bundle, world.data(names::AUTHORITY_SECRET, "tls.crt").await);
    assert_eq!(world.gateway("tls.key").await, world.data(names::AUTHORITY_SECRET, "tls.key").await);

    world.kyma("two", None).await;
    eventually("it is refused", SOON, async || match world.daemon().runtime("two").standing {
        Some(CertificateState::Refused(why)) if why.contains("skr-domain") => Ok(()),
        other => Err(format!("{other:?}")),
    })
    .await;
    assert!(world.certificates().await.get_opt("two-webhook-tls").await.unwrap().is_none());

    // The world is quiet: neither a pass nor a restart causes a write.
    rests(&world).await;
    let mut world = world;
    let mark = world.mark();
    world.daemon().look();
    rests(&world).await;
    world.stop().await;
    world.start().await;
    world.issued("one").await;
    rests(&world).await;
    assert_eq!(world.writes(mark), [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn i23_certificate_and_secret_are_made_again_after_deletion() {
    let world = with_cert_manager("i23").await;
    let before = world.issued("one").await;
    let certificates = world.certificates().await;
    let uid = certificates.get("one-webhook-tls").await.unwrap().metadata.uid;
    certificates.delete("one-webhook-tls", &DeleteParams::default()).await.unwrap();
    collect_requests(&world, uid.as_deref()).await;
    eventually("the Certificate is there again", SOON, async || {
        let live = certificates.get_opt("one-webhook-tls").await.map_err(|error| error.to_string())?;
        live.filter(|live| live.metadata.uid != uid).map(drop).ok_or_else(|| "not yet".to_owned())
    })
    .await;

    world.api::<Secret>().delete("one-webhook-tls", &DeleteParams::default()).await.unwrap();
    eventually("the runtime has another certificate", SOON, async || {
        let leaf = world.daemon().runtime("one").leaf;
        if leaf.is_some() && leaf != before.leaf { Ok(()) } else { Err("not yet".to_owned()) }
    })
    .await;
}

/// Deletes the CertificateRequests of a Certificate that is gone, as the garbage collector of a cluster does. These
/// servers have none, and cert-manager cannot issue another certificate while a request has the name of the next one.
async fn collect_requests(world: &World, certificate: Option<&str>) {
    let sample = json!({
        "apiVersion": "cert-manager.io/v1", "kind": "CertificateRequest",
        "metadata": {"name": "any", "namespace": world.namespace},
    });
    let requests = harness::api_of(&world.client, &sample).await.unwrap();
    for request in requests.list(&ListParams::default()).await.unwrap() {
        let mut owners = request.metadata.owner_references.iter().flatten();
        if owners.any(|owner| Some(owner.uid.as_str()) == certificate) {
            match requests.delete(request.metadata.name.as_deref().unwrap(), &DeleteParams::default()).await {
                // cert-manager deletes some of them itself.
                Err(kube::Error::Api(status)) if status.code == 404 => {}
                deleted => drop(deleted.unwrap()),
            }
        }
    }
}

async fn own_certificate_is_made_again_after_deletion_and_after_a_change() {
    let world = with_own_authority("own-again").await;
    let first = world.issued("one").await;
    rests(&world).await;
    world.api::<Secret>().delete("one-webhook-tls", &DeleteParams::default()).await.unwrap();
    let other_than = |former: Runtime| {
        let world = &world;
        async move {
            eventually("the runtime has another certificate", SOON, async || {
                let runtime = world.daemon().runtime("one");
                let is_new = runtime.leaf.is_some() && runtime.leaf != former.leaf;
                is_new.then_some(runtime).ok_or_else(|| "not yet".to_owned())
            })
            .await
        }
    };
    let second = other_than(first).await;
    // A new domain causes a new certificate.
    world.kyma("one", Some("moved.example.org")).await;
    let third = other_than(second).await;
    let leaf = tidegate::internals::gateway::pki::read_first(&third.leaf.unwrap().0).unwrap();
    assert!(tidegate::internals::gateway::pki::is_server_of(&leaf, &["moved.example.org".to_owned()]));
}

async fn own_authority_costs_no_request_while_nothing_changes() {
    let mut world = with_own_authority("own-quiet").await;
    world.issued("one").await;
    rests(&world).await;
    let mark = world.mark();
    let requests = format!("{:?}", world.daemon().context.kcp.requests());
    let kyma = Subject::Runtime(Key::new(&world.namespace, "one"));
    world.daemon().runtimes.lock().unwrap().clear();
    world.daemon().context.queue.push(kyma, Trigger::Changed);
    world.issued("one").await;
    let after = format!("{:?}", world.daemon().context.kcp.requests());
    // The one request is that of the test's runtime, which reads its certificate in every pass.
    assert_ne!(requests, after);
    world.stop().await;
    world.start().await;
    world.issued("one").await;
    rests(&world).await;
    assert_eq!(world.writes(mark), [""; 0]);
    let secret = world.secret(names::GATEWAY_SECRET).await.unwrap();
    assert_eq!(secret.type_.as_deref(), Some("Opaque"));
    assert!(!world.gateway("tls.crt").await.is_empty());
    assert_ne!(world.gateway("tls.key").await, world.data(names::AUTHORITY_SECRET, "tls.key").await, "the key stays");
}

#[tokio::test(flavor = "multi_thread")]
async fn certificates_go_with_their_kyma_also_while_the_daemon_is_away() {
    for backend in [Backend::CertManager, Backend::Builtin] {
        let mut world = match backend {
            Backend::CertManager => with_cert_manager("gone").await,
            Backend::Gardener | Backend::Builtin => own_authority_of(World::new("gone", Some(backend)).await).await,
        };
        world.kyma("two", DOMAIN).await;
        world.issued("one").await;
        world.issued("two").await;
        let gone = |name: &'static str| {
            let world = &world;
            async move {
                eventually("certificate and Secret are gone", SOON, async || {
                    let certificate = world.certificates().await.get_opt(name).await.unwrap();
                    match (certificate, world.secret(name).await) {
                        (None, None) => Ok(()),
                        (certificate, secret) => {
                            Err(format!("certificate {}, Secret {}", certificate.is_some(), secret.is_some()))
                        }
                    }
                })
                .await;
            }
        };
        world.api::<Kyma>().delete("one", &DeleteParams::default()).await.unwrap();
        gone("one-webhook-tls").await;
        world.stop().await;
        world.api::<Kyma>().delete("two", &DeleteParams::default()).await.unwrap();
        world.start().await;
        let gone = |name: &'static str| {
            let world = &world;
            async move {
                eventually("it is gone", SOON, async || {
                    let left = world.secret(name).await;
                    left.map_or(Ok(()), |_| Err("not yet".to_owned()))
                })
                .await;
            }
        };
        gone("two-webhook-tls").await;
        assert!(world.secret(names::AUTHORITY_SECRET).await.is_some());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_lifecycle_manager_declared_and_we_do_not_goes() {
    let mut world = World::new("take-over", Some(Backend::CertManager)).await;
    world.install_issuers().await;
    world.kyma("one", DOMAIN).await;
    let theirs = json!({
        "apiVersion": "cert-manager.io/v1", "kind": "Certificate",
        "metadata": {"name": "one-webhook-tls", "namespace": world.namespace},
        "spec": {
            "commonName": "old", "dnsNames": ["old.example.org"], "secretName": "one-webhook-tls",
            "revisionHistoryLimit": 7, "issuerRef": {"name": "klm-watcher-selfsigned", "kind": "Issuer"},
        },
    });
    let parameters = PatchParams::apply("operator.kyma-project.io/lifecycle-manager").force();
    let certificates = world.certificates().await;
    certificates.patch("one-webhook-tls", &parameters, &Patch::Apply(&theirs)).await.unwrap();
    world.start().await;
    eventually("it is ours", SOON, async || {
        let live = certificates.get("one-webhook-tls").await.map_err(|error| error.to_string())?;
        let spec = &live.data["spec"];
        let managers: Vec<_> =
            live.metadata.managed_fields.iter().flatten().filter_map(|entry| entry.manager.clone()).collect();
        let is_ours = spec["commonName"] == "id-one" && spec.get("revisionHistoryLimit").is_none();
        if is_ours && managers == ["tidegate"] { Ok(()) } else { Err(format!("{spec} {managers:?}")) }
    })
    .await;
}

/// The generation of a runtime's Certificate and what was issued for it, once cert-manager is done.
async fn issued_now(world: &World) -> Result<(Option<i64>, Option<Vec<u8>>), String> {
    let live = world.certificates().await.get("one-webhook-tls").await.map_err(|error| error.to_string())?;
    let conditions = live.data["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let generation = json!(live.metadata.generation);
    let is_ready =
        |one: &Value| one["type"] == "Ready" && one["status"] == "True" && one["observedGeneration"] == generation;
    let is_issuing = |one: &Value| one["type"] == "Issuing" && one["status"] == "True";
    let is_settled = conditions.iter().any(is_ready) && !conditions.iter().any(is_issuing);
    let secret = world.secret("one-webhook-tls").await.filter(|_| is_settled);
    let mut data = secret.ok_or_else(|| live.data["status"].to_string())?.data.unwrap_or_default();
    Ok((live.metadata.generation, data.remove("tls.crt").map(|bytes| bytes.0)))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_of_lifecycle_manager_is_taken_over_and_not_issued_anew() {
    let mut world = with_cert_manager("as-adopted").await;
    world.issued("one").await;
    rests(&world).await;
    world.stop().await;
    // As Lifecycle Manager has it, whose option for more names is empty.
    let certificates = world.certificates().await;
    let mut spec = certificates.get("one-webhook-tls").await.unwrap().data["spec"].clone();
    spec["dnsNames"].as_array_mut().unwrap().insert(1, json!(""));
    spec["isCA"] = json!(false);
    let theirs = json!({
        "apiVersion": "cert-manager.io/v1", "kind": "Certificate",
        "metadata": {
            "name": "one-webhook-tls", "namespace": world.namespace, "managedFields": [{}],
            "annotations": {names::annotation::KYMA: null},
        },
    });
    certificates.patch("one-webhook-tls", &PatchParams::default(), &Patch::Merge(&theirs)).await.unwrap();
    let theirs = json!({
        "apiVersion": "cert-manager.io/v1", "kind": "Certificate",
        "metadata": {"name": "one-webhook-tls", "namespace": world.namespace}, "spec": spec,
    });
    let parameters = PatchParams::apply("operator.kyma-project.io/lifecycle-manager").force();
    certificates.patch("one-webhook-tls", &parameters, &Patch::Apply(&theirs)).await.unwrap();
    eventually("cert-manager has issued it", SOON, async || issued_now(&world).await.map(drop)).await;
    let before = issued_now(&world).await;

    world.start().await;
    eventually("it is ours", SOON, async || {
        let live = world.certificates().await.get("one-webhook-tls").await.map_err(|error| error.to_string())?;
        let managers: Vec<_> =
            live.metadata.managed_fields.iter().flatten().filter_map(|entry| entry.manager.clone()).collect();
        let is_ours = managers.iter().any(|manager| manager == "tidegate")
            && managers.iter().all(|manager| !manager.contains("lifecycle-manager"));
        if is_ours { Ok(()) } else { Err(format!("{managers:?}")) }
    })
    .await;
    rests(&world).await;
    assert_eq!(issued_now(&world).await, before, "neither its specification nor the certificate has changed");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_missing_is_said() {
    let mut world = World::new("missing", Some(Backend::CertManager)).await;
    world.kyma("one", DOMAIN).await;
    world.start().await;
    let says = |expected: &'static str| {
        let world = &world;
        async move {
            eventually("the missing piece is named", SOON, async || match world.daemon().runtime("one").standing {
                Some(CertificateState::Pending(why)) if why.contains(expected) => Ok(()),
                other => {
                    world.daemon().look();
                    Err(format!("{other:?}"))
                }
            })
            .await;
        }
    };
    says("with the CA does not exist").await;
    world.start_cert_manager().await;
    says("with the CA does not exist").await;
    world.install_issuers().await;
    world.issued("one").await;
}

async fn bundle_that_cannot_be_read_stops_everything_and_is_named_without_its_text() {
    let world = with_own_authority("bad-bundle").await;
    world.issued("one").await;
    rests(&world).await;
    let patch = json!({"data": data(&[("ca.crt", "not-a-certificate-but-maybe-a-secret")])});
    world.api::<Secret>().patch(names::GATEWAY_SECRET, &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap();
    let problem = eventually("it is said", SOON, async || {
        world.daemon().context.certificates.problem().ok_or_else(|| "nothing is said".to_owned())
    })
    .await;
    assert!(problem.contains("`ca.crt` of Secret") && !problem.contains("maybe-a-secret"), "{problem}");
    // A deleted Secret is created again.
    world.api::<Secret>().delete(names::GATEWAY_SECRET, &DeleteParams::default()).await.unwrap();
    eventually("all is well again", SOON, async || {
        let problem = world.daemon().context.certificates.problem();
        let bundle = world.gateway("ca.crt").await;
        if problem.is_none() && tidegate::internals::gateway::pki::read_bundle(&bundle).is_ok() {
            Ok(())
        } else {
            Err(format!("{problem:?}"))
        }
    })
    .await;
}
