//! What the tour reads from the clusters.

use std::{
    collections::BTreeMap,
    process::Stdio,
    time::{Duration, Instant},
};

use crate::{
    demo::{report, world::DAEMON},
    servers,
};
use anyhow::{Context as _, anyhow};
use k8s_openapi::api::{apps::v1::Deployment, core::v1::ConfigMap};
use kube::{
    Api, Client,
    api::{Patch, PatchParams},
};
use kube_sim::Tally;
use serde_json::Value;
use tidegate_core::{
    api::{GitSource, Kyma, names, shared::State},
    conditions,
};
use tidegate_process::say;
use tidegate_testbed as testbed;

use super::{DEADLINE, Tour};

/// The GitSource of the demo.
pub(in crate::demo) const SOURCE: &str = "landscape";

/// The moment from which requests are counted, for each server.
pub(super) struct Mark(Vec<servers::Mark>);

impl Tour<'_> {
    /// Repeats `ask` until it succeeds; the error says what was expected. If it takes long, prints what is expected.
    pub(super) async fn until<T>(&self, what: &str, ask: impl AsyncFnMut() -> Result<T, String>) -> anyhow::Result<T> {
        report::while_waiting(what, testbed::until(DEADLINE, ask)).await.map_err(|late| anyhow!("{what}: {late}"))
    }

    /// Checks that a condition keeps holding.
    pub(super) async fn throughout(
        &self,
        what: &str,
        duration: Duration,
        ask: impl AsyncFnMut() -> Result<(), String>,
    ) -> anyhow::Result<()> {
        report::waiting(&format!("for {duration:?}: {what}"));
        let held = testbed::throughout(duration, ask).await;
        held.map_err(|(after, answer)| anyhow!("{what}: stopped being true after {after:.1?}: {answer}"))
    }

    /// Waits until the daemon is idle for a while: no request to a runtime, and no write to the KCP except for the
    /// Lease.
    ///
    /// Clusters of the user count no requests. There are no agents either, for whose events this would wait.
    pub(super) async fn nothing_is_done(&self, duration: Duration) -> anyhow::Result<()> {
        if !self.is_counted() {
            return Ok(());
        }
        let (mut mark, mut since) = (self.mark(), Instant::now());
        report::waiting(&format!(
            "no request to a runtime and no write to the KCP for {duration:?}; what still follows from the last step \
             starts this time again"
        ));
        let seen = testbed::until(DEADLINE, async || {
            let (kcp, skrs) = self.requests_since(&mark).map_err(|error| error.to_string())?;
            let requests = format!("KCP\n{kcp}runtimes\n{skrs}");
            if kcp.writes() + skrs.requests() > 0 {
                // The silence starts again.
                (mark, since) = (self.mark(), Instant::now());
            }
            if duration <= since.elapsed() { Ok(()) } else { Err(requests) }
        });
        seen.await.map_err(|late| anyhow!("nothing is done while nothing changes: {late}"))
    }

    /// Runs a command of this program in the repository, as the user would, and prints the command. Returns its exit
    /// code and its output.
    pub(super) async fn tidegate(&self, arguments: &[&str]) -> anyhow::Result<(Option<i32>, String)> {
        let shown = arguments.iter().map(say::word).collect::<Vec<_>>().join(" ");
        report::doing(&format!("$ tidegate {shown}"));
        let program = std::env::current_exe().context("cannot find the path of this program")?;
        let mut command = tokio::process::Command::new(program);
        command.args(arguments).current_dir(self.repository.path()).stdin(Stdio::null()).kill_on_drop(true);
        let output = tokio::time::timeout(DEADLINE, command.output());
        let output = report::while_waiting("the command ends", output).await;
        let output = output.with_context(|| format!("`tidegate {shown}` does not end"))?;
        let output = output.with_context(|| format!("cannot run `tidegate {shown}`"))?;
        let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        Ok((output.status.code(), text))
    }

    /// The client of a Kyma's runtime.
    pub(super) fn runtime(&self, kyma: &str) -> &Client {
        let index = self.kymas.iter().position(|name| *name == kyma).unwrap_or_default();
        &self.world.skr_clients[index]
    }

    pub(super) fn kyma_api(&self) -> Api<Kyma> {
        Api::namespaced(self.world.kcp_client.clone(), names::KCP_NAMESPACE)
    }

    /// Whether a Kyma is Ready in the KCP with exactly these modules at these versions.
    pub(super) async fn is_ready(&self, kyma: &str, modules: &[(&str, &str)]) -> Result<(), String> {
        let live = self.kyma_api().get_opt(kyma).await.map_err(|error| error.to_string())?;
        let Some(status) = live.ok_or("there is no such Kyma")?.status else {
            return Err("the Kyma has no status".to_owned());
        };
        let found: BTreeMap<&str, (&str, State)> = status
            .modules
            .iter()
            .map(|module| (module.name.as_str(), (module.version.as_deref().unwrap_or_default(), module.state)))
            .collect();
        let wanted: BTreeMap<&str, (&str, State)> =
            modules.iter().map(|(name, version)| (*name, (*version, State::Ready))).collect();
        if status.state == State::Ready && found == wanted {
            return Ok(());
        }
        let said = status.last_operation.map(|last| last.operation).unwrap_or_default();
        Err(format!("Kyma {kyma} is {:?} with {found:?}; {said}", status.state))
    }

    /// Whether an upgrade of a module waits for a maintenance window; the message about it.
    pub(super) async fn waits_for_window(&self, kyma: &str, module: &str) -> Result<String, String> {
        let live = self.kyma_api().get(kyma).await.map_err(|error| error.to_string())?;
        let status = live.status.ok_or("the Kyma has no status")?;
        let found = status.modules.iter().find(|found| found.name == module).ok_or("the Kyma lacks the module")?;
        let all = &status.conditions;
        match all.iter().find(|condition| condition.type_ == conditions::MAINTENANCE_WINDOW) {
            Some(condition) if found.maintenance => Ok(condition.message.clone()),
            _ => Err(format!("{module} is {:?}: {:?}", found.state, found.message)),
        }
    }

    /// Whether the status of a Kyma says that its mandatory modules are ready.
    pub(super) async fn has_mandatory(&self, kyma: &str) -> Result<(), String> {
        let live = self.kyma_api().get(kyma).await.map_err(|error| error.to_string())?;
        let all = live.status.map(|status| status.conditions).unwrap_or_default();
        match all.into_iter().find(|condition| condition.type_ == conditions::MANDATORY_MODULES) {
            Some(found) if found.status == "True" => Ok(()),
            Some(found) => Err(found.message),
            None => Err("no condition".to_owned()),
        }
    }

    /// Whether a module's operator runs in a runtime, at this version and with all its replicas.
    pub(super) async fn operator_runs(&self, kyma: &str, module: &str, version: &str) -> Result<(), String> {
        let deployments: Api<Deployment> = Api::namespaced(self.runtime(kyma).clone(), names::SKR_NAMESPACE);
        let name = format!("{module}-manager");
        let live = deployments.get_opt(&name).await.map_err(|error| error.to_string())?;
        let live = live.ok_or_else(|| format!("no Deployment {name}"))?;
        let found = live.metadata.labels.unwrap_or_default().remove("app.kubernetes.io/version").unwrap_or_default();
        let wanted = live.spec.and_then(|spec| spec.replicas).unwrap_or(1);
        let available = live.status.and_then(|status| status.available_replicas).unwrap_or(0);
        if found == version && available == wanted {
            return Ok(());
        }
        Err(format!("Deployment {name} has version {found:?} and {available} of {wanted} replicas"))
    }

    /// A value of a module's ConfigMap in a runtime.
    pub(super) async fn configured(&self, kyma: &str, module: &str, key: &str) -> Result<String, String> {
        let maps: Api<ConfigMap> = Api::namespaced(self.runtime(kyma).clone(), names::SKR_NAMESPACE);
        let name = format!("{module}-config");
        let live = maps.get_opt(&name).await.map_err(|error| error.to_string())?;
        let live = live.ok_or_else(|| format!("no ConfigMap {name}"))?;
        live.data.unwrap_or_default().remove(key).ok_or_else(|| format!("ConfigMap {name} has no {key}"))
    }

    /// Whether a value of a module's ConfigMap is as wanted.
    pub(super) async fn is_configured(&self, kyma: &str, module: &str, key: &str, value: &str) -> Result<(), String> {
        let found = self.configured(kyma, module, key).await?;
        if found == value { Ok(()) } else { Err(format!("{key} of {module} in {kyma} is {found}")) }
    }

    /// Whether an object does not exist.
    pub(super) async fn is_gone(&self, client: &Client, object: &Value) -> Result<(), String> {
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        let api = match testbed::api_of(client, object).await {
            Ok(api) => api,
            // Without its CRD, no object of a kind exists.
            Err(kube::Error::Api(status)) if status.code == 404 => return Ok(()),
            Err(kube::Error::Discovery(_)) => return Ok(()),
            Err(error) => return Err(error.to_string()),
        };
        match api.get_opt(name).await.map_err(|error| error.to_string())? {
            None => Ok(()),
            Some(_) => Err(format!("{} {name} still exists", object["kind"].as_str().unwrap_or_default())),
        }
    }

    /// The live GitSource.
    pub(super) async fn source(&self) -> Result<GitSource, String> {
        let sources: Api<GitSource> = Api::namespaced(self.world.kcp_client.clone(), names::KCP_NAMESPACE);
        sources.get(SOURCE).await.map_err(|error| error.to_string())
    }

    /// Whether the status of the GitSource says that the whole commit is applied.
    pub(super) async fn is_applied(&self, commit: &str) -> Result<(), String> {
        let status = self.source().await?.status.ok_or("the GitSource has no status")?;
        let applied = status.applied_revision.unwrap_or_default();
        if applied.contains(commit) {
            return Ok(());
        }
        let ready = status.conditions.iter().find(|condition| condition.type_ == "Ready");
        Err(format!("applied is {applied:?}, {}", ready.map_or("no condition", |ready| ready.message.as_str())))
    }

    /// Changes fields of the GitSource, as `kubectl patch` would.
    pub(super) async fn patch_source(&self, patch: &Value) -> anyhow::Result<()> {
        let sources: Api<GitSource> = Api::namespaced(self.world.kcp_client.clone(), names::KCP_NAMESPACE);
        let patched = sources.patch(SOURCE, &PatchParams::default(), &Patch::Merge(patch)).await;
        patched.map(|_| ()).context("cannot change the GitSource")
    }

    /// Starts to count the requests to all clusters.
    pub(super) fn mark(&self) -> Mark {
        Mark(self.servers().map(servers::Server::mark).collect())
    }

    /// The daemon's requests since then: to the KCP (without its Lease and watches), and to the runtimes.
    pub(super) fn requests_since(&self, mark: &Mark) -> anyhow::Result<(Tally, Tally)> {
        let (mut kcp, mut skrs) = (Tally::default(), Tally::default());
        for (index, (server, mark)) in self.servers().zip(&mark.0).enumerate() {
            let seen = server.since(mark, DAEMON)?.tally;
            if index == 0 { kcp.merge(&seen) } else { skrs.merge(&seen) }
        }
        Ok((kcp, skrs))
    }

    fn servers(&self) -> impl Iterator<Item = &servers::Server> {
        let own = self.world.own.iter();
        own.flat_map(|own| std::iter::once(&own.kcp).chain(&own.skrs))
    }
}
