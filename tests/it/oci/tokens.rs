//! Tokens: which server is asked for them, and with which credentials.

use tidegate_core::component::{BlobDigest, LayerKind, Source};
use tidegate_oci::{Registry, Settings};

use super::{
    artifact::{Artifact, Schema, YAML, component},
    basic,
    hostile::{answer, host, plain, serve},
    settings, source,
};
use crate::git::server::{Action, Request, Server};

/// A registry that names `realm` as its token server and serves an artifact to clients with the token `token`.
fn guarded(artifact: Artifact, realm: String) -> impl Fn(&Request) -> Action + Send + Sync + 'static {
    move |request| {
        if request.target.starts_with("/token") {
            // `robot:right`
            return match request.authorization() {
                None => answer(br#"{"token": "anonymous"}"#),
                Some("Basic cm9ib3Q6cmlnaHQ=") => answer(br#"{"access_token": "full", "expires_in": 300}"#),
                Some(_) => Action::Answer(401, Vec::new(), Vec::new()),
            };
        }
        match request.authorization() {
            Some("Bearer full") => serve(&artifact, request),
            Some("Bearer anonymous") => Action::Answer(403, Vec::new(), Vec::new()),
            _ => {
                let challenge = format!("Bearer realm=\"{realm}\",service=\"registry\",scope=\"x\"");
                Action::Answer(401, vec![("www-authenticate", challenge)], Vec::new())
            }
        }
    }
}

fn artifact() -> Artifact {
    Artifact::new(&component("1.0.0"), Schema::V2, YAML.to_vec(), "")
}

fn any_source() -> Source {
    Source {
        repo: "r.example.com".to_owned(),
        name: component("1.0.0").name,
        digest: BlobDigest::of(YAML),
        kind: LayerKind::Yaml,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_token_serves_a_repository_until_it_is_rejected() {
    let server = Server::start(std::path::Path::new("/"));
    let realm = server.url("token");
    server.behave(guarded(artifact(), realm.clone()));
    let address = format!("https://{}/team", host(&server));
    let with = |password: Option<&str>| {
        let credentials = password.and_then(basic);
        Registry::new(Settings { ca: Some(server.ca.clone()), credentials, ..settings(&address) }).unwrap()
    };
    let registry = with(Some("right"));
    let found = registry.descriptor(&component("1.0.0")).await.unwrap();
    let module = source(&registry, &component("1.0.0"), &found);
    assert_eq!(registry.layer(&module).await.unwrap(), YAML);
    let requests = server.requests();
    let tokens: Vec<_> = requests.iter().filter(|request| request.target.starts_with("/token")).collect();
    let targets: Vec<_> = tokens.iter().map(|request| request.target.as_str()).collect();
    let scope = "repository:team/component-descriptors/kyma-project.io/module/keda:pull";
    assert_eq!(targets, [format!("/token?scope={scope}&service=registry")]);
    // The question, the token, and four reads with it.
    assert_eq!(requests.len(), 6);
    assert!(requests[2..].iter().all(|request| request.authorization() == Some("Bearer full")));

    // The token has expired: another one is requested, once.
    let (count, other) = (requests.len(), artifact());
    let realm_again = realm.clone();
    server.behave(move |request| match request.authorization() {
        Some("Bearer fresh") => serve(&other, request),
        Some("Basic cm9ib3Q6cmlnaHQ=") => answer(br#"{"token": "fresh"}"#),
        _ => Action::Answer(401, vec![("www-authenticate", format!("Bearer realm=\"{realm_again}\""))], Vec::new()),
    });
    assert_eq!(registry.layer(&module).await.unwrap(), YAML);
    assert_eq!(server.requests().len(), count + 3);

    server.behave(guarded(artifact(), realm));
    let name = format!("{}/team", host(&server));
    let error = with(Some("wrong")).layer(&module).await.unwrap_err();
    let rejected = "rejected the credentials: check whether they are correct and still valid";
    assert_eq!(error.to_string(), format!("the token server of {name} {rejected}"));
    let error = with(None).layer(&module).await.unwrap_err();
    assert!(error.to_string().ends_with("denied access (403): give the credentials permission to read the repository"));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_credentials_go_to_no_other_token_server() {
    let server = plain();
    let name = host(&server);
    let registry = |credentials: Option<&str>| {
        Registry::new(Settings { credentials: credentials.and_then(basic), ..settings(&name) }).unwrap()
    };
    for (realm, expected) in [
        (
            "https://evil.example.net/token".to_owned(),
            "asks to send the credentials to evil.example.net, which is another host: allow that host if it belongs to \
             the registry",
        ),
        (server.url("token"), "asks to send the credentials over plain http, which is refused"),
        ("http://evil.example.net/token".to_owned(), "asks to send the credentials over plain http, which is refused"),
        ("token".to_owned(), "names an invalid URL for tokens"),
    ] {
        server.behave(guarded(artifact(), realm));
        let error = registry(Some("right")).layer(&any_source()).await.unwrap_err();
        assert_eq!((error.to_string(), error.reason()), (format!("{name} {expected}"), "TokenServerRefused"));
    }
    assert!(server.requests().iter().all(|request| !request.target.starts_with("/token")));
    assert!(server.requests().iter().all(|request| request.authorization().is_none()));

    // Without credentials there is nothing to lose.
    server.behave(guarded(artifact(), server.url("token")));
    let error = registry(None).layer(&any_source()).await.unwrap_err();
    assert!(error.to_string().contains("denied access (403)"), "{error}");

    // A token server that sends something else.
    for (action, expected) in [
        (Action::Answer(200, Vec::new(), b"{}".to_vec()), "contains no token"),
        (Action::Answer(200, Vec::new(), b"<html>".to_vec()), "contains no token"),
        (Action::Answer(200, Vec::new(), b"{\"token\": \"a\\nb\"}".to_vec()), "contains no token"),
        (Action::Answer(200, Vec::new(), vec![b' '; (64 << 10) + 1]), "sends more than 65536 bytes"),
        (
            Action::Answer(302, vec![("location", "https://evil.example.net/".to_owned())], Vec::new()),
            "redirects a request for a token, which is refused",
        ),
    ] {
        let (realm, action) = (server.url("token"), std::sync::Mutex::new(Some(action)));
        server.behave(move |request| match request.target.starts_with("/token") {
            true => action.lock().unwrap().take().unwrap(),
            false => Action::Answer(401, vec![("www-authenticate", format!("Bearer realm=\"{realm}\""))], Vec::new()),
        });
        let error = registry(None).layer(&any_source()).await.unwrap_err().to_string();
        assert!(error.contains(&format!("the token server of {name}")) && error.ends_with(expected), "{error}");
    }
}
