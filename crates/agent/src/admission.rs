//! The admission server: answers reviews without waiting for anything.
//!
//! The server decides about a review in memory and puts the event into the outbox. Then it answers, and it always
//! allows the write. A body that is not a review gets an error status. The API server treats that as a failed webhook,
//! which the webhook's failure policy ignores.

use std::{sync::Arc, time::Instant};

use bytes::Bytes;
use http::{HeaderValue, Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::body::Incoming;
use rustls::AlertDescription;
use tidegate_process::lock::Mutex;

use super::{
    decide::{Decision, Wrong, decide},
    manager::Manager,
    metrics::{Failure, Metrics},
    outbox::{self, Outbox},
    pending::Key,
    review::Review,
    seldom::Seldom,
    serve::{self, Budget, Handler},
};

/// Answers admission reviews.
#[derive(Debug)]
pub struct Admission {
    outbox: Arc<Outbox>,
    metrics: Metrics,
    budget: Budget,
    refused: Mutex<Seldom>,
}

// === impl Admission ===

impl Admission {
    /// Creates a server that puts events into `outbox`.
    pub fn new(outbox: Arc<Outbox>, metrics: Metrics) -> Admission {
        Admission { outbox, metrics, budget: Budget::default(), refused: Mutex::default() }
    }

    /// Decides about a body; `None` if it is not a review.
    fn review(&self, manager: Manager, body: &[u8]) -> Option<Vec<u8>> {
        let review = match Review::parse(body) {
            Ok(review) => review,
            Err(error) => {
                tracing::debug!(%manager, %error, "cannot read the review");
                return None;
            }
        };
        let Decision { event, is_probe, message, wrong } = decide(&review.request);
        match wrong {
            Some(Wrong::Subresource) => self.metrics.failed(Failure::InvalidSubresource),
            Some(Wrong::Object) => {
                tracing::warn!(%manager, operation = review.request.operation, "cannot read the object of a review");
                self.metrics.object_malformed();
            }
            None => {}
        }
        if review.request.dry_run == Some(true) {
            self.metrics.dry_run();
        }
        match event {
            // Nothing has to be persisted first, and once is enough.
            Some(event) if is_probe => self.outbox.remind(Key { manager, event }),
            Some(event) => self.outbox.changed(Key { manager, event }),
            None => {}
        }
        Some(review.answer(&message))
    }
}

impl Handler for Admission {
    async fn answer(&self, request: Request<Incoming>) -> Response<Full<Bytes>> {
        let mut response = match Manager::of_path(request.uri().path()) {
            None => serve::status(StatusCode::NOT_FOUND),
            Some(manager) => {
                self.metrics.review();
                // The time that a client takes to send does not count as ours, even if it never ends.
                let body = self.budget.read(request.into_body()).await;
                // The write goes on without an event.
                if body.is_err() {
                    self.metrics.review_cut();
                    self.outbox.missed(Some(&manager));
                }
                let read = Instant::now();
                let answer = match &body {
                    Err(status) => Err(*status),
                    Ok(body) => self.review(manager, &body.bytes).ok_or(StatusCode::BAD_REQUEST),
                };
                self.metrics.answered(read.elapsed());
                match answer {
                    Ok(answer) => json(answer),
                    Err(status) => {
                        self.metrics.review_unreadable();
                        serve::status(status)
                    }
                }
            }
        };
        secured(&mut response);
        response
    }

    fn evicted(&self, was_idle: bool) {
        self.metrics.connection_evicted();
        if was_idle {
            self.outbox.missed(None);
        }
    }

    fn certificate_refused(&self, alert: AlertDescription) {
        self.metrics.certificate_refused();
        let now = outbox::now();
        if let Some(times) = self.refused.lock().happened(now) {
            tracing::warn!(
                ?alert,
                times,
                "a client rejected the agent's certificate: if it is the API server, the webhook configuration \
                 contains another CA, and no events are sent"
            );
        }
    }
}

fn json(body: Vec<u8>) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::from(body));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// Adds the Runtime Watcher's headers, which every answer has.
fn secured(response: &mut Response<Full<Bytes>>) {
    let headers = response.headers_mut();
    headers.insert(header::STRICT_TRANSPORT_SECURITY, HeaderValue::from_static("max-age=31536000; includeSubDomains"));
    headers.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static("default-src 'self'"));
}
