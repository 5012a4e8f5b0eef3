//! Collects unknown values: placeholders, modules that are not in git, and module lists that
//! runtimes control.

use std::collections::BTreeMap;

use super::{Comparison, Request, Runtime, Seen, modules::NAMESPACE};
use tidegate_core::{
    definition::Kind,
    name::Key,
    object::Object,
    render::live::{self, UID_OF, Unknown},
};

use crate::model::{Action, Difference, NotKnown, Side};

/// All unknown values, without duplicates. `shown` are the VirtualServices of the new side.
pub(super) fn all(
    comparison: &Comparison<'_>,
    seen: &Seen,
    differences: &[Difference],
    shown: &[Object],
) -> Vec<NotKnown> {
    let mut known = BTreeMap::new();
    let gateways_differ = gateways_differ(comparison);
    for object in shown {
        for (path, value) in live::placeholders(object.value()) {
            let may_hide = gateways_differ && !value.starts_with(UID_OF);
            add(&mut known, value, ("kcp".to_owned(), object.id().to_string(), path), 1, may_hide);
        }
    }
    webhook(comparison, &mut known);
    for difference in differences {
        placeholders(difference, &mut known);
    }
    lists(comparison, seen, &mut known);
    let elsewhere = |known: &mut BTreeMap<String, NotKnown>, what: &str, runtimes: &[Runtime]| {
        let first = runtimes.first().and_then(|first| comparison.keys.get(*first as usize));
        let target = first.map_or_else(|| "kcp".to_owned(), |key| format!("skr/{key}"));
        // An object whose namespace does not exist is shown: it only does not come.
        let may_hide = !what.starts_with(NAMESPACE);
        add(
            known,
            what.to_owned(),
            (target, "Manifest".to_owned(), "spec.install".to_owned()),
            runtimes.len(),
            may_hide,
        );
    };
    for (what, runtimes) in &seen.unknown {
        elsewhere(&mut known, what, runtimes);
    }
    withheld_before(comparison, &mut known);
    known.into_values().chain(users_custom_resources(differences)).collect()
}

/// Whether users have custom resources of CustomResourceDefinitions that leave runtimes: if they have, the definition
/// stays, and with it its module. `None` if none leaves.
fn users_custom_resources(differences: &[Difference]) -> Option<NotKnown> {
    let leaves = |one: &&Difference| {
        one.target == Side::Runtime && one.action == Action::Delete && &*one.id.kind == "CustomResourceDefinition"
    };
    let mut leaving = differences.iter().filter(leaves).peekable();
    let first = leaving.peek()?;
    let value = "custom resources of users, which keep their CustomResourceDefinition and its module".to_owned();
    let target = first.runtimes.first().map_or_else(|| "skr".to_owned(), |key| format!("skr/{key}"));
    let first =
        Unknown { value: value.clone(), target, object: first.id.to_string(), path: "metadata.finalizers".to_owned() };
    Some(NotKnown { value, first, occurrences: leaving.map(|one| one.objects).sum(), may_hide: false })
}

fn add(
    known: &mut BTreeMap<String, NotKnown>,
    value: String,
    (target, object, path): (String, String, String),
    occurrences: usize,
    may_hide: bool,
) {
    // Thousands of uids are reported as one unknown value.
    let key = if value.starts_with(UID_OF) { UID_OF.to_owned() } else { value.clone() };
    let first = Unknown { value: value.clone(), target, object, path };
    let entry = known.entry(key).or_insert(NotKnown { value, first, occurrences: 0, may_hide });
    entry.occurrences += occurrences;
    entry.may_hide |= may_hide;
}

/// Whether a Watcher selects other Gateways than before. Then their hosts, which are unknown here,
/// may differ.
fn gateways_differ(comparison: &Comparison<'_>) -> bool {
    let (old, new) = (&comparison.prepared.old.watchers, &comparison.prepared.new.watchers);
    new.iter().any(|(key, watcher)| old.get(key).is_some_and(|before| before.spec.gateway != watcher.spec.gateway))
}

/// Values of every runtime.
fn webhook(comparison: &Comparison<'_>, known: &mut BTreeMap<String, NotKnown>) {
    let (Some(class), Some(key)) = (comparison.new.classes().next(), comparison.keys.first()) else { return };
    for part in comparison.new.shared(class) {
        for shared in part.shared.objects.iter().filter(|object| &*object.id.group == "admissionregistration.k8s.io") {
            for (path, value) in live::placeholders(shared.object(key).value()) {
                let place = (format!("skr/{key}"), shared.id.to_string(), path);
                add(known, value, place, comparison.prepared.new.kymas.len(), false);
            }
        }
    }
}

/// Placeholders in differences.
fn placeholders(difference: &Difference, known: &mut BTreeMap<String, NotKnown>) {
    // Objects that are applied as written may contain any text. The webhook configuration is already counted for all
    // runtimes.
    let Some(value) = difference.new.as_ref().filter(|_| difference.maker.is_some()) else { return };
    if matches!(&*difference.id.kind, "ValidatingWebhookConfiguration" | "VirtualService") {
        return;
    }
    for (path, name) in live::placeholders(value) {
        let target = match (difference.target, difference.runtimes.first()) {
            (Side::Runtime, Some(key)) => format!("skr/{key}"),
            _ => "kcp".to_owned(),
        };
        add(known, name, (target, difference.id.to_string(), path), difference.objects, false);
    }
}

/// Module lists of runtimes that select their own modules, now or before.
fn lists(comparison: &Comparison<'_>, seen: &Seen, known: &mut BTreeMap<String, NotKnown>) {
    let lists = [(&seen.deciding, !comparison.touched.is_empty()), (&seen.decided, true)];
    for (runtimes, may_hide) in lists {
        let Some(first) = runtimes.first().and_then(|first| comparison.keys.get(*first as usize)) else { continue };
        let place = (
            format!("skr/{first}"),
            "Kyma.operator.kyma-project.io kyma-system/default".to_owned(),
            "spec.modules".to_owned(),
        );
        let value = "module lists of runtimes that select their own modules".to_owned();
        add(known, value, place, runtimes.len(), may_hide);
    }
}

/// Definitions that the old side holds back and the new one does not: the cluster has a version
/// that neither side contains.
fn withheld_before(comparison: &Comparison<'_>, known: &mut BTreeMap<String, NotKnown>) {
    let to = &comparison.request.to.definitions.good;
    for withheld in &comparison.request.from.definitions.withheld {
        let id: (Kind, Key) = (withheld.kind, withheld.key.clone());
        let Request { known: file, source, .. } = comparison.request;
        let is_known = file.is_some_and(|file| file.last_good(id.0, &id.1, source).is_some());
        if to.contains_key(&id) && !is_known {
            let object = format!("{} {}", withheld.kind, withheld.key);
            let value = format!("last good version of {object}, which the old side holds back");
            add(known, value, ("kcp".to_owned(), object, String::new()), 1, true);
        }
    }
}
