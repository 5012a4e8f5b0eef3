use std::sync::Arc;

use serde_json::json;
use tidegate_cluster::{Metadata, Unreachable};

use super::*;
use crate::runtime::objects::fixtures::{live, metadata, shared};

fn owner() -> Key {
    Key::new("kcp-system", "one")
}

fn bodies<'a>(owner: &'a Key, data: &'a Data) -> Bodies<'a> {
    Bodies { owner, data }
}

/// ConfigMaps of one namespace by name.
fn config_maps(names: &[&str]) -> Arc<SharedObjects> {
    shared(&names.iter().map(|&name| ("v1", "ConfigMap", "n", name)).collect::<Vec<_>>())
}

fn applied(names: &[&str], seen: Seen) -> Applied {
    Applied { objects: config_maps(names), seen: vec![seen; names.len()].into(), follows_another: false }
}

fn at(resource_version: &str) -> Seen {
    Seen::At(Version::from_metadata(&metadata(&id("a"), resource_version)))
}

fn id(name: &str) -> ObjectId {
    ObjectId::new("", "ConfigMap", "n", name)
}

fn outcome(name: &str, effect: Effect) -> Outcome {
    Outcome { id: id(name), effect }
}

fn effect(metadata: Metadata) -> Effect {
    Effect::Applied { metadata: Box::new(metadata), changed: None }
}

fn invalid(name: &str) -> Error {
    Error::Invalid { target: Target::Object(id(name)), message: "no".to_owned() }
}

#[test]
fn many_objects_of_a_kind_are_listed_and_few_are_read_one_by_one() {
    let objects = shared(&[
        ("v1", "ConfigMap", "n", "a"),
        ("v1", "ConfigMap", "n", "b"),
        ("v1", "ConfigMap", "n", "c"),
        ("v1", "ConfigMap", "n", "d"),
        ("v1", "ConfigMap", "other", "a"),
        ("v1", "Service", "n", "a"),
    ]);
    let all: Vec<usize> = (0..objects.objects.len()).collect();
    let script = |suspects: &[usize]| -> Vec<String> {
        let text = |read: Read<'_>| match read {
            Read::One { id, .. } => format!("get {id}"),
            Read::All { gvk, namespace } => format!("list {} {namespace}", gvk.kind),
        };
        reads(&objects, suspects).into_iter().map(text).collect()
    };
    assert_eq!(script(&all), ["list ConfigMap n", "get ConfigMap other/a", "get Service n/a"]);
    assert_eq!(script(&all[..2]).len(), 2);
    assert_eq!(script(&[]), Vec::<String>::new());
}

#[test]
fn an_apply_that_would_change_nothing_is_not_sent() {
    let live = |manager: &str, more: serde_json::Value| {
        let mut live = config_maps(&["a"]).objects[0].object(&owner()).into_value();
        let metadata = &live["metadata"];
        let claims = |field: &str| -> serde_json::Value {
            metadata[field]
                .as_object()
                .into_iter()
                .flatten()
                .map(|(name, _)| (format!("f:{name}"), json!({})))
                .collect()
        };
        let fields = json!({"f:metadata": {"f:labels": claims("labels"), "f:annotations": claims("annotations")}});
        live["metadata"]["managedFields"] =
            json!([{"manager": manager, "operation": "Apply", "apiVersion": "v1", "fieldsV1": fields}]);
        live["metadata"]["resourceVersion"] = json!("7");
        live["metadata"]["generation"] = json!(1);
        live["metadata"].as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        Object::new(live).unwrap()
    };
    let check = |content: Option<Object>, expected: Seen| {
        let mut applied = applied(&["a"], Seen::Missing);
        let content: BTreeMap<ObjectId, Object> = content.into_iter().map(|object| (object.id(), object)).collect();
        recognize(&mut applied, &[0], bodies(&owner(), &Data::new()), &content);
        assert_eq!(applied.seen[0], expected);
    };
    let none = json!({});
    check(Some(live("tidegate", none.clone())), at("7"));
    check(Some(live("kubectl", none.clone())), Seen::Missing);
    check(Some(live("tidegate", json!({"labels": {}}))), Seen::Missing);
    check(Some(live("tidegate", json!({"deletionTimestamp": "2026-01-01T00:00:00Z"}))), Seen::Missing);
    check(None, Seen::Missing);
}

