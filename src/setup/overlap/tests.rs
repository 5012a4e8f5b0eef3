use serde_json::{Value, json};
use tidegate_core::landscape::setup::Resources;

use super::*;
use crate::setup::content;

const NAMESPACE: &str = "kcp-system";

/// A root shard and a front proxy. From kcp 0.32 on, a front proxy mounts the CA for request headers as well.
fn resources() -> Resources {
    let root = json!({"external": {"hostname": "kcp.example.com", "port": 443}, "cache": {},
        "certificates": {"issuerRef": {"name": "selfsigned"}}, "etcd": {"endpoints": ["https://etcd:2379"]}});
    let proxy = json!({"rootShard": {"ref": {"name": "main"}}, "image": {"tag": "v0.31.0"}});
    let mut resources = Resources::default();
    let all: [(Kind, &str, Value); 2] = [(Kind::RootShard, "main", root), (Kind::FrontProxy, "public", proxy)];
    for (kind, name, spec) in all {
        let resource = json!({"apiVersion": "operator.kcp.io/v1alpha1", "kind": kind.as_str(),
            "metadata": {"namespace": NAMESPACE, "name": name}, "spec": spec});
        resources.insert(kind, &Key::new(NAMESPACE, name), resource).expect("a valid resource");
    }
    resources
}

fn anchor(resources: &Resources, secret: &str) -> Anchor {
    resources.anchors(NAMESPACE).into_iter().find(|anchor| anchor.secret == secret).expect("an anchor")
}

fn strings(all: &[&str]) -> Vec<String> {
    all.iter().map(|one| (*one).to_owned()).collect()
}

#[test]
fn a_front_proxy_mounts_only_a_certificate_of_the_ca_for_request_headers() {
    let resources = resources();
    let (plans, problems) = resources.plans(&KnownOfCluster::default());
    assert_eq!(problems, []);
    let only = |ca: &str, deployment: &str, secrets: &[String]| {
        let anchor = anchor(&resources, ca);
        let dependents = anchor.dependents(&resources, &plans);
        mounts_only(&anchor, &dependents, &dependents.deployments[deployment], secrets)
    };
    let (ca, left) = ("main-requestheader-client-ca", strings(&["main-public-requestheader"]));
    assert!(only(ca, "public-front-proxy", &left));
    assert!(!only(ca, "public-front-proxy", &[]), "it is issued anew already");
    // A shard mounts the CA itself, and a front proxy the root CA.
    let signed =
        |ca: &str| anchor(&resources, ca).dependents(&resources, &plans).signed.into_keys().collect::<Vec<_>>();
    assert!(!only(ca, "main-kcp", &signed(ca)));
    assert!(!only("main-ca", "public-front-proxy", &signed("main-ca")));
}

/// The annotation of a trust Secret says since when a new key is in place. One of a former version does not.
#[test]
fn a_trust_secret_says_since_when_a_new_key_is_in_place() {
    let key = rcgen::KeyPair::generate().expect("a key");
    let pem = rcgen::CertificateParams::default().self_signed(&key).expect("a certificate").pem();
    let since: Timestamp = "2026-11-26T01:02:03.5Z".parse().expect("a time");
    let live = |phase: Phase, since: Option<Timestamp>| {
        let certificates = vec![pki::read_first(pem.as_bytes()).expect("a certificate")];
        let overlap = Overlap { phase, certificates, left: Vec::new(), since, until: None };
        let trusted = trusted_of(&overlap, false);
        let values = BTreeMap::from([(CERTIFICATE.to_owned(), trusted.certificates.into_bytes())]);
        let found = live_of(&KnownContent { note: Some(trusted.note), ..content::known("1", &values) });
        assert!(found.is_noted, "{found:?}");
        (found.is_everywhere, found.since)
    };
    assert_eq!(live(Phase::Spreading, Some(since)), (false, Some(seconds(since))));
    assert_eq!(live(Phase::Reissuing, Some(since)), (true, Some(seconds(since))));
    assert_eq!(live(Phase::Reissuing, None), (true, None));
    assert_eq!(live(Phase::Ending, None), (false, None));
}

