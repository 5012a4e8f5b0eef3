//! The options of `run`, from the command line and from a file.
//!
//! An option is declared once, in [`Options`]; flag and file key are spelled alike (`--lease-duration`,
//! `leaseDuration`). A flag wins over the file, the file over the default. A key that does not exist is an error with its
//! line: an option that is misspelt would otherwise be an option that silently does nothing.

mod listen;

use std::{
    collections::BTreeSet,
    net::SocketAddr,
    path::{Path, PathBuf},
    time::Duration,
};

use serde::{Deserialize, Serialize};

use tidegate_core::{
    api::names,
    name::{self, Key, ParseNameError},
    plan::{
        certificate::{Backend, Rules},
        watch::{Address, Agent, ListenerSettings, PRIORITY_CLASS, Program},
    },
    yaml,
};
pub use tidegate_process::period::Period;

pub use self::listen::{Listen, ParseListenError};
pub use tidegate_events::Peers;

/// Options as given: what is absent takes its default.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, clap::Args)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub struct Options {
    /// Kubeconfig of the control plane; without it $KUBECONFIG, or the ServiceAccount when running in the cluster
    #[arg(long, value_name = "FILE")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kubeconfig: Option<PathBuf>,
    /// Namespace in which GitSources, Kymas and access Secrets count; may be repeated [default: kcp-system]
    #[arg(long = "namespace", value_name = "NAME")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub namespaces: Vec<String>,
    /// A git repository with definitions, as a path or an https:// URL; may be repeated
    #[arg(long = "source", value_name = "PATH-or-URL")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub sources: Vec<String>,
    /// A file with GitSources that exist in this process only; may be repeated
    #[arg(long = "source-file", value_name = "FILE")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub source_files: Vec<PathBuf>,
    /// Let GitSources in the control plane name local paths
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allow_local_sources: Option<bool>,
    /// Folder for mirrors of git repositories and the last good revisions; what is lost is fetched again
    #[arg(long, value_name = "DIR")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<PathBuf>,
    /// Folder with templates that take the place of the embedded ones
    #[arg(long, value_name = "DIR")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub templates: Option<PathBuf>,
    /// Address of /metrics [default: 0.0.0.0:8080]
    #[arg(long, value_name = "IP:PORT")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metrics_address: Option<SocketAddr>,
    /// Address of /healthz and /readyz [default: 0.0.0.0:8081]
    #[arg(long, value_name = "IP:PORT")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub health_address: Option<SocketAddr>,
    /// Address where events of runtimes come in behind a gateway, without TLS; `off` for none [default: 0.0.0.0:8082]
    #[arg(long, value_name = "IP:PORT", visible_alias = "kyma-skr-listener-bind-address")]
    #[serde(alias = "kymaSkrListenerBindAddress", skip_serializing_if = "Option::is_none")]
    pub events_address: Option<Listen>,
    /// Address where they come in over TLS of our own; `off` for none [default: 0.0.0.0:8443]
    #[arg(long, value_name = "IP:PORT")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub events_tls_address: Option<Listen>,
    /// Networks of the gateway, or of the proxy beside us, whose X-Forwarded-Client-Cert counts, separated by commas
    /// [default: 127.0.0.0/8,::1]
    #[arg(long, value_name = "NETWORKS", value_delimiter = ',')]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub xfcc_trusted_peers: Vec<String>,
    /// What the proxy beside us says of the gateway, such as `spiffe://cluster.local/ns/istio-system/sa/…`; without it
    /// there must be no such proxy
    #[arg(long, value_name = "URI")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub xfcc_gateway_identity: Option<String>,
    /// What becomes of an event whose certificate does not name the `skr-domain` of its Kyma: `enforce`, `warn` or `off`
    /// [default: enforce]
    #[arg(long, value_name = "MODE")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub domain_name_pinning: Option<Pinning>,
    /// How long a change is left to be stored when its sender does not wait for that [default: 300ms]
    #[arg(long, value_name = "DURATION")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub event_settle: Option<Period>,
    /// Sources, runtimes and Watchers worked on at once [default: 64]
    #[arg(long, value_name = "N")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workers: Option<usize>,
    /// Requests to the control plane at once [default: 64]
    #[arg(long, value_name = "N")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub control_plane_requests: Option<usize>,
    /// Requests to one runtime at once, while few runtimes are worked on; beside many others it gets four [default: 16]
    #[arg(long, value_name = "N")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub runtime_requests: Option<usize>,
    /// Longest time for one request to an API server [default: 30s]
    #[arg(long, value_name = "DURATION")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request_timeout: Option<Period>,
    /// How often a runtime is compared with what it should be [default: 5m]
    #[arg(long, value_name = "DURATION")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resync: Option<Period>,
    /// Channel of modules where neither module nor Kyma names one [default: regular]
    #[arg(long, value_name = "NAME")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default_channel: Option<String>,
    /// Modules that only Kymas selected by their ModuleReleaseMeta may use, separated by commas
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub restricted_default_modules: Vec<String>,
    /// Namespace of the Secret with the CA that runtimes trust [default: istio-system]
    #[arg(long, value_name = "NAME")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub istio_namespace: Option<String>,
    /// Name of the Istio Gateway whose host agents in runtimes send events to [default: klm-watcher]
    #[arg(long, value_name = "NAME")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub istio_gateway_name: Option<String>,
    /// Namespace of that Gateway [default: kcp-system]
    #[arg(long, value_name = "NAME")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub istio_gateway_namespace: Option<String>,
    /// Port that agents send to in place of the Gateway's
    #[arg(long, value_name = "PORT")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub listener_port_overwrite: Option<u16>,
    /// Address that agents send to in place of the Gateway's, for a listener that they reach directly
    #[arg(long, value_name = "HOST:PORT")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub listener_address: Option<String>,
    /// Registry of the agent's image [default: europe-docker.pkg.dev/kyma-project/prod]
    #[arg(long, value_name = "REGISTRY")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub skr_watcher_image_registry: Option<String>,
    /// Name of the agent's image [default: runtime-watcher]
    #[arg(long, value_name = "NAME")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub skr_watcher_image_name: Option<String>,
    /// Tag of the agent's image; without it no agent is installed in runtimes
    #[arg(long, value_name = "TAG")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub skr_watcher_image_tag: Option<String>,
    /// Which agent the image holds [default: runtime-watcher if that is the image's name, else tidegate]
    #[arg(long, value_name = "PROGRAM")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub skr_watcher_program: Option<WatcherProgram>,
    /// Secret in runtimes, in kyma-system, with which the agent's image is pulled
    #[arg(long, value_name = "NAME")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub skr_image_pull_secret: Option<String>,
    /// Priority class of the agent; skr-webhook-priority is made, any other must be there [default: skr-webhook-priority]
    #[arg(long, value_name = "NAME")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub skr_webhook_priority_class: Option<String>,
    /// Limit of the agent's memory [default: 200Mi]
    #[arg(long, value_name = "QUANTITY")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub skr_webhook_memory_limits: Option<String>,
    /// Limit of the agent's computing [default: 0.1]
    #[arg(long, value_name = "QUANTITY")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub skr_webhook_cpu_limits: Option<String>,
    /// GODEBUG of the agent, which says whether it computes as FIPS demands [default: that of this process]
    #[arg(long, value_name = "SETTINGS", env = "GODEBUG", hide_env_values = true)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub skr_webhook_godebug: Option<String>,
    /// Who issues certificates: `auto` takes cert-manager or Gardener's cert-management where the control plane serves it [default: auto]
    #[arg(long, value_name = "ISSUER", visible_alias = "cert-management")]
    #[serde(alias = "certManagement", skip_serializing_if = "Option::is_none")]
    pub pki: Option<Pki>,
    /// DNS names that the certificates of all runtimes have beside their own, separated by commas
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub additional_dns_names: Vec<String>,
    /// How long the certificate of a runtime is good [default: 1440h]
    #[arg(long, value_name = "DURATION")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub self_signed_cert_duration: Option<Period>,
    /// How long before its end it is issued anew [default: 720h]
    #[arg(long, value_name = "DURATION")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub self_signed_cert_renew_before: Option<Period>,
    /// How long it may be of a former authority before a metric says so [default: 24h]
    #[arg(long, value_name = "DURATION")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub self_signed_cert_renew_buffer: Option<Period>,
    /// Bits of its RSA key, which can only be 4096; keys of the built-in authority are ECDSA [default: 4096]
    #[arg(long, value_name = "BITS")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub self_signed_cert_key_size: Option<u32>,
    /// Name of the Issuer that cert-manager or cert-management is to use [default: klm-watcher-selfsigned]
    #[arg(long, value_name = "NAME")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub self_signed_cert_issuer_name: Option<String>,
    /// Namespace of that Issuer, for cert-management; cert-manager's is beside the certificates [default: istio-system]
    #[arg(long, value_name = "NAME")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub self_signed_cert_issuer_namespace: Option<String>,
    /// How long the gateway keeps its certificate at least after the authority has changed [default: 96h]
    #[arg(long, value_name = "DURATION")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub istio_gateway_server_cert_switch_grace_period: Option<Period>,
    /// How long before its end a metric says so of the gateway's certificate [default: 336h]
    #[arg(long, value_name = "DURATION")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub istio_gateway_server_cert_expiry_window: Option<Period>,
    /// Whether to write only while holding the Lease that is shared with Lifecycle Manager [default: true]
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub leader_elect: Option<bool>,
    /// Namespace of that Lease [default: kcp-system]
    #[arg(long, value_name = "NAME")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lease_namespace: Option<String>,
    /// Others may lead when the Lease was not renewed for this long [default: 180s]
    #[arg(long, value_name = "DURATION")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lease_duration: Option<Period>,
    /// We stop writing when the Lease could not be renewed for this long [default: 120s]
    #[arg(long, value_name = "DURATION")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lease_renew_deadline: Option<Period>,
    /// Pause between two looks at the Lease [default: 3s]
    #[arg(long, value_name = "DURATION")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lease_retry_period: Option<Period>,
    /// Name of this process in the Lease and in Events; without it that of the pod or machine
    #[arg(long, value_name = "NAME")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub identity: Option<String>,
    /// Lead, but work on nothing until the option is gone
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub paused: Option<bool>,
    /// Time for work under way when the process is told to stop [default: 20s]
    #[arg(long, value_name = "DURATION")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shutdown_timeout: Option<Period>,
    /// What is logged, as `LEVEL` or `LEVEL,MODULE=LEVEL,…` [default: warn,tidegate=info]
    #[arg(long, value_name = "FILTER")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub log: Option<String>,
    /// How logs look: `auto`, `json` or `text` [default: auto]
    #[arg(long, value_name = "FORMAT")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub log_format: Option<LogFormat>,
}

