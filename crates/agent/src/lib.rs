//! The agent: the watcher in a runtime cluster, in place of the Runtime Watcher's `skr-webhook`.
//!
//! The API server sends it a review of every write to a watched object. The agent allows the write at once. It then
//! sends an event to the control plane, and retries until that has been delivered.
//!
//! ```text
//!  API server ── review ─▶ serve ─▶ admission ── decide ─▶ outbox (pending) ─▶ deliver ─▶ client ── event ─▶ control plane
//!                 answer ◀──────────────┘                                                     mTLS, one connection
//! ```
//!
//! * [`review`], [`decide`], [`manager`] and [`pending`] are values and pure functions: what the agent reads, which
//!   event follows, which manager gets it, and when.
//! * [`credentials`] loads the mounted Secret as one generation, and reloads it at run time. [`trust`] verifies the
//!   control plane's certificate.
//! * [`serve`] limits what clients can use. [`admission`] serves reviews over TLS 1.3 on one port, [`plain`] serves
//!   metrics and health on the other.
//! * [`handshake`] and [`deliver`] run on threads of their own, because signing a TLS handshake takes milliseconds and
//!   must not delay a review.
//!
//! The agent never calls the Kubernetes API, never denies a write and never delays one.

#![cfg_attr(test, allow(clippy::needless_pass_by_value, reason = "tests write values where they are used"))]

pub mod admission;
pub mod cli;
pub mod client;
pub mod credentials;
pub mod decide;
pub mod deliver;
pub mod handshake;
pub mod manager;
pub mod metrics;
pub mod outbox;
pub mod pending;
pub mod plain;
pub mod review;
pub mod seldom;
pub mod serve;
pub mod settings;
pub mod trust;
pub mod validity;

use std::{
    io,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
};

use tokio::{
    net::TcpListener,
    sync::{oneshot, watch},
    task::JoinSet,
    time,
};

use self::{
    admission::Admission,
    client::Client,
    credentials::Generation,
    deliver::Courier,
    handshake::Handshakes,
    metrics::Metrics,
    outbox::Outbox,
    pending::Limits,
    plain::Plain,
    settings::{Settings, Timing},
};
use tidegate_process::tls;

/// Limit of waiting objects: more than a runtime has watched objects, and small enough for a few MiB.
pub const OBJECTS_MAX: usize = 4096;

/// Listen addresses that replace the ports of the settings. Port 0 takes a free port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Addresses {
    /// Address of the admission server.
    pub admission: Option<SocketAddr>,
    /// Address of metrics and health.
    pub plain: Option<SocketAddr>,
}

/// An agent that is ready to run.
#[derive(Debug)]
pub struct Agent {
    settings: Settings,
    timing: Timing,
    credentials: watch::Sender<Arc<Generation>>,
    admission: TcpListener,
    plain: TcpListener,
    metrics: Metrics,
}

/// Why the agent cannot start or had to stop.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// An address cannot be bound.
    #[error("cannot listen on {address} for {purpose}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// What the address is for.
        purpose: &'static str,
        /// The cause.
        source: io::Error,
    },
    /// The credentials cannot be used.
    #[error(transparent)]
    Credentials(#[from] credentials::Error),
    /// A thread cannot be started.
    #[error("cannot start the thread that {purpose}")]
    Thread {
        /// What the thread does.
        purpose: &'static str,
        /// The cause.
        source: io::Error,
    },
    /// A task of the agent ended unexpectedly, which is a bug.
    #[error("a task of the agent ended unexpectedly: see its log")]
    Broken,
}

// === impl Agent ===

impl Agent {
    /// Loads the credentials and binds the ports.
    ///
    /// # Errors
    ///
    /// Fails if the credentials cannot be used or a port cannot be bound.
    pub async fn load(settings: Settings, timing: Timing, addresses: Addresses) -> Result<Agent, Error> {
        for remark in &settings.remarks {
            tracing::warn!(remark, "ignoring a setting");
        }
        let provider = tls::provider(settings.fips.algorithms());
        let generation = Generation::load(&settings.files, &provider, 1)?;
        let metrics = Metrics::new(settings.fips.number());
        metrics.certificate(generation.validity);
        let (credentials, _) = watch::channel(Arc::new(generation));
        let admission = bind(addresses.admission, settings.webhook_port, "reviews").await?;
        let plain = bind(addresses.plain, settings.metrics_port, "metrics and health").await?;
        Ok(Agent { settings, timing, credentials, admission, plain, metrics })
    }

    /// The address that accepts reviews.
    pub fn admission_address(&self) -> Option<SocketAddr> {
        self.admission.local_addr().ok()
    }

