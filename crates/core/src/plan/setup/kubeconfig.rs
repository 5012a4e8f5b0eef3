//! Kubeconfigs: those that name files, whose text is known offline, and those of users.

use base64::{Engine as _, engine::general_purpose::STANDARD};

use super::{Content, Kind, Plan, Planner, Problem, Root, Secret, Trust, certificate, inside, name, named};
use crate::{
    api::setup::{FrontProxy, Kubeconfig},
    diagnostic::Severity,
    name::Key,
};

/// A kubeconfig that names files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileKubeconfig {
    /// Name and server of each cluster.
    pub clusters: Vec<(String, String)>,
    /// File with the CA of the servers.
    pub ca: String,
    /// The context. Its cluster is the first one.
    pub context: String,
    /// The user.
    pub user: String,
    /// Folder with the client certificate.
    pub credentials: String,
    /// Whether it says that it is a kubeconfig. Upstream's for proxies does not.
    pub is_typed: bool,
}

/// A kubeconfig with a client certificate. Everything but the certificates is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Credentials {
    /// The Secret with the client certificate.
    pub certificate: String,
    /// The user.
    pub user: String,
    /// Name and server of each cluster.
    pub clusters: Vec<(String, String)>,
    /// Name and cluster of each context. The first is the current one.
    pub contexts: Vec<(String, String)>,
    /// The CAs of the servers.
    pub trusts: Vec<Trust>,
}

// === impl FileKubeconfig ===

impl FileKubeconfig {
    /// Its text.
    pub fn to_text(&self) -> String {
        let mut text = String::new();
        if self.is_typed {
            text.push_str("apiVersion: v1\n");
        }
        text.push_str("clusters:\n");
        for (name, server) in &self.clusters {
            let ca = &self.ca;
            text.push_str(&format!(
                "- cluster:\n    certificate-authority: {ca}\n    server: {server}\n  name: {}\n",
                plain(name)
            ));
        }
        let cluster = self.clusters.first().map_or("", |(name, _)| name);
        let (context, user, folder) = (plain(&self.context), plain(&self.user), &self.credentials);
        text.push_str(&format!(
            "contexts:\n- context:\n    cluster: {}\n    user: {user}\n  name: {context}\ncurrent-context: {context}\n",
            plain(cluster)
        ));
        if self.is_typed {
            text.push_str("kind: Config\n");
        }
        text.push_str(&format!(
            "users:\n- name: {user}\n  user:\n    client-certificate: {folder}/tls.crt\n    client-key: {folder}/tls.key\n"
        ));
        text
    }
}

// === impl Credentials ===

impl Credentials {
    /// Its text, with the CAs of the servers and the client certificate with its key, all in PEM.
    pub fn to_text(&self, authorities: &str, certificate: &[u8], key: &[u8]) -> String {
        let authorities = STANDARD.encode(authorities);
        let mut clusters: Vec<_> = self.clusters.iter().collect();
        clusters.sort();
        let mut text = "apiVersion: v1\nclusters:\n".to_owned();
        for (name, server) in clusters {
            text.push_str(&format!(
                "- cluster:\n    certificate-authority-data: {authorities}\n    server: {server}\n  name: {}\n",
                plain(name)
            ));
        }
        let (mut contexts, user) = (self.contexts.clone(), quoted(&self.user));
        contexts.sort();
        text.push_str("contexts:\n");
        for (name, cluster) in &contexts {
            let (name, cluster) = (plain(name), plain(cluster));
            text.push_str(&format!("- context:\n    cluster: {cluster}\n    user: {user}\n  name: {name}\n"));
        }
        let current = self.contexts.first().map_or("", |(name, _)| name);
        text.push_str(&format!("current-context: {}\nkind: Config\nusers:\n- name: {user}\n", plain(current)));
        let (certificate, key) = (STANDARD.encode(certificate), STANDARD.encode(key));
        text.push_str(&format!("  user:\n    client-certificate-data: {certificate}\n    client-key-data: {key}\n"));
        text
    }
}

/// A text of users as YAML: with quotes and escapes, unless it is a plain word.
fn quoted(text: &str) -> String {
    let is_plain = text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '@' | '_'));
    if is_plain { plain(text) } else { serde_json::Value::from(text).to_string() }
}

/// A text as YAML. Names of resources may look like numbers.
fn plain(text: &str) -> String {
    let is_word = text.starts_with(|c: char| c.is_ascii_lowercase());
    let is_special = matches!(text, "true" | "false" | "null" | "yes" | "no" | "on" | "off" | "y" | "n");
    if is_word && !is_special { text.to_owned() } else { format!("\"{text}\"") }
}

