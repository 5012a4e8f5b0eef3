use serde_json::{Value, json};
use tidegate_core::{
    api::{
        manifest::ManifestStatus,
        shared::{CustomResourcePolicy, State},
    },
    name::Key,
    plan::{Class, ComponentRecord, InstallSource, ModulePlan, Wait},
};

use super::*;
use crate::runtime::objects::fixtures::metadata;

fn rendered() -> Value {
    json!({
        "apiVersion": "operator.kyma-project.io/v1beta2", "kind": "Manifest",
        "metadata": {
            "name": "eu-cache-1", "namespace": "kcp-system",
            "labels": {"operator.kyma-project.io/module-name": "cache"},
            "finalizers": ["declarative.kyma-project.io/finalizer"],
        },
        "spec": {
            "remote": true, "version": "1.0.0", "customResourcePolicy": "CreateAndDelete",
            "install": {"name": "raw-manifest", "source": {"type": "git", "tree": "1"}},
        },
    })
}

#[track_caller]
fn check(edit: impl FnOnce(&mut Value), expected: bool) {
    let mut live = rendered();
    edit(&mut live);
    let live: Manifest = serde_json::from_value(live).unwrap();
    assert_eq!(matches(&Object::new(rendered()).unwrap(), &live), expected);
}

#[test]
fn a_manifest_is_written_only_if_it_differs() {
    check(|_| {}, true);
    check(|live| live["metadata"]["labels"]["operator.kyma-project.io/skip-reconciliation"] = json!("true"), true);
    check(|live| live["metadata"]["finalizers"] = json!(["theirs", "declarative.kyma-project.io/finalizer"]), true);
    check(|live| live["metadata"]["finalizers"] = json!([]), false);
    check(|live| live["metadata"]["labels"] = json!({}), false);
    // A release that was mandatory, or had channels.
    check(|live| live["metadata"]["labels"]["operator.kyma-project.io/mandatory-module"] = json!("true"), false);
    check(|live| live["metadata"]["labels"]["operator.kyma-project.io/channel"] = json!("regular"), false);
    // Lifecycle Manager repairs neither of these two.
    check(|live| live["spec"]["customResourcePolicy"] = json!("Ignore"), false);
    check(|live| live["spec"]["install"]["source"]["tree"] = json!("2"), false);
}

fn key() -> Key {
    Key::new("kcp-system", "eu-cache-1")
}

fn installation() -> Box<Installation> {
    Box::new(Installation {
        kyma: Key::new("kcp-system", "eu"),
        manifest_name: "eu-cache-1".to_owned(),
        module: "cache".to_owned(),
        component: "example.org/cache".to_owned(),
        version: "1.0.0".to_owned(),
        offer: Offer::Channel("regular".to_owned()),
        template: Key::new("kcp-system", "cache-1.0.0"),
        template_generation: Some(1),
        policy: CustomResourcePolicy::CreateAndDelete,
        default_resource: None,
        default_resource_cluster_scoped: false,
        manager: None,
        controller: None,
        source: InstallSource::Git {
            source: Key::new("kcp-system", "landscape"),
            path: "modules/cache".to_owned(),
            tree: "0123456789012345678901234567890123456789".parse().unwrap(),
        },
        localized_images: Vec::new(),
        record: ComponentRecord::default(),
    })
}

/// No module was released before it was dropped.
fn none() -> BTreeSet<String> {
    BTreeSet::new()
}

fn refusal(keep: bool) -> Refusal {
    Refusal { reason: "NoChannel", state: State::Error, message: "no channel".to_owned(), hint: None, keep }
}

/// An upgrade from 1.0.0 that waits. `kept` is what the old version consists of, if that is known.
fn wait(kept: Option<Installation>) -> ModuleOutcome {
    let coming = Ok(Installation { version: "1.1.0".to_owned(), ..*installation() });
    ModuleOutcome::Wait(Box::new(Wait {
        why: WaitFor::Window,
        from: "1.0.0".to_owned(),
        to: "1.1.0".to_owned(),
        next: None,
        kept,
        coming,
    }))
}

