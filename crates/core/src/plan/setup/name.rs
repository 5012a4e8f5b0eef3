//! Names, labels, hosts and URLs, as kcp-operator forms them.

use super::{Kind, Labels};
use crate::{
    api::{
        setup::{External, RootShard, Shard},
        shared::ObjectMeta,
    },
    name::Key,
    object::Digest,
};

/// Maximum length of a label value.
const LABEL_LEN_MAX: usize = 63;
/// The names of Tidegate's labels begin with this.
const OWN_PREFIX: &str = "tidegate.dev/";
/// The domain of clusters that name none.
const CLUSTER_DOMAIN: &str = "cluster.local";
/// The port on which every part of kcp listens.
pub(super) const PORT: i32 = 6443;

/// The value of the label `tidegate.dev/setup`: kind and name of the resource that an object belongs to. Beyond 63
/// characters it is cut and hashed.
pub fn setup_mark(kind: Kind, name: &str) -> String {
    let full = format!("{}.{name}", kind.as_str().to_lowercase());
    if full.len() <= LABEL_LEN_MAX {
        return full;
    }
    let digest = Digest::of_bytes(full.as_bytes()).short();
    let kept = full[..LABEL_LEN_MAX - digest.len() - 1].trim_end_matches(['-', '.']);
    format!("{kept}-{digest}")
}

/// The host name of the Service of a resource.
pub fn host(service: &str, namespace: &str, domain: &str) -> String {
    format!("{service}.{namespace}.svc.{}", or(domain, CLUSTER_DOMAIN))
}

/// The four labels of the objects of a resource, which are also selectors.
pub(super) fn labels(component: &str, instance: &str) -> Labels {
    [
        ("app.kubernetes.io/component", component),
        ("app.kubernetes.io/instance", instance),
        ("app.kubernetes.io/managed-by", "kcp-operator"),
        ("app.kubernetes.io/name", "kcp"),
    ]
    .map(|(key, value)| (key.to_owned(), value.to_owned()))
    .into()
}

/// Labels that say which resources a Secret belongs to.
pub(super) fn identity<const N: usize>(of: [(&str, &str); N]) -> Labels {
    of.map(|(kind, name)| (format!("operator.kcp.io/{kind}"), name.to_owned())).into()
}

/// The Certificate, Secret and Issuer of a sub CA of a RootShard.
pub(super) fn sub_ca(root: &str, ca: &str) -> String {
    format!("{root}-{ca}-ca")
}

/// The Secret with the root CA of a RootShard.
pub(super) fn root_ca(key: &Key, root: &RootShard) -> String {
    let given = super::named(root.spec.certificates.ca_secret_ref.as_ref());
    given.map_or_else(|| format!("{}-ca", key.name()), str::to_owned)
}

/// The Service of a RootShard.
pub(super) fn root_service(root: &str) -> String {
    format!("{root}-kcp")
}

/// The Service of a Shard.
pub(super) fn shard_service(shard: &str) -> String {
    format!("{shard}-shard-kcp")
}

/// The Service of a CacheServer.
pub(super) fn cache_service(cache: &str) -> String {
    format!("{cache}-cache-server")
}

/// The URL of a RootShard.
pub(super) fn root_url(key: &Key, root: &RootShard) -> String {
    let common = &root.spec.common;
    let host = host(&root_service(key.name()), key.namespace(), &common.cluster_domain);
    or(&common.shard_base_url, &format!("https://{host}:{PORT}")).to_owned()
}

/// The URL of a Shard.
pub(super) fn shard_url(key: &Key, shard: &Shard) -> String {
    let common = &shard.spec.common;
    let host = host(&shard_service(key.name()), key.namespace(), &common.cluster_domain);
    or(&common.shard_base_url, &format!("https://{host}:{PORT}")).to_owned()
}

/// The URL under which users reach a landscape.
pub(super) fn external_url(external: &External) -> String {
    format!("https://{}:{}", external.hostname, external.port)
}

/// The URL under which parts of kcp reach the front proxy. The private port counts only together with a private host
/// name.
pub(super) fn private_url(external: &External) -> String {
    if external.private_hostname.is_empty() {
        return external_url(external);
    }
    let port = external.private_port.filter(|&port| 0 < port).unwrap_or(external.port);
    format!("https://{}:{port}", external.private_hostname)
}

/// The host of a URL; `None` if it has none.
pub(super) fn url_host(url: &str) -> Option<String> {
    let (_, rest) = url.split_once("://")?;
    let authority = rest.split(['/', '?', '#']).next()?;
    let authority = authority.rsplit_once('@').map_or(authority, |(_, authority)| authority);
    let host = match authority.strip_prefix('[') {
        Some(rest) => rest.split_once(']')?.0,
        None => authority.split_once(':').map_or(authority, |(host, _)| host),
    };
    Some(host.to_owned()).filter(|host| !host.is_empty())
}

/// The text, or another one if it is empty.
pub(super) fn or<'a>(text: &'a str, default: &'a str) -> &'a str {
    if text.is_empty() { default } else { text }
}

/// The labels of a resource, for an object that upstream gives the same ones. Those of Tidegate stay: they say who owns
/// the resource itself.
pub(super) fn labels_of(metadata: &ObjectMeta) -> Labels {
    let labels = metadata.labels.iter().flatten();
    let own = labels.filter(|(name, _)| !name.starts_with(OWN_PREFIX));
    own.map(|(name, value)| (name.clone(), value.clone())).collect()
}
