use serde_json::json;

use super::*;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn kyma_with(status: KymaStatus) -> Kyma {
    let mut kyma: Kyma = serde_json::from_value(json!({
        "apiVersion": "operator.kyma-project.io/v1beta2", "kind": "Kyma",
        "metadata": {"name": "eu", "namespace": "kcp-system", "generation": 2},
        "spec": {"channel": "regular"},
    }))
    .unwrap();
    kyma.status = Some(status);
    kyma
}

fn manifest(state: &str) -> Arc<Manifest> {
    Arc::new(
        serde_json::from_value(json!({
            "apiVersion": "operator.kyma-project.io/v1beta2", "kind": "Manifest",
            "metadata": {
                "name": "eu-cache-1", "namespace": "kcp-system", "generation": 1,
                "labels": {"operator.kyma-project.io/channel": "regular"},
                "annotations": {"operator.kyma-project.io/fqdn": "x.io/module/cache", "operator.kyma-project.io/ocm-component-name": "x.io/module/cache"},
            },
            "spec": {"remote": true, "version": "1.0.0", "install": {"name": "raw-manifest", "source": {}},
                "resource": {"apiVersion": "x.io/v1", "kind": "Cache", "metadata": {"name": "default", "namespace": "kyma-system"}}},
            "status": {"state": state, "lastOperation": {"operation": "because"}},
        }))
        .unwrap(),
    )
}

fn install(state: &str) -> ModuleFact {
    ModuleFact {
        name: "cache".into(),
        planned: Planned::Install {
            template: Key::new("kcp-system", "cache-1.0.0"),
            template_generation: Some(3),
            channel: "regular".into(),
            policy: CustomResourcePolicy::CreateAndDelete,
            is_cluster_scoped: false,
        },
        manifest: Some(manifest(state)),
    }
}

fn done(modules: Vec<ModuleFact>) -> Facts {
    Facts {
        modules,
        crds: Part::Done,
        catalog: Part::Done,
        webhook: Part::Done,
        channel: "regular".into(),
        ..Facts::default()
    }
}

#[track_caller]
fn check(facts: &Facts, state: State, operation: &str) -> KymaStatus {
    let status = kyma(&kyma_with(KymaStatus::default()), facts, at(1));
    assert_eq!((status.state, status.last_operation.as_ref().unwrap().operation.as_str()), (state, operation));
    status
}

#[test]
fn module_states_dominate_and_conditions_come_last() {
    check(&done(vec![]), State::Ready, "kyma is ready");
    let ready = check(&done(vec![install("Ready")]), State::Ready, "kyma is ready");
    assert_eq!(ready.active_channel.as_deref(), Some("regular"));
    check(&done(vec![install("Processing")]), State::Processing, "waiting for all modules to become ready");
    check(&done(vec![install("")]), State::Processing, "waiting for all modules to become ready");
    check(&done(vec![install("Error")]), State::Error, "module cache: because");
    check(&done(vec![install("Warning")]), State::Warning, "waiting for all modules to become ready");
    let failed = Facts { crds: Part::Failed("no CRDs".into()), ..done(vec![install("Ready")]) };
    check(&failed, State::Error, "no CRDs");
    let unknown = Facts { catalog: Part::Unknown, ..done(vec![install("Ready")]) };
    check(&unknown, State::Processing, "waiting for all modules to become ready");
}