/// A plan with the module `cache`, or without modules.
fn plan(outcome: Option<ModuleOutcome>) -> RuntimePlan {
    let module = |outcome| {
        let offer = Offer::Channel("regular".to_owned());
        ModulePlan { name: "cache".to_owned(), offer, component: None, outcome }
    };
    RuntimePlan {
        kyma: Key::new("kcp-system", "eu"),
        modules: outcome.into_iter().map(module).collect(),
        mandatory: Vec::new(),
        class: Class { namespace: "kcp-system".to_owned(), beta: false, internal: false, restricted: [].into() },
    }
}

/// The live Manifest of `cache`, changed.
fn live(edit: impl FnOnce(&mut Value)) -> Arc<Manifest> {
    let mut live = rendered();
    edit(&mut live);
    Arc::new(serde_json::from_value(live).unwrap())
}

fn unmanaged() -> Arc<Manifest> {
    live(|live| live["metadata"]["annotations"] = json!({annotation::IS_UNMANAGED: "true"}))
}

fn deleting() -> Arc<Manifest> {
    live(|live| live["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z"))
}

/// The Kyma, with `cache` in its status.
fn kyma() -> Kyma {
    let status = json!({"state": "Ready", "modules": [{"name": "cache", "state": "Ready"}]});
    Kyma { status: Some(serde_json::from_value(status).unwrap()), ..Kyma::default() }
}

fn kyma_with_uid(uid: &str) -> Kyma {
    let mut kyma = kyma();
    kyma.metadata.uid = Some(uid.to_owned());
    kyma
}

/// The name of an act.
fn name(act: &Act) -> &'static str {
    match act {
        Act::Keep(None) => "absent",
        Act::Keep(Some(_)) => "keep",
        Act::Apply { live: None, .. } => "create",
        Act::Apply { live: Some(_), .. } => "apply",
        Act::Upgrade { .. } => "upgrade",
        Act::Read(_) => "read",
        Act::Release { .. } => "release",
        Act::Succeed { .. } => "succeed",
        Act::Inherit { .. } => "inherit",
        Act::TakeOver { .. } => "take over",
        Act::Retire { .. } => "retire",
        Act::End { .. } => "end",
        Act::Unmanage(_) => "unmanage",
        Act::Delete(_) => "delete",
    }
}

#[test]
fn each_module_needs_one_act() {
    let old = live(|live| live["spec"]["version"] = json!("0.9.0"));
    let same = live(|_| {});
    let install = || Some(ModuleOutcome::Install(installation()));
    let refuse = |keep| Some(ModuleOutcome::Refuse(refusal(keep)));
    for (outcome, live, expected) in [
        (install(), None, "create"),
        (install(), Some(&same), "keep"),
        (install(), Some(&old), "apply"),
        (install(), Some(&unmanaged()), "delete"),
        (install(), Some(&deleting()), "keep"),
        (Some(wait(Some(*installation()))), Some(&same), "keep"),
        // An edit is reverted.
        (Some(wait(Some(*installation()))), Some(&old), "apply"),
        (Some(wait(Some(*installation()))), Some(&deleting()), "keep"),
        (Some(wait(None)), Some(&old), "keep"),
        (refuse(true), Some(&same), "keep"),
        (refuse(false), Some(&same), "delete"),
        (refuse(false), Some(&deleting()), "keep"),
        (refuse(false), None, "absent"),
        (Some(ModuleOutcome::Unmanage), Some(&same), "unmanage"),
        (Some(ModuleOutcome::Unmanage), Some(&unmanaged()), "delete"),
        (Some(ModuleOutcome::Unmanage), None, "absent"),
        (None, Some(&same), "delete"),
        (None, Some(&deleting()), "keep"),
    ] {
        let (plan, manifests) = (plan(outcome), live.cloned().into_iter().collect::<Vec<_>>());
        let live = LiveManifests::new(&manifests, &plan);
        let desired = || Ok(Object::new(rendered()).unwrap());
        let rendered: Rendered = to_render(&plan, &live, &Unreadable::new(), None)
            .iter()
            .map(|found| (found.module.clone(), desired()))
            .collect();
        let decision = decide((&plan, &none()), &live, &rendered, &Unreadable::new(), &kyma());
        let acts: Vec<&str> = decision.steps.iter().map(|step| name(&step.act)).collect();
        assert_eq!(acts, [expected], "{:?}", plan.modules);
        assert!(decision.steps.iter().all(|step| matches!(step.role, Role::Selected(_))));
        assert_eq!(decision.problems, Vec::<String>::new());
    }
}

