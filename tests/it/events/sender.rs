//! A sender that does as the Go agents do: a new TLS connection for each event, three attempts with pauses of two and four
//! seconds, only after transport errors and 5xx; only 200 counts.

use std::{net::SocketAddr, time::Duration};

use crate::listener::client::{Authority, Leaf, TlsClient};

pub(crate) struct Upstream {
    client: TlsClient,
}

/// Why an event is lost.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Lost {
    /// An answer after which nothing is tried again.
    Status(u16),
    /// Three attempts.
    GaveUp,
}

const PAUSES: [Duration; 2] = [Duration::from_secs(2), Duration::from_secs(4)];

impl Upstream {
    pub(crate) fn new(authority: &Authority, leaf: &Leaf) -> Upstream {
        Upstream { client: TlsClient::new(authority.pem(), Some(leaf)) }
    }

    /// Sends an event to wherever `address` says at each attempt, and returns how many there were.
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
