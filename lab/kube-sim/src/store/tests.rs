// SPDX-License-Identifier: Apache-2.0

use serde_json::json;

use super::*;

fn config_map(name: &str, value: &str) -> Draft {
    Draft::from_object(&json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": name, "resourceVersion": "old", "uid": "u", "labels": {"a": "b"}},
        "data": {"x": value},
    }))
}

fn maps() -> Arc<str> {
    "configmaps".into()
}

#[test]
fn an_object_is_bytes_and_its_parts_are_slices_of_them() {
    let object = config_map("one", "1").at(42);
    assert_eq!(object.value()["metadata"]["resourceVersion"], "42");
    assert_eq!(
        object.metadata_value(),
        json!({"resourceVersion": "42", "name": "one", "uid": "u", "labels": {"a": "b"}})
    );
    let mut tail = Vec::new();
    object.push_tail(&mut tail);
    assert!(tail.starts_with(b"\"metadata\":{"));
    assert_eq!(object.len(), object.bytes().len());
    assert_eq!(object.label("a"), Some("b"));
    let later = object.at_version(12345);
    assert_eq!(later.metadata_value()["resourceVersion"], "12345");
    assert_eq!(later.value()["data"], json!({"x": "1"}));
    let dry: Value = serde_json::from_slice(&config_map("one", "1").without_version()).unwrap();
    assert_eq!(dry["metadata"], json!({"name": "one", "uid": "u", "labels": {"a": "b"}}));
}

#[test]
fn metadata_may_be_empty() {
    let draft = Draft::from_object(&json!({"kind": "X", "apiVersion": "v1"}));
    assert_eq!(serde_json::from_slice::<Value>(&draft.without_version()).unwrap()["metadata"], json!({}));
    assert_eq!(draft.at(7).metadata_value(), json!({"resourceVersion": "7"}));
}

#[test]
fn who_was_too_late_is_told() {
    let store = Store::new(8);
    let key = key("default", "one");
    let first = store.put(&maps(), &key, None, config_map("one", "1")).unwrap();
    assert_eq!(store.put(&maps(), &key, None, config_map("one", "2")).unwrap_err(), Raced);
    let second = store.put(&maps(), &key, Some(first.version), config_map("one", "2")).unwrap();
    assert_eq!(store.remove(&maps(), &key, first.version).unwrap_err(), Raced);
    store.remove(&maps(), &key, second.version).unwrap();
    assert!(store.get("configmaps", &key).is_none());
}

#[test]
fn news_have_every_change_until_history_forgets_it() {
    let store = Store::new(2);
    let began = store.version();
    let mut versions = Vec::new();
    for name in ["a", "b", "c"] {
        versions.push(store.put(&maps(), &key("", name), None, config_map(name, "1")).unwrap().version);
    }
    assert_eq!(store.news("configmaps", began).err(), Some(Compacted(versions[0])));
    let news = store.news("configmaps", versions[0]).unwrap();
    assert_eq!(news.events.iter().map(|event| &*event.key).collect::<Vec<_>>(), ["b", "c"]);
    store.remove(&maps(), &key("", "c"), versions[2]).unwrap();
    let news = store.news("configmaps", versions[2]).unwrap();
    assert_eq!(news.events[0].happening, Happening::Deleted);
    assert_eq!(news.events[0].object.metadata_value()["resourceVersion"], (versions[2] + 1).to_string());
    store.compact();
    assert!(store.news("configmaps", versions[2]).is_err());
    assert!(store.news("configmaps", store.version()).is_ok());
}

#[test]
fn no_watch_begins_before_the_end_of_a_kind() {
    let store = Store::new(8);
    let before = store.put(&maps(), &key("", "a"), None, config_map("a", "1")).unwrap().version;
    store.remove(&maps(), &key("", "a"), before).unwrap();
    let end = store.version();
    store.forget("configmaps");
    assert_eq!(store.news("configmaps", before).err(), Some(Compacted(end)));
    store.put(&maps(), &key("", "b"), None, config_map("b", "1")).unwrap();
    assert_eq!(store.news("configmaps", before).err(), Some(Compacted(end)));
    assert_eq!(store.news("configmaps", end).unwrap().events.len(), 1);
}

#[test]
fn pages_go_on_where_they_ended_and_stay_in_their_namespace() {
    let store = Store::new(8);
    for (namespace, name) in [("a", "x"), ("a-b", "y"), ("a", "z"), ("b", "x")] {
        store.put(&maps(), &key(namespace, name), None, config_map(name, "1")).unwrap();
    }
    let names = |page: &Page| page.items.iter().map(|(key, _)| key.to_string()).collect::<Vec<_>>();
    // As in the real server, sort by the text with the slash.
    assert_eq!(names(&store.list("configmaps", "", None, 9, |_, _| true)), ["a-b/y", "a/x", "a/z", "b/x"]);
    let page = store.list("configmaps", "a/", None, 1, |_, _| true);
    assert_eq!((names(&page), page.remaining), (vec!["a/x".to_owned()], 1));
    let page = store.list("configmaps", "a/", Some("a/x\0"), 1, |_, _| true);
    assert_eq!((names(&page), page.remaining), (vec!["a/z".to_owned()], 0));
}

#[test]
fn what_is_alike_is_kept_once_and_forgotten_with_its_last_object() {
    let of = |uid: &str, state: &str| {
        let metadata = json!({"name": "one", "uid": uid});
        let status = json!({"state": state});
        Draft::from_object(&json!({"kind": "X", "apiVersion": "v1", "spec": {"text": "a".repeat(4_000)}, "metadata": metadata, "status": status})).at(1)
    };
    let (one, other) = (of("1", "a"), of("2", "b"));
    assert!(Arc::ptr_eq(&one.shared, &other.shared));
    assert_eq!(
        (one.value()["status"].clone(), other.value()["status"].clone()),
        (json!({"state": "a"}), json!({"state": "b"}))
    );
    assert_eq!(one.value()["spec"], other.value()["spec"]);
    let kept = Arc::downgrade(&one.shared);
    drop((one, other));
    assert!(kept.upgrade().is_none());
}
