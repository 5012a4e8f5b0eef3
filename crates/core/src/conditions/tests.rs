use super::*;

fn at(second: i64) -> Time {
    Time(k8s_openapi::jiff::Timestamp::from_second(second).unwrap())
}

#[test]
fn the_transition_time_moves_only_with_the_status() {
    let mut conditions = Vec::new();
    assert!(set(&mut conditions, "Ready", Status::False, "A", "one", Some(1), &at(1)));
    assert!(!set(&mut conditions, "Ready", Status::False, "A", "one", Some(1), &at(2)), "nothing but time differs");
    assert!(set(&mut conditions, "Ready", Status::False, "B", "two", Some(2), &at(3)));
    assert_eq!(conditions[0].last_transition_time, at(1));
    assert!(set(&mut conditions, "Ready", Status::True, "C", "three", Some(2), &at(4)));
    assert_eq!(conditions[0].last_transition_time, at(4));
    assert!(is_true(&conditions, "Ready") && !is_true(&conditions, "Other"));
    assert!(remove(&mut conditions, "Ready") && !remove(&mut conditions, "Ready"));
}

#[test]
fn conditions_are_sorted_by_type() {
    let mut conditions = Vec::new();
    kyma::set(&mut conditions, kyma::Type::SkrWebhook, Status::Unknown, None, &at(1));
    kyma::set(&mut conditions, kyma::Type::CrdsSync, Status::True, None, &at(1));
    kyma::set(&mut conditions, kyma::Type::Modules, Status::False, None, &at(1));
    let texts: Vec<_> = conditions
        .iter()
        .map(|c| (c.type_.as_str(), c.status.as_str(), c.reason.as_str(), c.message.as_str()))
        .collect();
    assert_eq!(
        texts,
        [
            ("CRDsSync", "True", "Ready", "CRDs are synchronized to the SKR"),
            ("Modules", "False", "Ready", "not all modules are in ready state"),
            ("SKRWebhook", "Unknown", "Ready", "skrwebhook is out of sync and needs to be resynchronized"),
        ]
    );
}

#[test]
fn a_recorded_digest_is_in_the_reason_and_counts_only_while_it_is_true() {
    let digest = Digest::of_bytes(b"a");
    let mut conditions = Vec::new();
    assert_eq!(recorded(&conditions, APPLIED), None);
    assert!(record(&mut conditions, APPLIED, &digest, "all is applied", None, &at(1)));
    assert_eq!(conditions[0].message, "all is applied");
    assert_eq!(recorded(&conditions, APPLIED), Some(digest.to_string().as_str()));
    assert!(!record(&mut conditions, APPLIED, &digest, "all is applied", None, &at(2)));
    conditions[0].status = "False".to_owned();
    assert_eq!(recorded(&conditions, APPLIED), None);
}

#[test]
fn what_an_earlier_version_recorded_in_a_message_stays_until_it_changes() {
    let (digest, other) = (Digest::of_bytes(b"a"), Digest::of_bytes(b"b"));
    for (tail, message, stays) in [
        ("", "all is applied", true),
        (" as admin", "all is applied as admin", true),
        (" as admin", "all is applied as another", false),
    ] {
        let mut conditions = Vec::new();
        let written = format!("{digest}{tail}");
        set(&mut conditions, APPLIED, Status::True, APPLIED_REASON, &written, None, &at(1));
        assert_eq!(recorded(&conditions, APPLIED), Some(digest.to_string().as_str()), "{tail}");
        assert_eq!(record(&mut conditions, APPLIED, &digest, message, None, &at(2)), !stays, "{tail}");
        assert_eq!(conditions[0].message, if stays { written.as_str() } else { message });
        assert!(record(&mut conditions, APPLIED, &other, message, None, &at(3)));
        assert_eq!((conditions[0].message.as_str(), &*conditions[0].reason), (message, &*format!("Applied:{other}")));
    }
}
