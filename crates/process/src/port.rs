//! The connections of one listening port: the shell around [`port_connections`].
//!
//! A connection holds a [`Held`] from its accept to its end. Its task waits for [`Held::evicted`] beside everything
//! else that it waits for, and ends then. [`first_message`] reads what a connection sends first into a buffer of its
//! own. So a peer that sends half a message costs a socket and these bytes, and no state of TLS or HTTP.
//!
//! [`port_connections`]: crate::port_connections

use std::{
    collections::HashMap,
    io,
    net::IpAddr,
    pin::{Pin, pin},
    sync::{Arc, Weak},
    task::{Context, Poll},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
    sync::{Notify, OwnedSemaphorePermit, Semaphore},
    time::{Instant, sleep, timeout_at},
};

use crate::{
    lock::Mutex,
    port_connections::{self, Limits, Number, PortConnections, Proven},
};

/// The connections of one port. A handle: clones share everything.
#[derive(Clone, Debug)]
pub struct Port(Arc<Shared>);

/// Which connection makes room if the memory for TLS and HTTP is used up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Room {
    /// One whose sender is still unknown, if it began at least `grace` ago. One address holds at most `share` of the
    /// permits, so one that floods the port does not delay others.
    FromUnproven {
        /// How long a connection keeps its permit in any case.
        grace: Duration,
        /// Permits of one address.
        share: usize,
    },
    /// One that is idle. A connection with a handshake or a request under way never goes.
    FromIdle,
}

/// The place of a connection. Dropping it frees the place.
#[derive(Debug)]
pub struct Held {
    port: Port,
    number: Number,
    address: IpAddr,
    evicted: Arc<Notify>,
}

/// Permits a connection to hold the state of TLS or HTTP.
#[derive(Debug)]
#[expect(dead_code, reason = "only its drop matters")]
pub struct StatePermit {
    of_port: OwnedSemaphorePermit,
    of_address: Option<OwnedSemaphorePermit>,
}

/// What a port speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// The first message is a ClientHello.
    Tls,
    /// The first message is the head of a request.
    Http,
}

/// How a connection began.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Opening {
    /// With these bytes: the first message, or as much of it as the buffer holds.
    Message(Vec<u8>),
    /// Its first byte did not come in time.
    Silent,
    /// Its first message was not complete in time.
    Slow,
    /// It ended without a byte.
    Closed,
}

/// A stream of which the first bytes have been read already.
#[derive(Debug)]
pub struct Prefixed<S> {
    prefix: Vec<u8>,
    read: usize,
    stream: S,
}

#[derive(Debug)]
struct Shared {
    connections: Mutex<PortConnections>,
    leaving: Mutex<HashMap<Number, Arc<Notify>>>,
    states: Arc<Semaphore>,
    /// The share of each address, as long as one of its connections uses it.
    shares: Mutex<HashMap<IpAddr, Weak<Semaphore>>>,
    room: Room,
}

/// Limit of the bytes that are kept of a first message: more than most ClientHellos and heads have. TLS or HTTP reads
/// the rest.
pub const MESSAGE_BYTES_MAX: usize = 4 << 10;
/// How often a connection that waits for room looks whether one is overdue by now.
const ROOM_CHECK: Duration = Duration::from_millis(100);
/// The first byte of a TLS record with a handshake message.
const HANDSHAKE_RECORD: u8 = 22;
/// Bytes of a TLS record before its content.
const RECORD_HEAD_BYTES: usize = 5;
/// Addresses whose shares are kept before the unused ones are forgotten: more than a port has connections.
const SHARES_KEPT: usize = 4_096;

// === impl Port ===

impl Port {
    /// A port without connections, of which `states` may hold the state of TLS or HTTP under one of these permits.
    pub fn new(limits: Limits, states: usize, room: Room) -> Port {
        Port(Arc::new(Shared {
            connections: Mutex::new(PortConnections::new(limits)),
            leaving: Mutex::default(),
            states: Arc::new(Semaphore::new(states)),
            shares: Mutex::default(),
            room,
        }))
    }

    /// Gives a place to a connection that was just accepted.
    pub fn admit(&self, address: IpAddr) -> Held {
        let evicted = Arc::new(Notify::new());
        let (number, gone) = self.0.connections.lock().admit(address);
        self.0.leaving.lock().insert(number, Arc::clone(&evicted));
        self.evict(gone);
        Held { port: self.clone(), number, address: port_connections::peer(address), evicted }
    }

    fn evict(&self, gone: Option<Number>) -> bool {
        let gone = gone.and_then(|gone| self.0.leaving.lock().remove(&gone));
        gone.map(|evicted| evicted.notify_one()).is_some()
    }

    fn make_room(&self) -> bool {
        let gone = match self.0.room {
            Room::FromUnproven { grace, .. } => self.0.connections.lock().make_room(now(), grace),
            Room::FromIdle => self.0.connections.lock().evict_idle(),
        };
        self.evict(gone)
    }

    fn make_room_at(&self, address: IpAddr, grace: Duration) -> bool {
        let gone = self.0.connections.lock().make_room_at(address, now(), grace);
        self.evict(gone)
    }

    /// The permits of an address.
    fn share(&self, address: IpAddr, share: usize) -> Arc<Semaphore> {
        let mut shares = self.0.shares.lock();
        if let Some(known) = shares.get(&address).and_then(Weak::upgrade) {
            return known;
        }
        if SHARES_KEPT <= shares.len() {
            shares.retain(|_, share| share.strong_count() > 0);
        }
        let new = Arc::new(Semaphore::new(share));
        shares.insert(address, Arc::downgrade(&new));
        new
    }
}

