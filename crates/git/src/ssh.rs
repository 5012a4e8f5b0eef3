//! Git's protocol over ssh, with russh: one connection for a fetch, and one `git-upload-pack` on it.
//!
//! A fetch runs on a thread of its own (see [`super::thread`]) and this code on a runtime of that fetch, so what a
//! server does delays nothing else. Before the host's key is checked, nothing but the version and the algorithms of
//! Tidegate is sent. It runs no program, asks no agent, and lets the server open no channel.

mod algorithms;
mod host_key;
mod identity;
pub(super) mod known_hosts;
mod tunnel;

use std::{
    fs::File,
    io::{self, Read},
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use bytes::Bytes;
use russh::{
    AlgorithmKind, Channel, ChannelMsg, SshId,
    client::{self, AuthResult, Handle},
    keys::{Algorithm, HashAlg, PrivateKey, PrivateKeyWithHashAlg, PublicKeyBase64 as _, PublicKeyOrCertificate},
};
use tokio::{
    net::{TcpStream, lookup_host},
    runtime::Runtime,
};

pub use self::{
    host_key::{HostKey, HostKeyProblem},
    identity::{IdentityProblem, SshAccess},
};
use self::{
    known_hosts::{HostKeys, KnownHosts},
    tunnel::Stream,
};
use super::{
    address::is_forbidden_literal,
    advertisement::{self, Advertisement},
    answer,
    error::Error,
    flaw::Flaw,
    limits::{ADVERTISEMENT_BYTES_MAX, PACK_BYTES_MAX},
    proxy::Proxy,
    remote::{Reference, Remote},
    server_message,
    state::state_error,
    transport,
    url::{SshTarget, Url},
};
use tidegate_process::{address::is_forbidden, ambient, lock::Mutex};

/// One fetch.
pub(super) struct Session {
    url: Url,
    deadline: Instant,
    timeout: Duration,
    received_bytes: AtomicU64,
    connection: Mutex<Connection>,
}

/// Dropping this value closes the connection.
struct Connection {
    /// `None` only while this value is dropped.
    runtime: Option<Runtime>,
    handle: Handle<Client>,
    command: Vec<u8>,
    /// The program whose references were read, and that waits for a request.
    program: Option<Program>,
}

/// A `git-upload-pack` that runs on the server.
struct Program {
    channel: Channel<client::Msg>,
    /// What arrived and was not read.
    rest: Bytes,
    /// The start of what it prints for people.
    words: Vec<u8>,
    is_over: bool,
}

/// What a program prints, within a limit and until the deadline.
struct Output<'a> {
    session: &'a Session,
    runtime: &'a Runtime,
    program: &'a mut Program,
    remaining: u64,
    limit: u64,
    what: &'static str,
    failure: Option<Error>,
}

/// What russh asks Tidegate while a connection is open.
struct Client {
    host: String,
    port: u16,
    known: Option<Arc<KnownHosts>>,
    problem: Arc<Mutex<Option<HostKeyProblem>>>,
}

/// How long the end of an unused program may take.
const FAREWELL_MAX: Duration = Duration::from_secs(1);

// === impl Session ===

