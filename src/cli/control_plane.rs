//! The control plane for commands such as `status` and `reconcile`: with the user's kubeconfig, custom resources only.

use std::{collections::BTreeSet, path::PathBuf, sync::Arc, time::Duration};

use anyhow::{Context as _, bail};
use futures::future::BoxFuture;
use http::{Response, StatusCode};
use k8s_openapi::api::core::v1::Namespace;
use kube::{
    Api, Client, Resource,
    api::{ListParams, Patch, PatchParams},
    client::ClientBuilder,
    config::{KubeConfigOptions, KubeconfigError},
    core::{DynamicObject, GroupVersionKind, NamespaceResourceScope, discovery::ApiResource},
};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::status;
use tidegate_cluster::{self as cluster, ClusterName, Limits, Unreachable, kubeconfig_problem, read_kubeconfig};
use tidegate_core::{
    api::{
        GitSource, Kyma, Manifest, Watcher, names, setup,
        shared::{Condition, ObjectMeta, State},
    },
    conditions, intake,
    landscape::{self, Switch},
    name::Key,
    overview::UnreadableLine,
    status::{held_by_pauses, held_by_users},
};
use tidegate_process::{Exit, period::Period, tls};
use tower::{BoxError, util::MapFutureLayer};

/// Which control plane.
#[derive(clap::Args)]
pub(super) struct Access {
    /// Read the kubeconfig of the control plane from this file [default: $KUBECONFIG, else ~/.kube/config]
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Use this context of the kubeconfig [default: its current context]
    #[arg(long, value_name = "NAME")]
    context: Option<String>,
    /// Give up a request to the control plane, or to a runtime, after this time, for example `5s`; without the control
    /// plane, the command ends with exit code 5; `0` for no limit, as in kubectl [default: 30s]
    #[arg(long, value_name = "DURATION")]
    request_timeout: Option<Period>,
    /// Make requests to the control plane as this user, for example `anna` or `system:serviceaccount:team-a:ci`, if the
    /// user of the kubeconfig may impersonate it [default: the user of the kubeconfig]
    #[arg(long = "as", value_name = "USER")]
    user: Option<String>,
    /// Make them as a member of this group as well, for example `system:masters`; repeat the option for more [default:
    /// none]
    #[arg(long = "as-group", value_name = "GROUP", requires = "user")]
    groups: Vec<String>,
}

/// Kinds that can be named on the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    GitSource,
    Kyma,
    Manifest,
    Watcher,
}

/// `KIND/NAME`, or `NAME` alone if only one object has this name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Target {
    kind: Option<Kind>,
    name: String,
}

/// One object of the control plane.
#[derive(Clone, Debug)]
pub(super) struct ControlPlaneObject {
    pub(super) kind: Kind,
    pub(super) key: Key,
}

/// What `reconcile --wait` needs of the status of an object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Answer {
    /// Last value of the annotation that requests a reconcile that the daemon has worked on, with or without success.
    pub(super) handled: Option<String>,
    /// Whether that work took all steps.
    pub(super) is_complete: bool,
    /// The verdict of its status.
    pub(super) verdict: Verdict,
    /// The message of its status, on one line.
    pub(super) message: String,
    /// Whether a label keeps the daemon from reconciling it.
    pub(super) is_skipped: bool,
    /// Whether only users can end what a module waits for, as the message says.
    pub(super) is_held: bool,
    /// The Kyma of a Manifest.
    pub(super) kyma: Option<Key>,
}

/// What a status says about an object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It is as desired.
    Good,
    /// Something is wrong; the message is the cause.
    Bad,
    /// The daemon is not done.
    #[default]
    Open,
}

/// What a list could not give.
#[derive(Default)]
pub(super) struct Lacks {
    /// The objects that do not match their type.
    pub(super) unreadable: Vec<UnreadableLine>,
    /// The kinds that the control plane does not serve, by their plural.
    pub(super) not_served: BTreeSet<String>,
}

/// Why nothing can be known of the control plane.
#[derive(Debug, thiserror::Error)]
pub(super) enum ControlPlaneFailure {
    /// It did not answer.
    #[error("the control plane at {server} cannot be reached: {cause}")]
    NotReached {
        /// Host and port.
        server: Arc<str>,
        /// In one clause.
        cause: String,
    },
    /// It does not accept the client's credentials.
    #[error("the control plane at {server} rejected the credentials of the kubeconfig")]
    Unauthorized {
        /// Host and port.
        server: Arc<str>,
    },
}