/// E23: the message of a module is Lifecycle Manager's to the letter, and the hint is beside it.
#[test]
fn a_hint_is_in_a_condition_and_not_in_the_message() {
    let fact = |hint: Option<&str>| ModuleFact {
        planned: Planned::Refused { state: State::Warning, message: "not lower".into(), hint: hint.map(str::to_owned) },
        ..install("Ready")
    };
    let said = |status: &KymaStatus| conditions::message(&status.conditions, conditions::HINTS).map(str::to_owned);
    let hinted = check(&done(vec![fact(Some("commit"))]), State::Warning, "waiting for all modules to become ready");
    assert_eq!(hinted.modules[0].message.as_deref(), Some("not lower"));
    assert_eq!(said(&hinted).as_deref(), Some("module cache: commit"));
    let next = |facts: &Facts| said(&kyma(&kyma_with(hinted.clone()), facts, at(2)));
    assert_eq!(next(&done(vec![fact(None)])), None);
    let failure = Failure { reason: "Unreachable", message: "no route".into(), access: true };
    let failed = Facts { failure: Some(failure), ..done(vec![fact(None)]) };
    assert_eq!(next(&failed).as_deref(), Some("module cache: commit"), "a failed pass knows nothing new");
}

/// I10: whatever the Manifest says, a cluster-scoped resource has no namespace.
#[test]
fn a_cluster_scoped_resource_has_no_namespace() {
    for (is_scoped, expected) in [(false, "kyma-system"), (true, "")] {
        let mut fact = install("Ready");
        let Planned::Install { is_cluster_scoped, .. } = &mut fact.planned else { panic!("it is installed") };
        *is_cluster_scoped = is_scoped;
        let status = check(&done(vec![fact]), State::Ready, "kyma is ready");
        let resource = status.modules[0].resource.as_ref().unwrap();
        assert_eq!((resource.metadata.name.as_str(), resource.metadata.namespace.as_str()), ("default", expected));
    }
}

/// #69: mandatory modules have a condition, and take no part in anything else.
#[test]
fn mandatory_modules_have_a_condition_and_take_no_part_in_the_state() {
    let fact = |name: &str, refused: Option<(State, &str)>, manifest: Option<Arc<Manifest>>| MandatoryFact {
        name: name.to_owned(),
        refused: refused.map(|(state, message)| (state, message.to_owned())),
        manifest,
    };
    let with = |mandatory: Option<Vec<MandatoryFact>>| Facts { mandatory, ..done(vec![install("Ready")]) };
    let said = |status: &KymaStatus| {
        let found = conditions::find(&status.conditions, conditions::MANDATORY_MODULES)?;
        Some(format!("{} {}: {}", found.status, found.reason, found.message))
    };
    let ready = || fact("audit", None, Some(manifest("Ready")));
    for (facts, expected) in [
        (vec![], None),
        (vec![ready()], Some("True Ready: mandatory modules are ready: audit")),
        (vec![ready(), fact("warden", None, None)], Some("False Processing: waiting for mandatory modules: warden")),
        (
            vec![ready(), fact("warden", None, Some(manifest("Deleting")))],
            Some("False Processing: waiting for mandatory modules: warden"),
        ),
        (
            vec![fact("audit", None, Some(manifest("Error"))), fact("warden", Some((State::Warning, "too low")), None)],
            Some("False Failed: mandatory module audit: because; mandatory module warden: too low"),
        ),
        (
            vec![fact("audit", Some((State::Processing, "looked up")), Some(manifest("Ready")))],
            Some("False Processing: waiting for mandatory modules: audit"),
        ),
    ] {
        let status = check(&with(Some(facts)), State::Ready, "kyma is ready");
        assert_eq!(said(&status).as_deref(), expected);
        assert_eq!(status.modules.len(), 1, "the status lists selected modules only");
        // A pass that did not get to them leaves the condition, one that finds none removes it.
        let kept = kyma(&kyma_with(status.clone()), &with(None), at(2));
        assert_eq!(said(&kept), said(&status));
        assert_eq!(said(&kyma(&kyma_with(status), &with(Some(vec![])), at(2))), None);
    }
}

#[test]
fn a_second_pass_over_the_same_facts_says_the_same() {
    let facts = done(vec![install("Ready")]);
    let first = kyma(&kyma_with(KymaStatus::default()), &facts, at(1));
    let second = kyma(&kyma_with(first.clone()), &facts, at(99));
    assert_eq!(first, second);
}

