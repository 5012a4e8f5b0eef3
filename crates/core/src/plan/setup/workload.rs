//! Deployments and Services as values: arguments and volumes in order, and what a Deployment waits for.

use k8s_openapi::api::core::v1::{KeyToPath, ResourceRequirements, Volume as UserVolume, VolumeMount};
use serde_json::{Map, Value, json};

use super::{Labels, Plan, certificate::add, name};
use crate::{
    api::setup::{
        Audit, Auth, Authorization, DeploymentTemplate, Etcd, Image, Logging, PodTemplateSpec, ServiceTemplate,
    },
    name::Key,
};

/// A Deployment.
#[derive(Clone, Debug, PartialEq)]
pub struct Deployment {
    /// Its name.
    pub name: String,
    /// Labels of the Deployment.
    pub labels: Labels,
    /// Annotations of the Deployment.
    pub annotations: Labels,
    /// Labels by which it finds its pods.
    pub selector: Labels,
    /// Labels of its pods.
    pub pod_labels: Labels,
    /// Annotations of its pods, without the digest of mounted keys.
    pub pod_annotations: Labels,
    /// The number of pods.
    pub replicas: Replicas,
    /// Containers that run before, in order.
    pub init_containers: Vec<Container>,
    /// Its container.
    pub container: Container,
    /// Volumes in order.
    pub volumes: Vec<Volume>,
    /// Secrets with credentials of registries.
    pub pull_secrets: Vec<String>,
    /// What the user says about pods.
    pub pod: PodTemplateSpec,
    /// Whether its pods must not run as root and have no token of the API server.
    pub is_hardened: bool,
    /// What it waits for: first every certificate of its resource, then every mounted key, then other Deployments.
    pub gates: Vec<Gate>,
}

/// The number of pods of a Deployment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Replicas {
    /// This number, always.
    Fixed(i32),
    /// This number when the Deployment is created. Afterwards, Tidegate leaves it alone.
    OnCreation(i32),
    /// This number when the Deployment is created, and never more.
    AtMost(i32),
}

/// A container.
#[derive(Clone, Debug, PartialEq)]
pub struct Container {
    /// Its name.
    pub name: String,
    /// The image.
    pub image: String,
    /// The command.
    pub command: Vec<String>,
    /// The arguments, in order.
    pub args: Vec<String>,
    /// Resources; `None` for no limits.
    pub resources: Option<Value>,
    /// Mounts, in order.
    pub mounts: Vec<Value>,
    /// Probes.
    pub probes: Probes,
}

/// The probes of a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Probes {
    /// A shard may take minutes to start.
    Shard,
    /// Proxies and caches start at once.
    Simple,
    /// None.
    None,
}

/// A volume of a pod.
#[derive(Clone, Debug, PartialEq)]
pub struct Volume {
    /// Its name.
    pub name: String,
    /// Its source.
    pub source: VolumeSource,
}

/// The source of a volume.
#[derive(Clone, Debug, PartialEq)]
pub enum VolumeSource {
    /// All keys of a Secret that has at least these.
    Secret(String, Vec<&'static str>),
    /// Only the certificate of a Secret that may also have a private key.
    Certificate(String),
    /// A ConfigMap, which has at least this key.
    ConfigMap(String, String),
    /// An empty folder.
    Empty,
    /// What the user writes.
    User(Box<UserVolume>),
}

/// What an object waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Gate {
    /// A Certificate is Ready.
    Certificate(String),
    /// A Secret or ConfigMap has a key.
    Key(Mounted),
    /// A Deployment of another resource, or of the same one, exists. Only the creation waits for it: a change must
    /// reach a shard also while another one is down.
    Deployment {
        /// Its name.
        name: String,
        /// Whether all its pods must be ready.
        is_up: bool,
    },
}

/// A mounted object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mounted {
    /// `Secret` or `ConfigMap`.
    pub kind: &'static str,
    /// Its name.
    pub name: String,
    /// The keys that it must have; empty for any.
    pub keys: Vec<String>,
}

