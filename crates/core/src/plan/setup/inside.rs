//! What Tidegate does inside kcp, and how it gets there: permissions of Kubeconfigs, and the clean-up of Shards.
//!
//! As kcp-operator, Tidegate uses the certificate in Secret `<root>-kcp-operator`, and reaches a shard at its base URL.
//! A FrontProxy may serve several shards, so what a Kubeconfig for it gets is written through the internal proxy, which
//! finds the shard of a workspace. Annotations set another address, if the daemon cannot reach that one.

use std::collections::BTreeSet;

use super::{
    Kind, Planner, Problem, Root, missing, name, named,
    version::{Feature, KcpVersion},
};
use crate::{
    api::{names::annotation, setup::Kubeconfig},
    diagnostic::Severity,
    landscape::setup::Resources,
    name::Key,
};

/// How a part of kcp is reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// The RootShard whose CAs sign the certificates.
    pub root: Key,
    /// The URL of the server, without a workspace.
    pub url: String,
    /// The name in the certificate of the server, if it is not that of the URL.
    pub tls_name: Option<String>,
    /// The Secret with the certificate of Tidegate, and with the root CA.
    pub credentials: String,
    /// A Secret with more CAs of the server.
    pub bundle: Option<String>,
    /// The Deployment of the server.
    pub deployment: String,
    /// Whether kcp administers its Shards at [`ADMIN`]. Then clients may not delete them.
    pub has_admin: bool,
}

/// What a Kubeconfig gets inside kcp: ClusterRoleBindings in a workspace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grants {
    /// The path of the workspace.
    pub workspace: String,
    /// The ClusterRoles.
    pub roles: BTreeSet<String>,
}

/// The group that kcp-operator binds to the ClusterRoles: its certificate has it.
pub fn group(kubeconfig: &Key) -> String {
    format!("kubeconfig:{}", kubeconfig.name())
}

/// The path of the place at which kcp 0.34 and later administers its Shards. It is no workspace.
pub const ADMIN: &str = ":admin";
/// The annotation of a Shard inside kcp that keeps new workspaces away: the only one that a client may set there.
pub const CORDON: &str = "experimental.core.kcp.io/unschedulable";
/// The workspace of Kubeconfigs that name none.
pub(super) const WORKSPACE: &str = "root";

// === impl Resources ===

impl Resources {
    /// What a Kubeconfig gets inside kcp; `None` if it asks for nothing.
    pub fn grants(&self, key: &Key) -> Option<Grants> {
        let spec = &self.kubeconfigs.get(key)?.spec;
        let bindings = &spec.authorization.as_ref()?.cluster_role_bindings;
        let deprecated = name::or(bindings.cluster.as_deref().unwrap_or_default(), WORKSPACE);
        let workspace = name::or(spec.target_workspace.as_deref().unwrap_or_default(), deprecated).to_owned();
        let roles = bindings.cluster_roles.iter().filter(|role| !role.is_empty()).cloned().collect();
        Some(Grants { workspace, roles })
    }

    /// How the workspaces of a Kubeconfig are reached, or why they are not.
    ///
    /// # Errors
    ///
    /// Fails if a reference leads nowhere, or if there is no server to ask.
    pub fn route_of_kubeconfig(&self, key: &Key) -> Result<Route, Problem> {
        let planner = Planner { resources: self, known: &super::Known::default() };
        let target = self.kubeconfigs.get(key).map(|found| &found.spec.target);
        if let Some(root) = target.and_then(|target| named(target.root_shard_ref.as_ref())) {
            let root = planner.root_named(Kind::Kubeconfig, key, root, "spec.target.rootShardRef.name")?;
            return Ok(planner.route_of_root(root));
        }
        if let Some(shard) = target.and_then(|target| named(target.shard_ref.as_ref())) {
            return self.route_of_shard(&Key::new(key.namespace(), shard));
        }
        let proxy = target.and_then(|target| named(target.front_proxy_ref.as_ref())).unwrap_or_default();
        let proxy = Key::new(key.namespace(), proxy);
        planner.route_of_proxy(key, &proxy)
    }

    /// How the workspaces above those of a Kubeconfig are reached: through a proxy, because they may be on other
    /// shards. `None` if there is no proxy.
    pub fn route_above(&self, key: &Key) -> Option<Route> {
        let target = &self.kubeconfigs.get(key)?.spec.target;
        if named(target.front_proxy_ref.as_ref()).is_some() {
            return self.route_of_kubeconfig(key).ok();
        }
        let planner = Planner { resources: self, known: &super::Known::default() };
        let of_shard = || self.shards.get(&Key::new(key.namespace(), named(target.shard_ref.as_ref())?));
        let root = match named(target.root_shard_ref.as_ref()) {
            Some(root) => root,
            None => named(of_shard()?.spec.root_shard.reference.as_ref())?,
        };
        let root = planner.root_named(Kind::Kubeconfig, key, root, "spec.target").ok()?;
        planner.has_internal_proxy(root).then(|| route_of_internal_proxy(root, None))
    }

