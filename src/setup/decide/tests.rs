use k8s_openapi::jiff::{Timestamp, ToSpan as _};
use serde_json::json;

use super::*;
use tidegate_core::plan::setup::{Content, Trust};

const MARK: &str = "shard.eu";

fn live(mark: Option<&str>, version: &str) -> LiveObject {
    LiveObject {
        mark: mark.map(Into::into),
        control_plane: None,
        owner: None,
        mounts: std::collections::BTreeSet::new(),
        uid: "uid".into(),
        resource_version: version.into(),
        version: version.into(),
        digest: None,
        is_adopted: false,
        prune: None,
        is_terminating: false,
        mounted: None,
        cluster: None,
        state: ObjectState::Plain,
    }
}

fn now() -> Timestamp {
    Timestamp::from_second(1_800_000_000).expect("a time")
}

fn digest(text: &str) -> Digest {
    Digest::of_bytes(text.as_bytes())
}

fn verified(text: &str, version: &str, is_shown: bool) -> Verified {
    Verified { digest: digest(text), version: version.into(), is_shown, since: now() }
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
        assert_eq!(step(&digest("new"), live.as_ref(), verified.as_ref(), MARK, now()), expected, "{what}");
    }
    // Another client may have deleted it before the watch showed it.
    let applied = verified("new", "1", false);
    let after = |seconds: i64| step(&digest("new"), None, Some(&applied), MARK, now() + seconds.seconds());
    assert_eq!((after(4), after(5)), (Step::Keep, Step::Read));
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
    let of = |state| Arc::new(LiveObject { state, ..live(Some(MARK), "1") });
    let certificate = |name: &str| (ObjectKind::Certificate, name.to_owned());
    let mut objects = LiveObjects::new();
    let why = ObjectState::Certificate(Err("issuer main-client-ca not found".into()));
    objects.insert(certificate("eu-client"), of(why));
    let expected = [
        "Certificate eu-server does not exist yet",
        "Certificate eu-client is not ready: issuer main-client-ca not found",
    ];
    let found = waits(Issuance::CertManager, &gates, false, &objects, &BTreeMap::new());
    assert_eq!((found.certificates, found.keys), (expected.map(str::to_owned).to_vec(), vec![]));

    for name in ["eu-server", "eu-client"] {
        objects.insert(certificate(name), of(ObjectState::Certificate(Ok(()))));
    }
    let found = BTreeMap::from([
        keys(ObjectKind::Secret, "eu-server", &[("tls.crt", "a")]),
        keys(ObjectKind::Secret, "etcd", &[("ca.crt", "b")]),
    ]);
    let expected = ["Secret eu-server has no key `tls.key`", "ConfigMap audit does not exist"];
    let waiting = waits(Issuance::CertManager, &gates, false, &objects, &found);
    assert_eq!((waiting.certificates, waiting.keys), (vec![], expected.map(str::to_owned).to_vec()));
    assert_eq!(digest_of_keys(&gates, &found), None);
}

#[test]
fn only_the_creation_of_a_deployment_waits_for_another_one() {
    let gates = [Gate::Deployment { name: "main-kcp".to_owned(), is_up: true }];
    let pods = |ready: i32| {
        let pods = super::super::object::Pods { wanted: 2, updated: 2, ready, is_current: true };
        let object = LiveObject { state: ObjectState::Deployment(pods), ..live(Some("rootshard.main"), "1") };
        LiveObjects::from([((ObjectKind::Deployment, "main-kcp".to_owned()), Arc::new(object))])
    };
    let found =
        |exists, live: &LiveObjects| waits(Issuance::CertManager, &gates, exists, live, &BTreeMap::new()).deployments;
    assert_eq!(found(false, &LiveObjects::new()), ["Deployment main-kcp does not exist yet"]);
    assert_eq!(found(false, &pods(1)), ["the pods of Deployment main-kcp are not ready"]);
    assert_eq!(found(false, &pods(2)), [""; 0]);
    assert_eq!(found(true, &pods(0)), [""; 0], "a change must reach a shard while the root shard is down");
    let exists = [Gate::Deployment { name: "main-kcp".to_owned(), is_up: false }];
    assert!(waits(Issuance::CertManager, &exists, false, &pods(0), &BTreeMap::new()).is_empty());
}

