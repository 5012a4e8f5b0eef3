//! Registries that misbehave: each case is one sentence, in bounded time and memory.

use std::{
    io::{Read as _, Write as _},
    net::TcpListener,
    path::Path,
    time::Duration,
};

use tidegate_core::component::{BlobDigest, LayerKind, Source};
use tidegate_oci::{Registry, Settings, limits};
use tidegate_process::retry::Class;

use super::{
    artifact::{Artifact, Schema, YAML, archive, component, gzip, tar},
    basic, registry, settings,
};
use crate::git::server::{Action, Request, Server};

/// A server for the hostile part, over plain HTTP.
pub(crate) fn plain() -> Server {
    Server::start_plain(Path::new("/"))
}

/// Host and port of a server.
pub(crate) fn host(server: &Server) -> String {
    server.url("").trim_end_matches('/').split_once("://").unwrap().1.to_owned()
}

pub(crate) fn answer(body: &[u8]) -> Action {
    Action::Answer(200, Vec::new(), body.to_vec())
}

/// What a good registry answers to a request about an artifact.
pub(crate) fn serve(artifact: &Artifact, request: &Request) -> Action {
    let path = request.target.as_str();
    if path.ends_with(&format!("/manifests/{}", artifact.component.version.tag())) {
        return answer(&artifact.manifest);
    }
    let blobs = artifact.blobs();
    match blobs.iter().find(|blob| path.ends_with(&format!("/blobs/{}", BlobDigest::of(blob)))) {
        Some(blob) => answer(blob),
        None => Action::Answer(404, Vec::new(), Vec::new()),
    }
}

/// A source of a blob with this digest.
pub(crate) fn source(digest: BlobDigest, kind: LayerKind) -> Source {
    Source { repo: "r.example.com".to_owned(), name: component("1.0.0").name, digest, kind }
}

/// What reading a layer says about a registry that answers every request with `decide`.
async fn layer_error(
    blob: &[u8],
    kind: LayerKind,
    decide: impl Fn(&Request) -> Action + Send + Sync + 'static,
) -> tidegate_oci::Error {
    let server = plain();
    server.behave(decide);
    registry(&host(&server)).layer(&source(BlobDigest::of(blob), kind)).await.unwrap_err()
}

