use k8s_openapi::jiff::Timestamp;
use serde_json::json;
use tidegate_cluster::Owner;
use tidegate_core::api::{names::annotation, shared::Time};

use super::*;

fn manifest() -> Manifest {
    let mut manifest: Manifest = serde_json::from_value(json!({
        "apiVersion": "operator.kyma-project.io/v1beta2", "kind": "Manifest",
        "metadata": {"name": "eu-cache", "namespace": "kcp-system", "finalizers": ["theirs"]},
        "spec": {"remote": true, "install": {"name": "raw-manifest", "source": {}}},
        "status": {"state": "Ready", "synced": [
            {"group": "", "version": "v1", "kind": "ConfigMap", "name": "a", "namespace": "kyma-system"},
            {"group": "apps", "version": "v1", "kind": "Deployment", "name": "b", "namespace": "kyma-system"},
        ]},
    }))
    .unwrap();
    manifest.metadata.deletion_timestamp = Some(Time(Timestamp::UNIX_EPOCH));
    manifest
}

fn object(kind: &str, name: &str) -> ObjectId {
    ObjectId::new("", kind, "kyma-system", name)
}

fn cache(name: &str, deleting: bool) -> Metadata {
    Metadata {
        id: object("Cache", name),
        version: "v1".into(),
        uid: "1".to_owned(),
        resource_version: "1".to_owned(),
        generation: 1,
        labels: [].into(),
        annotations: [].into(),
        finalizers: Vec::new(),
        managers: Vec::new(),
        deleting,
        last_other: None,
        claims_texts: false,
        has_user_writes: false,
        owners: Vec::new(),
        unreadable: None,
    }
}

