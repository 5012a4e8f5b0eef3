//! Renders the reporting of changes in a runtime: the webhook configuration, and the agent that it
//! calls.

use std::collections::BTreeMap;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Map, Value, json};

use crate::{
    api::{self, names, names::label},
    object::Object,
    plan::reporting::{Address, Agent, Drift, PRIORITY_CLASS, Watch},
    template::{Error, Stamp, Template, Templates},
};

/// The inputs of a webhook configuration.
#[derive(Clone, Copy, Debug)]
pub struct Reporting<'a> {
    /// The Watchers.
    pub watches: &'a [Watch],
    /// The CA bundle for the API server of a runtime: PEM in base64. Without it, the API server
    /// trusts no additional CA.
    pub ca_bundle: Option<&'a str>,
    /// How long the API server waits for an answer, in seconds.
    pub timeout_seconds: u8,
    /// The kinds of objects whose drift is reported, if Tidegate's agent is installed.
    pub drift: Option<&'a Drift>,
    /// The user of Tidegate in the runtime, if known. Its own writes are not reported.
    pub user: Option<&'a str>,
}

/// Maximum wait for an answer if the agent program is unknown, in seconds.
const ANSWER_SECONDS_MAX: u8 = 15;

/// The webhooks that report drift and scaling.
const DRIFT: &str = "drift.tidegate.dev";
const SCALE: &str = "scale.tidegate.dev";

/// Name of the match condition that excludes Tidegate's own writes.
const NOT_OURS: &str = "not-by-tidegate";
/// Excludes the notes of Kubernetes on changing workloads.
const NOT_NOTES: (&str, &str) = (
    "not-by-its-controller",
    "request.operation == 'DELETE' || !(request.userInfo.username in ['system:kube-controller-manager', \
     'system:serviceaccount:kube-system:deployment-controller'])",
);
/// A user scaled the object. This is visible after its controller has reacted. Scaling to zero
/// leaves no trace in the managed fields: the API server treats a zero in `Scale` as an unset
/// field.
const SCALED: (&str, &str) = (
    "scaled",
    "(object.spec.replicas == 0 || (has(object.metadata.managedFields) && object.metadata.managedFields.exists(f, \
     has(f.subresource) && f.subresource == 'scale'))) && (!has(oldObject.status.observedGeneration) || \
     oldObject.status.observedGeneration != object.status.observedGeneration)",
);

// === impl Reporting ===

impl<'a> Reporting<'a> {
    /// The inputs for Watchers alone.
    pub fn of_watchers(watches: &'a [Watch], ca_bundle: Option<&'a str>) -> Reporting<'a> {
        Reporting { watches, ca_bundle, timeout_seconds: ANSWER_SECONDS_MAX, drift: None, user: None }
    }
}

/// The webhook configuration of a runtime: one webhook for each Watcher, by namespace and name, and the drift webhooks.
///
/// # Errors
///
/// Fails if the template fails.
pub fn webhook(templates: &Templates, reporting: &Reporting<'_>) -> Result<Object, Error> {
    let mut sorted: Vec<&Watch> = reporting.watches.iter().collect();
    sorted.sort_by(|a, b| a.watcher.cmp(&b.watcher));
    let watches: Vec<Value> = sorted
        .into_iter()
        .map(|watch| {
            json!({
                "name": format!("{}.{}.{}", watch.watcher.namespace(), watch.watcher.name(), api::KYMA_GROUP),
                "watcher": { "namespace": watch.watcher.namespace(), "name": watch.watcher.name() },
                "manager": watch.manager,
                "path": format!("/validate/{}", watch.manager),
                "group": watch.group,
                "version": watch.version,
                "resource": watch.resource,
                "labels": watch.labels,
            })
        })
        .collect();
    let context = json!({
        "service": { "namespace": names::SKR_NAMESPACE, "name": names::SKR_WEBHOOK },
        "caBundle": reporting.ca_bundle,
        "timeoutSeconds": reporting.timeout_seconds,
        "watches": watches,
        "drift": reporting.drift.map(|of| drift(of, reporting.user)),
        "scale": reporting.drift.and_then(scale),
    });
    let stamp = Stamp::new("", names::SKR_WEBHOOK).label(label::MANAGED_BY, names::MANAGED_BY_SKR);
    templates.render(Template::Webhook, &context, &stamp, "the webhook configuration of runtimes")
}

