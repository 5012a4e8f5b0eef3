//! What waits for a confirmation, and what does not.

use std::sync::Arc;

use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};

use super::*;
use crate::{
    api::{GitSource, git_source::GitSourceSpec, names::annotation},
    definition::module_objects,
    diagnostic::Diagnostics,
    intake::{
        Declared, Policy,
        status::{self, Fetched, Pass, Withheld},
    },
    revision::Revision,
    yaml,
};

const COMMIT: &str = "0123456789012345678901234567890123456789";

fn key(name: &str) -> Key {
    Key::new("kcp-system", name)
}

fn installed(runtime: &str, module: &str, standing: Standing) -> Installed {
    Installed { runtime: key(runtime), module: module.to_owned(), version: "1.0.0".to_owned(), standing }
}

/// A Kyma that git declares with these modules, or without a list; a module that ends with `-` is unmanaged.
fn kyma(mode: &str, modules: Option<&[&str]>) -> Kyma {
    let module = |name: &&str| json!({"name": name.trim_end_matches('-'), "managed": !name.ends_with('-')});
    let mut kyma = json!({
        "apiVersion": "operator.kyma-project.io/v1beta2", "kind": "Kyma",
        "metadata": {"name": "a", "namespace": "kcp-system", "annotations": {annotation::MODULES_FROM: mode}},
        "spec": {"channel": "regular"},
    });
    if let Some(modules) = modules {
        kyma["spec"]["modules"] = Value::from(modules.iter().map(module).collect::<Vec<Value>>());
    }
    serde_json::from_value(kyma).unwrap()
}

#[test]
fn a_kyma_loses_what_it_had_from_git_and_no_longer_names() {
    let has = ["m", "n"];
    for (live, declared, lost) in [
        (Some(kyma("git", Some(&["m", "n"]))), kyma("git", Some(&["m"])), vec!["n"]),
        (Some(kyma("git", Some(&["m", "n"]))), kyma("git", Some(&[])), vec!["m", "n"]),
        (Some(kyma("git", Some(&["m", "n"]))), kyma("git", Some(&["m", "n-", "o"])), vec![]),
        (Some(kyma("git", Some(&["m", "n-"]))), kyma("git", Some(&["m"])), vec![]),
        // It is being removed already.
        (Some(kyma("git", Some(&["m"]))), kyma("git", Some(&["m"])), vec![]),
        // The runtime decides, or keeps its own.
        (Some(kyma("runtime", Some(&["m"]))), kyma("runtime", None), vec![]),
        (Some(kyma("git", Some(&["m", "n"]))), kyma("runtime", Some(&[])), vec![]),
        (Some(kyma("runtime", Some(&["m"]))), kyma("merge", Some(&["m"])), vec![]),
        (Some(kyma("merge", Some(&["m"]))), kyma("merge", Some(&[])), vec!["m"]),
        // Git decides from now on.
        (Some(kyma("runtime", Some(&[]))), kyma("git", Some(&["m"])), vec!["n"]),
        (Some(kyma("merge", Some(&["m"]))), kyma("git", Some(&["m"])), vec!["n"]),
        (None, kyma("git", Some(&["m"])), vec!["n"]),
    ] {
        let all = has.map(|module| installed("a", module, Standing::Selected));
        let found = of_kyma(&declared, live.as_ref(), &all);
        let found: Vec<&str> = found.iter().map(|removal| removal.module.name()).collect();
        assert_eq!(found, lost, "{live:?} {declared:?}");
    }
}

