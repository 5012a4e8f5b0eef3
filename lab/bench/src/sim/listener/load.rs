//! A sender with minimal overhead between its clock and the socket.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use anyhow::Context as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject as _};
use tidegate_events::event::{self, Event, Gvk, Watched};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _},
    net::TcpStream,
    time::Instant,
};
use tokio_rustls::TlsConnector;

/// How a sender connects to the listener, and whether it keeps its connection.
#[derive(Clone, Copy, Debug)]
pub(in crate::sim) enum Way {
    /// Like a gateway that has terminated TLS.
    Forwarded { keep: bool },
    /// Directly, over TLS.
    Tls { keep: bool },
}

/// A runtime that sends events.
pub(in crate::sim) struct Sender {
    address: SocketAddr,
    keep: bool,
    request: Vec<u8>,
    tls: Option<(TlsConnector, ServerName<'static>)>,
}

/// When a sender stops.
#[derive(Clone, Copy, Debug)]
struct Until {
    time: Instant,
    events: usize,
}

/// The durations of answers.
#[derive(Debug, Default)]
pub(in crate::sim) struct Sample {
    durations: Vec<Duration>,
    /// Answers other than 200, and failed connections.
    pub(in crate::sim) failed: usize,
}

/// How long to wait for an answer after the end of a phase.
const ANSWER_MAX: Duration = Duration::from_secs(10);
/// The user agent of Tidegate's agents. The daemon does not delay their events.
const AGENT: &str = "tidegate-agent/bench";
/// Limit for [`Sender::send_some`].
const SOME_MAX: Duration = Duration::from_secs(60);
/// Limit of an answer.
const ANSWER_LEN_MAX: usize = 4096;

// === impl Sender ===

impl Sender {
    /// Creates a sender with a certificate.
    pub(in crate::sim) fn new(
        address: SocketAddr,
        way: Way,
        host: &str,
        authority: &str,
        identity: &kube_sim::Identity,
    ) -> anyhow::Result<Sender> {
        let (keep, header, tls) = match way {
            Way::Forwarded { keep } => (keep, header(&identity.certificate), None),
            Way::Tls { keep } => {
                let name = ServerName::try_from(host.to_owned()).context("the host is a name")?;
                (keep, String::new(), Some((connector(authority, identity)?, name)))
            }
        };
        let event = Event {
            watched: Watched { namespace: "kyma-system".to_owned(), name: "default".to_owned() },
            gvk: Gvk::new("operator.kyma-project.io/v1beta2", "Kyma"),
        };
        let body = event.to_body();
        let request = format!(
            "POST {} HTTP/1.1\r\nHost: {host}\r\nUser-Agent: {AGENT}\r\nContent-Type: application/json\r\n{header}\
             Content-Length: {}\r\n\r\n{body}",
            event::path(event::CONTRACT, event::MANAGER),
            body.len()
        );
        Ok(Sender { address, keep, request: request.into_bytes(), tls })
    }

    /// Sends events one by one for some time. Includes answers that arrive later.
    pub(super) async fn send(&self, time: Duration, pause: Duration) -> anyhow::Result<Sample> {
        let until = Until { time: Instant::now() + time, events: usize::MAX };
        let mut sample = Sample::default();
        while !until.is_reached(&sample) {
            self.try_on(until, pause, &mut sample).await;
            if !pause.is_zero() {
                tokio::time::sleep(pause).await;
            }
        }
        Ok(sample)
    }

    /// Sends this many events, and gives up after as many failures.
    pub(in crate::sim) async fn send_some(&self, events: usize) -> Sample {
        let until = Until { time: Instant::now() + SOME_MAX, events };
        let mut sample = Sample::default();
        while !until.is_reached(&sample) && sample.failed < events {
            self.try_on(until, Duration::ZERO, &mut sample).await;
        }
        sample
    }

    async fn try_on(&self, until: Until, pause: Duration, sample: &mut Sample) {
        let connected = tokio::time::timeout_at(until.time + ANSWER_MAX, self.converse(until, pause, sample)).await;
        if !matches!(connected, Ok(Ok(()))) {
            sample.failed += 1;
        }
    }

    /// Uses one connection for one event or for all.
    async fn converse(&self, until: Until, pause: Duration, sample: &mut Sample) -> anyhow::Result<()> {
        let started = Instant::now();
        let stream = TcpStream::connect(self.address).await?;
        stream.set_nodelay(true)?;
        match &self.tls {
            None => self.exchange(stream, started, until, pause, sample).await,
            Some((connector, name)) => {
                let stream = connector.connect(name.clone(), stream).await?;
                self.exchange(stream, started, until, pause, sample).await
            }
        }
    }

