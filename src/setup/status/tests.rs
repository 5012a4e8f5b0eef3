use std::{collections::BTreeMap, sync::Arc};

use tidegate_core::plan::setup::Known;

use super::*;
use crate::setup::object::{LiveObject, Pods};

const NAMESPACE: &str = "kcp-system";

fn root(change: impl FnOnce(&mut Value)) -> Resources {
    let mut resource = json!({"apiVersion": "operator.kcp.io/v1alpha1", "kind": "RootShard",
        "metadata": {"name": "main", "namespace": NAMESPACE, "generation": 3},
        "spec": {"external": {"hostname": "kcp.example.com", "port": 443}, "cache": {},
            "certificates": {"issuerRef": {"name": "selfsigned"}}, "etcd": {"endpoints": ["https://etcd:2379"]}}});
    change(&mut resource);
    let mut resources = Resources::default();
    resources.insert(Kind::RootShard, &Key::new(NAMESPACE, "main"), resource).unwrap();
    resources
}

fn pods(wanted: i32, ready: i32, is_current: bool) -> LiveObjects {
    let pods = Pods { wanted, updated: wanted, ready, is_current };
    let object = LiveObject {
        mark: Some("rootshard.main".into()),
        control_plane: None,
        owner: None,
        mounts: BTreeSet::new(),
        cluster: None,
        uid: "uid".into(),
        resource_version: "1".into(),
        version: "1".into(),
        digest: None,
        is_adopted: false,
        prune: None,
        is_terminating: false,
        mounted: None,
        state: ObjectState::Deployment(pods),
    };
    LiveObjects::from([((ObjectKind::Deployment, "main-kcp".to_owned()), Arc::new(object))])
}

fn of(resources: &Resources, live: &LiveObjects, outcomes: &[(ObjectName, Outcome)], leaving: Option<&str>) -> Value {
    judged(resources, live, outcomes, leaving).0
}

/// The status, and whether it only says that the work goes on.
fn judged(
    resources: &Resources,
    live: &LiveObjects,
    outcomes: &[(ObjectName, Outcome)],
    leaving: Option<&str>,
) -> (Value, bool) {
    let key = Key::new(NAMESPACE, "main");
    let plan = resources.plan(Kind::RootShard, &key, &Known::default()).unwrap();
    let facts = Facts {
        kind: Kind::RootShard,
        key: &key,
        resources,
        metadata: resources.metadata(Kind::RootShard, &key).unwrap(),
        plan: plan.as_ref(),
        problems: &[],
        outcomes,
        failures: &[],
        live,
        issuance: Issuance::CertManager,
        inside: &Report::default(),
        replaced: &[],
        last_key: None,
        placement: &Placement::default(),
        leaving,
    };
    let before = resources.status(Kind::RootShard, &key);
    let after = status(&facts, &before, Timestamp::from_second(1_800_000_000).unwrap());
    let is_under_way = is_under_way(&facts, &before, &after);
    (after, is_under_way)
}

fn text(value: &Value) -> String {
    value.as_str().unwrap().to_owned()
}

fn said(status: &Value) -> BTreeMap<String, String> {
    let all = status["conditions"].as_array().unwrap().iter();
    all.map(|one| (text(&one["type"]), format!("{} {}", text(&one["status"]), text(&one["reason"])))).collect()
}

/// Row 42: phases fall back, and a Deployment without pods counts as available, as upstream.
#[test]
fn the_phase_follows_the_pods_and_falls_back() {
    let resources = root(|_| ());
    let check = |live: &LiveObjects, phase: &str, available: &str| {
        let status = of(&resources, live, &[], None);
        assert_eq!((status["phase"].as_str().unwrap(), said(&status)["Available"].as_str()), (phase, available));
    };
    check(&LiveObjects::new(), "Provisioning", "False DeploymentUnavailable");
    check(&pods(2, 2, true), "Running", "True ReplicasUp");
    check(&pods(2, 1, true), "Provisioning", "False ReplicasUnavailable");
    check(&pods(2, 2, false), "Provisioning", "False ReplicasUnavailable");
    check(&pods(0, 0, true), "Running", "True ReplicasUp");
}