#[test]
fn what_is_only_noted_waits_while_the_runtime_is_as_lifecycle_manager_left_it() {
    let plan = plan(Some(ModuleOutcome::Install(installation())));
    let digest = "tidegate.dev/component-digest";
    let mut desired = rendered();
    desired["metadata"]["annotations"] = json!({digest: "sha256:1"});
    let rendered: Rendered = [("cache".to_owned(), Ok(Object::new(desired).unwrap()))].into();
    let act = |adopted: &str, edit: fn(&mut Value)| {
        let mut kyma = kyma();
        kyma.metadata.annotations = Some([("tidegate.dev/adopted".to_owned(), adopted.to_owned())].into());
        let manifests = vec![live(edit)];
        let decision =
            decide((&plan, &none()), &LiveManifests::new(&manifests, &plan), &rendered, &Unreadable::new(), &kyma);
        name(&decision.steps[0].act)
    };
    assert_eq!(act("true", |_| {}), "keep");
    assert_eq!(act("false", |_| {}), "apply");
    assert_eq!(act("true", |live| live["spec"]["version"] = json!("0.9.0")), "apply", "with the next change");
    let other = |live: &mut Value| {
        live["metadata"]["annotations"] = json!({"tidegate.dev/component-digest": "sha256:2"});
    };
    assert_eq!(act("true", other), "apply", "what is noted is not what is installed");
}

#[test]
fn a_manifest_that_cannot_be_rendered_stays_as_it_is() {
    let plan = plan(Some(ModuleOutcome::Install(installation())));
    let rendered: Rendered = [("cache".to_owned(), Err("broken".to_owned()))].into();
    for (manifests, expected) in
        [(vec![], "absent"), (vec![live(|live| live["spec"]["version"] = json!("0.9.0"))], "keep")]
    {
        let decision =
            decide((&plan, &none()), &LiveManifests::new(&manifests, &plan), &rendered, &Unreadable::new(), &kyma());
        assert_eq!(name(&decision.steps[0].act), expected);
        assert_eq!(decision.problems, ["broken"]);
    }
}

