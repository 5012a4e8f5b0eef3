use tidegate_cluster::Target;
use tidegate_core::{
    api::names::{annotation, label},
    name::Key,
    object::Gvk,
};

use super::*;
use crate::source::{load, survey::served};

const LABEL: &str = "kcp-system.dev";

#[test]
fn only_objects_of_one_kind_are_wanted_at_once() {
    let decision = Decision {
        apply: vec![(template("a"), Why::Absent), (template("b"), Why::Changed), (kyma("a"), Why::Drifted)],
        ..Decision::default()
    };
    let names = |kind| wanted(&decision, kind).into_iter().map(|(id, why)| (id.clone(), why)).collect::<Vec<_>>();
    assert_eq!(names(Kind::ModuleTemplate), [(template("a"), Why::Absent), (template("b"), Why::Changed)]);
    assert_eq!(names(Kind::Kyma), [(kyma("a"), Why::Drifted)]);
    assert_eq!(names(Kind::Watcher), []);
}

#[test]
fn only_kymas_that_run_and_shall_not_are_suspended_first() {
    let loaded = load::loaded('a', load::valid(), None);
    // Only its labels matter.
    let definition = loaded.definitions.good.values().next().expect("a definition");
    let with = |value: &str| {
        let mut definition = (**definition).clone();
        definition.object.map_mut()["metadata"]["labels"] = json!({ label::SKIP_RECONCILIATION: value });
        Arc::new(definition)
    };
    let cases = [
        ("a", "TRUE", Some(false), true),
        ("b", "false", Some(false), false),
        ("c", "true", Some(true), false),
        ("d", "true", None, false),
    ];
    let good = cases.iter().map(|(name, value, ..)| (kyma(name), with(value))).collect();
    let apply = cases.iter().map(|(name, ..)| (kyma(name), Why::Changed)).collect();
    let decision = Decision { apply, ..Decision::default() };
    let is_skipped = |key: &Key| cases.iter().find(|(name, ..)| key.name() == *name).and_then(|(_, _, live, _)| *live);
    let expected: Vec<Id> = cases.iter().filter(|(.., is)| *is).map(|(name, ..)| kyma(name)).collect();
    let found: Vec<Id> = suspended(&decision, &good, &is_skipped).into_iter().map(|(id, _)| id.clone()).collect();
    assert_eq!(found, expected);
}

#[test]
fn only_an_object_that_the_watch_does_not_show_is_looked_for() {
    let (a, b, c) = (kyma("a"), kyma("b"), kyma("c"));
    let all = vec![(&a, Why::Absent), (&b, Why::Changed), (&c, Why::Absent)];
    let unseen = unseen(&served(Kind::Kyma), &all);
    assert_eq!(unseen.values().collect::<Vec<_>>(), [&a, &c]);

    let found = served(Kind::Kyma).id(&c.1);
    let (rest, held) = appeared(all.clone(), &unseen, &[&found].into());
    assert_eq!((rest, held), (vec![(&a, Why::Absent), (&b, Why::Changed)], vec![c.clone()]));
    assert_eq!(appeared(all.clone(), &unseen, &BTreeSet::new()), (all, Vec::new()));
}

#[test]
fn an_object_is_skipped_if_another_one_that_it_needs_failed() {
    let (needs, failed) = ([template("a"), template("b")], template("b"));
    assert_eq!(failed_need(&needs, &[&failed].into()), Some(&needs[1]));
    assert_eq!(failed_need(&needs, &BTreeSet::new()), None);
    assert_eq!(failed_need(&[], &[&failed].into()), None);
}

#[test]
fn a_plan_has_one_request_for_each_definition_whose_needs_did_not_fail() {
    let loaded = load::loaded('a', load::valid(), None);
    let template = (Kind::ModuleTemplate, Key::new("kcp-system", "cache-1.0.0"));
    let release = (Kind::ModuleReleaseMeta, Key::new("kcp-system", "cache"));
    let unknown = kyma("unknown");
    let wanted = [(&template, Why::Absent), (&release, Why::Changed), (&unknown, Why::Changed)];
    let name = SourceName::new(Key::new("kcp-system", "dev"));

    let all = plan(&name, &loaded, &wanted, &BTreeSet::new());
    assert_eq!(all.sent, wanted[..2]);
    assert_eq!(all.skipped, []);
    let tasks: Vec<_> = all.tasks.iter().map(|task| (&*task.id.name, task.on_conflict)).collect();
    assert_eq!(tasks, [("cache-1.0.0", OnConflict::Report), ("cache", OnConflict::Force)]);
    assert!(String::from_utf8_lossy(&all.tasks[0].body).contains(LABEL));

    let some = plan(&name, &loaded, &wanted[1..], &[&template].into());
    assert_eq!((some.tasks.len(), some.sent.len()), (0, 0));
    assert_eq!(some.skipped, [(release, template)]);
}