/// What is said of a server that has no namespaces at all.
pub(super) const NO_API_SERVER: &str =
    "the control plane does not answer like an API server: check the path of `server` in the kubeconfig";

/// The field manager, for `managedFields`.
pub(super) const MANAGER: &str = names::CLI_FIELD_MANAGER;
/// Objects in one page of a list.
const PAGE: u32 = 500;
/// Longest time for one request.
const REQUEST_MAX: Duration = Duration::from_secs(30);
/// What `--request-timeout 0` stands for: clocks cannot add the largest duration.
const NO_LIMIT: Duration = Duration::from_secs(365 * 24 * 3600);
/// Longest time for opening a connection, if a request may take longer.
const CONNECT_MAX: Duration = Duration::from_secs(5);

// === impl Access ===

impl Access {
    /// A client for the control plane. Makes no request. Fails if the kubeconfig cannot be used.
    pub(super) async fn client(&self) -> anyhow::Result<Client> {
        let config = self.config().await?;
        let server: Arc<str> = config.cluster_url.authority().map_or("unknown server", |url| url.as_str()).into();
        let limit = self.request_max();
        // The limits of a connection do not include the handshake of TLS.
        let limited = move |answer: BoxFuture<'static, Result<Response<_>, BoxError>>| {
            let server = Arc::clone(&server);
            async move {
                let cause = match tokio::time::timeout(limit, answer).await {
                    Ok(Ok(answer)) if answer.status() == StatusCode::UNAUTHORIZED => {
                        return Err::<_, BoxError>(ControlPlaneFailure::Unauthorized { server }.into());
                    }
                    Ok(Ok(answer)) => return Ok(answer),
                    Ok(Err(error)) => ControlPlaneFailure::cause(&*error),
                    Err(_elapsed) => Unreachable::Timeout.to_string(),
                };
                Err::<_, BoxError>(ControlPlaneFailure::NotReached { server, cause }.into())
            }
        };
        let builder = ClientBuilder::try_from(config.clone())
            .map_err(|error| anyhow::Error::msg(cluster::client_problem(&error, &config)))
            .context("cannot use the kubeconfig")?;
        Ok(builder.with_layer(&MapFutureLayer::new(limited)).build())
    }

    /// The limits of requests to the control plane, so many at once.
    pub(super) fn limits(&self, concurrency: usize) -> Limits {
        let request_timeout = self.request_max();
        Limits { concurrency, request_timeout, connect_timeout: CONNECT_MAX.min(request_timeout) }
    }

    fn request_max(&self) -> Duration {
        match self.request_timeout {
            None => REQUEST_MAX,
            Some(Period(Duration::ZERO)) => NO_LIMIT,
            Some(Period(timeout)) => timeout,
        }
    }

    /// The connection to the control plane. Makes no request. Fails if the kubeconfig cannot be used.
    pub(super) async fn config(&self) -> anyhow::Result<kube::Config> {
        tls::install();
        let options = KubeConfigOptions { context: self.context.clone(), ..KubeConfigOptions::default() };
        let config = match &self.kubeconfig {
            Some(path) => {
                let kubeconfig = read_kubeconfig(path)
                    .map_err(anyhow::Error::msg)
                    .with_context(|| format!("cannot read the kubeconfig {}", path.display()))?;
                kube::Config::from_custom_kubeconfig(kubeconfig, &options).await
            }
            None => kube::Config::from_kubeconfig(&options).await,
        };
        let mut config = config.map_err(|error| anyhow::Error::msg(unusable(&error)))?;
        if self.user.is_some() {
            config.auth_info.impersonate.clone_from(&self.user);
            config.auth_info.impersonate_groups = Some(self.groups.clone());
        }
        let timeout = self.request_max();
        config.connect_timeout = Some(timeout);
        config.read_timeout = Some(timeout);
        config.write_timeout = Some(timeout);
        Ok(config)
    }
}

