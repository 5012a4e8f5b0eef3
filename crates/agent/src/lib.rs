//! The agent: the watcher in a runtime cluster, in place of the Runtime Watcher's `skr-webhook`.
//!
//! The API server asks it about every write to a watched object. It answers at once and always yes; what it learned it
//! tells the control plane, later and until it has been heard.
//!
//! ```text
//!  API server ── review ─▶ serve ─▶ admission ── decide ─▶ outbox (pending) ─▶ deliver ─▶ client ── event ─▶ control plane
//!                 answer ◀──────────────┘                                                     mTLS, one connection
//! ```
//!
//! * [`review`], [`decide`], [`manager`], [`pending`] are values and functions of them: what is read, what follows, who is
//!   told, when.
//! * [`credentials`] and [`trust`]: the mounted Secret as one generation, replaced while running; whom we take for the
//!   control plane.
//! * [`serve`] bounds what others can cost us, [`admission`] and [`plain`] are what is served: reviews over TLS 1.3 on one
//!   port, metrics and health on the other, and neither on the other's.
//! * [`deliver`] has a thread of its own: signing a handshake takes milliseconds, in which no review may wait.
//!
//! Refuses to talk to the Kubernetes API, to deny a write, and to keep one waiting.

pub mod admission;
pub mod cli;
pub mod client;
pub mod credentials;
pub mod decide;
pub mod deliver;
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
    metrics::Metrics,
    outbox::Outbox,
    pending::Limits,
    plain::Plain,
    settings::{Settings, Timing},
};
use tidegate_process::tls;

/// Objects that wait at most: more than a runtime has watched objects, little enough to keep in some MiB.
pub const OBJECTS_MAX: usize = 4096;

/// Where the agent listens, if not everywhere on the ports of its settings. Port 0 takes a free one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Addresses {
    /// Of the admission server.
    pub admission: Option<SocketAddr>,
    /// Of metrics and health.
    pub plain: Option<SocketAddr>,
}

/// An agent that has all it needs to start.
#[derive(Debug)]
pub struct Agent {
    settings: Settings,
    timing: Timing,
    credentials: watch::Sender<Arc<Generation>>,
    admission: TcpListener,
    plain: TcpListener,
    metrics: Metrics,
}

/// Why the agent cannot start, or had to end.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// An address cannot be listened on.
    #[error("cannot listen on {address} for {purpose}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// What for.
        purpose: &'static str,
        /// Why.
        source: io::Error,
    },
    /// The credentials cannot be used.
    #[error(transparent)]
    Credentials(#[from] credentials::Error),
    /// The thread that sends cannot be started.
    #[error("cannot start the thread that sends events")]
    Thread {
        /// Why.
        source: io::Error,
    },
    /// A part of the agent broke, which is a mistake in this program.
    #[error("the agent broke: its log says where")]
    Broken,
}

// === impl Agent ===

impl Agent {
    /// Reads the credentials and binds the ports: what can fail at the start fails here.
    pub async fn load(settings: Settings, timing: Timing, addresses: Addresses) -> Result<Agent, Error> {
        for remark in &settings.remarks {
            tracing::warn!(remark, "setting not used");
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

    /// Where reviews are taken.
    pub fn admission_address(&self) -> Option<SocketAddr> {
        self.admission.local_addr().ok()
    }

    /// Where metrics and health are told.
    pub fn plain_address(&self) -> Option<SocketAddr> {
        self.plain.local_addr().ok()
    }

    /// Works until `stop`; then takes reviews for a little longer, while the runtime learns that it is gone, and sends what
    /// waits. Gives back how many changes could not be told.
    pub async fn run(self, stop: impl Future<Output = ()>) -> Result<usize, Error> {
        let Agent { settings, timing, credentials, admission, plain, metrics } = self;
        let limits = Limits { settle: timing.settle, resend: timing.resend, objects: OBJECTS_MAX };
        let outbox = Arc::new(Outbox::new(limits, metrics.clone()));
        let stopping = Arc::new(AtomicBool::new(false));
        let (close, closed) = watch::channel(false);
        let (finish, finished) = watch::channel(false);

        let client = Client::new(settings.control_plane.clone(), credentials.subscribe());
        let courier = Courier::new(Arc::clone(&outbox), client, metrics.clone(), timing, settings.contract.clone());
        let mut delivery = spawn_delivery(courier, finished)?;

        let mut servers = JoinSet::new();
        let reviews = Admission::new(Arc::clone(&outbox), metrics.clone());
        servers.spawn(serve::serve(admission, Some(credentials.subscribe()), Arc::new(reviews), closed.clone()));
        // Metrics and health are told to the very end.
        let state = Arc::new(Plain::new(Arc::clone(&outbox), metrics.clone(), Arc::clone(&stopping)));
        let mut others = JoinSet::new();
        let (_end, ended) = watch::channel(false);
        others.spawn(serve::serve(plain, None, state, ended));
        let provider = tls::provider(settings.fips.algorithms());
        others.spawn(credentials::refresh(credentials, settings.files, provider, timing.reload_interval, metrics));

        tokio::pin!(stop);
        tokio::select! {
            () = &mut stop => {}
            // None of them ends by itself.
            _ = servers.join_next() => return Err(Error::Broken),
            _ = others.join_next() => return Err(Error::Broken),
            _ = &mut delivery => return Err(Error::Broken),
        }
        tracing::info!("stopping");
        stopping.store(true, Ordering::Relaxed);
        time::sleep(timing.shutdown_delay).await;
        close.send_replace(true);
        while servers.join_next().await.is_some() {}
        finish.send_replace(true);
        let left = delivery.await.map_err(|_| Error::Broken)?;
        others.shutdown().await;
        Ok(left)
    }
}

/// Starts the thread that sends. Gives back how many changes were not told, when it has ended.
fn spawn_delivery(courier: Courier, finished: watch::Receiver<bool>) -> Result<oneshot::Receiver<usize>, Error> {
    let failed = |source| Error::Thread { source };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
    let (ended, end) = oneshot::channel();
    let run = move || {
        let left = runtime.block_on(deliver::deliver(courier, finished));
        // A name that is being resolved must not hold the end up.
        runtime.shutdown_background();
        let _ = ended.send(left);
    };
    thread::Builder::new().name("deliver".to_owned()).spawn(run).map_err(failed)?;
    Ok(end)
}

/// Binds an address, or a port of all addresses of both families.
async fn bind(address: Option<SocketAddr>, port: u16, purpose: &'static str) -> Result<TcpListener, Error> {
    let addresses = match address {
        Some(address) => vec![address],
        // Where the kernel has no IPv6, the other one is all.
        None => vec![SocketAddr::from(([0_u16; 8], port)), SocketAddr::from(([0_u8; 4], port))],
    };
    let mut last = None;
    for address in addresses {
        match TcpListener::bind(address).await {
            Ok(listener) => {
                let address = listener.local_addr().unwrap_or(address);
                // With port 0 this is how anybody learns where we are.
                tracing::info!(%address, purpose, "listening");
                return Ok(listener);
            }
            Err(source) => last = Some(Error::Listen { address, purpose, source }),
        }
    }
    Err(last.expect("there is at least one address"))
}

/// An error and what is behind it, in one line.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text = format!("{text}: {error}");
        source = error.source();
    }
    text
}
