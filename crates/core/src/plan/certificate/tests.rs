use std::sync::Arc;

use serde_json::json;

use super::*;

const DAY: Duration = Duration::from_secs(24 * 3600);

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

/// A day of a simplified calendar.
fn day(number: u32) -> Timestamp {
    later(at("2026-01-01T00:00:00Z"), DAY * number)
}

fn validity(from: u32, to: u32) -> Validity {
    Validity { not_before: day(from), not_after: day(to) }
}

fn authority(name: u8, from: u32, to: u32) -> Authority {
    Authority { der: Arc::from([name]), validity: validity(from, to) }
}

fn names(bundle: &Bundle) -> Vec<u8> {
    bundle.authorities().iter().map(|authority| authority.der[0]).collect()
}

fn kyma(labels: serde_json::Value, annotations: serde_json::Value) -> Kyma {
    serde_json::from_value(json!({
        "apiVersion": "operator.kyma-project.io/v1beta2", "kind": "Kyma",
        "metadata": {"name": "one", "namespace": "kcp-system", "labels": labels, "annotations": annotations},
        "spec": {"channel": "regular"},
    }))
    .unwrap()
}

fn with_additional(names: &[&str]) -> Rules {
    Rules { additional_dns_names: names.iter().map(|name| (*name).to_owned()).collect(), ..Rules::default() }
}

#[test]
fn certificate_bears_the_runtimes_id_and_all_its_names_in_order() {
    let kyma = kyma(json!({"kyma-project.io/runtime-id": "id-1"}), json!({"skr-domain": "one.example.org"}));
    let services = ["skr-webhook.kyma-system.svc.cluster.local", "skr-webhook.kyma-system.svc"];
    let table: [(&[&str], &[&str]); 4] = [
        (&[], &["one.example.org"]),
        // An unset flag of Lifecycle Manager yields one empty name.
        (&[""], &["one.example.org"]),
        (&["a.example.org", " b.example.org ", ""], &["one.example.org", "a.example.org", "b.example.org"]),
        (&["one.example.org", "a.example.org", "a.example.org"], &["one.example.org", "a.example.org"]),
    ];
    for (additional, expected) in table {
        let certificate = certificate(&kyma, &with_additional(additional)).unwrap();
        let expected: Vec<&str> = expected.iter().copied().chain(services).collect();
        assert_eq!(certificate.dns_names, expected, "{additional:?}");
        assert_eq!(certificate.common_name, "id-1");
        assert_eq!(certificate.key, Key::new("istio-system", "one-webhook-tls"));
    }
}

#[test]
fn without_id_or_domain_there_is_no_certificate() {
    let id = json!({"kyma-project.io/runtime-id": "id-1"});
    let domain = json!({"skr-domain": "one.example.org"});
    let table = [
        (json!({}), domain.clone(), Refused::NoRuntimeId),
        (json!({"kyma-project.io/runtime-id": ""}), domain.clone(), Refused::NoRuntimeId),
        (id.clone(), json!({}), Refused::NoDomain),
        (id.clone(), json!({"skr-domain": ""}), Refused::NoDomain),
        (id, json!({"skr-domain": "  "}), Refused::NoDomain),
    ];
    for (labels, annotations, refused) in table {
        assert_eq!(certificate(&kyma(labels, annotations), &Rules::default()), Err(refused));
    }
}

#[test]
fn certificate_tells_its_kyma() {
    let table = [
        ("one-webhook-tls", Some("team-a/one"), Some(Key::new("team-a", "one"))),
        ("one-webhook-tls", None, Some(Key::new("kcp-system", "one"))),
        ("one-webhook-tls", Some("team-a/two"), None),
        ("one-webhook-tls", Some("one"), None),
        ("-webhook-tls", None, None),
        ("one", None, None),
    ];
    for (name, says, expected) in table {
        assert_eq!(kyma_of(name, says), expected, "{name} {says:?}");
    }
}

