// SPDX-License-Identifier: Apache-2.0

//! The columns of the built-in kinds.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::age;

/// A column: its name, type and priority, and its cell for an object.
pub(super) struct Column(pub(super) &'static str, pub(super) &'static str, pub(super) u8, pub(super) Cell);

type Cell = fn(&Value, Timestamp) -> Value;

const NAME: Column = Column("Name", "string", 0, |object, _| object["metadata"]["name"].clone());
const AGE: Column = Column("Age", "string", 0, |object, now| age(&object["metadata"]["creationTimestamp"], now));
const CREATED: Column = Column("Created At", "date", 0, |object, _| object["metadata"]["creationTimestamp"].clone());
const CONTAINERS: Column =
    Column("Containers", "string", 1, |object, _| of_containers(&object["spec"]["template"], "name"));
const IMAGES: Column = Column("Images", "string", 1, |object, _| of_containers(&object["spec"]["template"], "image"));
const SELECTOR: Column = Column("Selector", "string", 1, |object, _| selector(&object["spec"]["selector"]));
const DESIRED: Column = Column("Desired", "integer", 0, |object, _| number(object, "/spec/replicas"));
const CURRENT: Column = Column("Current", "integer", 0, |object, _| number(object, "/status/replicas"));
const READY: Column = Column("Ready", "integer", 0, |object, _| number(object, "/status/readyReplicas"));
const READY_OF: Column = Column("Ready", "string", 0, |object, _| {
    Value::from(format!("{}/{}", number(object, "/status/readyReplicas"), number(object, "/spec/replicas")))
});
const ROLE: Column = Column("Role", "string", 0, |object, _| {
    Value::from(format!("{}/{}", text(&object["roleRef"]["kind"]), text(&object["roleRef"]["name"])))
});
const USERS: Column = Column("Users", "string", 1, |object, _| subjects(object, "User"));
const GROUPS: Column = Column("Groups", "string", 1, |object, _| subjects(object, "Group"));
const ACCOUNTS: Column = Column("ServiceAccounts", "string", 1, |object, _| subjects(object, "ServiceAccount"));

static PLAIN: &[Column] = &[NAME, AGE];
static DATED: &[Column] = &[NAME, CREATED];
static BINDINGS: &[Column] = &[NAME, ROLE, AGE, USERS, GROUPS, ACCOUNTS];
static SETS: &[Column] = &[NAME, DESIRED, CURRENT, READY, AGE, CONTAINERS, IMAGES, SELECTOR];
static STATEFUL_SETS: &[Column] = &[NAME, READY_OF, AGE, CONTAINERS, IMAGES];
static CONFIG_MAPS: &[Column] =
    &[NAME, Column("Data", "string", 0, |object, _| json!(count(&object["data"]) + count(&object["binaryData"]))), AGE];
static SECRETS: &[Column] = &[
    NAME,
    Column("Type", "string", 0, |object, _| object["type"].clone()),
    Column("Data", "string", 0, |object, _| json!(count(&object["data"]))),
    AGE,
];
static PHASES: &[Column] = &[NAME, Column("Status", "string", 0, |object, _| object["status"]["phase"].clone()), AGE];
static DEPLOYMENTS: &[Column] = &[
    NAME,
    READY_OF,
    Column("Up-to-date", "string", 0, |object, _| number(object, "/status/updatedReplicas")),
    Column("Available", "string", 0, |object, _| number(object, "/status/availableReplicas")),
    AGE,
    CONTAINERS,
    IMAGES,
    SELECTOR,
];
static DAEMON_SETS: &[Column] = &[
    NAME,
    Column("Desired", "integer", 0, |object, _| number(object, "/status/desiredNumberScheduled")),
    Column("Current", "integer", 0, |object, _| number(object, "/status/currentNumberScheduled")),
    Column("Ready", "integer", 0, |object, _| number(object, "/status/numberReady")),
    Column("Up-to-date", "integer", 0, |object, _| number(object, "/status/updatedNumberScheduled")),
    Column("Available", "integer", 0, |object, _| number(object, "/status/numberAvailable")),
    Column("Node Selector", "string", 0, |object, _| pairs(&object["spec"]["template"]["spec"]["nodeSelector"])),
    AGE,
    CONTAINERS,
    IMAGES,
    SELECTOR,
];
static SERVICES: &[Column] = &[
    NAME,
    Column("Type", "string", 0, |object, _| object["spec"]["type"].clone()),
    Column("Cluster-IP", "string", 0, |object, _| or_none(&object["spec"]["clusterIP"])),
    Column("External-IP", "string", 0, |object, _| external_address(&object["spec"])),
    Column("Port(s)", "string", 0, |object, _| ports(&object["spec"]["ports"])),
    AGE,
    Column("Selector", "string", 1, |object, _| pairs(&object["spec"]["selector"])),
];
static EVENTS: &[Column] = &[
    Column("Last Seen", "string", 0, last_seen),
    Column("Type", "string", 0, |object, _| Value::from(text(&object["type"]))),
    Column("Reason", "string", 0, |object, _| Value::from(text(&object["reason"]))),
    Column("Object", "string", 0, involved),
    Column("Subobject", "string", 1, |object, _| Value::from(text(&object["involvedObject"]["fieldPath"]))),
    Column("Source", "string", 1, source),
    Column("Message", "string", 0, |object, _| Value::from(text(&object["message"]).trim())),
    Column("First Seen", "string", 1, first_seen),
    Column("Count", "string", 1, |object, _| match (&object["series"]["count"], &object["count"]) {
        (Value::Null, Value::Null) => json!(1),
        (Value::Null, count) => count.clone(),
        (count, _) => count.clone(),
    }),
    Column("Name", "string", 1, |object, _| object["metadata"]["name"].clone()),
];
static LEASES: &[Column] =
    &[NAME, Column("Holder", "string", 0, |object, _| Value::from(text(&object["spec"]["holderIdentity"]))), AGE];
