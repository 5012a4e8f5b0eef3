//! The agents of the runtimes: this very program as a child process for each, as a pod of the runtime would run it.
//!
//! The simulated node runs no pods, so an agent listens on a loopback port, and its runtime's API server is led there when
//! it asks the agent's Service. It has what the Secret in the runtime holds, as files, and goes to the daemon over TLS.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context as _, anyhow};
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use serde_json::{Value, json};

use super::{report, world::World};
use crate::{
    api::names,
    testbed::{self, Guarded},
};

/// Until the daemon has installed what an agent needs.
const DEADLINE: Duration = Duration::from_secs(120);
/// What an agent needs of its Secret.
const FILES: [&str; 3] = ["tls.crt", "tls.key", "ca.crt"];

/// Where events come in: ports on this machine.
#[derive(Clone, Copy, Debug)]
pub(super) struct Doors {
    /// With TLS of the daemon's own.
    pub(super) tls: u16,
    /// Behind a gateway, which there is none of.
    pub(super) forwarded: u16,
}

/// The running agents. They end with this value.
pub(super) struct Agents {
    _processes: Vec<Guarded>,
}

/// One agent: its files and its port.
struct Agent {
    kyma: String,
    folder: PathBuf,
    port: u16,
}

// === impl Doors ===

impl Doors {
    pub(super) fn new() -> Doors {
        Doors { tls: testbed::free_port(), forwarded: testbed::free_port() }
    }

    /// Where agents send to. By name, since that is what certificates are for.
    fn address(self) -> String {
        format!("localhost:{}", self.tls)
    }

    /// What the daemon is told of it, and of the agents that it is to install.
    pub(super) fn arguments(self) -> Vec<String> {
        vec![
            format!("--events-tls-address=127.0.0.1:{}", self.tls),
            format!("--events-address=127.0.0.1:{}", self.forwarded),
            format!("--listener-address={}", self.address()),
            // The agents' own addresses are on this machine as well.
            "--additional-dns-names=localhost".to_owned(),
            "--skr-watcher-image-registry=registry.example.org".to_owned(),
            "--skr-watcher-image-name=tidegate-agent".to_owned(),
            "--skr-watcher-image-tag=demo".to_owned(),
        ]
    }
}

// === impl Agents ===

impl Agents {
    /// Starts one for each runtime, once the daemon has brought what it needs, and writes `watch.json`.
    pub(super) async fn start(folder: &Path, world: &World, kymas: &[String], doors: Doors) -> anyhow::Result<Agents> {
        let program = std::env::current_exe().context("cannot find our own program")?;
        let mut agents = Vec::new();
        let mut processes = Vec::new();
        for (index, kyma) in kymas.iter().enumerate() {
            let agents_folder = folder.join("agents").join(kyma);
            let agent = Agent { kyma: kyma.clone(), folder: agents_folder, port: testbed::free_port() };
            agent.take_files(world, index).await?;
            let arguments = agent.arguments(&program, doors);
            let log = folder.join(format!("agent-{kyma}.log"));
            processes.push(Guarded::start(Path::new("/usr/bin/env"), arguments, &agent.folder, &log)?);
            agent.answers().await?;
            world.skrs[index].lead_agent_to(agent.port);
            report::doing(&format!("the agent of {kyma} runs"));
            agents.push(agent);
        }
        let path = folder.join("watch.json");
        let text = serde_json::to_string_pretty(&watch_json(doors, &agents)).context("cannot write watch.json")?;
        fs::write(&path, text + "\n").with_context(|| format!("cannot write {}", path.display()))?;
        Ok(Agents { _processes: processes })
    }
}

// === impl Agent ===

