//! An OCI registry in this process: read-only, over plain HTTP on loopback, with modules as OCM's tools publish them.
//!
//! It serves prepared answers and counts requests. Tests use the registry of the distribution project instead.

use std::{collections::BTreeMap, net::SocketAddr, sync::Arc};

use anyhow::Context as _;
use serde_json::{Value, json};
use tidegate_core::component::{BlobDigest, Component, repository_path};
use tidegate_process::lock::Mutex;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    task::JoinHandle,
};

/// A running registry. Dropping the value stops it.
pub(crate) struct Registry {
    address: SocketAddr,
    requests: Arc<Mutex<BTreeMap<String, u64>>>,
    task: JoinHandle<()>,
}

/// What a registry has: answers by path.
#[derive(Default)]
pub(crate) struct Content(BTreeMap<String, Answer>);

/// An answer.
struct Answer {
    media_type: &'static str,
    body: Vec<u8>,
}

/// Limit of the head of a request, in bytes. The daemon's have a few hundred.
const HEAD_BYTES_MAX: usize = 16 * 1024;

const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const CONFIG: &str = "application/vnd.ocm.software.component.config.v1+json";
const DESCRIPTOR: &str = "application/vnd.ocm.software.component-descriptor.v2+json";
const YAML: &str = "application/x-yaml";

// === impl Content ===

impl Content {
    /// Publishes a component with the YAML of its objects.
    pub(crate) fn publish(&mut self, component: &Component, objects: &str) {
        let layer = objects.as_bytes().to_vec();
        let descriptor = descriptor(component, &layer).to_string().into_bytes();
        let blob = |media_type: &str, bytes: &[u8]| json!({"mediaType": media_type, "digest": BlobDigest::of(bytes).to_string(), "size": bytes.len()});
        let of_descriptor = blob(DESCRIPTOR, &descriptor);
        let config = json!({"componentDescriptorLayer": of_descriptor}).to_string().into_bytes();
        let manifest = json!({
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "config": blob(CONFIG, &config),
            "layers": [of_descriptor, blob(YAML, &layer)],
        });
        let repository = format!("/v2/{}", repository_path(&component.name));
        let tag = format!("{repository}/manifests/{}", component.version.tag());
        self.0.insert(tag, Answer { media_type: MANIFEST, body: manifest.to_string().into_bytes() });
        for body in [layer, descriptor, config] {
            let path = format!("{repository}/blobs/{}", BlobDigest::of(&body));
            self.0.insert(path, Answer { media_type: "application/octet-stream", body });
        }
    }
}

/// The component descriptor.
fn descriptor(component: &Component, layer: &[u8]) -> Value {
    json!({
        "meta": {"schemaVersion": "v2"},
        "component": {
            "name": component.name.as_str(),
            "version": component.version.as_str(),
            "provider": "example.org",
            "repositoryContexts": [{"type": "OCIRegistry", "baseUrl": "localhost"}],
            "sources": [],
            "componentReferences": [],
            "resources": [{
                "name": "raw-manifest",
                "version": component.version.as_str(),
                "relation": "local",
                "type": "yaml",
                "access": {"type": "localBlob", "localReference": BlobDigest::of(layer).to_string(), "mediaType": YAML},
            }],
        },
    })
}

// === impl Registry ===

impl Registry {
    /// Starts on a free port. Fails if there is none.
    pub(crate) async fn start(content: Content) -> anyhow::Result<Registry> {
        let listener = TcpListener::bind("127.0.0.1:0").await.context("cannot open a port for the registry")?;
        let address = listener.local_addr().context("cannot read the port of the registry")?;
        let requests = Arc::new(Mutex::new(BTreeMap::new()));
        let (content, counted) = (Arc::new(content), Arc::clone(&requests));
        let task = tokio::spawn(async move {
            // A failed accept concerns one client.
            loop {
                let Ok((stream, _)) = listener.accept().await else { continue };
                tokio::spawn(answer(stream, Arc::clone(&content), Arc::clone(&counted)));
            }
        });
        Ok(Registry { address, requests, task })
    }

    /// Its address, with the scheme.
    pub(crate) fn address(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The number of requests for each path.
    pub(crate) fn requests(&self) -> BTreeMap<String, u64> {
        self.requests.lock().clone()
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Answers one request. A client that does not speak HTTP, or that goes, gets none.
async fn answer(mut stream: TcpStream, content: Arc<Content>, requests: Arc<Mutex<BTreeMap<String, u64>>>) {
    let mut head = Vec::new();
    while !head.windows(4).any(|end| end == b"\r\n\r\n") {
        match stream.read_buf(&mut head).await {
            Ok(1..) if head.len() < HEAD_BYTES_MAX => {}
            _ => return,
        }
    }
    let head = String::from_utf8_lossy(&head);
    let Some(path) = head.split(' ').nth(1) else { return };
    *requests.lock().entry(path.to_owned()).or_default() += 1;
    let found = content.0.get(path);
    let (status, media_type, body) = match found {
        Some(answer) => ("200 OK", answer.media_type, &*answer.body),
        None => ("404 Not Found", "text/plain", &b""[..]),
    };
    let length = body.len();
    let head = format!(
        "HTTP/1.1 {status}\r\ncontent-type: {media_type}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n"
    );
    // A client that went does not need the rest.
    if stream.write_all(head.as_bytes()).await.is_ok() && stream.write_all(body).await.is_ok() {
        let _ = stream.shutdown().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn it_serves_what_was_published_and_counts() {
        let component = Component::new("example.org/module/a", "1.0.0+x").unwrap();
        let mut content = Content::default();
        content.publish(&component, "kind: ConfigMap\n");
        let registry = Registry::start(content).await.unwrap();
        let get = async |path: &str| {
            let mut stream = TcpStream::connect(registry.address).await.unwrap();
            stream.write_all(format!("GET {path} HTTP/1.1\r\nhost: x\r\n\r\n").as_bytes()).await.unwrap();
            let mut text = String::new();
            stream.read_to_string(&mut text).await.unwrap();
            text
        };
        let tag = "/v2/component-descriptors/example.org/module/a/manifests/1.0.0.build-x";
        let answer = get(tag).await;
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
        let manifest: Value = serde_json::from_str(body).unwrap();
        let layer = manifest["layers"][1]["digest"].as_str().unwrap();
        let layer = get(&format!("/v2/component-descriptors/example.org/module/a/blobs/{layer}")).await;
        assert!(layer.ends_with("\r\n\r\nkind: ConfigMap\n"), "{layer}");
        assert!(get("/v2/other").await.starts_with("HTTP/1.1 404 "));
        assert_eq!((registry.requests()[tag], registry.requests().len()), (1, 3));
    }
}
