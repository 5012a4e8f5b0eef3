// SPDX-License-Identifier: Apache-2.0

//! Injects faults between a client and an API server, from a seed: a tower layer in front of the simulator or a real
//! server.
//!
//! The fault of a request is a function of the seed, the request's method and path, and how often this pair was
//! requested before. So a seed gives the same faults in any order of tasks, and an additional request elsewhere changes
//! nothing. After [`Faults::stop`] there are no more faults, so that a test can wait for convergence.
//!
//! Only faults that a real server and network can cause are injected: only a read that allows any version
//! (`resourceVersion=0`) gets an old answer, only a watch is delayed, and only a watch or a later page of a list gets
//! 410. Clock steps and killed processes are not part of this layer: the program under test sets the clock, and
//! a wrapper around this layer can stop a client between two requests.

mod schedule;

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    convert::Infallible,
    future::Future,
    io,
    pin::Pin,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use axum::body::{Body, BodyDataStream, Bytes, HttpBody};
use futures::{StreamExt as _, stream};
use http::{Request, Response, StatusCode, Uri, header, response};
use http_body_util::BodyExt as _;
use serde_json::{Value, json};
use tower::{BoxError, Layer, Service, ServiceExt as _};

pub use self::schedule::{Asked, Fault, Rates, Schedule};

/// The faults of one world, shared by its clients. As a [`Layer`], it wraps a service.
#[derive(Clone)]
pub struct Faults(Arc<Inner>);

struct Inner {
    schedule: Schedule,
    stopped: AtomicBool,
    memory: Mutex<FaultHistory>,
}

/// The state of the layer.
#[derive(Default)]
struct FaultHistory {
    /// How often each method and path was requested.
    counts: HashMap<String, u64>,
    /// How often each kind of fault occurred.
    met: BTreeMap<&'static str, u64>,
    /// The faults, oldest first.
    journal: VecDeque<String>,
    /// Earlier answers to reads that allow any version, oldest first.
    answers: VecDeque<(Uri, Answer)>,
}

/// A complete answer.
#[derive(Clone)]
struct Answer {
    head: response::Parts,
    body: Bytes,
}

/// A service with faults.
#[derive(Clone)]
pub struct Faulty<S> {
    faults: Faults,
    inner: S,
}

/// Older entries of the journal are dropped: a failing test needs the last ones.
const JOURNAL_MAX: usize = 1_000;
/// Number of stored answers, and the size in bytes above which an answer is not stored.
const ANSWERS_MAX: usize = 256;
const ANSWER_BYTES_MAX: usize = 1 << 20;
/// Recorded while a delayed watch holds events back, so that its readers see an old state.
const HELD_BACK: &str = "held back";
/// The `Retry-After` of throttled requests, in seconds.
const RETRY_AFTER_SECONDS: u64 = 1;

// === impl Faults ===

impl Faults {
    /// Creates faults from a schedule.
    pub fn new(schedule: Schedule) -> Faults {
        Faults(Arc::new(Inner { schedule, stopped: AtomicBool::new(false), memory: Mutex::default() }))
    }

    /// Stops injecting faults. Open watches may still end as planned.
    pub fn stop(&self) {
        self.0.stopped.store(true, Ordering::Relaxed);
    }

    /// The faults, oldest first, one line each, for the message of a failing test.
    pub fn journal(&self) -> Vec<String> {
        self.memory(|memory| memory.journal.iter().cloned().collect())
    }

