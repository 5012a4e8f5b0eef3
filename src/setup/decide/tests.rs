use super::*;

const MARK: &str = "shard.eu";

fn live(mark: Option<&str>, version: &str) -> LiveObject {
    LiveObject {
        mark: mark.map(Into::into),
        uid: "uid".into(),
        resource_version: version.into(),
        version: version.into(),
        digest: None,
        prune: None,
        is_terminating: false,
        state: ObjectState::Plain,
    }
}

fn digest(text: &str) -> Digest {
    Digest::of_bytes(text.as_bytes())
}

fn verified(text: &str, version: &str, is_shown: bool) -> Verified {
    Verified { digest: digest(text), version: version.into(), is_shown }
}

#[test]
fn an_object_is_read_before_its_first_apply_and_never_without_need() {
    let applied = |text: &str| LiveObject { digest: Some(digest(text).to_string().into()), ..live(Some(MARK), "1") };
    let leaving = LiveObject { is_terminating: true, ..live(Some(MARK), "1") };
    for (what, live, verified, expected) in [
        ("first seen", None, None, Step::Read),
        ("just applied", None, Some(verified("new", "1", false)), Step::Keep),
        ("just applied otherwise", None, Some(verified("old", "1", false)), Step::Apply),
        ("deleted by others", None, Some(verified("new", "1", true)), Step::Read),
        ("of others", Some(live(None, "1")), None, Step::Read),
        ("of another resource", Some(live(Some("shard.us"), "1")), None, Step::Read),
        ("unchanged", Some(live(Some(MARK), "1")), Some(verified("new", "1", true)), Step::Keep),
        ("newly desired", Some(live(Some(MARK), "1")), Some(verified("old", "1", true)), Step::Apply),
        ("edited by others", Some(live(Some(MARK), "2")), Some(verified("new", "1", true)), Step::Read),
        ("after a restart", Some(applied("new")), None, Step::Read),
        ("after a restart with news", Some(applied("old")), None, Step::Apply),
        ("being deleted", Some(leaving), Some(verified("new", "1", true)), Step::Await),
    ] {
        assert_eq!(step(&digest("new"), live.as_ref(), verified.as_ref(), MARK), expected, "{what}");
    }
}

fn key(kind: &'static str, name: &str, keys: &[&str]) -> Gate {
    Gate::Key(Mounted { kind, name: name.to_owned(), keys: keys.iter().map(|&key| key.to_owned()).collect() })
}

fn keys(kind: ObjectKind, name: &str, values: &[(&str, &str)]) -> (ObjectName, Keys) {
    let values = values.iter().map(|(key, value)| ((*key).to_owned(), digest(value)));
    ((kind, name.to_owned()), values.collect())
}

#[test]
fn a_deployment_names_the_certificates_that_are_not_ready_and_then_the_keys_that_are_missing() {
    let gates = [
        Gate::Certificate("eu-server".to_owned()),
        Gate::Certificate("eu-client".to_owned()),
        key("Secret", "eu-server", &["tls.crt", "tls.key"]),
        key("Secret", "etcd", &["ca.crt"]),
        key("ConfigMap", "audit", &["policy.yaml"]),
    ];
    let of = |state| LiveObject { state, ..live(Some(MARK), "1") };
    let certificate = |name: &str| (ObjectKind::Certificate, name.to_owned());
    let mut objects = BTreeMap::new();
    let why = ObjectState::Certificate(Err("issuer main-client-ca not found".into()));
    objects.insert(certificate("eu-client"), of(why));
    let expected = [
        "Certificate eu-server does not exist yet",
        "Certificate eu-client is not ready: issuer main-client-ca not found",
    ];
    let found = waits(&gates, &objects, &BTreeMap::new());
    assert_eq!((found.certificates, found.mounts), (expected.map(str::to_owned).to_vec(), vec![]));

    for name in ["eu-server", "eu-client"] {
        objects.insert(certificate(name), of(ObjectState::Certificate(Ok(()))));
    }
    let found = BTreeMap::from([
        keys(ObjectKind::Secret, "eu-server", &[("tls.crt", "a")]),
        keys(ObjectKind::Secret, "etcd", &[("ca.crt", "b")]),
    ]);
    let expected = ["Secret eu-server has no key `tls.key`", "ConfigMap audit does not exist"];
    let waiting = waits(&gates, &objects, &found);
    assert_eq!((waiting.certificates, waiting.mounts), (vec![], expected.map(str::to_owned).to_vec()));
    assert_eq!(digest_of_mounts(&gates, &found), None);
}

/// d25: only a mounted value restarts a pod, not a label or a key beside it.
#[test]
fn the_digest_of_mounts_follows_mounted_values_only() {
    let gates = [key("Secret", "server", &["tls.crt"]), key("Secret", "login", &[])];
    let of = |certificate: &str, beside: &str, login: &str| {
        let found = BTreeMap::from([
            keys(ObjectKind::Secret, "server", &[("tls.crt", certificate), ("tls.key", beside)]),
            keys(ObjectKind::Secret, "login", &[("ca.crt", login)]),
            keys(ObjectKind::Secret, "foreign", &[("tls.crt", beside)]),
        ]);
        digest_of_mounts(&gates, &found).expect("everything is there")
    };
    assert_eq!(of("a", "b", "c"), of("a", "B", "c"));
    assert_ne!(of("a", "b", "c"), of("A", "b", "c"));
    assert_ne!(of("a", "b", "c"), of("a", "b", "C"), "a mount without keys has all of them");
}

/// d16: what survives its resource are the keys without which nothing can be renewed, and nothing else.
#[test]
fn the_keys_of_cas_and_service_accounts_are_pruned_only_if_an_annotation_says_so() {
    let is =
        |kind, name: &str, prune| is_pruned(&(kind, name.to_owned()), &LiveObject { prune, ..live(Some(MARK), "1") });
    assert!(is(ObjectKind::Secret, "eu-server", None));
    assert!(is(ObjectKind::Secret, "main-merged-client-ca", None), "it has no key");
    assert!(is(ObjectKind::Issuer, "main-ca", None));
    assert!(is(ObjectKind::Certificate, "eu-service-account", None));
    for name in ["main-ca", "main-requestheader-client-ca", "eu-service-account"] {
        assert!(!is(ObjectKind::Secret, name, None), "{name}");
        assert!(is(ObjectKind::Secret, name, Some(true)), "{name}");
    }
    assert!(!is(ObjectKind::Secret, "eu-server", Some(false)));
}
