//! The git server that the daemon fetches from: `git` behind TLS or behind ssh, in this process.

mod https;
mod ssh;

use std::{path::Path, process::Command};

use anyhow::Context as _;
use kube_sim::Authority;
use serde_json::{Value, json};

use self::{https::HttpsServer, ssh::SshServer};

/// How the daemon reaches the repository.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Transport {
    Https,
    Ssh,
}

/// A running server. Dropping it stops it.
pub(super) enum GitServer {
    Https { server: HttpsServer, authority: String },
    Ssh(SshServer),
}

// === impl Transport ===

impl Transport {
    /// All transports, in the order in which they are measured.
    pub(super) const ALL: [Transport; 2] = [Transport::Https, Transport::Ssh];

    /// Its name in the output.
    pub(super) fn name(self) -> &'static str {
        match self {
            Transport::Https => "https",
            Transport::Ssh => "ssh",
        }
    }
}

// === impl GitServer ===

impl GitServer {
    /// Serves the repositories below `root`. `authority` issues the certificate of an https server.
    pub(super) async fn start(transport: Transport, root: &Path, authority: &Authority) -> anyhow::Result<GitServer> {
        let found = Command::new("git").arg("--version").output();
        found.context("cannot run `git`, which serves the repository: install it")?;
        Ok(match transport {
            Transport::Https => {
                let server = HttpsServer::start(root, authority)?;
                GitServer::Https { server, authority: authority.pem().to_owned() }
            }
            Transport::Ssh => GitServer::Ssh(SshServer::start(root).await?),
        })
    }

    /// The URL of a repository.
    pub(super) fn url(&self, repository: &str) -> String {
        match self {
            GitServer::Https { server, .. } => server.url(repository),
            GitServer::Ssh(server) => server.url(repository),
        }
    }

    /// The data of the Secret that a GitSource of this server needs.
    pub(super) fn credentials(&self) -> Value {
        match self {
            GitServer::Https { authority, .. } => json!({"ca.crt": authority}),
            GitServer::Ssh(server) => json!({"identity": server.identity(), "known_hosts": server.known_hosts()}),
        }
    }

    /// How often the references of a repository were asked for.
    pub(super) fn fetches(&self) -> usize {
        match self {
            GitServer::Https { server, .. } => server.fetches(),
            GitServer::Ssh(server) => server.fetches(),
        }
    }
}
