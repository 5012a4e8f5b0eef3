//! What the daemon does inside kcp: permissions of Kubeconfigs, and the clean-up before a Shard goes.
//!
//! A workspace is an API server below the address of a shard or proxy: `/clusters/PATH`. The daemon reaches it with the
//! certificate in Secret `<root>-kcp-operator`. Nothing there is watched: what others change is found when the resource
//! changes, and otherwise after [`AGAIN`].
//!
//! kcp that cannot be reached delays only what needs it. A deletion waits for it for [`PATIENCE`]; then an Event names
//! what stays there.

mod decide;

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::Bytes;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use tidegate_cluster::{Cause, Cluster, ClusterName, Deleted, Error, Kind, Limits, Propagation, access};
use tidegate_core::{
    api::{names::annotation, setup},
    landscape,
    name::Key,
    object::{Digest, Gvk},
    plan::setup::{ADMIN, CORDON, Gate, Problem, Route, group, setup_mark},
};
use tidegate_process::ambient;
use tokio::time::Instant;

use self::decide::{Act, Known, LABEL, Next, Observed as Seen};
use super::{
    SetupPass,
    decide::deployment,
    enact, leave,
    object::ObjectKind,
    state::{ObjectName, Observed, Values},
};
use crate::controller::events::{self, reason};

/// After this time, what is inside kcp is compared again.
pub(super) const AGAIN: Duration = Duration::from_secs(600);
/// After this time, something inside kcp is tried again that failed, or that a user has to provide.
pub(super) const RETRY: Duration = Duration::from_secs(30);
/// How long a deletion waits for kcp. Afterwards, what is there stays.
const PATIENCE: SignedDuration = SignedDuration::from_secs(300);
/// A pass over a landscape must not wait longer for one answer of kcp.
const LIMITS: Limits =
    Limits { concurrency: 4, request_timeout: Duration::from_secs(10), connect_timeout: Duration::from_secs(3) };

/// What became of what a resource asks for inside kcp.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Report {
    /// The state.
    pub(super) state: State,
    /// The workspace that may have ClusterRoleBindings.
    pub(super) provisioned: Option<String>,
    /// When to look again.
    pub(super) after: Option<Duration>,
}

/// Whether everything is there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum State {
    /// The resource asks for nothing.
    #[default]
    Nothing,
    /// It is.
    Well,
    /// Something is missing that a user provides: one sentence.
    Missing(String),
    /// It waits: one sentence.
    Waits(String),
}

/// What was found inside kcp for a resource.
#[derive(Clone, Debug)]
pub(super) struct Compared {
    digest: Digest,
    missing: Vec<String>,
    until: Timestamp,
}

/// A connection to a workspace.
#[derive(Clone, Debug)]
pub(super) struct Connection {
    digest: Digest,
    cluster: Arc<Cluster>,
}

/// Why something inside kcp is not done.
enum Failed {
    /// The control plane failed.
    Control(Error),
    /// Something is missing, or kcp failed: one sentence, and whether kcp refuses it for good.
    Inside { sentence: String, is_final: bool },
}

impl Failed {
    fn waits(sentence: String) -> Failed {
        Failed::Inside { sentence, is_final: false }
    }
}

impl From<Error> for Failed {
    fn from(error: Error) -> Failed {
        Failed::Control(error)
    }
}

fn cluster_scoped(group: &str, version: &str, kind: &str, plural: &str) -> Kind {
    Kind::new(Gvk::new(group, version, kind), plural, false)
}

fn bindings() -> Kind {
    cluster_scoped("rbac.authorization.k8s.io", "v1", "ClusterRoleBinding", "clusterrolebindings")
}

fn sentence(problem: &Problem) -> String {
    format!("{}; {}", problem.message, problem.hint)
}

