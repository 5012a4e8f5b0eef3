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
fn the_applied_digest_counts_only_while_it_is_true() {
    let mut conditions = Vec::new();
    assert_eq!(message(&conditions, APPLIED), None);
    set(&mut conditions, APPLIED, Status::True, APPLIED_REASON, "abc", None, &at(1));
    assert_eq!(message(&conditions, APPLIED), Some("abc"));
    set(&mut conditions, APPLIED, Status::False, APPLIED_REASON, "abc", None, &at(1));
    assert_eq!(message(&conditions, APPLIED), None);
}