#[test]
fn a_removal_that_waits_is_one_also_after_a_client_has_dropped_the_module() {
    let has = ["m", "n"].map(|module| installed("a", module, Standing::Selected));
    let lost = |mode: &str, live: &[&str], declared: &[&str], condition: &str| -> Vec<String> {
        let mut live = serde_json::to_value(kyma(mode, Some(live))).unwrap();
        live["status"] = json!({"conditions": [{
            "type": condition, "status": "False", "reason": "Waits", "message": "it waits",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }]});
        let live: Kyma = serde_json::from_value(live).unwrap();
        let found = of_kyma(&kyma(mode, Some(declared)), Some(&live), &has);
        found.iter().map(|removal| removal.module.name().to_owned()).collect()
    };
    for mode in ["git", "merge"] {
        assert_eq!(lost(mode, &["m"], &["m"], conditions::REMOVAL), ["n"], "{mode}");
        assert_eq!(lost(mode, &["m"], &["m"], conditions::MODULES_FROM), [""; 0], "{mode}: it is being removed");
        assert_eq!(lost(mode, &["m"], &["m", "n"], conditions::REMOVAL), [""; 0], "{mode}: git has it again");
        assert_eq!(lost(mode, &["m", "n-"], &["m"], conditions::REMOVAL), [""; 0], "{mode}: its objects stay");
    }
}

#[test]
fn a_kyma_does_not_lose_mandatory_modules_nor_what_is_leaving() {
    let all = [installed("a", "m", Standing::Mandatory), installed("a", "n", Standing::Leaving)];
    let live = kyma("git", Some(&["m", "n"]));
    assert_eq!(of_kyma(&kyma("git", Some(&[])), Some(&live), &all), []);
}

fn objects(text: &str) -> ModuleObjects {
    let tree: crate::revision::Oid = COMMIT.parse().unwrap();
    let path: Arc<str> = "objects.yaml".into();
    module_objects(tree, [(&path, text.as_bytes())].into_iter(), &yaml::Limits::default()).unwrap()
}

#[test]
fn objects_leave_a_version_unless_they_stay_in_runtimes_anyway() {
    let config =
        |name: &str| format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {name}, namespace: ns}}\n---\n");
    let namespace = |annotations: &str| {
        format!("apiVersion: v1\nkind: Namespace\nmetadata: {{name: data, annotations: {annotations}}}\n---\n")
    };
    let kept = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: kept, namespace: ns, annotations: \
                {tidegate.dev/prune: disabled}}\n---\n";
    let leaves = |old: String, new: Option<&str>| -> Vec<String> {
        leaving(&objects(&old), new.map(objects).as_ref()).iter().map(ToString::to_string).collect()
    };
    let (a, b) = (config("a"), config("b"));
    assert_eq!(leaves(format!("{b}{a}"), Some(&a)), ["ConfigMap ns/b"]);
    assert_eq!(leaves(format!("{b}{a}"), None), ["ConfigMap ns/a", "ConfigMap ns/b"]);
    assert_eq!(leaves(a.clone(), Some(&format!("{a}{b}"))), [""; 0]);
    assert_eq!(leaves(format!("{a}{}", namespace("{}")), Some(&a)), [""; 0], "it has users' data");
    assert_eq!(leaves(format!("{a}{}", namespace("{tidegate.dev/prune: enabled}")), Some(&a)), ["Namespace data"]);
    assert_eq!(leaves(format!("{a}{kept}"), Some(&a)), [""; 0]);
}

#[test]
fn objects_leave_the_runtimes_that_have_the_version() {
    let other = Installed { version: "2.0.0".to_owned(), ..installed("c", "m", Standing::Selected) };
    let all = [
        installed("a", "m", Standing::Selected),
        installed("b", "m", Standing::Mandatory),
        installed("d", "m", Standing::Leaving),
        installed("e", "n", Standing::Selected),
        other,
    ];
    let object = ObjectId::new("", "ConfigMap", "n", "b");
    let found = of_template(&key("m-1.0.0"), Some(&[object]), &all, |_, _| true);
    let runtimes: Vec<&Key> = found.iter().flat_map(|removal| &removal.runtimes).collect();
    assert_eq!(runtimes, [&key("a"), &key("b")]);
    let (never, once) = (ObjectId::new("", "ConfigMap", "n", "never"), ObjectId::new("", "ConfigMap", "n", "once"));
    let has = |one: &Installed, id: &ObjectId| one.runtime == key("a") && *id.name == *"once";
    let found = of_template(&key("m-1.0.0"), Some(&[never.clone(), once.clone()]), &all, has);
    let [Removal { loss: Removed::Objects { objects, .. }, runtimes, .. }] = &found[..] else { panic!("{found:?}") };
    assert_eq!((objects, runtimes), (&vec![once], &[key("a")].into()), "what never existed leaves no runtime");
    assert_eq!(of_template(&key("m-1.0.0"), Some(&[never]), &all, has), []);
    assert_eq!(of_template(&key("m-1.0.0"), Some(&[]), &all, |_, _| true), []);
    assert!(matches!(
        &of_template(&key("m-1.0.0"), None, &all, |_, _| false)[..],
        [Removal { loss: Removed::Unknown { .. }, .. }]
    ));
}

