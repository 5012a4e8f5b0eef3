use super::*;

const MINUTE: Duration = Duration::from_secs(60);
const DAY: Duration = Duration::from_secs(24 * 3600);

/// What the watches show, in tests.
struct World {
    certificate: Certificate,
    rules: Rules,
    live: Option<Live>,
    secret: Option<LeafSecret>,
    bundled_at: Option<Timestamp>,
    problem: Option<&'static str>,
}

#[test]
fn the_issuer_is_the_configured_one_the_one_in_use_or_the_first_that_is_served() {
    let find = |configured: Option<Backend>, authority: Option<&str>, served: &[Backend]| {
        let (mut seen, mut asked) = (IssuersSeen::default(), 0);
        loop {
            asked += 1;
            match backend(configured, &seen) {
                BackendStep::ReadAuthority => seen.authority = Some(authority.map(str::to_owned)),
                BackendStep::Discover(backend, _) => {
                    seen.served.insert(backend, served.contains(&backend));
                }
                BackendStep::Use(backend) => return (backend, asked - 1),
            }
        }
    };
    use Backend::{Builtin, CertManager, Gardener};
    assert_eq!(find(Some(Gardener), Some("builtin"), &[CertManager]), (Gardener, 0));
    assert_eq!(find(None, Some(Builtin.name()), &[CertManager, Gardener]), (Builtin, 1));
    assert_eq!(find(None, None, &[CertManager, Gardener]), (CertManager, 2));
    assert_eq!(find(None, Some("another program"), &[Gardener]), (Gardener, 3));
    assert_eq!(find(None, None, &[]), (Builtin, 3));
}

#[test]
fn an_object_is_applied_only_if_it_differs() {
    let desired = json!({ "commonName": "id-a" });
    let of_another = Live { kyma: Some("kcp-system/b".to_owned()), ..live() };
    let changed = Live { spec: json!({ "commonName": "id-b" }).to_string().into(), ..live() };
    let extended = Live { spec: json!({ "commonName": "id-a", "revision": 3 }).to_string().into(), ..live() };
    for (shown, desired, expected) in [
        (None, Some(&desired), true),
        (Some(changed), Some(&desired), true),
        (Some(of_another), Some(&desired), true),
        (Some(live()), None, true),
        (Some(live()), Some(&desired), false),
        (Some(extended), Some(&desired), false),
    ] {
        let world = World { live: shown, ..World::default() };
        let step = request(&world.known(), Backend::CertManager, desired, &Requested::Nothing, now());
        assert_eq!(step == RequestStep::Apply, expected, "{:?}", world.live);
    }
}

#[test]
fn what_lifecycle_manager_wrote_stays_so_that_no_certificate_is_issued_anew() {
    let object = |spec: Value| {
        let metadata = json!({"name": "a-webhook-tls", "namespace": "istio-system"});
        Object::new(
            json!({"apiVersion": "cert-manager.io/v1", "kind": "Certificate", "metadata": metadata, "spec": spec}),
        )
        .unwrap()
    };
    let applied = |wanted: Value, shown: Value| {
        let live = Live { spec: shown.to_string().into(), ..live() };
        as_adopted(&object(wanted), Some(&live)).field("spec").cloned().unwrap()
    };
    let wanted = json!({"commonName": "id-a", "dnsNames": ["a.example.org", "b.svc"]});
    let of_klm = json!({"commonName": "id-a", "dnsNames": ["a.example.org", "", "b.svc"], "isCA": false});
    assert_eq!(applied(wanted.clone(), of_klm.clone()), of_klm);
    // A change issues it anew anyway.
    let moved = json!({"commonName": "id-a", "dnsNames": ["c.example.org", "b.svc"]});
    assert_eq!(applied(moved.clone(), of_klm)["dnsNames"], moved["dnsNames"]);
    let ours = json!({"commonName": "id-a", "dnsNames": ["a.example.org", "b.svc"], "revision": 3});
    assert_eq!(applied(wanted.clone(), ours), wanted);
    assert_eq!(applied(wanted.clone(), json!({"dnsNames": ["a.example.org", "b.svc"], "isCA": true})), wanted);
    assert_eq!(as_adopted(&object(wanted.clone()), None).field("spec"), Some(&wanted));
}

