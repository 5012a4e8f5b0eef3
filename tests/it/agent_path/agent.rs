//! The agent of a runtime as a process on this machine, with its Secret as files, as a kubelet mounts them.

use std::{net::SocketAddr, path::Path, sync::Arc, time::Duration};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use kube::Client;
use serde_json::Value;
use tidegate_testbed::Guarded;
use tokio::task::JoinHandle;

use crate::{
    agent::{
        certificates::{Identity, Mount},
        http,
    },
    events::listening,
    harness::{SOON, eventually},
    stage::{Stage, read},
};

/// An agent that follows the Secret of its runtime. Dropping it ends the process.
pub(crate) struct Agent {
    index: usize,
    /// The local port that it sends events to.
    control_plane: u16,
    mount: Arc<Mount>,
    kubelet: JoinHandle<()>,
    process: Option<Guarded>,
    /// The address that API servers call.
    reviews: Option<SocketAddr>,
    /// The address of its metrics.
    plain: Option<SocketAddr>,
    /// Number of processes so far.
    count: usize,
}

/// How often the test reads the Secret. A kubelet takes a minute.
const LOOK: Duration = Duration::from_millis(200);

// === impl Agent ===

impl Agent {
    /// Starts an agent with the content of the runtime's Secret, and points the API server's webhooks to it.
    pub(crate) async fn start(stage: &Stage, index: usize, control_plane: u16, more: &[&str]) -> Agent {
        let secret = stage
            .until("the certificate arrives", &stage.skrs[index], "Secret", "kyma-system", "skr-webhook-tls", |_| true)
            .await;
        let (identity, bundle) = content(&secret);
        let mount = Arc::new(Mount::new(&identity, &bundle));
        let kubelet = tokio::spawn(follow(stage.skrs[index].clone(), Arc::clone(&mount), secret["data"].clone()));
        let mut agent =
            Agent { index, control_plane, mount, kubelet, process: None, reviews: None, plain: None, count: 0 };
        agent.again(stage, more).await;
        agent
    }

    /// Kills the process. The API server's connections are refused then, as by a Service without pods.
    pub(crate) fn kill(&mut self) {
        self.process = None;
    }

    /// Starts another process, with further options.
    pub(crate) async fn again(&mut self, stage: &Stage, more: &[&str]) {
        self.count += 1;
        let folder = self.mount.path();
        let file = |name: &str| folder.join(name).to_string_lossy().into_owned();
        let mut arguments = vec![
            format!("TLS_CERT={}", file("tls.crt")),
            format!("TLS_KEY={}", file("tls.key")),
            format!("CA_CERT={}", file("ca.crt")),
            "KCP_CONTRACT=v2".to_owned(),
            format!("KCP_ADDR=localhost:{}", self.control_plane),
            env!("CARGO_BIN_EXE_tidegate").to_owned(),
            "agent".to_owned(),
            "--webhook-address=127.0.0.1:0".to_owned(),
            "--metrics-address=127.0.0.1:0".to_owned(),
        ];
        arguments.extend(more.iter().map(|argument| (*argument).to_owned()));
        let log = stage.log().with_file_name(format!("agent-{}-{}.log", self.index, self.count));
        let process = Guarded::start(Path::new("/usr/bin/env"), arguments, folder, &log).unwrap();
        let (reviews, plain) = eventually("the agent listens", SOON, async || {
            let address = |purpose| listening(&log, purpose).ok_or_else(|| process.log_tail());
            Ok((address("reviews")?, address("metrics and health")?))
        })
        .await;
        (self.process, self.reviews, self.plain) = (Some(process), Some(reviews), Some(plain));
        self.is_reached(stage);
    }

    /// From now on the API server of its runtime reaches it.
    pub(crate) fn is_reached(&self, stage: &Stage) {
        stage.landscape.skrs[self.index].lead_webhooks_to(self.reviews.map(|reviews| reviews.port()));
    }

    /// The value of a series; zero if it does not exist.
    pub(crate) async fn metric(&self, series: &str) -> f64 {
        let metrics = self.metrics().await;
        let line = metrics.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
        line.and_then(|value| value.parse().ok()).unwrap_or(0.0)
    }

    /// All its metrics, as text.
    pub(crate) async fn metrics(&self) -> String {
        let mut stream = tokio::net::TcpStream::connect(self.plain.expect("it was started")).await.unwrap();
        http::ask(&mut stream, &http::get("/metrics")).await.expect("metrics").text().to_owned()
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        self.kubelet.abort();
    }
}

/// Writes the Secret into the agent's folder whenever it changes.
async fn follow(skr: Client, mount: Arc<Mount>, mut last: Value) {
    loop {
        tokio::time::sleep(LOOK).await;
        let Some(secret) = read(&skr, "Secret", "kyma-system", "skr-webhook-tls").await else { continue };
        if secret["data"] != last {
            let (identity, bundle) = content(&secret);
            mount.replace(&identity, &bundle);
            last = secret["data"].clone();
        }
    }
}

fn content(secret: &Value) -> (Identity, String) {
    let text = |key: &str| {
        let bytes = STANDARD.decode(secret["data"][key].as_str().unwrap_or_default()).expect("base64");
        String::from_utf8(bytes).expect("PEM")
    };
    (Identity { certificate: text("tls.crt"), key: text("tls.key") }, text("ca.crt"))
}