#[test]
fn no_module_is_taken_from_a_kyma_before_it_is_suspended() {
    let kyma = |modules: &[&str], suspended: Option<&str>| {
        let modules: Vec<Value> = modules.iter().map(|name| json!({"name": name, "managed": true})).collect();
        json!({
            "apiVersion": "operator.kyma-project.io/v1beta2", "kind": "Kyma",
            "metadata": {
                "name": "a", "namespace": "kcp-system", "resourceVersion": "7",
                "labels": suspended.map(|value| json!({label::SKIP_RECONCILIATION: value})),
            },
            "spec": {"channel": "regular", "modules": modules},
        })
    };
    for (declared, live, is_patched) in [
        (kyma(&["m"], None), kyma(&["m", "n"], None), true),
        (kyma(&["m"], None), kyma(&["m"], None), false),
        (kyma(&["m"], Some("true")), kyma(&["m", "n"], None), false),
        (kyma(&["m"], Some("True")), kyma(&["m", "n"], Some("false")), false),
        (kyma(&["m"], Some("true")), kyma(&["m", "n"], Some("true")), true),
        // The list is right before the runtime resumes.
        (kyma(&["m"], None), kyma(&["m", "n"], Some("true")), true),
    ] {
        let live_kyma: Kyma = serde_json::from_value(live.clone()).unwrap();
        let patch = without_other_modules(&declared, &live_kyma);
        assert_eq!(patch.is_some(), is_patched, "{declared} {live}");
        if let Some(patch) = patch {
            let patch: Value = serde_json::from_slice(&patch).unwrap();
            let modules = json!([{"name": "m", "managed": true, "customResourcePolicy": "CreateAndDelete"}]);
            assert_eq!(patch, json!({"metadata": {"resourceVersion": "7"}, "spec": {"modules": modules}}));
        }
    }
}

#[test]
fn only_an_object_that_we_see_for_the_first_time_keeps_fields_of_others() {
    for (why, expected) in [
        (Why::Absent, OnConflict::Report),
        (Why::Changed, OnConflict::Force),
        (Why::Drifted, OnConflict::Force),
        (Why::Adopted, OnConflict::Force),
        (Why::Moved, OnConflict::Force),
    ] {
        assert_eq!(on_conflict(why), expected, "{why:?}");
    }
}

#[test]
fn only_what_may_lack_its_namespace_is_sent_again() {
    let tasks = [task("new", "a"), task("new", "b"), task("old", "c")];
    let outcomes = [outcome(&tasks[0], not_found()), outcome(&tasks[1], ours()), outcome(&tasks[2], not_found())];
    let retriable = retriable(&tasks, &["new".into()].into());
    assert_eq!(retriable.iter().map(|task| &*task.id.name).collect::<Vec<_>>(), ["a", "b"]);
    let again = lacking_namespace(retriable, &outcomes);
    assert_eq!(again.iter().map(|task| &*task.id.name).collect::<Vec<_>>(), ["a"]);
}

#[test]
fn the_later_outcome_of_a_task_is_valid() {
    let tasks = [task("new", "a"), task("new", "b")];
    let outcomes = vec![outcome(&tasks[0], not_found()), outcome(&tasks[1], not_found())];
    let merged = with_retried(outcomes, vec![outcome(&tasks[1], ours())]);
    assert!(matches!(merged[0].effect, Effect::Failed(_)) && &*merged[0].id.name == "a");
    assert!(matches!(merged[1].effect, Effect::Applied { .. }) && &*merged[1].id.name == "b");
}

#[test]
fn an_object_with_other_managers_is_ours_only_if_it_existed_before() {
    let with = |manager: &str| Effect::Applied {
        metadata: Box::new(Metadata { managers: vec![FIELD_MANAGER.to_owned(), manager.to_owned()], ..live() }),
        changed: None,
    };
    let text = |applied: AppliedObject| match applied {
        AppliedObject::Ours(_) => "ours".to_owned(),
        AppliedObject::Rival(_) => "rival".to_owned(),
        AppliedObject::Failed { class, message } => format!("{class:?}: {message}"),
    };
    let skipped = || Effect::Skipped { needs: ObjectId::new("", "Namespace", "", "new") };
    let gone = "Waiting: Kyma.operator.kyma-project.io kcp-system/a not found: gone";
    let needs = format!("Waiting: it depends on {}, which was not applied", ObjectId::new("", "Namespace", "", "new"));
    for (why, effect, expected) in [
        (Why::Absent, ours(), "ours"),
        (Why::Absent, with("kubectl"), "rival"),
        (Why::Changed, with("kubectl"), "ours"),
        (Why::Moved, with("kubectl"), "ours"),
        (Why::Absent, skipped(), needs.as_str()),
        (Why::Changed, not_found(), gone),
    ] {
        assert_eq!(text(applied(why, effect)), expected, "{why:?}");
    }
}