#[test]
fn a_status_waits_only_while_the_resource_comes_up() {
    let under_way = |resources: &Resources, live: &LiveObjects, outcome: Option<Outcome>, leaving: Option<&str>| {
        let deployment = (ObjectKind::Deployment, "main-kcp".to_owned());
        let outcomes: Vec<_> = outcome.into_iter().map(|outcome| (deployment.clone(), outcome)).collect();
        judged(resources, live, &outcomes, leaving).1
    };
    let (new, nothing) = (root(|_| ()), LiveObjects::new());
    let was_up = root(|value| {
        value["status"] = json!({"conditions": [{"type": "Available", "status": "True", "reason": "ReplicasUp",
            "message": "up", "lastTransitionTime": "2026-01-01T00:00:00Z"}]});
    });
    assert!(under_way(&new, &nothing, None, None), "nothing exists yet");
    assert!(under_way(&new, &pods(2, 1, true), Some(Outcome::Waits(decide::Waits::default())), None), "it waits");
    assert!(!under_way(&new, &pods(2, 2, true), None, None), "it is up");
    assert!(!under_way(&was_up, &pods(2, 1, true), None, None), "it was up");
    assert!(!under_way(&new, &nothing, Some(Outcome::Refused("no".to_owned())), None), "it is refused");
    assert!(!under_way(&new, &nothing, Some(Outcome::Unusable("no".to_owned())), None), "it is unusable");
    assert!(!under_way(&new, &nothing, None, Some("it waits")), "it leaves");
}

/// Row 82: what is missing is named, and goes from the condition once it is there.
#[test]
fn what_is_missing_is_named_and_a_condition_keeps_its_time() {
    let resources = root(|_| ());
    let name = || (ObjectKind::Deployment, "main-kcp".to_owned());
    let waits = decide::Waits { keys: vec!["Secret etcd does not exist".to_owned()], ..decide::Waits::default() };
    let waiting = of(&resources, &LiveObjects::new(), &[(name(), Outcome::Waits(waits))], None);
    assert_eq!(said(&waiting)["tidegate.dev/Mounts"], "False Missing");
    assert_eq!(said(&waiting)["tidegate.dev/Certificates"], "False CertificateNotReady");
    assert_eq!(said(&waiting)["tidegate.dev/Objects"], "True Applied");
    let refused = of(&resources, &pods(2, 2, true), &[(name(), Outcome::Refused("no".to_owned()))], None);
    assert_eq!(said(&refused)["tidegate.dev/Objects"], "False NotApplied");
    assert_eq!(said(&refused)["tidegate.dev/Mounts"], "True Complete");

    // A second pass over the same world writes the same status.
    let again = root(|resource| resource["status"] = waiting.clone());
    let waits = decide::Waits { keys: vec!["Secret etcd does not exist".to_owned()], ..decide::Waits::default() };
    assert_eq!(of(&again, &LiveObjects::new(), &[(name(), Outcome::Waits(waits))], None), waiting);
}

/// What exists and cannot be used is another reason than what is missing, and comes first.
#[test]
fn what_cannot_be_used_is_no_wait() {
    let resources = root(|resource| {
        resource["spec"]["certificates"] = json!({"caSecretRef": {"name": "own-ca"}});
    });
    let mounts = |status: &Value| {
        let all = status["conditions"].as_array().unwrap().iter();
        let found = all.clone().find(|one| one["type"] == "tidegate.dev/Mounts").unwrap();
        format!("{} {}: {}", text(&found["status"]), text(&found["reason"]), text(&found["message"]))
    };
    let secret = |name: &str| (ObjectKind::Secret, name.to_owned());
    let waits = decide::Waits { keys: vec!["Secret etcd does not exist".to_owned()], ..decide::Waits::default() };
    let outcomes = [
        (secret("a"), Outcome::Waits(waits)),
        (secret("b"), Outcome::Unusable("Secret own-ca cannot sign".to_owned())),
    ];
    let status = of(&resources, &LiveObjects::new(), &outcomes, None);
    assert_eq!(mounts(&status), "False Unusable: Secret own-ca cannot sign; Secret etcd does not exist");

    // cert-manager says it of an Issuer. While its Secret does not exist, nothing is wrong with it.
    let object = |state: ObjectState| {
        let pods = pods(2, 2, true).into_values().next().expect("a Deployment");
        Arc::new(LiveObject { state, ..LiveObject::clone(&pods) })
    };
    let refuses = object(ObjectState::Issuer(Some("it is not a CA".into())));
    let mut live = LiveObjects::from([((ObjectKind::Issuer, "main-ca".to_owned()), refuses)]);
    assert_eq!(mounts(&of(&resources, &live, &[], None)), "True Complete: everything that its objects need exists");
    live.insert(secret("own-ca"), object(ObjectState::Plain));
    let expected = "False Unusable: Issuer main-ca cannot sign with Secret own-ca: it is not a CA";
    assert_eq!(mounts(&of(&resources, &live, &[], None)), expected);
    live.insert((ObjectKind::Issuer, "main-ca".to_owned()), object(ObjectState::Issuer(None)));
    assert_eq!(mounts(&of(&resources, &live, &[], None)), "True Complete: everything that its objects need exists");
}

