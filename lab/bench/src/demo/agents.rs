//! The agents of the demo's runtimes, and a file that says how clients connect to them and to the daemon.

use std::{fs, path::Path};

use anyhow::Context as _;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use kube::Client;
use serde_json::{Value, json};

use super::{report, world::Own};
use crate::pods::{Doors, Pod};
use tidegate_core::api::names;

/// An agent sends every event twice, and requests a full resync after its start. In the demo both happen soon, so that
/// the effects of one edit do not mix with those of another.
const HASTE: [&str; 2] = ["--resend=1s", "--resync-within=3s"];

/// Agents that start at once. Each mostly waits for its runtime; a hundred at once would overload the machine.
const STARTS: usize = 16;

/// The running agents. Dropping the value stops them.
pub(super) struct Agents {
    _pods: Vec<Pod>,
}

/// What a client needs to connect to an agent.
struct Agent {
    kyma: String,
    certificate: String,
    key: String,
    authorities: String,
    port: u16,
}

// === impl Agents ===

impl Agents {
    /// Starts an agent for each runtime, once the daemon has installed its Secret, and writes `watch.json`. Fails if an
    /// agent does not start.
    pub(super) async fn start(
        folder: &Path,
        own: &Own,
        clients: &[Client],
        kymas: &[String],
        doors: Doors,
    ) -> anyhow::Result<Agents> {
        let started = each(kymas.len(), async |index| {
            let (kyma, skr, client) = (&kymas[index], &own.skrs[index], &clients[index]);
            let log = folder.join(format!("agent-{kyma}.log"));
            let pod = Pod::start(skr, client, folder.join("agents").join(kyma), &log, doors, &HASTE).await?;
            report::doing(&format!("the agent of {kyma} is running"));
            Ok(pod)
        });
        let pods = started.await?;
        let agents: Vec<Agent> = kymas.iter().zip(&pods).map(|(kyma, pod)| Agent::from_pod(kyma, pod)).collect();
        let path = folder.join("watch.json");
        let text = serde_json::to_string_pretty(&watch_json(doors, &agents)).context("cannot write watch.json")?;
        fs::write(&path, text + "\n").with_context(|| format!("cannot write {}", path.display()))?;
        Ok(Agents { _pods: pods })
    }
}

/// Starts `count` items concurrently, and returns them in their order.
async fn each<T>(count: usize, start: impl AsyncFn(usize) -> anyhow::Result<T>) -> anyhow::Result<Vec<T>> {
    stream::iter((0..count).map(async |index| start(index).await)).buffered(STARTS).try_collect().await
}

// === impl Agent ===

impl Agent {
    fn from_pod(kyma: &str, pod: &Pod) -> Agent {
        Agent {
            kyma: kyma.to_owned(),
            certificate: pod.file("tls.crt"),
            key: pod.file("tls.key"),
            authorities: pod.file("ca.crt"),
            port: pod.port,
        }
    }
}

/// How clients connect to the daemon's listener and to the agents.
fn watch_json(doors: Doors, agents: &[Agent]) -> Value {
    let runtimes: Vec<Value> = agents
        .iter()
        .map(|agent| {
            json!({
                "name": format!("{}/{}", names::KCP_NAMESPACE, agent.kyma),
                "certificate": agent.certificate,
                "key": agent.key,
                "agent": {"url": format!("https://localhost:{}", agent.port), "ca": agent.authorities},
            })
        })
        .collect();
    json!({
        "listener": {
            "url": format!("https://{}", doors.address()),
            "xfccUrl": format!("http://localhost:{}", doors.forwarded),
            // All runtimes trust the same CAs.
            "ca": agents.first().map(|agent| &agent.authorities),
        },
        "runtimes": runtimes,
    })
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use tokio::sync::Barrier;

    use super::*;

    #[tokio::test]
    async fn agents_start_side_by_side_and_never_too_many_at_once() {
        let (all_at_once, under_way) = (Barrier::new(STARTS), Cell::new(0));
        let started = each(4 * STARTS, async |index| {
            under_way.set(under_way.get() + 1);
            assert!(under_way.get() <= STARTS, "{} at once", under_way.get());
            // Starting one after the other would wait here forever.
            all_at_once.wait().await;
            under_way.set(under_way.get() - 1);
            Ok(index)
        });
        let started = tokio::time::timeout(std::time::Duration::from_secs(60), started).await.expect("side by side");
        assert_eq!(started.unwrap(), (0..4 * STARTS).collect::<Vec<_>>());
        let failing = each(3, async |index| if index == 1 { anyhow::bail!("one fails") } else { Ok(()) });
        assert!(failing.await.is_err(), "and with it all");
    }

    #[test]
    fn a_client_finds_everything_in_watch_json() {
        let agent = |kyma: &str, port| Agent {
            kyma: kyma.to_owned(),
            certificate: format!("/demo/agents/{kyma}/tls.crt"),
            key: format!("/demo/agents/{kyma}/tls.key"),
            authorities: format!("/demo/agents/{kyma}/ca.crt"),
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
