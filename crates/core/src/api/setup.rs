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

use std::fmt;

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

/// The kinds of kcp landscapes, in the order of apply. Deletion uses the reverse order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// The cache that shards share.
    CacheServer,
    /// The first shard.
    RootShard,
    /// The entrance of users.
    FrontProxy,
    /// One more shard.
    Shard,
    /// A server of virtual workspaces.
    VirtualWorkspace,
    /// Credentials.
    Kubeconfig,
}

// === impl Kind ===

impl Kind {
    /// All of them, in the order of apply.
    pub const ALL: [Kind; 6] =
        [Kind::CacheServer, Kind::RootShard, Kind::FrontProxy, Kind::Shard, Kind::VirtualWorkspace, Kind::Kubeconfig];

    /// The value of `kind`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Kind::CacheServer => "CacheServer",
            Kind::RootShard => "RootShard",
            Kind::FrontProxy => "FrontProxy",
            Kind::Shard => "Shard",
            Kind::VirtualWorkspace => "VirtualWorkspace",
            Kind::Kubeconfig => "Kubeconfig",
        }
    }

    /// Its name in URLs.
    pub const fn plural(self) -> &'static str {
        match self {
            Kind::CacheServer => "cacheservers",
            Kind::RootShard => "rootshards",
            Kind::FrontProxy => "frontproxies",
            Kind::Shard => "shards",
            Kind::VirtualWorkspace => "virtualworkspaces",
            Kind::Kubeconfig => "kubeconfigs",
        }
    }

    /// Its CustomResourceDefinition. Generated at each call: it is large, and most processes need none.
    pub fn crd(self) -> CustomResourceDefinition {
        let crd = match self {
            Kind::CacheServer => CacheServer::crd(),
            Kind::RootShard => RootShard::crd(),
            Kind::FrontProxy => FrontProxy::crd(),
            Kind::Shard => Shard::crd(),
            Kind::VirtualWorkspace => VirtualWorkspace::crd(),
            Kind::Kubeconfig => Kubeconfig::crd(),
        };
        crd::with_core_types(crd::with_optional_spec(crd::finish(crd)))
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests;