/// d25: only a mounted value restarts a pod, not a label or a key beside it.
#[test]
fn d25_the_digest_of_mounts_follows_mounted_values_only() {
    let gates = [key("Secret", "server", &["tls.crt"]), key("Secret", "login", &[])];
    let of = |certificate: &str, beside: &str, login: &str| {
        let found = BTreeMap::from([
            keys(ObjectKind::Secret, "server", &[("tls.crt", certificate), ("tls.key", beside)]),
            keys(ObjectKind::Secret, "login", &[("ca.crt", login)]),
            keys(ObjectKind::Secret, "foreign", &[("tls.crt", beside)]),
        ]);
        digest_of_keys(&gates, &found).expect("everything is there")
    };
    assert_eq!(of("a", "b", "c"), of("a", "B", "c"));
    assert_ne!(of("a", "b", "c"), of("A", "b", "c"));
    assert_ne!(of("a", "b", "c"), of("a", "b", "C"), "a mount without keys has all of them");
}

/// What survives its resource are the keys without which nothing can be renewed, and nothing else.
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

/// An API server with one object, and the decisions until the pass ends.
fn play(known: &Known, observed: &mut Observed, server: Option<&Value>) -> (Vec<String>, Vec<(ObjectName, Outcome)>) {
    let mut acts = Vec::new();
    loop {
        match next(known, observed) {
            Next::End(outcomes) => return (acts, outcomes),
            Next::Do(Act::Learn(name)) => {
                acts.push(format!("learn {}", name.1));
                observed.values.insert(name, BTreeMap::from([("tls.crt".to_owned(), b"no PEM".to_vec())]));
            }
            Next::Do(Act::Read(name)) => {
                acts.push(format!("read {}", name.1));
                observed.found.insert(name, server.map(|value| Object::new(value.clone()).expect("an object")));
            }
            Next::Do(Act::Apply(name, object, _, on_conflict)) => {
                acts.push(format!("apply {} {:?} {}", name.1, on_conflict, object.value()["spec"]["replicas"]));
                observed.applied.insert(name, Ok(()));
            }
            Next::Do(Act::Delete(name, _)) => {
                acts.push(format!("delete {} {}", name.0.as_str(), name.1));
                observed.deleted.insert(name);
            }
        }
    }
}

fn deployment(replicas: Value) -> Value {
    let metadata = json!({"name": "eu-shard-kcp", "namespace": "kcp-system", "labels": {"tidegate.dev/setup": MARK}});
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": {"replicas": replicas}})
}

fn known(desired: Vec<Desired>) -> Known {
    Known {
        place: None,
        around: None,
        namespace: "kcp-system".to_owned(),
        mark: MARK.to_owned(),
        live: LiveObjects::new(),
        verified: BTreeMap::new(),
        wanted: desired.iter().map(|desired| desired.name.clone()).collect(),
        desired,
        definition: None,
        is_complete: true,
        may_adopt: false,
        held: BTreeMap::new(),
        issuance: Issuance::CertManager,
        now: now(),
    }
}

fn desired(object: Value, replicas: Option<Replicas>) -> Desired {
    let object = Object::new(object).expect("an object");
    let kind = ObjectKind::named(&object.gvk().kind).expect("a known kind");
    let name = (kind, object.name().to_owned());
    Desired { name, digest: object.digest(), object, gates: Vec::new(), origin: Origin::Rendered, replicas }
}

