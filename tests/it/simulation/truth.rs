//! Whether statuses are true. Each write of a status is checked the moment it arrives: before anything else happens,
//! the simulated servers are asked whether the status is right.
//!
//! A status that says `Ready` must be true of everything that it covers, whatever fails at the time. Objects that
//! others have touched are excepted until the daemon writes them again, because the daemon does not know of the change
//! yet.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use axum::body::Body;
use http::Request;
use http_body_util::BodyExt as _;
use kube_sim::{Server, Service, User};
use serde_json::Value;
use tokio::time::Instant;
use tower::ServiceExt as _;

use super::{
    land::{Brought, DEFINITIONS, IN_KCP, IN_RUNTIME, KINDS, Land, NAMESPACE, THINGS, USERS},
    world::{KCP, RUNTIMES},
};

/// The state needed to judge statuses, and the false statuses found.
pub(super) struct Truth {
    servers: BTreeMap<&'static str, Service>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    lies: Vec<String>,
    /// Number of checks, by name.
    counts: BTreeMap<&'static str, u64>,
    /// The landscape of each commit.
    lands: BTreeMap<String, Land>,
    /// The objects of each git tree, by path.
    trees: BTreeMap<String, BTreeMap<String, Brought>>,
    /// Objects that others changed after the daemon's last write to them.
    touched: BTreeSet<(&'static str, String)>,
    /// When a user restarted a Deployment.
    restarted: BTreeMap<(&'static str, String), Instant>,
    /// The version that each Manifest, by its UID, truly reported as ready.
    ready: BTreeMap<String, String>,
    /// Runtimes whose access Secret is missing (`None`), or returned at that time.
    secretless: BTreeMap<&'static str, Option<Instant>>,
    /// A CRD of the control plane is missing (`Some(None)`), or returned at that time.
    disturbed: Option<Option<Instant>>,
    /// Runtimes that the daemon gave up with their objects, because their access Secret was missing.
    abandoned: BTreeSet<&'static str>,
}

/// A write that a server accepted.
pub(super) struct Write<'a> {
    pub(super) server: &'static str,
    /// Without the query.
    pub(super) path: &'a str,
    pub(super) body: &'a [u8],
}

/// Longest time between what a pass reads and the status that it writes about it.
const PASS_MAX: Duration = Duration::from_secs(60);
/// How long the daemon may act on a missing Secret after the Secret has returned.
const SECRET_LAG_MAX: Duration = Duration::from_secs(15 * 60);

// === impl Truth ===

impl Truth {
    pub(super) fn new<'a>(servers: impl Iterator<Item = (&'static str, &'a Server)>) -> Truth {
        let servers = servers.map(|(name, server)| (name, server.service_as(User::admin()))).collect();
        Truth { servers, state: Mutex::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Git has a new commit. `trees` are the git trees of each module version's objects.
    pub(super) fn committed(&self, commit: &str, land: &Land, trees: BTreeMap<(&'static str, &'static str), String>) {
        let mut state = self.state();
        state.lands.insert(commit.to_owned(), land.clone());
        let objects = trees.into_iter().map(|((module, version), tree)| (tree, land.brings(module, version)));
        state.trees.extend(objects);
    }

    /// Another client changes or deletes an object.
    pub(super) fn touched(&self, server: &'static str, path: &str) {
        self.state().touched.insert((server, path.to_owned()));
    }

    /// Another client restarts a Deployment.
    pub(super) fn restarted(&self, server: &'static str, path: &str) {
        self.state().restarted.insert((server, path.to_owned()), Instant::now());
    }

    /// The access Secret of a runtime is missing, or has returned.
    pub(super) fn secretless(&self, kyma: &'static str, absent: bool) {
        let mut state = self.state();
        if absent {
            state.secretless.insert(kyma, None);
        } else if let Some(since) = state.secretless.get_mut(kyma) {
            *since = Some(Instant::now());
        }
    }

    /// Runtimes that may contain objects of the daemon that are in no inventory any more.
    pub(super) fn abandoned(&self) -> BTreeSet<&'static str> {
        self.state().abandoned.clone()
    }

    /// A Manifest is lost, and its inventory with it.
    pub(super) fn abandon(&self, manifest: &str) {
        self.state().abandoned.extend(kyma_of(manifest));
    }

    /// A CRD of the control plane is deleted, or all of them have returned. A pass may still report what it read
    /// before.
    pub(super) fn disturbed(&self, is_missing: bool) {
        self.state().disturbed = Some((!is_missing).then(Instant::now));
    }

    fn is_disturbed(&self) -> bool {
        self.state().disturbed.is_some_and(|until| until.is_none_or(|until| until.elapsed() <= PASS_MAX))
    }

