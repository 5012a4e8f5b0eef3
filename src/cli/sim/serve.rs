//! `tidegate sim serve`: a fleet of simulated runtimes, and the Secrets that lead a control plane to them.
//!
//! Each runtime is a cluster of its own, behind a port on loopback, with its own authority and kubeconfig: whoever works
//! with it must run on this machine. What they hold is gone with this process, and so are the Secrets, which would lead
//! nowhere. Secrets that somebody else made are never touched.

use std::{
    collections::BTreeSet,
    fs::{self, File},
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
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};
use tokio::signal::unix::{SignalKind, signal};

use super::{fleet, open_files};
use crate::{
    api::{
        self, Kyma,
        names::{self, label},
    },
    cli::{Exit, control_plane, say, servers::Server},
    period::Period,
    sim::{self, Readiness},
    testbed::{self, Folder},
};

/// Serve a fleet of simulated runtimes, and put their kubeconfigs into a control plane
#[derive(Args)]
pub(super) struct Arguments {
    /// Runtimes, each a cluster of its own
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u16).range(1..=fleet::RUNTIMES_MAX))]
    runtimes: u16,
    /// Kubeconfig of the control plane that gets the Secrets, which must run on this machine; a simulated one, if none is
    /// given
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Where kubeconfigs go; the folder is kept. Default: a temporary one
    #[arg(long, value_name = "FOLDER")]
    dir: Option<PathBuf>,
    /// From when a Deployment is created or changed until it is ready
    #[arg(long, value_name = "DURATION", default_value = "0s")]
    ready_after: Period,
}

/// The mark of our Secrets.
const SIMULATED: &str = "tidegate.dev/simulated";
/// Who writes them.
const MANAGER: &str = "tidegate-sim";
/// Requests to the control plane at once.
const CONNECTIONS: usize = 16;
/// For how long a control plane may take to say whether it will do.
const GREETING: Duration = Duration::from_secs(5);
/// For how long the Secrets may take to be deleted at the end.
const FAREWELL: Duration = Duration::from_secs(30);

/// The control plane that has the Secrets.
struct ControlPlane {
    client: Client,
    /// The simulated one, if it is that.
    _server: Option<Server>,
}

/// Serves until somebody ends it.
pub(super) async fn run(arguments: &Arguments) -> anyhow::Result<Exit> {
    let mut stop = signal(SignalKind::terminate()).context("cannot listen for signals")?;
    // Before anything is made that would be left behind.
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
    fs::create_dir_all(&runtimes).with_context(|| format!("cannot make {}", runtimes.display()))?;
    let _mine = claim(&runtimes)?;
    open_files(usize::from(arguments.runtimes));
    let kcp = match given {
        Some(client) => ControlPlane { client, _server: None },
        None => ControlPlane::simulated(folder).await?,
    };
    let fleet = start(usize::from(arguments.runtimes), arguments.ready_after.0).await?;
    for server in &fleet {
        write(&runtimes.join(format!("{}.kubeconfig", server.name())), &server.kubeconfig().text())?;
    }
    kcp.lead_to(&fleet).await?;
    say(arguments, folder, fleet.len());
    tokio::select! {
        _ = tokio::signal::ctrl_c() => {}
        _ = stop.recv() => {}
        () = say::lost() => {}
    }
    if arguments.kubeconfig.is_some() {
        tokio::time::timeout(FAREWELL, kcp.leave(&fleet))
            .await
            .context("the control plane does not answer: the Secrets are left there")??;
    }
    Ok(Exit::Ok)
}

