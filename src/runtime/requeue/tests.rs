use serde_json::json;
use tidegate_core::status::Failure;
use tidegate_process::retry::Class;

use super::*;
use crate::runtime::outcome::FailedKind;

fn failure(reason: &'static str, access: bool) -> Option<Failure> {
    Some(Failure { reason, message: "no route".to_owned(), access })
}

#[test]
fn a_pass_over_a_kyma_counts_what_went_wrong_and_how_it_goes_on() {
    let failed = || Part::Failed("refused".to_owned());
    for (before, facts, after, expected) in [
        (State::Unknown, Facts::default(), State::Processing, vec![Intended(Reason::InitialState)]),
        (State::Processing, Facts::default(), State::Processing, vec![Intended(Reason::Processing)]),
        (State::Processing, Facts::default(), State::Ready, vec![]),
        (State::Ready, Facts::default(), State::Error, vec![Unexpected(Reason::Processing)]),
        (
            State::Ready,
            Facts { crds: failed(), catalog: failed(), ..Facts::default() },
            State::Processing,
            vec![Unexpected(Reason::CrdsSync), Unexpected(Reason::Catalog), Intended(Reason::Processing)],
        ),
        (
            State::Ready,
            Facts { webhook: failed(), pull_secret: Some(failed()), ..Facts::default() },
            State::Warning,
            vec![Unexpected(Reason::Webhook), Unexpected(Reason::ImagePullSecret)],
        ),
        (
            State::Ready,
            Facts { failure: failure("Unreachable", true), ..Facts::default() },
            State::Error,
            vec![Unexpected(Reason::Access)],
        ),
        (
            State::Ready,
            Facts { failure: failure(UNAUTHORIZED, true), ..Facts::default() },
            State::Error,
            vec![Unexpected(Reason::KymaUnauthorized)],
        ),
        (
            State::Ready,
            Facts { failure: failure("RenderFailed", false), ..Facts::default() },
            State::Error,
            vec![Unexpected(Reason::Manifests)],
        ),
        (State::Ready, Facts { deleting: Some("going".to_owned()), ..Facts::default() }, State::Deleting, vec![]),
    ] {
        assert_eq!(of_kyma(before, &facts, after), expected, "{before:?} {after:?} {facts:?}");
    }
}

fn manifest(state: &str, is_deleting: bool, finalizers: &[&str], is_unmanaged: bool) -> Manifest {
    let annotations = if is_unmanaged { json!({"operator.kyma-project.io/is-unmanaged": "true"}) } else { json!({}) };
    serde_json::from_value(json!({
        "apiVersion": "operator.kyma-project.io/v1beta2", "kind": "Manifest",
        "metadata": {"name": "cache", "namespace": "kcp-system", "finalizers": finalizers, "annotations": annotations,
            "deletionTimestamp": is_deleting.then_some("2026-01-01T00:00:00Z")},
        "spec": {"remote": true, "install": {"name": "raw-manifest", "source": {}}},
        "status": {"state": state},
    }))
    .unwrap()
}

#[test]
fn a_pass_over_a_manifest_counts_how_it_left_it() {
    let held = ["declarative.kyma-project.io/finalizer"];
    for (before, after, is_waiting, expected) in [
        (manifest("", false, &held, false), manifest("Ready", false, &held, false), false, {
            Intended(Reason::ManifestFinished)
        }),
        (manifest("", false, &held, false), manifest("Processing", false, &held, false), false, {
            Intended(Reason::ManifestSyncWaits)
        }),
        (manifest("", false, &held, false), manifest("", false, &held, false), true, Intended(Reason::ManifestRender)),
        (manifest("Ready", false, &held, false), manifest("Error", false, &held, false), false, {
            Unexpected(Reason::ManifestSync)
        }),
        (manifest("Ready", true, &held, false), manifest("Deleting", true, &held, false), false, {
            Intended(Reason::ManifestPreDelete)
        }),
        (manifest("Ready", true, &held, false), manifest("Deleting", true, &[], false), false, {
            Intended(Reason::ManifestFinished)
        }),
        (manifest("Ready", true, &held, true), manifest("Deleting", true, &[], true), false, {
            Intended(Reason::ManifestLabels)
        }),
    ] {
        assert_eq!(of_manifest(&before, &after, is_waiting), expected, "{after:?}");
    }
}

#[test]
fn manifests_without_access_count_why() {
    let failed = |reason| Failed { reason, message: String::new(), class: Class::Transient, kind: FailedKind::Wrong };
    assert_eq!(of_blocked_manifest(&failed(UNAUTHORIZED)), Unexpected(Reason::ManifestUnauthorized));
    assert_eq!(of_blocked_manifest(&failed("Unreachable")), Unexpected(Reason::ManifestClient));
}