/// Why a kubeconfig cannot be used, and which option selects another or another part of it.
fn unusable(error: &KubeconfigError) -> String {
    let next = match error {
        KubeconfigError::LoadContext(_) => "select another context with --context",
        KubeconfigError::CurrentContextNotSet => "select a context with --context",
        _ => "use another with --kubeconfig",
    };
    format!("cannot use the kubeconfig: {}: {next}", kubeconfig_problem(error))
}

// === impl ControlPlaneFailure ===

impl ControlPlaneFailure {
    /// The same of the other client; `None` if the error is another one, or of another cluster.
    pub(super) fn of(error: &cluster::Error) -> Option<ControlPlaneFailure> {
        let is_control_plane = |cluster: &Arc<str>| **cluster == *ClusterName::Kcp.to_string();
        match error {
            cluster::Error::Unreachable { cluster, server, cause, .. } if is_control_plane(cluster) => {
                Some(ControlPlaneFailure::NotReached { server: Arc::clone(server), cause: cause.to_string() })
            }
            cluster::Error::Unauthorized { cluster, server } if is_control_plane(cluster) => {
                Some(ControlPlaneFailure::Unauthorized { server: Arc::clone(server) })
            }
            _ => None,
        }
    }

    /// The failure that [`Access::client`] makes of a request without a usable answer. Fails with any other error.
    pub(super) fn taken_from(error: kube::Error) -> Result<ControlPlaneFailure, kube::Error> {
        match error {
            kube::Error::Service(error) => {
                error.downcast::<ControlPlaneFailure>().map(|failure| *failure).map_err(kube::Error::Service)
            }
            other => Err(other),
        }
    }

    /// Why a request has no answer, in one clause: the words of [`Unreachable`], if one of them fits.
    fn cause(error: &(dyn std::error::Error + 'static)) -> String {
        match Unreachable::of(error) {
            // For example, the program that the kubeconfig names for credentials has failed.
            Unreachable::Broken => {
                let mut last = error;
                while let Some(source) = last.source() {
                    last = source;
                }
                last.to_string()
            }
            known => known.to_string(),
        }
    }
}

/// What the user sees of an error that ends a command, and the exit code. That nothing can be known of the control
/// plane is one sentence, whatever the command wanted there, and the same command may succeed later.
pub(super) fn conclude(error: &anyhow::Error) -> (String, Exit) {
    let failure = error.chain().find_map(|cause| {
        let of_cluster = || cause.downcast_ref::<cluster::Error>().and_then(ControlPlaneFailure::of);
        let failure = cause.downcast_ref::<ControlPlaneFailure>().map(ToString::to_string);
        failure.or_else(|| of_cluster().map(|failure| failure.to_string()))
    });
    match failure {
        Some(sentence) => (sentence, Exit::Incomplete),
        None => (format!("{error:#}"), Exit::Usage),
    }
}

/// All objects of a kind in a namespace; what cannot be read goes into `lacks`. Fails if the API server does not list
/// them although it serves their kind.
pub(super) async fn list<K>(client: &Client, namespace: &str, lacks: &mut Lacks) -> anyhow::Result<Vec<K>>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + DeserializeOwned,
{
    let mut objects = Vec::new();
    each(client, namespace, lacks, |object| objects.push(object)).await?;
    Ok(objects)
}

/// Gives `take` all objects of a kind in a namespace, a page at a time in memory. Otherwise as [`list`].
pub(super) async fn each<K>(
    client: &Client,
    namespace: &str,
    lacks: &mut Lacks,
    take: impl FnMut(K),
) -> anyhow::Result<()>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + DeserializeOwned,
{
    each_with(client, namespace, None, lacks, take).await
}

/// As [`each`], of those with these labels.
pub(super) async fn each_with<K>(
    client: &Client,
    namespace: &str,
    labels: Option<&str>,
    lacks: &mut Lacks,
    mut take: impl FnMut(K),
) -> anyhow::Result<()>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + DeserializeOwned,
{
    let Lacks { unreadable, not_served } = lacks;
    let mut take = |item: &DynamicObject| {
        match typed::<K>(item)? {
            Ok(object) => take(object),
            Err(found) => unreadable.push(found),
        }
        Ok(())
    };
    each_untyped::<K>(client, namespace, labels, not_served, &mut take).await
}

/// All objects of a kind in a namespace with all their fields, as JSON. Otherwise as [`list`].
pub(super) async fn list_untyped<K>(client: &Client, namespace: &str, lacks: &mut Lacks) -> anyhow::Result<Vec<Value>>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
{
    let mut objects = Vec::new();
    let mut take = |item: &DynamicObject| {
        let mut object = serde_json::to_value(item).context("cannot write JSON")?;
        // The items of a list have no kind of their own.
        object["apiVersion"] = K::api_version(&()).into();
        object["kind"] = K::kind(&()).into();
        objects.push(object);
        Ok(())
    };
    each_untyped::<K>(client, namespace, None, &mut lacks.not_served, &mut take).await?;
    Ok(objects)
}

async fn each_untyped<K>(
    client: &Client,
    namespace: &str,
    labels: Option<&str>,
    not_served: &mut BTreeSet<String>,
    take: &mut dyn FnMut(&DynamicObject) -> anyhow::Result<()>,
) -> anyhow::Result<()>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
{
    let api = untyped::<K>(client, namespace);
    let mut params = ListParams::default().limit(PAGE);
    params.label_selector = labels.map(str::to_owned);
    loop {
        let page = match api.list(&params).await {
            Ok(page) => page,
            // A namespace that does not exist has empty lists: only a kind that is not served has none.
            Err(kube::Error::Api(status)) if status.code == 404 => {
                not_served.insert(K::plural(&()).into_owned());
                return Ok(());
            }
            Err(error) => {
                let what = || format!("cannot list {} in namespace {namespace}", K::plural(&()));
                return Err(sentence(error)).with_context(what);
            }
        };
        page.items.iter().try_for_each(&mut *take)?;
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params = params.continue_token(&token),
            None => return Ok(()),
        }
    }
}