/// Who issues certificates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Pki {
    /// Whoever the control plane serves, and Tidegate where it serves neither.
    #[default]
    Auto,
    /// cert-manager.
    #[value(alias = "cert-manager.io/v1")]
    #[serde(alias = "cert-manager.io/v1")]
    CertManager,
    /// Gardener's cert-management.
    #[value(alias = "cert.gardener.cloud/v1alpha1")]
    #[serde(alias = "cert.gardener.cloud/v1alpha1")]
    Gardener,
    /// Tidegate.
    Builtin,
}

/// How strictly the names in a certificate are held against the domain of its runtime.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Pinning {
    /// An event from elsewhere is refused.
    #[default]
    Enforce,
    /// It is taken, counted and told of.
    Warn,
    /// Nobody looks.
    Off,
}

/// How logs look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// Text on a terminal, JSON elsewhere.
    #[default]
    Auto,
    /// One JSON object a line.
    Json,
    /// Lines for people.
    Text,
}

/// Which agent an image holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum WatcherProgram {
    /// Tidegate's.
    Tidegate,
    /// The Runtime Watcher of Kyma.
    RuntimeWatcher,
}

/// Options with nothing left open, checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Kubeconfig of the control plane; without it the environment decides.
    pub kubeconfig: Option<PathBuf>,
    /// Namespaces in which GitSources, Kymas and access Secrets count.
    pub namespaces: BTreeSet<String>,
    /// Repositories of the command line.
    pub sources: Vec<String>,
    /// Files with GitSources of this process.
    pub source_files: Vec<PathBuf>,
    /// Whether GitSources in KCP may name local paths.
    pub allow_local_sources: bool,
    /// Folder for mirrors.
    pub state: PathBuf,
    /// Folder with templates.
    pub templates: Option<PathBuf>,
    /// Address of `/metrics`.
    pub metrics_address: SocketAddr,
    /// Address of `/healthz` and `/readyz`.
    pub health_address: SocketAddr,
    /// Where and how events of runtimes come in.
    pub events: Events,
    /// Subjects worked on at once.
    pub workers: usize,
    /// Requests to KCP at once.
    pub control_plane_requests: usize,
    /// Requests to one runtime at once.
    pub runtime_requests: usize,
    /// Longest time for one request.
    pub request_timeout: Duration,
    /// How often a runtime is compared with what it should be.
    pub resync: Duration,
    /// Channel where none is named.
    pub default_channel: String,
    /// Modules for selected Kymas only.
    pub restricted_modules: BTreeSet<String>,
    /// Namespace of the Secret with the CA that runtimes trust.
    pub istio_namespace: String,
    /// Where agents in runtimes send their events.
    pub listener: ListenerSettings,
    /// The agent in runtimes; `None` if none is installed.
    pub agent: Option<Agent>,
    /// Certificates of runtimes and of the gateway.
    pub certificates: Rules,
    /// Leader election; `None` if we write without.
    pub lease: Option<Lease>,
    /// Name of this process, if one is given.
    pub identity: Option<String>,
    /// Whether to work on nothing.
    pub paused: bool,
    /// Time for work under way at the end.
    pub shutdown_timeout: Duration,
    /// What is logged.
    pub log: String,
    /// How it looks.
    pub log_format: LogFormat,
}

