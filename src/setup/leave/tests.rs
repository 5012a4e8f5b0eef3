use super::*;
use serde_json::{Value, json};

const NAMESPACE: &str = "kcp-system";

fn key(name: &str) -> Key {
    Key::new(NAMESPACE, name)
}

fn resources(leaving: &[&str], annotations: &Value) -> Resources {
    let issuer = json!({"issuerRef": {"name": "selfsigned"}});
    let etcd = json!({"endpoints": ["https://etcd:2379"]});
    let mut resources = Resources::default();
    for (kind, name, spec) in [
        (
            Kind::RootShard,
            "main",
            json!({"external": {"hostname": "kcp.example.com", "port": 443},
            "certificates": issuer, "cache": {}, "etcd": etcd}),
        ),
        (Kind::Shard, "eu", json!({"rootShard": {"ref": {"name": "main"}}, "etcd": etcd})),
    ] {
        let mut metadata = json!({"name": name, "namespace": NAMESPACE, "annotations": annotations});
        if leaving.contains(&name) {
            metadata["deletionTimestamp"] = json!("2026-11-26T00:00:00Z");
        }
        let resource = json!({"apiVersion": "operator.kcp.io/v1alpha1", "kind": kind.as_str(), "metadata": metadata,
            "spec": spec});
        resources.insert(kind, &key(name), resource).unwrap();
    }
    resources
}

/// Row 15: the reverse order of creation.
#[test]
fn a_root_shard_goes_after_its_shards() {
    let resources = resources(&["main", "eu"], &json!({}));
    let found = waits(&resources, Kind::RootShard, &key("main"), Definition::Stands);
    assert_eq!(found.as_deref(), Some("RootShard main goes after Shard eu: delete them, or change what they name"));
    assert_eq!(waits(&resources, Kind::Shard, &key("eu"), Definition::Stands), None, "it goes with its RootShard");
}

/// Row 40: a sentence that says what to do.
#[test]
fn r40_a_shard_that_may_hold_workspaces_says_what_to_do() {
    let found = holds_workspaces(&key("eu"), "it holds root:a");
    assert!(found.starts_with("Shard eu may hold workspaces: it holds root:a;"), "{found}");
    assert!(found.ends_with("-n kcp-system eu tidegate.dev/force-removal=true`"), "{found}");
}

#[test]
fn nothing_goes_because_its_definition_goes() {
    let resources = resources(&["main", "eu"], &json!({}));
    let found = waits(&resources, Kind::Shard, &key("eu"), Definition::Leaves).expect("it stays");
    assert!(
        found.contains("kubectl annotate crd shards.operator.kcp.io tidegate.dev/confirm-deletion=true"),
        "{found}"
    );
}

/// Row 41: those of kcp-operator are honoured and removed.
#[test]
fn finalizers_of_kcp_operator_hold_a_resource_as_well() {
    let with = |finalizers: &[&str]| ObjectMeta {
        finalizers: Some(finalizers.iter().map(|&name| name.to_owned()).collect()),
        ..ObjectMeta::default()
    };
    assert!(is_held(&with(&["operator.kcp.io/cleanup-shard"])));
    assert!(is_held(&with(&["example.org/theirs", "tidegate.dev/setup"])));
    assert!(!is_held(&with(&["example.org/theirs"])));
}
