//! Names on the wire: labels, annotations, finalizers and well-known objects. Upstream's are kept
//! to the letter.

/// Labels.
pub mod label {
    /// The manager of an object: `lifecycle-manager` in KCP, `kyma` in a runtime.
    pub const MANAGED_BY: &str = "operator.kyma-project.io/managed-by";
    /// The Kyma that an access Secret or a Manifest belongs to.
    pub const KYMA_NAME: &str = "operator.kyma-project.io/kyma-name";
    /// The module of a Manifest.
    pub const MODULE_NAME: &str = "operator.kyma-project.io/module-name";
    /// The channel of a Manifest of a module that is not mandatory.
    pub const CHANNEL: &str = "operator.kyma-project.io/channel";
    /// `true` on a Manifest of a mandatory module.
    pub const MANDATORY_MODULE: &str = "operator.kyma-project.io/mandatory-module";
    /// The specialised controller of a module.
    pub const CONTROLLER_NAME: &str = "operator.kyma-project.io/controller-name";
    /// The webhook's selector on the Kyma in a runtime.
    pub const WATCHED_BY: &str = "operator.kyma-project.io/watched-by";
    /// Stops the reconciliation of a Kyma or Manifest.
    pub const SKIP_RECONCILIATION: &str = "operator.kyma-project.io/skip-reconciliation";
    /// Internal modules and Kymas that may use them.
    pub const INTERNAL: &str = "operator.kyma-project.io/internal";
    /// Beta modules and Kymas that may use them.
    pub const BETA: &str = "operator.kyma-project.io/beta";
    /// The Manifest that installed an object in a runtime.
    pub const COMPONENT: &str = "app.kubernetes.io/component";
    /// `Kyma` on every module object in a runtime.
    pub const PART_OF: &str = "app.kubernetes.io/part-of";
    /// The purpose of a Secret.
    pub const PURPOSE: &str = "operator.kyma-project.io/purpose";
    /// The runtime's id, on the Kyma.
    pub const RUNTIME_ID: &str = "kyma-project.io/runtime-id";
    /// The service instance, on the Kyma.
    pub const INSTANCE_ID: &str = "kyma-project.io/instance-id";
    /// The global account, on the Kyma.
    pub const GLOBAL_ACCOUNT_ID: &str = "kyma-project.io/global-account-id";
    /// The service plan, on the Kyma.
    pub const PLAN: &str = "kyma-project.io/broker-plan-name";
    /// The region of the hyperscaler, on the Kyma.
    pub const REGION: &str = "kyma-project.io/region";
    /// The region of the platform, on the Kyma.
    pub const PLATFORM_REGION: &str = "kyma-project.io/platform-region";
    /// The sub-account, on the Kyma.
    pub const SUBACCOUNT_ID: &str = "kyma-project.io/subaccount-id";
    /// The GitSource of an object in KCP: `<namespace>.<name>`. Beyond 63 characters it is cut and
    /// hashed.
    pub const SOURCE: &str = "tidegate.dev/source";
    /// The resource of a kcp landscape that an object belongs to: `<kind>.<name>`. Beyond 63 characters it is cut and
    /// hashed.
    pub const SETUP: &str = "tidegate.dev/setup";
    /// On a Secret: the name of the cluster to which its kubeconfig leads. Resources of kcp landscapes name it.
    pub const CLUSTER_NAME: &str = "tidegate.dev/cluster-name";
    /// On an object in another cluster: the UID of the control plane that made it, of its namespace `kube-system`.
    pub const CONTROL_PLANE: &str = "tidegate.dev/control-plane";
    /// On an object in another cluster: the UID of its resource in the control plane.
    pub const OWNER: &str = "tidegate.dev/owner";
}