/// Where and how events of runtimes come in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Events {
    /// Behind a gateway; `None` if nowhere.
    pub address: Option<SocketAddr>,
    /// Over TLS of our own; `None` if nowhere.
    pub tls_address: Option<SocketAddr>,
    /// Who may forward certificates.
    pub trusted_peers: Peers,
    /// What the proxy beside us says of the gateway.
    pub gateway_identity: Option<String>,
    /// Whether certificates must name the domain of their runtime.
    pub pinning: Pinning,
    /// How long a change is left to be stored.
    pub settle: Duration,
}

/// Leader election.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    /// Namespace of the Lease.
    pub namespace: String,
    /// Others may take over after this.
    pub duration: Duration,
    /// We stop writing after this.
    pub renew_deadline: Duration,
    /// Pause between two looks.
    pub retry_period: Duration,
}

/// Why options cannot be used. One sentence that names the option.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file cannot be read.
    #[error("cannot read the configuration file {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The file is not what we understand.
    #[error("{}:{line}: {message}", path.display())]
    Parse {
        /// The file.
        path: PathBuf,
        /// Line, from 1.
        line: u32,
        /// What is wrong.
        message: String,
    },
    /// A name is none.
    #[error("`{option}`: {source}")]
    Name {
        /// The option.
        option: &'static str,
        /// Why.
        source: ParseNameError,
    },
    /// A value is out of bounds.
    #[error("`{option}`: {message}")]
    Value {
        /// The option.
        option: &'static str,
        /// Why.
        message: String,
    },
}

