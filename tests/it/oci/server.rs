//! The registry of the distribution project, built from its Go module, and the few requests that push to it.

use std::{
    fs,
    io::{Read as _, Write as _},
    net::TcpStream,
    path::{Path, PathBuf},
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::json;
use tidegate_core::component::{BlobDigest, Component, ComponentName};
use tidegate_testbed::{Folder, Guarded, free_port};

use super::artifact::Artifact;
use crate::harness::{self, SOON, eventually};

/// A registry on a loopback port. It ends with this value.
pub(crate) struct Server {
    folder: Folder,
    port: u16,
    /// The CA of its certificate in PEM, if it has one.
    ca: Option<Vec<u8>>,
    _process: Guarded,
}

impl Server {
    /// Starts one: with a password if one is given; over TLS, on the storage of another one, if that is given.
    pub(crate) async fn start(password: Option<&str>, storage: Option<PathBuf>) -> Server {
        let program = harness::registry().await;
        let folder = harness::folder();
        let ca = storage.is_some().then(|| write_certificate(folder.path()));
        let storage = storage.unwrap_or_else(|| folder.path().join("storage"));
        // Another process may take the port before the registry binds it.
        for _ in 0..5 {
            let port = free_port();
            let settings = settings(folder.path(), &storage, port, password.is_some(), ca.is_some());
            fs::write(folder.path().join("settings.yaml"), settings).unwrap();
            if let Some(password) = password {
                fs::write(folder.path().join("htpasswd"), htpasswd(password)).unwrap();
            }
            let log = folder.path().join("log");
            let process = Guarded::start(program, ["serve", "settings.yaml"], folder.path(), &log).unwrap();
            let pulse = process.pulse();
            let is_up =
                eventually("the registry answers", SOON, async || match TcpStream::connect(("127.0.0.1", port)) {
                    Ok(_) => Ok(true),
                    Err(_) if pulse.ended().is_some() => Ok(false),
                    Err(error) => Err(error.to_string()),
                });
            if is_up.await {
                return Server { folder, port, ca, _process: process };
            }
        }
        panic!("the registry does not start");
    }

    /// Host and port.
    pub(crate) fn host(&self) -> String {
        format!("localhost:{}", self.port)
    }

    /// With its scheme.
    pub(crate) fn address(&self) -> String {
        format!("{}://{}", if self.ca.is_some() { "https" } else { "http" }, self.host())
    }

    pub(crate) fn ca(&self) -> &[u8] {
        self.ca.as_deref().unwrap()
    }

    /// The folder with everything that was pushed.
    pub(crate) fn storage(&self) -> PathBuf {
        self.folder.path().join("storage")
    }

    /// What it has logged; a line for each request.
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("log")).unwrap()
    }

    /// From now on, this is the password. The registry reads the file when it has changed.
    pub(crate) fn set_password(&self, password: &str) {
        fs::write(self.folder.path().join("htpasswd"), htpasswd(password)).unwrap();
    }

    /// Publishes a module below a path, and returns the digest of its manifest.
    pub(crate) fn push(&self, subpath: &str, artifact: &Artifact, user: Option<&str>) -> BlobDigest {
        let repository = repository(subpath, &artifact.component.name);
        for blob in artifact.blobs() {
            let (status, location) = self.send("POST", &format!("/v2/{repository}/blobs/uploads/"), "", b"", user);
            assert_eq!(status, 202, "an upload begins");
            let location = location.unwrap();
            let path = &location[location.find("/v2/").unwrap()..];
            let separator = if path.contains('?') { '&' } else { '?' };
            let path = format!("{path}{separator}digest={}", BlobDigest::of(blob));
            let (status, _) = self.send("PUT", &path, "application/octet-stream", blob, user);
            assert_eq!(status, 201, "an upload ends");
        }
        let tag = artifact.component.version.tag();
        let media_type = "application/vnd.oci.image.manifest.v1+json";
        let path = format!("/v2/{repository}/manifests/{tag}");
        let (status, _) = self.send("PUT", &path, media_type, &artifact.manifest, user);
        assert_eq!(status, 201, "a manifest is stored");
        BlobDigest::of(&artifact.manifest)
    }

    /// Puts an index of manifests under the tag of a version.
    pub(crate) fn push_index(&self, subpath: &str, component: &Component, manifests: &[BlobDigest]) -> BlobDigest {
        let repository = repository(subpath, &component.name);
        let size = |digest: &BlobDigest| {
            let path = self.storage().join("docker/registry/v2/blobs/sha256").join(&digest.hex()[..2]);
            fs::metadata(path.join(digest.hex()).join("data")).unwrap().len()
        };
        let media_type = "application/vnd.oci.image.manifest.v1+json";
        let manifests: Vec<_> = manifests
            .iter()
            .map(|digest| json!({"mediaType": media_type, "digest": digest.to_string(), "size": size(digest)}))
            .collect();
        let media_type = "application/vnd.oci.image.index.v1+json";
        let index = json!({"schemaVersion": 2, "mediaType": media_type, "manifests": manifests}).to_string();
        let path = format!("/v2/{repository}/manifests/{}", component.version.tag());
        let (status, _) = self.send("PUT", &path, media_type, index.as_bytes(), None);
        assert_eq!(status, 201, "an index is stored");
        BlobDigest::of(index.as_bytes())
    }

    /// Sends one request over plain HTTP, and returns the status and the header `Location`.
    fn send(
        &self,
        method: &str,
        path: &str,
        media_type: &str,
        body: &[u8],
        user: Option<&str>,
    ) -> (u16, Option<String>) {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        let authorization = user.map(|user| format!("authorization: Basic {}\r\n", STANDARD.encode(user)));
        write!(
            stream,
            "{method} {path} HTTP/1.1\r\nhost: {}\r\nconnection: close\r\ncontent-type: {media_type}\r\n{}\
             content-length: {}\r\n\r\n",
            self.host(),
            authorization.unwrap_or_default(),
            body.len(),
        )
        .unwrap();
        stream.write_all(body).unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        let answer = String::from_utf8_lossy(&answer);
        let status = answer.split_whitespace().nth(1).unwrap().parse().unwrap();
        let location = answer.lines().find_map(|line| line.strip_prefix("Location: ")).map(str::to_owned);
        (status, location)
    }
}