/// In a rollout, cert-manager says that the Secret of an Issuer does not exist until it has seen the Secret.
#[test]
fn an_issuer_that_has_not_seen_its_secret_yet_is_no_problem() {
    let state = |reason: &str, message: &str| {
        let condition = json!({"type": "Ready", "status": "False", "reason": reason, "message": message});
        let issuer = json!({"apiVersion": "cert-manager.io/v1", "kind": "Issuer", "metadata": {"name": "main-ca"},
            "status": {"conditions": [condition]}});
        let found = serde_json::from_value(issuer).unwrap();
        LiveObject::from_object(ObjectKind::Issuer, found).state
    };
    let absent = "Error getting keypair for CA issuer: secrets \"main-ca\" not found";
    let empty = "Error getting keypair for CA issuer: no data for \"tls.crt\" in secret 'kcp-system/main-ca'";
    let no_ca = "Error getting keypair for CA issuer: certificate is not a CA";
    assert_eq!(state("ErrGetKeyPair", absent), ObjectState::Issuer(None));
    assert_eq!(state("ErrGetKeyPair", empty), ObjectState::Issuer(Some(empty.into())));
    assert_eq!(state("ErrInvalidKeyPair", no_ca), ObjectState::Issuer(Some(no_ca.into())));
}

/// Several objects may not be usable for one reason.
#[test]
fn what_cannot_be_used_is_said_once() {
    let secret = |name: &str| (ObjectKind::Secret, name.to_owned());
    let unusable = |why: &str| Outcome::Unusable(why.to_owned());
    let outcomes = [(secret("a"), unusable("two")), (secret("b"), unusable("one")), (secret("c"), unusable("two"))];
    let status = of(&root(|_| ()), &LiveObjects::new(), &outcomes, None);
    let all = status["conditions"].as_array().unwrap().iter();
    let found = all.clone().find(|one| one["type"] == "tidegate.dev/Mounts").unwrap();
    assert_eq!(found["message"], "one; two");
}

/// Row 66: a key that no copy has is no problem by itself, and is said.
#[test]
fn r66_what_no_copy_has_is_said_and_changes_no_condition() {
    let resources = root(|_| ());
    let key = Key::new(NAMESPACE, "main");
    let plan = resources.plan(Kind::RootShard, &key, &Known::default()).unwrap();
    let placement = Placement { left_out: vec!["Secret given, key `a`".to_owned()], ..Placement::default() };
    let missing = Outcome::Unusable("one".to_owned());
    for (outcome, expected) in [
        (Outcome::Well, "True Complete: everything that its objects need exists; Secret given, key `a`"),
        (missing, "False Unusable: one; Secret given, key `a`"),
    ] {
        let facts = Facts {
            kind: Kind::RootShard,
            key: &key,
            resources: &resources,
            metadata: resources.metadata(Kind::RootShard, &key).unwrap(),
            plan: plan.as_ref(),
            problems: &[],
            outcomes: &[((ObjectKind::Secret, "given".to_owned()), outcome)],
            failures: &[],
            live: &LiveObjects::new(),
            issuance: Issuance::CertManager,
            inside: &Report::default(),
            replaced: &[],
            last_key: None,
            placement: &placement,
            leaving: None,
        };
        let status = status(&facts, &json!({}), Timestamp::from_second(1_800_000_000).unwrap());
        let mut all = status["conditions"].as_array().unwrap().iter();
        let found = all.find(|one| one["type"] == "tidegate.dev/Mounts").unwrap();
        let said = ["status", "reason", "message"].map(|field| text(&found[field]));
        assert_eq!(format!("{} {}: {}", said[0], said[1], said[2]), expected);
    }
}

