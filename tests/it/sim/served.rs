//! The simulator behind TLS, and its clients: kube's, our own, and one without credentials.

use std::sync::{Arc, Mutex};

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api, Client,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
    runtime::{WatchStreamExt as _, watcher},
};
use kube_sim::{Kubeconfig, Options, Server, User};
use serde_json::{Value, json};
use tidegate_cluster::{
    self as cluster, Cause, Cluster, ClusterName, Deleted, Kind, Limits, OnConflict, Propagation, follower,
};
use tidegate_core::{
    name::Key,
    object::{Gvk, ObjectId},
};

use super::both::Ask;
use crate::harness::{self, Followed, SOON, eventually};

/// A server behind TLS.
async fn served() -> kube_sim::Served {
    tidegate_process::tls::install();
    Server::new(&Options::default()).listen("skr").await.unwrap()
}

/// A ConfigMap with one value.
fn map(name: &str, value: &str) -> ConfigMap {
    serde_json::from_value(json!({"metadata": {"name": name}, "data": {"x": value}})).unwrap()
}

/// What kube's client does with objects, all of it.
async fn works(client: Client) {
    let api: Api<ConfigMap> = Api::default_namespaced(client.clone());
    assert_eq!(client.apiserver_version().await.unwrap().minor, "36");
    let names = client.list_api_groups().await.unwrap().groups.into_iter().map(|group| group.name);
    assert!(names.into_iter().any(|name| name == "apps"));
    let created = api.create(&PostParams::default(), &map("one", "1")).await.unwrap();
    let mut events = watcher(api.clone(), watcher::Config::default()).applied_objects().boxed();
    assert_eq!(events.next().await.unwrap().unwrap().data, created.data);
    let apply = PatchParams::apply("test").force();
    let patch = json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"x": "2"}});
    api.patch("one", &apply, &Patch::Apply(&patch)).await.unwrap();
    assert_eq!(events.next().await.unwrap().unwrap().data.unwrap()["x"], "2");
    let mut replaced = api.get("one").await.unwrap();
    replaced.data = None;
    api.replace("one", &PostParams::default(), &replaced).await.unwrap();
    assert_eq!(events.next().await.unwrap().unwrap().data, None);
    for index in 0..5 {
        api.create(&PostParams::default(), &map(&format!("more-{index}"), "1")).await.unwrap();
    }
    let page = api.list(&ListParams::default().limit(4)).await.unwrap();
    assert_eq!((page.items.len(), page.metadata.remaining_item_count), (4, Some(2)));
    let rest = ListParams::default().limit(4).continue_token(&page.metadata.continue_.unwrap());
    assert_eq!(api.list(&rest).await.unwrap().items.len(), 2);
    assert_eq!(api.list_metadata(&ListParams::default()).await.unwrap().items.len(), 6);
    api.delete("one", &DeleteParams::default()).await.unwrap();
    assert!(api.get_opt("one").await.unwrap().is_none());
    let discovered = kube::discovery::Discovery::new(client).run_aggregated().await.unwrap();
    assert!(discovered.has_group("rbac.authorization.k8s.io"));
}

