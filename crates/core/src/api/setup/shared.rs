//! Field types that several kinds of kcp landscapes share.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Affinity, HostAlias, Toleration, TopologySpreadConstraint};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// An object in the same namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(extend("x-kubernetes-map-type" = "atomic"))]
pub struct LocalRef {
    /// Its name.
    #[serde(default)]
    pub name: String,
}

/// A RootShard in the same namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RootShardRef {
    /// The RootShard.
    #[serde(default, rename = "ref", skip_serializing_if = "Option::is_none")]
    pub reference: Option<LocalRef>,
}

/// The image of a container.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Image {
    /// Repository. Default: `ghcr.io/kcp-dev/kcp`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub repository: String,
    /// Tag. It also says which version of kcp the arguments are made for.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub tag: String,
    /// Secrets with credentials of the registry.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub image_pull_secrets: Vec<LocalRef>,
}

/// An etcd that the user operates.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Etcd {
    /// URLs of its members.
    pub endpoints: Vec<String>,
    /// Client certificate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls_config: Option<EtcdTls>,
    /// Prefix of all keys.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub prefix: String,
}

/// The client certificate for etcd.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EtcdTls {
    /// Secret with `tls.crt`, `tls.key` and `ca.crt`.
    pub secret_ref: LocalRef,
}

/// The issuer of a certificate.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct IssuerRef {
    /// Name.
    pub name: String,
    /// Kind, for example `Issuer` or `ClusterIssuer`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub kind: String,
    /// API group.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub group: String,
}

/// The origin of the root CA: exactly one of the two.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Certificates {
    /// The issuer of the root CA.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub issuer_ref: Option<IssuerRef>,
    /// Secret with an existing root CA and its key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca_secret_ref: Option<LocalRef>,
}

/// The address under which users reach kcp.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct External {
    /// Host name.
    pub hostname: String,
    /// Port.
    pub port: i32,
    /// Host name for connections between parts of kcp. Default: `hostname`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub private_hostname: String,
    /// Port at `privateHostname`. Default: `port`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub private_port: Option<i32>,
}

/// Labels and annotations.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Marks {
    /// Annotations.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
    /// Labels.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
}

/// Changes to certificates, by the name of the certificate.
pub type CertificateTemplates = BTreeMap<String, CertificateTemplate>;

/// Changes to a certificate.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CertificateTemplate {
    /// More labels and annotations.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Marks>,
    /// Changes to its specification.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spec: Option<CertificateTemplateSpec>,
}

/// Changes to the specification of a certificate.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CertificateTemplateSpec {
    /// More fields of the subject.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject: Option<Subject>,
    /// Another issuer. Then `dnsNames` replaces the generated names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub issuer_ref: Option<IssuerRef>,
    /// More DNS names.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub dns_names: Vec<String>,
    /// IP addresses.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ip_addresses: Vec<String>,
    /// Labels and annotations of the Secret.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_template: Option<Marks>,
    /// How long the certificate is valid, for example `8760h`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration: Option<String>,
    /// How long before its end the certificate is renewed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub renew_before: Option<String>,
    /// The private key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub private_key: Option<PrivateKey>,
}

/// The private key of a certificate.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PrivateKey {
    /// Whether a renewal makes a new key: `Never` or `Always`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(extend("enum" = ["Never", "Always"]))]
    pub rotation_policy: String,
    /// `PKCS1` or `PKCS8`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(extend("enum" = ["PKCS1", "PKCS8"]))]
    pub encoding: String,
    /// `RSA`, `ECDSA` or `Ed25519`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(extend("enum" = ["RSA", "ECDSA", "Ed25519"]))]
    pub algorithm: String,
    /// Size in bits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<i64>,
}

/// Fields of the subject of a certificate.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Subject {
    /// Organizations.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub organizations: Vec<String>,
    /// Countries.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub countries: Vec<String>,
    /// Organizational units.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub organizational_units: Vec<String>,
    /// Cities.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub localities: Vec<String>,
    /// States or provinces.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub provinces: Vec<String>,
    /// Street addresses.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub street_addresses: Vec<String>,
    /// Postal codes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub postal_codes: Vec<String>,
    /// Serial number.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub serial_number: String,
}

/// Changes to a Service.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ServiceTemplate {
    /// More labels and annotations.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Marks>,
    /// Changes to its specification.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spec: Option<ServiceTemplateSpec>,
}

/// Changes to the specification of a Service.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ServiceTemplateSpec {
    /// Type. Default: `ClusterIP`.
    #[serde(default, rename = "type", skip_serializing_if = "String::is_empty")]
    pub service_type: String,
    /// Cluster IP.
    #[serde(default, rename = "clusterIP", skip_serializing_if = "String::is_empty")]
    pub cluster_ip: String,
}

/// Changes to a Deployment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DeploymentTemplate {
    /// More labels and annotations of the Deployment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Marks>,
    /// Changes to its specification.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spec: Option<DeploymentTemplateSpec>,
}

/// Changes to the specification of a Deployment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DeploymentTemplateSpec {
    /// Changes to its pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub template: Option<PodTemplate>,
}

/// Changes to pods.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PodTemplate {
    /// More labels and annotations of the pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Marks>,
    /// Changes to the specification of the pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spec: Option<PodTemplateSpec>,
}

