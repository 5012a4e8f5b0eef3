//! Each rule for the effect of a git source on KCP, as a sentence.

use super::*;
use crate::api::{GitSource, Kyma, git_source::GitSourceStatus};
use crate::conditions;
use crate::intake::status::{Fetched, Kept, Pass, Receiving, Trust, Withheld};
use crate::revision::Revision;
use k8s_openapi::jiff::Timestamp;
use serde_json::json;
use std::sync::LazyLock;

const LABEL: &str = "kcp-system.landscape";
const COMMIT: &str = "0123456789012345678901234567890123456789";

#[test]
fn an_absent_object_is_applied_in_the_order_of_kinds() {
    let world = World::new().declares(["Kyma/a", "Watcher/w", "ModuleReleaseMeta/m", "ModuleTemplate/m-1"]);
    world.check(&["apply ModuleTemplate/m-1", "apply ModuleReleaseMeta/m", "apply Watcher/w", "apply Kyma/a"]);
}

#[test]
fn an_equal_digest_means_nothing_to_do() {
    World::new().declares(["Kyma/a"]).ours(["Kyma/a"]).check(&[]);
}

#[test]
fn another_digest_means_apply() {
    World::new()
        .declares(["Kyma/a"])
        .ours(["Kyma/a"])
        .with("Kyma/a", |live| live.digest = Some("old".into()))
        .check(&["apply Kyma/a"]);
}

#[test]
fn a_field_changed_by_hand_is_set_back() {
    let world = World::new().declares(["Kyma/a"]).ours(["Kyma/a"]).with("Kyma/a", |live| live.drifted = true);
    assert_eq!(decide(&world.situation()).apply[0].1, Why::Drifted);
}

#[test]
fn a_namespace_is_wanted_only_where_nothing_stands_yet() {
    let world = World::new().declares(["Kyma/a", "Kyma/b"]).ours(["Kyma/a"]);
    assert!(decide(&world.situation()).namespaces.is_empty());
    let world = World::new().declares(["Kyma/a"]);
    assert_eq!(Vec::from_iter(decide(&world.situation()).namespaces), ["kcp-system".into()]);
}

#[test]
fn the_first_owner_keeps_an_object_that_it_still_declares() {
    let world = World::new().declares(["Kyma/a"]).owned_by("other", "Kyma/a").other("other", ["Kyma/a"]);
    world.check(&["hold Kyma/a: Kyma kcp-system/a is also declared by GitSource kcp-system/other, which owns it"]);
}

#[test]
fn a_source_says_what_happens_once_the_owner_no_longer_declares_an_object() {
    let world = || World::new().declares(["Kyma/a"]).owned_by("other", "Kyma/a").other("other", ["Kyma/a"]);
    let hint = |world: World| decide(&world.situation()).diagnostics.sorted()[0].hint.clone().unwrap();
    let moves = "this source takes it over without deleting it";
    let adopts = "this source takes it over with this content, which is other content, because of `tidegate.dev/adopt`";
    let waits = "it stays as it is, because this definition has other content; to take it over with this content, \
                 annotate the definition with `tidegate.dev/adopt: \"true\"`";
    for (world, expected) in [
        (world(), waits),
        (world().with("Kyma/a", |live| live.same_content = true), moves),
        (world().adopts("Kyma/a"), adopts),
        (world().adopts("Kyma/a").with("Kyma/a", |live| live.same_content = true), moves),
    ] {
        let is_takeover = expected == adopts;
        assert_eq!(decide(&world.situation()).takeovers.contains_key(&id("Kyma/a")), is_takeover, "{expected}");
        let hint = hint(world);
        assert!(hint.ends_with(&format!("no longer declares it, {expected}")), "{hint}");
    }
}

#[test]
fn an_object_moves_without_delete_once_its_owner_no_longer_declares_it() {
    let world = World::new().declares(["Kyma/a"]).owned_by("other", "Kyma/a").other("other", []);
    let world = world.with("Kyma/a", |live| live.same_content = true);
    assert_eq!(decide(&world.situation()).apply, [(id("Kyma/a"), Why::Moved)]);
}

#[test]
fn an_object_with_other_content_moves_only_where_the_definition_says_so() {
    let moving = || World::new().declares(["Kyma/a"]).owned_by("other", "Kyma/a").other("other", []);
    moving().check(&[
        "hold Kyma/a: Kyma kcp-system/a is owned by GitSource kcp-system/other, which no longer declares it, and differs \
         from this definition",
    ]);
    let hint = decide(&moving().situation()).diagnostics.sorted()[0].hint.clone().unwrap();
    assert!(hint.ends_with("annotate the definition with `tidegate.dev/adopt: \"true\"`"), "{hint}");
    assert_eq!(decide(&moving().adopts("Kyma/a").situation()).apply, [(id("Kyma/a"), Why::Replaced)]);
    let same = moving().adopts("Kyma/a").with("Kyma/a", |live| live.same_content = true);
    assert_eq!(decide(&same.situation()).apply, [(id("Kyma/a"), Why::Moved)]);
    let gone = || World::new().declares(["Kyma/a"]).owned_by("gone", "Kyma/a");
    gone().check(&[
        "hold Kyma/a: Kyma kcp-system/a is owned by a GitSource that no longer exists, and differs from this definition",
    ]);
    gone().adopts("Kyma/a").check(&["apply Kyma/a"]);
}

#[test]
fn the_end_of_a_source_needs_the_confirmation_that_a_prune_needs() {
    let ids = |names: &[&str]| names.iter().map(|name| id(name)).collect::<BTreeSet<Id>>();
    let watchers = |count: usize| (0..count).map(|number| id(&format!("Watcher/w{number}"))).collect::<BTreeSet<Id>>();
    let world = World::new().installed("a", "m", "1.0.0");
    let source = Key::new("kcp-system", "landscape");
    let commit = COMMIT.parse().ok();
    let asks =
        |objects: &BTreeSet<Id>, policy: &Policy| unconfirmed_end(&source, commit, objects, &world.installed, policy);
    let policy = Policy::default();
    for (objects, expected) in [
        (ids(&[]), false),
        (watchers(5), false),
        (watchers(6), true),
        (ids(&["Kyma/b"]), true),
        (ids(&["ModuleReleaseMeta/n"]), true),
        (ids(&["ModuleTemplate/m-1.0.0"]), true),
        (ids(&["ModuleTemplate/m-2.0.0"]), false),
    ] {
        assert_eq!(asks(&objects, &policy).is_some(), expected, "{objects:?}");
        let confirmed = |text: String| Policy { confirmed: Some(text), ..Policy::default() };
        assert_eq!(asks(&objects, &confirmed(format!("deletion:{COMMIT}"))), None);
        let of_git = asks(&objects, &confirmed(COMMIT.to_owned()));
        assert_eq!(of_git.is_some(), expected, "it confirms what git removes, not the end of the source");
    }
    let end = asks(&ids(&["Kyma/a", "Watcher/w"]), &policy).unwrap();
    let brief = status::brief_end(&end);
    assert!(brief.starts_with(&format!("`{}` deletes 2 objects; ", end.command)), "{brief}");
    assert!(brief.chars().count() <= status::READY_CHARS_MAX, "{brief}");
    assert_eq!(
        end.sentence,
        format!(
            "spec.deletionPolicy is Delete, and the deletion of 2 objects needs a confirmation: Kyma kcp-system/a: the \
             runtime loses m 1.0.0; 1 other object takes no module from a runtime; to delete them, run `kubectl annotate \
             gitsource -n kcp-system landscape tidegate.dev/confirm-prune=deletion:{COMMIT} --overwrite`; to keep them, \
             set spec.deletionPolicy to Orphan"
        )
    );
}

#[test]
fn the_end_of_a_source_names_or_counts_all_that_it_takes() {
    let source = Key::new("kcp-system", "landscape");
    let whats = |objects: BTreeSet<Id>, installed: &[Installed]| {
        let end = unconfirmed_end(&source, COMMIT.parse().ok(), &objects, installed, &Policy::default()).unwrap();
        let (whats, _) = end.sentence.split_once("; to delete them").unwrap();
        whats.rsplit_once("needs a confirmation: ").unwrap().1.to_owned()
    };
    let kymas = |count: usize| (0..count).map(|number| id(&format!("Kyma/k{number:02}"))).collect::<BTreeSet<Id>>();
    let watchers = |count: usize| (0..count).map(|number| id(&format!("Watcher/w{number}"))).collect::<BTreeSet<Id>>();
    let ten = whats(kymas(10), &[]);
    assert!(ten.ends_with("Kyma kcp-system/k00: no runtime has installed anything from it"), "{ten}");
    let more = whats(&kymas(12) | &watchers(6), &[]);
    assert!(more.ends_with("; and 2 more like them; 6 other objects take no module from a runtime"), "{more}");
    assert_eq!(whats(watchers(6), &[]), "they are more than the prune limit of 5");

    // Every runtime has module m, and the Kyma of one of them is of another source.
    let installed = World::new().installed("k00", "m", "1.0.0").installed("theirs", "m", "1.0.0").installed;
    let taken = whats(&kymas(11) | &BTreeSet::from([id("ModuleReleaseMeta/m")]), &installed);
    let first =
        "the Kyma of 1 runtime stays, but kcp-system/theirs keeps m 1.0.0 without updates; Kyma kcp-system/k10: ";
    assert!(taken.starts_with(first) && taken.ends_with("; and 2 more like them"), "{taken}");
}

