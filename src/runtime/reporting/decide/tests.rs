use serde_json::json;
use tidegate_cluster::Target;
use tidegate_core::{
    api::manifest::{ManifestStatus, SyncedObject},
    plan::reporting::ListenerSettings,
};

use super::*;
use crate::runtime::objects::{
    Seen,
    fixtures::{live, metadata, shared},
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
}

#[test]
fn a_missing_piece_is_waited_for_and_a_wrong_one_is_an_error() {
    let report = Missing::waiting(reason::NO_ADDRESS, "there is no Gateway".to_owned()).report();
    assert_eq!(report.webhook, Part::Waiting("no agent is installed: there is no Gateway".to_owned()));
    assert_eq!((report.watch.status, report.watch.reason), (Status::False, "NoListenerAddress"));
    assert_eq!(report.applied, None);
    let wrong = Missing { reason: reason::NO_CERTIFICATE, message: "no domain".to_owned(), wrong: true };
    let wrong = wrong.report();
    assert_eq!(wrong.webhook, Part::Failed("no agent is installed: no domain".to_owned()));
}

#[test]
fn without_the_secret_to_pull_its_image_with_no_agent_is_installed() {
    let missing = Missing::waiting(reason::NO_PULL_SECRET, "there is no Secret kcp-system/registry".to_owned());
    let message = "no agent is installed: there is no Secret kcp-system/registry".to_owned();
    assert_eq!(missing.report().webhook, Part::Waiting(message));
}

fn issued(version: &str) -> Issued {
    Issued { secret: Key::new("kcp-system", "eu-cert"), version: version.to_owned(), validity: None }
}

fn listener() -> Address {
    "events.example.org:443".parse().unwrap()
}

fn found(version: &str, bundle: &str) -> Prerequisites {
    let bundle = bundle.as_bytes().into();
    Prerequisites { address: listener(), bundle, issued: issued(version), pull_secret: None }
}

#[test]
fn the_first_missing_prerequisite_is_reported() {
    let (with, without) = (agent(Program::Tidegate, Some("registry")), agent(Program::Tidegate, None));
    let pending = || CertificateState::Pending("not yet".to_owned());
    let bundle = || Some(Arc::from(&b"ca"[..]));
    let version = || Some("1".to_owned());
    for (agent, certificate, bundle, pull_secret, expected) in [
        (&with, pending(), None, None, Err((reason::NO_CERTIFICATE, false))),
        (&with, CertificateState::Refused("no domain".to_owned()), None, None, Err((reason::NO_CERTIFICATE, true))),
        (&with, CertificateState::Issued(issued("1")), None, None, Err((reason::NO_AUTHORITY, false))),
        (&with, CertificateState::Issued(issued("1")), bundle(), None, Err((reason::NO_PULL_SECRET, false))),
        (&with, CertificateState::Issued(issued("1")), bundle(), version(), Ok(version())),
        (&without, CertificateState::Issued(issued("1")), bundle(), version(), Ok(None)),
    ] {
        let found = prerequisites(agent, listener(), certificate, bundle, pull_secret);
        let found = found.map(|found| found.pull_secret).map_err(|missing| (missing.reason, missing.wrong));
        assert_eq!(found, expected);
    }
}

#[test]
fn the_digest_changes_with_each_input_of_the_own_objects() {
    let of = |shared: &str, version: &str, bundle: &str| {
        let (agent, prerequisites) = (agent(Program::Tidegate, None), found(version, bundle));
        let installable = Installable { agent: &agent, prerequisites: &prerequisites, user: None, is_held: false };
        own_digest(&Digest::from_value(&json!(shared)), Some(installable))
    };
    let same = of("a", "1", "ca");
    assert_eq!(same, of("a", "1", "ca"));
    for other in [of("b", "1", "ca"), of("a", "2", "ca"), of("a", "1", "new")] {
        assert_ne!(same, other);
    }
    let none = own_digest(&Digest::from_value(&json!("a")), None);
    assert_eq!(none, own_digest(&Digest::from_value(&json!("b")), None), "without an agent there are none");
}