    /// An object is created again with its former status. That status was checked when it was written.
    pub(super) fn restored(&self, before: &Value, made: &Value) {
        let uid = |object: &Value| object["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
        let mut state = self.state();
        if let Some(version) = state.ready.get(&uid(before)).cloned() {
            state.ready.insert(uid(made), version);
        }
    }

    /// The abandoned runtimes have been cleaned up.
    pub(super) fn cleared(&self) {
        self.state().abandoned.clear();
    }

    /// The false statuses since the last call.
    pub(super) fn lies(&self) -> Vec<String> {
        std::mem::take(&mut self.state().lies)
    }

    /// Number of checks, by name.
    pub(super) fn counts(&self) -> BTreeMap<&'static str, u64> {
        self.state().counts.clone()
    }

    /// An object as a server has it at this moment: no other task runs before the answer.
    pub(super) async fn read(&self, server: &str, path: &str) -> Option<Value> {
        read(self.servers[server].clone(), path).await
    }

    /// Checks a write.
    pub(super) async fn heard(&self, write: &Write<'_>) {
        self.state().touched.remove(&(write.server, write.path.to_owned()));
        let Some(path) = write.path.strip_prefix(IN_KCP).filter(|_| write.server == KCP) else {
            return self.heard_of_source(write).await;
        };
        let judged = match path.split('/').collect::<Vec<_>>().as_slice() {
            ["", "manifests", name, "status"] => self.manifest(name, &status(write.body)).await,
            ["", "kymas", name, "status"] => self.kyma(name, &status(write.body)).await,
            ["", "manifests" | "kymas", name] => {
                self.note_abandoned(path, name).await;
                Ok(())
            }
            _ => Ok(()),
        };
        self.note(judged);
    }

    async fn heard_of_source(&self, write: &Write<'_>) {
        const SOURCE: &str = "/apis/tidegate.dev/v1alpha1/namespaces/kcp-system/gitsources/landscape/status";
        if write.server == KCP && write.path == SOURCE {
            let judged = self.source(&status(write.body)).await;
            self.note(judged);
        }
    }

    fn note(&self, judged: Result<(), String>) {
        if let Err(lie) = judged
            && !self.is_disturbed()
        {
            self.state().lies.push(lie);
        }
    }

    fn count(&self, what: &'static str) {
        *self.state().counts.entry(what).or_default() += 1;
    }

    /// Notes whether a Manifest or a Kyma was deleted while the access Secret of its runtime was missing. Its objects
    /// then stay in the runtime without an inventory.
    async fn note_abandoned(&self, path: &str, name: &str) {
        let Some(kyma) = kyma_of(name) else { return };
        let is_gone = self.read(KCP, &format!("{IN_KCP}{path}")).await.is_none();
        let mut state = self.state();
        let is_secretless =
            state.secretless.get(kyma).is_some_and(|back| back.is_none_or(|back| back.elapsed() <= SECRET_LAG_MAX));
        if is_gone && is_secretless {
            state.abandoned.insert(kyma);
            *state.counts.entry("runtime abandoned").or_default() += 1;
        }
    }

    /// A Manifest is ready if all objects of its tree are in the runtime, match git, and are in its inventory.
    async fn manifest(&self, name: &str, status: &Value) -> Result<(), String> {
        let Some(manifest) = self.read(KCP, &format!("{IN_KCP}/manifests/{name}")).await else { return Ok(()) };
        let text = |pointer: &str| manifest.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
        let uid = text("/metadata/uid");
        if status["state"] != "Ready" {
            self.state().ready.remove(&uid);
            return Ok(());
        }
        // A condition for an earlier generation says nothing about this one.
        let observed = condition(status, "Installation").map(|condition| condition["observedGeneration"].clone());
        if observed.as_ref() != Some(&manifest["metadata"]["generation"]) {
            return Ok(());
        }
        let judged = self.is_ready(name, &manifest, status).await;
        if judged.is_ok() || self.is_disturbed() {
            self.state().ready.insert(uid, text("/spec/version"));
        }
        judged
    }

    async fn is_ready(&self, name: &str, manifest: &Value, status: &Value) -> Result<(), String> {
        let Some(kyma) = kyma_of(name) else { return Err(format!("there is a Manifest {name}")) };
        let tree = manifest["spec"]["install"]["source"]["tree"].as_str().unwrap_or_default();
        let Some(objects) = self.state().trees.get(tree).cloned() else {
            return Err(format!("Manifest {name} has tree {tree}, which no commit has"));
        };
        let synced = status["synced"].as_array().cloned().unwrap_or_default();
        for (path, brought) in &objects {
            let named = path.rsplit('/').next().unwrap_or_default();
            if !synced.iter().any(|entry| entry["name"] == named && path.contains(plural(&entry["kind"]))) {
                return Err(format!("Manifest {name} is ready, and {path} is not in its inventory"));
            }
            self.is_as_said(kyma, path, brought).await.map_err(|why| format!("Manifest {name} is ready: {why}"))?;
        }
        if manifest["spec"]["resource"].is_object() {
            let path = format!("{THINGS}/cache-default");
            let is_there = self.is_touched(kyma, &path) || self.read(kyma, &path).await.is_some();
            is_there.then_some(()).ok_or_else(|| format!("Manifest {name} is ready, and there is no {path}"))?;
        }
        self.count("judged ready Manifest");
        Ok(())
    }

