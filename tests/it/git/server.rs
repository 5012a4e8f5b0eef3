//! A git server over TLS: `git http-backend` behind a small HTTP/1.1 front, which can be told to misbehave.

use std::{
    collections::BTreeMap,
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::{
        Arc, Condvar, Mutex,
        atomic::{AtomicBool, Ordering},
    },
};

use rustls::{ServerConfig, ServerConnection, StreamOwned};
use tidegate_git::ClientCertificate;

/// A request, as it came in.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) method: String,
    /// Path and query.
    pub(crate) target: String,
    pub(crate) headers: BTreeMap<String, String>,
    pub(crate) body: Vec<u8>,
}

/// What the server does with a request.
pub(crate) enum Action {
    /// Hands it to `git http-backend`.
    Serve,
    /// Answers with a status, headers and a body.
    Answer(u16, Vec<(&'static str, String)>, Vec<u8>),
    /// Never answers.
    Hang,
    /// Serves, and stops in the middle: after so many bytes of the body nothing more comes.
    Stall(usize),
    /// Serves, and cuts the connection after so many bytes of the body.
    Cut(usize),
    /// Serves the first so many bytes of the body as if they were all.
    Shorten(usize),
    /// Sends these bytes in place of a body, the last ones again and again, without an end.
    Flood(&'static str, Vec<u8>, Vec<u8>),
}

type Decide = dyn Fn(&Request) -> Action + Send + Sync;

/// Ends when dropped, with all connections.
pub(crate) struct Server {
    address: SocketAddr,
    /// The CA of its certificate, in PEM.
    pub(crate) ca: Vec<u8>,
    /// A certificate of a client that its CA has issued.
    pub(crate) client: Option<ClientCertificate>,
    shared: Arc<Shared>,
}

struct Shared {
    root: PathBuf,
    decide: Mutex<Arc<Decide>>,
    requests: Mutex<Vec<Request>>,
    is_over: AtomicBool,
    over: (Mutex<bool>, Condvar),
    tls: Option<Arc<ServerConfig>>,
}

impl Server {
    /// Serves the repositories below `root` over TLS.
    pub(crate) fn start(root: &Path) -> Server {
        Server::start_with(root, Fault::None)
    }

    /// Serves the repositories below `root` over TLS, with a certificate that something is wrong with.
    pub(crate) fn start_with(root: &Path, fault: Fault) -> Server {
        let (tls, ca, client) = certificates(fault);
        let mut server = Server::launch(root, Some(tls), ca);
        server.client = Some(client);
        server
    }

    /// Serves the repositories below `root` over plain http.
    pub(crate) fn start_plain(root: &Path) -> Server {
        Server::launch(root, None, Vec::new())
    }

    fn launch(root: &Path, tls: Option<Arc<ServerConfig>>, ca: Vec<u8>) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared {
            root: root.to_owned(),
            decide: Mutex::new(Arc::new(|_| Action::Serve)),
            requests: Mutex::default(),
            is_over: AtomicBool::new(false),
            over: Default::default(),
            tls,
        });
        let for_thread = Arc::clone(&shared);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                if for_thread.is_over.load(Ordering::SeqCst) {
                    return;
                }
                let shared = Arc::clone(&for_thread);
                // A connection that breaks is the client's doing, and the client's test tells.
                std::thread::spawn(move || stream.map(|stream| shared.connection(stream)));
            }
        });
        Server { address, ca, client: None, shared }
    }

    /// The URL of a repository.
    pub(crate) fn url(&self, repository: &str) -> String {
        let scheme = if self.shared.tls.is_some() { "https" } else { "http" };
        format!("{scheme}://localhost:{}/{repository}", self.address.port())
    }

    /// From now on, `decide` says what becomes of each request.
    pub(crate) fn behave(&self, decide: impl Fn(&Request) -> Action + Send + Sync + 'static) {
        *self.shared.decide.lock().unwrap() = Arc::new(decide);
    }

    /// What git itself answers to a request.
    pub(crate) fn answer(&self, request: &Request) -> Vec<u8> {
        self.shared.backend(request).2
    }

    /// The requests so far.
    pub(crate) fn requests(&self) -> Vec<Request> {
        self.shared.requests.lock().unwrap().clone()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::SeqCst);
        *self.shared.over.0.lock().unwrap() = true;
        self.shared.over.1.notify_all();
        let _ = TcpStream::connect(self.address);
    }
}

impl Request {
    /// Whether it asks for a pack (and not for the list of references).
    pub(crate) fn is_for_pack(&self) -> bool {
        self.method == "POST"
    }

    /// The credentials that came with it.
    pub(crate) fn authorization(&self) -> Option<&str> {
        self.headers.get("authorization").map(String::as_str)
    }
}

