use serde_json::{Value, json};
use tidegate_core::{
    api::manifest::{ManifestStatus, SyncedObject},
    object::Object,
    render::Mark,
};

use super::*;

/// A Manifest of runtime `eu` in `kcp-system`.
fn manifest(name: &str) -> Manifest {
    serde_json::from_value(json!({
        "apiVersion": "operator.kyma-project.io/v1beta2", "kind": "Manifest",
        "metadata": {"name": name, "namespace": "kcp-system", "labels": {label::KYMA_NAME: "eu"}},
        "spec": {"remote": true, "install": {"name": "raw-manifest", "source": {}}},
    }))
    .unwrap()
}

fn id() -> ObjectId {
    ObjectId::new("", "ConfigMap", "kyma-system", "a")
}

/// The ConfigMap in the runtime, as `kubectl` left it, but for `labels` and `annotations`.
fn metadata(labels: Value, annotations: Value, managers: &[&str]) -> Metadata {
    Metadata {
        id: id(),
        version: "v1".into(),
        uid: "1".to_owned(),
        resource_version: "1".to_owned(),
        generation: 0,
        labels: serde_json::from_value(labels).unwrap(),
        annotations: serde_json::from_value(annotations).unwrap(),
        finalizers: Vec::new(),
        managers: managers.iter().map(|&name| name.to_owned()).collect(),
        deleting: false,
        last_other: None,
        claims_texts: false,
        has_user_writes: false,
        owners: Vec::new(),
        unreadable: None,
    }
}

fn marked_for(owner: &str) -> Metadata {
    metadata(json!({label::MANAGED_BY: MANAGED_BY_SKR}), json!({annotation::OWNED_BY: owner}), &["tidegate"])
}

/// Whose the object is for Manifest `eu-cache`, with sibling `eu-other` and, of another runtime, `us-cache`.
#[track_caller]
fn check(metadata: &Metadata, expected: Option<&str>) {
    let (own, siblings) = (manifest("eu-cache"), [Arc::new(manifest("eu-cache")), Arc::new(manifest("eu-other"))]);
    let exists = |key: &Key| *key == Key::new("kcp-system", "us-cache");
    let ownership = Ownership { manifest: &own, siblings: &siblings, exists: &exists };
    assert_eq!(ownership.owner(metadata).as_deref(), expected);
}

#[test]
fn what_bears_no_mark_belongs_to_its_managers() {
    check(&metadata(json!({}), json!({}), &["helm", "kubectl"]), Some("managed by helm, kubectl"));
    check(&metadata(json!({}), json!({}), &[]), Some("it has no field manager"));
    check(&metadata(json!({label::MANAGED_BY: "theirs"}), json!({}), &["kubectl"]), Some("managed by kubectl"));
}

#[test]
fn what_bears_the_mark_belongs_to_the_manifest_that_it_names_while_that_exists() {
    check(&marked_for("kcp-system/eu-cache"), None);
    check(&marked_for("kcp-system/eu-other"), Some("it belongs to Manifest eu-other"));
    check(&marked_for("kcp-system/us-cache"), Some("it belongs to Manifest us-cache"));
    check(&metadata(json!({label::MANAGED_BY: MANAGED_BY_SKR}), json!({}), &[]), None);
    check(&marked_for("nonsense"), Some("managed by tidegate"));
}

#[test]
fn what_a_manifest_of_this_runtime_left_behind_is_ours() {
    check(&marked_for("kcp-system/eu-gone"), None);
    check(&marked_for("kcp-system/eu"), None);
    let of_another = "it belongs to kcp-system/europe-gone, which this control plane does not have";
    check(&marked_for("kcp-system/europe-gone"), Some(of_another));
    let elsewhere = "it belongs to other/eu-gone, which this control plane does not have";
    check(&marked_for("other/eu-gone"), Some(elsewhere));
}

#[test]
fn what_was_handed_to_the_user_by_our_own_hand_may_be_handed_back() {
    let own = manifest("eu-cache");
    let ownership = Ownership { manifest: &own, siblings: &[], exists: &|_| false };
    let conflicts = |metadata: Metadata| {
        ownership.held_by_others([(id(), metadata)].into()).into_values().next().map(|owner| owner.to_string())
    };
    let ours = json!({annotation::OWNED_BY: "kcp-system/eu-cache"});
    assert_eq!(conflicts(metadata(json!({}), ours.clone(), &[FIELD_MANAGER, "kubectl"])), None);
    assert_eq!(conflicts(metadata(json!({}), ours.clone(), &["kubectl"])), Some("managed by kubectl".to_owned()));
    let theirs = json!({annotation::OWNED_BY: "kcp-system/eu-other"});
    assert!(conflicts(metadata(json!({}), theirs.clone(), &[FIELD_MANAGER])).is_some());
    // Lifecycle Manager handed it over, before a take-over.
    const APPLIER: &str = "declarative.kyma-project.io/applier";
    assert_eq!(conflicts(metadata(json!({}), ours.clone(), &[APPLIER])), None);
    assert_eq!(conflicts(metadata(json!({}), theirs, &[APPLIER])), Some(format!("managed by {APPLIER}")));
    assert_eq!(conflicts(metadata(json!({}), json!({}), &[APPLIER])), Some(format!("managed by {APPLIER}")));
    // Another manager of Lifecycle Manager applies no objects of modules, and a label of others is no ownership label.
    assert!(conflicts(metadata(json!({}), ours.clone(), &["lifecycle-manager"])).is_some());
    assert!(conflicts(metadata(json!({label::MANAGED_BY: "theirs"}), ours, &[APPLIER])).is_some());
}

