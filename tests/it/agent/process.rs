//! The agent as a process: its environment, its signals, its exit codes, and what it holds.

use std::{fs, net::SocketAddr, process::Stdio};

use serde_json::Value;
use tokio::{
    io::{AsyncBufReadExt as _, BufReader, Lines},
    net::TcpStream,
    process::{Child, ChildStderr, Command},
    time::timeout,
};

use super::{
    certificates::{Authority, Mount, SERVICE},
    control_plane::{ControlPlane, config},
    http,
    stage::{created, event},
};

/// An agent with its environment.
struct Process {
    child: Child,
    log: Lines<BufReader<ChildStderr>>,
    admission: SocketAddr,
}

fn command(mount: &Mount, control_plane: SocketAddr, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    command
        .arg("agent")
        .args(arguments)
        .env_clear()
        .env("CA_CERT", mount.path().join("ca.crt"))
        .env("TLS_CERT", mount.path().join("tls.crt"))
        .env("TLS_KEY", mount.path().join("tls.key"))
        .env("KCP_ADDR", format!("localhost:{}", control_plane.port()))
        .env("KCP_CONTRACT", "v2")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    command
}

const LOCAL: [&str; 2] = ["-webhook-address=127.0.0.1:0", "--metrics-address=127.0.0.1:0"];

impl Process {
    async fn start(mount: &Mount, control_plane: SocketAddr, arguments: &[&str]) -> Process {
        let arguments = [&LOCAL, arguments].concat();
        let mut child = command(mount, control_plane, &arguments).spawn().unwrap();
        let mut log = BufReader::new(child.stderr.take().unwrap()).lines();
        let mut admission = None;
        let mut others = 0;
        while admission.is_none() || others == 0 {
            let line = timeout(http::PATIENCE, log.next_line()).await.unwrap().unwrap().expect("it runs");
            let record: Value = serde_json::from_str(&line).unwrap();
            if record["msg"] == "listening" {
                let address = record["context"]["address"].as_str().unwrap().parse().unwrap();
                if record["context"]["purpose"] == "reviews" { admission = Some(address) } else { others += 1 }
            }
        }
        Process { child, log, admission: admission.unwrap() }
    }

    async fn change(&self, authority: &Authority, name: &str) {
        let stream = TcpStream::connect(self.admission).await.unwrap();
        let mut stream = http::secured(http::trusting(&authority.pem), SERVICE, stream).await.unwrap();
        let body = serde_json::to_vec(&created(name)).unwrap();
        let answer = http::ask(&mut stream, &http::post("/validate/lifecycle-manager", &body)).await.unwrap();
        assert_eq!(answer.status(), 200);
    }

    fn terminate(&self) {
        let pid = rustix::process::Pid::from_raw(i32::try_from(self.child.id().unwrap()).unwrap()).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    }

    async fn exit_code(&mut self) -> Option<i32> {
        // If the log is not read, the agent blocks on writing it.
        while let Ok(Some(_)) = timeout(http::PATIENCE, self.log.next_line()).await.unwrap() {}
        timeout(http::PATIENCE, self.child.wait()).await.unwrap().unwrap().code()
    }

    fn resident_kib(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id().unwrap())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.split_whitespace().next().unwrap().parse().unwrap()
    }
}

async fn landscape() -> (Authority, Mount, ControlPlane) {
    let authority = Authority::new();
    let control_plane = ControlPlane::start(config(&authority.itself(), &[&authority])).await;
    let mount = Mount::new(&authority.runtime(), &authority.pem);
    (authority, mount, control_plane)
}

