//! The plain port: serves only metrics and health.
//!
//! Every pod in the cluster can reach it. So it changes nothing and accepts no reviews.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::body::Incoming;
use rustls::AlertDescription;

use super::{
    metrics::Metrics,
    outbox::Outbox,
    serve::{self, Handler},
};

/// Answers scrapes and health checks.
#[derive(Debug)]
pub struct Plain {
    outbox: Arc<Outbox>,
    metrics: Metrics,
    stopping: Arc<AtomicBool>,
}

const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
const TEXT: &str = "text/plain; charset=utf-8";

// === impl Plain ===

impl Plain {
    /// Creates a handler. Once `stopping` is set, it reports not ready.
    pub fn new(outbox: Arc<Outbox>, metrics: Metrics, stopping: Arc<AtomicBool>) -> Plain {
        Plain { outbox, metrics, stopping }
    }

    /// The agent is ready if it accepts reviews. The answer reports the connection to the control plane, but a failed
    /// connection is no reason to restart the agent: events wait here.
    fn ready(&self) -> Response<Full<Bytes>> {
        let detail = self.outbox.describe();
        if self.stopping.load(Ordering::Relaxed) {
            return text(StatusCode::SERVICE_UNAVAILABLE, TEXT, format!("not ready\nstopping\n{detail}"));
        }
        text(StatusCode::OK, TEXT, format!("ok\n{detail}"))
    }
}

impl Handler for Plain {
    async fn answer(&self, request: Request<Incoming>) -> Response<Full<Bytes>> {
        let path = request.uri().path();
        if !matches!(path, "/metrics" | "/healthz" | "/readyz") {
            return serve::status(StatusCode::NOT_FOUND);
        }
        if !matches!(*request.method(), Method::GET | Method::HEAD) {
            let mut response = serve::status(StatusCode::METHOD_NOT_ALLOWED);
            response.headers_mut().insert(header::ALLOW, HeaderValue::from_static("GET, HEAD"));
            return response;
        }
        match path {
            "/metrics" => text(StatusCode::OK, OPEN_METRICS, self.metrics.render(self.outbox.depth())),
            "/readyz" => self.ready(),
            _ => text(StatusCode::OK, TEXT, "ok\n".to_owned()),
        }
    }

    fn certificate_refused(&self, _alert: AlertDescription) {}

    fn evicted(&self, _was_idle: bool) {
        self.metrics.connection_evicted();
    }
}

fn text(status: StatusCode, kind: &'static str, body: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::from(body));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}
