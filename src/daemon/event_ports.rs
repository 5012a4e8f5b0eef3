//! Receives events of runtimes: the sockets, the listener behind them, and the trusted CAs.
//!
//! Every replica listens. A replica that does not lead answers 503, and the sender retries.
//!
//! The ports have threads of their own. However many connections and handshakes come, `/readyz`, `/metrics` and the
//! controllers do not wait for them.

use std::{
    io,
    net::SocketAddr,
    sync::{Arc, Weak},
};

use anyhow::Context as _;
use tokio::{
    net::TcpListener,
    runtime::{self, Runtime},
    sync::watch,
    task::JoinSet,
};
use tokio_util::sync::CancellationToken;

use super::Context;
use tidegate_events::{
    event,
    identity::{Authorities, Identity, Xfcc},
    listener::{self, Answer, Listener, Received, Refusal, Tls},
};

use crate::{config::Events, stores::secret::GatewaySecret, watcher::inbox::Inbox};

/// The receiver of events, for the listener and for programs without sockets, such as a simulation. It does not keep
/// the daemon alive.
#[derive(Clone, Debug)]
pub struct EventReceiver(Weak<Context>);

/// The sockets, bound but not yet served.
#[derive(Debug)]
pub(super) struct EventPorts {
    forwarded: Option<TcpListener>,
    tls: Option<TcpListener>,
    xfcc: Xfcc,
    threads: Threads,
}

/// Which threads serve the ports.
#[derive(Clone, Debug)]
pub(super) enum Threads {
    /// Those of the daemon.
    #[cfg(feature = "internals")]
    Shared,
    /// Threads of their own. They end with the last clone.
    Own(Arc<OwnThreads>),
}

#[derive(Debug)]
pub(super) struct OwnThreads(Option<Runtime>);

/// Threads that serve the ports: enough for all processors that the deployment may use.
const THREADS: usize = 2;

impl EventPorts {
    /// Binds the configured addresses. Fails if an address cannot be bound.
    pub(super) fn bind(events: &Events, threads: Threads) -> anyhow::Result<EventPorts> {
        let bind = |address: Option<SocketAddr>, purpose: &'static str| -> anyhow::Result<Option<TcpListener>> {
            let Some(address) = address else { return Ok(None) };
            let bound = || -> io::Result<TcpListener> {
                let socket = listener::bind(address)?;
                // With port 0, this is the only record of the port.
                tracing::info!(address = %socket.local_addr()?, purpose, "listening");
                Ok(socket)
            };
            bound().map(Some).with_context(|| format!("cannot listen on {address} for {purpose}"))
        };
        Ok(EventPorts {
            threads,
            forwarded: bind(events.address, "events")?,
            tls: bind(events.tls_address, "events over TLS")?,
            xfcc: Xfcc { peers: events.trusted_peers.clone(), gateway: events.gateway_identity.clone() },
        })
    }

    /// Serves until `stop`; then finishes running requests.
    pub(super) fn serve(self, context: &Arc<Context>, services: &mut JoinSet<()>, stop: &CancellationToken) {
        if self.forwarded.is_none() && self.tls.is_none() {
            return;
        }
        let (door, probed) = (EventReceiver::new(context), EventReceiver::new(context));
        let listener = Listener::builder(event::MANAGER)
            .forwarded(self.xfcc)
            .probed(move |identity| probed.probed(identity))
            .metrics(context.metrics.listener().clone())
            .receiver(move |received| {
                let door = door.clone();
                Box::pin(async move { door.receive(&received).await })
            });
        let (tls_sender, tls) = watch::channel(None);
        if let Some(socket) = self.forwarded {
            let (listener, stop) = (listener.clone(), stop.clone());
            self.threads.run(services, socket, async move |socket| {
                listener.serve_forwarded(socket, stop.cancelled_owned()).await;
            });
        }
        if let Some(socket) = self.tls {
            let (listener, stop) = (listener.clone(), stop.clone());
            self.threads.run(services, socket, async move |socket| {
                listener.serve_tls(socket, tls, stop.cancelled_owned()).await;
            });
        }
        let (context, stop) = (Arc::clone(context), stop.clone());
        services.spawn(async move {
            tokio::select! {
                () = stop.cancelled() => {}
                () = follow(&context, &listener, &tls_sender) => {}
            }
        });
    }
}