/// The configuration of a client, from the values of Secrets. `more` are those with more CAs of the server.
fn config(route: &Route, path: &str, credentials: &Values, more: &[&Values]) -> Result<kube::Config, String> {
    let secret = &route.credentials;
    let value = |key: &str| credentials.get(key).ok_or_else(|| format!("Secret {secret} has no key `{key}`"));
    let mut authorities = value("ca.crt")?.clone();
    for bundle in more.iter().filter_map(|values| values.get("tls.crt")) {
        authorities.push(b'\n');
        authorities.extend_from_slice(bundle);
    }
    let server_name = route.tls_name.as_deref().unwrap_or_default();
    let kubeconfig = json!({
        "clusters": [{ "name": "kcp", "cluster": {
            "server": route.workspace(path),
            "tls-server-name": server_name,
            "certificate-authority-data": STANDARD.encode(authorities),
        } }],
        "users": [{ "name": "kcp", "user": {
            "client-certificate-data": STANDARD.encode(value("tls.crt")?),
            "client-key-data": STANDARD.encode(value("tls.key")?),
        } }],
        "contexts": [{ "name": "kcp", "context": { "cluster": "kcp", "user": "kcp" } }],
        "current-context": "kcp",
    });
    let access = access::parse(kubeconfig.to_string().as_bytes()).and_then(|access| access.config());
    access.map_err(|refused| format!("Secret {secret} cannot be used: {refused}"))
}