#[test]
fn the_owner_does_not_prune_what_another_source_declares_but_wakes_it() {
    let world = World::new().ours(["Watcher/w"]).declares(["Kyma/a"]).ours(["Kyma/a"]).other("other", ["Watcher/w"]);
    let decision = decide(&world.situation());
    assert!(decision.prune.is_empty() && decision.waiting.is_empty());
    let other = Key::new("kcp-system", "other");
    assert_eq!(decision.heirs, [(id("Watcher/w"), other.clone())].into());
    assert_eq!(decision.awaken, [other.clone()].into());
    let (message, hint) = handed_over(&id("Watcher/w"), &other, HandOver::Same);
    let expected = "Watcher kcp-system/w is no longer declared, but is not deleted: GitSource kcp-system/other declares \
                    it as well and takes it over";
    assert_eq!(message, expected);
    assert!(hint.ends_with("is annotated with `tidegate.dev/adopt: \"true\"`"), "{hint}");
}

#[test]
fn an_object_does_not_move_from_a_source_that_was_not_read() {
    let world = World::new().declares(["Kyma/a"]).owned_by("other", "Kyma/a").unread("other");
    world
        .check(&["hold Kyma/a: Kyma kcp-system/a is owned by GitSource kcp-system/other, which has not been read yet"]);
}

#[test]
fn the_mark_of_a_source_that_is_gone_holds_nothing() {
    let world = World::new().declares(["Kyma/a"]).owned_by("gone", "Kyma/a");
    world.with("Kyma/a", |live| live.same_content = true).check(&["apply Kyma/a"]);
}

#[test]
fn of_two_sources_that_declare_an_absent_object_the_first_by_name_creates_it() {
    World::new()
        .declares(["Kyma/a"])
        .other("aaa", ["Kyma/a"])
        .check(&["hold Kyma/a: Kyma kcp-system/a is also declared by GitSource kcp-system/aaa, which owns it"]);
    World::new().declares(["Kyma/a"]).other("zzz", ["Kyma/a"]).check(&["apply Kyma/a"]);
}

#[test]
fn a_foreign_object_is_looked_up_before_it_is_refused_by_its_managers_names() {
    let world = World::new().declares(["Kyma/a"]).exists("Kyma/a");
    world.check(&["look up Kyma/a"]);
    let known = world.with("Kyma/a", |live| live.managers = Some(Arc::from(["kubectl".to_owned(), "kim".to_owned()])));
    known.check(&[
        "hold Kyma/a: Kyma kcp-system/a exists in KCP without the ownership label of a GitSource; its field managers are kubectl, kim",
    ]);
}

#[test]
fn a_foreign_object_is_taken_over_where_its_definition_says_so() {
    let world = World::new()
        .declares(["Kyma/a"])
        .exists("Kyma/a")
        .with("Kyma/a", |live| live.managers = Some(Arc::from(["kubectl".to_owned()])))
        .adopts("Kyma/a");
    assert_eq!(decide(&world.situation()).apply, [(id("Kyma/a"), Why::Adopted)]);
}

#[test]
fn what_flux_applies_is_not_applied_over_even_with_the_annotation() {
    let flux = OtherTool::recognize(
        &map(&[("kustomize.toolkit.fluxcd.io/name", "apps"), ("kustomize.toolkit.fluxcd.io/namespace", "flux-system")]),
        &map(&[]),
        &[],
    );
    let world =
        World::new().declares(["Kyma/a"]).adopts("Kyma/a").exists("Kyma/a").with("Kyma/a", |live| live.tool = flux);
    world.check(&[
        "hold Kyma/a: Kyma kcp-system/a is managed by the Flux Kustomization flux-system/apps; two tools must not apply the same object",
    ]);
    let hint = decide(&world.situation()).diagnostics.sorted()[0].hint.clone().unwrap();
    let expected = "run `tidegate adopt from-flux` for the steps that hand it over, then annotate the definition with \
                    `tidegate.dev/adopt: \"true\"`";
    assert_eq!(hint, expected);
}

#[test]
fn the_command_that_hands_an_object_over_looks_where_the_object_is() {
    let application = OtherTool::Application("shop".to_owned());
    let of_team = (Kind::Kyma, Key::new("team-b", "a"));
    assert_eq!(
        application.steps(&of_team),
        "run `tidegate adopt from-argocd -n team-b` for the steps that hand it over",
        "`adopt take` then takes it over without an annotation"
    );
}

#[test]
fn argo_cd_is_known_by_its_three_ways_of_tracking() {
    let labels = |pairs: &[(&str, &str)], managers: &[&str]| {
        let managers: Vec<String> = managers.iter().map(ToString::to_string).collect();
        OtherTool::recognize(&map(pairs), &map(&[]), &managers)
    };
    let application = Some(OtherTool::Application("shop".to_owned()));
    assert_eq!(labels(&[("argocd.argoproj.io/instance", "shop")], &[]), application);
    assert_eq!(labels(&[("app.kubernetes.io/instance", "shop")], &["argocd-controller"]), application);
    assert_eq!(labels(&[("app.kubernetes.io/instance", "shop")], &["helm"]), None);
    let tracking = [("argocd.argoproj.io/tracking-id", "shop:operator.kyma-project.io/Kyma:kcp-system/a")];
    assert_eq!(OtherTool::recognize(&map(&[]), &map(&tracking), &[]), application);
}

#[test]
fn helm_releases_of_flux_are_known() {
    let labels = map(&[("helm.toolkit.fluxcd.io/name", "r"), ("helm.toolkit.fluxcd.io/namespace", "n")]);
    assert_eq!(OtherTool::recognize(&labels, &map(&[]), &[]), Some(OtherTool::HelmRelease(Key::new("n", "r"))));
}

#[test]
fn a_definition_whose_object_is_being_deleted_waits() {
    World::new()
        .declares(["Kyma/a"])
        .ours(["Kyma/a"])
        .with("Kyma/a", |live| live.deleting = true)
        .check(&["hold Kyma/a: Kyma kcp-system/a is being deleted in KCP; Tidegate creates it again when it is gone"]);
}

#[test]
fn what_is_refused_and_waits_for_another_says_both() {
    let mut world = World::new().declares(["ModuleTemplate/m-1", "ModuleReleaseMeta/m"]);
    for name in ["ModuleTemplate/m-1", "ModuleReleaseMeta/m"] {
        world = world.exists(name).with(name, |live| live.managers = Some(Arc::from(["KEB".to_owned()])));
    }
    world.declared.get_mut(&id("ModuleReleaseMeta/m")).unwrap().needs.push(id("ModuleTemplate/m-1"));
    let held = &decide(&world.situation()).held[&id("ModuleReleaseMeta/m")];
    assert_eq!(
        held.message,
        "ModuleReleaseMeta kcp-system/m exists in KCP without the ownership label of a GitSource; its field managers are \
         KEB; it depends on ModuleTemplate kcp-system/m-1, which is held back as well"
    );
    assert_eq!(held.why, HeldFor::Problem);
}

#[test]
fn a_release_waits_for_its_template_unless_it_stands_already() {
    let world = || {
        let mut world = World::new()
            .declares(["ModuleTemplate/m-1", "ModuleReleaseMeta/m"])
            .ours(["ModuleTemplate/m-1"])
            .with("ModuleTemplate/m-1", |live| live.deleting = true);
        world.declared.get_mut(&id("ModuleReleaseMeta/m")).unwrap().needs.push(id("ModuleTemplate/m-1"));
        world
    };
    let held = &decide(&world().situation()).held[&id("ModuleReleaseMeta/m")];
    assert_eq!(
        held.message,
        "ModuleReleaseMeta kcp-system/m depends on ModuleTemplate kcp-system/m-1, which is held back"
    );
    assert_eq!(held.why, HeldFor::Terminating, "as what it depends on");
    assert!(!decide(&world().ours(["ModuleReleaseMeta/m"]).situation()).held.contains_key(&id("ModuleReleaseMeta/m")));
}

#[test]
fn a_kyma_waits_for_a_release_that_is_invalid_and_not_in_kcp() {
    let world = |kymas: &[&str]| {
        let names: Vec<String> = kymas.iter().map(|name| format!("Kyma/{name}")).collect();
        let mut world = World::new()
            .declares(names.iter().map(String::as_str).chain(["Watcher/w"]))
            .withholds(["ModuleReleaseMeta/m", "ModuleTemplate/m-1"]);
        for name in &names {
            world.declared.get_mut(&id(name)).unwrap().needs.push(id("ModuleReleaseMeta/m"));
        }
        world
    };
    let decision = decide(&world(&["a", "b"]).situation());
    assert_eq!(decision.apply, [(id("Watcher/w"), Why::Absent)]);
    let held = &decision.held[&id("Kyma/b")];
    let message = "names module m, whose ModuleReleaseMeta is held back and is not in KCP";
    assert_eq!(held.message, format!("Kyma kcp-system/b {message}"));
    assert_eq!((&held.cause, held.why), (&Some(FilePosition::at(&"broken.yaml".into(), 4, 9)), HeldFor::Dependency));
    let said: Vec<&str> = decision.diagnostics.iter().map(|one| one.message.as_str()).collect();
    let of_both = "2 Kymas name module m, whose ModuleReleaseMeta is held back and is not in KCP: kcp-system/a, \
                   kcp-system/b";
    assert_eq!(said, [of_both], "one for all of them");
    let hint = decision.diagnostics.iter().next().and_then(|one| one.hint.as_deref()).unwrap_or_default();
    assert!(hint.contains("broken.yaml:4"), "{hint}");

    let is_held = |world: World| decide(&world.situation()).held.contains_key(&id("Kyma/a"));
    assert!(is_held(world(&["a"])));
    assert!(!is_held(world(&["a"]).ours(["ModuleReleaseMeta/m"])), "the last valid one is in KCP");
    assert!(!is_held(world(&["a"]).exists("ModuleReleaseMeta/m")), "no matter whose it is");
    assert!(!is_held(world(&["a"]).ours(["Kyma/a"])), "nothing changes");
    let changed = world(&["a"]).ours(["Kyma/a"]).with("Kyma/a", |live| live.digest = None);
    assert!(is_held(changed), "it names the module since this commit");
    let mut without = world(&["a"]);
    without.declared.get_mut(&id("Kyma/a")).unwrap().needs.clear();
    assert!(!is_held(without), "it names other modules");
}