#[test]
fn a_resource_that_goes_says_what_it_waits_for() {
    let resources = root(|resource| resource["metadata"]["deletionTimestamp"] = json!("2026-11-26T00:00:00Z"));
    let status = of(&resources, &pods(2, 2, true), &[], Some("RootShard main goes after Shard eu"));
    assert_eq!(
        (&status["phase"], said(&status)["tidegate.dev/Deletion"].as_str()),
        (&json!("Deleting"), "False Waiting")
    );
    let long = "ü".repeat(MESSAGE_BYTES_MAX);
    let status = of(&resources, &LiveObjects::new(), &[], Some(&long));
    let messages = status["conditions"].as_array().unwrap().iter();
    assert!(messages.clone().all(|one| one["message"].as_str().unwrap().len() <= MESSAGE_BYTES_MAX));
}

#[test]
fn d13_a_kubeconfig_is_not_ready_before_its_secret_is_written() {
    let mut resources = root(|_| ());
    let key = Key::new(NAMESPACE, "admin");
    let kubeconfig = json!({"apiVersion": "operator.kcp.io/v1alpha1", "kind": "Kubeconfig",
        "metadata": {"name": "admin", "namespace": NAMESPACE},
        "spec": {"target": {"rootShardRef": {"name": "main"}}, "username": "admin", "validity": "24h",
            "secretRef": {"name": "admin"}}});
    resources.insert(Kind::Kubeconfig, &key, kubeconfig).unwrap();
    let plan = resources.plan(Kind::Kubeconfig, &key, &Known::default()).unwrap();
    let phase = |outcomes: &[(ObjectName, Outcome)]| {
        let facts = Facts {
            kind: Kind::Kubeconfig,
            key: &key,
            resources: &resources,
            metadata: resources.metadata(Kind::Kubeconfig, &key).unwrap(),
            plan: plan.as_ref(),
            problems: &[],
            outcomes,
            failures: &[],
            live: &LiveObjects::new(),
            issuance: Issuance::CertManager,
            inside: &Report::default(),
            replaced: &[],
            last_key: None,
            placement: &Placement::default(),
            leaving: None,
        };
        let status =
            status(&facts, &resources.status(facts.kind, &key), Timestamp::from_second(1_800_000_000).unwrap());
        (status["phase"].as_str().unwrap().to_owned(), said(&status)["Available"].clone())
    };
    let of = |phase: &str, available: &str| (phase.to_owned(), available.to_owned());
    let secret = |outcome| vec![((ObjectKind::Secret, "admin".to_owned()), outcome)];
    assert_eq!(phase(&[]), of("Provisioning", "False ClientCertificateSecretNotReady"));
    let lacks = decide::Waits { keys: vec!["Secret main-server-ca does not exist".to_owned()], ..Default::default() };
    assert_eq!(phase(&secret(Outcome::Waits(lacks))), of("Provisioning", "False ServerCASecretNotReady"));
    assert_eq!(phase(&secret(Outcome::Well)), of("Ready", "True SecretsReady"));
    // The built-in CA writes a Secret before, with the client certificate.
    let issued = ((ObjectKind::Secret, "kubeconfig-cert-admin".to_owned()), Outcome::Well);
    let both = |outcome| [vec![issued.clone()], secret(outcome)].concat();
    assert_eq!(phase(std::slice::from_ref(&issued)), of("Provisioning", "False ClientCertificateSecretNotReady"));
    let lacks = decide::Waits { keys: vec!["Secret main-server-ca does not exist".to_owned()], ..Default::default() };
    assert_eq!(phase(&both(Outcome::Waits(lacks))), of("Provisioning", "False ServerCASecretNotReady"));
    assert_eq!(phase(&both(Outcome::Well)), of("Ready", "True SecretsReady"));
}

#[test]
fn d14_a_shard_that_ran_falls_back_when_its_pods_go() {
    let mut resources = root(|_| ());
    let key = Key::new(NAMESPACE, "eu");
    let shard = json!({"apiVersion": "operator.kcp.io/v1alpha1", "kind": "Shard",
        "metadata": {"name": "eu", "namespace": NAMESPACE}, "status": {"phase": "Running"},
        "spec": {"rootShard": {"ref": {"name": "main"}}, "etcd": {"endpoints": ["https://etcd:2379"]}}});
    resources.insert(Kind::Shard, &key, shard).unwrap();
    let plan = resources.plan(Kind::Shard, &key, &Known::default()).unwrap();
    let phase = |ready: i32| {
        let object = pods(2, ready, true).into_values().next().expect("a Deployment");
        let live = LiveObjects::from([((ObjectKind::Deployment, "eu-shard-kcp".to_owned()), object)]);
        let facts = Facts {
            kind: Kind::Shard,
            key: &key,
            resources: &resources,
            metadata: resources.metadata(Kind::Shard, &key).unwrap(),
            plan: plan.as_ref(),
            problems: &[],
            outcomes: &[],
            failures: &[],
            live: &live,
            issuance: Issuance::CertManager,
            inside: &Report::default(),
            replaced: &[],
            last_key: None,
            placement: &Placement::default(),
            leaving: None,
        };
        status(&facts, &resources.status(facts.kind, &key), Timestamp::from_second(1_800_000_000).unwrap())["phase"]
            .clone()
    };
    assert_eq!([phase(2), phase(0)], ["Running", "Provisioning"]);
}