    /// The address of metrics and health.
    pub fn plain_address(&self) -> Option<SocketAddr> {
        self.plain.local_addr().ok()
    }

    /// Runs until `stop` completes. Then sends the waiting events, and accepts reviews until they are sent, because the
    /// runtime learns only by and by that the agent is gone. Returns the number of undelivered changes.
    ///
    /// # Errors
    ///
    /// Fails if a thread cannot be started, or if a task ends unexpectedly.
    pub async fn run(self, stop: impl Future<Output = ()>) -> Result<usize, Error> {
        let Agent { settings, timing, credentials, admission, plain, metrics } = self;
        let limits = Limits { settle: timing.settle, resend: timing.resend, objects: OBJECTS_MAX };
        let outbox = Arc::new(Outbox::new(limits, metrics.clone()));
        let stopping = Arc::new(AtomicBool::new(false));
        let (close, closed) = watch::channel(false);
        let (finish, finished) = watch::channel(false);

        let client = Client::new(settings.control_plane.clone(), credentials.subscribe());
        let courier = Courier::new(Arc::clone(&outbox), client, metrics.clone(), timing, settings.contract.clone());
        let mut delivery = spawn_delivery(courier, credentials.subscribe(), finished)?;
        let failed = |source| Error::Thread { purpose: "does TLS handshakes", source };
        let handshakes = Handshakes::start().map_err(failed)?;

        let mut servers = JoinSet::new();
        let reviews = Admission::new(Arc::clone(&outbox), metrics.clone());
        servers.spawn(serve::serve(admission, Some((credentials.subscribe(), handshakes)), Arc::new(reviews), closed));
        // Metrics and health are served until the end.
        let state = Arc::new(Plain::new(Arc::clone(&outbox), metrics.clone(), Arc::clone(&stopping)));
        let mut others = JoinSet::new();
        let (_end, ended) = watch::channel(false);
        others.spawn(serve::serve(plain, None, state, ended));
        let provider = tls::provider(settings.fips.algorithms());
        others.spawn(credentials::refresh(credentials, settings.files, provider, timing.reload_interval, metrics));

        tokio::pin!(stop);
        tokio::select! {
            () = &mut stop => {}
            // No server ends by itself.
            _ = servers.join_next() => return Err(Error::Broken),
            _ = others.join_next() => return Err(Error::Broken),
            _ = &mut delivery => return Err(Error::Broken),
        }
        tracing::info!("stopping");
        stopping.store(true, Ordering::Relaxed);
        time::sleep(timing.shutdown_delay).await;
        finish.send_replace(true);
        delivery.await.map_err(|_| Error::Broken)?;
        close.send_replace(true);
        while servers.join_next().await.is_some() {}
        others.shutdown().await;
        Ok(outbox.depth().undelivered)
    }
}

/// Starts the sending thread. The receiver learns when it has ended.
fn spawn_delivery(
    courier: Courier,
    credentials: watch::Receiver<Arc<Generation>>,
    finished: watch::Receiver<bool>,
) -> Result<oneshot::Receiver<()>, Error> {
    let failed = |source| Error::Thread { purpose: "sends events", source };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
    let (ended, end) = oneshot::channel();
    let run = move || {
        runtime.block_on(deliver::deliver(courier, credentials, finished));
        // A pending name resolution must not delay the shutdown.
        runtime.shutdown_background();
        let _ = ended.send(());
    };
    thread::Builder::new().name("deliver".to_owned()).spawn(run).map_err(failed)?;
    Ok(end)
}

/// Binds an address, or a port of all IPv4 and IPv6 addresses.
async fn bind(address: Option<SocketAddr>, port: u16, purpose: &'static str) -> Result<TcpListener, Error> {
    let addresses = match address {
        Some(address) => vec![address],
        // A kernel without IPv6 binds only the IPv4 address.
        None => vec![SocketAddr::from(([0_u16; 8], port)), SocketAddr::from(([0_u8; 4], port))],
    };
    let mut last = None;
    for address in addresses {
        match TcpListener::bind(address).await {
            Ok(listener) => {
                let address = listener.local_addr().unwrap_or(address);
                // With port 0, this is the only record of the port.
                tracing::info!(%address, purpose, "listening");
                return Ok(listener);
            }
            Err(source) => last = Some(Error::Listen { address, purpose, source }),
        }
    }
    Err(last.expect("there is at least one address"))
}

/// An error and its causes, in one line.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text = format!("{text}: {error}");
        source = error.source();
    }
    text
}