/// The resources of kcp landscapes in a namespace; empty if the control plane does not serve their kind, as in most
/// landscapes. `None` if it does, and the user may not list them.
pub(super) async fn setup(
    client: &Client,
    kind: setup::Kind,
    namespace: &str,
) -> anyhow::Result<Option<Vec<DynamicObject>>> {
    let gvk = GroupVersionKind::gvk(setup::SETUP_GROUP, setup::SETUP_VERSION, kind.as_str());
    let resource = ApiResource::from_gvk_with_plural(&gvk, kind.plural());
    let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, &resource);
    let mut params = ListParams::default().limit(PAGE);
    let mut found = Vec::new();
    loop {
        let page = match api.list(&params).await {
            Ok(page) => page,
            Err(kube::Error::Api(status)) if status.code == 404 => return Ok(Some(Vec::new())),
            // An API server refuses before it looks whether it has the kind.
            Err(kube::Error::Api(status)) if status.code == 403 => {
                return Ok((!serves(client, kind).await).then(Vec::new));
            }
            Err(error) => {
                let what = || format!("cannot list {} in namespace {namespace}", kind.plural());
                return Err(sentence(error)).with_context(what);
            }
        };
        found.extend(page.items);
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params = params.continue_token(&token),
            None => return Ok(Some(found)),
        }
    }
}

/// Whether the control plane serves a kind of kcp landscapes; also true if that cannot be found out.
async fn serves(client: &Client, kind: setup::Kind) -> bool {
    let version = format!("{}/{}", setup::SETUP_GROUP, setup::SETUP_VERSION);
    match client.list_api_group_resources(&version).await {
        Ok(served) => served.resources.iter().any(|resource| resource.kind == kind.as_str()),
        Err(kube::Error::Api(status)) => status.code != 404,
        Err(_) => true,
    }
}

/// The objects of a kind in a namespace, of any form.
fn untyped<K>(client: &Client, namespace: &str) -> Api<DynamicObject>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
{
    Api::namespaced_with(client.clone(), namespace, &ApiResource::erase::<K>(&()))
}

/// An object as its type, or why it does not match it.
fn typed<K>(object: &DynamicObject) -> anyhow::Result<Result<K, UnreadableLine>>
where
    K: Resource<DynamicType = ()> + DeserializeOwned,
{
    let text = serde_json::to_string(object).context("cannot write JSON")?;
    Ok(tidegate_cluster::unreadable::read::<K>(&text).map_err(|found| UnreadableLine {
        kind: K::kind(&()).into_owned(),
        name: landscape::key(&object.metadata).to_string(),
        has_templates: found.as_ref().is_some_and(|found| found.names_templates),
        problem: found.map(|found| found.problem).unwrap_or_default(),
    }))
}

