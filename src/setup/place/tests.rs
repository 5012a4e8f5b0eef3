use std::collections::BTreeMap;

use super::{
    decide::{
        UNKNOWN, add_places, copies, is_any_asked, is_forgotten, is_lost, is_provided, is_target, labelled, left_out,
        optional_copies, possible_places, reach_in, read_places, split, unforgotten,
    },
    *,
};
use crate::setup::{
    content,
    decide::{Act, Next},
    desired,
    state::{Issuance, KnownContent, Origin, Values},
};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use kube_sim::{Options, Server};
use serde_json::json;
use tidegate_cluster::{ClusterName, Limits, Network};
use tidegate_core::{
    api::{names::annotation, setup::FrontProxy, shared::ObjectMeta},
    landscape::setup::Resources,
    object::Object,
    plan::setup::{Mounted, Problem},
    template::Templates,
};

const NAMESPACE: &str = "kcp-system";

/// The example, with a FrontProxy in another cluster.
fn resources() -> Resources {
    let mut resources = Resources::default();
    let text = include_str!("../../../examples/kcp/landscape.yaml");
    for document in text.split("---\n") {
        let value: serde_json::Value = serde_yaml::from_str(document).expect("YAML");
        let name = value["metadata"]["name"].as_str().expect("a name");
        let key = Key::new(NAMESPACE, name);
        match value["kind"].as_str().expect("a kind") {
            "RootShard" => _ = resources.root_shards.insert(key, Arc::new(serde_json::from_value(value).expect("one"))),
            "Shard" => _ = resources.shards.insert(key, Arc::new(serde_json::from_value(value).expect("one"))),
            "VirtualWorkspace" => {
                _ = resources.virtual_workspaces.insert(key, Arc::new(serde_json::from_value(value).expect("one")));
            }
            "CacheServer" => {
                _ = resources.cache_servers.insert(key, Arc::new(serde_json::from_value(value).expect("one")));
            }
            "FrontProxy" => {
                let mut proxy: FrontProxy = serde_json::from_value(value).expect("one");
                let annotations = [(annotation::CLUSTER.to_owned(), "eu".to_owned())].into_iter().collect();
                proxy.metadata.annotations = Some(annotations);
                _ = resources.front_proxies.insert(key, Arc::new(proxy));
            }
            _ => {}
        }
    }
    resources
}

fn site() -> Site {
    Site { uid: "uid-of-eu".into(), control_plane: "uid-of-kcp".into() }
}

/// What is known before anything is there.
fn nothing() -> Known {
    Known {
        namespace: NAMESPACE.to_owned(),
        mark: setup_mark(Kind::FrontProxy, "public"),
        place: None,
        live: LiveObjects::new(),
        around: None,
        verified: BTreeMap::new(),
        wanted: BTreeSet::new(),
        desired: Vec::new(),
        held: BTreeMap::new(),
        definition: None,
        is_complete: false,
        may_adopt: false,
        issuance: Issuance::CertManager,
        now: ambient::now(),
    }
}

fn plan(kind: Kind, name: &str) -> Plan {
    let key = Key::new(NAMESPACE, name);
    resources().plan(kind, &key, &KnownOfCluster::default()).expect("it exists").expect("a plan")
}

/// What the control plane has: every mounted key, and one more.
fn contents(plans: &[&Plan]) -> BTreeMap<ObjectName, Arc<KnownContent>> {
    let mut all = BTreeMap::new();
    for Mounted { kind, name, keys } in plans.iter().flat_map(|plan| plan.mounted()) {
        let kind = ObjectKind::named(kind).expect("a kind");
        let values: Values =
            keys.iter().map(String::as_str).chain(["more.key"]).map(|key| (key.to_owned(), key.into())).collect();
        all.insert((kind, name), Arc::new(content::known("1", &values)));
    }
    all
}

fn copies_of(plan: &Plan, users: &[&Plan], contents: &BTreeMap<ObjectName, Arc<KnownContent>>) -> Vec<Desired> {
    let users = Users::new(users.iter().map(|&plan| Ok(plan.clone())));
    let (copies, refused) = copies(plan, &users, &site(), &|name| contents.get(name).cloned(), &|_| None);
    assert!(refused.is_empty(), "{refused:?}");
    copies
}

fn keys_of<'a>(copies: &'a [Desired], name: &str) -> &'a [String] {
    let copy = copies.iter().find(|copy| copy.name.1 == name).unwrap_or_else(|| panic!("no copy {name}"));
    let Origin::Copied { keys, .. } = &copy.origin else { panic!("{:?}", copy.origin) };
    keys
}