#[test]
fn nothing_is_rendered_for_a_manifest_that_goes_first() {
    let plan = plan(Some(ModuleOutcome::Install(installation())));
    let released = live(|live| {
        live["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        live["metadata"]["finalizers"] = json!([]);
    });
    for (manifests, expected) in [
        (vec![], 1),
        (vec![live(|_| {})], 1),
        (vec![unmanaged()], 0),
        // Its removal may wait, and a new version may complete it.
        (vec![deleting()], 1),
        (vec![released], 0),
    ] {
        assert_eq!(to_render(&plan, &LiveManifests::new(&manifests, &plan), &Unreadable::new(), None).len(), expected);
    }
}

/// The same with the label of a mandatory module.
fn mandatory() -> Arc<Manifest> {
    live(|live| live["metadata"]["labels"][label::MANDATORY_MODULE] = json!("true"))
}

/// A plan with `cache` as a mandatory module, and as one that the Kyma selects.
fn mandatory_plan(outcome: Option<ModuleOutcome>, selected: Option<ModuleOutcome>) -> RuntimePlan {
    let module = |outcome| ModulePlan { name: "cache".to_owned(), offer: Offer::Mandatory, component: None, outcome };
    RuntimePlan { mandatory: outcome.into_iter().map(module).collect(), ..plan(selected) }
}

#[test]
fn a_mandatory_module_decides_about_its_manifest_and_no_status_lists_it() {
    let install = || Some(ModuleOutcome::Install(installation()));
    let refuse = |keep| Some(ModuleOutcome::Refuse(refusal(keep)));
    let refused = |state: State, message: &str| Some((state, message.to_owned()));
    let failed = || refused(State::Error, "no channel");
    for (outcome, live, expected, refused) in [
        (install(), None, "create", None),
        // The labels of the rendered one are those of a module with channels.
        (install(), Some(mandatory()), "apply", None),
        (install(), Some(live(|_| {})), "keep", None),
        (refuse(true), Some(mandatory()), "keep", failed()),
        (refuse(true), None, "absent", failed()),
        (refuse(false), Some(mandatory()), "delete", refused(State::Deleting, "no channel")),
        (refuse(false), Some(live(|_| {})), "delete", refused(State::Deleting, "no channel")),
        // Its release has channels now, and the Kyma does not select the module.
        (None, Some(mandatory()), "delete", None),
    ] {
        let (plan, manifests) = (mandatory_plan(outcome, None), live.into_iter().collect::<Vec<_>>());
        let live = LiveManifests::new(&manifests, &plan);
        let rendered = to_render(&plan, &live, &Unreadable::new(), None);
        let rendered: Rendered =
            rendered.iter().map(|found| (found.module.clone(), Ok(Object::new(self::rendered()).unwrap()))).collect();
        let decision = decide((&plan, &none()), &live, &rendered, &Unreadable::new(), &kyma());
        let [step] = decision.steps.as_slice() else { panic!("{decision:?}") };
        assert_eq!(name(&step.act), expected);
        assert_eq!(step.role, Role::Mandatory { refused });
    }
}

#[test]
fn a_kyma_that_selects_a_mandatory_module_leaves_its_manifest_alone() {
    let plan = mandatory_plan(
        Some(ModuleOutcome::Install(installation())),
        Some(ModuleOutcome::Refuse(Refusal { state: State::Warning, ..refusal(false) })),
    );
    let manifests = [live(|_| {})];
    let rendered: Rendered = [("cache".to_owned(), Ok(Object::new(rendered()).unwrap()))].into();
    let decision =
        decide((&plan, &none()), &LiveManifests::new(&manifests, &plan), &rendered, &Unreadable::new(), &kyma());
    let acts: Vec<&str> = decision.steps.iter().map(|step| name(&step.act)).collect();
    assert_eq!(acts, ["keep", "absent"]);
    let expected = Planned::Refused { state: State::Warning, message: "no channel".to_owned(), hint: None };
    assert_eq!(decision.steps[1].role, Role::Selected(expected));
}

#[test]
fn a_mandatory_manifest_that_cannot_be_rendered_or_read_is_no_problem_of_the_kyma() {
    let plan = mandatory_plan(Some(ModuleOutcome::Install(installation())), None);
    let manifests = [mandatory()];
    let rendered: Rendered = [("cache".to_owned(), Err("broken".to_owned()))].into();
    let unreadable = Unreadable::from([("cache", "broken".to_owned())]);
    for unreadable in [Unreadable::new(), unreadable] {
        let decision =
            decide((&plan, &none()), &LiveManifests::new(&manifests, &plan), &rendered, &unreadable, &kyma());
        assert_eq!(decision.problems, Vec::<String>::new());
        assert_eq!(name(&decision.steps[0].act), "keep");
        let refused = Some((State::Error, "broken".to_owned()));
        assert_eq!(decision.steps[0].role, Role::Mandatory { refused });
    }
}

#[test]
fn an_applied_manifest_keeps_its_status_and_an_unknown_one_is_read() {
    let desired = || Object::new(rendered()).unwrap();
    let applied = metadata(&desired().id(), "7");
    let before = live(|live| live["status"] = json!({"state": "Ready"}));
    for (live, is_created, status) in [(Some(&before), false, before.status.clone()), (None, true, None)] {
        let Act::Keep(Some(manifest)) = after_apply(desired(), live, &applied, is_created).unwrap() else {
            panic!("the Manifest is known")
        };
        assert_eq!(manifest.metadata.resource_version.as_deref(), Some("7"));
        assert_eq!(manifest.status, status);
    }
    assert_eq!(after_apply(desired(), None, &applied, false).unwrap(), Act::Read(key()));
}

#[test]
fn a_manifest_is_annotated_as_unmanaged_before_it_is_deleted() {
    let Act::Delete(annotated) = after_unmanage(&live(|_| {})) else { panic!("it is deleted next") };
    assert!(is_unmanaged(&annotated));
    let Act::Keep(Some(deleted)) = after_delete(&annotated, Timestamp::UNIX_EPOCH) else { panic!("it still exists") };
    assert!(is_unmanaged(&deleted) && deleted.metadata.deletion_timestamp.is_some());
    assert_eq!(deleted.metadata.resource_version, None, "the deletion has made a version that is not known");
    assert_eq!(name(&after_unmanage(&deleting())), "keep", "it is being deleted");
}

#[test]
fn a_manifest_of_a_former_kyma_ends_without_its_objects() {
    let plan = plan(Some(ModuleOutcome::Install(installation())));
    let owned = |uid: &str, is_deleting: bool| {
        live(|live| {
            live["metadata"]["ownerReferences"] =
                json!([{"apiVersion": "operator.kyma-project.io/v1beta2", "kind": "Kyma", "name": "one", "uid": uid}]);
            if is_deleting {
                live["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
            }
        })
    };
    let desired = Object::new(rendered()).unwrap();
    for (live, expected) in [
        (owned("former", true), "release"),
        // A user or Tidegate deletes this one.
        (owned("present", true), "keep"),
        (deleting(), "keep"),
    ] {
        let manifests = [live];
        let live = LiveManifests::new(&manifests, &plan);
        let rendered: Rendered = to_render(&plan, &live, &Unreadable::new(), Some("present"))
            .iter()
            .map(|found| (found.module.clone(), Ok(desired.clone())))
            .collect();
        let decision = decide((&plan, &none()), &live, &rendered, &Unreadable::new(), &kyma_with_uid("present"));
        assert_eq!(name(&decision.steps[0].act), expected);
    }
    let synced = json!([{"group": "", "version": "v1", "kind": "ConfigMap", "name": "old", "namespace": "a"}]);
    let status: ManifestStatus = serde_json::from_value(json!({"state": "Ready", "synced": synced})).unwrap();
    let former = || Arc::new(Manifest { status: Some(status.clone()), ..Manifest::clone(&owned("former", true)) });
    assert_eq!(name(&after_release(desired.clone(), former(), &[])), "succeed");
    assert_eq!(name(&after_release(desired.clone(), former(), &["example.org/other".to_owned()])), "absent");
    // What the former one had, and the module no longer has, must still be pruned.
    let metadata = metadata(&desired.id(), "7");
    let act = after_succession(desired.clone(), former(), &metadata, true).unwrap();
    let Act::Inherit { successor, former: of } = act else { panic!("it inherits: {act:?}") };
    // Nothing has been written into its status yet, and nothing may be believed of it.
    assert_eq!((of, successor.status.clone()), (former(), None));
    let act = after_succession(desired, owned("former", true), &metadata, true).unwrap();
    assert_eq!(name(&act), "keep", "without an inventory, there is nothing to take over");
}

#[test]
fn a_manifest_that_cannot_be_read_stays_as_it_is() {
    let manifests = [live(|live| live["spec"]["version"] = json!("0.9.0"))];
    let unreadable = Unreadable::from([("cache", "it cannot be read".to_owned())]);
    for outcome in [Some(ModuleOutcome::Install(installation())), None] {
        let plan = plan(outcome);
        let live = LiveManifests::new(&manifests, &plan);
        assert!(to_render(&plan, &live, &unreadable, None).is_empty());
        let decision = decide((&plan, &none()), &live, &Rendered::new(), &unreadable, &kyma());
        let acts: Vec<&str> = decision.steps.iter().map(|step| name(&step.act)).collect();
        assert_eq!(acts, ["keep"]);
    }
}

/// E17, E20, E24: the module of a Manifest that is being deleted, wanted again or not.
#[test]
fn e24_a_new_version_reaches_a_manifest_whose_removal_waits() {
    let old = |edit: fn(&mut Value)| {
        live(|live| {
            live["spec"]["version"] = json!("0.9.0");
            live["spec"]["customResourcePolicy"] = json!("Ignore");
            live["metadata"]["uid"] = json!("1");
            live["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
            live["metadata"]["labels"][label::CHANNEL] = json!("regular");
            edit(live);
        })
    };
    let desired = Object::new(rendered()).unwrap();
    let rendered: Rendered = [("cache".to_owned(), Ok(desired.clone()))].into();
    for outcome in [None, Some(ModuleOutcome::Install(installation()))] {
        let manifests = [old(|_| {})];
        let plan = plan(outcome);
        let decision =
            decide((&plan, &none()), &LiveManifests::new(&manifests, &plan), &rendered, &Unreadable::new(), &kyma());
        let Act::Upgrade { desired, live } = &decision.steps[0].act else { panic!("{:?}", decision.steps) };
        assert_eq!(desired.value()["spec"]["version"], "1.0.0");
        assert_eq!(desired.value()["spec"]["customResourcePolicy"], "Ignore", "the removal depends on it");
        assert_eq!(desired.value()["metadata"]["uid"], "1", "another Manifest of this name is left alone");
        let applied = metadata(&desired.id(), "7");
        let Act::Keep(Some(after)) = after_upgrade(desired, live, &applied).unwrap() else { panic!("it is kept") };
        assert!(after.metadata.deletion_timestamp.is_some(), "its removal continues");
        assert_eq!(after.spec.version.as_deref(), Some("1.0.0"));
        let is_leaving = plan.modules.is_empty();
        assert_eq!(leaving(&plan, &manifests), if is_leaving { vec![("cache", "regular")] } else { vec![] });
    }
    for not_waiting in [
        old(|live| live["metadata"]["finalizers"] = json!([])),
        old(|live| live["metadata"]["annotations"] = json!({annotation::IS_UNMANAGED: "true"})),
        old(|live| live["metadata"]["labels"][label::SKIP_RECONCILIATION] = json!("true")),
    ] {
        assert_eq!(leaving(&plan(None), &[not_waiting]), []);
    }
}

/// Row 68: Tidegate deletes what it or a Kyma knows, and leaves the rest.
#[test]
fn a_manifest_that_nothing_references_is_an_orphan() {
    let unknown = live(|_| {});
    let ours = live(|live| {
        live["status"] = json!({"state": "Ready", "conditions": [{"type": conditions::APPLIED, "status": "True",
            "reason": "Applied", "message": "digest", "lastTransitionTime": "2026-01-01T00:00:00Z"}]});
    });
    for (kyma, manifest, expected) in [
        (kyma(), &unknown, ["delete"].as_slice()),
        (Kyma::default(), &ours, &["delete"]),
        (Kyma::default(), &deleting(), &["keep"]),
        (Kyma::default(), &unknown, &[]),
    ] {
        let manifests = [Arc::clone(manifest)];
        let decision = decide(
            (&plan(None), &none()),
            &LiveManifests::new(&manifests, &plan(None)),
            &Rendered::new(),
            &Unreadable::new(),
            &kyma,
        );
        assert_eq!(decision.steps.iter().map(|step| name(&step.act)).collect::<Vec<_>>(), expected);
        assert_eq!(decision.unreferenced.len(), usize::from(expected.is_empty()));
    }
    let created = Timestamp::UNIX_EPOCH;
    let of_others = live(|live| live["metadata"]["creationTimestamp"] = json!("1970-01-01T00:00:00Z"));
    let after = |seconds| created + Duration::from_secs(seconds);
    let managed = |manager: &str, subresource: &str| -> ObjectMeta {
        let entry = json!({"manager": manager, "operation": "Apply", "subresource": subresource});
        serde_json::from_value(json!({"managedFields": [entry]})).unwrap()
    };
    for (managed, seconds, expected) in [
        (None, 1000, Orphan::Gone),
        (Some(managed(FIELD_MANAGER, "")), 1000, Orphan::Ours),
        (Some(managed("kubectl", "")), 100, Orphan::Young(Duration::from_secs(200))),
        (Some(managed("kubectl", "")), 300, Orphan::Old),
        (Some(managed(FIELD_MANAGER, "status")), 300, Orphan::Old),
    ] {
        assert_eq!(orphan(&of_others, managed.as_ref(), after(seconds)), expected);
    }
}

#[test]
fn a_module_that_was_released_before_it_was_dropped_leaves_its_objects() {
    let left = BTreeSet::from(["cache".to_owned()]);
    let (ours, deleting) = (live(|_| {}), deleting());
    for (left, live, expected) in [
        (&left, &ours, Act::Unmanage(Arc::clone(&ours))),
        (&left, &unmanaged(), Act::Delete(unmanaged())),
        (&left, &deleting, Act::Keep(Some(Arc::clone(&deleting)))),
        (&none(), &ours, Act::Delete(Arc::clone(&ours))),
    ] {
        let manifests = [Arc::clone(live)];
        let live = LiveManifests::new(&manifests, &plan(None));
        let decision = decide((&plan(None), left), &live, &Rendered::new(), &Unreadable::new(), &kyma());
        assert_eq!(decision.steps[0].act, expected);
    }
}

/// A Manifest of `cache` with the name that it had before its component was renamed.
fn of_former_component(edit: impl FnOnce(&mut Value)) -> Arc<Manifest> {
    live(|live| {
        live["metadata"]["name"] = json!("eu-cache-0");
        live["metadata"]["uid"] = json!("0");
        live["metadata"]["ownerReferences"] =
            json!([{"apiVersion": "operator.kyma-project.io/v1beta2", "kind": "Kyma", "name": "eu", "uid": "present"}]);
        edit(live);
    })
}

#[test]
fn a_manifest_whose_component_has_another_name_is_followed_by_one_of_the_new_name() {
    let former = || of_former_component(|_| {});
    let deleting = |live: &mut Value| live["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    let paused = of_former_component(|live| live["metadata"]["labels"][label::SKIP_RECONCILIATION] = json!("true"));
    let left = of_former_component(|live| live["metadata"]["annotations"] = json!({annotation::IS_UNMANAGED: "true"}));
    let left_and_deleted = of_former_component(|live| {
        live["metadata"]["annotations"] = json!({annotation::IS_UNMANAGED: "true"});
        deleting(live);
    });
    let of_others = of_former_component(|live| live["metadata"]["ownerReferences"] = json!([]));
    let present = || live(|_| {});
    let install = || Some(ModuleOutcome::Install(installation()));
    for (outcome, manifests, expected, follows, beside) in [
        (install(), vec![former()], "create", 1, 0),
        // Killed before the former one was deleted, or by a program that left both.
        (install(), vec![former(), present()], "keep", 1, 0),
        (install(), vec![former(), live(|live| live["spec"]["version"] = json!("0.9.0"))], "apply", 1, 0),
        (install(), vec![of_former_component(deleting), present()], "keep", 1, 0),
        // Its removal goes on under its own name.
        (install(), vec![of_former_component(deleting)], "keep", 0, 0),
        (install(), vec![paused.clone()], "keep", 0, 0),
        (install(), vec![paused.clone(), present()], "keep", 0, 0),
        (install(), vec![left], "delete", 0, 0),
        (install(), vec![left_and_deleted, present()], "keep", 0, 1),
        (install(), vec![of_others.clone()], "create", 0, 0),
        // A module that leaves has one inventory as well.
        (None, vec![former(), present()], "delete", 1, 0),
        (Some(ModuleOutcome::Unmanage), vec![former(), present()], "unmanage", 1, 0),
        (Some(ModuleOutcome::Refuse(refusal(true))), vec![former(), present()], "keep", 1, 0),
        (Some(ModuleOutcome::Refuse(refusal(true))), vec![former()], "keep", 0, 0),
    ] {
        let plan = plan(outcome);
        let live = LiveManifests::new(&manifests, &plan);
        let rendered: Rendered = to_render(&plan, &live, &Unreadable::new(), None)
            .iter()
            .map(|found| (found.module.clone(), Ok(Object::new(rendered()).unwrap())))
            .collect();
        let decision = decide((&plan, &none()), &live, &rendered, &Unreadable::new(), &kyma());
        let [step] = decision.steps.as_slice() else { panic!("{decision:?}") };
        let found = (name(&step.act), step.former.len(), step.beside.len());
        assert_eq!(found, (expected, follows, beside), "{:?}: {manifests:?}", plan.modules);
        assert!(step.former.iter().all(|former| former.metadata.name.as_deref() == Some("eu-cache-0")));
    }
}

#[test]
fn a_removal_that_waits_gets_a_new_version_under_its_own_name() {
    let former = of_former_component(|live| {
        live["spec"]["version"] = json!("0.9.0");
        live["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    });
    let rendered: Rendered = [("cache".to_owned(), Ok(Object::new(rendered()).unwrap()))].into();
    for outcome in [None, Some(ModuleOutcome::Install(installation()))] {
        let (plan, manifests) = (plan(outcome), [Arc::clone(&former)]);
        let live = LiveManifests::new(&manifests, &plan);
        let decision = decide((&plan, &none()), &live, &rendered, &Unreadable::new(), &kyma());
        let Act::Upgrade { desired, .. } = &decision.steps[0].act else { panic!("{:?}", decision.steps) };
        assert_eq!((desired.name(), &desired.value()["metadata"]["uid"]), ("eu-cache-0", &json!("0")));
    }
}

#[test]
fn a_former_manifest_ends_once_all_that_it_records_is_taken_over() {
    let with = |names: &[&str], is_created: bool| {
        let synced: Vec<Value> = names
            .iter()
            .map(|name| json!({"group": "", "version": "v1", "kind": "ConfigMap", "name": name, "namespace": "a"}))
            .collect();
        let created = json!([{"type": "ModuleCR", "status": "True", "reason": "ModuleCRInstalled",
            "message": "created", "lastTransitionTime": "2026-01-01T00:00:00Z"}]);
        let conditions = if is_created { created } else { json!([]) };
        let status = json!({"state": "Ready", "synced": synced, "conditions": conditions});
        live(|live| live["status"] = status)
    };
    let new = || live(|_| {});
    for (present, former, expected) in [
        (new(), with(&["one"], true), "take over"),
        (with(&["one"], true), with(&["one"], true), "retire"),
        (with(&["one", "two"], true), with(&["one"], false), "retire"),
        (with(&["one"], true), with(&["one", "two"], true), "take over"),
        // The default custom resource would be created again.
        (with(&["one"], false), with(&["one"], true), "take over"),
        (new(), with(&[], false), "retire"),
    ] {
        assert_eq!(name(&succeed(&present, &former)), expected);
    }
    assert_eq!(name(&after_take_over(new(), with(&["one"], true))), "retire");
    assert_eq!(name(&after_retire(new(), new())), "end");
    assert_eq!(name(&after_retire(new(), deleting())), "keep", "others have finalizers");
}