/// Changes to the specification of pods.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PodTemplateSpec {
    /// Labels that nodes must have.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("x-kubernetes-map-type" = "atomic"))]
    pub node_selector: BTreeMap<String, String>,
    /// Affinity.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub affinity: Option<Affinity>,
    /// Tolerations.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub tolerations: Vec<Toleration>,
    /// Entries of `/etc/hosts`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["ip"]))]
    pub host_aliases: Vec<HostAlias>,
    /// Secrets with credentials of registries.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub image_pull_secrets: Vec<LocalRef>,
    /// How pods spread.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["topologyKey"]))]
    pub topology_spread_constraints: Vec<TopologySpreadConstraint>,
}

/// Logging.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Logging {
    /// Verbosity; 0 leaves the default of the program.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 10))]
    pub level: Option<i64>,
}

/// How users authenticate.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Auth {
    /// OpenID Connect.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub oidc: Option<Oidc>,
    /// A webhook that checks tokens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub webhook: Option<AuthWebhook>,
    /// A file with tokens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token_auth_file: Option<TokenAuthFile>,
    /// Service accounts of all shards.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service_account: Option<ServiceAccountAuth>,
    /// Groups that a front proxy removes from users. Has no effect on shards.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub drop_groups: Vec<String>,
    /// Groups that a front proxy passes on. Has no effect on shards.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pass_on_groups: Vec<String>,
}

/// OpenID Connect.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Oidc {
    /// URL of the issuer.
    #[serde(rename = "issuerURL")]
    pub issuer_url: String,
    /// Client id.
    #[serde(rename = "clientID")]
    pub client_id: String,
    /// Deprecated and without effect.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub client_secret: String,
    /// Claim with the groups.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub groups_claim: String,
    /// Claim with the user name.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub username_claim: String,
    /// Prefix of groups.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub groups_prefix: String,
    /// Prefix of user names.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub username_prefix: String,
    /// Secret with the CA of the issuer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca_file_ref: Option<KeyRef>,
}

/// A key of a Secret.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct KeyRef {
    /// Name of the Secret.
    pub name: String,
    /// Key. Default: `ca.crt`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub key: String,
}

/// A webhook that checks tokens.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AuthWebhook {
    /// Secret with the key `kubeconfig`.
    pub config_secret_name: String,
    /// How long answers are kept.
    #[serde(default, rename = "cacheAuthenticationTTL", skip_serializing_if = "Option::is_none")]
    pub cache_authentication_ttl: Option<String>,
    /// Version of the API: `v1beta1` or `v1`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(extend("enum" = ["v1beta1", "v1"]))]
    pub version: String,
}

/// A file with tokens.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TokenAuthFile {
    /// Name of the Secret.
    pub secret_name: String,
    /// Key. Default: `token.csv`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub key: String,
}

/// Service accounts of all shards.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ServiceAccountAuth {
    /// Whether their tokens are accepted.
    pub enabled: bool,
}

/// Auditing.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Audit {
    /// The policy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<AuditPolicy>,
    /// A webhook that receives audit records.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub webhook: Option<AuditWebhook>,
}

/// The policy of auditing.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AuditPolicy {
    /// Its ConfigMap.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config_map: Option<ConfigMapKey>,
}

/// A key of a ConfigMap.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ConfigMapKey {
    /// Name of the ConfigMap.
    pub name: String,
    /// Key.
    pub key: String,
}

/// A webhook that receives audit records. A zero value leaves the default of kcp.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AuditWebhook {
    /// Records that are buffered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub batch_buffer_size: Option<i64>,
    /// Records of one request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub batch_max_size: Option<i64>,
    /// How long to wait for a full batch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub batch_max_wait: Option<String>,
    /// Requests at once while throttling.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub batch_throttle_burst: Option<i64>,
    /// Whether batches are throttled.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub batch_throttle_enable: bool,
    /// Batches per second while throttling.
    #[serde(default, rename = "batchThrottleQPS", skip_serializing_if = "String::is_empty")]
    pub batch_throttle_qps: String,
    /// Secret with the key `kubeconfig`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub config_secret_name: String,
    /// How long to wait before the first retry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub initial_backoff: Option<String>,
    /// `batch`, `blocking` or `blocking-strict`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(extend("enum" = ["", "batch", "blocking", "blocking-strict"]))]
    pub mode: String,
    /// Whether large records are truncated.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub truncate_enabled: bool,
    /// Size of a batch in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub truncate_max_batch_size: Option<i64>,
    /// Size of a record in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub truncate_max_event_size: Option<i64>,
    /// Version of the API.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub version: String,
}

/// Who decides on requests.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Authorization {
    /// A webhook that decides.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub webhook: Option<AuthorizationWebhook>,
    /// Paths that everyone may read. An absent list leaves the default of kcp.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allow_paths: Option<Vec<String>>,
    /// The order of authorizers. An absent list leaves the default of kcp.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub order: Option<Vec<String>>,
}

/// A webhook that decides on requests.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AuthorizationWebhook {
    /// Deprecated: use `authorization.allowPaths`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub allow_paths: Vec<String>,
    /// How long permissions are kept.
    #[serde(default, rename = "cacheAuthorizedTTL", skip_serializing_if = "Option::is_none")]
    pub cache_authorized_ttl: Option<String>,
    /// How long refusals are kept.
    #[serde(default, rename = "cacheUnauthorizedTTL", skip_serializing_if = "Option::is_none")]
    pub cache_unauthorized_ttl: Option<String>,
    /// Secret with the key `kubeconfig`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub config_secret_name: String,
    /// Version of the API.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub version: String,
}
