//! Kubeconfigs with all data inline, as text.

use std::time::Duration;

use crate::{CredentialsError, Identity};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use kube::Client;

/// How to reach one server as one user.
#[derive(Clone)]
pub struct Kubeconfig {
    /// Name of cluster and context.
    pub name: String,
    /// `https://…`
    pub server: String,
    /// The server's authority, as PEM.
    pub authority: String,
    /// Who asks.
    pub credentials: Credentials,
}

/// How long a request may take before a test gives up on it.
const READ_TIMEOUT: Duration = Duration::from_secs(60);

/// What proves who asks.
#[derive(Clone)]
pub enum Credentials {
    /// A client certificate.
    Certificate(Identity),
    /// A bearer token.
    Token(String),
}

// === impl Kubeconfig ===

impl Kubeconfig {
    /// As YAML.
    pub fn text(&self) -> String {
        let user = match &self.credentials {
            Credentials::Certificate(identity) => format!(
                "    client-certificate-data: {}\n    client-key-data: {}\n",
                STANDARD.encode(&identity.certificate),
                STANDARD.encode(&identity.key)
            ),
            Credentials::Token(token) => format!("    token: {token}\n"),
        };
        format!(
            "apiVersion: v1\nkind: Config\nclusters:\n- name: {name}\n  cluster:\n    server: {server}\n    \
             certificate-authority-data: {authority}\nusers:\n- name: {name}\n  user:\n{user}contexts:\n- name: {name}\n  \
             context:\n    cluster: {name}\n    user: {name}\ncurrent-context: {name}\n",
            name = self.name,
            server = self.server,
            authority = STANDARD.encode(&self.authority),
        )
    }

    /// A new client, without retries of its own, so that its user sees every answer. It belongs to the tokio runtime
    /// that it is made in.
    pub fn client(&self) -> Result<Client, CredentialsError> {
        let failed = |message: String| CredentialsError::Client { server: self.name.clone(), message };
        let parsed = kube::config::Kubeconfig::from_yaml(&self.text()).map_err(|error| failed(error.to_string()))?;
        // All data is inline: there is nothing to wait for.
        let config = futures::executor::block_on(kube::Config::from_custom_kubeconfig(parsed, &Default::default()));
        let mut config = config.map_err(|error| failed(error.to_string()))?;
        config.read_timeout = Some(READ_TIMEOUT);
        config.default_retry = false;
        Client::try_from(config).map_err(|error| failed(error.to_string()))
    }
}
