use super::*;

/// Row 66: what is said of a cluster follows its cause, and the log has one line for each kind of trouble.
#[test]
fn r66_why_a_cluster_cannot_be_used_follows_its_cause() {
    let of = |outage, denied| trouble("eu", outage, denied, None);
    let refused = of(Some("connection refused"), None);
    let silent = of(Some("no answer within 10s"), None);
    let lists = of(None, Some("user a cannot list secrets"));
    let watches = of(None, Some("user a cannot watch secrets"));
    let unlisted = trouble("eu", None, None, Some(ObjectKind::Secret));
    for (known, found, expected) in [
        (&None, &None, Change::Nothing),
        (&refused, &refused, Change::Nothing),
        (&refused, &silent, Change::Cause),
        (&lists, &watches, Change::Cause),
        (&None, &refused, Change::Begin),
        (&lists, &refused, Change::Begin),
        (&unlisted, &lists, Change::Begin),
        (&refused, &lists, Change::End),
        (&refused, &None, Change::End),
        (&lists, &None, Change::End),
    ] {
        assert_eq!(change(known.as_ref(), found.as_ref()), expected, "{known:?} {found:?}");
    }
    assert_eq!(
        refused.map(|(_, sentence)| sentence).as_deref(),
        Some("cluster eu cannot be reached: connection refused")
    );
}