#[test]
fn a_certificate_of_a_former_ca_is_requested_again_but_not_during_an_issue_or_after_a_failure() {
    let ago = |by: Duration| now().checked_sub(by).unwrap();
    let current = Live { validity: Some(from(now())), ..live() };
    let failed = |by| Live { failed_at: Some(ago(by)), ..live() };
    for (shown, bundled_at, expected) in [
        (live(), Some(now()), true),
        (live(), None, false),
        (Live { validity: None, ..live() }, Some(now()), false),
        (current, Some(now()), false),
        (Live { is_issuing: true, ..live() }, Some(now()), false),
        (Live { is_deleting: true, ..live() }, Some(now()), false),
        (failed(MINUTE * 4), Some(now()), false),
        (failed(MINUTE * 6), Some(now()), true),
    ] {
        let world = World { live: Some(shown.clone()), bundled_at, ..World::default() };
        let step = |last| request(&world.known(), Backend::CertManager, Some(&spec()), &last, now());
        assert_eq!(step(Requested::Nothing) == RequestStep::Read, expected, "{shown:?}");
        assert_eq!(step(Requested::Applied) == RequestStep::Read, expected, "{shown:?}");
        // The decision is made again with the newest state, and a request is sent once.
        let read = Requested::Read(Some(Current { live: shown.clone(), conditions: Vec::new() }));
        assert_eq!(matches!(step(read), RequestStep::Renew(_)), expected, "{shown:?}");
        assert!(matches!(step(Requested::Read(None)), RequestStep::End(_)));
        assert!(matches!(step(Requested::Renewed), RequestStep::End(_)));
    }
}

#[test]
fn a_requested_certificate_is_issued_once_its_secret_exists_and_otherwise_says_why_not() {
    let problem = || Some("no such issuer".to_owned());
    let waiting = |because: &str| {
        CertificateState::Pending(format!(
            "cert-manager has not issued certificate istio-system/a-webhook-tls yet{because}"
        ))
    };
    let issued =
        CertificateState::Issued(Issued { secret: key(), version: "1/7".to_owned(), validity: live().validity });
    for (world, expected) in [
        (World { secret: Some(secret()), ..World::default() }, issued),
        (World { secret: Some(LeafSecret { is_deleting: true, ..secret() }), ..World::default() }, waiting("")),
        (World::default(), waiting("")),
        (World { live: Some(Live { problem: problem(), ..live() }), ..World::default() }, waiting(": no such issuer")),
        (
            World {
                live: Some(Live { problem: problem(), ..live() }),
                problem: Some("there is no CA"),
                ..World::default()
            },
            waiting(": there is no CA"),
        ),
    ] {
        let step = request(&world.known(), Backend::CertManager, Some(&spec()), &Requested::Applied, now());
        assert_eq!(step, RequestStep::End(expected));
    }
    let rejected = Requested::Rejected("cannot request it".to_owned());
    let step = request(&World::default().known(), Backend::Gardener, None, &rejected, now());
    assert_eq!(step, RequestStep::End(CertificateState::Refused("cannot request it".to_owned())));
}

