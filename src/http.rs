//! The servers of `run`: metrics on one port, health on another, and webhooks of git hosts on a third.
//!
//! Sockets are bound before anything starts, so that a port in use makes the start fail. Metrics and health answer from
//! memory, change nothing and expose no secrets. The port of metrics also has what a process has found that observes. A
//! webhook only makes a source fetch.

pub(crate) mod health;
pub(crate) mod hooks;
pub(crate) mod metrics;
pub(crate) mod observed;

use std::{net::SocketAddr, time::Duration};

use axum::{Router, extract::Request, middleware::Next, response::Response};
use tokio::net::TcpListener;

/// An address cannot be bound.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {address} for {purpose}")]
pub(crate) struct Error {
    /// The address.
    pub(crate) address: SocketAddr,
    /// What the address is for.
    pub(crate) purpose: &'static str,
    source: std::io::Error,
}

/// A bound socket that is not served yet.
#[derive(Debug)]
pub(crate) struct Bound {
    listener: TcpListener,
}

/// Limit of an answer: the metrics of thousands of runtimes take a second.
const ANSWER_MAX: Duration = Duration::from_secs(30);

// === impl Bound ===

impl Bound {
    /// Binds an address. Port 0 binds a free port.
    ///
    /// # Errors
    ///
    /// Fails if the address is in use or the process may not bind it.
    pub(crate) async fn bind(address: SocketAddr, purpose: &'static str) -> Result<Bound, Error> {
        let listener = TcpListener::bind(address).await.map_err(|source| Error { address, purpose, source })?;
        let address = listener.local_addr().map_err(|source| Error { address, purpose, source })?;
        // With port 0, this is the only record of the port.
        tracing::info!(%address, purpose, "listening");
        Ok(Bound { listener })
    }

    /// Binds an address, if there is one.
    ///
    /// # Errors
    ///
    /// Fails like [`Bound::bind`].
    pub(crate) async fn bind_if(address: Option<SocketAddr>, purpose: &'static str) -> Result<Option<Bound>, Error> {
        match address {
            Some(address) => Bound::bind(address, purpose).await.map(Some),
            None => Ok(None),
        }
    }

    /// Serves until `stop` completes and the running requests are answered.
    pub(crate) async fn serve(self, router: Router, stop: impl Future<Output = ()> + Send + 'static) {
        let router = router.layer(axum::middleware::from_fn(bounded));
        // `axum::serve` never returns an error; a broken connection affects only its client.
        let _ = axum::serve(self.listener, router).with_graceful_shutdown(stop).await;
    }
}

async fn bounded(request: Request, next: Next) -> Response {
    use axum::response::IntoResponse as _;
    match tokio::time::timeout(ANSWER_MAX, next.run(request)).await {
        Ok(response) => response,
        Err(_elapsed) => axum::http::StatusCode::SERVICE_UNAVAILABLE.into_response(),
    }
}

#[cfg(test)]
mod tests;