/// What is wrong with a server's certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    None,
    Expired,
    NotYetValid,
    OtherHost,
    NoName,
    /// It signs itself, and says that it is for a CA, as `openssl req -x509` makes it.
    IsCa,
    /// It is fine, and the server wants one of the client.
    WantsClient,
}

/// A certificate for localhost, its CA, and a certificate of a client.
fn certificates(fault: Fault) -> (Arc<ServerConfig>, Vec<u8>, ClientCertificate) {
    let ca_key = rcgen::KeyPair::generate().unwrap();
    let mut ca_params = rcgen::CertificateParams::new(Vec::new()).unwrap();
    ca_params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    ca_params.distinguished_name.push(rcgen::DnType::CommonName, "test authority");
    let ca = ca_params.self_signed(&ca_key).unwrap();
    let issuer = rcgen::Issuer::new(ca_params, ca_key);
    let key = rcgen::KeyPair::generate().unwrap();
    let names = match fault {
        Fault::OtherHost => vec!["other.example.com".to_owned()],
        Fault::NoName => Vec::new(),
        Fault::None | Fault::Expired | Fault::NotYetValid | Fault::IsCa | Fault::WantsClient => {
            vec!["localhost".to_owned(), "127.0.0.1".to_owned()]
        }
    };
    let mut params = rcgen::CertificateParams::new(names).unwrap();
    // Without any extension, a certificate is not even read.
    params.is_ca = rcgen::IsCa::ExplicitNoCa;
    match fault {
        Fault::Expired => params.not_after = rcgen::date_time_ymd(2020, 1, 1),
        Fault::NotYetValid => params.not_before = rcgen::date_time_ymd(2090, 1, 1),
        Fault::IsCa => params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained),
        Fault::None | Fault::OtherHost | Fault::NoName | Fault::WantsClient => {}
    }
    let certificate = match fault {
        Fault::IsCa => params.self_signed(&key).unwrap(),
        _ => params.signed_by(&key, &issuer).unwrap(),
    };
    let client_key = rcgen::KeyPair::generate().unwrap();
    let mut client_params = rcgen::CertificateParams::new(Vec::new()).unwrap();
    client_params.is_ca = rcgen::IsCa::ExplicitNoCa;
    client_params.extended_key_usages = vec![rcgen::ExtendedKeyUsagePurpose::ClientAuth];
    let client = ClientCertificate {
        certificate: client_params.signed_by(&client_key, &issuer).unwrap().pem().into_bytes(),
        key: client_key.serialize_pem().into_bytes(),
    };
    let ca = if fault == Fault::IsCa { certificate.clone() } else { ca };
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder =
        ServerConfig::builder_with_provider(Arc::clone(&provider)).with_safe_default_protocol_versions().unwrap();
    let builder = match fault {
        Fault::WantsClient => {
            let mut roots = rustls::RootCertStore::empty();
            roots.add(ca.der().clone()).unwrap();
            let verifier = rustls::server::WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
            builder.with_client_cert_verifier(verifier.build().unwrap())
        }
        _ => builder.with_no_client_auth(),
    };
    let config =
        builder.with_single_cert(vec![certificate.der().clone()], key.serialize_der().try_into().unwrap()).unwrap();
    (Arc::new(config), ca.pem().into_bytes(), client)
}

trait Stream: Read + Write + Send {}
impl<T: Read + Write + Send> Stream for T {}

