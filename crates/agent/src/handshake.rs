//! TLS handshakes of incoming connections, on a thread of their own.
//!
//! With the key that upstream's PKI makes, RSA with 4,096 bits, a signature takes five milliseconds. Hundreds of new
//! connections at once would keep the threads that answer reviews busy for seconds. So one thread does the handshakes,
//! with a lower priority. It completes a handshake that has begun before it begins another one: the first of many
//! connections is open after one signature, and the API server sends the waiting reviews over it.

use std::{io, pin::Pin, sync::Arc, thread, time::Duration};

use futures::stream::{FuturesUnordered, StreamExt as _};
use rustls::ServerConfig;
use tidegate_process::port::Prefixed;
use tokio::{
    net::TcpStream,
    runtime::Handle,
    sync::{mpsc, oneshot},
    time::timeout,
};
use tokio_rustls::{TlsAcceptor, server::TlsStream};

/// The thread. When this handle is dropped, it ends.
#[derive(Debug)]
pub struct Handshakes(mpsc::UnboundedSender<Job>);

/// A connection after its handshake.
pub type Secured = TlsStream<Prefixed<TcpStream>>;

type Job = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Limit of a TLS handshake, from the moment at which it begins: the longest time-out of the webhook, that of upstream.
/// On a busy machine the agent must not be the first to give up.
const HANDSHAKE_MAX: Duration = Duration::from_secs(15);
/// How much the thread yields to the others: Linux gives it a third of the time of a thread that answers reviews. With
/// less, a burst of connections would take longer than the webhook's time-out on a busy machine.
const NICENESS: i32 = 5;

// === impl Handshakes ===

impl Handshakes {
    /// Starts the thread. Its connections belong to the current runtime.
    ///
    /// # Errors
    ///
    /// Fails if the system starts no thread.
    pub fn start() -> io::Result<Handshakes> {
        // Every job is a connection with a permit, so their number is limited.
        let (sender, jobs) = mpsc::unbounded_channel();
        let runtime = Handle::current();
        let run = move || {
            // Without the lower priority, handshakes delay reviews a little more.
            let _ = rustix::process::setpriority_process(None, NICENESS);
            runtime.block_on(work(jobs));
        };
        thread::Builder::new().name("handshakes".to_owned()).spawn(run)?;
        Ok(Handshakes(sender))
    }

    /// Does a handshake. If the result is dropped, the handshake ends.
    ///
    /// # Errors
    ///
    /// Fails if the handshake fails or takes too long.
    pub async fn accept(&self, config: Arc<ServerConfig>, stream: Prefixed<TcpStream>) -> io::Result<Secured> {
        let (mut result, secured) = oneshot::channel();
        let job = async move {
            let handshake = timeout(HANDSHAKE_MAX, TlsAcceptor::from(config).accept(stream));
            let done = tokio::select! {
                done = handshake => done.unwrap_or_else(|_elapsed| Err(io::ErrorKind::TimedOut.into())),
                () = result.closed() => return,
            };
            let _ = result.send(done);
        };
        let ended = || io::Error::from(io::ErrorKind::BrokenPipe);
        self.0.send(Box::pin(job)).map_err(|_| ended())?;
        secured.await.map_err(|_| ended())?
    }
}

async fn work(mut jobs: mpsc::UnboundedReceiver<Job>) {
    let mut running = FuturesUnordered::new();
    loop {
        tokio::select! {
            // What has begun is polled first.
            biased;
            Some(()) = running.next() => {}
            job = jobs.recv() => match job {
                Some(job) => running.push(job),
                None => return,
            },
        }
    }
}
