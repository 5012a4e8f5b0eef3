use k8s_openapi::jiff::Timestamp;
use serde_json::json;
use tidegate_core::{
    api::{kyma::KymaStatus, shared::Time},
    object::ObjectId,
};

use super::*;

fn kyma(finalizers: &[&str], state: State) -> Kyma {
    let mut kyma = Kyma::default();
    kyma.metadata.finalizers = Some(finalizers.iter().map(|&name| name.to_owned()).collect());
    kyma.status = Some(KymaStatus { state, ..KymaStatus::default() });
    kyma
}

/// The Manifest of a module; with `says` it is being deleted and held, and its status says that.
fn manifest(module: &str, says: Option<&str>) -> Arc<Manifest> {
    let mut manifest: Manifest = serde_json::from_value(json!({
        "apiVersion": "operator.kyma-project.io/v1beta2", "kind": "Manifest",
        "metadata": {"name": format!("eu-{module}"), "namespace": "kcp-system", "finalizers": [finalizer::MANIFEST],
            "labels": {label::MODULE_NAME: module}},
        "spec": {"remote": true, "install": {"name": "raw-manifest", "source": {}}},
        "status": {"state": "Deleting", "lastOperation": says.map(|says| json!({"operation": says}))},
    }))
    .unwrap();
    manifest.metadata.deletion_timestamp = says.map(|_| Time(Timestamp::UNIX_EPOCH));
    Arc::new(manifest)
}

fn failed(kind: FailedKind) -> Failed {
    Failed { reason: "Unreachable", message: "no route".to_owned(), class: Class::Transient, kind }
}

#[test]
fn a_kyma_without_our_finalizer_and_manifests_has_nothing_to_remove() {
    let one = [manifest("cache", None)];
    for (finalizers, manifests, expected) in [
        (&[finalizer::KYMA][..], &[][..], Start::Remove),
        (&["theirs"], &[], Start::Gone),
        (&[], &[], Start::Gone),
        (&["theirs"], &one, Start::Remove),
    ] {
        assert_eq!(start(&kyma(finalizers, State::Ready), manifests), expected, "{finalizers:?}");
    }
}

#[test]
fn only_a_runtime_that_nothing_names_a_way_to_is_abandoned() {
    for (kind, expected) in [
        (FailedKind::NoAccess, NoAccess::Abandon),
        (FailedKind::BadAccess, NoAccess::Wait),
        (FailedKind::Unreachable, NoAccess::Wait),
        (FailedKind::Wrong, NoAccess::Wait),
        (FailedKind::Stale, NoAccess::Wait),
    ] {
        assert_eq!(without_access(&failed(kind)), expected, "{kind:?}");
    }
}

#[test]
fn modules_are_asked_to_go_once() {
    assert!(deletes_modules(&[manifest("one", Some("going")), manifest("two", None)]));
    assert!(!deletes_modules(&[manifest("one", Some("going"))]));
    assert!(!deletes_modules(&[]));
}

#[test]
fn the_kyma_says_that_it_is_deleted_before_anything_goes() {
    let one = [manifest("cache", Some("going"))];
    let facts = first_facts(&kyma(&[], State::Ready), &one).unwrap();
    assert_eq!((facts.deleting.as_deref(), facts.modules.len()), (Some("waiting for modules to be deleted"), 1));
    assert!(first_facts(&kyma(&[], State::Deleting), &one).is_none());
}

#[test]
fn the_kyma_in_the_runtime_goes_between_the_crds_of_the_catalog_and_its_own() {
    let rows: Vec<String> = base_objects()
        .iter()
        .map(|object| format!("{} {}: {}; {}", object.gvk.kind, object.key, object.step.reason(), object.waiting))
        .collect();
    let crd = |plural: &str, reason: &str| {
        let key = Key::new("", &format!("{plural}.operator.kyma-project.io"));
        format!("CustomResourceDefinition {key}: {reason}; waiting for the {plural} in the runtime to be deleted")
    };
    assert_eq!(
        rows,
        [
            crd("moduletemplates", "DeleteSkrModuleTemplateCrd"),
            crd("modulereleasemetas", "DeleteSkrModuleReleaseMetaCrd"),
            "Kyma kyma-system/default: DeleteSkrKyma; waiting for the Kyma in the runtime to be deleted".to_owned(),
            crd("kymas", "DeleteSkrKymaCrd"),
        ]
    );
}

#[test]
fn only_what_bears_our_mark_is_deleted_and_only_once() {
    let live = |mark: &str, deleting| Metadata {
        id: ObjectId::new("", "ConfigMap", "a", "b"),
        version: "v1".into(),
        uid: "1".to_owned(),
        resource_version: "1".to_owned(),
        generation: 0,
        labels: [(label::MANAGED_BY.to_owned(), mark.to_owned())].into(),
        annotations: [].into(),
        finalizers: Vec::new(),
        managers: Vec::new(),
        deleting,
        last_other: None,
        claims_texts: false,
        has_user_writes: false,
        owners: Vec::new(),
        unreadable: None,
    };
    let (ours, going) = (live(MANAGED_BY_SKR, false), live(MANAGED_BY_SKR, true));
    for (live, expected) in [
        (None, Fate::Gone),
        (Some(&live("theirs", false)), Fate::Gone),
        (Some(&live("theirs", true)), Fate::Gone),
        (Some(&going), Fate::Wait),
        (Some(&ours), Fate::Delete(&ours)),
    ] {
        assert_eq!(fate(live), expected);
    }
}