#[test]
fn a_transition_time_moves_with_the_status_only() {
    let first = kyma(&kyma_with(KymaStatus::default()), &done(vec![install("Processing")]), at(1));
    let second = kyma(&kyma_with(first), &done(vec![install("Ready")]), at(50));
    let time = |type_: &str| second.conditions.iter().find(|c| c.type_ == type_).unwrap().last_transition_time.0;
    assert_eq!((time("Modules"), time("CRDsSync")), (at(50), at(1)));
}

#[test]
fn a_refused_module_keeps_what_is_installed() {
    let fact = ModuleFact {
        planned: Planned::Refused { state: State::Warning, message: "not lower".into(), hint: None },
        ..install("Ready")
    };
    let status = check(&done(vec![fact]), State::Warning, "waiting for all modules to become ready");
    let module = &status.modules[0];
    assert_eq!((module.version.as_deref(), module.message.as_deref()), (Some("1.0.0"), Some("not lower")));
}

#[test]
fn what_a_manifest_said_of_an_earlier_specification_makes_no_module_ready() {
    let said_of = |observed: i64, generation: i64| {
        let ready = manifest("Ready");
        let facts = ManifestFacts {
            outcome: ManifestOutcome::Ready,
            synced: Vec::new(),
            applied: None,
            module_resource: None,
            requested: None,
            waits_for: WaitFact::Unknown,
            not_created: None,
        };
        let mut ready = Manifest::clone(&ready);
        ready.metadata.generation = Some(observed);
        ready.status = Some(super::manifest(&ready, &facts, at(1)));
        ready.metadata.generation = Some(generation);
        let status = kyma(
            &kyma_with(KymaStatus::default()),
            &done(vec![ModuleFact { manifest: Some(Arc::new(ready)), ..install("Ready") }]),
            at(1),
        );
        (status.state, status.modules[0].state)
    };
    assert_eq!(said_of(2, 2), (State::Ready, State::Ready));
    assert_eq!(said_of(1, 2), (State::Processing, State::Processing));
}

#[test]
fn a_removed_module_leaves_status_with_its_manifest() {
    let removing = ModuleFact { planned: Planned::Removing, ..install("Deleting") };
    let status = check(&done(vec![removing.clone()]), State::Processing, "waiting for modules to be deleted");
    assert_eq!(status.modules[0].state, State::Deleting);
    let gone = ModuleFact { manifest: None, ..removing };
    assert_eq!(check(&done(vec![gone]), State::Ready, "kyma is ready").modules, vec![]);
}

#[test]
fn without_access_the_kyma_and_every_module_are_in_error() {
    let failure = Failure { reason: "Unreachable", message: "cannot reach the runtime".into(), access: true };
    let facts = Facts { failure: Some(failure), ..done(vec![install("Ready")]) };
    let status = check(&facts, State::Error, "cannot reach the runtime");
    assert_eq!(status.modules[0].state, State::Error);
}

#[test]
fn the_default_custom_resource_is_named_only_where_it_is_ours() {
    let status = kyma(&kyma_with(KymaStatus::default()), &done(vec![install("Ready")]), at(1));
    assert_eq!(status.modules[0].resource.as_ref().unwrap().kind.as_deref(), Some("Cache"));
    let ModuleFact { planned: Planned::Install { template, template_generation, channel, .. }, name, manifest } =
        install("Ready")
    else {
        unreachable!()
    };
    let ignored = ModuleFact {
        planned: Planned::Install {
            template,
            template_generation,
            channel,
            policy: CustomResourcePolicy::Ignore,
            is_cluster_scoped: false,
        },
        name,
        manifest,
    };
    let status = kyma(&kyma_with(KymaStatus::default()), &done(vec![ignored]), at(1));
    assert_eq!(status.modules[0].resource, None);
}

