//! A webhook that allows everything and keeps the request lines: just enough of one to see that it is reached.

use std::{
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{TcpListener, TcpStream},
    sync::{Arc, Mutex},
};

use kube_sim::Authority;
use rustls::{
    ServerConfig, ServerConnection, StreamOwned,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
};
use serde_json::{Value, json};

pub(super) struct Webhook {
    port: u16,
    requests: Arc<Mutex<Vec<String>>>,
}

impl Webhook {
    /// Serves with a certificate for this name.
    pub(super) fn start(authority: &Authority, name: &str) -> Webhook {
        tidegate_process::tls::install();
        let identity = authority.server(name, &[name]).unwrap();
        let chain = vec![CertificateDer::from_pem_slice(identity.certificate.as_bytes()).unwrap()];
        let key = PrivateKeyDer::from_pem_slice(identity.key.as_bytes()).unwrap();
        let config = ServerConfig::builder().with_no_client_auth().with_single_cert(chain, key).unwrap();
        let config = Arc::new(config);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let requests: Arc<Mutex<Vec<String>>> = Arc::default();
        let kept = Arc::clone(&requests);
        // It ends with the process; a connection that breaks is the client's doing, and the client's test tells.
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (config, kept) = (Arc::clone(&config), Arc::clone(&kept));
                std::thread::spawn(move || drop(serve(stream, config, &kept)));
            }
        });
        Webhook { port, requests }
    }

    pub(super) fn port(&self) -> u16 {
        self.port
    }

    /// The request lines so far.
    pub(super) fn requests(&self) -> Vec<String> {
        self.requests.lock().unwrap().clone()
    }
}

fn serve(stream: TcpStream, config: Arc<ServerConfig>, requests: &Mutex<Vec<String>>) -> std::io::Result<()> {
    let connection = ServerConnection::new(config).unwrap();
    let mut reader = BufReader::new(StreamOwned::new(connection, stream));
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line)? == 0 {
            return Ok(());
        }
        requests.lock().unwrap().push(line.trim_end().to_owned());
        let mut length = 0;
        loop {
            let mut header = String::new();
            reader.read_line(&mut header)?;
            let Some((name, value)) = header.trim_end().split_once(": ") else { break };
            if name.eq_ignore_ascii_case("content-length") {
                length = value.parse().unwrap();
            }
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body)?;
        let review: Value = serde_json::from_slice(&body).unwrap();
        let answer = json!({
            "apiVersion": review["apiVersion"], "kind": review["kind"],
            "response": {"uid": review["request"]["uid"], "allowed": true},
        })
        .to_string();
        let head =
            format!("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n", answer.len());
        reader.get_mut().write_all((head + &answer).as_bytes())?;
    }
}

/// A webhook configuration for labelled ConfigMaps, which rejects requests if the webhook does not answer.
pub(super) fn configuration(namespace: &str, authority: &str) -> Value {
    use base64::Engine as _;
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": namespace},
        "webhooks": [{
            "name": "hook.example.org",
            "admissionReviewVersions": ["v1"],
            "clientConfig": {
                "caBundle": base64::engine::general_purpose::STANDARD.encode(authority),
                "service": {"name": "hook", "namespace": namespace, "path": "/validate/sample"},
            },
            "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"], "operations": ["CREATE", "UPDATE"]}],
            "objectSelector": {"matchLabels": {"watched": "yes"}},
            "sideEffects": "None",
            "timeoutSeconds": 5,
            "failurePolicy": "Fail",
        }],
    })
}
