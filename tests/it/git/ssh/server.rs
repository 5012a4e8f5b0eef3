//! An ssh server that is built from a Go module, and a relay before it that can cut connections.

use std::{
    fs,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{Shutdown, TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};

use crate::harness;

/// The server. It ends with this value.
pub(crate) struct Sshd {
    child: Child,
    port: u16,
    log: Arc<Mutex<Vec<String>>>,
    _folder: tempfile::TempDir,
}

/// The path of a key for tests.
pub(crate) fn key_path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("crates/git/testdata/ssh").join(name)
}

/// A key for tests.
pub(crate) fn key(name: &str) -> String {
    fs::read_to_string(key_path(name)).unwrap()
}

impl Sshd {
    /// Serves the repositories below `root` to all keys of the tests but `ca`, with these host keys and options.
    pub(crate) async fn start(root: &Path, host_keys: &[&str], options: &[&str]) -> Sshd {
        let folder = tempfile::tempdir().unwrap();
        let authorized = folder.path().join("authorized_keys");
        let keys = ["ed25519.pub", "ecdsa.pub", "ecdsa521.pub", "rsa.pub"].map(key);
        fs::write(&authorized, keys.concat()).unwrap();
        let mut command = Command::new(harness::sshd().await);
        command.arg("--root").arg(root).arg("--authorized").arg(&authorized).args(options);
        for name in host_keys {
            command.arg("--host-key").arg(key_path(name));
        }
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let mut address = String::new();
        output.read_line(&mut address).unwrap();
        let port = address.trim().rsplit(':').next().unwrap().parse().unwrap();
        let log = Arc::new(Mutex::new(Vec::new()));
        let lines = Arc::clone(&log);
        std::thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                lines.lock().unwrap().push(line);
            }
        });
        Sshd { child, port, log, _folder: folder }
    }

    /// The URL of a repository.
    pub(crate) fn url(&self, repository: &str) -> String {
        url(self.port, repository)
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// What clients did so far.
    pub(crate) fn log(&self) -> Vec<String> {
        self.log.lock().unwrap().clone()
    }
}

impl Drop for Sshd {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The URL of a repository on a port of this machine.
pub(crate) fn url(port: u16, repository: &str) -> String {
    format!("ssh://git@localhost:{port}/{repository}")
}

/// Passes connections on to a port, and cuts what comes back.
pub(crate) struct Relay {
    pub(crate) port: u16,
    passed: Arc<AtomicUsize>,
}

impl Relay {
    /// Cuts each connection after so many bytes of the server.
    pub(crate) fn start(to: u16, bytes: usize) -> Relay {
        let passed = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&passed);
        let port = listen(move |client| {
            let Ok(server) = TcpStream::connect(("127.0.0.1", to)) else { return };
            let (mut from_client, mut to_server) = (client.try_clone().unwrap(), server.try_clone().unwrap());
            std::thread::spawn(move || {
                let _ = std::io::copy(&mut from_client, &mut to_server);
                let _ = to_server.shutdown(Shutdown::Write);
            });
            let (mut server, mut client, mut left) = (server, client, bytes);
            let mut buffer = [0; 1024];
            while left != 0 {
                let room = buffer.len().min(left);
                let count = server.read(&mut buffer[..room]).unwrap_or(0);
                if count == 0 || client.write_all(&buffer[..count]).is_err() {
                    break;
                }
                left -= count;
                counter.fetch_add(count, Ordering::SeqCst);
            }
            let _ = client.shutdown(Shutdown::Both);
            let _ = server.shutdown(Shutdown::Both);
        });
        Relay { port, passed }
    }

    /// Bytes of the server so far.
    pub(crate) fn passed(&self) -> usize {
        self.passed.load(Ordering::SeqCst)
    }
}

/// Serves connections on a port of this machine, each on a thread that ends with its client.
pub(crate) fn listen(serve: impl Fn(TcpStream) + Send + Sync + 'static) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let serve = Arc::new(serve);
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let serve = Arc::clone(&serve);
            std::thread::spawn(move || serve(stream));
        }
    });
    port
}