#[test]
fn watchers_and_unused_templates_are_pruned_unasked_in_reverse_order() {
    let world = World::new().declares(["Kyma/a"]).ours(["Kyma/a", "ModuleTemplate/m-1", "Watcher/w"]);
    world.check(&["prune Watcher/w", "prune ModuleTemplate/m-1"]);
}

#[test]
fn of_a_kcp_landscape_what_holds_workspaces_waits_for_a_confirmation_and_the_rest_goes() {
    let all =
        ["CacheServer/c", "RootShard/r", "FrontProxy/f", "Shard/s", "VirtualWorkspace/v", "Kubeconfig/k", "Kyma/a"];
    World::new().declares(["Kyma/a"]).ours(all).check(&[
        "prune Kubeconfig/k",
        "prune VirtualWorkspace/v",
        "prune FrontProxy/f",
        "wait CacheServer/c: Unconfirmed([])",
        "wait RootShard/r: Unconfirmed([])",
        "wait Shard/s: Unconfirmed([])",
    ]);
}

#[test]
fn nothing_is_pruned_while_an_error_stands() {
    let mut world = World::new().declares(["Kyma/a"]).ours(["Kyma/a", "Watcher/w"]);
    world.errors = true;
    world.check(&["wait Watcher/w: Errors"]);
}

#[test]
fn a_refusal_is_an_error_that_keeps_everything() {
    let world =
        World::new().declares(["Kyma/a"]).owned_by("other", "Kyma/a").other("other", ["Kyma/a"]).ours(["Watcher/w"]);
    assert_eq!(decide(&world.situation()).waiting[&id("Watcher/w")], Wait::Errors);
}

#[test]
fn a_withheld_definition_keeps_its_object() {
    World::new().withholds(["Watcher/w"]).declares(["Kyma/a"]).ours(["Kyma/a", "Watcher/w"]).check(&[]);
}

#[test]
fn nothing_is_pruned_before_every_source_has_been_read() {
    let world = World::new().declares(["Kyma/a"]).ours(["Kyma/a", "Watcher/w"]).unread("other");
    assert!(matches!(decide(&world.situation()).waiting[&id("Watcher/w")], Wait::Unread(_)));
}

#[test]
fn only_what_an_unread_source_might_declare_waits_for_it() {
    let texts = |texts: &[&str]| texts.iter().map(ToString::to_string).collect::<Vec<String>>();
    let allow = |kinds: &[&str], namespaces: &[&str], names: &[&str]| Allow {
        kinds: texts(kinds),
        namespaces: texts(namespaces),
        names: texts(names),
    };
    let waits = "wait Watcher/w: Unread([Key { namespace: \"kcp-system\", name: \"other\" }])";
    for (allow, expected) in [
        (allow(&[], &[], &[]), waits),
        (allow(&["Watcher"], &[], &[]), waits),
        (allow(&["Kyma", "ModuleTemplate"], &[], &[]), "prune Watcher/w"),
        (allow(&[], &["kcp-*"], &[]), waits),
        (allow(&[], &["team-a"], &[]), "prune Watcher/w"),
        (allow(&["Watcher"], &["kcp-system"], &["v*"]), "prune Watcher/w"),
        (allow(&["Watcher"], &["kcp-system"], &["v", "w*"]), waits),
    ] {
        World::new()
            .declares(["Kyma/a"])
            .ours(["Kyma/a", "Watcher/w"])
            .unread_with("other", allow.clone())
            .check(&[expected]);
        // A confirmation says what to lose, not who else declares it.
        let mut confirmed = World::new().declares(["Kyma/a"]).ours(["Kyma/a", "Watcher/w"]).unread_with("other", allow);
        confirmed.policy.confirmed = Some(COMMIT.to_owned());
        confirmed.check(&[expected]);
    }
}

#[test]
fn a_confirmed_prune_beside_an_unread_source_happens_where_that_cannot_declare_the_object() {
    let kinds = Allow { kinds: vec!["ModuleTemplate".to_owned()], ..Allow::default() };
    let mut world =
        World::new().declares(["Kyma/a"]).ours(["Kyma/a", "Kyma/b", "ModuleTemplate/m-1"]).unread_with("other", kinds);
    world.policy.confirmed = Some(COMMIT.to_owned());
    world.check(&[
        "prune Kyma/b",
        "wait ModuleTemplate/m-1: Unread([Key { namespace: \"kcp-system\", name: \"other\" }])",
    ]);
}

#[test]
fn a_source_beside_an_unread_one_is_ready_and_says_what_waits() {
    let world = World::new().declares(["Kyma/a"]).ours(["Kyma/a", "Watcher/w"]).unread("other");
    let status = world.status(&source(), &Fetched::Done, "scope");
    check_conditions(&status, &["Applied=True Applied", "Fetched=True Fetched", "Ready=True Applied"]);
    let ready = status.conditions.iter().find(|condition| condition.type_ == status::READY).unwrap();
    let note = ": 1 definition; 1 object removed from git and not pruned before these sources have been read: \
                kcp-system/other";
    assert!(ready.message.ends_with(note), "{}", ready.message);
    assert_eq!(status.counts.unwrap().to_prune, 1);
    assert_eq!(status.diagnostics[0].code, code::PRUNE_WAITS);
    assert!(status.diagnostics[0].message.contains("because GitSource kcp-system/other might declare it"));
}

#[test]
fn a_suspended_source_is_not_waited_for() {
    let mut world = World::new().declares(["Kyma/a"]).ours(["Kyma/a", "Watcher/w"]).unread("other");
    world.others.values_mut().for_each(|other| other.idle = true);
    world.check(&["prune Watcher/w"]);
}

#[test]
fn prune_false_keeps_everything() {
    let mut world = World::new().declares(["Kyma/a"]).ours(["Kyma/a", "Watcher/w"]);
    world.policy.prune = false;
    world.check(&["wait Watcher/w: Off"]);
}

#[test]
fn an_object_annotated_to_stay_stays() {
    let world =
        World::new().declares(["Kyma/a"]).ours(["Kyma/a", "Watcher/w"]).with("Watcher/w", |live| live.keep = true);
    world.check(&["wait Watcher/w: Kept"]);
}

#[test]
fn an_object_handed_over_to_another_tool_is_not_pruned() {
    let tool = OtherTool::Application("shop".to_owned());
    let world = World::new().declares(["Kyma/a"]).ours(["Kyma/a", "Watcher/w"]);
    let world = world.with("Watcher/w", |live| live.tool = Some(tool.clone()));
    assert_eq!(decide(&world.situation()).waiting[&id("Watcher/w")], Wait::Tool(tool));
}

#[test]
fn a_kyma_waits_for_confirmation_and_says_what_the_runtime_loses() {
    let mut world = World::new().declares(["Watcher/w"]).ours(["Watcher/w", "Kyma/a"]).installed("a", "m", "1.0.0");
    let decision = decide(&world.situation());
    assert!(decision.prune.is_empty());
    let diagnostic = decision.diagnostics.sorted().remove(0);
    assert_eq!(
        diagnostic.message,
        "Kyma kcp-system/a is removed from git, and its prune needs a confirmation; the runtime loses m 1.0.0"
    );
    assert_eq!(
        diagnostic.hint.unwrap(),
        format!(
            "to prune it, run `kubectl annotate gitsource -n kcp-system landscape tidegate.dev/confirm-prune={COMMIT} --overwrite`"
        )
    );
    world.policy.confirmed = Some(COMMIT.to_owned());
    world.check(&["prune Kyma/a"]);
}

#[test]
fn a_confirmation_of_another_commit_confirms_nothing() {
    let mut world = World::new().declares(["Watcher/w"]).ours(["Watcher/w", "Kyma/a"]);
    world.policy.confirmed = Some(COMMIT.replace('0', "f"));
    assert!(decide(&world.situation()).prune.is_empty());
    world.policy.confirmed = Some(COMMIT[..6].to_owned());
    assert!(!prune::is_confirmed(&world.situation()), "too short to name a commit");
    world.policy.confirmed = Some(COMMIT[..7].to_owned());
    assert!(prune::is_confirmed(&world.situation()), "as git shows it");
    world.policy.confirmed = Some(format!("main@sha1:{COMMIT}"));
    world.check(&["prune Kyma/a"]);
}

#[test]
fn what_a_deleted_source_left_is_taken_over_also_after_a_command_of_tidegate_has_written_it() {
    let claim = |managers: &[&str]| {
        let managers: Arc<[String]> = managers.iter().map(|&name| name.to_owned()).collect();
        let world = World::new().declares(["ModuleReleaseMeta/m"]).exists("ModuleReleaseMeta/m").with(
            "ModuleReleaseMeta/m",
            |live| {
                (live.left, live.same_content, live.managers) = (true, true, Some(managers));
            },
        );
        decide(&world.situation()).apply.first().map(|(_, why)| *why)
    };
    assert_eq!(claim(&["tidegate"]), Some(Why::Moved));
    assert_eq!(claim(&["tidegate", "tidegate-cli"]), Some(Why::Moved), "`tidegate suspend rollout/m`");
    assert_eq!(claim(&["kubectl", "tidegate"]), None);
}

#[test]
fn a_template_in_use_and_any_release_wait_for_confirmation() {
    let world = World::new()
        .declares(["Watcher/w"])
        .ours(["Watcher/w", "ModuleTemplate/m-1.0.0", "ModuleTemplate/m-2.0.0", "ModuleReleaseMeta/n"])
        .installed("a", "m", "1.0.0");
    let decision = decide(&world.situation());
    assert_eq!(decision.prune.iter().map(|(id, _)| id.clone()).collect::<Vec<_>>(), [id("ModuleTemplate/m-2.0.0")]);
    let loss = loss("a");
    assert_eq!(decision.waiting[&id("ModuleTemplate/m-1.0.0")], Wait::Unconfirmed(vec![loss]));
    assert_eq!(decision.waiting[&id("ModuleReleaseMeta/n")], Wait::Unconfirmed(Vec::new()));
}