#[test]
fn a_manifest_says_how_it_fares() {
    let before = manifest("");
    let facts = |outcome: ManifestOutcome| ManifestFacts {
        outcome,
        synced: vec![
            SyncedObject { kind: "Service".into(), name: "b".into(), version: "v1".into(), ..SyncedObject::default() },
            SyncedObject {
                kind: "ConfigMap".into(),
                name: "a".into(),
                version: "v1".into(),
                ..SyncedObject::default()
            },
        ],
        applied: None,
        module_resource: Some(true),
        requested: Some("noon".to_owned()),
        waits_for: WaitFact::Unknown,
        not_created: None,
    };
    let installed = "True Ready: installation is ready and resources can be used";
    let waits = "False Ready: installation is not ready";
    let parsed = "True ResourcesAvailable: resources are parsed and ready for use";
    let missing = "False SourceUnavailable: resources not parsed";
    for (outcome, state, installation, resources, handled) in [
        (ManifestOutcome::Ready, State::Ready, installed, parsed, "True"),
        (ManifestOutcome::Waiting(WAITING_FOR_RESOURCES.into()), State::Processing, waits, parsed, "True"),
        (ManifestOutcome::Failed("no".into()), State::Error, waits, parsed, "True"),
        (ManifestOutcome::Contested("no".into()), State::Warning, installed, parsed, "True"),
        (ManifestOutcome::SourceUnavailable("gone".into()), State::Error, waits, missing, "False"),
    ] {
        let status = super::manifest(&before, &facts(outcome), at(1));
        let found = |type_: &str| status.conditions.iter().find(|one| one.type_ == type_).unwrap();
        let holds = |type_: &str| found(type_).status.clone();
        let text = |type_: &str| {
            let one = found(type_);
            format!("{} {}: {}", one.status, one.reason, one.message)
        };
        assert_eq!(status.state, state);
        assert_eq!((text("Installation").as_str(), text("Resources").as_str()), (installation, resources));
        assert_eq!(text("ModuleCR"), "True ModuleCRCreated: module CR was created");
        let without = ManifestFacts { module_resource: Some(false), ..facts(ManifestOutcome::Ready) };
        let status = super::manifest(&before, &without, at(1));
        let found = status.conditions.iter().find(|one| one.type_ == "ModuleCR").unwrap();
        assert_eq!((&*found.status, &*found.message), ("False", "module CR has not been created to SKR"));
        assert_eq!(holds(conditions::RECONCILE_REQUESTED), handled);
        assert_eq!(status.synced[0].kind, "ConfigMap", "the inventory is sorted");
    }
}

#[test]
fn an_upgrade_that_waits_leaves_the_state_and_says_so() {
    let waits = |state: &str, is_known: bool| {
        let ModuleFact { planned, name, manifest } = install(state);
        let kept = is_known.then(|| Box::new(planned));
        ModuleFact { planned: Planned::Waiting { kept, for_window: true }, name, manifest }
    };
    let waiting = "waiting for next maintenance window to update module version";
    for (state, expected, message) in [
        ("Ready", State::Ready, waiting),
        ("Processing", State::Processing, waiting),
        // What is wrong with the installed version is not hidden.
        ("Error", State::Error, "because"),
        ("Warning", State::Warning, "because"),
    ] {
        for is_known in [true, false] {
            let former = KymaStatus {
                modules: vec![
                    kyma(&kyma_with(KymaStatus::default()), &done(vec![install("Ready")]), at(1)).modules.remove(0),
                ],
                ..KymaStatus::default()
            };
            let status = kyma(&kyma_with(former), &done(vec![waits(state, is_known)]), at(2));
            let module = &status.modules[0];
            assert_eq!((module.state, module.maintenance), (expected, true), "{state} {is_known}");
            assert_eq!((module.version.as_deref(), module.message.as_deref()), (Some("1.0.0"), Some(message)));
            assert_eq!(module.template.as_ref().unwrap().metadata.name, "cache-1.0.0");
        }
    }
    check(&done(vec![waits("Ready", true)]), State::Ready, "kyma is ready");
    let ready = check(&done(vec![install("Ready")]), State::Ready, "kyma is ready");
    assert!(!ready.modules[0].maintenance);
}