#[test]
fn of_two_modules_that_bring_one_object_the_first_has_it_unless_the_other_has_it_already() {
    let object =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "namespace": "kyma-system"}});
    let objects = Arc::new(SharedObjects::new(&[Object::new(object).unwrap()], Mark::Module, &|_| None));
    let nothing = Arc::new(SharedObjects::new(&[], Mark::Module, &|_| None));
    let has_it = |mut manifest: Manifest| {
        let synced = SyncedObject {
            kind: "ConfigMap".into(),
            name: "a".into(),
            namespace: "kyma-system".into(),
            version: "v1".into(),
            ..SyncedObject::default()
        };
        manifest.status = Some(ManifestStatus { synced: vec![synced], ..ManifestStatus::default() });
        manifest
    };
    let goes = |mut manifest: Manifest| {
        manifest.metadata.deletion_timestamp =
            Some(tidegate_core::api::shared::Time(k8s_openapi::jiff::Timestamp::UNIX_EPOCH));
        manifest
    };
    let other = || manifest("eu-b");
    let noted = |mut manifest: Manifest, label: Option<&str>, annotation: Option<&str>| {
        let one = |name: Option<&str>| name.map(|name| BTreeMap::from([(name.to_owned(), "true".to_owned())]));
        (manifest.metadata.labels, manifest.metadata.annotations) = (one(label), one(annotation));
        manifest
    };
    let unmanaged = || noted(goes(has_it(other())), None, Some(annotation::IS_UNMANAGED));
    let paused = || noted(has_it(other()), Some(label::SKIP_RECONCILIATION), None);
    let sibling = || Some(Owner::Sibling("eu-b".to_owned()));
    let leaving = || Some(Owner::Leaving("eu-b".to_owned()));
    let (brings, lacks, unread) = (Some(true), Some(false), None);
    for (own, other, read, expected) in [
        ("eu-a", other(), brings, None),
        ("eu-c", other(), brings, sibling()),
        ("eu-c", other(), lacks, None),
        ("eu-c", other(), unread, None),
        ("eu-c", goes(other()), brings, None),
        ("eu-a", has_it(other()), brings, sibling()),
        ("eu-a", has_it(other()), lacks, leaving()),
        ("eu-a", has_it(other()), unread, leaving()),
        ("eu-c", goes(has_it(other())), brings, leaving()),
        // It deletes nothing, whatever its module contains.
        ("eu-a", unmanaged(), lacks, sibling()),
        ("eu-c", unmanaged(), brings, sibling()),
        ("eu-a", paused(), lacks, sibling()),
        ("eu-c", goes(paused()), unread, sibling()),
        // It gets nothing that it does not have.
        ("eu-c", noted(other(), Some(label::SKIP_RECONCILIATION), None), brings, None),
    ] {
        let own = manifest(own);
        let mut siblings = [Arc::new(own.clone()), Arc::new(other)];
        siblings.sort_by(|one, other| one.metadata.name.cmp(&other.metadata.name));
        let ownership = Ownership { manifest: &own, siblings: &siblings, exists: &|_| false };
        let held = ownership
            .held_by_siblings(&[&objects.objects[0]], |_| match read {
                Some(true) => Some(Arc::clone(&objects)),
                Some(false) => Some(Arc::clone(&nothing)),
                None => None,
            })
            .into_values()
            .next();
        assert_eq!(held, expected, "{:?}, {read:?}", siblings.map(|s| s.metadata.name.clone()));
    }
}

#[test]
fn only_an_object_that_may_have_an_unknown_owner_is_looked_up() {
    let object = |annotations: Value| {
        let metadata = json!({"name": "a", "namespace": "kyma-system", "annotations": annotations});
        Object::new(json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata})).unwrap()
    };
    let plain = SharedObjects::new(&[object(json!({}))], Mark::Module, &|_| None);
    let adoptable = SharedObjects::new(&[object(json!({annotation::ADOPT: "true"}))], Mark::Module, &|_| None);
    let name = || "eu-b".to_owned();
    for (objects, owner, expected) in [
        (&plain, None, true),
        (&plain, Some(Owner::Sibling(name())), false),
        (&plain, Some(Owner::Leaving(name())), true),
        (&adoptable, None, false),
        (&adoptable, Some(Owner::Sibling(name())), false),
        (&adoptable, Some(Owner::Leaving(name())), true),
    ] {
        let text = format!("{owner:?}, may be adopted: {}", objects.objects[0].adopt);
        let held: Conflicts = owner.into_iter().map(|owner| (id(), owner)).collect();
        assert_eq!(to_look_up(&[&objects.objects[0]], &held).len(), usize::from(expected), "{text}");
    }
}