/// Row 66: the pods and their Services are there; what only certificates need stays.
#[test]
fn r66_another_cluster_has_the_pods_and_the_control_plane_has_the_rest() {
    let plan = plan(Kind::FrontProxy, "public");
    let keys = contents(&[&plan]).into_iter().map(|(name, known)| (name, known.keys.clone())).collect();
    let (all, failures) = desired(&Templates::embedded(), &plan, &keys, Issuance::CertManager);
    assert_eq!(failures, [""; 0]);
    let mut here = Known {
        wanted: all.iter().map(|desired| desired.name.clone()).collect(),
        desired: all.clone(),
        is_complete: true,
        ..nothing()
    };
    let there = split(&mut here);
    let kinds = |all: &[Desired]| all.iter().map(|desired| desired.name.0).collect::<BTreeSet<_>>();
    assert!(kinds(&here.desired).iter().all(|kind| !kind.is_placed()), "{:?}", here.desired);
    assert_eq!(here.wanted.len(), all.len(), "what the control plane has of it stays for now");
    assert_eq!(kinds(&there.desired), BTreeSet::from([ObjectKind::Deployment, ObjectKind::Service]));
    assert_eq!(there.wanted, there.desired.iter().map(|desired| desired.name.clone()).collect());

    // The labels are on the object and not on its pods, and another resource of the name is another one.
    let deployment = there.desired.iter().find(|one| one.name.0 == ObjectKind::Deployment).expect("a Deployment");
    let made = labelled(deployment, &site(), Some("uid-1"));
    assert_eq!(made.object.label(label::CONTROL_PLANE), Some("uid-of-kcp"));
    assert_eq!(made.object.label(label::OWNER), Some("uid-1"));
    assert_eq!(made.object.value()["spec"], deployment.object.value()["spec"]);
    assert_eq!(made.object.annotation(annotation::DIGEST), Some(made.digest.to_string().as_str()));
    assert_ne!(made.digest, labelled(deployment, &site(), Some("uid-2")).digest);
}

/// Row 66: a copy has exactly the keys that all its users mount together, whichever of them writes it.
#[test]
fn r66_a_copy_has_the_keys_of_all_its_users_and_no_others() {
    let (proxy, shard) = (plan(Kind::FrontProxy, "public"), plan(Kind::Shard, "eu"));
    let contents = contents(&[&proxy, &shard]);
    let alone = copies_of(&proxy, &[&proxy], &contents);
    let mounted: BTreeSet<ObjectName> = proxy
        .mounted()
        .into_iter()
        .map(|mounted| (ObjectKind::named(mounted.kind).expect("a kind"), mounted.name))
        .collect();
    assert_eq!(alone.iter().map(|copy| copy.name.clone()).collect::<BTreeSet<_>>(), mounted);
    assert_eq!(keys_of(&alone, "main-public-server"), ["tls.crt", "tls.key"]);
    for copy in alone.iter().filter(|copy| copy.name.1.ends_with("-ca") && copy.name.1 != "login-ca") {
        assert_eq!(keys_of(&alone, &copy.name.1), ["tls.crt"]);
    }
    let copy = alone.iter().find(|copy| copy.name.1 == "main-public-server").expect("its certificate");
    let mut object = copy.object.clone();
    let values = ["tls.crt", "tls.key", "more.key"].map(|key| (key.to_owned(), b"value".to_vec()));
    let keys = keys_of(&alone, "main-public-server");
    content::copy(&mut object, &values.into_iter().collect(), keys, std::iter::empty());
    assert_eq!(object.value()["data"].as_object().expect("data").keys().collect::<Vec<_>>(), ["tls.crt", "tls.key"]);
    assert_eq!(object.label(label::SETUP), Some(COPY));
    assert_eq!(object.label(label::OWNER), None, "it belongs to all who mount it");

    // Both write the same.
    let shared: Vec<&str> = ["main-ca", "main-client-ca"].into_iter().collect();
    let of_proxy = copies_of(&proxy, &[&proxy, &shard], &contents);
    let of_shard = copies_of(&shard, &[&proxy, &shard], &contents);
    let digest = |all: &[Desired], name: &str| all.iter().find(|copy| copy.name.1 == name).map(|copy| copy.digest);
    let common: Vec<&Desired> =
        of_proxy.iter().filter(|copy| of_shard.iter().any(|other| other.name == copy.name)).collect();
    assert!(!common.is_empty(), "they share the certificates of CAs, such as {shared:?}");
    for copy in common {
        assert_eq!(digest(&of_proxy, &copy.name.1), digest(&of_shard, &copy.name.1), "{}", copy.name.1);
    }
}