/// A Service.
#[derive(Clone, Debug, PartialEq)]
pub struct Service {
    /// Its name.
    pub name: String,
    /// Labels.
    pub labels: Labels,
    /// Annotations.
    pub annotations: Labels,
    /// Its type.
    pub service_type: String,
    /// Cluster IP; empty for any.
    pub cluster_ip: String,
    /// Labels of its pods.
    pub selector: Labels,
    /// Name, port and target of each port.
    pub ports: Vec<(&'static str, i32, i32)>,
}

/// A PodDisruptionBudget: how many pods of a Deployment may be evicted at the same time.
#[derive(Clone, Debug, PartialEq)]
pub struct Budget {
    /// Its name, that of the Deployment.
    pub name: String,
    /// Labels.
    pub labels: Labels,
    /// Labels of the pods.
    pub selector: Labels,
    /// A number of pods, or a percentage of them.
    pub max_unavailable: Value,
}

/// The arguments, volumes and mounts of a pod while it is put together.
#[derive(Default)]
pub(super) struct Pod {
    pub(super) args: Vec<String>,
    pub(super) volumes: Vec<Volume>,
    pub(super) mounts: Vec<Value>,
}

/// Resources by default: requests and limits of memory and CPU.
pub(super) type Defaults = [&'static str; 4];
/// Of shards and virtual workspaces.
pub(super) const SHARD_RESOURCES: Defaults = ["1Gi", "1", "2Gi", "2"];
/// Of cache servers.
pub(super) const CACHE_RESOURCES: Defaults = ["1Gi", "500m", "2Gi", "1"];

/// The keys of Secrets with credentials of registries. Each has one of them.
const PULL_KEYS: [&str; 2] = [".dockerconfigjson", ".dockercfg"];

/// The keys of a Secret of a certificate.
pub(super) const PAIR: [&str; 2] = ["tls.crt", "tls.key"];

// === impl Plan ===

impl Plan {
    pub(super) fn new(kind: super::Kind, key: &Key) -> Plan {
        Plan {
            kind,
            key: key.clone(),
            issuers: Vec::new(),
            certificates: Vec::new(),
            secrets: Vec::new(),
            configs: Vec::new(),
            deployments: Vec::new(),
            services: Vec::new(),
            budgets: Vec::new(),
        }
    }

    /// Makes every Deployment wait for every certificate, then for every mounted key.
    pub(super) fn with_gates(mut self) -> Plan {
        let certificates: Vec<Gate> =
            self.certificates.iter().map(|certificate| Gate::Certificate(certificate.name.clone())).collect();
        for deployment in &mut self.deployments {
            let mounted: std::collections::BTreeSet<Mounted> =
                deployment.volumes.iter().flat_map(Volume::mounted).collect();
            deployment.gates = certificates.iter().cloned().chain(mounted.into_iter().map(Gate::Key)).collect();
        }
        self
    }
}

// === impl Deployment ===

impl Deployment {
    /// The Secrets and ConfigMaps that its pods use and that nothing waits for: in optional and projected volumes, and
    /// credentials of registries.
    pub(super) fn used(&self) -> impl Iterator<Item = Mounted> {
        let keys = || PULL_KEYS.map(str::to_owned).to_vec();
        let credentials = self.pull_secrets.iter().map(move |name| mounted("Secret", name, keys()));
        self.volumes.iter().flat_map(Volume::used).chain(credentials)
    }

    /// The PodDisruptionBudget of its pods.
    pub(super) fn budget(&self, max_unavailable: &Value) -> Budget {
        Budget {
            name: self.name.clone(),
            labels: self.selector.clone(),
            selector: self.selector.clone(),
            max_unavailable: max_unavailable.clone(),
        }
    }
}

// === impl Volume ===

impl Volume {
    /// The objects that must exist before the pod. Optional and projected ones need not.
    fn mounted(&self) -> Vec<Mounted> {
        match &self.source {
            VolumeSource::Secret(name, keys) => {
                vec![mounted("Secret", name, keys.iter().map(|&key| key.to_owned()).collect())]
            }
            VolumeSource::Certificate(name) => vec![mounted("Secret", name, vec!["tls.crt".to_owned()])],
            VolumeSource::ConfigMap(name, key) => vec![mounted("ConfigMap", name, vec![key.clone()])],
            VolumeSource::Empty => Vec::new(),
            VolumeSource::User(volume) => {
                let secret = volume.secret.as_ref().filter(|secret| secret.optional != Some(true));
                let secret = secret.and_then(|secret| {
                    Some(mounted("Secret", secret.secret_name.as_ref()?, keys(secret.items.as_deref())))
                });
                let config = volume.config_map.as_ref().filter(|config| config.optional != Some(true));
                let config = config.map(|config| mounted("ConfigMap", &config.name, keys(config.items.as_deref())));
                secret.into_iter().chain(config).collect()
            }
        }
    }

    /// The objects that the pod uses and that nothing waits for: the kubelet does, or they are optional.
    fn used(&self) -> Vec<Mounted> {
        let VolumeSource::User(volume) = &self.source else { return Vec::new() };
        let secret = volume.secret.as_ref().filter(|secret| secret.optional == Some(true));
        let secret = secret
            .and_then(|secret| Some(mounted("Secret", secret.secret_name.as_ref()?, keys(secret.items.as_deref()))));
        let config = volume.config_map.as_ref().filter(|config| config.optional == Some(true));
        let config = config.map(|config| mounted("ConfigMap", &config.name, keys(config.items.as_deref())));
        let sources = volume.projected.iter().flat_map(|projected| projected.sources.iter().flatten());
        let projected = sources.flat_map(|source| {
            let secret = source.secret.as_ref().map(|one| mounted("Secret", &one.name, keys(one.items.as_deref())));
            let config =
                source.config_map.as_ref().map(|one| mounted("ConfigMap", &one.name, keys(one.items.as_deref())));
            secret.into_iter().chain(config)
        });
        secret.into_iter().chain(config).chain(projected).collect()
    }

    /// The volume as a pod has it.
    pub fn to_value(&self) -> Value {
        /// What the API server sets.
        const MODE: i32 = 0o644;
        match &self.source {
            VolumeSource::Secret(secret, _) => {
                json!({ "name": self.name, "secret": { "secretName": secret, "defaultMode": MODE } })
            }
            VolumeSource::Certificate(secret) => json!({ "name": self.name, "secret": {
                "secretName": secret, "defaultMode": MODE, "items": [{ "key": "tls.crt", "path": "tls.crt" }],
            } }),
            VolumeSource::ConfigMap(config, _) => {
                json!({ "name": self.name, "configMap": { "name": config, "defaultMode": MODE } })
            }
            VolumeSource::Empty => json!({ "name": self.name, "emptyDir": {} }),
            VolumeSource::User(volume) => json!(volume),
        }
    }
}

// === impl Pod ===

impl Pod {
    pub(super) fn arg(&mut self, arg: impl Into<String>) {
        self.args.push(arg.into());
    }

    /// `--name=value`, unless the value is empty.
    fn option(&mut self, name: &str, value: &str) {
        if !value.is_empty() {
            self.arg(format!("--{name}={value}"));
        }
    }

    fn number(&mut self, name: &str, value: Option<i64>) {
        if let Some(value) = value.filter(|&value| value != 0) {
            self.arg(format!("--{name}={value}"));
        }
    }

    fn duration(&mut self, name: &str, value: Option<&String>) {
        if let Some(value) = value {
            self.option(name, &go_duration(value));
        }
    }

    /// A volume and its read-only mount.
    pub(super) fn mount(&mut self, name: &str, source: VolumeSource, path: &str) {
        self.volume(name, source);
        self.mounts.push(mount(name, path, true));
    }

    pub(super) fn volume(&mut self, name: &str, source: VolumeSource) {
        self.volumes.push(Volume { name: name.to_owned(), source });
    }

    fn secret(&mut self, name: &str, secret: &str, key: &'static str, path: &str) {
        self.mount(name, VolumeSource::Secret(secret.to_owned(), vec![key]), path);
    }

    /// The Secret of a certificate with its key.
    pub(super) fn pair(&mut self, name: &str, secret: &str, path: &str) {
        self.mount(name, VolumeSource::Secret(secret.to_owned(), PAIR.to_vec()), path);
    }

    /// A Secret with a kubeconfig.
    pub(super) fn kubeconfig(&mut self, name: &str, secret: &str, path: &str) {
        self.secret(name, secret, "kubeconfig", path);
    }

    /// A Secret with certificates and no key.
    pub(super) fn bundle(&mut self, name: &str, secret: &str, path: &str) {
        self.secret(name, secret, "tls.crt", path);
    }

    pub(super) fn logging(&mut self, logging: Option<&Logging>, extra: &[String]) {
        if let Some(level) = logging.and_then(|logging| logging.level).filter(|&level| level != 0) {
            self.arg(format!("-v={level}"));
        }
        self.args.extend(extra.iter().cloned());
    }

    pub(super) fn extra_volumes(&mut self, volumes: &[UserVolume], mounts: &[VolumeMount]) {
        for volume in volumes {
            self.volume(&volume.name.clone(), VolumeSource::User(Box::new(volume.clone())));
        }
        self.mounts.extend(mounts.iter().map(|mount| json!(mount)));
    }

    pub(super) fn etcd(&mut self, etcd: &Etcd) {
        self.arg(format!("--etcd-servers={}", etcd.endpoints.join(",")));
        self.option("etcd-prefix", &etcd.prefix);
        if let Some(tls) = &etcd.tls_config {
            let keys = vec!["tls.crt", "tls.key", "ca.crt"];
            self.mount("etcd-client-cert", VolumeSource::Secret(tls.secret_ref.name.clone(), keys), "/etc/etcd/tls");
            for (flag, file) in [("certfile", "tls.crt"), ("keyfile", "tls.key"), ("cafile", "ca.crt")] {
                self.arg(format!("--etcd-{flag}=/etc/etcd/tls/{file}"));
            }
        }
    }

    pub(super) fn audit(&mut self, audit: &Audit) {
        if let Some(map) = audit.policy.as_ref().and_then(|policy| policy.config_map.as_ref()) {
            let source = VolumeSource::ConfigMap(map.name.clone(), map.key.clone());
            self.mount("audit-policy", source, "/etc/kcp/audit/policy");
            self.arg(format!("--audit-policy-file=/etc/kcp/audit/policy/{}", map.key));
        }
        let Some(webhook) = &audit.webhook else { return };
        self.number("audit-webhook-batch-buffer-size", webhook.batch_buffer_size);
        self.number("audit-webhook-batch-max-size", webhook.batch_max_size);
        self.duration("audit-webhook-batch-max-wait", webhook.batch_max_wait.as_ref());
        self.number("audit-webhook-batch-throttle-burst", webhook.batch_throttle_burst);
        if webhook.batch_throttle_enable {
            self.arg("--audit-webhook-batch-throttle-enable");
        }
        self.option("audit-webhook-batch-throttle-qps", &webhook.batch_throttle_qps);
        self.duration("audit-webhook-initial-backoff", webhook.initial_backoff.as_ref());
        self.option("audit-webhook-mode", &webhook.mode);
        if webhook.truncate_enabled {
            self.arg("--audit-webhook-truncate-enabled");
        }
        self.number("audit-webhook-truncate-max-batch-size", webhook.truncate_max_batch_size);
        // Upstream writes `sizes`, which is no flag of kube-apiserver, so its shards do not start.
        self.number("audit-webhook-truncate-max-event-size", webhook.truncate_max_event_size);
        self.option("audit-webhook-version", &webhook.version);
        self.webhook("audit-webhook-config", &webhook.config_secret_name, "/etc/kcp/audit/webhook", "audit-webhook");
    }

    /// The configuration of a webhook: a Secret with the key `kubeconfig`.
    fn webhook(&mut self, volume: &str, secret: &str, path: &str, flag: &str) {
        if !secret.is_empty() {
            self.kubeconfig(volume, secret, path);
            self.arg(format!("--{flag}-config-file={path}/kubeconfig"));
        }
    }

    pub(super) fn authorization(&mut self, authorization: &Authorization) {
        if let Some(webhook) = &authorization.webhook {
            self.option("authorization-always-allow-paths", &webhook.allow_paths.join(","));
            self.duration("authorization-webhook-cache-authorized-ttl", webhook.cache_authorized_ttl.as_ref());
            self.duration("authorization-webhook-cache-unauthorized-ttl", webhook.cache_unauthorized_ttl.as_ref());
            self.option("authorization-webhook-version", &webhook.version);
            let (secret, path) = (&webhook.config_secret_name, "/etc/kcp/authorization/webhook");
            self.webhook("authorization-webhook-config", secret, path, "authorization-webhook");
        }
        self.option(
            "authorization-always-allow-paths",
            &authorization.allow_paths.iter().flatten().cloned().collect::<Vec<_>>().join(","),
        );
        self.option(
            "authorization-order",
            &authorization.order.iter().flatten().cloned().collect::<Vec<_>>().join(","),
        );
    }

    /// `signers` are the root shard and its shards, whose service accounts are accepted, each with its public key.
    pub(super) fn auth(&mut self, auth: &Auth, signers: &[(String, VolumeSource)]) {
        if let Some(oidc) = &auth.oidc {
            self.option("oidc-issuer-url", &oidc.issuer_url);
            self.option("oidc-client-id", &oidc.client_id);
            self.option("oidc-groups-claim", &oidc.groups_claim);
            self.option("oidc-username-claim", &oidc.username_claim);
            self.option("oidc-username-prefix", &oidc.username_prefix);
            self.option("oidc-groups-prefix", &oidc.groups_prefix);
            if let Some(ca) = &oidc.ca_file_ref {
                let source = VolumeSource::Secret(ca.name.clone(), Vec::new());
                self.mount("oidc-ca-file", source, "/etc/kcp/tls/oidc");
                self.arg(format!("--oidc-ca-file=/etc/kcp/tls/oidc/{}", name::or(&ca.key, "ca.crt")));
            }
        }
        if let Some(webhook) = &auth.webhook {
            self.duration("authentication-token-webhook-cache-ttl", webhook.cache_authentication_ttl.as_ref());
            self.option("authentication-token-webhook-version", &webhook.version);
            let (secret, path) = (&webhook.config_secret_name, "/etc/kcp/authentication/webhook");
            self.webhook("authentication-webhook-config", secret, path, "authentication-token-webhook");
        }
        if let Some(file) = &auth.token_auth_file {
            let path = "/etc/kcp/authentication/token";
            self.mount("token-auth-file", VolumeSource::Secret(file.secret_name.clone(), Vec::new()), path);
            self.arg(format!("--token-auth-file={path}/{}", name::or(&file.key, "token.csv")));
        }
        if auth.service_account.as_ref().is_some_and(|accounts| accounts.enabled) {
            self.arg("--service-account-lookup=false");
            for (signer, source) in signers {
                let path = format!("/etc/kcp/tls/{signer}/service-account");
                self.mount(&format!("{signer}-service-account"), source.clone(), &path);
                self.arg(format!("--service-account-key-file={path}/tls.crt"));
            }
        }
    }
}

fn mounted(kind: &'static str, name: &str, keys: Vec<String>) -> Mounted {
    Mounted { kind, name: name.to_owned(), keys }
}

/// The keys that a volume names.
fn keys(items: Option<&[KeyToPath]>) -> Vec<String> {
    items.unwrap_or_default().iter().map(|item| item.key.clone()).collect()
}

/// A mount.
pub(super) fn mount(name: &str, path: &str, read_only: bool) -> Value {
    let mut mount = json!({ "name": name, "mountPath": path });
    if read_only {
        mount["readOnly"] = json!(true);
    }
    mount
}

/// Resources: the defaults, key by key replaced by what the user says.
pub(super) fn resources(defaults: Option<Defaults>, own: Option<&ResourceRequirements>) -> Option<Value> {
    let mut merged = match defaults {
        Some([request_memory, request_cpu, limit_memory, limit_cpu]) => json!({
            "requests": { "memory": request_memory, "cpu": request_cpu },
            "limits": { "memory": limit_memory, "cpu": limit_cpu },
        }),
        None => json!({}),
    };
    for (field, value) in own.map(|own| json!(own)).iter().filter_map(Value::as_object).flatten() {
        match (merged.get_mut(field).and_then(Value::as_object_mut), value) {
            (Some(merged), Value::Object(own)) => merged.extend(own.clone()),
            (_, value) => merged[field] = value.clone(),
        }
    }
    Some(merged).filter(|merged| merged.as_object().is_some_and(|fields: &Map<_, _>| !fields.is_empty()))
}

/// Names and labels of a Deployment.
pub(super) struct Frame<'a> {
    pub(super) name: String,
    pub(super) labels: Labels,
    /// The labels of the Deployment itself, which proxies do not have.
    pub(super) own_labels: Labels,
    pub(super) template: Option<&'a DeploymentTemplate>,
    pub(super) image: Option<&'a Image>,
    pub(super) replicas: Replicas,
}

impl Frame<'_> {
    /// The Deployment of a container. Its gates are not yet set.
    pub(super) fn deployment(self, container: Container, volumes: Vec<Volume>) -> Deployment {
        let (mut labels, mut annotations) = (self.own_labels, Labels::new());
        let (mut pod_labels, mut pod_annotations) = (self.labels.clone(), Labels::new());
        let template = self.template;
        if let Some(metadata) = template.and_then(|template| template.metadata.as_ref()) {
            add(&mut labels, &metadata.labels);
            add(&mut annotations, &metadata.annotations);
        }
        let pods = template.and_then(|template| template.spec.as_ref()?.template.as_ref());
        if let Some(metadata) = pods.and_then(|pods| pods.metadata.as_ref()) {
            add(&mut pod_labels, &metadata.labels);
            add(&mut pod_annotations, &metadata.annotations);
        }
        let pod = pods.and_then(|pods| pods.spec.clone()).unwrap_or_default();
        let mut pull_secrets = Vec::new();
        add_pull_secrets(&mut pull_secrets, self.image.map_or(&[][..], |image| &image.image_pull_secrets));
        add_pull_secrets(&mut pull_secrets, &pod.image_pull_secrets);
        Deployment {
            name: self.name,
            labels,
            annotations,
            selector: self.labels,
            pod_labels,
            pod_annotations,
            replicas: self.replicas,
            init_containers: Vec::new(),
            container,
            volumes,
            pull_secrets,
            pod,
            is_hardened: false,
            gates: Vec::new(),
        }
    }
}

