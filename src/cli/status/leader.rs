//! Whether a daemon leads, as the Lease says. Pure.

use k8s_openapi::{
    api::coordination::v1::Lease,
    jiff::{SignedDuration, Timestamp},
};
use tidegate_core::{
    api::names::{KCP_NAMESPACE, LEASE},
    overview::Leader,
};

/// The prefix of a holder that is a daemon of Tidegate.
pub(super) const HOLDER: &str = "tidegate_";
/// How long after its end a Lease counts: the clock of this machine may differ from that of the daemon.
const SKEW: SignedDuration = SignedDuration::from_secs(30);

/// What to do about the Lease of a former process, which would be a problem for ever.
const WITHOUT: &str = "if it runs with --leader-elect=false, delete the Lease";

/// Whether a daemon leads. `leases` are those that exist, of one daemon for each namespace. `waits` says whether a
/// GitSource waits to be reconciled.
pub(super) fn find(leases: &[Lease], waits: bool, now: Timestamp) -> Leader {
    let problems: Vec<String> = leases.iter().map_while(|lease| of_lease(lease, now)).collect();
    if problems.len() < leases.len() {
        return Leader::Present;
    }
    match problems.into_iter().next() {
        Some(problem) => Leader::Absent(problem),
        None if waits => Leader::Absent(format!(
            "there is no Lease {KCP_NAMESPACE}/{LEASE}, and a source waits; start the daemon, or if it runs with \
             --leader-elect=false, see its log"
        )),
        None => Leader::NotKnown,
    }
}

/// Whether any controller leads a landscape without GitSources, which may be Lifecycle Manager. Without a Lease, that
/// is not known, and nothing is said.
pub(super) fn find_any(leases: &[Lease], now: Timestamp) -> Leader {
    let problems: Vec<String> = leases.iter().map_while(|lease| unled(lease, now).err()).collect();
    let is_led = problems.len() < leases.len();
    problems.into_iter().next().filter(|_| !is_led).map_or(Leader::Present, Leader::Absent)
}

/// Whether a daemon of Tidegate is the last one that held a Lease.
pub(super) fn is_of_daemon(lease: &Lease) -> bool {
    let holder = lease.spec.as_ref().and_then(|spec| spec.holder_identity.as_deref());
    holder.is_some_and(|holder| holder.starts_with(HOLDER))
}

/// Why no daemon holds a Lease; `None` if one does.
fn of_lease(lease: &Lease, now: Timestamp) -> Option<String> {
    match unled(lease, now) {
        Err(problem) => Some(problem),
        Ok(holder) if holder.starts_with(HOLDER) => None,
        Ok(holder) => {
            let namespace = lease.metadata.namespace.as_deref().unwrap_or_default();
            Some(format!("{holder} holds the Lease {namespace}/{LEASE}, and GitSources are Tidegate's"))
        }
    }
}

/// Who holds a Lease. Fails with the reason, in one sentence, if no process does.
fn unled(lease: &Lease, now: Timestamp) -> Result<String, String> {
    let namespace = lease.metadata.namespace.as_deref().unwrap_or_default();
    let name = format!("{namespace}/{LEASE}");
    let spec = lease.spec.clone().unwrap_or_default();
    let holder = spec.holder_identity.unwrap_or_default();
    if holder.is_empty() {
        return Err(format!("no daemon holds the Lease {name}; start the daemon, or see its log; {WITHOUT}"));
    }
    let renewed = spec.renew_time.map(|renewed| renewed.0);
    let duration = SignedDuration::from_secs(i64::from(spec.lease_duration_seconds.unwrap_or_default()));
    let is_expired = renewed.is_none_or(|renewed| duration + SKEW < now.duration_since(renewed));
    if is_expired {
        let since = renewed.map(|renewed| format!(" since {renewed:.0}")).unwrap_or_default();
        return Err(format!("{holder} has not renewed the Lease {name}{since}; see whether it runs; {WITHOUT}"));
    }
    Ok(holder)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn lease(holder: &str, renewed: &str) -> Lease {
        let spec = json!({"holderIdentity": holder, "leaseDurationSeconds": 180, "renewTime": renewed});
        serde_json::from_value(json!({"metadata": {"name": LEASE, "namespace": "kcp-system"}, "spec": spec})).unwrap()
    }

    #[test]
    fn a_landscape_whose_lease_no_daemon_holds_is_not_reconciled() {
        let now: Timestamp = "2026-01-01T12:00:00Z".parse().unwrap();
        let recent = "2026-01-01T11:59:00.000000Z";
        let at = |leases: &[Lease]| match find(leases, true, now) {
            Leader::Present => None,
            Leader::Absent(problem) => Some(problem),
            Leader::NotKnown => panic!("a source waits"),
        };
        assert_eq!(at(&[lease("tidegate_a", recent)]), None);
        assert_eq!(at(&[lease("", recent), lease("tidegate_a", recent)]), None, "the daemon of one namespace leads");
        for (leases, expected) in [
            (vec![], "there is no Lease kcp-system/893110f7.kyma-project.io, and a source waits; start the daemon"),
            (vec![lease("", recent)], "no daemon holds the Lease kcp-system/893110f7.kyma-project.io"),
            (
                vec![lease("tidegate_a", "2026-01-01T11:50:00.000000Z")],
                "tidegate_a has not renewed the Lease kcp-system/893110f7.kyma-project.io since 2026-01-01T11:50:00Z",
            ),
            (vec![lease("klm_x", recent)], "klm_x holds the Lease kcp-system/893110f7.kyma-project.io, and"),
        ] {
            let found = at(&leases).unwrap();
            assert!(found.starts_with(expected), "{found}");
        }
        // Without leader election there is no Lease.
        assert_eq!(find(&[], false, now), Leader::NotKnown);
        let Leader::Absent(former) = find(&[lease("", recent)], false, now) else { panic!("it was given back") };
        assert!(former.ends_with("if it runs with --leader-elect=false, delete the Lease"), "{former}");
        // Without GitSources, Lifecycle Manager may lead, and when it has ended, nothing else shows it.
        let any = |leases: &[Lease]| match find_any(leases, now) {
            Leader::Present => None,
            Leader::Absent(problem) => Some(problem),
            Leader::NotKnown => panic!("nothing is said"),
        };
        assert_eq!(any(&[]), None);
        assert_eq!(any(&[lease("klm_x", recent)]), None);
        assert_eq!(any(&[lease("", recent), lease("klm_x", recent)]), None);
        let old = "2026-01-01T11:50:00.000000Z";
        assert!(any(&[lease("klm_x", old)]).unwrap().starts_with("klm_x has not renewed the Lease kcp-system/"));
        assert!(any(&[lease("", recent)]).unwrap().starts_with("no daemon holds the Lease kcp-system/"));
        assert!(is_of_daemon(&lease("tidegate_a", old)) && !is_of_daemon(&lease("klm_x", recent)));
        // Within the skew of clocks.
        assert_eq!(at(&[lease("tidegate_a", "2026-01-01T11:56:45.000000Z")]), None);
    }
}