/// Row 66: what no pod waits for is copied if it exists, but for what a user has created there. The kubelet takes
/// credentials of registries only from Secrets of their type.
#[test]
fn r66_optional_volumes_and_credentials_of_registries_are_copied_if_they_exist() {
    let mut resources = resources();
    let key = Key::new(NAMESPACE, "public");
    let mut proxy = FrontProxy::clone(&resources.front_proxies[&key]);
    proxy.spec.image = serde_json::from_value(json!({"imagePullSecrets": [{"name": "registry"}]})).expect("an image");
    let volumes = json!([
        {"name": "a", "secret": {"secretName": "optional", "optional": true, "items": [{"key": "k", "path": "p"}]}},
        {"name": "b", "projected": {"sources": [{"configMap": {"name": "settings"}}, {"secret": {"name": "missing"}}]}},
    ]);
    proxy.spec.extra_volumes = serde_json::from_value(volumes).expect("volumes");
    resources.front_proxies.insert(key.clone(), Arc::new(proxy));
    let plan = resources.plan(Kind::FrontProxy, &key, &KnownOfCluster::default()).expect("it exists").expect("a plan");
    let users = Users::new([Ok(plan.clone())].into_iter());
    let content = |name: &ObjectName| {
        let keys: &[&str] = match name.1.as_str() {
            "registry" => &[".dockerconfigjson", "more"],
            "optional" => &["k", "more"],
            "settings" => &["one", "two"],
            _ => return None,
        };
        let values: Values = keys.iter().map(|key| ((*key).to_owned(), b"text".to_vec())).collect();
        Some(Arc::new(content::known("1", &values)))
    };
    let live = |name: &ObjectName| {
        let found = serde_json::from_value(json!({"metadata": {"name": name.1}})).expect("an object");
        (name.1 != "missing").then(|| Arc::new(LiveObject::from_metadata(name.0, found)))
    };
    let (copied, refused) = optional_copies(&plan, &users, &site(), &content, &live);
    assert!(refused.is_empty(), "{refused:?}");
    let names: Vec<&str> = copied.iter().map(|copy| copy.name.1.as_str()).collect();
    assert_eq!(names, ["settings", "optional", "registry"]);
    assert_eq!(keys_of(&copied, "settings"), ["one", "two"]);
    assert_eq!(keys_of(&copied, "optional"), ["k"]);
    assert_eq!(keys_of(&copied, "registry"), [".dockerconfigjson"]);
    let types: Vec<&serde_json::Value> = copied.iter().map(|copy| &copy.object.value()["type"]).collect();
    assert_eq!(types, [&json!(null), &json!("Opaque"), &json!("kubernetes.io/dockerconfigjson")]);
    assert!(copied.iter().all(|copy| copy.gates.is_empty()), "nothing waits for them");

    let known = Known { place: Some(site()), desired: copied, ..nothing() };
    let name = (ObjectKind::Secret, "registry".to_owned());
    for (labels, expected) in [(json!({}), true), (json!({label::SETUP: COPY}), false)] {
        let metadata = json!({"name": "registry", "namespace": NAMESPACE, "labels": labels});
        let found = Object::new(json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata})).expect("one");
        let mut there = Observed::default();
        there.found.insert(name.clone(), Some(found));
        assert_eq!(is_provided(&known, &there, &name), expected);
    }
}

/// Row 66: while the definition of one of its users is broken, a copy loses no key. It gets no further one either.
#[test]
fn r66_a_copy_keeps_what_it_has_while_one_of_its_users_has_no_plan() {
    let (proxy, shard) = (plan(Kind::FrontProxy, "public"), plan(Kind::Shard, "eu"));
    let contents = contents(&[&proxy, &shard]);
    let content = |name: &ObjectName| contents.get(name).cloned();
    let problem = || Problem {
        severity: tidegate_core::diagnostic::Severity::Error,
        kind: Kind::Shard,
        key: Key::new(NAMESPACE, "eu"),
        field: "spec",
        message: "it is broken".to_owned(),
        hint: "mend it".to_owned(),
        missing: None,
    };
    let of = |users: Vec<Result<Plan, Problem>>| {
        let (copies, refused) = copies(&proxy, &Users::new(users.into_iter()), &site(), &content, &|_| None);
        assert!(refused.is_empty(), "{refused:?}");
        copies.into_iter().find(|copy| copy.name.1 == "main-public-server").expect("its certificate")
    };
    let (whole, broken) = (of(vec![Ok(proxy.clone())]), of(vec![Ok(proxy.clone()), Err(problem())]));
    assert_ne!(whole.digest, broken.digest, "the copy is compared again once the definition is mended");
    let name = whole.name.clone();
    let bytes = |values: &[(&str, &str)]| -> Values {
        values.iter().map(|(key, value)| ((*key).to_owned(), value.as_bytes().to_vec())).collect()
    };
    let secret = |values: &[(&str, &str)]| {
        let metadata = json!({"name": name.1, "namespace": NAMESPACE,
            "labels": {label::SETUP: COPY, label::CONTROL_PLANE: "uid-of-kcp"}});
        let mut object = Object::new(json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata})).unwrap();
        let keys: Vec<String> = values.iter().map(|(key, _)| (*key).to_owned()).collect();
        content::copy(&mut object, &bytes(values), &keys, std::iter::empty());
        object
    };
    let applied = |desired: &Desired, there: &[(&str, &str)]| {
        let found = secret(there);
        let live = serde_json::from_value(found.value().clone()).expect("an object");
        let live = LiveObject { digest: Some("former".into()), ..LiveObject::from_metadata(ObjectKind::Secret, live) };
        let known = Known {
            mark: COPY.to_owned(),
            place: Some(site()),
            live: LiveObjects::from([(name.clone(), Arc::new(live))]),
            wanted: BTreeSet::from([name.clone()]),
            desired: vec![desired.clone()],
            is_complete: false,
            ..nothing()
        };
        let mut observed = Observed::default();
        observed.keys.insert(name.clone(), contents[&name].keys.clone());
        let values = [("tls.crt", "new"), ("tls.key", "new"), ("more.key", "hidden")];
        observed.values.insert(name.clone(), bytes(&values));
        observed.found.insert(name.clone(), Some(found));
        let next = crate::setup::decide::next(&known, &observed);
        let Next::Do(Act::Apply(_, object, _, _)) = next else { panic!("{next:?}") };
        let values = content::values(&object).into_iter();
        values.map(|(key, value)| format!("{key}={}", String::from_utf8_lossy(&value))).collect::<Vec<_>>().join(" ")
    };
    let there = [("tls.crt", "old"), ("tls.key", "old"), ("more.key", "old"), ("junk", "old")];
    assert_eq!(applied(&whole, &there), "tls.crt=new tls.key=new");
    assert_eq!(applied(&broken, &there), "more.key=old tls.crt=new tls.key=new", "a key of the Secret stays");
    assert_eq!(applied(&broken, &there[..2]), "tls.crt=new tls.key=new", "and none comes");
}