#[test]
fn certificate_of_a_former_authority_is_renewed_and_overdue_after_a_while() {
    // Columns: issued on, bundled on, now, renewed, overdue.
    let table = [
        (1, 2, 2, true, false),
        (1, 2, 3, true, false),
        (1, 2, 4, true, true),
        (2, 2, 9, false, false),
        (3, 2, 9, false, false),
    ];
    for (issued, bundled, now, renewed, overdue) in table {
        let validity = validity(issued, 60);
        assert_eq!(must_renew(Some(&validity), day(bundled)), renewed, "{issued} {bundled}");
        assert_eq!(is_overdue(Some(&validity), day(bundled), DAY, day(now)), overdue, "{issued} {bundled} {now}");
    }
    // Unknown facts cause no wait.
    assert!(!must_renew(None, day(5)));
    assert!(!is_overdue(None, day(5), DAY, day(50)));
}

#[test]
fn bundle_puts_the_new_first_and_no_one_twice() {
    let (a, b) = (authority(b'a', 0, 90), authority(b'b', 29, 119));
    let mut bundle = Bundle::default();
    assert!(bundle.prepend(&a));
    assert!(!bundle.prepend(&a));
    assert!(bundle.prepend(&b));
    assert_eq!(names(&bundle), b"ba");
    // A CA that returns, for example after a restore, keeps its place.
    assert!(!bundle.prepend(&a));
    assert_eq!(names(&bundle), b"ba");
}

#[test]
fn bundle_drops_what_has_expired_and_keeps_the_order() {
    let all = [authority(b'c', 0, 30), authority(b'a', 0, 10), authority(b'b', 0, 20)];
    for (now, expected, dropped) in
        [(5, &b"cab"[..], false), (10, &b"cb"[..], true), (25, &b"c"[..], true), (30, &b""[..], true)]
    {
        let mut bundle = Bundle::new(all.to_vec());
        assert_eq!(bundle.drop_expired(day(now)), dropped, "{now}");
        assert_eq!(names(&bundle), expected, "{now}");
    }
    assert!(!Bundle::default().drop_expired(day(0)));
}

fn held(authorities: &[Authority], bundled_at: Option<u32>, is_current: bool, served: Validity) -> Held {
    Held {
        bundle: Bundle::new(authorities.to_vec()),
        bundled_at: bundled_at.map(day),
        served: Served { is_current, is_fit: true, validity: served },
    }
}

const ALL: Observed = Observed { behind: 0 };

#[test]
fn absent_secret_is_made_of_the_authority() {
    let root = authority(b'a', 0, 90);
    let plan = gateway(None, &root, Observed { behind: 7 }, &Rules::default(), day(1)).unwrap();
    assert_eq!(
        (names(&plan.bundle), plan.bundled_at, plan.switch, plan.is_new),
        (b"a".to_vec(), day(1), Switch::Now, true)
    );
}

#[test]
fn new_authority_is_bundled_and_what_is_served_stays() {
    let (old, new) = (authority(b'a', 0, 90), authority(b'b', 29, 119));
    let before = held(std::slice::from_ref(&old), Some(0), false, old.validity);
    let plan = gateway(Some(&before), &new, ALL, &Rules::default(), day(29)).unwrap();
    assert_eq!(names(&plan.bundle), b"ba");
    // A certificate from the same second may be of either CA.
    let second = Duration::from_secs(1);
    let (bundled_at, switch) = (later(day(29), second), Switch::At(later(day(33), second)));
    assert_eq!((plan.bundled_at, plan.switch, plan.is_new), (bundled_at, switch, true));
    assert!(must_renew(Some(&Validity { not_before: day(29), not_after: day(89) }), plan.bundled_at));
    // A Secret without the annotation gets one together with the CA.
    let silent = Held { bundled_at: None, ..before };
    assert_eq!(gateway(Some(&silent), &new, ALL, &Rules::default(), day(29)).unwrap().bundled_at, bundled_at);
}

#[test]
fn bundling_and_dropping_happen_at_once() {
    let (gone, old, new) = (authority(b'a', 0, 30), authority(b'b', 0, 90), authority(b'c', 29, 119));
    let before = held(&[old.clone(), gone], Some(0), false, old.validity);
    let plan = gateway(Some(&before), &new, ALL, &Rules::default(), day(31)).unwrap();
    assert_eq!(names(&plan.bundle), b"cb");
    assert_eq!(plan.switch, Switch::At(later(day(35), Duration::from_secs(1))));
}

