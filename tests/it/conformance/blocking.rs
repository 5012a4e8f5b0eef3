//! E19: whatever holds the removal of a module, all of the module stays until then.

use serde_json::{Value, json};
use tidegate_testbed::Extent;

use super::land::{self, DEFAULT, Kind, Synced, kyma, module, name_of};
use crate::{harness, stage::Stage};

/// A module, and the custom resources that users have of its kind.
struct Variant {
    module: &'static str,
    policy: &'static str,
    scope: &'static str,
    /// Namespaces of the custom resources of users. Without any, the default custom resource has a finalizer.
    users: &'static [&'static str],
}

const IGNORE: &str = "Ignore";
const CREATE: &str = "CreateAndDelete";
const INSTALLED: &str = "kyma-system";

/// Upstream's seven.
const VARIANTS: [Variant; 7] = [
    Variant { module: "ignored", policy: IGNORE, scope: "Namespaced", users: &[INSTALLED, INSTALLED] },
    Variant { module: "created", policy: CREATE, scope: "Namespaced", users: &[INSTALLED, INSTALLED] },
    Variant { module: "held", policy: CREATE, scope: "Namespaced", users: &[] },
    Variant { module: "ignored-elsewhere", policy: IGNORE, scope: "Namespaced", users: &[INSTALLED, "default"] },
    Variant { module: "created-elsewhere", policy: CREATE, scope: "Namespaced", users: &[INSTALLED, "default"] },
    Variant { module: "ignored-everywhere", policy: IGNORE, scope: "Cluster", users: &["", ""] },
    Variant { module: "created-everywhere", policy: CREATE, scope: "Cluster", users: &["", ""] },
];

impl Variant {
    /// Namespace of the default custom resource.
    fn namespace(&self) -> &'static str {
        if self.scope == "Cluster" { "" } else { INSTALLED }
    }

    /// Names and namespaces of the custom resources of users.
    fn users(&self) -> impl Iterator<Item = (String, &'static str)> {
        self.users.iter().enumerate().map(|(index, namespace)| (format!("users-{index}"), *namespace))
    }
}

/// E19: custom resources of users, in any namespace and of either scope, hold the removal of a module until the last
/// of them is gone, and so does a finalizer of the default custom resource. With `Ignore` as with `CreateAndDelete`.
#[tokio::test(flavor = "multi_thread")]
async fn e19_in_each_of_seven_ways_a_module_stays_until_its_last_custom_resource_is_gone() {
    let files: Vec<_> = VARIANTS.iter().flat_map(|one| land::with_kind(one.module, one.scope)).collect();
    let stage = Stage::real(1, Extent::Controllers, &land::borrowed(&files), &[]).await;
    let skr = &stage.skrs[0];
    let kinds = VARIANTS.map(|one| land::kind_of(one.module));
    let kind_of = |index: usize| -> Kind<'_> { ("example.org/v1", &kinds[index]) };
    let modules: Vec<Value> =
        VARIANTS.iter().map(|one| json!({"name": one.module, "customResourcePolicy": one.policy})).collect();
    let mut selected = kyma("one", &[]);
    selected["spec"]["modules"] = json!(modules);
    harness::apply(&stage.kcp, &selected).await;
    stage.start();
    let installed = stage.kyma_in("one", "Ready").await;
    assert_eq!(installed["status"]["modules"].as_array().map(Vec::len), Some(7), "{installed}");

    for (index, one) in VARIANTS.iter().enumerate() {
        let default = land::find(skr, kind_of(index), one.namespace(), DEFAULT).await;
        assert_eq!(default.is_some(), one.policy == CREATE, "the default custom resource of {}", one.module);
        if one.users.is_empty() {
            let hold = json!({"metadata": {"finalizers": ["example.org/hold"]}});
            land::merge(skr, kind_of(index), one.namespace(), DEFAULT, hold).await;
        }
        for (name, namespace) in one.users() {
            let metadata = json!({"name": name, "namespace": namespace});
            let (version, kind) = kind_of(index);
            harness::apply(skr, &json!({"apiVersion": version, "kind": kind, "metadata": metadata})).await;
        }
    }

    // All are disabled, and nothing goes.
    harness::apply(&stage.kcp, &kyma("one", &[])).await;
    let mut inventories: Vec<Vec<Synced>> = Vec::new();
    for one in &VARIANTS {
        inventories.push(deleting(&stage, one.module).await);
    }
    stage
        .until("the Kyma waits for them", &stage.kcp, "Kyma", "kcp-system", "one", |kyma| {
            kyma["status"]["state"] == "Processing"
                && VARIANTS.iter().all(|one| module(kyma, one.module)["state"] == "Deleting")
        })
        .await;
    all_there(skr, &inventories).await;

    // One of two is not the last.
    for (index, one) in VARIANTS.iter().enumerate() {
        if let Some((name, namespace)) = one.users().next() {
            land::delete(skr, kind_of(index), namespace, &name).await;
        }
    }
    land::checked(&stage, "1").await;
    for one in &VARIANTS {
        deleting(&stage, one.module).await;
    }
    all_there(skr, &inventories).await;

    for (index, one) in VARIANTS.iter().enumerate() {
        match one.users().nth(1) {
            Some((name, namespace)) => land::delete(skr, kind_of(index), namespace, &name).await,
            None => {
                let release = json!({"metadata": {"finalizers": null}});
                land::merge(skr, kind_of(index), one.namespace(), DEFAULT, release).await;
            }
        }
    }
    for (inventory, one) in inventories.iter().zip(&VARIANTS) {
        land::until_gone(skr, inventory).await;
        stage.until_gone(&stage.kcp, "Manifest", "kcp-system", &name_of("one", one.module)).await;
    }
    let left = stage.kyma_in("one", "Ready").await;
    assert!(left["status"]["modules"].as_array().is_none_or(Vec::is_empty), "{left}");
}

/// Waits until the removal of a module waits, and returns what its Manifest lists: two ConfigMaps, a ClusterRole and a
/// CustomResourceDefinition.
async fn deleting(stage: &Stage, module: &str) -> Vec<Synced> {
    let found = land::manifest(stage, module, &format!("the removal of {module} waits"), |manifest| {
        manifest["status"]["state"] == "Deleting"
            && manifest["status"]["lastOperation"]["operation"].as_str().is_some_and(|text| text.starts_with("waiting"))
    })
    .await;
    let inventory = land::synced(&found);
    assert_eq!(inventory.len(), 4, "{inventory:?}");
    inventory
}

async fn all_there(skr: &kube::Client, inventories: &[Vec<Synced>]) {
    for object in inventories.iter().flatten() {
        let live = object.live(skr).await.unwrap_or_else(|| panic!("{object:?} stays"));
        assert_eq!(live["metadata"]["deletionTimestamp"], Value::Null, "{object:?}");
    }
}