/// Row 55: a number that the definition does not have is 2 at first. Afterwards, Tidegate leaves it alone.
#[test]
fn a_number_of_pods_that_leaves_the_definition_stays_as_it_is() {
    let with = |replicas| {
        let mut object = deployment(json!(null));
        object["spec"] = json!({"paused": false});
        known(vec![desired(object, Some(replicas))])
    };
    let (acts, _) = play(&with(Replicas::OnCreation(2)), &mut Observed::default(), None);
    assert_eq!(acts, ["read eu-shard-kcp", "apply eu-shard-kcp Report 2"]);
    let server = deployment(json!(5));
    let (acts, _) = play(&with(Replicas::OnCreation(2)), &mut Observed::default(), Some(&server));
    assert_eq!(acts, ["read eu-shard-kcp", "apply eu-shard-kcp Force 5"]);
    let (acts, _) = play(&with(Replicas::AtMost(1)), &mut Observed::default(), Some(&server));
    assert_eq!(acts, ["read eu-shard-kcp", "apply eu-shard-kcp Force 1"]);

    // A Deployment with the desired content gets no request, however many pods it has.
    let mut known = with(Replicas::OnCreation(2));
    let name = known.desired[0].name.clone();
    let pods = super::super::object::Pods { wanted: 7, updated: 7, ready: 7, is_current: true };
    let object = LiveObject { state: ObjectState::Deployment(pods), ..live(Some(MARK), "1") };
    known.live.insert(name.clone(), Arc::new(object));
    let is_as_applied = Verified { digest: known.desired[0].digest, version: "1".into(), is_shown: true, since: now() };
    known.verified.insert(name, is_as_applied);
    let (acts, outcomes) = play(&known, &mut Observed::default(), None);
    assert_eq!((acts, &outcomes[0].1), (vec![], &Outcome::Well));
    known.desired[0].replicas = Some(Replicas::AtMost(1));
    let (acts, _) = play(&known, &mut Observed::default(), None);
    assert_eq!(acts, ["apply eu-shard-kcp Force 1"], "a cache without etcd must not have two pods");
}

#[test]
fn an_object_of_others_stays_until_a_user_hands_it_over() {
    let with = |change: &dyn Fn(&mut Value)| {
        let mut server = deployment(json!(2));
        change(&mut server);
        let mut known = known(vec![desired(deployment(json!(3)), None)]);
        let (acts, outcomes) = play(&known, &mut Observed::default(), Some(&server));
        known.may_adopt = true;
        let (adopting, _) = play(&known, &mut Observed::default(), Some(&server));
        let sentence = match &outcomes[0].1 {
            Outcome::Refused(sentence) => sentence.clone(),
            _ => String::new(),
        };
        (acts.len(), sentence, adopting.len())
    };
    assert_eq!(with(&|_| ()), (2, String::new(), 2), "ours");
    let foreign = |server: &mut Value| {
        server["metadata"] = json!({"name": "eu-shard-kcp", "namespace": "kcp-system",
            "managedFields": [{"manager": "kubectl"}]});
    };
    let expected = "Deployment eu-shard-kcp exists and is not managed by Tidegate: kubectl manages it; delete it, or \
                    let Tidegate take it over with `kubectl annotate deployment -n kcp-system eu-shard-kcp \
                    tidegate.dev/adopt=true`";
    assert_eq!(with(&foreign), (1, expected.to_owned(), 2));
    let (acts, sentence, adopting) = with(&|server| {
        foreign(server);
        server["metadata"]["ownerReferences"] = json!([{"kind": "CompiledShard", "name": "eu"}]);
    });
    assert_eq!((acts, adopting), (1, 1), "it would be deleted with its owner");
    assert!(sentence.contains("remove its `ownerReferences`"), "{sentence}");
    let (acts, sentence, adopting) =
        with(&|server| server["metadata"]["labels"]["tidegate.dev/setup"] = json!("shard.us"));
    assert_eq!((acts, adopting), (1, 1));
    assert!(sentence.starts_with("Deployment eu-shard-kcp belongs to shard.us"), "{sentence}");
}

#[test]
fn a_bundle_of_what_is_no_certificate_is_not_written() {
    let object = json!({"apiVersion": "v1", "kind": "Secret", "data": {"tls.crt": ""},
        "metadata": {"name": "eu-merged-client-ca", "namespace": "kcp-system"}});
    let mut bundle = desired(object, None);
    bundle.origin = Origin::Composed(Content::Bundle(vec![Trust::whole("company")]));
    let (acts, outcomes) = play(&known(vec![bundle]), &mut Observed::default(), None);
    assert_eq!(acts, ["read eu-merged-client-ca", "learn company"]);
    let expected = "Secret company, key `tls.crt`: block 1 is not PEM; it must contain certificates in PEM only";
    assert_eq!(outcomes[0].1, Outcome::Unusable(expected.to_owned()));
}

