//! The kinds of kcp landscapes: what kcp-operator's users write, with the fields of its CRDs.
//!
//! One rule differs from upstream: a FrontProxy is rejected only if both of its external host names are non-empty.
//! Upstream's rule rejects every FrontProxy with `externalHostname` and without `external`.

mod cache_server;
mod front_proxy;
mod kubeconfig;
mod root_shard;
mod shard;
mod shared;
mod virtual_workspace;

use std::sync::LazyLock;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::core::CustomResourceExt as _;

pub use self::{
    cache_server::{CacheServer, CacheServerSpec, CacheServerStatus},
    front_proxy::{FrontProxy, FrontProxySpec, FrontProxyStatus, PathMapping},
    kubeconfig::{ClusterRoleBindings, Kubeconfig, KubeconfigAuthorization, KubeconfigSpec, KubeconfigStatus, Target},
    root_shard::{CacheConfig, ProxySpec, RootShard, RootShardSpec, RootShardStatus},
    shard::{CommonShardSpec, Shard, ShardCache, ShardSpec, ShardStatus},
    shared::{
        Audit, AuditWebhook, Auth, Authorization, AuthorizationWebhook, CertificateTemplate, CertificateTemplateSpec,
        CertificateTemplates, Certificates, DeploymentTemplate, Etcd, External, Image, IssuerRef, LocalRef, Logging,
        Marks, Oidc, PodTemplateSpec, PrivateKey, RootShardRef, ServiceTemplate, Subject,
    },
    virtual_workspace::{
        InitContainer, VirtualWorkspace, VirtualWorkspaceSpec, VirtualWorkspaceStatus, VirtualWorkspaceTarget,
    },
};
use super::crd;

/// The API group of the kinds of kcp landscapes.
pub const SETUP_GROUP: &str = "operator.kcp.io";
/// Their version.
pub const SETUP_VERSION: &str = "v1alpha1";

/// The CustomResourceDefinitions of the kinds of kcp landscapes, by name. Generated once per process.
pub fn crds() -> &'static [CustomResourceDefinition] {
    static CRDS: LazyLock<Vec<CustomResourceDefinition>> = LazyLock::new(|| {
        [
            CacheServer::crd(),
            FrontProxy::crd(),
            Kubeconfig::crd(),
            RootShard::crd(),
            Shard::crd(),
            VirtualWorkspace::crd(),
        ]
        .map(|crd| crd::with_core_types(crd::with_optional_spec(crd::finish(crd))))
        .to_vec()
    });
    &CRDS
}

#[cfg(test)]
mod tests;