impl SetupPass<'_> {
    /// Makes the ClusterRoleBindings of a Kubeconfig as it asks for them. Fails if the control plane does.
    pub(super) async fn grant(&self, observed: &mut Observed, compares_all: bool) -> Result<Report, Error> {
        let SetupPass { context, resources, kind, key, metadata, .. } = *self;
        let kubeconfig = resources.kubeconfigs.get(key).filter(|_| kind == setup::Kind::Kubeconfig);
        let Some(kubeconfig) = kubeconfig else { return Ok(Report::default()) };
        let provisioned = kubeconfig.provisioned().map(str::to_owned);
        let wanted = resources.grants(key);
        if self.is_forbidden() || (wanted.is_none() && provisioned.is_none()) {
            return Ok(Report { provisioned, ..Report::default() });
        }
        let uid = metadata.uid.clone().unwrap_or_default();
        let known = Known { uid, group: group(key), provisioned: provisioned.clone(), wanted: wanted.clone() };
        if compares_all {
            context.memory.forget_compared(key);
        }
        let mut seen = Seen::default();
        let done = self.granted(&known, &mut seen, observed).await;
        let provisioned = seen.recorded.unwrap_or(provisioned);
        let (state, after) = match done {
            Ok((missing, after)) if missing.is_empty() => {
                (if wanted.is_some() { State::Well } else { State::Nothing }, wanted.map(|_| after))
            }
            Ok((missing, after)) => (State::Missing(missing.join("; ")), Some(after)),
            Err(Failed::Inside { sentence, .. }) => (State::Waits(sentence), Some(RETRY)),
            Err(Failed::Control(error)) => return Err(error),
        };
        Ok(Report { state, provisioned, after })
    }

    /// Returns what is missing, and when to look again.
    async fn granted(
        &self,
        known: &Known,
        seen: &mut Seen,
        observed: &mut Observed,
    ) -> Result<(Vec<String>, Duration), Failed> {
        let SetupPass { context, resources, key, .. } = *self;
        let route = resources.route_of_kubeconfig(key).map_err(|problem| Failed::waits(sentence(&problem)))?;
        let digest = self.ready(&route, observed).await?;
        let digest = Digest::of_bytes(format!("{digest}{known:?}").as_bytes());
        let now = ambient::now();
        if let Some(compared) = context.memory.compared(key).filter(|one| one.digest == digest && now < one.until) {
            let left = Duration::try_from(compared.until.duration_since(now)).unwrap_or_default();
            return Ok((compared.missing, left.max(Duration::from_secs(1))));
        }
        loop {
            match decide::next(known, seen) {
                Next::Do(act) => self.enact_inside(&route, known, act, seen, observed).await?,
                Next::End(missing) => {
                    let after = if missing.is_empty() { AGAIN } else { RETRY };
                    let until = now.checked_add(after).unwrap_or(Timestamp::MAX);
                    // The status shows what was recorded in the next pass.
                    let known =
                        Known { provisioned: known.wanted.as_ref().map(|one| one.workspace.clone()), ..known.clone() };
                    let base = self.ready(&route, observed).await?;
                    let digest = Digest::of_bytes(format!("{base}{known:?}").as_bytes());
                    context.memory.set_compared(key, Compared { digest, missing: missing.clone(), until });
                    return Ok((missing, after));
                }
            }
        }
    }

    async fn enact_inside(
        &self,
        route: &Route,
        known: &Known,
        act: Act,
        seen: &mut Seen,
        observed: &mut Observed,
    ) -> Result<(), Failed> {
        let cause = self.cause;
        match act {
            Act::Record(workspace) => {
                self.record(workspace.as_deref()).await?;
                seen.recorded = Some(workspace);
            }
            Act::List(workspace) => {
                let cluster = self.workspace(route, &workspace, observed).await?;
                let selector = format!("{LABEL}={}", known.uid);
                let found = match cluster.list(&bindings(), None, Some(&selector)).await {
                    // kcp answers this of a workspace that is gone, too.
                    Err(error @ Error::Forbidden { .. }) => match self.is_gone(&workspace, observed).await? {
                        true => Vec::new(),
                        false => return Err(refused(&workspace, error)),
                    },
                    found => found.map_err(|error| refused(&workspace, error))?,
                };
                seen.bindings.insert(workspace, found);
            }
            Act::Delete(workspace, object) => {
                let cluster = self.workspace(route, &workspace, observed).await?;
                delete(&cluster, cause, &bindings(), object.name(), object.value())
                    .await
                    .map_err(|error| refused(&workspace, error))?;
                seen.deleted.insert((workspace, object.name().to_owned()));
            }
            Act::Apply(workspace, object, on_conflict) => {
                let cluster = self.workspace(route, &workspace, observed).await?;
                let body = Bytes::from(object.value().to_string());
                let applied = cluster.apply(cause, &bindings(), &object.id(), body, on_conflict).await;
                applied.map_err(|error| refused(&workspace, error))?;
                seen.applied.insert(object.name().to_owned());
            }
            Act::ReadRole(workspace, role) => {
                let cluster = self.workspace(route, &workspace, observed).await?;
                let roles = cluster_scoped("rbac.authorization.k8s.io", "v1", "ClusterRole", "clusterroles");
                let found = cluster.get(&roles, &Key::new("", &role)).await;
                seen.roles.insert(role, found.map_err(|error| refused(&workspace, error))?);
            }
        }
        Ok(())
    }

    /// Whether a workspace does not exist: one of those above it says so. False if that cannot be found out.
    async fn is_gone(&self, workspace: &str, observed: &mut Observed) -> Result<bool, Error> {
        let Some(route) = self.resources.route_above(self.key) else { return Ok(false) };
        let kind = cluster_scoped("tenancy.kcp.io", "v1alpha1", "Workspace", "workspaces");
        for (parent, name) in decide::ancestry(workspace) {
            let cluster = match self.workspace(&route, parent, observed).await {
                Ok(cluster) => cluster,
                Err(Failed::Inside { .. }) => return Ok(false),
                Err(Failed::Control(error)) => return Err(error),
            };
            match cluster.get(&kind, &Key::new("", name)).await {
                Ok(None) => return Ok(true),
                Ok(Some(_)) => {}
                Err(_) => return Ok(false),
            }
        }
        Ok(false)
    }

    /// Writes into the status of a Kubeconfig which workspace may have its ClusterRoleBindings.
    async fn record(&self, workspace: Option<&str>) -> Result<(), Error> {
        let SetupPass { context, resources, kind, key, metadata, cause, .. } = *self;
        if let Some(workspace) = workspace {
            let before = context.memory.reported(kind, key, metadata);
            let mut status = before.unwrap_or_else(|| resources.status(kind, key));
            if !status.is_object() {
                status = json!({});
            }
            status["authorization"] = json!({ "provisionedCluster": workspace });
            enact::report(context.kcp, cause, kind, key, &status).await?;
            context.memory.set_reported(kind, key, metadata, &status);
            return Ok(());
        }
        // It may be a field of kcp-operator, which an apply would leave.
        let kind = enact::kind_of(kind);
        let body = Bytes::from(json!({ "status": { "authorization": null } }).to_string());
        match context.kcp.merge_patch(cause, &kind, &kind.id(key), Some("status"), body).await {
            Ok(_) | Err(Error::NotFound { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// What a resource that is being deleted waits for inside kcp: one sentence. `None` if its objects may go.
    pub(super) async fn clean_up(&self, observed: &mut Observed) -> Result<Option<String>, Error> {
        let SetupPass { context, resources, kind, key, .. } = *self;
        let is_needed = match kind {
            setup::Kind::Kubeconfig => resources.kubeconfigs.get(key).is_some_and(|one| one.provisioned().is_some()),
            setup::Kind::Shard => true,
            setup::Kind::CacheServer
            | setup::Kind::RootShard
            | setup::Kind::FrontProxy
            | setup::Kind::VirtualWorkspace => false,
        };
        // With the RootShard, everything inside kcp goes.
        let stays = resources.root_of(kind, key).is_some_and(|(root, _)| {
            resources.metadata(setup::Kind::RootShard, root).is_some_and(|root| root.deletion_timestamp.is_none())
        });
        if !is_needed || !stays || context.memory.is_settled(kind, key) {
            return Ok(None);
        }
        let done = match kind {
            setup::Kind::Shard => self.leave_kcp(observed).await,
            _ => self.revoke(observed).await,
        };
        let (sentence, is_final) = match done {
            Ok(None) => {
                context.memory.settle(kind, key);
                return Ok(None);
            }
            Ok(waits) => {
                context.memory.not_trying(kind, key);
                return Ok(waits);
            }
            Err(Failed::Control(error)) => return Err(error),
            Err(Failed::Inside { sentence, is_final }) => (sentence, is_final),
        };
        let now = ambient::now();
        let since = context.memory.trying_since(kind, key, now);
        if is_final || PATIENCE <= now.duration_since(since) {
            let what = match kind {
                setup::Kind::Shard => format!("Shard {} stays in the workspace `root` of kcp", key.name()),
                _ => {
                    let uid = self.metadata.uid.as_deref().unwrap_or_default();
                    format!("ClusterRoleBindings with the label {LABEL}={uid} stay inside kcp")
                }
            };
            let note = format!("{what}: {sentence}; delete what stays yourself");
            tracing::warn!(problem = note, "an orphan stays inside kcp");
            self.tell(events::Severity::Warning, reason::KEPT, note);
            context.memory.settle(kind, key);
            return Ok(None);
        }
        Ok(Some(format!("it is removed from kcp first, which is tried for five minutes: {sentence}")))
    }

    /// Deletes the ClusterRoleBindings of a Kubeconfig that goes.
    async fn revoke(&self, observed: &mut Observed) -> Result<Option<String>, Failed> {
        let SetupPass { resources, key, metadata, .. } = *self;
        let provisioned = resources.kubeconfigs.get(key).and_then(|one| one.provisioned()).map(str::to_owned);
        let uid = metadata.uid.clone().unwrap_or_default();
        let known = Known { uid, group: group(key), provisioned, wanted: None };
        let route = resources.route_of_kubeconfig(key).map_err(|problem| Failed::waits(sentence(&problem)))?;
        self.ready(&route, observed).await?;
        let mut seen = Seen::default();
        loop {
            match decide::next(&known, &seen) {
                // The status goes with the resource.
                Next::Do(Act::Record(_)) | Next::End(_) => return Ok(None),
                Next::Do(act) => self.enact_inside(&route, &known, act, &mut seen, observed).await?,
            }
        }
    }

    /// Deletes the Shard inside kcp, unless workspaces are on it. Returns why it stays.
    async fn leave_kcp(&self, observed: &mut Observed) -> Result<Option<String>, Failed> {
        let SetupPass { context, resources, key, metadata, .. } = *self;
        let route = resources.route_of_shard(key).map_err(|problem| Failed::waits(sentence(&problem)))?;
        let own = (ObjectKind::Deployment, route.deployment.clone());
        let live = self.around(&context.stores.setup_objects(key.namespace(), "", &BTreeSet::from([own.clone()])));
        let is_forced = landscape::annotation(metadata, annotation::FORCE_REMOVAL) == Some("true");
        let root = resources.route_of_root_shard(&route.root).map_err(|problem| Failed::waits(sentence(&problem)))?;
        if !live.contains_key(&own) {
            // The watch shows only Tidegate's own.
            let of_others = enact::read(context.kcp, key.namespace(), &own).await.map_err(Failed::Control)?;
            if of_others.is_some() && !is_forced {
                let why = format!("Deployment {} is not taken over yet", own.1);
                return Ok(Some(leave::holds_workspaces(key, &why)));
            }
            // Its objects go already, or it never ran.
            return Ok(None);
        }
        // Meanwhile, it gets no new ones.
        let cordoned = if root.has_admin { self.cordon(&root, observed).await } else { Ok(false) };
        if !is_forced {
            match self.workspaces(&route, observed).await {
                Ok(found) if found.is_empty() => {}
                Ok(found) => {
                    let more = found.len().saturating_sub(leave::NAMED_MAX);
                    let names = found.into_iter().take(leave::NAMED_MAX).collect::<Vec<_>>().join(", ");
                    let more = if more == 0 { String::new() } else { format!(" and {more} more") };
                    return Ok(Some(leave::holds_workspaces(key, &format!("it holds {names}{more}"))));
                }
                Err(Failed::Inside { sentence, .. }) => return Ok(Some(leave::holds_workspaces(key, &sentence))),
                Err(failed @ Failed::Control(_)) => return Err(failed),
            }
        }
        if cordoned? {
            let note = format!(
                "Shard {} stays in the list of shards of kcp, which lets no client delete it; it is marked so that it \
                 gets no new workspaces",
                key.name()
            );
            tracing::info!(note, "a shard stays inside kcp");
            self.tell(events::Severity::Normal, reason::KEPT, note);
            return Ok(None);
        }
        self.ready(&root, observed).await?;
        let cluster = self.workspace(&root, "root", observed).await?;
        let shards = cluster_scoped("core.kcp.io", "v1alpha1", "Shard", "shards");
        let found = cluster.get(&shards, &Key::new("", key.name())).await.map_err(|error| refused("root", error))?;
        if let Some(found) = found {
            let deleted = delete(&cluster, self.cause, &shards, key.name(), found.value()).await;
            deleted.map_err(|error| refused("root", error))?;
        }
        Ok(None)
    }

    /// Keeps new workspaces away from a Shard that goes. Returns whether kcp knows it.
    async fn cordon(&self, root: &Route, observed: &mut Observed) -> Result<bool, Failed> {
        self.ready(root, observed).await?;
        let cluster = self.workspace(root, ADMIN, observed).await?;
        let shards = cluster_scoped("core.kcp.io", "v1alpha1", "Shard", "shards");
        let key = Key::new("", self.key.name());
        let found = cluster.get(&shards, &key).await.map_err(|error| refused(ADMIN, error))?;
        let Some(found) = found else { return Ok(false) };
        if found.annotation(CORDON) != Some("true") {
            let body = Bytes::from(json!({ "metadata": { "annotations": { CORDON: "true" } } }).to_string());
            let written = cluster.merge_patch(self.cause, &shards, &shards.id(&key), None, body).await;
            written.map_err(|error| refused(ADMIN, error))?;
        }
        Ok(true)
    }

    /// The workspaces on a Shard, by path.
    async fn workspaces(&self, route: &Route, observed: &mut Observed) -> Result<Vec<String>, Failed> {
        self.ready(route, observed).await?;
        let cluster = self.workspace(route, "*", observed).await?;
        let kind = cluster_scoped("core.kcp.io", "v1alpha1", "LogicalCluster", "logicalclusters");
        let found = cluster.list_served(&kind).await.map_err(|error| refused("*", error))?;
        let name = |one: &tidegate_cluster::Metadata| {
            let id = one.annotation("kcp.io/cluster").unwrap_or("an unnamed workspace").to_owned();
            // Those of kcp itself are on every shard.
            (!id.starts_with("system:")).then(|| one.annotation("kcp.io/path").map_or(id, str::to_owned))
        };
        let mut names: Vec<String> = found.iter().filter_map(name).collect();
        names.sort();
        Ok(names)
    }

    /// Whether a server can be asked: its pods are ready, and the Secrets are there. Returns a digest of all that
    /// matters for a connection.
    async fn ready(&self, route: &Route, observed: &mut Observed) -> Result<Digest, Failed> {
        let SetupPass { context, kind, key, .. } = *self;
        let mut secrets: Vec<ObjectName> = secrets(route).map(|name| (ObjectKind::Secret, name.to_owned())).collect();
        let (server, trust) = ((ObjectKind::Deployment, route.deployment.clone()), trust(route));
        let needs: BTreeSet<ObjectName> = secrets.iter().chain([&server, &trust]).cloned().collect();
        needs.iter().for_each(|need| context.stores.add_setup_need((kind, key), need));
        let live = context.stores.setup_objects(key.namespace(), "", &needs);
        let gate = Gate::Deployment { name: route.deployment.clone(), is_up: true };
        if let Some(sentence) = deployment(&gate, &self.around(&live)) {
            return Err(Failed::waits(sentence));
        }
        // One without the label of the RootShard is not Tidegate's.
        let mark = setup_mark(setup::Kind::RootShard, route.root.name());
        if live.get(&trust).is_some_and(|found| found.mark.as_deref() == Some(mark.as_str())) {
            secrets.push(trust);
        }
        self.learn_all(secrets.iter(), &live, observed).await?;
        let mut text = format!("{route:?}");
        for secret in &secrets {
            let Some(keys) = observed.keys.get(secret) else {
                return Err(Failed::waits(format!("Secret {} does not exist", secret.1)));
            };
            text.push_str(&format!("{keys:?}"));
        }
        Ok(Digest::of_bytes(text.as_bytes()))
    }

    /// The connection to a workspace. Sends no request to it.
    async fn workspace(&self, route: &Route, path: &str, observed: &mut Observed) -> Result<Arc<Cluster>, Failed> {
        let (memory, digest) = (self.context.memory, self.ready(route, observed).await?);
        let url = route.workspace(path);
        let known = memory.connection(&url, (self.kind, self.key), Instant::now());
        if let Some(known) = known.filter(|known| known.digest == digest && !known.cluster.is_worn()) {
            return Ok(known.cluster);
        }
        let trust = trust(route);
        let has_trust = observed.keys.contains_key(&trust);
        let names = secrets(route).map(|name| (ObjectKind::Secret, name.to_owned()));
        for name in names.chain(has_trust.then(|| trust.clone())) {
            if !observed.values.contains_key(&name) {
                self.learn(&name, observed).await?;
            }
        }
        let values = |name: &str| observed.values.get(&(ObjectKind::Secret, name.to_owned()));
        let bundle = route.bundle.as_deref().and_then(values);
        let more: Vec<&Values> = bundle.into_iter().chain(observed.values.get(&trust)).collect();
        let credentials = values(&route.credentials).cloned().unwrap_or_default();
        let config = config(route, path, &credentials, &more).map_err(Failed::waits)?;
        let name = ClusterName::Workspace { root: route.root.clone(), path: path.to_owned() };
        let cluster = self.context.kcp.alike(name, &config, LIMITS).map_err(|error| refused(path, error))?;
        let cluster = Arc::new(cluster);
        let connection = Connection { digest, cluster: Arc::clone(&cluster) };
        memory.set_connection(&url, connection, (self.kind, self.key), Instant::now());
        Ok(cluster)
    }
}

/// What is trusted while the root CA is being replaced.
fn trust(route: &Route) -> ObjectName {
    (ObjectKind::Secret, format!("{}-ca-trust", route.root.name()))
}

fn secrets(route: &Route) -> impl Iterator<Item = &str> {
    [route.credentials.as_str()].into_iter().chain(route.bundle.as_deref())
}

/// A request that kcp did not do.
#[expect(clippy::needless_pass_by_value, reason = "callers map errors with it")]
fn refused(workspace: &str, error: Error) -> Failed {
    let is_final = matches!(error, Error::Forbidden { .. });
    Failed::Inside { sentence: format!("workspace {workspace}: {error}"), is_final }
}

/// Deletes an object that was read. Fails if the request fails, or if the object has changed since.
async fn delete(cluster: &Cluster, cause: &Cause, kind: &Kind, name: &str, found: &Value) -> Result<(), Error> {
    let id = kind.id(&Key::new("", name));
    let text = |field: &str| found["metadata"][field].as_str().unwrap_or_default();
    let (uid, version) = (text("uid"), text("resourceVersion"));
    match cluster.delete_if(cause, kind, &id, uid, Some(version), Propagation::Background).await? {
        Deleted::Gone | Deleted::Terminating => Ok(()),
        Deleted::Changed => Err(Error::Changed { target: tidegate_cluster::Target::Object(id) }),
    }
}

#[cfg(test)]
mod tests;
