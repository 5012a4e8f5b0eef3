//! What git servers answer beside git: each kind of trouble is a sentence that says what to do.

use std::{
    io::{Read as _, Write as _},
    net::TcpListener,
    time::Duration,
};

use tidegate_git::{Credentials, Error, Remote};
use tidegate_process::retry::Class;

use crate::git::{
    Fixture,
    pack::{Answers, Pack, packet},
    remote,
    repository::Repository,
    server::{Action, Fault, Request, Server},
};

/// An answer to a request.
type Answer = fn(&Request) -> Action;

const ADVERTISEMENT: &str = "application/x-git-upload-pack-advertisement";
const RESULT: &str = "application/x-git-upload-pack-result";
const ID: &str = "0123456789abcdef0123456789abcdef01234567";

fn status(status: u16) -> Action {
    Action::Answer(status, vec![("content-type", "text/plain".into())], b"try s3cret at https://u:p@h/x?t=1".to_vec())
}

fn later(status: u16, seconds: &str) -> Action {
    Action::Answer(status, vec![("retry-after", seconds.to_owned())], b"try s3cret at https://u:p@h/x?t=1".to_vec())
}

fn body(kind: &'static str, body: impl AsRef<[u8]>) -> Action {
    Action::Answer(200, vec![("content-type", kind.into())], body.as_ref().to_vec())
}

/// An advertisement with these lines.
fn references(lines: &[&str]) -> Action {
    let lines: Vec<u8> = lines.iter().flat_map(|line| packet(line.as_bytes())).collect();
    body(ADVERTISEMENT, [&packet(b"# service=git-upload-pack\n")[..], b"0000", &lines, b"0000"].concat())
}

/// A good advertisement, and another answer to the request for a pack.
fn for_pack(request: &Request, answer: impl FnOnce() -> Action) -> Action {
    if request.is_for_pack() { answer() } else { good().to(request) }
}

fn good() -> Answers {
    let mut pack = Pack::default();
    let tip = pack.commit("a.yaml", b"1");
    Answers::new(tip, pack.finish())
}

