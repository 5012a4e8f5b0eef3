use serde_json::Value;
use tidegate_core::{name::Key, object::ObjectId};

use super::*;

const NOW: &str = "2026-01-01T00:01:00Z";

/// A ModuleReleaseMeta of a mandatory module that is not being deleted, with these changes.
fn release(edit: impl FnOnce(&mut Value)) -> ModuleReleaseMeta {
    let mut release = json!({
        "apiVersion": "operator.kyma-project.io/v1beta2", "kind": "ModuleReleaseMeta",
        "metadata": {"namespace": "kcp-system", "name": "warden", "uid": "1", "resourceVersion": "7"},
        "spec": {"moduleName": "warden", "ocmComponentName": "example.org/warden", "mandatory": {"version": "1.0.0"}},
    });
    edit(&mut release);
    serde_json::from_value(release).unwrap()
}

fn manifests(kymas: usize) -> Vec<Arc<Manifest>> {
    let manifest = |index: usize| {
        json!({
            "apiVersion": "operator.kyma-project.io/v1beta2", "kind": "Manifest",
            "metadata": {
                "namespace": "kcp-system", "name": format!("kyma-{index}-warden"),
                "labels": {label::KYMA_NAME: format!("kyma-{index}"), label::MANDATORY_MODULE: "true"},
            },
            "spec": {"remote": true, "install": {"name": "raw-manifest", "source": {}}},
        })
    };
    (0..kymas).map(|index| Arc::new(serde_json::from_value(manifest(index)).unwrap())).collect()
}

const OURS: &str = "operator.kyma-project.io/mandatory-module";

fn with(finalizers: &[&str], deleted: Option<&str>) -> impl FnOnce(&mut Value) {
    let (finalizers, deleted) = (json!(finalizers), deleted.map(str::to_owned));
    move |release| {
        release["metadata"]["finalizers"] = finalizers;
        if let Some(deleted) = deleted {
            release["metadata"]["deletionTimestamp"] = json!(deleted);
        }
    }
}

fn to_channels(release: &mut Value) {
    release["spec"]["mandatory"] = Value::Null;
    release["spec"]["channels"] = json!([{"channel": "regular", "version": "1.0.0"}]);
}

#[track_caller]
fn check(release: &ModuleReleaseMeta, kymas: usize, expected: &str) {
    let step = match next(release, &manifests(kymas), NOW.parse().unwrap()) {
        Step::Nothing => "nothing".to_owned(),
        Step::Add(patch) => format!("add {}", patch["metadata"]),
        Step::Wait(message) => format!("wait: {message}"),
        Step::Later(delay) => format!("later: {delay:?}"),
        Step::Release => "release".to_owned(),
    };
    assert_eq!(step, expected);
}

#[test]
fn a_mandatory_release_has_the_finalizer_beside_those_of_others() {
    let add = |list: &str| format!(r#"add {{"finalizers":{list},"resourceVersion":"7"}}"#);
    check(&release(|_| {}), 0, &add(&format!(r#"["{OURS}"]"#)));
    check(&release(with(&["theirs"], None)), 3, &add(&format!(r#"["theirs","{OURS}"]"#)));
    check(&release(with(&[OURS], None)), 3, "nothing");
    check(&release(to_channels), 0, "nothing");
}

#[test]
fn a_deleted_release_keeps_it_until_no_runtime_has_the_module() {
    let deleted = |finalizers: &[&str]| release(with(finalizers, Some("2026-01-01T00:00:00Z")));
    let message = "the deletion waits until the module is removed from the runtimes of Kymas";
    check(&deleted(&[OURS]), 2, &format!("wait: {message} kyma-0, kyma-1"));
    check(&deleted(&[OURS]), 11, &format!("wait: {message}").replace("Kymas", "more than 10 Kymas"));
    check(&deleted(&[OURS]), 0, "release");
    check(&deleted(&["theirs"]), 0, "nothing");
    check(&release(with(&[OURS], Some("2026-01-01T00:00:59Z"))), 0, "later: 1s");
    // A clock of the control plane that is ahead.
    check(&release(with(&[OURS], Some("2026-01-01T00:02:00Z"))), 0, "later: 2s");
}

#[test]
fn a_release_that_has_channels_now_loses_it_once_no_manifest_is_a_mandatory_one() {
    let moved = release(|release| {
        with(&[OURS], None)(release);
        to_channels(release);
    });
    check(&moved, 1, "nothing");
    check(&moved, 0, "release");
}

#[test]
fn only_what_the_control_plane_confirms_is_acted_upon() {
    let shown = release(with(&[OURS], Some("2026-01-01T00:00:00Z")));
    let id = ObjectId {
        group: "operator.kyma-project.io".into(),
        kind: "ModuleReleaseMeta".into(),
        namespace: "kcp-system".into(),
        name: "warden".into(),
    };
    let live = |uid: &str, deleting: bool| {
        let mut live = crate::runtime::objects::fixtures::metadata(&id, "8");
        (live.uid, live.deleting) = (uid.to_owned(), deleting);
        live
    };
    assert_eq!(Key::new("kcp-system", "warden"), landscape::key(&shown.metadata));
    assert!(is_confirmed(&shown, Some(&live("1", true)), 0));
    assert!(!is_confirmed(&shown, Some(&live("1", true)), 1), "a Manifest is left");
    assert!(!is_confirmed(&shown, Some(&live("2", true)), 0), "another one of this name");
    assert!(!is_confirmed(&shown, Some(&live("1", false)), 0), "it is not being deleted");
    assert!(!is_confirmed(&shown, None, 0), "it is gone");
}