/// Shortest resync: below it the daemon would do nothing else.
const RESYNC_MIN: Duration = Duration::from_secs(10);
/// More workers than this never found a landscape to work on.
const WORKERS_MAX: usize = 4096;

// === impl Options ===

impl Options {
    /// Reads a configuration file.
    pub fn load(path: &Path) -> Result<Options, Error> {
        let text = std::fs::read_to_string(path).map_err(|source| Error::Read { path: path.to_owned(), source })?;
        Options::parse(&text).map_err(|error| Error::Parse {
            path: path.to_owned(),
            line: error.line.max(1),
            message: message(&error.message),
        })
    }

    fn parse(text: &str) -> Result<Options, yaml::OwnError> {
        yaml::read_own(text)
    }

    /// These options, and where they say nothing, those of `base`.
    #[must_use]
    pub fn over(self, base: Options) -> Options {
        fn list<T>(own: Vec<T>, base: Vec<T>) -> Vec<T> {
            if own.is_empty() { base } else { own }
        }
        Options {
            kubeconfig: self.kubeconfig.or(base.kubeconfig),
            namespaces: list(self.namespaces, base.namespaces),
            sources: list(self.sources, base.sources),
            source_files: list(self.source_files, base.source_files),
            allow_local_sources: self.allow_local_sources.or(base.allow_local_sources),
            state: self.state.or(base.state),
            templates: self.templates.or(base.templates),
            metrics_address: self.metrics_address.or(base.metrics_address),
            health_address: self.health_address.or(base.health_address),
            events_address: self.events_address.or(base.events_address),
            events_tls_address: self.events_tls_address.or(base.events_tls_address),
            xfcc_trusted_peers: list(self.xfcc_trusted_peers, base.xfcc_trusted_peers),
            xfcc_gateway_identity: self.xfcc_gateway_identity.or(base.xfcc_gateway_identity),
            domain_name_pinning: self.domain_name_pinning.or(base.domain_name_pinning),
            event_settle: self.event_settle.or(base.event_settle),
            workers: self.workers.or(base.workers),
            control_plane_requests: self.control_plane_requests.or(base.control_plane_requests),
            runtime_requests: self.runtime_requests.or(base.runtime_requests),
            request_timeout: self.request_timeout.or(base.request_timeout),
            resync: self.resync.or(base.resync),
            default_channel: self.default_channel.or(base.default_channel),
            restricted_default_modules: list(self.restricted_default_modules, base.restricted_default_modules),
            istio_namespace: self.istio_namespace.or(base.istio_namespace),
            istio_gateway_name: self.istio_gateway_name.or(base.istio_gateway_name),
            istio_gateway_namespace: self.istio_gateway_namespace.or(base.istio_gateway_namespace),
            listener_port_overwrite: self.listener_port_overwrite.or(base.listener_port_overwrite),
            listener_address: self.listener_address.or(base.listener_address),
            skr_watcher_image_registry: self.skr_watcher_image_registry.or(base.skr_watcher_image_registry),
            skr_watcher_image_name: self.skr_watcher_image_name.or(base.skr_watcher_image_name),
            skr_watcher_image_tag: self.skr_watcher_image_tag.or(base.skr_watcher_image_tag),
            skr_watcher_program: self.skr_watcher_program.or(base.skr_watcher_program),
            skr_image_pull_secret: self.skr_image_pull_secret.or(base.skr_image_pull_secret),
            skr_webhook_priority_class: self.skr_webhook_priority_class.or(base.skr_webhook_priority_class),
            skr_webhook_memory_limits: self.skr_webhook_memory_limits.or(base.skr_webhook_memory_limits),
            skr_webhook_cpu_limits: self.skr_webhook_cpu_limits.or(base.skr_webhook_cpu_limits),
            skr_webhook_godebug: self.skr_webhook_godebug.or(base.skr_webhook_godebug),
            pki: self.pki.or(base.pki),
            additional_dns_names: list(self.additional_dns_names, base.additional_dns_names),
            self_signed_cert_duration: self.self_signed_cert_duration.or(base.self_signed_cert_duration),
            self_signed_cert_renew_before: self.self_signed_cert_renew_before.or(base.self_signed_cert_renew_before),
            self_signed_cert_renew_buffer: self.self_signed_cert_renew_buffer.or(base.self_signed_cert_renew_buffer),
            self_signed_cert_key_size: self.self_signed_cert_key_size.or(base.self_signed_cert_key_size),
            self_signed_cert_issuer_name: self.self_signed_cert_issuer_name.or(base.self_signed_cert_issuer_name),
            self_signed_cert_issuer_namespace: self
                .self_signed_cert_issuer_namespace
                .or(base.self_signed_cert_issuer_namespace),
            istio_gateway_server_cert_switch_grace_period: self
                .istio_gateway_server_cert_switch_grace_period
                .or(base.istio_gateway_server_cert_switch_grace_period),
            istio_gateway_server_cert_expiry_window: self
                .istio_gateway_server_cert_expiry_window
                .or(base.istio_gateway_server_cert_expiry_window),
            leader_elect: self.leader_elect.or(base.leader_elect),
            lease_namespace: self.lease_namespace.or(base.lease_namespace),
            lease_duration: self.lease_duration.or(base.lease_duration),
            lease_renew_deadline: self.lease_renew_deadline.or(base.lease_renew_deadline),
            lease_retry_period: self.lease_retry_period.or(base.lease_retry_period),
            identity: self.identity.or(base.identity),
            paused: self.paused.or(base.paused),
            shutdown_timeout: self.shutdown_timeout.or(base.shutdown_timeout),
            log: self.log.or(base.log),
            log_format: self.log_format.or(base.log_format),
        }
    }