/// Kind of trouble, what the server does, the reason, and the sentence after the URL.
const TROUBLE: &[(&str, Answer, &str, &str)] = &[
    ("400", |_| status(400), "AnswerNotUnderstood", "HTTP status 400: check the URL"),
    ("401", |_| status(401), "AuthenticationFailed", "rejected the credentials: check"),
    ("402", |_| status(402), "AnswerNotUnderstood", "HTTP status 402: check the URL"),
    ("403", |_| status(403), "AccessDenied", "denied access (403): give the credentials permission"),
    ("404", |_| status(404), "RepositoryNotFound", "or these credentials have no access to it"),
    ("405", |_| status(405), "AnswerNotUnderstood", "HTTP status 405: check the URL"),
    ("407", |_| status(407), "AnswerNotUnderstood", "a proxy requires credentials"),
    ("408", |_| status(408), "ServerError", "HTTP status 408: the git server or a proxy"),
    ("410", |_| status(410), "RepositoryNotFound", "or these credentials have no access to it"),
    ("429", |_| status(429), "RateLimited", "limits the rate of requests; set a longer spec.interval"),
    ("451", |_| status(451), "AnswerNotUnderstood", "HTTP status 451: check the URL"),
    ("500", |_| status(500), "ServerError", "HTTP status 500: the git server or a proxy"),
    ("501", |_| status(501), "ServerError", "HTTP status 501: the git server or a proxy"),
    ("502", |_| status(502), "ServerError", "HTTP status 502: the git server or a proxy"),
    ("503", |_| status(503), "ServerError", "HTTP status 503: the git server or a proxy"),
    ("504", |_| status(504), "ServerError", "HTTP status 504: the git server or a proxy"),
    ("520", |_| status(520), "ServerError", "HTTP status 520: the git server or a proxy"),
    ("503 later", |_| later(503, "99999999999999999999999"), "ServerError", "and asks to wait 3600 s"),
    ("403 later", |_| later(403, "7"), "RateLimited", "and asks to wait 7 s"),
    ("206", |_| status(206), "AnswerNotUnderstood", "HTTP status 206: this is not an answer of a git server"),
    ("web page", |_| body("text/html", "<html>"), "AnswerNotUnderstood", "a web page instead of git: check the URL"),
    (
        "sign-in page",
        |_| Action::Answer(302, vec![("location", "/login".into())], vec![]),
        "RedirectRefused",
        "in circles",
    ),
    (
        "another scheme",
        |_| Action::Answer(302, vec![("location", "ftp://x/".into())], vec![]),
        "RedirectRefused",
        "redirects to a URL that is neither https nor http",
    ),
    ("dumb", |_| body("text/plain", format!("{ID}\trefs/heads/main\n")), "AnswerNotUnderstood", "serves files only"),
    ("text", |_| body("text/plain", "hello"), "AnswerNotUnderstood", "is not a git server (smart HTTP): check the URL"),
    (
        "no type",
        |_| Action::Answer(200, vec![], vec![]),
        "AnswerNotUnderstood",
        "is not a git server (smart HTTP): check",
    ),
    (
        "nothing",
        |_| body(ADVERTISEMENT, ""),
        "AnswerNotUnderstood",
        "ended too early: the git server or a proxy closed",
    ),
    (
        "garbage",
        |_| body(ADVERTISEMENT, "garbage"),
        "AnswerNotUnderstood",
        "is not git's protocol: check what is between",
    ),
    (
        "cut references",
        |_| body(ADVERTISEMENT, "001e# service=git-upload-pack\n0000003d"),
        "AnswerNotUnderstood",
        "ended too early",
    ),
    (
        "another service",
        |_| body(ADVERTISEMENT, "001f# service=git-receive-pack\n0000"),
        "AnswerNotUnderstood",
        "not git's protocol",
    ),
    ("refused", |_| references(&["ERR access denied\n"]), "RepositoryNotFound", "or these credentials have no access"),
    ("locked", |_| references(&["ERR repository is locked\n"]), "ServerError", "reports an error"),
    ("SHA-256", |_| references(&["x HEAD\0object-format=sha256\n"]), "ObjectFormatNotSupported", "SHA-256 object ids"),
    ("empty", |_| references(&[]), "RepositoryEmpty", "is empty: push a commit to it"),
    (
        "empty, with capabilities",
        |_| references(&["0000000000000000000000000000000000000000 capabilities^{}\0x\n"]),
        "RepositoryEmpty",
        "is empty: push",
    ),
    (
        "no branch",
        |_| references(&["0123456789abcdef0123456789abcdef01234567 refs/heads/dev\0x\n"]),
        "RevisionNotFound",
        "has no branch `main`: correct spec.ref",
    ),
    ("pack: 401", |request| for_pack(request, || status(401)), "AuthenticationFailed", "rejected the credentials"),
    ("pack: 403", |request| for_pack(request, || status(403)), "AccessDenied", "denied access (403)"),
    ("pack: 413", |request| for_pack(request, || status(413)), "AnswerNotUnderstood", "HTTP status 413"),
    ("pack: 500", |request| for_pack(request, || status(500)), "ServerError", "HTTP status 500"),
    (
        "pack: web page",
        |request| for_pack(request, || body("text/html", "<html>")),
        "AnswerNotUnderstood",
        "a web page instead of git",
    ),
    (
        "pack: redirect",
        |request| for_pack(request, || Action::Answer(307, vec![("location", "/x".into())], vec![])),
        "RedirectRefused",
        "in the middle of a fetch",
    ),
    ("pack: nothing", |request| for_pack(request, || body(RESULT, "")), "AnswerNotUnderstood", "ended too early"),
    (
        "pack: garbage",
        |request| for_pack(request, || body(RESULT, "garbage")),
        "AnswerNotUnderstood",
        "not git's protocol",
    ),
    (
        "pack: error",
        |request| for_pack(request, || body(RESULT, packet(b"ERR no\n"))),
        "ServerError",
        "reports an error",
    ),
    (
        "pack: fatal",
        |request| for_pack(request, || body(RESULT, [packet(b"NAK\n"), packet(b"\x03no\n")].concat())),
        "ServerError",
        "reports an error",
    ),
    (
        "pack: none",
        |request| for_pack(request, || body(RESULT, "0008NAK\n0000")),
        "AnswerNotUnderstood",
        "contains no objects: check",
    ),
    (
        "pack: only words",
        |request| for_pack(request, || body(RESULT, [&packet(b"\x02disk full\n")[..], b"0000"].concat())),
        "ServerError",
        "reports an error",
    ),
    (
        "pack: cut",
        |request| {
            for_pack(request, || {
                let mut bytes = good().result();
                bytes.truncate(100);
                body(RESULT, bytes)
            })
        },
        "AnswerNotUnderstood",
        "ended too early",
    ),
    (
        "pack: too many objects",
        |request| for_pack(request, || body(RESULT, packet(b"\x01PACK\0\0\0\x02\xff\xff\xff\xff"))),
        "LimitExceeded",
        "sends more than 10000000 objects",
    ),
    (
        "pack: a wrong checksum",
        |request| {
            for_pack(request, || {
                let mut bytes = good().result();
                let at = bytes.len() - 8;
                bytes[at] ^= 1;
                body(RESULT, bytes)
            })
        },
        "AnswerNotUnderstood",
        "a damaged pack: check the repository",
    ),
    (
        "pack: a wrong object",
        |request| {
            for_pack(request, || {
                let mut bytes = good().result();
                bytes[60] ^= 0x55;
                body(RESULT, bytes)
            })
        },
        "AnswerNotUnderstood",
        "a damaged pack: check the repository",
    ),
    (
        "pack: another commit",
        |request| {
            for_pack(request, || {
                let mut pack = Pack::default();
                pack.commit("b.yaml", b"2");
                Answers::new("", pack.finish()).to(request)
            })
        },
        "AnswerNotUnderstood",
        "lacks objects: check the repository",
    ),
];