/// Removes from an existing webhook configuration what daemon options and not definitions
/// determine: the drift webhooks, and the timeout.
pub fn as_installed(desired: &mut Object, live: &Value) {
    let installed = live["webhooks"].as_array().map(Vec::as_slice).unwrap_or_default();
    let map = desired.map_mut();
    let Some(webhooks) = map.entry("webhooks").or_insert_with(|| json!([])).as_array_mut() else { return };
    for webhook in webhooks.iter_mut() {
        if let Some(same) = installed.iter().find(|one| one["name"] == webhook["name"]) {
            webhook["timeoutSeconds"] = same["timeoutSeconds"].clone();
        }
    }
    webhooks.extend(installed.iter().filter(|one| one["name"] == DRIFT || one["name"] == SCALE).cloned());
}

/// Whether a webhook configuration has any webhook.
pub fn has_webhooks(configuration: &Value) -> bool {
    configuration["webhooks"].as_array().is_some_and(|webhooks| !webhooks.is_empty())
}

/// The webhooks of an installed configuration that call the agent for a Watcher.
pub fn of_watchers(installed: &Value) -> Vec<Value> {
    let webhooks = installed["webhooks"].as_array().map(Vec::as_slice).unwrap_or_default();
    let calls_agent = |webhook: &&Value| {
        let service = &webhook["clientConfig"]["service"];
        service["namespace"] == names::SKR_NAMESPACE && service["name"] == names::SKR_WEBHOOK
    };
    let is_part = |webhook: &Value| webhook["name"] == DRIFT || webhook["name"] == SCALE;
    webhooks.iter().filter(calls_agent).filter(|webhook| !is_part(webhook)).cloned().collect()
}

/// Adds the `former` webhooks that a configuration no longer has. They trust the new CA bundle: there is one agent.
pub fn keep(desired: &mut Object, former: &[Value], ca_bundle: Option<&str>) {
    let Some(webhooks) = desired.map_mut().entry("webhooks").or_insert_with(|| json!([])).as_array_mut() else {
        return;
    };
    for webhook in former {
        if webhooks.iter().any(|one| one["name"] == webhook["name"]) {
            continue;
        }
        let mut kept = webhook.clone();
        if let Some(bundle) = ca_bundle {
            kept["clientConfig"]["caBundle"] = Value::from(bundle);
        }
        webhooks.push(kept);
    }
}

/// The webhook that reports edits and deletions.
fn drift(drift: &Drift, user: Option<&str>) -> Value {
    let not_ours = not_by(user);
    let rule = |(group, resources): (&str, Vec<&str>)| {
        let operations = ["UPDATE", "DELETE"];
        json!({ "group": group, "resources": resources, "operations": operations })
    };
    part(DRIFT, &[(NOT_OURS, &not_ours), NOT_NOTES], &drift.rules().map(rule).collect::<Vec<_>>())
}

/// The CEL condition that excludes Tidegate's own writes. Any client may use the name of Tidegate's field manager, so
/// the condition also checks the user if it is known. The user alone would exclude other clients that use Tidegate's
/// credentials.
fn not_by(user: Option<&str>) -> String {
    let manager = names::FIELD_MANAGER;
    let manager = format!("has(request.options.fieldManager) && request.options.fieldManager == '{manager}'");
    match user {
        // A JSON string is a valid CEL string.
        Some(user) => format!("!({manager} && request.userInfo.username == {})", Value::from(user)),
        None => format!("!({manager})"),
    }
}

/// The webhook that reports scaling.
fn scale(drift: &Drift) -> Option<Value> {
    let scaled = drift.scaled();
    let rule = || json!({ "group": "apps", "resources": scaled, "operations": ["UPDATE"] });
    (!scaled.is_empty()).then(|| part(SCALE, &[SCALED], &[rule()]))
}

fn part(name: &str, conditions: &[(&str, &str)], rules: &[Value]) -> Value {
    let conditions: Vec<Value> =
        conditions.iter().map(|(name, expression)| json!({ "name": name, "expression": expression })).collect();
    json!({
        "name": name,
        "path": format!("/validate/{}", names::MANAGED_BY_KCP),
        "labels": { label::MANAGED_BY: names::MANAGED_BY_SKR },
        "conditions": conditions,
        "rules": rules,
    })
}