impl Shared {
    fn connection(&self, stream: TcpStream) -> std::io::Result<()> {
        stream.set_nodelay(true)?;
        let stream: Box<dyn Stream> = match &self.tls {
            Some(tls) => {
                let connection = ServerConnection::new(Arc::clone(tls)).map_err(std::io::Error::other)?;
                Box::new(StreamOwned::new(connection, stream))
            }
            None => Box::new(stream),
        };
        let mut stream = BufReader::new(stream);
        while let Some(request) = read_request(&mut stream)? {
            self.requests.lock().unwrap().push(request.clone());
            let decide = Arc::clone(&*self.decide.lock().unwrap());
            let stream = stream.get_mut();
            match decide(&request) {
                Action::Serve => {
                    let (status, headers, body) = self.backend(&request);
                    send(stream, status, &headers, &body, body.len())?;
                }
                Action::Answer(status, headers, body) => {
                    let headers: Vec<_> = headers.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
                    send(stream, status, &headers, &body, body.len())?;
                }
                Action::Hang => return self.wait_for_end(),
                Action::Stall(bytes) => {
                    let (status, headers, body) = self.backend(&request);
                    send(stream, status, &headers, &body[..bytes.min(body.len())], body.len().max(bytes + 1))?;
                    return self.wait_for_end();
                }
                Action::Cut(bytes) => {
                    let (status, headers, body) = self.backend(&request);
                    return send(stream, status, &headers, &body[..bytes.min(body.len())], body.len());
                }
                Action::Shorten(bytes) => {
                    let (status, headers, body) = self.backend(&request);
                    let body = &body[..bytes.min(body.len())];
                    send(stream, status, &headers, body, body.len())?;
                }
                Action::Flood(content_type, start, bytes) => {
                    write!(stream, "HTTP/1.1 200 OK\r\ncontent-type: {content_type}\r\nconnection: close\r\n\r\n")?;
                    stream.write_all(&start)?;
                    while !self.is_over.load(Ordering::SeqCst) {
                        stream.write_all(&bytes)?;
                    }
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    fn wait_for_end(&self) -> std::io::Result<()> {
        let over = self.over.0.lock().unwrap();
        drop(self.over.1.wait_while(over, |over| !*over).unwrap());
        Ok(())
    }

    fn backend(&self, request: &Request) -> (u16, Vec<(String, String)>, Vec<u8>) {
        let (path, query) = request.target.split_once('?').unwrap_or((&request.target, ""));
        let mut child = Command::new("git")
            .arg("http-backend")
            .env("GIT_PROJECT_ROOT", &self.root)
            .env("GIT_HTTP_EXPORT_ALL", "1")
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .env("GIT_CONFIG_GLOBAL", "/dev/null")
            // The files may belong to another user than the one that runs the test.
            .envs([("GIT_CONFIG_COUNT", "1"), ("GIT_CONFIG_KEY_0", "safe.directory"), ("GIT_CONFIG_VALUE_0", "*")])
            .env("PATH_INFO", path)
            .env("QUERY_STRING", query)
            .env("REQUEST_METHOD", &request.method)
            .env("CONTENT_TYPE", request.headers.get("content-type").map_or("", String::as_str))
            .env("CONTENT_LENGTH", request.body.len().to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut input = child.stdin.take().unwrap();
        let body = request.body.clone();
        let writer = std::thread::spawn(move || {
            let _ = input.write_all(&body);
        });
        let output = child.wait_with_output().unwrap().stdout;
        writer.join().unwrap();
        let end = output.windows(4).position(|window| window == b"\r\n\r\n").unwrap();
        let (mut status, mut headers) = (200, Vec::new());
        for line in String::from_utf8_lossy(&output[..end]).lines() {
            let (name, value) = line.split_once(':').unwrap();
            match name.to_ascii_lowercase().as_str() {
                "status" => status = value.split_whitespace().next().unwrap().parse().unwrap(),
                name => headers.push((name.to_owned(), value.trim().to_owned())),
            }
        }
        (status, headers, output[end + 4..].to_vec())
    }
}

fn send(
    stream: &mut Box<dyn Stream>,
    status: u16,
    headers: &[(String, String)],
    body: &[u8],
    length: usize,
) -> std::io::Result<()> {
    write!(stream, "HTTP/1.1 {status} x\r\n")?;
    for (name, value) in headers {
        write!(stream, "{name}: {value}\r\n")?;
    }
    write!(stream, "content-length: {length}\r\n\r\n")?;
    stream.write_all(body)?;
    stream.flush()
}

/// `None` at the end of the connection.
fn read_request(stream: &mut BufReader<Box<dyn Stream>>) -> std::io::Result<Option<Request>> {
    let mut line = String::new();
    if stream.read_line(&mut line)? == 0 {
        return Ok(None);
    }
    let mut words = line.split_whitespace();
    let (method, target) = (words.next().unwrap_or("").to_owned(), words.next().unwrap_or("").to_owned());
    let mut headers = BTreeMap::new();
    loop {
        let mut line = String::new();
        stream.read_line(&mut line)?;
        let Some((name, value)) = line.trim_end().split_once(':') else { break };
        headers.insert(name.to_ascii_lowercase(), value.trim().to_owned());
    }
    let mut body = Vec::new();
    if let Some(length) = headers.get("content-length").and_then(|length| length.parse().ok()) {
        body.resize(length, 0);
        stream.read_exact(&mut body)?;
    } else if headers.contains_key("transfer-encoding") {
        loop {
            let mut line = String::new();
            stream.read_line(&mut line)?;
            let length = usize::from_str_radix(line.trim(), 16).map_err(std::io::Error::other)?;
            let start = body.len();
            body.resize(start + length, 0);
            stream.read_exact(&mut body[start..])?;
            stream.read_line(&mut String::new())?;
            if length == 0 {
                break;
            }
        }
    }
    Ok(Some(Request { method, target, headers, body }))
}
