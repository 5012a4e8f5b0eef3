//! `tidegate sim serve`: a fleet of simulated runtimes, and their access Secrets in a control plane.
//!
//! Each runtime is a cluster of its own, behind a loopback port, with its own CA and kubeconfig. So its clients must
//! run on this machine. The content of the runtimes is lost when this process ends, so the process deletes the Secrets
//! first. The Secrets have the ownership label of this fleet; the process never changes Secrets of other fleets or
//! users.

use std::{
    cell::Cell,
    collections::BTreeSet,
    fs::{self, File},
    io::{self, Read as _, Seek as _, Write as _},
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context as _, bail};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use clap::Args;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::api::{
    authorization::v1::{ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec},
    core::v1::Secret,
};
use kube::{
    Api, Client, ResourceExt as _,
    api::{DeleteParams, ListParams, PartialObjectMeta, Patch, PatchParams, PostParams, Preconditions},
};
use serde_json::{Value, json};
use tokio::signal::unix::{SignalKind, signal};

use super::{fleet, open_files};
use crate::{control_plane, servers::Server};
use kube_sim::{self as sim, Readiness};
use tidegate_core::api::{
    self, Kyma,
    names::{self, label},
};
use tidegate_process::{Exit, ambient, period::Period, say};
use tidegate_testbed::{self as testbed, Folder};

/// Runs a fleet of simulated runtimes, and creates their access Secrets in a control plane.
#[derive(Args)]
pub(super) struct Arguments {
    /// Start this many runtimes, each a cluster of its own
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u16).range(1..=fleet::RUNTIMES_MAX))]
    runtimes: u16,
    /// Create the Secrets in the control plane of this kubeconfig, which must run on this machine [default: a simulated
    /// control plane]
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Write kubeconfigs to this folder, which is kept, for example `./fleet` [default: a temporary folder]
    #[arg(long, value_name = "FOLDER")]
    dir: Option<PathBuf>,
    /// Make a Deployment ready this long after it is created or changed, for example `5s`
    #[arg(long, value_name = "DURATION", default_value = "0s")]
    ready_after: Period,
}

/// The ownership label of the Secrets. Its value is the id of the fleet.
const SIMULATED: &str = "tidegate.dev/simulated";
/// The field manager.
const MANAGER: &str = "tidegate-sim";
/// Requests to the control plane at once.
const CONNECTIONS: usize = 16;
/// Longest time for the checks of a control plane at the start.
const GREETING: Duration = Duration::from_secs(5);
/// Longest time to delete the Secrets at the end.
const FAREWELL: Duration = Duration::from_secs(30);

/// A folder that this fleet owns until the value is dropped.
struct Claim {
    /// The id of the fleet. It stays the same for every fleet in this folder.
    fleet: String,
    _lock: File,
}

/// The control plane with the Secrets.
struct ControlPlane {
    client: Client,
    /// The id of this fleet.
    fleet: String,
    /// Its kubeconfig, if the user named one.
    kubeconfig: Option<PathBuf>,
    /// The server, if the control plane is simulated.
    server: Option<Server>,
}

/// Serves until a signal.
pub(super) async fn run(arguments: &Arguments) -> anyhow::Result<Exit> {
    let mut stop = signal(SignalKind::terminate()).context("cannot listen for signals")?;
    // The control plane is checked before anything is created that would be left behind.
    let given = match &arguments.kubeconfig {
        Some(path) => Some(reach(path).await?),
        None => None,
    };
    let temporary = match arguments.dir {
        Some(_) => None,
        None => Some(Folder::temporary("tidegate-fleet-")?),
    };
    let folder = arguments.dir.as_deref().or(temporary.as_ref().map(Folder::path)).context("there is a folder")?;
    let runtimes = folder.join("runtimes");
    fs::create_dir_all(&runtimes).with_context(|| format!("cannot create {}", runtimes.display()))?;
    let mine = claim(&runtimes)?;
    open_files(usize::from(arguments.runtimes));
    let kcp = match given {
        Some(client) => {
            ControlPlane { client, fleet: mine.fleet.clone(), kubeconfig: arguments.kubeconfig.clone(), server: None }
        }
        None => ControlPlane::simulated(folder, mine.fleet.clone()).await?,
    };
    let fleet = start(usize::from(arguments.runtimes), arguments.ready_after.0).await?;
    for server in &fleet {
        write(&runtimes.join(format!("{}.kubeconfig", server.name())), &server.kubeconfig().text())?;
    }
    let served = async {
        kcp.lead_to(&fleet).await?;
        announce(arguments, folder, fleet.len());
        say::lost().await;
        anyhow::Ok(())
    };
    let served = tokio::select! {
        served = served => served,
        _ = tokio::signal::ctrl_c() => Ok(()),
        _ = stop.recv() => Ok(()),
    };
    // However the process ends, no Secret may point to a stopped runtime.
    match (served, kcp.leave().await) {
        (Ok(()), left) => left.map(|()| Exit::Ok),
        (Err(error), Ok(())) => Err(error),
        (Err(error), Err(left)) => bail!("{error:#}; {left:#}"),
    }
}

