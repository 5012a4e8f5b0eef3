//! What the landscapes of several rows have in common: Kymas of `kubectl`, modules with a kind of their own, and the
//! objects of Manifests.

use kube::{
    Api, Client,
    api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams},
};
use serde_json::{Value, json};
use tidegate_core::{
    api::names::{annotation, label},
    plan::manifest_name,
};

use crate::{
    harness::{self, SOON, eventually},
    stage::{self, Stage},
};

/// A kind: its API version and its name.
pub(super) type Kind<'a> = (&'a str, &'a str);

pub(super) const KYMA: Kind<'static> = ("operator.kyma-project.io/v1beta2", "Kyma");
pub(super) const MANIFEST: Kind<'static> = ("operator.kyma-project.io/v1beta2", "Manifest");
pub(super) const THING: Kind<'static> = ("example.org/v1", "Thing");

/// The objects of a kind in a namespace.
pub(super) async fn api(client: &Client, (version, kind): Kind<'_>, namespace: &str) -> Api<DynamicObject> {
    let sample = json!({"apiVersion": version, "kind": kind, "metadata": {"name": "any", "namespace": namespace}});
    harness::api_of(client, &sample).await.expect("a kind that is served")
}

/// An object, if it exists. `None` also if its kind is not served.
pub(super) async fn find(client: &Client, (version, kind): Kind<'_>, namespace: &str, name: &str) -> Option<Value> {
    let sample = json!({"apiVersion": version, "kind": kind, "metadata": {"name": name, "namespace": namespace}});
    let found = harness::api_of(client, &sample).await.ok()?.get_opt(name).await.expect("an answer")?;
    Some(serde_json::to_value(found).expect("JSON"))
}

/// Merges a patch into an object.
pub(super) async fn merge(client: &Client, kind: Kind<'_>, namespace: &str, name: &str, patch: Value) {
    let api = api(client, kind, namespace).await;
    api.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.expect("a patch");
}

/// Deletes an object.
pub(super) async fn delete(client: &Client, kind: Kind<'_>, namespace: &str, name: &str) {
    api(client, kind, namespace).await.delete(name, &DeleteParams::default()).await.expect("a delete");
}

/// A Kyma as `kubectl` creates it. Its modules are those of its spec in the control plane.
pub(super) fn kyma(name: &str, modules: &[&str]) -> Value {
    let modules: Vec<Value> = modules.iter().map(|module| json!({"name": module, "managed": true})).collect();
    json!({
        "apiVersion": KYMA.0, "kind": KYMA.1,
        "metadata": {"name": name, "namespace": "kcp-system", "annotations": {annotation::MODULES_FROM: "git"}},
        "spec": {"channel": "regular", "modules": modules},
    })
}

/// The channels of a module, as `kubectl` declares them.
pub(super) fn release(module: &str, channels: &[(&str, &str)]) -> Value {
    let channels: Vec<Value> =
        channels.iter().map(|(channel, version)| json!({"channel": channel, "version": version})).collect();
    json!({
        "apiVersion": KYMA.0, "kind": "ModuleReleaseMeta", "metadata": {"name": module, "namespace": "kcp-system"},
        "spec": {
            "moduleName": module, "ocmComponentName": format!("example.org/module/{module}"), "channels": channels,
        },
    })
}

/// A module in git with its channel `regular`, and with a default custom resource of a kind of its own, [`kind_of`].
pub(super) fn with_kind(module: &str, scope: &str) -> Vec<(String, String)> {
    let (kind, folder) = (kind_of(module), format!("modules/{module}/1.0.0"));
    let mut files = stage::module(module, "1.0.0", "one");
    let namespace = if scope == "Cluster" { "" } else { ", namespace: kyma-system" };
    files[0].1 += &format!(
        "  data: {{apiVersion: example.org/v1, kind: {kind}, metadata: {{name: {DEFAULT}{namespace}}}, spec: {{}}}}\n"
    );
    let crd = stage::THING_CRD.replace("thing", &kind.to_lowercase()).replace("Thing", &kind);
    files.push((format!("{folder}/objects/crd.yaml"), crd.replace("Namespaced", scope)));
    files.push((format!("modules/{module}/release.yaml"), stage::release(module, &[("regular", "1.0.0")])));
    files
}

