//! What reviewers look for in a change: images, and what accounts may do.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::model::{Action, Difference, Report};

/// Fields with the containers of a Pod.
const CONTAINERS: [&str; 3] = ["containers", "initContainers", "ephemeralContainers"];
/// The field with the volumes of a Pod. One may be an image.
const VOLUMES: &str = "volumes";
/// The labels of a ClusterRole whose rights every holder of another ClusterRole gets.
const AGGREGATE_TO: &str = "rbac.authorization.k8s.io/aggregate-to-";
const RBAC_GROUP: &str = "rbac.authorization.k8s.io";

/// The images that change, one sentence each, without duplicates: `registry/manager: 1.0.0 → 1.1.0`.
pub(super) fn images(report: &Report) -> Vec<String> {
    let mut found: BTreeMap<(Option<String>, Option<String>), BTreeSet<String>> = BTreeMap::new();
    for one in made(report) {
        let (old, new) = (of_object(one.old.as_deref()), of_object(one.new.as_deref()));
        let containers: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
        for container in containers {
            let pair = (old.get(container).cloned(), new.get(container).cloned());
            if pair.0 != pair.1 {
                found.entry(pair).or_default().insert(format!("{} {}", one.id.kind, one.id.name));
            }
        }
    }
    found.into_iter().map(|((old, new), objects)| image(old.as_deref(), new.as_deref(), &objects)).collect()
}

/// The rights that come and go, one sentence for each object.
pub(super) fn rights(report: &Report) -> Vec<String> {
    let objects = made(report).filter(|one| &*one.id.group == RBAC_GROUP);
    let mut sentences: Vec<String> = objects.filter_map(right).collect();
    sentences.sort();
    sentences.dedup();
    sentences
}

/// The differences in runtimes, without those that an API server refuses.
fn made(report: &Report) -> impl Iterator<Item = &Difference> {
    report.in_runtimes().filter(|one| one.action != Action::Refuse)
}

fn image(old: Option<&str>, new: Option<&str>, objects: &BTreeSet<String>) -> String {
    let what = match (old, new) {
        (Some(old), Some(new)) => match (split(old), split(new)) {
            ((before, from), (after, to)) if before == after => format!("{before}: {from} → {to}"),
            _ => format!("{old} → {new}"),
        },
        (None, Some(new)) => format!("{new} comes"),
        (Some(old), None) => format!("{old} goes"),
        (None, None) => String::new(),
    };
    let first = objects.first().map_or("", String::as_str);
    match objects.len() {
        0 | 1 => format!("{what} ({first})"),
        count => format!("{what} ({first} and {} more)", count - 1),
    }
}

/// An image as its repository, and its tag and digest.
fn split(image: &str) -> (&str, &str) {
    let name_start = image.rfind('/').map_or(0, |slash| slash + 1);
    match image[name_start..].find([':', '@']) {
        Some(end) => (&image[..name_start + end], image[name_start + end..].trim_start_matches([':', '@'])),
        None => (image, "latest"),
    }
}

/// The images of an object by container and by volume.
fn of_object(object: Option<&Value>) -> BTreeMap<String, String> {
    fn collect(value: &Value, found: &mut BTreeMap<String, String>) {
        match value {
            Value::Object(fields) => {
                for (field, value) in fields {
                    let image: fn(&Value) -> Option<String> = match field.as_str() {
                        VOLUMES => |volume: &Value| volume["image"]["reference"].as_str().map(str::to_owned),
                        _ => |container: &Value| container["image"].as_str().map(str::to_owned),
                    };
                    let has_images = field == VOLUMES || CONTAINERS.contains(&field.as_str());
                    match value.as_array().filter(|_| has_images) {
                        Some(items) => found.extend(items.iter().filter_map(|item| {
                            let name = item["name"].as_str().unwrap_or_default();
                            Some((format!("{field} {name}"), image(item)?))
                        })),
                        None => collect(value, found),
                    }
                }
            }
            Value::Array(items) => items.iter().for_each(|item| collect(item, found)),
            _ => {}
        }
    }
    let mut found = BTreeMap::new();
    object.into_iter().for_each(|object| collect(object, &mut found));
    found
}

