//! Fetching through a CONNECT proxy, well and badly behaved.

use std::{
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{Shutdown, TcpStream},
    sync::{Arc, Mutex},
    time::Duration,
};

use tidegate_git::{Proxy, Remote, State};

use super::{
    Fixture, engine, remote,
    repository::Repository,
    server::Server,
    ssh::{
        self,
        server::{Sshd, listen},
    },
};

/// What the proxy does with a request.
#[derive(Clone, Copy)]
pub(crate) enum Conduct {
    /// Opens the connection.
    Connect,
    /// Answers this, and closes the connection.
    Answer(&'static str),
    /// Never answers.
    Hang,
    /// Answers one byte at a time, without an end.
    Drip,
    /// Sends this without an end.
    Flood(&'static [u8]),
    /// Says that the connection is open, and is the git server itself.
    Lie,
    /// Opens a connection to a server that speaks no ssh.
    Elsewhere,
    /// Opens the connection, and sends its answer together with what the server sends first.
    Eager,
}

/// A proxy. Its requests are kept.
pub(crate) struct Relay {
    pub(crate) port: u16,
    requests: Arc<Mutex<Vec<String>>>,
}

impl Relay {
    pub(crate) fn start(conduct: Conduct) -> Relay {
        let requests = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&requests);
        let port = listen(move |client| {
            let mut reader = BufReader::new(client.try_clone().unwrap());
            let mut head = String::new();
            while !head.ends_with("\r\n\r\n") && reader.read_line(&mut head).is_ok_and(|count| count != 0) {}
            kept.lock().unwrap().push(head.clone());
            conduct.serve(client, &head);
        });
        Relay { port, requests }
    }

    pub(crate) fn proxy(&self, credentials: Option<(&str, &str)>) -> Proxy {
        let credentials = credentials.map(|(user, password)| (user.to_owned(), password.to_owned()));
        Proxy::new(&format!("http://localhost:{}", self.port), credentials).unwrap()
    }

    pub(crate) fn requests(&self) -> Vec<String> {
        self.requests.lock().unwrap().clone()
    }
}

impl Conduct {
    fn serve(self, mut client: TcpStream, head: &str) {
        match self {
            Conduct::Connect | Conduct::Eager => {
                let target = head.split(' ').nth(1).unwrap();
                let mut server = TcpStream::connect(target).unwrap();
                let mut answer = b"HTTP/1.1 200 Connection established\r\nVia: 1.1 proxy\r\n\r\n".to_vec();
                while matches!(self, Conduct::Eager) && !answer.ends_with(b"SSH-2.0-Go\r\n") {
                    let mut byte = [0];
                    server.read_exact(&mut byte).unwrap();
                    answer.push(byte[0]);
                }
                client.write_all(&answer).unwrap();
                let (mut from_client, mut to_server) = (client.try_clone().unwrap(), server.try_clone().unwrap());
                let forth = std::thread::spawn(move || {
                    let _ = std::io::copy(&mut from_client, &mut to_server);
                    let _ = to_server.shutdown(Shutdown::Write);
                });
                let _ = std::io::copy(&mut server, &mut client);
                let _ = client.shutdown(Shutdown::Both);
                forth.join().unwrap();
            }
            Conduct::Answer(text) => {
                let _ = client.write_all(text.as_bytes());
                let _ = client.shutdown(Shutdown::Write);
                let _ = client.read_to_end(&mut Vec::new());
            }
            Conduct::Elsewhere => {
                let _ = client.write_all(b"HTTP/1.1 200 OK\r\n\r\n");
                while client.write_all(b"220 mail.example.com ESMTP\r\n").is_ok() {}
            }
            Conduct::Hang => drop(client.read_to_end(&mut Vec::new())),
            Conduct::Drip => {
                let mut answer = b"HTTP/1.1 200 OK\r\nVia: ".iter().chain(std::iter::repeat(&b'x'));
                while answer.next().is_some_and(|byte| client.write_all(&[*byte]).is_ok()) {
                    // The client sends nothing more, so this waits.
                    let _ = client.set_read_timeout(Some(Duration::from_millis(500)));
                    let _ = client.read(&mut [0]);
                }
            }
            Conduct::Flood(bytes) => while client.write_all(bytes).is_ok() {},
            Conduct::Lie => {
                let _ = client.write_all(b"HTTP/1.1 200 OK\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\ngit");
                let _ = client.shutdown(Shutdown::Write);
                let _ = client.read_to_end(&mut Vec::new());
            }
        }
    }
}

#[tokio::test]
async fn a_fetch_goes_through_the_proxy_which_gets_its_own_credentials_only() {
    let repository = Repository::with(&[("a.yaml", "1")]);
    let server = Server::start(&repository.root());
    let relay = Relay::start(Conduct::Connect);
    let credentials = Some(tidegate_git::Credentials::Bearer("t0ken".into()));
    let proxy = Some(relay.proxy(Some(("anna", "s3cret"))));
    Fixture::new(Remote { proxy, credentials, ..remote(&server) }).update().await;
    let requests = relay.requests();
    let target = server.url("").trim_end_matches('/').trim_start_matches("https://").to_owned();
    assert!(!requests.is_empty());
    for request in requests {
        assert!(request.starts_with(&format!("CONNECT {target} HTTP/1.1\r\n")), "{request}");
        assert!(request.contains("Proxy-Authorization: Basic YW5uYTpzM2NyZXQ=\r\n"), "{request}");
        assert!(!request.contains("t0ken") && !request.to_lowercase().contains("\r\nauthorization:"), "{request}");
    }
    assert!(server.requests().iter().all(|request| request.authorization() == Some("Bearer t0ken")));
    assert!(server.requests().iter().all(|request| !request.headers.contains_key("proxy-authorization")));
}

#[tokio::test]
async fn a_host_that_is_excepted_is_reached_directly() {
    let repository = Repository::with(&[("a.yaml", "1")]);
    let server = Server::start(&repository.root());
    let relay = Relay::start(Conduct::Hang);
    let proxy = Some(relay.proxy(None).except("example.com,localhost"));
    Fixture::new(Remote { proxy, ..remote(&server) }).update().await;
    assert!(relay.requests().is_empty());
}

#[tokio::test]
async fn the_proxy_of_the_process_is_used_unless_a_source_has_its_own() {
    let repository = Repository::with(&[("a.yaml", "1")]);
    let server = Server::start(&repository.root());
    let (of_process, own) = (Relay::start(Conduct::Connect), Relay::start(Conduct::Connect));
    let folder = tempfile::tempdir().unwrap();
    let state = State::open(folder.path()).unwrap().with_engine(engine(96)).with_proxy(Some(of_process.proxy(None)));
    let mirror = state.mirror(&tidegate_core::name::Key::new("kcp-system", "a"), &remote(&server).url).unwrap();
    mirror.fetch(&remote(&server)).await.unwrap();
    let before = of_process.requests().len();
    assert!(0 < before && own.requests().is_empty());
    mirror.fetch(&Remote { proxy: Some(own.proxy(None)), ..remote(&server) }).await.unwrap();
    assert!(before == of_process.requests().len() && !own.requests().is_empty());
}

#[tokio::test]
async fn what_a_proxy_does_wrong_becomes_a_sentence_that_names_it() {
    let repository = Repository::with(&[("a.yaml", "1")]);
    let server = Server::start(&repository.root());
    let failure = async |conduct: Conduct| {
        let relay = Relay::start(conduct);
        let remote = Remote { proxy: Some(relay.proxy(None)), timeout: Duration::from_secs(20), ..remote(&server) };
        let error = Fixture::new(remote).fetch().await.expect_err("the fetch fails");
        let place = format!("cannot reach {} through the proxy localhost:{}: ", server.url("repo"), relay.port);
        (error.reason(), error.to_string().replace(&place, "PLACE"))
    };
    for (conduct, expected) in [
        (
            Conduct::Answer("HTTP/1.1 407 s3cret\r\n\r\n"),
            "PLACEit requires other credentials: correct username and password of the proxy",
        ),
        (
            Conduct::Answer("HTTP/1.1 403 s3cret\r\n\r\n"),
            "PLACEit refuses the git server: allow it in the settings of the proxy",
        ),
        (Conduct::Answer("HTTP/1.1 504 s3cret\r\n\r\n"), "PLACEit cannot reach the git server"),
        (
            Conduct::Answer("HTTP/1.1 400 s3cret\r\n\r\n"),
            "PLACEit does not open a connection to the git server: it must allow CONNECT",
        ),
    ] {
        assert_eq!(failure(conduct).await, ("Unreachable", expected.to_owned()));
    }
    for conduct in [
        Conduct::Answer(""),
        Conduct::Answer("s3cret\r\n\r\n"),
        Conduct::Flood(b"s3cret\r\n"),
        Conduct::Flood(b"x"),
        Conduct::Lie,
    ] {
        let (reason, sentence) = failure(conduct).await;
        assert!(["Unreachable", "AnswerNotUnderstood"].contains(&reason), "{reason}: {sentence}");
        assert!(!sentence.contains("s3cret"), "{sentence}");
    }
    assert!(server.requests().is_empty());
}

#[tokio::test]
async fn a_proxy_that_hangs_or_is_not_there_is_said_so() {
    let repository = Repository::with(&[("a.yaml", "1")]);
    let server = Server::start(&repository.root());
    let proxy = Some(Relay::start(Conduct::Hang).proxy(None));
    let hangs = Fixture::new(Remote { proxy, timeout: Duration::from_millis(500), ..remote(&server) });
    let error = hangs.fetch().await.unwrap_err();
    assert_eq!(error.reason(), "Timeout");
    assert!(error.to_string().contains(" took longer than 500 ms through the proxy localhost:"), "{error}");
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let proxy = Proxy::new(&format!("localhost:{port}"), None).unwrap();
    let absent = Fixture::new(Remote { proxy: Some(proxy), ..remote(&server) }).fetch().await.unwrap_err();
    let expected =
        format!("cannot reach {} through the proxy localhost:{port}: connection refused", server.url("repo"));
    assert_eq!(absent.to_string(), expected);
}

/// Fetches twice through a proxy that drips: each fetch ends at its deadline, so the second one need not wait for it.
async fn assert_punctual(remote: Remote) {
    let fixture = Fixture::new(Remote { timeout: Duration::from_secs(1), ..remote });
    let start = std::time::Instant::now();
    for _ in 0..2 {
        let error = fixture.fetch().await.unwrap_err();
        assert_eq!(error.reason(), "Timeout", "{error}");
        assert!(error.to_string().contains(" took longer than 1 s through the proxy localhost:"), "{error}");
    }
    assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
}

#[tokio::test]
async fn a_fetch_through_a_proxy_that_drips_ends_at_the_deadline() {
    let repository = Repository::with(&[("a.yaml", "1")]);
    let server = Server::start(&repository.root());
    let relay = Relay::start(Conduct::Drip);
    assert_punctual(Remote { proxy: Some(relay.proxy(None)), ..remote(&server) }).await;
    assert_eq!(relay.requests().len(), 2);
}

#[tokio::test]
async fn link_local_addresses_are_refused_through_a_proxy_as_well() {
    let repository = Repository::with(&[("a.yaml", "1")]);
    let server = Server::start(&repository.root());
    let relay = Relay::start(Conduct::Connect);
    for host in ["169.254.169.254", "[fe80::1]", "2852039166"] {
        let url = format!("https://{host}/repo").parse().unwrap();
        let fixture = Fixture::new(Remote { url, proxy: Some(relay.proxy(None)), ..remote(&server) });
        assert_eq!(fixture.fetch().await.unwrap_err().reason(), "AddressRefused", "{host}");
    }
    assert!(relay.requests().is_empty());
    let proxy = Some(Proxy::new("http://169.254.169.254:3128", None).unwrap());
    let fixture = Fixture::new(Remote { proxy, ..remote(&server) });
    assert_eq!(fixture.fetch().await.unwrap_err().reason(), "AddressRefused");
}

// --- ssh ---

/// A fetch over ssh from this server, through this proxy.
fn over_ssh(url: &str, proxy: Proxy) -> Remote {
    let access = ssh::access("ed25519", &["host_ed25519"]);
    Remote { proxy: Some(proxy), ..ssh::remote(url, access) }
}

#[tokio::test]
async fn a_fetch_over_ssh_goes_through_the_proxy_which_sees_only_the_host() {
    let repository = Repository::with(&[("a.yaml", "1")]);
    let server = Sshd::start(&repository.root(), &["host_ed25519"], &[]).await;
    for conduct in [Conduct::Connect, Conduct::Eager] {
        let relay = Relay::start(conduct);
        let fixture = Fixture::new(over_ssh(&server.url("repo"), relay.proxy(Some(("anna", "s3cret")))));
        fixture.update().await;
        repository.commit(&[("a.yaml", "2")]);
        fixture.update().await;
        let expected = format!(
            "CONNECT localhost:{port} HTTP/1.1\r\nHost: localhost:{port}\r\nProxy-Authorization: Basic \
             YW5uYTpzM2NyZXQ=\r\n\r\n",
            port = server.port()
        );
        assert_eq!(relay.requests(), [expected.clone(), expected]);
    }
}

#[tokio::test]
async fn a_host_of_ssh_that_is_excepted_is_reached_directly_and_the_proxy_of_the_process_is_not_for_ssh() {
    let repository = Repository::with(&[("a.yaml", "1")]);
    let server = Sshd::start(&repository.root(), &["host_ed25519"], &[]).await;
    let relay = Relay::start(Conduct::Hang);
    Fixture::new(over_ssh(&server.url("repo"), relay.proxy(None).except("localhost"))).update().await;

    let folder = tempfile::tempdir().unwrap();
    let state = State::open(folder.path()).unwrap().with_engine(engine(96)).with_proxy(Some(relay.proxy(None)));
    let remote = Remote { proxy: None, ..over_ssh(&server.url("repo"), relay.proxy(None)) };
    let mirror = state.mirror(&tidegate_core::name::Key::new("kcp-system", "a"), &remote.url).unwrap();
    mirror.fetch(&remote).await.unwrap();
    assert!(relay.requests().is_empty());
}

#[tokio::test]
async fn a_proxy_before_an_ssh_server_that_does_wrong_becomes_a_sentence_that_names_it() {
    let repository = Repository::with(&[("a.yaml", "1")]);
    let server = Sshd::start(&repository.root(), &["host_ed25519"], &[]).await;
    let failure = async |conduct: Conduct| {
        let relay = Relay::start(conduct);
        let remote = Remote { timeout: Duration::from_secs(20), ..over_ssh(&server.url("repo"), relay.proxy(None)) };
        let error = Fixture::new(remote).fetch().await.expect_err("the fetch fails");
        let place = format!("cannot reach {} through the proxy localhost:{}: ", server.url("repo"), relay.port);
        (error.reason(), error.to_string().replace(&place, "PLACE"))
    };
    let no_proxy = "PLACEit does not answer as an HTTP proxy";
    for (conduct, expected) in [
        (
            Conduct::Answer("HTTP/1.1 407 s3cret\r\n\r\n"),
            "PLACEit requires other credentials: correct username and password of the proxy",
        ),
        (
            Conduct::Answer("HTTP/1.1 403 s3cret\r\n\r\n"),
            "PLACEit refuses the git server: allow it in the settings of the proxy",
        ),
        (Conduct::Answer("HTTP/1.1 504 s3cret\r\n\r\n"), "PLACEit cannot reach the git server"),
        (
            Conduct::Answer("HTTP/1.1 302 s3cret\r\nLocation: http://s3cret\r\n\r\n"),
            "PLACEit does not open a connection to the git server: it must allow CONNECT",
        ),
        (Conduct::Answer(""), no_proxy),
        (Conduct::Answer("s3cret\r\n\r\n"), no_proxy),
        (Conduct::Answer("HTTP/1.1 200"), no_proxy),
        (Conduct::Answer("SSH-2.0-OpenSSH_9.9\r\n"), no_proxy),
        (Conduct::Flood(b"s3cret\r\n"), no_proxy),
        (Conduct::Flood(b"x"), no_proxy),
        (Conduct::Lie, "PLACEthe connection ended before ssh began"),
        (Conduct::Elsewhere, "PLACEwhat it connects to is not an ssh server"),
    ] {
        assert_eq!(failure(conduct).await, ("Unreachable", expected.to_owned()));
    }
    // Not even the version of a client arrived.
    assert!(server.log().iter().all(|line| line == "refused"), "{:?}", server.log());
}

#[tokio::test]
async fn a_proxy_before_an_ssh_server_that_hangs_is_absent_or_lies_about_the_host_gets_nothing() {
    let repository = Repository::with(&[("a.yaml", "1")]);
    let server = Sshd::start(&repository.root(), &["host_ed25519"], &[]).await;
    let url = server.url("repo");
    let hanging = Relay::start(Conduct::Hang);
    let hangs = Remote { timeout: Duration::from_millis(500), ..over_ssh(&url, hanging.proxy(None)) };
    let error = Fixture::new(hangs).fetch().await.unwrap_err();
    assert_eq!(error.reason(), "Timeout");
    assert!(error.to_string().contains(" through the proxy localhost:"), "{error}");
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let absent = Proxy::new(&format!("localhost:{port}"), None).unwrap();
    let absent = Fixture::new(over_ssh(&url, absent)).fetch().await.unwrap_err();
    assert_eq!(
        absent.to_string(),
        format!("cannot reach {url} through the proxy localhost:{port}: connection refused")
    );
    // It connects to a server of its own: the host's key says so.
    let other = Sshd::start(&repository.root(), &["host_ecdsa"], &[]).await;
    let (target, relay) = (other.port(), Relay::start(Conduct::Connect));
    let lying = listen(move |client| {
        let mut reader = BufReader::new(client.try_clone().unwrap());
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") && reader.read_line(&mut head).is_ok_and(|count| count != 0) {}
        Conduct::Connect.serve(client, &format!("CONNECT localhost:{target} HTTP/1.1"));
    });
    let lying = Proxy::new(&format!("localhost:{lying}"), None).unwrap();
    let error = Fixture::new(over_ssh(&url, lying)).fetch().await.unwrap_err();
    assert!(["HostKeyNotTrusted", "AlgorithmRefused"].contains(&error.reason()), "{error}");
    assert!(other.log().iter().all(|line| line == "refused"), "{:?}", other.log());

    for host in ["169.254.169.254", "[fe80::1]", "2852039166"] {
        let fixture = Fixture::new(over_ssh(&format!("ssh://git@{host}/repo"), relay.proxy(None)));
        assert_eq!(fixture.fetch().await.unwrap_err().reason(), "AddressRefused", "{host}");
    }
    let forbidden = Proxy::new("http://169.254.169.254:3128", None).unwrap();
    assert_eq!(Fixture::new(over_ssh(&url, forbidden)).fetch().await.unwrap_err().reason(), "AddressRefused");
    assert!(relay.requests().is_empty());
}

#[tokio::test]
async fn a_fetch_over_ssh_through_a_proxy_that_drips_ends_at_the_deadline() {
    let repository = Repository::with(&[("a.yaml", "1")]);
    let server = Sshd::start(&repository.root(), &["host_ed25519"], &[]).await;
    let relay = Relay::start(Conduct::Drip);
    assert_punctual(over_ssh(&server.url("repo"), relay.proxy(None))).await;
    assert_eq!(relay.requests().len(), 2);
}

#[tokio::test]
async fn the_connection_to_a_proxy_before_an_ssh_server_may_be_tls() {
    let repository = Repository::with(&[("a.yaml", "1")]);
    let server = Sshd::start(&repository.root(), &["host_ed25519"], &[]).await;
    // It answers to CONNECT in HTTP over TLS, and opens nothing.
    let proxy = Server::start(&repository.root());
    proxy.behave(|request| match request.method.as_str() {
        "CONNECT" => super::server::Action::Answer(407, Vec::new(), Vec::new()),
        _ => super::server::Action::Hang,
    });
    let address = proxy.url("").trim_end_matches('/').to_owned();
    let remote = over_ssh(&server.url("repo"), Proxy::new(&address, None).unwrap());
    let sentence = async |ca: Option<Vec<u8>>| {
        let error = Fixture::new(Remote { ca, ..remote.clone() }).fetch().await.unwrap_err().to_string();
        error.rsplit_once(": its ").map_or_else(|| error.clone(), |(_, end)| end.to_owned())
    };
    let refused = "it requires other credentials: correct username and password of the proxy";
    let found = sentence(Some(proxy.ca.clone())).await;
    assert!(found.ends_with(refused), "{found}");
    assert_eq!(sentence(None).await, "certificate is not trusted: let the system of Tidegate trust its CA");
    assert_eq!(proxy.requests().iter().map(|request| request.target.clone()).collect::<Vec<_>>().len(), 1);
}