impl Session {
    /// Connects, checks the host's key, and authenticates.
    ///
    /// # Errors
    ///
    /// Fails if the private key or `known_hosts` is invalid, if the host is not trusted, or if it rejects the key.
    pub(super) fn new(remote: &Remote, target: &SshTarget, deadline: Instant) -> Result<Arc<Session>, Error> {
        let access = remote.ssh.as_ref().ok_or(Error::Identity { why: IdentityProblem::NoSecret })?;
        let key = access.key().map_err(|why| Error::Identity { why })?;
        let known = access.known_hosts.as_deref().map(KnownHosts::parse).transpose();
        let known = known.map_err(|why| Error::KnownHosts { why: why.to_string() })?.map(Arc::new);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|_| Error::Thread)?;
        let attempt = Attempt { remote, url: &remote.url, target, key, known, deadline, timeout: remote.timeout };
        let handle = wait(&runtime, attempt.within(attempt.connect()));
        let handle = match handle {
            Ok(handle) => handle,
            Err(error) => {
                // Name resolution cannot be interrupted.
                runtime.shutdown_background();
                return Err(error);
            }
        };
        Ok(Arc::new(Session {
            url: remote.url.clone(),
            deadline,
            timeout: remote.timeout,
            received_bytes: AtomicU64::new(0),
            connection: Mutex::new(Connection {
                runtime: Some(runtime),
                handle,
                command: command(&target.path),
                program: None,
            }),
        }))
    }

    /// Starts `git-upload-pack`, and returns what a fetch needs of its references.
    pub(super) fn advertisement(&self, follow: &Reference) -> Result<Advertisement, Error> {
        let mut connection = self.connection.lock();
        let Connection { runtime, handle, command, program } = &mut *connection;
        let runtime = runtime.as_ref().ok_or(Error::Thread)?;
        let mut started = wait(runtime, self.within(start(&self.url, handle, command)))?;
        let mut output = self.output(runtime, &mut started, ADVERTISEMENT_BYTES_MAX, "bytes of references");
        let result = advertisement::read_without_service(&mut output, follow);
        let failure = output.failure.take();
        let found = result.map_err(|problem| match problem {
            advertisement::Problem::Cut => self.ended_early(&started),
            other => transport::advertisement_error(&self.url, None, other, |_| self.failure(failure)),
        })?;
        *program = Some(started);
        Ok(found)
    }

    /// Requests a pack, and writes it to a file.
    pub(super) fn pack(&self, request: Vec<u8>, path: &Path) -> Result<(), Error> {
        let mut target = File::create(path).map_err(state_error("create", path))?;
        let mut connection = self.connection.lock();
        let Connection { runtime, handle, command, program } = &mut *connection;
        let runtime = runtime.as_ref().ok_or(Error::Thread)?;
        let mut running = match program.take() {
            Some(running) => running,
            // A program answers one request; the next one needs another, whose references are known.
            None => {
                let mut started = wait(runtime, self.within(start(&self.url, handle, command)))?;
                let output = self.output(runtime, &mut started, ADVERTISEMENT_BYTES_MAX, "bytes of references");
                advertisement::skip(output).map_err(|_| self.answer(Flaw::Protocol))?;
                started
            }
        };
        let sending = async { running.channel.data_bytes(request).await.map_err(|_| self.answer(Flaw::Cut)) };
        wait(runtime, self.within(sending))?;
        let mut output = self.output(runtime, &mut running, PACK_BYTES_MAX, "bytes of objects");
        let result = answer::unwrap(&mut output, &mut target);
        let failure = output.failure.take();
        result.map_err(|problem| match problem {
            answer::Problem::Cut => self.ended_early(&running),
            other => transport::pack_error(&self.url, None, other, path, |_| self.failure(failure)),
        })
    }

    /// Tells a program that its references were all that is needed, so that it does not report a broken connection.
    pub(super) fn finish(&self) {
        let mut connection = self.connection.lock();
        let Connection { runtime, handle, program, .. } = &mut *connection;
        if let (Some(runtime), Some(program)) = (runtime.as_ref(), program.take()) {
            let farewell = async {
                let _ = program.channel.data_bytes(&b"0000"[..]).await;
                let _ = program.channel.eof().await;
                let _ = handle.disconnect(russh::Disconnect::ByApplication, "", "").await;
            };
            // The result does not matter: the fetch is done.
            let _ = wait(runtime, async { tokio::time::timeout(FAREWELL_MAX, farewell).await });
        }
    }

    /// Bytes of answers so far.
    pub(super) fn received_bytes(&self) -> u64 {
        self.received_bytes.load(Ordering::Relaxed)
    }

    fn output<'a>(
        &'a self,
        runtime: &'a Runtime,
        program: &'a mut Program,
        limit: u64,
        what: &'static str,
    ) -> Output<'a> {
        Output { session: self, runtime, program, remaining: limit, limit, what, failure: None }
    }

    async fn within<T>(&self, work: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
        within(&self.url, self.deadline, self.timeout, work).await
    }

    fn answer(&self, flaw: Flaw) -> Error {
        Error::Answer { url: Box::new(self.url.clone()), flaw }
    }

    fn failure(&self, recorded: Option<Error>) -> Error {
        recorded.unwrap_or_else(|| self.answer(Flaw::Cut))
    }

    /// Why a program ended before its answer did: what it prints for people says so.
    fn ended_early(&self, program: &Program) -> Error {
        if program.words.iter().all(u8::is_ascii_whitespace) {
            return self.answer(Flaw::Cut);
        }
        transport::advertisement_error(&self.url, None, advertisement::refused(&program.words), |_| {
            self.answer(Flaw::Cut)
        })
    }
}

