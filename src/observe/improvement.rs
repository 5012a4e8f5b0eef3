//! The differences from Lifecycle Manager that are decided: `docs/compatibility.md` has a row for each.
//!
//! A difference is an improvement only if the decisions explain all of it. A Deployment with a decided field and
//! another one is an ordinary difference.

use serde::Serialize;
use tidegate_core::{
    api::names::{SKR_WEBHOOK, SKR_WEBHOOK_METRICS, SKR_WEBHOOK_POLICIES},
    object::ObjectId,
    plan::reporting::PRIORITY_CLASS,
};

use super::difference::Reason;

/// A decision.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub(crate) struct Improvement {
    /// The row of `docs/compatibility.md`.
    pub(crate) row: &'static str,
    /// What it changes, in a few words.
    pub(crate) what: &'static str,
}

/// What a decision explains.
struct Rule {
    improvement: Improvement,
    reasons: &'static [Reason],
    /// The kind and the names of the objects; empty for all objects.
    kind: &'static str,
    names: &'static [&'static str],
    /// The fields that it explains, with all below them. `[*]` is any item of a list.
    fields: &'static [&'static str],
}

/// The rules. Of two that explain a difference, the first is named.
static RULES: [Rule; 9] = [
    Rule {
        improvement: Improvement { row: "R2", what: "one field manager instead of Lifecycle Manager's six" },
        reasons: &[Reason::Managers],
        kind: "",
        names: &[],
        fields: &[],
    },
    Rule {
        improvement: Improvement {
            row: "M7b",
            what: "the digest of a component is noted, so that a moved tag is seen",
        },
        reasons: &[Reason::Changed],
        kind: "Manifest",
        names: &[],
        fields: &["metadata.annotations.tidegate.dev/component-digest"],
    },
    Rule {
        improvement: Improvement { row: "W78", what: "the restart label is a digest of the certificate" },
        reasons: &[Reason::Changed],
        kind: "Deployment",
        names: &[SKR_WEBHOOK],
        fields: &["spec.template.metadata.labels.operator.kyma-project.io/pod-restart-trigger"],
    },
    Rule {
        improvement: Improvement { row: "W76", what: "the agent: probes, no token, read-only mounts" },
        reasons: &[Reason::Changed],
        kind: "Deployment",
        names: &[SKR_WEBHOOK],
        fields: &["spec", "metadata.labels"],
    },
    Rule {
        improvement: Improvement { row: "W76", what: "the agent's Services" },
        reasons: &[Reason::Changed],
        kind: "Service",
        names: &[SKR_WEBHOOK, SKR_WEBHOOK_METRICS],
        fields: &["spec", "metadata.labels"],
    },
    Rule {
        improvement: Improvement { row: "W76", what: "the description of the agent's priority class" },
        reasons: &[Reason::Changed],
        kind: "PriorityClass",
        names: &[PRIORITY_CLASS],
        fields: &["description", "metadata.labels"],
    },
    Rule {
        improvement: Improvement { row: "W79", what: "network policies for metrics and for DNS over IPv6" },
        reasons: &[Reason::Changed, Reason::Missing],
        kind: "NetworkPolicy",
        names: &SKR_WEBHOOK_POLICIES,
        fields: &["spec", "metadata.labels"],
    },
    Rule {
        improvement: Improvement { row: "W81", what: "a shorter timeout of the webhooks, and two webhooks for drift" },
        reasons: &[Reason::Changed],
        kind: "ValidatingWebhookConfiguration",
        names: &[SKR_WEBHOOK],
        fields: &["webhooks[*].timeoutSeconds", "webhooks[drift.tidegate.dev]", "webhooks[scale.tidegate.dev]"],
    },
    Rule {
        improvement: Improvement {
            row: "W81",
            what: "a webhook configuration where Lifecycle Manager left none, after `take --finish`",
        },
        reasons: &[Reason::Waiting],
        kind: "ValidatingWebhookConfiguration",
        names: &[SKR_WEBHOOK],
        fields: &[],
    },
];

/// The decision that explains a difference in these fields; `None` if none explains all of it.
pub(crate) fn explaining(reason: Reason, object: &ObjectId, fields: &[String]) -> Option<&'static Improvement> {
    RULES.iter().find(|rule| rule.explains(reason, object, fields)).map(|rule| &rule.improvement)
}

// === impl Rule ===