impl Planner<'_> {
    /// The objects of a Kubeconfig.
    pub(super) fn kubeconfig(&self, key: &Key, kubeconfig: &Kubeconfig) -> Result<Plan, Problem> {
        let spec = &kubeconfig.spec;
        let target = self.target(key, kubeconfig)?;
        let name = format!("kubeconfig-cert-{}", key.name());
        let labels = name::labels_of(&kubeconfig.metadata);
        let of = certificate::Of {
            kind: Kind::Kubeconfig,
            key,
            prefix: name.clone(),
            labels,
            secret_labels: name::identity([("kubeconfig", key.name())]),
            templates: &std::collections::BTreeMap::new(),
            server_names: Vec::new(),
            virtual_names: Vec::new(),
        };
        let groups = spec.groups.iter().cloned().chain([inside::group(key)]);
        let template = spec.certificate_template.as_ref();
        let certificate = of.of_user(target.root.key.name(), &spec.username, groups, &spec.validity, template);
        let workspace = name::or(spec.target_workspace.as_deref().unwrap_or_default(), inside::WORKSPACE);
        let mut contexts = vec![("default", "default"), ("base", "base")];
        if !target.is_proxy {
            contexts.push(("shard-base", "base"));
        }
        let owned = |(name, cluster): (&str, &str)| (name.to_owned(), cluster.to_owned());
        let credentials = Credentials {
            certificate: certificate.name.clone(),
            user: spec.username.clone(),
            clusters: vec![
                ("base".to_owned(), target.url.clone()),
                ("default".to_owned(), format!("{}/clusters/{workspace}", target.url)),
            ],
            contexts: contexts.into_iter().map(owned).collect(),
            trusts: target.trusts,
        };
        let secret = Secret {
            name: spec.secret_ref.name.clone(),
            labels: std::collections::BTreeMap::new(),
            content: Content::Credentials(credentials),
        };
        Ok(Plan { certificates: vec![certificate], secrets: vec![secret], ..Plan::new(Kind::Kubeconfig, key) })
    }

    fn target(&self, key: &Key, kubeconfig: &Kubeconfig) -> Result<Found<'_>, Problem> {
        let kind = Kind::Kubeconfig;
        let target = &kubeconfig.spec.target;
        let server_ca = |root: Root<'_>| self.sub_ca_trust(root, "server");
        let with = |root: Root<'_>, bundle: Option<&str>| {
            [server_ca(root)].into_iter().chain(bundle.map(Trust::whole)).collect()
        };
        if let Some(name) = named(target.root_shard_ref.as_ref()) {
            let root = self.root_named(kind, key, name, "spec.target.rootShardRef.name")?;
            let trusts = with(root, named(root.shard.spec.common.ca_bundle_secret_ref.as_ref()));
            return Ok(Found { root, url: name::root_url(root.key, root.shard), is_proxy: false, trusts });
        }
        if let Some(name) = named(target.shard_ref.as_ref()) {
            let wanted = Key::new(key.namespace(), name);
            let field = "spec.target.shardRef.name";
            let shard = self.resources.shards.get(&wanted);
            let shard = shard.ok_or_else(|| super::missing(kind, key, field, Kind::Shard, &wanted))?;
            let root = self.root(Kind::Shard, &wanted, shard.spec.root_shard.reference.as_ref())?;
            let trusts = with(root, named(shard.spec.common.ca_bundle_secret_ref.as_ref()));
            return Ok(Found { root, url: name::shard_url(&wanted, shard), is_proxy: false, trusts });
        }
        if let Some(name) = named(target.front_proxy_ref.as_ref()) {
            let wanted = Key::new(key.namespace(), name);
            let field = "spec.target.frontProxyRef.name";
            let proxy = self.resources.front_proxies.get(&wanted);
            let proxy = proxy.ok_or_else(|| super::missing(kind, key, field, Kind::FrontProxy, &wanted))?;
            let root = self.root(Kind::FrontProxy, &wanted, proxy.spec.root_shard.reference.as_ref())?;
            let trusts = with(root, named(proxy.spec.ca_bundle_secret_ref.as_ref()));
            return Ok(Found { root, url: proxy_url(proxy, root), is_proxy: true, trusts });
        }
        let message = format!("Kubeconfig {key} has no target");
        let hint = "set exactly one of `rootShardRef`, `shardRef` and `frontProxyRef`".to_owned();
        let severity = Severity::Error;
        Err(Problem { severity, kind, key: key.clone(), field: "spec.target", message, hint, missing: None })
    }
}

/// What a Kubeconfig leads to.
struct Found<'a> {
    root: Root<'a>,
    url: String,
    is_proxy: bool,
    trusts: Vec<Trust>,
}

/// The URL under which users reach a FrontProxy.
fn proxy_url(proxy: &FrontProxy, root: Root<'_>) -> String {
    match &proxy.spec.external {
        Some(external) if !external.hostname.is_empty() => name::external_url(external),
        _ if !proxy.spec.external_hostname.is_empty() => {
            let host = &proxy.spec.external_hostname;
            if host.contains(':') { format!("https://{host}") } else { format!("https://{host}:{}", name::PORT) }
        }
        _ => name::external_url(&root.shard.spec.external),
    }
}
