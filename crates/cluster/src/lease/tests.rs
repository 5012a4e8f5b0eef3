use super::*;

const DURATION: Duration = Duration::from_secs(180);

fn options() -> Options {
    Options {
        lease: Key::new("kcp-system", "893110f7.kyma-project.io"),
        identity: "tidegate_a".to_owned(),
        timing: Timing::default(),
    }
}

fn elector() -> Elector {
    let config = kube::Config::new(http::Uri::from_static("https://127.0.0.1:1"));
    let cluster = Cluster::new(super::super::ClusterName::Kcp, &config, super::super::Limits::default()).unwrap();
    Elector::new(Arc::new(cluster), options()).0
}

fn lease(holder: Option<&str>) -> Lease {
    let spec =
        Spec { holder_identity: holder.map(str::to_owned), lease_duration_seconds: Some(180), ..Spec::default() };
    Lease { metadata: crate::metadata::Wire::default(), spec }
}

#[track_caller]
fn check(holder: Option<&str>, unchanged_for: Duration, expected: &Move) {
    let mut elector = elector();
    let now = Instant::now() + Duration::from_secs(1000);
    elector.observed =
        Some(Observed { resource_version: String::new(), since: now.checked_sub(unchanged_for).unwrap() });
    assert_eq!(elector.decide(Some(&lease(holder)), now), *expected);
}

#[tokio::test]
async fn a_holder_is_alive_until_its_lease_was_seen_unchanged_for_the_whole_duration() {
    check(Some("klm_b"), Duration::ZERO, &Move::Wait);
    check(Some("klm_b"), DURATION, &Move::Wait);
    check(Some("klm_b"), DURATION + Duration::from_millis(1), &Move::Take);
}

#[tokio::test]
async fn ours_is_renewed_and_a_free_one_is_taken() {
    check(Some("tidegate_a"), DURATION * 2, &Move::Renew);
    check(None, Duration::ZERO, &Move::Take);
    check(Some(""), Duration::ZERO, &Move::Take);
    assert_eq!(elector().decide(None, Instant::now()), Move::Create);
}

#[tokio::test]
async fn the_first_look_at_a_foreign_lease_takes_nothing_over() {
    // Not even if its times are long past: clocks of other machines are never compared with this one.
    assert_eq!(elector().decide(Some(&lease(Some("klm_b"))), Instant::now()), Move::Wait);
}

#[tokio::test]
async fn a_take_over_counts_and_a_renewal_keeps_the_time_of_taking() {
    let elector = elector();
    let mut held = lease(Some("klm_b"));
    held.spec.lease_transitions = Some(4);
    held.spec.acquire_time = Some("2026-01-01T00:00:00.000000Z".to_owned());
    let taken = elector.body(Some(&held), &Move::Take);
    assert_eq!(taken["spec"]["leaseTransitions"], 5);
    assert_ne!(taken["spec"]["acquireTime"], "2026-01-01T00:00:00.000000Z");
    let renewed = elector.body(Some(&held), &Move::Renew);
    assert_eq!(renewed["spec"]["leaseTransitions"], 4);
    assert_eq!(renewed["spec"]["acquireTime"], "2026-01-01T00:00:00.000000Z");
    assert_eq!(renewed["spec"]["holderIdentity"], "tidegate_a");
    assert_eq!(renewed["spec"]["leaseDurationSeconds"], 180);
}

#[test]
fn times_have_six_decimals() {
    assert_eq!(micro_time(Timestamp::UNIX_EPOCH), "1970-01-01T00:00:00.000000Z");
}

#[test]
fn the_default_times_are_those_of_the_lease_that_we_share() {
    let timing = Timing::default();
    assert_eq!([timing.duration, timing.renew_deadline, timing.retry_period].map(|time| time.as_secs()), [180, 120, 3]);
}

#[test]
fn what_the_leader_says_of_its_sources_is_an_annotation_that_the_next_one_replaces() {
    let body = |annotations: Option<Value>| match annotations {
        Some(annotations) => json!({"metadata": {"name": "a", "annotations": annotations}}),
        None => json!({"metadata": {"name": "a"}}),
    };
    let ours = |text: &str| Some(json!({annotation::LOCAL_SOURCES: text}));
    for (before, says, after) in [
        (None, None, None),
        (None, Some("[1]"), ours("[1]")),
        (ours("[1]"), Some("[2]"), ours("[2]")),
        (ours("[1]"), None, Some(json!({}))),
        (Some(json!({"of": "others"})), None, Some(json!({"of": "others"}))),
    ] {
        let mut found = body(before);
        annotate(&mut found, says);
        assert_eq!(found, body(after), "{says:?}");
    }
}

#[tokio::test]
async fn a_holder_is_named_once_while_it_renews_the_lease_and_once_when_it_does_not() {
    let mut elector = elector();
    let begin = Instant::now();
    let after = |seconds: u64| begin + Duration::from_secs(seconds);
    let holder = |name: &str, seen: Instant| Holder { name: name.to_owned(), seen, duration: DURATION };
    let mut said = |name: &str, seen: u64, now: u64| {
        let before = elector.said.clone();
        elector.say(Some(&holder(name, after(seen))), after(now));
        (elector.said != before).then(|| elector.said.clone().unwrap().is_silent)
    };
    let cases = [
        (("klm_b", 0, 0), Some(false)),
        (("klm_b", 9, 12), None),
        (("klm_b", 9, 23), None),
        (("klm_b", 9, 24), Some(true)),
        (("klm_b", 9, 90), None),
        (("klm_b", 93, 93), Some(false)),
        (("klm_c", 93, 94), Some(false)),
    ];
    for (index, ((name, seen, now), expected)) in cases.into_iter().enumerate() {
        assert_eq!(said(name, seen, now), expected, "{index}");
    }
    let holder = holder("klm_b", begin);
    assert_eq!([holder.silence(after(60)), holder.wait(after(60))].map(|time| time.as_secs()), [60, 120]);
    assert_eq!(holder.wait(after(200)), Duration::ZERO);
}