/// Objects go in the reverse order of their creation; what cert-manager would make again waits for its Certificate.
#[test]
fn what_is_no_longer_desired_goes_and_keys_stay() {
    let mut known = known(Vec::new());
    for (kind, name) in [
        (ObjectKind::Issuer, "eu-ca"),
        (ObjectKind::Certificate, "eu-server"),
        (ObjectKind::Secret, "eu-server"),
        (ObjectKind::Secret, "eu-service-account"),
        (ObjectKind::Deployment, "eu-shard-kcp"),
        (ObjectKind::Service, "eu-shard-kcp"),
    ] {
        known.live.insert((kind, name.to_owned()), Arc::new(live(Some(MARK), "1")));
    }
    known.live.insert((ObjectKind::Secret, "of-others".to_owned()), Arc::new(live(None, "1")));
    let (acts, _) = play(&known, &mut Observed::default(), None);
    assert_eq!(
        acts,
        [
            "delete Service eu-shard-kcp",
            "delete Deployment eu-shard-kcp",
            "delete Certificate eu-server",
            "delete Issuer eu-ca"
        ]
    );
    known.live.retain(|(kind, name), _| *kind == ObjectKind::Secret && name != "gone");
    let (acts, outcomes) = play(&known, &mut Observed::default(), None);
    assert_eq!(acts, ["delete Secret eu-server"]);
    let stays = outcomes.iter().find(|(_, outcome)| *outcome == Outcome::Stays).map(|((_, name), _)| name.as_str());
    assert_eq!(stays, Some("eu-service-account"));

    known.is_complete = false;
    let (acts, _) = play(&known, &mut Observed::default(), None);
    assert_eq!(acts, [""; 0], "nothing is pruned while a template fails");
}

fn secret(name: &str) -> Value {
    let metadata = json!({"name": name, "namespace": "kcp-system", "labels": {"tidegate.dev/setup": MARK}});
    json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": {"kubeconfig": "YQ=="}})
}

#[test]
fn d12_the_secret_of_a_kubeconfig_is_repaired_renewed_and_goes_with_it() {
    let mut known = known(vec![desired(secret("admin"), None)]);
    let name = known.desired[0].name.clone();
    known.live.insert(name.clone(), Arc::new(live(Some(MARK), "1")));
    let as_applied = Verified { digest: known.desired[0].digest, version: "1".into(), is_shown: true, since: now() };
    known.verified.insert(name.clone(), as_applied.clone());
    let (acts, _) = play(&known, &mut Observed::default(), None);
    assert_eq!(acts, [""; 0], "it is as it was applied");
    known.verified.insert(name.clone(), Verified { digest: digest("the former certificate"), ..as_applied });
    let (acts, _) = play(&known, &mut Observed::default(), None);
    assert_eq!(acts, ["apply admin Force null"], "its certificate was renewed");
    let as_applied = Verified { digest: known.desired[0].digest, version: "1".into(), is_shown: true, since: now() };
    known.verified.insert(name.clone(), as_applied);
    known.live.insert(name, Arc::new(live(Some(MARK), "2")));
    let mut edited = secret("admin");
    edited["data"] = json!({"kubeconfig": "Yg=="});
    let (acts, _) = play(&known, &mut Observed::default(), Some(&edited));
    assert_eq!(acts, ["read admin", "apply admin Force null"], "another client edited it");
    known.desired.clear();
    known.wanted.clear();
    let (acts, _) = play(&known, &mut Observed::default(), None);
    assert_eq!(acts, ["delete Secret admin"]);
}

#[test]
fn d16_issued_secrets_go_and_the_keys_of_cas_that_stay_are_said() {
    let mut known = known(Vec::new());
    for name in ["main-ca", "main-server", "main-service-account"] {
        known.live.insert((ObjectKind::Secret, name.to_owned()), Arc::new(live(Some(MARK), "1")));
    }
    let (acts, outcomes) = play(&known, &mut Observed::default(), None);
    assert_eq!(acts, ["delete Secret main-server"]);
    let stays = outcomes.iter().filter(|(_, outcome)| *outcome == Outcome::Stays).map(|((_, name), _)| name.as_str());
    assert_eq!(stays.collect::<Vec<_>>(), ["main-service-account", "main-ca"]);
}