/// Whether the control plane serves a kind; also true if that cannot be found out.
pub(super) async fn is_served<K>(client: &Client, namespace: &str) -> bool
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
{
    // A namespace that does not exist has empty lists.
    let listed = untyped::<K>(client, namespace).list_metadata(&ListParams::default().limit(1)).await;
    !matches!(listed, Err(kube::Error::Api(status)) if status.code == 404)
}

/// What a command that is no daemon says of kinds that the control plane does not serve.
pub(super) fn not_served(kinds: &[&str]) -> String {
    format!(
        "the control plane does not serve {}: check the kubeconfig; if it is the right one, apply what `tidegate crds` \
         prints",
        kinds.join(", ")
    )
}

/// Checks that the namespaces exist. Fails if one does not; who may not read it is not told.
pub(super) async fn check_namespaces(client: &Client, namespaces: &[String]) -> anyhow::Result<()> {
    let api: Api<Namespace> = Api::all(client.clone());
    for namespace in namespaces {
        match api.get_metadata_opt(namespace).await {
            Ok(Some(_)) => {}
            Ok(None) => {
                // Every API server has this namespace.
                if let Ok(None) = api.get_metadata_opt("default").await {
                    bail!(NO_API_SERVER);
                }
                bail!("the control plane has no namespace {namespace}: select another with -n")
            }
            Err(kube::Error::Api(status)) if status.code == 403 => {}
            Err(error) => return Err(sentence(error)).with_context(|| format!("cannot read namespace {namespace}")),
        }
    }
    Ok(())
}

/// The message of the API server instead of the whole answer, or why there is none.
pub(super) fn sentence(error: kube::Error) -> anyhow::Error {
    match ControlPlaneFailure::taken_from(error) {
        Ok(failure) => anyhow::Error::new(failure),
        Err(kube::Error::Api(status)) => anyhow::anyhow!("{}", status.message),
        // Its own text would repeat that of its cause.
        Err(kube::Error::Service(error)) => anyhow::anyhow!(error),
        Err(other) => anyhow::Error::new(other),
    }
}

// === impl Kind ===

impl Kind {
    const ALL: [Kind; 4] = [Kind::GitSource, Kind::Kyma, Kind::Manifest, Kind::Watcher];

    pub(super) fn name(self) -> &'static str {
        match self {
            Kind::GitSource => "GitSource",
            Kind::Kyma => "Kyma",
            Kind::Manifest => "Manifest",
            Kind::Watcher => "Watcher",
        }
    }

    async fn is_served(self, client: &Client, namespace: &str) -> bool {
        match self {
            Kind::GitSource => is_served::<GitSource>(client, namespace).await,
            Kind::Kyma => is_served::<Kyma>(client, namespace).await,
            Kind::Manifest => is_served::<Manifest>(client, namespace).await,
            Kind::Watcher => is_served::<Watcher>(client, namespace).await,
        }
    }

    fn parse(text: &str) -> Option<Kind> {
        match text.to_ascii_lowercase().as_str() {
            "gitsource" | "gitsources" | "gs" | "source" => Some(Kind::GitSource),
            "kyma" | "kymas" | "runtime" => Some(Kind::Kyma),
            "manifest" | "manifests" => Some(Kind::Manifest),
            "watcher" | "watchers" => Some(Kind::Watcher),
            _ => None,
        }
    }
}

// === impl Target ===

impl std::str::FromStr for Target {
    type Err = String;

    fn from_str(text: &str) -> Result<Target, String> {
        match text.split_once('/') {
            None => Ok(Target { kind: None, name: text.to_owned() }),
            Some((kind, name)) => match Kind::parse(kind) {
                Some(kind) => Ok(Target { kind: Some(kind), name: name.to_owned() }),
                None => Err(format!("unknown kind `{kind}`: use gitsource, kyma, manifest or watcher")),
            },
        }
    }
}