#[test]
fn without_the_moment_nothing_is_done() {
    let root = authority(b'a', 0, 90);
    let before = held(std::slice::from_ref(&root), None, true, root.validity);
    assert_eq!(gateway(Some(&before), &root, ALL, &Rules::default(), day(1)), Err(Refusal::NoMoment));
}

#[test]
fn expired_authority_is_not_bundled_over_and_over() {
    let root = authority(b'a', 0, 30);
    assert_eq!(gateway(None, &root, ALL, &Rules::default(), day(30)), Err(Refusal::Expired));
    let before = held(&[authority(b'b', 0, 90)], Some(0), false, validity(0, 90));
    assert_eq!(gateway(Some(&before), &root, ALL, &Rules::default(), day(31)), Err(Refusal::Expired));
}

#[test]
fn what_is_served_changes_after_the_grace_and_once_all_runtimes_trust_it() {
    let (old, new) = (authority(b'a', 0, 90), authority(b'b', 29, 119));
    // Columns: now, runtimes behind, current, result. Bundled on day 29, grace of four days, window of fourteen.
    let table = [
        (30, 0, false, Switch::At(day(33))),
        (33, 0, false, Switch::At(day(33))),
        (34, 0, false, Switch::Now),
        (34, 3, false, Switch::Behind(3)),
        (75, 3, false, Switch::Behind(3)),
        // A hibernating runtime is not waited for beyond the certificate's expiry.
        (76, 3, false, Switch::Now),
        (95, 3, false, Switch::Now),
        (34, 3, true, Switch::Stays),
    ];
    for (now, behind, is_current, expected) in table {
        let before = held(&[new.clone(), old.clone()], Some(29), is_current, old.validity);
        let plan = gateway(Some(&before), &new, Observed { behind }, &Rules::default(), day(now)).unwrap();
        assert_eq!(plan.switch, expected, "{now} {behind} {is_current}");
    }
}

#[test]
fn certificate_of_the_present_authority_that_is_not_fit_is_replaced_at_once() {
    let root = authority(b'a', 0, 90);
    let mut before = held(std::slice::from_ref(&root), Some(0), true, validity(0, 30));
    before.served.is_fit = false;
    assert_eq!(
        gateway(Some(&before), &root, Observed { behind: 9 }, &Rules::default(), day(1)).unwrap().switch,
        Switch::Now
    );
}

#[test]
fn repeated_rotation_ends_where_a_single_one_does_and_is_idempotent() {
    let rules = Rules { switch_grace: DAY * 4, expiry_window: DAY, ..Rules::default() };
    let first = authority(0, 0, 40);
    let mut state = held(std::slice::from_ref(&first), Some(0), true, first.validity);
    let mut root = first;
    // A new CA every day, although the grace is four days.
    for number in 1..=60_u8 {
        root = authority(number, u32::from(number), u32::from(number) + 40);
        state.served.is_current = false;
        for _ in 0..3 {
            let plan = gateway(Some(&state), &root, ALL, &rules, day(u32::from(number))).unwrap();
            assert!(plan.bundle.contains(&root));
            state.bundle = plan.bundle;
            state.bundled_at = Some(plan.bundled_at);
            match plan.switch {
                Switch::Now => state.served = Served { is_current: true, is_fit: true, validity: root.validity },
                Switch::Stays | Switch::At(_) | Switch::Behind(_) => {}
            }
        }
        assert!(day(u32::from(number)) < state.served.validity.not_after, "day {number}: what is served has ended");
        assert!(state.bundle.authorities().len() <= 40);
        let again = gateway(Some(&state), &root, ALL, &rules, day(u32::from(number))).unwrap();
        assert!(!again.is_new);
    }
    // Then nothing changes, and the last certificate is served.
    let plan = gateway(Some(&state), &root, ALL, &rules, day(65)).unwrap();
    assert_eq!(plan.switch, if state.served.is_current { Switch::Stays } else { Switch::Now });
}

#[test]
fn end_of_what_is_served_is_told_within_the_window() {
    let rules = Rules::default();
    for (now, expected) in [(15, false), (16, true), (29, true), (31, true)] {
        let served = Served { is_current: true, is_fit: true, validity: validity(0, 30) };
        assert_eq!(served.is_close_to_expiry(&rules, day(now)), expected, "{now}");
    }
}
