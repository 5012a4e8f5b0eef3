use super::*;
use tidegate_core::status;

fn kyma(requested: Option<&str>, handled: Option<&str>) -> Kyma {
    let mut kyma = Kyma::default();
    kyma.metadata.annotations =
        requested.map(|value| [(annotation::RECONCILE_REQUESTED_AT.to_owned(), value.to_owned())].into());
    let facts = Facts { requested: handled.map(str::to_owned), ..Facts::default() };
    kyma.status = Some(status::kyma(&kyma, &facts, Timestamp::UNIX_EPOCH));
    kyma
}

#[track_caller]
fn check(trigger: Trigger, kyma: &Kyma, expected: bool) {
    assert_eq!(looks(Triggers::from(trigger), true, kyma, &[]), expected, "{}", trigger.name());
}

#[test]
fn a_runtime_is_looked_at_only_for_a_reason() {
    for (trigger, expected) in [
        (Trigger::Watch, false),
        (Trigger::Event, false),
        (Trigger::Git, false),
        (Trigger::Retry, false),
        (Trigger::Drift, true),
        (Trigger::Resync, true),
    ] {
        check(trigger, &kyma(None, None), expected);
    }
}

#[test]
fn a_resync_looks_only_where_nobody_reports() {
    assert!(!looks(Trigger::Resync.into(), false, &kyma(None, None), &[]));
    assert!(looks(Trigger::Drift.into(), false, &kyma(None, None), &[]));
    assert!(looks(Trigger::Resync.into(), false, &kyma(Some("1"), None), &[]));
}

#[test]
fn an_event_of_the_runtime_reads_its_kyma_and_nothing_else() {
    for trigger in Trigger::ALL {
        assert_eq!(rereads(trigger.into()), trigger == Trigger::Watch, "{trigger}");
    }
}

#[test]
fn a_request_is_handled_once() {
    check(Trigger::Event, &kyma(Some("1"), None), true);
    check(Trigger::Event, &kyma(Some("2"), Some("1")), true);
    check(Trigger::Event, &kyma(Some("1"), Some("1")), false);
}

#[test]
fn our_own_write_counts_until_the_watch_has_caught_up() {
    let version = |text: &str| Some(text.to_owned());
    assert!(is_newer(&version("10"), &version("9")));
    assert!(!is_newer(&version("9"), &version("10")));
    assert!(!is_newer(&version("10"), &version("10")));
    assert!(!is_newer(&version("x"), &version("9")), "what is no number is not compared");
    assert!(!is_newer(&None, &version("9")));
}

#[test]
fn a_request_on_a_manifest_is_one_for_its_runtime() {
    let manifest = |requested: Option<&str>| {
        let mut manifest = Manifest::default();
        manifest.metadata.annotations =
            requested.map(|value| [(annotation::RECONCILE_REQUESTED_AT.to_owned(), value.to_owned())].into());
        [Arc::new(manifest)]
    };
    let triggers = Triggers::from(Trigger::Requested);
    assert!(looks(triggers, true, &kyma(None, None), &manifest(Some("now"))));
    assert!(!looks(triggers, true, &kyma(None, None), &manifest(None)));
}
