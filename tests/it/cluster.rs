//! The cluster adapter: what it sends, what it makes of the answers, and what it never does. Against real API servers;
//! one that stops or hangs is simulated.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::Bytes;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::core::PartialObjectMeta;
use kube_sim::Kubeconfig;
use serde_json::{Value, json};
use tidegate_cluster::{
    Cause, Cluster, ClusterName, Deleted, DryRun, Effect, Error, Kind, Leadership, Limits, Metadata, OnConflict,
    Outcome, Pool, Propagation, Pruned, Target, Task, Unreachable, Verb, access, follower, lease,
};
use tidegate_core::{
    api::names,
    changes::{Desired, Prune, Verdict},
    inventory::Inventory,
    name::Key,
    object::{Gvk, Object, ObjectId},
};
use tidegate_testbed::ControlPlane;

use crate::{
    harness::{self, Followed, SOON, eventually, holds},
    stage::Server,
};

// --- words ---

fn connect(kubeconfig: &Kubeconfig, limits: Limits) -> Cluster {
    let access = access::parse(kubeconfig.text().as_bytes()).expect("the kubeconfig is accepted");
    Cluster::new(ClusterName::Kcp, &access.config().unwrap(), limits).unwrap()
}

fn cluster(server: &ControlPlane) -> Arc<Cluster> {
    Arc::new(connect(&server.kubeconfig(), Limits::default()))
}

/// A cluster and a namespace of this test alone.
async fn place(prefix: &str) -> (Arc<Cluster>, String) {
    let server = harness::skr().await;
    let namespace = harness::namespace(&server.client().unwrap(), prefix).await;
    (cluster(server), namespace)
}

fn kind(api_version: &str, kind: &str) -> Kind {
    Kind::built_in(&Gvk::from_api_version(api_version, kind)).expect("a built-in kind")
}

fn config_map(namespace: &str, name: &str, value: &str) -> Object {
    object(json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": namespace, "labels": {names::label::MANAGED_BY: "kyma"}},
        "data": {"key": value},
    }))
}

fn object(value: Value) -> Object {
    Object::new(value).unwrap()
}

fn bytes(object: &Object) -> Bytes {
    object.value().to_string().into()
}

fn task(object: &Object) -> Task {
    Task::forced(object.gvk(), object.id(), bytes(object))
}

async fn apply(cluster: &Cluster, object: &Object) -> Result<Metadata, Error> {
    let kind = cluster.kind(&object.gvk()).await?.expect("a kind that is served");
    cluster.apply(&Cause::trigger("git"), &kind, &object.id(), bytes(object), OnConflict::Force).await
}

fn marked(metadata: &Metadata) -> bool {
    metadata.label(names::label::MANAGED_BY) == Some("kyma")
}

/// A definition in a group of this test alone, and a custom resource of it.
fn definition(group: &str) -> (Object, Object) {
    let definition = object(json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("boats.{group}"), "labels": {names::label::MANAGED_BY: "kyma"}},
        "spec": {
            "group": group, "scope": "Namespaced",
            "names": {"kind": "Boat", "plural": "boats", "singular": "boat", "listKind": "BoatList"},
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                    "spec": {"type": "object", "properties": {"sails": {"type": "integer", "maximum": 4}}},
                }}},
            }],
        },
    }));
    let boat = object(json!({
        "apiVersion": format!("{group}/v1"), "kind": "Boat",
        "metadata": {"name": "boat", "namespace": "default", "labels": {names::label::MANAGED_BY: "kyma"}},
        "spec": {"sails": 2},
    }));
    (definition, boat)
}

fn effects(outcomes: &[Outcome]) -> Vec<String> {
    let word = |outcome: &Outcome| match &outcome.effect {
        Effect::Applied { changed, .. } => format!("{} applied {changed:?}", outcome.id),
        Effect::Failed(error) => format!("{} failed {}", outcome.id, error.reason()),
        Effect::Skipped { needs } => format!("{} skipped for {needs}", outcome.id),
    };
    outcomes.iter().map(word).collect()
}

// --- apply ---

#[tokio::test]
async fn an_apply_that_changes_nothing_keeps_the_resource_version() {
    let (cluster, namespace) = place("idempotent").await;
    let object = config_map(&namespace, "a", "1");
    let first = apply(&cluster, &object).await.unwrap();
    let second = apply(&cluster, &object).await.unwrap();
    assert_eq!(first.resource_version, second.resource_version);
    assert_eq!(first.uid, second.uid);
    assert_eq!(second.managers, ["tidegate"]);
    let third = apply(&cluster, &config_map(&namespace, "a", "2")).await.unwrap();
    assert_ne!(second.resource_version, third.resource_version);
    assert_eq!(cluster.requests().count(Verb::Apply), 3);
    assert_eq!(cluster.requests().total(), 3, "nothing but the applies was sent");
}