/// Waits for work of a fetch. In a simulation, this thread drives the runtime of the simulation and cannot wait for
/// another one, so another thread does.
fn wait<T: Send>(runtime: &Runtime, work: impl Future<Output = T> + Send) -> T {
    if tokio::runtime::Handle::try_current().is_err() {
        return runtime.block_on(work);
    }
    let waited = std::thread::scope(|scope| scope.spawn(|| runtime.block_on(work)).join());
    waited.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// Ends work at the deadline.
async fn within<T>(
    url: &Url,
    deadline: Instant,
    timeout: Duration,
    work: impl Future<Output = Result<T, Error>>,
) -> Result<T, Error> {
    let over = || Error::Deadline { url: Box::new(url.clone()), proxy: None, timeout };
    let remaining = deadline.saturating_duration_since(Instant::now());
    if remaining.is_zero() {
        return Err(over());
    }
    tokio::time::timeout(remaining, work).await.map_err(|_| over())?
}

/// The command that reads a repository, quoted for the server's shell.
fn command(path: &str) -> Vec<u8> {
    let quoted = path.replace('\'', r"'\''").replace('!', r"'\!'");
    format!("git-upload-pack '{quoted}'").into_bytes()
}

/// Starts `git-upload-pack`.
async fn start(url: &Url, handle: &Handle<Client>, command: &[u8]) -> Result<Program, Error> {
    let error = |error| connection_error(url, &error);
    let mut channel = handle.channel_open_session().await.map_err(error)?;
    channel.exec(true, command).await.map_err(error)?;
    loop {
        match channel.wait().await {
            Some(ChannelMsg::Success) => {
                return Ok(Program { channel, rest: Bytes::new(), words: Vec::new(), is_over: false });
            }
            Some(ChannelMsg::Failure) => return Err(Error::NoCommand { url: Box::new(url.clone()) }),
            Some(ChannelMsg::WindowAdjusted { .. }) => {}
            Some(_) | None => return Err(Error::Answer { url: Box::new(url.clone()), flaw: Flaw::Cut }),
        }
    }
}

// === impl Attempt ===

/// One connection.
struct Attempt<'a> {
    remote: &'a Remote,
    url: &'a Url,
    target: &'a SshTarget,
    key: PrivateKey,
    known: Option<Arc<KnownHosts>>,
    deadline: Instant,
    timeout: Duration,
}