/// What a pass records of a key is what the next process reads, and a pass that does not know the key leaves it.
#[test]
fn the_last_key_of_service_accounts_stays_in_the_status() {
    let key = rcgen::KeyPair::generate().expect("a key");
    let pem = rcgen::CertificateParams::default().self_signed(&key).expect("a certificate").pem();
    let certificate = pki::read_first(pem.as_bytes()).expect("a certificate");
    let of = |resources: &Resources, last_key: Option<&Authority>| {
        let key = Key::new(NAMESPACE, "main");
        let plan = resources.plan(Kind::RootShard, &key, &Known::default()).unwrap();
        let facts = Facts {
            kind: Kind::RootShard,
            key: &key,
            resources,
            metadata: resources.metadata(Kind::RootShard, &key).unwrap(),
            plan: plan.as_ref(),
            problems: &[],
            outcomes: &[],
            failures: &[],
            live: &LiveObjects::new(),
            issuance: Issuance::CertManager,
            inside: &Report::default(),
            replaced: &[],
            last_key,
            placement: &Placement::default(),
            leaving: None,
        };
        status(&facts, &resources.status(facts.kind, &key), Timestamp::from_second(1_800_000_000).unwrap())
    };
    let first = of(&root(|_| ()), None);
    assert_eq!(recorded_key(&first), None);
    let recorded = of(&root(|_| ()), Some(&certificate));
    assert_eq!(recorded_key(&recorded), Some(certificate));
    assert_eq!(said(&recorded)["tidegate.dev/Key"], "True Recorded");
    let later = of(&root(|resource| resource["status"] = recorded.clone()), None);
    assert_eq!(later, recorded);
    let broken = json!({"conditions": [{"type": "tidegate.dev/Key", "status": "True", "message": "no certificate",
        "reason": "Recorded", "lastTransitionTime": "2026-11-26T00:00:00Z"}]});
    assert_eq!(recorded_key(&broken), None);
}

#[test]
fn d15_reason_and_message_of_a_condition_follow_while_its_status_stays() {
    let before = of(&root(|_| ()), &LiveObjects::new(), &[], None);
    let resources = root(|resource| resource["status"] = before.clone());
    let after = of(&resources, &pods(2, 1, true), &[], None);
    let available = |status: &Value| {
        let all = status["conditions"].as_array().unwrap().iter();
        let found = all.clone().find(|one| one["type"] == "Available").unwrap();
        (said(status)["Available"].clone(), found["message"].as_str().unwrap().to_owned())
    };
    let expected = |reason: &str, message: &str| (format!("False {reason}"), message.to_owned());
    let missing = "Deployment kcp-system/main-kcp does not exist.";
    assert_eq!(available(&before), expected("DeploymentUnavailable", missing));
    let starts = "Deployment kcp-system/main-kcp is not fully up and running.";
    assert_eq!(available(&after), expected("ReplicasUnavailable", starts));
}

#[test]
fn a_pass_that_failed_is_in_the_status_until_one_ends_by_itself() {
    let before = of(&root(|_| ()), &pods(2, 2, true), &[], None);
    let now = Timestamp::from_second(1_800_000_000).unwrap();
    let status = failed(&before, Some(3), "Panicked", "the pass panicked", now);
    assert_eq!(said(&status)["tidegate.dev/Objects"], "False Panicked");
    assert_eq!((&status["phase"], &said(&status)["Available"][..]), (&"Running".into(), "True ReplicasUp"));
    let resources = root(|resource| resource["status"] = status.clone());
    assert_eq!(said(&of(&resources, &pods(2, 2, true), &[], None))["tidegate.dev/Objects"], "True Applied");
    let first = failed(&Value::Null, None, "Panicked", "the pass panicked", now);
    assert_eq!(said(&first), BTreeMap::from([("tidegate.dev/Objects".to_owned(), "False Panicked".to_owned())]));
}
