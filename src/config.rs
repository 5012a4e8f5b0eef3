//! The options of `run`, from the command line and from a file.
//!
//! Each option is declared once, as a field of [`Options`]: flag, file key, default and documentation. Flag and file
//! key have the same words (`--lease-duration`, `leaseDuration`). A flag overrides the file, and the file overrides the
//! default. An unknown key is an error with its line: otherwise a misspelt option would silently do nothing.
//!
//! `docs/configuration.md` lists the options; a test compares that list with this file.

mod listen;
mod registries;
pub mod upstream;

use std::{
    collections::BTreeSet,
    net::SocketAddr,
    ops::RangeInclusive,
    path::{Path, PathBuf},
    time::Duration,
};

use clap::{ArgAction, ArgMatches, Args, Command, FromArgMatches, parser::ValueSource};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use tidegate_core::{
    api::names,
    name::{self, Key, ParseNameError},
    plan::{
        certificate::{Backend, Rules},
        reporting::{Address, Agent, ListenerSettings, PRIORITY_CLASS, Program},
        setup::{DefaultImage, ParseImageError},
    },
    yaml,
};
use tidegate_git::limits::EngineLimits;
pub use tidegate_process::period::Period;

pub use self::{
    listen::Listen,
    registries::{Registries, Registry, RegistryAccess, RegistryOptions},
};
pub use tidegate_events::Peers;