impl Attempt<'_> {
    async fn within<T>(&self, work: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
        within(self.url, self.deadline, self.timeout, work).await
    }

    async fn connect(&self) -> Result<Handle<Client>, Error> {
        let stream = self.reach().await?;
        let known = self.known.as_ref().map(|known| known.of(&self.target.host, self.target.port));
        let config = client::Config {
            client_id: SshId::Standard(concat!("SSH-2.0-Tidegate_", env!("CARGO_PKG_VERSION")).into()),
            preferred: algorithms::offered(&known.unwrap_or_default()),
            nodelay: true,
            ..client::Config::default()
        };
        let problem = Arc::new(Mutex::new(None));
        let client = Client {
            host: self.target.host.clone(),
            port: self.target.port,
            known: self.known.clone(),
            problem: Arc::clone(&problem),
        };
        let connected = client::connect_stream(Arc::new(config), stream, client).await;
        if let Some(why) = problem.lock().take() {
            let flaw = self.known.as_ref().and_then(|known| known.flaw()).map(|flaw| flaw.to_string());
            return Err(Error::HostKey { url: self.url(), why, flaw });
        }
        let mut handle = connected.map_err(|error| self.unconnected(&error))?;
        self.authenticate(&mut handle).await?;
        Ok(handle)
    }

    /// The proxy of this connection, if there is one for the server.
    fn proxy(&self) -> Option<&Proxy> {
        self.remote.proxy.as_ref().filter(|proxy| proxy.is_for(&self.target.host))
    }

    /// Why ssh could not begin.
    fn unconnected(&self, error: &russh::Error) -> Error {
        let error = connection_error(self.url, error);
        let why = match &error {
            Error::Answer { flaw: Flaw::NotSsh, .. } => "what it connects to is not an ssh server",
            Error::Answer { flaw: Flaw::Cut, .. } => "the connection ended before ssh began",
            _ => return error,
        };
        match self.proxy() {
            Some(proxy) => Error::Proxy { url: self.url(), proxy: proxy.to_string(), why },
            None => error,
        }
    }

    /// Opens a connection to the server, through the proxy if there is one for it.
    async fn reach(&self) -> Result<Box<dyn Stream>, Error> {
        let SshTarget { host, port, .. } = self.target;
        let direct = |why| Error::Connect { url: self.url(), why };
        let Some(proxy) = self.proxy() else {
            return Ok(Box::new(self.dial((host, *port), direct).await?));
        };
        // The proxy resolves names. What is an address already can be checked here.
        if is_forbidden_literal(host) {
            return Err(Error::Address { host: host.clone() });
        }
        let through = |why| Error::Proxy { url: self.url(), proxy: proxy.to_string(), why };
        let stream = self.dial((proxy.host(), proxy.port()), through).await?;
        tunnel::open(stream, proxy, self.remote.ca.as_deref(), (host, *port)).await.map_err(|failure| match failure {
            tunnel::Failure::Proxy(why) => through(why),
            tunnel::Failure::Authorities => Error::Authorities,
        })
    }

    /// Connects to the first address of a host that answers.
    async fn dial(
        &self,
        (host, port): (&str, u16),
        failure: impl Fn(&'static str) -> Error,
    ) -> Result<TcpStream, Error> {
        let found = lookup_host((host, port)).await.map_err(|_| failure("cannot resolve the host name"))?;
        let addresses: Vec<_> = found.collect();
        // One forbidden address among valid ones is suspicious, so refuse the name.
        if addresses.iter().any(|address| is_forbidden(address.ip())) {
            return Err(Error::Address { host: host.to_owned() });
        }
        let mut error = failure("cannot resolve the host name");
        for (index, address) in addresses.iter().enumerate() {
            let left = u32::try_from(addresses.len() - index).unwrap_or(u32::MAX);
            let time = self.deadline.saturating_duration_since(Instant::now()) / left;
            error = match tokio::time::timeout(time, TcpStream::connect(address)).await {
                Ok(Ok(stream)) => return Ok(stream),
                Ok(Err(error)) => failure(match error.kind() {
                    io::ErrorKind::ConnectionRefused => "connection refused",
                    io::ErrorKind::HostUnreachable | io::ErrorKind::NetworkUnreachable => "no route to the host",
                    _ => "no connection",
                }),
                Err(_) => Error::Deadline { url: self.url(), proxy: None, timeout: self.timeout },
            };
        }
        Err(error)
    }

    async fn authenticate(&self, handle: &mut Handle<Client>) -> Result<(), Error> {
        let error = |error| connection_error(self.url, &error);
        let hashes = match self.key.algorithm() {
            Algorithm::Rsa { .. } => match handle.best_supported_rsa_hash().await.map_err(error)? {
                Some(Some(hash)) => vec![Some(hash)],
                Some(None) => {
                    let (kind, offered) = ("signature of an RSA key", vec!["ssh-rsa"]);
                    return Err(Error::Algorithms { url: self.url(), kind, offered });
                }
                // The server does not say which it knows.
                None => vec![Some(HashAlg::Sha512), Some(HashAlg::Sha256)],
            },
            _ => vec![None],
        };
        let key = Arc::new(self.key.clone());
        for hash in hashes {
            let key = PrivateKeyWithHashAlg::new(Arc::clone(&key), hash);
            match handle.authenticate_publickey(&self.target.user, key).await.map_err(error)? {
                AuthResult::Success => return Ok(()),
                AuthResult::Failure { partial_success: true, .. } => {
                    return Err(Error::SecondFactor { url: self.url() });
                }
                AuthResult::Failure { .. } if handle.is_closed() => {
                    return Err(Error::Answer { url: self.url(), flaw: Flaw::Cut });
                }
                AuthResult::Failure { .. } => {}
            }
        }
        let fingerprint = known_hosts::fingerprint(&self.key.public_key_bytes());
        Err(Error::KeyRejected { url: self.url(), user: self.target.user.clone(), fingerprint })
    }

    fn url(&self) -> Box<Url> {
        Box::new(self.url.clone())
    }
}

/// Converts an error of russh. None of its text is repeated, because it may come from the server.
fn connection_error(url: &Url, error: &russh::Error) -> Error {
    let url = Box::new(url.clone());
    let flaw = match error {
        russh::Error::NoCommonAlgo { kind, theirs, .. } => {
            let kind = match kind {
                AlgorithmKind::Kex => "key exchange",
                AlgorithmKind::Key => "algorithm of host keys",
                AlgorithmKind::Cipher => "cipher",
                AlgorithmKind::Compression => "compression",
                AlgorithmKind::Mac => "MAC",
            };
            return Error::Algorithms { url, kind, offered: algorithms::refused(theirs) };
        }
        russh::Error::Version => Flaw::NotSsh,
        russh::Error::Disconnect
        | russh::Error::HUP
        | russh::Error::SendError
        | russh::Error::RecvError
        | russh::Error::IO(_)
        | russh::Error::Join(_) => Flaw::Cut,
        russh::Error::ChannelOpenFailure(_) => return Error::NoCommand { url },
        _ => Flaw::Ssh,
    };
    Error::Answer { url, flaw }
}

