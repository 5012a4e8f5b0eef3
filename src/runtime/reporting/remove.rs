//! The end of reporting: Tidegate deletes the webhook configuration first, then what it calls, then the certificate.
//!
//! It deletes only objects with our ownership label. Lifecycle Manager uses the same label.

use tidegate_cluster::{Cluster, Error, Metadata};
use tidegate_core::{
    api::names::{
        MANAGED_BY_SKR, SKR_NAMESPACE, SKR_WEBHOOK, SKR_WEBHOOK_METRICS, SKR_WEBHOOK_POLICIES, SKR_WEBHOOK_SECRET,
        label,
    },
    name::Key,
    object::{Gvk, ObjectId},
    plan::reporting::PRIORITY_CLASS,
};

use super::{decide::kinds, enact};
use crate::runtime::{RuntimePass, objects::LiveObjects};

/// Deletes the objects of reporting in the runtime. Returns how many it deleted.
///
/// # Errors
///
/// The error of a request.
pub(in crate::runtime) async fn remove(pass: &RuntimePass<'_>, cluster: &Cluster) -> Result<usize, Error> {
    let names = names(pass.context.settings.plan.pull_secret.as_deref());
    let found = cluster.survey(names.iter().map(|(gvk, id)| (gvk, id))).await?;
    let mut deleted = 0;
    for (gvk, metadata) in to_delete(&names, &found) {
        deleted += enact::delete(cluster, pass.cause, gvk, metadata).await?;
    }
    Ok(deleted)
}

/// The objects to delete, in this order.
fn to_delete<'a>(names: &'a [(Gvk, ObjectId)], found: &'a LiveObjects) -> Vec<(&'a Gvk, &'a Metadata)> {
    let present = names.iter().filter_map(|(gvk, id)| Some((gvk, found.get(id)?)));
    let is_ours = |metadata: &Metadata| metadata.label(label::MANAGED_BY) == Some(MANAGED_BY_SKR);
    present.filter(|(_, metadata)| !metadata.deleting && is_ours(metadata)).collect()
}

/// All objects that may exist, in the order of deletion.
fn names(pull_secret: Option<&str>) -> Vec<(Gvk, ObjectId)> {
    let gvk = |kind: &str| kinds(true).into_iter().find(|gvk| &*gvk.kind == kind).expect("it is one of ours");
    let mut keys = vec![
        ("ValidatingWebhookConfiguration", Key::new("", SKR_WEBHOOK)),
        ("Deployment", Key::new(SKR_NAMESPACE, SKR_WEBHOOK)),
        ("Service", Key::new(SKR_NAMESPACE, SKR_WEBHOOK)),
        ("Service", Key::new(SKR_NAMESPACE, SKR_WEBHOOK_METRICS)),
        ("PriorityClass", Key::new("", PRIORITY_CLASS)),
        ("Secret", Key::new(SKR_NAMESPACE, SKR_WEBHOOK_SECRET)),
    ];
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::objects::fixtures::{live, metadata};

    #[test]
    fn only_present_objects_with_our_label_are_deleted_the_webhook_configuration_first() {
        let names = names(None);
        let one = |index: usize| metadata(&names[index].1, "1");
        let foreign = Metadata { labels: [].into(), ..one(2) };
        let going = Metadata { deleting: true, ..one(3) };
        let found = live([one(5), foreign, going, one(0)]);
        let deleted: Vec<&ObjectId> = to_delete(&names, &found).iter().map(|(_, metadata)| &metadata.id).collect();
        assert_eq!(deleted, [&names[0].1, &names[5].1]);
        assert_eq!(&*names[0].1.kind, "ValidatingWebhookConfiguration");
    }
}