/// The options. Each field declares an option: its flag, its file key, its default and its help.
///
/// The help of an option begins with a verb and names the default. clap adds a literal default to the help; any other
/// default is written at the end, as `[default: …]`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, clap::Args)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub struct Options {
    /// Read the kubeconfig of the control plane from this file [default: $KUBECONFIG, else ~/.kube/config, else the
    /// ServiceAccount of the pod]
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Reconcile the GitSources and Kymas in this namespace, with their access Secrets; repeat the option for more
    #[arg(long = "namespace", value_name = "NAME", default_value = names::KCP_NAMESPACE)]
    pub namespaces: Vec<String>,
    /// Read definitions from this git repository, for example `../landscape` or
    /// `https://github.com/example/landscape#main`; repeat the option for more. Its `.tidegate/source.yaml` names the
    /// source if the repository is on this machine, otherwise its folder does [default: none]
    #[arg(long = "source", value_name = "PATH-or-URL")]
    pub sources: Vec<String>,
    /// Read GitSources from this YAML file, for this process only; repeat the option for more. A repository's own
    /// `.tidegate/source.yaml` is one as well, without `spec.url` [default: none]
    #[arg(long = "source-file", value_name = "FILE")]
    pub source_files: Vec<PathBuf>,
    /// Confirm what this commit of a source of `--source` or `--source-file` removes, for this start; a GitSource in
    /// the control plane has the annotation tidegate.dev/confirm-prune instead [default: none]
    #[arg(long, value_name = "COMMIT")]
    pub confirm_prune: Option<String>,
    /// Allow GitSources in the control plane to name local paths
    #[arg(
        long,
        value_name = "BOOL",
        action = ArgAction::Set,
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true",
        default_value = "false"
    )]
    pub allow_local_sources: bool,
    /// Keep mirrors of git repositories and their active revisions in this folder; Tidegate fetches again what is
    /// missing [default: $XDG_STATE_HOME/tidegate, else ~/.local/state/tidegate, else /var/lib/tidegate]
    #[arg(long, value_name = "DIR", hide_default_value = true, default_value_os_t = default_state())]
    pub state: PathBuf,
    /// Let each of the two processes that unpack git objects use this much memory, in MiB; the pod needs twice as much
    /// beside the memory of the daemon
    #[arg(long, value_name = "MIB", default_value = "96")]
    pub git_memory: u64,
    /// Let such a process use this much CPU time for one fetch or one read
    #[arg(long, value_name = "DURATION", default_value = "2m")]
    pub git_cpu_time: Period,
    /// Let such a process take this long for one fetch or one read
    #[arg(long, value_name = "DURATION", default_value = "5m")]
    pub git_time: Period,
    /// Use the templates in this folder instead of the embedded ones of the same name [default: none]
    #[arg(long, value_name = "DIR")]
    pub templates: Option<PathBuf>,
    /// Listen on this address for requests to /metrics
    #[arg(
        long,
        value_name = "IP:PORT",
        visible_alias = "metrics-bind-address",
        value_parser = listen::parse_address,
        default_value = "0.0.0.0:8080"
    )]
    #[serde(alias = "metricsBindAddress", deserialize_with = "listen::deserialize_address")]
    pub metrics_address: SocketAddr,
    /// Listen on this address for requests to /healthz and /readyz
    #[arg(
        long,
        value_name = "IP:PORT",
        visible_alias = "health-probe-bind-address",
        value_parser = listen::parse_address,
        default_value = "0.0.0.0:8081"
    )]
    #[serde(alias = "healthProbeBindAddress", deserialize_with = "listen::deserialize_address")]
    pub health_address: SocketAddr,
    /// Listen on this address for runtime events from a gateway that terminates TLS; `off` disables it
    #[arg(
        long,
        value_name = "IP:PORT",
        visible_alias = "kyma-skr-listener-bind-address",
        default_value = "0.0.0.0:8082"
    )]
    #[serde(alias = "kymaSkrListenerBindAddress")]
    pub events_address: Listen,
    /// Listen on this address for runtime events over mTLS; `off` disables it
    #[arg(long, value_name = "IP:PORT", default_value = "0.0.0.0:8443")]
    pub events_tls_address: Listen,
    /// Accept the header X-Forwarded-Client-Cert only from these networks of the gateway or sidecar, separated by
    /// commas
    #[arg(long, value_name = "NETWORKS", value_delimiter = ',', default_value = "127.0.0.0/8,::1")]
    pub xfcc_trusted_peers: Vec<String>,
    /// Expect this SPIFFE ID of the gateway in the header element that the sidecar appends, for example
    /// `spiffe://cluster.local/ns/istio-system/sa/istio-ingressgateway-service-account`. Without it, the header must
    /// have exactly one element [default: none]
    #[arg(long, value_name = "URI")]
    pub xfcc_gateway_identity: Option<String>,
    /// Check that the certificate of an event names the `skr-domain` of its Kyma: `enforce` rejects the event if not,
    /// `warn` accepts and reports it, `off` skips the check
    #[arg(long, value_name = "MODE", default_value = "enforce")]
    pub domain_name_pinning: Pinning,
    /// Wait this long after an event before reading the runtime, so that the write has been persisted; agents of
    /// Tidegate wait themselves
    #[arg(long, value_name = "DURATION", default_value = "300ms")]
    pub event_settle: Period,
    /// Listen on this address for webhooks of git hosts; `off` disables it
    #[arg(long, value_name = "IP:PORT", default_value = "0.0.0.0:8090")]
    pub hooks_address: Listen,
    /// Serve webhooks over TLS with the certificate in this PEM file, read again when it changes; without it, an
    /// Ingress must terminate TLS [default: none]
    #[arg(long, value_name = "FILE")]
    pub hooks_certificate: Option<PathBuf>,
    /// Use the private key in this PEM file with the certificate of `--hooks-certificate` [default: none]
    #[arg(long, value_name = "FILE")]
    pub hooks_key: Option<PathBuf>,
    /// Read the address of a webhook's sender from the header X-Forwarded-For if the peer is in one of these networks
    /// of the Ingress, separated by commas
    #[arg(long, value_name = "NETWORKS", value_delimiter = ',', default_value = "127.0.0.0/8,::1")]
    pub hooks_trusted_peers: Vec<String>,
    /// Reconcile at most this many sources, runtimes and Watchers at once; waiting for a git server does not count
    #[arg(long, value_name = "N", default_value = "64")]
    pub workers: usize,
    /// Send at most this many requests to the control plane at once
    #[arg(long, value_name = "N", default_value = "64")]
    pub control_plane_requests: usize,
    /// Send at most this many requests to one runtime at once; while many runtimes are reconciled, each gets four
    #[arg(long, value_name = "N", default_value = "16")]
    pub runtime_requests: usize,
    /// Cancel a request to an API server after this time
    #[arg(long, value_name = "DURATION", default_value = "30s")]
    pub request_timeout: Period,
    /// Compare each runtime with its desired state at this interval; the minimum is 10s
    #[arg(long, value_name = "DURATION", default_value = "5m")]
    pub resync: Period,
    /// Probe at this interval whether changes in a runtime are reported by its agent; the minimum is 1s
    #[arg(long, value_name = "DURATION", default_value = "130s")]
    pub watch_probe_interval: Period,
    /// Send at most this many probes a second to all runtimes together [default: from 12 to 300, which is enough for
    /// the interval, even if all agents become unreachable at once]
    #[arg(long, value_name = "N")]
    pub watch_probes_max: Option<usize>,
    /// Wait at most so long before repairing an object that is changed or deleted again and again; the first three
    /// repairs come at once, and with `0s` all of them
    #[arg(long, value_name = "DURATION", default_value = "60s")]
    pub drift_repair_pause_max: Period,
    /// Use this channel for a module if neither the module nor its Kyma names one
    #[arg(long, value_name = "NAME", default_value = "regular")]
    pub default_channel: String,
    /// Restrict these modules, separated by commas, to Kymas that their ModuleReleaseMeta selects [default: none]
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub restricted_default_modules: Vec<String>,
    /// Read modules from this OCI registry without credentials, for example `europe-docker.pkg.dev/kyma-project/prod`;
    /// `http://` before it selects plain HTTP [default: none]
    #[arg(long, value_name = "HOST[/PATH]")]
    pub oci_registry_host: Option<String>,
    /// Read modules from the OCI registry that this Secret in kcp-system names, with its credentials; its type is
    /// `kubernetes.io/dockerconfigjson`, and it must have exactly one registry [default: none]
    #[arg(long, value_name = "NAME")]
    pub oci_registry_cred_secret: Option<String>,
    /// Look for modules below this path of the OCI registry, for example `modules` [default: none]
    #[arg(long, value_name = "PATH")]
    pub modules_repository_subpath: Option<String>,
    /// Use the CAs in this PEM file, instead of those of the system, for the OCI registry [default: none]
    #[arg(long, value_name = "FILE")]
    pub oci_registry_ca: Option<PathBuf>,
    /// Send the credentials of the OCI registry to these hosts too if it requests tokens there, separated by commas
    /// [default: none]
    #[arg(long, value_name = "HOSTS", value_delimiter = ',')]
    pub oci_registry_token_hosts: Vec<String>,
    /// More OCI registries, each for some components. Only the file has them, because an entry has several values.
    #[arg(skip)]
    pub oci_registries: Vec<RegistryOptions>,
    /// Keep modules from the OCI registry in this folder; Tidegate fetches again what is missing [default: `modules` in
    /// the folder of `--state`]
    #[arg(long, value_name = "DIR")]
    pub module_cache: Option<PathBuf>,
    /// Keep at most this much of the OCI registry on disk, in MiB; what was not used for the longest time is removed
    /// first
    #[arg(long, value_name = "MIB", default_value = "1024")]
    pub module_cache_quota: u64,
    /// Read the policy of maintenance windows from this JSON or YAML file, again whenever it changes, for example
    /// `/etc/maintenance-policy/policy.json`; without a policy, no upgrade that requires downtime is installed
    /// [default: none]
    #[arg(long, value_name = "FILE")]
    pub maintenance_policy: Option<PathBuf>,
    /// Start an upgrade that requires downtime only if its maintenance window lasts longer than this from then
    #[arg(long, value_name = "DURATION", default_value = "20m")]
    pub min_maintenance_window_size: Period,
    /// Spread the upgrades of runtimes to a new version of a module evenly over this time; with 0s, all of them begin
    /// at once
    #[arg(long, value_name = "DURATION", default_value = "0s")]
    pub module_upgrade_rollout_max_delay: Period,
    /// Store the certificates of runtimes, and the CA that they trust, in this namespace
    #[arg(long, value_name = "NAME", default_value = "istio-system")]
    pub istio_namespace: String,
    /// Make agents send events to the host of the Istio Gateway with this name
    #[arg(long, value_name = "NAME", default_value = names::GATEWAY)]
    pub istio_gateway_name: String,
    /// Look for the Gateway of `--istio-gateway-name` in this namespace
    #[arg(long, value_name = "NAME", default_value = names::KCP_NAMESPACE)]
    pub istio_gateway_namespace: String,
    /// Make agents send events to this port, for example 443 [default: the port of the Gateway]
    #[arg(long, value_name = "PORT", value_parser = upstream::parse_port)]
    pub listener_port_overwrite: Option<u16>,
    /// Make agents send events directly to this address, for example `tidegate.example.org:8443` [default: the address
    /// of the Gateway]
    #[arg(long, value_name = "HOST:PORT")]
    pub listener_address: Option<String>,
    /// Pull the agent's image from this registry
    #[arg(long, value_name = "REGISTRY", default_value = "europe-docker.pkg.dev/kyma-project/prod")]
    pub skr_watcher_image_registry: String,
    /// Pull the agent's image with this name
    #[arg(long, value_name = "NAME", default_value = RUNTIME_WATCHER)]
    pub skr_watcher_image_name: String,
    /// Install the agent in runtimes from the image with this tag, for example `2.1.12`; without a tag, Tidegate
    /// installs no agent [default: none]
    #[arg(long, value_name = "TAG")]
    pub skr_watcher_image_tag: Option<String>,
    /// Treat the agent's image as this program [default: `runtime-watcher` if that is the image's name, else
    /// `tidegate`]
    #[arg(long, value_name = "PROGRAM")]
    pub skr_watcher_program: Option<WatcherProgram>,
    /// Pull the images of modules and of the agent with this Secret, which Tidegate copies from kcp-system to
    /// kyma-system in each runtime [default: none]
    #[arg(long, value_name = "NAME")]
    pub skr_image_pull_secret: Option<String>,
    /// Run the agent with this priority class; Tidegate creates `skr-webhook-priority`, any other must exist in the
    /// runtime
    #[arg(long, value_name = "NAME", default_value = PRIORITY_CLASS)]
    pub skr_webhook_priority_class: String,
    /// Limit the agent's memory to this quantity
    #[arg(long, value_name = "QUANTITY", default_value = "200Mi")]
    pub skr_webhook_memory_limits: String,
    /// Limit the agent's CPU to this quantity, for example `100m`
    #[arg(long, value_name = "QUANTITY", default_value = "0.1")]
    pub skr_webhook_cpu_limits: String,
    /// Set GODEBUG of the agent, which selects its FIPS mode, for example `fips140=on` [default: GODEBUG of this
    /// process]
    #[arg(long, value_name = "SETTINGS", env = "GODEBUG", hide_env_values = true)]
    pub skr_webhook_godebug: Option<String>,
    /// Choose who issues certificates. `auto`: the issuer already in use; otherwise cert-manager or Gardener, whichever
    /// is installed (cert-manager first); otherwise `builtin`. For kcp landscapes, `builtin` is the built-in CA, and
    /// anything else cert-manager
    #[arg(long, value_name = "ISSUER", visible_alias = "cert-management", default_value = "auto")]
    #[serde(alias = "certManagement")]
    pub pki: Pki,
    /// Add these DNS names, separated by commas, to the certificate of every runtime, for example `skr.example.org`
    /// [default: none]
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub additional_dns_names: Vec<String>,
    /// Issue certificates of runtimes for this long; the minimum is 1m
    #[arg(long, value_name = "DURATION", default_value = "1440h")]
    pub self_signed_cert_duration: Period,
    /// Renew the certificate of a runtime this long before it expires
    #[arg(long, value_name = "DURATION", default_value = "720h")]
    pub self_signed_cert_renew_before: Period,
    /// Report in a metric that a runtime still has a certificate of the previous CA this long after the CA changed
    #[arg(long, value_name = "DURATION", default_value = "24h")]
    pub self_signed_cert_renew_buffer: Period,
    /// Request RSA keys of this many bits, which must be 4096; the built-in CA issues ECDSA keys
    #[arg(long, value_name = "BITS", default_value = "4096")]
    pub self_signed_cert_key_size: u32,
    /// Request certificates from the Issuer of cert-manager or Gardener with this name
    #[arg(long, value_name = "NAME", default_value = names::CERTIFICATE_ISSUER)]
    pub self_signed_cert_issuer_name: String,
    /// Look for the Issuer of Gardener in this namespace; the Issuer of cert-manager is in `--istio-namespace`
    #[arg(long, value_name = "NAME", default_value = "istio-system")]
    pub self_signed_cert_issuer_namespace: String,
    /// Keep the certificate of the gateway at least this long after the CA changed
    #[arg(long, value_name = "DURATION", default_value = "96h")]
    pub istio_gateway_server_cert_switch_grace_period: Period,
    /// Report in a metric that the certificate of the gateway expires within this time
    #[arg(long, value_name = "DURATION", default_value = "336h")]
    pub istio_gateway_server_cert_expiry_window: Period,
    /// Reconcile the kcp landscapes (RootShard, Shard and so on) in the namespaces of `--namespace`; see docs/kcp.md
    #[arg(
        long,
        value_name = "BOOL",
        action = ArgAction::Set,
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true",
        default_value = "false"
    )]
    pub kcp_landscapes: bool,
    /// Use this image of kcp where a resource of a kcp landscape names none [default: ghcr.io/kcp-dev/kcp:v0.32.3, the
    /// image of this release]
    #[arg(long, value_name = "REPOSITORY:TAG")]
    pub kcp_image: Option<String>,
    /// Serve the gauges of kcp-operator in `/metrics` as well, for its dashboards
    #[arg(
        long,
        value_name = "BOOL",
        action = ArgAction::Set,
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true",
        default_value = "false"
    )]
    pub kcp_operator_metrics: bool,
    /// Write only while this process holds the Lease that Tidegate shares with Lifecycle Manager
    #[arg(
        long,
        value_name = "BOOL",
        action = ArgAction::Set,
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true",
        default_value = "true",
        value_parser = upstream::parse_switch
    )]
    pub leader_elect: bool,
    /// Keep the Lease in this namespace
    #[arg(long, value_name = "NAME", default_value = names::KCP_NAMESPACE)]
    pub lease_namespace: String,
    /// Let another process lead when the Lease was not renewed for this long
    #[arg(long, value_name = "DURATION", visible_alias = "leader-election-lease-duration", default_value = "180s")]
    #[serde(alias = "leaderElectionLeaseDuration")]
    pub lease_duration: Period,
    /// Stop writing when the Lease could not be renewed for this long
    #[arg(long, value_name = "DURATION", visible_alias = "leader-election-renew-deadline", default_value = "120s")]
    #[serde(alias = "leaderElectionRenewDeadline")]
    pub lease_renew_deadline: Period,
    /// Wait this long between two attempts to acquire or renew the Lease
    #[arg(long, value_name = "DURATION", visible_alias = "leader-election-retry-period", default_value = "3s")]
    #[serde(alias = "leaderElectionRetryPeriod")]
    pub lease_retry_period: Period,
    /// Use this name for the process in the Lease and in Events [default: the name of the pod or machine]
    #[arg(long, value_name = "NAME")]
    pub identity: Option<String>,
    /// Hold the Lease, but reconcile nothing
    #[arg(
        long,
        value_name = "BOOL",
        action = ArgAction::Set,
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true",
        default_value = "false"
    )]
    pub paused: bool,
    /// Compare what the daemon would write with what lives, and write nothing: no Lease, no Event, no status; see
    /// docs/observe.md
    #[arg(
        long,
        value_name = "BOOL",
        action = ArgAction::Set,
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true",
        default_value = "false"
    )]
    pub observe: bool,
    /// Compare an unchanged runtime at most once in this time with `--observe`; a runtime with few objects is compared
    /// less often; the minimum is 1m
    #[arg(long, value_name = "DURATION", default_value = "1h")]
    pub observe_interval: Period,
    /// Wait at most this long for work in progress before the process exits; fetches from git servers end at once
    #[arg(long, value_name = "DURATION", default_value = "20s")]
    pub shutdown_timeout: Period,
    /// Write the logs that pass this filter, `LEVEL` or `LEVEL,MODULE=LEVEL,…`, for example `info` or
    /// `warn,tidegate=debug`
    #[arg(long, value_name = "FILTER", default_value = "warn,tidegate=info")]
    pub log: String,
    /// Write logs in this format; `auto` is `text` on a terminal and `json` otherwise
    #[arg(long, value_name = "FORMAT", default_value = "auto")]
    pub log_format: LogFormat,
}

