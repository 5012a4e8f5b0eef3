//! How long a Lease holds, by the clock of this process.

use super::*;

/// What happens to the Lease, each at a second.
#[derive(Clone, Copy)]
enum Step {
    /// The first list shows it, renewed at this second of its holder's clock.
    Lists(i64),
    /// The watch shows it.
    Shows(i64),
    /// The watch shows that it was released.
    Releases,
    /// A request that began at this second is answered: it was renewed at that one.
    Answers(u64, i64),
    /// The answer to it: it is gone.
    IsGone(u64),
}

/// The state after these steps: `None` if the Lease is free; else whether its holder was seen, and whether to ask.
#[track_caller]
fn check(steps: &[(u64, Step)], expected: &[(u64, Option<(bool, bool)>)]) {
    let (mut leases, key) = (Leases::default(), Key::new("kcp-operator-system", "lease"));
    let start = Instant::now();
    let at = |seconds: u64| start + Duration::from_secs(seconds);
    let held = |second: i64| {
        let renewed = Timestamp::from_second(second).expect("a time");
        Some(Held { holder: "one".to_owned(), renewed, duration: Duration::from_secs(15) })
    };
    for (now, step) in steps {
        match step {
            Step::Lists(second) => leases.set(&key, held(*second), true, at(*now)),
            Step::Shows(second) => leases.set(&key, held(*second), false, at(*now)),
            Step::Releases => leases.set(&key, None, false, at(*now)),
            Step::Answers(began, second) => leases.answer(&key, held(*second), (at(*began), at(*now))),
            Step::IsGone(began) => leases.answer(&key, None, (at(*began), at(*now))),
        }
    }
    for (now, expected) in expected {
        let running = leases.running(at(*now)).map(|running| running.is_seen);
        let found = running.map(|is_seen| (is_seen, !leases.doubtful(at(*now)).is_empty()));
        assert_eq!(found, *expected, "after {now} s");
    }
}

use Step::{Answers, IsGone, Lists, Releases, Shows};

#[test]
fn r70_a_lease_holds_until_its_end_or_its_release() {
    // (is seen, must be asked for)
    let (unknown, holds, asks) = (Some((false, false)), Some((true, false)), Some((true, true)));
    check(&[(0, Lists(0))], &[(0, unknown), (15, unknown), (16, Some((false, true)))]);
    check(&[(0, Lists(0)), (2, Shows(2))], &[(2, holds), (17, holds), (18, asks), (900, asks)]);
    check(&[(0, Shows(0))], &[(0, holds), (16, asks)]);
    check(&[(0, Shows(0)), (2, Releases)], &[(2, None)]);
    check(&[(0, Shows(0)), (2, Releases), (9, Shows(9))], &[(24, holds), (25, asks)]);
}

#[test]
fn r70_a_lease_ends_only_if_the_api_server_was_asked_after_its_end() {
    let (holds, asks) = (Some((true, false)), Some((true, true)));
    check(&[(0, Shows(0)), (17, Answers(16, 0))], &[(17, None)]);
    check(&[(0, Shows(0)), (17, Answers(15, 0))], &[(17, asks)]);
    // The watch is interrupted, and kcp-operator renews its Lease.
    check(&[(0, Shows(0)), (17, Answers(16, 14))], &[(17, holds), (32, holds), (33, asks)]);
    check(&[(0, Shows(0)), (17, IsGone(16))], &[(17, None)]);
    // What the watch shows meanwhile is newer.
    check(&[(0, Shows(0)), (17, Shows(17)), (18, Answers(16, 0))], &[(18, holds), (33, asks)]);
    check(&[(0, Shows(0)), (17, Shows(17)), (18, IsGone(16))], &[(18, holds)]);
    // It ended, and kcp-operator starts again.
    check(&[(0, Shows(0)), (17, Answers(16, 0)), (40, Shows(40))], &[(41, holds)]);
    // A watch that begins anew shows the same.
    check(&[(0, Shows(0)), (17, Answers(16, 0)), (40, Shows(0))], &[(41, None)]);
}

#[test]
fn r70_a_lease_that_is_renewed_holds_whatever_the_clock_of_its_holder_says() {
    let (unknown, holds, asks) = (Some((false, false)), Some((true, false)), Some((true, true)));
    for clock in [-1_000_000, 0, 1_000_000_000] {
        check(&[(0, Lists(clock))], &[(15, unknown)]);
        check(&[(0, Lists(clock)), (2, Shows(clock + 2))], &[(17, holds), (18, asks)]);
        // The holder's clock is set back.
        check(&[(0, Lists(clock)), (2, Shows(clock - 900))], &[(17, holds), (18, asks)]);
        check(&[(0, Lists(clock)), (2, Shows(clock)), (17, Answers(16, clock))], &[(17, None)]);
    }
}

/// A command asks once: what the API server has noted of the last renewal decides, by its own clock.
#[test]
fn r70_a_command_judges_a_lease_by_the_clock_of_the_api_server() {
    let text = |second: i64| Timestamp::from_second(second).expect("a time").to_string();
    let entry = |field: &str, second: i64| {
        serde_json::json!({"manager": "manager", "operation": "Update", "time": text(second),
            "fieldsV1": {"f:spec": {field: {}}}})
    };
    let holder = |holder: &str, renewed: i64, entries: &[serde_json::Value]| {
        let lease = serde_json::json!({"metadata": {"managedFields": entries},
            "spec": {"holderIdentity": holder, "leaseDurationSeconds": 15, "renewTime": text(renewed)}});
        let lease: Lease = serde_json::from_value(lease).expect("a Lease");
        super::holder(&lease, Timestamp::from_second(1000).expect("a time"))
    };
    let one = Some("one".to_owned());
    assert_eq!(holder("one", 0, &[entry("f:renewTime", 999)]), one, "the clock of the holder is behind");
    assert_eq!(holder("one", 9000, &[entry("f:renewTime", 1)]), None, "it is ahead, and the holder is gone");
    assert_eq!(holder("one", 0, &[entry("f:renewTime", 1020)]), one, "the clock of the command is behind");
    assert_eq!(holder("one", 0, &[entry("f:renewTime", 955)]), one, "at the end of the Lease and the skew");
    assert_eq!(holder("one", 0, &[entry("f:renewTime", 954)]), None, "after it");
    let others = [entry("f:renewTime", 1), entry("f:leaseTransitions", 999)];
    assert_eq!(holder("one", 0, &others), None, "a change by others is no renewal");
    let both = [entry("f:renewTime", 1), entry("f:renewTime", 999)];
    assert_eq!(holder("one", 0, &both), one, "another manager renews it now");
    assert_eq!(holder("one", 990, &[]), one, "no note: by the clock of the holder");
    assert_eq!(holder("one", 900, &[]), None);
    assert_eq!(holder("", 999, &[entry("f:renewTime", 999)]), None, "it was released");
}