    /// What counts where nothing is given. `kubeconfig`, `templates` and `identity` have no default.
    pub fn defaults() -> Options {
        let seconds = |seconds| Some(Period(Duration::from_secs(seconds)));
        let rules = Rules::default();
        Options {
            kubeconfig: None,
            namespaces: vec![names::KCP_NAMESPACE.to_owned()],
            sources: Vec::new(),
            source_files: Vec::new(),
            allow_local_sources: Some(false),
            state: Some(default_state()),
            templates: None,
            metrics_address: Some(SocketAddr::from(([0, 0, 0, 0], 8080))),
            health_address: Some(SocketAddr::from(([0, 0, 0, 0], 8081))),
            events_address: Some(Listen::everywhere(8082)),
            events_tls_address: Some(Listen::everywhere(8443)),
            xfcc_trusted_peers: vec!["127.0.0.0/8".to_owned(), "::1".to_owned()],
            xfcc_gateway_identity: None,
            domain_name_pinning: Some(Pinning::Enforce),
            event_settle: Some(Period(Duration::from_millis(300))),
            workers: Some(64),
            control_plane_requests: Some(64),
            runtime_requests: Some(16),
            request_timeout: seconds(30),
            resync: seconds(300),
            default_channel: Some("regular".to_owned()),
            restricted_default_modules: Vec::new(),
            istio_namespace: Some("istio-system".to_owned()),
            istio_gateway_name: Some(names::GATEWAY.to_owned()),
            istio_gateway_namespace: Some(names::KCP_NAMESPACE.to_owned()),
            listener_port_overwrite: None,
            listener_address: None,
            skr_watcher_image_registry: Some("europe-docker.pkg.dev/kyma-project/prod".to_owned()),
            skr_watcher_image_name: Some(RUNTIME_WATCHER.to_owned()),
            skr_watcher_image_tag: None,
            skr_watcher_program: None,
            skr_image_pull_secret: None,
            skr_webhook_priority_class: Some(PRIORITY_CLASS.to_owned()),
            skr_webhook_memory_limits: Some("200Mi".to_owned()),
            skr_webhook_cpu_limits: Some("0.1".to_owned()),
            skr_webhook_godebug: None,
            pki: Some(Pki::Auto),
            additional_dns_names: Vec::new(),
            self_signed_cert_duration: Some(Period(rules.duration)),
            self_signed_cert_renew_before: Some(Period(rules.renew_before)),
            self_signed_cert_renew_buffer: Some(Period(rules.renew_buffer)),
            self_signed_cert_key_size: Some(rules.key_size),
            self_signed_cert_issuer_name: Some(rules.issuer),
            self_signed_cert_issuer_namespace: Some(rules.issuer_namespace),
            istio_gateway_server_cert_switch_grace_period: Some(Period(rules.switch_grace)),
            istio_gateway_server_cert_expiry_window: Some(Period(rules.expiry_window)),
            leader_elect: Some(true),
            lease_namespace: Some(names::KCP_NAMESPACE.to_owned()),
            lease_duration: seconds(180),
            lease_renew_deadline: seconds(120),
            lease_retry_period: seconds(3),
            identity: None,
            paused: Some(false),
            shutdown_timeout: seconds(20),
            log: Some("warn,tidegate=info".to_owned()),
            log_format: Some(LogFormat::Auto),
        }
    }

