//! `tidegate run --once`: what it waits for, what it does not wait for, and what it says of the rest.

use std::{net::TcpListener, time::Duration};

use http::StatusCode;
use serde_json::json;

use tidegate_core::api::names;
use tidegate_testbed::Extent;

use crate::{
    agent_path::world,
    harness,
    stage::{self, Stage, scenarios},
};

scenarios! {
    a_single_pass_waits_for_a_registry_although_it_may_not_create_events,
    a_missing_right_to_create_events_is_a_note_of_a_pass_that_has_done_everything,
    a_single_pass_for_which_a_right_is_granted_within_a_second_does_everything,
    an_interrupted_pass_says_so_and_what_is_not_done,
    a_single_pass_names_a_namespace_that_does_not_exist,
    a_single_pass_that_never_leads_reports_only_who_does,
    a_single_pass_ends_without_what_only_fails_again_and_names_it_once_beside_missing_rights,
}

/// A pass that takes longer than this has waited for something that does not come.
const TIMEOUT: Duration = Duration::from_secs(300);

/// A stage with one runtime, and these files besides.
async fn stage_with(more: &[(&str, String)]) -> Stage {
    let files = stage::files(1);
    let files = files.iter().map(|(path, text)| (path.as_str(), text.clone()));
    let files: Vec<(&str, String)> = files.chain(more.iter().cloned()).collect();
    Stage::on_simulated(1, Extent::Controllers, &files, &[]).await
}

/// A stage with a module in a registry that accepts connections and never answers. Returns the option for it as well.
async fn stage_with_silent_registry() -> (Stage, String, TcpListener) {
    let registry = TcpListener::bind("127.0.0.1:0").expect("a port");
    let option = format!("--oci-registry-host=http://{}", registry.local_addr().expect("an address"));
    let template = "apiVersion: operator.kyma-project.io/v1beta2\nkind: ModuleTemplate\nmetadata: {name: relay-1.0.0, \
                    namespace: kcp-system}\nspec: {moduleName: relay, version: 1.0.0, descriptor: {}}\n";
    let more = [
        ("modules/relay/release.yaml", stage::release("relay", &[("regular", "1.0.0")])),
        ("modules/relay/1.0.0.yaml", template.to_owned()),
        ("kymas/one.yaml", stage::kyma("one", &["cache", "mailer", "relay"])),
    ];
    (stage_with(&more).await, option, registry)
}

async fn a_single_pass_waits_for_a_registry_although_it_may_not_create_events() {
    let (stage, option, _registry) = stage_with_silent_registry().await;
    stage.landscape.kcp.deny(Some("events"));
    let report = stage.once(TIMEOUT, &[&option]).await;
    let says = |part: &str| report.not_done.iter().any(|line| line.contains(part));
    assert!(says("relay"), "{report:#?}");
    assert!(!says("cannot create events"), "{report:#?}");
    let right = "user a cannot create events in API group events.k8s.io in namespace kcp-system";
    assert_eq!(report.notes, [format!("some Events are not written: {right}")]);
}

/// Nothing waits for Events, so all is done.
async fn a_missing_right_to_create_events_is_a_note_of_a_pass_that_has_done_everything() {
    let stage = stage_with(&[]).await;
    stage.landscape.kcp.deny(Some("events"));
    let report = stage.once(TIMEOUT, &[]).await;
    assert!(report.not_done.is_empty() && report.unusable.is_none(), "{report:#?}");
    let [note] = report.notes.as_slice() else { panic!("{report:#?}") };
    assert!(note.ends_with("cannot create events in API group events.k8s.io in namespace kcp-system"), "{note}");
}

