//! Fetching through a CONNECT proxy, well and badly behaved.

use std::{
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{Shutdown, TcpStream},
    sync::{Arc, Mutex},
    time::Duration,
};

use tidegate_git::{Proxy, Remote, State};

use super::{Fixture, engine, remote, repository::Repository, server::Server, ssh::server::listen};

/// What the proxy does with a request.
#[derive(Clone, Copy)]
pub(crate) enum Conduct {
    /// Opens the connection.
    Connect,
    /// Answers this, and closes the connection.
    Answer(&'static str),
    /// Never answers.
    Hang,
    /// Sends this without an end.
    Flood(&'static [u8]),
    /// Says that the connection is open, and is the git server itself.
    Lie,
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

    fn proxy(&self, credentials: Option<(&str, &str)>) -> Proxy {
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
            Conduct::Connect => {
                let target = head.split(' ').nth(1).unwrap();
                let server = TcpStream::connect(target).unwrap();
                client.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n").unwrap();
                let (mut from_client, mut to_server) = (client.try_clone().unwrap(), server.try_clone().unwrap());
                let forth = std::thread::spawn(move || {
                    let _ = std::io::copy(&mut from_client, &mut to_server);
                    let _ = to_server.shutdown(Shutdown::Write);
                });
                let mut server = server;
                let _ = std::io::copy(&mut server, &mut client);
                let _ = client.shutdown(Shutdown::Both);
                forth.join().unwrap();
            }
            Conduct::Answer(text) => {
                let _ = client.write_all(text.as_bytes());
                let _ = client.shutdown(Shutdown::Write);
                let _ = client.read_to_end(&mut Vec::new());
            }
            Conduct::Hang => drop(client.read_to_end(&mut Vec::new())),
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
    assert_eq!(hangs.fetch().await.unwrap_err().reason(), "Timeout");
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let proxy = Proxy::new(&format!("localhost:{port}"), None).unwrap();
    let absent = Fixture::new(Remote { proxy: Some(proxy), ..remote(&server) }).fetch().await.unwrap_err();
    let expected =
        format!("cannot reach {} through the proxy localhost:{port}: connection refused", server.url("repo"));
    assert_eq!(absent.to_string(), expected);
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