    /// The number of faults of each kind, also `latency`, and how often a `late` watch was `held back`.
    pub fn counts(&self) -> BTreeMap<&'static str, u64> {
        self.memory(|memory| memory.met.clone())
    }

    fn met(&self, kind: &'static str) {
        self.memory(|memory| *memory.met.entry(kind).or_default() += 1);
    }

    fn memory<T>(&self, work: impl FnOnce(&mut FaultHistory) -> T) -> T {
        work(&mut self.0.memory.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The fault of the next request of this kind.
    fn draw(&self, asked: Asked<'_>) -> (Duration, Option<Fault>) {
        let line = format!("{} {}", asked.method, asked.path);
        let nth = self.memory(|memory| {
            let count = memory.counts.entry(line.clone()).or_default();
            *count += 1;
            *count
        });
        if self.0.stopped.load(Ordering::Relaxed) {
            return (Duration::ZERO, None);
        }
        let (latency, fault) = (self.0.schedule.latency(asked, nth), self.0.schedule.fault(asked, nth));
        if !latency.is_zero() {
            self.met("latency");
        }
        if let Some(fault) = &fault {
            // Without an older answer, an answer cannot be stale.
            if *fault != Fault::Stale {
                self.met(fault.kind());
            }
            self.memory(|memory| {
                memory.journal.push_back(format!("{line} #{nth}: {fault:?}"));
                if JOURNAL_MAX < memory.journal.len() {
                    memory.journal.pop_front();
                }
            });
        }
        (latency, fault)
    }

    fn remember(&self, uri: &Uri, answer: &Answer) {
        if ANSWER_BYTES_MAX < answer.body.len() {
            return;
        }
        self.memory(|memory| {
            // Of two equal requests, the first answer is the older one.
            if memory.answers.iter().any(|(known, _)| known == uri) {
                return;
            }
            memory.answers.push_back((uri.clone(), answer.clone()));
            if ANSWERS_MAX < memory.answers.len() {
                memory.answers.pop_front();
            }
        });
    }

    fn recall(&self, uri: &Uri) -> Option<Answer> {
        self.memory(|memory| {
            let index = memory.answers.iter().position(|(known, _)| known == uri)?;
            memory.answers.remove(index).map(|(_, answer)| answer)
        })
    }
}

impl<S> Layer<S> for Faults {
    type Service = Faulty<S>;

    fn layer(&self, inner: S) -> Faulty<S> {
        Faulty { faults: self.clone(), inner }
    }
}

// === impl Faulty ===

impl<S, B, R> Service<Request<B>> for Faulty<S>
where
    S: Service<Request<B>, Response = Response<R>> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: Into<BoxError>,
    B: Send + 'static,
    R: HttpBody<Data = Bytes> + Send + 'static,
    R::Error: Into<BoxError>,
{
    type Response = Response<Body>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, BoxError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        // The inner service is polled when it is called; a fault does not need it.
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let (faults, inner) = (self.faults.clone(), self.inner.clone());
        Box::pin(async move {
            let inner = inner.map_response(|response: Response<R>| response.map(Body::new)).map_err(Into::into);
            ask(faults, inner, request).await
        })
    }
}

/// Sends a request to the server, with its fault.
async fn ask<S, B>(faults: Faults, server: S, request: Request<B>) -> Result<Response<Body>, BoxError>
where
    S: Service<Request<B>, Response = Response<Body>, Error = BoxError>,
{
    let uri = request.uri().clone();
    let method = request.method().as_str().to_owned();
    let asked = Asked::from_request(&method, &uri);
    let (latency, fault) = faults.draw(asked);
    if !latency.is_zero() {
        tokio::time::sleep(latency).await;
    }
    match fault {
        Some(Fault::Throttled) => Ok(throttled()),
        Some(Fault::Failed(code)) => Ok(failed(code)),
        Some(Fault::Reset) => Err(reset()),
        Some(Fault::Lost { after }) => {
            // Wait for the whole answer, so that the write has happened.
            let response = server.oneshot(request).await?;
            response.into_body().collect().await?;
            tokio::time::sleep(after).await;
            Err(io::Error::from(io::ErrorKind::TimedOut).into())
        }
        Some(Fault::Unjudged { after }) => {
            tokio::time::sleep(after).await;
            Ok(unjudged(after))
        }
        Some(Fault::Gone) => Ok(stream_of(&gone_event())),
        Some(Fault::GonePage) => Ok(status(StatusCode::GONE, "Expired", GONE_LIST)),
        Some(Fault::Dropped { after, events }) => {
            let response = server.oneshot(request).await?;
            Ok(response.map(|body| cut(body.into_data_stream(), after, events)))
        }
        Some(Fault::Late { by }) => {
            let response = server.oneshot(request).await?;
            Ok(response.map(|body| held_back(faults, body.into_data_stream(), by)))
        }
        Some(Fault::Stale) if let Some(answer) = faults.recall(&uri) => {
            faults.met(Fault::Stale.kind());
            Ok(answer.into_response())
        }
        Some(Fault::Stale) | None if asked.allows_any_version() => {
            let answer = Answer::read(server.oneshot(request).await?).await?;
            if answer.head.status.is_success() {
                faults.remember(&uri, &answer);
            }
            Ok(answer.into_response())
        }
        Some(Fault::Stale) | None => server.oneshot(request).await,
    }
}

