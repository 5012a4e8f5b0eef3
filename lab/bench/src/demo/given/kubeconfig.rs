//! A kubeconfig of the user, as the daemon can use it: one context, without references to files.
//!
//! The daemon accepts no program that issues credentials in an access Secret. So such a kubeconfig is refused here,
//! before anything is written.

use std::{fs, path::Path};

use anyhow::{Context as _, bail};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use kube::{
    Client, Config,
    config::{AuthInfo, KubeConfigOptions, Kubeconfig},
};
use serde_json::{Value, json};
use tidegate_cluster::read_kubeconfig;

/// How a cluster of the user is reached.
pub(super) struct Given {
    /// The address of the API server.
    pub(super) server: String,
    /// The kubeconfig.
    pub(super) text: String,
}

// === impl Given ===

impl Given {
    /// The current context of a file. Fails if it has none, or if its credentials cannot be handed on.
    pub(super) fn read(path: &Path) -> anyhow::Result<Given> {
        let what = || format!("cannot use the kubeconfig {}", path.display());
        let read = read_kubeconfig(path).map_err(anyhow::Error::msg).with_context(what)?;
        Given::of(&read).with_context(what)
    }

    fn of(read: &Kubeconfig) -> anyhow::Result<Given> {
        let name = read.current_context.as_deref().context("it has no current context")?;
        let context = read.contexts.iter().find(|one| one.name == name).and_then(|one| one.context.as_ref());
        let context = context.with_context(|| format!("it has no context {name}"))?;
        let cluster = read.clusters.iter().find(|one| one.name == context.cluster).and_then(|one| one.cluster.as_ref());
        let cluster = cluster.with_context(|| format!("it has no cluster {}", context.cluster))?;
        let user = context.user.as_deref().unwrap_or_default();
        let user = read.auth_infos.iter().find(|one| one.name == user).and_then(|one| one.auth_info.as_ref());
        let user = user.context("its context has no user")?;
        let server = cluster.server.clone().context("its cluster has no server")?;
        if cluster.insecure_skip_tls_verify == Some(true) {
            bail!("it does not verify the certificate of the API server, and the daemon does");
        }
        if cluster.proxy_url.is_some() {
            bail!("it needs a proxy, and the demo uses none");
        }
        let authority = inline(cluster.certificate_authority_data.as_deref(), cluster.certificate_authority.as_deref());
        let mut of_cluster = json!({"server": server});
        set(&mut of_cluster, "certificate-authority-data", authority?);
        set(&mut of_cluster, "tls-server-name", cluster.tls_server_name.clone());
        let kubeconfig = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "demo",
            "clusters": [{"name": "demo", "cluster": of_cluster}],
            "users": [{"name": "demo", "user": credentials(user)?}],
            "contexts": [{"name": "demo", "context": {"cluster": "demo", "user": "demo"}}],
        });
        let text = kubeconfig.to_string();
        tidegate_cluster::access::parse(text.as_bytes()).context("the daemon refuses it in an access Secret")?;
        Ok(Given { server, text })
    }

    /// A client.
    pub(super) async fn client(&self) -> anyhow::Result<Client> {
        let kubeconfig = Kubeconfig::from_yaml(&self.text).map_err(|error| anyhow::anyhow!("{error}"))?;
        let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
        Ok(Client::try_from(config)?)
    }
}

/// The credentials of a user, without references to files. Fails if a program issues them.
fn credentials(user: &AuthInfo) -> anyhow::Result<Value> {
    if user.exec.is_some() || user.auth_provider.is_some() {
        bail!(
            "a program issues its credentials, and the daemon accepts none in an access Secret: use a client certificate \
             or a token"
        );
    }
    // What is secret is text only once it is serialised.
    let fields = serde_json::to_value(user).context("cannot read its user")?;
    let text = |field: &str| fields[field].as_str();
    let mut of_user = json!({});
    for (field, data, file) in [
        ("client-certificate-data", text("client-certificate-data"), user.client_certificate.as_deref()),
        ("client-key-data", text("client-key-data"), user.client_key.as_deref()),
    ] {
        set(&mut of_user, field, inline(data, file)?);
    }
    let token = match (text("token"), &user.token_file) {
        (Some(token), _) => Some(token.to_owned()),
        (None, Some(file)) => {
            let token = fs::read_to_string(file).with_context(|| format!("cannot read {file}"))?;
            Some(token.trim().to_owned())
        }
        (None, None) => None,
    };
    set(&mut of_user, "token", token);
    Ok(of_user)
}

/// Data in base64: as they are, or the content of a file.
fn inline(data: Option<&str>, file: Option<&str>) -> anyhow::Result<Option<String>> {
    match (data, file) {
        (Some(data), _) => Ok(Some(data.to_owned())),
        (None, Some(file)) => {
            let content = fs::read(file).with_context(|| format!("cannot read {file}"))?;
            Ok(Some(STANDARD.encode(content)))
        }
        (None, None) => Ok(None),
    }
}

fn set(map: &mut Value, field: &str, value: Option<String>) {
    if let Some(value) = value {
        map[field] = value.into();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kubeconfig(cluster: Value, user: Value) -> Kubeconfig {
        let mut of_cluster = json!({"server": "https://127.0.0.1:6443"});
        of_cluster.as_object_mut().unwrap().extend(cluster.as_object().unwrap().clone());
        let text = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "kind-kcp",
            "clusters": [{"name": "kind", "cluster": of_cluster}, {"name": "other", "cluster": {"server": "https://o"}}],
            "users": [{"name": "admin", "user": user}],
            "contexts": [{"name": "kind-kcp", "context": {"cluster": "kind", "user": "admin"}}],
        });
        Kubeconfig::from_yaml(&text.to_string()).unwrap()
    }

    #[tokio::test]
    async fn the_current_context_alone_is_handed_on_without_files() {
        let server = kube_sim::Server::new(&kube_sim::Options::default()).listen("kcp").await.unwrap();
        let ca = server.kubeconfig().authority.clone();
        let folder = tidegate_testbed::Folder::temporary("tidegate-kubeconfig-").unwrap();
        let (authority, token) = (folder.path().join("ca.pem"), folder.path().join("token"));
        fs::write(&authority, &ca).unwrap();
        fs::write(&token, "secret\n").unwrap();
        let given = Given::of(&kubeconfig(
            json!({"certificate-authority": authority.to_str().unwrap()}),
            json!({"tokenFile": token.to_str().unwrap()}),
        ));
        let given = given.unwrap();
        assert_eq!(given.server, "https://127.0.0.1:6443");
        let text: Value = serde_json::from_str(&given.text).unwrap();
        let cluster = json!({"server": given.server, "certificate-authority-data": STANDARD.encode(&ca)});
        assert_eq!(text["clusters"], json!([{"name": "demo", "cluster": cluster}]));
        assert_eq!(text["users"], json!([{"name": "demo", "user": {"token": "secret"}}]));
    }

    #[test]
    fn what_the_daemon_cannot_use_is_refused_before_anything_is_written() {
        let exec = json!({"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": "aws"}});
        for (cluster, user, expected) in [
            (json!({}), exec, "a program issues its credentials"),
            (json!({"insecure-skip-tls-verify": true}), json!({"token": "a"}), "it does not verify the certificate"),
            (json!({"proxy-url": "http://proxy"}), json!({"token": "a"}), "it needs a proxy"),
        ] {
            let refused = Given::of(&kubeconfig(cluster, user)).err().expect("it is refused").to_string();
            assert!(refused.starts_with(expected), "{refused}");
        }
    }
}