/// A client of the control plane of a kubeconfig. Fails with one line that says what to do, unless the control plane
/// answers, serves Kymas and allows this user to write Secrets.
async fn reach(path: &Path) -> anyhow::Result<Client> {
    let config = control_plane::config_of(path).await?;
    let server = config.cluster_url.to_string();
    let server = server.trim_end_matches('/');
    let client = |config: kube::Config| Client::try_from(config).context("cannot use the kubeconfig");
    // The first failure is reported at once, without a retry.
    let mut hasty = config.clone();
    hasty.default_retry = false;
    let first = client(hasty)?;
    let unreachable = |problem: &str| {
        anyhow::anyhow!(
            "the control plane {server} does not answer ({problem}): start it, or use another kubeconfig than {}",
            path.display()
        )
    };
    let greeted = tokio::time::timeout(GREETING, greet(&first)).await;
    match greeted.map_err(|_| unreachable(&format!("no answer within {} s", GREETING.as_secs())))? {
        Ok(None) => client(config),
        Ok(Some(problem)) => bail!("the control plane {server} {problem}"),
        Err(kube::Error::Api(status)) => bail!(
            "the control plane {server} denies access with {}: {}: use a kubeconfig with access",
            path.display(),
            status.message
        ),
        Err(error) => Err(unreachable(&root_of(&error))),
    }
}

/// What the control plane lacks, if anything.
async fn greet(client: &Client) -> Result<Option<String>, kube::Error> {
    let kymas: Api<Kyma> = Api::namespaced(client.clone(), names::KCP_NAMESPACE);
    match kymas.list_metadata(&ListParams::default().limit(1)).await {
        Err(kube::Error::Api(status)) if status.code == 404 => {
            let problem =
                "serves no Kymas: install the CRDs first (`tidegate crds | kubectl apply --server-side -f -`)";
            return Ok(Some(problem.to_owned()));
        }
        // A user who may not list Kymas may still be allowed to write Secrets.
        Err(kube::Error::Api(status)) if status.code == 403 => {}
        listed => drop(listed?),
    }
    let reviews: Api<SelfSubjectAccessReview> = Api::all(client.clone());
    for verb in ["list", "create", "patch", "delete"] {
        let review = SelfSubjectAccessReview {
            spec: SelfSubjectAccessReviewSpec {
                resource_attributes: Some(ResourceAttributes {
                    namespace: Some(names::KCP_NAMESPACE.to_owned()),
                    resource: Some("secrets".to_owned()),
                    verb: Some(verb.to_owned()),
                    ..ResourceAttributes::default()
                }),
                ..SelfSubjectAccessReviewSpec::default()
            },
            ..SelfSubjectAccessReview::default()
        };
        let answer = reviews.create(&PostParams::default(), &review).await?;
        if !answer.status.is_some_and(|status| status.allowed) {
            return Ok(Some(format!(
                "does not allow this user to {verb} Secrets in namespace {}: grant it, or use another kubeconfig",
                names::KCP_NAMESPACE
            )));
        }
    }
    Ok(None)
}

/// The root cause of an error.
fn root_of(error: &dyn std::error::Error) -> String {
    let mut root = error;
    while let Some(source) = root.source() {
        root = source;
    }
    root.to_string()
}

/// Locks a folder until the value is dropped, and removes the kubeconfigs of an earlier fleet there.
fn claim(runtimes: &Path) -> anyhow::Result<Claim> {
    let path = runtimes.join(".lock");
    let opened = File::options().read(true).write(true).create(true).truncate(false).open(&path);
    let mut lock = opened.with_context(|| format!("cannot write {}", path.display()))?;
    if lock.try_lock().is_err() {
        bail!("{} belongs to a running fleet: use another folder", runtimes.display());
    }
    let entries = fs::read_dir(runtimes).with_context(|| format!("cannot read {}", runtimes.display()))?;
    for path in entries.filter_map(|entry| Some(entry.ok()?.path())) {
        if path.extension().is_some_and(|extension| extension == "kubeconfig") {
            fs::remove_file(&path).with_context(|| format!("cannot remove {}", path.display()))?;
        }
    }
    let fleet = identity(&mut lock).with_context(|| format!("cannot write {}", path.display()))?;
    Ok(Claim { fleet, _lock: lock })
}