#[test]
fn an_object_is_as_desired_if_it_exists_and_its_content_covers_ours() {
    let desired = config_maps(&["a"]).objects[0].object(&owner());
    let other =
        Object::new(json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "namespace": "n"}}));
    for (is_live, content, expected) in [
        (true, Some(desired.clone()), at("7")),
        (true, Some(other.unwrap()), Seen::Missing),
        (true, None, Seen::Missing),
        (false, Some(desired), Seen::Missing),
    ] {
        let mut applied = applied(&["a"], Seen::Recorded);
        let live = live(is_live.then(|| metadata(&id("a"), "7")));
        let content: BTreeMap<_, _> = content.into_iter().map(|object| (object.id(), object)).collect();
        compare(&mut applied, vec![0], bodies(&owner(), &Data::new()), &live, &content);
        assert_eq!(*applied.seen, [expected], "{is_live}");
    }
}

#[test]
fn what_failed_by_itself_is_reported_before_what_was_skipped_for_it() {
    let mut applied = applied(&["a", "b", "c", "d"], Seen::Missing);
    let terminating = Metadata { deleting: true, ..metadata(&id("d"), "4") };
    let outcomes = vec![
        outcome("a", Effect::Skipped { needs: id("c") }),
        outcome("b", effect(metadata(&id("b"), "2"))),
        outcome("c", Effect::Failed(invalid("c"))),
        outcome("d", effect(terminating)),
    ];
    let failed = after_apply(&mut applied, &[0, 1, 2, 3], outcomes).unwrap();
    assert_eq!(*applied.seen, [Seen::Missing, at("2"), Seen::Missing, Seen::Missing]);
    let texts: Vec<(&str, bool)> =
        failed.iter().map(|failed| (failed.message.as_str(), failed.error.is_some())).collect();
    assert_eq!(
        texts,
        [
            ("ConfigMap n/c was rejected: no", true),
            ("ConfigMap n/d is being deleted; Tidegate applies it again once it is gone", true),
            ("ConfigMap n/a waits for ConfigMap n/c, which was not applied", false),
        ]
    );
}

#[test]
fn an_error_of_the_whole_cluster_is_no_failure_of_an_object() {
    let (cluster, server) = ("one".into(), "one:443".into());
    let unreachable = Error::Unreachable { cluster, server, cause: Unreachable::Connect, sent: false };
    for (error, expected) in [
        (unreachable, true),
        (Error::NotLeading, true),
        (Error::Unauthorized { cluster: "one".into(), server: "one:443".into() }, true),
        (invalid("b"), false),
    ] {
        assert_eq!(concerns_all(&error), expected, "{error}");
        let mut applied = applied(&["a", "b"], Seen::Missing);
        let outcomes = vec![outcome("a", effect(metadata(&id("a"), "1"))), outcome("b", Effect::Failed(error))];
        assert_eq!(after_apply(&mut applied, &[0, 1], outcomes).is_err(), expected);
        assert_eq!(applied.seen[0], at("1"), "what was applied before is known all the same");
    }
}

#[test]
fn objects_are_applied_in_the_given_order_with_their_owner() {
    let applied = applied(&["a", "b", "c"], Seen::Missing);
    let tasks = tasks(&applied, bodies(&owner(), &Data::new()), &[2, 0], &LiveObjects::new());
    let names: Vec<&str> = tasks.iter().map(|task| &*task.id.name).collect();
    assert_eq!(names, ["c", "a"]);
    assert!(tasks.iter().all(|task| task.claims == Claims::None));
    assert!(tasks.iter().all(|task| String::from_utf8_lossy(&task.body).contains("kcp-system/one")));
}