#[test]
fn without_its_release_only_a_mandatory_module_leaves_runtimes() {
    let mut world = World::new()
        .declares(["Watcher/w"])
        .ours(["Watcher/w", "ModuleReleaseMeta/m"])
        .installed("a", "m", "1.0.0")
        .installed("b", "m", "1.0.0");
    world.installed[1].standing = Standing::Mandatory;
    let says = |world: &World, end: &str| {
        let found = decide(&world.situation()).diagnostics.sorted().remove(0);
        assert_eq!(
            found.message,
            format!("ModuleReleaseMeta kcp-system/m is removed from git, and its prune needs a confirmation; {end}")
        );
    };
    let lose = "runtimes lose m 1.0.0 in runtime kcp-system/b";
    says(&world, &format!("{lose}; runtimes keep m 1.0.0 in runtime kcp-system/a, without updates"));
    // The Kyma no longer has the module, or goes as well.
    let both = "runtimes lose m 1.0.0 in runtime kcp-system/a, m 1.0.0 in runtime kcp-system/b";
    says(&World { leaving: [loss("a")].into(), ..world.clone() }, both);
    let decision = decide(&world.clone().ours(["Kyma/a"]).situation());
    assert!(decision.diagnostics.iter().any(|one| one.message.ends_with(both)), "{:?}", decision.diagnostics);
    world.installed.truncate(1);
    says(&world, "runtimes keep m 1.0.0 in runtime kcp-system/a, without updates");
}

#[test]
fn a_template_whose_module_leaves_its_runtimes_anyway_waits_for_them_and_for_no_user() {
    let mut world = World::new()
        .declares(["Watcher/w"])
        .ours(["Watcher/w", "ModuleTemplate/m-1.0.0", "ModuleReleaseMeta/m"])
        .installed("a", "m", "1.0.0")
        .installed("b", "m", "1.0.0");
    let both = vec![loss("a"), loss("b")];
    let (template, release) = (id("ModuleTemplate/m-1.0.0"), id("ModuleReleaseMeta/m"));
    world.leaving = [loss("a")].into();
    assert_eq!(decide(&world.situation()).waiting[&template], Wait::Unconfirmed(both.clone()), "b keeps it");
    world.leaving = [loss("a"), loss("b")].into();
    let decision = decide(&world.situation());
    assert_eq!(decision.waiting[&template], Wait::InUse(both));
    assert!(matches!(decision.waiting[&release], Wait::Unconfirmed(_)), "others may be about to install it");
    world.moved = Moved::Spec;
    assert!(matches!(decide(&world.situation()).waiting[&template], Wait::Unconfirmed(_)));
}

#[test]
fn a_module_leaves_if_its_kyma_or_that_of_the_same_commit_has_only_others() {
    let installed = |standing| Installed {
        runtime: Key::new("kcp-system", "a"),
        module: "m".to_owned(),
        version: "1.0.0".to_owned(),
        standing,
    };
    let kyma = |labels: serde_json::Value, modules: serde_json::Value| -> Kyma {
        let metadata = json!({"name": "a", "namespace": "kcp-system", "labels": labels});
        serde_json::from_value(json!({"metadata": metadata, "spec": {"channel": "regular", "modules": modules}}))
            .unwrap()
    };
    let ours = json!({names::label::SOURCE: LABEL});
    let (has_it, dropped) = (kyma(ours.clone(), json!([{"name": "m"}])), kyma(ours, json!([{"name": "n"}])));
    let declared = |modules: serde_json::Value| json!({"spec": {"channel": "regular", "modules": modules}});
    let leaves = |standing, live: Option<&Kyma>, declared: Option<&serde_json::Value>| {
        is_leaving(&installed(standing), live, declared)
    };
    assert!(!leaves(Standing::Selected, Some(&has_it), None));
    assert!(leaves(Standing::Leaving, Some(&has_it), None));
    assert!(leaves(Standing::Selected, Some(&dropped), None));
    assert!(!leaves(Standing::Mandatory, Some(&dropped), None));
    assert!(leaves(Standing::Selected, Some(&has_it), Some(&declared(json!([{"name": "n"}])))));
    assert!(!leaves(Standing::Selected, Some(&has_it), Some(&declared(json!([{"name": "m"}])))));
    assert!(
        !leaves(Standing::Selected, Some(&has_it), Some(&json!({"spec": {"channel": "regular"}}))),
        "the runtime's"
    );
    let of_runtime =
        json!({"metadata": {"annotations": {names::annotation::MODULES_FROM: "merge"}}, "spec": {"modules": []}});
    assert!(!leaves(Standing::Selected, Some(&has_it), Some(&of_runtime)));
    let suspended = kyma(json!({names::label::SOURCE: LABEL, names::label::SKIP_RECONCILIATION: "true"}), json!([]));
    assert!(!leaves(Standing::Selected, Some(&suspended), None), "it keeps what it has");
    let mut suspends = declared(json!([{"name": "n"}]));
    suspends["metadata"] = json!({"labels": {names::label::SKIP_RECONCILIATION: "true"}});
    assert!(!leaves(Standing::Selected, Some(&has_it), Some(&suspends)), "the commit suspends it");
}

#[test]
fn a_version_that_the_same_commit_replaces_goes_without_a_confirmation_once_no_runtime_has_it() {
    let offers = |versions: &[&str]| {
        let mut world = World::new().declares(["ModuleReleaseMeta/m", "ModuleTemplate/m-2.0.0"]).ours([
            "ModuleReleaseMeta/m",
            "ModuleTemplate/m-1.0.0",
            "ModuleTemplate/m-2.0.0",
        ]);
        let needs = versions.iter().map(|version| id(&format!("ModuleTemplate/m-{version}"))).collect();
        world.declared.get_mut(&id("ModuleReleaseMeta/m")).unwrap().needs = needs;
        world
    };
    let old = id("ModuleTemplate/m-1.0.0");
    let loss = loss("a");
    let world = offers(&["2.0.0"]).installed("a", "m", "1.0.0").installed("b", "m", "2.0.0");
    let decision = decide(&world.situation());
    assert_eq!(decision.waiting[&old], Wait::InUse(vec![loss.clone()]));
    assert!(decision.prune.is_empty() && decision.diagnostics.is_empty());
    let mut confirmed = world.clone();
    confirmed.policy.confirmed = Some(COMMIT.to_owned());
    assert_eq!(
        decide(&confirmed.situation()).waiting[&old],
        Wait::InUse(vec![loss.clone()]),
        "the confirmation is for something else"
    );
    let status = world.status(&source(), &Fetched::Done, "scope");
    check_conditions(&status, &["Applied=True Applied", "Fetched=True Fetched", "Ready=True Applied"]);
    let applied = &conditions::find(&status.conditions, status::APPLIED).unwrap().message;
    let end = "; 1 version to prune once no runtime has it: kcp-system/m-1.0.0 (1 runtime, first kcp-system/a)";
    assert!(applied.ends_with(end), "{applied}");
    // No runtime has it any more.
    offers(&["2.0.0"]).installed("a", "m", "2.0.0").check(&["prune ModuleTemplate/m-1.0.0"]);
    // A channel still offers it, the module has no version at all, or everything of the source goes: runtimes lose it.
    for world in [offers(&["1.0.0", "2.0.0"]), offers(&[])] {
        let decision = decide(&world.installed("a", "m", "1.0.0").situation());
        assert_eq!(decision.waiting[&old], Wait::Unconfirmed(vec![loss.clone()]));
    }
    let mut world = offers(&["2.0.0"]).installed("a", "m", "1.0.0");
    world.moved = Moved::Spec;
    assert_eq!(decide(&world.situation()).waiting[&old], Wait::Unconfirmed(vec![loss]));
}

#[test]
fn a_confirmation_is_spent_once_everything_is_as_the_commit_says() {
    use Confirmation::{Acting, Blocked, Missing, Spent};
    let confirmation = |world: &World| prune::confirmation(&world.situation(), &decide(&world.situation()));
    let mut world = World::new().declares(["Kyma/b"]).ours(["Kyma/a", "Kyma/b"]);
    assert_eq!(confirmation(&world), Missing);
    world.policy.confirmed = Some(COMMIT.to_owned());
    assert_eq!(confirmation(&world), Acting, "Kyma a is pruned now");
    let absent = World { live: BTreeMap::new(), ..world.clone() };
    assert_eq!(confirmation(&absent), Acting, "Kyma b is applied now");
    world.live.get_mut(&id("Kyma/a")).unwrap().deleting = true;
    assert_eq!(confirmation(&world), Acting, "Kyma a is being deleted");
    world.live.get_mut(&id("Kyma/a")).unwrap().deleting = false;
    world.live.get_mut(&id("Kyma/a")).unwrap().keep = true;
    assert_eq!(confirmation(&world), Spent, "Kyma a stays, as a user wants it");
    world.live.remove(&id("Kyma/a"));
    assert_eq!(confirmation(&world), Spent);
    let with_errors = World { errors: true, ..world.clone() }.ours(["Kyma/a"]);
    assert_eq!(confirmation(&with_errors), Blocked, "errors stop the prune");
    world.policy.confirmed = Some("1123456789012345678901234567890123456789".to_owned());
    assert_eq!(confirmation(&world), Missing, "of a commit that is not active yet");
}