/// Annotations.
pub mod annotation {
    /// The runtime's domain, on the Kyma in KCP.
    pub const SKR_DOMAIN: &str = "skr-domain";
    /// When the newest CA was added to the bundle, on the gateway's Secret. Upstream uses the bare
    /// key.
    pub const BUNDLED_AT: &str = "caAddedToBundleAt";
    /// `<namespace>/<name>` of the Kyma of a certificate.
    pub const KYMA: &str = "tidegate.dev/kyma";
    /// When we issued the certificate in a Secret.
    pub const ISSUED_AT: &str = "tidegate.dev/issued-at";
    /// When the certificate that we issued expires.
    pub const NOT_AFTER: &str = "tidegate.dev/not-after";
    /// When we renew the certificate that we issued.
    pub const RENEW_AT: &str = "tidegate.dev/renew-at";
    /// Digest of the names of the certificate and of its CA.
    pub const ISSUED_FOR: &str = "tidegate.dev/issued-for";
    /// `builtin` on a Secret whose certificate we issued.
    pub const PKI: &str = "tidegate.dev/pki";
    /// The OCM component of a Manifest's module.
    pub const OCM_COMPONENT_NAME: &str = "operator.kyma-project.io/ocm-component-name";
    /// Older spelling of [`OCM_COMPONENT_NAME`], which some tools still read.
    pub const FQDN: &str = "operator.kyma-project.io/fqdn";
    /// The module is unmanaged.
    pub const IS_UNMANAGED: &str = "operator.kyma-project.io/is-unmanaged";
    /// The module's default custom resource is cluster-scoped.
    pub const IS_CLUSTER_SCOPED: &str = "operator.kyma-project.io/is-cluster-scoped";
    /// `<namespace>/<name>` of the owner in KCP. Upstream uses this prefix.
    pub const OWNED_BY: &str = "deprecated-operator.kyma-project.io/owned-by";
    /// The notice on every module object in a runtime.
    pub const DISCLAIMER: &str = "operator.kyma-project.io/managed-by-reconciler-disclaimer";
    /// The value of [`DISCLAIMER`].
    pub const DISCLAIMER_TEXT: &str = "DO NOT EDIT - This resource is managed by Kyma.\nAny modifications are \
                                       discarded and the resource is reverted to the original state.";