/// A client of the control plane that a kubeconfig leads to, if that answers, has Kymas, and lets us write Secrets.
/// Otherwise one sentence that says what to do.
async fn reach(path: &Path) -> anyhow::Result<Client> {
    let config = control_plane::config_of(path).await?;
    let server = config.cluster_url.to_string();
    let server = server.trim_end_matches('/');
    let client = |config: kube::Config| Client::try_from(config).context("cannot use the kubeconfig");
    // What is not there at once is to be told at once.
    let mut hasty = config.clone();
    hasty.default_retry = false;
    let first = client(hasty)?;
    let unreachable = |problem: &str| {
        anyhow::anyhow!(
            "the control plane {server} does not answer ({problem}): start it, or name another kubeconfig than {}",
            path.display()
        )
    };
    let greeted = tokio::time::timeout(GREETING, greet(&first)).await;
    match greeted.map_err(|_| unreachable(&format!("nothing within {} s", GREETING.as_secs())))? {
        Ok(None) => client(config),
        Ok(Some(problem)) => bail!("the control plane {server} {problem}"),
        Err(kube::Error::Api(status)) => bail!(
            "the control plane {server} lets nobody in who comes with {}: {}; name a kubeconfig with access",
            path.display(),
            status.message
        ),
        Err(error) => Err(unreachable(&root_of(&error))),
    }
}

/// What a control plane lacks, if anything.
async fn greet(client: &Client) -> Result<Option<String>, kube::Error> {
    let kymas: Api<Kyma> = Api::namespaced(client.clone(), names::KCP_NAMESPACE);
    match kymas.list_metadata(&ListParams::default().limit(1)).await {
        Err(kube::Error::Api(status)) if status.code == 404 => {
            let problem =
                "serves no Kymas: install the CRDs first (`tidegate crds | kubectl apply --server-side -f -`)";
            return Ok(Some(problem.to_owned()));
        }
        // Whoever may not list Kymas may be allowed what is needed.
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
                "does not let this user {verb} Secrets in namespace {}: grant it, or name another kubeconfig",
                names::KCP_NAMESPACE
            )));
        }
    }
    Ok(None)
}

/// What is behind an error, at the end of its chain.
fn root_of(error: &dyn std::error::Error) -> String {
    let mut root = error;
    while let Some(source) = root.source() {
        root = source;
    }
    root.to_string()
}

/// Takes possession of a folder as long as the value lives, and removes what an earlier fleet has left there.
fn claim(runtimes: &Path) -> anyhow::Result<File> {
    let path = runtimes.join(".lock");
    let lock = File::create(&path).with_context(|| format!("cannot write {}", path.display()))?;
    if lock.try_lock().is_err() {
        bail!("{} belongs to a fleet that is running: give this one another folder", runtimes.display());
    }
    let entries = fs::read_dir(runtimes).with_context(|| format!("cannot read {}", runtimes.display()))?;
    for path in entries.filter_map(|entry| Some(entry.ok()?.path())) {
        if path.extension().is_some_and(|extension| extension == "kubeconfig") {
            fs::remove_file(&path).with_context(|| format!("cannot remove {}", path.display()))?;
        }
    }
    Ok(lock)
}

/// Starts runtimes whose names are those of their Kymas.
pub(super) async fn start(runtimes: usize, ready_after: Duration) -> anyhow::Result<Vec<Server>> {
    let options = sim::Options { readiness: Readiness::After(ready_after), ..sim::Options::default() };
    let mut fleet = Vec::with_capacity(runtimes);
    for index in 1..=runtimes {
        fleet.push(Server::simulated(&fleet::kyma_name(index), &options).await?);
    }
    Ok(fleet)
}

fn say(arguments: &Arguments, folder: &Path, runtimes: usize) {
    let folder = folder.display();
    let kcp = match &arguments.kubeconfig {
        Some(path) => format!("the control plane of {}", path.display()),
        None => format!("a simulated control plane, {folder}/kcp.kubeconfig"),
    };
    say!(
        "{runtimes} runtimes, {folder}/runtimes/*.kubeconfig\n{kcp}, has their Secrets in {}, labelled {}={} to {}\n\
         all of it stays until Ctrl-C",
        names::KCP_NAMESPACE,
        label::KYMA_NAME,
        fleet::kyma_name(1),
        fleet::kyma_name(runtimes),
    );
}