static WEBHOOKS: &[Column] = &[
    NAME,
    Column("Webhooks", "integer", 0, |object, _| json!(object["webhooks"].as_array().map_or(0, Vec::len))),
    AGE,
];
static POLICIES: &[Column] =
    &[NAME, Column("Pod-Selector", "string", 0, |object, _| selector(&object["spec"]["podSelector"])), AGE];
static BUDGETS: &[Column] = &[
    NAME,
    Column("Min Available", "string", 0, |object, _| amount(&object["spec"]["minAvailable"])),
    Column("Max Unavailable", "string", 0, |object, _| amount(&object["spec"]["maxUnavailable"])),
    Column("Allowed Disruptions", "integer", 0, |object, _| number(object, "/status/disruptionsAllowed")),
    AGE,
];
static PRIORITIES: &[Column] = &[
    NAME,
    Column("Value", "integer", 0, |object, _| number(object, "/value")),
    Column("Global-Default", "boolean", 0, |object, _| json!(object["globalDefault"] == true)),
    AGE,
    Column("PreemptionPolicy", "string", 0, |object, _| Value::from(text(&object["preemptionPolicy"]))),
];
static CLASSES: &[Column] =
    &[NAME, Column("Controller", "string", 0, |object, _| Value::from(text(&object["spec"]["controller"]))), AGE];

/// The columns of a built-in collection, in the server's order.
pub(super) fn for_collection(collection: &str) -> &'static [Column] {
    match collection {
        "configmaps" => CONFIG_MAPS,
        "secrets" => SECRETS,
        "namespaces" | "pods" | "persistentvolumeclaims" | "persistentvolumes" => PHASES,
        "services" => SERVICES,
        "events" => EVENTS,
        "limitranges" => DATED,
        "replicationcontrollers" | "replicasets.apps" => SETS,
        "daemonsets.apps" => DAEMON_SETS,
        "deployments.apps" => DEPLOYMENTS,
        "statefulsets.apps" => STATEFUL_SETS,
        "ingressclasses.networking.k8s.io" => CLASSES,
        "networkpolicies.networking.k8s.io" => POLICIES,
        "poddisruptionbudgets.policy" => BUDGETS,
        "clusterrolebindings.rbac.authorization.k8s.io" | "rolebindings.rbac.authorization.k8s.io" => BINDINGS,
        "clusterroles.rbac.authorization.k8s.io" | "roles.rbac.authorization.k8s.io" => DATED,
        "mutatingwebhookconfigurations.admissionregistration.k8s.io"
        | "validatingwebhookconfigurations.admissionregistration.k8s.io" => WEBHOOKS,
        "customresourcedefinitions.apiextensions.k8s.io" => DATED,
        "priorityclasses.scheduling.k8s.io" => PRIORITIES,
        "leases.coordination.k8s.io" => LEASES,
        _ => PLAIN,
    }
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn or_none(value: &Value) -> Value {
    Value::from(if text(value).is_empty() { "<none>" } else { text(value) })
}

fn number(object: &Value, pointer: &str) -> Value {
    json!(object.pointer(pointer).and_then(Value::as_i64).unwrap_or_default())
}

fn count(value: &Value) -> usize {
    value.as_object().map_or(0, serde_json::Map::len)
}

fn items(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn join<'a>(items: impl Iterator<Item = &'a Value>, separator: &str) -> String {
    items.map(text).collect::<Vec<_>>().join(separator)
}