#[tokio::test]
async fn a_conflict_names_field_and_manager_and_writes_nothing() {
    let (cluster, namespace) = place("conflict").await;
    let foreign = config_map(&namespace, "a", "theirs");
    harness::apply(&harness::skr().await.client().unwrap(), foreign.value()).await;
    let ours = config_map(&namespace, "a", "ours");
    let kind = kind("v1", "ConfigMap");
    let cause = Cause::trigger("git");
    let error = cluster.apply(&cause, &kind, &ours.id(), bytes(&ours), OnConflict::Report).await.unwrap_err();
    let Error::Conflict { causes, .. } = &error else { panic!("{error}") };
    assert_eq!((causes[0].field.as_str(), causes[0].manager.as_str()), (".data.key", "testbed"));
    assert_eq!(error.to_string(), format!("ConfigMap {namespace}/a has fields of other managers: .data.key (testbed)"));
    let live = cluster.get(&kind, &Key::new(&namespace, "a")).await.unwrap().unwrap();
    assert_eq!(live.value()["data"]["key"], "theirs");
    cluster.apply(&cause, &kind, &ours.id(), bytes(&ours), OnConflict::Force).await.unwrap();
    let live = cluster.get(&kind, &Key::new(&namespace, "a")).await.unwrap().unwrap();
    assert_eq!(live.value()["data"]["key"], "ours");
}

#[tokio::test]
async fn a_dry_run_shows_the_result_and_writes_nothing() {
    let (cluster, namespace) = place("dry").await;
    let before = apply(&cluster, &config_map(&namespace, "a", "1")).await.unwrap();
    let wanted = config_map(&namespace, "a", "2");
    let shown = dry_run(&cluster, &wanted, OnConflict::Force).await;
    let DryRun::Applied(shown) = shown else { panic!("{shown:?}") };
    assert_eq!(shown.value()["data"]["key"], "2");
    let kind = kind("v1", "ConfigMap");
    let after = cluster.get_metadata(&kind, &Key::new(&namespace, "a")).await.unwrap().unwrap();
    assert_eq!(before.resource_version, after.resource_version);
    assert_eq!((cluster.requests().writes(), cluster.requests().count(Verb::DryRun)), (1, 1));
}

#[tokio::test]
async fn a_dry_run_names_whose_fields_it_would_take_over() {
    let (cluster, namespace) = place("dry-conflict").await;
    harness::apply(&harness::skr().await.client().unwrap(), config_map(&namespace, "a", "theirs").value()).await;
    let wanted = config_map(&namespace, "a", "ours");
    let shown = dry_run(&cluster, &wanted, OnConflict::Report).await;
    let DryRun::Conflict(causes) = shown else { panic!("{shown:?}") };
    assert_eq!((causes[0].field.as_str(), causes[0].manager.as_str()), (".data.key", "testbed"));
    let shown = dry_run(&cluster, &wanted, OnConflict::Force).await;
    assert!(matches!(&shown, DryRun::Applied(object) if object.value()["data"]["key"] == "ours"), "{shown:?}");
}

#[tokio::test]
async fn what_cannot_be_tried_is_no_error_and_a_secret_is_never_sent() {
    let (cluster, namespace) = place("dry-absent").await;
    let elsewhere = config_map("no-such-namespace", "a", "1");
    assert!(matches!(dry_run(&cluster, &elsewhere, OnConflict::Force).await, DryRun::Absent));
    let gvk = Gvk::new("nowhere.example", "v1", "Thing");
    let unserved = Kind::new(gvk, "things", true);
    let body = json!({"apiVersion": "nowhere.example/v1", "kind": "Thing", "metadata": {"name": "a"}});
    let id = unserved.id(&Key::new(&namespace, "a"));
    let shown = cluster.dry_run(&unserved, &id, body.to_string().into(), OnConflict::Force).await.unwrap();
    assert!(matches!(shown, DryRun::Absent));
    let before = cluster.requests().total();
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a", "namespace": namespace}, "stringData": {"k": "v"}});
    let secret = Object::new(secret).unwrap();
    assert!(matches!(dry_run(&cluster, &secret, OnConflict::Force).await, DryRun::Withheld));
    assert_eq!(cluster.requests().total(), before, "nothing is sent for a Secret");
}

async fn dry_run(cluster: &Cluster, object: &Object, on_conflict: OnConflict) -> DryRun {
    let kind = Kind::built_in(&object.gvk()).unwrap();
    cluster.dry_run(&kind, &object.id(), bytes(object), on_conflict).await.unwrap()
}

#[tokio::test]
async fn what_exists_before_us_is_found_with_its_managers() {
    let (cluster, namespace) = place("survey").await;
    let mut foreign = config_map(&namespace, "theirs", "x");
    foreign.set_label(names::label::MANAGED_BY, "another");
    harness::apply(&harness::skr().await.client().unwrap(), foreign.value()).await;
    let objects = [config_map(&namespace, "theirs", "y"), config_map(&namespace, "new", "y")];
    let unserved =
        (Gvk::new("nowhere.example", "v1", "Thing"), ObjectId::new("nowhere.example", "Thing", &namespace, "a"));
    let wanted: Vec<(Gvk, ObjectId)> =
        objects.iter().map(|object| (object.gvk(), object.id())).chain([unserved]).collect();
    let found = cluster.survey(wanted.iter().map(|(gvk, id)| (gvk, id))).await.unwrap();
    assert_eq!(found.keys().map(ToString::to_string).collect::<Vec<_>>(), [format!("ConfigMap {namespace}/theirs")]);
    let metadata = &found[&foreign.id()];
    assert!(!marked(metadata));
    assert_eq!(metadata.managers, ["testbed"]);
    assert_eq!(cluster.requests().count(Verb::List), 1, "one list for the kind in the namespace");
}

