//! A network that can be broken: a proxy on loopback whose behaviour a test can change while connections are open.

use std::{net::SocketAddr, time::Duration};

use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    sync::watch,
    task::{JoinHandle, JoinSet},
};

/// How the network behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Weather {
    /// Bytes pass.
    Fair,
    /// Each piece of bytes waits for this long.
    Slow(Duration),
    /// Connections stay open, and nothing passes: a black hole.
    Silent,
    /// All connections are reset, new ones at once.
    Resets,
    /// Requests pass, answers do not: the server may have acted, and the client cannot know.
    AnswersLost,
}

/// A proxy in front of a server. Dropping it closes its connections.
pub(super) struct Wire {
    address: SocketAddr,
    weather: watch::Sender<Weather>,
    target: watch::Sender<Option<SocketAddr>>,
    /// Counts how often all connections were closed.
    cuts: watch::Sender<u64>,
    task: JoinHandle<()>,
}

/// The settings that a connection follows.
#[derive(Clone)]
struct Signs {
    weather: watch::Receiver<Weather>,
    cuts: watch::Receiver<u64>,
}

/// Most bytes forwarded at once.
const PIECE_BYTES: usize = 16 << 10;

// === impl Wire ===

impl Wire {
    /// Starts a proxy without a target: it resets connections.
    pub(super) async fn new() -> Wire {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("an address");
        let (weather, (target, to), cuts) =
            (watch::Sender::new(Weather::Fair), watch::channel(None), watch::Sender::new(0));
        let signs = Signs { weather: weather.subscribe(), cuts: cuts.subscribe() };
        let task = tokio::spawn(accept(listener, to, signs));
        Wire { address, weather, target, cuts, task }
    }

    /// The port to connect to.
    pub(super) fn port(&self) -> u16 {
        self.address.port()
    }

    /// Sets the target of new connections.
    pub(super) fn lead_to(&self, target: SocketAddr) {
        self.target.send_replace(Some(target));
    }

    /// Sets the behaviour, for open connections too.
    pub(super) fn set(&self, weather: Weather) {
        self.weather.send_replace(weather);
    }

    /// Closes all connections and drops the bytes in transit.
    pub(super) fn cut(&self) {
        self.cuts.send_modify(|cuts| *cuts += 1);
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn accept(listener: TcpListener, target: watch::Receiver<Option<SocketAddr>>, signs: Signs) {
    let mut connections = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            Some(_) = connections.join_next() => continue,
        };
        let Ok((client, _)) = accepted else { continue };
        let target = *target.borrow();
        connections.spawn(carry(client, target, signs.clone()));
    }
}

async fn carry(client: TcpStream, target: Option<SocketAddr>, signs: Signs) {
    // With a linger time of zero, closing a connection resets it.
    let _ = client.set_zero_linger();
    let Some(target) = target else { return };
    let Ok(server) = TcpStream::connect(target).await else { return };
    let _ = server.set_zero_linger();
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    let Signs { weather, mut cuts } = signs;
    cuts.mark_unchanged();
    let mut until_reset = weather.clone();
    tokio::select! {
        () = pump(&mut from_client, &mut to_server, weather.clone(), |weather| weather == Weather::Silent) => {}
        () = pump(&mut from_server, &mut to_client, weather, |weather| {
            matches!(weather, Weather::Silent | Weather::AnswersLost)
        }) => {}
        _ = until_reset.wait_for(|weather| *weather == Weather::Resets) => {}
        _ = cuts.changed() => {}
    }
}

/// Copies bytes in one direction while the behaviour allows it.
async fn pump(
    from: &mut (impl AsyncRead + Unpin),
    to: &mut (impl AsyncWrite + Unpin),
    mut weather: watch::Receiver<Weather>,
    holds: impl Fn(Weather) -> bool,
) {
    let mut piece = vec![0; PIECE_BYTES];
    loop {
        let Ok(read @ 1..) = from.read(&mut piece).await else { return };
        if weather.wait_for(|weather| !holds(*weather)).await.is_err() {
            return;
        }
        let pause = match *weather.borrow() {
            Weather::Slow(pause) => pause,
            Weather::Fair | Weather::Silent | Weather::Resets | Weather::AnswersLost => Duration::ZERO,
        };
        tokio::time::sleep(pause).await;
        if to.write_all(&piece[..read]).await.is_err() {
            return;
        }
    }
}