// === impl Answer ===

impl Answer {
    async fn read(response: Response<Body>) -> Result<Answer, BoxError> {
        let (head, body) = response.into_parts();
        Ok(Answer { head, body: body.collect().await?.to_bytes() })
    }

    fn into_response(self) -> Response<Body> {
        Response::from_parts(self.head, Body::from(self.body))
    }
}

const GONE_LIST: &str = "The provided continue parameter is too old to display a consistent list result. You can start \
                         a new list without the continue parameter, or use the continue token in this response to \
                         retrieve the remainder of the results. Continuing with the provided token results in an \
                         inconsistent list - objects that were created, modified, or deleted between the time the \
                         first chunk was returned and now may show up in the list.";

/// Ends the body after a time or a number of events, whichever comes first.
fn cut(body: BodyDataStream, after: Duration, events: usize) -> Body {
    let end = tokio::time::sleep(after);
    let body = body.map(|chunk| chunk.map_err(BoxError::from)).take_until(end);
    // A chunk of a watch contains one or more whole events.
    Body::from_stream(body.take(events))
}

/// Delays each chunk of the body.
fn held_back(faults: Faults, body: BodyDataStream, by: Duration) -> Body {
    Body::from_stream(body.then(move |chunk| {
        faults.met(HELD_BACK);
        async move {
            tokio::time::sleep(by).await;
            chunk
        }
    }))
}

fn stream_of(event: &Value) -> Response<Body> {
    let line = Bytes::from(format!("{event}\n"));
    let body = Body::from_stream(stream::iter([Ok::<_, Infallible>(line)]));
    response(StatusCode::OK, body)
}

fn gone_event() -> Value {
    let status = status_value(StatusCode::GONE, "Expired", "too old resource version");
    json!({"type": "ERROR", "object": status})
}

fn throttled() -> Response<Body> {
    let message = "too many requests, please try again later";
    let mut response = status(StatusCode::TOO_MANY_REQUESTS, "TooManyRequests", message);
    response.headers_mut().insert(header::RETRY_AFTER, RETRY_AFTER_SECONDS.into());
    response
}

fn failed(code: StatusCode) -> Response<Body> {
    match code {
        StatusCode::SERVICE_UNAVAILABLE => status(code, "ServiceUnavailable", "the server is not ready"),
        StatusCode::GATEWAY_TIMEOUT => {
            status(code, "Timeout", "Timeout: request did not complete within the allotted time")
        }
        _ => status(code, "InternalError", "Internal error occurred: etcdserver: leader changed"),
    }
}

/// The server's answer if a required webhook does not answer.
fn unjudged(after: Duration) -> Response<Body> {
    let message = format!(
        "Internal error occurred: failed calling webhook \"webhook.example.org\": failed to call webhook: Post \
         \"https://webhook.example.svc:443/?timeout={}s\": context deadline exceeded",
        after.as_secs()
    );
    status(StatusCode::INTERNAL_SERVER_ERROR, "InternalError", &message)
}

fn reset() -> BoxError {
    io::Error::from(io::ErrorKind::ConnectionReset).into()
}

fn status(code: StatusCode, reason: &str, message: &str) -> Response<Body> {
    response(code, Body::from(status_value(code, reason, message).to_string()))
}

fn status_value(code: StatusCode, reason: &str, message: &str) -> Value {
    json!({
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": message,
        "reason": reason,
        "code": code.as_u16(),
    })
}

fn response(code: StatusCode, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() = code;
    response.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static("application/json"));
    response
}

#[cfg(test)]
mod tests;