#[test]
fn more_than_five_at_once_stop_where_a_tenth_is_less() {
    let names: Vec<String> = (0..6).map(|number| format!("Watcher/w{number}")).collect();
    let mut world = World::new().declares(["Kyma/a"]).ours(["Kyma/a"]);
    for name in &names {
        world = world.ours([name.as_str()]);
    }
    let decision = decide(&world.situation());
    assert!(decision.prune.is_empty());
    assert!(decision.waiting.values().all(|wait| *wait == Wait::Limit { found: 6, limit: 5 }));
    world.live.remove(&id("Watcher/w0"));
    assert_eq!(decide(&world.situation()).prune.len(), 5);
}

#[test]
fn the_limit_grows_with_what_the_source_declares_up_to_its_number() {
    let mut world = World::new();
    for number in 0..1000 {
        world = world.declares([format!("Kyma/k{number}").as_str()]);
    }
    let limit = |world: &World| prune_limit(world);
    assert_eq!(limit(&world), 50);
    world.policy.limit_objects = 80;
    assert_eq!(limit(&world), 80);
    world.policy.limit_percent = 1;
    assert_eq!(limit(&world), 10);
}

#[test]
fn an_empty_revision_is_a_mass_deletion() {
    let world = World::new().ours(["Watcher/w"]);
    assert_eq!(decide(&world.situation()).waiting[&id("Watcher/w")], Wait::Unconfirmed(Vec::new()));
}

#[test]
fn a_changed_url_is_a_mass_deletion() {
    let mut world = World::new().declares(["Kyma/a"]).ours(["Kyma/a", "Watcher/w"]);
    world.moved = Moved::Spec;
    assert_eq!(decide(&world.situation()).waiting[&id("Watcher/w")], Wait::Unconfirmed(Vec::new()));
}

#[test]
fn a_changed_scope_is_remembered_until_nothing_is_left_to_prune() {
    let mut world = World::new().declares(["Kyma/a"]).ours(["Kyma/a", "Watcher/w"]);
    let mut source = source();
    source.status = Some(world.status(&source, &Fetched::Done, "old"));
    world.moved = Moved::Spec;
    source.status = Some(world.status(&source, &Fetched::Done, "new"));
    assert_eq!(status::settled_scope(&source), Some(("old", false)));
    world.policy.confirmed = Some(COMMIT.to_owned());
    source.status = Some(world.status(&source, &Fetched::Done, "new"));
    assert_eq!(status::settled_scope(&source), Some(("new", true)));
}

#[test]
fn the_condition_about_the_scope_is_a_sentence_and_one_of_an_earlier_version_is_understood() {
    let mut world = World::new().declares(["Kyma/a"]).ours(["Kyma/a", "Watcher/w"]);
    let scope = |source: &GitSource| {
        let conditions = &source.status.as_ref().unwrap().conditions;
        let found = conditions::find(conditions, status::SCOPE).unwrap();
        (found.reason.clone(), found.message.clone())
    };
    let mut source = source();
    source.status = Some(world.status(&source, &Fetched::Done, "0a1b"));
    let (reason, message) = scope(&source);
    assert_eq!(reason, "Settled:0a1b");
    assert_eq!(message, "no change of URL, ref, paths or ignore has left objects to prune");

    let conditions = &mut source.status.as_mut().unwrap().conditions;
    let found = conditions.iter_mut().find(|found| found.type_ == status::SCOPE).unwrap();
    (found.reason, found.message) = ("Settled".to_owned(), "0a1b".to_owned());
    assert_eq!(status::settled_scope(&source), Some(("0a1b", true)));
    world.moved = Moved::Spec;
    source.status = Some(world.status(&source, &Fetched::Done, "2c3d"));
    let (reason, message) = scope(&source);
    assert_eq!(reason, "Changed:0a1b", "what is pruned belongs to the former scope");
    assert!(message.contains("objects to prune remain") && !message.contains("0a1b"), "{message}");
}

#[test]
fn a_source_whose_definitions_all_stand_is_ready() {
    let world = World::new().declares(["Kyma/a"]).ours(["Kyma/a"]);
    let status = world.status(&source(), &Fetched::Done, "scope");
    check_conditions(&status, &["Applied=True Applied", "Fetched=True Fetched", "Ready=True Applied"]);
    assert_eq!(status.applied_revision.as_deref(), Some(format!("main@sha1:{COMMIT}").as_str()));
    assert_eq!(status.counts.unwrap().applied, 1);
}

#[test]
fn a_source_that_cannot_be_read_says_why_and_keeps_its_revision_in_force() {
    let world = World::new().declares(["Kyma/a"]).ours(["Kyma/a"]);
    let failed = Fetched::Failed {
        reason: "Unauthorized",
        message: "the server wants other credentials".to_owned(),
        said: None,
        stalled: false,
    };
    let status = world.status(&source(), &failed, "scope");
    check_conditions(&status, &["Applied=True Applied", "Fetched=False Unauthorized", "Ready=False Unauthorized"]);
    let ready = status.conditions.iter().find(|condition| condition.type_ == "Ready").unwrap();
    assert_eq!(ready.message, format!("the server wants other credentials; main@sha1:{COMMIT} stays active"));
}

#[test]
fn rejected_objects_are_stalled_unless_another_try_may_help() {
    let commit = Revision::Commit { name: "main".to_owned(), commit: COMMIT.parse().unwrap() };
    let failures = [(id("Kyma/a"), "it changed a moment ago".to_owned())];
    for (retry_helps, expected) in [
        (true, &["Applied=False ApplyFailed", "Fetched=True Fetched", "Ready=False ApplyFailed"][..]),
        (
            false,
            &[
                "Applied=False ApplyFailed",
                "Fetched=True Fetched",
                "Ready=False ApplyFailed",
                "Stalled=True ApplyFailed",
            ],
        ),
    ] {
        let decision = Decision::default();
        let pass = Pass { failures: &failures, retry_helps, scope: "", ..passed(&decision, &commit) };
        check_conditions(&status::after_pass(&source(), &pass, Timestamp::UNIX_EPOCH), expected);
    }
}

/// A pass over a revision that is read whole and has no problems.
fn passed<'a>(decision: &'a Decision, revision: &'a Revision) -> Pass<'a> {
    static NONE: LazyLock<Diagnostics> = LazyLock::new(Diagnostics::default);
    Pass {
        fetched: &Fetched::Done,
        trust: Trust::NotAsked,
        attempted: Some(revision),
        in_force: Some(revision),
        is_read: true,
        refused: false,
        is_early: false,
        decision: Some(decision),
        withheld: &[],
        diagnostics: &NONE,
        remarks: &NONE,
        failures: &[],
        retry_helps: true,
        handled: None,
        receiving: &Receiving::Off,
        scope: "scope",
        moved: Moved::No,
        confirm_by: ConfirmBy::Annotation,
    }
}

/// A pass over a source that could not be read, so that only the deliveries change its status.
fn after_deliveries(before: &GitSource, receiving: Receiving, revision: Option<&Revision>, at: i64) -> GitSource {
    let failed =
        Fetched::Failed { reason: "Unreachable", message: "no connection".to_owned(), said: None, stalled: false };
    let pass = Pass {
        fetched: &failed,
        trust: Trust::NotAsked,
        attempted: revision,
        in_force: None,
        is_read: false,
        refused: false,
        is_early: false,
        decision: None,
        withheld: &[],
        diagnostics: &Diagnostics::default(),
        remarks: &Diagnostics::default(),
        failures: &[],
        retry_helps: true,
        handled: None,
        receiving: &receiving,
        scope: "scope",
        moved: Moved::No,
        confirm_by: ConfirmBy::Annotation,
    };
    let status = status::after_pass(before, &pass, Timestamp::from_second(at).unwrap());
    GitSource { status: Some(status), ..before.clone() }
}

#[test]
fn the_condition_received_says_whether_deliveries_arrive_and_costs_a_write_a_minute() {
    let received = |source: &GitSource| {
        let conditions = &source.status.as_ref().unwrap().conditions;
        let found = conditions.iter().find(|condition| condition.type_ == "Received");
        found.map(|found| format!("{} {}: {}", found.status, found.reason, found.message))
    };
    let delivered = |at| Receiving::Delivered(Timestamp::from_second(at).unwrap());
    let webhook = "check the webhook of the repository: it sends pushes to the receiver's address with the path \
                   /hooks/kcp-system/landscape";
    let began = after_deliveries(&source(), Receiving::Waiting, None, 0);
    let awaiting = format!("Unknown AwaitingDelivery: no delivery has arrived yet; {webhook}");
    assert_eq!(received(&began).as_deref(), Some(awaiting.as_str()));

    let first = after_deliveries(&began, delivered(100), None, 101);
    let at = |time: &str| format!("True Delivered: the last delivery arrived at 1970-01-01T00:{time}Z");
    assert_eq!(received(&first), Some(at("01:40")));
    // A storm writes nothing for a minute, unless something else is written.
    assert_eq!(after_deliveries(&first, delivered(159), None, 159), first);
    assert_eq!(received(&after_deliveries(&first, delivered(160), None, 160)), Some(at("02:40")));
    let commit = Revision::Commit { name: "main".to_owned(), commit: COMMIT.parse().unwrap() };
    assert_eq!(received(&after_deliveries(&first, delivered(110), Some(&commit), 110)), Some(at("01:50")));
    // The next process has seen no delivery, and keeps what the last one said.
    assert_eq!(after_deliveries(&first, Receiving::Waiting, None, 500), first);

    let missed = Receiving::Missed { revision: commit.to_string() };
    let missed = after_deliveries(&first, missed, None, 200);
    let found = format!("polling found main@sha1:{COMMIT}");
    let expected = format!("False NotDelivered: {found}: no delivery announced it; {webhook}");
    assert_eq!(received(&missed), Some(expected));
    let diagnostics = &missed.status.as_ref().unwrap().diagnostics;
    let texts: Vec<String> =
        diagnostics.iter().map(|one| format!("{} {}: {}", one.severity, one.code, one.message)).collect();
    let expected =
        format!("warning push-not-delivered: {found}, which no delivery of the git host announced; {webhook}");
    assert_eq!(texts, [expected]);
    let again = Receiving::Missed { revision: commit.to_string() };
    assert_eq!(after_deliveries(&missed, again, None, 900), missed);
    assert!(after_deliveries(&missed, delivered(901), None, 901).status.unwrap().diagnostics.is_empty());
    assert_eq!(after_deliveries(&missed, Receiving::Waiting, None, 900), missed);

    let unusable = Receiving::Unusable("Secret kcp-system/hook does not exist".to_owned());
    let expected = "False HookSecret: all deliveries are refused: Secret kcp-system/hook does not exist";
    let unusable = after_deliveries(&first, unusable, None, 1_000);
    assert_eq!(received(&unusable).as_deref(), Some(expected));
    assert_eq!(received(&after_deliveries(&unusable, Receiving::Waiting, None, 1_100)), Some(awaiting));
    assert_eq!(received(&after_deliveries(&first, Receiving::Off, None, 1_000)), None);
}