// === impl Held ===

impl Held {
    /// Returns when this connection has to go for another one.
    pub async fn evicted(&self) {
        self.evicted.notified().await;
    }

    /// Waits in line until the connection may hold the state of TLS or HTTP.
    pub async fn begin(&self) -> StatePermit {
        let of_address = match self.port.0.room {
            // First in the line of its address, so that the line of the port is short.
            Room::FromUnproven { grace, share } => {
                let share = self.port.share(self.address, share);
                Some(in_line(share, || self.port.make_room_at(self.address, grace)).await)
            }
            Room::FromIdle => None,
        };
        let of_port = in_line(Arc::clone(&self.port.0.states), || self.port.make_room()).await;
        self.port.0.connections.lock().begin(self.number, now());
        StatePermit { of_port, of_address }
    }

    /// Records that the sender is known. Returns false if all places are taken by busy connections.
    pub fn prove(&self, sender: Option<&str>) -> bool {
        let proven = self.port.0.connections.lock().prove(self.number, sender);
        match proven {
            Proven::Placed => true,
            Proven::InsteadOf(gone) => {
                self.port.evict(Some(gone));
                true
            }
            Proven::Full => false,
        }
    }

    /// Records that a request is under way.
    pub fn work(&self) {
        self.port.0.connections.lock().work(self.number);
    }

    /// Records that all requests are answered.
    pub fn rest(&self) {
        self.port.0.connections.lock().rest(self.number, now());
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.port.0.connections.lock().leave(self.number);
        self.port.0.leaving.lock().remove(&self.number);
    }
}

/// Waits for a permit. `make_room` evicts a connection that has one; it returns false if none may go yet.
async fn in_line(permits: Arc<Semaphore>, make_room: impl Fn() -> bool) -> OwnedSemaphorePermit {
    // Each connection in line evicts one other, so that none goes without need.
    let mut has_evicted = permits.available_permits() == 0 && make_room();
    let mut permit = pin!(permits.acquire_owned());
    loop {
        tokio::select! {
            biased;
            permit = &mut permit => return permit.expect("the semaphore is never closed"),
            () = sleep(ROOM_CHECK), if !has_evicted => has_evicted = make_room(),
        }
    }
}

/// Reads the first message of a connection. The first byte has to come within `first`, the rest within `whole` after
/// it.
pub async fn first_message(stream: &TcpStream, protocol: Protocol, first: Duration, whole: Duration) -> Opening {
    let mut message = Vec::new();
    let mut deadline = Instant::now() + first;
    loop {
        let late = if message.is_empty() { Opening::Silent } else { Opening::Slow };
        match timeout_at(deadline, stream.readable()).await {
            Err(_elapsed) => return late,
            Ok(Err(_)) => return Opening::Closed,
            Ok(Ok(())) => {}
        }
        let was_empty = message.is_empty();
        match read(stream, &mut message) {
            Ok(0) if was_empty => return Opening::Closed,
            // TLS or HTTP decides about half a message.
            Ok(0) => return Opening::Message(message),
            Ok(_) if is_complete(&message, protocol) => return Opening::Message(message),
            Ok(_) if was_empty => deadline = Instant::now() + whole,
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(_) => return Opening::Closed,
        }
    }
}

/// Appends what has come. The array is no part of the future, which every silent connection keeps.
fn read(stream: &TcpStream, message: &mut Vec<u8>) -> io::Result<usize> {
    let mut chunk = [0; MESSAGE_BYTES_MAX];
    let room = MESSAGE_BYTES_MAX - message.len();
    let count = stream.try_read(&mut chunk[..room])?;
    message.reserve_exact(count);
    message.extend_from_slice(&chunk[..count]);
    Ok(count)
}

/// Whether TLS or HTTP can do something with these bytes.
fn is_complete(message: &[u8], protocol: Protocol) -> bool {
    if MESSAGE_BYTES_MAX <= message.len() {
        return true;
    }
    match protocol {
        Protocol::Http => {
            message.windows(2).any(|bytes| bytes == b"\n\n") || message.windows(3).any(|bytes| bytes == b"\n\r\n")
        }
        Protocol::Tls => match message {
            [HANDSHAKE_RECORD, _, _, high, low, ..] => {
                RECORD_HEAD_BYTES + usize::from(u16::from_be_bytes([*high, *low])) <= message.len()
            }
            [] | [HANDSHAKE_RECORD, ..] => false,
            // TLS says what is wrong with it.
            _ => true,
        },
    }
}

fn now() -> std::time::Instant {
    Instant::now().into_std()
}

// === impl Prefixed ===

impl<S> Prefixed<S> {
    /// A stream that begins with these bytes.
    pub fn new(prefix: Vec<u8>, stream: S) -> Prefixed<S> {
        Prefixed { prefix, read: 0, stream }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Prefixed<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let left = &self.prefix[self.read..];
        if left.is_empty() {
            return Pin::new(&mut self.stream).poll_read(context, buffer);
        }
        let count = left.len().min(buffer.remaining());
        buffer.put_slice(&left[..count]);
        self.read += count;
        if self.read == self.prefix.len() {
            (self.prefix, self.read) = (Vec::new(), 0);
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Prefixed<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, bytes)
    }
}

#[cfg(test)]
mod tests;
