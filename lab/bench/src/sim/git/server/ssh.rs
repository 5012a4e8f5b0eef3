//! A git server over ssh: `git upload-pack` behind the server of russh. It serves one client that behaves.

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    process::Stdio,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use anyhow::Context as _;
use russh::{
    Channel, ChannelId,
    keys::{
        PrivateKey,
        ssh_key::{LineEnding, private::Ed25519Keypair},
    },
    server::{self, Auth, ChannelOpenHandle, Handle, Msg, Session, VerifiedPublicKey},
};
use tidegate_process::ambient;
use tokio::{
    io::{AsyncWriteExt as _, copy, split},
    net::{TcpListener, TcpStream},
    process::Command,
    task::{AbortHandle, JoinSet},
};

/// A running server. Dropping it stops it.
pub(in crate::sim::git) struct SshServer {
    address: SocketAddr,
    /// The private key of the client, as ssh-keygen writes it.
    identity: String,
    known_hosts: String,
    shared: Arc<Shared>,
    task: AbortHandle,
}

struct Shared {
    root: PathBuf,
    config: Arc<server::Config>,
    /// The key that may read.
    authorized: PrivateKey,
    fetches: AtomicUsize,
}

/// One connection.
struct Connection {
    shared: Arc<Shared>,
    /// The session that the client has opened and not used yet.
    channel: Option<Channel<Msg>>,
    commands: JoinSet<()>,
}

const HOST: &str = "localhost";
/// Exit status of a command that is not served, as of a shell.
const NOT_FOUND: u32 = 127;

// === impl SshServer ===

impl SshServer {
    /// Serves the repositories below `root` to a new key.
    pub(super) async fn start(root: &Path) -> anyhow::Result<SshServer> {
        let (host_key, authorized) = (new_key(), new_key());
        let listener = TcpListener::bind("127.0.0.1:0").await.context("cannot listen for ssh")?;
        let address = listener.local_addr().context("cannot listen for ssh")?;
        let public = host_key.public_key().to_openssh().context("a key can be written")?;
        let known_hosts = format!("[{HOST}]:{} {public}\n", address.port());
        let identity = authorized.to_openssh(LineEnding::LF).context("a key can be written")?.to_string();
        let config = server::Config {
            keys: vec![host_key],
            nodelay: true,
            // As OpenSSH: a client that asks which methods there are waits for nothing.
            auth_rejection_time_initial: Some(Duration::ZERO),
            ..server::Config::default()
        };
        let (config, fetches) = (Arc::new(config), AtomicUsize::new(0));
        let shared = Arc::new(Shared { root: root.to_owned(), config, authorized, fetches });
        let task = tokio::spawn(accept(listener, Arc::clone(&shared))).abort_handle();
        Ok(SshServer { address, identity, known_hosts, shared, task })
    }

    /// The URL of a repository.
    pub(super) fn url(&self, repository: &str) -> String {
        format!("ssh://git@{HOST}:{}/{repository}", self.address.port())
    }

    /// The private key of the client.
    pub(super) fn identity(&self) -> &str {
        &self.identity
    }

    /// The line for `known_hosts`.
    pub(super) fn known_hosts(&self) -> &str {
        &self.known_hosts
    }

    /// How often `git upload-pack` ran.
    pub(super) fn fetches(&self) -> usize {
        self.shared.fetches.load(Ordering::Relaxed)
    }
}

impl Drop for SshServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn new_key() -> PrivateKey {
    let mut seed = [0; 32];
    for bytes in seed.chunks_exact_mut(8) {
        bytes.copy_from_slice(&ambient::number().to_le_bytes());
    }
    Ed25519Keypair::from_seed(&seed).into()
}

/// Serves connections. All of them end with this task.
async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        connections.spawn(converse(stream, Arc::clone(&shared)));
        while connections.try_join_next().is_some() {}
    }
}

/// The daemon reports a connection that fails.
async fn converse(stream: TcpStream, shared: Arc<Shared>) {
    let config = Arc::clone(&shared.config);
    let connection = Connection { shared, channel: None, commands: JoinSet::new() };
    if stream.set_nodelay(true).is_ok()
        && let Ok(session) = server::run_stream(config, stream, connection).await
    {
        let _ = session.await;
    }
}

// === impl Connection ===

impl server::Handler for Connection {
    type Error = russh::Error;

    async fn auth_publickey(&mut self, _: &str, key: VerifiedPublicKey<'_>) -> Result<Auth, russh::Error> {
        let is_authorized = key.public_key.key_data() == self.shared.authorized.public_key().key_data();
        Ok(if is_authorized { Auth::Accept } else { Auth::reject() })
    }

    async fn channel_open_session(
        &mut self,
        channel: Channel<Msg>,
        reply: ChannelOpenHandle,
        _: &mut Session,
    ) -> Result<(), russh::Error> {
        self.channel = Some(channel);
        reply.accept().await;
        Ok(())
    }

    async fn exec_request(&mut self, id: ChannelId, command: &[u8], session: &mut Session) -> Result<(), russh::Error> {
        let Some(channel) = self.channel.take() else { return session.channel_failure(id) };
        session.channel_success(id)?;
        self.shared.fetches.fetch_add(1, Ordering::Relaxed);
        let (root, handle) = (self.shared.root.clone(), session.handle());
        let repository = repository(command).map(|repository| root.join(repository));
        self.commands.spawn(async move {
            let status = match repository {
                Some(path) => upload_pack(&path, channel).await,
                None => NOT_FOUND,
            };
            // A client that is gone needs no status.
            let _ = end(&handle, id, status).await;
        });
        Ok(())
    }
}

async fn end(handle: &Handle, id: ChannelId, status: u32) -> Result<(), ()> {
    handle.exit_status_request(id, status).await?;
    handle.close(id).await
}

/// The repository that a command names, relative to the root.
fn repository(command: &[u8]) -> Option<String> {
    let command = std::str::from_utf8(command).ok()?;
    let path = command.strip_prefix("git-upload-pack '")?.strip_suffix('\'')?;
    Some(path.trim_start_matches('/').to_owned())
}

/// Runs git for a client. Returns its exit status.
async fn upload_pack(path: &Path, channel: Channel<Msg>) -> u32 {
    let child = Command::new("git")
        .arg("upload-pack")
        .arg(path)
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn();
    let Ok(mut child) = child else { return NOT_FOUND };
    let (Some(mut input), Some(mut output)) = (child.stdin.take(), child.stdout.take()) else { return NOT_FOUND };
    let (mut from_client, mut to_client) = split(channel.into_stream());
    let answer = async {
        let copied = copy(&mut output, &mut to_client).await;
        copied.and(to_client.shutdown().await)
    };
    let request = async move {
        // git ends as soon as the client says no more. What it sends after the last answer does not matter.
        let _ = copy(&mut from_client, &mut input).await;
        drop(input);
        std::future::pending::<()>().await;
    };
    tokio::select! {
        _ = answer => {}
        () = request => {}
    }
    let status = child.wait().await.ok().and_then(|status| status.code());
    status.and_then(|code| u32::try_from(code).ok()).unwrap_or(NOT_FOUND)
}