/// The id of a fleet from its file, or a new id.
fn identity(file: &mut File) -> io::Result<String> {
    /// Hexadecimal digits, which a label may have as well.
    const DIGITS: usize = 16;
    let mut text = Vec::new();
    file.take(DIGITS as u64 + 1).read_to_end(&mut text)?;
    if text.len() == DIGITS && text.iter().all(u8::is_ascii_hexdigit) {
        return Ok(String::from_utf8_lossy(&text).into_owned());
    }
    let new = format!("{:016x}", ambient::number());
    file.set_len(0)?;
    file.rewind()?;
    file.write_all(new.as_bytes())?;
    Ok(new)
}

/// Starts runtimes whose names are those of their Kymas.
pub(super) async fn start(runtimes: usize, ready_after: Duration) -> anyhow::Result<Vec<Server>> {
    let mut fleet = Vec::with_capacity(runtimes);
    for index in 1..=runtimes {
        // A seed for each server: the UIDs of its namespaces identify a cluster.
        let options = sim::Options { readiness: Readiness::After(ready_after), ..sim::Options::default() };
        fleet.push(Server::simulated(&fleet::kyma_name(index), &options).await?);
    }
    Ok(fleet)
}

fn announce(arguments: &Arguments, folder: &Path, runtimes: usize) {
    let folder = folder.display();
    let kcp = match &arguments.kubeconfig {
        Some(path) => format!("the control plane of {}", path.display()),
        None => format!("a simulated control plane, {folder}/kcp.kubeconfig"),
    };
    say!(
        "{runtimes} runtimes: {folder}/runtimes/*.kubeconfig\n{kcp}, with their Secrets in {}, labelled {}={} to {}\n\
         press Ctrl-C to stop and to delete the Secrets",
        names::KCP_NAMESPACE,
        label::KYMA_NAME,
        fleet::kyma_name(1),
        fleet::kyma_name(runtimes),
    );
}

// === impl ControlPlane ===

impl ControlPlane {
    /// Creates a simulated control plane with our CRDs.
    async fn simulated(folder: &Path, fleet: String) -> anyhow::Result<ControlPlane> {
        let server = Server::simulated("kcp", &sim::Options::default()).await?;
        write(&folder.join("kcp.kubeconfig"), &server.kubeconfig().text())?;
        let client = server.client()?;
        let crds: Vec<Value> = api::crds().iter().map(serde_json::to_value).collect::<Result<_, _>>()?;
        testbed::install_crds(&client, &crds).await?;
        Ok(ControlPlane { client, fleet, kubeconfig: None, server: Some(server) })
    }

    fn secrets(&self) -> Api<Secret> {
        Api::namespaced(self.client.clone(), names::KCP_NAMESPACE)
    }

    /// Creates a Secret for each runtime, and deletes those that an earlier fleet of this folder left.
    async fn lead_to(&self, fleet: &[Server]) -> anyhow::Result<()> {
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": names::KCP_NAMESPACE}});
        testbed::apply(&self.client, &namespace).await.map_err(control_plane::sentence)?;
        let kymas: BTreeSet<&str> = fleet.iter().map(Server::name).collect();
        let ours = self.check(&self.list(&ListParams::default()).await?, &kymas)?;
        let names: BTreeSet<String> = kymas.iter().map(|kyma| secret_name(kyma)).collect();
        self.delete(|name| !names.contains(name)).await?;
        let failed = Cell::new(false);
        let writes = fleet.iter().map(|server| async {
            if failed.get() {
                return Ok(());
            }
            let written = self.write(server, &ours).await;
            failed.set(failed.get() || written.is_err());
            written
        });
        // After a failure, also wait for running writes, so that cleaning up finds all Secrets.
        let written: Vec<anyhow::Result<()>> = stream::iter(writes).buffer_unordered(CONNECTIONS).collect().await;
        written.into_iter().collect()
    }