#[test]
fn the_base_is_waited_for_first_and_then_the_first_module_that_says_anything() {
    let (mute, speaks) = (manifest("mute", None), manifest("cache", Some("users have objects")));
    let wait = |text: &str| Progress::Wait(text.to_owned());
    let manifests = |text: &str| Progress::WaitForManifests(text.to_owned());
    for (base, left, expected) in [
        (None, vec![], Progress::Gone),
        (Some("the CRDs"), vec![], wait("the CRDs")),
        (Some("the CRDs"), vec![speaks.clone()], wait("the CRDs")),
        (None, vec![mute.clone(), speaks], manifests("module cache: users have objects")),
        (None, vec![mute], manifests("waiting for modules to be deleted")),
    ] {
        assert_eq!(progress(base.map(str::to_owned), &left), expected);
    }
}

#[test]
fn the_events_of_the_steps_have_lifecycle_managers_reasons_in_its_order() {
    let steps = [
        Step::KymaState,
        Step::RuntimeKymaState,
        Step::Manifests,
        Step::Certificate,
        Step::Webhook,
        Step::TemplateCrd,
        Step::ReleaseCrd,
        Step::RuntimeKyma,
        Step::KymaCrd,
        Step::LastManifests,
        Step::Finalizer,
    ];
    // Upstream's `DeleteMetrics` is no step here: the series of a Kyma go with it.
    assert_eq!(
        steps.map(Step::reason),
        [
            "SetKcpKymaStateDeleting",
            "SetSkrKymaStateDeleting",
            "DeleteManifests",
            "DeleteCertificateSetup",
            "DeleteSkrWebhookResources",
            "DeleteSkrModuleTemplateCrd",
            "DeleteSkrModuleReleaseMetaCrd",
            "DeleteSkrKyma",
            "DeleteSkrKymaCrd",
            "EnsureManifestDeletion",
            "DropKymaFinalizer",
        ]
    );
    assert!(stuck_note("why").ends_with("no progress for 5 minutes: why"));
}

#[test]
fn a_manifest_without_finalizers_is_not_left() {
    let mut released = Manifest::clone(&manifest("one", Some("done")));
    released.metadata.finalizers = None;
    let passed = vec![Arc::new(released), manifest("two", Some("going")), manifest("three", None)];
    assert_eq!(left(passed.clone()).len(), 2);
    assert_eq!(deleting(&passed).len(), 2);
}

#[test]
fn a_runtime_that_cannot_be_reached_says_what_would_help() {
    let of = |kind| failed_facts(&failed(kind), &[]);
    let unreachable = of(FailedKind::Unreachable);
    let hinted = "no route; the removal continues when the runtime is reachable, or when its access Secret is deleted";
    assert_eq!(unreachable.deleting.as_deref(), Some(hinted));
    assert!(unreachable.failure.unwrap().access);
    let wrong = of(FailedKind::Wrong);
    assert_eq!((wrong.deleting.as_deref(), wrong.failure.unwrap().access), (Some("no route"), false));
}

#[test]
fn a_stalled_removal_is_tried_at_the_pace_of_a_wait() {
    let class = |class| failed_class(&Failed { class, ..failed(FailedKind::Wrong) });
    assert_eq!(
        [Class::Stalled, Class::Waiting, Class::Transient].map(class),
        [Class::Waiting, Class::Waiting, Class::Transient]
    );
}

#[test]
fn what_is_older_than_the_definition_of_kymas_is_kept_for_their_return() {
    let at = |second: i64| jiff::Timestamp::from_second(second).unwrap();
    let manifest = |second: i64| {
        let mut manifest = Manifest::new("one-cache", Default::default());
        manifest.metadata.creation_timestamp = Some(tidegate_core::api::shared::Time(at(second)));
        Arc::new(manifest)
    };
    let confirmed = |second: i64| {
        let mut manifest = Manifest::clone(&manifest(second));
        let annotations = [("tidegate.dev/confirm-deletion".to_owned(), "true".to_owned())];
        manifest.metadata.annotations = Some(annotations.into());
        Arc::new(manifest)
    };
    for (since, certificate, manifests, expected) in [
        (None, Some(at(1)), vec![manifest(1)], false),
        (Some(at(5)), Some(at(1)), vec![confirmed(1)], false),
        (Some(at(5)), None, vec![confirmed(1), manifest(1)], true),
        (Some(at(5)), None, vec![], false),
        (Some(at(5)), Some(at(1)), vec![], true),
        (Some(at(5)), Some(at(6)), vec![manifest(7)], false),
        (Some(at(5)), Some(at(6)), vec![manifest(7), manifest(4)], true),
    ] {
        assert_eq!(outlived_definition(since, certificate, &manifests), expected);
    }
}
