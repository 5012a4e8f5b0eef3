//! The servers of `run`: metrics on one port, health on another.
//!
//! Sockets are bound before anything is started, so that a port that is taken fails the start. The servers answer from
//! memory and cannot change anything; nothing here is reachable that holds a secret.

pub mod health;
pub mod metrics;

use std::{net::SocketAddr, time::Duration};

use axum::{Router, extract::Request, middleware::Next, response::Response};
use tokio::net::TcpListener;

/// An address cannot be listened on.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {address} for {purpose}")]
pub struct Error {
    /// The address.
    pub address: SocketAddr,
    /// What for.
    pub purpose: &'static str,
    source: std::io::Error,
}

/// A socket that is bound and not yet served.
#[derive(Debug)]
pub struct Bound {
    listener: TcpListener,
    address: SocketAddr,
}

/// Longest answer: the metrics of thousands of runtimes take a second.
const ANSWER_MAX: Duration = Duration::from_secs(30);

// === impl Bound ===

impl Bound {
    /// Binds an address. Port 0 takes a free one.
    pub async fn bind(address: SocketAddr, purpose: &'static str) -> Result<Bound, Error> {
        let listener = TcpListener::bind(address).await.map_err(|source| Error { address, purpose, source })?;
        let address = listener.local_addr().map_err(|source| Error { address, purpose, source })?;
        // With port 0 this is how anybody learns where we are.
        tracing::info!(%address, purpose, "listening");
        Ok(Bound { listener, address })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves until `stop` is done and the requests under way are answered.
    pub async fn serve(self, router: Router, stop: impl Future<Output = ()> + Send + 'static) {
        let router = router.layer(axum::middleware::from_fn(bounded));
        // `axum::serve` ends without an error; a connection that breaks is its own affair.
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