/// A landscape in which Kymas `r0` and so on lose module `m`.
struct World {
    losing: usize,
    /// How many more runtimes lose an object of the module.
    losing_object: usize,
    having: usize,
    withheld: BTreeSet<Id>,
    policy: Policy,
}

fn kyma_id(number: usize) -> Id {
    (Kind::Kyma, key(&format!("r{number}")))
}

impl World {
    fn new(losing: usize, having: usize) -> World {
        World { losing, losing_object: 0, having, withheld: BTreeSet::new(), policy: Policy::default() }
    }

    /// The decision, in which Watcher `w` is also applied.
    fn decide(&self) -> Decision {
        let module = key("m");
        let installed: Vec<Installed> =
            (0..self.having).map(|number| installed(&format!("r{number}"), "m", Standing::Selected)).collect();
        let watcher = (Kind::Watcher, key("w"));
        let template = (Kind::ModuleTemplate, key("m-1.0.0"));
        let ids = (0..self.losing).map(kyma_id).chain([watcher]);
        let ids = ids.chain((0 < self.losing_object).then(|| template.clone()));
        let declared: BTreeMap<Id, Declared> = ids
            .map(|id| {
                let place = FilePosition::at(&"kymas.yaml".into(), 3, 1);
                (id, Declared { digest: "d".into(), place, adopt: false, needs: Vec::new() })
            })
            .collect();
        let removal = |number| {
            let (_, runtime) = kyma_id(number);
            vec![Removal { module: module.clone(), loss: Removed::Module, runtimes: [runtime].into() }]
        };
        let mut removals: Removals = (0..self.losing).map(|number| (kyma_id(number), removal(number))).collect();
        if 0 < self.losing_object {
            let objects = vec![ObjectId::new("", "ConfigMap", "n", "b")];
            let loss = Removed::Objects { version: "1.0.0".to_owned(), objects };
            let runtimes = (self.losing..self.losing + self.losing_object).map(|number| kyma_id(number).1).collect();
            removals.insert(template, vec![Removal { module: module.clone(), loss, runtimes }]);
        }
        let apply = declared.keys().map(|id| (id.clone(), Why::Changed)).collect();
        let mut decision = Decision { apply, ..Decision::default() };
        let situation = Situation {
            source: &key("landscape"),
            label: "kcp-system.landscape",
            commit: Some(COMMIT.parse().unwrap()),
            declared: &declared,
            withheld: &self.withheld,
            broken: &BTreeMap::new(),
            live: &BTreeMap::new(),
            others: &BTreeMap::new(),
            installed: &installed,
            policy: &self.policy,
            errors: false,
            moved: Moved::No,
            leaving: &BTreeSet::new(),
        };
        hold(&situation, &removals, &mut decision);
        decision
    }
}

#[test]
fn a_removal_above_the_limit_waits_and_everything_else_is_applied() {
    let limit = |limit| Some(limit);
    for (given, losing, having, holds) in [
        // max(5, min(50, 10 %)) of the runtimes with the module.
        (None, 5, 5, false),
        (None, 6, 6, true),
        (None, 10, 100, false),
        (None, 11, 100, true),
        (None, 50, 5_000, false),
        (None, 51, 5_000, true),
        (limit(0), 1, 5_000, true),
        (limit(3), 3, 5_000, false),
        (limit(3), 4, 5_000, true),
        (limit(100), 100, 100, false),
    ] {
        let mut world = World::new(losing, having);
        world.policy.removal_limit = given;
        let decision = world.decide();
        let applied: BTreeSet<Kind> = decision.apply.iter().map(|((kind, _), _)| *kind).collect();
        let expected = if holds { vec![Kind::Watcher] } else { vec![Kind::Watcher, Kind::Kyma] };
        assert_eq!(applied, BTreeSet::from_iter(expected), "{given:?} {losing} of {having}");
        assert_eq!(decision.held.len(), if holds { losing } else { 0 });
        assert!(decision.held.values().all(|held| held.why == HeldFor::Removal));
    }
}