    /// Opens a connection and sends one event over it. The connection stays open until the result is dropped.
    pub(super) async fn hold(&self) -> anyhow::Result<Box<dyn Send>> {
        let until = Until { time: Instant::now() + SOME_MAX, events: 1 };
        let mut sample = Sample::default();
        let mut stream = TcpStream::connect(self.address).await?;
        match &self.tls {
            None => {
                self.exchange(&mut stream, Instant::now(), until, Duration::ZERO, &mut sample).await?;
                Ok(Box::new(stream))
            }
            Some((connector, name)) => {
                let mut stream = connector.connect(name.clone(), stream).await?;
                self.exchange(&mut stream, Instant::now(), until, Duration::ZERO, &mut sample).await?;
                Ok(Box::new(stream))
            }
        }
    }

    async fn exchange<S: AsyncRead + AsyncWrite + Unpin>(
        &self,
        mut stream: S,
        mut started: Instant,
        until: Until,
        pause: Duration,
        sample: &mut Sample,
    ) -> anyhow::Result<()> {
        let mut buffer = [0; ANSWER_LEN_MAX];
        loop {
            stream.write_all(&self.request).await?;
            // TLS may still buffer the data.
            stream.flush().await?;
            let mut length = 0;
            while !buffer[..length].ends_with(b"\r\n\r\n") {
                let read = stream.read(&mut buffer[length..]).await?;
                anyhow::ensure!(read != 0, "the connection ended");
                length += read;
            }
            anyhow::ensure!(buffer.starts_with(b"HTTP/1.1 200 "), "not taken");
            sample.durations.push(started.elapsed());
            if !self.keep || until.is_reached(sample) {
                return Ok(());
            }
            if !pause.is_zero() {
                tokio::time::sleep(pause).await;
            }
            started = Instant::now();
        }
    }
}

/// The header of a gateway, in Envoy's format.
pub(super) fn header(pem: &str) -> String {
    let encoded =
        pem.replace('\n', "%0A").replace(' ', "%20").replace('+', "%2B").replace('/', "%2F").replace('=', "%3D");
    format!("X-Forwarded-Client-Cert: Hash=ab;Cert=\"{encoded}\";Subject=\"CN=runtime\";URI=\r\n")
}

/// TLS as an agent uses it. Without resumption, because the Go agents have none.
fn connector(authority: &str, identity: &kube_sim::Identity) -> anyhow::Result<TlsConnector> {
    let chain = CertificateDer::pem_slice_iter(identity.certificate.as_bytes()).collect::<Result<Vec<_>, _>>();
    let key = PrivateKeyDer::from_pem_slice(identity.key.as_bytes()).context("the key is PEM")?;
    let mut config = rustls::ClientConfig::builder()
        .with_root_certificates(roots(authority)?)
        .with_client_auth_cert(chain.context("the certificate is PEM")?, key)?;
    config.resumption = rustls::client::Resumption::disabled();
    Ok(TlsConnector::from(Arc::new(config)))
}

/// The first message of a client without a certificate.
pub(super) fn hello(host: &str, authority: &str) -> anyhow::Result<Vec<u8>> {
    let config = rustls::ClientConfig::builder().with_root_certificates(roots(authority)?).with_no_client_auth();
    let name = ServerName::try_from(host.to_owned()).context("the host is a name")?;
    let mut hello = Vec::new();
    rustls::ClientConnection::new(Arc::new(config), name)?.write_tls(&mut hello)?;
    Ok(hello)
}

fn roots(authority: &str) -> anyhow::Result<rustls::RootCertStore> {
    let mut roots = rustls::RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(authority.as_bytes()).context("the authority is PEM")?)?;
    Ok(roots)
}

// === impl Until ===

impl Until {
    fn is_reached(self, sample: &Sample) -> bool {
        self.events <= sample.count() || self.time <= Instant::now()
    }
}

// === impl Sample ===

impl Sample {
    /// Merges samples.
    pub(super) fn all(samples: Vec<Sample>) -> Sample {
        let failed = samples.iter().map(|sample| sample.failed).sum();
        let mut durations: Vec<Duration> = samples.into_iter().flat_map(|sample| sample.durations).collect();
        durations.sort_unstable();
        Sample { durations, failed }
    }

    /// The number of answers.
    pub(in crate::sim) fn count(&self) -> usize {
        self.durations.len()
    }

    /// The quantile `part`. Only for the result of [`Sample::all`].
    pub(super) fn quantile(&self, part: f64) -> Duration {
        #[expect(
            clippy::cast_precision_loss,
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "an index"
        )]
        let index = (self.durations.len() as f64 * part) as usize;
        self.durations.get(index.min(self.durations.len().saturating_sub(1))).copied().unwrap_or_default()
    }
}