    /// As a configuration file that says the same.
    pub fn to_yaml(&self) -> String {
        yaml::to_string(&serde_json::to_value(self).expect("options are plain data"))
    }
}

/// Where mirrors live if nobody says: the user's state folder, or the system's.
fn default_state() -> PathBuf {
    let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    variable("XDG_STATE_HOME")
        .or_else(|| variable("HOME").map(|home| home.join(".local/state")))
        .unwrap_or_else(|| PathBuf::from("/var/lib"))
        .join("tidegate")
}

/// An error of the file in our words: the list of all options is in the help.
fn message(message: &str) -> String {
    match message.split_once(", expected one of ") {
        Some((unknown, _)) if unknown.contains("unknown field") => {
            let field = unknown.split('`').nth(1).unwrap_or_default();
            format!("there is no option `{field}`; `tidegate run --help` lists all that there are")
        }
        // Names of types are ours, not the reader's.
        _ => message
            .replace("expected usize", "expected a whole number")
            .replace("expected u16", "expected a port, which is at most 65535")
            .replace("struct Options", "a mapping"),
    }
}

// === impl Config ===

impl TryFrom<Options> for Config {
    type Error = Error;

    /// Fills in the defaults and checks the values.
    fn try_from(options: Options) -> Result<Config, Error> {
        let options = options.over(Options::defaults());
        let lease = if options.leader_elect == Some(false) { None } else { Some(lease(&options)?) };
        let names = |option, names: Vec<String>| -> Result<BTreeSet<String>, Error> {
            names.into_iter().map(|name| checked(option, name)).collect()
        };
        let count = |option, value: Option<usize>| match value.unwrap_or_default() {
            count if (1..=WORKERS_MAX).contains(&count) => Ok(count),
            count => Err(Error::Value { option, message: format!("{count} is not between 1 and {WORKERS_MAX}") }),
        };
        let resync = duration(options.resync);
        if resync < RESYNC_MIN {
            let message = format!("{} is shorter than {}", Period(resync), Period(RESYNC_MIN));
            return Err(Error::Value { option: "resync", message });
        }
        let certificates = certificates(&options)?;
        let events = events(&options)?;
        let listener = listener(&options)?;
        let agent = agent(&options, listener.clone())?;
        Ok(Config {
            kubeconfig: options.kubeconfig,
            namespaces: names("namespaces", options.namespaces)?,
            sources: options.sources,
            source_files: options.source_files,
            allow_local_sources: options.allow_local_sources.unwrap_or_default(),
            state: options.state.unwrap_or_default(),
            templates: options.templates,
            metrics_address: options.metrics_address.expect("has a default"),
            health_address: options.health_address.expect("has a default"),
            events,
            workers: count("workers", options.workers)?,
            control_plane_requests: count("controlPlaneRequests", options.control_plane_requests)?,
            runtime_requests: count("runtimeRequests", options.runtime_requests)?,
            request_timeout: duration(options.request_timeout),
            resync,
            default_channel: options.default_channel.unwrap_or_default(),
            restricted_modules: names("restrictedDefaultModules", options.restricted_default_modules)?,
            istio_namespace: checked("istioNamespace", options.istio_namespace.unwrap_or_default())?,
            listener,
            agent,
            certificates,
            lease,
            identity: options.identity,
            paused: options.paused.unwrap_or_default(),
            shutdown_timeout: duration(options.shutdown_timeout),
            log: options.log.unwrap_or_default(),
            log_format: options.log_format.unwrap_or_default(),
        })
    }
}