#[test]
fn a_removal_that_waits_says_what_leaves_which_runtimes_and_the_command() {
    let decision = World::new(12, 12).decide();
    let diagnostic = decision.diagnostics.sorted().remove(0);
    assert_eq!(
        diagnostic.message,
        "module m is removed from 12 runtimes, more than the removal limit of 5: kcp-system/r0, kcp-system/r1, \
         kcp-system/r10, kcp-system/r11, kcp-system/r2, kcp-system/r3, kcp-system/r4, kcp-system/r5, kcp-system/r6, \
         kcp-system/r7 and 2 more"
    );
    let command =
        format!("kubectl annotate gitsource -n kcp-system landscape tidegate.dev/confirm-prune={COMMIT} --overwrite");
    assert_eq!(diagnostic.hint.unwrap(), format!("to remove it, run `{command}`"));
    assert_eq!(diagnostic.place.unwrap().line, 3);
    assert_eq!(decision.held[&kyma_id(0)].message, "Kyma kcp-system/r0 removes module m and waits for a confirmation");
    let notice = decision.removals[0].notice(&key("landscape"), COMMIT, ConfirmBy::Annotation);
    assert!(
        notice.contains("removes module m from 12 runtimes, this one included")
            && notice.ends_with(&format!("`{command}`"))
    );
}

#[test]
fn a_removal_that_waits_says_what_else_counts_for_the_limit() {
    let sentences =
        |world: &World| -> Vec<String> { world.decide().removals.iter().map(ToString::to_string).collect() };
    let names = "kcp-system/r0, kcp-system/r1, kcp-system/r2, kcp-system/r3, kcp-system/r4";
    let mut world = World { losing_object: 2, ..World::new(5, 7) };
    let sum = "in all, 7 runtimes lose something of module m: more than the removal limit of 5";
    let module = format!("module m is removed from 5 runtimes: {names}; {sum}");
    let object =
        format!("ConfigMap n/b of module m 1.0.0 is removed from 2 runtimes: kcp-system/r5, kcp-system/r6; {sum}");
    assert_eq!(sentences(&world), [module, object]);
    // A Kyma that is held back may drop the module as well. It counts once.
    (world.losing_object, world.having) = (0, 9);
    world.withheld = [kyma_id(0), kyma_id(8)].into();
    let unknown = format!(
        "module m is removed from 5 runtimes: {names}; in all, 5 runtimes lose something of module m, and 1 more may, \
         because its Kyma is held back: more than the removal limit of 5"
    );
    assert_eq!(sentences(&world), [unknown]);
}

#[test]
fn only_the_commit_that_removes_can_be_confirmed() {
    let mut world = World::new(6, 6);
    world.policy.confirmed = Some(COMMIT.replace('0', "f"));
    assert_eq!(world.decide().held.len(), 6);
    world.policy.confirmed = Some(COMMIT.to_owned());
    assert_eq!(world.decide().held.len(), 0);
}

#[test]
fn a_definition_that_cannot_be_read_counts_as_one_that_removes() {
    let mut world = World::new(5, 20);
    assert_eq!(world.decide().held.len(), 0);
    world.withheld.insert(kyma_id(17));
    assert_eq!(world.decide().held.len(), 5, "the next revision may remove it from the sixth");
    // The runtime does not have the module.
    world.withheld = [kyma_id(99)].into();
    assert_eq!(world.decide().held.len(), 0);
}

#[test]
fn sentences_name_the_first_object_and_count_the_rest() {
    let objects: Vec<ObjectId> = ["a", "b"].map(|name| ObjectId::new("", "ConfigMap", "n", name)).into();
    let version = || "1.0.0".to_owned();
    for (loss, expected) in [
        (Removed::Module, "module m"),
        (Removed::Objects { version: version(), objects: objects[..1].into() }, "ConfigMap n/a of module m 1.0.0"),
        (Removed::Objects { version: version(), objects }, "ConfigMap n/a and 1 more of module m 1.0.0"),
    ] {
        assert_eq!(loss.of("m"), expected);
    }
}

