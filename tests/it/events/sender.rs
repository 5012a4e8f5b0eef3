//! A sender that works like the Go agents. It opens a new TLS connection for each event. It tries three times, with
//! pauses of two and four seconds, after transport errors and 5xx only. Only 200 is a success.

use std::{net::SocketAddr, time::Duration};

use crate::listener::client::{Authority, Leaf, TlsClient};

pub(crate) struct Upstream {
    client: TlsClient,
}

/// Why an event is lost.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Lost {
    /// A status that is not retried.
    Status(u16),
    /// Three failed attempts.
    GaveUp,
}

const PAUSES: [Duration; 2] = [Duration::from_secs(2), Duration::from_secs(4)];

impl Upstream {
    pub(crate) fn new(authority: &Authority, leaf: &Leaf) -> Upstream {
        Upstream { client: TlsClient::new(authority.pem(), Some(leaf)) }
    }

    /// Sends an event to the address that `address` returns for each attempt. Returns the number of attempts.
    pub(crate) async fn send(&self, address: &dyn Fn() -> SocketAddr, body: &str) -> Result<usize, Lost> {
        for attempt in 0..=PAUSES.len() {
            if attempt != 0 {
                tokio::time::sleep(PAUSES[attempt - 1]).await;
            }
            match self.client.post(address(), body).await {
                Some(reply) if reply.status == 200 => return Ok(attempt + 1),
                Some(reply) if reply.status < 500 => return Err(Lost::Status(reply.status)),
                Some(_) | None => {}
            }
        }
        Err(Lost::GaveUp)
    }
}