#[test]
fn what_is_looked_up_belongs_to_a_sibling_to_others_or_to_no_one() {
    let with = |name: &str, labels: Value| {
        let id = ObjectId::new("", "ConfigMap", "kyma-system", name);
        (id.clone(), Metadata { id, ..metadata(labels, json!({}), &["kubectl"]) })
    };
    let (own, siblings) = (manifest("eu-a"), [Arc::new(manifest("eu-b"))]);
    let ownership = Ownership { manifest: &own, siblings: &siblings, exists: &|_| false };
    let marked = json!({label::MANAGED_BY: MANAGED_BY_SKR});
    let (sibling, others, ours) = (with("b", marked.clone()), with("other", json!({})), with("ours", marked));
    let held: Conflicts = [(sibling.0.clone(), Owner::Leaving("eu-b".to_owned()))].into();
    let (conflicts, found) = ownership.settle(held, [sibling.clone(), others.clone(), ours.clone()].into());
    assert_eq!(found.into_keys().collect::<Vec<_>>(), [others.0.clone(), ours.0]);
    let expected =
        [(sibling.0, Owner::Leaving("eu-b".to_owned())), (others.0, Owner::Other("managed by kubectl".to_owned()))];
    assert_eq!(conflicts, expected.into());
}

#[test]
fn what_a_module_no_longer_contains_may_stay_with_it() {
    let mark = json!({label::MANAGED_BY: MANAGED_BY_SKR});
    let with = |annotations: Value| metadata(mark.clone(), annotations, &["tidegate"]);
    let crd = ObjectId::new("apiextensions.k8s.io", "CustomResourceDefinition", "", "a.example.org");
    let definition = |annotations: Value| Metadata { id: crd.clone(), ..with(annotations) };
    let of = |metadata: Metadata, goes: bool| {
        let mut sibling = manifest("eu-b");
        sibling.metadata.deletion_timestamp =
            goes.then_some(tidegate_core::api::shared::Time(k8s_openapi::jiff::Timestamp::UNIX_EPOCH));
        let (own, siblings) = (manifest("eu-a"), [Arc::new(sibling)]);
        let ownership = Ownership { manifest: &own, siblings: &siblings, exists: &|_| false };
        let mut conflicts: Conflicts = [(metadata.id.clone(), Owner::Leaving("eu-b".to_owned()))].into();
        let mut found = [(metadata.id.clone(), metadata)].into();
        ownership.settle_siblings(&mut conflicts, &mut found);
        assert!(found.is_empty(), "what a sibling has is nobody else's");
        conflicts.into_values().all(|owner| owner.is_leaving())
    };
    assert!(of(with(json!({})), false));
    assert!(!of(with(json!({annotation::PRUNE: "disabled"})), false));
    assert!(of(with(json!({annotation::PRUNE: "disabled"})), true), "a Manifest that is gone keeps nothing");
    assert!(!of(definition(json!({})), false), "users may have objects of it");
    assert!(of(definition(json!({annotation::PRUNE: "enabled"})), false));
    assert!(of(definition(json!({})), true));
}

#[test]
fn what_tidegate_keeps_in_every_runtime_belongs_to_no_module() {
    let secret = |namespace: &str, name: &str| ObjectId::new("", "Secret", namespace, name);
    let crd = ObjectId::new("apiextensions.k8s.io", "CustomResourceDefinition", "", "kymas.operator.kyma-project.io");
    for (id, pull_secret, expected) in [
        (crd, None, true),
        (secret("kyma-system", "skr-webhook-tls"), None, true),
        (secret("kyma-system", "registry"), None, false),
        (secret("kyma-system", "registry"), Some("registry"), true),
        (secret("kyma-system", "other"), Some("registry"), false),
        (secret("default", "registry"), Some("registry"), false),
        (id(), Some("a"), false),
    ] {
        assert_eq!(is_of_platform(&id, pull_secret), expected, "{id}");
    }
}

#[test]
fn manifests_of_one_module_of_one_kyma_are_told_from_others() {
    let of = |name: &str, module: &str, kyma: &str| {
        let mut manifest = manifest(name);
        let labels = [(label::KYMA_NAME, kyma), (label::MODULE_NAME, module)];
        manifest.metadata.labels = Some(labels.map(|(label, value)| (label.to_owned(), value.to_owned())).into());
        manifest
    };
    let one = of("eu-cache-1", "cache", "eu");
    assert!(is_of_same_module(&one, &of("eu-cache-0", "cache", "eu")), "its component had another name");
    assert!(!is_of_same_module(&one, &of("eu-mailer-1", "mailer", "eu")));
    assert!(!is_of_same_module(&one, &of("us-cache-1", "cache", "us")));
    assert!(!is_of_same_module(&manifest("eu-cache"), &manifest("eu-other")), "nothing says of which module they are");
}