impl Target {
    /// The one object with this name. Fails if there is none, or if several kinds have one.
    pub(super) async fn find(&self, client: &Client, namespace: &str) -> anyhow::Result<ControlPlaneObject> {
        let mut found = Vec::new();
        for kind in self.kinds() {
            let one = ControlPlaneObject { kind, key: Key::new(namespace, &self.name) };
            if one.read(client).await?.is_some() {
                found.push(one);
            }
        }
        match found.as_slice() {
            [one] => Ok(one.clone()),
            [] if self.is_of_command_line(client, namespace).await => bail!(
                "GitSource {namespace}/{} is not in the control plane: the daemon has it from `run --source`, so it \
                 can only be reconciled or suspended with the daemon (restart or stop it); to command it here, apply \
                 it as a GitSource instead, or name a Kyma",
                self.name
            ),
            [] => {
                self.check_served(client, namespace).await?;
                bail!(
                    "no {} `{}` in namespace {namespace}: select another namespace with -n",
                    self.kind.map_or("GitSource, Kyma, Manifest or Watcher", Kind::name),
                    self.name
                )
            }
            several => {
                let names: Vec<String> =
                    several.iter().map(|one| format!("{}/{}", one.kind.name().to_lowercase(), self.name)).collect();
                bail!("several objects have the name `{}`: use one of {}", self.name, names.join(", "))
            }
        }
    }
}

impl Target {
    /// The kinds that it may have.
    fn kinds(&self) -> impl Iterator<Item = Kind> {
        Kind::ALL.into_iter().filter(|kind| self.kind.is_none_or(|wanted| wanted == *kind))
    }

    /// Fails if the control plane serves none of the kinds that it may have: then no namespace has it.
    async fn check_served(&self, client: &Client, namespace: &str) -> anyhow::Result<()> {
        let mut missing = Vec::new();
        for kind in self.kinds() {
            if kind.is_served(client, namespace).await {
                return Ok(());
            }
            missing.push(kind.name());
        }
        bail!(not_served(&missing))
    }

    /// Whether it is a source of the daemon's command line. No object of the control plane is one.
    async fn is_of_command_line(&self, client: &Client, namespace: &str) -> bool {
        if self.kind.is_some_and(|kind| kind != Kind::GitSource) {
            return false;
        }
        let namespaces = [namespace.to_owned()];
        let leases = status::leases(client, &namespaces).await.unwrap_or_default();
        let name = Key::new(namespace, &self.name).to_string();
        status::local_sources(leases, &namespaces).iter().any(|line| line.name == name)
    }
}

// === impl ControlPlaneObject ===

impl ControlPlaneObject {
    /// Its status; `None` if the object does not exist. Fails if it cannot be read.
    pub(super) async fn read(&self, client: &Client) -> anyhow::Result<Option<Answer>> {
        Ok(match self.kind {
            Kind::GitSource => self.get::<GitSource>(client).await?.as_ref().map(Answer::of_source),
            Kind::Kyma => self.get::<Kyma>(client).await?.as_ref().map(Answer::of_kyma),
            Kind::Manifest => self.get::<Manifest>(client).await?.as_ref().map(Answer::of_manifest),
            Kind::Watcher => self.get::<Watcher>(client).await?.as_ref().map(Answer::of_watcher),
        })
    }

    /// Who suspended it, since when and why; `None` if it is not suspended. Fails if it cannot be read.
    pub(super) async fn suspension(&self, client: &Client) -> anyhow::Result<Option<String>> {
        let unnamed = || "suspended".to_owned();
        Ok(match self.kind {
            Kind::GitSource => self
                .get::<GitSource>(client)
                .await?
                .filter(|source| source.spec.suspend)
                .map(|source| landscape::suspension(&source.metadata, Switch::Spec).unwrap_or_else(unnamed)),
            Kind::Kyma => self
                .get::<Kyma>(client)
                .await?
                .filter(|kyma| landscape::is_skipped(&kyma.metadata))
                .map(|kyma| landscape::suspension(&kyma.metadata, Switch::Label).unwrap_or_else(unnamed)),
            Kind::Manifest | Kind::Watcher => None,
        })
    }

    /// The file that suspends it, and its GitSource; `None` if git does not. Fails if it cannot be read.
    pub(super) async fn suspended_by_git(&self, client: &Client) -> anyhow::Result<Option<String>> {
        let kyma = match self.kind {
            Kind::Kyma => self.get::<Kyma>(client).await?,
            Kind::GitSource | Kind::Manifest | Kind::Watcher => None,
        };
        Ok(kyma.and_then(|kyma| landscape::suspended_by_git(&kyma.metadata, Switch::Label)))
    }