/// The sentence without the name of the blob at its beginning.
fn tail(error: &tidegate_oci::Error) -> String {
    let text = error.to_string();
    let (_, rest) = text.split_once("component-descriptors/kyma-project.io/module/keda").unwrap_or(("", &text));
    rest.split_once(' ').unwrap().1.to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_endless_answer_ends_at_its_limit() {
    let server = plain();
    let registry = registry(&host(&server));
    let artifact = Artifact::new(&component("1.0.0"), Schema::V2, YAML.to_vec(), "");
    let flood = || Action::Flood("application/octet-stream", Vec::new(), vec![b' '; 1 << 16]);
    for (part, limit) in [
        ("/manifests/".to_owned(), limits::MANIFEST_BYTES_MAX),
        (format!("/blobs/{}", BlobDigest::of(&artifact.config)), limits::CONFIG_BYTES_MAX),
        (format!("/blobs/{}", BlobDigest::of(&artifact.descriptor)), limits::DESCRIPTOR_BLOB_BYTES_MAX),
    ] {
        let artifact = Artifact::new(&component("1.0.0"), Schema::V2, YAML.to_vec(), "");
        server.behave(move |request| if request.target.contains(&part) { flood() } else { serve(&artifact, request) });
        let error = registry.descriptor(&component("1.0.0")).await.unwrap_err();
        assert_eq!(tail(&error), format!("sends more than {limit} bytes"));
        assert_eq!((error.reason(), error.class()), ("LimitExceeded", Class::Stalled));
    }
    let error = layer_error(YAML, LayerKind::Yaml, move |_| flood()).await;
    assert_eq!(tail(&error), format!("sends more than {} bytes", limits::LAYER_BYTES_MAX));
}

#[tokio::test(flavor = "multi_thread")]
async fn content_with_another_digest_is_refused() {
    let error = layer_error(YAML, LayerKind::Yaml, |_| answer(b"kind: Secret\n")).await;
    let found = BlobDigest::of(b"kind: Secret\n");
    let changed = "not the one that was requested: the registry or a proxy changed it";
    assert_eq!(tail(&error), format!("has the digest {found}, {changed}"));
    assert_eq!((error.reason(), error.class()), ("DigestMismatch", Class::Transient));

    // A manifest by tag has no requested digest, but the registry states one.
    let server = plain();
    server.behave(|_| {
        let stated = BlobDigest::of(b"another").to_string();
        Action::Answer(200, vec![("docker-content-digest", stated)], b"{}".to_vec())
    });
    let error = registry(&host(&server)).resolve(&component("1.0.0")).await.unwrap_err();
    assert_eq!(tail(&error), format!("has the digest {}, {changed}", BlobDigest::of(b"{}")));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_blob_that_cannot_be_unpacked_says_why() {
    let bomb = gzip(&vec![0; 1 << 20]).repeat(33);
    let link = archive("raw-manifest.yaml", ::tar::EntryType::Symlink, b"");
    let outside = archive("../raw-manifest.yaml", ::tar::EntryType::Regular, YAML);
    let cut = gzip(&YAML.repeat(1000));
    for (kind, blob, expected) in [
        (LayerKind::Yaml, cut[..cut.len() / 2].to_vec(), "is truncated or broken gzip data".to_owned()),
        (
            LayerKind::Yaml,
            bomb,
            format!("has more than {} bytes when it is inflated", limits::LAYER_INFLATED_BYTES_MAX),
        ),
        (LayerKind::Tar, link, "is a tar archive with a link or a device; use regular files".to_owned()),
        (LayerKind::Tar, outside, "is a tar archive with a path that is absolute or contains `..`".to_owned()),
        (LayerKind::Tar, YAML.to_vec(), "is a truncated or broken tar archive".to_owned()),
        (LayerKind::Tar, tar(&[]), "is a tar archive without a file".to_owned()),
        (LayerKind::Yaml, Vec::new(), "is empty".to_owned()),
    ] {
        let sent = blob.clone();
        let error = layer_error(&blob, kind, move |_| answer(&sent)).await;
        assert_eq!((tail(&error), error.class()), (expected, Class::Stalled));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_artifact_that_is_not_a_descriptor_says_why() {
    let server = plain();
    let registry = registry(&host(&server));
    let good = Artifact::new(&component("1.0.0"), Schema::V2, YAML.to_vec(), "");
    let other = Artifact::new(&component("1.0.1"), Schema::V2, YAML.to_vec(), "");
    let with_descriptor = |blob: Vec<u8>| Artifact::with_descriptor(&component("1.0.0"), YAML.to_vec(), blob);
    let page = Artifact { manifest: b"<html>".to_vec(), ..with_descriptor(Vec::new()) };
    for (artifact, expected) in [
        (page, "is not a component descriptor: its manifest is invalid"),
        (with_descriptor(tar(&[("other.yaml", b"x")])), "is a tar archive without `component-descriptor.yaml`"),
        (
            with_descriptor(tar(&[("component-descriptor.yaml", b"a: 1")])),
            "failed to decode component descriptor: its schema is neither `v2` (meta.schemaVersion) nor \
             `ocm.software/v3alpha1` (apiVersion)",
        ),
        (
            with_descriptor(other.descriptor),
            "the component descriptor is for kyma-project.io/module/keda:1.0.1, but kyma-project.io/module/keda:1.0.0 \
             was requested",
        ),
        (
            with_descriptor(tar(&[("component-descriptor.yaml", &vec![b' '; (100 << 10) + 1])])),
            "has a `component-descriptor.yaml` of more than 102400 bytes",
        ),
    ] {
        server.behave(move |request| serve(&artifact, request));
        let error = registry.descriptor(&component("1.0.0")).await.unwrap_err();
        assert_eq!((tail(&error).as_str(), error.class()), (expected, Class::Stalled));
    }
    // The same registry works again.
    server.behave(move |request| serve(&good, request));
    assert!(registry.descriptor(&component("1.0.0")).await.is_ok());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_status_says_what_to_do_and_when() {
    let status = |status: u16, headers: &[(&'static str, &str)]| {
        let headers: Vec<_> = headers.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
        move |_: &Request| Action::Answer(status, headers.clone(), b"text that is not quoted".to_vec())
    };
    for (code, headers, expected, class, wait) in [
        (
            429,
            &[("retry-after", "7")][..],
            "answered with HTTP status 429 and asks to wait 7 s",
            Class::Transient,
            Some(7),
        ),
        (429, &[][..], "answered with HTTP status 429: it limits the rate of requests", Class::Transient, None),
        (
            503,
            &[][..],
            "answered with HTTP status 503: the registry or a proxy before it has a problem",
            Class::Transient,
            None,
        ),
        (
            418,
            &[][..],
            "answered with HTTP status 418: check the address of the registry, and what is between Tidegate and the \
             registry",
            Class::Stalled,
            None,
        ),
        (
            403,
            &[][..],
            "denied access (403): give the credentials permission to read the repository",
            Class::Stalled,
            None,
        ),
        (404, &[][..], "does not exist, or these credentials have no access to it", Class::Stalled, None),
        (
            401,
            &[("www-authenticate", "Negotiate")][..],
            "requires a kind of authentication that is not supported: use a registry with Basic or Bearer",
            Class::Stalled,
            None,
        ),
    ] {
        let error = layer_error(YAML, LayerKind::Yaml, status(code, headers)).await;
        let found = (tail(&error), error.class(), error.retry_after());
        assert_eq!(found, (expected.to_owned(), class, wait.map(Duration::from_secs)));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_redirect_to_another_host_gets_no_credentials() {
    let (server, storage) = (plain(), plain());
    let elsewhere = storage.url("blob?signature=1");
    server.behave(move |request| match request.authorization() {
        None => Action::Answer(401, vec![("www-authenticate", "Basic realm=\"r\"".to_owned())], Vec::new()),
        Some(_) => Action::Answer(307, vec![("location", elsewhere.clone())], Vec::new()),
    });
    storage.behave(|_| answer(YAML));
    let registry = Registry::new(Settings { credentials: basic("secret"), ..settings(&host(&server)) }).unwrap();
    let source = source(BlobDigest::of(YAML), LayerKind::Yaml);
    assert_eq!(registry.layer(&source).await.unwrap(), YAML);
    let seen: Vec<_> = storage.requests().iter().map(|request| request.authorization().map(str::to_owned)).collect();
    assert_eq!(seen, [None]);

    storage.behave(|_| Action::Answer(401, vec![("www-authenticate", "Basic realm=\"r\"".to_owned())], Vec::new()));
    let error = registry.layer(&source).await.unwrap_err();
    let why = "redirects to another host that requires credentials; they are only sent to the registry";
    assert_eq!((tail(&error).as_str(), error.reason()), (why, "RedirectRefused"));
    assert!(storage.requests().iter().all(|request| request.authorization().is_none()));

    let error = layer_error(YAML, LayerKind::Yaml, |_| {
        Action::Answer(302, vec![("location", "/v2/again".to_owned())], Vec::new())
    });
    assert_eq!(tail(&error.await), "redirects in circles or too often");
    let error = layer_error(YAML, LayerKind::Yaml, |_| {
        Action::Answer(302, vec![("location", "http://169.254.169.254/latest/meta-data".to_owned())], Vec::new())
    });
    let error = error.await;
    assert_eq!(tail(&error), "leads to a link-local or metadata address; connections to those are refused");
    assert_eq!(error.reason(), "AddressRefused");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_silent_or_broken_server_ends_in_time() {
    let server = plain();
    server.behave(|_| Action::Hang);
    let timeout = Duration::from_millis(300);
    let registry_with_timeout = Registry::new(Settings { timeout, ..settings(&host(&server)) }).unwrap();
    let source = source(BlobDigest::of(YAML), LayerKind::Yaml);
    let error = registry_with_timeout.layer(&source).await.unwrap_err();
    assert_eq!((tail(&error).as_str(), error.class()), ("took longer than 300 ms", Class::Transient));

    // Half of the blob, and no HTTP at all.
    let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\nhalf", YAML.len());
    let closed = "the connection was closed before an answer, or the answer is not HTTP";
    for (bytes, expected) in [
        (head, "ends early: the connection was closed".to_owned()),
        ("SSH-2.0-OpenSSH_9.2\r\n\r\n".to_owned(), closed.to_owned()),
        (String::new(), closed.to_owned()),
    ] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let thread = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = [0; 1024];
            let _ = stream.read(&mut request).unwrap();
            stream.write_all(bytes.as_bytes()).unwrap();
        });
        let error = registry(&address).layer(&source).await.unwrap_err();
        thread.join().unwrap();
        assert!(error.to_string().ends_with(&expected), "{error}");
        assert_eq!(error.class(), Class::Transient);
    }

    let port = tidegate_testbed::free_port();
    let error = registry(&format!("127.0.0.1:{port}")).layer(&source).await.unwrap_err();
    assert_eq!((tail(&error).as_str(), error.reason()), ("connection refused", "Unreachable"));
    let error = registry("registry.invalid").layer(&source).await.unwrap_err();
    assert_eq!(tail(&error), "cannot resolve the host name");
}