fn repository(subpath: &str, name: &ComponentName) -> String {
    format!("{subpath}/component-descriptors/{name}").trim_start_matches('/').to_owned()
}

fn settings(folder: &Path, storage: &Path, port: u16, has_password: bool, is_encrypted: bool) -> String {
    let mut settings = json!({
        "version": "0.1",
        "log": {"level": "warn"},
        "storage": {"filesystem": {"rootdirectory": storage}, "delete": {"enabled": true}},
        "http": {"addr": format!("127.0.0.1:{port}"), "secret": "secret"},
    });
    if has_password {
        settings["auth"] = json!({"htpasswd": {"realm": "test", "path": folder.join("htpasswd")}});
    }
    if is_encrypted {
        settings["http"]["tls"] = json!({"certificate": folder.join("tls.crt"), "key": folder.join("tls.key")});
    }
    serde_yaml::to_string(&settings).unwrap()
}

/// The password of `robot`, by bcrypt at its lowest cost.
fn htpasswd(password: &str) -> &'static str {
    match password {
        "first" => "robot:$2a$04$3RkEj3BeyjZkSQ4AiEFvLe.vZODBu5WVKnvRazAHi1rFnANc8Tt8i\n",
        "second" => "robot:$2a$04$KpvfuNDVugr6eWT4Sij5aOM8aJD58FzaUkf0zAX5g7PRKBp7eJtXG\n",
        other => panic!("no hash of {other} is written here"),
    }
}

/// Writes a certificate for localhost, and returns its CA.
fn write_certificate(folder: &Path) -> Vec<u8> {
    let ca_key = rcgen::KeyPair::generate().unwrap();
    let mut ca_params = rcgen::CertificateParams::new(Vec::new()).unwrap();
    ca_params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let ca = ca_params.self_signed(&ca_key).unwrap();
    let issuer = rcgen::Issuer::new(ca_params, ca_key);
    let key = rcgen::KeyPair::generate().unwrap();
    let params = rcgen::CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    let certificate = params.signed_by(&key, &issuer).unwrap();
    fs::write(folder.join("tls.crt"), certificate.pem()).unwrap();
    fs::write(folder.join("tls.key"), key.serialize_pem()).unwrap();
    ca.pem().into_bytes()
}