    /// Merges JSON into the object, with the caller's credentials. Fails if the API server refuses the patch.
    pub(super) async fn patch(&self, client: &Client, patch: &Value) -> anyhow::Result<()> {
        match self.kind {
            Kind::GitSource => self.merge::<GitSource>(client, patch).await,
            Kind::Kyma => self.merge::<Kyma>(client, patch).await,
            Kind::Manifest => self.merge::<Manifest>(client, patch).await,
            Kind::Watcher => self.merge::<Watcher>(client, patch).await,
        }
    }

    async fn get<K>(&self, client: &Client) -> anyhow::Result<Option<K>>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + DeserializeOwned,
    {
        let api = untyped::<K>(client, self.key.namespace());
        match api.get_opt(self.key.name()).await {
            Ok(None) => Ok(None),
            Ok(Some(object)) => typed(&object)?.map(Some).map_err(|found| anyhow::anyhow!(found.sentence())),
            // A kind that the API server does not serve has no objects.
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
            Err(error) => Err(sentence(error)).with_context(|| format!("cannot read {self}")),
        }
    }

    async fn merge<K>(&self, client: &Client, patch: &Value) -> anyhow::Result<()>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    {
        let api = untyped::<K>(client, self.key.namespace());
        let params = PatchParams { field_manager: Some(MANAGER.to_owned()), ..PatchParams::default() };
        let patched = api.patch(self.key.name(), &params, &Patch::Merge(patch)).await;
        patched.map(drop).map_err(sentence).with_context(|| format!("cannot change {self}"))
    }
}

impl std::fmt::Display for ControlPlaneObject {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.kind.name(), self.key)
    }
}

// === impl Answer ===

impl Answer {
    fn of_source(source: &GitSource) -> Answer {
        let status = source.status.clone().unwrap_or_default();
        let ready = conditions::find(&status.conditions, intake::status::READY);
        // The daemon goes on by itself, so this is no result.
        let goes_on = |ready: &Condition| {
            [intake::status::APPLY_FAILED, intake::status::TERMINATING].contains(&ready.reason.as_str())
                && conditions::find(&status.conditions, intake::status::STALLED).is_none()
        };
        Answer {
            handled: status.last_handled_reconcile_at,
            is_complete: true,
            verdict: match ready.map(|ready| ready.status.as_str()) {
                Some("True") => Verdict::Good,
                Some("False") if ready.is_some_and(goes_on) => Verdict::Open,
                Some("False") => Verdict::Bad,
                Some(_) | None => Verdict::Open,
            },
            message: ready.map(|ready| ready.message.clone()).unwrap_or_default(),
            ..Answer::default()
        }
    }

    fn of_kyma(kyma: &Kyma) -> Answer {
        let status = kyma.status.clone().unwrap_or_default();
        let operation = status.last_operation.map(|last| last.operation).unwrap_or_default();
        // The message of a Kyma in state Warning does not name the module.
        let modules = status.modules.iter().filter(|module| status.state == State::Warning && is_bad(module.state));
        let modules = modules.map(|module| {
            let message = module.message.as_deref().unwrap_or("no message");
            format!("; module {}: {message}", module.name)
        });
        let mut held = held_by_pauses(&status.conditions);
        held.extend(held_by_users(&status.conditions));
        let waits = held.iter().map(|(name, what)| format!("; module {name}: {what}"));
        let operation = format!("{operation}{}", modules.chain(waits).collect::<String>());
        let answer = Answer::of_status(&kyma.metadata, &status.conditions, status.state, &operation);
        Answer { is_held: !held.is_empty(), ..answer }
    }

    fn of_manifest(manifest: &Manifest) -> Answer {
        let status = manifest.status.clone().unwrap_or_default();
        let operation = status.last_operation.map(|last| last.operation).unwrap_or_default();
        let answer = Answer::of_status(&manifest.metadata, &status.conditions, status.state, &operation);
        Answer { kyma: crate::stores::kyma_of(&manifest.metadata), ..answer }
    }

    fn of_watcher(watcher: &Watcher) -> Answer {
        let status = watcher.status.clone().unwrap_or_default();
        let is_false = |condition: &&Condition| condition.status == "False";
        let route = conditions::find(&status.conditions, conditions::ROUTE).filter(is_false);
        let mut others =
            status.conditions.iter().filter(|condition| condition.type_ != conditions::RECONCILE_REQUESTED);
        let bad = route.or_else(|| others.find(is_false));
        let cause = bad.map(|condition| condition.message.clone()).unwrap_or_default();
        Answer::of_status(&watcher.metadata, &status.conditions, status.state, &cause)
    }