    fn is_touched(&self, server: &'static str, path: &str) -> bool {
        self.state().touched.contains(&(server, path.to_owned()))
    }

    /// Checks that an object in a runtime matches git, unless another client touched it.
    async fn is_as_said(&self, kyma: &'static str, path: &str, brought: &Brought) -> Result<(), String> {
        if self.is_touched(kyma, path) {
            return Ok(());
        }
        let Some(object) = self.read(kyma, path).await else { return Err(format!("there is no {path} in {kyma}")) };
        if object["metadata"]["labels"]["operator.kyma-project.io/managed-by"] != "kyma" {
            return Err(format!("{path} in {kyma} does not bear our mark"));
        }
        match brought {
            Brought::Map(text) if object["data"]["text"] != text.as_str() => {
                Err(format!("{path} in {kyma} holds {}, not {text}", object["data"]))
            }
            Brought::Deployment(image) => {
                let found = &object["spec"]["template"]["spec"]["containers"][0]["image"];
                if found != image.as_str() {
                    return Err(format!("{path} in {kyma} runs {found}, not {image}"));
                }
                let key = (kyma, path.to_owned());
                let was_restarted = self.state().restarted.get(&key).is_some_and(|at| at.elapsed() <= PASS_MAX);
                let is_seen = object["status"]["observedGeneration"] == object["metadata"]["generation"];
                let is_available =
                    condition(&object["status"], "Available").is_some_and(|condition| condition["status"] == "True");
                if was_restarted || (is_seen && is_available) {
                    Ok(())
                } else {
                    Err(format!("{path} in {kyma} is not available: {}", object["status"]))
                }
            }
            Brought::Map(_) | Brought::Other => Ok(()),
        }
    }

    /// A module is ready if its Manifest reported that version as ready. A Kyma is ready if all modules that it lists
    /// are.
    async fn kyma(&self, name: &str, status: &Value) -> Result<(), String> {
        let Some(kyma) = RUNTIMES.into_iter().find(|kyma| *kyma == name) else { return Ok(()) };
        let modules = status["modules"].as_array().cloned().unwrap_or_default();
        for module in modules.iter().filter(|module| module["state"] == "Ready") {
            self.module(kyma, module).await?;
        }
        if status["state"] != "Ready" {
            return Ok(());
        }
        let Some(live) = self.read(KCP, &format!("{IN_KCP}/kymas/{kyma}")).await else { return Ok(()) };
        if let Some(module) = modules.iter().find(|module| module["state"] != "Ready") {
            return Err(format!("Kyma {kyma} is ready, and its module is not: {module}"));
        }
        let observed = condition(status, "Modules").map(|condition| condition["observedGeneration"].clone());
        let is_declared = live["metadata"]["labels"]["tidegate.dev/source"].is_string();
        if is_declared && observed.as_ref() == Some(&live["metadata"]["generation"]) {
            let asked = live["spec"]["modules"].as_array().cloned().unwrap_or_default();
            let says = |asked: &Value| modules.iter().any(|module| module["name"] == asked["name"]);
            if let Some(asked) = asked.iter().find(|asked| !says(asked)) {
                return Err(format!("Kyma {kyma} is ready, and says nothing of {asked}"));
            }
        }
        let kinds = KINDS.iter().map(|kind| format!("{DEFINITIONS}/{kind}.operator.kyma-project.io"));
        for path in [NAMESPACE.to_owned(), format!("{IN_RUNTIME}/kymas/default")].into_iter().chain(kinds) {
            if self.read(kyma, &path).await.is_none() {
                return Err(format!("Kyma {kyma} is ready, and there is no {path} in its runtime"));
            }
        }
        self.count("judged ready Kyma");
        Ok(())
    }

    async fn module(&self, kyma: &str, module: &Value) -> Result<(), String> {
        let named = module["manifest"]["metadata"]["name"].as_str().unwrap_or_default();
        let Some(manifest) = self.read(KCP, &format!("{IN_KCP}/manifests/{named}")).await else {
            return Err(format!("Kyma {kyma} says {module}, and there is no Manifest {named}"));
        };
        // The Manifest has changed since, for example because it is being deleted with a former Kyma of that name.
        if module["manifest"]["metadata"]["generation"] != manifest["metadata"]["generation"] {
            return Ok(());
        }
        let ready = self.state().ready.get(manifest["metadata"]["uid"].as_str().unwrap_or_default()).cloned();
        if ready.as_deref() == module["version"].as_str() {
            return Ok(());
        }
        Err(format!("Kyma {kyma} says {module}, and Manifest {named} has said so of {ready:?}: {}", manifest["status"]))
    }