/// The options that the command line gives. As arguments of a command they are all of [`Options`].
#[derive(Clone, Debug)]
pub struct Flags(ArgMatches);

/// The issuer of certificates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Pki {
    /// The issuer already in use, else the first of the others that is available.
    Auto,
    /// cert-manager.
    #[value(alias = "cert-manager.io/v1")]
    #[serde(alias = "cert-manager.io/v1")]
    CertManager,
    /// Gardener's cert-management.
    #[value(alias = "cert.gardener.cloud/v1alpha1")]
    #[serde(alias = "cert.gardener.cloud/v1alpha1")]
    Gardener,
    /// Tidegate, with a key in a Secret of the control plane.
    Builtin,
}

/// What happens to an event whose certificate does not name the domain of its runtime.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Pinning {
    /// The event is rejected.
    Enforce,
    /// The event is accepted, counted and reported.
    Warn,
    /// The names are not checked.
    Off,
}

/// The format of logs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// Text on a terminal, JSON elsewhere.
    Auto,
    /// One JSON object per line.
    Json,
    /// Lines for people.
    Text,
}

/// The program in the agent's image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum WatcherProgram {
    /// The agent of Tidegate.
    Tidegate,
    /// Kyma's Runtime Watcher.
    RuntimeWatcher,
}

