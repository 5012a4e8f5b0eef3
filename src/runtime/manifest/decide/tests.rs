use std::collections::BTreeMap;

use serde_json::{Value, json};
use tidegate_cluster::Target;
use tidegate_core::{
    api::{names::label, shared::Time},
    conditions::{self, Status},
    definition,
    render::CompleteModule,
    yaml::Limits,
};

use super::*;
use crate::runtime::objects::{Seen, fixtures};

const NOW: Timestamp = Timestamp::UNIX_EPOCH;

fn manifest(edit: impl FnOnce(&mut Value)) -> Manifest {
    let mut manifest = json!({
        "apiVersion": "operator.kyma-project.io/v1beta2", "kind": "Manifest",
        "metadata": {"name": "eu-cache", "namespace": "kcp-system", "generation": 1, "labels": {}, "annotations": {}},
        "spec": {"remote": true, "install": {"name": "raw-manifest", "source": {}}},
    });
    edit(&mut manifest);
    serde_json::from_value(manifest).unwrap()
}

/// A module with a ConfigMap `a` and a Deployment `b`.
fn module() -> CompleteModule {
    module_with(&[("v1", "ConfigMap", "kyma-system", "a"), ("apps/v1", "Deployment", "kyma-system", "b")])
}

fn module_with(objects: &[(&str, &str, &str, &str)]) -> CompleteModule {
    let object = |(api, kind, namespace, name): &(&str, &str, &str, &str)| {
        format!("---\napiVersion: {api}\nkind: {kind}\nmetadata: {{name: {name}, namespace: {namespace}}}\n")
    };
    let text: String = objects.iter().map(object).collect();
    let tree = "0".repeat(40).parse().unwrap();
    let files = [(&Arc::from("objects.yaml"), text.as_bytes())];
    CompleteModule::new(&definition::module_objects(tree, files.into_iter(), &Limits::default()).unwrap())
}

fn objects() -> Arc<SharedObjects> {
    Arc::clone(module().objects())
}

/// What a pass does if no other client undoes anything.
fn work(manifest: &Manifest, installed: &InstalledObjects, desired: &Digest, checks: bool) -> Option<Work> {
    super::work(manifest, installed, desired, checks, Resting { repairs: &Repairs::default(), now: Instant::now() })
}

/// What is known where every object is as `seen`.
fn installed(seen: [Seen; 2]) -> InstalledObjects {
    InstalledObjects {
        module: module(),
        applied: Applied { objects: objects(), seen: seen.into(), follows_another: false },
        kept: [].into(),
    }
}

fn id(kind: &str, name: &str) -> ObjectId {
    ObjectId::new("", kind, "kyma-system", name)
}

/// A Manifest that is ready: `inventory` is recorded, and all that it wants is applied.
fn ready_manifest(inventory: &[&ObjectId]) -> Manifest {
    let before = manifest(|_| {});
    let recorded: Inventory = inventory.iter().map(|&id| (id.clone(), "v1".into())).collect();
    let facts = ManifestFacts {
        outcome: ManifestOutcome::Ready,
        synced: recorded.to_synced(),
        applied: Some(desired_digest(&objects(), &before)),
        module_resource: None,
        requested: None,
        waits_for: WaitFact::Nothing,
        not_created: None,
    };
    Manifest { status: status_change(&before, &facts, NOW), ..before }
}

fn both() -> [ObjectId; 2] {
    let ids: Vec<ObjectId> = objects().objects.iter().map(|object| object.id.clone()).collect();
    ids.try_into().unwrap()
}

fn conflict(id: &ObjectId) -> Conflicts {
    [(id.clone(), Owner::Other("managed by kubectl".to_owned()))].into()
}

fn failed(message: &str, error: Option<Error>) -> Failed {
    Failed { id: id("ConfigMap", "a"), error, message: message.to_owned() }
}

fn nothing() -> (Conflicts, PruneReport) {
    (BTreeMap::new(), PruneReport::default())
}

#[test]
fn i10_a_paused_manifest_is_neither_applied_nor_removed() {
    let skipped = |value: &str| {
        let value = value.to_owned();
        manifest(move |manifest| manifest["metadata"]["labels"][label::SKIP_RECONCILIATION] = json!(value))
    };
    let deleted = |value: &str| {
        let mut manifest = skipped(value);
        manifest.metadata.deletion_timestamp = Some(Time(NOW));
        manifest
    };
    for (manifest, expected) in [
        (manifest(|_| {}), Start::Apply),
        (skipped("true"), Start::Leave),
        (skipped("false"), Start::Apply),
        (deleted("true"), Start::Leave),
        (deleted("false"), Start::Remove),
    ] {
        assert_eq!(start(&manifest), expected, "{:?}", manifest.metadata);
    }
}

