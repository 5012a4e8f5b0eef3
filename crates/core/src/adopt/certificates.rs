//! The certificates of runtimes before a take-over: which exist, and how long they are valid.

use std::collections::BTreeMap;

use k8s_openapi::jiff::Timestamp;

use super::{Finding, Level, Topic};
use crate::{
    api::{
        Kyma,
        names::{annotation, label},
    },
    conditions::{self, kyma::Type},
    landscape,
    name::Key,
    plan::certificate::{Rules, certificate},
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
/// How many Kymas have a sentence of their own.
const SENTENCES: usize = 10;
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

/// Kymas that lack what the certificate of their agent says: the runtime id, by which its events are assigned, and the
/// domain. Lifecycle Manager does without the id. The daemon sets such a Kyma to Error.
///
/// Where Lifecycle Manager has installed an agent, this blocks: the control plane has an `issuer` of certificates, and
/// the status of the Kyma says so. Elsewhere it is a note: the daemon may have none.
pub fn identities<'a>(issuer: Option<&str>, kymas: impl IntoIterator<Item = &'a Kyma>) -> Vec<Finding> {
    let (mut with_agent, mut without, mut complete) = (Vec::new(), Vec::new(), 0);
    for kyma in kymas {
        if kyma.metadata.deletion_timestamp.is_some() || landscape::is_skipped(&kyma.metadata) {
            continue;
        }
        match certificate(kyma, &Rules::default()) {
            Ok(_) => complete += 1,
            Err(refused) => {
                let of = if issuer.is_some() && has_agent(kyma) { &mut with_agent } else { &mut without };
                of.push((landscape::key(&kyma.metadata), refused));
            }
        }
    }
    let finding = |level: Level, message: String| Finding::new(level, Topic::Certificates, message);
    let next = "without it, the daemon cannot issue the certificate of the agent, and sets the Kyma to Error";
    let named = with_agent.iter().take(SENTENCES);
    let named = named.map(|(key, why)| finding(Level::Blocks, format!("Kyma {key}: {why}")).next(next));
    let mut findings: Vec<Finding> = named.collect();
    if let Some(more) = with_agent.len().checked_sub(SENTENCES).filter(|more| 0 < *more) {
        let lacks = agreeing(more, "lacks", "lack");
        let message = format!(
            "{} {lacks} the label `{}` or the annotation `{}`",
            counted(more, "more Kyma"),
            label::RUNTIME_ID,
            annotation::SKR_DOMAIN
        );
        findings.push(finding(Level::Blocks, message).next("set them, and run this command again"));
    }
    if !without.is_empty() {
        let names: Vec<String> = without.iter().map(|(key, _)| key.to_string()).collect();
        let lacks = agreeing(names.len(), "lacks", "lack");
        let message = format!(
            "{} {lacks} the label `{}` or the annotation `{}`: {}",
            counted(names.len(), "Kyma"),
            label::RUNTIME_ID,
            annotation::SKR_DOMAIN,
            few(&names)
        );
        let next = "set them before the daemon installs an agent, which needs a certificate with both";
        findings.push(finding(Level::Note, message).next(next));
    }
    if findings.is_empty() && 0 < complete {
        let has = agreeing(complete, "has", "have");
        let message =
            format!("{} {has} the runtime id and the domain that certificates need", counted(complete, "Kyma"));
        findings.push(finding(Level::Ready, message));
    }
    findings
}

/// Whether the status says that what reports changes is installed.
fn has_agent(kyma: &Kyma) -> bool {
    let conditions = kyma.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
    conditions::find(conditions, Type::SkrWebhook.as_str()).is_some()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{super::tests::lines, *};

    #[test]
    fn a_kyma_without_what_its_certificate_needs_blocks_where_there_is_an_agent() {
        let kyma = |name: &str, labels: Value, annotations: Value, conditions: &[&str]| -> Kyma {
            let condition = |kind: &&str| {
                json!({
                    "type": kind, "status": "True", "reason": "Ready", "message": "",
                    "lastTransitionTime": "2026-01-01T00:00:00Z",
                })
            };
            let conditions: Vec<Value> = conditions.iter().map(condition).collect();
            serde_json::from_value(json!({
                "metadata": {
                    "name": name, "namespace": "kcp-system", "labels": labels, "annotations": annotations,
                },
                "spec": {"channel": "regular"}, "status": {"state": "Ready", "conditions": conditions},
            }))
            .unwrap()
        };
        let (id, domain) = (json!({"kyma-project.io/runtime-id": "r"}), json!({"skr-domain": "d"}));
        let agent: &[&str] = &["Modules", "SKRWebhook"];
        let good = kyma("a", id.clone(), domain.clone(), agent);
        let nameless = |name: &str, conditions: &[&str]| kyma(name, json!({}), domain.clone(), conditions);
        let consequence =
            "; without it, the daemon cannot issue the certificate of the agent, and sets the Kyma to Error";
        let no_id = "the label `kyma-project.io/runtime-id`, which identifies its events, is missing: set it to the id of \
                     the runtime";
        let identities = |kymas: &[&Kyma]| super::identities(Some("cert-manager"), kymas.iter().copied());
        assert_eq!(identities(&[]), []);
        assert_eq!(
            lines(&identities(&[&good])),
            ["Ready: 1 Kyma has the runtime id and the domain that certificates need"]
        );
        assert_eq!(
            lines(&identities(&[&good, &nameless("b", agent), &kyma("c", id.clone(), json!({}), agent)])),
            [
                format!("Blocks: Kyma kcp-system/b: {no_id}{consequence}"),
                format!(
                    "Blocks: Kyma kcp-system/c: the annotation `skr-domain` is missing: set it to the domain of the \
                     runtime{consequence}"
                ),
            ]
        );
        assert_eq!(
            lines(&identities(&[&good, &nameless("b", &["Modules"])])),
            [
                "Note: 1 Kyma lacks the label `kyma-project.io/runtime-id` or the annotation `skr-domain`: kcp-system/b; set \
              them before the daemon installs an agent, which needs a certificate with both"
            ]
        );
        let many: Vec<Kyma> = (0..12).map(|number| nameless(&format!("k{number:02}"), agent)).collect();
        let said = lines(&identities(&many.iter().collect::<Vec<&Kyma>>()));
        assert_eq!(said.len(), 11);
        assert_eq!(
            said[10],
            "Blocks: 2 more Kymas lack the label `kyma-project.io/runtime-id` or the annotation `skr-domain`; set them, \
             and run this command again"
        );
        assert_eq!(super::identities(None, &many)[0].level, Level::Note, "there is no agent without a certificate");
        let skipped = json!({"operator.kyma-project.io/skip-reconciliation": "true"});
        assert_eq!(identities(&[&kyma("d", skipped, domain.clone(), agent)]), [], "the daemon leaves it alone");
    }

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