// === impl ControlPlane ===

impl ControlPlane {
    /// A simulated one with our CRDs.
    async fn simulated(folder: &Path) -> anyhow::Result<ControlPlane> {
        let server = Server::simulated("kcp", &sim::Options::default()).await?;
        write(&folder.join("kcp.kubeconfig"), &server.kubeconfig().text())?;
        let client = server.client()?;
        let crds: Vec<Value> = api::crds().iter().map(serde_json::to_value).collect::<Result<_, _>>()?;
        testbed::install_crds(&client, &crds).await?;
        Ok(ControlPlane { client, _server: Some(server) })
    }

    fn secrets(&self) -> Api<Secret> {
        Api::namespaced(self.client.clone(), names::KCP_NAMESPACE)
    }

    /// Puts a Secret there for each runtime.
    async fn lead_to(&self, fleet: &[Server]) -> anyhow::Result<()> {
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": names::KCP_NAMESPACE}});
        testbed::apply(&self.client, &namespace).await.map_err(control_plane::sentence)?;
        self.check_names(fleet).await?;
        let secrets = self.secrets();
        // Not forced: what we wrote before is ours anyway, and what somebody else wrote is not taken.
        let parameters = PatchParams::apply(MANAGER);
        let writes = fleet.iter().map(|server| async {
            let secret = access(server)?;
            let name = secret.name_any();
            let written = secrets.patch(&name, &parameters, &Patch::Apply(&secret)).await;
            written.map_err(control_plane::sentence).with_context(|| format!("cannot write Secret {name}"))?;
            anyhow::Ok(())
        });
        stream::iter(writes).buffer_unordered(CONNECTIONS).try_collect::<()>().await
    }

    /// Refuses to give a Kyma a second Secret, or somebody's Secret another content.
    async fn check_names(&self, fleet: &[Server]) -> anyhow::Result<()> {
        let kymas: BTreeSet<&str> = fleet.iter().map(Server::name).collect();
        let listed = self.secrets().list_metadata(&ListParams::default().labels(label::KYMA_NAME)).await;
        let listed = listed.map_err(control_plane::sentence).context("cannot list Secrets")?;
        for secret in listed {
            let labels = secret.labels();
            let of_ours = labels.get(label::KYMA_NAME).is_some_and(|kyma| kymas.contains(kyma.as_str()));
            if of_ours && !labels.contains_key(SIMULATED) {
                bail!(
                    "Secret {} gives access to another runtime of that name: remove it, or use another control plane",
                    secret.name_any()
                );
            }
        }
        Ok(())
    }

    /// Takes away what [`ControlPlane::lead_to`] brought.
    async fn leave(&self, fleet: &[Server]) -> anyhow::Result<()> {
        let secrets = self.secrets();
        let deletes = fleet.iter().map(|server| async {
            let name = secret_name(server.name());
            match secrets.delete(&name, &DeleteParams::default()).await {
                Ok(_) => Ok(()),
                Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
                Err(error) => {
                    Err(control_plane::sentence(error)).with_context(|| format!("cannot delete Secret {name}"))
                }
            }
        });
        stream::iter(deletes).buffer_unordered(CONNECTIONS).try_collect::<()>().await
    }
}

fn secret_name(kyma: &str) -> String {
    format!("kubeconfig-{kyma}")
}

/// What a provisioning service leaves in a control plane for a runtime.
fn access(server: &Server) -> anyhow::Result<Secret> {
    let name = server.name();
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret",
        "metadata": {
            "name": secret_name(name), "namespace": names::KCP_NAMESPACE,
            "labels": {label::KYMA_NAME: name, label::MANAGED_BY: names::MANAGED_BY_KCP, SIMULATED: "true"},
        },
        "data": {names::ACCESS_SECRET_KEY: STANDARD.encode(server.kubeconfig().text())},
    });
    serde_json::from_value(secret).context("cannot make a Secret")
}

fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}