/// The options in the form that the daemon needs: checked, and grouped by subject.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Kubeconfig of the control plane; `None` leaves the choice to the environment.
    pub kubeconfig: Option<PathBuf>,
    /// Namespaces of GitSources, Kymas and access Secrets.
    pub namespaces: BTreeSet<String>,
    /// Repositories from the command line.
    pub sources: Vec<String>,
    /// Files with GitSources of this process.
    pub source_files: Vec<PathBuf>,
    /// The commit whose removals are confirmed for the sources of the command line.
    pub confirm_prune: Option<String>,
    /// Whether GitSources in KCP may name local paths.
    pub allow_local_sources: bool,
    /// Folder for mirrors.
    pub state: PathBuf,
    /// Limits of a process that unpacks git objects.
    pub git_engine: EngineLimits,
    /// Folder with templates.
    pub templates: Option<PathBuf>,
    /// Address of `/metrics`; `None` without that port.
    pub metrics_address: Option<SocketAddr>,
    /// Address of `/healthz` and `/readyz`; `None` without that port.
    pub health_address: Option<SocketAddr>,
    /// How the daemon receives events of runtimes.
    pub events: Events,
    /// How the daemon receives webhooks of git hosts.
    pub hooks: Hooks,
    /// Subjects that are reconciled at once.
    pub workers: usize,
    /// Requests to KCP at once.
    pub control_plane_requests: usize,
    /// Requests to one runtime at once.
    pub runtime_requests: usize,
    /// Longest time for one request.
    pub request_timeout: Duration,
    /// How often a runtime is compared with its desired state.
    pub resync: Duration,
    /// How often the way from a runtime's API server through its agent to this process is probed.
    pub watch_probe_interval: Duration,
    /// How many of these probes are sent in a second, to all runtimes together; without it, their number decides.
    pub watch_probes_max: Option<usize>,
    /// Longest wait before an object is repaired that is undone again and again.
    pub drift_repair_pause_max: Duration,
    /// Channel of a module for which neither module nor Kyma names one.
    pub default_channel: String,
    /// Modules for selected Kymas only.
    pub restricted_modules: BTreeSet<String>,
    /// The Secret with which runtimes pull images.
    pub pull_secret: Option<String>,
    /// Namespace of the Secret with the CA that runtimes trust.
    pub istio_namespace: String,
    /// Where agents in runtimes send their events.
    pub listener: ListenerSettings,
    /// The agent in runtimes; `None` if none is installed.
    pub agent: Option<Agent>,
    /// Whether to reconcile kcp landscapes.
    pub kcp_landscapes: bool,
    /// The image of kcp where a resource names none.
    pub kcp_image: DefaultImage,
    /// Whether the gauges of kcp-operator are served.
    pub kcp_operator_metrics: bool,
    /// Certificates of runtimes and of the gateway.
    pub certificates: Rules,
    /// Leader election; `None` if the daemon writes without a Lease.
    pub lease: Option<Lease>,
    /// Name of this process, if one is given.
    pub identity: Option<String>,
    /// Whether to reconcile nothing.
    pub paused: bool,
    /// The shortest time between two comparisons of an unchanged runtime, for a process that only observes; `None` if
    /// the daemon reconciles.
    pub observe: Option<Duration>,
    /// The OCI registries that modules are read from.
    pub registries: Registries,
    /// Maintenance windows.
    pub maintenance: Maintenance,
    /// Over how long upgrades to a new version are spread.
    pub rollout_delay_max: Duration,
    /// How long the daemon waits for work in progress before it exits.
    pub shutdown_timeout: Duration,
    /// Filter of the logs.
    pub log: String,
    /// Format of the logs.
    pub log_format: LogFormat,
}