impl Rule {
    fn explains(&self, reason: Reason, object: &ObjectId, fields: &[String]) -> bool {
        let is_kind = self.kind.is_empty() || *self.kind == *object.kind;
        let is_named = self.names.is_empty() || self.names.contains(&&*object.name);
        let is_explained = |field: &String| self.fields.iter().any(|pattern| covers(pattern, field));
        self.reasons.contains(&reason) && is_kind && is_named && fields.iter().all(is_explained)
    }
}

/// Whether a field is the one of a pattern, or below it.
fn covers(pattern: &str, field: &str) -> bool {
    if let Some((list, of_item)) = pattern.split_once("[*]") {
        let item = field.strip_prefix(list).and_then(|rest| rest.strip_prefix('['));
        return item.and_then(|item| item.split_once(']')).is_some_and(|(_, rest)| covers(of_item, rest));
    }
    field.strip_prefix(pattern).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(reason: Reason, kind: &str, name: &str, fields: &[&str], expected: Option<&str>) {
        let object = ObjectId::new("any.example.com", kind, "kyma-system", name);
        let fields: Vec<String> = fields.iter().map(|field| (*field).to_owned()).collect();
        assert_eq!(explaining(reason, &object, &fields).map(|found| found.row), expected);
    }

    #[test]
    fn a_decision_explains_its_fields_and_those_below_them() {
        check(Reason::Managers, "ConfigMap", "any", &[], Some("R2"));
        let timeout = "webhooks[kcp-system.klm-watcher.operator.kyma-project.io].timeoutSeconds";
        let drift = "webhooks[drift.tidegate.dev]";
        check(Reason::Changed, "ValidatingWebhookConfiguration", SKR_WEBHOOK, &[timeout, drift], Some("W81"));
        check(Reason::Waiting, "ValidatingWebhookConfiguration", SKR_WEBHOOK, &[], Some("W81"));
        let probe = "spec.template.spec.containers[server].livenessProbe";
        check(Reason::Changed, "Deployment", SKR_WEBHOOK, &[probe], Some("W76"));
        let restart = "spec.template.metadata.labels.operator.kyma-project.io/pod-restart-trigger";
        check(Reason::Changed, "Deployment", SKR_WEBHOOK, &[restart], Some("W78"));
    }

    #[test]
    fn what_a_decision_explains_in_part_is_no_improvement() {
        let timeout = "webhooks[a].timeoutSeconds";
        let rules = "webhooks[a].rules";
        check(Reason::Changed, "ValidatingWebhookConfiguration", SKR_WEBHOOK, &[timeout, rules], None);
        check(Reason::Changed, "ValidatingWebhookConfiguration", "another", &[timeout], None);
        // Before `take`, the daemon creates it at its first contact.
        check(Reason::Missing, "ValidatingWebhookConfiguration", SKR_WEBHOOK, &[], None);
        check(Reason::Changed, "Deployment", "keda-manager", &["spec.replicas"], None);
        check(Reason::Extra, "Deployment", SKR_WEBHOOK, &[], None);
        check(Reason::Changed, "Deployment", SKR_WEBHOOK, &["specification"], None);
    }

    /// Every decision has its row in the table that users read, and the row says that something differs.
    #[test]
    fn every_decision_is_a_row_of_the_documentation() {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/compatibility.md");
        let text = std::fs::read_to_string(path).unwrap();
        for rule in &RULES {
            let row = rule.improvement.row;
            let is_row = |line: &&str| {
                let ids = line.strip_prefix("| ").and_then(|line| line.split(" | ").next()).unwrap_or_default();
                ids.split(", ").any(|id| id == row)
            };
            let line = text.lines().find(is_row).unwrap_or_else(|| panic!("no row {row}"));
            let says = ["better", "new", "different", "a digest", "IPv6"];
            assert!(says.iter().any(|word| line.to_lowercase().contains(&word.to_lowercase())), "{row}: {line}");
        }
    }

    #[test]
    fn what_a_report_says_of_an_adopted_runtime_names_all_that_waits() {
        let said = tidegate_diff::model::Held::runtime_adopted().message;
        let held = RULES.iter().filter(|rule| rule.reasons.contains(&Reason::Changed) && rule.kind != "Manifest");
        for kind in held.map(|rule| rule.kind).chain(["ModuleTemplate", "ModuleReleaseMeta"]) {
            let plural = if kind.ends_with('y') { kind.replace("Policy", "Policies") } else { kind.to_owned() };
            assert!(said.contains(&plural), "{kind}: {said}");
        }
    }
}
