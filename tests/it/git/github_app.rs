//! Fetching as a GitHub App, from a server that checks JWTs and gives tokens as GitHub documents it, and from bad ones.

use std::{
    fmt::Write as _,
    sync::{
        Arc, Mutex,
        atomic::{AtomicI64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use base64::{
    Engine as _,
    engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD},
};
use jiff::Timestamp;
use ring::signature::{KeyPair as _, RSA_PKCS1_2048_8192_SHA256, RsaKeyPair, UnparsedPublicKey};
use rustls::pki_types::{PrivatePkcs1KeyDer, pem::PemObject as _};
use serde_json::{Value, json};
use tidegate_git::{AppSettings, Error, GitHubApp, Remote};

use super::{
    Fixture,
    proxy::{Conduct, Relay},
    remote,
    repository::Repository,
    server::{Action, Request, Server},
    ssh::server::key,
};

/// What the API does with a request before it looks at it; `None` for what GitHub does.
type Trouble = dyn Fn(&Request) -> Option<Action> + Send + Sync;

/// A GitHub Enterprise Server: its API under `/api/v3`, and repositories that only its last token opens.
pub(crate) struct Hub {
    pub(crate) server: Server,
    shared: Arc<Shared>,
}

struct Shared {
    public_key: Mutex<Vec<u8>>,
    tokens: AtomicUsize,
    /// How long a token lasts, in seconds.
    lifetime: AtomicI64,
    trouble: Mutex<Arc<Trouble>>,
}

/// The app that the server knows, and its only installation.
pub(crate) const APP: &str = "12";
const INSTALLATION: u64 = 345;
/// Two keys, as GitHub generates one and as it is converted.
const KEY: &str = "rsa_pkcs1";
const CONVERTED_KEY: &str = "rsa_pkcs8";

impl Hub {
    pub(crate) fn start(root: &std::path::Path) -> Hub {
        let server = Server::start(root);
        let der = PrivatePkcs1KeyDer::from_pem_slice(key(KEY).as_bytes()).unwrap();
        let pair = RsaKeyPair::from_der(der.secret_pkcs1_der()).unwrap();
        let shared = Arc::new(Shared {
            public_key: Mutex::new(pair.public_key().as_ref().to_vec()),
            tokens: AtomicUsize::new(0),
            lifetime: AtomicI64::new(3600),
            trouble: Mutex::new(Arc::new(|_| None)),
        });
        let hub = Hub { server, shared };
        hub.expect_token();
        hub
    }

    /// The keys of a Secret for the app.
    pub(crate) fn secret(&self) -> Vec<(&'static str, Vec<u8>)> {
        vec![
            ("githubAppID", APP.into()),
            ("githubAppInstallationID", INSTALLATION.to_string().into_bytes()),
            ("githubAppPrivateKey", key(KEY).into_bytes()),
            ("githubAppBaseURL", self.server.url("api/v3").into_bytes()),
            ("ca.crt", self.server.ca.clone()),
        ]
    }

    /// From now on, only another key is the app's; the next call takes that back.
    pub(crate) fn change_key(&self) {
        let mut key = self.shared.public_key.lock().unwrap();
        let last = key.len() - 20;
        key[last] ^= 1;
    }

    /// From now on, this is what git must send.
    pub(crate) fn expect(&self, authorization: &'static str) {
        self.server.behave(move |request| match request.authorization() {
            Some(found) if found == authorization => Action::Serve,
            _ => Action::Answer(401, vec![("www-authenticate", "Bearer".to_owned())], Vec::new()),
        });
    }

    /// From now on, only a token of the app opens repositories, as in the beginning.
    pub(crate) fn expect_token(&self) {
        let shared = Arc::clone(&self.shared);
        self.server.behave(move |request| shared.decide(request));
    }

    /// Revokes the tokens so far.
    pub(crate) fn revoke(&self) {
        self.shared.tokens.fetch_add(1, Ordering::SeqCst);
    }

    /// How often the API gave a token.
    pub(crate) fn given(&self) -> usize {
        self.server.requests().iter().filter(|request| request.target.ends_with("/access_tokens")).count()
    }

    fn settings(&self) -> AppSettings {
        AppSettings {
            id: APP.to_owned(),
            installation: Some(INSTALLATION.to_string()),
            owner: None,
            private_key: key(KEY),
            // The path of an Enterprise server may be left out.
            base_url: Some(self.server.url("").trim_end_matches('/').to_owned()),
        }
    }

    fn remote(&self, settings: AppSettings) -> Remote {
        let remote = remote(&self.server);
        let app = GitHubApp::new(settings, &remote.url).unwrap();
        Remote { github_app: Some(app), ..remote }
    }

    fn trouble(&self, trouble: impl Fn(&Request) -> Option<Action> + Send + Sync + 'static) {
        *self.shared.trouble.lock().unwrap() = Arc::new(trouble);
    }

    async fn error(&self, settings: AppSettings) -> Error {
        let remote = Remote { timeout: Duration::from_secs(10), ..self.remote(settings) };
        Fixture::new(remote).fetch().await.expect_err("the fetch fails")
    }
}

impl Shared {
    fn decide(&self, request: &Request) -> Action {
        let Some(path) = request.target.strip_prefix("/api/v3/") else {
            return if request.authorization() == Some(&self.login()) {
                Action::Serve
            } else {
                Action::Answer(401, vec![("www-authenticate", "Basic realm=\"GitHub\"".to_owned())], Vec::new())
            };
        };
        let trouble = Arc::clone(&*self.trouble.lock().unwrap());
        if let Some(action) = trouble(request) {
            return action;
        }
        if let Err(why) = self.check(request) {
            return answer(401, &json!({"message": why}));
        }
        match (request.method.as_str(), path) {
            ("GET", "orgs/team/installation" | "users/anna/installation") => answer(200, &json!({"id": INSTALLATION})),
            ("POST", "app/installations/345/access_tokens") => {
                assert_eq!(request.body, br#"{"permissions":{"contents":"read"}}"#);
                self.tokens.fetch_add(1, Ordering::SeqCst);
                let end = Timestamp::now().as_second() + self.lifetime.load(Ordering::SeqCst);
                let end = Timestamp::from_second(end).unwrap().to_string();
                answer(201, &json!({"token": self.token(), "expires_at": end, "permissions": {"contents": "read"}}))
            }
            _ => answer(404, &json!({"message": "Not Found"})),
        }
    }

    fn token(&self) -> String {
        format!("ghs_t0ken{}", self.tokens.load(Ordering::SeqCst))
    }

    fn login(&self) -> String {
        format!("Basic {}", STANDARD.encode(format!("x-access-token:{}", self.token())))
    }

    /// Checks a JWT as GitHub documents it.
    fn check(&self, request: &Request) -> Result<(), &'static str> {
        assert_eq!(request.headers["accept"], "application/vnd.github+json");
        assert_eq!(request.headers["x-github-api-version"], "2022-11-28");
        assert!(!request.headers["user-agent"].is_empty());
        let jwt = request.authorization().and_then(|header| header.strip_prefix("Bearer ")).ok_or("no JWT")?;
        let (signed, signature) = jwt.rsplit_once('.').ok_or("A JSON web token could not be decoded")?;
        let signature = URL_SAFE_NO_PAD.decode(signature).map_err(|_| "A JSON web token could not be decoded")?;
        let key = self.public_key.lock().unwrap().clone();
        UnparsedPublicKey::new(&RSA_PKCS1_2048_8192_SHA256, key)
            .verify(signed.as_bytes(), &signature)
            .map_err(|_| "A JSON web token could not be decoded")?;
        let parts: Vec<Value> = signed
            .split('.')
            .map(|part| serde_json::from_slice(&URL_SAFE_NO_PAD.decode(part).unwrap()).unwrap())
            .collect();
        let [header, claims] = &*parts else { return Err("A JSON web token could not be decoded") };
        assert_eq!(*header, json!({"alg": "RS256", "typ": "JWT"}));
        let (issued, end) = (claims["iat"].as_i64().unwrap(), claims["exp"].as_i64().unwrap());
        let now = Timestamp::now().as_second();
        if now < issued {
            return Err(
                "'Issued at' claim ('iat') must be an Integer representing the time that the assertion was issued",
            );
        }
        if end <= now || now + 600 < end {
            return Err("'Expiration time' claim ('exp') is too far in the future");
        }
        if claims["iss"] == APP { Ok(()) } else { Err("Integration not found") }
    }
}

fn answer(status: u16, body: &Value) -> Action {
    Action::Answer(
        status,
        vec![("content-type", "application/json; charset=utf-8".to_owned())],
        body.to_string().into(),
    )
}

#[tokio::test]
async fn a_github_app_signs_a_jwt_for_a_token_that_is_kept_for_later_fetches() {
    let repository = Repository::with(&[("a.yaml", "1")]);
    let hub = Hub::start(&repository.root());
    let fixture = Fixture::new(hub.remote(hub.settings()));
    fixture.update().await;
    repository.commit(&[("a.yaml", "2")]);
    fixture.update().await;
    assert_eq!(hub.given(), 1);
    let of_git = hub.server.requests().into_iter().filter(|request| !request.target.starts_with("/api"));
    assert!(of_git.clone().count() >= 4);
    assert!(of_git.map(|request| request.authorization().unwrap().to_owned()).all(|login| login == hub.shared.login()));

    // A token that ends within a minute is not kept.
    let short = Fixture::new(hub.remote(hub.settings()));
    hub.shared.lifetime.store(59, Ordering::SeqCst);
    short.update().await;
    short.update().await;
    assert_eq!(hub.given(), 3);
    hub.shared.lifetime.store(90, Ordering::SeqCst);
    short.update().await;
    short.update().await;
    assert_eq!(hub.given(), 4);
}

#[tokio::test]
async fn the_installation_is_found_by_its_owner_who_is_an_organization_or_a_user() {
    let repository = Repository::with(&[("a.yaml", "1")]);
    let hub = Hub::start(&repository.root());
    let of = |owner: &str| AppSettings { installation: None, owner: Some(owner.to_owned()), ..hub.settings() };
    for owner in ["team", "anna"] {
        let settings = AppSettings { private_key: key(CONVERTED_KEY), ..of(owner) };
        Fixture::new(hub.remote(settings)).update().await;
    }
    let error = hub.error(of("stranger")).await;
    assert_eq!(error.reason(), "AuthenticationFailed");
    let expected = format!(
        "no token of the GitHub App from {}: the app is not installed for stranger: install it there, or correct \
         githubAppInstallationOwner or githubAppID",
        hub.server.url("api/v3")
    );
    assert_eq!(error.to_string(), expected);
    assert_eq!(error.said().unwrap().to_string(), "Not Found");
    let asked: Vec<String> = hub.server.requests().iter().map(|request| request.target.clone()).collect();
    assert_eq!(asked[asked.len() - 2..], ["/api/v3/orgs/stranger/installation", "/api/v3/users/stranger/installation"]);
}

#[tokio::test]
async fn what_the_api_of_github_answers_becomes_a_sentence_that_says_what_to_do() {
    let repository = Repository::with(&[("a.yaml", "1")]);
    let hub = Hub::start(&repository.root());
    let html = || ("content-type", "text/html".to_owned());
    let of_status = |status: u16| move |_: &Request| Some(answer(status, &json!({"message": "x"})));
    let limited = |headers: Vec<(&'static str, String)>| {
        move |_: &Request| Some(Action::Answer(403, headers.clone(), Vec::new()))
    };
    let late = (Timestamp::now() - Duration::from_secs(600)).strftime("%a, %d %b %Y %H:%M:%S GMT").to_string();
    let soon = (Timestamp::now().as_second() + 100).to_string();
    let rows: Vec<(Box<Trouble>, &str, &str)> = vec![
        (Box::new(of_status(401)), "AuthenticationFailed", "it rejects the signature of the app (401): check that "),
        (
            Box::new(move |_| Some(Action::Answer(401, vec![("date", late.clone())], Vec::new()))),
            "AuthenticationFailed",
            "it rejects the app (401), because its clock and that of Tidegate differ by 60",
        ),
        (Box::new(of_status(403)), "AccessDenied", "it denies the app a token (403): check in the settings of the "),
        (Box::new(of_status(404)), "AuthenticationFailed", "the app has no installation 345: correct githubApp"),
        (Box::new(of_status(422)), "AccessDenied", "it denies the app a token (422): give the app the permission "),
        (Box::new(of_status(429)), "RateLimited", "it limits the rate of requests of the app (429)"),
        (
            Box::new(limited(vec![("retry-after", "90".to_owned())])),
            "RateLimited",
            "it limits the rate of requests of the app (403) and asks to wait 90 s",
        ),
        (
            Box::new(limited(vec![("x-ratelimit-remaining", "0".to_owned()), ("x-ratelimit-reset", soon)])),
            "RateLimited",
            "it limits the rate of requests of the app (403) and asks to wait ",
        ),
        (Box::new(of_status(502)), "ServerError", "it answers with HTTP status 502; Tidegate tries again"),
        (Box::new(of_status(418)), "AnswerNotUnderstood", "it answers with HTTP status 418: check githubAppBaseURL, "),
        (
            Box::new(|_| Some(Action::Answer(302, vec![("location", "https://evil.example.com".into())], Vec::new()))),
            "RedirectRefused",
            "it redirects, which is not followed: correct githubAppBaseURL",
        ),
        (
            Box::new(move |_| Some(Action::Answer(200, vec![html()], b"<html>".to_vec()))),
            "AnswerNotUnderstood",
            "its answer is not one of GitHub's API: check githubAppBaseURL",
        ),
        (
            Box::new(|_| Some(answer(201, &json!({"token": "a b", "expires_at": "2030-01-01T00:00:00Z"})))),
            "AnswerNotUnderstood",
            "its answer is not one of GitHub's API",
        ),
        (
            Box::new(|_| Some(Action::Flood("application/json", b"[".to_vec(), vec![b' '; 4096]))),
            "LimitExceeded",
            "its answer has more than 65536 bytes: check githubAppBaseURL",
        ),
    ];
    for (trouble, reason, expected) in rows {
        hub.trouble(trouble);
        let error = hub.error(hub.settings()).await;
        let sentence = error.to_string();
        let place = format!("no token of the GitHub App from {}: {expected}", hub.server.url("api/v3"));
        assert_eq!(error.reason(), reason, "{sentence}");
        assert!(sentence.starts_with(&place), "{sentence}");
    }
    assert!(hub.server.requests().iter().all(|request| request.target.starts_with("/api/v3/app/")), "git is not asked");
    hub.trouble(|_| None);
    hub.change_key();
    let error = hub.error(hub.settings()).await;
    assert!(error.to_string().contains("it rejects the signature of the app (401)"), "{error}");
}

#[tokio::test]
async fn an_api_that_hangs_is_cut_off_or_is_not_trusted_ends_the_fetch_in_time() {
    let repository = Repository::with(&[("a.yaml", "1")]);
    let hub = Hub::start(&repository.root());
    hub.trouble(|_| Some(Action::Hang));
    let hangs = Remote { timeout: Duration::from_millis(500), ..hub.remote(hub.settings()) };
    let error = Fixture::new(hangs).fetch().await.unwrap_err();
    assert_eq!(error.to_string(), format!("{} took longer than 500 ms", hub.server.url("api/v3")));
    hub.trouble(|_| None);
    let error = Fixture::new(Remote { ca: None, ..hub.remote(hub.settings()) }).fetch().await.unwrap_err();
    assert_eq!(error.reason(), "CertificateNotTrusted");
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let absent = AppSettings { base_url: Some(format!("https://localhost:{port}/api/v3")), ..hub.settings() };
    let error = hub.error(absent).await;
    assert_eq!(error.to_string(), format!("cannot reach https://localhost:{port}/api/v3: connection refused"));
}

#[tokio::test]
async fn no_error_repeats_a_jwt_or_a_token_that_a_server_sends_back() {
    let repository = Repository::with(&[("a.yaml", "1")]);
    let hub = Hub::start(&repository.root());
    let seen = Arc::new(Mutex::new(Vec::new()));
    let kept = Arc::clone(&seen);
    hub.trouble(move |request| {
        let jwt = request.authorization().unwrap().trim_start_matches("Bearer ").to_owned();
        kept.lock().unwrap().push(jwt.clone());
        Some(answer(401, &json!({"message": format!("bad token {jwt} of {}", request.authorization().unwrap())})))
    });
    let error = hub.error(hub.settings()).await;
    let mut shown = format!("{error} {error:?} {}", error.said().unwrap());
    // The git server repeats the token.
    hub.trouble(|_| None);
    let shared = Arc::clone(&hub.shared);
    hub.server.behave(move |request| {
        if request.target.starts_with("/api") {
            return shared.decide(request);
        }
        let text = format!("fatal: {} {}", shared.token(), request.authorization().unwrap());
        Action::Answer(403, vec![("content-type", "text/plain".to_owned())], text.into_bytes())
    });
    let error = hub.error(hub.settings()).await;
    assert_eq!(error.reason(), "AccessDenied");
    write!(shown, "{error} {error:?} {}", error.said().unwrap()).unwrap();
    let remote = hub.remote(hub.settings());
    write!(shown, "{remote:?} {:?}", hub.settings()).unwrap();
    let jwts = seen.lock().unwrap().clone();
    assert_eq!(jwts.len(), 1);
    let parts = jwts[0].split('.').map(str::to_owned).chain(["ghs_t0ken".to_owned(), "MIIEogIB".to_owned()]);
    for part in parts {
        assert!(!shown.contains(&part), "{part}: {shown}");
    }
}

#[tokio::test]
async fn the_api_is_reached_through_the_proxy_of_the_source() {
    let repository = Repository::with(&[("a.yaml", "1")]);
    let hub = Hub::start(&repository.root());
    let relay = Relay::start(Conduct::Connect);
    let proxy = Some(relay.proxy(Some(("anna", "s3cret"))));
    Fixture::new(Remote { proxy, ..hub.remote(hub.settings()) }).update().await;
    let requests = relay.requests();
    assert!(1 < requests.len());
    assert!(requests.iter().all(|request| request.starts_with("CONNECT localhost:") && !request.contains("Bearer")));
    let refusing = Relay::start(Conduct::Answer("HTTP/1.1 403 s3cret\r\n\r\n"));
    let remote = Remote { proxy: Some(refusing.proxy(None)), ..hub.remote(hub.settings()) };
    let error = Fixture::new(remote).fetch().await.unwrap_err();
    let expected = format!(
        "cannot reach {} through the proxy localhost:{}: it refuses the git server: allow it in the settings of the proxy",
        hub.server.url("api/v3"),
        refusing.port
    );
    assert_eq!(error.to_string(), expected);
}
