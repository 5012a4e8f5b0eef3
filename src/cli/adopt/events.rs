//! What leads to Lifecycle Manager: webhooks of the control plane, and the Services of Watchers. Sends reads only.

use std::collections::BTreeMap;

use anyhow::Context as _;
use k8s_openapi::api::core::v1::Service;
use serde_json::Value;
use tidegate_cluster::{Cluster, Kind};
use tidegate_core::{
    adopt::{Behind, Purpose, Webhook},
    api::KYMA_GROUP,
    name::Key,
    object::{Gvk, Object},
};

/// The kinds of objects that register webhooks for writes.
const KINDS: [&str; 2] = ["MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"];

/// The webhooks for custom resources of Lifecycle Manager, each with the program that answers. `converting` are those
/// of CustomResourceDefinitions. Fails if a request fails.
pub(super) async fn webhooks(
    cluster: &Cluster,
    converting: impl IntoIterator<Item = Webhook>,
) -> anyhow::Result<Vec<(Webhook, Behind)>> {
    let mut found: Vec<Webhook> = converting.into_iter().collect();
    for kind in KINDS {
        let kind = Kind::built_in(&Gvk::new("admissionregistration.k8s.io", "v1", kind));
        let kind = kind.context("a webhook configuration is a built-in kind")?;
        for configuration in cluster.list(&kind, None, None).await? {
            found.extend(of_configuration(&configuration));
        }
    }
    let mut webhooks = Vec::new();
    for webhook in found {
        let behind = match &webhook.service {
            Some(service) => behind(cluster, service).await?,
            None => Behind::Other,
        };
        webhooks.push((webhook, behind));
    }
    Ok(webhooks)
}

/// The webhooks in a configuration that are for custom resources of Lifecycle Manager, without duplicates.
fn of_configuration(configuration: &Object) -> Vec<Webhook> {
    let id = configuration.id();
    let entries = configuration.value()["webhooks"].as_array().into_iter().flatten();
    let concerning = entries.filter(|entry| {
        let rules = entry["rules"].as_array().into_iter().flatten();
        let mut groups = rules.flat_map(|rule| rule["apiGroups"].as_array().into_iter().flatten());
        // One for all groups is about objects of every program, such as that of a policy engine.
        groups.any(|group| group == KYMA_GROUP)
    });
    let mut webhooks: Vec<Webhook> = concerning
        .map(|entry| Webhook {
            object: format!("{} {}", id.kind, id.name),
            service: service_of(&entry["clientConfig"]),
            purpose: if entry["failurePolicy"] == "Ignore" { Purpose::Optional } else { Purpose::Required },
        })
        .collect();
    webhooks.dedup();
    webhooks
}

/// The webhook with which a CustomResourceDefinition converts its objects; `None` if it has none.
pub(super) fn converting(name: &str, definition: &Value) -> Option<Webhook> {
    let conversion = &definition["spec"]["conversion"];
    (conversion["strategy"] == "Webhook").then(|| Webhook {
        object: format!("CustomResourceDefinition {name}"),
        service: service_of(&conversion["webhook"]["clientConfig"]),
        purpose: Purpose::Converts,
    })
}

/// How many of these Watchers name each Service, and the program behind it. Fails if a request fails.
pub(super) async fn services(
    cluster: &Cluster,
    watchers: impl Iterator<Item = &Object>,
) -> anyhow::Result<BTreeMap<Key, (usize, Behind)>> {
    let mut counts: BTreeMap<Key, usize> = BTreeMap::new();
    for service in watchers.filter_map(|watcher| service_of(&watcher.value()["spec"]["serviceInfo"])) {
        *counts.entry(service).or_default() += 1;
    }
    let mut services = BTreeMap::new();
    for (service, count) in counts {
        let behind = behind(cluster, &service).await?;
        services.insert(service, (count, behind));
    }
    Ok(services)
}

async fn behind(cluster: &Cluster, service: &Key) -> anyhow::Result<Behind> {
    let found: Option<Value> = cluster.get_as(&Kind::namespaced::<Service>(), service).await?;
    Ok(Behind::of(found.as_ref()))
}

/// The Service that a `clientConfig` names, or the value of a Watcher's `serviceInfo`.
fn service_of(config: &Value) -> Option<Key> {
    let service = config.get("service").unwrap_or(config);
    Some(Key::new(service["namespace"].as_str()?, service["name"].as_str()?))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_webhooks_that_name_the_group_concern_the_take_over() {
        let entry = |groups: Value, more: Value| {
            let mut entry = json!({
                "rules": [{"apiGroups": groups, "resources": ["*"]}],
                "clientConfig": {"service": {"namespace": "kcp-system", "name": "klm-webhook-service"}},
            });
            entry.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            entry
        };
        let configuration = Object::new(json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
            "metadata": {"name": "a"},
            "webhooks": [
                entry(json!([KYMA_GROUP]), json!({})),
                entry(json!(["apps", KYMA_GROUP]), json!({"failurePolicy": "Fail"})),
                entry(json!([KYMA_GROUP]), json!({"failurePolicy": "Ignore", "clientConfig": {"url": "https://a"}})),
                entry(json!(["*"]), json!({})),
            ],
        }));
        let object = "ValidatingWebhookConfiguration a".to_owned();
        let service = Some(Key::new("kcp-system", "klm-webhook-service"));
        assert_eq!(
            of_configuration(&configuration.unwrap()),
            [
                Webhook { object: object.clone(), service, purpose: Purpose::Required },
                Webhook { object, service: None, purpose: Purpose::Optional },
            ]
        );
    }

    #[test]
    fn a_definition_converts_by_a_webhook_only_if_it_says_so() {
        let client = json!({"service": {"namespace": "kcp-system", "name": "klm"}});
        let definition = |strategy: &str| json!({"spec": {"conversion": {"strategy": strategy, "webhook": {"clientConfig": client}}}});
        assert_eq!(converting("kymas", &definition("None")), None);
        let found = converting("kymas", &definition("Webhook")).unwrap();
        assert_eq!((found.service, found.purpose), (Some(Key::new("kcp-system", "klm")), Purpose::Converts));
    }
}
