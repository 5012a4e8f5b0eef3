//! What reports changes goes with its Kyma: first the webhook configuration, then what it asks, then the certificate.
//!
//! Only what bears our mark is deleted, which is Lifecycle Manager's as well.

use super::{super::RuntimePass, kinds};
use tidegate_cluster::{Cluster, Error, Propagation};
use tidegate_core::{
    api::names::{
        MANAGED_BY_SKR, SKR_NAMESPACE, SKR_WEBHOOK, SKR_WEBHOOK_METRICS, SKR_WEBHOOK_POLICIES, SKR_WEBHOOK_SECRET,
        label,
    },
    name::Key,
    object::{Gvk, ObjectId},
    plan::reporting::{Agent, PRIORITY_CLASS},
};

/// Deletes it in the runtime. Returns how many objects that took.
pub(in super::super) async fn remove(pass: &RuntimePass<'_>, cluster: &Cluster) -> Result<usize, Error> {
    let names = names(pass.context.agent.as_ref());
    let found = cluster.survey(names.iter().map(|(gvk, id)| (gvk, id))).await?;
    let mut deleted = 0;
    for (gvk, id) in &names {
        let Some(metadata) = found.get(id) else { continue };
        if metadata.deleting || metadata.label(label::MANAGED_BY) != Some(MANAGED_BY_SKR) {
            continue;
        }
        let Some(kind) = cluster.kind(gvk).await? else { continue };
        cluster.delete(pass.cause, &kind, metadata, Propagation::Background).await?;
        deleted += 1;
    }
    Ok(deleted)
}

/// Everything that there may be, in the order in which it goes.
fn names(agent: Option<&Agent>) -> Vec<(Gvk, ObjectId)> {
    let gvk = |kind: &str| kinds(true).into_iter().find(|gvk| &*gvk.kind == kind).expect("it is one of ours");
    let mut keys = vec![
        ("ValidatingWebhookConfiguration", Key::new("", SKR_WEBHOOK)),
        ("Deployment", Key::new(SKR_NAMESPACE, SKR_WEBHOOK)),
        ("Service", Key::new(SKR_NAMESPACE, SKR_WEBHOOK)),
        ("Service", Key::new(SKR_NAMESPACE, SKR_WEBHOOK_METRICS)),
        ("PriorityClass", Key::new("", PRIORITY_CLASS)),
        ("Secret", Key::new(SKR_NAMESPACE, SKR_WEBHOOK_SECRET)),
    ];
    let pull_secret = agent.and_then(|agent| agent.pull_secret.as_deref());
    keys.extend(pull_secret.map(|name| ("Secret", Key::new(SKR_NAMESPACE, name))));
    keys.extend(SKR_WEBHOOK_POLICIES.map(|name| ("NetworkPolicy", Key::new(SKR_NAMESPACE, name))));
    keys.into_iter()
        .map(|(kind, key)| {
            let gvk = gvk(kind);
            let id = ObjectId::new(&gvk.group, &gvk.kind, key.namespace(), key.name());
            (gvk, id)
        })
        .collect()
}