    /// File of the definition of an object in KCP. Not its line: otherwise an edit above it would
    /// cause a write.
    pub const PATH: &str = "tidegate.dev/path";
    /// Full `<namespace>/<name>` of the GitSource (the label may be cut).
    pub const SOURCE: &str = "tidegate.dev/source";
    /// Digest of everything else in the applied definition.
    pub const DIGEST: &str = "tidegate.dev/digest";
    /// Directory or file in the same repository with the objects of a ModuleTemplate.
    pub const MODULE_PATH: &str = "tidegate.dev/module-path";
    /// The git tree or blob at [`MODULE_PATH`]. Tidegate sets it when it applies the definition.
    pub const MODULE_TREE: &str = "tidegate.dev/module-tree";
    /// The owner of a runtime's module list: `runtime`, `git` or `merge`.
    pub const MODULES_FROM: &str = "tidegate.dev/modules-from";
    /// Requests a reconcile now.
    pub const RECONCILE_REQUESTED_AT: &str = "tidegate.dev/reconcile-requested-at";
    /// On the Lease of the leader: the state of its sources of the command line, which are no objects in KCP, as JSON.
    pub const LOCAL_SOURCES: &str = "tidegate.dev/local-sources";
    /// Who suspended a GitSource, a Kyma or a rollout, since when and why: `by <user> since <time>: <reason>`.
    /// `tidegate suspend` sets it. It says, and suspends nothing.
    pub const SUSPENDED: &str = "tidegate.dev/suspended";
    /// Confirms the prunes in the status, for one commit.
    pub const CONFIRM_PRUNE: &str = "tidegate.dev/confirm-prune";
    /// `true` on a CustomResourceDefinition of ours or a namespace that is being deleted: its deletion is meant, so the
    /// deletions of Kymas and Manifests that follow from it are acted upon.
    pub const CONFIRM_DELETION: &str = "tidegate.dev/confirm-deletion";
    /// `disabled` keeps an object from being pruned; `enabled` lets a CRD, Namespace or volume claim be pruned.
    pub const PRUNE: &str = "tidegate.dev/prune";
    /// ModuleTemplates, separated by commas, to which a module may be downgraded; on the
    /// ModuleReleaseMeta or the Kyma.
    pub const ALLOW_DOWNGRADE: &str = "tidegate.dev/allow-downgrade";
    /// `true` on a Secret of the module [`DEPLOYER`](super::DEPLOYER): its data come from a Secret in KCP.
    pub const INJECT_DATA_FROM_KCP: &str = "operator.kyma-project.io/inject-data-from-kcp";
    /// How many runtimes may be upgraded to a new version of a module at once, on the ModuleReleaseMeta: a number or a
    /// percentage.
    pub const ROLLOUT_MAX_UNAVAILABLE: &str = "tidegate.dev/rollout-max-unavailable";
    /// How many runtimes may fail before the rollout of a version halts, on the ModuleReleaseMeta.
    pub const ROLLOUT_MAX_FAILURES: &str = "tidegate.dev/rollout-max-failures";
    /// The waves of a rollout, on the ModuleReleaseMeta: selectors of Kymas, separated by semicolons.
    pub const ROLLOUT_WAVES: &str = "tidegate.dev/rollout-waves";
    /// `true` pauses the rollout of a new version, on the ModuleReleaseMeta.
    pub const ROLLOUT_PAUSED: &str = "tidegate.dev/rollout-paused";
    /// The number of failures of a version that a user has accepted, on the ModuleReleaseMeta, for example `1.1.0=2`.
    pub const ROLLOUT_RESUMED: &str = "tidegate.dev/rollout-resumed";
    /// The digest of the layer whose objects a Manifest installs, once they could be read. Upstream uses the bare key.
    pub const SYNC_OCI_REF: &str = "sync-oci-ref";
    /// The digest of what the tag of a Manifest's component named when it was looked up.
    pub const COMPONENT_DIGEST: &str = "tidegate.dev/component-digest";
    /// `enabled` on an object of a module: if a field differs that cannot be changed, Tidegate deletes the object and
    /// creates it again.
    pub const RECREATE: &str = "tidegate.dev/recreate";
    /// `true` on a definition: Tidegate may take over an existing object without the ownership
    /// label.
    pub const ADOPT: &str = "tidegate.dev/adopt";
    /// `true` on a Kyma whose runtime was taken over: what Tidegate would do in another way than Lifecycle Manager
    /// stays there as Lifecycle Manager left it. `tidegate adopt take` sets it, and `tidegate adopt take --finish`
    /// removes it.
    pub const ADOPTED: &str = "tidegate.dev/adopted";
    /// On an object of a kcp landscape that stays as kcp-operator left it: a digest of what it is and of what Tidegate
    /// would make of it. `tidegate adopt kcp` sets it.
    pub const ADOPTED_AS: &str = "tidegate.dev/adopted-as";
    /// `true` on a Shard that is being deleted: it goes although it may hold workspaces. It gives no cluster up.
    pub const FORCE_REMOVAL: &str = "tidegate.dev/force-removal";
    /// On a resource of a kcp landscape: the names or UIDs of other clusters that are gone for good, separated by
    /// commas. What is there is not waited for.
    pub const FORGET_CLUSTER: &str = "tidegate.dev/forget-cluster";
    /// The cluster for the objects of a resource of a kcp landscape.
    pub const CLUSTER: &str = "tidegate.dev/cluster";
    /// `enabled` on a resource of a kcp landscape: its pods do not run as root and have no token of the API server.
    pub const HARDENING: &str = "tidegate.dev/hardening";
    /// `disabled` on a RootShard: it has no internal proxy.
    pub const INTERNAL_PROXY: &str = "tidegate.dev/internal-proxy";
    /// Where the daemon reaches a RootShard, a Shard or a FrontProxy, if not in its own cluster: host and port.
    pub const KCP_ADDRESS: &str = "tidegate.dev/kcp-address";
    /// The name in the certificate that the daemon meets there.
    pub const KCP_TLS_NAME: &str = "tidegate.dev/kcp-tls-name";
    /// `enabled` on a RootShard: it forwards requests for mounts, as Shards do.
    pub const MOUNTS_PROXY: &str = "tidegate.dev/mounts-proxy";
    /// How many pods of a Deployment of a kcp landscape may be evicted at the same time: a number or a percentage.
    pub const POD_DISRUPTION_BUDGET: &str = "tidegate.dev/pod-disruption-budget";
    /// `enabled` on a VirtualWorkspace: its pods have probes.
    pub const PROBES: &str = "tidegate.dev/probes";
    /// The port of the Service of a FrontProxy, if it is not the one under which users reach it.
    pub const SERVICE_PORT: &str = "tidegate.dev/service-port";
    /// `disabled` on a FrontProxy: it does not forward `/services/`.
    pub const SERVICES_PATH: &str = "tidegate.dev/services-path";
    /// `disabled` on a VirtualWorkspace with a command of its own: its arguments are without the two that only the
    /// program of kcp knows.
    pub const SHARD_FLAGS: &str = "tidegate.dev/shard-flags";
    /// `disabled` on a RootShard or Shard: the certificate of its virtual workspaces, which nothing mounts, is not
    /// made.
    pub const VIRTUAL_WORKSPACES_CERTIFICATE: &str = "tidegate.dev/virtual-workspaces-certificate";
    /// The conditions of a CacheServer, as JSON: upstream's definition declares no field of its status.
    pub const STATUS: &str = "tidegate.dev/status";
    /// Digest of the keys that a pod of a kcp landscape mounts. The pod restarts when it changes.
    pub const MOUNTS: &str = "tidegate.dev/mounts";
    /// On the Secret with what pods trust while a CA is being replaced: a digest of its certificates, and whether all
    /// pods trust them.
    pub const TRUSTS: &str = "tidegate.dev/trusts";
}