    /// The names of the Secrets of this fleet. Fails if a Kyma would get a second Secret, or if a Secret of another
    /// owner would change.
    fn check(&self, listed: &[PartialObjectMeta<Secret>], kymas: &BTreeSet<&str>) -> anyhow::Result<BTreeSet<String>> {
        let mut ours = BTreeSet::new();
        for secret in listed {
            let (name, labels) = (secret.name_any(), secret.labels());
            let is_for_ours = labels.get(label::KYMA_NAME).is_some_and(|kyma| kymas.contains(kyma.as_str()));
            let is_named_so = kymas.iter().any(|kyma| secret_name(kyma) == name);
            match labels.get(SIMULATED) {
                Some(fleet) if *fleet == self.fleet => {
                    ours.insert(name);
                }
                Some(fleet) if is_for_ours || is_named_so => bail!(
                    "Secret {name} belongs to another fleet: use another control plane, or stop that fleet; if it no \
                     longer runs, `kubectl{} -n {} delete secrets -l {SIMULATED}={fleet}` deletes its Secrets",
                    self.kubeconfig
                        .iter()
                        .map(|path| format!(" --kubeconfig {}", say::word(path.display())))
                        .collect::<String>(),
                    names::KCP_NAMESPACE
                ),
                None if is_for_ours => bail!(
                    "Secret {name} is for another runtime with the same name: delete it, or use another control plane"
                ),
                None if is_named_so => {
                    bail!("Secret {name} does not belong to this fleet: delete it, or use another control plane")
                }
                Some(_) | None => {}
            }
        }
        Ok(ours)
    }

    /// Writes the Secret of a runtime: updates the one of this fleet, or creates a new one.
    async fn write(&self, server: &Server, ours: &BTreeSet<String>) -> anyhow::Result<()> {
        let secrets = self.secrets();
        let secret = access(server, &self.fleet)?;
        let name = secret.name_any();
        let written = if ours.contains(&name) {
            // Forced, because it has the label of this fleet.
            secrets.patch(&name, &PatchParams::apply(MANAGER).force(), &Patch::Apply(&secret)).await
        } else {
            // Created, not applied: another user may create a Secret with this name in the meantime.
            let parameters = PostParams { field_manager: Some(MANAGER.to_owned()), ..PostParams::default() };
            secrets.create(&parameters, &secret).await
        };
        written.map_err(control_plane::sentence).with_context(|| format!("cannot write Secret {name}"))?;
        Ok(())
    }

    /// Deletes the Secrets of this fleet and of earlier ones in its folder. A simulated control plane ends anyway.
    async fn leave(&self) -> anyhow::Result<()> {
        if self.server.is_some() {
            return Ok(());
        }
        tokio::time::timeout(FAREWELL, self.delete(|_| true))
            .await
            .context("the control plane does not answer: the Secrets are not deleted")?
    }

    /// Deletes Secrets with the label of this fleet, selected by name.
    async fn delete(&self, which: impl Fn(&str) -> bool) -> anyhow::Result<()> {
        let secrets = self.secrets();
        let listed = self.list(&ListParams::default().labels(&format!("{SIMULATED}={}", self.fleet))).await?;
        let deletes = listed.iter().filter(|secret| which(&secret.name_any())).map(|secret| async {
            let name = secret.name_any();
            let preconditions = Preconditions { uid: secret.uid(), resource_version: None };
            let parameters = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
            match secrets.delete(&name, &parameters).await {
                Ok(_) => Ok(()),
                // It is gone, or was replaced meanwhile.
                Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(()),
                Err(error) => {
                    Err(control_plane::sentence(error)).with_context(|| format!("cannot delete Secret {name}"))
                }
            }
        });
        stream::iter(deletes).buffer_unordered(CONNECTIONS).try_collect::<()>().await
    }

    async fn list(&self, parameters: &ListParams) -> anyhow::Result<Vec<PartialObjectMeta<Secret>>> {
        let listed = self.secrets().list_metadata(parameters).await;
        Ok(listed.map_err(control_plane::sentence).context("cannot list Secrets")?.items)
    }
}

fn secret_name(kyma: &str) -> String {
    format!("kubeconfig-{kyma}")
}

/// The access Secret that a provisioning service creates in a control plane for a runtime.
fn access(server: &Server, fleet: &str) -> anyhow::Result<Secret> {
    let name = server.name();
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret",
        "metadata": {
            "name": secret_name(name), "namespace": names::KCP_NAMESPACE,
            "labels": {label::KYMA_NAME: name, label::MANAGED_BY: names::MANAGED_BY_KCP, SIMULATED: fleet},
        },
        "data": {names::ACCESS_SECRET_KEY: STANDARD.encode(server.kubeconfig().text())},
    });
    serde_json::from_value(secret).context("cannot create a Secret")
}

fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Namespace;

    use super::*;

    #[tokio::test]
    async fn runtimes_are_clusters_of_their_own() {
        tidegate_process::tls::install();
        let mut uids = BTreeSet::new();
        for server in start(3, Duration::ZERO).await.unwrap() {
            let namespaces: Api<Namespace> = Api::all(server.client().unwrap());
            uids.insert(namespaces.get("kube-system").await.unwrap().uid().expect("an API server gives a UID"));
        }
        assert_eq!(uids.len(), 3, "{uids:?}");
    }
}