#[test]
fn candidates_are_definitions_that_git_changed_and_kymas_that_others_changed() {
    let id = |kind, name: &str| (kind, key(name));
    let apply = vec![
        (id(Kind::Kyma, "changed"), Why::Changed),
        (id(Kind::Kyma, "drifted"), Why::Drifted),
        (id(Kind::ModuleTemplate, "of-others"), Why::Drifted),
        (id(Kind::Kyma, "new"), Why::Absent),
        (id(Kind::ModuleTemplate, "moved"), Why::Moved),
        (id(Kind::ModuleTemplate, "replaced"), Why::Replaced),
        (id(Kind::Watcher, "w"), Why::Changed),
    ];
    let decision = Decision { apply, ..Decision::default() };
    let names: Vec<Arc<str>> = candidates(&decision).map(|(_, key)| key.name().into()).collect();
    assert_eq!(names, ["changed".into(), "drifted".into(), "moved".into(), "replaced".into()]);
}

#[test]
fn the_status_says_what_waits_beside_everything_that_is_applied() {
    let decision = World::new(6, 6).decide();
    let revision = Revision::Commit { name: "main".to_owned(), commit: COMMIT.parse().unwrap() };
    let mut source = GitSource::new("landscape", GitSourceSpec::default());
    source.metadata.namespace = Some("kcp-system".to_owned());
    let broken = [Withheld { id: kyma_id(9), path: "a.yaml".to_owned(), line: 1, message: "broken".to_owned() }];
    for (withheld, reason) in [(&[][..], "RemovalUnconfirmed"), (&broken[..], "Withheld")] {
        let pass = Pass {
            fetched: &Fetched::Done,
            trust: status::Trust::NotAsked,
            attempted: Some(&revision),
            in_force: Some(&revision),
            is_read: true,
            refused: false,
            is_early: false,
            decision: Some(&decision),
            withheld,
            diagnostics: &Diagnostics::default(),
            remarks: &Diagnostics::default(),
            failures: &[],
            retry_helps: true,
            handled: None,
            receiving: &status::Receiving::Off,
            scope: "scope",
            moved: Moved::No,
            confirm_by: ConfirmBy::Annotation,
        };
        let status = status::after_pass(&source, &pass, Timestamp::UNIX_EPOCH);
        let ready = status.conditions.iter().find(|condition| condition.type_ == status::READY).unwrap();
        assert_eq!((ready.status.as_str(), ready.reason.as_str()), ("False", reason));
        // A broken definition beside it hides neither the removal nor the command.
        let applied = status.conditions.iter().find(|condition| condition.type_ == status::APPLIED).unwrap();
        let command = ConfirmBy::Annotation.command(&Key::new("kcp-system", "landscape"), COMMIT);
        assert!(applied.message.contains(&format!("run `{command}`")), "{}", applied.message);
        assert_eq!(status.applied_revision, None, "not all of it is applied");
        assert!(status.diagnostics.iter().any(|one| one.code == code::REMOVAL_UNCONFIRMED));
        let counts = status.counts.unwrap();
        let held = i64::try_from(6 + withheld.len()).unwrap();
        assert_eq!((counts.applied, counts.withheld), (1, held));
        if withheld.is_empty() {
            let begin = "1 removal in runtimes; a user must confirm: module m is removed from 6 runtimes";
            let end = format!("tidegate.dev/confirm-prune={COMMIT} --overwrite`");
            let applied = status.conditions.iter().find(|condition| condition.type_ == status::APPLIED).unwrap();
            assert!(applied.message.starts_with(begin) && applied.message.ends_with(&end), "{}", applied.message);
            let brief = "` confirms 1 removal in runtimes; condition Applied names them";
            assert!(ready.message.starts_with("`kubectl ") && ready.message.ends_with(brief), "{}", ready.message);
        }
    }
}