#[tokio::test(flavor = "multi_thread")]
async fn kubes_client_works_in_process() {
    works(Server::new(&Options::default()).client()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn kubes_client_works_over_tls_with_certificate_and_token() {
    let served = served().await;
    works(served.kubeconfig().client().unwrap()).await;
    let token = served.kubeconfig_with_token("secret", User::admin());
    let api: Api<ConfigMap> = Api::default_namespaced(token.client().unwrap());
    assert!(api.get_opt("more-1").await.unwrap().is_some());
}

/// Our own client, as the daemon makes it from an access Secret.
fn ours(kubeconfig: &Kubeconfig) -> Arc<Cluster> {
    let access = cluster::access::parse(kubeconfig.text().as_bytes()).unwrap();
    let name = ClusterName::Runtime(Key::new("kcp-system", "runtime"));
    Arc::new(Cluster::new(name, &access.config().unwrap(), Limits::default()).unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn our_own_client_works() {
    let served = served().await;
    let cluster = ours(served.kubeconfig());
    let kind = Kind::new(Gvk::new("", "v1", "ConfigMap"), "configmaps", true);
    let id = ObjectId { group: "".into(), kind: "ConfigMap".into(), namespace: "default".into(), name: "one".into() };
    let key = Key::new("default", "one");
    let names: Arc<Mutex<Vec<String>>> = Arc::default();
    let seen = Arc::clone(&names);
    let store = Followed::new();
    let known = store.clone();
    let task = tokio::spawn(follower::follow::<ConfigMap, String>(
        Arc::clone(&cluster),
        follower::Options::all(kind.clone()),
        |map: ConfigMap| map.data.and_then(|data| data.get("x").cloned()),
        move |change| {
            known.take(&change);
            if let follower::Change::Set { new, .. } = change {
                seen.lock().unwrap().push(new.to_string());
            }
        },
    ));
    store.synced().await;
    let body = |value: &str| {
        let metadata = json!({"name": "one", "namespace": "default"});
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"x": value}}).to_string().into()
    };
    let cause = Cause::default();
    assert!(cluster.version().await.unwrap().starts_with("v1.36"));
    let (first, created) = cluster.apply_telling(&cause, &kind, &id, body("1"), OnConflict::Report).await.unwrap();
    assert!(created);
    let again = cluster.apply(&cause, &kind, &id, body("1"), OnConflict::Report).await.unwrap();
    assert_eq!(first.resource_version, again.resource_version, "an apply that changes nothing writes nothing");
    cluster.merge_patch(&cause, &kind, &id, None, json!({"data": {"x": "2"}}).to_string().into()).await.unwrap();
    let problem = cluster.apply(&cause, &kind, &id, body("3"), OnConflict::Report).await;
    assert_eq!(problem.unwrap_err().reason(), "Conflict");
    let forced = cluster.apply(&cause, &kind, &id, body("3"), OnConflict::Force).await.unwrap();
    assert_eq!(cluster.list_metadata(&kind, None, None).await.unwrap().len(), 1);
    let deleted = cluster.delete(&cause, &kind, &first, Propagation::Background).await.unwrap();
    assert_eq!(deleted, Deleted::Changed);
    let deleted = cluster.delete(&cause, &kind, &forced, Propagation::Background).await.unwrap();
    assert_eq!(deleted, Deleted::Gone);
    assert!(cluster.get_metadata(&kind, &key).await.unwrap().is_none());
    assert_eq!(served.server().requests()["list"], 2);
    eventually("the watch tells of all values", SOON, async || {
        let names = names.lock().unwrap().clone();
        if names == ["1", "2", "3"] && store.all().is_empty() { Ok(()) } else { Err(format!("{names:?}")) }
    })
    .await;
    // History is bounded: a watcher that is told so begins again, and misses nothing.
    served.server().compact();
    cluster.apply(&cause, &kind, &id, body("4"), OnConflict::Report).await.unwrap();
    eventually("the watch goes on", SOON, async || {
        if store.get(&key).is_some_and(|value| *value == "4") { Ok(()) } else { Err(format!("{:?}", store.all())) }
    })
    .await;
    task.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn our_custom_resources_are_served() {
    let served = served().await;
    let client = served.kubeconfig().client().unwrap();
    harness::install_own_crds(&client).await;
    let cluster = ours(served.kubeconfig());
    let gvk = Gvk::new("operator.kyma-project.io", "v1beta2", "Kyma");
    let kind = cluster.kind(&gvk).await.unwrap().expect("Kymas are served");
    assert_eq!((&*kind.plural, kind.namespaced), ("kymas", true));
    let kyma = json!({
        "apiVersion": "operator.kyma-project.io/v1beta2", "kind": "Kyma",
        "metadata": {"name": "one", "namespace": "default"}, "spec": {"channel": "regular"},
    });
    harness::apply(&client, &kyma).await;
    let mut wrong = kyma;
    wrong["spec"]["channel"] = json!("NO");
    let problem = harness::try_apply(&client, &wrong).await.unwrap_err();
    assert!(problem.to_string().contains("spec.channel in body should match"), "{problem}");
}

#[tokio::test(flavor = "multi_thread")]
async fn strangers_are_refused_as_the_server_refuses_them() {
    let served = served().await;
    let real = harness::api_server().await;
    let anonymous = |url: String| {
        let mut config = kube::Config::new(url.parse().unwrap());
        config.accept_invalid_certs = true;
        Client::try_from(config).unwrap()
    };
    let with_token = |kubeconfig: Kubeconfig| kubeconfig.client().unwrap();
    let bad = kube_sim::Credentials::Token("bad".to_owned());
    let sides = [
        (anonymous(real.url()), anonymous(served.kubeconfig().server.clone())),
        (
            with_token(real.kubeconfig_with(bad.clone())),
            with_token(Kubeconfig { credentials: bad, ..served.kubeconfig().clone() }),
        ),
    ];
    for (real, simulated) in sides {
        for ask in [
            Ask::get("/api/v1/namespaces/default/configmaps/a"),
            Ask::get("/api/v1/configmaps"),
            Ask::get("/api/v1/namespaces"),
            Ask::get("/apis"),
            Ask::merge("/apis/apps/v1/namespaces/x/deployments/a/status", &json!({})),
            Ask::get("/api/v1/configmaps?watch=1"),
        ] {
            let (expected, found) = (ask.send(&real, "", &[]).await, ask.send(&simulated, "", &[]).await);
            assert_eq!(found.body, expected.body, "{ask:?}");
        }
    }
    let version = Ask::get("/version").send(&anonymous(served.kubeconfig().server.clone()), "", &[]).await;
    assert_eq!(version.body["gitVersion"], "v1.36.3");
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_are_counted_by_who_asked_for_what() {
    let served = served().await;
    let other = served.kubeconfig_of("other", Some("system:masters")).unwrap().client().unwrap();
    let api: Api<ConfigMap> = Api::default_namespaced(other);
    api.create(&PostParams::default(), &map("one", "1")).await.unwrap();
    api.create(&PostParams::default(), &map("one", "1")).await.unwrap_err();
    let written = served.server().journal().last_write().expect("a write");
    let tried = PatchParams { dry_run: true, ..PatchParams::default() };
    for _ in 0..2 {
        api.patch("one", &tried, &Patch::Merge(&json!({"data": {"x": "2"}}))).await.unwrap();
        api.patch_status("one", &PatchParams::default(), &Patch::Merge(&json!({}))).await.unwrap_err();
    }
    let theirs = served.server().journal().only(|alike| alike.user == "other");
    let found: Vec<_> =
        theirs.tally().0.into_iter().map(|((_, verb, of, code), count)| (verb, of, code, count)).collect();
    let row = |verb: &str, code: u16, count: usize| (verb.to_owned(), "configmaps".to_owned(), code, count);
    // Paths that are no resource's are not counted.
    assert_eq!(found, [row("create", 201, 1), row("create", 409, 1), row("dry-run", 200, 2)]);
    assert_eq!(theirs.last_write(), Some(written), "a dry run writes nothing");
    assert!(theirs.first() < Some(written));
    assert!(served.server().journal().only(|alike| alike.user == "admin").0.is_empty());
    served.server().count_anew();
    assert_eq!(served.server().journal().first(), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_frozen_server_answers_once_it_thaws() {
    let served = served().await;
    let (known, new) = (served.kubeconfig().client().unwrap(), served.kubeconfig().client().unwrap());
    let maps = |client: &Client| -> Api<ConfigMap> { Api::default_namespaced(client.clone()) };
    assert!(maps(&known).get_opt("one").await.unwrap().is_none());
    served.freeze();
    // On a connection that is open, and on a new one.
    let asks = [known, new].map(|client| tokio::spawn(async move { maps(&client).get_opt("one").await }));
    served
        .server()
        .client()
        .send(http::Request::get("/version").body(kube::client::Body::empty()).unwrap())
        .await
        .unwrap();
    assert!(asks.iter().all(|ask| !ask.is_finished()));
    assert_eq!(served.server().requests()["get"], 1);
    served.thaw();
    for ask in asks {
        assert!(tokio::time::timeout(SOON, ask).await.expect("an answer").unwrap().unwrap().is_none());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn servers_do_not_know_each_other() {
    let (one, other) = (served().await, served().await);
    let api: Api<ConfigMap> = Api::default_namespaced(one.kubeconfig().client().unwrap());
    api.create(&PostParams::default(), &map("one", "1")).await.unwrap();
    let elsewhere: Api<ConfigMap> = Api::default_namespaced(other.kubeconfig().client().unwrap());
    assert!(elsewhere.get_opt("one").await.unwrap().is_none());
    // A certificate of one is nothing to the other.
    let mixed = Kubeconfig { credentials: one.kubeconfig().credentials.clone(), ..other.kubeconfig().clone() };
    let stranger: Api<ConfigMap> = Api::default_namespaced(mixed.client().unwrap());
    assert!(stranger.get_opt("one").await.is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn equal_seeds_give_equal_answers() {
    let began = "2026-01-01T00:00:00Z".parse().unwrap();
    let options = Options { seed: 7, began, ..Options::default() };
    let answer = async || {
        let client = Server::new(&options).client();
        let generated = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"generateName": "made-"}});
        let mut body = Ask::post("/api/v1/namespaces/default/configmaps", &generated).send(&client, "", &[]).await.body;
        body["metadata"]["creationTimestamp"] = Value::Null;
        body["metadata"]["managedFields"] = Value::Null;
        body
    };
    assert_eq!(answer().await, answer().await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_user_is_told_who_he_is() {
    let served = served().await;
    let real = harness::skr().await;
    for (kubeconfig, side) in [
        (served.kubeconfig_of("a-user", Some("a-group")).unwrap(), "simulated"),
        (real.kubeconfig_of("a-user", Some("a-group")).unwrap(), "real"),
    ] {
        let access = cluster::access::parse(kubeconfig.text().as_bytes()).unwrap();
        let cluster = Cluster::new(ClusterName::Kcp, &access.config().unwrap(), Limits::default()).unwrap();
        for _ in 0..2 {
            assert_eq!(cluster.user().await.unwrap().as_deref(), Some("a-user"), "{side}");
        }
        assert_eq!(cluster.requests().total(), 1, "{side}: he is asked once");
    }
}
