//! A git server over TLS: `git http-backend` behind a small HTTP/1.1 front. It serves one client that behaves.

use std::{
    io::{BufRead, BufReader, Read as _, Write as _},
    net::{SocketAddr, TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
};

use anyhow::Context as _;
use kube_sim::Authority;
use rustls::{
    ServerConfig, ServerConnection, StreamOwned,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
};

/// A running server. Dropping it stops it.
pub(super) struct GitServer {
    address: SocketAddr,
    shared: Arc<Shared>,
}

struct Shared {
    root: PathBuf,
    tls: Arc<ServerConfig>,
    fetches: AtomicUsize,
    is_over: AtomicBool,
}

/// The name in the certificate.
const HOST: &str = "localhost";

// === impl GitServer ===

impl GitServer {
    /// Serves the repositories below `root`, with a certificate of this CA.
    pub(super) fn start(root: &Path, authority: &Authority) -> anyhow::Result<GitServer> {
        let found = Command::new("git").arg("--version").output();
        found.context("cannot run `git`, which serves the repository: install it")?;
        let identity = authority.server(HOST, &[HOST])?;
        let chain = CertificateDer::from_pem_slice(identity.certificate.as_bytes()).context("a certificate is PEM")?;
        let key = PrivateKeyDer::from_pem_slice(identity.key.as_bytes()).context("a key is PEM")?;
        let tls = ServerConfig::builder().with_no_client_auth().with_single_cert(vec![chain], key)?;
        let listener = TcpListener::bind("127.0.0.1:0").context("cannot listen for git")?;
        let address = listener.local_addr().context("cannot listen for git")?;
        let (fetches, is_over) = (AtomicUsize::new(0), AtomicBool::new(false));
        let shared = Arc::new(Shared { root: root.to_owned(), tls: Arc::new(tls), fetches, is_over });
        let served = Arc::clone(&shared);
        thread::spawn(move || {
            for stream in listener.incoming() {
                if served.is_over.load(Ordering::Relaxed) {
                    return;
                }
                let shared = Arc::clone(&served);
                // The daemon reports a connection that fails.
                thread::spawn(move || stream.map_err(Into::into).and_then(|stream| shared.converse(stream)));
            }
        });
        Ok(GitServer { address, shared })
    }

    /// The URL of a repository.
    pub(super) fn url(&self, repository: &str) -> String {
        format!("https://{HOST}:{}/{repository}", self.address.port())
    }

    /// How often the references of a repository were asked for.
    pub(super) fn fetches(&self) -> usize {
        self.shared.fetches.load(Ordering::Relaxed)
    }
}

impl Drop for GitServer {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::Relaxed);
        // The thread waits for a connection.
        let _ = TcpStream::connect(self.address);
    }
}

// === impl Shared ===

impl Shared {
    fn converse(&self, stream: TcpStream) -> anyhow::Result<()> {
        stream.set_nodelay(true)?;
        let connection = ServerConnection::new(Arc::clone(&self.tls))?;
        let mut stream = BufReader::new(StreamOwned::new(connection, stream));
        loop {
            let mut line = String::new();
            if stream.read_line(&mut line)? == 0 {
                return Ok(());
            }
            let (mut length, mut content_type) = (0, String::new());
            loop {
                let mut header = String::new();
                stream.read_line(&mut header)?;
                let Some((name, value)) = header.trim_end().split_once(": ") else { break };
                match name.to_ascii_lowercase().as_str() {
                    "content-length" => length = value.parse()?,
                    "content-type" => value.clone_into(&mut content_type),
                    _ => {}
                }
            }
            let mut body = vec![0; length];
            stream.read_exact(&mut body)?;
            let mut words = line.split_whitespace();
            let (method, target) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
            if target.contains("/info/refs") {
                self.fetches.fetch_add(1, Ordering::Relaxed);
            }
            let answer = self.backend(method, target, &content_type, &body)?;
            stream.get_mut().write_all(&answer)?;
            stream.get_mut().flush()?;
        }
    }

    /// The answer of git to a request, as HTTP.
    fn backend(&self, method: &str, target: &str, content_type: &str, body: &[u8]) -> anyhow::Result<Vec<u8>> {
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let mut child = Command::new("git")
            .arg("http-backend")
            .env("GIT_PROJECT_ROOT", &self.root)
            .env("GIT_HTTP_EXPORT_ALL", "1")
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .env("GIT_CONFIG_GLOBAL", "/dev/null")
            .env("PATH_INFO", path)
            .env("QUERY_STRING", query)
            .env("REQUEST_METHOD", method)
            .env("CONTENT_TYPE", content_type)
            .env("CONTENT_LENGTH", body.len().to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()?;
        // What a fetch of one repository asks for fits into the pipe.
        child.stdin.take().context("a pipe")?.write_all(body)?;
        let output = child.wait_with_output()?.stdout;
        let end = output.windows(4).position(|window| window == b"\r\n\r\n").context("git gives no answer")?;
        let head = String::from_utf8_lossy(&output[..end]).into_owned();
        let status = head.lines().find_map(|line| line.strip_prefix("Status: ")).unwrap_or("200 OK");
        let headers: Vec<&str> = head.lines().filter(|line| !line.starts_with("Status: ")).collect();
        let rest = &output[end + 4..];
        let head = format!("HTTP/1.1 {status}\r\n{}\r\ncontent-length: {}\r\n\r\n", headers.join("\r\n"), rest.len());
        Ok([head.as_bytes(), rest].concat())
    }
}
