use serde_json::json;

use super::*;
use tidegate_core::{
    api::manifest::{ManifestStatus, SyncedObject},
    plan::reporting::ListenerSettings,
};

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

fn agent(program: Program, pull_secret: Option<&str>) -> Agent {
    let gateway = Key::new("kcp-system", "klm-watcher");
    Agent {
        program,
        image: "registry.example.org/agent:1".to_owned(),
        pull_secret: pull_secret.map(str::to_owned),
        priority_class: "skr-webhook-priority".to_owned(),
        memory_limit: "200Mi".to_owned(),
        cpu_limit: "0.1".to_owned(),
        godebug: None,
        listener: ListenerSettings { gateway, port_overwrite: None, address: None },
    }
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
    let names = |program| own_ids(&agent(program, None)).iter().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!(names(Program::Tidegate), ["Secret kyma-system/skr-webhook-tls"]);
    let own = ["Secret kyma-system/skr-webhook-tls", "Deployment.apps kyma-system/skr-webhook"];
    assert_eq!(names(Program::RuntimeWatcher), own);
    // What its image is pulled with is there before it.
    let with =
        own_ids(&agent(Program::RuntimeWatcher, Some("registry"))).iter().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!(with, [own[0], "Secret kyma-system/registry", own[1]]);
}

#[test]
fn a_missing_piece_is_waited_for_and_a_wrong_one_is_an_error() {
    let brought =
        Missing::waiting(reason::NO_ADDRESS, "there is no Gateway".to_owned()).brought(&agent(Program::Tidegate, None));
    assert_eq!(brought.webhook, Part::Waiting("no agent is installed: there is no Gateway".to_owned()));
    assert_eq!((brought.watch.status, brought.watch.reason), (Status::False, "NoListenerAddress"));
    assert_eq!(brought.applied, None);
    let wrong = Missing { reason: reason::NO_CERTIFICATE, message: "no domain".to_owned(), wrong: true };
    let wrong = wrong.brought(&agent(Program::Tidegate, None));
    assert_eq!(wrong.webhook, Part::Failed("no agent is installed: no domain".to_owned()));
}

#[test]
fn without_the_secret_to_pull_its_image_with_no_agent_is_installed() {
    let missing = || Missing::waiting(reason::NO_PULL_SECRET, "there is no Secret kcp-system/registry".to_owned());
    let brought = missing().brought(&agent(Program::Tidegate, Some("registry")));
    let message = "no agent is installed: there is no Secret kcp-system/registry".to_owned();
    assert_eq!(brought.pull_secret, Some(Part::Waiting(message)));
    assert_eq!(missing().brought(&agent(Program::Tidegate, None)).pull_secret, None, "none is configured");
    let other = Missing::waiting(reason::NO_ADDRESS, "there is no Gateway".to_owned());
    let brought = other.brought(&agent(Program::Tidegate, Some("registry")));
    assert_eq!(brought.pull_secret, Some(Part::Unknown), "it was not looked at");
}