fn of_containers(template: &Value, field: &str) -> Value {
    join(items(&template["spec"]["containers"]).map(|container| &container[field]), ",").into()
}

fn equalities(labels: &Value) -> Vec<String> {
    let labels = labels.as_object().into_iter().flatten();
    let mut all: Vec<String> = labels.map(|(key, value)| format!("{key}={}", text(value))).collect();
    all.sort_unstable();
    all
}

/// Labels as pairs.
fn pairs(labels: &Value) -> Value {
    let all = equalities(labels);
    Value::from(if all.is_empty() { "<none>".to_owned() } else { all.join(",") })
}

/// A label selector, or a plain mapping.
fn selector(selector: &Value) -> Value {
    if selector["matchLabels"].is_null() && selector["matchExpressions"].is_null() {
        let plain = selector.as_object().is_some_and(|fields| !fields.is_empty());
        return if plain { pairs(selector) } else { "<none>".into() };
    }
    // By key, as the server sorts selectors.
    let mut terms: Vec<(String, String)> = selector["matchLabels"]
        .as_object()
        .into_iter()
        .flatten()
        .map(|(key, value)| (key.clone(), format!("{key}={}", text(value))))
        .collect();
    terms.extend(items(&selector["matchExpressions"]).map(|term| {
        let key = text(&term["key"]);
        let mut values: Vec<&str> = items(&term["values"]).map(text).collect();
        values.sort_unstable();
        let values = values.join(",");
        let said = match text(&term["operator"]) {
            "In" => format!("{key} in ({values})"),
            "NotIn" => format!("{key} notin ({values})"),
            "Exists" => key.to_owned(),
            _ => format!("!{key}"),
        };
        (key.to_owned(), said)
    }));
    terms.sort();
    let terms: Vec<String> = terms.into_iter().map(|(_, said)| said).collect();
    terms.join(",").into()
}

fn subjects(object: &Value, kind: &str) -> Value {
    let of_kind = items(&object["subjects"]).filter(|subject| subject["kind"] == kind);
    let named: Vec<String> = of_kind
        .map(|subject| match (kind, text(&subject["namespace"])) {
            ("ServiceAccount", namespace) => format!("{namespace}/{}", text(&subject["name"])),
            _ => text(&subject["name"]).to_owned(),
        })
        .collect();
    named.join(", ").into()
}

fn external_address(spec: &Value) -> Value {
    let own = join(items(&spec["externalIPs"]), ",");
    match (text(&spec["type"]), own.is_empty()) {
        ("ExternalName", _) => spec["externalName"].clone(),
        (_, false) => own.into(),
        ("LoadBalancer", true) => "<pending>".into(),
        (_, true) => "<none>".into(),
    }
}

fn ports(ports: &Value) -> Value {
    let ports: Vec<String> = items(ports)
        .map(|port| match port["nodePort"].as_i64().filter(|number| *number > 0) {
            Some(node) => format!("{}:{node}/{}", port["port"], text(&port["protocol"])),
            None => format!("{}/{}", port["port"], text(&port["protocol"])),
        })
        .collect();
    Value::from(if ports.is_empty() { "<none>".to_owned() } else { ports.join(",") })
}

/// A number or a percentage.
fn amount(value: &Value) -> Value {
    match value {
        Value::Null => "N/A".into(),
        Value::String(share) => share.as_str().into(),
        other => other.to_string().into(),
    }
}

fn first_seen(object: &Value, now: Timestamp) -> Value {
    let first = &object["firstTimestamp"];
    age(if first.is_null() { &object["eventTime"] } else { first }, now)
}

fn last_seen(object: &Value, now: Timestamp) -> Value {
    match (&object["series"], &object["lastTimestamp"]) {
        (Value::Object(series), _) => age(series.get("lastObservedTime").unwrap_or(&Value::Null), now),
        (_, Value::Null) => first_seen(object, now),
        (_, last) => age(last, now),
    }
}

fn involved(object: &Value, _: Timestamp) -> Value {
    let (kind, name) =
        (text(&object["involvedObject"]["kind"]).to_lowercase(), text(&object["involvedObject"]["name"]));
    Value::from(if name.is_empty() { kind } else { format!("{kind}/{name}") })
}

fn source(object: &Value, _: Timestamp) -> Value {
    let first = |own: &Value, reporting: &Value| {
        if text(own).is_empty() { text(reporting).to_owned() } else { text(own).to_owned() }
    };
    let component = first(&object["source"]["component"], &object["reportingComponent"]);
    let instance = first(&object["source"]["host"], &object["reportingInstance"]);
    Value::from(if instance.is_empty() { component } else { format!("{component}, {instance}") })
}
