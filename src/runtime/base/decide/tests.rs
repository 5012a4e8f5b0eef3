use std::sync::Arc;

use serde_json::json;
use tidegate_cluster::Target;
use tidegate_core::name::Key;
use tidegate_process::retry::Class;

use super::*;
use crate::runtime::objects::{
    Seen,
    fixtures::{metadata, shared},
};

const CRD: (&str, &str, &str, &str) =
    ("apiextensions.k8s.io/v1", "CustomResourceDefinition", "", "moduletemplates.operator.kyma-project.io");
const TEMPLATE: (&str, &str, &str, &str) =
    ("operator.kyma-project.io/v1beta2", "ModuleTemplate", "kyma-system", "cache-1");

fn base(problems: &[&str]) -> Base {
    Base {
        objects: shared(&[CRD, TEMPLATE]),
        digest: Digest::from_value(&json!("base")),
        problems: problems.iter().map(|&problem| problem.to_owned()).collect(),
        credentials: None,
    }
}

fn applied(base: &Base, seen: [Seen; 2]) -> Applied {
    Applied { objects: Arc::clone(&base.objects), seen: seen.into(), follows_another: false }
}

fn failed(base: &Base, index: usize) -> Failed {
    let id = base.objects.objects[index].id.clone();
    let error = Error::Terminating { target: Target::Object(id.clone()) };
    Failed { message: format!("{} failed", id.kind), error: Some(error), id }
}

#[test]
fn the_catalog_is_pruned_if_the_base_is_new_or_checked_and_completely_rendered() {
    let [one, all] = [[Seen::Recorded, Seen::Missing], [Seen::Recorded; 2]];
    for (problems, seen, is_recorded, checks, expected) in [
        (&[][..], all, true, false, false),
        (&[], all, true, true, true),
        (&[], all, false, false, true),
        (&[], one, true, false, true),
        (&["broken"], one, false, true, false),
    ] {
        let base = base(problems);
        let recorded = is_recorded.then(|| base.digest.to_string());
        let work = || work(&base, &applied(&base, seen), recorded.as_deref(), checks, true);
        assert_eq!(work().missing.len(), seen.iter().filter(|&&seen| seen == Seen::Missing).count());
        let kinds: Vec<String> = kinds_to_prune(&work(), &[]).iter().map(|gvk| gvk.kind.to_string()).collect();
        let names: &[&str] = if expected { &["ModuleTemplate", "ModuleReleaseMeta"] } else { &[] };
        assert_eq!(kinds, names, "{seen:?}, recorded: {is_recorded}, checks: {checks}");
        assert!(kinds_to_prune(&work(), &[failed(&base, 0)]).is_empty(), "an object is not applied");
        let blind = super::work(&base, &applied(&base, seen), recorded.as_deref(), checks, false);
        assert!(kinds_to_prune(&blind, &[]).is_empty(), "a definition cannot be read");
    }
}

#[test]
fn only_copies_that_have_left_the_catalog_are_pruned() {
    let id = |name: &str| ObjectId::new(KYMA_GROUP, "ModuleTemplate", "kyma-system", name);
    let copy = |name: &str, manager: &str| Metadata { managers: vec![manager.into()], ..metadata(&id(name), "1") };
    let copies = [
        copy("cache-1", FIELD_MANAGER),
        copy("cache-0", FIELD_MANAGER),
        copy("of-upstream", CATALOG_MANAGER_UPSTREAM),
        copy("of-a-user", "kubectl"),
        Metadata { deleting: true, ..copy("going", FIELD_MANAGER) },
        Metadata { unreadable: Some("metadata.labels: invalid type".into()), ..copy("unreadable", FIELD_MANAGER) },
    ];
    let base = base(&[]);
    for (is_adopted, expected) in [(false, &["cache-0", "of-upstream"][..]), (true, &["cache-0"])] {
        let pruned = to_prune(&base.objects, &copies, is_adopted);
        let names: Vec<&str> = pruned.iter().map(|copy| &*copy.id.name).collect();
        assert_eq!(names, expected, "adopted: {is_adopted}");
    }
}

