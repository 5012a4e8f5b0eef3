//! The certificates of runtimes before a take-over: which exist, and how long they are valid.

use std::collections::BTreeMap;

use k8s_openapi::jiff::Timestamp;

use super::{Finding, Level, Topic};
use crate::{
    name::Key,
    words::{agreeing, counted, few},
};

/// The certificate of a runtime, as the control plane has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Certificate {
    /// There is none.
    Absent,
    /// It is not issued, with the sentence of its issuer, if there is one.
    Pending(Option<String>),
    /// It is valid until then.
    Until {
        /// Its end.
        not_after: Timestamp,
        /// Whether it has an empty DNS name, which Lifecycle Manager writes. Tidegate leaves it until something else
        /// changes.
        has_empty_name: bool,
    },
}

/// A certificate that ends within so many days should have been renewed: Lifecycle Manager's certificates are renewed
/// 30 days before their end.
const SOON_DAYS: i64 = 14;
const DAY_SECONDS: i64 = 24 * 60 * 60;

/// The certificates of runtimes, by Kyma. `issuer` is the software that issues them; `None` if the control plane serves
/// no kind of certificates.
pub fn certificates(issuer: Option<&str>, runtimes: &BTreeMap<Key, Certificate>, now: Timestamp) -> Vec<Finding> {
    let Some(issuer) = issuer else {
        let message = "the control plane serves certificates of neither cert-manager nor Gardener; how long those of \
                       runtimes are valid is not known";
        return vec![Finding::new(Level::Note, Topic::Certificates, message)];
    };
    let days = |not_after: Timestamp| not_after.duration_since(now).as_secs() / DAY_SECONDS;
    let mut valid: Vec<(i64, &Key)> = Vec::new();
    let (mut soon, mut ended, mut absent, mut pending, mut changing) = (vec![], vec![], vec![], vec![], vec![]);
    for (kyma, certificate) in runtimes {
        match certificate {
            Certificate::Absent => absent.push(kyma.to_string()),
            Certificate::Pending(None) => pending.push(kyma.to_string()),
            Certificate::Pending(Some(why)) => pending.push(format!("{kyma} ({why})")),
            Certificate::Until { not_after, has_empty_name } => {
                let left = days(*not_after);
                match (*not_after <= now, left < SOON_DAYS) {
                    (true, _) => ended.push(format!("{kyma} ({not_after})")),
                    (false, true) => soon.push(format!("{kyma} ({not_after})")),
                    (false, false) => valid.push((left, kyma)),
                }
                if *has_empty_name {
                    changing.push(kyma.to_string());
                }
            }
        }
    }
    let mut findings = Vec::new();
    if let Some((left, first)) = valid.iter().min() {
        let message = format!(
            "{} by {issuer} {} valid for {left} days or more; {first} is the first to end",
            counted(valid.len(), "certificate"),
            agreeing(valid.len(), "is", "are"),
        );
        findings.push(Finding::new(Level::Ready, Topic::Certificates, message));
    }
    let mut add = |names: &[String], (one, several): (&str, &str), next: Option<&str>| {
        if !names.is_empty() {
            let what = counted(names.len(), "certificate");
            let message = format!("{what} of runtimes {}: {}", agreeing(names.len(), one, several), few(names));
            let finding = Finding::new(Level::Note, Topic::Certificates, message);
            findings.push(Finding { next: next.map(str::to_owned), ..finding });
        }
    };
    let check = format!("check {issuer} before the take-over: Tidegate does not replace it");
    add(&ended, ("has ended", "have ended"), Some(&check));
    add(&soon, ("ends within 14 days", "end within 14 days"), Some(&check));
    add(&pending, ("is not issued", "are not issued"), Some(&check));
    let empty = (
        "has an empty DNS name, which Tidegate leaves until something else in it changes",
        "have an empty DNS name, which Tidegate leaves until something else in them changes",
    );
    add(&changing, empty, None);
    if !absent.is_empty() {
        let has = agreeing(absent.len(), "has", "have");
        let message = format!("{} {has} no certificate: {}", counted(absent.len(), "Kyma"), few(&absent));
        let next = "none is needed without an agent; with `--skr-watcher-image-tag`, Tidegate requests one";
        findings.push(Finding::new(Level::Note, Topic::Certificates, message).next(next));
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::{super::tests::lines, *};

    fn now() -> Timestamp {
        "2026-01-01T00:00:00Z".parse().unwrap()
    }

    fn until(text: &str) -> Certificate {
        Certificate::Until { not_after: text.parse().unwrap(), has_empty_name: false }
    }

    fn check(runtimes: &[(&str, Certificate)], expected: &[&str]) {
        let runtimes = runtimes.iter().map(|(name, one)| (Key::new("kcp-system", name), one.clone())).collect();
        assert_eq!(lines(&certificates(Some("cert-manager"), &runtimes, now())), expected);
    }

    #[test]
    fn the_first_certificate_to_end_is_named() {
        let two = [("a", until("2026-03-02T00:00:00Z")), ("b", until("2026-02-01T12:00:00Z"))];
        let expected =
            "Ready: 2 certificates by cert-manager are valid for 31 days or more; kcp-system/b is the first to end";
        check(&two, &[expected]);
        let one = "Ready: 1 certificate by cert-manager is valid for 60 days or more; kcp-system/a is the first to end";
        check(&two[..1], &[one]);
    }

    #[test]
    fn what_the_issuer_should_have_done_is_reported_and_does_not_block() {
        let next = "check cert-manager before the take-over: Tidegate does not replace it";
        check(
            &[
                ("a", until("2026-01-01T00:00:00Z")),
                ("b", until("2026-01-14T00:00:00Z")),
                ("c", Certificate::Pending(None)),
                ("d", Certificate::Pending(Some("no issuer".to_owned()))),
                ("e", Certificate::Absent),
            ],
            &[
                &format!("Note: 1 certificate of runtimes has ended: kcp-system/a (2026-01-01T00:00:00Z); {next}"),
                &format!(
                    "Note: 1 certificate of runtimes ends within 14 days: kcp-system/b (2026-01-14T00:00:00Z); {next}"
                ),
                &format!(
                    "Note: 2 certificates of runtimes are not issued: kcp-system/c, kcp-system/d (no issuer); {next}"
                ),
                "Note: 1 Kyma has no certificate: kcp-system/e; none is needed without an agent; with \
                 `--skr-watcher-image-tag`, Tidegate requests one",
            ],
        );
        assert!(super::super::may_begin(&certificates(Some("cert-manager"), &BTreeMap::new(), now())));
    }

    #[test]
    fn a_certificate_with_an_empty_name_is_named() {
        let not_after = "2026-03-02T00:00:00Z".parse().unwrap();
        check(
            &[("a", Certificate::Until { not_after, has_empty_name: true })],
            &[
                "Ready: 1 certificate by cert-manager is valid for 60 days or more; kcp-system/a is the first to end",
                "Note: 1 certificate of runtimes has an empty DNS name, which Tidegate leaves until something else in \
                 it changes: kcp-system/a",
            ],
        );
    }

    #[test]
    fn without_an_issuer_nothing_is_known() {
        let found = certificates(None, &BTreeMap::from([(Key::new("a", "b"), Certificate::Absent)]), now());
        assert_eq!((found.len(), found[0].level), (1, Level::Note));
    }
}
