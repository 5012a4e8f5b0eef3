//! Routes an API server's calls to webhooks to a port on this machine, without a cluster network.
//!
//! kube-apiserver sends its cluster traffic through a proxy on a unix socket: a `CONNECT` with the address of the
//! webhook's Service. This module is that proxy and routes every call to one loopback port, for any Service. TLS passes
//! through unchanged, so the webhook is verified under its Service's name. Without a port, calls are refused, as for a
//! Service without Pods.

use std::{
    io::{self, BufRead as _, BufReader, Write as _},
    net::{Ipv4Addr, Shutdown, TcpStream},
    os::unix::net::{UnixListener, UnixStream},
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU16, AtomicU64, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use serde_json::{Value, json};

use crate::{Error, Folder};

/// The proxy of one API server. Dropping it stops the proxy.
pub struct Egress {
    shared: Arc<Shared>,
    socket: PathBuf,
    thread: Option<JoinHandle<()>>,
    // Dropped after the thread, because it contains the socket. The path of a socket is limited to about 100 bytes, so
    // the folder is a temporary one.
    _folder: Folder,
}

#[derive(Default)]
struct Shared {
    /// Zero if there is none.
    port: AtomicU16,
    calls: AtomicU64,
    ended: AtomicBool,
}

/// Limit for reading a request. It has a few lines, and kube-apiserver sends it at once.
const REQUEST_MAX: Duration = Duration::from_secs(5);

// === impl Egress ===

impl Egress {
    /// Starts a proxy.
    pub(super) fn start() -> Result<Egress, Error> {
        let folder = Folder::temporary("tidegate-egress-")?;
        let socket = folder.path().join("proxy");
        let listener = UnixListener::bind(&socket).map_err(Error::file("listen on", &socket))?;
        let shared = Arc::new(Shared::default());
        let accepting = Arc::clone(&shared);
        let thread = thread::spawn(move || accept(&listener, &accepting));
        Ok(Egress { shared, socket, thread: Some(thread), _folder: folder })
    }

    /// The configuration that makes kube-apiserver use it.
    pub(super) fn configuration(&self) -> Value {
        json!({
            "apiVersion": "apiserver.k8s.io/v1beta1", "kind": "EgressSelectorConfiguration",
            "egressSelections": [{
                "name": "cluster",
                "connection": {
                    "proxyProtocol": "HTTPConnect",
                    "transport": {"uds": {"udsName": self.socket}},
                },
            }],
        })
    }

    /// Routes calls to this loopback port; with `None`, they are refused.
    pub fn lead_to(&self, port: Option<u16>) {
        self.shared.port.store(port.unwrap_or(0), Ordering::Relaxed);
    }

    /// The number of connections so far. kube-apiserver reuses them, so this is not the number of calls.
    pub fn connections(&self) -> u64 {
        self.shared.calls.load(Ordering::Relaxed)
    }
}

impl Drop for Egress {
    fn drop(&mut self) {
        self.shared.ended.store(true, Ordering::Relaxed);
        // Wakes the thread, which waits for the next connection.
        drop(UnixStream::connect(&self.socket));
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn accept(listener: &UnixListener, shared: &Arc<Shared>) {
    for stream in listener.incoming() {
        if shared.ended.load(Ordering::Relaxed) {
            return;
        }
        let Ok(stream) = stream else { continue };
        let shared = Arc::clone(shared);
        // The thread ends with its connection, at the latest when the API server ends.
        thread::spawn(move || drop(serve(stream, &shared)));
    }
}

/// Answers one `CONNECT` and copies bytes in both directions until one side ends.
fn serve(stream: UnixStream, shared: &Shared) -> io::Result<()> {
    stream.set_read_timeout(Some(REQUEST_MAX))?;
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut line = String::new();
    // The request line and the headers, up to the empty line.
    while reader.read_line(&mut line)? > 0 && !line.trim_end().is_empty() {
        line.clear();
    }
    shared.calls.fetch_add(1, Ordering::Relaxed);
    let mut writer = stream;
    let port = shared.port.load(Ordering::Relaxed);
    let Some(upstream) = (port != 0).then(|| TcpStream::connect((Ipv4Addr::LOCALHOST, port)).ok()).flatten() else {
        return writer.write_all(b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n");
    };
    upstream.set_nodelay(true)?;
    writer.write_all(b"HTTP/1.1 200 Connection Established\r\n\r\n")?;
    writer.set_read_timeout(None)?;
    let (mut from_agent, to_client) = (upstream.try_clone()?, writer.try_clone()?);
    let back = thread::spawn(move || {
        let mut to_client = to_client;
        let _ = io::copy(&mut from_agent, &mut to_client);
        let _ = to_client.shutdown(Shutdown::Both);
    });
    let mut upstream = upstream;
    // The reader may contain bytes that the client sent after its request.
    let copied = io::copy(&mut reader, &mut upstream);
    let _ = upstream.shutdown(Shutdown::Both);
    let _ = back.join();
    copied.map(drop)
}

/// The name of the configuration file in an API server's folder.
pub(super) const FILE: &str = "egress.yaml";