/// Maintenance windows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Maintenance {
    /// The file with the policy.
    pub policy: Option<PathBuf>,
    /// How long a window must last from now to be used.
    pub size_min: Duration,
}

/// How the daemon receives events of runtimes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Events {
    /// Listen address behind a gateway; `None` disables it.
    pub address: Option<SocketAddr>,
    /// Listen address over mTLS; `None` disables it.
    pub tls_address: Option<SocketAddr>,
    /// Peers that may forward certificates.
    pub trusted_peers: Peers,
    /// SPIFFE ID of the gateway in the element that the sidecar appends.
    pub gateway_identity: Option<String>,
    /// Whether certificates must name the domain of their runtime.
    pub pinning: Pinning,
    /// How long to wait after an event, so that the write has been persisted.
    pub settle: Duration,
}

/// How the daemon receives webhooks of git hosts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hooks {
    /// Listen address; `None` disables it.
    pub address: Option<SocketAddr>,
    /// The files with certificate and key; `None` without TLS.
    pub certificate: Option<(PathBuf, PathBuf)>,
    /// Peers whose `X-Forwarded-For` names the sender.
    pub trusted_peers: Peers,
}

/// Leader election.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    /// Namespace of the Lease.
    pub namespace: String,
    /// Another process may lead when the Lease was not renewed for this long.
    pub duration: Duration,
    /// The daemon stops writing when it could not renew the Lease for this long.
    pub renew_deadline: Duration,
    /// Pause between two attempts.
    pub retry_period: Duration,
}

/// Why options cannot be used. The message names the option.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file cannot be read.
    #[error("cannot read the configuration file {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        source: std::io::Error,
    },
    /// The file is not a valid configuration file.
    #[error("{}:{line}: {message}", path.display())]
    Parse {
        /// The file.
        path: PathBuf,
        /// Line, from 1.
        line: u32,
        /// What is wrong.
        message: String,
    },
    /// A name is invalid.
    #[error("`{option}`: {source}")]
    Name {
        /// The option.
        option: &'static str,
        /// Why.
        source: ParseNameError,
    },
    /// A value is invalid.
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
/// Shortest time between two comparisons of a runtime.
const OBSERVE_MIN: Duration = Duration::from_secs(60);
/// Shortest interval of probes.
const WATCH_PROBE_MIN: Duration = Duration::from_secs(1);
/// Most workers, and most concurrent requests. No landscape needs more.
const WORKERS_MAX: usize = 4096;

// === impl Options ===

impl Options {
    /// Reads a configuration file. An option that is not in the file has its default.
    ///
    /// Fails if the file cannot be read, is not YAML, has an unknown key, or has a value of the wrong type.
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

    /// A configuration file with these options. Leaves out those that have no value, and user names and passwords in
    /// URLs.
    pub(crate) fn to_yaml(&self) -> String {
        let mut value = serde_json::to_value(self).expect("options are plain data");
        if let Value::Object(options) = &mut value {
            options.retain(|_, value| !value.is_null());
        }
        hide_credentials(&mut value);
        yaml::to_string(&value)
    }
}