#[test]
fn the_condition_of_maintenance_windows_is_there_while_something_waits() {
    let find = |status: &KymaStatus| {
        let found = conditions::find(&status.conditions, conditions::MAINTENANCE_WINDOW);
        found.map(|found| (found.status.clone(), found.reason.clone(), found.message.clone()))
    };
    let fact = MaintenanceFact::Waiting { reason: conditions::maintenance::WAITING, message: "on Saturday".to_owned() };
    let mut status = KymaStatus::default();
    for (maintenance, is_there) in [
        (MaintenanceFact::Nothing, false),
        (fact.clone(), true),
        (MaintenanceFact::Unknown, true),
        (MaintenanceFact::Nothing, false),
        (MaintenanceFact::Unknown, false),
    ] {
        status = kyma(&kyma_with(status), &Facts { maintenance, ..done(vec![install("Ready")]) }, at(1));
        let expected = ("False".to_owned(), "Waiting".to_owned(), "on Saturday".to_owned());
        assert_eq!(find(&status), is_there.then_some(expected));
    }
}

#[test]
fn what_a_module_waits_for_is_a_condition_of_its_manifest_and_a_hint_of_its_kyma() {
    let facts = |waits_for| ManifestFacts {
        outcome: ManifestOutcome::Waiting(WAITING_FOR_RESOURCES.to_owned()),
        synced: vec![],
        applied: None,
        module_resource: None,
        requested: None,
        waits_for,
        not_created: None,
    };
    let what = "Deployment kyma-system/cache and 1 more: the image `a` of container main cannot be pulled";
    let mut waiting = Manifest::clone(&manifest("Processing"));
    waiting.status = Some(super::manifest(&waiting, &facts(WaitFact::For(what.to_owned())), at(5)));
    let status = waiting.status.clone().unwrap();
    assert_eq!(status.last_operation.as_ref().unwrap().operation, WAITING_FOR_RESOURCES, "Lifecycle Manager's text");
    assert_eq!(conditions::message(&status.conditions, conditions::WAITS_FOR), Some(what));
    assert_eq!(super::manifest(&waiting, &facts(WaitFact::Unknown), at(9)), status, "what is known stays");

    let module = ModuleFact { manifest: Some(Arc::new(waiting.clone())), ..install("Processing") };
    let kyma = check(&done(vec![module]), State::Processing, "waiting for all modules to become ready");
    let hint = format!("module cache: waits since 1970-01-01T00:00:05Z for {what}");
    assert_eq!(conditions::message(&kyma.conditions, conditions::HINTS), Some(hint.as_str()));

    let mut leaving = waiting.clone();
    leaving.metadata.deletion_timestamp = Some(Time(at(1)));
    let module = ModuleFact { manifest: Some(Arc::new(leaving)), ..install("Processing") };
    let kyma = check(&done(vec![module]), State::Processing, "waiting for all modules to become ready");
    let hint = format!(
        "module cache: selected again; Tidegate installs it after its removal, which waits since 1970-01-01T00:00:05Z \
         for {what}"
    );
    assert_eq!(conditions::message(&kyma.conditions, conditions::HINTS), Some(hint.as_str()), "a user wants it back");

    let of = |name: &str, manifest: &Manifest| MandatoryFact {
        name: name.to_owned(),
        refused: None,
        manifest: Some(Arc::new(manifest.clone())),
    };
    let mandatory = vec![of("cache", &waiting), of("mailer", &manifest("Processing")), of("proxy", &manifest("Ready"))];
    let facts_of_kyma = Facts { mandatory: Some(mandatory), ..done(vec![install("Ready")]) };
    let kyma = check(&facts_of_kyma, State::Ready, "kyma is ready");
    let said = conditions::find(&kyma.conditions, conditions::MANDATORY_MODULES).unwrap();
    let expected =
        format!("waiting for mandatory modules: cache (waits since 1970-01-01T00:00:05Z for {what}), mailer");
    assert_eq!(said.message, expected);

    let ended = super::manifest(&waiting, &facts(WaitFact::Nothing), at(9));
    assert!(conditions::find(&ended.conditions, conditions::WAITS_FOR).is_none());
}