#[test]
fn a_source_whose_templates_are_unknown_says_what_waits_for_them() {
    let failed =
        Fetched::Failed { reason: "Unreachable", message: "no connection".to_owned(), said: None, stalled: false };
    let nothing = Diagnostics::default();
    let pass = |is_read| Pass {
        fetched: &failed,
        trust: Trust::NotAsked,
        attempted: None,
        in_force: None,
        is_read,
        refused: false,
        is_early: false,
        decision: None,
        withheld: &[],
        diagnostics: &nothing,
        remarks: &nothing,
        failures: &[],
        retry_helps: true,
        handled: None,
        receiving: &Receiving::Off,
        scope: "scope",
        moved: Moved::No,
        confirm_by: ConfirmBy::Annotation,
    };
    let wait = "; Kymas and Watchers that may use its templates (spec.templates) wait for it";
    let now = Timestamp::UNIX_EPOCH;
    for (templates, is_read, note) in
        [(None, false, ""), (Some(""), false, ""), (Some("templates"), false, wait), (Some("templates"), true, "")]
    {
        let mut source = source();
        source.spec.templates = templates.map(str::to_owned);
        let ready = |status: GitSourceStatus| {
            status.conditions.into_iter().find(|condition| condition.type_ == "Ready").unwrap().message
        };
        assert_eq!(ready(status::after_pass(&source, &pass(is_read), now)), format!("no connection{note}"));
        let kept = if is_read { Kept::Read } else { Kept::Lost };
        let suspended = ready(status::suspended(&source, kept, now));
        assert_eq!(suspended, format!("the source is suspended{note}"));
    }
}

#[test]
fn a_revision_that_is_not_verified_is_in_the_condition_and_the_last_verified_one_is_remembered() {
    let revision =
        |digit: &str| Revision::Commit { name: "main".to_owned(), commit: digit.repeat(40).parse().unwrap() };
    let (first, second) = (revision("1"), revision("2"));
    let world = World::new().declares(["Kyma/a"]).ours(["Kyma/a"]);
    let decision = decide(&world.situation());
    let nothing = Diagnostics::default();
    let after = |source: &GitSource, fetched: &Fetched, trust: Trust<'_>| {
        let pass = Pass {
            fetched,
            trust,
            attempted: Some(&first),
            in_force: Some(&first),
            is_read: true,
            refused: false,
            is_early: false,
            decision: Some(&decision),
            withheld: &[],
            diagnostics: &nothing,
            remarks: &nothing,
            failures: &[],
            retry_helps: true,
            handled: None,
            receiving: &Receiving::Off,
            scope: "scope",
            moved: Moved::No,
            confirm_by: ConfirmBy::Annotation,
        };
        status::after_pass(source, &pass, Timestamp::UNIX_EPOCH)
    };
    let mut source = source();
    let verified = Trust::Verified { revision: &first, by: "the commit is signed by anna" };
    let status = after(&source, &Fetched::Done, verified);
    let all = ["Applied=True Applied", "Fetched=True Fetched", "Ready=True Applied", "Verified=True Verified"];
    check_conditions(&status, &all);
    assert_eq!(status.verified_revision, Some(first.to_string()));
    assert!(status::is_verified(&status));
    source.status = Some(status.clone());
    assert_eq!(after(&source, &Fetched::Done, Trust::Unknown), status, "a new process changes nothing");

    let message = "it is not signed".to_owned();
    let unverified = Fetched::Unverified { revision: second.clone(), reason: "Unsigned", message };
    let status = after(&source, &unverified, Trust::Unknown);
    let refused = [
        "Applied=True Applied",
        "Fetched=True Fetched",
        "Ready=False Unsigned",
        "Stalled=True Unsigned",
        "Verified=False Unsigned",
    ];
    check_conditions(&status, &refused);
    let found = status.conditions.iter().find(|condition| condition.type_ == "Verified").unwrap();
    assert_eq!(found.message, format!("it is not signed; {first} stays active"));
    assert_eq!(status.attempted_revision, Some(second.to_string()));
    assert_eq!(status.verified_revision, Some(first.to_string()));

    source.status = Some(status);
    let status = after(&source, &Fetched::Done, Trust::NotAsked);
    check_conditions(&status, &all[..3]);
    assert_eq!(status.verified_revision, None);
}

#[test]
fn a_source_of_the_command_line_is_confirmed_by_an_option_and_not_by_an_annotation() {
    let mut world = World::new().declares(["Watcher/w"]).ours(["Watcher/w", "Kyma/a"]);
    world.policy.confirm_by = ConfirmBy::Option;
    let option = format!("restart `tidegate run` with `--confirm-prune={COMMIT}`");
    let decision = decide(&world.situation());
    let said = decision.diagnostics.sorted().remove(0);
    assert_eq!(said.hint, Some(format!("to prune it, {option}")));
    let mut source = source();
    source.metadata.annotations =
        Some([(crate::api::names::annotation::CONFIRM_PRUNE.to_owned(), "0123456".to_owned())].into());
    let status = world.status(&source, &Fetched::Done, "scope");
    let applied = conditions::find(&status.conditions, status::APPLIED).unwrap();
    let end = format!("to prune them, {option}; the option --confirm-prune names another commit");
    assert!(applied.message.ends_with(&end), "{}", applied.message);
    let ready = conditions::find(&status.conditions, status::READY).unwrap();
    let expected = "prunes 1 object removed from git; another commit was confirmed; the log of the daemon names the first of \
                    them";
    assert_eq!(ready.message, format!("`--confirm-prune={COMMIT}` {expected}"));
}

#[test]
fn a_long_sentence_about_an_object_of_another_source_keeps_what_to_write() {
    let world = World::new().declares(["Kyma/a"]).owned_by("other", "Kyma/a").other("other", ["Kyma/a"]);
    let status = world.status(&source(), &Fetched::Done, "scope");
    let ready = conditions::find(&status.conditions, status::READY).unwrap();
    let expected = "to take it over with this content, annotate the definition with `tidegate.dev/adopt: \"true\"`; \
                    condition Applied says why";
    assert_eq!(ready.message, expected);
}

#[test]
fn what_to_do_about_an_object_of_others_is_in_both_conditions() {
    let long = format!("Kyma/{}", "a".repeat(63));
    let mut world = World::new().declares([long.as_str()]).ours([long.as_str()]).with(&long, |live| {
        live.source = None;
        live.managers = Some(["kubectl-client-side-apply".to_owned()].into());
    });
    let status = world.status(&source(), &Fetched::Done, "scope");
    let message = |type_| &conditions::find(&status.conditions, type_).unwrap().message;
    let advice = "to take it over, annotate the definition with `tidegate.dev/adopt: \"true\"`";
    assert!(message(status::APPLIED).ends_with(advice), "{}", message(status::APPLIED));
    let ready = format!("held back: 1 definition; a.yaml: {advice}; condition Applied says why");
    assert_eq!(*message(status::READY), ready);
    // A source of the command line has no conditions that users can read.
    world.policy.confirm_by = ConfirmBy::Option;
    let status = world.status(&source(), &Fetched::Done, "scope");
    let ready = format!("held back: 1 definition; a.yaml: {advice}; the log of the daemon says why");
    assert_eq!(conditions::find(&status.conditions, status::READY).unwrap().message, ready);
}

#[test]
fn a_file_that_moved_is_written_only_if_a_user_asks() {
    let displaced = |is_asked: bool| {
        World::new().declares(["Kyma/a"]).ours(["Kyma/a"]).with("Kyma/a", |live| live.displaced = is_asked)
    };
    displaced(false).check(&[]);
    assert_eq!(decide(&displaced(true).situation()).apply[0].1, Why::Displaced);
}

#[test]
fn a_withheld_definition_keeps_the_applied_revision_behind() {
    let mut world = World::new().withholds(["Kyma/a"]).declares(["Kyma/b"]).ours(["Kyma/b"]);
    world.errors = true;
    let status = world.status(&source(), &Fetched::Done, "scope");
    check_conditions(
        &status,
        &["Applied=False Withheld", "Fetched=True Fetched", "Ready=False Withheld", "Stalled=True Withheld"],
    );
    assert_eq!(status.applied_revision, None);
    assert_eq!(status.attempted_revision.as_deref(), Some(format!("main@sha1:{COMMIT}").as_str()));
    assert_eq!((status.counts.unwrap().withheld, status.withheld.len()), (1, 1));
}

#[test]
fn an_unconfirmed_prune_stands_in_the_condition_with_its_command() {
    let world = World::new().declares(["Watcher/w"]).ours(["Watcher/w", "Kyma/a"]);
    let status = world.status(&source(), &Fetched::Done, "scope");
    let applied = status.conditions.iter().find(|condition| condition.type_ == "Applied").unwrap();
    assert_eq!(applied.reason, "PruneUnconfirmed");
    assert!(applied.message.contains(&format!("tidegate.dev/confirm-prune={COMMIT}")), "{}", applied.message);
    assert_eq!(status.counts.unwrap().to_prune, 1);
}

