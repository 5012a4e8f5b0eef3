//! Agents of runtimes: this program as one process per runtime, as a pod in the runtime would run it.
//!
//! A simulated node runs no pods. So an agent listens on a loopback port, and the API server of its runtime calls that
//! port instead of the agent's Service. The agent has the content of its Secret as files, and connects to the daemon
//! over TLS.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use crate::servers::Server;
use anyhow::{Context as _, anyhow};
use k8s_openapi::api::core::v1::Secret;
use kube::{Api, Client};
use tidegate_core::api::names;
use tidegate_testbed::{self as testbed, Guarded};

/// The ports of this machine on which the daemon receives events.
#[derive(Clone, Copy, Debug)]
pub(super) struct Doors {
    /// Over mTLS.
    pub(super) tls: u16,
    /// For a gateway, which does not exist here.
    pub(super) forwarded: u16,
}

/// A running agent. Dropping the value stops it.
pub(super) struct Pod {
    /// The folder with the files of the Secret.
    folder: PathBuf,
    /// The port for admission reviews.
    pub(super) port: u16,
    _process: Guarded,
}

/// Longest time until the daemon has installed the Secret of an agent.
const DEADLINE: Duration = Duration::from_secs(120);
/// The files that an agent needs from its Secret.
const FILES: [&str; 3] = ["tls.crt", "tls.key", "ca.crt"];

// === impl Doors ===

impl Doors {
    pub(super) fn new() -> Doors {
        Doors { tls: testbed::free_port(), forwarded: testbed::free_port() }
    }

    /// The address to which agents send. It has a host name, because certificates do.
    pub(super) fn address(self) -> String {
        format!("localhost:{}", self.tls)
    }

    /// The options of the daemon for these ports and for the agents that it installs.
    pub(super) fn arguments(self) -> Vec<String> {
        vec![
            format!("--events-tls-address=127.0.0.1:{}", self.tls),
            format!("--events-address=127.0.0.1:{}", self.forwarded),
            format!("--listener-address={}", self.address()),
            // The agents listen on this machine as well.
            "--additional-dns-names=localhost".to_owned(),
            "--skr-watcher-image-registry=registry.example.org".to_owned(),
            "--skr-watcher-image-name=tidegate-agent".to_owned(),
            "--skr-watcher-image-tag=demo".to_owned(),
        ]
    }
}

// === impl Pod ===

impl Pod {
    /// Starts the agent of a runtime, once the daemon has installed its Secret, and connects the API server of the
    /// runtime to it. `folder` is for its files; `more` are further options. Fails if the agent does not start in time.
    pub(super) async fn start(
        skr: &Server,
        client: &Client,
        folder: PathBuf,
        log: &Path,
        doors: Doors,
        more: &[&str],
    ) -> anyhow::Result<Pod> {
        let name = skr.name();
        take_files(name, client, &folder).await?;
        let program = std::env::current_exe().context("cannot find the path of this program")?;
        let port = testbed::free_port();
        let arguments = arguments(&program, &folder, port, doors, more);
        let process = Guarded::start(Path::new("/usr/bin/env"), arguments, &folder, log)?;
        let answer = testbed::until(DEADLINE, async || {
            let stream = tokio::net::TcpStream::connect(("127.0.0.1", port)).await;
            stream.map(drop).map_err(|error| error.to_string())
        });
        answer.await.map_err(|late| anyhow!("the agent of {name} does not listen: {late}\n{}", process.log_tail()))?;
        skr.lead_agent_to(port);
        Ok(Pod { folder, port, _process: process })
    }

    /// One of its files.
    pub(super) fn file(&self, name: &str) -> String {
        file(&self.folder, name)
    }
}

/// Writes the content of the Secret in a runtime to files, as a mounted volume would show it.
async fn take_files(name: &str, client: &Client, folder: &Path) -> anyhow::Result<()> {
    let secrets: Api<Secret> = Api::namespaced(client.clone(), names::SKR_NAMESPACE);
    let secret = testbed::until(DEADLINE, async || {
        let found = secrets.get_opt(names::SKR_WEBHOOK_SECRET).await.map_err(|error| error.to_string())?;
        found.ok_or_else(|| "the runtime has no certificate yet".to_owned())
    })
    .await
    .map_err(|late| anyhow!("the agent of {name} cannot start: {late}"))?;
    let mut data = secret.data.unwrap_or_default();
    fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
    for file in FILES {
        let bytes = data.remove(file).with_context(|| format!("the Secret of {name} has no {file}"))?;
        let path = folder.join(file);
        fs::write(&path, bytes.0).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}

/// The environment as the Deployment in the runtime has it, then the program.
fn arguments(program: &Path, folder: &Path, port: u16, doors: Doors, more: &[&str]) -> Vec<String> {
    let mut arguments = vec![
        format!("WEBHOOK_PORT={port}"),
        format!("METRICS_PORT={}", testbed::free_port()),
        format!("TLS_CERT={}", file(folder, "tls.crt")),
        format!("TLS_KEY={}", file(folder, "tls.key")),
        format!("CA_CERT={}", file(folder, "ca.crt")),
        "KCP_CONTRACT=v2".to_owned(),
        format!("KCP_ADDR={}", doors.address()),
        program.display().to_string(),
        "agent".to_owned(),
    ];
    arguments.extend(more.iter().map(|argument| (*argument).to_owned()));
    arguments
}

fn file(folder: &Path, name: &str) -> String {
    folder.join(name).display().to_string()
}