/// `ClusterRole cache: gains get, list of secrets; loses * of pods`. Of an aggregated ClusterRole it says who has its
/// rights: `ClusterRole cache, for every holder of view: gains …`. `None` if no right differs.
fn right(one: &Difference) -> Option<String> {
    let (old, new) = (grants(one.old.as_deref()), grants(one.new.as_deref()));
    let change = |verb: &str, from: &Grants, without: &Grants| -> Option<String> {
        let parts: Vec<String> = from
            .iter()
            .filter_map(|(what, verbs)| {
                let known = without.get(what);
                let more: Vec<&str> = verbs
                    .iter()
                    .filter(|verb| !known.is_some_and(|known| known.contains(*verb)))
                    .map(String::as_str)
                    .collect();
                (!more.is_empty()).then(|| format!("{}{what}", more.join(", ")))
            })
            .collect();
        (!parts.is_empty()).then(|| format!("{verb} {}", parts.join("; ")))
    };
    // Who gets rights is said first: a long sentence is cut.
    let (before, after) = (holders(one.old.as_deref()), holders(one.new.as_deref()));
    let listed = |names: Vec<&str>| (!names.is_empty()).then(|| format!("every holder of {}", names.join(", ")));
    let come = listed(after.difference(&before).copied().collect()).map(|all| format!("{all} gets its rights"));
    let gone = listed(before.difference(&after).copied().collect()).map(|all| format!("{all} loses its rights"));
    let parts = [come, gone, change("gains", &new, &old), change("loses", &old, &new)];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    let stay = listed(before.intersection(&after).copied().collect()).map(|all| format!(", for {all}"));
    let stay = stay.unwrap_or_default();
    (!parts.is_empty()).then(|| format!("{} {}{stay}: {}", one.id.kind, one.id.name, parts.join("; ")))
}

/// The ClusterRoles whose holders get the rights of this one.
fn holders(role: Option<&Value>) -> BTreeSet<&str> {
    let labels = role.and_then(|role| role["metadata"]["labels"].as_object());
    let aggregated = labels.into_iter().flatten().filter(|(_, value)| *value == "true");
    aggregated.filter_map(|(label, _)| label.strip_prefix(AGGREGATE_TO)).collect()
}

/// The label selector of an aggregated ClusterRole: `ClusterRoles with a=b, c In d e`.
fn selected(selector: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let labels = selector["matchLabels"].as_object().into_iter().flatten();
    let labels = labels.map(|(label, value)| format!("{label}={}", text(value)));
    let expressions = selector["matchExpressions"].as_array().into_iter().flatten().map(|one| {
        let values = one["values"].as_array().into_iter().flatten().map(text);
        let words: Vec<String> = [text(&one["key"]), text(&one["operator"])].into_iter().chain(values).collect();
        words.join(" ")
    });
    let all: Vec<String> = labels.chain(expressions).collect();
    if all.is_empty() { "all ClusterRoles".to_owned() } else { format!("ClusterRoles with {}", all.join(", ")) }
}

/// Verbs, subjects and roles, by what they are about.
type Grants = BTreeMap<String, BTreeSet<String>>;

fn grants(object: Option<&Value>) -> Grants {
    let mut grants = Grants::new();
    let Some(object) = object else { return grants };
    let list = |value: &Value| -> Vec<String> {
        value.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
    };
    for rule in object["rules"].as_array().into_iter().flatten() {
        let names = list(&rule["resourceNames"]);
        let named = if names.is_empty() { String::new() } else { format!(" named {}", names.join(", ")) };
        let groups = list(&rule["apiGroups"]);
        let resources = list(&rule["resources"]);
        let resources = groups.iter().flat_map(|group| {
            let group = if group.is_empty() { String::new() } else { format!(".{group}") };
            resources.iter().map(move |resource| format!("{resource}{group}"))
        });
        for what in resources.chain(list(&rule["nonResourceURLs"])) {
            grants.entry(format!(" of {what}{named}")).or_default().extend(list(&rule["verbs"]));
        }
    }
    for selector in object["aggregationRule"]["clusterRoleSelectors"].as_array().into_iter().flatten() {
        let of = format!("the rights of {}", selected(selector));
        grants.entry(" by aggregation".to_owned()).or_default().insert(of);
    }
    let text = |value: &Value, field: &str| value[field].as_str().unwrap_or_default().to_owned();
    for subject in object["subjects"].as_array().into_iter().flatten() {
        let namespace = match text(subject, "namespace") {
            namespace if namespace.is_empty() => namespace,
            namespace => format!("{namespace}/"),
        };
        let subject = format!("{} {namespace}{}", text(subject, "kind"), text(subject, "name"));
        grants.entry(" as subject".to_owned()).or_default().insert(subject);
    }
    if object["roleRef"].is_object() {
        let role = format!("{} {}", text(&object["roleRef"], "kind"), text(&object["roleRef"], "name"));
        grants.entry(" as role".to_owned()).or_default().insert(role);
    }
    grants
}

#[cfg(test)]
mod tests;
