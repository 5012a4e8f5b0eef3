// SPDX-License-Identifier: Apache-2.0

//! One call to a webhook.

use std::{
    collections::HashMap,
    net::{Ipv4Addr, SocketAddr},
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll},
    time::Duration,
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::Bytes;
use futures::future::{Ready, ready};
use http::{Method, Request, header::CONTENT_TYPE};
use http_body_util::{BodyExt, Full, Limited};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector, connect::dns::Name},
    rt::TokioExecutor,
};
use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, pem::PemObject},
};
use serde_json::Value;

use super::Webhook;
use crate::{body::type_problem, patch::syntax_error};

/// Limit of a webhook's answer.
const ANSWER_BYTES_MAX: usize = 3 << 20;

/// The destinations of calls to Services: from `service.namespace` to a loopback port.
#[derive(Clone, Debug, Default)]
pub(crate) struct Routes(Arc<Mutex<HashMap<String, u16>>>);

/// Clients by the CAs that they trust. Connections are reused.
pub(crate) struct Clients {
    by_trust: Mutex<HashMap<String, Caller>>,
    routes: Routes,
}

type Caller = Client<HttpsConnector<HttpConnector<Routes>>, Full<Bytes>>;

// === impl Routes ===

impl Routes {
    pub(crate) fn lead(&self, service: &str, namespace: &str, port: Option<u16>) {
        let mut routes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let name = format!("{service}.{namespace}.svc");
        match port {
            Some(port) => routes.insert(name, port),
            None => routes.remove(&name),
        };
    }

    fn address_for(&self, host: &str) -> Option<SocketAddr> {
        let routes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match host {
            "localhost" => Some((Ipv4Addr::LOCALHOST, 0).into()),
            host => routes.get(host).map(|port| (Ipv4Addr::LOCALHOST, *port).into()),
        }
    }
}

impl tower::Service<Name> for Routes {
    type Response = std::iter::Once<SocketAddr>;
    type Error = std::io::Error;
    type Future = Ready<Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, name: Name) -> Self::Future {
        let found = self.address_for(name.as_str()).map(std::iter::once);
        ready(found.ok_or_else(|| std::io::Error::other(format!("no route leads to {}", name.as_str()))))
    }
}

// === impl Clients ===

impl Clients {
    pub(crate) fn new(routes: Routes) -> Clients {
        Clients { by_trust: Mutex::default(), routes }
    }

    /// Sends a review to a webhook and returns its answer, which is also a review.
    pub(super) async fn call(&self, webhook: &Webhook, timeout: Duration, review: &Value) -> Result<Value, String> {
        let url = url(&webhook.client, timeout);
        let shown = Value::from(with_port(&webhook.client, &url));
        let sent = self.send(webhook, &url, &shown, review);
        let body = tokio::time::timeout(timeout, sent).await;
        let body = body.unwrap_or_else(|_| Err(format!("Post {shown}: context deadline exceeded")))?;
        read(&body)
    }

    async fn send(&self, webhook: &Webhook, url: &str, shown: &Value, review: &Value) -> Result<Bytes, String> {
        let client = self.client(webhook.client["caBundle"].as_str().unwrap_or_default())?;
        let failed = |problem: String| format!("Post {shown}: {problem}");
        let request = Request::builder()
            .method(Method::POST)
            .uri(url)
            .header(CONTENT_TYPE, "application/json")
            .body(Full::new(Bytes::from(review.to_string())))
            .map_err(|error| failed(error.to_string()))?;
        let response = client.request(request).await.map_err(|error| failed(chain(&error)))?;
        let status = response.status();
        let body = Limited::new(response.into_body(), ANSWER_BYTES_MAX).collect().await;
        let body = body.map_err(|error| failed(error.to_string()))?.to_bytes();
        match status.as_u16() {
            404 => Err("the server could not find the requested resource".to_owned()),
            500 => Err("an error on the server (\"unknown\") has prevented the request from succeeding".to_owned()),
            _ if status.is_success() => Ok(body),
            _ => Err(failed(status.to_string())),
        }
    }

    /// Drops all connections: the next calls open new ones.
    pub(crate) fn forget(&self) {
        self.by_trust.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    fn client(&self, trust: &str) -> Result<Caller, String> {
        let mut clients = self.by_trust.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(client) = clients.get(trust) {
            return Ok(client.clone());
        }
        let mut roots = RootCertStore::empty();
        let pem = STANDARD.decode(trust).map_err(|_| "unable to load root certificates".to_owned())?;
        for certificate in CertificateDer::pem_slice_iter(&pem) {
            let certificate = certificate.map_err(|_| "unable to load root certificates".to_owned())?;
            roots.add(certificate).map_err(|error| format!("unable to load root certificates: {error}"))?;
        }
        let tls = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
        let mut http = HttpConnector::new_with_resolver(self.routes.clone());
        http.enforce_http(false);
        http.set_nodelay(true);
        let connector =
            HttpsConnectorBuilder::new().with_tls_config(tls).https_only().enable_http1().wrap_connector(http);
        let client = Client::builder(TokioExecutor::new()).build(connector);
        clients.insert(trust.to_owned(), client.clone());
        Ok(client)
    }
}

/// The review in an answer.
fn read(body: &[u8]) -> Result<Value, String> {
    let unreadable = |problem: String| format!("couldn't get version/kind; json parse error: {problem}");
    if let Some(problem) = syntax_error(body) {
        return Err(unreadable(problem));
    }
    let answer: Value = serde_json::from_slice(body).map_err(|error| unreadable(error.to_string()))?;
    if let Some(problem) = type_problem(&answer) {
        return Err(unreadable(problem));
    }
    let text = |field: &str| answer[field].as_str().unwrap_or_default();
    match (text("apiVersion"), text("kind")) {
        // An object without a type counts as a review.
        ("admission.k8s.io/v1", "AdmissionReview") | ("", "") => Ok(answer),
        ("admission.k8s.io/v1beta1", "AdmissionReview") => {
            Err("converting (v1beta1.AdmissionReview) to (v1.AdmissionReview): unknown conversion".to_owned())
        }
        (api_version, kind) => Err(format!(
            "no kind {} is registered for version {} in scheme \"pkg/runtime/scheme.go:111\"",
            Value::from(kind),
            Value::from(api_version)
        )),
    }
}

/// The URL of a webhook, with the remaining time, as the server writes it.
fn url(client: &Value, timeout: Duration) -> String {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let timeout = format!("timeout={}s", timeout.as_secs());
    let url = match client["url"].as_str() {
        Some(url) => url.to_owned(),
        None => {
            let service = &client["service"];
            // Without the port: the route determines it.
            format!(
                "https://{}.{}.svc/{}",
                text(&service["name"]),
                text(&service["namespace"]),
                text(&service["path"]).trim_start_matches('/')
            )
        }
    };
    let sign = if url.contains('?') { '&' } else { '?' };
    format!("{url}{sign}{timeout}")
}

/// The URL as messages show it: with the port of the Service.
fn with_port(client: &Value, url: &str) -> String {
    if client["url"].is_string() {
        return url.to_owned();
    }
    let port = client["service"]["port"].as_u64().unwrap_or(443);
    url.replacen(".svc/", &format!(".svc:{port}/"), 1)
}

/// The bytes of a response's patch.
pub(super) fn decode_patch(text: &str) -> Result<Vec<u8>, String> {
    STANDARD.decode(text).map_err(|_| "illegal base64 data".to_owned())
}

fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}