#[test]
fn d24_an_output_with_another_name_takes_the_place_of_the_former_one() {
    let mut known = known(vec![desired(secret("new"), None)]);
    known.live.insert((ObjectKind::Secret, "old".to_owned()), Arc::new(live(Some(MARK), "1")));
    known.live.insert((ObjectKind::Secret, "of-others".to_owned()), Arc::new(live(None, "1")));
    let (acts, _) = play(&known, &mut Observed::default(), None);
    assert_eq!(acts, ["read new", "apply new Report null", "delete Secret old"]);
}

/// The Secret of a self-signed CA, as the built-in CA is asked for it.
fn issued() -> Desired {
    let certificate = json!({"apiVersion": "cert-manager.io/v1", "kind": "Certificate",
        "metadata": {"name": "eu-ca", "namespace": "kcp-system"},
        "spec": {"secretName": "eu-ca", "secretTemplate": {"labels": {"tidegate.dev/setup": MARK}}, "isCA": true,
            "commonName": "eu-ca", "duration": "24h", "privateKey": {"rotationPolicy": "Never"},
            "issuerRef": {"name": "any", "kind": "ClusterIssuer"}}});
    let certificate = Object::new(certificate).expect("an object");
    let request = crate::setup::builtin::read(&certificate, None, true).expect("it can be issued");
    let (name, object) = ((ObjectKind::Secret, "eu-ca".to_owned()), request.secret(&certificate));
    let (digest, origin) = (object.digest(), Origin::Issued(Box::new(request)));
    Desired { name, digest, object, gates: Vec::new(), origin, replicas: None }
}

#[test]
fn the_built_in_ca_writes_a_secret_once_and_again_when_it_is_due() {
    let mut known = known(vec![issued()]);
    known.issuance = Issuance::Builtin;
    let mut observed = Observed::default();
    let (acts, outcomes) = play(&known, &mut observed, None);
    assert_eq!(acts, ["read eu-ca", "apply eu-ca Report null"]);
    assert_eq!(outcomes[0].1, Outcome::Well);
    assert!(not_ready(known.issuance, "eu-ca", &known.live).is_some_and(|why| why.contains("is not issued yet")));

    let name = known.desired[0].name.clone();
    let with = |known: &mut Known, renew_at: Timestamp| {
        let object = LiveObject { state: ObjectState::Issued(renew_at), ..live(Some(MARK), "1") };
        known.live.insert(name.clone(), Arc::new(object));
        let as_applied =
            Verified { digest: known.desired[0].digest, version: "1".into(), is_shown: true, since: now() };
        known.verified.insert(name.clone(), as_applied);
    };
    let (soon, before) = (known.now + 1.hour(), known.now - 1.second());
    with(&mut known, soon);
    assert_eq!(not_ready(known.issuance, "eu-ca", &known.live), None);
    let (acts, _) = play(&known, &mut Observed::default(), None);
    assert_eq!(acts, [""; 0]);
    with(&mut known, before);
    let (acts, _) = play(&known, &mut Observed::default(), None);
    assert_eq!(acts, ["read eu-ca", "apply eu-ca Report null"]);
}

/// Row 22: what a new CA signs waits until all pods trust it.
#[test]
fn a_certificate_is_not_issued_before_its_ca_is_trusted() {
    let mut known = known(vec![issued()]);
    known.issuance = Issuance::Builtin;
    known.held.insert(known.desired[0].name.clone(), "it waits for trust".to_owned());
    let (acts, outcomes) = play(&known, &mut Observed::default(), None);
    assert_eq!(acts, [""; 0]);
    let waits = Waits { keys: vec!["it waits for trust".to_owned()], ..Waits::default() };
    assert_eq!(outcomes[0].1, Outcome::Waits(waits));
}

#[test]
fn a_secret_that_cert_manager_writes_as_well_is_not_issued() {
    let mut known = known(vec![issued()]);
    known.issuance = Issuance::Builtin;
    let certificate = (ObjectKind::Certificate, "eu-ca".to_owned());
    known.live.insert(certificate.clone(), Arc::new(live(Some(MARK), "1")));
    known.wanted.insert(certificate);
    let (acts, outcomes) = play(&known, &mut Observed::default(), None);
    assert_eq!(acts, ["read eu-ca"]);
    let Outcome::Refused(sentence) = &outcomes[0].1 else { panic!("{outcomes:?}") };
    assert!(sentence.contains("Certificate eu-ca exists") && sentence.contains("--pki=cert-manager"), "{sentence}");
}