#[test]
fn a_confirmation_of_another_commit_is_told_apart_from_none() {
    let world = World::new().declares(["Watcher/w"]).ours(["Watcher/w", "Kyma/a"]);
    let mut source = source();
    source.metadata.annotations =
        Some([(crate::api::names::annotation::CONFIRM_PRUNE.to_owned(), "abc".to_owned())].into());
    let status = world.status(&source, &Fetched::Done, "scope");
    let message = |type_: &str| &status.conditions.iter().find(|found| found.type_ == type_).unwrap().message;
    let command = ConfirmBy::Annotation.command(&Key::new("kcp-system", "landscape"), COMMIT);
    assert!(
        message("Applied").ends_with(&format!(
            "to prune them, run `{command}`; the annotation tidegate.dev/confirm-prune of the GitSource names another \
             commit"
        )),
        "{}",
        message("Applied")
    );
    let ready = format!("`{command}` prunes 1 object removed from git; another commit was confirmed");
    assert!(message("Ready").starts_with(&ready), "{}", message("Ready"));
}

#[test]
fn the_message_of_ready_fits_into_a_table_and_begins_with_the_command_that_helps() {
    let kymas: Vec<String> = (0..100).map(|number| format!("Kyma/runtime-{number:03}")).collect();
    let mut live = vec!["Watcher/w"];
    live.extend(kymas.iter().map(String::as_str));
    let world = World::new().declares(["Watcher/w"]).ours(live);
    let status = world.status(&source(), &Fetched::Done, "scope");
    let message = |type_: &str| &status.conditions.iter().find(|found| found.type_ == type_).unwrap().message;
    let command = ConfirmBy::Annotation.command(&Key::new("kcp-system", "landscape"), COMMIT);
    let expected = format!("`{command}` prunes 100 objects removed from git; condition Applied names them");
    assert_eq!(*message("Ready"), expected);
    assert!(expected.chars().count() <= status::READY_CHARS_MAX, "{}", expected.len());
    assert!(1000 < message("Applied").len() && message("Applied").contains("runtime-099"), "{}", message("Applied"));

    let long = Fetched::Failed { reason: "Unreachable", message: "x".repeat(500), said: None, stalled: false };
    let status = world.status(&source(), &long, "scope");
    let ready = status.conditions.iter().find(|found| found.type_ == "Ready").unwrap();
    assert_eq!(ready.message.chars().count(), status::READY_CHARS_MAX);
}

#[test]
fn a_suspended_source_says_who_suspended_it_and_why() {
    let mut source = source();
    let note = "by alice since 2026-01-01T00:00:00Z: upgrade of the network";
    let annotations = [(crate::api::names::annotation::SUSPENDED.to_owned(), note.to_owned())];
    source.metadata.annotations = Some(annotations.into());
    let message = |source: &GitSource| {
        let status = status::suspended(source, Kept::Read, Timestamp::UNIX_EPOCH);
        status.conditions.into_iter().find(|condition| condition.type_ == "Ready").unwrap().message
    };
    assert_eq!(message(&source), format!("suspended {note}"));
    source.status =
        Some(GitSourceStatus { applied_revision: Some("main@sha1:a".to_owned()), ..GitSourceStatus::default() });
    assert_eq!(message(&source), format!("suspended {note}; the objects of main@sha1:a stay applied"));
    // The state folder of a process that has just started is empty.
    let status = status::suspended(&source, Kept::Lost, Timestamp::UNIX_EPOCH);
    let ready = &conditions::find(&status.conditions, status::READY).unwrap().message;
    let command =
        |name: &str| format!("`tidegate resume gitsource/{name} -n kcp-system` ends the suspension and fetches it");
    let rest =
        format!("; the state folder has no revision of it, so its modules are not repaired; {}", command("landscape"));
    assert!(ready.ends_with(&rest), "{ready}");
    assert!(ready.chars().count() <= status::READY_CHARS_MAX, "{ready}");
    assert!(!status::without_what_stays(ready).contains("state folder"), "{ready}");

    // A long name leaves room for the command only, and the longest one for neither.
    for (length, has_command) in [(63, true), (253, false)] {
        let name = "n".repeat(length);
        source.metadata.name = Some(name.clone());
        let status = status::suspended(&source, Kept::Lost, Timestamp::UNIX_EPOCH);
        let ready = &conditions::find(&status.conditions, status::READY).unwrap().message;
        assert!(ready.starts_with("suspended by alice"), "{ready}");
        assert_eq!(ready.ends_with(&command(&name)), has_command, "{ready}");
        assert!(
            ready.ends_with("fetches it") || ready.ends_with("resume it to end the suspension and fetch it"),
            "{ready}"
        );
        assert!(ready.chars().count() <= status::READY_CHARS_MAX, "{ready}");
        assert!(!status::without_what_stays(ready).contains("state folder"), "{ready}");
    }
}

#[test]
fn the_same_pass_again_gives_the_same_status() {
    let world = World::new().declares(["Kyma/a"]).ours(["Kyma/a"]);
    let mut source = source();
    let first = world.status(&source, &Fetched::Done, "scope");
    source.status = Some(first.clone());
    assert_eq!(world.status(&source, &Fetched::Done, "scope"), first);
}

#[test]
fn the_times_of_conditions_stand_still_while_nothing_changes() {
    let mut world = World::new().withholds(["Kyma/a"]);
    world.errors = true;
    let mut source = source();
    let first = world.status_at(&source, &Fetched::Done, "scope", Timestamp::UNIX_EPOCH);
    source.status = Some(first.clone());
    let later = Timestamp::from_second(3600).unwrap();
    assert_eq!(world.status_at(&source, &Fetched::Done, "scope", later), first);
}

#[test]
fn a_suspended_source_says_so_and_forgets_nothing() {
    let world = World::new().declares(["Kyma/a"]).ours(["Kyma/a"]);
    let mut source = source();
    source.status = Some(world.status(&source, &Fetched::Done, "scope"));
    let status = status::suspended(&source, Kept::Read, Timestamp::UNIX_EPOCH);
    check_conditions(&status, &["Applied=True Applied", "Fetched=True Fetched", "Ready=False Suspended"]);
    assert!(status.applied_revision.is_some() && status.counts.is_some());
}

#[test]
fn twenty_entries_are_listed_and_all_are_counted() {
    let names: Vec<String> = (0..30).map(|number| format!("Kyma/k{number}")).collect();
    let world = World::new().withholds(names.iter().map(String::as_str));
    let status = world.status(&source(), &Fetched::Done, "scope");
    assert_eq!((status.withheld.len(), status.counts.as_ref().unwrap().withheld), (20, 30));
    // The names of all are there: what moves to another source stays, whatever its number.
    let source = GitSource { status: Some(status), ..source() };
    assert_eq!((status::held_back(&source).len(), status::unnamed(&source)), (30, 0));
    assert!(status::takeovers(&source).is_empty());
}

#[test]
fn what_a_source_takes_over_beyond_the_first_twenty_is_known_by_name() {
    let names: Vec<String> = (0..30).map(|number| format!("Kyma/k{number}")).collect();
    let all = || names.iter().map(String::as_str);
    let mut world = World::new().declares(all()).other("other", all());
    for name in &names {
        world = world.adopts(name).owned_by("other", name);
    }
    let source = GitSource { status: Some(world.status(&source(), &Fetched::Done, "scope")), ..source() };
    assert_eq!((status::takeovers(&source).len(), status::held_back(&source).len()), (30, 30));
}

#[test]
fn what_only_waits_for_a_source_that_is_about_to_be_read_is_set_aside_and_the_rest_is_reported() {
    let mut world =
        World::new().declares(["Kyma/a", "Kyma/b"]).ours(["Kyma/b"]).owned_by("other", "Kyma/a").unread("other");
    world.declared.get_mut(&id("Kyma/b")).unwrap().needs = vec![id("Kyma/a")];
    world = world.with("Kyma/b", |live| live.digest = Some("old".into()));
    let other = || BTreeSet::from([Key::new("kcp-system", "other")]);
    let mut decision = decide(&world.situation());
    assert_eq!(
        decision.unread.keys().collect::<Vec<_>>(),
        [&id("Kyma/a"), &id("Kyma/b")],
        "the one and what depends on it"
    );
    let why = |name: &str| decision.held[&id(name)].why;
    assert_eq!((why("Kyma/a"), why("Kyma/b")), (HeldFor::Problem, HeldFor::Dependency));
    decision.set_aside(&BTreeSet::from([Key::new("kcp-system", "third")]));
    assert_eq!(decision.held.len(), 2);
    decision.set_aside(&other());
    assert!(decision.held.is_empty() && decision.unread.is_empty() && decision.diagnostics.is_empty());

    let before = world.status(&source(), &Fetched::Done, "scope");
    check_conditions(
        &before,
        &["Applied=False Withheld", "Fetched=True Fetched", "Ready=False Withheld", "Stalled=True Withheld"],
    );
    let source = GitSource { status: Some(before.clone()), ..source() };
    let early = |failures: &[(Id, String)]| {
        let mut decision = decide(&world.situation());
        decision.set_aside(&other());
        let revision = Revision::Commit { name: "main".to_owned(), commit: COMMIT.parse().unwrap() };
        let pass = Pass { is_early: true, failures, ..passed(&decision, &revision) };
        status::after_pass(&source, &pass, Timestamp::UNIX_EPOCH)
    };
    assert_eq!(early(&[]), before, "no news, no write");
    let failed = early(&[(id("Kyma/b"), "no".to_owned())]);
    check_conditions(&failed, &["Applied=False ApplyFailed", "Fetched=True Fetched", "Ready=False ApplyFailed"]);
    let codes: Vec<&str> = failed.diagnostics.iter().map(|entry| entry.code.as_str()).collect();
    assert_eq!(codes, [code::APPLY_FAILED]);
    assert_eq!((failed.counts, failed.applied_revision), (before.counts, None), "not all is applied");
}