fn waiting(facts: &ManifestFacts) -> &str {
    match &facts.outcome {
        ManifestOutcome::Deleting(waiting) => waiting,
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_unmanaged_manifest_leaves_its_objects() {
    let mut manifest = manifest();
    assert_eq!(start(&manifest), Removal::Remove);
    for (value, expected) in [("true", Removal::Release), ("false", Removal::Remove)] {
        manifest.metadata.annotations = Some([(annotation::IS_UNMANAGED.to_owned(), value.to_owned())].into());
        assert_eq!(start(&manifest), expected, "{value}");
    }
}

#[test]
fn the_default_custom_resource_goes_once_it_is_the_only_one() {
    let (ours, going, theirs) = (cache("default", false), cache("default", true), cache("mine", false));
    let default = ours.id.clone();
    let of_users =
        |first: &str| ModuleResources::Wait(format!("waiting for module crs deletion: Cache kyma-system/{first}"));
    let of_default = "waiting for the default module CR Cache kyma-system/default to be deleted";
    for (default, present, expected) in [
        (Some(&default), vec![], ModuleResources::Gone),
        (Some(&default), vec![ours.clone()], ModuleResources::Delete(&ours)),
        (Some(&default), vec![going], ModuleResources::Wait(of_default.to_owned())),
        (Some(&default), vec![ours.clone(), theirs.clone()], of_users("mine")),
        (Some(&default), vec![ours.clone(), theirs.clone(), cache("more", false)], of_users("mine (and 1 more)")),
        (Some(&default), vec![theirs], of_users("mine")),
        // Where users make the default one as well, it is one of theirs.
        (None, vec![ours.clone()], of_users("default")),
        (None, vec![], ModuleResources::Gone),
    ] {
        assert_eq!(module_resources(default, &present, false), expected, "{default:?} of {present:?}");
    }
}

/// A version without `spec.data` follows one with it: what Tidegate made for the former is no user's.
#[test]
fn a_default_custom_resource_that_no_version_declares_any_more_goes_with_the_module() {
    let made =
        |name: &str| Metadata { managers: vec![FIELD_MANAGER.to_owned(), "kubectl".to_owned()], ..cache(name, false) };
    let with = |metadata: Metadata, label: Option<&str>, owner: Option<&str>| Metadata {
        labels: label.map(|value| (label::MANAGED_BY.to_owned(), value.to_owned())).into_iter().collect(),
        annotations: owner.map(|value| (annotation::OWNED_BY.to_owned(), value.to_owned())).into_iter().collect(),
        ..metadata
    };
    let mut declaring = manifest();
    declaring.spec.resource = Some(json!({
        "apiVersion": "v1", "kind": "Cache", "metadata": {"name": "declared", "namespace": "kyma-system"},
    }));
    let mut recording = manifest();
    let synced =
        json!([{"group": "", "version": "v1", "kind": "Cache", "name": "recorded", "namespace": "kyma-system"}]);
    recording.status.as_mut().unwrap().synced = serde_json::from_value(synced).unwrap();
    let siblings = [Arc::new(manifest()), Arc::new(declaring), Arc::new(recording)];
    let unreadable = Metadata { unreadable: Some("a label is a number".into()), ..made("unreadable") };
    for (metadata, expected) in [
        (made("default"), true),
        (Metadata { id: ObjectId::new("", "Cache", "", "default"), ..made("default") }, true),
        (cache("mine", false), false),
        // A user has changed its spec, or its controller has.
        (Metadata { generation: 2, has_user_writes: true, ..made("changed") }, false),
        (Metadata { generation: 2, ..made("defaulted") }, true),
        // Another module declares it, or contains it.
        (made("declared"), false),
        (Metadata { id: ObjectId::new("", "Cache", "", "declared"), ..made("declared") }, false),
        (made("recorded"), false),
        // An object of a module, and one that was a module's and is the user's.
        (with(made("labelled"), Some(MANAGED_BY_SKR), Some("kcp-system/eu-cache")), false),
        (with(made("released"), None, Some("kcp-system/eu-cache")), false),
        (unreadable, false),
    ] {
        let (former, others) = former_defaults(&siblings, vec![metadata.clone()]);
        assert_eq!((former.len(), others.len()), if expected { (1, 0) } else { (0, 1) }, "{metadata:?}");
    }
}

/// A version gives the default custom resource another name: what Tidegate made under the former one is no user's.
#[test]
fn a_default_custom_resource_that_a_version_renames_goes_with_the_module() {
    let kind = Kind::new(Gvk::new("", "v1", "Cache"), "caches", true);
    let made = Metadata { managers: vec![FIELD_MANAGER.to_owned()], ..cache("former", false) };
    let mut manifest = manifest();
    manifest.spec.resource = Some(json!({
        "apiVersion": "v1", "kind": "Cache", "metadata": {"name": "default", "namespace": "kyma-system"},
    }));
    let siblings = [Arc::new(manifest.clone())];
    let goes = |manifest: &Manifest, kinds: &[Kind], metadata: &Metadata| {
        !former_defaults_of_kind(manifest, &siblings, kinds, &kind, vec![metadata.clone()]).0.is_empty()
    };
    let own = [kind.clone()];
    assert!(goes(&manifest, &own, &made));
    assert!(!goes(&manifest, &[], &made), "its kind may be that of another module");
    assert!(!goes(&manifest, &own, &cache("mine", false)), "a user made it");
    let changed = Metadata { generation: 2, ..made.clone() };
    assert!(goes(&manifest, &own, &changed), "its controller changed it");
    assert!(!goes(&manifest, &own, &Metadata { has_user_writes: true, ..changed }), "a user changed it");
    assert!(!goes(&manifest, &own, &Metadata { id: object("Cache", "default"), ..made.clone() }), "it has its place");
    manifest.spec.custom_resource_policy = CustomResourcePolicy::Ignore;
    assert!(!goes(&manifest, &own, &made), "users make them");
}

/// A pass that fails, or a definition that is deleted meanwhile, may take the Manifest with its record.
#[test]
fn the_default_custom_resource_stays_until_the_runtime_shows_that_its_module_goes() {
    let ours = cache("default", false);
    let waits = "waiting for the default module CR Cache kyma-system/default to be deleted";
    let present = [ours.clone()];
    let expected = ModuleResources::Wait(waits.to_owned());
    assert_eq!(module_resources(Some(&ours.id), &present, true), expected);
    assert_eq!(module_resources(Some(&ours.id), &[], true), ModuleResources::Gone);
}

#[test]
fn while_custom_resources_are_there_every_object_stays_recorded() {
    let facts = resource_facts(&manifest(), "because".to_owned());
    assert_eq!((waiting(&facts), facts.synced.len()), ("because", 2));
}

#[test]
fn objects_go_in_the_reverse_order_of_apply() {
    let ids: Vec<String> = to_prune(&manifest()).iter().map(|prune| prune.id.to_string()).collect();
    assert_eq!(ids, ["Deployment.apps kyma-system/b", "ConfigMap kyma-system/a"]);
}

#[test]
fn what_is_not_gone_yet_holds_the_manifest_and_what_is_kept_does_not() {
    let (one, two) = (object("ConfigMap", "a"), object("ConfigMap", "b"));
    let kept = PruneReport { kept: vec![one.clone()], ..PruneReport::default() };
    assert!(matches!(ending(&manifest(), &kept), Ending::Gone));
    for (left, expected) in [
        (vec![two.clone()], "deletion is not yet finished: ConfigMap kyma-system/b"),
        (vec![two, object("ConfigMap", "c")], "deletion is not yet finished: ConfigMap kyma-system/b (and 1 more)"),
    ] {
        let pruned = PruneReport { waiting: left, gone: vec![one.clone()], ..PruneReport::default() };
        let Ending::Wait(facts) = ending(&manifest(), &pruned) else { panic!("{pruned:?} is not waited for") };
        assert_eq!(waiting(&facts), expected);
        assert_eq!(facts.synced.len(), 1, "what is gone leaves the inventory");
    }
}

#[test]
fn finalizers_of_others_are_named_and_nothing_else_holds_it() {
    assert!(finalizer_facts(&[]).is_none());
    let facts = finalizer_facts(&["one".to_owned(), "two".to_owned()]).unwrap();
    assert_eq!(waiting(&facts), "waiting as other finalizers are present: [one two]");
    assert_eq!(facts.synced, vec![]);
    assert_eq!(finalizer_check(), retry::DEPENDENCY_POLL_MAX);
    assert!(recorded::is_released(&released(&manifest())));
}

#[test]
fn e19_custom_resources_of_users_hold_every_definition_of_a_module() {
    let mut of_module = cache("own", false);
    of_module.id = object("ConfigMap", "a");
    let mut labelled = cache("labelled", false);
    labelled.labels = [(label::MANAGED_BY.to_owned(), MANAGED_BY_SKR.to_owned())].into();
    let owned = |name: &str, group: &str, kind: &str, owner: &str| Metadata {
        owners: vec![Owner { group: group.into(), kind: kind.into(), name: owner.into() }],
        ..cache(name, false)
    };
    let kinds = [Kind::new(Gvk::new("example.org", "v1", "Pool"), "pools", true)];
    // The module's controller has made them, for a custom resource of a user or for the module.
    let controlled = owned("controlled", "example.org", "Pool", "any");
    let of_object = owned("of-object", "", "ConfigMap", "a");
    // A user's own controller has made it.
    let foreign = owned("foreign", "apps", "Deployment", "theirs");
    let (mine, yours) = (cache("mine", false), cache("yours", true));
    let one = "waiting for module crs deletion: Cache kyma-system/mine";
    for (present, expected) in [
        (vec![], None),
        (vec![of_module.clone(), labelled.clone(), controlled.clone(), of_object], None),
        (vec![foreign], Some("waiting for module crs deletion: Cache kyma-system/foreign".to_owned())),
        (vec![controlled, mine.clone()], Some(one.to_owned())),
        (vec![mine.clone(), yours.clone(), labelled], Some(format!("{one} (and 1 more)"))),
    ] {
        let siblings = [Arc::new(manifest())];
        let found = users_resources(&manifest(), &siblings, &kinds, &present);
        assert_eq!(found.map(|(message, _)| message), expected);
    }
    let held = Metadata { finalizers: vec!["example.org/a".to_owned(), "example.org/b".to_owned()], ..yours.clone() };
    for (present, expected) in [
        (vec![mine.clone()], "the deletion of Cache kyma-system/mine by their users"),
        (vec![mine.clone(), held.clone()], "the deletion of Cache kyma-system/mine (and 1 more) by their users"),
        (vec![yours], "the deletion of Cache kyma-system/yours"),
        // The first is being deleted. The second waits for a user, so the text names that one.
        (vec![held.clone(), mine], "the deletion of Cache kyma-system/mine (and 1 more) by their users"),
    ] {
        let found = users_resources(&manifest(), &[], &kinds, &present);
        assert_eq!(found.map(|(_, fact)| fact), Some(WaitFact::For(expected.to_owned())));
        assert_eq!(holding(None, &present), WaitFact::For(expected.to_owned()));
    }
    // The default one, which Tidegate has deleted.
    let expected = "the deletion of Cache kyma-system/yours; these finalizers of it remain, see the controllers that \
                    set them: example.org/a, example.org/b";
    assert_eq!(holding(Some(&held.id), std::slice::from_ref(&held)), WaitFact::For(expected.to_owned()));
    for free in [Metadata { finalizers: Vec::new(), ..held.clone() }, Metadata { deleting: false, ..held.clone() }] {
        assert_eq!(holding(Some(&held.id), std::slice::from_ref(&free)), WaitFact::Nothing);
    }
    let kinds = ["Cache", "Letter"].map(|kind| Kind::new(Gvk::new("example.org", "v1", kind), "any", true));
    let others = |default: Option<&Gvk>| -> Vec<String> {
        other_kinds(&kinds, default).into_iter().map(|kind| kind.gvk.kind.to_string()).collect()
    };
    assert_eq!(others(None), ["Cache", "Letter"]);
    assert_eq!(others(Some(&Gvk::new("example.org", "v2", "Cache"))), ["Letter"]);
    let mut defines = manifest();
    for name in ["caches.example.org", "kymas.operator.kyma-project.io"] {
        let synced = json!({"group": "apiextensions.k8s.io", "version": "v1", "kind": "CustomResourceDefinition",
            "name": name, "namespace": ""});
        defines.status.as_mut().unwrap().synced.push(serde_json::from_value(synced).unwrap());
    }
    assert_eq!(definitions(&defines), [Arc::from("caches.example.org")], "what every runtime has stays");
}
