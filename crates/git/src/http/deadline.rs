//! Connections that end at the deadline of their fetch, whatever happens inside of them.
//!
//! ureq sets a time for each step of a request. But while it reads a proxy's answer to CONNECT, it gives that time to
//! every read, so an answer of one byte at a time never ends: `unversioned/transport/connect.rs` of ureq 3.5.1.

use std::time::Instant;

use ureq::{
    Timeout,
    unversioned::transport::{
        Buffers, ConnectProxyConnector, ConnectionDetails, Connector, NextTimeout, RustlsConnector, TcpConnector,
        Transport,
    },
};

/// Gives each connection a deadline.
#[derive(Clone, Copy, Debug)]
struct Deadline(Instant);

/// A connection with a deadline. Each write is short against the buffers of a socket; a read waits for the other side.
#[derive(Debug)]
struct Punctual<T> {
    inner: T,
    deadline: Instant,
}

/// Connects as ureq does: through the proxy if there is one, and with TLS if the URL says so. The connection to a proxy
/// is made by the same connector, so it ends at the deadline as well.
pub(super) fn connector(deadline: Instant) -> impl Connector {
    let tcp = ().chain(ConnectProxyConnector::default()).chain(TcpConnector::default());
    tcp.chain(Deadline(deadline)).chain(RustlsConnector::default())
}

// === impl Deadline ===

impl<In: Transport> Connector<In> for Deadline {
    type Out = Punctual<In>;

    fn connect(&self, _: &ConnectionDetails<'_>, chained: Option<In>) -> Result<Option<Punctual<In>>, ureq::Error> {
        Ok(chained.map(|inner| Punctual { inner, deadline: self.0 }))
    }
}

// === impl Punctual ===

impl<T> Punctual<T> {
    /// The time for one step: what ureq gives it, but not beyond the deadline.
    fn within(&self, given: NextTimeout) -> Result<NextTimeout, ureq::Error> {
        let remaining = self.deadline.saturating_duration_since(Instant::now());
        if remaining.is_zero() {
            return Err(ureq::Error::Timeout(Timeout::Global));
        }
        let remaining = remaining.into();
        if given.after <= remaining {
            return Ok(given);
        }
        Ok(NextTimeout { after: remaining, reason: Timeout::Global, ..given })
    }
}

impl<T: Transport> Transport for Punctual<T> {
    fn buffers(&mut self) -> &mut dyn Buffers {
        self.inner.buffers()
    }

    fn transmit_output(&mut self, amount: usize, timeout: NextTimeout) -> Result<(), ureq::Error> {
        let timeout = self.within(timeout)?;
        self.inner.transmit_output(amount, timeout)
    }

    fn await_input(&mut self, timeout: NextTimeout) -> Result<bool, ureq::Error> {
        let timeout = self.within(timeout)?;
        self.inner.await_input(timeout)
    }

    fn is_open(&mut self) -> bool {
        self.inner.is_open()
    }

    fn is_tls(&self) -> bool {
        self.inner.is_tls()
    }
}