/// Certificates that end sooner than this are issued anew without end.
const CERTIFICATE_DURATION_MIN: Duration = Duration::from_secs(60);
/// The only size of RSA keys that Lifecycle Manager accepts.
const KEY_SIZE: u32 = 4096;

fn certificates(options: &Options) -> Result<Rules, Error> {
    let text = |option: &Option<String>| option.clone().unwrap_or_default();
    let wrong = |option, message| Error::Value { option, message };
    let rules = Rules {
        backend: match options.pki.unwrap_or_default() {
            Pki::Auto => None,
            Pki::CertManager => Some(Backend::CertManager),
            Pki::Gardener => Some(Backend::Gardener),
            Pki::Builtin => Some(Backend::Builtin),
        },
        namespace: checked("istioNamespace", text(&options.istio_namespace))?,
        additional_dns_names: options.additional_dns_names.clone(),
        duration: duration(options.self_signed_cert_duration),
        renew_before: duration(options.self_signed_cert_renew_before),
        renew_buffer: duration(options.self_signed_cert_renew_buffer),
        key_size: options.self_signed_cert_key_size.unwrap_or_default(),
        issuer: checked("selfSignedCertIssuerName", text(&options.self_signed_cert_issuer_name))?,
        issuer_namespace: checked("selfSignedCertIssuerNamespace", text(&options.self_signed_cert_issuer_namespace))?,
        switch_grace: duration(options.istio_gateway_server_cert_switch_grace_period),
        expiry_window: duration(options.istio_gateway_server_cert_expiry_window),
    };
    if rules.key_size != KEY_SIZE {
        return Err(wrong("selfSignedCertKeySize", format!("{} is not {KEY_SIZE}", rules.key_size)));
    }
    if rules.duration < CERTIFICATE_DURATION_MIN {
        let message = format!("{} is shorter than {}", Period(rules.duration), Period(CERTIFICATE_DURATION_MIN));
        return Err(wrong("selfSignedCertDuration", message));
    }
    if rules.duration <= rules.renew_before {
        let message = format!(
            "{} must be shorter than `selfSignedCertDuration`, which is {}",
            Period(rules.renew_before),
            Period(rules.duration)
        );
        return Err(wrong("selfSignedCertRenewBefore", message));
    }
    Ok(rules)
}

/// Longer than this nobody would call it an event.
const SETTLE_MAX: Duration = Duration::from_secs(60);

fn events(options: &Options) -> Result<Events, Error> {
    let wrong = |option, message| Error::Value { option, message };
    let peers = Peers::parse(options.xfcc_trusted_peers.iter().map(String::as_str))
        .map_err(|error| wrong("xfccTrustedPeers", error.to_string()))?;
    let identity = options.xfcc_gateway_identity.clone();
    if identity.as_ref().is_some_and(|identity| !identity.starts_with("spiffe://")) {
        return Err(wrong("xfccGatewayIdentity", "it must begin with `spiffe://`".to_owned()));
    }
    let settle = duration(options.event_settle);
    if SETTLE_MAX < settle {
        let message = format!("{} is longer than {}", Period(settle), Period(SETTLE_MAX));
        return Err(wrong("eventSettle", message));
    }
    Ok(Events {
        address: options.events_address.and_then(Listen::address),
        tls_address: options.events_tls_address.and_then(Listen::address),
        trusted_peers: peers,
        gateway_identity: identity,
        pinning: options.domain_name_pinning.unwrap_or_default(),
        settle,
    })
}

fn lease(options: &Options) -> Result<Lease, Error> {
    let lease = Lease {
        namespace: checked("leaseNamespace", options.lease_namespace.clone().unwrap_or_default())?,
        duration: duration(options.lease_duration),
        renew_deadline: duration(options.lease_renew_deadline),
        retry_period: duration(options.lease_retry_period),
    };
    if lease.duration <= lease.renew_deadline {
        let message = format!(
            "{} must be longer than `leaseRenewDeadline`, which is {}",
            Period(lease.duration),
            Period(lease.renew_deadline)
        );
        return Err(Error::Value { option: "leaseDuration", message });
    }
    if lease.renew_deadline <= lease.retry_period || lease.retry_period.is_zero() {
        let message = format!(
            "{} must be shorter than `leaseRenewDeadline`, which is {}, and not zero",
            Period(lease.retry_period),
            Period(lease.renew_deadline)
        );
        return Err(Error::Value { option: "leaseRetryPeriod", message });
    }
    Ok(lease)
}

