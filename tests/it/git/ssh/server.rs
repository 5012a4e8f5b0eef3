//! An ssh server that is built from a Go module, that of OpenSSH where it is installed, and a relay that can cut
//! connections.

use std::{
    fs,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{Shutdown, TcpListener, TcpStream},
    os::{fd::OwnedFd, unix::fs::PermissionsExt as _},
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

/// The server of OpenSSH, one process for each connection.
pub(crate) struct OpenSsh {
    port: u16,
    user: String,
    folder: tempfile::TempDir,
}

impl OpenSsh {
    /// Serves the repositories of this machine to all keys of the tests but `ca`, with these host keys. `None` if
    /// OpenSSH's server is not installed: the tests need no package of a distribution.
    pub(crate) fn start(host_keys: &[&str]) -> Option<OpenSsh> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let folders = std::env::split_paths(&path).chain(["/usr/sbin".into(), "/usr/local/sbin".into()]);
        let program = folders.map(|folder| folder.join("sshd")).find(|program| program.is_file())?;
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = folder.path().join(name);
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
            path.display().to_string()
        };
        let authorized = ["ed25519.pub", "ecdsa.pub", "ecdsa521.pub", "rsa.pub"].map(key).concat();
        let mut config = format!("AuthorizedKeysFile {}\n", write("authorized_keys", &authorized));
        config += "StrictModes no\nUsePAM no\nPasswordAuthentication no\nPermitRootLogin prohibit-password\n";
        for name in host_keys {
            config += &format!("HostKey {}\n", write(name, &key(name)));
        }
        let config = write("sshd_config", &config);
        // A server of the administrator needs this empty folder, which the system makes when its service starts.
        let _ = fs::create_dir("/run/sshd");
        let log = folder.path().join("log");
        let port = listen(move |stream| {
            let (input, output) = (OwnedFd::from(stream.try_clone().unwrap()), OwnedFd::from(stream));
            let mut command = Command::new(&program);
            command.args(["-i", "-f", &config, "-E"]).arg(&log).stdin(input).stdout(output).stderr(Stdio::null());
            // It ends with its connection.
            let _ = command.status();
        });
        let user = Command::new("id").arg("-un").output().unwrap().stdout;
        let user = String::from_utf8(user).unwrap().trim().to_owned();
        Some(OpenSsh { port, user, folder })
    }

    /// The URL of a folder on this machine.
    pub(crate) fn url(&self, path: &Path) -> String {
        format!("ssh://{}@localhost:{}{}", self.user, self.port, path.display())
    }

    /// What the server says of its connections.
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
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
