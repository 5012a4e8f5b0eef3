use serde_json::json;

use super::*;
use crate::api::manifest::{ManifestStatus, SyncedObject};

fn manifest(kinds: &[(&str, &str, &str)]) -> Arc<Manifest> {
    let synced = |(group, version, kind): &(&str, &str, &str)| SyncedObject {
        group: (*group).to_owned(),
        version: (*version).to_owned(),
        kind: (*kind).to_owned(),
        name: "a".to_owned(),
        namespace: "kyma-system".to_owned(),
    };
    let status = ManifestStatus { synced: kinds.iter().map(synced).collect(), ..ManifestStatus::default() };
    Arc::new(Manifest { status: Some(status), ..Manifest::default() })
}

#[test]
fn runtimes_with_equal_kinds_have_equal_rules() {
    let one = manifest(&[("", "v1", "ConfigMap"), ("example.org", "v1", "Thing")]);
    let other = manifest(&[("example.org", "v1beta1", "Other"), ("", "v1", "ConfigMap"), ("", "v1", "ConfigMap")]);
    assert_eq!(drift(&[Arc::clone(&one)]), drift(&[other]));
    assert_ne!(drift(&[one]), drift(&[]));
    let rules: Vec<_> = drift(&[]).rules().map(|(group, resources)| json!([group, resources])).collect();
    assert_eq!(
        rules,
        [
            json!(["", ["namespaces", "secrets", "services"]]),
            json!(["apiextensions.k8s.io", ["customresourcedefinitions"]]),
            json!(["apps", ["deployments"]]),
            json!(["networking.k8s.io", ["networkpolicies"]]),
            json!(["operator.kyma-project.io", ["modulereleasemetas", "moduletemplates"]]),
            json!(["scheduling.k8s.io", ["priorityclasses"]]),
        ]
    );
}

#[test]
fn a_runtimes_own_objects_are_its_secret_and_what_starts_anew_with_it() {
    let names = |program| own_ids(program).iter().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!(names(Program::Tidegate), ["Secret kyma-system/skr-webhook-tls"]);
    let own = ["Secret kyma-system/skr-webhook-tls", "Deployment.apps kyma-system/skr-webhook"];
    assert_eq!(names(Program::RuntimeWatcher), own);
}

#[test]
fn a_missing_piece_is_waited_for_and_a_wrong_one_is_an_error() {
    let brought = Missing::waiting(reason::NO_ADDRESS, "there is no Gateway".to_owned()).brought();
    assert_eq!(brought.webhook, Part::Waiting("no agent is installed: there is no Gateway".to_owned()));
    assert_eq!((brought.watch.status, brought.watch.reason), (Status::False, "NoListenerAddress"));
    assert_eq!(brought.applied, None);
    let wrong = Missing { reason: reason::NO_CERTIFICATE, message: "no domain".to_owned(), wrong: true }.brought();
    assert_eq!(wrong.webhook, Part::Failed("no agent is installed: no domain".to_owned()));
}