#[tokio::test(flavor = "multi_thread")]
async fn row_4_a_missing_variable_is_an_exit_code_and_a_name() {
    let (_authority, mount, control_plane) = landscape().await;
    for name in ["CA_CERT", "TLS_CERT", "TLS_KEY", "KCP_ADDR", "KCP_CONTRACT"] {
        let output = command(&mount, control_plane.address, &[]).env_remove(name).output().await.unwrap();
        assert_eq!(output.status.code(), Some(2), "{name}");
        let text = String::from_utf8(output.stderr).unwrap();
        assert!(text.starts_with(&format!("error: the environment variable {name} is not set")), "{text}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn files_and_ports_that_cannot_be_used_fail_the_start() {
    let (authority, mount, control_plane) = landscape().await;
    let taken = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("--webhook-address={}", taken.local_addr().unwrap());
    let output = command(&mount, control_plane.address, &[&address]).output().await.unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.code() == Some(2) && text.contains("cannot listen on"), "{text}");

    mount.replace(&authority.runtime(), "");
    let output = command(&mount, control_plane.address, &LOCAL).output().await.unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.code() == Some(2) && text.contains("ca.crt contains no certificate in PEM"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn row_5_the_version_needs_no_environment() {
    for flag in ["-version", "--version"] {
        let output =
            Command::new(env!("CARGO_BIN_EXE_tidegate")).args(["agent", flag]).env_clear().output().await.unwrap();
        assert_eq!(output.status.code(), Some(0), "{flag}");
        let expected = format!("Runtime Watcher version: {}\n", env!("CARGO_PKG_VERSION"));
        assert_eq!(String::from_utf8(output.stdout).unwrap(), expected);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn row_43_sigterm_sends_what_waits_and_exits_with_0() {
    let (authority, mount, control_plane) = landscape().await;
    let mut process =
        Process::start(&mount, control_plane.address, &["-settle=1s", "--shutdown-delay=0s", "--resend=0s"]).await;
    process.change(&authority, "default").await;
    process.terminate();
    assert_eq!(process.exit_code().await, Some(0));
    assert_eq!(control_plane.events(), [event("default")]);
}

#[tokio::test(flavor = "multi_thread")]
async fn row_43_what_could_not_be_sent_is_an_exit_code() {
    let (authority, mount, mut control_plane) = landscape().await;
    control_plane.stop().await;
    let mut process = Process::start(&mount, control_plane.address, &["--shutdown-delay=0s", "--flush=200ms"]).await;
    process.change(&authority, "default").await;
    process.terminate();
    assert_eq!(process.exit_code().await, Some(5));
}

#[tokio::test(flavor = "multi_thread")]
async fn row_43_after_a_kill_the_next_process_has_the_runtime_looked_at() {
    let (authority, mount, control_plane) = landscape().await;
    let mut process = Process::start(&mount, control_plane.address, &["--settle=1m"]).await;
    process.change(&authority, "default").await;
    process.child.kill().await.unwrap();
    assert_eq!(control_plane.events(), Vec::<String>::new());
    let _next = Process::start(&mount, control_plane.address, &["--resync-within=100ms"]).await;
    let events = control_plane.wait_for(1).await;
    assert!(events[0].contains("\"Name\":\"skr-webhook\""), "{events:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn ten_thousand_idle_connections_delay_no_other() {
    const CONNECTIONS: u64 = 10_000;
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    setrlimit(Resource::Nofile, limit).unwrap();
    let most = limit.maximum.unwrap_or(u64::MAX);
    assert!(CONNECTIONS + 1_000 < most, "this test needs {CONNECTIONS} files open, and the system allows {most}");

    let (authority, mount, control_plane) = landscape().await;
    let process = Process::start(&mount, control_plane.address, &["--settle=10ms", "--resend=0s"]).await;
    let before = process.resident_kib();
    let mut idle = Vec::new();
    for _ in 0..CONNECTIONS {
        idle.push(TcpStream::connect(process.admission).await.unwrap());
    }
    process.change(&authority, "default").await;
    assert_eq!(control_plane.wait_for(1).await, [event("default")]);
    let grown = process.resident_kib().saturating_sub(before);
    assert!(grown < 32 << 10, "{grown} KiB for connections");
    // Files that are open in the agent: its share and no more.
    let files = fs::read_dir(format!("/proc/{}/fd", process.child.id().unwrap())).unwrap().count();
    assert!(files < 600, "{files}");
}