#[test]
fn what_cannot_be_read_is_reported_unless_it_stands_or_will_be_read() {
    let [one, two] = both();
    let (ready, new) = (ready_manifest(&[&one, &two]), manifest(|_| {}));
    for (manifest, checks, is_expected, is_away, expected) in [
        (&ready, false, false, false, Unavailable::Leave),
        (&ready, false, true, false, Unavailable::Leave),
        (&ready, true, true, false, Unavailable::TryAgain(SOURCE_RETRY)),
        (&ready, true, false, false, Unavailable::Report),
        (&ready, true, false, true, Unavailable::Leave),
        (&new, false, true, false, Unavailable::TryAgain(SOURCE_RETRY)),
        (&new, false, false, false, Unavailable::Report),
        (&new, true, false, true, Unavailable::Report),
    ] {
        let found = unavailable(manifest, checks, is_expected, is_away);
        assert_eq!(found, expected, "checks: {checks}, expected: {is_expected}, away: {is_away}");
    }
    assert!(unchecked_note(true).is_some() && unchecked_note(false).is_none());
    let failed = NotRead::Failed { message: "no such tree".to_owned(), is_retried: false, is_away: false };
    assert_eq!(NotRead::failed(&"no such tree"), failed);
    let facts = unavailable_facts(&ready, "no such tree");
    assert_eq!(facts.outcome, ManifestOutcome::SourceUnavailable("no such tree".to_owned()));
    assert_eq!(facts.synced, ready.status.unwrap().synced, "nothing is touched");
}

#[test]
fn nothing_is_done_for_a_manifest_that_stands_unless_the_pass_looks_for_drift() {
    let [one, two] = both();
    let ready = ready_manifest(&[&one, &two]);
    let desired = desired_digest(&objects(), &ready);
    let known = |first| installed([first, Seen::Recorded]);
    let is_work = |manifest: &Manifest, installed: &InstalledObjects, desired: &Digest, checks| {
        work(manifest, installed, desired, checks).is_some()
    };
    assert!(!is_work(&ready, &known(Seen::Recorded), &desired, false));
    assert!(is_work(&ready, &known(Seen::Recorded), &desired, true));
    assert!(is_work(&ready, &known(Seen::Missing), &desired, false));
    assert!(is_work(&ready, &known(Seen::Recorded), &Digest::of_bytes(b"other"), false));
    let mut asked = ready.clone();
    asked.metadata.annotations = Some([(annotation::RECONCILE_REQUESTED_AT.to_owned(), "now".to_owned())].into());
    assert!(is_work(&asked, &known(Seen::Recorded), &desired, false));
    let mut of_another = ready;
    of_another.metadata.generation = Some(2);
    assert!(is_work(&of_another, &known(Seen::Recorded), &desired, false), "what is recorded is of another generation");
}

#[test]
fn what_has_left_the_module_is_pruned_once_and_then_kept_in_peace() {
    let ([one, two], left) = (both(), id("Namespace", "left"));
    let ready = ready_manifest(&[&one, &two, &left]);
    let desired = desired_digest(&objects(), &ready);
    let mut known = installed([Seen::Recorded; 2]);
    let found = work(&ready, &known, &desired, false).unwrap();
    assert_eq!(found.prune.iter().map(|prune| &prune.id).collect::<Vec<_>>(), [&left]);
    assert_eq!(found.missing, Vec::<usize>::new());
    known.kept = [left].into();
    assert!(work(&ready, &known, &desired, false).is_none());
    assert!(work(&ready, &known, &desired, true).is_some(), "a check of all objects asks again");
}

#[test]
fn only_an_unrecorded_object_may_have_another_owner_and_is_not_applied_then() {
    let [one, two] = both();
    let known = installed([Seen::Missing; 2]);
    let desired = Digest::of_bytes(b"new");
    let find = |manifest: &Manifest| work(manifest, &known, &desired, false).unwrap();
    let names = |manifest: &Manifest| -> Vec<ObjectId> {
        let work = find(manifest);
        unrecorded(manifest, &known.applied, &work).into_iter().map(|object| object.id.clone()).collect()
    };
    let new = find(&manifest(|_| {}));
    assert_eq!(names(&manifest(|_| {})), [one.clone(), two.clone()]);
    assert_eq!(names(&ready_manifest(&[&one])), std::slice::from_ref(&two));
    // What it has taken over from another Manifest may be as desired, and is read before it is sent.
    let mut heir = ready_manifest(&[&one]);
    heir.status.as_mut().unwrap().conditions.clear();
    assert_eq!(names(&heir), [one.clone(), two.clone()]);
    assert_eq!(to_send(&known.applied, &new, &BTreeMap::new()), [0, 1]);
    assert_eq!(to_send(&known.applied, &new, &conflict(&one)), [1]);
}

