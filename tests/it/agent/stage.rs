//! An agent between an API server, played by the test, and a control plane.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use rustls::ClientConfig;
use serde_json::{Value, json};
use tidegate_agent::{
    Addresses, Agent,
    settings::{Settings, Timing},
};
use tokio::{net::TcpStream, sync::oneshot, task::JoinHandle, time::timeout};
use tokio_rustls::client::TlsStream;

use super::{
    certificates::{Authority, HOST, Identity, Mount, SERVICE},
    control_plane::{ControlPlane, config},
    http::{self, Message},
};

/// The agent sends only what a test causes: nothing twice, no probe, no full check.
pub(crate) const QUIET: Timing = Timing {
    settle: Duration::from_millis(10),
    resend: Duration::ZERO,
    probe_interval: Duration::ZERO,
    resync_within: Duration::ZERO,
    resync_interval: Duration::ZERO,
    shutdown_delay: Duration::ZERO,
    flush: Duration::from_secs(10),
    reload_interval: Duration::from_millis(20),
};

/// An agent and what is around it.
pub(crate) struct Stage {
    pub(crate) authority: Authority,
    pub(crate) identity: Identity,
    pub(crate) mount: Mount,
    pub(crate) control_plane: ControlPlane,
    pub(crate) agent: Running,
    pub(crate) client: Arc<ClientConfig>,
}

/// An agent in this process.
pub(crate) struct Running {
    pub(crate) admission: SocketAddr,
    pub(crate) plain: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    task: JoinHandle<usize>,
}

impl Stage {
    /// The gateway serves the authority's own certificate, as landscapes do.
    pub(crate) async fn start(timing: Timing) -> Stage {
        let authority = Authority::new();
        let server = authority.itself();
        Stage::start_with(timing, authority, &server).await
    }

    pub(crate) async fn start_with(timing: Timing, authority: Authority, server: &Identity) -> Stage {
        let control_plane = ControlPlane::start(config(server, &[&authority])).await;
        let identity = authority.runtime();
        let mount = Mount::new(&identity, &authority.pem);
        let agent = Running::start(timing, settings(&mount, control_plane.address)).await;
        let client = http::trusting(&authority.pem);
        Stage { authority, identity, mount, control_plane, agent, client }
    }

    /// A connection as the API server opens it.
    pub(crate) async fn connect(&self) -> TlsStream<TcpStream> {
        let stream = TcpStream::connect(self.agent.admission).await.unwrap();
        http::secured(Arc::clone(&self.client), SERVICE, stream).await.unwrap()
    }

    /// Posts a review.
    pub(crate) async fn review(&self, path: &str, review: &Value) -> Message {
        let mut stream = self.connect().await;
        http::ask(&mut stream, &http::post(path, &serde_json::to_vec(review).unwrap())).await.unwrap()
    }

    /// Reports a change of an object.
    pub(crate) async fn change(&self, name: &str) {
        let answer = self.review("/validate/lifecycle-manager?timeout=15s", &created(name)).await;
        assert_eq!(answer.status(), 200);
    }

    /// A page of the plain port.
    pub(crate) async fn plain(&self, path: &str) -> Message {
        self.agent.plain(path).await
    }

    /// The value of a series.
    pub(crate) async fn metric(&self, series: &str) -> f64 {
        let page = self.plain("/metrics").await;
        let line = page.text().lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
        line.unwrap_or_else(|| panic!("no {series} in {}", page.text())).parse().unwrap()
    }

    /// Waits until a series has a value.
    pub(crate) async fn wait_for_metric(&self, series: &str, expected: f64) {
        let reached = async {
            while self.metric(series).await != expected {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        let reached = timeout(http::PATIENCE, reached).await;
        assert!(reached.is_ok(), "{series} is {} and not {expected}", self.metric(series).await);
    }
}

impl Running {
    pub(crate) async fn start(timing: Timing, settings: Settings) -> Running {
        let local = Some("127.0.0.1:0".parse().unwrap());
        let agent = Agent::load(settings, timing, Addresses { admission: local, plain: local }).await.unwrap();
        let (admission, plain) = (agent.admission_address().unwrap(), agent.plain_address().unwrap());
        let (stop, stopped) = oneshot::channel();
        let task = tokio::spawn(async move {
            let stop = async move { drop(stopped.await) };
            agent.run(stop).await.unwrap()
        });
        Running { admission, plain, stop: Some(stop), task }
    }

    /// A page of the plain port.
    pub(crate) async fn plain(&self, path: &str) -> Message {
        let mut stream = TcpStream::connect(self.plain).await.unwrap();
        http::ask(&mut stream, &http::get(path)).await.unwrap()
    }

    /// Stops it, as SIGTERM does.
    pub(crate) fn stop(&mut self) {
        drop(self.stop.take());
    }

    /// Waits until it has stopped. Returns the number of undelivered changes.
    pub(crate) async fn ended(self) -> usize {
        timeout(http::PATIENCE, self.task).await.expect("an end in time").unwrap()
    }
}

/// Settings for a mount and a control plane.
pub(crate) fn settings(mount: &Mount, control_plane: SocketAddr) -> Settings {
    let path = |name: &str| mount.path().join(name).to_str().unwrap().to_owned();
    Settings::read(|name| match name {
        "CA_CERT" => Some(path("ca.crt")),
        "TLS_CERT" => Some(path("tls.crt")),
        "TLS_KEY" => Some(path("tls.key")),
        "KCP_ADDR" => Some(format!("{HOST}:{}", control_plane.port())),
        "KCP_CONTRACT" => Some("v2".to_owned()),
        _ => None,
    })
    .unwrap()
}

/// A review of a new Kyma.
pub(crate) fn created(name: &str) -> Value {
    json!({
        "kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1",
        "request": {
            "uid": "b8c0335f-ce87-4da3-82bf-a6a6a55d088e",
            "operation": "CREATE",
            "object": {
                "apiVersion": "operator.kyma-project.io/v1beta2", "kind": "Kyma",
                "metadata": {"namespace": "kyma-system", "name": name}, "spec": {"channel": "regular"},
            },
        },
    })
}

/// The event of that review.
pub(crate) fn event(name: &str) -> String {
    format!(
        r#"{{"watched":{{"Namespace":"kyma-system","Name":"{name}"}},"watchedGvk":{{"group":"operator.kyma-project.io","version":"v1beta2","kind":"Kyma"}}}}"#
    )
}
