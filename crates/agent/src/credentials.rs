//! Certificate, key and CA bundle: read as one, replaced as one, while running.
//!
//! The kubelet swaps the files of a mounted Secret by one link, but a reader who opens three files may have seen the
//! change in between. So the files are looked at before and after reading, and a pair that does not belong together is
//! none. What cannot be used never replaces what could: the last good generation stays.
//!
//! The folder is polled: whether a change is told by the file system depends on what is mounted there, and a look is three
//! calls that cost nothing.

use std::{
    fs, io,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use rustls::{
    ClientConfig, ServerConfig,
    client::{ResolvesClientCert, Resumption},
    crypto::CryptoProvider,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
    server::ResolvesServerCert,
    sign::{CertifiedKey, SingleCertAndKey},
    version::{TLS12, TLS13},
};
use tokio::{sync::watch, time};

use super::{chain, metrics::Metrics, settings::Files, trust::Bundle, validity::Validity};

/// Credentials that were read together.
#[derive(Debug)]
pub struct Generation {
    /// Counts from 1: a connection that was made with another one is replaced.
    pub number: u64,
    /// For the admission server.
    pub server: Arc<ServerConfig>,
    /// For requests to the control plane.
    pub client: Arc<ClientConfig>,
    /// Until when the certificate is valid.
    pub validity: Validity,
    seen: Seen,
}

/// Why files cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file cannot be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// They change faster than they can be read.
    #[error("{} changes while it is read", folder.display())]
    Changing {
        /// The folder of the first file.
        folder: PathBuf,
    },
    /// A file does not hold what it should.
    #[error("{} holds no {what}", path.display())]
    Content {
        /// The file.
        path: PathBuf,
        /// What it should hold.
        what: &'static str,
    },
    /// Certificate and key are not for each other, or of a kind that TLS cannot use.
    #[error("the certificate in {} cannot be used with the key in {}", certificate.display(), key.display())]
    Pair {
        /// The file of the certificate.
        certificate: PathBuf,
        /// The file of the key.
        key: PathBuf,
        /// Why.
        source: rustls::Error,
    },
}

/// What the file system says of the three files: device, inode, size, seconds and nanoseconds of the last change.
type Seen = [Option<(u64, u64, u64, i64, i64)>; 3];

/// Attempts to read files that change meanwhile.
const ATTEMPTS: usize = 3;
/// Largest file that is read, in bytes: a Secret cannot be larger.
const FILE_BYTES_MAX: u64 = 1 << 20;

// === impl Generation ===

impl Generation {
    /// Reads the files.
    pub fn load(files: &Files, provider: &Arc<CryptoProvider>, number: u64) -> Result<Generation, Error> {
        for _ in 0..ATTEMPTS {
            let before = seen(files);
            let loaded = read(files, provider, number, before);
            if seen(files) == before {
                return loaded;
            }
        }
        Err(Error::Changing { folder: files.certificate.parent().unwrap_or(Path::new(".")).to_owned() })
    }
}

/// Reads the files again whenever they change, until nobody wants them any more.
pub async fn refresh(
    current: watch::Sender<Arc<Generation>>,
    files: Files,
    provider: Arc<CryptoProvider>,
    interval: Duration,
    metrics: Metrics,
) {
    let mut last = current.borrow().seen;
    let mut ticks = time::interval(interval.max(Duration::from_millis(10)));
    ticks.set_missed_tick_behavior(time::MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = ticks.tick() => {}
            () = current.closed() => return,
        }
        let number = current.borrow().number + 1;
        let (files, provider) = (files.clone(), Arc::clone(&provider));
        let look = tokio::task::spawn_blocking(move || {
            let now = seen(&files);
            (now != last).then(|| (now, Generation::load(&files, &provider, number)))
        });
        match look.await {
            Ok(None) => {}
            Ok(Some((_, Ok(generation)))) => {
                last = generation.seen;
                metrics.reloaded(Some(generation.validity));
                tracing::info!(generation = number, "credentials replaced");
                current.send_replace(Arc::new(generation));
            }
            Ok(Some((now, Err(error)))) => {
                // Told once for each state of the files.
                last = now;
                metrics.reloaded(None);
                tracing::error!(error = %chain(&error), "credentials not replaced: the former ones stay");
            }
            // The look panicked or the process ends; the next one may go better.
            Err(_) => {}
        }
    }
}

fn seen(files: &Files) -> Seen {
    [&files.certificate, &files.key, &files.authorities].map(|path| {
        let metadata = fs::metadata(path).ok()?;
        Some((metadata.dev(), metadata.ino(), metadata.size(), metadata.mtime(), metadata.mtime_nsec()))
    })
}

fn read(files: &Files, provider: &Arc<CryptoProvider>, number: u64, seen: Seen) -> Result<Generation, Error> {
    let chain = certificates(&files.certificate)?;
    let key = PrivateKeyDer::from_pem_slice(&contents(&files.key)?)
        .map_err(|_| Error::Content { path: files.key.clone(), what: "private key in PEM" })?;
    let validity = chain
        .first()
        .and_then(|leaf| Validity::of(leaf))
        .ok_or_else(|| Error::Content { path: files.certificate.clone(), what: "certificate in PEM" })?;
    let pair = CertifiedKey::from_der(chain, key, provider).map_err(|source| Error::Pair {
        certificate: files.certificate.clone(),
        key: files.key.clone(),
        source,
    })?;
    let bundle = Bundle::new(certificates(&files.authorities)?, Arc::clone(provider))
        .ok_or_else(|| Error::Content { path: files.authorities.clone(), what: "certificates in PEM only" })?;

    let resolver = Arc::new(SingleCertAndKey::from(pair));
    let server: Arc<dyn ResolvesServerCert> = resolver.clone();
    let client: Arc<dyn ResolvesClientCert> = resolver;
    let mut server = ServerConfig::builder_with_provider(Arc::clone(provider))
        .with_protocol_versions(&[&TLS13])
        .expect("the provider has suites for TLS 1.3")
        .with_no_client_auth()
        .with_cert_resolver(server);
    server.alpn_protocols = vec![b"http/1.1".to_vec()];
    let mut client = ClientConfig::builder_with_provider(Arc::clone(provider))
        .with_protocol_versions(&[&TLS13, &TLS12])
        .expect("the provider has suites for TLS 1.2 and 1.3")
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(bundle))
        .with_client_cert_resolver(client);
    // There is one server.
    client.resumption = Resumption::in_memory_sessions(4);
    Ok(Generation { number, server: Arc::new(server), client: Arc::new(client), validity, seen })
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, Error> {
    let error = || Error::Content { path: path.to_owned(), what: "certificate in PEM" };
    let text = contents(path)?;
    let found = CertificateDer::pem_slice_iter(&text).collect::<Result<Vec<_>, _>>().map_err(|_| error())?;
    if found.is_empty() { Err(error()) } else { Ok(found) }
}

fn contents(path: &Path) -> Result<Vec<u8>, Error> {
    use io::Read as _;
    let failed = |source| Error::Read { path: path.to_owned(), source };
    let mut bytes = Vec::new();
    fs::File::open(path).map_err(failed)?.take(FILE_BYTES_MAX).read_to_end(&mut bytes).map_err(failed)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests;