#[test]
fn an_object_that_may_be_adopted_may_still_belong_to_another_manifest() {
    let text = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, namespace: kyma-system, annotations: \
                {tidegate.dev/adopt: \"true\"}}\n";
    let tree = "0".repeat(40).parse().unwrap();
    let files = [(&Arc::from("objects.yaml"), text.as_bytes())];
    let module = CompleteModule::new(&definition::module_objects(tree, files.into_iter(), &Limits::default()).unwrap());
    let applied =
        Applied { objects: Arc::clone(module.objects()), seen: [Seen::Missing].into(), follows_another: false };
    let known = InstalledObjects { module, applied, kept: [].into() };
    let new = manifest(|_| {});
    let work = work(&new, &known, &Digest::of_bytes(b"new"), false).unwrap();
    let found: Vec<bool> = unrecorded(&new, &known.applied, &work).iter().map(|object| object.adopt).collect();
    assert_eq!(found, [true]);
}

#[test]
fn an_object_is_in_the_inventory_before_it_is_sent() {
    let [one, two] = both();
    let known = installed([Seen::Missing; 2]);
    let desired = Digest::of_bytes(b"new");
    let recorded = |manifest: &Manifest, sent: &[usize]| {
        let work = work(manifest, &known, &desired, false).unwrap();
        facts_before(&known.applied, &work, sent, &ManifestOutcome::Ready).map(|facts| facts.synced.len())
    };
    assert_eq!(recorded(&manifest(|_| {}), &[0, 1]), Some(2));
    assert_eq!(recorded(&manifest(|_| {}), &[]), None);
    assert_eq!(recorded(&ready_manifest(&[&one]), &[0, 1]), Some(2));
    assert_eq!(recorded(&ready_manifest(&[&one, &two]), &[0, 1]), None, "both are there already");
}

#[test]
fn an_object_that_is_as_desired_gets_into_an_inventory_without_it_and_is_not_sent() {
    let [one, two] = both();
    let known = installed([Seen::Recorded; 2]);
    for (owned, missing, recorded) in [
        (vec![], vec![0, 1], Some(2)),
        (vec![&one], vec![1], Some(2)),
        (vec![&two], vec![0], Some(2)),
        (vec![&one, &two], vec![], None),
    ] {
        let manifest = ready_manifest(&owned);
        let desired = desired_digest(&objects(), &manifest);
        let Some(work) = work(&manifest, &known, &desired, false) else {
            assert_eq!(recorded, None, "{owned:?}");
            continue;
        };
        assert_eq!(work.missing, missing, "{owned:?}");
        let coming = to_send(&known.applied, &work, &BTreeMap::new());
        assert_eq!(
            facts_before(&known.applied, &work, &coming, &ManifestOutcome::Ready).map(|facts| facts.synced.len()),
            recorded
        );
        assert_eq!(still_missing(&known.applied, &coming), Vec::<usize>::new());
    }
}

#[test]
fn nothing_is_pruned_before_what_takes_its_place_is_there() {
    let left = id("ConfigMap", "left");
    let work = work(&ready_manifest(&[&left]), &installed([Seen::Missing; 2]), &Digest::of_bytes(b""), false).unwrap();
    assert_eq!(to_prune(&work, &BTreeMap::new(), &[]).len(), 1);
    assert_eq!(to_prune(&work, &BTreeMap::new(), &[failed("no", None)]), []);
    assert_eq!(to_prune(&work, &conflict(&left), &[]), []);
    // Otherwise two modules that exchange objects would wait for each other.
    let comes: Conflicts = [(id("ConfigMap", "comes"), Owner::Leaving("eu-other".to_owned()))].into();
    assert_eq!(to_prune(&work, &comes, &[]).len(), 1);
}

#[test]
fn a_default_custom_resource_that_is_being_deleted_is_waited_for() {
    let id = ObjectId::new("x.io", "Cache", "a", "default");
    let found = |deleting| Metadata { deleting, ..fixtures::metadata(&id, "1") };
    let waits = FoundResource::Missing("Cache.x.io a/default is still being deleted".to_owned());
    assert_eq!(existing_resource(None), None);
    assert_eq!(existing_resource(Some(&found(false))), Some(FoundResource::Exists));
    assert_eq!(existing_resource(Some(&found(true))), Some(waits));
}

#[test]
fn a_default_custom_resource_is_created_after_a_former_manifest_has_deleted_its_own() {
    let with = |name: &str, kind: &str, edit: &dyn Fn(&mut Manifest)| {
        let resource = json!({"apiVersion": "x.io/v1", "kind": kind, "metadata": {"name": name, "namespace": "a"}});
        let mut manifest = manifest(|manifest| {
            manifest["metadata"]["name"] = json!(format!("eu-{name}"));
            manifest["spec"]["resource"] = resource;
            manifest["spec"]["customResourcePolicy"] = json!("CreateAndDelete");
        });
        edit(&mut manifest);
        Arc::new(manifest)
    };
    let is_deleted = |manifest: &mut Manifest| manifest.metadata.deletion_timestamp = Some(Time(NOW));
    let is_released = |manifest: &mut Manifest| {
        is_deleted(manifest);
        manifest.metadata.annotations.get_or_insert_default().insert(annotation::IS_UNMANAGED.into(), "true".into());
    };
    let new = with("new", "Cache", &|_| {});
    let resource = recorded::module_resource(&new).unwrap();
    let waits = |former: Arc<Manifest>| waits_for_removal(&resource, &new, &[Arc::clone(&new), former]);
    let text = "Manifest eu-old is being deleted and deletes its own Cache first".to_owned();
    assert_eq!(waits(with("old", "Cache", &is_deleted)), Some(FoundResource::Missing(text)));
    assert_eq!(waits(with("old", "Cache", &|_| {})), None, "another module with the same kind");
    assert_eq!(waits(with("old", "Store", &is_deleted)), None, "another kind");
    assert_eq!(waits(with("old", "Cache", &is_released)), None, "its custom resource stays");
    assert_eq!(waits_for_removal(&resource, &new, &[with("new", "Cache", &is_deleted)]), None, "itself");
}

#[test]
fn the_default_custom_resource_is_created_once_where_it_is_ours() {
    let with = |policy: &str, is_created: bool, had_inventory: bool| {
        let policy = policy.to_owned();
        let mut manifest = manifest(move |manifest| {
            manifest["spec"]["customResourcePolicy"] = json!(policy);
            manifest["spec"]["resource"] =
                json!({"apiVersion": "x.io/v1", "kind": "Cache", "metadata": {"name": "default", "namespace": "a"}});
        });
        let mut status = ManifestStatus::default();
        if is_created {
            conditions::set(&mut status.conditions, "ModuleCR", Status::True, "Ready", "", None, &Time(NOW));
        }
        manifest.status = Some(status);
        module_resource(&manifest, false, had_inventory)
    };
    assert!(matches!(module_resource(&manifest(|_| {}), false, false), ModuleResource::NotOurs));
    assert!(matches!(with("Ignore", false, true), ModuleResource::NotOurs));
    let absent = with("CreateAndDelete", false, false);
    assert!(matches!(absent, ModuleResource::Absent(object) if object.name() == "default"));
    assert!(matches!(with("CreateAndDelete", false, true), ModuleResource::Unknown(_)), "it may be there already");
    assert!(matches!(with("CreateAndDelete", true, true), ModuleResource::Created));
}

#[track_caller]
fn check(observed: &Observed<'_>, expected: Option<(ManifestOutcome, Class)>) {
    let expected = expected.map(|(outcome, class)| Judgement { outcome, class: Some(class) });
    assert_eq!(judge(observed), expected);
}

#[test]
fn what_was_not_applied_is_one_sentence_with_the_next_step_and_the_names_of_the_others() {
    let rejected = || {
        let target = Target::Object(id("ConfigMap", "a"));
        let error = Error::Invalid { target, message: "data: Invalid value".to_owned() };
        Failed { id: id("ConfigMap", "a"), message: error.to_string(), error: Some(error) }
    };
    let explained = Failed { message: "a is refused: undo the change".to_owned(), ..rejected() };
    let more = |count: usize| -> Vec<Failed> {
        let other = |number| Failed { id: id("Secret", &format!("s{number}")), ..failed("no", None) };
        [rejected()].into_iter().chain((0..count).map(other)).collect()
    };
    let begin = "ConfigMap kyma-system/a was rejected: data: Invalid value; correct it";
    assert_eq!(failures(&[rejected()], None), format!("{begin} in the module"));
    assert_eq!(failures(&[explained], None), "a is refused: undo the change", "it says what to do");
    let path = Some("modules/cache/objects");
    assert_eq!(
        failures(&more(2), path),
        format!(
            "{begin} below `modules/cache/objects` in the repository (and 2 more: Secret kyma-system/s0, Secret \
             kyma-system/s1)"
        )
    );
    let many = failures(&more(OTHERS_MAX + 5), path);
    assert!(many.contains("(and 15 more: Secret") && many.ends_with("Secret kyma-system/s9 and 5 others)"), "{many}");
    let mut of_git = manifest(|_| {});
    assert_eq!(module_path(&of_git), None);
    of_git.spec.install.source = json!({"type": "git", "path": "modules/cache/objects"});
    assert_eq!(module_path(&of_git), path);
}

#[test]
fn conflicts_come_before_failures_and_failures_before_the_default_custom_resource() {
    let (none, pruned) = nothing();
    let conflicts = conflict(&id("ConfigMap", "a"));
    let terminating = || Error::Terminating { target: Target::Object(id("ConfigMap", "a")) };
    let class = terminating().class();
    let failures = [failed("a is stuck", Some(terminating())), failed("b waits for a", None)];
    let skipped = [failed("b waits for a", None)];
    let of = |conflicts, failed, resource| Observed { conflicts, failed, pruned: &pruned, resource, path: None };
    let message = "ConfigMap kyma-system/a exists and is not ours: managed by kubectl; remove it, or annotate it in \
                   the module with tidegate.dev/adopt: \"true\" to take it over";
    let missing = unserved_resource(&Gvk::new("x.io", "v1", "Cache"));
    let (exists, not_ours) = (FoundResource::Exists, FoundResource::NotOurs);
    check(&of(&conflicts, &failures, &missing), Some((ManifestOutcome::Failed(message.to_owned()), Class::Stalled)));
    check(
        &of(&none, &failures, &missing),
        Some((ManifestOutcome::Failed("a is stuck (and 1 more: ConfigMap kyma-system/a)".to_owned()), class)),
    );
    check(&of(&none, &skipped, &exists), Some((ManifestOutcome::Failed("b waits for a".to_owned()), Class::Transient)));
    let of_sibling: Conflicts = [(id("ConfigMap", "a"), Owner::Sibling("eu-other".to_owned()))].into();
    let message = "ConfigMap kyma-system/a exists and is not ours: it belongs to Manifest eu-other; remove it from one \
                   of the modules, or confirm its removal from the other one if that waits";
    check(&of(&of_sibling, &[], &exists), Some((ManifestOutcome::Failed(message.to_owned()), Class::Stalled)));
    let comes = |owner: &str| [(id("ConfigMap", "0"), Owner::Leaving(owner.to_owned()))];
    let message = "waiting until Manifest eu-other has deleted ConfigMap kyma-system/0";
    let waits = (ManifestOutcome::Waiting(message.to_owned()), Class::Waiting);
    let coming: Conflicts = comes("eu-other").into();
    check(&of(&coming, &[], &missing), Some(waits));
    // What another module gives up is applied soon after, whatever else is in conflict.
    let both: Conflicts = of_sibling.clone().into_iter().chain(comes("eu-third")).collect();
    let message = "ConfigMap kyma-system/a exists and is not ours: it belongs to Manifest eu-other; remove it from one \
                   of the modules, or confirm its removal from the other one if that waits";
    check(&of(&both, &[], &exists), Some((ManifestOutcome::Failed(message.to_owned()), Class::Waiting)));
    let message = "waiting until the module CR can be created: the API server does not serve x.io/v1 Cache";
    check(&of(&none, &[], &missing), Some((ManifestOutcome::Waiting(message.to_owned()), Class::Waiting)));
    check(&of(&none, &[], &exists), None);
    check(&of(&none, &[], &not_ours), None);

    let waits = |observed: &Observed<'_>| wait_before_workloads(observed, &judge(observed).expect("a judgement"));
    let leaves = "ConfigMap kyma-system/0, which Manifest eu-other deletes first";
    assert_eq!(waits(&of(&coming, &[], &missing)), WaitFact::For(leaves.to_owned()));
    let unserved = "its module CR: the API server does not serve x.io/v1 Cache";
    assert_eq!(waits(&of(&none, &[], &missing)), WaitFact::For(unserved.to_owned()));
    assert_eq!(waits(&of(&none, &failures, &missing)), WaitFact::Nothing, "it failed");
}

#[test]
fn a_module_is_ready_with_its_workloads_and_looked_at_again_while_anything_is_not() {
    let health = |state| Health { state, message: "because".to_owned() };
    let (waits, is_left) = (
        ManifestOutcome::Waiting(status::WAITING_FOR_RESOURCES.to_owned()),
        PruneReport { waiting: vec![id("ConfigMap", "left")], ..PruneReport::default() },
    );
    let finished = PruneReport { kept: vec![id("Namespace", "kept")], ..PruneReport::default() };
    for (state, pruned, outcome, class) in [
        (State::Ready, &finished, ManifestOutcome::Ready, None),
        (State::Warning, &finished, ManifestOutcome::Ready, None),
        (State::Ready, &is_left, ManifestOutcome::Ready, Some(Class::Waiting)),
        (
            State::Error,
            &finished,
            ManifestOutcome::Failed("manager is in error state".to_owned()),
            Some(Class::Waiting),
        ),
        (State::Processing, &finished, waits.clone(), Some(Class::Waiting)),
        (State::Deleting, &finished, waits, Some(Class::Waiting)),
    ] {
        assert_eq!(judge_workloads(&health(state), pruned, None), Judgement { outcome, class }, "{state}");
        let note = workload_note(&health(state)).map(|note| note.text);
        assert_eq!(note.as_deref(), (state == State::Error).then_some("because"), "the Event says which and why");
    }
}

#[test]
fn an_object_that_others_undo_again_and_again_is_a_warning_unless_a_workload_failed() {
    let undone = || Some("a is deleted again and again".to_owned());
    for (state, class) in [(State::Ready, None), (State::Warning, None), (State::Processing, Some(Class::Waiting))] {
        let health = Health { state, message: String::new() };
        let outcome = ManifestOutcome::Contested("a is deleted again and again".to_owned());
        assert_eq!(judge_workloads(&health, &PruneReport::default(), undone()), Judgement { outcome, class });
    }
    let failed = Health { state: State::Error, message: String::new() };
    let judgement = judge_workloads(&failed, &PruneReport::default(), undone());
    assert_eq!(judgement.outcome, ManifestOutcome::Failed(status::WORKLOAD_FAILED.to_owned()));
}

/// A process that starts during a fight does not know what is missing, so it applies everything once.
#[test]
fn the_record_of_a_contested_module_is_not_believed() {
    let ready = ready_manifest(&[]);
    assert!(recorded::digest(&ready).is_some());
    let mut contested = ready;
    contested.status.as_mut().expect("a status").state = State::Warning;
    assert_eq!(recorded::digest(&contested), None);
}

#[test]
fn the_inventory_shrinks_only_by_what_is_gone() {
    let ([one, two], left) = (both(), id("ConfigMap", "left"));
    let recorded = ready_manifest(&[&one, &two, &left]);
    let (conflicts, _) = nothing();
    let facts = |pruned: &PruneReport| {
        let resource = &FoundResource::NotOurs;
        let observed = Observed { conflicts: &conflicts, failed: &[], pruned, resource, path: None };
        ending_facts(&recorded, &observed, ManifestOutcome::Ready, None, WaitFact::Nothing).synced.len()
    };
    assert_eq!(facts(&PruneReport { gone: vec![left.clone()], ..PruneReport::default() }), 2);
    assert_eq!(facts(&PruneReport { kept: vec![left.clone()], ..PruneReport::default() }), 3);
    assert_eq!(facts(&PruneReport { waiting: vec![left], ..PruneReport::default() }), 3);
}

#[test]
fn what_became_of_a_pruned_object_says_whether_it_is_gone_kept_or_waited_for() {
    let results = |result| PruneReport::new(vec![Pruned { id: id("ConfigMap", "a"), result }]);
    for (verdict, [gone, waiting, kept]) in [
        (Verdict::Gone, [1, 0, 0]),
        (Verdict::Foreign, [1, 0, 0]),
        (Verdict::Delete, [0, 1, 0]),
        (Verdict::Wait, [0, 1, 0]),
        (Verdict::Disabled, [0, 0, 1]),
        (Verdict::Guarded, [0, 0, 1]),
    ] {
        let report = results(Ok(verdict));
        assert_eq!([report.gone.len(), report.waiting.len(), report.kept.len()], [gone, waiting, kept], "{verdict:?}");
        assert_eq!(report.is_finished(), waiting == 0);
    }
    let error = Error::Changed { target: Target::Object(id("ConfigMap", "a")) };
    assert_eq!(results(Err(error)).waiting.len(), 1);
}

#[test]
fn an_error_that_concerns_the_runtime_ends_a_prune_and_one_of_an_object_does_not() {
    let target = || Target::Object(id("ConfigMap", "a"));
    let pruned = |result| Pruned { id: id("ConfigMap", "a"), result };
    let changed = || pruned(Err(Error::Changed { target: target() }));
    let gone = || pruned(Ok(Verdict::Gone));
    for (results, expected) in [
        (vec![], Some(0)),
        (vec![gone(), changed()], Some(2)),
        (vec![changed(), pruned(Err(Error::NotLeading)), gone()], None),
    ] {
        let text = format!("{results:?}");
        assert_eq!(of_single_objects(results).ok().map(|results| results.len()), expected, "{text}");
    }
}

#[test]
fn a_new_manager_of_a_module_is_checked() {
    let manager = json!({"group": "apps", "version": "v1", "kind": "Deployment", "name": "b"});
    let managed = manifest(move |manifest| manifest["spec"]["manager"] = manager);
    assert_ne!(desired_digest(&objects(), &managed), desired_digest(&objects(), &manifest(|_| {})));
}

#[test]
fn a_status_is_written_only_if_it_differs() {
    let [one, two] = both();
    let ready = ready_manifest(&[&one, &two]);
    let (conflicts, pruned) = nothing();
    let resource = &FoundResource::NotOurs;
    let observed = Observed { conflicts: &conflicts, failed: &[], pruned: &pruned, resource, path: None };
    let applied = Some(desired_digest(&objects(), &ready));
    let later = Timestamp::from_second(99).unwrap();
    let facts = ending_facts(&ready, &observed, ManifestOutcome::Ready, applied, WaitFact::Nothing);
    assert_eq!(status_change(&ready, &facts, later), None);
    let facts = ending_facts(&ready, &observed, ManifestOutcome::Failed("no".to_owned()), applied, WaitFact::Nothing);
    assert!(status_change(&ready, &facts, later).is_some());
}

#[test]
fn users_are_told_of_the_first_and_how_many_there_are() {
    let kept = |names: &[&str]| PruneReport {
        kept: names.iter().map(|name| id("Namespace", name)).collect(),
        ..PruneReport::default()
    };
    assert_eq!(kept_note(&kept(&[])), None);
    assert_eq!(in_use_note(&BTreeMap::new()), None);
    let in_use = [(id("CustomResourceDefinition", "a"), "Box default/mine (and 2 more)".to_owned())];
    assert_eq!(
        in_use_note(&in_use.into()).unwrap().text,
        "CustomResourceDefinition kyma-system/a is no longer part of the module but stays, because users have custom \
         resources: Box default/mine (and 2 more)"
    );
    assert_eq!(conflict_note(&BTreeMap::new()), None);
    let note = kept_note(&kept(&["a", "b"])).unwrap();
    assert_eq!((note.reason, note.action), ("Kept", "Prune"));
    assert_eq!(
        note.text,
        "Namespace kyma-system/a is no longer part of the module but stays (and 1 more); to delete it, annotate it \
         with tidegate.dev/prune=enabled"
    );
    let note = conflict_note(&conflict(&id("ConfigMap", "a"))).unwrap();
    assert_eq!((note.reason, note.action), ("Conflict", "Apply"));
    assert_eq!(note.text, "ConfigMap kyma-system/a exists and is not ours: managed by kubectl");
}

#[test]
fn e20_a_module_whose_removal_waits_is_repaired_and_nothing_of_it_is_pruned() {
    let [one, two] = both();
    let left = id("Secret", "old");
    let mut deleting = ready_manifest(&[&one, &two, &left]);
    deleting.metadata.deletion_timestamp = Some(Time(NOW));
    let desired = desired_digest(&objects(), &deleting);
    for (first, desired, expected) in [
        (Seen::Recorded, &desired, None),
        (Seen::Missing, &desired, Some(vec![0])),
        // A new version: its digest must be recorded, so that it is not applied again.
        (Seen::Recorded, &Digest::of_bytes(b"other"), Some(vec![])),
    ] {
        let resting = Resting { repairs: &Repairs::default(), now: Instant::now() };
        let work = keeping_work(&deleting, &installed([first, Seen::Recorded]), desired, resting);
        assert_eq!(work.as_ref().map(|work| work.missing.clone()), expected);
        assert_eq!(work.map(|work| work.prune).unwrap_or_default(), []);
    }
    let waiting = ManifestOutcome::Deleting("waiting".to_owned());
    let facts = keeping_facts(&deleting, waiting.clone(), Some(desired));
    assert_eq!((facts.outcome, facts.synced.len()), (waiting, 3), "everything stays recorded");
}

#[test]
fn a_failed_apply_is_tried_again_once_another_module_of_the_runtime_has_other_objects() {
    let own = manifest(|_| {});
    let other = |tree: &str| {
        Arc::new(manifest(|manifest| {
            manifest["metadata"]["name"] = json!("eu-mailer");
            manifest["spec"]["install"]["source"]["tree"] = json!(tree);
        }))
    };
    let desired = Digest::of_bytes(b"desired");
    let tried = |all: &[Arc<Manifest>]| super::tried(&desired, &own, all);
    assert_eq!(tried(&[other("a")]), tried(&[Arc::new(own.clone()), other("a")]), "its own source is in `desired`");
    assert_ne!(tried(&[other("a")]), tried(&[other("b")]));
    assert_ne!(tried(&[other("a")]), tried(&[]));
}

#[test]
fn what_the_api_server_has_always_refused_has_never_existed() {
    let target = || Target::Object(id("ConfigMap", "a"));
    let refused = || Some(Error::NotFound { target: target(), message: "namespaces \"nowhere\" not found".to_owned() });
    let failed = |error| [Failed { id: id("ConfigMap", "a"), error, message: "it failed".to_owned() }];
    let owned: Inventory = [(id("ConfigMap", "a"), Arc::from("v1"))].into_iter().collect();
    let said = |ids: &str| {
        manifest(|manifest| {
            manifest["status"] = json!({"state": "Error", "conditions": [{"type": conditions::NOT_CREATED, "status":
                "True", "reason": "Refused", "message": ids, "lastTransitionTime": "2026-01-01T00:00:00Z"}]});
        })
    };
    let new = || manifest(|_| {});
    let never = |before: &Manifest, owned: &Inventory, error| {
        never_created(before, owned, &failed(error), &LiveObjects::new()).len()
    };
    assert_eq!(never(&new(), &Inventory::default(), refused()), 1, "the first apply");
    assert_eq!(never(&said("ConfigMap kyma-system/a"), &owned, refused()), 1, "one after it");
    assert_eq!(never(&said("ConfigMap kyma-system/b"), &owned, refused()), 0, "it was created before");
    assert_eq!(never(&new(), &Inventory::default(), None), 1, "it was not sent");
    let unclear = Error::Expired { target: target() };
    assert_eq!(never(&new(), &Inventory::default(), Some(unclear)), 0, "it may have been created");
    let (before, after) = (said("ConfigMap kyma-system/a"), said("ConfigMap kyma-system/b"));
    assert!(!status::has_had(&before, &id("ConfigMap", "a")), "it is in no inventory");
    let with = |manifest: Manifest| {
        let mut manifest = manifest;
        manifest.status.as_mut().unwrap().synced = owned.to_synced();
        manifest
    };
    assert!(!status::has_had(&with(before), &id("ConfigMap", "a")));
    assert!(status::has_had(&with(after), &id("ConfigMap", "a")));
    assert!(status::has_had(&new(), &id("ConfigMap", "a")), "its status is lost");
}

#[test]
fn a_missing_namespace_is_named_with_what_to_do() {
    let message = "namespaces \"kyma-system\" not found".to_owned();
    let error = Error::NotFound { target: Target::Object(id("ConfigMap", "a")), message };
    let failed = [Failed { id: id("ConfigMap", "a"), message: error.to_string(), error: Some(error) }];
    let said = failures(&failed, Some("modules/cache"));
    let expected = "; add Namespace kyma-system below `modules/cache` in the repository, or create it in the runtime";
    assert!(said.ends_with(expected), "{said}");
}

#[test]
fn a_pass_that_installs_compares_what_exists_and_one_that_keeps_a_module_does_not() {
    let keep = Purpose::Keep("waiting for module crs deletion: Cache a/b".to_owned());
    assert_eq!(outcome_before(&Purpose::Install), ManifestOutcome::Waiting(status::WAITING_FOR_RESOURCES.to_owned()));
    let deleting = ManifestOutcome::Deleting("waiting for module crs deletion: Cache a/b".to_owned());
    assert_eq!(outcome_before(&keep), deleting);
    let id = ObjectId::new("", "ConfigMap", "kyma-system", "a");
    let found: LiveObjects = [(id.clone(), fixtures::metadata(&id, "1"))].into();
    let new = manifest(|_| {});
    assert!(recognizes(&Purpose::Install, &new, &found));
    assert!(!recognizes(&Purpose::Install, &new, &LiveObjects::new()));
    assert!(!recognizes(&keep, &new, &found));
    let recorded = manifest(|manifest| manifest["status"] = json!({"state": "Ready"}));
    for (manifest, coming, sent, expected) in [
        (&new, &[0, 1][..], &[][..], true),
        (&new, &[0, 1][..], &[1][..], false),
        (&new, &[][..], &[][..], false),
        (&recorded, &[0, 1][..], &[][..], false),
    ] {
        assert_eq!(was_found(manifest, coming, sent), expected, "{coming:?} {sent:?}");
    }
}