/// Pods that run with the present key alone show that the former one has ended, whatever the status of the shard says.
#[test]
fn a_former_key_that_was_recorded_does_not_come_back_after_its_end() {
    let resources = resources();
    let (plans, _) = resources.plans(&KnownOfCluster::default());
    let dependents = anchor(&resources, "main-service-account").dependents(&resources, &plans);
    let gates = &dependents.deployments["main-kcp"];
    let mut keys: BTreeMap<ObjectName, Keys> = BTreeMap::new();
    for gate in gates {
        let plan::Gate::Key(mounted) = gate else { continue };
        let kind = ObjectKind::named(mounted.kind).expect("a kind");
        let all = keys.entry((kind, mounted.name.clone())).or_default();
        all.extend(mounted.keys.iter().map(|key| (key.clone(), Digest::of_bytes(key.as_bytes()))));
    }
    let wanted = decide::digest_of_keys(gates, &keys).expect("all is there").to_string();
    let lacking = BTreeMap::new();
    for (what, name, mounted, keys, expected) in [
        ("its pods have the present key", "main-kcp", Some(wanted.as_str()), &keys, true),
        ("they have another one, or something else differs", "main-kcp", Some("other"), &keys, false),
        ("they are not ready", "main-kcp", None, &keys, false),
        ("something is missing", "main-kcp", Some(wanted.as_str()), &lacking, false),
        ("only pods of others have it", "public-front-proxy", Some(wanted.as_str()), &keys, false),
    ] {
        let metadata = serde_json::from_value(json!({"metadata": {"name": name}})).expect("an object");
        let found = LiveObject::from_metadata(ObjectKind::Deployment, metadata);
        let found = LiveObject { mounted: mounted.map(Arc::from), ..found };
        let around = LiveObjects::from([((ObjectKind::Deployment, name.to_owned()), Arc::new(found))]);
        assert_eq!(runs_without_trust(["main-kcp"].into_iter(), &dependents, &around, keys), expected, "{what}");
    }
}

/// Who may write the status of a shard must not make it accept the tokens of another one.
#[test]
fn a_former_key_that_was_recorded_is_one_of_the_same_shard() {
    let certificate = |name: &str| {
        let key = rcgen::KeyPair::generate().expect("a key");
        let mut params = rcgen::CertificateParams::default();
        params.distinguished_name.push(rcgen::DnType::CommonName, name);
        let pem = params.self_signed(&key).expect("a certificate").pem();
        pki::read_first(pem.as_bytes()).expect("a certificate")
    };
    let present = certificate("eu-service-account");
    assert!(has_same_name(&certificate("eu-service-account"), &present));
    assert!(!has_same_name(&certificate("us-service-account"), &present));
    let broken = Authority { der: b"text".as_slice().into(), ..present.clone() };
    assert!(!has_same_name(&broken, &present));
    assert!(!has_same_name(&present, &broken));
}

#[test]
fn a_condition_says_what_is_true_of_a_ca_that_is_missing_and_what_ends_a_hold() {
    let anchor = anchor(&resources(), "main-requestheader-client-ca");
    let said = |phase: Phase, is_missing: bool, all: &[&str], held: &[&str]| {
        let overlap = Overlap { phase, certificates: Vec::new(), left: strings(&["a", "b"]), since: None, until: None };
        let behind = Behind { all: strings(all), held: strings(held) };
        let decided = Decided { overlap, behind, is_missing, is_blocked: false };
        sentence(&anchor, &decided, Issuance::Builtin).expect("a sentence")
    };
    let what = "the CA in Secret main-requestheader-client-ca is being replaced: ";
    let trust = "main-requestheader-client-ca-trust";
    assert_eq!(
        said(Phase::Reissuing, false, &[], &[]),
        format!("{what}all pods trust both, and these Secrets are issued anew: a, b")
    );
    assert_eq!(
        said(Phase::Reissuing, true, &[], &[]),
        format!(
            "{what}all pods trust the former one, from Secret {trust}; Secret main-requestheader-client-ca has no \
             certificate yet"
        )
    );
    let spreading = format!("{what}pods get Secret {trust}, so that they trust the former one as well");
    assert_eq!(
        said(Phase::Spreading, false, &["Deployment one"], &[]),
        format!("{spreading}; not yet: Deployment one")
    );
    assert_eq!(
        said(Phase::Spreading, false, &["Deployment one", "Deployment two"], &["Deployment two"]),
        format!(
            "{spreading}; not yet: Deployment one, Deployment two; to restart what kcp-operator left, run `tidegate \
             adopt kcp --now --yes`: Deployment two"
        )
    );
}
