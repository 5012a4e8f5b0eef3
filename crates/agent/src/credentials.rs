//! Certificate, key and CA bundle: loaded together, and replaced together at run time.
//!
//! The kubelet replaces the files of a mounted Secret by switching one symlink, but the switch may happen between
//! opening two of the files. So `load` compares the files' metadata before and after reading, and checks that key and
//! certificate match. Unusable files never replace usable ones: the last good generation stays.
//!
//! The folder is polled, because file system notifications depend on the kind of mount. A poll is three cheap system
//! calls.

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
    server::{ResolvesServerCert, ServerSessionMemoryCache},
    sign::{CertifiedKey, SingleCertAndKey},
    version::{TLS12, TLS13},
};
use tokio::{sync::watch, time};

use super::{chain, metrics::Metrics, settings::Files, trust::Bundle, validity::Validity};

/// Credentials that were loaded together.
#[derive(Debug)]
pub struct Generation {
    /// Starts at 1. A connection that uses another generation is replaced.
    pub number: u64,
    /// The TLS configuration of the admission server.
    pub server: Arc<ServerConfig>,
    /// The TLS configuration of requests to the control plane.
    pub client: Arc<ClientConfig>,
    /// The validity period of the certificate.
    pub validity: Validity,
    seen: Seen,
}

/// Why the files cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file cannot be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// The files change faster than they can be read.
    #[error("{} changes while it is read", folder.display())]
    Changing {
        /// The folder of the first file.
        folder: PathBuf,
    },
    /// A file does not contain what it should.
    #[error("{} contains no {what}", path.display())]
    Content {
        /// The file.
        path: PathBuf,
        /// What the file should contain.
        what: &'static str,
    },
    /// The key does not match the certificate, or TLS does not support its kind.
    #[error("the certificate in {} cannot be used with the key in {}", certificate.display(), key.display())]
    Pair {
        /// The file of the certificate.
        certificate: PathBuf,
        /// The file of the key.
        key: PathBuf,
        /// The cause.
        source: rustls::Error,
    },
}

/// Metadata of the three files: device, inode, size, and time of the last change in seconds and nanoseconds.
type Seen = [Option<(u64, u64, u64, i64, i64)>; 3];

/// Attempts to read files that change meanwhile.
const ATTEMPTS: usize = 3;
/// Sessions that can be resumed: one for each connection, in less than a MiB.
const SESSIONS_MAX: usize = 1024;
/// Limit of a file's size, in bytes: that of a Secret.
const FILE_BYTES_MAX: u64 = 1 << 20;

// === impl Generation ===

impl Generation {
    /// Loads the files.
    ///
    /// # Errors
    ///
    /// Fails if a file cannot be read or has the wrong content, or if certificate and key do not match.
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

/// Reloads the files whenever they change, until every receiver is dropped.
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
                // Report each state of the files once.
                last = now;
                metrics.reloaded(None);
                tracing::error!(error = %chain(&error), "cannot reload the credentials; keeping the current ones");
            }
            // The task panicked or the process ends; the next poll may succeed.
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
        .and_then(|leaf| Validity::from_der(leaf))
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
    // A session that is resumed needs no signature. One ticket lasts for one connection, which brings the next.
    server.session_storage = ServerSessionMemoryCache::new(SESSIONS_MAX);
    server.send_tls13_tickets = 1;
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