impl Agent {
    /// Writes what the Secret in its runtime holds, as a mounted volume would show it.
    async fn take_files(&self, world: &World, index: usize) -> anyhow::Result<()> {
        let secrets: Api<Secret> = Api::namespaced(world.skr_clients[index].clone(), names::SKR_NAMESPACE);
        let secret = testbed::until(DEADLINE, async || {
            let found = secrets.get_opt(names::SKR_WEBHOOK_SECRET).await.map_err(|error| error.to_string())?;
            found.ok_or_else(|| format!("the runtime of {} has no certificate yet", self.kyma))
        })
        .await
        .map_err(|late| anyhow!("the agent of {} cannot start: {late}", self.kyma))?;
        let mut data = secret.data.unwrap_or_default();
        fs::create_dir_all(&self.folder).with_context(|| format!("cannot make {}", self.folder.display()))?;
        for file in FILES {
            let bytes = data.remove(file).with_context(|| format!("the Secret of {} has no {file}", self.kyma))?;
            let path = self.folder.join(file);
            fs::write(&path, bytes.0).with_context(|| format!("cannot write {}", path.display()))?;
        }
        Ok(())
    }

    /// The environment as the Deployment in the runtime has it, then the program.
    fn arguments(&self, program: &Path, doors: Doors) -> Vec<String> {
        vec![
            format!("WEBHOOK_PORT={}", self.port),
            format!("METRICS_PORT={}", testbed::free_port()),
            format!("TLS_CERT={}", self.file("tls.crt")),
            format!("TLS_KEY={}", self.file("tls.key")),
            format!("CA_CERT={}", self.file("ca.crt")),
            "KCP_CONTRACT=v2".to_owned(),
            format!("KCP_ADDR={}", doors.address()),
            program.display().to_string(),
            "agent".to_owned(),
        ]
    }

    fn file(&self, name: &str) -> String {
        self.folder.join(name).display().to_string()
    }

    async fn answers(&self) -> anyhow::Result<()> {
        let answer = testbed::until(DEADLINE, async || {
            let stream = tokio::net::TcpStream::connect(("127.0.0.1", self.port)).await;
            stream.map(drop).map_err(|error| error.to_string())
        })
        .await;
        answer.map_err(|late| anyhow!("the agent of {} does not listen: {late}", self.kyma))
    }
}

/// How any client can speak to the daemon's listener and to the agents.
fn watch_json(doors: Doors, agents: &[Agent]) -> Value {
    let runtimes: Vec<Value> = agents
        .iter()
        .map(|agent| {
            json!({
                "name": format!("{}/{}", names::KCP_NAMESPACE, agent.kyma),
                "certificate": agent.file("tls.crt"),
                "key": agent.file("tls.key"),
                "agent": {"url": format!("https://localhost:{}", agent.port), "ca": agent.file("ca.crt")},
            })
        })
        .collect();
    json!({
        "listener": {
            "url": format!("https://{}", doors.address()),
            "xfccUrl": format!("http://localhost:{}", doors.forwarded),
            // All runtimes trust the same authorities.
            "ca": agents.first().map(|agent| agent.file("ca.crt")),
        },
        "runtimes": runtimes,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_finds_everything_in_watch_json() {
        let agent = |kyma: &str, port| Agent {
            kyma: String::from(kyma),
            folder: PathBuf::from("/demo/agents").join(kyma),
            port,
        };
        let doors = Doors { tls: 20_001, forwarded: 20_002 };
        let found = watch_json(doors, &[agent("dev", 20_003), agent("prod", 20_004)]);
        let runtime = |kyma: &str, port: u16| {
            json!({
                "name": format!("kcp-system/{kyma}"),
                "certificate": format!("/demo/agents/{kyma}/tls.crt"),
                "key": format!("/demo/agents/{kyma}/tls.key"),
                "agent": {"url": format!("https://localhost:{port}"), "ca": format!("/demo/agents/{kyma}/ca.crt")},
            })
        };
        let listener = json!({
            "url": "https://localhost:20001", "xfccUrl": "http://localhost:20002", "ca": "/demo/agents/dev/ca.crt",
        });
        assert_eq!(found, json!({"listener": listener, "runtimes": [runtime("dev", 20_003), runtime("prod", 20_004)]}));
    }
}