/// The plan of a FrontProxy with these volumes, and with the Secret `registry` for its images.
fn plan_of(name: &str, volumes: serde_json::Value, is_pulled: bool) -> Plan {
    let mut resources = resources();
    let key = Key::new(NAMESPACE, name);
    let mut proxy = FrontProxy::clone(&resources.front_proxies[&Key::new(NAMESPACE, "public")]);
    if is_pulled {
        proxy.spec.image =
            serde_json::from_value(json!({"imagePullSecrets": [{"name": "registry"}]})).expect("an image");
    }
    proxy.spec.extra_volumes = serde_json::from_value(volumes).expect("volumes");
    resources.front_proxies.insert(key.clone(), Arc::new(proxy));
    resources.plan(Kind::FrontProxy, &key, &KnownOfCluster::default()).expect("it exists").expect("a plan")
}

/// The copy of the Secret `registry` for a plan.
fn registry_copy(plan: &Plan, users: &Users, values: &Values) -> Desired {
    let content = |name: &ObjectName| (name.1 == "registry").then(|| Arc::new(content::known("1", values)));
    let live = |name: &ObjectName| {
        let found = serde_json::from_value(json!({"metadata": {"name": name.1}})).expect("an object");
        Some(Arc::new(LiveObject::from_metadata(name.0, found)))
    };
    let (required, refused) = copies(plan, users, &site(), &content, &live);
    assert!(refused.is_empty(), "{refused:?}");
    let (optional, refused) = optional_copies(plan, users, &site(), &content, &live);
    assert!(refused.is_empty(), "{refused:?}");
    required.into_iter().chain(optional).find(|copy| copy.name.1 == "registry").expect("a copy")
}

/// Row 66: pods whose Secret is optional wait for none of its keys, also if the pods of another resource do.
#[test]
fn r66_pods_wait_for_no_key_that_is_optional_for_them() {
    let whole = json!([{"name": "a", "secret": {"secretName": "registry"}}]);
    let (mounts, pulls) = (plan_of("mounts", whole, false), plan_of("pulls", json!([]), true));
    let values = Values::from([(".dockerconfigjson".to_owned(), b"{}".to_vec())]);
    for all in [[&mounts, &pulls], [&pulls, &mounts]] {
        let users = Users::new(all.into_iter().map(|plan| Ok(plan.clone())));
        let (required, optional) = (registry_copy(&mounts, &users, &values), registry_copy(&pulls, &users, &values));
        assert_eq!((required.gates.len(), optional.gates.len()), (1, 0));
        assert_eq!(required.digest, optional.digest, "both write the same");
    }
}