// === impl Client ===

impl client::Handler for Client {
    type Error = russh::Error;

    async fn check_server_key(&mut self, found: &PublicKeyOrCertificate) -> Result<bool, russh::Error> {
        let known: Option<HostKeys<'_>> = self.known.as_ref().map(|known| known.of(&self.host, self.port));
        let now = u64::try_from(ambient::now().as_second()).unwrap_or_default();
        match host_key::check(found, &self.host, known.as_ref(), now) {
            Ok(()) => Ok(true),
            Err(why) => {
                *self.problem.lock() = Some(why);
                Ok(false)
            }
        }
    }

    // A server has no reason to open a channel. Dropping the reply refuses it.

    async fn server_channel_open_forwarded_tcpip(
        &mut self,
        _: Channel<client::Msg>,
        _: &str,
        _: u32,
        _: &str,
        _: u32,
        _: client::ChannelOpenHandle,
        _: &mut client::Session,
    ) -> Result<(), russh::Error> {
        Ok(())
    }

    async fn server_channel_open_forwarded_streamlocal(
        &mut self,
        _: Channel<client::Msg>,
        _: &str,
        _: client::ChannelOpenHandle,
        _: &mut client::Session,
    ) -> Result<(), russh::Error> {
        Ok(())
    }

    async fn server_channel_open_agent_forward(
        &mut self,
        _: Channel<client::Msg>,
        _: client::ChannelOpenHandle,
        _: &mut client::Session,
    ) -> Result<(), russh::Error> {
        Ok(())
    }

    async fn server_channel_open_session(
        &mut self,
        _: Channel<client::Msg>,
        _: client::ChannelOpenHandle,
        _: &mut client::Session,
    ) -> Result<(), russh::Error> {
        Ok(())
    }

    async fn server_channel_open_direct_tcpip(
        &mut self,
        _: Channel<client::Msg>,
        _: &str,
        _: u32,
        _: &str,
        _: u32,
        _: client::ChannelOpenHandle,
        _: &mut client::Session,
    ) -> Result<(), russh::Error> {
        Ok(())
    }

    async fn server_channel_open_direct_streamlocal(
        &mut self,
        _: Channel<client::Msg>,
        _: &str,
        _: client::ChannelOpenHandle,
        _: &mut client::Session,
    ) -> Result<(), russh::Error> {
        Ok(())
    }

    async fn server_channel_open_x11(
        &mut self,
        _: Channel<client::Msg>,
        _: &str,
        _: u32,
        _: client::ChannelOpenHandle,
        _: &mut client::Session,
    ) -> Result<(), russh::Error> {
        Ok(())
    }
}

// === impl Connection ===

impl Drop for Connection {
    fn drop(&mut self) {
        // This may be a task of the daemon's runtime, in which no other runtime can be waited for.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

// === impl Program ===

impl Program {
    /// Waits for output. Returns none of it at the end.
    async fn next(&mut self) -> Bytes {
        while self.rest.is_empty() && !self.is_over {
            match self.channel.wait().await {
                Some(ChannelMsg::Data { data }) => self.rest = data,
                Some(ChannelMsg::ExtendedData { data, .. }) => {
                    let room = server_message::BYTES_MAX.saturating_sub(self.words.len());
                    self.words.extend(data.iter().take(room));
                }
                // What it printed for people may follow the end of its output.
                Some(ChannelMsg::Close) | None => self.is_over = true,
                Some(_) => {}
            }
        }
        std::mem::take(&mut self.rest)
    }
}

// === impl Output ===

impl Read for Output<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let (session, program) = (self.session, &mut *self.program);
        let next = wait(self.runtime, session.within(async { Ok(program.next().await) }));
        let mut bytes = match next {
            Ok(bytes) => bytes,
            Err(error) => {
                self.failure = Some(error);
                return Err(io::Error::other("the fetch failed"));
            }
        };
        let taken = bytes.split_to(bytes.len().min(buffer.len()));
        self.program.rest = bytes;
        buffer[..taken.len()].copy_from_slice(&taken);
        let count = taken.len() as u64;
        if self.remaining < count {
            let (what, limit) = (self.what, self.limit);
            self.failure = Some(Error::TooMuch { url: Box::new(session.url.clone()), what, limit });
            return Err(io::Error::other("the fetch failed"));
        }
        self.remaining -= count;
        session.received_bytes.fetch_add(count, Ordering::Relaxed);
        Ok(taken.len())
    }
}