#[test]
fn a_certificate_is_signed_if_it_is_missing_differs_or_expires_soon() {
    let soon = certificate::later(now(), DAY * 29).to_string();
    for (shown, bundled_at, expected) in [
        (None, None, true),
        (Some(signed()), None, false),
        (Some(LeafSecret { is_deleting: true, ..signed() }), None, true),
        (Some(LeafSecret { issued_for: Some("another".to_owned()), ..signed() }), None, true),
        (Some(LeafSecret { issued_at: None, ..signed() }), None, true),
        (Some(LeafSecret { not_after: Some(soon), ..signed() }), None, true),
        (Some(signed()), Some(now()), false),
        (Some(signed()), Some(certificate::later(now(), MINUTE)), true),
    ] {
        let world = World { secret: shown.clone(), bundled_at, ..World::default() };
        let step = sign(&world.known(), &authority(), None, now());
        assert_eq!(matches!(step, SignStep::Issue { .. }), expected, "{shown:?}");
        if let SignStep::Issue { validity, issued_at, .. } = step {
            assert_eq!(validity.not_before, now().checked_sub(BACKDATED).unwrap());
            assert_eq!(validity.not_after, certificate::later(now(), DAY * 60));
            assert!(bundled_at.is_none_or(|bundled_at| bundled_at <= issued_at) && now() <= issued_at);
        }
    }
}

#[test]
fn a_certificate_that_the_watch_does_not_show_yet_is_not_signed_again() {
    let world = World::default();
    let inputs = inputs(&world.certificate, &authority());
    let written = Written { issued: Issued { secret: key(), version: "1/8".to_owned(), validity: None }, inputs };
    let step = sign(&world.known(), &authority(), Some(&written), now());
    assert_eq!(step, SignStep::End(CertificateState::Issued(written.issued.clone())));

    let another = Written { inputs: Digest::of_bytes(b"another CA"), ..written.clone() };
    assert!(matches!(sign(&world.known(), &authority(), Some(&another), now()), SignStep::Issue { .. }));

    let shown = |version: &str| LeafSecret { resource_version: version.to_owned(), ..secret() };
    for (shown, age, expected) in [
        (None, Duration::ZERO, false),
        (Some(shown("7")), Duration::ZERO, false),
        (Some(shown("8")), Duration::ZERO, true),
        (Some(shown("7")), LAG_MAX * 2, true),
        (None, LAG_MAX * 2, true),
    ] {
        assert_eq!(is_superseded(&written, shown.as_ref(), age), expected, "{shown:?}");
    }
}

#[test]
fn without_a_ca_an_existing_certificate_stays_usable() {
    let pending = |because: &str| CertificateState::Pending(format!("there is no CA: {because}"));
    let usable = Issued { secret: key(), version: "1/7".to_owned(), validity: validity(&signed()) };
    for (world, expected) in [
        (World { secret: Some(signed()), ..World::default() }, CertificateState::Issued(usable)),
        (World::default(), pending("its Secret has not been read yet")),
        (World { problem: Some("it expired"), ..World::default() }, pending("it expired")),
        (
            World { secret: Some(LeafSecret { is_deleting: true, ..signed() }), ..World::default() },
            pending("its Secret has not been read yet"),
        ),
    ] {
        assert_eq!(unsigned(&world.known()), expected);
    }
}

#[test]
fn a_certificate_is_deleted_before_its_secret() {
    let kyma = Key::new("kcp-system", "a");
    let all = || remains(&kyma, Some(live()), Some(secret()));
    let found = |is_certificate| Some(FoundSecret { uid: "1".to_owned(), is_certificate });
    let uid = || "1".to_owned();
    for (last, expected) in [
        (Removed::Nothing, RemovalStep::DeleteCertificate(uid())),
        (Removed::Certificate(Deleted::Terminating), RemovalStep::End(false)),
        (Removed::Certificate(Deleted::Gone), RemovalStep::ReadSecret),
        (Removed::Certificate(Deleted::Changed), RemovalStep::ReadSecret),
        (Removed::SecretRead(found(true)), RemovalStep::DeleteSecret(uid())),
        (Removed::SecretRead(found(false)), RemovalStep::End(true)),
        (Removed::SecretRead(None), RemovalStep::End(true)),
        (Removed::Secret(Deleted::Gone), RemovalStep::End(true)),
        (Removed::Secret(Deleted::Terminating), RemovalStep::End(false)),
        (Removed::Secret(Deleted::Changed), RemovalStep::End(false)),
    ] {
        assert_eq!(remove(&all(), &last), expected, "{last:?}");
    }
    let only_secret = remains(&kyma, None, Some(secret()));
    assert_eq!(remove(&only_secret, &Removed::Nothing), RemovalStep::ReadSecret);
    let signed_by_us = Remains { has_object: false, ..all() };
    assert_eq!(remove(&signed_by_us, &Removed::Nothing), RemovalStep::ReadSecret);
}