async fn a_single_pass_for_which_a_right_is_granted_within_a_second_does_everything() {
    // Without the first, no work begins; without the second, nothing can be reported.
    for right in ["watchers", "kymas/status"] {
        let stage = stage_with(&[]).await;
        stage.landscape.kcp.deny(Some(right));
        let grant = async {
            if right == "kymas/status" {
                let skr = &stage.skrs[0];
                stage.until("a module is applied", skr, "ConfigMap", "kyma-system", "mailer-a", |_| true).await;
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
            stage.landscape.kcp.deny(None);
        };
        let (report, ()) = tokio::join!(stage.once(TIMEOUT, &[]), grant);
        assert!(report.not_done.is_empty() && report.unusable.is_none(), "{right}: {report:#?}");
        let kyma = stage::read(&stage.kcp, "Kyma", "kcp-system", "one").await.expect("it is there");
        assert_eq!(kyma["status"]["state"], "Ready", "{right}");
        // Not granted, it is named soon.
        let stage = stage_with(&[]).await;
        stage.landscape.kcp.deny(Some(right));
        let began = tokio::time::Instant::now();
        let report = stage.once(TIMEOUT, &[]).await;
        assert!(report.not_done.iter().any(|line| line.contains(right)), "{right}: {report:#?}");
        assert!(began.elapsed() < TIMEOUT / 2, "{right}: {:?}", began.elapsed());
    }
}

/// The Lease of the daemon, held by another process, which has it for three minutes.
async fn give_lease_away(stage: &Stage) {
    let lease = json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"name": names::LEASE, "namespace": "kcp-system"},
        "spec": {
            "holderIdentity": "another_process", "leaseDurationSeconds": 180,
            "renewTime": "2026-01-01T00:00:00.000000Z",
        },
    });
    harness::apply(&stage.kcp, &lease).await;
}

/// A pipeline that cancels a step must not take it for done.
async fn an_interrupted_pass_says_so_and_what_is_not_done() {
    let seconds = |seconds| tokio::time::sleep(Duration::from_secs(seconds));
    let stage = stage_with(&[]).await;
    give_lease_away(&stage).await;
    let report = stage.once_until(seconds(10), TIMEOUT, &[]).await;
    let says = |begin: &str| report.not_done.iter().any(|line| line.starts_with(begin));
    assert!(says("not leading: another_process holds the Lease"), "{report:#?}");
    assert_eq!(report.not_done.last().map(String::as_str), Some("interrupted"), "{report:#?}");

    // A registry does not answer within that time. An observer sees the Kyma that the first pass has created.
    let (stage, option, _registry) = stage_with_silent_registry().await;
    for more in [&[option.as_str()][..], &[option.as_str(), "--observe"]] {
        let report = stage.once_until(seconds(10), TIMEOUT, more).await;
        let says = |begin: &str| report.not_done.iter().any(|line| line.starts_with(begin));
        assert!(says("runtime kcp-system/one: ") && says("interrupted"), "{more:?}: {report:#?}");
        if let Some(observed) = &report.observed {
            let (_, not_compared) = observed.text.split_once("\nNot compared:\n").expect("a section");
            assert!(not_compared.lines().any(|line| line == "interrupted"), "{}", observed.text);
        }
        assert_eq!(report.observed.is_some(), 1 < more.len());
    }
}

/// What the control plane shows is the work of another process, also the definitions that are invalid.
async fn a_single_pass_that_never_leads_reports_only_who_does() {
    let mistake = "apiVersion: operator.kyma-project.io/v1beta2\nkind: ModuleTemplate\nmetadata: {name: relay-1.0.0, \
                   namespace: kcp-system}\nspec: {moduleName: relay, versoin: 1.0.0, descriptor: {}}\n";
    let stage = stage_with(&[("modules/relay/1.0.0.yaml", mistake.to_owned())]).await;
    let report = stage.once(TIMEOUT, &[]).await;
    assert!(report.invalid, "{report:#?}");
    give_lease_away(&stage).await;
    let report = stage.once(Duration::from_secs(20), &[]).await;
    let [leader, time] = report.not_done.as_slice() else { panic!("{report:#?}") };
    assert!(leader.starts_with("not leading: another_process holds the Lease, "), "{leader}");
    assert_eq!((time.as_str(), report.invalid), ("timed out after 20 s", false));
    // The log has said so when the wait began.
    let log = std::fs::read_to_string(stage.log()).expect("a log");
    let is_wait = |line: &&str| line.contains("another process holds the lease; this process waits");
    let said: Vec<&str> = log.lines().filter(is_wait).collect();
    assert!(said.len() == 1 && said[0].contains("another_process"), "{said:#?}");
}