    fn of_status(metadata: &ObjectMeta, all: &[Condition], state: State, cause: &str) -> Answer {
        let requested = conditions::find(all, conditions::RECONCILE_REQUESTED);
        Answer {
            handled: requested.map(|condition| condition.message.clone()),
            is_complete: requested.is_some_and(|condition| condition.status == "True"),
            verdict: match state {
                State::Ready => Verdict::Good,
                state if is_bad(state) => Verdict::Bad,
                _ => Verdict::Open,
            },
            message: format!("{state}: {cause}").trim_matches([':', ' ']).to_owned(),
            is_skipped: landscape::is_skipped(metadata),
            is_held: false,
            kyma: None,
        }
    }
}

fn is_bad(state: State) -> bool {
    matches!(state, State::Error | State::Warning)
}

/// The namespaces of a command: the given ones, or the control plane's.
pub(super) fn namespaces(named: &[String]) -> Vec<String> {
    if named.is_empty() { vec![names::KCP_NAMESPACE.to_owned()] } else { named.to_vec() }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_source_that_goes_on_by_itself_has_no_result_yet() {
        let verdict = |reason: &str, stalled: bool| {
            let condition = |type_: &str, status: &str| {
                json!({
                    "type": type_, "status": status, "reason": reason, "message": "it changed a moment ago",
                    "lastTransitionTime": "2026-01-01T00:00:00Z",
                })
            };
            let mut conditions = vec![condition("Ready", "False")];
            conditions.extend(stalled.then(|| condition("Stalled", "True")));
            let source: GitSource = serde_json::from_value(json!({
                "apiVersion": "tidegate.dev/v1alpha1", "kind": "GitSource", "metadata": {"name": "a"},
                "spec": {"url": "https://example.org/a"}, "status": {"conditions": conditions},
            }))
            .unwrap();
            Answer::of_source(&source).verdict
        };
        for (reason, stalled, expected) in [
            ("ApplyFailed", false, Verdict::Open),
            ("ApplyFailed", true, Verdict::Bad),
            ("Terminating", false, Verdict::Open),
            ("Withheld", true, Verdict::Bad),
            ("Unreachable", false, Verdict::Bad),
        ] {
            assert_eq!(verdict(reason, stalled), expected, "{reason} {stalled}");
        }
    }

    #[test]
    fn a_kubeconfig_that_cannot_be_used_names_the_option_that_helps() {
        for (error, expected) in [
            (
                KubeconfigError::LoadContext("nope".to_owned()),
                "cannot use the kubeconfig: failed to load current context: nope: select another context with \
                 --context",
            ),
            (
                KubeconfigError::CurrentContextNotSet,
                "cannot use the kubeconfig: failed to determine current context: select a context with --context",
            ),
            (
                KubeconfigError::LoadClusterOfContext("a".to_owned()),
                "cannot use the kubeconfig: failed to load the cluster of context: a: use another with --kubeconfig",
            ),
        ] {
            assert_eq!(unusable(&error), expected);
        }
    }

    #[tokio::test]
    async fn a_request_timeout_of_zero_is_no_limit() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("kubeconfig");
        let text = "{apiVersion: v1, kind: Config, current-context: a, contexts: [{name: a, context: {cluster: a, user: \
                    a}}], clusters: [{name: a, cluster: {server: 'https://127.0.0.1:1'}}], users: [{name: a, user: {}}]}";
        std::fs::write(&path, text).unwrap();
        for (given, expected) in [("0", NO_LIMIT), ("0s", NO_LIMIT), ("5s", Duration::from_secs(5))] {
            let access = Access {
                kubeconfig: Some(path.clone()),
                context: None,
                request_timeout: Some(given.parse().unwrap()),
                user: None,
                groups: Vec::new(),
            };
            let config = access.config().await.unwrap();
            let limits = [config.connect_timeout, config.read_timeout, config.write_timeout];
            assert_eq!((limits, access.request_max()), ([Some(expected); 3], expected), "{given}");
        }
    }
}