/// Longest tag of an image, and its characters, as registries have them.
const TAG_LEN_MAX: usize = 128;
/// The image of Kyma's Runtime Watcher.
const RUNTIME_WATCHER: &str = "runtime-watcher";

fn listener(options: &Options) -> Result<ListenerSettings, Error> {
    let name = checked("istioGatewayName", options.istio_gateway_name.clone().unwrap_or_default())?;
    let namespace = checked("istioGatewayNamespace", options.istio_gateway_namespace.clone().unwrap_or_default())?;
    let wrong = |option, message| Error::Value { option, message };
    if options.listener_port_overwrite == Some(0) {
        return Err(wrong("listenerPortOverwrite", "0 is not between 1 and 65535".to_owned()));
    }
    let address = options.listener_address.as_deref().map(str::parse::<Address>).transpose();
    let address = address.map_err(|error| wrong("listenerAddress", error.to_string()))?;
    Ok(ListenerSettings {
        gateway: Key::new(&namespace, &name),
        port_overwrite: options.listener_port_overwrite,
        address,
    })
}

/// The agent, if a tag says which one.
fn agent(options: &Options, listener: ListenerSettings) -> Result<Option<Agent>, Error> {
    let given = |option: &Option<String>| option.clone().filter(|text| !text.is_empty());
    let Some(tag) = given(&options.skr_watcher_image_tag) else { return Ok(None) };
    let wrong = |option, message| Error::Value { option, message };
    let in_tag = |c: char| c.is_ascii_alphanumeric() || ['_', '.', '-', '@', ':'].contains(&c);
    if TAG_LEN_MAX < tag.len() || !tag.chars().all(in_tag) {
        return Err(wrong("skrWatcherImageTag", format!("`{tag}` is no tag of an image")));
    }
    let in_image = |c: char| in_tag(c) || c == '/';
    let (registry, name) = (given(&options.skr_watcher_image_registry), given(&options.skr_watcher_image_name));
    let name = name.unwrap_or_default();
    let image = registry.iter().map(String::as_str).chain([name.as_str()]).collect::<Vec<_>>().join("/");
    if name.is_empty() || !image.chars().all(in_image) {
        return Err(wrong("skrWatcherImageName", format!("`{image}` is no name of an image")));
    }
    let program = match options.skr_watcher_program {
        Some(WatcherProgram::Tidegate) => Program::Tidegate,
        Some(WatcherProgram::RuntimeWatcher) => Program::RuntimeWatcher,
        None if name.rsplit('/').next() == Some(RUNTIME_WATCHER) => Program::RuntimeWatcher,
        None => Program::Tidegate,
    };
    let quantity = |option, value: &Option<String>| {
        let text = given(value).unwrap_or_default();
        let message = format!("`{text}` is no quantity; write for example `200Mi` or `0.1`");
        if is_quantity(&text) { Ok(text) } else { Err(wrong(option, message)) }
    };
    Ok(Some(Agent {
        program,
        image: format!("{image}:{tag}"),
        pull_secret: given(&options.skr_image_pull_secret)
            .map(|name| checked("skrImagePullSecret", name))
            .transpose()?,
        priority_class: checked(
            "skrWebhookPriorityClass",
            options.skr_webhook_priority_class.clone().unwrap_or_default(),
        )?,
        memory_limit: quantity("skrWebhookMemoryLimits", &options.skr_webhook_memory_limits)?,
        cpu_limit: quantity("skrWebhookCpuLimits", &options.skr_webhook_cpu_limits)?,
        godebug: given(&options.skr_webhook_godebug),
        listener,
    }))
}

/// Whether Kubernetes reads it as a quantity: digits with a point somewhere, and a unit.
fn is_quantity(text: &str) -> bool {
    const UNITS: [&str; 13] = ["", "m", "k", "M", "G", "T", "P", "E", "Ki", "Mi", "Gi", "Ti", "Pi"];
    let unit = text.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.');
    let number = &text[..text.len() - unit.len()];
    UNITS.contains(&unit) && number.parse::<f64>().is_ok_and(|number| 0.0 < number)
}

fn checked(option: &'static str, name: String) -> Result<String, Error> {
    name::check_subdomain(&name).map_err(|source| Error::Name { option, source })?;
    Ok(name)
}

fn duration(period: Option<Period>) -> Duration {
    period.map(|period| period.0).unwrap_or_default()
}

#[cfg(test)]
mod tests;
