// SPDX-License-Identifier: Apache-2.0

//! Kubeconfigs with all data inline, as text.

use std::time::Duration;

use crate::{CredentialsError, Identity};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use kube::Client;

/// The connection of one user to one server.
#[derive(Clone)]
pub struct Kubeconfig {
    /// The name of cluster and context.
    pub name: String,
    /// `https://…`
    pub server: String,
    /// The server's CA, in PEM.
    pub authority: String,
    /// The user's credentials.
    pub credentials: Credentials,
}

/// Limit of a request in tests.
const READ_TIMEOUT: Duration = Duration::from_secs(60);

/// The credentials of a user.
#[derive(Clone)]
pub enum Credentials {
    /// A client certificate.
    Certificate(Identity),
    /// A bearer token.
    Token(String),
}

// === impl Kubeconfig ===

impl Kubeconfig {
    /// The kubeconfig as YAML.
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
             certificate-authority-data: {authority}\nusers:\n- name: {name}\n  user:\n{user}contexts:\n\
             - name: {name}\n  context:\n    cluster: {name}\n    user: {name}\ncurrent-context: {name}\n",
            name = self.name,
            server = self.server,
            authority = STANDARD.encode(&self.authority),
        )
    }

    /// A new client that does not retry, so that the caller sees every answer. It belongs to the tokio runtime that
    /// creates it.
    ///
    /// # Errors
    ///
    /// Fails if the kubeconfig cannot be used.
    pub fn client(&self) -> Result<Client, CredentialsError> {
        let failed = |message: String| CredentialsError::Client { server: self.name.clone(), message };
        let parsed = kube::config::Kubeconfig::from_yaml(&self.text()).map_err(|error| failed(error.to_string()))?;
        // All data is inline, so this does not block.
        let config = futures::executor::block_on(kube::Config::from_custom_kubeconfig(parsed, &Default::default()));
        let mut config = config.map_err(|error| failed(error.to_string()))?;
        config.read_timeout = Some(READ_TIMEOUT);
        config.default_retry = false;
        Client::try_from(config).map_err(|error| failed(error.to_string()))
    }
}