#[test]
fn the_report_names_the_part_that_failed() {
    let part = |failed: Option<&str>| failed.map_or(Part::Done, |message| Part::Failed(message.to_owned()));
    for (problems, failing, crds, catalog, is_applied) in [
        (&[][..], None, None, None, true),
        (&[], Some(0), Some("CustomResourceDefinition failed"), None, false),
        (&[], Some(1), None, Some("ModuleTemplate failed"), false),
        (&["broken"], None, None, Some("broken"), false),
    ] {
        let base = base(problems);
        let mut seen = [Seen::Recorded; 2];
        failing.iter().for_each(|&index: &usize| seen[index] = Seen::Missing);
        let failed: Vec<Failed> = failing.iter().map(|&index| failed(&base, index)).collect();
        let (next, report) = ending(&KnownBase::default(), &base, applied(&base, seen), &failed, false);
        assert_eq!((report.crds, report.catalog), (part(crds), part(catalog)));
        assert_eq!(report.applied, is_applied.then_some(base.digest));
        assert_eq!(next.attempt, u32::from(failing.is_some()));
        assert_eq!(report.again, failing.map(|_| delay(Class::Waiting, 1)));
    }
}

#[test]
fn failures_in_a_row_are_counted_until_a_pass_ends_well() {
    let base = base(&[]);
    let attempt = |before: u32, failed: &[Failed]| {
        let known = KnownBase { attempt: before, ..KnownBase::default() };
        ending(&known, &base, applied(&base, [Seen::Recorded; 2]), failed, false).0.attempt
    };
    assert_eq!(attempt(2, &[failed(&base, 1)]), 3);
    assert_eq!(attempt(2, &[]), 0);
}

#[test]
fn a_prune_that_is_held_is_tried_again() {
    let base = base(&[]);
    let applied = applied(&base, [Seen::Recorded; 2]);
    let (_, report) = ending(&KnownBase::default(), &base, applied.clone(), &[], true);
    assert_eq!((report.applied, report.again), (None, Some(HELD_RETRY)));
    let (_, report) = ending(&KnownBase::default(), &base, applied, &[], false);
    assert_eq!((report.applied, report.again), (Some(base.digest), None));
}

#[test]
fn the_image_pull_secret_is_reported_by_itself() {
    let objects = shared(&[("v1", "Secret", "kyma-system", "registry")]);
    let of = |credentials: Option<Credentials>, fails: bool| {
        let base = Base { objects: Arc::clone(&objects), credentials, ..base(&[]) };
        let applied = Applied { objects: Arc::clone(&objects), seen: [Seen::Recorded].into(), follows_another: false };
        let failed: Vec<Failed> = fails.then(|| failed(&base, 0)).into_iter().collect();
        let (_, report) = ending(&KnownBase::default(), &base, applied, &failed, false);
        assert_eq!((report.crds, report.catalog), (Part::Done, Part::Done));
        report.pull_secret
    };
    assert_eq!(of(None, false), None, "none is configured");
    assert_eq!(of(Some(Credentials::Found), false), Some(Part::Done));
    assert_eq!(of(Some(Credentials::Found), true), Some(Part::Failed("Secret failed".to_owned())));
    let missing = "there is no Secret kcp-system/registry to pull images with: create it in the control plane";
    let of_missing = of(Some(Credentials::Missing(Key::new("kcp-system", "registry"))), false);
    assert_eq!(of_missing, Some(Part::Waiting(missing.to_owned())));
}

#[test]
fn copies_of_a_former_base_are_pruned_whatever_the_status_says() {
    let (one, other) = (base(&[]), Base { objects: shared(&[CRD]), ..base(&[]) });
    let mut known = KnownBase::default();
    known.follow(&one);
    assert!(!known.is_unpruned, "a new process relies on the status");
    let settle = |known: &KnownBase, base: &Base, is_held, is_known| {
        let seen = vec![Seen::Recorded; base.objects.objects.len()].into();
        let applied = Applied { objects: Arc::clone(&base.objects), seen, follows_another: false };
        let work = work(base, &applied, Some(&base.digest.to_string()), known.is_unpruned, is_known);
        let is_unpruned = is_unpruned(known, &work, &[], is_held);
        KnownBase { is_unpruned, ..ending(known, base, applied, &[], is_held).0 }
    };
    known = settle(&known, &one, false, true);
    known.follow(&one);
    assert!(!known.is_unpruned);
    known.follow(&other);
    assert!(known.is_unpruned);
    for (is_held, is_known) in [(true, true), (false, false)] {
        known = settle(&known, &other, is_held, is_known);
        known.follow(&other);
        assert!(known.is_unpruned, "held: {is_held}, all definitions known: {is_known}");
    }
    assert!(!settle(&known, &other, false, true).is_unpruned);
}