#[tokio::test]
async fn what_lifecycle_manager_applied_is_taken_over_once() {
    let server = harness::skr().await;
    let namespace = harness::namespace(&server.client().unwrap(), "takeover").await;
    let access = access::parse(server.kubeconfig().text().as_bytes()).unwrap();
    let name = ClusterName::Runtime(Key::new("kcp-system", "kyma"));
    let cluster = Cluster::new(name, &access.config().unwrap(), Limits::default()).unwrap();
    let mut theirs = config_map(&namespace, "a", "1");
    theirs.map_mut()["data"]["old"] = "no longer declared".into();
    let parameters = kube::api::PatchParams::apply("declarative.kyma-project.io/applier").force();
    let config_maps: kube::Api<ConfigMap> = harness::namespaced(&server.client().unwrap(), &namespace);
    config_maps.patch("a", &parameters, &kube::api::Patch::Apply(theirs.value())).await.unwrap();

    let ours = config_map(&namespace, "a", "1");
    let taken = apply(&cluster, &ours).await.unwrap();
    assert_eq!(taken.managers, ["tidegate"]);
    assert_eq!(cluster.requests().writes(), 3);
    let live = cluster.get(&kind("v1", "ConfigMap"), &Key::new(&namespace, "a")).await.unwrap().unwrap();
    assert_eq!(live.value()["data"], json!({"key": "1"}));
    let again = apply(&cluster, &ours).await.unwrap();
    assert_eq!(again.resource_version, taken.resource_version);
    assert_eq!(cluster.requests().writes(), 4);
}

#[tokio::test]
async fn objects_of_others_are_not_looked_up_in_a_namespace_that_is_new() {
    let (cluster, _) = place("fresh").await;
    let namespace = object(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "fresh-new"}}));
    let ours = config_map("fresh-new", "ours", "1");
    cluster.enact(&Cause::trigger("git"), vec![task(&namespace), task(&ours)]).await;
    let before = cluster.requests();
    let wanted = [config_map("fresh-new", "a", "1"), config_map("fresh-new", "b", "1")];
    let ids: Vec<(Gvk, ObjectId)> = wanted.iter().map(|object| (object.gvk(), object.id())).collect();
    assert!(cluster.survey(ids.iter().map(|(gvk, id)| (gvk, id))).await.unwrap().is_empty());
    assert_eq!(cluster.requests().since(&before).total(), 0);
    // What we have put there ourselves is looked up: it may belong to another module.
    let found = cluster.survey([(&ours.gvk(), &ours.id())]).await.unwrap();
    assert!(found.contains_key(&ours.id()));
    // A namespace that was there before us is no such place.
    cluster.enact(&Cause::trigger("git"), vec![task(&namespace)]).await;
    assert_eq!(cluster.requests().since(&before).count(Verb::Get), 1);
}

#[tokio::test]
async fn an_object_that_a_user_is_quick_to_create_in_a_new_namespace_keeps_its_content() {
    let (cluster, _) = place("quick").await;
    let namespace = object(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "quick-new"}}));
    cluster.enact(&Cause::trigger("git"), vec![task(&namespace)]).await;
    let (theirs, ours) = (config_map("quick-new", "a", "theirs"), config_map("quick-new", "a", "ours"));
    harness::apply(&harness::skr().await.client().unwrap(), theirs.value()).await;
    assert!(cluster.survey([(&ours.gvk(), &ours.id())]).await.unwrap().is_empty());
    let outcomes = cluster.enact(&Cause::trigger("git"), vec![task(&ours)]).await;
    assert!(matches!(&outcomes[0].effect, Effect::Failed(Error::Conflict { .. })), "{:?}", outcomes[0].effect);
    let found = cluster.survey([(&ours.gvk(), &ours.id())]).await.unwrap();
    assert!(found.contains_key(&ours.id()), "the next pass looks it up");
}

#[tokio::test]
async fn a_definition_and_its_custom_resource_are_applied_at_the_first_try() {
    let (cluster, _) = place("staged").await;
    let (definition, boat) = definition("staged.example");
    let ship = config_map("staged-new", "a", "1");
    let namespace = object(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "staged-new"}}));
    // Against the order of apply, so that it is the waves that count.
    let tasks = vec![task(&boat), task(&ship), task(&namespace), task(&definition)];
    let outcomes = cluster.enact(&Cause::trigger("git"), tasks).await;
    assert_eq!(
        effects(&outcomes),
        [
            "Boat.staged.example default/boat applied None",
            "ConfigMap staged-new/a applied None",
            "Namespace staged-new applied None",
            "CustomResourceDefinition.apiextensions.k8s.io boats.staged.example applied None",
        ]
    );
    assert_eq!(cluster.requests().count(Verb::Apply), 4, "each object was sent once");
    assert_eq!(cluster.requests().count(Verb::Get), 0, "neither discovery nor reads were needed");

    // The same again, with what is known of each: nothing changes, and nothing is asked besides.
    let before = cluster.requests();
    let versions: BTreeMap<ObjectId, String> = outcomes
        .iter()
        .map(|outcome| match &outcome.effect {
            Effect::Applied { metadata, .. } => (outcome.id.clone(), metadata.resource_version.clone()),
            other => panic!("{other:?}"),
        })
        .collect();
    let known = |object: &Object| Task { known: versions.get(&object.id()).cloned(), ..task(object) };
    let outcomes = cluster.enact(&Cause::trigger("git"), vec![known(&ship), known(&boat)]).await;
    assert!(outcomes.iter().all(|outcome| matches!(outcome.effect, Effect::Applied { changed: Some(false), .. })));
    assert_eq!(cluster.requests().since(&before).total(), 2);
}