// === impl Threads ===

impl Threads {
    /// Starts threads of their own.
    pub(super) fn start() -> anyhow::Result<Threads> {
        let threads = runtime::Builder::new_multi_thread()
            .worker_threads(THREADS)
            .thread_name("events")
            .enable_all()
            .build()
            .context("cannot start the threads that receive events")?;
        Ok(Threads::Own(Arc::new(OwnThreads(Some(threads)))))
    }

    /// Serves a socket that was bound on the daemon's threads.
    pub(super) fn run<F>(
        &self,
        services: &mut JoinSet<()>,
        socket: TcpListener,
        serve: impl FnOnce(TcpListener) -> F + Send + 'static,
    ) where
        F: Future<Output = ()> + Send + 'static,
    {
        let own = match self {
            #[cfg(feature = "internals")]
            Threads::Shared => None,
            Threads::Own(own) => own.0.as_ref().map(|threads| (threads, Arc::clone(own))),
        };
        let Some((threads, own)) = own else {
            services.spawn(serve(socket));
            return;
        };
        let _entered = threads.enter();
        match socket.into_std().and_then(TcpListener::from_std) {
            Ok(socket) => {
                let served = threads.spawn(serve(socket));
                services.spawn(async move {
                    let _ = served.await;
                    drop(own);
                });
            }
            Err(error) => tracing::error!(%error, "cannot serve a port for events; restart the daemon"),
        }
    }
}

impl Drop for OwnThreads {
    fn drop(&mut self) {
        if let Some(threads) = self.0.take() {
            // The requests that were to be finished are.
            threads.shutdown_background();
        }
    }
}

/// Reloads the trusted CAs and the served certificate at every change of the gateway's Secret.
async fn follow(context: &Context, listener: &Listener, tls: &watch::Sender<Option<Tls>>) {
    loop {
        let secret = context.stores.gateway_secret();
        let bundle = secret.as_ref().and_then(|secret| secret.bundle.clone());
        let authorities = bundle.map(|bundle| Authorities::parse(&bundle, listener::now())).transpose();
        listener.set_authorities(authorities.unwrap_or_else(|error| {
            tracing::error!(%error, "the gateway's Secret contains no valid CA; all events of runtimes are refused");
            None
        }));
        tls.send_replace(secret.and_then(|secret| served(&secret)));
        context.stores.gateway_changed().await;
    }
}

/// The TLS configuration of the listener; `None` if the Secret does not contain one.
fn served(secret: &GatewaySecret) -> Option<Tls> {
    let bundle = secret.bundle.as_ref().filter(|_| !secret.certificate.is_empty())?;
    match Tls::from_pem(&secret.certificate, &secret.key, bundle, listener::now()) {
        Ok(tls) => Some(tls),
        Err(error) => {
            let error = crate::controller::chain(&error);
            tracing::error!(error, "cannot serve with the gateway's Secret");
            None
        }
    }
}

// === impl EventReceiver ===

impl EventReceiver {
    pub(super) fn new(context: &Arc<Context>) -> EventReceiver {
        EventReceiver(Arc::downgrade(context))
    }

    /// Decides about an event.
    pub async fn receive(&self, received: &Received) -> Answer {
        match self.0.upgrade() {
            Some(context) => context.inbox.receive(&context, received).await,
            None => Answer::Unavailable(Refusal { reason: "ended", message: "this process has stopped" }),
        }
    }

    /// Records that an agent probed its connection to the listener.
    pub fn probed(&self, identity: &Identity) {
        if let Some(context) = self.0.upgrade() {
            context.inbox.probed(&context, identity);
        }
    }
}

/// Handles received events. Never ends.
pub(super) async fn run(context: Arc<Context>) {
    let inbox: &Inbox = &context.inbox;
    inbox.run(&context).await;
}