/// Finalizers.
pub mod finalizer {
    /// On the Kyma in KCP.
    pub const KYMA: &str = "operator.kyma-project.io/Kyma";
    /// From an older Lifecycle Manager, which no longer removes it, so we do.
    pub const KYMA_PURGE: &str = "operator.kyma-project.io/purge-finalizer";
    /// On a Watcher, until its VirtualService is gone.
    pub const WATCHER: &str = "operator.kyma-project.io/watcher";
    /// On a ModuleReleaseMeta with `spec.mandatory`, until its module is removed from all runtimes.
    pub const MANDATORY_MODULE: &str = "operator.kyma-project.io/mandatory-module";
    /// On a GitSource, until its objects are pruned or have lost the ownership label.
    pub const SOURCE: &str = "tidegate.dev/source";
    /// On a Manifest, until its objects are gone.
    pub const MANIFEST: &str = "declarative.kyma-project.io/finalizer";
    /// On a Manifest, removed together with [`MANIFEST`].
    pub const LABEL_REMOVAL: &str = "label-removal-finalizer";
    /// On the resources of kcp landscapes, until their objects are gone.
    pub const SETUP: &str = "tidegate.dev/setup";
    /// Of kcp-operator, on Shards and Kubeconfigs. It does not remove them any more, so we do.
    pub const KCP_OPERATOR: [&str; 2] = ["operator.kcp.io/cleanup-shard", "operator.kcp.io/cleanup-rbac"];
    /// On a Manifest with a default custom resource, until that is gone.
    pub const MANIFEST_RESOURCE: &str = "resource.kyma-project.io/finalizer";
}

/// Our field manager: one constant, forever.
pub const FIELD_MANAGER: &str = "tidegate";
/// The field manager of the command line, for what users ask with its commands.
pub const CLI_FIELD_MANAGER: &str = "tidegate-cli";
/// Field manager of Lifecycle Manager for copies of definitions in runtimes. An object that names it is no user's.
pub const CATALOG_MANAGER_UPSTREAM: &str = "catalog-sync";
/// Field manager of Lifecycle Manager for the objects of modules.
pub const MODULE_MANAGER_UPSTREAM: &str = "declarative.kyma-project.io/applier";
/// The control plane's namespace.
pub const KCP_NAMESPACE: &str = "kcp-system";
/// The ConfigMap with the policy of maintenance windows, in [`KCP_NAMESPACE`].
pub const MAINTENANCE_CONFIG: &str = "klm-maintenance-config";
/// The namespace in a runtime.
pub const SKR_NAMESPACE: &str = "kyma-system";
/// The Kyma in a runtime.
pub const SKR_KYMA: &str = "default";
/// The webhook configuration in a runtime.
pub const SKR_WEBHOOK: &str = "skr-webhook";
/// The Service of the agent's metrics in a runtime.
pub const SKR_WEBHOOK_METRICS: &str = "skr-webhook-metrics";
/// The Secret with the agent's certificate in a runtime.
pub const SKR_WEBHOOK_SECRET: &str = "skr-webhook-tls";
/// The NetworkPolicies of the agent in a runtime. The second one allows its connection to the
/// control plane, despite its name.
pub const SKR_WEBHOOK_POLICIES: [&str; 4] = [
    "kyma-project.io--seed-to-watcher",
    "kyma-project.io--watcher-to-apiserver",
    "kyma-project.io--metrics-to-watcher",
    "kyma-project.io--watcher-to-dns",
];
/// The module whose Secrets get data from KCP, if it is restricted.
pub const DEPLOYER: &str = "deployer";
/// The environment variable that names the image pull Secret to a module's manager.
pub const PULL_SECRET_VARIABLE: &str = "SKR_IMG_PULL_SECRET";
/// `spec.install.name` of every Manifest.
pub const RAW_MANIFEST: &str = "raw-manifest";
/// Value of [`label::MANAGED_BY`] in KCP.
pub const MANAGED_BY_KCP: &str = "lifecycle-manager";
/// Value of [`label::MANAGED_BY`] in a runtime.
pub const MANAGED_BY_SKR: &str = "kyma";
/// The data key of an access Secret.
pub const ACCESS_SECRET_KEY: &str = "config";
/// The leader Lease, shared with Lifecycle Manager so that only one of the two acts.
pub const LEASE: &str = "893110f7.kyma-project.io";
/// The leader Lease of kcp-operator, in the namespace where it runs.
pub const KCP_OPERATOR_LEASE: &str = "239f9f9a.operator.kcp.io";
/// The Istio Gateway that receives the events of runtimes.
pub const GATEWAY: &str = "klm-watcher";
/// The Secret with the CA bundle that runtimes trust.
pub const GATEWAY_SECRET: &str = "klm-istio-gateway";
/// The Secret with the CA.
pub const AUTHORITY_SECRET: &str = "klm-watcher";
/// The Issuer of the runtimes' certificates.
pub const CERTIFICATE_ISSUER: &str = "klm-watcher-selfsigned";
/// Value of [`label::PURPOSE`] on Secrets with certificates of runtimes.
pub const CERTIFICATE_PURPOSE: &str = "klm-watcher-cert-manager";