#[test]
fn what_belongs_to_another_kyma_is_never_removed() {
    let (own, other) = (Key::new("kcp-system", "a"), Key::new("other", "a"));
    let of = |kyma: &str| Some(LeafSecret { kyma: Some(kyma.to_owned()), ..secret() });
    let unnamed = || Some(LeafSecret { kyma: None, ..secret() });
    for (kyma, live, secret, is_left) in [
        (&own, None, None, false),
        (&own, None, of("kcp-system/a"), true),
        (&own, None, of("other/a"), false),
        (&other, None, of("other/a"), true),
        // Lifecycle Manager names no Kyma, and expects all in one namespace.
        (&own, None, unnamed(), true),
        (&other, None, unnamed(), false),
        (&other, Some(live()), None, false),
    ] {
        let step = remove(&remains(kyma, live, secret.clone()), &Removed::Nothing);
        assert_eq!(step != RemovalStep::End(true), is_left, "{kyma} {secret:?}");
    }
}

// --- values ---

impl Default for World {
    fn default() -> World {
        World {
            certificate: Certificate {
                kyma: Key::new("kcp-system", "a"),
                key: key(),
                common_name: "id-a".to_owned(),
                dns_names: vec!["a.example.org".to_owned()],
            },
            rules: Rules::default(),
            live: Some(live()),
            secret: None,
            bundled_at: None,
            problem: None,
        }
    }
}

impl World {
    fn known(&self) -> Known<'_> {
        Known {
            certificate: &self.certificate,
            rules: &self.rules,
            live: self.live.clone().map(Arc::new),
            secret: self.secret.clone().map(Arc::new),
            bundled_at: self.bundled_at,
            problem: self.problem.map(str::to_owned),
        }
    }
}

fn now() -> Timestamp {
    "2026-01-01T00:00:00Z".parse().unwrap()
}

fn key() -> Key {
    Key::new("istio-system", "a-webhook-tls")
}

fn spec() -> Value {
    json!({ "commonName": "id-a" })
}

fn from(not_before: Timestamp) -> Validity {
    Validity { not_before, not_after: certificate::later(not_before, DAY * 60) }
}

/// An issued certificate of a CA that was added ten days ago.
fn live() -> Live {
    Live {
        uid: "1".to_owned(),
        resource_version: "5".to_owned(),
        is_deleting: false,
        kyma: Some("kcp-system/a".to_owned()),
        spec: spec().to_string().into(),
        validity: Some(from(now().checked_sub(DAY * 10).unwrap())),
        is_issuing: false,
        failed_at: None,
        problem: None,
    }
}

/// The Secret of an issuer with objects.
fn secret() -> LeafSecret {
    LeafSecret {
        uid: "1".to_owned(),
        resource_version: "7".to_owned(),
        is_deleting: false,
        created: None,
        kyma: Some("kcp-system/a".to_owned()),
        issued_at: None,
        not_after: None,
        issued_for: None,
    }
}

/// The Secret of a certificate that Tidegate signed just now.
fn signed() -> LeafSecret {
    let validity = from(now());
    LeafSecret {
        issued_at: Some(validity.not_before.to_string()),
        not_after: Some(validity.not_after.to_string()),
        issued_for: Some(inputs(&World::default().certificate, &authority()).short()),
        ..secret()
    }
}

fn authority() -> Authority {
    Authority { der: Arc::from(&b"ca"[..]), validity: from(now()) }
}

fn remains(kyma: &Key, live: Option<Live>, secret: Option<LeafSecret>) -> Remains<'_> {
    Remains { kyma, name: "a-webhook-tls", has_object: true, live: live.map(Arc::new), secret: secret.map(Arc::new) }
}
