//! A used control plane becomes as it was after its start, at a small part of what a start costs.
//!
//! What was added is deleted in etcd, under the API server: no finalizer and no webhook delays it, and namespaces need
//! no controller. The API server, its caches and the controllers see each deletion as they see any other.

use std::{
    collections::{BTreeSet, HashSet},
    time::Instant,
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use kube::Client;
use serde::Deserialize;
use serde_json::json;

use super::{ControlPlane, Etcd, POLL, READY_MAX};
use crate::Error;

/// What a control plane consists of before it is used.
#[derive(Clone, Debug)]
pub struct Baseline {
    /// The keys in etcd, below the server's prefix.
    keys: HashSet<String>,
    /// The names of the API groups that it serves.
    groups: BTreeSet<String>,
}

/// How etcd answers a range of keys.
#[derive(Deserialize)]
struct Range {
    #[serde(default)]
    kvs: Vec<Entry>,
}

#[derive(Deserialize)]
struct Entry {
    /// In base64.
    key: String,
    /// In base64; nothing if only keys were asked for.
    #[serde(default)]
    value: String,
}

/// The namespaces that Kubernetes makes by itself.
const SYSTEM_NAMESPACES: [&str; 4] = ["default", "kube-system", "kube-public", "kube-node-lease"];
/// What one transaction deletes at most; etcd is started with this limit.
const OPERATIONS_MAX: usize = 4096;

// === impl Etcd ===

impl Etcd {
    fn client(&self) -> Result<Client, Error> {
        let failed = |message: String| Error::Client { server: "etcd".to_owned(), message };
        let url =
            format!("http://127.0.0.1:{}", self.port).parse().map_err(|_| failed("its URL is none".to_owned()))?;
        Client::try_from(kube::Config::new(url)).map_err(|error| failed(error.to_string()))
    }

    /// All keys that begin so, without that beginning.
    async fn keys(&self, prefix: &str) -> Result<Vec<String>, Error> {
        // The first key after all that begin with the prefix, which ends with a slash.
        let end = format!("{}0", prefix.trim_end_matches('/'));
        let query = json!({"key": STANDARD.encode(prefix), "range_end": STANDARD.encode(end), "keys_only": true});
        let answer = self.ask("/v3/kv/range", "list the keys", &query).await?;
        let range: Range = serde_json::from_str(&answer)
            .map_err(|error| Error::Client { server: "etcd".to_owned(), message: error.to_string() })?;
        let names = range.kvs.iter().filter_map(|entry| String::from_utf8(STANDARD.decode(&entry.key).ok()?).ok());
        Ok(names.filter_map(|key| key.strip_prefix(prefix).map(str::to_owned)).collect())
    }

    /// The value of a key.
    async fn value(&self, key: &str) -> Result<Option<Vec<u8>>, Error> {
        let answer = self.ask("/v3/kv/range", "read a key", &json!({"key": STANDARD.encode(key)})).await?;
        let failed = |message: String| Error::Client { server: "etcd".to_owned(), message };
        let range: Range = serde_json::from_str(&answer).map_err(|error| failed(error.to_string()))?;
        let value = range.kvs.first().map(|entry| STANDARD.decode(&entry.value));
        value.transpose().map_err(|error| failed(error.to_string()))
    }

    /// Deletes keys below a prefix.
    async fn delete(&self, prefix: &str, keys: &[&String]) -> Result<(), Error> {
        for keys in keys.chunks(OPERATIONS_MAX) {
            let delete =
                |key: &&String| json!({"request_delete_range": {"key": STANDARD.encode(format!("{prefix}{key}"))}});
            let all = json!({"success": keys.iter().map(delete).collect::<Vec<_>>()});
            self.ask("/v3/kv/txn", "delete keys", &all).await?;
        }
        Ok(())
    }

    async fn ask(&self, path: &str, action: &'static str, body: &serde_json::Value) -> Result<String, Error> {
        let request = http::Request::post(path)
            .body(body.to_string().into_bytes())
            .map_err(|error| Error::Client { server: "etcd".to_owned(), message: error.to_string() })?;
        let failed = |source| Error::Request { server: "etcd".to_owned(), action, source: Box::new(source) };
        self.client()?.request_text(request).await.map_err(failed)
    }
}

// === impl ControlPlane ===

impl ControlPlane {
    /// What it consists of now: to be asked before it is used.
    ///
    /// # Errors
    ///
    /// Fails if the API server or etcd does not answer.
    pub async fn baseline(&self) -> Result<Baseline, Error> {
        let keys = self.etcd.keys(&self.prefix).await?.into_iter().collect();
        Ok(Baseline { keys, groups: self.groups().await? })
    }

    /// Deletes what was added since `baseline`, and forgets the requests so far and where webhooks lead to. Returns
    /// when the API server no longer serves what was added. Objects of the baseline that were changed stay so.
    ///
    /// # Errors
    ///
    /// Fails if the API server has ended, or if it or etcd does not answer.
    pub async fn reset(&self, baseline: &Baseline) -> Result<(), Error> {
        let (server, start) = (format!("{} kube-apiserver", self.name), Instant::now());
        if self.api().ended().is_some() {
            return Err(Error::Ended { server, log: self.api().log_tail() });
        }
        self.egress.lead_to(None);
        // What was deleted may come again, from a controller that had begun to act.
        while start.elapsed() < READY_MAX {
            let keys = self.etcd.keys(&self.prefix).await?;
            let added: Vec<&String> = keys.iter().filter(|key| is_added(key, &baseline.keys)).collect();
            self.etcd.delete(&self.prefix, &added).await?;
            if added.is_empty() && self.groups().await? == baseline.groups {
                if let Some(audit) = &self.audit {
                    audit.forget();
                }
                return Ok(());
            }
            tokio::time::sleep(POLL).await;
        }
        let last = "it still serves what was deleted".to_owned();
        Err(Error::NotReady { server, waited: READY_MAX, last, log: self.api().log_tail() })
    }

    /// A custom resource as etcd has it, in the version in which it was stored. `key` is below the server's prefix, for
    /// example `example.org/things/kyma-system/one`.
    ///
    /// # Errors
    ///
    /// Fails if etcd does not answer, or if the value is not JSON.
    pub async fn stored(&self, key: &str) -> Result<Option<serde_json::Value>, Error> {
        let Some(value) = self.etcd.value(&format!("{}{key}", self.prefix)).await? else { return Ok(None) };
        let failed = |error: serde_json::Error| Error::Client { server: "etcd".to_owned(), message: error.to_string() };
        serde_json::from_slice(&value).map(Some).map_err(failed)
    }

    /// The API groups that it serves.
    async fn groups(&self) -> Result<BTreeSet<String>, Error> {
        let listed = self.client()?.list_api_groups().await.map_err(|error| self.failed("list the groups", error))?;
        Ok(listed.groups.into_iter().map(|group| group.name).collect())
    }
}

/// Whether a key is not of the baseline, and not of what Kubernetes itself adds later.
fn is_added(key: &str, baseline: &HashSet<String>) -> bool {
    let parts: Vec<&str> = key.split('/').collect();
    let is_system = |namespace: &str| SYSTEM_NAMESPACES.contains(&namespace);
    let is_own = match parts[..] {
        // They follow the CRDs by themselves.
        ["apiregistration.k8s.io", ..] | ["ranges" | "masterleases", ..] => true,
        ["namespaces", name] => is_system(name),
        ["serviceaccounts", namespace, name] => {
            is_system(namespace) && (name == "default" || namespace == "kube-system")
        }
        ["configmaps", namespace, "kube-root-ca.crt"] => is_system(namespace),
        ["configmaps", "kube-system", "extension-apiserver-authentication"] => true,
        ["leases", "kube-system" | "kube-node-lease", _] | ["csinodes" | "minions", _] => true,
        _ => false,
    };
    !is_own && !baseline.contains(key)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn what_kubernetes_adds_by_itself_stays() {
        let baseline: HashSet<String> =
            ["clusterroles/admin", "services/specs/default/kubernetes"].map(str::to_owned).into();
        let cases = BTreeMap::from([
            ("clusterroles/admin", false),
            ("clusterroles/cache", true),
            ("services/specs/default/kubernetes", false),
            ("services/specs/default/mine", true),
            ("namespaces/kube-system", false),
            ("namespaces/kyma-system", true),
            ("serviceaccounts/default/default", false),
            ("serviceaccounts/default/mine", true),
            ("serviceaccounts/kube-system/namespace-controller", false),
            ("configmaps/kube-public/kube-root-ca.crt", false),
            ("configmaps/kyma-system/kube-root-ca.crt", true),
            ("apiextensions.k8s.io/customresourcedefinitions/things.example.org", true),
            ("apiregistration.k8s.io/apiservices/v1.example.org", false),
            ("example.org/things/kyma-system/one", true),
            ("leases/kcp-system/tidegate", true),
            ("leases/kube-node-lease/node-1", false),
        ]);
        for (key, expected) in cases {
            assert_eq!(is_added(key, &baseline), expected, "{key}");
        }
    }
}