/// Row 66: no apply changes the type of a Secret. A copy keeps it where it serves. Otherwise it is deleted, by its UID
/// and version, and created again in the same pass.
#[test]
fn r66_a_copy_that_needs_another_type_is_created_again() {
    const JSON: &str = "kubernetes.io/dockerconfigjson";
    const CONFIG: &str = "kubernetes.io/dockercfg";
    let volume =
        |items: serde_json::Value| json!([{"name": "a", "secret": {"secretName": "registry", "items": items}}]);
    let mounts = plan_of("mounts", volume(serde_json::Value::Null), false);
    let mounts_more = plan_of("mounts", volume(json!([{"key": "more", "path": "more"}])), false);
    let pulls = plan_of("pulls", json!([]), true);
    let problem = || Problem {
        severity: tidegate_core::diagnostic::Severity::Error,
        kind: Kind::Shard,
        key: Key::new(NAMESPACE, "eu"),
        field: "spec",
        message: "it is broken".to_owned(),
        hint: "mend it".to_owned(),
        missing: None,
    };
    let values = |keys: &str| -> Values { keys.split(' ').map(|key| (key.to_owned(), b"{}".to_vec())).collect() };
    let metadata = |labels: serde_json::Value| {
        let (uid, version) = ("1-2", "7");
        json!({"name": "registry", "namespace": NAMESPACE, "labels": labels, "uid": uid, "resourceVersion": version})
    };
    let own = || json!({label::SETUP: COPY, label::CONTROL_PLANE: "uid-of-kcp"});
    let acts = |desired: &Desired, source: &Values, labels: serde_json::Value, (type_, keys): (&str, &str)| {
        let secret = json!({"apiVersion": "v1", "kind": "Secret", "type": type_, "metadata": metadata(labels)});
        let mut found = Object::new(secret).expect("an object");
        let there: Vec<String> = keys.split(' ').map(str::to_owned).collect();
        content::copy(&mut found, &values(keys), &there, std::iter::empty());
        let live = serde_json::from_value(json!({"metadata": found.value()["metadata"]})).expect("an object");
        let live = LiveObject { digest: Some("former".into()), ..LiveObject::from_metadata(ObjectKind::Secret, live) };
        let known = Known {
            mark: COPY.to_owned(),
            place: Some(site()),
            live: LiveObjects::from([(desired.name.clone(), Arc::new(live))]),
            wanted: BTreeSet::from([desired.name.clone()]),
            desired: vec![desired.clone()],
            may_adopt: true,
            ..nothing()
        };
        let mut observed = Observed::default();
        observed.keys.insert(desired.name.clone(), content::known("1", source).keys);
        observed.values.insert(desired.name.clone(), source.clone());
        let mut acts = Vec::new();
        loop {
            match crate::setup::decide::next(&known, &observed) {
                Next::Do(Act::Read(name)) => _ = observed.found.insert(name, Some(found.clone())),
                Next::Do(Act::Delete(name, live)) => {
                    acts.push(format!("delete {} {}", live.uid, live.resource_version));
                    observed.deleted.insert(name);
                }
                Next::Do(Act::Apply(name, object, _, _)) => {
                    let keys: Vec<String> = content::values(&object).into_keys().collect();
                    let type_ = object.value()["type"].as_str().unwrap_or_default();
                    acts.push(format!("apply {type_} {}", keys.join(" ")));
                    observed.applied.insert(name, Ok(()));
                }
                Next::Do(act @ Act::Learn(_)) => panic!("{act:?}"),
                Next::End(outcomes) => {
                    let refused = outcomes.iter().filter(|(_, outcome)| matches!(outcome, Outcome::Refused(_)));
                    acts.extend(refused.map(|_| "refused".to_owned()));
                    return acts.join(", ");
                }
            }
        }
    };
    let (json_key, both) = (".dockerconfigjson", ".dockercfg .dockerconfigjson");
    let (again_json, again_opaque) =
        ("delete 1-2 7, apply kubernetes.io/dockerconfigjson .dockerconfigjson", "delete 1-2 7, apply Opaque more");
    let with_more = ".dockerconfigjson more";
    for (what, users, is_broken, source, live, expected) in [
        ("it mounts, then another one pulls", vec![&mounts, &pulls], false, json_key, ("Opaque", json_key), again_json),
        ("the same, written by the other", vec![&pulls, &mounts], false, json_key, ("Opaque", json_key), again_json),
        (
            "it pulled, and only another one mounts now",
            vec![&mounts],
            false,
            json_key,
            (JSON, json_key),
            "apply kubernetes.io/dockerconfigjson .dockerconfigjson",
        ),
        (
            "the newer key comes later",
            vec![&pulls],
            false,
            both,
            (CONFIG, ".dockercfg"),
            "delete 1-2 7, apply kubernetes.io/dockerconfigjson .dockercfg .dockerconfigjson",
        ),
        ("the key of the type goes", vec![&mounts], false, "more", (JSON, json_key), again_opaque),
        (
            "the one that pulls is broken",
            vec![&mounts],
            true,
            json_key,
            (JSON, json_key),
            "apply kubernetes.io/dockerconfigjson .dockerconfigjson",
        ),
        (
            "the same, and a key stays for it",
            vec![&mounts_more],
            true,
            with_more,
            (JSON, with_more),
            "apply kubernetes.io/dockerconfigjson .dockerconfigjson more",
        ),
        ("another one is broken", vec![&pulls], true, json_key, ("Opaque", json_key), again_json),
        (
            "the same, and a key stays for it, which must not be lost",
            vec![&pulls],
            true,
            with_more,
            ("Opaque", with_more),
            "apply Opaque .dockerconfigjson more",
        ),
        ("nothing changes", vec![&mounts], false, "more", ("Opaque", "old"), "apply Opaque more"),
    ] {
        let plans = users.iter().map(|&plan| Ok(plan.clone()));
        let all = Users::new(plans.chain(is_broken.then(|| Err(problem()))));
        let source = values(source);
        let copy = registry_copy(users[0], &all, &source);
        assert_eq!(acts(&copy, &source, own(), live), expected, "{what}");
    }
    // One that a user has made, and that Tidegate may take over, is not deleted.
    let (all, source) = (Users::new([Ok(pulls.clone())].into_iter()), values(json_key));
    let copy = registry_copy(&pulls, &all, &source);
    assert_eq!(acts(&copy, &source, json!({}), ("Opaque", json_key)), "refused");
}

fn authority(name: &str) -> (rcgen::CertificateParams, rcgen::KeyPair, String) {
    let key = rcgen::KeyPair::generate().expect("a key");
    let mut params = rcgen::CertificateParams::new(Vec::new()).expect("parameters");
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    params.distinguished_name.push(rcgen::DnType::CommonName, name);
    let certificate = params.self_signed(&key).expect("a certificate").pem();
    (params, key, certificate)
}