/// A webhook configuration and a Deployment, each of them missing or not.
fn reported(webhook: Seen, deployment: Seen) -> Applied {
    let objects = shared(&[
        ("apps/v1", "Deployment", "kyma-system", "skr-webhook"),
        ("admissionregistration.k8s.io/v1", "ValidatingWebhookConfiguration", "", "skr-webhook"),
    ]);
    let seen = |kind: &str| if kind == WEBHOOKS { webhook } else { deployment };
    let seen = objects.objects.iter().map(|object| seen(&object.id.kind)).collect();
    Applied { objects, seen, follows_another: false }
}

fn failed(name: &str, error: bool) -> Failed {
    let id = secret_kind().id(&Key::new(SKR_NAMESPACE, name));
    let error = error.then(|| Error::Terminating { target: Target::Object(id.clone()) });
    Failed { id, error, message: format!("{name} failed") }
}

#[test]
fn the_api_server_trusts_the_new_ca_before_the_agent_uses_it() {
    use Seen::{Missing, Recorded};
    let kinds = |applied: &Applied, indices: Vec<usize>| -> Vec<String> {
        indices.into_iter().map(|index| applied.objects.objects[index].id.kind.to_string()).collect()
    };
    for (is_installed, webhook, deployment, first) in
        [(true, Missing, Missing, &[WEBHOOKS][..]), (true, Recorded, Missing, &[]), (false, Missing, Missing, &[])]
    {
        let applied = reported(webhook, deployment);
        let Some(ApplyStep::Shared(indices)) = next(ApplyStage::Webhooks, is_installed, &applied, &[]) else {
            panic!("the webhook configuration comes first");
        };
        assert_eq!(kinds(&applied, indices), first);
        assert_eq!(next(ApplyStage::Rest, is_installed, &applied, &[]), Some(ApplyStep::Shared(applied.missing())));
        for stage in [ApplyStage::Webhooks, ApplyStage::Own, ApplyStage::Rest] {
            assert_eq!(next(stage, is_installed, &applied, &[failed("a", true)]), None, "after a failure");
        }
        assert!(lacks_deployment(&applied));
    }
    let applied = reported(Missing, Missing);
    assert_eq!(ApplyStage::Webhooks.after(), ApplyStage::Own);
    assert_eq!(next(ApplyStage::Own, true, &applied, &[]), Some(ApplyStep::Own));
    assert_eq!(ApplyStage::Own.after(), ApplyStage::Rest);
    assert_eq!(next(ApplyStage::Rest.after(), true, &applied, &[]), None);
    assert!(!lacks_deployment(&reported(Missing, Recorded)));
}

#[test]
fn only_a_check_of_a_recorded_runtime_detects_a_changed_webhook_configuration() {
    use Seen::{Missing, Recorded};
    for (checks, is_recorded, webhook, expected) in [
        (true, true, Missing, true),
        (true, true, Recorded, false),
        (true, false, Missing, false),
        (false, true, Missing, false),
    ] {
        let applied = reported(webhook, Missing);
        assert_eq!(tampering_note(checks, is_recorded, &applied).is_some(), expected, "{checks} {is_recorded}");
    }
}

fn own(former: Option<(&str, Seen)>, is_recorded: bool) -> OwnObjects {
    let ids = || own_ids(&agent(Program::Tidegate, None));
    let digest = |of: &str| Digest::from_value(&json!(of));
    let former = former.map(|(of, seen)| {
        let former = OwnObjects::before(None, digest(of), ids(), true);
        let applied = Applied {
            objects: shared(&[("v1", "Secret", "kyma-system", "skr-webhook-tls")]),
            seen: [seen].into(),
            follows_another: false,
        };
        former.after(&applied)
    });
    OwnObjects::before(former, digest("now"), ids(), is_recorded)
}

