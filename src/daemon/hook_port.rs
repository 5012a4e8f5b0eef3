//! The port for deliveries of git hosts: its socket, its certificate and what is behind it.
//!
//! Every replica listens. A replica that does not lead answers 503. The port shares the threads of the event ports, so
//! that `/readyz`, `/metrics` and the controllers do not wait for it.

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::{Arc, Weak},
    time::Duration,
};

use anyhow::Context as _;
use rustls::{
    ServerConfig,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
};
use tidegate_events::{Peers, listener};
use tidegate_process::tls::{Algorithms, provider};
use tokio::{
    net::TcpListener,
    sync::{Semaphore, watch},
    task::JoinSet,
};
use tokio_util::sync::CancellationToken;

use super::{Context, Leadership, event_ports::Threads};
use crate::{
    config,
    http::hooks::{Admission, Hooks, LARGE_BODIES_MAX, router, serve},
    source::receiver::{Outcome, ReceiverContext},
};

/// The socket, bound but not yet served.
pub(super) struct HookPort {
    socket: Option<TcpListener>,
    certificate: Option<Certificate>,
    proxies: Peers,
    threads: Threads,
}

/// The certificate of the port, from files.
struct Certificate {
    chain: PathBuf,
    key: PathBuf,
    served: watch::Sender<Arc<ServerConfig>>,
}

/// How often the files of the certificate are read.
const CERTIFICATE_CHECK: Duration = Duration::from_secs(10);

// === impl HookPort ===

impl HookPort {
    /// Binds the configured address, and reads the certificate. Fails if either cannot be used.
    pub(super) fn bind(hooks: &config::Hooks, threads: Threads) -> anyhow::Result<HookPort> {
        let bind = |address: SocketAddr| -> anyhow::Result<TcpListener> {
            let purpose = "webhooks of git hosts";
            let socket =
                listener::bind(address).with_context(|| format!("cannot listen on {address} for {purpose}"))?;
            // With port 0, this is the only record of the port.
            tracing::info!(address = %socket.local_addr()?, purpose, "listening");
            Ok(socket)
        };
        let socket = hooks.address.map(bind).transpose()?;
        let certificate = hooks.certificate.as_ref().filter(|_| socket.is_some());
        let certificate = certificate.map(|(chain, key)| Certificate::open(chain, key)).transpose()?;
        Ok(HookPort { socket, certificate, proxies: hooks.trusted_peers.clone(), threads })
    }

    /// Serves until `stop`; then finishes running requests.
    pub(super) fn serve(
        self,
        context: &Arc<Context>,
        leadership: &Leadership,
        services: &mut JoinSet<()>,
        stop: &CancellationToken,
    ) {
        let Some(socket) = self.socket else { return };
        let routes = routes(self.proxies, context, leadership);
        let tls = self.certificate.as_ref().map(|certificate| certificate.served.subscribe());
        let served = stop.clone();
        self.threads.run(services, socket, async move |socket| serve::serve(socket, tls, routes, served).await);
        if let Some(certificate) = self.certificate {
            let stop = stop.clone();
            services.spawn(async move {
                tokio::select! {
                    () = stop.cancelled() => {}
                    () = certificate.follow() => {}
                }
            });
        }
    }
}

/// The routes, for the port and for programs without sockets.
pub fn routes(proxies: Peers, context: &Arc<Context>, leadership: &Leadership) -> axum::Router {
    let (metrics, large) = (context.metrics.clone(), Semaphore::new(LARGE_BODIES_MAX));
    // Requests do not keep the daemon alive.
    let (admitting, leadership, receiving) = (Arc::downgrade(context), leadership.clone(), Arc::downgrade(context));
    let stalling = Arc::downgrade(context);
    let stalled = Box::new(move |address| {
        if let Some(context) = stalling.upgrade() {
            context.sources.receivers.refused(address);
        }
    });
    let admits = Box::new(move |address| match admitting.upgrade() {
        Some(context) if leadership.is_leading() && context.stores.missing().is_empty() => {
            if context.sources.receivers.admits(address) { Admission::Open } else { Admission::Limited }
        }
        Some(_) | None => Admission::Standby,
    });
    let receive = Box::new(move |delivery| {
        let context = Weak::clone(&receiving);
        let receive = async move {
            let Some(context) = context.upgrade() else { return Outcome::Refused };
            let parts = ReceiverContext { kcp: &context.kcp, stores: &context.stores };
            context.sources.receivers.receive(parts, &delivery).await
        };
        Box::pin(receive) as futures::future::BoxFuture<'static, Outcome>
    });
    router(Arc::new(Hooks { admits, receive, proxies, metrics, large, stalled }))
}

// === impl Certificate ===

impl Certificate {
    /// Reads the files. Fails if they contain no certificate with its key.
    fn open(chain: &Path, key: &Path) -> anyhow::Result<Certificate> {
        let read = |path: &Path| std::fs::read(path).with_context(|| format!("cannot read {}", path.display()));
        let config = server_config(&read(chain)?, &read(key)?)
            .with_context(|| format!("cannot serve webhooks with {} and {}", chain.display(), key.display()))?;
        Ok(Certificate { chain: chain.to_owned(), key: key.to_owned(), served: watch::Sender::new(Arc::new(config)) })
    }

    /// Reads the files again when they change. New connections get the new certificate; an invalid one is logged, and
    /// the last one is kept.
    async fn follow(self) {
        let mut known = self.read().await;
        loop {
            tokio::time::sleep(CERTIFICATE_CHECK).await;
            let found = self.read().await;
            if found == known {
                continue;
            }
            let chain = self.chain.display();
            match found.as_ref().map(|(chain, key)| server_config(chain, key)) {
                Some(Ok(config)) => {
                    tracing::info!(%chain, "certificate for webhooks loaded");
                    self.served.send_replace(Arc::new(config));
                }
                Some(Err(error)) => {
                    tracing::error!(%chain, error = format!("{error:#}"), "cannot use the new certificate for webhooks");
                }
                None => tracing::error!(%chain, "cannot read the certificate for webhooks"),
            }
            known = found;
        }
    }

    async fn read(&self) -> Option<(Vec<u8>, Vec<u8>)> {
        Some((tokio::fs::read(&self.chain).await.ok()?, tokio::fs::read(&self.key).await.ok()?))
    }
}

/// A TLS server with a certificate and key in PEM. Clients show no certificate: their deliveries are authenticated.
fn server_config(chain: &[u8], key: &[u8]) -> anyhow::Result<ServerConfig> {
    let chain: Vec<_> = CertificateDer::pem_slice_iter(chain).collect::<Result<_, _>>().unwrap_or_default();
    anyhow::ensure!(!chain.is_empty(), "the certificate is not PEM");
    let key = PrivateKeyDer::from_pem_slice(key).ok().context("the key is not PEM")?;
    let mut config = ServerConfig::builder_with_provider(provider(Algorithms::All))
        .with_safe_default_protocol_versions()
        .context("TLS is not available")?
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .context("the key does not match the certificate")?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}

#[cfg(test)]
mod tests;
