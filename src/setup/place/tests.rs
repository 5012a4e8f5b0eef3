use tidegate_core::{
    api::setup::{FrontProxy, Kind},
    landscape::setup::Resources,
    plan::setup::Known as KnownOfCluster,
    template::Library,
};

use super::*;
use crate::setup::{desired, state::Issuance};

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

fn names(all: &[Desired]) -> Vec<String> {
    all.iter().map(|desired| format!("{} {}", desired.name.0.as_str(), desired.name.1)).collect()
}

/// Row 66: the pods, their Services and what they mount are there; what only certificates need stays.
#[test]
fn r66_another_cluster_has_the_pods_and_copies_of_exactly_the_mounted_keys() {
    let resources = resources();
    let key = Key::new(NAMESPACE, "public");
    assert_eq!(resources.cluster_of(Kind::FrontProxy, &key), Some("eu"));
    let placed: Vec<_> = resources.placed_in(NAMESPACE, "eu").collect();
    assert_eq!(placed, [(Kind::FrontProxy, &key)]);
    let plan = resources.plan(Kind::FrontProxy, &key, &KnownOfCluster::default()).expect("it exists").expect("a plan");
    let mut keys = BTreeMap::new();
    for Mounted { kind, name, keys: wanted } in plan.mounted() {
        let kind = ObjectKind::named(kind).expect("a kind");
        let values = wanted.iter().map(String::as_str).chain(["more.key"]);
        keys.insert((kind, name), values.map(|key| (key.to_owned(), Digest::of_bytes(key.as_bytes()))).collect());
    }
    let library = Library::default();
    let (all, failures) = desired(library.base(), &plan, &keys, Issuance::CertManager);
    assert_eq!(failures, [""; 0]);
    let mut here = Known {
        namespace: NAMESPACE.to_owned(),
        mark: setup_mark(Kind::FrontProxy, "public"),
        cluster: None,
        live: LiveObjects::new(),
        around: None,
        verified: BTreeMap::new(),
        wanted: all.iter().map(|desired| desired.name.clone()).collect(),
        desired: all.clone(),
        definition: None,
        is_complete: true,
        may_adopt: false,
        issuance: Issuance::CertManager,
        now: ambient::now(),
    };
    let there = split(&mut here, &plan, "eu", &keys);
    assert_eq!(there.scope(), "eu/kcp-system");
    assert!(!names(&here.desired).iter().any(|name| name.starts_with("Deployment") || name.starts_with("Service ")));
    assert_eq!(here.wanted.len(), all.len(), "what the control plane has of it stays for now");
    let found = names(&there.desired);
    assert!(found.contains(&"Deployment public-front-proxy".to_owned()), "{found:?}");
    assert!(found.contains(&"Service public-front-proxy".to_owned()), "{found:?}");
    assert!(!found.iter().any(|name| name.starts_with("Certificate") || name.starts_with("Issuer")), "{found:?}");
    let copies: BTreeSet<&ObjectName> =
        there.desired.iter().map(|desired| &desired.name).filter(|name| !name.0.is_placed()).collect();
    let mounted: BTreeSet<&ObjectName> = keys.keys().collect();
    assert_eq!(copies, mounted);
    assert_eq!(there.wanted, there.desired.iter().map(|desired| desired.name.clone()).collect());

    // A copy has the mounted keys, and no others.
    let server = there.desired.iter().find(|desired| desired.name.1 == "public-server").expect("its certificate");
    let Origin::Copied(wanted) = &server.origin else { panic!("{:?}", server.origin) };
    let mut object = server.object.clone();
    let values = ["tls.crt", "tls.key", "more.key"].map(|key| (key.to_owned(), b"value".to_vec()));
    content::copy(&mut object, &values.into_iter().collect(), wanted);
    let data = object.value()["data"].as_object().expect("data");
    assert_eq!(data.keys().collect::<Vec<_>>(), ["tls.crt", "tls.key"]);
    assert_eq!(object.label(label::SETUP), Some("frontproxy.public"));
    let authorities = there.desired.iter().filter(|desired| desired.name.1.ends_with("-ca"));
    for authority in authorities {
        let Origin::Copied(wanted) = &authority.origin else { panic!("{:?}", authority.origin) };
        assert!(!wanted.is_empty() && !wanted.contains(&"tls.key".to_owned()), "{:?}", authority.name);
    }
}

#[test]
fn r66_a_cluster_that_cannot_be_used_is_one_sentence() {
    let of = |connection: Result<Arc<Cluster>, String>| {
        Some(OtherCluster { connection, unlisted: BTreeSet::new(), objects: LiveObjects::new() })
    };
    let said = |found: Option<OtherCluster>| unusable("eu", NAMESPACE, found.as_ref()).expect("a sentence");
    assert_eq!(
        said(None),
        "no Secret in namespace kcp-system has the label `tidegate.dev/cluster-name: eu`: create one with a \
         kubeconfig in the key `config`"
    );
    assert_eq!(said(of(Err("it is broken".to_owned()))), "it is broken");
}