/// Name of the default custom resource of a module with a kind of its own.
pub(super) const DEFAULT: &str = "default";

/// The kind of a module's custom resources: `MailServer` of `mail-server`.
pub(super) fn kind_of(module: &str) -> String {
    let capital = |word: &str| format!("{}{}", word[..1].to_uppercase(), &word[1..]);
    module.split('-').map(capital).collect()
}

/// Borrows what [`Stage::real`] takes.
pub(super) fn borrowed(files: &[(String, String)]) -> Vec<(&str, String)> {
    files.iter().map(|(path, text)| (path.as_str(), text.clone())).collect()
}

/// The name of a module's Manifest.
pub(super) fn name_of(kyma: &str, module: &str) -> String {
    manifest_name(kyma, &format!("example.org/module/{module}"), module)
}

/// Waits until the Manifest of a module of Kyma `one` is as `holds` says, and returns it.
pub(super) async fn manifest(stage: &Stage, module: &str, what: &str, holds: impl Fn(&Value) -> bool) -> Value {
    stage.until(what, &stage.kcp, "Manifest", "kcp-system", &name_of("one", module), holds).await
}

/// Modules whose Manifests exist, in order.
pub(super) async fn manifests(stage: &Stage) -> Vec<String> {
    let all = api(&stage.kcp, MANIFEST, "kcp-system").await.list(&ListParams::default()).await.expect("a list");
    let module = |one: &DynamicObject| one.metadata.labels.as_ref()?.get(label::MODULE_NAME).cloned();
    let mut modules: Vec<String> = all.iter().filter_map(module).collect();
    modules.sort();
    modules
}

/// The status of a module of a Kyma. Null if there is none.
pub(super) fn module<'a>(kyma: &'a Value, name: &str) -> &'a Value {
    static NONE: Value = Value::Null;
    let mut all = kyma["status"]["modules"].as_array().into_iter().flatten();
    all.find(|module| module["name"] == name).unwrap_or(&NONE)
}

/// Requests a check of everything in the runtime of Kyma `one`, and waits until it was made.
pub(super) async fn checked(stage: &Stage, value: &str) {
    let request = json!({"metadata": {"annotations": {annotation::RECONCILE_REQUESTED_AT: value}}});
    merge(&stage.kcp, KYMA, "kcp-system", "one", request).await;
    stage
        .until("the runtime was checked", &stage.kcp, "Kyma", "kcp-system", "one", |kyma| {
            kyma["status"]["conditions"].as_array().is_some_and(|all| {
                all.iter().any(|one| one["type"] == "tidegate.dev/ReconcileRequested" && one["message"] == value)
            })
        })
        .await;
}

/// An entry of a Manifest's inventory.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Synced {
    pub(super) version: String,
    pub(super) kind: String,
    pub(super) namespace: String,
    pub(super) name: String,
}

/// The inventory of a Manifest, in order.
pub(super) fn synced(manifest: &Value) -> Vec<Synced> {
    let entry = |entry: &Value| {
        let text = |field: &str| entry[field].as_str().unwrap_or_default().to_owned();
        let (group, version) = (text("group"), text("version"));
        let version = if group.is_empty() { version } else { format!("{group}/{version}") };
        Synced { version, kind: text("kind"), namespace: text("namespace"), name: text("name") }
    };
    let mut all: Vec<Synced> = manifest["status"]["synced"].as_array().into_iter().flatten().map(entry).collect();
    all.sort();
    all
}

// === impl Synced ===

impl Synced {
    /// The object in the runtime.
    pub(super) async fn live(&self, client: &Client) -> Option<Value> {
        find(client, (&self.version, &self.kind), &self.namespace, &self.name).await
    }
}

/// Waits until none of these objects exists.
pub(super) async fn until_gone(client: &Client, objects: &[Synced]) {
    eventually("the objects are gone", SOON * 2, async || {
        for object in objects {
            if object.live(client).await.is_some() {
                return Err(format!("{object:?} is there"));
            }
        }
        Ok(())
    })
    .await;
}