/// The objects of the agent that all runtimes share: all except its Secret, and except its
/// Deployment if that must restart with each certificate. Fails if a template fails.
pub fn agent(templates: &Templates, agent: &Agent, address: &Address) -> Vec<Result<Object, Error>> {
    let [from_api_server, to_control_plane, to_metrics, to_dns] = names::SKR_WEBHOOK_POLICIES;
    let mut parts = vec![
        (Template::AgentService, names::SKR_WEBHOOK),
        (Template::AgentMetricsService, names::SKR_WEBHOOK_METRICS),
        (Template::AgentPolicyFromApiServer, from_api_server),
        (Template::AgentPolicyToControlPlane, to_control_plane),
        (Template::AgentPolicyToMetrics, to_metrics),
        (Template::AgentPolicyToDns, to_dns),
    ];
    if agent.priority_class == PRIORITY_CLASS {
        parts.push((Template::AgentPriorityClass, PRIORITY_CLASS));
    }
    if !agent.program.restarts_for_certificates() {
        parts.push((Template::AgentDeployment, names::SKR_WEBHOOK));
    }
    parts
        .into_iter()
        .map(|(template, name)| {
            let namespace = if template == Template::AgentPriorityClass { "" } else { names::SKR_NAMESPACE };
            object(templates, template, namespace, name, &context(agent, address, None))
        })
        .collect()
}

/// The agent's Deployment. `restart` changes with the certificate, for a program that must restart.
///
/// # Errors
///
/// Fails if the template fails.
pub fn agent_deployment(
    templates: &Templates,
    agent: &Agent,
    address: &Address,
    restart: Option<&str>,
) -> Result<Object, Error> {
    let context = context(agent, address, restart);
    object(templates, Template::AgentDeployment, names::SKR_NAMESPACE, names::SKR_WEBHOOK, &context)
}

/// The agent's Secret with its data, which the template must not contain.
///
/// # Errors
///
/// Fails if the template fails.
pub fn agent_secret<'a>(
    templates: &Templates,
    data: impl IntoIterator<Item = (&'a str, &'a [u8])>,
) -> Result<Object, Error> {
    let context = json!({ "name": names::SKR_WEBHOOK });
    let stamp = Stamp::new(names::SKR_NAMESPACE, names::SKR_WEBHOOK_SECRET);
    let stamp = stamp.label(label::MANAGED_BY, names::MANAGED_BY_SKR);
    let secret = templates.render_if(Template::AgentSecret, &context, &stamp, SUBJECT, without_data)?;
    Ok(with_data(secret, data))
}

/// The image pull Secret of a runtime: a copy of the control plane's type, labels and data.
///
/// # Errors
///
/// Fails if the template fails.
pub fn agent_pull_secret<'a>(
    templates: &Templates,
    name: &str,
    type_: &str,
    labels: &BTreeMap<String, String>,
    data: impl IntoIterator<Item = (&'a str, &'a [u8])>,
) -> Result<Object, Error> {
    let context = json!({ "name": name, "type": type_ });
    let stamp =
        labels.iter().fold(Stamp::new(names::SKR_NAMESPACE, name), |stamp, (key, value)| stamp.label(key, value));
    // Tidegate's labels come last, so they win.
    let stamp = stamp.label(label::MANAGED_BY, names::MANAGED_BY_SKR);
    let secret = templates.render_if(Template::AgentPullSecret, &context, &stamp, SUBJECT, without_data)?;
    Ok(with_data(secret, data))
}

/// Fails if a template writes the data of a Secret.
fn without_data(secret: &Object) -> Result<(), String> {
    let own = ["data", "stringData"].into_iter().find(|field| secret.value().get(field).is_some());
    own.map_or(Ok(()), |field| Err(format!("writes `{field}`, which Tidegate sets after rendering")))
}

/// Sets the data of a Secret, which no template may write.
fn with_data<'a>(mut secret: Object, data: impl IntoIterator<Item = (&'a str, &'a [u8])>) -> Object {
    let data: Map<String, Value> =
        data.into_iter().map(|(key, bytes)| (key.to_owned(), STANDARD.encode(bytes).into())).collect();
    secret.map_mut().insert("data".to_owned(), data.into());
    secret
}

/// The subject of errors.
const SUBJECT: &str = "the agent of runtimes";

fn object(
    templates: &Templates,
    template: Template,
    namespace: &str,
    name: &str,
    context: &Value,
) -> Result<Object, Error> {
    let stamp = Stamp::new(namespace, name).label(label::MANAGED_BY, names::MANAGED_BY_SKR);
    templates.render(template, context, &stamp, SUBJECT)
}

fn context(agent: &Agent, address: &Address, restart: Option<&str>) -> Value {
    json!({
        "name": names::SKR_WEBHOOK,
        "secret": names::SKR_WEBHOOK_SECRET,
        "agent": {
            "program": agent.program.name(),
            "image": agent.image,
            "pullSecret": agent.pull_secret,
            "priorityClass": agent.priority_class,
            "memoryLimit": agent.memory_limit,
            "cpuLimit": agent.cpu_limit,
            "godebug": agent.godebug,
        },
        "listener": { "address": address.to_string(), "host": address.host(), "port": address.port() },
        "restart": restart,
    })
}

#[cfg(test)]
mod tests;