/// Replaces user name and password in all URLs of a value. The user of an ssh URL is no secret.
fn hide_credentials(value: &mut Value) {
    match value {
        Value::String(text) => {
            let Some((scheme, rest)) = text.split_once("://") else { return };
            let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
            let Some((user, _)) = rest[..end].rsplit_once('@') else { return };
            if user.contains(':') || scheme.starts_with("http") {
                *text = format!("{scheme}://***@{}", &rest[user.len() + 1..]);
            }
        }
        Value::Array(items) => items.iter_mut().for_each(hide_credentials),
        Value::Object(fields) => fields.values_mut().for_each(hide_credentials),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

impl Default for Options {
    /// The defaults of the fields, as clap reads them from an empty command line.
    fn default() -> Options {
        let command = Options::augment_args(Command::new("options").no_binary_name(true));
        let no_arguments: [&str; 0] = [];
        let matches = command.try_get_matches_from(no_arguments);
        let options = matches.and_then(|matches| Options::from_arg_matches(&matches));
        options.expect("every option has a default, and a test reads each of them")
    }
}

// === impl Flags ===

impl Flags {
    /// `options` with the values of the command line in place of their own.
    #[must_use]
    pub fn over(&self, mut options: Options) -> Options {
        options.update_from_arg_matches(&self.0).expect("the command line is parsed already");
        options
    }

    /// Whether the command line has one of these flags, by the names of their fields.
    pub fn has(&self, name: &str) -> bool {
        self.0.try_contains_id(name).is_ok_and(|is_given| is_given)
    }

    /// The flags of Lifecycle Manager that are given and have no effect.
    pub fn ignored(&self) -> Vec<upstream::Ignored> {
        upstream::ignored(&self.0)
    }
}

impl FromArgMatches for Flags {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Flags, clap::Error> {
        let mut given = matches.clone();
        for id in matches.ids() {
            // clap's default values must not override the file.
            if matches.value_source(id.as_str()) != Some(ValueSource::CommandLine) {
                given.try_clear_id(id.as_str()).expect("the id is one of these matches");
            }
        }
        Ok(Flags(given))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Flags::from_arg_matches(matches)?;
        Ok(())
    }
}

impl Args for Flags {
    fn augment_args(command: Command) -> Command {
        upstream::augment(Options::augment_args(command))
    }

    fn augment_args_for_update(command: Command) -> Command {
        upstream::augment(Options::augment_args(command))
    }
}

/// The default of `state`: a folder in the user's state folder, or else in the system's.
fn default_state() -> PathBuf {
    state_folder(|name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from))
}

fn state_folder(variable: impl Fn(&str) -> Option<PathBuf>) -> PathBuf {
    variable("XDG_STATE_HOME")
        .or_else(|| variable("HOME").map(|home| home.join(".local/state")))
        .unwrap_or_else(|| PathBuf::from("/var/lib"))
        .join("tidegate")
}

/// The message of an error in the file, without names of Rust types and without the list of all options.
fn message(message: &str) -> String {
    match message.split_once(", expected one of ") {
        Some((unknown, _)) if unknown.contains("unknown field") => {
            let field = unknown.split('`').nth(1).unwrap_or_default();
            format!("unknown option `{field}`: `tidegate run --help` lists all options")
        }
        _ => message
            .replace("invalid type: unit value", "the value is missing")
            .replace("expected usize", "expected a whole number")
            .replace("expected u64", "expected a whole number")
            .replace("expected u16", "expected a port from 1 to 65535")
            .replace("struct Options", "a mapping of options"),
    }
}

// === impl Config ===

impl TryFrom<Options> for Config {
    type Error = Error;

    /// Fails on the first option with an invalid value.
    fn try_from(options: Options) -> Result<Config, Error> {
        let namespaces = names("namespaces", &options.namespaces)?;
        if namespaces.is_empty() {
            return Err(invalid("namespaces", "the list is empty: name at least one, for example kcp-system"));
        }
        let lease = if options.leader_elect { Some(lease(&options)?) } else { None };
        let observe = observe(&options)?;
        let listener = listener(&options)?;
        let git_engine = git_engine(&options)?;
        let confirm_prune = confirm_prune(&options)?;
        Ok(Config {
            namespaces,
            events: events(&options)?,
            hooks: hooks(&options)?,
            workers: count("workers", options.workers)?,
            control_plane_requests: count("controlPlaneRequests", options.control_plane_requests)?,
            runtime_requests: count("runtimeRequests", options.runtime_requests)?,
            request_timeout: options.request_timeout.0,
            resync: at_least(RESYNC_MIN, "resync", options.resync)?,
            watch_probe_interval: at_least(WATCH_PROBE_MIN, "watchProbeInterval", options.watch_probe_interval)?,
            watch_probes_max: options.watch_probes_max.map(|max| count("watchProbesMax", max)).transpose()?,
            restricted_modules: names("restrictedDefaultModules", &listed_names(&options.restricted_default_modules))?,
            istio_namespace: checked("istioNamespace", &options.istio_namespace)?,
            agent: agent(&options, listener.clone())?,
            pull_secret: pull_secret(&options)?,
            listener,
            certificates: certificates(&options)?,
            lease,
            registries: registries::registries(&options)?,
            kcp_landscapes: options.kcp_landscapes,
            kcp_image: match options.kcp_image.as_deref().filter(|text| !text.is_empty()) {
                Some(text) => text.parse().map_err(|error: ParseImageError| invalid("kcpImage", error.to_string()))?,
                None => DefaultImage::default(),
            },
            kcp_operator_metrics: options.kcp_operator_metrics,
            maintenance: Maintenance {
                policy: options.maintenance_policy.clone().filter(|path| !path.as_os_str().is_empty()),
                size_min: options.min_maintenance_window_size.0,
            },
            drift_repair_pause_max: options.drift_repair_pause_max.0,
            rollout_delay_max: options.module_upgrade_rollout_max_delay.0,
            shutdown_timeout: options.shutdown_timeout.0,
            kubeconfig: options.kubeconfig,
            sources: options.sources,
            source_files: options.source_files,
            confirm_prune,
            allow_local_sources: options.allow_local_sources,
            state: options.state,
            git_engine,
            templates: options.templates,
            metrics_address: Some(options.metrics_address),
            health_address: Some(options.health_address),
            default_channel: options.default_channel,
            identity: options.identity,
            paused: options.paused,
            observe,
            log: options.log,
            log_format: options.log_format,
        })
    }
}

impl Config {
    /// The same, without what a process that only observes does not do: it takes part in no leader election, receives
    /// no events, and leaves kcp landscapes alone.
    #[must_use]
    pub fn observing(self) -> Config {
        if self.observe.is_none() {
            return self;
        }
        let events = Events { address: None, tls_address: None, ..self.events };
        Config { lease: None, events, kcp_landscapes: false, ..self }
    }
}

/// The names of a list. The flag of an empty list, as Lifecycle Manager's Deployment may have it, is one empty text.
fn listed_names(names: &[String]) -> Vec<String> {
    names.iter().filter(|name| !name.is_empty()).cloned().collect()
}

fn invalid(option: &'static str, message: impl Into<String>) -> Error {
    Error::Value { option, message: message.into() }
}

fn checked(option: &'static str, name: &str) -> Result<String, Error> {
    name::check_subdomain(name).map_err(|source| Error::Name { option, source })?;
    Ok(name.to_owned())
}

fn names(option: &'static str, names: &[String]) -> Result<BTreeSet<String>, Error> {
    names.iter().map(|name| checked(option, name)).collect()
}

/// The commit that `confirmPrune` names. Fails if it is not the id of a commit, or if the command line has no source.
fn confirm_prune(options: &Options) -> Result<Option<String>, Error> {
    let Some(commit) = options.confirm_prune.as_deref().map(str::trim).filter(|text| !text.is_empty()) else {
        return Ok(None);
    };
    let is_commit = COMMIT_CHARS.contains(&commit.len()) && commit.chars().all(|c| c.is_ascii_hexdigit());
    if !is_commit {
        let why = "this is not the id of a commit: give 7 to 40 digits, as `git rev-parse HEAD` prints them";
        return Err(invalid("confirmPrune", why));
    }
    if options.sources.is_empty() && options.source_files.is_empty() {
        let why = "there is no `--source` or `--source-file`: annotate the GitSource in the control plane with \
                   tidegate.dev/confirm-prune instead";
        return Err(invalid("confirmPrune", why));
    }
    Ok(Some(commit.to_ascii_lowercase()))
}

/// The number of digits of a commit, shortened or whole.
const COMMIT_CHARS: RangeInclusive<usize> = 7..=40;

fn count(option: &'static str, count: usize) -> Result<usize, Error> {
    match count {
        1..=WORKERS_MAX => Ok(count),
        _ => Err(invalid(option, format!("{count} is out of range: use a number from 1 to {WORKERS_MAX}"))),
    }
}

fn git_engine(options: &Options) -> Result<EngineLimits, Error> {
    let memory_mib = options.git_memory;
    if !GIT_MEMORY_MIB.contains(&memory_mib) {
        let (min, max) = (GIT_MEMORY_MIB.start(), GIT_MEMORY_MIB.end());
        let why = format!("{memory_mib} is out of range: use a number of MiB from {min} to {max}");
        return Err(invalid("gitMemory", why));
    }
    Ok(EngineLimits {
        memory_mib,
        computing: at_least(GIT_TIME_MIN, "gitCpuTime", options.git_cpu_time)?,
        time: at_least(GIT_TIME_MIN, "gitTime", options.git_time)?,
    })
}

/// How often to compare, if the process only observes.
fn observe(options: &Options) -> Result<Option<Duration>, Error> {
    let interval = at_least(OBSERVE_MIN, "observeInterval", options.observe_interval)?;
    if options.observe && options.paused {
        return Err(invalid("observe", "a paused process compares nothing: remove `paused`"));
    }
    Ok(options.observe.then_some(interval))
}

fn at_least(min: Duration, option: &'static str, period: Period) -> Result<Duration, Error> {
    if period.0 < min {
        return Err(invalid(option, format!("{period} is too short: use at least {}", Period(min))));
    }
    Ok(period.0)
}

/// Memory of a process for git objects, in MiB. With less, it cannot even start; more is no limit any more.
const GIT_MEMORY_MIB: RangeInclusive<u64> = 32..=16_384;
/// Shortest time of a process for git objects. A start on a busy machine needs a part of it.
const GIT_TIME_MIN: Duration = Duration::from_secs(1);
/// Shortest lifetime of a certificate. A shorter one would be renewed permanently.
const CERTIFICATE_DURATION_MIN: Duration = Duration::from_secs(60);
/// The only size of RSA keys that Lifecycle Manager accepts.
const KEY_SIZE: u32 = 4096;

fn certificates(options: &Options) -> Result<Rules, Error> {
    let rules = Rules {
        backend: match options.pki {
            Pki::Auto => None,
            Pki::CertManager => Some(Backend::CertManager),
            Pki::Gardener => Some(Backend::Gardener),
            Pki::Builtin => Some(Backend::Builtin),
        },
        namespace: checked("istioNamespace", &options.istio_namespace)?,
        additional_dns_names: listed_names(&options.additional_dns_names),
        duration: at_least(CERTIFICATE_DURATION_MIN, "selfSignedCertDuration", options.self_signed_cert_duration)?,
        renew_before: options.self_signed_cert_renew_before.0,
        renew_buffer: options.self_signed_cert_renew_buffer.0,
        key_size: options.self_signed_cert_key_size,
        issuer: checked("selfSignedCertIssuerName", &options.self_signed_cert_issuer_name)?,
        issuer_namespace: checked("selfSignedCertIssuerNamespace", &options.self_signed_cert_issuer_namespace)?,
        switch_grace: options.istio_gateway_server_cert_switch_grace_period.0,
        expiry_window: options.istio_gateway_server_cert_expiry_window.0,
    };
    if rules.key_size != KEY_SIZE {
        return Err(invalid("selfSignedCertKeySize", format!("{} is not supported: use {KEY_SIZE}", rules.key_size)));
    }
    if rules.duration <= rules.renew_before {
        let message = format!(
            "{} must be shorter than `selfSignedCertDuration`, which is {}",
            Period(rules.renew_before),
            Period(rules.duration)
        );
        return Err(invalid("selfSignedCertRenewBefore", message));
    }
    Ok(rules)
}

/// Longest wait after an event. No API server takes longer to persist a write.
const SETTLE_MAX: Duration = Duration::from_secs(60);

fn events(options: &Options) -> Result<Events, Error> {
    let trusted_peers = Peers::parse(options.xfcc_trusted_peers.iter().map(String::as_str))
        .map_err(|error| invalid("xfccTrustedPeers", error.to_string()))?;
    let identity = options.xfcc_gateway_identity.as_deref();
    if let Some(identity) = identity.filter(|identity| !identity.starts_with("spiffe://")) {
        let example = "spiffe://cluster.local/ns/istio-system/sa/istio-ingressgateway-service-account";
        let message = format!("invalid SPIFFE ID `{identity}`: use for example {example}");
        return Err(invalid("xfccGatewayIdentity", message));
    }
    let settle = options.event_settle;
    if SETTLE_MAX < settle.0 {
        return Err(invalid("eventSettle", format!("{settle} is too long: use at most {}", Period(SETTLE_MAX))));
    }
    Ok(Events {
        address: options.events_address.address(),
        tls_address: options.events_tls_address.address(),
        trusted_peers,
        gateway_identity: options.xfcc_gateway_identity.clone(),
        pinning: options.domain_name_pinning,
        settle: settle.0,
    })
}

fn hooks(options: &Options) -> Result<Hooks, Error> {
    let trusted_peers = Peers::parse(options.hooks_trusted_peers.iter().map(String::as_str))
        .map_err(|error| invalid("hooksTrustedPeers", error.to_string()))?;
    let certificate = match (options.hooks_certificate.clone(), options.hooks_key.clone()) {
        (None, None) => None,
        (Some(certificate), Some(key)) => Some((certificate, key)),
        (Some(_), None) => {
            return Err(invalid(
                "hooksKey",
                "missing: `hooksCertificate` (`--hooks-certificate`) needs the file with its key",
            ));
        }
        (None, Some(_)) => {
            return Err(invalid("hooksCertificate", "missing: `hooksKey` needs the file with its certificate"));
        }
    };
    Ok(Hooks { address: options.hooks_address.address(), certificate, trusted_peers })
}

fn lease(options: &Options) -> Result<Lease, Error> {
    let lease = Lease {
        namespace: checked("leaseNamespace", &options.lease_namespace)?,
        duration: options.lease_duration.0,
        renew_deadline: options.lease_renew_deadline.0,
        retry_period: options.lease_retry_period.0,
    };
    let deadline = Period(lease.renew_deadline);
    if lease.duration <= lease.renew_deadline {
        let found = Period(lease.duration);
        let message = format!("{found} must be longer than `leaseRenewDeadline`, which is {deadline}");
        return Err(invalid("leaseDuration", message));
    }
    if lease.renew_deadline <= lease.retry_period || lease.retry_period.is_zero() {
        let found = Period(lease.retry_period);
        let message =
            format!("{found} must be longer than 0s and shorter than `leaseRenewDeadline`, which is {deadline}");
        return Err(invalid("leaseRetryPeriod", message));
    }
    Ok(lease)
}

fn listener(options: &Options) -> Result<ListenerSettings, Error> {
    let name = checked("istioGatewayName", &options.istio_gateway_name)?;
    let namespace = checked("istioGatewayNamespace", &options.istio_gateway_namespace)?;
    let address = options.listener_address.as_deref().map(str::parse::<Address>).transpose();
    let address = address.map_err(|error| invalid("listenerAddress", error.to_string()))?;
    Ok(ListenerSettings {
        gateway: Key::new(&namespace, &name),
        // Lifecycle Manager's flag is empty if there is none.
        port_overwrite: options.listener_port_overwrite.filter(|port| *port != 0),
        address,
    })
}

/// Longest tag of an image; the same as in registries.
const TAG_LEN_MAX: usize = 128;
/// The image of Kyma's Runtime Watcher.
const RUNTIME_WATCHER: &str = "runtime-watcher";

/// An option with a text that is not empty.
fn given(option: &Option<String>) -> Option<String> {
    option.clone().filter(|text| !text.is_empty())
}

fn pull_secret(options: &Options) -> Result<Option<String>, Error> {
    given(&options.skr_image_pull_secret).map(|name| checked("skrImagePullSecret", &name)).transpose()
}

/// The agent, if a tag names its image.
fn agent(options: &Options, listener: ListenerSettings) -> Result<Option<Agent>, Error> {
    let Some(tag) = given(&options.skr_watcher_image_tag) else { return Ok(None) };
    let in_tag = |c: char| c.is_ascii_alphanumeric() || ['_', '.', '-', '@', ':'].contains(&c);
    if TAG_LEN_MAX < tag.len() || !tag.chars().all(in_tag) {
        return Err(invalid("skrWatcherImageTag", format!("invalid image tag `{tag}`: use for example 2.1.12")));
    }
    let in_image = |c: char| in_tag(c) || c == '/';
    let (registry, name) = (&*options.skr_watcher_image_registry, &*options.skr_watcher_image_name);
    let image = if registry.is_empty() { name.to_owned() } else { format!("{registry}/{name}") };
    if name.is_empty() || !image.chars().all(in_image) {
        let message = format!("invalid image name `{image}`: use for example {RUNTIME_WATCHER}");
        return Err(invalid("skrWatcherImageName", message));
    }
    let program = match options.skr_watcher_program {
        Some(WatcherProgram::Tidegate) => Program::Tidegate,
        Some(WatcherProgram::RuntimeWatcher) => Program::RuntimeWatcher,
        None if name.rsplit('/').next() == Some(RUNTIME_WATCHER) => Program::RuntimeWatcher,
        None => Program::Tidegate,
    };
    Ok(Some(Agent {
        program,
        image: format!("{image}:{tag}"),
        pull_secret: pull_secret(options)?,
        priority_class: checked("skrWebhookPriorityClass", &options.skr_webhook_priority_class)?,
        memory_limit: quantity("skrWebhookMemoryLimits", &options.skr_webhook_memory_limits)?,
        cpu_limit: quantity("skrWebhookCpuLimits", &options.skr_webhook_cpu_limits)?,
        godebug: given(&options.skr_webhook_godebug),
        listener,
    }))
}

fn quantity(option: &'static str, text: &str) -> Result<String, Error> {
    if is_quantity(text) {
        return Ok(text.to_owned());
    }
    let message = format!("invalid quantity `{text}`: use a number and a unit, for example 200Mi, 100m or 0.1");
    Err(invalid(option, message))
}

/// Whether Kubernetes accepts the text as a quantity: digits, which may contain a point, and a unit.
fn is_quantity(text: &str) -> bool {
    const UNITS: [&str; 13] = ["", "m", "k", "M", "G", "T", "P", "E", "Ki", "Mi", "Gi", "Ti", "Pi"];
    let unit = text.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.');
    let number = &text[..text.len() - unit.len()];
    UNITS.contains(&unit) && number.parse::<f64>().is_ok_and(|number| 0.0 < number)
}

#[cfg(test)]
mod tests;