#[test]
fn a_paused_mandatory_module_says_so_as_others_do() {
    let paused = |state: &str| {
        let mut paused = Manifest::clone(&manifest(state));
        let labels = paused.metadata.labels.get_or_insert_default();
        labels.insert(label::SKIP_RECONCILIATION.to_owned(), "true".to_owned());
        MandatoryFact { name: "warden".to_owned(), refused: None, manifest: Some(Arc::new(paused)) }
    };
    let with = |mandatory: Option<Vec<MandatoryFact>>| Facts { mandatory, ..done(vec![install("Ready")]) };
    let hints = |status: &KymaStatus| {
        conditions::message(&status.conditions, conditions::HINTS).map(str::to_owned).unwrap_or_default()
    };
    let hint = |held: &str| {
        format!(
            "module warden: paused by the label operator.kyma-project.io/skip-reconciliation of its Manifest{held}; to \
             continue, run `kubectl label manifest eu-cache-1 -n kcp-system \
             operator.kyma-project.io/skip-reconciliation-`"
        )
    };
    let idle = check(&with(Some(vec![paused("Ready")])), State::Ready, "kyma is ready");
    assert_eq!((hints(&idle), held_by_pauses(&idle.conditions).len()), (hint(""), 0));
    let holding = check(&with(Some(vec![paused("Processing")])), State::Ready, "kyma is ready");
    let held = hint(", which holds back a change");
    assert_eq!((hints(&holding), held_by_pauses(&holding.conditions).len()), (held.clone(), 1));
    // A pass that did not get to it leaves the hint, one that finds none removes it.
    assert_eq!(hints(&kyma(&kyma_with(holding.clone()), &with(None), at(2))), held);
    assert_eq!(hints(&kyma(&kyma_with(holding), &with(Some(vec![])), at(2))), "");
}

#[test]
fn a_paused_module_says_so_and_what_its_pause_holds_back() {
    let hints = |change: &dyn Fn(&mut Manifest), state: State, operation: &str| {
        let mut paused = Manifest::clone(&manifest(if state == State::Ready { "Ready" } else { "Processing" }));
        let labels = paused.metadata.labels.get_or_insert_default();
        labels.insert(label::SKIP_RECONCILIATION.to_owned(), "true".to_owned());
        change(&mut paused);
        let module = ModuleFact { manifest: Some(Arc::new(paused)), ..install("Ready") };
        let status = check(&done(vec![module]), state, operation);
        let message = conditions::message(&status.conditions, conditions::HINTS).unwrap_or_default().to_owned();
        (message, held_by_pauses(&status.conditions).len())
    };
    let hint = |held: &str| {
        format!(
            "module cache: paused by the label operator.kyma-project.io/skip-reconciliation of its Manifest{held}; to \
             continue, run `kubectl label manifest eu-cache-1 -n kcp-system \
             operator.kyma-project.io/skip-reconciliation-`"
        )
    };
    let waiting = "waiting for all modules to become ready";
    assert_eq!(hints(&|_| {}, State::Ready, "kyma is ready"), (hint(""), 0));
    assert_eq!(hints(&|_| {}, State::Processing, waiting), (hint(", which holds back a change"), 1));
    let leaves = |manifest: &mut Manifest| manifest.metadata.deletion_timestamp = Some(Time(at(1)));
    let (message, held) = hints(&leaves, State::Processing, waiting);
    let expected = hint(", which holds back its removal");
    let again = "module cache: selected again; Tidegate installs it after its removal, which is paused by the label ";
    assert_eq!(message, expected.replace("module cache: paused by the label ", again));
    assert_eq!(held, 0, "the hint is about the wish to have it again");
    assert_eq!(
        split_hints("module a: waits for b; to go on, x; module c: d: e"),
        [("a", "waits for b; to go on, x"), ("c", "d: e")]
    );
}