/// Without Istio, a Watcher stays as it is however long the pass waits.
async fn a_single_pass_ends_without_what_only_fails_again_and_names_it_once_beside_missing_rights() {
    let stage = stage_with(&[]).await;
    for name in ["gateways.networking.istio.io", "virtualservices.networking.istio.io"] {
        let crd = json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": name},
        });
        world::delete(&stage.kcp, &crd).await;
        stage.until_gone(&stage.kcp, "CustomResourceDefinition", "", name).await;
    }
    let watcher = json!({
        "apiVersion": "operator.kyma-project.io/v1beta2", "kind": "Watcher",
        "metadata": {
            "name": "first", "namespace": "kcp-system",
            "labels": {"operator.kyma-project.io/managed-by": "lifecycle-manager"},
        },
        "spec": {
            "serviceInfo": {"name": "events", "namespace": "kcp-system", "port": 8082},
            "labelsToWatch": {"operator.kyma-project.io/watched-by": "kyma"},
            "field": "spec",
            "resourceToWatch": {"group": "operator.kyma-project.io", "version": "*", "resource": "kymas"},
            "gateway": {"selector": {"matchLabels": {"app": "watcher-gateway"}}},
        },
    });
    harness::apply(&stage.kcp, &watcher).await;
    let right = "cannot patch kymas/status in API group operator.kyma-project.io in namespace kcp-system";
    // The right is missing or not, and the time is enough or not.
    for (denied, seconds, is_over) in [(true, 8, true), (true, 300, false), (false, 300, false)] {
        stage.landscape.kcp.deny(denied.then_some("kymas/status"));
        let began = tokio::time::Instant::now();
        let report = stage.once(Duration::from_secs(seconds), &[]).await;
        assert!(began.elapsed() < TIMEOUT / 4, "{denied}: {:?}", began.elapsed());
        let lines = |begin: &str| report.not_done.iter().filter(|line| line.starts_with(begin)).count();
        assert_eq!(lines("watcher kcp-system/first: the control plane serves no Gateways: "), 1, "{report:#?}");
        assert_eq!(lines("watcher "), 1, "{report:#?}");
        let is_named = report.not_done.iter().any(|line| line.starts_with("user ") && line.ends_with(right));
        assert_eq!((is_named, lines("timed out")), (denied, usize::from(is_over)), "{report:#?}");
        assert!(denied || report.not_done.len() == 1, "everything else is done: {report:#?}");
    }
}

/// Its name may be wrong, and then nothing was done. An empty namespace is no mistake.
async fn a_single_pass_names_a_namespace_that_does_not_exist() {
    let stage = stage_with(&[]).await;
    let empty = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "empty"}});
    harness::apply(&stage.kcp, &empty).await;
    let expected = ["the control plane has no namespace nope"];
    for more in [&[][..], &["--observe"]] {
        let report = stage.once(TIMEOUT, &[more, &["--namespace=empty"]].concat()).await;
        assert!(report.not_done.is_empty() && report.unusable.is_none(), "{more:?}: {report:#?}");
        let report = stage.once(TIMEOUT, &[more, &["--namespace=nope"]].concat()).await;
        assert_eq!(report.not_done, expected, "{more:?}");
        if let Some(observed) = report.observed {
            let (_, not_compared) = observed.text.split_once("\nNot compared:\n").expect("a section");
            assert_eq!(not_compared.lines().collect::<Vec<_>>(), expected);
        }
    }
}

/// What the pass has seen of the control plane before is still worth a report.
#[tokio::test(flavor = "multi_thread")]
async fn a_single_pass_whose_credentials_expire_names_what_is_left_and_ends() {
    let stage = stage_with(&[]).await;
    // Work is left as long as the runtime does not answer.
    stage.landscape.skrs[0].freeze();
    let folder = harness::folder();
    let state = format!("--state={}", folder.path().display());
    let arguments = ["run", "--once", "--timeout=5m", "--allow-local-sources", &state];
    let expire = async {
        let has_begun = |kyma: &serde_json::Value| kyma["metadata"]["finalizers"].is_array();
        stage.until("work has begun", &stage.kcp, "Kyma", "kcp-system", "one", has_begun).await;
        stage.landscape.kcp.fail(Some(StatusCode::UNAUTHORIZED)).await;
    };
    let (output, ()) = tokio::join!(stage.command(&arguments), expire);
    let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert_eq!(output.status.code(), Some(5), "{text}");
    let says = |begin: &str, part: &str| text.lines().any(|line| line.starts_with(begin) && line.contains(part));
    assert!(says("not done: the control plane at ", "rejected the credentials of this process"), "{text}");
    assert!(says("not done: runtime kcp-system/one: ", "") && !text.contains("timed out"), "{text}");
}