/// Row 66: of a volume with all keys of a Secret, the private key of a CA stays; a volume that names it is refused.
#[test]
fn r66_the_private_key_of_a_ca_never_leaves_the_control_plane() {
    let (params, ca_key, ca) = authority("company");
    let issuer = rcgen::Issuer::from_params(&params, &ca_key);
    let leaf_key = rcgen::KeyPair::generate().expect("a key");
    let leaf = rcgen::CertificateParams::new(vec!["a.example.com".to_owned()]).expect("parameters");
    let leaf = leaf.signed_by(&leaf_key, &issuer).expect("a certificate").pem();
    let (ca_key, leaf_key) = (ca_key.serialize_pem(), leaf_key.serialize_pem());
    let store = STANDARD.encode([0xfe_u8, 0xed, 0xfe, 0xed, 0, 0, 0, 2]);
    let of = |values: &[(&str, &str)]| {
        let values: Values = values.iter().map(|(key, value)| ((*key).to_owned(), value.as_bytes().to_vec())).collect();
        Arc::new(content::known("1", &values))
    };
    let plan = |items: serde_json::Value| {
        let volume = json!({"name": "more", "secret": {"secretName": "given", "items": items}});
        let mut resources = resources();
        let key = Key::new(NAMESPACE, "public");
        let mut proxy = FrontProxy::clone(&resources.front_proxies[&key]);
        proxy.spec.extra_volumes = vec![serde_json::from_value(volume).expect("a volume")];
        resources.front_proxies.insert(key.clone(), Arc::new(proxy));
        resources.plan(Kind::FrontProxy, &key, &KnownOfCluster::default()).expect("it exists").expect("a plan")
    };
    let whole = plan(serde_json::Value::Null);
    let copied_for = |plan: &Plan, all: &[&Plan], known: &Arc<KnownContent>, owner: Option<&str>| {
        let users = Users::new(all.iter().map(|&plan| Ok(plan.clone())));
        let content = |name: &ObjectName| (name.1 == "given").then(|| Arc::clone(known));
        let live = |_: &ObjectName| {
            let metadata =
                json!({"metadata": {"name": "given", "labels": owner.map(|owner| json!({label::SETUP: owner}))}});
            let found = serde_json::from_value(metadata).expect("an object");
            Some(Arc::new(LiveObject::from_metadata(ObjectKind::Secret, found)))
        };
        let (copies, refused) = copies(plan, &users, &site(), &content, &live);
        let refused: Vec<String> = refused.into_iter().map(|(_, outcome)| format!("{outcome:?}")).collect();
        (refused.is_empty().then(|| keys_of(&copies, "given").join(" ")), refused.join(""))
    };
    let copied = |plan: &Plan, known: &Arc<KnownContent>, owner: Option<&str>| copied_for(plan, &[plan], known, owner);
    let cases = [
        (of(&[("tls.crt", &ca), ("tls.key", &ca_key), ("ca.crt", &ca)]), "ca.crt tls.crt"),
        (of(&[("ca.crt", &ca), ("company.key", &ca_key)]), "ca.crt"),
        (of(&[("both.pem", &format!("{ca}{ca_key}")), ("note", "text")]), "note"),
        (of(&[("tls.crt", &leaf), ("tls.key", &leaf_key), ("ca.crt", &ca)]), "ca.crt tls.crt tls.key"),
        (of(&[("token", "secret")]), "token"),
        // Nothing says whose the key in a key store is.
        (of(&[("store", &store), ("note", "text")]), "note"),
    ];
    for (known, expected) in &cases {
        assert_eq!(copied(&whole, known, None).0.as_deref(), Some(*expected));
    }
    // What a user can name is said, and nothing else.
    let left_out = |plan: &Plan, all: &[&Plan], known: &Arc<KnownContent>| {
        let users = Users::new(all.iter().map(|&plan| Ok(plan.clone())));
        let content = |name: &ObjectName| (name.1 == "given").then(|| Arc::clone(known));
        left_out(plan, &users, &content, &|_| None)
    };
    let said = "Secret given, key `store`: the copy does not have it, because it may be a private key that these pods \
                must not have; name it under `items` of the volume if they need it";
    for (index, (known, _)) in cases.iter().enumerate() {
        let expected: &[&str] = if index == 5 { &[said] } else { &[] };
        assert_eq!(left_out(&whole, &[&whole], known), expected, "{index}");
    }
    let store_named = plan(json!([{"key": "store", "path": "store"}]));
    assert_eq!(left_out(&whole, &[&whole, &store_named], &cases[5].0), [""; 0], "another one names it");
    assert_eq!(left_out(&store_named, &[&store_named], &cases[5].0), [""; 0]);
    let named = plan(json!([{"key": "tls.key", "path": "tls.key"}]));
    // Only who names it is refused. Others get what they mount, without it.
    let (of_whole, refused) = copied_for(&whole, &[&whole, &named], &cases[0].0, None);
    assert_eq!((of_whole.as_deref(), refused.as_str()), (Some("ca.crt tls.crt"), ""));
    let certificate = plan(json!([{"key": "tls.crt", "path": "tls.crt"}]));
    let (of_certificate, refused) = copied_for(&certificate, &[&certificate, &named], &cases[0].0, None);
    assert_eq!((of_certificate.as_deref(), refused.as_str()), (Some("tls.crt"), ""));
    assert!(copied_for(&named, &[&certificate, &named], &cases[0].0, None).1.contains("Secret given, key `tls.key`"));
    let (keys, refused) = copied(&named, &cases[0].0, None);
    assert_eq!(keys, None);
    assert!(refused.contains("the private key of a CA does not leave the control plane"), "{refused}");
    assert_eq!(copied(&named, &cases[3].0, None).0.as_deref(), Some("tls.key"));
    let users = "users:\n- user:\n    client-certificate-data: YQ==\n    client-key-data: YQ==\n";
    let kubeconfig = of(&[("kubeconfig", users), ("note", "text")]);
    assert_eq!(copied(&whole, &kubeconfig, Some("kubeconfig.admin")).0.as_deref(), Some("note"));
    assert_eq!(copied(&whole, &kubeconfig, None).0.as_deref(), Some("kubeconfig note"));
    // Nor does that of another resource with such a volume.
    assert_eq!(copied(&whole, &cases[3].0, Some("shard.eu")).0.as_deref(), Some("ca.crt tls.crt"));
    assert_eq!(copied(&whole, &cases[3].0, Some("frontproxy.public")).0.as_deref(), Some("ca.crt tls.crt tls.key"));
}