    /// A source is ready if everything in its commit is in the control plane, and the commit has no error.
    async fn source(&self, status: &Value) -> Result<(), String> {
        let text = |field: &str| status[field].as_str().unwrap_or_default();
        let commit = |revision: &str| revision.rsplit(':').next().unwrap_or_default().to_owned();
        let applied = commit(text("appliedRevision"));
        let land = self.state().lands.get(&applied).cloned();
        let is_ready = condition(status, "Ready").is_some_and(|condition| condition["status"] == "True");
        let Some(land) = land else {
            let is_nothing = applied.is_empty() && !is_ready;
            return is_nothing.then_some(()).ok_or_else(|| format!("the GitSource has applied what is not: {status}"));
        };
        if !is_ready {
            return Ok(());
        }
        if commit(text("attemptedRevision")) != applied || land.broken.is_some() {
            return Err(format!("the GitSource is ready, and the commit that it looked at is not in force: {status}"));
        }
        self.is_declared(&land).await.map_err(|why| format!("the GitSource is ready: {why}"))?;
        self.count("judged ready GitSource");
        Ok(())
    }

    /// Checks that the control plane has exactly what a commit declares.
    async fn is_declared(&self, land: &Land) -> Result<(), String> {
        for (kyma, declared) in land.kymas.iter().filter(|(kyma, _)| **kyma != USERS) {
            let path = format!("{IN_KCP}/kymas/{kyma}");
            if self.is_touched(KCP, &path) {
                continue;
            }
            let Some(live) = self.read(KCP, &path).await else { return Err(format!("there is no Kyma {kyma}")) };
            let modules = live["spec"]["modules"].as_array().cloned().unwrap_or_default();
            let modules: BTreeSet<&str> = modules.iter().filter_map(|module| module["name"].as_str()).collect();
            if live["spec"]["channel"] != declared.channel || modules != declared.modules {
                return Err(format!("Kyma {kyma} is {}, wanted {declared:?}", live["spec"]));
            }
        }
        let kymas = self.read(KCP, &format!("{IN_KCP}/kymas?labelSelector=tidegate.dev/source")).await;
        for kyma in kymas.iter().flat_map(|list| list["items"].as_array()).flatten() {
            let name = kyma["metadata"]["name"].as_str().unwrap_or_default();
            if !land.kymas.contains_key(name) && kyma["metadata"]["deletionTimestamp"].is_null() {
                return Err(format!("Kyma {name} stays, which git does not declare"));
            }
        }
        for ((module, channel), version) in &land.channels {
            let path = format!("{IN_KCP}/modulereleasemetas/{module}");
            let release = self.read(KCP, &path).await.unwrap_or_default();
            let channels = release["spec"]["channels"].as_array().cloned().unwrap_or_default();
            if !channels.iter().any(|of| of["channel"] == *channel && of["version"] == *version) {
                return Err(format!("{channel} of {module} is not {version}: {channels:?}"));
            }
        }
        Ok(())
    }
}

/// An object or a list as a server has it, unaffected by faults of the network.
pub(super) async fn read(server: Service, path: &str) -> Option<Value> {
    let request = Request::get(path).body(Body::empty()).expect("a request");
    let Ok(response) = server.oneshot(request).await;
    if !response.status().is_success() {
        return None;
    }
    let body = response.into_body().collect().await.ok()?.to_bytes();
    serde_json::from_slice(&body).ok()
}

/// The Kyma that a Manifest belongs to, by name. A Kyma belongs to itself.
fn kyma_of(manifest: &str) -> Option<&'static str> {
    let kyma = manifest.split('-').next().unwrap_or_default();
    RUNTIMES.into_iter().find(|name| *name == kyma)
}

/// The status in the body of a write.
fn status(body: &[u8]) -> Value {
    let mut object: Value = serde_json::from_slice(body).unwrap_or_default();
    object["status"].take()
}

fn condition<'a>(status: &'a Value, type_: &str) -> Option<&'a Value> {
    status["conditions"].as_array()?.iter().find(|condition| condition["type"] == type_)
}

/// A kind's segment in a path.
fn plural(kind: &Value) -> &'static str {
    match kind.as_str().unwrap_or_default() {
        "ConfigMap" => "/configmaps/",
        "ClusterRole" => "/clusterroles/",
        "Deployment" => "/deployments/",
        "CustomResourceDefinition" => "/customresourcedefinitions/",
        other => panic!("no module brings a {other}"),
    }
}