#[tokio::test]
async fn each_kind_of_trouble_is_a_sentence_that_says_what_to_do() {
    let repository = Repository::with(&[("a.yaml", "1")]);
    let server = Server::start(&repository.root());
    let credentials = Some(Credentials::Basic { username: "user".into(), password: "s3cret".into() });
    for (kind, answer, reason, sentence) in TROUBLE {
        server.behave(answer);
        let fixture = Fixture::new(Remote { credentials: credentials.clone(), ..remote(&server) });
        let error = fixture.fetch().await.expect_err(kind);
        assert_eq!(error.reason(), *reason, "{kind}: {error}");
        assert!(error.to_string().contains(sentence), "{kind}: {error}");
        // The words of the server are for the condition only, and cleaned.
        assert!(!format!("{error} {error:?}").contains("try "), "{kind}: {error:?}");
        if let Some(said) = error.said().map(ToString::to_string) {
            let expected = ["try *** at https://h/x", "no", "access denied", "repository is locked", "disk full"];
            assert!(expected.contains(&said.as_str()), "{kind}: {said}");
        }
    }
}

#[tokio::test]
async fn what_a_server_says_of_an_error_is_known_to_the_operator() {
    let repository = Repository::with(&[("a.yaml", "1")]);
    let server = Server::start(&repository.root());
    let fixture = Fixture::new(Remote { credentials: Some(Credentials::Bearer("t0ken".into())), ..remote(&server) });
    let typed = |kind: &str| vec![("content-type", kind.to_owned())];
    for (headers, body, said) in [
        (
            typed("text/plain; charset=utf-8"),
            "remote: Your token t0ken has expired.\r\n",
            Some("Your token *** has expired."),
        ),
        (
            typed("application/json"),
            r#"{"code": 7, "message": "Repository is archived"}"#,
            Some("Repository is archived"),
        ),
        (typed("application/json"), "[1]", None),
        (typed("text/html"), "<html>Sign in</html>", None),
        (vec![], "who knows", None),
        (typed("text/plain"), "", None),
    ] {
        server.behave(move |_| Action::Answer(403, headers.clone(), body.as_bytes().to_vec()));
        let error = fixture.fetch().await.unwrap_err();
        assert_eq!(error.said().map(ToString::to_string).as_deref(), said, "{body}");
    }
}