/// Row 66: a status that Tidegate did not write does not say that no cluster has anything.
#[test]
fn r66_a_lost_record_is_noticed_and_then_all_clusters_count() {
    let status = |conditions: &[(&str, &str, &str)]| {
        let conditions: Vec<serde_json::Value> = conditions
            .iter()
            .map(|(type_, status, message)| {
                json!({"type": type_, "status": status, "reason": "Any", "message": message,
                    "lastTransitionTime": "2026-01-01T00:00:00Z"})
            })
            .collect();
        json!({ "conditions": conditions })
    };
    let (valid, placed) =
        (("tidegate.dev/Valid", "True", "it is"), ("tidegate.dev/Cluster", "True", "its pods are there"));
    let places = |status, message| ("tidegate.dev/Places", status, message);
    for (what, status, expected) in [
        ("gone", json!({}), true),
        ("gone but for what others write", status(&[("Available", "True", "it is")]), true),
        ("written, without clusters", status(&[valid]), false),
        ("written, and its cluster is missing", status(&[valid, ("tidegate.dev/Cluster", "False", "why")]), false),
        ("the record alone was removed", status(&[valid, placed]), true),
        ("written", status(&[valid, placed, places("True", "eu (1-2), us (3-4)")]), false),
        ("written before the first write there", status(&[places("True", "eu (1-2)")]), false),
        ("edited", status(&[valid, placed, places("True", "eu (1-2), us")]), true),
        ("emptied", status(&[valid, placed, places("True", "")]), true),
        ("denied", status(&[valid, placed, places("False", "eu (1-2)")]), true),
    ] {
        assert_eq!(is_lost(&status), expected, "{what}");
    }

    let place = |name: &str, uid: &str| Place { name: name.to_owned(), uid: uid.to_owned() };
    let unlisted = || OtherCluster {
        identity: crate::stores::Identity::Asked,
        outage: None,
        unlisted: BTreeSet::new(),
        denied: BTreeMap::new(),
        objects: Arc::default(),
    };
    let all = [("eu".to_owned(), unlisted()), ("us".to_owned(), unlisted())];
    let (eu, us) = (place("eu", UNKNOWN), place("us", UNKNOWN));
    assert_eq!(possible_places(&all, None), BTreeSet::from([eu.clone(), us.clone()]));
    assert_eq!(possible_places(&all, Some("eu")), BTreeSet::from([eu.clone(), us]));
    assert_eq!(possible_places(&[], Some("eu")), BTreeSet::from([eu.clone()]));
    let waits = unforgotten(&eu, "it is silent");
    assert!(
        waits.starts_with("the status did not say which clusters have objects of it, and cluster eu may"),
        "{waits}"
    );
    assert!(waits.ends_with("set the annotation `tidegate.dev/forget-cluster: eu`"), "{waits}");

    // A cluster that was renamed is known once, by the name that is known first.
    let mut known = BTreeSet::from([place("de", "1-2")]);
    add_places(&mut known, [place("eu", "1-2"), place("us", "3-4"), eu.clone(), eu.clone()]);
    assert_eq!(known, BTreeSet::from([place("de", "1-2"), eu, place("us", "3-4")]));
}

/// A cluster that has answered and listed its objects.
fn other_cluster(name: &str, uid: &str) -> OtherCluster {
    let server = Server::new(&Options::default());
    let network = Network::in_process(move |_| Some(server.client()));
    let config = kube::Config::new("https://other.example.org".parse().expect("a URL"));
    let name = ClusterName::Placed(Key::new(NAMESPACE, name));
    let cluster = Arc::new(Cluster::on(&network, name, &config, Limits::default()).expect("a cluster"));
    OtherCluster {
        identity: crate::stores::Identity::Known { cluster, uid: uid.into(), control_plane: "uid-of-kcp".into() },
        outage: None,
        unlisted: BTreeSet::new(),
        denied: BTreeMap::new(),
        objects: Arc::default(),
    }
}