/// A Deployment that kcp-operator left, with the annotation that lets it stay.
fn adopted(known: &Known) -> Value {
    let mut server = deployment(json!(2));
    let definition = known.definition.as_ref().expect("it is known");
    let noted = hold::adopted_as(definition, &known.desired[0], &server).to_string();
    server["metadata"]["annotations"] = json!({"tidegate.dev/adopted-as": noted});
    server
}

#[test]
fn what_kcp_operator_left_is_read_once_and_stays_until_its_resource_changes() {
    let mut known = known(vec![desired(deployment(json!(3)), None)]);
    known.definition = Some(digest("the resource"));
    let name = known.desired[0].name.clone();
    let server = adopted(&known);
    let shown = LiveObject { is_adopted: true, ..live(Some(MARK), "1") };
    known.live.insert(name.clone(), Arc::new(shown.clone()));
    let (acts, outcomes) = play(&known, &mut Observed::default(), Some(&server));
    assert_eq!((acts, &outcomes[0].1), (vec!["read eu-shard-kcp".to_owned()], &Outcome::Well));

    // As the pass remembers it.
    let noted = target(&known, &known.desired[0], true).expect("the resource is known");
    assert_ne!(noted, known.desired[0].digest);
    let verified = Verified { digest: noted, version: "1".into(), is_shown: true, since: now() };
    known.verified.insert(name.clone(), verified);
    let (acts, outcomes) = play(&known, &mut Observed::default(), Some(&server));
    assert_eq!((acts, &outcomes[0].1), (vec![], &Outcome::Well), "it sends nothing");

    // Its resource changes, although the object does not.
    let definition = known.definition.replace(digest("the resource with another Service"));
    let (acts, _) = play(&known, &mut Observed::default(), Some(&server));
    assert_eq!(acts, ["read eu-shard-kcp", "apply eu-shard-kcp Force 3"]);
    known.definition = definition;

    // Another client edits it.
    known.live.insert(name.clone(), Arc::new(LiveObject { version: "2".into(), ..shown.clone() }));
    let mut edited = server.clone();
    edited["spec"]["replicas"] = json!(1);
    let (acts, _) = play(&known, &mut Observed::default(), Some(&edited));
    assert_eq!(acts, ["read eu-shard-kcp", "apply eu-shard-kcp Force 3"]);

    // A template fails: nothing is known, and nothing is sent.
    known.definition = None;
    let (acts, outcomes) = play(&known, &mut Observed::default(), Some(&edited));
    assert_eq!((acts, &outcomes[0].1), (vec![], &Outcome::Well));
    assert_eq!(target(&known, &known.desired[0], true), None, "and nothing is remembered");

    // Once the annotation is removed, it is an object as any other.
    known.live.insert(name, Arc::new(live(Some(MARK), "3")));
    let (acts, _) = play(&known, &mut Observed::default(), Some(&deployment(json!(2))));
    assert_eq!(acts, ["read eu-shard-kcp", "apply eu-shard-kcp Force 3"]);
}

/// A cache without etcd must not have two pods, also if kcp-operator created its Deployment.
#[test]
fn too_many_pods_end_what_kcp_operator_left() {
    let mut object = deployment(json!(null));
    object["spec"] = json!({"paused": false});
    let mut known = known(vec![desired(object, Some(Replicas::AtMost(1)))]);
    known.definition = Some(digest("the resource"));
    let server = adopted(&known);
    let with = |wanted| {
        let pods = super::super::object::Pods { wanted, updated: wanted, ready: wanted, is_current: true };
        LiveObject { is_adopted: true, state: ObjectState::Deployment(pods), ..live(Some(MARK), "1") }
    };
    let name = known.desired[0].name.clone();
    known.live.insert(name.clone(), Arc::new(with(1)));
    let (acts, _) = play(&known, &mut Observed::default(), Some(&server));
    assert_eq!(acts, ["read eu-shard-kcp"]);
    known.live.insert(name, Arc::new(with(2)));
    let (acts, _) = play(&known, &mut Observed::default(), Some(&server));
    assert_eq!(acts, ["read eu-shard-kcp", "apply eu-shard-kcp Force 1"]);
}