#[test]
fn what_lifecycle_manager_applied_is_taken_over_first() {
    let applied = applied(&["a", "b", "c"], Seen::Missing);
    let of = |name: &str, manager: &str| Metadata { managers: vec![manager.to_owned()], ..metadata(&id(name), "1") };
    let found = live([of("a", "declarative.kyma-project.io/applier"), of("b", "kubectl")]);
    let tasks = tasks(&applied, bodies(&owner(), &Data::new()), &[0, 1, 2], &found);
    let claims: Vec<Claims> = tasks.iter().map(|task| task.claims).collect();
    assert_eq!(claims, [Claims::ToTakeOver, Claims::None, Claims::None]);
}

#[test]
fn data_of_a_secret_are_filled_in_when_it_is_compared_and_sent() {
    let key = DataSource { secret: Key::new("kcp-system", "pull"), module: None };
    let mut objects = SharedObjects::clone(&config_maps(&["a", "b"]));
    objects.objects[1].data_from = Some(Arc::new(key.clone()));
    let objects = Arc::new(objects);
    assert_eq!(data_sources(&objects, &[0]), BTreeSet::new());
    assert_eq!(data_sources(&objects, &[0, 1]), BTreeSet::from([key.clone()]));

    let missing =
        Applied { objects: Arc::clone(&objects), seen: vec![Seen::Missing; 2].into(), follows_another: false };
    let (ready, failed) = complete(&missing, &[0, 1], &Data::new());
    assert_eq!(ready, [0], "the Secret is gone since the pass began");
    assert_eq!(failed[0].message, "the Secret in KCP whose data ConfigMap n/b gets has just changed");
    let data = Data::from([(key, json!({"text": "b25l"}))]);
    let (ready, failed) = complete(&missing, &[0, 1], &data);
    assert!(ready == [0, 1] && failed.is_empty());
    let tasks = tasks(&missing, bodies(&owner(), &data), &[0, 1], &LiveObjects::new());
    let has_data = |task: &Task| String::from_utf8_lossy(&task.body).contains(r#""data":{"text":"b25l"}"#);
    assert_eq!(tasks.iter().map(has_data).collect::<Vec<_>>(), [false, true]);

    let mut live_object = objects.objects[1].object(&owner());
    for (text, is_as_desired) in [("b25l", true), ("dHdv", false)] {
        live_object.map_mut().insert("data".to_owned(), json!({"text": text}));
        let content = BTreeMap::from([(id("b"), live_object.clone())]);
        let mut applied =
            Applied { objects: Arc::clone(&objects), seen: vec![Seen::Recorded; 2].into(), follows_another: false };
        compare(&mut applied, vec![1], bodies(&owner(), &data), &live([metadata(&id("b"), "7")]), &content);
        assert_eq!(applied.seen[1] != Seen::Missing, is_as_desired, "{text}");
    }
}

#[test]
fn only_a_secret_that_is_meant_for_its_module_has_data() {
    let of_module = |module| DataSource { secret: Key::new("kcp-system", "pull"), module };
    for (labels, is_meant) in [
        (json!({"operator.kyma-project.io/module-name": "deployer"}), true),
        (json!({"operator.kyma-project.io/module-name": "keda"}), false),
        (json!({}), false),
    ] {
        let secret = json!({"metadata": {"name": "pull", "labels": labels}, "data": {"text": "b25l"}});
        let secret: Secret = serde_json::from_value(secret).unwrap();
        let data = json!({"text": "b25l"});
        assert_eq!(data_of(&of_module(None), Some(secret.clone())).as_ref(), Some(&data), "it needs no label");
        let found = data_of(&of_module(Some("deployer")), Some(secret));
        assert_eq!(found, is_meant.then_some(data), "{labels}");
    }
    assert_eq!(data_of(&of_module(None), None), None);
}