#[test]
fn a_prune_deletes_only_the_object_of_the_decision() {
    let text = |step| match step {
        PruneStep::Gone => "gone",
        PruneStep::Leave => "leave",
        PruneStep::Delete(_) => "delete",
    };
    let kept = Metadata { annotations: [(annotation::PRUNE.to_owned(), "disabled".to_owned())].into(), ..live() };
    assert_eq!(text(prune_step(None, LABEL, "u1")), "gone");
    assert_eq!(text(prune_step(Some(live()), LABEL, "u1")), "delete");
    assert_eq!(text(prune_step(Some(live()), LABEL, "u2")), "leave");
    assert_eq!(text(prune_step(Some(live()), "kcp-system.other", "u1")), "leave");
    assert_eq!(text(prune_step(Some(kept), LABEL, "u1")), "leave");
}

#[test]
fn nothing_is_pruned_after_a_failure() {
    assert!(may_prune(&[]));
    assert!(!may_prune(&[(kyma("a"), "rejected".to_owned())]));
}

#[test]
fn a_pass_remembers_what_helps_soonest() {
    let check = |classes: &[Class], expected: Option<Class>| {
        let mut enacted = Enacted::default();
        classes.iter().for_each(|class| enacted.fail(kyma("a"), *class, "rejected".to_owned()));
        assert_eq!(enacted.class, expected, "{classes:?}");
    };
    check(&[], None);
    check(&[Class::Stalled], Some(Class::Stalled));
    check(&[Class::Stalled, Class::Waiting], Some(Class::Waiting));
    check(&[Class::Waiting, Class::Transient, Class::Stalled], Some(Class::Transient));
}

#[test]
fn results_of_prunes_and_skips_add_up() {
    let mut enacted = Enacted::default();
    enacted.prune(kyma("gone"), Ok(PrunedObject::Gone));
    enacted.prune(kyma("changed"), Ok(PrunedObject::Changed));
    assert_eq!(enacted.pruned, [kyma("gone")]);
    // It stays for now, so the source is not ready.
    let changed = "it changed a moment ago; the next pass decides whether to delete it";
    assert_eq!(enacted.failures, [(kyma("changed"), changed.to_owned())]);
    assert_eq!(enacted.class, Some(Class::Waiting));

    let mut enacted = Enacted::default();
    enacted.fail(template("a"), Class::Stalled, "rejected".to_owned());
    enacted.skip(vec![(kyma("b"), template("a"))]);
    let skipped = "it depends on ModuleTemplate kcp-system/a, which was not applied";
    assert_eq!(enacted.failures[1], (kyma("b"), skipped.to_owned()));
    // The object that was skipped needs what the failed one needs.
    assert_eq!(enacted.class, Some(Class::Stalled));
    assert_eq!(enacted.failed(), [&template("a"), &kyma("b")].into());
}

fn template(name: &str) -> Id {
    (Kind::ModuleTemplate, Key::new("kcp-system", name))
}

fn kyma(name: &str) -> Id {
    (Kind::Kyma, Key::new("kcp-system", name))
}

fn task(namespace: &str, name: &str) -> Task {
    let gvk = Gvk::new("operator.kyma-project.io", "v1beta2", "Kyma");
    Task::forced(gvk, ObjectId::new("operator.kyma-project.io", "Kyma", namespace, name), "{}".into())
}

fn outcome(task: &Task, effect: Effect) -> Outcome {
    Outcome { id: task.id.clone(), effect }
}

fn ours() -> Effect {
    Effect::Applied { metadata: Box::new(live()), changed: None }
}

fn not_found() -> Effect {
    let target = Target::Object(ObjectId::new("operator.kyma-project.io", "Kyma", "kcp-system", "a"));
    Effect::Failed(cluster::Error::NotFound { target, message: "gone".to_owned() })
}

fn live() -> Metadata {
    Metadata {
        id: ObjectId::new("operator.kyma-project.io", "Kyma", "kcp-system", "a"),
        version: "v1beta2".into(),
        uid: "u1".to_owned(),
        resource_version: "7".to_owned(),
        generation: 1,
        labels: [(label::SOURCE.to_owned(), LABEL.to_owned())].into(),
        annotations: BTreeMap::new(),
        finalizers: Vec::new(),
        managers: vec![FIELD_MANAGER.to_owned()],
        deleting: false,
        last_other: None,
        claims_texts: false,
        has_user_writes: false,
        owners: Vec::new(),
        unreadable: None,
    }
}