#[test]
fn the_lists_of_a_status_are_limited_in_bytes_and_what_is_left_out_is_counted() {
    let names = |letter: &str| -> Vec<String> {
        let all = 0..status::NAMES_MAX + status::ENTRIES_MAX;
        all.map(|number| format!("Kyma/{}{number:05}", letter.repeat(248))).collect()
    };
    let (held, gone) = (names("a"), names("b"));
    let texts = || held.iter().map(String::as_str);
    let mut world = World::new().declares(texts()).other("other", texts()).ours(gone.iter().map(String::as_str));
    for name in &held {
        world = world.adopts(name).owned_by("other", name);
    }
    let mut decision = decide(&world.situation());
    let object = |number: usize| format!("example.org/v1/Thing/{}/{number:03}{}", "n".repeat(63), "o".repeat(250));
    let objects: Vec<String> = (0..status::TAKEOVER_OBJECTS_MAX).map(object).collect();
    for takeover in decision.takeovers.values_mut().take(status::ENTRIES_MAX) {
        takeover.object = Some("\"".repeat(status::TAKEOVER_LEN_MAX).into());
        takeover.module = Some(crate::definition::ModuleNames::from_texts(&objects));
    }
    let revision = Revision::Commit { name: "main".to_owned(), commit: COMMIT.parse().unwrap() };
    let pass = passed(&decision, &revision);
    let status = status::after_pass(&source(), &pass, Timestamp::UNIX_EPOCH);
    let lists = (&status.withheld, &status.more_withheld, &status.undeclared, &status.more_undeclared);
    let bytes = serde_json::to_string(&lists).unwrap().len();
    // The names of the fields are not part of the budget.
    assert!(bytes < status::LISTS_BYTES_MAX + 1024, "{bytes}");
    assert!(serde_json::to_string(&status).unwrap().len() < 1024 * 1024);
    // What matters most stays.
    assert_eq!((status.withheld.len(), status.undeclared.len()), (status::ENTRIES_MAX, status::ENTRIES_MAX));
    assert!(status.withheld.iter().all(|entry| entry.object.is_some() && entry.objects.is_empty()));
    let named: usize = status.more_withheld.iter().map(|entry| entry.names.len()).sum();
    assert!((1..status::NAMES_MAX).contains(&named), "{named}");
    assert!(status.more_undeclared.is_empty());
    let source = GitSource { status: Some(status), ..source() };
    assert_eq!(status::held_back(&source).len(), status::ENTRIES_MAX + named);
    assert_eq!(status::unnamed(&source), status::NAMES_MAX - named);
}

// === the world of a test ===

/// The state of git and KCP in a test. Names are `Kind/name` in `kcp-system`.
#[derive(Clone)]
struct World {
    key: Key,
    declared: BTreeMap<Id, Declared>,
    withheld: BTreeSet<Id>,
    broken: BTreeMap<Id, FilePosition>,
    live: BTreeMap<Id, Live>,
    others: BTreeMap<String, Other>,
    installed: Vec<Installed>,
    leaving: BTreeSet<Loss>,
    policy: Policy,
    errors: bool,
    moved: Moved,
}

impl World {
    fn new() -> World {
        World {
            key: Key::new("kcp-system", "landscape"),
            declared: BTreeMap::new(),
            withheld: BTreeSet::new(),
            broken: BTreeMap::new(),
            live: BTreeMap::new(),
            others: BTreeMap::new(),
            installed: Vec::new(),
            leaving: BTreeSet::new(),
            policy: Policy::default(),
            errors: false,
            moved: Moved::No,
        }
    }

    fn declares<'a>(mut self, names: impl IntoIterator<Item = &'a str>) -> World {
        self.declared.extend(names.into_iter().map(|name| {
            (
                id(name),
                Declared { digest: digest(name), place: FilePosition::file("a.yaml"), adopt: false, needs: Vec::new() },
            )
        }));
        self
    }

    fn withholds<'a>(mut self, names: impl IntoIterator<Item = &'a str>) -> World {
        for name in names {
            self.withheld.insert(id(name));
            self.broken.insert(id(name), FilePosition::at(&"broken.yaml".into(), 4, 9));
        }
        self
    }

    fn exists(mut self, name: &str) -> World {
        self.live.insert(id(name), Live { uid: name.into(), ..Live::default() });
        self
    }

    fn ours<'a>(mut self, names: impl IntoIterator<Item = &'a str>) -> World {
        for name in names {
            let live =
                Live { uid: name.into(), source: Some(LABEL.into()), digest: Some(digest(name)), ..Live::default() };
            self.live.insert(id(name), live);
        }
        self
    }

    fn owned_by(self, owner: &str, name: &str) -> World {
        self.ours([name]).with(name, |live| live.source = Some(format!("kcp-system.{owner}").into()))
    }

    fn with(mut self, name: &str, change: impl FnOnce(&mut Live)) -> World {
        change(self.live.get_mut(&id(name)).unwrap());
        self
    }

    fn adopts(mut self, name: &str) -> World {
        self.declared.get_mut(&id(name)).unwrap().adopt = true;
        self
    }

    fn other<'a>(mut self, name: &str, declares: impl IntoIterator<Item = &'a str>) -> World {
        let declares = Some(Arc::new(declares.into_iter().map(id).collect()));
        let other = Other { key: Key::new("kcp-system", name), idle: false, declares, allow: Allow::default() };
        self.others.insert(format!("kcp-system.{name}"), other);
        self
    }

    fn unread(self, name: &str) -> World {
        self.unread_with(name, Allow::default())
    }

    fn unread_with(mut self, name: &str, allow: Allow) -> World {
        let other = Other { key: Key::new("kcp-system", name), idle: false, declares: None, allow };
        self.others.insert(format!("kcp-system.{name}"), other);
        self
    }

    fn installed(mut self, runtime: &str, module: &str, version: &str) -> World {
        self.installed.push(Installed {
            runtime: Key::new("kcp-system", runtime),
            module: module.to_owned(),
            version: version.to_owned(),
            standing: Standing::Selected,
        });
        self
    }

    fn situation(&self) -> Situation<'_> {
        Situation {
            source: &self.key,
            label: LABEL,
            commit: Some(COMMIT.parse().unwrap()),
            declared: &self.declared,
            withheld: &self.withheld,
            broken: &self.broken,
            live: &self.live,
            others: &self.others,
            installed: &self.installed,
            leaving: &self.leaving,
            policy: &self.policy,
            errors: self.errors,
            moved: self.moved,
        }
    }

    fn status(&self, source: &GitSource, fetched: &Fetched, scope: &str) -> GitSourceStatus {
        self.status_at(source, fetched, scope, Timestamp::UNIX_EPOCH)
    }

    fn status_at(&self, source: &GitSource, fetched: &Fetched, scope: &str, now: Timestamp) -> GitSourceStatus {
        let decision = decide(&self.situation());
        let revision = Revision::Commit { name: "main".to_owned(), commit: COMMIT.parse().unwrap() };
        let withheld: Vec<Withheld> = self
            .withheld
            .iter()
            .map(|id| Withheld { id: id.clone(), path: "a.yaml".to_owned(), line: 1, message: "broken".to_owned() })
            .collect();
        let pass = Pass {
            fetched,
            trust: Trust::NotAsked,
            attempted: Some(&revision),
            in_force: Some(&revision),
            is_read: true,
            refused: false,
            is_early: false,
            decision: Some(&decision),
            withheld: &withheld,
            diagnostics: &Diagnostics::default(),
            remarks: &Diagnostics::default(),
            failures: &[],
            retry_helps: true,
            handled: None,
            receiving: &Receiving::Off,
            scope,
            moved: self.moved,
            confirm_by: self.policy.confirm_by,
        };
        status::after_pass(source, &pass, now)
    }

    #[track_caller]
    fn check(&self, expected: &[&str]) {
        let decision = decide(&self.situation());
        let short = |id: &Id| format!("{}/{}", id.0, id.1.name());
        let mut script: Vec<String> = decision.apply.iter().map(|(id, _)| format!("apply {}", short(id))).collect();
        script.extend(decision.look_up.iter().map(|id| format!("look up {}", short(id))));
        script.extend(decision.held.iter().map(|(id, held)| format!("hold {}: {}", short(id), held.message)));
        script.extend(decision.prune.iter().map(|(id, _)| format!("prune {}", short(id))));
        script.extend(decision.waiting.iter().map(|(id, wait)| format!("wait {}: {wait:?}", short(id))));
        assert_eq!(script, expected);
    }
}

fn prune_limit(world: &World) -> usize {
    prune::limit(&world.policy, world.declared.len())
}

fn digest(name: &str) -> Arc<str> {
    format!("digest of {name}").into()
}

fn loss(runtime: &str) -> Loss {
    Loss { runtime: Key::new("kcp-system", runtime), module: "m 1.0.0".to_owned(), standing: Standing::Selected }
}

fn id(text: &str) -> Id {
    let (kind, name) = text.split_once('/').unwrap();
    (kind.parse().unwrap(), Key::new("kcp-system", name))
}

fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

fn source() -> GitSource {
    let mut source = GitSource::new("landscape", crate::api::git_source::GitSourceSpec::default());
    source.metadata.namespace = Some("kcp-system".to_owned());
    source
}

#[track_caller]
fn check_conditions(status: &GitSourceStatus, expected: &[&str]) {
    let found: Vec<String> = status
        .conditions
        .iter()
        .filter(|condition| condition.type_ != status::SCOPE)
        .map(|condition| format!("{}={} {}", condition.type_, condition.status, condition.reason))
        .collect();
    assert_eq!(found, expected);
}