#[tokio::test]
async fn a_server_that_asks_to_wait_is_waited_for() {
    let repository = Repository::with(&[("a.yaml", "1")]);
    let server = Server::start(&repository.root());
    let fixture = Fixture::new(remote(&server));
    for (status, value, expected) in [
        (429, "120", Some(120)),
        (503, "7", Some(7)),
        (403, "60", Some(60)),
        (429, "soon", None),
        (503, "Fri, 31 Dec 2100 23:59:59 GMT", Some(3600)),
    ] {
        server.behave(move |_| Action::Answer(status, vec![("retry-after", value.into())], vec![]));
        let error = fixture.fetch().await.unwrap_err();
        assert_eq!(error.retry_after(), expected.map(Duration::from_secs), "{error}");
        assert_eq!(error.class(), Class::Transient, "{error}");
        if let Some(seconds) = expected {
            assert!(error.to_string().ends_with(&format!("and asks to wait {seconds} s")), "{error}");
        }
    }
}

#[tokio::test]
async fn a_tls_failure_says_which_of_seven_it_is() {
    let repository = Repository::with(&[("a.yaml", "1")]);
    let unknown = Server::start(&repository.root());
    let check = |error: Error, reason: &str, sentence: &str| {
        assert_eq!(error.reason(), reason, "{error}");
        assert!(error.to_string().contains(sentence), "{error}");
    };
    for (fault, reason, sentence) in [
        (Fault::Expired, "CertificateNotTrusted", "has expired: renew it"),
        (Fault::NotYetValid, "CertificateNotTrusted", "is not valid yet: check the clocks"),
        (Fault::OtherHost, "CertificateNotTrusted", "for other hosts: use a host of the certificate"),
        (Fault::NoName, "CertificateNotTrusted", "without a host name: issue one with a subjectAltName"),
        (Fault::IsCa, "CertificateNotTrusted", "is for a CA (CA:TRUE): issue one with basicConstraints CA:FALSE"),
        (Fault::WantsClient, "ClientCertificateRequired", "requires a client certificate"),
    ] {
        let server = Server::start_with(&repository.root(), fault);
        let error = Fixture::new(remote(&server)).fetch().await.expect_err(reason);
        check(error, reason, sentence);
    }
    let other = Server::start(&repository.root());
    let error = Fixture::new(Remote { ca: Some(other.ca.clone()), ..remote(&unknown) }).fetch().await.unwrap_err();
    check(error, "CertificateNotTrusted", "of an unknown CA: if the CA is private");
}

#[tokio::test]
async fn a_port_that_speaks_something_else_is_said_so() {
    let repository = Repository::with(&[("a.yaml", "1")]);
    let server = Server::start(&repository.root());
    for (scheme, greeting, expected) in [
        ("http", "", "the connection was closed before an answer"),
        ("http", "SSH-2.0-OpenSSH_9.9\r\n", "is not HTTP: check the scheme and the port"),
        ("https", "HTTP/1.1 400 Bad Request\r\n\r\n", "does not speak TLS: check the scheme and the port"),
    ] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("{scheme}://{}/repo", listener.local_addr().unwrap()).parse().unwrap();
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let _ = stream.read(&mut [0; 4096]);
            let _ = stream.write_all(greeting.as_bytes());
        });
        let error = Fixture::new(Remote { url, ..remote(&server) }).fetch().await.unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
}
