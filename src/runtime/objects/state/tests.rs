use serde_json::json;

use super::*;
use tidegate_core::{
    object::Object,
    render::{Mark, SharedObjects},
};

fn objects(contents: &[(&str, &str)]) -> Arc<SharedObjects> {
    let objects: Vec<Object> = contents
        .iter()
        .map(|(name, text)| {
            Object::new(json!({
                "apiVersion": "v1", "kind": "ConfigMap",
                "metadata": {"name": name, "namespace": "n"}, "data": {"text": text},
            }))
            .unwrap()
        })
        .collect();
    Arc::new(SharedObjects::new(&objects, Mark::Module, &|_| None))
}

fn live(name: &str, resource_version: &str) -> Metadata {
    Metadata {
        id: ObjectId::new("", "ConfigMap", "n", name),
        version: "v1".into(),
        uid: String::new(),
        resource_version: resource_version.to_owned(),
        generation: 0,
        labels: BTreeMap::new(),
        annotations: BTreeMap::new(),
        finalizers: Vec::new(),
        managers: Vec::new(),
        deleting: false,
        last_other: None,
        claims_texts: false,
        has_user_writes: false,
        owners: Vec::new(),
        unreadable: None,
    }
}

fn at(resource_version: &str) -> Seen {
    Seen::At(Version::from_metadata(&live("a", resource_version)))
}

#[test]
fn a_new_process_believes_the_digest_in_the_status() {
    let wanted = objects(&[("a", "1"), ("b", "1")]);
    let recorded = wanted.digest.to_string();
    let before = |recorded: Option<&str>| Applied::before(&wanted, None, recorded, &wanted.digest);
    assert_eq!(before(Some(&recorded)).missing(), Vec::<usize>::new());
    assert_eq!(before(Some("other")).missing(), [0, 1]);
    assert_eq!(before(None).missing(), [0, 1]);
    // Some may be as they were, which a comparison finds out.
    let follows = |recorded: Option<&str>| before(recorded).follows_another;
    assert_eq!([Some(recorded.as_str()), Some("other"), None].map(follows), [false, true, false]);
    let next = |former: Applied| Applied::before(&wanted, Some(former), Some("other"), &wanted.digest).follows_another;
    assert!(next(before(Some("other"))), "the pass before ended early");
    let applied = Applied { seen: vec![at("1"), at("2")].into(), ..before(Some("other")) };
    assert!(!next(applied), "this process has applied all of them");
}

#[test]
fn only_what_changed_between_two_versions_is_sent() {
    let old = objects(&[("a", "1"), ("b", "1"), ("c", "1")]);
    let new = objects(&[("a", "1"), ("b", "2"), ("d", "1")]);
    let former =
        Applied { objects: Arc::clone(&old), seen: vec![at("1"), at("2"), at("3")].into(), follows_another: false };
    let applied = Applied::before(&new, Some(former), None, &new.digest);
    assert_eq!(applied.seen.as_ref(), [at("1"), Seen::Missing, Seen::Missing]);
}

#[test]
fn a_check_finds_what_is_gone_and_what_changed() {
    let wanted = objects(&[("a", "1"), ("b", "1"), ("c", "1"), ("d", "1")]);
    let seen = vec![at("1"), at("2"), at("3"), Seen::Recorded].into();
    let mut applied = Applied { objects: wanted, seen, follows_another: false };
    let found: LiveObjects =
        [live("a", "1"), live("b", "9"), live("d", "4")].into_iter().map(|live| (live.id.clone(), live)).collect();
    let suspects = applied.check(&found);
    assert_eq!(suspects, [1, 3], "another version, and one that was never read");
    assert_eq!(applied.missing(), [2], "the one that is gone");
}

/// The read of their content may fail, and this pass may be the last one for a long time.
#[test]
fn what_an_earlier_process_left_is_missing_until_its_content_is_compared() {
    let wanted = objects(&[("a", "1"), ("b", "1"), ("c", "1"), ("d", "1")]);
    let ours = |name: &str| Metadata { managers: vec![FIELD_MANAGER.to_owned()], ..live(name, "1") };
    let found = [ours("a"), Metadata { deleting: true, ..ours("b") }, live("c", "1")];
    let found: LiveObjects = found.into_iter().map(|metadata| (metadata.id.clone(), metadata)).collect();
    let applied = Applied::before(&wanted, None, None, &wanted.digest);
    assert_eq!(applied.recognize(&found), [0], "it is there, not being deleted, and applied by us");
    assert_eq!(applied.missing(), [0, 1, 2, 3]);
}

#[test]
fn what_is_held_stays_until_nothing_is_held_any_more() {
    let wanted = objects(&[("a", "1"), ("b", "1"), ("c", "1")]);
    let version = Version::from_metadata(&live("a", "1"));
    let mut applied = Applied {
        objects: Arc::clone(&wanted),
        seen: vec![at("1"), Seen::Held(version), Seen::Recorded].into(),
        follows_another: false,
    };
    assert_eq!(applied.missing(), Vec::<usize>::new());
    assert!(applied.is_complete());
    assert!(Seen::Held(version).is_at(Some(&live("a", "1"))));
    let found: LiveObjects =
        ["a", "b", "c"].map(|name| live(name, "1")).into_iter().map(|one| (one.id.clone(), one)).collect();
    assert_eq!(applied.check(&found), [2], "what an earlier process recorded is compared");
    // What an earlier process recorded may have been held.
    assert_eq!(applied.released().missing(), [1, 2]);
}