/// Adds the names that are new.
pub(super) fn add_pull_secrets(names: &mut Vec<String>, more: &[crate::api::setup::LocalRef]) {
    for reference in more {
        if !names.contains(&reference.name) {
            names.push(reference.name.clone());
        }
    }
}

/// The Service of a resource.
pub(super) fn service(
    name: String,
    labels: Labels,
    template: Option<&ServiceTemplate>,
    ports: Vec<(&'static str, i32, i32)>,
) -> Service {
    let selector = labels.clone();
    let (mut labels, mut annotations) = (labels, Labels::new());
    if let Some(metadata) = template.and_then(|template| template.metadata.as_ref()) {
        add(&mut labels, &metadata.labels);
        add(&mut annotations, &metadata.annotations);
    }
    let spec = template.and_then(|template| template.spec.clone()).unwrap_or_default();
    let service_type = name::or(&spec.service_type, "ClusterIP").to_owned();
    Service { name, labels, annotations, service_type, cluster_ip: spec.cluster_ip, selector, ports }
}

/// Number of pods: as the user says, otherwise two on creation.
pub(super) fn replicas(replicas: Option<i32>) -> Replicas {
    replicas.map_or(Replicas::OnCreation(2), Replicas::Fixed)
}

/// A duration as Go prints it, for example `1m0s`. A text that is no duration stays as it is: its definition is
/// rejected.
pub(super) fn go_duration(text: &str) -> String {
    let Some(nanoseconds) = crate::schema::duration_nanoseconds(text) else { return text.to_owned() };
    let seconds = nanoseconds / 1_000_000_000;
    if nanoseconds % 1_000_000_000 != 0 {
        return text.to_owned();
    }
    match (seconds / 3600, seconds / 60 % 60, seconds % 60) {
        (0, 0, seconds) => format!("{seconds}s"),
        (0, minutes, seconds) => format!("{minutes}m{seconds}s"),
        (hours, minutes, seconds) => format!("{hours}h{minutes}m{seconds}s"),
    }
}