/// Row 66: a resource that is being deleted waits for clusters that may answer, and for no others.
#[tokio::test]
async fn r66_a_deletion_waits_for_each_cluster_that_may_answer() {
    let known = || other_cluster("eu", "1-2");
    let asked = || OtherCluster { identity: crate::stores::Identity::Asked, ..known() };
    let unlisted = || OtherCluster { unlisted: BTreeSet::from([ObjectKind::Secret]), ..known() };
    let refused = || OtherCluster { identity: crate::stores::Identity::Refused("why".to_owned()), ..known() };
    let silent = |found: OtherCluster| OtherCluster { outage: Some("it is silent".to_owned()), ..found };
    for (what, all, expected) in [
        ("none", Vec::new(), false),
        ("it has listed its objects", vec![known()], false),
        ("one of them has not answered", vec![known(), asked()], true),
        ("one of them has not listed its objects", vec![unlisted(), known()], true),
        ("it cannot be used", vec![refused()], false),
        ("it does not answer", vec![silent(asked())], false),
        ("it does not list its objects", vec![silent(unlisted())], false),
    ] {
        let all: Vec<(String, OtherCluster)> = all.into_iter().map(|found| ("eu".to_owned(), found)).collect();
        assert_eq!(is_any_asked(all), expected, "{what}");
    }
}

/// Row 66: what is deleted in a former cluster is not in the one where the pods run, whatever its names are.
#[tokio::test]
async fn r66_a_former_cluster_that_is_the_present_one_loses_nothing() {
    let place = |name: &str, uid: &str| Place { name: name.to_owned(), uid: uid.to_owned() };
    let all =
        || [("de", "1-2"), ("eu", "1-2"), ("us", "3-4")].map(|(name, uid)| (name.to_owned(), other_cluster(name, uid)));
    for (former, target, expected) in [
        // Its name led there before, and had not answered when it was recorded.
        (place("de", UNKNOWN), Some("1-2"), "stays"),
        (place("eu", UNKNOWN), Some("1-2"), "stays"),
        (place("us", UNKNOWN), Some("1-2"), "goes"),
        (place("us", "3-4"), Some("1-2"), "goes"),
        (place("eu", "3-4"), Some("1-2"), "goes"),
        (place("de", UNKNOWN), Some("3-4"), "goes"),
        // The pods are in the control plane.
        (place("de", UNKNOWN), None, "goes"),
        (place("asia", UNKNOWN), Some("1-2"), "unknown"),
    ] {
        let standing = reach_in(&former, all().into());
        let found = match &standing {
            Standing::Usable(_) if is_target(&standing, target) => "stays",
            Standing::Usable(_) => "goes",
            Standing::Asked | Standing::Unusable(_) => "unknown",
        };
        assert_eq!(found, expected, "{former} {target:?}");
    }
}

#[test]
fn r66_a_status_names_clusters_until_they_are_given_up() {
    let place = |name: &str, uid: &str| Place { name: name.to_owned(), uid: uid.to_owned() };
    let places = BTreeSet::from([place("eu", "1-2"), place("us", "3-4")]);
    let status = crate::setup::status::with_places(&json!({"phase": "Running"}), &places, Some(1), ambient::now());
    assert_eq!(status["phase"], "Running");
    assert_eq!(read_places(&status), places);
    assert_eq!(read_places(&json!({})), BTreeSet::new());
    let metadata = |annotation: &str, value: &str, is_leaving: bool| {
        let deletion = is_leaving.then_some("2026-01-01T00:00:00Z");
        let metadata = json!({"name": "a", "annotations": {annotation: value}, "deletionTimestamp": deletion});
        serde_json::from_value::<ObjectMeta>(metadata).expect("metadata")
    };
    let eu = place("eu", "1-2");
    for (annotation, value, is_leaving, expected) in [
        (annotation::FORGET_CLUSTER, "eu", false, true),
        (annotation::FORGET_CLUSTER, "1-2", true, true),
        (annotation::FORGET_CLUSTER, "us", true, false),
        (annotation::FORGET_CLUSTER, "us, eu", true, true),
        (annotation::FORGET_CLUSTER, "3-4,1-2", false, true),
        (annotation::FORGET_CLUSTER, "", true, false),
        (annotation::FORGET_CLUSTER, "europe", true, false),
        // It is about the logical clusters of a Shard.
        (annotation::FORCE_REMOVAL, "true", true, false),
        (annotation::FORCE_REMOVAL, "true", false, false),
    ] {
        assert_eq!(is_forgotten(&metadata(annotation, value, is_leaving), &eu), expected, "{annotation} {value}");
    }
    assert_eq!(
        unforgotten(&eu, "it is silent"),
        "objects stay in cluster eu (1-2): it is silent; if it is gone for good, set the annotation \
         `tidegate.dev/forget-cluster: 1-2`"
    );
}