#[tokio::test]
async fn what_fails_stops_only_what_cannot_be_without_it() {
    let (cluster, namespace) = place("failures").await;
    let (mut broken, boat) = definition("failures.example");
    broken.map_mut()["spec"]["scope"] = "Nowhere".into();
    let unknown = object(json!({
        "apiVersion": "nobody.example/v1", "kind": "Ghost", "metadata": {"name": "a", "namespace": namespace},
    }));
    let mut undeclared = config_map(&namespace, "undeclared", "1");
    undeclared.map_mut().insert("dada".to_owned(), json!({"key": "1"}));
    let lost = config_map("failures-not-there", "a", "1");
    let good = config_map(&namespace, "good", "1");
    let tasks = [&broken, &boat, &unknown, &undeclared, &lost, &good].map(task).to_vec();
    let outcomes = cluster.enact(&Cause::trigger("git"), tasks).await;
    assert_eq!(
        effects(&outcomes),
        [
            "CustomResourceDefinition.apiextensions.k8s.io boats.failures.example failed Invalid",
            "Boat.failures.example default/boat skipped for CustomResourceDefinition.apiextensions.k8s.io boats.failures.example",
            &format!("Ghost.nobody.example {namespace}/a failed KindNotServed"),
            &format!("ConfigMap {namespace}/undeclared failed UndeclaredField"),
            "ConfigMap failures-not-there/a failed NotFound",
            &format!("ConfigMap {namespace}/good applied None"),
        ]
    );
    let text = |index: usize| match &outcomes[index].effect {
        Effect::Failed(error) => error.to_string(),
        other => panic!("{other:?}"),
    };
    assert_eq!(
        text(3),
        format!("ConfigMap {namespace}/undeclared does not match its schema: .dada: field not declared in schema")
    );
    assert_eq!(text(4), r#"ConfigMap failures-not-there/a not found: namespaces "failures-not-there" not found"#);
}

#[tokio::test]
async fn errors_about_secrets_say_which_field_and_never_what_is_in_it() {
    let (cluster, namespace) = place("secrets").await;
    let secret = |change: fn(&mut Value)| {
        let mut value = json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a", "namespace": namespace},
            "type": "Opaque", "data": {"key": STANDARD.encode("hunter2")},
        });
        change(&mut value);
        object(value)
    };
    let broken: [fn(&mut Value); 4] = [
        |value| value["data"]["key"] = "hunter2 is not base64".into(),
        |value| value["data"]["hunter2!"] = "aHVudGVyMg==".into(),
        |value| value["dada"] = json!({"key": "hunter2"}),
        |value| value["data"] = "hunter2".into(),
    ];
    for change in broken {
        let error = apply(&cluster, &secret(change)).await.unwrap_err();
        let texts = format!("{error} {error:?}");
        assert!(!texts.contains("hunter2") || texts.contains("data[hunter2!]"), "{texts}");
        assert!(texts.contains("Secret"), "{texts}");
    }
}