#[test]
fn the_content_of_own_objects_is_read_only_to_apply_them() {
    let id = own_ids(&agent(Program::Tidegate, None)).remove(0);
    let at = |resource_version: &str| {
        Seen::At(crate::runtime::objects::Version::from_metadata(&metadata(&id, resource_version)))
    };
    let unchanged = live([metadata(&id, "1")]);
    let nothing = live([]);
    for (former, is_recorded, live, keeps) in [
        (None, false, None, false),
        (None, true, None, true),
        (None, true, Some(&unchanged), false),
        (Some(("now", at("1"))), false, None, true),
        (Some(("now", at("1"))), false, Some(&unchanged), true),
        (Some(("now", at("0"))), true, Some(&unchanged), false),
        (Some(("now", at("1"))), true, Some(&nothing), false),
        (Some(("before", at("1"))), true, None, false),
        (Some(("now", Seen::Missing)), true, None, false),
    ] {
        let step = own_step(own(former, is_recorded), live);
        assert_eq!(matches!(step, OwnStep::Keep(_)), keeps, "{former:?}, {is_recorded}, {}", live.is_some());
    }
}

#[test]
fn without_its_secret_an_agent_is_not_applied() {
    let leaf = Leaf { certificate: b"c".to_vec(), key: b"k".to_vec() };
    assert!(own_leaf(&issued("1"), Some(leaf)).is_ok());
    let lacks = "Secret kcp-system/eu-cert lacks the runtime's certificate or its key";
    assert_eq!(own_leaf(&issued("1"), None).err().as_deref(), Some(lacks));
}

#[test]
fn an_agent_is_asked_for_only_once_its_objects_are_applied() {
    let (agent, prerequisites) = (agent(Program::Tidegate, None), found("1", "ca"));
    let installable = Installable { agent: &agent, prerequisites: &prerequisites, user: Some("admin"), is_held: false };
    let total = Digest::from_value(&json!("a"));
    let failures = [failed("a", true)];
    let applied = ApplyResults { failed: &[], problems: &[], complete: Some(&total), again: None };

    let not_applied = ApplyResults { failed: &failures, complete: None, ..applied };
    let report = end(not_applied, Some(installable)).unwrap_err();
    assert_eq!((report.webhook, report.applied), (Part::Failed("a failed".to_owned()), None));
    let report = end(applied, None).unwrap_err();
    assert_eq!((report.webhook, report.applied), (Part::Done, Some(user::record(&total, None))));

    let installed = end(applied, Some(installable)).unwrap();
    assert_eq!(installed.trusts, Some(Digest::of_bytes(&prerequisites.bundle)));
    let again = Some(Duration::from_secs(1));
    let report = installed.report(AgentState::Starting("starts".to_owned()), WatchFact::not_configured(), again);
    assert_eq!((report.webhook, report.again), (Part::Waiting("starts".to_owned()), again));
    assert_eq!(report.applied, Some(user::record(&total, Some("admin"))));
    let incomplete = end(ApplyResults { complete: None, ..applied }, Some(installable)).unwrap();
    assert_eq!(incomplete.trusts, None, "an object is not applied yet");
    // The agent of Lifecycle Manager does not connect by itself, whatever is configured.
    let held = end(applied, Some(Installable { is_held: true, ..installable })).unwrap();
    assert_eq!((installable.agent.program, held.program), (Program::Tidegate, Program::RuntimeWatcher));
}

#[test]
fn the_end_of_an_adoption_has_another_digest() {
    let (shared, own) = (Digest::of_bytes(b"shared"), Digest::of_bytes(b"own"));
    let [held, ours] = [true, false].map(|is_held| total_digest(&shared, &own, is_held));
    assert_ne!(held, ours);
    assert_eq!(ours, Digest::all([&shared, &own]), "other runtimes keep theirs");
}

#[test]
fn failures_are_reported_before_templates_and_counted_in_a_row() {
    let broken = ["broken".to_owned()];
    assert_eq!(problem(&[failed("a", true), failed("b", true)], &broken).as_deref(), Some("a failed"));
    assert_eq!(problem(&[], &broken).as_deref(), Some("broken"));
    assert_eq!(problem(&[], &[]), None);
    assert_eq!(retry(2, &[]), (0, None));
    assert_eq!(retry(2, &[failed("a", true)]), (3, Some(delay(Class::Waiting, 3))));
    assert_eq!(retry(0, &[failed("a", false)]), (1, Some(delay(Class::Transient, 1))));
}