#[test]
fn the_modules_of_a_runtime_are_counted_for_its_column() {
    let count = |modules: Vec<ModuleFact>| {
        let status = kyma(&kyma_with(KymaStatus::default()), &done(modules), at(1));
        conditions::message(&status.conditions, conditions::MODULE_COUNT).map(str::to_owned)
    };
    let mailer = |state: &str| ModuleFact { name: "mailer".into(), ..install(state) };
    let leaving = ModuleFact { planned: Planned::Removing, ..mailer("Deleting") };
    for (modules, expected) in [
        (vec![], "0 of 0 modules are ready"),
        (vec![install("Ready")], "1 of 1 module is ready"),
        (vec![install("Ready"), mailer("Processing")], "1 of 2 modules are ready"),
        (vec![install("Ready"), leaving], "1 of 1 module is ready"),
    ] {
        assert_eq!(count(modules).as_deref(), Some(expected));
    }
}

#[test]
fn a_kyma_says_which_modules_stay_without_a_registry_and_is_ready() {
    let facts = |modules: Option<&[&str]>| Facts {
        without_registry: modules.map(|modules| modules.iter().map(|&name| name.to_owned()).collect()),
        ..done(vec![install("Ready")])
    };
    let after = |before: &KymaStatus, modules: Option<&[&str]>| {
        let status = kyma(&kyma_with(before.clone()), &facts(modules), at(1));
        assert_eq!(status.state, State::Ready);
        status
    };
    let said = |status: &KymaStatus| conditions::find(&status.conditions, conditions::REGISTRY).cloned();
    let two = after(&KymaStatus::default(), Some(&["cache", "keda"]));
    let message = format!("2 installed modules stay as they are and are not checked (cache, keda): {NO_REGISTRY}");
    let condition = said(&two).unwrap();
    assert_eq!((condition.status.as_str(), condition.message), ("False", message));
    let one = said(&after(&two, Some(&["keda"]))).unwrap();
    assert!(one.message.starts_with("1 installed module stays as it is and is not checked (keda): "), "{one:?}");
    assert!(said(&after(&two, None)).is_some(), "the pass did not get to them");
    assert_eq!(said(&after(&two, Some(&[]))), None);
}

/// Neither the count of modules nor the place of digests is a reason to write thousands of statuses at an upgrade.
#[test]
fn the_status_that_an_earlier_version_wrote_stays_until_something_else_changes() {
    let digest = Digest::of_bytes(b"a");
    let facts = Facts { applied: Some(digest), ..done(vec![install("Ready")]) };
    let mut before = kyma(&kyma_with(KymaStatus::default()), &facts, at(1));
    before.conditions.retain(|condition| condition.type_ != conditions::MODULE_COUNT);
    let applied = before.conditions.iter_mut().find(|condition| condition.type_ == conditions::APPLIED).unwrap();
    (applied.reason, applied.message) = (conditions::APPLIED_REASON.to_owned(), digest.to_string());
    assert_eq!(kyma(&kyma_with(before.clone()), &facts, at(9)), before);

    let other = Digest::of_bytes(b"b");
    let next = kyma(&kyma_with(before), &Facts { applied: Some(other), ..facts }, at(9));
    assert_eq!(conditions::message(&next.conditions, conditions::APPLIED), Some(KYMA_APPLIED));
    assert_eq!(conditions::recorded(&next.conditions, conditions::APPLIED), Some(other.to_string().as_str()));
    assert!(conditions::find(&next.conditions, conditions::MODULE_COUNT).is_some());
}