#[tokio::test]
async fn a_namespace_that_is_being_deleted_is_waited_for() {
    let (cluster, namespace) = place("terminating").await;
    // A finalizer keeps the namespace in deletion until the end of this test.
    let mut guard = config_map(&namespace, "guard", "1");
    guard.metadata_mut().insert("finalizers".to_owned(), json!(["test.example/keep"]));
    apply(&cluster, &guard).await.unwrap();
    let namespaces = kind("v1", "Namespace");
    let live = cluster.get_metadata(&namespaces, &Key::new("", &namespace)).await.unwrap().unwrap();
    let deleted =
        cluster.delete_if(&Cause::default(), &namespaces, &live.id, &live.uid, None, Propagation::Background).await;
    assert_eq!(deleted.unwrap(), Deleted::Terminating);
    let error = apply(&cluster, &config_map(&namespace, "a", "1")).await.unwrap_err();
    assert!(matches!(error, Error::NamespaceTerminating { .. }), "{error:?}");
    let kind = kind("v1", "ConfigMap");
    let release = Bytes::from_static(br#"{"metadata":{"finalizers":null}}"#);
    cluster.merge_patch(&Cause::default(), &kind, &guard.id(), None, release).await.unwrap();
}

// --- delete and prune ---

#[tokio::test]
async fn a_delete_holds_only_for_the_very_object_that_was_seen() {
    let (cluster, namespace) = place("delete").await;
    let kind = kind("v1", "ConfigMap");
    let seen = apply(&cluster, &config_map(&namespace, "a", "1")).await.unwrap();
    let now = apply(&cluster, &config_map(&namespace, "a", "2")).await.unwrap();
    let cause = Cause::trigger("git");
    let background = Propagation::Background;
    assert_eq!(cluster.delete(&cause, &kind, &seen, background).await.unwrap(), Deleted::Changed);
    let other = Metadata { uid: "00000000-0000-0000-0000-000000000000".to_owned(), ..now.clone() };
    assert_eq!(cluster.delete(&cause, &kind, &other, background).await.unwrap(), Deleted::Changed);
    assert_eq!(cluster.delete(&cause, &kind, &now, background).await.unwrap(), Deleted::Gone);
    assert_eq!(cluster.delete(&cause, &kind, &now, background).await.unwrap(), Deleted::Gone, "absence is the aim");
}

#[tokio::test]
async fn prune_takes_only_what_bears_our_mark_and_custom_resources_first() {
    let (cluster, namespace) = place("prune").await;
    let (definition, mut boat) = definition("prune.example");
    boat.metadata_mut().insert("finalizers".to_owned(), json!(["test.example/keep"]));
    let ours = config_map(&namespace, "ours", "1");
    let mut foreign = config_map(&namespace, "foreign", "1");
    foreign.set_label(names::label::MANAGED_BY, "another");
    let mut kept = config_map(&namespace, "kept", "1");
    kept.set_annotation(names::annotation::PRUNE, "disabled");
    let all = [&definition, &boat, &ours, &foreign, &kept];
    let outcomes = cluster.enact(&Cause::trigger("git"), all.map(task).to_vec()).await;
    assert!(outcomes.iter().all(|outcome| outcome.effect.is_applied()), "{:?}", effects(&outcomes));
    let mut owned: Inventory = all.iter().map(|object| (object.id(), object.gvk().version)).collect();
    owned.insert(ObjectId::new("", "ConfigMap", &namespace, "never-there"), "v1".into());
    // Applied under a version that is no longer served: it is the same object nevertheless.
    owned.insert(boat.id(), "v1beta1".into());

    let prunes = Prune::between(Desired::Nothing, &owned);
    let verdicts = |pruned: &[Pruned]| -> BTreeMap<String, Verdict> {
        pruned.iter().map(|pruned| (pruned.id.name.to_string(), *pruned.result.as_ref().unwrap())).collect()
    };
    let first = cluster.prune(&Cause::trigger("git"), &prunes, &marked).await;
    assert!(
        first.iter().all(|pruned| pruned.result.as_ref().is_ok_and(|verdict| *verdict == Verdict::Wait)),
        "{first:?}"
    );

    let boats = cluster.kind(&boat.gvk()).await.unwrap().unwrap();
    let release = Bytes::from_static(br#"{"metadata":{"finalizers":null}}"#);
    cluster.merge_patch(&Cause::default(), &boats, &boat.id(), None, release).await.unwrap();
    let second = cluster.prune(&Cause::trigger("git"), &prunes, &marked).await;
    let second = verdicts(&second);
    assert_eq!(second["boat"], Verdict::Gone);
    assert_eq!(second["ours"], Verdict::Gone);
    assert_eq!(second["never-there"], Verdict::Gone);
    assert_eq!(second["foreign"], Verdict::Foreign);
    assert_eq!(second["kept"], Verdict::Disabled);
    assert!(matches!(second["boats.prune.example"], Verdict::Gone | Verdict::Wait));
    let left = cluster.list_metadata(&kind("v1", "ConfigMap"), Some(&namespace), None).await.unwrap();
    let mut left: Vec<&str> = left.iter().map(|metadata| &*metadata.id.name).collect();
    left.retain(|name| *name != "kube-root-ca.crt");
    assert_eq!(left, ["foreign", "kept"]);
}

// --- who may ---

#[tokio::test]
async fn without_rights_reads_and_writes_are_forbidden_and_the_client_is_worn() {
    let server = harness::skr().await;
    let nobody = connect(&server.kubeconfig_of("nobody", None).unwrap(), Limits::default());
    let error = apply(&nobody, &config_map("default", "a", "1")).await.unwrap_err();
    assert!(matches!(error, Error::Forbidden { .. }), "{error:?}");
    assert!(error.to_string().contains(r#"User "nobody" cannot patch resource "configmaps""#), "{error}");
    assert!(nobody.is_worn());
    let options = follower::Options::all(kind("v1", "ConfigMap")).namespace("default");
    let (_, log, task) = follow(&Arc::new(nobody), options);
    eventually("a follower reports the missing right", SOON, async || {
        let log = log.lock().unwrap();
        let is_named = |why: &String| why.contains(r#"User "nobody" cannot list resource "configmaps""#);
        if log.first().is_some_and(is_named) { Ok(()) } else { Err(format!("{log:?}")) }
    })
    .await;
    task.abort();
    let token = server.kubeconfig_with(kube_sim::Credentials::Token("no-such-token".to_owned()));
    let stranger = connect(&token, Limits::default());
    let error = stranger.get(&kind("v1", "ConfigMap"), &Key::new("default", "a")).await.unwrap_err();
    assert!(matches!(error, Error::Unauthorized { .. }), "{error:?}");
}

#[tokio::test]
async fn nothing_is_written_while_another_process_leads() {
    let (cluster, namespace) = place("guarded").await;
    let options = lease::Options {
        lease: Key::new(&namespace, "leader"),
        identity: "tidegate_a".to_owned(),
        timing: lease::Timing::default(),
    };
    let (_elector, leadership) = lease::Elector::new(Arc::clone(&cluster), options);
    let guarded = connect(&harness::skr().await.kubeconfig(), Limits::default()).guarded(leadership);
    let error = apply(&guarded, &config_map(&namespace, "a", "1")).await.unwrap_err();
    assert!(matches!(error, Error::NotLeading), "{error:?}");
    assert_eq!(guarded.requests().total(), 0);
    assert!(guarded.get(&kind("v1", "ConfigMap"), &Key::new(&namespace, "a")).await.unwrap().is_none(), "reads go on");
}

#[tokio::test]
async fn the_lease_goes_from_one_holder_to_the_next() {
    let (cluster, namespace) = place("lease").await;
    let timing = lease::Timing {
        duration: Duration::from_secs(2),
        renew_deadline: Duration::from_millis(1500),
        retry_period: Duration::from_millis(100),
    };
    let elector = |identity: &str| {
        let options = lease::Options { lease: Key::new(&namespace, "leader"), identity: identity.to_owned(), timing };
        let (elector, leadership) = lease::Elector::new(Arc::clone(&cluster), options);
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let task = tokio::spawn(elector.run(async {
            let _ = stopped.await;
        }));
        (leadership, stop, task)
    };
    let (first, stop_first, first_task) = elector("tidegate_a");
    first.acquired().await;
    let (second, stop_second, second_task) = elector("tidegate_b");
    eventually("the second knows the first", SOON, async || {
        match second.other_holder().map(|holder| holder.name).as_deref() {
            Some("tidegate_a") => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await;
    holds("the first leads, and it alone", Duration::from_secs(3), async || {
        if first.is_leading() && !second.is_leading() { Ok(()) } else { Err("not so".to_owned()) }
    })
    .await;

    // Given back on shutdown: the second need not wait for it to run out.
    stop_first.send(()).unwrap();
    first_task.await.unwrap();
    assert!(!first.is_leading());
    tokio::time::timeout(SOON, second.acquired()).await.unwrap();

    // Lost without a word: the third waits for the whole duration.
    second_task.abort();
    drop(stop_second);
    let since = Instant::now();
    let (third, stop_third, third_task) = elector("tidegate_c");
    tokio::time::timeout(SOON, third.acquired()).await.unwrap();
    assert!(timing.duration - timing.retry_period * 2 < since.elapsed(), "took over after {:?}", since.elapsed());
    assert!(!second.is_leading(), "it stopped by itself");
    stop_third.send(()).unwrap();
    third_task.await.unwrap();
    let lease: Value = cluster
        .get_as(&kind("coordination.k8s.io/v1", "Lease"), &Key::new(&namespace, "leader"))
        .await
        .unwrap()
        .unwrap();
    assert_eq!(lease["spec"]["holderIdentity"], "");
    assert_eq!(lease["spec"]["leaseTransitions"], 2);
}

// --- time and failure ---

#[tokio::test]
async fn a_black_hole_costs_one_time_out_a_request_and_then_nothing() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let limits = Limits { request_timeout: Duration::from_millis(200), ..Limits::default() };
    let kubeconfig = Kubeconfig { server: format!("https://127.0.0.1:{port}"), ..harness::skr().await.kubeconfig() };
    let cluster = connect(&kubeconfig, limits);
    let kind = kind("v1", "ConfigMap");
    let key = Key::new("default", "a");
    let start = Instant::now();
    let error = cluster.get(&kind, &key).await.unwrap_err();
    assert!(matches!(error, Error::Unreachable { cause: Unreachable::Timeout, .. }), "{error:?}");
    let expected = format!("cluster kcp (127.0.0.1:{port}) cannot be reached: it does not answer in time");
    assert_eq!(error.to_string(), expected);
    for _ in 0..4 {
        cluster.get(&kind, &key).await.unwrap_err();
    }
    assert!(start.elapsed() < Duration::from_secs(3));
    let start = Instant::now();
    for _ in 0..100 {
        let error = cluster.get(&kind, &key).await.unwrap_err();
        assert!(matches!(error, Error::Unreachable { cause: Unreachable::Timeout, sent: false, .. }), "{error:?}");
    }
    assert!(start.elapsed() < Duration::from_millis(200), "an open circuit costs no time");
    assert_eq!(cluster.requests().total(), 5);
    drop(listener);
}

#[tokio::test]
async fn each_way_of_not_reaching_a_cluster_has_its_name() {
    let server = harness::skr().await;
    let good = server.kubeconfig();
    let ask = async |kubeconfig: Kubeconfig| {
        let cluster = connect(&kubeconfig, Limits::default());
        match cluster.get(&kind("v1", "ConfigMap"), &Key::new("default", "a")).await.unwrap_err() {
            Error::Unreachable { cause, .. } => cause,
            other => panic!("{other:?}"),
        }
    };
    let closed = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    assert_eq!(ask(Kubeconfig { server: format!("https://{closed}"), ..good.clone() }).await, Unreachable::Connect);
    let unknown = "https://no-such-host.invalid:6443".to_owned();
    assert_eq!(ask(Kubeconfig { server: unknown, ..good.clone() }).await, Unreachable::Dns);
    let foreign = kube_sim::Authority::new("foreign").unwrap();
    assert_eq!(ask(Kubeconfig { authority: foreign.pem().to_owned(), ..good }).await, Unreachable::Untrusted);
}

#[tokio::test]
async fn one_thousand_objects_are_applied_each_once() {
    let (cluster, namespace) = place("thousand").await;
    let objects: Vec<Object> =
        (0..1000).map(|index| config_map(&namespace, &format!("object-{index:04}"), &index.to_string())).collect();
    let tasks: Vec<Task> = objects.iter().map(task).collect();
    let start = Instant::now();
    let outcomes = cluster.enact(&Cause::trigger("git"), tasks).await;
    let took = start.elapsed();
    assert!(outcomes.iter().all(|outcome| outcome.effect.is_applied()));
    assert_eq!(cluster.requests().total(), 1000);
    println!("1,000 objects applied in {took:?}");
    let listed = cluster
        .list_metadata(&kind("v1", "ConfigMap"), Some(&namespace), Some("operator.kyma-project.io/managed-by=kyma"))
        .await
        .unwrap();
    assert_eq!(listed.len(), 1000);
    assert_eq!(cluster.requests().count(Verb::List), 2, "in pages of 500");
    assert!(listed.iter().zip(&objects).all(|(metadata, object)| metadata.id == object.id()));
}

// --- watch ---

type Log = Arc<Mutex<Vec<String>>>;

/// Follows ConfigMaps by their `data.key`, and writes down what changes.
fn follow(cluster: &Arc<Cluster>, options: follower::Options) -> (Followed<String>, Log, tokio::task::JoinHandle<()>) {
    let (store, log) = (Followed::new(), Log::default());
    let follower = follower::follow::<ConfigMap, String>(
        Arc::clone(cluster),
        options,
        |object| object.data.and_then(|mut data| data.remove("key")),
        {
            let (store, log) = (store.clone(), Arc::clone(&log));
            move |change| {
                store.take(&change);
                log.lock().unwrap().push(match change {
                    follower::Change::Set { key, new, old: None } => format!("{} is {new}", key.name()),
                    follower::Change::Set { key, new, old: Some(old) } => format!("{} was {old}, is {new}", key.name()),
                    follower::Change::Gone { key, old } => format!("{} was {old}, is gone", key.name()),
                    follower::Change::Unreadable { key, found } => {
                        format!("{} is unreadable: {}", key.name(), found.problem)
                    }
                    follower::Change::Cleared { key } => format!("{} is readable", key.name()),
                    follower::Change::NotServed => "not served".to_owned(),
                    follower::Change::Served => "served".to_owned(),
                    follower::Change::Forbidden { why } => why,
                    follower::Change::Permitted => "permitted".to_owned(),
                    follower::Change::Synced => "synced".to_owned(),
                });
            }
        },
    );
    (store, log, tokio::spawn(follower))
}

async fn logged(log: &Log, expected: &[&str]) {
    eventually("the log is as expected", SOON, async || {
        let log = log.lock().unwrap();
        if *log == expected { Ok(()) } else { Err(format!("{log:?}")) }
    })
    .await;
}

#[tokio::test]
async fn a_watch_tells_changes_of_the_projection_and_nothing_else() {
    let (cluster, namespace) = place("watch").await;
    let kind = kind("v1", "ConfigMap");
    apply(&cluster, &config_map(&namespace, "a", "1")).await.unwrap();
    let options =
        follower::Options::all(kind.clone()).namespace(&namespace).labels("operator.kyma-project.io/managed-by=kyma");
    let (store, log, task) = follow(&cluster, options);
    store.synced().await;
    let a = config_map(&namespace, "a", "1");
    let mut noted = a.clone();
    noted.set_annotation("example.org/note", "not projected");
    apply(&cluster, &noted).await.unwrap();
    apply(&cluster, &config_map(&namespace, "a", "2")).await.unwrap();
    let b = apply(&cluster, &config_map(&namespace, "b", "1")).await.unwrap();
    cluster.delete(&Cause::default(), &kind, &b, Propagation::Background).await.unwrap();
    logged(&log, &["a is 1", "synced", "a was 1, is 2", "b is 1", "b was 1, is gone"]).await;
    assert_eq!(store.all(), [(Key::new(&namespace, "a"), Arc::new("2".to_owned()))]);
    assert_eq!((cluster.requests().count(Verb::List), cluster.requests().count(Verb::Watch)), (1, 1));
    task.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watch_survives_its_server_and_tells_what_it_missed() {
    let server = Server::bare().await;
    let cluster = Arc::new(connect(&server.kubeconfig(), Limits::default()));
    let kind = kind("v1", "ConfigMap");
    let a = apply(&cluster, &config_map("default", "a", "1")).await.unwrap();
    let options = follower::Options::all(kind.clone()).labels("operator.kyma-project.io/managed-by=kyma");
    let (store, log, task) = follow(&cluster, options);
    store.synced().await;
    server.stop().await;
    server.start_again().await;
    // A second client, whose circuit is closed: what it does happens while the watch may still be pausing.
    let other = connect(&server.kubeconfig(), Limits::default());
    apply(&other, &config_map("default", "b", "1")).await.unwrap();
    other.delete(&Cause::default(), &kind, &a, Propagation::Background).await.unwrap();
    eventually("the store has caught up", SOON, async || {
        let names: Vec<String> = store.all().iter().map(|(key, _)| key.name().to_owned()).collect();
        if names == ["b"] { Ok(()) } else { Err(format!("{names:?}")) }
    })
    .await;
    let log = log.lock().unwrap().clone();
    assert_eq!(log[..2], ["a is 1", "synced"]);
    assert!(log[2..].contains(&"a was 1, is gone".to_owned()) && log[2..].contains(&"b is 1".to_owned()), "{log:?}");
    assert_eq!(log.len(), 4, "{log:?}");
    task.abort();
}

#[tokio::test]
async fn a_kind_that_comes_later_is_followed_from_then_on() {
    let (cluster, _) = place("later").await;
    let (definition, boat) = definition("later.example");
    let boats = Kind::new(boat.gvk(), "boats", true);
    let options = follower::Options::all(boats).metadata_only().absent_pause(Duration::from_millis(100));
    let store = Followed::new();
    let known = store.clone();
    let task = tokio::spawn(follower::follow::<PartialObjectMeta, String>(
        Arc::clone(&cluster),
        options,
        |object| object.metadata.uid,
        move |change| known.take(&change),
    ));
    tokio::time::timeout(SOON, store.synced()).await.expect("a kind that is not served is synced, and empty");
    assert!(store.all().is_empty());
    cluster.enact(&Cause::default(), vec![self::task(&definition), self::task(&boat)]).await;
    eventually("the boat is seen", SOON, async || store.get(&Key::new("default", "boat")).ok_or("no boat".to_owned()))
        .await;
    task.abort();
}

// --- access and pool ---

#[tokio::test]
async fn an_exec_plugin_never_runs() {
    let folder = harness::folder();
    let canary = folder.path().join("canary");
    let server = harness::skr().await.url();
    let kubeconfig = format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: x\ncontexts:\n- name: x\n  context: {{cluster: x, user: x}}\n\
         clusters:\n- name: x\n  cluster: {{server: \"{server}\", certificate-authority-data: {ca}}}\n\
         users:\n- name: x\n  user:\n    exec:\n      apiVersion: client.authentication.k8s.io/v1\n      command: touch\n      \
         args: [\"{canary}\"]\n",
        ca = STANDARD.encode(harness::skr().await.authority().pem()),
        canary = canary.display(),
    );
    let (kcp, pool, secret) = pool("canary", &kubeconfig).await;
    let error = pool.cluster(&Key::new("kcp-system", "kyma"), &secret.0, &secret.1).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        format!(
            "Secret {}, key `config`: `exec` is not accepted: no program is run; use a token or a client certificate",
            secret.0
        )
    );
    assert!(!canary.exists());
    drop(kcp);
}

/// A pool, and an access Secret in its KCP: its key and resource version.
async fn pool(prefix: &str, kubeconfig: &str) -> (Arc<Cluster>, Pool, (Key, String)) {
    let server = harness::kcp().await;
    let namespace = harness::namespace(&server.client().unwrap(), prefix).await;
    let kcp = cluster(server);
    let pool = Pool::new(Arc::clone(&kcp), Limits::default(), None);
    let version = access_secret(&kcp, &namespace, kubeconfig).await;
    (kcp, pool, (Key::new(&namespace, "access"), version))
}

async fn access_secret(kcp: &Cluster, namespace: &str, kubeconfig: &str) -> String {
    let secret = object(json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "access", "namespace": namespace},
        "data": {"config": STANDARD.encode(kubeconfig)},
    }));
    apply(kcp, &secret).await.unwrap().resource_version
}

#[tokio::test]
async fn a_rotated_secret_takes_effect_at_the_next_use() {
    let skr = harness::skr().await;
    let runtime = Key::new("kcp-system", "kyma");
    let wrong = skr.kubeconfig_with(kube_sim::Credentials::Token("expired".to_owned())).text();
    let (kcp, pool, (secret, version)) = pool("rotate", &wrong).await;
    let namespaces = Kind::built_in(&Gvk::new("", "v1", "Namespace")).unwrap();
    let default = Key::new("", "default");
    let first = pool.cluster(&runtime, &secret, &version).await.unwrap();
    assert!(matches!(first.get_metadata(&namespaces, &default).await.unwrap_err(), Error::Unauthorized { .. }));
    let again = pool.cluster(&runtime, &secret, &version).await.unwrap();
    assert!(Arc::ptr_eq(&first, &again), "a wrong Secret does not make a client for each request");
    assert_eq!(kcp.requests().count(Verb::Get), 1, "the Secret is read once");

    let version = access_secret(&kcp, secret.namespace(), &skr.kubeconfig().text()).await;
    let second = pool.cluster(&runtime, &secret, &version).await.unwrap();
    assert!(!Arc::ptr_eq(&first, &second));
    assert!(second.get_metadata(&namespaces, &default).await.unwrap().is_some());
    assert_eq!(second.requests().count(Verb::Get), 2, "counters go on");
    assert_eq!(pool.len(), 1);
    pool.forget(&runtime);
    assert!(pool.is_empty());
}

#[tokio::test]
async fn an_absent_secret_is_said_so() {
    let (_, pool, (secret, _)) = pool("absent", "apiVersion: v1\n").await;
    let absent = Key::new(secret.namespace(), "not-there");
    let error = pool.cluster(&Key::new("kcp-system", "kyma"), &absent, "1").await.unwrap_err();
    assert_eq!(error.to_string(), format!("Secret {absent}, key `config`: no kubeconfig found"));
}

#[tokio::test]
async fn unconditional_leadership_is_for_who_needs_no_lease() {
    let (cluster, namespace) = place("unconditional").await;
    drop(cluster);
    let guarded = connect(&harness::skr().await.kubeconfig(), Limits::default()).guarded(Leadership::unconditional());
    apply(&guarded, &config_map(&namespace, "a", "1")).await.unwrap();
    assert!(matches!(guarded.name(), ClusterName::Kcp));
    let again = config_map(&namespace, "a", "1");
    let kind = kind("v1", "ConfigMap");
    let error = guarded.create(&Cause::default(), &kind, &again.id(), bytes(&again)).await.unwrap_err();
    assert!(matches!(&error, Error::Exists { target: Target::Object(_) }), "{error:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_runtime_that_falls_silent_is_left_alone_and_found_again() {
    let server = Server::bare().await;
    let limits = Limits { request_timeout: Duration::from_millis(300), ..Limits::default() };
    let cluster = connect(&server.kubeconfig(), limits);
    let key = Key::new("default", "a");
    let kind = kind("v1", "ConfigMap");
    eventually("it answers", SOON, async || cluster.get(&kind, &key).await.map_err(|error| error.to_string())).await;
    server.freeze();
    eventually("its circuit opens", SOON, async || match cluster.get(&kind, &key).await {
        Err(Error::Unreachable { sent: false, .. }) => Ok(()),
        other => Err(format!("{other:?}")),
    })
    .await;
    server.thaw();
    eventually("it is found again", SOON, async || cluster.get(&kind, &key).await.map_err(|error| error.to_string()))
        .await;
}