    /// How a Shard is reached.
    ///
    /// # Errors
    ///
    /// Fails if it does not exist, or has no RootShard.
    pub fn route_of_shard(&self, key: &Key) -> Result<Route, Problem> {
        let planner = Planner { resources: self, known: &super::Known::default() };
        let found = self.shards.get(key).ok_or_else(|| missing(Kind::Shard, key, "spec", Kind::Shard, key))?;
        let root = planner.root(Kind::Shard, key, found.spec.root_shard.reference.as_ref())?;
        let url = name::shard_url(key, found);
        let bundle = named(found.spec.common.ca_bundle_secret_ref.as_ref());
        Ok(planner.route(Kind::Shard, key, root, url, bundle, name::shard_service(key.name())))
    }

    /// How a RootShard is reached.
    ///
    /// # Errors
    ///
    /// Fails if it does not exist.
    pub fn route_of_root_shard(&self, key: &Key) -> Result<Route, Problem> {
        let planner = Planner { resources: self, known: &super::Known::default() };
        Ok(planner.route_of_root(planner.root_named(Kind::RootShard, key, key.name(), "metadata.name")?))
    }
}

impl Planner<'_> {
    fn route_of_root(&self, root: Root<'_>) -> Route {
        let url = name::root_url(root.key, root.shard);
        let bundle = named(root.shard.spec.common.ca_bundle_secret_ref.as_ref());
        self.route(Kind::RootShard, root.key, root, url, bundle, name::root_service(root.key.name()))
    }

    /// Through the FrontProxy if it has an address of its own for this, otherwise through the internal proxy.
    fn route_of_proxy(&self, key: &Key, proxy: &Key) -> Result<Route, Problem> {
        let field = "spec.target.frontProxyRef.name";
        let found = self.resources.front_proxies.get(proxy);
        let found = found.ok_or_else(|| missing(Kind::Kubeconfig, key, field, Kind::FrontProxy, proxy))?;
        let root = self.root(Kind::FrontProxy, proxy, found.spec.root_shard.reference.as_ref())?;
        let opt_ins = self.opt_ins(Kind::FrontProxy, proxy);
        if opt_ins.address().is_some() {
            let bundle = named(found.spec.ca_bundle_secret_ref.as_ref());
            let deployment = format!("{}-front-proxy", proxy.name());
            return Ok(self.route(Kind::FrontProxy, proxy, root, String::new(), bundle, deployment));
        }
        if !self.has_internal_proxy(root) {
            let message = format!(
                "its workspaces are reached through the internal proxy of RootShard {}, which has none",
                root.key.name()
            );
            let hint = format!(
                "remove the annotation `{}` of the RootShard, or set `{}` on FrontProxy {}",
                annotation::INTERNAL_PROXY,
                annotation::KCP_ADDRESS,
                proxy.name()
            );
            let (severity, kind, key) = (Severity::Error, Kind::Kubeconfig, key.clone());
            return Err(Problem { severity, kind, key, field, message, hint, missing: None });
        }
        Ok(route_of_internal_proxy(root, opt_ins.tls_name()))
    }

    fn has_internal_proxy(&self, root: Root<'_>) -> bool {
        !self.opt_ins(Kind::RootShard, root.key).is_disabled(annotation::INTERNAL_PROXY)
    }

    /// The route to the server of a resource, with what its annotations say.
    fn route(
        &self,
        kind: Kind,
        key: &Key,
        root: Root<'_>,
        url: String,
        bundle: Option<&str>,
        deployment: String,
    ) -> Route {
        let opt_ins = self.opt_ins(kind, key);
        let url = opt_ins.address().unwrap_or(url);
        Route { tls_name: opt_ins.tls_name(), ..route(root, &url, bundle, deployment) }
    }
}

/// An address that an annotation of the RootShard sets is not that of its proxy.
fn route_of_internal_proxy(root: Root<'_>, tls_name: Option<String>) -> Route {
    let service = format!("{}-proxy", root.key.name());
    let common = &root.shard.spec.common;
    let host = name::host(&service, root.key.namespace(), &common.cluster_domain);
    let url = format!("https://{host}:{}", name::PORT);
    let bundle = named(common.ca_bundle_secret_ref.as_ref());
    Route { tls_name, ..route(root, &url, bundle, service) }
}

fn route(root: Root<'_>, url: &str, bundle: Option<&str>, deployment: String) -> Route {
    Route {
        root: root.key.clone(),
        url: url.trim_end_matches('/').to_owned(),
        tls_name: None,
        credentials: format!("{}-kcp-operator", root.key.name()),
        bundle: bundle.map(str::to_owned),
        deployment,
        has_admin: KcpVersion::of_image(root.shard.spec.common.image.as_ref()).has(Feature::ShardPeers),
    }
}

// === impl Route ===

impl Route {
    /// The URL of a workspace, or of [`ADMIN`].
    pub fn workspace(&self, path: &str) -> String {
        match path {
            ADMIN => format!("{}/services/admin", self.url),
            _ => format!("{}/clusters/{path}", self.url),
        }
    }
}

// === impl Kubeconfig ===

impl Kubeconfig {
    /// The workspace in which kcp-operator or Tidegate made ClusterRoleBindings.
    pub fn provisioned(&self) -> Option<&str> {
        let found = self.status.as_ref()?.authorization.as_ref()?;
        Some(found.provisioned_cluster.as_str()).filter(|path| !path.is_empty())
    }
}
