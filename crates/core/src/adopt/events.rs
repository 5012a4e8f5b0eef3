//! What leads to Lifecycle Manager before a take-over: webhooks of the control plane, and the Services of Watchers.

use std::collections::BTreeMap;

use serde_json::Value;

use super::{Finding, Level, Topic};
use crate::{
    name::Key,
    words::{agreeing, counted},
};

/// A webhook in the control plane that the API server calls for custom resources of Lifecycle Manager.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Webhook {
    /// The object that declares it, for example `ValidatingWebhookConfiguration a`.
    pub object: String,
    /// The Service that answers; `None` if it is a URL.
    pub service: Option<Key>,
    /// What it does.
    pub purpose: Purpose,
}

/// What a webhook does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// It reviews writes. Without it, the API server refuses them.
    Required,
    /// It reviews writes. Without it, the API server accepts them.
    Optional,
    /// It converts objects between versions. Without it, the API server refuses requests of another version.
    Converts,
}

/// The program behind a Service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Behind {
    /// The Service does not exist.
    Absent,
    /// Its selector names Lifecycle Manager.
    LifecycleManager,
    /// Its selector names something else.
    Other,
}

/// The value of `app.kubernetes.io/name` on the pods of Lifecycle Manager.
const NAME: &str = "lifecycle-manager";

// === impl Behind ===

impl Behind {
    /// The program behind a Service; `None` if the Service does not exist.
    pub fn of(service: Option<&Value>) -> Behind {
        match service {
            None => Behind::Absent,
            Some(service) if service["spec"]["selector"]["app.kubernetes.io/name"] == NAME => Behind::LifecycleManager,
            Some(_) => Behind::Other,
        }
    }
}

/// The webhooks of the control plane, each with the program that answers.
pub fn webhooks(webhooks: &[(Webhook, Behind)]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (webhook, behind) in webhooks {
        let object = &webhook.object;
        let finding = |level: Level, message: String| Finding::new(level, Topic::Webhooks, message);
        findings.push(match (behind, webhook.purpose) {
            (Behind::LifecycleManager, Purpose::Required) => {
                let message = format!(
                    "{object} leads to Lifecycle Manager: once that is stopped, the API server refuses every write of \
                     its kinds"
                );
                finding(Level::Blocks, message).next("delete it; Tidegate has no webhook in the control plane")
            }
            (Behind::LifecycleManager, Purpose::Converts) => {
                let message = format!(
                    "{object} converts versions by a webhook of Lifecycle Manager: once that is stopped, the API server \
                     refuses requests of other versions"
                );
                finding(Level::Blocks, message).next("set its `spec.conversion.strategy` to `None`")
            }
            (Behind::LifecycleManager, Purpose::Optional) => {
                let message = format!(
                    "{object} leads to Lifecycle Manager: once that is stopped, the API server waits for it in vain"
                );
                finding(Level::Note, message).next("delete it; Tidegate has no webhook in the control plane")
            }
            (Behind::Absent | Behind::Other, _) => {
                let message = format!("{object} concerns kinds of Lifecycle Manager, and so what Tidegate writes");
                finding(Level::Note, message)
            }
        });
    }
    if findings.is_empty() {
        let message = "the control plane has no webhook for kinds of Lifecycle Manager";
        findings.push(Finding::new(Level::Ready, Topic::Webhooks, message));
    }
    findings
}

/// The Services to which Watchers lead events of runtimes: how many Watchers name each, and the program behind it.
pub fn watchers(services: &BTreeMap<Key, (usize, Behind)>) -> Vec<Finding> {
    let finding = |level: Level, message: String| Finding::new(level, Topic::Watchers, message);
    if services.is_empty() {
        let message = "there are no Watchers; Tidegate finds changes in runtimes at its `--resync`".to_owned();
        return vec![finding(Level::Note, message)];
    }
    let mut findings = Vec::new();
    for (service, (count, behind)) in services {
        let (watchers, send) = (counted(*count, "Watcher"), agreeing(*count, "sends", "send"));
        findings.push(match behind {
            Behind::LifecycleManager => {
                let message =
                    format!("{watchers} {send} events to Service {service}, which selects pods of Lifecycle Manager");
                let next = "after the switch, let it select the pods of Tidegate: see docs/take-over.md; until then, \
                            Tidegate finds changes in runtimes at its `--resync`";
                finding(Level::Note, message).next(next)
            }
            Behind::Absent => {
                let message = format!("{watchers} {send} events to Service {service}, which does not exist");
                finding(Level::Note, message).next("create it, as in deploy/overlays/istio-cert-manager/events.yaml")
            }
            Behind::Other => {
                let message = format!(
                    "{watchers} {send} events to Service {service}, which does not select pods of Lifecycle Manager"
                );
                finding(Level::Ready, message)
            }
        });
    }
    findings
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{super::tests::lines, *};

    #[test]
    fn only_a_webhook_that_stops_with_lifecycle_manager_blocks() {
        let webhook = |purpose: Purpose| Webhook {
            object: "ValidatingWebhookConfiguration a".to_owned(),
            service: Some(Key::new("kcp-system", "klm-webhook-service")),
            purpose,
        };
        let levels = |behind: Behind| {
            let all = [Purpose::Required, Purpose::Converts, Purpose::Optional].map(|one| (webhook(one), behind));
            webhooks(&all).iter().map(|finding| finding.level).collect::<Vec<Level>>()
        };
        assert_eq!(levels(Behind::LifecycleManager), [Level::Blocks, Level::Blocks, Level::Note]);
        assert_eq!(levels(Behind::Other), [Level::Note; 3]);
        assert_eq!(levels(Behind::Absent), [Level::Note; 3]);
        let none = "Ready: the control plane has no webhook for kinds of Lifecycle Manager";
        assert_eq!(lines(&webhooks(&[])), [none]);
    }

    #[test]
    fn the_program_behind_a_service_is_what_its_selector_names() {
        let service = |name: &str| json!({"spec": {"selector": {"app.kubernetes.io/name": name}}});
        assert_eq!(Behind::of(None), Behind::Absent);
        assert_eq!(Behind::of(Some(&service("lifecycle-manager"))), Behind::LifecycleManager);
        assert_eq!(Behind::of(Some(&service("tidegate"))), Behind::Other);
        assert_eq!(Behind::of(Some(&json!({"spec": {}}))), Behind::Other);
    }

    #[test]
    fn events_lead_to_lifecycle_manager_until_its_service_is_replaced() {
        let of = |count: usize, behind: Behind| {
            lines(&watchers(&BTreeMap::from([(Key::new("kcp-system", "events"), (count, behind))])))
        };
        assert_eq!(
            of(2, Behind::LifecycleManager),
            [
                "Note: 2 Watchers send events to Service kcp-system/events, which selects pods of Lifecycle Manager; after \
              the switch, let it select the pods of Tidegate: see docs/take-over.md; until then, Tidegate finds changes \
              in runtimes at its `--resync`"
            ]
        );
        assert!(
            of(1, Behind::Absent)[0].starts_with("Note: 1 Watcher sends events to Service kcp-system/events, which ")
        );
        assert!(of(1, Behind::Other)[0].starts_with("Ready: "));
        assert!(lines(&watchers(&BTreeMap::new()))[0].starts_with("Note: there are no Watchers"));
    }
}
