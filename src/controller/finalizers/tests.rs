use kube::Config;
use serde_json::{Value, json};

use super::*;
use kube_sim::{Options, Server};
use tidegate_cluster::{ClusterName, Limits, Network, OnConflict};
use tidegate_core::{name::Key, object::Gvk};

const OURS: &str = "example.org/ours";
const THEIRS: &str = "example.org/theirs";

/// A control plane with one object that has Tidegate's finalizer.
struct World {
    kcp: Cluster,
    kind: Kind,
}

// === impl World ===

impl World {
    async fn new() -> World {
        let server = Server::new(&Options::default());
        let network = Network::in_process(move |_| Some(server.client()));
        let config = Config::new("https://kcp.example.org".parse().unwrap());
        let kcp = Cluster::on(&network, ClusterName::Kcp, &config, Limits::default()).unwrap();
        let world = World { kcp, kind: Kind::built_in(&Gvk::new("", "v1", "ConfigMap")).unwrap() };
        world.create().await;
        world
    }

    async fn create(&self) {
        let body = json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": "a", "namespace": "default", "finalizers": [OURS]},
        });
        let id = self.kind.id(&key());
        self.kcp.apply(&Cause::default(), &self.kind, &id, body.to_string().into(), OnConflict::Force).await.unwrap();
    }

    async fn live(&self) -> Option<Value> {
        self.kcp.get(&self.kind, &key()).await.unwrap().map(|object| object.value().clone())
    }

    async fn known(&self) -> ObjectMeta {
        serde_json::from_value(self.live().await.unwrap()["metadata"].clone()).unwrap()
    }

    async fn patch(&self, metadata: Value) {
        let body = json!({ "metadata": metadata }).to_string();
        self.kcp.merge_patch(&Cause::default(), &self.kind, &self.kind.id(&key()), None, body.into()).await.unwrap();
    }

    async fn release(&self, known: &ObjectMeta) -> Vec<String> {
        release(&self.kcp, &Cause::default(), &self.kind, known, &[OURS]).await.unwrap()
    }
}

fn key() -> Key {
    Key::new("default", "a")
}

#[tokio::test]
async fn a_finalizer_that_came_meanwhile_stays() {
    let world = World::new().await;
    let known = world.known().await;
    world.patch(json!({"finalizers": [OURS, THEIRS]})).await;
    assert_eq!(world.release(&known).await, [THEIRS]);
    assert_eq!(world.live().await.unwrap()["metadata"]["finalizers"], json!([THEIRS]));
}

#[tokio::test]
async fn without_a_read_what_others_changed_meanwhile_is_an_error() {
    let world = World::new().await;
    let known = world.known().await;
    world.patch(json!({"finalizers": [OURS, THEIRS]})).await;
    let release =
        async |known: &ObjectMeta| release_known(&world.kcp, &Cause::default(), &world.kind, known, &[OURS]).await;
    assert!(matches!(release(&known).await, Err(Error::Changed { .. })));
    release(&world.known().await).await.unwrap();
    assert_eq!(world.live().await.unwrap()["metadata"]["finalizers"], json!([THEIRS]));
}

#[tokio::test]
async fn one_whose_version_is_not_known_is_read() {
    let world = World::new().await;
    let known = ObjectMeta { resource_version: None, finalizers: None, ..world.known().await };
    assert!(world.release(&known).await.is_empty());
    assert!(world.live().await.unwrap()["metadata"]["finalizers"].is_null());
}

#[tokio::test]
async fn one_that_is_gone_has_none_and_a_later_one_of_its_name_is_left_alone() {
    let world = World::new().await;
    let known = world.known().await;
    world.patch(json!({"finalizers": []})).await;
    let uid = known.uid.clone().unwrap_or_default();
    let id = world.kind.id(&key());
    let propagation = tidegate_cluster::Propagation::Background;
    world.kcp.delete_if(&Cause::default(), &world.kind, &id, &uid, None, propagation).await.unwrap();
    assert!(world.release(&known).await.is_empty());
    world.create().await;
    assert!(world.release(&known).await.is_empty());
    assert_eq!(world.live().await.unwrap()["metadata"]["finalizers"], json!([OURS]));
}
